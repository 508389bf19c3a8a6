//! CREATE TYPE ... AS ENUM, ALTER TYPE and DROP TYPE of enum types.
//!
//! A type shares its name's lock with relations, as their row types have their names. Who gives a
//! column the type holds that lock shared, so that the type cannot go or change its name meanwhile.
//! Labels may be added beside everything else: no value has them before.
//!
//! Defaults, checks, views and functions name types and labels in stored text. A new name for what
//! such a text may mention is refused.

use std::sync::Arc;

use cognate_engine::LockMode;
use sqlparser::ast::{self, AlterTypeAddValuePosition, AlterTypeOperation, UserDefinedTypeRepresentation};

use super::drop::{cascade_notice, depend, describe};
use super::names::{MAX_NAME, Qualified, fold};
use super::resolve::undefined_schema;
use crate::catalog::{EnumType, Index, Object, Oid, Relation, Schema, store};
use crate::error::{Result, SqlError, sqlstate};
use crate::session::work::Work;
use crate::types::{Type, TypeId};

/// 42710 if a relation or type of the schema has this name.
fn duplicate_type(name: &str) -> SqlError {
    SqlError::new(sqlstate::DUPLICATE_OBJECT, format!("type \"{name}\" already exists"))
}

fn undefined_type(name: &Qualified) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", name.display()))
}

fn no_such_label(label: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("\"{label}\" is not an existing enum label"))
}

/// A label as it is written. 42601 unless in quotes, 42602 if it is too long.
fn label(ident: &ast::Ident) -> Result<String> {
    if ident.quote_style != Some('\'') {
        return Err(SqlError::syntax(format!("syntax error at or near \"{ident}\"")));
    }
    if ident.value.len() > MAX_NAME {
        return Err(SqlError::new(sqlstate::INVALID_NAME, format!("invalid enum label \"{}\"", ident.value))
            .with_detail(format!("Labels must be {MAX_NAME} bytes or less.")));
    }
    Ok(ident.value.clone())
}

/// Uses of a type: columns of tables, by table and name; views.
#[derive(Default)]
struct Uses {
    columns: Vec<(Oid, String)>,
    /// Who depends, and on what: "column m of table t", "type mood".
    dependents: Vec<(String, String)>,
    is_viewed: bool,
}

