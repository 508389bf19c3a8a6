//! The tuner against simulated systems, the gate and the seats under any order of events.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use cognate_env::SplitMix;
use proptest::prelude::*;

use super::gate::RESUMED_IN_A_ROW;
use super::tuner::{Sample, Tuner};
use super::{ActiveLimit, Governor, Readings, Seat, Seen, TICK, Tuning};

/// Throughput and share of aborts at a limit.
type System = fn(f64) -> (f64, f64);

const SYSTEMS: [(&str, System); 6] = [
    ("peak", peak),
    ("plateau", plateau),
    ("thrashing", thrashing),
    ("hot", hot),
    ("rows", rows),
    ("gentle", gentle),
];

/// How much a machine's rates scatter from sample to sample, and how far they drift: relative, to
/// both sides.
#[derive(Clone, Copy)]
struct Noise {
    scatter: f64,
    drift: f64,
}

/// Runs the tuner against a system with noise and clients without number. The limits, one for each
/// sample.
fn run(system: System, noise: Noise, seed: u64, samples: usize) -> Vec<u32> {
    let mut random = SplitMix::new(seed);
    let mut tuner = Tuner::new(2);
    let mut drift: f64 = 0.0;
    (0..samples)
        .map(|_| {
            let limit = tuner.limit();
            drift = (drift + noise.drift * 0.1 * either_way(&mut random)).clamp(-noise.drift, noise.drift);
            let mut sample = sample(system, noise, limit, &mut random);
            sample.committed_per_s *= 1.0 + drift;
            tuner.observe(sample);
            limit
        })
        .collect()
}

/// What one sample at a limit shows, but for the drift.
fn sample(system: System, noise: Noise, limit: u32, random: &mut SplitMix) -> Sample {
    let (rate, aborted_share) = system(f64::from(limit));
    let committed_per_s = rate * (1.0 + noise.scatter * either_way(random));
    Sample { committed_per_s, aborted_share, blocked_share: 0.0, active: limit, binding: true }
}

/// From -1 to 1.
fn either_way(random: &mut SplitMix) -> f64 {
    2.0 * ((random.bits() >> 11) as f64 / (1u64 << 53) as f64) - 1.0
}

/// Mean throughput of the last half as a share of the best fixed limit's.
fn share_of_best(system: System, limits: &[u32]) -> f64 {
    let best = (2..=512).map(|limit| system(f64::from(limit)).0).fold(0.0, f64::max);
    let half = &limits[limits.len() / 2..];
    let mean = half.iter().map(|&limit| system(f64::from(limit)).0).sum::<f64>() / half.len() as f64;
    mean / best
}

/// As Gunther's law: linear at first, then contention, then a cost that grows with the square.
fn peak(limit: f64) -> (f64, f64) {
    (1000.0 * limit / (1.0 + 0.02 * limit + 0.0006 * limit * limit), 0.01)
}

/// Rises to a plateau.
fn plateau(limit: f64) -> (f64, f64) {
    (1000.0 * limit.min(24.0), 0.0)
}

/// Beyond 30 transactions, most of the work is thrown away.
fn thrashing(limit: f64) -> (f64, f64) {
    let aborted = (limit / 60.0).min(0.95);
    (400.0 * limit.min(20.0) * (1.0 - aborted), aborted)
}

/// Most attempts abort whatever the limit is, and more transactions commit more.
fn hot(limit: f64) -> (f64, f64) {
    (1000.0 * limit.min(40.0), 0.6)
}

/// A few rows that all want: a sharp peak at a small limit.
fn rows(limit: f64) -> (f64, f64) {
    let off = (limit / 4.0).log2();
    let rate = 5000.0 * (1.0 - if off < 0.0 { 0.16 * off * off } else { 0.05 * off + 0.03 * off * off });
    (rate.max(100.0), (0.05 * limit.powf(0.8)).min(0.95))
}

