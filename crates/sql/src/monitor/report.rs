//! The protocols, and what a transaction reports once it has ended.

/// How a transaction reaches all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Executed once; writes and, at SERIALIZABLE, reads are ordered; every node comes to the same
    /// verdict.
    #[default]
    Certification,
    /// Executed once; only writes are ordered, and the origin's vote behind them.
    WeakVoting,
    /// The statements are ordered, and executed at every node.
    Active,
}

impl Protocol {
    /// All of them; where costs are equal, the first one is taken.
    pub const ALL: [Protocol; 3] = [Protocol::Certification, Protocol::WeakVoting, Protocol::Active];

    /// Its name, as in `cognate.replication`.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Certification => "certification",
            Protocol::WeakVoting => "weak_voting",
            Protocol::Active => "active",
        }
    }

    pub(super) fn index(self) -> usize {
        match self {
            Protocol::Certification => 0,
            Protocol::WeakVoting => 1,
            Protocol::Active => 2,
        }
    }
}

/// What became of one attempt of a transaction that was to be ordered.
///
/// An attempt that is repeated, by the server or by its client, reports each time. Figures that
/// nobody knows are 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finished {
    /// [`Class::id`](super::Class::id).
    pub class: u64,
    /// What it went through.
    pub protocol: Protocol,
    /// As it was given to [`Monitor::choose`](super::Monitor::choose).
    pub fit_for_active: bool,
    /// Nobody runs it again if it is refused: its client is told so. It was chosen for by
    /// [`Monitor::choose_told`](super::Monitor::choose_told), if it is fit.
    pub told_if_refused: bool,
    /// It has committed.
    pub committed: bool,
    /// Whether a conflict refused it, struck or at its verdict.
    ///
    /// Under [`Protocol::Active`] nothing does; there this says whether one *would have*: something
    /// that it read or wrote was changed between its submission and its position. `None` if nobody
    /// has looked.
    pub conflict: Option<bool>,
    /// Microseconds of executing statements, once, at this node; without waiting for anything. Of
    /// one that has failed, of those that it came to.
    pub execution_us: u64,
    /// Microseconds of waiting for locks meanwhile.
    pub lock_wait_us: u64,
    /// Size of the write set.
    pub write_bytes: u64,
    /// Size of the read set, whether or not it was sent.
    pub read_bytes: u64,
    /// Microseconds from being proposed to the verdict at this node; under weak voting to the
    /// delivery of the writes, under active to where execution begins. 0: it was not proposed.
    pub order_us: u64,
    /// Microseconds from the delivery of the writes to that of the vote, under weak voting. 0: it
    /// needed none.
    pub vote_us: u64,
    /// Messages of the client that it took.
    pub round_trips: u32,
}

impl Finished {
    /// Bytes that were ordered, without the frame; of the statements' text nothing is known.
    pub(super) fn ordered_bytes(&self) -> f64 {
        match self.protocol {
            Protocol::Certification => figure(self.write_bytes) + figure(self.read_bytes),
            Protocol::WeakVoting => figure(self.write_bytes),
            Protocol::Active => 0.0,
        }
    }
}

/// Beyond this a figure is a mistake, and sums of squares would lose their digits.
const LARGEST: u64 = 1_000_000_000;

/// A reported figure to calculate with.
pub(super) fn figure(value: u64) -> f64 {
    value.min(LARGEST) as f64
}
