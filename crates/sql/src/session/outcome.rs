//! What became of a request: `cognate_outcome`.
//!
//! *By its name alone* it is looked up, and nothing changes: what is unknown may be ordered yet,
//! and what was aborted may be under way again under the same name.
//!
//! *With a token*, of something that came before the request (`cognate_token()`, or that of a
//! commit), the answer is for good: if nobody has committed under the name, it is closed in the
//! order of all nodes, and nobody will (`cognate_engine::Database::close_name`). It takes a token
//! since names are remembered for so many positions only: of what is forgotten nobody knows any
//! more whether it has happened. And it is asked for, since who only looks must not end what
//! somebody else is about to commit.

use cognate_engine::Transaction;
use cognate_engine::sibling::Xid;

use super::SqlDatabase;
use super::cluster::{ANSWER_MAX, REQUEST_ID_MAX, check_ordered, position_of};
use super::interrupt::Interrupts;
use crate::blocking::aside;
use crate::error::{Result, SqlError, sqlstate};

/// What to do about a decision whose answer was lost.
const DECIDE_AGAIN: &str = "Decide again, at this node or at another one: 42704, or 42710 under the name of what was \
     prepared, says then that it has been decided.";
const COMMITTED: &str = "committed";
const ABORTED: &str = "aborted";
const UNKNOWN: &str = "unknown";

/// `cognate_outcome(request id)`: of the name that a client has given, or of a transaction's id.
pub(super) fn outcome(database: &SqlDatabase, id: &str) -> &'static str {
    let engine = database.engine();
    let by_number = || id.parse().ok().and_then(|transaction| engine.outcome(transaction));
    match aside(|| engine.outcome_of(id).or_else(by_number)) {
        Some((_, true)) => COMMITTED,
        Some((_, false)) => ABORTED,
        None => UNKNOWN,
    }
}

/// `cognate_outcome(request id, token)`: the same for good, or unknown if that cannot be had at
/// present, or if the token's position is longer ago than is remembered.
///
/// # Errors
/// 22023 for what is no token of this cluster, or of a position that nothing has; 25006 at a node
/// that differs from the others; 0A000 in a program whose turn it is; 53400 if too many wait so
/// already; what interrupts the wait.
pub(super) fn outcome_for_good(
    database: &SqlDatabase,
    interrupts: &Interrupts,
    transaction: Option<&Transaction>,
    id: &str,
    token: &str,
) -> Result<&'static str> {
    let refused = |what: String| SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, what);
    let since = position_of(database, token).map_err(|_| {
        refused(format!("cognate_outcome needs a token of this cluster, which \"{token}\" is not"))
            .with_hint("SELECT cognate_token() tells one, before the request.")
    })?;
    if id.len() > REQUEST_ID_MAX {
        return Err(refused(format!("no request has a name of more than {REQUEST_ID_MAX} bytes")));
    }
    if transaction.is_some_and(Transaction::is_ordered) {
        // Nothing is ordered before it has ended.
        return Err(SqlError::unsupported("closing a request's name in a program of all nodes"));
    }
    database.nodes().check_alike()?;
    // What has committed has done so for good. Where the order answers nobody, nothing is closed.
    let told = outcome(database, id);
    if told == COMMITTED || database.nodes().is_alone() {
        return Ok(if told == COMMITTED { told } else { UNKNOWN });
    }
    let _counted = database.advisory().thread().ok_or_else(|| {
        let what = "too many statements wait in threads of their own";
        SqlError::new(sqlstate::CONFIGURATION_LIMIT_EXCEEDED, what).with_hint("Ask again.")
    })?;
    let closing = close(database, id, since);
    if interrupts.wait_in_thread("closing a request's name with one thread", closing)? {
        return Ok(ABORTED);
    }
    // What was prepared may have been rolled back by now, and nobody has closed its name then.
    Ok(if outcome(database, id) == COMMITTED { COMMITTED } else { UNKNOWN })
}

