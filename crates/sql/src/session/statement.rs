//! Statements, and the words PostgreSQL has for them.

use sqlparser::ast;

use crate::catalog::RoutineKind;
pub use crate::parse::Statement;
use crate::parse::{Command, DomainStatement, MipOperation};

/// What CommandComplete says of a statement that returns no count, and what messages call it.
pub(crate) fn tag(command: &Command) -> &'static str {
    match command {
        Command::Empty => "",
        Command::Sql(statement) => sql_tag(statement),
        Command::Fetch { skip: false, .. } => "FETCH",
        Command::Fetch { skip: true, .. } => "MOVE",
        Command::PrepareTransaction(_) => "PREPARE TRANSACTION",
        Command::CommitPrepared(_) => "COMMIT PREPARED",
        Command::RollbackPrepared(_) => "ROLLBACK PREPARED",
        Command::Mip(operation, _) => operation.words(),
        Command::SetConstraints { .. } => "SET CONSTRAINTS",
        Command::Maintenance { command, .. } => command,
        Command::CreateSequence { .. } => "CREATE SEQUENCE",
        Command::AlterSequence { .. } => "ALTER SEQUENCE",
        Command::AlterRelation(alter) => alter.tag(),
        Command::AlterSettings(alter) => alter.tag(),
        Command::CreateRoutine(create) => match create.kind {
            RoutineKind::Function => "CREATE FUNCTION",
            RoutineKind::Procedure => "CREATE PROCEDURE",
        },
        Command::DropRoutine(drop) => match drop.kind {
            Some(RoutineKind::Function) => "DROP FUNCTION",
            Some(RoutineKind::Procedure) => "DROP PROCEDURE",
            None => "DROP ROUTINE",
        },
        Command::Do { .. } => "DO",
        Command::Domain(statement) => match statement.as_ref() {
            DomainStatement::Create { .. } => "CREATE DOMAIN",
            DomainStatement::Alter { .. } => "ALTER DOMAIN",
            DomainStatement::Drop { .. } => "DROP DOMAIN",
            DomainStatement::CommentOnConstraint { .. } => "COMMENT",
        },
        Command::CreateSchema(_) => "CREATE SCHEMA",
        Command::Backup => "BACKUP",
        Command::Role(statement) => statement.tag(),
        Command::Database(statement) => statement.tag(),
        Command::Grant(statement) => {
            if statement.grant {
                "GRANT"
            } else {
                "REVOKE"
            }
        }
        Command::DefaultPrivileges(_) => "ALTER DEFAULT PRIVILEGES",
        Command::Owner(statement) => statement.tag(),
        Command::Comment(_) => "COMMENT",
        Command::Unsupported(name) => name,
    }
}

fn sql_tag(statement: &ast::Statement) -> &'static str {
    use ast::Statement as S;
    match statement {
        S::Query(query) => match query.body.as_ref() {
            ast::SetExpr::Insert(_) => "INSERT",
            ast::SetExpr::Update(_) => "UPDATE",
            ast::SetExpr::Delete(_) => "DELETE",
            ast::SetExpr::Merge(_) => "MERGE",
            _ => "SELECT",
        },
        S::Insert(_) => "INSERT",
        S::Update(_) => "UPDATE",
        S::Delete(_) => "DELETE",
        S::Merge(_) => "MERGE",
        S::Copy { .. } => "COPY",
        S::CreateTable(table) if table.query.is_some() => "CREATE TABLE AS",
        S::CreateTable(_) => "CREATE TABLE",
        S::CreateIndex(_) => "CREATE INDEX",
        S::CreateView(_) => "CREATE VIEW",
        S::CreateSchema { .. } => "CREATE SCHEMA",
        S::CreateFunction(_) => "CREATE FUNCTION",
        S::CreateTrigger(_) => "CREATE TRIGGER",
        S::CreateProcedure { .. } => "CREATE PROCEDURE",
        S::CreateDatabase { .. } => "CREATE DATABASE",
        S::CreateRole(_) => "CREATE ROLE",
        S::CreateUser(_) => "CREATE USER",
        S::CreateExtension(_) => "CREATE EXTENSION",
        S::CreateType { .. } => "CREATE TYPE",
        S::CreatePolicy(_) => "CREATE POLICY",
        S::AlterTable(_) => "ALTER TABLE",
        S::AlterIndex { .. } => "ALTER INDEX",
        S::AlterSchema(_) => "ALTER SCHEMA",
        S::AlterView { .. } => "ALTER VIEW",
        S::AlterRole { .. } => "ALTER ROLE",
        S::AlterType(_) => "ALTER TYPE",
        S::Drop { object_type, .. } => drop_tag(object_type),
        S::DropFunction(_) => "DROP FUNCTION",
        S::DropExtension(_) => "DROP EXTENSION",
        S::DropTrigger(_) => "DROP TRIGGER",
        S::DropPolicy(_) => "DROP POLICY",
        S::Truncate(_) => "TRUNCATE TABLE",
        S::Comment { .. } => "COMMENT",
        S::Grant(_) => "GRANT",
        S::Revoke(_) => "REVOKE",
        S::Set(_) => "SET",
        S::Reset(_) => "RESET",
        S::ShowVariable { .. } => "SHOW",
        S::StartTransaction { begin: true, .. } => "BEGIN",
        S::StartTransaction { .. } => "START TRANSACTION",
        S::Commit { .. } => "COMMIT",
        S::Rollback { .. } => "ROLLBACK",
        S::Savepoint { .. } => "SAVEPOINT",
        S::ReleaseSavepoint { .. } => "RELEASE",
        S::Prepare { .. } => "PREPARE",
        S::Execute { .. } => "EXECUTE",
        S::Deallocate { .. } => "DEALLOCATE",
        S::Declare { .. } => "DECLARE CURSOR",
        S::Close { .. } => "CLOSE CURSOR",
        S::Discard { .. } => "DISCARD",
        S::Explain { .. } => "EXPLAIN",
        S::Lock(_) | S::LockTables { .. } => "LOCK TABLE",
        S::LISTEN { .. } => "LISTEN",
        S::UNLISTEN { .. } => "UNLISTEN",
        S::NOTIFY { .. } => "NOTIFY",
        S::Call(_) => "CALL",
        statement => refused_tag(statement),
    }
}

