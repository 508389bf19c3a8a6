//! WITH: common table expressions.

use sqlparser::ast::{self, SetExpr, SetOperator, SetQuantifier, TableAlias};

use super::from::{Item, NewRelation};
use super::scope::object_name;
use super::with_order::named_twice;
use super::{Binder, Body, Cte, Query, Relation, Source};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::changes_rows;
use crate::session::OutputColumn;
use crate::types::Type;

/// A common table expression that names can refer to.
#[derive(Clone, Debug)]
pub(super) struct CteInSight {
    name: String,
    number: usize,
    columns: Vec<(String, Type)>,
    references: usize,
    /// How many queries are around it.
    level: usize,
    /// It refers to one of those.
    correlated: bool,
    /// It is being bound itself.
    part: Part,
    /// What reads it may be run by itself: all parts of the statement have its rows.
    shared: bool,
    /// The part of the statement that it is bound in.
    home: usize,
    /// It has rows: it is no statement without RETURNING.
    gives_rows: bool,
}

impl CteInSight {
    fn new(name: &str, number: usize, columns: Vec<(String, Type)>, part: Part) -> CteInSight {
        CteInSight {
            name: name.to_owned(),
            number,
            columns,
            references: 0,
            level: 0,
            correlated: false,
            part,
            shared: false,
            home: 0,
            gives_rows: true,
        }
    }
}

/// Which part of a WITH query is being bound: what a reference to itself means there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// None: it is complete.
    Complete,
    /// A query that is no UNION, under WITH RECURSIVE.
    Whole,
    /// The left side of the UNION.
    Base,
    /// The right side of the UNION, with so much around it.
    Recursive(usize),
    /// A statement that changes rows, under WITH RECURSIVE.
    Changing,
}

