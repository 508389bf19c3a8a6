//! Planning of windows: in which order they are computed, and which of them sort.
//!
//! Rows sorted for one window need not be sorted for another one whose keys are the first of those.
//! So windows with more keys come first where their keys begin alike. The window written first
//! comes last, so that a query without ORDER BY gives its rows in that one's order.
//!
//! Where the query around wants only rows with the first numbers of `row_number()`, the window is
//! told so: it need not sort the others.

use std::cmp::Ordering;

use super::estimate::sort_cost;
use super::{FirstRows, Node, SelectNode, SourceNode, WindowNode, WindowsNode};
use crate::bind::{Select, SortKey, Window, WindowCall};
use crate::expr::{Expr, same};
use crate::function::WindowFunction;
use crate::function::operator::Comparison;

/// Sort keys: expression, descending, NULLs first.
type Keys = Vec<(Expr, bool, bool)>;

/// Expressions, each with a number: the place where it was met first.
#[derive(Default)]
struct Numbers(Vec<Expr>);

impl Numbers {
    fn of(&mut self, expr: &Expr) -> usize {
        self.0.iter().position(|known| same(known, expr)).unwrap_or_else(|| {
            self.0.push(expr.clone());
            self.0.len() - 1
        })
    }
}

/// Plans the windows of a level whose (group's) frame has `base` places, if there are any. With
/// them what they cost over so many rows, and whether the rows they give are in the order that the
/// query wants.
pub(super) fn plan_windows(
    select: &mut Select,
    order: &[SortKey],
    base: usize,
    rows: f64,
) -> (Option<WindowsNode>, f64, bool) {
    if select.windows.is_empty() {
        return (None, 0.0, false);
    }
    let mut numbers = Numbers::default();
    for key in order {
        numbers.of(&select.targets[key.column].expr);
    }
    let windows = std::mem::take(&mut select.windows);
    let numbered: Vec<(Vec<usize>, Window)> = (windows.into_iter())
        .map(|window| {
            for (expr, ..) in &window.order {
                numbers.of(expr);
            }
            for expr in &window.partition {
                numbers.of(expr);
            }
            (window.sort_keys().iter().map(|(expr, ..)| numbers.of(expr)).collect(), window)
        })
        .collect();
    let mut numbered = numbered;
    numbered.sort_by(|(a, _), (b, _)| by_keys(a, b));
    let results = numbered.iter().map(|(_, window)| window.calls.len()).sum::<usize>();
    let first_computed = base + results + select.set_returning.len();
    let mut columns = Columns { computed: vec![], base, first: first_computed };
    let mut sorted: Keys = vec![];
    let mut stages = vec![];
    for (_, window) in numbered {
        let keys: Keys = window.sort_keys().into_iter().map(|(e, d, n)| (e.clone(), d, n)).collect();
        let is_sorted = keys.len() <= sorted.len() && keys.iter().zip(&sorted).all(|(a, b)| same(a, b));
        let sort = if is_sorted { vec![] } else { columns.of_all(&keys) };
        if !is_sorted {
            sorted = keys;
        }
        let partition: Keys = window.partition.into_iter().map(|expr| (expr, false, false)).collect();
        let calls = window.calls.into_iter().map(|call| WindowCall { place: base + call.place, ..call });
        stages.push(WindowNode {
            sort,
            first: None,
            partition: columns.of_all(&partition),
            order: columns.of_all(&window.order),
            frame: window.frame,
            calls: calls.collect(),
        });
    }
    let results = first_computed - base;
    let cost = stages.iter().map(|stage| stage_cost(stage, rows)).sum();
    let in_order = is_in_order(select, order, &sorted);
    (Some(WindowsNode { results, computed: columns.computed, stages }), cost, in_order)
}

/// Which window comes first: at the first key that differs, the one whose key was met later; else
/// the one with more keys.
fn by_keys(a: &[usize], b: &[usize]) -> Ordering {
    match a.iter().zip(b).find(|(a, b)| a != b) {
        Some((a, b)) => b.cmp(a),
        None => b.len().cmp(&a.len()),
    }
}

