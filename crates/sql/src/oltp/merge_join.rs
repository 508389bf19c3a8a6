//! Merge joins: both sides come in the order of their keys, so each outer row's partner, if there
//! is one, is not before that of the row before. Nothing is held but one row of each side, in the
//! frame.
//!
//! ```text
//! outer 1 1 3 4      inner 1 2 3 5      1 with 1 twice; 2 is passed over; 3 with 3; 4 finds 5, which stays for what comes
//! ```

use std::cmp::Ordering;

use super::Context;
use super::input::{SourceState, holds};
use crate::error::Result;
use crate::plan::MergeJoin;
use crate::types::Datum;

/// State of a merge join.
pub(crate) struct MergeJoinState {
    outer: SourceState,
    inner: SourceState,
    at: At,
    /// The inner row's values, while its places are NULL for an outer row without partner; else
    /// NULLs.
    aside: Vec<Datum>,
    is_aside: bool,
}

/// Where the inner side is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before its first row.
    Before,
    /// At the row in the frame.
    Row,
    End,
}

impl MergeJoinState {
    pub(crate) fn new(join: &MergeJoin) -> MergeJoinState {
        MergeJoinState {
            outer: SourceState::new(&join.outer),
            inner: SourceState::new(&join.inner),
            at: At::Before,
            aside: vec![Datum::Null; join.inner_slots.len()],
            is_aside: false,
        }
    }

    pub(crate) fn rewind(&mut self, join: &MergeJoin, context: Context<'_>) {
        self.at = At::Before;
        self.aside.fill(Datum::Null);
        self.is_aside = false;
        self.outer.rewind(&join.outer, context);
        self.inner.rewind(&join.inner, context);
    }

    pub(crate) fn release(&mut self, context: Context<'_>) {
        self.outer.release(context);
        self.inner.release(context);
    }

    pub(crate) fn next(
        &mut self,
        join: &MergeJoin,
        context: Context<'_>,
        frame: &mut [Datum],
    ) -> Result<bool> {
        loop {
            // Without inner rows nothing more can come of an inner join.
            if (self.at == At::End && !join.left) || !self.outer.next(&join.outer, context, frame)? {
                return Ok(false);
            }
            if self.is_aside {
                self.exchange(join, frame);
            }
            if self.find_partner(join, context, frame)? && holds(&join.on, &context.env(frame))? {
                return Ok(true);
            }
            if join.left {
                self.exchange(join, frame);
                return Ok(true);
            }
        }
    }

    /// Puts the inner row aside, and NULLs in its places, or the other way round.
    fn exchange(&mut self, join: &MergeJoin, frame: &mut [Datum]) {
        for (slot, value) in join.inner_slots.iter().zip(&mut self.aside) {
            std::mem::swap(&mut frame[*slot], value);
        }
        self.is_aside = !self.is_aside;
    }

    /// Moves the inner side to the first row that is not before the outer one. Whether it is its
    /// partner.
    fn find_partner(&mut self, join: &MergeJoin, context: Context<'_>, frame: &mut [Datum]) -> Result<bool> {
        loop {
            if self.at == At::Row {
                match compare(&join.keys, frame) {
                    Ordering::Less => {}
                    decided => return Ok(decided.is_eq()),
                }
            }
            if self.at == At::End || !self.inner.next(&join.inner, context, frame)? {
                self.at = At::End;
                return Ok(false);
            }
            self.at = At::Row;
        }
    }
}

/// How the inner row is to the outer one.
#[inline]
fn compare(keys: &[(usize, usize)], frame: &[Datum]) -> Ordering {
    let mut compared = keys.iter().map(|(outer, inner)| frame[*inner].compare(&frame[*outer]));
    compared.find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}
