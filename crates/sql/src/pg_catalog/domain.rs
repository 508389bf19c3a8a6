//! Domains: their defaults and constraints as PostgreSQL prints them.

use super::Source;
use super::deparse::{self, Style};
use crate::catalog::{Domain, DomainCheck};
use crate::types::{Type, TypeId};

/// The DEFAULT of a domain, if it has one.
pub(super) fn default(source: &Source<'_>, domain: &Domain) -> Option<String> {
    let text = domain.default.as_deref()?;
    let printed = deparse::over_value(source, domain.base, text, domain.base, Style::Plain);
    Some(printed.unwrap_or_else(|_| text.to_owned()))
}

/// The expression of a constraint.
pub(super) fn check(source: &Source<'_>, domain: &Domain, check: &DomainCheck, style: Style) -> String {
    let text = &check.expression;
    let place = Type::new(TypeId::Bool);
    deparse::over_value(source, domain.base, text, place, style).unwrap_or_else(|_| match style {
        Style::Plain => format!("({text})"),
        Style::Pretty => text.clone(),
    })
}

/// A constraint as it stands in CREATE DOMAIN after its name.
pub(super) fn definition(source: &Source<'_>, domain: &Domain, of: &DomainCheck, style: Style) -> String {
    let not_valid = if of.not_valid { " NOT VALID" } else { "" };
    format!("CHECK ({}){not_valid}", check(source, domain, of, style))
}
