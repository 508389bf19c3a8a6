//! HTTP over loopback: the surface's statuses, as any client in any language sees them, and
//! `EtxClient` against servers that are dead, mute or cut off.

use std::time::Duration;

use cognate_client::application::{ApplicationServer, Branches, Failure, Options};
use cognate_client::backoff::Backoff;
use cognate_client::etransaction::{ClientError, Refused, Text};
use cognate_client::http::{BODY_BYTES_MAX, ClientOptions, EtxClient, EtxError, router, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};

use crate::fake::{FakeConnection, FakeSite, Fault, Point};
use crate::{options, settled, write};

/// A server on loopback, stopped when dropped.
struct Served {
    address: String,
    _stop: oneshot::Sender<()>,
}

impl Served {
    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn served(router: axum::Router) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound").to_string();
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(serve(listener, router, async move { drop(stopped.await) }));
    Served { address, _stop: stop }
}

fn quick() -> Options {
    let mut options = options();
    options.attempts_max = 2;
    options
}

async fn shop() -> ([FakeSite; 2], Served) {
    let sites = [FakeSite::default(), FakeSite::default()];
    let server = ApplicationServer::new(sites.clone(), quick());
    (sites, served(router(server, write)).await)
}

struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// By hand, as a client without any library would do it.
async fn call(served: &Served, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
    let mut stream = TcpStream::connect(&served.address).await.expect("the server listens");
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    // A server that refuses a body may not read it to its end.
    let _ = stream.write_all(body).await;
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a response");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Response { status, head: head.to_owned(), body: body.to_owned() }
}

async fn post(served: &Served, headers: &[(&str, &str)], body: &str) -> Response {
    call(served, "POST", "/etx", headers, body.as_bytes()).await
}

#[tokio::test]
async fn a_plain_client_needs_the_key_only_and_gets_the_same_answer_again() {
    let (sites, shop) = shop().await;
    let first = post(&shop, &[("idempotency-key", "mobile 7/ü")], "buy").await;
    assert_eq!((first.status, first.header("etx-outcome")), (200, Some("done")), "{}", first.body);
    assert_eq!(first.header("etx-winner"), Some("1024"));
    let numbered = [("idempotency-key", "mobile 7/ü"), ("etx-instance", "5")];
    for headers in [&numbered[..1], &numbered] {
        assert_eq!(post(&shop, headers, "buy").await.body, first.body);
    }
    assert!(sites.iter().all(|site| site.lock().lines == [first.body.clone()]));
    let differs = post(&shop, &numbered, "sell").await;
    assert_eq!((differs.status, differs.header("etx-outcome")), (422, Some("request-differs")));
    let gone = call(&shop, "DELETE", "/etx/mobile%207%2F%C3%BC", &[], b"").await;
    assert_eq!(gone.status, 200, "{}", gone.body);
    let again = call(&shop, "POST", "/etx/ack", &numbered[..1], b"").await;
    assert_eq!(again.status, 200, "{}", again.body);
    let forgotten = post(&shop, &numbered, "buy").await;
    assert_eq!((forgotten.status, forgotten.header("etx-outcome")), (410, Some("forgotten")));
}

#[tokio::test]
async fn bad_keys_numbers_and_bodies_are_refused_in_words() {
    let (sites, shop) = shop().await;
    let long = "x".repeat(201);
    let cases: [(&[(&str, &str)], &str); 7] = [
        (&[], "missing"),
        (&[("idempotency-key", "")], "empty"),
        (&[("idempotency-key", &long)], "201 bytes"),
        (&[("idempotency-key", "a"), ("idempotency-key", "b")], "twice"),
        (&[("idempotency-key", "a"), ("etx-instance", "one")], "not a number"),
        (&[("idempotency-key", "a"), ("etx-instance", "0")], "not positive"),
        (&[("idempotency-key", "a"), ("etx-instance", "9223372036854775808")], "not a number"),
    ];
    for (headers, words) in cases {
        let bad = post(&shop, headers, "buy").await;
        assert_eq!(bad.status, 400, "{headers:?}");
        assert!(bad.body.contains(words), "{headers:?}: {}", bad.body);
    }
    let key = [("idempotency-key", "a")];
    assert_eq!(call(&shop, "POST", "/etx", &key, b"\xff").await.status, 400);
    let large = post(&shop, &key, &"x".repeat(2 << 20)).await;
    assert_eq!((large.status, large.header("etx-outcome")), (413, Some("request-too-large")));
    let larger = post(&shop, &key, &"x".repeat(BODY_BYTES_MAX + 1)).await;
    assert_eq!((larger.status, larger.header("etx-outcome")), (413, Some("request-too-large")));
    assert_eq!(call(&shop, "GET", "/etx", &key, b"").await.status, 405);
    for xid in ["nobody%2F1", "ack", "..", "%2F"] {
        let unknown = call(&shop, "DELETE", &format!("/etx/{xid}"), &[], b"").await;
        assert_eq!((unknown.status, unknown.header("etx-outcome")), (404, Some("unknown")), "{xid}");
    }
    assert!(sites.iter().all(|site| site.lock().lines.is_empty()));
}

