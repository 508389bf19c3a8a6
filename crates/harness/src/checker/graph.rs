//! The direct serialization graph of the committed transactions, and its shortest cycle.
//!
//! Nodes are places in the history's transactions; the load is none, since nothing comes before it.
//! Two transactions may be joined by several edges of one kind; one of each kind is kept, with the
//! row that made it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use super::history::{Event, History, Object, Predicate, Transaction, standing};
use super::verdict::Violation;
use super::versions::{Sight, Told, Versions};

/// The three dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The second read what the first wrote.
    Wr,
    /// The second overwrote what the first wrote.
    Ww,
    /// The second overwrote what the first read, or entered a range that the first read.
    Rw,
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
    /// The row that made it.
    pub object: Object,
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
            };
            let phantom = if edge.phantom { ", phantom" } else { "" };
            let Object { table, key } = edge.object;
            write!(f, "T{id} -{kind}(table {table} key {key}{phantom})→ ")?;
        }
        write!(f, "T{}", self.ids.first().copied().unwrap_or(0))
    }
}

/// The graph.
#[derive(Debug, Default)]
pub struct Graph {
    edges: Vec<Vec<Edge>>,
    kinds: HashSet<(usize, usize, Kind)>,
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
        let mut graph = Graph { edges: vec![Vec::new(); history.transactions.len()], kinds: HashSet::new() };
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
            self.edges[from].push(Edge { from, to, kind, object, phantom });
        }
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
            if let Some(found) = self.round_trip(start, &within)
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
