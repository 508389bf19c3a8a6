//! The log on the real disk: round trips, tears, damage.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cognate_engine::storage::frame::ENTRY_MAX;
use cognate_engine::storage::record::{BATCH_HEADER, BatchKind, encode_record, seal_batch};
use cognate_engine::storage::segment::{encode_header, segment_name};
use cognate_engine::storage::{Log, LogOptions};
use cognate_engine::{Csn, Error};
use cognate_env::{Clock, RealDisk};
use proptest::prelude::*;

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 8 << 10,
        grow_bytes: 2 << 10,
        idle_mark: None,
        prepare: false,
        ..LogOptions::default()
    }
}

type Found = Vec<(Csn, Vec<u8>)>;

fn open(folder: &Path, after: Csn) -> Result<(Log, Found), Error> {
    let mut found = Vec::new();
    let log = Log::open(Arc::new(RealDisk), folder, after, options(), &mut |csn, payload| {
        found.push((csn, payload.to_vec()));
        Ok(())
    })?;
    Ok((log, found))
}

fn payload(csn: Csn) -> Vec<u8> {
    let length = (csn * 37 % 300) as usize;
    (0..length).map(|index| (csn as usize * 7 + index) as u8 | 1).collect()
}

/// Appends records up to `last`, one flush each.
fn fill(log: &Log, last: Csn) {
    for csn in log.last() + 1..=last {
        let payload = payload(csn);
        let (head, tail) = payload.split_at(payload.len() / 2);
        assert_eq!(log.append(&[head, tail]).unwrap(), csn);
        log.wait_durable(csn).wait().unwrap();
        assert_eq!(log.durable(), csn);
    }
}

fn expected(after: Csn, last: Csn) -> Found {
    (after + 1..=last).map(|csn| (csn, payload(csn))).collect()
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// A copy of the folder as a crash of the process would leave it: the log is not closed.
fn crashed(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for path in segments(folder) {
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

/// End of the batches in a segment file: trailing zeros are preallocation.
fn end_of(path: &Path) -> usize {
    let bytes = fs::read(path).unwrap();
    bytes.len() - bytes.iter().rev().take_while(|&&byte| byte == 0).count()
}

/// A flush of its own would hold up the commit that comes next.
#[test]
fn what_nobody_waits_for_is_written_with_the_next_record_or_at_the_close() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(folder.path(), 0).unwrap();
    for waited in (2..=40).step_by(2) {
        assert_eq!(log.queue_along(&[&payload(waited - 1)]).unwrap(), waited - 1);
        assert_eq!(log.append(&[&payload(waited)]).unwrap(), waited);
        log.wait_durable(waited).wait().unwrap();
    }
    assert_eq!(log.queue_along(&[&payload(41)]).unwrap(), 41);
    log.close().unwrap();
    assert_eq!(log.statistics().batches, 21, "one for each that was waited for, and the last");
    drop(log);
    let (_log, found) = open(folder.path(), 0).unwrap();
    assert_eq!(found, expected(0, 41));
}

/// Beside many small logs, the zeros of full segments would take the device from their flushes.
#[test]
fn a_segment_is_prepared_in_proportion_to_what_was_logged() {
    let folder = tempfile::tempdir().unwrap();
    let prepared = LogOptions { segment_bytes: 1 << 20, grow_bytes: 8 << 10, prepare: true, ..options() };
    let log = Log::open(Arc::new(RealDisk), folder.path(), 0, prepared, &mut |_, _| Ok(())).unwrap();
    let logs = || {
        let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
        segments(folder.path()).into_iter().filter(is_log).collect::<Vec<_>>()
    };
    // The next one is begun where the first one ends, once it is ready.
    while logs().len() < 3 {
        fill(&log, log.last() + 1);
    }
    let last = log.last();
    drop(log);
    let lengths: Vec<u64> = logs().iter().map(|path| fs::metadata(path).unwrap().len()).collect();
    assert!(lengths.windows(2).all(|two| two[1] <= 2 * two[0]), "{lengths:?}");
    assert_eq!(logs().len(), segments(folder.path()).len(), "what was prepared and not used is removed");
    assert_eq!(open(folder.path(), 0).unwrap().1, expected(0, last));
}

#[test]
fn records_come_back_in_order_after_close_and_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let (log, found) = open(folder.path(), 0).unwrap();
    assert!(found.is_empty());
    fill(&log, 100);
    let copy = crashed(folder.path());
    assert!(segments(folder.path()).len() > 1);
    drop(log);
    for folder in [folder.path(), copy.path()] {
        let (log, found) = open(folder, 0).unwrap();
        assert_eq!(found, expected(0, 100));
        fill(&log, 120);
        drop(log);
        let (log, found) = open(folder, 50).unwrap();
        assert_eq!((log.last(), log.durable()), (120, 120));
        assert_eq!(found, expected(50, 120));
    }
}

#[test]
fn old_segments_are_removed_and_the_size_shrinks() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(folder.path(), 0).unwrap();
    fill(&log, 200);
    let before = segments(folder.path()).len();
    log.remove_before(100).unwrap();
    assert!(segments(folder.path()).len() < before);
    assert!(log.size_after(0) >= log.size_after(150) && log.size_after(200) == 0);
    drop(log);
    let (log, found) = open(folder.path(), 100).unwrap();
    assert_eq!(found, expected(100, 200));
    log.remove_before(200).unwrap();
    assert_eq!(segments(folder.path()).len(), 1);
    drop(log);
    let (log, found) = open(folder.path(), 200).unwrap();
    assert!(found.is_empty());
    fill(&log, 210);
    drop(log);
    assert!(
        matches!(open(folder.path(), 0), Err(Error::Corrupt { .. })),
        "log before the segments is missing"
    );
    assert!(matches!(open(folder.path(), 300), Err(Error::Corrupt { .. })), "log ends before the watermark");
    for path in segments(folder.path()) {
        fs::remove_file(path).unwrap();
    }
    assert!(matches!(open(folder.path(), 200), Err(Error::Corrupt { .. })), "no log at all");
}

