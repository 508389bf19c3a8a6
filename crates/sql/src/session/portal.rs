//! Portals: statements with their parameters, being executed.

use std::fmt;
use std::sync::Arc;

use cognate_engine::ReadView;

use super::listing::Listed;
use super::{Format, OutputColumn, Prepared, SinkState};
use crate::budget::{Budget, Charge};
use crate::error::{Result, SqlError, sqlstate};
use crate::oltp::Cursor;
use crate::oltp::memory::{datum_bytes, row_bytes};
use crate::types::Datum;
use crate::{parse, reclaim};

/// A bound statement. It belongs to the session that made it.
#[derive(Debug)]
pub struct Portal {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) parameters: Arc<[Datum]>,
    pub(crate) columns: Option<Arc<[OutputColumn]>>,
    pub(crate) formats: Vec<Format>,
    pub(crate) state: PortalState,
    /// The client knows that it is done.
    pub(super) is_told: bool,
    /// So many calls of routines are around it, or so many EXECUTEs.
    pub(super) depth: usize,
    /// The number of the session's transaction that it was begun in.
    pub(super) begun_in: u64,
    /// Nobody has been told of its columns.
    is_open: bool,
    /// Its place among those that the session has bound, from 1; 0 if it was made otherwise.
    pub(super) bound: u64,
    /// For large parameters.
    given: Option<Arc<Charge>>,
    /// For what it holds while it is suspended.
    held: Option<Charge>,
    /// Its stay among the cursors, if it has a name, or one that has ran beside it.
    pub(super) listed: Option<Listed>,
}

/// About what a portal with a name takes besides its parameters.
const NAMED_BYTES: usize = 1024;
/// Parameters that take no more are not counted, unless their portal has a name.
const SMALL_BYTES: usize = 16 << 10;
/// What failed statements held is given back by another thread, if it is more.
const MUCH_BYTES: usize = 1 << 20;
/// The same of rows that were made at once.
const MANY_ROWS: usize = 1 << 14;

impl Drop for Portal {
    fn drop(&mut self) {
        let depth = self.prepared.depth();
        if depth > parse::SHALLOW {
            let state = std::mem::replace(&mut self.state, PortalState::Ready);
            parse::on_large_stack(depth, || drop(state));
        }
    }
}

/// What the memory of suspended portals is called.
const HELD: &str = "A suspended statement";

/// How far a portal is.
#[derive(Debug)]
pub(crate) enum PortalState {
    /// Not begun.
    Ready,
    /// Rows come from a cursor, which reads what was there when it began; so many came already.
    Cursor { cursor: Box<Cursor>, view: ReadView, rows: u64 },
    /// Rows were all made at once.
    Rows { rows: std::vec::IntoIter<Vec<Datum>>, sent: u64, tag: Tag },
    /// Rows are the lines of a family's table.
    Family(Box<super::mip::FamilyRows>),
    /// Another portal gives the rows (EXECUTE, FETCH).
    Inner(Box<Portal>),
    /// COPY TO STDOUT.
    CopyOut(Box<super::copy::CopyOut>),
    /// BACKUP.
    Backup(super::backup::BackupOut),
    /// Done.
    Done(CommandTag),
}

/// The tag of a portal whose rows were made at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tag {
    /// Counts the rows sent: `SELECT 5`.
    Sent(&'static str),
    /// Known beforehand: `UPDATE 5`, `SHOW`.
    Fixed(CommandTag),
}

impl Portal {
    pub(crate) fn new(prepared: Arc<Prepared>, parameters: Arc<[Datum]>, formats: Vec<Format>) -> Portal {
        let columns = prepared.shared_columns();
        Portal::giving(columns, prepared, parameters, formats)
    }

    /// One that gives other columns than those of its statement.
    pub(super) fn giving(
        columns: Option<Arc<[OutputColumn]>>,
        prepared: Arc<Prepared>,
        parameters: Arc<[Datum]>,
        formats: Vec<Format>,
    ) -> Portal {
        let state = PortalState::Ready;
        let (is_told, depth, begun_in, given, held) = (false, 0, 0, None, None);
        let (is_open, bound) = (false, 0);
        Portal {
            prepared,
            parameters,
            columns,
            formats,
            state,
            is_told,
            depth,
            begun_in,
            is_open,
            bound,
            given,
            held,
            listed: None,
        }
    }

    /// Nobody has been told of its columns, and none of them has a format of its own: should they
    /// be others once it has what it waits for, it gives those.
    pub fn leave_open(&mut self) {
        self.is_open = true;
    }

