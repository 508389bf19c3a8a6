//! COPY input: data cut anywhere, to lines.
//!
//! Complete lines are taken from a buffer as they arrive; what is behind the last line end waits
//! for more. Lines end as the first one does: by a newline, a carriage return, or both. Another of
//! these later on is an error, since nobody knows whether it is data or the end of a row. In csv a
//! line end within quotes is data, and in text one behind a backslash.
//!
//! `\.` alone on a line ends the data; what follows it is ignored. In text it ends them anywhere in
//! a line, but nothing may stand behind it.

use crate::error::{Result, SqlError, sqlstate};

/// Longest line in bytes, where nobody says less.
pub(super) const MAX_LINE: usize = 256 * 1024 * 1024;
/// Consumed bytes are dropped from the buffer beyond this many.
const COMPACT: usize = 64 * 1024;

/// What ends a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    Newline,
    Return,
    Both,
}

/// The bounds of a line's bytes, without its end.
pub(super) type Line = (usize, usize);

/// Takes data apart.
#[derive(Debug)]
pub(super) struct Lines {
    /// Csv: the quote, and what stands before one within quotes, if that is something else.
    csv: Option<(u8, Option<u8>)>,
    buffer: Vec<u8>,
    /// Consumed bytes at the buffer's beginning.
    start: usize,
    /// How far the next line was searched for its end, and whether that place is within quotes, or
    /// behind a backslash.
    searched: usize,
    quoted: bool,
    escaped: bool,
    /// How lines end, once one has.
    line_end: Option<LineEnd>,
    number: u64,
    /// No more data will come, or it does not matter.
    finished: bool,
    closed: bool,
    line_max: usize,
}

impl Lines {
    /// Before the first byte.
    pub(super) fn new(csv: Option<(u8, Option<u8>)>) -> Lines {
        Lines {
            csv,
            buffer: vec![],
            start: 0,
            searched: 0,
            quoted: false,
            escaped: false,
            line_end: None,
            number: 0,
            finished: false,
            closed: false,
            line_max: MAX_LINE,
        }
    }

    /// The same where a line may have no more than so many bytes.
    pub(super) fn within(self, line_max: usize) -> Lines {
        Lines { line_max: line_max.min(MAX_LINE), ..self }
    }

    /// Number of the line that was given or refused last, from 1. Line ends within quotes count.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The bytes of a line, until more data is taken.
    pub(super) fn bytes(&self, (from, to): Line) -> &[u8] {
        self.buffer.get(from..to).unwrap_or_default()
    }

