//! RAISE.

use sqlparser::ast::{Expr, Value};

use super::condition::{self, Condition};
use super::reader::Reader;
use crate::error::{Result, SqlError};
use crate::parse;
use crate::parse::lexeme::Kind;

/// How grave it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// DEBUG and LOG: for the server's log, which has no place for it.
    Log,
    Info,
    Notice,
    Warning,
    Exception,
}

/// What USING gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RaiseOption {
    Message,
    Detail,
    Hint,
    Errcode,
    Column,
    Constraint,
    Datatype,
    Table,
    Schema,
}

/// RAISE.
#[derive(Debug)]
pub(crate) struct Raise {
    pub(crate) level: Level,
    /// The error that is handled, once more: it says nothing else.
    pub(crate) again: bool,
    /// With a `%` for each argument.
    pub(crate) format: Option<String>,
    pub(crate) arguments: Vec<String>,
    pub(crate) condition: Option<(&'static str, String)>,
    pub(crate) options: Vec<(RaiseOption, String)>,
}

/// A string, of any kind.
pub(super) fn string(reader: &mut Reader<'_>) -> Result<String> {
    let piece = reader.peek(0).filter(|piece| piece.kind == Kind::Literal).copied();
    let piece = piece.ok_or_else(|| reader.error())?;
    let text = match parse::parse_expression(piece.text)? {
        Expr::Value(value) => match value.value {
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text) => Some(text),
            Value::DollarQuotedString(text) => Some(text.value),
            _ => None,
        },
        _ => None,
    };
    let text = text.ok_or_else(|| reader.error())?;
    reader.advance();
    Ok(text)
}

/// Behind RAISE.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Raise> {
    let levels = [
        ("debug", Level::Log),
        ("log", Level::Log),
        ("info", Level::Info),
        ("notice", Level::Notice),
        ("warning", Level::Warning),
        ("exception", Level::Exception),
    ];
    let mut raise = Raise {
        level: Level::Exception,
        again: false,
        format: None,
        arguments: Vec::new(),
        condition: None,
        options: Vec::new(),
    };
    if reader.take(";") {
        return Ok(Raise { again: true, ..raise });
    }
    if let Some((_, level)) = levels.iter().find(|(word, _)| reader.is(0, word)) {
        raise.level = *level;
        reader.advance();
    }
    if reader.peek(0).is_some_and(|piece| piece.kind == Kind::Literal) {
        raise.format = Some(string(reader)?);
        if reader.take(",") {
            raise.arguments = reader.expressions(&[";", "using"])?;
        }
        check_arguments(&raise)?;
    } else if !reader.is(0, "using") {
        let name = reader.peek(0).map_or("", |piece| piece.text).to_lowercase();
        raise.condition = match condition::read(reader)? {
            // SQLSTATE '…' has no name but itself.
            Condition::State(state) if name == "sqlstate" => Some((state, state.to_owned())),
            Condition::State(state) => Some((state, name)),
            Condition::Others => return Err(SqlError::syntax("unrecognized exception condition \"others\"")),
        };
    }
    if reader.take("using") {
        raise.options = options(reader)?;
    }
    reader.expect(";")?;
    Ok(raise)
}

fn options(reader: &mut Reader<'_>) -> Result<Vec<(RaiseOption, String)>> {
    let known = [
        ("message", RaiseOption::Message),
        ("detail", RaiseOption::Detail),
        ("hint", RaiseOption::Hint),
        ("errcode", RaiseOption::Errcode),
        ("column", RaiseOption::Column),
        ("constraint", RaiseOption::Constraint),
        ("datatype", RaiseOption::Datatype),
        ("table", RaiseOption::Table),
        ("schema", RaiseOption::Schema),
    ];
    let mut options = Vec::new();
    loop {
        let option = known.iter().find(|(word, _)| reader.is(0, word));
        let option = option.ok_or_else(|| SqlError::syntax("unrecognized RAISE statement option"))?.1;
        reader.advance();
        if !reader.take("=") && !reader.take(":=") {
            return Err(reader.error());
        }
        options.push((option, reader.until(&[";", ","])?));
        if !reader.take(",") {
            return Ok(options);
        }
    }
}

/// `%%` is a percent sign; each other one is for an argument.
fn check_arguments(raise: &Raise) -> Result<()> {
    let places = raise.format.as_deref().unwrap_or_default().replace("%%", "").matches('%').count();
    match places.cmp(&raise.arguments.len()) {
        std::cmp::Ordering::Less => Err(SqlError::syntax("too many parameters specified for RAISE")),
        std::cmp::Ordering::Greater => Err(SqlError::syntax("too few parameters specified for RAISE")),
        std::cmp::Ordering::Equal => Ok(()),
    }
}

impl Raise {
    /// The message, with texts for the arguments; a NULL has its own.
    pub(crate) fn message(&self, texts: &[Option<String>]) -> Option<String> {
        let format = self.format.as_deref()?;
        let (mut message, mut texts) = (String::new(), texts.iter());
        let mut rest = format;
        while let Some(at) = rest.find('%') {
            message.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            match rest.strip_prefix('%') {
                Some(behind) => {
                    message.push('%');
                    rest = behind;
                }
                None => {
                    let text = texts.next().and_then(Option::as_deref);
                    message.push_str(text.unwrap_or("<NULL>"));
                }
            }
        }
        message.push_str(rest);
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_for_arguments() {
        let raise = |text: &str| read(&mut Reader::new(text));
        let made = raise("NOTICE '% of %%, %', a + 1, f(b, c) USING HINT = 'x';").unwrap();
        assert_eq!(made.arguments, ["a + 1", "f(b, c)"]);
        assert_eq!(made.options, [(RaiseOption::Hint, "'x'".to_owned())]);
        let texts = [Some("5".to_owned()), None];
        assert_eq!(made.message(&texts).as_deref(), Some("5 of %, <NULL>"));
        assert!(raise("NOTICE '%';").is_err());
        assert!(raise("NOTICE '', 1;").is_err());
    }
}
