//! The paper's algorithm as traces: the initialization and each numbered line of Figure 1, the two
//! kinds of dependencies of §2.4, and the example of §2.5.

use std::collections::BTreeSet;

use super::active::Active;
use super::certification::Certification;
use super::primary_copy::PrimaryCopy;
use super::weak_voting::WeakVoting;
use super::*;

/// Objects that are written.
#[derive(Debug, Clone)]
struct Objects(BTreeSet<char>);

impl Footprint for Objects {
    fn meets(&self, earlier: &Objects) -> bool {
        !self.0.is_disjoint(&earlier.0)
    }
}

fn objects(text: &str) -> Option<Objects> {
    Some(Objects(text.chars().collect()))
}

const HERE: u16 = 1;
const ELSEWHERE: u16 = 2;

/// Lists, and what they have said was to be done.
struct Replica {
    lists: Lists<Objects>,
    next: Csn,
    effects: Vec<Effect>,
}

impl Replica {
    fn new() -> Replica {
        Replica { lists: Lists::new(HERE), next: 1, effects: Vec::new() }
    }

    fn deliver(&mut self, protocol: &'static dyn Protocol, origin: u16, writes: Option<Objects>) -> Csn {
        self.deliver_since(protocol, origin, writes, 0, false)
    }

    fn deliver_since(
        &mut self,
        protocol: &'static dyn Protocol,
        origin: u16,
        footprint: Option<Objects>,
        bot: Csn,
        is_overtaken: bool,
    ) -> Csn {
        let position = self.next;
        self.next += 1;
        let id = id_of(position);
        let delivery =
            Delivery { position, id, bot, origin, protocol, footprint, is_overtaken, at_turn: false };
        self.lists.deliver(delivery, &mut self.effects);
        position
    }

    /// One that more than footprints decides about, at its turn.
    fn deliver_at_turn(
        &mut self,
        protocol: &'static dyn Protocol,
        origin: u16,
        footprint: Option<Objects>,
    ) -> Csn {
        let position = self.next;
        self.next += 1;
        let (id, bot, is_overtaken, at_turn) = (id_of(position), 0, false, true);
        let delivery = Delivery { position, id, bot, origin, protocol, footprint, is_overtaken, at_turn };
        self.lists.deliver(delivery, &mut self.effects);
        position
    }

    fn vote(&mut self, of: Csn, commits: bool) {
        self.lists.vote(id_of(of), commits, &mut self.effects);
    }

    fn end(&mut self, position: Csn, wrote: Option<Objects>) {
        self.lists.end(position, true, wrote, &mut self.effects);
    }

    fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The log: positions, `r`, `c` or `w`, and what each waits for.
    fn log(&self) -> String {
        let entry = |(position, kind, depends_on): (Csn, Kind, &[Csn])| {
            let kind = match kind {
                Kind::Resolved => 'r',
                Kind::CPending => 'c',
                Kind::WPending => 'w',
            };
            let depends_on: String = depends_on.iter().map(|on| format!(">{on}")).collect();
            format!("{position}{kind}{depends_on}")
        };
        self.lists.entries().map(entry).collect::<Vec<String>>().join(" ")
    }
}

fn id_of(position: Csn) -> TransactionId {
    position * 10
}

fn vote(of: Csn, commits: bool) -> Effect {
    Effect::Vote { id: id_of(of), commits }
}

/// §2.5, with all of Figure 2's stages.
#[test]
fn the_example() {
    let mut replica = Replica::new();
    let a = replica.deliver(&Active, ELSEWHERE, None);
    assert_eq!(replica.lists.head(), Some((a, Turn::Execute)), "the commitment of A begins");
    let w = replica.deliver(&WeakVoting, ELSEWHERE, objects("xy"));
    let c1 = replica.deliver(&Certification, ELSEWHERE, objects("yz"));
    let c2 = replica.deliver(&Certification, ELSEWHERE, objects("z"));
    assert_eq!(replica.log(), "1w 2c>1 3c>1>2 4c>1>3", "Figure 2a");
    let all = Counts { log: 4, tocommit: 4, c_pending: 3, w_pending: 1 };
    assert_eq!(replica.lists.counts(), all);
    replica.end(a, objects("pq"));
    assert_eq!(replica.log(), "2c 3c>2 4c>3", "Figure 2b");
    assert_eq!(replica.take(), [], "nobody is decided by that, and W is not ours to vote about");
    assert_eq!(replica.lists.head(), None, "W waits for its vote");
    assert_eq!(replica.lists.pauses(), Some((w, id_of(w), "weak_voting")));
    replica.vote(w, true);
    assert_eq!(replica.log(), "2r 4r", "Figure 2c");
    assert_eq!(replica.take(), [Effect::Refuse { position: c1, undo: false }]);
    for position in [w, c2] {
        assert_eq!(replica.lists.head(), Some((position, Turn::Install)));
        replica.end(position, None);
    }
    assert!(replica.lists.is_empty() && replica.take().is_empty());
}

