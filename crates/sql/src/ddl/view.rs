//! CREATE VIEW, and the options of views.

use std::collections::BTreeSet;
use std::sync::Arc;

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::names::Qualified;
use super::resolve::{duplicate_relation, wrong_type};
use crate::bind::{Noted, base_table, pinned};
use crate::catalog::{self, CheckOption, Column, Object, Oid, Relation, Schema, Securable, View};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::{Command, changes_rows, parse_single, selects_into};
use crate::session::OutputColumn;
use crate::session::work::Work;
use crate::types::{Datum, FormatContext};

impl Work<'_> {
    /// CREATE VIEW.
    pub(crate) async fn create_view(&mut self, statement: &ast::CreateView) -> Result<()> {
        refuse(statement)?;
        let check_option = check_option(&statement.options)?;
        let with = statement.query.with.iter().flat_map(|with| &with.cte_tables);
        if with.into_iter().any(|cte| changes_rows(&cte.query.body)) {
            return Err(SqlError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "views must not contain data-modifying statements in WITH",
            ));
        }
        if selects_into(&statement.query.body) {
            let message = "views must not contain SELECT INTO";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        let name = Qualified::from_object_name(&statement.name)?;
        let reads_temporary = self.reads_temporary(&statement.query)?;
        if reads_temporary && !statement.temporary {
            self.notice(SqlError::notice(format!("view \"{}\" will be a temporary view", name.name)));
        }
        let schema = self.creation_schema(&name, statement.temporary || reads_temporary)?;
        self.hold_schema(&schema).await?;
        let existing = self.claim_view(&schema, &name.name, statement.or_replace).await?;
        let (columns, depends_on, noted) = self.bind_held(&statement.query).await?;
        if existing.as_ref().is_some_and(|view| depends_on.contains(&view.oid)) {
            let message = format!("infinite recursion detected in rules for relation \"{}\"", name.name);
            return Err(SqlError::new(sqlstate::INVALID_OBJECT_DEFINITION, message));
        }
        self.require_schemas_of(&statement.query)?;
        let mut columns = view_columns(columns, &statement.columns)?;
        super::create_table::check_count(columns.len())?;
        if let Some(before) = &existing {
            check_replacement(before, &columns, self.format)?;
            for (old, new) in before.columns.iter().zip(&mut columns) {
                new.comment.clone_from(&old.comment);
            }
        }
        let view = View {
            oid: match &existing {
                Some(view) => view.oid,
                None => self.allocate_oid()?,
            },
            schema: schema.oid,
            schema_name: schema.name.clone(),
            name: name.name,
            query: self.stored_query(&statement.query, &noted)?,
            columns,
            search_path: self.view_path(reads_temporary),
            depends_on,
            named: Some(noted.named),
            check_option,
            comment: existing.as_ref().and_then(|view| view.comment.clone()),
        };
        let view = Arc::new(view);
        self.check_updatable(&view)?;
        let (before, oid) = (self.catalog.clone(), view.oid);
        self.change(Object::View(view))?;
        match existing {
            // Columns that it has got are nothing to views over it.
            Some(_) => self.follow_in_views(&before, oid).await,
            None => Ok(()),
        }
    }

    /// Locks the name of a view that is to be made. The one that it takes the place of, which
    /// nobody reads any more by then who has done so before. 42P07, 42809, 42501.
    async fn claim_view(&mut self, schema: &Schema, name: &str, replaces: bool) -> Result<Option<Arc<View>>> {
        // Whoever waits for readers is not to have the name, which one of them may ask for.
        if replaces && let Some(relation @ Relation::View(_)) = self.catalog.relation(&schema.name, name) {
            self.require_relation_owner(relation)?;
            let oid = relation.oid();
            self.lock_table(oid, TreeMode::Exclusive).await?;
        }
        self.lock_name(schema.oid, name).await?;
        let existing = match self.catalog.relation(&schema.name, name) {
            None => return Ok(None),
            Some(relation @ Relation::View(view)) if replaces => {
                self.require_relation_owner(relation)?;
                view.clone()
            }
            Some(_) if replaces => return Err(wrong_type(name, "view")),
            Some(_) => return Err(duplicate_relation(name)),
        };
        // Another one may have come to the name meanwhile.
        self.lock_table(existing.oid, TreeMode::Exclusive).await?;
        Ok(Some(existing))
    }

    /// The text that a view keeps of its query: it means the same to other sessions, and later on.
    fn stored_query(&self, query: &ast::Query, noted: &Noted) -> Result<String> {
        let mut query = pinned(query, &noted.stars);
        let literals = noted.literals.iter().map(|(text, value)| (text.clone(), &value.expr, value.ty));
        self.fix_found(&mut query, &literals.collect::<Vec<_>>(), false)?;
        Ok(query.to_string())
    }

    /// 0A000 for a check option of a view that stands for no table.
    fn check_updatable(&self, view: &Arc<View>) -> Result<()> {
        if view.check_option.is_some()
            && let Err(refusal) = base_table(view, &self.catalog, true)
            && refusal.view == view.name
        {
            let message = "WITH CHECK OPTION is supported only on automatically updatable views";
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message).with_hint(refusal.detail));
        }
        Ok(())
    }

    /// ALTER VIEW ... SET (option, ...).
    pub(super) fn set_view_options(&mut self, relation: &Relation, options: &[ast::SqlOption]) -> Result<()> {
        let Relation::View(view) = relation else { return Err(wrong_type(relation.name(), "view")) };
        let check_option = check_option_in(options)?.or(view.check_option);
        let view = Arc::new(View { check_option, ..View::clone(view) });
        self.check_updatable(&view)?;
        self.change(Object::View(view))
    }

    /// ALTER VIEW ... RESET (option, ...): names that no option has do not matter.
    pub(super) fn reset_view_options(
        &mut self,
        relation: &Relation,
        options: &[ast::SqlOption],
    ) -> Result<()> {
        let Relation::View(view) = relation else { return Err(wrong_type(relation.name(), "view")) };
        let mut view = View::clone(view);
        for option in options {
            let ast::SqlOption::Ident(name) = option else {
                return Err(SqlError::syntax("RESET must not include values for parameters"));
            };
            if fold(name) == "check_option" {
                view.check_option = None;
            }
        }
        self.change(Object::View(view.into()))
    }

    /// Whether a query reads something of the session's temporary objects: a view of it is one of
    /// them.
    fn reads_temporary(&self, query: &ast::Query) -> Result<bool> {
        if self.facts.temporary.schema(&self.catalog).is_none() {
            return Ok(false);
        }
        let (_, depends_on, _) = self.bind_query(query)?;
        let is_temporary = |oid: &u32| {
            let relation = self.catalog.relation_by_oid(*oid);
            let routine = self.catalog.routine_by_oid(*oid);
            relation.is_some_and(Relation::is_temporary)
                || routine.is_some_and(|routine| catalog::is_temporary(&routine.schema_name))
        };
        Ok(depends_on.iter().any(is_temporary))
    }

    /// Where the names of a new view are looked up. Temporary objects that its query does not name
    /// yet it is not to find later either.
    fn view_path(&self, reads_temporary: bool) -> Vec<String> {
        match reads_temporary {
            true => self.facts.binding_path(&self.catalog),
            false => {
                let path = self.facts.named_path(&self.catalog).into_iter();
                path.filter(|schema| !catalog::is_temporary(schema)).collect()
            }
        }
    }

    /// The same as `bind_query`, with all that the query depends on held: it cannot go or change
    /// before the view is there to be asked.
    async fn bind_held(&mut self, query: &ast::Query) -> Result<(Vec<OutputColumn>, Vec<u32>, Noted)> {
        let mut held = BTreeSet::new();
        loop {
            let (_, depends_on, _) = self.bind_query(query)?;
            let new: Vec<u32> = depends_on.into_iter().filter(|oid| !held.contains(oid)).collect();
            if new.is_empty() {
                return self.bind_query(query);
            }
            for oid in new {
                self.hold_from_going(oid).await?;
                held.insert(oid);
            }
        }
    }

    /// A query's output columns, the relations, routines, types of users and primary keys that it
    /// depends on, and what is to be kept of it beside its text.
    fn bind_query(&self, query: &ast::Query) -> Result<(Vec<OutputColumn>, Vec<u32>, Noted)> {
        self.bind(|binder| {
            binder.begin_noting();
            let bound = binder.query(query, false)?;
            let mut relations: Vec<u32> = binder.tables().iter().map(|table| table.oid).collect();
            relations.extend(binder.views());
            relations.extend(binder.routines().iter().map(|body| body.routine.oid));
            relations.extend(binder.user_types());
            let noted = binder.take_noted();
            for oid in &noted.needed {
                if !relations.contains(oid) {
                    relations.push(*oid);
                }
            }
            Ok((bound.columns, relations, noted))
        })
    }

    /// 42501 unless the session may use the schemas that a query names. Who reads the view is not
    /// asked: what it names is known by then.
    fn require_schemas_of(&self, query: &ast::Query) -> Result<()> {
        if self.rights().is_none() {
            return Ok(());
        }
        let (needs, _) = self.bind(|binder| binder.query(query, false).map(|_| binder.needs()))?;
        let mut schemas = needs.iter().filter(|need| need.kind == Securable::Schema);
        schemas.try_for_each(|need| self.require(need.object, need.kind, need.privileges))
    }

    /// Whether the names of a view still fit. An error that says nothing of them, since the
    /// statement is to stop or something is not enough, is no reason to take the view for one that
    /// does not fit: it might be dropped then.
    pub(crate) fn view_fits(&self, view: &View) -> Result<bool> {
        let Err(error) = self.bind_view(view) else { return Ok(true) };
        if error.is_of_circumstances() { Err(error) } else { Ok(false) }
    }

    /// The columns that the NATURAL JOINs of views over a relation compare, with the views' oids.
    pub(super) fn natural_over(&self, relation: Oid) -> Result<Vec<(Oid, Vec<String>)>> {
        let mut found = Vec::new();
        for view in self.catalog.views().filter(|view| view.depends_on.contains(&relation)) {
            if view.query.contains("NATURAL") && self.view_fits(view)? {
                found.push((view.oid, self.bind_view(view)?));
            }
        }
        Ok(found)
    }

    /// Whether a view still binds: 42703 and the like if not. What its NATURAL JOINs compare.
    pub(super) fn bind_view(&self, view: &View) -> Result<Vec<String>> {
        let statement = parse_single(&view.query)?;
        let Some(Command::Sql(sql)) = statement.as_ref().map(|statement| &statement.command) else {
            return Err(SqlError::internal(format!("view \"{}\" is no query", view.name)));
        };
        match sql.as_ref() {
            ast::Statement::Query(query) => self.bind(|binder| {
                binder.query_of_view(view, query)?;
                Ok(binder.natural_columns().to_vec())
            }),
            _ => Err(SqlError::internal(format!("view \"{}\" is no query", view.name))),
        }
    }
}

