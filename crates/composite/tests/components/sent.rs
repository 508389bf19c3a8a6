//! What a component sends to another one, as that one sees it, and what it makes of its answers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use cognate_composite::{Call, Component, Result, Running, Service, Tokens, service};
use serde_json::{Value, json};

use crate::contract::one;
use crate::process::{END, Failure, port};
use crate::server::{open, posted};

const GO: Service<String, i32> = Service::named("near", "go");
const PASS: Service<String, i32> = Service::named("near", "pass");
const FALL: Service<String, i32> = Service::named("near", "fall");
const IGNORE: Service<String, i32> = Service::named("near", "ignore");
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Requests: path, headers, body.
type Seen = Arc<Mutex<Vec<(String, HeaderMap, Value)>>>;

/// A component of the tests' own: says yes to everything; its services are named after the status
/// that they answer with.
async fn far(seen: Seen) -> std::result::Result<SocketAddr, Failure> {
    async fn take(
        State(seen): State<Seen>,
        Path(path): Path<String>,
        headers: HeaderMap,
        body: Bytes,
    ) -> axum::response::Response {
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        seen.lock().expect("nobody panics").push((path.clone(), headers, body.clone()));
        let root = |fields: Value| {
            let mut entry = json!({ "root": body["roots"][0]["root"] });
            fields.as_object().into_iter().flatten().for_each(|(name, value)| entry[name] = value.clone());
            axum::body::Body::from(json!({ "roots": [entry] }).to_string()).into_response()
        };
        match path.as_str() {
            "composite/prepare" => root(json!({ "vote": "yes", "nonce": 5 })),
            "composite/commit" | "composite/abort" => root(json!({ "state": "done" })),
            "services/words" => "\"words\"".into_response(),
            service => {
                let code = service.rsplit('/').next().and_then(|code| code.parse().ok()).unwrap_or(404);
                let code = StatusCode::from_u16(code).unwrap_or(StatusCode::NOT_FOUND);
                (code, [("Cognate-Generation", "7")], "1").into_response()
            }
        }
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = axum::Router::new().route("/{*path}", post(take)).with_state(seen);
    tokio::spawn(axum::serve(listener, router).into_future());
    Ok(address)
}

/// Calls the service of this name.
async fn go(call: Call, name: String) -> Result<i32> {
    let name: &'static str = Box::leak(name.into_boxed_str());
    call.call(Service::<i32, i32>::named("far", name), 4).await
}

/// Calls one that is not there, and does without.
async fn fall(call: Call, name: String) -> Result<i32> {
    let gone = call.call(Service::<i32, i32>::named("gone", "any"), 4).await;
    assert!(gone.is_err(), "nobody is there");
    go(call, name).await
}

/// Does without an answer that is none.
async fn ignore(call: Call, name: String) -> Result<i32> {
    Ok(go(call, name).await.unwrap_or_default())
}

async fn near(far: SocketAddr) -> std::result::Result<(tempfile::TempDir, Running, SocketAddr), Failure> {
    let folder = tempfile::tempdir()?;
    let tokens = Tokens { peer: Some("of-peers".to_owned()), client: None };
    let running = Component::named("near")
        .database(&format!("embedded:{}", folder.path().join("database").display()))
        .data(folder.path().join("journal"))
        .tokens(tokens)
        .peer("far", &format!("http://{far}"))
        .peer("gone", &format!("http://{}", port()?))
        .serve(GO, service(go).begins_only())
        .serve(PASS, service(go).reads())
        .serve(FALL, service(fall).begins_only())
        .serve(IGNORE, service(ignore).begins_only())
        .start()
        .await?;
    let address = open(&running).await?;
    Ok((folder, running, address))
}

const TOKEN: (&str, &str) = ("Authorization", "Bearer of-peers");

/// The headers and the body of what was sent to a path.
fn sent(seen: &Seen, path: &str) -> Option<(HeaderMap, Value)> {
    let seen = seen.lock().expect("nobody panics");
    let (_, headers, body) = seen.iter().find(|(its, ..)| its == path)?;
    Some((headers.clone(), body.clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_says_where_it_belongs_and_how_much_time_is_left() -> std::result::Result<(), Failure> {
    let seen = Seen::default();
    let (_folder, _running, near) = near(far(Arc::clone(&seen)).await?).await?;
    let headers =
        [TOKEN, ("Cognate-Deadline-Ms", "5000"), ("traceparent", PARENT), ("tracestate", "a=1,b=2")];
    assert_eq!(posted(near, "/services/go", &headers, json!("200")).await?, (200, json!(1)));
    let (headers, body) = sent(&seen, "services/200").ok_or("nothing was called")?;
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    assert_eq!(body, json!(4));
    for (name, value) in [
        ("content-type", "application/json"),
        ("authorization", "Bearer of-peers"),
        ("cognate-parent", "near"),
        ("cognate-call", "1.1"),
        ("cognate-ancestors", "1"),
        ("traceparent", PARENT),
        ("tracestate", "a=1,b=2"),
    ] {
        assert_eq!(header(name), value, "{name}");
    }
    let left: u64 = header("cognate-deadline-ms").parse()?;
    assert!((1..=5000).contains(&left), "{left}");
    // The vote is asked for by the number of answers, and the outcome told by the vote's.
    let root = header("cognate-root");
    assert!(!root.is_empty());
    let (_, prepare) = sent(&seen, "composite/prepare").ok_or("no vote")?;
    let entry = &prepare["roots"][0];
    assert_eq!((entry["root"].as_str(), entry["parent"].as_str()), (Some(root), Some("near")));
    assert_eq!((entry["calls"].as_u64(), entry["generation"].as_u64()), (Some(1), Some(7)));
    let origin = &entry["origin"];
    assert!(origin["database"].is_string() && origin["generation"].is_u64(), "{entry}");
    // The call has said so before.
    let told = format!("{}:{}", origin["database"].as_str().unwrap_or_default(), origin["generation"]);
    assert_eq!(header("cognate-origin"), told);
    while sent(&seen, "composite/commit").is_none() {
        tokio::task::yield_now().await;
    }
    let (_, commit) = sent(&seen, "composite/commit").ok_or("no outcome")?;
    assert_eq!(commit, json!({ "roots": [{ "root": root, "parent": "near", "nonce": 5 }] }));
    Ok(())
}

/// What it sends is not too long for whoever is called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_the_longest_identifier_calls_others() -> std::result::Result<(), Failure> {
    let seen = Seen::default();
    let (_folder, _running, near) = near(far(Arc::clone(&seen)).await?).await?;
    let longest = "c".repeat(128);
    let headers =
        [TOKEN, ("Cognate-Root", "r"), ("Cognate-Parent", "far"), ("Cognate-Call", longest.as_str())];
    assert_eq!(posted(near, "/services/pass", &headers, json!("200")).await?, (200, json!(1)));
    let (headers, _) = sent(&seen, "services/200").ok_or("nothing was called")?;
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let called = header("cognate-call");
    assert!((1..=128).contains(&called.len()) && called != longest, "{called}");
    assert_eq!(header("cognate-ancestors"), longest);
    Ok(())
}

/// Who was never reached has nothing of the root, so nobody waits for his vote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_may_do_without_a_component_that_is_away() -> std::result::Result<(), Failure> {
    let seen = Seen::default();
    let (_folder, running, near) = near(far(Arc::clone(&seen)).await?).await?;
    assert_eq!(posted(near, "/services/fall", &[TOKEN], json!("200")).await?, (200, json!(1)));
    running.remove_peer("gone");
    assert_eq!(posted(near, "/services/fall", &[TOKEN], json!("200")).await?, (200, json!(1)));
    // The other one is asked as ever.
    let (_, prepare) = sent(&seen, "composite/prepare").ok_or("no vote")?;
    assert_eq!(prepare["roots"][0]["calls"], 1);
    // If that one is not there either, nothing is left anywhere.
    running.remove_peer("far");
    let (code, problem) = posted(near, "/services/fall", &[TOKEN], json!("200")).await?;
    assert_eq!((code, &problem["began"]), (503, &json!(false)), "{problem}");
    Ok(())
}

/// A call of which something may be left dooms its root, whatever the service makes of that. Trying
/// again makes nothing better, so the client hears what has failed, at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_ignores_a_failed_call_is_told_of_it() -> std::result::Result<(), Failure> {
    let seen = Seen::default();
    let (_folder, _running, near) = near(far(Arc::clone(&seen)).await?).await?;
    assert_eq!(posted(near, "/services/ignore", &[TOKEN], json!("200")).await?, (200, json!(1)));
    let (code, problem) = posted(near, "/services/ignore", &[TOKEN], json!("503")).await?;
    assert_eq!((code, &problem["reason"], &problem["began"]), (503, &json!("failed"), &json!(true)));
    let called = |(path, ..): &&(String, HeaderMap, Value)| path == "services/503";
    assert_eq!(seen.lock().expect("nobody panics").iter().filter(called).count(), 1, "it was tried again");
    // What has left nothing is the service's own business.
    assert_eq!(posted(near, "/services/ignore", &[TOKEN], json!("409")).await?, (200, json!(0)));
    Ok(())
}

/// A call that only reads has a slot if it has called others. Its undo does nothing but free that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_reads_and_has_called_others_is_undone() -> std::result::Result<(), Failure> {
    let (_folder, _running, near) = near(far(Seen::default()).await?).await?;
    let headers = [TOKEN, ("Cognate-Root", "r"), ("Cognate-Parent", "far"), ("Cognate-Call", "r.1")];
    assert_eq!(posted(near, "/services/pass", &headers, json!("200")).await?, (200, json!(1)));
    let (about, begun) = (json!({ "roots": [{ "root": "r", "parent": "far" }] }), Instant::now());
    loop {
        let answer = posted(near, "/composite/abort", &[TOKEN], about.clone()).await?;
        match one(answer)?["state"].as_str() {
            Some("done") => return Ok(()),
            Some("pending") if begun.elapsed() < END => {}
            state => return Err(format!("{state:?}").into()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_answer_wrongly_is_no_answer_of_ours() -> std::result::Result<(), Failure> {
    let (_folder, running, near) = near(far(Seen::default()).await?).await?;
    let ask = |what: &'static str| async move {
        let (code, problem) = posted(near, "/services/go", &[TOKEN], json!(what)).await?;
        Ok::<_, Failure>((code, problem["reason"].as_str().unwrap_or_default().to_owned()))
    };
    let away = (503, "away".to_owned());
    // Its client's token was good; what others say of ours is none of his business.
    for code in ["500", "502", "302", "405", "401"] {
        assert_eq!(ask(code).await?, away, "{code}");
    }
    assert_eq!(ask("words").await?, (503, "defect".to_owned()));
    // Whoever is not there is away, and so is whoever was removed.
    running.set_peer("far", &format!("http://{}", port()?))?;
    assert_eq!(ask("200").await?, away);
    running.remove_peer("far");
    assert_eq!(ask("200").await?, away);
    running.set_peer("far", &format!("http://{}", far(Seen::default()).await?))?;
    assert_eq!(posted(near, "/services/go", &[TOKEN], json!("200")).await?, (200, json!(1)));
    drop(running);
    Ok(())
}
