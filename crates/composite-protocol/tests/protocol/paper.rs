//! The rules of the paper ("CheeTah: a Lightweight Transaction Server for Plug-and-Play Internet
//! Data Management", VLDB 2000, §§3.2 to 3.6), sentence by sentence, on the machine itself. Those
//! of §3.7, which are about the database, are in `tests/components/paper.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use cognate_composite_protocol::locks::Grant;
use cognate_composite_protocol::matrix::{
    Conflict, Declared, Line, Matrix, ServiceId, always, never, same_item,
};
use cognate_composite_protocol::name::{CallId, Name, RootId};
use cognate_composite_protocol::participant::{
    ANY_NONCE, Arrival, Effect, Ended, Event, Mark, No, Outcome, Participant, Prepare, Refusal, Remembered,
    Sent, Settled, SlotFacts, Vote,
};

const TAKE: ServiceId = 0;
const COUNT: ServiceId = 1;
/// It has no undo.
const SEAL: ServiceId = 2;
const NONCE: u64 = 7;

fn matrix(lines: &[Line]) -> Arc<Matrix> {
    let declared = |name: &str, reads: bool, has_undo: bool| Declared {
        name: name.to_owned(),
        has_item: true,
        reads,
        has_undo,
        begins_only: false,
    };
    let services =
        vec![declared("take", false, true), declared("count", true, false), declared("seal", false, false)];
    Arc::new(Matrix::new(services, lines).expect("a matrix"))
}

fn root(name: &str) -> RootId {
    RootId::new(name).expect("a root")
}

fn call(name: &str) -> CallId {
    CallId::new(name).expect("a call")
}

fn component(name: &str) -> Name {
    Name::new(name).expect("a name")
}

/// A component, and what is done to it. Calls are named `r.1`: their root before the dot.
struct Server(Participant);

fn of(its: &str) -> RootId {
    root(its.split_once('.').map_or(its, |(root, _)| root))
}

impl Server {
    fn new(lines: &[Line]) -> Server {
        Server(Participant::new(matrix(lines), 1))
    }

    fn arrives(&mut self, its: &str, service: ServiceId, item: &str) -> Vec<Effect> {
        let arrival = Arrival {
            root: of(its),
            call: call(its),
            parent: Some(component("parent")),
            ancestors: Vec::new(),
            service,
            item: item.into(),
            arguments: 0,
        };
        self.0.handle(Event::Arrive(arrival))
    }

    /// A call that has its lock at once.
    fn runs(&mut self, its: &str, service: ServiceId, item: &str) {
        let effects = self.arrives(its, service, item);
        assert_eq!(effects, [Effect::Run(of(its), call(its))], "{its} does not run at once");
    }

    /// The local transaction of a call commits.
    fn commits(&mut self, its: &str, slot: u32) -> Vec<Effect> {
        let ended = Ended::Committed { slot: Some(slot), answer: "".into() };
        self.0.handle(Event::Ended(of(its), call(its), ended))
    }

    fn has_run(&mut self, its: &str, service: ServiceId, item: &str, slot: u32) {
        self.runs(its, service, item);
        self.commits(its, slot);
    }

    fn is_asked(&mut self, its: &str, calls: u32) -> Vec<Effect> {
        let (parent, generation) = (component("parent"), None);
        self.0.handle(Event::Prepare(Prepare { root: root(its), parent, calls, generation, nonce: NONCE }))
    }

    /// The parent asks, and hears yes.
    fn says_yes(&mut self, its: &str, calls: u32) {
        assert_eq!(self.is_asked(its, calls), [Effect::WriteVote(root(its), Some(NONCE))]);
        let yes = Effect::SendVote(root(its), component("parent"), Vote::Yes(NONCE));
        assert_eq!(self.0.handle(Event::VoteWritten(root(its))), [yes]);
    }

    fn is_told_to_commit(&mut self, its: &str) -> Vec<Effect> {
        self.0.handle(Event::Commit(root(its), component("parent"), Some(NONCE)))
    }

    fn is_told_to_abort(&mut self, its: &str) -> Vec<Effect> {
        self.0.handle(Event::Abort(root(its), component("parent")))
    }

