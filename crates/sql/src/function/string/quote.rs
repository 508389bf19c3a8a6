//! Names and texts as SQL writes them.

use super::{append_cast, str_of};
use crate::error::SqlError;
use crate::function::EvalContext;
use crate::types::bounds::pieces;
use crate::types::{Datum, Type};

type Computed = Result<Datum, SqlError>;

/// A name as SQL text: in quotes unless it is a plain lower-case word.
pub(crate) fn quote_identifier(name: &str) -> String {
    let plain = name
        .bytes()
        .enumerate()
        .all(|(i, b)| b.is_ascii_lowercase() || b == b'_' || (i > 0 && b.is_ascii_digit()));
    if plain && !name.is_empty() && !is_reserved(name) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// PostgreSQL's keywords that are not usable as a name everywhere, so that `quote_ident` quotes
/// them.
const RESERVED: &str = "\
    all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean \
    both case cast char character check coalesce collate collation column concurrently constraint create \
    cross current_catalog current_date current_role current_schema current_time current_timestamp \
    current_user dec decimal default deferrable desc distinct do else end except exists extract false \
    fetch float for foreign freeze from full grant greatest group grouping having ilike in initially \
    inner inout int integer intersect interval into is isnull join lateral leading least left like limit \
    localtime localtimestamp national natural nchar none normalize not notnull null nullif numeric \
    offset on only or order out outer overlaps overlay placing position precision primary real \
    references returning right row select session_user setof similar smallint some substring symmetric \
    table tablesample then time timestamp to trailing treat trim true union unique user using values \
    varchar variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists \
    xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable";

fn is_reserved(word: &str) -> bool {
    RESERVED.split(' ').any(|reserved| reserved == word)
}

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

pub(super) fn quote_ident(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    Ok(quote_identifier(str_of(&arguments[0])?).into())
}

pub(super) fn quote_literal(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    let mut text = Vec::new();
    append_cast(&arguments[0], types[0], context, &mut text)?;
    Ok(quote_text(&String::from_utf8_lossy(&text), context)?.into())
}

pub(super) fn quote_nullable(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
    if arguments[0].is_null() { Ok("NULL".into()) } else { quote_literal(arguments, types, context) }
}