/// Each doubling gives a little.
fn gentle(limit: f64) -> (f64, f64) {
    (9000.0 * (1.0 + 0.06 * (limit.min(400.0) / 8.0).log2()), 0.01)
}

/// The same whatever the limit is.
fn flat(_: f64) -> (f64, f64) {
    (20_000.0, 0.0)
}

#[test]
fn it_settles_near_the_best_fixed_limit() {
    println!("seeds 1 to 20");
    settles(Noise { scatter: 0.03, drift: 0.0 }, 0.95, 0.96);
}

#[test]
fn a_machine_that_drifts_does_not_lead_it_away() {
    println!("seeds 1 to 20");
    settles(Noise { scatter: 0.10, drift: 0.20 }, 0.85, 0.96);
}

#[test]
fn a_machine_that_is_shared_does_not_lead_it_away() {
    println!("seeds 1 to 20");
    settles(Noise { scatter: 0.2, drift: 0.4 }, 0.7, 0.91);
}

/// Each run of each system reaches `least` of the best fixed limit, and all of one system together
/// `mean`.
fn settles(noise: Noise, least: f64, mean: f64) {
    for (name, system) in SYSTEMS {
        let shares = (1..=20).map(|seed| {
            let limits = run(system, noise, seed, 600);
            let share = share_of_best(system, &limits);
            assert!(share >= least, "{name}, seed {seed}: {share:.3} of the best, {:?}", &limits[500..]);
            share
        });
        let reached = shares.sum::<f64>() / 20.0;
        assert!(reached >= mean, "{name}: {reached:.3} of the best");
    }
}

#[test]
fn interruptions_do_not_lead_it_away() {
    println!("seeds 1 to 20");
    let noise = Noise { scatter: 0.03, drift: 0.0 };
    for (name, system) in SYSTEMS {
        for seed in 1..=20 {
            let (mut limits, mut random) = (Vec::new(), SplitMix::new(seed));
            let mut tuner = Tuner::new(2);
            for nth in 0..800 {
                let limit = if nth >= 200 && nth % 30 == 0 { tuner.resume() } else { tuner.limit() };
                limits.push(limit);
                tuner.observe(sample(system, noise, limit, &mut random));
            }
            let share = share_of_best(system, &limits);
            assert!(share >= 0.94, "{name}, seed {seed}: {share:.3} of the best, {:?}", &limits[400..]);
        }
    }
}

#[test]
fn a_plateau_is_left_at_its_near_end() {
    for seed in 1..=20 {
        let limits = run(plateau, Noise { scatter: 0.01, drift: 0.0 }, seed, 900);
        let high = limits[600..].iter().filter(|&&limit| limit > 48).count();
        assert!(high < 30, "seed {seed}: {:?}", &limits[600..]);
    }
}

#[test]
fn noise_within_the_dead_band_moves_little() {
    for seed in 1..=20 {
        let limits = run(flat, Noise { scatter: 0.02, drift: 0.0 }, seed, 1000);
        let moves = limits[500..].windows(2).filter(|pair| pair[0] != pair[1]).count();
        // A trial that is not clear moves six times.
        assert!(moves <= 120, "seed {seed}: {moves} moves in 500 samples");
    }
}

#[test]
fn lasting_thrashing_is_cut() {
    let mut tuner = Tuner::new(2);
    let calm = |tuner: &Tuner| Sample {
        committed_per_s: f64::from(tuner.limit()),
        aborted_share: 0.0,
        blocked_share: 0.0,
        active: tuner.limit(),
        binding: true,
    };
    while tuner.limit() < 100 {
        let sample = calm(&tuner);
        tuner.observe(sample);
    }
    for blocked in [false, true] {
        let (before, cuts) = (tuner.limit(), tuner.cuts());
        // What did not pay once takes a larger share the next time.
        let share = |wanted: bool| {
            if !wanted {
                0.0
            } else if blocked {
                0.95
            } else {
                0.7
            }
        };
        let (aborted_share, blocked_share) = (share(!blocked), share(blocked));
        let sample = Sample { committed_per_s: 1.0, aborted_share, blocked_share, ..calm(&tuner) };
        // The first three may only undo a step up that was being tried.
        for _ in 0..6 {
            tuner.observe(sample);
        }
        assert_eq!(tuner.cuts(), cuts + 1, "blocked: {blocked}");
        assert!(tuner.limit() <= before / 2, "blocked: {blocked}, {before} to {}", tuner.limit());
        while tuner.cuts() == cuts + 1 && tuner.limit() < before {
            let sample = calm(&tuner);
            tuner.observe(sample);
        }
    }
}

