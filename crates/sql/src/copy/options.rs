//! The options of COPY, checked as PostgreSQL checks them.

use sqlparser::ast::{CopyLegacyCsvOption, CopyLegacyOption, CopyOption, Ident};

use crate::error::{Result, SqlError, sqlstate};
use crate::function::is_encoding;
use crate::identifier::fold;
use crate::parse::{ALL_FIELDS, HEADER_MATCH, NO_CHARACTER};

/// Format of COPY's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFileFormat {
    /// Tab-separated with backslash escapes.
    Text,
    /// Comma-separated with quotes.
    Csv,
    /// Values in the form that the protocol has for them.
    Binary,
}

/// Options of COPY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// Format.
    pub format: CopyFileFormat,
    /// Between fields; one byte.
    pub delimiter: u8,
    /// What stands for NULL.
    pub null: Vec<u8>,
    /// The first line holds names: skipped on input, written on output.
    pub header: bool,
    /// Input: those names must be the columns'.
    pub header_match: bool,
    /// Input: the table must be one that nobody else sees yet.
    pub freeze: bool,
    /// Csv: around fields.
    pub quote: u8,
    /// Csv: before a quote within quotes.
    pub escape: u8,
    /// Csv output: columns always quoted unless NULL.
    pub force_quote: Vec<String>,
    /// Csv output: all columns always quoted unless NULL.
    pub force_quote_all: bool,
    /// Csv input: columns whose unquoted NULL string is the string itself.
    pub force_not_null: Vec<String>,
    /// Csv input: columns whose quoted NULL string is NULL.
    pub force_null: Vec<String>,
}

impl CopyOptions {
    /// The defaults of a format.
    pub fn of(format: CopyFileFormat) -> CopyOptions {
        let csv = format == CopyFileFormat::Csv;
        CopyOptions {
            format,
            delimiter: if csv { b',' } else { b'\t' },
            null: if csv { vec![] } else { b"\\N".to_vec() },
            header: false,
            header_match: false,
            freeze: false,
            quote: b'"',
            escape: b'"',
            force_quote: vec![],
            force_quote_all: false,
            force_not_null: vec![],
            force_null: vec![],
        }
    }

    /// From the options of a statement, COPY TO or COPY FROM, in both of their spellings. 0A000 for
    /// other encodings, 22023 and 42601 for what makes no sense.
    pub fn new(to: bool, options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<CopyOptions> {
        let mut given = Given { to, ..Given::default() };
        for option in options {
            given.option(option)?;
        }
        for option in legacy {
            given.legacy(option)?;
        }
        given.check()
    }
}

/// Options as given, before the format's defaults are known.
#[derive(Default)]
struct Given {
    /// COPY TO.
    to: bool,
    format: Option<CopyFileFormat>,
    delimiter: Option<char>,
    null: Option<String>,
    header: Option<bool>,
    header_match: bool,
    freeze: Option<bool>,
    quote: Option<char>,
    escape: Option<char>,
    force_quote: Option<Vec<String>>,
    force_not_null: Option<Vec<String>>,
    force_null: Option<Vec<String>>,
    /// Its name is of no use.
    encoding: Option<()>,
}

/// Takes an option. 42601 if it was given before.
fn set<T>(option: &mut Option<T>, value: T) -> Result<()> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(SqlError::syntax("conflicting or redundant options")),
    }
}

fn names(idents: &[Ident]) -> Vec<String> {
    idents.iter().map(fold).collect()
}

/// The columns of FORCE QUOTE; none are all.
fn quoted(idents: &[Ident]) -> Vec<String> {
    match idents {
        [all] if all.value == ALL_FIELDS => vec![],
        columns => names(columns),
    }
}

