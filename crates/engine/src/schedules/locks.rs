//! The lock table: four strengths, savepoints, deadlocks and their victims, queues that get another
//! order, waits that are given up, under every schedule.
//!
//! What is checked: whenever somebody has a lock, all who have that row go together; nobody is
//! forgotten (a schedule in which all wait fails); no victim where the locks of a program cannot
//! close a cycle, and somebody goes on where they can; in the end the table is empty.

use std::pin::pin;
use std::sync::Arc;
// Not the scheduler's: see `programs`.
use std::sync::Mutex as Quiet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

use shuttle::future::block_on;
use shuttle::thread;

use super::explore;
use crate::Error;
use crate::hash::FIXED;
use crate::lock::mode::LockMode::{Exclusive, KeyShared, NoKeyExclusive, Shared};
use crate::lock::mode::{FamilySlot, LockMode, Mode};
use crate::lock::queue::Answer;
use crate::lock::table::{Held, LockTable};
use crate::lock::wait::LockWait;

const TREE: u32 = 7;

#[derive(Clone, Copy)]
enum Act {
    Lock(u8, LockMode),
    /// Asks, and gives up at once if the lock is not free.
    Try(u8, LockMode),
    Savepoint,
    RollBack,
}
use Act::{Lock, RollBack, Savepoint, Try};

/// Who has which row how, as the transactions themselves know it: entered after a grant, taken out
/// before the release.
type Inside = Quiet<Vec<(u64, u8, Mode)>>;

struct Stage {
    table: Arc<LockTable>,
    inside: Arc<Inside>,
    victims: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<()>>,
}

struct Actor {
    table: Arc<LockTable>,
    inside: Arc<Inside>,
    id: u64,
    family: Option<FamilySlot>,
    held: Held,
}

impl Actor {
    fn mode(&self, mode: LockMode) -> Mode {
        self.family.map_or(Mode::Row(mode), |family| Mode::Sibling(mode, family))
    }

    /// Waits unless the lock is free.
    fn ask(&mut self, key: u8, mode: Mode) -> Result<Option<LockWait>, Error> {
        match self.table.try_row(self.id, &mut self.held, TREE, &[key], mode) {
            Answer::Busy => self.table.wait_row(self.id, &mut self.held, TREE, &[key], mode),
            _ => Ok(None),
        }
    }

    fn enter(&self, key: u8, mode: Mode) {
        let mut inside = self.inside.lock().unwrap();
        for &(other, row, theirs) in inside.iter().filter(|(other, ..)| *other != self.id) {
            let together = mode.conflicts() & theirs.bit() == 0;
            let kin = mode.family().is_some() && mode.family() == theirs.family();
            assert!(row != key || together || kin, "{} has {mode:?}, {other} has {theirs:?}", self.id);
        }
        inside.push((self.id, key, mode));
    }

