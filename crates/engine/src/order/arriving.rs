//! What comes in parts: requests that are too large for one entry of the order.
//!
//! The origin encodes such a request as it would any other, and cuts it. The *parts* are ordered
//! first, one after the other, each a request of its own, and every node keeps them. While they are
//! on their way the transaction is running like any other, and may be struck. Once all are
//! delivered at the origin, it is sealed, and one more request, the *whole*, takes its place in the
//! order. There every node puts the parts together, and from then on does what it would do with a
//! request that has come as one: the verdict is that of the last position, and of its `bot`.
//!
//! ```text
//! order 5   part 0 of T      kept
//! order 6   U                struck is whoever has a lock against it: T, too, if it is in its way
//! order 7   part 1 of T      kept
//! order 8   the whole of T   judged with bot 7, installed, shown
//! order 9   anything         the parts of T go
//! ```
//!
//! Whether the parts are there is asked at the turn of the whole. It may have been put together
//! before, when it was delivered behind others that wait for their turn; what is decided of these
//! until then may be the end of it.
//!
//! The parts of all transactions together are bounded. There has to be room for a transaction as a
//! whole when its first part comes: else several that have begun would be in each other's way, and
//! none of them would come to its end.
//!
//! # Nothing of it stays
//!
//! Parts are of no use any more once
//! - the whole was delivered, whatever its verdict;
//! - the origin says so: the transaction was struck, or its client has gone (*given up*). That is
//!   its verdict, so a part that comes later is refused, as long as verdicts are remembered, and
//!   whoever asks for the outcome is told that it was aborted;
//! - the origin is heard of from a later start: nobody is left there who could propose the whole.
//!   What was on its way since an earlier start says nothing;
//! - another node says so, since the origin is no member any more: no later start of it will be
//!   heard of, and what it has reserved is missed by all others;
//! - so many positions have passed that the whole would be refused for its age ([`AGE_MAX`]), which
//!   is for origins that are never heard of again.
//!
//! # Invariants
//!
//! All that is here is a function of the order, and in a node's image. The parts themselves are
//! rows of the engine's own (`own::PARTS_TREE`), versions of the positions of their requests; so a
//! checkpoint moves them to the base, where the image stands, too, a start is delivered those
//! behind, and another node is sent them with the rest. The rows of each position are exactly
//! those of what is arriving there, and of what has *left*: these are removed at the next position
//! that is decided and is not that of an active transaction, by every node alike.
//!
//! Parts are numbered from 0 and come in this order, since each is proposed when the one before was
//! delivered at the origin. What a part says of its transaction is nothing before the whole is
//! delivered: it has no locks by it, and is seen by nobody.

use std::collections::BTreeMap;

use super::AGE_MAX;
use super::purpose::{Part, Whole};
use super::standing::Refusal;
use crate::payload::{Encoder, Input};
use crate::total_order::{node_of, start_of};
use crate::{Csn, TransactionId};

/// The parts of all transactions together have so many bytes at most.
const BYTES_MAX: u64 = 512 << 20;

/// What has come of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Came {
    /// Where its first part is.
    first: Csn,
    parts: u64,
    bytes: u64,
    /// So many bytes are to come in all.
    all: u64,
}

/// See the module's prose.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Arriving {
    all: BTreeMap<TransactionId, Came>,
    /// What is to come of all together.
    bytes: u64,
    /// Whose parts are to be removed, and how many they are.
    left: Vec<(TransactionId, u64)>,
}

impl Arriving {
    /// Whether a part is the next one of its transaction, and there is room for all of it if it is
    /// the first.
    ///
    /// # Errors
    /// `NotAwaited`, `NoRoom`.
    pub(super) fn judge(&self, part: &Part) -> Result<(), Refusal> {
        let came = self.all.get(&part.of);
        let (parts, bytes, all) = came.map_or((0, 0, part.all), |came| (came.parts, came.bytes, came.all));
        let left = all.saturating_sub(bytes);
        if (part.number, part.all) != (parts, all) || part.bytes.len() as u64 > left {
            return Err(Refusal::NotAwaited);
        }
        match came.is_none() && self.bytes.saturating_add(all) > BYTES_MAX {
            true => Err(Refusal::NoRoom { limit: BYTES_MAX }),
            false => Ok(()),
        }
    }

