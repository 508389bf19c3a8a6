//! Whether conditions imply the predicate of a partial index, so that all rows that are wanted have
//! an entry there.
//!
//! | the predicate says | and is implied by |
//! |---|---|
//! | anything | the same |
//! | `x IS NOT NULL` | any condition that a NULL `x` would keep from being TRUE: `x > 5`, `x IN (1, 2)`, `lower(x) = $1` |
//! | `x > 5`, `x <> 7`, `x IN (1, 2)`, `x = ANY ('{1,2}')` | a comparison of `x` with a constant, or a list of constants, that leaves no other values |
//! | `b`, `NOT b` | `b = TRUE`, `b IS TRUE` and their like |
//! | `p OR q` | what implies one of the two |
//!
//! A condition that is an OR implies what each of its parts does. The value of a parameter implies
//! nothing: a plan holds for all of them.

use std::cmp::Ordering;

use crate::expr::{Expr, same};
use crate::function::operator::Comparison;
use crate::types::Datum;

/// Whether conditions, all of which are TRUE for the rows that are wanted, imply a part of a
/// predicate; then the place of the one that says just the same, if there is one.
pub(crate) fn implies(conditions: &[(usize, &Expr)], predicate: &Expr) -> Option<Option<usize>> {
    let exact = conditions.iter().find(|(_, condition)| same(*condition, predicate));
    if let Some((place, _)) = exact {
        return Some(Some(*place));
    }
    let implied = match predicate {
        Expr::Constant(Datum::Bool(true)) => true,
        Expr::And(parts) => parts.iter().all(|part| implies(conditions, part).is_some()),
        Expr::Or(parts) => {
            parts.iter().any(|part| implies(conditions, part).is_some())
                || conditions.iter().any(|(_, condition)| one_implies(condition, predicate))
        }
        _ => conditions.iter().any(|(_, condition)| one_implies(condition, predicate)),
    };
    implied.then_some(None)
}

/// Whether one condition does.
fn one_implies(condition: &Expr, predicate: &Expr) -> bool {
    if same(condition, predicate) {
        return true;
    }
    match (condition, predicate) {
        (Expr::And(parts), _) => parts.iter().any(|part| one_implies(part, predicate)),
        (Expr::Or(parts), _) => parts.iter().all(|part| one_implies(part, predicate)),
        (_, Expr::And(parts)) => parts.iter().all(|part| one_implies(condition, part)),
        (_, Expr::Or(parts)) => parts.iter().any(|part| one_implies(condition, part)),
        (_, Expr::IsNull { operand, negated: true }) => needs(condition, operand),
        _ => truths(condition, predicate) || ranges(condition, predicate),
    }
}

/// An expression that is TRUE or FALSE, and which of the two is asked for.
fn truth(expr: &Expr) -> (&Expr, bool) {
    match expr {
        // `NOT (x IS TRUE)` is TRUE where x is NULL: nothing is said of x itself.
        Expr::Not(operand) if matches!(operand.as_ref(), Expr::IsTruth { .. }) => (operand, false),
        Expr::Not(operand) => {
            let (inner, value) = truth(operand);
            (inner, !value)
        }
        Expr::IsTruth { operand, value: Some(value), negated: false } => (operand, *value),
        Expr::Compare(Comparison::Equal, sides) => match sides.as_ref() {
            [operand, Expr::Constant(Datum::Bool(value))] | [Expr::Constant(Datum::Bool(value)), operand] => {
                (operand, *value)
            }
            _ => (expr, true),
        },
        other => (other, true),
    }
}

/// Both ask for one truth value of the same. What `IS NOT TRUE` asks for is implied by nothing but
/// itself here.
fn truths(condition: &Expr, predicate: &Expr) -> bool {
    let ((known, value), (asked, wanted)) = (truth(condition), truth(predicate));
    value == wanted && same(known, asked)
}

