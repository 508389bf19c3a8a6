//! What a session knows of the cluster that its database is a node of: the view of the nodes,
//! tokens by which a client finds its own writes at another node, digests and outcomes.
//!
//! The SQL layer does not know how nodes reach each other. Whoever does ([`Nodes`] is filled by the
//! server) tells it what there is to be shown, and whether this node may accept writes.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use cognate_engine::{Access, Commit, Csn, Error as EngineError, Isolation, Transaction};
use sqlparser::ast;
use tokio::sync::watch;

use super::alike::Defects;
use super::cycle::is_overtaken;
use super::flow_control::{FlowBounds, FlowControl, FlowCounts, SlowNode};
use super::governed::executes;
use super::interrupt::step_aside_for_request;
use super::outcome::{Asked, fitting_name, unanswered};
use super::{Action, Boxed, Prepared, Session, SqlDatabase};
use crate::blocking::aside;
use crate::error::{Result, SqlError, sqlstate};
use crate::monitor::Finished;
use crate::parse::{Command, Statement};

/// How long a COMMIT waits for its place in the order.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(15);
/// What a token names comes to a node so soon, mostly; then it is asked whether there is such a
/// thing.
const DOUBT: Duration = Duration::from_secs(1);
/// The longest name of a request, in bytes.
pub(super) const REQUEST_ID_MAX: usize = 256;
const COMMIT_TOKEN: &str = "cognate.commit_token";

/// A row of `cognate_nodes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRow {
    /// Its number.
    pub node: u16,
    /// Where the others reach it.
    pub address: String,
    /// `leader`, `follower` or `learner`.
    pub role: Option<&'static str>,
    /// `serving`, `catching_up`, `minority`, `diverged` or `stopping`.
    pub state: Option<&'static str>,
    /// The last position that it has applied.
    pub applied: Option<u64>,
    /// The last position that it knows to be settled.
    pub committed: Option<u64>,
    /// What it lacks, in bytes of settled requests: what it has not got, and what it has not
    /// applied.
    pub lag_bytes: Option<u64>,
    /// For how long it has lacked it, in milliseconds.
    pub lag_ms: Option<u64>,
    /// The last position of which its digest is known.
    pub digest_position: Option<u64>,
    /// That digest.
    pub digest: Option<String>,
    /// Why it is not serving.
    pub reason: Option<String>,
}

/// Asks a majority how far the order is: everything that anybody was told before is at or below the
/// position that is answered. Or why nobody can say.
pub type Barrier =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = std::result::Result<Csn, String>> + Send>> + Send + Sync>;

/// What the server tells of the cluster.
#[derive(Default)]
pub struct Nodes {
    barrier: OnceLock<Barrier>,
    id: OnceLock<String>,
    rows: ArcSwap<Vec<NodeRow>>,
    /// Why this node accepts no writes, if it does not.
    closed: ArcSwap<Option<String>>,
    /// Why nothing comes to this node any more.
    left: OnceLock<String>,
    /// In what this node differs from the others, if it does.
    pub(super) differs: OnceLock<String>,
    pub(super) defects: Defects,
    pub(super) damaged: OnceLock<String>,
    has_left: watch::Sender<bool>,
    /// Whether this node hears no majority, and has not for so long that nobody waits any more.
    cut_off: watch::Sender<bool>,
    /// The same: each statement that only reads asks.
    is_cut_off: AtomicBool,
    pub(super) flow: FlowControl,
}

impl Nodes {
    /// Which cluster it is, once that is known.
    pub fn identify(&self, id: String) {
        // The first one stays: a node does not change its cluster while it runs.
        let _ = self.id.set(id);
    }

    /// The token of a position, once it is known which cluster this is.
    pub(super) fn token(&self, position: Csn) -> Option<String> {
        self.id.get().map(|id| format!("{id}/{position}"))
    }

    /// How to ask how far the order is.
    pub fn ask_by(&self, barrier: Barrier) {
        // The first one stays, as the cluster does.
        let _ = self.barrier.set(barrier);
    }

    /// The nodes as they are now.
    pub fn show(&self, rows: Vec<NodeRow>) {
        self.rows.store(Arc::new(rows));
    }

    /// This node accepts no writes, for this reason, or does again.
    pub fn close(&self, reason: Option<String>) {
        if **self.closed.load() != reason {
            self.closed.store(Arc::new(reason));
        }
    }

    /// This node hears no majority, for so long that nobody is to wait for one; or it does again.
    pub fn cut_off(&self, is_cut_off: bool) {
        self.is_cut_off.store(is_cut_off, Ordering::Relaxed);
        self.cut_off.send_if_modified(|before| std::mem::replace(before, is_cut_off) != is_cut_off);
    }

