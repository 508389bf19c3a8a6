//! Why an operation on a family was refused. A refused operation has changed nothing.

use super::{Instance, XID_BYTES_MAX};

/// One variant for each bad input; each gets its own SQLSTATE.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An XID without a byte.
    #[error("the XID is empty")]
    XidEmpty,
    /// An XID that is too long.
    #[error("the XID has {bytes} bytes; at most {XID_BYTES_MAX} are allowed")]
    XidTooLong {
        /// Its length.
        bytes: usize,
    },
    /// An XID with a NUL.
    #[error("the XID contains a NUL")]
    XidHasNul,
    /// Instance numbers begin at 1.
    #[error("the instance number {number} is not positive")]
    InstanceNotPositive {
        /// What was given.
        number: i64,
    },
    /// BEGIN, or PREPARE, of an instance that is active in another transaction or is prepared. Take
    /// a higher number.
    #[error("instance {instance} is already in use")]
    InstanceInUse {
        /// The instance.
        instance: Instance,
        /// The highest number heard of here.
        highest: Instance,
    },
    /// BEGIN, COMMIT or ROLLBACK of an instance that is aborted for ever: rolled back, or below a
    /// prepared one. Take a higher number.
    #[error("instance {instance} is aborted")]
    InstanceAborted {
        /// The instance.
        instance: Instance,
        /// The highest number heard of here.
        highest: Instance,
    },
    /// PREPARE, COMMIT or ROLLBACK of an instance that was never begun here, or was lost in a crash
    /// before it was prepared.
    #[error("instance {instance} is not known")]
    InstanceUnknown {
        /// The instance.
        instance: Instance,
    },
    /// COMMIT of an instance that is still active. Prepare it first.
    #[error("instance {instance} is not prepared")]
    InstanceNotPrepared {
        /// The instance.
        instance: Instance,
    },
    /// COMMIT of another instance than the winner, or ROLLBACK of the winner.
    #[error("instance {winner} is committed already")]
    DecidedOtherwise {
        /// The committed instance.
        winner: Instance,
    },
    /// PREPARE with another request string than the family's. The XID was used for two requests.
    #[error("the request differs from the one that the family was prepared with")]
    RequestDiffers,
    /// A request string over the limit.
    #[error("the request string has {bytes} bytes; at most {limit} are allowed")]
    RequestTooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A result string over the limit.
    #[error("the result string has {bytes} bytes; at most {limit} are allowed")]
    ResultTooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// FORGET of a family without a winner. Commit first, or let the stub finish it.
    #[error("the family is not decided")]
    NotDecided,
    /// FORGET, COMMIT or SHOW of an XID that nothing is known of.
    #[error("the family is not known")]
    FamilyUnknown,
    /// The family was decided and forgotten, because its client had acknowledged the answer.
    #[error("the family has been forgotten")]
    Forgotten,
}
