//! Random histories of the lock table, against a model of what each transaction holds and a judge
//! of who waits for whom that looks at everything.
//!
//! 1. *Holders* go together, and each transaction holds what the model says, also after it has gone
//!    back to a savepoint.
//! 2. *Nobody is forgotten*: who waits is in somebody's way, and who is not waits no longer; each
//!    waiter is woken once.
//! 3. *No deadlock stays*: the graph of all waiters, soft edges included, has no cycle after any
//!    step.
//! 4. *No victim without a deadlock*: the cycle that an error names is one, edge by edge.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;

use super::deadlock::Edge;
use super::held::{Held, HeldLock};
use super::mode::{FamilySlot, Mode, Modes, STRENGTHS, TREE_MODES, WEAK};
use super::queue::Answer;
use super::table::LockTable;
use super::wait::LockWait;
use crate::hash::FIXED;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::{Error, TransactionId, TreeId};

const OWNERS: usize = 6;
const ROWS: u8 = 3;
const TREES: u8 = 2;

#[derive(Debug, Clone, Copy)]
enum Step {
    Row(usize, u8, usize),
    Tree(usize, u8, usize),
    Mark(usize),
    /// Back to one of the savepoints, counted from the last.
    Back(usize, usize),
    GiveUp(usize),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let owner = 1..=OWNERS;
    prop_oneof![
        10 => (owner.clone(), 0..ROWS, 0..STRENGTHS.len()).prop_map(|(o, row, mode)| Step::Row(o, row, mode)),
        4 => (owner.clone(), 0..TREES, 0..TREE_MODES.len()).prop_map(|(o, tree, mode)| Step::Tree(o, tree, mode)),
        2 => owner.clone().prop_map(Step::Mark),
        2 => (owner.clone(), 0..2usize).prop_map(|(o, back)| Step::Back(o, back)),
        1 => owner.clone().prop_map(Step::GiveUp),
        2 => owner.prop_map(Step::End),
    ]
}

/// Counts how often a waiter is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A row of tree 9, or a tree.
type Resource = (TreeId, Option<u8>);

/// What a transaction is supposed to hold.
type Model = BTreeMap<Resource, Modes>;

struct Asked {
    wait: LockWait,
    woken: Arc<Woken>,
    resource: Resource,
    mode: Mode,
}

#[derive(Default)]
struct Owner {
    held: Held,
    model: Model,
    marks: Vec<(u64, Model)>,
    asked: Option<Asked>,
}

struct World {
    table: Arc<LockTable>,
    owners: Vec<Owner>,
    marks: u64,
}

