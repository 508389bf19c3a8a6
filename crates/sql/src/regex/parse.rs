//! The grammar, and the tree of pieces that a match is divided among.
//!
//! A piece without parentheses, back references or clashing preferences needs no division: it is
//! plain, whatever it is made of. How preferences combine decides what a match is, so the rules are
//! PostgreSQL's to the letter: an atom has none; a quantifier gives its own, `{m}` passes the
//! atom's on; a branch has that of its first part that has one; alternatives are greedy.

use std::collections::HashMap;
use std::rc::Rc;

use super::lexer::{Lexer, Token};
use super::set::{Class, Set};
use super::{Failure, Flavour, Options};
use crate::error::SqlError;

/// A question about a place in the text.
#[derive(Clone, Debug)]
pub(super) enum Constraint {
    TextStart,
    TextEnd,
    /// At the start of the text or after a line end.
    LineStart,
    /// At the end of the text or before a line end.
    LineEnd,
    WordStart,
    WordEnd,
    WordBoundary,
    NotWordBoundary,
    Look {
        ahead: bool,
        negated: bool,
        inner: Rc<Expression>,
    },
}

/// A regular expression, for an automaton.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    Empty,
    /// A character of the set of this number.
    Set(usize),
    Constraint(Constraint),
    Sequence(Vec<Rc<Expression>>),
    Choice(Vec<Rc<Expression>>),
    Repeat(Rc<Expression>, u16, Option<u16>),
}

impl Expression {
    /// One after the other. What is empty is left out: so each expression but [`Expression::Empty`]
    /// takes a state of an automaton, and how many states there may be bounds the work on them.
    fn sequence(mut parts: Vec<Rc<Expression>>) -> Rc<Expression> {
        parts.retain(|part| !matches!(**part, Expression::Empty));
        match parts.len() {
            0 => Rc::new(Expression::Empty),
            1 => parts.remove(0),
            _ => Rc::new(Expression::Sequence(parts)),
        }
    }

    /// The same without its questions: what a back reference to it may match at another place. So
    /// many parts may still be copied: references to what has references double them each time.
    fn without_constraints(&self, left: &mut u32) -> Result<Rc<Expression>, Failure> {
        *left = left.checked_sub(1).ok_or(Failure::TOO_COMPLEX)?;
        let mut all = |parts: &[Rc<Expression>]| -> Result<Vec<Rc<Expression>>, Failure> {
            parts.iter().map(|part| part.without_constraints(left)).collect()
        };
        Ok(match self {
            Expression::Constraint(_) => Rc::new(Expression::Empty),
            Expression::Sequence(parts) => Expression::sequence(all(parts)?),
            Expression::Choice(parts) => Rc::new(Expression::Choice(all(parts)?)),
            Expression::Repeat(part, least, most) => repeated(part.without_constraints(left)?, *least, *most),
            other => Rc::new(other.clone()),
        })
    }
}

/// What is known of a piece: preferences and what is inside.
type Traits = u8;
const LONGER: Traits = 1;
const SHORTER: Traits = 2;
/// Both are inside.
const MIXED: Traits = 4;
const CAPTURES: Traits = 8;
const BACK_REFERENCE: Traits = 16;

fn is_messy(traits: Traits) -> bool {
    traits & (MIXED | CAPTURES | BACK_REFERENCE) != 0
}

/// What a piece hands up: not its preference, but that two clash.
fn up(traits: Traits) -> Traits {
    let clash = if traits & (LONGER | SHORTER) == LONGER | SHORTER { MIXED } else { 0 };
    (traits & !(LONGER | SHORTER)) | clash
}

fn combine(first: Traits, second: Traits) -> Traits {
    let preference = |traits: Traits| traits & (LONGER | SHORTER);
    up(first | second) | if preference(first) != 0 { preference(first) } else { preference(second) }
}

/// How a piece's match is divided.
#[derive(Clone, Debug)]
pub(super) enum Division {
    /// Not at all.
    Plain,
    /// Between two.
    Sequence(Rc<Piece>, Rc<Piece>),
    /// It belongs to the first that matches it.
    Choice(Vec<Rc<Piece>>),
    /// Among repetitions.
    Repeat(Rc<Piece>, u16, Option<u16>),
    /// It is what a group matched, so many times.
    BackReference(u32, u16, Option<u16>),
    /// Another group around a group.
    Group(Rc<Piece>),
}

/// A node of the tree.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    traits: Traits,
    pub(super) division: Division,
    /// What it matches; with back references, and more than that.
    pub(super) expression: Rc<Expression>,
    /// The number of the group that it is; 0 for none.
    pub(super) group: u32,
}

