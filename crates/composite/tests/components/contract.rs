//! The contract of docs/composite-wire.md, as another implementation would meet it.

use serde_json::{Value, json};

use crate::process::{Components, Failure, exchange, post, request};

/// Headers of a call that is part of a root of somebody else's.
pub(crate) fn part_of<'a>(root: &'a str, call: &'a str) -> [(&'a str, &'a str); 3] {
    [("Cognate-Root", root), ("Cognate-Parent", "shop"), ("Cognate-Call", call)]
}

pub(crate) fn one(answer: (u16, Value)) -> Result<Value, Failure> {
    let (status, answer) = answer;
    assert_eq!(status, 200, "{answer}");
    Ok(answer["roots"][0].clone())
}

#[test]
fn bad_requests_are_told_apart_and_leave_nothing() -> Result<(), Failure> {
    let components = Components::start()?;
    let shop = components.address("shop");
    let order = json!({ "item": 1, "customer": 1 });
    let reasons = [
        (post(shop, "/services/sell", &[], &order)?, 404, "service"),
        (post(shop, "/services/buy", &[], &json!({ "item": "one", "customer": 1 }))?, 400, "arguments"),
        (post(shop, "/services/buy", &[], &json!([1]))?, 400, "arguments"),
        (post(shop, "/services/buy", &[], &json!([1, 1]))?, 400, "arguments"),
        (request(shop, "POST", "/services/buy", &[], b"{")?, 400, "arguments"),
        (request(shop, "POST", "/services/buy", &[], &vec![b' '; 10 << 20])?, 413, "size"),
        (post(shop, "/services/buy", &[("Cognate-Deadline-Ms", "0")], &order)?, 504, "deadline"),
        (post(shop, "/services/buy", &[("Cognate-Deadline-Ms", "soon")], &order)?, 400, "arguments"),
        (post(shop, "/services/buy", &[("Cognate-Root", "r")], &order)?, 400, "arguments"),
        (post(shop, "/services/buy", &[("Idempotency-Key", "")], &order)?, 400, "arguments"),
        (post(shop, "/services/buy", &[("Cognate-Ahead", "1"); 2], &order)?, 400, "arguments"),
        (post(shop, "/services/buy", &[("Cognate-Origin", "m:1"); 2], &order)?, 400, "arguments"),
        (post(shop, "/services/buy", &[("Cognate-Origin", "m")], &order)?, 400, "arguments"),
        (post(shop, "/services/buy", &[], &json!({ "item": 101, "customer": 1 }))?, 400, "failed"),
        (post(shop, "/composite/prepare", &[], &json!({ "roots": 1 }))?, 400, "arguments"),
        (request(shop, "GET", "/nowhere", &[], b"")?, 404, "path"),
        (request(shop, "DELETE", "/status", &[], b"")?, 404, "path"),
        (request(shop, "GET", "/services/buy", &[], b"")?, 404, "path"),
        (request(shop, "POST", "/services/%ff", &[], b"1")?, 404, "path"),
    ];
    let (status, document) = request(shop, "GET", "/openapi.json", &[], b"")?;
    assert_eq!(status, 200, "{document}");
    for name in ["buy", "sold"] {
        assert!(document["paths"][format!("/services/{name}")]["post"].is_object(), "{document}");
    }
    let body = &document["paths"]["/services/buy"]["post"]["requestBody"]["content"]["application/json"];
    assert_eq!(body["schema"]["required"], json!(["customer", "item"]), "{document}");
    assert_eq!(body["schema"]["properties"]["item"]["type"], "integer", "{document}");
    for ((status, problem), expected, reason) in reasons {
        assert_eq!((status, problem["reason"].as_str()), (expected, Some(reason)), "{problem}");
        let described = &document["components"]["responses"][expected.to_string()]["content"];
        let described = described["application/problem+json"]["schema"]["allOf"][1].clone();
        let known =
            described["properties"]["reason"]["enum"].as_array().ok_or("a status that is not described")?;
        assert!(known.iter().any(|known| known == reason), "{expected} {reason} is not described");
    }
    // An ordinary build has no points at which it can be made to die.
    #[cfg(not(feature = "fault-points"))]
    assert_eq!(request(shop, "GET", "/faults", &[], b"")?, (200, json!([])));
    let deep = vec!["c"; 40].join(",");
    let headers = [&part_of("deep", "d")[..], &[("Cognate-Ancestors", deep.as_str())]].concat();
    let (status, problem) =
        post(components.address("stock"), "/services/take", &headers, &json!({ "item": 1 }))?;
    assert_eq!((status, problem["reason"].as_str()), (508, Some("depth")));
    for name in ["shop", "stock", "payment"] {
        let (_, status) = request(components.address(name), "GET", "/status", &[], b"")?;
        assert_eq!(status["roots"], json!([]), "{name}");
    }
    Ok(())
}

