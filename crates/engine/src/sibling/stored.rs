//! A family as rows of the engine's own trees: the MIP-Table on disk (paper §3.3).
//!
//! ```text
//! families:   XID 00              version 1, winner or 0, floor, prepared instances, rolled back instances: count and numbers each
//!             XID 00 01           the request
//!             XID 00 02 instance  the result of an instance that is prepared or the winner; the number in 8 bytes, big-endian
//! collected:  'c' client          version 1, high-water mark, ranges above it: count, then first and last of each
//!             'x' XID             nothing: an XID without a client's number is forgotten
//! ```
//!
//! Integers are varints. A family is found by its XID alone, with one search for the first row and one for each that this names: never by a scan. Each instance
//! has a row of its own, so a family of many instances overflows nothing, and no operation writes the results of others again. A decided family is its first row, its request and one
//! result, until it is forgotten.

use std::collections::BTreeSet;

use super::{Collected, Family, Instance, Text, Xid};
use crate::key::SmallKey;
use crate::own::{COLLECTED_TREE, FAMILIES_TREE, OwnRow};
use crate::payload::{Encoder, Input};
use crate::{Csn, Error, TreeId, Value};

const VERSION: u8 = 1;

/// Reads the newest version of a row, with its number.
pub(super) type Get<'a> = &'a dyn Fn(TreeId, &[u8]) -> Result<(Csn, Option<Value>), Error>;

fn first_key(xid: &Xid) -> SmallKey {
    SmallKey::new(&[xid.as_str().as_bytes(), &[0]].concat())
}

fn request_key(xid: &Xid) -> SmallKey {
    SmallKey::new(&[xid.as_str().as_bytes(), &[0, 1]].concat())
}

fn result_key(xid: &Xid, instance: Instance) -> SmallKey {
    SmallKey::new(&[xid.as_str().as_bytes(), &[0, 2], &instance.get().to_be_bytes()[..]].concat())
}

fn collected_key(xid: &Xid) -> SmallKey {
    match xid.numbered() {
        Some((client, _)) => SmallKey::new(&[b"c", client.as_bytes()].concat()),
        None => SmallKey::new(&[b"x", xid.as_str().as_bytes()].concat()),
    }
}

fn encode_first(family: &Family) -> Option<Value> {
    if family.is_blank_on_disk() {
        return None;
    }
    let mut out = Encoder::with_capacity(32);
    out.byte(VERSION);
    out.varint(family.decided.as_ref().map_or(0, |(winner, _)| winner.get().unsigned_abs()));
    out.varint(family.floor.unsigned_abs());
    let numbers = |numbers: &mut dyn Iterator<Item = &Instance>| numbers.copied().collect::<Vec<_>>();
    let (prepared, rolled_back) =
        (numbers(&mut family.prepared.keys()), numbers(&mut family.rolled_back.iter()));
    out.list(&prepared, |out, instance| out.varint(instance.get().unsigned_abs()));
    out.list(&rolled_back, |out, instance| out.varint(instance.get().unsigned_abs()));
    Some(out.finish().into())
}

/// Instances with stored results.
fn results(family: &Family) -> impl Iterator<Item = (Instance, &Text)> {
    let decided = family.decided.as_ref().map(|(winner, result)| (*winner, result));
    family.prepared.iter().map(|(instance, result)| (*instance, result)).chain(decided)
}

/// The rows that change where a family becomes another one.
pub(super) fn difference(xid: &Xid, before: &Family, after: &Family) -> Vec<OwnRow> {
    let mut rows = Vec::new();
    let text = |text: &Text| Value::copy_from_slice(text.as_bytes());
    let first = encode_first(after);
    if first != encode_first(before) {
        rows.push((FAMILIES_TREE, first_key(xid), first));
    }
    if before.request != after.request {
        rows.push((FAMILIES_TREE, request_key(xid), after.request.as_ref().map(text)));
    }
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (results(before).collect(), results(after).collect());
    for (instance, _) in old.difference(&new) {
        rows.push((FAMILIES_TREE, result_key(xid, *instance), None));
    }
    for (instance, result) in new.difference(&old) {
        rows.push((FAMILIES_TREE, result_key(xid, *instance), Some(text(result))));
    }
    rows
}

