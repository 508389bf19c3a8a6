//! Access paths: which index serves the conditions on a stored table, and how well.
//!
//! A condition serves a key column if it compares the column itself with something known when the
//! scan is opened: constants, parameters, enclosing queries, relations placed before. Equalities
//! fill the key's columns from the first on, then one range may follow:
//!
//! ```text
//! index (a, b, c)   a = $1 AND b > 5 AND b <= 9 AND c = 3
//!                   └ part  └───── range ─────┘     └ stays a filter
//! ```
//!
//! Conditions that the access fulfils exactly are dropped from the filter; a LIKE stays, since its
//! prefix only narrows the range.
//!
//! A part of a key that is an expression is served by a condition on the same expression. A partial
//! index is one of the ways only if the conditions imply its predicate (see `partial`); then it may
//! be read as a whole, too.

use super::access::{Access, AccessKind, KeyPart, KeyRange, KeyValues, RangeBound};
use super::estimate::{
    BETWEEN, BEYOND, FETCH_ROW, OPEN, PREFIX, ROWS_FOR_KEY, SCAN_ROW, UNKNOWN_ELEMENTS, UNKNOWN_ROWS,
    reads_slots, selectivity, selectivity_with,
};
use super::partial;
use super::relation::{Condition, Mask, bit, column_of, mask_of, over_slots, type_of, values_within};
use crate::bind::{BoundComputed, Relation, RowCounts, Select, SlotPart, Source, bound_computed};
use crate::catalog::{Index, IndexColumn, IndexKey, Table};
use crate::expr::{Expr, SubqueryBody, SubqueryKind, same};
use crate::function::operator::Comparison;
use crate::keys::KeyOrder;
use crate::types::TypeId;

/// A wanted order: column, descending, NULLs first.
pub(super) type WantedOrder = Vec<(usize, bool, bool)>;

/// A way to read a table.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) access: Access,
    /// The conditions it fulfils, by their place.
    pub(super) consumed: Vec<usize>,
    /// Rows after all conditions that can be tested.
    pub(super) rows: f64,
    pub(super) cost: f64,
    /// Gives the wanted order.
    pub(super) ordered: bool,
}

/// What a condition offers for one part of a key.
struct Sarg {
    condition: usize,
    key: IndexKey,
    offer: Offer,
}

/// Which part of keys an operand is, and its type; none if it is none of those looked for.
type KeyOf<'a> = dyn Fn(&Expr) -> Option<(IndexKey, TypeId)> + 'a;

enum Offer {
    Equal(KeyValues),
    Range(RangeBound),
    Pattern(Expr),
}

/// What paths are searched for.
pub(super) struct Search<'a> {
    pub(super) select: &'a Select,
    pub(super) parameters: &'a [TypeId],
    pub(super) relation: usize,
    pub(super) conditions: &'a [Condition],
    /// Relations whose columns are known when the scan is opened.
    pub(super) available: Mask,
    pub(super) rows: f64,
    pub(super) row_counts: &'a dyn RowCounts,
}

