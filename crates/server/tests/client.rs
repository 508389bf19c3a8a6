//! A client that says exactly what a test wants, byte by byte, and reads whole messages back.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A message from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) tag: char,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// A field of an error or notice.
    pub(crate) fn field(&self, code: char) -> Option<String> {
        assert!(matches!(self.tag, 'E' | 'N'), "{self:?}");
        let fields = self.body.split(|&b| b == 0);
        let field = fields.into_iter().find(|field| field.first() == Some(&(code as u8)))?;
        Some(String::from_utf8(field[1..].to_vec()).expect("UTF-8"))
    }

    /// SQLSTATE of an error.
    pub(crate) fn sqlstate(&self) -> String {
        assert_eq!(self.tag, 'E', "{self:?}");
        self.field('C').expect("a SQLSTATE")
    }

    /// The text of a CommandComplete.
    pub(crate) fn command_tag(&self) -> &str {
        assert_eq!(self.tag, 'C', "{self:?}");
        std::str::from_utf8(self.body.strip_suffix(b"\0").expect("a string")).expect("UTF-8")
    }

    /// The values of a DataRow in text.
    pub(crate) fn values(&self) -> Vec<Option<String>> {
        assert_eq!(self.tag, 'D', "{self:?}");
        let mut rest = &self.body[2..];
        let mut values = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = i32::from_be_bytes(*length);
            let (value, after) = after.split_at(length.max(0) as usize);
            values.push((length >= 0).then(|| String::from_utf8(value.to_vec()).expect("UTF-8")));
            rest = after;
        }
        values
    }
}

/// A raw connection.
pub(crate) struct RawClient {
    pub(crate) socket: TcpStream,
    pub(crate) process_id: i32,
    pub(crate) secret: Vec<u8>,
}

impl RawClient {
    /// Connects and says nothing.
    pub(crate) async fn silent(address: SocketAddr) -> RawClient {
        let socket = TcpStream::connect(address).await.expect("connected");
        // What is sent leaves now, and not with what is sent next.
        socket.set_nodelay(true).expect("no delay");
        RawClient { socket, process_id: 0, secret: Vec::new() }
    }

    /// Connects and sends a start-up packet.
    pub(crate) async fn started(address: SocketAddr) -> RawClient {
        let mut client = RawClient::silent(address).await;
        client.send(&startup(3 << 16, &[("user", "ann"), ("database", "any")])).await;
        client
    }

    /// Connects and waits until the server is ready.
    pub(crate) async fn connect(address: SocketAddr) -> RawClient {
        let mut client = RawClient::started(address).await;
        client.until_ready().await;
        client
    }

    /// Sends bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.expect("sent");
    }

    /// Reads one message; `None` at the end of the connection.
    pub(crate) async fn try_message(&mut self) -> Option<Message> {
        let mut header = [0; 5];
        self.socket.read_exact(&mut header).await.ok()?;
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
        let mut body = vec![0; length as usize - 4];
        self.socket.read_exact(&mut body).await.ok()?;
        Some(Message { tag: char::from(header[0]), body })
    }

    /// Reads one message.
    pub(crate) async fn message(&mut self) -> Message {
        self.try_message().await.expect("a message")
    }

    /// Reads messages up to ReadyForQuery, which is the last returned. Keeps the cancel key.
    pub(crate) async fn until_ready(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let message = self.message().await;
            if message.tag == 'K' {
                self.process_id = i32::from_be_bytes(message.body[..4].try_into().expect("four bytes"));
                self.secret = message.body[4..].to_vec();
            }
            let ready = message.tag == 'Z';
            messages.push(message);
            if ready {
                return messages;
            }
        }
    }

    /// Reads messages up to the end of the connection.
    pub(crate) async fn until_end(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(message) = self.try_message().await {
            messages.push(message);
        }
        messages
    }

    /// Sends a simple query and returns the answer without ReadyForQuery.
    pub(crate) async fn query(&mut self, text: &str) -> Vec<Message> {
        self.send(&message(b'Q', &string(text))).await;
        let mut messages = self.until_ready().await;
        messages.pop();
        messages
    }
}

/// A start-up packet.
pub(crate) fn startup(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend(string(name));
        body.extend(string(value));
    }
    body.push(0);
    packet(&body)
}

/// A packet without a tag.
pub(crate) fn packet(body: &[u8]) -> Vec<u8> {
    let mut packet = (body.len() as u32 + 4).to_be_bytes().to_vec();
    packet.extend(body);
    packet
}

/// A message.
pub(crate) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    message.extend(packet(body));
    message
}

/// A zero-terminated string.
pub(crate) fn string(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// Parse.
pub(crate) fn parse(name: &str, text: &str) -> Vec<u8> {
    message(b'P', &[string(name), string(text), vec![0, 0]].concat())
}

/// Bind with text parameters and results.
pub(crate) fn bind(portal: &str, statement: &str, values: &[&str]) -> Vec<u8> {
    let mut body = [string(portal), string(statement), vec![0, 0]].concat();
    body.extend((values.len() as u16).to_be_bytes());
    for value in values {
        body.extend((value.len() as u32).to_be_bytes());
        body.extend(value.as_bytes());
    }
    body.extend([0, 0]);
    message(b'B', &body)
}

/// Describe (`D`) or Close (`C`) of a statement (`S`) or portal (`P`).
pub(crate) fn named(tag: u8, target: u8, name: &str) -> Vec<u8> {
    message(tag, &[vec![target], string(name)].concat())
}

/// Execute.
pub(crate) fn execute(portal: &str, max_rows: u32) -> Vec<u8> {
    message(b'E', &[string(portal), max_rows.to_be_bytes().to_vec()].concat())
}

/// Sync.
pub(crate) fn sync() -> Vec<u8> {
    message(b'S', b"")
}

/// The tags of messages, as a word.
pub(crate) fn tags(messages: &[Message]) -> String {
    messages.iter().map(|message| message.tag).collect()
}
