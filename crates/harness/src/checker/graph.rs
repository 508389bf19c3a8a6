//! The direct serialization graph of the committed transactions, and its shortest cycle.
//!
//! Nodes are places in the history's transactions; the load is none, since nothing comes before it.
//! Two transactions may be joined by several edges of one kind; one of each kind is kept, with the
//! row that made it.
//!
//! *Real time.* Whoever had ended before another one began comes before it in a strict order. That
//! would be nearly all pairs, so each end is a node of its own, a *moment*; moments follow one
//! another, and each leads to those that began between it and the next:
//!
//! ```text
//!   T1 ends     T2 ends          T3 ends         T1 → m1 → m2 → m3     T2 → m2    T3 → m3
//!        T4 begins    T5 begins                  m1 → T4    m2 → T5
//! ```

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use super::history::{Event, History, Object, Predicate, Transaction, standing};
use super::verdict::Violation;
use super::versions::{Sight, Told, Versions};

/// The three dependencies, and real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The second read what the first wrote.
    Wr,
    /// The second overwrote what the first wrote.
    Ww,
    /// The second overwrote what the first read, or entered a range that the first read.
    Rw,
    /// The first had ended when the second began.
    RealTime,
}

/// A dependency: the first transaction comes before the second in every equivalent serial order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The first, as a place in the history.
    pub from: usize,
    /// The second.
    pub to: usize,
    /// Which dependency.
    pub kind: Kind,
    /// The row that made it; real time needs none.
    pub object: Option<Object>,
    /// Whether the row had not been returned (`Rw`, `Wr` by a predicate).
    pub phantom: bool,
}

/// A cycle, for people, from its lowest number on: `T3 -rw(table 0 key 7)→ T5 -wr(…)→ T3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Edge by edge; each begins where the one before ended.
    pub edges: Vec<Edge>,
    /// The numbers of the transactions that the edges begin at.
    pub ids: Vec<u64>,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (edge, id) in self.edges.iter().zip(&self.ids) {
            let kind = match edge.kind {
                Kind::Wr => "wr",
                Kind::Ww => "ww",
                Kind::Rw => "rw",
                Kind::RealTime => "real time",
            };
            let phantom = if edge.phantom { ", phantom" } else { "" };
            match edge.object {
                Some(Object { table, key }) => {
                    write!(f, "T{id} -{kind}(table {table} key {key}{phantom})→ ")?;
                }
                None => write!(f, "T{id} -{kind}→ ")?,
            }
        }
        write!(f, "T{}", self.ids.first().copied().unwrap_or(0))
    }
}

/// By what it is told whether one had ended when another began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// By what clients saw: an end was answered, a first statement was sent later.
    Answers,
    /// As early as an end, and as late as a beginning may have been: the end was asked for, and the
    /// first snapshot was known later.
    Requests,
    /// By commit numbers and first snapshots: one that moved later says what was seen, and not when
    /// its transaction began.
    Numbers,
}

impl Clock {
    /// When a committed transaction had ended; `None` if it does not matter when.
    fn end(self, transaction: &Transaction) -> Option<u64> {
        match self {
            Clock::Answers => Some(transaction.answered),
            Clock::Requests => Some(transaction.asked),
            // Who wrote nothing has none. Whom it comes after had ended before it had, so those who
            // began later follow them in any case.
            Clock::Numbers => transaction.commit,
        }
    }

    /// When a transaction began. Whose end is not later precedes it.
    fn begin(self, transaction: &Transaction) -> u64 {
        match self {
            Clock::Answers => transaction.began,
            Clock::Requests => transaction.placed,
            Clock::Numbers => transaction.first,
        }
    }
}

/// The graph. Nodes above the transactions are moments.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    edges: Vec<Vec<Edge>>,
    kinds: HashSet<(usize, usize, Kind)>,
    transactions: usize,
    clock: Option<Clock>,
    /// The ends of the moments, in their order.
    ends: Vec<u64>,
}

/// A committed reader's range, for finding those that a write would concern.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// The reader's place in the history.
    pub place: usize,
    /// What it read.
    pub predicate: Predicate,
    /// It knows only that a row is there.
    pub existence: bool,
}

