//! Tests of the pure part of sibling transactions.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn at(number: i64) -> Instance {
    Instance::new(number).expect("positive")
}

fn text(text: &str) -> Text {
    text.into()
}

/// Begins and prepares `number` as transaction `number + 100`.
fn prepared(family: &mut Family, number: i64) -> Effects {
    let owner = number as u64 + 100;
    family.begin(at(number), owner).expect("begins");
    let result = text(&format!("result {number}"));
    family.prepare(at(number), owner, &text("buy"), &result, Limits::default()).expect("prepares")
}

#[test]
fn xids_and_instance_numbers_are_checked() {
    assert_eq!(Xid::new(""), Err(Refusal::XidEmpty));
    assert_eq!(Xid::new("é".repeat(101)), Err(Refusal::XidTooLong { bytes: 202 }));
    assert_eq!(Xid::new("a".repeat(201)), Err(Refusal::XidTooLong { bytes: 201 }));
    assert_eq!(Xid::new("a\0b"), Err(Refusal::XidHasNul));
    assert_eq!(Xid::new("a".repeat(200)).map(|x| x.as_str().len()), Ok(200));
    assert_eq!(Xid::new("it's \"x\"").map(|x| x.to_string()), Ok("it's \"x\"".to_owned()));
    for number in [0, -1, i64::MIN] {
        assert_eq!(Instance::new(number), Err(Refusal::InstanceNotPositive { number }));
    }
    assert_eq!(Instance::new(i64::MAX).map(Instance::get), Ok(i64::MAX));
}

#[test]
fn only_the_form_client_and_number_has_a_number() {
    let numbered = |text: &str| {
        let xid = Xid::new(text).expect("valid");
        xid.numbered().map(|(client, number)| (client.to_owned(), number))
    };
    assert_eq!(numbered("a/b/17"), Some(("a/b".to_owned(), 17)));
    for text in ["17", "/17", "a/0", "a/017", "a/-1", "a/+1", "a/1x", "a/", "a/99999999999999999999"] {
        assert_eq!(numbered(text), None, "{text}");
    }
}

#[test]
fn lanes_are_disjoint_and_interleave() {
    let client = Instance::above(0, 0).expect("first attempt");
    let stub = Instance::above(client.get(), 7).expect("a stub's");
    let next = Instance::above(stub.get(), 0).expect("the client's next");
    assert!(client < stub && stub < next);
    assert_ne!(Instance::above(5, 1), Instance::above(5, 2));
    assert_eq!(Instance::above(0, 1 << LANE_BITS), None);
    assert_eq!(Instance::above(i64::MAX, 0), None);
}

/// The history at the head of `family`.
#[test]
fn the_worked_history() {
    let mut family = Family::default();
    assert_eq!(family.begin(at(1), 7).map(|e| e.answer), Ok(Answer::Begun));
    assert_eq!(family.begin(at(2), 8).map(|e| e.answer), Ok(Answer::Begun));
    let limits = Limits::default();
    let effects = family.prepare(at(2), 8, &text("buy"), &text("order 51"), limits).expect("prepares");
    assert_eq!(effects.abort_active, [(at(1), 7)]);
    assert_eq!(effects.answer, Answer::Prepared);
    assert!(matches!(effects.log, Some(Change::Prepare { .. })));
    let effects = family.prepare(at(1), 7, &text("buy"), &text("order 50"), limits).expect("is told");
    assert_eq!(effects, Effects::none(Answer::Aborted));
    assert_eq!(family.begin(at(1), 10), Err(Refusal::InstanceAborted { instance: at(1), highest: at(2) }));
    family.begin(at(3), 9).expect("begins");
    let effects = family.commit(at(2)).expect("commits");
    assert_eq!((effects.abort_active, effects.commit), (vec![(at(3), 9)], Some(at(2))));
    let outcome = Outcome { winner: at(2), result: text("order 51"), request: text("buy") };
    let again = Effects::none(Answer::Decided(outcome));
    assert_eq!(family.begin(at(4), 11), Ok(again.clone()));
    assert_eq!(family.prepare(at(3), 9, &text("buy"), &text("?"), limits), Ok(again.clone()));
    assert_eq!(family.commit(at(2)), Ok(again));
    assert_eq!(family.forget().map(|e| e.log), Ok(Some(Change::Forget)));
}

