//! How deep a syntax tree can become, bounded from the tokens alone.
//!
//! Trees get deep in two ways: by nesting (brackets, CASE, NOT and other prefixes) and by chains of binary operators, which lean
//! to the left (`a OR b OR c` is `((a OR b) OR c)`). A token adds one level at most, until the bracket it is in closes or a
//! comma begins the next item. So the largest sum over all open brackets bounds the depth.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Result, SqlError, sqlstate};

/// Deepest tree accepted.
pub(super) const LIMIT: usize = 20_000;
/// Trees this deep are handled on any stack.
pub(crate) const SHALLOW: usize = 100;
/// Stack needed for one level of a tree by what does not look after itself (copying, dropping, comparing, evaluating), generously:
/// without optimization a copy takes more than 4 KB a level.
const BYTES_A_LEVEL: usize = 8 * 1024;

/// Whether the token may make the tree one level deeper.
fn deepens(token: &Token) -> bool {
    match token {
        Token::Word(word) => {
            word.quote_style.is_none()
                && matches!(
                    word.keyword,
                    Keyword::AND
                        | Keyword::OR
                        | Keyword::NOT
                        | Keyword::IS
                        | Keyword::IN
                        | Keyword::LIKE
                        | Keyword::ILIKE
                        | Keyword::BETWEEN
                        | Keyword::CASE
                        | Keyword::SELECT
                        | Keyword::JOIN
                        | Keyword::UNION
                        | Keyword::INTERSECT
                        | Keyword::EXCEPT
                        | Keyword::COLLATE
                        | Keyword::AT
                        | Keyword::EXPLAIN
                )
        }
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::Placeholder(_)
        | Token::Whitespace(_)
        | Token::Period
        | Token::SemiColon
        | Token::Comma => false,
        _ => true,
    }
}

/// The bound on the depth of these tokens' tree. 54001 beyond [`LIMIT`].
pub(super) fn check(tokens: &[TokenWithSpan]) -> Result<usize> {
    // Levels added by the open brackets around, and within the innermost one since its last comma.
    let mut open: Vec<usize> = vec![];
    let (mut outside, mut here, mut worst) = (0usize, 0usize, 0usize);
    for token in tokens {
        match token.token {
            Token::LParen | Token::LBracket => {
                open.push(here);
                outside += here + 1;
                here = 0;
            }
            Token::RParen | Token::RBracket => {
                if let Some(before) = open.pop() {
                    outside -= before + 1;
                    here = before;
                }
            }
            Token::Comma => here = 0,
            ref token if deepens(token) => here += 1,
            _ => {}
        }
        worst = worst.max(outside + here);
    }
    if worst <= LIMIT {
        return Ok(worst);
    }
    Err(SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded").with_detail(format!(
        "The statement nests or chains up to {worst} expressions; {LIMIT} are allowed."
    )))
}

/// Runs `work`, which recurses over a tree of this depth, on a stack large enough. Free for trees that are not deep.
pub(crate) fn on_large_stack<T>(depth: usize, work: impl FnOnce() -> T) -> T {
    if depth <= SHALLOW {
        return work();
    }
    stacker::maybe_grow(depth * BYTES_A_LEVEL, depth * BYTES_A_LEVEL + 1024 * 1024, work)
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::tokenizer::Tokenizer;

    fn depth(text: &str) -> usize {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location().unwrap();
        super::check(&tokens).unwrap()
    }

    #[test]
    fn counts_nesting_and_chains() {
        assert_eq!(depth("a"), 0);
        assert_eq!(depth("a = 1 OR b = 2"), 3);
        assert_eq!(depth("f(a + b, c, d + e)"), 2);
        assert_eq!(depth("((((a))))"), 4);
        assert_eq!(depth("(1, 2), (3, 4), (5, 6)"), 1);
    }
}
