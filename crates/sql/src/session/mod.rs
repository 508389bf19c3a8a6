//! Sessions: what one connection does with the database.
//!
//! Step 2 of the corridor in ARCHITECTURE.md.
//!
//! A session splits text into statements, prepares them (plans are shared, see [`SqlDatabase`]),
//! binds parameters to get a [`Portal`], and fetches rows from it into a [`RowSink`]. It holds the
//! open transaction, the settings, prepared statements, cursors and portals. Nothing here blocks
//! a thread: waits for locks and for the log are futures, and dropping such a future leaves the
//! session as a failed statement would.
//!
//! The wire's rules live here too: a statement outside a block opens an *implicit* transaction that
//! lasts until [`Session::sync`]; an error makes a block [`Failed`](TransactionStatus::Failed) and
//! rolls an implicit transaction back.
//!
//! How a statement with a plan runs (see `execute`):
//!
//! ```text
//! 0. go on, or wait for a slot                                one atomic operation below the governor's limit
//! 1. open the engine's transaction, or refresh its snapshot
//! 2. lock the plan's tables (reading or writing rows)       not for a SELECT at the durable mark
//! 3. is the plan made for the present catalog?              one atomic load; else plan again, and back to 2
//!    may the user do what it does? (`identity`)             one flag for superusers and where there are no roles
//! 4. run it; at its end the queued foreign keys
//!    failed for others: perhaps once more from 1 (`again`)
//! ```

mod active;
mod activity;
mod advisory;
mod again;
mod ahead;
mod alike;
mod backup;
mod cluster;
mod copy;
mod cursor;
pub(crate) mod cycle;
mod damage;
mod database;
mod databases;
mod documents;
mod durability;
mod execute;
mod explain;
mod external;
mod facts;
pub(crate) mod failures;
mod flow_control;
mod gathering;
mod governed;
mod identity;
mod in_doubt;
mod inline_code;
mod insight;
mod interrupt;
mod listing;
mod login;
mod maintenance;
mod mip;
mod modes;
mod moves;
mod notices;
mod notify;
mod outcome;
mod own_plans;
mod parameters;
mod plan_cache;
mod planned_tables;
mod planning;
mod portal;
mod prepare_transaction;
mod prepared;
mod presence;
mod read_back;
mod replication;
mod replication_state;
mod role_setting;
mod routine;
mod savepoint;
mod schema_elements;
mod sequence_values;
mod server_setting;
pub mod settings;
mod sink;
mod snapshot;
mod state;
mod statement;
mod temporary;
mod transaction;
mod two_phase;
mod usage;
mod utility;
mod variable;
pub(crate) mod work;

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use cognate_engine::sibling::{Instance, Outcome, Xid};
use cognate_engine::{ReadView, Seat, Transaction};

use crate::budget::Budget;
use crate::ddl::database::undefined_database;
use crate::error::{Result, SqlError};
use crate::expr::Tally;
use crate::parse;
use crate::types::FormatContext;
use facts::Facts;
use interrupt::Interrupts;
use modes::Modes;
use settings::{Effective, Mark, Origin, Settings};
use state::TransactionState;
use work::Work;

pub(crate) use advisory::Shared as AdvisoryShared;
pub use cluster::{Barrier, NodeRow, Nodes, hex};
pub use cursor::{Names, Taken};
pub(crate) use cycle::{dependency_failure, overtaken};
pub use database::SqlDatabase;
pub use documents::verify_catalogs;
pub use failures::Failure;
pub use flow_control::{FlowBounds, FlowCounts, SlowNode};
pub use in_doubt::{Healing, application_servers};
pub use interrupt::CancelHandle;
pub use login::StoredPassword;
pub(crate) use notify::Channels;
pub use notify::Notification;
pub use portal::{CommandTag, CopyFormat, CopyInFormat, Fetch, Portal};
pub(crate) use prepared::{Action, Planned};
pub use prepared::{OutputColumn, Prepared};
pub use read_back::ReadBack;
pub use replication::Company;
pub(crate) use replication::Protocols;
pub use replication_state::{ProtocolRow, ReplicationRow};
pub(crate) use routine::Bodies;
pub use sink::{Format, RowSink, SinkState};
pub(crate) use snapshot::Exports;
pub use statement::Statement;

