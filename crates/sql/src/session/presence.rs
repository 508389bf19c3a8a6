//! Which sessions there are: for `pg_stat_activity`, `cognate_transactions`, `pg_locks`, and who
//! blocks whom.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use cognate_engine::{ADVISORY_TREE, AdvisoryKey};
use parking_lot::Mutex;

use super::cycle::{Place, locate};
use super::facts::Facts;
use super::failures::Failure;
use super::insight::Insight;
use super::prepare_transaction::Note;
use super::{SqlDatabase, TransactionStatus};
use crate::catalog::{Catalog, Oid};
use crate::error::{Result, SqlError, sqlstate};
use crate::pg_catalog::{FamilyRow, LockRow, PreparedRow, SessionRow, TransactionRow};

/// The sessions of a database.
#[derive(Default)]
pub(crate) struct Presence(Mutex<Present>);

#[derive(Default)]
struct Present {
    next: u64,
    sessions: HashMap<u64, Weak<Facts>>,
}

impl Presence {
    fn enter(&self, facts: &Arc<Facts>) -> u64 {
        let mut present = self.0.lock();
        present.next += 1;
        let id = present.next;
        present.sessions.insert(id, Arc::downgrade(facts));
        id
    }

    /// How many sessions a user has. One that executes what every node does is nobody's connection.
    pub(super) fn count(&self, user: &str) -> usize {
        self.count_of(|facts| facts.user == user)
    }

    /// How many sessions a database has, likewise.
    pub(crate) fn count_in(&self, database: Oid) -> usize {
        self.count_of(|facts| facts.database.oid() == database)
    }

    fn count_of(&self, is_one: impl Fn(&Facts) -> bool) -> usize {
        self.list().iter().filter(|facts| facts.fixed().is_none() && is_one(facts)).count()
    }

    /// Ends the sessions of a database, whatever they do.
    pub(super) fn end_all_of(&self, database: Oid) {
        let of_it = self.list().into_iter().filter(|facts| facts.database.oid() == database);
        of_it.filter_map(|facts| facts.orders.clone()).for_each(|orders| orders.terminate());
    }

    /// All of them, longest there first.
    pub(super) fn list(&self) -> Vec<Arc<Facts>> {
        let present = self.0.lock();
        let mut all: Vec<_> =
            present.sessions.iter().filter_map(|(id, facts)| Some((*id, facts.upgrade()?))).collect();
        drop(present);
        all.sort_by_key(|(id, _)| *id);
        all.into_iter().map(|(_, facts)| facts).collect()
    }
}

/// A session's entry; it goes with the session.
pub(crate) struct Entry {
    database: SqlDatabase,
    id: u64,
}

impl Entry {
    pub(crate) fn new(database: &SqlDatabase, facts: &Arc<Facts>) -> Entry {
        Entry { database: database.clone(), id: database.presence().enter(facts) }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.database.presence().0.lock().sessions.remove(&self.id);
    }
}

/// Rows of `pg_stat_activity`. `asking` is the session that asks, which is active. Of another one
/// that is not its to look at it is told that it is there, and in which transaction.
pub(crate) fn sessions(database: &SqlDatabase, asking: &Facts) -> Vec<SessionRow> {
    let row = |facts: Arc<Facts>| {
        let (transaction, doing) = (facts.transaction(), facts.activity.look());
        let is_asking = std::ptr::eq(&*facts, asking);
        let waits_for = waits_for(&facts);
        let state = match (doing.told, transaction) {
            _ if waits_for.is_some() || doing.runs || is_asking => "active",
            (TransactionStatus::Failed, _) => "idle in transaction (aborted)",
            (TransactionStatus::Idle, 0) => "idle",
            _ => "idle in transaction",
        };
        let known = SessionRow {
            process_id: facts.process_id,
            database: facts.database.oid(),
            database_name: facts.database_name(),
            user: facts.user.clone(),
            application_name: facts
                .with_settings(|settings| settings.show("application_name"))
                .unwrap_or_default(),
            transaction: (transaction != 0).then_some(transaction),
            ..SessionRow::default()
        };
        // Whoever it acts as, a session knows its own (`inet_client_addr`).
        if !is_asking && !asking.may_read_of(&facts) {
            return SessionRow { query: "<insufficient privilege>".to_owned(), ..known };
        }
        SessionRow {
            client: facts.client.map(|client| (client.ip().to_canonical().to_string(), client.port().into())),
            tls: facts.tls,
            started: facts.started,
            transaction_started: facts.activity.transaction_began(),
            statement_started: (doing.began != 0).then_some(doing.began),
            state_changed: Some(if doing.changed != 0 { doing.changed } else { facts.started }),
            query: doing.text.as_deref().unwrap_or_default().to_owned(),
            state,
            waits_for,
            ..known
        }
    };
    database.presence().list().into_iter().map(row).collect()
}

