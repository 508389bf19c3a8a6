//! Services that take their time, panic, or cannot be undone, and what a person does about it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cognate_composite::matrix::{never, same_item};
use cognate_composite::{Call, Component, Error, Result, Running, Service, Undo, service};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::contract::{one, part_of};
use crate::process::{END, Failure};
use crate::server::{open, posted, status};

const HOLD: Service<i32, ()> = Service::named("solo", "hold");
const BREAK: Service<i32, ()> = Service::named("solo", "break");
const COUNT: Service<(), i64> = Service::named("solo", "count");
const HASTY: Service<i32, ()> = Service::named("solo", "hasty");
const SCRIBBLE: Service<i32, ()> = Service::named("solo", "scribble");
const WIDTH: Service<(), usize> = Service::named("solo", "width");
const WIDEN: Service<String, ()> = Service::named("solo", "widen");

/// What the tests and the services tell each other.
struct World {
    /// A call has begun.
    begun: Semaphore,
    /// It may go on.
    go_on: Semaphore,
    /// Undos fail.
    is_stuck: AtomicBool,
}

async fn enter(call: &Call, n: i32) -> Result<()> {
    call.sql().execute("INSERT INTO word VALUES ($1)", &[&n]).await.map(drop)
}

async fn broken(call: Call, n: i32) -> Result<()> {
    enter(&call, n).await?;
    assert!(n < 0, "a service that panics, as planned");
    call.undo(&n)
}

async fn count(call: Call, (): ()) -> Result<i64> {
    Ok(call.sql().query_one("SELECT count(*) FROM word", &[]).await?.get(0))
}

async fn none(_: Undo, _: i32) -> Result<()> {
    Ok(())
}

/// Goes on after a first statement that makes no sense, and refuses what is below zero.
async fn hasty(call: Call, n: i32) -> Result<()> {
    let nowhere = call.sql().execute("INSERT INTO nowhere VALUES ($1)", &[&n]).await;
    assert!(nowhere.is_err(), "there is no such table");
    enter(&call, n).await?;
    if n < 0 { Err(Error::refuse("as planned")) } else { Ok(()) }
}

/// Is declared to read only.
async fn scribble(call: Call, n: i32) -> Result<()> {
    enter(&call, n).await
}

/// How many columns there are, by two statements.
async fn width(call: Call, (): ()) -> Result<usize> {
    let all = call.sql().query_one("SELECT * FROM wide", &[]).await?.len();
    let again = call.sql().query_one("SELECT *, 0 FROM wide", &[]).await?.len();
    assert_eq!(again, all + 1, "both see the same table");
    Ok(all)
}

async fn widen(call: Call, column: String) -> Result<()> {
    call.sql().execute(&format!("ALTER TABLE wide ADD COLUMN {column} int"), &[]).await.map(drop)
}

/// A component whose services do as the world says.
async fn solo() -> std::result::Result<(tempfile::TempDir, Running, SocketAddr, Arc<World>), Failure> {
    let folder = tempfile::tempdir()?;
    let (begun, go_on) = (Semaphore::new(0), Semaphore::new(0));
    let world = Arc::new(World { begun, go_on, is_stuck: AtomicBool::new(false) });
    let (holding, undoing) = (Arc::clone(&world), Arc::clone(&world));
    let hold = move |call: Call, n: i32| {
        let world = Arc::clone(&holding);
        async move {
            enter(&call, n).await?;
            world.begun.add_permits(1);
            // Given back: a local transaction may meet another one, and is run again.
            drop(world.go_on.acquire().await);
            call.undo(&n)
        }
    };
    let forget = move |undo: Undo, n: i32| {
        let world = Arc::clone(&undoing);
        async move {
            if world.is_stuck.load(Ordering::SeqCst) {
                return Err(Error::refuse("not today"));
            }
            undo.sql().execute("DELETE FROM word WHERE n = $1", &[&n]).await.map(drop)
        }
    };
    let item = |n: &i32| {
        assert!(*n >= 0, "what a call is about panics, as planned");
        *n
    };
    let running = Component::named("solo")
        .database(&format!("embedded:{}", folder.path().join("database").display()))
        .data(folder.path().join("journal"))
        .setup([
            "CREATE TABLE IF NOT EXISTS word (n int PRIMARY KEY)",
            "CREATE TABLE IF NOT EXISTS wide (n int PRIMARY KEY)",
            "INSERT INTO wide VALUES (1) ON CONFLICT DO NOTHING",
        ])
        .serve(HOLD, service(hold).item(|n: &i32| *n).undo(forget))
        .serve(BREAK, service(broken).item(item).undo(none))
        .serve(COUNT, service(count).reads())
        .serve(HASTY, service(hasty).begins_only())
        .serve(SCRIBBLE, service(scribble).reads())
        .serve(WIDTH, service(width).reads())
        .serve(WIDEN, service(widen).begins_only())
        .conflicts([
            same_item("hold", "hold"),
            same_item("break", "break"),
            never("hold", "break"),
            never("hold", "count"),
            never("break", "count"),
        ])
        .start()
        .await?;
    let address = open(&running).await?;
    Ok((folder, running, address, world))
}

