//! Log and base store on a disk that loses power, fails flushes and fills up. Every round prints
//! its seed if it fails.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cognate_engine::storage::{Base, BaseOptions, Log, LogOptions};
use cognate_engine::{Csn, Error, Key, TreeId, Value};
use cognate_env::SplitMix;
use cognate_env::sim::{Loss, SimClock, SimDisk, SimRng};

const LOG: &str = "data/log";
const BASE: &str = "data/base";

/// Seeds to try: `count`, or that many times `COGNATE_TEST_ROUNDS` for a long run.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let factor = std::env::var("COGNATE_TEST_ROUNDS").ok().and_then(|factor| factor.parse().ok());
    0..count * factor.unwrap_or(1)
}

/// Names the seed of a round that panics.
struct Round(u64);

impl Drop for Round {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

/// The log under test, with everything ever appended and what was acknowledged.
struct LogModel {
    disk: SimDisk,
    random: SplitMix,
    /// The last payload appended under each csn.
    appended: BTreeMap<Csn, Vec<u8>>,
    acknowledged: Csn,
    watermark: Csn,
    /// Prepared segments come from a thread of their own, so such rounds do not repeat exactly.
    prepare: bool,
}

impl LogModel {
    fn new(seed: u64) -> LogModel {
        LogModel {
            disk: SimDisk::new(seed),
            random: SplitMix::new(seed ^ 0x5EED),
            appended: BTreeMap::new(),
            acknowledged: 0,
            watermark: 0,
            prepare: seed % 4 == 1,
        }
    }

    /// Recovers and checks what came back. `Err` only if a fault was injected into the recovery
    /// itself.
    fn open(&mut self) -> Result<Log, Error> {
        let options = LogOptions {
            segment_bytes: 16 << 10,
            grow_bytes: 3 << 10,
            prepare: self.prepare,
            idle_mark: None,
            rng: Arc::new(SimRng::new(self.random.bits())),
            clock: Arc::new(SimClock::default()),
            ..LogOptions::default()
        };
        let mut next = self.watermark + 1;
        let appended = &self.appended;
        let log =
            Log::open(self.disk.handle(), Path::new(LOG), self.watermark, options, &mut |csn, payload| {
                assert_eq!(csn, next, "records come back in order, without gaps");
                assert_eq!(Some(payload), appended.get(&csn).map(|payload| &payload[..]), "record {csn}");
                next += 1;
                Ok(())
            })?;
        assert!(
            next > self.acknowledged,
            "record {} was acknowledged, but only {} came back",
            self.acknowledged,
            next - 1
        );
        assert_eq!((log.last(), log.durable()), (next - 1, next - 1));
        self.appended.split_off(&next);
        // What was recovered is durable now: it must never vanish again.
        self.acknowledged = next - 1;
        Ok(log)
    }

    /// Appends and waits until `count` is reached or the log fails. Half of it is written by the
    /// log thread, and the other half here, if that one is not writing.
    fn work(&mut self, log: &Log, count: u64, at_once: u64) -> Result<(), Error> {
        for _ in 0..count {
            let (mut last, here) = (0, self.random.one_in(2));
            for _ in 0..=self.random.below(at_once) {
                let length = match self.random.below(4) {
                    0 => 0,
                    1 | 2 => self.random.below(200),
                    _ => self.random.below(4000),
                };
                // Some payloads are zeros, which look like a lost sector.
                let fill = if self.random.one_in(4) { 0 } else { self.random.bits() as u8 };
                let mut payload = vec![fill; length as usize];
                payload.extend_from_slice(&self.random.bits().to_le_bytes());
                let (head, tail) = payload.split_at(payload.len() / 3);
                last = if here { log.queue(&[head, tail])? } else { log.append(&[head, tail])? };
                self.appended.insert(last, payload);
            }
            if here && !log.flush_here(Duration::MAX) {
                log.nudge();
            }
            log.wait_durable(last).wait()?;
            self.acknowledged = last;
            if self.random.one_in(20) {
                self.watermark = self.random.below(self.acknowledged + 1).max(self.watermark);
                log.remove_before(self.watermark)?;
            }
        }
        Ok(())
    }