/// What a session waits for while it executes: a lock, for its transaction or for itself, or time.
fn waits_for(facts: &Facts) -> Option<(&'static str, &'static str)> {
    let owners = [Some(facts.transaction()).filter(|id| *id != 0), facts.advisory.owner()];
    let engine = facts.database.engine();
    let awaited = owners.into_iter().flatten().find_map(|owner| engine.awaited_lock(owner));
    match awaited {
        Some((ADVISORY_TREE, _)) => Some(("Lock", "advisory")),
        Some((_, None)) => Some(("Lock", "relation")),
        Some((_, Some(_))) => Some(("Lock", "tuple")),
        None => facts.activity.pauses().then_some(("Timeout", "PgSleep")),
    }
}

/// What a session orders another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// `pg_cancel_backend`.
    Cancel,
    /// `pg_terminate_backend`.
    Terminate,
}

impl Facts {
    /// Ends the sessions of a database. 42501 if the session may not end one of them.
    pub(crate) fn end_sessions_of(&self, database: Oid) -> Result<()> {
        let all = self.database.presence().list();
        let is_of_it = |facts: &Arc<Facts>| facts.database.oid() == database && facts.fixed().is_none();
        let of_it: Vec<_> = all.into_iter().filter(is_of_it).collect();
        if !of_it.iter().all(|facts| self.may_signal(facts)) {
            let message = "must be a member of the role whose process is being terminated or member of pg_signal_backend";
            return Err(SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message));
        }
        of_it.iter().filter_map(|facts| facts.orders.clone()).for_each(|orders| orders.terminate());
        Ok(())
    }
}

/// Gives a session an order, if the one that asks may do so: of its own role, or as an operator.
/// False if there is no such session.
pub(crate) fn order(asking: &Facts, process_id: i32, order: Order) -> Result<bool> {
    let all = asking.database.presence().list();
    let Some(facts) = all.into_iter().find(|facts| facts.process_id == process_id) else { return Ok(false) };
    if !asking.may_signal(&facts) {
        let what = match order {
            Order::Cancel => "query is being canceled",
            Order::Terminate => "process is being terminated",
        };
        let message = format!("must be a member of the role whose {what} or member of pg_signal_backend");
        return Err(SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message));
    }
    let Some(orders) = &facts.orders else { return Ok(false) };
    match order {
        Order::Cancel => orders.cancel(),
        Order::Terminate => orders.terminate(),
    }
    Ok(true)
}

/// Sessions by the numbers that they have in the lock table.
fn process_ids(database: &SqlDatabase) -> HashMap<u64, i32> {
    let all = database.presence().list().into_iter();
    let ids = |facts: Arc<Facts>| {
        let numbers = [Some(facts.transaction()).filter(|id| *id != 0), facts.advisory.owner()];
        numbers.into_iter().flatten().map(move |id| (id, facts.process_id))
    };
    all.flat_map(ids).collect()
}

