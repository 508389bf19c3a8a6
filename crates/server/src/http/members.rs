//! `/cluster`: the nodes, and changes of who they are.
//!
//! ```text
//! GET  /cluster                       the rows of cognate_nodes, and who answers
//! POST /cluster/nodes/4/add           node 4 is to receive everything, and not to vote yet
//! POST /cluster/nodes/4/promote       it is to vote
//! POST /cluster/nodes/4/remove        it is no member any more
//! ```
//!
//! A row also says whether others refuse the node since it has lost its data.
//!
//! Any node that serves takes changes. A change answers once it is in force, with 409 and the
//! reason if it is refused, such as the vote of a node that lacks much still. Who may make one has
//! the token; where none is configured, the port must not be reachable from other machines.

use cognate_replication::entry::NodeNumber;
use cognate_replication::error::OrderError;
use cognate_replication::order::{Change, TotalOrder};
use serde_json::{Value, json};

use crate::server::Server;

/// Why nothing was done: status and words.
pub(super) type Refusal = (u16, String);

/// What `/cluster` says: the nodes are asked anew.
pub(super) async fn describe(server: &Server) -> Result<Value, Refusal> {
    let order = order(server)?;
    let shown = server.database.nodes().rows();
    let digest = |node: NodeNumber| shown.iter().find(|row| NodeNumber::from(row.node) == node);
    let rows = order.status().await.into_iter().map(|row| {
        let digest = digest(row.node);
        json!({
            "node": row.node,
            "address": row.address,
            "role": row.role.map(|role| role.name()),
            "state": row.state.map(|state| state.name()),
            "applied": row.applied,
            "committed": row.committed,
            "lag_bytes": row.lag_bytes,
            "lag_ms": row.lag_ms,
            "digest_position": digest.and_then(|row| row.digest_position),
            "digest": digest.and_then(|row| row.digest.clone()),
            "reason": row.reason,
            "has_lost_data": row.has_lost_data(),
        })
    });
    Ok(json!({ "node": order.node(), "nodes": rows.collect::<Vec<_>>() }))
}

/// Changes the membership.
pub(super) async fn change(server: &Server, node: u16, what: &str) -> Result<Value, Refusal> {
    let order = order(server)?;
    let number = NodeNumber::from(node);
    let change = match what {
        "add" => Change::AddLearner(number),
        "promote" => Change::Promote(number),
        "remove" => Change::Remove(number),
        _ => return Err((404, format!("no change of the nodes is called {what}"))),
    };
    let members = order.members();
    let is_member = members.nodes.contains(&number);
    match change {
        Change::AddLearner(_) if is_member => {
            let rows = order.status().await;
            let has_lost = rows.iter().any(|row| row.node == number && row.has_lost_data());
            return Err((409, is_there(node, has_lost)));
        }
        Change::Promote(_) | Change::Remove(_) if !is_member => {
            return Err((409, format!("node {node} is no member")));
        }
        Change::Remove(_) if members.nodes.len() == 1 => {
            return Err((409, format!("node {node} is the only one")));
        }
        _ => {}
    }
    match order.change(change).await {
        Ok(()) => Ok(json!({ "node": node, "done": what })),
        Err(OrderError::Refused(why)) => Err((409, why)),
        Err(error) => Err((503, error.to_string())),
    }
}

/// Why a member cannot be added.
fn is_there(node: u16, has_lost_its_data: bool) -> String {
    let is_there = format!("node {node} is a member already");
    match has_lost_its_data {
        true => format!("{is_there}, and has lost its data: say cognate node rebuild {node}"),
        false => is_there,
    }
}

fn order(server: &Server) -> Result<&TotalOrder, Refusal> {
    server.order.as_ref().ok_or_else(|| (404, "this server is a database of its own".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_has_lost_its_data_is_to_be_rebuilt() {
        assert_eq!(is_there(2, false), "node 2 is a member already");
        let said = is_there(2, true);
        // Who adds it looks for that.
        assert!(said.contains("a member already") && said.ends_with("cognate node rebuild 2"), "{said}");
    }
}