impl Binder<'_> {
    /// The place of the innermost common table expression of this name.
    pub(super) fn cte_in_sight(&self, name: &str) -> Option<usize> {
        self.ctes.iter().rposition(|cte| cte.name == name)
    }

    /// How often each one in sight is referred to.
    pub(super) fn cte_references(&self) -> Vec<usize> {
        self.ctes.iter().map(|cte| cte.references).collect()
    }

    pub(super) fn set_cte_references(&mut self, references: Vec<usize>) {
        for (cte, references) in self.ctes.iter_mut().zip(references) {
            cte.references = references;
        }
    }

    /// Binds what stands in `what`, where a recursive query must not refer to itself.
    pub(super) fn out_of_recursion<T>(
        &mut self,
        what: &'static str,
        bind: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.around.push(what);
        let bound = bind(self);
        self.around.pop();
        bound
    }

    /// 42P19 if a query refers to itself where it must not, or once too often.
    fn check_recursion(&self, cte: &CteInSight) -> Result<()> {
        let name = &cte.name;
        let refuse = |place: &str| {
            Err(SqlError::new(
                sqlstate::INVALID_RECURSION,
                format!("recursive reference to query \"{name}\" must not appear {place}"),
            ))
        };
        match cte.part {
            Part::Complete => Ok(()),
            Part::Whole => Err(SqlError::new(
                sqlstate::INVALID_RECURSION,
                format!(
                    "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
                ),
            )),
            Part::Changing => Err(SqlError::new(
                sqlstate::INVALID_RECURSION,
                format!("recursive query \"{name}\" must not contain data-modifying statements"),
            )),
            Part::Base => refuse("within its non-recursive term"),
            Part::Recursive(around) => match self.around.get(around..).and_then(<[_]>::last) {
                Some(what) => refuse(&format!("within {what}")),
                None if cte.references > 0 => refuse("more than once"),
                None => Ok(()),
            },
        }
    }

    fn correlated_references(&self) -> usize {
        self.ctes.iter().filter(|cte| cte.correlated).map(|cte| cte.references).sum()
    }

    /// A reference to a common table expression.
    pub(super) fn cte(&mut self, place: usize, alias: Option<&TableAlias>, nullable: bool) -> Result<Item> {
        let cte = &self.ctes[place];
        self.check_recursion(cte)?;
        if !cte.gives_rows {
            let message = format!("WITH query \"{}\" does not have a RETURNING clause", cte.name);
            return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
        }
        if !cte.shared && cte.home != self.reader() {
            return Err(self.lacks("a subquery that locks rows and reads a WITH query around it"));
        }
        // Its rows belong to one row of the query around it, which only the query it belongs to can
        // tell.
        if cte.correlated && self.levels.len() != cte.level + 1 {
            return Err(
                self.lacks("a WITH query that refers to a query around it, read from a query within,")
            );
        }
        let cte = &mut self.ctes[place];
        cte.references += 1;
        let (number, name) = (cte.number, cte.name.clone());
        self.note_part_read(number);
        let cte = &self.ctes[place];
        let types = cte.columns.iter().map(|(_, ty)| *ty).collect();
        let columns = cte.columns.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect();
        let source = Source::Cte(number);
        self.add_relation(NewRelation { source, schema: None, name: &name, columns, types }, alias, nullable)
    }

    /// The numbers of WITH queries whose rows belong to one row of the query around them: they are
    /// read where they stand only.
    pub(super) fn tied_ctes(&self) -> Vec<usize> {
        self.ctes.iter().filter(|cte| cte.correlated).map(|cte| cte.number).collect()
    }

    /// Binds WITH and the query it belongs to; the expressions are in sight of `bind` only.
    pub(crate) fn with_ctes(
        &mut self,
        with: &ast::With,
        bind: impl FnOnce(&mut Self) -> Result<Query>,
    ) -> Result<Query> {
        let before = self.ctes.len();
        let mut bound = vec![];
        for cte in self.in_order(with)? {
            let name = self.new_cte_name(cte, before)?;
            if changes_rows(&cte.query.body) {
                return Err(SqlError::new(
                    sqlstate::FEATURE_NOT_SUPPORTED,
                    "WITH clause containing a data-modifying statement must be at the top level",
                ));
            }
            let read = self.correlated_references();
            bound.push(self.bind_cte(cte, name, with.recursive, false)?);
            if self.correlated_references() != read {
                return Err(
                    self.lacks("a WITH query that refers to a query around it, read from another one,")
                );
            }
        }
        let mut query = bind(self)?;
        let seen: Vec<CteInSight> = self.ctes.drain(before..).collect();
        let mut own = Vec::with_capacity(bound.len());
        for (mut cte, seen) in bound.into_iter().zip(seen) {
            cte.references = seen.references;
            match seen.correlated {
                true => own.extend(self.put_where_read(cte, &mut query)?),
                false => own.push(cte),
            }
        }
        own.append(&mut query.ctes);
        query.ctes = own;
        Ok(query)
    }

    /// Where queries were put around the one that reads a WITH query, they stand between that and
    /// what it refers to: it goes to where it is read. Gives it back if it is read here.
    fn put_where_read(&self, mut cte: Cte, query: &mut Query) -> Result<Option<Cte>> {
        let mut depths = vec![];
        read_depths(query, cte.number, 0, &mut depths);
        depths.sort_unstable();
        depths.dedup();
        let lacks = || self.lacks("a WITH query that refers to a query around it, read at several depths,");
        let depth = match depths.as_slice() {
            [] | [0] => return Ok(Some(cte)),
            [depth] => *depth,
            _ => return Err(lacks()),
        };
        let mut reader = query;
        for _ in 0..depth {
            reader = put_around(reader).ok_or_else(lacks)?;
        }
        cte.query.for_each_expr_mut(&mut |expr, nested| expr.raise(nested + 1, depth));
        if let Some((recursive, _)) = &mut cte.recursive {
            recursive.for_each_expr_mut(&mut |expr, nested| expr.raise(nested + 1, depth));
        }
        reader.ctes.insert(0, cte);
        Ok(None)
    }

    /// The name of a WITH query. 42712 if one of the same WITH, of which those in sight from
    /// `before` on are, has it.
    pub(super) fn new_cte_name(&self, cte: &ast::Cte, before: usize) -> Result<String> {
        let name = object_name(&cte.alias.name);
        if self.ctes[before..].iter().all(|known| known.name != name) {
            return Ok(name);
        }
        Err(named_twice(&name))
    }

    /// Binds one that is in sight of all parts of the statement.
    pub(super) fn shared_cte(&mut self, cte: &ast::Cte, name: String, recursive: bool) -> Result<Cte> {
        let bound = self.bind_cte(cte, name, recursive, true)?;
        if let Some(in_sight) = self.ctes.last_mut() {
            in_sight.shared = true;
        }
        Ok(bound)
    }

    /// Binds a statement that changes rows, in a WITH: it does not see itself.
    pub(super) fn changing_cte<T>(
        &mut self,
        name: &str,
        recursive: bool,
        bind: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let place = self.ctes.len();
        if recursive {
            self.ctes.push(CteInSight::new(name, 0, vec![], Part::Changing));
        }
        let bound = bind(self);
        self.ctes.truncate(place);
        bound
    }

    /// Puts such a statement in sight of all parts, with the columns of its RETURNING; its number.
    pub(super) fn put_changing_cte(
        &mut self,
        alias: &TableAlias,
        name: &str,
        columns: Option<&[OutputColumn]>,
    ) -> Result<usize> {
        let number = self.cte_count;
        self.cte_count += 1;
        let named = named_columns(columns.unwrap_or_default(), alias, name)?;
        let gives_rows = columns.is_some();
        let in_sight = CteInSight::new(name, number, named, Part::Complete);
        self.ctes.push(CteInSight { shared: true, gives_rows, ..in_sight });
        Ok(number)
    }

    /// Hands WITH queries of the statement to the query that alone reads them.
    pub(crate) fn carry(&self, query: &mut Query, mut given: Vec<Cte>) {
        for cte in &mut given {
            let seen = self.ctes.iter().find(|seen| seen.number == cte.number);
            cte.references = seen.map_or(cte.references, |seen| seen.references);
        }
        given.append(&mut query.ctes);
        query.ctes = given;
    }

    fn bind_cte(&mut self, cte: &ast::Cte, name: String, recursive: bool, shared: bool) -> Result<Cte> {
        let number = self.cte_count;
        self.cte_count += 1;
        if recursive
            && let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right } =
                cte.query.body.as_ref()
            && !self.is_tried(cte.alias.name.span)
        {
            let distinct = !matches!(set_quantifier, SetQuantifier::All);
            if let Some(bound) = self.bind_recursive(cte, &name, number, left, right, distinct)? {
                return Ok(bound);
            }
            self.note_tried(cte.alias.name.span);
        }
        let query = match recursive {
            true => {
                let bind = |binder: &mut Self| binder.cte_query(&cte.query, shared);
                self.bind_part(&name, number, vec![], Part::Whole, bind)?.0
            }
            false => self.cte_query(&cte.query, shared)?,
        };
        let correlated = query.is_correlated();
        let level = self.levels.len();
        let columns = cte_columns(&query, &cte.alias, &name)?;
        let (part, home) = (Part::Complete, self.reader());
        let in_sight = CteInSight::new(&name, number, columns, part);
        self.ctes.push(CteInSight { level, correlated, home, ..in_sight });
        // Put in place of a reference it would be one query further in.
        let materialized = cte.materialized.as_ref().map(|how| *how == ast::CteAsMaterialized::Materialized);
        let materialized = if correlated { Some(true) } else { materialized };
        let end = self.cte_count;
        Ok(Cte { number, name, query, recursive: None, end, references: 0, materialized })
    }

    /// Binds a part of a WITH RECURSIVE query with the query itself in sight; tells whether it
    /// refers to itself.
    fn bind_part(
        &mut self,
        name: &str,
        number: usize,
        columns: Vec<(String, Type)>,
        part: Part,
        bind: impl FnOnce(&mut Self) -> Result<Query>,
    ) -> Result<(Query, bool)> {
        let place = self.ctes.len();
        let level = self.levels.len();
        let home = self.reader();
        self.ctes.push(CteInSight { level, home, ..CteInSight::new(name, number, columns, part) });
        let bound = bind(self);
        let refers = self.ctes.get(place).is_some_and(|cte| cte.references > 0);
        self.ctes.truncate(place);
        Ok((bound?, refers))
    }

    /// A UNION under WITH RECURSIVE. None if its right side does not refer to the query itself: it
    /// is a query like any other then.
    fn bind_recursive(
        &mut self,
        cte: &ast::Cte,
        name: &str,
        number: usize,
        left: &SetExpr,
        right: &SetExpr,
        distinct: bool,
    ) -> Result<Option<Cte>> {
        if cte.query.with.is_some() {
            return match self
                .bind_part(name, number, vec![], Part::Whole, |binder| binder.query(&cte.query, false))
            {
                Err(error) if error.sqlstate == sqlstate::INVALID_RECURSION => {
                    Err(self.lacks("WITH in a recursive query"))
                }
                bound => bound.map(|_| None),
            };
        }
        let (left, _) =
            self.bind_part(name, number, vec![], Part::Base, |binder| binder.set_expr(left, false))?;
        let columns = cte_columns(&left, &cte.alias, name)?;
        let part = Part::Recursive(self.around.len());
        let (right, refers) =
            self.bind_part(name, number, columns.clone(), part, |binder| binder.set_expr(right, true))?;
        if !refers {
            return Ok(None);
        }
        refuse_decoration(&cte.query)?;
        refuse_aggregates(&right, number)?;
        let right = self.recursive_term(name, &left, right)?;
        let correlated = left.is_correlated() || right.is_correlated();
        let level = self.levels.len();
        let (part, home) = (Part::Complete, self.reader());
        let in_sight = CteInSight::new(name, number, columns, part);
        self.ctes.push(CteInSight { level, correlated, home, ..in_sight });
        Ok(Some(Cte {
            number,
            name: name.to_owned(),
            query: left,
            recursive: Some((right, distinct)),
            end: self.cte_count,
            references: 0,
            materialized: Some(true),
        }))
    }

    /// The recursive term must have the shape of the other one.
    fn recursive_term(&mut self, name: &str, left: &Query, right: Query) -> Result<Query> {
        if left.columns.len() != right.columns.len() {
            return Err(SqlError::syntax("each UNION query must have the same number of columns"));
        }
        let wanted: Vec<Type> = left.columns.iter().map(|column| column.ty).collect();
        for (i, (own, other)) in left.columns.iter().zip(&right.columns).enumerate() {
            let common = self.common(&[own.ty, other.ty], "UNION")?;
            // The length or precision stays only where both have the same.
            if common != own.ty {
                let format = self.context.eval.format;
                return Err(SqlError::new(
                    sqlstate::DATATYPE_MISMATCH,
                    format!(
                        "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
                        i + 1,
                        own.ty.format_with(format),
                        common.format_with(format)
                    ),
                )
                .with_hint("Cast the output of the non-recursive term to the correct type."));
            }
        }
        self.convert_columns(right, &wanted)
    }
}

