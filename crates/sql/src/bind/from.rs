//! FROM: relations, joins, and the names they bring into sight.

use sqlparser::ast::{
    Join as JoinSyntax, JoinConstraint, JoinOperator, ObjectName, TableAlias, TableFactor, TableWithJoins,
};

use super::need::ColumnRead;
use super::scope::{
    Closed, ColumnSource, NamedColumn, NamedTable, Namespace, name_parts, name_span, object_name,
};
use super::{Binder, Clause, From, Join, JoinKind, MAX_RELATIONS, Relation, Source, too_many_relations};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::types::Type;

/// What it takes to copy a column's name and meaning.
const NAMED_COLUMN: usize = 128;
/// What it takes to compare a name with that of a column.
const SOUGHT_NAME: usize = 4;
/// What it takes to merge a column of a join with another one.
const MERGED_COLUMN: usize = 8192;

/// A bound item of FROM: how its relations are joined, and its names.
pub(super) type Item = (From, Namespace);

impl Binder<'_> {
    /// Binds FROM into the innermost level.
    pub fn from_clause(&mut self, items: &[TableWithJoins]) -> Result<()> {
        for item in items {
            let (tree, names) = self.joined(item, false)?;
            let level = self.level()?;
            level.select.from.push(tree);
            level.namespace.extend(names)?;
        }
        Ok(())
    }

    /// Binds the FROM of an UPDATE, or the USING of a DELETE, beside the target, which LATERAL
    /// items must not refer to.
    pub fn from_beside_target(&mut self, items: &[TableWithJoins]) -> Result<()> {
        let level = self.level()?;
        let mut names = std::mem::take(&mut level.namespace);
        level.namespace.close(&names, Closed::Target);
        let bound = self.from_clause(items);
        let level = self.level()?;
        let mut beside = std::mem::take(&mut level.namespace);
        beside.open();
        let extended = names.extend(beside);
        level.namespace = names;
        bound.and(extended)
    }

    /// A table with its joins. `nullable`: it is on the side of an outer join that may be missing.
    fn joined(&mut self, item: &TableWithJoins, nullable: bool) -> Result<Item> {
        let kinds = item.joins.iter().map(|join| self.join_kind(join)).collect::<Result<Vec<_>>>()?;
        // A later RIGHT or FULL join makes all to its left nullable.
        let nullable_left = |from: usize| {
            nullable || kinds[from..].iter().any(|(kind, right)| *right || *kind == JoinKind::Full)
        };
        let mut left = self.factor(&item.relation, nullable_left(0))?;
        for (i, join) in item.joins.iter().enumerate() {
            let (kind, right_join) = kinds[i];
            let nullable_right = nullable_left(i + 1) || (kind != JoinKind::Inner && !right_join);
            let is_closed = kind == JoinKind::Full || right_join;
            let right = match sees_before(&join.relation) {
                true => self.lateral_factor(&left.1, is_closed, &join.relation, nullable_right)?,
                false => self.factor(&join.relation, nullable_right)?,
            };
            left = self.join(kind, right_join, left, right, constraint(join))?;
        }
        Ok(left)
    }

    /// An item that may be LATERAL: what is to the left of it in its join is in sight of it, and in
    /// vain if that `is_closed`. All names so far are copied for that.
    fn lateral_factor(
        &mut self,
        left: &Namespace,
        is_closed: bool,
        factor: &TableFactor,
        nullable: bool,
    ) -> Result<Item> {
        let outside = self.level()?.namespace.star.len();
        self.has_worked((outside + left.star.len()) * NAMED_COLUMN)?;
        let level = self.level()?;
        let before = level.namespace.clone();
        if is_closed {
            level.namespace.close(left, Closed::Join);
        } else {
            level.namespace.extend(left.clone())?;
        }
        let item = self.factor(factor, nullable);
        self.level()?.namespace = before;
        item
    }

    /// So many nanoseconds of work are about to be done, very roughly. Now and then it is asked
    /// whether the statement should stop.
    pub(super) fn has_worked(&mut self, time: usize) -> Result<()> {
        if self.unasked.is_due(time) { self.context.eval.check_interrupt() } else { Ok(()) }
    }

    /// The kind of a join, and whether it is a RIGHT join.
    fn join_kind(&mut self, join: &JoinSyntax) -> Result<(JoinKind, bool)> {
        if matches!(constraint(join), Some(JoinConstraint::None)) {
            return Err(SqlError::syntax("syntax error: JOIN without ON or USING"));
        }
        Ok(match &join.join_operator {
            JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => {
                (JoinKind::Inner, false)
            }
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => (JoinKind::Left, false),
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (JoinKind::Left, true),
            JoinOperator::FullOuter(_) => (JoinKind::Full, false),
            other => {
                let word = match other {
                    JoinOperator::Semi(_) | JoinOperator::LeftSemi(_) | JoinOperator::RightSemi(_) => "SEMI",
                    JoinOperator::Anti(_) | JoinOperator::LeftAnti(_) | JoinOperator::RightAnti(_) => "ANTI",
                    JoinOperator::CrossApply | JoinOperator::OuterApply => "APPLY",
                    _ => "JOIN",
                };
                return Err(SqlError::syntax(format!("syntax error at or near \"{word}\"")));
            }
        })
    }

    fn join(
        &mut self,
        kind: JoinKind,
        right_join: bool,
        left: Item,
        right: Item,
        constraint: Option<&JoinConstraint>,
    ) -> Result<Item> {
        let (left_tree, left_names) = left;
        let (right_tree, right_names) = right;
        let (names, on) = match constraint {
            Some(JoinConstraint::On(condition)) => {
                let mut names = left_names;
                names.extend(right_names)?;
                self.join_condition(names, condition)?
            }
            Some(JoinConstraint::Using(columns)) => {
                let columns = columns.iter().map(using_name).collect::<Result<Vec<_>>>()?;
                self.using(kind, right_join, left_names, right_names, &columns)?
            }
            Some(JoinConstraint::Natural) => {
                let on_the_right = sorted_names(right_names.star.iter().map(|column| &column.name));
                let columns: Vec<String> = (left_names.star.iter())
                    .filter(|column| on_the_right.binary_search(&column.name.as_str()).is_ok())
                    .map(|column| column.name.clone())
                    .collect();
                self.natural_columns.extend_from_slice(&columns);
                self.using(kind, right_join, left_names, right_names, &columns)?
            }
            Some(JoinConstraint::None) | None => {
                let mut names = left_names;
                names.extend(right_names)?;
                (names, vec![])
            }
        };
        let (left, right) = if right_join { (right_tree, left_tree) } else { (left_tree, right_tree) };
        Ok((From::Join(Box::new(Join { kind, left, right, on })), names))
    }

    /// ON sees the two sides of its join only. Their names are given back.
    fn join_condition(
        &mut self,
        names: Namespace,
        condition: &sqlparser::ast::Expr,
    ) -> Result<(Namespace, Vec<Expr>)> {
        let before = std::mem::replace(&mut self.level()?.namespace, names);
        let bound = self.in_clause(Clause::JoinOn, |binder| {
            let typed = binder.expression(condition)?;
            binder.condition(typed, "JOIN/ON")
        });
        let names = std::mem::replace(&mut self.level()?.namespace, before);
        let mut conjuncts = vec![];
        bound?.into_conjuncts(&mut conjuncts);
        Ok((names, conjuncts))
    }

    /// USING and NATURAL: equal columns, listed once.
    fn using(
        &mut self,
        kind: JoinKind,
        right_join: bool,
        left: Namespace,
        right: Namespace,
        columns: &[String],
    ) -> Result<(Namespace, Vec<Expr>)> {
        let mut merged = vec![];
        let mut on = vec![];
        // Both sides are searched for each column. Its value may have been merged many times.
        let time = (left.star.len() + right.star.len()) * SOUGHT_NAME + MERGED_COLUMN;
        for column in columns {
            self.has_worked(time)?;
            let (left_source, left_read) = common_column(&left, column, "left")?;
            let (right_source, right_read) = common_column(&right, column, "right")?;
            self.note_read(left_read);
            self.note_read(right_read);
            let level = self.level()?;
            let left_value = level.resolve(&left_source);
            let right_value = level.resolve(&right_source);
            let equal = self.operate("=", left_value.clone(), right_value.clone())?;
            equal.expr.into_conjuncts(&mut on);
            let value = self.merged_column(kind, right_join, left_value, right_value)?;
            let source = ColumnSource::Expr(value);
            merged.push(NamedColumn { name: column.clone(), source, read: None });
        }
        let listed = sorted_names(columns.iter());
        let is_rest = |column: &NamedColumn| listed.binary_search(&column.name.as_str()).is_err();
        let mut names = left;
        names.extend(right)?;
        merged.extend(std::mem::take(&mut names.star).into_iter().filter(is_rest));
        names.star = merged;
        Ok((names, on))
    }

    /// The value of a column merged by USING: the side that cannot be missing, or whichever there
    /// is.
    fn merged_column(
        &mut self,
        kind: JoinKind,
        right_join: bool,
        left: Typed,
        right: Typed,
    ) -> Result<Typed> {
        let ty = self.common(&[left.ty, right.ty], "JOIN/USING")?;
        match kind {
            JoinKind::Full => {
                let left = self.convert(left, ty)?.expr;
                let right = self.convert(right, ty)?.expr;
                Ok(Typed::new(Expr::Coalesce(vec![left, right]), ty))
            }
            _ if right_join => self.convert(right, ty),
            _ => self.convert(left, ty),
        }
    }

    /// One item of FROM without joins.
    fn factor(&mut self, factor: &TableFactor, nullable: bool) -> Result<Item> {
        let item = match nullable {
            true => self.out_of_recursion("an outer join", |binder| binder.bind_factor(factor, nullable))?,
            false => self.bind_factor(factor, nullable)?,
        };
        let mut mentioned: Vec<String> = item.1.tables.iter().map(|table| table.name.clone()).collect();
        if let TableFactor::Table { name, .. } = factor {
            mentioned.extend(name_parts(name)?.pop().map(|(name, _)| name));
        }
        self.level()?.mentioned.extend(mentioned);
        Ok(item)
    }

    fn bind_factor(&mut self, factor: &TableFactor, nullable: bool) -> Result<Item> {
        match factor {
            TableFactor::Table { name, alias, args: None, with_ordinality: false, sample: None, .. } => {
                self.table(name, alias.as_ref(), nullable)
            }
            TableFactor::Table { name, alias, args: Some(args), with_ordinality, sample: None, .. } => {
                self.functions_in_from(name, &args.args, *with_ordinality, alias.as_ref(), nullable)
            }
            TableFactor::Function { name, args, with_ordinality, alias, .. } => {
                self.functions_in_from(name, args, *with_ordinality, alias.as_ref(), nullable)
            }
            TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality, .. } => {
                self.unnest(array_exprs, *with_ordinality, alias.as_ref(), nullable)
            }
            TableFactor::Derived { sample: Some(_), .. }
            | TableFactor::Table { args: Some(_), sample: Some(_), .. } => {
                Err(SqlError::syntax("syntax error at or near \"TABLESAMPLE\""))
            }
            TableFactor::Derived { lateral, subquery, alias, sample: None } => {
                if alias.is_none() {
                    return Err(SqlError::syntax("subquery in FROM must have an alias")
                        .with_hint("For example, FROM (SELECT ...) [AS] foo."));
                }
                self.derived(subquery, *lateral, alias.as_ref(), "", nullable)
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let (tree, names) = self.joined(table_with_joins, nullable)?;
                match alias {
                    None => Ok((tree, names)),
                    Some(alias) => {
                        let name = object_name(&alias.name);
                        let columns = rename(names.star, Some(alias), &name)?;
                        let (schema, fields, relations) = (None, vec![], None);
                        Ok((tree, Namespace::of(NamedTable { schema, name, columns, fields, relations })))
                    }
                }
            }
            TableFactor::XmlTable { .. } => Err(self.lacks("XMLTABLE")),
            other => Err(self.lacks(format!("\"{other}\" in FROM"))),
        }
    }

    /// Adds a relation to the innermost level, and gives its columns names.
    pub(super) fn add_relation(
        &mut self,
        new: NewRelation<'_>,
        alias: Option<&TableAlias>,
        nullable: bool,
    ) -> Result<Item> {
        let shown = alias.map_or_else(|| new.name.to_owned(), |alias| object_name(&alias.name));
        self.has_worked(new.types.len() * NAMED_COLUMN)?;
        let level = self.level()?;
        let relation = level.select.relations.len();
        // What is merged may come to be a level of its own.
        if relation >= MAX_RELATIONS && !level.is_merging {
            return Err(too_many_relations());
        }
        level.select.relations.push(Relation {
            alias: shown.clone(),
            source: new.source,
            slots: vec![None; new.types.len()],
            types: new.types,
            columns: None,
            key_slot: None,
            nullable,
        });
        let names = new.columns.iter().map(|(name, _)| name.clone());
        let is_table = new.schema.is_some();
        let fields = if is_table { names.collect() } else { vec![] };
        let columns = (new.columns.into_iter())
            .map(|(name, column)| {
                let source = ColumnSource::Relation { relation, column };
                NamedColumn { name, source, read: None }
            })
            .collect();
        let columns = rename(columns, alias, &shown)?;
        if !is_table {
            let names = columns.iter().map(|column| column.name.clone()).collect();
            level.select.relations[relation].columns = Some(names);
        }
        let schema = if alias.is_some() { None } else { new.schema.map(str::to_owned) };
        let relations = Some(relation..relation + 1);
        let named = NamedTable { schema, name: shown, columns, fields, relations };
        Ok((From::Relation(relation), Namespace::of(named)))
    }
}

