//! Functions and procedures of users: as SQL text, in the words of `pg_get_functiondef` and its
//! kin, and `information_schema.routines` with their parameters; and what arrays are made of, those
//! of columns and domains too.

use super::information_schema::yes;
use super::names::qualified;
use super::value::{NULL, attribute_number};
use super::viewer::Viewer;
use super::{Source, SystemTable};
use crate::catalog::{
    Argument, ArgumentMode, Behavior, Catalog, Oid, Parallel, Privileges, Routine, RoutineKind, Securable,
};
use crate::identifier::quote_identifier;
use crate::types::Type;
use crate::types::float::write_f32;

pub(super) const TABLES: &[&SystemTable] = &[&ROUTINES, &PARAMETERS, &ELEMENT_TYPES];

/// What `pg_get_function_arguments` prints: with defaults, unless they are to tell routines apart.
pub(super) fn arguments(source: &Source<'_>, routine: &Routine, with_defaults: bool) -> String {
    let printed = routine.arguments.iter().filter(|argument| argument.mode != ArgumentMode::Table);
    let print = |argument: &Argument| {
        let mode = match argument.mode {
            // A procedure's argument says so, as DROP PROCEDURE counts them all.
            ArgumentMode::In if routine.kind == RoutineKind::Procedure => "IN ",
            ArgumentMode::In | ArgumentMode::Table => "",
            ArgumentMode::Out => "OUT ",
            ArgumentMode::InOut => "INOUT ",
        };
        let default = argument.default.as_ref().filter(|_| with_defaults);
        let default = default.map(|default| format!(" DEFAULT {default}")).unwrap_or_default();
        format!("{mode}{}{default}", named(source, argument))
    };
    printed.map(print).collect::<Vec<_>>().join(", ")
}

/// What `pg_get_function_arg_default` prints of the argument at this place, from 1.
pub(super) fn argument_default(routine: &Routine, place: i64) -> Option<String> {
    let place = usize::try_from(place).ok()?.checked_sub(1)?;
    routine.arguments.get(place)?.default.clone()
}

/// `name type`, or the type alone.
fn named(source: &Source<'_>, argument: &Argument) -> String {
    let ty = argument.ty.format_with(source.eval.format);
    match &argument.name {
        Some(name) => format!("{} {ty}", quote_identifier(name)),
        None => ty,
    }
}

/// What `pg_get_function_result` prints; none for a procedure.
pub(super) fn result(source: &Source<'_>, routine: &Routine) -> Option<String> {
    if routine.kind == RoutineKind::Procedure {
        return None;
    }
    let is_column = |argument: &&Argument| argument.mode == ArgumentMode::Table;
    let columns = routine.arguments.iter().filter(is_column);
    let columns: Vec<String> = columns.map(|argument| named(source, argument)).collect();
    if !columns.is_empty() {
        return Some(format!("TABLE({})", columns.join(", ")));
    }
    let set = if routine.returns_set { "SETOF " } else { "" };
    let row = routine.row_of.and_then(|oid| source.display(oid));
    Some(format!("{set}{}", row.unwrap_or_else(|| routine.result.format_with(source.eval.format))))
}

/// What `pg_get_functiondef` prints.
pub(super) fn definition(source: &Source<'_>, routine: &Routine) -> String {
    let noun = routine.kind.noun();
    let name = qualified(&routine.schema_name, &routine.name);
    let mut text = format!("CREATE OR REPLACE {} {name}(", noun.to_uppercase());
    text.push_str(&arguments(source, routine, true));
    text.push_str(")\n");
    if let Some(result) = result(source, routine) {
        text.push_str(&format!(" RETURNS {result}\n"));
    }
    text.push_str(" LANGUAGE sql\n");
    let behavior = match routine.behavior {
        Behavior::Immutable => " IMMUTABLE",
        Behavior::Stable => " STABLE",
        Behavior::Volatile => "",
    };
    let parallel = match routine.parallel {
        Parallel::Unsafe => String::new(),
        parallel => format!(" PARALLEL {}", parallel.word()),
    };
    let strict = if routine.strict { " STRICT" } else { "" };
    let security = if routine.security_definer { " SECURITY DEFINER" } else { "" };
    let leakproof = if routine.leakproof { " LEAKPROOF" } else { "" };
    let cost = estimate("COST", routine.cost, COST);
    let rows = estimate("ROWS", routine.rows, ROWS);
    let options = format!("{behavior}{parallel}{strict}{security}{leakproof}{cost}{rows}");
    if !options.is_empty() {
        text.push_str(&format!("{options}\n"));
    }
    if routine.atomic {
        return text + &format!("BEGIN ATOMIC{}END\n", routine.body);
    }
    let mut mark = noun.to_owned();
    while routine.body.contains(&format!("${mark}")) {
        mark.push('x');
    }
    text + &format!("AS ${mark}${}${mark}$\n", routine.body)
}