    /// A call of another root does not get its lock.
    fn keeps_out(&mut self, its: &str, service: ServiceId, item: &str) {
        let effects = self.arrives(its, service, item);
        assert_eq!(effects, [Effect::Wait(of(its), call(its))], "{its} is let in");
        let effects = self.0.handle(Event::WaitedEnough(of(its), call(its)));
        assert!(
            matches!(&effects[..], [Effect::Refuse(.., Refusal::Blocked(Grant::Conflict { .. }))]),
            "{effects:?}"
        );
    }

    /// A root begins here, calls these, and is committed once all are done; answers what its end
    /// leaves to be done.
    fn begins_and_commits(&mut self, its: &str, children: &[&str]) -> Vec<Effect> {
        let arrival = Arrival {
            root: of(its),
            call: call(its),
            parent: None,
            ancestors: Vec::new(),
            service: TAKE,
            item: "7".into(),
            arguments: 0,
        };
        self.0.handle(Event::Arrive(arrival));
        children.iter().for_each(|child| self.calls(its, child));
        self.0.handle(Event::Finish(of(its)));
        for child in children {
            self.0.handle(Event::Voted(of(its), component(child), Vote::Yes(NONCE)));
        }
        let slot = (!children.is_empty()).then_some(0);
        let ended = Ended::Committed { slot, answer: "".into() };
        let mut effects = self.0.handle(Event::Ended(of(its), call(its), ended));
        for child in children {
            effects = self.0.handle(Event::Told(of(its), component(child), Settled::Done));
        }
        match slot {
            Some(_) => self.0.handle(Event::Freed(of(its))),
            None => effects,
        }
    }

    fn calls(&mut self, its: &str, child: &str) {
        assert!(self.0.may_call(&of(its), &call(its), &component(child)));
        let sent = Sent::Answered { generation: 1, nonce: None };
        self.0.handle(Event::Called(of(its), call(its), component(child), sent));
    }
}

fn same() -> Vec<Line> {
    vec![same_item("take", "take"), same_item("take", "count"), same_item("take", "seal")]
}

/// §3.2: "Call level locks are also acquired following a 2PL discipline but they are kept until the
/// global transaction terminates or until the server unilaterally aborts the corresponding local
/// transaction."
#[test]
fn locks_are_kept_until_the_root_ends_or_is_undone_here() {
    let mut server = Server::new(&same());
    server.has_run("r.1", TAKE, "7", 0);
    server.keeps_out("q.1", TAKE, "7");
    server.says_yes("r", 1);
    server.keeps_out("q.1", TAKE, "7");
    server.is_told_to_commit("r");
    server.has_run("q.1", TAKE, "7", 1);
    let undo = server.0.handle(Event::Deadline(root("q")));
    assert!(undo.contains(&Effect::Undo(root("q"), call("q.1"))), "{undo:?}");
    server.keeps_out("p.1", TAKE, "7");
    server.0.handle(Event::Undone(root("q"), call("q.1")));
    server.runs("p.1", TAKE, "7");
}

/// §3.2: "A call level lock is always acquired when a service is invoked." Also if it only reads.
#[test]
fn every_call_takes_a_lock() {
    for service in [TAKE, COUNT, SEAL] {
        let mut server = Server::new(&same());
        server.runs("r.1", service, "7");
        let held: Vec<usize> = server.0.roots().iter().map(|info| info.locks).collect();
        assert_eq!(held, [1], "service {service}");
    }
}

/// §3.2: "two call level locks, l1 and l2 […] conflict if t1 conflicts with t2 or t2 conflicts with
/// u1, u1 being the compensation of t1."
#[test]
fn a_lock_protects_the_undo_too() {
    let compatible = never("take", "count").undo(Conflict::SameItem);
    let mut server = Server::new(&[compatible]);
    server.has_run("r.1", TAKE, "7", 0);
    server.keeps_out("q.1", COUNT, "7");
    server.runs("q.2", COUNT, "8");
}