    /// Takes more data.
    pub(super) fn feed(&mut self, data: &[u8]) {
        if self.closed {
            return;
        }
        if self.start > COMPACT && self.start * 2 > self.buffer.len() {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(data);
    }

    /// No more data will come: the last line may lack its end.
    pub(super) fn finish(&mut self) {
        self.finished = true;
    }

    /// The next complete line; none if more data is needed, or all is read. 22P04, 53200, 54000.
    pub(super) fn next_line(&mut self) -> Result<Option<Line>> {
        let found = self.find();
        if !matches!(found, Ok(None)) {
            self.number += 1;
        }
        found
    }

    fn find(&mut self) -> Result<Option<Line>> {
        let end = match self.csv {
            Some((quote, escape)) => self.csv_end(quote, escape)?,
            None => self.text_end()?,
        };
        let from = self.start;
        // Without an end a line has what is there already.
        let (to, next) = end.unwrap_or((self.buffer.len(), self.buffer.len()));
        if to - from > self.line_max {
            return Err(too_long(self.line_max));
        }
        if end.is_none() && (!self.finished || from == to) {
            return Ok(None);
        }
        (self.start, self.searched) = (next, next);
        if self.csv.is_some() && self.bytes((from, to)) == b"\\." {
            self.close(next);
            self.start = next;
            return Ok(None);
        }
        Ok(Some((from, to)))
    }

    /// What is behind this place is no data.
    fn close(&mut self, at: usize) {
        self.buffer.truncate(at);
        (self.searched, self.escaped) = (at, false);
        (self.finished, self.closed) = (true, true);
    }

    /// Where the next line ends, and where the one behind it begins.
    fn text_end(&mut self) -> Result<Option<(usize, usize)>> {
        let mut at = self.searched;
        while at < self.buffer.len() {
            match self.buffer[at] {
                b'.' if self.escaped => {
                    if !self.is_marker(at)? {
                        break;
                    }
                    self.close(at - 1);
                    return Ok(None);
                }
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'\n' | b'\r' => match self.behind(at)? {
                    Some(next) => return Ok(Some((at, next))),
                    None => break,
                },
                _ => {}
            }
            at += 1;
        }
        self.searched = at;
        Ok(None)
    }

    /// The same outside quotes.
    fn csv_end(&mut self, quote: u8, escape: Option<u8>) -> Result<Option<(usize, usize)>> {
        let mut at = self.searched;
        while at < self.buffer.len() {
            let byte = self.buffer[at];
            if self.escaped {
                self.escaped = false;
            } else if self.quoted && Some(byte) == escape {
                self.escaped = true;
            } else if byte == quote {
                // A doubled quote leaves and enters again, which comes to the same.
                self.quoted = !self.quoted;
            } else if matches!(byte, b'\n' | b'\r') && !self.quoted {
                match self.behind(at)? {
                    Some(next) => return Ok(Some((at, next))),
                    None => break,
                }
            }
            let counted = if self.line_end == Some(LineEnd::Newline) { b'\n' } else { b'\r' };
            if self.quoted && byte == counted {
                self.number += 1;
            }
            at += 1;
        }
        self.searched = at;
        Ok(None)
    }

    /// Where the next line begins if one ends here; none if that depends on data to come. 22P04 for
    /// another end than that of the lines before.
    fn behind(&mut self, at: usize) -> Result<Option<usize>> {
        let may_be_both = matches!(self.line_end, None | Some(LineEnd::Both));
        let found = match (self.buffer[at], self.buffer.get(at + 1)) {
            (b'\n', _) => LineEnd::Newline,
            (_, None) if may_be_both && !self.finished => return Ok(None),
            (_, Some(b'\n')) if may_be_both => LineEnd::Both,
            _ => LineEnd::Return,
        };
        if self.line_end.is_some_and(|known| known != found) {
            return Err(stray(found, self.csv.is_some()));
        }
        self.line_end = Some(found);
        Ok(Some(at + if found == LineEnd::Both { 2 } else { 1 }))
    }

    /// Whether the data end with the period here, which a backslash stands before; false if that
    /// depends on data to come. 22P04 if they cannot end so.
    fn is_marker(&self, at: usize) -> Result<bool> {
        let wrong = |message: &str| Err(SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, message));
        let (first, second) = (self.buffer.get(at + 1), self.buffer.get(at + 2));
        let found = match (first, second) {
            (None, _) => return Ok(self.finished),
            (Some(b'\n'), _) => LineEnd::Newline,
            (Some(b'\r'), _) if self.line_end != Some(LineEnd::Both) => LineEnd::Return,
            (Some(b'\r'), None) if !self.finished => return Ok(false),
            (Some(b'\r'), Some(b'\n')) => LineEnd::Both,
            (Some(b'\r'), Some(b'\r')) => LineEnd::Return,
            _ => return wrong("end-of-copy marker corrupt"),
        };
        if self.line_end.is_some_and(|known| known != found) {
            return wrong("end-of-copy marker does not match previous newline style");
        }
        Ok(true)
    }
}

/// A line end that is not that of the lines before.
#[cold]
fn stray(found: LineEnd, csv: bool) -> SqlError {
    let (what, letter) = match found {
        LineEnd::Newline => ("newline", 'n'),
        LineEnd::Return | LineEnd::Both => ("carriage return", 'r'),
    };
    let error =
        |how: &str| SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, format!("{how} {what} found in data"));
    match csv {
        true => error("unquoted").with_hint(format!("Use quoted CSV field to represent {what}.")),
        false => error("literal").with_hint(format!("Use \"\\{letter}\" to represent {what}.")),
    }
}

/// A line, or a row in binary, is longer than it may be.
#[cold]
pub(super) fn too_long(line_max: usize) -> SqlError {
    if line_max == MAX_LINE {
        return SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "a line of COPY data is too long");
    }
    let detail = format!("A line of COPY data is longer than {} kB.", line_max / 1024);
    SqlError::new(sqlstate::OUT_OF_MEMORY, "out of memory").with_detail(detail)
}
