//! Names: what is in sight, and what a column reference means.
//!
//! Each level has a [`Namespace`]: the columns an unqualified name can mean, in the order `*` lists
//! them (USING has merged some), and the tables a qualified name can mean. A name is looked for
//! from the innermost level outwards; the first level that knows it decides.

use std::ops::Range;

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};
use sqlparser::tokenizer::Span;

use super::around::with_presence;
use super::hidden::TABLE_OID;
use super::need::ColumnRead;
use super::select::check_width;
use super::{Binder, Level, Relation, Source};
use crate::ddl::names::cross_database;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Case, Expr, Typed};
use crate::identifier::fold;
use crate::parse::ROW_KEY;
use crate::types::{Datum, TypeId};

/// What is in sight at one level.
#[derive(Clone, Debug, Default)]
pub(crate) struct Namespace {
    /// Columns for unqualified names and `*`.
    pub(crate) star: Vec<NamedColumn>,
    /// Tables for qualified names.
    pub(crate) tables: Vec<NamedTable>,
    /// Tables that LATERAL items see and must not refer to.
    pub(super) closed: Vec<(NamedTable, Closed)>,
}

/// A column and what it means.
#[derive(Clone, Debug)]
pub(crate) struct NamedColumn {
    pub(crate) name: String,
    pub(crate) source: ColumnSource,
    /// What whoever reads it needs.
    pub(crate) read: Option<ColumnRead>,
}

/// What a column's name stands for, over its level's frame.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ColumnSource {
    /// A column of a relation.
    Relation {
        /// Which relation.
        relation: usize,
        /// Which column.
        column: usize,
    },
    /// An expression: an output of a merged derived table, or a column merged by USING.
    Expr(Typed),
}

/// A table's name and columns.
#[derive(Clone, Debug)]
pub(crate) struct NamedTable {
    /// Its schema, unless an alias hides it.
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
    pub(crate) columns: Vec<NamedColumn>,
    /// The names that the fields of its rows have, where an alias gives the columns others: a row
    /// of a relation is of the relation's own type.
    pub(crate) fields: Vec<String>,
    /// The relations of its level that it stands for: several where it was merged. None if it
    /// names a join.
    pub(super) relations: Option<Range<usize>>,
}

/// Why LATERAL items must not refer to a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Closed {
    /// It is on the left of a RIGHT or FULL join.
    Join,
    /// It is what an UPDATE or DELETE changes.
    Target,
}

impl Namespace {
    /// A namespace of one table.
    pub(crate) fn of(table: NamedTable) -> Namespace {
        Namespace { star: table.columns.clone(), tables: vec![table], closed: vec![] }
    }

    /// Lets LATERAL items see these tables, but not refer to them.
    pub(crate) fn close(&mut self, names: &Namespace, why: Closed) {
        self.closed.extend(names.tables.iter().map(|table| (table.clone(), why)));
    }

    /// The same names, where who reads a column needs it of what these name.
    pub(super) fn read_as(mut self, read: Option<ColumnRead>) -> Namespace {
        let Some(read) = read else { return self };
        let lists = self.tables.iter_mut().map(|table| table.columns.as_mut_slice());
        for columns in lists.chain([self.star.as_mut_slice()]) {
            for (at, column) in columns.iter_mut().enumerate() {
                let place = match &column.source {
                    ColumnSource::Relation { column, .. } => *column,
                    // An output of a view, which are in order.
                    ColumnSource::Expr(_) => at,
                };
                column.read = Some(read.of(place));
            }
        }
        self
    }

    /// Forgets which tables are closed.
    pub(crate) fn open(&mut self) {
        self.closed.clear();
    }

    /// 42P10 if a name is that of a closed table, or of a column of one.
    fn check_open(&self, table: Option<&str>, column: &str) -> Result<()> {
        let is_meant = |known: &NamedTable| match table {
            Some(table) => known.name == table,
            None => known.columns.iter().any(|known| known.name == column),
        };
        let Some((known, why)) = self.closed.iter().find(|(known, _)| is_meant(known)) else {
            return Ok(());
        };
        let error = SqlError::new(
            sqlstate::INVALID_COLUMN_REFERENCE,
            format!("invalid reference to FROM-clause entry for table \"{}\"", known.name),
        );
        Err(match why {
            Closed::Join => {
                error.with_detail("The combining JOIN type must be INNER or LEFT for a LATERAL reference.")
            }
            Closed::Target => error.with_hint(format!(
                "There is an entry for table \"{}\", but it cannot be referenced from this part of the query.",
                known.name
            )),
        })
    }