fn damaged(xid: &Xid, what: impl std::fmt::Display) -> Error {
    Error::InvalidArgument(format!("the stored family {xid}: {what}"))
}

/// The stored family, and the number of its last change; `None` if nothing is stored.
pub(super) fn load(xid: &Xid, get: Get<'_>) -> Result<Option<(Family, Csn)>, Error> {
    let (csn, Some(first)) = get(FAMILIES_TREE, &first_key(xid))? else { return Ok(None) };
    let text = |key: SmallKey| -> Result<Text, Error> {
        let value = get(FAMILIES_TREE, &key)?.1.ok_or_else(|| damaged(xid, "a row is missing"))?;
        std::str::from_utf8(&value).map(Text::from).map_err(|error| damaged(xid, error))
    };
    let mut family = Family::default();
    let (winner, prepared) = decode_first(&first, &mut family).map_err(|what| damaged(xid, what))?;
    family.request = Some(text(request_key(xid))?);
    for instance in prepared {
        family.prepared.insert(instance, text(result_key(xid, instance))?);
    }
    if let Some(winner) = winner {
        family.decided = Some((winner, text(result_key(xid, winner))?));
    }
    Ok(Some((family, csn)))
}

fn decode_first(bytes: &[u8], family: &mut Family) -> Result<(Option<Instance>, Vec<Instance>), String> {
    let mut input = Input::of(bytes);
    let version = input.byte()?;
    if version != VERSION {
        return Err(format!("the unknown version {version}"));
    }
    let instance = |number: u64| {
        let number = i64::try_from(number).map_err(|_| "an instance out of range".to_owned())?;
        Instance::new(number).map_err(|refusal| refusal.to_string())
    };
    let winner = match input.varint()? {
        0 => None,
        number => Some(instance(number)?),
    };
    family.floor = i64::try_from(input.varint()?).map_err(|_| "a floor out of range")?;
    let prepared = input.list(|input| instance(input.varint()?))?;
    family.rolled_back = input.list(|input| instance(input.varint()?))?.into_iter().collect();
    input.end()?;
    Ok((winner, prepared))
}

/// Whether a family is forgotten.
pub(super) fn is_collected(xid: &Xid, get: Get<'_>) -> Result<bool, Error> {
    let Some(value) = get(COLLECTED_TREE, &collected_key(xid))?.1 else { return Ok(false) };
    match xid.numbered() {
        Some((_, number)) => {
            Ok(decode_collected(&value).map_err(|what| damaged(xid, what))?.contains(number))
        }
        None => Ok(true),
    }
}

/// The row that remembers, when a family is forgotten, that it was.
pub(super) fn collect(xid: &Xid, get: Get<'_>) -> Result<OwnRow, Error> {
    let key = collected_key(xid);
    let Some((_, number)) = xid.numbered() else { return Ok((COLLECTED_TREE, key, Some(Value::new()))) };
    let mut collected = match get(COLLECTED_TREE, &key)?.1 {
        Some(value) => decode_collected(&value).map_err(|what| damaged(xid, what))?,
        None => Collected::default(),
    };
    collected.insert(number);
    let mut out = Encoder::with_capacity(32);
    out.byte(VERSION);
    out.varint(collected.upto());
    let ranges: Vec<(u64, u64)> = collected.ranges().collect();
    out.list(&ranges, |out, (first, last)| {
        out.varint(*first);
        out.varint(*last);
    });
    Ok((COLLECTED_TREE, key, Some(out.finish().into())))
}