    /// Resolves as soon as nobody is to wait for a majority here.
    async fn until_cut_off(&self) {
        let mut cut_off = self.cut_off.subscribe();
        if cut_off.wait_for(|is_cut_off| *is_cut_off).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Nothing is applied here any more: this node goes on after it was started again, if it does.
    pub fn leave(&self, reason: String) {
        // The first reason is the cause of others.
        let _ = self.left.set(reason);
        self.has_left.send_replace(true);
    }

    /// Resolves to the reason once nothing is applied here any more.
    async fn until_left(&self) -> String {
        let mut has_left = self.has_left.subscribe();
        let is_told = has_left.wait_for(|has_left| *has_left).await.is_ok();
        match self.left.get().filter(|_| is_told) {
            Some(reason) => reason.clone(),
            None => std::future::pending().await,
        }
    }

    /// Whether the order answers nobody here: it hears no majority, or nothing is applied.
    pub fn is_alone(&self) -> bool {
        self.is_cut_off.load(Ordering::Relaxed) || self.left.get().is_some()
    }

    /// Resolves as soon as that is so.
    pub(super) async fn until_alone(&self) {
        tokio::select! {
            () = self.until_cut_off() => {}
            _ = self.until_left() => {}
        }
    }

    /// When who writes waits for slow nodes.
    pub fn configure_flow(&self, bounds: FlowBounds) {
        self.flow.configure(bounds);
    }

    /// Who writes waits for this node from now on, or for none.
    pub fn wait_for(&self, slow: Option<SlowNode>) {
        self.flow.set_slow(slow);
    }

    /// The node that who writes waits for, and how often somebody has.
    pub fn flow(&self) -> (Option<SlowNode>, FlowCounts) {
        (self.flow.slow(), self.flow.counts())
    }

    /// The nodes as they were shown last.
    pub fn rows(&self) -> Vec<NodeRow> {
        self.rows.load().as_ref().clone()
    }

    /// Why this node accepts no writes, if it does not.
    pub fn closed(&self) -> Option<String> {
        let stays_so = || self.left.get().or_else(|| self.differs.get()).cloned();
        self.closed.load().as_ref().clone().or_else(stays_so)
    }

    /// 25006 if this node accepts no writes.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.closed() {
            None => Ok(()),
            Some(reason) => Err(closed(&reason)),
        }
    }

    /// 25006 for who has waited for the order for too long.
    pub(crate) fn no_answer() -> SqlError {
        closed("The cluster does not answer. What was asked for may happen yet.")
    }
}

impl Session {
    /// 25006 if this node hears no majority: what is written here could not be committed.
    pub(super) fn check_majority(&self) -> Result<()> {
        // Whose turn it is has been ordered.
        if !self.database.engine().is_node() || self.is_ordered() {
            return Ok(());
        }
        self.database.nodes().check_open()
    }

    /// Who was overtaken, as its failure, if that is not what it failed of: from there on its locks
    /// have kept nobody out, and what it has read need not even fit together, such as rows that
    /// another node has rewritten under a table that was locked. Also if it is what it failed of:
    /// then it is told where.
    pub(super) fn overtaken_instead(&self, failure: &SqlError) -> Option<SqlError> {
        let open = self.open.as_ref().filter(|_| self.sibling.is_none())?;
        let overtaken = open.engine.check_member().err()?;
        let is_asked_for = ["40", "57", "08"].iter().any(|class| failure.sqlstate.starts_with(class));
        (!is_asked_for || is_overtaken(failure)).then(|| self.name_failure(overtaken))
    }

    /// Waits until what a statement is to see can be seen here, before its snapshot is taken: every
    /// statement that may be the first to have one asks for this, a savepoint as well as a query.
    pub(super) async fn await_reads(&mut self) -> Result<()> {
        // Whose turn it is sees what was ordered before, and nothing else.
        if self.is_ordered() {
            return Ok(());
        }
        if !self.effective.read_after.is_empty() {
            self.await_token().await?;
        }
        if self.effective.linearizable_reads {
            self.await_newest().await?;
        }
        Ok(())
    }

    /// Whether the next statement looks with the snapshot that there is. An instance is begun
    /// without one, and at READ COMMITTED each statement takes its own.
    fn has_snapshot(&self) -> bool {
        let has_begun = self.open.as_ref().is_some_and(|open| !open.state.begun_ahead);
        has_begun && self.modes.isolation != Isolation::ReadCommitted
    }

