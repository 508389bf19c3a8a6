//! A sort that can be left half-way.
//!
//! The standard library's sort goes on to its end, whatever a comparison costs (two long texts,
//! say) and whoever waits for it. So items are sorted in short runs, and runs are merged two by
//! two; before each run and each item of a merge somebody else may say that it is enough.
//!
//! The standard library may panic over an order that is none, as it is once comparisons are given
//! up (`types::bounds`). A merge compares two items, and takes one of them, whatever the answer is:
//! an order that changes half-way does it no harm. So whoever has values whose comparison may be
//! given up asks for runs of one item.
//!
//! ```text
//! d b | c a | f e        items
//! b d | a c | e f        runs, each sorted
//! a b c d   | e f        first pass
//! a b c d e f            second pass
//! ```

use std::cmp::Ordering;

use crate::error::Result;

/// Items of a run, where they are small.
pub(crate) const RUN: usize = 1024;

/// Sorts items in runs of so many; what compares equal keeps its order. After an error some of them
/// are gone.
pub(crate) fn sort<T: Default>(
    items: &mut Vec<T>,
    run: usize,
    mut go_on: impl FnMut() -> Result<()>,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Result<()> {
    for run in items.chunks_mut(run) {
        go_on()?;
        run.sort_by(&compare);
    }
    let mut length = run;
    let mut merged = Vec::new();
    while length < items.len() {
        merged.clear();
        merged.reserve_exact(items.len());
        for pair in items.chunks_mut(2 * length) {
            let (left, right) = pair.split_at_mut(length.min(pair.len()));
            merge(left, right, &mut merged, &mut go_on, &compare)?;
        }
        std::mem::swap(items, &mut merged);
        length *= 2;
    }
    Ok(())
}

/// Moves two sorted runs to the end of `merged`, in order.
fn merge<T: Default>(
    left: &mut [T],
    right: &mut [T],
    merged: &mut Vec<T>,
    go_on: &mut impl FnMut() -> Result<()>,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Result<()> {
    let (mut at_left, mut at_right) = (0, 0);
    // Runs of items that came in order need no further comparison.
    let apart = match (left.last(), right.first()) {
        (Some(last), Some(first)) => compare(last, first).is_le(),
        _ => true,
    };
    while !apart && at_left < left.len() && at_right < right.len() {
        go_on()?;
        let next = if compare(&left[at_left], &right[at_right]).is_le() {
            at_left += 1;
            &mut left[at_left - 1]
        } else {
            at_right += 1;
            &mut right[at_right - 1]
        };
        merged.push(std::mem::take(next));
    }
    for rest in [&mut left[at_left..], &mut right[at_right..]] {
        for part in rest.chunks_mut(RUN) {
            go_on()?;
            merged.extend(part.iter_mut().map(std::mem::take));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{SqlError, sqlstate};

    #[test]
    fn sorts_as_the_standard_library_does_and_keeps_what_is_equal_in_order() {
        for (length, modulus) in [(0, 1), (1, 1), (5, 2), (3000, 7), (10_000, 10_007)] {
            for run in [1, 3, RUN] {
                let mut items: Vec<(usize, usize)> = (0..length).map(|n| (n * 7919 % modulus, n)).collect();
                let mut expected = items.clone();
                expected.sort_by_key(|item| item.0);
                sort(&mut items, run, || Ok(()), |a, b| a.0.cmp(&b.0)).expect("nobody stops it");
                assert_eq!(items, expected);
            }
        }
    }

    #[test]
    fn it_can_be_left_at_every_step() {
        let mut steps = 0;
        let items: Vec<usize> = (0..5000).rev().collect();
        let count = || {
            steps += 1;
            Ok(())
        };
        sort(&mut items.clone(), 64, count, Ord::cmp).expect("nobody stops it");
        // Each pass asks for each item that it compares.
        assert!(steps > 5000, "{steps}");
        let mut left = steps / 2;
        let stopped = sort(
            &mut items.clone(),
            64,
            || {
                left -= 1;
                if left == 0 { Err(SqlError::new(sqlstate::QUERY_CANCELED, "stopped")) } else { Ok(()) }
            },
            Ord::cmp,
        );
        assert_eq!(stopped.expect_err("it was stopped").sqlstate, "57014");
    }
}
