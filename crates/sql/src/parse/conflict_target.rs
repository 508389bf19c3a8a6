//! `ON CONFLICT (lower(a), b) WHERE c`, of which the parser knows lists of columns only. Anything
//! else goes through it as one column whose name nothing else can have: the text of the list and
//! the condition, which are parsed where they are needed, as those of an index.
//!
//! ```text
//! ON CONFLICT (lower(a), b) WHERE c IS NULL DO NOTHING
//! ON CONFLICT ("\u{1}(lower(a), b) WHERE c IS NULL") DO NOTHING
//! ```

use sqlparser::ast::{Expr, Ident, Statement as Sql};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::command::Command;
use crate::error::{Result, SqlError};

/// Begins such a name.
const MARK: char = '\u{1}';

/// What ON CONFLICT says of the indexes it means.
#[derive(Debug)]
pub(crate) struct ConflictTarget {
    /// Columns and expressions.
    pub(crate) parts: Vec<Expr>,
    /// WHERE.
    pub(crate) predicate: Option<Expr>,
}

/// What the only name of the list stands for, unless it is a list of names.
pub(crate) fn conflict_target(names: &[Ident]) -> Result<Option<ConflictTarget>> {
    let [Ident { value, .. }] = names else { return Ok(None) };
    let Some(text) = value.strip_prefix(MARK) else { return Ok(None) };
    // Positions in this text would say nothing to whoever wrote the statement.
    let statement = super::parse_single(&format!("CREATE INDEX ON t {text}")).map_err(|mut error| {
        error.position = None;
        error
    })?;
    let Some(Command::Sql(sql)) = statement.as_ref().map(|statement| &statement.command) else {
        return Err(SqlError::syntax("syntax error in ON CONFLICT"));
    };
    let Sql::CreateIndex(index) = sql.as_ref() else {
        return Err(SqlError::syntax("syntax error in ON CONFLICT"));
    };
    let parts = index.columns.iter().map(|column| match &column.column.expr {
        // All indexes have the one order.
        Expr::Collate { expr, .. } => expr.as_ref().clone(),
        expr => expr.clone(),
    });
    let parts = parts.collect();
    Ok(Some(ConflictTarget { parts, predicate: index.predicate.clone() }))
}

fn is(token: Option<&TokenWithSpan>, keyword: Keyword) -> bool {
    matches!(token.map(|token| &token.token),
        Some(Token::Word(word)) if word.keyword == keyword && word.quote_style.is_none())
}

/// The tokens with such targets rewritten.
pub(super) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is(Some(token), Keyword::CONFLICT)) {
        return tokens;
    }
    let mut out = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let begins =
            at >= 2 && is(tokens.get(at - 2), Keyword::ON) && is(tokens.get(at - 1), Keyword::CONFLICT);
        match begins.then(|| target(&tokens, at)).flatten() {
            Some((text, end)) => {
                let make = |token| TokenWithSpan { token, span: tokens[at].span };
                let value = format!("{MARK}{text}");
                let name = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
                out.extend([Token::LParen, Token::Word(name), Token::RParen].map(make));
                at = end;
            }
            None => {
                out.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    out
}

/// The text of the target that begins at a place, and where it ends; none for a list of names.
fn target(tokens: &[TokenWithSpan], start: usize) -> Option<(String, usize)> {
    if tokens.get(start)?.token != Token::LParen {
        return None;
    }
    let mut depth = 0;
    let mut end = start;
    let mut is_list = true;
    while let Some(token) = tokens.get(end) {
        match &token.token {
            Token::LParen => {
                is_list &= end == start;
                depth += 1;
            }
            Token::RParen => depth -= 1,
            Token::Word(word) if word.keyword == Keyword::DO && depth == 0 => break,
            // A name is alone between commas; what stands behind the list is no name of it.
            Token::Word(_) => {
                let next = tokens.get(end + 1).map(|next| &next.token);
                is_list &= depth > 0 && matches!(next, Some(Token::Comma | Token::RParen));
            }
            Token::Comma => {}
            _ => is_list = false,
        }
        end += 1;
    }
    if is_list || end == tokens.len() {
        return None;
    }
    let text: Vec<String> = tokens[start..end].iter().map(|token| written(&token.token)).collect();
    Some((text.join(" "), end))
}

/// A token as text that gives the same token. Those of texts and names have lost their quotes.
fn written(token: &Token) -> String {
    match token {
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::UnicodeStringLiteral(text) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        Token::Word(Word { value, quote_style: Some(quote), .. }) => {
            format!("{quote}{}{quote}", value.replace(*quote, &format!("{quote}{quote}")))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse_single;
    use sqlparser::ast;

    fn target_of(text: &str) -> Option<(Vec<String>, Option<String>)> {
        let statement = parse_single(text).expect(text).expect(text);
        let Command::Sql(sql) = &statement.command else { panic!("{text}") };
        let Sql::Insert(insert) = sql.as_ref() else { panic!("{text}") };
        let Some(ast::OnInsert::OnConflict(on)) = &insert.on else { panic!("{text}") };
        let Some(ast::ConflictTarget::Columns(names)) = &on.conflict_target else { panic!("{text}") };
        let target = conflict_target(names).expect(text)?;
        let parts = target.parts.iter().map(ToString::to_string).collect();
        Some((parts, target.predicate.map(|predicate| predicate.to_string())))
    }

    #[test]
    fn targets_that_are_no_lists_of_names() {
        let begin = "INSERT INTO t VALUES (1, 'x') ON CONFLICT";
        let of = |target: &str| target_of(&format!("{begin} {target}"));
        assert_eq!(of("(a) DO NOTHING"), None);
        assert_eq!(of("(a, \"B\") DO UPDATE SET a = 1 WHERE t.a > 0"), None);
        let parts = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
        assert_eq!(of("(lower(a), b) DO NOTHING"), Some((parts(&["lower(a)", "b"]), None)));
        assert_eq!(
            of("(a) WHERE b = 'it''s' AND \"C\" IS NULL DO UPDATE SET a = 2 WHERE t.b = 'y'"),
            Some((parts(&["a"]), Some("b = 'it''s' AND \"C\" IS NULL".to_owned())))
        );
        assert_eq!(of("((a + 1), c text_pattern_ops) DO NOTHING"), Some((parts(&["(a + 1)", "c"]), None)));
    }
}
