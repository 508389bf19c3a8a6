//! The rows that FETCH and MOVE come by, and where they end.

use crate::parse::FetchCount;

/// The positions that a count leads over, in order, and the last one. Position p is on row p, from
/// 1; 0 is before the first row, `length + 1` after the last.
pub(super) fn way(count: &FetchCount, at: i64, length: i64) -> (Vec<i64>, i64) {
    match *count {
        FetchCount::Forward(0) | FetchCount::Relative(0) | FetchCount::Backward(0) => (vec![at], at),
        FetchCount::Forward(n) if n > 0 => forward(at, n, length),
        FetchCount::Forward(n) => backward(at, n.saturating_neg()),
        FetchCount::All => forward(at, i64::MAX, length),
        FetchCount::Backward(n) if n > 0 => backward(at, n),
        FetchCount::Backward(n) => forward(at, n.saturating_neg(), length),
        FetchCount::BackwardAll => backward(at, i64::MAX),
        FetchCount::Absolute(n) => {
            let to = if n >= 0 { n } else { length + 1 + n };
            let to = to.clamp(0, length + 1);
            (vec![to], to)
        }
        FetchCount::Relative(n) => {
            let to = at.saturating_add(n).clamp(0, length + 1);
            (vec![to], to)
        }
    }
}

fn forward(at: i64, count: i64, length: i64) -> (Vec<i64>, i64) {
    let last = at.saturating_add(count).min(length + 1);
    ((at + 1..=last).collect(), last)
}

fn backward(at: i64, count: i64) -> (Vec<i64>, i64) {
    let last = at.saturating_sub(count).max(0);
    ((last..at).rev().collect(), last)
}
