//! Bodies of functions and procedures in SQL: their statements, what these see of the routine, and
//! how the last one's rows become the result.
//!
//! ```text
//! CREATE PROCEDURE move(amount int, OUT left_over int) LANGUAGE sql AS $$
//!     UPDATE account SET balance = balance - amount WHERE id = 1;     -- amount is $1
//!     SELECT balance FROM account WHERE id = 1                        -- bigint, becomes integer
//! $$
//!
//! statements   two, each with the scope { name: move, arguments: [amount: integer] }
//! conversions  of the last one's columns: [bigint to integer]
//! ```
//!
//! A statement is bound like any other, with the routine's inputs as its parameters; a name that no
//! table in sight has may be an argument's ([`Scope`]). Where statements run is not known here: a
//! single SELECT within the expression that calls the function (`oltp::routine`), anything else as
//! statements of the session (`session::routine`), one after the other in the caller's transaction.

use std::sync::Arc;

use sqlparser::ast;

use crate::bind::Binder;
use crate::catalog::{Catalog, Routine, RoutineKind};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{DomainCheck, ReadContext};
use crate::parse::{self, Command, Statement};
use crate::session::OutputColumn;
use crate::types::cast::{self, Cast, CastContext};
use crate::types::{Datum, FormatContext, Type, TypeId};

/// Routines may call each other this deep.
pub(crate) const DEPTH_MAX: usize = 100;

/// So many routines around an error are named.
const CONTEXT_LINES_MAX: usize = 10;

/// What the statements of a body see of their routine: its inputs, which are their parameters. Or
/// what those of a DO block see: its variables, of which a record is a parameter for each field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    /// The innermost first.
    pub(crate) arguments: Vec<Named>,
    /// They are `$1`, `$2`, ..., too. If not, they are variables of a DO block.
    pub(crate) has_numbers: bool,
}

/// An argument or variable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The routine's or block's name, by which its own can be qualified.
    pub(crate) qualifier: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) holds: Holds,
}

/// What a variable holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Value(Type),
    Record {
        /// None before it has any.
        fields: Option<Vec<(String, Type)>>,
        /// It has been given a row.
        is_given: bool,
    },
}

impl Holds {
    /// So many parameters it is.
    fn width(&self) -> usize {
        match self {
            Holds::Value(_) => 1,
            Holds::Record { fields, .. } => fields.as_ref().map_or(0, Vec::len),
        }
    }
}

/// What a name stands for; parameters are counted from 0.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Meant<'a> {
    Value(usize, Type),
    /// A record, whose fields are the parameters from here on.
    Record(usize, &'a [(String, Type)]),
    /// A record that was not given a row.
    NoRow,
    /// A field that the record of this name has not.
    NoField(&'a str),
    /// A field of a record of this name that has none yet.
    NoFields(&'a str),
}

impl Scope {
    /// Of a routine.
    fn of(routine: &Routine) -> Scope {
        let arguments = routine.inputs().map(|argument| Named {
            qualifier: Some(routine.name.clone()),
            name: argument.name.clone(),
            holds: Holds::Value(argument.ty),
        });
        Scope { arguments: arguments.collect(), has_numbers: true }
    }

    /// Of parameters that have numbers only.
    pub(crate) fn of_numbers(types: impl Iterator<Item = Type>) -> Scope {
        let argument = |ty| Named { qualifier: None, name: None, holds: Holds::Value(ty) };
        Scope { arguments: types.map(argument).collect(), has_numbers: true }
    }

    /// What a column's name stands for.
    pub(crate) fn find(&self, names: &[String]) -> Option<Meant<'_>> {
        let mut place = 0;
        for argument in &self.arguments {
            if let Some(meant) = argument.named(names, place) {
                return Some(meant);
            }
            place += argument.holds.width();
        }
        None
    }
}

impl Named {
    /// What a name stands for, if it is this one's or a field's; its first parameter is at `place`.
    fn named(&self, names: &[String], place: usize) -> Option<Meant<'_>> {
        let own = self.name.as_deref()?;
        let is_own = |names: &[String]| match names {
            [name] => name == own,
            [qualifier, name] => name == own && self.qualifier.as_ref() == Some(qualifier),
            _ => false,
        };
        match &self.holds {
            Holds::Value(ty) => is_own(names).then_some(Meant::Value(place, *ty)),
            Holds::Record { fields, is_given } if is_own(names) => Some(match fields {
                Some(fields) if *is_given => Meant::Record(place, fields),
                _ => Meant::NoRow,
            }),
            Holds::Record { fields, .. } => {
                let (field, record) = names.split_last()?;
                if !is_own(record) {
                    return None;
                }
                let Some(fields) = fields else { return Some(Meant::NoFields(own)) };
                let at = fields.iter().position(|(name, _)| name == field);
                Some(at.map_or(Meant::NoField(own), |at| Meant::Value(place + at, fields[at].1)))
            }
        }
    }
}

