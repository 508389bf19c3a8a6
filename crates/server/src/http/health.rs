//! `/health`: whether clients can be sent here.

use cognate_replication::order::TotalOrder;
use serde_json::{Value, json};

use crate::server::Server;

/// Whether all is well, and the JSON that says so in detail. `None`: still starting, perhaps with a
/// part in an order.
pub(crate) fn report(server: Option<&Server>, starting: Option<&TotalOrder>) -> (bool, String) {
    let Some(server) = server else {
        let body = json!({ "ready": false, "state": "starting", "node": starting.map(node) });
        return (false, body.to_string());
    };
    let statistics = server.database.engine().statistics();
    let poisoned = statistics.log_poisoned.map(|error| error.to_string());
    let closed = server.database.nodes().closed();
    let (slow, _) = server.database.nodes().flow();
    let is_well = poisoned.is_none() && closed.is_none();
    let body = json!({
        "ready": is_well,
        "state": match (&poisoned, &closed) {
            (None, None) => server.order.as_ref().map_or("serving", |order| order.state().0.name()),
            (Some(_), _) => "read-only: the log refuses commits",
            (None, Some(_)) => "read-only: the cluster cannot commit",
        },
        "node": server.order.as_ref().map(node),
        "log_error": poisoned,
        "cluster_error": closed,
        "writers_wait_for": slow.map(|slow| json!({ "node": slow.node, "lag_bytes": slow.lag_bytes })),
        "marks": {
            "certified": statistics.certified,
            "visible": statistics.visible,
            "durable": statistics.durable,
        },
        "sessions": server.registry.sessions(),
    });
    (is_well, body.to_string())
}

/// How a node is in its cluster.
fn node(order: &TotalOrder) -> Value {
    let (state, reason) = order.state();
    json!({ "node": order.node(), "role": order.role().name(), "state": state.name(), "reason": reason })
}
