//! A family as rows of the engine's own trees: the MIP-Table on disk (paper §3.3).
//!
//! ```text
//! families:   XID 00              version 2, winner or 0, floor, request, winner's result, prepared instances with their results, rolled back instances
//!             XID 00 01           the request, if it is not in the first row
//!             XID 00 02 instance  a result that is not in the first row: of a prepared instance or the winner; the number in 8 bytes, big-endian
//! collected:  'c' client          version 1, high-water mark, ranges above it: count, then first and last of each
//!             'x' XID             nothing: an XID without a client's number is forgotten
//! ```
//!
//! Integers are varints; a text in the first row is its length + 1 and its bytes, one that is not there is 0. A family is found by its XID alone, with one search for the first row and one for each text
//! that this does not hold: never by a scan. Texts are in the first row as long as they fit into [`TOGETHER`], the request first, then results in the order of their instances; so most families are one row, and yet one of many
//! instances overflows nothing, and what an operation writes again of others is bounded. A decided family is its request and one result, until it is forgotten.

use smallvec::SmallVec;

use super::{Collected, Family, Instance, Text, Xid};
use crate::key::SmallKey;
use crate::own::{COLLECTED_TREE, FAMILIES_TREE, OwnRow};
use crate::payload::{Encoder, Input};
use crate::{Csn, Error, TreeId, Value};

const FAMILY_VERSION: u8 = 2;
const COLLECTED_VERSION: u8 = 1;

/// Most bytes of texts in a family's first row.
const TOGETHER: usize = 256;

/// Reads the newest version of a row, with its number.
pub(super) type Get<'a> = &'a dyn Fn(TreeId, &[u8]) -> Result<(Csn, Option<Value>), Error>;

fn first_key(xid: &Xid) -> SmallKey {
    SmallKey::concat(&[xid.as_str().as_bytes(), &[0]])
}

fn request_key(xid: &Xid) -> SmallKey {
    SmallKey::concat(&[xid.as_str().as_bytes(), &[0, 1]])
}

fn result_key(xid: &Xid, instance: Instance) -> SmallKey {
    SmallKey::concat(&[xid.as_str().as_bytes(), &[0, 2], &instance.get().to_be_bytes()])
}

fn collected_key(xid: &Xid) -> SmallKey {
    match xid.numbered() {
        Some((client, _)) => SmallKey::concat(&[b"c", client.as_bytes()]),
        None => SmallKey::concat(&[b"x", xid.as_str().as_bytes()]),
    }
}

/// The texts of a family, each in the first row or in a row of its own: the request (`None`), then results by instance; so in the order of both.
struct Texts<'a>(SmallVec<[Stored<'a>; 3]>);

struct Stored<'a> {
    of: Option<Instance>,
    text: &'a Text,
    together: bool,
}

impl Stored<'_> {
    fn encode(&self, out: &mut Encoder) {
        out.optional(self.together.then_some(self.text.as_bytes()));
    }
}

impl Texts<'_> {
    fn of(family: &Family) -> Texts<'_> {
        let request = family.request.iter().map(|request| (None, request));
        // A decided family has nothing prepared.
        let prepared = family.prepared.iter().map(|(instance, result)| (Some(instance), result));
        let decided = family.decided.iter().map(|(winner, result)| (Some(*winner), result));
        let mut texts = SmallVec::with_capacity(2 + family.prepared.len());
        let mut room = TOGETHER;
        for (of, text) in request.chain(prepared).chain(decided) {
            let rest = room.checked_sub(text.len());
            texts.push(Stored { of, text, together: rest.is_some() });
            room = rest.unwrap_or(room);
        }
        Texts(texts)
    }

    fn apart(&self) -> impl Iterator<Item = (Option<Instance>, &Text)> {
        self.0.iter().filter(|stored| !stored.together).map(|stored| (stored.of, stored.text))
    }

    /// A text that has a row of its own.
    fn row_of(&self, wanted: Option<Instance>) -> Option<&Text> {
        let found = self.0.binary_search_by_key(&wanted, |stored| stored.of).ok()?;
        Some(&self.0[found]).filter(|stored| !stored.together).map(|stored| stored.text)
    }

    fn encode_first(&self, family: &Family) -> Option<Value> {
        if family.is_blank_on_disk() {
            return None;
        }
        let size: usize =
            self.0.iter().filter(|stored| stored.together).map(|stored| stored.text.len()).sum();
        let mut out = Encoder::with_capacity(48 + size as u64);
        out.byte(FAMILY_VERSION);
        let winner = family.decided.as_ref().map(|(winner, _)| *winner);
        out.varint(winner.map_or(0, |winner| winner.get().unsigned_abs()));
        out.varint(family.floor.unsigned_abs());
        let mut results = &self.0[..];
        match results.split_first() {
            Some((request, rest)) if request.of.is_none() => {
                request.encode(&mut out);
                results = rest;
            }
            _ => out.optional(None),
        }
        if let (Some(_), Some((result, rest))) = (winner, results.split_first()) {
            result.encode(&mut out);
            results = rest;
        }
        out.varint(results.len() as u64);
        for result in results {
            out.varint(result.of.map_or(0, |instance| instance.get().unsigned_abs()));
            result.encode(&mut out);
        }
        out.varint(family.rolled_back.len() as u64);
        family.rolled_back.iter().for_each(|instance| out.varint(instance.get().unsigned_abs()));
        Some(out.finish().into())
    }
}

