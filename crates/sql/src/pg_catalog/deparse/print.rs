//! From the analyzed form to text, with PostgreSQL's rules for parentheses.

use super::Style;
use super::term::{Logic, Node, Term};
use crate::types::object::requoted_type;
use crate::types::{FormatContext, Type, TypeId};

/// Stack left before printing goes on on a fresh one, and the size of that.
const RED_ZONE: usize = 128 * 1024;
const FRESH_STACK: usize = 4 * 1024 * 1024;

/// What an expression stands in, as far as parentheses depend on it. The items of lists are
/// separated by other means and need none.
#[derive(Clone, Copy)]
enum Parent<'a> {
    /// An operator, as its left operand or not.
    Operator { name: &'a str, binary: bool, left: bool },
    /// AND, OR or NOT.
    Logic(Logic),
    /// A conversion, or anything else.
    Other,
}

/// Writes terms.
pub(super) struct Printer<'a> {
    style: Style,
    format: &'a FormatContext,
    out: String,
    indent: usize,
}

/// A text as a string literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Can the expression stand here in the pretty form without parentheses of its own?
fn is_simple(node: &Node, parent: Parent<'_>) -> bool {
    match node {
        Node::Cast { operand, .. } => is_simple(&operand.node, Parent::Other),
        Node::Operator { name, left, .. } => match parent {
            Parent::Operator { name: outer, binary, left: is_left } => {
                left.is_some() && binary && binds_tighter(name, outer, is_left)
            }
            Parent::Logic(_) => true,
            Parent::Other => false,
        },
        Node::Test(..) | Node::Distinct(..) => matches!(parent, Parent::Logic(_)),
        Node::Logic(own, _) => match parent {
            Parent::Logic(outer) => match own {
                Logic::Not | Logic::And => outer != Logic::Not,
                Logic::Or => outer == Logic::Or,
            },
            _ => false,
        },
        Node::Quantified { .. } => false,
        _ => true,
    }
}

/// PostgreSQL leaves parentheses out only among the arithmetic operators whose order everyone
/// knows.
fn binds_tighter(name: &str, outer: &str, is_left: bool) -> bool {
    let level = |name: &str| match name {
        "+" | "-" => Some(1),
        "*" | "/" | "%" => Some(2),
        _ => None,
    };
    match (level(name), level(outer)) {
        (Some(own), Some(outer)) => own > outer || (own == outer && is_left),
        _ => false,
    }
}

