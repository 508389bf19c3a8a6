//! A family as rows of the engine's own trees: the MIP-Table on disk (paper §3.3).
//!
//! ```text
//! families:   XID 00              version 4, winner or 0, floor, 1 if there is a request, request, winner's result if there is one, aborted instances
//!             XID 00 01           the request, if it is not in the first row
//!             XID 00 02           the winner's result, if it is not in the first row
//! collected:  'c' client          version 1, high-water mark, ranges above it: count, then first and last of each
//!             'x' XID             nothing: an XID without a client's number is forgotten
//! ```
//!
//! *Prepared instances are not among them*: the row of the prepared transaction has the XID, the
//! instance, the request and the result (`prepared::record`), and as long as there is one the
//! family is in memory, after a crash, too. So PREPARE writes one row, as for any transaction; a
//! text is logged twice, with it and with the COMMIT. What a decision, a rollback or a refusal
//! leaves is written with it: the family without those that are still prepared. There may be no
//! request yet: where nothing was ever prepared, instances can be refused all the same. What these
//! add when they are found again is the request, themselves, and the floor, which is never below a
//! prepared instance's number.
//!
//! Integers are varints; a text in the first row is its length + 1 and its bytes, one that is not
//! there is 0. A family is found by its XID alone, with one search for the first row and one for
//! each text that this does not hold: never by a scan. Texts are in the first row as long as they
//! fit into [`TOGETHER`], the request first; so most families are one row. A decided family is its
//! request and one result, until it is forgotten.

use super::{Collected, Family, Instance, Text, Xid};
use crate::key::SmallKey;
use crate::own::{COLLECTED_TREE, FAMILIES_TREE, OwnRow};
use crate::payload::{Encoder, Input};
use crate::{Csn, Error, TreeId, Value};

const FAMILY_VERSION: u8 = 4;
/// Had a request always, and did not say so.
const FAMILY_VERSION_BEFORE: u8 = 3;
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

fn result_key(xid: &Xid) -> SmallKey {
    SmallKey::concat(&[xid.as_str().as_bytes(), &[0, 2]])
}

fn client_key(client: &str) -> SmallKey {
    SmallKey::concat(&[b"c", client.as_bytes()])
}

fn collected_key(xid: &Xid) -> SmallKey {
    match xid.numbered() {
        Some((client, _)) => client_key(client),
        None => SmallKey::concat(&[b"x", xid.as_str().as_bytes()]),
    }
}

/// Which texts are in the first row: the request, and the winner's result.
fn together(request: &str, result: Option<&str>) -> (bool, bool) {
    let room = TOGETHER.checked_sub(request.len());
    (room.is_some(), result.is_some_and(|result| result.len() <= room.unwrap_or(TOGETHER)))
}

/// The rows of a family, apart from what is prepared.
pub(super) fn rows(xid: &Xid, family: &Family) -> Vec<OwnRow> {
    let (request, result) = (family.request.as_deref(), family.decided.as_ref().map(|(_, result)| &**result));
    let (request_inside, result_inside) = together(request.unwrap_or_default(), result);
    let size = request.map_or(0, str::len) + result.map_or(0, str::len);
    let mut first = Encoder::with_capacity(48 + size.min(2 * TOGETHER) as u64);
    first.byte(FAMILY_VERSION);
    first.varint(family.decided.as_ref().map_or(0, |(winner, _)| winner.get().unsigned_abs()));
    first.varint(family.floor.unsigned_abs());
    first.byte(u8::from(request.is_some()));
    first.optional(request.filter(|_| request_inside).map(str::as_bytes));
    if let Some(result) = result {
        first.optional(Some(result.as_bytes()).filter(|_| result_inside));
    }
    first.varint(family.aborted.len() as u64);
    family.aborted.iter().for_each(|instance| first.varint(instance.get().unsigned_abs()));
    // With room for the row of the prepared transaction.
    let mut rows = Vec::with_capacity(2);
    rows.push((FAMILIES_TREE, first_key(xid), Some(first.finish().into())));
    let value = |text: &str| Some(Value::copy_from_slice(text.as_bytes()));
    if let Some(request) = request.filter(|_| !request_inside) {
        rows.push((FAMILIES_TREE, request_key(xid), value(request)));
    }
    if let Some(result) = result.filter(|_| !result_inside) {
        rows.push((FAMILIES_TREE, result_key(xid), value(result)));
    }
    rows
}

/// A row of a family that cannot be understood.
fn damaged(xid: &Xid, tree: TreeId, key: &[u8], what: impl std::fmt::Display) -> Error {
    Error::undecodable_row(tree, key, format!("the stored family {xid}: {what}"))
}

