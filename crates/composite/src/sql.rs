//! The local transaction of a call, as its service uses it.
//!
//! It begins with the first statement, in the same group of messages. A first one that is given up
//! takes its connection with it: nobody knows whether anything has begun. It ends with the last
//! statement of ours (the slot), which COMMIT goes along with (see `along`). If a statement has
//! failed, that one fails, too, and COMMIT is not tried: the block has to be rolled back. Where no
//! slot is written, our statement is in the same message as COMMIT (see `slots`), and the same
//! holds. Over a connection on which nothing goes along, and behind a statement that was given up,
//! COMMIT is a message of its own in the same round trip: a failed statement makes it a rollback,
//! on PostgreSQL as on Cognate, and our own statement has failed before it. So a commit is never
//! believed that was none.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Row, Statement};

use crate::along::Ended;
use crate::database::{Connection, Lease, Parameters, Pool};
use crate::fault;
use crate::problem::{Error, Problem, Result};

/// How a local transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Reads and writes.
    Serializable,
    /// The same, by declaration: each statement sees what is committed when it begins.
    ReadCommitted,
    /// Only reads.
    ReadOnly,
}

impl Begin {
    fn statement(self, connection: &Connection) -> &'static str {
        match self {
            Begin::ReadCommitted if connection.is_read_committed() => "BEGIN",
            Begin::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE",
            Begin::ReadCommitted => "BEGIN ISOLATION LEVEL READ COMMITTED",
            Begin::ReadOnly => "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
        }
    }
}

/// How a local transaction ends.
#[derive(Debug, Clone, Copy)]
enum End<'a> {
    Commit,
    /// By a message of several statements, of which the first one is ours.
    Fenced(&'a str),
    /// By the statement that prepares it.
    Prepare(&'a str),
}

impl<'a> End<'a> {
    fn text(self) -> &'a str {
        match self {
            End::Commit => "COMMIT",
            End::Fenced(text) | End::Prepare(text) => text,
        }
    }

    /// What can go along with a statement.
    fn along(self) -> Option<Cow<'static, str>> {
        match self {
            End::Commit => Some(Cow::Borrowed("COMMIT")),
            End::Prepare(text) => Some(Cow::Owned(text.to_owned())),
            End::Fenced(_) => None,
        }
    }
}

/// How a COMMIT went wrong.
#[derive(Debug)]
pub(crate) enum NotCommitted {
    /// It is rolled back.
    RolledBack(Error),
    /// Its answer was lost.
    Unknown,
}

/// SQL in a local transaction.
#[derive(Debug)]
pub struct Sql {
    pool: Arc<Pool>,
    begin: Begin,
    is_within: bool,
    lease: Mutex<Option<Lease>>,
}

impl Sql {
    /// `is_within`: another call of the same root, which waits for this one, may have a connection.
    pub(crate) fn new(pool: &Arc<Pool>, begin: Begin, is_within: bool) -> Sql {
        Sql { pool: Arc::clone(pool), begin, is_within, lease: Mutex::new(None) }
    }

    /// In a local transaction that is under way on this connection.
    pub(crate) fn begun(pool: &Arc<Pool>, lease: Lease) -> Sql {
        let (begin, lease) = (Begin::Serializable, Mutex::new(Some(lease)));
        Sql { pool: Arc::clone(pool), begin, is_within: false, lease }
    }

    /// The connection, with whatever is under way on it.
    pub(crate) async fn take_lease(&self) -> Result<Lease> {
        let lease = self.lease.lock().await.take();
        lease.ok_or_else(|| Problem::new(503, "database", "the connection is gone").into())
    }

    /// A connection on which nothing is begun, and which has this statement prepared. It is not
    /// this local transaction's until that is known to have begun: if the statement makes no sense,
    /// or whoever wants it goes away, and the service goes on all the same, its next statement
    /// would be committed by itself.
    async fn lease_for(&self, sql: &str) -> Result<Lease> {
        let lease = self.pool.take_as(self.is_within).await?;
        let prepared = lease.statement(sql).await;
        match prepared {
            Ok(_) => Ok(lease),
            Err(error) => {
                lease.give_back();
                Err(error.into())
            }
        }
    }

