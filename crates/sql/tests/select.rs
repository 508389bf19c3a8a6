//! SELECTs against what PostgreSQL 15 answers: scripts of tables, rows and queries with the answers
//! beside them.
//!
//! A script is read statement by statement: CREATE TABLE and CREATE INDEX make a catalog by hand,
//! INSERT fills a store that is a plain map, SELECT and VALUES are bound, planned and run. The
//! answers (`.out`) were written by PostgreSQL itself; see [`write_answers`]. An error is one line:
//! its SQLSTATE and message.

mod estimates;
mod product;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cognate_engine::Lent;
use cognate_sql::bind::{
    BindContext, Binder, ColumnValues, NoVirtualTables, RowCounts, object_name, resolve_type,
};
use cognate_sql::catalog::{Catalog, Column, Index, IndexColumn, Object, PUBLIC_OID, Table, View};
use cognate_sql::error::{Result, SqlError};
use cognate_sql::expr::{Env, Execution, NoExternalFunctions, ReadContext, Reader, RowScan, Runtime};
use cognate_sql::function::{EvalContext, NeverInterrupted};
use cognate_sql::keys;
use cognate_sql::oltp::Cursor;
use cognate_sql::parse::{self, Command, Statement};
use cognate_sql::plan::plan;
use cognate_sql::types::{Datum, FormatContext, Type};
use sqlparser::ast;

#[derive(Default)]
struct Store(BTreeMap<(u32, Vec<u8>), Bytes>);

/// What is to come, and the entry it is at.
struct Scan(std::vec::IntoIter<(Bytes, Bytes)>, Option<(Bytes, Bytes)>);

/// The place of an index's column.
fn place(column: &IndexColumn) -> usize {
    column.key.column().expect("a column")
}

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
        let from = match lower {
            Bound::Included(key) => Bound::Included((tree, key.to_vec())),
            Bound::Excluded(key) => Bound::Excluded((tree, key.to_vec())),
            Bound::Unbounded => Bound::Included((tree, vec![])),
        };
        let to = match upper {
            Bound::Included(key) => Bound::Included((tree, key.to_vec())),
            Bound::Excluded(key) => Bound::Excluded((tree, key.to_vec())),
            Bound::Unbounded => Bound::Excluded((tree + 1, vec![])),
        };
        let mut rows: Vec<(Bytes, Bytes)> = (self.0.range((from, to)))
            .map(|((_, key), value)| (Bytes::copy_from_slice(key), value.clone()))
            .collect();
        if reverse {
            rows.reverse();
        }
        Ok(Box::new(Scan(rows.into_iter(), None)))
    }
}

/// Exact counts: the planner sees the tables as they are. Of columns it sees what is pretended.
struct Counts<'a>(&'a BTreeMap<u32, u64>, Option<f64>);

impl RowCounts for Counts<'_> {
    fn rows(&self, table: &Table) -> Option<u64> {
        self.0.get(&table.oid).copied()
    }

    fn entries(&self, _: &Index) -> Option<u64> {
        None
    }

    fn values(&self, _: &Table, _: usize) -> Option<ColumnValues> {
        let distinct = self.1?;
        Some(ColumnValues { distinct, null_share: 0.0, rarest: 1.0 / distinct, most_sought: 1.0 })
    }
}

/// A catalog and a store made by hand.
#[derive(Default)]
struct World {
    objects: BTreeMap<u32, Object>,
    store: Store,
    counts: BTreeMap<u32, u64>,
    next: u32,
    /// Tells the planner that tables are this large, whatever they are.
    pretended_rows: Option<u64>,
    /// The same of how many different values each column has.
    pretended_values: Option<f64>,
}

impl World {
    fn number(&mut self) -> u32 {
        self.next += 1;
        20_000 + self.next
    }

    fn catalog(&self) -> Arc<Catalog> {
        Arc::new(Catalog::new(1, self.objects.values().cloned()))
    }