#[test]
fn a_missing_segment_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(folder.path(), 0).unwrap();
    fill(&log, 200);
    drop(log);
    let paths = segments(folder.path());
    assert!(paths.len() > 3);
    fs::remove_file(&paths[1]).unwrap();
    match open(folder.path(), 0) {
        Err(Error::Corrupt { file, what, .. }) => {
            assert_eq!(file, paths[0]);
            assert!(what.contains("missing"), "{what}");
        }
        other => panic!("{other:?}"),
    }
}

/// What is wrong with a log that opens after damage to its last segment, and does not.
fn missed(folder: &Path, last: &Path) {
    // Nothing that would tell is removed by the first attempt.
    for _ in 0..2 {
        match open(folder, 0) {
            Err(Error::Corrupt { file, offset: 0, .. }) => assert_eq!(file, last),
            other => panic!("{:?} without {}", other.map(|found| found.1.len()), last.display()),
        }
    }
}

/// The writer says in a segment that it went on in another one.
#[test]
fn a_last_segment_that_is_gone_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(folder.path(), 0).unwrap();
    fill(&log, 200);
    let damages: [fn(&Path); 4] = [
        |last| fs::remove_file(last).unwrap(),
        |last| fs::write(last, b"").unwrap(),
        |last| fs::write(last, [0_u8; 4096]).unwrap(),
        |last| {
            fs::remove_file(last).unwrap();
            fs::create_dir(last).unwrap();
        },
    ];
    for damage in damages {
        let copy = crashed(folder.path());
        let paths = segments(copy.path());
        assert!(paths.len() > 3);
        let last = &paths[paths.len() - 1];
        damage(last);
        missed(copy.path(), last);
    }
    let copy = crashed(folder.path());
    let mut paths = segments(copy.path());
    let (_, last) = (paths.pop(), paths.pop().unwrap());
    for path in segments(copy.path()).iter().filter(|path| **path >= last) {
        fs::remove_file(path).unwrap();
    }
    missed(copy.path(), &last);
    drop(log);
    assert_eq!(open(folder.path(), 0).unwrap().1, expected(0, 200));
}

