//! Measurements, not tests: `cargo test --release -p cognate-engine --test engine
//! speed -- --ignored --nocapture --test-threads 1`.

use std::fs;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cognate_engine::storage::{Base, BaseOptions, Log, LogOptions};
use cognate_env::{RealDisk, SplitMix};

const SECONDS: u64 = 3;

/// Nanoseconds this thread has run on a processor: other programs on the machine disturb it less
/// than the clock.
fn running_ns() -> f64 {
    let statistics = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    statistics.split(' ').next().unwrap().parse().unwrap()
}

/// Batches a second when `bytes` are written and flushed over and over, into a file that is
/// zero-filled before or grows.
fn raw(folder: &Path, bytes: usize, filled: bool) -> f64 {
    let file = fs::File::create(folder.join("raw")).unwrap();
    if filled {
        for chunk in 0..64 {
            file.write_all_at(&vec![0; 1 << 20], chunk << 20).unwrap();
        }
        file.sync_all().unwrap();
    }
    let batch = vec![7; bytes];
    let (start, mut count) = (Instant::now(), 0_u64);
    while start.elapsed() < Duration::from_secs(SECONDS) {
        let offset = if filled { count * bytes as u64 % (60 << 20) } else { count * bytes as u64 };
        file.write_all_at(&batch, offset).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    count as f64 / start.elapsed().as_secs_f64()
}

fn commits(folder: &Path, in_flight: u64, payload: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let folder = folder.join(format!("log-{in_flight}-{payload}"));
    let log = Arc::new(
        Log::open(Arc::new(RealDisk), &folder, 0, LogOptions::default(), &mut |_, _| Ok(())).unwrap(),
    );
    let done = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let tasks: Vec<_> = (0..in_flight)
        .map(|_| {
            let (log, done) = (Arc::clone(&log), Arc::clone(&done));
            runtime.spawn(async move {
                let payload = vec![5; payload];
                while start.elapsed() < Duration::from_secs(SECONDS) {
                    let csn = log.append(&[&payload]).unwrap();
                    log.wait_durable(csn).await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    let elapsed = start.elapsed();
    let rate = done.load(Ordering::Relaxed) as f64 / elapsed.as_secs_f64();
    let statistics = log.statistics();
    let bytes = (statistics.bytes / statistics.batches) as usize;
    let per_batch = done.load(Ordering::Relaxed) as f64 / statistics.batches as f64;
    let (filled, grown) = (raw(&folder, bytes, true) * per_batch, raw(&folder, bytes, false) * per_batch);
    println!(
        "{in_flight} in flight, {payload} bytes: {rate:.0} commits/s; {bytes} bytes a batch ({per_batch:.1} commits), \
         flush {} us of {} us; raw device: {filled:.0} filled ({:.0} %), {grown:.0} growing ({:.0} %)",
        statistics.flush_us / statistics.batches,
        elapsed.as_micros() as u64 / statistics.batches,
        100.0 * rate / filled,
        100.0 * rate / grown,
    );
}

#[test]
#[ignore = "a measurement"]
fn log_commits_against_the_raw_device() {
    let folder = tempfile::tempdir_in(std::env::var("COGNATE_BENCH_DIR").unwrap_or("/tmp".into())).unwrap();
    for (in_flight, payload) in [(1, 200), (16, 200), (64, 200), (64, 1000), (256, 200)] {
        commits(folder.path(), in_flight, payload);
    }
}

#[test]
#[ignore = "a measurement"]
fn log_recovery() {
    let folder = tempfile::tempdir().unwrap();
    let payload = vec![5; 400];
    let log =
        Log::open(Arc::new(RealDisk), folder.path(), 0, LogOptions::default(), &mut |_, _| Ok(())).unwrap();
    let start = Instant::now();
    let mut last = 0;
    for _ in 0..1_000_000 {
        last = log.append(&[&payload]).unwrap();
    }
    let appended = start.elapsed();
    log.wait_durable(last).wait().unwrap();
    println!("1 M appends of 400 bytes: {appended:?}; durable after {:?}", start.elapsed());
    drop(log);
    let start = Instant::now();
    let mut bytes = 0;
    let log = Log::open(Arc::new(RealDisk), folder.path(), 0, LogOptions::default(), &mut |_, payload| {
        bytes += payload.len();
        Ok(())
    });
    drop(log.unwrap());
    println!(
        "recovery of {bytes} bytes: {:?}, {:.0} MB/s",
        start.elapsed(),
        bytes as f64 / 1e6 / start.elapsed().as_secs_f64()
    );
}

#[test]
#[ignore = "a measurement"]
fn base_reads() {
    const ROWS: u64 = 2_000_000;
    let folder = tempfile::tempdir().unwrap();
    let row =
        |id: u64| (1000, Bytes::copy_from_slice(&id.to_be_bytes()), Some(Bytes::from(vec![id as u8; 100])));
    for (cache_bytes, runs) in [(512 << 20, 1), (512 << 20, 4), (48 << 20, 4)] {
        let folder = folder.path().join(format!("{cache_bytes}-{runs}"));
        let base =
            Base::open(Arc::new(RealDisk), &folder, BaseOptions { cache_bytes, ..BaseOptions::default() })
                .unwrap();
        let start = Instant::now();
        base.apply(1, &mut (0..ROWS).map(row), &[]).unwrap();
        println!("apply of {ROWS} rows: {:?}", start.elapsed());
        for run in 1..runs {
            base.apply(run + 1, &mut (0..ROWS).filter(|id| id % 50 == run).map(row), &[]).unwrap();
        }
        let mut random = SplitMix::new(1);
        let mut time = |count: u64, what: &str| {
            let start = running_ns();
            for _ in 0..count {
                let found = base.get(1000, &random.below(ROWS).to_be_bytes()).unwrap();
                assert_eq!(black_box(found).unwrap().len(), 100);
            }
            println!("{what}: {:.0} ns a get", (running_ns() - start) / count as f64);
        };
        time(1_000_000, "warming");
        time(1_000_000, "warm");
        println!("{:?}", base.statistics());
        let start = running_ns();
        let mut scan =
            base.scan(1000, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, false).unwrap();
        let mut rows = 0_u64;
        while let Some((key, value)) = scan.next().unwrap() {
            black_box((key, value));
            rows += 1;
        }
        println!("scan of {rows} rows: {:.0} ns a row", (running_ns() - start) / rows as f64);
        drop(scan);
        let start = Instant::now();
        base.compact_all().unwrap();
        println!("merge: {:?}", start.elapsed());
        drop(base);
        let start = Instant::now();
        drop(Base::open(Arc::new(RealDisk), &folder, BaseOptions::default()).unwrap());
        println!("open and verify: {:?}", start.elapsed());
    }
}
