//! From a statement to its parts: binding them one by one, then who reads whose rows, and with that
//! the order in which they run.
//!
//! A SELECT of the WITH that a single part reads need not be a part: it is handed to the query of
//! that part, which reads of it what it needs, when it needs it. Who reads what is known only when
//! all is bound, so the statement is bound twice if there is such a SELECT: first with every one a
//! part, then with those handed over ([`Owners`]).

use std::collections::{BTreeMap, BTreeSet};

use sqlparser::ast;

use super::{Part, PartsPlan, Step};
use crate::bind::{Binder, Body, Cte, LockingQuery, Query, all_rows};
use crate::error::{Result, SqlError, sqlstate};
use crate::oltp::source::WithQueries;
use crate::oltp::{delete, insert, merge, update};
use crate::parse::{Statement, changes_rows};
use crate::plan;
use crate::session::OutputColumn;

/// A bound statement: its plan, and its output columns if it gives rows.
type Bound = (PartsPlan, Option<Vec<OutputColumn>>);

/// What a statement does, and its output columns if it gives rows.
type BoundStep = (Step, Option<Vec<OutputColumn>>);

/// Which part the SELECTs of WITH are handed to, by their own numbers as parts.
type Owners = BTreeMap<usize, usize>;

/// A part while the statement is bound.
struct Draft {
    /// Its number.
    part: usize,
    name: Option<String>,
    /// The number of the WITH query that its rows are those of.
    number: Option<usize>,
    /// It is a SELECT of WITH that locks no rows.
    is_plain: bool,
    /// None if it was handed to another part.
    step: Option<Step>,
}

/// All parts, in the order in which they were bound.
struct Drafts {
    parts: Vec<Draft>,
    main: usize,
    columns: Option<Vec<OutputColumn>>,
    /// Which part reads which WITH query.
    reads: Vec<(usize, usize)>,
    owners: Owners,
}

/// Binds and plans a statement in parts; `fresh` makes a binder. The binder that comes back is that
/// of the plan.
///
/// # Errors
/// 0A000 if rows are locked that another part has to change something for.
pub(crate) fn bind<'a>(
    fresh: &dyn Fn() -> Binder<'a>,
    statement: &Statement,
    sql: &ast::Statement,
) -> Result<(Binder<'a>, Bound)> {
    let mut binder = fresh().split();
    let mut drafts = Drafts::bind(&mut binder, statement, sql, Owners::new())?;
    let owners = drafts.single_readers();
    if !owners.is_empty() {
        binder = fresh().split();
        drafts = Drafts::bind(&mut binder, statement, sql, owners)?;
    }
    Ok((binder, drafts.finish()?))
}

/// Binds a statement that changes rows.
fn bind_change(
    binder: &mut Binder<'_>,
    statement: &Statement,
    sql: &ast::Statement,
    with: WithQueries<'_>,
) -> Result<BoundStep> {
    let step = match sql {
        ast::Statement::Insert(insert) => {
            let overriding = statement.overriding(&insert.insert_token);
            Step::Insert(insert::bind(binder, insert, overriding, with)?)
        }
        ast::Statement::Update(update) => Step::Update(update::bind(binder, update, with)?),
        ast::Statement::Delete(delete) => Step::Delete(delete::bind(binder, delete, with)?),
        ast::Statement::Merge(merge) => Step::Merge(merge::bind(binder, merge, statement, with)?),
        _ => return Err(SqlError::internal("a statement in parts that changes nothing")),
    };
    let columns = step.returning().map(|returning| returning.columns.clone());
    Ok((step, columns))
}

fn bind_select(binder: &Binder<'_>, query: Query) -> Result<Step> {
    let (tables, types) = (binder.tables().to_vec(), binder.parameter_types().unwrap_or_default());
    let mut plan = plan::plan(query, binder.cte_count(), types, tables, binder.context.row_counts)?;
    plan.routines = binder.routines().to_vec();
    Ok(Step::Select(plan.into()))
}

