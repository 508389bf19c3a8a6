//! The automata of an expression: of the whole, of its look-arounds, and of the pieces that a match
//! is divided among. The last are made when they are needed, and forgotten together once they, or
//! what they have learnt, are too much.

use std::collections::HashMap;
use std::rc::Rc;

use super::Failure;
use super::dfa::Dfa;
use super::nfa::{Alphabet, Direction, Looks, MAX_ALL_STATES, Nfa};
use super::parse::{Expression, Piece};

/// What automata of pieces may have learnt together, as [`Dfa::learnt`] counts it; so many of them
/// are kept. Each may learn a quarter of it, and a division of hundreds of pieces uses hundreds.
pub(super) const MAX_LEARNT: usize = 1 << 20;

/// The automata of an expression; those of its pieces are made when they are needed.
#[derive(Debug)]
pub(super) struct Automata {
    pub(super) anywhere: Option<Dfa>,
    pub(super) whole: Option<Dfa>,
    /// By expression and direction.
    pieces: HashMap<(usize, Direction), Option<Dfa>>,
    pub(super) looks: Looks,
    pub(super) look_automata: Vec<Option<Dfa>>,
    /// States of all but the pieces' automata, and of those of pieces that were made since they
    /// were forgotten.
    states: usize,
    piece_states: usize,
    /// What the kept automata of pieces have learnt.
    learnt: usize,
}

impl Automata {
    pub(super) fn new(tree: &Piece, alphabet: &Alphabet) -> Result<Automata, Failure> {
        let _ = alphabet;
        let mut looks = Looks::new();
        let mut make = |anywhere| {
            let nfa = Nfa::new(&tree.expression, Direction::Forward, anywhere, &mut looks)?;
            Dfa::new(nfa, Direction::Forward).map(Some)
        };
        let (anywhere, whole) = (make(true)?, make(false)?);
        let states: usize = anywhere.iter().chain(&whole).map(Dfa::states).sum();
        let mut automata = Automata {
            anywhere,
            whole,
            pieces: HashMap::new(),
            looks,
            look_automata: Vec::new(),
            states,
            piece_states: 0,
            learnt: 0,
        };
        // A look-around may have others in it.
        while automata.look_automata.len() < automata.looks.len() {
            let (inner, ahead) = automata.looks[automata.look_automata.len()].clone();
            let direction = if ahead { Direction::Backward } else { Direction::Forward };
            let nfa = Nfa::new(&inner, direction, true, &mut automata.looks)?;
            automata.states += nfa.states.len();
            if automata.states > MAX_ALL_STATES {
                return Err(Failure::TOO_COMPLEX);
            }
            automata.look_automata.push(Some(Dfa::new(nfa, direction)?));
        }
        Ok(automata)
    }

    /// States of the automata that are there from the beginning.
    pub(super) fn states(&self) -> usize {
        self.states
    }

    /// The automaton of an expression, and how many states were made for it.
    pub(super) fn take(
        &mut self,
        expression: &Rc<Expression>,
        direction: Direction,
    ) -> Result<(Dfa, usize), Failure> {
        let key = (Rc::as_ptr(expression) as usize, direction);
        if let Some(dfa) = self.pieces.get_mut(&key).and_then(Option::take) {
            self.learnt -= dfa.learnt();
            return Ok((dfa, 0));
        }
        if self.piece_states > MAX_ALL_STATES {
            self.forget_pieces();
        }
        // Its look-arounds are among those of the whole.
        let nfa = Nfa::new(expression, direction, false, &mut self.looks)?;
        let made = nfa.states.len();
        self.piece_states += made;
        Ok((Dfa::new(nfa, direction)?, made))
    }

    fn forget_pieces(&mut self) {
        self.pieces.clear();
        (self.piece_states, self.learnt) = (0, 0);
    }

    /// States of the pieces' automata that are kept.
    #[cfg(test)]
    pub(super) fn kept_states(&self) -> usize {
        self.pieces.values().flatten().map(Dfa::states).sum()
    }

    /// What the pieces' automata that are kept have learnt.
    #[cfg(test)]
    pub(super) fn kept_learnt(&self) -> usize {
        self.pieces.values().flatten().map(Dfa::learnt).sum()
    }

    /// Keeps an automaton of [`Automata::take`] for the next time.
    pub(super) fn give_back(&mut self, expression: &Rc<Expression>, direction: Direction, dfa: Dfa) {
        self.learnt += dfa.learnt();
        if self.learnt > MAX_LEARNT {
            self.forget_pieces();
            return;
        }
        self.pieces.insert((Rc::as_ptr(expression) as usize, direction), Some(dfa));
    }
}
