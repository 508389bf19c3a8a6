//! GROUP BY, and moving an aggregating SELECT's expressions onto its group's frame.
//!
//! Targets, HAVING and set-returning calls are bound over the input's frame first. Then every part
//! of them that equals a group key becomes that key's place, every aggregate its own; a column that
//! is left over is an error, unless its table's primary key is among the keys: then it is the same
//! throughout a group and becomes a key too.
//!
//! ```text
//! SELECT a + 1, count(*) FROM t GROUP BY a     input frame [a]; group frame [a, count(*)]
//!   a + 1     Slot(0) + 1      ->  Slot(0) + 1
//!   count(*)  Aggregate(0)     ->  Slot(1)
//! ```

use sqlparser::ast::{Expr as Syntax, GroupByExpr};

use super::expression::strip;
use super::order::{ordinal, target_at, target_named};
use super::scope::object_name;
use super::{Binder, Group, Level, Select, SlotPart, Source};
use crate::catalog::Index;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, SubqueryBody, Typed, same};
use crate::parse::DISTINCT_SETS;

/// What GROUP BY says.
#[derive(Default)]
pub(super) struct GroupKeys {
    keys: Vec<Expr>,
    /// With grouping sets: each as places among the keys.
    sets: Option<Vec<Vec<usize>>>,
    /// Targets that were named by place or alias, and the key that each is. Two of them are two
    /// keys even if they are written alike: one may be in a grouping set and the other not.
    named: Vec<(usize, usize)>,
}

/// Most grouping sets of one query, and most columns of a CUBE.
const MOST_SETS: usize = 4096;
const MOST_OF_CUBE: usize = 12;

/// Whether GROUP BY says more than a list of keys.
pub(super) fn has_grouping_sets(syntax: &GroupByExpr) -> bool {
    let GroupByExpr::Expressions(items, _) = syntax else { return false };
    items.iter().any(|item| matches!(item, Syntax::GroupingSets(_) | Syntax::Rollup(_) | Syntax::Cube(_)))
}

