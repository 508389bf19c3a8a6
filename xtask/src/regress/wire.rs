//! A blocking client of the PostgreSQL protocol, as small as it can be: simple queries, texts,
//! COPY.
//!
//! An answer is kept as it came, so that two servers' answers can be compared: columns with their
//! types, rows, tags, SQLSTATEs. A statement has a deadline. When it passes, the server is asked to
//! cancel; what does not answer even then has hung.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long a server may take to heed a cancel.
const CANCEL: Duration = Duration::from_secs(5);

/// One result of a message: a message with several statements has several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Option<String>>>,
    /// The command tag.
    pub(crate) tag: Option<String>,
    pub(crate) error: Option<Refusal>,
    /// What COPY TO sent.
    pub(crate) copied: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) type_id: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) state: String,
    pub(crate) message: String,
}

/// What became of a message.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Answers(Vec<Answer>),
    /// The time-out passed. `cancelled`: it heeded the cancel at least.
    Hang {
        cancelled: bool,
    },
    /// The connection broke.
    Gone(String),
}

/// Where a server listens.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

pub(crate) struct Client {
    stream: TcpStream,
    address: Address,
    key: Vec<u8>,
    buffer: Vec<u8>,
    timeout: Duration,
    /// `I` outside of a block, `T` in one, `E` in one that failed.
    pub(crate) status: u8,
    /// Whether the last message asked for the data of a COPY FROM STDIN.
    pub(crate) copied_in: bool,
    pub(crate) standard_strings: bool,
}

impl Client {
    /// Connects with the settings that PostgreSQL's own runs have.
    pub(crate) fn connect(address: &Address, user: &str, timeout: Duration) -> io::Result<Client> {
        let stream = TcpStream::connect((address.host.as_str(), address.port))?;
        stream.set_nodelay(true)?;
        let mut client = Client {
            stream,
            address: address.clone(),
            key: Vec::new(),
            buffer: Vec::new(),
            timeout,
            status: b'I',
            copied_in: false,
            standard_strings: true,
        };
        let mut body = 196_608_u32.to_be_bytes().to_vec();
        for (name, value) in [
            ("user", user),
            ("database", "postgres"),
            ("application_name", "regress"),
            ("client_encoding", "UTF8"),
            ("DateStyle", "Postgres, MDY"),
            ("TimeZone", "America/Los_Angeles"),
            (
                "options",
                "-c intervalstyle=postgres_verbose -c default_transaction_isolation=read\\ committed",
            ),
        ] {
            for text in [name, value] {
                body.extend_from_slice(text.as_bytes());
                body.push(0);
            }
        }
        body.push(0);
        let length = u32::try_from(body.len() + 4).map_err(io::Error::other)?;
        client.stream.write_all(&[&length.to_be_bytes()[..], &body].concat())?;
        match client.answers(&mut None) {
            Outcome::Answers(answers) => match answers.into_iter().find_map(|answer| answer.error) {
                None => Ok(client),
                Some(error) => Err(io::Error::other(format!("{}: {}", error.state, error.message))),
            },
            Outcome::Hang { .. } => Err(io::ErrorKind::TimedOut.into()),
            Outcome::Gone(why) => Err(io::Error::other(why)),
        }
    }

    /// Sends one message and collects what comes. `data` is for a COPY FROM STDIN; without it, one
    /// is failed.
    pub(crate) fn query(&mut self, sql: &str, mut data: Option<&str>) -> Outcome {
        self.copied_in = false;
        let mut body = sql.as_bytes().to_vec();
        body.push(0);
        if let Err(error) = self.send(b'Q', &body) {
            return Outcome::Gone(error.to_string());
        }
        self.answers(&mut data)
    }

    /// Gives the data that a COPY FROM STDIN asks for.
    fn feed(&mut self, data: Option<&str>) -> io::Result<()> {
        match data {
            Some(data) => {
                self.send(b'd', data.as_bytes())?;
                self.send(b'c', &[])
            }
            None => self.send(b'f', b"no data\0"),
        }
    }

    fn send(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(body.len() + 4).map_err(io::Error::other)?;
        let mut message = vec![kind];
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(body);
        self.stream.write_all(&message)
    }

