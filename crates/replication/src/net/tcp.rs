//! The network between nodes over TCP, with TLS if it is wanted.
//!
//! Each node dials each other one and keeps that connection for its own requests; the answers come
//! back on it, in any order. What it is asked itself comes by the connections that the others
//! dialed. So a cut of one direction is one: a node that can send and not hear is a case that
//! happens.
//!
//! ```text
//! node 1 ── requests ──▶ node 2          node 2 ── requests ──▶ node 1
//!        ◀── answers ───                        ◀── answers ───
//! frame  number (8) · request            frame  number (8) · answer
//! ```
//!
//! A machine that is lost or cut off says nothing any more, and the system would send again for
//! many minutes, at ever longer intervals. So what is not confirmed within seconds ends a
//! connection (`SILENCE`), and one on which nothing is under way is probed: after a cut both sides
//! find each other within a second or two.
//!
//! What the consensus is asked, the connection's task waits for itself, and writes the answer. What
//! takes computing or disks, like snapshots, has tasks of its own, and holds up nothing else.
//!
//! A connection that ends is dialed again, after a pause that grows to a second. Everything that
//! was under way on it is lost ([`CallError::Lost`]); nothing is sent again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{FuturesUnordered, unfold};
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::frame::{self, Stream};
use super::handshake::{Entered, HandshakeError, Other, admit, dial};
use super::{CallError, Identity, Network, Serve, Wire, lost};
use crate::application::Answer;
use crate::entry::NodeNumber;
use crate::error::StartError;
use crate::messages::{Kind, names_cluster};

/// How long somebody may take to make himself known.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long the other side's machine may confirm nothing of what was sent to it. A process that
/// only stands still is no silence: its machine confirms.
const SILENCE: Duration = Duration::from_secs(5);
/// How often a connection is probed on which nothing is sent.
const PROBE: Duration = Duration::from_secs(1);
/// How TLS begins: a handshake's record, of the version that all name there. A frame of that length
/// would be longer than those of a handshake between nodes may be.
const TLS_BEGINS: [u8; 3] = [0x16, 0x03, 0x01];
/// Connections that may be making themselves known at a time.
const STRANGERS: usize = 64;
/// Requests of one connection that may be answered at a time.
const AT_A_TIME: usize = 256;
/// Frames that wait to be written on one connection.
const QUEUE: usize = 64;
/// What is read or written of a connection at a time: a frame's length comes along with its bytes.
const BUFFER: usize = 64 << 10;
/// Pauses before a connection is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// TLS between nodes: both sides' settings are the caller's, and so is whom they trust.
#[derive(Clone)]
pub struct Tls {
    /// For connections that others dial.
    pub acceptor: TlsAcceptor,
    /// For connections that this node dials.
    pub connector: TlsConnector,
    /// The name that the others' certificates must have.
    pub name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a TCP network needs.
#[derive(Debug)]
pub struct TcpNetwork {
    /// The addresses of all nodes; this node listens on its own.
    pub peers: BTreeMap<NodeNumber, String>,
    /// The secret that all nodes share.
    pub secret: Bytes,
    /// TLS, if it is wanted.
    pub tls: Option<Tls>,
    /// Largest frame ([`crate::Limits::frame_bytes`]).
    pub frame_bytes: usize,
    /// A listener that is open already, instead of one on this node's address.
    pub listener: Option<std::net::TcpListener>,
}

struct Tcp {
    identity: Arc<Identity>,
    server: Arc<dyn Serve>,
    secret: Bytes,
    tls: Option<Tls>,
    frame_bytes: usize,
    peers: BTreeMap<NodeNumber, Arc<Peer>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    closed: watch::Sender<bool>,
    /// Why others were refused since somebody was let in: told once each.
    refusals: Mutex<BTreeSet<String>>,
}

/// Nothing waits to be sent together with more, and silence ends the connection.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let probes = (SILENCE.as_secs() / PROBE.as_secs()) as u32;
    let keepalive = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE).with_retries(probes);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(SILENCE))?;
    Ok(())
}

/// The way to one other node.
struct Peer {
    address: String,
    link: Mutex<Result<Arc<Link>, String>>,
}

/// A connection that this node dialed.
struct Link {
    out: mpsc::Sender<(u64, Bytes)>,
    next: AtomicU64,
    /// Who waits for which answer; `None` once the connection has ended.
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<Bytes>>>>,
}

/// Forgets a request whose caller has gone.
struct Waiting {
    link: Arc<Link>,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(waiting) = &mut *self.link.waiting.lock() {
            waiting.remove(&self.number);
        }
    }
}

