//! COPY output in text and csv: the fields of rows to lines.

use super::{CopyFileFormat, CopyOptions};
use crate::error::Result;
use crate::types::bounds;

/// Makes lines of COPY data, in one buffer that is used again and again.
#[derive(Debug)]
pub struct CopyWriter {
    options: CopyOptions,
    /// Csv: columns that are always quoted.
    forced: Vec<bool>,
    line: Vec<u8>,
}

impl CopyWriter {
    /// A writer; `forced` says for each column whether it is always quoted (csv).
    pub fn new(options: CopyOptions, forced: Vec<bool>) -> CopyWriter {
        CopyWriter { options, forced, line: vec![] }
    }

    /// One row's line, with its end. `None` is NULL.
    #[cfg(test)]
    pub(crate) fn line(&mut self, fields: &[Option<&[u8]>]) -> &[u8] {
        self.begin();
        for (place, field) in fields.iter().enumerate() {
            self.field(place, *field, fields.len() == 1).expect("nothing bounds it");
        }
        self.end()
    }

    /// The line of the columns' names, with its end. They are quoted only where they must be.
    pub fn names(&mut self, names: &[&str]) -> Result<&[u8]> {
        self.begin();
        for (place, name) in names.iter().enumerate() {
            if place > 0 {
                self.line.push(self.options.delimiter);
            }
            match self.options.format {
                CopyFileFormat::Csv => self.csv(name.as_bytes(), false, names.len() == 1)?,
                _ => self.text(name.as_bytes())?,
            }
        }
        Ok(self.end())
    }

    /// Begins a line that is made field by field.
    pub fn begin(&mut self) {
        self.line.clear();
    }

    /// Appends a field. `single`: it is the row's only one. 57014 once the statement should stop,
    /// 53200 and 54000 for a line that is too long.
    pub fn field(&mut self, place: usize, field: Option<&[u8]>, single: bool) -> Result<()> {
        if place > 0 {
            self.line.push(self.options.delimiter);
        }
        match (field, self.options.format) {
            (None, _) => {
                self.line.extend_from_slice(&self.options.null);
                Ok(())
            }
            (Some(field), CopyFileFormat::Csv) => {
                let forced = self.forced.get(place).copied().unwrap_or(self.options.force_quote_all);
                self.csv(field, forced || self.options.force_quote_all, single)
            }
            (Some(field), _) => self.text(field),
        }
    }

    /// Ends the line.
    pub fn end(&mut self) -> &[u8] {
        self.line.push(b'\n');
        &self.line
    }

    fn text(&mut self, field: &[u8]) -> Result<()> {
        for part in bounds::parts(field) {
            let part = part?;
            bounds::make_room(part.len(), &mut self.line)?;
            self.text_part(part);
        }
        bounds::check_written(&self.line)
    }

    fn text_part(&mut self, part: &[u8]) {
        for byte in part {
            let escaped = match byte {
                8 => b'b',
                9 => b't',
                10 => b'n',
                11 => b'v',
                12 => b'f',
                13 => b'r',
                b'\\' => b'\\',
                byte if *byte == self.options.delimiter => *byte,
                byte => {
                    self.line.push(*byte);
                    continue;
                }
            };
            self.line.extend_from_slice(&[b'\\', escaped]);
        }
    }

    fn csv(&mut self, field: &[u8], forced: bool, single: bool) -> Result<()> {
        let options = &self.options;
        let special =
            |byte: &u8| *byte == options.delimiter || *byte == options.quote || matches!(byte, b'\n' | b'\r');
        // The end marker alone on a line would end the data.
        let marker = single && field == b"\\.";
        if !forced && !marker && field != options.null && !field.iter().any(special) {
            return bounds::append(field, &mut self.line);
        }
        self.line.push(options.quote);
        for part in bounds::parts(field) {
            let part = part?;
            bounds::make_room(part.len(), &mut self.line)?;
            for byte in part {
                if *byte == options.quote || *byte == options.escape {
                    self.line.push(options.escape);
                }
                self.line.push(*byte);
            }
        }
        self.line.push(options.quote);
        bounds::check_written(&self.line)
    }
}
