use std::path::PathBuf;

use cognate_env::SplitMix;
use cognate_env::sim::{Loss, SimDisk, SimRng};

use super::*;
use crate::entry::{Content, Leadership, Members, Requests};

fn folder() -> PathBuf {
    PathBuf::from("/order")
}

fn options(segment_bytes: u64) -> LogOptions {
    LogOptions {
        segment_bytes,
        grow_bytes: 4096,
        prepare: false,
        idle_mark: None,
        rng: Arc::new(SimRng::new(7)),
        ..LogOptions::default()
    }
}

fn open(disk: &SimDisk, applied: Position) -> Result<Arc<OrderLog>, StartError> {
    OrderLog::open(&disk.handle(), &folder(), options(16 << 10), 8 << 10, applied).map(Arc::new)
}

fn id(term: u64, index: u64) -> EntryId {
    EntryId { leadership: Leadership { term, node: 1 }, index }
}

fn requests(term: u64, index: u64, count: usize, bytes: usize) -> Entry {
    let all: Vec<Bytes> = (0..count).map(|at| Bytes::from(vec![(index as u8) ^ (at as u8); bytes])).collect();
    Entry { id: id(term, index), content: Content::Requests(Requests::pack(&all)) }
}

fn members(term: u64, index: u64, nodes: &[NodeNumber]) -> Entry {
    let nodes: BTreeSet<NodeNumber> = nodes.iter().copied().collect();
    Entry { id: id(term, index), content: Content::Members(Members { voters: vec![nodes.clone()], nodes }) }
}

fn add(log: &OrderLog, entry: Entry) {
    log.append(std::iter::once(entry)).unwrap().wait().unwrap();
}

async fn all(log: &Arc<OrderLog>) -> Vec<Placed> {
    log.read(0..u64::MAX, usize::MAX).await.unwrap()
}

#[tokio::test]
async fn positions_follow_from_the_order_alone_also_after_a_cut_and_a_restart() {
    let disk = SimDisk::new(1);
    let log = open(&disk, 0).unwrap();
    add(&log, members(0, 0, &[1, 2, 3]));
    add(&log, requests(1, 1, 3, 10));
    add(&log, requests(1, 2, 2, 10));
    log.cut_after(Some(id(1, 1))).unwrap();
    add(&log, requests(2, 2, 1, 10));
    add(&log, requests(2, 3, 4, 10));
    let before: Vec<Position> = all(&log).await.iter().map(|placed| placed.before).collect();
    assert_eq!(before, [0, 0, 3, 4]);
    log.note_committed(id(2, 3)).unwrap();
    assert_eq!(
        (log.index_after(0), log.index_after(3), log.index_after(5), log.index_after(8)),
        (0, 2, 3, 4)
    );
    assert_eq!(log.synced(), 8);
    let entries = all(&log).await;
    log.close().unwrap();
    let log = open(&disk, 0).unwrap();
    assert_eq!(all(&log).await, entries);
    assert_eq!(log.members_at(3).members.nodes.len(), 3);
}

/// Who was removed since a state was made may come again with other data, and then must not have
/// it; who has stayed may need it, also while a change of the members is under way.
#[test]
fn who_left_since_a_base_and_who_is_to_be_met_again() {
    let disk = SimDisk::new(3);
    let log = open(&disk, 0).unwrap();
    add(&log, members(0, 0, &[1]));
    add(&log, requests(1, 1, 2, 10));
    add(&log, members(1, 2, &[1, 2]));
    add(&log, requests(1, 3, 1, 10));
    log.note_committed(id(1, 3)).unwrap();
    let base = log.base_at(2).unwrap();
    assert_eq!(base.id, Some(id(1, 2)));
    add(&log, members(1, 4, &[1, 2, 3]));
    assert_eq!(log.left_since(&base), BTreeSet::new());
    add(&log, members(1, 5, &[2, 3]));
    add(&log, members(1, 6, &[1, 2, 3]));
    assert_eq!(log.left_since(&base), BTreeSet::from([1]));
    let before_it_left = |node| log.last_before_it_left(node);
    assert_eq!((before_it_left(1), before_it_left(2), before_it_left(4)), (Some(id(1, 4)), None, None));
    log.note_committed(id(1, 5)).unwrap();
    assert!(log.meet(1, 7));
    log.forget_others(&BTreeSet::from([2, 3])).unwrap();
    assert_eq!(log.forgettings(), 1);
    assert!(!log.is_unmet_member(1), "its coming again is not settled, and may be cut");
    log.note_committed(id(1, 6)).unwrap();
    assert!(log.is_unmet_member(1));
    assert!(log.meet(1, 8) && !log.is_unmet_member(1) && !log.meet(1, 7));
    let newer = log.base_at(3).unwrap();
    assert_eq!((newer.id, log.left_since(&newer)), (Some(id(1, 6)), BTreeSet::new()));
    // This one has come and left behind the earlier state.
    add(&log, members(1, 7, &[1, 2]));
    add(&log, members(1, 8, &[1, 2, 3]));
    assert_eq!(log.left_since(&base), BTreeSet::from([1, 3]));
    // Cut there, the log has nothing from before it left.
    log.purge(id(1, 5)).unwrap();
    assert_eq!((before_it_left(1), before_it_left(3)), (None, Some(id(1, 6))));
}

