//! How two nodes come to know each other, before anything else is said on a connection.
//!
//! ```text
//! dialer                          listener
//! hello(nonce a)  ──────────────▶
//!                 ◀────────────── challenge(nonce b, proof that it knows the secret)
//! proof           ──────────────▶
//!                 ◀────────────── welcome
//! ```
//!
//! Either side may say why it refuses instead. A proof is an HMAC, by the shared secret, of which
//! side it is and of everything that both have said; so it proves nothing on another connection,
//! and the secret never travels. What follows is not protected by it: between machines that are
//! not trusted with the network, TLS is.
//!
//! Refused are: another version, another cluster, a wrong secret, a node that is not on the list or
//! on whose list this one is not, the number of this node itself, and a number that was here before
//! with other data, or is another process's at the time. Nodes that belong to no cluster yet must
//! have equal lists.

use std::collections::BTreeSet;
use std::io;

use bytes::Bytes;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use tokio::io::AsyncWriteExt;

use super::Identity;
use super::frame::{self, Stream};
use crate::codec::{Coded, Malformed, Reader, coded_fields};
use crate::entry::{ClusterId, NodeNumber};

/// Version of the handshake, of the messages and of what they carry, and of the rules by which that
/// is judged: nodes that come to other verdicts would part.
pub(crate) const PROTOCOL: u32 = 7;

const MAGIC: [u8; 8] = *b"COGNREPL";

/// Frames of a handshake are small.
const LIMIT: usize = 64 << 10;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// This side refuses the other.
    #[error("{0}")]
    Refuse(String),
    /// The other side refuses this one.
    #[error("refused by node {0}: {1}")]
    Refused(NodeNumber, String),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Malformed> for HandshakeError {
    fn from(malformed: Malformed) -> HandshakeError {
        HandshakeError::Refuse(format!("it does not speak as a node does: {malformed}"))
    }
}

/// Who is there. Only a cluster that has begun is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    cluster: Option<ClusterId>,
    pub(crate) node: NodeNumber,
    /// Whom it believes to speak to.
    target: NodeNumber,
    incarnation: u64,
    life: u64,
    numbers: BTreeSet<NodeNumber>,
    nonce: [u8; 32],
}

/// Who was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Other {
    pub(crate) node: NodeNumber,
    pub(crate) incarnation: u64,
    /// Of its process.
    pub(crate) life: u64,
}

/// Somebody who was let in, for as long as this lives: however a connection ends, and a handshake
/// that is given up half-way, whoever speaks as the node is not counted for it any more.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    identity: &'a Identity,
    pub(crate) other: Other,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.identity.leave(self.other.node, self.other.life);
    }
}

coded_fields!(Hello { cluster, node, target, incarnation, life, numbers, nonce });

impl Hello {
    fn of(identity: &Identity, target: NodeNumber) -> Hello {
        Hello {
            cluster: identity.begun(),
            node: identity.node(),
            target,
            incarnation: identity.incarnation(),
            life: identity.life(),
            numbers: identity.numbers(),
            nonce: rand::random(),
        }
    }

    /// Magic and version are read first, whatever follows them in other versions.
    fn encode_all(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        PROTOCOL.put(&mut out);
        self.put(&mut out);
        out
    }

    fn decode_all(bytes: Bytes) -> Result<Hello, HandshakeError> {
        let mut reader = Reader::new(bytes);
        if <[u8; 8]>::get(&mut reader)? != MAGIC {
            return Err(Malformed("no greeting").into());
        }
        let version = u32::get(&mut reader)?;
        if version != PROTOCOL {
            let what = format!("it speaks version {version} between nodes, this node version {PROTOCOL}");
            return Err(HandshakeError::Refuse(what));
        }
        Ok(Hello::decode(reader.rest())?)
    }
}

/// Whether `other` may be connected to the node whose own greeting is `own`; if not, why.
fn judge(own: &Hello, other: &Hello) -> Result<(), String> {
    let (node, number) = (own.node, other.node);
    if number == node {
        return Err(format!("a second node of number {node}"));
    }
    if other.target != node {
        return Err(format!("node {number} looks for node {} where node {node} is", other.target));
    }
    if !own.numbers.contains(&number) {
        return Err(format!("node {number} is not on the list of node {node}"));
    }
    if !other.numbers.contains(&node) {
        return Err(format!("node {node} is not on the list of node {number}"));
    }
    match (own.cluster, other.cluster) {
        (Some(own), Some(other)) if own != other => {
            Err(format!("node {number} belongs to another cluster than node {node}"))
        }
        (None, None) if own.numbers != other.numbers => Err(format!(
            "the lists differ: node {node} has the nodes {}, node {number} has {}",
            list(&own.numbers),
            list(&other.numbers)
        )),
        _ => Ok(()),
    }
}

fn list(numbers: &BTreeSet<NodeNumber>) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(", ")
}

