//! Walking over expressions: every traversal is built on the one list of an expression's children.

use super::{Expr, SubqueryBody, SubqueryKind};

/// Calls `$visit` with each direct child; works for shared and for exclusive references.
macro_rules! children {
    ($self:ident, $visit:ident, $iter:ident, $as_ref:tt) => {
        match $self {
            Expr::Constant(_)
            | Expr::Slot(_)
            | Expr::Outer { .. }
            | Expr::Parameter(_)
            | Expr::Held
            | Expr::Aggregate { .. }
            | Expr::SetResult(_)
            | Expr::WindowResult(_) => {}
            Expr::Compare(_, operands) => operands.$iter().for_each($visit),
            Expr::Operator(call) => {
                $visit(children!(@$as_ref call.left));
                $visit(children!(@$as_ref call.right));
            }
            Expr::Function(call) => call.arguments.$iter().for_each($visit),
            Expr::Routine(call) => call.arguments.$iter().for_each($visit),
            Expr::Cast(cast) => $visit(children!(@$as_ref cast.0)),
            Expr::Domain(value) => $visit(children!(@$as_ref value.operand)),
            Expr::And(parts) | Expr::Or(parts) | Expr::Coalesce(parts) => parts.$iter().for_each($visit),
            Expr::Not(operand) | Expr::IsNull { operand, .. } | Expr::IsTruth { operand, .. } => $visit(operand),
            Expr::IsDistinct { operands, .. } => operands.$iter().for_each($visit),
            Expr::Case(case) => {
                if let Some(operand) = children!(@$as_ref case.operand) {
                    $visit(operand);
                }
                for (condition, result) in children!(@$as_ref case.branches) {
                    $visit(condition);
                    $visit(result);
                }
                $visit(children!(@$as_ref case.otherwise));
            }
            Expr::NullIf(null_if) => {
                $visit(children!(@$as_ref null_if.value));
                $visit(children!(@$as_ref null_if.equal));
            }
            Expr::Extreme { operands, .. } => operands.$iter().for_each($visit),
            Expr::InList(list) => {
                $visit(children!(@$as_ref list.operand));
                list.items.$iter().for_each($visit);
            }
            Expr::Quantified(quantified) => {
                $visit(children!(@$as_ref quantified.operand));
                $visit(children!(@$as_ref quantified.array));
            }
            Expr::RowCompare(compare) => {
                for (left, right) in children!(@$as_ref compare.pairs) {
                    $visit(left);
                    $visit(right);
                }
            }
            Expr::Array(array) => array.items.$iter().for_each($visit),
            Expr::Subscript(subscript) => {
                $visit(children!(@$as_ref subscript.0));
                subscript.1.$iter().for_each($visit);
            }
            Expr::Slice(slice) => {
                $visit(children!(@$as_ref slice.0));
                slice.1.$iter().flatten().flatten().for_each($visit);
            }
            Expr::Subquery(subquery) => {
                match children!(@$as_ref subquery.kind) {
                    SubqueryKind::Any { operands, .. } => operands.$iter().for_each($visit),
                    SubqueryKind::Sought(sought) => sought.operands.$iter().for_each($visit),
                    _ => {}
                }
            }
            Expr::Row(items, _) => items.$iter().for_each($visit),
        }
    };
    (@shared $place:expr) => { &$place };
    (@exclusive $place:expr) => { &mut $place };
}