fn text_key(xid: &Xid, of: Option<Instance>) -> SmallKey {
    match of {
        None => request_key(xid),
        Some(instance) => result_key(xid, instance),
    }
}

/// The rows that change where a family becomes another one.
pub(super) fn difference(xid: &Xid, before: &Family, after: &Family) -> Vec<OwnRow> {
    // With room for the row of the prepared transaction.
    let mut rows = Vec::with_capacity(2);
    let (old, new) = (Texts::of(before), Texts::of(after));
    if !before.is_same_on_disk(after) {
        rows.push((FAMILIES_TREE, first_key(xid), new.encode_first(after)));
    }
    for (of, _) in old.apart().filter(|(of, _)| new.row_of(*of).is_none()) {
        rows.push((FAMILIES_TREE, text_key(xid, of), None));
    }
    for (of, text) in new.apart().filter(|(of, text)| old.row_of(*of) != Some(*text)) {
        rows.push((FAMILIES_TREE, text_key(xid, of), Some(Value::copy_from_slice(text.as_bytes()))));
    }
    rows
}

fn damaged(xid: &Xid, what: impl std::fmt::Display) -> Error {
    Error::InvalidArgument(format!("the stored family {xid}: {what}"))
}

/// The stored family, and the number of its last change; `None` if nothing is stored.
pub(super) fn load(xid: &Xid, get: Get<'_>) -> Result<Option<(Family, Csn)>, Error> {
    let (csn, Some(first)) = get(FAMILIES_TREE, &first_key(xid))? else { return Ok(None) };
    let first = First::decode(&first).map_err(|what| damaged(xid, what))?;
    let text = |of: Option<Instance>, inside: Option<&[u8]>| -> Result<Text, Error> {
        let value = match inside {
            Some(_) => None,
            None => {
                let value = get(FAMILIES_TREE, &text_key(xid, of))?.1;
                Some(value.ok_or_else(|| damaged(xid, "a row is missing"))?)
            }
        };
        let bytes = value.as_deref().or(inside).unwrap_or_default();
        std::str::from_utf8(bytes).map(Text::from).map_err(|error| damaged(xid, error))
    };
    let mut family = Family::default();
    family.floor = first.floor;
    family.request = Some(text(None, first.request)?);
    for (instance, result) in first.prepared {
        family.prepared.insert(instance, text(Some(instance), result)?);
    }
    if let Some((winner, result)) = first.winner {
        family.decided = Some((winner, text(Some(winner), result)?));
    }
    family.rolled_back = first.rolled_back.into_iter().collect();
    Ok(Some((family, csn)))
}

/// The first row; texts that it does not hold are `None`.
struct First<'a> {
    floor: i64,
    request: Option<&'a [u8]>,
    winner: Option<(Instance, Option<&'a [u8]>)>,
    prepared: Vec<(Instance, Option<&'a [u8]>)>,
    rolled_back: Vec<Instance>,
}

impl First<'_> {
    fn decode(bytes: &[u8]) -> Result<First<'_>, String> {
        let mut input = Input::of(bytes);
        let version = input.byte()?;
        if version != FAMILY_VERSION {
            return Err(format!("the unknown version {version}"));
        }
        let instance = |number: u64| {
            let number = i64::try_from(number).map_err(|_| "an instance out of range".to_owned())?;
            Instance::new(number).map_err(|refusal| refusal.to_string())
        };
        let winner = input.varint()?;
        let floor = i64::try_from(input.varint()?).map_err(|_| "a floor out of range")?;
        let request = input.optional()?;
        let winner = match winner {
            0 => None,
            number => Some((instance(number)?, input.optional()?)),
        };
        let prepared = input.list(|input| Ok((instance(input.varint()?)?, input.optional()?)))?;
        let rolled_back = input.list(|input| instance(input.varint()?))?;
        input.end()?;
        Ok(First { floor, request, winner, prepared, rolled_back })
    }
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
    out.byte(COLLECTED_VERSION);
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
    if version != COLLECTED_VERSION {
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
        // Of 30 to 210 bytes: several fit together, or one, or none.
        let long = |what: &str, n: u64| Text::from(format!("{what} {n} ").repeat(3 + 7 * (n as usize % 4)));
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
                let result = long("result", random.below(4));
                match random.below(6) {
                    0..=2 => drop(family.begin(instance, owner)),
                    3 => {
                        let request = long("request", seed);
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
        let first = Texts::of(&family).encode_first(&family).expect("it is not blank");
        assert!(First::decode(&first).is_ok());
        for end in 0..first.len() {
            assert!(First::decode(&first[..end]).is_err());
        }
    }
}
