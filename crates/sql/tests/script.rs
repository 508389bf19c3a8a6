//! Golden scripts: dialogues between sessions, with the answers they must get.
//!
//! ```text
//! a: BEGIN
//! > BEGIN
//! a: UPDATE t SET v = 1 WHERE id = 1
//! > UPDATE 1
//! b: UPDATE t SET v = v + 1 WHERE id = 1     -- session b waits for a's lock
//! > ... waits
//! a: COMMIT
//! > COMMIT
//! > b: UPDATE 1                               -- and goes on
//! ```
//!
//! A line `name: text` runs the text as one simple query in the session of that name, made when
//! first used. Lines that begin with two spaces continue it. `>` lines are the expected answer:
//! notices, column names, rows, command tags, errors; then what other sessions answered that had
//! been waiting. `name! ` cancels the session's statement; `name.` waits for it to end by itself (a
//! timeout); `restart` closes the database and opens it again, `restart with N kB` with that much
//! memory. `name as user` ends the session of that name, and makes a new one of this user where it
//! is used next; `name as user, ordinary, work_mem=8MB` one that is no superuser and asks for a
//! setting when it begins. `#` is a comment.
//!
//! `hold` keeps all flushes of the log back from here on, `flush` lets them go, and `crash` takes
//! the power away instead and opens what is left; such a script runs on a simulated disk.
//!
//! Whether a session waits is asked of the engine's lock table and of its log, never of a clock.
//! With `BLESS=1` in the environment the answers are written into the scripts instead of compared.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::Poll;

use cognate_engine::{Database, Options};
use cognate_env::sim::{Loss, SimDisk};
use cognate_sql::SqlError;
use cognate_sql::session::{
    Authority, CancelHandle, Fetch, Format, OutputColumn, Portal, RowSink, Session, SessionParameters,
    SinkState, SqlDatabase,
};
use cognate_sql::types::{Datum, FormatContext};

use crate::nodes::{Cluster, NODES};

/// A step of a script.
enum Step {
    Comment(String),
    Run {
        session: String,
        text: String,
    },
    Cancel(String),
    Await(String),
    /// A session's name, and who it is: user, rights, options.
    Identify(String, String),
    /// With so many kilobytes of memory, if it says so.
    Restart(Option<u64>),
    Hold,
    Flush,
    Crash,
}

fn parse(script: &str) -> Vec<(Step, Vec<String>)> {
    let mut steps: Vec<(Step, Vec<String>)> = Vec::new();
    for line in script.lines() {
        if let (Some(expected), Some((_, answers))) = (line.strip_prefix('>'), steps.last_mut()) {
            answers.push(expected.strip_prefix(' ').unwrap_or(expected).to_owned());
        } else if let (true, Some((Step::Run { text, .. }, _))) = (line.starts_with("  "), steps.last_mut()) {
            text.push('\n');
            text.push_str(line);
        } else if let Some(step) = match line {
            "hold" => Some(Step::Hold),
            "flush" => Some(Step::Flush),
            "crash" => Some(Step::Crash),
            _ => None,
        } {
            steps.push((step, Vec::new()));
        } else if line == "restart" {
            steps.push((Step::Restart(None), Vec::new()));
        } else if let Some(memory) =
            line.strip_prefix("restart with ").and_then(|rest| rest.strip_suffix(" kB"))
        {
            steps.push((Step::Restart(Some(memory.parse().unwrap())), Vec::new()));
        } else if let Some((session, who)) = line.split_once(" as ").filter(|(name, _)| is_name(name)) {
            steps.push((Step::Identify(session.to_owned(), who.to_owned()), Vec::new()));
        } else if let Some(session) = line.strip_suffix('!').filter(|name| is_name(name)) {
            steps.push((Step::Cancel(session.to_owned()), Vec::new()));
        } else if let Some(session) = line.strip_suffix('.').filter(|name| is_name(name)) {
            steps.push((Step::Await(session.to_owned()), Vec::new()));
        } else if let Some((session, text)) = line.split_once(": ").filter(|(name, _)| is_name(name)) {
            steps.push((Step::Run { session: session.to_owned(), text: text.to_owned() }, Vec::new()));
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "not a step: {line:?}");
            steps.push((Step::Comment(line.to_owned()), Vec::new()));
        }
    }
    steps
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Writes rows down as text.
#[derive(Default)]
pub(crate) struct Lines {
    pub(crate) out: Vec<String>,
    headed: bool,
}