/// A transaction's scans with what they saw, one after the other.
pub fn sights(
    transaction: &Transaction,
    versions: &Versions,
    violations: &mut Vec<Violation>,
) -> Vec<(Predicate, Vec<Sight>)> {
    let mut all = Vec::new();
    for (place, event) in transaction.events.iter().enumerate() {
        let own = || -> HashMap<_, _> {
            let writes = standing(&transaction.events[..place]);
            writes.into_iter().map(|write| (write.object, write.row.clone())).collect()
        };
        match event {
            Event::Scan(scan) => {
                all.push((scan.predicate, versions.sights(transaction.id, scan, &own(), violations)));
            }
            Event::Exists(exists) => {
                let sight = versions.existence(transaction.id, exists, &own(), violations);
                all.push((exists.predicate, sight.into_iter().collect()));
            }
            Event::Met(_) | Event::Write(_) | Event::TakenBack(_) => {}
        }
    }
    all
}

/// Who wrote what a scan depends on, and who wrote what it would have seen later: `(wr, rw)`.
pub fn neighbours(
    predicate: &Predicate,
    sight: Sight,
    versions: &Versions,
) -> (Option<usize>, Option<usize>) {
    let chain = versions.chain(sight.object);
    let holds = |place: usize| predicate.holds(chain[place].row.as_ref());
    let (before, after) = match sight.told {
        Told::Version => (Some(sight.place), Some(sight.place + 1)),
        // Who brought it into the range, who takes it out.
        Told::Existence => (
            (1..=sight.place).rev().find(|&place| holds(place) && !holds(place - 1)),
            (sight.place + 1..chain.len()).find(|&place| !holds(place)),
        ),
        Told::Absence => (
            (1..=sight.place).rev().find(|&place| !holds(place) && holds(place - 1)),
            (sight.place + 1..chain.len()).find(|&place| holds(place)),
        ),
    };
    let writer = |place: usize| chain.get(place).and_then(|version| version.writer);
    (before.and_then(writer), after.and_then(writer))
}

impl Graph {
    /// All dependencies among the committed.
    pub fn new(history: &History, versions: &Versions, violations: &mut Vec<Violation>) -> Graph {
        let transactions = history.transactions.len();
        let mut graph = Graph { edges: vec![Vec::new(); transactions], transactions, ..Graph::default() };
        for (object, chain) in versions.objects() {
            for pair in chain.windows(2) {
                graph.add(pair[0].writer, pair[1].writer, Kind::Ww, *object, false);
            }
        }
        for (place, transaction) in history.transactions.iter().enumerate() {
            if !transaction.committed() {
                continue;
            }
            for (predicate, sights) in sights(transaction, versions, violations) {
                for sight in sights {
                    let (before, after) = neighbours(&predicate, sight, versions);
                    let phantom = sight.told != Told::Version;
                    graph.add(before, Some(place), Kind::Wr, sight.object, phantom);
                    graph.add(Some(place), after, Kind::Rw, sight.object, phantom);
                }
            }
        }
        graph
    }

    fn add(&mut self, from: Option<usize>, to: Option<usize>, kind: Kind, object: Object, phantom: bool) {
        let (Some(from), Some(to)) = (from, to) else { return };
        if from != to && self.kinds.insert((from, to, kind)) {
            self.edges[from].push(Edge { from, to, kind, object: Some(object), phantom });
        }
    }

    /// The same with edges of real time among the committed.
    pub fn in_time(&self, history: &History, clock: Clock) -> Graph {
        let committed = || history.transactions.iter().enumerate().filter(|(_, t)| t.committed());
        let mut ends: Vec<(u64, usize)> =
            committed().filter_map(|(place, t)| Some((clock.end(t)?, place))).collect();
        ends.sort_unstable();
        let mut graph = Graph { clock: Some(clock), ..self.clone() };
        graph.ends = ends.iter().map(|(end, _)| *end).collect();
        graph.edges.resize_with(self.transactions + ends.len(), Vec::new);
        for (at, &(_, place)) in ends.iter().enumerate() {
            let moment = self.transactions + at;
            graph.follow(place, moment);
            if at + 1 < ends.len() {
                graph.follow(moment, moment + 1);
            }
        }
        for (place, transaction) in committed() {
            if let Some(moment) = graph.moment_before(transaction) {
                graph.follow(moment, place);
            }
        }
        graph
    }

    fn follow(&mut self, from: usize, to: usize) {
        self.edges[from].push(Edge { from, to, kind: Kind::RealTime, object: None, phantom: false });
    }

    /// The last moment before a transaction began: who leads there precedes it in real time.
    pub fn moment_before(&self, transaction: &Transaction) -> Option<usize> {
        let begin = self.clock?.begin(transaction);
        let passed = self.ends.partition_point(|end| *end <= begin);
        passed.checked_sub(1).map(|at| self.transactions + at)
    }