    /// Its client is told of its columns: it gives them or none.
    pub fn close_columns(&mut self) {
        self.is_open = false;
    }

    /// Whether its columns may still become others.
    pub fn is_open(&self) -> bool {
        self.is_open && !self.has_begun()
    }

    /// It has begun: its columns do not change any more.
    pub fn has_begun(&self) -> bool {
        !matches!(self.state, PortalState::Ready)
    }

    /// Whether it was made of this statement.
    pub fn is_of(&self, prepared: &Arc<Prepared>) -> bool {
        Arc::ptr_eq(&self.prepared, prepared)
    }

    /// What it was made of.
    pub fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// Its place among those that its session has bound.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// Takes the statement as it was prepared anew, and its columns.
    pub(super) fn renew(&mut self, prepared: Arc<Prepared>) {
        self.columns = prepared.shared_columns();
        let formats = std::mem::take(&mut self.formats);
        self.spread_formats(&formats);
        self.prepared = prepared;
    }

    /// Takes the formats that its columns were asked for in. If it has others by now, they were all
    /// to have the same one.
    pub(super) fn spread_formats(&mut self, formats: &[Format]) {
        let columns = self.columns.as_ref().map_or(0, |columns| columns.len());
        self.formats = match formats.len() == columns {
            true => formats.to_vec(),
            false => vec![formats.first().copied().unwrap_or(Format::Text); columns],
        };
    }

    /// The same statement with the same parameters, not begun.
    pub fn again(&self) -> Portal {
        let (prepared, parameters) = (self.prepared.clone(), self.parameters.clone());
        let mut again = Portal::giving(self.columns.clone(), prepared, parameters, self.formats.clone());
        (again.given, again.is_open, again.bound) = (self.given.clone(), self.is_open, self.bound);
        again
    }

    /// Takes memory for its parameters.
    pub(super) fn charge_parameters(&mut self, budget: &Arc<Budget>) -> Result<()> {
        let bytes = self.parameters.iter().map(datum_bytes).sum();
        if bytes > SMALL_BYTES {
            self.given = Some(Arc::new(budget.charge(bytes, "The parameters")?));
        }
        Ok(())
    }

    /// It is kept under a name of so many bytes: takes memory for it, so that many small ones are
    /// not for nothing. 53200 if there is not so much.
    pub(super) fn charge_name(&mut self, name: usize, budget: &Arc<Budget>) -> Result<()> {
        let parameters: usize = self.parameters.iter().map(datum_bytes).sum();
        let bytes = NAMED_BYTES + name + self.formats.len() * size_of::<Format>() + parameters;
        match self.given.as_mut().and_then(Arc::get_mut) {
            Some(given) => given.resize(bytes, "A portal")?,
            None => self.given = Some(Arc::new(budget.charge(bytes, "A portal")?)),
        }
        Ok(())
    }

    /// Its rows were charged already.
    pub(super) fn keep_charge(&mut self, charge: Charge) {
        self.held = Some(charge);
    }

    /// It is suspended: takes memory for what it holds meanwhile. 53200 if that is too much.
    pub(super) fn charge_held(&mut self, budget: &Arc<Budget>) -> Result<()> {
        let bytes = match &mut self.state {
            PortalState::Cursor { cursor, .. } => cursor.memory(),
            PortalState::Inner(inner) => return inner.charge_held(budget),
            // They become fewer, and were counted when there were most.
            PortalState::Rows { rows, .. } if self.held.is_none() => {
                rows.as_slice().iter().map(|row| row_bytes(row)).sum()
            }
            PortalState::Rows { .. } => return Ok(()),
            _ => 0,
        };
        match &mut self.held {
            Some(held) => held.resize(bytes, HELD)?,
            None if bytes == 0 => {}
            None => self.held = Some(budget.charge(bytes, HELD)?),
        }
        Ok(())
    }

    /// It has given its last row.
    pub(super) fn end(&mut self) {
        self.is_told = true;
        self.let_go();
    }

    /// It is done.
    pub(super) fn let_go(&mut self) {
        self.held = None;
    }

    /// Its statement has failed. To give back what it held can take longer than its client should
    /// wait for the error: another thread does that. One that computed for long may hold what is
    /// not accounted for: large values, files. A deep one stays with who has the stack for it.
    pub(super) fn abandon(&mut self, was_long: bool) {
        if let PortalState::Inner(inner) = &mut self.state {
            return inner.abandon(was_long);
        }
        let holds_much = match &self.state {
            PortalState::Cursor { cursor, .. } => was_long || cursor.memory() > MUCH_BYTES,
            PortalState::Rows { rows, .. } => rows.len() > MANY_ROWS,
            _ => false,
        };
        if !holds_much || self.prepared.depth() > parse::SHALLOW {
            return;
        }
        let done = PortalState::Done(CommandTag::Rows("SELECT", 0));
        match std::mem::replace(&mut self.state, done) {
            PortalState::Cursor { cursor, .. } => reclaim::elsewhere(cursor),
            PortalState::Rows { rows, .. } => reclaim::elsewhere(rows),
            _ => {}
        }
    }

