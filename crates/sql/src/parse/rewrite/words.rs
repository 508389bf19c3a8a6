//! Which words are names: PostgreSQL's own lists, in the place of those of the parser crate, which
//! reserves the words of all systems that it reads.
//!
//! ```text
//! SELECT top, 1 view      FROM t pivot JOIN u anti ON ...      INSERT INTO directory ...
//! ```

use sqlparser::ast::Expr;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::is;

/// Whether a column can be called so without AS.
pub(in crate::parse) fn is_label(keyword: Keyword) -> bool {
    !matches!(
        keyword,
        Keyword::ARRAY
            | Keyword::AS
            | Keyword::CHAR
            | Keyword::CHARACTER
            | Keyword::CREATE
            | Keyword::DAY
            | Keyword::EXCEPT
            | Keyword::FETCH
            | Keyword::FILTER
            | Keyword::FOR
            | Keyword::FROM
            | Keyword::GRANT
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::HOUR
            | Keyword::INTERSECT
            | Keyword::INTO
            | Keyword::LIMIT
            | Keyword::MINUTE
            | Keyword::MONTH
            | Keyword::NOTNULL
            | Keyword::OFFSET
            | Keyword::ON
            | Keyword::ORDER
            | Keyword::OVER
            | Keyword::OVERLAPS
            | Keyword::PRECISION
            | Keyword::RETURNING
            | Keyword::SECOND
            | Keyword::TO
            | Keyword::UNION
            | Keyword::VARYING
            | Keyword::WHERE
            | Keyword::WINDOW
            | Keyword::WITH
            | Keyword::WITHIN
            | Keyword::WITHOUT
            | Keyword::YEAR
    )
}

/// Whether a table can be called so without AS. PostgreSQL reserves some more, which nothing here
/// mistakes for a name; and SET it takes for none behind the table of UPDATE.
pub(in crate::parse) fn is_table_alias(keyword: Keyword) -> bool {
    !matches!(
        keyword,
        Keyword::ANALYZE
            | Keyword::ARRAY
            | Keyword::CROSS
            | Keyword::END
            | Keyword::EXCEPT
            | Keyword::FETCH
            | Keyword::FOR
            | Keyword::FROM
            | Keyword::FULL
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::INNER
            | Keyword::INTERSECT
            | Keyword::JOIN
            | Keyword::LATERAL
            | Keyword::LEFT
            | Keyword::LIMIT
            | Keyword::NATURAL
            | Keyword::OFFSET
            | Keyword::ON
            | Keyword::ORDER
            | Keyword::OUTER
            | Keyword::RETURNING
            | Keyword::RIGHT
            | Keyword::SELECT
            | Keyword::SET
            | Keyword::TABLESAMPLE
            | Keyword::UNION
            | Keyword::USING
            | Keyword::WHERE
            | Keyword::WINDOW
            | Keyword::WITH
    )
}

/// The name that comes next, where the crate takes it for what it would begin elsewhere: behind a
/// period all words are names (`t.user`), and some if no literal or list follows (`interval - 1`).
/// Nor may the crate read intervals of intervals, for which it does not look at the stack.
pub(in crate::parse) fn name(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    let Token::Word(word) = &parser.peek_token_ref().token else { return None };
    let behind = &parser.peek_nth_token_ref(1).token;
    let is_literal = matches!(
        behind,
        Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) | Token::DollarQuotedString(_)
    );
    let is_name = parser.get_current_token().token == Token::Period
        || matches!(word.keyword, Keyword::EXISTS | Keyword::TRIM)
        || (word.keyword == Keyword::INTERVAL && !is_literal);
    (is_name && *behind != Token::LParen).then(|| parser.parse_identifier().map(Expr::Identifier))
}

/// Words of other systems, which PostgreSQL's grammar does not have. The crate's has them where a
/// name may stand.
fn is_foreign(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::ANTI
            | Keyword::ASOF
            | Keyword::CONVERT
            | Keyword::DIRECTORY
            | Keyword::DISTRIBUTE
            | Keyword::DIV
            | Keyword::MEMBER
            | Keyword::MINUS
            | Keyword::PIVOT
            | Keyword::PREWHERE
            | Keyword::QUALIFY
            | Keyword::REGEXP
            | Keyword::RLIKE
            | Keyword::SAFE_CAST
            | Keyword::SAMPLE
            | Keyword::SEMI
            | Keyword::SORT
            | Keyword::STRAIGHT_JOIN
            | Keyword::STRUCT
            | Keyword::TOP
            | Keyword::TRY_CAST
            | Keyword::TRY_CONVERT
            | Keyword::UNPIVOT
            | Keyword::XOR
    )
}

/// Takes a word that is none of PostgreSQL's where it stands, behind these tokens, for a name.
pub(super) fn unreserve(word: &mut Word, before: &[TokenWithSpan]) {
    let is_table = word.keyword == Keyword::LOCAL
        && matches!(before, [.., insert, into] if is(Some(insert), "INSERT") && is(Some(into), "INTO"));
    if is_table || is_foreign(word.keyword) {
        word.keyword = Keyword::NoKeyword;
    }
}