/// What cannot be read as the head of a request is told why, as everything else is that is refused.
#[test]
fn what_is_no_request_is_answered_with_a_problem() -> Result<(), Failure> {
    let components = Components::start()?;
    let shop = components.address("shop");
    let (fields, long) = ("X-More: 1\r\n".repeat(200), "x".repeat(70_000));
    for head in [
        format!("GET /status HTTP/1.1\r\nHost: shop\r\n{fields}\r\n"),
        format!("GET /{long} HTTP/1.1\r\nHost: shop\r\n\r\n"),
        "GET /status HTTP/1.1\r\nHost: shop\r\nno field\r\n\r\n".to_owned(),
        "POST /services/buy HTTP/1.1\r\nHost: shop\r\nContent-Length: many\r\n\r\n".to_owned(),
        "what is none of HTTP's\r\n\r\n".to_owned(),
    ] {
        let (said, (status, problem)) = exchange(shop, head.as_bytes(), b"")?;
        assert_eq!((status, problem["reason"].as_str()), (400, Some("arguments")), "{said}");
        assert!(said.contains("\r\ncontent-type: application/problem+json"), "{said}");
    }
    // One that says why is left as it is.
    assert_eq!(request(shop, "GET", "/nowhere", &[], b"")?.1["reason"], "path");
    Ok(())
}

