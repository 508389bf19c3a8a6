//! Parameters as clients send them: a prepared statement with them is a portal.

use std::sync::Arc;

use sqlparser::ast;

use super::{Block, Format, OutputColumn, Portal, Prepared, Session};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::{Command, Statement, executed_by};
use crate::types::{Datum, FormatContext, Type, bounds};

/// The parameters of a statement that plans another one (DECLARE, EXPLAIN, CREATE TABLE AS): they
/// are that one's.
pub(super) struct Given {
    types: Vec<Option<Type>>,
    values: Arc<[Datum]>,
}

impl Given {
    /// Those that a portal was bound with.
    pub(super) fn of(portal: &Portal) -> Given {
        let types = portal.prepared.parameter_types().iter().copied().map(Some).collect();
        Given { types, values: portal.parameters.clone() }
    }

    /// Their types, to plan with.
    pub(super) fn types(&self) -> Vec<Option<Type>> {
        self.types.clone()
    }

    /// A portal of what was planned.
    pub(super) fn portal(&self, prepared: Arc<Prepared>) -> Portal {
        Portal::new(prepared, self.values.clone(), Vec::new())
    }
}

impl Session {
    /// Types of the parameters of a statement that plans another one. Most have none, and are
    /// planned only when they are run.
    pub(super) fn inner_parameter_types(
        &mut self,
        sql: &ast::Statement,
        statement: &Statement,
        declared: &[Option<Type>],
    ) -> Result<Vec<Type>> {
        let is_mark = |pair: &[u8]| pair[0] == b'$' && pair[1].is_ascii_digit();
        if !statement.text.as_bytes().windows(2).any(is_mark) {
            return super::planning::given_types(declared);
        }
        let of_query = |query: &ast::Query| ast::Statement::Query(Box::new(query.clone()));
        let inner = match sql {
            ast::Statement::Declare { stmts } => {
                stmts.first().and_then(|declare| declare.for_query.as_deref()).map(of_query)
            }
            ast::Statement::CreateTable(create) => {
                let query = create.query.as_deref();
                query.filter(|query| matches!(executed_by(query), Ok(None))).map(of_query)
            }
            ast::Statement::Explain { statement: inner, .. } => match inner.as_ref() {
                ast::Statement::Execute { .. } => None,
                inner => Some(inner.clone()),
            },
            _ => None,
        };
        let Some(inner) = inner else { return super::planning::given_types(declared) };
        let inner = statement.with_command(Command::Sql(Box::new(inner)));
        Ok(self.plan(&inner, declared)?.parameter_types.clone())
    }

    /// Binds parameters (`None` is NULL). `formats` has none, one for all, or one for each
    /// parameter; `result_formats` the same for the output columns.
    pub fn bind(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[Option<&[u8]>],
        formats: &[Format],
        result_formats: &[Format],
    ) -> Result<Portal> {
        self.check_not_failed(prepared.statement())?;
        if self.block == Block::Failed && prepared.statement().is_none() {
            // Nothing may be given there, and a portal of it is more than that: as in PostgreSQL.
            return Err(self.in_failed_block());
        }
        self.begin_statement();
        bounds::within(self.interrupts.clone(), || {
            let values = self.read_parameters(prepared, parameters, formats)?;
            self.portal_of(prepared, values, result_formats)
        })
    }

    /// The values of given parameters.
    fn read_parameters(
        &self,
        prepared: &Prepared,
        parameters: &[Option<&[u8]>],
        formats: &[Format],
    ) -> Result<Arc<[Datum]>> {
        let types = prepared.parameter_types();
        if parameters.len() != types.len() {
            return Err(SqlError::new(
                sqlstate::PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {} parameters, but prepared statement requires {}",
                    parameters.len(),
                    types.len()
                ),
            ));
        }
        if formats.len() > 1 && formats.len() != parameters.len() {
            return Err(SqlError::new(
                sqlstate::PROTOCOL_VIOLATION,
                format!(
                    "bind message has {} parameter formats but {} parameters",
                    formats.len(),
                    parameters.len()
                ),
            ));
        }
        // In their last place at once.
        let mut values: Arc<[Datum]> = parameters.iter().map(|_| Datum::Null).collect();
        let places = Arc::get_mut(&mut values).into_iter().flatten();
        for (place, (to, (value, ty))) in places.zip(parameters.iter().zip(types)).enumerate() {
            if let Some(bytes) = value {
                *to = read_parameter(bytes, *ty, format_of(place, formats), &self.format)?;
            }
        }
        Ok(values)
    }

    /// Binds parameters that are values already, of the types that the statement has; the columns
    /// are to be given as they are. XX000 if they are of others.
    pub fn bind_values(&mut self, prepared: &Arc<Prepared>, values: Arc<[Datum]>) -> Result<Portal> {
        self.check_not_failed(prepared.statement())?;
        self.begin_statement();
        bounds::within(self.interrupts.clone(), || {
            let types = prepared.parameter_types();
            let fits = |(ty, value): (&Type, &Datum)| ty.id.holds(value);
            if values.len() != types.len() || !types.iter().zip(&*values).all(fits) {
                return Err(SqlError::internal("parameters that are not of the statement's types"));
            }
            self.portal_of(prepared, values, &[])
        })
    }

    fn portal_of(
        &mut self,
        prepared: &Arc<Prepared>,
        values: Arc<[Datum]>,
        result_formats: &[Format],
    ) -> Result<Portal> {
        let given = self.given_columns(prepared)?;
        let columns = given.as_ref().map_or(0, |columns| columns.len());
        if given.is_some() && result_formats.len() > 1 && result_formats.len() != columns {
            return Err(SqlError::new(
                sqlstate::PROTOCOL_VIOLATION,
                format!(
                    "bind message has {} result formats but query has {columns} columns",
                    result_formats.len()
                ),
            ));
        }
        let formats = (0..columns).map(|place| format_of(place, result_formats)).collect();
        let mut portal = Portal::giving(given, prepared.clone(), values, formats);
        self.bound += 1;
        portal.bound = self.bound;
        // What all nodes execute must not end at one of them because others leave no memory there.
        if self.facts.fixed().is_none() {
            portal.charge_parameters(self.database.statement_budget())?;
        }
        Ok(portal)
    }

    /// The columns that a portal of the statement has: those of FETCH are its cursor's, and those
    /// of EXECUTE its statement's, as they are by now.
    fn given_columns(&mut self, prepared: &Prepared) -> Result<Option<Arc<[OutputColumn]>>> {
        let command = prepared.statement().map(|statement| &statement.command);
        let of_another = command.filter(|command| match command {
            Command::Fetch { .. } => true,
            Command::Sql(sql) => matches!(sql.as_ref(), ast::Statement::Execute { .. }),
            _ => false,
        });
        match of_another {
            Some(command) => self.utility_columns(command),
            None => Ok(prepared.shared_columns()),
        }
    }
}

/// The format of one of the values, or columns, that these are for.
fn format_of(place: usize, formats: &[Format]) -> Format {
    match formats {
        [] => Format::Text,
        [one] => *one,
        // As many as values.
        many => many[place],
    }
}

fn read_parameter(bytes: &[u8], ty: Type, format: Format, context: &FormatContext) -> Result<Datum> {
    match format {
        Format::Binary => Datum::receive(ty, bytes, context),
        Format::Text => {
            let text =
                std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or_else(|| {
                    SqlError::new(
                        sqlstate::CHARACTER_NOT_IN_REPERTOIRE,
                        "invalid byte sequence for encoding \"UTF8\" in a parameter",
                    )
                })?;
            Datum::from_text(ty, text, context)
        }
    }
}
