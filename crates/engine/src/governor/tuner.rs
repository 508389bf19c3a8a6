//! The tuner: finds the limit with the best throughput. Pure: samples in, a limit out.
//!
//! *Climbing.* It measures the rate of commits at the limit it stands on, tries another one a step
//! up or down, and moves there if that pays. A rate is never twice the same, and a busy machine
//! drifts by more than a step is worth. So a *trial* goes back and forth between the two limits, a
//! block of samples each, and compares neighbours: what drifts slowly falls out.
//!
//! ```text
//! blocks   from to │ to from │ from to │ …        three pairs, and one change of the limit in each
//! ```
//!
//! It ends as soon as the pairs' mean is far enough from what decides, by their own scatter; so it
//! takes as long as the machine's unrest asks for, but at most [`PAIRS_MAX`] pairs; a step down
//! that is not clear by then is not taken. What counts as paying has a *dead band*:
//!
//! - up, only if the rate gets better by more than the band: more slots mean longer waits, so they
//!   have to be worth something;
//! - down, unless the rate falls by more than the smaller band. On a plateau it therefore goes to
//!   the left end: the peak of the throughput is not yet the best place for latency. What steps
//!   down have cost is added up (`behind`), so that many small losses cannot become a large one.
//!
//! It *starts* by doubling as long as that costs nothing, and comes down from there: on a gentle
//! slope, single steps up are lost in the noise, while on the way down the losses are added up.
//!
//! ```text
//! rate │        ┌──────────            1  up pays:  8 → 16 → 32
//!      │      ／            ＼         2  64 does not: back to 32
//!      │    ／     ▲          ＼       3  16 does not, either: back to 32, rest
//!      │  ／     23 ◀─ 32 ✗ 64  ＼     4  23 costs less than the band: 23; and so on, in finer steps
//!      └──────────────────────────── limit
//! ```
//!
//! When neither direction pays, it *rests*, longer each time until a large step pays, since trying
//! costs throughput, and tries finer steps afterwards, for a sharp peak, and in the end coarse ones
//! again, for a gentle slope; a rate that changes by much ends the rest.
//!
//! *Cutting.* If more than a [`share`](CUT_SHARE) of the attempts abort, or of the transactions
//! wait for locks, the system may be thrashing, and climbing down step by step would take too long:
//! the limit is *cut*. Some loads have such shares for a moment: one transaction that is left in
//! doubt stops all that come after it until somebody answers for it, and a slow flush does much the
//! same. So the share has to last for some [`samples`](CUT_SAMPLES). Others have it at their best
//! limit, too. So a cut is itself a trial, in pairs, of the limit and a lower one, and stays only
//! if that clearly costs nothing, as any step down does. Otherwise, only a larger share leads to
//! another one for a while. A step up that leads to such a share is undone at once, if the rate is
//! lower, too.
//!
//! The lower limit is not simply the half: far beyond the peak, half of too many are still too
//! many, and the rate is as bad. So a cut begins with a *descent*, one block at each half of the
//! half, as long as the share stays and the rate does not fall by much; the best of these blocks
//! says which limit is tried.
//!
//! ```text
//! share │ 95 % 20 % 25 %          one stall of 100 ms: nothing
//! share │ 60 % 65 % 60 % │ …      limit 32 │ 16 │ 32 │ …      a cut, and whether it pays
//! share │ 88 % 85 % 87 % │ …      limit 512 │ 200 │ 100 │ 50 │ 25 │ 12 │ 512 │ 12 │ …
//! ```
//!
//! *No evidence, no move.* As long as hardly anybody has to wait for a slot, the limit is as good
//! as none, and no trial begins.
//!
//! Bounds: never below the number of cores, never above [`PER_CORE_MAX`] for each; it begins at
//! [`PER_CORE_START`].

