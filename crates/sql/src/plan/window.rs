//! Planning of windows: in which order they are computed, and which of them sort.
//!
//! Rows sorted for one window need not be sorted for another one whose keys are the first of those. So windows with more keys come first where their
//! keys begin alike. The window written first comes last, so that a query without ORDER BY gives its rows in that one's order.

use std::cmp::Ordering;

use super::estimate::sort_cost;
use super::{WindowNode, WindowsNode};
use crate::bind::{Select, SortKey, Window, WindowCall};
use crate::expr::{Expr, same};

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

/// Plans the windows of a level whose (group's) frame has `base` places, if there are any. With them what they cost over so many rows, and whether the
/// rows they give are in the order that the query wants.
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

/// Which window comes first: at the first key that differs, the one whose key was met later; else the one with more keys.
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
