//! The paper's tree of services, on engines in this process.

use cognate_harness::random::Random;
use cognate_harness::workload::composite::host::Components;
use cognate_harness::workload::composite::http::Connection;
use cognate_harness::workload::composite::place::{DatabaseKind, Place};
use cognate_harness::workload::composite::tree::{NAMES, Semantics, Shape, Tree, body, component};
use serde_json::json;

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