#[tokio::test]
async fn what_must_be_tried_again_says_so_and_above_which_number() {
    let (sites, shop) = shop().await;
    let refuse = |refused| sites[1].lock().order(Point::Prepare, Fault::Refuse(refused));
    refuse(Refused::Failed("a full disk".into()));
    let numbered = [("idempotency-key", "a"), ("etx-instance", "3073")];
    let retry = post(&shop, &numbered, "buy").await;
    assert_eq!((retry.status, retry.header("etx-outcome")), (503, Some("retry")));
    assert_eq!((retry.header("etx-highest"), retry.header("retry-after")), (Some("3073"), Some("1")));
    assert!(retry.body.contains("a full disk"), "{}", retry.body);
    refuse(Refused::InDoubt("3073 is prepared".into()));
    let doubt = post(&shop, &[("idempotency-key", "a"), ("etx-instance", "4096")], "buy").await;
    assert_eq!((doubt.status, doubt.header("etx-outcome")), (503, Some("in-doubt")));
    let early = call(&shop, "DELETE", "/etx/a", &[], b"").await;
    assert_eq!((early.status, early.header("etx-outcome")), (409, Some("not-decided")));
    sites[1].lock().order(Point::Commit, Fault::Refuse(Refused::Taken { highest: 0 }));
    let broken = post(&shop, &[("idempotency-key", "b")], "buy").await;
    assert_eq!((broken.status, broken.header("etx-outcome")), (500, Some("broken")));
    let health = call(&shop, "GET", "/healthz", &[], b"").await;
    assert_eq!((health.status, health.body.as_str()), (200, "site 0: a fake\nsite 1: a fake\n"));
    sites[1].lock().is_down = true;
    sites[1].lock().crash();
    // An idle connection does not know yet; a question that is asked over it finds out.
    assert_eq!(call(&shop, "DELETE", "/etx/a", &[], b"").await.status, 503);
    let health = call(&shop, "GET", "/healthz", &[], b"").await;
    assert_eq!(health.status, 503, "{}", health.body);
    assert!(health.body.contains("site 1: connection refused"), "{}", health.body);
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_stop_its_request() {
    let sites = [FakeSite::default(), FakeSite::default()];
    let server = ApplicationServer::new(sites.clone(), options());
    let gate = std::sync::Arc::new(Semaphore::new(0));
    let (reached, mut has_reached) = tokio::sync::mpsc::unbounded_channel();
    let held = std::sync::Arc::clone(&gate);
    let logic = move |request: Text, branches: Branches<FakeConnection>| {
        let (held, reached) = (std::sync::Arc::clone(&held), reached.clone());
        async move {
            let _ = reached.send(());
            held.acquire().await.map_err(|error| Failure(error.to_string()))?.forget();
            write(request, branches).await
        }
    };
    let shop = served(router(server.clone(), logic)).await;
    let mut stream = TcpStream::connect(&shop.address).await.expect("the server listens");
    let head = "POST /etx HTTP/1.1\r\nhost: x\r\nidempotency-key: a\r\ncontent-length: 3\r\n\r\nbuy";
    stream.write_all(head.as_bytes()).await.expect("sent");
    has_reached.recv().await.expect("the logic runs");
    drop(stream);
    gate.add_permits(1);
    while sites[1].lock().lines.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    settled(&sites, &[&server]).await;
    assert_eq!(sites[0].lock().lines, sites[1].lock().lines.clone());
}

/// A port at which nobody listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    format!("http://{}", listener.local_addr().expect("bound"))
}