    /// The columns of its rows, or `None` if it returns none.
    pub fn columns(&self) -> Option<&[OutputColumn]> {
        self.columns.as_deref()
    }

    /// 0A000 unless rows with these columns are what its client was told of.
    pub(super) fn check_gives(&self, columns: Option<&[OutputColumn]>) -> Result<()> {
        let is_alike = match (self.columns(), columns) {
            (Some(told), Some(given)) => {
                told.len() == given.len() && told.iter().zip(given).all(|(told, given)| told.ty == given.ty)
            }
            (None, None) => true,
            _ => false,
        };
        if is_alike { Ok(()) } else { Err(changed_result()) }
    }

    /// What one that is done answers if it is executed once more: no more rows; 55000 if it never
    /// had any.
    pub(super) fn done_before(&self) -> Option<Result<Fetch>> {
        let tag = match &self.state {
            PortalState::Done(tag) => *tag,
            PortalState::Inner(inner) => return inner.done_before(),
            _ => return None,
        };
        let tag = match tag {
            _ if self.columns.is_none() => {
                return Some(Err(SqlError::new(
                    sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    "the portal cannot be run: it has been",
                )));
            }
            CommandTag::Plain(_) => tag,
            CommandTag::Rows(words, _) => CommandTag::Rows(words, 0),
            CommandTag::Insert(_) => CommandTag::Insert(0),
        };
        Some(Ok(Fetch::Complete(tag)))
    }

    /// The same, shared with the statement: the same statement's portals have the same.
    pub fn shared_columns(&self) -> Option<&Arc<[OutputColumn]>> {
        self.columns.as_ref()
    }

    /// Formats of its columns, one for each.
    pub fn formats(&self) -> &[Format] {
        &self.formats
    }
}

/// The rows of a statement are not what they were when it was prepared. asyncpg, pgjdbc and Rails
/// prepare it anew if the error is of this function.
pub(super) fn changed_result() -> SqlError {
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "cached plan must not change result type")
        .with_routine("RevalidateCachedQuery")
}

/// How far [`Session::fetch`](super::Session::fetch) came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// Done: CommandComplete.
    Complete(CommandTag),
    /// As many rows as asked for: PortalSuspended.
    Suspended,
    /// Flush the sink, then call again.
    SinkFull,
    /// An empty query: EmptyQueryResponse.
    Empty,
    /// COPY FROM STDIN waits for data: CopyInResponse, then `copy_data`, `copy_done` or
    /// `copy_fail`.
    CopyIn(CopyInFormat),
    /// COPY TO STDOUT or BACKUP begins: send CopyOutResponse and call again; data goes to
    /// `copy_out`. After the last, `Complete` is preceded by CopyDone.
    CopyOut(CopyInFormat),
}

impl Fetch {
    /// Whether to stop after so many rows were given, of which the sink took the last one like
    /// this; no more than `max_rows` are asked for (0 is no limit).
    #[inline]
    pub(super) fn stop(given: u64, max_rows: u64, state: SinkState) -> Option<Fetch> {
        if given == max_rows {
            return Some(Fetch::Suspended);
        }
        (state == SinkState::Full).then_some(Fetch::SinkFull)
    }
}

/// Format of COPY data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    /// Text or CSV.
    Text,
    /// Binary.
    Binary,
}

/// What CopyInResponse and CopyOutResponse say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyInFormat {
    /// Overall and for each column.
    pub format: CopyFormat,
    /// Number of columns.
    pub columns: usize,
}

/// The text of CommandComplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandTag {
    /// Just words: `BEGIN`, `CREATE TABLE`.
    Plain(&'static str),
    /// Words and a number of rows: `SELECT 5`, `UPDATE 1`.
    Rows(&'static str, u64),
    /// `INSERT 0 n`.
    Insert(u64),
}

impl fmt::Display for CommandTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandTag::Plain(words) => f.write_str(words),
            CommandTag::Rows(words, rows) => write!(f, "{words} {rows}"),
            CommandTag::Insert(rows) => write!(f, "INSERT 0 {rows}"),
        }
    }
}