#[tokio::test]
async fn entries_that_have_left_memory_are_read_back_from_their_segments() {
    let disk = SimDisk::new(2);
    let log = open(&disk, 0).unwrap();
    let written: Vec<Entry> = (0..200).map(|index| requests(1, index, 2, 300)).collect();
    for entry in written.clone() {
        add(&log, entry);
    }
    let read = |placed: Vec<Placed>| placed.into_iter().map(|placed| placed.entry).collect::<Vec<_>>();
    assert_eq!(read(all(&log).await), written);
    // In steps, as a follower that catches up reads them; one at least, also beyond the bound.
    let (mut next, mut found) = (0, Vec::new());
    while next < 200 {
        let some = read(log.read(next..200, 1500).await.unwrap());
        assert!(!some.is_empty() && some.len() <= 3, "{}", some.len());
        next += some.len() as u64;
        found.extend(some);
    }
    assert_eq!(found, written);
    assert_eq!(log.read(7..8, 1).await.unwrap().len(), 1);
}

/// Entries that nobody has settled give way to another state, and others come under their numbers.
#[test]
fn what_comes_in_the_place_of_others_leaves_memory_too() {
    let disk = SimDisk::new(12);
    let log = open(&disk, 0).unwrap();
    (0..40).for_each(|index| add(&log, requests(1, index, 1, 1000)));
    log.slots.lock().rebase(Base { id: Some(id(2, 10)), position: 11, ..Base::default() });
    (11..40).for_each(|index| add(&log, requests(2, index, 1, 1000)));
    let slots = log.slots.lock();
    let held = |index: &u64| slots.get(*index).is_some_and(|slot| slot.content.is_some());
    let kept: Vec<u64> = (slots.first()..slots.next()).filter(held).collect();
    assert_eq!((slots.first(), slots.next()), (11, 40));
    assert!(kept.len() <= 10 && kept.last() == Some(&39), "{kept:?} are in memory");
}

#[test]
fn a_record_that_is_read_back_and_makes_no_sense_is_named() {
    let disk = SimDisk::new(2);
    let log = open(&disk, 0).unwrap();
    add(&log, requests(1, 0, 1, 10));
    let last = log.log.last();
    let nonsense = || Error::Undecodable { what: "no record".to_owned(), row: None };
    let error = log.cold.read(last, last, &mut |_, _| Err(nonsense())).unwrap_err();
    match error {
        Error::Corrupt { file, offset, what } => {
            assert!(file.starts_with(folder()) && file != folder(), "{}", file.display());
            assert!(offset > 0 && what == "no record", "{offset}: {what}");
        }
        other => panic!("{other}"),
    }
    // Other errors stay what they are.
    let full = log.cold.read(last, last, &mut |_, _| Err(Error::Defect("another"))).unwrap_err();
    assert!(matches!(full, Error::Defect("another")), "{full}");
}