impl<'a> Printer<'a> {
    pub(super) fn new(style: Style, format: &'a FormatContext) -> Printer<'a> {
        Printer { style, format, out: String::new(), indent: 0 }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    /// The whole expression: an implicit conversion around it is not shown.
    pub(super) fn top(&mut self, term: &Term) {
        self.hidden(term);
    }

    /// A term in a place that does not show implicit conversions.
    fn hidden(&mut self, term: &Term) {
        match &term.node {
            Node::Cast { operand, implicit: true } => self.inner(operand, Parent::Other),
            _ => self.term(term),
        }
    }

    fn pretty(&self) -> bool {
        self.style == Style::Pretty
    }

    /// A term within another: in parentheses where the pretty form needs them. The plain form's
    /// terms bring their own.
    fn inner(&mut self, term: &Term, parent: Parent<'_>) {
        let parentheses = self.pretty() && !is_simple(&term.node, parent);
        if parentheses {
            self.out.push('(');
        }
        self.term(term);
        if parentheses {
            self.out.push(')');
        }
    }

    /// A part of AND, OR, NOT, which does not show implicit conversions.
    fn condition(&mut self, term: &Term, logic: Logic) {
        match &term.node {
            Node::Cast { operand, implicit: true } => self.inner(operand, Parent::Other),
            _ => self.inner(term, Parent::Logic(logic)),
        }
    }

    /// Something that brings its own parentheses in the plain form.
    fn wrapped(&mut self, body: impl FnOnce(&mut Self)) {
        if self.pretty() {
            return body(self);
        }
        self.out.push('(');
        body(self);
        self.out.push(')');
    }

    fn list(&mut self, terms: &[Term]) {
        for (i, term) in terms.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            self.term(term);
        }
    }

    fn term(&mut self, term: &Term) {
        stacker::maybe_grow(RED_ZONE, FRESH_STACK, || self.node(term));
    }

    fn node(&mut self, term: &Term) {
        match &term.node {
            Node::Atom(text) => self.out.push_str(text),
            Node::Constant(value) => self.constant(value.as_deref(), term.ty, true),
            Node::Operator { name, left, right } => self.wrapped(|printer| {
                let binary = left.is_some();
                if let Some(left) = left {
                    printer.inner(left, Parent::Operator { name, binary, left: true });
                    printer.out.push(' ');
                }
                printer.out.push_str(name);
                printer.out.push(' ');
                printer.inner(right, Parent::Operator { name, binary, left: false });
            }),
            Node::Cast { operand, .. } => self.cast(operand, term.ty),
            Node::Logic(logic, terms) => self.wrapped(|printer| printer.logic(*logic, terms)),
            Node::Test(operand, test) => self.wrapped(|printer| {
                printer.inner(operand, Parent::Other);
                printer.out.push_str(test);
            }),
            Node::Distinct(operands) => self.wrapped(|printer| {
                printer.inner(&operands[0], Parent::Other);
                printer.out.push_str(" IS DISTINCT FROM ");
                printer.inner(&operands[1], Parent::Other);
            }),
            Node::Quantified { operand, operator, array, all } => self.wrapped(|printer| {
                printer.inner(operand, Parent::Other);
                let word = if *all { "ALL" } else { "ANY" };
                printer.out.push_str(&format!(" {operator} {word} ("));
                printer.inner(array, Parent::Other);
                printer.out.push(')');
            }),
            Node::Function { name, arguments } => {
                self.out.push_str(name);
                self.out.push('(');
                self.list(arguments);
                self.out.push(')');
            }
            Node::Special { parts, arguments } => {
                for (i, part) in parts.iter().enumerate() {
                    self.out.push_str(part);
                    if let Some(argument) = arguments.get(i) {
                        self.term(argument);
                    }
                }
            }
            Node::Array(items) => {
                self.out.push_str("ARRAY[");
                self.list(items);
                self.out.push(']');
            }
            Node::Case { operand, branches, otherwise } => self.case(operand.as_deref(), branches, otherwise),
        }
    }

    fn logic(&mut self, logic: Logic, terms: &[Term]) {
        let word = match logic {
            Logic::Not => {
                self.out.push_str("NOT ");
                ""
            }
            Logic::And => " AND ",
            Logic::Or => " OR ",
        };
        for (i, term) in terms.iter().enumerate() {
            if i > 0 {
                self.out.push_str(word);
            }
            self.condition(term, logic);
        }
    }

    fn cast(&mut self, operand: &Term, to: Type) {
        match &operand.node {
            // A constant of the same type: only its length is being fixed, so one label says all.
            Node::Constant(value) if operand.ty.id == to.id => {
                self.constant(value.as_deref(), operand.ty, false)
            }
            _ => {
                if !self.pretty() {
                    self.out.push('(');
                }
                match &operand.node {
                    Node::Cast { operand: inner, implicit: true } => self.inner(inner, Parent::Other),
                    _ => self.inner(operand, Parent::Other),
                }
                if !self.pretty() {
                    self.out.push(')');
                }
            }
        }
        self.label(to);
    }

    /// A value; `labelled` with its type unless it shows by itself.
    fn constant(&mut self, value: Option<&str>, ty: Type, labelled: bool) {
        let Some(text) = value else {
            self.out.push_str("NULL");
            if labelled {
                self.label(ty);
            }
            return;
        };
        let digits = text.as_bytes().first().is_some_and(u8::is_ascii_digit);
        let evident = match ty.id {
            TypeId::Bool => {
                self.out.push_str(if text == "t" { "true" } else { "false" });
                return;
            }
            TypeId::Int4 => digits,
            TypeId::Numeric => digits && text.contains(['e', 'E', '.']),
            _ => false,
        };
        if evident {
            self.out.push_str(text);
            return;
        }
        self.out.push_str(&quoted(text));
        if labelled && ty.id != TypeId::Unknown {
            self.label(ty);
        }
    }

    fn label(&mut self, ty: Type) {
        self.out.push_str("::");
        self.out.push_str(&requoted_type(ty.format_with(self.format), self.format));
    }

    /// A line break, with what follows indented.
    fn line(&mut self, text: &str) {
        let length = self.out.trim_end_matches(' ').len();
        self.out.truncate(length);
        self.out.push('\n');
        self.out.push_str(&" ".repeat(self.indent));
        self.out.push_str(text);
    }

    fn case(&mut self, operand: Option<&Term>, branches: &[(Term, Term)], otherwise: &Term) {
        self.line("CASE");
        self.indent += 4;
        if let Some(operand) = operand {
            self.out.push(' ');
            self.term(operand);
        }
        for (condition, result) in branches {
            self.line("WHEN ");
            self.hidden(condition);
            self.out.push_str(" THEN ");
            self.term(result);
        }
        self.line("ELSE ");
        self.term(otherwise);
        self.indent -= 4;
        self.line("END");
    }
}
