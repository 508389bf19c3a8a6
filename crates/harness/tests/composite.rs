//! The paper's tree of services, on engines in this process; and two processes for one component,
//! on PostgreSQL: `cargo test -p cognate-harness --test main -- --ignored composite`.

use std::net::SocketAddr;
use std::sync::Arc;

use cognate_composite::{Call, Component, Result, Running, Service, service};
use cognate_harness::random::Random;
use cognate_harness::workload::composite::host::Components;
use cognate_harness::workload::composite::http::Connection;
use cognate_harness::workload::composite::place::{DatabaseKind, Place};
use cognate_harness::workload::composite::tree::{NAMES, Semantics, Shape, Tree, body, component};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

#[tokio::test(flavor = "multi_thread")]
async fn each_root_buys_an_item_at_each_node() {
    let mut place = Place::open(DatabaseKind::Embedded, None).await.unwrap();
    let shape = Shape { depth: 2, width: 2 };
    for parallel in [false, true] {
        let tree = Tree { shape, semantics: Semantics::AllConflict, parallel };
        let nodes = (0..shape.cardinality()).map(|node| (NAMES[node], component(tree, node))).collect();
        let components = Components::start(&mut place, "", 1, nodes).await.unwrap();
        let mut client = Connection::open(components.address()).await.unwrap();
        let mut random = Random::new(1);
        for _ in 0..5 {
            let (status, answer) = client.request("POST", "/services/buy", &body(&mut random)).await.unwrap();
            assert_eq!(status, 200, "{answer}");
        }
        components.settle().await.unwrap();
        assert_eq!(components.roots_begun(), 5);
        for (name, bought) in components.ask_each("/services/total", "null").await.unwrap() {
            assert_eq!(bought, json!(5), "{name}");
        }
        components.stop().await.unwrap();
    }
}

const HOLD: Service<(), ()> = Service::named("holder", "hold");
const TOTAL: Service<(), i64> = Service::named("holder", "total");

/// Stays in the middle of its local transaction until it may go on.
async fn hold(call: Call, begun: Arc<Semaphore>, go: Arc<Semaphore>) -> Result<()> {
    call.sql().execute("INSERT INTO held VALUES (1)", &[]).await?;
    begun.add_permits(1);
    drop(go.acquire().await);
    Ok(())
}

async fn total(call: Call, (): ()) -> Result<i64> {
    Ok(call.sql().query_one("SELECT count(*) FROM held", &[]).await?.get(0))
}

fn holder(begun: &Arc<Semaphore>, go: &Arc<Semaphore>) -> Component {
    let (begun, go) = (Arc::clone(begun), Arc::clone(go));
    let hold = service(move |call: Call, (): ()| hold(call, Arc::clone(&begun), Arc::clone(&go)));
    Component::named("holder")
        .setup(["CREATE TABLE IF NOT EXISTS held (id int)"])
        .serve(HOLD, hold.read_committed().begins_only())
        .serve(TOTAL, service(total).reads())
}

async fn serve(running: &Running) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(axum::serve(listener, running.router()).into_future());
    address
}

async fn ask(address: SocketAddr, service: &str) -> (u16, String) {
    let mut client = Connection::open(address).await.expect("a connection");
    client.request("POST", &format!("/services/{service}"), "null").await.expect("an answer")
}

/// On PostgreSQL COMMIT looks at nothing: a later start ends the sessions of the older process, and
/// goes on once there are none.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL's programs"]
async fn a_later_start_ends_what_is_under_way_in_the_older_process() {
    let mut place = Place::open(DatabaseKind::Postgres, None).await.unwrap();
    let (begun, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (url, journal) = place.database("holder").await.unwrap();
    let older = holder(&begun, &go).database(&url).data(journal).start().await.unwrap();
    let address = serve(&older).await;
    let held = tokio::spawn(async move { ask(address, "hold").await });
    begun.acquire().await.unwrap().forget();
    let holding = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = '1' AND granted";
    assert_eq!(place.number("holder", holding).await.unwrap(), 1);

    place.next_start();
    let (url, journal) = place.database("holder").await.unwrap();
    let later = holder(&begun, &go).database(&url).data(journal).start().await.unwrap();
    assert_eq!(place.number("holder", holding).await.unwrap(), 0);
    go.close();
    let (status, problem) = held.await.unwrap();
    assert_eq!(status, 503, "{problem}");
    // Its new connections are not held, and look.
    let refused = loop {
        match ask(address, "hold").await {
            (503, problem) if problem.contains("\"database\"") => {}
            refused => break refused,
        }
    };
    assert!(refused.0 == 503 && refused.1.contains("\"fenced\""), "{refused:?}");
    older.fenced().await;
    let address = serve(&later).await;
    assert_eq!(ask(address, "total").await, (200, "0".to_owned()));
    assert_eq!(ask(address, "hold").await.0, 200);
    assert_eq!(ask(address, "total").await, (200, "1".to_owned()));
}