    /// Waits until what `cognate.read_after` names can be seen here.
    async fn await_token(&mut self) -> Result<()> {
        if self.has_snapshot() {
            return Ok(());
        }
        let position = position_of(&self.database, &self.effective.read_after)?;
        if self.database.engine().applied() >= position {
            return Ok(());
        }
        let (database, interrupts) = (self.database.clone(), self.interrupts());
        interrupts.wait(until_token_seen(&database, position)).await
    }

    /// With `cognate.read_consistency = linearizable`, waits until this node has everything that
    /// anybody was told to be committed, before a snapshot is taken.
    ///
    /// # Errors
    /// 25006 if no majority can say how far that is; what interrupts the wait.
    pub(super) async fn await_newest(&mut self) -> Result<()> {
        let database = self.database.clone();
        let barrier = database.nodes().barrier.get().filter(|_| !self.has_snapshot());
        let Some(barrier) = barrier else { return Ok(()) };
        let interrupts = self.interrupts();
        let newest = async {
            let position = barrier().await.map_err(|why| {
                SqlError::new(sqlstate::READ_ONLY_SQL_TRANSACTION, "nobody can say what is newest")
                    .with_detail(why)
                    .with_hint("SET cognate.read_consistency = local reads what this node has.")
            })?;
            until_seen(&database, position).await
        };
        interrupts.wait(newest).await
    }

    /// Before `cognate_outcome`: waits, for a bounded time, for what is ordered, so that *unknown*
    /// means: not ordered yet. Where nobody says how far that is, this node answers as it is.
    pub(super) async fn await_ordered(&mut self) -> Result<()> {
        let database = self.database.clone();
        let nodes = database.nodes();
        let is_asked = !nodes.is_alone() && !self.is_ordered();
        let Some(barrier) = nodes.barrier.get().filter(|_| is_asked) else { return Ok(()) };
        let ordered = async {
            let position = barrier().await.ok()?;
            until_seen(&database, position).await.ok()
        };
        let bounded = async {
            tokio::select! {
                _ = tokio::time::timeout(ANSWER_MAX, ordered) => Ok::<(), SqlError>(()),
                () = nodes.until_alone() => Ok(()),
            }
        };
        self.interrupts().wait(bounded).await
    }

    /// Whether statements are to see what another node has committed.
    pub fn reads_after(&self) -> bool {
        !self.effective.read_after.is_empty() || self.effective.linearizable_reads
    }

    /// A statement was refused before it ran. It may be about what `cognate.read_after` names, or
    /// what is newest, and this node had not seen when it looked: then waits for that, and the
    /// statement is to be tried again. By now the node may have seen it; that changes nothing.
    ///
    /// # Errors
    /// The refusal, if it stands; what interrupts the wait.
    pub async fn look_again(&mut self, refusal: SqlError) -> Result<()> {
        if self.has_snapshot() {
            return Err(refusal);
        }
        if self.effective.linearizable_reads && self.database.engine().is_node() {
            return self.await_newest().await;
        }
        match position_of(&self.database, &self.effective.read_after) {
            Ok(position) if position > 0 => self.await_token().await,
            _ => Err(refusal),
        }
    }

    /// A statement was prepared, and its client is told of its columns and parameters before it
    /// runs. If that is what they were before `cognate.read_after`, it would be refused when it
    /// runs: so it is prepared anew once this node has seen that.
    ///
    /// # Errors
    /// Those of the text; what interrupts the wait.
    pub async fn prepare_as_seen(
        &mut self,
        prepared: Arc<Prepared>,
        text: &str,
        parameter_oids: &[u32],
    ) -> Result<Arc<Prepared>> {
        let is_planned = !matches!(prepared.planned().action, Action::Utility | Action::Empty);
        let token = &self.effective.read_after;
        if !is_planned || token.is_empty() || self.has_snapshot() {
            return Ok(prepared);
        }
        // What is wrong with a token is said when the statement runs.
        let applied = self.database.engine().applied();
        if position_of(&self.database, token).is_ok_and(|position| position > applied) {
            self.await_token().await?;
            return self.prepare(text, parameter_oids);
        }
        Ok(prepared)
    }

    /// SET. A role that is not known here may have been made by what is to be seen.
    pub(super) async fn set_as_seen(&mut self, set: &ast::Set, statement: &Statement) -> Result<()> {
        let is_of_role = matches!(set, ast::Set::SetRole { .. } | ast::Set::SetSessionAuthorization(_));
        let refusal = match self.set(set, statement) {
            Err(refusal) if is_of_role && self.reads_after() => refusal,
            done => return done,
        };
        self.look_again(refusal).await?;
        let (catalog, _) = self.catalog_with_state();
        self.facts.set_catalog(&catalog);
        self.set(set, statement)
    }

