//! A client of the wire protocol that blocks: simple queries, and single messages for tests that
//! say what no driver would.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// Rows in text; `None` is NULL.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// Why a statement did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server answered with this SQLSTATE, message and detail.
    Error { sqlstate: String, message: String, detail: String },
    /// The connection ended before the answer.
    Broken,
}

impl Failure {
    /// The SQLSTATE, or the empty text if the connection broke.
    pub(crate) fn sqlstate(&self) -> &str {
        match self {
            Failure::Error { sqlstate, .. } => sqlstate,
            Failure::Broken => "",
        }
    }
}

/// A session.
pub(crate) struct Wire {
    pub(crate) socket: TcpStream,
}

impl Wire {
    /// Connects as user `ann`.
    pub(crate) fn connect(address: SocketAddr) -> Result<Wire, Failure> {
        Wire::connect_as(address, "ann")
    }

    /// Connects as another user, to the database of his name.
    pub(crate) fn connect_as(address: SocketAddr, user: &str) -> Result<Wire, Failure> {
        Wire::connect_to(address, user, user)
    }

    /// Connects to a database.
    pub(crate) fn connect_to(address: SocketAddr, user: &str, database: &str) -> Result<Wire, Failure> {
        let mut wire = Wire::silent(address)?;
        let (user, database) = (user.as_bytes(), database.as_bytes());
        let start = message(0, &[b"\0\x03\0\0user\0", user, b"\0database\0", database, b"\0\0"].concat());
        // It is the one message without a tag.
        wire.send(&start[1..])?;
        wire.answer().map(|_| wire)
    }

    /// Connects and says nothing.
    pub(crate) fn silent(address: SocketAddr) -> Result<Wire, Failure> {
        let socket = TcpStream::connect(address).map_err(|_| Failure::Broken)?;
        socket.set_nodelay(true).map_err(|_| Failure::Broken)?;
        Ok(Wire { socket })
    }

    /// Runs a simple query and returns the rows of all its statements.
    pub(crate) fn query(&mut self, text: &str) -> Result<Rows, Failure> {
        self.send(&message(b'Q', &[text.as_bytes(), b"\0"].concat()))?;
        self.answer()
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.socket.write_all(bytes).map_err(|_| Failure::Broken)
    }

    /// Reads up to ReadyForQuery; the first error met is the answer.
    pub(crate) fn answer(&mut self) -> Result<Rows, Failure> {
        let mut rows = Rows::new();
        let mut failure = None;
        loop {
            match self.message() {
                Some((b'Z', _)) => return failure.map_or(Ok(rows), Err),
                Some((b'D', body)) => rows.push(values(&body)),
                Some((b'E', body)) => {
                    failure.get_or_insert_with(|| error(&body));
                }
                Some(_) => {}
                // A FATAL error is followed by the end.
                None => return Err(failure.unwrap_or(Failure::Broken)),
            }
        }
    }

    /// Reads one message: tag and body.
    pub(crate) fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut header = [0; 5];
        self.socket.read_exact(&mut header).ok()?;
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
        let mut body = vec![0; length as usize - 4];
        self.socket.read_exact(&mut body).ok()?;
        Some((header[0], body))
    }
}

/// A message.
pub(crate) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend((body.len() as u32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn values(body: &[u8]) -> Vec<Option<String>> {
    let mut rest = &body[2..];
    let mut values = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = i32::from_be_bytes(*length);
        let (value, after) = after.split_at(length.max(0) as usize);
        values.push((length >= 0).then(|| String::from_utf8(value.to_vec()).expect("UTF-8")));
        rest = after;
    }
    values
}

fn error(body: &[u8]) -> Failure {
    let field = |code: u8| {
        let field = body.split(|&byte| byte == 0).find(|field| field.first() == Some(&code));
        field.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
    };
    Failure::Error { sqlstate: field(b'C'), message: field(b'M'), detail: field(b'D') }
}