    /// All rows.
    ///
    /// # Errors
    /// The database's; the component's database is away; the statement would begin or end a
    /// transaction.
    pub async fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>> {
        check(sql)?;
        let mut slot = self.lease.lock().await;
        match &mut *slot {
            Some(lease) => Ok(lease.query(sql, parameters).await?),
            None => {
                let lease = self.lease_for(sql).await?;
                let begin = Cow::Borrowed(self.begin.statement(&lease));
                let (begun, rows) = tokio::join!(
                    biased;
                    lease.begin(begin),
                    lease.query(sql, parameters),
                );
                if begun.is_ok() && lease.has_begun() {
                    *slot = Some(lease);
                }
                begun?;
                Ok(rows?)
            }
        }
    }

    /// The number of rows that were changed.
    ///
    /// # Errors
    /// As [`Sql::query`].
    pub async fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Result<u64> {
        check(sql)?;
        let mut slot = self.lease.lock().await;
        match &mut *slot {
            Some(lease) => Ok(lease.execute(sql, parameters).await?),
            None => {
                let lease = self.lease_for(sql).await?;
                let begin = Cow::Borrowed(self.begin.statement(&lease));
                let (begun, changed) = tokio::join!(
                    biased;
                    lease.begin(begin),
                    lease.execute(sql, parameters),
                );
                if begun.is_ok() && lease.has_begun() {
                    *slot = Some(lease);
                }
                begun?;
                Ok(changed?)
            }
        }
    }

