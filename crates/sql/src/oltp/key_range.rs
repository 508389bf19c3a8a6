//! From an access's expressions to ranges of keys.

use std::borrow::Cow;
use std::ops::Bound;

use super::subquery;
use crate::error::Result;
use crate::expr::{Env, Execution, Expr};
use crate::function::operator::Comparison;
use crate::keys::{self, KeyOrder};
use crate::merge_sort;
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

/// What the keys begin with that an access asks for, one for each combination of its columns'
/// values, in key order. There may be very many combinations: what is held are the values of each
/// column, and each beginning is made when it is its turn. (Nobody asks for several values and for
/// the other direction: only single ones leave an order to the columns behind.)
///
/// ```text
/// a = 1 AND b IN (7, 5, 7) AND c = 2 AND d IN (8, 9)
/// head: 1      lists: 5 7 (behind them 2), 8 9
/// 1 5 2 8, 1 5 2 9, 1 7 2 8, 1 7 2 9
/// ```
#[derive(Default)]
pub(crate) struct Prefixes {
    /// What all of them begin with.
    head: Vec<u8>,
    /// The columns with several values.
    lists: Vec<List>,
    is_more: bool,
    /// Bytes accounted for the lists.
    bytes: usize,
}

/// The values of a column as they are in keys, none of which is the beginning of another one.
#[derive(Default)]
struct List {
    bytes: Vec<u8>,
    /// Where each value is among the bytes, in order, each value once.
    places: Vec<(usize, usize)>,
    /// The value whose turn it is.
    at: usize,
    /// What follows, up to the next column with several values.
    behind: Vec<u8>,
}

/// A place is there twice while places are sorted.
const PLACE_BYTES: usize = 2 * size_of::<(usize, usize)>();

/// The prefixes an access asks for; none if a value is NULL or outside the column's type.
pub(crate) fn prefixes(access: &Access, env: &Env<'_>) -> Result<Prefixes> {
    let head = Vec::with_capacity(16 * access.parts.len());
    let mut found = Prefixes { head, is_more: true, ..Prefixes::default() };
    for part in &access.parts {
        found.is_more = match &part.values {
            KeyValues::One(expr) => found.one(&*expr.value(env)?, part),
            KeyValues::Null => {
                keys::encode_into(found.end(), &Datum::Null, part.order);
                true
            }
            several => found.several(several, part, env)?,
        };
        if !found.is_more {
            break;
        }
    }
    Ok(found)
}

impl Prefixes {
    /// The next one; none behind the last.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        if !self.is_more {
            return None;
        }
        if self.lists.is_empty() {
            self.is_more = false;
            return Some(std::mem::take(&mut self.head));
        }
        let length = |list: &List| list.value().len() + list.behind.len();
        let length = self.head.len() + self.lists.iter().map(length).sum::<usize>();
        let mut prefix = Vec::with_capacity(length);
        prefix.extend_from_slice(&self.head);
        for list in &self.lists {
            prefix.extend_from_slice(list.value());
            prefix.extend_from_slice(&list.behind);
        }
        // A column has its next value once those behind it have had all of theirs.
        self.is_more = self.lists.iter_mut().rev().any(List::advance);
        Some(prefix)
    }

    /// Gives back the memory it accounts for, and what it has.
    pub(crate) fn release(&mut self, execution: Execution<'_>) {
        execution.runtime.release(self.bytes);
        *self = Prefixes::default();
    }

    /// Where what all of them go on with is put.
    fn end(&mut self) -> &mut Vec<u8> {
        match self.lists.last_mut() {
            Some(last) => &mut last.behind,
            None => &mut self.head,
        }
    }

    /// All go on with this value. False if no key can have it.
    fn one(&mut self, value: &Datum, part: &KeyPart) -> bool {
        if value.is_null() {
            return false;
        }
        let Fit::Exact(value) = fit(Cow::Borrowed(value), part.ty) else { return false };
        keys::encode_into(self.end(), &value, part.order);
        true
    }

    /// They go on with any of these values. False if there are none.
    fn several(&mut self, values: &KeyValues, part: &KeyPart, env: &Env<'_>) -> Result<bool> {
        let mut list = List::default();
        let mut add = |value: &Datum| -> Result<()> {
            env.execution.tick()?;
            self.bytes += list.add(value, part, env.execution)?;
            Ok(())
        };
        match values {
            KeyValues::List(items) => {
                for item in items {
                    add(&*item.value(env)?)?;
                }
            }
            KeyValues::Array(expr) => {
                if let Datum::Array(array) = &*expr.value(env)? {
                    array.elements.iter().try_for_each(add)?;
                }
            }
            KeyValues::Subquery(Expr::Subquery(query)) => subquery::for_each_value(query, env, &mut add)?,
            KeyValues::Subquery(_) | KeyValues::One(_) | KeyValues::Null => {}
        }
        list.order(env.execution)?;
        let is_any = !list.places.is_empty();
        self.lists.push(list);
        Ok(is_any)
    }
}

impl List {
    fn value(&self) -> &[u8] {
        let (from, to) = self.places[self.at];
        &self.bytes[from..to]
    }

    /// It is the next value's turn. False if it is the first one's again.
    fn advance(&mut self) -> bool {
        self.at += 1;
        if self.at == self.places.len() {
            self.at = 0;
        }
        self.at != 0
    }

    /// One more value, unless no key can have it. Gives the bytes accounted for it.
    fn add(&mut self, value: &Datum, part: &KeyPart, execution: Execution<'_>) -> Result<usize> {
        if value.is_null() {
            return Ok(0);
        }
        let Fit::Exact(value) = fit(Cow::Borrowed(value), part.ty) else { return Ok(0) };
        let from = self.bytes.len();
        keys::encode_into(&mut self.bytes, &value, part.order);
        let bytes = self.bytes.len() - from + PLACE_BYTES;
        execution.reserve(bytes)?;
        self.places.push((from, self.bytes.len()));
        Ok(bytes)
    }

    /// No value follows: brings them in order, each once.
    fn order(&mut self, execution: Execution<'_>) -> Result<()> {
        let List { bytes, places, .. } = self;
        let value = |place: (usize, usize)| &bytes[place.0..place.1];
        let go_on = || execution.tick();
        merge_sort::sort(places, merge_sort::RUN, go_on, |a, b| value(*a).cmp(value(*b)))?;
        let mut kept = 0;
        for at in 1..places.len() {
            execution.tick()?;
            if value(places[at]) != value(places[kept]) {
                kept += 1;
                places[kept] = places[at];
            }
        }
        places.truncate(kept + 1);
        Ok(())
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
