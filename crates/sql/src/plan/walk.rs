//! Walking over plans: what a node refers to around it.

use super::{Node, SourceNode};
use crate::expr::{Expr, place_of};

impl Node {
    /// Calls `visit` with where each node is that runs when this one does, itself included.
    pub(crate) fn for_each_place(&self, visit: &mut dyn FnMut(usize)) {
        visit(place_of(self));
        match self {
            Node::Select(select) => {
                select.group.iter().for_each(|group| visit(place_of(group)));
                let stages = select.windows.iter().flat_map(|windows| &windows.stages);
                stages.for_each(|stage| visit(place_of(stage)));
                select.source.for_each_place(visit);
            }
            Node::Values(_) => {}
            Node::SetOperation { left, right, .. } => {
                left.for_each_place(visit);
                right.for_each_place(visit);
            }
            Node::Sort { input, .. }
            | Node::Limit { input, .. }
            | Node::Distinct { input, .. }
            | Node::Convert { input, .. }
            | Node::With { input, .. } => input.for_each_place(visit),
        }
    }

    /// Calls `visit(depth, slot)` with every reference that leaves the node; depth 1 is the frame
    /// around it.
    pub fn for_each_outer_reference(&self, visit: &mut dyn FnMut(usize, usize)) {
        self.walk(0, &mut |expr, nested| {
            expr.for_each_reference(nested + 1, &mut |depth, slot| visit(depth + 1, slot));
        });
    }

    /// Calls `visit(expression, nested)` with every outermost expression, where `nested` counts the
    /// frames between the node's own and the expression's.
    pub(super) fn walk(&self, nested: usize, visit: &mut dyn FnMut(&Expr, usize)) {
        match self {
            Node::Select(select) => {
                select.source.walk(nested, visit);
                if let Some(group) = &select.group {
                    group.keys.iter().chain(&group.computed).for_each(|expr| visit(expr, nested));
                    for aggregate in &group.aggregates {
                        aggregate.arguments.iter().for_each(|expr| visit(expr, nested));
                        aggregate.order.iter().for_each(|(expr, ..)| visit(expr, nested));
                        aggregate.filter.iter().for_each(|expr| visit(expr, nested));
                    }
                    group.having.iter().for_each(|expr| visit(expr, nested));
                }
                if let Some(windows) = &select.windows {
                    windows.computed.iter().for_each(|expr| visit(expr, nested));
                    for stage in &windows.stages {
                        let bounds = [stage.frame.start.offset(), stage.frame.end.offset()];
                        bounds.into_iter().flatten().for_each(|expr| visit(expr, nested));
                        for call in &stage.calls {
                            call.arguments.iter().chain(&call.filter).for_each(|expr| visit(expr, nested));
                        }
                    }
                }
                for set in &select.set_returning {
                    set.call.exprs().iter().for_each(|expr| visit(expr, nested));
                }
                select.targets.iter().for_each(|expr| visit(expr, nested));
            }
            Node::Values(rows) => rows.iter().flatten().for_each(|expr| visit(expr, nested)),
            Node::SetOperation { left, right, .. } => {
                left.walk(nested, visit);
                right.walk(nested, visit);
            }
            Node::Sort { input, limit, .. } => {
                input.walk(nested, visit);
                if let Some((limit, offset)) = limit {
                    visit(limit, nested);
                    offset.iter().for_each(|expr| visit(expr, nested));
                }
            }
            Node::Limit { input, limit, offset, .. } => {
                input.walk(nested, visit);
                limit.iter().chain(offset).for_each(|expr| visit(expr, nested));
            }
            Node::Distinct { input, .. } | Node::Convert { input, .. } => input.walk(nested, visit),
            Node::With { input, ctes } => {
                // They stand beside it: whoever runs it runs them.
                for cte in ctes.iter() {
                    cte.node.walk(nested, visit);
                    if let Some((step, _)) = &cte.recursive {
                        step.walk(nested, visit);
                    }
                }
                input.walk(nested, visit);
            }
        }
    }
}

impl SourceNode {
    fn for_each_place(&self, visit: &mut dyn FnMut(usize)) {
        visit(place_of(self));
        match self {
            SourceNode::Unit
            | SourceNode::Nothing
            | SourceNode::Cte { .. }
            | SourceNode::Scan(_)
            | SourceNode::Virtual { .. }
            | SourceNode::Function { .. } => {}
            SourceNode::Query { node, .. } => node.for_each_place(visit),
            SourceNode::Filter { input, .. }
            | SourceNode::First(input)
            | SourceNode::Materialize { input, .. } => input.for_each_place(visit),
            SourceNode::NestedLoop { outer, inner, .. } => {
                outer.for_each_place(visit);
                inner.for_each_place(visit);
            }
            SourceNode::MergeJoin(join) => {
                join.outer.for_each_place(visit);
                join.inner.for_each_place(visit);
            }
            SourceNode::HashJoin(join) => {
                join.probe.for_each_place(visit);
                join.build.for_each_place(visit);
            }
        }
    }

    /// Calls `visit(depth, slot)` with every reference to a frame; depth 0 is the frame the source
    /// fills.
    pub fn for_each_reference(&self, visit: &mut dyn FnMut(usize, usize)) {
        self.walk(0, &mut |expr, nested| expr.for_each_reference(nested, visit));
    }

    fn walk(&self, nested: usize, visit: &mut dyn FnMut(&Expr, usize)) {
        match self {
            SourceNode::Unit | SourceNode::Nothing | SourceNode::Cte { .. } => {}
            SourceNode::Scan(scan) => {
                scan.access.for_each_expr(&mut |expr| visit(expr, nested));
                scan.filter.iter().for_each(|expr| visit(expr, nested));
            }
            SourceNode::Virtual { key, .. } => key.iter().for_each(|(_, expr)| visit(expr, nested)),
            SourceNode::Query { node, .. } => node.walk(nested + 1, visit),
            SourceNode::Function { call, .. } => call.exprs().iter().for_each(|expr| visit(expr, nested)),
            SourceNode::Filter { input, conditions } => {
                input.walk(nested, visit);
                conditions.iter().for_each(|expr| visit(expr, nested));
            }
            SourceNode::First(input) | SourceNode::Materialize { input, .. } => input.walk(nested, visit),
            SourceNode::NestedLoop { outer, inner, on, .. } => {
                outer.walk(nested, visit);
                inner.walk(nested, visit);
                on.iter().for_each(|expr| visit(expr, nested));
            }
            SourceNode::MergeJoin(join) => {
                join.outer.walk(nested, visit);
                join.inner.walk(nested, visit);
                join.on.iter().for_each(|expr| visit(expr, nested));
            }
            SourceNode::HashJoin(join) => {
                join.probe.walk(nested, visit);
                join.build.walk(nested, visit);
                for expr in join.probe_keys.iter().chain(&join.build_keys).chain(&join.on) {
                    visit(expr, nested);
                }
            }
        }
    }
}
