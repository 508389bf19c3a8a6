//! A small cluster of its own, which knows nothing of the model: nodes with processors, a link, one
//! order, appliers that take one request after the other, clients that wait for each answer.
//!
//! A transaction draws keys, executes at its node if its protocol says so, goes over the link, gets
//! its place, and is delivered at all nodes. It is refused if a key was written by one that its
//! node had not shown when it began. Who is refused begins again. Every node has a monitor, and
//! reports what a session could know.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use cognate_env::SplitMix;

use super::*;

pub(super) const NODES: usize = 3;
const CLIENTS: usize = 8;
const PROCESSORS: usize = 4;
/// One way through the order, without queues.
const ORDER_US: f64 = 800.0;
/// The link, and what all have to do for a byte.
const LINK_BYTE_US: f64 = 0.002;
const CERTIFY_BYTE_US: f64 = 0.004;
const INSTALL_BYTE_US: f64 = 0.003;
const MESSAGE_US: f64 = 25.0;

/// A kind of transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) fit: bool,
    pub(super) execution_us: f64,
    pub(super) write_bytes: u64,
    pub(super) read_bytes: u64,
    /// Keys that one writes, and of how many.
    pub(super) keys: u64,
    pub(super) of: u64,
}

/// For a time, transactions of these kinds, with their shares.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub(super) for_us: f64,
    pub(super) loads: Vec<(u64, Load)>,
}

/// Who says how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Fixed(Protocol),
    /// The monitors; and whether they are told of conflicts that active transactions met, and of
    /// how busy appliers are.
    Auto {
        tells: bool,
    },
    /// The monitors, which are told everything, and so are clients whom a conflict refuses.
    Told,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// In each phase.
    pub(super) committed: Vec<u64>,
    pub(super) refused: Vec<u64>,
    /// Of the first node's monitor, at the end of each phase.
    pub(super) rows: Vec<Vec<ChoiceRow>>,
}

impl Outcome {
    pub(super) fn total(&self) -> u64 {
        self.committed.iter().sum()
    }

    /// Share of attempts.
    pub(super) fn refused(&self) -> f64 {
        let refused: u64 = self.refused.iter().sum();
        refused as f64 / (refused + self.total()).max(1) as f64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Begin,
    Propose,
    Answer,
}

struct Client {
    load: Option<Load>,
    keys: Vec<u64>,
    protocol: Protocol,
    /// From when on it is at risk.
    began: f64,
    execution: f64,
    report: Finished,
}

struct Simulator<'a> {
    random: SplitMix,
    policy: Policy,
    phases: &'a [Phase],
    clients: Vec<Client>,
    steps: BinaryHeap<Reverse<(u64, usize, Step)>>,
    monitors: Vec<Monitor>,
    classes: HashMap<&'static str, Class>,
    /// When each processor, the link, the order and each applier are free.
    processors: [[f64; PROCESSORS]; NODES],
    link: f64,
    order: f64,
    appliers: [f64; NODES],
    /// What each applier has worked, and had when its monitor was told last, and when.
    worked: [f64; NODES],
    told: [(f64, f64); NODES],
    /// Nothing is shown before.
    floor: [f64; NODES],
    written: HashMap<u64, [f64; NODES]>,
    outcome: Outcome,
}

/// Lets a cluster live through the phases.
pub(super) fn run(policy: Policy, phases: &[Phase], seed: u64) -> Outcome {
    let client = || Client {
        load: None,
        keys: Vec::new(),
        protocol: Protocol::Certification,
        began: 0.0,
        execution: 0.0,
        report: Finished::default(),
    };
    let mut simulator = Simulator {
        random: SplitMix::new(seed),
        policy,
        phases,
        clients: (0..NODES * CLIENTS).map(|_| client()).collect(),
        steps: BinaryHeap::new(),
        monitors: (0..NODES).map(|_| Monitor::new()).collect(),
        classes: HashMap::new(),
        processors: [[0.0; PROCESSORS]; NODES],
        link: 0.0,
        order: 0.0,
        appliers: [0.0; NODES],
        worked: [0.0; NODES],
        told: [(0.0, 0.0); NODES],
        floor: [0.0; NODES],
        written: HashMap::new(),
        outcome: Outcome::default(),
    };
    simulator.run();
    simulator.outcome
}