    /// Ends the process without letting it write any more, or cleanly.
    fn end(&mut self, log: Option<Log>) {
        let clean = self.random.one_in(4);
        if !clean {
            self.disk.power_off_after(0);
        }
        drop(log);
        let loss = if self.random.one_in(3) { Loss::Process } else { Loss::Power };
        self.disk.restart(loss);
    }
}

#[test]
fn no_acknowledged_record_is_lost_when_the_power_goes_at_any_moment() {
    for seed in seeds(200) {
        let _round = Round(seed);
        let mut model = LogModel::new(seed);
        let at_once = if seed % 3 == 0 { 6 } else { 1 };
        for _ in 0..6 {
            if model.random.one_in(2) {
                let operations = model.random.below(60);
                model.disk.power_off_after(operations);
            }
            let count = model.random.below(40);
            let log = model.open();
            if let Ok(log) = &log {
                let _ = model.work(log, count, at_once);
            } else {
                assert!(model.disk.is_off(), "{:?}", log.err());
                model.end(None);
                continue;
            }
            model.end(log.ok());
        }
        model.open().expect("the log opens after all");
    }
}

#[test]
fn a_failed_flush_poisons_the_log_and_loses_nothing_acknowledged() {
    for seed in seeds(100) {
        let _round = Round(seed);
        let mut model = LogModel::new(seed);
        let log = model.open().unwrap();
        model.work(&log, 20, 1).unwrap();
        let flushes = model.random.below(10);
        model.disk.fail_sync_after(flushes);
        let Err(error) = model.work(&log, 40, 1) else {
            // It hit the next segment, which is prepared in the background: that is given up, and
            // no commit needs it.
            assert!(model.prepare);
            continue;
        };
        if matches!(&error, Error::Io { file, .. } if file == Path::new(LOG)) {
            // It hit the folder after the removal of old segments, which puts no commit in doubt.
            model.work(&log, 5, 1).unwrap();
            continue;
        }
        assert!(matches!(error, Error::LogPoisoned { .. }), "{error}");
        // Nothing was durable by luck: the log stays closed although the disk works again.
        assert!(matches!(log.append(&[b"x"]), Err(Error::LogPoisoned { .. })));
        assert!(matches!(log.wait_durable(log.last()).wait(), Err(Error::LogPoisoned { .. })));
        log.wait_durable(log.durable()).wait().unwrap();
        assert_eq!(log.durable(), model.acknowledged);
        assert!(matches!(log.close(), Err(Error::LogPoisoned { .. })));
        drop(log);
        model.disk.restart(if seed % 2 == 0 { Loss::Process } else { Loss::Power });
        // What only the cache held after the failed flush must be durable once it was recovered.
        let log = model.open().unwrap();
        model.disk.power_off_after(0);
        drop(log);
        model.disk.restart(Loss::Power);
        let log = model.open().unwrap();
        model.work(&log, 5, 1).unwrap();
    }
}

#[test]
fn a_full_disk_stops_commits_and_recovery_works_after_space_returns() {
    for seed in seeds(60) {
        let _round = Round(seed);
        let mut model = LogModel::new(seed);
        let log = model.open().unwrap();
        model.work(&log, 10, 1).unwrap();
        let used = model.disk.used_bytes();
        let quota = used + model.random.below(20_000);
        model.disk.set_quota(Some(quota));
        let error = model.work(&log, 1000, 2).unwrap_err();
        match &error {
            Error::LogPoisoned { cause } => assert!(matches!(**cause, Error::DiskFull { .. }), "{error}"),
            other => panic!("{other}"),
        }
        drop(log);
        model.disk.restart(Loss::Process);
        if seed % 2 == 0 {
            // Recovery itself needs no space: what is acknowledged can be read on a disk that is
            // still full.
            model.disk.set_quota(Some(quota));
        }
        let log = model.open().unwrap();
        model.disk.set_quota(None);
        model.work(&log, 10, 1).unwrap();
    }
}

#[test]
fn damage_after_any_crash_is_named_or_harmless() {
    let mut named = 0;
    for seed in seeds(200) {
        let _round = Round(seed);
        let mut model = LogModel::new(seed);
        let log = model.open().unwrap();
        let count = 5 + model.random.below(30);
        model.work(&log, count, 1).unwrap();
        let clean = seed % 2 == 0;
        if !clean {
            model.disk.power_off_after(0);
        }
        drop(log);
        model.disk.restart(Loss::Process);
        let files = model.disk.files();
        let (path, bytes) = &files[model.random.below(files.len() as u64) as usize];
        let offset = model.random.below(bytes.len() as u64);
        model.disk.flip(path, offset, 1 << model.random.below(8));
        let acknowledged = model.acknowledged;
        let mut found = model.watermark;
        let result = Log::open(
            model.disk.handle(),
            Path::new(LOG),
            model.watermark,
            LogOptions { idle_mark: None, prepare: false, ..LogOptions::default() },
            &mut |csn, payload| {
                assert_eq!(Some(payload), model.appended.get(&csn).map(|payload| &payload[..]));
                found = csn;
                Ok(())
            },
        );
        match result {
            Ok(_) => assert!(
                found == acknowledged || (!clean && looks_torn(bytes, offset)),
                "record {acknowledged} is gone after a flip at {offset} of {}",
                path.display()
            ),
            Err(Error::Corrupt { file, offset: at, what }) => {
                assert_eq!(&file, path, "flip at {offset}, named {at}: {what}");
                assert!(at <= offset.max(64));
                named += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(named > 100, "{named}");
}

/// The documented exception: a last batch without a mark behind it, with a sector's share of zeros
/// in a stored payload, and damaged.
fn looks_torn(bytes: &[u8], offset: u64) -> bool {
    let from = (offset as usize).saturating_sub(4096) / 512 * 512;
    let to = (offset as usize + 4096).min(bytes.len());
    bytes[from..to].chunks(512).any(|sector| sector.iter().all(|&byte| byte == 0))
}

pub(super) type State = BTreeMap<(TreeId, Vec<u8>), Vec<u8>>;
type Changes = Vec<(TreeId, Key, Option<Value>)>;

pub(super) fn open_base(disk: &SimDisk) -> Result<Base, Error> {
    let options = BaseOptions { cache_bytes: 64 << 10, runs_max: 3, verify: true };
    Base::open(disk.handle(), Path::new(BASE), options)
}

pub(super) fn read_all(base: &Base) -> State {
    let mut state = State::new();
    for tree in [1, 2] {
        let mut scan = base.scan(tree, Bound::Unbounded, Bound::Unbounded, false).unwrap();
        while let Some((key, value)) = scan.next().unwrap() {
            state.insert((tree, key.to_vec()), value.to_vec());
        }
    }
    state
}

/// The state after each of a few checkpoints, and the changes that lead there.
fn history(seed: u64, checkpoints: usize) -> Vec<(State, Changes)> {
    let mut random = SplitMix::new(seed);
    let mut state = State::new();
    let mut history = Vec::new();
    for _ in 0..checkpoints {
        let mut changes = BTreeMap::new();
        for _ in 0..random.below(200) {
            let key = (1 + random.below(2) as TreeId, random.below(300).to_be_bytes().to_vec());
            let value = (!random.one_in(3)).then(|| vec![random.bits() as u8; random.below(100) as usize]);
            changes.insert(key, value);
        }
        for (key, value) in &changes {
            match value {
                Some(value) => state.insert(key.clone(), value.clone()),
                None => state.remove(key),
            };
        }
        let changes = changes
            .into_iter()
            .map(|((tree, key), value)| (tree, Bytes::from(key), value.map(Bytes::from)))
            .collect();
        history.push((state.clone(), changes));
    }
    history
}

/// Runs the history from the base's watermark on, merging on the way. Returns the last watermark
/// whose `apply` returned.
fn run_history(base: &Base, history: &[(State, Changes)]) -> (Csn, Result<(), Error>) {
    let mut done = base.watermark();
    for (index, (_, changes)) in history.iter().enumerate().skip(done as usize) {
        let watermark = index as Csn + 1;
        if let Err(error) = base.apply(watermark, &mut changes.clone().into_iter(), &[]) {
            return (done, Err(error));
        }
        done = watermark;
        if let Err(error) = base.compact_step() {
            return (done, Err(error));
        }
    }
    (done, Ok(()))
}

#[test]
fn the_base_store_is_whole_when_the_power_goes_at_every_operation() {
    for seed in seeds(4) {
        let _round = Round(seed);
        let history = history(seed, 8);
        let disk = SimDisk::new(seed);
        let base = open_base(&disk).unwrap();
        run_history(&base, &history).1.unwrap();
        let operations = disk.operations();
        for at in 0..operations {
            let disk = SimDisk::new(seed * 1000 + at);
            disk.power_off_after(at);
            let done = match open_base(&disk) {
                Ok(base) => run_history(&base, &history).0,
                Err(_) => 0,
            };
            disk.restart(if at % 4 == 0 { Loss::Process } else { Loss::Power });
            let mut base = open_base(&disk).unwrap_or_else(|error| panic!("power off at {at}: {error}"));
            let watermark = base.watermark();
            if at % 2 == 0 {
                // What was once read as the state must never be taken back.
                drop(base);
                disk.restart(Loss::Power);
                base = open_base(&disk).unwrap_or_else(|error| panic!("power off at {at}, again: {error}"));
                assert_eq!(base.watermark(), watermark, "power off at {at}");
            }
            assert!(watermark >= done, "power off at {at}: watermark {watermark}, {done} was applied");
            let expected = watermark.checked_sub(1).map(|index| &history[index as usize].0);
            assert_eq!(read_all(&base), expected.cloned().unwrap_or_default(), "power off at {at}");
            run_history(&base, &history).1.unwrap();
            assert_eq!(read_all(&base), history[history.len() - 1].0);
        }
    }
}

/// A bulk load as the engine does it; the list stands for the log: a record is durable once it is
/// in it.
fn load_history(base: &Base, log: &mut Vec<Vec<u64>>) -> Result<(), Error> {
    let rows = |range: std::ops::Range<u64>, value: &'static [u8]| {
        range.map(move |row| (2, Bytes::copy_from_slice(&row.to_be_bytes()), Some(Bytes::from_static(value))))
    };
    if base.watermark() < 1 {
        base.apply(1, &mut [(1, Bytes::from_static(b"k"), Some(Bytes::from_static(b"v")))].into_iter(), &[])?;
    }
    if log.is_empty() {
        let first = base.stage(&mut rows(0..300, b"old"))?;
        let second = base.stage(&mut rows(200..400, b"new"))?;
        let numbers: Vec<u64> = first.iter().chain(&second).map(|portion| portion.number()).collect();
        base.attach(&numbers, 2)?;
        log.push(numbers);
    }
    base.compact_all()?;
    if base.watermark() < 3 {
        let mut deleted = (0..100_u64).map(|row| (2, Bytes::copy_from_slice(&row.to_be_bytes()), None));
        base.apply(3, &mut deleted, &[])?;
    }
    base.compact_all()
}

#[test]
fn a_bulk_load_is_all_there_or_not_at_all_when_the_power_goes_at_every_operation() {
    for at in 0.. {
        let _round = Round(at);
        let disk = SimDisk::new(at);
        disk.power_off_after(at);
        let mut log = Vec::new();
        let finished = open_base(&disk).and_then(|base| load_history(&base, &mut log)).is_ok();
        disk.restart(if at % 3 == 0 { Loss::Process } else { Loss::Power });
        let base = open_base(&disk).unwrap();
        if let (Some(numbers), true) = (log.first(), base.watermark() < 2) {
            base.attach(numbers, 2).unwrap();
        }
        base.discard_unattached(&[]).unwrap();
        let loaded = read_all(&base).range((2, Vec::new())..).count();
        let expected = match (log.len(), base.watermark()) {
            (0, _) => 0,
            (_, 3) => 300,
            _ => 400,
        };
        assert_eq!(loaded, expected);
        load_history(&base, &mut log).unwrap();
        assert_eq!(read_all(&base).len(), 301);
        assert_eq!(base.get(2, &250_u64.to_be_bytes()).unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!((base.statistics().runs, base.statistics().attached), (1, 0));
        drop(base);
        assert_eq!(disk.files().len(), 2, "one run and the manifest");
        if finished {
            return;
        }
    }
}

#[test]
fn a_failed_flush_or_a_full_disk_leaves_the_base_store_as_it_was() {
    for seed in seeds(60) {
        let _round = Round(seed);
        let history = history(seed, 10);
        let disk = SimDisk::new(seed);
        let mut random = SplitMix::new(seed);
        let base = open_base(&disk).unwrap();
        let half = 4;
        run_history(&base, &history[..half]).1.unwrap();
        if seed % 2 == 0 {
            disk.fail_sync_after(random.below(6));
        } else {
            disk.set_quota(Some(disk.used_bytes() + random.below(5000)));
        }
        let (done, result) = run_history(&base, &history);
        assert!(result.is_err());
        // Reads go on, with the last state that was switched to (or the one whose switch is in
        // doubt).
        let state = read_all(&base);
        assert!(state == history[done as usize - 1].0, "done {done}");
        disk.set_quota(None);
        // Unless the switch itself is in doubt, trying again works in the same process.
        if run_history(&base, &history).1.is_ok() {
            assert_eq!(read_all(&base), history[history.len() - 1].0);
        }
        drop(base);
        disk.restart(Loss::Power);
        let base = open_base(&disk).unwrap();
        assert!(base.watermark() >= done);
        run_history(&base, &history).1.unwrap();
        assert_eq!(read_all(&base), history[history.len() - 1].0);
    }
}

#[test]
fn an_unreadable_run_fails_the_read_and_not_the_process() {
    let disk = SimDisk::new(1);
    let base = open_base(&disk).unwrap();
    let history = history(1, 3);
    run_history(&base, &history).1.unwrap();
    let runs = disk.files().into_iter().filter(|(path, _)| path.extension().is_some());
    runs.for_each(|(run, _)| disk.fail_reads(&run));
    let ((tree, key), _) = history[2].0.iter().next().unwrap();
    assert!(matches!(base.get(*tree, key), Err(Error::Io { .. })));
    drop(base);
    assert!(matches!(open_base(&disk), Err(Error::Io { .. })));
}

/// Descriptors run out, for example, where connections have them all. The checkpoint is tried
/// again, with a run as large.
#[test]
fn a_run_that_cannot_be_opened_leaves_no_file() {
    let disk = SimDisk::new(1);
    let base = open_base(&disk).unwrap();
    let checkpoint = || {
        let rows = [(1, Key::from_static(b"key"), Some(Value::from_static(b"value")))];
        base.apply(1, &mut rows.into_iter(), &[])
    };
    for number in 1..4 {
        disk.fail_reads(&Path::new(BASE).join(format!("{number:016}.run")));
        assert!(matches!(checkpoint(), Err(Error::Io { .. })));
        assert_eq!(disk.files().len(), 1, "the manifest alone");
    }
    checkpoint().unwrap();
    assert_eq!((disk.files().len(), read_all(&base).len()), (2, 1));
}

/// Whoever attaches a load has the commit mutex: all commits would wait for the manifest.
#[test]
fn a_load_is_attached_while_a_manifest_is_being_written() {
    let disk = SimDisk::new(1);
    let base = open_base(&disk).unwrap();
    let rows = [(1, Key::from_static(b"key"), Some(Value::from_static(b"value")))];
    let load = base.stage(&mut rows.into_iter()).unwrap().unwrap();
    disk.hold_flushes();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| base.apply(1, &mut std::iter::empty(), &[]));
        while !disk.files().iter().any(|(path, _)| path.ends_with("MANIFEST.new")) {
            std::thread::yield_now();
        }
        base.attach_staged(&[load], 2);
        assert_eq!((base.watermark(), base.first_attached()), (0, Some(2)));
        disk.let_flushes_go();
        checkpoint.join().unwrap().unwrap();
    });
    assert_eq!((base.watermark(), base.first_attached()), (1, Some(2)));
    base.apply(2, &mut std::iter::empty(), &[]).unwrap();
    assert_eq!((base.first_attached(), read_all(&base).len()), (None, 1));
    drop(base);
    assert_eq!(read_all(&open_base(&disk).unwrap()).len(), 1);
}
