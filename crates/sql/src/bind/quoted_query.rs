//! The names of a query in quotes, for who asks for all of them so (`quote_all_identifiers`).
//!
//! ```text
//! SELECT a AS b FROM t JOIN u AS v ON lower(a) = v.c
//! SELECT "a" AS "b" FROM "t" JOIN "u" AS "v" ON "lower"("a") = "v"."c"
//! ```
//!
//! Words that the grammar has, such as `coalesce`, stay as they are: in quotes they would be names.

use cognate_syntax::{Changer, change};
use sqlparser::ast::{
    Expr as Syntax, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, SelectItem, SetExpr,
    TableAlias, TableFactor,
};

use crate::identifier::{fold, quote_identifier};

/// Puts the names in quotes.
pub(super) fn quote_names(query: &mut Query) {
    change(query, &mut Quotes);
}

struct Quotes;

fn quote(name: &mut Ident) {
    if name.quote_style.is_none() {
        name.value = fold(name);
        name.quote_style = Some('"');
    }
}

/// The same of what may be a word of the grammar.
fn quote_name(name: &mut Ident) {
    let folded = fold(name);
    if quote_identifier(&folded) == folded {
        quote(name);
    }
}

fn quote_parts(name: &mut ObjectName) {
    for part in &mut name.0 {
        if let ObjectNamePart::Identifier(name) = part {
            quote_name(name);
        }
    }
}

fn quote_alias(alias: Option<&mut TableAlias>) {
    let Some(alias) = alias else { return };
    quote(&mut alias.name);
    alias.columns.iter_mut().for_each(|column| quote(&mut column.name));
}

/// What outputs are called.
fn quote_outputs(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => {
            for item in &mut select.projection {
                if let SelectItem::ExprWithAlias { alias, .. } = item {
                    quote(alias);
                }
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            quote_outputs(left);
            quote_outputs(right);
        }
        _ => {}
    }
}

impl Changer for Quotes {
    fn query(&mut self, query: &mut Query) {
        let with = query.with.iter_mut().flat_map(|with| &mut with.cte_tables);
        with.for_each(|cte| quote_alias(Some(&mut cte.alias)));
        quote_outputs(&mut query.body);
    }

    fn table_factor(&mut self, factor: &mut TableFactor) {
        match factor {
            TableFactor::Table { name, alias, .. } | TableFactor::Function { name, alias, .. } => {
                quote_parts(name);
                quote_alias(alias.as_mut());
            }
            TableFactor::Derived { alias, .. }
            | TableFactor::NestedJoin { alias, .. }
            | TableFactor::UNNEST { alias, .. } => quote_alias(alias.as_mut()),
            _ => {}
        }
    }

    fn expression(&mut self, expression: &mut Syntax) {
        match expression {
            Syntax::Identifier(name) => quote_name(name),
            Syntax::CompoundIdentifier(parts) => parts.iter_mut().for_each(quote),
            Syntax::Function(call) if matches!(call.args, FunctionArguments::List(_)) => {
                quote_parts(&mut call.name);
            }
            _ => {}
        }
    }
}