/// Work of a session under way, in a box. A function that gives one is no future itself, so what
/// hangs on it is compiled once: what a future awaits is compiled wherever that one is, in each
/// crate and in each unit of it.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// What a connection says about itself at start.
#[derive(Clone, Debug, Default)]
pub struct SessionParameters {
    /// Role name: `current_user`.
    pub user: String,
    /// The database by its name; by none, the one that the session is made with.
    pub database: String,
    /// `application_name`.
    pub application_name: String,
    /// Other settings of the startup packet, applied as session defaults. They win over those that
    /// are stored for the role and the database.
    pub options: Vec<(String, String)>,
    /// `pg_backend_pid()`.
    pub process_id: i32,
    /// What the role may do beyond the database.
    pub authority: Authority,
    /// How other sessions end this one; none if nobody can.
    pub orders: Option<Arc<dyn Orders>>,
    /// Where the client is; none if it is not connected over a network.
    pub client: Option<SocketAddr>,
    /// The version of TLS that encrypts the connection, as `TLSv1.3`; none if nothing does.
    pub tls: Option<&'static str>,
}

/// What other sessions may order a session's connection to do. Neither waits for it.
pub trait Orders: std::fmt::Debug + Send + Sync {
    /// Ends the statement that runs, if one does.
    fn cancel(&self);
    /// Ends the session.
    fn terminate(&self);
    /// Ends the session, whose client is told why.
    fn terminate_for(&self, why: SqlError);
}

/// What a role may do beyond the database. Inside it, all may do everything as long as there are no
/// roles; then the roles say what may be done, see `identity`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authority {
    /// Change settings that are the whole server's: the operator, who has the server's files, too.
    /// Whoever embeds the database is one.
    #[default]
    Superuser,
    /// Not that; 42501.
    Ordinary,
}

/// The byte of ReadyForQuery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionStatus {
    /// No block is open (`I`).
    #[default]
    Idle,
    /// In a block (`T`).
    InBlock,
    /// In a block that failed, or that was too late for its family: it takes no statements (`E`).
    Failed,
}

/// Where the session stands between BEGIN and COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// Between transactions.
    None,
    /// A statement outside a block was run, and Sync has not come.
    Implicit,
    /// After BEGIN.
    Explicit,
    /// After BEGIN and an error.
    Failed,
    /// After BEGIN MIP of a family that was decided before: nothing is executed.
    Decided,
}

/// An open transaction.
struct Open {
    engine: Transaction,
    state: TransactionState,
}