/// §3.2: "For simplicity, we currently use a symmetric conflict table but this can be easily
/// changed if necessary."
#[test]
fn conflicts_are_symmetric_unless_they_are_said_not_to_be() {
    for (line, is_symmetric) in [(always("take", "count"), true), (always("take", "count").one_way(), false)]
    {
        let lines = [never("take", "count"), line];
        let mut server = Server::new(&lines);
        server.has_run("r.1", TAKE, "7", 0);
        server.keeps_out("q.1", COUNT, "8");
        let mut server = Server::new(&lines);
        server.runs("r.1", COUNT, "7");
        match is_symmetric {
            true => server.keeps_out("q.1", TAKE, "8"),
            false => server.runs("q.1", TAKE, "8"),
        }
    }
}

/// §3.2: "There is also the possibility of defining conflicts on item level granularity […] or on
/// service granularity (invocations of t1, t2 always conflict regardless what item is accessed)."
#[test]
fn conflicts_are_about_items_or_services() {
    let mut server = Server::new(&[same_item("take", "take"), always("take", "count")]);
    server.has_run("r.1", TAKE, "7", 0);
    server.runs("q.1", TAKE, "8");
    server.keeps_out("p.1", TAKE, "7");
    server.keeps_out("p.1", COUNT, "9");
}

/// §3.2: "if t1 and t2 conflict but both are children of the same root transaction, they can both
/// be executed provided that they are not executed in parallel. This implies that start(t2) must
/// happen after commit(t1)." §3.3: "Incoming requests are checked […] to see if they conflict and
/// whether they are from the same root transaction."
#[test]
fn siblings_follow_each_other() {
    let mut server = Server::new(&same());
    server.runs("r.1", TAKE, "7");
    assert_eq!(server.arrives("r.2", TAKE, "7"), [Effect::Wait(root("r"), call("r.2"))]);
    assert!(server.0.waits_for_sibling(&root("r"), &call("r.2")), "so it has more time than others");
    let effects = server.commits("r.1", 0);
    assert!(effects.contains(&Effect::Run(root("r"), call("r.2"))), "{effects:?}");
    server.commits("r.2", 1);
    server.runs("r.3", COUNT, "7");
    server.keeps_out("q.1", TAKE, "7");
}

/// §3.3: "If there is no conflicting lock, the thread proceeds to execute the code implementing the
/// service. Otherwise, the thread returns with an exception." Ours waits for a bound first, and
/// says who is in the way.
#[test]
fn who_conflicts_is_refused_and_told_by_whom() {
    let mut server = Server::new(&same());
    server.has_run("r.1", TAKE, "7", 0);
    server.arrives("q.1", TAKE, "7");
    assert!(!server.0.waits_for_sibling(&root("q"), &call("q.1")));
    let refused = server.0.handle(Event::WaitedEnough(root("q"), call("q.1")));
    let grant = Grant::Conflict { holder: root("r"), service: TAKE, item: "7".into() };
    assert_eq!(refused, [Effect::Refuse(root("q"), call("q.1"), Refusal::Blocked(grant))]);
    assert!(!server.0.knows(&root("q")), "nothing of it is left");
}

/// §3.4: "executing all conflicting undo transactions for the same root in the reverse order of
/// their respective executions guarantees that all changes are undone."
#[test]
fn undos_run_in_reverse_order() {
    let mut server = Server::new(&same());
    for (n, its) in ["r.2", "r.1", "r.3"].into_iter().enumerate() {
        server.has_run(its, TAKE, "7", n as u32);
    }
    let mut effects = server.is_told_to_abort("r");
    for its in ["r.3", "r.1", "r.2"] {
        server.0.handle(Event::MarkOver(root("r")));
        assert!(server.0.is_marked(&root("r")), "it is needed until nothing is left");
        let undos: Vec<_> = effects.iter().filter(|effect| matches!(effect, Effect::Undo(..))).collect();
        assert_eq!(undos, [&Effect::Undo(root("r"), call(its))], "one at a time");
        effects = server.0.handle(Event::Undone(root("r"), call(its)));
    }
    assert!(effects.contains(&Effect::Forget(root("r"), Outcome::Aborted)), "{effects:?}");
}

