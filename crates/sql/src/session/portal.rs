//! Portals: statements with their parameters, being executed.

use std::fmt;

use super::{Format, OutputColumn};

/// A bound statement. It belongs to the session that made it.
#[derive(Debug)]
pub struct Portal {
    columns: Option<Vec<OutputColumn>>,
    formats: Vec<Format>,
}

impl Portal {
    /// The columns of its rows, or `None` if it returns none.
    pub fn columns(&self) -> Option<&[OutputColumn]> {
        self.columns.as_deref()
    }

    /// Formats of its columns, one for each.
    pub fn formats(&self) -> &[Format] {
        &self.formats
    }
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
    /// COPY FROM STDIN waits for data: CopyInResponse, then `copy_data`, `copy_done` or `copy_fail`.
    CopyIn(CopyInFormat),
    /// COPY TO STDOUT begins: send CopyOutResponse and call again; lines go to `copy_out`. After the last, `Complete`
    /// is preceded by CopyDone.
    CopyOut(CopyInFormat),
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
