//! Frames of windows: offsets that are strings, and EXCLUDE, which the parser does not know.

use sqlparser::ast::Ident;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::{Pass, innermost_open};
use crate::identifier::fold_word;

/// Begins the name of a window that leaves out rows.
const EXCLUSION: char = '\u{1}';

/// What such a name says: which rows are left out (`c`: the current one, `g`: its group, `t`: its
/// ties), and the name that was there, if it is not empty. None for any other name.
pub(crate) fn exclusion_of(name: &Ident) -> Option<(char, &str)> {
    let mut rest = name.value.strip_prefix(EXCLUSION)?.chars();
    Some((rest.next()?, rest.as_str()))
}

impl Pass<'_> {
    /// A string that begins a frame's offset: the crate takes it for an interval, and nothing may
    /// follow then.
    pub(super) fn frame_offset(&mut self) {
        if let Some(TokenWithSpan { token: Token::SingleQuotedString(_), span }) = self.peek(0) {
            self.out.push(TokenWithSpan { token: Token::LParen, span: *span });
            self.copy();
            self.out.push(TokenWithSpan { token: Token::RParen, span: *span });
        }
    }

    /// EXCLUDE at the end of a window. It goes into a name at the window's beginning.
    pub(super) fn exclusion(&mut self) {
        let (mark, length) = if self.is(1, "CURRENT") && self.is(2, "ROW") {
            (Some('c'), 3)
        } else if self.is(1, "GROUP") {
            (Some('g'), 2)
        } else if self.is(1, "TIES") {
            (Some('t'), 2)
        } else if self.is(1, "NO") && self.is(2, "OTHERS") {
            (None, 3)
        } else {
            return self.copy();
        };
        if !matches!(self.peek(length).map(|token| &token.token), Some(Token::RParen)) {
            return self.copy();
        }
        let (Some(mark), Some(open)) = (mark, innermost_open(&self.out)) else {
            self.at += length;
            return;
        };
        let span = self.out[open].span;
        let clause = ["PARTITION", "ORDER", "ROWS", "RANGE", "GROUPS"];
        let begins = |name: &Word| clause.iter().any(|word| name.value.eq_ignore_ascii_case(word));
        let base = match self.out.get(open + 1).map(|token| &token.token) {
            Some(Token::Word(name)) if name.quote_style.is_some() || !begins(name) => Some(fold_word(name)),
            _ => None,
        };
        if base.is_some() {
            self.out.remove(open + 1);
        }
        let value = format!("{EXCLUSION}{mark}{}", base.unwrap_or_default());
        let marked = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
        self.out.insert(open + 1, TokenWithSpan { token: Token::Word(marked), span });
        self.at += length;
    }
}
