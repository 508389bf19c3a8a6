//! The tokens of a pattern.
//!
//! What a character means depends on the flavour (advanced, extended, basic, literal) and on where
//! it stands: in the open, in a bound, in brackets. An advanced expression may begin with a
//! director (`***=`) and with options (`(?i)`), which change the flavour.

use super::name::character_named;
use super::set::{Class, Growing, Set};
use super::{Failure, Flavour, Options};
use crate::error::SqlError;
use crate::types::bounds::{PIECE, ask};

/// What the parser sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    End,
    Plain(char),
    Or,
    /// The numbers of times, and whether as many as possible are wanted; `None` where the atom
    /// decides.
    Quantifier {
        least: u16,
        most: Option<u16>,
        greedy: Option<bool>,
    },
    Open {
        capturing: bool,
    },
    Close,
    Dot,
    /// `^` and `$`, at lines too where the options say so.
    Start,
    Finish,
    /// `\A` and `\Z`.
    TextStart,
    TextFinish,
    WordStart,
    WordFinish,
    WordBoundary,
    NotWordBoundary,
    Look {
        ahead: bool,
        negated: bool,
    },
    /// All of a bracket expression, or of a class escape.
    Set(Set),
    BackReference(u32),
}

/// Most times that a bound may name.
const MAX_TIMES: u32 = 255;

/// What an escape in an advanced expression stands for.
enum Escape {
    Plain(char),
    Class(Class, bool),
    Other(Token),
}

pub(super) struct Lexer {
    pattern: Vec<char>,
    at: usize,
    pub(super) options: Options,
    /// Whether nothing, or only `(` or `^`, came before: there `*` of a basic expression means
    /// itself.
    fresh: Fresh,
    /// Work since it was asked last whether to stop, and why it is to.
    work: usize,
    stopped: Option<SqlError>,
}

/// What reading a token, or a part of a bracket expression, counts as.
const PART: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fresh {
    Start,
    AfterOpen,
    AfterCaret,
    No,
}

impl Lexer {
    /// Reads the director and the embedded options.
    pub(super) fn new(pattern: &str, options: Options) -> Result<Lexer, Failure> {
        let pattern = pattern.chars().collect();
        let mut lexer = Lexer { pattern, at: 0, options, fresh: Fresh::Start, work: 0, stopped: None };
        if options.flavour != Flavour::Literal {
            lexer.director()?;
        }
        Ok(lexer)
    }

    /// Counts that a token was read. Fails if the statement should stop; [`Lexer::error`] says why.
    pub(super) fn count(&mut self) -> Result<(), Failure> {
        self.spend(PART)
    }

    fn spend(&mut self, work: usize) -> Result<(), Failure> {
        self.work += work;
        if self.work < PIECE {
            return Ok(());
        }
        self.work = 0;
        ask().map_err(|stopped| {
            self.stopped = Some(stopped);
            Failure::STOPPED
        })
    }

    /// The error that a failure is.
    pub(super) fn error(&mut self, failure: Failure) -> SqlError {
        self.stopped.take().unwrap_or_else(|| failure.into())
    }

