//! What a component remembers inside its database: tables `cognate_composite.{component, slot,
//! answer}`.
//!
//! A *slot* is a row of a fixed pool that is updated in place, in the same local transaction as the
//! user's SQL (paper, §3.7), so a subtransaction costs one commit. A slot whose root is over is
//! freed by its next use, or together with others when there is none for a while.
//!
//! # The fence
//!
//! Each start of a component takes a new *generation* and writes it into its row and into every
//! slot, waiting for whoever is still writing there. Every statement about a slot names the
//! generation that it was taken under, and fails if it finds another one: so the local transaction
//! of an older process fails as a whole, and its SQL is never committed without its slot. It fails
//! by a cast of a text of ours to a number, which no service's own SQL is taken for.
//!
//! A local transaction that writes no slot (it only read, or began a root and called nobody) looks
//! at the component's generation instead, in the same message as COMMIT: the look is prepared under
//! a name when a connection is made, and the message says `EXECUTE …; COMMIT`. A message ends at
//! its first error. So a look that fails leaves COMMIT undone, as it would if both were sent one
//! after the other, with less time between them; and the database has one message less to answer.
//!
//! On PostgreSQL itself it need not look: `sessions` has the reason.
//!
//! # Who comes late
//!
//! A statement whose connection was lost may still be on its way, and be carried out after the slot
//! was looked at, or was given to another root. So each tells by itself whether it may be:
//!
//! - WRITE, before COMMIT or PREPARE TRANSACTION: if its answer was lost, and its slot does not say
//!   that it was carried out, the slot is *retired*. Its generation is 0, which no process has, so
//!   whoever comes late fails like an older process, and what it did is rolled back. The next start
//!   takes the slot up again. A retirement that is not answered is said again, and may come late
//!   itself: it would meet a later root's. So its slot is *spoilt*: not used again before a start.
//! - RELEASE, FREE, NOTE: they name the root whose slot it has to be.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::branch::Branch;
use crate::database::{Connection, Pool};
use crate::fault;
use crate::name::{Name, RootId};
use crate::participant::{Nonce, Origin, Slot};
use crate::problem::Problem;
use crate::sessions::{application_name, end_older, is_postgresql};
use crate::statements::{FREE, NOTE};

/// Slots of a new component, and how many are added when they do not suffice.
const SLOTS: u32 = 128;
/// What keeps others off a page when slots are made: four are on one of 8 kB. A row of more than
/// 2,032 bytes would be compressed; a component's name has 64 at most.
const FILLER: &str = "repeat(' ', 1800)";
/// How long a slot waits for its next use before it is freed without one. Under load no slot does.
const UNUSED: Duration = Duration::from_millis(200);
/// Most slots that one statement frees: it has a bound, and would never end in it again if it grew
/// with each time that it does not.
const FREED_MAX: usize = 1000;
/// How often a start waits for rows that others have locked.
const TAKE_ATTEMPTS: u32 = 5;

const TABLES: [&str; 4] = [
    "CREATE SCHEMA IF NOT EXISTS cognate_composite",
    "CREATE TABLE IF NOT EXISTS cognate_composite.component (
        name text PRIMARY KEY, generation bigint NOT NULL, journal text, database text)",
    // How many of them are on a page depends on how they are made: see `Slots::grow`.
    "CREATE TABLE IF NOT EXISTS cognate_composite.slot (
        component text NOT NULL, id int NOT NULL, generation bigint NOT NULL, root text, facts text,
        noted boolean NOT NULL DEFAULT false, PRIMARY KEY (component, id))",
    "CREATE TABLE IF NOT EXISTS cognate_composite.answer (
        component text NOT NULL, key text NOT NULL, root text NOT NULL, arguments text NOT NULL,
        answer text NOT NULL, kept_until timestamptz NOT NULL, PRIMARY KEY (component, key))",
];