    fn answers(&mut self, data: &mut Option<&str>) -> Outcome {
        let deadline = Instant::now() + self.timeout;
        let (mut answers, mut answer, mut cancelled) = (Vec::new(), Answer::default(), false);
        loop {
            let limit = if cancelled { deadline + CANCEL } else { deadline };
            let (kind, body) = match self.message(limit) {
                Ok(Some(message)) => message,
                Ok(None) if cancelled => return Outcome::Hang { cancelled: false },
                Ok(None) => {
                    cancelled = true;
                    drop(self.cancel());
                    continue;
                }
                Err(error) => return Outcome::Gone(error.to_string()),
            };
            match kind {
                b'T' => answer.columns = columns(&body),
                b'D' => answer.rows.push(row(&body)),
                b'C' => {
                    answer.tag = Some(text(&body).0.to_owned());
                    answers.push(std::mem::take(&mut answer));
                }
                b'I' => answers.push(std::mem::take(&mut answer)),
                b'E' => {
                    answer.error = Some(refusal(&body));
                    answers.push(std::mem::take(&mut answer));
                }
                b'G' => {
                    self.copied_in = true;
                    if let Err(error) = self.feed(data.take()) {
                        return Outcome::Gone(error.to_string());
                    }
                }
                b'd' => answer.copied.push_str(&String::from_utf8_lossy(&body)),
                b'K' => self.key = body,
                b'S' => self.note_setting(&body),
                b'R' if body.first_chunk() != Some(&[0; 4]) => {
                    return Outcome::Gone("the server asks for a password".to_owned());
                }
                b'Z' => {
                    self.status = body.first().copied().unwrap_or(b'I');
                    return if cancelled { Outcome::Hang { cancelled } } else { Outcome::Answers(answers) };
                }
                _ => {}
            }
        }
    }

    fn note_setting(&mut self, body: &[u8]) {
        let (name, rest) = text(body);
        if name == "standard_conforming_strings" {
            self.standard_strings = text(rest).0 == "on";
        }
    }

    /// The next message, or nothing if the time is over.
    fn message(&mut self, limit: Instant) -> io::Result<Option<(u8, Vec<u8>)>> {
        loop {
            if let [kind, a, b, c, d, ..] = *self.buffer.as_slice() {
                let end = 1 + u32::from_be_bytes([a, b, c, d]) as usize;
                if self.buffer.len() >= end {
                    let rest = self.buffer.split_off(end);
                    let message = std::mem::replace(&mut self.buffer, rest);
                    return Ok(Some((kind, message.get(5..).unwrap_or_default().to_vec())));
                }
            }
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut chunk = [0; 65_536];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.buffer.extend_from_slice(chunk.get(..count).unwrap_or_default()),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn cancel(&self) -> io::Result<()> {
        let mut stream = TcpStream::connect((self.address.host.as_str(), self.address.port))?;
        let mut message = 16_u32.to_be_bytes().to_vec();
        message.extend_from_slice(&80_877_102_u32.to_be_bytes());
        message.extend_from_slice(&self.key);
        stream.write_all(&message)
    }
}

/// A text that ends with a zero byte, and what follows it.
fn text(body: &[u8]) -> (&str, &[u8]) {
    let end = body.iter().position(|&byte| byte == 0).unwrap_or(body.len());
    let (text, rest) = body.split_at(end);
    (std::str::from_utf8(text).unwrap_or("(not UTF-8)"), rest.get(1..).unwrap_or_default())
}

fn count(body: &[u8]) -> (usize, &[u8]) {
    let (head, rest) = body.split_first_chunk().unwrap_or((&[0; 2], &[]));
    (usize::from(u16::from_be_bytes(*head)), rest)
}

fn columns(body: &[u8]) -> Vec<Column> {
    let (number, mut rest) = count(body);
    let mut columns = Vec::with_capacity(number);
    for _ in 0..number {
        let (name, after) = text(rest);
        let type_id = after.get(6..10).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes);
        columns.push(Column { name: name.to_owned(), type_id });
        rest = after.get(18..).unwrap_or_default();
    }
    columns
}

fn row(body: &[u8]) -> Vec<Option<String>> {
    let (number, mut rest) = count(body);
    let mut values = Vec::with_capacity(number);
    for _ in 0..number {
        let (head, after) = rest.split_first_chunk().unwrap_or((&[0xff; 4], &[]));
        // A length of −1 is NULL.
        let length = usize::try_from(i32::from_be_bytes(*head)).ok();
        let (value, after) = after.split_at(length.unwrap_or(0).min(after.len()));
        values.push(length.map(|_| String::from_utf8_lossy(value).into_owned()));
        rest = after;
    }
    values
}

fn refusal(mut body: &[u8]) -> Refusal {
    let mut refusal = Refusal { state: String::new(), message: String::new() };
    while let [field, rest @ ..] = body
        && *field != 0
    {
        let (value, after) = text(rest);
        match field {
            b'C' => value.clone_into(&mut refusal.state),
            b'M' => value.clone_into(&mut refusal.message),
            _ => {}
        }
        body = after;
    }
    refusal
}
