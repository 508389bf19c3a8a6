//! `pg_proc`: the functions there are, built-in ones and users'.
//!
//! Most functions have no oid of their own in the table of functions; they get one here by their
//! place, above the oids that PostgreSQL gives out and below those of users' objects, the same in
//! every run of one version.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::names::qualified;
use super::routine::{COST, ROWS};
use super::type_facts;
use super::types::{INTERNAL_LANGUAGE, SQL_LANGUAGE};
use super::value::{NULL, array, vector};
use super::{SystemTable, acl};
use crate::catalog::{Catalog, OWNER_OID, Oid, PG_CATALOG_OID, Routine, RoutineKind};
use crate::function::{Function, Kind, Volatility, all};
use crate::types::{Datum, TypeId};

pub(super) const TABLES: &[&SystemTable] = &[&PG_PROC];

/// Where the oids begin of functions that have none of their own.
const FIRST: Oid = 14_000;
/// Oid of `cstring`, which no value here has.
const CSTRING: Oid = 2275;
/// Oid of `cstring[]`.
const CSTRING_ARRAY: Oid = 1263;
/// Oid of `internal`, which no value here has.
const INTERNAL: Oid = 2281;

/// A function as `pg_proc` shows it.
pub(super) struct Procedure {
    pub(super) oid: Oid,
    pub(super) name: &'static str,
    pub(super) arguments: Vec<Oid>,
    pub(super) result: Oid,
    /// None of those that read and write types' values.
    function: Option<&'static Function>,
}

impl Procedure {
    /// The last argument's type, if it may repeat.
    pub(super) fn variadic(&self) -> Oid {
        let function = self.function.filter(|function| function.variadic);
        function.and_then(|function| function.arguments.last()).map_or(0, |id| id.oid())
    }

    fn kind(&self) -> char {
        match self.function.map(Function::kind) {
            Some(Kind::Aggregate) => 'a',
            Some(Kind::Window) => 'w',
            _ => 'f',
        }
    }

    /// Gives rows.
    pub(super) fn returns_set(&self) -> bool {
        self.function.is_some_and(|function| function.kind() == Kind::SetReturning)
    }

    fn optional(&self) -> i16 {
        self.function.map_or(0, |function| super::value::attribute_number(function.optional) - 1)
    }

    fn volatility(&self) -> char {
        match self.function.map(|function| function.volatility) {
            Some(Volatility::Volatile) => 'v',
            Some(Volatility::Stable) => 's',
            Some(Volatility::Immutable) | None => 'i',
        }
    }

    /// Whether it is NULL, without a call, if an argument is.
    fn is_strict(&self) -> bool {
        self.function.is_none_or(|function| function.strict)
    }

    /// What `pg_get_functiondef` prints, with its arguments and its result as they are printed.
    /// None of an aggregate.
    pub(super) fn definition(&self, arguments: &str, result: &str) -> Option<String> {
        let window = match self.kind() {
            'a' => return None,
            'w' => " WINDOW",
            _ => "",
        };
        let behavior = match self.volatility() {
            'i' => " IMMUTABLE",
            's' => " STABLE",
            _ => "",
        };
        let strict = if self.is_strict() { " STRICT" } else { "" };
        let name = qualified("pg_catalog", self.name);
        Some(format!(
            "CREATE OR REPLACE FUNCTION {name}({arguments})\n RETURNS {result}\n LANGUAGE internal\n\
             {window}{behavior} PARALLEL SAFE{strict}\nAS $function${}$function$\n",
            self.name
        ))
    }

    fn of(place: usize, function: &'static Function) -> Procedure {
        let place = Oid::try_from(place).unwrap_or(0);
        Procedure {
            oid: if function.oid == 0 { FIRST + place } else { function.oid },
            name: function.name,
            arguments: function.arguments.iter().map(|id| id.oid()).collect(),
            result: function.result.oid(),
            function: Some(function),
        }
    }

