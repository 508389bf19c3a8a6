//! GROUP BY over a set-returning function: the function goes to FROM.
//!
//! ```text
//! SELECT unnest(tags) tag, count(*) FROM work GROUP BY tag
//! SELECT s.unnest tag, count(*) FROM work, LATERAL unnest(tags) s(unnest) GROUP BY tag
//! ```
//!
//! A row gives as many rows as its set has either way, and they are there before they are grouped.
//! It is one function, which is the whole of a key that is a target: what else there is stays
//! refused.

use cognate_syntax::{change_expressions, has_expression};
use sqlparser::ast::{
    self, Expr as Syntax, FunctionArguments, GroupByExpr, Ident, OrderByExpr, Select, SelectItem, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins,
};

use crate::function;
use crate::identifier::fold;

/// The name of the item in FROM. No client can write it.
const ALIAS: &str = "\u{1}set";

/// The statement with the function in FROM, and its ORDER BY, if it groups by one.
pub(super) fn moved(syntax: &Select, order: &[OrderByExpr]) -> Option<(Select, Vec<OrderByExpr>)> {
    let GroupByExpr::Expressions(keys, _) = &syntax.group_by else { return None };
    let call = keys.iter().find_map(|key| grouped_set(syntax, key))?.clone();
    let (factor, column) = lateral(&call)?;
    let (mut moved, mut order) = (syntax.clone(), order.to_vec());
    let mut replace = |part: &mut Syntax| {
        change_expressions(part, |expr| {
            if *expr == call {
                *expr = Syntax::CompoundIdentifier(vec![Ident::new(ALIAS), column.clone()]);
            }
        });
    };
    for item in &mut moved.projection {
        match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => replace(expr),
            _ => {}
        }
    }
    if let GroupByExpr::Expressions(keys, _) = &mut moved.group_by {
        keys.iter_mut().for_each(&mut replace);
    }
    moved.having.iter_mut().for_each(&mut replace);
    order.iter_mut().for_each(|key| replace(&mut key.expr));
    moved.from.push(TableWithJoins { relation: factor, joins: Vec::new() });
    Some((moved, order))
}

/// The call that a key of GROUP BY is, by itself, by the name or by the number of a target.
fn grouped_set<'a>(syntax: &'a Select, key: &'a Syntax) -> Option<&'a Syntax> {
    let target = |place: usize| match syntax.projection.get(place)? {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    };
    let named = |name: &Ident| {
        syntax.projection.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if fold(alias) == fold(name) => Some(expr),
            SelectItem::UnnamedExpr(expr) if set_name(expr).is_some_and(|set| set == fold(name)) => {
                Some(expr)
            }
            _ => None,
        })
    };
    let found = match key {
        // `unnest(tags) tags`: the name means the input column first.
        Syntax::Identifier(name) => named(name).filter(|expr| !mentions(expr, name)),
        Syntax::Value(value) => match &value.value {
            ast::Value::Number(number, _) => target(number.parse::<usize>().ok()?.checked_sub(1)?),
            _ => None,
        },
        other => Some(other),
    };
    found.filter(|expr| set_name(expr).is_some())
}

fn mentions(expr: &Syntax, name: &Ident) -> bool {
    has_expression(expr, |part| matches!(part, Syntax::Identifier(column) if fold(column) == fold(name)))
}

/// The name of the set-returning function that an expression calls.
fn set_name(expr: &Syntax) -> Option<String> {
    let Syntax::Function(call) = expr else { return None };
    let name = fold(call.name.0.last()?.as_ident()?);
    function::returns_set(&name).then_some(name)
}

/// The call as an item of FROM, with the name of its column.
fn lateral(call: &Syntax) -> Option<(TableFactor, Ident)> {
    let Syntax::Function(function) = call else { return None };
    let FunctionArguments::List(arguments) = &function.args else { return None };
    let is_plain = arguments.duplicate_treatment.is_none() && arguments.clauses.is_empty();
    if !is_plain || function.filter.is_some() || function.over.is_some() {
        return None;
    }
    let column = Ident::with_quote('"', set_name(call)?);
    let alias = TableAlias {
        explicit: true,
        name: Ident::new(ALIAS),
        columns: vec![TableAliasColumnDef { name: column.clone(), data_type: None }],
        at: None,
    };
    let factor = TableFactor::Function {
        lateral: true,
        name: function.name.clone(),
        args: arguments.args.clone(),
        with_ordinality: false,
        alias: Some(alias),
    };
    Some((factor, column))
}
