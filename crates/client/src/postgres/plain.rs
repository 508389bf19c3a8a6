//! Plain PostgreSQL as a site: prepared transactions without siblings.
//!
//! # How
//!
//! Each instance inserts a row with the request's XID into `cognate_etx` as the first thing in its
//! transaction; its result goes there as the last thing before `PREPARE TRANSACTION
//! 'etx:<instance>:<token>:<xid>'`. The row's primary key is what keeps two executions apart, and,
//! once it is committed with the work itself, what a retry finds instead of executing again.
//!
//! ```text
//! BEGIN of an instance                     what it finds                            it replies
//!   pg_prepared_xacts has the XID          an instance is prepared, undecided       in doubt
//!   cognate_etx has the XID                the winner, with its result              decided, or forgotten
//!   its own INSERT waits for a second      an instance is active                    in doubt
//! ```
//!
//! In doubt is not for ever. If one execution has prepared at every site and stopped before its
//! COMMITs, whoever comes next commits it: `pg_prepared_xacts` shows instance and token at all
//! sites (`application::look`). And an execution that some site has refused to prepare (a
//! serialization failure) can never be prepared everywhere: its server rolls back at once what it
//! has prepared at the others. Only that server can: the site keeps no table that would tell
//! others. So exactly-once holds here as with Cognate: one execution commits, at all sites, and
//! everyone gets its result.
//!
//! # What is lost
//!
//! - *A retry is not a sibling.* While an instance is active or prepared at a plain site, nothing
//!   else of that request can run there. If its server stopped, or lost a site, after it had
//!   prepared at some sites and before it had at all, the request stays in doubt, and its locks
//!   stay, until an operator rolls back the prepared transactions of that instance (`ROLLBACK
//!   PREPARED`): safe if it is not prepared at every site and its server is known to be dead.
//!   Active ones end by themselves with their connection, or when they have been idle for [`IDLE`].
//! - *No stub.* Nothing but a client's retry heals what is in doubt.
//! - *No tables of siblings*, no tombstones: an XID used for another request is noticed only once
//!   the first is decided.
//! - *The fact stays as a row.* An acknowledgement empties the row of a request, and leaves it
//!   there; there is no high-water mark.
//! - XIDs have at most [`PLAIN_XID_BYTES_MAX`] bytes, because they go into the identifier of the
//!   prepared transaction.
//! - Logic that ends the transaction itself (COMMIT) is not noticed before its work is committed.
//!
//! It needs `max_prepared_transactions` above the number of requests at a time, and the right to
//! create its table (or the table).

use tokio_postgres::Error;

use super::{PostgresConnection, failed, in_words, is_lost, state};
use crate::etransaction::{Outcome, Refused, SiteReply, Table};
use crate::site::{Job, Look, Trouble};

/// Most bytes of an XID at a plain site.
pub const PLAIN_XID_BYTES_MAX: usize = 158;
/// How long an instance's transaction may be idle before the site ends it, as PostgreSQL writes it.
pub const IDLE: &str = "2min";

const TABLE: &str = "CREATE TABLE IF NOT EXISTS cognate_etx (xid text PRIMARY KEY, instance bigint NOT NULL, \
    request text NOT NULL, result text NOT NULL, forgotten boolean NOT NULL DEFAULT false)";
const FIND: &str = "SELECT instance, request, result, forgotten FROM cognate_etx WHERE xid = $1";
const ENTER: &str = "INSERT INTO cognate_etx (xid, instance, request, result) VALUES ($1, $2, $3, '')";
const RESULT: &str = "UPDATE cognate_etx SET result = $3 WHERE xid = $1 AND instance = $2";
const FORGET: &str = "UPDATE cognate_etx SET request = '', result = '', forgotten = true WHERE xid = $1";
const IN_DOUBT: &str =
    "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND gid LIKE 'etx:%'";

/// What an operator should know of such a site.
pub(super) fn described(version: &str) -> String {
    format!(
        "plain PostgreSQL {version}: prepared transactions without siblings; a retry waits while the request is in doubt"
    )
}

/// Looks whether the server is fit for it, and makes the table. Answers the version.
pub(super) async fn introduce(connection: &PostgresConnection) -> Result<String, Trouble> {
    let version: String = connection.query_one("SHOW server_version", &[]).await?.try_get(0)?;
    let most: String = connection.query_one("SHOW max_prepared_transactions", &[]).await?.try_get(0)?;
    if most == "0" {
        let why = format!(
            "this is plain PostgreSQL {version} with max_prepared_transactions = 0: set it above the number of requests at a time, or use Cognate"
        );
        return Err(Trouble(why.into()));
    }
    let is_there = "SELECT to_regclass('cognate_etx') IS NOT NULL";
    let has_table = async || connection.query_one(is_there, &[]).await?.try_get::<_, bool>(0);
    if !has_table().await? {
        // Somebody else may make it at the same time, which PostgreSQL reports as a duplicate.
        if let Err(error) = connection.batch(TABLE).await
            && (is_lost(&error) || !has_table().await?)
        {
            return Err(error.into());
        }
    }
    Ok(version)
}