fn decode_collected(bytes: &[u8]) -> Result<Collected, String> {
    let mut input = Input::of(bytes);
    let version = input.byte()?;
    if version != VERSION {
        return Err(format!("the unknown version {version}"));
    }
    let upto = input.varint()?;
    let ranges = input.list(|input| Ok((input.varint()?, input.varint()?)))?;
    input.end()?;
    Ok(Collected::of(upto, ranges))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use cognate_env::SplitMix;

    use super::super::Limits;
    use super::*;

    type Store = RefCell<BTreeMap<(TreeId, SmallKey), Value>>;

    fn apply(store: &Store, rows: Vec<OwnRow>) {
        for (tree, key, value) in rows {
            match value {
                Some(value) => drop(store.borrow_mut().insert((tree, key), value)),
                None => drop(store.borrow_mut().remove(&(tree, key))),
            }
        }
    }

    /// Random families: what was stored change by change is what a crash leaves.
    #[test]
    fn what_is_stored_is_what_a_crash_leaves() {
        for seed in 0..300 {
            let (mut random, store) = (SplitMix::new(seed), Store::default());
            let get =
                |tree: TreeId, key: &[u8]| Ok((1, store.borrow().get(&(tree, SmallKey::new(key))).cloned()));
            let xid = Xid::new(["a/7", "a"][random.below(2) as usize]).expect("an XID");
            let neighbour = Xid::new("a/70").expect("an XID");
            let mut family = Family::default();
            for _ in 0..30 {
                let before = family.clone();
                let instance = Instance::new(1 + random.below(9) as i64).expect("positive");
                let owner = instance.get() as u64;
                let result = Text::from(format!("result {}", random.below(3)));
                match random.below(6) {
                    0..=2 => drop(family.begin(instance, owner)),
                    3 => {
                        let request = Text::from("request");
                        drop(family.prepare(instance, owner, &request, &result, Limits::default()));
                    }
                    4 => drop(family.rollback(instance)),
                    _ if random.below(4) == 0 => drop(family.commit(instance)),
                    _ => {}
                }
                apply(&store, difference(&xid, &before, &family));
                let mut crashed = family.clone();
                crashed.crash();
                let loaded = load(&xid, &get).expect("it loads").map(|(family, _)| family);
                assert_eq!(loaded.unwrap_or_default(), crashed, "seed {seed}");
                assert!(load(&neighbour, &get).expect("it loads").is_none());
            }
            apply(&store, difference(&xid, &family, &Family::default()));
            assert!(store.borrow().is_empty(), "seed {seed}");
        }
    }

    #[test]
    fn what_is_collected_is_remembered() {
        let store = Store::default();
        let get =
            |tree: TreeId, key: &[u8]| Ok((1, store.borrow().get(&(tree, SmallKey::new(key))).cloned()));
        let xid = |text: &str| Xid::new(text).expect("an XID");
        for text in ["c/1", "c/2", "c/5", "c/x", "c"] {
            assert!(!is_collected(&xid(text), &get).expect("it reads"));
            apply(&store, vec![collect(&xid(text), &get).expect("it reads")]);
        }
        for (text, is) in [("c/1", true), ("c/2", true), ("c/3", false), ("c/5", true), ("c/x", true)] {
            assert_eq!(is_collected(&xid(text), &get).expect("it reads"), is, "{text}");
        }
        assert_eq!(store.borrow().len(), 3, "one for the client, one for each other XID");
    }

    #[test]
    fn damage_is_noticed() {
        let mut family = Family::default();
        let (instance, text) = (Instance::new(3).expect("positive"), Text::from("r"));
        drop(family.begin(instance, 1));
        drop(family.prepare(instance, 1, &text, &text, Limits::default()));
        let first = encode_first(&family).expect("it is not blank");
        for end in 0..first.len() {
            assert!(decode_first(&first[..end], &mut Family::default()).is_err());
        }
    }
}
