//! What there is to compute with besides functions: `pg_operator`, `pg_cast`, `pg_aggregate`.
//!
//! Operators and casts have no oids in their tables. The operators `=`, which constraints refer to,
//! have PostgreSQL's; the others get one here by their place, above the oids that PostgreSQL gives
//! out by hand and below those of users' objects, the same in every run of one version. What
//! computes them is no function that could be called, so `oprcode` is 0 but for `=`, and a cast
//! that changes values is told as one by way of text, which is what needs no function. How an
//! aggregate computes is not told either.

use std::sync::LazyLock;

use super::procedure::{Procedure, aggregates};
use super::types::EQUALITY;
use super::value::NULL;
use super::{SystemTable, procedure};
use crate::catalog::{OWNER_OID, Oid, PG_CATALOG_OID};
use crate::function::is_ordered_set;
use crate::function::operator::{Comparison, Signature, signatures};
use crate::types::TypeId;
use crate::types::cast::{CastContext, listed};

pub(super) const TABLES: &[&SystemTable] = &[&PG_OPERATOR, &PG_CAST, &PG_AGGREGATE];

/// Where the oids begin of operators and casts.
const FIRST: Oid = 10_000;

/// An operator as `pg_operator` shows it.
struct Operator {
    oid: Oid,
    signature: Signature,
    /// Oids of the operators with the operands exchanged, and of the one that is true where this
    /// one is false; 0 where there is none, or where that is not known.
    commutator: Oid,
    negator: Oid,
    function: Oid,
}

impl Operator {
    fn new(oid: Oid, signature: Signature, all: &[(Oid, Signature)]) -> Operator {
        let find = |name: &str, left: TypeId, right: TypeId| {
            let is_it = |known: &&(Oid, Signature)| {
                known.1.name == name && known.1.left == Some(left) && known.1.right == right
            };
            all.iter().find(is_it).map_or(0, |known| known.0)
        };
        let right = signature.right;
        let (commutator, negator) = match (signature.comparison, signature.left) {
            (Some(comparison), Some(left)) => (
                find(comparison.commuted().symbol(), right, left),
                find(comparison.negated().symbol(), left, right),
            ),
            _ => (0, 0),
        };
        let function = equality(&signature).map_or(0, |known| known.2);
        Operator { oid, signature, commutator, negator, function }
    }

    fn is_equality(&self) -> bool {
        self.signature.comparison == Some(Comparison::Equal)
    }
}

/// What is known of an operator `=` of two values of one type.
fn equality(signature: &Signature) -> Option<&'static (Oid, TypeId, Oid)> {
    let is_one = signature.comparison == Some(Comparison::Equal) && signature.left == Some(signature.right);
    EQUALITY.iter().find(|known| is_one && known.1 == signature.right)
}

static OPERATORS: LazyLock<Vec<Operator>> = LazyLock::new(|| {
    let numbered = (FIRST..).zip(signatures());
    let all: Vec<(Oid, Signature)> = numbered
        .map(|(oid, signature)| (equality(&signature).map_or(oid, |known| known.0), signature))
        .collect();
    all.iter().map(|&(oid, signature)| Operator::new(oid, signature, &all)).collect()
});

/// The name of an operator: with the types of its operands, or with its schema unless it is the
/// only one of the name.
pub(super) fn operator_name(oid: Oid, with_operands: bool) -> Option<String> {
    let signature = OPERATORS.iter().find(|operator| operator.oid == oid)?.signature;
    let name = signature.name;
    if with_operands {
        let left = signature.left.map_or("NONE", TypeId::sql_name);
        return Some(format!("{name}({left},{})", signature.right.sql_name()));
    }
    let alike = OPERATORS.iter().filter(|operator| operator.signature.name == name).count();
    Some(if alike == 1 { name.to_owned() } else { format!("pg_catalog.{name}") })
}

system_table! {
    static PG_OPERATOR = 2617 table "pg_catalog"."pg_operator",
    |_source| OPERATORS.iter() => |operator|,
    oid: Oid = operator.oid,
    oprname: Name = operator.signature.name,
    oprnamespace: Oid = PG_CATALOG_OID,
    oprowner: Oid = OWNER_OID,
    oprkind: InternalChar = if operator.signature.left.is_some() { 'b' } else { 'l' },
    oprcanmerge: Bool = operator.is_equality() && operator.signature.right != TypeId::Xid,
    oprcanhash: Bool = operator.is_equality(),
    oprleft: Oid = operator.signature.left.map_or(0, TypeId::oid),
    oprright: Oid = operator.signature.right.oid(),
    oprresult: Oid = operator.signature.result.oid(),
    oprcom: Oid = operator.commutator,
    oprnegate: Oid = operator.negator,
    oprcode: Regproc = operator.function,
    oprrest: Regproc = 0,
    oprjoin: Regproc = 0,
}

/// A cast as `pg_cast` shows it.
struct Cast {
    oid: Oid,
    from: TypeId,
    to: TypeId,
    function: Oid,
    context: char,
    method: char,
}

