//! What the log says of a family.
//!
//! Integers are varints (seven bits a byte, lowest first; the top bit says that more follow); a string is its length in bytes and its UTF-8.
//!
//! ```text
//! version: 1 byte   1
//! kind: 1 byte      1 = prepare, 2 = rollback of a prepared instance, 3 = commit, 4 = forget
//! XID               string
//! instance          kinds 1 to 3
//! request, result   kind 1 only: strings
//! ```
//!
//! Nothing follows. The log guards the bytes with a checksum; bytes that do not decode were written by another version or are a defect.

use super::{Instance, Text, Xid};

const VERSION: u8 = 1;
const PREPARE: u8 = 1;
const ROLLBACK: u8 = 2;
const COMMIT: u8 = 3;
const FORGET: u8 = 4;

/// A durable change of a family.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// The instance is prepared, and tombstones stand below it.
    Prepare {
        /// The instance.
        instance: Instance,
        /// The family's request.
        request: Text,
        /// The instance's result.
        result: Text,
    },
    /// A prepared instance is aborted.
    Rollback {
        /// The instance.
        instance: Instance,
    },
    /// A prepared instance is committed, all others are aborted.
    Commit {
        /// The instance.
        winner: Instance,
    },
    /// The family is forgotten.
    Forget,
}

impl Change {
    /// Appends the change, of the family `xid`, to `bytes`.
    pub fn encode(&self, xid: &Xid, bytes: &mut Vec<u8>) {
        let (kind, instance) = match self {
            Change::Prepare { instance, .. } => (PREPARE, Some(instance)),
            Change::Rollback { instance } => (ROLLBACK, Some(instance)),
            Change::Commit { winner } => (COMMIT, Some(winner)),
            Change::Forget => (FORGET, None),
        };
        bytes.extend([VERSION, kind]);
        string(bytes, xid.as_str());
        if let Some(instance) = instance {
            varint(bytes, instance.get().unsigned_abs());
        }
        if let Change::Prepare { request, result, .. } = self {
            string(bytes, request);
            string(bytes, result);
        }
    }

    /// Reads a change and its family from exactly these bytes.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub fn decode(bytes: &[u8]) -> Result<(Xid, Change), String> {
        let mut input = Input { rest: bytes };
        let version = input.byte()?;
        if version != VERSION {
            return Err(format!("a change of a family in the unknown version {version}"));
        }
        let kind = input.byte()?;
        let xid = Xid::new(input.string()?).map_err(|refusal| refusal.to_string())?;
        let change = match kind {
            PREPARE => Change::Prepare {
                instance: input.instance()?,
                request: input.string()?.into(),
                result: input.string()?.into(),
            },
            ROLLBACK => Change::Rollback { instance: input.instance()? },
            COMMIT => Change::Commit { winner: input.instance()? },
            FORGET => Change::Forget,
            _ => return Err(format!("a change of a family of the unknown kind {kind}")),
        };
        if input.rest.is_empty() { Ok((xid, change)) } else { Err("bytes after the change".to_owned()) }
    }
}

fn varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn string(bytes: &mut Vec<u8>, text: &str) {
    varint(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, String> {
        let (first, rest) = self.rest.split_first().ok_or("the change ends early")?;
        self.rest = rest;
        Ok(*first)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a number of more than 64 bits".to_owned())
    }

    fn instance(&mut self) -> Result<Instance, String> {
        let number = i64::try_from(self.varint()?).map_err(|_| "an instance number out of range")?;
        Instance::new(number).map_err(|refusal| refusal.to_string())
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let length = usize::try_from(self.varint()?).map_err(|_| "a string out of range")?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or("the change ends early")?;
        self.rest = rest;
        std::str::from_utf8(bytes).map_err(|_| "a string that is not UTF-8".to_owned())
    }
}