impl Search<'_> {
    /// The ways to read the table; those that give `wanted` order say so.
    pub(super) fn paths(&self, wanted: Option<&WantedOrder>) -> Vec<Path> {
        let relation = &self.select.relations[self.relation];
        let Source::Table(table) = &relation.source else { return vec![] };
        let mut sargs = self.sargs(&|expr| {
            let column = column_of(self.select, self.relation, expr)?;
            Some((IndexKey::Column(column), table.columns[column].ty.id))
        });
        let bound = if table.has_computed() { bound_computed(table) } else { None };
        if let Some(bound) = &bound {
            self.expression_sargs(table, relation, bound, &mut sargs);
        }
        let mut paths = vec![self.full_scan()];
        for index in table.indexes.iter().filter(|index| self.row_counts.leads_to_all(index)) {
            let implied = match (index.is_plain(), &bound) {
                (true, _) => Implied::whole(),
                (false, Some(bound)) => match self.implied(relation, bound, index) {
                    Some(implied) => implied,
                    None => continue,
                },
                (false, None) => continue,
            };
            paths.extend(self.index_path(table, index, &sargs, implied, wanted));
        }
        paths
    }

    /// What the conditions offer for the expressions of the table's indexes.
    fn expression_sargs(
        &self,
        table: &Table,
        relation: &Relation,
        bound: &BoundComputed,
        sargs: &mut Vec<Sarg>,
    ) {
        for index in &table.indexes {
            let Some(computing) = bound.of(index) else { continue };
            for (place, expression) in &computing.expressions {
                let key = IndexKey::Expression(*place);
                let ty = table.key_type(index, key).id;
                if let Some(expression) = over_slots(relation, expression) {
                    sargs.extend(self.sargs(&|expr| same(expr, &expression).then_some((key, ty))));
                }
            }
        }
    }

    /// What the conditions say about an index's predicate; none if they do not imply it.
    fn implied(&self, relation: &Relation, bound: &BoundComputed, index: &Index) -> Option<Implied> {
        let computing = bound.of(index)?;
        let mut implied = Implied::whole();
        let known: Vec<(usize, &Expr)> = self.here().map(|(place, one)| (place, &one.expr)).collect();
        for conjunct in &computing.conjuncts {
            let over = over_slots(relation, conjunct)?;
            let exact = partial::implies(&known, &over)?;
            implied.consumed.extend(exact);
            implied.share *= selectivity(conjunct);
        }
        if index.predicate.is_some()
            && let (Some(entries), true) = (self.row_counts.entries(index), self.rows > UNKNOWN_ROWS)
        {
            implied.share = (entries as f64 / self.rows).min(1.0);
        }
        Some(implied)
    }

    /// The conditions that can be tested at the scan.
    fn here(&self) -> impl Iterator<Item = (usize, &Condition)> {
        let here = self.available | bit(self.relation);
        self.conditions.iter().enumerate().filter(move |(_, condition)| {
            condition.mask & !here == 0 && condition.mask & bit(self.relation) != 0 && !condition.volatile
        })
    }

    /// Share of the rows that pass the conditions testable at the scan, without those at `except`.
    fn remaining(&self, except: &[usize]) -> f64 {
        let here = self.available | bit(self.relation);
        (self.conditions.iter().enumerate())
            .filter(|(place, condition)| {
                !except.contains(place)
                    && condition.mask & !here == 0
                    && condition.mask & bit(self.relation) != 0
            })
            .map(|(_, condition)| self.selectivity(&condition.expr))
            .product()
    }

    /// The share of the table's rows for which a condition holds. A column of another relation is
    /// one value here, like a parameter.
    fn selectivity(&self, expr: &Expr) -> f64 {
        selectivity_with(expr, &|expr| values_within(self.select, self.row_counts, self.relation, expr))
    }

    /// The share of the table's rows that one combination of values of a key's first parts leaves;
    /// none if nothing is known of one of them.
    fn share_of_parts(&self, table: &Table, index: &Index, parts: &[KeyPart]) -> Option<f64> {
        let mut share = 1.0;
        for (column, part) in index.columns.iter().zip(parts) {
            let IndexKey::Column(place) = column.key else { return None };
            let values = self.row_counts.values(table, place)?;
            share *= match &part.values {
                KeyValues::Null => values.share_of_null(),
                KeyValues::One(value) if !reads_slots(value) => values.share_of_sought(),
                KeyValues::List(list) if !list.iter().any(reads_slots) => {
                    let items = list.len().max(1) as f64;
                    values.share_of_list(items) / items
                }
                KeyValues::Array(array) if !reads_slots(array) => values.share_of_element(UNKNOWN_ELEMENTS),
                _ => values.share_of_one(),
            };
        }
        Some(share)
    }

    fn full_scan(&self) -> Path {
        Path {
            access: Access::everything(false),
            consumed: vec![],
            rows: (self.rows * self.remaining(&[])).max(1.0),
            cost: OPEN + self.rows * SCAN_ROW,
            ordered: false,
        }
    }

    /// Whether an expression is known when the scan is opened.
    fn is_known(&self, expr: &Expr) -> bool {
        mask_of(self.select, expr) & !self.available == 0 && !expr.is_volatile()
    }

    /// Floats of different width compare by value, but their keys differ.
    fn key_fits(&self, column: TypeId, value: &Expr) -> bool {
        match column {
            TypeId::Float4 | TypeId::Float8 => type_of(self.select, self.parameters, value) == Some(column),
            _ => true,
        }
    }

    fn sargs(&self, key_of: &KeyOf<'_>) -> Vec<Sarg> {
        let offered = |(condition, one): (usize, &Condition)| {
            let (key, offer) = self.offer(key_of, &one.expr)?;
            Some(Sarg { condition, key, offer })
        };
        self.here().filter_map(offered).collect()
    }

    fn offer(&self, key_of: &KeyOf<'_>, expr: &Expr) -> Option<(IndexKey, Offer)> {
        match expr {
            Expr::Compare(comparison, operands) => {
                let [left, right] = operands.as_ref();
                let ((key, ty), comparison, value) = match (key_of(left), key_of(right)) {
                    (Some(key), _) if self.is_known(right) => (key, *comparison, right),
                    (_, Some(key)) if self.is_known(left) => (key, comparison.commuted(), left),
                    _ => return None,
                };
                if !self.key_fits(ty, value) {
                    return None;
                }
                let value = value.clone();
                match comparison {
                    Comparison::Equal => Some((key, Offer::Equal(KeyValues::One(value)))),
                    Comparison::NotEqual => None,
                    _ => Some((key, Offer::Range(RangeBound { comparison, value }))),
                }
            }
            Expr::InList(list) if !list.negated => {
                let (key, ty) = key_of(&list.operand)?;
                let mut items: Vec<Expr> = list.items.clone();
                items.extend(list.constants.iter().flat_map(|set| set.iter().cloned().map(Expr::Constant)));
                let usable = items.iter().all(|item| self.is_known(item) && self.key_fits(ty, item));
                usable.then_some((key, Offer::Equal(KeyValues::List(items))))
            }
            Expr::Or(parts) => self.equal_to_any(key_of, parts),
            Expr::Quantified(any) if !any.all && any.operator.comparison() == Some(Comparison::Equal) => {
                let (key, ty) = key_of(&any.operand)?;
                let fits = !matches!(ty, TypeId::Float4 | TypeId::Float8);
                (fits && self.is_known(&any.array))
                    .then(|| (key, Offer::Equal(KeyValues::Array(any.array.clone()))))
            }
            Expr::Subquery(subquery) => match (&subquery.kind, &subquery.body) {
                (
                    SubqueryKind::Any { operands, hashable: true, all: false, .. },
                    SubqueryBody::Planned { cache: Some(_), .. },
                ) if operands.len() == 1 => {
                    let (key, ty) = key_of(&operands[0])?;
                    let fits = !matches!(ty, TypeId::Float4 | TypeId::Float8);
                    fits.then(|| (key, Offer::Equal(KeyValues::Subquery(expr.clone()))))
                }
                _ => None,
            },
            Expr::IsNull { operand, negated: false } => {
                Some((key_of(operand)?.0, Offer::Equal(KeyValues::Null)))
            }
            Expr::Not(operand) => Some((key_of(operand)?.0, Offer::Equal(KeyValues::One(Expr::FALSE)))),
            Expr::Operator(call) if call.operator.name == "~~" => {
                let (key, ty) = key_of(&call.left)?;
                let is_text = matches!(ty, TypeId::Text | TypeId::Varchar | TypeId::Name);
                (is_text && self.is_known(&call.right)).then(|| (key, Offer::Pattern(call.right.clone())))
            }
            // A boolean by itself.
            _ => Some((key_of(expr)?.0, Offer::Equal(KeyValues::One(Expr::TRUE)))),
        }
    }

    /// `a = 1 OR a = 2` is `a IN (1, 2)`.
    fn equal_to_any(&self, key_of: &KeyOf<'_>, parts: &[Expr]) -> Option<(IndexKey, Offer)> {
        let mut key = None;
        let mut items = vec![];
        for part in parts {
            let (own, offer) = self.offer(key_of, part)?;
            if *key.get_or_insert(own) != own {
                return None;
            }
            match offer {
                Offer::Equal(KeyValues::One(value)) => items.push(value),
                Offer::Equal(KeyValues::List(values)) => items.extend(values),
                _ => return None,
            }
        }
        key.map(|key| (key, Offer::Equal(KeyValues::List(items))))
    }

    fn index_path(
        &self,
        table: &Table,
        index: &Index,
        sargs: &[Sarg],
        implied: Implied,
        wanted: Option<&WantedOrder>,
    ) -> Option<Path> {
        let Use { parts, range, mut consumed } = key_use(table, index, sargs);
        let direction = wanted.and_then(|wanted| self.direction(table, index, &parts, wanted));
        if parts.is_empty() && range.is_none() && direction.is_none() && index.predicate.is_none() {
            return None;
        }
        let rows = (self.rows * implied.share).max(1.0);
        let known = |parts: &[KeyPart]| self.share_of_parts(table, index, parts);
        let (access, found, cost) = access(index, parts, range, direction, rows, &known);
        consumed.extend(implied.consumed);
        Some(Path {
            rows: (found * self.remaining(&consumed)).max(if access.unique { 0.5 } else { 1.0 }),
            cost,
            ordered: access.ordered,
            access,
            consumed,
        })
    }

    /// Whether the index gives the wanted order, and then if it is to be read backwards.
    fn direction(
        &self,
        table: &Table,
        index: &Index,
        parts: &[KeyPart],
        wanted: &WantedOrder,
    ) -> Option<bool> {
        if parts.iter().any(|part| !part.is_single()) {
            return None;
        }
        let is_it = |key: IndexKey, column: usize| key == IndexKey::Column(column);
        let fixed = |column: usize| index.columns[..parts.len()].iter().any(|known| is_it(known.key, column));
        let mut following = index.columns[parts.len()..].iter().chain(key_of_rows(table, index));
        let mut reverse = None;
        for (column, descending, nulls_first) in wanted {
            if fixed(*column) {
                continue;
            }
            let next = following.next().filter(|next| is_it(next.key, *column))?;
            let against = *descending != next.descending;
            let nulls_fit = (*nulls_first != next.nulls_first) == against;
            if !nulls_fit && !table.columns[*column].not_null {
                return None;
            }
            if *reverse.get_or_insert(against) != against {
                return None;
            }
        }
        Some(reverse.unwrap_or(false))
    }
}

