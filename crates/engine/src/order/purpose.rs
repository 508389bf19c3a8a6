//! What a request is for, if it is not a commit: a transaction that is prepared, a decision about
//! one, an operation on a family of siblings, the end of a name, or a part of a request that is too
//! large for one.
//!
//! It follows the rest of the request:
//!
//! ```text
//! kind: 1 byte             1 = PREPARE, 2 = ROLLBACK PREPARED, 3 = COMMIT PREPARED, 4 = an operation on a family,
//!                          5 = a voter, 6 and 7 = a vote against and for, 8 = a program, 9 = a void,
//!                          10 = part, 11 = whole, 12 = given up
//! PREPARE                  wall clock in microseconds, owner as in the row of a prepared transaction, note
//! decision                 the identifier
//! operation                1 byte: 1 = COMMIT, 2 = ROLLBACK, 3 = REFUSE, each with its instance, 4 = SHOW, 5 = FORGET;
//!                          XID, ended instances
//! vote                     the transaction
//! program                  length, bytes
//! void                     the name
//! part                     transaction id, number of the part from 0, bytes of all parts together, its bytes
//! whole                    count of the parts, their bytes together, trees that the transaction has made
//! given up                 transaction id, name length + 1 and name (0 = none)
//! ```
//!
//! *Ended instances* are those that were begun at the request's node and given up there. Nobody
//! else knows of them. Whoever is shown a family's table may act on what it tells as aborted, so
//! what is given up is ordered first: it goes along.

use crate::payload::{Encoder, Input};
use crate::prepared::record::{Owner, decode_owner, encode_owner};
use crate::sibling::{Instance, Text, Xid};
use crate::{TransactionId, TreeId, Value};

const PREPARE: u8 = 1;
const ROLLBACK_PREPARED: u8 = 2;
const COMMIT_PREPARED: u8 = 3;
const ON_FAMILY: u8 = 4;
const VOTING: u8 = 5;
const VOTE_AGAINST: u8 = 6;
const VOTE_FOR: u8 = 7;
const EXECUTE: u8 = 8;
const VOID: u8 = 9;
const PART: u8 = 10;
const WHOLE: u8 = 11;
const GIVEN_UP: u8 = 12;

/// What a request is for.
#[derive(Debug, Default)]
pub(crate) enum Purpose {
    /// Its transaction commits.
    #[default]
    Commit,
    /// Its transaction is prepared.
    Prepare(Box<Preparing>),
    /// The prepared transaction of this identifier is decided.
    Decide { identifier: Box<str>, commits: bool },
    /// Something is done to a family.
    OnFamily(Box<OnFamily>),
    /// Its transaction commits if its origin votes for that: weak voting.
    Voting,
    /// What is said of a transaction that waits for a vote: by its origin, or against it by
    /// anybody.
    Vote { of: TransactionId, commits: bool },
    /// Its statements are executed at every node: active replication.
    Execute(Box<[u8]>),
    /// Nobody commits under this name any more (`void`).
    Void { name: Box<str> },
    /// A part of what a transaction is going to ask for (`arriving`).
    Part(Box<Part>),
    /// Its transaction commits, and what it has done has come before, in parts.
    Whole(Box<Whole>),
    /// This transaction does not come to its end: its parts are of no use. Its client has called it
    /// so.
    GiveUp { of: TransactionId, name: Option<Box<str>> },
}

/// A part of a request that is too large for one.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) of: TransactionId,
    /// From 0.
    pub(crate) number: u64,
    /// Bytes of all parts together: there has to be room for them before the first one comes.
    pub(crate) all: u64,
    pub(crate) bytes: Value,
}

/// What has come in parts.
#[derive(Debug, Clone)]
pub(crate) struct Whole {
    /// How many there are.
    pub(crate) parts: u64,
    /// Their bytes together.
    pub(crate) bytes: u64,
    /// Trees that the transaction has made: nobody else knows of them before it commits.
    pub(crate) made: Vec<TreeId>,
}

/// What a transaction is prepared with.
#[derive(Debug)]
pub(crate) struct Preparing {
    /// When, by the clock of its node.
    pub(crate) prepared_us: i64,
    pub(crate) owner: Owner,
    /// The family's request and the result, of an instance.
    pub(crate) texts: (Text, Text),
    pub(crate) note: Value,
}

/// An operation on a family, at whichever node it was asked for.
#[derive(Debug)]
pub(crate) struct OnFamily {
    pub(crate) xid: Xid,
    pub(crate) operation: Operation,
    /// See the module's prose.
    pub(crate) ended: Vec<Instance>,
}

/// What is done to a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// COMMIT MIP.
    Commit(Instance),
    /// ROLLBACK MIP.
    Rollback(Instance),
    /// REFUSE MIP.
    Refuse(Instance),
    /// SHOW MIPT.
    Show,
    /// FORGET MIP.
    Forget,
}

impl Purpose {
    /// Whether it is about a transaction that ends with it, and not about others.
    pub(crate) fn is_of_transaction(&self) -> bool {
        match self {
            Purpose::Commit
            | Purpose::Prepare(_)
            | Purpose::Voting
            | Purpose::Execute(_)
            | Purpose::Whole(_) => true,
            Purpose::Decide { .. }
            | Purpose::OnFamily(_)
            | Purpose::Vote { .. }
            | Purpose::Void { .. }
            | Purpose::Part(_)
            | Purpose::GiveUp { .. } => false,
        }
    }

    /// Whether it is the commit of a transaction.
    pub(crate) fn is_commit(&self) -> bool {
        matches!(self, Purpose::Commit | Purpose::Voting | Purpose::Execute(_))
    }