/// A prepared transaction's identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Gid {
    instance: i64,
    token: String,
    xid: String,
}

impl Gid {
    fn parse(text: &str) -> Option<Gid> {
        let (instance, rest) = text.strip_prefix("etx:")?.split_once(':')?;
        let (token, xid) = rest.split_once(':')?;
        Some(Gid { instance: instance.parse().ok()?, token: token.to_owned(), xid: xid.to_owned() })
    }

    /// As a literal.
    fn quoted(&self) -> String {
        let Gid { instance, token, xid } = self;
        let text = format!("etx:{instance}:{token}:{xid}").replace('\'', "''");
        match text.contains('\\') {
            true => format!("E'{}'", text.replace('\\', "\\\\")),
            false => format!("'{text}'"),
        }
    }
}

/// The prepared instance of a request: there is at most one.
async fn in_doubt(connection: &PostgresConnection, xid: &str) -> Result<Option<Gid>, Error> {
    for row in connection.query(IN_DOUBT, &[]).await? {
        if let Some(gid) = Gid::parse(row.try_get(0)?).filter(|gid| gid.xid == xid) {
            return Ok(Some(gid));
        }
    }
    Ok(None)
}

enum Entry {
    Committed(Outcome),
    Forgotten,
}

async fn find(connection: &PostgresConnection, xid: &str) -> Result<Option<Entry>, Error> {
    let Some(row) = connection.query_opt(FIND, &[&xid]).await? else { return Ok(None) };
    if row.try_get(3)? {
        return Ok(Some(Entry::Forgotten));
    }
    let (winner, request, result) =
        (row.try_get(0)?, row.try_get::<_, &str>(1)?.into(), row.try_get::<_, &str>(2)?.into());
    Ok(Some(Entry::Committed(Outcome { winner, result, request })))
}

/// What stands against beginning an instance, if anything does. The prepared ones first: what is
/// committed meanwhile is found afterwards.
async fn obstacle(connection: &PostgresConnection, xid: &str) -> Result<Option<SiteReply>, Error> {
    let in_doubt = in_doubt(connection, xid).await?;
    Ok(match (find(connection, xid).await?, in_doubt) {
        (Some(Entry::Committed(outcome)), _) => Some(SiteReply::Decided(outcome)),
        (Some(Entry::Forgotten), _) => Some(SiteReply::Refused(Refused::Forgotten)),
        (None, Some(gid)) => Some(doubtful(&format!("instance {} is prepared and undecided", gid.instance))),
        (None, None) => None,
    })
}

fn doubtful(what: &str) -> SiteReply {
    let words =
        format!("{what} at a site of plain PostgreSQL, which has no siblings: nothing can run beside it");
    SiteReply::Refused(Refused::InDoubt(words.into()))
}

pub(super) async fn begin(connection: &PostgresConnection, job: &Job) -> SiteReply {
    if job.xid.len() > PLAIN_XID_BYTES_MAX {
        let words = format!(
            "plain PostgreSQL takes XIDs of at most {PLAIN_XID_BYTES_MAX} bytes, this has {}",
            job.xid.len()
        );
        return SiteReply::Refused(Refused::Failed(words.into()));
    }
    match obstacle(connection, &job.xid).await {
        Ok(None) => {}
        Ok(Some(reply)) => return reply,
        Err(error) => return failed(&error),
    }
    let error = match enter(connection, job).await {
        Ok(()) => return SiteReply::Begun,
        Err(error) => error,
    };
    if is_lost(&error) || connection.batch("ROLLBACK").await.is_err() {
        return SiteReply::Unreachable;
    }
    match (obstacle(connection, &job.xid).await, state(&error)) {
        (Ok(Some(reply)), _) => reply,
        (Ok(None), "55P03") => doubtful("another instance is active"),
        (Ok(None), _) => failed(&error),
        (Err(error), _) => failed(&error),
    }
}

async fn enter(connection: &PostgresConnection, job: &Job) -> Result<(), Error> {
    connection
        .batch(&format!(
            "BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL lock_timeout = '1s'; \
             SET LOCAL idle_in_transaction_session_timeout = '{IDLE}'"
        ))
        .await?;
    connection.execute(ENTER, &[&&*job.xid, &job.instance, &&*job.request]).await?;
    connection.batch("SET LOCAL lock_timeout TO DEFAULT").await
}

/// The identifier of the execution that stores this result.
fn gid(instance: i64, xid: &str, stored: &str) -> Gid {
    let token = stored.split_once(' ').map_or(stored, |(token, _)| token).to_owned();
    Gid { instance, token, xid: xid.to_owned() }
}

/// An error of PREPARE TRANSACTION. Only those of the transaction itself (and of its statements)
/// mean for sure that it is not prepared.
fn not_prepared(error: &Error) -> SiteReply {
    match state(error).get(..2) {
        Some("22" | "23" | "25" | "40" | "42" | "54" | "55") => failed(error),
        _ if state(error) == "57014" => failed(error),
        _ => SiteReply::Unreachable,
    }
}