    fn director(&mut self) -> Result<(), Failure> {
        if self.pattern.len() >= 4 && self.pattern[..3] == ['*', '*', '*'] {
            match self.pattern[3] {
                '?' => return Err(Failure("invalid regexp (reg version 0.8)")),
                '=' => {
                    self.at = 4;
                    self.options.flavour = Flavour::Literal;
                    self.options = self.options.without_lines();
                    return Ok(());
                }
                ':' => {
                    self.at = 4;
                    self.options.flavour = Flavour::Advanced;
                }
                _ => return Err(Failure::OPERAND),
            }
        }
        if self.options.flavour != Flavour::Advanced {
            return Ok(());
        }
        let is_option = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphabetic());
        if !(self.sees('(') && self.look(1) == Some('?') && is_option(self.look(2))) {
            return Ok(());
        }
        self.at += 2;
        while let Some(letter) = self.look(0).filter(|c| c.is_ascii_alphabetic()) {
            if !self.options.embedded(letter) {
                return Err(Failure("invalid embedded option"));
            }
            self.at += 1;
        }
        if !self.eat(')') {
            return Err(Failure("invalid embedded option"));
        }
        if self.options.flavour == Flavour::Literal {
            self.options = self.options.without_lines();
        }
        Ok(())
    }

    fn look(&self, ahead: usize) -> Option<char> {
        self.pattern.get(self.at + ahead).copied()
    }

    fn sees(&self, c: char) -> bool {
        self.look(0) == Some(c)
    }

    fn eat(&mut self, c: char) -> bool {
        let seen = self.sees(c);
        self.at += usize::from(seen);
        seen
    }

    fn advanced(&self) -> bool {
        self.options.flavour == Flavour::Advanced
    }

    /// Blanks and comments of the expanded syntax.
    fn skip(&mut self) {
        if !self.options.expanded {
            return;
        }
        loop {
            while self.look(0).is_some_and(char::is_whitespace) {
                self.at += 1;
            }
            if !self.sees('#') {
                return;
            }
            while self.look(0).is_some_and(|c| c != '\n') {
                self.at += 1;
            }
        }
    }

    /// The next token; `groups` is how many parentheses have captured so far.
    pub(super) fn next(&mut self, groups: u32) -> Result<Token, Failure> {
        if self.options.flavour == Flavour::Literal {
            let next = self.look(0);
            self.at += usize::from(next.is_some());
            return Ok(next.map_or(Token::End, Token::Plain));
        }
        loop {
            self.skip();
            let Some(c) = self.look(0) else { return Ok(Token::End) };
            self.at += 1;
            if c == '(' && self.advanced() && self.sees('?') && self.look(1) == Some('#') {
                while self.look(0).is_some_and(|c| c != ')') {
                    self.at += 1;
                }
                self.eat(')');
                continue;
            }
            let token = if self.options.flavour == Flavour::Basic {
                self.basic(c)?
            } else {
                self.extended(c, groups)?
            };
            self.fresh = match token {
                Token::Open { .. } => Fresh::AfterOpen,
                Token::Start => Fresh::AfterCaret,
                _ => Fresh::No,
            };
            return Ok(token);
        }
    }

    fn quantifier(&mut self, least: u16, most: Option<u16>) -> Token {
        let greedy = !(self.advanced() && self.eat('?'));
        Token::Quantifier { least, most, greedy: Some(greedy) }
    }

    fn extended(&mut self, c: char, groups: u32) -> Result<Token, Failure> {
        Ok(match c {
            '|' => Token::Or,
            '*' => self.quantifier(0, None),
            '+' => self.quantifier(1, None),
            '?' => self.quantifier(0, Some(1)),
            '{' => {
                self.skip();
                if !self.look(0).is_some_and(|c| c.is_ascii_digit()) {
                    return Ok(Token::Plain('{'));
                }
                self.bound()?
            }
            '(' if self.advanced() && self.eat('?') => self.special_group()?,
            '(' => Token::Open { capturing: true },
            ')' => Token::Close,
            '[' => self.bracket()?,
            '.' => Token::Dot,
            '^' => Token::Start,
            '$' => Token::Finish,
            '\\' if self.advanced() => match self.escape(groups)? {
                Escape::Plain(c) => Token::Plain(c),
                Escape::Class(class, negated) => {
                    let set = class.set(self.options.ignore_case);
                    Token::Set(if negated { set.complement() } else { set })
                }
                Escape::Other(token) => token,
            },
            '\\' => {
                let next = self.look(0).ok_or(Failure::ESCAPE)?;
                self.at += 1;
                Token::Plain(next)
            }
            other => Token::Plain(other),
        })
    }

    fn special_group(&mut self) -> Result<Token, Failure> {
        let kind = self.look(0).ok_or(Failure::OPERAND)?;
        self.at += 1;
        match kind {
            ':' => Ok(Token::Open { capturing: false }),
            '=' => Ok(Token::Look { ahead: true, negated: false }),
            '!' => Ok(Token::Look { ahead: true, negated: true }),
            '<' => {
                let kind = self.look(0).ok_or(Failure::OPERAND)?;
                self.at += 1;
                match kind {
                    '=' => Ok(Token::Look { ahead: false, negated: false }),
                    '!' => Ok(Token::Look { ahead: false, negated: true }),
                    _ => Err(Failure::OPERAND),
                }
            }
            _ => Err(Failure::OPERAND),
        }
    }

    fn basic(&mut self, c: char) -> Result<Token, Failure> {
        Ok(match c {
            '*' if self.fresh != Fresh::No => Token::Plain('*'),
            '*' => Token::Quantifier { least: 0, most: None, greedy: Some(true) },
            '[' => self.bracket()?,
            '.' => Token::Dot,
            '^' if matches!(self.fresh, Fresh::Start | Fresh::AfterOpen) => Token::Start,
            '$' => {
                self.skip();
                let last = self.look(0).is_none() || (self.sees('\\') && self.look(1) == Some(')'));
                if last { Token::Finish } else { Token::Plain('$') }
            }
            '\\' => {
                let next = self.look(0).ok_or(Failure::ESCAPE)?;
                self.at += 1;
                match next {
                    '{' => self.bound()?,
                    '(' => Token::Open { capturing: true },
                    ')' => Token::Close,
                    '<' => Token::WordStart,
                    '>' => Token::WordFinish,
                    '1'..='9' => Token::BackReference(next as u32 - '0' as u32),
                    other => Token::Plain(other),
                }
            }
            other => Token::Plain(other),
        })
    }

    /// A bound after its opening brace.
    fn bound(&mut self) -> Result<Token, Failure> {
        let least = self.times()?;
        let mut most = Some(least);
        let mut ranged = false;
        self.skip();
        if self.eat(',') {
            ranged = true;
            self.skip();
            most = match self.look(0) {
                None => return Err(Failure::BRACE),
                Some(c) if c.is_ascii_digit() => Some(self.times()?),
                Some(_) => None,
            };
        }
        self.skip();
        if self.look(0).is_none() {
            return Err(Failure::BRACE);
        }
        if most.is_some_and(|most| least > most) {
            return Err(Failure::REPETITION);
        }
        if self.options.flavour == Flavour::Basic && !self.eat('\\') {
            return Err(Failure::REPETITION);
        }
        if !self.eat('}') {
            return Err(Failure::REPETITION);
        }
        let greedy = !(self.advanced() && self.eat('?'));
        Ok(Token::Quantifier { least, most, greedy: ranged.then_some(greedy) })
    }

    fn times(&mut self) -> Result<u16, Failure> {
        let mut number = None;
        loop {
            self.skip();
            let Some(c) = self.look(0) else { return Err(Failure::BRACE) };
            let Some(digit) = c.to_digit(10) else { break };
            self.at += 1;
            let value = number.unwrap_or(0) * 10 + digit;
            if value > MAX_TIMES {
                return Err(Failure::REPETITION);
            }
            number = Some(value);
        }
        number.map(|n| n as u16).ok_or(Failure::REPETITION)
    }

    /// An escape of an advanced expression, after its backslash.
    fn escape(&mut self, groups: u32) -> Result<Escape, Failure> {
        let c = self.look(0).ok_or(Failure::ESCAPE)?;
        self.at += 1;
        if !c.is_ascii_alphanumeric() {
            return Ok(Escape::Plain(c));
        }
        Ok(match c {
            'a' => Escape::Plain('\x07'),
            'b' => Escape::Plain('\x08'),
            'B' => Escape::Plain('\\'),
            'c' => {
                let next = self.look(0).ok_or(Failure::ESCAPE)?;
                self.at += 1;
                Escape::Plain(char::from(next as u8 & 0o37))
            }
            'e' => Escape::Plain('\x1b'),
            'f' => Escape::Plain('\x0c'),
            'n' => Escape::Plain('\n'),
            'r' => Escape::Plain('\r'),
            't' => Escape::Plain('\t'),
            'v' => Escape::Plain('\x0b'),
            'u' => Escape::Plain(self.code(16, 4, 4)?),
            'U' => Escape::Plain(self.code(16, 8, 8)?),
            'x' => Escape::Plain(self.code(16, 1, 255)?),
            'd' | 'D' => Escape::Class(Class::Digit, c == 'D'),
            's' | 'S' => Escape::Class(Class::Space, c == 'S'),
            'w' | 'W' => Escape::Class(Class::Word, c == 'W'),
            'A' => Escape::Other(Token::TextStart),
            'm' => Escape::Other(Token::WordStart),
            'M' => Escape::Other(Token::WordFinish),
            'y' => Escape::Other(Token::WordBoundary),
            'Y' => Escape::Other(Token::NotWordBoundary),
            'Z' => Escape::Other(Token::TextFinish),
            '0'..='9' => return self.number_escape(c, groups),
            _ => return Err(Failure::ESCAPE),
        })
    }

    /// A back reference, or the octal number of a character. Several digits are a reference only to
    /// a group that there is.
    fn number_escape(&mut self, first: char, groups: u32) -> Result<Escape, Failure> {
        let after_first = self.at;
        self.at -= 1;
        if first != '0' {
            let number = self.digits(10, 1, 255)?;
            if self.at == after_first || (number > 0 && number <= groups) {
                return Ok(Escape::Other(Token::BackReference(number)));
            }
            self.at = after_first - 1;
        }
        let mut code = self.digits(8, 1, 3)?;
        if code > 0xff {
            self.at -= 1;
            code >>= 3;
        }
        char::from_u32(code).map(Escape::Plain).ok_or(Failure::ESCAPE)
    }

    fn code(&mut self, base: u32, least: usize, most: usize) -> Result<char, Failure> {
        let code = self.digits(base, least, most)?;
        char::from_u32(code).ok_or(Failure::ESCAPE)
    }

    fn digits(&mut self, base: u32, least: usize, most: usize) -> Result<u32, Failure> {
        let mut value = 0u32;
        let mut count = 0;
        while let Some(digit) = self.look(0).filter(|_| count < most).and_then(|c| c.to_digit(base)) {
            value = value.saturating_mul(base).saturating_add(digit);
            self.at += 1;
            count += 1;
        }
        if count < least { Err(Failure::ESCAPE) } else { Ok(value) }
    }

    /// A bracket expression after its opening bracket.
    fn bracket(&mut self) -> Result<Token, Failure> {
        let ahead: String = self.pattern[self.at..].iter().take(6).collect();
        match ahead.as_str() {
            "[:<:]]" => {
                self.at += 6;
                return Ok(Token::WordStart);
            }
            "[:>:]]" => {
                self.at += 6;
                return Ok(Token::WordFinish);
            }
            _ => {}
        }
        let negated = self.eat('^');
        let (mut set, mut complements) = (Growing::default(), Growing::default());
        let mut first = true;
        loop {
            let c = self.look(0).ok_or(Failure::BRACKET)?;
            self.at += 1;
            if c == ']' && !first {
                break;
            }
            self.bracket_part(c, first, &mut set, &mut complements)?;
            first = false;
        }
        set.add(&complements.finish());
        if !negated {
            return Ok(Token::Set(set.finish()));
        }
        if self.options.newline_stops {
            set.add(&Set::single('\n'));
        }
        Ok(Token::Set(set.finish().complement()))
    }

    /// Takes a part into the set of a bracket expression.
    fn add(&mut self, part: &Set, set: &mut Growing) -> Result<(), Failure> {
        self.spend(PART + size_of::<u64>() * part.ranges())?;
        set.add(part);
        Ok(())
    }

    fn bracket_part(
        &mut self,
        c: char,
        first: bool,
        set: &mut Growing,
        complements: &mut Growing,
    ) -> Result<(), Failure> {
        let start = match c {
            '-' if !first && !self.sees(']') => return Err(Failure::RANGE),
            '[' => match self.look(0).ok_or(Failure::BRACKET)? {
                '.' => self.element('.')?,
                '=' => {
                    let c = self.element('=')?;
                    return self.add(&self.cased(Set::single(c)), set);
                }
                ':' => {
                    let name = self.named(':')?;
                    let class = Class::named(&name).ok_or(Failure("invalid character class"))?;
                    return self.add(&class.set(self.options.ignore_case), set);
                }
                _ => '[',
            },
            '\\' if self.advanced() => match self.escape(0)? {
                Escape::Plain(c) => c,
                Escape::Class(class, negated) => {
                    let class = class.set(self.options.ignore_case);
                    return match negated {
                        true => self.add(&class.complement(), complements),
                        false => self.add(&class, set),
                    };
                }
                Escape::Other(_) => return Err(Failure::ESCAPE),
            },
            other => other,
        };
        if !(self.sees('-') && self.look(1).is_some_and(|c| c != ']')) {
            if self.sees('-') && self.look(1).is_none() {
                return Err(Failure::BRACKET);
            }
            return self.add(&self.cased(Set::single(start)), set);
        }
        self.at += 1;
        let end = self.range_end()?;
        if start > end {
            return Err(Failure::RANGE);
        }
        if self.options.ignore_case && end as u32 - start as u32 > 100_000 {
            return Err(Failure::TOO_COMPLEX);
        }
        self.add(&self.cased(Set::range(start as u32, end as u32)), set)
    }

    fn range_end(&mut self) -> Result<char, Failure> {
        let c = self.look(0).ok_or(Failure::BRACKET)?;
        self.at += 1;
        match c {
            '[' => match self.look(0) {
                None => Err(Failure::BRACKET),
                Some('.') => self.element('.'),
                Some(':' | '=') => Err(Failure::RANGE),
                _ => Ok('['),
            },
            '\\' if self.advanced() => match self.escape(0)? {
                Escape::Plain(c) => Ok(c),
                Escape::Class(..) => Err(Failure::RANGE),
                Escape::Other(_) => Err(Failure::ESCAPE),
            },
            other => Ok(other),
        }
    }

    fn cased(&self, set: Set) -> Set {
        if self.options.ignore_case { set.ignoring_case() } else { set }
    }

    /// The text up to the mark and a bracket.
    fn named(&mut self, mark: char) -> Result<String, Failure> {
        self.at += 1;
        let mut name = String::new();
        loop {
            let c = self.look(0).ok_or(Failure::BRACKET)?;
            self.at += 1;
            if c == mark && self.eat(']') {
                return Ok(name);
            }
            name.push(c);
        }
    }

    /// A collating element: a character, or the name of one.
    fn element(&mut self, mark: char) -> Result<char, Failure> {
        let name = self.named(mark)?;
        let mut characters = name.chars();
        if let (Some(only), None) = (characters.next(), characters.next()) {
            return Ok(only);
        }
        character_named(&name).ok_or(Failure("invalid collating element"))
    }
}
