//! CREATE FUNCTION and CREATE PROCEDURE: from what is asked for to a [`Routine`]; and which ones a
//! DROP means.
//!
//! The name that is locked is the routine's with parentheses, which no relation is made by; all
//! routines of a name share it. The body is looked at by the session, once the routine is in the
//! catalog that it sees: a function may call itself.

use std::sync::Arc;

use sqlparser::ast;

use super::names::Qualified;
use super::permission::denied;
use super::resolve::undefined_schema;
use crate::bind::resolve_type;
use crate::catalog::{Argument, ArgumentMode, Object, Parallel, Relation, Routine, RoutineKind};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::{CreateRoutine, DropRoutine, RoutineArgument, RoutineBody, RoutineReturns};
use crate::routine::name_of;
use crate::session::work::Work;
use crate::types::{FormatContext, Type, TypeId};

/// Longest body in bytes: it is read anew with each statement that calls it.
const BODY_MAX: usize = 256 << 10;

/// Most arguments of a routine.
const ARGUMENTS_MAX: usize = 100;

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INVALID_FUNCTION_DEFINITION, message)
}

/// What RETURNS says, with the arguments that are part of the result.
struct Returned {
    ty: Type,
    is_set: bool,
    row_of: Option<u32>,
}

impl Work<'_> {
    /// CREATE FUNCTION and CREATE PROCEDURE, but for a look at the body.
    pub(crate) async fn create_routine(&mut self, create: &CreateRoutine) -> Result<Arc<Routine>> {
        refuse(create)?;
        let (body, atomic) = body(create)?;
        if body.len() > BODY_MAX {
            let message = format!("the body is longer than {} kB", BODY_MAX >> 10);
            return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
        }
        let name = Qualified::from_object_name(&create.name)?;
        let schema = self.creation_schema(&name, false)?;
        let mut arguments = self.routine_arguments(create)?;
        let returned = self.returned(create, &mut arguments)?;
        let types: Vec<Type> = arguments.iter().map(|argument| argument.ty).chain([returned.ty]).collect();
        self.hold_types(&types).await?;
        if let Some(relation) = returned.row_of {
            self.hold_row_type(relation).await?;
        }
        check_names(&arguments)?;
        self.check_promises(create, returned.is_set)?;
        let routine = Routine {
            oid: 0,
            schema: schema.oid,
            schema_name: schema.name.clone(),
            name: name.name.clone(),
            kind: create.kind,
            arguments,
            result: returned.ty,
            returns_set: returned.is_set,
            row_of: returned.row_of,
            body,
            atomic,
            behavior: create.behavior.unwrap_or_default(),
            strict: create.strict.unwrap_or(false),
            security_definer: create.security_definer,
            parallel: parallel(create)?,
            cost: positive(create.cost, "COST")?,
            rows: positive(create.rows, "ROWS")?,
            leakproof: create.leakproof.unwrap_or(false),
            comment: None,
        };
        self.hold_schema(&schema).await?;
        self.lock_name(schema.oid, &lock_name(&name.name)).await?;
        let inputs = routine.input_types();
        let existing = {
            let mut named = self.catalog.routines_named(&[], Some(&schema.name), &name.name);
            named.find(|(_, known)| known.input_types() == inputs).map(|(_, known)| known.clone())
        };
        let (oid, comment) = match existing {
            None => (self.allocate_oid()?, None),
            Some(existing) if create.or_replace => {
                self.require_routine_owner(&existing)?;
                check_replacement(&existing, &routine, self.format)?;
                (existing.oid, existing.comment.clone())
            }
            Some(_) => {
                return Err(SqlError::new(
                    sqlstate::DUPLICATE_FUNCTION,
                    format!("function \"{}\" already exists with same argument types", routine.name),
                ));
            }
        };
        let routine = Arc::new(Routine { oid, comment, ..routine });
        self.change(Object::Routine(routine.clone()))?;
        Ok(routine)
    }

    /// What a function promises a planner has to fit it: 22023, 42501.
    fn check_promises(&self, create: &CreateRoutine, returns_set: bool) -> Result<()> {
        if create.rows.is_some() && !returns_set {
            let message = "ROWS is not applicable when function does not return a set";
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
        }
        if create.leakproof == Some(true) && !self.is_superuser() {
            return Err(denied("only superuser can define a leakproof function"));
        }
        Ok(())
    }

    fn routine_arguments(&self, create: &CreateRoutine) -> Result<Vec<Argument>> {
        let arguments = create.arguments.iter().map(|argument| self.routine_argument(argument));
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        let mut has_default = false;
        for argument in &arguments {
            let is_input = argument.mode.is_input();
            if argument.default.is_some() && !is_input {
                return Err(invalid("only input parameters can have default values"));
            }
            if is_input && has_default && argument.default.is_none() {
                return Err(invalid(
                    "input parameters after one with a default value must also have defaults",
                ));
            }
            if argument.mode == ArgumentMode::Out && has_default && create.kind == RoutineKind::Procedure {
                return Err(invalid("procedure OUT parameters cannot appear after one with a default value"));
            }
            has_default |= argument.default.is_some();
        }
        if arguments.len() > ARGUMENTS_MAX {
            return Err(SqlError::new(
                sqlstate::TOO_MANY_ARGUMENTS,
                format!("functions cannot have more than {ARGUMENTS_MAX} arguments"),
            ));
        }
        Ok(arguments)
    }

    fn routine_argument(&self, argument: &RoutineArgument) -> Result<Argument> {
        if argument.variadic {
            return Err(SqlError::unsupported("a VARIADIC argument"));
        }
        self.require_usage_for_type(&argument.data_type)?;
        let ty = match resolve_type(&argument.data_type, self.format) {
            Ok(ty) => ty.of_routine(),
            Err(error) => {
                return Err(match self.row_type(&argument.data_type) {
                    Some(_) => SqlError::unsupported("an argument of a row's type"),
                    // PostgreSQL quotes the type of a result only.
                    None => SqlError::new(error.sqlstate, error.message.replace('"', "")),
                });
            }
        };
        if ty.id.is_pseudo() || ty.id == TypeId::Unknown {
            return Err(match is_polymorphic(ty.id) {
                true => SqlError::unsupported("a polymorphic argument"),
                false => invalid(format!("SQL functions cannot have arguments of type {}", ty.id.sql_name())),
            });
        }
        let default = argument.default.as_ref().map(ToString::to_string);
        if let Some(text) = &default {
            self.bind(|binder| binder.default_argument(text, ty))?;
        }
        let name = argument.name.as_ref().map(fold);
        Ok(Argument { name, mode: argument.mode, ty, default })
    }

    /// The table or view whose rows' type this is.
    fn row_type(&self, data_type: &ast::DataType) -> Option<u32> {
        let ast::DataType::Custom(name, modifiers) = data_type else { return None };
        let name = Qualified::from_object_name(name).ok().filter(|_| modifiers.is_empty())?;
        match self.find(&name)? {
            Relation::Table(table) => Some(table.oid),
            Relation::View(view) => Some(view.oid),
            _ => None,
        }
    }

    /// Type of the result; the columns of RETURNS TABLE join the arguments.
    fn returned(&self, create: &CreateRoutine, arguments: &mut Vec<Argument>) -> Result<Returned> {
        let of_arguments = |arguments: &[Argument]| {
            let mut outputs = arguments.iter().filter(|argument| argument.mode.is_output());
            match (outputs.next(), outputs.next(), create.kind) {
                (None, ..) => None,
                (Some(only), None, RoutineKind::Function) => Some(only.ty),
                _ => Some(TypeId::Record.into()),
            }
        };
        let by_arguments = of_arguments(arguments);
        let (data_type, is_set) = match &create.returns {
            None => {
                let ty = match (by_arguments, create.kind) {
                    (Some(ty), _) => ty,
                    (None, RoutineKind::Procedure) => TypeId::Void.into(),
                    (None, RoutineKind::Function) => {
                        return Err(invalid("function result type must be specified"));
                    }
                };
                return Ok(Returned { ty, is_set: false, row_of: None });
            }
            Some(RoutineReturns::Table(columns)) => {
                if by_arguments.is_some() {
                    return Err(SqlError::syntax(
                        "OUT and INOUT arguments aren't allowed in TABLE functions",
                    ));
                }
                for column in columns {
                    arguments.push(self.routine_argument(column)?);
                }
                let ty = of_arguments(arguments).unwrap_or(TypeId::Record.into());
                return Ok(Returned { ty, is_set: true, row_of: None });
            }
            Some(RoutineReturns::One(data_type)) => (data_type, false),
            Some(RoutineReturns::Set(data_type)) => (data_type, true),
        };
        let (ty, row_of) = self.result_type(data_type)?;
        match by_arguments {
            Some(wanted) if wanted != ty || row_of.is_some() => Err(invalid(format!(
                "function result type must be {} because of OUT parameters",
                name_of(wanted, self.format)
            ))),
            None if ty.id == TypeId::Record && row_of.is_none() => {
                Err(SqlError::unsupported("a function that returns record without OUT arguments")
                    .with_hint("Name its columns: RETURNS TABLE (...)."))
            }
            _ => Ok(Returned { ty, is_set, row_of }),
        }
    }

    fn result_type(&self, data_type: &ast::DataType) -> Result<(Type, Option<u32>)> {
        self.require_usage_for_type(data_type)?;
        let ty = match resolve_type(data_type, self.format) {
            Ok(ty) => ty.of_routine(),
            Err(error) => {
                if let Some(oid) = self.row_type(data_type) {
                    return Ok((TypeId::Record.into(), Some(oid)));
                }
                let name = data_type.to_string().to_lowercase();
                return Err(match name.as_str() {
                    "trigger" | "event_trigger" => {
                        invalid(format!("SQL functions cannot return type {name}"))
                    }
                    _ => error,
                });
            }
        };
        match ty.id {
            TypeId::Void | TypeId::Record => Ok((ty, None)),
            id if is_polymorphic(id) => Err(SqlError::unsupported("a polymorphic result")),
            id if id.is_pseudo() || id == TypeId::Unknown => {
                Err(invalid(format!("SQL functions cannot return type {}", id.sql_name())))
            }
            _ => Ok((ty, None)),
        }
    }

    /// The routines that a DROP names, with the notices about those that are not there. 42883,
    /// 42725, 42809.
    pub(crate) fn routines_to_drop(&self, drop: &DropRoutine) -> Result<(Vec<Arc<Routine>>, Vec<SqlError>)> {
        let (mut found, mut missing): (Vec<Arc<Routine>>, _) = (Vec::new(), Vec::new());
        for (name, arguments) in &drop.routines {
            let name = Qualified::from_object_name(name)?;
            match self.named_routine(drop.kind, &name, arguments.as_deref()) {
                Ok(routine) if found.iter().any(|known| known.oid == routine.oid) => {}
                Ok(routine) => found.push(routine),
                Err(error) if drop.if_exists && is_missing(&error) => {
                    let noun = drop.kind.map_or("routine", RoutineKind::noun);
                    let message = match (error.sqlstate, arguments) {
                        (sqlstate::UNDEFINED_FUNCTION, None) => {
                            format!("{noun} {}() does not exist", name.display())
                        }
                        _ => error.message.clone(),
                    };
                    missing.push(SqlError::notice(format!("{message}, skipping")));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((found, missing))
    }

    /// The routine that a name means, with its arguments if they are given. 42883, 42725, 42809.
    pub(super) fn named_routine(
        &self,
        kind: Option<RoutineKind>,
        name: &Qualified,
        arguments: Option<&[RoutineArgument]>,
    ) -> Result<Arc<Routine>> {
        let noun = kind.map_or("routine", RoutineKind::noun);
        name.check_database(&self.catalog)?;
        if let Some(schema) = name.schema.as_deref().filter(|schema| !self.is_schema(schema)) {
            return Err(undefined_schema(schema));
        }
        self.require_usage(name)?;
        let path = self.facts.binding_path(&self.catalog);
        let mut named = self.catalog.routines_named(&path, name.schema.as_deref(), &name.name);
        let undefined = |message| SqlError::new(sqlstate::UNDEFINED_FUNCTION, message);
        let Some(arguments) = arguments else {
            let mut fitting = named.filter(|(_, routine)| kind.is_none_or(|kind| routine.kind == kind));
            let first = fitting.next();
            let (_, first) = first
                .ok_or_else(|| undefined(format!("could not find a {noun} named \"{}\"", name.display())))?;
            if fitting.next().is_some() {
                return Err(SqlError::new(
                    sqlstate::AMBIGUOUS_FUNCTION,
                    format!("{noun} name \"{}\" is not unique", name.display()),
                )
                .with_hint(format!("Specify the argument list to select the {noun} unambiguously.")));
            }
            return Ok(first.clone());
        };
        arguments.iter().try_for_each(|argument| self.require_usage_for_type(&argument.data_type))?;
        let types = |is_counted: fn(ArgumentMode) -> bool| {
            let counted = arguments.iter().filter(|argument| is_counted(argument.mode));
            counted
                .map(|argument| Ok(resolve_type(&argument.data_type, self.format)?.of_routine()))
                .collect::<Result<Vec<_>>>()
        };
        let (all, inputs) = (types(|_| true)?, types(ArgumentMode::is_input)?);
        let is_meant = |routine: &Routine| {
            let listed: Vec<Type> = routine.listed().map(|argument| argument.ty).collect();
            routine.input_types() == inputs || listed == all
        };
        let Some((_, routine)) = named.find(|(_, routine)| is_meant(routine)) else {
            let shown: Vec<String> = all.iter().map(|ty| name_of(*ty, self.format)).collect();
            return Err(undefined(format!("{noun} {}({}) does not exist", name.display(), shown.join(", "))));
        };
        if kind.is_some_and(|kind| kind != routine.kind) {
            return Err(SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("{} is not a {noun}", routine.signature(self.format)),
            ));
        }
        Ok(routine.clone())
    }
}

/// The name that routines of a name are made and dropped under.
pub(crate) fn lock_name(name: &str) -> String {
    format!("{name}()")
}

/// Whether a routine is not there; none is with arguments of a type that is refused.
fn is_missing(error: &SqlError) -> bool {
    [
        sqlstate::UNDEFINED_FUNCTION,
        sqlstate::INVALID_SCHEMA_NAME,
        sqlstate::UNDEFINED_OBJECT,
        sqlstate::FEATURE_NOT_SUPPORTED,
    ]
    .contains(&error.sqlstate)
}

fn is_polymorphic(id: TypeId) -> bool {
    matches!(
        id,
        TypeId::AnyArray
            | TypeId::AnyElement
            | TypeId::AnyNonArray
            | TypeId::AnyCompatible
            | TypeId::AnyCompatibleArray
    )
}

/// Options that do not fit, or are not supported.
fn refuse(create: &CreateRoutine) -> Result<()> {
    let statement = match create.kind {
        RoutineKind::Function => "CREATE FUNCTION",
        RoutineKind::Procedure => "CREATE PROCEDURE",
    };
    if let Some(refused) = create.refused {
        return Err(SqlError::unsupported(format!("{refused} in {statement}")));
    }
    if create.of_functions && create.kind == RoutineKind::Procedure {
        return Err(invalid("invalid attribute in procedure definition"));
    }
    if create.redundant {
        return Err(SqlError::syntax("conflicting or redundant options"));
    }
    Ok(())
}

/// What it says of parallel plans.
fn parallel(create: &CreateRoutine) -> Result<Parallel> {
    let Some(word) = &create.parallel else { return Ok(Parallel::default()) };
    let message = "parameter \"parallel\" must be SAFE, RESTRICTED, or UNSAFE";
    Parallel::of(&word.value).ok_or_else(|| SqlError::syntax(message))
}

/// COST or ROWS. 22023 unless it is above 0.
fn positive(number: Option<f64>, what: &str) -> Result<Option<f32>> {
    if number.is_some_and(|number| number <= 0.0) {
        let message = format!("{what} must be positive");
        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
    }
    Ok(number.map(|number| number.min(f64::from(f32::MAX)) as f32))
}

/// The body's text, and whether it stood between BEGIN ATOMIC and END.
fn body(create: &CreateRoutine) -> Result<(String, bool)> {
    let language = create.language.as_ref().map(|language| language.value.to_lowercase());
    let is_text = matches!(create.body, None | Some(RoutineBody::Text(_)));
    match language.as_deref() {
        Some("sql") => {}
        None if !is_text => {}
        None => return Err(invalid("no language specified")),
        Some(language @ ("plpgsql" | "c" | "internal" | "plperl" | "plperlu" | "plpython3u" | "pltcl")) => {
            return Err(SqlError::unsupported(format!("language \"{language}\"")));
        }
        Some(language) => {
            return Err(SqlError::new(
                sqlstate::UNDEFINED_OBJECT,
                format!("language \"{language}\" does not exist"),
            ));
        }
    }
    match &create.body {
        None => Err(invalid("no function body specified")),
        Some(RoutineBody::Text(texts)) => match texts.as_slice() {
            [text] => Ok((text.clone(), false)),
            _ => Err(invalid("only one AS item needed for language \"sql\"")),
        },
        Some(RoutineBody::Atomic(text)) => Ok((text.clone(), true)),
        Some(RoutineBody::Return(value)) => Ok((format!("SELECT {value}"), false)),
    }
}

/// 42P13 if two inputs, or two parts of the result, have one name.
fn check_names(arguments: &[Argument]) -> Result<()> {
    for (place, argument) in arguments.iter().enumerate() {
        let Some(name) = &argument.name else { continue };
        let clashes = |other: &&Argument| {
            let apart = argument.mode == ArgumentMode::In && !other.mode.is_input()
                || other.mode == ArgumentMode::In && !argument.mode.is_input();
            other.name.as_ref() == Some(name) && !apart
        };
        if arguments[..place].iter().any(|other| clashes(&other)) {
            return Err(invalid(format!("parameter name \"{name}\" used more than once")));
        }
    }
    Ok(())
}

/// OR REPLACE may change what a routine does, not what its callers rely on.
fn check_replacement(before: &Routine, after: &Routine, format: &FormatContext) -> Result<()> {
    if before.kind != after.kind {
        let (noun, name) = (before.kind.noun(), &before.name);
        return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, "cannot change routine kind")
            .with_detail(format!("\"{name}\" is a {noun}.")));
    }
    let drop_first = |error: SqlError| {
        let noun = before.kind.noun().to_uppercase();
        error.with_hint(format!("Use DROP {noun} {} first.", before.identity(format)))
    };
    let same_result = before.result == after.result
        && before.returns_set == after.returns_set
        && before.row_of == after.row_of;
    if !same_result {
        let message = match before.kind {
            RoutineKind::Function => "cannot change return type of existing function",
            RoutineKind::Procedure => "cannot change whether a procedure has output parameters",
        };
        return Err(drop_first(invalid(message)));
    }
    if before.result.id == TypeId::Record && before.outputs() != after.outputs() {
        let error = invalid("cannot change return type of existing function");
        return Err(drop_first(error.with_detail("Row type defined by OUT parameters is different.")));
    }
    for (old, new) in before.inputs().zip(after.inputs()) {
        if let Some(name) = &old.name
            && new.name.as_ref() != Some(name)
        {
            return Err(drop_first(invalid(format!("cannot change name of input parameter \"{name}\""))));
        }
        if old.default.is_some() && new.default.is_none() {
            return Err(drop_first(invalid("cannot remove parameter defaults from existing function")));
        }
    }
    Ok(())
}
