//! The paper's workload (§4.1): a tree of components, in which each service updates an item and
//! calls the service of each component on the next level, one after the other.
//!
//! ```text
//!              n0                 3x2: three levels, each service calls two; cardinality 7
//!        n1          n2
//!     n3    n4    n5    n6
//! ```
//!
//! Each call is about an item of its own, which follows from the request: 80 % of them are of a
//! fifth of the items. What is counted up in each table is at the end the number of committed
//! roots.

use std::ops::Range;

use cognate_composite::matrix::{never, same_item};
use cognate_composite::{Call, Component, Result, Service, Undo, service};
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use super::{CONNECTIONS, ITEMS, skewed};
use crate::random::Random;

/// The names of the components of the largest tree.
pub const NAMES: [&str; 15] =
    ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11", "n12", "n13", "n14"];

/// The statements that make the table of items; each start of a component makes it anew.
pub fn tables() -> Vec<String> {
    vec![
        "DROP TABLE IF EXISTS item".to_owned(),
        "CREATE TABLE item (id int PRIMARY KEY, bought int NOT NULL)".to_owned(),
        format!("INSERT INTO item SELECT i, 0 FROM generate_series(1, {ITEMS}) i"),
    ]
}

/// Buys an item.
pub const BUY: &str = "UPDATE item SET bought = bought + 1 WHERE id = $1";
const PUT_BACK: &str = "UPDATE item SET bought = bought - 1 WHERE id = $1";
/// How many were bought.
pub const TOTAL: &str = "SELECT sum(bought) FROM item";

/// How many levels, and how many calls each service makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Levels.
    pub depth: u32,
    /// Calls.
    pub width: u32,
}

impl Shape {
    /// Nodes of the tree, which the paper calls the cardinality.
    pub fn cardinality(self) -> usize {
        (0..self.depth).map(|level| (self.width as usize).pow(level)).sum()
    }

    /// Whom a node calls. Nodes are counted level by level.
    pub fn children(self, node: usize) -> Range<usize> {
        let width = self.width as usize;
        let (from, nodes) = (node * width + 1, self.cardinality());
        from.min(nodes)..(from + width).min(nodes)
    }

    /// As the paper writes it.
    pub fn name(self) -> String {
        format!("{}x{}", self.depth, self.width)
    }
}

/// Which components know that buying commutes with buying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Semantics {
    /// None: calls about the same item conflict.
    AllConflict,
    /// Every second one.
    HalfConflict,
    /// All.
    NoConflicts,
}

impl Semantics {
    /// As the paper writes it.
    pub fn name(self) -> &'static str {
        match self {
            Semantics::AllConflict => "all conflict",
            Semantics::HalfConflict => "half conflict",
            Semantics::NoConflicts => "no conflicts",
        }
    }

    fn conflicts(self, node: usize) -> bool {
        match self {
            Semantics::AllConflict => true,
            Semantics::HalfConflict => node.is_multiple_of(2),
            Semantics::NoConflicts => false,
        }
    }
}

/// A tree of components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Its shape.
    pub shape: Shape,
    /// Which conflicts it has.
    pub semantics: Semantics,
    /// Whether the calls of a service are under way at once.
    pub parallel: bool,
}

/// A request: the number that all items of its calls follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    order: u64,
}

impl Order {
    /// The item that a node's part is about.
    pub fn item(self, node: usize) -> i32 {
        skewed(&mut Random::stream(self.order, node as u64, 0))
    }
}

/// The body of a request.
pub fn body(random: &mut Random) -> String {
    // Below 2^53, which every JSON carries.
    format!("{{\"order\":{}}}", random.next_u64() >> 11)
}

const fn buying(node: usize) -> Service<Order, ()> {
    Service::named(NAMES[node], "buy")
}

async fn buy(call: Call, order: Order, node: usize, tree: Tree) -> Result<()> {
    let children = tree.shape.children(node);
    match tree.parallel {
        true => drop(try_join_all(children.map(|child| call.call(buying(child), order))).await?),
        false => {
            for child in children {
                call.call(buying(child), order).await?;
            }
        }
    }
    let item = order.item(node);
    call.sql().execute(BUY, &[&item]).await?;
    call.undo(&item)
}

async fn put_back(undo: Undo, item: i32) -> Result<()> {
    undo.sql().execute(PUT_BACK, &[&item]).await.map(drop)
}

async fn total(call: Call, _: ()) -> Result<i64> {
    Ok(call.sql().query_one(TOTAL, &[]).await?.get(0))
}

/// One of the tree's components, without its database.
pub fn component(tree: Tree, node: usize) -> Component {
    let name = NAMES[node];
    let handler = service(move |call: Call, order: Order| buy(call, order, node, tree));
    // One statement finds and changes what it needs, and additions may be exchanged.
    let handler = handler.item(move |order: &Order| order.item(node)).undo(put_back).read_committed();
    let line = match tree.semantics.conflicts(node) {
        true => same_item("buy", "buy"),
        false => never("buy", "buy"),
    };
    Component::named(name)
        .setup(tables())
        .connections(CONNECTIONS)
        .serve(buying(node), handler)
        .serve(Service::<(), i64>::named(name, "total"), service(total).reads())
        .conflicts([line])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_each_node_once() {
        for (depth, width, cardinality) in
            [(1, 1, 1), (4, 1, 4), (2, 2, 3), (3, 2, 7), (4, 2, 15), (3, 3, 13), (2, 5, 6)]
        {
            let shape = Shape { depth, width };
            assert_eq!(shape.cardinality(), cardinality, "{}", shape.name());
            let mut reached = vec![0];
            for node in 0..cardinality {
                reached.extend(shape.children(node));
            }
            assert_eq!(reached, (0..cardinality).collect::<Vec<_>>(), "{}", shape.name());
        }
    }
}
