//! Plans for EXPLAIN: as lines of text, and as a tree of nodes for its other formats.
//!
//! One walk over a plan notes both for each node: its line, and its type and properties by
//! PostgreSQL's names, so that the two cannot differ. Conditions are told with their values (see
//! [`shown`](super::shown)), and with VERBOSE each node says what it gives (see
//! [`outputs`](super::outputs)).

use super::access::{Access, AccessKind, KeyValues, Scan};
use super::shown::{self, Names, Words, names_at, names_of_group};
use super::{GroupNode, HashJoin, Node, Plan, SourceNode, outputs};
use crate::catalog::IndexKey;
use crate::explain::{Outline, Property, Telling};
use crate::expr::{Count, place_of};
use crate::identifier::quote_identifier;

/// One line a node, indented as PostgreSQL does.
pub(super) fn explain(plan: &Plan, telling: Telling<'_>) -> Vec<String> {
    let lines = walk(plan, telling).lines.into_iter().map(|(line, _)| line);
    lines.filter(|line| !line.is_empty()).collect()
}

/// The same as a tree.
pub(super) fn outline(plan: &Plan, telling: Telling<'_>) -> Outline {
    let mut open: Vec<(usize, Outline)> = Vec::new();
    let mut cte = None;
    for (_, part) in walk(plan, telling).lines {
        match part {
            Part::Node(depth, mut node) => {
                if let Some(name) = cte.take() {
                    node.properties.insert(0, ("Subplan Name", Property::Text(format!("CTE {name}"))));
                    node.properties.insert(0, ("Parent Relationship", "InitPlan".into()));
                }
                close(&mut open, depth);
                open.push((depth, node));
            }
            Part::Property(depth, name, value) => {
                if let Some((_, node)) = open.iter_mut().rev().find(|(at, _)| *at == depth) {
                    node.properties.push((name, value));
                }
            }
            Part::Cte(name) => {
                close(&mut open, 1);
                cte = Some(name);
            }
        }
    }
    close(&mut open, 1);
    open.pop().map(|(_, node)| node).unwrap_or_default()
}

/// Puts the open nodes of this depth and deeper ones into those above them.
fn close(open: &mut Vec<(usize, Outline)>, depth: usize) {
    while open.len() > 1 && open.last().is_some_and(|(at, _)| *at >= depth) {
        if let (Some((_, node)), Some((_, above))) = (open.pop(), open.last_mut()) {
            above.plans.push(node);
        }
    }
}

fn walk<'a>(plan: &Plan, telling: Telling<'a>) -> Lines<'a> {
    let (lines, width, names) = (Vec::new(), plan.columns.len(), Names::new());
    // What is left to the caller gives what the statement does.
    let mut whole = telling.whole;
    let mut out = Lines { lines, telling, width, names, output: None, count: None };
    let mut depth = 0;
    if plan.limit.is_some() || plan.offset.is_some() {
        out.announce(|_| outputs::of_node(&plan.root));
        out.count = whole.take();
        out.line(depth, "Limit");
        depth += 1;
    }
    if plan.has_locks() {
        out.announce(|_| outputs::of_node(&plan.root));
        out.count = whole.take();
        out.line(depth, "LockRows");
        depth += 1;
    }
    out.node(&plan.root, depth);
    for cte in plan.cte_plans.iter().flatten() {
        out.lines.push((format!("CTE {}", cte.name), Part::Cte(cte.name.clone())));
        out.node(&cte.node, 1);
        if let Some((recursive, _)) = &cte.recursive {
            out.node(recursive, 1);
        }
    }
    out
}

/// What a line stands for in the tree.
enum Part {
    /// A node at a depth.
    Node(usize, Outline),
    /// A property of the last node at a depth.
    Property(usize, &'static str, Property),
    /// A WITH query follows.
    Cte(String),
}

struct Lines<'a> {
    lines: Vec<(String, Part)>,
    telling: Telling<'a>,
    /// So many columns of the first node are the statement's.
    width: usize,
    /// What the places of the frame at hand are called.
    names: Names,
    /// What the next node gives.
    output: Option<Vec<String>>,
    /// What was counted at it.
    count: Option<Count>,
}

