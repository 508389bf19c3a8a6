//! What the host of a virtual machine takes from it: time in which a processor had something to do
//! and was not let run.
//!
//! A machine of two processors that may use two, and has others' work and its own devices done from
//! the same share, stands still when its share of a tenth of a second is used up. Nothing in it can
//! run then, whatever its priority, and what was asked before is answered after. The kernel counts
//! that time for each processor, in hundredths of a second: the eighth number of its line in
//! `/proc/stat`.
//!
//! A thread looks there every few milliseconds. If it is late, the machine stood still, and the
//! next look finds it out: so the most that one look has found is the longest such time, with an
//! error of a hundredth of a second. What there is no number of (another system, an old kernel) is
//! `None`.

use std::fs::read_to_string;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// One is so long in all of the kernel's numbers.
const TICK: Duration = Duration::from_millis(10);

/// From one look to the next.
const PAUSE: Duration = Duration::from_millis(5);

/// What was taken between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stolen {
    /// From all processors together.
    pub total: Duration,
    /// From one processor between two looks, at most.
    pub longest: Duration,
}

/// Looks until it is asked for what it has seen, or dropped.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<Stolen>>>,
}

impl Watch {
    /// Begins to look.
    pub fn start() -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let look = move || {
            let mut stolen = Stolen::default();
            let mut before = processors(&read_to_string("/proc/stat").ok()?)?;
            loop {
                // What happens before the last look counts, so it comes after the order to stop.
                let is_last = stopped.load(Ordering::Acquire);
                let now = processors(&read_to_string("/proc/stat").ok()?)?;
                stolen.add(&before, &now);
                if is_last {
                    return Some(stolen);
                }
                before = now;
                std::thread::sleep(PAUSE);
            }
        };
        Watch { stop, thread: Some(std::thread::spawn(look)) }
    }

    /// What it has seen; `None` where the kernel does not say.
    pub fn end(mut self) -> Option<Stolen> {
        self.stop.store(true, Ordering::Release);
        self.thread.take().and_then(|thread| thread.join().ok()).flatten()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

impl Stolen {
    fn add(&mut self, before: &[u64], now: &[u64]) {
        for (before, now) in before.iter().zip(now) {
            // The kernel's number may go back by one: it is no more than an estimate.
            let ticks = u32::try_from(now.saturating_sub(*before)).unwrap_or(u32::MAX);
            let taken = TICK.saturating_mul(ticks);
            self.total += taken;
            self.longest = self.longest.max(taken);
        }
    }
}

/// Ticks taken from each processor since the machine began.
fn processors(stat: &str) -> Option<Vec<u64>> {
    let of_one = |line: &str| line.starts_with("cpu") && !line.starts_with("cpu ");
    let lines = stat.lines().filter(|line| of_one(line));
    let ticks: Option<Vec<u64>> = lines.map(|line| line.split_whitespace().nth(8)?.parse().ok()).collect();
    ticks.filter(|ticks| !ticks.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "cpu  10 0 3 40 1 0 2 17 0 0\ncpu0 5 0 1 20 1 0 1 9 0 0\ncpu1 5 0 2 20 0 0 1 8 0 0\nintr 7\n";

    #[test]
    fn each_processors_number_is_read() {
        assert_eq!(processors(STAT), Some(vec![9, 8]));
        assert_eq!(processors("cpu0 1 2 3 4 5 6 7\n"), None, "an old kernel has no such number");
        assert_eq!(processors("intr 7\n"), None);
    }

    #[test]
    fn the_longest_is_of_one_processor_and_one_look() {
        let mut stolen = Stolen::default();
        stolen.add(&[9, 8], &[12, 9]);
        stolen.add(&[12, 9], &[11, 11]);
        let expected = Stolen { total: Duration::from_millis(60), longest: Duration::from_millis(30) };
        assert_eq!(stolen, expected);
    }

    #[test]
    fn it_ends_when_it_is_asked() {
        let seen = Watch::start().end();
        assert_eq!(
            seen.is_some(),
            read_to_string("/proc/stat").is_ok_and(|text| processors(&text).is_some())
        );
    }
}
