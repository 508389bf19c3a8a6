//! Automata as expressions build them: states with transitions by sets of characters, steps without
//! a character, and questions.

use std::rc::Rc;

use super::Failure;
use super::parse::{Constraint, Expression, LINE_END, WORD};
use super::set::{Colors, Set};
use crate::error::SqlError;

/// Most states of an automaton.
const MAX_STATES: usize = 100_000;
/// Most states of those of an expression and of its look-arounds together, and of those of its
/// pieces that are kept.
pub(super) const MAX_ALL_STATES: usize = 3 * MAX_STATES;

/// The characters as an expression distinguishes them.
#[derive(Debug)]
pub(super) struct Alphabet {
    pub(super) colors: Colors,
}

impl Alphabet {
    pub(super) fn new(sets: Vec<Set>) -> Result<Alphabet, SqlError> {
        Ok(Alphabet { colors: Colors::new(&sets)? })
    }

    pub(super) fn is_word(&self, c: char) -> bool {
        self.colors.has(WORD, self.colors.of(c))
    }

    pub(super) fn is_line_end(&self, c: char) -> bool {
        self.colors.has(LINE_END, self.colors.of(c))
    }
}

/// What can be done in a state.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Read a character of a set and go on there.
    Read(usize, u32),
    /// Go on at any of these.
    Split(Vec<u32>),
    /// Go on if the question of this number is answered with yes.
    Ask(usize, u32),
    /// Match.
    Accept,
}

/// A question of an automaton.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) constraint: Constraint,
    /// For a look-around: its place among all of the expression's.
    pub(super) look: usize,
}

/// An automaton; it starts in state `start`.
#[derive(Debug)]
pub(super) struct Nfa {
    pub(super) states: Vec<State>,
    pub(super) start: u32,
    pub(super) questions: Vec<Question>,
}

/// Which way an automaton reads the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// The look-arounds of an expression, by the address of their inner one.
pub(super) type Looks = Vec<(Rc<Expression>, bool)>;

struct Builder<'a> {
    states: Vec<State>,
    questions: Vec<Question>,
    direction: Direction,
    looks: &'a mut Looks,
    budget: usize,
}

impl Nfa {
    /// The automaton of an expression. If `anywhere`, it may start at any character from the one it
    /// is begun at.
    pub(super) fn new(
        expression: &Expression,
        direction: Direction,
        anywhere: bool,
        looks: &mut Looks,
    ) -> Result<Nfa, Failure> {
        let mut builder = Builder {
            states: vec![State::Accept],
            questions: Vec::new(),
            direction,
            looks,
            budget: MAX_STATES,
        };
        let mut start = builder.build(expression, 0)?;
        if anywhere {
            let again = builder.push(State::Split(Vec::new()))?;
            let read = builder.push(State::Read(super::parse::ANY, again))?;
            builder.states[again as usize] = State::Split(vec![start, read]);
            start = again;
        }
        Ok(Nfa { states: builder.states, start, questions: builder.questions })
    }
}

impl Builder<'_> {
    fn push(&mut self, state: State) -> Result<u32, Failure> {
        if self.states.len() >= self.budget {
            return Err(Failure::TOO_COMPLEX);
        }
        self.states.push(state);
        Ok(self.states.len() as u32 - 1)
    }

    /// The state where to begin so that matching the expression leads to `next`.
    fn build(&mut self, expression: &Expression, next: u32) -> Result<u32, Failure> {
        Ok(match expression {
            Expression::Empty => next,
            Expression::Set(set) => self.push(State::Read(*set, next))?,
            Expression::Constraint(constraint) => {
                let question = self.question(constraint);
                self.push(State::Ask(question, next))?
            }
            Expression::Sequence(parts) => {
                let mut next = next;
                if self.direction == Direction::Forward {
                    for part in parts.iter().rev() {
                        next = self.build(part, next)?;
                    }
                } else {
                    for part in parts {
                        next = self.build(part, next)?;
                    }
                }
                next
            }
            Expression::Choice(parts) => {
                let starts = parts.iter().map(|part| self.build(part, next));
                let starts = starts.collect::<Result<Vec<u32>, Failure>>()?;
                self.push(State::Split(starts))?
            }
            Expression::Repeat(part, least, most) => self.repeat(part, *least, *most, next)?,
        })
    }

    fn repeat(&mut self, part: &Expression, least: u16, most: Option<u16>, end: u32) -> Result<u32, Failure> {
        let mut next = end;
        match most {
            None => {
                let again = self.push(State::Split(Vec::new()))?;
                let body = self.build(part, again)?;
                self.states[again as usize] = State::Split(vec![body, end]);
                next = again;
            }
            Some(most) => {
                for _ in least..most {
                    let body = self.build(part, next)?;
                    next = self.push(State::Split(vec![body, end]))?;
                }
            }
        }
        for _ in 0..least {
            next = self.build(part, next)?;
        }
        Ok(next)
    }

    fn question(&mut self, constraint: &Constraint) -> usize {
        let look = match constraint {
            Constraint::Look { ahead, inner, .. } => {
                let known =
                    self.looks.iter().position(|(other, way)| Rc::ptr_eq(other, inner) && way == ahead);
                known.unwrap_or_else(|| {
                    self.looks.push((inner.clone(), *ahead));
                    self.looks.len() - 1
                })
            }
            _ => 0,
        };
        let same = |question: &Question| match (&question.constraint, constraint) {
            (
                Constraint::Look { inner, negated, ahead },
                Constraint::Look { inner: other, negated: n, ahead: a },
            ) => Rc::ptr_eq(inner, other) && negated == n && ahead == a,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        };
        if let Some(known) = self.questions.iter().position(same) {
            return known;
        }
        self.questions.push(Question { constraint: constraint.clone(), look });
        self.questions.len() - 1
    }
}