impl RowSink for Lines {
    fn row(
        &mut self,
        columns: &[OutputColumn],
        _: &[Format],
        row: &[Datum],
        context: &FormatContext,
    ) -> Result<SinkState, SqlError> {
        if !std::mem::replace(&mut self.headed, true) {
            self.out.push(columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join("|"));
        }
        let texts = row.iter().zip(columns).map(|(value, column)| match value {
            Datum::Null => "NULL".to_owned(),
            value => value.to_text_string(column.ty, context).replace('\n', "\\n"),
        });
        self.out.push(texts.collect::<Vec<_>>().join("|"));
        Ok(SinkState::Ready)
    }

    fn copy_out(&mut self, data: &[u8]) -> SinkState {
        self.out.push(String::from_utf8_lossy(data).trim_end_matches('\n').to_owned());
        SinkState::Ready
    }
}

fn report(out: &mut Vec<String>, error: &SqlError) {
    let severity = error.severity.as_str();
    let mut lines = format!("{severity} {}: {}", error.sqlstate, error.message);
    for (label, text) in [("DETAIL", &error.detail), ("HINT", &error.hint), ("CONTEXT", &error.context)] {
        if let Some(text) = text {
            let _ = write!(lines, "\n{label}: {text}");
        }
    }
    out.extend(lines.lines().map(str::to_owned));
}

/// One simple query from start to ReadyForQuery; COPY FROM STDIN takes what follows the first line
/// of the text.
pub(crate) async fn simple_query(session: &mut Session, text: &str) -> Vec<String> {
    let (text, data) = match text.split_once("\n  | ") {
        Some((text, data)) => (text, data.replace("\n  | ", "\n") + "\n"),
        None => (text, String::new()),
    };
    let mut lines = Lines::default();
    let mut failed = None;
    session.begin_message();
    match session.split(text) {
        Err(error) => failed = Some(error),
        Ok(statements) => match as_one(session, &statements).await {
            Err(error) => failed = Some(error),
            Ok(portals) => {
                let mut portals = portals.into_iter();
                for statement in statements {
                    lines.headed = false;
                    let result = match portals.next() {
                        Some(portal) => run_portal(session, portal, data.as_bytes(), &mut lines).await,
                        None => run_one(session, statement, data.as_bytes(), &mut lines).await,
                    };
                    for notice in session.take_notices() {
                        report(&mut lines.out, &notice);
                    }
                    if let Err(error) = result {
                        failed = Some(error);
                        break;
                    }
                }
            }
        },
    }
    if let Some(error) = failed {
        let error = session.failed(error).await;
        report(&mut lines.out, &error);
        session.sync().await.unwrap();
        return lines.out;
    }
    // The last statement is complete once its transaction is committed.
    let last = lines.out.pop();
    match session.sync().await {
        Ok(()) => lines.out.extend(last),
        Err(error) => report(&mut lines.out, &error),
    }
    for notice in session.take_notices() {
        report(&mut lines.out, &notice);
    }
    lines.out
}

async fn run_one(
    session: &mut Session,
    statement: cognate_sql::session::Statement,
    data: &[u8],
    lines: &mut Lines,
) -> Result<(), SqlError> {
    let prepared = session.prepare_statement(statement)?;
    let mut portal = session.bind(&prepared, &[], &[], &[])?;
    // Nobody is told of its columns before its rows.
    portal.leave_open();
    run_portal(session, portal, data, lines).await
}

/// A message that is executed at every node as one: where its answers come from.
async fn as_one(
    session: &mut Session,
    statements: &[cognate_sql::session::Statement],
) -> Result<Vec<Portal>, SqlError> {
    if statements.len() < 2 || !session.asks_active(statements) {
        return Ok(Vec::new());
    }
    Ok(session.run_active(statements).await?.unwrap_or_default())
}

async fn run_portal(
    session: &mut Session,
    mut portal: Portal,
    data: &[u8],
    lines: &mut Lines,
) -> Result<(), SqlError> {
    loop {
        match session.fetch(&mut portal, lines, 0).await? {
            Fetch::Complete(tag) => {
                if !lines.headed
                    && let Some(columns) = portal.columns()
                {
                    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                    lines.out.push(names.join("|"));
                }
                for notice in session.take_notices() {
                    report(&mut lines.out, &notice);
                }
                lines.out.push(tag.to_string());
                return Ok(());
            }
            Fetch::CopyIn(_) => {
                session.copy_data(data).await?;
                let tag = session.copy_done().await?;
                lines.out.push(tag.to_string());
                return Ok(());
            }
            Fetch::CopyOut(_) | Fetch::SinkFull => {}
            Fetch::Empty => return Ok(()),
            Fetch::Suspended => panic!("there was no row limit"),
        }
    }
}

