//! What is settled, request by request, for the application to take at its own pace.
//!
//! A delivery holds a few entries at most; the rest waits in the log. Requests that the application
//! has already are passed over: those up to where it was at the start, and those in a snapshot.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use crate::consensus::Settled;
use crate::entry::{Content, Position};
use crate::error::OrderError;
use crate::log::{OrderLog, Placed};
use crate::mark::Told;

/// Bytes that are taken from the log at a time.
const BYTES: usize = 1 << 20;

/// The next thing that happens to the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    /// A request, settled. Positions have no gap, but after [`Delivered::Installed`].
    Request {
        /// Its place in the order.
        position: Position,
        /// Its bytes.
        request: Bytes,
    },
    /// A snapshot has become the application's state; the next request is the one after `position`.
    Installed {
        /// Up to where requests are in it.
        position: Position,
    },
}

/// See the module's description.
#[derive(Debug)]
pub struct Delivery {
    log: Arc<OrderLog>,
    settled: watch::Receiver<Settled>,
    told: Arc<Told>,
    ready: VecDeque<(Position, Bytes)>,
    next_index: u64,
    /// Requests up to here are the application's already.
    have: Position,
    installs: u64,
}

impl Delivery {
    pub(crate) fn new(log: Arc<OrderLog>, settled: watch::Receiver<Settled>, have: Position) -> Delivery {
        let next_index = log.index_after(have);
        let (told, ready) = (Arc::default(), VecDeque::new());
        Delivery { log, settled, told, ready, next_index, have, installs: 0 }
    }

    /// The same; who moves the mark tells `told`.
    pub(crate) fn told_by(self, told: Arc<Told>) -> Delivery {
        Delivery { told, ..self }
    }

    /// Has this called whenever there may be more to take, and once nothing more will come: by the
    /// thread that has the news, before that goes on. So it must not wait for anything; and it must
    /// not own the delivery. Only the first one that is given here is called.
    pub fn tell(&self, call: impl Fn() + Send + Sync + 'static) {
        self.told.set(Box::new(call));
    }

    /// Whether there is something to take, or the order has ended: whoever finds nothing is told
    /// when that changes ([`Delivery::tell`]).
    pub fn has_next(&self) -> bool {
        let settled = *self.settled.borrow();
        settled.installs != self.installs
            || !self.ready.is_empty()
            || settled.index.is_some_and(|last| last >= self.next_index)
            || self.settled.has_changed().is_err()
    }

    /// The next request, if it is the only one that is to be taken, nothing is under way behind it,
    /// and it has at most so many bytes. Reads nothing from the disk.
    pub fn next_alone(&mut self, bytes_max: usize) -> Option<Delivered> {
        let settled = *self.settled.borrow();
        let is_next = settled.index == Some(self.next_index) && settled.installs == self.installs;
        if !is_next || !self.ready.is_empty() {
            return None;
        }
        let placed = self.log.last_at(self.next_index)?;
        match &placed.entry.content {
            Content::Requests(requests) if requests.count() == 1 && requests.bytes() <= bytes_max => {}
            _ => return None,
        }
        self.accept(&placed);
        self.pop()
    }

    /// Takes the next entry.
    fn accept(&mut self, placed: &Placed) {
        self.next_index += 1;
        if let Content::Requests(requests) = &placed.entry.content {
            let numbered = (placed.before + 1..).zip(requests.iter());
            self.ready.extend(numbered.filter(|(position, _)| *position > self.have));
        }
    }

    /// Waits for the next request. Whatever was settled before the order ended still comes; then it
    /// is [`OrderError::Ended`]. May be given up and called again: nothing is lost. After
    /// [`OrderError::Unreadable`] the order goes on, and this application cannot.
    pub async fn next(&mut self) -> Result<Delivered, OrderError> {
        loop {
            let settled = *self.settled.borrow_and_update();
            if settled.installs != self.installs {
                self.ready.clear();
                (self.installs, self.have) = (settled.installs, settled.installed);
                self.next_index = settled.next_index;
                return Ok(Delivered::Installed { position: self.have });
            }
            if let Some(request) = self.pop() {
                return Ok(request);
            }
            let is_taken = match settled.index {
                Some(last) if last >= self.next_index => self.take(last).await?,
                _ => false,
            };
            if !is_taken && self.settled.changed().await.is_err() {
                return Err(OrderError::Ended("there is nothing more to deliver".to_owned()));
            }
        }
    }

    /// The next request, if it was taken from the log already.
    pub fn next_ready(&mut self) -> Option<Delivered> {
        if self.settled.borrow().installs != self.installs {
            return None;
        }
        self.pop()
    }