fn refuse(statement: &ast::CreateView) -> Result<()> {
    let clauses = [
        (statement.materialized, "CREATE MATERIALIZED VIEW"),
        (statement.if_not_exists, "CREATE VIEW IF NOT EXISTS"),
        (statement.to.is_some() || statement.params.is_some(), "this form of CREATE VIEW"),
    ];
    match clauses.iter().find(|(present, _)| *present) {
        Some((_, clause)) => Err(SqlError::unsupported(clause)),
        None => Ok(()),
    }
}

/// The options of CREATE VIEW, WITH CHECK OPTION among them. 22023, 0A000.
fn check_option(options: &ast::CreateTableOptions) -> Result<Option<CheckOption>> {
    match options {
        ast::CreateTableOptions::None => Ok(None),
        ast::CreateTableOptions::With(options) => check_option_in(options),
        _ => Err(SqlError::unsupported("CREATE VIEW ... WITH")),
    }
}

/// The check option among a view's options, of which there is no other yet. 22023, 0A000.
fn check_option_in(options: &[ast::SqlOption]) -> Result<Option<CheckOption>> {
    let invalid = |message: String| SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message);
    let mut found = None;
    for option in options {
        let (name, value) = match option {
            ast::SqlOption::KeyValue { key, value } => (fold(key), option_value(value)),
            ast::SqlOption::Ident(key) => (fold(key), "true".to_owned()),
            _ => return Err(SqlError::unsupported("this option of a view")),
        };
        match name.as_str() {
            "check_option" if found.is_some() => {
                return Err(invalid(format!("parameter \"{name}\" specified more than once")));
            }
            "check_option" => {}
            "security_barrier" | "security_invoker" => {
                return Err(SqlError::unsupported(format_args!("the option \"{name}\" of a view")));
            }
            _ => return Err(invalid(format!("unrecognized parameter \"{name}\""))),
        }
        let known = [CheckOption::Local, CheckOption::Cascaded];
        let meant = known.into_iter().find(|known| known.word().eq_ignore_ascii_case(&value));
        found = Some(meant.ok_or_else(|| {
            invalid(format!("invalid value for enum option \"check_option\": {value}"))
                .with_detail("Valid values are \"local\" and \"cascaded\".")
        })?);
    }
    Ok(found)
}

