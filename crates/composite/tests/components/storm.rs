//! The long run: purchases while components are killed at random times and at random fault points,
//! move to other ports and lose their journals, and while messages between them are lost, said
//! twice and late.
//!
//! ```text
//! COGNATE_STORM_ROOTS=10000 cargo test -p cognate-composite --features fault-points -- --ignored --nocapture storm
//! ```
//!
//! `COGNATE_STORM_SEED` repeats what happened to whom (not when). Without the feature nobody dies
//! at fault points.
//!
//! The short form goes through each kind of misfortune once at each component, until each kind of
//! message has been there, too. It belongs to the tests of fault points, by its name.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::process::{Components, END, Failure, NAMES, request, settled};
use crate::proxy::Proxy;
use crate::trade::{Bought, Crowd, Ledger};

const CLIENTS: usize = 8;
/// Shorter than the longest delay of a message.
const DEADLINE: Duration = Duration::from_secs(2);
/// How many purchases a short storm has at least, and how often it is looked at after its strikes.
#[cfg(feature = "fault-points")]
const SHORT_ROOTS: usize = 60;
#[cfg(feature = "fault-points")]
const PAUSE: Duration = Duration::from_millis(50);

/// What happens to a component that was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strike {
    /// It is started again.
    Kill,
    /// It is somewhere else afterwards.
    Move,
    /// Its journal is gone.
    Journal,
    /// It is to die once more, at a fault point.
    Fault,
}

#[cfg(feature = "fault-points")]
const STRIKES: [Strike; 4] = [Strike::Kill, Strike::Move, Strike::Journal, Strike::Fault];

/// A number of the environment.
fn number(name: &str, otherwise: u64) -> Result<u64, Failure> {
    match env::var(name) {
        Ok(text) => Ok(text.parse().map_err(|error| format!("{name}={text}: {error}"))?),
        Err(_) => Ok(otherwise),
    }
}

/// What happens to whom.
struct Storm {
    components: Components,
    proxies: Vec<Arc<Proxy>>,
    chance: StdRng,
    points: Vec<String>,
    happened: [usize; 4],
}

impl Storm {
    fn begin(seed: u64) -> Result<Storm, Failure> {
        let mut components = Components::prepare(None)?;
        let mut proxies = Vec::new();
        for (place, name) in NAMES.iter().enumerate() {
            let proxy = Proxy::open(components.address(name), seed ^ (1 + place as u64))?;
            components.set_door(place, proxy.door);
            proxies.push(proxy);
        }
        (0..NAMES.len()).try_for_each(|place| components.restart(place))?;
        let (_, told) = request(components.address("shop"), "GET", "/faults", &[], b"")?;
        let points = serde_json::from_value(told)?;
        Ok(Storm { components, proxies, chance: StdRng::seed_from_u64(seed), points, happened: [0; 4] })
    }

    /// Starts whoever has died at a fault point.
    fn revive(&mut self) -> Result<(), Failure> {
        for place in 0..NAMES.len() {
            self.components.ended(place)?;
            if !self.components.runs(place) {
                self.components.restart(place)?;
            }
        }
        Ok(())
    }

    /// Something happens to somebody.
    fn strike(&mut self) -> Result<(), Failure> {
        let place = self.chance.random_range(0..NAMES.len());
        let strike = match self.chance.random_range(0..8) {
            0 | 1 => Strike::Move,
            2 => Strike::Journal,
            3..=6 => Strike::Fault,
            _ => Strike::Kill,
        };
        let pause = self.chance.random_range(50..1500);
        self.happen(place, strike, pause)
    }

    /// This happens to this one, so many milliseconds from now.
    fn happen(&mut self, place: usize, strike: Strike, pause: u64) -> Result<(), Failure> {
        thread::sleep(Duration::from_millis(pause));
        self.components.kill(place)?;
        thread::sleep(Duration::from_millis(self.chance.random_range(0..400)));
        // A build without points has none to choose from.
        let point = self.chance.random_range(0..self.points.len().max(1));
        let pass = self.chance.random_range(1..40);
        self.happened[0] += 1;
        match strike {
            Strike::Kill => {}
            Strike::Move => {
                self.proxies[place].leads_to(self.components.move_away(place)?);
                self.happened[1] += 1;
            }
            Strike::Journal => {
                std::fs::remove_dir_all(self.components.journal(place))?;
                self.happened[2] += 1;
            }
            Strike::Fault => {
                if let Some(point) = self.points.get(point) {
                    self.components.restart_with(place, Some(&format!("{point}:{pass}")))?;
                    self.happened[3] += 1;
                }
            }
        }
        self.revive()
    }