impl World {
    fn new() -> World {
        let owners = (0..=OWNERS).map(|_| Owner::default()).collect();
        World { table: Arc::new(LockTable::new(&FIXED)), owners, marks: 0 }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Row(owner, row, mode) => {
                let mode = match owner {
                    1 | 2 => Mode::Sibling(STRENGTHS[mode], FamilySlot::MIN),
                    _ => Mode::Row(STRENGTHS[mode]),
                };
                self.ask(owner, (9, Some(row)), mode);
            }
            Step::Tree(owner, tree, mode) => {
                self.ask(owner, (1 + u32::from(tree), None), Mode::Tree(TREE_MODES[mode]))
            }
            Step::GiveUp(owner) => {
                if let Some(asked) = self.owners[owner].asked.take() {
                    assert_eq!(asked.woken.0.load(Ordering::Relaxed), 0);
                }
            }
            Step::Mark(owner) if self.owners[owner].asked.is_none() => {
                self.marks += 1;
                let Owner { held, model, marks, .. } = &mut self.owners[owner];
                held.mark(self.marks);
                marks.push((self.marks, model.clone()));
            }
            Step::Back(owner, back) if self.owners[owner].asked.is_none() => self.back(owner, back),
            Step::Mark(_) | Step::Back(..) => {}
            Step::End(owner) => {
                let Owner { held, .. } = std::mem::take(&mut self.owners[owner]);
                self.table.release_all(owner as TransactionId, held);
            }
        }
    }

    fn ask(&mut self, owner: usize, resource: Resource, mode: Mode) {
        let id = owner as TransactionId;
        let Owner { held, model, asked, .. } = &mut self.owners[owner];
        if asked.is_some() {
            return;
        }
        let key = resource.1.map(|row| [row]);
        let answer = match (&key, mode) {
            (Some(key), _) => self.table.try_row(id, held, resource.0, key, mode),
            (None, Mode::Tree(mode)) => self.table.try_tree(id, held, resource.0, mode),
            _ => unreachable!("a row's mode has a key"),
        };
        if answer != Answer::Busy {
            note(model, resource, mode);
            return;
        }
        let wait = match (&key, mode) {
            (Some(key), _) => self.table.wait_row(id, held, resource.0, key, mode),
            (None, Mode::Tree(mode)) => self.table.wait_tree(id, held, resource.0, mode),
            _ => unreachable!("a row's mode has a key"),
        };
        match wait {
            Ok(Some(wait)) => *asked = Some(Asked { wait, woken: Arc::default(), resource, mode }),
            Ok(None) => note(model, resource, mode),
            Err(Error::Deadlock { cycle, .. }) => self.judge_victim(&cycle, resource, mode),
            Err(error) => panic!("{error}"),
        }
    }

    fn back(&mut self, owner: usize, back: usize) {
        let Owner { held, model, marks, .. } = &mut self.owners[owner];
        let Some(at) = marks.len().checked_sub(1 + back) else { return };
        marks.truncate(at + 1);
        let mut before = marks[at].1.clone();
        for (resource, modes) in
            model.iter().filter(|(resource, modes)| resource.1.is_none() && *modes & WEAK != 0)
        {
            *before.entry(*resource).or_default() |= modes & WEAK;
        }
        *model = before;
        self.table.release_since(owner as TransactionId, held, marks[at].0);
    }

    /// The cycle is one: each member waits for the next, the first one for what it was refused.
    fn judge_victim(&self, cycle: &[TransactionId], resource: Resource, mode: Mode) {
        for pair in cycle
            .windows(2)
            .skip(1)
            .chain([[cycle[cycle.len() - 1], cycle[0]].as_slice()])
            .skip(usize::from(cycle.len() == 1))
        {
            let edges = self.table.every_blocker(pair[0]);
            // The victim has withdrawn by now: who waited behind it only might not any more.
            let behind = pair[1] == cycle[0] && edges.is_empty();
            assert!(
                behind || edges.iter().any(|edge| edge.to == pair[1]) || pair[1] == cycle[0],
                "{cycle:?} {edges:?}"
            );
        }
        let next = cycle.get(1).copied().unwrap_or(cycle[0]) as usize;
        let holds = self.owners[next].model.get(&resource).is_some_and(|modes| modes & mode.conflicts() != 0);
        let asked = self.owners[next].asked.as_ref();
        let waits =
            asked.is_some_and(|asked| asked.resource == resource && asked.mode.bit() & mode.conflicts() != 0);
        assert!(holds || waits, "{cycle:?}: the victim did not wait for {next}");
    }

    /// Lets those go on who have their locks.
    fn poll(&mut self) {
        for owner in 1..=OWNERS {
            let Some(asked) = &mut self.owners[owner].asked else { continue };
            let woken = asked.woken.0.load(Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(&asked.woken));
            let ready = Pin::new(&mut asked.wait).poll(&mut Context::from_waker(&waker));
            assert!(woken <= 1 && (woken == 0 || ready == Poll::Ready(())), "{woken} {ready:?}");
            if ready == Poll::Ready(())
                && let Some(asked) = self.owners[owner].asked.take()
            {
                note(&mut self.owners[owner].model, asked.resource, asked.mode);
            }
        }
    }

    fn check(&self) {
        for (owner, Owner { held, model, asked, .. }) in self.owners.iter().enumerate().skip(1) {
            let locks = self.table.held_by(owner as TransactionId, held);
            let mut found = Model::new();
            for HeldLock { tree, key, modes } in locks {
                *found.entry((tree, key.map(|key| key[0]))).or_default() |= modes;
            }
            // Whether a weak mode that a stronger one covers is entered depends on who else asked.
            let kept_out = |model: &Model| -> Model {
                let kind = |resource: &Resource| match resource.1 {
                    Some(_) => Mode::Row(STRENGTHS[0]),
                    None => Mode::Tree(TREE_MODES[0]),
                };
                model.iter().map(|(resource, modes)| (*resource, kind(resource).keeps_out(*modes))).collect()
            };
            assert_eq!(kept_out(&found), kept_out(model), "transaction {owner}: {found:?} {model:?}");
            let edges = self.table.every_blocker(owner as TransactionId);
            assert_eq!(
                edges.is_empty(),
                asked.is_none(),
                "transaction {owner} waits for nobody, or does not wait"
            );
        }
        for start in 1..=OWNERS as TransactionId {
            let (mut seen, mut next) = (BTreeSet::new(), self.table.every_blocker(start));
            while let Some(Edge { to, .. }) = next.pop() {
                assert_ne!(to, start, "a deadlock stays");
                if seen.insert(to) {
                    next.extend(self.table.every_blocker(to));
                }
            }
        }
    }
}

fn note(model: &mut Model, resource: Resource, mode: Mode) {
    *model.entry(resource).or_default() |= mode.bit();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn nobody_is_forgotten_and_no_deadlock_stays(steps in proptest::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.poll();
            world.check();
        }
        for owner in 1..=OWNERS {
            world.take(Step::End(owner));
            world.poll();
            world.check();
        }
        prop_assert!(world.table.list().is_empty() && world.table.waiting_count() == 0);
    }
}
