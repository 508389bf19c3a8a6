//! The monitor against every fixed protocol, in a cluster that it has not made.

use super::simulator::{Load, Outcome, Phase, Policy, run};
use super::*;

const SECOND: f64 = 1e6;

/// Few rows, which all want.
const HOT: Load = Load {
    name: "UPDATE stock SET n = n - 1 WHERE id = $1",
    fit: true,
    execution_us: 60.0,
    write_bytes: 150,
    read_bytes: 100,
    keys: 1,
    of: 3,
};

/// Much is written, and took long to be found.
const LARGE: Load = Load {
    name: "UPDATE account SET interest = balance * rate WHERE branch = $1",
    fit: true,
    execution_us: 3000.0,
    write_bytes: 40_000,
    read_bytes: 2000,
    keys: 2,
    of: 1_000_000,
};

/// Much is read, and little written.
const READS: Load = Load {
    name: "INSERT INTO report SELECT sum(price) FROM sale WHERE day = $1",
    fit: true,
    execution_us: 600.0,
    write_bytes: 100,
    read_bytes: 300_000,
    keys: 1,
    of: 1_000_000,
};

/// Short, seldom in each other's way, and many.
const POINT: Load = Load {
    name: "UPDATE account SET balance = balance + $1 WHERE id = $2",
    fit: true,
    execution_us: 150.0,
    write_bytes: 200,
    read_bytes: 200,
    keys: 1,
    of: 100_000,
};

fn phase(seconds: f64, loads: &[(u64, Load)]) -> Phase {
    Phase { for_us: seconds * SECOND, loads: loads.to_vec() }
}

/// Auto, and the best fixed protocol in its place.
struct Match {
    auto: Outcome,
    best: Outcome,
    ratio: f64,
}

impl Match {
    /// The ratio in the last phase, when it was learnt which protocol is best.
    fn learnt(&self) -> f64 {
        let last = |outcome: &Outcome| outcome.committed.last().copied().unwrap_or(0) as f64;
        last(&self.auto) / last(&self.best).max(1.0)
    }
}

fn play(what: &str, phases: &[Phase], tells: bool, seed: u64) -> Match {
    let fixed = Protocol::ALL.map(|protocol| (protocol, run(Policy::Fixed(protocol), phases, seed)));
    let auto = run(Policy::Auto { tells }, phases, seed);
    for (protocol, outcome) in &fixed {
        println!(
            "{what}: {:13} {:?}, {:.1} % refused",
            protocol.name(),
            outcome.committed,
            100.0 * outcome.refused()
        );
    }
    println!("{what}: auto          {:?}, {:.1} % refused", auto.committed, 100.0 * auto.refused());
    let chosen: Vec<Vec<&str>> =
        auto.rows.iter().map(|rows| rows.iter().map(|row| row.chosen).collect()).collect();
    println!("{what}: chosen at each phase's end: {chosen:?}");
    for row in auto.rows.iter().flatten() {
        println!("{what}: {}", row.estimates);
    }
    let (_, best) = fixed.into_iter().max_by_key(|(_, outcome)| outcome.total()).expect("there are three");
    let ratio = auto.total() as f64 / best.total() as f64;
    println!("{what}: auto / best fixed = {ratio:.3}");
    Match { auto, best, ratio }
}

/// What was chosen for a class at the end of a phase.
fn chosen(outcome: &Outcome, phase: usize, load: Load) -> &'static str {
    let name = class(&[load.name]).text();
    outcome.rows[phase].iter().find(|row| row.class == name).map_or("", |row| row.chosen)
}

#[test]
fn auto_is_better_than_any_fixed_protocol_where_loads_shift() {
    let first = first_seed();
    for seed in first..first + 1 {
        let phases: Vec<Phase> =
            [HOT, LARGE, READS, HOT, LARGE, READS].into_iter().map(|load| phase(3.0, &[(1, load)])).collect();
        let played = play("shifts", &phases, true, seed);
        assert!(played.ratio >= 1.05, "COGNATE_SEED={seed}: {:.3}", played.ratio);
        assert!(
            played.auto.refused() <= 1.1 * played.best.refused() + 0.01,
            "COGNATE_SEED={seed}: {} of {}",
            played.auto.refused(),
            played.best.refused()
        );
        assert_eq!(chosen(&played.auto, 3, HOT), "active", "COGNATE_SEED={seed}");
        assert_eq!(chosen(&played.auto, 4, LARGE), "certification", "COGNATE_SEED={seed}");
        assert_eq!(chosen(&played.auto, 5, READS), "weak_voting", "COGNATE_SEED={seed}");
    }
}

