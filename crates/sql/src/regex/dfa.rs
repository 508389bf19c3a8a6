//! Automata made deterministic while they run.
//!
//! A *kernel* is the set of states that are reached by reading characters. Which states follow
//! without reading depends on the answers to the automaton's questions at that place: kernel and
//! answers give a *node*, the states that can read on. Both are remembered, up to a bound; beyond
//! it everything is forgotten and learnt anew.

use std::collections::HashMap;
use std::rc::Rc;

use super::Failure;
use super::nfa::{Alphabet, Direction, Nfa, Question, State};
use crate::error::SqlError;

/// Transitions that are remembered.
const MAX_TRANSITIONS: usize = 1 << 15;
/// States in all remembered sets together.
const MAX_MEMBERS: usize = 1 << 18;
/// Most questions of one automaton: their answers are bits.
const MAX_QUESTIONS: usize = 64;

const UNKNOWN: u32 = u32::MAX;

/// Steps, more or less, between two questions whether to stop.
const STEPS_BETWEEN_CHECKS: u32 = 1 << 14;

/// Answers questions about places in a text, and counts the work done on it.
pub(super) trait Place {
    /// The answers at a place, a bit each.
    fn answers(&self, questions: &[Question], at: usize) -> Result<u64, SqlError>;
    /// Counts work; fails if the search should stop.
    fn spend(&self, steps: u32) -> Result<(), SqlError>;
}

#[derive(Debug)]
struct Node {
    /// States that read.
    readers: Rc<[u32]>,
    accepts: bool,
}

/// A deterministic automaton under construction.
#[derive(Debug)]
pub(super) struct Dfa {
    nfa: Nfa,
    direction: Direction,
    kernels: Vec<Rc<[u32]>>,
    kernel_numbers: HashMap<Rc<[u32]>, u32>,
    nodes: Vec<Node>,
    node_numbers: HashMap<(u32, u64), u32>,
    /// By kernel, the node where no question is answered with yes.
    plain_nodes: Vec<u32>,
    /// For each node and color the kernel that follows.
    next: Vec<u32>,
    members: usize,
    /// Marks of the states visited, by round.
    visited: Vec<u32>,
    round: u32,
}

/// What the caller of a run does at a place where the automaton accepts, or where nothing but its
/// beginning is left.
pub(super) enum Seen {
    Accept(usize),
    Fresh(usize),
}

impl Dfa {
    pub(super) fn new(nfa: Nfa, direction: Direction) -> Result<Dfa, Failure> {
        if nfa.questions.len() > MAX_QUESTIONS {
            return Err(Failure::TOO_COMPLEX);
        }
        let visited = vec![0; nfa.states.len()];
        let mut dfa = Dfa {
            nfa,
            direction,
            kernels: Vec::new(),
            kernel_numbers: HashMap::new(),
            nodes: Vec::new(),
            node_numbers: HashMap::new(),
            plain_nodes: Vec::new(),
            next: Vec::new(),
            members: 0,
            visited,
            round: 0,
        };
        dfa.forget();
        Ok(dfa)
    }

    /// States of the automaton that it is made of.
    pub(super) fn states(&self) -> usize {
        self.nfa.states.len()
    }

    /// What it has learnt by now: states in remembered sets, and transitions.
    pub(super) fn learnt(&self) -> usize {
        self.members + self.next.len()
    }

    /// Forgets what it has learnt. The first kernel is the beginning.
    fn forget(&mut self) {
        self.kernels.clear();
        self.kernel_numbers.clear();
        self.nodes.clear();
        self.node_numbers.clear();
        self.plain_nodes.clear();
        self.next.clear();
        self.members = 0;
        let start = self.nfa.start;
        self.kernel(vec![start]);
    }

    fn kernel(&mut self, states: Vec<u32>) -> u32 {
        if let Some(known) = self.kernel_numbers.get(states.as_slice()) {
            return *known;
        }
        let states: Rc<[u32]> = states.into();
        self.members += states.len();
        let number = self.kernels.len() as u32;
        self.kernels.push(states.clone());
        self.plain_nodes.push(UNKNOWN);
        self.kernel_numbers.insert(states, number);
        number
    }

    /// The node of a kernel at a place with these answers.
    #[inline]
    fn node(&mut self, kernel: u32, answers: u64, colors: usize) -> u32 {
        if answers == 0 {
            let known = self.plain_nodes[kernel as usize];
            if known != UNKNOWN {
                return known;
            }
        } else if let Some(known) = self.node_numbers.get(&(kernel, answers)) {
            return *known;
        }
        self.make_node(kernel, answers, colors)
    }

