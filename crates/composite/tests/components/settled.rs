//! What a person has decided stays so, though nobody else remembers it.

use serde_json::json;

use crate::contract::one;
use crate::process::{Components, Failure, post, request, settled};

const SHOP: usize = 0;
const STOCK: usize = 1;

/// A call of a root that has begun somewhere that nobody finds any more.
const PART: [(&str, &str); 4] = [
    ("Cognate-Root", "r"),
    ("Cognate-Parent", "office"),
    ("Cognate-Call", "r.1"),
    ("Cognate-Deadline-Ms", "60000"),
];

/// A purchase is in doubt, and one of those that it has called is away, so that the shop cannot be
/// done with it. The payment keeps its part prepared, or has an undo.
fn commits(mut components: Components) -> Result<(), Failure> {
    let shop = components.address("shop");
    let (code, receipt) = post(shop, "/services/buy", &PART, &json!({ "item": 5, "customer": 6 }))?;
    assert_eq!(code, 200, "{receipt}");
    let question = json!({ "roots": [{ "root": "r", "parent": "office", "calls": 1 }] });
    assert_eq!(one(post(shop, "/composite/prepare", &[], &question)?)?["vote"], "yes");
    components.kill(STOCK)?;
    let settle = json!({ "root": "r", "outcome": "committed" });
    let done = json!({ "root": "r", "state": "done" });
    assert_eq!(post(shop, "/composite/settle", &[], &settle)?, (200, done));
    components.kill(SHOP)?;
    components.restart(SHOP)?;
    let (_, shown) = request(shop, "GET", "/status", &[], b"")?;
    let state = &shown["roots"][0]["state"];
    assert_eq!((&shown["in_doubt"], state), (&json!(0), &json!("committed")), "{shown}");
    components.restart(STOCK)?;
    settled(&components)?;
    let counted = post(components.address("stock"), "/services/count", &[], &json!({ "item": 5 }))?;
    assert_eq!(counted, (200, json!(999)));
    let balance = post(components.address("payment"), "/services/balance", &[], &json!(6))?;
    assert_eq!(balance, (200, json!(9990)));
    let sold = post(shop, "/services/sold", &[], &json!({ "item": 5 }))?;
    assert_eq!(sold, (200, json!(1)));
    Ok(())
}

#[test]
fn what_a_person_has_committed_stays_so_through_a_kill() -> Result<(), Failure> {
    commits(Components::start()?)
}

#[test]
fn so_does_what_is_kept_prepared_below() -> Result<(), Failure> {
    commits(Components::start_without_undo()?)
}

/// The same of what is kept prepared where a person settles it, with nobody below.
#[test]
fn what_was_kept_prepared_is_committed_before_that_is_said() -> Result<(), Failure> {
    const PAYMENT: usize = 2;
    let mut components = Components::start_without_undo()?;
    let payment = components.address("payment");
    let charge = json!({ "customer": 6, "price": 10 });
    assert_eq!(post(payment, "/services/charge", &PART, &charge)?.0, 200);
    let question = json!({ "roots": [{ "root": "r", "parent": "office", "calls": 1 }] });
    assert_eq!(one(post(payment, "/composite/prepare", &[], &question)?)?["vote"], "yes");
    let settle = json!({ "root": "r", "outcome": "committed" });
    let done = json!({ "root": "r", "state": "done" });
    assert_eq!(post(payment, "/composite/settle", &[], &settle)?, (200, done));
    components.kill(PAYMENT)?;
    components.restart(PAYMENT)?;
    let (_, shown) = request(payment, "GET", "/status", &[], b"")?;
    assert_eq!(shown["in_doubt"], 0, "{shown}");
    settled(&components)?;
    assert_eq!(post(payment, "/services/balance", &[], &json!(6))?, (200, json!(9990)));
    Ok(())
}
