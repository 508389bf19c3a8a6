//! Calls of one root that meet each other.

use cognate_composite_protocol::locks::Grant;
use cognate_composite_protocol::name::{CallId, Name, RootId};
use cognate_composite_protocol::participant::{Arrival, Effect, Ended, Event, Participant, Refusal};

use crate::takes_items;

fn root() -> RootId {
    RootId::new("r").expect("a root")
}

fn call(text: &str) -> CallId {
    CallId::new(text).expect("a call")
}

/// A call about the one item that there is.
fn comes(stock: &mut Participant, its: &str) -> Vec<Effect> {
    stock.handle(Event::Arrive(Arrival {
        root: root(),
        call: call(its),
        parent: Some(Name::new("shop").expect("a name")),
        ancestors: Vec::new(),
        service: 0,
        item: "7".into(),
        arguments: 0,
    }))
}

/// What is kept prepared ends after whoever waits for it. He is told when that is known, and not
/// when he has waited as long as one waits for a call of one's own root.
#[test]
fn who_waits_for_what_is_kept_prepared_then_is_refused_at_once() {
    let mut stock = Participant::new(takes_items(), 1);
    assert_eq!(comes(&mut stock, "r.1"), [Effect::Run(root(), call("r.1"))]);
    for waiting in ["r.2", "r.3"] {
        assert_eq!(comes(&mut stock, waiting), [Effect::Wait(root(), call(waiting))]);
    }
    let held = Ended::Held { slot: 0, answer: "said".into() };
    let refuse = |waiting| {
        let grant = Grant::ClosedSibling(call("r.1"));
        Effect::Refuse(root(), call(waiting), Refusal::Blocked(grant))
    };
    let answer = Effect::Answer(root(), call("r.1"), "said".into());
    let effects = stock.handle(Event::Ended(root(), call("r.1"), held));
    assert_eq!(effects, [answer, refuse("r.2"), refuse("r.3")]);
    // Their time comes later, and means nothing any more.
    assert_eq!(stock.handle(Event::WaitedEnough(root(), call("r.2"))), []);
    // The root goes on without them.
    assert_eq!(stock.roots().len(), 1);
}

/// One that has committed lets them run, one after the other.
#[test]
fn who_waits_for_what_is_committed_then_runs() {
    let mut stock = Participant::new(takes_items(), 1);
    assert_eq!(comes(&mut stock, "r.1"), [Effect::Run(root(), call("r.1"))]);
    for waiting in ["r.2", "r.3"] {
        assert_eq!(comes(&mut stock, waiting), [Effect::Wait(root(), call(waiting))]);
    }
    for (slot, its, next) in [(0, "r.1", Some("r.2")), (1, "r.2", Some("r.3")), (2, "r.3", None)] {
        let ended = Ended::Committed { slot: Some(slot), answer: "said".into() };
        let effects = stock.handle(Event::Ended(root(), call(its), ended));
        let answer = Effect::Answer(root(), call(its), "said".into());
        let run = next.map(|next| Effect::Run(root(), call(next)));
        assert_eq!(effects, std::iter::once(answer).chain(run).collect::<Vec<_>>());
    }
}
