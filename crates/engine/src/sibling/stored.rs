//! A family as rows of the engine's own trees: the MIP-Table on disk (paper §3.3).
//!
//! ```text
//! families:   XID 00              version 4, winner or 0, floor, 1 if there is a request, request, winner's result if there is one, aborted instances
//!             XID 00 01           the request, if it is not in the first row
//!             XID 00 02           the winner's result, if it is not in the first row
//! collected:  'c' client          version, high-water mark, ranges above it: count, then first and last of each
//!             'x' XID             nothing: an XID without a client's number is forgotten, or one that had no room in its client's record
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
//!
//! A client's record is written anew with each request that is forgotten. It has at most
//! [`RANGES_MAX`] ranges, which is more than a client leaves that counts its requests; of one that
//! takes numbers as they come, what would be one more range is a row of its own, and from the first
//! of these on the record says that there are such (version 2). A row that has become a neighbour
//! of a range goes into it: else what comes behind one slow request of a client whose record is
//! full would be rows for ever.

use super::{Collected, Family, Instance, Text, Xid};
use crate::key::SmallKey;
use crate::own::{COLLECTED_TREE, FAMILIES_TREE, OwnRow};
use crate::payload::{Encoder, Input};
use crate::{Csn, Error, TreeId, Value};

const FAMILY_VERSION: u8 = 4;
/// Had a request always, and did not say so.
const FAMILY_VERSION_BEFORE: u8 = 3;
const COLLECTED_VERSION: u8 = 1;
/// Not all that the client has forgotten is in its record.
const COLLECTED_VERSION_WITH_OTHERS: u8 = 2;
/// Most ranges of a client's record; more, if a build had no such limit.
const RANGES_MAX: usize = 256;
/// Most rows that go into a record around one number at a time.
const ABSORBED_MAX: usize = 256;

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