fn proof(secret: &[u8], side: &[u8], hello: &[u8], challenge: &[u8]) -> Hmac<Sha256> {
    // A key of any length will do.
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(secret).unwrap_or_else(|_| unreachable!());
    for part in [side, hello, challenge] {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac
}

const DIALER: &[u8] = b"cognate dialer";
const LISTENER: &[u8] = b"cognate listener";

/// Makes oneself known to the node that was dialed, or tells it why not.
pub(crate) async fn dial(
    stream: &mut impl Stream,
    identity: &Identity,
    secret: &[u8],
    target: NodeNumber,
) -> Result<(), HandshakeError> {
    let known = greet(stream, identity, secret, target).await;
    if let Err(HandshakeError::Refuse(why)) = &known {
        refuse(stream, why).await?;
    }
    known
}

async fn greet(
    stream: &mut impl Stream,
    identity: &Identity,
    secret: &[u8],
    target: NodeNumber,
) -> Result<(), HandshakeError> {
    let own = Hello::of(identity, target);
    let hello = own.encode_all();
    send(stream, &[&hello]).await?;
    let challenge = receive(stream, target).await?;
    let Some(split) = challenge.len().checked_sub(32) else { return Err(Malformed("no challenge").into()) };
    let (challenge, proved) = (challenge.slice(..split), challenge.slice(split..));
    let other = Hello::decode_all(challenge.clone())?;
    if proof(secret, LISTENER, &hello, &challenge).verify_slice(&proved).is_err() {
        return Err(HandshakeError::Refuse(format!("node {target} does not know the cluster's secret")));
    }
    if other.node != target {
        let what = format!("node {} is where node {target} should be", other.node);
        return Err(HandshakeError::Refuse(what));
    }
    judge(&own, &other).map_err(HandshakeError::Refuse)?;
    identity.meet(other.node, other.cluster.is_some(), other.incarnation).map_err(HandshakeError::Refuse)?;
    send(stream, &[&proof(secret, DIALER, &hello, &challenge).finalize().into_bytes()]).await?;
    receive(stream, target).await?;
    Ok(())
}

/// Lets somebody in, or says why not. Returns who it is.
pub(crate) async fn admit<'a>(
    stream: &mut impl Stream,
    identity: &'a Identity,
    secret: &[u8],
) -> Result<Entered<'a>, HandshakeError> {
    let admitted = examine(stream, identity, secret).await;
    match &admitted {
        Ok(_) => send(stream, &[]).await?,
        Err(HandshakeError::Refuse(why)) => refuse(stream, why).await?,
        Err(_) => {}
    }
    admitted
}

async fn examine<'a>(
    stream: &mut impl Stream,
    identity: &'a Identity,
    secret: &[u8],
) -> Result<Entered<'a>, HandshakeError> {
    let hello = receive(stream, 0).await?;
    let other = Hello::decode_all(hello.clone())?;
    let own = Hello::of(identity, other.node);
    let challenge = own.encode_all();
    let proved = proof(secret, LISTENER, &hello, &challenge).finalize().into_bytes();
    send(stream, &[&challenge, &proved]).await?;
    let proved = receive(stream, other.node).await?;
    if proof(secret, DIALER, &hello, &challenge).verify_slice(&proved).is_err() {
        return Err(HandshakeError::Refuse("it does not know the cluster's secret".to_owned()));
    }
    judge(&own, &other).map_err(HandshakeError::Refuse)?;
    identity.meet(other.node, other.cluster.is_some(), other.incarnation).map_err(HandshakeError::Refuse)?;
    identity.enter(other.node, other.life).map_err(HandshakeError::Refuse)?;
    let other = Other { node: other.node, incarnation: other.incarnation, life: other.life };
    Ok(Entered { identity, other })
}

/// Sends 0 and the parts.
async fn send(stream: &mut impl Stream, parts: &[&[u8]]) -> io::Result<()> {
    let all: Vec<&[u8]> = std::iter::once(&[0][..]).chain(parts.iter().copied()).collect();
    frame::write(stream, &all).await?;
    stream.flush().await
}

/// Sends 1 and why.
async fn refuse(stream: &mut impl Stream, why: &str) -> io::Result<()> {
    frame::write(stream, &[&[1], why.as_bytes()]).await?;
    stream.flush().await
}

/// Receives the parts that follow a 0, or why one was refused.
async fn receive(stream: &mut impl Stream, from: NodeNumber) -> Result<Bytes, HandshakeError> {
    let frame = frame::read(stream, LIMIT).await?;
    let frame = frame.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    match frame.first() {
        Some(0) => Ok(frame.slice(1..)),
        Some(1) => Err(HandshakeError::Refused(from, String::from_utf8_lossy(&frame[1..]).into_owned())),
        _ => Err(Malformed("an empty answer").into()),
    }
}

#[cfg(test)]
mod tests;
