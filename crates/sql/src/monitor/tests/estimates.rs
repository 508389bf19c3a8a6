//! The averages and the model.

use super::super::decayed::{Decayed, fading};
use super::super::measures::Measures;
use super::super::model::{Estimates, estimate};
use super::super::traffic::Traffic;
use super::*;

const SECOND: i64 = 1_000_000;

const THREE: Surroundings = Surroundings { nodes: 3, applier_busy: None };

/// A quiet transaction under certification.
const QUIET: Finished = Finished {
    class: 16,
    protocol: Protocol::Certification,
    fit_for_active: true,
    told_if_refused: false,
    committed: true,
    conflict: Some(false),
    execution_us: 200,
    lock_wait_us: 0,
    write_bytes: 500,
    read_bytes: 500,
    order_us: 1000,
    vote_us: 0,
    round_trips: 1,
};

/// What is estimated after attempts that come every 10 ms.
fn after(attempts: impl Iterator<Item = Finished>, chosen: Protocol) -> Estimates {
    let (mut measures, mut traffic) = (Measures::new(0), Traffic::new());
    let mut now = 0;
    for attempt in attempts {
        now += SECOND / 100;
        measures.note(&attempt, now);
        traffic.note(&attempt, now);
    }
    estimate(&measures, &traffic.sight(THREE), chosen, true)
}

fn all(estimates: &Estimates) -> [f64; 3] {
    Protocol::ALL.map(|protocol| estimates.cost(protocol).expect("it is fit"))
}

#[test]
fn averages_forget() {
    let mut average = Decayed::default();
    assert_eq!((average.mean(), average.weight()), (0.0, 0.0));
    (0..200).for_each(|_| average.note(10.0));
    average.fade(fading(2 * SECOND));
    assert_eq!((average.mean(), average.weight()), (10.0, 100.0));
    average.note(1e12);
    assert!((average.mean() - 11.0).abs() < 0.1, "outliers: {}", average.mean());
    average.fade(fading(i64::MAX));
    assert!(average.mean() > 10.0 && average.weight() > 0.0 && average.weight() < 1e-5);
    average.fade(fading(-5));
    average.fade(fading(i64::MIN));
    (0..10_000).for_each(|_| average.note(1000.0));
    assert!((average.mean() - 1000.0).abs() < 1.0);
    assert_eq!(average.weight(), 256.0);
    assert_eq!(average.or(0.0, 256.0), average.mean() / 2.0);
}

#[test]
fn conflicts_speak_for_active() {
    let refused = |number: u32| number % 2 == 1;
    let attempts = (0..500).map(|number| Finished {
        committed: !refused(number),
        conflict: Some(refused(number)),
        ..QUIET
    });
    let estimates = after(attempts, Protocol::Certification);
    let [certification, weak_voting, active] = all(&estimates);
    // As in the example of the module's prose.
    assert!((certification - 3100.0).abs() < 150.0, "{certification}");
    assert!((active - 1860.0).abs() < 100.0, "{active}");
    assert!(weak_voting > certification);
    assert!((estimates.of(Protocol::Certification).expect("possible").refused - 0.5).abs() < 0.05);
}

#[test]
fn what_costs_much_and_conflicts_seldom_is_executed_once() {
    let attempts = (0..500).map(|_| Finished { execution_us: 20_000, ..QUIET });
    let [certification, weak_voting, active] = all(&after(attempts, Protocol::Certification));
    assert!(certification < 0.87 * active && certification < weak_voting);
}

#[test]
fn large_read_sets_speak_for_weak_voting() {
    // What a byte adds to the delay is seen by sizes that differ.
    let attempts = (0..500).map(|number| {
        let read_bytes = 500_000 + number % 7 * 50_000;
        Finished { read_bytes, order_us: 1000 + read_bytes / 50, execution_us: 2000, ..QUIET }
    });
    let [certification, weak_voting, active] = all(&after(attempts, Protocol::Certification));
    assert!(
        weak_voting < 0.87 * certification && weak_voting < active,
        "{certification} {weak_voting} {active}"
    );
}

#[test]
fn what_was_not_tried_is_calculated() {
    let attempts = (0..500).map(|number| Finished {
        protocol: Protocol::Active,
        conflict: Some(number % 2 == 0),
        read_bytes: 0,
        ..QUIET
    });
    let estimates = after(attempts, Protocol::Active);
    let [certification, _, active] = all(&estimates);
    // At risk is half of the delay more when it is executed before it is ordered.
    let refused = estimates.of(Protocol::Certification).expect("possible").refused;
    assert!((0.5..0.62).contains(&refused), "{refused}");
    assert!(certification > 1.3 * active);

    // The conflicts have gone, and whoever executes it has looked.
    let attempts = (0..2000).map(|number| Finished {
        protocol: Protocol::Active,
        conflict: Some(number < 100),
        read_bytes: 0,
        execution_us: 3000,
        ..QUIET
    });
    let [certification, _, active] = all(&after(attempts, Protocol::Active));
    assert!(certification < 0.87 * active);
}