/// COST and ROWS of a function in SQL that says nothing of them.
pub(super) const COST: f32 = 100.0;
pub(super) const ROWS: f32 = 1000.0;

/// COST or ROWS, unless it is what every function has that says nothing.
fn estimate(word: &str, given: Option<f32>, usual: f32) -> String {
    let Some(number) = given.filter(|number| *number != usual) else { return String::new() };
    let mut text = Vec::new();
    write_f32(number, 0, &mut text);
    format!(" {word} {}", String::from_utf8_lossy(&text))
}

/// Whether a routine's bare name, with its arguments, leads to it.
pub(super) fn is_visible(catalog: &Catalog, path: &[String], routine: &Routine) -> bool {
    let inputs = routine.input_types();
    let mut named = catalog.routines_named(path, None, &routine.name);
    named.find(|(_, known)| known.input_types() == inputs).is_some_and(|(_, first)| first.oid == routine.oid)
}

/// As `regproc` prints it.
pub(super) fn display(catalog: &Catalog, path: &[String], routine: &Routine) -> String {
    if is_visible(catalog, path, routine) {
        return quote_identifier(&routine.name);
    }
    qualified(&routine.schema_name, &routine.name)
}

/// Name of the type in `information_schema`.
fn data_type(ty: Type) -> &'static str {
    match ty.id {
        id if id.is_array() && ty.domain_oid().is_none() => "ARRAY",
        _ if ty.user_type().is_some() => "USER-DEFINED",
        id => id.sql_name(),
    }
}

/// Schema and name of the type there.
fn udt(source: &Source<'_>, ty: Type) -> (String, String) {
    match ty.user_type().and_then(|oid| source.catalog.user_type_by_oid(oid)) {
        Some(of) if of.oid() != ty.oid() => (of.schema_name().to_owned(), format!("_{}", of.name())),
        Some(of) => (of.schema_name().to_owned(), of.name().to_owned()),
        None => ("pg_catalog".to_owned(), ty.id.internal_name().to_owned()),
    }
}

/// Routines that the session may call, and whether they are its own, which it is shown more of.
fn shown<'a>(source: &Source<'a>) -> Vec<(&'a Routine, bool)> {
    let viewer = Viewer::new(source);
    let all = source.catalog.routines().map(|routine| (&**routine, viewer.owns(routine.oid)));
    let may_call = |oid: Oid| viewer.may(oid, Securable::Routine, Privileges::EXECUTE);
    all.filter(|(routine, is_own)| *is_own || may_call(routine.oid)).collect()
}