static CASTS: LazyLock<Vec<Cast>> = LazyLock::new(|| {
    let casts = (FIRST..).zip(listed()).map(|(oid, (from, to, context, is_same))| {
        // One representation in PostgreSQL, two here.
        let is_oid_as_int = (from == TypeId::Int4 && to.is_oid()) || (from.is_oid() && to == TypeId::Int4);
        let is_same = is_same || is_oid_as_int;
        let function = procedure::by_arguments(to.internal_name(), &[from.oid()]).filter(|_| !is_same);
        Cast {
            oid,
            from,
            to,
            function: function.map_or(0, |function| function.oid),
            context: match context {
                CastContext::Implicit => 'i',
                CastContext::Assignment => 'a',
                CastContext::Explicit => 'e',
            },
            method: match function {
                _ if is_same => 'b',
                Some(_) => 'f',
                None => 'i',
            },
        }
    });
    casts.collect()
});

system_table! {
    static PG_CAST = 2605 table "pg_catalog"."pg_cast",
    |_source| CASTS.iter() => |cast|,
    oid: Oid = cast.oid,
    castsource: Oid = cast.from.oid(),
    casttarget: Oid = cast.to.oid(),
    castfunc: Oid = cast.function,
    castcontext: InternalChar = cast.context,
    castmethod: InternalChar = cast.method,
}

/// How many arguments of an aggregate are not of its rows: all but the last of one with WITHIN
/// GROUP.
fn direct_arguments(aggregate: &Procedure) -> i16 {
    let direct = aggregate.arguments.len().saturating_sub(1);
    if is_ordered_set(aggregate.name) { i16::try_from(direct).unwrap_or(i16::MAX) } else { 0 }
}

system_table! {
    static PG_AGGREGATE = 2600 table "pg_catalog"."pg_aggregate",
    |_source| aggregates() => |aggregate|,
    aggfnoid: Regproc = aggregate.oid,
    aggkind: InternalChar = if is_ordered_set(aggregate.name) { 'o' } else { 'n' },
    aggnumdirectargs: Int2 = direct_arguments(aggregate),
    aggtransfn: Regproc = 0,
    aggfinalfn: Regproc = 0,
    aggcombinefn: Regproc = 0,
    aggserialfn: Regproc = 0,
    aggdeserialfn: Regproc = 0,
    aggmtransfn: Regproc = 0,
    aggminvtransfn: Regproc = 0,
    aggmfinalfn: Regproc = 0,
    aggfinalextra: Bool = false,
    aggmfinalextra: Bool = false,
    aggfinalmodify: InternalChar = 'r',
    aggmfinalmodify: InternalChar = 'r',
    aggsortop: Oid = 0,
    aggtranstype: Oid = 0,
    aggtransspace: Int4 = 0,
    aggmtranstype: Oid = 0,
    aggmtransspace: Int4 = 0,
    agginitval: Text = NULL,
    aggminitval: Text = NULL,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::catalog::FIRST_USER_OID;

    fn operator(name: &str, left: TypeId, right: TypeId) -> &'static Operator {
        let is_it = |known: &&Operator| {
            let signature = &known.signature;
            signature.name == name && signature.left == Some(left) && signature.right == right
        };
        OPERATORS.iter().find(is_it).unwrap_or_else(|| panic!("no operator {name}"))
    }

    #[test]
    fn oids_are_unique_and_those_of_equality_postgresqls() {
        let oids: HashSet<Oid> = OPERATORS.iter().map(|operator| operator.oid).collect();
        assert_eq!(oids.len(), OPERATORS.len());
        for (oid, ty, function) in EQUALITY {
            let equality = operator("=", *ty, *ty);
            assert_eq!((equality.oid, equality.function), (*oid, *function), "{ty:?}");
            assert_eq!(equality.commutator, *oid, "{ty:?}");
        }
        let casts: HashSet<Oid> = CASTS.iter().map(|cast| cast.oid).collect();
        assert_eq!(casts.len(), CASTS.len());
        assert!(oids.iter().chain(&casts).all(|oid| *oid < FIRST_USER_OID));
    }

    #[test]
    fn comparisons_lead_to_one_another() {
        let less = operator("<", TypeId::Int2, TypeId::Int8);
        assert_eq!(less.commutator, operator(">", TypeId::Int8, TypeId::Int2).oid);
        assert_eq!(less.negator, operator(">=", TypeId::Int2, TypeId::Int8).oid);
        assert_eq!(operator("+", TypeId::Int4, TypeId::Int4).negator, 0);
    }

    #[test]
    fn casts_are_those_of_expressions() {
        let find = |from: TypeId, to: TypeId| {
            let cast = CASTS.iter().find(|cast| (cast.from, cast.to) == (from, to));
            cast.map(|cast| (cast.context, cast.method == 'b'))
        };
        assert_eq!(find(TypeId::Int4, TypeId::Int8), Some(('i', false)));
        assert_eq!(find(TypeId::Int8, TypeId::Int4), Some(('a', false)));
        assert_eq!(find(TypeId::Int4, TypeId::Bool), Some(('e', false)));
        assert_eq!(find(TypeId::Int4, TypeId::Regclass), Some(('i', true)));
        assert_eq!(find(TypeId::Varchar, TypeId::Text), Some(('i', true)));
        assert_eq!(find(TypeId::Bool, TypeId::Date), None);
    }
}
