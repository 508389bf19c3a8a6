//! EXPLAIN: how a statement is carried out, as lines of text or as JSON.
//!
//! JSON has PostgreSQL's keys and layout, with what is known here: the planner keeps no costs, so
//! there are none.

use std::fmt::Write as _;

use crate::oltp::insert::InsertPlan;
use crate::oltp::parts::Step;
use crate::oltp::target::{Access, Target};
use crate::session::{Action, Planned};
use crate::types::FormatContext;

/// The lines of a plan.
pub(crate) fn lines(planned: &Planned, verbose: bool, format: &FormatContext) -> Vec<String> {
    match &planned.action {
        Action::Empty => Vec::new(),
        Action::Select(plan) => plan.explain(verbose, format),
        Action::Insert(plan) => inserting(plan, verbose, format),
        Action::Update(plan) => changing("Update", &plan.target, verbose, format),
        Action::Delete(plan) => changing("Delete", &plan.target, verbose, format),
        Action::Parts(plan) => {
            let mut lines = step(plan.main(), verbose, format);
            for (name, part) in plan.of_with() {
                lines.push(format!("CTE {name}"));
                lines.extend(step(part, verbose, format).into_iter().map(|line| format!("  {line}")));
            }
            lines
        }
        Action::Call(plan) => {
            vec![format!("Call of {}", plan.routine.signature(&FormatContext::default()))]
        }
        Action::Utility => vec!["Utility statements have no plan structure".to_owned()],
    }
}

fn step(step: &Step, verbose: bool, format: &FormatContext) -> Vec<String> {
    match step {
        Step::Select(plan) => plan.explain(verbose, format),
        Step::Insert(plan) => inserting(plan, verbose, format),
        Step::Update(plan) => changing("Update", &plan.target, verbose, format),
        Step::Delete(plan) => changing("Delete", &plan.target, verbose, format),
        Step::Merge(plan) => {
            let mut lines = vec![format!("Merge on {}", plan.table.name)];
            lines.extend(plan.source.explain(verbose, format).into_iter().map(|line| format!("  {line}")));
            lines
        }
    }
}

fn inserting(plan: &InsertPlan, verbose: bool, format: &FormatContext) -> Vec<String> {
    let mut lines = vec![format!("Insert on {}", plan.table.name)];
    lines.extend(plan.source_lines(verbose, format).into_iter().map(|line| format!("  {line}")));
    lines
}

fn changing(what: &str, target: &Target, verbose: bool, format: &FormatContext) -> Vec<String> {
    let mut lines = vec![format!("{what} on {}", target.table.name)];
    match &target.access {
        Access::Point(_) => {
            let key = target.table.primary_key().map_or("primary key", |index| &index.name);
            lines.push(format!("  Row by {key} of {}", target.table.name));
        }
        Access::Current(cursor) => lines.push(format!("  Row of cursor {cursor}")),
        Access::Query(plan) => {
            lines.extend(plan.explain(verbose, format).into_iter().map(|line| format!("  {line}")));
        }
    }
    lines
}

/// A node of a plan: its type, its properties in their order, and what it takes its rows from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outline {
    pub(crate) kind: &'static str,
    pub(crate) properties: Vec<(&'static str, Property)>,
    pub(crate) plans: Vec<Outline>,
}

/// The value of a property.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Property {
    Text(String),
    List(Vec<String>),
    Number(u64),
}

impl From<&str> for Property {
    fn from(text: &str) -> Property {
        Property::Text(text.to_owned())
    }
}

/// The tree of a plan; none for a statement that has no plan.
fn outline(planned: &Planned, verbose: bool, format: &FormatContext) -> Option<Outline> {
    match &planned.action {
        Action::Select(plan) => Some(plan.outline(verbose, format)),
        Action::Insert(plan) => {
            Some(modify("Insert", &plan.table.name, plan.source_outline(verbose, format)))
        }
        Action::Update(plan) => {
            Some(modify("Update", &plan.target.table.name, target(&plan.target, verbose, format)))
        }
        Action::Delete(plan) => {
            Some(modify("Delete", &plan.target.table.name, target(&plan.target, verbose, format)))
        }
        Action::Parts(plan) => {
            let mut main = outline_of_step(plan.main(), verbose, format);
            for (name, part) in plan.of_with() {
                let mut part = outline_of_step(part, verbose, format);
                part.properties.insert(0, ("Subplan Name", Property::Text(format!("CTE {name}"))));
                part.properties.insert(0, ("Parent Relationship", "InitPlan".into()));
                main.plans.push(part);
            }
            Some(main)
        }
        Action::Call(_) | Action::Empty | Action::Utility => None,
    }
}