/// §3.4: "Undo operations are local […] Any remote calls will be handled by the undo transactions
/// on the remote servers involved."
#[test]
fn what_was_called_elsewhere_is_undone_there() {
    let mut server = Server::new(&same());
    server.runs("r.1", TAKE, "7");
    server.calls("r.1", "child");
    server.commits("r.1", 0);
    let effects = server.is_told_to_abort("r");
    assert!(effects.contains(&Effect::TellAbort(root("r"), component("child"))), "{effects:?}");
}

/// §3.4: "If no undo operation is provided, the invocation of the service will be treated as a
/// closed nested transaction: resources are not released until the termination of the global
/// transaction." §3.6: "the system will simply retain resources until the root commits".
#[test]
fn without_undo_a_call_is_closed() {
    let mut server = Server::new(&same());
    server.runs("r.1", SEAL, "7");
    let held = Ended::Held { slot: 0, answer: "".into() };
    server.0.handle(Event::Ended(root("r"), call("r.1"), held));
    server.says_yes("r", 1);
    let effects = server.is_told_to_commit("r");
    assert!(effects.contains(&Effect::CommitHeld(root("r"), call("r.1"))), "{effects:?}");
    server.keeps_out("q.1", TAKE, "7");
    server.0.handle(Event::HeldCommitted(root("r"), call("r.1")));
    server.runs("q.1", TAKE, "7");
}

/// §3.4: "If the local transaction is still being executed and needs to be aborted, it is undone
/// using traditional mechanisms. If the local transaction needs to be aborted after having been
/// committed, the undo operation is used."
#[test]
fn what_is_not_committed_is_rolled_back_and_what_is_is_undone() {
    let mut server = Server::new(&same());
    server.has_run("r.1", TAKE, "7", 0);
    server.runs("r.2", TAKE, "8");
    let effects = server.is_told_to_abort("r");
    assert!(effects.contains(&Effect::Cancel(root("r"), call("r.2"))), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Undo(..))), "{effects:?}");
    let effects = server.0.handle(Event::Ended(root("r"), call("r.2"), Ended::RolledBack));
    assert!(effects.contains(&Effect::Undo(root("r"), call("r.1"))), "{effects:?}");
}

/// §3.4: "for early committed subtransactions, this termination protocol simply involves releasing
/// call-level locks, write a log entry and cascade the decision to any remaining servers."
#[test]
fn a_commit_releases_locks_and_cascades() {
    let mut server = Server::new(&same());
    server.runs("r.1", TAKE, "7");
    server.calls("r.1", "child");
    server.commits("r.1", 0);
    server.is_asked("r", 1);
    server.0.handle(Event::Voted(root("r"), component("child"), Vote::Yes(3)));
    server.0.handle(Event::VoteWritten(root("r")));
    let effects = server.is_told_to_commit("r");
    let cascade = Effect::TellCommit(root("r"), component("child"), Some(3));
    assert!(effects.contains(&cascade), "{effects:?}");
    server.runs("q.1", TAKE, "7");
}

/// §3.5: "A global transaction is committed using a cascaded variant of 2PC: each server assumes
/// the role of coordinator for all servers it invokes. To speed up the process, different servers
/// are contacted in parallel."
#[test]
fn each_server_asks_whom_it_has_called_all_at_once() {
    let mut server = Server::new(&same());
    server.runs("r.1", TAKE, "7");
    server.calls("r.1", "a");
    server.calls("r.1", "b");
    server.calls("r.1", "b");
    server.commits("r.1", 0);
    let ask = |child: &str, calls: u32| Effect::AskVote {
        root: root("r"),
        child: component(child),
        calls,
        generation: Some(1),
    };
    assert_eq!(server.is_asked("r", 1), [ask("a", 1), ask("b", 2)]);
    // Its own yes waits for all of theirs.
    assert_eq!(server.0.handle(Event::Voted(root("r"), component("b"), Vote::Yes(1))), []);
    let effects = server.0.handle(Event::Voted(root("r"), component("a"), Vote::Yes(1)));
    assert_eq!(effects, [Effect::WriteVote(root("r"), Some(NONCE))]);
}

