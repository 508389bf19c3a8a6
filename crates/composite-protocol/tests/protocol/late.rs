//! A call that comes late: its root was committed and forgotten, the process has ended, and the
//! next one executes it once more. One history after the other.
//!
//! The parent may not have heard yet that all is done, and says again that the root is committed.
//! He names the vote of what was committed, which is none of what was executed late.

use cognate_composite_protocol::name::{CallId, Name, RootId};
use cognate_composite_protocol::participant::{
    ANY_NONCE, Arrival, Effect, Ended, Event, Mark, Outcome, Participant, Prepare, Refusal, Remembered,
    Settled, SlotFacts, Vote,
};

use crate::takes_items;

/// What was committed, and forgotten with its process.
const EARLIER: u64 = 7;
/// What was executed late.
const LATE: u64 = 8;

fn root() -> RootId {
    RootId::new("r").expect("a root")
}

fn call() -> CallId {
    CallId::new("r.1").expect("a call")
}

fn parent() -> Name {
    Name::new("shop").expect("a name")
}

/// It was started and has found no slot of the root.
fn started(marks: Vec<(RootId, Mark)>) -> Participant {
    let remembered = Remembered { marks, ..Remembered::default() };
    Participant::recover(takes_items(), 2, remembered).0
}

fn arrival() -> Arrival {
    Arrival {
        root: root(),
        call: call(),
        parent: Some(parent()),
        ancestors: Vec::new(),
        service: 0,
        item: "7".into(),
        arguments: 0,
    }
}

/// The call runs, and has not written its slot yet.
fn runs() -> Participant {
    let mut stock = started(Vec::new());
    assert_eq!(stock.handle(Event::Arrive(arrival())), [Effect::Run(root(), call())]);
    stock
}

/// The call has committed, and was answered.
fn has_answered() -> Participant {
    let mut stock = runs();
    assert_eq!(stock.nonce(&root(), LATE), Some(LATE));
    let ended = Ended::Committed { slot: Some(0), answer: "said".into() };
    let effects = stock.handle(Event::Ended(root(), call(), ended));
    assert_eq!(effects, [Effect::Answer(root(), call(), "said".into())]);
    stock
}

/// The question comes late, too.
fn is_asked(stock: &mut Participant) {
    let (parent, generation) = (parent(), None);
    let effects =
        stock.handle(Event::Prepare(Prepare { root: root(), parent, calls: 1, generation, nonce: 9 }));
    assert_eq!(effects, [Effect::WriteVote(root(), Some(LATE))]);
}

/// What the parent hears who names these.
fn hears(stock: &mut Participant, named: [Option<u64>; 4]) -> [Settled; 4] {
    named.map(|nonce| match &stock.handle(Event::Commit(root(), parent(), nonce))[..] {
        [Effect::SendSettled(its, to, settled)] if (its, to) == (&root(), &parent()) => *settled,
        effects => panic!("{nonce:?}: {effects:?}"),
    })
}

const NAMED: [Option<u64>; 4] = [Some(EARLIER), Some(LATE), Some(ANY_NONCE), None];
/// What was committed earlier is done. What was executed late was promised to nobody, or undone.
const EXACT: [Settled; 4] = [Settled::Done, Settled::Refused, Settled::Refused, Settled::Refused];
/// Of a call that runs nothing was said, so no vote that has a name is its own.
const NOTHING_SAID: [Settled; 4] = [Settled::Done, Settled::Done, Settled::Refused, Settled::Refused];

#[test]
fn what_was_committed_earlier_is_done_and_what_came_late_is_not() {
    assert_eq!(hears(&mut runs(), NAMED), NOTHING_SAID);
    for is_asked_before in [false, true] {
        let mut stock = has_answered();
        assert_eq!(hears(&mut stock, NAMED), EXACT);
        if is_asked_before {
            is_asked(&mut stock);
            assert_eq!(hears(&mut stock, NAMED), EXACT, "its yes is not out");
        }
        // It is undone at its deadline.
        let effects = stock.handle(Event::Deadline(root()));
        assert!(effects.contains(&Effect::Mark(root(), Mark::Undone(Some(LATE)))), "{effects:?}");
        assert!(effects.contains(&Effect::Undo(root(), call())), "{effects:?}");
        assert_eq!(hears(&mut stock, NAMED), EXACT, "it is being undone");
        let effects = stock.handle(Event::Undone(root(), call()));
        assert_eq!(effects, [Effect::Forget(root(), Outcome::Aborted)]);
        assert_eq!(hears(&mut stock, NAMED), EXACT, "it is undone");
    }
}

