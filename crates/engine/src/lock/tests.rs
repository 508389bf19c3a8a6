//! The lock table of the MIP paper (§3.2), cell by cell, in the real lock table; and siblings in
//! deadlocks.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::mode::{FamilySlot, LockMode, Mode, STRENGTHS, TreeMode};
use super::queue::{Answer, MOST_OVERTAKEN};
use super::table::{Held, LOCK_BYTES, LockTable};
use super::wait::LockWait;
use crate::hash::FIXED;
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
        Scene { table: Arc::new(LockTable::new(&FIXED)), held: Default::default() }
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

    /// Rolls back to a savepoint: how many rows' locks were given back.
    fn back(&mut self, owner: TransactionId, savepoint: u64) -> usize {
        let freed = self.table.release_since(owner, &mut self.held[owner as usize], savepoint);
        freed / LOCK_BYTES
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

/// Holder's mode, requested mode, whether they go together. The family is 1 for who holds; 1 or 2
/// for who asks.
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

/// The same cells between two that wait, for somebody whose lock goes with neither: who goes
/// together is granted together, who does not comes one after the other.
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

/// Siblings with a stranger between them in the queue: the second is granted with the first, not
/// after the stranger.
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

/// Instance 1 is prepared and will not move; its retry went ahead of a stranger and then asks for
/// what that holds.
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

/// Two locks of strengths that go together do, and no others, in all kinds of transactions: 64
/// cells, twice. Siblings have `XID` for *no*.
#[test]
fn the_four_strengths_go_together_as_in_the_table() {
    let kinds: [fn(LockMode, u32) -> Mode; 2] =
        [|mode, _| Mode::Row(mode), |mode, number| Mode::Sibling(mode, family(number))];
    for (held_as, asked_as) in kinds.into_iter().flat_map(|kind| kinds.map(|other| (kind, other))) {
        for (held, asked) in STRENGTHS.into_iter().flat_map(|one| STRENGTHS.map(|other| (one, other))) {
            // What one keeps out the other must not do: the key stays, the row stays, nobody else
            // changes it.
            let together = held as u32 + (asked as u32) < 3;
            for kin in [1, 2] {
                let (held, asked) = (held_as(held, 1), asked_as(asked, kin));
                let siblings = held.family().is_some() && held.family() == asked.family();
                let mut scene = Scene::new();
                assert!(scene.takes(1, "k", held));
                assert_eq!(scene.takes(2, "k", asked), together || siblings, "{held:?} {asked:?}");
            }
        }
    }
}

fn hold_and_wait(scene: &mut Scene, owner: TransactionId, key: &str, mode: Mode) -> LockWait {
    scene.waits(owner, key, mode).expect("no deadlock")
}

/// Rolling back to a savepoint releases what was locked since, lowers what was raised since, and
/// wakes exactly whom that lets through.
#[test]
fn a_savepoint_gives_back_what_was_locked_since() {
    let mut scene = Scene::new();
    let [ks, _, nx, x] = STRENGTHS.map(Mode::Row);
    assert!(scene.takes(1, "a", ks));
    scene.held[1].mark(1);
    assert!(scene.takes(1, "a", x) && scene.takes(1, "b", x));
    scene.held[1].mark(2);
    assert!(scene.takes(1, "c", ks));
    let mut writer = hold_and_wait(&mut scene, 2, "a", nx);
    let mut other = hold_and_wait(&mut scene, 3, "a", x);
    let mut third = hold_and_wait(&mut scene, 4, "b", ks);
    let mut fourth = hold_and_wait(&mut scene, 5, "c", x);
    assert_eq!(scene.back(1, 2), 1);
    assert!(is_granted(&mut fourth) && !is_granted(&mut writer) && !is_granted(&mut third));
    // Back once more: there is nothing left of it.
    assert_eq!(scene.back(1, 2), 0);
    assert_eq!(scene.back(1, 1), 1);
    assert!(is_granted(&mut writer) && is_granted(&mut third));
    assert!(!is_granted(&mut other), "1 still has KS, 2 NX");
    scene.ends(2);
    assert!(!is_granted(&mut other));
    scene.ends(1);
    assert!(is_granted(&mut other));
}

#[test]
fn a_released_savepoint_leaves_its_locks_to_the_one_before() {
    let mut scene = Scene::new();
    scene.held[1].mark(1);
    scene.held[1].mark(2);
    assert!(scene.takes(1, "a", X));
    scene.held[1].unmark(2);
    assert!(!scene.takes(2, "a", S));
    assert_eq!(scene.back(1, 1), 1);
    assert!(scene.takes(2, "a", S));
}

/// What the newest state was read under stays locked; so does what was locked twice, before and
/// after.
#[test]
fn pinned_locks_outlive_their_savepoint() {
    let mut scene = Scene::new();
    assert!(scene.takes(1, "before", X));
    scene.held[1].mark(1);
    assert!(scene.takes(1, "before", X) && scene.takes(1, "row", S) && scene.takes(1, "kept", S));
    scene.table.keep_row(&mut scene.held[1], TREE, b"kept");
    assert_eq!(scene.back(1, 1), 1);
    assert!(!scene.takes(2, "before", S) && !scene.takes(2, "kept", X) && scene.takes(2, "row", X));
    assert!(scene.takes(1, "pinned", S));
    scene.held[1].pin();
    assert!(scene.takes(1, "after", S));
    assert_eq!(scene.back(1, 1), 1);
    assert!(!scene.takes(2, "pinned", X) && scene.takes(2, "after", X) && !scene.takes(2, "kept", X));
    scene.ends(1);
    assert!(["before", "kept", "pinned"].into_iter().all(|key| scene.takes(2, key, X)));
}

/// What was raised before a pin stays, and says nothing of what is raised behind a later savepoint.
#[test]
fn what_is_raised_behind_a_released_savepoint_goes_back() {
    let mut scene = Scene::new();
    assert!(scene.takes(1, "pinned", S) && scene.takes(1, "row", S));
    scene.held[1].mark(1);
    assert!(scene.takes(1, "pinned", X));
    scene.held[1].pin();
    scene.held[1].unmark(1);
    scene.held[1].mark(2);
    assert!(scene.takes(1, "row", X));
    assert_eq!(scene.back(1, 2), 0);
    assert!(!scene.takes(2, "pinned", S) && scene.takes(2, "row", S) && !scene.takes(2, "row", X));
}

/// A lock that was waited for in vain is not held, and one that was granted meanwhile is; both
/// belong to the savepoint.
#[test]
fn a_wait_that_was_given_up_belongs_to_its_savepoint() {
    for granted in [false, true] {
        let mut scene = Scene::new();
        assert!(scene.takes(2, "a", X));
        scene.held[1].mark(1);
        let wait = hold_and_wait(&mut scene, 1, "a", X);
        if granted {
            scene.ends(2);
        }
        drop(wait);
        assert_eq!(scene.back(1, 1), usize::from(granted));
        scene.ends(2);
        assert!(scene.takes(3, "a", X));
    }
}

/// The history of `deadlock`'s head.
#[test]
fn a_cycle_with_a_soft_edge_is_resolved_by_another_order() {
    for shared in [LockMode::KeyShared, LockMode::Shared] {
        let mut scene = Scene::new();
        let s = Mode::Row(shared);
        let [d1, d2, e1, e2] = [1, 2, 3, 4];
        let nx = Mode::Row(LockMode::NoKeyExclusive);
        assert!(scene.takes(d1, "a", s) && scene.takes(d2, "b", s));
        // Somebody who goes with none of them keeps the readers in the line.
        assert!(scene.takes(5, "a", nx) == (shared == LockMode::KeyShared));
        scene.ends(5);
        let mut first = hold_and_wait(&mut scene, e1, "a", X);
        let mut second = hold_and_wait(&mut scene, e2, "b", X);
        let mut one = hold_and_wait_in_line(&mut scene, d1, "b", s);
        let mut other = hold_and_wait_in_line(&mut scene, d2, "a", s);
        assert!(is_granted(&mut one) && !is_granted(&mut other));
        scene.ends(d1);
        assert!(is_granted(&mut first) && !is_granted(&mut other));
        scene.ends(e1);
        assert!(is_granted(&mut other) && !is_granted(&mut second));
        scene.ends(d2);
        assert!(is_granted(&mut second));
        assert_eq!(scene.table.deadlocks.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}

/// Waits although it might overtake: the line has been overtaken often enough.
fn hold_and_wait_in_line(scene: &mut Scene, owner: TransactionId, key: &str, mode: Mode) -> LockWait {
    for _ in 0..=MOST_OVERTAKEN {
        if !scene.takes(6, key, mode) {
            break;
        }
        scene.ends(6);
    }
    hold_and_wait(scene, owner, key, mode)
}

/// Queues of trees are fair, so soft edges are there without more ado. One must jump over two.
#[test]
fn several_may_have_to_be_overtaken() {
    let mut scene = Scene::new();
    let mut lock = |owner: TransactionId, tree, mode| {
        let held = &mut scene.held[owner as usize];
        match scene.table.try_tree(owner, held, tree, mode) {
            Answer::Busy => {
                Some(scene.table.wait_tree(owner, held, tree, mode).expect("no deadlock").expect("busy"))
            }
            _ => None,
        }
    };
    let (update, read, all) = (TreeMode::ShareUpdateExclusive, TreeMode::Read, TreeMode::Exclusive);
    assert!(lock(1, 1, update).is_none() && lock(2, 2, read).is_none());
    let mut second = lock(2, 1, update).expect("1 has it");
    let mut third = lock(3, 2, all).expect("2 reads");
    let mut fourth = lock(4, 2, all).expect("2 reads");
    let mut first = lock(1, 2, update).expect("behind 3 and 4");
    assert!(is_granted(&mut first));
    assert!(!is_granted(&mut second) && !is_granted(&mut third) && !is_granted(&mut fourth));
    scene.ends(1);
    assert!(is_granted(&mut second) && !is_granted(&mut third));
    scene.ends(2);
    assert!(is_granted(&mut third) && !is_granted(&mut fourth));
    scene.ends(3);
    assert!(is_granted(&mut fourth));
}

/// How many transactions searches look at while `waiters` come to one row, each with another row
/// that one more waits for.
fn looked_at(waiters: u64, mode: fn(u32) -> Mode, deep: bool) -> u64 {
    let table = Arc::new(LockTable::new(&FIXED));
    let mut held: Vec<Held> = (0..=2 * waiters).map(|_| Held::default()).collect();
    assert_eq!(table.try_row(0, &mut held[0], TREE, b"hot", X), Answer::Granted);
    let mut waits = Vec::new();
    for waiter in 1..=waiters {
        let key = waiter.to_be_bytes();
        let lock = |owner: u64, held: &mut Vec<Held>, key: &[u8], mode| {
            let held = &mut held[owner as usize];
            match table.try_row(owner, held, TREE, key, mode) {
                Answer::Busy => table.wait_row(owner, held, TREE, key, mode).expect("no deadlock"),
                _ => None,
            }
        };
        if deep {
            assert!(lock(waiter, &mut held, &key, X).is_none());
        }
        waits.extend(lock(waiter, &mut held, b"hot", mode(waiter as u32)));
        if deep {
            waits.extend(lock(waiters + waiter, &mut held, &key, X));
        }
    }
    assert_eq!(waits.len() as u64, waiters * (1 + u64::from(deep)));
    let (visited, _) = table.searched();
    // All go through, one after the other, each woken once.
    for owner in 0..=2 * waiters {
        table.release_all(owner, std::mem::take(&mut held[owner as usize]));
    }
    assert!(waits.iter_mut().all(is_granted));
    drop(waits);
    assert_eq!((table.waiting_count(), table.list().len()), (0, 0));
    visited
}

/// However many wait, a newcomer's search looks at itself and at who holds the row, and at one more
/// if somebody waits for the newcomer's other row.
#[test]
fn a_search_does_not_look_at_those_who_wait_ahead() {
    for waiters in [10, 100, 400, 2000] {
        let modes: [fn(u32) -> Mode; 4] = [|_| S, |_| Mode::Row(LockMode::NoKeyExclusive), |_| X, sx];
        for mode in modes {
            assert_eq!(looked_at(waiters, mode, false), 2 * waiters, "{:?}", mode(1));
            assert_eq!(looked_at(waiters, mode, true), 5 * waiters, "{:?}", mode(1));
        }
    }
}

/// What the last search costs, transactions looked at and steps to find them, when many come to one
/// row: each takes a lock first, or none, and when all have done so, waits for another one.
fn cost_of_the_last(crowd: &[(Option<Mode>, Option<Mode>)]) -> (u64, u64) {
    let table = Arc::new(LockTable::new(&FIXED));
    let mut held: Vec<Held> = crowd.iter().map(|_| Held::default()).collect();
    for (owner, mode) in crowd.iter().enumerate().filter_map(|(at, one)| Some((at, one.0?))) {
        let answer = table.try_row(owner as u64, &mut held[owner], TREE, b"hot", mode);
        assert_eq!(answer, Answer::Granted, "{owner}");
    }
    let (mut waits, mut before) = (Vec::new(), (0, 0));
    for (owner, mode) in crowd.iter().enumerate().filter_map(|(at, one)| Some((at, one.1?))) {
        before = table.searched();
        let wait = table.wait_row(owner as u64, &mut held[owner], TREE, b"hot", mode).expect("no deadlock");
        waits.push(wait.expect("it is not free"));
    }
    let after = table.searched();
    drop(waits);
    for (owner, held) in held.into_iter().enumerate() {
        table.release_all(owner as u64, held);
    }
    assert_eq!((table.waiting_count(), table.list().len()), (0, 0));
    (after.0 - before.0, after.1 - before.1)
}

/// Many have inserted what refers to one row and go on to change it, while somebody else has
/// changed it: `leads`.
fn referrers(count: u32, kind: fn(LockMode, u32) -> Mode) -> Vec<(Option<Mode>, Option<Mode>)> {
    let [ks, nx] = [LockMode::KeyShared, LockMode::NoKeyExclusive];
    let first = (Some(Mode::Row(nx)), None);
    let others = (1..=count).map(|number| (Some(kind(ks, number)), Some(kind(nx, number))));
    std::iter::once(first).chain(others).collect()
}

/// Ordinary transactions, members of a family each, and all of one family.
const KINDS: [fn(LockMode, u32) -> Mode; 3] = [
    |mode, _| Mode::Row(mode),
    |mode, number| Mode::Sibling(mode, family(number)),
    |mode, _| Mode::Sibling(mode, family(1)),
];

#[test]
fn who_refers_to_a_row_and_changes_it_looks_at_who_has_changed_it() {
    for kind in KINDS {
        for count in [50, 400] {
            // One look over those who hold the row.
            assert_eq!(cost_of_the_last(&referrers(count, kind)), (2, u64::from(count) + 1));
        }
    }
}

/// Somebody waits among them to delete the row, and so leads to everybody.
#[test]
fn a_search_through_a_whole_line_costs_as_much_as_the_line_is_long() {
    for (kind, later) in KINDS.into_iter().flat_map(|kind| KINDS.map(|later| (kind, later))) {
        let cost = |count: u32| {
            let mut crowd = referrers(count, kind);
            crowd.push((None, Some(Mode::Row(LockMode::Exclusive))));
            let later = (1..=count).map(|number| later(LockMode::NoKeyExclusive, count + number));
            crowd.extend(later.map(|mode| (None, Some(mode))));
            crowd.push((None, Some(Mode::Row(LockMode::NoKeyExclusive))));
            let (visited, steps) = cost_of_the_last(&crowd);
            visited + steps
        };
        let (few, many) = (cost(50), cost(400));
        assert!(many > 400 && many < 12 * few, "{few} {many}");
    }
}

#[test]
fn what_was_locked_since_may_go_before_the_end() {
    let mut scene = Scene::new();
    assert!(scene.takes(1, "a", S));
    let count = scene.held[1].count();
    assert!(scene.takes(1, "b", X) && scene.takes(1, "a", X));
    let mut waiting = scene.waits(2, "b", X).expect("no deadlock");
    assert!(!is_granted(&mut waiting));
    let freed = scene.table.release_rows_since(1, &mut scene.held[1], count);
    assert_eq!(freed, LOCK_BYTES + 1);
    assert!(is_granted(&mut waiting));
    // What it held before stays, and as strong as it has become.
    assert!(!scene.takes(2, "a", S));
    scene.ends(1);
    assert!(scene.takes(2, "a", S));
}

/// There are more of them than orders that are tried: it goes ahead of the first one.
#[test]
fn a_long_line_is_overtaken_at_once() {
    let table = Arc::new(LockTable::new(&FIXED));
    let mut held: Vec<Held> = (0..=80).map(|_| Held::default()).collect();
    let mut lock = |owner: TransactionId, tree, mode| {
        let held = &mut held[owner as usize];
        match table.try_tree(owner, held, tree, mode) {
            Answer::Busy => {
                Some(table.wait_tree(owner, held, tree, mode).expect("no deadlock").expect("busy"))
            }
            _ => None,
        }
    };
    let (update, read, all) = (TreeMode::ShareUpdateExclusive, TreeMode::Read, TreeMode::Exclusive);
    assert!(lock(1, 1, update).is_none() && lock(2, 2, read).is_none());
    let _second = lock(2, 1, update).expect("1 has it");
    let _line: Vec<_> = (3..=80).map(|owner| lock(owner, 2, all).expect("2 reads")).collect();
    assert!(is_granted(&mut lock(1, 2, update).expect("behind them")));
}
