//! The applier of a node: gives what is delivered to the engine, position after position.
//!
//! A thread of its own does that: it may take its time, and it executes active transactions. But to
//! wake a thread takes longer than to apply a short request, and a client that waits for its commit
//! would wait for two wake-ups, one after the other. So a commit that is alone, short, and decided
//! at once is applied by the thread that has the news of it ([`Delivery::tell`]), which is the
//! consensus' own; the thread here is called for everything else, and then goes on until there is
//! nothing left.
//!
//! ```text
//! settled ─┬─ a commit, alone, short, decided at once ──────────────▶ applied ──▶ client
//!          └─ the rest ──▶ the thread is called ──▶ it goes on here ─▶ applied ──▶ client
//! ```
//!
//! Invariants: who applies has the mutex of the work, so one thread applies at a time, and
//! positions keep their order. Who has the news never waits for it: where the work is taken, the
//! thread is called. A call is remembered until the thread looks for work after it, so none is
//! lost. What fails is told by the thread, whoever has found it.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use bytes::Bytes;
use cognate_engine::Progress;
use cognate_replication::delivery::{Delivered, Delivery};
use cognate_replication::error::OrderError;
use cognate_replication::order::TotalOrder;
use cognate_sql::session::SqlDatabase;
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::crew::STACK_BYTES;

/// A longer request is the thread's: the consensus has other nodes to serve meanwhile.
const SHORT: usize = 16 << 10;

/// See the module's description.
pub(crate) struct Applier {
    order: TotalOrder,
    database: SqlDatabase,
    /// Says whether another node's state has become this one's. It ends with the applier.
    replaced: watch::Sender<bool>,
    /// Microseconds for which something was applied.
    busy: Arc<AtomicU64>,
    work: Mutex<Work>,
    /// Whether the thread is to look for work.
    is_called: Mutex<bool>,
    call: Condvar,
}

/// What there is to do.
struct Work {
    delivery: Delivery,
    /// What somebody else has taken, and the thread has to go on with.
    left: Option<Left>,
    /// The thread is at it, or has ended without doing all that there was: nobody else may apply
    /// what comes behind.
    is_of_thread: bool,
}

/// A request that was taken and is not applied: it is not light enough, or why it cannot be.
struct Left {
    position: u64,
    request: Bytes,
    failed: Option<String>,
}

impl Applier {
    pub(crate) fn new(
        order: TotalOrder,
        database: SqlDatabase,
        delivery: Delivery,
        replaced: watch::Sender<bool>,
        busy: Arc<AtomicU64>,
    ) -> Applier {
        let work = Mutex::new(Work { delivery, left: None, is_of_thread: false });
        // There may be some from before.
        let is_called = Mutex::new(true);
        Applier { order, database, replaced, busy, work, is_called, call: Condvar::new() }
    }

    /// Starts the thread, from a task of the runtime that the order is in. It ends when the order
    /// has, or if this node cannot go on.
    pub(crate) fn start(self) -> io::Result<JoinHandle<()>> {
        let runtime = Handle::current();
        let applier = Arc::new(self);
        // Whoever is called must not own the delivery that calls.
        let called = Arc::downgrade(&applier);
        applier.work.lock().delivery.tell(move || {
            if let Some(applier) = called.upgrade() {
                applier.hear();
            }
        });
        let thread = Builder::new().name("applier".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || applier.run(&runtime))
    }

    /// There is news: more is settled, or the order has ended.
    fn hear(&self) {
        if !self.apply_here() {
            *self.is_called.lock() = true;
            self.call.notify_one();
        }
    }

