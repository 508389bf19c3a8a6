//! Analytic queries on tables made by hand.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use cognate_engine::Lent;
use parking_lot::Mutex;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use super::{AnalyticPlan, AnalyticRuntime, Surroundings};
use crate::bind::RowCounts;
use crate::catalog::{Catalog, Column, Index, IndexColumn, Object, PUBLIC_OID, Table};
use crate::error::Result;
use crate::expr::{Reader, RowScan};
use crate::keys;
use crate::types::{Datum, FormatContext, Type, TypeId};

/// What is to come, and the row it is at.
struct Rows(std::vec::IntoIter<Bytes>, Option<Bytes>);

impl RowScan for Rows {
    fn advance(&mut self) -> Result<bool> {
        self.1 = self.0.next();
        Ok(self.1.is_some())
    }

    fn entry(&self) -> Option<(&[u8], Lent<'_>)> {
        self.1.as_ref().map(|row| (&[][..], Lent::from(row)))
    }
}

/// Gives all rows whatever the range, and remembers the ranges.
#[derive(Default)]
struct Stored {
    rows: Vec<Bytes>,
    ranges: Mutex<Vec<[Bound<Vec<u8>>; 2]>>,
}

impl Reader for Stored {
    fn get(&self, _: u32, _: &[u8]) -> Result<Option<Bytes>> {
        Ok(None)
    }

    fn scan(&self, _: u32, lower: Bound<&[u8]>, upper: Bound<&[u8]>, _: bool) -> Result<Box<dyn RowScan>> {
        self.ranges.lock().push([lower, upper].map(|bound| bound.map(<[u8]>::to_vec)));
        Ok(Box::new(Rows(self.rows.clone().into_iter(), None)))
    }
}

impl RowCounts for Stored {
    fn rows(&self, _: &Table) -> Option<u64> {
        None
    }
}

fn column(name: &str, id: TypeId) -> Column {
    Column {
        name: name.to_owned(),
        ty: Type { id, modifier: -1 },
        not_null: false,
        default: None,
        identity: None,
        sequence: None,
        dropped: false,
        missing: Datum::Null,
        comment: None,
    }
}

fn sales() -> (Arc<Table>, Vec<Bytes>) {
    let table = Arc::new(Table {
        oid: 16_384,
        schema: PUBLIC_OID,
        schema_name: "public".to_owned(),
        name: "sales".to_owned(),
        tree: 1_000,
        columns: vec![
            column("id", TypeId::Int4),
            column("shop", TypeId::Text),
            column("amount", TypeId::Int8),
            column("code", TypeId::Bpchar),
        ],
        indexes: Vec::new(),
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        referenced_by: Vec::new(),
        temporary: false,
        options: Vec::new(),
        comment: None,
        derived: Default::default(),
    });
    let rows = [(1, "a", 10), (2, "a", 30), (3, "b", 5), (4, "b", i64::MAX)]
        .into_iter()
        .map(|(id, shop, amount)| {
            let row = [Datum::Int4(id), Datum::text(shop), Datum::Int8(amount), Datum::Null];
            table.layout().encode(&row).expect("the row fits")
        })
        .collect();
    (table, rows)
}

fn query(sql: &str, parameters: &[(Type, Datum)]) -> Result<Vec<String>> {
    let (table, rows) = sales();
    run(table, Arc::new(Stored { rows, ..Stored::default() }), sql, parameters)
}

fn run(
    table: Arc<Table>,
    stored: Arc<Stored>,
    sql: &str,
    parameters: &[(Type, Datum)],
) -> Result<Vec<String>> {
    let catalog = Arc::new(Catalog::new(1, [Object::Table(table.clone())]));
    let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).expect("the query parses").remove(0);
    let hints: Vec<Option<Type>> = parameters.iter().map(|(ty, _)| Some(*ty)).collect();
    let plan = AnalyticPlan::new(&statement, &catalog, &["public".to_owned()], &hints)?;
    let values: Vec<Datum> = parameters.iter().map(|(_, value)| value.clone()).collect();
    let runtime = AnalyticRuntime::new(1, 64 << 20, || {})?;
    let context = FormatContext::default();
    let surroundings = Surroundings { parameters: &values, format: &context, statement_time: 0 };
    let mut cursor = plan.start(&runtime, stored, &surroundings)?;
    let waiting = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    waiting.block_on(async {
        let mut lines = Vec::new();
        while let Some(rows) = cursor.next().await? {
            for row in rows {
                let values: Vec<String> = row
                    .iter()
                    .zip(plan.columns())
                    .map(|(datum, (_, ty))| match datum {
                        Datum::Null => "null".to_owned(),
                        datum => datum.to_text_string(*ty, &context),
                    })
                    .collect();
                lines.push(values.join(" "));
            }
        }
        Ok(lines)
    })
}

#[test]
fn window_functions_see_the_rows() {
    let sql = "SELECT id, row_number() OVER (PARTITION BY shop ORDER BY id DESC), lag(id) OVER (ORDER BY id) \
               FROM sales WHERE id < 4 ORDER BY id";
    assert_eq!(query(sql, &[]).expect("it runs"), ["1 2 null", "2 1 1", "3 1 2"]);
}

