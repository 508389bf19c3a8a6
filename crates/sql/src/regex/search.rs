//! Where an expression matches, and how the match is divided among its parts.
//!
//! ```text
//! 1. The automaton that may begin anywhere finds the first place where any match ends, and where the text began to look like one.
//! 2. From each place between these, the automaton of the whole expression finds its longest (or shortest) match: the first place that has
//!    one is where the match begins.
//! 3. The match is divided down the tree. Between two pieces, a place divides where the first can end and the second can begin: the
//!    first is run forwards and the second backwards, and the last (or first) place that both reach is taken.
//! ```
//!
//! Only with back references a division can fail; then the next one is tried.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::dfa::{Place, Seen};
use super::nfa::{Direction, Question};
use super::parse::{Constraint, Division, Expression, Piece};
use super::places::Places;
use super::{Check, Failure, Regex, Span, lower};
use crate::error::SqlError;
use crate::types::bounds::check_size;

/// Steps between two questions whether to stop.
const PATIENCE: u32 = 1 << 16;

/// The searches of one text.
pub(super) struct Search<'a> {
    regex: &'a Regex,
    text: &'a str,
    check: Check<'a>,
    /// Where each look-around would match; found when first asked.
    looks: RefCell<Vec<Option<Rc<Places>>>>,
    spent: Cell<u32>,
}