    /// Applies what is settled if it is little. False if anything is left to be done.
    fn apply_here(&self) -> bool {
        let Some(mut work) = self.work.try_lock() else { return false };
        if work.left.is_some() || work.is_of_thread {
            return false;
        }
        let Some(Delivered::Request { position, request }) = work.delivery.next_alone(SHORT) else {
            return false;
        };
        let (began, engine) = (Instant::now(), self.database.engine());
        // The consensus must not end with a panic: it is this node that cannot go on.
        let decided = catch_unwind(AssertUnwindSafe(|| engine.deliver_light(position, &request)));
        self.note_busy(began);
        let failed = match decided {
            Ok(Ok(true)) => {
                self.order.note_applied(engine.applied());
                return true;
            }
            Ok(Ok(false)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(why) => Some(panicked(&*why)),
        };
        work.left = Some(Left { position, request, failed });
        false
    }

    fn note_busy(&self, began: Instant) {
        self.busy.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    fn until_called(&self) {
        let mut is_called = self.is_called.lock();
        while !*is_called {
            self.call.wait(&mut is_called);
        }
        *is_called = false;
    }

    /// The thread.
    fn run(&self, runtime: &Handle) {
        loop {
            self.until_called();
            // A thread that has ended without a word would look like a slow node.
            let worked = catch_unwind(AssertUnwindSafe(|| self.work_off(runtime)));
            match worked.unwrap_or_else(|why| Err(panicked(&*why))) {
                Ok(true) => {}
                Ok(false) => return,
                Err(failed) => {
                    // The order goes on without this node, which would look as if it served.
                    tracing::error!("{failed}");
                    self.order.set_diverged(Some(failed.clone()));
                    return self.database.nodes().leave(failed);
                }
            }
        }
    }

    /// Applies all that there is. False once there will be no more.
    fn work_off(&self, runtime: &Handle) -> Result<bool, String> {
        let mut work = self.work.lock();
        // It stays so after a failure, a panic and the end.
        work.is_of_thread = true;
        if let Some(Left { position, request, failed }) = work.left.take() {
            match failed {
                Some(error) => return Err(not_applied(position, &error)),
                None => self.apply(runtime, position, &request)?,
            }
        }
        while work.delivery.has_next() {
            let next = match work.delivery.next_ready() {
                Some(next) => Ok(next),
                None => runtime.block_on(work.delivery.next()),
            };
            match next {
                Ok(Delivered::Request { position, request }) => {
                    self.apply(runtime, position, &request)?;
                }
                Ok(Delivered::Installed { position }) => {
                    tracing::info!(position, "this node goes on with another one's state");
                    self.database.nodes().leave("This node was far behind, and starts again.".to_owned());
                    self.replaced.send_replace(true);
                    return Ok(false);
                }
                Err(error @ OrderError::Unreadable(_)) => return Err(error.to_string()),
                Err(error) => {
                    tracing::info!(%error, "the order has ended");
                    self.database.nodes().leave(error.to_string());
                    return Ok(false);
                }
            }
        }
        work.is_of_thread = false;
        Ok(true)
    }

    fn apply(&self, runtime: &Handle, position: u64, request: &[u8]) -> Result<(), String> {
        let began = Instant::now();
        let followed = catch_unwind(AssertUnwindSafe(|| self.follow(runtime, position, request)));
        self.note_busy(began);
        let followed = followed.unwrap_or_else(|why| Err(panicked(&*why)));
        followed.map_err(|error| not_applied(position, &error))?;
        self.order.note_applied(self.database.engine().applied());
        Ok(())
    }

    /// Delivers a position, and executes what it is the turn of.
    fn follow(&self, runtime: &Handle, position: u64, request: &[u8]) -> Result<(), String> {
        let engine = self.database.engine();
        let mut progress = engine.deliver(position, request).map_err(|error| error.to_string())?;
        while let Progress::Execute(execution) = progress {
            let executed = runtime.block_on(self.database.execute_program(*execution));
            let executed = executed.map_err(|error| error.to_string())?;
            progress = engine.finish(executed).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn not_applied(position: u64, error: &str) -> String {
    format!("position {position} cannot be applied: {error}")
}

/// What a panic is about: its first line, since values of rows may be in the others.
fn panicked(why: &(dyn Any + Send)) -> String {
    let made = why.downcast_ref::<String>().map(String::as_str);
    let text = made.or_else(|| why.downcast_ref::<&'static str>().copied()).unwrap_or_default();
    format!("a panic: {}", text.lines().next().unwrap_or("it says nothing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_place_in_the_order_and_without_values() {
        let told = |panics: fn()| {
            let why = catch_unwind(panics).expect_err("it panics");
            not_applied(7, &panicked(&*why))
        };
        assert_eq!(told(|| panic!("no tree")), "position 7 cannot be applied: a panic: no tree");
        let of_values = told(|| assert_eq!(1234, 5678, "of a row"));
        assert!(of_values.contains("a panic: assertion") && !of_values.contains("5678"), "{of_values}");
        let silent = told(|| std::panic::panic_any(7));
        assert_eq!(silent, "position 7 cannot be applied: a panic: it says nothing");
    }
}