/// What a routine gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing.
    Nothing,
    /// A value; the name is that of the argument that it comes back by.
    Value(Option<String>, Type),
    /// A row of these columns.
    Row(Vec<(String, Type)>),
}

impl Outcome {
    /// Of a routine. 42704 if the table that it gives rows of is not there.
    pub(crate) fn of(routine: &Routine, catalog: &Catalog) -> Result<Outcome> {
        if let Some(oid) = routine.row_of {
            return row_of(catalog, oid).map(Outcome::Row);
        }
        let mut outputs = routine.outputs();
        Ok(match (outputs.len(), routine.kind) {
            (0, _) if routine.result.id == TypeId::Void => Outcome::Nothing,
            (0, _) => Outcome::Value(None, routine.result),
            // A procedure's result is a row, also of one column.
            (1, RoutineKind::Function) => {
                let (name, ty) = outputs.remove(0);
                Outcome::Value(Some(name), ty)
            }
            _ => Outcome::Row(outputs),
        })
    }

    /// Types of the columns that the last statement is to give.
    fn types(&self) -> Vec<Type> {
        match self {
            Outcome::Nothing => vec![],
            Outcome::Value(_, ty) => vec![*ty],
            Outcome::Row(columns) => columns.iter().map(|(_, ty)| *ty).collect(),
        }
    }
}

/// Names and types of the columns of a table or view.
fn row_of(catalog: &Catalog, oid: u32) -> Result<Vec<(String, Type)>> {
    use crate::catalog::Relation;
    match catalog.relation_by_oid(oid) {
        Some(Relation::Table(table)) => {
            Ok(table.visible_columns().map(|(_, column)| (column.name.clone(), column.ty)).collect())
        }
        Some(Relation::View(view)) => {
            Ok(view.columns.iter().map(|column| (column.name.clone(), column.ty)).collect())
        }
        _ => Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("type with OID {oid} does not exist"))),
    }
}

/// The statements of a routine's body. Errors have no position: their text is not the client's.
pub(crate) fn statements(routine: &Routine) -> Result<Vec<Statement>> {
    let without_position = |mut error: SqlError| {
        error.position = None;
        within(error, &routine.name, None)
    };
    let mut statements = parse::parse(&routine.body).map_err(without_position)?;
    let scope = Arc::new(Scope::of(routine));
    for statement in &mut statements {
        statement.scope = Some(scope.clone());
        statement.has_company = false;
    }
    Ok(statements)
}

/// Whether a body is one SELECT that locks no rows: that runs within the expression that calls it.
pub(crate) fn is_single_select(statements: &[Statement]) -> bool {
    let [Statement { command: Command::Sql(sql), .. }] = statements else { return false };
    let ast::Statement::Query(query) = sql.as_ref() else { return false };
    query.locks.is_empty() && reads_only(&query.body) && !parse::locks_rows_within(sql)
}

fn reads_only(body: &ast::SetExpr) -> bool {
    match body {
        ast::SetExpr::Select(_) | ast::SetExpr::Values(_) | ast::SetExpr::Table(_) => true,
        ast::SetExpr::Query(query) => query.locks.is_empty() && reads_only(&query.body),
        ast::SetExpr::SetOperation { left, right, .. } => reads_only(left) && reads_only(right),
        _ => false,
    }
}

/// A type without a modifier as messages name it.
pub(crate) fn name_of(ty: Type, format: &FormatContext) -> String {
    if ty.user_type().is_some() { ty.format_with(format) } else { ty.id.sql_name().to_owned() }
}