fn alone_key(xid: &Xid) -> SmallKey {
    SmallKey::concat(&[b"x", xid.as_str().as_bytes()])
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

/// What a client has forgotten, as its record has it.
#[derive(Default)]
struct Forgotten {
    collected: Collected,
    /// Besides, some are rows of their own.
    has_others: bool,
}

/// Whether a family is forgotten.
pub(super) fn is_collected(xid: &Xid, get: Get<'_>) -> Result<bool, Error> {
    let is_alone = || get(COLLECTED_TREE, &alone_key(xid)).map(|(_, value)| value.is_some());
    let Some((client, number)) = xid.numbered() else { return is_alone() };
    let key = client_key(client);
    let Some(value) = get(COLLECTED_TREE, &key)?.1 else { return Ok(false) };
    let forgotten = decode_collected(&value).map_err(|what| damaged(xid, COLLECTED_TREE, &key, what))?;
    Ok(forgotten.collected.contains(number) || (forgotten.has_others && is_alone()?))
}

/// The keys of a tree from one key on and before another, deleted ones perhaps among them; `None`
/// if there are too many to look at.
pub(super) type Keys<'a> = &'a dyn Fn(TreeId, &[u8], &[u8]) -> Result<Option<Vec<SmallKey>>, Error>;

/// At least the highest number of the client's families that are stored or forgotten; `u64::MAX` if
/// that would take long.
pub(super) fn highest(client: &str, get: Get<'_>, keys: Keys<'_>) -> Result<u64, Error> {
    let (from, to) = (format!("{client}/"), format!("{client}0"));
    let Some(stored) = keys(FAMILIES_TREE, from.as_bytes(), to.as_bytes())? else { return Ok(u64::MAX) };
    let stored = highest_of(client, &stored, 0);
    let Some(value) = get(COLLECTED_TREE, &client_key(client))?.1 else { return Ok(stored) };
    let damaged = |what| {
        let what = format!("what client {client} has forgotten: {what}");
        Error::undecodable_row(COLLECTED_TREE, &client_key(client), what)
    };
    let forgotten = decode_collected(&value).map_err(damaged)?;
    let highest = stored.max(forgotten.collected.highest());
    if !forgotten.has_others {
        return Ok(highest);
    }
    let (from, to) = (format!("x{from}"), format!("x{to}"));
    let others = keys(COLLECTED_TREE, from.as_bytes(), to.as_bytes())?;
    Ok(others.map_or(u64::MAX, |others| highest.max(highest_of(client, &others, 1))))
}

/// The highest number of the client's among keys that have an XID, behind so many bytes.
fn highest_of(client: &str, keys: &[SmallKey], behind: usize) -> u64 {
    let number = |key: &SmallKey| {
        let xid = key.get(behind..)?.split(|byte| *byte == 0).next()?;
        let xid = Xid::new(std::str::from_utf8(xid).ok()?).ok()?;
        xid.numbered().filter(|(of, _)| *of == client).map(|(_, number)| number)
    };
    keys.iter().filter_map(number).max().unwrap_or(0)
}

/// The rows that remember, when a family is forgotten, that it was.
pub(super) fn collect(xid: &Xid, get: Get<'_>) -> Result<Vec<OwnRow>, Error> {
    let alone = (COLLECTED_TREE, alone_key(xid), Some(Value::new()));
    let Some((client, number)) = xid.numbered() else { return Ok(vec![alone]) };
    let key = client_key(client);
    let mut forgotten = match get(COLLECTED_TREE, &key)?.1 {
        Some(value) => decode_collected(&value).map_err(|what| damaged(xid, COLLECTED_TREE, &key, what))?,
        None => Forgotten::default(),
    };
    let mut rows = Vec::new();
    if forgotten.has_others {
        // Where there was too much for one time.
        let highest = forgotten.collected.highest();
        rows = absorb(client, highest, &mut forgotten.collected, get)?;
    }
    let has_room = forgotten.collected.ranges().count() < RANGES_MAX || forgotten.collected.extends(number);
    let is_changed = has_room || !forgotten.has_others || !rows.is_empty();
    if has_room {
        forgotten.collected.insert(number);
        if forgotten.has_others {
            rows.extend(absorb(client, number, &mut forgotten.collected, get)?);
        }
    } else {
        forgotten.has_others = true;
        rows.push(alone);
    }
    if is_changed {
        rows.push((COLLECTED_TREE, key, Some(encode_collected(&forgotten))));
    }
    Ok(rows)
}

/// Takes numbers that are rows of their own into the range around `number`, as long as they are
/// next to it; the answer deletes these rows. It makes no range more.
fn absorb(client: &str, number: u64, collected: &mut Collected, get: Get<'_>) -> Result<Vec<OwnRow>, Error> {
    let mut rows = Vec::new();
    for is_above in [true, false] {
        while rows.len() < ABSORBED_MAX {
            let (first, last) = collected.around(number);
            let next = if is_above { last.checked_add(1) } else { first.checked_sub(1) };
            let Some(xid) = next.and_then(|next| Xid::new(format!("{client}/{next}")).ok()) else { break };
            // 0 is no number of a request, but an XID like any other.
            let Some((_, next)) = xid.numbered() else { break };
            let key = alone_key(&xid);
            if get(COLLECTED_TREE, &key)?.1.is_none() {
                break;
            }
            collected.insert(next);
            rows.push((COLLECTED_TREE, key, None));
        }
    }
    Ok(rows)
}

fn encode_collected(forgotten: &Forgotten) -> Value {
    let mut out = Encoder::with_capacity(32);
    out.byte(if forgotten.has_others { COLLECTED_VERSION_WITH_OTHERS } else { COLLECTED_VERSION });
    out.varint(forgotten.collected.upto());
    let ranges: Vec<(u64, u64)> = forgotten.collected.ranges().collect();
    out.list(&ranges, |out, (first, last)| {
        out.varint(*first);
        out.varint(*last);
    });
    out.finish().into()
}

fn decode_collected(bytes: &[u8]) -> Result<Forgotten, String> {
    let mut input = Input::of(bytes);
    let version = input.byte()?;
    if !(COLLECTED_VERSION..=COLLECTED_VERSION_WITH_OTHERS).contains(&version) {
        return Err(format!("the unknown version {version}"));
    }
    let upto = input.varint()?;
    let ranges = input.list(|input| Ok((input.varint()?, input.varint()?)))?;
    input.end()?;
    let has_others = version == COLLECTED_VERSION_WITH_OTHERS;
    Ok(Forgotten { collected: Collected::of(upto, ranges), has_others })
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
            apply(&store, collect(&xid(text), &get).expect("it reads"));
        }
        for (text, is) in [("c/1", true), ("c/2", true), ("c/3", false), ("c/5", true), ("c/x", true)] {
            assert_eq!(is_collected(&xid(text), &get).expect("it reads"), is, "{text}");
        }
        assert_eq!(store.borrow().len(), 3, "one for the client, one for each other XID");
    }

    /// Every tenth number only: the record is bounded, and nothing is executed again.
    #[test]
    fn a_client_whose_numbers_have_gaps_has_a_small_record() {
        let store = Store::default();
        let get =
            |tree: TreeId, key: &[u8]| Ok((1, store.borrow().get(&(tree, SmallKey::new(key))).cloned()));
        let keys = |tree: TreeId, from: &[u8], to: &[u8]| {
            let range = (tree, SmallKey::new(from))..(tree, SmallKey::new(to));
            let keys: Vec<SmallKey> = store.borrow().range(range).map(|((_, key), _)| key.clone()).collect();
            Ok(Some(keys))
        };
        let xid = |number: u64| Xid::new(format!("c/{number}")).expect("an XID");
        let forget = |number: u64| apply(&store, collect(&xid(number), &get).expect("it reads"));
        let is = |number: u64| is_collected(&xid(number), &get).expect("it reads");
        (10..=30_000).step_by(10).for_each(forget);
        let record = store.borrow().get(&(COLLECTED_TREE, client_key("c"))).map(|record| record.len());
        assert!(record.is_some_and(|bytes| bytes < 8 * RANGES_MAX), "{record:?}");
        for number in 1..=6000 {
            assert_eq!(is(number), number % 10 == 0, "{number}");
        }
        assert!(is(30_000) && !is(30_001));
        assert_eq!(highest("c", &get, &keys).expect("it reads"), 30_000);
        // There is room again; what went by itself stays so, as it has no neighbours.
        (1..=9).chain(11..=19).for_each(forget);
        forget(40_000);
        assert!(is(15) && !is(21) && is(2560) && is(2570) && is(30_000) && is(40_000));
        assert!(!store.borrow().contains_key(&(COLLECTED_TREE, alone_key(&xid(40_000)))));
        assert_eq!(highest("c", &get, &keys).expect("it reads"), 40_000);
    }

    /// The record is full, of requests that were given up between others; then one takes long.
    #[test]
    fn what_went_by_itself_goes_to_its_neighbours() {
        let store = Store::default();
        let get =
            |tree: TreeId, key: &[u8]| Ok((1, store.borrow().get(&(tree, SmallKey::new(key))).cloned()));
        let xid = |number: u64| Xid::new(format!("c/{number}")).expect("an XID");
        let forget = |number: u64| apply(&store, collect(&xid(number), &get).expect("it reads"));
        // An XID that is no number of the client's, and stays what it is.
        forget(0);
        let given_up_upto = 2 * RANGES_MAX as u64;
        let (slow, last) = (given_up_upto + 1, given_up_upto + 1 + 2 * ABSORBED_MAX as u64);
        (2..=given_up_upto).step_by(2).for_each(forget);
        assert_eq!(store.borrow().len(), 2);
        (slow + 1..=last).for_each(forget);
        assert_eq!(store.borrow().len(), 2 + 2 * ABSORBED_MAX, "no room");
        forget(slow);
        assert_eq!(store.borrow().len(), 2 + ABSORBED_MAX, "a part at a time");
        forget(last + 1);
        assert_eq!(store.borrow().len(), 2);
        for number in 0..=last + 2 {
            let is = number <= last + 1 && (number >= slow || number % 2 == 0);
            assert_eq!(is_collected(&xid(number), &get).expect("it reads"), is, "{number}");
        }
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
        apply(&store, collect(&xid("c/12"), &get).expect("it reads"));
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