    /// The next of those that were taken from the log.
    ///
    /// # Panics
    /// If one was passed over: whoever applied what comes behind would differ from the others.
    fn pop(&mut self) -> Option<Delivered> {
        let (position, request) = self.ready.pop_front()?;
        assert_eq!(position, self.have + 1, "the order is delivered without a gap");
        self.have = position;
        Some(Delivered::Request { position, request })
    }

    /// Takes entries up to `last` from the log. Says whether there were any.
    async fn take(&mut self, last: u64) -> Result<bool, OrderError> {
        let entries = match self.log.read(self.next_index..last + 1, BYTES).await {
            Ok(entries) => entries,
            // A snapshot was taken in meanwhile, and its mark is there already: what was being read
            // has left the disk, and is not needed any more.
            Err(_) if self.settled.borrow().installs != self.installs => return Ok(true),
            Err(error) => return Err(OrderError::Unreadable(error.to_string())),
        };
        if entries.first().is_none_or(|placed| placed.entry.id.index != self.next_index) {
            return Ok(self.pass_removed());
        }
        for placed in entries {
            if placed.entry.id.index != self.next_index {
                // Some were removed while they were read. Those before are good, and so is the rest
                // later.
                break;
            }
            self.accept(&placed);
        }
        Ok(true)
    }