#[test]
fn nobody_is_told_of_a_refusal_that_active_would_have_spared() {
    let seed = first_seed();
    // It is executed everywhere at several times the price, and now and then refused elsewhere.
    let dear = Load { execution_us: 900.0, of: 400, ..POINT };
    let phases: Vec<Phase> = [dear, HOT, dear].map(|load| phase(2.0, &[(1, load)])).to_vec();
    let again = run(Policy::Auto { tells: true }, &phases, seed);
    let told = run(Policy::Told, &phases, seed);
    println!("{:.2} % and {:.2} %", 100.0 * again.refused(), 100.0 * told.refused());
    assert!(again.refused() > 0.0, "COGNATE_SEED={seed}: nothing is to be spared");
    assert_eq!(told.refused(), 0.0, "COGNATE_SEED={seed}");
    // What executes for long is weighed as ever.
    let long = phase(10.0, &[(1, Load { execution_us: 15_000.0, ..POINT })]);
    let long = run(Policy::Told, &[long], seed);
    let chosen = chosen(&long, 0, POINT);
    assert!(["certification", "weak_voting"].contains(&chosen), "COGNATE_SEED={seed}: {chosen:?}");
}

#[test]
fn one_class_shifts_between_conflicts_and_none() {
    let seed = first_seed();
    // The same statement, whose rows are few and then many; it costs enough that active does not
    // pay unless it must.
    let hot = Load { execution_us: 150.0, of: 2, ..POINT };
    let calm = Load { of: 1_000_000, ..hot };
    let phases: Vec<Phase> = [calm, hot, calm, hot].map(|load| phase(3.0, &[(1, load)])).to_vec();
    for tells in [true, false] {
        let played = play(if tells { "told" } else { "not told" }, &phases, tells, seed);
        let least = if tells { 0.95 } else { 0.8 };
        assert!(played.ratio >= least, "COGNATE_SEED={seed}, {tells}: {:.3}", played.ratio);
    }
}

#[test]
fn auto_is_as_good_as_the_best_where_nothing_shifts() {
    let seed = first_seed();
    for (what, load) in [("hot", HOT), ("large", LARGE), ("reads", READS), ("point", POINT)] {
        let phases = [phase(2.0, &[(1, load)]), phase(2.0, &[(1, load)])];
        let learnt = play(what, &phases, true, seed).learnt();
        assert!(learnt >= 0.93, "COGNATE_SEED={seed}: {what}: {:.3}", learnt);
    }
}

#[test]
fn classes_side_by_side_have_their_own_protocols() {
    let seed = first_seed();
    let phases = [phase(4.0, &[(6, HOT), (3, POINT), (1, READS)])];
    let played = play("mixed", &phases, true, seed);
    assert!(played.ratio >= 1.0, "COGNATE_SEED={seed}: {:.3}", played.ratio);
}

#[test]
fn what_comes_piecemeal_is_never_active() {
    let seed = first_seed();
    let phases = [phase(3.0, &[(1, Load { fit: false, ..HOT })])];
    let played = play("piecemeal", &phases, true, seed);
    assert!(played.ratio >= 0.93, "COGNATE_SEED={seed}: {:.3}", played.ratio);
    assert_eq!(chosen(&played.auto, 0, HOT), "certification");
}

#[test]
fn drawn_loads_have_no_bad_choice() {
    let first = first_seed();
    let mut ratios = Vec::new();
    for seed in first..first + 6 {
        let mut random = cognate_env::SplitMix::new(seed);
        let mut drawn = |least: f64, most: f64| {
            let share = random.below(1000) as f64 / 1000.0;
            least * (most / least).powf(share)
        };
        let load = Load {
            execution_us: drawn(30.0, 5000.0),
            write_bytes: drawn(50.0, 100_000.0) as u64,
            read_bytes: drawn(50.0, 500_000.0) as u64,
            of: drawn(1.0, 100_000.0) as u64,
            ..POINT
        };
        println!("COGNATE_SEED={seed}: {load:?}");
        let phases = [phase(2.0, &[(1, load)]), phase(2.0, &[(1, load)])];
        ratios.push(play("drawn", &phases, true, seed).learnt());
    }
    println!("{ratios:.2?}");
    let worst = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!(worst >= 0.5 && mean >= 0.85, "worst {worst:.3}, mean {mean:.3}");
}