    /// A function that reads or writes values of a type.
    fn of_type(oid: Oid, name: &'static str, ty: Oid) -> Procedure {
        let (arguments, result) = if name.ends_with("typmodin") {
            (vec![CSTRING_ARRAY], TypeId::Int4.oid())
        } else if name.ends_with("typmodout") {
            (vec![TypeId::Int4.oid()], CSTRING)
        } else if let Some(of) = name.strip_suffix("in") {
            (reads(CSTRING, of), ty)
        } else if name.ends_with("out") {
            (vec![ty], CSTRING)
        } else if name.ends_with("send") {
            (vec![ty], TypeId::Bytea.oid())
        } else if let Some(of) = name.strip_suffix("recv") {
            (reads(INTERNAL, of), ty)
        } else {
            (vec![INTERNAL], INTERNAL)
        };
        Procedure { oid, name, arguments, result, function: None }
    }
}

/// The arguments of a function that reads values: some are told the type, and its modifier.
fn reads(from: Oid, of: &str) -> Vec<Oid> {
    let all = [from, TypeId::Oid.oid(), TypeId::Int4.oid()];
    let told = match of.trim_end_matches('_') {
        "array" | "record" | "domain" | "bpchar" | "varchar" | "numeric" => 3,
        "time" | "timestamp" | "timestamptz" | "interval" => 3,
        "enum" => 2,
        _ => 1,
    };
    all[..told].to_vec()
}

/// A row of `pg_proc`.
enum Row<'a> {
    BuiltIn(&'static Procedure),
    Users(&'a Routine),
}

impl Row<'_> {
    fn all(catalog: &Catalog) -> impl Iterator<Item = Row<'_>> {
        let users = catalog.routines().map(|routine| Row::Users(routine));
        PROCEDURES.iter().map(Row::BuiltIn).chain(users)
    }

    fn by_oid(catalog: &Catalog, oid: Oid) -> Option<Row<'_>> {
        match catalog.routine_by_oid(oid) {
            Some(routine) => Some(Row::Users(routine)),
            None => by_oid(oid).map(Row::BuiltIn),
        }
    }

    /// What `of_user` or `built_in` says.
    fn say<T>(&self, built_in: impl FnOnce(&Procedure) -> T, of_user: impl FnOnce(&Routine) -> T) -> T {
        match self {
            Row::BuiltIn(procedure) => built_in(procedure),
            Row::Users(routine) => of_user(routine),
        }
    }

    /// An array that only users' routines with results among their arguments have, or names.
    fn list(&self, wanted: fn(&Routine) -> bool, items: impl FnOnce(&Routine) -> Datum) -> Datum {
        match self {
            Row::Users(routine) if wanted(routine) => items(routine),
            _ => NULL,
        }
    }

    fn defaults(&self) -> Datum {
        let Row::Users(routine) = self else { return NULL };
        let defaults: Vec<&str> = routine.inputs().filter_map(|input| input.default.as_deref()).collect();
        if defaults.is_empty() { NULL } else { defaults.join(", ").into() }
    }
}

fn has_outputs(routine: &Routine) -> bool {
    routine.arguments.iter().any(|argument| argument.mode.is_output())
}

fn has_names(routine: &Routine) -> bool {
    routine.arguments.iter().any(|argument| argument.name.is_some())
}

/// A number of arguments.
fn count(number: usize) -> i16 {
    super::value::attribute_number(number) - 1
}

static PROCEDURES: LazyLock<Vec<Procedure>> = LazyLock::new(|| {
    let mut all: Vec<Procedure> =
        all().enumerate().map(|(place, function)| Procedure::of(place, function)).collect();
    let own: std::collections::HashSet<Oid> = all.iter().map(|procedure| procedure.oid).collect();
    let mut seen = own;
    for ((oid, name), ty) in type_facts::functions() {
        if seen.insert(oid) {
            all.push(Procedure::of_type(oid, name, if ty == 0 { TypeId::AnyArray.oid() } else { ty }));
        }
    }
    all.sort_by_key(|procedure| procedure.oid);
    all
});

static BY_OID: LazyLock<HashMap<Oid, &'static Procedure>> =
    LazyLock::new(|| PROCEDURES.iter().map(|procedure| (procedure.oid, procedure)).collect());

/// The function of this oid.
pub(super) fn by_oid(oid: Oid) -> Option<&'static Procedure> {
    BY_OID.get(&oid).copied()
}

/// The functions of this name.
pub(super) fn named(name: &str) -> impl Iterator<Item = &'static Procedure> {
    PROCEDURES.iter().filter(move |procedure| procedure.name == name)
}

