//! Clients that post requests, one after the other, over a connection that stays open.
//!
//! The client side is as small as it can be, since it runs on the same processors as what is
//! measured.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::checker::history::Abort;
use crate::driver::{Client, Recorder, Workload};
use crate::error::{Error, IoContext, Result};
use crate::random::Random;

/// Most bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Room for an answer, most of the time.
const READ_BYTES: usize = 4 << 10;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    host: String,
    read: Vec<u8>,
}

impl Connection {
    /// Opens one.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, host: address.to_string(), read: Vec::with_capacity(READ_BYTES) })
    }

    /// Sends a request and answers the status and the body of what comes back.
    ///
    /// # Errors
    /// The connection ends, or the answer has no length.
    pub async fn request(&mut self, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.read.clear();
        let (status, begin, length) = loop {
            match head(&self.read)? {
                Some(head) => break head,
                None => self.read_more().await?,
            }
        };
        while self.read.len() < begin + length {
            self.read_more().await?;
        }
        Ok((status, String::from_utf8_lossy(&self.read[begin..begin + length]).into_owned()))
    }

    async fn read_more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended before the answer")),
            _ => Ok(()),
        }
    }
}

/// An answer's status, where its body begins and how long it is; nothing if its head is not whole
/// yet.
fn head(read: &[u8]) -> io::Result<Option<(u16, usize, usize)>> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "an answer without status or length");
    let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if read.len() > HEAD_BYTES_MAX { Err(bad()) } else { Ok(None) };
    };
    let text = std::str::from_utf8(&read[..end]).map_err(|_| bad())?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok());
    match (status, length) {
        (Some(status), Some(length)) => Ok(Some((status, end + 4, length))),
        _ => Err(bad()),
    }
}

/// What clients post, and where.
#[derive(Clone, Debug)]
pub struct Posts {
    /// For messages.
    pub name: String,
    /// Who answers.
    pub address: SocketAddr,
    /// The path.
    pub path: &'static str,
    /// Makes the body of a request.
    pub body: fn(&mut Random) -> String,
    /// Seed and number of the run: no two runs make the same requests.
    pub run: (u64, u64),
}

/// One client.
#[derive(Debug)]
pub struct Poster {
    posts: Arc<Posts>,
    connection: Connection,
    random: Random,
}

impl Workload for Arc<Posts> {
    type Client = Poster;

    fn kinds(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    async fn open(&self, index: usize) -> Result<Poster> {
        let connection =
            Connection::open(self.address).await.doing(format!("connecting to {}", self.name))?;
        let (seed, run) = self.run;
        Ok(Poster { posts: Arc::clone(self), connection, random: Random::stream(seed, run, index as u64) })
    }
}

impl Client for Poster {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        let body = (self.posts.body)(&mut self.random);
        let since = Instant::now();
        let answer = self.connection.request("POST", self.posts.path, &body).await;
        let (status, text) = answer.doing(format!("posting to {}", self.posts.name))?;
        match status {
            200 => recorder.borrow_mut().committed(0, since),
            // Somebody was in the way for too long; nothing is left of it.
            409 => recorder.borrow_mut().aborted(0, Abort::Client),
            _ => return Err(Error::Violation(format!("{}: {status} {text}", self.posts.name))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let answer = b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\nx: y\r\n\r\n{}";
        assert_eq!(head(&answer[..20]).unwrap(), None);
        assert_eq!(head(answer).unwrap(), Some((409, answer.len() - 2, 2)));
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err(), "no length");
    }
}