    /// Puts another namespace beside this one. 42712 if a table name is in both.
    pub(crate) fn extend(&mut self, other: Namespace) -> Result<()> {
        for table in &other.tables {
            let clashes = |known: &NamedTable| {
                known.name == table.name
                    && (known.schema == table.schema || known.schema.is_none() || table.schema.is_none())
            };
            if !table.name.is_empty() && self.tables.iter().any(clashes) {
                return Err(SqlError::new(
                    sqlstate::DUPLICATE_ALIAS,
                    format!("table name \"{}\" specified more than once", table.name),
                ));
            }
        }
        self.star.extend(other.star);
        self.tables.extend(other.tables);
        self.closed.extend(other.closed);
        Ok(())
    }
}

/// Begins the names by which statements say what the parser has no place for. Nobody can write one,
/// and they may be long.
const MARK: char = '\u{1}';

/// An identifier as it is looked up: as it was folded and cut where it was stored.
pub fn object_name(ident: &Ident) -> String {
    if ident.value.starts_with(MARK) { ident.value.clone() } else { fold(ident) }
}

/// The parts of a possibly qualified name, folded, and whether each was quoted. A leading database
/// name is accepted and dropped where there are three parts.
pub fn name_parts(name: &ObjectName) -> Result<Vec<(String, bool)>> {
    name.0
        .iter()
        .map(|part| match part {
            ObjectNamePart::Identifier(ident) => Ok((object_name(ident), ident.quote_style.is_some())),
            ObjectNamePart::Function(_) => Err(SqlError::syntax("a name is expected, not a function call")),
        })
        .collect()
}

/// Schema and name of a possibly qualified name.
pub(crate) fn schema_and_name(name: &ObjectName) -> Result<(Option<String>, String)> {
    let mut parts = name_parts(name)?;
    let Some((last, _)) = parts.pop() else { return Err(SqlError::syntax("a name is expected")) };
    match parts.len() {
        0 => Ok((None, last)),
        1 | 2 => Ok((parts.pop().map(|(schema, _)| schema), last)),
        _ => Err(SqlError::syntax(format!("improper qualified name (too many dotted names): {name}"))),
    }
}

impl Binder<'_> {
    /// The same of a relation; 0A000 if it is in another database.
    pub(crate) fn relation_name(&self, name: &ObjectName) -> Result<(Option<String>, String)> {
        match self.other_database(name) {
            Some(shown) => Err(self.at(cross_database(&format!("\"{shown}\"")), name_span(name))),
            None => schema_and_name(name),
        }
    }

    /// The same of a function.
    pub(crate) fn function_name(&self, name: &ObjectName) -> Result<(Option<String>, String)> {
        match self.other_database(name) {
            Some(shown) => Err(self.at(cross_database(&shown), name_span(name))),
            None => schema_and_name(name),
        }
    }

    fn other_database(&self, name: &ObjectName) -> Option<String> {
        if name.0.len() != 3 {
            return None;
        }
        let parts: Vec<String> = name_parts(name).ok()?.into_iter().map(|(part, _)| part).collect();
        (!self.context.catalog.is_own_name(&parts[0])).then(|| parts.join("."))
    }
}

/// The place of a name in the text.
pub(crate) fn name_span(name: &ObjectName) -> Span {
    match name.0.first() {
        Some(ObjectNamePart::Identifier(ident)) => ident.span,
        _ => Span::empty(),
    }
}

impl Level {
    /// What a column means, over this level's frame.
    pub(crate) fn resolve(&mut self, source: &ColumnSource) -> Typed {
        match source {
            ColumnSource::Expr(typed) => typed.clone(),
            ColumnSource::Relation { relation, column } => {
                let slot = self.slot(*relation, *column);
                Typed::new(Expr::Slot(slot), self.select.slots[slot].ty)
            }
        }
    }