impl Link {
    async fn call(self: Arc<Link>, request: Bytes) -> Result<Bytes, CallError> {
        let ended = || CallError::NotSent("the connection has ended".to_owned());
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        match &mut *self.waiting.lock() {
            Some(waiting) => waiting.insert(number, sender),
            None => return Err(ended()),
        };
        let waiting = Waiting { link: Arc::clone(&self), number };
        self.out.send((number, request)).await.map_err(|_| ended())?;
        let answer = answer.await;
        drop(waiting);
        answer.map_err(|_| CallError::Lost("the connection ended before the answer".to_owned()))
    }
}

impl Network for TcpNetwork {
    fn open(
        self: Box<Self>,
        identity: Arc<Identity>,
        server: Arc<dyn Serve>,
    ) -> Answer<'static, Result<Arc<dyn Wire>, StartError>> {
        Box::pin(async move {
            let failed = |what: String| StartError::Network(what);
            let node = identity.node();
            let own = self.peers.get(&node).cloned().unwrap_or_default();
            let listener = match self.listener {
                Some(open) => open.set_nonblocking(true).and_then(|()| TcpListener::from_std(open)),
                None => TcpListener::bind(&own).await,
            };
            let listener = listener.map_err(|error| failed(format!("{own}: {error}")))?;
            let others = self.peers.into_iter().filter(|(other, _)| *other != node);
            let peer = |address| Peer { address, link: Mutex::new(Err("not connected yet".to_owned())) };
            let tcp = Arc::new(Tcp {
                identity,
                server,
                secret: self.secret,
                tls: self.tls,
                frame_bytes: self.frame_bytes,
                peers: others.map(|(node, address)| (node, Arc::new(peer(address)))).collect(),
                tasks: Mutex::default(),
                closed: watch::channel(false).0,
                refusals: Mutex::default(),
            });
            let mut tasks = vec![tokio::spawn(Arc::clone(&tcp).listen(listener))];
            for (&node, peer) in &tcp.peers {
                tasks.push(tokio::spawn(Arc::clone(&tcp).keep(node, Arc::clone(peer))));
            }
            tcp.tasks.lock().extend(tasks);
            Ok(tcp as Arc<dyn Wire>)
        })
    }
}

impl Wire for Tcp {
    fn call(&self, to: NodeNumber, request: Bytes) -> Answer<'static, Result<Bytes, CallError>> {
        let link = match self.peers.get(&to) {
            // The connection may be older than that.
            Some(_) if self.identity.has_lost(to) => Err(lost(to)),
            Some(peer) => peer.link.lock().clone(),
            None => Err(format!("node {to} is not on the list")),
        };
        Box::pin(async move {
            let link = link.map_err(CallError::NotSent)?;
            link.call(request).await
        })
    }

    fn problem(&self, node: NodeNumber) -> Option<String> {
        match self.peers.get(&node) {
            Some(_) if self.identity.has_lost(node) => Some(lost(node)),
            Some(peer) => peer.link.lock().as_ref().err().cloned(),
            None => Some("it is not on the list".to_owned()),
        }
    }

    fn close(&self) -> Answer<'static, ()> {
        self.closed.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        Box::pin(async move {
            for task in tasks {
                if task.await.is_err() {
                    tracing::warn!("a task of the network between nodes panicked");
                }
            }
        })
    }
}

/// Says so if somebody begins TLS with a node that has none: read as a frame, that would be one of
/// a strange length.
async fn refuse_tls(plain: &TcpStream) -> Result<(), HandshakeError> {
    let mut first = [0; TLS_BEGINS.len()];
    let read = plain.peek(&mut first).await?;
    if read == TLS_BEGINS.len() && first == TLS_BEGINS {
        let why = "it speaks TLS, and this node does not: all nodes have cluster_tls_cert, or none";
        return Err(HandshakeError::Refuse(why.to_owned()));
    }
    Ok(())
}

/// Whoever has no TLS hangs up on one who begins it, and says no more.
fn without_tls(error: io::Error) -> io::Error {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    if !matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) {
        return error;
    }
    let what = format!("it does not answer by TLS ({error}): all nodes have cluster_tls_cert, or none");
    io::Error::new(error.kind(), what)
}

impl Tcp {
    /// Resolves once the network is closed.
    async fn until_closed(&self) {
        let mut closed = self.closed.subscribe();
        // An error means that the sender is gone, which is closed enough.
        let _ = closed.wait_for(|closed| *closed).await;
    }

