//! Cognate's own statements, in their function form: parameters need no quotes, and a connection
//! prepares them once.
//!
//! All return the same columns: the instance, its state, its result if it is prepared or committed,
//! and the family's request. What the rows and SQLSTATEs mean for the protocol is decided here, and
//! nowhere else.
//!
//! What a role has prepared of which this one is no member comes without its result. It tells by
//! its result which execution it is of, and so nothing is concluded from such a table: neither that
//! an instance is prepared everywhere, nor that it is not.

use std::collections::BTreeMap;

use tokio_postgres::{Error, Row};

use super::{PostgresConnection, failed, in_words, is_lost, state};
use crate::etransaction::{Outcome, Refused, SiteReply, Table, Text};
use crate::site::{Job, Look, Trouble};

const BEGIN: &str = "SELECT * FROM cognate_mip_begin($1::text, $2::int8)";
const PREPARE: &str = "SELECT * FROM cognate_mip_prepare($1::text, $2::int8, $3::text, $4::text)";
const COMMIT: &str = "SELECT * FROM cognate_mip_commit($1::text, $2::int8)";
const REFUSE: &str = "SELECT * FROM cognate_mip_refuse($1::text, $2::int8)";
const ROLLBACK: &str = "SELECT * FROM cognate_mip_rollback($1::text, $2::int8)";
const SHOW: &str = "SELECT * FROM cognate_mip_show($1::text)";
const FORGET: &str = "SELECT * FROM cognate_mip_forget($1::text)";

/// A line of the family's table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    instance: i64,
    state: String,
    result: Option<String>,
    request: Option<String>,
}

impl Line {
    /// It is another role's, until the family is decided.
    fn is_veiled(&self) -> bool {
        self.state == "prepared" && self.result.is_none()
    }
}

fn lines(rows: &[Row]) -> Result<Vec<Line>, Error> {
    let line = |row: &Row| {
        Ok(Line {
            instance: row.try_get(0)?,
            state: row.try_get(1)?,
            result: row.try_get(2)?,
            request: row.try_get(3)?,
        })
    };
    rows.iter().map(line).collect()
}

fn outcome(lines: &[Line]) -> Option<Outcome> {
    let winner = lines.iter().find(|line| line.state == "committed")?;
    let text = |text: &Option<String>| Text::from(text.as_deref().unwrap_or_default());
    Some(Outcome { winner: winner.instance, result: text(&winner.result), request: text(&winner.request) })
}

fn begun(lines: &[Line]) -> SiteReply {
    match outcome(lines) {
        Some(outcome) => SiteReply::Decided(outcome),
        None if matches!(lines, [line] if line.state == "active") => SiteReply::Begun,
        None => SiteReply::Refused(Refused::Failed(format!("BEGIN MIP was answered by {lines:?}").into())),
    }
}

/// What a table, after PREPARE or when it is shown, means.
fn table(lines: Vec<Line>) -> SiteReply {
    if let Some(outcome) = outcome(&lines) {
        return SiteReply::Decided(outcome);
    }
    if let Some(Line { instance, .. }) = lines.iter().find(|line| line.is_veiled()) {
        let why = format!("instance {instance} is prepared by another role, which has to finish it");
        return SiteReply::Refused(Refused::Failed(why.into()));
    }
    let highest = lines.iter().map(|line| line.instance).max().unwrap_or(0);
    let request = lines.iter().find_map(|line| line.request.as_deref()).map(Text::from);
    let aborted = lines.iter().filter(|line| line.state == "aborted").map(|line| line.instance).collect();
    let prepared: BTreeMap<i64, Text> = lines
        .into_iter()
        .filter(|line| line.state == "prepared")
        .map(|line| (line.instance, line.result.unwrap_or_default().into()))
        .collect();
    // Where an instance is prepared, smaller ones that are not never will be.
    let floor = prepared.keys().last().copied().unwrap_or(0);
    SiteReply::Table(Table { prepared, aborted, floor, request, highest, never: None })
}

/// What the table means after REFUSE up to an instance.
fn refused(lines: Vec<Line>, upto: i64) -> SiteReply {
    match table(lines) {
        SiteReply::Table(table) => {
            SiteReply::Table(Table { floor: table.floor.max(upto.saturating_add(1)), ..table })
        }
        other => other,
    }
}

