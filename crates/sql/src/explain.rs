//! EXPLAIN: how a statement is carried out, as lines of text, as JSON or as XML.
//!
//! JSON and XML have PostgreSQL's keys and layout, with what is known here: the planner keeps no
//! costs, so there are none. Of a statement that was carried out each node says what it gave and
//! how long it took, as PostgreSQL does, where that was counted.

use std::fmt::Write as _;

use crate::expr::{Count, Tally, place_of};
use crate::oltp::insert::InsertPlan;
use crate::oltp::parts::Step;
use crate::oltp::target::{Access, Target};
use crate::session::{Action, Planned};
use crate::types::FormatContext;

pub(crate) mod xml;

/// What EXPLAIN answers in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanFormat {
    /// Lines.
    Text,
    Json,
    Xml,
}

/// What EXPLAIN tells of a plan.
#[derive(Clone, Copy)]
pub(crate) struct Telling<'a> {
    /// Nodes say what they give.
    pub(crate) verbose: bool,
    /// What was counted is told with times.
    pub(crate) timed: bool,
    /// How values are printed.
    pub(crate) format: &'a FormatContext,
    /// What was counted at the nodes, if the statement was carried out.
    pub(crate) tally: Option<&'a Tally>,
    /// The same of the statement as a whole.
    pub(crate) whole: Option<Count>,
    /// There are other relations in the statement than those of the plan.
    pub(crate) is_part: bool,
}

impl<'a> Telling<'a> {
    /// That of a plan which was not carried out.
    pub(crate) fn plainly(verbose: bool, format: &'a FormatContext) -> Telling<'a> {
        Telling { verbose, timed: false, format, tally: None, whole: None, is_part: false }
    }

    /// The same for what a statement finds the rows in that it changes.
    fn of_found(self) -> Telling<'a> {
        Telling { whole: None, ..self }
    }

    /// The same for a part of the statement.
    fn of_part(self) -> Telling<'a> {
        Telling { whole: None, is_part: true, ..self }
    }

    /// What stands behind the line of a node.
    pub(crate) fn words(self, count: Count) -> String {
        count.words(self.timed)
    }

    /// The same as properties.
    pub(crate) fn figures(self, count: Count) -> impl Iterator<Item = (&'static str, Property)> {
        count.figures(self.timed).into_iter().map(|(name, figure)| (name, Property::Figure(figure)))
    }

    /// What was counted where the row to change is looked for without a query.
    fn found(self, target: &Target) -> Option<Count> {
        self.tally.map(|tally| tally.count(place_of(target)))
    }

    fn found_words(self, target: &Target) -> String {
        self.found(target).map_or_else(String::new, |count| self.words(count))
    }

    /// The line of a node that gives what the statement does.
    fn headed(self, line: String) -> String {
        match self.whole {
            Some(whole) => line + &self.words(whole),
            None => line,
        }
    }
}

/// What is told behind the plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    /// The statement was carried out.
    pub(crate) analyzed: bool,
    /// Milliseconds, where they are to be told.
    pub(crate) planning: Option<f64>,
    pub(crate) execution: Option<f64>,
}

impl Summary {
    /// As lines of text.
    fn lines(self) -> impl Iterator<Item = String> {
        let planning = self.planning.map(|took| format!("Planning Time: {took:.3} ms"));
        planning.into_iter().chain(self.execution.map(|took| format!("Execution Time: {took:.3} ms")))
    }

    /// As members of the object that has the plan.
    fn members(self) -> String {
        let mut members = String::new();
        if let Some(took) = self.planning {
            let _ = write!(members, ",\n    \"Planning Time\": {took:.3}");
        }
        if self.analyzed {
            members.push_str(",\n    \"Triggers\": [\n    ]");
        }
        if let Some(took) = self.execution {
            let _ = write!(members, ",\n    \"Execution Time\": {took:.3}");
        }
        members
    }
}

/// The lines of a plan, and what is told behind it.
pub(crate) fn lines(planned: &Planned, telling: Telling<'_>, summary: Summary) -> Vec<String> {
    let mut lines = plan_lines(planned, telling);
    if !matches!(planned.action, Action::Utility) {
        lines.extend(summary.lines());
    }
    lines
}