impl Expr {
    /// Calls `visit` with each direct child. Of a subquery these are the operands beside it, not
    /// what is in it.
    pub fn for_each_child<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        children!(self, visit, iter, shared);
    }

    /// The same, to change them.
    pub fn for_each_child_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        children!(self, visit, iter_mut, exclusive);
    }

    /// Calls `visit` with this expression and all below it, parents first, without entering
    /// subqueries.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        visit(self);
        self.for_each_child(&mut |child| child.visit(visit));
    }

    /// Whether it or anything below it satisfies `test`, without entering subqueries.
    pub fn any(&self, test: &mut dyn FnMut(&Expr) -> bool) -> bool {
        let mut found = false;
        self.visit(&mut |expr| found = found || test(expr));
        found
    }

    /// Whether there is a query in it.
    pub fn has_subquery(&self) -> bool {
        self.any(&mut |expr| matches!(expr, Expr::Subquery(_)))
    }

    /// Calls `visit` with every slot of the current frame that evaluation reads, from subqueries
    /// too.
    pub fn for_each_slot(&self, visit: &mut dyn FnMut(usize)) {
        self.for_each_reference(0, &mut |depth, slot| {
            if depth == 0 {
                visit(slot);
            }
        });
    }

    /// Calls `visit(depth, slot)` with every reference to a frame, from subqueries too, where depth
    /// 0 is the frame of the query `level` levels above this expression, 1 the one around that, and
    /// so on. References further in are not reported.
    pub fn for_each_reference(&self, level: usize, visit: &mut dyn FnMut(usize, usize)) {
        self.visit(&mut |expr| match expr {
            Expr::Slot(slot) if level == 0 => visit(0, *slot),
            Expr::Outer { depth, slot } if *depth >= level => visit(*depth - level, *slot),
            Expr::Subquery(subquery) => match &subquery.body {
                SubqueryBody::Bound(query) => {
                    query.for_each_expr(&mut |inner, nested| {
                        inner.for_each_reference(level + 1 + nested, visit)
                    });
                }
                SubqueryBody::Planned { node, .. } => {
                    node.for_each_outer_reference(&mut |depth, slot| {
                        // Depth 1 of the subquery is this expression's own frame.
                        if depth > level {
                            visit(depth - 1 - level, slot);
                        }
                    });
                }
            },
            _ => {}
        });
    }

    /// Calls `visit(depth)` with every aggregate that is still to get its place, from subqueries
    /// too, where depth 0 is the query `level` levels above this expression, 1 the one around that,
    /// and so on. Those of queries further in are not reported.
    pub(crate) fn for_each_aggregate(&self, level: usize, visit: &mut dyn FnMut(usize)) {
        self.visit(&mut |expr| match expr {
            Expr::Aggregate { depth, .. } if *depth >= level => visit(*depth - level),
            Expr::Subquery(subquery) => {
                if let SubqueryBody::Bound(query) = &subquery.body {
                    query.for_each_expr(&mut |inner, nested| {
                        inner.for_each_aggregate(level + 1 + nested, visit)
                    });
                }
            }
            _ => {}
        });
    }

    /// Whether there is an aggregate of this expression's own query in it, in a subquery too.
    pub(crate) fn has_own_aggregate(&self) -> bool {
        let mut found = false;
        self.for_each_aggregate(0, &mut |depth| found |= depth == 0);
        found
    }

    /// Replaces, bottom up, every reference to the frame `level` levels above this expression (0
    /// its own) by what `replace` gives; an `Outer` reference from a subquery is handed over with
    /// its depth. Subqueries must not be planned yet.
    pub fn replace_references(
        &mut self,
        level: usize,
        replace: &mut dyn FnMut(usize, usize) -> Option<Expr>,
    ) {
        let slot = match self {
            Expr::Slot(slot) if level == 0 => Some(*slot),
            Expr::Outer { depth, slot } if *depth == level => Some(*slot),
            _ => None,
        };
        if let Some(slot) = slot {
            if let Some(new) = replace(level, slot) {
                *self = new;
            }
            return;
        }
        if let Expr::Subquery(subquery) = self
            && let SubqueryBody::Bound(query) = &mut subquery.body
        {
            query.for_each_expr_mut(&mut |inner, nested| {
                inner.replace_references(level + 1 + nested, replace)
            });
        }
        self.for_each_child_mut(&mut |child| child.replace_references(level, replace));
    }
}

impl Expr {
    /// Moves the expression `by` query levels further in: every reference that leaves it must go
    /// that much further out. `level` is the number of levels between the moved expression and this
    /// part of it; 0 from outside.
    pub(crate) fn raise(&mut self, level: usize, by: usize) {
        match self {
            Expr::Slot(slot) if level == 0 => *self = Expr::Outer { depth: by, slot: *slot },
            Expr::Outer { depth, .. } | Expr::Aggregate { depth, .. } if *depth >= level => *depth += by,
            Expr::Subquery(subquery) => {
                if let SubqueryBody::Bound(query) = &mut subquery.body {
                    query.for_each_expr_mut(&mut |inner, nested| inner.raise(level + 1 + nested, by));
                }
            }
            _ => {}
        }
        if !matches!(self, Expr::Outer { .. }) {
            self.for_each_child_mut(&mut |child| child.raise(level, by));
        }
    }

    /// Moves the expression `by` query levels further out: the opposite of [`raise`](Expr::raise),
    /// for expressions that refer to nothing in between. `level` is the number of levels between
    /// the moved expression and this part of it; 0 from outside.
    pub(crate) fn lower(&mut self, level: usize, by: usize) {
        match self {
            Expr::Outer { depth, slot } if level == 0 && *depth == by => *self = Expr::Slot(*slot),
            Expr::Outer { depth, .. } | Expr::Aggregate { depth, .. } if *depth >= level + by => *depth -= by,
            Expr::Subquery(subquery) => {
                if let SubqueryBody::Bound(query) = &mut subquery.body {
                    query.for_each_expr_mut(&mut |inner, nested| inner.lower(level + 1 + nested, by));
                }
            }
            _ => {}
        }
        self.for_each_child_mut(&mut |child| child.lower(level, by));
    }
}