/// One connection's session.
pub struct Session {
    database: SqlDatabase,
    facts: Arc<Facts>,
    cancel: CancelHandle,
    /// The right to execute; see the engine's governor.
    seat: Arc<Seat>,
    block: Block,
    modes: Modes,
    open: Option<Open>,
    /// The instance that the block is, also after it has failed.
    sibling: Option<(Xid, Instance)>,
    /// What became of its family, in a block that it was too late for.
    decided: Option<Box<Outcome>>,
    /// Why a block has failed while its client was not asking, until it is told.
    overtaken: Option<SqlError>,
    /// Why it has no savepoints any more, if its transaction was given up meanwhile.
    struck: Option<SqlError>,
    /// Why a COPY, or an implicit transaction of which something is answered, has ended while its
    /// client was not asking.
    lost: Option<SqlError>,
    /// Settings before the transaction.
    settings_mark: Option<Mark>,
    effective: Arc<Effective>,
    format: FormatContext,
    memory_limit: usize,
    interrupts: Arc<Interrupts>,
    notices: Vec<SqlError>,
    counted_notices: notices::Counted,
    statements: HashMap<String, listing::Named>,
    cursors: cursor::Cursors,
    copy: Option<Box<copy::CopyIn>>,
    /// See `commits()`.
    commits: u64,
    /// Transactions begun so far.
    transactions: u64,
    /// Portals bound so far.
    bound: u64,
    /// A savepoint was gone back to, behind which the portals after this one were bound.
    undone_portals: Option<u64>,
    /// A block has ended, and with it the portals up to this one.
    ended_portals: Option<u64>,
    /// The failure was noted where it arose.
    failure_noted: bool,
    /// Since the last Sync a statement was executed at every node, and is committed.
    has_run_active: bool,
    /// What comes next is run again, because others were faster.
    was_refused: bool,
    /// Microseconds of executing the last transaction, before its commit.
    took_us: u64,
    /// By which protocol the last transaction came to the other nodes.
    last_protocol: Option<crate::monitor::Protocol>,
    /// Whether the statement that runs is alone in its transaction.
    company: Company,
    /// Plans are made by what all nodes know.
    plans_alike: bool,
    /// Whether transactions of a class can be executed at every node, by its id, with the catalog
    /// that they were looked at with.
    fit_classes: HashMap<u64, (u64, bool)>,
    /// What the monitor is told of the transaction.
    attempt: replication::Attempt,
    /// The statement that runs opened the transaction.
    opens: bool,
    /// Statements without a plan that DO blocks have executed so far.
    unplanned: u64,
    /// It is run again if a row has gone that may be under another key.
    follows: bool,
    /// Where the rows of its nodes are counted, if they are.
    tally: Option<Arc<Tally>>,
    /// The plan that they are counted of, once it runs.
    counted: Option<Arc<Planned>>,
    _advisory: advisory::Guard,
    _presence: presence::Entry,
    /// Plans that fit this session only, which has temporary objects.
    own_plans: own_plans::OwnPlans,
    /// Who the user is in the present state of the catalog.
    standing: identity::Standing,
    /// After all that may hold something of its transaction.
    _temporary: temporary::Guard,
}

/// Most bytes that one statement may hold for sorts, hash tables and values, whatever the memory
/// budget.
const MEMORY_LIMIT: u64 = 256 << 20;

/// Bytes that one statement may hold with this memory budget.
fn memory_limit(budget: u64) -> usize {
    usize::try_from((budget / 2).min(MEMORY_LIMIT)).unwrap_or(usize::MAX)
}

/// Most named prepared statements of one session.
const STATEMENTS_MAX: usize = 100_000;

impl Session {
    /// A session in the database that the parameters name, with the settings that are stored for
    /// it. Fails if there is no such database, or a startup option is not a valid setting; a stored
    /// one is a warning then, see [`Session::take_notices`].
    pub fn new(server: SqlDatabase, parameters: SessionParameters) -> Result<Session> {
        let database = server.called(&parameters.database)?;
        let mut settings = Session::given_settings(&database, &parameters)?;
        let warnings = role_setting::apply(&mut settings, &database.catalog(), &parameters.user);
        let name = parameters.database.clone();
        let mut session = Session::with_settings(database, parameters, settings);
        if session.database.of(session.database.oid()).is_none() {
            // Who has dropped it meanwhile has ended the sessions that were seen then.
            return Err(undefined_database(&name));
        }
        if let Some(warnings) = warnings {
            session.notices = warnings;
            // What is stored shows in what the session answers.
            session.rest_on_catalog();
        }
        Ok(session)
    }

    /// A session that is no connection's: it executes what another one was asked for. What is
    /// stored for the role was in force there, and does not concern it.
    fn for_another(database: SqlDatabase, parameters: SessionParameters) -> Result<Session> {
        let settings = Session::given_settings(&database, &parameters)?;
        Ok(Session::with_settings(database, parameters, settings))
    }