/// Segments of that version do not say that they were left, also where they are continued: who
/// reads that version would not understand it.
#[test]
fn a_segment_of_the_version_before_is_read_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    let (mut header, _) = encode_header(1, 0, 7);
    header[8] = 1;
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    let mut batch = vec![0; BATCH_HEADER];
    encode_record(&mut batch, 1, &[&payload(1)]);
    seal_batch(&mut batch, BatchKind::Records, 1, 1, crc, 7);
    fs::write(folder.path().join(segment_name(1)), [&header[..], &batch[..]].concat()).unwrap();
    let (log, found) = open(folder.path(), 0).unwrap();
    assert_eq!(found, expected(0, 1));
    fill(&log, 200);
    drop(log);
    assert_eq!(open(folder.path(), 0).unwrap().1, expected(0, 200));
    let paths = segments(folder.path());
    assert!(paths.len() > 3);
    for path in &paths[1..] {
        fs::remove_file(path).unwrap();
    }
    let (_log, found) = open(folder.path(), 0).unwrap();
    assert!(found.len() > 1 && found == expected(0, found.len() as Csn));
}

/// Its folder may be on a volume that is not mounted.
#[test]
fn a_log_that_was_begun_and_is_gone_is_missed() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("log");
    let open_begun = || {
        let begun = LogOptions { begun: true, ..options() };
        Log::open(Arc::new(RealDisk), &folder, 0, begun, &mut |_, _| Ok(()))
    };
    let is_missed = || matches!(open_begun(), Err(Error::Corrupt { file, .. }) if file == folder);
    assert!(is_missed() && !folder.exists());
    fs::create_dir(&folder).unwrap();
    assert!(is_missed());
    fs::write(folder.join(segment_name(1)), b"").unwrap();
    assert!(is_missed() && is_missed(), "without its header it is none");
    // As after a crash in the creation of the first one.
    drop(open(&folder, 0).unwrap());
    drop(open_begun().unwrap());
}

#[test]
fn a_record_over_the_limit_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let small = LogOptions { record_bytes_max: 10, ..options() };
    let log = Log::open(Arc::new(RealDisk), folder.path(), 0, small, &mut |_, _| Ok(())).unwrap();
    assert!(matches!(log.append(&[b"12345", b"678901"]), Err(Error::TransactionTooLarge { limit: 10 })));
    assert_eq!(log.append(&[b"1234567890"]).unwrap(), 1);
    log.close().unwrap();
    assert!(matches!(log.append(&[b"x"]), Err(Error::ShuttingDown)));
    assert_eq!(log.durable(), 1);
}

/// One that is accepted could not be taken back when a checkpoint cannot store it.
#[test]
fn no_record_is_longer_than_what_a_checkpoint_can_store() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(Arc::new(RealDisk), folder.path(), 0, LogOptions::default(), &mut |_, _| Ok(()));
    let part = vec![0_u8; 1 << 26];
    let refused = log.unwrap().append(&[&part[..]; 16]);
    assert!(matches!(refused, Err(Error::TransactionTooLarge { limit }) if limit <= ENTRY_MAX as u64));
}

#[test]
fn a_batch_larger_than_a_segment_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(folder.path(), 0).unwrap();
    let large = vec![7; 100_000];
    for _ in 0..3 {
        let csn = log.append(&[&large]).unwrap();
        log.wait_durable(csn).wait().unwrap();
    }
    drop(log);
    let (_, found) = open(folder.path(), 0).unwrap();
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|(_, payload)| *payload == large));
}

