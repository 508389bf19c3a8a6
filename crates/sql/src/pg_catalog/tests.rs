//! The tables over a small catalog made by hand.

use std::sync::Arc;

use super::*;
use crate::catalog::{
    Catalog, Check, Column, ForeignKey, Index, IndexColumn, Object, PUBLIC_OID, Reference, ReferentialAction,
    Sequence, Table,
};
use crate::function::{EvalContext, Kind, SessionView};
use crate::types::{Datum, FormatContext, Type, TypeId};

pub(super) fn column(name: &str, ty: Type, not_null: bool, default: Option<&str>) -> Column {
    Column {
        name: name.to_owned(),
        ty,
        collation: None,
        not_null,
        default: default.map(str::to_owned),
        identity: None,
        generated: None,
        sequence: None,
        dropped: false,
        missing: Datum::Null,
        comment: None,
    }
}

fn key(oid: u32, name: &str, tree: u32, column: usize, primary: bool, constraint: Option<u32>) -> Index {
    Index {
        oid,
        name: name.to_owned(),
        tree,
        columns: vec![IndexColumn::ascending(column)],
        expressions: vec![],
        predicate: None,
        unique: constraint.is_some(),
        deferrable: None,
        nulls_not_distinct: false,
        included: vec![],
        options: vec![],
        hash: false,
        primary,
        constraint,
        comment: None,
        constraint_comment: None,
    }
}

pub(super) fn table(oid: u32, name: &str, columns: Vec<Column>, indexes: Vec<Index>) -> Table {
    Table {
        oid,
        schema: PUBLIC_OID,
        schema_name: "public".to_owned(),
        name: name.to_owned(),
        tree: oid,
        columns,
        indexes,
        checks: vec![],
        foreign_keys: vec![],
        referenced_by: vec![],
        temporary: false,
        on_commit: None,
        options: vec![],
        comment: None,
        hints: Default::default(),
        derived: Default::default(),
    }
}

/// `a (id int primary key, n text not null default 'x', v numeric(12,2) check (v >= 0))` and
/// `b (id serial primary key, a_id int references a, u text unique)` with an index on `a_id`.
pub(super) fn catalog() -> Arc<Catalog> {
    let int = Type::new(TypeId::Int4);
    let text = Type::new(TypeId::Text);
    let mut a = table(
        16384,
        "a",
        vec![
            column("id", int, true, None),
            column("n", text, true, Some("'x'")),
            column("v", Type::numeric(12, 2), false, None),
        ],
        vec![key(16390, "a_pkey", 16384, 0, true, Some(16391))],
    );
    a.comment = Some("the first".to_owned());
    a.checks.push(Check {
        oid: 16392,
        name: "a_v_check".to_owned(),
        expression: "v >= 0".to_owned(),
        columns: vec![2],
        not_valid: false,
        no_inherit: false,
        comment: None,
    });
    a.referenced_by.push(Reference { table: 16394, constraint: 16405, unheeded: false });
    let mut b = table(
        16394,
        "b",
        vec![
            column("id", int, true, Some("nextval('b_id_seq'::regclass)")),
            column("a_id", int, false, None),
            column("u", text, false, None),
        ],
        vec![
            key(16398, "b_pkey", 16394, 0, true, Some(16399)),
            key(16400, "b_u_key", 16400, 2, false, Some(16401)),
            key(16402, "bi", 16402, 1, false, None),
        ],
    );
    b.columns[0].sequence = Some(16393);
    b.foreign_keys.push(ForeignKey {
        oid: 16405,
        name: "b_a_id_fkey".to_owned(),
        columns: vec![1],
        referenced_table: 16384,
        referenced_columns: vec![0],
        referenced_index: 16390,
        on_delete: ReferentialAction::NoAction,
        on_update: ReferentialAction::Cascade,
        deferrable: false,
        initially_deferred: false,
        match_full: false,
        not_valid: false,
        unchecked: false,
        comment: None,
        on_delete_columns: vec![],
    });
    let sequence = Sequence {
        oid: 16393,
        schema: PUBLIC_OID,
        schema_name: "public".to_owned(),
        name: "b_id_seq".to_owned(),
        ty: int,
        start: 1,
        increment: 1,
        minimum: 1,
        maximum: i64::from(i32::MAX),
        cache: 1,
        cycle: false,
        counter: 1,
        counter_start: 1,
        counter_called: false,
        owner: Some((16394, 0)),
        identity: false,
        comment: None,
    };
    let objects =
        [Object::Table(Arc::new(a)), Object::Table(Arc::new(b)), Object::Sequence(Arc::new(sequence))];
    Arc::new(Catalog::new(2, objects))
}

