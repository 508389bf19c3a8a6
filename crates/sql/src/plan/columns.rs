//! What the columns of a node's rows are called where they are keys of a node above it.
//!
//! As in PostgreSQL a column of a relation goes by its name, and what is computed below by what
//! computes it, in parentheses: `c`, `(sum(c))`. The texts are made when EXPLAIN asks, from what
//! the plan has anyway: the targets of its levels, and the relations that fill their frames.

use super::outputs::{self, COMPUTED};
use super::shown::{self, Names, Words, names_of_group};
use super::{GroupNode, Node, Plan, SelectNode, SourceNode};
use crate::bind::{RowsCall, SortKey, WindowCall};
use crate::expr::Expr;
use crate::types::FormatContext;

/// How columns are named in one statement.
#[derive(Clone, Copy)]
pub(super) struct Naming<'a> {
    /// With the names of their relations.
    pub(super) qualified: bool,
    /// How values are printed.
    pub(super) format: &'a FormatContext,
}

/// A column of rows: its name, or what computes it.
pub(super) struct Column {
    text: String,
    is_computed: bool,
}

impl Column {
    /// As a key of a node above; none if it has no name.
    pub(super) fn key(&self) -> Option<String> {
        let text = if self.is_computed { format!("({})", self.text) } else { self.text.clone() };
        named(text)
    }
}

/// A text, unless a part of it has no name.
pub(super) fn named(text: String) -> Option<String> {
    if text.contains(COMPUTED) { None } else { Some(text) }
}

/// What rows are sorted by; none if one of the columns has no name.
pub(super) fn sort_keys(keys: &[SortKey], column: impl Fn(usize) -> Option<String>) -> Option<Vec<String>> {
    let shown =
        |key: &SortKey| Some(column(key.column)? + shown::order_words(key.descending, key.nulls_first));
    keys.iter().map(shown).collect()
}

/// The columns of a node's rows.
pub(super) fn of_node(node: &Node, naming: Naming<'_>) -> Vec<Column> {
    match node {
        Node::Select(select) => {
            let level = Level::new(select, naming);
            select.targets.iter().map(|target| level.column(target)).collect()
        }
        Node::Values(rows) => {
            let width = rows.first().map_or(0, Vec::len);
            let relation = if naming.qualified { "\"*VALUES*\"." } else { "" };
            let column = |place| Column { text: format!("{relation}column{place}"), is_computed: false };
            (1..=width).map(column).collect()
        }
        Node::SetOperation { left, .. } => of_node(left, naming),
        Node::Sort { input, .. }
        | Node::Distinct { input, .. }
        | Node::Limit { input, .. }
        | Node::With { input, .. } => of_node(input, naming),
        Node::Convert { input, casts } => {
            let converted = of_node(input, naming).into_iter().zip(casts).map(|(column, cast)| match cast {
                Some(cast) if cast.from.id != cast.to.id => {
                    let text = format!("({})::{}", column.text, cast.to.format_with(naming.format));
                    Column { text, is_computed: true }
                }
                _ => column,
            });
            converted.collect()
        }
    }
}

/// One query level, with what the places of its rows are called.
pub(super) struct Level<'a> {
    select: &'a SelectNode,
    /// The frame, or the group's frame; then the results of windows and of set-returning calls, and
    /// the keys of windows that are computed.
    places: Names,
    format: &'a FormatContext,
}

impl<'a> Level<'a> {
    pub(super) fn new(select: &'a SelectNode, naming: Naming<'a>) -> Level<'a> {
        let format = naming.format;
        let below = outputs::names(&select.source, naming.qualified);
        let mut places = match &select.group {
            Some(group) => names_of_group(group, select.frame, Words::of(&below, format)),
            None => below,
        };
        let behind = behind(select, Words::of(&places, format));
        places.extend(behind);
        Level { select, places, format }
    }

    /// What expressions over its rows are printed with.
    pub(super) fn words(&self) -> Words<'_> {
        Words::of(&self.places, self.format)
    }

    /// What is at a place of its rows.
    pub(super) fn place(&self, place: usize) -> Column {
        self.column(&Expr::Slot(place))
    }

    fn column(&self, expr: &Expr) -> Column {
        let text = shown::expression(expr, self.words());
        Column { text, is_computed: !self.is_of_relation(expr) }
    }

    /// Whether it is a column of a relation.
    fn is_of_relation(&self, expr: &Expr) -> bool {
        let Expr::Slot(place) = expr else { return false };
        match &self.select.group {
            Some(group) => matches!(group.keys.get(*place), Some(Expr::Slot(_))),
            None => *place < self.select.frame,
        }
    }
}

/// What the places behind a level's (group's) frame are called.
fn behind(select: &SelectNode, words: Words<'_>) -> Vec<(usize, String)> {
    let base = select.group.as_ref().map_or(select.frame, GroupNode::width);
    let stages = select.windows.iter().flat_map(|windows| &windows.stages);
    let calls: Vec<&WindowCall> = stages.flat_map(|stage| &stage.calls).collect();
    let mut all: Vec<(usize, String)> =
        calls.iter().map(|call| (call.place, shown::window_call(call, words))).collect();
    for (place, set) in select.set_returning.iter().enumerate() {
        if let RowsCall::Set { function, arguments, .. } = &set.call {
            let text = format!("{}({})", function.name, shown::list(arguments.iter(), words));
            all.push((base + calls.len() + place, text));
        }
    }
    if let Some(windows) = &select.windows {
        let computed = windows.computed.iter().map(|key| shown::expression(key, words));
        all.extend(computed.enumerate().map(|(place, text)| (base + windows.results + place, text)));
    }
    all
}

/// How many relations a plan reads. Where there is more than one, PostgreSQL names them with each
/// column; a derived table counts by itself, as it does there.
pub(super) fn relations(plan: &Plan) -> usize {
    let of_with = plan.cte_plans.iter().flatten().map(|cte| {
        1 + relations_of(&cte.node) + cte.recursive.as_ref().map_or(0, |(step, _)| relations_of(step))
    });
    let mut subqueries = 0;
    plan.root.walk(0, &mut |expr, _| subqueries += usize::from(expr.has_subquery()));
    relations_of(&plan.root) + of_with.sum::<usize>() + subqueries
}

fn relations_of(node: &Node) -> usize {
    match node {
        Node::Select(select) => relations_in(&select.source),
        Node::Values(_) => 1,
        Node::SetOperation { left, right, .. } => 2 + relations_of(left) + relations_of(right),
        Node::Sort { input, .. }
        | Node::Distinct { input, .. }
        | Node::Limit { input, .. }
        | Node::Convert { input, .. }
        | Node::With { input, .. } => relations_of(input),
    }
}

fn relations_in(source: &SourceNode) -> usize {
    match source {
        SourceNode::Unit | SourceNode::Nothing => 0,
        SourceNode::Scan(_)
        | SourceNode::Virtual { .. }
        | SourceNode::Cte { .. }
        | SourceNode::Function { .. } => 1,
        SourceNode::Query { node, .. } => 1 + relations_of(node),
        SourceNode::Filter { input, .. }
        | SourceNode::First(input)
        | SourceNode::Materialize { input, .. } => relations_in(input),
        SourceNode::NestedLoop { outer, inner, .. } => relations_in(outer) + relations_in(inner),
        SourceNode::HashJoin(join) => relations_in(&join.probe) + relations_in(&join.build),
        SourceNode::MergeJoin(join) => relations_in(&join.outer) + relations_in(&join.inner),
    }
}
