//! The engine's log against the raw device.
//!
//! Committers keep a fixed number of commits in flight: each appends a record and waits until it is
//! durable. The log counts its batches and their bytes. Then the raw device writes and flushes as
//! many batches of the average size, one after the other, into a preallocated file, with nothing in
//! between: no software can commit faster in such batches. It does so in two ways, by a write and a
//! flush, and by writing whole pages past the operating system's cache, durable when the call
//! returns. All take turns, so that a disk whose speed drifts does not favour any.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cognate_engine::storage::{Log, LogOptions};
use cognate_env::disk::DIRECT;
use cognate_env::{Disk, File, OpenMode, RealDisk};
use hdrhistogram::Histogram;

use crate::error::{Error, IoContext, Result};
use crate::median::ratio_error;
use crate::peer;

/// How the log is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LogPlan {
    /// Commits in flight.
    pub in_flight: usize,
    /// Bytes of each record's payload.
    pub payload: usize,
    /// Length of each turn.
    pub turn: Duration,
    /// Turns of each.
    pub turns: u32,
}

/// What the turns showed.
#[derive(Clone, Debug)]
pub struct LogMeasured {
    /// Commits a second through the log.
    pub log_per_s: f64,
    /// Commits a second that the raw device does with the same batches, by writes and flushes.
    pub device_per_s: f64,
    /// The same by writes past the operating system's cache, in whole pages.
    pub direct_per_s: f64,
    /// Standard errors of the log's rate over each of these, over the turns.
    pub errors: [f64; 2],
    /// Microseconds that the log spent writing and flushing an average batch.
    pub flush_us: f64,
    /// Microseconds from one batch to the next.
    pub batch_us: f64,
    /// Commits in an average batch.
    pub commits_per_batch: f64,
    /// Bytes in an average batch.
    pub bytes_per_batch: f64,
    /// Microseconds from append to durable.
    pub latency: Histogram<u64>,
}

/// Runs the turns in a temporary folder below `directory`.
pub fn measure(plan: &LogPlan, directory: Option<&Path>) -> Result<LogMeasured> {
    let folder = peer::fresh_folder(directory)?;
    let opened =
        Log::open(Arc::new(RealDisk), &folder.path().join("log"), 0, LogOptions::default(), &mut |_, _| {
            Ok(())
        });
    let log = Arc::new(opened.map_err(|error| engine(&error))?);
    let raw = RawDevice::create(&folder.path().join("raw"))?;
    let mut latency =
        Histogram::new(3).map_err(|error| Error::Usage(format!("making a histogram: {error}")))?;
    let mut commits = 0;
    let (mut log_time, mut raw_time, mut direct_time) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    // Seconds of each turn, of the three.
    let mut turns: [Vec<f64>; 3] = Default::default();
    let before = log.statistics();
    let (mut batches, mut bytes) = (before.batches, before.bytes);
    for _ in 0..plan.turns {
        let (done, took) = commit_for(&log, plan, &mut latency)?;
        commits += done;
        log_time += took;
        let now = log.statistics();
        let written = raw.write(now.batches - batches, now.bytes - bytes, false)?;
        let past = raw.write(now.batches - batches, now.bytes - bytes, true)?;
        (raw_time, direct_time) = (raw_time + written, direct_time + past);
        for (turns, time) in turns.iter_mut().zip([took, written, past]) {
            turns.push(time.as_secs_f64());
        }
        (batches, bytes) = (now.batches, now.bytes);
    }
    let flushes = (batches - before.batches).max(1) as f64;
    let flush_us = (log.statistics().flush_us - before.flush_us) as f64 / flushes;
    log.close().map_err(|error| engine(&error))?;
    let rate = |time: Duration| commits as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE);
    Ok(LogMeasured {
        log_per_s: rate(log_time),
        device_per_s: rate(raw_time),
        direct_per_s: rate(direct_time),
        // As many commits in each: the ratio of rates is that of times the other way round.
        errors: [1, 2].map(|device: usize| ratio_error(&turns[device], &turns[0])),
        flush_us,
        batch_us: log_time.as_micros() as f64 / flushes,
        commits_per_batch: commits as f64 / flushes,
        bytes_per_batch: (bytes - before.bytes) as f64 / flushes,
        latency,
    })
}