#[test]
fn a_prepare_ends_every_smaller_instance_that_is_not_prepared_and_no_other() {
    let mut family = Family::default();
    prepared(&mut family, 2);
    family.begin(at(3), 3).expect("begins");
    family.begin(at(9), 9).expect("begins");
    let effects = prepared(&mut family, 5);
    assert_eq!(effects.abort_active, [(at(3), 3)]);
    let states: Vec<State> = (1..=9).map(|i| family.state(at(i))).collect();
    use State::{Aborted, Active, Prepared, Unknown};
    assert_eq!(states, [Aborted, Prepared, Aborted, Aborted, Prepared, Unknown, Unknown, Unknown, Active]);
    assert_eq!(family.mipt().floor, 5);
    assert!(family.abandon(at(9), 9));
    assert_eq!(family.state(at(9)), Aborted);
    family.crash();
    assert_eq!(family.state(at(9)), Unknown);
    assert_eq!(family.state(at(4)), Aborted);
}

#[test]
fn each_bad_input_is_refused_with_its_own_reason_and_changes_nothing() {
    let mut family = Family::default();
    assert_eq!(family.forget(), Err(Refusal::FamilyUnknown));
    family.begin(at(1), 101).expect("begins");
    prepared(&mut family, 4);
    family.begin(at(6), 106).expect("begins");
    let before = family.clone();
    let (buy, sell, done) = (text("buy"), text("sell"), text("done"));
    let limits = Limits { request_bytes: 4, result_bytes: 4 };
    let used = |i| Err(Refusal::InstanceInUse { instance: at(i), highest: at(6) });
    let unknown = Err(Refusal::InstanceUnknown { instance: at(7) });
    let aborted = Err(Refusal::InstanceAborted { instance: at(1), highest: at(6) });
    assert_eq!(family.begin(at(6), 1), used(6));
    assert_eq!(family.begin(at(4), 1), used(4));
    assert_eq!(family.begin(at(1), 1), aborted);
    assert_eq!(family.prepare(at(6), 1, &buy, &done, limits), used(6));
    assert_eq!(family.prepare(at(4), 104, &buy, &done, limits), used(4));
    assert_eq!(family.prepare(at(7), 1, &buy, &done, limits), unknown);
    assert_eq!(family.prepare(at(6), 106, &sell, &done, limits), Err(Refusal::RequestDiffers));
    let long = text("12345");
    let too_large = Err(Refusal::RequestTooLarge { bytes: 5, limit: 4 });
    assert_eq!(family.prepare(at(6), 106, &long, &done, limits), too_large);
    let too_large = Err(Refusal::ResultTooLarge { bytes: 5, limit: 4 });
    assert_eq!(family.prepare(at(6), 106, &buy, &long, limits), too_large);
    assert_eq!(family.commit(at(7)), unknown);
    assert_eq!(family.commit(at(1)), aborted);
    assert_eq!(family.commit(at(6)), Err(Refusal::InstanceNotPrepared { instance: at(6) }));
    assert_eq!(family.rollback(at(7)), unknown);
    assert_eq!(family.rollback(at(1)), aborted);
    assert_eq!(family.forget(), Err(Refusal::NotDecided));
    assert!(!family.abandon(at(6), 1));
    assert_eq!(family, before);
    family.commit(at(4)).expect("commits");
    let decided = Err(Refusal::DecidedOtherwise { winner: at(4) });
    assert_eq!(family.commit(at(6)), decided);
    assert_eq!(family.rollback(at(4)), decided);
    assert_eq!(family.prepare(at(6), 106, &sell, &done, limits), Err(Refusal::RequestDiffers));
}

