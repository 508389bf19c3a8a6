//! A vote that is there when the time of its root is over, and the component that has asked for it
//! has not run since: its timers have not said so either.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cognate_composite::{Call, Component, Result, Service, service};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::process::{END, Failure, request};
use crate::server::{open, posted};

const BUY: Service<i32, ()> = Service::named("shop", "buy");
const TAKE: Service<i32, ()> = Service::named("stock", "take");

async fn buy(call: Call, item: i32) -> Result<()> {
    call.call(TAKE, item).await?;
    call.sql().execute("INSERT INTO word VALUES ($1)", &[&item]).await.map(drop)
}

/// What the stock has of its parent's process.
struct Hold {
    stop: oneshot::Sender<()>,
    has_stopped: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

/// A stock of the test's own, of which each request says more.
struct Stock {
    hold: Mutex<Option<Hold>>,
    /// When the time of the root is over.
    until: Mutex<Instant>,
    /// What it was asked and told.
    seen: Mutex<Vec<String>>,
}

/// The path of a request, the milliseconds that it has, and its body; none at the end.
fn read(from: &mut impl BufRead) -> Option<(String, u64, Value)> {
    let (mut path, mut left, mut length) = (String::new(), 0, 0);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        match line.split_once(": ") {
            None if line.is_empty() => break,
            None => path = line.split(' ').nth(1)?.to_owned(),
            Some(("cognate-deadline-ms", text)) => left = text.parse().ok()?,
            Some(("content-length", text)) => length = text.parse().ok()?,
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some((path, left, serde_json::from_slice(&body).unwrap_or_default()))
}

fn answer(socket: &mut TcpStream, body: &Value) {
    let body = body.to_string();
    let head = format!("HTTP/1.1 200 OK\r\nCognate-Generation: 1\r\nContent-Length: {}\r\n\r\n", body.len());
    // Whoever has gone away does not wait for it.
    let _ = socket.write_all(format!("{head}{body}").as_bytes());
}

impl Stock {
    fn listen(self: Arc<Self>, listener: TcpListener) {
        thread::spawn(move || {
            for socket in listener.incoming().map_while(std::result::Result::ok) {
                let stock = Arc::clone(&self);
                thread::spawn(move || stock.answers(socket));
            }
        });
    }

    fn answers(&self, mut socket: TcpStream) {
        let mut requests = BufReader::new(socket.try_clone().expect("a socket"));
        while let Some((path, left, body)) = read(&mut requests) {
            self.seen.lock().expect("nobody panics").push(path.clone());
            let about = |said: Value| json!({ "roots": [said] });
            let root = &body["roots"][0]["root"];
            match path.as_str() {
                "/services/take" => {
                    // Rounded off, and a bit more.
                    let over = Instant::now() + Duration::from_millis(left + 50);
                    *self.until.lock().expect("nobody panics") = over;
                    answer(&mut socket, &Value::Null);
                }
                "/composite/prepare" => {
                    let yes = about(json!({ "root": root, "vote": "yes", "nonce": 5 }));
                    let hold = self.hold.lock().expect("nobody panics").take();
                    let Some(Hold { stop, has_stopped, go_on }) = hold else {
                        answer(&mut socket, &yes);
                        continue;
                    };
                    stop.send(()).expect("it runs");
                    has_stopped.recv().expect("it stops");
                    let until = *self.until.lock().expect("nobody panics");
                    while Instant::now() < until {
                        thread::yield_now();
                    }
                    answer(&mut socket, &yes);
                    go_on.send(()).expect("it waits for this");
                }
                _ => answer(&mut socket, &about(json!({ "root": root, "state": "done" }))),
            }
        }
    }
}

/// All tasks of the shop run on one thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_yes_that_is_there_after_the_time_of_its_root_does_not_count() -> std::result::Result<(), Failure> {
    let ((stop, stopping), (stopped, has_stopped), (go_on, going_on)) =
        (oneshot::channel(), mpsc::channel(), mpsc::channel());
    let hold = Mutex::new(Some(Hold { stop, has_stopped, go_on }));
    let stock = Arc::new(Stock { hold, until: Mutex::new(Instant::now()), seen: Mutex::default() });
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let far = listener.local_addr()?;
    Arc::clone(&stock).listen(listener);
    let folder = tempfile::tempdir()?;
    let shop = Component::named("shop")
        .database(&format!("embedded:{}", folder.path().join("database").display()))
        .data(folder.path().join("journal"))
        .setup(["CREATE TABLE IF NOT EXISTS word (n int PRIMARY KEY)"])
        .peer("stock", &format!("http://{far}"))
        .serve(BUY, service(buy).begins_only())
        .start()
        .await?;
    let address = open(&shop).await?;
    tokio::spawn(async move {
        if stopping.await.is_ok() {
            // Nothing else runs on this thread until then.
            stopped.send(()).expect("it waits for this");
            going_on.recv().expect("it says so");
        }
    });
    let (status, problem) =
        posted(address, "/services/buy", &[("Cognate-Deadline-Ms", "500")], json!(1)).await?;
    assert_eq!((status, problem["reason"].as_str()), (504, Some("deadline")), "{problem}");
    let seen = stock.seen.lock().expect("nobody panics").clone();
    assert!(!seen.iter().any(|path| path == "/composite/commit"), "{seen:?}");
    Ok(())
}

/// The timers say that the time of a root is over while its service is busy, which then calls
/// somebody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_that_its_time_has_ended_says_so() -> std::result::Result<(), Failure> {
    let address = Arc::new(OnceLock::<SocketAddr>::new());
    let of_service = Arc::clone(&address);
    let buy = move |call: Call, item: i32| {
        let address = Arc::clone(&of_service);
        async move {
            let own = *address.get().expect("it is served");
            let is_ended = || {
                let status = request(own, "GET", "/status", &[], b"");
                status.is_ok_and(|(_, status)| status["roots"][0]["state"] == "aborting")
            };
            tokio::task::block_in_place(|| {
                let begun = Instant::now();
                while !is_ended() {
                    assert!(begun.elapsed() < END, "its time has no end");
                }
            });
            call.call(TAKE, item).await
        }
    };
    let folder = tempfile::tempdir()?;
    let shop = Component::named("shop")
        .database(&format!("embedded:{}", folder.path().join("database").display()))
        .data(folder.path().join("journal"))
        .serve(BUY, service(buy).begins_only())
        .start()
        .await?;
    let opened = open(&shop).await?;
    let own = *address.get_or_init(|| opened);
    let (status, problem) = posted(own, "/services/buy", &[("Cognate-Deadline-Ms", "500")], json!(1)).await?;
    assert_eq!((status, problem["reason"].as_str()), (504, Some("deadline")), "{problem}");
    Ok(())
}