/// What a slot says, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) call: crate::name::CallId,
    pub(crate) parent: Option<Name>,
    pub(crate) ancestors: Vec<crate::name::CallId>,
    pub(crate) service: String,
    pub(crate) item: String,
    pub(crate) sequence: u64,
    pub(crate) arguments: u64,
    pub(crate) answer: String,
    /// What the service pushed for its undo, the last one last.
    pub(crate) undo: Vec<String>,
    pub(crate) children: Vec<(Name, u32)>,
    pub(crate) began_here: bool,
    pub(crate) decision: Option<Vec<(Name, Nonce)>>,
    pub(crate) deadline_ms: u64,
    /// The name of the branch that wrote it, of a call without undo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) branch: Option<String>,
    /// What a yes to the root is known by; slots of earlier builds do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nonce: Option<Nonce>,
    /// The same of those whom it has called, as far as they have announced it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nonces: Vec<(Name, Nonce)>,
    /// Where the caller decides, if it has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Origin>,
}

/// A slot in use, as it is found at a start.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) slot: Slot,
    pub(crate) root: RootId,
    pub(crate) facts: Facts,
    pub(crate) is_noted: bool,
    /// It is written by a branch that is still prepared.
    pub(crate) is_held: bool,
}

/// What a start finds and takes.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) generation: u64,
    /// Whether the database is PostgreSQL itself.
    pub(crate) is_postgresql: bool,
    /// The database's mark.
    pub(crate) database: String,
    pub(crate) journal: Option<String>,
    pub(crate) rows: Vec<Row>,
    /// Slots that cannot be seen before these have ended.
    pub(crate) branches: Vec<Branch>,
    free: Vec<Slot>,
}

/// Makes the tables, takes the component over from whoever had it, and reads its slots.
pub(crate) async fn take_over(connection: &Connection, component: &str) -> Result<Taken, String> {
    let words = |error: Error| crate::database::in_words(&error);
    for table in TABLES {
        // Two components that start at once may both make them; the second one finds them made.
        if connection.batch(table).await.is_err() {
            connection.batch(table).await.map_err(words)?;
        }
    }
    fault::point("start-generation-before");
    let row = connection
        .query(
            "INSERT INTO cognate_composite.component AS c (name, generation, database) VALUES ($1, 1, $2)
             ON CONFLICT (name) DO UPDATE SET generation = c.generation + 1,
                database = coalesce(c.database, excluded.database)
             RETURNING generation, journal, database",
            &[&component, &format!("{:032x}", rand::random::<u128>())],
        )
        .await
        .map_err(words)?;
    fault::point("start-generation-after");
    let row = row.first().ok_or("the component has no row")?;
    let (generation, journal) = (row.get::<_, i64>(0), row.get::<_, Option<String>>(1));
    let database = row.get::<_, String>(2);
    // By that name a later start ends this one's session, and an earlier one does not.
    let name = application_name(component, generation as u64);
    connection.batch(&format!("SET application_name = '{name}'")).await.map_err(words)?;
    let is_postgresql = is_postgresql(connection).await.map_err(words)?;
    end_older(connection, component, generation, is_postgresql).await?;
    let branches = take_slots(connection, component, generation).await.map_err(words)?;
    let found = connection
        .query(
            "SELECT id, root, facts, noted FROM cognate_composite.slot WHERE component = $1 ORDER BY id",
            &[&component],
        )
        .await
        .map_err(words)?;
    // A start that was overtaken must not take back what the later one has taken.
    if !is_latest(connection, component, generation).await.map_err(words)? {
        return Err(fenced().detail);
    }
    fault::point("start-slots-before");
    connection.batch("COMMIT").await.map_err(words)?;
    fault::point("start-slots-after");
    let (mut rows, mut free) = (Vec::new(), Vec::new());
    for row in found {
        let slot = row.get::<_, i32>(0) as Slot;
        if branches.iter().any(|branch| branch.slot == slot) {
            continue;
        }
        let (Some(root), Some(facts)) = (row.get::<_, Option<String>>(1), row.get::<_, Option<String>>(2))
        else {
            free.push(slot);
            continue;
        };
        let damaged = |why: String| format!("slot {slot} of {component} makes no sense: {why}");
        let root = RootId::new(&root).map_err(|error| damaged(error.to_string()))?;
        let facts = serde_json::from_str(&facts).map_err(|error| damaged(error.to_string()))?;
        rows.push(Row { slot, root, facts, is_noted: row.get(3), is_held: false });
    }
    Ok(Taken { generation: generation as u64, is_postgresql, database, journal, rows, branches, free })
}