/// A log that was opened and closed has a proof of that in its first segment, and no record. What
/// has no room beside it does not go to another segment, which would have the same name.
#[test]
fn a_batch_larger_than_a_segment_is_kept_behind_a_close() {
    let folder = tempfile::tempdir().unwrap();
    let large = vec![7; 100_000];
    for closes in 1..4 {
        let (log, found) = open(folder.path(), 0).unwrap();
        assert!(found.is_empty());
        log.close().unwrap();
        drop(log);
        assert_eq!(segments(folder.path()).len(), 1);
        assert!(end_of(&segments(folder.path())[0]) > 32 + closes * 32, "a close was written");
    }
    let (log, _) = open(folder.path(), 0).unwrap();
    for csn in 1..3 {
        assert_eq!(log.append(&[&large]).unwrap(), csn);
        log.wait_durable(csn).wait().unwrap();
    }
    drop(log);
    let (_, found) = open(folder.path(), 0).unwrap();
    assert_eq!(found, [(1, large.clone()), (2, large)]);
    assert_eq!(segments(folder.path()).len(), 2, "the second batch begins a segment of its own");
}

/// With a gap between its segments a log does not open.
#[test]
fn segments_behind_one_that_cannot_be_removed_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(folder.path(), 0).unwrap();
    fill(&log, 200);
    let paths = segments(folder.path());
    assert!(paths.len() > 3);
    let aside = folder.path().join("aside");
    fs::rename(&paths[0], &aside).unwrap();
    // As a file it cannot be removed now.
    fs::create_dir(&paths[0]).unwrap();
    for _ in 0..3 {
        assert!(matches!(log.remove_before(150), Err(Error::Io { .. })));
    }
    fs::remove_dir(&paths[0]).unwrap();
    fs::rename(&aside, &paths[0]).unwrap();
    assert_eq!(segments(folder.path()), paths);
    let copy = crashed(folder.path());
    assert_eq!(open(copy.path(), 0).unwrap().1, expected(0, 200));
    log.remove_before(150).unwrap();
    assert!(segments(folder.path()).len() < paths.len());
    drop(log);
    assert_eq!(open(folder.path(), 150).unwrap().1, expected(150, 200));
}

#[test]
fn many_threads_get_distinct_numbers_and_all_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(folder.path(), 0).unwrap();
    std::thread::scope(|scope| {
        for thread in 0_u64..8 {
            let log = &log;
            scope.spawn(move || {
                for round in 0_u64..200 {
                    let csn = log.queue(&[&thread.to_le_bytes(), &round.to_le_bytes()]).unwrap();
                    // Half of them write it themselves, if nobody is writing.
                    if thread % 2 == 0 || !log.flush_here(Duration::MAX) {
                        log.nudge();
                    }
                    log.wait_durable(csn).wait().unwrap();
                }
            });
        }
    });
    assert_eq!(log.durable(), 1600);
    drop(log);
    let (_, found) = open(folder.path(), 0).unwrap();
    assert_eq!(found.len(), 1600);
    let mut next = [0_u64; 8];
    for (_, payload) in found {
        let thread = u64::from_le_bytes(payload[..8].try_into().unwrap());
        let round = u64::from_le_bytes(payload[8..].try_into().unwrap());
        assert_eq!(next[thread as usize], round, "one thread's records are in its order");
        next[thread as usize] += 1;
    }
}

/// A clock by which everything takes a hundred microseconds.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn wall_us(&self) -> i64 {
        0
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.fetch_add(100, Ordering::Relaxed))
    }
}