impl Piece {
    fn plain(traits: Traits, expression: Rc<Expression>) -> Piece {
        Piece { traits, division: Division::Plain, expression, group: 0 }
    }

    fn sequence(traits: Traits, first: Piece, second: Piece) -> Piece {
        let expression = Expression::sequence(vec![first.expression.clone(), second.expression.clone()]);
        let division = Division::Sequence(Rc::new(first), Rc::new(second));
        Piece { traits, division, expression, group: 0 }
    }

    fn is_plain(&self) -> bool {
        matches!(self.division, Division::Plain)
    }

    pub(super) fn prefers_shorter(&self) -> bool {
        self.traits & SHORTER != 0
    }

    pub(super) fn has_back_reference(&self) -> bool {
        self.traits & BACK_REFERENCE != 0
    }

    /// Whether dividing it finds anything.
    pub(super) fn is_interesting(&self) -> bool {
        self.group > 0 || self.traits & (CAPTURES | BACK_REFERENCE) != 0
    }
}

/// A pattern that has been read.
pub(super) struct Parsed {
    pub(super) tree: Rc<Piece>,
    pub(super) sets: Vec<Set>,
    pub(super) groups: u32,
    pub(super) ignore_case: bool,
}

/// Numbers of sets that every pattern has: all characters, line ends, those of words.
pub(super) const ANY: usize = 0;
pub(super) const LINE_END: usize = 1;
pub(super) const WORD: usize = 2;

/// Deepest nesting of parentheses.
const MAX_DEPTH: u32 = 200;
/// So many parts of branches may have to be divided from what follows them: each of them is a level
/// of its own, in the tree and wherever that is gone through.
const MAX_RESTS: u32 = 250;
/// Tokens of a pattern. What has more takes more states than an automaton may have.
const MAX_TOKENS: u32 = 300_000;
/// Different sets of characters: colors take memory with the square of their number.
const MAX_SETS: usize = 4096;

struct Parser {
    lexer: Lexer,
    token: Token,
    sets: Vec<Set>,
    /// The number of each of them.
    numbers: HashMap<Set, usize>,
    groups: u32,
    /// What each group matches, once it is complete.
    group_expressions: Vec<Option<Rc<Expression>>>,
    depth: u32,
    rests: u32,
    tokens: u32,
    /// Parts of expressions that back references may still copy.
    copies: u32,
}

/// Reads a pattern. 2201B if it is none.
pub(super) fn parse(pattern: &str, options: Options) -> Result<Parsed, SqlError> {
    let mut lexer = Lexer::new(pattern, options)?;
    let token = lexer.next(0).map_err(|failure| lexer.error(failure))?;
    let sets = vec![Set::all(), Set::single('\n'), Class::Word.set(false)];
    let numbers = sets.iter().cloned().enumerate().map(|(number, set)| (set, number)).collect();
    let mut parser = Parser {
        lexer,
        token,
        sets,
        numbers,
        groups: 0,
        group_expressions: vec![None],
        depth: 0,
        rests: 0,
        tokens: 0,
        copies: MAX_TOKENS,
    };
    let tree = parser.alternatives(false, false).map_err(|failure| parser.lexer.error(failure))?;
    Ok(Parsed {
        tree: Rc::new(tree),
        sets: parser.sets,
        groups: parser.groups,
        ignore_case: parser.lexer.options.ignore_case,
    })
}

/// An atom, before its quantifier.
struct Atom {
    expression: Rc<Expression>,
    /// The tree inside, if it has parentheses or is a back reference.
    piece: Option<Piece>,
    captures: bool,
    back_reference: Option<u32>,
}

impl Parser {
    fn advance(&mut self) -> Result<(), Failure> {
        self.tokens += 1;
        if self.tokens > MAX_TOKENS {
            return Err(Failure::TOO_COMPLEX);
        }
        self.lexer.count()?;
        self.token = self.lexer.next(self.groups)?;
        Ok(())
    }

    fn is_at_end(&self, inside: bool) -> bool {
        match self.token {
            Token::End | Token::Or => true,
            Token::Close => inside,
            _ => false,
        }
    }

    fn set(&mut self, set: Set) -> Result<Rc<Expression>, Failure> {
        if let Some(number) = self.numbers.get(&set) {
            return Ok(Rc::new(Expression::Set(*number)));
        }
        let number = self.sets.len();
        if number >= MAX_SETS {
            return Err(Failure::TOO_COMPLEX);
        }
        self.numbers.insert(set.clone(), number);
        self.sets.push(set);
        Ok(Rc::new(Expression::Set(number)))
    }