/// Initialization: both lists are empty, and the first one to be delivered has the number 1.
#[test]
fn initialization() {
    let mut replica = Replica::new();
    assert!(replica.lists.is_empty());
    assert_eq!(replica.lists.counts(), Counts::default());
    assert_eq!((replica.lists.head(), replica.lists.pauses()), (None, None));
    let first = replica.deliver(&Certification, ELSEWHERE, objects("x"));
    assert_eq!((first, replica.lists.head()), (1, Some((1, Turn::Install))));
}

/// I: what had committed where a transaction was sent from, up to its `bot`, is not in its way;
/// whoever was delivered behind that is, whatever either of them was when it was sent.
#[test]
fn line_i() {
    let mut replica = Replica::new();
    let first = replica.deliver(&Certification, ELSEWHERE, objects("x"));
    let second = replica.deliver(&Certification, ELSEWHERE, objects("y"));
    for (bot, writes, goes) in
        [(0, "x", false), (0, "y", false), (first, "x", true), (first, "y", false), (second, "y", true)]
    {
        let position = replica.deliver_since(&Certification, HERE, objects(writes), bot, false);
        let refused = (!goes).then_some(Effect::Refuse { position, undo: true });
        assert_eq!(replica.take(), Vec::from_iter(refused), "bot {bot}, {writes}");
    }
    assert_eq!(replica.log(), "1r 2r 5r 7r");
}

/// §2.4: a w-dependency is on what is not known to be written, with whoever that may be; a
/// c-dependency is on the outcome of somebody who writes the same. Who has several is resolved with
/// the last of them, and is refused only for one who commits.
#[test]
fn dependencies() {
    let pending = || {
        let mut replica = Replica::new();
        let a = replica.deliver(&Active, ELSEWHERE, None);
        let w = replica.deliver(&WeakVoting, ELSEWHERE, objects("x"));
        replica.deliver(&Certification, HERE, objects("xk"));
        replica.deliver(&Certification, ELSEWHERE, objects("k"));
        replica.deliver(&Certification, ELSEWHERE, objects("z"));
        assert_eq!(replica.log(), "1w 2c>1 3c>1>2 4c>1>3 5c>1");
        (replica, a, w)
    };
    let refused = |position| Effect::Refuse { position, undo: position == 3 };
    // What A wrote concerns none of them: who depended on nothing else is resolved.
    let (mut replica, a, w) = pending();
    replica.end(a, objects("q"));
    assert_eq!((replica.take(), replica.log().as_str()), (vec![], "2c 3c>2 4c>3 5r"));
    // W has come to nothing, so the conflict with it refuses nobody; the one behind it does.
    replica.vote(w, false);
    assert_eq!((replica.take(), replica.log().as_str()), (vec![refused(w), refused(4)], "3r 5r"));
    // What A wrote does concern one: it waits for W no longer, and nobody for it.
    let (mut replica, a, w) = pending();
    replica.end(a, objects("x"));
    assert_eq!((replica.take(), replica.log().as_str()), (vec![refused(3)], "2c 4r 5r"));
    replica.vote(w, true);
    assert_eq!((replica.take(), replica.log().as_str()), (vec![], "2r 4r 5r"));
}

/// II.1: into both lists, w-pending and committable; nobody validates it.
#[test]
fn line_ii_1() {
    let mut replica = Replica::new();
    replica.deliver(&Certification, ELSEWHERE, objects("x"));
    let a = replica.deliver(&Active, HERE, None);
    assert_eq!(replica.log(), "1r 2w");
    assert_eq!(replica.lists.head(), Some((1, Turn::Install)), "in the order of delivery");
    replica.end(1, None);
    assert_eq!(replica.lists.head(), Some((a, Turn::Execute)));
    assert!(Active.apply(true), "it did not run at its origin either");
}