/// The statement that a body is, if it changes rows.
fn change_in(body: &ast::SetExpr) -> Option<&ast::Statement> {
    match body {
        ast::SetExpr::Insert(sql)
        | ast::SetExpr::Update(sql)
        | ast::SetExpr::Delete(sql)
        | ast::SetExpr::Merge(sql) => Some(sql),
        _ => None,
    }
}

/// Whether a query locks rows itself.
fn has_locks(query: &Query) -> bool {
    matches!(&query.body, Body::Select(select) if !select.locks.is_empty())
}

impl Drafts {
    fn bind(
        binder: &mut Binder<'_>,
        statement: &Statement,
        sql: &ast::Statement,
        owners: Owners,
    ) -> Result<Drafts> {
        let mut drafts = Drafts { parts: vec![], main: 0, columns: None, reads: vec![], owners };
        let mut held: BTreeMap<usize, Vec<Cte>> = BTreeMap::new();
        let query = match sql {
            ast::Statement::Query(query) => Some(query),
            _ => None,
        };
        if let Some(with) = query.and_then(|query| query.with.as_ref()) {
            for cte in binder.in_order(with)? {
                let draft = match changes_rows(&cte.query.body) {
                    true => bind_statement_of_with(binder, statement, cte, with.recursive, &mut held)?,
                    false => drafts.bind_query_of_with(binder, cte, with.recursive, &mut held)?,
                };
                drafts.parts.push(draft);
            }
        }
        let part = binder.next_part();
        let given = held.remove(&part).unwrap_or_default();
        let (step, columns) = binder.part(|binder| match query {
            Some(query) => match change_in(&query.body) {
                Some(sql) => bind_change(binder, statement, sql, WithQueries { own: None, given }),
                None => {
                    let mut bound = binder.query_without_with(query, false)?;
                    let columns = bound.columns.clone();
                    binder.carry(&mut bound, given);
                    Ok((bind_select(binder, bound)?, Some(columns)))
                }
            },
            None => bind_change(binder, statement, sql, WithQueries { own: None, given }),
        })?;
        (drafts.main, drafts.columns) = (part, columns);
        drafts.parts.push(Draft { part, name: None, number: None, is_plain: false, step: Some(step) });
        for LockingQuery { part, number, mut query } in binder.take_locking_queries() {
            binder.carry(&mut query, held.remove(&part).unwrap_or_default());
            let step = Some(bind_select(binder, query)?);
            drafts.parts.push(Draft { part, name: None, number: Some(number), is_plain: false, step });
        }
        drafts.reads = binder.part_reads().to_vec();
        Ok(drafts)
    }

    fn bind_query_of_with(
        &self,
        binder: &mut Binder<'_>,
        cte: &ast::Cte,
        recursive: bool,
        held: &mut BTreeMap<usize, Vec<Cte>>,
    ) -> Result<Draft> {
        let part = binder.next_part();
        let bound = binder.part(|binder| binder.part_query(cte, recursive))?;
        let (name, number) = (Some(bound.name.clone()), Some(bound.number));
        let locks = has_locks(&bound.query);
        if let Some(owner) = self.owners.get(&part) {
            held.entry(*owner).or_default().push(bound);
            return Ok(Draft { part, name, number, is_plain: !locks, step: None });
        }
        let given = held.remove(&part).unwrap_or_default();
        let mut query = match locks {
            true => bound.query,
            false => {
                let mut query = all_rows(bound.number, bound.query.columns.clone());
                query.ctes.push(Cte { references: 1, ..bound });
                query
            }
        };
        binder.carry(&mut query, given);
        let step = Some(bind_select(binder, query)?);
        Ok(Draft { part, name, number, is_plain: !locks, step })
    }

    /// Whose step a part belongs to: its own, or that of whom it was handed to.
    fn owner(&self, part: usize) -> usize {
        self.owners.get(&part).copied().unwrap_or(part)
    }