/// Of statements that are known to the parser only.
fn refused_tag(statement: &ast::Statement) -> &'static str {
    use ast::Statement as S;
    match statement {
        S::CreateOperator(_) => "CREATE OPERATOR",
        S::CreateOperatorClass(_) => "CREATE OPERATOR CLASS",
        S::CreateOperatorFamily(_) => "CREATE OPERATOR FAMILY",
        S::CreateCollation(_) => "CREATE COLLATION",
        S::CreateServer(_) => "CREATE SERVER",
        S::AlterOperator(_) => "ALTER OPERATOR",
        S::AlterOperatorClass(_) => "ALTER OPERATOR CLASS",
        S::AlterOperatorFamily(_) => "ALTER OPERATOR FAMILY",
        S::AlterCollation(_) => "ALTER COLLATION",
        S::AlterPolicy(_) => "ALTER POLICY",
        S::DropOperator(_) => "DROP OPERATOR",
        S::DropOperatorClass(_) => "DROP OPERATOR CLASS",
        S::DropOperatorFamily(_) => "DROP OPERATOR FAMILY",
        S::Load { .. } | S::LoadData { .. } => "LOAD",
        // PostgreSQL knows it within BEGIN ATOMIC.
        S::Return(_) => "RETURN",
        _ => "this statement",
    }
}

fn drop_tag(kind: &ast::ObjectType) -> &'static str {
    match kind {
        ast::ObjectType::Table => "DROP TABLE",
        ast::ObjectType::View => "DROP VIEW",
        ast::ObjectType::MaterializedView => "DROP MATERIALIZED VIEW",
        ast::ObjectType::Index => "DROP INDEX",
        ast::ObjectType::Schema => "DROP SCHEMA",
        ast::ObjectType::Sequence => "DROP SEQUENCE",
        ast::ObjectType::Database => "DROP DATABASE",
        ast::ObjectType::Role => "DROP ROLE",
        ast::ObjectType::User => "DROP USER",
        ast::ObjectType::Type => "DROP TYPE",
        _ => "DROP",
    }
}

/// Whether a statement of this tag begins or ends transactions or parts of them.
pub(crate) fn controls_transaction(tag: &str) -> bool {
    let words =
        ["BEGIN", "START TRANSACTION", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PREPARE TRANSACTION"];
    words.iter().any(|word| tag.starts_with(word))
}

/// Statements that a failed block still takes, and those that control transactions.
pub(crate) fn ends_failed_block(command: &Command) -> bool {
    match command {
        Command::Sql(statement) => {
            matches!(statement.as_ref(), ast::Statement::Commit { .. } | ast::Statement::Rollback { .. })
        }
        Command::PrepareTransaction(_) | Command::Mip(MipOperation::Prepare | MipOperation::Rollback, _) => {
            true
        }
        _ => false,
    }
}

/// Statements that a block of a decided family takes: those that end it or the family, and the
/// question what became of it.
pub(crate) fn fits_decided_block(command: &Command) -> bool {
    match command {
        Command::Sql(statement) => matches!(
            statement.as_ref(),
            ast::Statement::Commit { .. } | ast::Statement::Rollback { savepoint: None, .. }
        ),
        Command::Mip(operation, _) => *operation != MipOperation::Begin,
        _ => false,
    }
}
