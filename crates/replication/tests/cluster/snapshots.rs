//! Snapshots over the simulated network, when not everything goes as it should: for a node that was
//! away for so long that the others' logs begin behind what it has.

use std::collections::BTreeSet;
use std::time::Duration;

use cognate_env::sim::{Loss, SimDisk};
use cognate_replication::{Change, NodeNumber, Position};

use crate::recorder::Recorder;
use crate::sim::{NODES, Storm, simulated};
use crate::support::{FOR_EVER, until};

const AWAY: NodeNumber = 3;
/// Far longer than it takes until the log is cut: who is away is tried in between.
const CUT: Duration = Duration::from_secs(4);
/// Long enough for very many snapshots.
const LONG: Duration = Duration::from_secs(330);
/// Longer than a leader waits until a snapshot is the other node's state.
const GIVEN_UP: Duration = Duration::from_secs(330);
/// Longer than a leader asks a node that does not answer.
const MINUTE: Duration = Duration::from_secs(60);
/// Longer than a message is on its way.
const LOST: Duration = Duration::from_millis(50);
/// Long enough for a node that can be heard again to be level.
const SOON: Duration = Duration::from_secs(10);

/// Orders more than stays in the log. The answer: the last position.
async fn order_much(storm: &Storm, what: &str) -> Position {
    let mut last = 0;
    for number in 0..20 {
        last = storm.running[&1].order(&format!("{what} {number} {}", "-".repeat(100))).await;
    }
    last
}

/// The same, of which those who are there make checkpoints, and cut their logs.
async fn order_and_cut(storm: &Storm, what: &str) {
    let last = order_much(storm, what).await;
    for node in [1, 2] {
        let running = &storm.running[&node];
        running.until(last).await;
        until("it is on its disk", || running.order.marks().synced >= last).await;
        running.recorder.checkpoint(last);
        running.order.checkpointed(last).await.unwrap();
    }
    tokio::time::sleep(CUT).await;
}

/// Nodes of which one is away and needs a snapshot.
async fn one_away(seed: u64) -> Storm {
    let mut storm = Storm::new(seed);
    for node in 1..=NODES {
        storm.start(node).await;
    }
    let first = storm.running[&1].order("first").await;
    storm.running[&AWAY].until(first).await;
    storm.lose(AWAY, Loss::Process).await;
    order_and_cut(&storm, "while it was away").await;
    storm
}

/// It takes part again, has everything, and was sent so many snapshots that became its state.
async fn takes_part(storm: Storm, snapshots: u64) {
    let last = storm.running[&1].order("last").await;
    for node in storm.running.values() {
        node.until(last).await;
    }
    let histories: Vec<_> = storm.running.values().map(|node| node.recorder.history()).collect();
    assert!(histories.iter().all(|history| *history == histories[0]), "{histories:?}");
    assert_eq!(storm.recorders[&AWAY].snapshots().1, snapshots);
    storm.end().await;
}

/// A node for which a snapshot becomes the state as soon as that is not held any more. Nothing
/// comes from it to anybody; what is sent to it arrives.
async fn one_unheard(seed: u64) -> Storm {
    let mut storm = one_away(seed).await;
    storm.recorders[&AWAY].hold_finish(true);
    storm.start(AWAY).await;
    until("it has a snapshot", || storm.recorders[&AWAY].is_finishing()).await;
    storm.network.cut(AWAY, 1);
    storm.network.cut(AWAY, 2);
    storm
}

/// The same, of which the snapshot has become the state: only the answer is lost.
async fn one_whose_answer_is_lost(seed: u64) -> Storm {
    let storm = one_unheard(seed).await;
    storm.recorders[&AWAY].hold_finish(false);
    until("it has taken it in", || storm.recorders[&AWAY].snapshots().1 == 1).await;
    tokio::time::sleep(LOST).await;
    storm
}

/// It has what is ordered from now on, within a few seconds.
async fn is_soon_level(storm: &Storm) {
    let last = storm.running[&1].order("soon").await;
    let away = &storm.recorders[&AWAY];
    let reached = tokio::time::timeout(SOON, away.until(last)).await;
    assert!(reached.is_ok(), "it is at {} and not {last}", away.applied());
}

/// A leader whose state cannot be read for a moment still leads, and tries again.
#[test]
fn a_snapshot_that_cannot_be_opened_is_tried_again() {
    simulated(async {
        let mut storm = one_away(21).await;
        for node in [1, 2] {
            storm.recorders[&node].refuse_snapshots(3);
        }
        storm.start(AWAY).await;
        takes_part(storm, 1).await;
    });
}