/// PostgreSQL's name of a lock's mode: on rows that of its tuple locks.
fn mode_name(mode: &'static str) -> &'static str {
    match mode {
        "KeyShared" | "Read" => "AccessShareLock",
        "Shared" | "RowShare" => "RowShareLock",
        "Write" => "RowExclusiveLock",
        "ShareUpdateExclusive" => "ShareUpdateExclusiveLock",
        "Share" => "ShareLock",
        "ShareRowExclusive" => "ShareRowExclusiveLock",
        "NoKeyExclusive" | "ReadersOnly" => "ExclusiveLock",
        "Exclusive" => "AccessExclusiveLock",
        "SiblingKeyShared" => "SiblingKeyShareLock",
        "SiblingShared" => "SiblingShareLock",
        "SiblingNoKeyExclusive" => "SiblingNoKeyExclusiveLock",
        "SiblingExclusive" => "SiblingExclusiveLock",
        other => other,
    }
}

/// Finds what a lock is on, and in which database. What it is called is for sessions of that
/// database only.
fn locate_in(catalogs: &[Arc<Catalog>], own: Oid, tree: u32, key: Option<&[u8]>) -> (Oid, Place) {
    for catalog in catalogs {
        let place = locate(catalog, tree, key);
        let is_there = place.relation.is_some_and(|oid| catalog.relation_by_oid(oid).is_some());
        let database = catalog.database_oid();
        if is_there && database == own {
            return (database, place);
        }
        if is_there {
            return (database, Place { name: None, key: None, ..place });
        }
    }
    (own, Place { relation: key.is_none().then_some(tree), name: None, key: None })
}

/// Rows of `cognate_serialization_failures`.
pub(crate) fn failures(asking: &Facts) -> Vec<Failure> {
    let insight = Insight::new(asking);
    let mut rows = asking.database.failures().list(asking.database.oid());
    for failure in rows.iter_mut().filter(|failure| !insight.covers(Some(failure.role))) {
        failure.detail = None;
    }
    asking.rest_on_everything();
    rows
}

/// Rows of `pg_locks` and `cognate_locks`.
pub(crate) fn locks(asking: &Facts) -> Vec<LockRow> {
    let database = &asking.database;
    let shown = Insight::new(asking).transactions(database);
    let sessions = process_ids(database);
    let catalogs: Vec<_> = database.all().iter().map(SqlDatabase::catalog).collect();
    let row = |lock: cognate_engine::LockInfo, mode: &'static str| {
        if lock.tree == ADVISORY_TREE {
            let key = lock.key.as_deref().and_then(AdvisoryKey::from_bytes);
            return LockRow {
                process_id: sessions.get(&lock.transaction).copied().unwrap_or_default(),
                database: key.map_or(0, |(space, _)| space),
                transaction: lock.transaction,
                key: key.map(|(_, key)| key.to_string()),
                advisory: key.map(|(_, key)| key.parts()),
                mode: mode_name(mode),
                granted: lock.granted,
                ..LockRow::default()
            };
        }
        let (of, place) = locate_in(&catalogs, database.oid(), lock.tree, lock.key.as_deref());
        LockRow {
            process_id: sessions.get(&lock.transaction).copied().unwrap_or_default(),
            database: of,
            transaction: lock.transaction,
            relation: place.relation,
            relation_name: place.name,
            key: place.key.filter(|_| shown.has(&lock.transaction)),
            row: lock.key.is_some(),
            mode: mode_name(mode),
            granted: lock.granted,
            ..LockRow::default()
        }
    };
    let mut rows = Vec::new();
    for lock in database.engine().locks() {
        // A row for each mode of an advisory lock, as in PostgreSQL; of others for the strongest.
        let weaker = if lock.tree == ADVISORY_TREE { 0 } else { lock.modes.len().saturating_sub(1) };
        rows.extend(lock.modes[weaker..].iter().map(|mode| row(lock.clone(), mode)));
    }
    rows
}

/// Rows of `pg_prepared_xacts`.
pub(crate) fn prepared(database: &SqlDatabase) -> Vec<PreparedRow> {
    let catalog = database.catalog();
    let has_aliases = catalog.has_aliases();
    let row = |info: cognate_engine::PreparedInfo| {
        let note = Note::of(&info.note);
        let known = if has_aliases { None } else { catalog.database_by_oid(note.database) };
        PreparedRow {
            transaction: info.transaction,
            identifier: match &info.owner {
                cognate_engine::Owner::Global(identifier) => identifier.to_string(),
                cognate_engine::Owner::Instance(xid, instance) => format!("<{xid},{instance}>"),
            },
            prepared: info.prepared_us - super::database::EPOCH_US,
            owner: note.owner_in(&catalog),
            database: known.map_or(note.name, |known| known.name.clone()),
        }
    };
    database.engine().prepared().into_iter().map(row).collect()
}

/// Rows of `cognate_in_doubt`.
pub(crate) fn in_doubt(asking: &Facts) -> Vec<FamilyRow> {
    let database = &asking.database;
    let shown = Insight::new(asking).families(database);
    let row = |family: cognate_engine::sibling::InDoubt| FamilyRow {
        xid: family.xid.to_string(),
        instances: family.instances.iter().map(|instance| instance.get()).collect(),
        prepared: family.prepared_us - super::database::EPOCH_US,
        age_us: family.age_us,
        locks: family.locks as u64,
        request: shown.has(family.xid.as_str()).then(|| family.request.to_string()),
    };
    let rows = database.engine().in_doubt().into_iter().map(row).collect();
    asking.rest_on_everything();
    rows
}

