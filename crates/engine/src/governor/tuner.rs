//! The tuner: finds the limit with the best throughput. Pure: samples in, a limit out.
//!
//! *Climbing.* It measures the rate of commits at the limit it stands on, tries another one a step up or down, and moves there if that pays.
//! What counts as paying has a *dead band*, because a rate is never twice the same:
//!
//! - up, only if the rate gets better by more than the band: more slots mean longer waits, so they have to be worth something;
//! - down, unless the rate falls below the best one known by more than the band. On a plateau it therefore goes to the left end: the
//!   peak of the throughput is not yet the best place for latency. It compares with the *best* rate, not with the last one, so that many
//!   small losses cannot add up to a large one.
//!
//! ```text
//! rate │        ┌──────────            1  up pays:  8 → 12 → 18 → 27
//!      │      ／            ＼         2  40 does not: back to 27, rest
//!      │    ／     ▲          ＼       3  18 is within the band of the best: 18
//!      │  ／     18 ◀─ 27 ✗ 40  ＼     4  12 is not: back to 18, rest for longer
//!      └──────────────────────────── limit
//! ```
//!
//! When neither direction pays, it *rests*, longer each time, since trying costs throughput, and tries finer steps afterwards, for a sharp peak,
//! and in the end coarse ones again, for a gentle slope; a rate that changes by much ends the rest.
//!
//! *Cutting.* If more than a [`share`](CUT_SHARE) of the attempts abort, or of the transactions wait for locks, the system may be
//! thrashing, and climbing down step by step would take too long: the limit is halved at once. Some loads have such shares at their best limit, too. So
//! a cut is itself a trial: if the rate is lower afterwards, it is undone, and for a while only a larger share leads to another one.
//!
//! *No evidence, no move.* A sample in which nobody waited for a slot says nothing about the limit.
//!
//! Bounds: never below the number of cores, never above [`PER_CORE_MAX`] for each; it begins at [`PER_CORE_START`].

