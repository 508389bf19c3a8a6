//! Queries in parentheses where the parser crate takes what they begin with for something else:
//! VALUES for a function, and the first part of `(SELECT ...) UNION (SELECT ...)` for an operand.
//!
//! Whether a parenthesis holds a query is settled by what is in it first, and, where that is a
//! query in parentheses itself, by what stands behind it. So it is found for all of them in one
//! pass, and not by looking ahead from each, which would take the square of their depth.
//!
//! ```text
//! ((SELECT 1))              a query         ((SELECT 1) + 1)        an expression
//! ((SELECT 1) UNION ...)    a query         ((SELECT 1), 2)         a list
//! ```

use sqlparser::ast::Expr;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

/// What is in a parenthesis, as far as it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    /// A query that begins with its own first word.
    Query,
    /// A query in parentheses, with nothing behind it.
    Enclosed,
    /// A query that begins with one in parentheses.
    Continued,
    Other,
}

impl Holds {
    /// With one more token that is no parenthesis.
    fn with(self, token: &Token) -> Holds {
        let keyword = match token {
            Token::Word(word) => word.keyword,
            _ => Keyword::NoKeyword,
        };
        match (self, keyword) {
            (Holds::Nothing, Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE) => {
                Holds::Query
            }
            (
                Holds::Enclosed,
                Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
                | Keyword::ORDER
                | Keyword::LIMIT
                | Keyword::OFFSET
                | Keyword::FETCH
                | Keyword::FOR,
            ) => Holds::Continued,
            (Holds::Nothing | Holds::Enclosed, _) => Holds::Other,
            _ => self,
        }
    }

    fn is_query(self) -> bool {
        matches!(self, Holds::Query | Holds::Enclosed | Holds::Continued)
    }
}

/// The parentheses of a text that hold a query.
#[derive(Debug, Default)]
pub(super) struct Queries {
    /// The places of the tokens that open them, growing, and whether the query is
    /// [`Holds::Continued`].
    found: Vec<(usize, bool)>,
}

impl Queries {
    /// Those of these tokens, each of which is looked at once.
    pub(super) fn of<'a>(tokens: impl Iterator<Item = &'a Token>) -> Queries {
        let mut found = vec![];
        let mut open: Vec<(usize, Holds)> = vec![];
        for (at, token) in tokens.enumerate() {
            match token {
                Token::LParen => {
                    if let Some((_, around)) = open.last_mut()
                        && *around == Holds::Enclosed
                    {
                        *around = Holds::Other;
                    }
                    open.push((at, Holds::Nothing));
                }
                Token::RParen => {
                    let Some((place, holds)) = open.pop() else { continue };
                    if holds.is_query() {
                        found.push((place, holds == Holds::Continued));
                    }
                    // It was the first that is in the one around.
                    if let Some((_, around)) = open.last_mut()
                        && *around == Holds::Nothing
                    {
                        *around = if holds.is_query() { Holds::Enclosed } else { Holds::Other };
                    }
                }
                token => {
                    if let Some((_, holds)) = open.last_mut() {
                        *holds = holds.with(token);
                    }
                }
            }
        }
        found.sort_unstable();
        Queries { found }
    }

    /// Whether what is in the parenthesis at this place is a query.
    pub(super) fn holds(&self, place: usize) -> bool {
        self.find(place).is_some()
    }

    /// Whether it is one whose first part is in parentheses, behind which it goes on.
    pub(super) fn continues(&self, place: usize) -> bool {
        self.find(place) == Some(true)
    }

    fn find(&self, place: usize) -> Option<bool> {
        let at = self.found.binary_search_by_key(&place, |(place, _)| *place).ok()?;
        Some(self.found[at].1)
    }
}

/// The place of the token that comes next. There is no white space among those that are parsed.
pub(super) fn next_place(parser: &Parser<'_>) -> usize {
    let current = parser.get_current_index();
    // At the begin there is no current token, and its place is the next one's.
    current + usize::from(!std::ptr::eq(parser.token_at(current), parser.peek_token_ref()))
}

/// Whether what comes next is the operand of ANY, SOME or ALL, whose bracket was taken already.
pub(super) fn is_quantified(parser: &Parser<'_>) -> bool {
    let bracket = parser.get_current_index();
    if parser.token_at(bracket).token != Token::LParen {
        return false;
    }
    let mut before = (0..bracket).rev().map(|at| &parser.token_at(at).token);
    let Some(Token::Word(word)) = before.find(|token| !matches!(token, Token::Whitespace(_))) else {
        return false;
    };
    matches!(word.keyword, Keyword::ANY | Keyword::SOME | Keyword::ALL)
}

/// A query in parentheses as a value.
pub(super) fn query_in_parentheses(parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
    parser.advance_token();
    let query = parser.parse_query()?;
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Subquery(query))
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::tokenizer::Tokenizer;

    use super::*;

    /// The tokens without white space.
    fn tokens(text: &str) -> Vec<Token> {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize().unwrap();
        tokens.into_iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect()
    }

    #[test]
    fn parentheses_that_hold_queries_are_found() {
        for (text, expected) in [
            ("(SELECT 1)", vec![(0, false)]),
            ("((SELECT 1))", vec![(0, false), (1, false)]),
            ("((SELECT 1) UNION (SELECT 2))", vec![(0, true), (1, false), (6, false)]),
            ("(((VALUES (1))) LIMIT 1)", vec![(0, true), (1, false), (2, false)]),
            ("((SELECT 1) + 1)", vec![(1, false)]),
            ("((SELECT 1), (SELECT 2))", vec![(1, false), (6, false)]),
            ("((SELECT 1) (SELECT 2))", vec![(1, false), (5, false)]),
            ("((a) UNION b)", vec![]),
            ("(\"select\" 1)", vec![]),
            ("f((SELECT 1))", vec![(1, false), (2, false)]),
            (")(SELECT 1", vec![]),
        ] {
            assert_eq!(Queries::of(tokens(text).iter()).found, expected, "{text}");
        }
    }

    /// The square of so deep a text would take minutes, and a recursion all of the stack.
    #[test]
    fn queries_are_found_however_deep() {
        let depth = 100_000;
        let text = format!("{}SELECT 1{} UNION SELECT 2)", "(".repeat(depth), ")".repeat(depth - 1));
        let found = Queries::of(tokens(&text).iter()).found;
        let expected: Vec<_> = (0..depth).map(|place| (place, place == 0)).collect();
        assert!(found == expected, "{} are found", found.len());
    }
}
