//! Why a transaction was aborted: the cycle that its commit would have closed.

use std::ops::Bound;

use super::node::{Node, RangeWrite};
use super::ranges::minds;
use crate::key::SmallKey;
use crate::txn::change::Effects;
use crate::txn::readset::{Moment, ReadSet, compare_lower_upper};
use crate::txn::writeset::KeyWrite;
use crate::{Csn, Key, TransactionId, TreeId};

/// How one transaction must precede another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dependency {
    /// The second read what the first wrote.
    WriteRead,
    /// The second overwrote what the first wrote.
    WriteWrite,
    /// The second replaced what the first read.
    ReadWrite,
    /// The first had committed before the second began.
    RealTime,
}

impl Dependency {
    /// The field's short name: `wr`, `ww`, `rw`, or `real time`.
    pub fn short_name(self) -> &'static str {
        match self {
            Dependency::WriteRead => "wr",
            Dependency::WriteWrite => "ww",
            Dependency::ReadWrite => "rw",
            Dependency::RealTime => "real time",
        }
    }
}

/// Where two transactions met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// One key of a tree.
    Key(TreeId, Key),
    /// A range of a tree, of which both know some key.
    Range(TreeId, Bound<Key>, Bound<Key>),
}

impl Object {
    /// Its tree.
    pub fn tree(&self) -> TreeId {
        match self {
            Object::Key(tree, _) | Object::Range(tree, ..) => *tree,
        }
    }
}

/// One step of a cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Who comes first; 0 stands for transactions that were summarized to bound memory.
    pub from: TransactionId,
    /// Who comes later.
    pub to: TransactionId,
    /// Why.
    pub dependency: Dependency,
    /// Over what. Real time needs nothing.
    pub object: Option<Object>,
}

/// The cycle that a commit would have closed, or (with dangerous structures) the pair of edges that
/// might have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// The transaction that was aborted.
    pub victim: TransactionId,
    /// The steps, each from where the one before ended; the first begins with the victim.
    pub edges: Vec<Edge>,
    /// Some step goes through transactions that were summarized, or over reads that were joined:
    /// the abort may have been needless.
    pub is_summarized: bool,
    /// Some transaction in it is prepared and undecided: until it is decided, the same would happen
    /// again.
    pub in_doubt: Option<TransactionId>,
}

/// What a transaction did, for naming its edges.
#[derive(Clone, Copy)]
pub(super) struct Deeds<'a> {
    pub(super) id: TransactionId,
    pub(super) start: Csn,
    pub(super) began: Csn,
    /// `Csn::MAX` for the candidate.
    pub(super) commit: Csn,
    pub(super) ended: Csn,
    pub(super) reads: Option<&'a ReadSet>,
    pub(super) writes: &'a [KeyWrite],
    pub(super) effects: &'a Effects,
    pub(super) range_writes: &'a [RangeWrite],
}

impl<'a> From<&'a Node> for Deeds<'a> {
    fn from(node: &'a Node) -> Deeds<'a> {
        Deeds {
            id: node.id,
            start: node.start,
            began: node.began(),
            commit: node.commit,
            ended: node.ended(),
            reads: Some(&node.reads),
            writes: &node.writes,
            effects: &node.effects,
            range_writes: node.range_writes(),
        }
    }
}

/// Names the edge between two neighbours of a cycle: by what they did, or else, with `strict`, by
/// real time.
pub(super) fn edge(from: Deeds<'_>, to: Deeds<'_>, strict: bool) -> Edge {
    let found = |dependency, object| Edge { from: from.id, to: to.id, dependency, object: Some(object) };
    if let Some(object) = read_and_written(from, to, false) {
        return found(Dependency::ReadWrite, object);
    }
    if let Some(object) = read_and_written(to, from, true) {
        return found(Dependency::WriteRead, object);
    }
    let both = from.writes.iter().find(|write| to.writes.iter().any(|other| other.2 == write.2));
    let object = both.map(|(tree, key, ..)| Object::Key(*tree, Key::copy_from_slice(key)));
    let dependency = match object.is_none() && strict && from.ended <= to.began {
        true => Dependency::RealTime,
        false => Dependency::WriteWrite,
    };
    Edge { from: from.id, to: to.id, dependency, object }
}

/// What `reader` read and `writer` wrote: before the reader's snapshot (`seen`), or after it so
/// that the reader would see a difference.
fn read_and_written(reader: Deeds<'_>, writer: Deeds<'_>, seen: bool) -> Option<Object> {
    let reads = reader.reads?;
    let fits = |moment: Moment, commit: Csn| match seen {
        true => commit <= reader.start || (moment == Moment::Latest && commit < reader.commit),
        false => commit > reader.start && (moment == Moment::Snapshot || commit > reader.commit),
    };
    let effect = |write: &KeyWrite| writer.effects.at(write.3);
    for point in reads.points() {
        let key = || Object::Key(point.tree, Key::copy_from_slice(reads.key(point)));
        let sees = |write: &KeyWrite| seen || effect(write).columns().meet(reads.columns(point));
        if fits(point.moment(), writer.commit)
            && writer.writes.iter().any(|write| write.2 == point.hash && sees(write))
        {
            return Some(key());
        }
        let bound = Bound::Included(SmallKey::new(reads.key(point)));
        if range_written(writer, point.tree, &bound, &bound, &|commit| fits(point.moment(), commit)) {
            return Some(key());
        }
    }
    for range in reads.ranges() {
        let inside = |tree: TreeId, key: &SmallKey| {
            let bound = Bound::Included(key.clone());
            tree == range.tree
                && compare_lower_upper(&range.lower, &bound).is_lt()
                && compare_lower_upper(&bound, &range.upper).is_lt()
        };
        let sees = |write: &KeyWrite| seen || minds(range.interest.as_deref(), effect(write));
        if fits(range.moment, writer.commit)
            && let Some((tree, key, ..)) =
                writer.writes.iter().find(|write| inside(write.0, &write.1) && sees(write))
        {
            return Some(Object::Key(*tree, Key::copy_from_slice(key)));
        }
        if range_written(writer, range.tree, &range.lower, &range.upper, &|commit| fits(range.moment, commit))
        {
            let key = |bound: &Bound<SmallKey>| bound.as_ref().map(|key| Key::copy_from_slice(key));
            return Some(Object::Range(range.tree, key(&range.lower), key(&range.upper)));
        }
    }
    None
}

fn range_written(
    writer: Deeds<'_>,
    tree: TreeId,
    lower: &Bound<SmallKey>,
    upper: &Bound<SmallKey>,
    fits: &dyn Fn(Csn) -> bool,
) -> bool {
    writer.range_writes.iter().any(|write| {
        write.tree == tree
            && (fits(write.first) || fits(write.last))
            && compare_lower_upper(lower, &write.upper).is_lt()
            && compare_lower_upper(&write.lower, upper).is_lt()
    })
}