    #[cold]
    fn make_node(&mut self, kernel: u32, answers: u64, colors: usize) -> u32 {
        self.round += 1;
        let mut readers = Vec::new();
        let mut accepts = false;
        let mut left: Vec<u32> = self.kernels[kernel as usize].to_vec();
        while let Some(state) = left.pop() {
            if std::mem::replace(&mut self.visited[state as usize], self.round) == self.round {
                continue;
            }
            match &self.nfa.states[state as usize] {
                State::Read(..) => readers.push(state),
                State::Split(targets) => left.extend_from_slice(targets),
                State::Ask(question, target) if answers >> question & 1 == 1 => left.push(*target),
                State::Ask(..) => {}
                State::Accept => accepts = true,
            }
        }
        readers.sort_unstable();
        self.members += readers.len();
        let number = self.nodes.len() as u32;
        self.nodes.push(Node { readers: readers.into(), accepts });
        self.next.resize(self.next.len() + colors, UNKNOWN);
        if answers == 0 {
            self.plain_nodes[kernel as usize] = number;
        } else {
            self.node_numbers.insert((kernel, answers), number);
        }
        number
    }

    /// The kernel after a node has read a character of a color.
    #[cold]
    fn learn(
        &mut self,
        node: u32,
        color: u16,
        alphabet: &Alphabet,
        place: &dyn Place,
    ) -> Result<u32, SqlError> {
        let readers = self.nodes[node as usize].readers.clone();
        place.spend(readers.len() as u32 + 8)?;
        let mut states: Vec<u32> = Vec::new();
        for state in readers.iter() {
            if let State::Read(set, target) = self.nfa.states[*state as usize]
                && alphabet.colors.has(set, color)
            {
                states.push(target);
            }
        }
        states.sort_unstable();
        states.dedup();
        if self.next.len() > MAX_TRANSITIONS.max(alphabet.colors.count * 4) || self.members > MAX_MEMBERS {
            self.forget();
            return Ok(self.kernel(states));
        }
        let kernel = self.kernel(states);
        self.next[node as usize * alphabet.colors.count + usize::from(color)] = kernel;
        Ok(kernel)
    }

    /// Runs from a place to another (or the start of the text, backwards); tells the visitor what
    /// it sees until that says enough.
    pub(super) fn run(
        &mut self,
        alphabet: &Alphabet,
        text: &str,
        from: usize,
        to: usize,
        place: &dyn Place,
        mut visit: impl FnMut(Seen) -> bool,
    ) -> Result<(), SqlError> {
        let colors = alphabet.colors.count;
        let asks = !self.nfa.questions.is_empty();
        let mut at = from;
        let mut kernel = 0;
        let mut steps = 0;
        loop {
            if kernel == 0 && visit(Seen::Fresh(at)) {
                break;
            }
            let answers = if asks { place.answers(&self.nfa.questions, at)? } else { 0 };
            let node = self.node(kernel, answers, colors);
            if self.nodes[node as usize].accepts && visit(Seen::Accept(at)) {
                break;
            }
            if at == to || self.nodes[node as usize].readers.is_empty() {
                break;
            }
            let Some(c) = character(text, at, self.direction) else { break };
            match self.direction {
                Direction::Forward => at += c.len_utf8(),
                Direction::Backward => at -= c.len_utf8(),
            }
            let color = alphabet.colors.of(c);
            kernel = self.next[node as usize * colors + usize::from(color)];
            if kernel == UNKNOWN {
                kernel = self.learn(node, color, alphabet, place)?;
            }
            steps += 1;
            if steps == STEPS_BETWEEN_CHECKS {
                place.spend(steps)?;
                steps = 0;
            }
        }
        place.spend(steps)
    }
}

/// The character after (or, backwards, before) a place.
#[inline]
fn character(text: &str, at: usize, direction: Direction) -> Option<char> {
    match direction {
        Direction::Forward => match text.as_bytes().get(at) {
            Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
            _ => text[at..].chars().next(),
        },
        Direction::Backward => match at.checked_sub(1).map(|before| text.as_bytes()[before]) {
            Some(byte) if byte.is_ascii() => Some(char::from(byte)),
            _ => text[..at].chars().next_back(),
        },
    }
}