#[test]
fn what_fails_does_not_make_active_cheap() {
    let whole = Finished { protocol: Protocol::Active, ..QUIET };
    // It has come to nothing at its first statement, or was not executed at all.
    let failed = Finished { committed: false, conflict: None, execution_us: 0, write_bytes: 0, ..whole };
    let mixed = (0..500).map(|number| if number % 4 == 0 { whole } else { failed });
    let [certification, _, active] = all(&after(mixed, Protocol::Active));
    let [of_whole, _, active_of_whole] = all(&after((0..500).map(|_| whole), Protocol::Active));
    assert!((active / active_of_whole - 1.0).abs() < 0.02, "{active} {active_of_whole}");
    assert!((certification / of_whole - 1.0).abs() < 0.02, "{certification} {of_whole}");
}

#[test]
fn what_fails_late_each_time_is_known_to_be_long() {
    let whole = Finished { protocol: Protocol::Active, ..QUIET };
    let late = Finished { committed: false, conflict: None, execution_us: 5_000_000, ..whole };
    let each_time = after((0..50).map(|_| late), Protocol::Active);
    assert!(each_time.active_us > 4e6, "{}", each_time.active_us);
    let some = after((0..50).map(|number| if number < 5 { whole } else { late }), Protocol::Active);
    assert!(some.active_us > 1e6, "{}", some.active_us);
}

#[test]
fn what_nobody_has_looked_at_fades() {
    let refused = |number: u32| number % 10 > 1;
    let hot = (0..300).map(|number| Finished {
        committed: !refused(number),
        conflict: Some(refused(number)),
        ..QUIET
    });
    let since = |count| (0..count).map(|_| Finished { protocol: Protocol::Active, conflict: None, ..QUIET });
    let [certification, _, active] = all(&after(hot.clone().chain(since(200)), Protocol::Active));
    assert!(certification > active, "after two seconds");
    let [certification, _, active] = all(&after(hot.chain(since(6000)), Protocol::Active));
    assert!(certification < 0.87 * active, "after a minute");
}

#[test]
fn what_fills_the_applier_is_not_executed_everywhere() {
    // A hundred clients that wait for 2 ms each, of which a third is execution: one applier would
    // take 70 ms for them.
    let (mut measures, mut traffic) = (Measures::new(0), Traffic::new());
    for number in 0..20_000 {
        let refused = number % 2 == 1;
        let attempt = Finished {
            committed: !refused,
            conflict: Some(refused),
            execution_us: 700,
            order_us: 1300,
            ..QUIET
        };
        measures.note(&attempt, number * 60);
        traffic.note(&attempt, number * 60);
    }
    let sight = traffic.sight(THREE);
    assert!((sight.in_flight - 100.0).abs() < 2.0, "{}", sight.in_flight);
    let estimates = estimate(&measures, &sight, Protocol::Certification, true);
    let [certification, _, active] = all(&estimates);
    assert!(active > 5.0 * certification, "{certification} {active}");
    // Told that the applier is idle all the same, the model believes it of what is now.
    let idle = traffic.sight(Surroundings { applier_busy: Some(0.0), ..THREE });
    assert_eq!(idle.serial_us, 0.0);
    let told = traffic.sight(Surroundings { applier_busy: Some(f64::NAN), ..THREE });
    assert_eq!(told.serial_us, sight.serial_us);
}

#[test]
fn active_is_never_estimated_for_what_comes_piecemeal() {
    let (measures, traffic) = (Measures::new(0), Traffic::new());
    let estimates = estimate(&measures, &traffic.sight(THREE), Protocol::Certification, false);
    assert!(estimates.cost(Protocol::Active).is_none());
    assert!(estimates.cost(Protocol::WeakVoting).is_some());
}

#[test]
fn every_estimate_is_finite() {
    let first = first_seed();
    for seed in first..first + 300 {
        let mut random = cognate_env::SplitMix::new(seed);
        let mut measures = Measures::new(random.bits() as i64);
        let mut traffic = Traffic::new();
        let figure = |random: &mut cognate_env::SplitMix| match random.below(5) {
            0 => 0,
            1 => u64::MAX,
            2 => random.below(2),
            3 => random.bits(),
            _ => random.below(10_000),
        };
        for _ in 0..random.below(200) {
            let attempt = Finished {
                class: random.bits(),
                protocol: Protocol::ALL[random.below(3) as usize],
                fit_for_active: random.one_in(2),
                told_if_refused: random.one_in(2),
                committed: random.one_in(2),
                conflict: [None, Some(true), Some(false)][random.below(3) as usize],
                execution_us: figure(&mut random),
                lock_wait_us: figure(&mut random),
                write_bytes: figure(&mut random),
                read_bytes: figure(&mut random),
                order_us: figure(&mut random),
                vote_us: figure(&mut random),
                round_trips: figure(&mut random) as u32,
            };
            let now = figure(&mut random) as i64;
            measures.note(&attempt, now);
            traffic.note(&attempt, now);
            let nodes = figure(&mut random) as u32;
            let busy = [None, Some(f64::NAN), Some(f64::INFINITY), Some(-1.0), Some(0.0), Some(1.0)];
            let surroundings = Surroundings { nodes, applier_busy: busy[random.below(6) as usize] };
            let chosen = Protocol::ALL[random.below(3) as usize];
            let estimates = estimate(&measures, &traffic.sight(surroundings), chosen, true);
            for cost in all(&estimates) {
                assert!(cost.is_finite() && cost >= 0.0, "COGNATE_SEED={seed}: {estimates:?}");
            }
        }
    }
}
