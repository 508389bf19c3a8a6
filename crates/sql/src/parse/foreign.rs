//! Statements of other systems, which the parser crate reads and PostgreSQL's grammar does not
//! have: they are errors of syntax.

use sqlparser::ast::{Ident, Statement};
use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::command::{Command, Parsed};
use super::rewrite::is;

/// Whether a statement is one of those.
pub(super) fn is_foreign(command: &Command) -> bool {
    use Statement as S;
    let Command::Sql(statement) = command else { return false };
    shows(statement)
        || matches!(
            statement.as_ref(),
            S::AlterConnector { .. }
                | S::AlterSession { .. }
                | S::Assert { .. }
                | S::AttachDatabase { .. }
                | S::Cache { .. }
                | S::Case(_)
                | S::CreateConnector(_)
                | S::CreateMacro { .. }
                | S::CreateSecret { .. }
                | S::CreateStage { .. }
                | S::CreateVirtualTable { .. }
                | S::Deny(_)
                | S::DropConnector { .. }
                | S::DropSecret { .. }
                | S::ExplainTable { .. }
                | S::ExportData(_)
                | S::Flush { .. }
                | S::If(_)
                | S::Kill { .. }
                | S::Msck(_)
                | S::Open(_)
                | S::OptimizeTable { .. }
                | S::Pragma { .. }
                | S::Print(_)
                | S::Raise(_)
                | S::RaisError { .. }
                | S::RenameTable(_)
                | S::Throw(_)
                | S::UNCache { .. }
                | S::Unload { .. }
                | S::UnlockTables
                | S::Use(_)
                | S::WaitFor(_)
                | S::While(_)
        )
}

/// Whether it is a SHOW of more than a parameter.
fn shows(statement: &Statement) -> bool {
    use Statement as S;
    matches!(
        statement,
        S::ShowCatalogs { .. }
            | S::ShowCharset(_)
            | S::ShowCollation { .. }
            | S::ShowColumns { .. }
            | S::ShowCreate { .. }
            | S::ShowDatabases { .. }
            | S::ShowFunctions { .. }
            | S::ShowObjects(_)
            | S::ShowProcessList { .. }
            | S::ShowSchemas { .. }
            | S::ShowTables { .. }
            | S::ShowViews { .. }
    )
}

/// What PostgreSQL reads in the tokens of such a statement: SHOW and one word ask for a parameter.
pub(super) fn read(tokens: &[TokenWithSpan]) -> Parsed<Command> {
    let shows = is(tokens.first(), "SHOW");
    if let [_, name] = tokens
        && let Token::Word(word) = &name.token
        && shows
    {
        let variable = vec![Ident::with_span(name.span, word.value.as_str())];
        return Ok(Command::Sql(Box::new(Statement::ShowVariable { variable })));
    }
    let begins = |words: &[&str]| words.iter().any(|word| is(tokens.first(), word));
    let place = match () {
        () if shows && !is(tokens.get(1), "CREATE") => 2,
        () if begins(&["CREATE"]) && is(tokens.get(1), "OR") => 3,
        () if begins(&["SHOW", "CREATE", "ALTER", "DROP", "EXPLAIN"]) => 1,
        () => 0,
    };
    let message = match tokens.get(place) {
        Some(found) => format!("Expected: a statement, found: {found}{}", found.span.start),
        None => "Expected: a statement, found: EOF".to_owned(),
    };
    Err(ParserError::ParserError(message))
}

#[cfg(test)]
mod tests {
    use crate::parse::parse;

    #[test]
    fn statements_of_other_systems_are_errors_of_syntax() {
        for (text, near) in [
            ("KILL 1", "KILL"),
            ("use x", "use"),
            ("PRAGMA foo", "PRAGMA"),
            ("ASSERT true", "ASSERT"),
            ("DESCRIBE t", "DESCRIBE"),
            ("SHOW COLUMNS FROM t", "FROM"),
            ("SHOW CREATE TABLE t", "CREATE"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.sqlstate, "42601", "{text}");
            assert_eq!(error.message, format!("syntax error at or near \"{near}\""), "{text}");
        }
    }
}