/// The query that this one was put around.
fn put_around(query: &mut Query) -> Option<&mut Query> {
    let Body::Select(select) = &mut query.body else { return None };
    match select.relations.as_mut_slice() {
        [Relation { source: Source::Query(inner), .. }] => Some(inner.as_mut()),
        _ => None,
    }
}

/// How many queries further in than this one a WITH query is read, for each reference.
fn read_depths(query: &Query, number: usize, depth: usize, found: &mut Vec<usize>) {
    match &query.body {
        Body::Select(select) => {
            for relation in &select.relations {
                match &relation.source {
                    Source::Cte(read) if *read == number => found.push(depth),
                    Source::Query(inner) => read_depths(inner, number, depth + 1, found),
                    _ => {}
                }
            }
        }
        Body::SetOperation(operation) => {
            read_depths(&operation.left, number, depth, found);
            read_depths(&operation.right, number, depth, found);
        }
        Body::Values(_) => {}
    }
}

/// 0A000 for what PostgreSQL does not have either around the UNION of a recursive query.
fn refuse_decoration(query: &ast::Query) -> Result<()> {
    let offset =
        |clause: &ast::LimitClause| matches!(clause, ast::LimitClause::LimitOffset { offset: Some(_), .. });
    let what = if query.order_by.is_some() {
        "ORDER BY"
    } else if query.limit_clause.as_ref().is_some_and(offset) {
        "OFFSET"
    } else if query.limit_clause.is_some() || query.fetch.is_some() {
        "LIMIT"
    } else if !query.locks.is_empty() {
        "FOR UPDATE/SHARE"
    } else {
        return Ok(());
    };
    Err(SqlError::new(
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!("{what} in a recursive query is not implemented"),
    ))
}