/// Rows of `cognate_transactions`.
pub(crate) fn transactions(asking: &Facts) -> Vec<TransactionRow> {
    let database = &asking.database;
    let shown = Insight::new(asking).transactions(database);
    let sessions: HashMap<u64, Arc<Facts>> =
        database.presence().list().into_iter().map(|facts| (facts.transaction(), facts)).collect();
    let catalogs: Vec<_> = database.all().iter().map(SqlDatabase::catalog).collect();
    let row = |info: cognate_engine::TransactionInfo| {
        let session = sessions.get(&info.id);
        let place = info.waits_for.as_ref().map(|(tree, key)| match key.as_deref() {
            Some(key) if *tree == ADVISORY_TREE => Place {
                relation: None,
                name: Some("advisory lock".to_owned()),
                key: AdvisoryKey::from_bytes(key).map(|(_, key)| key.to_string()),
            },
            key => {
                let place = locate_in(&catalogs, database.oid(), *tree, key).1;
                Place { key: place.key.filter(|_| shown.has(&info.id)), ..place }
            }
        });
        TransactionRow {
            process_id: session.map_or(0, |facts| facts.process_id),
            transaction: info.id,
            state: match &place {
                Some(_) => "waiting for a lock",
                None if session.is_none_or(|facts| facts.activity.look().runs) => "executing",
                None => "waiting for the client",
            },
            age_us: i64::try_from(info.age.as_micros()).unwrap_or(i64::MAX),
            snapshot: info.snapshot,
            isolation: super::modes::isolation_name(info.isolation),
            read_only: info.access == cognate_engine::Access::ReadOnly,
            waits_for: place.map(|place| match place.key {
                Some(key) => format!("{} {key}", place.name.unwrap_or_default()),
                None => place.name.unwrap_or_default(),
            }),
        }
    };
    database.engine().transactions().into_iter().map(row).collect()
}

/// Whether the session waits for a lock that one of the others holds, or asked for before it; or
/// for a safe snapshot while one of them has a transaction.
pub(crate) fn is_blocked_by(database: &SqlDatabase, process_id: i32, others: &[i32]) -> bool {
    let all = database.presence().list();
    if all.iter().any(|facts| facts.process_id == process_id && facts.awaits_safety()) {
        return all.iter().any(|facts| others.contains(&facts.process_id) && facts.transaction() != 0);
    }
    let sessions = process_ids(database);
    let of = |transaction: u64| sessions.get(&transaction).copied().unwrap_or_default();
    let locks = database.engine().locks();
    locks.iter().filter(|lock| !lock.granted && of(lock.transaction) == process_id).any(|wanted| {
        locks.iter().any(|lock| {
            let same = lock.tree == wanted.tree
                && (lock.key == wanted.key || lock.key.is_none() || wanted.key.is_none());
            same && lock.transaction != wanted.transaction && others.contains(&of(lock.transaction))
        })
    })
}

#[cfg(test)]
mod tests {
    use cognate_engine::{Access, Database, Isolation, Options};
    use cognate_env::sim::SimDisk;

    use super::super::active::Fixed;
    use super::super::{Session, SessionParameters};
    use super::*;
    use crate::catalog::DATABASE_OID;

    #[test]
    fn who_executes_what_every_node_does_is_nobodys_connection() {
        let options = Options { disk: SimDisk::new(1).handle(), ..Options::new("data") };
        let engine = Database::open(options).unwrap();
        let database = SqlDatabase::open(engine.clone()).unwrap();
        let session = || {
            let parameters = SessionParameters { user: "ann".into(), ..SessionParameters::default() };
            Session::new(database.clone(), parameters).unwrap()
        };
        let counts = || (database.presence().count("ann"), database.presence().count_in(DATABASE_OID));
        let (connected, executes) = (session(), session());
        assert_eq!(counts(), (2, 2));
        let stored = engine.begin(Isolation::Snapshot, Access::ReadOnly).view();
        executes.facts.fix(Fixed::new(0, engine.clone(), stored));
        assert_eq!(counts(), (1, 1));
        assert_eq!(sessions(&database, &connected.facts).len(), 2, "who looks sees both");
    }
}