/// Whether no later start has written its generation. One that does so after this look takes the
/// slots after this transaction, which has their rows.
async fn is_latest(connection: &Connection, component: &str, generation: i64) -> Result<bool, Error> {
    let own = "SELECT 1 FROM cognate_composite.component WHERE name = $1 AND generation = $2";
    Ok(!connection.query(own, &[&component, &generation]).await?.is_empty())
}

/// Begins a local transaction and writes the generation into all slots but those of branches,
/// waiting for whoever still writes one. Answers the branches.
async fn take_slots(connection: &Connection, component: &str, generation: i64) -> Result<Vec<Branch>, Error> {
    let update =
        "UPDATE cognate_composite.slot SET generation = $2 WHERE component = $1 AND id <> ALL($3::int[])";
    for attempt in 1.. {
        let branches = crate::branch::prepared(connection, component).await?;
        let theirs: Vec<i32> = branches.iter().map(|branch| branch.slot as i32).collect();
        connection.batch("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        match connection.execute(update, &[&component, &generation, &theirs]).await {
            Ok(_) => return Ok(branches),
            // Whoever had the row may have become a branch meanwhile.
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) && attempt < TAKE_ATTEMPTS => {
                connection.batch("ROLLBACK").await?;
            }
            Err(error) => return Err(error),
        }
    }
    unreachable!("the last attempt returns")
}

/// A slot of a root that is over.
#[derive(Debug)]
struct Freeing {
    slot: Slot,
    root: RootId,
    /// Since when it waits for its next use.
    since: Instant,
}

/// Which slots are free.
#[derive(Debug, Default)]
struct State {
    free: Vec<Slot>,
    /// Slots of roots that are over; in the database they are not free yet.
    freeing: VecDeque<Freeing>,
    /// How many slots of a root are still to be freed.
    left: HashMap<RootId, usize>,
    next: Slot,
    /// Those that a late retirement may still meet.
    spoilt: HashSet<Slot>,
}

impl State {
    /// The place of the first slot whose root is over and that may be used at once.
    fn usable(&self) -> Option<usize> {
        self.freeing.iter().position(|freeing| !self.spoilt.contains(&freeing.slot))
    }

    /// A slot is free, in the database, too.
    fn freed(&mut self, slot: Slot) {
        if !self.spoilt.contains(&slot) {
            self.free.push(slot);
        }
    }

    /// What is freed without a next use: nothing as long as what waits longest has not waited long.
    fn unused(&mut self, now: Instant) -> Vec<Freeing> {
        let is_long = self.freeing.front().is_some_and(|first| now >= first.since + UNUSED);
        let count = if is_long { self.freeing.len().min(FREED_MAX) } else { 0 };
        self.freeing.drain(..count).collect()
    }

    /// These are not free yet. All are tried again when they have waited once more, not the next
    /// ones with the next tick: a database that is away is not asked forty times a second.
    fn not_freed(&mut self, batch: Vec<Freeing>, now: Instant) {
        self.freeing.extend(batch);
        self.freeing.iter_mut().for_each(|freeing| freeing.since = now);
    }

    /// One slot fewer; the root, if it was the last one.
    fn one_freed(&mut self, root: RootId) -> Option<RootId> {
        let left = self.left.get_mut(&root).expect("a slot that is being freed belongs to a root");
        *left -= 1;
        (*left == 0).then(|| {
            self.left.remove(&root);
            root
        })
    }
}

/// The pool of slots.
#[derive(Debug)]
pub(crate) struct Slots {
    component: String,
    generation: i64,
    is_postgresql: bool,
    state: Mutex<State>,
    /// Held by who makes slots: others wait for these instead of making more.
    growing: tokio::sync::Mutex<()>,
}

/// A slot that a local transaction is about to write.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) slot: Slot,
    /// The root that is over, whose slot it still is in the database.
    replaced: Option<RootId>,
}

