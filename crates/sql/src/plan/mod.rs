//! Plans.

/// A node of a plan.
#[derive(Debug)]
pub enum Node {}

impl Node {
    /// Calls `visit(depth, slot)` with every reference that leaves the node; depth 1 is the frame around it.
    pub fn for_each_outer_reference(&self, _visit: &mut dyn FnMut(usize, usize)) {
        match *self {}
    }
}