/// Accepts, reads, and says nothing, or nonsense.
async fn mute(nonsense: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            if let Some(nonsense) = nonsense {
                let mut buffer = [0; 4096];
                let _ = stream.read(&mut buffer).await;
                let _ = stream.write_all(nonsense.as_bytes()).await;
            } else {
                kept.push(stream);
            }
        }
    });
    format!("http://{address}")
}

fn impatient(attempts_max: u32) -> ClientOptions {
    let backoff = Backoff {
        patience: Duration::from_millis(100),
        pause: Duration::from_millis(1),
        pause_max: Duration::from_millis(20),
        ..Backoff::default()
    };
    ClientOptions { attempts_max, backoff }
}

#[tokio::test]
async fn a_client_finds_the_server_that_answers_and_acknowledges_what_it_was_given() {
    let (sites, shop) = shop().await;
    let gateway = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\n\r\nbad";
    let servers =
        [nobody().await, mute(None).await, mute(Some(gateway)).await, mute(Some("x\r\n\r\n")).await];
    let client = EtxClient::named("c", servers.iter().chain([&shop.url()]), impatient(20)).expect("good");
    let first = client.execute("buy").await.expect("an answer");
    assert_eq!(first.xid(), "c/1");
    let again = client.execute_as("c/1", "buy").await.expect("the same answer");
    assert_eq!(first.result(), again.result());
    let line = first.acknowledge();
    client.finish().await;
    assert!(sites.iter().all(|site| site.lock().lines == [line.to_string()]));
    let gone = client.execute_as("c/1", "buy").await;
    assert!(matches!(&gone, Err(EtxError::Ended { error: ClientError::Forgotten, .. })), "{gone:?}");
    assert_eq!(client.execute("sell").await.expect("an answer").xid(), "c/2");
    let differs = client.execute_as("c/2", "buy").await;
    assert!(
        matches!(&differs, Err(EtxError::Ended { error: ClientError::RequestDiffers, .. })),
        "{differs:?}"
    );
}

#[tokio::test]
async fn a_client_that_gives_up_can_be_resumed_and_says_what_it_heard() {
    let (sites, shop) = shop().await;
    let client = EtxClient::named("c", [shop.url()], impatient(3)).expect("good");
    for site in &sites {
        site.lock().is_down = true;
    }
    let error = client.execute("buy").await.expect_err("no site");
    let EtxError::Ended { xid, highest, error, last } = error else { panic!("{error:?}") };
    assert_eq!((xid.as_str(), error), ("c/1", ClientError::Unanswered { attempts: 3 }));
    assert!(highest >= 3072 && last.is_some_and(|last| last.contains("no reply from site")));
    sites.iter().for_each(|site| site.lock().heal());
    let answer = client.resume(&xid, "buy", highest).await.expect("an answer");
    assert!(sites.iter().all(|site| site.lock().lines == [answer.result().to_owned()]));
    for bad in ["", "a\nb", " a"] {
        assert!(client.execute_as(bad, "buy").await.is_err());
    }
    assert!(EtxClient::new(Vec::<String>::new(), impatient(1)).is_err());
    assert!(EtxClient::named(" c", [shop.url()], impatient(1)).is_err());
}

#[tokio::test]
async fn a_client_of_sites_without_siblings_is_told_that_its_request_is_in_doubt() {
    let sites = [FakeSite::plain(), FakeSite::plain()];
    let server = ApplicationServer::new(sites.clone(), options());
    let shop = served(router(server, write)).await;
    let client = EtxClient::named("c", [shop.url()], impatient(4)).expect("good");
    sites[1].lock().order(Point::Prepare, Fault::LoseRequest);
    let error = client.execute("buy").await.expect_err("in doubt");
    assert!(matches!(&error, EtxError::Ended { error: ClientError::InDoubt { .. }, .. }), "{error:?}");
}