    /// For each plain SELECT of WITH that a single part reads, that part.
    fn single_readers(&self) -> Owners {
        let mut owners = Owners::new();
        // Who reads it comes behind it.
        for draft in self.parts.iter().filter(|draft| draft.is_plain).rev() {
            let others = self.reads.iter().filter(|(_, number)| Some(*number) == draft.number);
            let others = others.map(|(reader, _)| *reader).filter(|reader| *reader != draft.part);
            let readers: BTreeSet<usize> =
                others.map(|reader| owners.get(&reader).copied().unwrap_or(reader)).collect();
            if let (1, Some(reader)) = (readers.len(), readers.first()) {
                owners.insert(draft.part, *reader);
            }
        }
        owners
    }

    /// The places of the parts whose rows the part at a place reads.
    fn read_by(&self, place: usize) -> Vec<usize> {
        let part = self.parts[place].part;
        let mut places = vec![];
        for (reader, number) in &self.reads {
            if self.owner(*reader) != part {
                continue;
            }
            let of_number = |draft: &Draft| draft.number == Some(*number) && draft.step.is_some();
            places.extend(self.parts.iter().position(of_number).filter(|found| *found != place));
        }
        places
    }

    /// Adds a part to the order, behind those that it reads.
    fn visit(&self, place: usize, order: &mut Vec<usize>) {
        if order.contains(&place) {
            return;
        }
        for read in self.read_by(place) {
            self.visit(read, order);
        }
        order.push(place);
    }

    fn changes(&self, place: usize) -> bool {
        self.parts[place].step.as_ref().is_some_and(|step| step.target().is_some())
    }

    fn locks(&self, place: usize) -> bool {
        matches!(&self.parts[place].step, Some(Step::Select(plan)) if plan.has_locks())
    }

    /// The places of the parts that are run, in their order.
    fn order(&self, main: usize) -> Result<Vec<usize>> {
        let changing = (0..self.parts.len()).rev().filter(|place| self.changes(*place));
        let wanted: Vec<usize> = std::iter::once(main).chain(changing).collect();
        let mut needed = vec![];
        for place in &wanted {
            self.visit(*place, &mut needed);
        }
        let mut order = vec![];
        for place in needed.into_iter().filter(|place| self.locks(*place)) {
            self.visit(place, &mut order);
        }
        if order.iter().any(|place| self.changes(*place)) {
            return Err(SqlError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "a query that locks rows and reads a data-modifying WITH query is not supported",
            ));
        }
        for place in wanted {
            self.visit(place, &mut order);
        }
        Ok(order)
    }

    fn finish(mut self) -> Result<Bound> {
        let main = self.parts.iter().position(|draft| draft.part == self.main);
        let main = main.ok_or_else(|| SqlError::internal("a statement in parts without itself"))?;
        let order = self.order(main)?;
        let is_read = |number: &usize| self.reads.iter().any(|(_, read)| read == number);
        let mut parts = Vec::with_capacity(order.len());
        let mut place_of_main = 0;
        for place in order {
            let draft = &mut self.parts[place];
            let Some(step) = draft.step.take() else { continue };
            if place == main {
                place_of_main = parts.len();
            }
            parts.push(Part { name: draft.name.take(), number: draft.number.filter(is_read), step });
        }
        Ok((PartsPlan { parts, main: place_of_main }, self.columns))
    }
}

fn bind_statement_of_with(
    binder: &mut Binder<'_>,
    statement: &Statement,
    cte: &ast::Cte,
    recursive: bool,
    held: &mut BTreeMap<usize, Vec<Cte>>,
) -> Result<Draft> {
    let sql = match change_in(&cte.query.body) {
        Some(ast::Statement::Merge(_)) => {
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, "MERGE not supported in WITH query"));
        }
        Some(sql) => sql,
        None => return Err(SqlError::internal("no statement in WITH")),
    };
    let part = binder.next_part();
    let with = WithQueries { own: cte.query.with.as_ref(), given: held.remove(&part).unwrap_or_default() };
    let bind = |binder: &mut Binder<'_>| binder.part(|binder| bind_change(binder, statement, sql, with));
    let columns = |bound: &BoundStep| bound.1.clone();
    let ((step, _), number) = binder.part_statement(cte, recursive, bind, columns)?;
    let name = Some(crate::bind::object_name(&cte.alias.name));
    Ok(Draft { part, name, number: Some(number), is_plain: false, step: Some(step) })
}
