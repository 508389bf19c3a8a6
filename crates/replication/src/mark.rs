//! The mark of what is settled: it only moves forward, and ends with the consensus.
//!
//! Tasks wait for it by a channel of which the last value counts. Who applies what is settled may
//! have itself told instead ([`Told`]): by the thread that has moved the mark, before that does
//! anything else. So it can do what is little there and then, where waking a thread of its own
//! would take longer than that; and it decides itself whether to wake one.
//!
//! Whoever is told finds the mark moved, or at its end: the channel goes first.

use std::fmt;
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use crate::consensus::Settled;
use crate::entry::Position;

/// What is called when the mark has moved or ended.
pub(crate) type Call = Box<dyn Fn() + Send + Sync>;

/// Who is told, if anybody is.
#[derive(Default)]
pub(crate) struct Told(OnceLock<Call>);

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").field("is_set", &self.0.get().is_some()).finish()
    }
}

impl Told {
    /// From now on this is called. The first one stays.
    pub(crate) fn set(&self, call: Call) {
        let _ = self.0.set(call);
    }

    fn tell(&self) {
        if let Some(call) = self.0.get() {
            call();
        }
    }
}

/// See the module's description. Fields are dropped from the first to the last: so the channel has
/// ended when that is told.
#[derive(Debug)]
pub(crate) struct Mark {
    settled: watch::Sender<Settled>,
    end: End,
}

/// Tells as it is dropped.
#[derive(Debug)]
struct End(Arc<Told>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.tell();
    }
}

impl Mark {
    /// A mark that begins here.
    pub(crate) fn new(settled: Settled) -> Mark {
        Mark { settled: watch::channel(settled).0, end: End(Arc::default()) }
    }

    /// To wait for it.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Settled> {
        self.settled.subscribe()
    }

    /// Who is told.
    pub(crate) fn told(&self) -> Arc<Told> {
        Arc::clone(&self.end.0)
    }

    /// Moves it up to an index, if it does not stand there or behind already.
    pub(crate) fn settle(&self, index: Option<u64>) {
        let has_moved = self.settled.send_if_modified(|settled| {
            let is_later = index > settled.index;
            settled.index = settled.index.max(index);
            is_later
        });
        if has_moved {
            self.end.0.tell();
        }
    }

    /// A snapshot that ends with an index has become the application's state, at a position.
    pub(crate) fn install(&self, index: Option<u64>, position: Position, next_index: u64) {
        self.settled.send_modify(|settled| {
            settled.index = settled.index.max(index);
            settled.installs += 1;
            settled.installed = position;
            settled.next_index = next_index;
        });
        self.end.0.tell();
    }
}