    /// The whole program; false if it was chosen as a victim.
    fn run(&mut self, program: &[Act]) -> bool {
        let mut marks = 0;
        for act in program {
            match *act {
                Lock(key, mode) => {
                    let mode = self.mode(mode);
                    match self.ask(key, mode) {
                        Ok(None) => {}
                        Ok(Some(wait)) => block_on(wait),
                        Err(Error::Deadlock { cycle, .. }) => {
                            assert_eq!(cycle[0], self.id);
                            return false;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    self.enter(key, mode);
                }
                Try(key, mode) => {
                    let mode = self.mode(mode);
                    let granted = match self.ask(key, mode) {
                        Ok(None) => true,
                        Ok(Some(wait)) => {
                            pin!(wait).as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
                        }
                        Err(_) => return false,
                    };
                    if granted {
                        self.enter(key, mode);
                    }
                }
                Savepoint => {
                    marks += 1;
                    self.held.mark(marks);
                    self.inside.lock().unwrap().push((self.id, u8::MAX, self.mode(KeyShared)));
                }
                RollBack => {
                    {
                        let mut inside = self.inside.lock().unwrap();
                        let mark = inside.iter().rposition(|(id, key, _)| (*id, *key) == (self.id, u8::MAX));
                        let mut at = 0;
                        inside.retain(|(id, ..)| {
                            at += 1;
                            *id != self.id || Some(at - 1) <= mark
                        });
                    }
                    self.table.release_since(self.id, &mut self.held, marks);
                }
            }
            thread::yield_now();
        }
        true
    }

    fn end(&mut self) {
        self.inside.lock().unwrap().retain(|(id, ..)| *id != self.id);
        self.table.release_all(self.id, std::mem::take(&mut self.held));
    }
}

impl Stage {
    fn new() -> Stage {
        let (inside, victims) = Default::default();
        Stage { table: Arc::new(LockTable::new(&FIXED)), inside, victims, threads: Vec::new() }
    }

    /// A transaction with this program, again after each deadlock.
    fn play(&mut self, id: u64, family: Option<FamilySlot>, program: &'static [Act]) {
        let (table, inside) = (Arc::clone(&self.table), Arc::clone(&self.inside));
        let victims = Arc::clone(&self.victims);
        let work = move || {
            let mut actor = Actor { table, inside, id, family, held: Held::default() };
            while !actor.run(program) {
                victims.fetch_add(1, Ordering::Relaxed);
                actor.end();
                actor.id += 100;
            }
            actor.end();
        };
        self.threads.push(thread::spawn(work));
    }

    /// How many victims there were.
    fn end(self) -> u64 {
        for thread in self.threads {
            thread.join().unwrap();
        }
        assert!(self.table.list().is_empty() && self.table.waiting_count() == 0);
        self.victims.load(Ordering::Relaxed)
    }
}

fn play(programs: &[&'static [Act]]) -> u64 {
    let mut stage = Stage::new();
    for (id, program) in (1..).zip(programs) {
        stage.play(id, None, program);
    }
    stage.end()
}

/// Two that read a row each and then the other's, two that want the rows alone: no cycle has hard
/// edges only, so nobody is ever refused.
#[test]
fn another_order_spares_every_victim() {
    explore("reordered queues", 300, |_| {
        let victims = play(&[
            &[Lock(0, Shared), Lock(1, Shared)],
            &[Lock(1, Shared), Lock(0, Shared)],
            &[Lock(0, Exclusive)],
            &[Lock(1, Exclusive)],
        ]);
        assert_eq!(victims, 0);
    });
}

/// Children refer to two rows that others change, and somebody deletes one: who refers and who
/// changes never meet, who deletes waits for both.
#[test]
fn four_strengths_go_together_as_they_should() {
    explore("four strengths", 300, |_| {
        play(&[
            &[Lock(0, KeyShared), Lock(1, NoKeyExclusive)],
            &[Lock(1, KeyShared), Lock(0, NoKeyExclusive), Lock(1, Shared)],
            &[Lock(0, Exclusive)],
            &[Lock(0, Shared), Lock(0, NoKeyExclusive)],
        ]);
    });
}

#[test]
fn what_a_savepoint_gives_back_lets_others_in() {
    explore("savepoints", 300, |_| {
        let back = &[
            Lock(0, KeyShared),
            Savepoint,
            Lock(0, Exclusive),
            Lock(1, Shared),
            RollBack,
            Lock(1, NoKeyExclusive),
            RollBack,
        ];
        play(&[
            back,
            &[Lock(0, NoKeyExclusive)],
            &[Lock(1, Exclusive), Lock(0, KeyShared)],
            &[Lock(1, Shared)],
        ]);
    });
}

#[test]
fn siblings_with_savepoints_and_strangers() {
    explore("siblings", 200, |_| {
        let mut stage = Stage::new();
        let family = Some(FamilySlot::MIN);
        stage.play(
            1,
            family,
            &[Lock(0, Shared), Savepoint, Lock(1, Exclusive), RollBack, Lock(0, NoKeyExclusive)],
        );
        stage.play(2, family, &[Lock(1, NoKeyExclusive), Lock(0, Exclusive)]);
        stage.play(3, None, &[Lock(0, NoKeyExclusive), Lock(1, KeyShared)]);
        stage.play(4, None, &[Try(1, Exclusive), Lock(0, KeyShared)]);
        stage.end();
    });
}

#[test]
fn who_gives_up_leaves_nothing_behind() {
    explore("waits given up", 200, |_| {
        play(&[
            &[Try(0, Exclusive), Try(1, Shared)],
            &[Lock(0, Shared), Try(1, Exclusive), Lock(0, NoKeyExclusive)],
            &[Lock(1, NoKeyExclusive), Try(0, KeyShared)],
            &[Lock(0, Exclusive)],
        ]);
    });
}

/// Everybody gets through after a deadlock; and the schedules reach some.
#[test]
fn after_a_victim_the_others_go_on() {
    static VICTIMS: AtomicU64 = AtomicU64::new(0);
    explore("deadlocks", 200, |_| {
        let victims = play(&[
            &[Lock(0, Exclusive), Lock(1, NoKeyExclusive)],
            &[Lock(1, Exclusive), Lock(0, Shared)],
            &[Lock(0, KeyShared), Lock(0, Exclusive)],
            &[Lock(1, Shared), Savepoint, Lock(0, NoKeyExclusive)],
        ]);
        VICTIMS.fetch_add(victims, Ordering::Relaxed);
    });
    assert!(VICTIMS.load(Ordering::Relaxed) > 0);
}
