//! Identifiers of requests: what may be one, and fresh ones.
//!
//! The sites' rule (`cognate_engine::sibling`): text of 1 to [`XID_BYTES_MAX`] bytes without NUL.
//! The form `client/number` lets a site keep one number for all requests of a client that are
//! acknowledged, if the client numbers them 1, 2, 3, … without gaps, and takes a new name whenever
//! it has lost count.

use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes of an XID.
pub const XID_BYTES_MAX: usize = 200;
/// Most bytes of a client's name, so that its XIDs fit.
pub const CLIENT_BYTES_MAX: usize = XID_BYTES_MAX - 21;

/// Why a text is no XID, or a number no instance's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// No byte.
    #[error("the XID is empty")]
    Empty,
    /// Too long.
    #[error("the XID has {bytes} bytes; at most {XID_BYTES_MAX} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A NUL, which PostgreSQL's protocol cannot carry.
    #[error("the XID contains a NUL")]
    HasNul,
    /// Instance numbers begin at 1.
    #[error("the instance number {0} is not positive")]
    NotPositive(i64),
}

/// Checks an XID.
///
/// # Errors
/// What is wrong with it.
pub fn check_xid(xid: &str) -> Result<(), BadKey> {
    match xid {
        "" => Err(BadKey::Empty),
        _ if xid.len() > XID_BYTES_MAX => Err(BadKey::TooLong { bytes: xid.len() }),
        _ if xid.contains('\0') => Err(BadKey::HasNul),
        _ => Ok(()),
    }
}

/// Fresh XIDs of one client, `client/1`, `client/2`, …
#[derive(Debug)]
pub struct Numbering {
    client: Box<str>,
    last: AtomicU64,
}

impl Numbering {
    /// For a client of this name, which nobody has used before.
    ///
    /// # Errors
    /// `TooLong`, `HasNul`.
    pub fn new(client: &str) -> Result<Numbering, BadKey> {
        if client.len() > CLIENT_BYTES_MAX {
            return Err(BadKey::TooLong { bytes: client.len() + 21 });
        }
        check_xid(&format!("{client}/1"))?;
        Ok(Numbering { client: client.into(), last: AtomicU64::new(0) })
    }

    /// The next.
    pub fn next(&self) -> String {
        format!("{}/{}", self.client, self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_keys_are_told_apart() {
        assert_eq!(check_xid(""), Err(BadKey::Empty));
        assert_eq!(check_xid(&"x".repeat(200)), Ok(()));
        assert_eq!(check_xid(&"x".repeat(201)), Err(BadKey::TooLong { bytes: 201 }));
        assert_eq!(check_xid("a\0b"), Err(BadKey::HasNul));
        assert_eq!(check_xid("it's 'quoted' /\\ ü"), Ok(()));
    }

    #[test]
    fn a_client_numbers_its_requests_without_gaps() {
        let numbering = Numbering::new("shop").unwrap();
        assert_eq!([numbering.next(), numbering.next()], ["shop/1", "shop/2"]);
        let longest = Numbering::new(&"c".repeat(CLIENT_BYTES_MAX)).unwrap();
        assert!(longest.next().len() + 19 <= XID_BYTES_MAX);
        assert!(Numbering::new(&"c".repeat(CLIENT_BYTES_MAX + 1)).is_err());
    }
}
