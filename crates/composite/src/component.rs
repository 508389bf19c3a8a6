//! A component: a name, a local database, services, and how these stand to each other.
//!
//! Its start takes the component over from whoever had it, reads slots and journal, takes up what
//! was left, and only then answers calls.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use cognate_env::RealDisk;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;

use crate::branch::Branch;
use crate::database::{Connection, Pool, Target};
use crate::fault;
use crate::hold::{self, Hold};
use crate::http;
use crate::journal::{Found, Journal};
use crate::kit::Kit;
use crate::matrix::{Line, Matrix};
use crate::name::Name;
use crate::node::Node;
use crate::options::Options;
use crate::participant::{Arrival, Origin, Participant, Remembered, SlotFacts};
use crate::peers::Peers;
use crate::service::{Erased, Handler, Service};
use crate::sessions::{application_name, is_earlier_at_work, pool};
use crate::slots::{Row, Slots, Taken, fenced, take_over};
use crate::tls::{Tls, untrusting};
use crate::wire::DEADLINE_MAX;

/// How often a start waits for locks that a statement for its tables needs.
const SET_UP_ATTEMPTS: u32 = 5;

/// Connections to the local database, if nothing else is said.
const CONNECTIONS: usize = 24;

/// Why a component does not start: one message for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("component {component}: {why}")]
pub struct StartError {
    component: String,
    why: String,
}

/// A component that is being put together.
pub struct Component {
    name: String,
    database: String,
    data: Option<PathBuf>,
    services: Vec<(&'static str, Erased)>,
    lines: Vec<Line>,
    peers: Vec<(String, String)>,
    setup: Vec<String>,
    tokens: http::Tokens,
    tls: Option<Tls>,
    connections: usize,
    options: Options,
}

impl Component {
    /// A component of this name, which is how others find it.
    pub fn named(name: &str) -> Component {
        Component {
            name: name.to_owned(),
            database: String::new(),
            data: None,
            services: Vec::new(),
            lines: Vec::new(),
            peers: Vec::new(),
            setup: Vec::new(),
            tokens: http::Tokens::default(),
            tls: None,
            connections: CONNECTIONS,
            options: Options {
                lock_wait: Duration::from_millis(200),
                answers_kept: Duration::from_secs(24 * 3600),
                undo_within: DEADLINE_MAX,
                answers_after_commits: false,
            },
        }
    }

    /// Its local database: `embedded:DIR` or `postgresql://…`.
    pub fn database(mut self, url: &str) -> Component {
        self.database = url.to_owned();
        self
    }

    /// The folder of its journal. It may be that of an embedded database.
    pub fn data(mut self, folder: impl Into<PathBuf>) -> Component {
        self.data = Some(folder.into());
        self
    }

    /// Statements that make its tables, executed at each start, one after the other.
    pub fn setup<S: Into<String>>(mut self, statements: impl IntoIterator<Item = S>) -> Component {
        self.setup.extend(statements.into_iter().map(Into::into));
        self
    }

    /// Offers a service.
    pub fn serve<A, R>(mut self, service: Service<A, R>, handler: Handler<A>) -> Component
    where
        A: DeserializeOwned + Clone + Send + Sync + 'static,
    {
        self.services.push((service.component(), handler.erase(service.name())));
        self
    }

    /// Says how services stand to each other; what nothing is said about conflicts.
    pub fn conflicts(mut self, lines: impl IntoIterator<Item = Line>) -> Component {
        self.lines.extend(lines);
        self
    }

    /// Where another component is: `http://host:port`, or `https`.
    pub fn peer(mut self, name: &str, address: &str) -> Component {
        self.peers.push((name.to_owned(), address.to_owned()));
        self
    }

    /// What other components, and what clients, have to show. Without tokens anybody on this
    /// machine may do anything.
    pub fn tokens(mut self, tokens: http::Tokens) -> Component {
        self.tokens = tokens;
        self
    }

    /// Calls peers at `https` addresses with these certificates. To take calls by TLS, serve it on
    /// [`Tls::listen`].
    pub fn tls(mut self, tls: Tls) -> Component {
        self.tls = Some(tls);
        self
    }

