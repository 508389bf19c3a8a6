//! `WHERE CURRENT OF c` of UPDATE and DELETE, which the parser does not know: the condition goes
//! through it as a name that nothing else can have. And the name of the column by which a cursor
//! knows its rows again.

use sqlparser::ast::{self, Expr, GroupByExpr, Ident, SelectItem, SetExpr};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::rewrite::is;
use crate::identifier::fold_word;

/// Begins such a name.
const MARK: &str = "\u{1}current of ";

/// Names the key of a row in its table, in the queries of cursors only: no text may (see
/// [`reserved`](super::reserved)).
pub(crate) const ROW_KEY: &str = "\u{1}row key";

/// The cursor whose row is meant, if the condition says so.
pub(crate) fn current_of(condition: &Expr) -> Option<&str> {
    match condition {
        Expr::Identifier(name) => name.value.strip_prefix(MARK),
        _ => None,
    }
}

/// The query with the keys of its rows behind its columns, if it may be simple enough for that.
pub(crate) fn with_row_key(query: &ast::Query) -> Option<Box<ast::Query>> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let is_ungrouped = matches!(&select.group_by,
        GroupByExpr::Expressions(keys, modifiers) if keys.is_empty() && modifiers.is_empty());
    let is_of_one = matches!(select.from.as_slice(), [from] if from.joins.is_empty());
    if query.with.is_some() || select.distinct.is_some() || select.having.is_some() {
        return None;
    }
    if !is_ungrouped || !is_of_one {
        return None;
    }
    let mut query = Box::new(query.clone());
    if let SetExpr::Select(select) = query.body.as_mut() {
        let key = Expr::Identifier(Ident::with_quote('"', ROW_KEY));
        select.projection.push(SelectItem::UnnamedExpr(key));
    }
    Some(query)
}

/// The tokens with such a condition rewritten: of UPDATE and DELETE, also behind PREPARE and
/// EXPLAIN.
pub(super) fn rewrite(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let changes = |token: Option<&TokenWithSpan>| is(token, "UPDATE") || is(token, "DELETE");
    let first = tokens.first();
    if !changes(first) && !is(first, "PREPARE") && !is(first, "EXPLAIN") {
        return tokens;
    }
    let words = ["WHERE", "CURRENT", "OF"];
    let begins = |at: &usize| words.iter().enumerate().all(|(ahead, word)| is(tokens.get(*at + ahead), word));
    let Some(at) = (0..tokens.len()).find(begins) else { return tokens };
    if !tokens[..at].iter().any(|token| changes(Some(token))) {
        return tokens;
    }
    let name = match tokens.get(at + 3).map(|token| &token.token) {
        Some(Token::Word(word)) => fold_word(word),
        _ => return tokens,
    };
    let marked = Word { value: format!("{MARK}{name}"), quote_style: Some('"'), keyword: Keyword::NoKeyword };
    let span = tokens[at + 1].span;
    tokens.splice(at + 1..at + 4, [TokenWithSpan { token: Token::Word(marked), span }]);
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Command, parse_single};

    #[test]
    fn conditions_that_mean_the_row_of_a_cursor() {
        for (text, cursor) in [
            ("UPDATE t SET a = 1 WHERE CURRENT OF c RETURNING a", Some("c")),
            ("UPDATE t SET a = 1 WHERE current of \"C d\"", Some("C d")),
            ("UPDATE t SET a = 1 WHERE a = 1", None),
        ] {
            let statement = parse_single(text).expect(text).expect(text);
            let Command::Sql(sql) = &statement.command else { panic!("{text}") };
            let ast::Statement::Update(update) = sql.as_ref() else { panic!("{text}") };
            assert_eq!(update.selection.as_ref().and_then(current_of), cursor, "{text}");
        }
        for text in [
            "PREPARE q (int) AS UPDATE t SET a = $1 WHERE CURRENT OF c",
            "EXPLAIN (ANALYZE) DELETE FROM t WHERE CURRENT OF c",
        ] {
            parse_single(text).expect(text).expect(text);
        }
        let text = "EXPLAIN SELECT a FROM t WHERE CURRENT OF c";
        let statement = parse_single(text).expect(text).expect(text);
        assert!(matches!(statement.command, Command::Unsupported(_)), "{statement:?}");
    }
}
