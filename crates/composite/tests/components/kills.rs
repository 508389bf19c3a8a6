//! `kill -9` of every component in turn, while purchases are under way: each happens wholly and once, or not at all.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::{Components, Failure, NAMES, post, request};

const CLIENTS: usize = 6;
const KILLS: usize = 6;
/// How long everything may take to end once nobody buys any more: a safety net, far above what it takes.
const END: Duration = Duration::from_secs(120);

/// A client buys again and again, each time until it has an answer; answers how many were committed.
fn buy(shop: std::net::SocketAddr, client: usize, is_over: &AtomicBool) -> Result<usize, Failure> {
    let mut bought = 0;
    for nth in 0.. {
        if is_over.load(Ordering::SeqCst) {
            return Ok(bought);
        }
        let (key, order) =
            (format!("{client}/{nth}"), json!({ "item": 1 + nth % 7, "customer": 1 + client }));
        let headers = [("Idempotency-Key", key.as_str()), ("Cognate-Deadline-Ms", "3000")];
        loop {
            match post(shop, "/services/buy", &headers, &order) {
                Ok((200, receipt)) => {
                    assert_eq!(
                        (&receipt["item"], &receipt["customer"]),
                        (&order["item"], &order["customer"])
                    );
                    bought += 1;
                    break;
                }
                // Somebody is down, or was: the same request again.
                Ok((409 | 503 | 504, _)) | Err(_) => thread::sleep(Duration::from_millis(20)),
                Ok((status, answer)) => return Err(format!("{key} was answered {status} {answer}").into()),
            }
        }
    }
    Ok(bought)
}

/// The answer of a service that reads, as soon as nothing is in its way.
fn read(to: std::net::SocketAddr, service: &str, arguments: &serde_json::Value) -> Result<i64, Failure> {
    let begun = Instant::now();
    loop {
        match post(to, &format!("/services/{service}"), &[], arguments)? {
            (200, answer) => return Ok(answer.as_i64().ok_or("no number")?),
            (409, _) if begun.elapsed() < END => thread::sleep(Duration::from_millis(50)),
            (status, answer) => return Err(format!("{service} was answered {status} {answer}").into()),
        }
    }
}

/// Waits until no component has an open root.
fn settled(components: &Components) -> Result<(), Failure> {
    let begun = Instant::now();
    for name in NAMES {
        loop {
            let (_, status) = request(components.address(name), "GET", "/status", &[], b"")?;
            if status["roots"].as_array().is_some_and(Vec::is_empty) {
                assert_eq!(status["in_doubt"], 0);
                assert_eq!(status["parked"], json!([]));
                break;
            }
            assert!(begun.elapsed() < END, "{name} does not end: {status}");
            thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

#[test]
fn whoever_is_killed_no_purchase_is_lost_or_half_done() -> Result<(), Failure> {
    kill_in_turn(Components::start()?)
}

/// What the payment does is kept prepared until the purchase has ended, also through its own end.
#[test]
fn without_undo_no_purchase_is_lost_or_half_done_either() -> Result<(), Failure> {
    let components = Components::start_without_undo()?;
    let (_, status) = request(components.address("payment"), "GET", "/status", &[], b"")?;
    assert!(status["matrix"].to_string().contains("closed"), "{status}");
    kill_in_turn(components)
}

fn kill_in_turn(mut components: Components) -> Result<(), Failure> {
    let (is_over, bought) = (AtomicBool::new(false), AtomicUsize::new(0));
    let shop = components.address("shop");
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (is_over, bought) = (&is_over, &bought);
                scope.spawn(move || {
                    bought.fetch_add(buy(shop, client, is_over)?, Ordering::SeqCst);
                    Ok::<(), Failure>(())
                })
            })
            .collect();
        for kill in 0..KILLS {
            // Somewhere in the middle of what is under way.
            thread::sleep(Duration::from_millis(300 + 70 * kill as u64));
            let place = kill % NAMES.len();
            components.kill(place)?;
            components.restart(place)?;
        }
        thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::SeqCst);
        clients.into_iter().try_for_each(|client| client.join().map_err(|_| "a client panicked")?)
    })?;
    settled(&components)?;
    let bought = bought.load(Ordering::SeqCst) as i64;
    let (mut sold, mut taken, mut paid) = (0, 0, 0);
    for item in 1..=7 {
        sold += read(shop, "sold", &json!({ "item": item }))?;
        taken += 1000 - read(components.address("stock"), "count", &json!({ "item": item }))?;
    }
    for customer in 1..=CLIENTS {
        paid += 10_000 - read(components.address("payment"), "balance", &json!(customer))?;
    }
    println!("{bought} purchases through {KILLS} kills");
    assert!(bought > 0);
    assert_eq!((sold, taken, paid), (bought, bought, 10 * bought));
    Ok(())
}
