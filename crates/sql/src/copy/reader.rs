//! COPY input: lines (`lines`) to the fields of rows.

use super::lines::{Line, Lines};
use super::{CopyFileFormat, CopyOptions};
use crate::error::{Result, SqlError, sqlstate};

/// No table has so many columns: further fields of a line are not looked at.
const MAX_FIELDS: usize = 1 << 12;

/// The fields of one row.
#[derive(Debug, Default)]
pub struct Fields {
    text: Vec<u8>,
    /// Ends of the fields in `text`, and what each is.
    fields: Vec<(usize, Kind)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Null,
    Value,
    /// Csv: the NULL string, within quotes.
    QuotedNull,
    /// Csv: the NULL string, read as NULL.
    BareNull,
}

impl Fields {
    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The field's bytes; `None` is NULL, or no such field.
    pub fn get(&self, place: usize) -> Option<&[u8]> {
        match self.fields.get(place)?.1 {
            Kind::Null | Kind::BareNull => None,
            Kind::Value | Kind::QuotedNull => Some(self.bytes(place)),
        }
    }

    /// The same for a column of FORCE_NOT_NULL or FORCE_NULL.
    pub fn get_forced(&self, place: usize, not_null: bool, null: bool) -> Option<&[u8]> {
        match self.fields.get(place)?.1 {
            Kind::BareNull if not_null => Some(self.bytes(place)),
            Kind::QuotedNull if null => None,
            _ => self.get(place),
        }
    }

    fn bytes(&self, place: usize) -> &[u8] {
        let start = if place == 0 { 0 } else { self.fields[place - 1].0 };
        &self.text[start..self.fields[place].0]
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
    }

    /// Appends a field; `None` is NULL.
    pub(super) fn push(&mut self, value: Option<&[u8]>) {
        self.text.extend_from_slice(value.unwrap_or_default());
        self.end(if value.is_some() { Kind::Value } else { Kind::Null });
    }

    /// Bytes of all fields together.
    pub(super) fn bytes_held(&self) -> usize {
        self.text.len()
    }

    fn end(&mut self, kind: Kind) {
        self.fields.push((self.text.len(), kind));
    }
}

/// Reads COPY data in text and csv.
#[derive(Debug)]
pub struct CopyReader {
    options: CopyOptions,
    lines: Lines,
    /// The line that was read last, if all of it was found.
    last: Option<Line>,
    header: bool,
    /// The names that the header must have, if it must.
    expected: Option<Vec<String>>,
    /// Rows have no fields, so that an empty line is not a field without characters.
    without_fields: bool,
}

impl CopyReader {
    /// A reader before the first byte.
    pub fn new(options: CopyOptions) -> CopyReader {
        let (quote, escape) = (options.quote, options.escape);
        let csv = (options.format == CopyFileFormat::Csv)
            .then(|| (quote, Some(escape).filter(|escape| *escape != quote)));
        CopyReader {
            header: options.header,
            lines: Lines::new(csv),
            options,
            last: None,
            expected: None,
            without_fields: false,
        }
    }

    /// The same for columns of these names, which the header must have if HEADER MATCH says so.
    pub fn expecting(self, names: Vec<String>) -> CopyReader {
        let without_fields = names.is_empty();
        let expected = self.options.header_match.then_some(names);
        CopyReader { expected, without_fields, ..self }
    }

    /// The same where a line may have no more than so many bytes.
    pub fn within(self, line_max: usize) -> CopyReader {
        CopyReader { lines: self.lines.within(line_max), ..self }
    }

    /// Number of the line the last row came from, from 1; for messages.
    pub fn line(&self) -> u64 {
        self.lines.number()
    }

    /// That line, if all of it was found.
    pub fn text(&self) -> Option<&[u8]> {
        self.last.map(|line| self.lines.bytes(line))
    }

    /// Takes more data.
    pub fn feed(&mut self, data: &[u8]) {
        self.last = None;
        self.lines.feed(data);
    }