    /// Settings as far as the connection itself says something of them.
    fn given_settings(database: &SqlDatabase, parameters: &SessionParameters) -> Result<Settings> {
        let mut settings = Settings::new();
        let catalog = database.catalog();
        let has_roles = catalog.has_roles();
        let superuser = identity::begins_as_superuser(&catalog, parameters);
        settings.set_default("session_authorization", &parameters.user, Origin::Fact)?;
        settings.set_default("is_superuser", if superuser { "on" } else { "off" }, Origin::Fact)?;
        settings.set_default(
            "cognate.serializable",
            database.engine().serializable().name(),
            Origin::Fact,
        )?;
        if !parameters.application_name.is_empty() {
            settings.set_option("application_name", &parameters.application_name, Origin::Client)?;
        }
        for (name, value) in &parameters.options {
            if !superuser && settings::is_superusers(name, has_roles) {
                return Err(identity::may_not_set(name));
            }
            settings.set_option(name, value, Origin::Client)?;
        }
        Ok(settings)
    }

    fn with_settings(database: SqlDatabase, parameters: SessionParameters, settings: Settings) -> Session {
        let facts = Arc::new(Facts::new(database.clone(), parameters, settings));
        facts.know_role();
        let presence = presence::Entry::new(&database, &facts);
        let guard = advisory::Guard(facts.clone());
        let temporary = temporary::Guard(facts.clone());
        let effective = facts.effective();
        let cancel = CancelHandle::default();
        let seat = Arc::new(database.engine().governor().seat());
        let limit = memory_limit(database.engine().memory_bytes());
        let mut session = Session {
            facts: facts.clone(),
            interrupts: Arc::new(Interrupts::new(cancel.clone(), seat.clone(), limit)),
            cancel,
            seat,
            block: Block::None,
            modes: Modes {
                isolation: cognate_engine::Isolation::ReadCommitted,
                read_only: false,
                deferrable: false,
            },
            open: None,
            sibling: None,
            decided: None,
            overtaken: None,
            struck: None,
            lost: None,
            settings_mark: None,
            effective,
            format: FormatContext {
                transaction_time: database.now(),
                objects: Some(Arc::new(facts::LiveNames(facts))),
                ..FormatContext::default()
            },
            memory_limit: limit,
            notices: Vec::new(),
            counted_notices: notices::Counted::default(),
            statements: HashMap::new(),
            cursors: cursor::Cursors::default(),
            copy: None,
            commits: 0,
            transactions: 0,
            bound: 0,
            undone_portals: None,
            ended_portals: None,
            failure_noted: false,
            has_run_active: false,
            was_refused: false,
            took_us: 0,
            last_protocol: None,
            company: Company::default(),
            plans_alike: false,
            fit_classes: HashMap::new(),
            attempt: replication::Attempt::default(),
            opens: false,
            unplanned: 0,
            follows: false,
            tally: None,
            counted: None,
            _advisory: guard,
            _presence: presence,
            own_plans: own_plans::OwnPlans::default(),
            standing: identity::Standing::default(),
            _temporary: temporary,
            database,
        };
        session.apply_settings();
        session
    }

    /// A handle to interrupt this session's statements.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// The database.
    pub fn database(&self) -> &SqlDatabase {
        &self.database
    }

    /// Notices and warnings since the last call, oldest first.
    pub fn take_notices(&mut self) -> Vec<SqlError> {
        let least = self.effective.client_min_messages.as_str();
        let mut notices = std::mem::take(&mut self.notices);
        self.counted_notices = notices::Counted::default();
        notices.append(&mut self.facts.take_notices());
        match least {
            "warning" => notices.retain(|notice| notice.severity != crate::Severity::Notice),
            "error" => notices.clear(),
            _ => {}
        }
        notices
    }

    /// Settings to report with ParameterStatus: all reported settings at first, then those that
    /// changed.
    pub fn take_parameter_changes(&mut self) -> Vec<(&'static str, String)> {
        self.facts.with_settings(Settings::take_changes)
    }

