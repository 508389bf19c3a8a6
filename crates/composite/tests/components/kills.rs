//! `kill -9` of every component in turn, while purchases are under way: each happens wholly and
//! once, or not at all.

use std::thread;
use std::time::Duration;

use crate::postgres::Postgres;
use crate::process::{Components, Failure, NAMES, request, settled};
use crate::trade::{Crowd, Ledger};

const CLIENTS: usize = 6;
const KILLS: usize = 6;
const DEADLINE: Duration = Duration::from_secs(3);

#[test]
fn whoever_is_killed_no_purchase_is_lost_or_half_done() -> Result<(), Failure> {
    kill_in_turn(Components::start()?, KILLS)
}

/// What the payment does is kept prepared until the purchase has ended, also through its own end.
#[test]
fn without_undo_no_purchase_is_lost_or_half_done_either() -> Result<(), Failure> {
    let components = Components::start_without_undo()?;
    let (_, status) = request(components.address("payment"), "GET", "/status", &[], b"")?;
    assert!(status["matrix"].to_string().contains("closed"), "{status}");
    kill_in_turn(components, KILLS)
}

/// What a component's sessions have under way there is ended by its next start, and waited for.
#[test]
fn on_postgresql_no_purchase_is_lost_or_half_done_either() -> Result<(), Failure> {
    let Some(mut server) = Postgres::start()? else { return Ok(()) };
    for (without_undo, kind) in [(false, "open"), (true, "closed")] {
        let databases = NAMES.map(|name| server.database(&format!("{name}_{kind}")));
        let databases = databases.into_iter().collect::<Result<Vec<String>, Failure>>()?;
        kill_in_turn(Components::start_on(databases, without_undo)?, NAMES.len())?;
    }
    Ok(())
}

fn kill_in_turn(mut components: Components, kills: usize) -> Result<(), Failure> {
    let shop = components.address("shop");
    let ((), bought) = Crowd::buys(shop, "kills", CLIENTS, DEADLINE, |crowd| {
        for kill in 0..kills {
            // Somewhere in the middle of what is under way.
            thread::sleep(Duration::from_millis(300 + 70 * kill as u64));
            let place = kill % NAMES.len();
            components.kill(place)?;
            components.restart(place)?;
        }
        crowd.goes_on(CLIENTS)
    })?;
    settled(&components)?;
    let mut ledger = Ledger::default();
    ledger.add(shop, bought)?;
    ledger.check(&components)?;
    println!("{} purchases through {kills} kills", ledger.len());
    Ok(())
}
