//! The total order of a cluster, and what is between its nodes.
//!
//! An application (the engine, or a test's recorder) proposes requests at any node and is given the
//! same requests in the same order at every node, each with its position, once a majority has them
//! on disk. It gives back how far it has applied them and how far its own state is durable; behind
//! that the log is removed, and a node that is too far behind is sent that state instead.
//!
//! ```text
//!    propose ─▶ proposer ─▶ leader ─▶ consensus ─▶ log ═▶ flush      position, or why not
//!                                        │  ▲                              ▲
//!                                  net ──┘  └── net: the other nodes       │
//!                                        ▼                                 │
//!                              what is settled ─▶ delivery ─▶ application ─┘
//! ```
//!
//! Rooms, the lowest floor first: bytes ([`codec`]), what the order is made of ([`entry`]), the log
//! (`log`), what nodes say (`messages`), how they reach each other ([`net`]), the consensus library
//! (`consensus`, the only room that knows it) with the mark of what is settled (`mark`), and the
//! order itself ([`order`]) with its parts: proposals, delivery, the first start, what comes of
//! another node's state (`intake`), changes of the members, the state of the nodes, and which of
//! them is slow. Rules of it are left out on purpose (`planted`) to see that tests notice.

pub mod application;
mod changing;
pub mod codec;
mod consensus;
pub mod delivery;
pub mod entry;
pub mod error;
mod founding;
mod intake;
mod learner;
mod leaving;
mod log;
mod mark;
mod messages;
pub mod net;
pub mod order;
mod pace;
mod planted;
mod proposer;
mod serve;
pub mod settings;
pub mod status;

pub use application::{Answer, Application, Failure, Snapshot, SnapshotSink, SnapshotSource};
pub use consensus::TOLD_WITHOUT_END;
pub use delivery::{Delivered, Delivery};
pub use entry::{ClusterId, Members, NodeNumber, Position};
pub use error::{OrderError, ProposeError, StartError};
pub use net::sim::{SimNetwork, Weather};
pub use net::tcp::{TcpNetwork, Tls};
pub use order::{Change, Marks, TotalOrder};
pub use pace::{PaceBounds, SlowNode};
#[cfg(feature = "planted-faults")]
pub use planted::{Planted, plant};
pub use settings::{FlushTime, Limits, Settings, Timing};
pub use status::{NodeRow, NodeState, Role};