/// The value of an option as its text.
fn option_value(value: &ast::Expr) -> String {
    match value {
        ast::Expr::Identifier(word) => fold(word),
        other => other.to_string().trim_matches('\'').to_owned(),
    }
}

fn view_columns(columns: Vec<OutputColumn>, names: &[ast::ViewColumnDef]) -> Result<Vec<Column>> {
    if names.len() > columns.len() {
        return Err(SqlError::syntax("CREATE VIEW specifies more column names than columns"));
    }
    let mut made: Vec<Column> = Vec::with_capacity(columns.len());
    for (at, output) in columns.into_iter().enumerate() {
        let name = names.get(at).map_or(output.name, |definition| fold(&definition.name));
        if made.iter().any(|column| column.name == name) {
            return Err(SqlError::new(
                sqlstate::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
        made.push(Column {
            name,
            ty: output.ty,
            collation: None,
            not_null: false,
            default: None,
            identity: None,
            generated: None,
            sequence: None,
            dropped: false,
            missing: Datum::Null,
            comment: None,
        });
    }
    Ok(made)
}

/// OR REPLACE may only add columns at the end.
fn check_replacement(before: &View, columns: &[Column], format: &FormatContext) -> Result<()> {
    let refuse = |message: String| Err(SqlError::new(sqlstate::INVALID_TABLE_DEFINITION, message));
    if columns.len() < before.columns.len() {
        return refuse("cannot drop columns from view".to_owned());
    }
    for (old, new) in before.columns.iter().zip(columns) {
        if old.name != new.name {
            return refuse(format!("cannot change name of view column \"{}\" to \"{}\"", old.name, new.name));
        }
        if old.ty != new.ty {
            return refuse(format!(
                "cannot change data type of view column \"{}\" from {} to {}",
                old.name,
                old.ty.format_with(format),
                new.ty.format_with(format)
            ));
        }
    }
    Ok(())
}