    fn create_table(&mut self, create: &ast::CreateTable) -> Result<()> {
        let tree = self.number();
        let mut columns = vec![];
        let mut indexes = vec![];
        for column in &create.columns {
            let place = columns.len();
            let mut not_null = false;
            for option in &column.options {
                match &option.option {
                    ast::ColumnOption::NotNull => not_null = true,
                    ast::ColumnOption::PrimaryKey(_) => {
                        not_null = true;
                        indexes.push((vec![place], true, true));
                    }
                    ast::ColumnOption::Unique(_) => indexes.push((vec![place], true, false)),
                    other => panic!("column option {other}"),
                }
            }
            columns.push(Column {
                name: object_name(&column.name),
                ty: resolve_type(&column.data_type, &FormatContext::default())?,
                not_null,
                default: None,
                identity: None,
                generated: None,
                sequence: None,
                dropped: false,
                missing: Datum::Null,
                collation: None,
                comment: None,
            });
        }
        for constraint in &create.constraints {
            let names = |columns: &[ast::IndexColumn]| -> Vec<usize> {
                (columns.iter())
                    .map(|name| columns_place(&create.columns, &name.column.expr.to_string()))
                    .collect()
            };
            match constraint {
                ast::TableConstraint::PrimaryKey(key) => indexes.push((names(&key.columns), true, true)),
                ast::TableConstraint::Unique(key) => indexes.push((names(&key.columns), true, false)),
                other => panic!("constraint {other}"),
            }
        }
        let mut table = Table {
            oid: tree,
            schema: PUBLIC_OID,
            schema_name: "public".to_owned(),
            name: create.name.to_string(),
            tree,
            columns,
            indexes: vec![],
            checks: vec![],
            foreign_keys: vec![],
            referenced_by: vec![],
            temporary: false,
            on_commit: None,
            options: vec![],
            comment: None,
            hints: Default::default(),
            derived: Default::default(),
        };
        for (places, unique, primary) in indexes {
            let order = IndexColumn::ascending;
            self.add_index(&mut table, places.into_iter().map(order).collect(), unique, primary);
        }
        self.objects.insert(tree, Object::Table(Arc::new(table)));
        self.counts.insert(tree, 0);
        Ok(())
    }

    fn add_index(&mut self, table: &mut Table, columns: Vec<IndexColumn>, unique: bool, primary: bool) {
        let oid = self.number();
        for column in columns.iter().filter(|_| primary) {
            table.columns[place(column)].not_null = true;
        }
        table.indexes.push(Index {
            oid,
            name: format!("{}_{oid}", table.name),
            tree: if primary { table.tree } else { oid },
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
        });
    }

