//! CREATE TYPE ... AS ENUM and ALTER TYPE of enum types (of what else concerns them: `user_type`).
//!
//! Labels may be added beside everything else: no value has them before.

use sqlparser::ast::{self, AlterTypeAddValuePosition, AlterTypeOperation, UserDefinedTypeRepresentation};

use super::names::Qualified;
use crate::catalog::{EnumType, Object, UserType};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::{MAX_NAME, fold};
use crate::session::work::Work;

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
        self.claim_type_name(&schema, &name.name).await?;
        let (schema, schema_name) = (schema.oid, schema.name.clone());
        let (oid, name) = (self.allocate_pair()?, name.name);
        let mut ty = EnumType { oid, schema, schema_name, name, labels: vec![], comment: None };
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

    /// ALTER TYPE.
    pub(crate) async fn alter_type_definition(&mut self, alter: &ast::AlterType) -> Result<()> {
        let name = Qualified::from_object_name(&alter.name)?;
        let found = self.locked_type(&name).await?;
        self.require_type_owner(&found)?;
        let ty = match (found, &alter.operation) {
            (UserType::Enum(ty), _) => ty,
            (UserType::Domain(domain), AlterTypeOperation::Rename(rename)) => {
                return self.rename_domain(&domain, fold(&rename.new_name)).await;
            }
            (UserType::Domain(domain), _) => {
                let message = format!("{} is not an enum", domain.ty().format_with(self.format));
                return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message));
            }
        };
        let mut changed = EnumType::clone(&ty);
        match &alter.operation {
            AlterTypeOperation::Rename(rename) => {
                let new = fold(&rename.new_name);
                let schema = self.schema_of(ty.schema)?;
                self.claim_type_name(&schema, &new).await?;
                let what = "ALTER TYPE ... RENAME TO";
                self.refuse_mentioned(&UserType::Enum(ty.clone()), &ty.name, what)?;
                changed.name = new;
                let before = self.catalog.clone();
                self.change(Object::EnumType(changed.into()))?;
                return self.follow_type(&before, &ty.name, what).await;
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
                let what = "ALTER TYPE ... RENAME VALUE";
                self.refuse_mentioned(&UserType::Enum(ty.clone()), &from, what)?;
                self.refuse_viewed(&from, what)?;
                changed.labels[place].label = to;
            }
        }
        self.change(Object::EnumType(changed.into()))
    }
}
