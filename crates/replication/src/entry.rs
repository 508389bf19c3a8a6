//! What the order is made of: entries, of which each holds any number of requests.
//!
//! ```text
//! index       0          1        2            3        4
//! entry       members    blank    [a b]        []       [c]
//! position                        1 2                   3
//! ```
//!
//! An *index* counts entries; the consensus library speaks of them. A *position* counts requests,
//! from 1; the application speaks of them. Blank entries (a leader's first) and changes of the
//! membership have an index and no position.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;

use crate::codec::{Coded, Malformed, Reader, coded_fields};

/// Number of a node, as `--peers` gives it.
pub type NodeNumber = u64;

/// Place of a request in the order, from 1. 0 is before everything.
pub type Position = u64;

/// Which cluster: 16 random bytes, drawn at its first start.
pub type ClusterId = [u8; 16];

/// One leadership: a term, and who led in it. Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Leadership {
    /// The term.
    pub term: u64,
    /// The leader.
    pub node: NodeNumber,
}

/// What tells an entry from every other one, also from one that took its index later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Who put it into the order.
    pub leadership: Leadership,
    /// Its index.
    pub index: u64,
}

/// The vote that a node has given last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ballot {
    /// For whom, and which term.
    pub leadership: Leadership,
    /// Whether a majority gave theirs, too.
    pub is_elected: bool,
}

/// Who belongs to the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// The sets of voters, each of which needs a majority: one, or two while it changes.
    pub voters: Vec<BTreeSet<NodeNumber>>,
    /// All nodes; those that do not vote are learners.
    pub nodes: BTreeSet<NodeNumber>,
}

impl Members {
    /// Whether `node` votes.
    pub fn is_voter(&self, node: NodeNumber) -> bool {
        self.voters.iter().any(|set| set.contains(&node))
    }
}

/// Members, and the entry that made them so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MembersAt {
    /// The entry; none before the first.
    pub at: Option<EntryId>,
    /// The members since then.
    pub members: Members,
}

/// Where a log begins, or a snapshot stands: everything up to here is not in the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Base {
    /// The last entry that is not in the log.
    pub id: Option<EntryId>,
    /// The position of the last request up to and with it.
    pub position: Position,
    /// The members as of it.
    pub members: MembersAt,
}

impl Base {
    /// The index of the first entry after it.
    pub fn next_index(&self) -> u64 {
        self.id.map_or(0, |id| id.index + 1)
    }
}

/// Requests that are one entry.
#[derive(Clone, PartialEq, Eq)]
pub struct Requests {
    count: u32,
    /// Each request, its length (4 bytes) before it.
    packed: Bytes,
}

impl Requests {
    /// Bytes that a request takes beside its own.
    pub const OVERHEAD: usize = 4;

    /// Packs requests, in their order.
    pub fn pack<'a>(requests: impl IntoIterator<Item = &'a Bytes>) -> Requests {
        let (mut count, mut packed) = (0, Vec::new());
        for request in requests {
            count += 1;
            request.put(&mut packed);
        }
        Requests { count, packed: Bytes::from(packed) }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        u64::from(self.count)
    }

    /// Bytes that they take, packed.
    pub fn bytes(&self) -> usize {
        self.packed.len()
    }

    /// The packed bytes.
    pub(crate) fn packed(&self) -> &Bytes {
        &self.packed
    }

    /// Takes back what was packed, after it was looked at once.
    pub(crate) fn unpack(packed: Bytes) -> Result<Requests, Malformed> {
        let mut reader = Reader::new(packed.clone());
        let mut count: u32 = 0;
        while reader.left() > 0 {
            Bytes::get(&mut reader)?;
            count = count.checked_add(1).ok_or(Malformed("too many requests"))?;
        }
        Ok(Requests { count, packed })
    }

    /// The requests, sharing the memory of the whole.
    pub fn iter(&self) -> impl Iterator<Item = Bytes> + use<> {
        let mut reader = Reader::new(self.packed.clone());
        // They were looked at when they were packed or unpacked.
        std::iter::from_fn(move || Bytes::get(&mut reader).ok())
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests of {} bytes", self.count, self.packed.len())
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What an entry holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Nothing: a leader's first entry.
    Blank,
    /// Requests.
    Requests(Requests),
    /// A change of the membership.
    Members(Members),
}

impl Content {
    /// How many positions it takes.
    pub fn count(&self) -> u64 {
        match self {
            Content::Requests(requests) => requests.count(),
            Content::Blank | Content::Members(_) => 0,
        }
    }
}

/// An entry of the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which it is.
    pub id: EntryId,
    /// What it holds.
    pub content: Content,
}

coded_fields!(Leadership { term, node });
coded_fields!(EntryId { leadership, index });
coded_fields!(Ballot { leadership, is_elected });
coded_fields!(Members { voters, nodes });
coded_fields!(MembersAt { at, members });
coded_fields!(Base { id, position, members });
coded_fields!(Entry { id, content });

impl Coded for Content {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Content::Blank => out.push(0),
            Content::Requests(requests) => {
                out.push(1);
                requests.packed.put(out);
            }
            Content::Members(members) => {
                out.push(2);
                members.put(out);
            }
        }
    }

    fn get(from: &mut Reader) -> Result<Content, Malformed> {
        match u8::get(from)? {
            0 => Ok(Content::Blank),
            1 => Bytes::get(from).and_then(Requests::unpack).map(Content::Requests),
            2 => Members::get(from).map(Content::Members),
            _ => Err(Malformed("an entry of no known kind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_out_as_they_went_in() {
        let all = [Bytes::from_static(b"a"), Bytes::new(), Bytes::from_static(b"ccc")];
        let requests = Requests::pack(&all);
        assert_eq!(requests.count(), 3);
        assert_eq!(requests.iter().collect::<Vec<_>>(), all);
        let id = EntryId { leadership: Leadership { term: 3, node: 2 }, index: 9 };
        let entry = Entry { id, content: Content::Requests(requests) };
        assert_eq!(Entry::decode(Bytes::from(entry.encode())).unwrap(), entry);
    }

    #[test]
    fn later_leaderships_are_greater_and_their_entries_too() {
        let id = |term, node, index| EntryId { leadership: Leadership { term, node }, index };
        assert!(id(1, 3, 9) < id(2, 1, 0) && id(2, 1, 5) < id(2, 2, 0) && id(2, 2, 0) < id(2, 2, 1));
    }
}