    fn table(&self, name: &str) -> Arc<Table> {
        let found = self.objects.values().find_map(|object| match object {
            Object::Table(table) if table.name == name => Some(table.clone()),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("no table {name}"))
    }

    fn create_index(&mut self, create: &ast::CreateIndex) {
        let mut table = (*self.table(&create.table_name.to_string())).clone();
        let columns = (create.columns.iter())
            .map(|column| {
                let name = column.column.expr.to_string();
                let descending = column.column.options.asc == Some(false);
                let nulls_first = column.column.options.nulls_first.unwrap_or(descending);
                let place = table.column_place(&name).expect("an indexed column");
                IndexColumn { descending, nulls_first, ..IndexColumn::ascending(place) }
            })
            .collect();
        self.add_index(&mut table, columns, create.unique, false);
        self.objects.insert(table.oid, Object::Table(Arc::new(table)));
    }

    fn create_view(&mut self, view: &ast::CreateView, statement: &Statement) -> Result<()> {
        let text = &statement.text[statement.text.to_ascii_lowercase().find(" as ").expect("AS") + 4..];
        let (catalog, counts) = (self.catalog(), self.counts.clone());
        let path = vec!["public".to_owned()];
        let format = FormatContext::default();
        let counts = Counts(&counts, None);
        let source = "".into();
        let context = context(&catalog, &path, &format, &counts, &source);
        let mut binder = Binder::new(&context, &[]);
        let bound = binder.query(&view.query, false)?;
        let column = |name: &str, ty: Type| Column {
            name: name.to_owned(),
            ty,
            not_null: false,
            default: None,
            identity: None,
            generated: None,
            sequence: None,
            dropped: false,
            missing: Datum::Null,
            collation: None,
            comment: None,
        };
        let columns = bound.columns.iter().map(|known| column(&known.name, known.ty)).collect();
        let oid = self.number();
        let view = View {
            oid,
            schema: PUBLIC_OID,
            schema_name: "public".to_owned(),
            name: view.name.to_string(),
            query: text.to_owned(),
            columns,
            search_path: path.clone(),
            depends_on: vec![],
            named: None,
            check_option: None,
            comment: None,
        };
        self.objects.insert(oid, Object::View(Arc::new(view)));
        Ok(())
    }

    fn insert(&mut self, insert: &ast::Insert) -> Result<()> {
        let ast::TableObject::TableName(name) = &insert.table else { panic!("INSERT into a function") };
        let table = self.table(&name.to_string());
        let query = insert.source.as_ref().expect("rows");
        let catalog = self.catalog();
        let (path, format, counts) =
            (vec!["public".to_owned()], FormatContext::default(), self.counts.clone());
        let counts = Counts(&counts, None);
        let source = "".into();
        let context = context(&catalog, &path, &format, &counts, &source);
        let mut binder = Binder::new(&context, &[]);
        let bound = binder.query(query, true)?;
        let types: Vec<Type> = table.columns.iter().map(|column| column.ty).collect();
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        let bound = binder.assign_query(bound, &types, &names)?;
        let plan = plan(bound, binder.cte_count(), vec![], vec![], context.row_counts)?;
        let mut cursor = Cursor::new(&Arc::new(plan), Arc::new([]));
        let mut rows = vec![];
        let read = read(&self.store, &format, &catalog);
        while let Some(row) = cursor.next(&read)? {
            rows.push(row);
        }
        for row in rows {
            self.store_row(&table, &row)?;
        }
        Ok(())
    }

    fn store_row(&mut self, table: &Table, row: &[Datum]) -> Result<()> {
        let count = self.counts.entry(table.oid).or_default();
        *count += 1;
        let encode = |index: &Index| {
            let mut key = vec![];
            for column in &index.columns {
                keys::encode_into(&mut key, &row[place(column)], column.order());
            }
            key
        };
        let row_key = match table.primary_key() {
            Some(primary) => encode(primary),
            None => count.to_be_bytes().to_vec(),
        };
        for index in table.indexes.iter().filter(|index| !index.primary) {
            let mut key = encode(index);
            let columns = key.len() as u32;
            let has_null = index.columns.iter().any(|column| row[place(column)].is_null());
            let value = if index.unique {
                Bytes::from(row_key.clone())
            } else {
                Bytes::copy_from_slice(&columns.to_le_bytes())
            };
            if !index.unique || has_null {
                key.extend_from_slice(&row_key);
            }
            self.store.0.insert((index.tree, key), value);
        }
        let stored = table.layout().encode(row)?;
        self.store.0.insert((table.tree, row_key), stored);
        Ok(())
    }

    /// Rows as text, a line each, columns separated by `|`, NULL as `~`.
    fn select(&self, query: &ast::Query, source: &str, explain: bool) -> Result<String> {
        let catalog = self.catalog();
        let (path, format) = (vec!["public".to_owned()], FormatContext::default());
        let counts = match self.pretended_rows {
            Some(rows) => self.counts.keys().map(|table| (*table, rows)).collect(),
            None => self.counts.clone(),
        };
        let counts = Counts(&counts, self.pretended_values);
        let source = source.into();
        let context = context(&catalog, &path, &format, &counts, &source);
        let mut binder = Binder::new(&context, &[]);
        let bound = binder.query(query, false)?;
        let parameters = binder.parameter_types()?;
        if !parameters.is_empty() {
            return Err(SqlError::new("42P02", "there is no parameter $1"));
        }
        let plan = Arc::new(plan(bound, binder.cte_count(), parameters, vec![], context.row_counts)?);
        if explain {
            return Ok(plan.explain(false, &FormatContext::default()).join("\n") + "\n");
        }
        let read = read(&self.store, &format, &catalog);
        let mut cursor = Cursor::new(&plan, Arc::new([]));
        let mut out = String::new();
        let names: Vec<&str> = plan.columns.iter().map(|column| column.name.as_str()).collect();
        writeln!(out, "{}", names.join("|")).expect("a string");
        while let Some(row) = cursor.next(&read)? {
            let mut fields = vec![];
            for (value, column) in row.iter().zip(&plan.columns) {
                if value.is_null() {
                    fields.push("~".to_owned());
                } else {
                    let mut text = vec![];
                    value.to_text(column.ty, &format, &mut text);
                    fields.push(String::from_utf8(text).expect("UTF-8"));
                }
            }
            writeln!(out, "{}", fields.join("|")).expect("a string");
        }
        Ok(out)
    }
}

fn columns_place(columns: &[ast::ColumnDef], name: &str) -> usize {
    columns.iter().position(|column| object_name(&column.name) == name).expect("a constraint's column")
}

fn context<'a>(
    catalog: &'a Arc<Catalog>,
    path: &'a [String],
    format: &'a FormatContext,
    counts: &'a dyn RowCounts,
    source: &'a Arc<str>,
) -> BindContext<'a> {
    BindContext {
        catalog,
        search_path: path,
        eval: EvalContext::without_session(format),
        virtual_tables: &NoVirtualTables,
        row_counts: counts,
        source,
    }
}

