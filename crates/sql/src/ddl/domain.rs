//! CREATE DOMAIN and ALTER DOMAIN (of what else concerns types of users: `user_type`).
//!
//! A new rule for a domain's values is asked of all columns of it, and of domains over it. Who
//! makes one takes the names of these domains, so that no other column gets them, and then their
//! tables, exclusively; and makes the tables' definitions anew, so that whoever used them has to
//! see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::drop::{depend, describe};
use super::names::{Qualified, make_up};
use super::resolve::undefined_schema;
use super::sequence::sequences_in;
use super::user_type::{describe_type, duplicate_type};
use crate::bind::{Clause, refuse_subquery, resolve_type};
use crate::catalog::{Domain, DomainCheck, Object, Oid, Table, UserType};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Env, Execution, Expr, Runtime};
use crate::identifier::fold;
use crate::parse::{DomainChange, DomainClause, DomainStatement};
use crate::session::work::Work;
use crate::types::cast::CastContext;
use crate::types::{Datum, DomainUse, Type, TypeId};

/// 42601, 42P17 or 0A000 for a constraint that domains cannot have.
fn impossible(words: &str) -> SqlError {
    match words {
        "NO INHERIT" => SqlError::new(
            sqlstate::INVALID_OBJECT_DEFINITION,
            "check constraints for domains cannot be marked NO INHERIT",
        ),
        "DEFERRABLE" => SqlError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            "specifying constraint deferrability not supported for domains",
        ),
        words => SqlError::syntax(format!("{words} constraints not possible for domains")),
    }
}

fn undefined_constraint(name: &str, domain: &str) -> SqlError {
    let message = format!("constraint \"{name}\" of domain \"{domain}\" does not exist");
    SqlError::new(sqlstate::UNDEFINED_OBJECT, message)
}

fn duplicate_constraint(name: &str, domain: &str) -> SqlError {
    let message = format!("constraint \"{name}\" for domain \"{domain}\" already exists");
    SqlError::new(sqlstate::DUPLICATE_OBJECT, message)
}

/// A rule that the values there are must meet.
enum Rule {
    NotNull,
    Check(Expr),
}

