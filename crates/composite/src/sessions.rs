//! Sessions of a component in its database, and how a later start ends those of earlier ones.
//!
//! A local transaction that writes no slot looks at the component's generation in the message of
//! its COMMIT (see `slots`). On PostgreSQL itself nothing is looked at: a later start ends the
//! sessions of earlier ones before it goes on. A connection begins there with one block (`hold`),
//! which
//!
//! 1. takes a shared advisory lock for the session, whose key is component and generation,
//! 2. looks at the component's generation, and fails if that is another one,
//! 3. prepares, under a name that no other process has, a statement that does nothing.
//!
//! A start writes its generation, lists the sessions that hold the lock of an older one (or are
//! named after it), terminates them, and waits until the database has none of them any more; then
//! it takes the slots. So whatever an older process commits without a slot is committed before the
//! later one has looked at anything:
//!
//! - Where the statement is prepared, the lock was taken before a look that found the generation.
//!   Each step sees what is committed when it begins (the block says READ COMMITTED), so either the
//!   look came after the later generation was committed, and has failed, or the lock was there
//!   before, and the list has its session.
//! - A session keeps its lock until its last transaction is over, and is listed as long: one that
//!   was terminated in the middle of COMMIT is waited for, whichever way that ends.
//! - All of this is about sessions of the database, not about connections of ours. Behind a pooler
//!   that gives each transaction another session, COMMIT meets one where the statement is prepared,
//!   which is held, or one where it is not, and fails. What makes a session forget its lock makes
//!   it forget the statement, too (DISCARD ALL). Only `pg_advisory_unlock_all` does not, which
//!   services must not call; then the session is still listed by its name, unless that is cut (63
//!   bytes) or was changed.
//! - Who may not terminate a session does not start: the older process cannot be told to look.
//! - A start that ends halfway leaves the older process at work, alone, until its connections are
//!   gone. Of two starts the later one ends the earlier one's session, which is named after its
//!   generation as soon as there is one. The earlier one may still be about to take the slots: it
//!   keeps them only if the component still has its generation.
//! - A PostgreSQL that was started again, or a standby that has taken over, has no sessions, and so
//!   no locks: each connection is made anew. Prepared transactions are fenced by their slots.
//!
//! Where the block fails, for whatever reason, and on other databases, whose advisory locks may be
//! another matter, the connection has the look: the older process learns by that that it is over.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::sleep;
use tokio_postgres::Error;

use crate::database::{Connection, Pool, Target, Terms};
use crate::statements::FENCED;

/// How often a start looks whether the sessions of earlier ones have ended, and how long it waits
/// in between.
const ENDING_LOOKS: u32 = 500;
const ENDING_PAUSE: Duration = Duration::from_millis(20);
/// A local transaction of this age may be what a statement has waited for in vain: half of how long
/// one waits (`lock_timeout`), since who is in the way was there before.
const LONG_SECONDS: u32 = 1;
/// Above all generations: the largest number that the key of an advisory lock has room for.
const GENERATION_MAX: i64 = u32::MAX as i64;

/// Whether the database is PostgreSQL itself, on one server.
pub(crate) async fn is_postgresql(connection: &Connection) -> Result<bool, Error> {
    let rows = connection.query("SELECT version()", &[]).await?;
    Ok(rows.first().is_some_and(|row| names_postgresql(row.get(0))))
}

/// Whether a version is PostgreSQL's, and no other system's that speaks its protocol.
fn names_postgresql(version: &str) -> bool {
    let number = version.strip_prefix("PostgreSQL ").and_then(|rest| rest.split([' ', ',']).next());
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    number.is_some_and(is_number) && version.contains(", compiled by ") && !version.contains("Cognate")
}

/// The connections of a component that was taken over. A component's name needs no quoting.
pub(crate) fn pool(
    target: Target,
    component: &str,
    (generation, is_postgresql): (u64, bool),
    connections_max: usize,
) -> Arc<Pool> {
    let class = lock_class(component);
    // A pooler may give us a session that another component has had, or an earlier process.
    let name = format!("cognate_composite_fence_{:016x}", rand::random::<u64>());
    let look = format!(
        "SELECT (CASE WHEN count(*) = 1 THEN '1'::text ELSE '{FENCED}' END)::int
            FROM cognate_composite.component WHERE name = '{component}' AND generation = {generation}"
    );
    let hold = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_lock_shared({class}, {generation});
            {look}; PREPARE {name} AS SELECT WHERE false; COMMIT"
    );
    let terms = Terms {
        hold: is_postgresql.then_some(hold),
        look: format!("PREPARE {name} AS {look}"),
        commit: format!("EXECUTE {name}; COMMIT"),
    };
    Pool::on(Some(terms), target, application_name(component, generation), connections_max)
}

/// The first half of the key of a component's advisory locks; the generation is the other one.
fn lock_class(component: &str) -> u32 {
    let digest = Sha256::digest(format!("cognate-composite:{component}"));
    // An `int` that needs no sign.
    u32::from_be_bytes(std::array::from_fn(|place| digest[place])) >> 1
}

/// The name of a component's connections. Those of a start have generation 0 until it has taken its
/// own, and are nobody's to end: whichever of two starts is the later one is not known yet.
pub(crate) fn application_name(component: &str, generation: u64) -> String {
    format!("cognate-composite:{component}:{generation}")
}