    /// Whether it is the commit of a transaction whose reads only its origin knows, or nobody.
    pub(crate) fn is_unshared(&self) -> bool {
        matches!(self, Purpose::Voting | Purpose::Execute(_))
    }

    /// The family of an instance that is prepared.
    pub(super) fn family(&self) -> Option<&Xid> {
        match self {
            Purpose::Prepare(preparing) => match &preparing.owner {
                Owner::Instance(xid, _) => Some(xid),
                Owner::Global(_) => None,
            },
            _ => None,
        }
    }

    /// The name under which nobody is to commit any more.
    pub(super) fn closes(&self) -> Option<&str> {
        match self {
            Purpose::Void { name } => Some(name),
            _ => None,
        }
    }

    pub(super) fn encode(&self, out: &mut Encoder, id: TransactionId) {
        match self {
            Purpose::Commit => unreachable!("transaction {id} says nothing more than that it commits"),
            Purpose::Prepare(preparing) => {
                let Preparing { prepared_us, owner, texts, note } = &**preparing;
                out.byte(PREPARE);
                out.varint(prepared_us.max(&0).unsigned_abs());
                encode_owner(out, owner, texts);
                out.string(note);
            }
            Purpose::Decide { identifier, commits } => {
                out.byte(if *commits { COMMIT_PREPARED } else { ROLLBACK_PREPARED });
                out.string(identifier.as_bytes());
            }
            Purpose::OnFamily(on) => {
                out.byte(ON_FAMILY);
                let (operation, instance) = match on.operation {
                    Operation::Commit(instance) => (1, Some(instance)),
                    Operation::Rollback(instance) => (2, Some(instance)),
                    Operation::Refuse(instance) => (3, Some(instance)),
                    Operation::Show => (4, None),
                    Operation::Forget => (5, None),
                };
                out.byte(operation);
                if let Some(instance) = instance {
                    out.varint(instance.get().unsigned_abs());
                }
                out.string(on.xid.as_str().as_bytes());
                out.list(&on.ended, |out, instance| out.varint(instance.get().unsigned_abs()));
            }
            Purpose::Voting => out.byte(VOTING),
            Purpose::Vote { of, commits } => {
                out.byte(if *commits { VOTE_FOR } else { VOTE_AGAINST });
                out.varint(*of);
            }
            Purpose::Execute(program) => {
                out.byte(EXECUTE);
                out.string(program);
            }
            Purpose::Void { name } => {
                out.byte(VOID);
                out.string(name.as_bytes());
            }
            Purpose::Part(part) => {
                out.byte(PART);
                out.varint(part.of);
                out.varint(part.number);
                out.varint(part.all);
                out.string(&part.bytes);
            }
            Purpose::Whole(whole) => {
                out.byte(WHOLE);
                out.varint(whole.parts);
                out.varint(whole.bytes);
                out.list(&whole.made, |out, tree| out.varint(u64::from(*tree)));
            }
            Purpose::GiveUp { of, name } => {
                out.byte(GIVEN_UP);
                out.varint(*of);
                out.optional(name.as_deref().map(str::as_bytes));
            }
        }
    }

    pub(super) fn decode(input: &mut Input<'_>) -> Result<Purpose, String> {
        match input.byte()? {
            PREPARE => {
                let prepared_us = i64::try_from(input.varint()?).map_err(|_| "a time out of range")?;
                let (owner, texts) = decode_owner(input)?;
                let note = Value::copy_from_slice(input.string()?);
                Ok(Purpose::Prepare(Box::new(Preparing { prepared_us, owner, texts, note })))
            }
            kind @ (ROLLBACK_PREPARED | COMMIT_PREPARED) => {
                let identifier = text(input.string()?)?.into();
                Ok(Purpose::Decide { identifier, commits: kind == COMMIT_PREPARED })
            }
            ON_FAMILY => {
                let operation = match input.byte()? {
                    1 => Operation::Commit(instance(input)?),
                    2 => Operation::Rollback(instance(input)?),
                    3 => Operation::Refuse(instance(input)?),
                    4 => Operation::Show,
                    5 => Operation::Forget,
                    other => return Err(format!("the unknown operation {other} on a family")),
                };
                let xid = Xid::new(text(input.string()?)?).map_err(|refusal| refusal.to_string())?;
                let ended = input.list(instance)?;
                Ok(Purpose::OnFamily(Box::new(OnFamily { xid, operation, ended })))
            }
            VOTING => Ok(Purpose::Voting),
            kind @ (VOTE_AGAINST | VOTE_FOR) => {
                Ok(Purpose::Vote { of: input.varint()?, commits: kind == VOTE_FOR })
            }
            EXECUTE => Ok(Purpose::Execute(input.string()?.into())),
            VOID => Ok(Purpose::Void { name: text(input.string()?)?.into() }),
            PART => {
                let (of, number, all) = (input.varint()?, input.varint()?, input.varint()?);
                let bytes = Value::copy_from_slice(input.string()?);
                Ok(Purpose::Part(Box::new(Part { of, number, all, bytes })))
            }
            WHOLE => {
                let (parts, bytes) = (input.varint()?, input.varint()?);
                let made = input.list(|input| input.tree())?;
                Ok(Purpose::Whole(Box::new(Whole { parts, bytes, made })))
            }
            GIVEN_UP => {
                let of = input.varint()?;
                let name = input.optional()?.map(text).transpose()?.map(Box::from);
                Ok(Purpose::GiveUp { of, name })
            }
            other => Err(format!("a request for the unknown purpose {other}")),
        }
    }
}

fn instance(input: &mut Input<'_>) -> Result<Instance, String> {
    let number = i64::try_from(input.varint()?).map_err(|_| "an instance out of range".to_owned())?;
    Instance::new(number).map_err(|refusal| refusal.to_string())
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "a text that is not UTF-8".to_owned())
}
