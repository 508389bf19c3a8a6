//! Calls that are answered ahead of their commits, one history after the other.

use cognate_composite_protocol::name::{CallId, Name, RootId};
use cognate_composite_protocol::participant::{
    Arrival, Effect, Ended, Event, Mark, No, Outcome, Participant, Prepare, Refusal, Vote,
};

use crate::takes_items;

const NONCE: u64 = 7;

fn root() -> RootId {
    RootId::new("r").expect("a root")
}

fn call(name: &str) -> CallId {
    CallId::new(name).expect("a call")
}

fn parent() -> Name {
    Name::new("shop").expect("a name")
}

fn component() -> Participant {
    Participant::new(takes_items(), 1)
}

fn arrives(component: &mut Participant, its: &str, ancestors: &[&str]) -> Vec<Effect> {
    component.handle(Event::Arrive(Arrival {
        root: root(),
        call: call(its),
        parent: Some(parent()),
        ancestors: ancestors.iter().map(|ancestor| call(ancestor)).collect(),
        service: 0,
        item: its.split(':').nth(1).unwrap_or_default().into(),
        arguments: 0,
    }))
}

/// The commit of a call is about to be sent.
fn commits(component: &mut Participant, its: &str) -> Vec<Effect> {
    component.handle(Event::Committing(root(), call(its), "said".into()))
}

fn ends(component: &mut Participant, its: &str, slot: Option<u32>) -> Vec<Effect> {
    let ended = match slot {
        Some(_) => Ended::Committed { slot, answer: "said".into() },
        None => Ended::RolledBack,
    };
    component.handle(Event::Ended(root(), call(its), ended))
}

fn is_asked(component: &mut Participant, calls: u32) -> Vec<Effect> {
    let (parent, generation) = (parent(), Some(1));
    component.handle(Event::Prepare(Prepare { root: root(), parent, calls, generation, nonce: NONCE }))
}

fn answered(its: &str) -> Effect {
    Effect::Answer(root(), call(its), "said".into())
}

fn no(why: No) -> Effect {
    Effect::SendVote(root(), parent(), Vote::No(why))
}

/// It has run, and been answered.
fn has_answered(component: &mut Participant, its: &str) {
    assert_eq!(arrives(component, its, &[]), [Effect::Run(root(), call(its))]);
    assert_eq!(commits(component, its), [answered(its)]);
}

#[test]
fn a_vote_waits_for_the_commit_and_a_resent_call_does_not() {
    let mut stock = component();
    has_answered(&mut stock, "r.1:7");
    let again = Effect::Repeat(root(), call("r.1:7"), "said".into());
    assert_eq!(arrives(&mut stock, "r.1:7", &[]), [again]);
    assert!(is_asked(&mut stock, 1).is_empty(), "it is answered before the commit");
    assert!(is_asked(&mut stock, 1).is_empty(), "the same question again waits, too");
    // It is answered once, and so is the question.
    assert_eq!(ends(&mut stock, "r.1:7", Some(0)), [Effect::WriteVote(root(), Some(NONCE))]);
    let yes = Effect::SendVote(root(), parent(), Vote::Yes(NONCE));
    assert_eq!(stock.handle(Event::VoteWritten(root())), [yes]);
}

#[test]
fn a_commit_that_fails_is_a_no_and_the_call_is_not_executed_again() {
    for is_asked_before in [false, true] {
        let mut stock = component();
        has_answered(&mut stock, "r.1:7");
        let mut expected = vec![Effect::Mark(root(), Mark::Undone(None))];
        if is_asked_before {
            assert!(is_asked(&mut stock, 1).is_empty(), "it is answered before the commit");
            expected.push(no(No::Failed));
        }
        expected.push(Effect::Forget(root(), Outcome::Aborted));
        assert_eq!(ends(&mut stock, "r.1:7", None), expected);
        let refused = Effect::Refuse(root(), call("r.1:7"), Refusal::Ended);
        assert_eq!(arrives(&mut stock, "r.1:7", &[]), [refused]);
        assert_eq!(is_asked(&mut stock, 1), [no(No::Ended)]);
        assert!(stock.is_idle());
    }
}

#[test]
fn a_sibling_that_conflicts_waits_for_the_commit() {
    let mut stock = component();
    has_answered(&mut stock, "r.1:7");
    assert_eq!(arrives(&mut stock, "r.2:7", &[]), [Effect::Wait(root(), call("r.2:7"))]);
    assert!(stock.waits_for_sibling(&root(), &call("r.2:7")));
    assert_eq!(ends(&mut stock, "r.1:7", Some(0)), [Effect::Run(root(), call("r.2:7"))]);
}

#[test]
fn an_undo_waits_for_the_commit_and_a_question_does_not_wait_for_the_undo() {
    let mut stock = component();
    has_answered(&mut stock, "r.1:7");
    assert!(is_asked(&mut stock, 1).is_empty(), "it is answered before the commit");
    let over = stock.handle(Event::Deadline(root()));
    // If the commit fails its handler is not run again.
    let stop = Effect::Cancel(root(), call("r.1:7"));
    assert_eq!(over, [Effect::Mark(root(), Mark::Undone(None)), no(No::Ended), stop]);
    assert_eq!(ends(&mut stock, "r.1:7", Some(0)), [Effect::Undo(root(), call("r.1:7"))]);
}

/// Whoever has called goes on with SQL of his own in the same database.
#[test]
fn a_call_within_another_one_of_the_component_is_not_answered_ahead() {
    let mut stock = component();
    arrives(&mut stock, "r.1:7", &[]);
    arrives(&mut stock, "r.2:8", &["r.1:7"]);
    assert!(commits(&mut stock, "r.2:8").is_empty(), "it is answered ahead");
    assert_eq!(ends(&mut stock, "r.2:8", Some(0)), [answered("r.2:8")]);
}