/// What entries that are equal in the index's own columns are ordered by: the primary key of their
/// rows, which ends their keys, without what the index has itself. Nothing of a unique index, whose
/// entries end without, and of a table that has no such key.
fn key_of_rows<'a>(table: &'a Table, index: &'a Index) -> impl Iterator<Item = &'a IndexColumn> {
    let key = table.primary_key().filter(|_| !index.unique);
    let has = move |key: IndexKey| index.columns.iter().any(|column| column.key == key);
    key.into_iter().flat_map(|key| key.columns.iter()).filter(move |column| !has(column.key))
}

/// What conditions say about an index's predicate, which they imply.
struct Implied {
    /// Those that say just the same as a part of it.
    consumed: Vec<usize>,
    /// Share of the table's rows that have an entry.
    share: f64,
}

impl Implied {
    /// Without a predicate.
    fn whole() -> Implied {
        Implied { consumed: vec![], share: 1.0 }
    }
}

/// What conditions fix of an index's key.
struct Use {
    parts: Vec<KeyPart>,
    range: Option<KeyRange>,
    consumed: Vec<usize>,
}

/// Values for the first columns of the key, as far as they go, then a range of the next.
fn key_use(table: &Table, index: &Index, sargs: &[Sarg]) -> Use {
    let mut parts = vec![];
    let mut consumed = vec![];
    let mut range = None;
    for column in &index.columns {
        let ty = table.key_type(index, column.key).id;
        let order = column.order();
        match best_equality(sargs, column.key) {
            Some((condition, values)) => {
                parts.push(KeyPart { values: values.clone(), ty, order });
                consumed.push(condition);
            }
            None => {
                range = find_range(sargs, column.key, ty, order, &mut consumed);
                break;
            }
        }
    }
    Use { parts, range, consumed }
}