    /// Keeps a connection to another node.
    async fn keep(self: Arc<Tcp>, node: NodeNumber, peer: Arc<Peer>) {
        let mut pause = PAUSES.0;
        let mut last_problem = String::new();
        loop {
            let connected = tokio::select! {
                biased;
                () = self.until_closed() => return,
                connected = timeout(HANDSHAKE, self.connect(node, &peer.address)) => connected,
            };
            match connected {
                Ok(Ok(stream)) => {
                    (pause, last_problem) = (PAUSES.0, String::new());
                    tracing::debug!(node, "connected");
                    self.run(stream, &peer).await;
                    *peer.link.lock() = Err("the connection ended".to_owned());
                }
                failed => {
                    let problem = match failed {
                        Ok(Err(error)) => error.to_string(),
                        _ => "no answer in time".to_owned(),
                    };
                    if problem != last_problem {
                        tracing::info!(node, address = peer.address, problem, "no connection");
                    }
                    last_problem.clone_from(&problem);
                    *peer.link.lock() = Err(problem);
                }
            }
            tokio::select! {
                biased;
                () = self.until_closed() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    async fn connect(&self, node: NodeNumber, address: &str) -> Result<Box<dyn Stream>, HandshakeError> {
        let plain = TcpStream::connect(address).await?;
        tune(&plain)?;
        let mut stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => {
                let connected = tls.connector.connect(tls.name.clone(), plain).await;
                Box::new(connected.map_err(without_tls)?)
            }
            None => Box::new(plain),
        };
        dial(&mut stream, &self.identity, &self.secret, node).await?;
        Ok(stream)
    }

    /// Sends requests and takes answers until the connection ends.
    async fn run(&self, stream: Box<dyn Stream>, peer: &Peer) {
        let (read, write) = tokio::io::split(stream);
        let read = BufReader::with_capacity(BUFFER, read);
        let (out, queue) = mpsc::channel(QUEUE);
        let link = Arc::new(Link { out, next: AtomicU64::new(0), waiting: Mutex::new(Some(HashMap::new())) });
        *peer.link.lock() = Ok(Arc::clone(&link));
        let ended = tokio::select! {
            biased;
            () = self.until_closed() => Ok(()),
            ended = write_frames(write, queue) => ended,
            ended = read_answers(read, &link, self.frame_bytes) => ended,
        };
        *link.waiting.lock() = None;
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection between nodes ended");
        }
    }

    async fn listen(self: Arc<Tcp>, listener: TcpListener) {
        let strangers = Arc::new(Semaphore::new(STRANGERS));
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.until_closed() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, address)) = accepted else {
                // Out of descriptors, perhaps: others may end meanwhile.
                tokio::time::sleep(PAUSES.0).await;
                continue;
            };
            let Ok(permit) = Arc::clone(&strangers).try_acquire_owned() else { continue };
            let tcp = Arc::clone(&self);
            tokio::spawn(async move {
                let admitted = tokio::select! {
                    biased;
                    () = tcp.until_closed() => return,
                    admitted = timeout(HANDSHAKE, tcp.admit(stream)) => admitted,
                };
                drop(permit);
                match admitted {
                    Ok(Ok((stream, entered))) => {
                        tcp.refusals.lock().clear();
                        tcp.answer(stream, entered).await;
                    }
                    Ok(Err(error)) => tcp.tell_refusal(address, &error),
                    Err(_) => tracing::info!(%address, "a connection between nodes did not say who it is"),
                }
            });
        }
    }

    /// Tells of a connection that was refused, unless that was told: others try again each second.
    fn tell_refusal(&self, address: SocketAddr, error: &HandshakeError) {
        let mut refusals = self.refusals.lock();
        if refusals.len() >= STRANGERS {
            refusals.clear();
        }
        if refusals.insert(error.to_string()) {
            tracing::info!(%address, %error, "refused a connection between nodes");
        }
    }

    async fn admit(&self, plain: TcpStream) -> Result<(Box<dyn Stream>, Entered<'_>), HandshakeError> {
        tune(&plain)?;
        let mut stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => Box::new(tls.acceptor.accept(plain).await?),
            None => {
                refuse_tls(&plain).await?;
                Box::new(plain)
            }
        };
        let entered = admit(&mut stream, &self.identity, &self.secret).await?;
        Ok((stream, entered))
    }

    /// Answers the requests of a node until its connection ends.
    async fn answer(&self, stream: Box<dyn Stream>, entered: Entered<'_>) {
        let other = entered.other;
        let (read, write) = tokio::io::split(stream);
        let read = BufReader::with_capacity(BUFFER, read);
        let (out, queue) = mpsc::channel(QUEUE);
        let ended = tokio::select! {
            biased;
            () = self.until_closed() => Ok(()),
            // First: what it answers is written at once.
            ended = self.read_requests(read, other, out) => ended,
            ended = write_frames(write, queue) => ended,
        };
        drop(entered);
        if let Err(error) = ended {
            tracing::debug!(node = other.node, %error, "a connection between nodes ended");
        }
    }

    async fn read_requests(
        &self,
        read: impl AsyncRead + Unpin,
        other: Other,
        out: mpsc::Sender<(u64, Bytes)>,
    ) -> std::io::Result<()> {
        // How often nodes had been forgotten when the other one was met.
        let mut met_at: Option<u64> = None;
        // What of a frame has been read is kept while answers come.
        let limit = self.frame_bytes;
        let frames = unfold(read, move |mut read| async move {
            let frame = frame::read(&mut read, limit).await.transpose()?;
            Some((frame, read))
        });
        let mut frames = std::pin::pin!(frames);
        let mut asked = FuturesUnordered::new();
        loop {
            let frame = tokio::select! {
                biased;
                Some((number, answer)) = asked.next() => {
                    if let Some(answer) = answer {
                        // Whoever writes has gone only if the connection has ended.
                        let _ = out.send((number, answer)).await;
                    }
                    continue;
                }
                frame = frames.next(), if asked.len() < AT_A_TIME => frame,
            };
            let Some(frame) = frame.transpose()? else { return Ok(()) };
            let (number, request) = open(frame)?;
            if !self.identity.hear(other.node, other.life) {
                return Err(std::io::Error::other("another process speaks as this node"));
            }
            // It comes again, and is told so.
            if self.identity.has_lost(other.node) {
                return Err(std::io::Error::other(lost(other.node)));
            }
            let forgettings = self.identity.forgettings();
            let is_unmet = met_at.is_none_or(|at| at != forgettings && self.identity.forgot(other.node));
            if is_unmet && names_cluster(&request) && self.identity.begun().is_some() {
                // The connection is older than the other's joining, which is durable now, or than
                // its coming again after it was removed.
                self.identity.meet(other.node, true, other.incarnation).map_err(std::io::Error::other)?;
                met_at = Some(forgettings);
            }
            let is_of_consensus = Kind::of(&request).is_some_and(Kind::is_of_consensus);
            let answer = self.server.serve(other.node, request);
            asked.push(async move {
                let answer = match is_of_consensus {
                    true => Some(answer.await),
                    // There is none if the task panics. It goes on if the connection ends.
                    false => tokio::spawn(answer).await.ok(),
                };
                (number, answer)
            });
        }
    }
}

