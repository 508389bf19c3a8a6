//! The monitor: which replication protocol is best for a class of transactions.
//!
//! A *class* is all transactions that run the same statements, whatever their values (`class`,
//! `normal_form`). Each attempt of a transaction reports what it has cost ([`Finished`]);
//! averages of that (`measures`, `decayed`) and of the traffic as a whole (`traffic`) go into a
//! model of what the class would cost under each protocol (`model`), and a class changes its
//! protocol if another one has been clearly cheaper for a while (`choice`). Certification and weak
//! voting are possible for all transactions; active only if the whole transaction is known when it
//! begins, which its caller says by `fit`: one statement of its own, one message of several, or a
//! CALL. Sent one by one, the same statements are a class of their own, which cannot be active.
//!
//! ```text
//! session   let mut class = Class::new();
//!           class.add(Fingerprint::of(&text), &text);     UPDATE item SET stock = stock - $1 …
//!           monitor.choose(&class, true, now)                -> certification: the class is new
//!           monitor.finished(&Finished { conflict: Some(true), … }, now)     every second time
//!           … half a second and 32 transactions later
//!           monitor.choose(&class, true, now)                -> active
//!
//! cognate_protocol_choice
//!   class      UPDATE item SET stock = stock - ? WHERE id = ?
//!   chosen     active
//!   estimates  certification 3150 us, weak_voting 4230 us, active 1860 us: active because
//!              certification would repeat 50 % of its attempts
//!   form       whole
//! ```
//!
//! *Refusals that a client is told of.* Costs are weighed as if whoever is refused was run again,
//! which is a matter of microseconds; so certification is chosen for a class that it refuses a
//! tenth of, if executing it at every node would take the appliers several times as long. That is
//! right where the server runs it again: its client sees a slower answer, and the second attempt
//! goes to every node, which refuses nothing. It is wrong where nobody does
//! (`cognate.statement_retries` = 0): then the client has an error which active would have spared
//! it, and no number of microseconds is its price. Nor can the risk be known while the class is
//! active, for what it reads is not noted there. So such transactions are classes of their own
//! ([`Monitor::choose_told`]), which begin with active and stay with it as long as it executes them
//! quickly (`choice`); what executes for long would keep everybody waiting, and is weighed as ever.
//!
//! All that decides is pure: times are given, and nothing in those modules waits, reads a clock or
//! has a lock. This one puts locks around it, so that it can lie on the path of every commit:
//!
//! - `choose` reads one word (`published`); only for a class that has just appeared, or shares its
//!   word, it asks further.
//! - Whoever finds a lock taken does not wait for it: a sample is dropped, a new class begins with
//!   the next transaction. So there is no order of locks to keep; none is held while another is
//!   taken.
//! - Known classes and their texts are bounded (`classes`); what has no room, or too many different
//!   statements, is of the class "all others".
//!
//! Times are microseconds since 2000-01-01 UTC, as `SqlDatabase` has them; a clock that goes back
//! stands still. What a monitor knows and decides is its node's own: it says how transactions go
//! into the order, and no verdict depends on it.

mod choice;
mod class;
mod classes;
mod decayed;
mod measures;
mod model;
mod normal_form;
mod published;
mod report;
mod slope;
mod traffic;

use parking_lot::Mutex;

pub use class::{Class, Fingerprint};
pub use report::{Finished, Protocol};
pub use traffic::Surroundings;

use class::{OTHERS, OTHERS_TEXT};
use classes::Classes;
use published::Published;
use traffic::Traffic;

const SHARDS: usize = 16;
/// Classes of a shard.
const CLASSES: usize = 32;

/// What a class is known by: the class's id, whether it can be active, and whether its clients are
/// told of refusals that active would spare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key(u64);

impl Key {
    const FIT: u64 = 1 << 3;
    const TOLD: u64 = 1 << 2;

    fn new(class: u64, fit: bool) -> Key {
        Key((class & !0xf) | if fit { Key::FIT } else { 0 })
    }

    /// The same of those whose clients are told. What is not fit has no other way to go.
    fn told(self) -> Key {
        if self.is_fit() { Key(self.0 | Key::TOLD) } else { self }
    }

    /// Of a transaction that has ended, in a class.
    fn of(class: u64, finished: &Finished) -> Key {
        let key = Key::new(class, finished.fit_for_active);
        if finished.told_if_refused { key.told() } else { key }
    }

    /// A number whose two lowest bits are free.
    fn number(self) -> u64 {
        self.0
    }

    fn is_fit(self) -> bool {
        self.0 & Key::FIT != 0
    }

    fn is_told(self) -> bool {
        self.0 & Key::TOLD != 0
    }

    fn is_others(self) -> bool {
        self.0 & !(Key::FIT | Key::TOLD) == OTHERS
    }

