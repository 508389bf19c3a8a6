//! The statements of a program, where it is asked for: each is looked at, planned, and written down
//! with the values of its parameters.
//!
//! What a session has prepared no other node knows. So EXECUTE goes as the statement that it names,
//! whose parameters have the values of its arguments.

use std::sync::Arc;

use sqlparser::ast;

use super::super::explain::{EXECUTES_MAX, too_many_executes};
use super::super::{Format, Prepared, Session, Statement};
use super::fitness;
use super::program::Step;
use crate::ddl::names::single;
use crate::error::{Result, SqlError};
use crate::parse::Command;
use crate::parse::template::Template;
use crate::types::{DateStyle, Datum, FormatContext};

/// A statement of a program, where it is asked for.
pub(super) struct Given {
    pub(super) prepared: Arc<Prepared>,
    pub(super) step: Step,
}

/// The statement as an EXECUTE, and the name that it gives.
fn as_execute(statement: &Statement) -> Option<(&ast::Statement, &ast::ObjectName)> {
    let Command::Sql(sql) = &statement.command else { return None };
    match sql.as_ref() {
        ast::Statement::Execute { name: Some(name), .. } => Some((sql.as_ref(), name)),
        _ => None,
    }
}

impl Session {
    /// What a statement does: what EXECUTE names does it.
    pub(super) fn meant<'a>(&'a self, statement: &'a Statement) -> &'a Statement {
        let mut meant = statement;
        for _ in 0..EXECUTES_MAX {
            let Some((_, name)) = as_execute(meant) else { break };
            let named = single(name).and_then(|name| self.named_statement(&name));
            let Some(next) = named.ok().and_then(|named| named.statement()) else { break };
            meant = next;
        }
        meant
    }

    /// Whether a statement of a message may change the database.
    pub(super) fn may_write(&self, statement: &Statement) -> bool {
        let meant = self.meant(statement);
        fitness::may_write(meant) || fitness::is_writing_call(&self.database.catalog(), &self.facts, meant)
    }

    /// A statement of a message, as a part of a program.
    pub(super) fn given(&mut self, statement: &Statement) -> Result<Given> {
        match as_execute(statement) {
            Some((execute, _)) => self.given_by_name(execute),
            None => self.given_as_it_is(statement),
        }
    }

    /// What EXECUTE names, with the values of its arguments.
    fn given_by_name(&mut self, outer: &ast::Statement) -> Result<Given> {
        self.begin_statement();
        let (mut prepared, mut values) = self.executed(outer)?;
        let mut levels = 1;
        // Clients can prepare EXECUTE itself.
        while let Some((inner, _)) = prepared.statement().and_then(as_execute) {
            if levels == EXECUTES_MAX {
                return Err(too_many_executes());
            }
            levels += 1;
            let next = self.executed(inner)?;
            (prepared, values) = next;
        }
        self.given_bound(&prepared, &values)
    }

    /// A statement with the values of its parameters.
    pub(super) fn given_bound(&mut self, prepared: &Arc<Prepared>, values: &[Datum]) -> Result<Given> {
        let Some(statement) = prepared.statement() else {
            return Err(fitness::unfit("an empty statement"));
        };
        if values.is_empty() {
            return self.given_as_it_is(statement);
        }
        let types: Vec<u32> = prepared.parameter_types().iter().map(|ty| ty.oid()).collect();
        // Looked at once for all its values, and planned as it is executed.
        self.prepare_alike(&statement.text, &types)?;
        Ok(Given { step: self.step(prepared, values)?, prepared: prepared.clone() })
    }

    /// A statement without parameters. What it has in common with others is planned once, here and
    /// at every node.
    fn given_as_it_is(&mut self, statement: &Statement) -> Result<Given> {
        if let Some(template) = Template::of(&statement.text)
            && let Some(given) = self.given_by(template)
        {
            return Ok(given);
        }
        fitness::check(&self.database.catalog(), &self.facts, statement)?;
        let prepared = self.prepare_statement(statement.clone())?;
        Ok(Given { step: self.step(&prepared, &[])?, prepared })
    }

    /// None if the statement does not mean the same with its literals taken out, or is not right:
    /// then its own text tells why.
    fn given_by(&mut self, template: Template) -> Option<Given> {
        self.begin_statement();
        let prepared = self.prepare_alike(&template.text, &template.types).ok()?;
        if !template.fits(prepared.parameter_types()) {
            return None;
        }
        let values: Vec<Option<&[u8]>> = template.values.iter().map(|value| Some(value.as_bytes())).collect();
        self.bind(&prepared, &values, &[Format::Text], &[]).ok()?;
        let parameters = template.values.into_iter().map(Some).collect();
        let step = Step { text: template.text, types: template.types, parameters, told: None };
        Some(Given { prepared, step })
    }

    /// A statement with its parameters, as texts.
    fn step(&self, prepared: &Prepared, parameters: &[Datum]) -> Result<Step> {
        let statement = prepared.statement().ok_or_else(|| SqlError::internal("an empty step"))?;
        let types = prepared.parameter_types();
        // As texts that say all of a value, whatever the client wants to see of it: a number's last
        // digits, and a zone by its distance.
        let format =
            FormatContext { date_style: DateStyle::Iso, extra_float_digits: 1, ..self.format.clone() };
        let text = |(value, ty): (&Datum, &crate::types::Type)| match value {
            Datum::Null => None,
            value => Some(value.to_text_string(*ty, &format)),
        };
        Ok(Step {
            text: statement.text.to_string(),
            types: types.iter().map(|ty| ty.oid()).collect(),
            parameters: parameters.iter().zip(types).map(text).collect(),
            told: None,
        })
    }
}