    /// A part was judged, and is kept.
    pub(super) fn take(&mut self, position: Csn, part: &Part) {
        let came = self.all.entry(part.of).or_insert_with(|| {
            self.bytes += part.all;
            Came { first: position, parts: 0, bytes: 0, all: part.all }
        });
        came.parts += 1;
        came.bytes += part.bytes.len() as u64;
    }

    /// Whether all parts of a transaction are there.
    pub(super) fn has_all(&self, of: TransactionId, whole: &Whole) -> bool {
        self.all
            .get(&of)
            .is_some_and(|came| (came.parts, came.bytes, came.all) == (whole.parts, whole.bytes, whole.bytes))
    }

    /// A transaction has come to its end, whichever.
    pub(super) fn end(&mut self, of: TransactionId) {
        self.end_if(|one, _| one == of);
    }

    /// Who has begun to come from such nodes.
    pub(super) fn of_nodes(&self, counts: impl Fn(u16) -> bool) -> Vec<TransactionId> {
        self.all.keys().copied().filter(|id| counts(node_of(*id))).collect()
    }

    /// A request of this one's start of its node was delivered.
    pub(super) fn hear(&mut self, id: TransactionId) {
        self.end_if(|one, _| node_of(one) == node_of(id) && start_of(one) < start_of(id));
    }

    /// Everything is judged up to this position.
    pub(super) fn age(&mut self, position: Csn) {
        let oldest = position.saturating_sub(AGE_MAX);
        self.end_if(|_, came| came.first < oldest);
    }

    fn end_if(&mut self, ends: impl Fn(TransactionId, &Came) -> bool) {
        // Mostly there is nobody.
        if self.all.is_empty() {
            return;
        }
        let (left, bytes) = (&mut self.left, &mut self.bytes);
        self.all.retain(|id, came| {
            let ends = ends(*id, came);
            if ends {
                left.push((*id, came.parts));
                *bytes -= came.all;
            }
            !ends
        });
    }

    /// Whose parts are to be removed now.
    pub(super) fn take_left(&mut self) -> Vec<(TransactionId, u64)> {
        std::mem::take(&mut self.left)
    }

    /// Writes it: count, and for each transaction: id, position of its first part, how many there
    /// are, their bytes, how many there are to be; count, and for each one that has left: id, how
    /// many parts.
    pub(super) fn encode(&self, out: &mut Encoder) {
        out.varint(self.all.len() as u64);
        for (id, came) in &self.all {
            let Came { first, parts, bytes, all } = *came;
            [*id, first, parts, bytes, all].into_iter().for_each(|number| out.varint(number));
        }
        out.list(&self.left, |out, (id, parts)| {
            out.varint(*id);
            out.varint(*parts);
        });
    }