type Running = Pin<Box<dyn Future<Output = (Session, Vec<String>)> + Send>>;

/// A session of the script: idle, or with a statement that waits.
struct Client {
    cancel: CancelHandle,
    idle: Option<Session>,
    running: Option<Running>,
    waits: Option<Waits>,
}

/// What a session waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// Its transaction waits for a lock.
    Lock(u64),
    /// A flush.
    Log,
}

struct World {
    _folder: tempfile::TempDir,
    path: PathBuf,
    /// Of a script that holds flushes back.
    disk: Option<SimDisk>,
    is_held: bool,
    engine: Option<Database>,
    sql: Option<SqlDatabase>,
    /// The cluster that the database is a node of, and which one.
    cluster: Option<(Cluster, usize)>,
    /// Each session is at another node than the one before.
    goes_round: bool,
    clients: BTreeMap<String, Client>,
    /// Who sessions are, if not the usual user.
    identities: BTreeMap<String, SessionParameters>,
}

/// User, rights and options of a session, as a script says them.
fn identity(who: &str) -> SessionParameters {
    let mut parameters = SessionParameters { database: "postgres".into(), ..SessionParameters::default() };
    for (at, word) in who.split(", ").enumerate() {
        match word.split_once('=') {
            None if at == 0 => parameters.user = word.to_owned(),
            None if word == "ordinary" => parameters.authority = Authority::Ordinary,
            Some(("database", name)) => parameters.database = name.to_owned(),
            Some((name, value)) => parameters.options.push((name.to_owned(), value.to_owned())),
            None => panic!("{word:?} says nothing of a session"),
        }
    }
    parameters
}

impl World {
    fn new(disk: Option<SimDisk>) -> World {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let mut world = World {
            _folder: folder,
            path,
            disk,
            is_held: false,
            engine: None,
            sql: None,
            cluster: None,
            goes_round: false,
            clients: BTreeMap::new(),
            identities: BTreeMap::new(),
        };
        world.open(None);
        world
    }

    /// One whose database is a node of a cluster.
    fn at_node(at: usize) -> World {
        let mut world = World::new(None);
        let cluster = Cluster::start();
        let (engine, sql) = cluster.nodes[at].clone();
        (world.engine, world.sql) = (Some(engine), Some(sql));
        world.cluster = Some((cluster, at));
        world
    }

    fn open(&mut self, kilobytes: Option<u64>) {
        let options = Options::new(&self.path);
        let options = match kilobytes {
            Some(kilobytes) => options.memory(kilobytes << 10),
            None => options,
        };
        let options = match &self.disk {
            Some(disk) => Options { disk: disk.handle(), ..options },
            None => options,
        };
        let engine = Database::open(options).unwrap();
        self.sql = Some(SqlDatabase::open(engine.clone()).unwrap());
        self.engine = Some(engine);
    }

    fn restart(&mut self, kilobytes: Option<u64>) {
        self.clients.clear();
        self.sql = None;
        if let Some((cluster, at)) = &mut self.cluster {
            self.engine = None;
            cluster.restart(kilobytes);
            let (engine, sql) = cluster.nodes[*at].clone();
            (self.engine, self.sql) = (Some(engine), Some(sql));
            return;
        }
        if let Some(engine) = self.engine.take() {
            engine.close().unwrap();
        }
        self.open(kilobytes);
    }

    fn waiting(&self) -> Vec<u64> {
        let waiting = |engine: &Database| {
            let all = engine.transactions().into_iter();
            all.filter(|t| t.waits_for.is_some()).map(|t| t.id).collect::<Vec<u64>>()
        };
        match &self.cluster {
            None => waiting(self.engine.as_ref().unwrap()),
            Some((cluster, _)) => cluster.nodes.iter().flat_map(|(engine, _)| waiting(engine)).collect(),
        }
    }

    fn client(&mut self, name: &str) -> &mut Client {
        let mut sql = self.sql.clone().unwrap();
        if let (true, Some((cluster, at))) = (self.goes_round, &self.cluster) {
            sql = cluster.nodes[(at + self.clients.len()) % NODES].1.clone();
        }
        let parameters = self.identities.get(name).cloned().unwrap_or_else(|| identity("postgres"));
        self.clients.entry(name.to_owned()).or_insert_with(|| {
            let session = Session::new(sql, parameters).unwrap();
            Client { cancel: session.cancel_handle(), idle: Some(session), running: None, waits: None }
        })
    }