/// How the columns of the last statement become the result: a conversion for each that needs one.
/// 42P13 if they cannot. `columns` are the last statement's, if it gives rows.
pub(crate) fn conversions(
    routine: &Routine,
    outcome: &Outcome,
    columns: Option<&[OutputColumn]>,
    format: &FormatContext,
) -> Result<Vec<Option<Cast>>> {
    let wanted = outcome.types();
    if *outcome == Outcome::Nothing {
        return Ok(vec![]);
    }
    let declared = match outcome {
        Outcome::Value(_, ty) => name_of(*ty, format),
        _ => TypeId::Record.sql_name().to_owned(),
    };
    let mismatch = |detail: String| {
        let message = format!("return type mismatch in function declared to return {declared}");
        let error = SqlError::new(sqlstate::INVALID_FUNCTION_DEFINITION, message).with_detail(detail);
        within(error, &routine.name, None)
    };
    let Some(columns) = columns else {
        return Err(mismatch(
            "Function's final statement must be SELECT or INSERT/UPDATE/DELETE RETURNING.".to_owned(),
        ));
    };
    if let Outcome::Value(..) = outcome
        && columns.len() != 1
    {
        return Err(mismatch("Final statement must return exactly one column.".to_owned()));
    }
    if columns.len() != wanted.len() {
        let number = if columns.len() < wanted.len() { "few" } else { "many" };
        return Err(mismatch(format!("Final statement returns too {number} columns.")));
    }
    let conversion = |(place, (column, to)): (usize, (&OutputColumn, &Type))| {
        // An untyped NULL or text is text by now.
        let found = cast::find(column.ty.bare(), to.bare(), CastContext::Assignment);
        let found = found.ok_or_else(|| match outcome {
            Outcome::Value(..) => mismatch(format!("Actual return type is {}.", name_of(column.ty, format))),
            _ => mismatch(format!(
                "Final statement returns {} instead of {} at column {}.",
                name_of(column.ty, format),
                name_of(*to, format),
                place + 1
            )),
        })?;
        Ok(Some(found).filter(|found| !found.is_noop()))
    };
    columns.iter().zip(&wanted).enumerate().map(conversion).collect()
}

/// Converts a row of the last statement to the result's columns.
pub(crate) fn convert(row: &mut [Datum], conversions: &[Option<Cast>], format: &FormatContext) -> Result<()> {
    for (value, conversion) in row.iter_mut().zip(conversions) {
        if let Some(cast) = conversion {
            *value = cast.apply(value, format)?;
        }
    }
    Ok(())
}

/// What the values of the result's columns must meet, by place, where they become values of
/// domains.
pub(crate) type Checks = Vec<(usize, Arc<DomainCheck>)>;

/// What the columns of the last statement, if it gives rows, must meet to become the result.
pub(crate) fn checks(
    binder: &mut Binder<'_>,
    outcome: &Outcome,
    columns: Option<&[OutputColumn]>,
) -> Result<Checks> {
    let mut checks = Vec::new();
    for (place, (column, to)) in columns.unwrap_or_default().iter().zip(outcome.types()).enumerate() {
        if column.ty != to {
            checks.extend(binder.domain_check(to)?.map(|check| (place, check)));
        }
    }
    Ok(checks)
}

/// 23502 or 23514 for a converted row of the last statement that is not of the result's domains.
pub(crate) fn test_row(
    row: &[Datum],
    checks: &[(usize, Arc<DomainCheck>)],
    read: &ReadContext<'_>,
) -> Result<()> {
    checks.iter().try_for_each(|(place, check)| check.test(&row[*place], read))
}

/// The error, saying in which routine it arose, and in which of its statements, from 1.
pub(crate) fn within(error: SqlError, routine: &str, statement: Option<usize>) -> SqlError {
    let line = match statement {
        Some(number) => format!("SQL function \"{routine}\" statement {number}"),
        None => format!("SQL function \"{routine}\""),
    };
    let context = match &error.context {
        // Whoever calls himself a hundred times need not be told of all.
        Some(context) if context.lines().count() >= CONTEXT_LINES_MAX => return error,
        Some(context) => format!("{context}\n{line}"),
        None => line,
    };
    error.with_context(context)
}