/// Whether an item of FROM may refer to what stands before it.
fn sees_before(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Table { args: None, .. } | TableFactor::Derived { lateral: false, .. } => false,
        TableFactor::NestedJoin { table_with_joins: nested, .. } => {
            sees_before(&nested.relation) || nested.joins.iter().any(|join| sees_before(&join.relation))
        }
        _ => true,
    }
}

/// Names in order, for looking one up.
fn sorted_names<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// A relation about to join a level.
pub(super) struct NewRelation<'a> {
    pub(super) source: Source,
    pub(super) schema: Option<&'a str>,
    pub(super) name: &'a str,
    /// Names and places of the visible columns.
    pub(super) columns: Vec<(String, usize)>,
    /// Types of all columns.
    pub(super) types: Vec<Type>,
}

/// What a join's ON, USING or NATURAL says.
pub(super) fn constraint(join: &JoinSyntax) -> Option<&JoinConstraint> {
    match &join.join_operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => Some(constraint),
        _ => None,
    }
}

fn using_name(name: &ObjectName) -> Result<String> {
    match name_parts(name)?.as_slice() {
        [(column, _)] => Ok(column.clone()),
        _ => Err(SqlError::syntax(format!("syntax error at or near \"{name}\""))),
    }
}

/// What a column that is merged means, and what who reads it needs.
fn common_column(names: &Namespace, column: &str, side: &str) -> Result<(ColumnSource, Option<ColumnRead>)> {
    let mut matches = names.star.iter().filter(|known| known.name == column);
    match (matches.next(), matches.next()) {
        (Some(found), None) => Ok((found.source.clone(), found.read)),
        (None, _) => Err(SqlError::new(
            sqlstate::UNDEFINED_COLUMN,
            format!("column \"{column}\" specified in USING clause does not exist in {side} table"),
        )),
        _ => Err(SqlError::new(
            sqlstate::AMBIGUOUS_COLUMN,
            format!("common column name \"{column}\" appears more than once in {side} table"),
        )),
    }
}

/// The columns with the alias's column names in place of the first ones.
pub(super) fn rename(
    mut columns: Vec<NamedColumn>,
    alias: Option<&TableAlias>,
    table: &str,
) -> Result<Vec<NamedColumn>> {
    let names = alias.map_or(&[][..], |alias| &alias.columns);
    if names.len() > columns.len() {
        return Err(SqlError::new(
            sqlstate::INVALID_COLUMN_REFERENCE,
            format!(
                "table \"{table}\" has {} columns available but {} columns specified",
                columns.len(),
                names.len()
            ),
        ));
    }
    for (column, name) in columns.iter_mut().zip(names) {
        column.name = object_name(&name.name);
    }
    Ok(columns)
}

/// 42P01, at the name.
pub(super) fn undefined_table(binder: &Binder<'_>, name: &ObjectName, shown: &str) -> SqlError {
    let error = SqlError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{shown}\" does not exist"));
    binder.at(error, name_span(name))
}