/// A node whose disk is full is sent a snapshot ever more rarely, and has it once there is space.
#[test]
fn a_node_without_space_is_not_sent_snapshots_without_end() {
    simulated(async {
        let mut storm = one_away(25).await;
        storm.recorders[&AWAY].fill(true);
        storm.start(AWAY).await;
        tokio::time::sleep(LONG).await;
        let (tries, _) = storm.recorders[&AWAY].begun();
        assert!((5..=20).contains(&tries), "{tries} tries");
        // Whoever leads goes on meanwhile.
        storm.running[&1].order("meanwhile").await;
        storm.recorders[&AWAY].fill(false);
        takes_part(storm, 1).await;
    });
}

/// Who is sent a snapshot may be needed for a change of the members that is under way. It is sent
/// the state of before the change: it was not removed since.
#[test]
fn a_change_of_the_members_waits_for_who_is_sent_a_snapshot() {
    simulated(async {
        let mut storm = one_away(27).await;
        for node in [1, 2] {
            storm.recorders[&node].refuse_snapshots(u64::MAX);
        }
        storm.start(AWAY).await;
        until("one of the others leads", || storm.running[&1].order.leader().is_some()).await;
        let leader = storm.running[&1].order.leader().unwrap();
        let other = 3 - leader;
        let order = storm.running[&leader].order.clone();
        let change = tokio::spawn(async move { order.change(Change::Remove(other)).await });
        let voters = || storm.running[&leader].order.members().voters;
        until("two sets of voters are needed", || voters().len() == 2).await;
        assert!(!change.is_finished(), "it needs who is away");
        for node in [1, 2] {
            storm.recorders[&node].refuse_snapshots(0);
        }
        let changed = tokio::time::timeout(FOR_EVER, change).await;
        changed.expect("it comes to its end").unwrap().unwrap();
        assert_eq!(voters(), [BTreeSet::from([leader, AWAY])]);
        let last = storm.running[&leader].order("of two").await;
        storm.running[&AWAY].until(last).await;
        assert_eq!(storm.recorders[&AWAY].snapshots().1, 1);
        storm.end().await;
    });
}

/// However much is ordered meanwhile: what follows a snapshot is in the log as long as it is sent.
#[test]
fn a_snapshot_that_takes_long_is_followed_by_the_log() {
    simulated(async {
        let mut storm = one_away(22).await;
        storm.recorders[&AWAY].hold_parts(true);
        storm.start(AWAY).await;
        until("it is sent a snapshot", || storm.recorders[&AWAY].begun().0 > 0).await;
        order_and_cut(&storm, "while it was sent a snapshot").await;
        storm.recorders[&AWAY].hold_parts(false);
        takes_part(storm, 1).await;
    });
}

/// A leader gives up a snapshot that takes too long to become the other's state, and begins another
/// one: the application takes in one at a time.
#[test]
fn a_snapshot_that_becomes_the_state_is_not_disturbed_by_another_one() {
    simulated(async {
        let mut storm = one_away(23).await;
        storm.recorders[&AWAY].hold_finish(true);
        storm.start(AWAY).await;
        until("it has a snapshot", || storm.recorders[&AWAY].is_finishing()).await;
        tokio::time::sleep(GIVEN_UP).await;
        assert_eq!(storm.recorders[&AWAY].begun(), (1, 0));
        storm.recorders[&AWAY].hold_finish(false);
        let recorder = storm.recorders[&AWAY].clone();
        takes_part(storm, 1).await;
        assert_eq!(recorder.begun().1, 0);
    });
}

/// A later checkpoint is told before an earlier one.
#[test]
fn checkpoints_that_are_told_at_the_same_time_do_not_wait_for_ever() {
    simulated(async {
        let mut storm = Storm::new(24);
        for node in 1..=NODES {
            storm.start(node).await;
        }
        let last = order_much(&storm, "much").await;
        let running = &storm.running[&1];
        running.until(last).await;
        until("it is on its disk", || running.order.marks().synced >= last).await;
        running.recorder.checkpoint(last);
        let told =
            async { tokio::join!(running.order.checkpointed(last), running.order.checkpointed(last - 5)) };
        let told = tokio::time::timeout(FOR_EVER, told).await.expect("neither waits for ever");
        assert_eq!(told, (Ok(()), Ok(())));
        storm.end().await;
    });
}