    /// Reads what [`Arriving::encode`] wrote.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn decode(input: &mut Input<'_>) -> Result<Arriving, String> {
        let all = input.list(|input| {
            let id = input.varint()?;
            let (first, parts) = (input.varint()?, input.varint()?);
            Ok((id, Came { first, parts, bytes: input.varint()?, all: input.varint()? }))
        })?;
        let left = input.list(|input| Ok((input.varint()?, input.varint()?)))?;
        let too_much = || "more than all parts together may have".to_owned();
        let bytes = all.iter().try_fold(0u64, |sum, (_, came)| sum.checked_add(came.all));
        let bytes = bytes.filter(|bytes| *bytes <= BYTES_MAX).ok_or_else(too_much)?;
        Ok(Arriving { all: all.into_iter().collect(), bytes, left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;

    const NODE: TransactionId = 2 << 59;
    const START: TransactionId = 1 << 29;

    /// One of three that are equally long.
    fn part(of: TransactionId, number: u64, bytes: usize) -> Part {
        Part { of, number, all: 3 * bytes as u64, bytes: Value::from(vec![0; bytes]) }
    }

    fn with(ids: &[TransactionId]) -> Arriving {
        let mut arriving = Arriving::default();
        for (at, id) in ids.iter().enumerate() {
            arriving.take(at as Csn + 1, &part(*id, 0, 10));
        }
        arriving
    }

    #[test]
    fn parts_are_taken_in_their_order_and_once() {
        let mut arriving = Arriving::default();
        assert_eq!(arriving.judge(&part(7, 1, 10)), Err(Refusal::NotAwaited), "it is the second one");
        for number in 0..3 {
            let next = part(7, number, 10);
            assert_eq!(arriving.judge(&next), Ok(()));
            arriving.take(number + 1, &next);
            assert_eq!(arriving.judge(&next), Err(Refusal::NotAwaited), "it is there");
        }
        assert_eq!(arriving.judge(&part(7, 3, 10)), Err(Refusal::NotAwaited), "there are three");
        let whole = |parts, bytes| Whole { parts, bytes, made: Vec::new() };
        assert!(arriving.has_all(7, &whole(3, 30)));
        assert!(!arriving.has_all(7, &whole(2, 20)) && !arriving.has_all(7, &whole(3, 31)));
        assert!(!arriving.has_all(8, &whole(3, 30)) && !arriving.has_all(8, &whole(0, 0)));
        arriving.end(7);
        assert!(!arriving.has_all(7, &whole(3, 30)));
        assert_eq!(arriving.take_left(), [(7, 3)]);
        assert_eq!(arriving, Arriving::default());
    }

    #[test]
    fn there_is_room_for_so_much_and_no_more() {
        let mut arriving = with(&[7]);
        assert_eq!(arriving.bytes, 30, "there is room for all of it");
        arriving.bytes = BYTES_MAX - 15;
        assert_eq!(arriving.judge(&part(8, 0, 5)), Ok(()));
        assert_eq!(arriving.judge(&part(8, 0, 6)), Err(Refusal::NoRoom { limit: BYTES_MAX }));
        let endless = Part { all: u64::MAX, ..part(8, 0, 5) };
        assert_eq!(arriving.judge(&endless), Err(Refusal::NoRoom { limit: BYTES_MAX }));
        arriving.bytes = BYTES_MAX;
        assert_eq!(arriving.judge(&part(7, 1, 10)), Ok(()), "who has begun comes to the end");
        assert_eq!(arriving.judge(&part(7, 1, 11)), Err(Refusal::NotAwaited), "it was to be another size");
    }

    #[test]
    fn a_node_that_has_started_again_has_given_up_what_it_sent_before() {
        let (before, after, other) = (NODE | START | 5, NODE | (2 * START) | 5, (3 << 59) | START | 5);
        let mut arriving = with(&[before, other]);
        arriving.hear(before + 1);
        arriving.hear(3 << 59 | START | 9);
        assert!(arriving.take_left().is_empty(), "they are running");
        arriving.hear(after);
        assert_eq!(arriving.take_left(), [(before, 1)]);
        assert_eq!(arriving.bytes, 30);
        // What it had sent before may come into the order afterwards.
        let mut arriving = with(&[after, other]);
        arriving.hear(before + 1);
        assert!(arriving.take_left().is_empty(), "it is running");
    }

    #[test]
    fn what_is_too_old_for_any_verdict_goes() {
        let mut arriving = with(&[7, 8]);
        arriving.age(AGE_MAX + 1);
        assert!(arriving.take_left().is_empty());
        arriving.age(AGE_MAX + 2);
        assert_eq!(arriving.take_left(), [(7, 1)]);
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let mut arriving = with(&[7, 8, 9]);
        arriving.end(8);
        let mut out = Encoder::with_capacity(64);
        arriving.encode(&mut out);
        let bytes = out.finish();
        assert_eq!(Arriving::decode(&mut Input::of(&bytes)), Ok(arriving));
        for end in 0..bytes.len() {
            assert!(Arriving::decode(&mut Input::of(&bytes[..end])).is_err(), "cut at {end}");
        }
    }
}