impl Given {
    fn option(&mut self, option: &CopyOption) -> Result<()> {
        match option {
            CopyOption::Format(name) => self.format(&name.value),
            CopyOption::Freeze(freeze) => set(&mut self.freeze, *freeze),
            CopyOption::Delimiter(delimiter) => set(&mut self.delimiter, *delimiter),
            CopyOption::Null(null) => set(&mut self.null, null.clone()),
            CopyOption::Header(header) => set(&mut self.header, *header),
            CopyOption::Quote(quote) => set(&mut self.quote, *quote),
            CopyOption::Escape(escape) => set(&mut self.escape, *escape),
            CopyOption::ForceQuote(columns) => set(&mut self.force_quote, quoted(columns)),
            CopyOption::ForceNotNull(columns) => set(&mut self.force_not_null, names(columns)),
            CopyOption::ForceNull(columns) if columns.iter().any(|column| column.value == HEADER_MATCH) => {
                self.header_match = true;
                Ok(())
            }
            CopyOption::ForceNull(columns) => set(&mut self.force_null, names(columns)),
            CopyOption::Encoding(name) if !is_encoding(name) => {
                let message = "argument to option \"encoding\" must be a valid encoding name";
                Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message))
            }
            CopyOption::Encoding(name) => {
                // SQL_ASCII leaves characters as they are.
                let known = ["UTF8", "UTF-8", "UNICODE", "SQL_ASCII"];
                if !known.contains(&name.to_ascii_uppercase().as_str()) {
                    return Err(SqlError::unsupported(format!("COPY with encoding {name}")));
                }
                set(&mut self.encoding, ())
            }
        }
    }

    fn legacy(&mut self, option: &CopyLegacyOption) -> Result<()> {
        match option {
            CopyLegacyOption::Binary => self.format("binary"),
            CopyLegacyOption::Delimiter(delimiter) => set(&mut self.delimiter, *delimiter),
            CopyLegacyOption::Null(null) => set(&mut self.null, null.clone()),
            CopyLegacyOption::Header => set(&mut self.header, true),
            CopyLegacyOption::Csv(options) => {
                self.format("csv")?;
                options.iter().try_for_each(|option| self.legacy_csv(option))
            }
            other => Err(SqlError::unsupported(format!("COPY option {other}"))),
        }
    }

    fn legacy_csv(&mut self, option: &CopyLegacyCsvOption) -> Result<()> {
        match option {
            CopyLegacyCsvOption::Header => set(&mut self.header, true),
            CopyLegacyCsvOption::Quote(quote) => set(&mut self.quote, *quote),
            CopyLegacyCsvOption::Escape(escape) => set(&mut self.escape, *escape),
            CopyLegacyCsvOption::ForceQuote(columns) => set(&mut self.force_quote, quoted(columns)),
            CopyLegacyCsvOption::ForceNotNull(columns) => set(&mut self.force_not_null, names(columns)),
        }
    }

    fn format(&mut self, name: &str) -> Result<()> {
        let format = match name.to_ascii_lowercase().as_str() {
            "text" => CopyFileFormat::Text,
            "csv" => CopyFileFormat::Csv,
            "binary" => CopyFileFormat::Binary,
            _ => {
                let message = format!("COPY format \"{name}\" not recognized");
                return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
            }
        };
        set(&mut self.format, format)
    }

    /// What cannot be said of binary data, which has neither characters nor lines.
    fn refuse_in_binary(&self) -> Result<()> {
        let given = [
            (self.delimiter.is_some(), "DELIMITER", sqlstate::SYNTAX_ERROR),
            (self.null.is_some(), "NULL", sqlstate::SYNTAX_ERROR),
            (self.header == Some(true), "HEADER", sqlstate::FEATURE_NOT_SUPPORTED),
        ];
        match given.iter().find(|(given, ..)| *given && self.format == Some(CopyFileFormat::Binary)) {
            Some((_, what, state)) => {
                Err(SqlError::new(state, format!("cannot specify {what} in BINARY mode")))
            }
            None => Ok(()),
        }
    }

    /// 0A000 for what is said of csv only, or only of the other direction.
    fn refuse_misplaced(&self, csv: bool) -> Result<()> {
        let given = [
            (self.quote.is_some(), "quote", None),
            (self.escape.is_some(), "escape", None),
            (self.force_quote.is_some(), "force quote", Some(true)),
            (self.force_not_null.is_some(), "force not null", Some(false)),
            (self.force_null.is_some(), "force null", Some(false)),
        ];
        for (_, what, to) in given.into_iter().filter(|(given, ..)| *given) {
            let message = match to {
                _ if !csv => format!("COPY {what} available only in CSV mode"),
                Some(true) if !self.to => format!("COPY {what} only available using COPY TO"),
                Some(false) if self.to => format!("COPY {what} only available using COPY FROM"),
                _ => continue,
            };
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        Ok(())
    }

    fn check(self) -> Result<CopyOptions> {
        let unfit = |message: &str| Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        if self.header_match && self.to {
            return unfit("cannot use \"match\" with HEADER in COPY TO");
        }
        self.refuse_in_binary()?;
        let wrong = |message: &str| Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
        let mut options = CopyOptions::of(self.format.unwrap_or(CopyFileFormat::Text));
        let csv = options.format == CopyFileFormat::Csv;
        let single = |character: char, what: &str| match u8::try_from(character) {
            Ok(byte) if byte < 0x80 && character != NO_CHARACTER => Ok(byte),
            _ => {
                let message = format!("COPY {what} must be a single one-byte character");
                Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
            }
        };
        if let Some(delimiter) = self.delimiter {
            options.delimiter = single(delimiter, "delimiter")?;
        }
        if matches!(options.delimiter, b'\n' | b'\r') {
            return wrong("COPY delimiter cannot be newline or carriage return");
        }
        if self.null.as_ref().is_some_and(|null| null.contains(['\n', '\r'])) {
            return wrong("COPY null representation cannot use newline or carriage return");
        }
        if !csv && b"\\.abcdefghijklmnopqrstuvwxyz0123456789".contains(&options.delimiter) {
            return wrong(&format!("COPY delimiter cannot be \"{}\"", char::from(options.delimiter)));
        }
        self.refuse_misplaced(csv)?;
        if let Some(quote) = self.quote {
            options.quote = single(quote, "quote")?;
            options.escape = options.quote;
        }
        if let Some(escape) = self.escape {
            options.escape = single(escape, "escape")?;
        }
        if csv && options.quote == options.delimiter {
            return wrong("COPY delimiter and quote must be different");
        }
        if let Some(null) = self.null {
            options.null = null.into_bytes();
        }
        if options.null.contains(&options.delimiter) {
            return unfit("COPY delimiter must not appear in the NULL specification");
        }
        if csv && options.null.contains(&options.quote) {
            return unfit("CSV quote character must not appear in the NULL specification");
        }
        (options.header, options.header_match) = (self.header.unwrap_or(false), self.header_match);
        options.freeze = self.freeze.unwrap_or(false);
        options.force_quote_all = self.force_quote.as_ref().is_some_and(Vec::is_empty);
        options.force_quote = self.force_quote.unwrap_or_default();
        options.force_not_null = self.force_not_null.unwrap_or_default();
        options.force_null = self.force_null.unwrap_or_default();
        Ok(options)
    }
}