impl Work<'_> {
    /// CREATE TYPE.
    pub(crate) async fn create_type(
        &mut self,
        name: &ast::ObjectName,
        representation: Option<&UserDefinedTypeRepresentation>,
    ) -> Result<()> {
        let Some(UserDefinedTypeRepresentation::Enum { labels }) = representation else {
            let what = match representation {
                None => "CREATE TYPE of a shell type",
                Some(UserDefinedTypeRepresentation::Composite { .. }) => "CREATE TYPE of a composite type",
                Some(UserDefinedTypeRepresentation::Range { .. }) => "CREATE TYPE of a range type",
                Some(_) => "CREATE TYPE of a base type",
            };
            return Err(SqlError::unsupported(what));
        };
        let name = Qualified::from_object_name(name)?;
        let schema = self.creation_schema(&name, false)?;
        if schema.home.is_some() {
            return Err(SqlError::unsupported("CREATE TYPE in a schema of temporary objects"));
        }
        self.lock_name(schema.oid, &name.name).await?;
        if self.catalog.schema_by_oid(schema.oid).is_none() {
            return Err(undefined_schema(&schema.name));
        }
        self.refuse_taken(&schema, &name.name)?;
        let (schema, schema_name) = (schema.oid, schema.name.clone());
        let mut ty =
            EnumType { oid: self.allocate_pair()?, schema, schema_name, name: name.name, labels: vec![] };
        for ident in labels {
            let label = label(ident)?;
            if ty.place(&label).is_some() {
                return Err(SqlError::new(
                    sqlstate::UNIQUE_VIOLATION,
                    "duplicate key value violates unique constraint \"pg_enum_typid_label_index\"",
                )
                .with_detail(format!("Key (enumtypid, enumlabel)=({}, {label}) already exists.", ty.oid)));
            }
            ty.insert(ty.labels.len(), self.allocate_oid()?, label)?;
        }
        self.change(Object::EnumType(ty.into()))
    }

    /// An oid, and the one behind it for the array type.
    fn allocate_pair(&self) -> Result<Oid> {
        let mut first = self.allocate_oid()?;
        loop {
            // Somebody else may have taken the one in between.
            let second = self.allocate_oid()?;
            if second == first + 1 {
                return Ok(first);
            }
            first = second;
        }
    }

    fn refuse_taken(&self, schema: &Schema, name: &str) -> Result<()> {
        let is_type = self.catalog.enum_type(&[], Some(&schema.name), name).is_some();
        if is_type || self.is_taken(&schema.name, name) { Err(duplicate_type(name)) } else { Ok(()) }
    }

    /// The type of this name, its name locked.
    async fn locked_type(&mut self, name: &Qualified) -> Result<Arc<EnumType>> {
        self.refresh_catalog();
        let find = |work: &Self| {
            if let Some(schema) = name.schema.as_deref().filter(|name| work.catalog.schema(name).is_none()) {
                return Err(undefined_schema(schema));
            }
            let path = work.facts.binding_path(&work.catalog);
            let found = work.catalog.enum_type(&path, name.schema.as_deref(), &name.name);
            found.cloned().ok_or_else(|| undefined_type(name))
        };
        let ty = find(self)?;
        self.lock_name(ty.schema, &ty.name).await?;
        let again = find(self)?;
        if again.oid == ty.oid { Ok(again) } else { Err(undefined_type(name)) }
    }

    /// Keeps enum types from going while columns get them. 42704 for one that has gone.
    pub(crate) async fn hold_types(&mut self, types: &[Type]) -> Result<()> {
        for oid in types.iter().filter_map(|ty| ty.enum_named()) {
            // It was looked up just now, by the same catalog.
            let Some(ty) = self.catalog.enum_by_oid(oid).cloned() else { continue };
            let mut key = ty.schema.to_be_bytes().to_vec();
            key.extend_from_slice(ty.name.as_bytes());
            self.lock_key(store::NAME_TREE, &key, LockMode::Shared).await?;
            self.refresh_catalog();
            if self.catalog.enum_by_oid(oid).is_none() {
                return Err(undefined_type(&Qualified { schema: None, name: ty.name.clone() }));
            }
        }
        Ok(())
    }

    /// ALTER TYPE.
    pub(crate) async fn alter_type_definition(&mut self, alter: &ast::AlterType) -> Result<()> {
        let name = Qualified::from_object_name(&alter.name)?;
        let ty = self.locked_type(&name).await?;
        let mut changed = EnumType::clone(&ty);
        match &alter.operation {
            AlterTypeOperation::Rename(rename) => {
                let new = fold(&rename.new_name);
                self.lock_name(ty.schema, &new).await?;
                let schema = self.schema_of(ty.schema)?;
                self.refuse_taken(&schema, &new)?;
                self.refuse_mentioned(&ty, &ty.name, "ALTER TYPE ... RENAME TO")?;
                changed.name = new;
            }
            AlterTypeOperation::AddValue(add) => {
                let new = label(&add.value)?;
                if ty.place(&new).is_some() {
                    let message = format!("enum label \"{new}\" already exists");
                    if !add.if_not_exists {
                        return Err(SqlError::new(sqlstate::DUPLICATE_OBJECT, message));
                    }
                    let notice = SqlError::notice(format!("{message}, skipping"));
                    self.notice(notice.with_sqlstate(sqlstate::DUPLICATE_OBJECT));
                    return Ok(());
                }
                let neighbour = |ident: &ast::Ident| {
                    let known = label(ident)?;
                    ty.place(&known).ok_or_else(|| no_such_label(&known))
                };
                let place = match &add.position {
                    None => ty.labels.len(),
                    Some(AlterTypeAddValuePosition::Before(ident)) => neighbour(ident)?,
                    Some(AlterTypeAddValuePosition::After(ident)) => neighbour(ident)? + 1,
                };
                changed.insert(place, self.allocate_oid()?, new)?;
            }
            AlterTypeOperation::RenameValue(rename) => {
                let (from, to) = (label(&rename.from)?, label(&rename.to)?);
                let place = ty.place(&from).ok_or_else(|| no_such_label(&from))?;
                if ty.place(&to).is_some() {
                    return Err(SqlError::new(
                        sqlstate::DUPLICATE_OBJECT,
                        format!("enum label \"{to}\" already exists"),
                    ));
                }
                self.refuse_mentioned(&ty, &from, "ALTER TYPE ... RENAME VALUE")?;
                changed.labels[place].label = to;
            }
        }
        self.change(Object::EnumType(changed.into()))
    }

    /// 0A000 if a stored text has this word and the type is in reach of it: which one is meant
    /// there, only binding the text would tell.
    fn refuse_mentioned(&self, ty: &EnumType, word: &str, what: &str) -> Result<()> {
        let quoted = word.replace('\'', "''");
        let has = |text: &str| text.contains(word) || text.contains(&quoted);
        let refused = |who: String| Err(SqlError::unsupported(format!("{what} where {who} names it")));
        for table in self.catalog.tables() {
            let described = || describe(self, &Relation::Table(table.clone()));
            for (_, column) in table.visible_columns() {
                if column.default.as_deref().is_some_and(has) && column.ty.enum_named() == Some(ty.oid) {
                    return refused(format!("the default of column {} of {}", column.name, described()));
                }
            }
            if let Some(check) = table.checks.iter().find(|check| has(&check.expression)) {
                return refused(format!("constraint {} of {}", check.name, described()));
            }
            let computes = |index: &&Index| index.computed().any(|computed| has(&computed.text));
            if let Some(index) = table.indexes.iter().find(computes) {
                return refused(format!("index {} of {}", index.name, described()));
            }
        }
        if let Some(view) = self.catalog.views().find(|view| has(&view.query)) {
            return refused(describe(self, &Relation::View(view.clone())));
        }
        match self.catalog.routines().find(|routine| has(&routine.body)) {
            Some(routine) => refused(format!("{} {}", routine.kind.noun(), routine.identity())),
            None => Ok(()),
        }
    }

    /// DROP TYPE.
    pub(crate) async fn drop_types(
        &mut self,
        names: &[ast::ObjectName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        let mut types: Vec<Arc<EnumType>> = Vec::new();
        for name in names {
            let name = Qualified::from_object_name(name)?;
            match self.locked_type(&name).await {
                Ok(ty) if types.iter().any(|known| known.oid == ty.oid) => {}
                Ok(ty) => types.push(ty),
                Err(error) if if_exists && is_missing(&error) => {
                    self.notice(SqlError::notice(format!("{}, skipping", error.message)));
                }
                Err(error) => return Err(error),
            }
        }
        let uses = self.uses(&types);
        if !cascade && !uses.dependents.is_empty() {
            let what = match types.as_slice() {
                [only] => describe_type(self, only),
                _ => "desired object(s)".to_owned(),
            };
            return Err(depend(&what, &uses.dependents));
        }
        if uses.is_viewed {
            return Err(SqlError::unsupported("DROP TYPE ... CASCADE where a view uses the type"));
        }
        let dependents: Vec<String> = uses.dependents.into_iter().map(|(who, _)| who).collect();
        self.notices.extend(cascade_notice(&dependents));
        for (table, column) in uses.columns {
            self.alter_drop_column(table, &column, false, true).await?;
        }
        for ty in types {
            self.remove(ty.oid)?;
        }
        Ok(())
    }

    /// 0A000 if something outside of a schema that is dropped uses a type in it.
    pub(super) fn refuse_used_outside(&self, ty: &Arc<EnumType>, schema: Oid) -> Result<()> {
        let uses = self.uses(std::slice::from_ref(ty));
        let is_outside = |oid: &Oid| self.catalog.table_by_oid(*oid).is_some_and(|t| t.schema != schema);
        if uses.is_viewed || uses.columns.iter().any(|(table, _)| is_outside(table)) {
            return Err(SqlError::unsupported(format!(
                "DROP SCHEMA where a view or another schema's table uses {}",
                describe_type(self, ty)
            )));
        }
        Ok(())
    }

    /// Who uses these types.
    fn uses(&self, types: &[Arc<EnumType>]) -> Uses {
        let mut uses = Uses::default();
        for ty in types {
            let on = describe_type(self, ty);
            for table in self.catalog.tables() {
                for (_, column) in table.visible_columns() {
                    if column.ty.enum_named() == Some(ty.oid) {
                        let table_name = describe(self, &Relation::Table(table.clone()));
                        uses.columns.push((table.oid, column.name.clone()));
                        let array = if column.ty.id == TypeId::EnumArray { "[]" } else { "" };
                        let who = format!("column {} of {table_name}", column.name);
                        uses.dependents.push((who, format!("{on}{array}")));
                    }
                }
            }
            for view in self.catalog.views() {
                let has_column = view.columns.iter().any(|column| column.ty.enum_named() == Some(ty.oid));
                if has_column || view.depends_on.contains(&ty.oid) {
                    let who = describe(self, &Relation::View(view.clone()));
                    uses.dependents.push((who, on.clone()));
                    uses.is_viewed = true;
                }
            }
        }
        uses
    }
}

/// `type mood`, qualified unless it is found by its plain name.
pub(super) fn describe_type(work: &Work<'_>, ty: &EnumType) -> String {
    let path = work.facts.lookup_path(&work.catalog);
    match work.catalog.enum_type(&path, None, &ty.name) {
        Some(found) if found.oid == ty.oid => format!("type {}", ty.name),
        _ => format!("type {}.{}", ty.schema_name, ty.name),
    }
}

fn is_missing(error: &SqlError) -> bool {
    [sqlstate::UNDEFINED_OBJECT, sqlstate::INVALID_SCHEMA_NAME].contains(&error.sqlstate)
}