    /// Commits at a node: waits until its place in the order is known, for a bounded time. `None`:
    /// it has only read, and has no place.
    #[inline(never)]
    pub(super) fn commit_at_node(&mut self, engine: Transaction) -> Boxed<'_, Option<Commit>> {
        Box::pin(self.commit_at_node_here(engine))
    }

    async fn commit_at_node_here(&mut self, mut engine: Transaction) -> Result<Option<Commit>> {
        let has_writes = engine.has_writes();
        // What has only read leaves the name that its client gives to what writes.
        let name = if has_writes { self.name_request(&mut engine)? } else { engine.id().to_string() };
        if has_writes {
            self.check_is_here("COMMIT")?;
            // It may have begun before this node lost its majority, or differed from the others.
            self.check_majority()?;
        }
        let goes_on = self.reads_on(&engine).then(|| self.database.clone());
        // What is asked of the order there only comes back, or never does.
        if goes_on.as_ref().is_some_and(|database| database.nodes().is_alone()) && !engine.is_free_to_read() {
            return Ok(self.end_unjudged());
        }
        let (protocol, replication) = self.protocol();
        let finished = self.finished(Some(&engine), protocol);
        step_aside_for_request(engine.request_bytes());
        let before = self.database.now();
        let mut asked = Box::pin(self.send_ahead(engine).await?.commit_by(replication));
        let committed = tokio::select! {
            biased;
            committed = self.in_order(Asked::Request(&name), asked.as_mut()) => committed,
            () = until_alone(goes_on.as_ref()), if goes_on.is_some() => Ok(Err(EngineError::NotOrdered)),
        };
        let committed = match committed {
            Ok(Err(EngineError::NotOrdered)) if goes_on.is_some() => return Ok(self.end_unjudged()),
            Ok(committed) => committed,
            Err(unknown) => {
                self.say_later(asked);
                return Err(unknown);
            }
        };
        if has_writes {
            let in_order = self.database.now().saturating_sub(before).max(0).unsigned_abs();
            let vote_us = committed.as_ref().map_or(0, |commit| commit.vote_wait.as_micros() as u64);
            self.note_protocol(&Finished {
                committed: committed.is_ok(),
                conflict: Some(committed.as_ref().is_err_and(EngineError::is_retryable)),
                order_us: in_order.saturating_sub(vote_us),
                vote_us,
                ..finished
            });
        }
        committed.map(Some).map_err(|error| self.name_failure(error))
    }

    /// Whether a transaction ends at a node that hears no majority, too: with
    /// `cognate.read_consistency = local`, a statement that only reads, and whoever said so with
    /// READ ONLY. What others read was to be judged with what they might have written.
    fn reads_on(&self, engine: &Transaction) -> bool {
        let is_judged = engine.isolation() == Isolation::Serializable && !engine.has_writes();
        is_judged && engine.access() == Access::ReadOnly && !self.effective.linearizable_reads
    }

    /// Ends a transaction that has read what one moment of the order has, where nobody can say
    /// whether that goes with what others are about to do. Its client is told so.
    #[cold]
    fn end_unjudged(&mut self) -> Option<Commit> {
        let why = match self.database.nodes().left.get() {
            Some(_) => "nothing comes to this node any more",
            None => "this node has no way to a majority",
        };
        let told = format!("{why}: what was read is of one snapshot, and not judged further");
        self.notices.push(SqlError::warning(sqlstate::WARNING, told));
        None
    }

    /// What the request of a transaction that ends is called.
    pub(super) fn name_request(&self, engine: &mut Transaction) -> Result<String> {
        let Some(given) = self.given_name()? else { return Ok(engine.id().to_string()) };
        engine.name_request(&given);
        Ok(given)
    }

    /// The same, if the client has said so. 22023 if that is too long.
    pub(super) fn given_name(&self) -> Result<Option<String>> {
        fitting_name(&self.effective.request_id)
    }

    /// Waits for the answer to what this node asks the order of all nodes, for a bounded time.
    /// 08007 afterwards: nobody knows yet what becomes of it. At a database of its own the answer
    /// is there.
    pub(super) async fn in_order<T>(
        &mut self,
        what: Asked<'_>,
        asked: impl Future<Output = std::result::Result<T, EngineError>>,
    ) -> Result<std::result::Result<T, EngineError>> {
        if !self.database.engine().is_node() {
            return Ok(asked.await);
        }
        // Who waits for others executes nothing.
        self.seat.leave();
        let since = self.database.engine().applied();
        let answer = tokio::time::timeout(ANSWER_MAX, asked).await;
        answer.map_err(|_| unanswered(&self.database, what, since))
    }

    /// As `keep_token`; nothing in a database of its own.
    pub(super) fn keep_token_at_node(&mut self, csn: Csn) {
        if self.database.engine().is_node() {
            self.keep_token(csn);
        }
    }

    /// A commit has its place: what other nodes are asked to wait for.
    pub(super) fn keep_token(&mut self, csn: Csn) {
        let Some(token) = self.database.nodes().token(csn) else { return };
        self.facts.with_settings(|settings| {
            if let Err(error) = settings.set_fact(COMMIT_TOKEN, &token) {
                tracing::warn!(%error, "the token of a commit could not be kept");
            }
        });
    }
}