    /// The key of the row of the only table, if the level reads nothing else.
    fn row_key(&mut self) -> Option<Typed> {
        let [only] = self.namespace.tables.as_slice() else { return None };
        let ColumnSource::Relation { relation, .. } = only.columns.first()?.source else { return None };
        let [Relation { source: Source::Table(_), .. }] = self.select.relations.as_slice() else {
            return None;
        };
        Some(Typed::new(Expr::Slot(self.key_slot(relation)), TypeId::Bytea))
    }

    /// What is NULL just where an outer join has no row of the table, if the name stands for that
    /// table alone.
    fn column_of_presence(&mut self, table: &NamedTable) -> Option<ColumnSource> {
        self.maybe_missing(table)?;
        self.table_oid_where_it_is(table).map(|(_, source)| source)
    }

    /// The same of what is no table and no `tied` WITH query, which is given a column for it.
    fn added_presence(&mut self, table: &NamedTable, tied: &[usize]) -> Option<ColumnSource> {
        let of = self.maybe_missing(table)?;
        let relation = self.select.relations.get_mut(of)?;
        match relation.source {
            Source::Query(_) | Source::Function(_) => {}
            Source::Cte(number) if !tied.contains(&number) => {}
            _ => return None,
        }
        let column = table.columns.len();
        if relation.types.len() == column {
            let inner = std::mem::replace(&mut relation.source, Source::Taken);
            relation.source = Source::Query(Box::new(with_presence(inner, &relation.types)));
            relation.types.push(TypeId::Bool.into());
            relation.slots.push(None);
        }
        Some(ColumnSource::Relation { relation: of, column })
    }

    /// Whether a column is all that a function gives.
    fn is_value(&self, column: &NamedColumn) -> bool {
        let ColumnSource::Relation { relation, .. } = column.source else { return false };
        let source = self.select.relations.get(relation).map(|relation| &relation.source);
        matches!(source, Some(Source::Function(function)) if function.gives_values())
    }

    /// The relation that a name stands for alone, if an outer join may have no row of it.
    fn maybe_missing(&self, table: &NamedTable) -> Option<usize> {
        let ColumnSource::Relation { relation: of, .. } = table.columns.first()?.source else { return None };
        let is_of_it = |column: &NamedColumn| match column.source {
            ColumnSource::Relation { relation, .. } => relation == of,
            ColumnSource::Expr(_) => false,
        };
        let is_nullable = self.select.relations.get(of).is_some_and(|relation| relation.nullable);
        (is_nullable && table.columns.iter().all(is_of_it)).then_some(of)
    }
}

/// A value, or NULL where a column is. What users write never tests a held operand for NULL, so
/// [`row_if_there`] knows it again.
fn unless_null(column: Typed, value: Typed) -> Typed {
    let is_there = Expr::IsNull { operand: Box::new(Expr::Held), negated: true };
    let branches = vec![(is_there, value.expr)];
    let case = Case { operand: Some(column.expr), branches, otherwise: Expr::NULL };
    Typed::new(Expr::Case(Box::new(case)), value.ty)
}

/// The fields of a row that an outer join may not have: where there is no row each of them is NULL
/// by itself.
pub(super) fn row_if_there(record: &Expr) -> Option<&[Expr]> {
    let Expr::Case(case) = record else { return None };
    match case.branches.as_slice() {
        [(Expr::IsNull { operand, negated: true }, Expr::Row(items, _))]
            if matches!(**operand, Expr::Held) =>
        {
            Some(items.as_slice())
        }
        _ => None,
    }
}