/// A load whose rate is as bad at half of a limit that is far too high: 400 clients after a load
/// that was best without a limit.
#[test]
fn it_comes_down_from_far_beyond_the_peak() {
    fn cliff(limit: f64) -> (f64, f64) {
        let off = (limit / 6.0).log2().max(0.0);
        ((5000.0 - 1200.0 * off).max(1500.0) * (limit / 4.0).min(1.0), (0.15 * limit.sqrt()).min(0.88))
    }
    println!("seeds 1 to 20");
    let noise = Noise { scatter: 0.15, drift: 0.0 };
    for seed in 1..=20 {
        let mut random = SplitMix::new(seed);
        let mut tuner = Tuner::new(2);
        for _ in 0..600 {
            let sample = sample(gentle, Noise { scatter: 0.01, ..noise }, tuner.limit(), &mut random);
            tuner.observe(sample);
        }
        assert!(tuner.limit() > 100, "seed {seed}: {}", tuner.limit());
        let limits: Vec<u32> = (0..600)
            .map(|_| {
                let active = tuner.limit().min(400);
                let sample = Sample {
                    active,
                    binding: tuner.limit() < 400,
                    ..sample(cliff, noise, active, &mut random)
                };
                tuner.observe(sample)
            })
            .collect();
        let share = share_of_best(cliff, &limits);
        assert!(share >= 0.85, "seed {seed}: {share:.3} of the best, {limits:?}");
    }
}

/// One transaction is left in doubt, and nearly all that come after it wait for it: a moment, until
/// a sibling answers, or longer.
#[test]
fn a_stall_does_not_cut_and_a_long_one_does_not_for_long() {
    println!("seeds 1 to 20");
    let noise = Noise { scatter: 0.1, drift: 0.0 };
    for ((name, system), length) in SYSTEMS.into_iter().flat_map(|system| [(system, 2), (system, 10)]) {
        for seed in 1..=20 {
            let mut random = SplitMix::new(seed);
            let mut tuner = Tuner::new(2);
            let mut go_on = |samples: usize, share_of_rate: f64, blocked_share: Option<f64>| {
                let rates = (0..samples).map(|_| {
                    let limit = tuner.limit();
                    let mut sample = sample(system, noise, limit, &mut random);
                    sample.committed_per_s *= share_of_rate;
                    sample.blocked_share = blocked_share.unwrap_or(sample.blocked_share);
                    tuner.observe(sample);
                    system(f64::from(limit)).0
                });
                let sum: f64 = rates.sum();
                (sum / samples as f64, tuner.cuts())
            };
            go_on(600, 1.0, None);
            let (before, cuts) = go_on(40, 1.0, None);
            let (_, during) = go_on(length, 0.1, Some(0.95));
            // The others have such shares, or nearly, at their best limits, so cuts are tried now
            // and then anyway.
            if length == 2 && system(8.0).1 < 0.1 {
                assert_eq!(during, cuts, "{name}, seed {seed}");
            }
            go_on(20, 1.0, None);
            let (after, _) = go_on(40, 1.0, None);
            assert!(
                after >= 0.85 * before,
                "{name}, {length} samples, seed {seed}: {after:.0} after {before:.0}"
            );
        }
    }
}

