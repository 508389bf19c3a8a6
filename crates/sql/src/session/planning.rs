//! Preparing statements: from text to [`Prepared`], and planning again when the catalog has
//! changed.

use std::sync::Arc;

use sqlparser::ast;

use super::gathering::Sizes;
use super::interrupt;
use super::plan_cache::Key;
use super::portal::changed_result;
use super::routine::CallPlan;
use super::statement::tag;
use super::{Action, Block, OutputColumn, Planned, Prepared, Session, Statement};
use crate::bind::{
    BindContext, Binder, Called, Clause, NoRowCounts, RowCounts, WithoutIndexes, refuse_subquery,
};
use crate::catalog::{Catalog, Oid, Relation};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{NoReader, ReadContext};
use crate::function::EvalContext;
use crate::oltp::source::WithQueries;
use crate::oltp::{delete, insert, parts, update};
use crate::parse::{self, Command};
use crate::pg_catalog::SystemTables;
use crate::plan;
use crate::types::{Datum, Type, TypeId, bounds};

/// What runs, and the columns it gives.
type Bound = (Action, Option<Vec<OutputColumn>>);

fn plan_insert(
    binder: &mut Binder<'_>,
    insert: &ast::Insert,
    statement: &Statement,
    with: WithQueries<'_>,
) -> Result<Bound> {
    let plan = insert::bind(binder, insert, statement.overriding(&insert.insert_token), with)?;
    binder.check_volatile_reads(&plan.table)?;
    let columns = plan.returning.as_ref().map(|returning| returning.columns.clone());
    Ok((Action::Insert(plan), columns))
}

fn plan_update(binder: &mut Binder<'_>, update: &ast::Update, with: WithQueries<'_>) -> Result<Bound> {
    let plan = update::bind(binder, update, with)?;
    binder.check_volatile_reads(&plan.target.table)?;
    let columns = plan.returning.as_ref().map(|returning| returning.columns.clone());
    Ok((Action::Update(plan), columns))
}

fn plan_delete(binder: &mut Binder<'_>, delete: &ast::Delete, with: WithQueries<'_>) -> Result<Bound> {
    let plan = delete::bind(binder, delete, with)?;
    binder.check_volatile_reads(&plan.target.table)?;
    let columns = plan.returning.as_ref().map(|returning| returning.columns.clone());
    Ok((Action::Delete(plan), columns))
}

fn plan_query(binder: &mut Binder<'_>, query: &ast::Query) -> Result<Bound> {
    let bound = binder.query(query, false)?;
    let (columns, types) = (bound.columns.clone(), binder.parameter_types()?);
    let tables = binder.tables().to_vec();
    let mut plan = plan::plan(bound, binder.cte_count(), types, tables, binder.context.row_counts)?;
    plan.routines = binder.routines().to_vec();
    Ok((Action::Select(Arc::new(plan)), Some(columns)))
}

fn plan_call(binder: &Binder<'_>, mut called: Called) -> Result<Bound> {
    let columns = called.columns.take();
    Ok((Action::Call(CallPlan::new(binder, called)?), columns))
}

/// Whether a statement is one in parts, whatever stands in it.
fn is_in_parts(sql: &ast::Statement) -> bool {
    match sql {
        ast::Statement::Merge(_) => true,
        ast::Statement::Query(query) => {
            let with = query.with.iter().flat_map(|with| &with.cte_tables);
            matches!(*query.body, ast::SetExpr::Merge(_))
                || with.into_iter().any(|cte| parse::changes_rows(&cte.query.body))
        }
        _ => false,
    }
}