fn outline_of_step(step: &Step, verbose: bool, format: &FormatContext) -> Outline {
    match step {
        Step::Select(plan) => plan.outline(verbose, format),
        Step::Insert(plan) => modify("Insert", &plan.table.name, plan.source_outline(verbose, format)),
        Step::Update(plan) => {
            modify("Update", &plan.target.table.name, target(&plan.target, verbose, format))
        }
        Step::Delete(plan) => {
            modify("Delete", &plan.target.table.name, target(&plan.target, verbose, format))
        }
        Step::Merge(plan) => modify("Merge", &plan.table.name, plan.source.outline(verbose, format)),
    }
}

fn modify(operation: &str, table: &str, source: Outline) -> Outline {
    let properties =
        vec![("Operation", operation.into()), ("Relation Name", table.into()), ("Alias", table.into())];
    Outline { kind: "ModifyTable", properties, plans: vec![source] }
}

fn target(target: &Target, verbose: bool, format: &FormatContext) -> Outline {
    match &target.access {
        Access::Point(_) => {
            let index = target.table.primary_key().map_or("", |index| index.name.as_str());
            let table = target.table.name.as_str();
            let properties = vec![
                ("Scan Direction", "Forward".into()),
                ("Index Name", index.into()),
                ("Relation Name", table.into()),
                ("Alias", table.into()),
            ];
            Outline { kind: "Index Scan", properties, plans: vec![] }
        }
        Access::Current(_) => {
            let table = target.table.name.as_str();
            let properties = vec![("Relation Name", table.into()), ("Alias", table.into())];
            Outline { kind: "Tid Scan", properties, plans: vec![] }
        }
        Access::Query(plan) => plan.outline(verbose, format),
    }
}

/// The plan as JSON. With the number of rows and the milliseconds it took, if it was carried out.
pub(crate) fn json(
    planned: &Planned,
    verbose: bool,
    format: &FormatContext,
    analyzed: Option<(u64, f64)>,
) -> String {
    let Some(mut root) = outline(planned, verbose, format) else {
        return "[\n  \"Utility Statement\"\n]".to_owned();
    };
    if let Some((rows, _)) = analyzed {
        root.properties.push(("Actual Rows", Property::Number(rows)));
        root.properties.push(("Actual Loops", Property::Number(1)));
    }
    let mut out = "[\n  {\n    \"Plan\": ".to_owned();
    write_node(&root, None, 4, &mut out);
    if let Some((_, took)) = analyzed {
        let _ = write!(out, ",\n    \"Triggers\": [\n    ],\n    \"Execution Time\": {took:.3}");
    }
    out.push_str("\n  }\n]");
    out
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// What a node is to the one above it, as PostgreSQL says it of the child at this place.
fn relationship(above: &str, place: usize) -> &'static str {
    match (above, place) {
        ("Append" | "SetOp", _) => "Member",
        ("Subquery Scan", _) => "Subquery",
        (_, 0) => "Outer",
        _ => "Inner",
    }
}

fn write_node(node: &Outline, relationship_to_above: Option<&str>, indent: usize, out: &mut String) {
    let space = " ".repeat(indent + 2);
    let _ = write!(out, "{{\n{space}\"Node Type\": {}", quoted(node.kind));
    let is_plan_of_with = node.properties.iter().any(|(name, _)| *name == "Parent Relationship");
    if let Some(relationship) = relationship_to_above.filter(|_| !is_plan_of_with) {
        let _ = write!(out, ",\n{space}\"Parent Relationship\": {}", quoted(relationship));
    }
    let _ = write!(out, ",\n{space}\"Parallel Aware\": false,\n{space}\"Async Capable\": false");
    for (name, value) in &node.properties {
        let value = match value {
            Property::Text(text) => quoted(text),
            Property::Number(number) => number.to_string(),
            Property::List(items) => {
                format!("[{}]", items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", "))
            }
        };
        let _ = write!(out, ",\n{space}{}: {value}", quoted(name));
    }
    if !node.plans.is_empty() {
        let _ = write!(out, ",\n{space}\"Plans\": [");
        // Those of WITH do not count: the rows come from the others.
        let of_with =
            |plan: &&Outline| plan.properties.first().is_some_and(|(name, _)| *name == "Parent Relationship");
        let (first, then): (Vec<&Outline>, Vec<&Outline>) = node.plans.iter().partition(of_with);
        let skipped = first.len();
        for (place, plan) in first.into_iter().chain(then).enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let _ = write!(out, "{comma}\n{space}  ");
            write_node(plan, Some(relationship(node.kind, place.saturating_sub(skipped))), indent + 4, out);
        }
        let _ = write!(out, "\n{space}]");
    }
    let _ = write!(out, "\n{}}}", " ".repeat(indent));
}
