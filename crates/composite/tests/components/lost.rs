//! A component whose database goes away, comes back, or takes the answer of a COMMIT with it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cognate_composite::matrix::never;
use cognate_composite::{Call, Component, Result, Running, Service, Undo, service};
use cognate_server::assemble;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::contract::{one, part_of};
use crate::process::{END, Failure};
use crate::server::{open, posted, serve, status, url};

const PUT: Service<i32, i64> = Service::named("solo", "put");
const ENTER: Service<i32, ()> = Service::named("solo", "enter");
/// The number with which a call makes the door keep its COMMIT.
const LATE: i32 = 2;
/// The number with which a call has the door let nothing through.
const HELD: i32 = 5;

/// A door between a component and its database.
struct Door {
    address: SocketAddr,
    is_open: watch::Sender<bool>,
    /// Closes with the next COMMIT: its answer does not get through.
    takes_commit: AtomicBool,
    /// Keeps what is sent next, up to its COMMIT; the connection ends for who has sent it.
    keeps_commit: AtomicBool,
    /// What was kept, and where it is to go.
    kept: Mutex<Option<(Vec<u8>, TcpStream)>>,
    /// Lets nothing through to the database.
    is_held: watch::Sender<bool>,
    /// How often it has gone deaf for all connections that there were: what they send is taken, and
    /// never heard.
    deaf: AtomicUsize,
}

impl Door {
    async fn before(database: SocketAddr) -> std::result::Result<Arc<Door>, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let ((is_open, _), (is_held, _)) = (watch::channel(true), watch::channel(false));
        let (address, kept) = (listener.local_addr()?, Mutex::default());
        let (takes_commit, keeps_commit) = (AtomicBool::new(false), AtomicBool::new(false));
        let deaf = AtomicUsize::new(0);
        let door = Arc::new(Door { address, is_open, takes_commit, keeps_commit, kept, is_held, deaf });
        let opened = Arc::clone(&door);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let is_open = *opened.is_open.borrow();
                if is_open && let Ok(server) = TcpStream::connect(database).await {
                    tokio::spawn(Arc::clone(&opened).pass(client, server));
                }
            }
        });
        Ok(door)
    }

    /// Passes bytes on in both directions, as long as the door is open.
    async fn pass(self: Arc<Door>, mut client: TcpStream, mut server: TcpStream) {
        let (mut is_open, mut is_held) = (self.is_open.subscribe(), self.is_held.subscribe());
        let (mut from_client, mut from_server) = ([0; 16384], [0; 16384]);
        let heard = self.deaf.load(Ordering::SeqCst);
        loop {
            let passed = tokio::select! {
                () = async { drop(is_open.wait_for(|is_open| !is_open).await) } => return,
                count = client.read(&mut from_client) => {
                    let Ok(count @ 1..) = count else { return };
                    if self.deaf.load(Ordering::SeqCst) > heard {
                        continue;
                    }
                    let bytes = &from_client[..count];
                    if self.keeps_commit.swap(false, Ordering::SeqCst) {
                        return self.keep_commit(bytes.to_vec(), client, server).await;
                    }
                    drop(is_held.wait_for(|is_held| !is_held).await);
                    let commits = bytes.windows(7).any(|seven| seven == b"COMMIT\0");
                    if commits && self.takes_commit.swap(false, Ordering::SeqCst) {
                        return self.take_commit(bytes, &mut server).await;
                    }
                    server.write_all(bytes).await
                }
                count = server.read(&mut from_server) => {
                    let Ok(count @ 1..) = count else { return };
                    client.write_all(&from_server[..count]).await
                }
            };
            if passed.is_err() {
                return;
            }
        }
    }

    /// Whoever has sent this hears that the connection is lost, and the database nothing, for now.
    async fn keep_commit(&self, mut bytes: Vec<u8>, mut client: TcpStream, server: TcpStream) {
        let mut piece = [0; 4096];
        while !bytes.windows(7).any(|seven| seven == b"COMMIT\0") {
            let Ok(count @ 1..) = client.read(&mut piece).await else { break };
            bytes.extend_from_slice(&piece[..count]);
        }
        *self.kept.lock().expect("nobody panics") = Some((bytes, server));
    }

    /// The database hears what was kept, and ends its transaction.
    async fn deliver(&self) -> std::result::Result<(), Failure> {
        let kept = self.kept.lock().expect("nobody panics").take();
        let (bytes, mut server) = kept.ok_or("nothing was kept")?;
        server.write_all(&bytes).await?;
        let (mut answers, mut piece) = (Vec::new(), [0; 4096]);
        let has = |answers: &[u8], tag: &[u8]| answers.windows(tag.len()).any(|bytes| bytes == tag);
        // What ends it is not tried behind an error, which ends it with its connection.
        let ends: [&[u8]; 3] = [b"COMMIT\0", b"ROLLBACK\0", b"ERROR\0"];
        while !ends.iter().any(|end| has(&answers, end)) {
            let Ok(count @ 1..) = server.read(&mut piece).await else { break };
            answers.extend_from_slice(&piece[..count]);
        }
        Ok(())
    }

    /// The database commits; nobody hears of it.
    async fn take_commit(&self, bytes: &[u8], server: &mut TcpStream) {
        let (mut answers, mut piece) = (Vec::new(), [0; 4096]);
        let _ = server.write_all(bytes).await;
        while !answers.windows(7).any(|seven: &[u8]| seven == b"COMMIT\0") {
            let Ok(count @ 1..) = server.read(&mut piece).await else { break };
            answers.extend_from_slice(&piece[..count]);
        }
        self.is_open.send_replace(false);
    }
}