/// Writes frames as they come, and flushes when no more of them wait.
async fn write_frames(
    write: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<(u64, Bytes)>,
) -> std::io::Result<()> {
    let mut write = BufWriter::with_capacity(BUFFER, write);
    while let Some((number, body)) = queue.recv().await {
        frame::write(&mut write, &[&number.to_le_bytes(), &body]).await?;
        while let Ok((number, body)) = queue.try_recv() {
            frame::write(&mut write, &[&number.to_le_bytes(), &body]).await?;
        }
        write.flush().await?;
    }
    Ok(())
}

async fn read_answers(mut read: impl AsyncRead + Unpin, link: &Link, limit: usize) -> std::io::Result<()> {
    while let Some(frame) = frame::read(&mut read, limit).await? {
        let (number, answer) = open(frame)?;
        let waiting = link.waiting.lock().as_mut().and_then(|waiting| waiting.remove(&number));
        if let Some(waiting) = waiting {
            // The caller may have gone.
            let _ = waiting.send(answer);
        }
    }
    Ok(())
}

fn open(mut frame: Bytes) -> std::io::Result<(u64, Bytes)> {
    if frame.len() < 8 {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "a frame without a number"));
    }
    let mut number = [0; 8];
    number.copy_from_slice(&frame.split_to(8));
    Ok((u64::from_le_bytes(number), frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the system does of it shows only where machines are cut off from each other.
    #[tokio::test]
    async fn a_connection_ends_by_silence_and_is_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let (dialed, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        for stream in [dialed.expect("dialed"), accepted.expect("accepted").0] {
            tune(&stream).expect("tuned");
            let socket = SockRef::from(&stream);
            assert!(stream.nodelay().expect("known") && socket.keepalive().expect("known"));
            #[cfg(target_os = "linux")]
            {
                assert_eq!(socket.tcp_user_timeout().expect("known"), Some(SILENCE));
                assert_eq!(socket.tcp_keepalive_time().expect("known"), PROBE);
                assert_eq!(socket.tcp_keepalive_interval().expect("known"), PROBE);
            }
        }
    }
}