/// The access by an index, the rows it finds and what it costs. With a `direction` it was chosen
/// for its order. `known` is the share of the rows that one combination of the parts' values
/// leaves.
fn access(
    index: &Index,
    parts: Vec<KeyPart>,
    range: Option<KeyRange>,
    direction: Option<bool>,
    rows: f64,
    known: &dyn Fn(&[KeyPart]) -> Option<f64>,
) -> (Access, f64, f64) {
    let has_null = parts.iter().any(|part| matches!(part.values, KeyValues::Null));
    let unique = index.unique && parts.len() == index.columns.len() && !has_null;
    let known = if unique { None } else { known(&parts) };
    let found = found_rows(index, &parts, range.as_ref(), unique, rows, known);
    let kind =
        if index.is_clustered() { AccessKind::Table } else { AccessKind::Index(Box::new(index.clone())) };
    let per_row = if index.is_clustered() { SCAN_ROW } else { SCAN_ROW + FETCH_ROW };
    let cost = if unique && index.is_clustered() { found } else { OPEN + found * per_row };
    let (reverse, ordered) = (direction.unwrap_or(false), direction.is_some());
    (Access { kind, parts, range, reverse, ordered, unique }, found, cost)
}

/// So many combinations of values the parts have.
fn combinations(parts: &[KeyPart]) -> f64 {
    (parts.iter())
        .map(|part| match &part.values {
            KeyValues::One(_) | KeyValues::Null => 1.0,
            KeyValues::List(items) => items.len().max(1) as f64,
            KeyValues::Array(_) | KeyValues::Subquery(_) => UNKNOWN_ELEMENTS,
        })
        .product()
}

