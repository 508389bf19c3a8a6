//! When a class changes its protocol, and what is said about it.

use super::super::choice::Choice;
use super::super::model::Estimates;
use super::*;

const SECOND: i64 = 1_000_000;

/// Costs of certification, weak voting and active.
fn costs(certification: f64, weak_voting: f64, active: impl Into<Option<f64>>) -> Estimates {
    Estimates::known([Some(certification), Some(weak_voting), active.into()])
}

/// The same with what one executes for at delivery.
fn with(mut estimates: Estimates, active_us: f64) -> Estimates {
    estimates.active_us = active_us;
    estimates
}

/// Lets a choice see the same costs for a while; how often it changes.
fn see(choice: &mut Choice, now_us: &mut i64, for_us: i64, estimates: Estimates) -> u32 {
    let mut changes = 0;
    let end = *now_us + for_us;
    while *now_us < end {
        *now_us += SECOND / 100;
        changes += u32::from(choice.consider(estimates, 10, *now_us));
    }
    changes
}

#[test]
fn a_new_class_begins_with_certification() {
    let choice = Choice::new(7);
    assert_eq!(choice.chosen(), Protocol::Certification);
    assert_eq!(choice.since_us(), 7);
    assert_eq!(choice.explanation(), "new: a class begins with certification");
}

#[test]
fn who_is_told_of_refusals_stays_with_active_while_it_is_short() {
    let (mut choice, mut now) = (Choice::told(0), 0);
    assert_eq!(choice.explanation(), "new: a class begins with active");
    let of = |active_us| with(costs(1000.0, 900.0, 30_000.0), active_us);
    assert_eq!(see(&mut choice, &mut now, 60 * SECOND, of(9000.0)), 0, "whatever it costs");
    assert!(choice.explanation().ends_with("active because its client would be told of a refusal"));
    // All others wait while it executes.
    assert_eq!(see(&mut choice, &mut now, SECOND, of(11_000.0)), 1);
    assert_eq!(choice.chosen(), Protocol::WeakVoting);
    assert_eq!(see(&mut choice, &mut now, 60 * SECOND, of(9000.0)), 0, "not for a little less");
    assert_eq!(see(&mut choice, &mut now, SECOND, of(4000.0)), 1, "for its clients, again");
    assert_eq!(choice.chosen(), Protocol::Active);

    let (mut choice, mut now) = (Choice::new(0), 0);
    assert_eq!(see(&mut choice, &mut now, SECOND, of(100.0)), 0, "nobody is told");
}

#[test]
fn what_keeps_all_waiting_is_no_longer_active_than_it_must() {
    // On a single node active costs as much as the others.
    let (mut choice, mut now) = (Choice::told(0), 0);
    let single = with(costs(1000.0, 1100.0, 990.0), 20_000.0);
    assert_eq!(see(&mut choice, &mut now, SECOND, single), 1);
    assert_eq!(choice.chosen(), Protocol::Certification);
    assert_eq!(see(&mut choice, &mut now, 600 * SECOND, single), 0);
    // Conflicts speak for it.
    let (mut choice, mut now) = (Choice::told(0), 0);
    let hot = with(costs(1000.0, 1100.0, 800.0), 20_000.0);
    assert_eq!(see(&mut choice, &mut now, 600 * SECOND, hot), 0);
    // All have waited for ten seconds: that is enough of it.
    let mut choice = Choice::told(0);
    let long = with(costs(1000.0, 1100.0, 3000.0), 5e6);
    assert!(!choice.consider(long, 1, 5 * SECOND));
    assert!(choice.consider(long, 1, 10 * SECOND));
    assert_eq!(choice.chosen(), Protocol::Certification);
}

#[test]
fn what_is_short_only_where_it_begins_is_distrusted_at_active() {
    let (mut choice, mut now) = (Choice::told(0), 0);
    let (mut changes, mut active) = (0, 0);
    for _ in 0..360_000 {
        let is_active = choice.chosen() == Protocol::Active;
        let active_us = if is_active { 12_000.0 } else { 4000.0 };
        let estimates = with(costs(1000.0, 900.0, 30_000.0), active_us);
        changes += see(&mut choice, &mut now, SECOND / 100, estimates);
        active += u32::from(is_active);
    }
    // An hour: it comes back after 2, 4, 8 … 600 seconds.
    assert!((10..40).contains(&changes), "{changes}");
    assert!(active < 3600, "{active} hundredths of a second");
}

#[test]
fn it_changes_for_a_clear_gain_that_lasts() {
    let (mut choice, mut now) = (Choice::new(0), 0);
    assert_eq!(see(&mut choice, &mut now, 60 * SECOND, costs(1000.0, 900.0, 950.0)), 0);
    assert_eq!(see(&mut choice, &mut now, SECOND * 2 / 5, costs(1000.0, 900.0, 500.0)), 0);
    assert_eq!(see(&mut choice, &mut now, SECOND / 100, costs(1000.0, 900.0, 950.0)), 0, "back to nothing");
    assert_eq!(see(&mut choice, &mut now, SECOND * 2 / 5, costs(1000.0, 900.0, 500.0)), 0);
    let since = now;
    assert_eq!(see(&mut choice, &mut now, SECOND, costs(1000.0, 900.0, 500.0)), 1);
    assert_eq!(choice.chosen(), Protocol::Active);
    assert!(since < choice.since_us() && choice.since_us() < since + SECOND / 2);
}

