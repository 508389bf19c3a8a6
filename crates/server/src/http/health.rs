//! `/health`: whether clients can be sent here.

use serde_json::json;

use crate::server::Server;

/// Whether all is well, and the JSON that says so in detail. `None`: still starting.
pub(crate) fn report(server: Option<&Server>) -> (bool, String) {
    let Some(server) = server else {
        return (false, json!({ "ready": false, "state": "starting" }).to_string());
    };
    let statistics = server.database.engine().statistics();
    let poisoned = statistics.log_poisoned.map(|error| error.to_string());
    let body = json!({
        "ready": poisoned.is_none(),
        "state": if poisoned.is_none() { "serving" } else { "read-only: the log refuses commits" },
        "log_error": poisoned,
        "marks": {
            "certified": statistics.certified,
            "visible": statistics.visible,
            "durable": statistics.durable,
        },
        "sessions": server.registry.sessions(),
    });
    (poisoned.is_none(), body.to_string())
}