/// Enters a number, and answers how many there are.
async fn put(call: Call, n: i32) -> Result<i64> {
    call.sql().execute("INSERT INTO word VALUES ($1)", &[&n]).await?;
    Ok(call.sql().query_one("SELECT count(*) FROM word", &[]).await?.get(0))
}

fn component(database: &str, folder: &std::path::Path) -> Component {
    Component::named("solo")
        .database(database)
        .data(folder.join("journal"))
        .setup(["CREATE TABLE IF NOT EXISTS word (n int PRIMARY KEY)"])
        .serve(PUT, service(put).begins_only())
        .conflicts([never("put", "put")])
}

/// A component, its database, and the door between them.
struct Solo {
    _folder: tempfile::TempDir,
    _server: assemble::Running,
    _running: Running,
    door: Arc<Door>,
    address: SocketAddr,
}

impl Solo {
    async fn start() -> std::result::Result<Solo, Failure> {
        let folder = tempfile::tempdir()?;
        let server = serve(&folder.path().join("data")).await?;
        let door = Door::before(server.listen()).await?;
        let running = component(&url(door.address), folder.path()).start().await?;
        let address = open(&running).await?;
        Ok(Solo { _folder: folder, _server: server, _running: running, door, address })
    }

    async fn put(&self, headers: &[(&str, &str)], n: i32) -> std::result::Result<(u16, Value), Failure> {
        posted(self.address, "/services/put", headers, json!(n)).await
    }

    /// The same once its database is reached again.
    async fn put_again(&self, n: i32) -> std::result::Result<Value, Failure> {
        let begun = Instant::now();
        loop {
            match self.put(&[], n).await? {
                (200, answer) => return Ok(answer),
                (503, problem) if problem["reason"] == "database" && begun.elapsed() < END => {}
                (code, problem) => return Err(format!("{code} {problem}").into()),
            }
        }
    }
}