/// A promise is not ended by what is said of another one.
#[test]
fn who_has_a_yes_out_refuses_the_commit_of_another_vote() {
    let mut stock = has_answered();
    is_asked(&mut stock);
    let yes = Effect::SendVote(root(), parent(), Vote::Yes(LATE));
    assert_eq!(stock.handle(Event::VoteWritten(root())), [yes]);
    assert_eq!(hears(&mut stock, [Some(EARLIER); 4]), [Settled::Refused; 4]);
    assert!(stock.is_in_doubt(&root()), "it has ended");
    // The parent, once asked, says what has become of this one.
    let effects = stock.handle(Event::Learned(root(), parent(), Some(LATE), Outcome::Aborted));
    assert!(effects.contains(&Effect::Mark(root(), Mark::Undone(Some(LATE)))), "{effects:?}");
    assert_eq!(hears(&mut stock, NAMED), EXACT);
}

/// An office that had nothing of the root, and has forgotten it, executes a call that comes late:
/// it calls the stock, where the root is promised to the shop and may be committed, and is
/// refused. So it gives up, and says so.
#[test]
fn who_has_not_called_here_does_not_end_a_promise() {
    let office = || Name::new("office").expect("a name");
    let called = CallId::new("r.2.1").expect("a call");
    let mut stock = has_answered();
    is_asked(&mut stock);
    stock.handle(Event::VoteWritten(root()));
    let arrival = Arrival { call: called.clone(), parent: Some(office()), ..arrival() };
    let refuse = Effect::Refuse(root(), called, Refusal::Ended);
    assert_eq!(stock.handle(Event::Arrive(arrival)), [refuse]);
    let pending = Effect::SendSettled(root(), office(), Settled::Pending);
    for has_asked in [false, true] {
        if has_asked {
            let (parent, generation) = (office(), None);
            let question = Prepare { root: root(), parent, calls: 0, generation, nonce: 9 };
            let yes = Effect::SendVote(root(), office(), Vote::Yes(LATE));
            assert_eq!(stock.handle(Event::Prepare(question)), [yes]);
        }
        assert_eq!(stock.handle(Event::Abort(root(), office())), std::slice::from_ref(&pending));
        let effects = stock.handle(Event::Learned(root(), office(), Some(LATE), Outcome::Aborted));
        assert_eq!(effects, [], "it is asked, and is nobody's parent");
        assert!(stock.is_in_doubt(&root()), "it has ended");
    }
    // Who has called ends it.
    let effects = stock.handle(Event::Learned(root(), parent(), Some(LATE), Outcome::Aborted));
    assert!(effects.contains(&Effect::Undo(root(), call())), "{effects:?}");
    // Of what nobody was promised anybody may say so.
    let mut stock = has_answered();
    let effects = stock.handle(Event::Abort(root(), office()));
    assert!(effects.contains(&Effect::Undo(root(), call())), "{effects:?}");
}

#[test]
fn what_was_undone_is_told_from_what_was_committed_after_a_restart_too() {
    let after = |mark| hears(&mut started(vec![(root(), mark)]), NAMED);
    assert_eq!(after(Mark::Undone(Some(LATE))), EXACT);
    // Marks of earlier builds, and ends, do not say what was undone.
    assert_eq!(after(Mark::Undone(Some(ANY_NONCE))), [Settled::Refused; 4]);
    assert_eq!(after(Mark::Undone(None)), NOTHING_SAID);
    assert_eq!(hears(&mut started(Vec::new()), NAMED), [Settled::Done; 4]);
}

/// A person may end a promise, and its parent may say the opposite later: he has to hear of that.
#[test]
fn what_a_person_has_undone_refuses_its_commit() {
    let mut stock = has_answered();
    is_asked(&mut stock);
    stock.handle(Event::VoteWritten(root()));
    let mark = Mark::Undone(Some(LATE));
    let effects = stock.handle(Event::Settle(root(), Outcome::Aborted));
    assert_eq!(effects, [Effect::Mark(root(), mark), Effect::Undo(root(), call())]);
    assert_eq!(hears(&mut stock, NAMED), EXACT, "it is being undone");
    stock.handle(Event::Undone(root(), call()));
    assert_eq!(hears(&mut stock, NAMED), EXACT, "it is undone");
    assert_eq!(hears(&mut started(vec![(root(), mark)]), NAMED), EXACT, "the process has ended");
}