    async fn step(&mut self, step: &Step) -> Vec<String> {
        let mut out = Vec::new();
        match step {
            Step::Comment(_) => return out,
            Step::Restart(kilobytes) => {
                self.restart(*kilobytes);
                self.sweep().await;
            }
            Step::Hold => {
                self.disk.as_ref().unwrap().hold_flushes();
                self.is_held = true;
            }
            Step::Flush => {
                self.disk.as_ref().unwrap().let_flushes_go();
                self.is_held = false;
            }
            Step::Crash => {
                self.disk.as_ref().unwrap().restart(Loss::Power);
                self.is_held = false;
                self.clients.clear();
                (self.sql, self.engine) = (None, None);
                self.open(None);
            }
            Step::Cancel(name) => self.client(name).cancel.cancel(),
            Step::Identify(name, who) => {
                self.clients.remove(name);
                self.sweep().await;
                self.identities.insert(name.clone(), identity(who));
            }
            Step::Await(name) => {
                let running = self.client(name).running.take().expect("nothing to wait for");
                let (session, lines) = running.await;
                let client = self.client(name);
                (client.idle, client.waits) = (Some(session), None);
                out.extend(lines);
            }
            Step::Run { session: name, text } => {
                let text = text.clone();
                let client = self.client(name);
                let mut session = client.idle.take().expect("the session is still waiting");
                client.running = Some(Box::pin(async move {
                    let lines = simple_query(&mut session, &text).await;
                    (session, lines)
                }));
                match self.poll(name).await {
                    Some(lines) => out.extend(lines),
                    None => out.push("... waits".to_owned()),
                }
            }
        }
        self.others(&mut out).await;
        if let Some((cluster, _)) = &self.cluster {
            cluster.settle().await;
        }
        out
    }

    /// What a server does at each node of a cluster: sessions that are no more have left something.
    async fn sweep(&mut self) {
        for (_, sql) in self.cluster.iter().flat_map(|(cluster, _)| &cluster.nodes) {
            sql.note_left_behind(|_| true);
            sql.sweep_temporary().await.unwrap();
        }
    }

    /// Lets those that waited go on.
    async fn others(&mut self, out: &mut Vec<String>) {
        loop {
            let names: Vec<String> = self
                .clients
                .iter()
                .filter(|(_, client)| client.waits.is_some())
                .map(|(name, _)| name.clone())
                .collect();
            let mut progress = false;
            for name in names {
                if let Some(lines) = self.poll(&name).await {
                    out.extend(lines.into_iter().map(|line| format!("{name}: {line}")));
                    progress = true;
                }
            }
            if !progress {
                return;
            }
        }
    }

    fn log_waits(&self) -> u64 {
        self.engine.as_ref().unwrap().statistics().log.waiting
    }

    /// Runs a session's statement until it ends or waits for a lock or, where flushes are held
    /// back, for the log.
    async fn poll(&mut self, name: &str) -> Option<Vec<String>> {
        let client = self.clients.get_mut(name).unwrap();
        let mut running = client.running.take().unwrap();
        let (before, log_before) = (self.waiting(), self.log_waits());
        let known = self.clients[name].waits;
        let ended = std::future::poll_fn(|context| match running.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Ok(ended)),
            Poll::Pending => {
                let now = self.waiting();
                let mine = known.filter(|waits| matches!(waits, Waits::Lock(id) if now.contains(id)));
                let new = now.into_iter().find(|id| !before.contains(id)).map(Waits::Lock);
                let is_in_log = self.is_held && (known == Some(Waits::Log) || self.log_waits() > log_before);
                match mine.or(new).or(is_in_log.then_some(Waits::Log)) {
                    Some(waits) => Poll::Ready(Err(waits)),
                    None => Poll::Pending,
                }
            }
        })
        .await;
        let client = self.clients.get_mut(name).unwrap();
        match ended {
            Ok((session, lines)) => {
                (client.idle, client.waits) = (Some(session), None);
                Some(lines)
            }
            Err(waits) => {
                client.running = Some(running);
                client.waits = Some(waits);
                None
            }
        }
    }
}

/// Runs a script that expects nothing in a database of its own: what each step answered.
pub(crate) fn play(script: &str) -> Vec<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut world = World::new(None);
    parse(script).iter().map(|(step, _)| runtime.block_on(world.step(step))).collect()
}