fn read<'a>(store: &'a Store, format: &'a FormatContext, catalog: &'a Arc<Catalog>) -> ReadContext<'a> {
    ReadContext {
        reader: store,
        eval: EvalContext::without_session(format),
        catalog,
        external: &NoExternalFunctions,
        interrupt: &NeverInterrupted,
        memory_limit: 64 << 20,
        tally: None,
        usage: None,
    }
}

fn run(world: &mut World, statement: &Statement) -> Result<String> {
    let Command::Sql(sql) = &statement.command else { panic!("{}", statement.text) };
    match sql.as_ref() {
        ast::Statement::CreateTable(create) => world.create_table(create).map(|()| String::new()),
        ast::Statement::CreateIndex(create) => {
            world.create_index(create);
            Ok(String::new())
        }
        ast::Statement::CreateView(view) => world.create_view(view, statement).map(|()| String::new()),
        ast::Statement::Insert(insert) => world.insert(insert).map(|()| String::new()),
        ast::Statement::Query(query) => world.select(query, &statement.source, false),
        ast::Statement::Explain { statement: inner, .. } => match inner.as_ref() {
            ast::Statement::Query(query) => world.select(query, "", true),
            other => panic!("EXPLAIN {other}"),
        },
        other => panic!("{other}"),
    }
}

fn describe(error: &SqlError) -> String {
    format!("ERROR {} {}\n", error.sqlstate, error.message)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/select")
}

/// The statements of a script, each with its source text. Statements end with `;` at the end of a
/// line.
fn statements(text: &str) -> Vec<String> {
    let mut statements = vec![];
    let mut current = String::new();
    for line in text.lines() {
        if current.is_empty() && (line.starts_with("--") || line.trim().is_empty()) {
            continue;
        }
        current.push_str(line);
        if line.ends_with(';') {
            current.pop();
            statements.push(std::mem::take(&mut current));
        } else {
            current.push('\n');
        }
    }
    statements
}