system_table! {
    pub(super) static ROUTINES = 13377 view "information_schema"."routines",
    |source| shown(source).into_iter().map(|row| (source, row)) => |(source, (routine, is_own))|,
    specific_catalog: Name = source.database(),
    specific_schema: Name = routine.schema_name.clone(),
    specific_name: Name = specific_name(routine),
    routine_catalog: Name = source.database(),
    routine_schema: Name = routine.schema_name.clone(),
    routine_name: Name = routine.name.clone(),
    routine_type: Varchar = routine.kind.noun().to_uppercase(),
    module_catalog: Name = NULL,
    module_schema: Name = NULL,
    module_name: Name = NULL,
    udt_catalog: Name = NULL,
    udt_schema: Name = NULL,
    udt_name: Name = NULL,
    data_type: Varchar = (routine.kind == RoutineKind::Function).then(|| data_type(routine.result)),
    character_maximum_length: Int4 = NULL,
    character_octet_length: Int4 = NULL,
    character_set_catalog: Name = NULL,
    character_set_schema: Name = NULL,
    character_set_name: Name = NULL,
    collation_catalog: Name = NULL,
    collation_schema: Name = NULL,
    collation_name: Name = NULL,
    numeric_precision: Int4 = NULL,
    numeric_precision_radix: Int4 = NULL,
    numeric_scale: Int4 = NULL,
    datetime_precision: Int4 = NULL,
    interval_type: Varchar = NULL,
    interval_precision: Int4 = NULL,
    type_udt_catalog: Name = (routine.kind == RoutineKind::Function).then(|| source.database()),
    type_udt_schema: Name = (routine.kind == RoutineKind::Function).then(|| udt(source, routine.result).0),
    type_udt_name: Name = (routine.kind == RoutineKind::Function).then(|| udt(source, routine.result).1),
    scope_catalog: Name = NULL,
    scope_schema: Name = NULL,
    scope_name: Name = NULL,
    maximum_cardinality: Int4 = NULL,
    dtd_identifier: Name = (routine.kind == RoutineKind::Function).then_some("0"),
    routine_body: Varchar = "SQL",
    routine_definition: Varchar = is_own.then(|| routine.body.clone()),
    external_name: Varchar = NULL,
    external_language: Varchar = "SQL",
    parameter_style: Varchar = "GENERAL",
    is_deterministic: Varchar = yes(routine.behavior == Behavior::Immutable),
    sql_data_access: Varchar = "MODIFIES",
    is_null_call: Varchar = (routine.kind == RoutineKind::Function).then(|| yes(routine.strict)),
    sql_path: Varchar = NULL,
    schema_level_routine: Varchar = "YES",
    max_dynamic_result_sets: Int4 = 0,
    is_user_defined_cast: Varchar = NULL,
    is_implicitly_invocable: Varchar = NULL,
    security_type: Varchar = if routine.security_definer { "DEFINER" } else { "INVOKER" },
    to_sql_specific_catalog: Name = NULL,
    to_sql_specific_schema: Name = NULL,
    to_sql_specific_name: Name = NULL,
    as_locator: Varchar = "NO",
    created: Timestamptz = NULL,
    last_altered: Timestamptz = NULL,
    new_savepoint_level: Varchar = NULL,
    is_udt_dependent: Varchar = "NO",
    result_cast_from_data_type: Varchar = NULL,
    result_cast_as_locator: Varchar = NULL,
    result_cast_char_max_length: Int4 = NULL,
    result_cast_char_octet_length: Int4 = NULL,
    result_cast_char_set_catalog: Name = NULL,
    result_cast_char_set_schema: Name = NULL,
    result_cast_char_set_name: Name = NULL,
    result_cast_collation_catalog: Name = NULL,
    result_cast_collation_schema: Name = NULL,
    result_cast_collation_name: Name = NULL,
    result_cast_numeric_precision: Int4 = NULL,
    result_cast_numeric_precision_radix: Int4 = NULL,
    result_cast_numeric_scale: Int4 = NULL,
    result_cast_datetime_precision: Int4 = NULL,
    result_cast_interval_type: Varchar = NULL,
    result_cast_interval_precision: Int4 = NULL,
    result_cast_type_udt_catalog: Name = NULL,
    result_cast_type_udt_schema: Name = NULL,
    result_cast_type_udt_name: Name = NULL,
    result_cast_scope_catalog: Name = NULL,
    result_cast_scope_schema: Name = NULL,
    result_cast_scope_name: Name = NULL,
    result_cast_maximum_cardinality: Int4 = NULL,
    result_cast_dtd_identifier: Name = NULL,
}

system_table! {
    static PARAMETERS = 13334 view "information_schema"."parameters",
    |source| shown(source).into_iter().flat_map(|(routine, is_own)| {
        let arguments = routine.arguments.iter().enumerate();
        arguments.map(move |argument| (source, routine, is_own, argument))
    }) => |(source, routine, is_own, (place, argument))|,
    specific_catalog: Name = source.database(),
    specific_schema: Name = routine.schema_name.clone(),
    specific_name: Name = specific_name(routine),
    ordinal_position: Int4 = i32::from(attribute_number(place)),
    parameter_mode: Varchar = match argument.mode {
        ArgumentMode::In => "IN",
        ArgumentMode::Out | ArgumentMode::Table => "OUT",
        ArgumentMode::InOut => "INOUT",
    },
    is_result: Varchar = "NO",
    as_locator: Varchar = "NO",
    parameter_name: Name = argument.name.clone(),
    data_type: Varchar = data_type(argument.ty),
    character_maximum_length: Int4 = NULL,
    character_octet_length: Int4 = NULL,
    character_set_catalog: Name = NULL,
    character_set_schema: Name = NULL,
    character_set_name: Name = NULL,
    collation_catalog: Name = NULL,
    collation_schema: Name = NULL,
    collation_name: Name = NULL,
    numeric_precision: Int4 = NULL,
    numeric_precision_radix: Int4 = NULL,
    numeric_scale: Int4 = NULL,
    datetime_precision: Int4 = NULL,
    interval_type: Varchar = NULL,
    interval_precision: Int4 = NULL,
    udt_catalog: Name = source.database(),
    udt_schema: Name = udt(source, argument.ty).0,
    udt_name: Name = udt(source, argument.ty).1,
    scope_catalog: Name = NULL,
    scope_schema: Name = NULL,
    scope_name: Name = NULL,
    maximum_cardinality: Int4 = NULL,
    dtd_identifier: Name = attribute_number(place).to_string(),
    parameter_default: Varchar = argument.default.clone().filter(|_| is_own),
}