/// The places of keys in a row.
struct Columns {
    computed: Vec<Expr>,
    /// Number of places of the (group's) frame.
    base: usize,
    /// Place of the first computed key.
    first: usize,
}

impl Columns {
    fn of(&mut self, expr: &Expr) -> usize {
        match expr {
            Expr::Slot(slot) if *slot < self.base => *slot,
            expr => {
                let known = self.computed.iter().position(|known| same(known, expr));
                self.first
                    + known.unwrap_or_else(|| {
                        self.computed.push(expr.clone());
                        self.computed.len() - 1
                    })
            }
        }
    }

    fn of_all(&mut self, keys: &Keys) -> Vec<SortKey> {
        let key = |(expr, descending, nulls_first): &(Expr, bool, bool)| SortKey {
            column: self.of(expr),
            descending: *descending,
            nulls_first: *nulls_first,
        };
        keys.iter().map(key).collect()
    }
}

/// What computing a window over so many rows costs: about as much again as sorting them.
fn stage_cost(stage: &WindowNode, rows: f64) -> f64 {
    if stage.sort.is_empty() { sort_cost(rows) } else { 2.0 * sort_cost(rows) }
}

/// Whether rows in the order of `sorted` are in the order that a query wants.
fn is_in_order(select: &Select, order: &[SortKey], sorted: &Keys) -> bool {
    order.len() <= sorted.len()
        && order.iter().zip(sorted).all(|(key, (expr, descending, nulls_first))| {
            key.descending == *descending
                && key.nulls_first == *nulls_first
                && same(&select.targets[key.column].expr, expr)
        })
}

/// Tells the window of a derived table how many of each partition's first rows are wanted, if all
/// rows must satisfy these conditions and one of them says so.
pub(super) fn keep_first(source: &mut SourceNode, conditions: &[Expr]) {
    let SourceNode::Query { node, slots, .. } = source else { return };
    let Node::Select(select) = node.as_mut() else { return };
    let (level, places): (&SelectNode, &[(usize, usize)]) = (select, slots);
    let first = conditions.iter().find_map(|condition| first_rows(condition, level, places));
    if let Some(WindowsNode { stages, .. }) = &mut select.windows
        && let [stage] = stages.as_mut_slice()
        && !stage.sort.is_empty()
    {
        stage.first = first;
    }
}

/// What a condition says of the number of rows wanted. It counts only if no result depends on rows
/// behind those.
fn first_rows(condition: &Expr, select: &SelectNode, slots: &[(usize, usize)]) -> Option<FirstRows> {
    let Expr::Compare(comparison, operands) = condition else { return None };
    let calls: Vec<&WindowCall> =
        select.windows.iter().flat_map(|w| &w.stages).flat_map(|s| &s.calls).collect();
    let counts = |call: &&WindowCall| {
        use WindowFunction::{DenseRank, Rank, RowNumber};
        matches!(call.function.function.window_function(), Some(RowNumber | Rank | DenseRank))
    };
    let is_pure = select.set_returning.is_empty() && !select.targets.iter().any(Expr::is_volatile);
    if !is_pure || !calls.iter().all(counts) {
        return None;
    }
    let is_number = |expr: &Expr| {
        let Expr::Slot(slot) = expr else { return false };
        let column = slots.iter().find(|(_, place)| place == slot).map(|(column, _)| *column);
        let Some(Expr::Slot(place)) = column.and_then(|column| select.targets.get(column)) else {
            return false;
        };
        let call = calls.iter().find(|call| call.place == *place);
        call.is_some_and(|call| call.function.function.window_function() == Some(WindowFunction::RowNumber))
    };
    let (comparison, bound) = match operands.as_ref() {
        [number, bound] if is_number(number) => (*comparison, bound),
        [bound, number] if is_number(number) => (comparison.commuted(), bound),
        _ => return None,
    };
    let less = match comparison {
        Comparison::Less => true,
        Comparison::LessOrEqual | Comparison::Equal => false,
        _ => return None,
    };
    matches!(bound, Expr::Constant(_) | Expr::Parameter(_)).then(|| FirstRows { bound: bound.clone(), less })
}