#[test]
fn it_stays_within_its_bounds_and_does_not_move_without_evidence() {
    for cores in [1, 2, 8] {
        let mut random = SplitMix::new(u64::from(cores));
        let mut tuner = Tuner::new(cores);
        assert_eq!(tuner.limit(), 4 * cores);
        for _ in 0..5000 {
            let sample = Sample {
                committed_per_s: (random.bits() % 10_000) as f64,
                aborted_share: (random.bits() % 100) as f64 / 100.0,
                blocked_share: 0.0,
                active: (random.bits() % 1000) as u32,
                binding: random.bits().is_multiple_of(2),
            };
            let limit = tuner.observe(sample);
            assert!((cores..=256 * cores).contains(&limit), "{limit}");
        }
        let before = tuner.resume();
        for _ in 0..100 {
            let sample = Sample {
                committed_per_s: 1.0,
                aborted_share: 0.0,
                blocked_share: 0.0,
                active: 1,
                binding: false,
            };
            assert_eq!(tuner.observe(sample), before);
        }
    }
}

/// Clients that come for most of a second at a time, with pauses in which hardly anything happens:
/// the limits of the ticks at which they were there.
fn bursts(system: System, seed: u64, count: u32) -> Vec<u32> {
    let mut random = SplitMix::new(seed);
    let mut tuning = Tuning::new(ActiveLimit::Auto, 2);
    let (mut now, mut readings, mut seen) = (Duration::ZERO, Readings::default(), Seen::default());
    let (mut limits, mut committed, mut conflicts) = (Vec::new(), 0.0, 0.0);
    for _ in 0..count {
        for tick in 0..160 + random.below(400) {
            let busy = tick < 160;
            now += TICK;
            readings.flushes += 10;
            readings.flush_us += 2_000;
            let limit = tuning.tuner.limit();
            if busy {
                let (rate, aborted) = system(f64::from(limit));
                // Whoever has just connected is slow.
                let warm = if tick < 40 { 0.8 } else { 1.0 };
                let come = warm * rate * TICK.as_secs_f64() * (1.0 + 0.15 * either_way(&mut random));
                committed += come;
                conflicts += come * aborted / (1.0 - aborted);
                seen.queued = committed as u64;
                limits.push(limit);
            } else {
                // Somebody looks now and then.
                committed += f64::from(u8::from(tick % 10 == 0));
            }
            (seen.active, seen.waiting) = if busy { (limit, 40) } else { (0, 0) };
            (readings.committed, seen.conflicts) = (committed as u64, conflicts as u64);
            tuning.tick(now, readings, seen);
        }
    }
    limits
}

#[test]
fn pauses_between_bursts_do_not_lead_it_away() {
    println!("seeds 1 to 20");
    for (name, system) in SYSTEMS {
        let shares = (1..=20).map(|seed| {
            let limits = bursts(system, seed, 160);
            let share = share_of_best(system, &limits);
            assert!(share >= 0.9, "{name}, seed {seed}: {share:.3} of the best");
            share
        });
        let reached = shares.sum::<f64>() / 20.0;
        assert!(reached >= 0.95, "{name}: {reached:.3} of the best");
    }
}

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn governor(limit: u32) -> Arc<Governor> {
    Arc::new(Governor::new(ActiveLimit::Fixed(limit), 2))
}

fn poll<F: Future<Output = ()>>(future: &mut Pin<Box<F>>, waker: &Waker) -> bool {
    future.as_mut().poll(&mut Context::from_waker(waker)) == Poll::Ready(())
}

/// Two ticks in which nobody counts anything.
fn two_ticks(governor: &Governor) {
    for _ in 0..2 {
        governor.tick(Duration::ZERO, Readings::default);
    }
}