fn plan_lines(planned: &Planned, telling: Telling<'_>) -> Vec<String> {
    match &planned.action {
        Action::Empty => Vec::new(),
        Action::Select(plan) => plan.told(telling),
        Action::Insert(plan) => inserting(plan, telling),
        Action::Update(plan) => changing("Update", &plan.target, telling),
        Action::Delete(plan) => changing("Delete", &plan.target, telling),
        Action::Parts(plan) => {
            let mut lines = step(plan.main(), Telling { is_part: true, ..telling });
            for (name, part) in plan.of_with() {
                lines.push(format!("CTE {name}"));
                lines.extend(below_another(step(part, telling.of_part())));
            }
            lines
        }
        Action::Call(plan) => {
            vec![format!("Call of {}", plan.routine.signature(&FormatContext::default()))]
        }
        Action::Utility => vec!["Utility statements have no plan structure".to_owned()],
    }
}

fn step(step: &Step, telling: Telling<'_>) -> Vec<String> {
    match step {
        Step::Select(plan) => plan.told(telling),
        Step::Insert(plan) => inserting(plan, telling),
        Step::Update(plan) => changing("Update", &plan.target, telling),
        Step::Delete(plan) => changing("Delete", &plan.target, telling),
        Step::Merge(plan) => {
            let mut lines = vec![telling.headed(format!("Merge on {}", plan.table.name))];
            lines.extend(below_another(plan.source.told(telling.of_part())));
            lines
        }
    }
}

fn inserting(plan: &InsertPlan, telling: Telling<'_>) -> Vec<String> {
    let mut lines = vec![telling.headed(format!("Insert on {}", plan.table.name))];
    lines.extend(below_another(plan.source_lines(telling.of_part())));
    lines
}

/// The lines of a node that is below another one, as a plan has them.
fn below_another(lines: Vec<String>) -> impl Iterator<Item = String> {
    lines.into_iter().enumerate().map(|(place, line)| match place {
        0 => format!("  ->  {line}"),
        _ => format!("      {line}"),
    })
}

fn changing(what: &str, target: &Target, telling: Telling<'_>) -> Vec<String> {
    let mut lines = vec![telling.headed(format!("{what} on {}", target.table.name))];
    let found = match &target.access {
        Access::Point(_) => {
            let key = target.table.primary_key().map_or("primary key", |index| &index.name);
            vec![format!("Row by {key} of {}{}", target.table.name, telling.found_words(target))]
        }
        Access::Current(cursor) => {
            vec![format!("Row of cursor {cursor}{}", telling.found_words(target))]
        }
        Access::Query(plan) => plan.told(telling.of_found()),
    };
    lines.extend(below_another(found));
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
    /// A number, as it is printed.
    Figure(String),
}

impl From<&str> for Property {
    fn from(text: &str) -> Property {
        Property::Text(text.to_owned())
    }
}

/// The tree of a plan; none for a statement that has no plan.
fn outline(planned: &Planned, telling: Telling<'_>) -> Option<Outline> {
    match &planned.action {
        Action::Select(plan) => Some(plan.outline(telling)),
        Action::Insert(plan) => Some(inserted(plan, telling)),
        Action::Update(plan) => Some(changed("Update", &plan.target, telling)),
        Action::Delete(plan) => Some(changed("Delete", &plan.target, telling)),
        Action::Parts(plan) => {
            let mut main = outline_of_step(plan.main(), Telling { is_part: true, ..telling });
            for (name, part) in plan.of_with() {
                let mut part = outline_of_step(part, telling.of_part());
                part.properties.insert(0, ("Subplan Name", Property::Text(format!("CTE {name}"))));
                part.properties.insert(0, ("Parent Relationship", "InitPlan".into()));
                main.plans.push(part);
            }
            Some(main)
        }
        Action::Call(_) | Action::Empty | Action::Utility => None,
    }
}

fn outline_of_step(step: &Step, telling: Telling<'_>) -> Outline {
    match step {
        Step::Select(plan) => plan.outline(telling),
        Step::Insert(plan) => inserted(plan, telling),
        Step::Update(plan) => changed("Update", &plan.target, telling),
        Step::Delete(plan) => changed("Delete", &plan.target, telling),
        Step::Merge(plan) => {
            modify("Merge", &plan.table.name, telling, plan.source.outline(telling.of_part()))
        }
    }
}

fn inserted(plan: &InsertPlan, telling: Telling<'_>) -> Outline {
    modify("Insert", &plan.table.name, telling, plan.source_outline(telling.of_part()))
}

