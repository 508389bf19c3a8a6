//! COLLATE. There is one order of texts, so behind an expression it says nothing and goes; of a
//! column and of a part of an index it stays, to be kept and told.

use sqlparser::ast;
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::{Pass, dotted, innermost_open, is, make};
use crate::catalog::Collation;
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::{fold, fold_word};

/// Begins the name of a column that ALTER COLUMN TYPE gives a collation, which follows with a
/// space, and then the name. The parser has no place for it.
const COLLATED: &str = "\u{1}collate ";

/// A column's name with the collation that ALTER COLUMN TYPE gives it.
pub(crate) fn split_collated(name: &ast::Ident) -> (String, Option<Collation>) {
    match name.value.strip_prefix(COLLATED).and_then(|rest| rest.split_once(' ')) {
        Some((collation, column)) => (column.to_owned(), Collation::named(collation)),
        None => (fold(name), None),
    }
}

impl Pass<'_> {
    pub(super) fn collate(&mut self) -> Result<()> {
        let (name, length) = dotted(&self.tokens[self.at + 1..]);
        let collation = match name.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [] => {
                self.copy();
                return Ok(());
            }
            [name] | ["pg_catalog", name] if Collation::is_of_locale(name) => {
                return Err(SqlError::unsupported(format_args!("collation \"{name}\"")));
            }
            [name] | ["pg_catalog", name] => Collation::named(name),
            _ => None,
        };
        let Some(collation) = collation else {
            return Err(SqlError::new(
                sqlstate::UNDEFINED_OBJECT,
                format!("collation \"{}\" for encoding \"UTF8\" does not exist", name.join(".")),
            ));
        };
        let span = self.tokens[self.at].span;
        if self.is_declared() {
            let name = quoted(collation.name().to_owned());
            self.out.push(make("COLLATE", span));
            self.out.push(TokenWithSpan { token: Token::Word(name), span });
        } else if let Some(at) = self.retyped_column() {
            self.collate_column(at, collation)?;
        }
        self.at += 1 + length;
        Ok(())
    }

    /// Whether it stands in a column's declaration or behind a part of an index.
    fn is_declared(&self) -> bool {
        match self.first.as_str() {
            "CREATE" => {
                let Some(open) = self.out.iter().position(|token| token.token == Token::LParen) else {
                    return false;
                };
                let has =
                    |tokens: &[TokenWithSpan], word: &str| tokens.iter().any(|token| is(Some(token), word));
                let kind = &self.out[..open.min(4)];
                (has(kind, "TABLE") || has(kind, "INDEX"))
                    && !has(&self.out[..open], "AS")
                    && innermost_open(&self.out) == Some(open)
            }
            "ALTER" => is(self.out.get(self.action()), "ADD") && innermost_open(&self.out).is_none(),
            _ => false,
        }
    }

    /// Where the action of ALTER TABLE begins that is being read; of other statements, behind all.
    fn action(&self) -> usize {
        if self.first != "ALTER" || !is(self.out.get(1), "TABLE") {
            return self.out.len();
        }
        let mut depth = 0;
        let comma = self.out.iter().rposition(|token| {
            match token.token {
                Token::RParen | Token::RBracket => depth += 1,
                Token::LParen | Token::LBracket => depth -= 1,
                Token::Comma => return depth == 0,
                _ => {}
            }
            false
        });
        comma.map_or_else(|| self.behind_table(), |at| at + 1)
    }

    /// What follows the name of the table of ALTER TABLE.
    fn behind_table(&self) -> usize {
        let mut at = 2;
        if is(self.out.get(at), "IF") {
            at += 2;
        }
        if is(self.out.get(at), "ONLY") {
            at += 1;
        }
        at + dotted(self.out.get(at..).unwrap_or_default()).1
    }

    /// The place of the column whose new type ALTER TABLE is saying; not within USING.
    fn retyped_column(&self) -> Option<usize> {
        let action = self.action();
        if !is(self.out.get(action), "ALTER") || innermost_open(&self.out).is_some() {
            return None;
        }
        let column = action + 1 + usize::from(is(self.out.get(action + 1), "COLUMN"));
        let behind = column + 1;
        let says_set = is(self.out.get(behind), "SET") && is(self.out.get(behind + 1), "DATA");
        let ty = behind + if says_set { 2 } else { 0 };
        let converts = self.out.iter().skip(ty).any(|token| is(Some(token), "USING"));
        (is(self.out.get(ty), "TYPE") && !converts).then_some(column)
    }

    /// Marks the name of a column that gets a new type with its collation.
    fn collate_column(&mut self, at: usize, collation: Collation) -> Result<()> {
        let Some(TokenWithSpan { token: Token::Word(word), .. }) = self.out.get_mut(at) else {
            return Ok(());
        };
        if word.value.starts_with(COLLATED) {
            return Err(SqlError::syntax("syntax error at or near \"COLLATE\""));
        }
        *word = quoted(format!("{COLLATED}{} {}", collation.name(), fold_word(word)));
        Ok(())
    }
}

fn quoted(value: String) -> Word {
    Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword }
}
