//! The lock table of the MIP paper (§3.2), cell by cell, in the real lock table; and siblings in deadlocks.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::mode::{FamilySlot, LockMode, Mode};
use super::queue::Answer;
use super::table::{Held, LockTable};
use super::wait::LockWait;
use crate::{Error, TransactionId};

const TREE: u32 = 7;
const S: Mode = Mode::Row(LockMode::Shared);
const X: Mode = Mode::Row(LockMode::Exclusive);

fn family(number: u32) -> FamilySlot {
    FamilySlot::new(number).expect("positive")
}

fn ss(number: u32) -> Mode {
    Mode::Sibling(LockMode::Shared, family(number))
}

fn sx(number: u32) -> Mode {
    Mode::Sibling(LockMode::Exclusive, family(number))
}

/// Transactions 1 to 8 and what they hold.
struct Scene {
    table: Arc<LockTable>,
    held: [Held; 9],
}

impl Scene {
    fn new() -> Scene {
        Scene { table: Arc::new(LockTable::new()), held: Default::default() }
    }

    /// Whether the lock is granted at once.
    fn takes(&mut self, owner: TransactionId, key: &str, mode: Mode) -> bool {
        let held = &mut self.held[owner as usize];
        self.table.try_row(owner, held, TREE, key.as_bytes(), mode) != Answer::Busy
    }

    fn waits(&mut self, owner: TransactionId, key: &str, mode: Mode) -> Result<LockWait, Error> {
        let held = &mut self.held[owner as usize];
        Ok(self.table.wait_row(owner, held, TREE, key.as_bytes(), mode)?.expect("it is not free"))
    }

    fn ends(&mut self, owner: TransactionId) {
        self.table.release_all(owner, std::mem::take(&mut self.held[owner as usize]));
    }

    fn cycle(&mut self, owner: TransactionId, key: &str, mode: Mode) -> Vec<TransactionId> {
        match self.waits(owner, key, mode) {
            Err(Error::Deadlock { cycle, .. }) => cycle,
            other => panic!("no deadlock: {:?}", other.map(|_| ())),
        }
    }
}

fn is_granted(wait: &mut LockWait) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    matches!(pin!(wait).poll(&mut context), Poll::Ready(()))
}

/// Holder's mode, requested mode, whether they go together. The family is 1 for who holds; 1 or 2 for who asks.
const CELLS: [(&str, &str, bool); 22] = [
    ("S", "S", true),
    ("S", "X", false),
    ("S", "SS1", true),
    ("S", "SX1", false),
    ("X", "S", false),
    ("X", "X", false),
    ("X", "SS1", false),
    ("X", "SX1", false),
    ("SS1", "S", true),
    ("SS1", "X", false),
    ("SS1", "SS1", true),
    ("SS1", "SS2", true),
    ("SS1", "SX1", true),
    ("SS1", "SX2", false),
    ("SX1", "S", false),
    ("SX1", "X", false),
    ("SX1", "SS1", true),
    ("SX1", "SS2", false),
    ("SX1", "SX1", true),
    ("SX1", "SX2", false),
    // The table is symmetric; with the families changed over.
    ("SS2", "SX1", false),
    ("SX2", "SS1", false),
];

fn named(name: &str) -> Mode {
    match name {
        "S" => S,
        "X" => X,
        "SS1" => ss(1),
        "SS2" => ss(2),
        "SX1" => sx(1),
        "SX2" => sx(2),
        other => panic!("what is {other}?"),
    }
}

#[test]
fn s_and_x_and_ss_and_sx_go_together_as_in_the_papers_table() {
    for (held, asked, together) in CELLS {
        let mut scene = Scene::new();
        assert!(scene.takes(1, "k", named(held)));
        assert_eq!(scene.takes(2, "k", named(asked)), together, "{held} {asked}");
        if together {
            continue;
        }
        // Where they do not, the second waits for the first, and has the lock once that has ended.
        let mut wait = scene.waits(2, "k", named(asked)).expect("no deadlock");
        assert!(!is_granted(&mut wait), "{held} {asked}");
        scene.ends(1);
        assert!(is_granted(&mut wait), "{held} {asked}");
        assert_eq!(scene.table.list().len(), 1, "{held} {asked}");
    }
}

/// The same cells between two that wait, for somebody whose lock goes with neither: who goes together is granted together, who does not comes one after the other.
#[test]
fn waiters_are_granted_together_as_in_the_papers_table() {
    for (first, second, together) in CELLS {
        let mut scene = Scene::new();
        assert!(scene.takes(3, "k", X));
        let mut one = scene.waits(1, "k", named(first)).expect("no deadlock");
        let mut two = scene.waits(2, "k", named(second)).expect("no deadlock");
        assert!(!is_granted(&mut one) && !is_granted(&mut two));
        scene.ends(3);
        assert!(is_granted(&mut one), "{first} {second}");
        assert_eq!(is_granted(&mut two), together, "{first} {second}");
        drop(one);
        scene.ends(1);
        assert!(is_granted(&mut two), "{first} {second}");
    }
}