    /// Whether a node is no transaction.
    pub fn is_moment(&self, node: usize) -> bool {
        node >= self.transactions
    }

    /// A way from one transaction back to itself, without the moments on it.
    fn without_moments(&self, mut edges: Vec<Edge>) -> Vec<Edge> {
        let first = edges.iter().position(|edge| !self.is_moment(edge.from)).unwrap_or(0);
        edges.rotate_left(first);
        let (mut told, mut left) = (Vec::new(), None);
        for edge in edges {
            let from = left.take().unwrap_or(edge.from);
            match self.is_moment(edge.to) {
                true => left = Some(from),
                false => told.push(Edge { from, ..edge }),
            }
        }
        told
    }

    /// The edges that leave a node.
    pub fn from(&self, node: usize) -> &[Edge] {
        &self.edges[node]
    }

    /// Whether some edge of this kind leads from one to the other.
    pub fn has(&self, from: usize, to: usize, kind: Kind) -> bool {
        self.kinds.contains(&(from, to, kind))
    }

    /// A shortest cycle of the first strongly connected component that has one.
    pub fn cycle(&self, history: &History) -> Option<Cycle> {
        let component = self.component()?;
        let within: HashSet<usize> = component.iter().copied().collect();
        let mut shortest: Option<Vec<Edge>> = None;
        // Large components are cyclic all over: a few starts find a short cycle.
        for &start in component.iter().take(64) {
            if let Some(found) = self.round_trip(start, &within).map(|edges| self.without_moments(edges))
                && shortest.as_ref().is_none_or(|known| found.len() < known.len())
            {
                shortest = Some(found);
            }
        }
        shortest.map(|mut edges| {
            let id = |edge: &Edge| history.transactions[edge.from].id;
            let first = edges.iter().enumerate().min_by_key(|(_, edge)| id(edge)).map_or(0, |(at, _)| at);
            edges.rotate_left(first);
            let ids = edges.iter().map(id).collect();
            Cycle { edges, ids }
        })
    }

    /// A shortest way from a node back to itself.
    fn round_trip(&self, start: usize, within: &HashSet<usize>) -> Option<Vec<Edge>> {
        let mut came: HashMap<usize, Edge> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for edge in &self.edges[node] {
                if !within.contains(&edge.to) || came.contains_key(&edge.to) {
                    continue;
                }
                came.insert(edge.to, *edge);
                if edge.to == start {
                    let mut edges = vec![*edge];
                    while let Some(last) = edges.last().filter(|edge| edge.from != start) {
                        let before = came[&last.from];
                        edges.push(before);
                    }
                    edges.reverse();
                    return Some(edges);
                }
                queue.push_back(edge.to);
            }
        }
        None
    }

    /// Tarjan's algorithm without recursion: the first component of more than one node.
    fn component(&self) -> Option<Vec<usize>> {
        let nodes = self.edges.len();
        let mut search = Search {
            index: vec![usize::MAX; nodes],
            low: vec![0; nodes],
            on_stack: vec![false; nodes],
            stack: Vec::new(),
            count: 0,
        };
        for root in 0..nodes {
            if search.index[root] != usize::MAX {
                continue;
            }
            search.open(root);
            let mut path = vec![(root, 0)];
            while let Some((node, at)) = path.last_mut() {
                let node = *node;
                if let Some(edge) = self.edges[node].get(*at) {
                    *at += 1;
                    if search.index[edge.to] == usize::MAX {
                        search.open(edge.to);
                        path.push((edge.to, 0));
                    } else if search.on_stack[edge.to] {
                        search.low[node] = search.low[node].min(search.index[edge.to]);
                    }
                    continue;
                }
                path.pop();
                if let Some((parent, _)) = path.last() {
                    search.low[*parent] = search.low[*parent].min(search.low[node]);
                }
                if search.low[node] == search.index[node] {
                    let component = search.close(node);
                    if component.len() > 1 {
                        return Some(component);
                    }
                }
            }
        }
        None
    }
}

/// What Tarjan's algorithm keeps.
struct Search {
    index: Vec<usize>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    count: usize,
}

impl Search {
    fn open(&mut self, node: usize) {
        self.index[node] = self.count;
        self.low[node] = self.count;
        self.count += 1;
        self.on_stack[node] = true;
        self.stack.push(node);
    }

    fn close(&mut self, root: usize) -> Vec<usize> {
        let mut component = Vec::new();
        while let Some(node) = self.stack.pop() {
            self.on_stack[node] = false;
            component.push(node);
            if node == root {
                break;
            }
        }
        component
    }
}