/// Slots for each core at the start.
const PER_CORE_START: u32 = 4;
/// Most slots for each core.
const PER_CORE_MAX: u32 = 256;
/// Relative change of the rate that counts as none.
const DEAD_BAND: f64 = 0.03;
/// Factor of a step: the first, and the finest.
const STEP: f64 = 1.5;
const STEP_MIN: f64 = 1.1;
/// Factor of a cut.
const CUT: f64 = 0.5;
/// Share of aborts, or of blocked transactions, that leads to a cut.
const CUT_SHARE: f64 = 0.4;
/// Samples that make a measurement; the first after a change is not among them.
const WINDOW: u32 = 4;
/// Longest rest, in samples.
const REST_MAX: u32 = 64;
/// A change of the rate by this many dead bands ends a rest.
const UPSET: f64 = 5.0;
/// How fast the best rate fades, for each sample.
const FADE: f64 = 0.9998;
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
    /// Somebody waited for a slot most of the time.
    pub(super) binding: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// What the present measurement is for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The rate at the limit it stands on.
    Measure,
    /// The rate a step away from `from`, where it was `rate`.
    Try { from: u32, rate: f64, direction: Direction },
    /// The rate after a cut from `from`, where it was `rate` and the share `share`.
    Cut { from: u32, rate: f64, share: f64 },
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
    rest: u32,
    step: f64,
    /// The rate when it went to rest.
    settled: f64,
    best: f64,
    tolerated: f64,
    /// Samples of the present measurement; the first is skipped.
    samples: u32,
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
            rest: 4,
            step: STEP,
            settled: 0.0,
            best: 0.0,
            tolerated: CUT_SHARE,
            samples: 0,
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

    /// Begins anew where it stands; the limit.
    pub(super) fn restart(&mut self) -> u32 {
        self.give_up_trial();
        self.forget();
        self.limit
    }

    /// Takes a sample; the limit from now on.
    pub(super) fn observe(&mut self, sample: Sample) -> u32 {
        self.best *= FADE;
        self.tolerated = CUT_SHARE + (self.tolerated - CUT_SHARE) * FORGET;
        let share = sample.aborted_share.max(sample.blocked_share);
        if share > self.tolerated && !matches!(self.phase, Phase::Cut { .. }) && self.cut(sample, share) {
            return self.limit;
        }
        if !sample.binding {
            self.give_up_trial();
            return self.limit;
        }
        if let Phase::Rest { left } = self.phase {
            self.rest(sample.committed_per_s, left);
            return self.limit;
        }
        self.samples += 1;
        if self.samples > 1 {
            self.sum += sample.committed_per_s;
        }
        if self.samples > WINDOW {
            let rate = self.sum / f64::from(WINDOW);
            self.measured(rate);
        }
        self.limit
    }

    fn measured(&mut self, rate: f64) {
        match self.phase {
            Phase::Measure => {
                self.best = self.best.max(rate);
                self.try_from(rate);
            }
            Phase::Try { from, rate: before, direction } => self.judge(from, before, direction, rate),
            Phase::Cut { from, rate: before, share } => {
                if rate < before * (1.0 - DEAD_BAND) {
                    self.tolerated = share * 1.2;
                    self.move_to(from);
                } else {
                    self.best = rate;
                }
                self.direction = Direction::Down;
                self.begin(Phase::Measure);
            }
            Phase::Rest { .. } => {}
        }
    }

    /// A trial is over.
    fn judge(&mut self, from: u32, before: f64, direction: Direction, rate: f64) {
        let pays = match direction {
            Direction::Up => rate > before * (1.0 + DEAD_BAND),
            Direction::Down => rate >= self.best.max(before) * (1.0 - DEAD_BAND),
        };
        self.best = self.best.max(rate);
        if pays {
            self.failures = 0;
            self.rest = 4;
            self.try_from(rate);
            return;
        }
        self.move_to(from);
        self.turn(before);
    }

    /// A direction did not pay: the other one, or a rest if that did not, either.
    fn turn(&mut self, rate: f64) {
        self.failures += 1;
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
        self.move_to(to);
        self.begin(Phase::Try { from, rate, direction: self.direction });
    }

    fn rest(&mut self, rate: f64, left: u32) {
        let upset = (rate / self.settled.max(f64::MIN_POSITIVE) - 1.0).abs() > UPSET * DEAD_BAND;
        self.samples = if upset { self.samples + 1 } else { 0 };
        if self.samples >= 3 {
            self.forget();
        } else if left > 1 {
            self.phase = Phase::Rest { left: left - 1 };
        } else {
            self.begin(Phase::Measure);
        }
    }

    /// Cuts the limit, or undoes the step up that was being tried; false if it is as low as can be already.
    fn cut(&mut self, sample: Sample, share: f64) -> bool {
        if let Phase::Try { from, rate, direction: Direction::Up } = self.phase {
            // It was the step up that did it.
            self.move_to(from);
            self.turn(rate);
            return true;
        }
        let from = self.limit;
        let used = if sample.binding { from } else { from.min(sample.active.max(self.least)) };
        let to = ((f64::from(used) * CUT) as u32).max(self.least);
        if to >= from {
            return false;
        }
        self.cuts += 1;
        self.move_to(to);
        self.begin(Phase::Cut { from, rate: sample.committed_per_s, share });
        true
    }

    /// Back to where the trial began.
    fn give_up_trial(&mut self) {
        if let Phase::Try { from, .. } = self.phase {
            self.move_to(from);
        }
        if !matches!(self.phase, Phase::Measure) {
            self.begin(Phase::Measure);
        }
        (self.samples, self.sum) = (0, 0.0);
    }

    /// The load is another one.
    fn forget(&mut self) {
        self.best = 0.0;
        self.failures = 0;
        self.rest = 4;
        self.step = STEP;
        self.begin(Phase::Measure);
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        (self.samples, self.sum) = (0, 0.0);
    }

    fn move_to(&mut self, limit: u32) {
        if limit != self.limit {
            self.steps += 1;
            self.limit = limit;
        }
    }
}
