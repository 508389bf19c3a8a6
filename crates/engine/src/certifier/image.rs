//! The graph as bytes, and back: what a node of a cluster keeps of it with a checkpoint, and what
//! another node begins with that cannot be given everything from the beginning (`crate::image`).
//!
//! Verdicts depend on the graph, so the nodes of a cluster have equal ones, and a restored one is
//! equal to the one that it was made of: its nodes with their edges as they are, not as they would
//! be drawn again. The index is made of the nodes, which enter it in the order of their commits, as
//! they did before. Who was prepared and rolled back has no part in any verdict, and stays behind.
//! To which family a prepared instance belongs is said afterwards: a family has another place at
//! each node ([`Certifier::name_family`]).
//!
//! ```text
//! nodes             count, for each, the prepared ones last:
//!   commit + 1      0 = prepared
//!   id, start, first_out + 1, in-degree, bytes
//!   flags: 1 byte   1 = closed, 2 = overtaken, 4 = forgot its successors,
//!                   8 = began before its snapshot
//!   began           only with the flag 8: its first snapshot (`search`)
//!   successors      count, places in this list
//!   reads           as in the row of a prepared transaction
//!   writes          count, for each: tree id, key
//!   effects         as in a request
//!   range writes    count, for each: tree id, two bounds, first and last commit
//! ```

use std::collections::HashMap;

use super::node::{Node, NodeId, PREPARED, RangeWrite};
use super::{Certifier, Promise};
use crate::hash::Seed;
use crate::key::SmallKey;
use crate::lock::mode::FamilySlot;
use crate::payload::{Encoder, Input};
use crate::txn::codec::{
    decode_bound, decode_effects, decode_reads, encode_bound, encode_effects, encode_reads,
};
use crate::txn::writeset::KeyWrites;
use crate::{Csn, TransactionId};

const CLOSED: u8 = 1;
const OVERTAKEN: u8 = 2;
const FORGETFUL: u8 = 4;
/// Images of version 2 have nobody with it.
const MOVED: u8 = 8;

impl Certifier {
    /// Writes the graph.
    ///
    /// # Panics
    /// If something of it is summarized: in a cluster nothing is. If an edge leads nowhere: an
    /// image without it would let the nodes that begin there commit what others refuse.
    pub(crate) fn encode(&self, out: &mut Encoder) {
        assert!(self.standing == 0, "nodes of a cluster summarize nothing");
        let mut order: Vec<(NodeId, &Node)> =
            self.nodes.iter().filter(|(_, node)| node.commit != 0).collect();
        order.sort_by_key(|(_, node)| (node.commit, node.id));
        let places: HashMap<NodeId, u64> = order.iter().map(|(id, _)| *id).zip(0..).collect();
        let place_of = |id: &NodeId| {
            let place = places.get(id).copied();
            // An edge to who was rolled back is none.
            assert!(place.is_some() || self.nodes.at(*id).commit == 0, "an edge is not in the image");
            place
        };
        out.list(&order, |out, (_, node)| encode_node(out, node, place_of));
    }

    /// Reads a graph into this one, which is empty, of a database with this seed. The answer has
    /// the prepared ones.
    ///
    /// # Errors
    /// What is wrong with the bytes, in words.
    pub(crate) fn restore(
        &mut self,
        input: &mut Input<'_>,
        seed: &Seed,
    ) -> Result<HashMap<TransactionId, Promise>, String> {
        assert!(self.nodes.len() == 0, "a graph is restored before there is another one");
        let decoded = input.list(|input| decode_node(input, seed))?;
        let count = decoded.len();
        let mut ids = Vec::with_capacity(count);
        let mut successors = Vec::with_capacity(count);
        let mut last: Csn = 0;
        for (node, out) in decoded {
            if node.commit < last || node.commit == 0 {
                return Err("the graph's transactions are out of order".to_owned());
            }
            last = node.commit;
            ids.push(self.enter(node, true));
            successors.push(out);
        }
        let mut promises = HashMap::new();
        let mut degrees = vec![0_u32; count];
        for (place, out) in successors.into_iter().enumerate() {
            let id = ids[place];
            let node = self.nodes.at_mut(id);
            for successor in out {
                let to = usize::try_from(successor).ok().filter(|to| *to < count);
                let to = to.ok_or("an edge of the graph leads nowhere")?;
                degrees[to] += 1;
                node.out.push(ids[to]);
            }
            let (is_prepared, leads, forgot) =
                (node.is_prepared(), !node.out.is_empty(), node.forgot_successors);
            self.forgetful += usize::from(forgot);
            match is_prepared {
                true => {
                    self.prepared += 1;
                    promises.insert(node.id, Promise(Some(id)));
                    if leads {
                        self.leading.push(id);
                    }
                    if forgot {
                        self.forgetting.push(id);
                    }
                }
                false if !node.closed => self.open.push_back(id),
                false => {}
            }
        }
        for (id, degree) in ids.into_iter().zip(degrees) {
            if self.nodes.at(id).in_degree != degree {
                return Err("the graph's edges are not as many as were counted".to_owned());
            }
        }
        Ok(promises)
    }
}