impl Slots {
    pub(crate) fn new(component: &str, taken: &Taken) -> Slots {
        let in_use = taken.rows.iter().map(|row| row.slot);
        let of_branches = taken.branches.iter().map(|branch| branch.slot);
        let next =
            in_use.chain(of_branches).chain(taken.free.iter().copied()).max().map_or(0, |last| last + 1);
        let state = State { free: taken.free.clone(), next, ..State::default() };
        Slots {
            component: component.to_owned(),
            generation: taken.generation as i64,
            is_postgresql: taken.is_postgresql,
            state: Mutex::new(state),
            growing: tokio::sync::Mutex::default(),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn component(&self) -> &String {
        &self.component
    }

    pub(crate) fn generation(&self) -> &i64 {
        &self.generation
    }

    /// A slot that is free in the database, too: what a branch writes is seen only at its end, and
    /// may never be.
    pub(crate) async fn choose_free(&self, pool: &Arc<Pool>) -> Result<Chosen, Problem> {
        loop {
            match self.with(|state| state.free.pop()) {
                Some(slot) => return Ok(Chosen { slot, replaced: None }),
                None => self.grow(pool, |state| !state.free.is_empty()).await?,
            }
        }
    }

    /// A slot to write; the pool grows if there is none.
    pub(crate) async fn choose(&self, pool: &Arc<Pool>) -> Result<Chosen, Problem> {
        loop {
            let chosen = self.with(|state| match state.usable().and_then(|at| state.freeing.remove(at)) {
                Some(Freeing { slot, root, .. }) => Some(Chosen { slot, replaced: Some(root) }),
                None => state.free.pop().map(|slot| Chosen { slot, replaced: None }),
            });
            match chosen {
                Some(chosen) => return Ok(chosen),
                None => self.grow(pool, |state| !state.free.is_empty() || state.usable().is_some()).await?,
            }
        }
    }

    /// Makes more slots.
    ///
    /// On PostgreSQL few of them are on a page: there is room for the versions that updates leave,
    /// so that these stay on it and are cleaned up many at once, those who write at the same time
    /// wait less for each other's pages, and there are pages enough for an index to be worth it (a
    /// sequential scan under SERIALIZABLE would let every two local transactions conflict). A
    /// table's fillfactor would have every single access clean the page up. So they are made long,
    /// and made short afterwards.
    async fn grow(&self, pool: &Arc<Pool>, suffices: impl FnOnce(&mut State) -> bool) -> Result<(), Problem> {
        let _growing = self.growing.lock().await;
        if self.with(suffices) {
            return Ok(());
        }
        let first = self.with(|state| {
            let first = state.next;
            state.next += SLOTS;
            first
        });
        // Who grows the pool has a connection already.
        let lease = pool.take_as(true).await?;
        // The component's row is locked, so that no later process misses slots that come late.
        let (column, filler) = match self.is_postgresql {
            true => (", facts", format!(", {FILLER}")),
            false => ("", String::new()),
        };
        let grow = format!(
            "INSERT INTO cognate_composite.slot (component, id, generation{column})
            SELECT c.name, g, c.generation{filler} FROM (SELECT name, generation
                FROM cognate_composite.component WHERE name = $1 AND generation = $2 FOR UPDATE) c,
                generate_series($3::int, $4::int) g"
        );
        let (from, to) = (first as i32, (first + SLOTS - 1) as i32);
        fault::point("slots-grow-before");
        let words = |error: Error| crate::problem::Error::from(error).into_problem();
        let parameters: crate::database::Parameters<'_> = &[&self.component, &self.generation, &from, &to];
        let made = lease.execute(&grow, parameters).await.map_err(words)?;
        if self.is_postgresql {
            let shorten = "UPDATE cognate_composite.slot SET facts = NULL
                WHERE component = $1 AND generation = $2 AND id BETWEEN $3 AND $4 AND root IS NULL";
            lease.execute(shorten, parameters).await.map_err(words)?;
        }
        fault::point("slots-grow-after");
        lease.give_back();
        if made == 0 {
            return Err(fenced());
        }
        self.with(|state| state.free.extend((first..first + SLOTS).rev()));
        Ok(())
    }

    /// The local transaction has committed, or the slot is retired; answers a root whose last slot
    /// was freed by that.
    pub(crate) fn written(&self, chosen: Chosen) -> Option<RootId> {
        let Chosen { replaced, .. } = chosen;
        self.with(|state| state.one_freed(replaced?))
    }

    /// The local transaction was rolled back.
    pub(crate) fn not_written(&self, chosen: Chosen) {
        self.with(|state| match chosen.replaced {
            Some(root) => {
                state.freeing.push_back(Freeing { slot: chosen.slot, root, since: Instant::now() });
            }
            None => state.freed(chosen.slot),
        });
    }

    /// Somebody may still retire the slot, and nobody waits for that any more.
    pub(crate) fn spoil(&self, slot: Slot) {
        self.with(|state| state.spoilt.insert(slot));
    }

    /// A slot was freed together with an undo.
    pub(crate) fn released(&self, slot: Slot) {
        self.with(|state| state.freed(slot));
    }

    /// The root is over: its slots may be used again.
    pub(crate) fn free_later(&self, root: &RootId, slots: &[Slot]) {
        self.with(|state| {
            state.left.insert(root.clone(), slots.len());
            let since = Instant::now();
            let freeing = |slot: &Slot| Freeing { slot: *slot, root: root.clone(), since };
            state.freeing.extend(slots.iter().map(freeing));
        });
    }

    /// Frees what nobody has used for a while; answers the roots whose last slots these were.
    pub(crate) async fn free_now(&self, pool: &Arc<Pool>) -> Vec<RootId> {
        let batch = self.with(|state| state.unused(Instant::now()));
        if batch.is_empty() {
            return Vec::new();
        }
        fault::point("free-before");
        let freed = {
            let slots: Vec<Slot> = batch.iter().map(|freeing| freeing.slot).collect();
            let roots: Vec<&str> = batch.iter().map(|freeing| freeing.root.as_str()).collect();
            self.write(pool, FREE, &slots, &roots).await
        };
        fault::point("free-after");
        match freed.and_then(|are_all| if are_all { Ok(()) } else { Err(fenced()) }) {
            Ok(()) => self.with(|state| {
                batch.iter().for_each(|freeing| state.freed(freeing.slot));
                batch.into_iter().filter_map(|freeing| state.one_freed(freeing.root)).collect()
            }),
            Err(problem) => {
                tracing::warn!("slots cannot be freed yet: {problem}");
                self.with(|state| state.not_freed(batch, Instant::now()));
                Vec::new()
            }
        }
    }

    /// Writes into the slots of a root that it is committed. Answers whether they all are still its
    /// own: those that were freed meanwhile may be another root's, of which nothing is known.
    pub(crate) async fn note(
        &self,
        pool: &Arc<Pool>,
        root: &RootId,
        slots: &[Slot],
    ) -> Result<bool, Problem> {
        self.write(pool, NOTE, slots, &[root.as_str()]).await
    }

    /// Changes slots of these roots. Answers whether that were all.
    async fn write(
        &self,
        pool: &Arc<Pool>,
        sql: &str,
        slots: &[Slot],
        roots: &[&str],
    ) -> Result<bool, Problem> {
        let lease = pool.take().await?;
        let slots: Vec<i32> = slots.iter().map(|slot| *slot as i32).collect();
        let roots = roots.to_vec();
        // Slots that are another root's meanwhile are left alone, however late it comes.
        let changed = lease
            .in_time(lease.execute(sql, &[&self.component, &self.generation, &slots, &roots]))
            .await
            .map_err(crate::problem::Error::into_problem)?;
        lease.give_back();
        Ok(changed as usize == slots.len())
    }
}

/// Another process has taken the component over.
pub(crate) fn fenced() -> Problem {
    Problem::new(503, "fenced", "another process has taken this component over")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Target;
    use crate::statements::WRITE;

    /// What is said of a root's slots may come after they were freed and written for another one.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_said_of_a_root_is_written_into_its_own_slots_only() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("embedded:{}", folder.path().join("database").display());
        let target = Target::open(&url).await.unwrap();
        let pool = Pool::new(target, application_name("solo", 1), 4);
        let lease = pool.take().await.unwrap();
        let slots = Slots::new("solo", &take_over(&lease, "solo").await.unwrap());
        let slot = slots.choose(&pool).await.unwrap().slot;
        let id = slot as i32;
        let parameters: crate::database::Parameters<'_> =
            &[slots.component(), &id, slots.generation(), &"b", &"{}"];
        lease.execute(WRITE, parameters).await.unwrap();
        let [a, b] = ["a", "b"].map(|name| RootId::new(name).unwrap());
        let read = "SELECT root, noted FROM cognate_composite.slot WHERE component = $1 AND id = $2";
        for (root, is_own) in [(&a, false), (&b, true)] {
            assert_eq!(slots.note(&pool, root, &[slot]).await.unwrap(), is_own);
            let rows = lease.query(read, &[slots.component(), &id]).await.unwrap();
            assert_eq!(rows[0].get::<_, bool>(1), is_own, "{root}");
        }
        // To free it again for its own root changes nothing, and is no failure.
        for (root, is_own) in [(&a, false), (&b, true), (&b, true)] {
            assert_eq!(slots.write(&pool, FREE, &[slot], &[root.as_str()]).await.unwrap(), is_own);
            let rows = lease.query(read, &[slots.component(), &id]).await.unwrap();
            assert_eq!(rows[0].get::<_, Option<String>>(0).is_none(), is_own, "{root}");
        }
        lease.give_back();
        pool.close_idle();
        pool.target().clone().close().await;
    }

    /// Of two starts at once, the one that has the earlier generation and is slower takes nothing.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_start_that_was_overtaken_takes_no_slots() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("embedded:{}", folder.path().join("database").display());
        let pool = Pool::new(Target::open(&url).await.unwrap(), application_name("solo", 0), 2);
        let lease = pool.take().await.unwrap();
        for generation in [1, 2] {
            assert_eq!(take_over(&lease, "solo").await.unwrap().generation, generation);
            // Whoever starts meanwhile sees which of both is the later one.
            let name = lease.texts("SHOW application_name").await.unwrap();
            assert_eq!(name, [[Some(application_name("solo", generation))]]);
        }
        for (generation, is_it) in [(1, false), (2, true)] {
            lease.batch("BEGIN ISOLATION LEVEL READ COMMITTED").await.unwrap();
            assert_eq!(is_latest(&lease, "solo", generation).await.unwrap(), is_it, "{generation}");
            lease.batch("ROLLBACK").await.unwrap();
        }
        lease.give_back();
        pool.close_idle();
        pool.target().clone().close().await;
    }