/// II.2: negative, positive, pending; rolled back where it ran, discarded elsewhere.
#[test]
fn line_ii_2() {
    let mut replica = Replica::new();
    let first = replica.deliver(&Certification, ELSEWHERE, objects("x"));
    replica.deliver(&Certification, HERE, objects("xy"));
    replica.deliver(&Certification, ELSEWHERE, objects("xz"));
    let refused = [2, 3].map(|position| Effect::Refuse { position, undo: position == 2 });
    assert_eq!(replica.take(), refused);
    replica.deliver_since(&Certification, HERE, objects("x"), first, false);
    replica.deliver_since(&Certification, HERE, objects("q"), 0, true);
    assert_eq!(replica.take(), [Effect::Refuse { position: 5, undo: true }], "by who has left the log");
    assert_eq!(replica.log(), "1r 4r", "whom it knew of is not in its way");
    replica.deliver(&WeakVoting, ELSEWHERE, objects("v"));
    replica.deliver(&Certification, ELSEWHERE, objects("v"));
    replica.deliver(&Certification, ELSEWHERE, objects("u"));
    assert_eq!(replica.log(), "1r 4r 6c 7c>6 8r");
    replica.end(1, None);
    replica.end(4, None);
    assert_eq!(replica.lists.head(), None, "what is decided behind W becomes visible behind W");
}

/// II.3: c-pending; whoever it ran with votes as soon as nothing is left to depend on.
#[test]
fn line_ii_3() {
    let mut replica = Replica::new();
    let own = replica.deliver(&WeakVoting, HERE, objects("x"));
    assert_eq!(replica.take(), [vote(own, true)]);
    assert_eq!(replica.lists.head(), None, "our own vote counts once it is ordered");
    let elsewhere = replica.deliver(&WeakVoting, ELSEWHERE, objects("y"));
    let waiting = replica.deliver(&WeakVoting, HERE, objects("y"));
    let free = replica.deliver(&WeakVoting, HERE, objects("z"));
    assert_eq!(replica.take(), [vote(free, true)], "votes do not wait for one another");
    replica.vote(elsewhere, false);
    assert_eq!(replica.take(), [Effect::Refuse { position: elsewhere, undo: false }, vote(waiting, true)]);
    let overtaken = replica.deliver_since(&WeakVoting, HERE, objects("q"), 0, true);
    assert_eq!(replica.take(), [vote(overtaken, false)]);
}

/// II.4: commit, abort, and the cascade of both; the first vote counts.
#[test]
fn line_ii_4() {
    for commits in [true, false] {
        let mut replica = Replica::new();
        let w = replica.deliver(&WeakVoting, ELSEWHERE, objects("x"));
        let c = replica.deliver(&Certification, HERE, objects("x"));
        let own = replica.deliver(&WeakVoting, HERE, objects("x"));
        replica.vote(w, commits);
        let expected = match commits {
            true => vec![vote(own, false), Effect::Refuse { position: c, undo: true }],
            false => vec![Effect::Refuse { position: w, undo: false }, vote(own, false)],
        };
        assert_eq!(replica.take(), expected);
        replica.vote(w, !commits);
        assert_eq!(replica.take(), [], "a second vote is late");
        assert_eq!(replica.log(), if commits { "1r 3c" } else { "2r 3c" });
    }
}

/// An own voter behind one that was refused for another one: the whole chain goes.
#[test]
fn a_cascade_has_as_many_steps_as_it_takes() {
    let mut replica = Replica::new();
    let w = replica.deliver(&WeakVoting, ELSEWHERE, objects("a"));
    replica.deliver(&Certification, ELSEWHERE, objects("ab"));
    replica.deliver(&Certification, ELSEWHERE, objects("bc"));
    replica.deliver(&Certification, ELSEWHERE, objects("cd"));
    let own = replica.deliver(&WeakVoting, HERE, objects("d"));
    assert_eq!(replica.log(), "1c 2c>1 3c>2 4c>3 5c>4");
    replica.vote(w, true);
    let refused = |position| Effect::Refuse { position, undo: false };
    assert_eq!(replica.take(), [refused(2), refused(4), vote(own, true)]);
    assert_eq!(replica.log(), "1r 3r 5c");
}

