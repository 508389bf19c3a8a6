//! Whether an abort was needed: the victim is put back as if it had committed next.
//!
//! A transaction that commits last has no `wr` or `ww` edge that leaves it, since nobody has read
//! or replaced what it wrote. Only `rw` edges leave it: to those that replaced what it read. So a
//! search along the edges of those that had committed by then, from these to anything that precedes
//! the victim, decides.
//!
//! *By then* is known exactly when statements ran one after the other. In a concurrent run a commit
//! that was asked for before the victim's abort was answered may have come before it or after. Such
//! a commit counts for the abort: an abort is called needless only if no cycle closes even with all
//! of them, and *undecided* if one closes only with some of them. A commit whose writes the victim
//! read is not in flight any more.
//!
//! Where real time counts, who had ended when the victim began precedes it, too. A server may take
//! an end for earlier and a beginning for later than clients see: up to where the one was asked for
//! and the first snapshot of the other was taken. That counts for the abort in the same way. A
//! snapshot that moved afterwards excuses nothing.
//!
//! *First updater wins.* Such an abort was needed if something that the victim had read has changed
//! since: then no later snapshot shows all of it. If nothing had, the victim could have gone on as
//! if it had begun after whoever was faster. What the statement that failed has read does not
//! matter; it is not told to anybody.

use std::collections::{HashMap, HashSet};

use super::graph::{Clock, Graph, Reader, neighbours, sights};
use super::history::{Event, History, Predicate, Transaction};
use super::verdict::Violation;
use super::versions::Versions;

/// What an abort by the certifier was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Judgement {
    /// A cycle would have closed.
    Justified,
    /// A cycle would have closed if some commit then in flight came first.
    Undecided,
    /// No cycle would have closed.
    Needless,
}

/// Who comes before whom, for judging aborts.
#[derive(Debug)]
pub struct Orders {
    /// Edges that there are.
    pub surely: Graph,
    /// Edges that there may be.
    pub maybe: Graph,
    /// Whether statements ran one after the other, so that an answer is later than all that was
    /// answered before it.
    exact: bool,
}

impl Orders {
    /// By dependencies alone.
    pub fn serial(graph: &Graph, history: &History) -> Orders {
        Orders { surely: graph.clone(), maybe: graph.clone(), exact: is_exact(history) }
    }

    /// By real time as well: by numbers, if they are known of all.
    pub fn strict(graph: &Graph, history: &History) -> Orders {
        let exact = is_exact(history);
        let (surely, maybe) = match exact {
            true => (Clock::Numbers, Clock::Numbers),
            false => (Clock::Answers, Clock::Requests),
        };
        Orders { surely: graph.in_time(history, surely), maybe: graph.in_time(history, maybe), exact }
    }
}

/// Commit numbers are known where statements ran one after the other.
fn is_exact(history: &History) -> bool {
    let is_known = |t: &Transaction| !t.committed() || t.net_writes().is_empty() || t.commit.is_some();
    history.transactions.iter().all(is_known)
}

/// Finds the committed readers that a write concerns.
#[derive(Debug, Default)]
pub struct Readers {
    points: HashMap<(u32, usize, i64), Vec<Reader>>,
    ranges: HashMap<(u32, usize), Vec<Reader>>,
}

impl Readers {
    /// All ranges that the committed transactions read.
    pub fn new(history: &History) -> Readers {
        let mut readers = Readers::default();
        for (place, transaction) in history.transactions.iter().enumerate() {
            if !transaction.committed() {
                continue;
            }
            for event in &transaction.events {
                let (predicate, existence) = match event {
                    Event::Scan(scan) => (scan.predicate, false),
                    Event::Exists(exists) => (exists.predicate, !exists.as_it_is),
                    Event::Met(_) | Event::Write(_) | Event::TakenBack(_) => continue,
                };
                let Predicate { table, column, low, high } = predicate;
                let reader = Reader { place, predicate, existence };
                match low == high {
                    true => readers.points.entry((table, column, low)).or_default().push(reader),
                    false => readers.ranges.entry((table, column)).or_default().push(reader),
                }
            }
        }
        readers
    }

    /// Those whose range holds a row with these values.
    fn of<'a>(&'a self, table: u32, row: &'a [i64]) -> impl Iterator<Item = &'a Reader> + 'a {
        row.iter().enumerate().flat_map(move |(column, &value)| {
            let points = self.points.get(&(table, column, value)).into_iter().flatten();
            let ranges = self.ranges.get(&(table, column)).into_iter().flatten();
            let held =
                move |reader: &&Reader| (reader.predicate.low..=reader.predicate.high).contains(&value);
            points.chain(ranges.filter(held))
        })
    }
}