/// Whether a name was closed: it may be yet if not, since this waits for a bounded time.
async fn close(database: &SqlDatabase, id: &str, since: u64) -> Result<bool> {
    let engine = database.engine();
    let closing = async {
        if since > engine.applied() {
            // It would be closed as of what this node has, which is before the token.
            check_ordered(database, since, "the token of cognate_outcome").await?;
            engine.wait_applied(since).await?;
        }
        match engine.close_name(id, since).await {
            Err(cognate_engine::Error::NotOrdered) => Ok(false),
            closed => closed.map_err(SqlError::from),
        }
    };
    tokio::select! {
        closed = tokio::time::timeout(ANSWER_MAX, closing) => closed.unwrap_or(Ok(false)),
        () = database.nodes().until_alone() => Ok(false),
    }
}

/// The name that a client gives a request, if it gives one. 22023 if that is too long.
pub(super) fn fitting_name(given: &str) -> Result<Option<String>> {
    if given.len() > REQUEST_ID_MAX {
        return Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("cognate.request_id has more than {REQUEST_ID_MAX} bytes"),
        ));
    }
    Ok((!given.is_empty()).then(|| given.to_owned()))
}

/// What a node asks the order of all nodes for: where no answer comes, its client is told how to
/// find out what became of that.
#[derive(Clone, Copy)]
pub(super) enum Asked<'a> {
    /// That what has this name is done.
    Request(&'a str),
    /// That the transaction of this name is prepared.
    Prepare(&'a str),
    /// That what is prepared under this identifier is decided; and the name of that transaction, if
    /// it is prepared here.
    Decision(&'a str, Option<&'a str>),
    /// Something about this family.
    OfFamily(&'a Xid),
}

/// 08007: nobody knows yet what becomes of what was asked for, of which nothing was ordered up to
/// this position.
#[cold]
pub(super) fn unanswered(database: &SqlDatabase, asked: Asked<'_>, since: u64) -> SqlError {
    let unknown = SqlError::new(
        sqlstate::TRANSACTION_RESOLUTION_UNKNOWN,
        "it is not known whether the transaction commits: the cluster does not answer",
    );
    let of_request = |name: &str| format!("The request is \"{name}\".");
    let (detail, hint) = match asked {
        Asked::Request(name) => (of_request(name), advice(database, name, since)),
        Asked::Prepare(name) => {
            let advice = advice(database, name, since);
            let shown = "While it is prepared, that is unknown, and pg_prepared_xacts shows it.";
            (of_request(name), format!("{advice} {shown}"))
        }
        Asked::Decision(_, Some(name)) => {
            let until = "That is unknown until the prepared transaction is decided.";
            (of_request(name), format!("{} {until} {DECIDE_AGAIN}", asks(name)))
        }
        Asked::Decision(identifier, None) => {
            (format!("The prepared transaction is \"{identifier}\"."), DECIDE_AGAIN.to_owned())
        }
        Asked::OfFamily(xid) => {
            let again = "SHOW MIPT, at this node or at another one, tells what became of it. Or ask again: \
                         what has happened counts once.";
            (format!("The family is \"{}\".", xid.as_str()), again.to_owned())
        }
    };
    unknown.with_detail(detail).with_hint(hint)
}

fn asks(name: &str) -> String {
    format!("Ask another node: SELECT cognate_outcome('{}').", name.replace('\'', "''"))
}

/// What to do about a request whose answer was lost: nothing was ordered under its name up to this
/// position.
fn advice(database: &SqlDatabase, name: &str, since: u64) -> String {
    let asks = asks(name);
    let name = name.replace('\'', "''");
    match database.nodes().token(since) {
        Some(token) => format!(
            "{asks} While that is unknown, it may be committed yet; SELECT cognate_outcome('{name}', \
             '{token}') sees to it that it is not."
        ),
        None => asks,
    }
}