/// What a script gives: each query's text and its answer.
fn perform(text: &str, pretended_rows: Option<u64>, pretended_values: Option<f64>) -> Vec<(String, String)> {
    let mut world = World { pretended_rows, pretended_values, ..World::default() };
    let mut answers = vec![];
    for statement in statements(text) {
        let answer = match parse::parse_single(&format!("{statement};")) {
            Ok(Some(parsed)) => {
                let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut world, &parsed)));
                outcome.map_or_else(|_| "PANIC\n".to_owned(), |r| r.unwrap_or_else(|error| describe(&error)))
            }
            Ok(None) => continue,
            Err(error) => describe(&error),
        };
        answers.push((statement, answer));
    }
    answers
}

/// The answers of a file: `> statement` lines, then what came.
fn expected(text: &str) -> BTreeMap<String, String> {
    let mut answers = BTreeMap::new();
    for part in text.split("\n> ") {
        let part = part.trim_start_matches("> ");
        if let Some((statement, answer)) = part.split_once("\n=\n") {
            answers.insert(statement.to_owned(), answer.to_owned());
        }
    }
    answers
}

/// Rows without ORDER BY come in any order.
fn normalized(statement: &str, answer: &str) -> String {
    let mut lines: Vec<&str> = answer.lines().collect();
    if !statement.to_ascii_lowercase().contains("order by") && lines.len() > 2 {
        lines[1..].sort_unstable();
    }
    lines.join("\n")
}

