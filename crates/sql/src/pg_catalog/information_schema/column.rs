//! `columns`.

use std::sync::Arc;

use super::super::deparse::{self, Style};
use super::super::relation::default_of;
use super::super::type_facts::facts;
use super::super::value::NULL;
use super::super::viewer::Viewer;
use super::super::{Source, all};
use super::yes;
use crate::catalog::{Collation, Column, Domain, Identity, Privileges, Sequence, Table};
use crate::oltp::subject::updatable_columns;
use crate::types::{Type, TypeId};

/// A row of `columns`.
pub(super) struct Row<'a> {
    schema: String,
    table: String,
    name: String,
    place: usize,
    /// The type, or the one directly under its domain.
    ty: Type,
    domain: Option<&'a Arc<Domain>>,
    /// COLLATE.
    collation: Option<Collation>,
    not_null: bool,
    default: Option<String>,
    identity: Option<(Identity, Option<&'a Arc<Sequence>>)>,
    updatable: bool,
    is_generated: bool,
}

impl<'a> Row<'a> {
    pub(super) fn new(
        source: &Source<'a>,
        schema: &str,
        table: &str,
        name: &str,
        place: usize,
        ty: Type,
    ) -> Row<'a> {
        let domain = ty.domain_oid().and_then(|oid| source.catalog.domain_by_oid(oid));
        Row {
            schema: schema.to_owned(),
            table: table.to_owned(),
            name: name.to_owned(),
            place,
            ty: domain.map_or(ty, |domain| domain.base),
            domain,
            collation: None,
            not_null: domain.is_some_and(|domain| domain.not_null),
            default: None,
            identity: None,
            updatable: false,
            is_generated: false,
        }
    }

    fn of_column(source: &Source<'a>, table: &Table, place: usize, column: &Column) -> Row<'a> {
        let default = default_of(column);
        let sequence = column.sequence.and_then(|oid| source.catalog.sequence_by_oid(oid));
        let row = Row::new(source, &table.schema_name, &table.name, &column.name, place, column.ty);
        Row {
            collation: column.collation,
            not_null: column.not_null || row.not_null,
            default: default.map(|text| deparse::default(source, table, place, text, Style::Plain)),
            identity: column.identity.map(|identity| (identity, sequence)),
            updatable: true,
            is_generated: column.generated.is_some(),
            ..row
        }
    }

    /// The type that its numbers are about: none for a domain over a domain, as in PostgreSQL.
    fn known(&self) -> Option<TypeId> {
        self.ty.domain_oid().is_none().then_some(self.ty.id)
    }

    /// The standard's name of the type.
    fn type_name(&self) -> &'static str {
        match self.known() {
            None | Some(TypeId::Enum) => "USER-DEFINED",
            Some(id) if id.is_array() => "ARRAY",
            Some(id) => id.sql_name(),
        }
    }

    /// The same where the row is a domain.
    pub(super) fn domain_type_name(&self) -> &'static str {
        match self.known() {
            Some(id) if id.is_array() && self.ty.user_type().is_none() => id.sql_name(),
            Some(id) if id.is_array() => "USER-DEFINED",
            _ => self.type_name(),
        }
    }

    /// Schema and name of the type in `pg_type`.
    pub(super) fn udt(&self, source: &Source<'_>) -> (String, String) {
        match self.ty.user_type().and_then(|oid| source.catalog.user_type_by_oid(oid)) {
            Some(ty) if self.ty.oid() != ty.oid() => (ty.schema_name().to_owned(), format!("_{}", ty.name())),
            Some(ty) => (ty.schema_name().to_owned(), ty.name().to_owned()),
            None => ("pg_catalog".to_owned(), self.ty.id.internal_name().to_owned()),
        }
    }

    fn is_text(&self) -> bool {
        matches!(self.known(), Some(TypeId::Text | TypeId::Varchar | TypeId::Bpchar))
    }

    pub(super) fn character_length(&self) -> Option<i32> {
        self.known()?;
        self.ty.character_limit().and_then(|limit| i32::try_from(limit).ok())
    }

    pub(super) fn octet_length(&self) -> Option<i32> {
        let longest = self.character_length().map_or(1 << 30, |length| length.saturating_mul(4));
        self.is_text().then_some(longest)
    }

    /// Precision, its radix, scale.
    pub(super) fn numeric(&self) -> (Option<i32>, Option<i32>, Option<i32>) {
        match self.known() {
            Some(TypeId::Int2) => (Some(16), Some(2), Some(0)),
            Some(TypeId::Int4) => (Some(32), Some(2), Some(0)),
            Some(TypeId::Int8) => (Some(64), Some(2), Some(0)),
            Some(TypeId::Float4) => (Some(24), Some(2), None),
            Some(TypeId::Float8) => (Some(53), Some(2), None),
            Some(TypeId::Numeric) => {
                let declared = self.ty.precision_and_scale();
                (declared.map(|(precision, _)| precision), Some(10), declared.map(|(_, scale)| scale))
            }
            _ => (None, None, None),
        }
    }

    pub(super) fn datetime_precision(&self) -> Option<i32> {
        match self.known() {
            Some(TypeId::Date) => Some(0),
            Some(TypeId::Time | TypeId::Timestamp | TypeId::Timestamptz | TypeId::Interval) => {
                Some(self.ty.fractional_digits().and_then(|digits| i32::try_from(digits).ok()).unwrap_or(6))
            }
            _ => None,
        }
    }

    /// Which fields an interval has, if not all.
    pub(super) fn interval_type(&self) -> Option<String> {
        let name = (self.known() == Some(TypeId::Interval)).then(|| self.ty.format())?;
        name.split_once(' ').map(|(_, fields)| fields.to_ascii_uppercase())
    }

    /// The collation, unless it is the default one.
    pub(super) fn collation(&self) -> Option<&'static str> {
        let of_type = (facts(self.ty.id).collation == Collation::C.oid()).then_some(Collation::C);
        let collation = self.collation.or(of_type).filter(|one| *one != Collation::Default);
        collation.map(Collation::name)
    }

    fn sequence(&self) -> Option<&'a Arc<Sequence>> {
        self.identity.and_then(|(_, sequence)| sequence)
    }
}