/// The aggregates.
pub(super) fn aggregates() -> impl Iterator<Item = &'static Procedure> {
    PROCEDURES.iter().filter(|procedure| procedure.kind() == 'a')
}

/// The function of this name whose arguments are of these types.
pub(super) fn by_arguments(name: &str, types: &[Oid]) -> Option<&'static Procedure> {
    let is_it = |procedure: &&Procedure| procedure.name == name && procedure.arguments.as_slice() == types;
    PROCEDURES.iter().find(is_it)
}

fn types(oids: &[Oid]) -> Datum {
    vector(TypeId::Oid, oids.iter().copied())
}

system_table! {
    static PG_PROC = 1255 table "pg_catalog"."pg_proc",
    |source| Row::all(source.catalog).map(|row| (source, row)) => |(source, row)|,
    [by oid(key) => Row::by_oid(source.catalog, key).map(|row| (source, row))],
    oid: Oid = row.say(|procedure| procedure.oid, |routine| routine.oid),
    proname: Name = row.say(|procedure| procedure.name.to_owned(), |routine| routine.name.clone()),
    pronamespace: Oid = row.say(|_| PG_CATALOG_OID, |routine| routine.schema),
    proowner: Oid = row.say(|_| OWNER_OID, |routine| source.catalog.owner(routine.oid)),
    prolang: Oid = row.say(|_| INTERNAL_LANGUAGE, |_| SQL_LANGUAGE),
    procost: Float4 = row.say(|_| 1.0_f32, |routine| routine.cost.unwrap_or(COST)),
    prorows: Float4 = row.say(
        |procedure| if procedure.returns_set() { ROWS } else { 0.0 },
        |routine| if routine.returns_set { routine.rows.unwrap_or(ROWS) } else { 0.0 },
    ),
    provariadic: Oid = row.say(Procedure::variadic, |_| 0),
    prosupport: Regproc = 0,
    prokind: InternalChar = row.say(Procedure::kind, |routine| match routine.kind {
        RoutineKind::Function => 'f',
        RoutineKind::Procedure => 'p',
    }),
    prosecdef: Bool = row.say(|_| false, |routine| routine.security_definer),
    proleakproof: Bool = row.say(|_| false, |routine| routine.leakproof),
    proisstrict: Bool = row.say(Procedure::is_strict, |routine| routine.strict),
    proretset: Bool = row.say(Procedure::returns_set, |routine| routine.returns_set),
    provolatile: InternalChar = row.say(Procedure::volatility, |routine| routine.behavior.letter()),
    proparallel: InternalChar = row.say(|_| 's', |routine| routine.parallel.letter()),
    pronargs: Int2 = row.say(
        |procedure| count(procedure.arguments.len()),
        |routine| count(routine.inputs().count()),
    ),
    pronargdefaults: Int2 = row.say(
        Procedure::optional,
        |routine| count(routine.inputs().filter(|input| input.default.is_some()).count()),
    ),
    prorettype: Oid = row.say(|procedure| procedure.result, |routine| routine.result.oid()),
    proargtypes: Oidvector = row.say(
        |procedure| types(&procedure.arguments),
        |routine| vector(TypeId::Oid, routine.inputs().map(|input| input.ty.oid())),
    ),
    proallargtypes: OidArray = row.list(has_outputs, |routine| {
        array(TypeId::Oid, routine.arguments.iter().map(|argument| argument.ty.oid()))
    }),
    proargmodes: InternalCharArray = row.list(has_outputs, |routine| {
        array(TypeId::InternalChar, routine.arguments.iter().map(|argument| argument.mode.letter()))
    }),
    proargnames: TextArray = row.list(has_names, |routine| {
        array(TypeId::Text, routine.arguments.iter().map(|argument| argument.name.clone().unwrap_or_default()))
    }),
    proargdefaults: Text = row.defaults(),
    protrftypes: OidArray = NULL,
    prosrc: Text = row.say(|procedure| procedure.name.to_owned(), |routine| routine.body.clone()),
    probin: Text = NULL,
    prosqlbody: Text = NULL,
    proconfig: TextArray = NULL,
    proacl: TextArray = row.say(|_| NULL, |routine| acl::of(source, routine.oid)),
}