fn reason((code, problem): &(u16, Value)) -> (u16, Option<&str>) {
    (*code, problem["reason"].as_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_goes_away_is_found_again() -> std::result::Result<(), Failure> {
    let solo = Solo::start().await?;
    assert_eq!(solo.put(&[], 1).await?, (200, json!(1)));
    solo.door.is_open.send_replace(false);
    for _ in 0..3 {
        assert_eq!(reason(&solo.put(&[], 2).await?), (503, Some("database")));
        assert_eq!(reason(&solo.put(&[("Idempotency-Key", "k")], 2).await?), (503, Some("database")));
    }
    assert_eq!(status(solo.address).await?["roots"], json!([]));
    solo.door.is_open.send_replace(true);
    assert_eq!(solo.put_again(3).await?, json!(2));
    // What failed was not kept for its key.
    assert_eq!(solo.put(&[("Idempotency-Key", "k")], 2).await?, (200, json!(3)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_of_commit_is_unknown_without_a_key() -> std::result::Result<(), Failure> {
    let solo = Solo::start().await?;
    assert_eq!(solo.put(&[], 1).await?, (200, json!(1)));
    solo.door.takes_commit.store(true, Ordering::SeqCst);
    assert_eq!(reason(&solo.put(&[], 2).await?), (503, Some("unknown")));
    solo.door.is_open.send_replace(true);
    // It is the one answer that may leave something behind.
    assert_eq!(solo.put_again(3).await?, json!(3));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_answers_running_until_it_is_known() -> std::result::Result<(), Failure> {
    let solo = Arc::new(Solo::start().await?);
    assert_eq!(solo.put(&[], 1).await?, (200, json!(1)));
    solo.door.takes_commit.store(true, Ordering::SeqCst);
    let key = ("Idempotency-Key", "k");
    let asking = Arc::clone(&solo);
    let first = tokio::spawn(async move { asking.put(&[key, ("Cognate-Deadline-Ms", "300")], 2).await });
    solo.door.is_open.subscribe().wait_for(|is_open| !is_open).await?;
    assert_eq!(reason(&solo.put(&[key, ("Cognate-Deadline-Ms", "50")], 2).await?), (409, Some("running")));
    assert_eq!(reason(&first.await??), (503, Some("unknown")));
    assert_eq!(reason(&solo.put(&[key, ("Cognate-Deadline-Ms", "50")], 2).await?), (409, Some("running")));
    solo.door.is_open.send_replace(true);
    assert_eq!(solo.put(&[key], 2).await?, (200, json!(2)));
    assert_eq!(solo.put(&[], 3).await?, (200, json!(3)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_only_begins_roots_is_no_part_of_one() -> std::result::Result<(), Failure> {
    let solo = Solo::start().await?;
    assert_eq!(reason(&solo.put(&part_of("x", "x.1"), 1).await?), (409, Some("closed")));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_whose_commits_a_crash_takes_back_is_refused() -> std::result::Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let server = serve(&folder.path().join("data")).await?;
    let url = |setting| format!("{}?options=-c%20synchronous_commit%3D{setting}", url(server.listen()));
    let refused = component(&url("off"), folder.path()).start().await.err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|why| why.contains("synchronous_commit")), "{refused:?}");
    component(&url("local"), folder.path()).start().await?;
    Ok(())
}

async fn leave(undo: Undo, n: i32) -> Result<()> {
    undo.sql().execute("DELETE FROM word WHERE n = $1", &[&n]).await.map(drop)
}

/// The same component with a service that takes part in roots of others.
async fn with_part() -> std::result::Result<Solo, Failure> {
    with_part_undone_within(Duration::from_secs(60)).await
}

/// The same; an attempt to undo a call has so much time.
async fn with_part_undone_within(within: Duration) -> std::result::Result<Solo, Failure> {
    let folder = tempfile::tempdir()?;
    let server = serve(&folder.path().join("data")).await?;
    let door = Door::before(server.listen()).await?;
    let told = Arc::clone(&door);
    let enter = move |call: Call, n: i32| {
        let door = Arc::clone(&told);
        async move {
            if n == LATE {
                // What was kept before, if anything was, comes as late as it can.
                drop(door.deliver().await);
            }
            call.sql().execute("INSERT INTO word VALUES ($1)", &[&n]).await?;
            door.keeps_commit.store(n == LATE, Ordering::SeqCst);
            if n == HELD {
                door.is_held.send_replace(true);
            }
            call.undo(&n)
        }
    };
    let running = component(&url(door.address), folder.path())
        .serve(ENTER, service(enter).undo(leave).read_committed())
        .conflicts([never("enter", "enter"), never("enter", "put")])
        .undo_within(within)
        .start()
        .await?;
    let address = open(&running).await?;
    Ok(Solo { _folder: folder, _server: server, _running: running, door, address })
}

impl Solo {
    /// A call that is part of a root with so much time.
    async fn enter(
        &self,
        (root, call): (&str, &str),
        deadline_ms: &str,
        n: i32,
    ) -> std::result::Result<(u16, Value), Failure> {
        let headers = [&part_of(root, call)[..], &[("Cognate-Deadline-Ms", deadline_ms)]].concat();
        posted(self.address, "/services/enter", &headers, json!(n)).await
    }

    /// Says how a root has ended until nothing of it is left.
    async fn end(&self, how: &str, root: &str) -> std::result::Result<(), Failure> {
        let (about, begun) = (json!({ "roots": [{ "root": root, "parent": "shop" }] }), Instant::now());
        loop {
            let told = posted(self.address, &format!("/composite/{how}"), &[], about.clone()).await?;
            match one(told)?["state"].as_str() {
                Some("done") => return Ok(()),
                Some("pending") if begun.elapsed() < END => sleep(Duration::from_millis(20)).await,
                state => return Err(format!("{how} of {root}: {state:?}").into()),
            }
        }
    }
}

/// Who was told that nothing is left of a call may commit without it: what was under way to the
/// database must not happen later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_was_given_up_does_not_happen_later() -> std::result::Result<(), Failure> {
    let solo = with_part().await?;
    // It has slots, and a connection that knows all statements, from here on.
    assert_eq!(solo.enter(("a", "a.1"), "60000", 1).await?, (200, Value::Null));
    let given_up = solo.enter(("b", "b.1"), "60000", LATE).await?;
    assert_eq!((reason(&given_up), &given_up.1["began"]), ((503, Some("database")), &json!(false)));
    solo.door.deliver().await?;
    assert_eq!(solo.put(&[], 3).await?, (200, json!(2)));
    assert_eq!(solo.enter(("c", "c.1"), "60000", 4).await?, (200, Value::Null));
    Ok(())
}

impl Solo {
    /// A call whose caller lets it be answered ahead of its commit.
    async fn enter_ahead(&self, root: &str, n: i32) -> std::result::Result<(u16, Value), Failure> {
        let call = format!("{root}.1");
        let headers = [&part_of(root, &call)[..], &[("Cognate-Ahead", "1")]].concat();
        posted(self.address, "/services/enter", &headers, json!(n)).await
    }

    async fn is_asked(&self, root: &str) -> std::result::Result<Value, Failure> {
        let about = json!({ "roots": [{ "root": root, "parent": "shop", "calls": 1 }] });
        one(posted(self.address, "/composite/prepare", &[], about).await?)
    }
}

/// Its caller was answered, and goes on; the vote knows better, and so does whoever comes late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_lost_behind_its_answer_is_a_no() -> std::result::Result<(), Failure> {
    let solo = with_part().await?;
    assert_eq!(solo.enter(("a", "a.1"), "60000", 1).await?, (200, Value::Null));
    assert_eq!(solo.enter_ahead("b", LATE).await?, (200, Value::Null));
    assert_eq!(solo.is_asked("b").await?["vote"], "no");
    solo.door.deliver().await?;
    assert_eq!(solo.put(&[], 3).await?, (200, json!(2)));
    assert_eq!(reason(&solo.enter_ahead("b", 4).await?), (409, Some("ended")));
    Ok(())
}

/// The commit has not even left when its call is answered; the vote is there once it has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_waits_for_a_commit_under_way() -> std::result::Result<(), Failure> {
    let solo = Arc::new(with_part().await?);
    assert_eq!(solo.enter(("a", "a.1"), "60000", 1).await?, (200, Value::Null));
    assert_eq!(solo.enter_ahead("b", HELD).await?, (200, Value::Null));
    // The same once more is answered the same, and changes nothing.
    assert_eq!(solo.enter_ahead("b", HELD).await?, (200, Value::Null));
    // Who asks for several votes, and says so, need not wait for all of them.
    let about = |root: &str| json!({ "root": root, "parent": "shop", "calls": 1 });
    let both = json!({ "roots": [about("b"), about("a")], "partly": true });
    let (code, votes) = posted(solo.address, "/composite/prepare", &[], both).await?;
    assert_eq!((code, votes["roots"].as_array().map(Vec::len)), (200, Some(1)), "{votes}");
    assert_eq!((&votes["roots"][0]["root"], &votes["roots"][0]["vote"]), (&json!("a"), &json!("yes")));
    let asking = Arc::clone(&solo);
    let vote = tokio::spawn(async move { asking.is_asked("b").await });
    let (client, connection) =
        tokio_postgres::connect(&url(solo._server.listen()), tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    let count = async || client.query_one("SELECT count(*) FROM word", &[]).await;
    assert_eq!(count().await?.get::<_, i64>(0), 1);
    solo.door.is_held.send_replace(false);
    assert_eq!(vote.await??["vote"], "yes");
    assert_eq!(count().await?.get::<_, i64>(0), 2);
    Ok(())
}

impl Solo {
    /// Enters with a key what the door keeps. It comes before that is asked for again, or while it
    /// is tried again.
    async fn enter_late(&self, comes_before: bool) -> std::result::Result<(), Failure> {
        let begun = Instant::now();
        let enter = async |key: &'static str, n: i32| {
            posted(self.address, "/services/enter", &[("Idempotency-Key", key)], json!(n)).await
        };
        // One connection, which knows all statements from here on.
        assert_eq!(enter("first", 1).await?, (200, Value::Null));
        let mut is_unknown = false;
        loop {
            match enter("late", LATE).await? {
                (200, _) if is_unknown => break,
                answer if reason(&answer) == (503, Some("unknown")) && begun.elapsed() < END => {
                    is_unknown = true;
                    if comes_before {
                        self.door.deliver().await?;
                    }
                }
                (code, problem) => return Err(format!("{code} {problem}").into()),
            }
        }
        // Whoever has another key is refused.
        assert_eq!(reason(&enter("other", LATE).await?), (400, Some("failed")));
        assert_eq!(self.put(&[], 3).await?, (200, json!(3)));
        Ok(())
    }
}

/// A root that called nobody has no slot by which that could be seen to. So nothing is promised,
/// and a key makes it happen once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_comes_late_is_found_by_its_key() -> std::result::Result<(), Failure> {
    with_part().await?.enter_late(true).await
}

/// It may come after whoever asks again has looked for it, too: what he is refused for is there
/// because of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_comes_while_it_is_tried_again_is_found() -> std::result::Result<(), Failure> {
    with_part().await?.enter_late(false).await
}

/// A database that does not answer keeps the slots of one root from being freed. The time of
/// another one is over all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_does_not_answer_holds_up_no_deadline() -> std::result::Result<(), Failure> {
    let solo = with_part().await?;
    let about = json!({ "roots": [{ "root": "a", "parent": "shop", "calls": 1 }] });
    assert_eq!(solo.enter(("a", "a.1"), "60000", 1).await?, (200, Value::Null));
    let vote = one(posted(solo.address, "/composite/prepare", &[], about.clone()).await?)?;
    assert_eq!(vote["vote"], "yes");
    assert_eq!(solo.enter(("b", "b.1"), "2000", 3).await?, (200, Value::Null));
    solo.door.is_held.send_replace(true);
    let told = one(posted(solo.address, "/composite/commit", &[], about).await?)?;
    assert_eq!(told["state"], "pending");
    let begun = Instant::now();
    loop {
        let status = status(solo.address).await?;
        let mut roots = status["roots"].as_array().into_iter().flatten();
        if roots.any(|root| root["root"] == "b" && root["state"] == "aborting") {
            break;
        }
        if begun.elapsed() > END {
            return Err(format!("its time is never over: {status}").into());
        }
    }
    solo.door.is_held.send_replace(false);
    Ok(())
}

/// A call is over with its time, and its lock with it, also if its database says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_ends_with_its_time_though_its_database_does_not_answer() -> std::result::Result<(), Failure> {
    let solo = with_part().await?;
    assert_eq!(solo.enter(("a", "a.1"), "60000", 1).await?, (200, Value::Null));
    solo.door.is_held.send_replace(true);
    assert_eq!(reason(&solo.enter(("b", "b.1"), "200", 3).await?), (504, Some("deadline")));
    let shown = status(solo.address).await?;
    let roots = shown["roots"].as_array().into_iter().flatten();
    let roots: Vec<&str> = roots.filter_map(|root| root["root"].as_str()).collect();
    assert_eq!(roots, ["a"], "{shown}");
    solo.door.is_held.send_replace(false);
    assert_eq!(solo.put_again(4).await?, json!(2));
    Ok(())
}

