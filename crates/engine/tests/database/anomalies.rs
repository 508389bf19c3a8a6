//! The classic anomalies, over every interleaving of small programs: which level permits which, and
//! which never.
//!
//! A program is a list of script lines of one session. All orders in which the lines of two
//! sessions can come are run; a session that waits for a lock goes on when it has it. A session
//! that is refused rolls back and ends.

use super::script::Stage;

/// What came of one interleaving.
struct Outcome {
    committed: Vec<bool>,
    /// What each session was answered, line by line of those that answer.
    answers: Vec<Vec<String>>,
}

/// Runs all interleavings and hands each one's outcome and final database to `judge`.
fn every_order(setup: &[&str], programs: [&[&str]; 2], mut judge: impl FnMut(&mut Stage, Outcome)) {
    let length = programs[0].len() + programs[1].len();
    let mut stage = Stage::new();
    for order in 0u32..1 << length {
        if order.count_ones() as usize == programs[1].len() {
            stage.new_world();
            setup.iter().for_each(|line| drop(stage.step(line)));
            let outcome = run(&mut stage, order, length, programs);
            judge(&mut stage, outcome);
        }
    }
}

/// Bit n of `order` says whose turn is the n-th.
fn run(stage: &mut Stage, order: u32, length: usize, programs: [&[&str]; 2]) -> Outcome {
    let mut outcome = Outcome { committed: vec![true; 2], answers: vec![Vec::new(); 2] };
    let mut todo = programs.map(|program| program.iter());
    let mut turns = (0..length).map(|n| (order >> n & 1) as usize);
    // Turns that came while the session waited.
    let mut late = [0usize; 2];
    loop {
        let ready = (0..2).find(|&s| late[s] > 0 && !stage.waits(NAMES[s]));
        let who = match ready {
            Some(who) => {
                late[who] -= 1;
                who
            }
            None => match turns.next() {
                Some(who) if stage.waits(NAMES[who]) => {
                    late[who] += 1;
                    continue;
                }
                Some(who) => who,
                None => return outcome,
            },
        };
        let Some(line) = todo[who].next() else { continue };
        for answer in stage.step(&format!("{} {line}", NAMES[who])) {
            if answer.contains("changed by another") || answer.contains("deadlock") {
                outcome.committed[who] = false;
                todo[who] = [].iter();
                stage.step(&format!("{} rollback", NAMES[who]));
            } else if NAMES.iter().all(|name| !answer.starts_with(name)) {
                outcome.answers[who].push(answer);
            }
        }
    }
}

const NAMES: [&str; 2] = ["A", "B"];

/// One answer of a new transaction.
fn ask(stage: &mut Stage, command: &str) -> String {
    stage.step("Q begin");
    let answer = stage.step(&format!("Q {command}")).concat();
    stage.step("Q rollback");
    answer
}

#[test]
fn no_update_is_lost_at_any_level() {
    for level in ["rc", "si", "ser"] {
        let begin = format!("begin {level}");
        let program =
            [&begin[..], "get 1 x", "tree 1 write", "lock 1 x x", "check 1 x", "add 1 x 1", "commit"];
        let (mut both, mut refused) = (0, 0);
        every_order(&["S begin", "S put 1 x 0", "S commit"], [&program, &program], |stage, outcome| {
            let committed = outcome.committed.iter().filter(|c| **c).count();
            assert_eq!(ask(stage, "get 1 x"), committed.to_string());
            match committed {
                2 => both += 1,
                _ => refused += 1,
            }
        });
        assert!(both > 0);
        assert_eq!(refused > 0, level != "rc", "{level}: {refused} refused");
    }
}

#[test]
fn write_skew_is_permitted_unless_what_was_read_is_locked() {
    let setup = ["S begin", "S put 1 x 1", "S put 1 y 1", "S commit"];
    let mut skewed = 0;
    let one = ["begin si", "scan 1", "lock 1 x x", "check 1 x", "put 1 x 0", "commit"];
    let two = ["begin si", "scan 1", "lock 1 y x", "check 1 y", "put 1 y 0", "commit"];
    every_order(&setup, [&one, &two], |stage, outcome| {
        assert_eq!(outcome.committed, [true, true]);
        let both_saw_both = outcome.answers.iter().all(|a| a.contains(&"x=1 y=1".to_string()));
        assert_eq!(ask(stage, "scan 1"), "x=0 y=0");
        skewed += usize::from(both_saw_both);
    });
    assert!(skewed > 0, "snapshot isolation permits it");

    let one =
        ["begin si", "lock 1 y s", "lock 1 x x", "check 1 y", "check 1 x", "scan 1", "put 1 x 0", "commit"];
    let two =
        ["begin si", "lock 1 x s", "check 1 x", "lock 1 y x", "check 1 y", "scan 1", "put 1 y 0", "commit"];
    every_order(&setup, [&one, &two], |_, outcome| {
        let both_saw_both = outcome.answers.iter().all(|a| a.contains(&"x=1 y=1".to_string()));
        assert!(!(both_saw_both && outcome.committed == [true, true]));
    });
}

/// A transfer between two accounts, and somebody who adds them up.
#[test]
fn a_snapshot_never_shows_half_a_transfer() {
    let setup = ["S begin", "S put 1 x 50", "S put 1 y 50", "S commit"];
    let transfer = ["begin rc", "lock 1 x x", "add 1 x -10", "lock 1 y x", "add 1 y 10", "commit"];
    for (level, expect_halves) in [("si", false), ("si ro", false), ("rc", true)] {
        let begin = format!("begin {level}");
        let refresh = if level == "rc" { "refresh" } else { "get 1 z" };
        let sum = [&begin[..], "get 1 x", refresh, "get 1 y", "commit"];
        let mut halves = 0;
        every_order(&setup, [&transfer, &sum], |_, outcome| {
            let seen = outcome.answers[1].iter().filter_map(|a| a.parse::<i64>().ok()).sum::<i64>();
            assert!(seen == 100 || seen == 110, "{:?}", outcome.answers);
            halves += usize::from(seen != 100);
        });
        assert_eq!(halves > 0, expect_halves, "{level}");
    }
}

#[test]
fn crossing_updates_end_with_one_refused_and_never_hang() {
    let one = ["begin rc", "lock 1 x x", "add 1 x 1", "lock 1 y x", "add 1 y 1", "commit"];
    let two = ["begin rc", "lock 1 y x", "add 1 y 1", "lock 1 x x", "add 1 x 1", "commit"];
    let mut deadlocks = 0;
    every_order(&[], [&one, &two], |stage, outcome| {
        let committed = outcome.committed.iter().filter(|c| **c).count();
        assert!(committed > 0);
        assert_eq!(ask(stage, "scan 1"), format!("x={committed} y={committed}"));
        deadlocks += usize::from(committed == 1);
    });
    assert!(deadlocks > 0);
}