/// The stored family, and the number of its last change; `None` if nothing is stored.
pub(super) fn load(xid: &Xid, get: Get<'_>) -> Result<Option<(Family, Csn)>, Error> {
    let (csn, Some(first)) = get(FAMILIES_TREE, &first_key(xid))? else { return Ok(None) };
    let first = First::decode(&first).map_err(|what| damaged(xid, FAMILIES_TREE, &first_key(xid), what))?;
    let text = |key: SmallKey, inside: Option<&[u8]>| -> Result<Text, Error> {
        let value = match inside {
            Some(_) => None,
            None => {
                let missing =
                    || damaged(xid, FAMILIES_TREE, &first_key(xid), "it names a row that is missing");
                Some(get(FAMILIES_TREE, &key)?.1.ok_or_else(missing)?)
            }
        };
        let key = if inside.is_some() { first_key(xid) } else { key };
        let bytes = value.as_deref().or(inside).unwrap_or_default();
        let text = std::str::from_utf8(bytes);
        text.map(Text::from).map_err(|error| damaged(xid, FAMILIES_TREE, &key, error))
    };
    let mut family = Family::default();
    family.floor = first.floor;
    if first.has_request {
        family.request = Some(text(request_key(xid), first.request)?);
    }
    if let Some((winner, result)) = first.winner {
        family.decided = Some((winner, text(result_key(xid), result)?));
    }
    family.aborted = first.aborted.into_iter().collect();
    Ok(Some((family, csn)))
}

/// The first row; texts that it does not hold are `None`.
struct First<'a> {
    floor: i64,
    has_request: bool,
    request: Option<&'a [u8]>,
    winner: Option<(Instance, Option<&'a [u8]>)>,
    aborted: Vec<Instance>,
}

impl First<'_> {
    fn decode(bytes: &[u8]) -> Result<First<'_>, String> {
        let mut input = Input::of(bytes);
        let version = input.byte()?;
        if !(FAMILY_VERSION_BEFORE..=FAMILY_VERSION).contains(&version) {
            return Err(format!("the unknown version {version}"));
        }
        let instance = |number: u64| {
            let number = i64::try_from(number).map_err(|_| "an instance out of range".to_owned())?;
            Instance::new(number).map_err(|refusal| refusal.to_string())
        };
        let winner = input.varint()?;
        let floor = i64::try_from(input.varint()?).map_err(|_| "a floor out of range")?;
        let has_request = version == FAMILY_VERSION_BEFORE || input.byte()? != 0;
        let request = input.optional()?;
        let winner = match winner {
            0 => None,
            number => Some((instance(number)?, input.optional()?)),
        };
        let aborted = input.list(|input| instance(input.varint()?))?;
        input.end()?;
        Ok(First { floor, has_request, request, winner, aborted })
    }
}

/// Whether a family is forgotten.
pub(super) fn is_collected(xid: &Xid, get: Get<'_>) -> Result<bool, Error> {
    let Some(value) = get(COLLECTED_TREE, &collected_key(xid))?.1 else { return Ok(false) };
    match xid.numbered() {
        Some((_, number)) => {
            let damaged = |what| damaged(xid, COLLECTED_TREE, &collected_key(xid), what);
            Ok(decode_collected(&value).map_err(damaged)?.contains(number))
        }
        None => Ok(true),
    }
}

/// The keys of a tree from one key on and before another, deleted ones perhaps among them; `None`
/// if there are too many to look at.
pub(super) type Keys<'a> = &'a dyn Fn(TreeId, &[u8], &[u8]) -> Result<Option<Vec<SmallKey>>, Error>;

/// At least the highest number of the client's families that are stored or forgotten; `u64::MAX` if
/// that would take long.
pub(super) fn highest(client: &str, get: Get<'_>, keys: Keys<'_>) -> Result<u64, Error> {
    let (from, to) = (format!("{client}/"), format!("{client}0"));
    let Some(stored) = keys(FAMILIES_TREE, from.as_bytes(), to.as_bytes())? else { return Ok(u64::MAX) };
    let number = |key: &SmallKey| {
        let xid = key.split(|byte| *byte == 0).next()?;
        let xid = Xid::new(std::str::from_utf8(xid).ok()?).ok()?;
        xid.numbered().filter(|(of, _)| *of == client).map(|(_, number)| number)
    };
    let stored = stored.iter().filter_map(number).max().unwrap_or(0);
    let Some(forgotten) = get(COLLECTED_TREE, &client_key(client))?.1 else { return Ok(stored) };
    let damaged = |what| {
        let what = format!("what client {client} has forgotten: {what}");
        Error::undecodable_row(COLLECTED_TREE, &client_key(client), what)
    };
    Ok(stored.max(decode_collected(&forgotten).map_err(damaged)?.highest()))
}