impl Lines<'_> {
    /// A node whose line is its type.
    fn line(&mut self, depth: usize, kind: &'static str) {
        self.node_line(depth, kind, kind, vec![]);
    }

    /// A node with its line, type and properties.
    fn node_line(
        &mut self,
        depth: usize,
        text: impl AsRef<str>,
        kind: &'static str,
        mut properties: Vec<(&'static str, Property)>,
    ) {
        let arrow = if depth == 0 { String::new() } else { format!("{}->  ", " ".repeat(depth * 6 - 4)) };
        let counted = match self.count.take() {
            Some(count) => {
                properties.extend(self.telling.figures(count));
                self.telling.words(count)
            }
            None => String::new(),
        };
        let node = Outline { kind, properties, plans: vec![] };
        self.lines.push((format!("{arrow}{}{counted}", text.as_ref()), Part::Node(depth, node)));
        let mut output = self.output.take().unwrap_or_default();
        if depth == 0 {
            output.truncate(self.width);
        }
        if !output.is_empty() {
            let line = format!("{}Output: {}", " ".repeat(depth * 6 + 2), output.join(", "));
            self.lines.push((line, Part::Property(depth, "Output", Property::List(output))));
        }
    }

    /// Has the next node say what it gives, unless that is known: a node of several lines gives it
    /// by the first.
    fn announce(&mut self, output: impl FnOnce(&Names) -> Vec<String>) {
        if self.telling.verbose && self.output.is_none() {
            self.output = Some(output(&self.names));
        }
    }

    /// Has the next node say what was counted here, unless that is known: a node of several lines
    /// says it by the first.
    fn counted(&mut self, place: usize) {
        if self.count.is_none() {
            self.count = self.telling.tally.map(|tally| tally.count(place));
        }
    }

    /// How many rows did not pass the condition told last, in all loops of the node at this depth.
    fn removed(&mut self, depth: usize, removed: u64, count: Count) {
        let name = "Rows Removed by Filter";
        let each = count.removed_words(removed);
        // As text nothing is said of none.
        let line = match removed {
            0 => String::new(),
            _ => format!("{}{name}: {each}", " ".repeat(depth * 6 + 2)),
        };
        self.lines.push((line, Part::Property(depth, name, Property::Figure(each))));
    }

    /// What expressions over the frame at hand are printed with.
    fn words(&self) -> Words<'_> {
        Words { names: &self.names, format: self.telling.format }
    }

    /// A property of the last node at this depth: its name, and how it is printed.
    fn detail(&mut self, depth: usize, name: &'static str, text: impl AsRef<str>) {
        let text = text.as_ref();
        let line = format!("{}{name}: {text}", " ".repeat(depth * 6 + 2));
        let property = match name {
            "Sort Key" => Property::List(text.split(", ").map(str::to_owned).collect()),
            _ => Property::Text(text.to_owned()),
        };
        self.lines.push((line, Part::Property(depth, name, property)));
    }

    fn node(&mut self, node: &Node, depth: usize) {
        self.announce(|_| outputs::of_node(node));
        self.counted(place_of(node));
        let outer = match node {
            Node::Select(select) => Some(std::mem::replace(&mut self.names, outputs::names(&select.source))),
            _ => None,
        };
        self.node_lines(node, depth);
        if let Some(outer) = outer {
            self.names = outer;
        }
    }

    fn node_lines(&mut self, node: &Node, depth: usize) {
        match node {
            Node::Select(select) => {
                let mut depth = depth;
                if !select.set_returning.is_empty() {
                    self.line(depth, "ProjectSet");
                    depth += 1;
                }
                for stage in select.windows.iter().flat_map(|windows| windows.stages.iter().rev()) {
                    self.counted(place_of(stage));
                    self.line(depth, "WindowAgg");
                    if stage.first.is_some() {
                        self.detail(depth, "Run Condition", "1 condition(s)");
                    }
                    depth += 1;
                    if !stage.sort.is_empty() {
                        self.line(depth, "Sort");
                        depth += 1;
                    }
                }
                if let Some(group) = &select.group {
                    self.group(group, depth);
                    depth += 1;
                }
                self.source(&select.source, depth);
            }
            Node::Values(rows) => {
                let text = format!("Values Scan ({} rows)", rows.len());
                self.node_line(depth, text, "Values Scan", vec![]);
            }
            Node::SetOperation { kind, all, left, right } => {
                let text = format!("{kind:?}{}", if *all { " All" } else { "" });
                match text.as_str() {
                    "Union All" => self.node_line(depth, text, "Append", vec![]),
                    _ => self.node_line(depth, &text, "SetOp", vec![("Command", text.as_str().into())]),
                }
                self.node(left, depth + 1);
                self.node(right, depth + 1);
            }
            Node::Sort { input, keys, limit } => {
                let text = if limit.is_some() { "Top-N Sort" } else { "Sort" };
                self.node_line(depth, text, "Sort", vec![]);
                let keys: Vec<String> = (keys.iter())
                    .map(|key| format!("{}{}", key.column + 1, if key.descending { " DESC" } else { "" }))
                    .collect();
                self.detail(depth, "Sort Key", keys.join(", "));
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
            Node::Convert { input, .. } | Node::With { input, .. } => self.node(input, depth),
        }
    }

    fn group(&mut self, group: &GroupNode, depth: usize) {
        let (text, strategy) = match group.keys.is_empty() {
            true => ("Aggregate", "Plain"),
            false => ("HashAggregate", "Hashed"),
        };
        self.counted(place_of(group));
        self.node_line(depth, text, "Aggregate", vec![("Strategy", strategy.into())]);
        if let Some(sets) = &group.sets {
            self.detail(depth, "Grouping Sets", sets.len().to_string());
        }
        if !group.having.is_empty() {
            let names = names_of_group(group, self.words());
            let words = Words { names: &names, format: self.telling.format };
            self.detail(depth, "Filter", shown::conditions(&group.having, words));
        }
    }

    fn source(&mut self, source: &SourceNode, depth: usize) {
        self.announce(|names| outputs::of_source(source, names));
        self.counted(place_of(source));
        match source {
            SourceNode::Unit => self.line(depth, "Result"),
            SourceNode::Nothing => {
                self.line(depth, "Result");
                self.detail(depth, "One-Time Filter", "false");
            }
            SourceNode::Scan(scan) => self.scan(scan, place_of(source), depth),
            SourceNode::Virtual { table, .. } => {
                let name = table.name().to_string();
                let text = format!("Function Scan on {name}");
                self.node_line(depth, text, "Function Scan", vec![("Alias", Property::Text(name))]);
            }
            SourceNode::Query { node, name, .. } => {
                let alias = ("Alias", name.as_str().into());
                self.node_line(depth, format!("Subquery Scan on {name}"), "Subquery Scan", vec![alias]);
                self.node(node, depth + 1);
            }
            SourceNode::Cte { name, .. } => {
                let name_of = ("CTE Name", name.as_str().into());
                self.node_line(depth, format!("CTE Scan on {name}"), "CTE Scan", vec![name_of]);
            }
            SourceNode::Function { .. } => self.line(depth, "Function Scan"),
            SourceNode::Filter { input, conditions } => {
                self.source(input, depth);
                let text = shown::conditions(conditions, self.words());
                self.detail(depth, "Filter", text);
                if let Some(tally) = self.telling.tally {
                    let (read, passed) = (tally.count(place_of(&**input)), tally.count(place_of(source)));
                    self.removed(depth, read.rows.saturating_sub(passed.rows), passed);
                }
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
                let (text, join) = match nulls.is_some() {
                    true => ("Nested Loop Left Join", "Left"),
                    false => ("Nested Loop", "Inner"),
                };
                self.node_line(depth, text, "Nested Loop", vec![("Join Type", join.into())]);
                self.source(outer, depth + 1);
                self.source(inner, depth + 1);
            }
            SourceNode::MergeJoin(join) => {
                let (text, kind) = match join.left {
                    true => ("Merge Left Join", "Left"),
                    false => ("Merge Join", "Inner"),
                };
                self.node_line(depth, text, "Merge Join", vec![("Join Type", kind.into())]);
                self.source(&join.outer, depth + 1);
                self.source(&join.inner, depth + 1);
            }
            SourceNode::HashJoin(join) => self.hash_join(join, depth),
        }
    }

    fn hash_join(&mut self, join: &HashJoin, depth: usize) {
        let (text, kind) = match (join.left, join.full) {
            (_, true) => ("Hash Full Join", "Full"),
            (true, _) => ("Hash Left Join", "Left"),
            _ => ("Hash Join", "Inner"),
        };
        self.node_line(depth, text, "Hash Join", vec![("Join Type", kind.into())]);
        self.source(&join.probe, depth + 1);
        self.announce(|names| outputs::of_source(&join.build, names));
        self.counted(place_of(&join.build));
        self.line(depth + 1, "Hash");
        self.source(&join.build, depth + 2);
    }

    fn scan(&mut self, scan: &Scan, place: usize, depth: usize) {
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
        let names = names_at(scan, &self.names);
        let words = Words { names: &names, format: self.telling.format };
        let direction = if scan.access.reverse { "Backward" } else { "Forward" };
        let relation =
            [("Relation Name", table.as_str().into()), ("Alias", Property::Text(scan.name.to_string()))];
        match by {
            None => {
                let text = format!("Seq Scan{backward} on {shown}");
                self.node_line(depth, text, "Seq Scan", relation.into());
            }
            Some(index) => {
                let point = if scan.access.unique { "Point Lookup" } else { "Index Scan" };
                let text = format!("{point}{backward} using {index} on {shown}");
                let mut properties =
                    vec![("Scan Direction", direction.into()), ("Index Name", index.as_str().into())];
                properties.extend(relation);
                self.node_line(depth, text, "Index Scan", properties);
                let conditions = conditions(scan, words);
                if !conditions.is_empty() {
                    self.detail(depth, "Index Cond", format!("({conditions})"));
                }
            }
        }
        if !scan.filter.is_empty() {
            self.detail(depth, "Filter", shown::conditions(&scan.filter, words));
            if let Some(tally) = self.telling.tally {
                self.removed(depth, tally.count(place_of(scan)).removed, tally.count(place));
            }
        }
    }
}