/// Rows the access finds.
fn found_rows(
    index: &Index,
    parts: &[KeyPart],
    range: Option<&KeyRange>,
    unique: bool,
    rows: f64,
    known: Option<f64>,
) -> f64 {
    let combinations = combinations(parts);
    if unique {
        return combinations;
    }
    let mut found = rows;
    if !parts.is_empty() {
        let count = parts.len() as f64;
        // If nothing is known, a prefix of a unique key leaves the other columns to count; of
        // another key, what is usual.
        found = match known {
            Some(share) => (rows * share).max(1.0),
            None if index.unique => rows.powf(1.0 - count / index.columns.len() as f64).min(ROWS_FOR_KEY),
            None => (rows * 0.01_f64.powf(count)).clamp(1.0, ROWS_FOR_KEY),
        } * combinations;
    }
    if let Some(range) = range {
        found *= match (&range.lower, &range.upper, &range.pattern) {
            (Some(_), Some(_), _) => BETWEEN,
            (_, _, Some(_)) => PREFIX,
            _ => BEYOND,
        };
    }
    found.clamp(1.0, rows.max(1.0))
}

/// The equality on a part of the key that leaves the fewest values.
fn best_equality(sargs: &[Sarg], key: IndexKey) -> Option<(usize, &KeyValues)> {
    let rank = |values: &KeyValues| match values {
        KeyValues::One(_) => 0,
        KeyValues::Null => 1,
        KeyValues::List(_) => 2,
        KeyValues::Array(_) => 3,
        KeyValues::Subquery(_) => 4,
    };
    (sargs.iter())
        .filter(|sarg| sarg.key == key)
        .filter_map(|sarg| match &sarg.offer {
            Offer::Equal(values) => Some((sarg.condition, values)),
            _ => None,
        })
        .min_by_key(|(_, values)| rank(values))
}