#[test]
fn answers_are_postgresqls() {
    let mut wrong = String::new();
    let mut compared = 0;
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder()).expect("scripts").map(|entry| entry.expect("a script").path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "sql")) {
        let text = std::fs::read_to_string(path).expect("a script");
        let known = expected(&std::fs::read_to_string(path.with_extension("out")).unwrap_or_default());
        // Small tables are read whole and hashed, large ones through their indexes, or not if few
        // values are known: all must agree.
        for (rows, values) in [(None, None), (Some(1_000_000), None), (Some(1_000_000), Some(3.0))] {
            for (statement, answer) in perform(&text, rows, values) {
                let Some(expected) = known.get(&statement) else {
                    if !answer.is_empty() {
                        writeln!(wrong, "{}: no answer known\n{statement}\n{answer}", path.display())
                            .expect("a string");
                    }
                    continue;
                };
                compared += 1;
                if normalized(&statement, expected) != normalized(&statement, &answer) {
                    writeln!(
                        wrong,
                        "{} ({rows:?}, {values:?})\n{statement}\nPostgreSQL:\n{expected}\nhere:\n{answer}",
                        path.file_name().expect("a name").to_string_lossy()
                    )
                    .expect("a string");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared > 0);
}

/// Large tables that are joined by their primary keys are read side by side, where both sides come
/// in the order of the join's keys.
#[test]
fn joins_in_the_order_of_primary_keys_merge() {
    let tables = "CREATE TABLE head (id int PRIMARY KEY, parent int);\n\
                  CREATE TABLE part (head bigint, no int, PRIMARY KEY (head, no));\n";
    let plan = |query: &str| {
        let script = format!("{tables}EXPLAIN {query};\n");
        perform(&script, Some(1_000_000), None).pop().expect("a plan").1
    };
    let merged = [
        "SELECT a.parent, b.parent FROM head a JOIN head b ON b.id = a.id",
        "SELECT parent, no FROM head JOIN part ON head.id = part.head",
        "SELECT parent, no FROM part LEFT JOIN head ON head.id = part.head",
        "SELECT a.no FROM part a JOIN part b ON b.no = a.no AND a.head = b.head",
    ];
    for query in merged {
        let plan = plan(query);
        assert!(plan.starts_with("Merge"), "{query}\n{plan}");
    }
    let not_merged = [
        "SELECT a.parent FROM head a JOIN head b ON b.parent = a.id",
        "SELECT parent, no FROM head LEFT JOIN part ON head.id = part.head",
        "SELECT a.no FROM part a JOIN part b ON b.head = a.head",
        "SELECT a.id FROM head a FULL JOIN head b ON b.id = a.id",
    ];
    for query in not_merged {
        let plan = plan(query);
        assert!(plan.contains("Join") || plan.contains("Loop"), "{query}\n{plan}");
        assert!(!plan.contains("Merge"), "{query}\n{plan}");
    }
}

/// Evaluates an expression over no row, as defaults and constraints are.
#[test]
fn expressions_without_a_query() {
    let catalog = Arc::new(Catalog::new(1, []));
    let (path, format, counts) = (vec![], FormatContext::default(), BTreeMap::new());
    let counts = Counts(&counts, None);
    let source = "".into();
    let context = context(&catalog, &path, &format, &counts, &source);
    let mut binder = Binder::new(&context, &[]);
    binder.open_level();
    let syntax = parse::parse_expression("1 + 2 * 3").expect("an expression");
    let typed = binder.expression(&syntax).expect("bound");
    let store = Store::default();
    let read = read(&store, &format, &catalog);
    let runtime = Runtime::default();
    let execution = Execution { read: &read, parameters: &[], runtime: &runtime };
    assert_eq!(typed.expr.eval(&Env::new(&[], execution)).expect("a value"), Datum::Int4(7));
}

/// Asks PostgreSQL for the answers and writes them beside the scripts: run with `--ignored`, `psql`
/// installed, and `PGHOST`, `PGPORT`, `PGUSER`, `PGDATABASE` naming an empty database, whose schema
/// `public` is dropped; with one thread.
#[test]
#[ignore = "needs a PostgreSQL server"]
fn write_answers() {
    for entry in std::fs::read_dir(folder()).expect("scripts") {
        let path = entry.expect("a script").path();
        if path.extension().is_none_or(|extension| extension != "sql") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a script");
        let mut script = String::from(
            "\\set VERBOSITY verbose\n\\pset format unaligned\n\\pset null ~\n\\pset footer off\nset timezone to 'UTC';\n\
             set client_min_messages to error;\ndrop schema public cascade;\ncreate schema public;\n",
        );
        let statements = statements(&text);
        for (number, statement) in statements.iter().enumerate() {
            writeln!(script, "\\echo @@{number}\n{statement};").expect("a string");
        }
        let answers = psql(&script);
        let mut out = String::new();
        for part in answers.split("@@").skip(1) {
            let (number, answer) = part.split_once('\n').expect("an answer");
            let statement = &statements[number.parse::<usize>().expect("a number")];
            let answer = match answer.strip_prefix("ERROR:  ") {
                Some(error) => {
                    let (state, message) = error.split_once(": ").expect("a SQLSTATE");
                    format!("ERROR {state} {}\n", message.lines().next().unwrap_or_default())
                }
                None => answer.to_owned(),
            };
            if !answer.is_empty() {
                write!(out, "> {statement}\n=\n{answer}").expect("a string");
            }
        }
        std::fs::write(path.with_extension("out"), out).expect("written");
    }
}

/// What `psql` prints for a script, errors in their place.
fn psql(script: &str) -> String {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut child = Command::new("psql")
        .args(["-q", "-X"])
        .stdin(Stdio::piped())
        .stdout(writer.try_clone().expect("a pipe"))
        .stderr(writer)
        .spawn()
        .expect("psql");
    // Both at a time: neither pipe holds everything.
    let (mut input, script) = (child.stdin.take().expect("its input"), script.to_owned());
    let writer = std::thread::spawn(move || input.write_all(script.as_bytes()).expect("written"));
    let mut out = String::new();
    reader.read_to_string(&mut out).expect("UTF-8");
    writer.join().expect("written");
    child.wait().expect("its end");
    out
}