    #[test]
    fn slots_of_earlier_builds_say_less() {
        let text = r#"{"call":"r.1","parent":"shop","ancestors":["1"],"service":"take","item":"7",
            "sequence":3,"arguments":5,"answer":"null","undo":[],"children":[["payment",1]],
            "began_here":false,"decision":null,"deadline_ms":900}"#;
        let facts: Facts = serde_json::from_str(text).unwrap();
        assert_eq!((facts.nonce, facts.nonces.len(), facts.origin.is_none()), (None, 0, true));
        assert!(!serde_json::to_string(&facts).unwrap().contains("nonce"));
    }

    #[test]
    fn a_slot_that_may_still_be_retired_is_not_used_again() {
        let root = RootId::new("r").unwrap();
        let freeing = |slot| Freeing { slot, root: root.clone(), since: Instant::now() };
        let mut state = State { spoilt: HashSet::from([1]), ..State::default() };
        state.freeing.push_back(freeing(1));
        assert_eq!(state.usable(), None);
        state.freeing.push_back(freeing(2));
        assert_eq!(state.usable(), Some(1), "the place behind it");
        [1, 2].into_iter().for_each(|slot| state.freed(slot));
        assert_eq!(state.free, [2]);
    }

    #[test]
    fn slots_wait_for_a_next_use_and_are_freed_together() {
        let root = RootId::new("r").unwrap();
        let since = Instant::now();
        let later = |milliseconds: u64| since + Duration::from_millis(milliseconds);
        let freeing = |slot, since| Freeing { slot, root: root.clone(), since };
        let mut state = State::default();
        assert!(state.unused(later(1000)).is_empty());
        state.freeing.extend([freeing(1, since), freeing(2, later(150))]);
        assert!(state.unused(later(199)).is_empty());
        // The first one is used again: the next one's time counts.
        state.freeing.pop_front();
        assert!(state.unused(later(349)).is_empty());
        state.freeing.push_back(freeing(3, later(349)));
        let freed: Vec<Slot> = state.unused(later(350)).iter().map(|freeing| freeing.slot).collect();
        assert_eq!(freed, [2, 3]);
        state.freeing.extend((0..=FREED_MAX as Slot).map(|slot| freeing(slot, since)));
        let failed = state.unused(later(350));
        assert_eq!(failed.len(), FREED_MAX);
        state.not_freed(failed, later(350));
        let counts = [549, 550, 550, 550].map(|at| state.unused(later(at)).len());
        assert_eq!(counts, [0, FREED_MAX, 1, 0], "the others wait as well");
    }
}