fn run(path: &Path) {
    let script = std::fs::read_to_string(path).unwrap();
    let steps = parse(&script);
    let holds = steps.iter().any(|(step, _)| matches!(step, Step::Hold));
    let mut world = World::new(holds.then(|| SimDisk::new(1)));
    let (blessed, failures) = compare(&mut world, steps);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, blessed).unwrap();
    } else {
        assert!(failures.is_empty(), "{}:\n\n{failures}", path.display());
    }
}

/// The same at some node of a cluster, or with each session at another one; all must come to the
/// same.
pub(crate) fn run_at_cluster(path: &Path, goes_round: bool) {
    let script = std::fs::read_to_string(path).unwrap();
    let mut world = World::at_node(script.len() % NODES);
    world.goes_round = goes_round;
    let (_, failures) = compare(&mut world, parse(&script));
    assert!(failures.is_empty(), "{}:\n\n{failures}", path.display());
    world.clients.clear();
    let (cluster, _) = world.cluster.as_ref().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(cluster.settle());
    cluster.assert_equal();
}

/// Plays the steps. The script as it would be with the answers that came, and which were not as
/// expected.
fn compare(world: &mut World, steps: Vec<(Step, Vec<String>)>) -> (String, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut blessed = String::new();
    let mut failures = String::new();
    for (step, expected) in steps {
        let answer = runtime.block_on(world.step(&step));
        let line = match &step {
            Step::Comment(line) => line.clone(),
            Step::Run { session, text } => format!("{session}: {text}"),
            Step::Cancel(session) => format!("{session}!"),
            Step::Await(session) => format!("{session}."),
            Step::Identify(session, who) => format!("{session} as {who}"),
            Step::Hold => "hold".to_owned(),
            Step::Flush => "flush".to_owned(),
            Step::Crash => "crash".to_owned(),
            Step::Restart(None) => "restart".to_owned(),
            Step::Restart(Some(kilobytes)) => format!("restart with {kilobytes} kB"),
        };
        let _ = writeln!(blessed, "{line}");
        for line in &answer {
            let _ = writeln!(blessed, "{}", format!("> {line}").trim_end());
        }
        let is_node = world.cluster.is_some();
        let plain = |line: &String| match is_node {
            true => without_transactions(line.trim_end()),
            false => line.trim_end().to_owned(),
        };
        let expected: Vec<String> = expected.iter().map(plain).collect();
        let told = answer.iter().filter(|line| !(is_node && tells_of_another_node(line)));
        if told.map(plain).ne(expected.iter().cloned()) {
            let (expected, answer) = (expected.join("\n  "), answer.join("\n  "));
            let _ = write!(failures, "{line}\n expected\n  {expected}\n got\n  {answer}\n\n");
        }
    }
    (blessed, failures)
}

/// Whether a line says which transaction of a node was met, where a single database says nothing.
fn tells_of_another_node(line: &str) -> bool {
    line.contains("DETAIL: Transaction ") && line.contains(" was faster")
}

/// A detail without the numbers of transactions, which are others at a node: digits that are not in
/// parentheses. Nor does it say whose they are.
fn without_transactions(line: &str) -> String {
    let names_some = ["DETAIL: ", "Transaction ", "prepared transaction "];
    if !names_some.iter().any(|some| line.contains(some)) {
        return line.to_owned();
    }
    let (mut depth, mut plain, mut is_in_number) = (0, String::new(), false);
    for letter in line.chars() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        let is_digit = letter.is_ascii_digit() && depth == 0;
        if !is_digit {
            plain.push(letter);
        } else if !is_in_number {
            plain.push('#');
        }
        is_in_number = is_digit;
    }
    plain.replace(" of node #", "")
}

macro_rules! scripts {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            let file = concat!(stringify!($name), ".script");
            run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(file));
        })*
    };
}

