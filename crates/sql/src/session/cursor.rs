//! Cursors of SQL: DECLARE, FETCH, MOVE, CLOSE.
//!
//! A cursor is a portal with a name. One that can move backwards (SCROLL), or that outlives its
//! transaction (WITH HOLD), has all its rows in memory: from its first use, or from COMMIT. They,
//! and what FETCH gives, are charged to the memory that statements share. Many can move backwards
//! that do not say so ([`turn`]).
//!
//! The rows of one that reads a single table end with their keys, which FETCH takes off: WHERE
//! CURRENT OF is about the row that was given last.

mod bound;
mod names;
mod turn;
mod way;

use std::sync::Arc;

use bytes::Bytes;
use sqlparser::ast;

use super::listing::{CursorPlace, Listed};
use super::parameters::Given;
use super::portal::{PortalState, Tag};
use super::{CommandTag, Fetch, Format, OutputColumn, Portal, Prepared, RowSink, Session, SinkState};
use crate::bind::lock_name;
use crate::budget::{Budget, Charge};
use crate::catalog::Oid;
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::oltp::memory::row_bytes;
use crate::parse::{Command, FetchCount, ROW_KEY, Statement, changes_rows, with_row_key};
use crate::pg_catalog::CursorRow;
use crate::types::{Datum, FormatContext};
pub(super) use bound::Cursors;
pub use names::{Names, Taken};
use turn::Origin;
use way::way;

/// A cursor.
pub(super) struct NamedCursor {
    portal: Portal,
    /// All rows, or those that were left when it was held, once they are in memory.
    rows: Option<Kept>,
    /// How many rows it had given before these.
    before: usize,
    /// Number of rows before the next one: 0 is before the first. With rows in memory, one past the
    /// last is `len + 1`.
    position: usize,
    at_end: bool,
    scroll: bool,
    /// What its rows come from, if it may become one that scrolls.
    origin: Option<Origin>,
    hold: bool,
    /// It outlived its transaction.
    held: bool,
    /// Its transaction has not committed yet.
    is_new: bool,
    /// Savepoints that were open when it was declared.
    depth: usize,
    /// How many rows had moved then.
    moved: usize,
    /// The table that it reads, if its rows end with their keys.
    table: Option<Oid>,
    /// The key of the row that it gave last.
    key: Option<Bytes>,
    listed: Listed,
}

impl NamedCursor {
    /// The columns that FETCH gives.
    fn columns(&self) -> Option<&[OutputColumn]> {
        let columns = self.portal.columns()?;
        match columns.split_last() {
            Some((_, given)) if self.table.is_some() => Some(given),
            _ => Some(columns),
        }
    }

    /// Says where it stands.
    fn tell(&self) {
        let planned = self.portal.prepared.planned();
        let (is_held, has_locks, moved) = (self.held, planned.is_changing(), self.moved);
        let (table, row) = (self.table, self.key.clone());
        let tables = planned.tables.iter().map(|table| table.oid).collect();
        let place = CursorPlace { is_held, has_locks, table, row, moved, tables };
        self.listed.stands(place);
    }
}

/// Rows that are kept, and the memory that was taken for them.
#[derive(Debug)]
struct Kept {
    rows: Vec<Vec<Datum>>,
    /// How many there were, also if they were only counted.
    number: usize,
    charge: Charge,
}

/// What such memory is called.
const KEPT: &str = "The rows of a cursor";
/// Memory is taken in pieces of so many bytes.
const KEPT_PIECE: usize = 64 << 10;

impl Kept {
    /// No rows yet.
    fn new(budget: &Arc<Budget>) -> Result<Kept> {
        Ok(Kept { rows: Vec::new(), number: 0, charge: budget.charge(0, KEPT)? })
    }

    /// Rows that are copied from others.
    fn copied<'a>(
        rows: impl Iterator<Item = &'a Vec<Datum>> + Clone,
        counted_only: bool,
        budget: &Arc<Budget>,
    ) -> Result<Kept> {
        let mut kept = Kept { number: rows.clone().count(), ..Kept::new(budget)? };
        if !counted_only {
            kept.charge.resize(rows.clone().map(|row| row_bytes(row)).sum(), KEPT)?;
            kept.rows = rows.cloned().collect();
        }
        Ok(kept)
    }

    /// The same without the keys that the rows end with.
    fn without_keys(mut self) -> Kept {
        for row in &mut self.rows {
            row.pop();
        }
        self
    }
}

