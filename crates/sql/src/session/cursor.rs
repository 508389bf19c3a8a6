//! Cursors of SQL: DECLARE, FETCH, MOVE, CLOSE.
//!
//! A cursor is a portal with a name. One that can move backwards (SCROLL), or that outlives its transaction (WITH HOLD), has all
//! its rows in memory: from its first use, or from COMMIT.

use std::collections::HashMap;

use sqlparser::ast;

use super::portal::{PortalState, Tag};
use super::{Block, CommandTag, Fetch, Format, OutputColumn, Portal, RowSink, Session, SinkState};
use crate::ddl::names::fold;
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::{Command, FetchCount, Statement};
use crate::types::{Datum, FormatContext};

/// The cursors of a session, by name.
pub(super) type Cursors = HashMap<String, NamedCursor>;

/// A cursor.
pub(super) struct NamedCursor {
    portal: Portal,
    /// All rows, or those that were left when it was held, once they are in memory.
    rows: Option<Vec<Vec<Datum>>>,
    /// How many rows it had given before these.
    before: usize,
    /// Number of rows before the next one: 0 is before the first. With rows in memory, one past the last is `len + 1`.
    position: usize,
    at_end: bool,
    scroll: bool,
    hold: bool,
    /// It outlived its transaction.
    held: bool,
    /// Savepoints that were open when it was declared.
    depth: usize,
}

/// Gathers rows.
struct Gather(Vec<Vec<Datum>>);

impl RowSink for Gather {
    fn row(&mut self, _: &[OutputColumn], _: &[Format], row: &[Datum], _: &FormatContext) -> SinkState {
        self.0.push(row.to_vec());
        SinkState::Ready
    }

    fn copy_out(&mut self, _: &[u8]) -> SinkState {
        SinkState::Ready
    }
}

/// Counts rows.
struct Count(u64);

impl RowSink for Count {
    fn row(&mut self, _: &[OutputColumn], _: &[Format], _: &[Datum], _: &FormatContext) -> SinkState {
        self.0 += 1;
        SinkState::Ready
    }

    fn copy_out(&mut self, _: &[u8]) -> SinkState {
        SinkState::Ready
    }
}