fn rows<'a>(source: &Source<'a>) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    let viewer = Viewer::new(source);
    let is_seen = |schema: u32| !viewer.is_of_another_session(schema);
    for table in source.catalog.tables().filter(|table| is_seen(table.schema)) {
        let is_shown = viewer.columns(table.oid, Privileges::COLUMN);
        let columns = table.visible_columns().filter(|(place, _)| is_shown(*place));
        rows.extend(columns.map(|(place, column)| Row::of_column(source, table, place, column)));
    }
    for view in source.catalog.views().filter(|view| is_seen(view.schema)) {
        let updatable = updatable_columns(view, source.catalog);
        let is_shown = viewer.columns(view.oid, Privileges::COLUMN);
        let columns = view.columns.iter().enumerate().filter(|(place, _)| is_shown(*place));
        rows.extend(columns.map(|(place, column)| Row {
            updatable: updatable.get(place).copied().unwrap_or(false),
            ..Row::new(source, &view.schema_name, &view.name, &column.name, place, column.ty)
        }));
    }
    for table in all().filter(|table| viewer.sees_computed(table.oid)) {
        let columns = table.columns.iter().enumerate();
        rows.extend(
            columns.map(|(place, (name, ty))| Row::new(source, table.schema, table.name, name, place, *ty)),
        );
    }
    rows
}

system_table! {
    pub(super) static COLUMNS = 13295 view "information_schema"."columns",
    |source| rows(source).into_iter().map(|row| (source.database(), row)) => |(database, row)|,
    table_catalog: Name = database.clone(),
    table_schema: Name = row.schema.clone(),
    table_name: Name = row.table.clone(),
    column_name: Name = row.name.clone(),
    ordinal_position: Int4 = i32::try_from(row.place + 1).ok(),
    column_default: Varchar = row.default.clone().filter(|_| !row.is_generated),
    is_nullable: Varchar = yes(!row.not_null),
    data_type: Varchar = row.type_name(),
    character_maximum_length: Int4 = row.character_length(),
    character_octet_length: Int4 = row.octet_length(),
    numeric_precision: Int4 = row.numeric().0,
    numeric_precision_radix: Int4 = row.numeric().1,
    numeric_scale: Int4 = row.numeric().2,
    datetime_precision: Int4 = row.datetime_precision(),
    interval_type: Varchar = row.interval_type(),
    interval_precision: Int4 = NULL,
    character_set_catalog: Name = NULL,
    character_set_schema: Name = NULL,
    character_set_name: Name = NULL,
    collation_catalog: Name = row.collation().map(|_| database.clone()),
    collation_schema: Name = row.collation().map(|_| "pg_catalog"),
    collation_name: Name = row.collation(),
    domain_catalog: Name = row.domain.map(|_| database.clone()),
    domain_schema: Name = row.domain.map(|domain| domain.schema_name.clone()),
    domain_name: Name = row.domain.map(|domain| domain.name.clone()),
    udt_catalog: Name = database,
    udt_schema: Name = row.udt(source).0,
    udt_name: Name = row.udt(source).1,
    scope_catalog: Name = NULL,
    scope_schema: Name = NULL,
    scope_name: Name = NULL,
    maximum_cardinality: Int4 = NULL,
    dtd_identifier: Name = (row.place + 1).to_string(),
    is_self_referencing: Varchar = yes(false),
    is_identity: Varchar = yes(row.identity.is_some()),
    identity_generation: Varchar = row.identity.map(|(identity, _)| match identity {
        Identity::Always => "ALWAYS",
        Identity::ByDefault => "BY DEFAULT",
    }),
    identity_start: Varchar = row.sequence().map(|sequence| sequence.start.to_string()),
    identity_increment: Varchar = row.sequence().map(|sequence| sequence.increment.to_string()),
    identity_maximum: Varchar = row.sequence().map(|sequence| sequence.maximum.to_string()),
    identity_minimum: Varchar = row.sequence().map(|sequence| sequence.minimum.to_string()),
    identity_cycle: Varchar = yes(row.sequence().is_some_and(|sequence| sequence.cycle)),
    is_generated: Varchar = if row.is_generated { "ALWAYS" } else { "NEVER" },
    generation_expression: Varchar = row.default.clone().filter(|_| row.is_generated),
    is_updatable: Varchar = yes(row.updatable),
}