/// A session over the catalog, and nothing else.
struct Session(Arc<Catalog>);

impl SessionView for Session {
    fn setting(&self, _: &str) -> Option<String> {
        None
    }
    fn set_setting(&self, _: &str, value: Option<&str>, _: bool) -> crate::Result<String> {
        Ok(value.unwrap_or_default().to_owned())
    }
    fn user(&self) -> String {
        "postgres".to_owned()
    }
    fn session_user(&self) -> String {
        "postgres".to_owned()
    }
    fn database(&self) -> String {
        "postgres".to_owned()
    }
    fn search_path(&self, implicit: bool) -> Vec<String> {
        let path = if implicit { &["pg_catalog", "public"][..] } else { &["public"] };
        path.iter().map(|&schema| schema.to_owned()).collect()
    }
    fn process_id(&self) -> i32 {
        7
    }
    fn transaction_id(&self) -> u64 {
        1
    }
    fn clock(&self) -> i64 {
        0
    }
    fn random(&self) -> f64 {
        0.5
    }
    fn set_seed(&self, _: f64) {}
    fn random_bytes(&self) -> [u8; 16] {
        [0; 16]
    }
    fn version(&self) -> String {
        "PostgreSQL 15".to_owned()
    }
    fn catalog(&self) -> Option<Arc<Catalog>> {
        Some(self.0.clone())
    }
}