#[tokio::test]
async fn a_purge_removes_segments_and_keeps_what_is_still_true() {
    let disk = SimDisk::new(3);
    let log = open(&disk, 0).unwrap();
    let ballot = Ballot { leadership: Leadership { term: 4, node: 2 }, is_elected: true };
    log.save_ballot(ballot).unwrap().wait().unwrap();
    add(&log, members(0, 0, &[1, 2, 3]));
    for index in 1..100 {
        add(&log, requests(1, index, 1, 1000));
    }
    log.note_committed(id(1, 90)).unwrap();
    let before = disk.handle().list(&folder()).unwrap().len();
    let base = log.base_at(60).unwrap();
    assert_eq!((base.id, base.position, base.members.members.nodes.len()), (Some(id(1, 60)), 60, 3));
    let (wait, bound) = log.purge(id(1, 60)).unwrap().unwrap();
    wait.wait().unwrap();
    log.remove_before(bound).unwrap();
    assert!(disk.handle().list(&folder()).unwrap().len() < before);
    log.close().unwrap();
    assert!(matches!(open(&disk, 59), Err(StartError::Behind { applied: 59, begins: 60 })));
    assert!(matches!(open(&disk, 100), Err(StartError::Ahead { applied: 100, ends: 99 })));
    let log = open(&disk, 95).unwrap();
    assert_eq!((log.ballot(), log.base(), log.last()), (Some(ballot), base, Some(id(1, 99))));
    assert_eq!(log.committed(), Some(id(1, 95)), "what is checkpointed was settled");
    assert_eq!(all(&log).await[0].before, 60);
    // What a purge needs at start is not there: it is named.
    log.close().unwrap();
    let first = disk.handle().list(&folder()).unwrap().into_iter().find(|name| name.ends_with(".log"));
    disk.handle().remove(&folder().join(first.unwrap())).unwrap();
    let damage = open(&disk, 95).unwrap_err().to_string();
    assert!(damage.contains("missing"), "{damage}");
}

#[tokio::test]
async fn settled_entries_are_never_cut() {
    let disk = SimDisk::new(4);
    let log = open(&disk, 0).unwrap();
    for index in 0..4 {
        add(&log, requests(1, index, 1, 1));
    }
    log.note_committed(id(1, 2)).unwrap();
    assert!(log.cut_after(Some(id(1, 1))).is_err());
    log.cut_after(Some(id(1, 2))).unwrap();
    assert_eq!(log.last(), Some(id(1, 2)));
}

#[test]
fn a_cut_of_what_is_settled_refuses_the_start() {
    start_with_a_cut();
}

/// A log says that what is settled is void: a defect, or another folder's records.
fn start_with_a_cut() {
    let disk = SimDisk::new(4);
    let log = open(&disk, 0).unwrap();
    for index in 0..4 {
        add(&log, requests(1, index, 1, 1));
    }
    log.note_committed(id(1, 2)).unwrap();
    log.write(&Record::Cut(2)).unwrap().wait().unwrap();
    log.close().unwrap();
    let started = open(&disk, 0);
    assert!(started.is_err(), "it starts without what was settled");
}

#[test]
fn who_comes_under_a_known_number_with_other_data_is_not_met() {
    other_data();
}

/// A node that has lost what it confirmed is another one, also after a start of who had met it.
fn other_data() {
    let disk = SimDisk::new(4);
    let log = open(&disk, 0).unwrap();
    assert!(log.meet(2, 7) && log.meet(2, 7));
    assert!(!log.meet(2, 8), "it has lost what it confirmed");
    add(&log, requests(1, 0, 1, 1));
    log.close().unwrap();
    let log = open(&disk, 0).unwrap();
    assert!(log.meet(2, 7) && !log.meet(2, 8));
}

/// Rules that no storm meets (`planted`).
#[test]
fn planted_faults_of_the_log_are_noticed() {
    let histories: [(Planted, fn()); 2] =
        [(Planted::CutsTheSettled, start_with_a_cut), (Planted::MeetsAnybody, other_data)];
    for (fault, history) in histories {
        planted::plant(Some(fault));
        let found = std::panic::catch_unwind(history);
        planted::plant(None);
        assert!(found.is_err(), "{fault:?} is not noticed");
        history();
    }
}

#[tokio::test]
async fn a_snapshot_that_was_taken_in_before_the_log_knew_counts_after_a_restart() {
    let disk = SimDisk::new(5);
    let log = open(&disk, 0).unwrap();
    add(&log, requests(1, 0, 2, 1));
    let base = Base { id: Some(id(2, 50)), position: 70, members: MembersAt::default() };
    log.begin_install(Install { base: base.clone(), position: 72 }).unwrap().wait().unwrap();
    log.close().unwrap();
    // The application did not get as far: nothing has happened.
    let log = open(&disk, 1).unwrap();
    assert_eq!((log.base().position, log.last()), (0, Some(id(1, 0))));
    log.close().unwrap();
    // It did.
    let log = open(&disk, 72).unwrap();
    assert_eq!((log.base(), log.last(), log.committed()), (base, Some(id(2, 50)), Some(id(2, 50))));
    add(&log, requests(2, 51, 3, 1));
    assert_eq!(log.first_position(51), Some(71));
}

