//! Every fault point: a component dies there while purchases are under way, is started again, and
//! everything goes on: no root stays open, no purchase is lost, doubled or half done, and answers
//! that were given are given again.
//!
//! The short form takes each point once, at one component that passes it. The long one takes each
//! at every component that does, at several passes:
//!
//! ```text
//! cargo test -p cognate-composite --features fault-points -- --ignored --nocapture at_every_component
//! ```

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::{Components, END, Failure, NAMES, post, request, settled};
use crate::trade::{Crowd, Ledger};

const CLIENTS: usize = 3;
/// Sets of components at which points are tried at the same time: most of a trial is waiting for
/// deadlines.
const SETS: usize = 4;
/// Short, since what a dead component leaves is given up at its deadline.
const DEADLINE: Duration = Duration::from_millis(1500);
/// What a component dies of that is about to say yes, and has not said so to anybody.
const IN_DOUBT: &str = "vote-write-after:1";
const ABORTED: i32 = 6;

const SHOP: usize = 0;
const STOCK: usize = 1;
const PAYMENT: usize = 2;

/// What brings a component to a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A start, or purchases.
    Plain,
    /// Purchases with lulls between them: what is freed is used at once otherwise, and votes come
    /// one after the other.
    Lulls,
    /// Its very first start.
    First,
    /// A start without its journal.
    NoJournal,
    /// A start in doubt.
    InDoubt,
    /// Another component's start in doubt.
    OtherInDoubt,
}

/// A point, the components that pass it, and at which pass they die.
struct Point {
    name: &'static str,
    places: &'static [usize],
    pass: u32,
    way: Way,
}

const fn point(name: &'static str, places: &'static [usize], pass: u32, way: Way) -> Point {
    Point { name, places, pass, way }
}

const ALL: &[usize] = &[STOCK, SHOP, PAYMENT];
const CALLED: &[usize] = &[PAYMENT, STOCK];
const ROOT: &[usize] = &[SHOP];

static POINTS: [Point; 46] = [
    point("start-journal-opened", ALL, 1, Way::Plain),
    point("start-generation-before", ALL, 1, Way::Plain),
    point("start-generation-after", ALL, 1, Way::Plain),
    point("start-slots-before", ALL, 1, Way::Plain),
    point("start-slots-after", ALL, 1, Way::Plain),
    point("start-naming-before", ALL, 1, Way::NoJournal),
    point("start-naming-after", ALL, 1, Way::NoJournal),
    point("start-recovered", ALL, 1, Way::InDoubt),
    point("start-begun", ALL, 1, Way::Plain),
    point("call-send-before", ROOT, 3, Way::Plain),
    point("call-send-after", ROOT, 3, Way::Plain),
    point("slots-grow-before", ALL, 1, Way::First),
    point("slots-grow-after", ALL, 1, Way::First),
    point("ahead-after", CALLED, 3, Way::Plain),
    point("slot-write-before", ALL, 3, Way::Plain),
    point("slot-write-after", ALL, 3, Way::Plain),
    point("commit-before", ALL, 3, Way::Plain),
    point("commit-after", ALL, 3, Way::Plain),
    point("reply-before", ALL, 3, Way::Plain),
    point("vote-ask-before", ROOT, 3, Way::Plain),
    point("vote-ask-after", ROOT, 3, Way::Plain),
    point("vote-write-before", CALLED, 3, Way::Plain),
    point("vote-write-after", CALLED, 3, Way::Plain),
    point("vote-send-before", CALLED, 3, Way::Plain),
    point("vote-reply-before", CALLED, 3, Way::Plain),
    point("quiet-write-before", CALLED, 2, Way::Lulls),
    point("quiet-write-after", CALLED, 2, Way::Lulls),
    point("decision-before", ROOT, 3, Way::Plain),
    point("decision-after", ROOT, 3, Way::Plain),
    point("answer-store-before", ROOT, 3, Way::Plain),
    point("answer-store-after", ROOT, 3, Way::Plain),
    point("commit-tell-before", ROOT, 3, Way::Plain),
    point("commit-tell-after", ROOT, 3, Way::Plain),
    point("abort-tell-before", ROOT, 2, Way::Plain),
    point("abort-tell-after", ROOT, 2, Way::Plain),
    point("outcome-take-before", CALLED, 3, Way::Plain),
    point("outcome-take-after", CALLED, 3, Way::Plain),
    point("mark-write-before", CALLED, 2, Way::Plain),
    point("outcome-ask-before", CALLED, 1, Way::InDoubt),
    point("outcome-ask-after", CALLED, 1, Way::InDoubt),
    point("outcome-reply-before", ROOT, 1, Way::OtherInDoubt),
    point("undo-before", CALLED, 1, Way::Plain),
    point("undo-between", CALLED, 1, Way::Plain),
    point("undo-after", CALLED, 1, Way::Plain),
    point("free-before", ALL, 2, Way::Lulls),
    point("free-after", ALL, 2, Way::Lulls),
];