/// The row that remembers, when a family is forgotten, that it was.
pub(super) fn collect(xid: &Xid, get: Get<'_>) -> Result<OwnRow, Error> {
    let key = collected_key(xid);
    let Some((_, number)) = xid.numbered() else { return Ok((COLLECTED_TREE, key, Some(Value::new()))) };
    let mut collected = match get(COLLECTED_TREE, &key)?.1 {
        Some(value) => decode_collected(&value).map_err(|what| damaged(xid, COLLECTED_TREE, &key, what))?,
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
                let instance = Instance::new(1 + random.below(9) as i64).expect("positive");
                let owner = instance.get() as u64;
                let result = long("result", random.below(4));
                match random.below(9) {
                    0..=2 => drop(family.begin(instance, owner)),
                    3 => {
                        let request = long("request", seed);
                        drop(family.prepare(instance, owner, &request, &result, Limits::default()));
                    }
                    4 if family.rollback(instance).is_ok_and(|e| e.log.is_some()) => {
                        apply(&store, rows(&xid, &family));
                    }
                    6 => drop(family.abandon(instance, owner)),
                    7 if family.settle().is_some() => apply(&store, rows(&xid, &family)),
                    8 if random.below(3) == 0 && family.refuse(instance).log.is_some() => {
                        apply(&store, rows(&xid, &family));
                    }
                    5 if random.below(4) == 0 && family.commit(instance).is_ok() => {
                        apply(&store, rows(&xid, &family));
                    }
                    _ => {}
                }
                let mut crashed = family.clone();
                crashed.crash();
                let mut loaded = load(&xid, &get).expect("it loads").map_or_else(Family::default, |l| l.0);
                let prepared: Vec<(Instance, &Text)> = family.prepared().collect();
                let turn = random.below(prepared.len() as u64 + 1) as usize;
                for (instance, result) in prepared[turn..].iter().chain(&prepared[..turn]) {
                    loaded.restore(*instance, family.request().expect("one is prepared"), result);
                }
                assert_eq!(loaded, crashed, "seed {seed}");
                assert!(load(&neighbour, &get).expect("it loads").is_none());
            }
            let gone = |(tree, key, _): OwnRow| (tree, key, None);
            apply(&store, rows(&xid, &family).into_iter().map(gone).collect());
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
    fn the_highest_number_of_a_client_is_found_among_its_neighbours() {
        let store = Store::default();
        let get =
            |tree: TreeId, key: &[u8]| Ok((1, store.borrow().get(&(tree, SmallKey::new(key))).cloned()));
        let keys = |tree: TreeId, from: &[u8], to: &[u8]| {
            let range = (tree, SmallKey::new(from))..(tree, SmallKey::new(to));
            let keys: Vec<SmallKey> = store.borrow().range(range).map(|((_, key), _)| key.clone()).collect();
            Ok((keys.len() <= 4).then_some(keys))
        };
        let xid = |text: &str| Xid::new(text).expect("an XID");
        let mut family = Family::default();
        let (instance, text) = (Instance::new(1).expect("positive"), Text::from("r"));
        drop(family.begin(instance, 1));
        drop(family.prepare(instance, 1, &text, &text, Limits::default()));
        drop(family.commit(instance));
        let highest = || highest("c", &get, &keys).expect("it reads");
        assert_eq!(highest(), 0);
        // Others' numbers do not count, whatever their names begin with.
        for (text, expected) in
            [("c/9", 9), ("c/10", 10), ("c/d/77", 10), ("c0/88", 10), ("b/99", 10), ("c", 10)]
        {
            apply(&store, rows(&xid(text), &family));
            assert_eq!(highest(), expected, "{text}");
        }
        apply(&store, vec![collect(&xid("c/12"), &get).expect("it reads")]);
        assert_eq!(highest(), 12);
        apply(&store, [rows(&xid("c/11"), &family), rows(&xid("c/13"), &family)].concat());
        assert_eq!(highest(), u64::MAX, "too many");
    }

    #[test]
    fn damage_is_noticed() {
        let mut family = Family::default();
        let (instance, text) = (Instance::new(3).expect("positive"), Text::from("r"));
        drop(family.begin(instance, 1));
        drop(family.prepare(instance, 1, &text, &text, Limits::default()));
        let (.., first) = rows(&Xid::new("x").expect("an XID"), &family).remove(0);
        let first = first.expect("it is written");
        assert!(First::decode(&first).is_ok());
        for end in 0..first.len() {
            assert!(First::decode(&first[..end]).is_err());
        }
    }
}
