//! Domains: what a value must meet to become one of a domain.
//!
//! Expressions compute with the type under a domain. Where a cast makes a value one of the domain,
//! [`coerce`](Binder::coerce) puts its constraints around the expression; what goes into a column
//! is tested with the whole row instead (`oltp/run`).
//!
//! The constraints are bound here once for each statement, over a frame whose only place is VALUE,
//! in the surroundings of their definition.

use std::sync::Arc;

use sqlparser::ast;

use super::{Binder, Clause, VirtualTable, refuse_subquery};
use crate::catalog::{Domain, Oid};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{DomainCheck, Expr, ReadContext};
use crate::parse::parse_expression;
use crate::types::cast::CastContext;
use crate::types::{Datum, DomainUse, Type, TypeId};

/// The row that the constraints of a domain see.
struct ValueRow([(&'static str, Type); 1]);

impl VirtualTable for ValueRow {
    fn oid(&self) -> u32 {
        0
    }

    fn schema(&self) -> &str {
        ""
    }

    fn name(&self) -> &str {
        "value"
    }

    fn columns(&self) -> &[(&'static str, Type)] {
        &self.0
    }

    fn rows(&self, _: &ReadContext<'_>) -> Result<Vec<Vec<Datum>>> {
        Err(SqlError::internal("the value of a domain was read like a table"))
    }
}

fn too_deep() -> SqlError {
    SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .with_detail("A constraint of a domain uses the domain itself.")
}

impl Binder<'_> {
    /// What values of a type must meet; none if those of the type under it all do.
    pub(crate) fn domain_check(&mut self, ty: Type) -> Result<Option<Arc<DomainCheck>>> {
        match ty.domain {
            DomainUse::None => Ok(None),
            DomainUse::Value(oid) => self.check_of_domain(oid),
            DomainUse::Elements(oid) => Ok(self.check_of_domain(oid)?.map(|check| {
                let (schema, name, shown) = (String::new(), String::new(), String::new());
                let (not_null, constraints) = (false, Vec::new());
                Arc::new(DomainCheck { schema, name, shown, not_null, constraints, elements: Some(check) })
            })),
        }
    }

    fn check_of_domain(&mut self, oid: Oid) -> Result<Option<Arc<DomainCheck>>> {
        if let Some((_, known)) = self.domains.iter().find(|(known, _)| *known == oid) {
            // One that is not bound yet is being bound further out.
            return known.clone().ok_or_else(too_deep).map(|check| Some(check).filter(|c| !c.is_empty()));
        }
        let place = self.domains.len();
        self.domains.push((oid, None));
        let bound = self.bind_domain(oid);
        // Those that were bound meanwhile stay behind it.
        match bound {
            Ok(check) => {
                let check = Arc::new(check);
                self.domains[place].1 = Some(check.clone());
                Ok(Some(check).filter(|check| !check.is_empty()))
            }
            Err(error) => {
                self.domains.truncate(place);
                Err(error)
            }
        }
    }

    fn bind_domain(&mut self, oid: Oid) -> Result<DomainCheck> {
        // From the domain down to the type under all of them.
        let mut chain: Vec<Arc<Domain>> = Vec::new();
        let mut next = Some(oid);
        while let Some(oid) = next {
            let domain = self.context.catalog.domain_by_oid(oid);
            let domain = domain.ok_or_else(|| SqlError::internal(format!("domain {oid} does not exist")))?;
            next = domain.base.domain_oid();
            chain.push(domain.clone());
        }
        let elements = match chain.last().map(|domain| domain.base) {
            Some(Type { domain: DomainUse::Elements(oid), .. }) => self.check_of_domain(oid)?,
            _ => None,
        };
        let mut constraints = Vec::new();
        for domain in chain.iter().rev() {
            for check in &domain.checks {
                let syntax = parse_expression(&check.expression)?;
                let bound = self.domain_condition(domain.base, &check.search_path, &syntax)?;
                constraints.push((check.name.clone(), bound));
            }
        }
        let objects = self.context.eval.format.objects.as_deref();
        let domain = &chain[0];
        Ok(DomainCheck {
            schema: domain.schema_name.clone(),
            name: domain.name.clone(),
            shown: objects.and_then(|o| o.type_name(oid)).unwrap_or_else(|| domain.name.clone()),
            not_null: chain.iter().any(|domain| domain.not_null),
            constraints,
            elements,
        })
    }

    /// A condition over VALUE, which is of this type. 42804 if it is not boolean.
    pub(crate) fn domain_condition(
        &mut self,
        base: Type,
        search_path: &[String],
        syntax: &ast::Expr,
    ) -> Result<Expr> {
        self.noted_condition(base, search_path, syntax).map(|(bound, _)| bound)
    }

    /// The oids of the types of users that a condition over VALUE names.
    pub(crate) fn types_of_condition(
        &mut self,
        base: Type,
        search_path: &[String],
        syntax: &ast::Expr,
    ) -> Result<Vec<u32>> {
        self.noted_condition(base, search_path, syntax).map(|(_, named)| named)
    }

    /// A condition over VALUE, and the oids of the types of users that it names.
    fn noted_condition(
        &mut self,
        base: Type,
        search_path: &[String],
        syntax: &ast::Expr,
    ) -> Result<(Expr, Vec<u32>)> {
        let search_path = std::mem::replace(&mut self.search_path, search_path.to_vec());
        let barrier = std::mem::replace(&mut self.barrier, self.levels.len());
        let ctes = std::mem::take(&mut self.ctes);
        let positions = std::mem::replace(&mut self.positions, false);
        let scope = self.scope.take();
        // What a constraint needs, the domain depends on, not who uses the domain.
        let noting = self.noting.take();
        let before = self.user_types.len();
        let bound = self.condition_over_value(base, syntax);
        let named = self.user_types.split_off(before);
        (self.search_path, self.barrier, self.ctes) = (search_path, barrier, ctes);
        (self.positions, self.scope, self.noting) = (positions, scope, noting);
        Ok((bound?, named))
    }

    fn condition_over_value(&mut self, base: Type, syntax: &ast::Expr) -> Result<Expr> {
        self.push_level();
        let row = Arc::new(ValueRow([("value", base)]));
        let bound = self.computed(row, "value", None, false).and_then(|(tree, names)| {
            let level = self.level()?;
            level.select.from.push(tree);
            level.namespace.extend(names)?;
            level.slot(0, 0);
            self.in_clause(Clause::Check, |binder| {
                let typed = binder.expression(syntax)?;
                let from = typed.ty;
                let coerced = binder.coerce(typed, Type::new(TypeId::Bool), CastContext::Implicit)?;
                coerced.map(|typed| typed.expr).ok_or_else(|| {
                    let message =
                        format!("argument of CHECK must be type boolean, not type {}", from.id.sql_name());
                    SqlError::new(sqlstate::DATATYPE_MISMATCH, message)
                })
            })
        });
        self.pop_level()?;
        let bound = bound?;
        refuse_subquery(&bound, "check constraint")?;
        if bound.any(&mut |expr| matches!(expr, Expr::Parameter(_))) {
            return Err(SqlError::new(sqlstate::UNDEFINED_PARAMETER, "there is no parameter $1"));
        }
        Ok(bound)
    }
}