#[test]
fn who_comes_first_is_served_first_and_who_resumes_before_newcomers() {
    let governor = governor(1);
    let waker = Waker::from(Arc::new(Woken::default()));
    let seats: Vec<Seat> = (0..5).map(|_| governor.seat()).collect();
    assert!(seats[0].try_go());
    let order = [(1, false), (2, false), (3, true), (4, true)];
    let mut waits: Vec<_> =
        order.iter().map(|&(seat, resuming)| (seat, Box::pin(seats[seat].go(resuming)))).collect();
    assert!(waits.iter_mut().all(|(_, wait)| !poll(wait, &waker)));
    let mut running = 0;
    for expected in [3, 4, 1, 2] {
        seats[running].leave();
        let ready: Vec<usize> =
            waits.iter_mut().filter_map(|(seat, wait)| poll(wait, &waker).then_some(*seat)).collect();
        assert_eq!(ready, [expected]);
        waits.retain(|(seat, _)| *seat != expected);
        running = expected;
    }
    assert_eq!(governor.info().admitted, 5);
}

#[test]
fn a_long_pause_costs_the_slot_only_if_somebody_wants_it() {
    let governor = governor(1);
    let waker = Waker::from(Arc::new(Woken::default()));
    let (idle, other) = (governor.seat(), governor.seat());
    assert!(idle.try_go());
    idle.pause();
    two_ticks(&governor);
    assert!(idle.try_go(), "nobody wanted it");
    idle.pause();
    let mut wait = Box::pin(other.go(false));
    assert!(!poll(&mut wait, &waker), "a short wait counts");
    two_ticks(&governor);
    assert!(poll(&mut wait, &waker));
    assert!(!idle.try_go());
    assert_eq!(governor.info().given_back, 1);
    idle.leave();
    assert_eq!(governor.info().active, 1, "what was taken away is not given back again");
}

#[test]
fn a_change_of_the_limit_lets_waiters_in() {
    let governor = governor(1);
    let waker = Waker::from(Arc::new(Woken::default()));
    let (one, two) = (governor.seat(), governor.seat());
    assert!(one.try_go());
    let mut wait = Box::pin(two.go(false));
    assert!(!poll(&mut wait, &waker));
    governor.set_limit(ActiveLimit::Off);
    assert!(poll(&mut wait, &waker));
    assert_eq!((governor.info().limit, governor.info().active), (None, 2));
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// Goes on, as newcomer or resuming.
    Go(usize, bool),
    /// Is polled again.
    Poll(usize),
    /// Gives up waiting.
    Drop(usize),
    Pause(usize),
    Leave(usize),
    Tick,
    Limit(u32),
}