fn changed(operation: &str, changed: &Target, telling: Telling<'_>) -> Outline {
    modify(operation, &changed.table.name, telling, target(changed, telling.of_found()))
}

fn modify(operation: &str, table: &str, telling: Telling<'_>, source: Outline) -> Outline {
    let mut properties: Vec<(&'static str, Property)> =
        vec![("Operation", operation.into()), ("Relation Name", table.into()), ("Alias", table.into())];
    properties.extend(telling.whole.into_iter().flat_map(|whole| telling.figures(whole)));
    Outline { kind: "ModifyTable", properties, plans: vec![source] }
}

fn target(target: &Target, telling: Telling<'_>) -> Outline {
    let found = telling.found(target).into_iter().flat_map(|count| telling.figures(count));
    match &target.access {
        Access::Point(_) => {
            let index = target.table.primary_key().map_or("", |index| index.name.as_str());
            let table = target.table.name.as_str();
            let mut properties: Vec<(&'static str, Property)> = vec![
                ("Scan Direction", "Forward".into()),
                ("Index Name", index.into()),
                ("Relation Name", table.into()),
                ("Alias", table.into()),
            ];
            properties.extend(found);
            Outline { kind: "Index Scan", properties, plans: vec![] }
        }
        Access::Current(_) => {
            let table = target.table.name.as_str();
            let mut properties: Vec<(&'static str, Property)> =
                vec![("Relation Name", table.into()), ("Alias", table.into())];
            properties.extend(found);
            Outline { kind: "Tid Scan", properties, plans: vec![] }
        }
        Access::Query(plan) => plan.outline(telling),
    }
}

/// The plan as JSON, and what is told behind it.
pub(crate) fn json(planned: &Planned, telling: Telling<'_>, summary: Summary) -> String {
    let Some(root) = outline(planned, telling) else {
        return "[\n  \"Utility Statement\"\n]".to_owned();
    };
    let mut out = "[\n  {\n    \"Plan\": ".to_owned();
    write_node(&root, None, 4, &mut out);
    out.push_str(&summary.members());
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

/// The plans below a node, each with what it is to the node. Those of WITH and of subqueries say
/// that themselves, and do not count, for the rows come from the others; those of WITH come first,
/// those of subqueries last.
fn below(node: &Outline) -> Vec<(Option<&'static str>, &Outline)> {
    let says = |plan: &&Outline, what: &str| {
        let said = ("Parent Relationship", Property::from(what));
        plan.properties.first().is_some_and(|first| *first == said)
    };
    let (first, others): (Vec<&Outline>, Vec<&Outline>) =
        node.plans.iter().partition(|plan| says(plan, "InitPlan"));
    let (last, then): (Vec<&Outline>, Vec<&Outline>) =
        others.into_iter().partition(|plan| says(plan, "SubPlan"));
    let then = then.into_iter().enumerate();
    let then = then.map(|(place, plan)| (Some(relationship(node.kind, place)), plan));
    let first = first.into_iter().map(|plan| (None, plan));
    first.chain(then).chain(last.into_iter().map(|plan| (None, plan))).collect()
}

fn write_node(node: &Outline, relationship_to_above: Option<&str>, indent: usize, out: &mut String) {
    let space = " ".repeat(indent + 2);
    let _ = write!(out, "{{\n{space}\"Node Type\": {}", quoted(node.kind));
    if let Some(relationship) = relationship_to_above {
        let _ = write!(out, ",\n{space}\"Parent Relationship\": {}", quoted(relationship));
    }
    let _ = write!(out, ",\n{space}\"Parallel Aware\": false,\n{space}\"Async Capable\": false");
    for (name, value) in &node.properties {
        let value = match value {
            Property::Text(text) => quoted(text),
            Property::Figure(figure) => figure.clone(),
            Property::List(items) => {
                format!("[{}]", items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", "))
            }
        };
        let _ = write!(out, ",\n{space}{}: {value}", quoted(name));
    }
    if !node.plans.is_empty() {
        let _ = write!(out, ",\n{space}\"Plans\": [");
        for (place, (relationship, plan)) in below(node).into_iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let _ = write!(out, "{comma}\n{space}  ");
            write_node(plan, relationship, indent + 4, out);
        }
        let _ = write!(out, "\n{space}]");
    }
    let _ = write!(out, "\n{}}}", " ".repeat(indent));
}