/// Runs `body` with a source over the catalog.
pub(super) fn with_source<R>(body: impl FnOnce(&Source<'_>) -> R) -> R {
    let catalog = catalog();
    let session = Session(catalog.clone());
    let names = CatalogNames::new(catalog.clone(), session.search_path(true), session.user());
    let format = FormatContext { objects: Some(Arc::new(names)), ..FormatContext::default() };
    let eval = EvalContext { statement_time: 0, session: &session, ..EvalContext::without_session(&format) };
    body(&Source { catalog: &catalog, eval, server: &NoServer })
}

/// Calls the function of this name that takes as many arguments.
fn call(source: &Source<'_>, name: &str, arguments: &[Datum]) -> String {
    let function = functions()
        .find(|function| {
            let types = function.arguments;
            let fits = types.iter().zip(arguments).all(|(ty, datum)| ty.holds(datum));
            function.name == name && types.len() == arguments.len() && fits
        })
        .unwrap_or_else(|| panic!("no function {name} takes {arguments:?}"));
    assert_eq!(function.kind(), Kind::Scalar);
    let crate::function::Body::Plain(body) = function.body else { panic!("{name} has no plain body") };
    let result = body(arguments, &source.eval).unwrap();
    show(&result, function.result, source)
}

fn show(datum: &Datum, id: TypeId, source: &Source<'_>) -> String {
    if datum.is_null() {
        return "NULL".to_owned();
    }
    let mut text = Vec::new();
    datum.to_text(Type::new(id), source.eval.format, &mut text);
    String::from_utf8(text).unwrap()
}

/// The rows of a table, of these columns, that pass `filter` on the first.
fn rows(source: &Source<'_>, name: &str, columns: &[&str], filter: &str) -> Vec<String> {
    let schema = if name.starts_with("pg_") { "pg_catalog" } else { "information_schema" };
    let table = super::table(schema, name).unwrap();
    let places: Vec<usize> = columns
        .iter()
        .map(|column| table.columns.iter().position(|(name, _)| name == column).unwrap())
        .collect();
    let mut found = vec![];
    for row in (table.rows)(source) {
        let values: Vec<String> =
            places.iter().map(|&place| show(&row[place], table.columns[place].1.id, source)).collect();
        if values[0] == filter {
            found.push(values[1..].join("|"));
        }
    }
    found
}

#[test]
fn every_row_fits_its_columns() {
    let mut wrong = std::collections::BTreeSet::new();
    with_source(|source| {
        for table in all() {
            for row in (table.rows)(source) {
                assert_eq!(row.len(), table.columns.len(), "{table:?}");
                for (datum, (name, ty)) in row.iter().zip(table.columns) {
                    if !ty.id.holds(datum) {
                        wrong.insert(format!("{table:?}.{name} is {:?}, not {datum:?}", ty.id));
                    }
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn rows_found_by_oid_are_those_of_the_scan() {
    with_source(|source| {
        for table in all() {
            for (place, (name, ty)) in table.columns.iter().enumerate() {
                if ty.id != TypeId::Oid {
                    continue;
                }
                let rows = (table.rows)(source);
                let mut oids: Vec<u32> = vec![4_000_000_000];
                oids.extend(rows.iter().filter_map(|row| match row[place] {
                    Datum::Oid(oid) => Some(oid),
                    _ => None,
                }));
                oids.sort_unstable();
                oids.dedup();
                for oid in oids {
                    let Some(found) = (table.rows_by_oid)(source, name, oid) else { break };
                    let wanted: Vec<_> = rows.iter().filter(|row| row[place] == Datum::Oid(oid)).collect();
                    assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "{table:?} by {name} {oid}");
                }
            }
        }
    });
}

#[test]
fn sequences_of_a_column_are_found_in_whatever_schema_they_are() {
    let known = catalog();
    let (a, b) = (known.table_by_oid(16384).unwrap(), known.table_by_oid(16394).unwrap());
    assert_eq!(known.sequences_of(b), [16393_u32]);
    assert!(known.sequences_of(a).is_empty());
    let sequence = Sequence::clone(known.sequence_by_oid(16393).unwrap());
    let moved = Sequence { schema: PUBLIC_OID + 1, schema_name: "elsewhere".to_owned(), ..sequence };
    let objects = [Object::Table(a.clone()), Object::Table(b.clone()), Object::Sequence(Arc::new(moved))];
    let changed = Catalog::new(3, objects);
    assert_eq!(changed.sequences_of(changed.table_by_oid(16394).unwrap()), [16393_u32]);
}

#[test]
fn oids_and_names_are_unique() {
    let mut oids = std::collections::BTreeSet::new();
    let mut names = std::collections::BTreeSet::new();
    for table in all() {
        assert!(oids.insert(table.oid), "{table:?}");
        assert!(names.insert((table.schema, table.name)), "{table:?}");
        assert!(table.oid < crate::catalog::FIRST_USER_OID);
    }
    let mut signatures = std::collections::BTreeSet::new();
    let mut oids = std::collections::BTreeSet::new();
    for function in functions() {
        assert!(oids.insert(function.oid), "{function:?}");
        assert!(signatures.insert((function.name, function.arguments)), "{function:?}");
    }
}

#[test]
fn relations_show_as_in_postgresql() {
    with_source(|source| {
        let class = ["relname", "oid", "relkind", "relchecks", "relhasindex", "relhastriggers", "relam"];
        assert_eq!(rows(source, "pg_class", &class, "a"), ["16384|r|1|t|t|2"]);
        assert_eq!(rows(source, "pg_class", &class, "bi"), ["16402|i|0|f|f|403"]);
        assert_eq!(rows(source, "pg_class", &class, "b_id_seq"), ["16393|S|0|f|f|0"]);
        assert_eq!(rows(source, "pg_class", &class, "pg_class"), ["1259|r|0|f|f|2"]);
        let attribute =
            ["attrelid", "attname", "atttypid", "atttypmod", "attnotnull", "atthasdef", "attstorage"];
        assert_eq!(
            rows(source, "pg_attribute", &attribute, "16384"),
            ["id|23|-1|t|f|p", "n|25|-1|t|t|x", "v|1700|786438|f|f|m"]
        );
        let index =
            ["indrelid", "indexrelid", "indisprimary", "indisunique", "indkey", "indclass", "indoption"];
        assert_eq!(
            rows(source, "pg_index", &index, "16394"),
            ["16398|t|t|1|1978|0", "16400|f|t|3|3126|0", "16402|f|f|2|1978|0"]
        );
        let constraint = ["conrelid", "conname", "contype", "conkey", "confrelid", "confkey", "confupdtype"];
        assert_eq!(
            rows(source, "pg_constraint", &constraint, "16394"),
            ["b_pkey|p|{1}|0|NULL| ", "b_u_key|u|{3}|0|NULL| ", "b_a_id_fkey|f|{2}|16384|{1}|c"]
        );
        let depend = ["objid", "classid", "refclassid", "refobjid", "refobjsubid", "deptype"];
        assert_eq!(
            rows(source, "pg_depend", &depend, "16393"),
            ["1259|2615|2200|0|n", "1259|1259|16394|1|a"]
        );
    });
}

#[test]
fn the_information_schema_shows_the_same() {
    with_source(|source| {
        let columns =
            ["table_name", "column_name", "data_type", "numeric_precision", "is_nullable", "column_default"];
        assert_eq!(
            rows(source, "columns", &columns, "b"),
            [
                "id|integer|32|NO|nextval('b_id_seq'::regclass)",
                "a_id|integer|32|YES|NULL",
                "u|text|NULL|YES|NULL"
            ]
        );
        let constraints = ["table_name", "constraint_name", "constraint_type"];
        assert_eq!(
            rows(source, "table_constraints", &constraints, "a"),
            [
                "a_pkey|PRIMARY KEY",
                "a_v_check|CHECK",
                "2200_16384_1_not_null|CHECK",
                "2200_16384_2_not_null|CHECK"
            ]
        );
        let references = ["constraint_name", "unique_constraint_name", "update_rule", "delete_rule"];
        assert_eq!(
            rows(source, "referential_constraints", &references, "b_a_id_fkey"),
            ["a_pkey|CASCADE|NO ACTION"]
        );
        let usage = [
            "constraint_name",
            "table_name",
            "column_name",
            "ordinal_position",
            "position_in_unique_constraint",
        ];
        assert_eq!(rows(source, "key_column_usage", &usage, "b_a_id_fkey"), ["b|a_id|1|1"]);
        let needed = ["constraint_name", "table_name", "column_name"];
        assert_eq!(rows(source, "constraint_column_usage", &needed, "b_a_id_fkey"), ["a|id"]);
    });
}

#[test]
fn definitions_read_as_in_postgresql() {
    with_source(|source| {
        let oid = Datum::Oid;
        let yes = Datum::Bool(true);
        assert_eq!(
            call(source, "pg_get_indexdef", &[oid(16400)]),
            "CREATE UNIQUE INDEX b_u_key ON public.b USING btree (u)"
        );
        let pretty = [oid(16402), Datum::Int4(0), yes.clone()];
        assert_eq!(call(source, "pg_get_indexdef", &pretty), "CREATE INDEX bi ON b USING btree (a_id)");
        let first = [oid(16402), Datum::Int4(1), yes.clone()];
        assert_eq!(call(source, "pg_get_indexdef", &first), "a_id");
        assert_eq!(call(source, "pg_get_constraintdef", &[oid(16391), yes.clone()]), "PRIMARY KEY (id)");
        assert_eq!(
            call(source, "pg_get_constraintdef", &[oid(16405)]),
            "FOREIGN KEY (a_id) REFERENCES a(id) ON UPDATE CASCADE"
        );
        assert_eq!(call(source, "pg_get_constraintdef", &[oid(99)]), "NULL");
        let serial = [Datum::text("b"), Datum::text("id")];
        assert_eq!(call(source, "pg_get_serial_sequence", &serial), "public.b_id_seq");
        assert_eq!(call(source, "obj_description", &[oid(16384), Datum::text("pg_class")]), "the first");
        assert_eq!(call(source, "obj_description", &[oid(16384), Datum::text("pg_constraint")]), "NULL");
    });
}

#[test]
fn names_lead_to_objects_and_back() {
    with_source(|source| {
        let oid = Datum::Oid;
        let text = |text: &str| Datum::text(text);
        assert_eq!(call(source, "pg_table_is_visible", &[oid(16384)]), "t");
        assert_eq!(call(source, "pg_table_is_visible", &[oid(1)]), "NULL");
        assert_eq!(call(source, "to_regclass", &[text("public.a")]), "a");
        assert_eq!(
            call(source, "to_regclass", &[text("information_schema.tables")]),
            "information_schema.tables"
        );
        assert_eq!(call(source, "to_regclass", &[text("nowhere")]), "NULL");
        assert_eq!(call(source, "to_regtype", &[text("int4")]), "integer");
        assert_eq!(call(source, "to_regtype", &[text("nothing")]), "NULL");
        assert_eq!(call(source, "to_regrole", &[text("postgres")]), "postgres");
        assert_eq!(call(source, "pg_get_userbyid", &[oid(10)]), "postgres");
        assert_eq!(call(source, "pg_get_userbyid", &[oid(77)]), "unknown (OID=77)");
        let format = |oid: u32, modifier: Datum| call(source, "format_type", &[Datum::Oid(oid), modifier]);
        assert_eq!(format(1700, Datum::Int4(786438)), "numeric(12,2)");
        assert_eq!(format(1042, Datum::Null), "character");
        assert_eq!(format(1042, Datum::Int4(-1)), "bpchar");
        assert_eq!(format(1043, Datum::Int4(14)), "character varying(10)");
        assert_eq!(format(999_999, Datum::Null), "???");
        assert_eq!(format(0, Datum::Null), "-");
        assert_eq!(call(source, "has_table_privilege", &[text("a"), text("select")]), "t");
        assert_eq!(call(source, "has_schema_privilege", &[oid(2200), text("usage")]), "t");
    });
}
