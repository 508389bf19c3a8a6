//! Closed branches: the local transactions of calls without undo, kept prepared until their root
//! ends (paper, §3.3).
//!
//! A branch writes its slot like any other call and then, instead of COMMIT, PREPARE TRANSACTION.
//! So what it has done survives a crash of component and database, holds its row locks, and is seen
//! by nobody.
//!
//! # Who knows of it
//!
//! Its slot is not to be seen either, so what the slot says is in the *journal*, durable before the
//! branch is prepared. The database lists branches by their names, which carry component,
//! generation and slot. A start takes up the branches that both know; one that the journal does not
//! know keeps the component from starting, since its root would be unknown.
//!
//! ```text
//! journal  {"held":["r","cognate-composite:stock:3:17:9f…",{facts}]}        flushed
//! database BEGIN; the service's SQL; slot 17; PREPARE TRANSACTION 'cognate-composite:stock:3:17:9f…'
//! answer 2xx, vote                                                          as of any other call
//! database COMMIT PREPARED                                                  slot 17 is seen, and freed with the root
//! ```
//!
//! # The fence
//!
//! A start cannot write its generation into slots of branches, whose rows are locked. Nobody else
//! can either; and when the branch has ended, the generation is written then ([`end`]). Two
//! processes never have the same journal, and a process without it does not start while there are
//! branches: so an older process ends no branch that a later one has taken up.

use std::sync::Arc;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::database::{Connection, Parameters, Pool};
use crate::name::RootId;
use crate::participant::{Outcome, Slot};
use crate::problem::Problem;

/// How the names of all branches begin.
const PREFIX: &str = "cognate-composite:";
/// Writes the generation into the slot of a branch that has ended, and says whose it is.
const ADOPT: &str = "UPDATE cognate_composite.slot SET generation = $3
    WHERE component = $1 AND id = $2 AND generation <= $3 RETURNING root";

/// Retires a free slot. Twice is as once, and a later process has seen to it already. One that
/// comes late leaves a branch's slot as it is.
const RETIRE: &str = "UPDATE cognate_composite.slot SET generation = 0
    WHERE component = $1 AND id = $2 AND generation = $3 AND root IS NULL";

/// A branch that the database has prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Branch {
    /// Its name in the database.
    pub(crate) name: String,
    /// Its slot.
    pub(crate) slot: Slot,
}

/// A name that no other branch has.
pub(crate) fn name(component: &str, generation: i64, slot: Slot) -> String {
    format!("{PREFIX}{component}:{generation}:{slot}:{:016x}", rand::random::<u64>())
}

/// The statement that prepares a branch.
pub(crate) fn prepare(name: &str) -> String {
    format!("PREPARE TRANSACTION {}", quoted(name))
}

fn quoted(name: &str) -> String {
    format!("'{}'", name.replace('\'', "''"))
}

/// The branches of a component that the database has prepared.
pub(crate) async fn prepared(connection: &Connection, component: &str) -> Result<Vec<Branch>, Error> {
    let list = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()";
    let start = format!("{PREFIX}{component}:");
    let rows = connection.query(list, &[]).await?;
    let names = rows.iter().map(|row| row.get::<_, String>(0));
    let branch = |name: String| {
        let slot = name.strip_prefix(&start)?.split(':').nth(1)?.parse().ok()?;
        Some(Branch { name, slot })
    };
    Ok(names.filter_map(branch).collect())
}

/// Whether the database has prepared a branch, once nobody can be preparing it any more. If it has
/// not, it never will: its slot is retired. After an error it may be retired later, so that it must
/// not be used again.
pub(crate) async fn is_prepared(
    pool: &Arc<Pool>,
    (component, generation): (&String, &i64),
    name: &str,
    slot: Slot,
) -> Result<bool, Problem> {
    let lease = pool.take().await?;
    let branches = lease.in_time(prepared(&lease, component)).await.map_err(crate::Error::into_problem)?;
    if branches.iter().any(|branch| branch.name == name) {
        lease.give_back();
        return Ok(true);
    }
    // An update waits for whoever has the row: a branch that is being prepared, or just was.
    // Whoever comes later finds a slot of another generation.
    let parameters: Parameters<'_> = &[component, &(slot as i32), generation];
    let retired = lease.in_time(lease.execute(RETIRE, parameters)).await;
    retired.map_err(crate::Error::into_problem)?;
    lease.give_back();
    Ok(false)
}

/// Ends a branch, and makes its slot this generation's. To end it again changes nothing.
pub(crate) async fn end(
    pool: &Arc<Pool>,
    (component, generation): (&String, &i64),
    (name, slot, root): (&str, Slot, &RootId),
    outcome: Outcome,
) -> Result<(), Problem> {
    let lease = pool.take().await?;
    let verb = if outcome == Outcome::Committed { "COMMIT" } else { "ROLLBACK" };
    let is_own = name.split(':').nth(2).is_some_and(|its| its == generation.to_string());
    // The name is no other branch's, so it may come late: there is nothing left then.
    let end = format!("{verb} PREPARED {}", quoted(name));
    match lease.in_time(lease.batch(&end)).await {
        Ok(()) if is_own => {
            lease.give_back();
            return Ok(());
        }
        Ok(()) => {}
        // It was ended before, and the answer was lost.
        Err(crate::Error::Database(error)) if error.code() == Some(&SqlState::UNDEFINED_OBJECT) => {}
        Err(error) => return Err(Problem::new(503, "database", error.into_problem().detail)),
    }
    let rows = lease.query(ADOPT, &[component, &(slot as i32), generation]).await;
    let rows = rows.map_err(|error| crate::Error::from(error).into_problem())?;
    lease.give_back();
    let found = rows.first().and_then(|row| row.get::<_, Option<String>>(0));
    match (outcome, found.as_deref() == Some(root.as_str())) {
        (Outcome::Committed, true) | (Outcome::Aborted | Outcome::Pending, false) => {}
        // Somebody has ended it by hand, the other way.
        _ => {
            tracing::error!(%root, slot, name, "this branch was to be ended by {verb} PREPARED, and was not")
        }
    }
    Ok(())
}

/// Components that have services without undo need a database that prepares transactions.
/// Looked at before a component is taken over: who does not start must end no process that runs.
pub(crate) async fn check_database(connection: &Connection) -> Result<(), String> {
    let rows = connection.query("SHOW max_prepared_transactions", &[]).await;
    let rows = rows.map_err(|error| crate::database::in_words(&error))?;
    match rows.first().map(|row| row.get::<_, String>(0)) {
        Some(most) if most == "0" => Err(
            "it has services without undo, and its database prepares no transactions (max_prepared_transactions is 0): \
             raise that, give them an undo, or declare that they only begin roots"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}
