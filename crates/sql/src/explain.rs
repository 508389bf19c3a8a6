//! EXPLAIN: how a statement is carried out, as text.

use crate::oltp::target::{Access, Target};
use crate::session::{Action, Planned};

/// The lines of a plan.
pub(crate) fn lines(planned: &Planned) -> Vec<String> {
    match &planned.action {
        Action::Empty => Vec::new(),
        Action::Select(plan) => plan.explain(),
        Action::Insert(plan) => {
            let mut lines = vec![format!("Insert on {}", plan.table.name)];
            lines.extend(plan.source_lines().into_iter().map(|line| format!("  {line}")));
            lines
        }
        Action::Update(plan) => changing("Update", &plan.target),
        Action::Delete(plan) => changing("Delete", &plan.target),
        Action::Call(plan) => vec![format!("Call of {}", plan.routine.signature())],
        Action::Utility => vec!["Utility statements have no plan structure".to_owned()],
    }
}

fn changing(what: &str, target: &Target) -> Vec<String> {
    let mut lines = vec![format!("{what} on {}", target.table.name)];
    match &target.access {
        Access::Point(_) => {
            let key = target.table.primary_key().map_or("primary key", |index| &index.name);
            lines.push(format!("  Row by {key} of {}", target.table.name));
        }
        Access::Query(plan) => lines.extend(plan.explain().into_iter().map(|line| format!("  {line}"))),
    }
    lines
}
