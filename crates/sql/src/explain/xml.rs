//! A plan as XML, with PostgreSQL's elements: the same tree as in JSON.
//!
//! ```text
//! <explain xmlns="http://www.postgresql.org/2009/explain">
//!   <Query>
//!     <Plan>
//!       <Node-Type>Seq Scan</Node-Type>
//!       ...
//! ```

use std::fmt::Write as _;

use super::{Outline, Property, Summary, Telling, below, outline};
use crate::session::Planned;

/// The plan, and what is told behind it.
pub(crate) fn document(planned: &Planned, telling: Telling<'_>, summary: Summary) -> String {
    let mut out = "<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n".to_owned();
    match outline(planned, telling) {
        Some(root) => {
            out.push_str("  <Query>\n");
            write_plan(&root, None, 4, &mut out);
            write_summary(summary, &mut out);
            out.push_str("  </Query>\n");
        }
        None => out.push_str("  <Utility-Statement />\n"),
    }
    out.push_str("</explain>");
    out
}

fn write_summary(summary: Summary, out: &mut String) {
    if let Some(took) = summary.planning {
        element("Planning Time", &format!("{took:.3}"), 4, out);
    }
    if summary.analyzed {
        out.push_str("    <Triggers>\n    </Triggers>\n");
    }
    if let Some(took) = summary.execution {
        element("Execution Time", &format!("{took:.3}"), 4, out);
    }
}

/// What the element of a property is called.
fn tag(name: &str) -> String {
    name.replace(' ', "-")
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#x0d;"),
            other => out.push(other),
        }
    }
    out
}

fn element(name: &str, text: &str, indent: usize, out: &mut String) {
    let (space, tag) = (" ".repeat(indent), tag(name));
    let _ = writeln!(out, "{space}<{tag}>{}</{tag}>", escaped(text));
}

fn write_plan(node: &Outline, relationship_to_above: Option<&str>, indent: usize, out: &mut String) {
    let (space, within) = (" ".repeat(indent), indent + 2);
    let _ = writeln!(out, "{space}<Plan>");
    element("Node Type", node.kind, within, out);
    if let Some(relationship) = relationship_to_above {
        element("Parent Relationship", relationship, within, out);
    }
    element("Parallel Aware", "false", within, out);
    element("Async Capable", "false", within, out);
    for (name, value) in &node.properties {
        match value {
            Property::Text(text) | Property::Figure(text) => element(name, text, within, out),
            Property::List(items) => {
                let tag = tag(name);
                let _ = writeln!(out, "{space}  <{tag}>");
                for item in items {
                    element("Item", item, within + 2, out);
                }
                let _ = writeln!(out, "{space}  </{tag}>");
            }
        }
    }
    if !node.plans.is_empty() {
        let _ = writeln!(out, "{space}  <Plans>");
        for (relationship, plan) in below(node) {
            write_plan(plan, relationship, indent + 4, out);
        }
        let _ = writeln!(out, "{space}  </Plans>");
    }
    let _ = writeln!(out, "{space}</Plan>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_named_and_escaped_as_in_postgresql() {
        let scan = Outline {
            kind: "Seq Scan",
            properties: vec![
                ("Output", Property::List(vec!["a".to_owned(), "b".to_owned()])),
                ("Filter", "((a > 3) AND (b <> '&'::text))".into()),
                ("Rows Removed by Filter", Property::Figure("2".to_owned())),
            ],
            plans: vec![],
        };
        let limit = Outline { kind: "Limit", properties: vec![], plans: vec![scan] };
        let mut out = String::new();
        write_plan(&limit, None, 0, &mut out);
        let expected = "\
<Plan>
  <Node-Type>Limit</Node-Type>
  <Parallel-Aware>false</Parallel-Aware>
  <Async-Capable>false</Async-Capable>
  <Plans>
    <Plan>
      <Node-Type>Seq Scan</Node-Type>
      <Parent-Relationship>Outer</Parent-Relationship>
      <Parallel-Aware>false</Parallel-Aware>
      <Async-Capable>false</Async-Capable>
      <Output>
        <Item>a</Item>
        <Item>b</Item>
      </Output>
      <Filter>((a &gt; 3) AND (b &lt;&gt; '&amp;'::text))</Filter>
      <Rows-Removed-by-Filter>2</Rows-Removed-by-Filter>
    </Plan>
  </Plans>
</Plan>
";
        assert_eq!(out, expected);
    }
}