/// Nobody says it again, so the database has to know it, also if the process ends now.
#[test]
fn what_a_person_has_committed_is_noted() {
    let mut stock = has_answered();
    is_asked(&mut stock);
    stock.handle(Event::VoteWritten(root()));
    let effects = stock.handle(Event::Settle(root(), Outcome::Committed));
    assert_eq!(effects, [Effect::Note(root(), vec![0])]);
    assert!(stock.is_settled(&root()), "nothing says so but this process");
    assert_eq!(stock.handle(Event::Noted(root())), [Effect::Free(root(), vec![0])]);
    assert!(!stock.is_settled(&root()));
    assert_eq!(stock.handle(Event::Freed(root())), [Effect::Forget(root(), Outcome::Committed)]);
    // A parent that says so remembers it.
    let mut stock = has_answered();
    is_asked(&mut stock);
    stock.handle(Event::VoteWritten(root()));
    let pending = Effect::SendSettled(root(), parent(), Settled::Pending);
    let effects = stock.handle(Event::Commit(root(), parent(), Some(LATE)));
    assert_eq!(effects, [Effect::Free(root(), vec![0]), pending]);
    assert!(!stock.is_settled(&root()));
}

/// What is kept prepared cannot be written into. It is said in all slots at once then, and none is
/// free before: a start would be in doubt about those that are left.
#[test]
fn what_a_person_has_committed_is_noted_as_a_whole() {
    let (other, payment) = (CallId::new("r.2").expect("a call"), Name::new("payment").expect("a name"));
    let held = SlotFacts { is_held: true, ..found() };
    let arrival = Arrival { call: other, ..arrival() };
    let children = vec![(payment.clone(), 1)];
    let open = SlotFacts { slot: 1, sequence: 2, arrival, children, ..found() };
    let remembered = Remembered { slots: vec![held, open], ..Remembered::default() };
    let (mut stock, _) = Participant::recover(takes_items(), 3, remembered);
    let effects = stock.handle(Event::Settle(root(), Outcome::Committed));
    let tell = Effect::TellCommit(root(), payment.clone(), None);
    assert_eq!(effects, [Effect::CommitHeld(root(), call()), tell]);
    assert_eq!(stock.handle(Event::Told(root(), payment, Settled::Done)), []);
    assert!(stock.is_settled(&root()));
    let effects = stock.handle(Event::HeldCommitted(root(), call()));
    assert_eq!(effects, [Effect::Note(root(), vec![0, 1])]);
    assert!(stock.is_settled(&root()));
    assert_eq!(stock.handle(Event::Noted(root())), [Effect::Free(root(), vec![0, 1])]);
    assert!(!stock.is_settled(&root()));
    assert_eq!(stock.handle(Event::Noted(root())), [], "a parent had it noted, too");
}

/// `done` is also said of what was never here, which a later process may have promised: only of
/// what was committed here it is known.
#[test]
fn who_has_committed_is_told_from_who_knows_nothing_or_something_else() {
    let mut stock = started(Vec::new());
    assert_eq!(hears(&mut stock, NAMED), [Settled::Done; 4]);
    assert!(!stock.has_committed(&root()), "it was never here");
    // Nothing was executed for it: this yes promises nothing.
    let (parent, generation) = (parent(), None);
    stock.handle(Event::Prepare(Prepare { root: root(), parent, calls: 0, generation, nonce: 9 }));
    assert_eq!(hears(&mut stock, NAMED), [Settled::Done; 4]);
    assert!(!stock.has_committed(&root()), "nothing of it was here");
    let mut stock = has_answered();
    assert_eq!(hears(&mut stock, [Some(EARLIER); 4]), [Settled::Done; 4]);
    assert!(!stock.has_committed(&root()), "another one was");
    is_asked(&mut stock);
    stock.handle(Event::VoteWritten(root()));
    stock.handle(Event::Commit(root(), self::parent(), Some(LATE)));
    assert!(stock.has_committed(&root()), "its slots are still to be freed");
    assert_eq!(stock.handle(Event::Freed(root())), [Effect::Forget(root(), Outcome::Committed)]);
    assert_eq!(hears(&mut stock, [Some(LATE); 4]), [Settled::Done; 4]);
    assert!(stock.has_committed(&root()), "it is marked as committed");
    stock.handle(Event::MarkOver(root()));
    assert!(!stock.has_committed(&root()), "nobody remembers it any more");
}

/// A call that only reads is answered before anybody asks for the number of its yes: its caller may
/// be told one, or none.
#[test]
fn what_was_answered_and_has_no_number_yet_refuses_every_commit() {
    let mut stock = runs();
    let ended = Ended::Committed { slot: None, answer: "said".into() };
    stock.handle(Event::Ended(root(), call(), ended));
    assert_eq!(hears(&mut stock, NAMED), [Settled::Refused; 4]);
    let mark = Effect::Mark(root(), Mark::Undone(Some(ANY_NONCE)));
    let effects = stock.handle(Event::Deadline(root()));
    assert_eq!(effects, [mark, Effect::Forget(root(), Outcome::Aborted)]);
    assert_eq!(hears(&mut stock, NAMED), [Settled::Refused; 4]);
}

