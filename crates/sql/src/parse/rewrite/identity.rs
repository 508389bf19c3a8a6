//! The options of an identity column, in the order that the parser wants.
//!
//! ```text
//! GENERATED ALWAYS AS IDENTITY (START WITH 5 INCREMENT BY 2)
//! GENERATED ALWAYS AS IDENTITY (INCREMENT BY 2 START WITH 5)
//! ```
//!
//! `SEQUENCE NAME s` becomes a number of CACHE with the name behind: see [`sequence_name_of`].

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::{Pass, dotted, is, make};
use crate::parse::alter_identity::IDENTITY;

/// Between the parts of what is put into one word.
const MARK: &str = "\u{1}";

/// The number of CACHE, if one was given, and the parts of the sequence's name, of what stands for
/// both among the options of an identity column.
pub(crate) fn sequence_name_of(number: &str) -> (Option<&str>, Vec<&str>) {
    let mut parts = number.split(MARK);
    (parts.next().filter(|number| !number.is_empty()), parts.collect())
}

impl Pass<'_> {
    /// Whether what comes is said of the identity of the column whose name was copied last.
    pub(super) fn alters_identity(&self) -> bool {
        const OPTIONS: [&str; 8] =
            ["GENERATED", "START", "INCREMENT", "MINVALUE", "MAXVALUE", "NO", "CACHE", "CYCLE"];
        let copied = |back: usize| self.out.len().checked_sub(back).and_then(|at| self.out.get(at));
        // ALTER TABLE, the table's name and ALTER come before.
        let follows_column = self.out.len() > 4
            && !is(copied(1), "COLUMN")
            && (is(copied(2), "ALTER") || (is(copied(2), "COLUMN") && is(copied(3), "ALTER")));
        let is_of_identities = match self.is(0, "SET") {
            true => OPTIONS.iter().any(|option| self.is(1, option)),
            false => self.is(0, "RESTART") || self.is(1, "IDENTITY"),
        };
        is_of_identities && follows_column && self.first == "ALTER" && is(self.tokens.get(1), "TABLE")
    }

    /// All that is said of it, in the name of a default.
    pub(super) fn alter_identity(&mut self, span: Span) {
        let mut said = IDENTITY.to_owned();
        while let Some(token) = self.peek(0) {
            if matches!(token.token, Token::Comma | Token::SemiColon | Token::EOF) {
                break;
            }
            said.push(' ');
            said.push_str(&token.token.to_string());
            self.at += 1;
        }
        let marked = Word { value: said, quote_style: Some('"'), keyword: Keyword::NoKeyword };
        self.out.extend([make("SET", span), make("DEFAULT", span)]);
        self.out.push(TokenWithSpan { token: Token::Word(marked), span });
    }

    /// The options of an identity column, in the parser's order.
    pub(super) fn identity_options(&mut self) {
        const CACHE: usize = 4;
        const ORDER: [&str; 6] = ["INCREMENT", "MINVALUE", "MAXVALUE", "START", "CACHE", "CYCLE"];
        let rank = |ahead: usize| {
            let at = if self.is(ahead, "NO") { ahead + 1 } else { ahead };
            ORDER.iter().position(|word| self.is(at, word))
        };
        let mut options: Vec<(usize, Vec<TokenWithSpan>)> = vec![];
        let mut named: Option<(String, Span)> = None;
        let mut ahead = 2;
        while let Some(token) = self.peek(ahead) {
            if token.token == Token::RParen {
                break;
            }
            if self.is(ahead, "SEQUENCE") && self.is(ahead + 1, "NAME") {
                let (parts, length) = dotted(&self.tokens[self.at + ahead + 2..]);
                named = Some((parts.join(MARK), token.span));
                ahead += 2 + length;
                continue;
            }
            let after_no = self.is(ahead - 1, "NO");
            match rank(ahead).filter(|_| !after_no) {
                Some(rank) => options.push((rank, vec![token.clone()])),
                None => match options.last_mut() {
                    Some((_, tokens)) => tokens.push(token.clone()),
                    None => break,
                },
            }
            ahead += 1;
        }
        if let Some((name, span)) = named {
            let cache = options.iter().find_map(|(rank, tokens)| match tokens.get(1).map(|t| &t.token) {
                Some(Token::Number(number, _)) if *rank == CACHE => Some(number.clone()),
                _ => None,
            });
            options.retain(|(rank, _)| *rank != CACHE);
            let number = Token::Number(format!("{}{MARK}{name}", cache.unwrap_or_default()), false);
            options.push((CACHE, vec![make("CACHE", span), TokenWithSpan { token: number, span }]));
        }
        options.sort_by_key(|(rank, _)| *rank);
        self.copy();
        self.copy();
        self.at += ahead - 2;
        self.out.extend(options.into_iter().flat_map(|(_, tokens)| tokens));
    }
}
