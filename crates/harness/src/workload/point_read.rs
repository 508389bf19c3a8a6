//! Point reads by primary key through the embedded library: one session, one thread, one prepared
//! statement.

use std::path::Path;
use std::time::{Duration, Instant};

use cognate::{Database, Session, Statement};
use hdrhistogram::Histogram;

use crate::error::{Error, IoContext, Result};
use crate::random::Random;

/// What is read.
#[derive(Clone, Copy, Debug)]
pub struct PointReadPlan {
    /// Rows of the table.
    pub rows: i64,
    /// Reads that count; a tenth of as many go before them.
    pub reads: u32,
    /// Of the keys chosen.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct PointReads {
    /// Time of all reads together.
    pub elapsed: Duration,
    /// Nanoseconds of each.
    pub latency: Histogram<u64>,
}

fn failed(error: cognate::Error) -> Error {
    Error::Server(error.to_string())
}

/// Loads the table and reads from it, both from memory and after everything has moved to the base
/// store.
///
/// # Errors
/// What the database answers, and a row that is not the one asked for.
pub fn measure(plan: &PointReadPlan, directory: Option<&Path>) -> Result<[(&'static str, PointReads); 2]> {
    let parent = directory.map_or_else(std::env::temp_dir, Path::to_owned);
    let folder = tempfile::Builder::new()
        .prefix("cognate-point-read-")
        .tempdir_in(&parent)
        .doing(format!("making a folder in {}", parent.display()))?;
    let database = Database::open(folder.path().join("data")).map_err(failed)?;
    let mut session = database.session().map_err(failed)?;
    let table = "CREATE TABLE account (id int8 PRIMARY KEY, branch int4 NOT NULL, balance int8 NOT NULL, filler text)";
    session.execute(table, &[]).map_err(failed)?;
    let fill = "INSERT INTO account SELECT i, i % 100, i * 7, repeat('x', 84) FROM generate_series($1::int8, $2::int8) AS i";
    for first in (1..=plan.rows).step_by(20_000) {
        session.execute(fill, &[&first, &(first + 19_999).min(plan.rows)]).map_err(failed)?;
    }
    let memory = read(&mut session, plan)?;
    session.execute("CHECKPOINT", &[]).map_err(failed)?;
    let base = read(&mut session, plan)?;
    drop(session);
    database.close().map_err(failed)?;
    Ok([("in memory", memory), ("base store", base)])
}

fn read(session: &mut Session, plan: &PointReadPlan) -> Result<PointReads> {
    let statement = session.prepare("SELECT balance FROM account WHERE id = $1").map_err(failed)?;
    let mut random = Random::new(plan.seed);
    for _ in 0..plan.reads / 10 {
        one(session, &statement, random.between(1, plan.rows))?;
    }
    let mut latency = Histogram::new(3).map_err(|error| Error::Usage(error.to_string()))?;
    let begin = Instant::now();
    let mut last = begin;
    for _ in 0..plan.reads {
        one(session, &statement, random.between(1, plan.rows))?;
        let now = Instant::now();
        // Grows with its values; the recording that saturates would not.
        let recorded = latency.record((now - last).as_nanos() as u64);
        recorded.map_err(|error| Error::Usage(format!("recording a latency: {error}")))?;
        last = now;
    }
    Ok(PointReads { elapsed: begin.elapsed(), latency })
}

fn one(session: &mut Session, statement: &Statement, id: i64) -> Result<()> {
    let row = session.query_one(statement, &[&id]).map_err(failed)?;
    match row.get::<i64>(0).map_err(failed)? {
        balance if balance == id * 7 => Ok(()),
        balance => Err(Error::Violation(format!("account {id} has {balance} instead of {}", id * 7))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The latencies one by one add up to the time of all: none was cut short.
    #[test]
    fn latencies_add_up() {
        let plan = PointReadPlan { rows: 500, reads: 300, seed: 7 };
        for (case, reads) in measure(&plan, None).expect("it runs") {
            assert_eq!(reads.latency.len(), u64::from(plan.reads), "{case}");
            let sum = reads.latency.mean() * f64::from(plan.reads);
            let elapsed = reads.elapsed.as_nanos() as f64;
            assert!((0.97..1.03).contains(&(sum / elapsed)), "{case}: {sum} ns of {elapsed}");
        }
    }
}
