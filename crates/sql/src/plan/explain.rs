//! Plans as text, for EXPLAIN.

use super::access::{Access, AccessKind, KeyValues, Scan};
use super::{Node, Plan, SourceNode};

/// One line a node, indented as PostgreSQL does.
pub(super) fn explain(plan: &Plan) -> Vec<String> {
    let mut out = Lines::default();
    let mut depth = 0;
    if plan.limit.is_some() || plan.offset.is_some() {
        out.line(depth, "Limit");
        depth += 1;
    }
    if plan.has_locks() {
        out.line(depth, "LockRows");
        depth += 1;
    }
    out.node(&plan.root, depth);
    for cte in plan.cte_plans.iter().flatten() {
        out.line(0, format!("CTE {}", cte.name));
        out.node(&cte.node, 1);
        if let Some((recursive, _)) = &cte.recursive {
            out.node(recursive, 1);
        }
    }
    out.lines
}

#[derive(Default)]
struct Lines {
    lines: Vec<String>,
}

impl Lines {
    fn line(&mut self, depth: usize, text: impl AsRef<str>) {
        let arrow = if depth == 0 { String::new() } else { format!("{}->  ", " ".repeat(depth * 6 - 4)) };
        self.lines.push(format!("{arrow}{}", text.as_ref()));
    }

    fn detail(&mut self, depth: usize, text: impl AsRef<str>) {
        self.lines.push(format!("{}{}", " ".repeat(depth * 6 + 2), text.as_ref()));
    }

    fn node(&mut self, node: &Node, depth: usize) {
        match node {
            Node::Select(select) => {
                let mut depth = depth;
                if !select.set_returning.is_empty() {
                    self.line(depth, "ProjectSet");
                    depth += 1;
                }
                for stage in select.windows.iter().flat_map(|windows| windows.stages.iter().rev()) {
                    self.line(depth, "WindowAgg");
                    if stage.first.is_some() {
                        self.detail(depth, "Run Condition: 1 condition(s)");
                    }
                    depth += 1;
                    if !stage.sort.is_empty() {
                        self.line(depth, "Sort");
                        depth += 1;
                    }
                }
                if let Some(group) = &select.group {
                    self.line(depth, if group.keys.is_empty() { "Aggregate" } else { "HashAggregate" });
                    if let Some(sets) = &group.sets {
                        self.detail(depth, format!("Grouping Sets: {}", sets.len()));
                    }
                    if !group.having.is_empty() {
                        self.detail(depth, format!("Filter: {} condition(s)", group.having.len()));
                    }
                    depth += 1;
                }
                self.source(&select.source, depth);
            }
            Node::Values(rows) => self.line(depth, format!("Values Scan ({} rows)", rows.len())),
            Node::SetOperation { kind, all, left, right } => {
                let all = if *all { " All" } else { "" };
                self.line(depth, format!("{kind:?}{all}"));
                self.node(left, depth + 1);
                self.node(right, depth + 1);
            }
            Node::Sort { input, keys, limit } => {
                self.line(depth, if limit.is_some() { "Top-N Sort" } else { "Sort" });
                let keys: Vec<String> = (keys.iter())
                    .map(|key| format!("{}{}", key.column + 1, if key.descending { " DESC" } else { "" }))
                    .collect();
                self.detail(depth, format!("Sort Key: {}", keys.join(", ")));
                self.node(input, depth + 1);
            }
            Node::Distinct { input, .. } => {
                self.line(depth, "Unique");
                self.node(input, depth + 1);
            }
            Node::Limit { input, .. } => {
                self.line(depth, "Limit");
                self.node(input, depth + 1);
            }
            Node::Convert { input, .. } => self.node(input, depth),
        }
    }

