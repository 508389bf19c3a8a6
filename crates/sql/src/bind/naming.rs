//! The names of output columns without alias.

use sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, BinaryOperator, DataType, Expr as Syntax, Query, SelectItem, SetExpr,
    TableFactor, TableWithJoins, TrimWhereField,
};

use super::expression::strip;
use super::{name_parts, object_name, resolve_built_in};

/// The name PostgreSQL gives to an expression: a column's or function's, a type's for a conversion
/// of something nameless, else `?column?`.
pub(crate) fn figure_name(syntax: &Syntax) -> String {
    name_of(syntax).map_or_else(|| "?column?".to_owned(), |(name, _)| name)
}

/// The same without `?column?`.
pub(crate) fn nameable(syntax: &Syntax) -> Option<String> {
    name_of(syntax).map(|(name, _)| name)
}

/// The name of a type that is not built in, without its schema; of an array type its elements'.
fn user_type(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Custom(name, _) => Some(name_parts(name).ok()?.pop()?.0),
        DataType::Array(ArrayElemTypeDef::SquareBracket(element, _)) => user_type(element),
        _ => None,
    }
}

/// A name, and whether it is a strong one, which a conversion around it does not replace.
fn name_of(syntax: &Syntax) -> Option<(String, bool)> {
    let strong = |name: &str| Some((name.to_owned(), true));
    let weak = |name: &str| Some((name.to_owned(), false));
    match syntax {
        Syntax::Identifier(ident) => Some((object_name(ident), true)),
        Syntax::CompoundIdentifier(parts) => parts.last().map(|ident| (object_name(ident), true)),
        Syntax::QualifiedWildcard(table, _) => Some((name_parts(table).ok()?.pop()?.0, true)),
        Syntax::Function(function) => {
            let name = name_parts(&function.name).ok()?.pop()?.0;
            Some((if name == "current_catalog" || name == "user" { name.clone() } else { name }, true))
        }
        Syntax::Nested(inner) => name_of(inner),
        Syntax::Collate { expr, .. } => name_of(expr),
        Syntax::Cast { expr, data_type, .. } => match name_of(expr) {
            Some((name, true)) => Some((name, true)),
            weaker => resolve_built_in(data_type)
                .ok()
                .map(|ty| {
                    // Array types are named after their elements.
                    (ty.element().map_or(ty.id, |element| element.id).internal_name().to_owned(), false)
                })
                .or_else(|| user_type(data_type).map(|name| (name, false)))
                .or(weaker),
        },
        Syntax::TypedString(literal) => {
            let built_in = resolve_built_in(&literal.data_type).ok();
            let name = built_in.map(|ty| ty.id.internal_name().to_owned());
            name.or_else(|| user_type(&literal.data_type)).map(|name| (name, false))
        }
        Syntax::Interval(_) => weak("interval"),
        Syntax::Case { else_result, .. } => match else_result.as_deref().and_then(name_of) {
            Some((name, true)) => Some((name, true)),
            _ => weak("case"),
        },
        Syntax::Array(_) => strong("array"),
        Syntax::Exists { negated: false, .. } => strong("exists"),
        Syntax::Subquery(query) => subquery_name(query),
        Syntax::CompoundFieldAccess { root, access_chain } => {
            // The last field that is selected tells.
            let field = access_chain.iter().rev().find_map(|access| match access {
                AccessExpr::Dot(Syntax::Identifier(field)) => Some(object_name(field)),
                _ => None,
            });
            field.map_or_else(|| name_of(strip(root)), |field| Some((field, true)))
        }
        Syntax::Extract { .. } => strong("extract"),
        Syntax::Substring { shorthand, .. } => strong(if *shorthand { "substr" } else { "substring" }),
        Syntax::Position { .. } => strong("position"),
        Syntax::Overlay { .. } => strong("overlay"),
        Syntax::AtTimeZone { .. } => strong("timezone"),
        Syntax::Ceil { .. } => strong("ceil"),
        Syntax::Floor { .. } => strong("floor"),
        Syntax::Trim { trim_where, .. } => strong(match trim_where {
            None | Some(TrimWhereField::Both) => "btrim",
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
        }),
        Syntax::IsNormalized { negated: false, .. } => strong("is_normalized"),
        Syntax::Tuple(_) => strong("row"),
        Syntax::BinaryOp { op: BinaryOperator::Overlaps, .. } => strong("overlaps"),
        _ => None,
    }
}

/// A subquery is named after its only column, whatever that is called.
fn subquery_name(query: &Query) -> Option<(String, bool)> {
    let mut body = query.body.as_ref();
    while let SetExpr::SetOperation { left, .. } = body {
        body = left;
    }
    match body {
        SetExpr::Select(select) => match select.projection.first()? {
            SelectItem::UnnamedExpr(expr) => Some((figure_name(expr), true)),
            SelectItem::ExprWithAlias { alias, .. } => Some((object_name(alias), true)),
            SelectItem::Wildcard(_) => first_name(&select.from),
            _ => None,
        },
        SetExpr::Query(query) => subquery_name(query),
        SetExpr::Values(_) => Some(("column1".to_owned(), true)),
        _ => None,
    }
}

/// The name of the first column of a FROM, if that is a query alone.
fn first_name(from: &[TableWithJoins]) -> Option<(String, bool)> {
    let [only] = from else { return None };
    let TableFactor::Derived { subquery, alias, .. } = &only.relation else { return None };
    if !only.joins.is_empty() {
        return None;
    }
    match alias.as_ref().and_then(|alias| alias.columns.first()) {
        Some(column) => Some((object_name(&column.name), true)),
        None => subquery_name(subquery),
    }
}