/// What comes behind the snapshot is there at the start after the next, whatever stands before it:
/// entries with a gap behind them, or the end of a deposed leader's log at its place.
#[tokio::test]
async fn what_follows_a_snapshot_that_the_log_did_not_know_of_is_found_again() {
    for before in [1, 20, 51, 52, 60] {
        let disk = SimDisk::new(5);
        let mut log = open(&disk, 0).unwrap();
        for index in 0..before {
            add(&log, requests(1, index, 1, 1));
        }
        let base = Base { id: Some(id(2, 50)), position: 70, members: MembersAt::default() };
        log.begin_install(Install { base: base.clone(), position: 70 }).unwrap().wait().unwrap();
        log.close().unwrap();
        for index in 51..54 {
            log = open(&disk, 70).unwrap();
            assert_eq!(log.base(), base, "{before} entries before");
            assert_eq!(log.last(), Some(id(2, index - 1)), "{before} entries before");
            add(&log, requests(2, index, 1, 1));
            log.close().unwrap();
        }
        log = open(&disk, 70).unwrap();
        let found: Vec<EntryId> = all(&log).await.iter().map(|placed| placed.entry.id).collect();
        assert_eq!(found, [id(2, 51), id(2, 52), id(2, 53)], "{before} entries before");
        assert_eq!(log.first_position(53), Some(73));
    }
}

/// A log of a build that did not write down that it went on behind a snapshot.
#[test]
fn an_entry_behind_a_snapshot_follows_it() {
    let mut slots = Slots::default();
    let base = Base { id: Some(id(2, 50)), position: 70, members: MembersAt::default() };
    let records = [
        Record::Entry(requests(1, 0, 2, 1)),
        Record::Install(Box::new(Install { base, position: 72 })),
        Record::Entry(requests(2, 51, 3, 1)),
    ];
    for (csn, record) in (1..).zip(records) {
        slots.replay(csn, record).unwrap();
    }
    assert_eq!((slots.first(), slots.next(), slots.end()), (51, 52, 73));
    let gap = Record::Entry(requests(2, 60, 1, 1));
    assert!(slots.replay(4, gap).is_err(), "it follows nothing");
}

/// A deposed leader has left the end of its log here, and the snapshot stands within an entry that
/// replaces it: what holds the snapshot's position is another entry, and is not settled.
#[test]
fn a_snapshot_within_an_entry_settles_none_that_stands_in_its_place() {
    for position in [4, 5] {
        let disk = SimDisk::new(9);
        let log = open(&disk, 0).unwrap();
        add(&log, requests(1, 0, 2, 1));
        add(&log, requests(1, 1, 3, 1));
        let base = Base { id: Some(id(1, 0)), position: 2, members: MembersAt::default() };
        log.begin_install(Install { base, position }).unwrap().wait().unwrap();
        log.close().unwrap();
        let log = open(&disk, position).unwrap();
        assert_eq!((log.committed(), log.last()), (Some(id(1, 0)), Some(id(1, 1))));
        assert_eq!(log.index_after(position), 1, "the entry that replaces it is looked at");
        log.cut_after(Some(id(1, 0))).unwrap();
        add(&log, requests(2, 1, 4, 1));
        log.note_committed(id(2, 1)).unwrap();
        log.close().unwrap();
        let log = open(&disk, 6).unwrap();
        assert_eq!((log.committed(), log.index_after(6)), (Some(id(2, 1)), 2));
    }
}

/// Segments that are kept hold earlier states, too, and not all that followed these.
#[tokio::test]
async fn a_log_that_was_cut_often_is_found_whole() {
    for every in 3..12 {
        let disk = SimDisk::new(8);
        let log = open(&disk, 0).unwrap();
        for index in 0..60 {
            add(&log, requests(1, index, 2, 900));
            log.note_committed(id(1, index)).unwrap();
            if index % every == every - 1 && index > 7 {
                let (wait, gone) = log.purge(id(1, index - 7)).unwrap().unwrap();
                wait.wait().unwrap();
                log.remove_before(gone).unwrap();
            }
        }
        let (base, last, entries) = (log.base(), log.last(), all(&log).await);
        assert!(base.id > Some(id(1, 40)));
        log.close().unwrap();
        let log = open(&disk, 110).unwrap();
        assert_eq!((log.base(), log.last()), (base, last), "cut at every {every}th entry");
        assert_eq!(all(&log).await, entries, "cut at every {every}th entry");
        assert_eq!(log.synced(), 120);
    }
}