impl Binder<'_> {
    /// A column reference of one or more parts.
    pub(crate) fn column(&mut self, parts: &[Ident]) -> Result<Typed> {
        let names: Vec<String> = parts.iter().map(object_name).collect();
        let span = parts.first().map_or(Span::empty(), |part| part.span);
        let found = match names.as_slice() {
            [column] => self.unqualified(column),
            [table, column] => self.qualified(None, table, column),
            [schema, table, column] => self.qualified(Some(schema), table, column),
            [database, _, _, _] if !self.context.catalog.is_own_name(database) => {
                Err(cross_database(&names.join(".")))
            }
            [_, schema, table, column] => self.qualified(Some(schema), table, column),
            _ => Err(SqlError::syntax(format!(
                "improper qualified name (too many dotted names): {}",
                names.join(".")
            ))),
        };
        self.or_argument(found, &names).map_err(|error| self.at(error, span))
    }

    /// An expression of the level at place `index`, as the innermost level sees it.
    fn at_level(&mut self, index: usize, source: &ColumnSource) -> Typed {
        let depth = self.levels.len() - 1 - index;
        let mut typed = self.levels[index].resolve(source);
        if depth > 0 {
            typed.expr.raise(0, depth);
        }
        typed
    }

    fn unqualified(&mut self, name: &str) -> Result<Typed> {
        for index in (self.barrier..self.levels.len()).rev() {
            let mut matches = self.levels[index].namespace.star.iter().filter(|column| column.name == name);
            if let Some(first) = matches.next() {
                if matches.next().is_some() {
                    return Err(SqlError::new(
                        sqlstate::AMBIGUOUS_COLUMN,
                        format!("column reference \"{name}\" is ambiguous"),
                    ));
                }
                let (source, read) = (first.source.clone(), first.read);
                self.note_read(read);
                return Ok(self.at_level(index, &source));
            }
            self.levels[index].namespace.check_open(None, name)?;
        }
        if let Some(level) = self.levels[self.barrier..].last()
            && let [only] = level.namespace.tables.as_slice()
            && let Some(hidden) = level.hidden(name, only)
        {
            let read = only.columns.first().and_then(|column| column.read);
            self.note_system_read(read);
            return Ok(hidden);
        }
        if name == ROW_KEY
            && let Some(key) = self.levels.last_mut().and_then(Level::row_key)
        {
            return Ok(key);
        }
        // A table's name alone is its whole row.
        for index in (self.barrier..self.levels.len()).rev() {
            let table = self.levels[index].namespace.tables.iter().find(|table| table.name == name);
            if let Some(table) = table.cloned() {
                return Ok(self.whole_row(index, &table));
            }
        }
        let lacks = |level: &Level| {
            let mut tables = level.namespace.tables.iter();
            tables.find_map(|table| level.lacks_hidden(name, table))
        };
        let undefined =
            || SqlError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"));
        Err(self.levels[self.barrier..].iter().find_map(lacks).unwrap_or_else(undefined))
    }

    fn whole_row(&mut self, index: usize, table: &NamedTable) -> Typed {
        // The row of a function with one column is that column, also where it has another name.
        if let [only] = table.columns.as_slice()
            && (only.name == table.name || self.levels[index].is_value(only))
        {
            self.note_read(only.read);
            return self.at_level(index, &only.source);
        }
        let mut items = Vec::with_capacity(table.columns.len());
        let mut shape = Vec::with_capacity(table.columns.len());
        for (place, column) in table.columns.iter().enumerate() {
            self.note_row_read(column.read);
            let typed = self.at_level(index, &column.source);
            items.push(typed.expr);
            shape.push((table.fields.get(place).unwrap_or(&column.name).clone(), typed.ty));
        }
        let row = Typed::new(Expr::Row(items, shape.into()), TypeId::Record);
        // Where an outer join has no row of the table there is none, and not one of NULLs.
        let tied = self.tied_ctes();
        let level = &mut self.levels[index];
        let presence = level.column_of_presence(table).or_else(|| level.added_presence(table, &tied));
        match presence {
            Some(source) => unless_null(self.at_level(index, &source), row),
            None => row,
        }
    }

    /// The innermost table of this name in sight: its level and itself.
    fn table_in_sight(&self, schema: Option<&str>, name: &str) -> Result<Option<(usize, &NamedTable)>> {
        for index in (self.barrier..self.levels.len()).rev() {
            let mut matches = self.levels[index].namespace.tables.iter().filter(|table| {
                table.name == name && (schema.is_none() || table.schema.as_deref() == schema)
            });
            if let Some(first) = matches.next() {
                if matches.next().is_some() {
                    return Err(SqlError::new(
                        sqlstate::DUPLICATE_ALIAS,
                        format!("table reference \"{name}\" is ambiguous"),
                    ));
                }
                return Ok(Some((index, first)));
            }
            self.levels[index].namespace.check_open(Some(name), "")?;
        }
        Ok(None)
    }

    fn missing_table(&self, name: &str) -> SqlError {
        let hidden = self.levels.iter().any(|level| level.mentioned.iter().any(|known| known == name));
        let (message, hint) = if hidden {
            (
                format!("invalid reference to FROM-clause entry for table \"{name}\""),
                Some(format!(
                    "There is an entry for table \"{name}\", but it cannot be referenced from this part of the query."
                )),
            )
        } else {
            (format!("missing FROM-clause entry for table \"{name}\""), None)
        };
        let error = SqlError::new(sqlstate::UNDEFINED_TABLE, message);
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }

    fn qualified(&mut self, schema: Option<&str>, table: &str, column: &str) -> Result<Typed> {
        let Some((index, found)) = self.table_in_sight(schema, table)? else {
            return Err(self.missing_table(table));
        };
        let mut matches = found.columns.iter().filter(|known| known.name == column);
        let Some(first) = matches.next() else {
            let read = found.columns.first().and_then(|column| column.read);
            if let Some(hidden) = self.levels[index].hidden(column, found) {
                self.note_system_read(read);
                return Ok(hidden);
            }
            let found = found.clone();
            if column == TABLE_OID
                && index + 1 == self.levels.len()
                && let Some((oid, source)) = self.levels[index].table_oid_where_it_is(&found)
            {
                self.note_system_read(read);
                let oid = Typed::new(Expr::Constant(Datum::Oid(oid)), TypeId::Oid);
                return Ok(unless_null(self.levels[index].resolve(&source), oid));
            }
            let undefined = || {
                let message = format!("column {table}.{column} does not exist");
                SqlError::new(sqlstate::UNDEFINED_COLUMN, message)
            };
            return Err(self.levels[index].lacks_hidden(column, &found).unwrap_or_else(undefined));
        };
        if matches.next().is_some() {
            return Err(SqlError::new(
                sqlstate::AMBIGUOUS_COLUMN,
                format!("column reference \"{column}\" is ambiguous"),
            ));
        }
        let (source, read) = (first.source.clone(), first.read);
        self.note_read(read);
        Ok(self.at_level(index, &source))
    }

    /// The columns `*` stands for: so many of those in sight. 42601 if there are no tables.
    pub(crate) fn star(&mut self, listed: usize) -> Result<Vec<(String, Typed)>> {
        let level = self.level()?;
        if level.namespace.tables.is_empty() {
            return Err(SqlError::syntax("SELECT * with no tables specified is not valid"));
        }
        // More than a select list may have would only be copied to be refused.
        check_width(listed.min(level.namespace.star.len()))?;
        let columns: Vec<NamedColumn> = level.namespace.star.iter().take(listed).cloned().collect();
        columns.iter().for_each(|column| self.note_read(column.read));
        let level = self.level()?;
        Ok(columns.into_iter().map(|column| (column.name, level.resolve(&column.source))).collect())
    }

    /// The row of a table as one value: `t.*` where a call has it as an argument.
    pub(super) fn row_of(&mut self, name: &ObjectName) -> Result<Typed> {
        let (schema, table) = schema_and_name(name)?;
        let Some((index, found)) = self.table_in_sight(schema.as_deref(), &table)? else {
            return Err(self.at(self.missing_table(&table), name_span(name)));
        };
        let found = found.clone();
        self.check_record(schema.as_deref(), &table)?;
        Ok(self.whole_row(index, &found))
    }

    /// The columns `table.*` stands for.
    pub(crate) fn table_star(&mut self, name: &ObjectName) -> Result<Vec<(String, Typed)>> {
        let (schema, table) = schema_and_name(name)?;
        let Some((index, found)) = self.table_in_sight(schema.as_deref(), &table)? else {
            return Err(self.at(self.missing_table(&table), name_span(name)));
        };
        let columns = found.columns.clone();
        self.check_record(schema.as_deref(), &table)?;
        columns.iter().for_each(|column| self.note_read(column.read));
        Ok(columns.into_iter().map(|column| (column.name, self.at_level(index, &column.source))).collect())
    }
}