/// The key columns the access has values for, with these.
fn conditions(scan: &Scan, words: Words<'_>) -> String {
    let Access { kind, parts, range, .. } = &scan.access;
    let index = match kind {
        AccessKind::Index(index) => &**index,
        AccessKind::Table => match scan.table.primary_key() {
            Some(index) => index,
            None => return String::new(),
        },
    };
    let columns = &index.columns;
    let name_of = |key: IndexKey| match key {
        IndexKey::Column(place) => quote_identifier(&scan.table.columns[place].name),
        IndexKey::Expression(place) => {
            index.expression(place).map_or_else(String::new, |expression| expression.text.clone())
        }
    };
    let mut all = vec![];
    for (part, column) in parts.iter().zip(columns) {
        let name = name_of(column.key);
        all.push(match &part.values {
            KeyValues::One(value) => format!("{name} = {}", shown::expression(value, words)),
            KeyValues::Null => format!("{name} IS NULL"),
            KeyValues::List(items) => format!("{name} IN ({})", shown::list(items.iter(), words)),
            KeyValues::Array(array) => format!("{name} = ANY ({})", shown::expression(array, words)),
            KeyValues::Subquery(_) => format!("{name} = ANY (subquery)"),
        });
    }
    if let (Some(range), Some(column)) = (range, columns.get(parts.len())) {
        let name = name_of(column.key);
        for bound in range.lower.iter().chain(&range.upper) {
            let value = shown::expression(&bound.value, words);
            all.push(format!("{name} {} {value}", bound.comparison.symbol()));
        }
        if let Some(pattern) = &range.pattern {
            all.push(format!("{name} LIKE {}", shown::expression(pattern, words)));
        }
    }
    all.join(" AND ")
}
