//! From syntax to the analyzed form: types of literals settled, operators and functions found,
//! conversions put in.

use sqlparser::ast::{
    Array, BinaryOperator, CaseWhen, CastKind, Expr as Syntax, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, TrimWhereField, TypedString, UnaryOperator, Value, ValueWithSpan,
};

use super::scope::Names;
use super::term::{Logic, Node, Term};
use crate::bind::{common_type, name_parts, object_name, operator_name, resolve_type};
use crate::error::{Result, SqlError};
use crate::function::{self, operator};
use crate::types::cast::{self, CastContext};
use crate::types::{Category, Datum, FormatContext, Type, TypeId};

/// Stack left before analysis goes on on a fresh one, and the size of that.
const RED_ZONE: usize = 128 * 1024;
const FRESH_STACK: usize = 4 * 1024 * 1024;

/// Analyzes expressions.
pub(super) struct Analyzer<'a> {
    pub(super) columns: Names<'a>,
    pub(super) format: &'a FormatContext,
}

/// What is not analyzed: the expression is printed as it was given.
pub(super) fn unknown(syntax: &Syntax) -> SqlError {
    SqlError::unsupported(format!("printing the expression \"{syntax}\""))
}

fn boolean(node: Node) -> Term {
    Term::new(node, TypeId::Bool)
}

fn untyped(text: &str) -> Term {
    Term::new(Node::Constant(Some(text.to_owned())), TypeId::Unknown)
}

