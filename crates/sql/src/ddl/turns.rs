//! In which order the operations of an ALTER TABLE are done.
//!
//! It is not the one in which they stand there: what goes goes first, and what is made rests on
//! what there is then. So a column may be given a constraint before the statement adds it, and a
//! default may be dropped and set around a change of the column's type.
//!
//! ```text
//! DROP COLUMN, DROP CONSTRAINT, DROP DEFAULT, DROP NOT NULL, DROP IDENTITY, DROP EXPRESSION
//! ALTER COLUMN TYPE
//! DROP COLUMN of one that USING names
//! ADD COLUMN
//! SET NOT NULL, SET GENERATED
//! ADD UNIQUE, PRIMARY KEY ... USING INDEX
//! ADD UNIQUE, PRIMARY KEY
//! ADD CHECK, ADD FOREIGN KEY, SET DEFAULT, ADD GENERATED
//! all else
//! ```
//!
//! Within a line it is that of the statement. The lines are PostgreSQL's (`AT_PASS_DROP` and so on
//! in its `tablecmds.c`), but for columns that go and are named in USING: PostgreSQL reads USING
//! before it does anything, and computes it from the row as it was.

use cognate_syntax::for_each_expression;
use sqlparser::ast::{self, AlterColumnOperation, AlterTableOperation};

use super::alter_type::TypeChange;
use crate::identifier::fold;
use crate::parse::{IdentityChange, dropped_expression, identity_change};

/// A line of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Drop,
    Type,
    DropRead,
    AddColumn,
    Attribute,
    KeyByIndex,
    Key,
    Other,
    Rest,
}

/// The operations in the order in which they are done.
pub(super) fn in_turn(operations: &[AlterTableOperation]) -> Vec<&AlterTableOperation> {
    let read = read_by_types(operations);
    // A column that is both dropped and given a new type is dropped first, so that it is missed.
    let retyped: Vec<String> =
        operations.iter().filter_map(TypeChange::of).map(|change| change.column).collect();
    let mut ordered: Vec<&AlterTableOperation> = operations.iter().collect();
    ordered.sort_by_key(|operation| match operation {
        AlterTableOperation::DropColumn { column_names, .. }
            if column_names.iter().map(fold).any(|name| read.contains(&name) && !retyped.contains(&name)) =>
        {
            Turn::DropRead
        }
        operation => turn(operation),
    });
    ordered
}

/// The names that USING of new types has.
fn read_by_types(operations: &[AlterTableOperation]) -> Vec<String> {
    let mut names = Vec::new();
    for operation in operations {
        if let AlterTableOperation::AlterColumn {
            op: AlterColumnOperation::SetDataType { using: Some(using), .. },
            ..
        } = operation
        {
            for_each_expression(using, |expression| match expression {
                ast::Expr::Identifier(name) => names.push(fold(name)),
                ast::Expr::CompoundIdentifier(parts) => names.extend(parts.last().map(fold)),
                _ => {}
            });
        }
    }
    names
}

fn turn(operation: &AlterTableOperation) -> Turn {
    use ast::TableConstraint as Constraint;
    match operation {
        AlterTableOperation::DropColumn { .. } | AlterTableOperation::DropConstraint { .. } => Turn::Drop,
        AlterTableOperation::AddColumn { .. } => Turn::AddColumn,
        AlterTableOperation::AlterColumn { op, .. } => turn_of_column(op),
        AlterTableOperation::AddConstraint { constraint, .. } => match constraint {
            Constraint::UniqueUsingIndex(_) | Constraint::PrimaryKeyUsingIndex(_) => Turn::KeyByIndex,
            Constraint::Unique(_) | Constraint::PrimaryKey(_) => Turn::Key,
            _ => Turn::Other,
        },
        _ => Turn::Rest,
    }
}

fn turn_of_column(operation: &AlterColumnOperation) -> Turn {
    match operation {
        AlterColumnOperation::DropNotNull | AlterColumnOperation::DropDefault => Turn::Drop,
        AlterColumnOperation::SetDataType { .. } => Turn::Type,
        AlterColumnOperation::SetNotNull => Turn::Attribute,
        AlterColumnOperation::AddGenerated { .. } => Turn::Other,
        AlterColumnOperation::SetDefault { value } => match identity_change(operation) {
            Some(Ok(IdentityChange::Drop { .. })) => Turn::Drop,
            Some(_) => Turn::Attribute,
            None if dropped_expression(value).is_some() => Turn::Drop,
            None => Turn::Other,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Command, parse};

    fn order(text: &str) -> Vec<String> {
        let statement = parse(text).unwrap().remove(0);
        let Command::Sql(sql) = &statement.command else { panic!("{text}") };
        let ast::Statement::AlterTable(alter) = sql.as_ref() else { panic!("{text}") };
        in_turn(&alter.operations).into_iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_goes_goes_first_and_constraints_come_last() {
        let found = order(
            "ALTER TABLE t ADD CHECK (c > 0), ALTER a SET DEFAULT 1, ADD PRIMARY KEY (c), ADD COLUMN c INT, \
             ALTER a TYPE INT, ALTER a DROP DEFAULT, ALTER b SET NOT NULL, DROP COLUMN d",
        );
        let words = ["DROP DEFAULT", "DROP COLUMN", "TYPE INT", "ADD COLUMN c", "NOT NULL", "PRIMARY KEY"];
        for (place, word) in words.iter().enumerate() {
            assert!(found[place].contains(word), "{word} at {place} of {found:?}");
        }
        assert!(found[6].contains("CHECK") && found[7].contains("SET DEFAULT"), "{found:?}");
    }

    #[test]
    fn what_new_types_are_computed_from_goes_behind_them() {
        let found = order(
            "ALTER TABLE t ALTER a TYPE INT USING \"B\" + t.c, DROP COLUMN \"B\", DROP COLUMN C, \
             DROP COLUMN b",
        );
        let words = ["DROP COLUMN b", "TYPE INT", "DROP COLUMN \"B\"", "DROP COLUMN C"];
        for (place, word) in words.iter().enumerate() {
            assert!(found[place].contains(word), "{word} at {place} of {found:?}");
        }
    }
}
