//! The log, written by its thread and by those who wait for their records.
//!
//! What is checked: everybody is answered (a schedule in which all wait fails), not before the
//! record is durable, and all records come back in their order.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cognate_env::sim::{SimDisk, SimRng};
use shuttle::thread;

use super::explore;
use crate::storage::{Log, LogOptions};

fn open(disk: &SimDisk) -> (Log, Vec<(u64, Vec<u8>)>) {
    let rng = Arc::new(SimRng::new(1));
    let options = LogOptions { prepare: false, idle_mark: None, rng, ..LogOptions::default() };
    let mut found = Vec::new();
    let log = Log::open(disk.handle(), Path::new("/log"), 0, options, &mut |csn, payload| {
        found.push((csn, payload.to_vec()));
        Ok(())
    });
    (log.unwrap(), found)
}

/// Two records of one thread, which writes them itself if it may and nobody is writing.
fn append(log: &Log, name: u8, here: bool) {
    for round in 0..2 {
        let csn = log.queue(&[&[name, round]]).unwrap();
        if !here || !log.flush_here(Duration::MAX) {
            log.nudge();
        }
        log.wait_durable(csn).wait().unwrap();
        assert!(log.durable() >= csn, "the answer comes after the flush");
    }
}

#[test]
fn whoever_writes_all_are_answered_and_all_is_kept() {
    explore("log", 1000, |_| {
        let disk = SimDisk::new(1);
        let log = Arc::new(open(&disk).0);
        let threads = [(1, true), (2, true), (3, false)].map(|(name, here)| {
            let log = Arc::clone(&log);
            thread::spawn(move || append(&log, name, here))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(log.durable(), 6);
        log.close().unwrap();
        drop(log);
        let (log, found) = open(&disk);
        assert!(found.iter().map(|(csn, _)| *csn).eq(1..=6), "{found:?}");
        for name in 1..=3 {
            let rounds =
                found.iter().filter(|(_, payload)| payload[0] == name).map(|(_, payload)| payload[1]);
            assert!(rounds.eq([0, 1]), "a thread's records are in its order: {found:?}");
        }
        log.close().unwrap();
    });
}