impl Analyzer<'_> {
    /// An expression of any type; an untyped literal stays untyped.
    pub(super) fn expression(&self, syntax: &Syntax) -> Result<Term> {
        stacker::maybe_grow(RED_ZONE, FRESH_STACK, || self.analyze(syntax))
    }

    fn analyze(&self, syntax: &Syntax) -> Result<Term> {
        match syntax {
            Syntax::Identifier(ident) => self.column(&object_name(ident)),
            Syntax::CompoundIdentifier(parts) => match parts.last() {
                Some(last) => self.column(&object_name(last)),
                None => Err(unknown(syntax)),
            },
            Syntax::Nested(inner) => self.expression(inner),
            Syntax::Value(value) => self.value(value),
            Syntax::TypedString(TypedString { data_type, value, .. }) => {
                let literal = self.value(value)?;
                self.cast(literal, resolve_type(data_type, self.format)?)
            }
            Syntax::Interval(_) => self.interval(syntax),
            Syntax::UnaryOp { op, expr } => self.unary(op, expr),
            Syntax::BinaryOp { .. } => self.chain(syntax),
            Syntax::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, .. } => {
                let operand = self.expression(expr)?;
                self.cast(operand, resolve_type(data_type, self.format)?)
            }
            Syntax::IsNull(operand) => self.test(operand, " IS NULL", false),
            Syntax::IsNotNull(operand) => self.test(operand, " IS NOT NULL", false),
            Syntax::IsTrue(operand) => self.test(operand, " IS TRUE", true),
            Syntax::IsNotTrue(operand) => self.test(operand, " IS NOT TRUE", true),
            Syntax::IsFalse(operand) => self.test(operand, " IS FALSE", true),
            Syntax::IsNotFalse(operand) => self.test(operand, " IS NOT FALSE", true),
            Syntax::IsUnknown(operand) => self.test(operand, " IS UNKNOWN", true),
            Syntax::IsNotUnknown(operand) => self.test(operand, " IS NOT UNKNOWN", true),
            Syntax::IsDistinctFrom(left, right) => self.distinct(left, right),
            Syntax::IsNotDistinctFrom(left, right) => {
                Ok(boolean(Node::Logic(Logic::Not, vec![self.distinct(left, right)?])))
            }
            Syntax::Between { expr, negated, low, high } => self.between(expr, *negated, low, high),
            Syntax::InList { expr, list, negated } => self.in_list(expr, list, *negated),
            Syntax::AnyOp { left, compare_op, right, .. } => self.quantified(left, compare_op, right, false),
            Syntax::AllOp { left, compare_op, right } => self.quantified(left, compare_op, right, true),
            Syntax::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(if *negated { "!~~" } else { "~~" }, expr, pattern, escape_char.as_ref())
            }
            Syntax::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like(if *negated { "!~~*" } else { "~~*" }, expr, pattern, escape_char.as_ref())
            }
            Syntax::SimilarTo { negated, expr, pattern, escape_char } => {
                let mut arguments = vec![self.expression(pattern)?];
                if let Some(escape) = escape_char {
                    arguments.push(self.value(escape)?);
                }
                let pattern = self.call("similar_to_escape", arguments)?;
                self.operate(if *negated { "!~" } else { "~" }, Some(self.expression(expr)?), pattern)
            }
            Syntax::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            Syntax::Function(function) => self.function(syntax, function),
            Syntax::Array(array) => self.array(array),
            Syntax::CompoundFieldAccess { root, access_chain } => self.subscript(syntax, root, access_chain),
            Syntax::Collate { expr, .. } => self.expression(expr),
            _ => self.special(syntax),
        }
    }

    fn value(&self, value: &ValueWithSpan) -> Result<Term> {
        Ok(match &value.value {
            Value::Number(digits, _) => self.number(digits)?,
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => untyped(text),
            Value::DollarQuotedString(text) => untyped(&text.value),
            Value::Boolean(true) => boolean(Node::Constant(Some("t".to_owned()))),
            Value::Boolean(false) => boolean(Node::Constant(Some("f".to_owned()))),
            Value::Null => Term::new(Node::Constant(None), TypeId::Unknown),
            other => return Err(SqlError::unsupported(format!("printing the literal \"{other}\""))),
        })
    }

    /// int4, int8 or numeric, the first that holds it.
    fn number(&self, digits: &str) -> Result<Term> {
        let digits = digits.replace('_', "");
        let ty = if digits.parse::<i32>().is_ok() {
            TypeId::Int4
        } else if digits.parse::<i64>().is_ok() {
            TypeId::Int8
        } else {
            TypeId::Numeric
        };
        self.literal(&digits, Type::new(ty))
    }

    /// A literal in the text form of its type.
    fn literal(&self, text: &str, ty: Type) -> Result<Term> {
        let time = matches!(ty.id.category(), Category::DateTime);
        if time && text.contains(|c: char| c.is_ascii_alphabetic()) {
            // `now` and its like would be read as the present moment.
            return Ok(Term::new(Node::Constant(Some(text.to_owned())), ty));
        }
        let value = Datum::from_text(ty, text, self.format)?;
        let mut printed = Vec::new();
        value.to_text(ty, self.format, &mut printed);
        let printed = String::from_utf8_lossy(&printed).into_owned();
        Ok(Term::new(Node::Constant(Some(printed)), ty))
    }

    fn interval(&self, syntax: &Syntax) -> Result<Term> {
        let Syntax::Interval(interval) = syntax else { return Err(unknown(syntax)) };
        let bare = interval.leading_field.is_none()
            && interval.last_field.is_none()
            && interval.leading_precision.is_none()
            && interval.fractional_seconds_precision.is_none();
        match self.expression(&interval.value)? {
            Term { node: Node::Constant(Some(text)), .. } if bare => {
                self.literal(&text, Type::new(TypeId::Interval))
            }
            _ => Err(unknown(syntax)),
        }
    }

    /// Converts implicitly.
    pub(super) fn convert(&self, term: Term, to: Type) -> Result<Term> {
        if term.ty.domain_oid().is_some() && !to.id.is_pseudo() {
            // PostgreSQL shows where a domain's value is taken for one of the type under it.
            let to = to.plain();
            let from = term.ty.bare();
            cast::find(from, to, CastContext::Implicit).ok_or_else(|| cast::cannot_cast(from, to))?;
            return Ok(Term::new(Node::Cast { operand: Box::new(term), implicit: true }, to));
        }
        if term.ty.plain() == to.plain() || (to.id.is_pseudo() && term.ty.id != TypeId::Unknown) {
            return Ok(term);
        }
        if term.ty.id == TypeId::Unknown {
            let to = if to.id.is_pseudo() { Type::new(TypeId::Text) } else { to.plain() };
            return match term.node {
                Node::Constant(Some(text)) => self.literal(&text, to),
                node => Ok(Term::new(node, to)),
            };
        }
        let to = to.plain();
        cast::find(term.ty, to, CastContext::Implicit).ok_or_else(|| cast::cannot_cast(term.ty, to))?;
        Ok(Term::new(Node::Cast { operand: Box::new(term), implicit: true }, to))
    }

    /// CAST and `::`.
    fn cast(&self, term: Term, to: Type) -> Result<Term> {
        if to.domain_named().is_some() && term.ty != to {
            let operand = Box::new(self.cast(term, to.bare())?);
            return Ok(Term::new(Node::Cast { operand, implicit: false }, to));
        }
        let term = match term.ty.id {
            TypeId::Unknown => self.convert(term, to)?,
            _ => term,
        };
        if term.ty.id == to.id && (to.modifier == -1 || term.ty.modifier == to.modifier) {
            return Ok(term);
        }
        cast::find(term.ty, to, CastContext::Explicit).ok_or_else(|| cast::cannot_cast(term.ty, to))?;
        Ok(Term::new(Node::Cast { operand: Box::new(term), implicit: false }, to))
    }

    fn condition(&self, term: Term) -> Result<Term> {
        self.convert(term, Type::new(TypeId::Bool))
    }

    /// Untyped literals become text.
    fn settle(&self, term: Term) -> Result<Term> {
        if term.ty.id == TypeId::Unknown { self.convert(term, Type::new(TypeId::Text)) } else { Ok(term) }
    }

    /// All converted to their common type.
    fn unify(&self, terms: Vec<Term>) -> Result<(Vec<Term>, Type)> {
        let types: Vec<Type> = terms.iter().map(|term| term.ty).collect();
        let common = common_type(&types).map_err(|(a, b)| cast::cannot_cast(a, b))?;
        let common = Type::new(if common.id == TypeId::Unknown { TypeId::Text } else { common.id });
        let terms = terms.into_iter().map(|term| self.convert(term, common)).collect::<Result<_>>()?;
        Ok((terms, common))
    }

    fn operate(&self, name: &str, left: Option<Term>, right: Term) -> Result<Term> {
        let found = operator::resolve(name, left.as_ref().map(|left| left.ty), right.ty)?;
        if let Some(left) = left.as_ref().filter(|left| compares_across(name, left.ty.id, right.ty.id)) {
            let (left, right) = (Some(Box::new(left.clone())), Box::new(right));
            return Ok(Term::new(Node::Operator { name: found.name.to_owned(), left, right }, found.result));
        }
        let left = match (left, found.left) {
            (Some(left), Some(ty)) => Some(Box::new(self.convert(left, ty)?)),
            (left, _) => left.map(Box::new),
        };
        let right = Box::new(self.convert(right, found.right)?);
        Ok(Term::new(Node::Operator { name: found.name.to_owned(), left, right }, found.result))
    }

    fn unary(&self, op: &UnaryOperator, operand: &Syntax) -> Result<Term> {
        let negative = match (op, operand) {
            (UnaryOperator::Minus, Syntax::Value(ValueWithSpan { value: Value::Number(digits, _), .. })) => {
                Some(format!("-{digits}"))
            }
            _ => None,
        };
        if let Some(number) = negative {
            return self.number(&number);
        }
        let operand = self.expression(operand)?;
        match op {
            UnaryOperator::Not => Ok(boolean(Node::Logic(Logic::Not, vec![self.condition(operand)?]))),
            other => self.operate(&other.to_string(), None, operand),
        }
    }

    /// A chain of infix operators that leans to the left, without recursion along it.
    fn chain(&self, syntax: &Syntax) -> Result<Term> {
        let mut rest = vec![];
        let mut first = syntax;
        while let Syntax::BinaryOp { left, op, right } = first {
            rest.push((op, right.as_ref()));
            first = left;
        }
        let mut left = self.expression(first)?;
        for (op, right) in rest.into_iter().rev() {
            let right = self.expression(right)?;
            left = match op {
                BinaryOperator::And => self.logic(Logic::And, left, right)?,
                BinaryOperator::Or => self.logic(Logic::Or, left, right)?,
                _ => self.operate(&operator_name(op)?, Some(left), right)?,
            };
        }
        Ok(left)
    }

    /// `a AND b AND c` is one AND of three; only what is to the left is merged.
    fn logic(&self, logic: Logic, left: Term, right: Term) -> Result<Term> {
        let right = self.condition(right)?;
        let mut terms = match left {
            Term { node: Node::Logic(same, terms), .. } if same == logic => terms,
            left => vec![self.condition(left)?],
        };
        terms.push(right);
        Ok(boolean(Node::Logic(logic, terms)))
    }

    fn test(&self, operand: &Syntax, test: &'static str, of_truth: bool) -> Result<Term> {
        let operand = self.expression(operand)?;
        let operand = if of_truth { self.condition(operand)? } else { self.settle(operand)? };
        Ok(boolean(Node::Test(Box::new(operand), test)))
    }

    fn distinct(&self, left: &Syntax, right: &Syntax) -> Result<Term> {
        let equal = self.operate("=", Some(self.expression(left)?), self.expression(right)?)?;
        match equal.node {
            Node::Operator { left: Some(left), right, .. } => {
                Ok(boolean(Node::Distinct(Box::new([*left, *right]))))
            }
            _ => Err(SqlError::internal("an equality without operands")),
        }
    }

    fn between(&self, operand: &Syntax, negated: bool, low: &Syntax, high: &Syntax) -> Result<Term> {
        let operand = self.expression(operand)?;
        let (first, second, logic) = if negated { ("<", ">", Logic::Or) } else { (">=", "<=", Logic::And) };
        let low = self.operate(first, Some(operand.clone()), self.expression(low)?)?;
        let high = self.operate(second, Some(operand), self.expression(high)?)?;
        Ok(boolean(Node::Logic(logic, vec![low, high])))
    }

    /// IN: a comparison with an array of the constants, and one with each other item.
    fn in_list(&self, operand: &Syntax, list: &[Syntax], negated: bool) -> Result<Term> {
        let operand = self.expression(operand)?;
        let items = list.iter().map(|item| self.expression(item)).collect::<Result<Vec<_>>>()?;
        let (name, logic) = if negated { ("<>", Logic::And) } else { ("=", Logic::Or) };
        let mut tests = vec![];
        let mut separate = items;
        if separate.iter().filter(|item| is_fixed(item)).count() > 1 {
            let (fixed, varying): (Vec<Term>, Vec<Term>) = separate.into_iter().partition(is_fixed);
            separate = varying;
            let mut types = vec![operand.ty];
            types.extend(fixed.iter().map(|item| item.ty));
            let element = common_type(&types).map_err(|(a, b)| cast::cannot_cast(a, b))?;
            let element = Type::new(if element.id == TypeId::Unknown { TypeId::Text } else { element.id });
            let items =
                fixed.into_iter().map(|item| self.convert(item, element)).collect::<Result<Vec<_>>>()?;
            let array = array_of(Node::Array(items), element)?;
            tests.push(self.over_array(operand.clone(), name, array, negated)?);
        }
        for item in separate {
            tests.push(self.operate(name, Some(operand.clone()), item)?);
        }
        match tests.len() {
            1 => Ok(tests.remove(0)),
            _ => Ok(boolean(Node::Logic(logic, tests))),
        }
    }

    fn quantified(&self, left: &Syntax, op: &BinaryOperator, right: &Syntax, all: bool) -> Result<Term> {
        let operand = self.expression(left)?;
        let array = self.expression(right)?;
        self.over_array(operand, &operator_name(op)?, array, all)
    }

    fn over_array(&self, operand: Term, name: &str, array: Term, all: bool) -> Result<Term> {
        let element = match array.ty.id {
            TypeId::Unknown => array.ty,
            _ => array.ty.element().ok_or_else(|| SqlError::internal("ANY over no array"))?,
        };
        let found = operator::resolve(name, Some(operand.ty), element.plain())?;
        let operand = self.convert(operand, found.left.unwrap_or(found.right))?;
        let wanted = found.right.id.array().ok_or_else(|| SqlError::internal("no array of this type"))?;
        let array = if array.ty.id == TypeId::Unknown || array.ty.id != wanted {
            self.convert_array(array, Type::new(wanted))?
        } else {
            array
        };
        let (operand, array) = (Box::new(operand), Box::new(array));
        Ok(boolean(Node::Quantified { operand, operator: found.name.to_owned(), array, all }))
    }

    /// The conversion of a whole array, which there is wherever its elements convert.
    fn convert_array(&self, array: Term, to: Type) -> Result<Term> {
        if array.ty.id == TypeId::Unknown {
            return self.convert(array, to);
        }
        Ok(Term::new(Node::Cast { operand: Box::new(array), implicit: true }, to))
    }

    fn like(
        &self,
        name: &str,
        operand: &Syntax,
        pattern: &Syntax,
        escape: Option<&ValueWithSpan>,
    ) -> Result<Term> {
        let mut pattern = self.expression(pattern)?;
        if let Some(escape) = escape {
            pattern = self.call("like_escape", vec![pattern, self.value(escape)?])?;
        }
        self.operate(name, Some(self.expression(operand)?), pattern)
    }

    fn case(
        &self,
        operand: Option<&Syntax>,
        conditions: &[CaseWhen],
        otherwise: Option<&Syntax>,
    ) -> Result<Term> {
        let operand = operand.map(|operand| self.settle(self.expression(operand)?)).transpose()?;
        let mut tests = vec![];
        let otherwise = match otherwise {
            Some(otherwise) => self.expression(otherwise)?,
            None => Term::new(Node::Constant(None), TypeId::Unknown),
        };
        let mut results = vec![otherwise];
        for when in conditions {
            let condition = self.expression(&when.condition)?;
            tests.push(match &operand {
                None => self.condition(condition)?,
                Some(operand) => match self.operate("=", Some(operand.clone()), condition)?.node {
                    Node::Operator { right, .. } => *right,
                    _ => return Err(SqlError::internal("an equality without operands")),
                },
            });
            results.push(self.expression(&when.result)?);
        }
        let (mut results, ty) = self.unify(results)?;
        let otherwise = Box::new(results.remove(0));
        let branches = tests.into_iter().zip(results).collect();
        Ok(Term::new(Node::Case { operand: operand.map(Box::new), branches, otherwise }, ty))
    }

    fn array(&self, array: &Array) -> Result<Term> {
        let items = array.elem.iter().map(|item| self.expression(item)).collect::<Result<Vec<_>>>()?;
        if items.is_empty() || items.iter().any(|item| item.ty.id.is_array()) {
            return Err(SqlError::unsupported("printing this array"));
        }
        let (items, element) = self.unify(items)?;
        array_of(Node::Array(items), element)
    }

    fn call(&self, name: &str, arguments: Vec<Term>) -> Result<Term> {
        let types: Vec<Type> = arguments.iter().map(|argument| argument.ty).collect();
        let found = function::resolve(None, name, &types)?;
        let arguments = arguments
            .into_iter()
            .zip(&found.arguments)
            .map(|(argument, ty)| self.convert(argument, *ty))
            .collect::<Result<_>>()?;
        Ok(Term::new(Node::Function { name: self.format.quoted(name), arguments }, found.result))
    }

    fn function(&self, syntax: &Syntax, function: &Function) -> Result<Term> {
        let name = match name_parts(&function.name)?.as_slice() {
            [(name, _)] => name.clone(),
            [(schema, _), (name, _)] if schema == "pg_catalog" => name.clone(),
            _ => return Err(unknown(syntax)),
        };
        let list = match &function.args {
            FunctionArguments::None => return keyword(syntax, &name),
            FunctionArguments::List(list) => list,
            FunctionArguments::Subquery(_) => return Err(unknown(syntax)),
        };
        if function.over.is_some() || function.filter.is_some() || !list.clauses.is_empty() {
            return Err(unknown(syntax));
        }
        let arguments = list
            .args
            .iter()
            .map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => self.expression(argument),
                _ => Err(unknown(syntax)),
            })
            .collect::<Result<Vec<_>>>()?;
        match name.as_str() {
            "coalesce" | "greatest" | "least" => {
                let (arguments, ty) = self.unify(arguments)?;
                Ok(Term::new(Node::Function { name: name.to_ascii_uppercase(), arguments }, ty))
            }
            "nullif" => self.null_if(syntax, arguments),
            "current_timestamp" | "localtimestamp" | "localtime" => {
                let ty = keyword(syntax, &name)?.ty;
                Ok(Term::new(Node::Function { name: name.to_ascii_uppercase(), arguments }, ty))
            }
            _ => self.call(&name, arguments),
        }
    }

    fn null_if(&self, syntax: &Syntax, arguments: Vec<Term>) -> Result<Term> {
        let Ok([left, right]) = <[Term; 2]>::try_from(arguments) else { return Err(unknown(syntax)) };
        match self.operate("=", Some(left), right)?.node {
            Node::Operator { left: Some(left), right, .. } => {
                let ty = left.ty;
                let arguments = vec![*left, *right];
                Ok(Term::new(Node::Function { name: "NULLIF".to_owned(), arguments }, ty))
            }
            _ => Err(unknown(syntax)),
        }
    }

    /// Calls with a syntax of their own.
    fn special(&self, syntax: &Syntax) -> Result<Term> {
        let with = |name: &str, arguments: &[&Syntax]| -> Result<(Vec<Term>, Type)> {
            let arguments = arguments.iter().map(|a| self.expression(a)).collect::<Result<Vec<_>>>()?;
            match self.call(name, arguments)? {
                Term { node: Node::Function { arguments, .. }, ty } => Ok((arguments, ty)),
                _ => Err(unknown(syntax)),
            }
        };
        let made = |parts: &[&'static str], (arguments, ty): (Vec<Term>, Type)| {
            Ok(Term::new(Node::Special { parts: parts.to_vec(), arguments }, ty))
        };
        match syntax {
            Syntax::AtTimeZone { timestamp, time_zone } => {
                let (mut arguments, ty) = with("timezone", &[time_zone, timestamp])?;
                arguments.reverse();
                made(&["(", " AT TIME ZONE ", ")"], (arguments, ty))
            }
            Syntax::Position { expr, r#in } => {
                let (mut arguments, ty) = with("position", &[r#in, expr])?;
                arguments.reverse();
                made(&["POSITION((", ") IN (", "))"], (arguments, ty))
            }
            Syntax::Substring { expr, substring_from: Some(from), substring_for, special, .. } => {
                let mut arguments = vec![expr.as_ref(), from.as_ref()];
                arguments.extend(substring_for.as_deref());
                if *special {
                    let terms = arguments.iter().map(|a| self.expression(a)).collect::<Result<Vec<_>>>()?;
                    return self.call("substring", terms);
                }
                let parts: &[&str] = match substring_for {
                    Some(_) => &["SUBSTRING(", " FROM ", " FOR ", ")"],
                    None => &["SUBSTRING(", " FROM ", ")"],
                };
                made(parts, with("substring", &arguments)?)
            }
            Syntax::Trim { trim_where, trim_what, expr, trim_characters: None } => {
                let (name, part) = match trim_where {
                    None | Some(TrimWhereField::Both) => ("btrim", "TRIM(BOTH "),
                    Some(TrimWhereField::Leading) => ("ltrim", "TRIM(LEADING "),
                    Some(TrimWhereField::Trailing) => ("rtrim", "TRIM(TRAILING "),
                };
                match trim_what.as_deref().filter(|what| !is_blank(what)) {
                    None => made(&[part, "FROM ", ")"], {
                        let (mut arguments, ty) = with(name, &[expr])?;
                        arguments.insert(0, Term::new(Node::Atom(String::new()), TypeId::Text));
                        (arguments, ty)
                    }),
                    Some(what) => {
                        let (mut arguments, ty) = with(name, &[expr, what])?;
                        arguments.reverse();
                        made(&[part, " FROM ", ")"], (arguments, ty))
                    }
                }
            }
            Syntax::Extract { field, expr, .. } => {
                let field = field.to_string().trim_matches(['\'', '"']).to_ascii_lowercase();
                let called = self.call("extract", vec![untyped(&field), self.expression(expr)?])?;
                let Term { node: Node::Function { mut arguments, .. }, ty } = called else {
                    return Err(unknown(syntax));
                };
                arguments[0] = Term::new(Node::Atom(field), TypeId::Text);
                made(&["EXTRACT(", " FROM ", ")"], (arguments, ty))
            }
            Syntax::Ceil { expr, .. } => self.call("ceil", vec![self.expression(expr)?]),
            Syntax::Floor { expr, .. } => self.call("floor", vec![self.expression(expr)?]),
            other => Err(unknown(other)),
        }
    }
}

fn array_of(node: Node, element: Type) -> Result<Term> {
    let id = element.id.array().ok_or_else(|| SqlError::internal("no array of this type"))?;
    Ok(Term::new(node, id))
}

/// The blank that the parser puts where `TRIM(BOTH FROM x)` has nothing.
fn is_blank(syntax: &Syntax) -> bool {
    matches!(syntax, Syntax::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) if text == " ")
}

