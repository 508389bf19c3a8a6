//! Expressions.

use sqlparser::ast::{
    Array, BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DateTimeField, Expr as Syntax, TrimWhereField,
    ValueWithSpan,
};
use sqlparser::tokenizer::Span;

use super::operator::{operator_name, row_items};
use super::row_value::{has_starred_item, is_row_value};
use super::{Binder, type_name};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{ArrayConstructor, Case, Expr, NullIf, Quantified, Typed, fold};
use crate::types::{Datum, Type, TypeId};

/// Stack left before binding goes on on a fresh one, and the size of that.
const RED_ZONE: usize = 192 * 1024;
const FRESH_STACK: usize = 4 * 1024 * 1024;

/// What one expression takes, very roughly, in nanoseconds.
const EXPRESSION: usize = 256;

pub(super) fn boolean(expr: Expr) -> Typed {
    Typed::new(expr, TypeId::Bool)
}

fn untyped_text(text: &str) -> Typed {
    Typed::new(Expr::Constant(Datum::text(text)), TypeId::Unknown)
}

impl Binder<'_> {
    /// Binds an expression in the innermost level. Its type may be `Unknown` (an untyped literal or
    /// parameter).
    pub fn expression(&mut self, syntax: &Syntax) -> Result<Typed> {
        self.has_worked(EXPRESSION)?;
        stacker::maybe_grow(RED_ZONE, FRESH_STACK, || self.bind_expression(syntax))
    }

    /// Binds an expression and gives it a type in any case.
    pub fn settled_expression(&mut self, syntax: &Syntax) -> Result<Typed> {
        let typed = self.expression(syntax)?;
        self.settle(typed)
    }

    fn bind_expression(&mut self, syntax: &Syntax) -> Result<Typed> {
        match syntax {
            Syntax::Identifier(ident) => self.column(std::slice::from_ref(ident)),
            Syntax::CompoundIdentifier(parts) => self.column(parts),
            Syntax::QualifiedWildcard(table, _) => self.row_of(table),
            Syntax::Value(value) => self.value(value),
            Syntax::Nested(inner) => self.expression(inner),
            Syntax::BinaryOp { .. } => self.binary_chain(syntax),
            Syntax::UnaryOp { op, expr } => self.unary(op, expr),
            Syntax::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, .. } => {
                let ty = self.named_type(data_type)?;
                self.cast_syntax(expr, ty)
            }
            Syntax::TypedString(literal) => self.typed_string(literal),
            Syntax::Interval(interval) => self.interval(interval),
            Syntax::IsNull(operand) => self.is_null(operand, false),
            Syntax::IsNotNull(operand) => self.is_null(operand, true),
            Syntax::IsTrue(operand) => self.is_truth(operand, Some(true), false, "IS TRUE"),
            Syntax::IsNotTrue(operand) => self.is_truth(operand, Some(true), true, "IS NOT TRUE"),
            Syntax::IsFalse(operand) => self.is_truth(operand, Some(false), false, "IS FALSE"),
            Syntax::IsNotFalse(operand) => self.is_truth(operand, Some(false), true, "IS NOT FALSE"),
            Syntax::IsUnknown(operand) => self.is_truth(operand, None, false, "IS UNKNOWN"),
            Syntax::IsNotUnknown(operand) => self.is_truth(operand, None, true, "IS NOT UNKNOWN"),
            Syntax::IsDistinctFrom(left, right) => self.is_distinct(left, right, false),
            Syntax::IsNotDistinctFrom(left, right) => self.is_distinct(left, right, true),
            Syntax::Between { expr, negated, low, high } => self.between(expr, *negated, low, high),
            Syntax::InList { expr, list, negated } => self.in_list(expr, list, *negated),
            Syntax::InSubquery { expr, subquery, negated } => self.in_subquery(expr, subquery, *negated),
            Syntax::Exists { subquery, negated } => self.exists(subquery, *negated),
            Syntax::Subquery(query) => self.scalar_subquery(query),
            Syntax::AnyOp { left, compare_op, right, .. } => self.quantified(left, compare_op, right, false),
            Syntax::AllOp { left, compare_op, right } => self.quantified(left, compare_op, right, true),
            Syntax::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(if *negated { "!~~" } else { "~~" }, expr, pattern, escape_char.as_ref())
            }
            Syntax::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like(if *negated { "!~~*" } else { "~~*" }, expr, pattern, escape_char.as_ref())
            }
            Syntax::Like { negated: false, any: true, expr, pattern, escape_char: None } => {
                self.like_any("~~", expr, pattern)
            }
            Syntax::ILike { negated: false, any: true, expr, pattern, escape_char: None } => {
                self.like_any("~~*", expr, pattern)
            }
            Syntax::SimilarTo { negated, expr, pattern, escape_char } => {
                self.similar(*negated, expr, pattern, escape_char.as_ref())
            }
            Syntax::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            Syntax::Function(function) => self.function(function),
            Syntax::Array(array) => self.array(array, None),
            Syntax::CompoundFieldAccess { root, access_chain } => self.access(root, access_chain),
            Syntax::Tuple(items) if items.is_empty() => {
                Err(SqlError::syntax("syntax error at or near \")\""))
            }
            Syntax::Tuple(items) => self.row(items.iter().collect()),
            Syntax::Collate { expr, .. } => self.expression(expr),
            _ => self.special_form(syntax),
        }
    }

    /// Function calls with a syntax of their own.
    fn special_form(&mut self, syntax: &Syntax) -> Result<Typed> {
        match syntax {
            Syntax::AtTimeZone { timestamp, time_zone } => {
                self.call_with("timezone", &[time_zone, timestamp])
            }
            Syntax::Extract { field, expr, .. } => {
                let field = untyped_text(&field_name(field));
                let operand = self.expression(expr)?;
                self.call(None, "extract", vec![field, operand])
            }
            Syntax::Ceil { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                self.call_with("ceil", &[expr])
            }
            Syntax::Floor { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                self.call_with("floor", &[expr])
            }
            Syntax::Position { expr, r#in } => self.call_with("position", &[r#in, expr]),
            Syntax::Substring { expr, substring_from, substring_for, .. } => {
                match (substring_from.as_deref(), substring_for.as_deref()) {
                    (Some(from), Some(length)) => self.call_with("substring", &[expr, from, length]),
                    (Some(from), None) => self.call_with("substring", &[expr, from]),
                    (None, Some(length)) => {
                        let operand = self.expression(expr)?;
                        let one = Typed::new(Expr::Constant(Datum::Int4(1)), TypeId::Int4);
                        let length = self.expression(length)?;
                        self.call(None, "substring", vec![operand, one, length])
                    }
                    (None, None) => self.call_with("substring", &[expr]),
                }
            }
            Syntax::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    None | Some(TrimWhereField::Both) => "btrim",
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                };
                let mut arguments = vec![expr.as_ref()];
                arguments.extend(trim_what.as_deref());
                arguments.extend(trim_characters.iter().flatten());
                self.call_with(name, &arguments)
            }
            Syntax::IsNormalized { expr, form, negated } => self.is_normalized(expr, form.as_ref(), *negated),
            Syntax::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut arguments = vec![expr.as_ref(), overlay_what.as_ref(), overlay_from.as_ref()];
                arguments.extend(overlay_for.as_deref());
                self.call_with("overlay", &arguments)
            }
            other => Err(self.lacks(format!("the expression \"{other}\""))),
        }
    }

    fn call_with(&mut self, name: &str, arguments: &[&Syntax]) -> Result<Typed> {
        let arguments = arguments.iter().map(|argument| self.expression(argument)).collect::<Result<_>>()?;
        self.call(None, name, arguments)
    }

    fn cast_syntax(&mut self, operand: &Syntax, ty: Type) -> Result<Typed> {
        // The items of ARRAY[] take the type asked for, also if there are none.
        if let (Syntax::Array(array), Some(element)) = (strip(operand), ty.element()) {
            let bound = self.array(array, Some(element))?;
            return self.cast(bound, ty);
        }
        let typed = self.expression(operand)?;
        self.cast(typed, ty).map_err(|error| self.at(error, literal_span(operand)))
    }

    fn is_null(&mut self, operand: &Syntax, negated: bool) -> Result<Typed> {
        let typed = match self.row_values(operand)? {
            Some(values) => return self.row_is_null(values, negated),
            None => self.settled_expression(operand)?,
        };
        let expr = Expr::IsNull { operand: Box::new(typed.expr), negated };
        Ok(boolean(fold(expr, self.context)))
    }

    /// A row IS NULL if all its items are, and IS NOT NULL if none is.
    fn row_is_null(&mut self, values: Vec<Typed>, negated: bool) -> Result<Typed> {
        let mut tests = Vec::with_capacity(values.len());
        for value in values {
            tests.push(match self.settle(value)?.expr {
                // A row within the row is not NULL, whatever is in it.
                Expr::Row(..) => Expr::Constant(Datum::Bool(negated)),
                operand => Expr::IsNull { operand: Box::new(operand), negated },
            });
        }
        Ok(boolean(fold(Expr::And(tests), self.context)))
    }

    fn is_truth(
        &mut self,
        operand: &Syntax,
        value: Option<bool>,
        negated: bool,
        what: &str,
    ) -> Result<Typed> {
        let typed = self.expression(operand)?;
        let operand = Box::new(self.condition(typed, what)?);
        Ok(boolean(fold(Expr::IsTruth { operand, value, negated }, self.context)))
    }

    fn is_distinct(&mut self, left: &Syntax, right: &Syntax, negated: bool) -> Result<Typed> {
        if is_row_value(left) && is_row_value(right) && (has_starred_item(left) || has_starred_item(right)) {
            return self.starred_is_distinct(left, right, negated);
        }
        if let (Some(lefts), Some(rights)) = (row_items(left), row_items(right)) {
            if lefts.len() != rights.len() {
                return Err(SqlError::syntax("unequal number of entries in row expressions"));
            }
            let mut tests = vec![];
            for (left, right) in lefts.into_iter().zip(rights) {
                tests.push(self.is_distinct(left, right, negated)?.expr);
            }
            let expr = if negated { Expr::And(tests) } else { Expr::Or(tests) };
            return Ok(boolean(fold(expr, self.context)));
        }
        let left = self.expression(left)?;
        let right = self.expression(right)?;
        self.distinct_from(left, right, negated)
    }

    /// The same of rows with stars, whose width is known only once they are bound.
    fn starred_is_distinct(&mut self, left: &Syntax, right: &Syntax, negated: bool) -> Result<Typed> {
        let lefts = self.row_values(left)?.unwrap_or_default();
        let rights = self.row_values(right)?.unwrap_or_default();
        if lefts.len() != rights.len() {
            return Err(SqlError::syntax("unequal number of entries in row expressions"));
        }
        let mut tests = vec![];
        for (left, right) in lefts.into_iter().zip(rights) {
            tests.push(self.distinct_from(left, right, negated)?.expr);
        }
        let expr = if negated { Expr::And(tests) } else { Expr::Or(tests) };
        Ok(boolean(fold(expr, self.context)))
    }

    /// `operand operator ANY (array or subquery)`.
    fn quantified(&mut self, left: &Syntax, op: &BinaryOperator, right: &Syntax, all: bool) -> Result<Typed> {
        let name = operator_name(op)?;
        if let Syntax::Subquery(query) = strip(right) {
            return self.quantified_subquery(left, &name, query, all);
        }
        let operand = self.expression(left)?;
        let array = self.expression(right)?;
        self.over_array(operand, &name, array, all)
    }

    fn over_array(&mut self, operand: Typed, name: &str, array: Typed, all: bool) -> Result<Typed> {
        // What an untyped array has elements of is what the operator takes on its right: of a
        // char(n) that is like them, texts.
        let array = if array.ty.id == TypeId::Unknown {
            let element = self.operator(name, operand.ty, array.ty)?.right;
            self.convert(array, type_name::array(element)?)?
        } else {
            array
        };
        let Some(element) = array.ty.element() else {
            return Err(SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                "op ANY/ALL (array) requires array on right side",
            ));
        };
        let operator = self.operator(name, operand.ty, element.plain())?;
        if operator.result.id != TypeId::Bool {
            return Err(SqlError::new(
                sqlstate::WRONG_OBJECT_TYPE,
                "op ANY/ALL (array) requires operator to yield boolean",
            ));
        }
        let left_type = operator.left.unwrap_or(operand.ty);
        let operand = self.convert(operand, left_type)?;
        let wanted = type_name::array(operator.right)?;
        let array = self.convert(array, wanted)?;
        let expr = Expr::Quantified(Box::new(Quantified {
            operand: operand.expr,
            array: array.expr,
            operator,
            all,
        }));
        Ok(boolean(fold(expr, self.context)))
    }

    fn like(
        &mut self,
        name: &str,
        operand: &Syntax,
        pattern: &Syntax,
        escape: Option<&ValueWithSpan>,
    ) -> Result<Typed> {
        let operand = self.expression(operand)?;
        let mut pattern = self.expression(pattern)?;
        if let Some(escape) = escape {
            let escape = self.value(escape)?;
            pattern = self.call(None, "like_escape", vec![pattern, escape])?;
        }
        self.operate(name, operand, pattern)
    }

    /// `LIKE ANY (array)`.
    fn like_any(&mut self, name: &str, operand: &Syntax, patterns: &Syntax) -> Result<Typed> {
        if let Syntax::Subquery(query) = strip(patterns) {
            return self.quantified_subquery(operand, name, query, false);
        }
        let operand = self.expression(operand)?;
        let patterns = self.expression(patterns)?;
        self.over_array(operand, name, patterns, false)
    }

    fn similar(
        &mut self,
        negated: bool,
        operand: &Syntax,
        pattern: &Syntax,
        escape: Option<&ValueWithSpan>,
    ) -> Result<Typed> {
        let operand = self.expression(operand)?;
        let mut arguments = vec![self.expression(pattern)?];
        if let Some(escape) = escape {
            arguments.push(self.value(escape)?);
        }
        let pattern = self.call(None, "similar_to_escape", arguments)?;
        self.operate(if negated { "!~" } else { "~" }, operand, pattern)
    }

    fn case(
        &mut self,
        operand: Option<&Syntax>,
        conditions: &[CaseWhen],
        otherwise: Option<&Syntax>,
    ) -> Result<Typed> {
        let mut operand = operand.map(|operand| self.settled_expression(operand)).transpose()?;
        let held = operand.as_mut().and_then(hold);
        let mut tests = vec![];
        let mut results = vec![];
        for when in conditions {
            let condition = self.expression(&when.condition)?;
            let test = match &operand {
                Some(operand) => {
                    let copy = self.copy(operand)?;
                    self.operate("=", copy, condition)?
                }
                None => condition,
            };
            tests.push(self.condition(test, "CASE/WHEN")?);
            results.push(self.expression(&when.result)?);
        }
        // ELSE counts first for the type.
        let otherwise = match otherwise {
            Some(otherwise) => self.expression(otherwise)?,
            None => Typed::new(Expr::NULL, TypeId::Unknown),
        };
        results.insert(0, otherwise);
        let (mut results, ty) = self.unify(results, "CASE")?;
        let otherwise = results.remove(0);
        let case = Case { operand: held, branches: tests.into_iter().zip(results).collect(), otherwise };
        let parts = case.branches.iter().flat_map(|(test, result)| [test, result]);
        refuse_sets(parts.chain([&case.otherwise]).chain(&case.operand), "CASE")?;
        Ok(Typed::new(fold_case(case), ty))
    }

    /// COALESCE, GREATEST, LEAST, NULLIF; none if the name is no such form.
    pub(crate) fn conditional(&mut self, name: &str, arguments: &[&Syntax]) -> Result<Option<Typed>> {
        let what = match name {
            "coalesce" => "COALESCE",
            "greatest" => "GREATEST",
            "least" => "LEAST",
            "nullif" => return self.null_if(arguments).map(Some),
            _ => return Ok(None),
        };
        if arguments.is_empty() {
            return Err(SqlError::syntax(format!("{what} needs an argument")));
        }
        let items = arguments.iter().map(|argument| self.expression(argument)).collect::<Result<Vec<_>>>()?;
        let (operands, ty) = self.unify(items, what)?;
        if name == "coalesce" {
            refuse_sets(operands.iter(), what)?;
        }
        let expr = if name == "coalesce" {
            Expr::Coalesce(operands)
        } else {
            self.check_sortable(ty, "a comparison")?;
            Expr::Extreme { greatest: name == "greatest", operands }
        };
        Ok(Some(Typed::new(fold(expr, self.context), ty)))
    }

    fn null_if(&mut self, arguments: &[&Syntax]) -> Result<Typed> {
        let [value, other] = arguments else {
            return Err(SqlError::syntax("NULLIF needs two arguments"));
        };
        let mut value = self.expression(value)?;
        let other = self.expression(other)?;
        let operator = self.operator("=", value.ty, other.ty)?;
        // The value is what the operator compares: a numeric, if an integer is compared with one.
        // PostgreSQL has operators of different kinds of times, and of names and texts.
        // Nor does it lose its length or precision by that.
        let is_same = operator.left == Some(value.ty.plain()) && value.ty.user_type().is_none();
        if !is_same && !matches!(value.ty.id, TypeId::Date | TypeId::Timestamp | TypeId::Name) {
            let compared = operator.left.unwrap_or(value.ty);
            value = self.convert(value, compared)?;
        }
        let held = hold(&mut value);
        let is_held = held.is_some();
        let copy = self.copy(&value)?;
        let equal = self.apply(operator, copy, other)?.expr;
        if let Some(held) = held {
            value.expr = held;
        }
        let value = self.settle(value)?;
        let expr = Expr::NullIf(Box::new(NullIf { value: value.expr, equal, is_held }));
        Ok(Typed::new(fold(expr, self.context), value.ty.base()))
    }

    /// ARRAY[...]; `wanted` is the element type a cast around it asks for.
    pub(crate) fn array(&mut self, array: &Array, wanted: Option<Type>) -> Result<Typed> {
        if array.elem.is_empty() {
            let element = wanted.ok_or_else(|| {
                SqlError::new(sqlstate::INDETERMINATE_DATATYPE, "cannot determine type of empty array")
                    .with_hint("Explicitly cast to the desired type, for example ARRAY[]::integer[].")
            })?;
            let constructor = ArrayConstructor { element: element.id, items: vec![], nested: false };
            let expr = fold(Expr::Array(Box::new(constructor)), self.context);
            return Ok(Typed::new(expr, type_name::array(element.plain())?));
        }
        let items = array
            .elem
            .iter()
            .map(|item| match item {
                Syntax::Array(inner) => self.array(inner, wanted),
                item => {
                    let item = self.expression(item)?;
                    match wanted {
                        Some(element) if !item.ty.id.is_array() => self.cast(item, element),
                        _ => Ok(item),
                    }
                }
            })
            .collect::<Result<Vec<_>>>()?;
        let nested = items.iter().any(|item| item.ty.id.is_array());
        let (items, ty) = self.unify(items, "ARRAY")?;
        // Arrays of arrays have more dimensions, whatever domain those are of.
        let array_type = type_name::array(if nested { ty.base() } else { ty })?;
        let element = array_type.element().map_or(ty.id, |element| element.id);
        let expr = Expr::Array(Box::new(ArrayConstructor { element, items, nested }));
        Ok(Typed::new(fold(expr, self.context), array_type))
    }

    /// A row value where a single value is expected. Its fields are named by their places.
    pub(crate) fn row(&mut self, items: Vec<&Syntax>) -> Result<Typed> {
        let mut fields = Vec::with_capacity(items.len());
        for item in items {
            match strip(item) {
                Syntax::QualifiedWildcard(table, _) => fields.extend(self.starred_columns(table)?),
                _ => fields.push(self.expression(item)?),
            }
        }
        self.constructed_row(fields)
    }

    /// The row of these fields. A literal that says no type has none in it: what is of a type does
    /// not compare with it.
    pub(super) fn constructed_row(&mut self, fields: Vec<Typed>) -> Result<Typed> {
        let mut values = Vec::with_capacity(fields.len());
        let mut shape = Vec::with_capacity(fields.len());
        for field in fields {
            let is_literal = field.ty.id == TypeId::Unknown && matches!(field.expr, Expr::Constant(_));
            let settled = self.settle(field)?;
            let ty = if is_literal { Type::new(TypeId::Unknown) } else { settled.ty };
            values.push(settled.expr);
            shape.push((format!("f{}", values.len()), ty));
        }
        Ok(Typed::new(Expr::Row(values, shape.into()), TypeId::Record))
    }
}