/// Slots for each core at the start.
const PER_CORE_START: u32 = 4;
/// Most slots for each core.
const PER_CORE_MAX: u32 = 256;
/// Relative change of the rate that counts as none, on the way up.
const DEAD_BAND: f64 = 0.025;
/// What steps down may cost in all.
const DOWN_BAND: f64 = 0.01;
/// A trial is over when the mean of its pairs is so many standard errors away from what decides.
const CLEAR: f64 = 2.0;
/// The scatter of a pair before any was seen, and how many pairs that is worth.
const SCATTER: f64 = 0.03;
const SCATTER_PAIRS: f64 = 2.0;
/// A pair counts for no more than this: a machine that stood still for a moment says nothing about
/// a limit.
const GAIN_MAX: f64 = 0.3;
/// Most pairs of a trial.
const PAIRS_MAX: u32 = 24;
/// The same of a cut: where there is thrashing, half the limit is better by much.
const CUT_PAIRS_MAX: u32 = 4;
/// Factor of a step: the first, and the finest.
const STEP: f64 = 2.0;
const STEP_MIN: f64 = 1.1;
/// Factor of a cut, and of each step of its descent.
const CUT: f64 = 0.5;
/// A block of a descent whose rate is below this share of the best one's ends it.
const DESCENT_SHARE: f64 = 0.8;
/// Share of aborts, or of blocked transactions, that leads to a cut.
const CUT_SHARE: f64 = 0.4;
/// So many samples in a row have to have it.
const CUT_SAMPLES: u32 = 3;
/// A share that a limit has at which a cut did not pay is tolerated, and so much more.
const TOLERANCE: f64 = 1.2;
/// Samples that make a block; the first after a change is not among them, nor are the first ones
/// after a lull: clients connect, and caches are cold.
const WINDOW: u32 = 3;
const SETTLE: u32 = 3;
/// Shortest and longest rest, in samples: at most some fifty seconds. What changes by much ends it
/// before.
const REST_MIN: u32 = 16;
const REST_MAX: u32 = 512;
/// A relative change of the rate that ends a rest, if it lasts for [`UPSET_SAMPLES`].
const UPSET: f64 = 0.25;
const UPSET_SAMPLES: u32 = 4;
/// How fast the tolerated share goes back to [`CUT_SHARE`], for each sample.
const FORGET: f64 = 0.998;

/// What was done in a stretch of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) committed_per_s: f64,
    /// Of all attempts.
    pub(super) aborted_share: f64,
    /// Of the open transactions, those that wait for a lock.
    pub(super) blocked_share: f64,
    /// Slots taken at its end.
    pub(super) active: u32,
    /// A notable share of the transactions had to wait for a slot.
    pub(super) binding: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Blocks at `from` and at `to` in pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Trial {
    from: u32,
    to: u32,
    direction: Direction,
    /// If it is a cut: the largest share that a sample at `from` had since.
    cut: Option<f64>,
    /// The rate of the present pair's first block, once there is one.
    first: Option<f64>,
    /// The rates of the last blocks.
    at_from: f64,
    at_to: f64,
    /// Of the gains so far, and of their squares. A gain is the logarithm of a ratio: so up and
    /// down are alike, and gains add up.
    sum: f64,
    squares: f64,
    pairs: u32,
}

impl Trial {
    /// A trial of `to` right after a block at `from`.
    fn new(from: u32, rate: f64, to: u32, direction: Direction) -> Trial {
        let (first, at_from) = (Some(rate), rate);
        Trial { from, to, direction, cut: None, first, at_from, at_to: 0.0, sum: 0.0, squares: 0.0, pairs: 0 }
    }

    /// A cut. What the rate and the share were before says nothing: it may have been a moment's.
    fn cut(from: u32, to: u32) -> Trial {
        Trial { cut: Some(0.0), first: None, ..Trial::new(from, 0.0, to, Direction::Down) }
    }

    /// A block at one of the limits has ended. True: so has a pair.
    fn block(&mut self, limit: u32, rate: f64) -> bool {
        if limit == self.to {
            self.at_to = rate;
        } else {
            self.at_from = rate;
        }
        if self.first.take().is_none() {
            self.first = Some(rate);
            return false;
        }
        let gain = (self.at_to / self.at_from.max(f64::MIN_POSITIVE)).ln().clamp(-GAIN_MAX, GAIN_MAX);
        self.sum += gain;
        self.squares += gain * gain;
        self.pairs += 1;
        true
    }

    /// The mean gain, and whether it is clear on which side of `threshold` it is; `None` as long as
    /// it is not and further pairs may tell.
    fn gain(&self, threshold: f64) -> Option<(f64, bool)> {
        let pairs = f64::from(self.pairs);
        let gain = self.sum / pairs;
        let spread = (self.squares - self.sum * gain).max(0.0) + SCATTER_PAIRS * SCATTER * SCATTER;
        let error = (spread / (SCATTER_PAIRS + pairs - 1.0) / pairs).sqrt();
        let clear = (gain - threshold).abs() > CLEAR * error;
        let most = if self.cut.is_some() { CUT_PAIRS_MAX } else { PAIRS_MAX };
        (clear || self.pairs >= most).then_some((gain, clear))
    }
}

/// What the present block is for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The rate at the limit it stands on.
    Measure,
    /// The rates at two limits, in turns.
    Try(Trial),
    /// The rates at lower and lower limits, a block each: `from` where, and the best one so far,
    /// with its rate.
    Descend { from: u32, best: Option<(u32, f64)> },
    /// Nothing, for so many samples.
    Rest { left: u32 },
}