    /// How long the server should let the session idle: milliseconds, `None` for ever. In a block
    /// after which 25P03 ends it, else 57P05.
    pub fn idle_timeout_ms(&self) -> Option<u64> {
        let timeout = match self.block {
            Block::None => self.effective.idle_timeout_ms,
            _ => self.effective.idle_in_transaction_timeout_ms,
        };
        (timeout > 0).then_some(timeout)
    }

    /// No transaction is open, not even an implicit one.
    pub fn is_fresh(&self) -> bool {
        self.block == Block::None
    }

    /// How often work of which nothing has been seen may be run again after 40001 and 40P01.
    pub fn retries(&self) -> u32 {
        self.effective.statement_retries
    }

    /// What is not done again: commits, decisions, instances begun, changes of the session for
    /// good.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Rolls back whatever is open, to run the same again.
    pub fn abandon(&mut self) {
        self.database.note_retry();
        self.notices.clear();
        self.counted_notices = notices::Counted::default();
        self.facts.take_notices();
        self.facts.advisory.undo_to(0);
        self.rollback();
        self.note_refused();
    }

    /// The settings by which values are read and printed.
    pub fn format_context(&self) -> &FormatContext {
        &self.format
    }

    /// The statements of a simple query, possibly none. 42601 with position.
    pub fn split(&self, text: &str) -> Result<Vec<Statement>> {
        self.begin_statement();
        interrupt::step_aside_for(text);
        parse::parse_within(text, || self.limits())
    }

    /// What reading a long text may take.
    fn limits(&self) -> parse::Limits {
        // How much others leave differs from node to node, and what all execute must not.
        let budget = match self.facts.fixed() {
            Some(_) => Budget::new(usize::MAX),
            None => Arc::clone(self.database.statement_budget()),
        };
        parse::Limits { budget, interrupt: self.interrupts() }
    }

    /// Takes over settings that a statement may have changed.
    fn refresh_settings(&mut self) {
        let effective = self.facts.effective();
        if !Arc::ptr_eq(&effective, &self.effective) {
            self.effective = effective;
            self.standing = identity::Standing::default();
            self.apply_settings();
        }
    }

    fn apply_settings(&mut self) {
        self.format.time_zone = self.effective.time_zone;
        self.format.date_style = self.effective.date_style;
        self.format.interval_style = self.effective.interval_style;
        self.format.date_order = self.effective.date_order;
        self.format.extra_float_digits = self.effective.extra_float_digits;
        self.format.bytea_output = self.effective.bytea_output;
        self.format.quote_all = self.effective.quote_all;
    }

    /// A statement begins: from now on its time goes.
    fn begin_statement(&self) {
        self.interrupts.begin(self.effective.statement_timeout_ms, self.effective.lock_timeout_ms);
    }

    /// What may interrupt the statement that goes on now, or begins.
    fn interrupts(&self) -> Arc<Interrupts> {
        self.interrupts.resume(self.effective.statement_timeout_ms, self.effective.lock_timeout_ms);
        self.interrupts.clone()
    }

    /// What a running statement works with. The transaction must be open.
    fn work<'a>(&'a mut self, interrupts: &'a Arc<Interrupts>) -> Result<Work<'a>> {
        self.work_at(interrupts, None)
    }

    /// The same, reading what a view shows that there is already.
    fn work_at<'a>(
        &'a mut self,
        interrupts: &'a Arc<Interrupts>,
        view: Option<&'a ReadView>,
    ) -> Result<Work<'a>> {
        let statement_time = self.facts.now();
        let open = self.open.as_mut().ok_or_else(|| SqlError::internal("no transaction is open"))?;
        let catalog = open.state.catalog.over(self.database.catalog());
        self.facts.set_catalog(&catalog);
        Ok(Work {
            database: &self.database,
            facts: &self.facts,
            view: view.map_or_else(|| Cow::Owned(open.engine.view()), Cow::Borrowed),
            engine: &mut open.engine,
            state: &mut open.state,
            format: &self.format,
            statement_time,
            interrupts,
            notices: &mut self.notices,
            catalog,
            tally: self.tally.clone(),
        })
    }
}