/// Nothing is begun before its key was looked for, so nothing may have happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_cannot_be_looked_for_in_time_is_not_unknown() -> std::result::Result<(), Failure> {
    let (solo, key) = (Solo::start().await?, ("Idempotency-Key", "k"));
    assert_eq!(solo.put(&[], 1).await?, (200, json!(1)));
    solo.door.is_held.send_replace(true);
    let late = solo.put(&[key, ("Cognate-Deadline-Ms", "200")], 2).await?;
    assert_eq!(reason(&late), (504, Some("deadline")));
    solo.door.is_held.send_replace(false);
    assert_eq!(solo.put(&[key], 2).await?, (200, json!(2)));
    Ok(())
}

/// A key is another request's once its answer's time is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_kept_for_its_time() -> std::result::Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let server = serve(&folder.path().join("data")).await?;
    let url = url(server.listen());
    let cases = [("a", 10, Duration::from_secs(3600), 422), ("b", 20, Duration::ZERO, 200)];
    for (key, first, kept, again) in cases {
        let running = component(&url, &folder.path().join(key)).answers_kept(kept).start().await?;
        let address = open(&running).await?;
        for (n, code) in [(first, 200), (first + 1, again)] {
            let headers = [("Idempotency-Key", key)];
            let (answered, answer) = posted(address, "/services/put", &headers, json!(n)).await?;
            assert_eq!(answered, code, "{key} {n}: {answer}");
        }
    }
    Ok(())
}

