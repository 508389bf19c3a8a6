//! One statement of a simple query.

/// A statement split off a query text.
#[derive(Clone, Debug)]
pub struct Statement {}
