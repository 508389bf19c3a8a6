//! How deep a syntax tree can become, bounded from the tokens alone.
//!
//! Trees get deep in two ways: by nesting (brackets, CASE, NOT and other prefixes) and by chains of
//! binary operators, which lean to the left (`a OR b OR c` is `((a OR b) OR c)`). A token adds one
//! level at most, or two if it is an operator before an operand that begins with another (`dialect`
//! puts parentheses there), until the bracket it is in closes or a comma begins the next item. So
//! the largest sum over all open brackets bounds the depth.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::error::{Result, SqlError, sqlstate};

/// Deepest tree accepted.
pub(super) const LIMIT: usize = 20_000;
/// Most parentheses that may be opened one directly in the other where a table is expected.
const TABLE_PARENTHESES: usize = 1_000;
/// Most types `TABLE(...)` of one statement. PostgreSQL has none but behind RETURNS.
const TABLE_TYPES: usize = 8;
/// Most tokens of an operator that is named with its schema: the word, and what its parentheses
/// hold.
const NAMED_OPERATOR: usize = 6;
/// Trees this deep are handled on any stack.
pub(crate) const SHALLOW: usize = 100;
/// Stack that the parser has left at least where it looks at it.
const PARSER_RED_ZONE: usize = 512 * 1024;
/// Stack needed for one level of a tree by what does not look after itself (copying, dropping,
/// comparing, evaluating), generously. Without optimization a copy of a call within a call takes
/// more than 8 KB.
const BYTES_A_LEVEL: usize = if cfg!(debug_assertions) { 32 * 1024 } else { 8 * 1024 };

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
                        | Keyword::SIMILAR
                        | Keyword::OVERLAPS
                        | Keyword::NOTNULL
                        | Keyword::OPERATOR
                        | Keyword::CASE
                        | Keyword::SELECT
                        | Keyword::JOIN
                        | Keyword::UNION
                        | Keyword::INTERSECT
                        | Keyword::EXCEPT
                        | Keyword::COLLATE
                        | Keyword::AT
                        | Keyword::EXPLAIN
                        | Keyword::DESCRIBE
                        | Keyword::PREPARE
                        | Keyword::INTERVAL
                        | Keyword::PRIOR
                        | Keyword::CONNECT_BY_ROOT
                        | Keyword::BEGIN
                        | Keyword::IF
                        | Keyword::WHILE
                )
        }
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::Placeholder(_)
        | Token::Whitespace(_)
        // No statement has such a character, so the parser stops at the first.
        | Token::Char(_)
        | Token::Period
        | Token::SemiColon
        | Token::Comma => false,
        _ => true,
    }
}

/// Whether the token may be an operator before an operand that begins with an operator, too.
fn gets_parentheses(tokens: &[TokenWithSpan], at: usize) -> bool {
    let length = match &tokens[at].token {
        Token::Minus
        | Token::Plus
        | Token::Tilde
        | Token::AtSign
        | Token::PGSquareRoot
        | Token::PGCubeRoot => Some(1),
        // OPERATOR(pg_catalog.-)
        Token::Word(word) if word.keyword == Keyword::OPERATOR => {
            let closes = |token: &TokenWithSpan| token.token == Token::RParen;
            tokens[at..].iter().take(NAMED_OPERATOR).position(closes).map(|close| close + 1)
        }
        _ => None,
    };
    let Some(length) = length else { return false };
    let mut behind = tokens[at + length..].iter().map(|token| &token.token);
    let next = behind.find(|token| !matches!(token, Token::Whitespace(_)));
    let begins = |next: &Token| !matches!(next, Token::LParen | Token::LBracket) && deepens(next);
    next.is_some_and(begins)
}

/// The bound on the depth of these tokens' tree. 54001 beyond [`LIMIT`], and where the parser would
/// take too long.
pub(super) fn check(tokens: &[TokenWithSpan]) -> Result<usize> {
    check_up_to(tokens, LIMIT)
}