fn engine(error: &cognate_engine::Error) -> Error {
    Error::Server(format!("the log failed: {error}"))
}

/// Keeps commits in flight for one turn; returns how many were made durable and the time until the
/// last was. The committers are tasks of a runtime of the server's kind.
fn commit_for(log: &Arc<Log>, plan: &LogPlan, latency: &mut Histogram<u64>) -> Result<(u64, Duration)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
    let runtime = runtime.doing("starting the committers")?;
    let started = Instant::now();
    let until = started + plan.turn;
    let committers: Vec<_> = (0..plan.in_flight)
        .map(|_| {
            let (log, payload) = (Arc::clone(log), vec![0x5a_u8; plan.payload]);
            let mut latency = Histogram::new_from(latency);
            runtime.spawn(async move {
                let mut done = 0_u64;
                while Instant::now() < until {
                    let since = Instant::now();
                    let csn = log.append(&[&payload]).map_err(|error| engine(&error))?;
                    log.wait_durable(csn).await.map_err(|error| engine(&error))?;
                    let _ = latency.record(since.elapsed().as_micros() as u64);
                    done += 1;
                }
                Ok::<_, Error>((done, latency))
            })
        })
        .collect();
    let mut commits = 0;
    let mut collected = Vec::new();
    for committer in committers {
        let ended = runtime.block_on(committer);
        let (done, one) = ended.map_err(|panic| Error::Server(format!("a committer failed: {panic}")))??;
        commits += done;
        collected.push(one);
    }
    let took = started.elapsed();
    collected.iter().for_each(|one| {
        let _ = latency.add(one);
    });
    Ok((commits, took))
}

/// A preallocated, zero-filled file that batches are written to in turn.
pub(crate) struct RawDevice {
    file: Arc<dyn File>,
    at: Cell<u64>,
}

/// Size of the raw file; writing begins anew at its end.
const RAW_BYTES: u64 = 256 << 20;

impl RawDevice {
    pub(crate) fn create(path: &Path) -> Result<RawDevice> {
        let doing = "preparing the raw file";
        let file = RealDisk.open(path, OpenMode::CreateNew).doing(doing)?;
        let zeros = vec![0_u8; 1 << 20];
        for at in (0..RAW_BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, at).doing(doing)?;
        }
        file.sync_data().doing(doing)?;
        Ok(RawDevice { file, at: Cell::new(0) })
    }

    /// Writes so many batches that have so many bytes together; returns the time it took.
    pub(crate) fn write(&self, batches: u64, bytes: u64, direct: bool) -> Result<Duration> {
        let mut size = bytes.div_ceil(batches.max(1));
        if direct {
            size = size.next_multiple_of(DIRECT as u64);
            self.at.set(self.at.get().next_multiple_of(DIRECT as u64));
        }
        let buffer = vec![0x5a_u8; size as usize + DIRECT];
        let start = buffer.as_ptr().align_offset(DIRECT).min(DIRECT);
        let data = &buffer[start..start + size as usize];
        let started = Instant::now();
        for _ in 0..batches {
            if self.at.get() + size > RAW_BYTES {
                self.at.set(0);
            }
            if direct {
                self.file.write_durable(data, self.at.get()).doing("writing to the raw file")?;
            } else {
                self.file.write_all_at(data, self.at.get()).doing("writing to the raw file")?;
                self.file.sync_data().doing("flushing the raw file")?;
            }
            self.at.set(self.at.get() + size);
        }
        Ok(started.elapsed())
    }
}