/// Does PostgreSQL compare the two types as they are, where here one is converted?
fn compares_across(name: &str, left: TypeId, right: TypeId) -> bool {
    let is_comparison = matches!(name, "=" | "<>" | "<" | "<=" | ">" | ">=");
    let times = [TypeId::Date, TypeId::Timestamp, TypeId::Timestamptz];
    let floats = [TypeId::Float4, TypeId::Float8];
    let both = |group: &[TypeId]| group.contains(&left) && group.contains(&right);
    is_comparison && (both(&times) || both(&floats))
}

/// Does it read no column?
fn is_fixed(term: &Term) -> bool {
    match &term.node {
        Node::Constant(_) => true,
        Node::Cast { operand, .. } => is_fixed(operand),
        _ => false,
    }
}

/// Functions written without parentheses.
fn keyword(syntax: &Syntax, name: &str) -> Result<Term> {
    let ty = match name {
        "current_timestamp" => TypeId::Timestamptz,
        "current_date" => TypeId::Date,
        "localtimestamp" => TypeId::Timestamp,
        "localtime" => TypeId::Time,
        "current_user" | "session_user" | "user" | "current_role" | "current_catalog" | "current_schema" => {
            TypeId::Name
        }
        _ => return Err(unknown(syntax)),
    };
    Ok(Term::new(Node::Atom(name.to_ascii_uppercase()), ty))
}