/// Ends the sessions of earlier processes of the component, where the database can; on PostgreSQL
/// returns once they have ended. A local transaction that wrote no slot (it only read, or began a
/// root and called nobody) meets no other fence.
pub(crate) async fn end_older(
    connection: &Connection,
    component: &str,
    generation: i64,
    is_postgresql: bool,
) -> Result<(), String> {
    let words = |error: Error| crate::database::in_words(&error);
    let older = older(connection, component, generation, is_postgresql).await.map_err(words)?;
    for pid in &older {
        match connection.query("SELECT pg_terminate_backend($1)", &[pid]).await {
            Err(error) if error.code().is_some_and(|code| code.code() == "0A000") => return Ok(()),
            ended => drop(ended.map_err(words)?),
        }
    }
    if !is_postgresql || older.is_empty() {
        return Ok(());
    }
    // A session is in this view until its last transaction is over.
    let left = "SELECT pid FROM pg_stat_activity WHERE pid = ANY($1)";
    for _ in 0..ENDING_LOOKS {
        if connection.query(left, &[&older]).await.map_err(words)?.is_empty() {
            return Ok(());
        }
        sleep(ENDING_PAUSE).await;
    }
    Err("the sessions of an earlier process were terminated in its database, and do not end".to_owned())
}

/// Whether an earlier process of the component, or what it has left behind, has been in a local
/// transaction for so long that a statement which waits for a lock may have given up because of
/// it. It is asked before a start has a generation, by which all that have one are earlier.
pub(crate) async fn is_earlier_at_work(connection: &Connection, component: &str) -> Result<bool, Error> {
    let is_postgresql = is_postgresql(connection).await?;
    let earlier = older(connection, component, GENERATION_MAX, is_postgresql).await?;
    let long = format!(
        "SELECT pid FROM pg_stat_activity
            WHERE pid = ANY($1::int[]) AND xact_start < now() - interval '{LONG_SECONDS} second'"
    );
    Ok(!connection.query(&long, &[&earlier]).await?.is_empty())
}

/// The sessions of earlier processes of the component, which are in the same database.
async fn older(
    connection: &Connection,
    component: &str,
    generation: i64,
    is_postgresql: bool,
) -> Result<Vec<i32>, Error> {
    let named = "SELECT pid, application_name FROM pg_stat_activity
        WHERE application_name IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()";
    let own = application_name(component, 0);
    let prefix = own.trim_end_matches('0');
    let is_older = |name: &str| {
        let its = name.strip_prefix(prefix).and_then(|its| its.parse::<i64>().ok());
        its.is_some_and(|its| (1..generation).contains(&its))
    };
    let sessions = connection.query(named, &[]).await?;
    let sessions = sessions.iter().filter(|row| is_older(row.get(1)));
    let mut older: Vec<i32> = sessions.map(|row| row.get(0)).collect();
    if is_postgresql {
        // A name may be cut, or changed.
        let holding = format!(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND classid = '{}'
                AND objid < '{generation}' AND pid <> pg_backend_pid()
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            lock_class(component)
        );
        older.extend(connection.query(&holding, &[]).await?.iter().map(|row| row.get::<_, i32>(0)));
    }
    older.sort_unstable();
    older.dedup();
    Ok(older)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_systems_are_not_taken_for_postgresql() {
        for version in [
            "PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc 12.2.0, 64-bit",
            "PostgreSQL 18.0, compiled by Visual C++ build 1944, 64-bit",
        ] {
            assert!(names_postgresql(version), "{version}");
        }
        for version in [
            "",
            "PostgreSQL 15.0 (Cognate 0.1.0)",
            "PostgreSQL 11.2-YB-2.18.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang, 64-bit",
            "CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/15 21:28:29, go1.22.2)",
        ] {
            assert!(!names_postgresql(version), "{version}");
        }
    }

    #[test]
    fn the_key_of_a_lock_is_an_int_without_a_sign() {
        for component in ["shop", "stock", "payment", "n0"] {
            assert!(i32::try_from(lock_class(component)).is_ok(), "{component}");
        }
        assert_ne!(lock_class("shop"), lock_class("stock"));
    }

    /// Those of a later start are not, and neither are those of a component whose name goes on, or
    /// of a start that has no generation yet.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sessions_of_earlier_processes_are_told_from_others_by_their_names() {
        const SESSIONS: [(&str, u64); 6] =
            [("solo", 1), ("solo", 2), ("solo", 3), ("solo", 12), ("solo-2", 1), ("solo", 0)];
        let folder = tempfile::tempdir().unwrap();
        let url = format!("embedded:{}", folder.path().join("database").display());
        let target = Target::open(&url).await.unwrap();
        let mut sessions = Vec::new();
        for (component, generation) in SESSIONS {
            let pool = Pool::new(target.clone(), application_name(component, generation), 1);
            let lease = pool.take().await.unwrap();
            let rows = lease.query("SELECT pg_backend_pid()", &[]).await.unwrap();
            sessions.push((rows[0].get::<_, i32>(0), lease, pool));
        }
        let mut earlier = vec![sessions[0].0, sessions[1].0];
        earlier.sort_unstable();
        assert_eq!(older(&sessions[2].1, "solo", 3, false).await.unwrap(), earlier);
        for (_, lease, pool) in sessions {
            lease.give_back();
            pool.close_idle();
        }
        target.close().await;
    }
}