    /// The next entries are not in the log any more. What the application has already leaves the
    /// log as it likes, also before it was looked at here: blanks behind the application's last
    /// request, say. Then it goes on behind them. Or else a snapshot that is being taken in has
    /// removed them, and its mark comes next. Says whether there is more to take.
    fn pass_removed(&mut self) -> bool {
        let base = self.log.base();
        let is_had = base.position <= self.have && base.next_index() > self.next_index;
        if is_had {
            self.next_index = base.next_index();
        }
        is_had
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use cognate_engine::storage::LogOptions;
    use cognate_env::sim::{SimDisk, SimRng};

    use super::*;
    use crate::entry::{Entry, EntryId, Leadership, Requests};
    use crate::mark::Mark;

    fn entry(term: u64, index: u64, content: Content) -> Entry {
        Entry { id: EntryId { leadership: Leadership { term, node: 1 }, index }, content }
    }

    fn requests(names: &[&'static str]) -> Content {
        let all: Vec<Bytes> = names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect();
        Content::Requests(Requests::pack(&all))
    }

    fn options() -> LogOptions {
        LogOptions { prepare: false, idle_mark: None, rng: Arc::new(SimRng::new(7)), ..LogOptions::default() }
    }

    /// Entries without requests stand at the beginning of the log, or behind what the application
    /// has, and leave it before the delivery looks at them.
    #[tokio::test]
    async fn what_is_had_and_removed_is_passed_over() {
        let disk = SimDisk::new(1);
        let log = OrderLog::open(&disk.handle(), Path::new("/order"), options(), 1 << 20, 100);
        let log = Arc::new(log.expect("a new log"));
        let id = |index| EntryId { leadership: Leadership { term: 1, node: 1 }, index };
        let add = |entry| log.append(std::iter::once(entry)).expect("it follows").wait().expect("synced");
        let (settle, settled) = watch::channel(Settled::default());
        let mut delivery = Delivery::new(Arc::clone(&log), settled, 100);
        let mut next = 0;
        for (position, name) in [(101, "a"), (102, "b"), (103, "c")] {
            // Blanks; what is had leaves the log, up to the last of them; and a request.
            for _ in 0..2 {
                add(entry(1, next, Content::Blank));
                next += 1;
            }
            log.note_committed(id(next - 1)).expect("it is there");
            let (written, bound) = log.purge(id(next - 1)).expect("it is there").expect("something leaves");
            written.wait().expect("synced");
            log.remove_before(bound).expect("it is not needed");
            assert_eq!(log.base().position, position - 1);
            add(entry(1, next, requests(&[name])));
            settle.send_modify(|settled| settled.index = Some(next));
            next += 1;
            let delivered = tokio::time::timeout(Duration::from_secs(60), delivery.next()).await;
            let request = Bytes::from_static(name.as_bytes());
            let delivered = delivered.expect("it does not stand still").expect("it is settled");
            assert_eq!(delivered, Delivered::Request { position, request });
        }
        log.close().expect("it is written");
    }

    /// Entries that have left memory leave the disk while they are read: because of a snapshot, and
    /// then that comes next; or because of a defect, which is told.
    #[tokio::test]
    async fn what_leaves_the_disk_while_it_is_read_was_replaced_by_a_snapshot() {
        let disk = SimDisk::new(1);
        let options = LogOptions { segment_bytes: 4 << 10, grow_bytes: 4 << 10, ..options() };
        let log = OrderLog::open(&disk.handle(), Path::new("/order"), options, 0, 0).expect("a new log");
        let log = Arc::new(log);
        for index in 0..20 {
            let long = Content::Requests(Requests::pack(&[Bytes::from(vec![7; 1000])]));
            log.append(std::iter::once(entry(1, index, long))).expect("it follows").wait().expect("synced");
        }
        let settled = Settled { index: Some(19), ..Settled::default() };
        let (settle, settled) = watch::channel(settled);
        let mut delivery = Delivery::new(Arc::clone(&log), settled, 0);
        log.remove_before(10).expect("they are removed");
        let unreadable = delivery.take(19).await;
        assert!(matches!(unreadable, Err(OrderError::Unreadable(_))), "{unreadable:?}");
        settle.send_modify(|settled| {
            (settled.installs, settled.installed, settled.next_index) = (1, 12, 12);
        });
        assert_eq!(delivery.take(19).await, Ok(true));
        assert_eq!(delivery.next().await, Ok(Delivered::Installed { position: 12 }));
        log.close().expect("it is written");
    }

    /// What is alone is taken where the news of it is, and the rest by who takes everything.
    #[tokio::test]
    async fn who_is_told_takes_what_is_alone() {
        let disk = SimDisk::new(1);
        let log = OrderLog::open(&disk.handle(), Path::new("/order"), options(), 1 << 20, 0);
        let log = Arc::new(log.expect("a new log"));
        let add = |entry| log.append(std::iter::once(entry)).expect("it follows").wait().expect("synced");
        let named = |position, name: &'static str| {
            let request = Bytes::from_static(name.as_bytes());
            Delivered::Request { position, request }
        };
        let mark = Mark::new(Settled::default());
        let mut delivery = Delivery::new(Arc::clone(&log), mark.subscribe(), 0).told_by(mark.told());
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        delivery.tell(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        add(entry(1, 0, requests(&["a"])));
        assert_eq!((delivery.has_next(), delivery.next_alone(100)), (false, None), "it is not settled");
        mark.settle(Some(0));
        mark.settle(Some(0));
        assert_eq!(calls.load(Ordering::Relaxed), 1, "nobody is told in vain");
        assert_eq!((delivery.has_next(), delivery.next_alone(1)), (true, None), "it is longer");
        assert_eq!(delivery.next_alone(100), Some(named(1, "a")));
        assert_eq!((delivery.has_next(), delivery.next_alone(100)), (false, None), "there is no more");
        add(entry(1, 1, requests(&["b"])));
        add(entry(1, 2, requests(&["c", "d"])));
        mark.settle(Some(1));
        assert_eq!((delivery.has_next(), delivery.next_alone(100)), (true, None), "more is under way");
        assert_eq!(delivery.next().await, Ok(named(2, "b")));
        mark.settle(Some(2));
        assert_eq!(delivery.next_alone(100), None, "there are two");
        assert_eq!(delivery.next().await, Ok(named(3, "c")));
        assert_eq!((delivery.has_next(), delivery.next_alone(100)), (true, None), "one is taken already");
        assert_eq!(delivery.next_ready(), Some(named(4, "d")));
        assert!(!delivery.has_next());
        drop(mark);
        assert_eq!(calls.load(Ordering::Relaxed), 4, "the end is told, too");
        assert!(delivery.has_next(), "the end is there to be taken");
        assert!(matches!(delivery.next().await, Err(OrderError::Ended(_))));
        log.close().expect("it is written");
    }

    /// A node starts with the end of a deposed leader's log, which another leader's replaces: its
    /// blank and what came behind it give way to requests.
    #[tokio::test]
    async fn what_replaces_the_end_of_the_log_after_a_start_is_delivered() {
        let disk = SimDisk::new(1);
        for behind in [vec![], vec![requests(&["void"])]] {
            let folder = format!("/order {}", behind.len());
            let log = OrderLog::open(&disk.handle(), Path::new(&folder), options(), 1 << 20, 0);
            let log = Arc::new(log.expect("a new log"));
            let add = |entry| log.append(std::iter::once(entry)).expect("it follows").wait().expect("synced");
            add(entry(1, 0, requests(&["a", "b"])));
            add(entry(1, 1, Content::Blank));
            behind.into_iter().for_each(|content| add(entry(1, 2, content)));
            let (settle, settled) = watch::channel(Settled { index: Some(0), ..Settled::default() });
            let mut delivery = Delivery::new(Arc::clone(&log), settled, 2);
            log.cut_after(Some(EntryId { leadership: Leadership { term: 1, node: 1 }, index: 0 }))
                .expect("nothing of it is settled");
            add(entry(2, 1, requests(&["c"])));
            add(entry(2, 2, requests(&["d"])));
            settle.send_modify(|settled| settled.index = Some(2));
            for (position, name) in [(3, "c"), (4, "d")] {
                let request = Bytes::from_static(name.as_bytes());
                let next = delivery.next().await.expect("it is settled");
                assert_eq!(next, Delivered::Request { position, request });
            }
            log.close().expect("it is written");
        }
    }
}
