//! What the order writes into the engine's log, a record each.
//!
//! ```text
//! 1 entry      which, kind, what it holds
//! 2 ballot     the vote that this node has given
//! 3 cut        from this index on, the entries before this record are void
//! 4 committed  the last entry that is known to be settled
//! 5 state      all of the above but entries, and where the log begins: whatever is before the
//!              first record that it names may be removed
//! 6 birth      cluster, node, incarnation, and the position at which it began
//! 7 peer       an incarnation of another node that was met; with the highest bit of the number,
//!              one that has lost what it had confirmed
//! 8 install    a snapshot is being taken in
//! ```
//!
//! A byte says which; the rest is as [`crate::codec`] has it. Cuts are records, never changes of
//! what was written: so the log's own rule stays, that nothing but its unfinished tail may be cut.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::codec::{Coded, Malformed, Reader, coded_fields};
use crate::entry::{Ballot, Base, ClusterId, Entry, EntryId, NodeNumber, Position};
use crate::error::StartError;

/// Version of these records.
pub(crate) const LOG_VERSION: u32 = 1;

/// Which node of which cluster a log belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Birth {
    /// Version of the records.
    pub(crate) version: u32,
    /// The cluster.
    pub(crate) cluster: ClusterId,
    /// The node.
    pub(crate) node: NodeNumber,
    /// Drawn when the folder was made: a node whose folder was emptied is another one.
    pub(crate) incarnation: u64,
    /// The position before the cluster's first request: what its first node held already.
    pub(crate) began: Position,
}

/// A snapshot that is being taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Install {
    /// Where the log goes on after it.
    pub(crate) base: Base,
    /// Up to where the application is afterwards: `base.position`, or within the next entry.
    pub(crate) position: Position,
}

/// All that must survive the removal of old records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) birth: Option<Birth>,
    pub(crate) ballot: Option<Ballot>,
    pub(crate) committed: Option<EntryId>,
    pub(crate) base: Base,
    pub(crate) installs: Vec<Install>,
    pub(crate) peers: BTreeMap<NodeNumber, u64>,
    /// The first record of the log that is still needed.
    pub(crate) kept_from: u64,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Entry(Entry),
    Ballot(Ballot),
    Cut(u64),
    Committed(EntryId),
    State(Box<State>),
    Birth(Birth),
    Peer(NodeNumber, u64),
    Install(Box<Install>),
}

coded_fields!(Birth { version, cluster, node, incarnation, began });
coded_fields!(Install { base, position });
coded_fields!(State { birth, ballot, committed, base, installs, peers, kept_from });

impl Birth {
    /// The incarnation, if a log that says so belongs to this node and can be read.
    pub(crate) fn check(&self, node: NodeNumber) -> Result<u64, StartError> {
        let what = if self.version != LOG_VERSION {
            format!("has version {}, this build has {LOG_VERSION}", self.version)
        } else if self.node != node {
            format!("belongs to node {}, not to node {node}", self.node)
        } else {
            return Ok(self.incarnation);
        };
        Err(StartError::Foreign(what))
    }
}

const ENTRY: u8 = 1;

impl Record {
    /// Everything of an entry's record but the requests' bytes, which are the rest of it.
    pub(crate) fn entry_head(entry: &Entry) -> (Vec<u8>, Bytes) {
        let mut head = vec![ENTRY];
        entry.id.put(&mut head);
        match &entry.content {
            crate::entry::Content::Requests(requests) => {
                head.push(1);
                (requests.packed().len() as u32).put(&mut head);
                (head, requests.packed().clone())
            }
            other => {
                other.put(&mut head);
                (head, Bytes::new())
            }
        }
    }
}

impl Coded for Record {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Record::Entry(entry) => {
                out.push(ENTRY);
                entry.put(out);
            }
            Record::Ballot(ballot) => {
                out.push(2);
                ballot.put(out);
            }
            Record::Cut(from) => {
                out.push(3);
                from.put(out);
            }
            Record::Committed(id) => {
                out.push(4);
                id.put(out);
            }
            Record::State(state) => {
                out.push(5);
                state.put(out);
            }
            Record::Birth(birth) => {
                out.push(6);
                birth.put(out);
            }
            Record::Peer(node, incarnation) => {
                out.push(7);
                node.put(out);
                incarnation.put(out);
            }
            Record::Install(install) => {
                out.push(8);
                install.put(out);
            }
        }
    }

    fn get(from: &mut Reader) -> Result<Record, Malformed> {
        Ok(match u8::get(from)? {
            ENTRY => Record::Entry(Entry::get(from)?),
            2 => Record::Ballot(Ballot::get(from)?),
            3 => Record::Cut(u64::get(from)?),
            4 => Record::Committed(EntryId::get(from)?),
            5 => Record::State(Box::new(State::get(from)?)),
            6 => Record::Birth(Birth::get(from)?),
            7 => Record::Peer(u64::get(from)?, u64::get(from)?),
            8 => Record::Install(Box::new(Install::get(from)?)),
            _ => return Err(Malformed("a record of no known kind")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Content, Leadership, Requests};

    #[test]
    fn an_entry_in_two_parts_is_the_entry() {
        let id = EntryId { leadership: Leadership { term: 1, node: 2 }, index: 3 };
        let requests = Requests::pack(&[Bytes::from_static(b"one"), Bytes::from_static(b"two")]);
        for content in [Content::Requests(requests), Content::Blank] {
            let entry = Entry { id, content };
            let (mut head, rest) = Record::entry_head(&entry);
            head.extend_from_slice(&rest);
            assert_eq!(head, Record::Entry(entry).encode());
        }
    }
}
