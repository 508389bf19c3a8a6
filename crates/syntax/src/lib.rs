//! What the parser makes of statements, as far as it costs more to compile than to run: walks
//! through it. A crate of its own, so that it is optimized less, and beside the crates that take
//! longest.

mod walk;

pub use walk::{
    Changer, Node, Step, Walker, change, change_expressions, change_types, for_each_expression,
    has_expression, walk,
};