/// Name of a routine that no other one has.
pub(super) fn specific_name(routine: &Routine) -> String {
    format!("{}_{}", routine.name, routine.oid)
}

/// An array that something is of.
struct ArrayOf {
    schema: String,
    /// Name and kind of the object that it belongs to, and which of the object's types it is.
    object: String,
    kind: &'static str,
    identifier: String,
    /// What it is made of.
    element: Type,
}

/// Arrays among columns, domains, and arguments and results of routines, as far as the session is
/// shown these.
fn arrays(source: &Source<'_>) -> Vec<ArrayOf> {
    let (catalog, viewer) = (source.catalog, Viewer::new(source));
    let mut all = Vec::new();
    let mut add = |schema: &str, object: String, kind: &'static str, number: i16, ty: Type| {
        if let Some(element) = ty.element().filter(|_| ty.domain_oid().is_none()) {
            let (schema, identifier) = (schema.to_owned(), number.to_string());
            all.push(ArrayOf { schema, object, kind, identifier, element });
        }
    };
    for table in catalog.tables().filter(|table| !viewer.is_of_another_session(table.schema)) {
        let is_shown = viewer.columns(table.oid, Privileges::COLUMN);
        for (place, column) in table.visible_columns().filter(|(place, _)| is_shown(*place)) {
            add(&table.schema_name, table.name.clone(), "TABLE", attribute_number(place), column.ty);
        }
    }
    for view in catalog.views().filter(|view| !viewer.is_of_another_session(view.schema)) {
        let is_shown = viewer.columns(view.oid, Privileges::COLUMN);
        for (place, column) in view.columns.iter().enumerate().filter(|(place, _)| is_shown(*place)) {
            add(&view.schema_name, view.name.clone(), "TABLE", attribute_number(place), column.ty);
        }
    }
    let may_use = |oid: Oid| viewer.sees(oid, Securable::Type, Privileges::USAGE);
    for domain in catalog.domains().filter(|domain| may_use(domain.oid)) {
        add(&domain.schema_name, domain.name.clone(), "DOMAIN", 1, domain.base);
    }
    for (routine, _) in shown(source) {
        let name = specific_name(routine);
        for (place, argument) in routine.arguments.iter().enumerate() {
            add(&routine.schema_name, name.clone(), "ROUTINE", attribute_number(place), argument.ty);
        }
        if routine.kind == RoutineKind::Function {
            add(&routine.schema_name, name, "ROUTINE", 0, routine.result);
        }
    }
    all
}

system_table! {
    static ELEMENT_TYPES = 13493 view "information_schema"."element_types",
    |source| arrays(source).into_iter().map(|array| (source, array)) => |(source, array)|,
    object_catalog: Name = source.database(),
    object_schema: Name = array.schema,
    object_name: Name = array.object,
    object_type: Varchar = array.kind,
    collection_type_identifier: Name = array.identifier.clone(),
    data_type: Varchar = data_type(array.element),
    character_maximum_length: Int4 = NULL,
    character_octet_length: Int4 = NULL,
    character_set_catalog: Name = NULL,
    character_set_schema: Name = NULL,
    character_set_name: Name = NULL,
    collation_catalog: Name = NULL,
    collation_schema: Name = NULL,
    collation_name: Name = NULL,
    numeric_precision: Int4 = NULL,
    numeric_precision_radix: Int4 = NULL,
    numeric_scale: Int4 = NULL,
    datetime_precision: Int4 = NULL,
    interval_type: Varchar = NULL,
    interval_precision: Int4 = NULL,
    domain_default: Varchar = NULL,
    udt_catalog: Name = source.database(),
    udt_schema: Name = udt(source, array.element).0,
    udt_name: Name = udt(source, array.element).1,
    scope_catalog: Name = NULL,
    scope_schema: Name = NULL,
    scope_name: Name = NULL,
    maximum_cardinality: Int4 = NULL,
    dtd_identifier: Name = format!("a{}", array.identifier),
}