/// The bounds on a part of the key: the first lower and the first upper one, or a pattern.
fn find_range(
    sargs: &[Sarg],
    key: IndexKey,
    ty: TypeId,
    order: KeyOrder,
    consumed: &mut Vec<usize>,
) -> Option<KeyRange> {
    let mut range = KeyRange { lower: None, upper: None, pattern: None, ty, order };
    for sarg in sargs.iter().filter(|sarg| sarg.key == key) {
        match &sarg.offer {
            Offer::Range(bound) => {
                let is_lower = matches!(bound.comparison, Comparison::Greater | Comparison::GreaterOrEqual);
                let place = if is_lower { &mut range.lower } else { &mut range.upper };
                if place.is_none() {
                    *place = Some(bound.clone());
                    consumed.push(sarg.condition);
                }
            }
            // Keys of descending columns do not keep prefixes together with what follows.
            Offer::Pattern(pattern) if !order.descending => {
                range.pattern.get_or_insert_with(|| pattern.clone());
            }
            _ => {}
        }
    }
    if range.lower.is_some() || range.upper.is_some() {
        range.pattern = None;
    }
    let any = range.lower.is_some() || range.upper.is_some() || range.pattern.is_some();
    any.then_some(range)
}

/// The wanted order in terms of one relation's columns, if all its places are of that relation.
pub(super) fn order_of_relation(
    select: &Select,
    relation: usize,
    order: &[(usize, bool, bool)],
) -> Option<WantedOrder> {
    order
        .iter()
        .map(|(slot, descending, nulls_first)| {
            let origin = select.slots.get(*slot)?;
            match origin.part {
                SlotPart::Column(column) if origin.relation == relation => {
                    Some((column, *descending, *nulls_first))
                }
                _ => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(columns: usize, unique: bool) -> Index {
        Index {
            oid: 1,
            name: "i".to_owned(),
            tree: 1,
            columns: (0..columns).map(IndexColumn::ascending).collect(),
            expressions: vec![],
            predicate: None,
            unique,
            deferrable: None,
            nulls_not_distinct: false,
            included: vec![],
            options: vec![],
            hash: false,
            primary: false,
            constraint: None,
            comment: None,
            constraint_comment: None,
        }
    }

    fn part(values: KeyValues) -> KeyPart {
        KeyPart { values, ty: TypeId::Bool, order: IndexColumn::ascending(0).order() }
    }

    #[test]
    fn an_index_finds_what_is_known_of_its_columns_and_else_what_is_usual() {
        let one = || part(KeyValues::One(Expr::TRUE));
        let found =
            |index: &Index, parts: &[KeyPart], known| found_rows(index, parts, None, false, 10_000.0, known);
        let (plain, unique) = (index(1, false), index(2, true));
        assert_eq!(found(&plain, &[one()], None), ROWS_FOR_KEY);
        assert_eq!(found(&plain, &[one()], Some(0.25)), 2500.0);
        assert_eq!(found(&plain, &[one()], Some(0.0)), 1.0);
        let two = part(KeyValues::List(vec![Expr::TRUE, Expr::FALSE]));
        assert_eq!(found(&plain, &[two], Some(0.25)), 5000.0);
        assert_eq!(found(&unique, &[one()], None), ROWS_FOR_KEY);
        assert_eq!(found(&unique, &[one()], Some(0.125)), 1250.0);
    }
}