    /// The only row, or none.
    ///
    /// # Errors
    /// As [`Sql::query`]; there are more rows.
    pub async fn query_opt(&self, sql: &str, parameters: Parameters<'_>) -> Result<Option<Row>> {
        let mut rows = self.query(sql, parameters).await?;
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            more => Err(Problem::new(400, "failed", format!("{more} rows where one was expected")).into()),
        }
    }

    /// The only row.
    ///
    /// # Errors
    /// As [`Sql::query`]; there is not exactly one row.
    pub async fn query_one(&self, sql: &str, parameters: Parameters<'_>) -> Result<Row> {
        let row = self.query_opt(sql, parameters).await?;
        row.ok_or_else(|| Problem::new(400, "failed", "no row where one was expected").into())
    }

    /// Runs our own statements and COMMIT, in one round trip.
    pub(crate) async fn commit(
        &self,
        statements: &[(&str, Parameters<'_>)],
    ) -> std::result::Result<(), NotCommitted> {
        self.end(statements, End::Commit).await
    }

    /// The same, if no later process has taken the component over.
    pub(crate) async fn commit_fenced(
        &self,
        statements: &[(&str, Parameters<'_>)],
    ) -> std::result::Result<(), NotCommitted> {
        self.end(statements, End::Fenced(self.pool.fenced_commit())).await
    }

    /// The same with another end: the statement that prepares the local transaction.
    pub(crate) async fn end_with(
        &self,
        statements: &[(&str, Parameters<'_>)],
        end: &str,
    ) -> std::result::Result<(), NotCommitted> {
        self.end(statements, End::Prepare(end)).await
    }

    async fn end(
        &self,
        statements: &[(&str, Parameters<'_>)],
        end: End<'_>,
    ) -> std::result::Result<(), NotCommitted> {
        let is_fenced = matches!(end, End::Fenced(_));
        let rolled_back = |error: Error| NotCommitted::RolledBack(error);
        let mut slot = self.lease.lock().await;
        let is_begun = slot.is_some();
        if !is_begun {
            if statements.is_empty() && !is_fenced {
                return Ok(());
            }
            *slot =
                Some(self.pool.take_as(self.is_within).await.map_err(|problem| rolled_back(problem.into()))?);
        }
        let Some(lease) = slot.take() else { return Ok(()) };
        let mut prepared = Vec::with_capacity(statements.len());
        for (sql, parameters) in statements {
            let statement = lease.statement(sql).await.map_err(|error| rolled_back(error.into()))?;
            prepared.push((*sql, statement, *parameters));
        }
        let along = end.along().filter(|_| !prepared.is_empty());
        let goes_along = along.is_some_and(|along| lease.ends_with(prepared.len(), along));
        let begin = if is_begun { None } else { Some(self.begin.statement(&lease)) };
        let text = if goes_along { None } else { Some(end.text()) };
        let (first, committed) = run(&lease, begin, &prepared, text).await;
        if goes_along {
            return ended(lease, first).await;
        }
        match (first, committed) {
            (None, Ok(())) => {
                lease.give_back();
                Ok(())
            }
            // A statement failed, so COMMIT has rolled back; if its answer is lost, too, nothing is
            // committed anyway.
            (Some(error), Ok(())) if error.code().is_some() => {
                lease.give_back();
                Err(rolled_back(error.into()))
            }
            (Some(error), _) if error.code().is_some() => Err(rolled_back(error.into())),
            (_, Err(error)) if is_unprepared(&error) => Err(rolled_back(error.into())),
            (_, Err(error)) if is_known(&error) => {
                match is_fenced {
                    true => lease.roll_back().await,
                    false => lease.give_back(),
                }
                Err(rolled_back(error.into()))
            }
            _ => Err(NotCommitted::Unknown),
        }
    }

    /// Rolls back, if anything was begun.
    pub(crate) async fn roll_back(&self) {
        let lease = self.lease.lock().await.take();
        if let Some(lease) = lease {
            lease.roll_back().await;
        }
    }
}

/// Refuses what would begin or end a transaction: a service's own is begun and ended around it, and
/// what it has done is to be committed with its slot or not at all.
fn check(sql: &str) -> Result<()> {
    let (first, rest) = next_word(sql);
    let is = |word: &str, text: &str| word.eq_ignore_ascii_case(text);
    let is_refused = match first.len() {
        3 => is(first, "end"),
        5 => is(first, "begin") || is(first, "start") || is(first, "abort"),
        6 => is(first, "commit"),
        7 => is(first, "prepare") && is(next_word(rest).0, "transaction"),
        8 => is(first, "rollback") && !is_to_savepoint(rest),
        _ => false,
    };
    match is_refused {
        true => {
            let why = format!("{first} is no statement of a service: its transaction is its component's");
            Err(Problem::new(503, "defect", why).into())
        }
        false => Ok(()),
    }
}

/// Whether ROLLBACK goes on like this: back to a savepoint one may go.
fn is_to_savepoint(sql: &str) -> bool {
    let is = |word: &str, text: &str| word.eq_ignore_ascii_case(text);
    let (word, rest) = next_word(sql);
    let is_noise = is(word, "work") || is(word, "transaction");
    is(if is_noise { next_word(rest).0 } else { word }, "to")
}

/// The word that a statement begins with, or none, and what is behind it.
fn next_word(sql: &str) -> (&str, &str) {
    let sql = from_first_word(sql);
    let end = sql.find(|letter: char| !letter.is_ascii_alphabetic());
    sql.split_at(end.unwrap_or(sql.len()))
}

/// A statement without the comments before its first word: there any word may stand.
fn from_first_word(mut sql: &str) -> &str {
    loop {
        sql = sql.trim_start_matches(|letter: char| letter.is_whitespace() || letter == ';');
        if sql.starts_with("--") {
            sql = sql.find(['\n', '\r']).map_or("", |end| &sql[end..]);
        } else if sql.starts_with("/*") {
            sql = behind_comment(sql);
        } else {
            return sql;
        }
    }
}

/// What is behind a comment that this begins with. Comments may have others in them.
fn behind_comment(mut sql: &str) -> &str {
    let mut depth = 0_usize;
    loop {
        if let Some(inside) = sql.strip_prefix("/*") {
            (sql, depth) = (inside, depth + 1);
        } else if let Some(outside) = sql.strip_prefix("*/") {
            (sql, depth) = (outside, depth - 1);
            if depth == 0 {
                return sql;
            }
        } else {
            let mut letters = sql.chars();
            if letters.next().is_none() {
                return sql;
            }
            sql = letters.as_str();
        }
    }
}

/// Runs our own statements, after what begins the transaction and before what ends it, unless that
/// goes along, in one round trip. Answers the first error before the end, and what came of the end.
async fn run(
    lease: &Lease,
    begin: Option<&'static str>,
    prepared: &[(&str, Statement, Parameters<'_>)],
    end: Option<&str>,
) -> (Option<tokio_postgres::Error>, std::result::Result<(), tokio_postgres::Error>) {
    fault::point("commit-before");
    let begun = async {
        let Some(begin) = begin else { return Ok(()) };
        match prepared.len() {
            0 => lease.batch(begin).await,
            1 => lease.begin(Cow::Borrowed(begin)).await,
            // Without a name nothing is in its way: if it failed, those behind the first statement
            // would be committed by themselves.
            _ => lease.begin(Cow::Owned(begin.to_owned())).await,
        }
    };
    let ours = prepared
        .iter()
        .map(|(sql, statement, parameters)| lease.query_prepared((*sql, statement), parameters));
    let committed = async {
        let Some(end) = end else { return Ok(()) };
        lease.batch(end).await
    };
    let (begun, ours, committed) = tokio::join!(biased; begun, join_all(ours), committed);
    fault::point("commit-after");
    (begun.err().or_else(|| ours.into_iter().find_map(|one| one.err())), committed)
}

/// What has become of a transaction whose end went along with the last statement of ours, by the
/// first error that there was.
async fn ended(lease: Lease, first: Option<tokio_postgres::Error>) -> std::result::Result<(), NotCommitted> {
    let ended = lease.ended();
    match first {
        None if ended == Ended::Done => {
            lease.give_back();
            Ok(())
        }
        // The server would not have gone on to the end, or has rolled back there.
        Some(error) if is_known(&error) && ended != Ended::Done => {
            // What was cancelled may not have come to the end.
            let is_over = ended == Ended::Failed && error.code() != Some(&SqlState::QUERY_CANCELED);
            match is_over {
                _ if is_unprepared(&error) => drop(lease),
                true => lease.give_back(),
                false => lease.roll_back().await,
            }
            Err(NotCommitted::RolledBack(error.into()))
        }
        _ => Err(NotCommitted::Unknown),
    }
}

/// Whether somebody has made the connection forget what was prepared on it: it is closed.
fn is_unprepared(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME)
}

/// Whether an error of COMMIT says that it was rolled back.
fn is_known(error: &tokio_postgres::Error) -> bool {
    let Some(code) = error.code() else { return false };
    !code.code().starts_with("08") && !code.code().starts_with("57P") && !code.code().starts_with("58")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures_util::FutureExt;

    use super::*;
    use crate::database::Target;

    const ENTER: &str = "INSERT INTO word VALUES ($1)";
    const OURS: &str = "INSERT INTO ours VALUES ($1)";

    #[test]
    fn a_service_neither_begins_nor_ends_a_transaction() {
        for refused in [
            "COMMIT",
            "  commit and chain",
            "END",
            "BEGIN",
            "start transaction",
            "Abort;",
            "ROLLBACK",
            "rollback work",
            "PREPARE TRANSACTION 'a'",
            "ROLLBACK PREPARED 'a'",
            ";COMMIT",
            "-- all is well\nCOMMIT",
            "--\rCOMMIT",
            "/* all /* is */ well */ -- so\n /**/COMMIT",
            "ROLLBACK /* to the beginning */",
            "ROLLBACK; -- to the beginning",
            "PREPARE/* for all */TRANSACTION 'a'",
        ] {
            assert!(check(refused).is_err(), "{refused}");
        }
        for taken in [
            "",
            "SELECT 1",
            "rollback to savepoint a",
            "ROLLBACK WORK TO a",
            "SAVEPOINT a",
            "PREPARE a AS SELECT 1",
            "UPDATE ends SET begin = 1",
            "ENDING",
            "-- start of a purchase\nINSERT INTO purchase VALUES (1)",
            "ROLLBACK WORK /* back */ TO a",
            "/* commit /* and */ end */ SELECT 1",
            "-- commit",
            "/* commit",
            "/* commit /* */",
        ] {
            assert!(check(taken).is_ok(), "{taken}");
        }
    }

    /// One connection to a new database. What is ours is to be a word, too, at the end.
    async fn pool(folder: &Path) -> Arc<Pool> {
        let url = format!("embedded:{}", folder.join("database").display());
        let pool = Pool::new(Target::open(&url).await.unwrap(), "test".to_owned(), 1);
        let lease = pool.take().await.unwrap();
        for table in [
            "CREATE TABLE word (n int PRIMARY KEY)",
            "CREATE TABLE ours (n int PRIMARY KEY REFERENCES word (n) DEFERRABLE INITIALLY DEFERRED)",
        ] {
            lease.batch(table).await.unwrap();
        }
        lease.give_back();
        pool
    }

    async fn backend(pool: &Arc<Pool>) -> i32 {
        let lease = pool.take().await.unwrap();
        let rows = lease.query("SELECT pg_backend_pid()", &[]).await.unwrap();
        lease.give_back();
        rows[0].get(0)
    }

    async fn words(pool: &Arc<Pool>) -> Vec<i32> {
        let sql = Sql::new(pool, Begin::ReadOnly, false);
        let rows = sql.query("SELECT n FROM word ORDER BY n", &[]).await.unwrap();
        sql.roll_back().await;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// What nobody waits for any more may not even have left when the transaction ends: here it has
    /// not, since the connection's task has had no time.
    #[tokio::test]
    async fn a_statement_that_was_given_up_ends_with_its_transaction() {
        let folder = tempfile::tempdir().unwrap();
        let pool = pool(folder.path()).await;
        // All statements are prepared from here on.
        let sql = Sql::new(&pool, Begin::Serializable, false);
        assert_eq!(sql.execute(ENTER, &[&0_i32]).await.unwrap(), 1);
        sql.commit(&[(OURS, &[&0_i32])]).await.unwrap();
        // Ours fails.
        let sql = Sql::new(&pool, Begin::Serializable, false);
        assert_eq!(sql.execute(ENTER, &[&1_i32]).await.unwrap(), 1);
        assert!(sql.execute(ENTER, &[&2_i32]).now_or_never().is_none(), "it is answered already");
        let ended = sql.commit(&[(OURS, &[&0_i32])]).await;
        assert!(matches!(ended, Err(NotCommitted::RolledBack(_))), "{ended:?}");
        assert_eq!(words(&pool).await, [0]);
        // It does not.
        let sql = Sql::new(&pool, Begin::Serializable, false);
        assert_eq!(sql.execute(ENTER, &[&3_i32]).await.unwrap(), 1);
        assert!(sql.execute(ENTER, &[&4_i32]).now_or_never().is_none(), "it is answered already");
        sql.commit(&[(OURS, &[&3_i32])]).await.unwrap();
        assert_eq!(words(&pool).await, [0, 3, 4]);
        // The first one takes its connection with it.
        let sql = Sql::new(&pool, Begin::Serializable, false);
        assert!(sql.execute(ENTER, &[&5_i32]).now_or_never().is_none(), "it is answered already");
        assert_eq!(sql.execute(ENTER, &[&6_i32]).await.unwrap(), 1);
        sql.commit(&[(OURS, &[&6_i32])]).await.unwrap();
        assert_eq!(words(&pool).await, [0, 3, 4, 6]);
        pool.close_idle();
        pool.target().clone().close().await;
    }

    /// What a service has written wrongly is not waited out: an undo that has is parked.
    #[tokio::test]
    async fn what_the_driver_refuses_is_no_database_that_is_away() {
        let folder = tempfile::tempdir().unwrap();
        let pool = pool(folder.path()).await;
        let reason = |error: Error| error.into_problem().reason;
        let sql = Sql::new(&pool, Begin::Serializable, false);
        assert_eq!(reason(sql.execute(ENTER, &[&1_i64]).await.unwrap_err()), "defect");
        assert_eq!(reason(sql.execute(ENTER, &[]).await.unwrap_err()), "defect");
        assert_eq!(sql.execute(ENTER, &[&1_i32]).await.unwrap(), 1);
        let rows = sql.query("SELECT n FROM word", &[]).await.unwrap();
        assert_eq!(reason(rows[0].try_get::<_, String>(0).unwrap_err().into()), "defect");
        assert_eq!(reason(rows[0].try_get::<_, i32>("m").unwrap_err().into()), "defect");
        assert_eq!(reason(sql.query("SELECT 1\0", &[]).await.unwrap_err()), "defect");
        assert_eq!(reason(tokio_postgres::Error::__private_api_timeout().into()), "database");
        // Nor is what is wrong with a connection: once that is mended, the undo goes on.
        let no_address = "host=localhost port=any".parse::<tokio_postgres::Config>().unwrap_err();
        assert_eq!(reason(no_address.into()), "database");
        sql.roll_back().await;
        pool.close_idle();
        pool.target().clone().close().await;
    }

    /// Whatever it was that has failed, the connection is idle afterwards, and the same one.
    #[tokio::test]
    async fn a_transaction_that_fails_leaves_its_connection_idle() {
        let folder = tempfile::tempdir().unwrap();
        let pool = pool(folder.path()).await;
        let own = backend(&pool).await;
        let both = async |word: i32, ours: i32| {
            let sql = Sql::new(&pool, Begin::Serializable, false);
            match sql.commit(&[(ENTER, &[&word]), (OURS, &[&ours])]).await {
                Ok(()) => None,
                Err(NotCommitted::RolledBack(Error::Database(error))) => {
                    error.code().map(|code| code.code().to_owned())
                }
                Err(other) => panic!("{other:?}"),
            }
        };
        assert_eq!(both(1, 1).await, None);
        // The first statement fails, the last one, COMMIT.
        for (word, ours, code) in [(1, 2, "23505"), (2, 1, "23505"), (3, 4, "23503")] {
            assert_eq!(both(word, ours).await.as_deref(), Some(code));
            assert_eq!(words(&pool).await, [1]);
            assert_eq!(backend(&pool).await, own);
        }
        assert_eq!(both(2, 2).await, None);
        assert_eq!(words(&pool).await, [1, 2]);
        pool.close_idle();
        pool.target().clone().close().await;
    }
}
