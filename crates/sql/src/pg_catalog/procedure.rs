//! `pg_proc`: the functions there are.
//!
//! Most functions have no oid of their own in the table of functions; they get one here by their
//! place, above the oids that PostgreSQL gives out and below those of users' objects, the same in
//! every run of one version.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::SystemTable;
use super::type_facts;
use super::types::INTERNAL_LANGUAGE;
use super::value::{NULL, vector};
use crate::catalog::{OWNER_OID, Oid, PG_CATALOG_OID};
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
        } else if name.ends_with("in") {
            (vec![CSTRING], ty)
        } else if name.ends_with("out") {
            (vec![ty], CSTRING)
        } else if name.ends_with("send") {
            (vec![ty], TypeId::Bytea.oid())
        } else {
            (vec![INTERNAL], if name.ends_with("recv") { ty } else { INTERNAL })
        };
        Procedure { oid, name, arguments, result, function: None }
    }
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

/// The only function of this name; none if there are several or none.
pub(super) fn by_name(name: &str) -> Option<&'static Procedure> {
    let mut named = PROCEDURES.iter().filter(|procedure| procedure.name == name);
    match (named.next(), named.next()) {
        (Some(procedure), None) => Some(procedure),
        _ => None,
    }
}

fn types(oids: &[Oid]) -> Datum {
    vector(TypeId::Oid, oids.iter().copied())
}

system_table! {
    static PG_PROC = 1255 table "pg_catalog"."pg_proc",
    |_source| PROCEDURES.iter() => |procedure|,
    [by oid(key) => by_oid(key)],
    oid: Oid = procedure.oid,
    proname: Name = procedure.name,
    pronamespace: Oid = PG_CATALOG_OID,
    proowner: Oid = OWNER_OID,
    prolang: Oid = INTERNAL_LANGUAGE,
    procost: Float4 = 1.0_f32,
    prorows: Float4 = if procedure.returns_set() { 1000.0_f32 } else { 0.0 },
    provariadic: Oid = procedure.variadic(),
    prosupport: Regproc = 0,
    prokind: InternalChar = procedure.kind(),
    prosecdef: Bool = false,
    proleakproof: Bool = false,
    proisstrict: Bool = procedure.function.is_none_or(|function| function.strict),
    proretset: Bool = procedure.returns_set(),
    provolatile: InternalChar = procedure.volatility(),
    proparallel: InternalChar = 's',
    pronargs: Int2 = super::value::attribute_number(procedure.arguments.len()) - 1,
    pronargdefaults: Int2 = procedure.optional(),
    prorettype: Oid = procedure.result,
    proargtypes: Oidvector = types(&procedure.arguments),
    proallargtypes: OidArray = NULL,
    proargmodes: InternalCharArray = NULL,
    proargnames: TextArray = NULL,
    proargdefaults: Text = NULL,
    protrftypes: OidArray = NULL,
    prosrc: Text = procedure.name,
    probin: Text = NULL,
    prosqlbody: Text = NULL,
    proconfig: TextArray = NULL,
    proacl: TextArray = NULL,
}