#[test]
fn a_rollback_of_a_prepared_instance_is_logged_and_for_ever() {
    let mut family = Family::default();
    prepared(&mut family, 2);
    let effects = family.rollback(at(2)).expect("rolls back");
    assert_eq!(effects.abort_prepared, [at(2)]);
    assert_eq!(effects.log, Some(Change::Abort { instances: vec![at(2)] }));
    family.crash();
    assert_eq!(family.state(at(2)), State::Aborted);
    assert!(matches!(family.commit(at(2)), Err(Refusal::InstanceAborted { .. })));
}

/// What a table tells is as durable as what REFUSE says; what is prepared here, and a decision, are
/// not touched by it.
#[test]
fn what_is_refused_or_told_to_be_aborted_is_so_for_ever() {
    let mut family = Family::default();
    family.begin(at(1), 101).expect("begins");
    assert!(family.abandon(at(1), 101));
    assert_eq!(family.settle(), Some(Change::Abort { instances: vec![at(1)] }));
    assert_eq!(family.settle(), None);
    family.crash();
    assert_eq!((family.state(at(1)), family.is_blank()), (State::Aborted, false));
    prepared(&mut family, 3);
    family.begin(at(5), 105).expect("begins");
    family.begin(at(6), 106).expect("begins");
    family.begin(at(7), 107).expect("begins");
    let effects = family.refuse(at(6));
    assert_eq!(effects.abort_active, [(at(5), 105), (at(6), 106)]);
    assert_eq!((effects.log, effects.answer), (Some(Change::Refuse { upto: at(6) }), Answer::Refused));
    assert_eq!(family.refuse(at(4)), Effects::none(Answer::Refused));
    family.crash();
    let states: Vec<State> = (1..=7).map(|i| family.state(at(i))).collect();
    use State::{Aborted, Prepared, Unknown};
    assert_eq!(states, [Aborted, Aborted, Prepared, Aborted, Aborted, Aborted, Unknown]);
    let late = family.prepare(at(5), 105, &text("buy"), &text("five"), Limits::default());
    assert_eq!(late, Ok(Effects::none(Answer::Aborted)));
    family.commit(at(3)).expect("it was prepared");
    assert!(matches!(family.refuse(at(9)).answer, Answer::Decided(_)));
}

#[derive(Debug, Clone)]
enum Step {
    Begin(i64, u64),
    Prepare(i64, u64),
    Abandon(i64, u64),
    Rollback(i64),
    Refuse(i64),
    Settle,
    Commit(i64),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1i64..8, 0u64..3).prop_map(|(i, o)| Step::Begin(i, o)),
        4 => (1i64..8, 0u64..3).prop_map(|(i, o)| Step::Prepare(i, o)),
        1 => (1i64..8, 0u64..3).prop_map(|(i, o)| Step::Abandon(i, o)),
        1 => (1i64..8).prop_map(Step::Rollback),
        1 => (1i64..8).prop_map(Step::Refuse),
        1 => Just(Step::Settle),
        1 => (1i64..8).prop_map(Step::Commit),
        1 => Just(Step::Crash),
    ]
}

