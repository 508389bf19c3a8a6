//! Faults that tests plant into the rules by which the nodes of a cluster come to the same verdicts
//! (`order`, `delivery`), one at a time, to see that the tests would notice.
//!
//! They are planted for the thread that delivers and proposes. Without the feature `planted-faults`
//! nothing is ever planted, and nothing is left of the questions.
//!
//! Some rules are about what another thread does between two steps. Tests of one thread say what
//! that is (`while_sealing`), with the fault and without it.

#![cfg_attr(
    not(feature = "planted-faults"),
    allow(unreachable_pub, dead_code, reason = "who plants something sees it only with the feature")
)]

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Reads are judged as of what the origin had delivered, not as of the snapshot.
    CertifiesAgainstBot,
    /// Locks beyond the writes are not in the request.
    SendsNoLocks,
    /// Who holds a lock against a delivered one that changes nothing is not struck.
    StrikesForWritesOnly,
    /// Nobody is struck.
    StrikesNobody,
    /// What was delivered between the origin's last look and the request does not count.
    LooksAtDelivery,
    /// The image has no window of locks.
    WindowNotInImage,
    /// The image has no graph.
    GraphNotInImage,
    /// The graph is pruned by the oldest snapshot at the node itself.
    PrunesByItself,
    /// A request that comes twice is executed twice.
    KnowsNoRequest,
    /// Two requests of one name may commit.
    KnowsNoName,
    /// Under a name that was closed somebody may commit.
    ForgetsVoids,
    /// What is prepared keeps nobody out whose request was on its way.
    PreparedKeepsNobodyOut,
    /// What is undecided is not in the image.
    UndecidedNotInImage,
    /// A reader whose reads have to fit is judged at its own node alone, and enters its graph.
    ReadersStayHome,
    /// Who has written nothing is judged by nobody, whatever it has read.
    ReadersGoUnjudged,
    /// Who looked last below what is still known is judged by what is left.
    JudgesTheOld,
    /// Transactions whose reads are not shared go together with others as if they had read nothing.
    MixesFreely,
    /// A node's own vote counts for it before it is ordered.
    VotesUnordered,
    /// A weak voting transaction has the place of its vote, and not of its write set.
    VisibleByVote,
    /// An active transaction sees what was there when it was delivered, whoever is before it.
    ExecutesAtOnce,
    /// Locks beyond the writes are not in the window.
    WindowOfWrites,
    /// A delivered transaction lets go of its locks before what it changes is installed and shown.
    LetsGoBeforeShowing,
    /// The origin's last look (`bot`) comes after it is sealed.
    LooksAfterSealing,
    /// The mark that the last look reads moves before a position has struck, installed and shown.
    MarksBeforeShowing,
    /// A start begins at the newest image, wherever the base stands.
    BeginsAtNewestImage,
    /// Operations on a family are judged by what a node has in memory, of what runs there, too.
    FamiliesByMemory,
    /// Who meets what is prepared waits for the decision.
    QueuesBehindPrepared,
    /// The image has no verdicts by request.
    OutcomesNotInImage,
    /// The image does not know what has come in parts.
    PartsNotInImage,
    /// Who has the number of an earlier one is told that one's verdict.
    TakesTheNumberForIt,
    /// What was proposed and is lost keeps its locks.
    KeepsWhatIsLost,
    /// The metaprotocol's lists, as in a build of `protocol-alone`: no fault while one protocol is
    /// by itself.
    Lists,
}

impl Planted {
    /// All that are faults.
    pub const ALL: [Planted; 31] = [
        Planted::CertifiesAgainstBot,
        Planted::SendsNoLocks,
        Planted::StrikesForWritesOnly,
        Planted::StrikesNobody,
        Planted::LooksAtDelivery,
        Planted::WindowNotInImage,
        Planted::GraphNotInImage,
        Planted::PrunesByItself,
        Planted::KnowsNoRequest,
        Planted::KnowsNoName,
        Planted::ForgetsVoids,
        Planted::PreparedKeepsNobodyOut,
        Planted::UndecidedNotInImage,
        Planted::ReadersStayHome,
        Planted::ReadersGoUnjudged,
        Planted::JudgesTheOld,
        Planted::MixesFreely,
        Planted::VotesUnordered,
        Planted::VisibleByVote,
        Planted::ExecutesAtOnce,
        Planted::WindowOfWrites,
        Planted::LetsGoBeforeShowing,
        Planted::LooksAfterSealing,
        Planted::MarksBeforeShowing,
        Planted::BeginsAtNewestImage,
        Planted::FamiliesByMemory,
        Planted::QueuesBehindPrepared,
        Planted::OutcomesNotInImage,
        Planted::PartsNotInImage,
        Planted::TakesTheNumberForIt,
        Planted::KeepsWhatIsLost,
    ];
}

#[cfg(feature = "planted-faults")]
mod planting {
    use std::cell::{Cell, RefCell};

    use super::Planted;
    use crate::sync::thread_local;

    type Meanwhile = Option<Box<dyn FnOnce()>>;

    thread_local! {
        static NOW: Cell<Option<Planted>> = const { Cell::new(None) };
        static WHILE_SEALING: RefCell<Meanwhile> = const { RefCell::new(None) };
    }

    /// Plants a fault for this thread, or takes it out. Nothing more happens while it seals.
    pub fn plant(fault: Option<Planted>) {
        NOW.set(fault);
        WHILE_SEALING.set(None);
    }

    /// Has this done while this thread seals its next transaction: when nobody can strike it any
    /// more, and it is not proposed yet.
    pub fn while_sealing(what: impl FnOnce() + 'static) {
        WHILE_SEALING.set(Some(Box::new(what)));
    }

    pub(crate) fn sealing() {
        if let Some(what) = WHILE_SEALING.take() {
            what();
        }
    }

    pub(crate) fn is(fault: Planted) -> bool {
        NOW.get() == Some(fault)
    }
}

#[cfg(feature = "planted-faults")]
pub use planting::{plant, while_sealing};

/// Whether this rule is left out now.
#[inline]
pub(crate) fn is(fault: Planted) -> bool {
    #[cfg(feature = "planted-faults")]
    return planting::is(fault);
    #[cfg(not(feature = "planted-faults"))]
    {
        let _ = fault;
        false
    }
}

/// A transaction is being sealed: the moment for what a test wants to happen then.
#[inline]
pub(crate) fn sealing() {
    #[cfg(feature = "planted-faults")]
    planting::sealing();
}
