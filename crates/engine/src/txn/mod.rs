//! What a transaction is made of: its id, its snapshot, the committed versions it reads and its
//! private write set.

pub(crate) mod budget;
pub(crate) mod bulk;
pub(crate) mod change;
pub(crate) mod codec;
pub(crate) mod columns;
pub(crate) mod id;
pub(crate) mod readset;
pub(crate) mod snapshot;
pub(crate) mod version;
pub(crate) mod writeset;