/// Whether a statement without a plan looks at what there is, by a snapshot or by names. A cursor
/// that goes on looks no more: it has what it was declared with.
pub(super) fn looks(command: &Command) -> bool {
    match command {
        Command::Fetch { .. } | Command::Maintenance { command: "CHECKPOINT", .. } => false,
        Command::Sql(sql) if matches!(sql.as_ref(), ast::Statement::Prepare { .. }) => true,
        command => executes(command),
    }
}

fn closed(reason: &str) -> SqlError {
    SqlError::new(sqlstate::READ_ONLY_SQL_TRANSACTION, "this node accepts no writes at present")
        .with_detail(reason)
        .with_hint("Connect to a node that is with the majority: see cognate_nodes.")
}

/// Resolves as soon as nobody is to wait for the order at a node, if there is one to look at.
async fn until_alone(database: Option<&SqlDatabase>) {
    match database {
        Some(database) => database.nodes().until_alone().await,
        None => std::future::pending().await,
    }
}

/// Waits until a position can be seen here. 25006 if it never will be, or not before this node
/// hears a majority again.
pub(super) async fn until_seen(database: &SqlDatabase, position: Csn) -> Result<()> {
    tokio::select! {
        biased;
        seen = database.engine().wait_applied(position) => seen.map_err(SqlError::from),
        () = database.nodes().until_cut_off() => Err(SqlError::new(
            sqlstate::READ_ONLY_SQL_TRANSACTION,
            "what is to be seen does not come to this node at present",
        )
        .with_detail(database.nodes().closed().unwrap_or_default())
        .with_hint("Connect to a node that is with the majority: see cognate_nodes.")),
        reason = database.nodes().until_left() => Err(SqlError::new(
            sqlstate::READ_ONLY_SQL_TRANSACTION,
            "what is to be seen does not come to this node any more",
        )
        .with_detail(reason)
        .with_hint("Connect to another node: see cognate_nodes.")),
    }
}

/// The same of what a token names. 22023 if it names what was never ordered, and so no commit of
/// this cluster: nobody knows when that comes, if it ever does.
async fn until_token_seen(database: &SqlDatabase, position: Csn) -> Result<()> {
    let mut seen = pin!(until_seen(database, position));
    if let Ok(seen) = tokio::time::timeout(DOUBT, seen.as_mut()).await {
        return seen;
    }
    check_ordered(database, position, "cognate.read_after").await?;
    seen.await
}

/// 22023 if a majority says that nothing has a position yet which a token names. Where nobody
/// answers, the token may be right.
pub(super) async fn check_ordered(database: &SqlDatabase, position: Csn, by: &str) -> Result<()> {
    if let Some(barrier) = database.nodes().barrier.get()
        && let Ok(newest) = barrier().await
        && newest < position
    {
        let what = format!("{by} names position {position}, which nothing has in this cluster");
        let detail = format!("The last position is {newest}.");
        return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, what).with_detail(detail));
    }
    Ok(())
}

/// The position that a token of this cluster names.
pub(super) fn position_of(database: &SqlDatabase, token: &str) -> Result<Csn> {
    let refused = |what: String| SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, what);
    let (id, position) = token
        .split_once('/')
        .and_then(|(id, position)| Some((id, position.parse().ok()?)))
        .ok_or_else(|| refused(format!("invalid value for parameter \"cognate.read_after\": \"{token}\"")))?;
    match database.nodes().id.get() {
        Some(own) if own == id => Ok(position),
        Some(_) => Err(refused("the token of cognate.read_after is of another cluster".to_owned())),
        None => Err(refused("cognate.read_after needs a node of a cluster".to_owned())),
    }
}

/// `cognate_digest(position)`.
pub(super) fn digest(database: &SqlDatabase, position: i64) -> Option<String> {
    let position = u64::try_from(position).ok()?;
    let digest = aside(|| database.engine().digest_at(position))?;
    Some(hex(&digest))
}

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