/// Where a root began each question is answered under a number of its own, of which it keeps none.
#[test]
fn what_is_undone_where_it_began_refuses_every_commit() {
    let mut shop = started(Vec::new());
    let began = Arrival { parent: None, ..arrival() };
    assert_eq!(shop.handle(Event::Arrive(began)), [Effect::Run(root(), call())]);
    assert_eq!(hears(&mut shop, NAMED), [Settled::Refused; 4]);
    let mark = Effect::Mark(root(), Mark::Undone(Some(ANY_NONCE)));
    assert_eq!(shop.handle(Event::Deadline(root())), [mark, Effect::Cancel(root(), call())]);
    assert_eq!(hears(&mut shop, NAMED), [Settled::Refused; 4], "it is being undone");
    let effects = shop.handle(Event::Ended(root(), call(), Ended::RolledBack));
    assert_eq!(effects, [Effect::Forget(root(), Outcome::Aborted)]);
    assert_eq!(hears(&mut shop, NAMED), [Settled::Refused; 4], "it is undone");
}

/// What a slot of the late call says.
fn found() -> SlotFacts {
    SlotFacts {
        slot: 0,
        arrival: arrival(),
        sequence: 1,
        answer: "said".into(),
        children: Vec::new(),
        began_here: false,
        decision: None,
        is_noted: false,
        is_held: false,
        nonce: Some(LATE),
        nonces: Vec::new(),
    }
}

/// A start finds a mark of what was undone, and a slot.
#[test]
fn a_mark_covers_what_a_start_has_found_beside_it() {
    let begun = |own, nonce| {
        let slots = vec![SlotFacts { nonce, ..found() }];
        let marks = vec![(root(), Mark::Undone(own))];
        Participant::recover(takes_items(), 3, Remembered { slots, marks, ..Remembered::default() })
    };
    let undo = Effect::Undo(root(), call());
    // It is of the slot: who has executed it himself has written it.
    let (mut stock, effects) = begun(Some(LATE), Some(LATE));
    assert_eq!(effects, std::slice::from_ref(&undo));
    stock.handle(Event::Undone(root(), call()));
    assert_eq!(hears(&mut stock, NAMED), EXACT);
    // It says as much as can be said.
    assert_eq!(begun(Some(ANY_NONCE), None).1, std::slice::from_ref(&undo));
    // It is of something else, or the slot does not say what it is of: what is undone now, too,
    // must not be taken for what was committed.
    for (own, nonce) in [(Some(EARLIER), Some(LATE)), (None, Some(LATE)), (Some(LATE), None)] {
        let (mut stock, effects) = begun(own, nonce);
        let mark = Effect::Mark(root(), Mark::Undone(Some(ANY_NONCE)));
        assert_eq!(effects, [mark, undo.clone()], "{own:?} and {nonce:?}");
        assert_eq!(hears(&mut stock, NAMED), [Settled::Refused; 4]);
        stock.handle(Event::Undone(root(), call()));
        assert_eq!(hears(&mut stock, NAMED), [Settled::Refused; 4]);
    }
}

/// The journal may still have a mark that was over when the call came.
#[test]
fn a_mark_of_nothing_gives_way_to_what_is_undone() {
    let (slots, marks) = (vec![found()], vec![(root(), Mark::Empty)]);
    let remembered = Remembered { slots, marks, ..Remembered::default() };
    let (mut stock, _) = Participant::recover(takes_items(), 3, remembered);
    assert!(stock.is_in_doubt(&root()));
    let effects = stock.handle(Event::Learned(root(), parent(), Some(LATE), Outcome::Aborted));
    let mark = Effect::Mark(root(), Mark::Undone(Some(ANY_NONCE)));
    assert_eq!(effects, [mark, Effect::Undo(root(), call())]);
    stock.handle(Event::Undone(root(), call()));
    assert_eq!(hears(&mut stock, NAMED), [Settled::Refused; 4]);
}

/// What a start has found was executed by an earlier process: whatever is said of it, once it is
/// undone no commit is taken for that of something else.
#[test]
fn what_a_start_has_found_and_undone_refuses_every_commit() {
    let remembered = Remembered { slots: vec![found()], ..Remembered::default() };
    let (mut stock, _) = Participant::recover(takes_items(), 3, remembered);
    assert_eq!(hears(&mut stock, [Some(EARLIER); 4]), [Settled::Refused; 4]);
    let effects = stock.handle(Event::Learned(root(), parent(), Some(LATE), Outcome::Aborted));
    assert!(effects.contains(&Effect::Mark(root(), Mark::Undone(Some(ANY_NONCE)))), "{effects:?}");
    assert_eq!(hears(&mut stock, NAMED), [Settled::Refused; 4]);
    stock.handle(Event::Undone(root(), call()));
    assert_eq!(hears(&mut stock, NAMED), [Settled::Refused; 4]);
}