/// The same with another limit.
pub(super) fn check_up_to(tokens: &[TokenWithSpan], limit: usize) -> Result<usize> {
    // Levels added by the open brackets around, and within the innermost one since its last comma.
    let mut open: Vec<usize> = vec![];
    let (mut outside, mut here, mut worst) = (0usize, 0usize, 0usize);
    let mut table_types = 0;
    for (at, token) in tokens.iter().enumerate() {
        if opens_table_type(tokens, at) {
            table_types += 1;
            if table_types > TABLE_TYPES {
                return Err(too_complex("Types of tables are nested."));
            }
        }
        match token.token {
            Token::LParen | Token::LBracket => {
                open.push(here);
                outside += here + 1;
                here = 0;
            }
            Token::RParen | Token::RBracket => {
                if let Some(before) = open.pop() {
                    outside -= before + 1;
                    // `int[][]` is an array of arrays: each bracket is around all before it.
                    here = before + usize::from(token.token == Token::RBracket);
                }
            }
            Token::Comma => here = 0,
            ref token if deepens(token) => here += 1 + usize::from(gets_parentheses(tokens, at)),
            _ => {}
        }
        worst = worst.max(outside + here);
    }
    if worst <= limit {
        check_table_parentheses(tokens)?;
        return Ok(worst);
    }
    Err(too_complex(format!("The statement nests or chains up to {worst} expressions; {limit} are allowed.")))
}

fn too_complex(detail: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded").with_detail(detail)
}

/// Whether the token opens `TABLE(`. The crate takes that for a type and reads the types of its
/// columns without a look at the stack.
fn opens_table_type(tokens: &[TokenWithSpan], at: usize) -> bool {
    let before = tokens[..at].iter().rev().find(|token| !matches!(token.token, Token::Whitespace(_)));
    tokens[at].token == Token::LParen
        && before.is_some_and(
            |before| matches!(&before.token, Token::Word(word) if word.keyword == Keyword::TABLE),
        )
}

/// Whether a table may follow, so that parentheses may be about tables or about a query.
fn introduces_table(token: &Token) -> bool {
    match token {
        Token::Comma => true,
        Token::Word(word) => {
            word.quote_style.is_none()
                && matches!(
                    word.keyword,
                    Keyword::FROM
                        | Keyword::JOIN
                        | Keyword::APPLY
                        | Keyword::LATERAL
                        | Keyword::USING
                        | Keyword::INTO
                        | Keyword::UPDATE
                )
        }
        _ => false,
    }
}

/// Refuses long runs of parentheses where a table is expected: for each of them the parser first
/// tries a query, down to the innermost, then a join, so that work grows with the square of their
/// number.
fn check_table_parentheses(tokens: &[TokenWithSpan]) -> Result<()> {
    let (mut run, mut table) = (0, false);
    for token in tokens {
        match token.token {
            Token::LParen if table => run += 1,
            Token::Whitespace(_) => {}
            ref token => (run, table) = (0, introduces_table(token)),
        }
        if run > TABLE_PARENTHESES {
            return Err(too_complex(format!(
                "More than {TABLE_PARENTHESES} parentheses are opened where a table is expected."
            )));
        }
    }
    Ok(())
}

/// Sets how much stack the parser makes sure of where it looks at it. Between two such places it
/// calls functions that use more than the 128 KB it would make sure of: a query in FROM within a
/// join within a function's arguments.
pub(super) fn guard_parser_stack() {
    recursive::set_minimum_stack_size(PARSER_RED_ZONE);
}

/// Runs `work`, which recurses over a tree of this depth, on a stack large enough. Free for trees
/// that are not deep.
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
        assert_eq!(depth("- - -a"), 5);
        assert_eq!(depth("a - b"), 1);
        assert_eq!(depth("a NOTNULL NOTNULL NOTNULL"), 3);
        assert_eq!(depth("a SIMILAR TO b SIMILAR TO c"), 2);
        assert_eq!(depth("a OVERLAPS b OVERLAPS c"), 2);
        // Of the last one there is what is in its parentheses, too.
        assert_eq!(depth("a OPERATOR(||) b OPERATOR(||) c"), 4);
        assert_eq!(depth("OPERATOR(-)OPERATOR(-)a"), 6);
    }
}
