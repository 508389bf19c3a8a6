//! Definitions as SQL text: what `pg_get_indexdef`, `pg_get_constraintdef` and `pg_get_viewdef`
//! print.

use super::deparse::{self, Style};
use super::index::collation_beneath;
use super::names::qualified;
use super::{Source, domain};
use crate::bind::told;
use crate::catalog::{
    Check, Column, Deferrable, Domain, DomainCheck, ForeignKey, Index, IndexColumn, IndexKey, Oid,
    ReferentialAction, Table, View,
};
use crate::identifier::quote_identifier;
use crate::parse::spelled;
use crate::types::object::requoted;

/// A list of columns by their places, without parentheses.
fn column_list(source: &Source<'_>, table: &Table, places: impl IntoIterator<Item = usize>) -> String {
    let quoted = |column: &Column| source.eval.format.quoted(&column.name);
    let names =
        places.into_iter().map(|place| table.columns.get(place).map_or_else(|| "???".to_owned(), quoted));
    names.collect::<Vec<_>>().join(", ")
}

/// `CREATE INDEX`. The pretty form does not qualify the table's name if it is found without.
pub(super) fn index(source: &Source<'_>, table: &Table, index: &Index, style: Style) -> String {
    let unique = if index.is_unique() { "UNIQUE " } else { "" };
    let bare = if style == Style::Pretty { source.display(table.oid) } else { None };
    let format = source.eval.format;
    let table_name = requoted(bare.unwrap_or_else(|| qualified(&table.schema_name, &table.name)), format);
    let columns = index.columns.iter().map(|column| {
        let key = index_key(source, table, index, column.key, style);
        let own = column.collation.filter(|one| one.oid() != collation_beneath(table, index, column.key));
        let collation = own.map_or_else(String::new, |one| format!(" COLLATE {}", format.quoted(one.name())));
        let class =
            column.class.map_or_else(String::new, |class| format!(" {}", format.quoted(class.name())));
        format!("{key}{collation}{class}{}", order(*column))
    });
    let method = format.quoted(if index.hash { "hash" } else { "btree" });
    let mut text = format!(
        "CREATE {unique}INDEX {} ON {table_name} USING {method} ({})",
        format.quoted(&index.name),
        columns.collect::<Vec<_>>().join(", ")
    );
    text.push_str(&included(source, table, index));
    if index.nulls_not_distinct {
        text.push_str(" NULLS NOT DISTINCT");
    }
    if !index.options.is_empty() {
        text.push_str(&format!(" WITH ({})", storage_options(&index.options)));
    }
    if let Some(predicate) = &index.predicate {
        let printed = deparse::predicate(table, predicate, style, &deparse::format(source));
        text.push_str(&format!(" WHERE {printed}"));
    }
    text
}

/// INCLUDE, if there is any.
fn included(source: &Source<'_>, table: &Table, index: &Index) -> String {
    match index.included.as_slice() {
        [] => String::new(),
        places => format!(" INCLUDE ({})", column_list(source, table, places.iter().copied())),
    }
}