fn apply(family: &mut Family, step: &Step) -> Result<Option<Effects>, Refusal> {
    match *step {
        Step::Begin(i, owner) => family.begin(at(i), owner).map(Some),
        Step::Prepare(i, owner) => {
            let result = text(&i.to_string());
            family.prepare(at(i), owner, &text("r"), &result, Limits::default()).map(Some)
        }
        Step::Abandon(i, owner) => {
            Ok(family.abandon(at(i), owner).then(|| Effects::none(Answer::RolledBack)))
        }
        Step::Rollback(i) => family.rollback(at(i)).map(Some),
        Step::Refuse(i) => Ok(Some(family.refuse(at(i)))),
        Step::Settle => {
            Ok(family.settle().map(|log| Effects { log: Some(log), ..Effects::none(Answer::Aborted) }))
        }
        Step::Commit(i) => family.commit(at(i)).map(Some),
        Step::Crash => {
            family.crash();
            Ok(None)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever happens: the log says all that a crash leaves, a refusal changes nothing, what is
    /// aborted durably stays so, the first winner stays the winner, nothing below a prepared
    /// instance becomes prepared, and the effects name exactly the siblings that ended.
    #[test]
    fn invariants_hold_in_every_history(steps in prop::collection::vec(step(), 1..40)) {
        let mut family = Family::default();
        let mut replayed = Family::default();
        for step in &steps {
            let before = family.clone();
            let states = |family: &Family| (1..8).map(|i| family.state(at(i))).collect::<Vec<_>>();
            let (was, floor) = (states(&before), before.floor);
            let effects = apply(&mut family, step);
            if let Ok(Some(effects)) = &effects {
                let ended: BTreeSet<i64> = effects.abort_active.iter().map(|(i, _)| i.get())
                    .chain(effects.abort_prepared.iter().map(|i| i.get())).collect();
                if let (Step::Refuse(upto), false) = (step, before.outcome().is_some()) {
                    let is_known = |i: i64| matches!(family.state(at(i)), State::Prepared | State::Aborted);
                    prop_assert!((1..=*upto).all(is_known), "{:?}", steps);
                }
                if matches!(step, Step::Settle) {
                    let mut crashed = family.clone();
                    crashed.crash();
                    let kept = (1..8).filter(|i| family.state(at(*i)) == State::Aborted);
                    prop_assert!(kept.into_iter().all(|i| crashed.state(at(i)) == State::Aborted));
                }
                for i in 1..8 {
                    let alive = matches!(was[i as usize - 1], State::Active | State::Prepared);
                    let died = alive && family.state(at(i)) == State::Aborted;
                    let itself = matches!(step, Step::Abandon(j, _) if *j == i);
                    prop_assert_eq!(died && !itself, ended.contains(&i), "{:?}", steps);
                }
                if let Some(change) = &effects.log {
                    replayed.replay(change);
                }
            } else if effects.is_err() {
                prop_assert_eq!(&family, &before);
            }
            let mut crashed = family.clone();
            crashed.crash();
            prop_assert_eq!(&crashed, &replayed);
            for (i, was) in (1..8).zip(was) {
                let is = family.state(at(i));
                match was {
                    State::Committed => prop_assert_eq!(is, State::Committed),
                    State::Aborted if i < floor || before.aborted.contains(&at(i)) =>
                        prop_assert_eq!(is, State::Aborted),
                    _ => {}
                }
                if is == State::Prepared && was != State::Prepared {
                    prop_assert!(i >= floor);
                }
            }
            let committed = (1..8).filter(|i| family.state(at(*i)) == State::Committed).count();
            prop_assert_eq!(committed, usize::from(family.outcome().is_some()));
        }
    }

    #[test]
    fn collected_numbers_are_those_that_were_inserted(numbers in prop::collection::vec(1u64..30, 0..60)) {
        let (mut collected, mut model) = (Collected::default(), BTreeSet::new());
        for number in numbers {
            prop_assert_eq!(collected.insert(number), model.insert(number));
            for n in 1..31 {
                prop_assert_eq!(collected.contains(n), model.contains(&n));
            }
            let mut end = collected.upto();
            for (first, last) in collected.ranges() {
                prop_assert!(first > end + 1 && last >= first);
                end = last;
            }
        }
    }
}

#[test]
fn the_highest_number_can_be_collected() {
    let mut collected = Collected::default();
    assert!(collected.insert(u64::MAX) && collected.insert(u64::MAX - 1));
    assert_eq!(collected.ranges().collect::<Vec<_>>(), [(u64::MAX - 1, u64::MAX)]);
    assert!(!collected.contains(1) && collected.contains(0));
}

/// 100,000 instances that are begun, ended and prepared: quadratic work would take minutes.
#[test]
fn many_instances_are_not_walked() {
    let mut family = Family::default();
    for number in 1..=100_000 {
        family.begin(at(number), number as u64).expect("begins");
        if number % 3 == 0 {
            family.abandon(at(number), number as u64);
        }
    }
    let mut ended = 0;
    for number in (10..=100_000).step_by(10).filter(|number| number % 3 != 0) {
        let effects = family
            .prepare(at(number), number as u64, &text("r"), &text("d"), Limits::default())
            .expect("prepares");
        ended += effects.abort_active.len();
    }
    assert_eq!(ended + family.prepared().count(), 66_667);
}
