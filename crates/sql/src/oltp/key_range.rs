//! From an access's expressions to ranges of keys.

use std::borrow::Cow;
use std::ops::Bound;

use smallvec::SmallVec;

use super::subquery;
use crate::error::Result;
use crate::expr::{Env, Expr};
use crate::function::operator::Comparison;
use crate::keys::{self, KeyOrder};
use crate::plan::{Access, KeyPart, KeyRange, KeyValues, RangeBound};
use crate::types::{Datum, TypeId};

/// Keys from `lower` (included) to `upper` (excluded; none is the end).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) lower: Vec<u8>,
    pub(crate) upper: Option<Vec<u8>>,
}

impl Range {
    /// The bounds of a scan.
    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let lower =
            if self.lower.is_empty() { Bound::Unbounded } else { Bound::Included(self.lower.as_slice()) };
        (lower, self.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded))
    }
}

/// A value put into the representation of a key column.
enum Fit {
    Exact(Datum),
    /// Smaller than every value of the column's type.
    Below,
    /// Larger.
    Above,
}

/// Integers of other widths than the column's are compared by value; their keys must be of the
/// column's width.
fn fit(value: Cow<'_, Datum>, ty: TypeId) -> Fit {
    let integer = match (ty, &*value) {
        (TypeId::Int2, Datum::Int4(_) | Datum::Int8(_))
        | (TypeId::Int4, Datum::Int2(_) | Datum::Int8(_))
        | (TypeId::Int8, Datum::Int2(_) | Datum::Int4(_)) => value.as_i64(),
        _ => None,
    };
    let Some(integer) = integer else { return Fit::Exact(value.into_owned()) };
    let fitted = match ty {
        TypeId::Int2 => i16::try_from(integer).map(Datum::Int2).ok(),
        TypeId::Int4 => i32::try_from(integer).map(Datum::Int4).ok(),
        _ => Some(Datum::Int8(integer)),
    };
    match fitted {
        Some(datum) => Fit::Exact(datum),
        None if integer < 0 => Fit::Below,
        None => Fit::Above,
    }
}

/// The beginning of the keys with these values in the first columns, for each combination, in key
/// order, without duplicates.
pub(crate) type Prefixes = SmallVec<[Vec<u8>; 1]>;

/// The prefixes an access asks for; none if a value is NULL or outside the column's type.
pub(crate) fn prefixes(access: &Access, env: &Env<'_>) -> Result<Prefixes> {
    let mut prefixes = Prefixes::new();
    prefixes.push(Vec::with_capacity(16 * access.parts.len()));
    let mut several = false;
    for part in &access.parts {
        match &part.values {
            KeyValues::One(expr) => {
                if !append(&mut prefixes, &*expr.value(env)?, part) {
                    return Ok(Prefixes::new());
                }
            }
            KeyValues::Null => {
                for prefix in &mut prefixes {
                    keys::encode_into(prefix, &Datum::Null, part.order);
                }
            }
            KeyValues::List(items) => {
                several = true;
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    values.push(item.eval(env)?);
                }
                multiply(&mut prefixes, values, part);
            }
            KeyValues::Array(expr) => {
                several = true;
                let values = match &*expr.value(env)? {
                    Datum::Array(array) => array.elements.clone(),
                    _ => vec![],
                };
                multiply(&mut prefixes, values, part);
            }
            KeyValues::Subquery(expr) => {
                several = true;
                multiply(&mut prefixes, subquery_values(expr, env)?, part);
            }
        }
    }
    if several {
        prefixes.sort();
        prefixes.dedup();
    }
    Ok(prefixes)
}

fn subquery_values(expr: &Expr, env: &Env<'_>) -> Result<Vec<Datum>> {
    match expr {
        Expr::Subquery(query) => subquery::column_values(query, env),
        _ => Ok(vec![]),
    }
}

/// Appends one value to every prefix; false if no key can have it.
fn append(prefixes: &mut Prefixes, value: &Datum, part: &KeyPart) -> bool {
    if value.is_null() {
        return false;
    }
    let Fit::Exact(value) = fit(Cow::Borrowed(value), part.ty) else { return false };
    for prefix in prefixes {
        keys::encode_into(prefix, &value, part.order);
    }
    true
}

