//! Read sets as bytes: in the rows of prepared transactions, in requests, and in images of the
//! graph (`prepared::record` has the layout); and what writes changed of their rows (`change`), in
//! the two latter.

use std::ops::Bound;
use std::sync::Arc;

use super::change::Effects;
use super::columns::{Columns, Condition, Interest, Test};
use super::readset::{Moment, ReadSet};
use crate::hash::Seed;
use crate::key::SmallKey;
use crate::payload::{Encoder, Input};

/// Writes the end of a range.
pub(crate) fn encode_bound(out: &mut Encoder, bound: &Bound<SmallKey>) {
    match bound {
        Bound::Unbounded => out.byte(0),
        Bound::Included(key) => {
            out.byte(1);
            out.string(key);
        }
        Bound::Excluded(key) => {
            out.byte(2);
            out.string(key);
        }
    }
}

/// Reads the end of a range.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn decode_bound(input: &mut Input<'_>) -> Result<Bound<SmallKey>, String> {
    match input.byte()? {
        0 => Ok(Bound::Unbounded),
        1 => Ok(Bound::Included(SmallKey::new(input.string()?))),
        2 => Ok(Bound::Excluded(SmallKey::new(input.string()?))),
        other => Err(format!("a bound of the unknown kind {other}")),
    }
}

/// Writes what was read.
pub(crate) fn encode_reads(out: &mut Encoder, reads: &ReadSet) {
    let moment = |moment: Moment| u8::from(moment == Moment::Latest);
    out.byte(1 + u8::from(reads.is_coarse()));
    out.list(reads.points(), |out, point| {
        out.varint(u64::from(point.tree));
        out.byte(moment(point.moment()));
        out.string(reads.key(point));
        out.varint(reads.columns(point).bits());
    });
    out.list(reads.ranges(), |out, range| {
        out.varint(u64::from(range.tree));
        out.byte(moment(range.moment));
        encode_bound(out, &range.lower);
        encode_bound(out, &range.upper);
        let interest = range.interest.as_deref();
        out.varint(interest.map_or(Columns::ALL, Interest::columns).bits());
        out.list(interest.map_or(&[], Interest::conditions), |out, condition| {
            out.varint(u64::from(condition.column));
            out.byte(condition.test.number());
            out.varint(condition.code);
        });
    });
}

fn decode_columns(input: &mut Input<'_>, has_columns: bool) -> Result<Columns, String> {
    if has_columns { Ok(Columns::of_bits(input.varint()?)) } else { Ok(Columns::ALL) }
}

fn decode_interest(input: &mut Input<'_>, has_columns: bool) -> Result<Option<Arc<Interest>>, String> {
    let columns = decode_columns(input, has_columns)?;
    if !has_columns {
        return Ok(None);
    }
    let conditions = input.list(|input| {
        let column = u32::try_from(input.varint()?).map_err(|_| "a column out of range")?;
        let number = input.byte()?;
        let test = Test::of_number(number).ok_or_else(|| format!("the unknown comparison {number}"))?;
        Ok(Condition { column, test, code: input.varint()? })
    })?;
    let interest = Interest::new(columns, conditions);
    Ok((!interest.is_whole()).then(|| Arc::new(interest)))
}

/// Reads what [`encode_reads`] wrote; `None` if nothing was certified. Without columns, as they
/// were written once, everything was read. `seed`: of the database that looks the keys up.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn decode_reads(
    input: &mut Input<'_>,
    seed: &Seed,
    has_columns: bool,
) -> Result<Option<ReadSet>, String> {
    let kind = input.byte()?;
    if kind == 0 {
        return Ok(None);
    }
    let moment = |byte| if byte == 0 { Moment::Snapshot } else { Moment::Latest };
    let mut reads = ReadSet::default();
    for _ in 0..input.varint()? {
        let (tree, at) = (input.tree()?, moment(input.byte()?));
        let key = input.string()?;
        reads.add_point(seed, tree, key, at, decode_columns(input, has_columns)?);
    }
    for _ in 0..input.varint()? {
        let (tree, at) = (input.tree()?, moment(input.byte()?));
        let (lower, upper) = (decode_bound(input)?, decode_bound(input)?);
        let (lower, upper) = (lower.as_ref().map(|key| &**key), upper.as_ref().map(|key| &**key));
        reads.add_range(tree, lower, upper, at, decode_interest(input, has_columns)?);
    }
    if kind > 1 {
        reads.set_coarse();
    }
    Ok(Some(reads))
}

/// Writes what writes changed of their rows, and the places of these; nothing but a 0 if nothing is
/// known of that.
pub(crate) fn encode_effects(out: &mut Encoder, effects: &Effects, places: impl Iterator<Item = u32>) {
    out.list(effects.list(), |out, word| out.varint(*word));
    if !effects.list().is_empty() {
        places.for_each(|place| out.varint(u64::from(place)));
    }
}

/// Reads what [`encode_effects`] wrote; `set` gets the places, in the same order.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn decode_effects(
    input: &mut Input<'_>,
    set: impl FnOnce(&mut dyn FnMut() -> Result<u32, String>) -> Result<(), String>,
) -> Result<Effects, String> {
    let list = input.list(Input::varint)?;
    if !list.is_empty() {
        let end = list.len() as u64;
        set(&mut || match input.varint()? {
            place if place <= end => Ok(place as u32),
            _ => Err("a place behind all that was changed".to_owned()),
        })?;
    }
    Ok(Effects::of_list(&list))
}