    /// How long a call waits for a conflicting lock before it is answered 409; by default 200 ms.
    pub fn lock_wait(mut self, wait: Duration) -> Component {
        self.options.lock_wait = wait;
        self
    }

    /// How long one attempt to undo a call may take before it is given up and made again; by
    /// default 60 s, the longest time that a root has.
    pub fn undo_within(mut self, within: Duration) -> Component {
        self.options.undo_within = within;
        self
    }

    /// How long an answer is kept for its idempotency key; by default 24 hours. A request with the
    /// same key is another one afterwards.
    pub fn answers_kept(mut self, time: Duration) -> Component {
        self.options.answers_kept = time;
        self
    }

    /// Answers no call before its local transaction is committed: for a component whose tables its
    /// callers use, too.
    ///
    /// Without this a call of another component may be answered while its COMMIT is under way.
    /// Calls that conflict with it wait for that, and so does the vote. SQL of a caller's own in
    /// the same tables does not: it may miss what the call has done, or meet its row locks; and a
    /// constraint that is looked at only at COMMIT may wait for the caller, who waits for the vote.
    pub fn answers_after_commits(mut self) -> Component {
        self.options.answers_after_commits = true;
        self
    }

    /// Most connections to the local database.
    pub fn connections(mut self, most: usize) -> Component {
        self.connections = most;
        self
    }

    /// Starts it: returns once calls are answered.
    ///
    /// # Errors
    /// In words, whatever keeps it from starting.
    pub async fn start(self) -> Result<Running, StartError> {
        let component = self.name.clone();
        self.start_inner().await.map_err(|why| StartError { component, why })
    }

    /// Its services in the test kit, on its database: `state` are the queries whose rows are
    /// compared.
    ///
    /// # Errors
    /// As [`Component::start`].
    pub async fn kit<S: Into<String>>(
        mut self,
        state: impl IntoIterator<Item = S>,
    ) -> Result<Kit, StartError> {
        let component = self.name.clone();
        let state = state.into_iter().map(Into::into).collect();
        let prepared = async {
            let (services, matrix) = self.declared()?;
            let target = Target::open(&self.database).await?;
            let pool = Pool::new(target, application_name(&self.name, 0), 1);
            let lease = pool.take().await.map_err(|problem| problem.to_string())?;
            for statement in &self.setup {
                lease.batch(statement).await.map_err(|error| crate::database::in_words(&error))?;
            }
            lease.give_back();
            Ok((services, matrix, pool))
        };
        let (services, matrix, pool) = prepared.await.map_err(|why| StartError { component, why })?;
        Ok(Kit::new(services, matrix, pool, state))
    }

    /// The services, and how they stand to each other.
    fn declared(&mut self) -> Result<(Vec<Erased>, Arc<Matrix>), String> {
        for (of, service) in &self.services {
            if *of != self.name {
                return Err(format!("{} is a service of {of}", service.declared.name));
            }
        }
        let services: Vec<Erased> =
            std::mem::take(&mut self.services).into_iter().map(|(_, service)| service).collect();
        let declared = services.iter().map(|service| service.declared.clone()).collect();
        let matrix = Matrix::new(declared, &self.lines).map_err(|error| error.to_string())?;
        Ok((services, Arc::new(matrix)))
    }

    /// The components that it has been told of.
    fn known(&self, name: Name) -> Result<Peers, String> {
        let trusted = match &self.tls {
            Some(tls) => tls.trusted(),
            None => untrusting()?,
        };
        let peers = Peers::new(name, self.tokens.peer.as_deref(), trusted)?;
        for (peer, address) in &self.peers {
            peers.set(Name::new(peer).map_err(|error| error.to_string())?, address)?;
        }
        Ok(peers)
    }