fn event() -> impl Strategy<Value = Event> {
    let seat = 0..12usize;
    prop_oneof![
        4 => (seat.clone(), any::<bool>()).prop_map(|(seat, resuming)| Event::Go(seat, resuming)),
        3 => seat.clone().prop_map(Event::Poll),
        1 => seat.clone().prop_map(Event::Drop),
        2 => seat.clone().prop_map(Event::Pause),
        3 => seat.prop_map(Event::Leave),
        1 => Just(Event::Tick),
        1 => (1..6u32).prop_map(Event::Limit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, slots are neither lost nor made, and everybody who keeps waiting is let in
    /// by the end.
    #[test]
    fn slots_are_never_lost(events in prop::collection::vec(event(), 1..200)) {
        let governor = governor(3);
        let waker = Waker::from(Arc::new(Woken::default()));
        let seats: Vec<Seat> = (0..12).map(|_| governor.seat()).collect();
        let mut waits: Vec<Option<Pin<Box<_>>>> = (0..12).map(|_| None).collect();
        let mut limit = 3;
        for event in events {
            match event {
                Event::Go(seat, resuming) if waits[seat].is_none() => {
                    let mut wait = Box::pin(seats[seat].go(resuming));
                    if !poll(&mut wait, &waker) {
                        waits[seat] = Some(wait);
                    }
                }
                Event::Poll(seat) if waits[seat].as_mut().is_some_and(|wait| poll(wait, &waker)) => {
                    waits[seat] = None;
                }
                Event::Drop(seat) => waits[seat] = None,
                Event::Pause(seat) if waits[seat].is_none() => seats[seat].pause(),
                Event::Leave(seat) if waits[seat].is_none() => seats[seat].leave(),
                Event::Tick => governor.tick(Duration::ZERO, Readings::default),
                Event::Limit(new) => {
                    governor.set_limit(ActiveLimit::Fixed(new));
                    limit = new;
                }
                _ => {}
            }
            let info = governor.info();
            let queued = waits.iter().flatten().count() as u32;
            prop_assert!(info.waiting <= queued);
            prop_assert!(info.waiting == 0 || info.active >= limit, "a slot is free and {} wait", info.waiting);
        }
        // Everybody who waits is let in once the others leave.
        for _ in 0..=12 {
            for (seat, wait) in seats.iter().zip(&mut waits) {
                if wait.as_mut().is_none_or(|wait| poll(wait, &waker)) {
                    *wait = None;
                    seat.leave();
                }
            }
        }
        prop_assert!(waits.iter().all(Option::is_none));
        prop_assert_eq!((governor.info().active, governor.info().waiting), (0, 0));
    }

    /// However many resume, a newcomer is let in after a bounded number of them, and each class in
    /// its order.
    #[test]
    fn nobody_starves(newcomers in 1..10usize, resuming in 0..200usize) {
        let governor = governor(1);
        let waker = Waker::from(Arc::new(Woken::default()));
        let holder = governor.seat();
        prop_assert!(holder.try_go());
        let seats: Vec<Seat> = (0..newcomers + resuming).map(|_| governor.seat()).collect();
        let mut waits: Vec<_> = seats
            .iter()
            .enumerate()
            .map(|(index, seat)| (index, Box::pin(seat.go(index >= newcomers))))
            .collect();
        for (_, wait) in &mut waits {
            prop_assert!(!poll(wait, &waker));
        }
        let mut order = Vec::new();
        let mut running = &holder;
        while !waits.is_empty() {
            running.leave();
            let at = waits.iter_mut().position(|(_, wait)| poll(wait, &waker)).expect("one is let in");
            let (index, _) = waits.remove(at);
            running = &seats[index];
            order.push(index);
        }
        for (nth, newcomer) in (0..newcomers).enumerate() {
            let place = order.iter().position(|&index| index == newcomer).expect("was let in");
            prop_assert!(place <= (nth + 1) * (RESUMED_IN_A_ROW as usize + 1), "{order:?}");
        }
        for class in [0..newcomers, newcomers..newcomers + resuming] {
            let of_class: Vec<usize> = order.iter().copied().filter(|index| class.contains(index)).collect();
            prop_assert!(of_class.is_sorted());
        }
    }
}

/// Threads enter, pause and leave as fast as they can while another one ticks and changes the
/// limit.
#[test]
fn threads_never_lose_a_slot() {
    let seed = 7;
    println!("seed {seed}");
    let governor = governor(2);
    let done = AtomicU64::new(0);
    let served: BTreeSet<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6u64)
            .map(|worker| {
                let (governor, done) = (&governor, &done);
                scope.spawn(move || {
                    let mut random = SplitMix::new(seed + worker);
                    let seat = governor.seat();
                    for round in 0..2000 {
                        block_on(seat.go(round % 3 == 0));
                        if random.bits().is_multiple_of(4) {
                            seat.pause();
                            std::thread::yield_now();
                            block_on(seat.go(true));
                        }
                        seat.leave();
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                    worker
                })
            })
            .collect();
        let mut random = SplitMix::new(seed);
        while done.load(Ordering::SeqCst) < 6 {
            governor.tick(TICK, Readings::default);
            governor.set_limit(ActiveLimit::Fixed(1 + (random.bits() % 4) as u32));
            std::thread::yield_now();
        }
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    assert_eq!(served.len(), 6);
    assert_eq!((governor.info().active, governor.info().waiting), (0, 0));
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on(future: impl Future<Output = ()>) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = Box::pin(future);
    while !poll(&mut future, &waker) {
        std::thread::park();
    }
}
