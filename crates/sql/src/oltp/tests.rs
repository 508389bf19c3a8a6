//! SELECTs from text to rows, over tables in a plain map.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cognate_engine::Lent;

use super::Cursor;
use crate::bind::{BindContext, Binder, NoRowCounts, NoVirtualTables};
use crate::catalog::{Catalog, Column, Index, IndexColumn, Object, PUBLIC_OID, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::explain::Telling;
use crate::expr::{NoExternalFunctions, ReadContext, Reader, RowScan, Tally};
use crate::function::{EvalContext, Interrupt, NeverInterrupted, NoSession, SessionView};
use crate::keys;
use crate::parse::{self, Command};
use crate::plan::{Plan, plan};
use crate::types::bounds::tests::Questions;
use crate::types::bounds::{self, Bounds as _};
use crate::types::{Datum, FormatContext, Numeric, Type, TypeId};

mod exists;
mod key_lists;
mod long_plans;
mod parallel;

type Entries = BTreeMap<(u32, Vec<u8>), Bytes>;

#[derive(Default)]
struct Store(Entries);

/// What is to come, and the entry it is at.
struct Scan(std::vec::IntoIter<(Bytes, Bytes)>, Option<(Bytes, Bytes)>);

impl RowScan for Scan {
    fn advance(&mut self) -> Result<bool> {
        self.1 = self.0.next();
        Ok(self.1.is_some())
    }

    fn entry(&self) -> Option<(&[u8], Lent<'_>)> {
        self.1.as_ref().map(|(key, value)| (&key[..], Lent::from(value)))
    }
}

impl Reader for Store {
    fn get(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.0.get(&(tree, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        tree: u32,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<Box<dyn RowScan>> {
        let inside = |key: &[u8]| {
            (match lower {
                Bound::Included(bound) => key >= bound,
                Bound::Excluded(bound) => key > bound,
                Bound::Unbounded => true,
            }) && (match upper {
                Bound::Included(bound) => key <= bound,
                Bound::Excluded(bound) => key < bound,
                Bound::Unbounded => true,
            })
        };
        let mut rows: Vec<(Bytes, Bytes)> = self
            .0
            .iter()
            .filter(|((t, key), _)| *t == tree && inside(key))
            .map(|((_, key), value)| (Bytes::copy_from_slice(key), value.clone()))
            .collect();
        if reverse {
            rows.reverse();
        }
        Ok(Box::new(Scan(rows.into_iter(), None)))
    }
}

fn column(name: &str, id: TypeId) -> Column {
    Column {
        name: name.to_owned(),
        ty: Type::new(id),
        collation: None,
        not_null: false,
        default: None,
        identity: None,
        generated: None,
        sequence: None,
        dropped: false,
        missing: Datum::Null,
        comment: None,
    }
}

fn index(oid: u32, name: &str, tree: u32, columns: &[usize], unique: bool, primary: bool) -> Index {
    let columns = columns.iter().map(|column| IndexColumn::ascending(*column)).collect();
    Index {
        oid,
        name: name.to_owned(),
        tree,
        columns,
        expressions: vec![],
        predicate: None,
        unique,
        deferrable: None,
        nulls_not_distinct: false,
        included: vec![],
        options: vec![],
        hash: false,
        primary,
        constraint: None,
        comment: None,
        constraint_comment: None,
    }
}

fn table(oid: u32, name: &str, columns: Vec<Column>, indexes: Vec<Index>) -> Table {
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

struct World {
    catalog: Arc<Catalog>,
    store: Store,
}

impl World {
    /// customer(id, name, city) with an index on city; purchase(id, customer, amount) with an index
    /// on (customer, amount).
    fn new() -> World {
        let customer = table(
            1001,
            "customer",
            vec![column("id", TypeId::Int4), column("name", TypeId::Text), column("city", TypeId::Text)],
            vec![
                index(2001, "customer_pkey", 1001, &[0], true, true),
                index(2002, "customer_city", 2002, &[2], false, false),
            ],
        );
        let purchase = table(
            1003,
            "purchase",
            vec![
                column("id", TypeId::Int4),
                column("customer", TypeId::Int4),
                column("amount", TypeId::Int8),
            ],
            vec![
                index(2003, "purchase_pkey", 1003, &[0], true, true),
                index(2004, "purchase_customer", 2004, &[1, 2], false, false),
            ],
        );
        let mut store = Store::default();
        let customers =
            [(1, "ann", Some("oslo")), (2, "bob", Some("rome")), (3, "cyd", Some("oslo")), (4, "dan", None)];
        for (id, name, city) in customers {
            store
                .insert(&customer, &[Datum::Int4(id), Datum::from(name), Datum::from(city.map(Datum::from))]);
        }
        for (id, owner, amount) in [(10, 1, 5), (11, 1, 7), (12, 2, 7), (13, 3, 1), (14, 9, 2)] {
            store.insert(&purchase, &[Datum::Int4(id), Datum::Int4(owner), Datum::Int8(amount)]);
        }
        let objects = [Object::Table(Arc::new(customer)), Object::Table(Arc::new(purchase))];
        World { catalog: Arc::new(Catalog::new(1, objects)), store }
    }

    fn plan(&self, sql: &str) -> Result<Plan> {
        self.plan_asking(sql, &NeverInterrupted)
    }

    fn plan_asking(&self, sql: &str, interrupt: &dyn Interrupt) -> Result<Plan> {
        let format = FormatContext::default();
        let eval = EvalContext { interrupt, ..EvalContext::without_session(&format) };
        let search_path = ["public".to_owned()];
        let context = BindContext {
            catalog: &self.catalog,
            search_path: &search_path,
            eval,
            virtual_tables: &NoVirtualTables,
            row_counts: &NoRowCounts,
            source: &sql.into(),
        };
        let statement = parse::parse(sql)?.remove(0);
        let Command::Sql(syntax) = &statement.command else { panic!("{sql} is no query") };
        let sqlparser::ast::Statement::Query(query) = &**syntax else { panic!("{sql} is no query") };
        let mut binder = Binder::new(&context, &[]);
        let bound = binder.query(query, false)?;
        let parameters = binder.parameter_types()?;
        plan(bound, binder.cte_count(), parameters, binder.tables().to_vec(), &NoRowCounts)
    }

    fn rows(&self, sql: &str, parameters: &[Datum]) -> Result<Vec<String>> {
        self.interrupted(sql, parameters, &NeverInterrupted)
    }

    fn interrupted(&self, sql: &str, parameters: &[Datum], interrupt: &dyn Interrupt) -> Result<Vec<String>> {
        self.read_in(&NoSession, &self.store, sql, parameters, interrupt)
    }

    fn read_in(
        &self,
        session: &dyn SessionView,
        reader: &dyn Reader,
        sql: &str,
        parameters: &[Datum],
        interrupt: &dyn Interrupt,
    ) -> Result<Vec<String>> {
        let plan = Arc::new(self.plan(sql)?);
        let format = FormatContext::default();
        let read = ReadContext {
            reader,
            eval: EvalContext { interrupt, session, ..EvalContext::without_session(&format) },
            catalog: &self.catalog,
            external: &NoExternalFunctions,
            interrupt,
            memory_limit: 8 << 20,
            tally: None,
            usage: None,
        };
        let mut cursor = Cursor::new(&plan, parameters.into());
        let mut lines = vec![];
        while let Some(row) = cursor.next(&read)? {
            let line = row.iter().zip(&plan.columns).map(|(datum, column)| match datum {
                Datum::Null => "-".to_owned(),
                datum => datum.to_text_string(column.ty, &format),
            });
            lines.push(line.collect::<Vec<_>>().join(" "));
        }
        Ok(lines)
    }

    /// How a query is carried out, with what is counted meanwhile.
    fn counted(&self, sql: &str) -> String {
        let plan = Arc::new(self.plan(sql).expect("a plan"));
        let (tally, format) = (Tally::new(false), FormatContext::default());
        let read = ReadContext {
            reader: &self.store,
            eval: EvalContext::without_session(&format),
            catalog: &self.catalog,
            external: &NoExternalFunctions,
            interrupt: &NeverInterrupted,
            memory_limit: 8 << 20,
            tally: Some(&tally),
            usage: None,
        };
        let parameters: &[Datum] = &[];
        let mut cursor = Cursor::new(&plan, parameters.into());
        while cursor.next(&read).expect("no error").is_some() {}
        plan.told(Telling { tally: Some(&tally), ..Telling::plainly(false, &format) }).join("\n")
    }

    #[track_caller]
    fn check(&self, sql: &str, wanted: &[&str]) {
        match self.rows(sql, &[]) {
            Ok(rows) => assert_eq!(rows, wanted, "{sql}"),
            Err(error) => panic!("{sql}: {error:?}"),
        }
    }
}

impl Store {
    fn insert(&mut self, table: &Table, row: &[Datum]) {
        let stored = table.layout().encode(row).expect("the row fits");
        let primary = table.primary_key().expect("a primary key");
        let key_of = |index: &Index| {
            let mut key = vec![];
            for column in &index.columns {
                let place = column.key.column().expect("a column");
                keys::encode_into(&mut key, &row[place], column.order());
            }
            key
        };
        let row_key = key_of(primary);
        for index in table.indexes.iter().filter(|index| !index.primary) {
            let mut key = key_of(index);
            let length = u32::try_from(key.len()).expect("a short key");
            key.extend_from_slice(&row_key);
            self.0.insert((index.tree, key), Bytes::copy_from_slice(&length.to_le_bytes()));
        }
        self.0.insert((table.tree, row_key), stored);
    }
}

#[test]
fn points_ranges_and_orders() {
    let world = World::new();
    world.check("SELECT name FROM customer WHERE id = 2", &["bob"]);
    world.check("SELECT name FROM customer WHERE id = 99999999999", &[]);
    world.check("SELECT id FROM customer WHERE id > 1 AND id <= 3", &["2", "3"]);
    world.check("SELECT id FROM customer WHERE id IN (4, 1, 4)", &["1", "4"]);
    world.check("SELECT id FROM customer ORDER BY id DESC LIMIT 2", &["4", "3"]);
    world.check("SELECT id FROM customer WHERE city = 'oslo' ORDER BY name DESC", &["3", "1"]);
    world.check("SELECT id FROM customer ORDER BY city NULLS FIRST, id DESC", &["4", "3", "1", "2"]);
    world.check("SELECT amount FROM purchase WHERE customer = 1 ORDER BY amount DESC LIMIT 1", &["7"]);
    world.check("SELECT id FROM customer WHERE city IS NULL", &["4"]);
    world.check("SELECT id FROM customer ORDER BY id OFFSET 1 LIMIT 2", &["2", "3"]);
    world.check(
        "SELECT id FROM customer WHERE id < 99999999999 AND id > -99999999999 ORDER BY id LIMIT 1",
        &["1"],
    );
}

/// What the inner side of an outer join gives may be NULL: programs find it among what the whole
/// gives by its name.
#[test]
fn nodes_say_what_they_give() {
    let world = World::new();
    let sql = "SELECT c.id, p.amount, p.amount + 1 FROM customer c LEFT JOIN purchase p ON p.customer = c.id";
    let lines = world.plan(sql).expect("a plan").explain(true, &FormatContext::default());
    assert_eq!(lines[1].trim(), "Output: c.id, p.amount, ?column?", "{lines:?}");
    let is_inner =
        |line: &String| line.contains("Output:") && line.contains("p.amount") && !line.contains("c.id");
    assert!(lines[2..].iter().any(is_inner), "{lines:?}");
    let lines = world.plan(sql).expect("a plan").explain(false, &FormatContext::default());
    assert!(lines.iter().all(|line| !line.contains("Output")));
    let sql = "SELECT c.id, d.id FROM customer c JOIN customer d ON d.id = c.id";
    let lines = world.plan(sql).expect("a plan").explain(true, &FormatContext::default());
    assert_eq!(lines[1].trim(), "Output: c.id, d.id", "{lines:?}");
}

#[test]
fn nodes_say_what_was_counted() {
    let world = World::new();
    let check = |sql: &str, wanted: &[&str]| {
        let counted = world.counted(sql);
        for part in wanted {
            assert!(counted.contains(part), "{sql}: {part}\n{counted}");
        }
    };
    let filtered = ["Seq Scan on purchase (actual rows=3 loops=1)", "  Rows Removed by Filter: 2"];
    check("SELECT id FROM purchase WHERE amount > 4", &filtered);
    check("SELECT id FROM purchase WHERE amount > 0", &["Seq Scan on purchase (actual rows=5 loops=1)"]);
    assert!(!world.counted("SELECT id FROM purchase WHERE amount > 0").contains("Removed"));
    let grouped = ["HashAggregate (actual rows=3 loops=1)", "on customer (actual rows=4 loops=1)"];
    check("SELECT city, count(*) FROM customer GROUP BY city", &grouped);
    check("SELECT id, rank() OVER (ORDER BY amount) FROM purchase", &["WindowAgg (actual rows=5 loops=1)"]);
    let limited = ["Limit (actual rows=2 loops=1)", "on purchase (actual rows=2 loops=1)"];
    check("SELECT id FROM purchase LIMIT 2", &limited);
    // Once for each of the four customers, who have as many purchases together.
    let each = "SELECT c.id, l.n FROM customer c, \
                LATERAL (SELECT count(*) AS n FROM purchase p WHERE p.customer = c.id) l";
    check(each, &["Aggregate (actual rows=1 loops=4)", "on purchase p (actual rows=1 loops=4)"]);
}

#[test]
fn an_index_saves_the_sort() {
    let world = World::new();
    let format = FormatContext::default();
    let lines = |sql: &str| world.plan(sql).expect("a plan").explain(false, &format).join("\n");
    let explained = lines("SELECT amount FROM purchase WHERE customer = 1 ORDER BY amount DESC LIMIT 1");
    assert!(
        explained.contains("Backward using purchase_customer") && !explained.contains("Sort"),
        "{explained}"
    );
    let explained = lines("SELECT id FROM customer ORDER BY id DESC LIMIT 2");
    assert!(explained.contains("Backward using customer_pkey") && !explained.contains("Sort"), "{explained}");
    let explained = lines("SELECT p.id FROM purchase p JOIN customer c ON c.id = p.customer WHERE p.id = 3");
    assert!(
        explained.contains("using customer_pkey") && explained.contains("using purchase_pkey"),
        "{explained}"
    );
}

#[test]
fn joins() {
    let world = World::new();
    let inner = "SELECT c.name, p.amount FROM purchase p JOIN customer c ON c.id = p.customer ORDER BY p.id";
    world.check(inner, &["ann 5", "ann 7", "bob 7", "cyd 1"]);
    let left = "SELECT p.id, c.name FROM purchase p LEFT JOIN customer c ON c.id = p.customer AND c.city = 'oslo' ORDER BY 1";
    world.check(left, &["10 ann", "11 ann", "12 -", "13 cyd", "14 -"]);
    let right =
        "SELECT p.id, c.name FROM purchase p RIGHT JOIN customer c ON c.id = p.customer ORDER BY 2, 1";
    world.check(right, &["10 ann", "11 ann", "12 bob", "13 cyd", "- dan"]);
    let full = "SELECT p.id, c.name FROM purchase p FULL JOIN customer c ON c.id = p.customer WHERE p.id > 12 OR p.id IS NULL ORDER BY 1, 2";
    world.check(full, &["13 cyd", "14 -", "- dan"]);
    let anti = "SELECT c.name FROM customer c LEFT JOIN purchase p ON p.customer = c.id WHERE p.id IS NULL";
    world.check(anti, &["dan"]);
    world.check(
        "SELECT a.id, b.id FROM customer a, customer b WHERE a.name < b.name AND a.city = b.city",
        &["1 3"],
    );
    world.check("SELECT a.id FROM customer a JOIN purchase b ON a.name = b.amount::text", &[]);
    let lateral = "SELECT c.id, x.amount FROM customer c, LATERAL (SELECT amount FROM purchase p WHERE p.customer = c.id ORDER BY amount DESC LIMIT 1) x ORDER BY 1";
    world.check(lateral, &["1 7", "2 7", "3 1"]);
    world.check(
        "SELECT c.id, s FROM customer c, generate_series(1, c.id) s WHERE c.id < 3 ORDER BY 1, 2",
        &["1 1", "2 1", "2 2"],
    );
}

#[test]
fn groups() {
    let world = World::new();
    let sql = "SELECT customer, count(*), sum(amount), min(id) FROM purchase GROUP BY customer HAVING count(*) > 1 ORDER BY 1";
    world.check(sql, &["1 2 12 10"]);
    world.check("SELECT count(*), count(city), count(DISTINCT city), max(id) FROM customer", &["4 3 2 4"]);
    world.check("SELECT count(*), sum(id) FROM customer WHERE id > 100", &["0 -"]);
    world.check(
        "SELECT city, count(*) FROM customer GROUP BY city ORDER BY 2 DESC, 1",
        &["oslo 2", "rome 1", "- 1"],
    );
    world.check("SELECT DISTINCT city FROM customer ORDER BY city", &["oslo", "rome", "-"]);
    world.check(
        "SELECT DISTINCT ON (city) city, name FROM customer ORDER BY city, id DESC",
        &["oslo cyd", "rome bob", "- dan"],
    );
    world.check(
        "SELECT string_agg(name, ',' ORDER BY id DESC) FILTER (WHERE id < 4) FROM customer",
        &["cyd,bob,ann"],
    );
    world.check("SELECT avg(amount) FROM purchase", &["4.4000000000000000"]);
}

#[test]
fn subqueries() {
    let world = World::new();
    let sql = "SELECT name, (SELECT sum(amount) FROM purchase p WHERE p.customer = c.id) FROM customer c ORDER BY id";
    world.check(sql, &["ann 12", "bob 7", "cyd 1", "dan -"]);
    world
        .check("SELECT id FROM purchase WHERE customer NOT IN (SELECT id FROM customer) ORDER BY 1", &["14"]);
    world.check("SELECT id FROM customer c WHERE EXISTS (SELECT 1 FROM purchase p WHERE p.customer = c.id AND amount = 7) ORDER BY 1", &["1", "2"]);
    world.check(
        "SELECT id FROM purchase WHERE amount = (SELECT max(amount) FROM purchase) ORDER BY 1",
        &["11", "12"],
    );
    world.check(
        "SELECT id FROM purchase WHERE amount > ALL (SELECT amount FROM purchase WHERE customer = 1)",
        &[],
    );
    world.check("SELECT ARRAY(SELECT id FROM customer WHERE city = 'oslo' ORDER BY id)", &["{1,3}"]);
    let error = world.rows("SELECT (SELECT id FROM customer)", &[]).expect_err("too many rows");
    assert_eq!(error.sqlstate, "21000");
}

#[test]
fn sets_values_and_common_table_expressions() {
    let world = World::new();
    world.check("VALUES (1, 'a'), (2, 'b') ORDER BY 1 DESC", &["2 b", "1 a"]);
    world.check("SELECT 1 UNION SELECT 2 UNION SELECT 1 ORDER BY 1", &["1", "2"]);
    world.check("SELECT city FROM customer EXCEPT SELECT 'rome' ORDER BY 1", &["oslo", "-"]);
    world.check("SELECT city FROM customer INTERSECT ALL SELECT 'oslo'", &["oslo"]);
    let cte = "WITH big AS (SELECT customer, sum(amount) AS total FROM purchase GROUP BY customer) \
               SELECT a.customer FROM big a, big b WHERE a.total < b.total AND b.customer = 2 ORDER BY 1";
    world.check(cte, &["3", "9"]);
    let recursive =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4) SELECT sum(i) FROM n";
    world.check(recursive, &["10"]);
    world.check("SELECT generate_series(1, 3), 'x'", &["1 x", "2 x", "3 x"]);
    world.check("SELECT * FROM unnest(ARRAY['a', 'b']) WITH ORDINALITY", &["a 1", "b 2"]);
}

#[test]
fn parameters_and_limits() {
    let world = World::new();
    let rows = world.rows("SELECT name FROM customer WHERE id = $1", &[Datum::Int4(3)]).expect("it runs");
    assert_eq!(rows, ["cyd"]);
    let rows = world.rows(
        "SELECT id FROM customer WHERE id = ANY ($1::int[]) ORDER BY id LIMIT $2",
        &[
            crate::types::Array::new(TypeId::Int4, vec![Datum::Int4(3), Datum::Int4(1)]).into(),
            Datum::Int8(1),
        ],
    );
    assert_eq!(rows.expect("it runs"), ["1"]);
    let error = world.rows("SELECT id FROM customer LIMIT -1", &[]).expect_err("negative");
    assert_eq!(error.sqlstate, "2201W");
    let error = world.rows("SELECT a.id FROM customer a, customer b, customer c, customer d, generate_series(1, 1000000) e ORDER BY e", &[]);
    assert_eq!(error.expect_err("too much to sort").sqlstate, "53200");
}

#[test]
fn window_functions_number_rows() {
    let world = World::new();
    world.check(
        "SELECT id, row_number() OVER (PARTITION BY city ORDER BY id DESC) FROM customer ORDER BY id",
        &["1 2", "2 1", "3 1", "4 1"],
    );
    world.check(
        "SELECT amount, rank() OVER (ORDER BY amount), dense_rank() OVER (ORDER BY amount) FROM purchase ORDER BY id",
        &["5 3 3", "7 4 4", "7 4 4", "1 1 1", "2 2 2"],
    );
    world.check(
        "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM customer) c WHERE n = 2",
        &["3"],
    );
    world.check(
        "SELECT customer, count(*), rank() OVER (ORDER BY count(*) DESC) FROM purchase GROUP BY customer ORDER BY 1",
        &["1 2 1", "2 1 2", "3 1 2", "9 1 2"],
    );
    world.check("SELECT id + row_number() OVER () FROM customer ORDER BY 1 LIMIT 2", &["2", "4"]);
    let error = world.rows("SELECT id FROM customer WHERE row_number() OVER () = 1", &[]).unwrap_err();
    assert_eq!(
        (error.sqlstate, error.message.as_str()),
        ("42P20", "window functions are not allowed in WHERE")
    );
}

/// Counts the questions whether to stop, says that they come slowly, and stops at the last.
struct StopAfter {
    questions: AtomicU32,
    last: u32,
    since: Duration,
}

impl Interrupt for StopAfter {
    fn check(&self) -> Result<Duration> {
        let asked = self.questions.fetch_add(1, Ordering::Relaxed) + 1;
        if asked > self.last {
            return Err(SqlError::new(sqlstate::QUERY_CANCELED, "stopped"));
        }
        Ok(self.since)
    }
}

/// Every kind of step that can go on for long, over tables of which hardly a row is read.
#[test]
fn whatever_goes_on_for_long_can_be_stopped() {
    let world = World::new();
    let long = [
        // Rows that are held already, again and again.
        "SELECT count(*) FROM customer a, customer b, customer c, customer d, customer e, customer f, customer g,
            customer h, customer i, customer j, customer k, customer l, customer m, customer n",
        "WITH RECURSIVE w(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM w) SELECT count(*) FROM w",
        "WITH w AS MATERIALIZED (SELECT 1 FROM generate_series(1, 5000)) SELECT count(*) FROM w a, w b, w c",
        "SELECT count(*) FROM (VALUES (1), (2)) a(x) JOIN generate_series(1, 1000000000) b ON b < x",
        "SELECT (SELECT count(*) FROM generate_series(1, 1000000000)) FROM customer",
        "SELECT id FROM customer WHERE EXISTS (SELECT FROM generate_series(1, 1000000000) g WHERE g < customer.id - 9)",
        "SELECT count(*) FROM generate_series(1, 3000) a WHERE 0 = ANY (SELECT g + a FROM generate_series(1, 3000) g)",
        "SELECT DISTINCT g % 3 FROM generate_series(1, 1000000000) g",
        "SELECT count(*) FROM (SELECT g % 3 FROM generate_series(1, 1000000000) g EXCEPT SELECT 1) x",
        "SELECT g FROM generate_series(1, 1000000000) g ORDER BY g % 7 LIMIT 3",
        "SELECT 1 FROM generate_series(1, 1000000000) OFFSET 999999999",
        "SELECT id FROM customer, LATERAL (SELECT g FROM generate_series(1, 1000000000) g ORDER BY -g LIMIT 1) s",
    ];
    for sql in long {
        let slow = StopAfter { questions: AtomicU32::new(0), last: 500, since: Duration::from_millis(1) };
        let error = world.interrupted(sql, &[], &slow).expect_err(sql);
        assert_eq!((error.sqlstate, slow.questions.load(Ordering::Relaxed)), ("57014", 501), "{sql}");
    }
}

/// Whatever works on a large value asks on its way whether to go on, and stops where it is told to.
#[test]
fn work_on_a_large_value_can_be_left_half_way() {
    let world = World::new();
    let text = Datum::from("ab".repeat(1 << 19));
    let odd = Datum::from("a€".repeat(1 << 18));
    let blank = Datum::from(" ".repeat(1 << 20));
    let hex = Datum::from("61".repeat(1 << 19));
    let bytes = Datum::Bytea("ab\\".repeat(1 << 18).into_bytes().into());
    let numbers =
        Datum::from(crate::types::Array::new(TypeId::Int4, (0..100_000).map(Datum::Int4).collect()));
    let document = format!("[{}0]", "{\"a\": [2], \"b\": 1}, ".repeat(20_000));
    let (text_json, json) = (Datum::from(document.as_str()), Datum::Jsonb(document.as_str().into()));
    let blank_json = Datum::from(" ".repeat(1 << 20) + "1");
    let percents = Datum::from("%%".repeat(1 << 19));
    let escapes = Datum::from("\\0061".repeat(1 << 17));
    let zeros = Datum::from("0".repeat(1 << 20));
    let digits = Datum::from("7".repeat(1 << 20));
    let quoted = Datum::from(format!("\"{}\"", "\\u0061b".repeat(1 << 17)));
    let work = [
        ("lower($1)", &text),
        ("upper($1)", &odd),
        ("initcap($1)", &text),
        ("reverse($1)", &odd),
        ("translate($1, 'ab', 'c')", &text),
        ("replace($1, 'ab', 'c')", &text),
        ("replace($1, 'zz', 'c')", &text),
        ("strpos($1, 'zz')", &text),
        ("position('zz'::bytea in $1::bytea)", &bytes),
        ("split_part($1, 'b', 400000)", &text),
        ("split_part($1, 'b', -400000)", &text),
        ("substr($1, 100000, 400000)", &odd),
        ("left($1, -5)", &odd),
        ("right($1, 300000)", &odd),
        ("overlay($1::text placing 'x' from 5)", &text),
        ("lpad($1, 2000000, 'xy')", &text),
        ("rpad($1, 2000000, 'xy')", &text),
        ("repeat($1, 2)", &text),
        ("btrim($1)", &blank),
        ("ltrim($1)", &blank),
        ("rtrim($1)", &blank),
        ("$1::text || 'x'", &text),
        ("concat($1::text, 'x')", &text),
        ("format('%s', $1::text)", &text),
        ("format($1, 1)", &percents),
        ("quote_literal($1::text)", &text),
        ("string_to_array($1, 'b')", &text),
        ("string_to_array($1, NULL)", &text),
        ("hashtext($1)", &text),
        ("md5($1::text)", &text),
        ("$1::text LIKE '%a%b%zz'", &text),
        ("$1::text NOT LIKE '%zz'", &text),
        ("$1::text ILIKE '%zz'", &text),
        ("similar_to_escape($1)", &text),
        ("like_escape($1, 'x')", &text),
        ("encode($1, 'hex')", &bytes),
        ("encode($1, 'base64')", &bytes),
        ("encode($1, 'escape')", &bytes),
        ("decode($1, 'hex')", &hex),
        ("decode($1, 'base64')", &hex),
        ("decode($1, 'escape')", &hex),
        ("convert_from($1, 'UTF8')", &bytes),
        ("$1::bytea || 'x'::bytea", &bytes),
        ("btrim($1::bytea, $1::bytea)", &bytes),
        ("to_char(timestamp '2024-02-29', $1::text)", &text),
        ("to_char(timestamp '2024-02-29', '\"' || $1::text)", &text),
        ("to_char(interval '1 day', $1::text)", &text),
        ("to_char(1.5, $1::text)", &text),
        ("to_char(1.5, '\"' || $1::text)", &text),
        ("to_date('2024', 'YYYY' || $1::text)", &text),
        ("to_number('1' || $1::text, '99')", &text),
        ("to_number('1', '9' || $1::text)", &text),
        ("unistr($1::text)", &escapes),
        ("$1::bytea::text", &bytes),
        ("$1::text::bytea", &hex),
        ("$1::text::json", &text_json),
        ("$1::text::jsonb", &text_json),
        ("$1::text::jsonb", &quoted),
        ("$1::text::json", &blank_json),
        ("$1::jsonb @> '[-1]'", &json),
        ("$1::jsonb ? 'x'", &json),
        ("jsonb_pretty($1)", &json),
        ("jsonb_strip_nulls($1)", &json),
        ("$1::jsonb - 'x'", &json),
        ("to_json($1::text)", &text),
        ("to_jsonb($1::text)", &text),
        ("json_build_array($1::text)", &text),
        ("to_json($1::int[])", &numbers),
        ("to_jsonb($1::int[])", &numbers),
        ("array_to_string($1::int[], ',')", &numbers),
        ("$1::int[]::text", &numbers),
        ("$1::int[]::bigint[]", &numbers),
        ("ROW($1::int[])::text", &numbers),
        ("array_append($1::int[], 1)", &numbers),
        ("array_prepend(1, $1::int[])", &numbers),
        ("array_cat($1::int[], $1)", &numbers),
        ("array_position($1::int[], -1)", &numbers),
        ("array_positions($1::int[], -1)", &numbers),
        ("array_remove($1::int[], -1)", &numbers),
        ("array_replace($1::int[], 1, 2)", &numbers),
        ("trim_array($1::int[], 1)", &numbers),
        ("($1::int[])[2:99999]", &numbers),
        ("json_build_array(VARIADIC $1::int[])", &numbers),
        ("array_fill($1::int, ARRAY[100000])", &Datum::Int4(1)),
        ("$1::int[] @> ARRAY[-1]", &numbers),
        ("ARRAY[-1] <@ $1::int[]", &numbers),
        ("$1::int[] && ARRAY[-1]", &numbers),
        ("$1::text::numeric", &zeros),
        ("$1::text::json", &digits),
        ("$1::int[] < array_append($1, 0)", &numbers),
        ("ROW($1::int[], 1) < ROW($1, 2)", &numbers),
        ("ARRAY[$1::int[]] = ARRAY[$1]", &numbers),
        ("greatest($1::int[], $1)", &numbers),
        ("$1::int[] IN (SELECT array_append($1, 0))", &numbers),
        ("(SELECT count(DISTINCT a) FROM (VALUES ($1::int[]), ($1)) v(a))", &numbers),
        ("(SELECT count(*) FROM (SELECT DISTINCT a FROM (VALUES ($1::int[]), ($1)) v(a)) d)", &numbers),
        ("(SELECT n FROM (VALUES ($1::int[], 2), ($1, 1)) v(a, n) ORDER BY a, n LIMIT 1)", &numbers),
        ("$1::jsonb > '[1]'", &json),
        ("(SELECT count(DISTINCT j) FROM (VALUES ($1::jsonb), ('[1]')) v(j))", &json),
        // A base next to one takes many digits.
        ("log(1 + 1e-2000, $1::numeric)", &Datum::Numeric(Numeric::from(3i64))),
    ];
    for (expression, value) in work {
        let run = |left: usize| {
            // Tables that hash alike compare as often in each run.
            let _alike = super::hash::alike(1);
            let questions = Questions::new(left, usize::MAX);
            let _within = bounds::enter(questions.clone());
            let asks = Asks(questions.clone());
            let sql = format!("SELECT ({expression}) IS NULL");
            (world.interrupted(&sql, std::slice::from_ref(value), &asks), questions.asked())
        };
        let (whole, asked) = run(usize::MAX);
        assert_eq!(
            whole.map(|rows| rows.len()).map_err(|error| error.message.clone()),
            Ok(1),
            "{expression}"
        );
        // A question for each piece of 64 kB, or for a thousand items.
        assert!(asked >= 7, "{expression}: {asked} questions");
        for left in [0, asked - 1] {
            let (stopped, asked) = run(left);
            assert_eq!(stopped.expect_err(expression).sqlstate, "57014", "{expression}");
            assert_eq!(asked, left + 1, "{expression}");
        }
    }
}

/// An order that is given up half-way harms no sort and no hash table, and nothing that rests on it
/// is an answer.
#[test]
fn comparisons_can_be_given_up_wherever_they_are_made() {
    let world = World::new();
    let rows = |alias: &str| {
        format!(
            "(SELECT array_fill((g * 7) % 13, ARRAY[400]) || g % 5 AS a, g FROM generate_series(1, 200) g) \
             AS {alias}"
        )
    };
    let (s, t) = (rows("s"), rows("t"));
    let queries = [
        format!("SELECT g FROM {s} ORDER BY a, g"),
        format!("SELECT g FROM {s} ORDER BY a DESC LIMIT 3"),
        format!("SELECT DISTINCT a FROM {s}"),
        format!("SELECT a, count(*) FROM {s} GROUP BY a"),
        format!("SELECT count(DISTINCT a) FROM {s}"),
        format!("SELECT rank() OVER (ORDER BY a) FROM {s}"),
        format!("SELECT count(*) FROM {s} JOIN {t} USING (a)"),
        format!("SELECT a FROM {s} EXCEPT SELECT a FROM {t}"),
        format!("SELECT g FROM {s} WHERE a IN (SELECT a FROM {t})"),
    ];
    for sql in queries {
        let run = |left: usize| {
            // Tables that hash alike compare as often in each run.
            let _alike = super::hash::alike(1);
            let questions = Questions::new(left, usize::MAX);
            let _within = bounds::enter(questions.clone());
            (world.interrupted(&sql, &[], &Asks(questions.clone())).map(drop), questions.asked())
        };
        let (whole, asked) = run(usize::MAX);
        assert_eq!(whole.map_err(|error| error.message.clone()), Ok(()), "{sql}");
        for left in (0..asked).step_by(asked / 20 + 1) {
            assert_eq!(run(left).0.map_err(|error| error.sqlstate), Err("57014"), "{sql}: {left} of {asked}");
        }
    }
}

/// Asks as those do who have no statement at hand.
struct Asks(Arc<Questions>);

impl Interrupt for Asks {
    fn check(&self) -> Result<Duration> {
        self.0.go_on().map(|()| Duration::ZERO)
    }
}

/// A sort is asked between its comparisons, too: as often as its rows are dear.
#[test]
fn a_sort_can_be_stopped_half_way() {
    let world = World::new();
    let count = |sql: &str, since| {
        let count = StopAfter { questions: AtomicU32::new(0), last: u32::MAX, since };
        world.interrupted(sql, &[], &count).expect(sql);
        count.questions.load(Ordering::Relaxed)
    };
    let rows = "SELECT g FROM generate_series(1, 20000) g";
    let sorted = format!("{rows} ORDER BY g % 100, -g");
    let dear = Duration::from_millis(1);
    // Twenty runs are merged in five passes; each row of a pass is a step, the last rows of runs
    // are not.
    assert!(count(&sorted, dear) > count(rows, dear) + 5 * 20000 * 9 / 10);
    // Cheap steps are asked for seldom.
    assert!(count(&sorted, Duration::ZERO) < 2000);
}

#[test]
fn rows_are_sorted_over_runs() {
    let world = World::new();
    let sql = "SELECT g FROM (SELECT (g * 7919) % 5003 AS g FROM generate_series(1, 5002) g) s";
    let numbers = |sql: &str| -> Vec<u32> {
        world.rows(sql, &[]).expect(sql).iter().map(|row| row.parse().expect("a number")).collect()
    };
    let up: Vec<u32> = (1..5003).collect();
    assert_eq!(numbers(&format!("{sql} ORDER BY g")), up);
    assert_eq!(numbers(&format!("{sql} ORDER BY -g")), up.iter().rev().copied().collect::<Vec<_>>());
    // What compares equal keeps its order.
    let wanted: Vec<u32> = (0..3).flat_map(|rest| (1..5003).filter(move |g| g % 3 == rest)).collect();
    assert_eq!(numbers(&format!("SELECT g FROM ({sql} ORDER BY g) s ORDER BY g % 3")), wanted);
}
