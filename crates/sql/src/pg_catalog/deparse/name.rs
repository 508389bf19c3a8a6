//! Names in expressions, and elements of what they name.

use sqlparser::ast::{AccessExpr, Expr as Syntax, Subscript, Value, ValueWithSpan};

use super::analyze::{Analyzer, unknown};
use super::scope::Names;
use super::term::{Node, Term};
use crate::error::{Result, SqlError};

impl Analyzer<'_> {
    pub(super) fn column(&self, name: &str) -> Result<Term> {
        let table = match self.columns {
            Names::Columns(table) => Some(table),
            Names::Value(ty) if name == "value" => return Ok(Term::new(Node::Atom("VALUE".to_owned()), ty)),
            Names::Value(_) => None,
        };
        let mut columns = table.into_iter().flat_map(|table| table.visible_columns());
        match columns.find(|(_, column)| column.name == name) {
            Some((_, column)) => Ok(Term::new(Node::Atom(self.format.quoted(name)), column.ty)),
            None => Err(SqlError::internal(format!("no column is named {name}"))),
        }
    }

    /// `array[1]`, of a name and with plain numbers.
    pub(super) fn subscript(&self, syntax: &Syntax, root: &Syntax, chain: &[AccessExpr]) -> Result<Term> {
        let root = self.expression(root)?;
        let (Node::Atom(name), Some(element)) = (&root.node, root.ty.element()) else {
            return Err(unknown(syntax));
        };
        let mut text =
            if matches!(self.columns, Names::Value(_)) { format!("({name})") } else { name.clone() };
        for access in chain {
            match access {
                AccessExpr::Subscript(Subscript::Index {
                    index: Syntax::Value(ValueWithSpan { value: Value::Number(digits, _), .. }),
                }) => text.push_str(&format!("[{digits}]")),
                _ => return Err(unknown(syntax)),
            }
        }
        Ok(Term::new(Node::Atom(text), element))
    }
}
