//! A load that changes its nature as the clock says: conflicts, large write sets, and reads.
//!
//! | phase | a transaction |
//! |---|---|
//! | `hot` | counts up one of four rows |
//! | `large` | counts up twenty distinct random rows |
//! | `reads` | sums five hundred rows up, and counts up one random row |
//!
//! Each is one message of statements, so that any protocol fits. As in [`super::updates`], attempts
//! that are refused are counted and made again with the same rows, and the sum over the table tells
//! how many committed.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio_postgres::Config;

use super::updates::{PASSING, PAUSE, Shape, UNKNOWN, message};
use crate::driver::{Client, Failure, Recorder, Window, Workload};
use crate::error::{DatabaseContext, Error, Result};
use crate::peer;
use crate::random::Random;

/// The phases, in their order, and how many rows a transaction of each counts up.
pub const PHASES: [(&str, usize); 3] = [("hot", 1), ("large", 20), ("reads", 1)];
const HOT: i64 = 4;
const SUMMED: i64 = 500;

/// Clients of one server.
#[derive(Clone, Debug)]
pub struct Shifting {
    /// The system's name, for messages.
    pub system: String,
    /// Where they connect.
    pub config: Config,
    /// Statements that each session begins with.
    pub settings: Vec<String>,
    /// The table.
    pub shape: Shape,
    /// How long a phase is.
    pub phase: Duration,
    /// Tells the clients of different rounds apart.
    pub round: u64,
    /// When the first phase began.
    pub from: Arc<OnceLock<Instant>>,
}

/// One client.
pub struct ShiftingClient {
    load: Shifting,
    connection: tokio_postgres::Client,
    random: Random,
}

impl Workload for Shifting {
    type Client = ShiftingClient;

    fn kinds(&self) -> Vec<String> {
        PHASES.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    async fn open(&self, index: usize) -> Result<ShiftingClient> {
        let connection = peer::connect(&self.config).await.at(&self.system, "connecting a client")?;
        for setting in &self.settings {
            connection.batch_execute(setting).await.at(&self.system, setting.as_str())?;
        }
        let random = Random::stream(self.shape.seed, 700 + self.round, index as u64);
        Ok(ShiftingClient { load: self.clone(), connection, random })
    }

    fn begin(&self, window: Window) {
        let _ = self.from.set(window.from);
    }
}

impl Shifting {
    /// Which phase it is; the warm-up is of the last one.
    fn phase_at(&self, now: Instant) -> usize {
        let Some(since) = self.from.get().and_then(|from| now.checked_duration_since(*from)) else {
            return PHASES.len() - 1;
        };
        (since.as_micros() / self.phase.as_micros().max(1)) as usize % PHASES.len()
    }

    /// A transaction of a phase.
    fn transaction(&self, phase: usize, random: &mut Random) -> String {
        let of = |rows: i64, updates: usize| Shape { rows, updates, ..self.shape };
        match PHASES[phase] {
            ("hot", updates) => message(&of(HOT.min(self.shape.rows), updates).keys(random), None),
            ("large", updates) => message(&of(self.shape.rows, updates).keys(random), None),
            (_, updates) => {
                let first = random.between(1, (self.shape.rows - SUMMED).max(1));
                let last = first + SUMMED - 1;
                let update = message(&of(self.shape.rows, updates).keys(random), None);
                format!(
                    "BEGIN; SELECT sum(v) FROM counters WHERE k BETWEEN {first} AND {last}; {update}; COMMIT"
                )
            }
        }
    }
}

impl ShiftingClient {
    fn failed(&self, doing: &str, failure: Failure) -> Error {
        let message = format!("{} ({})", failure.message, failure.state);
        Error::Database { system: self.load.system.clone(), doing: doing.to_owned(), message }
    }
}

impl Client for ShiftingClient {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        let since = Instant::now();
        let phase = self.load.phase_at(since);
        let text = self.load.transaction(phase, &mut self.random);
        loop {
            let Err(error) = self.connection.batch_execute(&text).await else {
                recorder.borrow_mut().committed(phase, since);
                return Ok(());
            };
            let mut failure = Failure::from(&error);
            failure.unknown |= failure.state == UNKNOWN;
            let is_passing = PASSING.contains(&failure.state.as_str());
            if !recorder.borrow_mut().failed_with(phase, &failure) && !is_passing {
                return Err(self.failed("a transaction of one message", failure));
            }
            if is_passing {
                tokio::time::sleep(PAUSE).await;
            }
            if let Err(error) = self.connection.batch_execute("ROLLBACK").await {
                return Err(self.failed("ROLLBACK", Failure::from(&error)));
            }
            if recorder.borrow().is_over() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Shifting {
        Shifting {
            system: "cognate".to_owned(),
            config: Config::new(),
            settings: Vec::new(),
            shape: Shape { rows: 10_000, updates: 20, seed: 1 },
            phase: Duration::from_secs(2),
            round: 1,
            from: Arc::default(),
        }
    }

    #[test]
    fn the_clock_says_which_phase_it_is() {
        let (load, now) = (load(), Instant::now());
        assert_eq!(load.phase_at(now), 2, "before it begins");
        load.from.set(now).unwrap();
        let at = |seconds: f64| load.phase_at(now + Duration::from_secs_f64(seconds));
        assert_eq!([0.0, 1.9, 2.1, 3.9, 4.1, 6.1, 8.1].map(at), [0, 0, 1, 1, 2, 0, 1]);
    }

    #[test]
    fn a_transaction_counts_up_as_many_rows_as_its_phase_says() {
        let (load, mut random) = (load(), Random::new(1));
        for (phase, (name, updates)) in PHASES.iter().enumerate() {
            for _ in 0..100 {
                let text = load.transaction(phase, &mut random);
                assert_eq!(text.matches("UPDATE counters").count(), *updates, "{name}: {text}");
            }
        }
    }
}