impl Simulator<'_> {
    fn run(&mut self) {
        for monitor in &self.monitors {
            monitor.tell(Surroundings { nodes: NODES as u32, applier_busy: None });
        }
        for client in 0..self.clients.len() {
            let at = self.random.below(1000) as f64;
            self.step(at, client, Step::Begin);
        }
        let phases = self.phases;
        let mut ends = 0.0;
        for phase in phases {
            ends += phase.for_us;
            self.outcome.committed.push(0);
            self.outcome.refused.push(0);
            while self.steps.peek().is_some_and(|Reverse((at, ..))| (*at as f64) < ends) {
                let Some(Reverse((at, client, step))) = self.steps.pop() else { break };
                match step {
                    Step::Begin => self.begin(at as f64, client, phase),
                    Step::Propose => self.propose(at as f64, client),
                    Step::Answer => self.answer(at as f64, client),
                }
            }
            self.outcome.rows.push(self.monitors[0].rows());
        }
    }

    fn step(&mut self, at: f64, client: usize, step: Step) {
        self.steps.push(Reverse((at.ceil() as u64, client, step)));
    }

    /// About this much.
    fn about(&mut self, value: f64) -> f64 {
        value * (0.6 + 0.8 * self.random.below(1_000_000) as f64 / 1e6)
    }

    fn begin(&mut self, now: f64, client: usize, phase: &Phase) {
        let load = match self.clients[client].load {
            Some(load) => load,
            None => {
                let all = phase.loads.iter().map(|(share, _)| share).sum();
                let mut drawn = self.random.below(all);
                let found = phase.loads.iter().find(|(share, _)| {
                    let is_it = drawn < *share;
                    drawn = drawn.saturating_sub(*share);
                    is_it
                });
                let load = found.expect("the shares are those of all").1;
                let random = &mut self.random;
                self.clients[client].keys = (0..load.keys).map(|_| random.below(load.of)).collect();
                load
            }
        };
        let class = self.classes.entry(load.name).or_insert_with(|| class(&[load.name]));
        let wanted = match self.policy {
            Policy::Fixed(protocol) => protocol,
            Policy::Told if load.fit => self.monitors[client % NODES].choose_told(class, now as i64),
            Policy::Auto { .. } | Policy::Told => {
                self.monitors[client % NODES].choose(class, load.fit, now as i64)
            }
        };
        let protocol = if wanted == Protocol::Active && !load.fit { Protocol::Certification } else { wanted };
        let report = Finished {
            class: class.id(),
            protocol,
            fit_for_active: load.fit,
            told_if_refused: self.policy == Policy::Told,
            write_bytes: load.write_bytes,
            read_bytes: load.read_bytes,
            round_trips: 1,
            ..Finished::default()
        };
        let execution = self.about(load.execution_us);
        let (mut began, mut proposed) = (now, now);
        if protocol != Protocol::Active {
            let free = self.processors[client % NODES].iter_mut().min_by(|one, other| one.total_cmp(other));
            let free = free.expect("a node has processors");
            began = free.max(now);
            *free = began + execution;
            proposed = *free;
        }
        let state = &mut self.clients[client];
        *state = Client {
            load: Some(load),
            keys: std::mem::take(&mut state.keys),
            protocol,
            began,
            execution,
            report,
        };
        state.report.execution_us = execution as u64;
        self.step(proposed, client, Step::Propose);
    }

    /// The keys are as they were for who began then.
    fn has_conflict(&self, client: usize) -> bool {
        let state = &self.clients[client];
        let newer = |key| self.written.get(key).is_some_and(|shown| shown[client % NODES] > state.began);
        state.keys.iter().any(newer)
    }

    fn propose(&mut self, now: f64, client: usize) {
        let origin = client % NODES;
        let (protocol, execution) = (self.clients[client].protocol, self.clients[client].execution);
        let report = self.clients[client].report;
        let (write, read) = (report.write_bytes as f64, report.read_bytes as f64);
        let sent = match protocol {
            Protocol::Certification => write + read,
            Protocol::WeakVoting => write,
            Protocol::Active => 200.0,
        };
        self.link = self.link.max(now) + LINK_BYTE_US * sent;
        self.order = self.order.max(self.link + self.about(ORDER_US));
        let conflict = self.has_conflict(client);
        let committed = !conflict || protocol == Protocol::Active;
        let installed = if committed { INSTALL_BYTE_US * write } else { 0.0 };
        let work = installed
            + match protocol {
                Protocol::Certification => MESSAGE_US + CERTIFY_BYTE_US * read,
                Protocol::WeakVoting => 2.0 * MESSAGE_US,
                Protocol::Active => MESSAGE_US + execution,
            };
        let delivered = self.order.max(self.appliers[origin]);
        self.worked.iter_mut().for_each(|worked| *worked += work);
        for applier in &mut self.appliers {
            *applier = applier.max(self.order) + work;
        }
        let applied = self.appliers[origin];
        let voted = match protocol {
            Protocol::WeakVoting if committed => applied + self.about(ORDER_US),
            _ => 0.0,
        };
        let mut shown = [0.0; NODES];
        for (node, floor) in self.floor.iter_mut().enumerate() {
            *floor = floor.max(self.appliers[node].max(voted));
            shown[node] = *floor;
        }
        let answered = if committed { shown[origin] } else { applied };
        if committed {
            for key in std::mem::take(&mut self.clients[client].keys) {
                self.written.insert(key, shown);
            }
        }
        let report = &mut self.clients[client].report;
        report.committed = committed;
        report.conflict = match (protocol, self.policy) {
            (Protocol::Active, Policy::Auto { tells: false }) => None,
            _ => Some(conflict),
        };
        let verdict = if protocol == Protocol::Active { delivered } else { applied };
        report.order_us = (verdict - now).ceil() as u64;
        report.vote_us = if voted > 0.0 { (answered - applied).ceil() as u64 } else { 0 };
        self.step(answered, client, Step::Answer);
    }

    /// Ten times a second.
    fn tell(&mut self, now: f64, node: usize) {
        let (at, worked) = self.told[node];
        if now - at >= 100_000.0 {
            let busy = (self.worked[node] - worked) / (now - at);
            self.monitors[node].tell(Surroundings { nodes: NODES as u32, applier_busy: Some(busy) });
            self.told[node] = (now, self.worked[node]);
        }
    }

    fn answer(&mut self, now: f64, client: usize) {
        let report = self.clients[client].report;
        let tells = match self.policy {
            Policy::Fixed(_) => None,
            Policy::Auto { tells } => Some(tells),
            Policy::Told => Some(true),
        };
        if let Some(tells) = tells {
            if tells {
                self.tell(now, client % NODES);
            }
            self.monitors[client % NODES].finished(&report, now as i64);
        }
        let outcome = &mut self.outcome;
        let count = if report.committed { &mut outcome.committed } else { &mut outcome.refused };
        if let Some(count) = count.last_mut() {
            *count += 1;
        }
        if report.committed {
            self.clients[client].load = None;
        }
        self.step(now, client, Step::Begin);
    }
}