impl Place for Search<'_> {
    fn answers(&self, questions: &[Question], at: usize) -> Result<u64, SqlError> {
        let alphabet = &self.regex.alphabet;
        let before = self.text[..at].chars().next_back();
        let after = self.text[at..].chars().next();
        let word = |c: Option<char>| c.is_some_and(|c| alphabet.is_word(c));
        let line_end = |c: Option<char>| c.is_none_or(|c| alphabet.is_line_end(c));
        let mut answers = 0;
        for (bit, question) in questions.iter().enumerate() {
            let yes = match &question.constraint {
                Constraint::TextStart => before.is_none(),
                Constraint::TextEnd => after.is_none(),
                Constraint::LineStart => line_end(before),
                Constraint::LineEnd => line_end(after),
                Constraint::WordStart => !word(before) && word(after),
                Constraint::WordEnd => word(before) && !word(after),
                Constraint::WordBoundary => word(before) != word(after),
                Constraint::NotWordBoundary => word(before) == word(after),
                Constraint::Look { negated, .. } => self.look(question.look)?.has(at) != *negated,
            };
            answers |= u64::from(yes) << bit;
        }
        Ok(answers)
    }

    fn spend(&self, steps: u32) -> Result<(), SqlError> {
        let spent = self.spent.get().saturating_add(steps);
        if spent < PATIENCE {
            self.spent.set(spent);
            return Ok(());
        }
        self.spent.set(0);
        (self.check)()
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(regex: &'a Regex, text: &'a str, check: Check<'a>) -> Search<'a> {
        let looks = RefCell::new(vec![None; regex.automata.borrow().looks.len()]);
        Search { regex, text, check, looks, spent: Cell::new(0) }
    }

    /// The places where a look-around's inside matches: one pass over all of the text.
    fn look(&self, number: usize) -> Result<Rc<Places>, SqlError> {
        if let Some(known) = &self.looks.borrow()[number] {
            return Ok(known.clone());
        }
        let missing = || SqlError::from(Failure::TOO_COMPLEX);
        let (ahead, dfa) = {
            let mut automata = self.regex.automata.borrow_mut();
            (automata.looks[number].1, automata.look_automata[number].take())
        };
        let mut dfa = dfa.ok_or_else(missing)?;
        let mut places = Places::from_base(0);
        let (from, to) = if ahead { (self.text.len(), 0) } else { (0, self.text.len()) };
        let ran = dfa.run(&self.regex.alphabet, self.text, from, to, self, |seen| {
            if let Seen::Accept(at) = seen {
                places.add(at);
            }
            false
        });
        self.regex.automata.borrow_mut().look_automata[number] = Some(dfa);
        ran?;
        let places = Rc::new(places);
        self.looks.borrow_mut()[number] = Some(places.clone());
        Ok(places)
    }

    /// Runs the automaton of an expression.
    fn run(
        &self,
        expression: &Rc<Expression>,
        direction: Direction,
        from: usize,
        to: usize,
        visit: impl FnMut(Seen) -> bool,
    ) -> Result<(), SqlError> {
        let (mut dfa, made) = self.regex.automata.borrow_mut().take(expression, direction)?;
        self.spend(made as u32)?;
        let ran = dfa.run(&self.regex.alphabet, self.text, from, to, self, visit);
        self.regex.automata.borrow_mut().give_back(expression, direction, dfa);
        ran
    }

    /// All places where a match of the piece that begins here can end, up to a limit.
    fn ends(&self, piece: &Piece, from: usize, limit: usize) -> Result<Places, SqlError> {
        let mut places = Places::from_base(from);
        self.run(&piece.expression, Direction::Forward, from, limit, |seen| {
            if let Seen::Accept(at) = seen {
                places.add(at);
            }
            false
        })?;
        Ok(places)
    }

    /// All places where a match of the expression that ends here can begin.
    fn starts(&self, expression: &Rc<Expression>, limit: usize, end: usize) -> Result<Places, SqlError> {
        let mut places = Places::from_base(limit);
        self.run(expression, Direction::Backward, end, limit, |seen| {
            if let Seen::Accept(at) = seen {
                places.add(at);
            }
            false
        })?;
        Ok(places)
    }

    fn matches_exactly(&self, piece: &Piece, from: usize, to: usize) -> Result<bool, SqlError> {
        let mut found = false;
        self.run(&piece.expression, Direction::Forward, from, to, |seen| {
            found |= matches!(seen, Seen::Accept(at) if at == to);
            false
        })?;
        Ok(found)
    }

    /// Where the first match from a place on ends at the earliest, and where it cannot begin
    /// before.
    fn first_end(&self, from: usize) -> Result<Option<Span>, SqlError> {
        let missing = || SqlError::from(Failure::TOO_COMPLEX);
        let mut dfa = self.regex.automata.borrow_mut().anywhere.take().ok_or_else(missing)?;
        let (mut open, mut close) = (from, None);
        let ran = dfa.run(&self.regex.alphabet, self.text, from, self.text.len(), self, |seen| match seen {
            Seen::Fresh(at) => {
                open = at;
                false
            }
            Seen::Accept(at) => {
                close = Some(at);
                true
            }
        });
        self.regex.automata.borrow_mut().anywhere = Some(dfa);
        ran?;
        Ok(close.map(|close| (open, close)))
    }

    pub(super) fn is_match(&mut self) -> Result<bool, SqlError> {
        if self.regex.has_back_references {
            return Ok(self.find(0, false)?.is_some());
        }
        Ok(self.first_end(0)?.is_some())
    }

    /// The first match from a place on.
    pub(super) fn find(&mut self, from: usize, wanted: bool) -> Result<Option<Vec<Option<Span>>>, SqlError> {
        let tree = self.regex.tree.clone();
        let mut from = from;
        while let Some((open, close)) = self.first_end(from)? {
            let mut begin = open;
            loop {
                if let Some(groups) = self.find_at(&tree, begin, wanted)? {
                    return Ok(Some(groups));
                }
                match self.after(begin).filter(|next| *next <= close) {
                    Some(next) => begin = next,
                    None => break,
                }
            }
            match self.after(close).filter(|next| *next < self.text.len()) {
                Some(next) => from = next,
                None => break,
            }
        }
        Ok(None)
    }

    fn after(&self, at: usize) -> Option<usize> {
        self.text[at..].chars().next().map(|c| at + c.len_utf8())
    }

    /// The match that begins here, if there is one.
    fn find_at(
        &self,
        tree: &Piece,
        begin: usize,
        wanted: bool,
    ) -> Result<Option<Vec<Option<Span>>>, SqlError> {
        let mut groups = vec![None; self.regex.groups + 1];
        let shorter = tree.prefers_shorter();
        if self.regex.has_back_references {
            let ends = self.ends(tree, begin, self.text.len())?;
            let mut end = if shorter { ends.from(begin) } else { ends.before(self.text.len() + 1) };
            while let Some(at) = end {
                if self.divide(tree, begin, at, &mut groups)? {
                    groups[0] = Some((begin, at));
                    return Ok(Some(groups));
                }
                groups.fill(None);
                end = if shorter { ends.from(at + 1) } else { ends.before(at) };
            }
            return Ok(None);
        }
        let missing = || SqlError::from(Failure::TOO_COMPLEX);
        let mut dfa = self.regex.automata.borrow_mut().whole.take().ok_or_else(missing)?;
        let mut end = None;
        let ran = dfa.run(&self.regex.alphabet, self.text, begin, self.text.len(), self, |seen| match seen {
            Seen::Accept(at) => {
                end = Some(at);
                shorter
            }
            Seen::Fresh(_) => false,
        });
        self.regex.automata.borrow_mut().whole = Some(dfa);
        ran?;
        let Some(end) = end else { return Ok(None) };
        groups[0] = Some((begin, end));
        if wanted {
            self.divide(tree, begin, end, &mut groups)?;
        }
        Ok(Some(groups))
    }

    /// Divides what a piece matched. False if its back references do not agree.
    fn divide(
        &self,
        piece: &Piece,
        begin: usize,
        end: usize,
        groups: &mut [Option<Span>],
    ) -> Result<bool, SqlError> {
        if !piece.is_interesting() {
            return Ok(true);
        }
        self.spend(16)?;
        let agreed = match &piece.division {
            Division::Plain => true,
            Division::Group(inner) => self.divide(inner, begin, end, groups)?,
            Division::Choice(branches) => {
                let mut agreed = false;
                for branch in branches {
                    agreed = self.matches_exactly(branch, begin, end)?
                        && self.divide(branch, begin, end, groups)?;
                    if agreed {
                        break;
                    }
                }
                agreed
            }
            Division::Sequence(first, second) => self.divide_two(first, second, begin, end, groups)?,
            Division::Repeat(inner, least, most) => {
                Repetitions::new(self, piece, inner, *least, *most, begin, end)?.divide(groups)?
            }
            Division::BackReference(number, least, most) => {
                let group = groups.get(*number as usize).copied().flatten();
                group.is_some_and(|group| self.repeats(group, begin, end, *least, *most))
            }
        };
        if agreed && piece.group > 0 {
            groups[piece.group as usize] = Some((begin, end));
        }
        Ok(agreed)
    }

    fn divide_two(
        &self,
        first: &Piece,
        second: &Piece,
        begin: usize,
        end: usize,
        groups: &mut [Option<Span>],
    ) -> Result<bool, SqlError> {
        let mut places = self.ends(first, begin, end)?;
        places.keep(&self.starts(&second.expression, begin, end)?);
        let shorter = first.prefers_shorter();
        let mut middle = if shorter { places.from(begin) } else { places.before(end + 1) };
        while let Some(at) = middle {
            if self.divide(first, begin, at, groups)? && self.divide(second, at, end, groups)? {
                return Ok(true);
            }
            forget(first, groups);
            forget(second, groups);
            middle = if shorter { places.from(at + 1) } else { places.before(at) };
        }
        Ok(false)
    }

    /// Whether a stretch is a group's text, so many times.
    fn repeats(&self, group: Span, begin: usize, end: usize, least: u16, most: Option<u16>) -> bool {
        let (pattern, stretch) = (&self.text[group.0..group.1], &self.text[begin..end]);
        if pattern.is_empty() {
            return stretch.is_empty();
        }
        let (mut times, mut left) = (0usize, stretch);
        while !left.is_empty() {
            let rest = if self.regex.ignore_case {
                let mut characters = left.chars();
                let same = pattern.chars().all(|c| characters.next().is_some_and(|d| lower(c) == lower(d)));
                same.then_some(characters.as_str())
            } else {
                left.strip_prefix(pattern)
            };
            let Some(rest) = rest else { return false };
            left = rest;
            times += 1;
        }
        times >= usize::from(least) && most.is_none_or(|most| times <= usize::from(most))
    }
}

/// Forgets what the groups of a piece matched.
fn forget(piece: &Piece, groups: &mut [Option<Span>]) {
    if piece.group > 0 {
        groups[piece.group as usize] = None;
    }
    match &piece.division {
        Division::Plain | Division::BackReference(..) => {}
        Division::Group(inner) | Division::Repeat(inner, ..) => forget(inner, groups),
        Division::Sequence(first, second) => {
            forget(first, groups);
            forget(second, groups);
        }
        Division::Choice(branches) => branches.iter().for_each(|branch| forget(branch, groups)),
    }
}

/// The search for a division among repetitions: a list of ends that grows to the right and is taken
/// back where it leads nowhere.
struct Repetitions<'s, 'a> {
    search: &'s Search<'a>,
    inner: &'s Piece,
    /// Fewest repetitions, at least one; that none would do is looked at last (or first, if fewer
    /// characters are wanted).
    least: usize,
    most: usize,
    unlimited: bool,
    none_allowed: bool,
    begin: usize,
    end: usize,
    /// From where more repetitions can reach the end.
    hopeful: Places,
}

impl<'s, 'a> Repetitions<'s, 'a> {
    fn new(
        search: &'s Search<'a>,
        piece: &'s Piece,
        inner: &'s Piece,
        least: u16,
        most: Option<u16>,
        begin: usize,
        end: usize,
    ) -> Result<Repetitions<'s, 'a>, SqlError> {
        // The same address each time: the automaton is found again.
        let any_number = match &*piece.expression {
            Expression::Repeat(_, 0, None) => piece.expression.clone(),
            _ => search.any_number(inner),
        };
        let hopeful = search.starts(&any_number, begin, end)?;
        let fewest = usize::from(least).max(1);
        let characters = search.text[begin..end].chars().count();
        let unlimited = most.is_none();
        let most = most.map_or(characters, |most| characters.min(usize::from(most))).max(fewest);
        let none_allowed = least == 0;
        Ok(Repetitions { search, inner, least: fewest, most, unlimited, none_allowed, begin, end, hopeful })
    }

    /// Whether an empty repetition is needed to get enough of them, after `done` ones that reach
    /// `at`.
    fn needs_empty(&self, done: usize, at: usize) -> bool {
        done < self.least && self.least - done >= self.search.text[at..self.end].chars().count()
    }

    fn divide(&self, groups: &mut [Option<Span>]) -> Result<bool, SqlError> {
        let shorter = self.inner.prefers_shorter();
        if self.begin == self.end && self.none_allowed && shorter {
            return Ok(true);
        }
        if self.unlimited && self.least == 1 && !self.inner.has_back_reference() {
            return self.divide_surely(groups);
        }
        // Each entry: where the repetition begins, its possible ends, the end it has now.
        let mut taken: Vec<(usize, Places, usize)> = Vec::new();
        // Bytes of their places: as many for each as there are characters behind it, or nearly so.
        let mut held = 0;
        let mut verified = 0;
        let mut candidate = self.first(self.begin, 0)?;
        loop {
            let Some((places, at)) = candidate.take() else {
                // Nowhere to go from here: the last repetition ends elsewhere.
                let Some((start, places, at)) = taken.pop() else { break };
                held -= places.bytes();
                verified = verified.min(taken.len());
                candidate = self.next(start, taken.len(), &places, Some(at)).map(|next| (places, next));
                continue;
            };
            let start = taken.last().map_or(self.begin, |last| last.2);
            self.search.spend(16)?;
            held += places.bytes();
            check_size(held)?;
            taken.push((start, places, at));
            if at != self.end {
                if taken.len() < self.most {
                    candidate = self.first(at, taken.len())?;
                }
            } else if taken.len() >= self.least {
                match self.verify(&taken, &mut verified, groups)? {
                    None => return Ok(true),
                    Some(failed) => {
                        let left = taken.drain(failed + 1..);
                        held -= left.map(|(_, places, _)| places.bytes()).sum::<usize>();
                    }
                }
            }
        }
        Ok(self.none_allowed && self.begin == self.end)
    }

    /// Without back references and bounds nothing that looks hopeful can fail, and only the last
    /// repetition's groups are kept.
    fn divide_surely(&self, groups: &mut [Option<Span>]) -> Result<bool, SqlError> {
        let mut start = self.begin;
        while let Some((_, at)) = self.first(start, 0)? {
            if at == self.end {
                forget(self.inner, groups);
                return self.search.divide(self.inner, start, at, groups);
            }
            start = at;
        }
        Ok(self.none_allowed && self.begin == self.end)
    }

    /// Divides the repetitions that have not been yet; the index of the one that fails.
    fn verify(
        &self,
        taken: &[(usize, Places, usize)],
        verified: &mut usize,
        groups: &mut [Option<Span>],
    ) -> Result<Option<usize>, SqlError> {
        for (index, (start, _, end)) in taken.iter().enumerate().skip(*verified) {
            forget(self.inner, groups);
            if !self.search.divide(self.inner, *start, *end, groups)? {
                return Ok(Some(index));
            }
            *verified = index + 1;
        }
        Ok(None)
    }

    fn first(&self, start: usize, done: usize) -> Result<Option<(Places, usize)>, SqlError> {
        let mut places = self.search.ends(self.inner, start, self.end)?;
        // Only ends from which the rest can be repeated.
        places.retain(|at| self.hopeful.has(at));
        let first = self.next(start, done, &places, None);
        Ok(first.map(|first| (places, first)))
    }

    /// The end to try after `last`, for the repetition after `done` ones.
    fn next(&self, start: usize, done: usize, places: &Places, last: Option<usize>) -> Option<usize> {
        let shorter = self.inner.prefers_shorter();
        let mut at = match (last, shorter) {
            (None, true) => places.from(start),
            (None, false) => places.before(self.end + 1),
            (Some(last), true) => places.from(last + 1),
            (Some(last), false) => places.before(last),
        }?;
        if at == start && start != self.end && !self.needs_empty(done + 1, start) {
            if !shorter {
                return None;
            }
            at = places.from(start + 1)?;
        }
        // The last that is allowed must reach the end.
        if done + 1 >= self.most {
            return (places.has(self.end) && last.is_none_or(|last| shorter && last < self.end))
                .then_some(self.end);
        }
        Some(at)
    }
}

impl Search<'_> {
    /// Any number of a piece. It is kept, so that its automaton is.
    fn any_number(&self, inner: &Piece) -> Rc<Expression> {
        let mut kept = self.regex.repetitions.borrow_mut();
        let key = Rc::as_ptr(&inner.expression) as usize;
        kept.entry(key)
            .or_insert_with(|| Rc::new(Expression::Repeat(inner.expression.clone(), 0, None)))
            .clone()
    }
}
