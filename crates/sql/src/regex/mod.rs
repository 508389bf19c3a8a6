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
//! - Long searches ask now and then whether to stop, and so does who reads a long pattern.

mod automata;
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

use self::automata::Automata;
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
    /// The statement is to stop; the lexer knows why.
    const STOPPED: Failure = Failure("stopped");
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
    states: usize,
    has_back_references: bool,
    ignore_case: bool,
    automata: RefCell<Automata>,
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
        let alphabet = Alphabet::new(parsed.sets)?;
        let automata = Automata::new(&parsed.tree, &alphabet)?;
        Ok(Regex {
            alphabet,
            groups: parsed.groups as usize,
            states: automata.states(),
            has_back_references: parsed.tree.has_back_reference(),
            tree: parsed.tree,
            ignore_case: parsed.ignore_case,
            automata: RefCell::new(automata),
            repetitions: RefCell::new(HashMap::new()),
        })
    }

    /// States of its automata, by which its size goes.
    pub(crate) fn states(&self) -> usize {
        self.states
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
    use crate::types::bounds::enter;
    use crate::types::bounds::tests::Questions;

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
    fn reading_a_long_pattern_can_be_stopped() {
        let _within = enter(Questions::new(0, usize::MAX));
        let brackets = ["\u{4e00}-\u{9fa5}", "\\W", "[:alpha:]", "a\u{e9}"].map(|part| part.repeat(50_000));
        let options = Options { ignore_case: true, ..Options::default() };
        for pattern in brackets.map(|inner| format!("[{inner}]")).into_iter().chain(["ab".repeat(1000)]) {
            let read = Regex::new(&pattern, options).map(drop);
            assert_eq!(read.map_err(|error| error.sqlstate), Err("57014"), "{}", &pattern[..4]);
        }
    }

    #[test]
    fn copies_of_copies_and_repetitions_of_nothing_are_bounded() {
        // Each part has what is before it twice.
        let doubling: String = (1..60).map(|group| format!("(\\{group}\\{group})")).collect();
        let error = Regex::new(&format!("(a){doubling}"), Options::default()).expect_err("too large");
        assert_eq!(error.message, "invalid regular expression: regular expression is too complex");
        let nested = |open: &str, times: &str| {
            (0..60).fold(String::new(), |inner, _| format!("{open}{inner}){{{times}}}"))
        };
        for pattern in [nested("(?:", "255"), nested("(", "2"), nested("(?:^|", "0")] {
            let regex = Regex::new(&format!("{pattern}b"), Options::default()).expect("an expression");
            let found = regex.search("ab", &|| Ok(())).find(0, false).expect("nothing stops it");
            assert_eq!(found.map(|found| found[0]), Some(Some((1, 2))), "{pattern}");
        }
        // What a reference refers to is still what it matches.
        let regex = Regex::new("(a()b?)\\1(\\1\\2)$", Options::default()).expect("an expression");
        for (text, matched) in [("ababab", true), ("aaa", true), ("abaab", false), ("abab", false)] {
            assert_eq!(regex.is_match(text, &|| Ok(())), Ok(matched), "{text}");
        }
    }

    #[test]
    fn automata_are_bounded() {
        for pattern in ["(a{1,255}){1,255}b", "((a{1,255}){1,255}){1,255}"] {
            let error = Regex::new(pattern, Options::default()).expect_err("too large");
            assert_eq!(error.message, "invalid regular expression: regular expression is too complex");
        }
        let ahead = "(?=(?:a{200}){200})".repeat(8);
        assert_eq!(Regex::new(&ahead, Options::default()).expect_err("too large").sqlstate, "2201B");
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

    #[test]
    fn automata_of_pieces_are_forgotten_once_they_are_large() {
        let pattern = format!("^{}$", "(a{200})".repeat(60));
        let regex = Regex::new(&pattern, Options::default()).expect("an expression");
        let text = "a".repeat(12_000);
        let found = regex.search(&text, &|| Ok(())).find(0, true).expect("nothing stops it");
        let last = found.and_then(|found| found.last().copied().flatten());
        assert_eq!(last, Some((11_800, 12_000)));
        // Those of what follows each part have 354,000 states together.
        assert!(regex.automata.borrow().kept_states() <= nfa::MAX_ALL_STATES);
    }

    #[test]
    fn what_automata_of_pieces_have_learnt_is_forgotten_once_it_is_much() {
        // Read backwards, each part has to know which of the last twelve letters were an `a`.
        let pattern = format!("^{}$", "([ab]{12}a[ab]*?)".repeat(12));
        let regex = Regex::new(&pattern, Options::default()).expect("an expression");
        let mut state = 1_u32;
        let letters = (0..3000).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state >> 31 == 0 { 'a' } else { 'b' }
        });
        let text: String = "bbbbbbbbbbbba".chars().chain(letters).collect();
        let found = regex.search(&text, &|| Ok(())).find(0, true).expect("nothing stops it");
        let found = found.expect("a match");
        assert_eq!((found[0], found.len()), (Some((0, text.len())), 13));
        assert!(found.windows(2).skip(1).all(|parts| parts[0].map(|one| one.1) == parts[1].map(|two| two.0)));
        let learnt = regex.automata.borrow().kept_learnt();
        assert!(learnt <= automata::MAX_LEARNT, "{learnt}");
    }

    #[test]
    fn what_repetitions_may_still_match_takes_memory_that_is_counted() {
        let regex = Regex::new("^(a)(a*?\\1)*$", Options::default()).expect("an expression");
        let matched = |length: usize| regex.is_match(&"a".repeat(length), &|| Ok(()));
        let _within = enter(Questions::new(usize::MAX, 1 << 18));
        assert_eq!(matched(300), Ok(true));
        assert_eq!(matched(3000).map_err(|error| error.sqlstate), Err("53200"));
    }
}
