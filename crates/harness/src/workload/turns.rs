//! The same clients with one of several workloads after the other: ways of ending a request, or
//! databases in this process.
//!
//! A client has a connection for each of them, and uses the one whose turn it is. Turns are short,
//! since a machine changes its mood within a second, and go forwards and backwards. Requests that
//! begin at the beginning of a turn, the *lead*, while those of the turn before are still at work,
//! count as a kind of their own:
//!
//! ```text
//!   warm-up: a cold lap   │ lead  part  │ lead  part  │ lead  part  │ lead  part  │ lead
//!        A      B      C  │ ─ A ······· │ ─ B ······· │ ─ C ······· │ ─ C ······· │
//!                        from                                                        until
//! ```
//!
//! The clock says whose turn it is, so each has exactly as many parts of the same length.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::driver::{Client, Counts, Outcome, Plan, Recorder, Window, Workload};
use crate::error::Result;

/// A turn before the window is so many leads long: connections are new, and caches full of what
/// came before.
const COLD: u32 = 8;

/// A client of one kind of request that can be told what its requests count as.
pub trait Countable: Client {
    /// Its requests count as this kind from now on.
    fn count_as(&mut self, kind: usize);
}

/// How long turns are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// What does not count of a turn: more than a request takes.
    pub lead: Duration,
    /// What does.
    pub part: Duration,
    /// So many turns each.
    pub turns: u32,
}

/// Several workloads, of which one has its turn.
#[derive(Debug)]
pub struct Turns<W> {
    of: Vec<(String, W)>,
    pace: Pace,
    round: usize,
    window: OnceLock<Window>,
}

impl<W> Turns<W> {
    /// Of these, with their names; at least one. With the rounds it changes who begins, and whose
    /// connections are opened first: a server gives them to its threads in turns, and one client
    /// alone is as fast as its thread's place makes it.
    pub fn new(of: Vec<(String, W)>, pace: Pace, round: u32) -> Turns<W> {
        Turns { of, pace, round: round as usize, window: OnceLock::new() }
    }

    /// The workloads.
    pub fn of(&self) -> impl Iterator<Item = &W> {
        self.of.iter().map(|(_, workload)| workload)
    }

    /// How to run them with so many clients.
    pub fn plan(&self, label: String, clients: usize, threads: usize) -> Plan {
        Plan { label, clients, threads, warmup: self.warmup(), measured: self.measured() }
    }

    /// What each of them did, in the order in which they were given.
    pub fn each(&self, run: &Outcome) -> Vec<Outcome> {
        let seconds = (self.pace.part * self.pace.turns).as_secs_f64();
        let outcome = |((name, _), counts): (&(String, W), &Counts)| {
            let (kinds, counts) = (vec![name.clone()], vec![counts.clone()]);
            Outcome { seconds, kinds, counts, first_error: None }
        };
        self.of.iter().zip(&run.counts).map(outcome).collect()
    }

    /// How long to warm up: a turn for each.
    fn warmup(&self) -> Duration {
        COLD * self.pace.lead * self.of.len() as u32
    }

    /// How long the window is: all turns, and time for the last requests to end.
    fn measured(&self) -> Duration {
        (self.pace.lead + self.pace.part) * self.pace.turns * self.of.len() as u32 + self.pace.lead
    }

    /// The place of the one that is the `nth` in this round's order.
    fn place(&self, nth: usize) -> usize {
        (nth + self.round) % self.of.len()
    }

    /// Whose turn it is, and whether what begins now counts.
    fn turn(&self, now: Instant) -> (usize, bool) {
        let (count, Pace { lead, part, turns }) = (self.of.len(), self.pace);
        let Some(window) = self.window.get() else { return (self.place(0), false) };
        if now < window.from {
            let left = ((window.from - now).as_nanos() - 1) / (COLD * lead).as_nanos().max(1);
            return (self.place(count - 1 - left as usize % count), false);
        }
        let (since, length) = ((now - window.from).as_nanos(), (lead + part).as_nanos().max(1));
        let (turn, at) = ((since / length) as usize, since % length);
        let (lap, nth) = (turn / count, turn % count);
        let place = self.place(if lap % 2 == 0 { nth } else { count - 1 - nth });
        (place, at >= lead.as_nanos() && lap < turns as usize)
    }
}

/// One client's connections.
#[derive(Debug)]
pub struct TurnsClient<W: Workload> {
    turns: Arc<Turns<W>>,
    clients: Vec<W::Client>,
}

impl<W> Workload for Arc<Turns<W>>
where
    W: Workload,
    W::Client: Countable + 'static,
{
    type Client = TurnsClient<W>;

    fn kinds(&self) -> Vec<String> {
        let names = self.of.iter().map(|(name, _)| name.clone());
        names.chain(["outside of the parts".to_owned()]).collect()
    }

    async fn open(&self, index: usize) -> Result<TurnsClient<W>> {
        let mut clients = Vec::new();
        for nth in 0..self.of.len() {
            clients.push(self.of[self.place(nth)].1.open(index).await?);
        }
        clients.rotate_right(self.round % self.of.len());
        Ok(TurnsClient { turns: Arc::clone(self), clients })
    }

    fn begin(&self, window: Window) {
        let _ = self.window.set(window);
    }
}

impl<W> Client for TurnsClient<W>
where
    W: Workload,
    W::Client: Countable,
{
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        let ((place, counts), outside) = (self.turns.turn(Instant::now()), self.clients.len());
        let client = &mut self.clients[place];
        client.count_as(if counts { place } else { outside });
        client.step(recorder).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_the_same_time_and_another_one_begins_with_each_round() {
        let pace = Pace { lead: Duration::from_millis(1), part: Duration::from_millis(3), turns: 5 };
        let of = ["a", "b", "c"].map(|name| (name.to_owned(), ()));
        for round in 0..4 {
            let turns = Turns::new(of.to_vec(), pace, round);
            let from = Instant::now() + turns.warmup();
            let until = from + turns.measured();
            turns.window.set(Window { from, until }).expect("it was not set");
            let (mut counted, mut order) = ([0; 3], Vec::new());
            let mut now = from - turns.warmup();
            while now < until {
                let (place, counts) = turns.turn(now);
                assert!(!counts || now >= from, "nothing of the warm-up counts");
                counted[place] += u32::from(counts);
                if order.last() != Some(&place) {
                    order.push(place);
                }
                now += Duration::from_millis(1);
            }
            assert_eq!(counted, [15; 3], "three steps of each of five turns");
            let place = |nth: usize| (nth + round as usize) % 3;
            // A lap before the window, then forwards and backwards.
            let expected = [0, 1, 2, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2].map(place);
            assert_eq!(order[..expected.len()], expected);
        }
    }
}