impl Binder<'_> {
    /// The keys of GROUP BY; none if there is no such clause.
    pub(super) fn group_by(
        &mut self,
        syntax: &GroupByExpr,
        targets: &mut [(String, Typed)],
        visible: usize,
    ) -> Result<Option<GroupKeys>> {
        let GroupByExpr::Expressions(items, modifiers) = syntax else {
            return Err(SqlError::syntax("syntax error at or near \"ALL\""));
        };
        if !modifiers.is_empty() {
            return Err(SqlError::syntax("syntax error at or near \"WITH\""));
        }
        let distinct = matches!(items.first(), Some(Syntax::Identifier(word)) if word.value == DISTINCT_SETS);
        let items = &items[usize::from(distinct)..];
        if items.is_empty() {
            return Ok(None);
        }
        let mut found = GroupKeys::default();
        let mut sets: Vec<Vec<usize>> = vec![vec![]];
        for item in items {
            let more = self.grouping_sets(item, targets, visible, &mut found)?;
            check_sets(sets.len().saturating_mul(more.len()))?;
            // Every set with every other.
            sets = sets
                .iter()
                .flat_map(|set| more.iter().map(|more| set.iter().chain(more).copied().collect()))
                .collect();
        }
        for set in &mut sets {
            set.sort_unstable();
            set.dedup();
        }
        if distinct {
            let mut seen = std::collections::HashSet::new();
            sets.retain(|set| seen.insert(set.clone()));
        }
        let plain = matches!(sets.as_slice(), [only] if only.len() == found.keys.len());
        found.sets = (!plain).then_some(sets);
        Ok(Some(found))
    }

    /// The grouping sets that an item stands for; one for a plain expression.
    fn grouping_sets(
        &mut self,
        item: &Syntax,
        targets: &mut [(String, Typed)],
        visible: usize,
        keys: &mut GroupKeys,
    ) -> Result<Vec<Vec<usize>>> {
        let item = strip(item);
        let mut places = |binder: &mut Self, items: &[Syntax], keys: &mut GroupKeys| {
            let mut set = vec![];
            for item in items {
                set.extend(binder.group_item(item, targets, visible, keys)?);
            }
            Ok::<_, SqlError>(set)
        };
        match item {
            Syntax::Rollup(columns) => {
                let columns = (columns.iter())
                    .map(|column| places(self, column, keys))
                    .collect::<Result<Vec<Vec<usize>>>>()?;
                Ok((0..=columns.len()).rev().map(|count| columns[..count].concat()).collect())
            }
            Syntax::Cube(columns) => {
                if columns.len() > MOST_OF_CUBE {
                    return Err(SqlError::new(
                        sqlstate::TOO_MANY_COLUMNS,
                        format!("CUBE is limited to {MOST_OF_CUBE} elements"),
                    ));
                }
                let columns = (columns.iter())
                    .map(|column| places(self, column, keys))
                    .collect::<Result<Vec<Vec<usize>>>>()?;
                let chosen = |mask: usize| {
                    let columns = columns.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
                    columns.flat_map(|(_, places)| places.iter().copied()).collect()
                };
                Ok((0..1usize << columns.len()).rev().map(chosen).collect())
            }
            Syntax::GroupingSets(items) => {
                let mut sets = vec![];
                for item in items {
                    // The parser gives the items one by one, each as a list of its own.
                    match item.as_slice() {
                        [item] => sets.extend(self.grouping_sets(item, targets, visible, keys)?),
                        items => {
                            let tuple = Syntax::Tuple(items.to_vec());
                            sets.extend(self.grouping_sets(&tuple, targets, visible, keys)?);
                        }
                    }
                    check_sets(sets.len())?;
                }
                Ok(sets)
            }
            item => Ok(vec![self.group_item(item, targets, visible, keys)?]),
        }
    }

    /// The places among the keys of a plain item: one, or those of a list in parentheses.
    fn group_item(
        &mut self,
        item: &Syntax,
        targets: &mut [(String, Typed)],
        visible: usize,
        keys: &mut GroupKeys,
    ) -> Result<Vec<usize>> {
        let item = strip(item);
        if let Syntax::Tuple(items) = item {
            let mut places = vec![];
            for item in items {
                places.extend(self.group_item(item, targets, visible, keys)?);
            }
            return Ok(places);
        }
        if let Some(position) = ordinal(item, "GROUP BY")? {
            let place = target_at(position, visible, "GROUP BY")?;
            return Ok(vec![self.group_target(&mut targets[place].1, Some(place), keys)?]);
        }
        // A name means an input column first, an output column else.
        if let Syntax::Identifier(ident) = item {
            let name = object_name(ident);
            let is_input = self.level()?.namespace.star.iter().any(|column| column.name == name);
            if !is_input && let Some(place) = target_named(&name, targets, visible, "GROUP BY")? {
                return Ok(vec![self.group_target(&mut targets[place].1, Some(place), keys)?]);
            }
        }
        let mut typed = self.settled_expression(item)?;
        Ok(vec![self.group_target(&mut typed, None, keys)?])
    }

    /// The place of an expression among the keys; `target` is its place among the targets, if it
    /// was named as such.
    fn group_target(
        &mut self,
        typed: &mut Typed,
        target: Option<usize>,
        found: &mut GroupKeys,
    ) -> Result<usize> {
        let settled = self.settle(typed.clone())?;
        *typed = settled;
        self.check_sortable_value(typed, "equality")?;
        if typed.expr.has_own_aggregate() {
            return Err(SqlError::new(
                sqlstate::GROUPING_ERROR,
                "aggregate functions are not allowed in GROUP BY",
            ));
        }
        if typed.expr.any(&mut |expr| matches!(expr, Expr::WindowResult(_))) {
            return Err(SqlError::new(
                sqlstate::WINDOWING_ERROR,
                "window functions are not allowed in GROUP BY",
            ));
        }
        if typed.expr.any(&mut |expr| matches!(expr, Expr::SetResult(_))) {
            return Err(self.lacks("GROUP BY over a set-returning function"));
        }
        let GroupKeys { keys, named, .. } = found;
        let known = match target {
            Some(target) => named.iter().find(|(known, _)| *known == target).map(|(_, key)| *key),
            None => keys.iter().position(|known| same(known, &typed.expr)),
        };
        let place = known.unwrap_or_else(|| {
            keys.push(typed.expr.clone());
            keys.len() - 1
        });
        if let (Some(target), None) = (target, known) {
            named.push((target, place));
        }
        Ok(place)
    }

    /// Puts a bound level together: groups it if it aggregates, and gives set-returning results
    /// their places.
    pub(super) fn finish_select(
        &mut self,
        level: Level,
        keys: Option<GroupKeys>,
        having: Option<Expr>,
    ) -> Result<Select> {
        let Level { mut select, aggregates, set_returning, window_results, .. } = level;
        select.windows.retain(|window| !window.calls.is_empty());
        select.set_returning = set_returning;
        if keys.is_some() || having.is_some() || !aggregates.is_empty() {
            let mut conjuncts = vec![];
            if let Some(having) = having {
                having.into_conjuncts(&mut conjuncts);
            }
            let GroupKeys { keys, sets, named } = keys.unwrap_or_default();
            let mut group = Group { keys, sets, aggregates, having: conjuncts };
            find_grouped(&mut group)?;
            let primary = regroup(&mut select, &mut group)?;
            self.note_needed(&primary);
            for (target, key) in named {
                select.targets[target].expr = Expr::Slot(key);
            }
            select.group = Some(group);
        }
        let base = match &select.group {
            Some(group) => group.keys.len() + group.aggregates.len(),
            None => select.slots.len(),
        };
        for target in &mut select.targets {
            place_results(&mut target.expr, base, window_results);
        }
        for set in &mut select.set_returning {
            set.call.exprs_mut().iter_mut().for_each(|expr| place_results(expr, base, window_results));
        }
        Ok(select)
    }
}