/// The key that a row ends with.
fn key_of(row: &[Datum]) -> Option<Bytes> {
    match row.last() {
        Some(Datum::Bytea(key)) => Some(key.clone()),
        _ => None,
    }
}

/// Gathers rows, as many as there is memory for, or only counts them.
struct Gather {
    kept: Kept,
    /// The rows end with their keys; that of the last one.
    has_keys: bool,
    key: Option<Bytes>,
    counted_only: bool,
    bytes: usize,
    charged: usize,
    refused: Option<SqlError>,
}

impl Gather {
    fn new(counted_only: bool, budget: &Arc<Budget>) -> Result<Gather> {
        let kept = Kept::new(budget)?;
        let (has_keys, key) = (false, None);
        Ok(Gather { kept, has_keys, key, counted_only, bytes: 0, charged: 0, refused: None })
    }

    /// The rows. 53200 if there were more than there was memory for.
    fn finish(self) -> Result<Kept> {
        match self.refused {
            Some(refused) => Err(refused),
            None => Ok(self.kept),
        }
    }
}

impl RowSink for Gather {
    fn row(
        &mut self,
        _: &[OutputColumn],
        _: &[Format],
        row: &[Datum],
        _: &FormatContext,
    ) -> Result<SinkState> {
        self.kept.number += 1;
        if self.has_keys {
            self.key = key_of(row);
        }
        if self.counted_only {
            return Ok(SinkState::Ready);
        }
        self.bytes += row_bytes(row);
        if self.bytes > self.charged {
            self.charged = self.bytes + KEPT_PIECE;
            if let Err(refused) = self.kept.charge.resize(self.charged, KEPT) {
                self.refused = Some(refused);
                return Ok(SinkState::Full);
            }
        }
        self.kept.rows.push(row.to_vec());
        Ok(SinkState::Ready)
    }

    fn copy_out(&mut self, _: &[u8]) -> SinkState {
        SinkState::Ready
    }
}

