//! The log device: what its flushes cost, what passes through, and that nothing is really flushed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cognate_env::sim::{LogDevice, Loss, SimDisk};
use cognate_env::{Disk, OpenMode};

const FOLDER: &str = "log";

fn device(latency: Duration) -> (SimDisk, Arc<LogDevice>) {
    let below = SimDisk::new(1);
    let device = LogDevice::new(below.handle(), latency);
    device.create_dir_all(Path::new(FOLDER)).unwrap();
    (below, Arc::new(device))
}

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

fn took(action: impl FnOnce()) -> Duration {
    let start = Instant::now();
    action();
    start.elapsed()
}

#[test]
fn flushes_of_log_files_take_their_time_one_after_the_other() {
    let latency = Duration::from_millis(20);
    let (_, device) = device(latency);
    let files: Vec<_> = ["1.log", "2.log"]
        .iter()
        .map(|name| device.open(&path(name), OpenMode::CreateNew).unwrap())
        .collect();
    let both = took(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| files[0].sync_data().unwrap());
            scope.spawn(|| files[1].write_durable(&[7; 10], 0).unwrap());
        });
    });
    assert!(both >= 2 * latency, "one device, one queue: {both:?}");
    let mut bytes = [0; 10];
    files[1].read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [7; 10]);
}

#[test]
fn preparing_is_free_and_beginning_a_segment_costs_one_flush() {
    let latency = Duration::from_millis(500);
    let (_, device) = device(latency);
    let file = device.open(&path("prepared"), OpenMode::Truncate).unwrap();
    let filling = took(|| {
        file.write_all_at(&[0; 4096], 0).unwrap();
        file.sync_data().unwrap();
        file.write_durable(&[1; 64], 0).unwrap();
    });
    assert!(filling < latency, "{filling:?}");
    let beginning = took(|| {
        device.rename(&path("prepared"), &path("3.log")).unwrap();
        device.sync_dir(Path::new(FOLDER)).unwrap();
    });
    assert!(beginning >= latency && beginning < 2 * latency, "{beginning:?}");
    assert!(took(|| file.sync_data().unwrap()) >= latency, "the same handle is on the device now");
}

#[test]
fn without_latency_nothing_is_flushed_and_other_files_are() {
    let (below, device) = device(Duration::ZERO);
    let log = device.open(&path("1.log"), OpenMode::CreateNew).unwrap();
    let table = device.open(&path("table"), OpenMode::CreateNew).unwrap();
    device.sync_dir(Path::new(FOLDER)).unwrap();
    below.fail_sync_after(0);
    log.write_durable(&[1; 4096], 0).unwrap();
    log.sync_data().unwrap();
    table.write_all_at(&[2; 4096], 0).unwrap();
    assert!(table.sync_data().is_err(), "the disk below was asked, and was told to fail once");
    below.restart(Loss::Process);
    assert_eq!(below.files()[0].1, vec![1; 4096]);
}