/// Three components, and what was bought of them.
struct Set {
    components: Components,
    ledger: Ledger,
}

/// A fault that kills by itself, as nothing else here does.
fn is_of_fault(place: usize, fault: &str, status: ExitStatus) -> Result<(), Failure> {
    match status.signal() {
        Some(ABORTED) => Ok(()),
        _ => Err(format!("{} was to die of {fault}, and ended with {status}", NAMES[place]).into()),
    }
}

impl Set {
    fn start() -> Result<Set, Failure> {
        Ok(Set { components: Components::start()?, ledger: Ledger::default() })
    }

    /// Starts a component that is to die of a fault, at once or later.
    fn arm(&mut self, place: usize, fault: &str) -> Result<(), Failure> {
        match self.components.restart_with(place, Some(fault))? {
            None => Ok(()),
            Some(status) => is_of_fault(place, fault, status),
        }
    }

    /// Waits until the fault has killed, if it has not done so at the start.
    fn dies(&mut self, place: usize, fault: &str) -> Result<(), Failure> {
        let begun = Instant::now();
        while self.components.runs(place) {
            if let Some(status) = self.components.ended(place)? {
                return is_of_fault(place, fault, status);
            }
            if begun.elapsed() > END {
                return Err(format!("{} does not pass {fault}", NAMES[place]).into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Has a component die of a fault on its way, and starts it again.
    fn lead(&mut self, place: usize, way: Way, fault: &str) -> Result<(), Failure> {
        let first = match way {
            Way::InDoubt if place == SHOP => Some((SHOP, "decision-after:1")),
            Way::InDoubt => Some((place, IN_DOUBT)),
            Way::OtherInDoubt => Some((STOCK, IN_DOUBT)),
            Way::Plain | Way::Lulls | Way::First | Way::NoJournal => None,
        };
        if let Some((first, fault)) = first {
            self.components.kill(first)?;
            self.arm(first, fault)?;
            self.dies(first, fault)?;
        }
        if way != Way::First {
            self.components.kill(place)?;
            if way == Way::NoJournal {
                std::fs::remove_dir_all(self.components.journal(place))?;
            }
            // Who began the root forgets it with its process, and tells nobody: so the only way out
            // of the doubt is to ask.
            let has_to_ask = way == Way::InDoubt && place != SHOP;
            if has_to_ask {
                self.components.kill(SHOP)?;
            }
            self.arm(place, fault)?;
            if has_to_ask {
                self.components.restart(SHOP)?;
            }
        }
        if way == Way::OtherInDoubt {
            self.components.restart(STOCK)?;
        }
        self.dies(place, fault)?;
        self.components.restart(place)
    }

    /// Tries a point at a component.
    fn try_point(&mut self, point: &Point, place: usize, pass: u32) -> Result<(), Failure> {
        let (begun, fault) = (Instant::now(), format!("{}:{pass}", point.name));
        if point.way == Way::First {
            (self.components, self.ledger) = (Components::prepare(None)?, Ledger::default());
            for other in 0..NAMES.len() {
                if other == place { self.arm(place, &fault)? } else { self.components.restart(other)? }
            }
        }
        let shop = self.components.address("shop");
        let crowd = format!("{fault} at {}", NAMES[place]);
        let ((), bought) = Crowd::buys(shop, &crowd, CLIENTS, DEADLINE, |crowd| {
            crowd.set_lulls(point.way == Way::Lulls);
            self.lead(place, point.way, &fault)?;
            crowd.set_lulls(false);
            crowd.goes_on(CLIENTS)
        })?;
        let (bought_now, dead) = (bought.len(), begun.elapsed());
        settled(&self.components)?;
        self.ledger.add(shop, bought)?;
        self.ledger.check(&self.components)?;
        let seconds = (dead.as_secs_f32(), begun.elapsed().as_secs_f32());
        println!("{crowd}: {bought_now} purchases, {:.1} s, all ended at {:.1} s", seconds.0, seconds.1);
        Ok(())
    }
}

/// Tries points at several sets of components at the same time.
fn try_all(trials: &[(&Point, usize, u32)]) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let work = || {
            let mut set = Set::start()?;
            while let Some((point, place, pass)) = trials.get(next.fetch_add(1, Ordering::SeqCst)) {
                set.try_point(point, *place, *pass)
                    .map_err(|error| format!("{}:{pass} at {}: {error}", point.name, NAMES[*place]))?;
            }
            Ok::<(), Failure>(())
        };
        let sets: Vec<_> = (0..SETS).map(|_| scope.spawn(work)).collect();
        let ended: Vec<_> = sets.into_iter().map(thread::ScopedJoinHandle::join).collect();
        ended.into_iter().try_for_each(|set| set.map_err(|_| "a set of components panicked")?)
    })
}

#[test]
fn whoever_dies_at_a_fault_point_everything_ends_as_it_should() -> Result<(), Failure> {
    let trials: Vec<_> = POINTS
        .iter()
        .enumerate()
        .map(|(nth, point)| (point, point.places[nth % point.places.len()], point.pass))
        .collect();
    try_all(&trials)
}

#[test]
#[ignore = "takes minutes: in the head of this file is how it is run"]
fn whoever_dies_at_a_fault_point_everything_ends_as_it_should_at_every_component() -> Result<(), Failure> {
    let passes = |point: &'static Point| match point.pass {
        1 => vec![1],
        _ => vec![1, point.pass, 10],
    };
    let of_point = |point: &'static Point| {
        let places = point.places.iter();
        places.flat_map(move |place| passes(point).into_iter().map(move |pass| (point, *place, pass)))
    };
    try_all(&POINTS.iter().flat_map(of_point).collect::<Vec<_>>())
}

