//! COMMENT ON.

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::names::{Qualified, parts, single};
use super::resolve::{undefined_column, undefined_schema, undefined_table, wrong_type};
use crate::catalog::{Object, Relation, Schema, Sequence, Table, View};
use crate::error::{Result, SqlError};
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
            _ => self.held(&name, &relation).await?,
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
}