#[test]
fn a_newly_activated_sibling_does_not_wait_behind_strangers_who_wait_for_its_family() {
    let mut scene = Scene::new();
    assert!(scene.takes(1, "k", sx(1)));
    let mut stranger = scene.waits(3, "k", X).expect("no deadlock");
    let mut reader = scene.waits(4, "k", S).expect("no deadlock");
    assert!(scene.takes(2, "k", sx(1)), "its sibling holds the lock");
    scene.ends(1);
    assert!(!is_granted(&mut stranger) && !is_granted(&mut reader));
    scene.ends(2);
    assert!(is_granted(&mut stranger) && !is_granted(&mut reader));
}

/// Siblings with a stranger between them in the queue: the second is granted with the first, not after the stranger.
#[test]
fn a_waiting_sibling_is_granted_as_soon_as_its_sibling_is() {
    let mut scene = Scene::new();
    assert!(scene.takes(4, "k", X));
    let mut first = scene.waits(1, "k", sx(1)).expect("no deadlock");
    let mut stranger = scene.waits(3, "k", X).expect("no deadlock");
    let mut second = scene.waits(2, "k", sx(1)).expect("no deadlock");
    scene.ends(4);
    assert!(is_granted(&mut first) && is_granted(&mut second) && !is_granted(&mut stranger));
    scene.ends(1);
    scene.ends(2);
    assert!(is_granted(&mut stranger));
}

#[test]
fn siblings_that_cross_do_not_deadlock() {
    let mut scene = Scene::new();
    assert!(scene.takes(1, "a", sx(1)) && scene.takes(2, "b", sx(1)));
    assert!(scene.takes(1, "b", sx(1)) && scene.takes(2, "a", sx(1)));
    assert!(scene.takes(1, "c", ss(1)) && scene.takes(2, "c", sx(1)) && scene.takes(1, "c", sx(1)));
}

#[test]
fn families_and_strangers_that_cross_deadlock_and_the_last_is_refused() {
    let mut scene = Scene::new();
    assert!(scene.takes(1, "a", sx(1)) && scene.takes(3, "b", X));
    let _wait = scene.waits(1, "b", sx(1)).expect("no deadlock");
    assert_eq!(scene.cycle(3, "a", S), [3, 1]);
    let mut scene = Scene::new();
    assert!(scene.takes(1, "a", sx(1)) && scene.takes(3, "b", sx(2)));
    let _wait = scene.waits(1, "b", ss(1)).expect("no deadlock");
    assert_eq!(scene.cycle(3, "a", sx(2)), [3, 1]);
}

/// Who waits for a lock waits for all siblings that hold it: a cycle through any of them counts.
#[test]
fn a_cycle_through_one_of_several_siblings_is_found() {
    for waiting in [1, 2] {
        let mut scene = Scene::new();
        assert!(scene.takes(1, "a", sx(1)) && scene.takes(2, "a", sx(1)) && scene.takes(3, "b", X));
        let _wait = scene.waits(waiting, "b", sx(1)).expect("no deadlock");
        assert_eq!(scene.cycle(3, "a", X), [3, waiting]);
    }
}

/// Instance 1 is prepared and will not move; its retry went ahead of a stranger and then asks for what that holds.
#[test]
fn a_retry_that_overtook_a_stranger_can_still_deadlock_with_it() {
    let mut scene = Scene::new();
    assert!(scene.takes(1, "a", sx(1)) && scene.takes(3, "b", X));
    let mut stranger = scene.waits(3, "a", X).expect("no deadlock");
    assert!(scene.takes(2, "a", sx(1)));
    assert_eq!(scene.cycle(2, "b", sx(1)), [2, 3]);
    scene.ends(1);
    scene.ends(2);
    assert!(is_granted(&mut stranger));
}

#[test]
fn locks_of_siblings_are_shown_by_their_names() {
    let mut scene = Scene::new();
    assert!(scene.takes(1, "k", ss(1)) && scene.takes(1, "k", sx(1)));
    let _wait = scene.waits(3, "k", X).expect("no deadlock");
    let shown: Vec<_> = scene.table.list().into_iter().map(|l| (l.transaction, l.modes, l.granted)).collect();
    assert_eq!(shown, [(1, vec!["SiblingShared", "SiblingExclusive"], true), (3, vec!["Exclusive"], false)]);
}