pub(super) async fn prepare(connection: &PostgresConnection, job: &Job, stored: &str) -> SiteReply {
    let gid = gid(job.instance, &job.xid, stored);
    match connection.execute(RESULT, &[&&*job.xid, &job.instance, &stored]).await {
        Ok(1) => {}
        Ok(_) => {
            let words = "the request's row is gone: the logic has ended the transaction itself";
            return SiteReply::Refused(Refused::Failed(words.into()));
        }
        Err(error) => return failed(&error),
    }
    match connection.batch(&format!("PREPARE TRANSACTION {}", gid.quoted())).await {
        Ok(()) => {
            let prepared = [(job.instance, stored.into())].into_iter().collect();
            SiteReply::Table(Table { prepared, highest: job.instance, ..Table::default() })
        }
        Err(error) => not_prepared(&error),
    }
}

/// A site without siblings keeps no tables of what it has refused. Of this execution it can tell:
/// its transaction is over, so what is not prepared never will be.
pub(super) async fn refuse(connection: &PostgresConnection, job: &Job, stored: Option<&str>) -> SiteReply {
    let Some(stored) = stored else { return SiteReply::Table(Table::default()) };
    match in_doubt(connection, &job.xid).await {
        Ok(Some(found)) if found == gid(job.instance, &job.xid, stored) => {
            let prepared = [(job.instance, stored.into())].into_iter().collect();
            SiteReply::Table(Table { prepared, highest: job.instance, ..Table::default() })
        }
        Ok(_) => SiteReply::Table(Table { never: Some(stored.into()), ..Table::default() }),
        Err(error) => failed(&error),
    }
}

pub(super) async fn withdraw(
    connection: &PostgresConnection,
    xid: &str,
    instance: i64,
    stored: &str,
) -> SiteReply {
    match connection.batch(&format!("ROLLBACK PREPARED {}", gid(instance, xid, stored).quoted())).await {
        Ok(()) => SiteReply::Withdrawn,
        Err(error) if state(&error) == "42704" => SiteReply::Withdrawn,
        Err(error) => failed(&error),
    }
}

pub(super) async fn commit(connection: &PostgresConnection, xid: &str, winner: i64) -> SiteReply {
    let committing = async {
        if let Some(gid) = in_doubt(connection, xid).await?.filter(|gid| gid.instance == winner) {
            match connection.batch(&format!("COMMIT PREPARED {}", gid.quoted())).await {
                // Somebody else was quicker.
                Err(error) if state(&error) == "42704" => {}
                other => return other.map(|()| SiteReply::Committed),
            }
        }
        Ok(match find(connection, xid).await? {
            Some(Entry::Committed(outcome)) if outcome.winner == winner => SiteReply::Committed,
            Some(Entry::Committed(outcome)) => SiteReply::Refused(Refused::Taken { highest: outcome.winner }),
            Some(Entry::Forgotten) => SiteReply::Refused(Refused::Forgotten),
            None => SiteReply::Refused(Refused::Taken { highest: 0 }),
        })
    };
    let outcome: Result<SiteReply, Error> = committing.await;
    outcome.unwrap_or_else(|error| failed(&error))
}

pub(super) async fn look(connection: &PostgresConnection, xid: &str) -> Result<Look, Trouble> {
    let in_doubt = in_doubt(connection, xid).await?;
    Ok(match (find(connection, xid).await?, in_doubt) {
        (Some(Entry::Committed(outcome)), _) => Look::Committed(outcome.winner),
        (Some(Entry::Forgotten), _) => Look::Forgotten,
        (None, Some(gid)) => Look::Undecided([(gid.instance, gid.token)].into_iter().collect()),
        (None, None) => Look::Unknown,
    })
}

pub(super) async fn forget(connection: &PostgresConnection, xid: &str) -> Result<(), Trouble> {
    match connection.execute(FORGET, &[&xid]).await {
        Ok(1) => Ok(()),
        Ok(_) => Err(Trouble("the request is not known".into())),
        Err(error) => Err(Trouble(in_words(&error).into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_quoted_and_read_back() {
        let gid = Gid { instance: 1024, token: "0f".to_owned(), xid: "it's: a/1".to_owned() };
        assert_eq!(gid.quoted(), "'etx:1024:0f:it''s: a/1'");
        assert_eq!(Gid::parse("etx:1024:0f:it's: a/1"), Some(gid.clone()));
        let backslash = Gid { xid: "a\\b".to_owned(), ..gid };
        assert_eq!(backslash.quoted(), "E'etx:1024:0f:a\\\\b'");
        assert_eq!([Gid::parse("other"), Gid::parse("etx:x:0f:a")], [None, None]);
        let longest = Gid { instance: i64::MAX, token: "f".repeat(16), xid: "x".repeat(PLAIN_XID_BYTES_MAX) };
        assert!(longest.quoted().len() - 2 <= 199);
    }
}