#[test]
fn a_table_may_be_mentioned_twice() {
    let sql =
        "SELECT a.id, rank() OVER (ORDER BY a.id) FROM sales a JOIN sales b ON a.id = b.id + 1 ORDER BY 1";
    assert_eq!(query(sql, &[]).expect("it runs"), ["2 1", "3 2", "4 3"]);
}

#[test]
fn a_subquery_reads_its_table_too() {
    let sql = "SELECT id FROM sales WHERE amount > (SELECT min(amount) FROM sales) AND id < 4 ORDER BY id";
    assert_eq!(query(sql, &[]).expect("it runs"), ["1", "2"]);
}

#[test]
fn integer_overflow_is_an_error_and_sums_of_int8_are_not() {
    let error =
        query("SELECT amount + 1, ntile(2) OVER (ORDER BY id) FROM sales", &[]).expect_err("it overflows");
    assert_eq!(error.sqlstate, "22003", "{error:?}");
    assert_eq!(query("SELECT sum(amount) FROM sales", &[]).expect("it runs"), ["9223372036854775852"]);
}

#[test]
fn parameters_arrive() {
    let int4 = Type { id: TypeId::Int4, modifier: -1 };
    let sql = "SELECT count(*) OVER () FROM sales WHERE id <= $1 LIMIT 1";
    assert_eq!(query(sql, &[(int4, Datum::Int4(3))]).expect("it runs"), ["3"]);
}

#[test]
fn what_is_not_the_same_is_refused_by_name() {
    let error = query("SELECT random() FROM sales", &[]).expect_err("refused");
    assert_eq!(error.sqlstate, "0A000");
    assert!(error.message.contains("random"), "{error:?}");
    let error = query("SELECT code FROM sales", &[]).expect_err("refused");
    assert_eq!(error.sqlstate, "0A000", "{error:?}");
    let error = query("SELECT nothing FROM sales", &[]).expect_err("unknown");
    assert_eq!(error.sqlstate, "42703", "{error:?}");
    let error = query("SELECT 1 FROM nowhere", &[]).expect_err("unknown");
    assert_eq!(error.sqlstate, "42P01", "{error:?}");
}

/// The table with (shop, id) as its key, to which conditions on these columns must come down.
fn keyed() -> Arc<Table> {
    let (table, _) = sales();
    let columns = [1, 0].map(|column| IndexColumn { column, descending: false, nulls_first: false }).to_vec();
    let name = "sales_pkey".to_owned();
    let index = Index {
        oid: 2,
        name,
        tree: 1_000,
        columns,
        unique: true,
        primary: true,
        constraint: None,
        comment: None,
    };
    Arc::new(Table { indexes: vec![index], ..Table::clone(&table) })
}

#[test]
fn only_the_ranges_that_conditions_leave_are_read() {
    let key = |values: &[Datum]| keys::encode(values);
    let prefix = |values: &[Datum]| {
        [Bound::Included(key(values)), Bound::Excluded(keys::next_prefix(&key(values)).unwrap())]
    };
    let (a, b) = (Datum::text("a"), Datum::text("b"));
    let everything = || vec![[Bound::Unbounded, Bound::Unbounded]];
    let at_least = |id: i32, shop: &Datum| {
        let mut values = key(std::slice::from_ref(shop));
        keys::encode_not_null_into(&mut values);
        let upper = Bound::Excluded(keys::next_prefix(&values).unwrap());
        [Bound::Included(key(&[shop.clone(), Datum::Int4(id)])), upper]
    };
    let cases = [
        ("shop = 'a'", vec![prefix(std::slice::from_ref(&a))]),
        ("'a' = shop AND id = 2", vec![prefix(&[a.clone(), Datum::Int4(2)])]),
        ("shop = 'a' AND id >= 2", vec![at_least(2, &a)]),
        ("shop = 'b' AND 1 < id", vec![at_least(2, &b)]),
        ("shop IN ('b', 'a', 'b')", vec![prefix(std::slice::from_ref(&a)), prefix(std::slice::from_ref(&b))]),
        ("shop = $1 AND id = 3::bigint", vec![prefix(&[a.clone(), Datum::Int4(3)])]),
        ("shop = 'a' AND shop = 'b'", vec![]),
        // The first column is free, NULL, computed with, or not compared with a constant.
        ("id = 2", everything()),
        ("shop IS NULL", everything()),
        ("shop || '' = 'a'", everything()),
        ("shop > 'a' OR id = 2", everything()),
        ("shop <> 'a'", everything()),
        ("amount = 10", everything()),
    ];
    for (condition, ranges) in cases {
        let stored = Arc::new(Stored { rows: sales().1, ..Stored::default() });
        let sql = format!("SELECT id, rank() OVER (ORDER BY id) FROM sales WHERE {condition}");
        let text = Type { id: TypeId::Text, modifier: -1 };
        let parameters = if sql.contains("$1") { vec![(text, a.clone())] } else { vec![] };
        run(keyed(), stored.clone(), &sql, &parameters).expect("it runs");
        assert_eq!(*stored.ranges.lock(), ranges, "{condition}");
    }
}