    /// Branches up to the closing parenthesis (`inside` one) or the end. In a look-around nothing
    /// captures.
    fn alternatives(&mut self, inside: bool, looking: bool) -> Result<Piece, Failure> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Failure::TOO_COMPLEX);
        }
        let mut traits = LONGER;
        let mut branches = Vec::new();
        loop {
            let branch = self.branch(inside, looking)?;
            traits |= up(traits | branch.traits);
            branches.push(branch);
            if self.token != Token::Or {
                break;
            }
            self.advance()?;
        }
        if inside && self.token != Token::Close {
            return Err(Failure::PARENTHESIS);
        }
        self.depth -= 1;
        if branches.len() == 1 {
            return Ok(branches.remove(0));
        }
        let expression =
            Rc::new(Expression::Choice(branches.iter().map(|branch| branch.expression.clone()).collect()));
        if !is_messy(traits) {
            return Ok(Piece::plain(traits, expression));
        }
        let division = Division::Choice(branches.into_iter().map(Rc::new).collect());
        Ok(Piece { traits, division, expression, group: 0 })
    }

    /// A branch, or the rest of one.
    fn branch(&mut self, inside: bool, looking: bool) -> Result<Piece, Failure> {
        let mut prefix: Vec<Rc<Expression>> = Vec::new();
        let mut traits = 0;
        while !self.is_at_end(inside) {
            if let Some(constraint) = self.constraint()? {
                prefix.push(Rc::new(Expression::Constraint(constraint)));
                continue;
            }
            let atom = self.atom(looking)?;
            let (least, most, preference) = self.quantifier()?;
            if most == Some(0) {
                // It matches nothing, and nothing of it is kept.
                continue;
            }
            let inner = atom.piece.as_ref().map_or(0, |piece| piece.traits);
            let together = traits | preference | inner;
            if !atom.captures && atom.back_reference.is_none() && !is_messy(up(together)) {
                prefix.push(repeated(atom.expression, least, most));
                traits = together;
                continue;
            }
            // Something to divide: it, and the rest of the branch.
            let messy = quantified(atom, least, most, preference, inner);
            return self.divided(prefix, traits, messy, combine(preference, inner), inside, looking);
        }
        Ok(Piece::plain(traits, Expression::sequence(prefix)))
    }

    /// A prefix that is plain, a piece that is not, and what follows.
    fn divided(
        &mut self,
        prefix: Vec<Rc<Expression>>,
        traits: Traits,
        messy: Piece,
        messy_traits: Traits,
        inside: bool,
        looking: bool,
    ) -> Result<Piece, Failure> {
        let is_first = prefix.is_empty();
        let prefix = Piece::plain(traits, Expression::sequence(prefix));
        if self.is_at_end(inside) {
            if is_first {
                return Ok(messy);
            }
            let traits = traits | combine(traits, messy.traits);
            return Ok(Piece::sequence(traits, prefix, messy));
        }
        self.rests += 1;
        if self.rests > MAX_RESTS {
            return Err(Failure::TOO_COMPLEX);
        }
        let rest = self.branch(inside, looking)?;
        self.rests -= 1;
        let tail_traits = messy_traits | combine(messy_traits, rest.traits);
        let traits = traits | combine(traits, tail_traits);
        if is_first {
            return Ok(Piece::sequence(traits, messy, rest));
        }
        if messy.is_plain()
            && messy.group == 0
            && rest.is_plain()
            && rest.group == 0
            && !is_messy(up(messy.traits | rest.traits))
        {
            let tail = Piece::plain(
                combine(messy.traits, rest.traits),
                Expression::sequence(vec![messy.expression, rest.expression]),
            );
            return Ok(Piece::sequence(traits, prefix, tail));
        }
        Ok(Piece::sequence(traits, prefix, Piece::sequence(tail_traits, messy, rest)))
    }

    /// A constraint, which takes no quantifier; `None` if the token is something else.
    fn constraint(&mut self) -> Result<Option<Constraint>, Failure> {
        let lines = self.lexer.options.newline_anchors;
        let constraint = match self.token {
            Token::Start if lines => Constraint::LineStart,
            Token::Finish if lines => Constraint::LineEnd,
            Token::Start | Token::TextStart => Constraint::TextStart,
            Token::Finish | Token::TextFinish => Constraint::TextEnd,
            Token::WordStart => Constraint::WordStart,
            Token::WordFinish => Constraint::WordEnd,
            Token::WordBoundary => Constraint::WordBoundary,
            Token::NotWordBoundary => Constraint::NotWordBoundary,
            Token::Look { ahead, negated } => {
                self.advance()?;
                let inner = self.alternatives(true, true)?.expression;
                Constraint::Look { ahead, negated, inner }
            }
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some(constraint))
    }

    fn atom(&mut self, looking: bool) -> Result<Atom, Failure> {
        let plain = |expression| Atom { expression, piece: None, captures: false, back_reference: None };
        match self.token.clone() {
            Token::Quantifier { .. } => Err(Failure::OPERAND),
            Token::Close if self.lexer.options.flavour != Flavour::Extended => Err(Failure::PARENTHESIS),
            Token::Plain(_) | Token::Close | Token::Set(_) | Token::Dot => {
                let set = match std::mem::replace(&mut self.token, Token::End) {
                    Token::Plain(c) if self.lexer.options.ignore_case => Set::single(c).ignoring_case(),
                    Token::Plain(c) => Set::single(c),
                    Token::Set(set) => set,
                    Token::Dot if self.lexer.options.newline_stops => Set::single('\n').complement(),
                    Token::Dot => Set::all(),
                    _ => Set::single(')'),
                };
                self.advance()?;
                Ok(plain(self.set(set)?))
            }
            Token::Open { capturing } => self.group(capturing && !looking, looking),
            Token::BackReference(number) => {
                if looking {
                    return Err(Failure::REFERENCE);
                }
                let known = self.group_expressions.get(number as usize).cloned().flatten();
                let expression = known.ok_or(Failure::REFERENCE)?.without_constraints(&mut self.copies)?;
                self.advance()?;
                let mut piece = Piece::plain(BACK_REFERENCE, expression.clone());
                piece.division = Division::BackReference(number, 1, Some(1));
                Ok(Atom { expression, piece: Some(piece), captures: false, back_reference: Some(number) })
            }
            _ => Err(Failure("invalid regexp (reg version 0.8)")),
        }
    }

    fn group(&mut self, captures: bool, looking: bool) -> Result<Atom, Failure> {
        let mut number = 0;
        if captures {
            self.groups += 1;
            self.group_expressions.push(None);
            number = self.groups;
        }
        self.advance()?;
        let mut piece = self.alternatives(true, looking)?;
        self.advance()?;
        if captures {
            if piece.group > 0 {
                let (traits, expression) = (piece.traits, piece.expression.clone());
                piece = Piece { traits, division: Division::Group(Rc::new(piece)), expression, group: 0 };
            }
            piece.group = number;
            piece.traits |= CAPTURES;
            self.group_expressions[number as usize] = Some(piece.expression.clone());
        }
        Ok(Atom { expression: piece.expression.clone(), piece: Some(piece), captures, back_reference: None })
    }

    /// The quantifier after an atom: once if there is none.
    fn quantifier(&mut self) -> Result<(u16, Option<u16>, Traits), Failure> {
        let Token::Quantifier { least, most, greedy } = self.token else { return Ok((1, Some(1), 0)) };
        self.advance()?;
        let preference = greedy.map_or(0, |greedy| if greedy { LONGER } else { SHORTER });
        Ok((least, most, preference))
    }
}