    async fn start_inner(mut self) -> Result<Running, String> {
        fault::arm()?;
        if self.tokens.peer.is_some() && self.tokens.peer == self.tokens.client {
            return Err("components and clients have one token: every client would be a component".to_owned());
        }
        let name = Name::new(&self.name).map_err(|error| error.to_string())?;
        let (services, matrix) = self.declared()?;
        let peers = Arc::new(self.known(name.clone())?);
        let folder = self.data.as_ref().ok_or("no folder is given for the journal")?;
        let (folder, mut holds) = (journal_folder(&self.database, folder), Vec::new());
        if let Some(its) = self.database.strip_prefix("embedded:").filter(|its| !its.is_empty()) {
            holds.push(Hold::take_database(&self.name, Path::new(its)).await?);
        }
        let target = Target::open(&self.database).await?;
        let starting = Pool::new(target.clone(), application_name(&self.name, 0), 1);
        let lease = starting.take().await.map_err(|problem| problem.to_string())?;
        check_durability(&lease).await?;
        if services.iter().any(|service| service.declared.is_closed()) {
            crate::branch::check_database(&lease).await?;
        }
        let left = set_up_first(&lease, &self.name, &self.setup).await?;
        // As late as may be: a start that fails before has ended nobody.
        holds.push(Hold::take(&self.name, &folder).await?);
        let opening = tokio::task::spawn_blocking(move || Journal::open(Arc::new(RealDisk), &folder));
        let opened = opening.await.map_err(|e| e.to_string())?;
        let (journal, mut found) = opened.map_err(|e| e.to_string())?;
        fault::point("start-journal-opened");
        let mut taken = take_over(&lease, &self.name).await?;
        set_up_rest(&lease, &self.name, left).await?;
        let is_journal_whole = is_journal_whole(&self.name, &taken, &found);
        rows_of_branches(&mut taken, &found)?;
        // Of another journal, or of one that is older than the last process, nothing follows.
        found.promised.take_if(|(said_by, _)| !is_journal_whole || *said_by + 1 != taken.generation);
        let id = found.id.clone();
        let slots = Slots::new(&self.name, &taken);
        let pool = pool(target, &self.name, (taken.generation, taken.is_postgresql), self.connections);
        let origins: Vec<_> =
            found.votes.iter().map(|vote| (vote.root.clone(), vote.origins.clone())).collect();
        let remembered = remembered(&taken.rows, found, &matrix)?;
        let (participant, effects) = Participant::recover(Arc::clone(&matrix), taken.generation, remembered);
        // Before the database names it: what it says of another component's roots must not count.
        let quiet = journal.quiet(taken.generation, participant.promised());
        quiet.map_err(|error| error.to_string())?.await.map_err(|error| error.to_string())?;
        if !is_journal_whole || taken.journal.is_none() {
            agree(&lease, (&self.name, taken.generation), &journal, id).await?;
        }
        fault::point("start-recovered");
        drop(lease);
        peers.begin(Origin { database: taken.database.clone(), generation: taken.generation });
        let node = Node::new(name, services, pool, slots, journal, peers, self.options, participant);
        {
            let mut core = node.core();
            core.origins.extend(origins);
            for Row { slot, root, facts, .. } in taken.rows {
                core.called_from(&root, &facts);
                let deadline = Instant::now() + Duration::from_millis(facts.deadline_ms);
                core.time(&root, deadline);
                core.facts.entry(root).or_default().insert(facts.call.clone(), (slot, facts));
            }
        }
        hold::keep(holds, Arc::downgrade(&node));
        node.begin(&effects);
        fault::point("start-begun");
        tracing::info!("component {} of generation {}:\n{matrix}", self.name, taken.generation);
        Ok(Running { node, matrix, tokens: self.tokens })
    }
}

/// Runs the statements that are given for the tables, or those of them before the first one that
/// waits for a lock which a local transaction of an earlier process may have. That one ends when
/// the component is taken over: answers what is left to be run then. Whatever else is in the way
/// would still be there, and the earlier process at work no more; so it is waited for here, within
/// a bound, and a start that fails by it has ended nobody.
async fn set_up_first<'a>(
    connection: &Connection,
    name: &str,
    statements: &'a [String],
) -> Result<&'a [String], String> {
    let words = |error: tokio_postgres::Error| crate::database::in_words(&error);
    let mut left = statements;
    for _ in 0..SET_UP_ATTEMPTS {
        left = set_up(connection, name, left).await?;
        if left.is_empty() || is_earlier_at_work(connection, name).await.map_err(words)? {
            return Ok(left);
        }
    }
    none_left(left).map(|()| left)
}