async fn about(to: SocketAddr, what: &str, entry: Value) -> std::result::Result<Value, Failure> {
    one(posted(to, &format!("/composite/{what}"), &[], json!({ "roots": [entry] })).await?)
}

/// Asks until the answer is the expected one.
async fn until(to: SocketAddr, is_it: impl Fn(&Value) -> bool) -> std::result::Result<Value, Failure> {
    let begun = Instant::now();
    loop {
        let status = status(to).await?;
        if is_it(&status) {
            return Ok(status);
        }
        if begun.elapsed() > END {
            return Err(format!("this does not change: {status}").into());
        }
        sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn is_over(to: SocketAddr) -> std::result::Result<(), Failure> {
    until(to, |status| status["roots"] == json!([])).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_comes_again_while_it_runs_is_told_so() -> std::result::Result<(), Failure> {
    let (_folder, _running, solo, world) = solo().await?;
    let call = move || async move { posted(solo, "/services/hold", &part_of("r", "r.1"), json!(1)).await };
    let first = tokio::spawn(call());
    world.begun.acquire().await?.forget();
    let (code, problem) = call().await?;
    assert_eq!((code, problem["reason"].as_str()), (409, Some("running")));
    // Who is asked for a vote meanwhile cannot say yes.
    let vote = about(solo, "prepare", json!({ "root": "other", "parent": "shop", "calls": 1 })).await?;
    assert_eq!(vote["reason"], "unknown");
    let shown = status(solo).await?;
    assert_eq!(shown["roots"].as_array().map(Vec::len), Some(1), "{shown}");
    let fields = ["root", "state", "age_ms", "locks"].map(|field| shown["roots"][0][field].clone());
    assert_eq!((&fields[0], &fields[1], &fields[3]), (&json!("r"), &json!("active"), &json!(1)));
    assert!(fields[2].is_u64());
    for field in ["component", "generation", "in_doubt", "undo_backlog", "parked", "matrix"] {
        assert!(!shown[field].is_null(), "{field} of {shown}");
    }
    world.go_on.add_permits(1);
    assert_eq!(first.await??, (200, Value::Null));
    assert_eq!(call().await?, (200, Value::Null));
    about(solo, "abort", json!({ "root": "r", "parent": "shop" })).await?;
    is_over(solo).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_under_way_is_no_yes() -> std::result::Result<(), Failure> {
    let (_folder, _running, solo, world) = solo().await?;
    let first =
        tokio::spawn(async move { posted(solo, "/services/hold", &part_of("r", "r.1"), json!(1)).await });
    world.begun.acquire().await?.forget();
    let vote = about(solo, "prepare", json!({ "root": "r", "parent": "shop", "calls": 1 })).await?;
    assert_eq!((vote["vote"].as_str(), vote["reason"].as_str()), (Some("no"), Some("running")));
    // Its root is undone by that, and so the call is stopped.
    let (code, problem) = first.await??;
    assert_eq!((code, problem["reason"].as_str()), (409, Some("ended")));
    is_over(solo).await?;
    assert_eq!(posted(solo, "/services/count", &[], Value::Null).await?, (200, json!(0)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_panics_leaves_nothing() -> std::result::Result<(), Failure> {
    let (_folder, _running, solo, _world) = solo().await?;
    let (p, q) = (part_of("p", "p.1"), part_of("q", "q.1"));
    for (headers, n) in [(&[][..], 1), (&p[..], 1), (&q[..], 1), (&[][..], -1), (&p[..], -1)] {
        let (code, problem) = posted(solo, "/services/break", headers, json!(n)).await?;
        assert_eq!((code, problem["reason"].as_str()), (503, Some("defect")), "{problem}");
        assert_eq!(problem["began"], false, "{problem}");
    }
    // Neither a lock nor a local transaction: the next one of the same item had not to wait.
    assert_eq!(status(solo).await?["roots"], json!([]));
    assert_eq!(posted(solo, "/services/count", &[], Value::Null).await?, (200, json!(0)));
    Ok(())
}

/// What a service does after its first statement has failed is in a local transaction, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_a_first_statement_that_failed_is_a_transaction() -> std::result::Result<(), Failure> {
    let (_folder, _running, solo, _world) = solo().await?;
    let (code, problem) = posted(solo, "/services/hasty", &[], json!(-1)).await?;
    assert_eq!((code, problem["reason"].as_str()), (400, Some("failed")), "{problem}");
    assert_eq!(posted(solo, "/services/count", &[], Value::Null).await?, (200, json!(0)));
    assert_eq!(posted(solo, "/services/hasty", &[], json!(1)).await?, (200, Value::Null));
    assert_eq!(posted(solo, "/services/count", &[], Value::Null).await?, (200, json!(1)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_reads_and_writes_has_a_defect() -> std::result::Result<(), Failure> {
    let (_folder, _running, solo, _world) = solo().await?;
    let part = part_of("w", "w.1");
    for headers in [&[][..], &part[..]] {
        let (code, problem) = posted(solo, "/services/scribble", headers, json!(1)).await?;
        assert_eq!((code, problem["reason"].as_str()), (503, Some("defect")), "{problem}");
    }
    assert_eq!(posted(solo, "/services/count", &[], Value::Null).await?, (200, json!(0)));
    is_over(solo).await
}

/// What a connection has prepared may be out of date: it is prepared anew, and nobody hears of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_may_be_changed_while_the_component_runs() -> std::result::Result<(), Failure> {
    let (_folder, _running, solo, _world) = solo().await?;
    for (columns, next) in [(1, "a"), (2, "b"), (3, "c")] {
        for _ in 0..2 {
            let read = posted(solo, "/services/width", &[], Value::Null).await?;
            assert_eq!(read, (200, json!(columns)));
        }
        assert_eq!(posted(solo, "/services/widen", &[], json!(next)).await?, (200, Value::Null));
    }
    Ok(())
}

/// Whoever belongs to another root hears soon what is in its way. A call of the same root would
/// only meet it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_waits_longer_for_its_own_root_than_for_others() -> std::result::Result<(), Failure> {
    let (_folder, _running, solo, world) = solo().await?;
    let hold = move |root: &'static str, call: &'static str| async move {
        posted(solo, "/services/hold", &part_of(root, call), json!(1)).await
    };
    let first = tokio::spawn(hold("r", "r.1"));
    world.begun.acquire().await?.forget();
    let second = tokio::spawn(hold("r", "r.2"));
    for call in ["q.1", "q.2"] {
        let (code, problem) = hold("q", call).await?;
        assert_eq!((code, problem["holder"].as_str()), (409, Some("r")), "{problem}");
    }
    world.go_on.add_permits(1);
    assert_eq!(first.await??, (200, Value::Null));
    // It has run: what the first one has entered is there.
    let (code, problem) = second.await??;
    assert_eq!((code, problem["reason"].as_str()), (400, Some("failed")), "{problem}");
    about(solo, "abort", json!({ "root": "r", "parent": "shop" })).await?;
    is_over(solo).await
}

/// A call whose undo fails, of a root that was aborted: it is parked. The root, and what is shown.
async fn park(solo: SocketAddr, world: &World) -> std::result::Result<(Value, Value), Failure> {
    world.go_on.add_permits(1);
    world.is_stuck.store(true, Ordering::SeqCst);
    assert_eq!(posted(solo, "/services/hold", &part_of("u", "u.1"), json!(5)).await?, (200, Value::Null));
    let root = json!({ "root": "u", "parent": "shop" });
    assert_eq!(about(solo, "abort", root.clone()).await?["state"], "pending");
    Ok((root, until(solo, |status| status["parked"] != json!([])).await?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undo_that_fails_is_parked_until_it_is_resumed() -> std::result::Result<(), Failure> {
    let (_folder, _running, solo, world) = solo().await?;
    let (root, shown) = park(solo, &world).await?;
    let parked = &shown["parked"][0];
    assert_eq!((parked["root"].as_str(), parked["call"].as_str()), (Some("u"), Some("u.1")));
    assert!(parked["why"].as_str().is_some_and(|why| why.contains("not today")), "{parked}");
    let slot = parked["slot"].as_u64().ok_or("no slot")?;
    assert_eq!(parked["resume"], format!("POST /composite/resume {{\"slot\":{slot}}}"));
    assert_eq!((shown["undo_backlog"].as_u64(), shown["in_doubt"].as_u64()), (Some(1), Some(0)));
    let (code, problem) = posted(solo, "/composite/resume", &[], json!({ "slot": slot + 1 })).await?;
    assert_eq!((code, problem["reason"].as_str()), (404, Some("slot")));
    world.is_stuck.store(false, Ordering::SeqCst);
    let resume = json!({ "slot": slot });
    assert_eq!(posted(solo, "/composite/resume", &[], resume.clone()).await?, (200, resume.clone()));
    is_over(solo).await?;
    assert_eq!(about(solo, "abort", root).await?["state"], "done");
    assert_eq!(posted(solo, "/composite/resume", &[], resume).await?.0, 404);
    assert_eq!(posted(solo, "/services/count", &[], Value::Null).await?, (200, json!(0)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_undo_that_a_person_has_made_is_settled() -> std::result::Result<(), Failure> {
    let (_folder, _running, solo, world) = solo().await?;
    let (root, shown) = park(solo, &world).await?;
    let command = shown["parked"][0]["settle"].as_str();
    let command = command.and_then(|its| its.strip_prefix("POST /composite/settle "));
    let settle: Value = serde_json::from_str(command.ok_or("no command")?)?;
    assert_eq!(settle, json!({ "root": "u", "outcome": "aborted" }));
    // It was decided, so it is not a person's to decide otherwise.
    let other = json!({ "root": "u", "outcome": "committed" });
    assert_eq!(posted(solo, "/composite/settle", &[], other).await?.1["reason"], "root");
    let done = json!({ "root": "u", "state": "done" });
    assert_eq!(posted(solo, "/composite/settle", &[], settle).await?, (200, done));
    // Its slot is free by then: the next start would undo it once more.
    let shown = status(solo).await?;
    assert_eq!((&shown["roots"], &shown["parked"]), (&json!([]), &json!([])), "{shown}");
    assert_eq!(about(solo, "abort", root).await?["state"], "done");
    // The service's own undo was not asked again.
    assert_eq!(posted(solo, "/services/count", &[], Value::Null).await?, (200, json!(1)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_settles_what_no_parent_ends() -> std::result::Result<(), Failure> {
    let (_folder, _running, solo, world) = solo().await?;
    world.go_on.add_permits(1);
    for (root, outcome, left) in [("s", "committed", 1), ("t", "aborted", 1)] {
        let call = format!("{root}.1");
        let n = i32::from(root.as_bytes()[0]);
        assert_eq!(posted(solo, "/services/hold", &part_of(root, &call), json!(n)).await?.0, 200);
        let settle = json!({ "root": root, "outcome": outcome });
        // As long as nobody was promised anything, the component decides by itself.
        assert_eq!(posted(solo, "/composite/settle", &[], settle.clone()).await?.1["reason"], "root");
        let prepare = json!({ "root": root, "parent": "shop", "calls": 1 });
        assert_eq!(about(solo, "prepare", prepare).await?["vote"], "yes");
        let perhaps = json!({ "root": root, "outcome": "perhaps" });
        assert_eq!(posted(solo, "/composite/settle", &[], perhaps).await?.1["reason"], "arguments");
        let done = json!({ "root": root, "state": "done" });
        assert_eq!(posted(solo, "/composite/settle", &[], settle.clone()).await?, (200, done));
        is_over(solo).await?;
        let (code, problem) = posted(solo, "/composite/settle", &[], settle).await?;
        assert_eq!((code, problem["reason"].as_str()), (404, Some("root")));
        assert_eq!(posted(solo, "/services/count", &[], Value::Null).await?, (200, json!(left)));
    }
    Ok(())
}