/// III: the head only, and only if it is committable; w-dependencies go with what was written.
#[test]
fn line_iii() {
    let mut replica = Replica::new();
    let a = replica.deliver(&Active, ELSEWHERE, None);
    let meets = replica.deliver(&Certification, HERE, objects("p"));
    let own = replica.deliver(&WeakVoting, HERE, objects("q"));
    assert_eq!(replica.lists.head(), Some((a, Turn::Execute)));
    assert_eq!(replica.take(), [], "nobody votes over what is not known");
    replica.end(a, objects("p"));
    assert_eq!(replica.take(), [vote(own, true), Effect::Refuse { position: meets, undo: true }]);
    // One that came to nothing is in nobody's way.
    let a = replica.deliver_since(&Active, ELSEWHERE, None, 3, false);
    let c = replica.deliver_since(&Certification, HERE, objects("p"), 3, false);
    replica.vote(own, true);
    replica.end(own, None);
    replica.lists.end(a, false, None, &mut replica.effects);
    assert_eq!(replica.lists.head(), Some((c, Turn::Install)));
}

/// What more than footprints decides is decided at its turn, and whoever meets it waits for that.
#[test]
fn who_is_judged_at_its_turn_is_pending_until_then() {
    for commits in [true, false] {
        let mut replica = Replica::new();
        let w = replica.deliver(&WeakVoting, ELSEWHERE, objects("a"));
        let position = replica.deliver_at_turn(&Certification, ELSEWHERE, objects("b"));
        let own = replica.deliver(&WeakVoting, HERE, objects("b"));
        replica.vote(w, true);
        replica.end(w, None);
        assert_eq!(replica.log(), "2c 3c>2");
        assert_eq!(replica.lists.head(), Some((position, Turn::Install)));
        replica.lists.end(position, commits, None, &mut replica.effects);
        assert_eq!(replica.take(), [vote(own, !commits)]);
    }
}

/// A voter that was voted for may be refused at its turn, for its name, say. Then who was in its
/// way only commits, delivered before the vote or after it; and nobody may have voted over that.
#[test]
fn who_meets_a_voter_is_judged_at_its_turn_all_the_same() {
    for (is_late, commits) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut replica = Replica::new();
        let w = replica.deliver_at_turn(&WeakVoting, ELSEWHERE, objects("a"));
        if is_late {
            replica.vote(w, true);
        }
        let c = replica.deliver_at_turn(&Certification, ELSEWHERE, objects("ab"));
        let own = replica.deliver_at_turn(&WeakVoting, HERE, objects("b"));
        if !is_late {
            replica.vote(w, true);
        }
        assert_eq!(replica.take(), [], "nothing is decided about who is behind W");
        assert_eq!(replica.log(), "1r 2c 3c>2");
        replica.lists.end(w, commits, None, &mut replica.effects);
        assert_eq!(replica.lists.head(), Some((c, Turn::Install)), "it waits for nobody");
        replica.lists.end(c, !commits, None, &mut replica.effects);
        assert_eq!(replica.take(), [vote(own, commits)]);
    }
}

/// A protocol is a file: nothing of the lists knows of this one.
#[test]
fn a_fourth_protocol() {
    static PRIMARY: PrimaryCopy = PrimaryCopy { primary: ELSEWHERE };
    let mut replica = Replica::new();
    replica.deliver(&PRIMARY, ELSEWHERE, objects("x"));
    replica.deliver(&PRIMARY, HERE, objects("y"));
    assert_eq!(replica.take(), [Effect::Refuse { position: 2, undo: true }]);
    let w = replica.deliver(&WeakVoting, HERE, objects("z"));
    replica.deliver(&PRIMARY, ELSEWHERE, objects("z"));
    assert_eq!(replica.log(), "1r 3c 4c>3");
    assert_eq!(replica.take(), [vote(w, true)]);
    replica.vote(w, false);
    assert_eq!(replica.log(), "1r 4r", "it goes together with the other protocols' transactions");
}