    /// No more data will come: the last line may lack its end.
    pub fn finish(&mut self) {
        self.lines.finish();
    }

    /// The next complete row's fields; false if more data is needed, or all is read. 22P04 for
    /// malformed data.
    pub fn next(&mut self, fields: &mut Fields) -> Result<bool> {
        loop {
            self.last = None;
            let Some(line) = self.lines.next_line()? else { return Ok(false) };
            self.last = Some(line);
            let is_header = std::mem::take(&mut self.header);
            if is_header && self.expected.is_none() {
                continue;
            }
            fields.clear();
            let line = self.lines.bytes(line);
            match self.options.format {
                _ if self.without_fields && line.is_empty() => {}
                _ if self.without_fields => return Err(extra_data()),
                CopyFileFormat::Csv => csv_line(line, &self.options, fields)?,
                _ => text_line(line, &self.options, fields),
            }
            match self.expected.take() {
                Some(names) => check_header(fields, &names, &self.options.null)?,
                None => return Ok(true),
            }
        }
    }
}

/// 22P04 for a line with more fields than there are columns.
pub(crate) fn extra_data() -> SqlError {
    SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, "extra data after last expected column")
}

/// 22P04 unless the fields are these names.
fn check_header(fields: &Fields, names: &[String], null: &[u8]) -> Result<()> {
    let (found, expected) = (fields.len(), names.len());
    let wrong = |message: String| Err(SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, message));
    if found != expected {
        return wrong(format!("wrong number of fields in header line: got {found}, expected {expected}"));
    }
    for (place, name) in names.iter().enumerate() {
        let got = match fields.get(place) {
            Some(field) if field == name.as_bytes() => continue,
            Some(field) => format!("\"{}\"", String::from_utf8_lossy(field)),
            None => format!("null value (\"{}\")", String::from_utf8_lossy(null)),
        };
        let number = place + 1;
        return wrong(format!(
            "column name mismatch in header line field {number}: got {got}, expected \"{name}\""
        ));
    }
    Ok(())
}

fn text_line(line: &[u8], options: &CopyOptions, fields: &mut Fields) {
    let mut rest = line;
    loop {
        // Fields without backslashes are copied whole.
        let stop = rest.iter().position(|byte| *byte == options.delimiter || *byte == b'\\');
        let begin = fields.text.len();
        let end = match stop {
            None => {
                fields.text.extend_from_slice(rest);
                rest.len()
            }
            Some(stop) if rest[stop] == options.delimiter => {
                fields.text.extend_from_slice(&rest[..stop]);
                stop
            }
            Some(_) => escaped_field(rest, options.delimiter, &mut fields.text),
        };
        let kind = if rest[..end] == options.null[..] { Kind::Null } else { Kind::Value };
        if kind == Kind::Null {
            fields.text.truncate(begin);
        }
        fields.end(kind);
        if end == rest.len() || fields.len() == MAX_FIELDS {
            return;
        }
        rest = &rest[end + 1..];
    }
}

/// Appends a field with its escapes undone; returns where it ends.
fn escaped_field(rest: &[u8], delimiter: u8, out: &mut Vec<u8>) -> usize {
    let mut at = 0;
    while at < rest.len() && rest[at] != delimiter {
        if rest[at] != b'\\' || at + 1 == rest.len() {
            out.push(rest[at]);
            at += 1;
            continue;
        }
        at += 1;
        let digits = |from: usize, most: usize, radix: u32| {
            let count =
                rest[from..].iter().take(most).take_while(|b| char::from(**b).is_digit(radix)).count();
            let value = rest[from..from + count]
                .iter()
                .fold(0, |value, b| value * radix + char::from(*b).to_digit(radix).unwrap_or(0));
            (count, value.to_le_bytes()[0])
        };
        match rest[at] {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'0'..=b'7' => {
                let (count, value) = digits(at, 3, 8);
                out.push(value);
                at += count - 1;
            }
            b'x' => {
                let (count, value) = digits(at + 1, 2, 16);
                out.push(if count == 0 { b'x' } else { value });
                at += count;
            }
            other => out.push(other),
        }
        at += 1;
    }
    at
}

