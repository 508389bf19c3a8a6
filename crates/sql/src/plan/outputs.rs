//! What the nodes of a plan give, for EXPLAIN with VERBOSE: `t.id`, `t.name`.
//!
//! Programs compare these texts: where a column of the statement is one that the inner side of an
//! outer join gives, it may be NULL. So a place of a frame has one name wherever it is told, and no
//! two places have the same one: of two relations that are called alike the second is `t_1`. What
//! is computed has no name but `?column?`.

use std::collections::BTreeMap;

use super::{Node, SelectNode, SourceNode};
use crate::expr::Expr;
use crate::identifier::quote_identifier;

/// What has no name.
pub(super) const COMPUTED: &str = "?column?";

/// The columns that a node gives.
pub(super) fn of_node(node: &Node) -> Vec<String> {
    match node {
        Node::Select(select) => of_select(select),
        Node::Values(rows) => {
            let columns = rows.first().map_or(0, Vec::len);
            (1..=columns).map(|place| format!("\"*VALUES*\".column{place}")).collect()
        }
        Node::SetOperation { left, .. } => of_node(left),
        Node::Sort { input, .. }
        | Node::Distinct { input, .. }
        | Node::Limit { input, .. }
        | Node::With { input, .. } => of_node(input),
        Node::Convert { input, casts } => {
            let mut output = of_node(input);
            output.truncate(casts.len());
            output
        }
    }
}

fn of_select(select: &SelectNode) -> Vec<String> {
    let names = names(&select.source, true);
    let name = |target: &Expr| {
        let target = match (&select.group, target) {
            (Some(group), Expr::Slot(place)) => group.keys.get(*place)?,
            (Some(_), _) => return None,
            (None, target) => target,
        };
        match target {
            Expr::Slot(slot) => names.get(slot).cloned(),
            _ => None,
        }
    };
    select.targets.iter().map(|target| name(target).unwrap_or_else(|| COMPUTED.to_owned())).collect()
}

/// The columns that a source fills, by their names in its frame.
pub(super) fn of_source(source: &SourceNode, names: &BTreeMap<usize, String>) -> Vec<String> {
    let mut filled = Vec::new();
    each_column(source, &mut |_, columns| filled.extend(columns.iter().map(|(slot, _)| *slot)));
    filled.iter().filter_map(|slot| names.get(slot).cloned()).collect()
}

/// What the places are called that a source fills; `qualified`: with their relations' names.
pub(super) fn names(source: &SourceNode, qualified: bool) -> BTreeMap<usize, String> {
    let mut relations: Vec<String> = Vec::new();
    let mut names = BTreeMap::new();
    each_column(source, &mut |name, columns| {
        let mut relation = name.to_owned();
        let mut copies = 0;
        while relations.contains(&relation) {
            copies += 1;
            relation = format!("{name}_{copies}");
        }
        // Rows that the statement gives no name have none here.
        let prefix = match qualified && !name.is_empty() {
            true => format!("{}.", quote_identifier(&relation)),
            false => String::new(),
        };
        for (slot, column) in columns {
            names.insert(*slot, format!("{prefix}{}", quote_identifier(column)));
        }
        relations.push(relation);
    });
    names
}

/// Is given a relation's name, and place and name of each column that is read of it.
type EachRelation<'a> = dyn FnMut(&str, &[(usize, String)]) + 'a;

/// Calls `each` with every relation of a source: its name, and place and name of each column that
/// is read of it.
fn each_column(source: &SourceNode, each: &mut EachRelation<'_>) {
    let derived = |slots: &[(usize, usize)], columns: Option<&[String]>| -> Vec<(usize, String)> {
        let name_of = |column: usize| match columns.and_then(|columns| columns.get(column)) {
            Some(name) if !name.is_empty() => name.clone(),
            _ => format!("column{}", column + 1),
        };
        slots.iter().map(|(column, slot)| (*slot, name_of(*column))).collect()
    };
    match source {
        SourceNode::Unit | SourceNode::Nothing => {}
        SourceNode::Scan(scan) => {
            let name_of = |column: usize| scan.table.columns[column].name.clone();
            let columns = scan.columns.iter().map(|column| (column.slot, name_of(column.column)));
            each(&scan.name, &columns.collect::<Vec<_>>());
        }
        SourceNode::Virtual { table, slots, .. } => {
            let name_of = |column: usize| table.columns().get(column).map_or("", |(name, _)| *name);
            let columns = slots.iter().map(|(column, slot)| (*slot, name_of(*column).to_owned()));
            each(table.name(), &columns.collect::<Vec<_>>());
        }
        SourceNode::Query { slots, name, columns, .. }
        | SourceNode::Cte { slots, name, columns, .. }
        | SourceNode::Function { slots, name, columns, .. } => {
            each(name, &derived(slots, columns.as_deref()));
        }
        SourceNode::Filter { input, .. }
        | SourceNode::First(input)
        | SourceNode::Materialize { input, .. } => each_column(input, each),
        SourceNode::NestedLoop { outer, inner, .. } => {
            each_column(outer, each);
            each_column(inner, each);
        }
        SourceNode::HashJoin(join) => {
            each_column(&join.probe, each);
            each_column(&join.build, each);
        }
        SourceNode::MergeJoin(join) => {
            each_column(&join.outer, each);
            each_column(&join.inner, each);
        }
    }
}