/// A person hears that what he has decided is done when it is so in the database, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_decides_is_pending_while_nothing_is_heard() -> std::result::Result<(), Failure> {
    let solo = with_part().await?;
    assert_eq!(solo.enter(("a", "a.1"), "60000", 1).await?, (200, Value::Null));
    assert_eq!(solo.is_asked("a").await?["vote"], "yes");
    solo.door.is_held.send_replace(true);
    let settle = json!({ "root": "a", "outcome": "committed" });
    let pending = json!({ "root": "a", "state": "pending" });
    for _ in 0..2 {
        let headers = [("Cognate-Deadline-Ms", "500")];
        let said = posted(solo.address, "/composite/settle", &headers, settle.clone()).await?;
        assert_eq!(said, (200, pending.clone()));
    }
    solo.door.is_held.send_replace(false);
    solo.end("commit", "a").await?;
    assert_eq!(reason(&posted(solo.address, "/composite/settle", &[], settle).await?), (404, Some("root")));
    assert_eq!(solo.put_again(3).await?, json!(2));
    Ok(())
}

/// A database may take a statement and never answer it. An undo is not held by that for ever: it is
/// made on another connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undo_that_is_never_answered_is_made_again() -> std::result::Result<(), Failure> {
    let solo = with_part_undone_within(Duration::from_secs(1)).await?;
    assert_eq!(solo.enter(("a", "a.1"), "60000", 1).await?, (200, Value::Null));
    solo.door.deaf.fetch_add(1, Ordering::SeqCst);
    solo.end("abort", "a").await?;
    assert_eq!(solo.put_again(3).await?, json!(1));
    assert_eq!(status(solo.address).await?["parked"], json!([]));
    Ok(())
}

/// The same holds for the slots of a root that is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_are_freed_though_a_statement_is_never_answered() -> std::result::Result<(), Failure> {
    let solo = with_part().await?;
    let about = json!({ "roots": [{ "root": "a", "parent": "shop", "calls": 1 }] });
    assert_eq!(solo.enter(("a", "a.1"), "60000", 1).await?, (200, Value::Null));
    assert_eq!(one(posted(solo.address, "/composite/prepare", &[], about).await?)?["vote"], "yes");
    solo.door.deaf.fetch_add(1, Ordering::SeqCst);
    solo.end("commit", "a").await?;
    assert_eq!(solo.put_again(3).await?, json!(2));
    Ok(())
}