impl Certifier {
    /// Says of a restored prepared transaction that it is an instance of a family.
    pub(crate) fn name_family(&mut self, promise: &Promise, family: Option<FamilySlot>) {
        if let Some(id) = promise.0 {
            self.nodes.at_mut(id).family = family;
        }
    }
}

/// Who of the prepared ones in a graph that was written has somebody behind him, for who does not
/// take over the graph itself.
///
/// # Errors
/// What is wrong with the bytes, in words.
pub(crate) fn overtaken(input: &mut Input<'_>, seed: &Seed) -> Result<Vec<TransactionId>, String> {
    let decoded = input.list(|input| decode_node(input, seed))?;
    let is_led_from = |(node, successors): &&(Box<Node>, Vec<u64>)| {
        node.is_prepared() && (node.overtaken || node.forgot_successors || !successors.is_empty())
    };
    Ok(decoded.iter().filter(is_led_from).map(|(node, _)| node.id).collect())
}

fn encode_node(out: &mut Encoder, node: &Node, place_of: impl Fn(&NodeId) -> Option<u64>) {
    out.varint(if node.commit == PREPARED { 0 } else { node.commit + 1 });
    let numbers = [node.id, node.start, node.first_out.wrapping_add(1), u64::from(node.in_degree)];
    numbers.into_iter().chain([node.bytes as u64]).for_each(|number| out.varint(number));
    let flag = |is: bool, bit: u8| if is { bit } else { 0 };
    let is_moved = node.began() != node.start;
    out.byte(
        flag(node.closed, CLOSED)
            | flag(node.overtaken, OVERTAKEN)
            | flag(node.forgot_successors, FORGETFUL)
            | flag(is_moved, MOVED),
    );
    if is_moved {
        out.varint(node.began());
    }
    let successors: Vec<u64> = node.out.iter().filter_map(place_of).collect();
    out.list(&successors, |out, place| out.varint(*place));
    encode_reads(out, &node.reads);
    out.list(&node.writes, |out, (tree, key, ..)| {
        out.varint(u64::from(*tree));
        out.string(key);
    });
    encode_effects(out, &node.effects, node.writes.iter().map(|write| write.3));
    out.list(node.range_writes(), |out, write| {
        out.varint(u64::from(write.tree));
        encode_bound(out, &write.lower);
        encode_bound(out, &write.upper);
        out.varint(write.first);
        out.varint(write.last);
    });
}

/// A node, and the places of its successors.
fn decode_node(input: &mut Input<'_>, seed: &Seed) -> Result<(Box<Node>, Vec<u64>), String> {
    let commit = input.varint()?.checked_sub(1).unwrap_or(PREPARED);
    let (id, start, first_out) = (input.varint()?, input.varint()?, input.varint()?.wrapping_sub(1));
    let in_degree = u32::try_from(input.varint()?).map_err(|_| "a number of edges out of range")?;
    let bytes = usize::try_from(input.varint()?).map_err(|_| "a size out of range")?;
    let flags = input.byte()?;
    let began = if flags & MOVED != 0 { Some(input.varint()?) } else { None };
    if began.is_some_and(|began| began >= start) {
        return Err("a beginning that is not before the snapshot".to_owned());
    }
    let successors = input.list(Input::varint)?;
    let reads = decode_reads(input, seed, true)?;
    let mut written = input.list(|input| {
        let (tree, key) = (input.tree()?, SmallKey::new(input.string()?));
        let hash = seed.hash_of(tree, &key);
        Ok((tree, key, hash, 0))
    })?;
    let effects = decode_effects(input, |next| {
        written.iter_mut().try_for_each(|write| {
            write.3 = next()?;
            Ok(())
        })
    })?;
    let ranges = input.list(|input| {
        let tree = input.tree()?;
        let (lower, upper) = (decode_bound(input)?, decode_bound(input)?);
        Ok(RangeWrite { tree, lower, upper, first: input.varint()?, last: input.varint()? })
    })?;
    let mut node = Node::new(id, start, reads, KeyWrites::from_vec(written));
    (node.commit, node.first_out, node.in_degree, node.bytes) = (commit, first_out, in_degree, bytes);
    node.closed = flags & CLOSED != 0;
    node.overtaken = flags & OVERTAKEN != 0;
    node.forgot_successors = flags & FORGETFUL != 0;
    node.effects = effects;
    node.set_range_writes(ranges);
    node.set_began(began.unwrap_or(start));
    Ok((node, successors))
}
