//! What the monitor keeps, and how it meets its callers.

use super::super::classes::Classes;
use super::super::traffic::Traffic;
use super::*;

const SECOND: i64 = 1_000_000;

/// Half of the attempts are refused.
fn hot(class: u64, number: u32) -> Finished {
    let refused = number % 2 == 1;
    Finished {
        class,
        fit_for_active: true,
        committed: !refused,
        conflict: Some(refused),
        execution_us: 200,
        write_bytes: 100,
        order_us: 1000,
        round_trips: 1,
        ..Finished::default()
    }
}

#[test]
fn classes_are_bounded_and_the_least_used_go() {
    let mut classes = Classes::new(32);
    let traffic = Traffic::new();
    let key = |class: u64| Key::new(class << 4, true);
    let text = || "x".repeat(300);
    classes.choose(Key::new(OTHERS, true), text, 0);
    classes.choose(key(1), text, 0);
    for class in 2..100_000_u64 {
        let now = class as i64 * 100;
        // One class is used now and then, the others once.
        if class % 20 == 0 {
            let sight = traffic.sight(Surroundings::default());
            let known = classes.finished(key(1), &hot(1 << 4, 0), &sight, now);
            assert!(known.is_ok(), "{class}");
        }
        classes.choose(key(class), text, now);
        let sight = traffic.sight(Surroundings::default());
        assert!(classes.finished(key(class), &hot(class << 4, 0), &sight, now).is_ok());
        let (count, bytes) = classes.size();
        assert!(count <= 32 && bytes <= 64 * 1024, "{count} classes, {bytes} bytes");
    }
    let mut rows = Vec::new();
    classes.rows(&mut rows);
    assert_eq!(rows.len(), 32);
    let sight = traffic.sight(Surroundings::default());
    assert!(classes.finished(Key::new(OTHERS, true), &hot(0, 0), &sight, 0).is_ok(), "all others stay");
}

#[test]
fn it_learns_and_says_why() {
    let monitor = Monitor::new();
    monitor.tell(Surroundings { nodes: 3, applier_busy: None });
    let class = class(&["UPDATE item SET stock = stock - 1 WHERE id = 5"]);
    let mut now = SECOND;
    assert_eq!(monitor.choose(&class, true, now), Protocol::Certification);
    assert_eq!(monitor.rows()[0].estimates, "new: a class begins with certification");
    for number in 0..200 {
        now += SECOND / 100;
        monitor.finished(&hot(class.id(), number), now);
    }
    assert_eq!(monitor.choose(&class, true, now), Protocol::Active);
    assert_eq!(monitor.choose(&class, false, now), Protocol::Certification, "piecemeal it is another class");
    // So it is for who is told of refusals, from the first transaction on.
    assert_eq!(Monitor::new().choose_told(&class, now), Protocol::Active);
    assert_eq!(Monitor::new().choose(&class, true, now), Protocol::Certification);
    let of_told = Monitor::new();
    of_told.choose_told(&class, now);
    of_told.finished(&Finished { told_if_refused: true, ..hot(class.id(), 0) }, now);
    assert_eq!(of_told.rows().len(), 1, "what is reported is of the class that was asked for");
    let rows = monitor.rows();
    assert_eq!(rows.len(), 2);
    let (row, piecemeal) = (&rows[0], &rows[1]);
    assert_eq!((row.chosen, piecemeal.chosen), ("active", "certification"));
    assert_eq!(row.class, "UPDATE item SET stock = stock - ? WHERE id = ?");
    assert!(row.estimates.starts_with("certification "), "{}", row.estimates);
    let reason = "active because certification would repeat ";
    assert!(row.estimates.contains(reason), "{}", row.estimates);
    assert!(SECOND < row.since_us && row.since_us < now);

    // What comes piecemeal is told what would help it.
    for number in 0..200 {
        now += SECOND / 100;
        let attempt = Finished { fit_for_active: false, round_trips: 4, ..hot(class.id(), number) };
        monitor.finished(&attempt, now);
    }
    assert_eq!(monitor.choose(&class, false, now), Protocol::Certification);
    let piecemeal = &monitor.rows()[1].estimates;
    assert!(piecemeal.contains("active not possible"), "{piecemeal}");
    assert!(piecemeal.contains("of 4 messages of the client each"), "{piecemeal}");
}

#[test]
fn all_others_are_a_class() {
    let monitor = Monitor::new();
    monitor.tell(Surroundings { nodes: 3, applier_busy: None });
    // Nobody has asked for this class: it was displaced, or begins with its report.
    for number in 0..200 {
        monitor.finished(&hot(0xabc0, number), i64::from(number) * SECOND / 100);
    }
    let rows = monitor.rows();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].class.as_str(), rows[0].chosen), (OTHERS_TEXT, "active"));
    assert_eq!(monitor.choose(&Class::new(), true, 0), Protocol::Active);
    assert_eq!(monitor.choose(&Class::new(), false, 0), Protocol::Certification);
}

#[test]
fn whatever_clients_make_up_memory_is_bounded() {
    let monitor = Monitor::new();
    for number in 0..20_000_i64 {
        let class = class(&[&format!("DELETE FROM t{number}")]);
        assert_eq!(monitor.choose(&class, number % 2 == 0, number), Protocol::Certification);
    }
    let sizes = monitor.shards.iter().map(|shard| shard.lock().size());
    let (classes, bytes) = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
    assert!(classes <= SHARDS * CLASSES && bytes <= 1024 * 1024, "{classes} classes, {bytes} bytes");
}

#[test]
fn a_class_that_was_displaced_is_met_again() {
    let monitor = Monitor::new();
    let first = class(&["DELETE FROM first"]);
    let is_known = || monitor.rows().iter().any(|row| row.class == "DELETE FROM first");
    monitor.choose(&first, true, 0);
    for number in 0..20_000_i64 {
        monitor.choose(&class(&[&format!("DELETE FROM t{number}")]), true, number + SECOND);
    }
    assert!(!is_known());
    assert_eq!(monitor.choose(&first, true, 2 * SECOND), Protocol::Certification);
    assert!(is_known());
}

#[test]
fn nobody_waits_for_anybody() {
    let monitor = Monitor::new();
    let class = class(&["DELETE FROM t"]);
    {
        let _shards: Vec<_> = monitor.shards.iter().map(|shard| shard.lock()).collect();
        assert_eq!(monitor.choose(&class, true, 0), Protocol::Certification);
        monitor.finished(&hot(class.id(), 0), 0);
        let _traffic = monitor.traffic.lock();
        monitor.finished(&hot(class.id(), 0), 0);
    }
    assert!(monitor.rows().is_empty());
    monitor.choose(&class, true, 0);
    let _shards: Vec<_> = monitor.shards.iter().map(|shard| shard.lock()).collect();
    assert_eq!(monitor.choose(&class, true, 0), Protocol::Certification, "read without a lock");
}

#[test]
fn many_at_once() {
    let monitor = Monitor::new();
    monitor.tell(Surroundings { nodes: 3, applier_busy: Some(0.1) });
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            let monitor = &monitor;
            scope.spawn(move || {
                for number in 0..2000_i64 {
                    let class = class(&[&format!("DELETE FROM t{}", (number + thread) % 700)]);
                    let protocol = monitor.choose(&class, true, number * 1000);
                    let attempt = Finished { protocol, ..hot(class.id(), number as u32) };
                    monitor.finished(&attempt, number * 1000);
                }
            });
        }
    });
    assert!(monitor.rows().len() <= SHARDS * CLASSES);
}
