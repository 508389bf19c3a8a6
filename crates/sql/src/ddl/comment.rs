//! COMMENT ON.

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::names::{Qualified, parts, single};
use super::resolve::{undefined_column, undefined_schema, undefined_table, wrong_type};
use super::routine::lock_name;
use crate::catalog::{
    Domain, EnumType, Object, Relation, Routine, RoutineKind, Schema, Sequence, Table, UserType, View,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::{CommentStatement, Commented, RoutineArgument};
use crate::session::work::Work;

impl Work<'_> {
    /// COMMENT ON. `None` takes the comment away.
    pub(crate) async fn comment(
        &mut self,
        kind: ast::CommentObject,
        name: &ast::ObjectName,
        comment: Option<&str>,
    ) -> Result<()> {
        let comment = comment.filter(|comment| !comment.is_empty()).map(str::to_owned);
        match kind {
            ast::CommentObject::Column => self.comment_on_column(name, comment).await,
            ast::CommentObject::Schema => {
                let name = single(name)?;
                let schema = self.catalog.schema(&name).ok_or_else(|| undefined_schema(&name))?;
                self.require_schema_owner(schema)?;
                self.change(Object::Schema(Schema { comment, ..Schema::clone(schema) }.into()))
            }
            ast::CommentObject::Table
            | ast::CommentObject::View
            | ast::CommentObject::Sequence
            | ast::CommentObject::Index => {
                let kind = kind.to_string().to_lowercase();
                self.comment_on_relation(&kind, name, comment).await
            }
            ast::CommentObject::Domain => self.comment_on_domain(name, comment).await,
            ast::CommentObject::Type => self.comment_on_type(name, comment).await,
            ast::CommentObject::Extension => self.comment_on_extension(&single(name)?, comment.as_deref()),
            other => Err(SqlError::unsupported(format_args!("COMMENT ON {other}"))),
        }
    }

    async fn comment_on_column(&mut self, name: &ast::ObjectName, comment: Option<String>) -> Result<()> {
        let mut names = parts(name)?;
        let (Some(column), Some(table)) = (names.pop(), names.pop()) else {
            return Err(SqlError::syntax("column name must be qualified"));
        };
        let (schema, database) = (names.pop(), names.pop());
        let name = Qualified { database, schema, name: table };
        self.require_usage(&name)?;
        if let Some(relation) = self.find(&name) {
            self.require_relation_owner(&relation)?;
            if matches!(relation, Relation::View(_)) {
                // Others may be changing what is said of it.
                let held = self.held_as(&name, &relation, TreeMode::ShareUpdateExclusive).await?;
                let Relation::View(view) = held else {
                    return Err(undefined_table(&name));
                };
                let mut view = View::clone(&view);
                let found = view.columns.iter_mut().find(|known| known.name == column);
                found.ok_or_else(|| undefined_column(&column, &name.name))?.comment = comment;
                return self.change(Object::View(view.into()));
            }
        }
        let table = self.locked_table(&name, TreeMode::Exclusive).await?;
        let place = table.column_place(&column).ok_or_else(|| undefined_column(&column, &table.name))?;
        let mut table = Table::clone(&table);
        table.columns[place].comment = comment;
        self.change(Object::Table(table.into()))
    }

    async fn comment_on_relation(
        &mut self,
        kind: &str,
        name: &ast::ObjectName,
        comment: Option<String>,
    ) -> Result<()> {
        let name = Qualified::from_object_name(name)?;
        self.require_usage(&name)?;
        let relation = self.find(&name).ok_or_else(|| undefined_table(&name))?;
        if relation.kind() != kind {
            return Err(wrong_type(&name.name, kind));
        }
        self.require_relation_owner(&relation)?;
        let held = match &relation {
            Relation::Index(table, _) => {
                self.lock_table(table.oid, TreeMode::Exclusive).await?;
                self.find(&name).ok_or_else(|| undefined_table(&name))?
            }
            _ => self.held_as(&name, &relation, TreeMode::ShareUpdateExclusive).await?,
        };
        match held {
            Relation::Table(table) => {
                self.change(Object::Table(Table { comment, ..Table::clone(&table) }.into()))
            }
            Relation::Index(table, oid) => {
                let mut table = Table::clone(&table);
                if let Some(index) = table.indexes.iter_mut().find(|index| index.oid == oid) {
                    index.comment = comment;
                }
                self.change(Object::Table(table.into()))
            }
            Relation::Sequence(sequence) => {
                self.change(Object::Sequence(Sequence { comment, ..Sequence::clone(&sequence) }.into()))
            }
            Relation::View(view) => self.change(Object::View(View { comment, ..View::clone(&view) }.into())),
        }
    }
    async fn comment_on_type(&mut self, name: &ast::ObjectName, comment: Option<String>) -> Result<()> {
        let ty = self.locked_type(&Qualified::from_object_name(name)?).await?;
        self.require_type_owner(&ty)?;
        self.change(match ty {
            UserType::Enum(ty) => Object::EnumType(EnumType { comment, ..EnumType::clone(&ty) }.into()),
            UserType::Domain(domain) => Object::Domain(Domain { comment, ..Domain::clone(&domain) }.into()),
        })
    }

    /// COMMENT ON what is named by more than a name.
    pub(crate) async fn comment_statement(&mut self, statement: &CommentStatement) -> Result<()> {
        let comment = statement.comment.clone().filter(|comment| !comment.is_empty());
        match &statement.object {
            Commented::Routine(kind, (name, arguments)) => {
                self.comment_on_routine(*kind, name, arguments.as_deref(), comment).await
            }
            Commented::Constraint(name, table) => {
                self.comment_on_constraint(&fold(name), table, comment).await
            }
        }
    }

    async fn comment_on_routine(
        &mut self,
        kind: Option<RoutineKind>,
        name: &ast::ObjectName,
        arguments: Option<&[RoutineArgument]>,
        comment: Option<String>,
    ) -> Result<()> {
        let name = Qualified::from_object_name(name)?;
        self.refresh_catalog();
        let named = self.named_routine(kind, &name, arguments)?;
        self.require_routine_owner(&named)?;
        self.lock_name(named.schema, &lock_name(&named.name)).await?;
        // What the name meant before a wait may have changed.
        self.refresh_catalog();
        let routine = self.named_routine(kind, &name, arguments)?;
        self.require_routine_owner(&routine)?;
        self.change(Object::Routine(Routine { comment, ..Routine::clone(&routine) }.into()))
    }

    async fn comment_on_constraint(
        &mut self,
        name: &str,
        table: &ast::ObjectName,
        comment: Option<String>,
    ) -> Result<()> {
        let qualified = Qualified::from_object_name(table)?;
        self.require_usage(&qualified)?;
        let relation = self.find(&qualified).ok_or_else(|| undefined_table(&qualified))?;
        self.require_relation_owner(&relation)?;
        let table = self.locked_table(&qualified, TreeMode::Exclusive).await?;
        let mut table = Table::clone(&table);
        let check = table.checks.iter_mut().find(|check| check.name == name);
        let key = table.foreign_keys.iter_mut().find(|key| key.name == name);
        let index = table.indexes.iter_mut();
        let index = index.filter(|index| index.constraint.is_some()).find(|index| index.name == name);
        let of_check = check.map(|check| &mut check.comment);
        let of_key = key.map(|key| &mut key.comment);
        let of_index = index.map(|index| &mut index.constraint_comment);
        let Some(place) = of_check.or(of_key).or(of_index) else {
            let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
            return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message));
        };
        *place = comment;
        self.change(Object::Table(table.into()))
    }
}
