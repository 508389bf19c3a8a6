//! A server's resident memory, sampled from the kernel while something else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Samples a process' resident size ten times a second until it is dropped.
#[derive(Debug)]
pub struct MemoryWatch {
    process: u32,
    highest: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Watches the process with this id.
    pub fn start(process: u32) -> MemoryWatch {
        let highest = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (highest, stop) = (Arc::clone(&highest), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    highest.fetch_max(resident(process).unwrap_or(0), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(100));
                }
            })
        };
        MemoryWatch { process, highest, stop, thread: Some(thread) }
    }

    /// The highest sample since the start or the last call, in bytes; sampling begins anew.
    pub fn take_highest(&self) -> u64 {
        let now = resident(self.process).unwrap_or(0);
        self.highest.swap(0, Ordering::Relaxed).max(now)
    }

    /// The highest resident size that the kernel has seen since the process began, in bytes.
    pub fn peak(&self) -> u64 {
        status(self.process, "VmHWM:").unwrap_or(0)
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A process' resident size in bytes; nothing if there is no such process.
pub fn resident(process: u32) -> Option<u64> {
    status(process, "VmRSS:")
}

fn status(process: u32, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}