/// The machine has no time for a checkpoint's place meanwhile. Whoever tells it waits, and does not
/// ask without a pause: then nothing else would have its turn.
#[test]
fn a_checkpoint_that_is_told_while_a_snapshot_becomes_the_state_waits_for_it() {
    simulated(async {
        let mut storm = Storm::new(27);
        for node in 1..=NODES {
            storm.start(node).await;
        }
        let had = order_much(&storm, "before").await;
        let away = &storm.running[&AWAY];
        away.until(had).await;
        until("it is on its disk", || away.order.marks().synced >= had).await;
        away.recorder.checkpoint(had);
        storm.lose(AWAY, Loss::Process).await;
        order_and_cut(&storm, "while it was away").await;
        storm.recorders[&AWAY].hold_finish(true);
        storm.start(AWAY).await;
        until("it has a snapshot", || storm.recorders[&AWAY].is_finishing()).await;
        {
            let order = storm.running[&AWAY].order.clone();
            let mut told = std::pin::pin!(order.checkpointed(had));
            let early = tokio::time::timeout(SOON, &mut told).await;
            assert!(early.is_err(), "the machine had no time for it: {early:?}");
            storm.recorders[&AWAY].hold_finish(false);
            assert_eq!(tokio::time::timeout(FOR_EVER, told).await.expect("it is over"), Ok(()));
        }
        takes_part(storm, 1).await;
    });
}

/// A leader that hears nothing asks again, and is told what it has missed.
#[test]
fn a_lost_answer_to_the_end_of_a_snapshot_holds_nothing_up() {
    simulated(async {
        let storm = one_whose_answer_is_lost(26).await;
        storm.network.heal();
        is_soon_level(&storm).await;
        assert_eq!(storm.recorders[&AWAY].begun(), (1, 0));
        takes_part(storm, 1).await;
    });
}

/// It does not know what it was sent before. It has it, and is not sent it again.
#[test]
fn who_starts_again_with_a_snapshot_after_a_lost_answer_is_soon_level() {
    simulated(async {
        let mut storm = one_whose_answer_is_lost(27).await;
        storm.lose(AWAY, Loss::Process).await;
        storm.network.heal();
        storm.start(AWAY).await;
        is_soon_level(&storm).await;
        assert_eq!(storm.recorders[&AWAY].begun(), (1, 0));
        takes_part(storm, 1).await;
    });
}

/// What it was sent is lost with its process, of which nobody hears: it is sent another snapshot.
#[test]
fn who_starts_again_while_it_takes_in_a_snapshot_is_soon_level() {
    simulated(async {
        let mut storm = one_unheard(28).await;
        storm.lose(AWAY, Loss::Process).await;
        tokio::time::sleep(LOST).await;
        storm.recorders[&AWAY].hold_finish(false);
        storm.network.heal();
        storm.start(AWAY).await;
        is_soon_level(&storm).await;
        assert_eq!(storm.recorders[&AWAY].begun(), (2, 0));
        takes_part(storm, 1).await;
    });
}

/// However often its leader asks meanwhile, and however long it takes, it is sent one snapshot, and
/// takes it in once.
#[test]
fn a_snapshot_that_takes_long_to_become_the_state_is_sent_once() {
    simulated(async {
        let mut storm = one_away(29).await;
        storm.recorders[&AWAY].hold_finish(true);
        storm.start(AWAY).await;
        until("it has a snapshot", || storm.recorders[&AWAY].is_finishing()).await;
        tokio::time::sleep(MINUTE).await;
        assert!(storm.recorders[&AWAY].is_finishing());
        storm.recorders[&AWAY].hold_finish(false);
        is_soon_level(&storm).await;
        assert_eq!(storm.recorders[&AWAY].begun(), (1, 0));
        takes_part(storm, 1).await;
    });
}

/// They have forgotten what they confirmed, and in the log they have votes, from before they left:
/// two such nodes could lead over what is settled. They are sent a state, which knows that they had
/// left, also if the log is not cut there, since what either of them lacks is in it.
#[test]
fn who_come_again_with_nothing_are_sent_nothing_of_before_they_left() {
    simulated(async {
        let mut storm = Storm::of(30, 5);
        for node in 1..=5 {
            storm.start(node).await;
        }
        let mut last = storm.running[&1].order("first").await;
        for node in storm.running.values() {
            node.until(last).await;
        }
        let again = [AWAY, 4];
        for node in again {
            storm.running[&1].order.change(Change::Remove(node)).await.unwrap();
            storm.lose(node, Loss::Power).await;
            storm.disks.insert(node, SimDisk::new(30 + node));
            storm.recorders.insert(node, Recorder::new(0));
            // It may have led.
            last = storm.running[&1].order(&format!("without {node}")).await;
        }
        for node in again {
            storm.start(node).await;
        }
        for node in again {
            storm.running[&1].order.change(Change::AddLearner(node)).await.unwrap();
        }
        for node in again {
            storm.running[&node].until(last).await;
            assert_eq!(storm.recorders[&node].snapshots().1, 1, "all of it is in the log, too");
            assert_eq!(storm.running[&node].order.members().voters, [BTreeSet::from([1, 2, 5])]);
        }
        for node in again {
            storm.running[&1].order.change(Change::Promote(node)).await.unwrap();
        }
        takes_part(storm, 1).await;
    });
}