/// The expressions of a SELECT that are evaluated over the group's frame.
fn over_group<'a>(select: &'a mut Select, having: &'a mut Vec<Expr>) -> Vec<&'a mut Expr> {
    let mut exprs: Vec<&mut Expr> = select.targets.iter_mut().map(|target| &mut target.expr).collect();
    exprs.extend(having);
    for window in &mut select.windows {
        window.for_each_expr_mut(&mut |expr| exprs.push(expr));
    }
    for set in &mut select.set_returning {
        exprs.extend(set.call.exprs_mut());
    }
    exprs
}

/// Moves the expressions over the group's frame. The constraints of the primary keys that this
/// rests on.
fn regroup(select: &mut Select, group: &mut Group) -> Result<Vec<u32>> {
    // First the columns that depend on the keys become keys, since the places of the aggregates
    // follow the keys.
    let mut loose = vec![];
    for expr in over_group(select, &mut group.having) {
        collect_loose(expr, 0, &group.keys, &mut loose);
    }
    let mut rests_on = vec![];
    for (slot, within_subquery) in loose {
        let key = Expr::Slot(slot);
        if group.keys.contains(&key) {
            continue;
        }
        let Some(primary) = key_depended_on(select, slot, &group.common_keys()) else {
            return Err(ungrouped(select, slot, within_subquery));
        };
        rests_on.extend(primary.constraint);
        for set in group.sets.iter_mut().flatten() {
            set.push(group.keys.len());
        }
        group.keys.push(key);
    }
    let keys = std::mem::take(&mut group.keys);
    for expr in over_group(select, &mut group.having) {
        move_to_group(expr, 0, &keys);
    }
    group.keys = keys;
    Ok(rests_on)
}

/// An expression of the input's frame as it appears `level` levels further in.
fn key_at_level(key: &Expr, level: usize) -> Expr {
    let mut key = key.clone();
    if level > 0 {
        key.raise(0, level);
    }
    key
}

/// Collects the input's columns that are neither keys nor within aggregates; `level` is how many
/// levels in `expr` is.
fn collect_loose(expr: &Expr, level: usize, keys: &[Expr], loose: &mut Vec<(usize, bool)>) {
    if keys.iter().any(|key| same(&key_at_level(key, level), expr)) {
        return;
    }
    match expr {
        Expr::Slot(slot) if level == 0 => loose.push((*slot, false)),
        Expr::Outer { depth, slot } if *depth == level => loose.push((*slot, true)),
        Expr::Subquery(subquery) => {
            if let SubqueryBody::Bound(query) = &subquery.body {
                query.for_each_expr(&mut |inner, nested| {
                    collect_loose(inner, level + 1 + nested, keys, loose)
                });
            }
        }
        _ => {}
    }
    expr.for_each_child(&mut |child| collect_loose(child, level, keys, loose));
}