/// Whoever was told nothing of a decision finds who has made it by his name, and is found by his
/// own: all of them are somewhere else afterwards.
#[test]
fn who_has_moved_after_a_decision_is_found_by_name() -> Result<(), Failure> {
    let (mut set, fault) = (Set::start()?, "decision-after:1");
    set.components.kill(SHOP)?;
    set.arm(SHOP, fault)?;
    let (order, key) = (json!({ "item": 3, "customer": 4 }), [("Idempotency-Key", "moved")]);
    let unanswered = post(set.components.address("shop"), "/services/buy", &key, &order);
    assert!(unanswered.is_err(), "{unanswered:?}");
    set.dies(SHOP, fault)?;
    for name in ["stock", "payment"] {
        let (_, status) = request(set.components.address(name), "GET", "/status", &[], b"")?;
        assert_eq!(status["in_doubt"], json!(1), "{name}: {status}");
    }
    for place in 0..NAMES.len() {
        set.components.kill(place)?;
        let address = set.components.move_away(place)?;
        set.components.set_door(place, address);
    }
    (0..NAMES.len()).try_for_each(|place| set.components.restart(place))?;
    settled(&set.components)?;
    let [shop, stock, payment] = NAMES.map(|name| set.components.address(name));
    let (status, receipt) = post(shop, "/services/buy", &key, &order)?;
    assert_eq!((status, &receipt["item"], &receipt["customer"]), (200, &json!(3), &json!(4)), "{receipt}");
    let item = json!({ "item": 3 });
    assert_eq!(post(shop, "/services/sold", &[], &item)?, (200, json!(1)));
    assert_eq!(post(stock, "/services/count", &[], &item)?, (200, json!(999)));
    assert_eq!(post(payment, "/services/balance", &[], &json!(4))?, (200, json!(9990)));
    Ok(())
}

#[test]
fn the_points_are_those_that_a_component_tells() -> Result<(), Failure> {
    let components = Components::start()?;
    let (status, told) = request(components.address("shop"), "GET", "/faults", &[], b"")?;
    let tried: Vec<&str> = POINTS.iter().map(|point| point.name).collect();
    assert_eq!((status, told), (200, tried.into()));
    Ok(())
}

#[test]
fn a_fault_that_makes_no_sense_keeps_a_component_from_starting() -> Result<(), Failure> {
    let mut components = Components::prepare(None)?;
    for fault in ["nowhere:1", "undo-before", "undo-before:0", "undo-before:many"] {
        let ended = components.restart_with(PAYMENT, Some(fault))?;
        assert_eq!(ended.and_then(|status| status.code()), Some(1), "{fault}");
    }
    components.restart(PAYMENT)
}