/// 34000.
pub(super) fn no_cursor(name: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

/// 0A000 and 42P11 for what no cursor may do: change rows, or lock its own and keep what it gives.
fn check_query(declare: &ast::Declare, query: &ast::Query) -> Result<()> {
    if query.with.iter().flat_map(|with| &with.cte_tables).any(|cte| changes_rows(&cte.query.body)) {
        let message = "DECLARE CURSOR must not contain data-modifying statements in WITH";
        return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
    }
    let Some(lock) = query.locks.first().map(lock_name) else { return Ok(()) };
    let (state, message, what) = match declare {
        ast::Declare { hold: Some(true), .. } => {
            let message = format!("DECLARE CURSOR WITH HOLD ... {lock} is not supported");
            (sqlstate::FEATURE_NOT_SUPPORTED, message, "Holdable")
        }
        ast::Declare { scroll: Some(true), .. } => {
            let message = format!("DECLARE SCROLL CURSOR ... {lock} is not supported");
            (sqlstate::FEATURE_NOT_SUPPORTED, message, "Scrollable")
        }
        ast::Declare { sensitive: Some(true), .. } => {
            let message = format!("DECLARE INSENSITIVE CURSOR ... {lock} is not valid");
            (sqlstate::INVALID_CURSOR_DEFINITION, message, "Insensitive")
        }
        _ => return Ok(()),
    };
    Err(SqlError::new(state, message).with_detail(format!("{what} cursors must be READ ONLY.")))
}

impl Session {
    /// The columns of a cursor that DECLARE made: clients may describe it like a portal.
    pub fn cursor_columns(&self, name: &str) -> Option<&[OutputColumn]> {
        self.cursors.get(name)?.columns()
    }

    /// What a cursor that DECLARE made was made of.
    pub fn cursor_prepared(&self, name: &str) -> Option<&Prepared> {
        Some(self.cursors.get(name)?.portal.prepared())
    }

    /// Closes a cursor that DECLARE made, if there is one of this name.
    pub fn forget_cursor(&mut self, name: &str) {
        self.cursors.remove(name);
    }

    /// DECLARE.
    pub(super) async fn declare(
        &mut self,
        declare: &ast::Declare,
        statement: &Statement,
        given: &Given,
    ) -> Result<()> {
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
        check_query(declare, query)?;
        let hold = declare.hold == Some(true);
        if !hold && !self.shares_block(statement) {
            return Err(SqlError::new(
                sqlstate::NO_ACTIVE_SQL_TRANSACTION,
                "DECLARE CURSOR can only be used in transaction blocks",
            ));
        }
        let name = fold(name);
        if self.cursors.is_taken(&name) {
            return Err(SqlError::new(
                sqlstate::DUPLICATE_CURSOR,
                format!("cursor \"{name}\" already exists"),
            ));
        }
        let scroll = declare.scroll == Some(true);
        let prepared = self.plan_cursor(query, statement, given)?;
        let turns = turn::can_turn(declare, &prepared);
        let row = CursorRow {
            name: name.clone(),
            statement: statement.source.clone(),
            holdable: hold,
            scrollable: scroll || turns,
            declared: self.facts.now(),
        };
        let mut portal = given.portal(Arc::new(prepared));
        portal.leave_open();
        let depth = self.open.as_ref().map_or(0, |open| open.state.savepoints.len());
        let mut cursor = NamedCursor {
            portal,
            rows: None,
            before: 0,
            position: 0,
            at_end: false,
            scroll,
            origin: None,
            hold,
            held: false,
            is_new: true,
            depth,
            moved: self.open.as_ref().map_or(0, |open| open.state.moved.count()),
            table: None,
            key: None,
            listed: Listed::cursor(&self.facts, row),
        };
        // The snapshot is that of the declaration.
        self.begin_cursor(&mut cursor).await?;
        cursor.origin = Origin::of(&cursor.portal).filter(|_| turns);
        let last = cursor.portal.columns().and_then(<[OutputColumn]>::last);
        cursor.table = last.filter(|column| column.name == ROW_KEY).map(|column| column.table_oid);
        cursor.tell();
        self.cursors.insert(name, cursor);
        Ok(())
    }

    /// The query of a cursor, with the keys of its rows if it can have them.
    fn plan_cursor(&mut self, query: &ast::Query, statement: &Statement, given: &Given) -> Result<Prepared> {
        let mut plan = |query: Box<ast::Query>| {
            let command = Command::Sql(Box::new(ast::Statement::Query(query)));
            self.plan_prepared(Some(statement.with_command(command)), given.types())
        };
        match with_row_key(query).map(&mut plan) {
            Some(Ok(prepared)) => Ok(prepared),
            _ => plan(Box::new(query.clone())),
        }
    }

    /// Starts a cursor's portal without giving a row; all rows of one that scrolls are read.
    async fn begin_cursor(&mut self, cursor: &mut NamedCursor) -> Result<()> {
        if cursor.scroll {
            cursor.rows = Some(self.gather_all(&mut cursor.portal, false).await?);
        } else {
            self.start_cursor(&mut cursor.portal).await?;
        }
        Ok(())
    }

    /// All rows of a portal.
    async fn gather_all(&mut self, portal: &mut Portal, counted_only: bool) -> Result<Kept> {
        let mut sink = Gather::new(counted_only, self.database.statement_budget())?;
        Box::pin(self.advance(portal, &mut sink, 0)).await?;
        sink.finish()
    }

    /// Runs a portal to its end; the number of rows it gave.
    pub(super) async fn count_rows(&mut self, portal: &mut Portal) -> Result<usize> {
        Ok(self.gather_all(portal, true).await?.number)
    }

    /// The columns of FETCH.
    pub(super) fn fetch_columns(&self, name: &str) -> Result<Vec<OutputColumn>> {
        if !self.cursors.is_taken(name) {
            return Err(no_cursor(name));
        }
        Ok(self.cursors.columns(name).unwrap_or_default().to_vec())
    }

    /// FETCH and MOVE: the rows, as a portal's state.
    pub(super) async fn fetch_cursor(
        &mut self,
        name: &ast::Ident,
        count: &FetchCount,
        skip: bool,
        portal: &mut Portal,
    ) -> Result<PortalState> {
        let name = fold(name);
        if !skip && self.cursors.is_taken(&name) {
            // Its name may have been another one's when FETCH was prepared.
            portal.check_gives(self.cursors.columns(&name))?;
        }
        if !self.cursors.contains_key(&name) {
            let rows = self.fetch_portal(&name, count, skip).await?;
            return Ok(fetched(rows, skip, portal));
        }
        // Out of the map while it runs: a cursor whose query fails is gone.
        let mut cursor = self.cursors.remove(&name).ok_or_else(|| no_cursor(&name))?;
        if !cursor.scroll && turn::goes_back(&cursor, count, skip) {
            self.turn(&mut cursor).await?;
        }
        let rows = match cursor.scroll && cursor.rows.is_some() {
            true => scroll(&mut cursor, count, skip, self.database.statement_budget()),
            false => self.fetch_forward(&mut cursor, count, skip).await,
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
        cursor.tell();
        // No rollback takes back where it stands then.
        self.commits += u64::from(cursor.held);
        self.cursors.insert(name, cursor);
        Ok(fetched(rows, skip, portal))
    }

    async fn fetch_forward(
        &mut self,
        cursor: &mut NamedCursor,
        count: &FetchCount,
        counted_only: bool,
    ) -> Result<Kept> {
        let stays =
            matches!(count, FetchCount::Forward(0) | FetchCount::Backward(0) | FetchCount::Relative(0));
        let is_on_row = cursor.position > 0 && !cursor.at_end;
        if stays && (counted_only || !is_on_row) {
            // Whether there is a row where it stands is known; to give it again, it is not.
            let number = usize::from(is_on_row);
            return Ok(Kept { number, ..Kept::new(self.database.statement_budget())? });
        }
        let wanted = match count {
            FetchCount::Forward(count) if *count > 0 => *count as u64,
            FetchCount::Backward(count) if *count < 0 => count.unsigned_abs(),
            FetchCount::Relative(distance) if *distance > 0 => {
                self.skip(cursor, *distance as u64 - 1).await?;
                1
            }
            FetchCount::Absolute(at) if *at > 0 && *at as usize > cursor.position => {
                self.skip(cursor, (*at as usize - cursor.position - 1) as u64).await?;
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
        self.forward(cursor, wanted, counted_only).await
    }

    /// Goes forward past so many rows.
    async fn skip(&mut self, cursor: &mut NamedCursor, rows: u64) -> Result<()> {
        match rows {
            0 => Ok(()),
            rows => self.forward(cursor, rows, true).await.map(drop),
        }
    }

    async fn forward(&mut self, cursor: &mut NamedCursor, wanted: u64, counted_only: bool) -> Result<Kept> {
        let budget = self.database.statement_budget().clone();
        if cursor.at_end {
            return Kept::new(&budget);
        }
        if let Some(rest) = &cursor.rows {
            let from = (cursor.position - cursor.before).min(rest.rows.len());
            let count = if wanted == 0 { usize::MAX } else { usize::try_from(wanted).unwrap_or(usize::MAX) };
            let kept = Kept::copied(rest.rows[from..].iter().take(count), counted_only, &budget)?;
            cursor.at_end = kept.number < count;
            cursor.position += kept.number;
            return Ok(if cursor.table.is_some() { kept.without_keys() } else { kept });
        }
        let has_keys = cursor.table.is_some();
        let mut sink = Gather { has_keys, ..Gather::new(counted_only, &budget)? };
        let fetch = Box::pin(self.advance(&mut cursor.portal, &mut sink, wanted)).await?;
        let key = sink.key.take();
        let kept = sink.finish()?;
        cursor.at_end = matches!(fetch, Fetch::Complete(_));
        cursor.position += kept.number;
        cursor.key = key.filter(|_| !cursor.at_end);
        cursor.portal.charge_held(&budget)?;
        Ok(if has_keys { kept.without_keys() } else { kept })
    }

    /// CLOSE.
    pub(super) fn close_cursor(&mut self, cursor: &ast::CloseCursor) -> Result<&'static str> {
        match cursor {
            ast::CloseCursor::All => {
                self.commits += u64::from(self.cursors.has_held(None));
                self.cursors.close_all();
                Ok("CLOSE CURSOR ALL")
            }
            ast::CloseCursor::Specific { name } => {
                let name = fold(name);
                self.commits += u64::from(self.cursors.has_held(Some(&name)));
                if self.cursors.close(&name) { Ok("CLOSE CURSOR") } else { Err(no_cursor(&name)) }
            }
        }
    }

    /// Before COMMIT: reads the rest of cursors WITH HOLD, and closes the others.
    pub(super) async fn hold_cursors(&mut self) -> Result<()> {
        let mut names: Vec<String> = Vec::new();
        names.extend(self.cursors.iter().filter(|(_, c)| c.hold && !c.held).map(|(name, _)| name.clone()));
        for name in names {
            let Some(mut cursor) = self.cursors.remove(&name) else { continue };
            if cursor.rows.is_none() && !self.turn(&mut cursor).await? {
                let rest = match cursor.at_end {
                    true => Kept::new(self.database.statement_budget())?,
                    false => self.gather_all(&mut cursor.portal, false).await?,
                };
                cursor.rows = Some(rest);
                cursor.before = cursor.position;
                cursor.at_end = false;
            }
            cursor.held = true;
            cursor.tell();
            self.cursors.insert(name, cursor);
        }
        // The others read nothing any more, and their tables may go.
        self.cursors.retain(|_, cursor| cursor.held);
        Ok(())
    }

    /// Whether a cursor of the open transaction is to outlive it.
    pub(super) fn has_cursors_to_hold(&self) -> bool {
        self.cursors.values().any(|cursor| cursor.hold && !cursor.held)
    }

    /// 0A000 if the transaction cannot be prepared: a cursor of its own that outlives it would show
    /// what is not committed yet.
    pub(super) fn check_no_held(&self) -> Result<()> {
        if !self.has_cursors_to_hold() {
            return Ok(());
        }
        Err(SqlError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            "cannot PREPARE a transaction that has created a cursor WITH HOLD",
        ))
    }

    /// The end of a transaction: only cursors that are held stay. Those of one that was to commit
    /// and failed do not, although their rows have been read: nobody may see them.
    pub(super) fn drop_cursors(&mut self, rolled_back: bool) {
        self.cursors.retain(|_, cursor| cursor.held && !(rolled_back && cursor.is_new));
        self.cursors.values_mut().for_each(|cursor| cursor.is_new = false);
    }

    /// RELEASE SAVEPOINT: cursors declared after it are those of what is around it.
    pub(super) fn keep_cursors_after(&mut self, savepoint: usize) {
        for cursor in self.cursors.values_mut() {
            cursor.depth = cursor.depth.min(savepoint);
        }
    }

    /// ROLLBACK TO SAVEPOINT: cursors declared after it go.
    pub(super) fn close_cursors_after(&mut self, savepoint: usize) {
        self.cursors.retain(|_, cursor| cursor.held || cursor.depth <= savepoint);
    }
}

/// What FETCH and MOVE give.
fn fetched(rows: Kept, skip: bool, portal: &mut Portal) -> PortalState {
    let number = rows.number as u64;
    if skip {
        return PortalState::Done(CommandTag::Rows("MOVE", number));
    }
    portal.keep_charge(rows.charge);
    let tag = Tag::Fixed(CommandTag::Rows("FETCH", number));
    PortalState::Rows { rows: rows.rows.into_iter(), sent: 0, tag }
}

/// Moves among rows in memory.
fn scroll(
    cursor: &mut NamedCursor,
    count: &FetchCount,
    counted_only: bool,
    budget: &Arc<Budget>,
) -> Result<Kept> {
    let rows = cursor.rows.as_ref().map_or(&[][..], |kept| &kept.rows);
    let length = rows.len() as i64;
    // Position p: on row p (from 1), 0 before the first, length + 1 after the last.
    let at = cursor.position as i64;
    let (range, position) = way(count, at, length);
    let found = range.iter().filter(|row| (1..=length).contains(*row)).map(|row| &rows[*row as usize - 1]);
    let kept = Kept::copied(found, counted_only, budget)?;
    let row = usize::try_from(position - 1).ok().and_then(|at| rows.get(at));
    let key = row.filter(|_| cursor.table.is_some()).and_then(|row| key_of(row));
    cursor.position = position as usize;
    cursor.key = key;
    Ok(if cursor.table.is_some() { kept.without_keys() } else { kept })
}
