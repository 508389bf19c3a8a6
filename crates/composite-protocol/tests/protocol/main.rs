//! The protocol between components, explored: every interleaving of what can happen to a few of
//! them.

mod ahead;
mod explore;
mod late;
mod paper;
mod roots;
mod rules;
mod siblings;
mod world;

use std::sync::Arc;

use cognate_composite_protocol::matrix::{Declared, Matrix, same_item};

/// One service, whose calls about one item conflict.
fn takes_items() -> Arc<Matrix> {
    let take = Declared {
        name: "take".to_owned(),
        has_item: true,
        reads: false,
        has_undo: true,
        begins_only: false,
    };
    Arc::new(Matrix::new(vec![take], &[same_item("take", "take")]).expect("a matrix"))
}