    /// What tells it apart from the other classes of its statements.
    fn form(self) -> &'static str {
        match (self.is_fit(), self.is_told()) {
            (false, _) => "piecemeal",
            (true, false) => "whole",
            (true, true) => "whole, not retried",
        }
    }

    /// What a new class has.
    fn first(self) -> Protocol {
        if self.is_told() { Protocol::Active } else { Protocol::default() }
    }
}

/// A row of `cognate_protocol_choice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChoiceRow {
    /// The statements of the class, in their normal form, cut.
    pub class: String,
    /// Its protocol.
    pub chosen: &'static str,
    /// What each protocol would cost for one committed transaction, and why it is this one.
    pub estimates: String,
    /// Since when, microseconds since 2000-01-01 UTC.
    pub since_us: i64,
    /// How they come: `whole`, `whole, not retried` (nobody runs them again if they are refused),
    /// or `piecemeal`, as is all that cannot be active.
    pub form: &'static str,
}

/// Chooses protocols, and learns from how transactions end. See the module's prose.
#[derive(Debug)]
pub struct Monitor {
    shards: [Mutex<Classes>; SHARDS],
    published: Published,
    traffic: Mutex<Traffic>,
    surroundings: Mutex<Surroundings>,
}

impl Default for Monitor {
    fn default() -> Monitor {
        Monitor::new()
    }
}

impl Monitor {
    /// A monitor that knows nothing yet.
    pub fn new() -> Monitor {
        Monitor {
            shards: std::array::from_fn(|_| Mutex::new(Classes::new(CLASSES))),
            published: Published::new(),
            traffic: Mutex::new(Traffic::new()),
            surroundings: Mutex::default(),
        }
    }

    /// The nodes as they are now. To be told whenever that has changed, and the load of the applier
    /// every second or so; until then there is one node, and the load is calculated.
    pub fn tell(&self, surroundings: Surroundings) {
        *self.surroundings.lock() = surroundings;
    }

    /// The protocol for a transaction of a class; `fit`: it is known as a whole, and may be active.
    ///
    /// To be asked for what goes into the order, when it begins if it is fit, and when it ends if
    /// it is not: then all its statements are known. Never active if it is not fit. A transaction
    /// that goes through another protocol than the one that is said here reports that one.
    pub fn choose(&self, class: &Class, fit: bool, now_us: i64) -> Protocol {
        self.choose_by(Key::new(class.id(), fit), class, now_us)
    }

    /// The same for a transaction that is fit, and whose client is told if it is refused: nobody
    /// runs it again.
    pub fn choose_told(&self, class: &Class, now_us: i64) -> Protocol {
        self.choose_by(Key::new(class.id(), true).told(), class, now_us)
    }

    fn choose_by(&self, key: Key, class: &Class, now_us: i64) -> Protocol {
        match self.published.get(key) {
            Some(protocol) => protocol,
            None => self.meet(key, || class.text(), now_us),
        }
    }

    /// A class that is not published, most likely a new one.
    #[cold]
    fn meet(&self, key: Key, text: impl FnOnce() -> String, now_us: i64) -> Protocol {
        let Some(mut classes) = self.shard(key).try_lock() else { return key.first() };
        let (protocol, displaced) = classes.choose(key, text, now_us);
        if let Some(displaced) = displaced {
            self.published.forget(displaced);
        }
        self.published.put(key, protocol);
        protocol
    }

    /// An attempt of a transaction has ended.
    pub fn finished(&self, finished: &Finished, now_us: i64) {
        let Some(surroundings) = self.surroundings.try_lock().map(|told| *told) else { return };
        let sight = match self.traffic.try_lock() {
            Some(mut traffic) => {
                traffic.note(finished, now_us);
                traffic.sight(surroundings)
            }
            None => return,
        };
        let key = Key::of(finished.class, finished);
        let note = |key: Key| {
            let mut classes = self.shard(key).try_lock()?;
            let known = classes.finished(key, finished, &sight, now_us);
            if let Ok(Some(protocol)) = known {
                self.published.put(key, protocol);
            }
            Some(known)
        };
        if let Some(Err(classes::Unknown)) = note(key) {
            let others = Key::of(OTHERS, finished);
            self.meet(others, || OTHERS_TEXT.to_owned(), now_us);
            note(others);
        }
    }

    /// What is chosen for each class that is known, by their texts.
    pub fn rows(&self) -> Vec<ChoiceRow> {
        let mut rows = Vec::new();
        self.shards.iter().for_each(|shard| shard.lock().rows(&mut rows));
        rows.sort_by(|one, other| {
            (&one.class, one.chosen, one.form).cmp(&(&other.class, other.chosen, other.form))
        });
        rows
    }

    fn shard(&self, key: Key) -> &Mutex<Classes> {
        // Other bits than those that find the place in what is published.
        &self.shards[(key.number() >> 32) as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests;