/// Storage parameters: values that are no words are in quotes.
fn storage_options(options: &[String]) -> String {
    let shown = options.iter().map(|option| match option.split_once('=') {
        Some((name, value)) if quote_identifier(value) != value => format!("{name}='{value}'"),
        _ => option.clone(),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// A part of an index's key.
pub(super) fn index_key(
    source: &Source<'_>,
    table: &Table,
    index: &Index,
    key: IndexKey,
    style: Style,
) -> String {
    match key {
        IndexKey::Column(place) => column_list(source, table, [place]),
        IndexKey::Expression(place) => match index.expression(place) {
            Some(expression) => deparse::index_expression(table, expression, style, &deparse::format(source)),
            None => "???".to_owned(),
        },
    }
}

fn order(column: IndexColumn) -> &'static str {
    match (column.descending, column.nulls_first) {
        (false, false) => "",
        (false, true) => " NULLS FIRST",
        (true, true) => " DESC",
        (true, false) => " DESC NULLS LAST",
    }
}

/// The query of a view, for the session that asks.
pub(super) fn view(view: &View, source: &Source<'_>) -> String {
    let query = told(view, source.catalog, &source.search_path(), source.eval.format.quote_all);
    format!(" {};", spelled(&query).trim().trim_end_matches(';').trim_end())
}

/// A constraint of a table or a domain.
#[derive(Clone, Copy, Debug)]
pub(super) enum Constraint<'a> {
    /// PRIMARY KEY or UNIQUE.
    Key(&'a Index),
    /// CHECK.
    Check(&'a Check),
    /// FOREIGN KEY.
    Foreign(&'a ForeignKey),
    /// CHECK of a domain.
    OfDomain(&'a Domain, &'a DomainCheck),
}

impl Constraint<'_> {
    pub(super) fn oid(&self) -> Oid {
        match self {
            Constraint::Key(index) => index.constraint.unwrap_or(0),
            Constraint::Check(check) => check.oid,
            Constraint::Foreign(key) => key.oid,
            Constraint::OfDomain(_, check) => check.oid,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Constraint::Key(index) => &index.name,
            Constraint::Check(check) => &check.name,
            Constraint::Foreign(key) => &key.name,
            Constraint::OfDomain(_, check) => &check.name,
        }
    }

    /// `pg_constraint.contype`.
    pub(super) fn letter(&self) -> char {
        match self {
            Constraint::Key(index) if index.primary => 'p',
            Constraint::Key(_) => 'u',
            Constraint::Check(_) | Constraint::OfDomain(..) => 'c',
            Constraint::Foreign(_) => 'f',
        }
    }

    /// Places of the columns it is about.
    pub(super) fn columns(&self) -> Vec<usize> {
        match self {
            Constraint::Key(index) => index.key_columns().collect(),
            Constraint::Check(check) => check.columns.clone(),
            Constraint::Foreign(key) => key.columns.clone(),
            Constraint::OfDomain(..) => Vec::new(),
        }
    }

    /// DEFERRABLE, INITIALLY DEFERRED.
    pub(super) fn deferral(&self) -> (bool, bool) {
        match self {
            Constraint::Foreign(key) => (key.deferrable, key.initially_deferred),
            Constraint::Key(index) => {
                (index.deferrable.is_some(), index.deferrable == Some(Deferrable::Deferred))
            }
            _ => (false, false),
        }
    }

    /// As it stands in CREATE TABLE, or CREATE DOMAIN, after its name. Only those of domains are
    /// without a table.
    pub(super) fn definition(&self, source: &Source<'_>, table: Option<&Table>, style: Style) -> String {
        if let Constraint::OfDomain(domain, check) = self {
            return domain::definition(source, domain, check, style);
        }
        let Some(table) = table else { return String::new() };
        match self {
            Constraint::Key(index) => {
                let word = match (index.primary, index.nulls_not_distinct) {
                    (true, _) => "PRIMARY KEY",
                    (false, true) => "UNIQUE NULLS NOT DISTINCT",
                    (false, false) => "UNIQUE",
                };
                let deferral = match index.deferrable {
                    None => "",
                    Some(Deferrable::Immediate) => " DEFERRABLE",
                    Some(Deferrable::Deferred) => " DEFERRABLE INITIALLY DEFERRED",
                };
                let columns = column_list(source, table, self.columns());
                format!("{word} ({columns}){}{deferral}", included(source, table, index))
            }
            Constraint::Check(check) => {
                let expression = deparse::check(source, table, &check.expression, style);
                // An expression that spans lines begins on its own, as PostgreSQL prints CASE.
                let no_inherit = if check.no_inherit { " NO INHERIT" } else { "" };
                format!("CHECK ({expression}){no_inherit}{}", not_valid(check.not_valid))
            }
            Constraint::Foreign(key) => foreign_key(source, table, key),
            Constraint::OfDomain(..) => String::new(),
        }
    }
}

/// The constraints of a table.
pub(super) fn constraints(table: &Table) -> impl Iterator<Item = Constraint<'_>> {
    let keys = table.indexes.iter().filter(|index| index.constraint.is_some()).map(Constraint::Key);
    let checks = table.checks.iter().map(Constraint::Check);
    keys.chain(checks).chain(table.foreign_keys.iter().map(Constraint::Foreign))
}

fn not_valid(not_valid: bool) -> &'static str {
    if not_valid { " NOT VALID" } else { "" }
}

fn foreign_key(source: &Source<'_>, table: &Table, key: &ForeignKey) -> String {
    let columns = |table: &Table, places: &[usize]| column_list(source, table, places.iter().copied());
    let mut text = format!("FOREIGN KEY ({}) REFERENCES ", columns(table, &key.columns));
    if let Some(referenced) = source.catalog.table_by_oid(key.referenced_table) {
        let name = source.display(key.referenced_table).unwrap_or_default();
        text.push_str(&requoted(name, source.eval.format));
        text.push_str(&format!("({})", columns(referenced, &key.referenced_columns)));
    }
    if key.match_full {
        text.push_str(" MATCH FULL");
    }
    for (event, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
        if action != ReferentialAction::NoAction {
            text.push_str(&format!(" ON {event} {}", action.sql()));
        }
    }
    if !key.on_delete_columns.is_empty() {
        text.push_str(&format!(" ({})", columns(table, &key.on_delete_columns)));
    }
    if key.deferrable {
        text.push_str(" DEFERRABLE");
    }
    if key.initially_deferred {
        text.push_str(" INITIALLY DEFERRED");
    }
    text + not_valid(key.not_valid)
}