fn csv_line(line: &[u8], options: &CopyOptions, fields: &mut Fields) -> Result<()> {
    let mut at = 0;
    loop {
        let begin = fields.text.len();
        let (mut quoted, mut was_quoted) = (false, false);
        while at < line.len() {
            let byte = line[at];
            if !quoted && byte == options.delimiter {
                break;
            }
            if quoted
                && byte == options.escape
                && at + 1 < line.len()
                && (line[at + 1] == options.quote || line[at + 1] == options.escape)
            {
                fields.text.push(line[at + 1]);
                at += 2;
                continue;
            }
            if byte == options.quote {
                quoted = !quoted;
                was_quoted = true;
            } else {
                fields.text.push(byte);
            }
            at += 1;
        }
        if quoted {
            return Err(SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, "unterminated CSV quoted field"));
        }
        let is_null = fields.text[begin..] == options.null[..];
        fields.end(match (is_null, was_quoted) {
            (true, true) => Kind::QuotedNull,
            (true, false) => Kind::BareNull,
            (false, _) => Kind::Value,
        });
        if at == line.len() || fields.len() == MAX_FIELDS {
            return Ok(());
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(options: &CopyOptions, chunks: &[&[u8]]) -> Result<Vec<Vec<Option<String>>>> {
        let mut reader = CopyReader::new(options.clone());
        let mut fields = Fields::default();
        let mut rows = vec![];
        let mut take = |reader: &mut CopyReader| -> Result<()> {
            while reader.next(&mut fields)? {
                let field = |i| fields.get(i).map(|bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned());
                rows.push((0..fields.len()).map(field).collect());
            }
            Ok(())
        };
        for chunk in chunks {
            reader.feed(chunk);
            take(&mut reader)?;
        }
        reader.finish();
        take(&mut reader)?;
        Ok(rows)
    }

    fn show(rows: &[Vec<Option<String>>]) -> String {
        let row = |row: &Vec<Option<String>>| {
            row.iter().map(|f| f.clone().unwrap_or("<null>".to_owned())).collect::<Vec<_>>().join("|")
        };
        rows.iter().map(row).collect::<Vec<_>>().join(" / ")
    }

    #[test]
    fn text_escapes_nulls_and_the_end_marker() {
        let options = CopyOptions::of(CopyFileFormat::Text);
        let data = b"1\ta\\tb\\n\t\\N\n2\t\\x41\\101\\\\\t\n3\tx\\\ny\tlast\n\\.\nignored";
        let rows = read(&options, &[data]).expect("it reads");
        assert_eq!(show(&rows), "1|a\tb\n|<null> / 2|AA\\| / 3|x\ny|last");
    }

    #[test]
    fn lines_end_as_the_first_one_does() {
        let text = CopyOptions::of(CopyFileFormat::Text);
        let csv = CopyOptions::of(CopyFileFormat::Csv);
        assert_eq!(show(&read(&text, &[b"1\r2\r\\.\rignored"]).expect("it reads")), "1 / 2");
        assert_eq!(show(&read(&csv, &[&b"1\r"[..], b"\n\"a\nb\"\r\n"]).expect("it reads")), "1 / a\nb");
        for (options, data) in [
            (&text, &b"1\n2\r\n"[..]),
            (&text, &b"1\r\n2\n"[..]),
            (&text, &b"1\r\n2\r3\r\n"[..]),
            (&text, &b"1\r2\n"[..]),
            (&csv, &b"1\n2\r3\n"[..]),
            (&text, &b"1\n\\.\r\n"[..]),
            (&text, &b"a\\.b\n"[..]),
        ] {
            let error = read(options, &[data]).expect_err("it is refused");
            assert_eq!(error.sqlstate, "22P04", "{data:?}");
        }
    }

    #[test]
    fn without_columns_an_empty_line_is_a_row() {
        for format in [CopyFileFormat::Text, CopyFileFormat::Csv] {
            let mut reader = CopyReader::new(CopyOptions::of(format)).expecting(vec![]);
            let mut fields = Fields::default();
            reader.feed(b"\n\n\"\"\n");
            for _ in 0..2 {
                assert!(reader.next(&mut fields).expect("it reads"));
                assert!(fields.is_empty());
            }
            let error = reader.next(&mut fields).expect_err("it is refused");
            assert_eq!(error.message, "extra data after last expected column");
        }
    }

    #[test]
    fn the_end_marker_ends_a_line_of_text_too() {
        let options = CopyOptions::of(CopyFileFormat::Text);
        let rows = read(&options, &[&b"1\n2\\"[..], b".", b"\n3\n"]).expect("it reads");
        assert_eq!(show(&rows), "1 / 2");
        assert_eq!(show(&read(&options, &[b"1\\\\.\n"]).expect("it reads")), "1\\.");
    }

    #[test]
    fn lines_within_quotes_are_counted() {
        let mut reader = CopyReader::new(CopyOptions::of(CopyFileFormat::Csv));
        let mut fields = Fields::default();
        reader.feed(b"a\n\"b\nc\"\nd\n");
        let mut lines = vec![];
        while reader.next(&mut fields).expect("it reads") {
            lines.push((reader.line(), reader.text().map(<[u8]>::to_vec)));
        }
        let expected = [(1, "a"), (3, "\"b\nc\""), (4, "d")];
        assert_eq!(lines, expected.map(|(line, text)| (line, Some(text.as_bytes().to_vec()))));
    }

    #[test]
    fn csv_quotes_nulls_and_line_ends_within_quotes() {
        let options = CopyOptions::of(CopyFileFormat::Csv);
        let rows = read(&options, &[b"1,\"a \"\"b\"\"\n c\",\n2,\"\",x\"y,z\"\n"]).expect("it reads");
        assert_eq!(show(&rows), "1|a \"b\"\n c|<null> / 2||xy,z");
        let error = read(&options, &[b"1,\"open\n"]).expect_err("unterminated");
        assert_eq!(error.sqlstate, "22P04");
    }

    #[test]
    fn a_header_is_skipped_and_a_last_line_needs_no_end() {
        let mut options = CopyOptions::of(CopyFileFormat::Csv);
        options.header = true;
        assert_eq!(show(&read(&options, &[b"id,name\n1,a"]).expect("it reads")), "1|a");
    }

    proptest! {
        /// However the data is cut, the rows are the same.
        #[test]
        fn cuts_do_not_matter(data in "[ab\\\\\",\n\r\tN.]{0,60}", cut in 0usize..60, csv: bool) {
            let options = CopyOptions::of(if csv { CopyFileFormat::Csv } else { CopyFileFormat::Text });
            let cut = cut.min(data.len());
            let whole = read(&options, &[data.as_bytes()]).map_err(|error| error.sqlstate);
            let parts = read(&options, &[&data.as_bytes()[..cut], &data.as_bytes()[cut..]]).map_err(|e| e.sqlstate);
            prop_assert_eq!(whole, parts);
        }

        /// What the writer writes, the reader reads.
        #[test]
        fn written_is_read(fields in proptest::collection::vec(proptest::option::of("[ab\\\\\",\n\r\tN. ]{0,12}"), 1..4), csv: bool) {
            let options = CopyOptions::of(if csv { CopyFileFormat::Csv } else { CopyFileFormat::Text });
            let mut writer = crate::copy::CopyWriter::new(options.clone(), vec![false; fields.len()]);
            let values: Vec<Option<&[u8]>> = fields.iter().map(|f| f.as_ref().map(|f| f.as_bytes())).collect();
            let line = writer.line(&values).to_vec();
            prop_assert_eq!(read(&options, &[&line]).expect("it reads"), vec![fields]);
        }
    }
}