fn no_cursor(name: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

impl Session {
    /// The columns of a cursor that DECLARE made: clients may describe it like a portal.
    pub fn cursor_columns(&self, name: &str) -> Option<&[OutputColumn]> {
        self.cursors.get(name)?.portal.columns()
    }

    /// DECLARE.
    pub(super) async fn declare(&mut self, declare: &ast::Declare, statement: &Statement) -> Result<()> {
        let [name] = declare.names.as_slice() else {
            return Err(SqlError::syntax("syntax error: DECLARE takes one name"));
        };
        let (Some(query), Some(ast::DeclareType::Cursor)) = (&declare.for_query, &declare.declare_type)
        else {
            return Err(SqlError::syntax("syntax error: DECLARE without CURSOR"));
        };
        if declare.binary == Some(true) {
            return Err(SqlError::unsupported("BINARY cursors"));
        }
        let hold = declare.hold == Some(true);
        if !hold && self.block != Block::Explicit {
            return Err(SqlError::new(
                sqlstate::NO_ACTIVE_SQL_TRANSACTION,
                "DECLARE CURSOR can only be used in transaction blocks",
            ));
        }
        let name = fold(name);
        if self.cursors.contains_key(&name) {
            return Err(SqlError::new(
                sqlstate::DUPLICATE_CURSOR,
                format!("cursor \"{name}\" already exists"),
            ));
        }
        let command = Command::Sql(Box::new(ast::Statement::Query(query.clone())));
        let statement = statement.with_command(command);
        let prepared = std::sync::Arc::new(self.plan_prepared(Some(statement), Vec::new())?);
        let portal = Portal::new(prepared, std::sync::Arc::from([]), Vec::new());
        let depth = self.open.as_ref().map_or(0, |open| open.state.savepoints.len());
        let scroll = declare.scroll == Some(true);
        let mut cursor = NamedCursor {
            portal,
            rows: None,
            before: 0,
            position: 0,
            at_end: false,
            scroll,
            hold,
            held: false,
            depth,
        };
        // The snapshot is that of the declaration.
        self.begin_cursor(&mut cursor).await?;
        self.cursors.insert(name, cursor);
        Ok(())
    }

    /// Starts a cursor's portal without giving a row; all rows of one that scrolls are read.
    async fn begin_cursor(&mut self, cursor: &mut NamedCursor) -> Result<()> {
        if cursor.scroll {
            cursor.rows = Some(self.gather_all(&mut cursor.portal).await?);
        } else {
            self.start_cursor(&mut cursor.portal).await?;
        }
        Ok(())
    }

    /// All rows of a portal.
    pub(super) async fn gather_all(&mut self, portal: &mut Portal) -> Result<Vec<Vec<Datum>>> {
        let mut sink = Gather(Vec::new());
        Box::pin(self.advance(portal, &mut sink, 0)).await?;
        Ok(sink.0)
    }

    /// Runs a portal to its end; the number of rows it gave.
    pub(super) async fn gather_rows(&mut self, portal: &mut Portal) -> Result<u64> {
        let mut sink = Count(0);
        Box::pin(self.advance(portal, &mut sink, 0)).await?;
        Ok(sink.0)
    }

    /// The columns of FETCH.
    pub(super) fn fetch_columns(&self, name: &str) -> Result<Vec<OutputColumn>> {
        let cursor = self.cursors.get(name).ok_or_else(|| no_cursor(name))?;
        Ok(cursor.portal.columns().unwrap_or_default().to_vec())
    }

    /// FETCH and MOVE: the rows, as a portal's state.
    pub(super) async fn fetch_cursor(
        &mut self,
        name: &ast::Ident,
        count: &FetchCount,
        skip: bool,
    ) -> Result<PortalState> {
        let name = fold(name);
        // Out of the map while it runs: a cursor whose query fails is gone.
        let mut cursor = self.cursors.remove(&name).ok_or_else(|| no_cursor(&name))?;
        let rows = match cursor.scroll && cursor.rows.is_some() {
            true => Ok(scroll(&mut cursor, count)),
            false => self.fetch_forward(&mut cursor, count).await,
        };
        let rows = match rows {
            Ok(rows) => rows,
            // Asking for what it cannot do leaves a cursor as it is.
            Err(error) => {
                if error.sqlstate == sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE {
                    self.cursors.insert(name, cursor);
                }
                return Err(error);
            }
        };
        self.cursors.insert(name, cursor);
        let number = rows.len() as u64;
        if skip {
            return Ok(PortalState::Done(CommandTag::Rows("MOVE", number)));
        }
        Ok(PortalState::Rows {
            rows: rows.into_iter(),
            sent: 0,
            tag: Tag::Fixed(CommandTag::Rows("FETCH", number)),
        })
    }

    async fn fetch_forward(
        &mut self,
        cursor: &mut NamedCursor,
        count: &FetchCount,
    ) -> Result<Vec<Vec<Datum>>> {
        let wanted = match count {
            FetchCount::Forward(count) if *count > 0 => *count as u64,
            FetchCount::Relative(1) => 1,
            FetchCount::Absolute(at) if *at > 0 && *at as usize > cursor.position => {
                let skipped = *at as usize - cursor.position - 1;
                if skipped > 0 {
                    self.forward(cursor, skipped as u64).await?;
                }
                1
            }
            FetchCount::All => 0,
            _ => {
                return Err(SqlError::new(
                    sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    "cursor can only scan forward",
                )
                .with_hint("Declare it with SCROLL option to enable backward scan."));
            }
        };
        self.forward(cursor, wanted).await
    }

    async fn forward(&mut self, cursor: &mut NamedCursor, wanted: u64) -> Result<Vec<Vec<Datum>>> {
        if cursor.at_end {
            return Ok(Vec::new());
        }
        if let Some(rest) = &cursor.rows {
            let from = (cursor.position - cursor.before).min(rest.len());
            let count = if wanted == 0 { usize::MAX } else { usize::try_from(wanted).unwrap_or(usize::MAX) };
            let rows: Vec<_> = rest[from..].iter().take(count).cloned().collect();
            cursor.at_end = rows.len() < count;
            cursor.position += rows.len();
            return Ok(rows);
        }
        let mut sink = Gather(Vec::new());
        let fetch = Box::pin(self.advance(&mut cursor.portal, &mut sink, wanted)).await?;
        cursor.at_end = matches!(fetch, Fetch::Complete(_));
        cursor.position += sink.0.len();
        Ok(sink.0)
    }

    /// CLOSE.
    pub(super) fn close_cursor(&mut self, cursor: &ast::CloseCursor) -> Result<&'static str> {
        match cursor {
            ast::CloseCursor::All => {
                self.cursors.clear();
                Ok("CLOSE CURSOR ALL")
            }
            ast::CloseCursor::Specific { name } => {
                let name = fold(name);
                self.cursors.remove(&name).map(|_| "CLOSE CURSOR").ok_or_else(|| no_cursor(&name))
            }
        }
    }

    /// Before COMMIT: reads the rest of cursors WITH HOLD.
    pub(super) async fn hold_cursors(&mut self) -> Result<()> {
        let mut names: Vec<String> = Vec::new();
        names.extend(self.cursors.iter().filter(|(_, c)| c.hold && !c.held).map(|(name, _)| name.clone()));
        for name in names {
            let Some(mut cursor) = self.cursors.remove(&name) else { continue };
            if cursor.rows.is_none() {
                let rest =
                    if cursor.at_end { Vec::new() } else { self.gather_all(&mut cursor.portal).await? };
                cursor.rows = Some(rest);
                cursor.before = cursor.position;
                cursor.at_end = false;
            }
            cursor.held = true;
            self.cursors.insert(name, cursor);
        }
        Ok(())
    }

    /// The end of a transaction: only cursors that are held stay.
    pub(super) fn drop_cursors(&mut self, rolled_back: bool) {
        let _ = rolled_back;
        if !self.cursors.is_empty() {
            self.cursors.retain(|_, cursor| cursor.held);
        }
    }

    /// ROLLBACK TO SAVEPOINT: cursors declared after it go.
    pub(super) fn close_cursors_after(&mut self, savepoint: usize) {
        self.cursors.retain(|_, cursor| cursor.held || cursor.depth <= savepoint);
    }
}