/// See the module's prose.
#[derive(Debug)]
pub(super) struct Tuner {
    least: u32,
    most: u32,
    limit: u32,
    phase: Phase,
    direction: Direction,
    /// Trials in a row that did not pay.
    failures: u32,
    /// No step up has failed yet under this load.
    starting: bool,
    rest: u32,
    step: f64,
    /// The rate when it went to rest.
    settled: f64,
    /// What steps down have cost since the last one up, relative.
    behind: f64,
    tolerated: f64,
    /// Samples in a row with more than that.
    beyond: u32,
    /// Somebody had to wait for a slot in the last sample.
    binding: bool,
    /// Samples of the present block, and how many of them are skipped.
    samples: u32,
    skipped: u32,
    sum: f64,
    steps: u64,
    cuts: u64,
}

impl Tuner {
    /// A tuner for so many cores.
    pub(super) fn new(cores: u32) -> Tuner {
        let cores = cores.max(1);
        Tuner {
            least: cores,
            most: cores.saturating_mul(PER_CORE_MAX),
            limit: cores.saturating_mul(PER_CORE_START),
            phase: Phase::Measure,
            direction: Direction::Up,
            failures: 0,
            starting: true,
            rest: REST_MIN,
            step: STEP,
            settled: 0.0,
            behind: 0.0,
            tolerated: CUT_SHARE,
            beyond: 0,
            binding: true,
            samples: 0,
            skipped: 1,
            sum: 0.0,
            steps: 0,
            cuts: 0,
        }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Goes on where it was, after a time in which it did not set the limit; the limit. The pair
    /// that was being compared is measured anew, and if the load has become another one meanwhile,
    /// its rate ends the rest.
    pub(super) fn resume(&mut self) -> u32 {
        match self.phase {
            Phase::Rest { .. } => self.samples = 0,
            Phase::Try(trial) => {
                self.limit = trial.from;
                self.begin(Phase::Try(Trial { first: None, ..trial }));
            }
            // If it is still necessary, it begins again.
            Phase::Descend { from, .. } => {
                self.limit = from;
                self.begin(Phase::Measure);
            }
            Phase::Measure => self.begin(Phase::Measure),
        }
        self.limit
    }

    /// There was a lull: what is being measured is measured anew, and what was measured before it
    /// counts.
    pub(super) fn interrupt(&mut self) {
        (self.samples, self.skipped, self.sum) = (0, SETTLE, 0.0);
    }

    /// Takes a sample; the limit from now on.
    pub(super) fn observe(&mut self, sample: Sample) -> u32 {
        self.tolerated = CUT_SHARE + (self.tolerated - CUT_SHARE) * FORGET;
        let share = sample.aborted_share.max(sample.blocked_share);
        self.beyond = if share > self.tolerated { self.beyond + 1 } else { 0 };
        if self.beyond >= CUT_SAMPLES && self.cut(sample) {
            self.beyond = 0;
            return self.limit;
        }
        // What is tried may turn out to be as good as no limit; its rate counts all the same.
        if !sample.binding && !matches!(self.phase, Phase::Try(_) | Phase::Descend { .. }) {
            self.begin(Phase::Measure);
            return self.limit;
        }
        self.binding = sample.binding;
        if let Phase::Rest { left } = self.phase {
            self.rest(sample.committed_per_s, left);
            return self.limit;
        }
        self.samples += 1;
        let counted = self.samples.saturating_sub(self.skipped);
        if counted > 0 {
            self.sum += sample.committed_per_s;
            if let Phase::Try(Trial { from, cut: Some(largest), .. }) = &mut self.phase
                && *from == self.limit
            {
                *largest = largest.max(share);
            }
        }
        if counted >= WINDOW {
            self.measured(self.sum / f64::from(counted));
        }
        self.limit
    }

    /// A block has ended.
    fn measured(&mut self, rate: f64) {
        match self.phase {
            Phase::Measure => self.try_from(rate),
            Phase::Try(mut trial) => {
                if trial.block(self.limit, rate) {
                    self.weigh(trial);
                } else {
                    self.limit = if self.limit == trial.to { trial.from } else { trial.to };
                    self.begin(Phase::Try(trial));
                }
            }
            Phase::Descend { from, best } => self.descend(from, best, rate),
            Phase::Rest { .. } => {}
        }
    }

    /// A block of a descent has ended: the next one, or the trial of the best.
    fn descend(&mut self, from: u32, best: Option<(u32, f64)>, rate: f64) {
        let best = best.filter(|(_, best)| *best >= rate).unwrap_or((self.limit, rate));
        let next = ((f64::from(self.limit) * CUT) as u32).max(self.least);
        // The share was too large in all of the block.
        let lasts = self.beyond >= WINDOW;
        if lasts && rate >= DESCENT_SHARE * best.1 && next < self.limit {
            self.limit = next;
            self.begin(Phase::Descend { from, best: Some(best) });
        } else {
            self.limit = best.0;
            self.begin(Phase::Try(Trial::cut(from, best.0)));
        }
    }

    /// Goes on with a trial, or ends it.
    fn weigh(&mut self, trial: Trial) {
        let threshold = match trial.direction {
            Direction::Up if self.starting => -DEAD_BAND,
            Direction::Up => DEAD_BAND,
            Direction::Down => self.behind - DOWN_BAND,
        };
        let Some((gain, clear)) = trial.gain(threshold) else {
            // The next pair begins where this one ends.
            self.begin(Phase::Try(trial));
            self.skipped = 0;
            return;
        };
        let ended_at = self.limit;
        // Down only if it is clear that it costs nothing: throughput comes before latency.
        if gain < threshold || (trial.direction == Direction::Down && !clear) {
            self.limit = trial.from;
            match trial.cut {
                Some(share) => {
                    self.tolerated = (share * TOLERANCE).max(CUT_SHARE);
                    self.begin(Phase::Measure);
                }
                None => self.turn(trial.at_from),
            }
            return;
        }
        if trial.cut.is_some() {
            (self.starting, self.direction) = (false, Direction::Down);
        }
        self.limit = trial.from;
        self.move_to(trial.to);
        self.behind = match trial.direction {
            Direction::Up => 0.0,
            Direction::Down => (self.behind - gain).max(0.0),
        };
        self.failures = 0;
        if self.step >= STEP {
            self.rest = REST_MIN;
        }
        if self.binding && ended_at == trial.to {
            self.try_from(trial.at_to);
        } else {
            self.begin(Phase::Measure);
        }
    }

    /// A direction did not pay: the other one, or a rest if that did not, either.
    fn turn(&mut self, rate: f64) {
        self.failures += 1;
        self.starting = false;
        self.direction = match self.direction {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        };
        if self.failures < 2 {
            self.begin(Phase::Measure);
        } else {
            self.failures = 0;
            self.settled = rate;
            self.step = if self.step > STEP_MIN { self.step.sqrt().max(STEP_MIN) } else { STEP };
            self.begin(Phase::Rest { left: self.rest });
            self.rest = (self.rest * 2).min(REST_MAX);
        }
    }

    /// Tries a step from here, where the rate is known.
    fn try_from(&mut self, rate: f64) {
        let from = self.limit;
        let step = |factor: f64| (f64::from(from) * factor).round() as u32;
        let to = match self.direction {
            Direction::Up => step(self.step).max(from + 1).min(self.most),
            Direction::Down => step(1.0 / self.step).min(from - 1).max(self.least),
        };
        if to == from {
            self.turn(rate);
            return;
        }
        self.limit = to;
        let direction = self.direction;
        self.begin(Phase::Try(Trial::new(from, rate, to, direction)));
    }

    fn rest(&mut self, rate: f64, left: u32) {
        let upset = (rate / self.settled.max(f64::MIN_POSITIVE) - 1.0).abs() > UPSET;
        self.samples = if upset { self.samples + 1 } else { 0 };
        if self.samples >= UPSET_SAMPLES {
            self.forget();
        } else if left > 1 {
            self.phase = Phase::Rest { left: left - 1 };
        } else {
            self.begin(Phase::Measure);
        }
    }

    /// Cuts the limit, or undoes the step up that is being tried if the rate is lower there; false
    /// if it does not, if a cut is being tried, or if the limit is as low as can be already.
    fn cut(&mut self, sample: Sample) -> bool {
        let from = match self.phase {
            Phase::Descend { .. } | Phase::Try(Trial { cut: Some(_), .. }) => return false,
            Phase::Try(Trial { from, to, at_from, direction: Direction::Up, .. }) if to == self.limit => {
                let counted = self.samples.saturating_sub(self.skipped);
                if self.sum >= f64::from(counted) * at_from * (1.0 - DEAD_BAND) {
                    return false;
                }
                // It was the step up that did it.
                self.limit = from;
                self.turn(at_from);
                return true;
            }
            Phase::Try(Trial { from, .. }) => from,
            Phase::Measure | Phase::Rest { .. } => self.limit,
        };
        let used = if sample.binding { from } else { from.min(sample.active.max(self.least)) };
        let to = ((f64::from(used) * CUT) as u32).max(self.least);
        if to >= from {
            return false;
        }
        self.cuts += 1;
        self.limit = to;
        self.begin(Phase::Descend { from, best: None });
        true
    }

    /// The load is another one.
    fn forget(&mut self) {
        self.behind = 0.0;
        self.failures = 0;
        self.starting = true;
        self.direction = Direction::Up;
        self.rest = REST_MIN;
        self.step = STEP;
        self.begin(Phase::Measure);
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        (self.samples, self.skipped, self.sum) = (0, 1, 0.0);
    }

    fn move_to(&mut self, limit: u32) {
        if limit != self.limit {
            self.steps += 1;
            self.limit = limit;
        }
    }
}
