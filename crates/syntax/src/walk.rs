//! Walks through what was parsed.
//!
//! A visitor is compiled together with each of the parser's kinds of nodes, of which there are
//! hundreds, wherever it is used: one more is half a megabyte. So there is one for reading and one
//! for changing, both are compiled here, and they ask whoever walks through a table of functions.

use std::ops::ControlFlow;

use sqlparser::ast::{
    DataType, Expr, Insert, ObjectName, Query, SelectItem, Statement, TableFactor, Visit, VisitMut, Visitor,
    VisitorMut,
};

/// Whether a walk goes on, or has found what it looked for.
pub type Step = ControlFlow<()>;

/// Who walks: what is met is told before what is in it, but for `leaves_query`.
pub trait Walker {
    /// A query, also one within another.
    fn query(&mut self, _: &Query) -> Step {
        ControlFlow::Continue(())
    }
    /// All of a query was met.
    fn leaves_query(&mut self) -> Step {
        ControlFlow::Continue(())
    }
    /// A name of a relation, or of a function in FROM.
    fn relation(&mut self, _: &ObjectName) -> Step {
        ControlFlow::Continue(())
    }
    /// An item of FROM.
    fn table_factor(&mut self, _: &TableFactor) -> Step {
        ControlFlow::Continue(())
    }
    /// An expression, also one within another.
    fn expression(&mut self, _: &Expr) -> Step {
        ControlFlow::Continue(())
    }
}

/// What can be walked through.
pub trait Node {
    /// See [`walk`].
    fn read(&self, walker: &mut dyn Walker) -> Step;
    /// See [`change`].
    fn change(&mut self, changer: &mut dyn Changer);
}

macro_rules! nodes {
    ($($node:ty),*) => {
        $(impl Node for $node {
            fn read(&self, walker: &mut dyn Walker) -> Step {
                Visit::visit(self, &mut Reading(walker))
            }

            fn change(&mut self, changer: &mut dyn Changer) {
                let _ = VisitMut::visit(self, &mut Changing(changer));
            }
        })*
    };
}

nodes!(Expr, Insert, Query, SelectItem, Statement);

/// Walks through a node and all in it.
pub fn walk(node: &impl Node, walker: &mut dyn Walker) -> Step {
    node.read(walker)
}

/// Whether an expression is one that is looked for, or has one in it.
pub fn has_expression(node: &impl Node, is_it: impl FnMut(&Expr) -> bool) -> bool {
    walk(node, &mut Looking(is_it)).is_break()
}

/// Calls a function with each expression, also those within others.
pub fn for_each_expression(node: &impl Node, mut with: impl FnMut(&Expr)) {
    has_expression(node, |expression| {
        with(expression);
        false
    });
}

/// Who changes what is met: a query and an item of FROM before what is in it, an expression after
/// that.
pub trait Changer {
    /// A query, also one within another.
    fn query(&mut self, _: &mut Query) {}
    /// All of a query was met.
    fn leaves_query(&mut self, _: &mut Query) {}
    /// An item of FROM.
    fn table_factor(&mut self, _: &mut TableFactor) {}
    /// An expression, also one within another.
    fn expression(&mut self, _: &mut Expr) {}
}

/// Walks through a node and all in it, to change it.
pub fn change(node: &mut impl Node, changer: &mut dyn Changer) {
    node.change(changer);
}

/// Calls a function with each expression, first with those within others.
pub fn change_expressions(node: &mut impl Node, with: impl FnMut(&mut Expr)) {
    change(node, &mut Each(with));
}

/// Calls a function with each type that expressions name.
pub fn change_types(node: &mut impl Node, mut with: impl FnMut(&mut DataType)) {
    change_expressions(node, |expression| match expression {
        Expr::Cast { data_type, .. } => with(data_type),
        Expr::TypedString(literal) => with(&mut literal.data_type),
        _ => {}
    });
}

struct Reading<'a>(&'a mut dyn Walker);

impl Visitor for Reading<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> Step {
        self.0.query(query)
    }

    fn post_visit_query(&mut self, _: &Query) -> Step {
        self.0.leaves_query()
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> Step {
        self.0.relation(relation)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Step {
        self.0.table_factor(factor)
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> Step {
        self.0.expression(expression)
    }
}

struct Changing<'a>(&'a mut dyn Changer);

impl VisitorMut for Changing<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.0.query(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.0.leaves_query(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.0.table_factor(factor);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        self.0.expression(expression);
        ControlFlow::Continue(())
    }
}

struct Each<F>(F);

impl<F: FnMut(&mut Expr)> Changer for Each<F> {
    fn expression(&mut self, expression: &mut Expr) {
        (self.0)(expression);
    }
}

struct Looking<F>(F);

impl<F: FnMut(&Expr) -> bool> Walker for Looking<F> {
    fn expression(&mut self, expression: &Expr) -> Step {
        match (self.0)(expression) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}