/// Judges one transaction that was aborted by the certifier.
pub fn judge(
    victim: usize,
    history: &History,
    versions: &Versions,
    orders: &Orders,
    readers: &Readers,
    violations: &mut Vec<Violation>,
) -> Judgement {
    let transaction = &history.transactions[victim];
    let mut after = HashSet::new();
    let mut before = HashSet::new();
    for (predicate, sights) in sights(transaction, versions, violations) {
        for sight in sights {
            let (wr, rw) = neighbours(&predicate, sight, versions);
            before.extend(wr);
            after.extend(rw);
        }
    }
    let maybe = |place: usize| history.transactions[place].asked < transaction.answered;
    let known = known_by(transaction, orders);
    // Whose writes the victim read had committed, even if that was while its last statement waited.
    let surely = |place: usize| before.contains(&place) || history.transactions[place].answered < known;
    let closes = |graph: &Graph, had: &dyn Fn(usize) -> bool| {
        let mut before = before.clone();
        before.extend(preceding_writes(transaction, versions, readers, had));
        before.extend(met(transaction, versions, had));
        before.extend(graph.moment_before(transaction));
        reaches(graph, after.iter().copied().filter(|&place| had(place)), &before, had)
    };
    judgement(closes(&orders.maybe, &maybe), closes(&orders.surely, &surely))
}

fn judgement(maybe: bool, surely: bool) -> Judgement {
    match (maybe, surely) {
        (false, _) => Judgement::Needless,
        (true, true) => Judgement::Justified,
        (true, false) => Judgement::Undecided,
    }
}

/// Judges one transaction that was aborted because a row had changed since its snapshot: whether
/// anything that it had read has.
pub fn judge_conflict(
    victim: usize,
    history: &History,
    versions: &Versions,
    orders: &Orders,
    violations: &mut Vec<Violation>,
) -> Judgement {
    let transaction = &history.transactions[victim];
    let mut replaced_by = HashSet::new();
    for (predicate, sights) in sights(transaction, versions, violations) {
        replaced_by.extend(sights.into_iter().filter_map(|sight| neighbours(&predicate, sight, versions).1));
    }
    let had = |by: &dyn Fn(&Transaction) -> bool| {
        replaced_by.iter().any(|&place: &usize| by(&history.transactions[place]))
    };
    let maybe = had(&|other| other.asked < transaction.answered);
    let known = known_by(transaction, orders);
    let surely = had(&|other| other.answered < known);
    judgement(maybe, surely)
}

/// Whoever was answered before this had surely committed when the victim was judged. Its last
/// statement may have waited for whoever was faster: it is judged when it goes on.
fn known_by(victim: &Transaction, orders: &Orders) -> u64 {
    if orders.exact { victim.answered } else { victim.asked }
}

/// Who wrote the rows that the victim's last statement met.
fn met(victim: &Transaction, versions: &Versions, had: &dyn Fn(usize) -> bool) -> Vec<usize> {
    let mut writers = Vec::new();
    for event in &victim.events {
        let Event::Met(predicate) = event else { continue };
        for (_, chain) in versions.objects().filter(|(object, _)| object.table == predicate.table) {
            let last = chain.iter().rev().find(|version| version.writer.is_none_or(had));
            let is_there = last.is_some_and(|version| predicate.holds(version.row.as_ref()));
            writers.extend(last.filter(|_| is_there).and_then(|version| version.writer));
        }
    }
    writers
}

/// Who precedes the victim by its writes: the writers of what it replaces, and the readers of that
/// and of what it adds.
///
/// A reader of an older version precedes it too, by way of those that replaced that version.
fn preceding_writes(
    victim: &Transaction,
    versions: &Versions,
    readers: &Readers,
    had: &dyn Fn(usize) -> bool,
) -> Vec<usize> {
    let mut before = Vec::new();
    for write in victim.net_writes() {
        let chain = versions.chain(write.object);
        let last = chain.iter().rev().find(|version| version.writer.is_none_or(had));
        before.extend(last.and_then(|version| version.writer));
        let old = last.and_then(|version| version.row.as_ref());
        let new = write.row.as_ref();
        for row in [old, new].into_iter().flatten() {
            // Who knows only that a row is there does not mind another version that is there, too.
            let minds = |reader: &&Reader| {
                !reader.existence || reader.predicate.holds(old) && !reader.predicate.holds(new)
            };
            before.extend(readers.of(write.object.table, row).filter(minds).map(|reader| reader.place));
        }
    }
    before.retain(|&place| had(place));
    before
}

/// Whether a way leads from one of `starts` to one of `targets` over the transactions that had
/// committed.
fn reaches(
    graph: &Graph,
    starts: impl Iterator<Item = usize>,
    targets: &HashSet<usize>,
    had: &dyn Fn(usize) -> bool,
) -> bool {
    let mut stack: Vec<usize> = starts.collect();
    let mut known: HashSet<usize> = stack.iter().copied().collect();
    while let Some(node) = stack.pop() {
        if targets.contains(&node) {
            return true;
        }
        for edge in graph.from(node) {
            if (graph.is_moment(edge.to) || had(edge.to)) && known.insert(edge.to) {
                stack.push(edge.to);
            }
        }
    }
    false
}
