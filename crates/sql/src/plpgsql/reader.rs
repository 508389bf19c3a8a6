//! A block's text in pieces, and how far it was read.

use crate::error::{Result, SqlError};
use crate::identifier::fold_text;
use crate::parse::lexeme::{Kind, Lexeme, Lexemes};

/// A piece of the text, and where it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    pub(super) start: usize,
    /// The line that it begins in, from 1.
    pub(super) line: usize,
}

impl Piece<'_> {
    pub(super) fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    pub(super) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// The name that it is, as queries look for it: of a word, or of what is in quotes.
    pub(super) fn as_name(&self) -> Option<String> {
        match self.kind {
            Kind::Quoted if self.text.starts_with('"') => {
                let inner = self.text.strip_prefix('"')?.strip_suffix('"')?;
                Some(fold_text(&inner.replace("\"\"", "\""), true))
            }
            Kind::Word => Some(fold_text(self.text, false)),
            _ => None,
        }
    }
}

pub(super) struct Reader<'a> {
    pub(super) source: &'a str,
    pieces: Vec<Piece<'a>>,
    at: usize,
    /// So many blocks, loops and branches are around.
    pub(super) depth: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a str) -> Reader<'a> {
        let (mut line, mut from) = (1, 0);
        let piece = |lexeme: Lexeme<'a>| {
            let start = lexeme.text.as_ptr() as usize - source.as_ptr() as usize;
            line += source[from..start].matches('\n').count();
            from = start;
            Piece { kind: lexeme.kind, text: lexeme.text, start, line }
        };
        let pieces = Lexemes::new(source).map(piece).collect();
        Reader { source, pieces, at: 0, depth: 0 }
    }

    pub(super) fn peek(&self, ahead: usize) -> Option<&Piece<'a>> {
        self.pieces.get(self.at + ahead)
    }

    pub(super) fn is(&self, ahead: usize, word: &str) -> bool {
        self.peek(ahead).is_some_and(|piece| piece.is(word))
    }

    pub(super) fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(0, word))
    }

    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    pub(super) fn take(&mut self, word: &str) -> bool {
        let found = self.is(0, word);
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, word: &str) -> Result<()> {
        if self.take(word) { Ok(()) } else { Err(self.error()) }
    }

    /// The line that is reached.
    pub(super) fn line(&self) -> usize {
        self.peek(0).or(self.pieces.last()).map_or(1, |piece| piece.line)
    }

    /// 42601 at what is reached.
    pub(super) fn error(&self) -> SqlError {
        match self.peek(0) {
            Some(piece) => SqlError::syntax(format!("syntax error at or near \"{}\"", piece.text)),
            None => SqlError::syntax("syntax error at end of input"),
        }
    }

    pub(super) fn name(&mut self) -> Result<String> {
        let name = self.peek(0).and_then(Piece::as_name).ok_or_else(|| self.error())?;
        self.advance();
        Ok(name)
    }

    /// Names with commas between.
    pub(super) fn names(&mut self) -> Result<Vec<String>> {
        let mut names = vec![self.name()?];
        while self.take(",") {
            names.push(self.name()?);
        }
        Ok(names)
    }

    /// The pieces up to one of these words that is in no parentheses and no CASE, which is not
    /// taken. There is at least one piece.
    pub(super) fn pieces_until(&mut self, ends: &[&str]) -> Result<&[Piece<'a>]> {
        let from = self.at;
        let (mut open, mut cases) = (0usize, 0usize);
        while let Some(piece) = self.peek(0) {
            let is_free = open == 0 && cases == 0;
            if is_free && ends.iter().any(|end| piece.is(end)) {
                break;
            }
            match piece.text {
                "(" | "[" => open += 1,
                ")" | "]" => open = open.saturating_sub(1),
                // Nothing goes on behind it, whatever was forgotten before.
                ";" if open == 0 => break,
                _ if piece.is("case") => cases += 1,
                _ if piece.is("end") => cases = cases.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
        }
        let is_at_end = self.peek(0).is_some_and(|piece| ends.iter().any(|end| piece.is(end)));
        if !is_at_end {
            return Err(match self.peek(0) {
                Some(_) => SqlError::syntax(format!("missing \"{}\" at end of SQL expression", ends[0])),
                None => self.error(),
            });
        }
        if self.at == from {
            return Err(SqlError::syntax(format!(
                "missing expression at or near \"{}\"",
                self.peek(0).map_or("", |piece| piece.text)
            )));
        }
        Ok(&self.pieces[from..self.at])
    }

    /// The text up to one of these words, which is not taken.
    pub(super) fn until(&mut self, ends: &[&str]) -> Result<String> {
        let source = self.source;
        let pieces = self.pieces_until(ends)?;
        let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
        Ok(source[first.start..last.end()].to_owned())
    }

    /// Expressions with commas between, up to one of these words.
    pub(super) fn expressions(&mut self, ends: &[&str]) -> Result<Vec<String>> {
        let mut all = vec![","];
        all.extend(ends);
        // What is missing is what stands at the end.
        all.rotate_left(1);
        let mut expressions = vec![self.until(&all)?];
        while self.take(",") {
            expressions.push(self.until(&all)?);
        }
        Ok(expressions)
    }
}