/// §3.5: "A negative acknowledgement (a NO vote) is implemented as a RemoteException being thrown."
/// One no ends the root.
#[test]
fn one_no_aborts() {
    let mut server = Server::new(&same());
    server.runs("r.1", TAKE, "7");
    server.calls("r.1", "a");
    server.calls("r.1", "b");
    server.commits("r.1", 0);
    server.is_asked("r", 1);
    let effects = server.0.handle(Event::Voted(root("r"), component("a"), Vote::No(No::Count)));
    let no = Effect::SendVote(root("r"), component("parent"), Vote::No(No::Child));
    for expected in [no, Effect::TellAbort(root("r"), component("b")), Effect::Undo(root("r"), call("r.1"))] {
        assert!(effects.contains(&expected), "{expected:?} in {effects:?}");
    }
}

/// §3.5: "each server has the right to undo local transactions on its own – as long as it has not
/// heard from any global outcome. […] when a server receives a prepare message and agrees to it, it
/// loses the right to perform a server-side undo."
#[test]
fn a_server_may_undo_by_itself_until_it_agrees() {
    let mut server = Server::new(&same());
    server.has_run("r.1", TAKE, "7", 0);
    let effects = server.0.handle(Event::Deadline(root("r")));
    assert!(effects.contains(&Effect::Undo(root("r"), call("r.1"))), "{effects:?}");
    server.has_run("q.1", TAKE, "8", 1);
    server.says_yes("q", 1);
    let effects = server.0.handle(Event::Deadline(root("q")));
    assert_eq!(effects, [Effect::AskOutcome(root("q"), component("parent"), Some(NONCE))]);
    assert!(server.0.is_in_doubt(&root("q")));
}

/// §3.5: "it adds to the message the number of invocations it has made to a given server on behalf
/// of the root transaction to be committed. The server […] checks this figure against its own. If
/// they match, then the commit protocol proceeds. Otherwise, the transaction will be aborted."
#[test]
fn invocations_are_counted() {
    for (counted, is_right) in [(1, false), (2, true), (3, false)] {
        let mut server = Server::new(&same());
        server.has_run("r.1", TAKE, "7", 0);
        server.has_run("r.2", TAKE, "7", 1);
        let effects = server.is_asked("r", counted);
        assert_eq!(effects.contains(&Effect::WriteVote(root("r"), Some(NONCE))), is_right, "{counted}");
        let no = Effect::SendVote(root("r"), component("parent"), Vote::No(No::Count));
        assert_eq!(effects.contains(&no), !is_right, "{counted}");
        let undoes = effects.contains(&Effect::Undo(root("r"), call("r.2")));
        assert_eq!(undoes, !is_right, "{counted}");
    }
}

/// The same for one that has refused everybody: whoever has called it asks it, and its count is 0.
/// It has done nothing, so each of them hears yes.
#[test]
fn who_has_done_nothing_is_in_nobodys_way() {
    let mut server = Server::new(&same());
    let mut asked = |parent: &str, calls: u32| {
        let (root, parent, generation) = (root("r"), component(parent), None);
        let effects =
            server.0.handle(Event::Prepare(Prepare { root, parent, calls, generation, nonce: NONCE }));
        effects.into_iter().filter(|effect| matches!(effect, Effect::SendVote(..))).collect::<Vec<_>>()
    };
    let vote = |parent: &str, vote| [Effect::SendVote(root("r"), component(parent), vote)];
    assert_eq!(asked("a", 0), vote("a", Vote::Yes(NONCE)));
    assert_eq!(asked("b", 0), vote("b", Vote::Yes(NONCE)));
    assert_eq!(asked("c", 1), vote("c", Vote::No(No::Ended)));
}

/// What a slot says of a call that was answered before a restart.
fn remembered(its: &str, slot: u32) -> SlotFacts {
    SlotFacts {
        slot,
        arrival: Arrival {
            root: of(its),
            call: call(its),
            parent: Some(component("parent")),
            ancestors: Vec::new(),
            service: TAKE,
            item: "7".into(),
            arguments: 0,
        },
        sequence: 1,
        answer: "".into(),
        children: Vec::new(),
        began_here: false,
        decision: None,
        is_noted: false,
        is_held: false,
        nonce: Some(NONCE),
        nonces: Vec::new(),
    }
}

