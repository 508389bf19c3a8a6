//! PostgreSQL's regular expressions: advanced (ARE), extended and basic ones, as POSIX matches
//! them.
//!
//! Of all matches the leftmost counts, and of those the longest, or the shortest if the expression
//! prefers that (`a+?`). Then the parts in parentheses are found by dividing what matched among the
//! pieces of the expression: each takes as much or as little as it prefers, from left to right,
//! while the rest can still match. Matching depth first, as Perl does, gives other answers:
//! `(a|ab)(c|bcd)` finds all of `abcd` here.
//!
//! ```text
//! pattern ──lexer──▶ tokens ──parse──▶ tree of pieces, each with a regular expression ──nfa──▶ ──dfa──▶ matched by search
//! ```
//!
//! - A piece without back references is matched by an automaton that is made deterministic while it
//!   runs, a state at a time, in bounded memory. So time grows with the length of the text,
//!   whatever the expression; only back references, and `(...)*` around them, have to try.
//! - `^`, `\m`, `(?=...)` and so on are questions about a place in the text. A look-around is
//!   answered for all places in one pass.
//! - Long searches ask now and then whether to stop.

mod dfa;
mod lexer;
mod name;
mod nfa;
mod parse;
mod places;
mod search;
mod set;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::error::{SqlError, sqlstate};

use self::nfa::Alphabet;
use self::parse::Piece;

/// What an expression's text is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Flavour {
    /// PostgreSQL's own.
    #[default]
    Advanced,
    /// POSIX extended.
    Extended,
    /// POSIX basic.
    Basic,
    /// No expression at all: the text means itself.
    Literal,
}

/// How an expression is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Options {
    pub(crate) flavour: Flavour,
    pub(crate) ignore_case: bool,
    /// `.` and negated brackets leave out line ends.
    pub(crate) newline_stops: bool,
    /// `^` and `$` match at lines.
    pub(crate) newline_anchors: bool,
    /// Blanks and comments in the expression mean nothing.
    pub(crate) expanded: bool,
}

impl Options {
    /// Sets what a letter of `(?...)` means. False for a letter that means nothing.
    pub(crate) fn embedded(&mut self, letter: char) -> bool {
        match letter {
            'b' => self.flavour = Flavour::Basic,
            'c' => self.ignore_case = false,
            'e' => self.flavour = Flavour::Extended,
            'i' => self.ignore_case = true,
            'm' | 'n' => (self.newline_stops, self.newline_anchors) = (true, true),
            'p' => (self.newline_stops, self.newline_anchors) = (true, false),
            'q' => self.flavour = Flavour::Literal,
            's' => (self.newline_stops, self.newline_anchors) = (false, false),
            't' => self.expanded = false,
            'w' => (self.newline_stops, self.newline_anchors) = (false, true),
            'x' => self.expanded = true,
            _ => return false,
        }
        true
    }

    /// For literal text, where lines and blanks mean nothing.
    fn without_lines(self) -> Options {
        Options { newline_stops: false, newline_anchors: false, expanded: false, ..self }
    }
}

/// Why a pattern is no expression, in PostgreSQL's words.
#[derive(Clone, Copy, Debug)]
struct Failure(&'static str);

impl Failure {
    const ESCAPE: Failure = Failure("invalid escape \\ sequence");
    const REFERENCE: Failure = Failure("invalid backreference number");
    const BRACKET: Failure = Failure("brackets [] not balanced");
    const PARENTHESIS: Failure = Failure("parentheses () not balanced");
    const BRACE: Failure = Failure("braces {} not balanced");
    const REPETITION: Failure = Failure("invalid repetition count(s)");
    const RANGE: Failure = Failure("invalid character range");
    const OPERAND: Failure = Failure("quantifier operand invalid");
    const TOO_COMPLEX: Failure = Failure("regular expression is too complex");
}

impl From<Failure> for SqlError {
    fn from(failure: Failure) -> SqlError {
        SqlError::new(
            sqlstate::INVALID_REGULAR_EXPRESSION,
            format!("invalid regular expression: {}", failure.0),
        )
    }
}

/// Lower case as the server folds it.
fn lower(c: char) -> char {
    one(c, c.to_lowercase())
}

fn upper(c: char) -> char {
    one(c, c.to_uppercase())
}

fn one(c: char, mut mapped: impl Iterator<Item = char>) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        _ => c,
    }
}