/// Drops the branches that constants rule out; an expression in a branch never taken must not fail.
fn fold_case(mut case: Case) -> Expr {
    let mut branches = vec![];
    for (condition, result) in case.branches {
        match condition {
            Expr::Constant(Datum::Bool(true)) => {
                case.otherwise = result;
                break;
            }
            Expr::Constant(_) => {}
            condition => branches.push((condition, result)),
        }
    }
    if branches.is_empty() {
        return case.otherwise;
    }
    Expr::Case(Box::new(Case { operand: case.operand, branches, otherwise: case.otherwise }))
}

/// Takes an operand out that gives another value, or does something, each time it is evaluated, or
/// that is a query: the tests that are made with it look at the value that it had.
fn hold(operand: &mut Typed) -> Option<Expr> {
    let is_once = operand.expr.has_subquery() || operand.expr.is_volatile();
    is_once.then(|| std::mem::replace(&mut operand.expr, Expr::Held))
}

/// Without parentheses.
pub(crate) fn strip(syntax: &Syntax) -> &Syntax {
    match syntax {
        Syntax::Nested(inner) => strip(inner),
        other => other,
    }
}

/// The place of a literal, for errors in reading it.
fn literal_span(syntax: &Syntax) -> Span {
    match strip(syntax) {
        Syntax::Value(value) => value.span,
        Syntax::Identifier(ident) => ident.span,
        _ => Span::empty(),
    }
}

fn field_name(field: &DateTimeField) -> String {
    field.to_string().trim_matches('\'').trim_matches('"').to_ascii_lowercase()
}

/// 0A000 if a function that gives sets is called where only one value can be.
fn refuse_sets<'e>(parts: impl Iterator<Item = &'e Expr>, what: &str) -> Result<()> {
    let mut parts = parts;
    if parts.any(|part| part.any(&mut |expr| matches!(expr, Expr::SetResult(_)))) {
        return Err(SqlError::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            format!("set-returning functions are not allowed in {what}"),
        )
        .with_hint("You might be able to move the set-returning function into a LATERAL FROM item."));
    }
    Ok(())
}
