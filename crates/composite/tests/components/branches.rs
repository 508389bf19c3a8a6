//! Calls without undo: what they do is kept prepared in the database until their root ends, also
//! through the component's own end.

use serde_json::{Value, json};

use crate::contract::{one, part_of};
use crate::process::{Components, Failure, NAMES, post, request};

const PAYMENT: usize = 2;

/// The payment, which has no undo; nobody answers for the roots that the tests begin.
fn payment() -> Result<(Components, std::net::SocketAddr), Failure> {
    let mut components = Components::start_without_undo()?;
    assert_eq!(NAMES[PAYMENT], "payment");
    components.kill(0)?;
    let payment = components.address("payment");
    Ok((components, payment))
}

fn charge(payment: std::net::SocketAddr, root: &str, customer: i32) -> Result<(u16, Value), Failure> {
    let call = format!("{root}.1");
    let headers = [&part_of(root, &call)[..], &[("Cognate-Deadline-Ms", "60000")]].concat();
    post(payment, "/services/charge", &headers, &json!({ "customer": customer, "price": 10 }))
}

fn balance(payment: std::net::SocketAddr, customer: i32) -> Result<(u16, Value), Failure> {
    post(payment, "/services/balance", &[], &json!(customer))
}

fn told(payment: std::net::SocketAddr, what: &str, root: &str) -> Result<(), Failure> {
    let about = json!({ "roots": [{ "root": root, "parent": "shop" }] });
    loop {
        let state = one(post(payment, &format!("/composite/{what}"), &[], &about)?)?["state"].clone();
        match state.as_str() {
            Some("done") => return Ok(()),
            Some("pending") => {}
            _ => return Err(format!("{what}: {state}").into()),
        }
    }
}

fn vote(payment: std::net::SocketAddr, root: &str) -> Result<Value, Failure> {
    let prepare = json!({ "roots": [{ "root": root, "parent": "shop", "calls": 1 }] });
    Ok(one(post(payment, "/composite/prepare", &[], &prepare)?)?["vote"].clone())
}

#[test]
fn what_is_kept_prepared_survives_and_ends_with_its_root() -> Result<(), Failure> {
    let (mut components, payment) = payment()?;
    assert_eq!(charge(payment, "a", 1)?, (200, Value::Null));
    assert_eq!(charge(payment, "b", 2)?, (200, Value::Null));
    assert_eq!(charge(payment, "c", 3)?, (200, Value::Null));
    assert_eq!(vote(payment, "a")?, "yes");
    components.kill(PAYMENT)?;
    components.restart(PAYMENT)?;
    // Locks are there again, the same call has the same answer, and what was voted for is in doubt;
    // so is the rest, if the component has ended before its journal said that it was not.
    assert_eq!(balance(payment, 1)?.0, 409);
    assert_eq!(balance(payment, 2)?.0, 409);
    assert_eq!(charge(payment, "b", 2)?, (200, Value::Null));
    let (_, status) = request(payment, "GET", "/status", &[], b"")?;
    assert!((1..=3).contains(&status["in_doubt"].as_u64().ok_or("no number")?), "{status}");
    assert_eq!(status["roots"].as_array().map(Vec::len), Some(3));
    assert_eq!(vote(payment, "c")?, "yes");
    told(payment, "commit", "a")?;
    told(payment, "abort", "b")?;
    told(payment, "commit", "c")?;
    let balances = [balance(payment, 1)?, balance(payment, 2)?, balance(payment, 3)?];
    assert_eq!(balances, [(200, json!(9990)), (200, json!(10000)), (200, json!(9990))]);
    // Their slots are free again.
    for root in ["d", "e", "f"] {
        assert_eq!(charge(payment, root, 1)?, (200, Value::Null));
        told(payment, "abort", root)?;
    }
    assert_eq!(balance(payment, 1)?, (200, json!(9990)));
    Ok(())
}

#[test]
fn a_sibling_in_the_way_of_what_is_kept_prepared_is_refused() -> Result<(), Failure> {
    let (_components, payment) = payment()?;
    assert_eq!(charge(payment, "a", 1)?.0, 200);
    let (status, problem) =
        post(payment, "/services/charge", &part_of("a", "a.2"), &json!({ "customer": 1, "price": 10 }))?;
    assert_eq!((status, problem["reason"].as_str()), (409, Some("closed-sibling")));
    told(payment, "abort", "a")
}

#[test]
fn without_its_journal_a_component_with_something_prepared_does_not_start() -> Result<(), Failure> {
    let (mut components, payment) = payment()?;
    assert_eq!(charge(payment, "a", 1)?.0, 200);
    components.kill(PAYMENT)?;
    let journal = components.journal(PAYMENT);
    let aside = journal.with_extension("aside");
    std::fs::rename(&journal, &aside)?;
    assert!(components.restart(PAYMENT).is_err(), "it knows nothing of what is prepared");
    std::fs::remove_dir_all(&journal)?;
    std::fs::rename(&aside, &journal)?;
    components.restart(PAYMENT)?;
    told(payment, "abort", "a")?;
    assert_eq!(balance(payment, 1)?, (200, json!(10000)));
    Ok(())
}
