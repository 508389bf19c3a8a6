//! Names and texts as SQL writes them.

use super::{append_cast, str_of};
use crate::error::SqlError;
use crate::function::EvalContext;
use crate::types::bounds::pieces;
use crate::types::{Datum, Type};

type Computed = Result<Datum, SqlError>;

/// A text as an SQL literal.
pub(super) fn quote_text(text: &str, context: &EvalContext<'_>) -> Result<String, SqlError> {
    let mut doubled = 0;
    for piece in pieces(text) {
        doubled += piece?.bytes().filter(|byte| matches!(byte, b'\'' | b'\\')).count();
    }
    let bytes = text.len() + doubled + 3;
    context.check_size(bytes)?;
    let mut out = String::with_capacity(bytes);
    out.push_str(if text.contains('\\') { "E'" } else { "'" });
    for piece in pieces(text) {
        for c in piece?.chars() {
            if matches!(c, '\'' | '\\') {
                out.push(c);
            }
            out.push(c);
        }
    }
    out.push('\'');
    Ok(out)
}

pub(super) fn quote_ident(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(context.quoted(str_of(&arguments[0])?).into())
}

pub(super) fn quote_literal(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let mut text = Vec::new();
    append_cast(&arguments[0], types[0], context, &mut text)?;
    Ok(quote_text(&String::from_utf8_lossy(&text), context)?.into())
}

pub(super) fn quote_nullable(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    if arguments[0].is_null() { Ok("NULL".into()) } else { quote_literal(arguments, types, context) }
}
