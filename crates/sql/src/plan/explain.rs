//! Plans as text, for EXPLAIN.

use super::{Access, Body, Input, Node, Plan, Source};
use crate::bind::SetKind;
use crate::catalog::Table;

/// The lines of a plan.
pub(super) fn lines(plan: &Plan) -> Vec<String> {
    let mut out = Vec::new();
    if plan.has_locks() {
        out.push("LockRows".to_owned());
        node(&plan.root, 1, &mut out);
    } else {
        node(&plan.root, 0, &mut out);
    }
    out
}

fn line(depth: usize, text: &str, out: &mut Vec<String>) {
    let arrow = if depth == 0 { String::new() } else { format!("{}->  ", "      ".repeat(depth - 1)) };
    out.push(format!("{arrow}{text}"));
}

fn node(plan: &Node, mut depth: usize, out: &mut Vec<String>) {
    for cte in &plan.ctes {
        line(depth, &format!("CTE {}", cte.name), out);
        node(&cte.node, depth + 1, out);
        if let Some((recursive, _)) = &cte.recursive {
            node(recursive, depth + 1, out);
        }
    }
    if plan.limit.is_some() || plan.offset.is_some() {
        line(depth, "Limit", out);
        depth += 1;
    }
    if !plan.sort.is_empty() {
        line(depth, "Sort", out);
        depth += 1;
    }
    match &plan.body {
        Body::Values(rows) => line(depth, &format!("Values Scan  (rows={})", rows.len()), out),
        Body::SetOperation { kind, all, left, right } => {
            let kind = match kind {
                SetKind::Union => "Union",
                SetKind::Intersect => "Intersect",
                SetKind::Except => "Except",
            };
            line(depth, &format!("{kind}{}", if *all { " All" } else { "" }), out);
            node(left, depth + 1, out);
            node(right, depth + 1, out);
        }
        Body::Select(select) => {
            if select.distinct != crate::bind::Distinct::No {
                line(depth, "Unique", out);
                depth += 1;
            }
            if !select.set_returning.is_empty() {
                line(depth, "ProjectSet", out);
                depth += 1;
            }
            if let Some(group) = &select.group {
                line(depth, if group.keys.is_empty() { "Aggregate" } else { "HashAggregate" }, out);
                depth += 1;
            }
            input(&select.input, depth, out);
        }
    }
}

fn input(plan: &Input, depth: usize, out: &mut Vec<String>) {
    match plan {
        Input::Once => line(depth, "Result", out),
        Input::Filter { input: below, conditions } => {
            line(depth, &format!("Filter  (conditions={})", conditions.len()), out);
            input(below, depth + 1, out);
        }
        Input::Loop { left, right, missing } => {
            line(depth, if missing.is_some() { "Nested Loop Left Join" } else { "Nested Loop" }, out);
            input(left, depth + 1, out);
            input(right, depth + 1, out);
        }
        Input::Hash { left, right, outer, .. } => {
            line(depth, if *outer { "Hash Left Join" } else { "Hash Join" }, out);
            input(left, depth + 1, out);
            input(right, depth + 1, out);
        }
        Input::Full { left, right, .. } => {
            line(depth, "Full Join", out);
            input(left, depth + 1, out);
            input(right, depth + 1, out);
        }
        Input::Relation(relation) => {
            let what = match &relation.source {
                Source::Table(table, access) => scan(table, access, &relation.alias),
                Source::Virtual(table, _) => format!("Scan on {}", table.name()),
                Source::Cte(_) => format!("CTE Scan on {}", relation.alias),
                Source::Function(_) => format!("Function Scan on {}", relation.alias),
                Source::Query(_) => format!("Subquery Scan on {}", relation.alias),
            };
            line(depth, &what, out);
            if !relation.conditions.is_empty() {
                out.push(format!(
                    "{}Filter  (conditions={})",
                    "      ".repeat(depth + 1),
                    relation.conditions.len()
                ));
            }
            if let Source::Query(query) = &relation.source {
                node(query, depth + 1, out);
            }
        }
    }
}

fn scan(table: &Table, access: &Access, alias: &str) -> String {
    let name = if alias == table.name { table.name.clone() } else { format!("{} {alias}", table.name) };
    let Some(index) = access.index.and_then(|place| table.indexes.get(place)) else {
        return format!("Seq Scan on {name}");
    };
    let direction = if access.reverse { " Backward" } else { "" };
    let fixed = access.equal.len() + usize::from(access.any.is_some());
    let columns = |count: usize| {
        let names = index.columns[..count].iter().map(|c| table.columns[c.column].name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let mut text = format!("Index Scan{direction} using {} on {name}", index.name);
    if fixed > 0 {
        text.push_str(&format!("  (equal: {})", columns(fixed)));
    }
    if access.lower.is_some() || access.upper.is_some() {
        let column = &table.columns[index.columns[access.equal.len()].column].name;
        text.push_str(&format!("  (range: {column})"));
    }
    text
}