/// §3.5: "upon restart, a transaction may appear in the database log table but not in the external
/// log file. This is a transaction that locally committed but without a global outcome. The
/// transaction will be compensated." Ours is at its deadline, as without the restart; if the file
/// does not know whether a yes was given, the table counts as one, and the parent says what becomes
/// of it. That it is being undone the file says.
#[test]
fn a_start_puts_the_table_and_the_file_together() {
    let recovered_with = |marks: &[(RootId, Mark)], promised: Option<BTreeSet<RootId>>| {
        let slots = vec![remembered("r.1", 0)];
        let remembered = Remembered { slots, votes: Vec::new(), marks: marks.to_vec(), promised };
        let (participant, effects) = Participant::recover(matrix(&same()), 2, remembered);
        (Server(participant), effects)
    };
    let recovered = |marks: &[(RootId, Mark)]| recovered_with(marks, None);
    let (mut server, effects) = recovered_with(&[], Some(BTreeSet::new()));
    assert_eq!(effects, [], "nobody has a yes to it");
    assert_eq!(server.0.promised(), []);
    server.keeps_out("q.1", TAKE, "7");
    let effects = server.0.handle(Event::Deadline(root("r")));
    assert!(effects.contains(&Effect::Undo(root("r"), call("r.1"))), "{effects:?}");
    let (server, effects) = recovered_with(&[], Some(BTreeSet::from([root("r")])));
    assert!(server.0.is_in_doubt(&root("r")) && !effects.is_empty(), "somebody has one");
    assert_eq!(server.0.promised(), [root("r")]);
    let (_, effects) = recovered(&[(root("r"), Mark::Undone(Some(NONCE)))]);
    assert!(effects.contains(&Effect::Undo(root("r"), call("r.1"))), "{effects:?}");
    let ask = Effect::AskOutcome(root("r"), component("parent"), Some(NONCE));
    let (mut server, effects) = recovered(&[]);
    assert_eq!(effects, [ask]);
    assert!(server.0.is_in_doubt(&root("r")), "it may have said yes");
    server.keeps_out("q.1", TAKE, "7");
    assert_eq!(server.0.handle(Event::Deadline(root("r"))), [], "it may have said yes");
    // What it says is what it may have said before.
    let votes = |mut server: Server, calls: u32| server.is_asked("r", calls);
    let vote = |vote| Effect::SendVote(root("r"), component("parent"), vote);
    assert_eq!(votes(recovered(&[]).0, 2), [vote(Vote::No(No::Count))]);
    assert_eq!(votes(recovered(&[]).0, 1), [vote(Vote::Yes(NONCE))]);
    let effects =
        server.0.handle(Event::Learned(root("r"), component("parent"), Some(NONCE), Outcome::Aborted));
    assert!(effects.contains(&Effect::Undo(root("r"), call("r.1"))), "{effects:?}");
}

/// Ours: a component to which no call could be sent has nothing of the root. It is not asked.
#[test]
fn who_was_never_reached_is_not_asked() {
    for (outcomes, children) in [
        (&[Sent::NotSent][..], 0),
        (&[Sent::NotSent, Sent::NotSent][..], 0),
        (&[Sent::LeftNothing, Sent::NotSent][..], 1),
        (&[Sent::NotSent, Sent::LeftNothing][..], 1),
    ] {
        let mut server = Server::new(&same());
        server.runs("r.1", TAKE, "7");
        for _ in outcomes {
            assert!(server.0.may_call(&root("r"), &call("r.1"), &component("child")));
        }
        for sent in outcomes {
            server.0.handle(Event::Called(root("r"), call("r.1"), component("child"), sent.clone()));
        }
        assert_eq!(server.0.children(&root("r")).len(), children, "{outcomes:?}");
        assert_eq!(server.0.children_of(&root("r"), &call("r.1")).len(), children, "{outcomes:?}");
    }
}