/// 42P19 if rows of the query itself are aggregated in its recursive term.
fn refuse_aggregates(query: &Query, number: usize) -> Result<()> {
    match &query.body {
        Body::Select(select) => {
            let own =
                |relation: &super::Relation| matches!(relation.source, Source::Cte(own) if own == number);
            let aggregates = select.group.as_ref().is_some_and(|group| !group.aggregates.is_empty());
            if aggregates && select.relations.iter().any(own) {
                return Err(SqlError::new(
                    sqlstate::INVALID_RECURSION,
                    "aggregate functions are not allowed in a recursive query's recursive term",
                ));
            }
            for relation in &select.relations {
                if let Source::Query(query) = &relation.source {
                    refuse_aggregates(query, number)?;
                }
            }
            Ok(())
        }
        Body::SetOperation(operation) => {
            refuse_aggregates(&operation.left, number)?;
            refuse_aggregates(&operation.right, number)
        }
        Body::Values(_) => Ok(()),
    }
}

/// Names and types of the columns, with the alias's names.
fn cte_columns(query: &Query, alias: &TableAlias, name: &str) -> Result<Vec<(String, Type)>> {
    named_columns(&query.columns, alias, name)
}

fn named_columns(given: &[OutputColumn], alias: &TableAlias, name: &str) -> Result<Vec<(String, Type)>> {
    if alias.columns.len() > given.len() {
        return Err(SqlError::new(
            sqlstate::INVALID_COLUMN_REFERENCE,
            format!(
                "WITH query \"{name}\" has {} columns available but {} columns specified",
                given.len(),
                alias.columns.len()
            ),
        ));
    }
    let mut columns: Vec<(String, Type)> =
        given.iter().map(|column| (column.name.clone(), column.ty)).collect();
    for (column, alias) in columns.iter_mut().zip(&alias.columns) {
        column.0 = object_name(&alias.name);
    }
    Ok(columns)
}