impl Work<'_> {
    /// CREATE, ALTER, DROP DOMAIN.
    pub(crate) async fn domain_statement(&mut self, statement: &DomainStatement) -> Result<()> {
        match statement {
            DomainStatement::Create { name, data_type, clauses } => {
                self.create_domain(name, data_type, clauses).await
            }
            DomainStatement::Alter { name, change } => self.alter_domain(name, change).await,
            DomainStatement::Drop { names, if_exists, cascade } => {
                self.drop_types(super::user_type::Dropped::Domains, names, *if_exists, *cascade).await
            }
            DomainStatement::CommentOnConstraint { constraint, domain, comment } => {
                let domain = self.locked_domain(domain).await?;
                self.require_type_owner(&UserType::Domain(domain.clone()))?;
                let mut domain = Domain::clone(&domain);
                let name = fold(constraint);
                let missing = self.no_constraint(&name, &domain);
                let check = domain.checks.iter_mut().find(|check| check.name == name).ok_or(missing)?;
                check.comment = comment.clone().filter(|comment| !comment.is_empty());
                self.change(Object::Domain(domain.into()))
            }
        }
    }

    /// COMMENT ON DOMAIN.
    pub(super) async fn comment_on_domain(
        &mut self,
        name: &ast::ObjectName,
        comment: Option<String>,
    ) -> Result<()> {
        let domain = self.locked_domain(name).await?;
        self.require_type_owner(&UserType::Domain(domain.clone()))?;
        self.change(Object::Domain(Domain { comment, ..Domain::clone(&domain) }.into()))
    }

    /// 42704, where PostgreSQL does not quote the domain.
    fn no_constraint(&self, name: &str, domain: &Domain) -> SqlError {
        let shown = domain.ty().format_with(self.format);
        let message = format!("constraint \"{name}\" for domain {shown} does not exist");
        SqlError::new(sqlstate::UNDEFINED_OBJECT, message)
    }

    async fn create_domain(
        &mut self,
        name: &ast::ObjectName,
        data_type: &ast::DataType,
        clauses: &[DomainClause],
    ) -> Result<()> {
        let name = Qualified::from_object_name(name)?;
        let schema = self.creation_schema(&name, false)?;
        if schema.home.is_some() {
            return Err(SqlError::unsupported("CREATE DOMAIN in a schema of temporary objects"));
        }
        self.require_usage_for_type(data_type)?;
        let base = resolve_type(data_type, self.format)?;
        if base.id.is_pseudo() || base.id == TypeId::Unknown {
            let message = format!("\"{}\" is not a valid base type for a domain", base.id.sql_name());
            return Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message));
        }
        self.hold_types(&[base]).await?;
        self.claim_type_name(&schema, &name.name).await?;
        let mut domain = Domain {
            oid: self.allocate_pair()?,
            schema: schema.oid,
            schema_name: schema.name.clone(),
            name: name.name,
            base,
            not_null: false,
            default: None,
            checks: Vec::new(),
            comment: None,
        };
        let (mut not_null, mut default) = (None, None);
        for clause in clauses {
            match clause {
                DomainClause::Default(_) if default.is_some() => {
                    return Err(SqlError::syntax("multiple default expressions"));
                }
                DomainClause::Default(expression) => default = Some(expression),
                DomainClause::NotNull | DomainClause::Null => {
                    let wanted = matches!(clause, DomainClause::NotNull);
                    if not_null.is_some_and(|known| known != wanted) {
                        return Err(SqlError::syntax("conflicting NULL/NOT NULL constraints"));
                    }
                    not_null = Some(wanted);
                }
                DomainClause::Check(..) => {}
                DomainClause::Impossible(words) => return Err(impossible(words)),
            }
        }
        domain.not_null = not_null == Some(true);
        domain.default = match default {
            Some(expression) => self.domain_default(&domain, expression).await?,
            None => {
                let under = base.domain_oid().and_then(|oid| self.catalog.domain_by_oid(oid));
                under.and_then(|under| under.default.clone())
            }
        };
        for clause in clauses {
            if let DomainClause::Check(name, expression) = clause {
                let (check, _) = self.new_check(&domain, name.as_ref().map(fold), expression).await?;
                domain.add(check);
            }
        }
        self.change(Object::Domain(domain.into()))
    }

    /// The text a DEFAULT is stored as, once it is known to fit. NULL is no default.
    async fn domain_default(&mut self, domain: &Domain, default: &ast::Expr) -> Result<Option<String>> {
        self.hold_named(default).await?;
        let bound = self.bind(|binder| {
            binder.push_level();
            let bound = binder.in_clause(Clause::Default, |binder| {
                let typed = binder.expression(default).map_err(|error| match error.sqlstate {
                    sqlstate::UNDEFINED_COLUMN => SqlError::new(
                        sqlstate::FEATURE_NOT_SUPPORTED,
                        "cannot use column reference in DEFAULT expression",
                    ),
                    _ => error,
                })?;
                refuse_subquery(&typed.expr, "DEFAULT expression")?;
                let from = typed.ty;
                // Whether it is too long is found out where it is used, as in PostgreSQL.
                let base = domain.base.parameter();
                let fits = binder.coerce_unchecked(typed, base, CastContext::Assignment)?;
                fits.ok_or_else(|| binder.unlike_column(&domain.name, domain.base, from))
            });
            binder.pop_level()?;
            bound
        })?;
        if matches!(&bound.expr, Expr::Constant(value) if value.is_null()) {
            return Ok(None);
        }
        let mut default = default.clone();
        self.fix_times(&mut default, &bound.expr)?;
        self.qualify_types(&mut default)?;
        Ok(Some(self.fix_sequences(&default.to_string())?))
    }

    /// A new CHECK constraint, with a name if it was given none, and its condition.
    async fn new_check(
        &mut self,
        domain: &Domain,
        name: Option<String>,
        syntax: &ast::Expr,
    ) -> Result<(DomainCheck, Expr)> {
        if let Some(name) = name.as_deref().filter(|name| domain.check(name).is_some()) {
            return Err(duplicate_constraint(name, &domain.name));
        }
        self.hold_named(syntax).await?;
        let search_path = self.facts.named_path(&self.catalog);
        let bound = self.bind(|binder| binder.domain_condition(domain.base, &search_path, syntax))?;
        let name = name.unwrap_or_else(|| {
            make_up(&domain.name, "", "check", |name| {
                domain.check(name).is_some() || self.is_constraint_beside(domain.schema, domain.oid, name)
            })
        });
        let mut syntax = syntax.clone();
        self.fix_times(&mut syntax, &bound)?;
        self.qualify_types(&mut syntax)?;
        let check = DomainCheck {
            oid: self.allocate_oid()?,
            name,
            expression: syntax.to_string(),
            search_path,
            not_valid: false,
            comment: None,
        };
        Ok((check, bound))
    }

    /// The domain of this name, its name locked. 42809 if it is none.
    async fn locked_domain(&mut self, name: &ast::ObjectName) -> Result<Arc<Domain>> {
        let not =
            |name: String| Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("{name} is not a domain")));
        let qualified = Qualified::from_object_name(name)?;
        match self.locked_type(&qualified).await {
            Ok(UserType::Domain(domain)) => Ok(domain),
            Ok(UserType::Enum(ty)) => not(Type::of_enum(ty.oid).format_with(self.format)),
            Err(error) => match TypeId::from_name(&qualified.name) {
                Some(id) if qualified.schema.as_deref().is_none_or(|schema| schema == "pg_catalog") => {
                    not(id.sql_name().to_owned())
                }
                _ => Err(error),
            },
        }
    }

    async fn alter_domain(&mut self, name: &ast::ObjectName, change: &DomainChange) -> Result<()> {
        let known = self.locked_domain(name).await?;
        self.require_type_owner(&UserType::Domain(known.clone()))?;
        let mut domain = Domain::clone(&known);
        match change {
            DomainChange::Default(default) => {
                domain.default = match default {
                    Some(expression) => self.domain_default(&domain, expression).await?,
                    None => None,
                };
            }
            DomainChange::NotNull(not_null) if domain.not_null == *not_null => return Ok(()),
            DomainChange::NotNull(false) => domain.not_null = false,
            DomainChange::NotNull(true) => {
                self.enforce(&domain, Some(&Rule::NotNull)).await?;
                domain.not_null = true;
            }
            DomainChange::Add { name, expression, not_valid } => {
                let name = name.as_ref().map(fold);
                let (mut check, condition) = self.new_check(&domain, name, expression).await?;
                check.not_valid = *not_valid;
                let rule = Rule::Check(condition);
                self.enforce(&domain, Some(&rule).filter(|_| !not_valid)).await?;
                domain.add(check);
            }
            DomainChange::Impossible(words) => return Err(impossible(words)),
            DomainChange::Drop { name, if_exists } => {
                let name = fold(name);
                if domain.check(&name).is_none() {
                    let error = undefined_constraint(&name, &domain.name);
                    if !if_exists {
                        return Err(error);
                    }
                    self.notice(SqlError::notice(format!("{}, skipping", error.message)));
                    return Ok(());
                }
                domain.checks.retain(|check| check.name != name);
            }
            DomainChange::RenameConstraint { name, new } => {
                self.rename_domain_constraint(&mut domain, &fold(name), fold(new))?;
            }
            DomainChange::Validate(name) => {
                return self.validate_domain_constraint(domain, &fold(name)).await;
            }
            DomainChange::Rename(new) => return self.rename_domain(&known, fold(new)).await,
            DomainChange::Schema(schema) => return self.move_domain(&known, fold(schema)).await,
        }
        self.change(Object::Domain(domain.into()))
    }

    /// VALIDATE CONSTRAINT.
    async fn validate_domain_constraint(&mut self, mut domain: Domain, name: &str) -> Result<()> {
        let place = domain.checks.iter().position(|check| check.name == name);
        let place = place.ok_or_else(|| undefined_constraint(name, &domain.name))?;
        let check = domain.checks[place].clone();
        if !check.not_valid {
            return Ok(());
        }
        let syntax = crate::parse::parse_expression(&check.expression)?;
        let (base, path) = (domain.base, &check.search_path);
        let rule = Rule::Check(self.bind(|binder| binder.domain_condition(base, path, &syntax))?);
        self.enforce(&domain, Some(&rule)).await?;
        domain.checks[place].not_valid = false;
        self.change(Object::Domain(domain.into()))
    }

    /// SET SCHEMA.
    async fn move_domain(&mut self, domain: &Arc<Domain>, new: String) -> Result<()> {
        let schema = self.catalog.schema(&new).cloned().ok_or_else(|| undefined_schema(&new))?;
        if schema.oid == domain.schema {
            return Ok(());
        }
        let name = domain.name.clone();
        let target = self.creation_schema(&Qualified::within(&new, &name), false)?;
        if target.home.is_some() {
            return Err(SqlError::unsupported("ALTER DOMAIN ... SET SCHEMA to one of temporary objects"));
        }
        self.claim_type_name(&schema, &domain.name).await.map_err(|error| match error.sqlstate {
            sqlstate::DUPLICATE_OBJECT => {
                let message = format!("{} in schema \"{}\"", error.message, schema.name);
                SqlError::new(sqlstate::DUPLICATE_OBJECT, message)
            }
            _ => error,
        })?;
        let ty = UserType::Domain(domain.clone());
        let what = "ALTER DOMAIN ... SET SCHEMA";
        self.refuse_mentioned(&ty, &domain.name, what)?;
        let (schema, schema_name) = (schema.oid, schema.name.clone());
        let before = self.catalog.clone();
        self.change(Object::Domain(Domain { schema, schema_name, ..Domain::clone(domain) }.into()))?;
        self.follow_type(&before, &domain.name, what).await
    }

    /// RENAME TO.
    pub(super) async fn rename_domain(&mut self, domain: &Arc<Domain>, new: String) -> Result<()> {
        let schema = self.schema_of(domain.schema)?;
        self.claim_type_name(&schema, &new).await.map_err(|error| match error.sqlstate {
            sqlstate::DUPLICATE_OBJECT => duplicate_type(&new),
            _ => error,
        })?;
        let ty = UserType::Domain(domain.clone());
        let what = "ALTER DOMAIN ... RENAME TO";
        self.refuse_mentioned(&ty, &domain.name, what)?;
        let before = self.catalog.clone();
        self.change(Object::Domain(Domain { name: new, ..Domain::clone(domain) }.into()))?;
        self.follow_type(&before, &domain.name, what).await
    }

    fn rename_domain_constraint(&self, domain: &mut Domain, name: &str, new: String) -> Result<()> {
        let Some(mut check) = domain.check(name).cloned() else {
            return Err(self.no_constraint(name, domain));
        };
        if domain.check(&new).is_some() {
            let shown = domain.ty().format_with(self.format);
            let message = format!("constraint \"{new}\" for domain {shown} already exists");
            return Err(SqlError::new(sqlstate::DUPLICATE_OBJECT, message));
        }
        domain.checks.retain(|check| check.name != name);
        check.name = new;
        domain.add(check);
        Ok(())
    }

    /// Takes everything that has values of a domain, and sees that they meet a new rule, if one is
    /// given. 23502, 23514; 0A000 if arrays of the domain are stored.
    async fn enforce(&mut self, domain: &Domain, rule: Option<&Rule>) -> Result<()> {
        let mut locked = vec![domain.oid];
        loop {
            let over = self.domains_over(domain.oid);
            let new: Vec<Oid> = over.into_iter().filter(|oid| !locked.contains(oid)).collect();
            if new.is_empty() {
                break;
            }
            for oid in new {
                if let Some(found) = self.catalog.domain_by_oid(oid).cloned() {
                    self.lock_name(found.schema, &found.name).await?;
                }
                locked.push(oid);
            }
        }
        // What was there before a wait may have changed.
        let mut held = Vec::new();
        loop {
            let columns = self.columns_of(domain, &locked, rule.is_some())?;
            let new: Vec<Oid> = columns.keys().filter(|oid| !held.contains(*oid)).copied().collect();
            if new.is_empty() {
                break;
            }
            for oid in new {
                self.lock_table(oid, TreeMode::Exclusive).await?;
                held.push(oid);
            }
        }
        for (oid, places) in self.columns_of(domain, &locked, rule.is_some())? {
            let table = self.table_copy(oid)?;
            if let Some(rule) = rule {
                self.enforce_in_table(&table, &places, rule)?;
            }
            self.change(Object::Table(table.into()))?;
        }
        Ok(())
    }

    /// A domain, and those over it.
    fn domains_over(&self, oid: Oid) -> Vec<Oid> {
        let mut found = vec![oid];
        let mut at = 0;
        while let Some(under) = found.get(at).copied() {
            at += 1;
            let over = self.catalog.domains().filter(|domain| domain.base.domain_oid() == Some(under));
            found.extend(over.map(|domain| domain.oid));
        }
        found
    }

    /// The columns of these domains by table. 0A000 if one is of arrays of them, where that counts.
    fn columns_of(
        &self,
        domain: &Domain,
        oids: &[Oid],
        arrays_count: bool,
    ) -> Result<BTreeMap<Oid, Vec<usize>>> {
        let mut columns: BTreeMap<Oid, Vec<usize>> = BTreeMap::new();
        for table in self.catalog.tables() {
            for (place, column) in table.visible_columns() {
                match column.ty.domain {
                    DomainUse::Value(oid) if oids.contains(&oid) => {
                        columns.entry(table.oid).or_default().push(place);
                    }
                    _ if arrays_count && self.has_elements_of(column.ty, oids) => {
                        let message = format!(
                            "cannot alter type \"{}\" because column \"{}.{}\" uses it",
                            domain.name, table.name, column.name
                        );
                        return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
                    }
                    _ => {}
                }
            }
        }
        Ok(columns)
    }

    /// Whether a type, or the one under it, is an array of one of these domains.
    fn has_elements_of(&self, ty: Type, oids: &[Oid]) -> bool {
        let mut ty = ty;
        loop {
            match ty.domain {
                DomainUse::None => return false,
                DomainUse::Elements(oid) => return oids.contains(&oid),
                DomainUse::Value(oid) => match self.catalog.domain_by_oid(oid) {
                    Some(domain) => ty = domain.base,
                    None => return false,
                },
            }
        }
    }

    /// 2BP01 if the default of a domain that stays takes values of a sequence that goes; 0A000 if
    /// the domain is to go with it, and all columns of the domain.
    pub(super) fn refuse_defaults_of_domains(&self, gone: &BTreeSet<Oid>, cascade: bool) -> Result<()> {
        for domain in self.catalog.domains().filter(|domain| !gone.contains(&domain.oid)) {
            let mut used = domain.default.as_deref().into_iter().flat_map(sequences_in);
            let used = used.find(|sequence| gone.contains(sequence));
            let Some(sequence) = used.and_then(|oid| self.catalog.relation_by_oid(oid)) else { continue };
            let ty = describe_type(self, &UserType::Domain(domain.clone()));
            let sequence = describe(self, sequence);
            if cascade {
                let what = format!("DROP ... CASCADE where the default of {ty} takes values of {sequence}");
                return Err(SqlError::unsupported(what));
            }
            return Err(depend(&sequence, &[(ty, sequence.clone())]));
        }
        Ok(())
    }

    fn enforce_in_table(&mut self, table: &Table, places: &[usize], rule: &Rule) -> Result<()> {
        let broken = |place: usize| {
            let column = &table.columns[place].name;
            let (state, what) = match rule {
                Rule::NotNull => (sqlstate::NOT_NULL_VIOLATION, "null values"),
                Rule::Check(_) => (sqlstate::CHECK_VIOLATION, "values that violate the new constraint"),
            };
            SqlError::new(state, format!("column \"{column}\" of table \"{}\" contains {what}", table.name))
                .with_table(&table.schema_name, &table.name)
                .with_column(column)
        };
        self.for_each_row(table, |work, _, row| {
            for &place in places {
                let value = &row[place];
                let meets = match rule {
                    Rule::NotNull => !value.is_null(),
                    Rule::Check(condition) => work.holds_of(condition, value)?,
                };
                if !meets {
                    return Err(broken(place));
                }
            }
            Ok(())
        })
    }

    /// Whether a condition does not fail of a value.
    fn holds_of(&self, condition: &Expr, value: &Datum) -> Result<bool> {
        self.read(|read| {
            let runtime = Runtime::default();
            let execution = Execution { read, parameters: &[], runtime: &runtime };
            let truth = condition.eval(&Env::new(std::slice::from_ref(value), execution))?;
            Ok(truth.as_bool() != Some(false))
        })
    }
}