/// Binds and plans a statement as a whole; none if it is one without a plan.
fn plan_whole(binder: &mut Binder<'_>, sql: &ast::Statement, statement: &Statement) -> Result<Option<Bound>> {
    let alone = WithQueries::default;
    let bound = match sql {
        ast::Statement::Insert(insert) => plan_insert(binder, insert, statement, alone())?,
        ast::Statement::Update(update) => plan_update(binder, update, alone())?,
        ast::Statement::Delete(delete) => plan_delete(binder, delete, alone())?,
        ast::Statement::Call(call) => {
            let called = binder.procedure_call(call)?;
            plan_call(binder, called)?
        }
        ast::Statement::Query(query) => {
            let with = WithQueries { own: query.with.as_ref(), given: Vec::new() };
            match query.body.as_ref() {
                ast::SetExpr::Insert(ast::Statement::Insert(insert)) => {
                    plan_insert(binder, insert, statement, with)?
                }
                ast::SetExpr::Update(ast::Statement::Update(update)) => plan_update(binder, update, with)?,
                ast::SetExpr::Delete(ast::Statement::Delete(delete)) => plan_delete(binder, delete, with)?,
                _ => match binder.function_alone(query)? {
                    Some(called) => plan_call(binder, called)?,
                    None => plan_query(binder, query)?,
                },
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(bound))
}

impl Session {
    /// Prepares the single statement of `text` (or none: an empty query). `parameter_oids` gives
    /// types by oid, 0 or absent where the server is to infer one.
    pub fn prepare(&mut self, text: &str, parameter_oids: &[u32]) -> Result<Arc<Prepared>> {
        self.take_over_settings();
        self.begin_statement();
        let catalog = self.facts.catalog();
        let declared = declared_types(parameter_oids, &catalog)?;
        let (search_path, namespace) =
            (self.facts.plan_path(&self.effective.search_path, &catalog), self.facts.temporary.namespace());
        let key = Key { text, declared: &declared, search_path: &search_path, namespace };
        if let Some(found) = self.database.plans().get(key) {
            self.check_not_failed(found.statement())?;
            if self.fits(&found.planned()) {
                return Ok(found);
            }
        }
        self.interrupts.make_way();
        interrupt::step_aside_for(text);
        let statement = parse::parse_single_within(text, || self.limits())?;
        self.check_not_failed(statement.as_ref())?;
        let prepared = Arc::new(self.plan_prepared(statement, declared.clone())?);
        let planned = prepared.planned();
        if planned.has_plan() && !planned.calls_unbound() && self.own_catalog_is_empty() {
            self.database.plans().put(key, &prepared, self.database.plans_budget());
        }
        Ok(prepared)
    }

    /// The same as every node prepares what all execute: it is planned by what they all know, and
    /// fit for that.
    ///
    /// # Errors
    /// 0A000 if it is not fit; those of its text.
    pub(super) fn prepare_alike(&mut self, text: &str, parameter_oids: &[u32]) -> Result<Arc<Prepared>> {
        let catalog = self.facts.catalog();
        let declared = declared_types(parameter_oids, &catalog)?;
        let search_path = self.facts.plan_path(&self.effective.search_path, &catalog);
        let namespace = self.facts.temporary.namespace();
        let key = Key { text, declared: &declared, search_path: &search_path, namespace };
        // What rules of now refuse is kept for nobody.
        let is_kept = super::active::is_under_rules_of_now(&self.facts);
        if is_kept
            && let Some(found) = self.database.plans_of_programs().get(key)
            && self.fits(&found.planned())
        {
            return Ok(found);
        }
        let statement = parse::parse_single_within(text, || self.limits())?;
        if let Some(statement) = &statement {
            let catalog = self.database.catalog();
            super::active::check(&catalog, &self.facts, statement)?;
            super::active::check_parameters(&catalog, &self.facts, &declared)?;
        }
        let before = std::mem::replace(&mut self.plans_alike, true);
        let planned = self.plan_prepared(statement, declared.clone());
        self.plans_alike = before;
        let prepared = Arc::new(planned?);
        if is_kept && !prepared.planned().calls_unbound() && self.own_catalog_is_empty() {
            self.database.plans_of_programs().put(key, &prepared, self.database.plans_budget());
        }
        Ok(prepared)
    }

    /// Prepares one statement of a simple query.
    pub fn prepare_statement(&mut self, statement: Statement) -> Result<Arc<Prepared>> {
        self.begin_statement();
        self.check_not_failed(Some(&statement))?;
        self.plan_prepared(Some(statement), Vec::new()).map(Arc::new)
    }

    pub(super) fn plan_prepared(
        &mut self,
        statement: Option<Statement>,
        declared: Vec<Option<Type>>,
    ) -> Result<Prepared> {
        let planned = match &statement {
            None => Planned::new(Action::Empty, given_types(&declared)?, None, Vec::new(), 0),
            Some(statement) => parse::on_large_stack(statement.depth(), || self.plan(statement, &declared))?,
        };
        Ok(Prepared::new(statement, declared, self.looked_up(planned)))
    }

    /// 25P02 unless the statement may be given in a failed block, MI015 unless in one of a decided
    /// family.
    pub(super) fn check_not_failed(&self, statement: Option<&Statement>) -> Result<()> {
        match self.block {
            Block::Failed => self.check_ends_block(statement),
            Block::Decided => self.check_decided(statement),
            Block::None | Block::Implicit | Block::Explicit => Ok(()),
        }
    }

    /// 25P02 for the columns of a statement in a failed block, MI015 in one of a decided family:
    /// nothing is said there of what gives rows.
    pub fn check_describes(&self, prepared: &Prepared) -> Result<()> {
        match prepared.columns() {
            Some(_) => self.check_not_failed(prepared.statement()),
            None => Ok(()),
        }
    }

    #[cold]
    fn check_ends_block(&self, statement: Option<&Statement>) -> Result<()> {
        if statement.is_none_or(|statement| super::statement::ends_failed_block(&statement.command)) {
            return Ok(());
        }
        Err(self.in_failed_block())
    }

    /// 25P02, or what a block has failed by that was overtaken, if its client has not been told.
    #[cold]
    pub(super) fn in_failed_block(&self) -> SqlError {
        self.overtaken.clone().unwrap_or_else(|| {
            SqlError::new(
                sqlstate::IN_FAILED_SQL_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )
        })
    }

    pub(super) fn own_catalog_is_empty(&self) -> bool {
        self.open.as_ref().is_none_or(|open| open.state.catalog.is_empty())
    }

    /// The commit that last changed the catalog for this session.
    #[inline]
    pub(super) fn changed_at(&self) -> cognate_engine::Csn {
        self.database.changed_for(&self.facts.temporary)
    }

    /// The state of the catalog that this session sees now.
    pub(super) fn catalog_state(&mut self) -> u64 {
        self.rest_on_catalog();
        match &mut self.open {
            Some(open) if !open.state.catalog.is_empty() => {
                open.state.catalog.over(self.database.catalog()).version()
            }
            _ => self.database.state_for(&self.facts.temporary),
        }
    }

    /// The catalog that this session sees now, and the state it stands for.
    pub(super) fn catalog_with_state(&mut self) -> (Arc<Catalog>, u64) {
        self.rest_on_catalog();
        match &mut self.open {
            Some(open) if !open.state.catalog.is_empty() => {
                let catalog = open.state.catalog.over(self.database.catalog());
                let state = catalog.version();
                (catalog, state)
            }
            _ => self.database.catalog_for(&self.facts.temporary),
        }
    }

    /// Plans a statement again after the catalog has changed; none if its result would change its
    /// shape.
    pub(super) fn replan_alike(&mut self, prepared: &Arc<Prepared>) -> Result<Option<Arc<Planned>>> {
        let statement =
            prepared.statement().ok_or_else(|| SqlError::internal("an empty query has no plan"))?;
        let mut planned = self.plan(statement, prepared.declared())?;
        // What was found out about parameters when it was prepared is what clients send.
        let is_told_otherwise = planned.parameter_types != prepared.parameter_types();
        if is_told_otherwise {
            let told: Vec<Option<Type>> = prepared.parameter_types().iter().copied().map(Some).collect();
            planned = self.plan(statement, &told)?;
        }
        let planned = self.looked_up(planned);
        let same_types = match (&planned.columns, prepared.columns()) {
            (Some(now), Some(then)) => {
                now.len() == then.len()
                    && now.iter().zip(then).all(|(now, then)| now.ty == then.ty && now.name == then.name)
            }
            (None, None) => true,
            _ => false,
        };
        if !same_types || planned.parameter_types != prepared.parameter_types() {
            return Ok(None);
        }
        // Others who have the statement may look its names up otherwise; and who prepares the text
        // from now on is told other types of its parameters.
        if is_told_otherwise || !self.finds_alike(prepared) {
            return Ok(Some(self.own_plans.keep(prepared, planned)));
        }
        self.own_plans.forget(prepared);
        Ok(Some(prepared.replan(planned)))
    }

    /// The result of a statement has changed its shape, and its client was not told of the former
    /// one yet: another statement of the same text takes its place. PostgreSQL would have prepared
    /// it only now: once nobody changes its tables any more. 0A000 if the client has sent
    /// parameters of other types.
    pub(super) fn prepare_anew(&mut self, prepared: &mut Arc<Prepared>) -> Result<Arc<Planned>> {
        let anew = self.plan_prepared(prepared.statement().cloned(), prepared.declared().to_vec())?;
        if anew.parameter_types() != prepared.parameter_types() {
            return Err(changed_result());
        }
        *prepared = Arc::new(anew);
        Ok(prepared.planned())
    }

    /// Notes in a plan that was just made what its names were looked up by.
    fn looked_up(&self, planned: Planned) -> Planned {
        let path = self.facts.plan_path(&self.effective.search_path, &self.facts.catalog());
        planned.within(self.facts.temporary.namespace(), path)
    }

    /// Whether a plan is for the present catalog, and this session would look up its names as they
    /// were: by its `search_path`, its user's schema and its temporary objects.
    pub(super) fn fits(&mut self, planned: &Planned) -> bool {
        let state = self.catalog_state();
        planned.is_for(state) && {
            self.stand_at(state);
            let namespace = self.facts.temporary.namespace();
            if self.standing.sees_less {
                let path = self.facts.plan_path(&self.effective.search_path, &self.facts.catalog());
                planned.is_of_path(namespace, &path)
            } else {
                let own = self.standing.has_own_schema.then_some(self.effective.user.as_str());
                planned.is_found_by(namespace, &self.effective.search_path, own)
            }
        }
    }

    /// Whether this session looks up the names of a statement as who prepared it did, so that they
    /// share its later plans.
    fn finds_alike(&self, prepared: &Prepared) -> bool {
        let path = self.facts.plan_path(&self.effective.search_path, &self.facts.catalog());
        prepared.first_path() == (self.facts.temporary.namespace(), path.as_slice())
    }

    /// The plan of a statement that this session made last, or all.
    #[inline]
    pub(super) fn planned_of(&self, prepared: &Arc<Prepared>) -> Arc<Planned> {
        self.own_plans.get(prepared).unwrap_or_else(|| prepared.planned())
    }

    /// Binds and plans a statement for the present catalog.
    pub(super) fn plan(&mut self, statement: &Statement, declared: &[Option<Type>]) -> Result<Planned> {
        let (catalog, state) = self.catalog_with_state();
        self.facts.set_catalog(&catalog);
        let Command::Sql(sql) = &statement.command else { return self.plan_utility(statement, declared) };
        let search_path = self.facts.binding_path(&catalog);
        // What is gathered from here on, the plan has not seen.
        let (known, learned) = (Sizes::new(&self.database), self.database.gathered().ordinal());
        // What every node executes is planned by what every node knows.
        let sizes: &dyn RowCounts = if self.plans_alike || self.is_ordered() { &NoRowCounts } else { &known };
        let interrupts = self.interrupts();
        let row_counts = WithoutIndexes { counts: sizes, trees: self.newer_indexes() };
        let planned = bounds::within(interrupts.clone(), || {
            let context = BindContext {
                catalog: &catalog,
                search_path: &search_path,
                eval: EvalContext { interrupt: &*interrupts, ..self.eval() },
                virtual_tables: &SystemTables,
                row_counts: &row_counts,
                source: &statement.source,
            };
            let fresh = || {
                let mut binder = Binder::new(&context, declared);
                if let Some(scope) = &statement.scope {
                    binder.enter_routine(scope);
                }
                binder
            };
            let mut binder = fresh();
            let bound = match is_in_parts(sql) {
                true => None,
                false => match plan_whole(&mut binder, sql, statement)? {
                    Some(bound) => Some(bound).filter(|_| !binder.wants_parts()),
                    None => return Ok(None),
                },
            };
            let (action, columns) = match bound {
                Some(bound) => bound,
                None => {
                    let (split, (plan, columns)) = parts::bind(&fresh, statement, sql)?;
                    binder = split;
                    for target in plan.targets() {
                        binder.check_volatile_reads(target)?;
                    }
                    (Action::Parts(plan.into()), columns)
                }
            };
            let planned = self.planned(action, columns, &binder, state, learned)?;
            known.gather_missed();
            Ok(Some(planned))
        })?;
        match planned {
            Some(planned) => Ok(planned),
            None => self.plan_utility(statement, declared),
        }
    }

    fn planned(
        &self,
        action: Action,
        columns: Option<Vec<OutputColumn>>,
        binder: &Binder<'_>,
        state: u64,
        learned: u64,
    ) -> Result<Planned> {
        let columns = columns.map(Arc::from);
        let mut planned =
            Planned::new(action, binder.parameter_types()?, columns, binder.tables().to_vec(), state);
        let view = |oid: &Oid| match binder.context.catalog.relation_by_oid(*oid) {
            Some(Relation::View(view)) => Some(view.clone()),
            _ => None,
        };
        planned.views = binder.views().iter().filter_map(view).collect();
        planned.routines = binder.routines().to_vec();
        planned.tells_ids = binder.tells_ids();
        planned.asks_outcome = binder.asks_outcome();
        planned.reads_catalog = binder.reads_catalog();
        (planned.needs, planned.needs_of_owners) = binder.needs();
        Ok(if self.is_ordered() { planned } else { planned.sized(&self.database, learned) })
    }

    /// Statements without a plan: only their columns are known beforehand, and such parameters as
    /// the client declares, whether they stand in the statement or not.
    fn plan_utility(&mut self, statement: &Statement, declared: &[Option<Type>]) -> Result<Planned> {
        if let Command::Sql(sql) = &statement.command
            && let ast::Statement::Set(set) = sql.as_ref()
        {
            super::variable::check_values(set)?;
        }
        let columns = self.utility_columns(&statement.command)?;
        let types = match &statement.command {
            Command::Mip(_, arguments) => super::mip::parameter_types(arguments, declared)?,
            Command::Sql(sql) => self.inner_parameter_types(sql, statement, declared)?,
            _ => given_types(declared)?,
        };
        Ok(Planned::new(Action::Utility, types, columns, Vec::new(), 0))
    }

    pub(super) fn utility_columns(&mut self, command: &Command) -> Result<Option<Arc<[OutputColumn]>>> {
        let text = |name: &str| OutputColumn {
            name: name.to_owned(),
            ty: Type::new(TypeId::Text),
            table_oid: 0,
            attribute_number: 0,
        };
        match command {
            Command::Fetch { cursor, skip: false, .. } => {
                let name = crate::identifier::fold(cursor);
                Ok(Some(self.fetch_columns(&name)?.into()))
            }
            Command::Mip(operation, arguments) => Ok(Some(super::mip::columns(*operation, arguments))),
            Command::Sql(statement) => match statement.as_ref() {
                ast::Statement::ShowVariable { variable } => Ok(Some(self.show_columns(variable)?.into())),
                ast::Statement::Explain { format, options, .. } => {
                    let shape = super::explain::plan_format(format.as_ref(), options.as_deref())?;
                    let is_json = shape == crate::explain::PlanFormat::Json;
                    let ty = Type::new(if is_json { TypeId::Json } else { TypeId::Text });
                    Ok(Some(Arc::new([OutputColumn { ty, ..text("QUERY PLAN") }])))
                }
                ast::Statement::Execute { name: Some(name), .. } => {
                    let name = crate::ddl::names::single(name)?;
                    Ok(self.named_statement(&name)?.shared_columns())
                }
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// What evaluation outside a statement's run may know of the session.
    pub(super) fn eval(&self) -> EvalContext<'_> {
        EvalContext {
            format: &self.format,
            statement_time: self.facts.now(),
            session: &*self.facts,
            memory_limit: self.memory_limit,
            interrupt: &*self.interrupts,
        }
    }

    /// Evaluates an expression that reads no table: arguments of EXECUTE.
    pub(super) fn evaluate_argument(
        &mut self,
        argument: &ast::Expr,
        ty: Type,
        place: usize,
    ) -> Result<Datum> {
        let (catalog, _) = self.catalog_with_state();
        let search_path = self.facts.binding_path(&catalog);
        let context = BindContext {
            catalog: &catalog,
            search_path: &search_path,
            eval: self.eval(),
            virtual_tables: &SystemTables,
            row_counts: &NoRowCounts,
            source: &"".into(),
        };
        let mut binder = Binder::without_parameters(&context);
        binder.push_level();
        let clause = Clause::Other("EXECUTE parameters");
        let typed = binder.in_clause(clause, |binder| binder.expression(argument))?;
        refuse_subquery(&typed.expr, "EXECUTE parameter")?;
        self.check_bound(&catalog, &binder)?;
        if !binder.tables().is_empty() {
            return Err(SqlError::unsupported("an argument of EXECUTE that reads a table"));
        }
        let from = typed.ty;
        let typed =
            binder.coerce(typed, ty, crate::types::cast::CastContext::Assignment)?.ok_or_else(|| {
                SqlError::new(
                    sqlstate::DATATYPE_MISMATCH,
                    format!(
                        "parameter ${place} of type {} cannot be coerced to the expected type {}",
                        from.id.sql_name(),
                        ty.id.sql_name()
                    ),
                )
                .with_hint("You will need to rewrite or cast the expression.")
            })?;
        let external = super::external::External {
            facts: &self.facts,
            catalog: &catalog,
            read_only: self.modes.read_only,
            view: None,
            stamp: 0,
            transaction: self.open.as_ref().map(|open| &open.engine),
            interrupts: &self.interrupts,
        };
        let read = ReadContext {
            reader: &NoReader,
            eval: self.eval(),
            catalog: &catalog,
            external: &external,
            interrupt: &*self.interrupts,
            memory_limit: self.memory_limit,
            tally: None,
            usage: None,
        };
        bounds::within(self.interrupts.clone(), || crate::oltp::run::evaluate(&typed.expr, &[], &read))
    }
}

/// The type of a parameter. 42P18 if nothing says what it is.
pub(super) fn parameter_type(place: usize, ty: Option<Type>) -> Result<Type> {
    ty.ok_or_else(|| {
        SqlError::new(
            sqlstate::INDETERMINATE_DATATYPE,
            format!("could not determine data type of parameter ${}", place + 1),
        )
    })
}

/// The types of parameters that nothing but the client says.
pub(super) fn given_types(declared: &[Option<Type>]) -> Result<Vec<Type>> {
    declared.iter().enumerate().map(|(place, ty)| parameter_type(place, *ty)).collect()
}

/// Parameter types by oid; 0 is open.
fn declared_types(oids: &[u32], catalog: &Catalog) -> Result<Vec<Option<Type>>> {
    let of_user = |oid: u32| catalog.user_type_by_oid(oid).map(|found| found.ty());
    oids.iter()
        .map(|&oid| {
            if oid == 0 || oid == TypeId::Unknown.oid() {
                return Ok(None);
            }
            if let Some(found) = of_user(oid) {
                // As with any parameter, a modifier is applied where the value is needed.
                return Ok(Some(found.parameter()));
            }
            if let Some(element) = of_user(oid - 1) {
                return crate::bind::array_type(element).map(|ty| Some(ty.parameter()));
            }
            let built_in = TypeId::from_oid(oid).filter(|id| !matches!(id, TypeId::Enum | TypeId::EnumArray));
            built_in.map(|id| Some(Type::new(id))).ok_or_else(|| {
                SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("type with OID {oid} does not exist"))
            })
        })
        .collect()
}

/// 0A000 for a statement that is known and not supported.
pub(super) fn unsupported(command: &Command) -> SqlError {
    SqlError::unsupported(tag(command))
}