scripts!(
    serializable,
    advisory,
    notify,
    alter,
    alter_locks,
    alter_order,
    anomaly_insert_after_delete,
    anomaly_lost_update,
    anomaly_phantom_aggregate,
    anomaly_phantom_index,
    anomaly_phantom_join,
    anomaly_phantom_range,
    anomaly_read_only,
    anomaly_write_skew,
    array_edges,
    json_edges,
    time_edges,
    array_parts,
    array_slices,
    array_types,
    basics,
    bulk,
    catalog,
    columns,
    column_statistics,
    counted_rows,
    composite_json,
    catalog_snapshot,
    conflict,
    job_queues,
    merge,
    inline_code,
    group_sets,
    view_words,
    view_changes,
    view_locks,
    updatable_views,
    generated_columns,
    deferrable_unique,
    set_constraints,
    deferrable_primary_key,
    network_addresses,
    domain_functions,
    percentiles,
    variadic_calls,
    json_records,
    enum_functions,
    with_changes,
    constraints,
    copy,
    copy_checks,
    cursors,
    cursor_tables,
    databases,
    date_styles,
    ddl,
    ddl_conflicts,
    ddl_texts,
    key_types,
    stored_times,
    stored_uses,
    public_schema,
    domains,
    domain_catalog,
    domain_changes,
    domain_locks,
    deadlock,
    deferred_references,
    duplicate_or_failure,
    enums,
    enum_arrays,
    enum_locks,
    enum_refusals,
    equal_keys,
    evaluation,
    exists,
    explain_analyze,
    durability,
    first_query,
    foreignkeys,
    functions,
    governor,
    hints,
    interval_styles,
    isolation,
    locks,
    names,
    monitoring,
    jsonb_subscripts,
    like,
    index_options,
    partial_indexes,
    expression_indexes,
    extensions,
    anomaly_phantom_partial_index,
    array_elements,
    explain_json,
    explain_keys,
    numerics,
    prepared,
    prepared_transactions,
    owners,
    privileges,
    argument_rights,
    column_rights,
    rights_together,
    shown_by_rights,
    rights,
    procedures,
    programs,
    refusals,
    refused_alike,
    regular_expressions,
    role_settings,
    roles,
    role_locks,
    routine_conflicts,
    routine_parameters,
    comments,
    collations,
    identity_changes,
    pending_checks,
    long_loads,
    referenced_indexes,
    replication_role,
    spellings,
    using_index,
    included_columns,
    shared_snapshots,
    snapshot_ids,
    transaction_ids,
    triggers,
    row_strengths,
    savepoint_locks,
    sequences,
    settings,
    sibling_errors,
    sibling_locks,
    sibling_refusals,
    sibling_snapshot,
    siblings,
    snapshot_refresh,
    temporary_crash,
    temporary_objects,
    temporary_on_commit,
    temporary_sessions,
    temporary_tables,
    time_templates,
    time_zones,
    transactions,
    unvalidated_constraints,
    views
);

/// Paper tests: a sentence each of sections 2, 3.2 and 3.3 of the Multi-Instance-Precommit paper
/// that says how transactions behave. What the stub does (section 2) is tested with the server,
/// what a crash may not break (section 3.3) with the engine, and the table of section 3.2 is
/// `sibling_locks`.
mod mip_paper {
    use std::path::Path;

    macro_rules! sentences {
        ($($name:ident),* $(,)?) => {
            $(#[test]
            fn $name() {
                let file = concat!("tests/scripts/mip/", stringify!($name), ".script");
                super::run(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
            })*
        };
    }

    sentences!(
        s2_a_new_sibling_does_not_wait,
        s2_a_request_is_executed_several_times_at_once,
        s2_a_retry_needs_no_end_of_the_first,
        s2_a_sibling_reads_the_pre_image,
        s2_a_sibling_writes_on_the_pre_image,
        s2_an_instance_begins_as_null,
        s2_at_most_one_instance_commits,
        s2_instances_of_one_xid_are_a_family,
        s2_no_sibling_sees_what_is_not_committed,
        s2_no_two_transactions_have_the_same_pair,
        s2_prepare_tells_of_all_siblings,
        s2_the_decision_releases_the_locks,
        s2_the_pre_image_is_for_siblings_only,
        s2_the_smallest_prepared_instance_is_chosen,
        s2_the_table_has_state_and_result,
        s2_the_table_keeps_the_request,
        s32_a_read_sees_its_snapshot,
        s32_a_sibling_writes_what_another_shares,
        s32_a_writer_waits_for_all_who_share,
        s32_any_number_of_active_versions,
        s32_first_updater_wins,
        s32_instances_and_strangers_wait_for_each_other,
        s32_only_instances_take_sibling_locks,
        s32_ordinary_writers_have_one_active_version,
        s32_own_writes_are_read,
        s32_who_has_waited_checks_again,
        s33_a_family_has_room_for_many_instances,
        s33_commit_ends_active_and_prepared_siblings,
        s33_prepare_registers_both_strings,
        s33_prepared_siblings_are_aborted_after_a_restart,
        s33_results_may_differ_in_size,
        s33_what_is_not_prepared_is_lost_in_a_crash,
        s33_xids_are_whatever_applications_choose,
    );
}