/// Runs the statements that are given for the tables. One that waits for what a prepared call
/// holds is left out: that its tables are locked says that they are there. Answers those from the
/// first one on that others keep waiting for too long.
async fn set_up<'a>(
    connection: &Connection,
    name: &str,
    statements: &'a [String],
) -> Result<&'a [String], String> {
    let words = |error: tokio_postgres::Error| crate::database::in_words(&error);
    let holds_any = !crate::branch::prepared(connection, name).await.map_err(words)?.is_empty();
    for (place, statement) in statements.iter().enumerate() {
        match connection.batch(statement).await {
            Ok(()) => {}
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                // It may have begun a transaction by itself, in which nothing else can be said.
                connection.batch("ROLLBACK").await.map_err(words)?;
                if !holds_any {
                    return Ok(&statements[place..]);
                }
                tracing::warn!("left out, since a prepared call is in its way: {statement}");
            }
            Err(error) => return Err(words(error)),
        }
    }
    Ok(&[])
}

/// Runs what is left of them once the component is taken over. Whoever else is in the way is waited
/// for, within a bound.
async fn set_up_rest(connection: &Connection, name: &str, mut left: &[String]) -> Result<(), String> {
    for _ in 0..SET_UP_ATTEMPTS {
        if left.is_empty() {
            return Ok(());
        }
        left = set_up(connection, name, left).await?;
    }
    none_left(left)
}

/// Says which statement it is that others keep waiting.
fn none_left(left: &[String]) -> Result<(), String> {
    match left.first() {
        None => Ok(()),
        Some(statement) => Err(format!("others have locked for too long what this needs: {statement}")),
    }
}

/// Where the journal is: in the folder that is given for it. An embedded database has its folder to
/// itself, locked; if both are the same one, the journal has a folder in it that the database does
/// not look into.
fn journal_folder(database: &str, given: &Path) -> PathBuf {
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match database.strip_prefix("embedded:") {
        Some(its) if !its.is_empty() && whole(Path::new(its)) == whole(given) => {
            given.join("composite-journal")
        }
        _ => given.to_owned(),
    }
}

/// A commit that a crash takes back would be no promise.
async fn check_durability(connection: &Connection) -> Result<(), String> {
    let rows = connection.query("SHOW synchronous_commit", &[]).await;
    let rows = rows.map_err(|error| crate::database::in_words(&error))?;
    match rows.first().map(|row| row.get::<_, String>(0)) {
        Some(setting) if setting == "off" => Err("synchronous_commit is off in its database".to_owned()),
        _ => Ok(()),
    }
}

/// Whether the journal is the one that this database was used with.
fn is_journal_whole(component: &str, taken: &Taken, found: &Found) -> bool {
    let is_whole = match (&taken.journal, &found.id) {
        (Some(known), Some(id)) => known == id,
        (None, _) => taken.rows.is_empty(),
        (Some(_), None) => false,
    };
    if !is_whole {
        tracing::warn!(
            "component {component}: the journal is not the one of this database; which roots have ended is forgotten"
        );
    }
    is_whole
}

/// Makes journal and database know each other.
async fn agree(
    connection: &crate::database::Connection,
    (component, generation): (&String, u64),
    journal: &Journal,
    id: Option<String>,
) -> Result<(), String> {
    let words = |error: cognate_engine::Error| error.to_string();
    let id = match id {
        Some(id) => id,
        None => {
            let id = format!("{:032x}", rand::random::<u128>());
            journal.name(&id).map_err(words)?.await.map_err(words)?;
            id
        }
    };
    fault::point("start-naming-before");
    let update = "UPDATE cognate_composite.component SET journal = $2 WHERE name = $1 AND generation = $3";
    let named = connection.execute(update, &[component, &id, &(generation as i64)]).await;
    // A later start has a journal of its own.
    if named.map_err(|error| crate::database::in_words(&error))? == 0 {
        return Err(fenced().detail);
    }
    fault::point("start-naming-after");
    Ok(())
}