fn committed(lines: &[Line], winner: i64) -> SiteReply {
    match outcome(lines) {
        Some(outcome) if outcome.winner == winner => SiteReply::Committed,
        Some(outcome) => SiteReply::Refused(Refused::Taken { highest: outcome.winner }),
        None => SiteReply::Refused(Refused::Failed(format!("COMMIT MIP was answered by {lines:?}").into())),
    }
}

fn looked(lines: Vec<Line>) -> Look {
    if let Some(outcome) = outcome(&lines) {
        return Look::Committed(outcome.winner);
    }
    let token = |stored: &str| stored.split_once(' ').map_or(stored, |(token, _)| token).to_owned();
    let prepared = lines.into_iter().filter(|line| line.state == "prepared");
    let known = prepared.filter_map(|line| Some((line.instance, token(&line.result?))));
    Look::Undecided(known.collect())
}

/// The number in `… is 3072.` or `highest=3072`: the last one in the text; 0 if there is none.
fn highest_in(detail: &str) -> i64 {
    let digits = detail.split(|c: char| !c.is_ascii_digit()).rfind(|digits| !digits.is_empty());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// What a refusal of BEGIN or PREPARE means.
fn refusal(error: &Error) -> SiteReply {
    let words = || Text::from(in_words(error));
    let detail = error.as_db_error().and_then(|db| db.detail()).unwrap_or_default();
    SiteReply::Refused(match state(error) {
        "MI010" | "MI011" => Refused::Taken { highest: highest_in(detail) },
        "MI020" => Refused::RequestDiffers,
        "MI021" => Refused::RequestTooLarge(words()),
        "MI032" => Refused::Forgotten,
        _ => return failed(error),
    })
}

/// What a refusal of COMMIT means: of an instance that was seen prepared everywhere.
fn commit_refusal(error: &Error) -> SiteReply {
    match state(error) {
        "MI011" | "MI012" | "MI013" | "MI014" | "MI031" => SiteReply::Refused(Refused::Taken { highest: 0 }),
        "MI032" => SiteReply::Refused(Refused::Forgotten),
        _ => failed(error),
    }
}

/// Whether the server has these functions. Prepares them.
pub(super) async fn is_spoken(connection: &PostgresConnection) -> Result<bool, Error> {
    match connection.statement(BEGIN).await {
        Ok(_) => {}
        Err(error) if is_lost(&error) => return Err(error),
        // Undefined, or (an older Cognate) not supported.
        Err(error) if matches!(state(&error), "42883" | "0A000" | "42601" | "42P01") => return Ok(false),
        Err(error) => return Err(error),
    }
    tokio::try_join!(
        connection.statement(PREPARE),
        connection.statement(COMMIT),
        connection.statement(REFUSE)
    )?;
    Ok(true)
}

pub(super) async fn show(connection: &PostgresConnection, xid: &str) -> SiteReply {
    match connection.query(SHOW, &[&xid]).await.and_then(|rows| lines(&rows)) {
        Ok(lines) => table(lines),
        Err(error) => match state(&error) {
            "MI031" => SiteReply::Table(Table::default()),
            _ => refusal(&error),
        },
    }
}

pub(super) async fn begin(connection: &PostgresConnection, job: &Job) -> SiteReply {
    match connection.query(BEGIN, &[&&*job.xid, &job.instance]).await.and_then(|rows| lines(&rows)) {
        Ok(lines) => match begun(&lines) {
            SiteReply::Begun => SiteReply::Begun,
            // Of a decided family a block is open that refuses statements.
            told => match connection.batch("ROLLBACK").await {
                Ok(()) => told,
                Err(error) => failed(&error),
            },
        },
        Err(error) => refusal(&error),
    }
}

pub(super) async fn prepare(connection: &PostgresConnection, job: &Job, stored: &str) -> SiteReply {
    let rows = connection.query(PREPARE, &[&&*job.xid, &job.instance, &&*job.request, &stored]).await;
    match rows.and_then(|rows| lines(&rows)) {
        Ok(lines) => table(lines),
        Err(error) => refusal(&error),
    }
}

pub(super) async fn refuse(connection: &PostgresConnection, xid: &str, upto: i64) -> SiteReply {
    match connection.query(REFUSE, &[&xid, &upto]).await.and_then(|rows| lines(&rows)) {
        Ok(lines) => refused(lines, upto),
        Err(error) => refusal(&error),
    }
}

pub(super) async fn withdraw(connection: &PostgresConnection, xid: &str, instance: i64) -> SiteReply {
    match connection.query(ROLLBACK, &[&xid, &instance]).await {
        Ok(_) => SiteReply::Withdrawn,
        // Somebody else was quicker, or the family is decided.
        Err(error) if matches!(state(&error), "MI011" | "MI014" | "MI032") => SiteReply::Withdrawn,
        Err(error) => failed(&error),
    }
}

pub(super) async fn commit(connection: &PostgresConnection, xid: &str, winner: i64) -> SiteReply {
    match connection.query(COMMIT, &[&xid, &winner]).await.and_then(|rows| lines(&rows)) {
        Ok(lines) => committed(&lines, winner),
        Err(error) => commit_refusal(&error),
    }
}

pub(super) async fn look(connection: &PostgresConnection, xid: &str) -> Result<Look, Trouble> {
    match connection.query(SHOW, &[&xid]).await.and_then(|rows| lines(&rows)) {
        Ok(lines) => Ok(looked(lines)),
        Err(error) => match state(&error) {
            "MI031" => Ok(Look::Unknown),
            "MI032" => Ok(Look::Forgotten),
            _ => Err(error.into()),
        },
    }
}

pub(super) async fn forget(connection: &PostgresConnection, xid: &str) -> Result<(), Trouble> {
    match connection.query(FORGET, &[&xid]).await {
        Ok(_) => Ok(()),
        Err(error) if state(&error) == "MI032" => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(instance: i64, state: &str, result: Option<&str>) -> Line {
        let (state, result) = (state.to_owned(), result.map(str::to_owned));
        Line { instance, state, result, request: Some("buy".to_owned()) }
    }

    #[test]
    fn rows_become_replies() {
        assert_eq!(begun(&[line(2048, "active", None)]), SiteReply::Begun);
        let sold = || line(2048, "committed", Some("0f sold"));
        let outcome = Outcome { winner: 2048, result: "0f sold".into(), request: "buy".into() };
        assert_eq!(begun(&[sold()]), SiteReply::Decided(outcome.clone()));
        assert_eq!(table(vec![line(1024, "aborted", None), sold()]), SiteReply::Decided(outcome));
        let shown = vec![
            line(1024, "prepared", Some("0a x")),
            line(2048, "aborted", None),
            line(3072, "active", None),
        ];
        let prepared = [(1024, "0a x".into())].into_iter().collect();
        let aborted = [2048].into();
        let request = Some("buy".into());
        let expected = Table { prepared, aborted, floor: 1024, request, highest: 3072, never: None };
        assert_eq!(table(shown.clone()), SiteReply::Table(expected.clone()));
        assert_eq!(refused(shown.clone(), 2048), SiteReply::Table(Table { floor: 2049, ..expected }));
        assert_eq!(committed(&[sold()], 2048), SiteReply::Committed);
        assert_eq!(committed(&[sold()], 1024), SiteReply::Refused(Refused::Taken { highest: 2048 }));
        let tokens = [(1024, "0a".to_owned())].into_iter().collect();
        assert_eq!(looked(shown), Look::Undecided(tokens));
    }

    #[test]
    fn nothing_is_concluded_from_what_another_role_has_prepared() {
        let other = || Line { request: None, ..line(1024, "prepared", None) };
        let own = || line(2048, "prepared", Some("0b y"));
        assert!(matches!(table(vec![other(), own()]), SiteReply::Refused(Refused::Failed(_))));
        assert!(matches!(refused(vec![other()], 2048), SiteReply::Refused(Refused::Failed(_))));
        let tokens = [(2048, "0b".to_owned())].into_iter().collect();
        assert_eq!(looked(vec![other(), own()]), Look::Undecided(tokens));
        assert!(matches!(table(vec![line(1024, "prepared", Some("")), own()]), SiteReply::Table(_)));
    }

    #[test]
    fn the_highest_number_is_read_from_the_detail() {
        assert_eq!(highest_in("The highest instance number heard of is 3072."), 3072);
        assert_eq!(highest_in("highest=3073"), 3073);
        assert_eq!(highest_in("instance 7 of family 8, highest=9"), 9);
        assert_eq!(highest_in(""), 0);
    }
}