    /// Whether messages had each fate by now.
    #[cfg(feature = "fault-points")]
    fn has_met_all(&self) -> bool {
        let fates: [fn(&Proxy) -> &AtomicUsize; 4] = [
            |proxy| &proxy.counts.requests_lost,
            |proxy| &proxy.counts.answers_lost,
            |proxy| &proxy.counts.twice,
            |proxy| &proxy.counts.late,
        ];
        let mut fates = fates.iter();
        fates.all(|fate| self.proxies.iter().any(|proxy| fate(proxy).load(Ordering::Relaxed) > 0))
    }

    /// Nobody dies any more, so that all clients come to their last answers.
    fn last_start(&mut self) -> Result<(), Failure> {
        for place in 0..NAMES.len() {
            self.components.kill(place)?;
        }
        self.revive()
    }

    /// Everything ends, and each purchase is there once. Answers how many there are.
    fn end(&self, bought: Vec<Bought>) -> Result<usize, Failure> {
        self.proxies.iter().try_for_each(|proxy| proxy.calm_down())?;
        settled(&self.components)?;
        let mut ledger = Ledger::default();
        ledger.add(self.components.address("shop"), bought)?;
        ledger.check(&self.components)?;
        Ok(ledger.len())
    }

    fn told(&self) -> String {
        let all = |count: fn(&Proxy) -> &AtomicUsize| -> usize {
            self.proxies.iter().map(|proxy| count(proxy).load(Ordering::Relaxed)).sum()
        };
        let [kills, moves, journals, faults] = self.happened;
        format!(
            "{kills} kills, {moves} moves, {journals} journals lost, {faults} faults; messages: {} delivered, {} lost, \
             {} answers lost, {} twice, {} late",
            all(|proxy| &proxy.counts.delivered),
            all(|proxy| &proxy.counts.requests_lost),
            all(|proxy| &proxy.counts.answers_lost),
            all(|proxy| &proxy.counts.twice),
            all(|proxy| &proxy.counts.late)
        )
    }
}

#[test]
#[ignore = "takes minutes: in the head of this file is how it is run"]
fn through_a_storm_every_purchase_happens_once() -> Result<(), Failure> {
    let (roots, seed) =
        (number("COGNATE_STORM_ROOTS", 10_000)?, number("COGNATE_STORM_SEED", rand::random())?);
    println!("COGNATE_STORM_ROOTS={roots} COGNATE_STORM_SEED={seed}");
    let mut storm = Storm::begin(seed)?;
    let (begun, mut told, mut last) = (Instant::now(), Instant::now(), (0, Instant::now()));
    // Clients, too, come through the shop's door.
    let door = storm.proxies[0].door;
    let ((), bought) = Crowd::buys(door, "storm", CLIENTS, DEADLINE, |crowd| {
        while (crowd.bought() as u64) < roots {
            storm.strike()?;
            if crowd.bought() > last.0 {
                last = (crowd.bought(), Instant::now());
            } else if last.1.elapsed() > END {
                return Err("nothing is bought any more".into());
            }
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                println!(
                    "{} purchases after {} s: {}",
                    crowd.bought(),
                    begun.elapsed().as_secs(),
                    storm.told()
                );
            }
        }
        storm.last_start()
    })?;
    let purchases = storm.end(bought)?;
    println!("{purchases} purchases in {} s: {}", begun.elapsed().as_secs(), storm.told());
    Ok(())
}

#[cfg(feature = "fault-points")]
#[test]
fn through_a_short_storm_of_all_faults_every_purchase_happens_once() -> Result<(), Failure> {
    let seed = number("COGNATE_STORM_SEED", rand::random())?;
    println!("COGNATE_STORM_SEED={seed}");
    let mut storm = Storm::begin(seed)?;
    let door = storm.proxies[0].door;
    let ((), bought) = Crowd::buys(door, "short storm", CLIENTS, DEADLINE, |crowd| {
        for strike in STRIKES {
            for place in 0..NAMES.len() {
                let pause = storm.chance.random_range(50..300);
                storm.happen(place, strike, pause)?;
            }
        }
        let begun = Instant::now();
        while crowd.bought() < SHORT_ROOTS || !storm.has_met_all() {
            if begun.elapsed() > END {
                return Err(format!("{} purchases; {}", crowd.bought(), storm.told()).into());
            }
            // Who was to die at a point may do so only now.
            storm.revive()?;
            thread::sleep(PAUSE);
        }
        storm.last_start()
    })?;
    let each = NAMES.len();
    assert_eq!(storm.happened, [each * STRIKES.len(), each, each, each]);
    println!("{} purchases: {}", storm.end(bought)?, storm.told());
    Ok(())
}