/// A thread that has other work, too, would be kept from it.
#[test]
fn nobody_waits_for_a_slow_device_on_a_thread_that_is_not_the_logs() {
    let folder = tempfile::tempdir().unwrap();
    let ticking = LogOptions { clock: Arc::new(Ticking::default()), ..options() };
    let log = Log::open(Arc::new(RealDisk), folder.path(), 0, ticking, &mut |_, _| Ok(())).unwrap();
    fill(&log, 3);
    let csn = log.queue(&[&payload(4)]).unwrap();
    assert!(!log.flush_here(Duration::from_micros(99)), "flushes take longer");
    log.nudge();
    log.wait_durable(csn).wait().unwrap();
    assert!(!log.flush_here(Duration::MAX), "there is nothing to be written");
    log.close().unwrap();
    assert!(!log.flush_here(Duration::MAX), "it is closed");
    drop(log);
    assert_eq!(open(folder.path(), 0).unwrap().1, expected(0, 4));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Cutting the last segment anywhere loses only the records behind the cut.
    #[test]
    fn a_truncated_tail_is_cut(records in 1_u64..40, cut in 0.0..1.0_f64) {
        let folder = tempfile::tempdir().unwrap();
        let (log, _) = open(folder.path(), 0).unwrap();
        fill(&log, records);
        let copy = crashed(folder.path());
        drop(log);
        let last = segments(copy.path()).pop().unwrap();
        let first: Csn = last.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let length = (end_of(&last) as f64 * cut) as u64;
        fs::OpenOptions::new().write(true).open(&last).unwrap().set_len(length).unwrap();
        match open(copy.path(), 0) {
            Ok((log, found)) => {
                prop_assert_eq!(&found, &expected(0, found.len() as Csn));
                prop_assert!(found.len() as Csn >= first - 1);
                fill(&log, records + 5);
                drop(log);
                prop_assert_eq!(open(copy.path(), 0).unwrap().1, expected(0, records + 5));
            }
            // A cut within the header: it was flushed before anything else, so this is no tear.
            Err(Error::Corrupt { file, offset: 0, .. }) if length < 64 => prop_assert_eq!(file, last),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// A flipped bit anywhere in what was written is named, wherever it is, also in the last batch.
    #[test]
    fn a_flipped_bit_is_named(records in 1_u64..60, at in 0.0..1.0_f64, bit in 0_u8..8) {
        let folder = tempfile::tempdir().unwrap();
        let (log, _) = open(folder.path(), 0).unwrap();
        fill(&log, records);
        let copy = crashed(folder.path());
        drop(log);
        let paths = segments(copy.path());
        let path = &paths[(at * 1000.0) as usize % paths.len()];
        let offset = (end_of(path) as f64 * at) as usize;
        let mut bytes = fs::read(path).unwrap();
        bytes[offset] ^= 1 << bit;
        fs::write(path, &bytes).unwrap();
        match open(copy.path(), 0) {
            Err(Error::Corrupt { file, offset: named, .. }) => {
                prop_assert_eq!(&file, path);
                prop_assert!(named <= offset as u64, "{named} names damage at {offset}");
            }
            other => prop_assert!(false, "flip at {offset} of {path:?}: {:?}", other.map(|found| found.1.len())),
        }
    }
}

/// A stored run of zeros looks like lost sectors. With nothing behind it, damage there must be
/// taken for a tear; the mark that an idle log writes, and the close of a clean shutdown, prove
/// that it is not.
#[test]
fn damage_to_the_last_batch_is_named_once_a_mark_follows() {
    for (proof, here) in [("none", false), ("mark", false), ("mark", true), ("close", false)] {
        let folder = tempfile::tempdir().unwrap();
        let idle_mark = (proof == "mark").then_some(Duration::from_millis(1));
        let marked = LogOptions { idle_mark, ..options() };
        let log = Log::open(Arc::new(RealDisk), folder.path(), 0, marked, &mut |_, _| Ok(())).unwrap();
        let payload = vec![0; 5000];
        let csn = log.queue(&[&payload]).unwrap();
        // Also behind what the log thread has not written.
        if !here || !log.flush_here(Duration::MAX) {
            log.nudge();
        }
        log.wait_durable(csn).wait().unwrap();
        let path = segments(folder.path()).remove(0);
        let batch_end = 64 + 32 + (16 + 5000_usize).next_multiple_of(32);
        while proof == "mark" && end_of(&path) <= batch_end {
            std::thread::yield_now();
        }
        let copy = if proof == "close" {
            log.close().unwrap();
            drop(log);
            folder
        } else {
            crashed(folder.path())
        };
        let path = segments(copy.path()).remove(0);
        let mut bytes = fs::read(&path).unwrap();
        bytes[3000] = 1;
        fs::write(&path, bytes).unwrap();
        match open(copy.path(), 0) {
            Ok((log, found)) => assert_eq!((proof, found.len(), log.last()), ("none", 0, 0)),
            Err(Error::Corrupt { file, offset, what }) => {
                assert_eq!((file, offset), (path, 64), "{what}");
                assert_ne!(proof, "none");
            }
            Err(other) => panic!("{other}"),
        }
    }
}