    fn source(&mut self, source: &SourceNode, depth: usize) {
        match source {
            SourceNode::Unit => self.line(depth, "Result"),
            SourceNode::Nothing => {
                self.line(depth, "Result");
                self.detail(depth, "One-Time Filter: false");
            }
            SourceNode::Scan(scan) => self.scan(scan, depth),
            SourceNode::Virtual { table, .. } => {
                self.line(depth, format!("Function Scan on {}", table.name()))
            }
            SourceNode::Query { node, name, .. } => {
                self.line(depth, format!("Subquery Scan on {name}"));
                self.node(node, depth + 1);
            }
            SourceNode::Cte { name, .. } => self.line(depth, format!("CTE Scan on {name}")),
            SourceNode::Function { .. } => self.line(depth, "Function Scan"),
            SourceNode::Filter { input, conditions } => {
                self.source(input, depth);
                self.detail(depth, format!("Filter: {} condition(s)", conditions.len()));
            }
            SourceNode::First(input) => {
                self.line(depth, "Limit");
                self.source(input, depth + 1);
            }
            SourceNode::Materialize { input, .. } => {
                self.line(depth, "Materialize");
                self.source(input, depth + 1);
            }
            SourceNode::NestedLoop { outer, inner, nulls, .. } => {
                self.line(depth, if nulls.is_some() { "Nested Loop Left Join" } else { "Nested Loop" });
                self.source(outer, depth + 1);
                self.source(inner, depth + 1);
            }
            SourceNode::MergeJoin(join) => {
                self.line(depth, if join.left { "Merge Left Join" } else { "Merge Join" });
                self.source(&join.outer, depth + 1);
                self.source(&join.inner, depth + 1);
            }
            SourceNode::HashJoin(join) => {
                self.line(
                    depth,
                    match (join.left, join.full) {
                        (_, true) => "Hash Full Join",
                        (true, _) => "Hash Left Join",
                        _ => "Hash Join",
                    },
                );
                self.source(&join.probe, depth + 1);
                self.line(depth + 1, "Hash");
                self.source(&join.build, depth + 2);
            }
        }
    }

    fn scan(&mut self, scan: &Scan, depth: usize) {
        let table = &scan.table.name;
        let shown = if scan.name == *table { table.clone() } else { format!("{table} {}", scan.name) };
        let backward = if scan.access.reverse { " Backward" } else { "" };
        let by = match &scan.access.kind {
            AccessKind::Index(index) => Some(&index.name),
            AccessKind::Table
                if scan.access.parts.is_empty() && scan.access.range.is_none() && !scan.access.ordered =>
            {
                None
            }
            AccessKind::Table => scan.table.primary_key().map(|index| &index.name),
        };
        match by {
            None => self.line(depth, format!("Seq Scan{backward} on {shown}")),
            Some(index) => {
                let point = if scan.access.unique { "Point Lookup" } else { "Index Scan" };
                self.line(depth, format!("{point}{backward} using {index} on {shown}"));
                let conditions = conditions(scan);
                if !conditions.is_empty() {
                    self.detail(depth, format!("Index Cond: ({conditions})"));
                }
            }
        }
        if !scan.filter.is_empty() {
            self.detail(depth, format!("Filter: {} condition(s)", scan.filter.len()));
        }
    }
}

/// The key columns the access has values for.
fn conditions(scan: &Scan) -> String {
    let Access { kind, parts, range, .. } = &scan.access;
    let columns = match kind {
        AccessKind::Index(index) => &index.columns,
        AccessKind::Table => match scan.table.primary_key() {
            Some(index) => &index.columns,
            None => return String::new(),
        },
    };
    let mut shown = vec![];
    for (part, column) in parts.iter().zip(columns) {
        let name = &scan.table.columns[column.column].name;
        shown.push(match &part.values {
            KeyValues::One(_) => format!("{name} = ?"),
            KeyValues::Null => format!("{name} IS NULL"),
            KeyValues::List(items) => format!("{name} = ANY ({} values)", items.len()),
            KeyValues::Array(_) => format!("{name} = ANY (array)"),
            KeyValues::Subquery(_) => format!("{name} = ANY (subquery)"),
        });
    }
    if let (Some(range), Some(column)) = (range, columns.get(parts.len())) {
        let name = &scan.table.columns[column.column].name;
        for bound in range.lower.iter().chain(&range.upper) {
            shown.push(format!("{name} {} ?", bound.comparison.symbol()));
        }
        if range.pattern.is_some() {
            shown.push(format!("{name} LIKE ?"));
        }
    }
    shown.join(" AND ")
}