/// Adds what the slots of branches will say once these have ended.
fn rows_of_branches(taken: &mut Taken, found: &Found) -> Result<(), String> {
    for Branch { name, slot } in &taken.branches {
        let Some((root, facts)) = found.held.get(name) else {
            return Err(format!(
                "its database has prepared the transaction '{name}', of which its journal says nothing: give it back its journal, or find \
                 out how that transaction's root has ended, and end it by COMMIT PREPARED or ROLLBACK PREPARED"
            ));
        };
        let facts = serde_json::from_str(facts)
            .map_err(|error| format!("what the journal says of branch {name} makes no sense: {error}"))?;
        taken.rows.push(Row { slot: *slot, root: root.clone(), facts, is_noted: false, is_held: true });
    }
    Ok(())
}

/// What the participant is to remember.
fn remembered(rows: &[Row], found: Found, matrix: &Matrix) -> Result<Remembered, String> {
    let facts = |row: &Row| {
        let Row { slot, root, facts, is_noted, is_held } = row.clone();
        let service = matrix.service(&facts.service);
        let service = service.ok_or_else(|| {
            format!("slot {slot} is of service {}, which the component does not have any more", facts.service)
        })?;
        Ok::<SlotFacts, String>(SlotFacts {
            slot,
            arrival: Arrival {
                root,
                call: facts.call,
                parent: facts.parent,
                ancestors: facts.ancestors,
                service,
                item: facts.item.into(),
                arguments: facts.arguments,
            },
            sequence: facts.sequence,
            answer: facts.answer.into(),
            children: facts.children,
            began_here: facts.began_here,
            decision: facts.decision,
            is_noted,
            is_held,
            nonce: facts.nonce,
            nonces: facts.nonces,
        })
    };
    let slots = rows.iter().map(facts).collect::<Result<_, _>>()?;
    let promised = found.promised.map(|(_, roots)| roots);
    Ok(Remembered { slots, votes: found.votes, marks: found.marks, promised })
}

/// A component that runs.
pub struct Running {
    pub(crate) node: Arc<Node>,
    matrix: Arc<Matrix>,
    tokens: http::Tokens,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("name", &self.node.name).finish_non_exhaustive()
    }
}

impl Running {
    /// Its routes.
    pub fn router(&self) -> Router {
        http::router(&self.node, &self.matrix, &self.tokens)
    }

    /// Answers requests on a listener, for ever: a TCP listener's, or those of [`Tls::listen`]. As
    /// its routes do, but what is no request of HTTP is told why, too, as the contract has it, and
    /// connections without a request are not kept for ever, nor as many as there come.
    pub fn serve<L: Listener>(&self, listener: L) -> impl Future<Output = ()> + Send + 'static + use<L> {
        crate::serve::serve(listener, self.router())
    }

    /// The conflict matrix.
    pub fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// How many roots were begun here since the start; each attempt of a request is one.
    pub fn roots_begun(&self) -> u64 {
        self.node.begun.load(Ordering::Relaxed)
    }

    /// How often the journal was flushed since the start.
    pub fn journal_flushes(&self) -> u64 {
        self.node.journal.flushes()
    }

    /// Another component is, or has moved, here.
    ///
    /// # Errors
    /// No name, or no address.
    pub fn set_peer(&self, name: &str, address: &str) -> Result<(), String> {
        self.node.peers().set(Name::new(name).map_err(|error| error.to_string())?, address)
    }

    /// Another component is not there any more.
    pub fn remove_peer(&self, name: &str) {
        if let Ok(name) = Name::new(name) {
            self.node.peers().remove(&name);
        }
    }

    /// Returns once another process has taken the component over: this one is to end.
    pub async fn fenced(&self) {
        loop {
            let notified = self.node.fenced.notified();
            if self.node.is_fenced.load(Ordering::SeqCst) {
                return;
            }
            notified.await;
        }
    }

    /// Closes an embedded database. What was under way is taken up by the next start.
    pub async fn stop(self) {
        self.node.pool.close_idle();
        self.node.pool.target().clone().close().await;
    }
}
