//! Plans for EXPLAIN: as lines of text, and as a tree of nodes for its other formats.
//!
//! A subquery of a condition is told below the node that has the condition, which has its number.
//!
//! One walk over a plan notes both for each node: its line, and its type and properties by
//! PostgreSQL's names, so that the two cannot differ. Conditions are told with their values (see
//! [`shown`](super::shown)), and with VERBOSE each node says what it gives (see
//! [`outputs`](super::outputs)).

use std::sync::Arc;

use super::access::{AccessKind, Scan};
use super::columns::{self, Level, Naming, named, sort_keys};
use super::shown::{self, Names, SubPlans, Words, names_at, names_of_group};
use super::{
    FirstRows, GroupNode, HashJoin, MergeJoin, Node, Plan, SelectNode, SourceNode, WindowsNode, outputs,
};
use crate::explain::{Outline, Property, Telling};
use crate::expr::{Count, Expr, place_of};

/// One line a node, indented as PostgreSQL does.
pub(super) fn explain(plan: &Plan, telling: Telling<'_>) -> Vec<String> {
    let lines = walk(plan, telling).lines.into_iter().map(|(line, _)| line);
    lines.filter(|line| !line.is_empty()).collect()
}

/// The same as a tree.
pub(super) fn outline(plan: &Plan, telling: Telling<'_>) -> Outline {
    let mut open: Vec<(usize, Outline)> = Vec::new();
    let mut beside = None;
    for (_, part) in walk(plan, telling).lines {
        match part {
            Part::Node(depth, mut node) => {
                if let Some((relationship, name)) = beside.take() {
                    node.properties.insert(0, ("Subplan Name", Property::Text(name)));
                    node.properties.insert(0, ("Parent Relationship", Property::from(relationship)));
                }
                close(&mut open, depth);
                open.push((depth, node));
            }
            Part::Property(depth, name, value) => {
                if let Some((_, node)) = open.iter_mut().rev().find(|(at, _)| *at == depth) {
                    node.properties.push((name, value));
                }
            }
            Part::Beside(depth, relationship, name) => {
                close(&mut open, depth);
                beside = Some((relationship, name));
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
    let qualified = telling.verbose || telling.is_part || columns::relations(plan) > 1;
    let mut out = Lines {
        lines,
        telling,
        width,
        qualified,
        names,
        outer: vec![],
        plans: SubPlans::default(),
        claimed: 0,
        waiting: vec![],
        margin: 0,
        output: None,
        count: None,
    };
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
        let name = format!("CTE {}", cte.name);
        out.lines.push((name.clone(), Part::Beside(1, "InitPlan", name)));
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
    /// The node that follows at this depth gives its rows in another way than to the node above:
    /// what it is to that one, and its name.
    Beside(usize, &'static str, String),
}

/// A subquery to be told below the node at a depth.
struct Waiting {
    depth: usize,
    number: usize,
    node: Arc<Node>,
    /// What the frame is called that its condition is over.
    names: Names,
}

struct Lines<'a> {
    lines: Vec<(String, Part)>,
    telling: Telling<'a>,
    /// So many columns of the first node are the statement's.
    width: usize,
    /// Columns are told with their relations.
    qualified: bool,
    /// What the places of the frame at hand are called.
    names: Names,
    /// The same of the frames around it.
    outer: Vec<Names>,
    /// The subqueries of conditions.
    plans: SubPlans,
    /// So many of them wait for being told, or are told.
    claimed: usize,
    waiting: Vec<Waiting>,
    /// Nodes of subqueries stand further in by so much.
    margin: usize,
    /// What the next node gives.
    output: Option<Vec<String>>,
    /// What was counted at it.
    count: Option<Count>,
}

impl<'a> Lines<'a> {
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
        let arrow = match depth {
            0 => String::new(),
            _ => format!("{}->  ", " ".repeat(self.margin + depth * 6 - 4)),
        };
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
            let line = format!("{}Output: {}", self.indent(depth), output.join(", "));
            self.property(depth, line, "Output", Property::List(output));
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
            _ => format!("{}{name}: {each}", self.indent(depth)),
        };
        self.property(depth, line, name, Property::Figure(each));
    }

    /// What stands before the properties of a node at this depth.
    fn indent(&self, depth: usize) -> String {
        " ".repeat(self.margin + depth * 6 + 2)
    }

    /// What expressions over the frame at hand are printed with.
    fn words(&self) -> Words<'_> {
        let plans = Some(&self.plans);
        Words { names: &self.names, format: self.telling.format, outer: &self.outer, plans }
    }

    /// Has the subqueries that were printed last told below the node at this depth; `names` are
    /// those of the frame around them.
    fn claim(&mut self, depth: usize, names: &Names) {
        for node in self.plans.behind(self.claimed) {
            self.claimed += 1;
            self.waiting.push(Waiting { depth, number: self.claimed, node, names: names.clone() });
        }
    }

    /// The same for a condition over the frame at hand.
    fn claim_here(&mut self, depth: usize) {
        let names = std::mem::take(&mut self.names);
        self.claim(depth, &names);
        self.names = names;
    }

    /// Tells the subqueries that wait for a node at this depth or below it. Runs of them are not
    /// told apart, so nothing is told of what was counted.
    fn subplans(&mut self, depth: usize) {
        while let Some(place) = self.waiting.iter().position(|waiting| waiting.depth >= depth) {
            let Waiting { depth, number, node, names } = self.waiting.remove(place);
            let name = format!("SubPlan {number}");
            let line = format!("{}{name}", self.indent(depth));
            self.lines.push((line, Part::Beside(depth + 1, "SubPlan", name)));
            let tally = self.telling.tally.take();
            self.outer.push(names);
            self.margin += 2;
            self.node(&node, depth + 1);
            self.margin -= 2;
            self.outer.pop();
            self.telling.tally = tally;
        }
    }

    /// How columns are named as keys.
    fn naming(&self) -> Naming<'a> {
        Naming { qualified: self.qualified, format: self.telling.format }
    }

    /// A property of the last node at this depth: its name, and how it is printed.
    fn detail(&mut self, depth: usize, name: &'static str, text: impl AsRef<str>) {
        let text = text.as_ref();
        let line = format!("{}{name}: {text}", self.indent(depth));
        self.property(depth, line, name, Property::Text(text.to_owned()));
    }

    /// The same of several items; nothing if there are none, or one of them has no name.
    fn details(&mut self, depth: usize, name: &'static str, items: Option<Vec<String>>) {
        if let Some(items) = items.filter(|items| !items.is_empty()) {
            let line = format!("{}{name}: {}", self.indent(depth), items.join(", "));
            self.property(depth, line, name, Property::List(items));
        }
    }

    /// A property of the last node at this depth, behind those that it has: what is below the node
    /// may have been told by now.
    fn property(&mut self, depth: usize, line: String, name: &'static str, property: Property) {
        let is_node = |(_, part): &(String, Part)| matches!(part, Part::Node(at, _) if *at == depth);
        let is_own = |(_, part): &&(String, Part)| matches!(part, Part::Property(at, ..) if *at == depth);
        let behind = self.lines.iter().rposition(is_node).map_or(self.lines.len(), |node| {
            let first = node + 1;
            first + self.lines.iter().skip(first).take_while(is_own).count()
        });
        self.lines.insert(behind, (line, Part::Property(depth, name, property)));
    }

    fn node(&mut self, node: &Node, depth: usize) {
        self.announce(|_| outputs::of_node(node));
        self.counted(place_of(node));
        let outer = match node {
            Node::Select(select) => {
                let names = outputs::names(&select.source, self.qualified);
                Some(std::mem::replace(&mut self.names, names))
            }
            _ => None,
        };
        self.node_lines(node, depth);
        self.subplans(depth);
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
                if let Some(windows) = &select.windows {
                    depth = self.windows(select, windows, depth);
                }
                if let Some(group) = &select.group {
                    self.group(group, select.frame, depth);
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
                let columns = columns::of_node(input, self.naming());
                let keys = sort_keys(keys, |place| columns.get(place)?.key());
                self.details(depth, "Sort Key", keys);
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

    /// The windows of a level, each with the sort that it needs. Gives the depth of what is below.
    fn windows(&mut self, select: &SelectNode, windows: &WindowsNode, mut depth: usize) -> usize {
        let level = Level::new(select, self.naming());
        for stage in windows.stages.iter().rev() {
            self.counted(place_of(stage));
            self.line(depth, "WindowAgg");
            if let Some(FirstRows { bound, less }) = &stage.first {
                let symbol = if *less { "<" } else { "<=" };
                let bound = shown::expression(bound, level.words());
                self.detail(depth, "Run Condition", format!("(row_number() OVER (?) {symbol} {bound})"));
            }
            depth += 1;
            if !stage.sort.is_empty() {
                self.line(depth, "Sort");
                let keys = sort_keys(&stage.sort, |place| level.place(place).key());
                self.details(depth, "Sort Key", keys);
                depth += 1;
            }
        }
        depth
    }

    /// The grouping of a level whose frame has so many places.
    fn group(&mut self, group: &GroupNode, frame: usize, depth: usize) {
        let (text, strategy) = match group.keys.is_empty() {
            true => ("Aggregate", "Plain"),
            false => ("HashAggregate", "Hashed"),
        };
        self.counted(place_of(group));
        self.node_line(depth, text, "Aggregate", vec![("Strategy", strategy.into())]);
        // What a group is made of is no condition: the subqueries in it are not told.
        let words = Words { plans: None, ..self.words() };
        let keys = group.keys.iter().map(|key| named(shown::expression(key, words))).collect();
        let names = names_of_group(group, frame, words);
        match &group.sets {
            Some(sets) => self.detail(depth, "Grouping Sets", sets.len().to_string()),
            None => self.details(depth, "Group Key", keys),
        }
        if !group.having.is_empty() {
            let text = shown::conditions(&group.having, Words { names: &names, ..self.words() });
            self.detail(depth, "Filter", text);
            self.claim(depth, &names);
        }
    }

    fn source(&mut self, source: &SourceNode, depth: usize) {
        self.announce(|names| outputs::of_source(source, names));
        self.counted(place_of(source));
        self.source_lines(source, depth);
        self.subplans(depth);
    }

    fn source_lines(&mut self, source: &SourceNode, depth: usize) {
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
                self.outer.push(self.names.clone());
                self.node(node, depth + 1);
                self.outer.pop();
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
                self.claim_here(depth);
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
            SourceNode::NestedLoop { outer, inner, on, nulls } => {
                let (text, join) = match nulls.is_some() {
                    true => ("Nested Loop Left Join", "Left"),
                    false => ("Nested Loop", "Inner"),
                };
                self.node_line(depth, text, "Nested Loop", vec![("Join Type", join.into())]);
                self.join_filter(depth, on);
                self.source(outer, depth + 1);
                self.source(inner, depth + 1);
            }
            SourceNode::MergeJoin(join) => self.merge_join(join, depth),
            SourceNode::HashJoin(join) => self.hash_join(join, depth),
        }
    }

    fn merge_join(&mut self, join: &MergeJoin, depth: usize) {
        let (text, kind) = match join.left {
            true => ("Merge Left Join", "Left"),
            false => ("Merge Join", "Inner"),
        };
        self.node_line(depth, text, "Merge Join", vec![("Join Type", kind.into())]);
        let keys = join.keys.iter().map(|(outer, inner)| (Expr::Slot(*outer), Expr::Slot(*inner)));
        let (outer, inner): (Vec<Expr>, Vec<Expr>) = keys.unzip();
        self.join_keys(depth, "Merge Cond", outer.iter().zip(&inner));
        self.join_filter(depth, &join.on);
        self.source(&join.outer, depth + 1);
        self.source(&join.inner, depth + 1);
    }

    /// The keys of a join, unless one of them has no name.
    fn join_keys<'k>(
        &mut self,
        depth: usize,
        name: &'static str,
        keys: impl Iterator<Item = (&'k Expr, &'k Expr)>,
    ) {
        let words = self.words();
        let equal = |(outer, inner): (&Expr, &Expr)| {
            named(format!("({} = {})", shown::expression(outer, words), shown::expression(inner, words)))
        };
        let keys: Option<Vec<String>> = keys.map(equal).collect();
        match keys.as_deref() {
            None | Some([]) => {}
            Some([one]) => self.detail(depth, name, one),
            Some(several) => self.detail(depth, name, format!("({})", several.join(" AND "))),
        }
        self.claim_here(depth);
    }

    /// What a join asks of a pair besides.
    fn join_filter(&mut self, depth: usize, on: &[Expr]) {
        if !on.is_empty() {
            let text = shown::conditions(on, self.words());
            self.detail(depth, "Join Filter", text);
            self.claim_here(depth);
        }
    }

    fn hash_join(&mut self, join: &HashJoin, depth: usize) {
        let (text, kind) = match (join.left, join.full) {
            (_, true) => ("Hash Full Join", "Full"),
            (true, _) => ("Hash Left Join", "Left"),
            _ => ("Hash Join", "Inner"),
        };
        self.node_line(depth, text, "Hash Join", vec![("Join Type", kind.into())]);
        self.join_keys(depth, "Hash Cond", join.probe_keys.iter().zip(&join.build_keys));
        self.join_filter(depth, &join.on);
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
        let words = Words { names: &names, ..self.words() };
        let (by_key, filter) = (shown::of_key(scan, words), shown::conditions(&scan.filter, words));
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
                if !by_key.is_empty() {
                    self.detail(depth, "Index Cond", format!("({by_key})"));
                }
            }
        }
        if !scan.filter.is_empty() {
            self.detail(depth, "Filter", filter);
            if let Some(tally) = self.telling.tally {
                self.removed(depth, tally.count(place_of(scan)).removed, tally.count(place));
            }
        }
        self.claim_here(depth);
    }
}