/// Snapshots may stand within an entry that has not come yet, which only the last install tells.
#[tokio::test]
async fn snapshots_that_did_not_come_to_their_end_leave_the_one_before_known() {
    let disk = SimDisk::new(6);
    let mut log = open(&disk, 0).unwrap();
    let install = |index, position| {
        let base = Base { id: Some(id(2, index)), position: position - 2, members: MembersAt::default() };
        Install { base, position }
    };
    add(&log, requests(1, 0, 2, 1));
    log.begin_install(install(50, 72)).unwrap().wait().unwrap();
    for later in [90, 95, 120] {
        log.close().unwrap();
        log = open(&disk, 72).unwrap();
        assert_eq!((log.base().position, log.last()), (70, Some(id(2, 50))));
        log.begin_install(install(later, later)).unwrap().wait().unwrap();
    }
    // Two in one process: the first of them was taken in.
    log.begin_install(install(140, 140)).unwrap().wait().unwrap();
    log.close().unwrap();
    let log = open(&disk, 120).unwrap();
    assert_eq!((log.base().position, log.last()), (118, Some(id(2, 120))));
}

/// What a process that loses its power at any operation finds again: everything that was waited
/// for, the last ballot, and of the rest a beginning.
#[test]
fn nothing_that_was_waited_for_is_lost_with_the_power() {
    for seed in 0..150 {
        let disk = SimDisk::new(seed);
        let mut random = SplitMix::new(seed);
        disk.power_off_after(random.below(120));
        let (kept, ballot, length) = write_until_the_power_goes(&disk, &mut random);
        disk.restart(if random.one_in(3) { Loss::Process } else { Loss::Power });
        let log = match open(&disk, 0) {
            Ok(log) => log,
            Err(error) => panic!("seed {seed}: {error}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found: Vec<Entry> = runtime.block_on(all(&log)).into_iter().map(|placed| placed.entry).collect();
        assert!(found.len() >= kept.len() && found[..kept.len()] == kept[..], "seed {seed}");
        assert!(found.len() <= length, "seed {seed}");
        let term = log.ballot().map(|ballot| ballot.leadership.term).unwrap_or_default();
        assert!(term >= ballot, "seed {seed}: {term} {ballot}");
    }
}

/// Entries that were durable, the last durable ballot, and how many entries were ever there.
fn write_until_the_power_goes(disk: &SimDisk, random: &mut SplitMix) -> (Vec<Entry>, u64, usize) {
    let (mut kept, mut ballot, mut longest): (Vec<Entry>, u64, usize) = (Vec::new(), 0, 0);
    let Ok(log) = open(disk, 0) else { return (kept, ballot, longest) };
    let mut term = 1;
    for _ in 0..200 {
        match random.below(8) {
            0 => {
                term += 1;
                let leadership = Leadership { term, node: 1 };
                let Ok(wait) = log.save_ballot(Ballot { leadership, is_elected: false }) else { break };
                if wait.wait().is_err() {
                    break;
                }
                ballot = term;
            }
            1 if kept.len() > 1 => {
                let keep = 1 + random.below(kept.len() as u64 - 1) as usize;
                if log.cut_after(Some(kept[keep - 1].id)).is_err() {
                    break;
                }
                kept.truncate(keep);
            }
            _ => {
                let entry = requests(term, kept.len() as u64, 1 + random.below(3) as usize, 200);
                longest = longest.max(kept.len() + 1);
                let Ok(wait) = log.append(std::iter::once(entry.clone())) else { break };
                if wait.wait().is_err() {
                    break;
                }
                kept.push(entry);
            }
        }
    }
    (kept, ballot, longest)
}

/// It is known by its incarnation, so that it is not taken for who comes again in its place.
#[test]
fn who_has_lost_what_it_confirmed_is_remembered_until_it_is_removed() {
    let disk = SimDisk::new(3);
    let log = open(&disk, 0).unwrap();
    assert!(log.meet(2, 7) && log.meet(3, 8) && log.lost().is_empty());
    assert!(log.note_lost(2, 7).unwrap() && !log.note_lost(2, 7).unwrap());
    assert!(log.has_lost(2) && !log.has_lost(3) && log.met(2) == Some(7));
    log.close().unwrap();
    drop(log);
    let log = open(&disk, 0).unwrap();
    assert!(log.has_lost(2) && !log.has_lost(3));
    assert_eq!(log.lost(), BTreeMap::from([(2, 7)]));
    // The removal of another one changes nothing.
    log.forget_others(&BTreeSet::from([1, 2])).unwrap();
    assert!(log.has_lost(2) && log.met(3).is_none());
    log.forget_others(&BTreeSet::from([1])).unwrap();
    assert!(log.lost().is_empty() && log.meet(2, 9) && !log.has_lost(2));
    log.close().unwrap();
    drop(log);
    let log = open(&disk, 0).unwrap();
    assert!(!log.has_lost(2) && log.met(2) == Some(9));
}
