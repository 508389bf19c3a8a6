//! Stored expressions as PostgreSQL prints them.
//!
//! A DEFAULT or CHECK is stored as the text it was given as; PostgreSQL prints it from its analyzed
//! form: literals with their types, conversions written out, everything in parentheses (or, in the
//! pretty form, only what needs them).
//!
//! ```text
//! given                       v >= 0                               n IN ('a', 'b')
//! analyzed ([`analyze`])      >=(v, cast(0 as numeric))            = ANY(n, ARRAY['a'::text, 'b'::text])
//! printed  ([`print`])        (v >= (0)::numeric)                  (n = ANY (ARRAY['a'::text, 'b'::text]))
//! pretty                      v >= 0::numeric                      n = ANY (ARRAY['a'::text, 'b'::text])
//! ```
//!
//! What the analysis does not know is printed as it was given: less like PostgreSQL, but the same
//! expression.

mod analyze;
mod name;
mod print;
mod scope;
mod term;
#[cfg(test)]
mod tests;

use super::Source;
use super::names::CatalogNames;
use crate::catalog::{Computed, Table};
use crate::error::Result;
use crate::types::{FormatContext, Type, TypeId};
use scope::Names;
use term::{Node, Term};

/// How much is written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Every operation in parentheses.
    Plain,
    /// Only the parentheses that are needed.
    Pretty,
}

/// A column's DEFAULT.
pub(super) fn default(source: &Source<'_>, table: &Table, place: usize, text: &str, style: Style) -> String {
    let column = table.columns.get(place).map(|column| column.ty);
    printed(source, table, text, column, style).unwrap_or_else(|_| text.to_owned())
}

/// A CHECK's expression.
pub(super) fn check(source: &Source<'_>, table: &Table, text: &str, style: Style) -> String {
    printed(source, table, text, Some(Type::new(TypeId::Bool)), style).unwrap_or_else(|_| match style {
        Style::Plain => format!("({text})"),
        Style::Pretty => text.to_owned(),
    })
}

/// An expression that was printed before, printed again.
pub(super) fn again(source: &Source<'_>, table: &Table, text: &str, style: Style) -> String {
    printed(source, table, text, None, style).unwrap_or_else(|_| text.to_owned())
}

/// An expression among the parts of an index's key: in parentheses, unless it is a call.
pub(crate) fn index_expression(
    table: &Table,
    expression: &Computed,
    style: Style,
    format: &FormatContext,
) -> String {
    match analyzed(Names::Columns(table), &expression.text, None, format) {
        Ok(term) if matches!(term.node, Node::Function { .. } | Node::Special { .. }) => {
            print(&term, style, format)
        }
        Ok(term) => format!("({})", print(&term, style, format)),
        Err(_) => format!("({})", expression.text),
    }
}

/// The predicate of an index.
pub(super) fn predicate(table: &Table, predicate: &Computed, style: Style, format: &FormatContext) -> String {
    match analyzed(Names::Columns(table), &predicate.text, Some(Type::new(TypeId::Bool)), format) {
        Ok(term) => print(&term, style, format),
        Err(_) => format!("({})", predicate.text),
    }
}

/// What an index's expressions are printed with, names of types above all.
pub(super) fn format(source: &Source<'_>) -> FormatContext {
    let names = CatalogNames::new(source.catalog.clone(), source.search_path(), source.user());
    FormatContext { objects: Some(std::sync::Arc::new(names)), ..source.eval.format.clone() }
}

/// An expression over VALUE of this type: what a domain has.
pub(super) fn over_value(
    source: &Source<'_>,
    base: Type,
    text: &str,
    place: Type,
    style: Style,
) -> Result<String> {
    printed_over(source, Names::Value(base), text, Some(place), style)
}

/// Analyzes and prints.
fn printed(
    source: &Source<'_>,
    table: &Table,
    text: &str,
    place: Option<Type>,
    style: Style,
) -> Result<String> {
    printed_over(source, Names::Columns(table), text, place, style)
}

fn printed_over(
    source: &Source<'_>,
    columns: Names<'_>,
    text: &str,
    place: Option<Type>,
    style: Style,
) -> Result<String> {
    let format = format(source);
    Ok(print(&analyzed(columns, text, place, &format)?, style, &format))
}

/// The analyzed form. An untyped literal takes the type of its place; other conversions to it are
/// not shown.
fn analyzed(columns: Names<'_>, text: &str, place: Option<Type>, format: &FormatContext) -> Result<Term> {
    let syntax = crate::parse::parse_expression(text)?;
    let analyzer = analyze::Analyzer { columns, format };
    let mut term = analyzer.expression(&syntax)?;
    if let Some(place) = place {
        if term.ty.id == TypeId::Unknown {
            term = analyzer.convert(term, place.plain())?;
        }
        if term.ty.id != place.id || (place.modifier != -1 && term.ty.modifier != place.modifier) {
            term = Term::new(Node::Cast { operand: Box::new(term), implicit: true }, place);
        }
    }
    Ok(term)
}

fn print(term: &Term, style: Style, format: &FormatContext) -> String {
    let mut printer = print::Printer::new(style, format);
    printer.top(term);
    printer.finish()
}
