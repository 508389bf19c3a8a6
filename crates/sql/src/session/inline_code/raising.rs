//! RAISE, what a handler is for, and GET DIAGNOSTICS.

use super::variables::convert;
use super::{Running, Text, Wanted};
use crate::Severity;
use crate::error::{Result, SqlError, sqlstate};
use crate::plpgsql::{self, Diagnostic, Level, Raise, RaiseOption};
use crate::session::Session;
use crate::types::{Datum, Type, TypeId};

/// Whether a handler may be for an error: it says nothing of other transactions or of the server.
pub(super) fn is_of_the_block(error: &SqlError) -> bool {
    let is_of_server = ["57", "58", "XX", "08", "53"].iter().any(|class| error.sqlstate.starts_with(class));
    !error.is_of_others() && !is_of_server && error.severity == Severity::Error
}

impl Session {
    /// RAISE: a notice, or the error.
    pub(super) async fn raise(&mut self, raise: &Raise, running: &mut Running) -> Result<()> {
        if raise.again {
            running.placed = !running.handled.is_empty();
            return Err(running.handled.last().cloned().unwrap_or_else(|| {
                SqlError::new("0Z002", "RAISE without parameters cannot be used outside an exception handler")
            }));
        }
        let mut texts = Vec::new();
        for argument in &raise.arguments {
            texts.push(self.text_of(argument, running).await?);
        }
        let message = raise.message(&texts);
        let (state, name) = match &raise.condition {
            Some((state, name)) => (*state, Some(name.clone())),
            None => (plpgsql::named("raise_exception")?, None),
        };
        let mut error = SqlError::new(state, "");
        let mut given = message;
        for (option, expression) in &raise.options {
            let Some(text) = self.text_of(expression, running).await? else {
                return Err(SqlError::new(
                    sqlstate::NULL_VALUE_NOT_ALLOWED,
                    "RAISE statement option cannot be null",
                ));
            };
            match option {
                RaiseOption::Message if given.is_some() => return Err(given_twice("MESSAGE")),
                RaiseOption::Message => given = Some(text),
                RaiseOption::Errcode if raise.condition.is_some() => return Err(given_twice("ERRCODE")),
                RaiseOption::Errcode => {
                    error = error.with_sqlstate(plpgsql::named(&text).or_else(|_| plpgsql::interned(&text))?);
                }
                RaiseOption::Detail => error = error.with_detail(text),
                RaiseOption::Hint => error = error.with_hint(text),
                RaiseOption::Column => error.column = Some(text),
                RaiseOption::Constraint => error.constraint = Some(text),
                RaiseOption::Datatype => error.data_type = Some(text),
                RaiseOption::Table => error.table = Some(text),
                RaiseOption::Schema => error.schema = Some(text),
            }
        }
        error.message = given.or(name).unwrap_or_else(|| error.sqlstate.to_owned());
        let severity = match raise.level {
            Level::Exception => return Err(error),
            Level::Log => return Ok(()),
            Level::Info => Severity::Info,
            Level::Notice => Severity::Notice,
            Level::Warning => Severity::Warning,
        };
        if error.sqlstate == plpgsql::named("raise_exception")? {
            let state = if severity == Severity::Warning {
                sqlstate::WARNING
            } else {
                sqlstate::SUCCESSFUL_COMPLETION
            };
            error = error.with_sqlstate(state);
        }
        self.notices.push(error.with_severity(severity));
        self.check_notices()
    }

    /// The text of an expression's value; none for NULL.
    pub(super) async fn text_of(&mut self, expression: &str, running: &Running) -> Result<Option<String>> {
        let (value, ty) = self.value_of(expression, running).await?;
        Ok((!value.is_null()).then(|| value.to_text_string(ty, &self.format)))
    }

    /// An expression's value, and its type.
    pub(super) async fn value_of(&mut self, expression: &str, running: &Running) -> Result<(Datum, Type)> {
        let text = format!("SELECT {expression}");
        let mut answer =
            self.query(&text, running, (Text::Expression, Wanted::Most(2))).await.map_err(|mut error| {
                error.position = None;
                error
            })?;
        let ty = match answer.columns.as_slice() {
            [(_, ty)] => *ty,
            columns => {
                return Err(SqlError::syntax(format!("query \"{text}\" returned {} columns", columns.len())));
            }
        };
        if answer.rows.len() > 1 {
            return Err(SqlError::new(
                sqlstate::CARDINALITY_VIOLATION,
                format!("query \"{text}\" returned more than one row"),
            ));
        }
        let value = answer.rows.pop().and_then(|mut row| row.pop()).unwrap_or(Datum::Null);
        Ok((value, ty))
    }

    /// An expression's value as one of this type.
    pub(super) async fn value_as(&mut self, expression: &str, to: Type, running: &Running) -> Result<Datum> {
        let (value, from) = self.value_of(expression, running).await?;
        convert(value, from, to, &self.format)
    }

    /// Whether a condition is true; NULL is not.
    pub(super) async fn is_true(&mut self, expression: &str, running: &Running) -> Result<bool> {
        let value = self.value_as(expression, TypeId::Bool.into(), running).await?;
        Ok(matches!(value, Datum::Bool(true)))
    }

    /// GET DIAGNOSTICS.
    pub(super) fn diagnose(&mut self, items: &[(String, Diagnostic)], running: &mut Running) -> Result<()> {
        for (target, item) in items {
            if *item == Diagnostic::RowCount {
                let count = Datum::Int8(running.row_count);
                running.variables.assign(target, count, TypeId::Int8.into(), &self.format)?;
                continue;
            }
            let error = running.handled.last().ok_or_else(|| {
                SqlError::new("0Z002", "GET STACKED DIAGNOSTICS cannot be used outside an exception handler")
            })?;
            let text = match item {
                Diagnostic::ReturnedSqlstate => Some(error.sqlstate.to_owned()),
                Diagnostic::MessageText | Diagnostic::RowCount => Some(error.message.clone()),
                Diagnostic::Detail => error.detail.clone(),
                Diagnostic::Hint => error.hint.clone(),
                Diagnostic::Context => error.context.clone(),
                Diagnostic::ColumnName => error.column.clone(),
                Diagnostic::ConstraintName => error.constraint.clone(),
                Diagnostic::DatatypeName => error.data_type.clone(),
                Diagnostic::TableName => error.table.clone(),
                Diagnostic::SchemaName => error.schema.clone(),
            };
            // What an error does not say is an empty text.
            let text = Datum::Text(text.unwrap_or_default().into());
            running.variables.assign(target, text, TypeId::Text.into(), &self.format)?;
        }
        Ok(())
    }
}

fn given_twice(option: &str) -> SqlError {
    SqlError::syntax(format!("RAISE option already specified: {option}"))
}
