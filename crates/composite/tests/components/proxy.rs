//! A door in front of a component that loses requests, loses answers, says requests twice and
//! delivers them late.
//!
//! It knows messages by their lengths and nothing else of HTTP. Each goes to its component over a
//! connection of its own; where that is, may change at any time.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::process::{END, Failure, port};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest delay of a message, which is longer than the deadlines of the requests.
const LATE_MS: u64 = 4000;

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Delivered,
    RequestLost,
    AnswerLost,
    Twice,
    Late,
}

/// How many messages had each fate.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) delivered: AtomicUsize,
    pub(crate) requests_lost: AtomicUsize,
    pub(crate) answers_lost: AtomicUsize,
    pub(crate) twice: AtomicUsize,
    pub(crate) late: AtomicUsize,
}

/// A door.
pub(crate) struct Proxy {
    pub(crate) door: SocketAddr,
    target: Mutex<SocketAddr>,
    chance: Mutex<StdRng>,
    is_calm: AtomicBool,
    under_way: AtomicUsize,
    pub(crate) counts: Counts,
}

impl Proxy {
    /// Opens a door.
    pub(crate) fn open(target: SocketAddr, seed: u64) -> Result<Arc<Proxy>, Failure> {
        let listener = TcpListener::bind(port()?)?;
        let proxy = Arc::new(Proxy {
            door: listener.local_addr()?,
            target: Mutex::new(target),
            chance: Mutex::new(StdRng::seed_from_u64(seed)),
            is_calm: AtomicBool::new(false),
            under_way: AtomicUsize::new(0),
            counts: Counts::default(),
        });
        let accepting = Arc::clone(&proxy);
        // It ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let proxy = Arc::clone(&accepting);
                thread::spawn(move || proxy.serve(&client));
            }
        });
        Ok(proxy)
    }

    /// Its component is somewhere else now.
    pub(crate) fn leads_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// From now on all messages are delivered once and at once. Waits for those that are still
    /// late.
    pub(crate) fn calm_down(&self) -> Result<(), Failure> {
        self.is_calm.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        while self.under_way.load(Ordering::SeqCst) > 0 {
            if begun.elapsed() > END {
                return Err("messages are still under way".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// What becomes of the next message, and how late it is.
    fn fate(&self) -> (Fate, Duration) {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let late = Duration::from_millis(chance.random_range(0..LATE_MS));
        let (fate, count) = match chance.random_range(0..200) {
            _ if self.is_calm.load(Ordering::SeqCst) => (Fate::Delivered, &self.counts.delivered),
            0 | 1 => (Fate::RequestLost, &self.counts.requests_lost),
            2 | 3 => (Fate::AnswerLost, &self.counts.answers_lost),
            4..8 => (Fate::Twice, &self.counts.twice),
            8 => (Fate::Late, &self.counts.late),
            _ => (Fate::Delivered, &self.counts.delivered),
        };
        count.fetch_add(1, Ordering::Relaxed);
        (fate, late)
    }

    /// One client's connection, until it ends or a message is lost: the client then sees it end.
    fn serve(self: &Arc<Self>, client: &TcpStream) {
        let Ok(reading) = client.try_clone() else { return };
        let mut requests = BufReader::new(reading);
        while let Ok(Some(request)) = message(&mut requests) {
            let is_last = String::from_utf8_lossy(&request).contains("\r\nConnection: close\r\n");
            self.under_way.fetch_add(1, Ordering::SeqCst);
            let served = self.pass_on(client, request);
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            if served.is_err() || is_last {
                break;
            }
        }
        let _ = client.shutdown(std::net::Shutdown::Both);
    }

    fn pass_on(self: &Arc<Self>, mut client: &TcpStream, request: Vec<u8>) -> io::Result<()> {
        let lost = || io::Error::from(io::ErrorKind::ConnectionAborted);
        let (fate, late) = self.fate();
        match fate {
            Fate::RequestLost => return Err(lost()),
            Fate::Late => thread::sleep(late),
            Fate::Twice => {
                let (proxy, request) = (Arc::clone(self), request.clone());
                self.under_way.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    thread::sleep(late);
                    // Whatever is answered, nobody hears it.
                    let _ = proxy.deliver(&request);
                    proxy.under_way.fetch_sub(1, Ordering::SeqCst);
                });
            }
            Fate::Delivered | Fate::AnswerLost => {}
        }
        let answer = self.deliver(&request)?;
        match fate {
            Fate::AnswerLost => Err(lost()),
            _ => client.write_all(&answer),
        }
    }

    fn deliver(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let target = *self.target.lock().unwrap_or_else(PoisonError::into_inner);
        let mut component = TcpStream::connect(target)?;
        component.set_read_timeout(Some(PATIENCE))?;
        component.write_all(request)?;
        message(&mut BufReader::new(component))?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// The next request or answer; none if the connection ends before it.
fn message(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let (mut whole, mut length) = (Vec::new(), 0);
    loop {
        let begin = whole.len();
        if from.read_until(b'\n', &mut whole)? == 0 {
            return if whole.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        let line = String::from_utf8_lossy(&whole[begin..]).to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let begin = whole.len();
    whole.resize(begin + length, 0);
    from.read_exact(&mut whole[begin..])?;
    Ok(Some(whole))
}