/// Ours: a yes has a record only if the slots do not say it. They do not know the nonce of a child
/// that has announced none.
#[test]
fn a_yes_is_in_the_slots_if_they_say_what_it_says() {
    for (announced, is_in_slots) in [(Some(3), true), (None, false), (Some(4), false)] {
        let mut server = Server::new(&same());
        server.runs("r.1", TAKE, "7");
        assert!(server.0.may_call(&root("r"), &call("r.1"), &component("child")));
        let sent = Sent::Answered { generation: 1, nonce: announced };
        server.0.handle(Event::Called(root("r"), call("r.1"), component("child"), sent));
        assert_eq!(server.0.nonce(&root("r"), NONCE), Some(NONCE));
        server.commits("r.1", 0);
        server.is_asked("r", 1);
        let effects = server.0.handle(Event::Voted(root("r"), component("child"), Vote::Yes(3)));
        let is_other = announced == Some(4);
        // The calls that were announced by another one are gone.
        let refused = Effect::SendVote(root("r"), component("parent"), Vote::No(No::Child));
        assert_eq!(effects.contains(&refused), is_other, "{effects:?}");
        if !is_other {
            assert_eq!(effects, [Effect::WriteVote(root("r"), Some(NONCE))]);
            assert_eq!(server.0.is_in_slots(&root("r")), is_in_slots, "{announced:?}");
        }
    }
}

/// Ours: a slot of an earlier build does not say what its yes was known by, so any outcome is
/// believed.
#[test]
fn where_a_slot_does_not_name_its_vote_any_is_meant() {
    let slots = vec![SlotFacts { nonce: None, ..remembered("r.1", 0) }];
    let found = Remembered { slots, ..Remembered::default() };
    let (participant, effects) = Participant::recover(matrix(&same()), 2, found);
    assert_eq!(effects, [Effect::AskOutcome(root("r"), component("parent"), None)]);
    let mut server = Server(participant);
    let yes = Effect::SendVote(root("r"), component("parent"), Vote::Yes(ANY_NONCE));
    assert_eq!(server.is_asked("r", 1), [yes]);
}

/// Ours: a parent that has lost a call which called knows that nobody was answered.
#[test]
fn who_has_lost_the_call_that_called_says_aborted() {
    let mut server = Server::new(&same());
    server.has_run("r.1", TAKE, "7", 0);
    let asked = |server: &Server, callers: &[CallId]| {
        server.0.outcome(&root("r"), &component("child"), Some(3), callers)
    };
    assert_eq!(asked(&server, &[call("r.1")]), Outcome::Pending);
    assert_eq!(asked(&server, &[call("r.1"), call("r.2")]), Outcome::Aborted);
}

/// §3.6: "If an undo operation needs to be executed, it will always be serialized immediately after
/// the operation it is supposed to undo."
#[test]
fn nothing_that_conflicts_comes_between_a_call_and_its_undo() {
    let mut server = Server::new(&same());
    server.has_run("r.1", TAKE, "7", 0);
    server.is_told_to_abort("r");
    for service in [TAKE, COUNT, SEAL] {
        server.keeps_out("q.1", service, "7");
    }
    let effects = server.0.handle(Event::Undone(root("r"), call("r.1")));
    assert!(effects.contains(&Effect::Forget(root("r"), Outcome::Aborted)), "{effects:?}");
    assert_eq!(
        server.is_told_to_abort("r"),
        [Effect::SendSettled(root("r"), component("parent"), Settled::Done)]
    );
    server.runs("q.1", TAKE, "7");
}

/// Ours: whoever was called may still say something late about a root, so its end is remembered for
/// a while. Nobody has heard of one that called nobody.
#[test]
fn only_a_root_that_has_called_somebody_is_remembered() {
    let mut server = Server::new(&same());
    for (its, children, is_remembered) in [("r.1", &[][..], false), ("q.1", &["stock"][..], true)] {
        let effects = server.begins_and_commits(its, children);
        assert!(effects.contains(&Effect::Forget(of(its), Outcome::Committed)), "{its}: {effects:?}");
        assert_eq!(server.0.is_marked(&of(its)), is_remembered, "{its}");
    }
    assert!(server.0.is_idle());
}