/// Moves among rows in memory.
fn scroll(cursor: &mut NamedCursor, count: &FetchCount) -> Vec<Vec<Datum>> {
    let rows = cursor.rows.as_deref().unwrap_or_default();
    let length = rows.len() as i64;
    // Position p: on row p (from 1), 0 before the first, length + 1 after the last.
    let at = cursor.position as i64;
    let (range, position): (Vec<i64>, i64) = match *count {
        FetchCount::Forward(0) | FetchCount::Relative(0) | FetchCount::Backward(0) => (vec![at], at),
        FetchCount::Forward(n) if n > 0 => forward(at, n, length),
        FetchCount::Forward(n) => backward(at, n.saturating_neg()),
        FetchCount::All => forward(at, i64::MAX, length),
        FetchCount::Backward(n) if n > 0 => backward(at, n),
        FetchCount::Backward(n) => forward(at, n.saturating_neg(), length),
        FetchCount::BackwardAll => backward(at, i64::MAX),
        FetchCount::Absolute(n) => {
            let to = if n >= 0 { n } else { length + 1 + n };
            let to = to.clamp(0, length + 1);
            (vec![to], to)
        }
        FetchCount::Relative(n) => {
            let to = at.saturating_add(n).clamp(0, length + 1);
            (vec![to], to)
        }
    };
    let found =
        range.into_iter().filter(|row| (1..=length).contains(row)).map(|row| rows[row as usize - 1].clone());
    let found = found.collect();
    cursor.position = position as usize;
    found
}

fn forward(at: i64, count: i64, length: i64) -> (Vec<i64>, i64) {
    let last = at.saturating_add(count).min(length + 1);
    ((at + 1..=last).collect(), last)
}

fn backward(at: i64, count: i64) -> (Vec<i64>, i64) {
    let last = at.saturating_sub(count).max(0);
    ((last..at).rev().collect(), last)
}
