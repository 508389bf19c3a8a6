//! MERGE, of which the parser crate knows other dialects only; and WITH, which may stand before it.
//!
//! ```text
//! MERGE INTO [ONLY] table [[AS] alias] USING item of FROM ON condition
//! WHEN MATCHED [AND condition] THEN { UPDATE SET ... | DELETE | DO NOTHING }
//! WHEN NOT MATCHED [AND condition] THEN
//!     { INSERT [(columns)] VALUES (...) | INSERT DEFAULT VALUES | DO NOTHING }
//! ```
//!
//! The tree is the crate's. What it has no place for is said so: DO NOTHING is an UPDATE that
//! assigns nothing, DEFAULT VALUES is an INSERT of the kind ROW, and a source with joins stands in
//! parentheses. OVERRIDING is taken out before, as of any INSERT (see `rewrite`).

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Merge, MergeAction, MergeClause, MergeClauseKind, MergeInsertExpr, MergeInsertKind, MergeUpdateExpr,
    Query, SetExpr, Statement, TableFactor, TableWithJoins, Values, With,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{IsOptional, Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::command::{expect, is_word, take};
use crate::error::{SqlError, sqlstate};

type Parsed<T> = Result<T, ParserError>;

/// The statement, if it is MERGE or begins with WITH.
pub(super) fn parse(parser: &mut Parser<'_>) -> Option<Parsed<Statement>> {
    if is_word(parser, 0, "MERGE") {
        return Some(merge(parser));
    }
    is_word(parser, 0, "WITH").then(|| after_with(parser))
}

/// Whether an action of MERGE is DO NOTHING.
pub(crate) fn does_nothing(action: &MergeAction) -> bool {
    matches!(action, MergeAction::Update(update) if update.assignments.is_empty())
}

/// 0A000 for a MERGE that begins behind these tokens, if that is in a WITH or in COPY.
pub(super) fn check_place(before: &[TokenWithSpan]) -> Result<(), SqlError> {
    let is_word = |token: &TokenWithSpan, expected: &str| matches!(&token.token, Token::Word(word) if word.value.eq_ignore_ascii_case(expected));
    let place = match before {
        [copy, open] if is_word(copy, "COPY") && open.token == Token::LParen => "COPY",
        [.., word, open]
            if (is_word(word, "AS") || is_word(word, "MATERIALIZED")) && open.token == Token::LParen =>
        {
            "WITH query"
        }
        _ => return Ok(()),
    };
    Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("MERGE not supported in {place}")))
}

fn after_with(parser: &mut Parser<'_>) -> Parsed<Statement> {
    let with_token = AttachedToken::from(parser.next_token());
    let recursive = parser.parse_keyword(Keyword::RECURSIVE);
    let cte_tables = parser.parse_comma_separated(Parser::parse_cte)?;
    let with = With { with_token, recursive, cte_tables };
    if is_word(parser, 0, "WITH") {
        return parser.expected_ref("a statement", parser.peek_token_ref());
    }
    let query = match is_word(parser, 0, "MERGE") {
        true => Query {
            with: Some(with),
            body: Box::new(SetExpr::Merge(merge(parser)?)),
            order_by: None,
            limit_clause: None,
            fetch: None,
            locks: Vec::new(),
            for_clause: None,
            settings: None,
            format_clause: None,
            pipe_operators: Vec::new(),
        },
        false => Query { with: Some(with), ..*parser.parse_query()? },
    };
    Ok(Statement::Query(Box::new(query)))
}

fn merge(parser: &mut Parser<'_>) -> Parsed<Statement> {
    let merge_token = AttachedToken::from(parser.next_token());
    expect(parser, "INTO")?;
    let table = parser.parse_table_factor()?;
    expect(parser, "USING")?;
    let source = source(parser.parse_table_and_joins()?);
    expect(parser, "ON")?;
    let on = Box::new(parser.parse_expr()?);
    let mut clauses = vec![clause(parser)?];
    while is_word(parser, 0, "WHEN") {
        clauses.push(clause(parser)?);
    }
    let optimizer_hints = Vec::new();
    let merge = Merge { merge_token, optimizer_hints, into: true, table, source, on, clauses, output: None };
    Ok(Statement::Merge(merge))
}

fn source(item: TableWithJoins) -> TableFactor {
    if item.joins.is_empty() {
        return item.relation;
    }
    TableFactor::NestedJoin { table_with_joins: Box::new(item), alias: None }
}

fn clause(parser: &mut Parser<'_>) -> Parsed<MergeClause> {
    let when_token = AttachedToken::from(parser.peek_token());
    expect(parser, "WHEN")?;
    let clause_kind = match take(parser, "NOT") {
        true => MergeClauseKind::NotMatched,
        false => MergeClauseKind::Matched,
    };
    expect(parser, "MATCHED")?;
    let predicate = match take(parser, "AND") {
        true => Some(parser.parse_expr()?),
        false => None,
    };
    expect(parser, "THEN")?;
    let action = action(parser, clause_kind)?;
    Ok(MergeClause { when_token, clause_kind, predicate, action })
}

fn action(parser: &mut Parser<'_>, kind: MergeClauseKind) -> Parsed<MergeAction> {
    let token = AttachedToken::from(parser.peek_token());
    let update = |update_token, assignments| {
        let (update_predicate, delete_predicate) = (None, None);
        MergeAction::Update(MergeUpdateExpr { update_token, assignments, update_predicate, delete_predicate })
    };
    if take(parser, "DO") {
        expect(parser, "NOTHING")?;
        return Ok(update(token, Vec::new()));
    }
    match kind {
        MergeClauseKind::Matched if take(parser, "UPDATE") => {
            expect(parser, "SET")?;
            Ok(update(token, parser.parse_comma_separated(Parser::parse_assignment)?))
        }
        MergeClauseKind::Matched if take(parser, "DELETE") => Ok(MergeAction::Delete { delete_token: token }),
        MergeClauseKind::NotMatched if take(parser, "INSERT") => {
            insert(parser, token).map(MergeAction::Insert)
        }
        _ => parser.expected_ref("an action of MERGE", parser.peek_token_ref()),
    }
}

fn insert(parser: &mut Parser<'_>, insert_token: AttachedToken) -> Parsed<MergeInsertExpr> {
    let columns = parser.parse_parenthesized_qualified_column_list(IsOptional::Optional, false)?;
    let kind_token = AttachedToken::from(parser.peek_token());
    let kind = if columns.is_empty() && take(parser, "DEFAULT") {
        expect(parser, "VALUES")?;
        MergeInsertKind::Row
    } else {
        expect(parser, "VALUES")?;
        if parser.peek_token_ref().token != Token::LParen {
            return parser.expected_ref("(", parser.peek_token_ref());
        }
        let values: Values = parser.parse_values(false, false)?;
        MergeInsertKind::Values(values)
    };
    Ok(MergeInsertExpr { insert_token, columns, kind_token, kind, insert_predicate: None })
}