/// 54001.
pub(crate) fn too_deep() -> SqlError {
    SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .with_detail(format!("Functions and procedures may call each other up to {DEPTH_MAX} levels deep."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Argument, ArgumentMode, Behavior, Parallel};

    fn routine(body: &str, result: TypeId) -> Routine {
        let argument = |name: Option<&str>, mode| Argument {
            name: name.map(str::to_owned),
            mode,
            ty: TypeId::Int4.into(),
            default: None,
        };
        Routine {
            oid: 1,
            schema: 2200,
            schema_name: "public".into(),
            name: "f".into(),
            kind: RoutineKind::Function,
            arguments: vec![argument(Some("a"), ArgumentMode::In), argument(None, ArgumentMode::In)],
            result: result.into(),
            returns_set: false,
            row_of: None,
            body: body.into(),
            atomic: false,
            behavior: Behavior::Volatile,
            strict: false,
            security_definer: false,
            parallel: Parallel::default(),
            cost: None,
            rows: None,
            leakproof: false,
            comment: None,
        }
    }

    #[test]
    fn a_name_is_an_argument() {
        let scope = Scope::of(&routine("", TypeId::Void));
        let find = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            scope.find(&names).map(|meant| match meant {
                Meant::Value(place, _) => place,
                meant => panic!("{meant:?}"),
            })
        };
        assert_eq!(find(&["a"]), Some(0));
        assert_eq!(find(&["f", "a"]), Some(0));
        assert_eq!(find(&["g", "a"]), None);
        assert_eq!(find(&["b"]), None);
        assert_eq!(find(&["public", "f", "a"]), None);
    }

    #[test]
    fn a_name_is_a_variable_a_record_or_a_field() {
        let value = |qualifier: Option<&str>, name: &str| Named {
            qualifier: qualifier.map(str::to_owned),
            name: Some(name.to_owned()),
            holds: Holds::Value(TypeId::Int4.into()),
        };
        let record = |name: &str, fields: Option<&[&str]>, is_given| {
            let field = |name: &&str| ((*name).to_owned(), Type::from(TypeId::Text));
            let fields = fields.map(|fields| fields.iter().map(field).collect());
            Named { holds: Holds::Record { fields, is_given }, ..value(Some("outer"), name) }
        };
        let arguments = vec![
            value(None, "a"),
            record("r", Some(&["x", "y"]), true),
            record("none", Some(&["x"]), false),
            record("bare", None, false),
            value(Some("outer"), "a"),
        ];
        let scope = Scope { arguments, has_numbers: false };
        let find = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            scope.find(&names).map(|meant| format!("{meant:?}"))
        };
        let value = |place, ty: TypeId| Some(format!("{:?}", Meant::Value(place, ty.into())));
        assert_eq!(find(&["a"]), value(0, TypeId::Int4));
        assert_eq!(find(&["outer", "a"]), value(4, TypeId::Int4));
        assert_eq!(find(&["r", "y"]), value(2, TypeId::Text));
        assert_eq!(find(&["outer", "r", "x"]), value(1, TypeId::Text));
        assert_eq!(find(&["none", "x"]), value(3, TypeId::Text));
        assert!(find(&["r"]).unwrap().starts_with("Record(1,"));
        assert_eq!(find(&["none"]), Some("NoRow".to_owned()));
        assert_eq!(find(&["r", "z"]), Some("NoField(\"r\")".to_owned()));
        assert_eq!(find(&["bare", "z"]), Some("NoFields(\"bare\")".to_owned()));
        assert_eq!(find(&["a", "x"]), None);
        assert_eq!(find(&["inner", "a"]), None);
    }

    #[test]
    fn single_selects_are_told_apart() {
        let is_single = |body: &str| {
            let parsed = statements(&routine(body, TypeId::Int4)).expect(body);
            is_single_select(&parsed)
        };
        for body in ["SELECT 1", "SELECT 1;", " VALUES (1) ; ", "SELECT 1 UNION SELECT 2", "(SELECT 1)"] {
            assert!(is_single(body), "{body}");
        }
        for body in [
            "",
            "SELECT 1; SELECT 2",
            "INSERT INTO t VALUES (1) RETURNING a",
            "SELECT 1 FROM t FOR UPDATE",
            "WITH q AS (SELECT 1) UPDATE t SET a = 1 RETURNING a",
            "CALL p()",
        ] {
            assert!(!is_single(body), "{body}");
        }
    }

    #[test]
    fn the_last_statement_must_fit() {
        let column =
            |ty: TypeId| OutputColumn { name: "x".into(), ty: ty.into(), table_oid: 0, attribute_number: 0 };
        let routine = routine("", TypeId::Int4);
        let outcome = Outcome::of(&routine, &Catalog::new(1, [])).expect("an outcome");
        assert_eq!(outcome, Outcome::Value(None, TypeId::Int4.into()));
        let convert = |columns: Option<&[OutputColumn]>| {
            let found = conversions(&routine, &outcome, columns, &FormatContext::default());
            found.map(|found| found[0].is_some()).map_err(|error| error.detail.clone().unwrap_or_default())
        };
        assert_eq!(convert(Some(&[column(TypeId::Int4)])), Ok(false));
        assert_eq!(convert(Some(&[column(TypeId::Int8)])), Ok(true));
        assert_eq!(convert(Some(&[column(TypeId::Date)])), Err("Actual return type is date.".into()));
        assert!(convert(Some(&[])).is_err());
        assert!(convert(None).is_err());
    }

    #[test]
    fn an_error_names_the_routines_around_it() {
        let error = within(SqlError::division_by_zero(), "inner", Some(1));
        let error = within(error, "outer", Some(2));
        let expected = "SQL function \"inner\" statement 1\nSQL function \"outer\" statement 2";
        assert_eq!(error.context.as_deref(), Some(expected));
    }
}