/// Asked now and then whether to stop.
pub(crate) type Check<'a> = &'a dyn Fn() -> Result<(), SqlError>;

/// Start and end of what a part matched, in bytes.
pub(crate) type Span = (usize, usize);

/// A compiled expression. It belongs to one thread, because it learns while it searches.
#[derive(Debug)]
pub(crate) struct Regex {
    alphabet: Alphabet,
    tree: Rc<Piece>,
    /// Parts in parentheses.
    groups: usize,
    has_back_references: bool,
    ignore_case: bool,
    automata: RefCell<search::Automata>,
    /// Expressions for any number of a piece.
    repetitions: RefCell<HashMap<usize, Rc<parse::Expression>>>,
}

impl Regex {
    /// 2201B if the pattern is no expression, or one that needs too large an automaton.
    pub(crate) fn new(pattern: &str, options: Options) -> Result<Regex, SqlError> {
        if options.flavour == Flavour::Literal && options != options.without_lines() {
            return Err(Failure("invalid argument to regex function").into());
        }
        let parsed = parse::parse(pattern, options)?;
        let alphabet = Alphabet::new(parsed.sets);
        let automata = search::Automata::new(&parsed.tree, &alphabet)?;
        Ok(Regex {
            alphabet,
            groups: parsed.groups as usize,
            has_back_references: parsed.tree.has_back_reference(),
            tree: parsed.tree,
            ignore_case: parsed.ignore_case,
            automata: RefCell::new(automata),
            repetitions: RefCell::new(HashMap::new()),
        })
    }

    /// Number of parts in parentheses that capture.
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// Whether there is a match anywhere.
    pub(crate) fn is_match(&self, text: &str, check: Check<'_>) -> Result<bool, SqlError> {
        search::Search::new(self, text, check).is_match()
    }

    /// The searches of one text; what is learnt about the text is kept between them.
    pub(crate) fn search<'a>(&'a self, text: &'a str, check: Check<'a>) -> Matcher<'a> {
        Matcher(search::Search::new(self, text, check))
    }
}

/// The searches of one text.
pub(crate) struct Matcher<'a>(search::Search<'a>);

impl Matcher<'_> {
    /// The first match from a place on: all of it, then the parts if they are `wanted`.
    pub(crate) fn find(&mut self, from: usize, wanted: bool) -> Result<Option<Vec<Option<Span>>>, SqlError> {
        self.0.find(from, wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stops at the first question.
    fn stop() -> Result<(), SqlError> {
        Err(SqlError::new(sqlstate::QUERY_CANCELED, "stopped"))
    }

    #[test]
    fn long_searches_can_be_stopped() {
        let text = "ab".repeat(500_000);
        for pattern in ["c", "(a|b)*c", "(?<=c)a", "(ab|a|b)+\\1c", "(.*)(.*)$"] {
            let regex = Regex::new(pattern, Options::default()).expect("an expression");
            let found = regex.search(&text, &stop).find(0, true);
            assert_eq!(found.map_err(|error| error.sqlstate).err(), Some("57014"), "{pattern}");
        }
    }

    #[test]
    fn automata_are_bounded() {
        for pattern in ["(a{1,255}){1,255}b", "((a{1,255}){1,255}){1,255}"] {
            let error = Regex::new(pattern, Options::default()).expect_err("too large");
            assert_eq!(error.message, "invalid regular expression: regular expression is too complex");
        }
        let letters: String = ('\u{4e00}'..'\u{9fa5}').collect();
        // Too deep; too many parts, with parentheses and without; too many tokens; too many sets.
        for pattern in ["(", "(a)", "(a)\\1", "a+?b+", "^", "()", "a"].map(|part| part.repeat(400_000)) {
            assert_eq!(Regex::new(&pattern, Options::default()).expect_err("too large").sqlstate, "2201B");
        }
        assert_eq!(Regex::new(&letters, Options::default()).expect_err("too many sets").sqlstate, "2201B");
        // Parts one beside the other are no levels.
        let many = format!("{}x", "(a)|".repeat(1000));
        assert!(Regex::new(&many, Options::default()).is_ok());
        assert!(Regex::new(&"(a)".repeat(100), Options::default()).is_ok());
    }
}
