//! What is known of one class.

use super::decayed::{Decayed, fading};
use super::report::{Finished, Protocol, figure};
use super::slope::Slope;

/// So many attempts tell how often a class is refused. Conflicts begin from one moment to the next,
/// and until they are known they are paid for; so these are fewer than of times and sizes.
const FEW: f64 = 64.0;

/// A program that has failed after so many times what one takes tells that they take longer.
const FAILED_LATE: f64 = 2.0;

/// Averages over the attempts of a class. Microseconds and bytes; what was counted as 0 or 1 is a
/// share.
#[derive(Clone, Debug)]
pub(super) struct Measures {
    last_us: i64,
    /// Attempts; fades by time only.
    attempts: f64,
    /// From the end of one attempt to that of the next.
    pub(super) gap_us: Decayed,
    /// Execution where the transaction began, under certification and weak voting.
    pub(super) local_us: Decayed,
    /// Execution at delivery, under active, of those that have committed, and of those that took
    /// clearly longer until they failed.
    pub(super) active_us: Decayed,
    pub(super) lock_wait_us: Decayed,
    pub(super) write_bytes: Decayed,
    /// Known only where the transaction ran before it was ordered.
    pub(super) read_bytes: Decayed,
    pub(super) order_us: Decayed,
    /// What was ordered in the attempts that `order_us` is of.
    pub(super) ordered_bytes: Decayed,
    pub(super) slope: Slope,
    pub(super) vote_us: Decayed,
    /// Refused for a conflict, under certification and weak voting.
    pub(super) refused: Decayed,
    /// Would have been refused, under active.
    pub(super) met: Decayed,
    pub(super) round_trips: Decayed,
}

impl Measures {
    pub(super) fn new(now_us: i64) -> Measures {
        let nothing = Decayed::default();
        Measures {
            last_us: now_us,
            // The one that it is made for.
            attempts: 1.0,
            gap_us: nothing,
            local_us: nothing,
            active_us: nothing,
            lock_wait_us: nothing,
            write_bytes: nothing,
            read_bytes: nothing,
            order_us: nothing,
            ordered_bytes: nothing,
            slope: Slope::default(),
            vote_us: nothing,
            refused: nothing,
            met: nothing,
            round_trips: nothing,
        }
    }

    /// Adds an attempt.
    pub(super) fn note(&mut self, finished: &Finished, now_us: i64) {
        let gap_us = now_us.saturating_sub(self.last_us);
        self.fade(now_us);
        self.gap_us.note(gap_us.max(0) as f64);
        self.attempts += 1.0;
        let was_refused = finished.conflict == Some(true);
        let was_ordered = finished.order_us > 0;
        // What was struck early has not cost what it would have cost. Under active that is whatever
        // has failed: conflicts do not end it, so it was a statement, perhaps the first of many.
        let is_whole = match finished.protocol {
            Protocol::Active => finished.committed,
            Protocol::Certification | Protocol::WeakVoting => finished.committed || was_ordered,
        };
        let execution = figure(finished.execution_us);
        // But it would have cost no less as a whole. Else nobody would learn what a class takes
        // that comes to nothing each time because it is too long.
        let is_late = !is_whole && finished.protocol == Protocol::Active;
        if is_late && execution > FAILED_LATE * self.active_us.mean() {
            self.active_us.note(execution);
        }
        if is_whole {
            match finished.protocol {
                Protocol::Active => self.active_us.note(execution),
                _ => self.local_us.note(execution),
            }
            self.write_bytes.note(figure(finished.write_bytes));
            self.round_trips.note(figure(finished.round_trips.into()));
        }
        if was_ordered {
            let (bytes, delay) = (finished.ordered_bytes(), figure(finished.order_us));
            if finished.protocol == Protocol::Certification {
                self.slope.note(bytes, delay);
            }
            self.order_us.note(delay);
            self.ordered_bytes.note(bytes);
        }
        match finished.protocol {
            Protocol::Active => {
                if let Some(met) = finished.conflict {
                    self.met.add(if met { 1.0 } else { 0.0 }, FEW);
                }
            }
            Protocol::Certification | Protocol::WeakVoting => {
                self.lock_wait_us.note(figure(finished.lock_wait_us));
                if finished.committed || was_ordered {
                    self.read_bytes.note(figure(finished.read_bytes));
                }
                // What its client gave up, or another error ended, says nothing of conflicts.
                if finished.committed || was_refused {
                    self.refused.add(if was_refused { 1.0 } else { 0.0 }, FEW);
                }
            }
        }
        if finished.protocol == Protocol::WeakVoting && finished.committed {
            // 0 where nobody has to vote, since all that was read was written, too.
            self.vote_us.note(figure(finished.vote_us));
        }
    }

    fn fade(&mut self, now_us: i64) {
        let fading = fading(now_us.saturating_sub(self.last_us));
        // A clock that was set back goes on from there.
        self.last_us = now_us;
        self.attempts *= fading;
        for average in [
            &mut self.gap_us,
            &mut self.local_us,
            &mut self.active_us,
            &mut self.lock_wait_us,
            &mut self.write_bytes,
            &mut self.read_bytes,
            &mut self.order_us,
            &mut self.ordered_bytes,
            &mut self.vote_us,
            &mut self.refused,
            &mut self.met,
            &mut self.round_trips,
        ] {
            average.fade(fading);
        }
        self.slope.fade(fading);
    }

    /// Attempts of late, as they count at a time.
    pub(super) fn use_at(&self, now_us: i64) -> f64 {
        self.attempts * fading(now_us.saturating_sub(self.last_us))
    }
}