fn repeated(expression: Rc<Expression>, least: u16, most: Option<u16>) -> Rc<Expression> {
    if (least, most) == (1, Some(1)) {
        return expression;
    }
    if most == Some(0) || matches!(*expression, Expression::Empty) {
        return Rc::new(Expression::Empty);
    }
    Rc::new(Expression::Repeat(expression, least, most))
}

/// A piece that must be divided, under its quantifier.
fn quantified(atom: Atom, least: u16, most: Option<u16>, preference: Traits, inner: Traits) -> Piece {
    let whole = repeated(atom.expression.clone(), least, most);
    let traits = combine(preference, inner);
    if let Some(number) = atom.back_reference {
        let division = Division::BackReference(number, least, most);
        return Piece { traits: traits | inner, division, expression: whole, group: 0 };
    }
    let piece = atom.piece.unwrap_or_else(|| Piece::plain(0, atom.expression));
    let own = inner & (LONGER | SHORTER | MIXED);
    if (least, most) == (1, Some(1)) && (preference == 0 || own == 0 || preference == own) {
        return piece;
    }
    if inner & (CAPTURES | BACK_REFERENCE) == 0 {
        return Piece::plain(traits, whole);
    }
    if least > 0 && inner & BACK_REFERENCE == 0 {
        // Only the last repetition's parts are kept: all before it are plain.
        let before = repeated(piece.expression.clone(), least - 1, most.map(|most| most - 1));
        let before = Piece::plain(traits & (LONGER | SHORTER), before);
        return Piece::sequence(traits, before, piece);
    }
    Piece { traits, division: Division::Repeat(Rc::new(piece), least, most), expression: whole, group: 0 }
}