/// Replaces keys and aggregates by their places in the group's frame.
fn move_to_group(expr: &mut Expr, level: usize, keys: &[Expr]) {
    if let Some(place) = keys.iter().position(|key| same(&key_at_level(key, level), expr)) {
        *expr = if level == 0 { Expr::Slot(place) } else { Expr::Outer { depth: level, slot: place } };
        return;
    }
    match expr {
        Expr::Aggregate { depth, place } if *depth == level => {
            let slot = keys.len() + *place;
            *expr = if level == 0 { Expr::Slot(slot) } else { Expr::Outer { depth: level, slot } };
            return;
        }
        Expr::Subquery(subquery) => {
            if let SubqueryBody::Bound(query) = &mut subquery.body {
                query.for_each_expr_mut(&mut |inner, nested| move_to_group(inner, level + 1 + nested, keys));
            }
        }
        _ => {}
    }
    expr.for_each_child_mut(&mut |child| move_to_group(child, level, keys));
}

/// The primary key of a column's table, if it is among the keys: then the column is the same for
/// all rows of a group.
fn key_depended_on<'a>(select: &'a Select, slot: usize, keys: &[Expr]) -> Option<&'a Index> {
    let origin = select.slots.get(slot)?;
    let relation = &select.relations[origin.relation];
    let Source::Table(table) = &relation.source else { return None };
    let primary = table.primary_key()?;
    let is_grouped = |slot| keys.contains(&Expr::Slot(slot));
    let all = primary.key_columns().all(|column| relation.slots[column].is_some_and(is_grouped));
    all.then_some(primary)
}

fn ungrouped(select: &Select, slot: usize, within_subquery: bool) -> SqlError {
    let name = match select.slots.get(slot) {
        Some(origin) => {
            let relation = &select.relations[origin.relation];
            match (&relation.source, origin.part) {
                (Source::Table(table), SlotPart::Column(place)) => {
                    format!("{}.{}", relation.alias, table.columns[place].name)
                }
                (Source::Query(query), SlotPart::Column(place)) => {
                    format!("{}.{}", relation.alias, query.columns[place].name)
                }
                (Source::Virtual(table), SlotPart::Column(place)) => {
                    format!("{}.{}", relation.alias, table.columns()[place].0)
                }
                _ => relation.alias.clone(),
            }
        }
        None => "?".to_owned(),
    };
    let message = if within_subquery {
        format!("subquery uses ungrouped column \"{name}\" from outer query")
    } else {
        format!("column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function")
    };
    SqlError::new(sqlstate::GROUPING_ERROR, message)
}

/// Gives results of calls with OVER, and of set-returning calls, their places behind the frame.
pub(super) fn place_results(expr: &mut Expr, base: usize, windows: usize) {
    match expr {
        Expr::WindowResult(place) => *expr = Expr::Slot(base + *place),
        Expr::SetResult(place) => *expr = Expr::Slot(base + windows + *place),
        _ => expr.for_each_child_mut(&mut |child| place_results(child, base, windows)),
    }
}

fn check_sets(count: usize) -> Result<()> {
    if count <= MOST_SETS {
        return Ok(());
    }
    Err(SqlError::new(
        sqlstate::STATEMENT_TOO_COMPLEX,
        format!("too many grouping sets present (maximum {MOST_SETS})"),
    ))
}

/// Finds the arguments of GROUPING among the keys.
fn find_grouped(group: &mut Group) -> Result<()> {
    for call in &mut group.aggregates {
        let Some(grouping) = &mut call.grouping else { continue };
        for argument in std::mem::take(&mut call.arguments) {
            let place = group.keys.iter().position(|key| same(key, &argument)).ok_or_else(|| {
                SqlError::new(
                    sqlstate::GROUPING_ERROR,
                    "arguments to GROUPING must be grouping expressions of the associated query level",
                )
            })?;
            grouping.push(place);
        }
    }
    Ok(())
}
