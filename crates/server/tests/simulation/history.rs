//! What clients did and were told, and whether one serial order of one copy explains it, or, at
//! REPEATABLE READ, one moment of it what each of them has read.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What became of a transaction, as far as its client was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Committed,
    Refused,
    Unknown,
}

/// A transaction: its number is the value that it writes, and the name of its request.
#[derive(Debug, Clone)]
pub(crate) struct Deed {
    pub(crate) id: usize,
    /// Attempts of one name commit once at most, but for those that only read: they leave it.
    pub(crate) name: String,
    /// Keys, and who wrote what was read; `None`: nobody.
    pub(crate) read: Vec<(usize, Option<usize>)>,
    pub(crate) wrote: Vec<usize>,
    pub(crate) told: Told,
    /// It was prepared, and is to be decided so.
    pub(crate) decision: Option<bool>,
    /// As the engine calls it.
    pub(crate) transaction: u64,
    pub(crate) protocol: &'static str,
}

/// Everything that was tried.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) deeds: Vec<Deed>,
}

impl History {
    /// Looks at it, with what every node says of the keys at the end (each value is its writer) and
    /// of the outcomes: position and verdict by the transaction's number.
    pub(crate) fn check(
        &self,
        finally: &BTreeMap<usize, usize>,
        outcomes: &HashMap<usize, (u64, bool)>,
        is_of_snapshots: bool,
    ) {
        let committed = |id: usize| outcomes.get(&id).filter(|(_, committed)| *committed).map(|(at, _)| *at);
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for deed in &self.deeds {
            let position = committed(deed.id);
            match deed.told {
                // It was in no one's way, and nobody else knows of it.
                Told::Committed if deed.wrote.is_empty() && position.is_none() => {}
                Told::Committed => assert!(position.is_some(), "acknowledged and lost: {deed:?}"),
                Told::Refused => assert!(position.is_none(), "refused and there: {deed:?}"),
                Told::Unknown => {}
            }
            if position.is_some() && !deed.wrote.is_empty() {
                let other = names.insert(&deed.name, deed.id);
                assert!(other.is_none(), "two of one name have committed: {other:?} and {deed:?}");
            }
        }
        let is_reader = |deed: &Deed| deed.told == Told::Committed && deed.wrote.is_empty();
        let place = |deed: &Deed| committed(deed.id).or(is_reader(deed).then_some(0));
        let done: Vec<(&Deed, u64)> =
            self.deeds.iter().filter_map(|deed| Some((deed, place(deed)?))).collect();
        let mut versions: BTreeMap<usize, Vec<(u64, usize)>> = BTreeMap::new();
        for (deed, position) in &done {
            for key in &deed.wrote {
                versions.entry(*key).or_default().push((*position, deed.id));
            }
        }
        versions.values_mut().for_each(|list| list.sort_unstable());
        let last: BTreeMap<usize, usize> =
            versions.iter().filter_map(|(key, list)| Some((*key, list.last()?.1))).collect();
        assert_eq!(&last, finally, "the last writers are who is seen");
        match is_of_snapshots {
            true => done.iter().for_each(|(deed, position)| of_one_moment(deed, *position, &versions)),
            false => acyclic(&done, &versions),
        }
    }
}

/// Looks whether somebody has read what there was at one position, below the own one, and whether
/// nobody has changed since then what it has changed. Who has no place has 0, and has written
/// nothing.
fn of_one_moment(deed: &Deed, position: u64, versions: &BTreeMap<usize, Vec<(u64, usize)>>) {
    let (mut from, mut below) = (0, if position == 0 { u64::MAX } else { position });
    for (key, writer) in &deed.read {
        let list = versions.get(key).map_or(&[][..], |list| list);
        let place = writer.map(|writer| {
            let place = list.iter().position(|(_, id)| *id == writer);
            place.unwrap_or_else(|| panic!("{deed:?} has read what {writer} wrote, which never committed"))
        });
        from = from.max(place.map_or(0, |place| list[place].0));
        let next = list.get(place.map_or(0, |place| place + 1));
        below = below.min(next.map_or(u64::MAX, |(next, _)| *next));
    }
    for key in &deed.wrote {
        let before = versions[key].iter().rev().find(|(other, _)| *other < position);
        from = from.max(before.map_or(0, |(other, _)| *other));
    }
    assert!(from < below, "it has looked from {from} on and below {below}: {position}: {deed:?}");
}

/// Edges by the definition, from versions: whoever wrote before whoever read or replaced it.
fn acyclic(done: &[(&Deed, u64)], versions: &BTreeMap<usize, Vec<(u64, usize)>>) {
    let mut edges: HashMap<usize, Vec<usize>> = HashMap::new();
    for list in versions.values() {
        list.windows(2).for_each(|pair| edges.entry(pair[0].1).or_default().push(pair[1].1));
    }
    for (deed, _) in done {
        for (key, writer) in &deed.read {
            let list = versions.get(key).map_or(&[][..], |list| list);
            let place = writer.map(|writer| {
                let place = list.iter().position(|(_, id)| *id == writer);
                place
                    .unwrap_or_else(|| panic!("{deed:?} has read what {writer} wrote, which never committed"))
            });
            if let Some(writer) = writer {
                edges.entry(*writer).or_default().push(deed.id);
            }
            let after = place.map_or(0, |place| place + 1);
            if let Some((_, next)) = list.get(after).filter(|(_, next)| *next != deed.id) {
                edges.entry(deed.id).or_default().push(*next);
            }
        }
    }
    // Taken away one by one, as long as somebody has no edge into it.
    let mut left: Vec<usize> = done.iter().map(|(deed, _)| deed.id).collect();
    while !left.is_empty() {
        let into: BTreeSet<usize> =
            left.iter().flat_map(|id| edges.get(id).into_iter().flatten().copied()).collect();
        let before = left.len();
        left.retain(|id| into.contains(id));
        if left.len() == before {
            let cycle = one_cycle(left[0], &edges, &left);
            let of = |id: &usize| done.iter().find(|(deed, _)| deed.id == *id);
            let cycle: Vec<String> =
                cycle.iter().filter_map(of).map(|(deed, at)| format!("{at}: {deed:?}")).collect();
            panic!("a cycle:\n{}", cycle.join("\n"));
        }
    }
}

/// Follows edges among those that are in cycles, until it comes back.
fn one_cycle(first: usize, edges: &HashMap<usize, Vec<usize>>, left: &[usize]) -> Vec<usize> {
    // Backwards, since everybody left has somebody before them.
    let before = |id: usize| {
        let leads = |from: &&usize| edges.get(from).is_some_and(|to| to.contains(&id));
        *left.iter().find(leads).expect("somebody is before everybody left")
    };
    let mut path = vec![first];
    loop {
        let next = before(path[path.len() - 1]);
        if let Some(at) = path.iter().position(|id| *id == next) {
            path.drain(..at);
            path.reverse();
            return path;
        }
        path.push(next);
    }
}