#[test]
fn what_costs_less_than_half_is_taken_soon() {
    let (mut choice, mut now) = (Choice::new(0), 0);
    assert_eq!(see(&mut choice, &mut now, SECOND / 25, costs(1000.0, 900.0, 490.0)), 0);
    assert_eq!(see(&mut choice, &mut now, SECOND / 25, costs(1000.0, 900.0, 490.0)), 1);
    assert_eq!(choice.chosen(), Protocol::Active);
}

#[test]
fn it_changes_after_some_transactions_only() {
    let mut choice = Choice::new(0);
    for minute in 0..32 {
        assert!(!choice.consider(costs(1000.0, 900.0, 500.0), 1, minute * 60 * SECOND), "{minute}");
    }
    assert!(choice.consider(costs(1000.0, 900.0, 500.0), 1, 32 * 60 * SECOND));
}

#[test]
fn noise_does_not_flip_it() {
    let mut choice = Choice::new(0);
    let seed = first_seed();
    let mut random = cognate_env::SplitMix::new(seed);
    let mut changes = 0;
    for now in 0..100_000 {
        let noise = 0.5 + random.below(1000) as f64 / 1000.0;
        changes += u32::from(choice.consider(costs(1000.0, 3000.0, 1000.0 * noise), 10, now * SECOND / 100));
    }
    assert_eq!(changes, 0, "COGNATE_SEED={seed}");
}

#[test]
fn what_alternates_as_slowly_as_its_patience_is_distrusted() {
    let (mut choice, mut now) = (Choice::new(0), 0);
    let mut changes = 0;
    for _ in 0..3000 {
        changes += see(&mut choice, &mut now, SECOND * 3 / 5, costs(1000.0, 3000.0, 500.0));
        changes += see(&mut choice, &mut now, SECOND * 3 / 5, costs(500.0, 3000.0, 1000.0));
    }
    // An hour: it may come back after 1, 2, 4 … 600 seconds.
    assert!((10..40).contains(&changes), "{changes}");

    // What is calm for long may change as quickly as ever.
    see(&mut choice, &mut now, 3600 * SECOND, costs(1000.0, 3000.0, 500.0));
    assert_eq!(choice.chosen(), Protocol::Active);
    assert_eq!(see(&mut choice, &mut now, SECOND, costs(500.0, 3000.0, 1000.0)), 1);
    see(&mut choice, &mut now, 3600 * SECOND, costs(500.0, 3000.0, 1000.0));
    assert_eq!(see(&mut choice, &mut now, SECOND, costs(1000.0, 3000.0, 500.0)), 1);
}

#[test]
fn the_second_best_is_taken_while_the_best_is_distrusted() {
    let (mut choice, mut now) = (Choice::new(0), 0);
    assert_eq!(see(&mut choice, &mut now, SECOND, costs(1000.0, 900.0, 500.0)), 1);
    assert_eq!(see(&mut choice, &mut now, SECOND, costs(400.0, 900.0, 1000.0)), 0, "just left");
    assert_eq!(see(&mut choice, &mut now, 10 * SECOND, costs(1100.0, 700.0, 1000.0)), 1);
    assert_eq!(choice.chosen(), Protocol::WeakVoting);
}

#[test]
fn a_clock_that_goes_back_does_no_harm() {
    let mut choice = Choice::new(i64::MAX);
    for now in [0, i64::MIN, i64::MAX, -1, 5 * SECOND, i64::MIN, 0] {
        choice.consider(costs(1000.0, 900.0, 500.0), u32::MAX, now);
        choice.consider(costs(500.0, 900.0, 1000.0), u32::MAX, now);
    }
    let mut now = 0;
    see(&mut choice, &mut now, 3600 * SECOND, costs(1000.0, 900.0, 500.0));
    assert_eq!(choice.chosen(), Protocol::Active);
}

#[test]
fn it_says_what_is_possible() {
    let mut choice = Choice::new(0);
    choice.consider(costs(1000.0, 900.0, None), 1, 0);
    assert_eq!(
        choice.explanation(),
        "certification 1000 us, weak_voting 900 us, active not possible: \
         certification because weak_voting is not clearly cheaper"
    );
    choice.consider(costs(1000.0, 1900.0, 3000.0), 1, 0);
    assert_eq!(
        choice.explanation(),
        "certification 1000 us, weak_voting 1900 us, active 3000 us: \
         certification because weak_voting takes longer to execute"
    );
}

#[test]
fn two_that_are_better_do_not_keep_each_other_out() {
    let (mut choice, mut now) = (Choice::new(0), 0);
    let mut changes = 0;
    for _ in 0..30 {
        changes += see(&mut choice, &mut now, SECOND / 100, costs(1000.0, 490.0, 500.0));
        changes += see(&mut choice, &mut now, SECOND / 100, costs(1000.0, 500.0, 490.0));
    }
    assert_eq!(changes, 1);
    assert_ne!(choice.chosen(), Protocol::Certification);
}
