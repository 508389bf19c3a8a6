//! Which plans PostgreSQL could run backwards: a cursor over one of them goes back, whether or not
//! it was declared with SCROLL.

use super::{Node, Plan, SelectNode, SourceNode};
use crate::bind::SetKind;

impl Plan {
    /// Whether PostgreSQL could give the rows backwards: those of one table or function, of VALUES,
    /// and what is sorted.
    pub(crate) fn scans_backward(&self) -> bool {
        !self.has_locks() && self.root.scans_backward()
    }
}

impl Node {
    fn scans_backward(&self) -> bool {
        match self {
            Node::Values(_) | Node::Sort { .. } => true,
            Node::Limit { input, .. } | Node::Convert { input, .. } | Node::With { input, .. } => {
                input.scans_backward()
            }
            Node::SetOperation { kind, all, left, right } => {
                matches!(kind, SetKind::Union) && *all && left.scans_backward() && right.scans_backward()
            }
            Node::Distinct { .. } => false,
            Node::Select(select) => select.scans_backward(),
        }
    }
}

impl SelectNode {
    fn scans_backward(&self) -> bool {
        let is_plain = self.group.is_none() && self.windows.is_none() && self.set_returning.is_empty();
        is_plain && self.source.scans_backward()
    }
}

impl SourceNode {
    fn scans_backward(&self) -> bool {
        match self {
            SourceNode::Scan(_)
            | SourceNode::Virtual { .. }
            | SourceNode::Cte { .. }
            | SourceNode::Function { .. }
            | SourceNode::Materialize { .. } => true,
            SourceNode::Query { node, .. } => node.scans_backward(),
            SourceNode::Filter { input, .. } => input.scans_backward(),
            SourceNode::Unit
            | SourceNode::Nothing
            | SourceNode::First(_)
            | SourceNode::NestedLoop { .. }
            | SourceNode::HashJoin(_)
            | SourceNode::MergeJoin(_) => false,
        }
    }
}
