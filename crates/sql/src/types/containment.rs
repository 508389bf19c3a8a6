//! Whether one jsonb value contains another: an object every member, an array every element, in any
//! order and any number.

use std::collections::HashMap;

use super::bounds::Meter;
use super::json::{Node, Value};
use crate::error::SqlError;

/// So many keys are looked for one by one.
const FEW_KEYS: usize = 8;

impl Node {
    /// jsonb's `@>`: does this value contain the other? Every part of one may have to be compared
    /// with every part of the other.
    pub(crate) fn contains(&self, other: &Node, meter: &mut Meter) -> Result<bool, SqlError> {
        match (&self.value, &other.value) {
            (Value::Object(mine), Value::Object(wanted)) => {
                let by_key = || mine.iter().map(|(key, value)| (key.as_str(), value)).collect();
                let known: Option<HashMap<&str, &Node>> = (wanted.len() > FEW_KEYS).then(by_key);
                for (key, value) in wanted {
                    meter.add(0)?;
                    let mine = known
                        .as_ref()
                        .map_or_else(|| self.member(key), |known| known.get(key.as_str()).copied());
                    match mine {
                        Some(mine) if mine.contains_within(value, meter)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
            (Value::Array(mine), Value::Array(wanted)) => {
                for want in wanted {
                    if !has_element(mine, want, meter)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            // At the top an array contains a bare scalar.
            (Value::Array(mine), _) if !matches!(other.value, Value::Object(_)) => {
                has_element(mine, other, meter)
            }
            _ => self.contains_within(other, meter),
        }
    }

    fn contains_within(&self, other: &Node, meter: &mut Meter) -> Result<bool, SqlError> {
        Ok(match (&self.value, &other.value) {
            (Value::Object(_), Value::Object(_)) | (Value::Array(_), Value::Array(_)) => {
                return self.contains(other, meter);
            }
            (Value::Number(a), Value::Number(b)) => match (significant(a), significant(b)) {
                (Some(a), Some(b)) => a == b,
                _ => self.number() == other.number(),
            },
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Null, Value::Null) => true,
            _ => false,
        })
    }
}

/// The text of a number without zeros at the end of its fraction: of jsonb's texts of one number
/// nothing else is different, and they are compared far faster than they are read. None for those
/// that only other texts have: with an exponent, and -0.
fn significant(text: &str) -> Option<&str> {
    let digits = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    (digits != "-0" && !text.contains(['e', 'E'])).then_some(digits)
}

/// Whether one of the elements contains the other value.
fn has_element(elements: &[Node], wanted: &Node, meter: &mut Meter) -> Result<bool, SqlError> {
    for element in elements {
        meter.add(0)?;
        if element.contains_within(wanted, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}