/// Whether a condition cannot be TRUE where `operand` is NULL.
fn needs(condition: &Expr, operand: &Expr) -> bool {
    let strict = |part: &Expr| is_strict_in(part, operand);
    match condition {
        Expr::IsNull { operand: inner, negated: true } => strict(inner),
        Expr::IsTruth { operand: inner, value: Some(_), negated: false } => strict(inner),
        // It is FALSE for an empty array.
        Expr::Quantified(any) if !any.all => strict(&any.operand),
        _ => strict(condition),
    }
}

/// Whether an expression is NULL where `operand` is.
fn is_strict_in(expr: &Expr, operand: &Expr) -> bool {
    if same(expr, operand) {
        return true;
    }
    let strict = |part: &Expr| is_strict_in(part, operand);
    match expr {
        Expr::Compare(_, sides) => sides.iter().any(strict),
        Expr::Operator(call) if call.operator.strict => {
            strict(&call.right) || (call.operator.left.is_some() && strict(&call.left))
        }
        Expr::Function(call) if call.function.function.strict => call.arguments.iter().any(strict),
        Expr::Cast(cast) => strict(&cast.0),
        Expr::Not(inner) => strict(inner),
        Expr::InList(list) => strict(&list.operand),
        _ => false,
    }
}

/// What a condition leaves of an operand's values: one of some constants, or a side of one.
enum Left<'a> {
    Values(Vec<&'a Datum>),
    Side(Comparison, &'a Datum),
}

/// The operand of a comparison with constants, and what it leaves.
fn left(expr: &Expr) -> Option<(&Expr, Left<'_>)> {
    match expr {
        Expr::Compare(comparison, sides) => {
            let (operand, comparison, value) = match sides.as_ref() {
                [operand, Expr::Constant(value)] => (operand, *comparison, value),
                [Expr::Constant(value), operand] => (operand, comparison.commuted(), value),
                _ => return None,
            };
            match comparison {
                _ if value.is_null() => None,
                Comparison::Equal => Some((operand, Left::Values(vec![value]))),
                side => Some((operand, Left::Side(side, value))),
            }
        }
        Expr::InList(list) if !list.negated => {
            let mut values = Vec::new();
            for item in &list.items {
                let Expr::Constant(value) = item else { return None };
                values.push(value);
            }
            values.extend(list.constants.iter().flat_map(|set| set.iter()));
            // NULL is equal to nothing.
            values.retain(|value| !value.is_null());
            Some((&list.operand, Left::Values(values)))
        }
        Expr::Quantified(any) if !any.all && any.operator.comparison() == Some(Comparison::Equal) => {
            let Expr::Constant(Datum::Array(array)) = &any.array else { return None };
            let values = array.elements.iter().filter(|value| !value.is_null()).collect();
            Some((&any.operand, Left::Values(values)))
        }
        _ => None,
    }
}

/// Whether all values that the condition leaves are among those that the predicate does.
fn ranges(condition: &Expr, predicate: &Expr) -> bool {
    let (Some((operand, known)), Some((asked, wanted))) = (left(condition), left(predicate)) else {
        return false;
    };
    if !same(operand, asked) {
        return false;
    }
    match (known, wanted) {
        (Left::Values(known), Left::Values(wanted)) => {
            known.iter().all(|one| wanted.iter().any(|other| order(one, other) == Some(Ordering::Equal)))
        }
        (Left::Values(known), Left::Side(side, bound)) => {
            known.iter().all(|one| order(one, bound).is_some_and(|order| holds(side, order)))
        }
        (Left::Side(known, from), Left::Side(wanted, to)) => {
            order(from, to).is_some_and(|order| side_implies(known, wanted, order))
        }
        (Left::Side(..), Left::Values(_)) => false,
    }
}

/// The order of two constants; none if they are of different kinds.
fn order(a: &Datum, b: &Datum) -> Option<Ordering> {
    let is_integer = |value: &Datum| value.as_i64().is_some();
    let alike = std::mem::discriminant(a) == std::mem::discriminant(b);
    (alike || is_integer(a) && is_integer(b)).then(|| a.compare(b))
}

fn holds(comparison: Comparison, order: Ordering) -> bool {
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}

/// Whether `x known a` implies `x wanted b`, for this order of a and b.
fn side_implies(known: Comparison, wanted: Comparison, order: Ordering) -> bool {
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    match (known, wanted) {
        (NotEqual, NotEqual) => order.is_eq(),
        (Less, Less | LessOrEqual | NotEqual) | (LessOrEqual, LessOrEqual) => order.is_le(),
        (LessOrEqual, Less | NotEqual) => order.is_lt(),
        (Greater, Greater | GreaterOrEqual | NotEqual) | (GreaterOrEqual, GreaterOrEqual) => order.is_ge(),
        (GreaterOrEqual, Greater | NotEqual) => order.is_gt(),
        (Equal | NotEqual | Less | LessOrEqual | Greater | GreaterOrEqual, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(comparison: Comparison, value: i32) -> Expr {
        Expr::compare(comparison, Expr::Slot(0), Expr::Constant(Datum::Int4(value)))
    }

    /// Of comparisons with constants, one implies another exactly if no value says otherwise.
    #[test]
    fn comparisons_imply_what_no_value_contradicts() {
        use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        let all = [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual];
        for (known, wanted) in all.iter().flat_map(|known| all.iter().map(move |wanted| (*known, *wanted))) {
            for (a, b) in (0..5).flat_map(|a| (0..5).map(move |b| (a, b))) {
                let is_true = |comparison: Comparison, value: i32, bound: i32| {
                    comparison.test(&Datum::Int4(value), &Datum::Int4(bound))
                };
                let contradicted =
                    (-3..8).any(|value| is_true(known, value, a) && !is_true(wanted, value, b));
                let condition = slot(known, a);
                let implied = implies(&[(0, &condition)], &slot(wanted, b)).is_some();
                // That integers have neighbours is not looked at.
                let by_neighbours = matches!(known, Less | Greater) && !implied;
                assert!(!implied || !contradicted, "{known:?} {a} implies {wanted:?} {b}");
                assert!(implied || contradicted || by_neighbours, "{known:?} {a}, {wanted:?} {b}");
            }
        }
    }

    /// `NOT (x IS TRUE)` is TRUE for NULL, which `NOT x` is not.
    #[test]
    fn what_is_not_true_may_be_null() {
        let x = Expr::Slot(0);
        let is_true = Expr::IsTruth { operand: Box::new(x.clone()), value: Some(true), negated: false };
        let not = |operand: &Expr| Expr::Not(Box::new(operand.clone()));
        let (not_x, not_true) = (not(&x), not(&is_true));
        assert_eq!(implies(&[(0, &not_true)], &not_x), None);
        assert_eq!(implies(&[(0, &not_true)], &not_true), Some(Some(0)));
        assert_eq!(implies(&[(0, &is_true)], &x), Some(None));
        assert_eq!(implies(&[(0, &not(&not_x))], &x), Some(None));
    }

    #[test]
    fn parameters_imply_no_values() {
        let equal = Expr::compare(Comparison::Equal, Expr::Slot(0), Expr::Parameter(0));
        let not_null = Expr::IsNull { operand: Box::new(Expr::Slot(0)), negated: true };
        let known = [(7, &equal)];
        assert_eq!(implies(&known, &slot(Comparison::Greater, 1)), None);
        assert_eq!(implies(&known, &not_null), Some(None));
        assert_eq!(implies(&known, &equal), Some(Some(7)));
        // NOT of what is NULL is NULL; IS NULL of it is TRUE.
        let negated = Expr::Not(Box::new(equal.clone()));
        assert_eq!(implies(&[(0, &negated)], &not_null), Some(None));
        let null = Expr::IsNull { operand: Box::new(equal.clone()), negated: false };
        assert_eq!(implies(&[(0, &null)], &not_null), None);
        let either = Expr::Or(vec![equal, slot(Comparison::Less, 3)]);
        assert_eq!(implies(&[(0, &either)], &not_null), Some(None));
    }
}
