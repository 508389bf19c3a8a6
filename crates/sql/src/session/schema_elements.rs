//! CREATE SCHEMA with elements: the schema, then what is to be made in it, while it stands first in
//! the search path, and by the owner that AUTHORIZATION names. As in PostgreSQL sequences and
//! tables come first, then views, indexes and GRANT.

use sqlparser::ast;

use crate::ddl::names::{Qualified, single};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::{fold, quote_identifier};
use crate::parse::{Command, CreateSchema};
use crate::session::work::Work;

impl Work<'_> {
    /// CREATE SCHEMA with elements. 42P15 for one that is to be made in another schema.
    pub(super) async fn create_schema_with(&mut self, create: &CreateSchema) -> Result<()> {
        let (schema, name, is_anothers) = self.created_schema(&create.schema)?;
        let mut elements = Vec::with_capacity(create.elements.len());
        for element in &create.elements {
            let (turn, made) = turn_of(element)?;
            if let Some(made) = made {
                check_schema(made, &name)?;
            }
            elements.push((turn, element));
        }
        elements.sort_by_key(|(turn, _)| *turn);
        self.define(schema).await?;
        let before = self.facts.mark();
        let path = self.facts.with_settings(|settings| settings.show("search_path"))?;
        let own = name;
        let name = quote_identifier(&own);
        let path = if path.is_empty() { name } else { format!("{name}, {path}") };
        self.facts.with_settings(|settings| settings.set("search_path", Some(&path), true))?;
        if let Some(schema) = self.catalog.schema(&own).filter(|_| is_anothers) {
            self.facts.act_as(&self.catalog, self.catalog.owner(schema.oid));
        }
        let mut made = Ok(());
        for (_, element) in elements {
            made = self.make_element(element, &own).await;
            if made.is_err() {
                break;
            }
        }
        self.facts.with_settings(|settings| settings.restore(&before));
        made
    }

    /// Makes one in its schema. An index is of a table of that, also where another table of this
    /// name is in the search path.
    async fn make_element(&mut self, element: &Command, own: &str) -> Result<()> {
        match element {
            Command::Sql(sql) => match sql.as_ref() {
                ast::Statement::CreateIndex(create) if create.table_name.0.len() == 1 => {
                    let schema = ast::ObjectNamePart::Identifier(ast::Ident::with_quote('"', own));
                    let mut create = create.clone();
                    create.table_name.0.insert(0, schema);
                    self.define(&ast::Statement::CreateIndex(create)).await
                }
                sql => self.define(sql).await,
            },
            Command::CreateSequence { name, if_not_exists, temporary, options } => {
                self.create_sequence(name, *if_not_exists, *temporary, options).await.map(drop)
            }
            Command::Grant(statement) => self.grant(statement).await,
            _ => Err(SqlError::internal("an element of CREATE SCHEMA that is none")),
        }
    }

    /// The statement that makes the schema, the schema's name, and whether it names an owner, whose
    /// the elements are, too.
    fn created_schema<'a>(&self, command: &'a Command) -> Result<(&'a ast::Statement, String, bool)> {
        let Command::Sql(sql) = command else {
            return Err(SqlError::internal("CREATE SCHEMA makes no schema"));
        };
        let sql = sql.as_ref();
        let ast::Statement::CreateSchema { schema_name, if_not_exists, .. } = sql else {
            return Err(SqlError::internal("CREATE SCHEMA makes no schema"));
        };
        if *if_not_exists {
            let message = "CREATE SCHEMA IF NOT EXISTS cannot include schema elements";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        Ok(match schema_name {
            ast::SchemaName::Simple(name) => (sql, single(name)?, false),
            ast::SchemaName::NamedAuthorization(name, _) => (sql, single(name)?, true),
            ast::SchemaName::UnnamedAuthorization(role) => {
                (sql, self.role_word(role).unwrap_or_else(|| fold(role)), true)
            }
        })
    }
}

/// When an element has its turn, and the relation that it makes or is of.
fn turn_of(element: &Command) -> Result<(u8, Option<&ast::ObjectName>)> {
    use ast::Statement as S;
    match element {
        Command::CreateSequence { name, .. } => return Ok((0, Some(name))),
        Command::Grant(_) => return Ok((4, None)),
        Command::Unsupported(what) => return Err(SqlError::unsupported(what)),
        Command::Sql(sql) => match sql.as_ref() {
            S::CreateTable(create) if create.query.is_none() => return Ok((1, Some(&create.name))),
            S::CreateView(create) => return Ok((2, Some(&create.name))),
            S::CreateIndex(create) => return Ok((3, Some(&create.table_name))),
            _ => {}
        },
        _ => {}
    }
    Err(SqlError::unsupported("this element of CREATE SCHEMA"))
}

fn check_schema(name: &ast::ObjectName, own: &str) -> Result<()> {
    match Qualified::from_object_name(name)?.schema {
        Some(schema) if schema != own => {
            let message =
                format!("CREATE specifies a schema ({schema}) different from the one being created ({own})");
            Err(SqlError::new(sqlstate::INVALID_SCHEMA_DEFINITION, message))
        }
        _ => Ok(()),
    }
}
