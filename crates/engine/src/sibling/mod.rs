//! Sibling transactions: Multi-Instance-Precommit (MIP), §§2 and 3.3 of its paper.
//!
//! A request has an identifier, its XID. It may be executed several times at once, under instance
//! numbers; all instances of one XID are *siblings* and form a *family*. At most one of them ever
//! commits, the *winner*. `family` is the state machine of one family, its MIP-Table (MIPT)
//! included; `change` is what of it is durable; `collected` remembers which families have been
//! forgotten. All three are pure: operations in, effects or a [`Refusal`] out. `operations` carries
//! them through in the engine: `registry` has the families that are in memory, `stored` is what
//! they are on disk, `ordered` does the same with what the order of a cluster's nodes says
//! (`replica` is the pure part of that), `clients` spares searches there, `member` is a
//! transaction's part, `doom` tells an active instance that it has no future.
//!
//! # Who is who
//!
//! - The *client* gives a request a fresh XID and numbers its attempts.
//! - An *application server* executes one instance at all sites, prepares it everywhere, reads the
//!   tables that come back, and commits the smallest instance that is prepared at every site. It
//!   remembers nothing.
//! - A *site* is a database like this one. The *stub* is the site's own retry, for requests that
//!   were left prepared.
//! - What is prepared at one site and aborted at another is *withdrawn* by whichever application
//!   server learns of it (`family`, *Refusals*).
//!
//! # Numbers of instances
//!
//! They order the instances and must not collide. The low [`LANE_BITS`] bits are the *lane*: 0 for
//! the client, 1 and up for the stubs of the sites. The rest is the *attempt*. Whoever retries
//! takes an attempt above the highest that it has heard of ([`Instance::above`]): so the lanes
//! interleave, and nobody's numbers are for ever below somebody else's tombstones, as they would be
//! if stubs had a range of their own on top.
//!
//! # What the caller owes
//!
//! - *One log unit.* An effect's change, and what else the operation logs (the prepared writes, the
//!   commit), go into one record.
//! - *Durable before told.* An answer that shows a family's state leaves only once the last record
//!   of that family is durable; also the answer to a COMMIT that comes again, whose record may
//!   still be on its way; and an abort that only memory knew.
//! - *One owner.* The transaction that began an instance is the only one that can prepare it.

mod change;
mod clients;
mod collected;
mod doom;
mod family;
mod lines;
mod member;
mod operations;
mod ordered;
mod refusal;
mod registry;
mod replica;
mod stored;

pub use change::Change;
pub use collected::Collected;
pub use doom::Doomed;
pub use family::{Answer, Effects, Entry, Family, Limits, Mipt, Outcome, State};
pub(crate) use member::Member;
pub use member::Prospect;
pub use operations::{Begun, InDoubt, Told};
pub use refusal::Refusal;
pub(crate) use registry::Families;

use std::fmt;
use std::sync::Arc;

/// Most bytes of an XID.
pub const XID_BYTES_MAX: usize = 200;
/// So many low bits of an instance number say who numbered it.
pub const LANE_BITS: u32 = 10;

/// A request or result string; cheap to clone.
pub type Text = Arc<str>;

/// Identifier of a request: text of 1 to [`XID_BYTES_MAX`] bytes without NUL.
///
/// The form `client/number` (a positive decimal number without leading zeros after the last slash)
/// has a meaning for [`Collected`], and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(Text);

impl Xid {
    /// Checks `text`.
    ///
    /// # Errors
    /// `XidEmpty`, `XidTooLong`, `XidHasNul`.
    pub fn new(text: impl AsRef<str> + Into<Text>) -> Result<Xid, Refusal> {
        match text.as_ref() {
            "" => Err(Refusal::XidEmpty),
            long if long.len() > XID_BYTES_MAX => Err(Refusal::XidTooLong { bytes: long.len() }),
            odd if odd.contains('\0') => Err(Refusal::XidHasNul),
            _ => Ok(Xid(text.into())),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The client and the number of its request, if this XID has that form.
    pub fn numbered(&self) -> Option<(&str, u64)> {
        let digits = self.0.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (client, number) = self.0.split_at(self.0.len() - digits);
        let client = client.strip_suffix('/').filter(|client| !client.is_empty())?;
        let number = number.parse::<u64>().ok().filter(|n| *n < u64::MAX && !number.starts_with('0'))?;
        Some((client, number))
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Number of an instance: positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance(i64);

impl Instance {
    /// Checks `number`.
    ///
    /// # Errors
    /// `InstanceNotPositive`.
    pub fn new(number: i64) -> Result<Instance, Refusal> {
        if number > 0 { Ok(Instance(number)) } else { Err(Refusal::InstanceNotPositive { number }) }
    }

    /// The number.
    pub fn get(self) -> i64 {
        self.0
    }

    /// The smallest number of `lane` whose attempt is above that of `highest`, which is the highest
    /// number heard of, or 0. `None` if the numbers are used up or there is no such lane.
    pub fn above(highest: i64, lane: u16) -> Option<Instance> {
        let attempt = (highest.max(0) >> LANE_BITS) + 1;
        let fits = u32::from(lane) < 1 << LANE_BITS && attempt <= i64::MAX >> LANE_BITS;
        fits.then(|| Instance(attempt << LANE_BITS | i64::from(lane)))
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