#[test]
fn a_key_gives_the_stored_answer_and_no_other() -> Result<(), Failure> {
    let components = Components::start()?;
    let shop = components.address("shop");
    let key = [("Idempotency-Key", "k")];
    let (status, first) = post(shop, "/services/buy", &key, &json!({ "item": 1, "customer": 2 }))?;
    assert_eq!(status, 200, "{first}");
    // The order of the fields is none of JSON's.
    let again = request(shop, "POST", "/services/buy", &key, br#"{"customer":2,"item":1}"#)?;
    assert_eq!(again, (200, first));
    let (status, problem) = post(shop, "/services/buy", &key, &json!({ "item": 2, "customer": 2 }))?;
    assert_eq!((status, problem["reason"].as_str()), (422, Some("key")));
    // Another service is another request, whatever it makes of the body.
    let (status, problem) = post(shop, "/services/sold", &key, &json!({ "item": 1, "customer": 2 }))?;
    assert_eq!((status, problem["reason"].as_str()), (422, Some("key")));
    assert_eq!(post(shop, "/services/sold", &[], &json!({ "item": 1 }))?.1, json!(1));
    // A service that only reads keeps its answer, too.
    let key = [("Idempotency-Key", "read")];
    assert_eq!(post(shop, "/services/sold", &key, &json!({ "item": 1 }))?, (200, json!(1)));
    assert_eq!(post(shop, "/services/buy", &[], &json!({ "item": 1, "customer": 2 }))?.0, 200);
    assert_eq!(post(shop, "/services/sold", &key, &json!({ "item": 1 }))?, (200, json!(1)));
    // What failed is not stored, so the key is free, also for another request.
    let key = [("Idempotency-Key", "again")];
    assert_eq!(post(shop, "/services/buy", &key, &json!({ "item": 101, "customer": 2 }))?.0, 400);
    assert_eq!(post(shop, "/services/buy", &key, &json!({ "item": 3, "customer": 2 }))?.0, 200);
    Ok(())
}

#[test]
fn requests_with_one_key_at_the_same_time_are_one() -> Result<(), Failure> {
    let components = Components::start()?;
    let shop = components.address("shop");
    let order = json!({ "item": 4, "customer": 4 });
    let buy = || post(shop, "/services/buy", &[("Idempotency-Key", "k")], &order);
    let answers = std::thread::scope(|scope| {
        let buying: Vec<_> = (0..8).map(|_| scope.spawn(buy)).collect();
        let joined = buying.into_iter().map(|one| one.join().map_err(|_| "a client panicked")?);
        joined.collect::<Result<Vec<_>, Failure>>()
    })?;
    assert_eq!(answers[0].0, 200, "{answers:?}");
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(post(shop, "/services/sold", &[], &json!({ "item": 4 }))?, (200, json!(1)));
    Ok(())
}

#[test]
fn who_is_away_is_said_and_nothing_is_left() -> Result<(), Failure> {
    let mut components = Components::start()?;
    let (shop, payment) = (components.address("shop"), components.address("payment"));
    components.kill(1)?;
    let order = json!({ "item": 1, "customer": 1 });
    let (status, problem) = post(shop, "/services/buy", &[], &order)?;
    assert_eq!((status, problem["reason"].as_str()), (503, Some("away")));
    let balance = || post(payment, "/services/balance", &[], &json!(1));
    while balance()?.0 == 409 {}
    assert_eq!(balance()?, (200, json!(10000)));
    components.restart(1)?;
    assert_eq!(post(shop, "/services/buy", &[], &order)?.0, 200);
    Ok(())
}

/// A root that has ended is refused for as long as messages can be late, also by a later process.
#[test]
fn what_has_ended_is_refused_after_a_restart_too() -> Result<(), Failure> {
    let mut components = Components::start()?;
    let (stock, take) = (components.address("stock"), json!({ "item": 5 }));
    let about = |root: &str| json!({ "roots": [{ "root": root, "parent": "shop", "calls": 1 }] });
    assert_eq!(one(post(stock, "/composite/abort", &[], &about("early"))?)?["state"], "done");
    let no = one(post(stock, "/composite/prepare", &[], &about("unknown"))?)?;
    assert_eq!((no["vote"].as_str(), no["reason"].as_str()), (Some("no"), Some("unknown")));
    assert_eq!(post(stock, "/services/take", &part_of("undone", "undone.1"), &take)?.0, 200);
    while one(post(stock, "/composite/abort", &[], &about("undone"))?)?["state"] != "done" {}
    for is_again in [false, true] {
        if is_again {
            components.kill(1)?;
            components.restart(1)?;
        }
        for root in ["early", "unknown", "undone"] {
            let (status, problem) =
                post(stock, "/services/take", &part_of(root, &format!("{root}.2")), &take)?;
            assert_eq!((status, problem["reason"].as_str()), (409, Some("ended")), "{root}");
        }
    }
    assert_eq!(post(stock, "/services/count", &[], &take)?, (200, json!(1000)));
    Ok(())
}

#[test]
fn a_root_of_others_is_voted_for_committed_and_undone_as_they_say() -> Result<(), Failure> {
    let components = Components::start()?;
    let stock = components.address("stock");
    let take = json!({ "item": 5 });
    let count = || -> Result<(u16, Value), Failure> { post(stock, "/services/count", &[], &take) };
    // A call commits early; who counts the same item meets its lock.
    assert_eq!(post(stock, "/services/take", &part_of("a", "a.1"), &take)?, (200, Value::Null));
    let (status, problem) = count()?;
    assert_eq!(
        (status, problem["reason"].as_str(), problem["holder"].as_str()),
        (409, Some("conflict"), Some("a"))
    );
    // The same call again is the same call.
    assert_eq!(post(stock, "/services/take", &part_of("a", "a.1"), &take)?, (200, Value::Null));
    let (status, problem) = post(stock, "/services/take", &part_of("a", "a.1"), &json!({ "item": 6 }))?;
    assert_eq!((status, problem["reason"].as_str()), (422, Some("arguments")));
    let (status, problem) = post(stock, "/services/count", &part_of("a", "a.1"), &take)?;
    assert_eq!((status, problem["reason"].as_str()), (422, Some("arguments")));
    // One call, so a vote for one, and a second question about two is refused without ending the
    // doubt.
    let prepare = |calls: u32| json!({ "roots": [{ "root": "a", "parent": "shop", "calls": calls }] });
    let vote = one(post(stock, "/composite/prepare", &[], &prepare(1))?)?;
    assert_eq!(vote["vote"], "yes");
    let no = one(post(stock, "/composite/prepare", &[], &prepare(2))?)?;
    assert_eq!((no["vote"].as_str(), no["reason"].as_str()), (Some("no"), Some("count")));
    assert_eq!(one(post(stock, "/composite/prepare", &[], &prepare(1))?)?, vote, "the same question again");
    let (_, status) = request(stock, "GET", "/status", &[], b"")?;
    assert_eq!(
        (status["in_doubt"].as_u64(), status["roots"][0]["state"].as_str()),
        (Some(1), Some("in-doubt"))
    );
    // Another nonce is another vote's.
    let told = |nonce: &Value| json!({ "roots": [{ "root": "a", "parent": "shop", "nonce": nonce }] });
    let other = json!(vote["nonce"].as_u64().unwrap_or_default() ^ 1);
    assert_eq!(one(post(stock, "/composite/commit", &[], &told(&other))?)?["state"], "refused");
    let state = one(post(stock, "/composite/commit", &[], &told(&vote["nonce"]))?)?["state"].clone();
    assert!(state == "pending" || state == "done", "{state}");
    while one(post(stock, "/composite/commit", &[], &told(&vote["nonce"]))?)?["state"] != "done" {}
    assert_eq!(count()?, (200, json!(999)));
    assert_eq!(one(post(stock, "/composite/abort", &[], &told(&Value::Null))?)?["state"], "refused");
    // What is aborted is as it was before, and nothing late of it runs.
    assert_eq!(post(stock, "/services/take", &part_of("b", "b.1"), &take)?.0, 200);
    let about = json!({ "roots": [{ "root": "b", "parent": "shop" }] });
    post(stock, "/composite/abort", &[], &about)?;
    while one(post(stock, "/composite/abort", &[], &about)?)?["state"] != "done" {}
    assert_eq!(count()?, (200, json!(999)));
    let (status, problem) = post(stock, "/services/take", &part_of("b", "b.2"), &take)?;
    assert_eq!((status, problem["reason"].as_str()), (409, Some("ended")));
    assert_eq!(one(post(stock, "/composite/commit", &[], &about)?)?["state"], "refused");
    // Of an unknown root nothing is known: no vote, no outcome but aborted, and no call afterwards.
    let unknown = json!({ "roots": [{ "root": "u", "parent": "shop", "calls": 1 }] });
    assert_eq!(one(post(stock, "/composite/prepare", &[], &unknown)?)?["vote"], "no");
    assert_eq!(one(post(stock, "/composite/outcome", &[], &unknown)?)?["state"], "aborted");
    assert_eq!(one(post(stock, "/composite/commit", &[], &unknown)?)?["state"], "done");
    assert_eq!(post(stock, "/services/take", &part_of("u", "u.1"), &take)?.0, 409);
    Ok(())
}

/// What one root has come to may be told together with the question about another one.
#[test]
fn a_commit_may_go_along_with_a_question_for_votes() -> Result<(), Failure> {
    let components = Components::start()?;
    let stock = components.address("stock");
    for (root, item) in [("a", 5), ("b", 6)] {
        let call = format!("{root}.1");
        let taken = post(stock, "/services/take", &part_of(root, &call), &json!({ "item": item }))?;
        assert_eq!(taken, (200, Value::Null));
    }
    let in_doubt = || Ok::<_, Failure>(request(stock, "GET", "/status", &[], b"")?.1["in_doubt"].clone());
    let about = json!({ "roots": [{ "root": "a", "parent": "shop", "calls": 1 }] });
    let (status, answer) = post(stock, "/composite/prepare", &[], &about)?;
    assert_eq!((status, &answer["roots"][0]["vote"]), (200, &json!("yes")));
    assert!(answer.get("commits").is_none(), "nothing went along: {answer}");
    assert_eq!(in_doubt()?, 1);
    let about = json!({
        "roots": [{ "root": "b", "parent": "shop", "calls": 1 }],
        "commits": [{ "root": "a", "parent": "shop", "nonce": answer["roots"][0]["nonce"] }],
    });
    let (status, answer) = post(stock, "/composite/prepare", &[], &about)?;
    assert_eq!((status, &answer["roots"][0]["vote"]), (200, &json!("yes")));
    let told = &answer["commits"][0];
    assert_eq!(told["root"], "a");
    assert!(told["state"] == "pending" || told["state"] == "done", "{answer}");
    assert_eq!(in_doubt()?, 1, "only the other one is");
    // It is a list of outcomes, or the question is none.
    let bad = json!({ "roots": [], "commits": 1 });
    assert_eq!(post(stock, "/composite/prepare", &[], &bad)?.0, 400);
    Ok(())
}

/// A later process says what an earlier one has said or would have said. Without the journal it
/// does not know to whom that one has said yes, and takes every slot for that; with it, only if the
/// process has ended while votes were coming.
#[test]
fn after_a_restart_whatever_may_have_a_yes_is_in_doubt() -> Result<(), Failure> {
    let mut components = Components::start()?;
    let (stock, take) = (components.address("stock"), json!({ "item": 5 }));
    // Nobody answers for these roots.
    components.kill(0)?;
    for root in ["asked", "unasked"] {
        let call = format!("{root}.1");
        let headers = [&part_of(root, &call)[..], &[("Cognate-Deadline-Ms", "60000")]].concat();
        assert_eq!(post(stock, "/services/take", &headers, &take)?.0, 200);
    }
    let about =
        |root: &str, calls: u32| json!({ "roots": [{ "root": root, "parent": "shop", "calls": calls }] });
    let prepare = |root, calls| one(post(stock, "/composite/prepare", &[], &about(root, calls))?);
    let vote = prepare("asked", 1)?;
    assert_eq!(vote["vote"], "yes");
    for is_lost in [false, true] {
        components.kill(1)?;
        if is_lost {
            std::fs::remove_dir_all(components.journal(1))?;
        }
        components.restart(1)?;
        let (_, status) = request(stock, "GET", "/status", &[], b"")?;
        assert!(status["in_doubt"] == 2 || !is_lost && status["in_doubt"] == 1, "{status}");
        assert_eq!(prepare("asked", 1)?, vote, "the same question, the same answer");
    }
    let no = prepare("asked", 2)?;
    assert_eq!((no["vote"].as_str(), no["reason"].as_str()), (Some("no"), Some("count")));
    // Whose call has come to nothing hears so.
    let outcome = |callers: Value| -> Result<Value, Failure> {
        let entry = json!({ "root": "unasked", "child": "payment", "callers": callers });
        let asked = post(stock, "/composite/outcome", &[], &json!({ "roots": [entry] }))?;
        Ok(one(asked)?["state"].clone())
    };
    assert_eq!([outcome(json!(["unasked.1"]))?, outcome(json!(["unasked.2"]))?], ["pending", "aborted"]);
    let told = |what: &str, root: &str| -> Result<(), Failure> {
        while one(post(stock, &format!("/composite/{what}"), &[], &about(root, 1))?)?["state"] != "done" {}
        Ok(())
    };
    assert_eq!(prepare("unasked", 1)?["vote"], "yes");
    told("commit", "asked")?;
    told("abort", "unasked")?;
    assert_eq!(post(stock, "/services/count", &[], &take)?, (200, json!(999)));
    Ok(())
}

/// Nobody has a yes to it, and the journal knows that: it ends as if the process had lived.
#[test]
fn a_root_that_was_never_asked_for_is_undone_after_a_restart_too() -> Result<(), Failure> {
    let mut components = Components::start()?;
    let (stock, item) = (components.address("stock"), json!({ "item": 8 }));
    // Nobody answers for it.
    components.kill(0)?;
    let headers = [&part_of("r", "r.1")[..], &[("Cognate-Deadline-Ms", "1500")]].concat();
    assert_eq!(post(stock, "/services/take", &headers, &item)?.0, 200);
    for _ in 0..2 {
        components.kill(1)?;
        components.restart(1)?;
        let (_, status) = request(stock, "GET", "/status", &[], b"")?;
        assert_eq!(status["in_doubt"], 0, "{status}");
    }
    loop {
        match post(stock, "/services/count", &[], &item)? {
            (409, _) => {}
            answer => {
                assert_eq!(answer, (200, json!(1000)));
                break;
            }
        }
    }
    // What comes late does not run.
    let (status, problem) = post(stock, "/services/take", &headers, &item)?;
    assert_eq!((status, &problem["reason"]), (409, &json!("ended")), "{problem}");
    Ok(())
}

#[test]
fn an_abort_that_names_no_parent_is_its_only_ones() -> Result<(), Failure> {
    let mut components = Components::start()?;
    let (stock, item) = (components.address("stock"), json!({ "item": 6 }));
    // Nobody answers for these roots.
    components.kill(0)?;
    let calls = [("one", "one.1", "shop"), ("two", "two.1", "shop"), ("two", "two.2", "payment")];
    for (root, call, parent) in calls {
        let headers = [
            ("Cognate-Root", root),
            ("Cognate-Parent", parent),
            ("Cognate-Call", call),
            ("Cognate-Deadline-Ms", "60000"),
        ];
        let of = json!({ "item": if root == "one" { 6 } else { 7 } });
        assert_eq!(post(stock, "/services/take", &headers, &of)?.0, 200);
    }
    for (root, _, parent) in calls {
        let about = json!({ "roots": [{ "root": root, "parent": parent, "calls": 1 }] });
        assert_eq!(one(post(stock, "/composite/prepare", &[], &about)?)?["vote"], "yes");
    }
    let abort = |root: &str| -> Result<Value, Failure> {
        let about = json!({ "roots": [{ "root": root }] });
        Ok(one(post(stock, "/composite/abort", &[], &about)?)?["state"].clone())
    };
    while abort("one")? != "done" {}
    assert_eq!(post(stock, "/services/count", &[], &item)?, (200, json!(1000)));
    // Either of two may be meant, and the other one may know better.
    assert_eq!(abort("two")?, "pending");
    let (_, status) = request(stock, "GET", "/status", &[], b"")?;
    assert_eq!(status["in_doubt"], 1, "{status}");
    Ok(())
}

#[test]
fn a_root_that_nobody_ends_is_undone_at_its_deadline() -> Result<(), Failure> {
    let components = Components::start()?;
    let stock = components.address("stock");
    let headers = [&part_of("late", "late.1")[..], &[("Cognate-Deadline-Ms", "300")]].concat();
    assert_eq!(post(stock, "/services/take", &headers, &json!({ "item": 9 }))?.0, 200);
    loop {
        match post(stock, "/services/count", &[], &json!({ "item": 9 }))? {
            (409, _) => {}
            answer => {
                assert_eq!(answer, (200, json!(1000)));
                break;
            }
        }
    }
    let prepare = json!({ "roots": [{ "root": "late", "parent": "shop", "calls": 1 }] });
    assert_eq!(one(post(stock, "/composite/prepare", &[], &prepare)?)?["vote"], "no");
    Ok(())
}

/// Also if the time of a request is over before the component's own bound.
#[test]
fn who_waits_for_a_lock_hears_whose_it_is() -> Result<(), Failure> {
    let components = Components::start()?;
    let stock = components.address("stock");
    let (take, short) = (json!({ "item": 9 }), ("Cognate-Deadline-Ms", "150"));
    let long = |root, call| [&part_of(root, call)[..], &[("Cognate-Deadline-Ms", "60000")]].concat();
    assert_eq!(post(stock, "/services/take", &long("a", "a.1"), &take)?.0, 200);
    let within = [&part_of("b", "b.1")[..], &[short]].concat();
    for headers in [&[short][..], &within[..]] {
        let (status, problem) = post(stock, "/services/count", headers, &take)?;
        assert_eq!((status, problem["reason"].as_str()), (409, Some("conflict")), "{headers:?}");
        assert_eq!((problem["holder"].as_str(), problem["item"].as_str()), (Some("a"), Some("9")));
    }
    // A root that meets it again and again has no time left because of that.
    let (shop, short) = (components.address("shop"), ("Cognate-Deadline-Ms", "3000"));
    assert_eq!(post(stock, "/services/count", &long("c", "c.1"), &json!({ "item": 8 }))?.0, 200);
    let (status, problem) = post(shop, "/services/buy", &[short], &json!({ "item": 8, "customer": 1 }))?;
    let told = (status, problem["reason"].as_str(), problem["holder"].as_str());
    assert_eq!(told, (409, Some("conflict"), Some("c")), "{problem}");
    Ok(())
}

/// A client that cannot be interrupted while it sends its body comes to read the answer all the
/// same, and its connection is whole.
#[test]
fn who_has_sent_too_much_hears_so_on_a_connection_that_goes_on() -> Result<(), Failure> {
    use std::io::{BufRead, BufReader, Read, Write};
    let components = Components::start()?;
    let mut socket = std::net::TcpStream::connect(components.address("shop"))?;
    socket.set_read_timeout(Some(crate::process::END))?;
    let mut answers = BufReader::new(socket.try_clone()?);
    for (path, length, expected) in
        [("services/buy", 10 << 20, "413"), ("nowhere", 10 << 20, "404"), ("services/buy", 1, "400")]
    {
        let head = format!("POST /{path} HTTP/1.1\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n");
        socket.write_all(head.as_bytes())?;
        socket.write_all(&vec![b'['; length])?;
        let (mut line, mut body) = (String::new(), 0);
        answers.read_line(&mut line)?;
        assert_eq!(line.split(' ').nth(1), Some(expected), "{line}");
        while line != "\r\n" {
            line.clear();
            if answers.read_line(&mut line)? == 0 {
                return Err("the answer was cut".into());
            }
            if let Some(count) = line.to_lowercase().strip_prefix("content-length:") {
                body = count.trim().parse()?;
            }
        }
        answers.read_exact(&mut vec![0; body])?;
    }
    Ok(())
}

/// The time of a request begins with its head: a body that does not come is not waited for.
#[test]
fn a_body_that_does_not_come_in_time_is_given_up() -> Result<(), Failure> {
    use std::io::{Read, Write};
    let components = Components::start()?;
    let shop = components.address("shop");
    let length = "Content-Length: 30\r\n\r\n{\"item\":";
    let chunked = "Transfer-Encoding: chunked\r\n\r\n8\r\n{\"item\":\r\n";
    for begun in [length, chunked] {
        let mut socket = std::net::TcpStream::connect(shop)?;
        socket.set_read_timeout(Some(crate::process::END))?;
        let head = "POST /services/buy HTTP/1.1\r\nHost: shop\r\nCognate-Deadline-Ms: 200\r\n";
        socket.write_all(format!("{head}{begun}").as_bytes())?;
        let (mut answer, mut piece) = (String::new(), [0; 4096]);
        while !answer.contains("\"deadline\"") {
            match socket.read(&mut piece)? {
                0 => return Err(format!("the answer was cut: {answer}").into()),
                count => answer += std::str::from_utf8(&piece[..count])?,
            }
        }
        assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    }
    assert_eq!(request(shop, "GET", "/status", &[], b"")?.1["roots"], json!([]));
    Ok(())
}

/// The shop is in the middle: it has a parent, and two children of its own.
#[test]
fn a_root_of_others_goes_through_the_shop_and_ends_everywhere() -> Result<(), Failure> {
    let mut components = Components::start()?;
    let order = json!({ "item": 8, "customer": 8 });
    let addresses = ["shop", "stock", "payment"].map(|name| components.address(name));
    let [shop, stock, payment] = addresses;
    let left = || -> Result<[Value; 3], Failure> {
        let of = |to, service: &str, arguments: &Value| loop {
            match post(to, &format!("/services/{service}"), &[], arguments)? {
                (200, count) => break Ok::<Value, Failure>(count),
                // The outcome is on its way.
                (409, _) => {}
                answer => break Err(format!("{answer:?}").into()),
            }
        };
        let item = json!({ "item": 8 });
        Ok([of(shop, "sold", &item)?, of(stock, "count", &item)?, of(payment, "balance", &json!(8))?])
    };
    let buy = |root: &str| {
        let call = format!("{root}.1");
        let headers = [&part_of(root, &call)[..], &[("Cognate-Deadline-Ms", "60000")]].concat();
        post(shop, "/services/buy", &headers, &order)
    };
    let told = |what: &str, root: &str| -> Result<(), Failure> {
        let about = json!({ "roots": [{ "root": root, "parent": "shop" }] });
        loop {
            match one(post(shop, &format!("/composite/{what}"), &[], &about)?)?["state"].as_str() {
                Some("done") => return Ok(()),
                Some("pending") => {}
                state => return Err(format!("{what}: {state:?}").into()),
            }
        }
    };
    // Undone in the middle, and below.
    let (status, receipt) = buy("a")?;
    assert_eq!((status, &receipt["item"], &receipt["price"]), (200, &json!(8), &json!(10)));
    told("abort", "a")?;
    assert_eq!(left()?, [json!(0), json!(1000), json!(10000)]);
    // Its yes is that of all.
    assert_eq!(buy("b")?.0, 200);
    let prepare = json!({ "roots": [{ "root": "b", "parent": "shop", "calls": 1 }] });
    let vote = one(post(shop, "/composite/prepare", &[], &prepare)?)?;
    assert_eq!(vote["vote"], "yes", "{vote}");
    for to in addresses {
        let (_, status) = request(to, "GET", "/status", &[], b"")?;
        assert_eq!((&status["in_doubt"], &status["roots"][0]["root"]), (&json!(1), &json!("b")), "{status}");
    }
    // The one in the middle is killed, and knows after its start whom it has to tell.
    components.kill(0)?;
    components.restart(0)?;
    told("commit", "b")?;
    assert_eq!(left()?, [json!(1), json!(999), json!(9990)]);
    Ok(())
}

/// A parent of the tests' own: answers each question for an outcome with this state and origin.
fn parent(
    listener: std::net::TcpListener,
    said: std::sync::Arc<std::sync::Mutex<Value>>,
) -> std::thread::JoinHandle<()> {
    use std::io::{Read, Write};
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            let said = std::sync::Arc::clone(&said);
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = socket.read(&mut piece) {
                    text.extend_from_slice(&piece[..count]);
                    // One question fits a packet or two; its body ends with this.
                    if !text.ends_with(b"]}") {
                        continue;
                    }
                    text.clear();
                    let answer = json!({ "roots": [*said.lock().expect("nobody panics")] }).to_string();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
                    if socket.write_all(format!("{head}{answer}").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    })
}

#[test]
fn a_parent_that_was_restored_is_not_believed() -> Result<(), Failure> {
    let mut components = Components::start()?;
    let (stock, shop) = (components.address("stock"), components.address("shop"));
    components.kill(0)?;
    let origin = |database: &str, generation: u64| json!({ "database": database, "generation": generation });
    let said = |origin: Value| json!({ "root": "a", "state": "aborted", "origin": origin });
    let take = json!({ "item": 5 });
    let headers = [&part_of("a", "a.1")[..], &[("Cognate-Deadline-Ms", "500")]].concat();
    assert_eq!(post(stock, "/services/take", &headers, &take)?.0, 200);
    let prepare =
        json!({ "roots": [{ "root": "a", "parent": "shop", "calls": 1, "origin": origin("d", 7) }] });
    assert_eq!(one(post(stock, "/composite/prepare", &[], &prepare)?)?["vote"], "yes");
    // An earlier copy of the parent's database knows nothing of what it has decided later.
    let answer = std::sync::Arc::new(std::sync::Mutex::new(said(origin("d", 6))));
    let _parent = parent(std::net::TcpListener::bind(shop)?, std::sync::Arc::clone(&answer));
    let state = || -> Result<Value, Failure> {
        Ok(request(stock, "GET", "/status", &[], b"")?.1["roots"][0].clone())
    };
    while state()?["forsaken_by"] != "shop" {}
    assert_eq!(state()?["state"], "in-doubt");
    // It is remembered through a restart, and another database is no better.
    *answer.lock().expect("nobody panics") = said(origin("e", 8));
    components.kill(1)?;
    components.restart(1)?;
    while state()?["forsaken_by"] != "shop" {}
    assert_eq!(state()?["state"], "in-doubt");
    // The parent as it was, started again.
    *answer.lock().expect("nobody panics") = said(origin("d", 8));
    while !state()?.is_null() {}
    assert_eq!(post(stock, "/services/count", &[], &take)?, (200, json!(1000)));
    Ok(())
}

/// A process that was taken over gives up at its deadline what the later one goes on with. Whoever
/// has said yes to that one is not to undo his part because of it.
#[test]
fn a_parent_that_was_taken_over_aborts_nothing() -> Result<(), Failure> {
    let components = Components::start()?;
    let stock = components.address("stock");
    let take = json!({ "item": 5 });
    let headers = [&part_of("a", "a.1")[..], &[("Cognate-Origin", "d:6")]].concat();
    assert_eq!(post(stock, "/services/take", &headers, &take)?.0, 200);
    let about = |database: &str, generation: u64| {
        let origin = json!({ "database": database, "generation": generation });
        json!({ "roots": [{ "root": "a", "parent": "shop", "calls": 1, "origin": origin }] })
    };
    assert_eq!(one(post(stock, "/composite/prepare", &[], &about("d", 7))?)?["vote"], "yes");
    let in_doubt = || Ok::<_, Failure>(request(stock, "GET", "/status", &[], b"")?.1["in_doubt"].clone());
    for (database, generation) in [("d", 6), ("e", 8)] {
        let told = one(post(stock, "/composite/abort", &[], &about(database, generation))?)?;
        assert_eq!((&told["state"], in_doubt()?), (&json!("pending"), json!(1)), "{database} {generation}");
    }
    // The one that has asked, or a later one, is believed.
    while one(post(stock, "/composite/abort", &[], &about("d", 8))?)?["state"] != "done" {}
    assert_eq!(post(stock, "/services/count", &[], &take)?, (200, json!(1000)));
    Ok(())
}

#[test]
fn tokens_tell_components_from_clients() -> Result<(), Failure> {
    assert!(Components::start_with(Some("of-all\nof-all\n"), false).is_err(), "every client is a component");
    let components = Components::start_with(Some("of-peers\nof-clients\n"), false)?;
    let shop = components.address("shop");
    let order = json!({ "item": 1, "customer": 1 });
    let bearer = |token: &'static str| [("Authorization", token)];
    assert_eq!(post(shop, "/services/buy", &[], &order)?.0, 401);
    assert_eq!(post(shop, "/services/buy", &bearer("Bearer wrong"), &order)?.0, 401);
    assert_eq!(post(shop, "/services/buy", &bearer("Bearer of-clients"), &order)?.0, 200);
    assert_eq!(post(shop, "/services/buy", &bearer("Bearer of-peers"), &order)?.0, 200);
    assert_eq!(post(shop, "/services/buy", &bearer("bearer of-clients"), &order)?.0, 200);
    let twice = [bearer("Bearer of-clients"), bearer("Bearer of-clients")].concat();
    assert_eq!(post(shop, "/services/buy", &twice, &order)?.0, 401);
    // Only components may speak of roots.
    let headers = [&part_of("r", "r.1")[..], &bearer("Bearer of-clients")].concat();
    assert_eq!(post(components.address("stock"), "/services/take", &headers, &json!({ "item": 1 }))?.0, 401);
    for header in ["Cognate-Root", "Cognate-Parent", "Cognate-Call", "Cognate-Ancestors"] {
        let headers = [&[(header, "r")][..], &bearer("Bearer of-clients")].concat();
        assert_eq!(post(shop, "/services/buy", &headers, &order)?.0, 401, "{header} by itself");
    }
    let about = json!({ "roots": [{ "root": "r", "parent": "shop" }] });
    assert_eq!(post(shop, "/composite/abort", &bearer("Bearer of-clients"), &about)?.0, 401);
    assert_eq!(post(shop, "/composite/abort", &bearer("Bearer of-peers"), &about)?.0, 200);
    Ok(())
}

#[test]
fn a_second_process_on_the_same_folders_does_not_start() -> Result<(), Failure> {
    // The embedded database and the journal are locked by their process, so a second one does not
    // even start.
    let mut components = Components::start()?;
    assert!(components.restart(1).is_err(), "two processes have one component");
    Ok(())
}