/// Every prefix with every value.
fn multiply(prefixes: &mut Prefixes, values: Vec<Datum>, part: &KeyPart) {
    let mut encoded: Vec<Vec<u8>> = vec![];
    for value in values {
        if value.is_null() {
            continue;
        }
        if let Fit::Exact(value) = fit(Cow::Owned(value), part.ty) {
            let mut key = vec![];
            keys::encode_into(&mut key, &value, part.order);
            encoded.push(key);
        }
    }
    encoded.sort();
    encoded.dedup();
    let before = std::mem::take(prefixes);
    for prefix in &before {
        for key in &encoded {
            let mut longer = Vec::with_capacity(prefix.len() + key.len());
            longer.extend_from_slice(prefix);
            longer.extend_from_slice(key);
            prefixes.push(longer);
        }
    }
}

/// The range of keys that begin with `prefix` and satisfy the range of the next column; none if no
/// key can.
pub(crate) fn range(prefix: &[u8], range: Option<&KeyRange>, env: &Env<'_>) -> Result<Option<Range>> {
    let Some(range) = range else {
        return Ok(Some(Range { lower: prefix.to_vec(), upper: keys::next_prefix(prefix) }));
    };
    // NULLs lie outside: before the values or behind them.
    let mut lower = prefix.to_vec();
    keys::encode_not_null_into(&mut lower);
    let mut result = Range { upper: keys::next_prefix(&lower), lower };
    for bound in range.lower.iter().chain(&range.upper) {
        if !narrow(&mut result, prefix, bound, range, env)? {
            return Ok(None);
        }
    }
    if let Some(pattern) = &range.pattern {
        match &*pattern.value(env)? {
            Datum::Text(pattern) => {
                let mut start = prefix.to_vec();
                keys::encode_text_prefix_into(&mut start, &like_prefix(pattern.as_str()));
                result.upper = keys::next_prefix(&start);
                result.lower = start;
            }
            _ => return Ok(None),
        }
    }
    // Contradictory bounds leave nothing.
    let is_empty = result.upper.as_ref().is_some_and(|upper| *upper <= result.lower);
    Ok((!is_empty).then_some(result))
}

/// Applies one bound; false if nothing can satisfy it.
fn narrow(
    result: &mut Range,
    prefix: &[u8],
    bound: &RangeBound,
    range: &KeyRange,
    env: &Env<'_>,
) -> Result<bool> {
    let value = bound.value.value(env)?;
    if value.is_null() {
        return Ok(false);
    }
    let wants_larger = matches!(bound.comparison, Comparison::Greater | Comparison::GreaterOrEqual);
    let value = match fit(value, range.ty) {
        Fit::Exact(value) => value,
        // Everything is larger than what is below the type, and nothing smaller.
        Fit::Below => return Ok(wants_larger),
        Fit::Above => return Ok(!wants_larger),
    };
    let mut key = prefix.to_vec();
    keys::encode_into(&mut key, &value, range.order);
    let inclusive = matches!(bound.comparison, Comparison::GreaterOrEqual | Comparison::LessOrEqual);
    let KeyOrder { descending, .. } = range.order;
    if wants_larger != descending {
        // A lower bound in key order.
        if inclusive {
            result.lower = key;
        } else {
            match keys::next_prefix(&key) {
                Some(next) => result.lower = next,
                None => return Ok(false),
            }
        }
    } else {
        result.upper = if inclusive { keys::next_prefix(&key) } else { Some(key) };
    }
    Ok(true)
}

/// The fixed beginning of a LIKE pattern.
fn like_prefix(pattern: &str) -> String {
    let mut prefix = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '%' | '_' => break,
            '\\' => match characters.next() {
                Some(escaped) => prefix.push(escaped),
                None => break,
            },
            plain => prefix.push(plain),
        }
    }
    prefix
}

#[cfg(test)]
mod tests {
    #[test]
    fn prefixes_of_patterns() {
        for (pattern, expected) in
            [("abc%", "abc"), ("a_c", "a"), ("%x", ""), (r"a\%b%", "a%b"), ("abc", "abc"), (r"a\", "a")]
        {
            assert_eq!(super::like_prefix(pattern), expected, "{pattern}");
        }
    }
}
