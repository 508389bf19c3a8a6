//! The first packet: what a client wants before it has said who it is.
//!
//! It has no tag: `length: u32` (counts itself), then a code: encryption requests, a cancel
//! request, or a protocol version followed by name/value pairs. Lengths are bounded by
//! [`STARTUP_BYTES_MAX`], so an unauthenticated peer makes the server hold no more than that.
//!
//! Versions: 3.0 and 3.2 are spoken. A client that asks for another minor version, or for a `_pq_.`
//! option, is told what it gets by NegotiateProtocolVersion; 3.1 was never used by anybody and is
//! answered as 3.0.

use std::borrow::Cow;

use super::frame::STARTUP_BYTES_MAX;
use super::message::{MessageError, Reader};

const CANCEL_CODE: u32 = 80_877_102;
const SSL_CODE: u32 = 80_877_103;
const GSS_CODE: u32 = 80_877_104;
/// Longest secret that a cancel request may carry, in bytes.
const SECRET_BYTES_MAX: usize = 256;

/// A decoded first packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstPacket<'a> {
    /// The client asks for TLS.
    Tls,
    /// The client asks for GSSAPI encryption.
    Gss,
    /// Another connection's statement is to be interrupted.
    Cancel {
        /// Number from that connection's BackendKeyData.
        process_id: i32,
        /// Secret from that connection's BackendKeyData.
        secret: &'a [u8],
    },
    /// A session begins.
    Start(Start<'a>),
}

/// A session's start-up parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start<'a> {
    /// Minor version asked for (of major version 3).
    pub minor_requested: u16,
    /// Name/value pairs as sent, without `_pq_.` options.
    pub parameters: Vec<(&'a str, Cow<'a, str>)>,
    /// Names of `_pq_.` options; none is known here.
    pub protocol_options: Vec<&'a str>,
}

/// A first packet that cannot be followed; the connection ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartupError {
    /// Length out of bounds.
    #[error("invalid length of startup packet")]
    Length,
    /// Neither a known code nor version 3.
    #[error("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2")]
    Version {
        /// Major version asked for.
        major: u16,
        /// Minor version asked for.
        minor: u16,
    },
    /// The pairs are malformed.
    #[error("invalid startup packet layout: {0}")]
    Layout(#[from] MessageError),
}

impl StartupError {
    /// SQLSTATE of the answer.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            StartupError::Version { .. } => "0A000",
            StartupError::Length => "08P01",
            StartupError::Layout(error) => error.sqlstate(),
        }
    }
}

impl Start<'_> {
    /// The minor version that will be spoken.
    pub fn minor(&self) -> u16 {
        if self.minor_requested >= 2 { 2 } else { 0 }
    }

    /// Whether the client must be told about a lower version or unknown options.
    pub fn needs_negotiation(&self) -> bool {
        self.minor() != self.minor_requested || !self.protocol_options.is_empty()
    }

    /// A parameter's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().rev().find(|(n, _)| *n == name).map(|(_, v)| &**v)
    }
}

/// Length of the packet at the start of `input`, with its length field; `None` until four bytes are
/// there.
pub fn packet_length(input: &[u8]) -> Result<Option<usize>, StartupError> {
    let Some(length) = input.get(..4) else { return Ok(None) };
    let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
    if (8..=STARTUP_BYTES_MAX).contains(&length) { Ok(Some(length)) } else { Err(StartupError::Length) }
}

/// Decodes a whole packet, length field included.
pub fn decode_packet(packet: &[u8]) -> Result<FirstPacket<'_>, StartupError> {
    if packet_length(packet)? != Some(packet.len()) {
        return Err(StartupError::Length);
    }
    let mut reader = Reader::new(packet);
    reader.int4()?;
    match reader.int4()? as u32 {
        SSL_CODE if reader.is_empty() => Ok(FirstPacket::Tls),
        GSS_CODE if reader.is_empty() => Ok(FirstPacket::Gss),
        SSL_CODE | GSS_CODE => Err(StartupError::Length),
        CANCEL_CODE => {
            let process_id = reader.int4()?;
            let secret = reader.rest();
            if secret.is_empty() || secret.len() > SECRET_BYTES_MAX {
                return Err(StartupError::Length);
            }
            Ok(FirstPacket::Cancel { process_id, secret })
        }
        version if version >> 16 == 3 => decode_start(version as u16, reader).map(FirstPacket::Start),
        version => Err(StartupError::Version { major: (version >> 16) as u16, minor: version as u16 }),
    }
}

fn decode_start(minor_requested: u16, mut reader: Reader<'_>) -> Result<Start<'_>, StartupError> {
    let mut parameters = Vec::new();
    let mut protocol_options = Vec::new();
    loop {
        let name = reader.string()?;
        if name.is_empty() {
            break;
        }
        if name == "application_name" {
            parameters.push((name, legible(reader.string_bytes()?)));
            continue;
        }
        let value = reader.string()?;
        if name.starts_with("_pq_.") {
            protocol_options.push(name);
        } else {
            parameters.push((name, Cow::Borrowed(value)));
        }
    }
    if !reader.is_empty() {
        return Err(StartupError::Layout(MessageError::Left));
    }
    Ok(Start { minor_requested, parameters, protocol_options })
}

/// A name that is for people only: in whatever encoding it is, nobody is refused for it. As in
/// PostgreSQL a question mark stands for each byte that is not ASCII, where these are no UTF-8.
fn legible(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => {
            let letters = bytes.iter().map(|&byte| if byte.is_ascii() { char::from(byte) } else { '?' });
            Cow::Owned(letters.collect())
        }
    }
}

/// Whether a connection is to be one for replication. None if the value says neither.
pub fn asks_for_replication(value: &str) -> Option<bool> {
    let text = value.to_ascii_lowercase();
    let is = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    if value == "database" || is("true", 1) || is("yes", 1) || is("on", 2) || text == "1" {
        return Some(true);
    }
    (is("false", 1) || is("no", 1) || is("off", 2) || text == "0").then_some(false)
}

/// Splits the `options` parameter (`-c name=value --name=value`, backslash quotes a character) into
/// settings. Words of another form are returned as they are in the error.
pub fn split_options(options: &str) -> Result<Vec<(String, String)>, String> {
    let mut settings = Vec::new();
    let mut words = split_words(options).into_iter();
    while let Some(word) = words.next() {
        let setting = if word == "-c" {
            words.next().ok_or(word)?
        } else if let Some(rest) = word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
            rest.to_owned()
        } else {
            return Err(word);
        };
        let Some((name, value)) = setting.split_once('=') else { return Err(setting) };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

fn split_words(options: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut inside = false;
    let mut characters = options.chars();
    while let Some(c) = characters.next() {
        if c.is_ascii_whitespace() {
            if inside {
                words.push(std::mem::take(&mut word));
            }
            inside = false;
        } else {
            inside = true;
            word.push(if c == '\\' { characters.next().unwrap_or('\\') } else { c });
        }
    }
    if inside {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(code: u32, rest: &[u8]) -> Vec<u8> {
        let mut packet = ((rest.len() + 8) as u32).to_be_bytes().to_vec();
        packet.extend(code.to_be_bytes());
        packet.extend(rest);
        packet
    }

    #[test]
    fn requests_before_a_session() {
        assert_eq!(decode_packet(&packet(SSL_CODE, b"")), Ok(FirstPacket::Tls));
        assert_eq!(decode_packet(&packet(GSS_CODE, b"")), Ok(FirstPacket::Gss));
        assert_eq!(
            decode_packet(&packet(CANCEL_CODE, b"\0\0\0\x07abcd")),
            Ok(FirstPacket::Cancel { process_id: 7, secret: b"abcd" })
        );
        assert_eq!(decode_packet(&packet(SSL_CODE, b"x")), Err(StartupError::Length));
        assert_eq!(decode_packet(&packet(2 << 16, b"")), Err(StartupError::Version { major: 2, minor: 0 }));
    }

    #[test]
    fn a_session_names_its_parameters_and_version() {
        let bytes = packet(0x0003_0002, b"user\0ann\0database\0shop\0_pq_.x\0on\0\0");
        let Ok(FirstPacket::Start(start)) = decode_packet(&bytes) else { panic!("not a start") };
        assert_eq!(start.get("user"), Some("ann"));
        assert_eq!(start.get("none"), None);
        assert_eq!(start.protocol_options, ["_pq_.x"]);
        assert_eq!(start.minor(), 2);
        assert!(start.needs_negotiation());
        let bytes = packet(0x0003_0001, b"user\0ann\0\0");
        let Ok(FirstPacket::Start(start)) = decode_packet(&bytes) else { panic!("not a start") };
        assert_eq!((start.minor(), start.needs_negotiation()), (0, true));
    }

    #[test]
    fn the_name_of_a_program_may_be_in_any_encoding() {
        let bytes = packet(3 << 16, b"user\0ann\0application_name\0a\xff\xc3\xa9z\0\0");
        let Ok(FirstPacket::Start(start)) = decode_packet(&bytes) else { panic!("not a start") };
        assert_eq!(start.get("application_name"), Some("a???z"));
        let bytes = packet(3 << 16, "user\0ann\0application_name\0é\0\0".as_bytes());
        let Ok(FirstPacket::Start(start)) = decode_packet(&bytes) else { panic!("not a start") };
        assert_eq!(start.get("application_name"), Some("é"));
        let bytes = packet(3 << 16, b"user\0\xff\0\0");
        assert!(matches!(decode_packet(&bytes), Err(StartupError::Layout(MessageError::NotUtf8(_)))));
    }

    #[test]
    fn replication_is_a_truth_value_or_a_database() {
        for (value, expected) in [
            ("database", Some(true)),
            ("TRUE", Some(true)),
            ("1", Some(true)),
            ("of", Some(false)),
            ("n", Some(false)),
            ("0", Some(false)),
            ("o", None),
            ("zz", None),
            ("", None),
        ] {
            assert_eq!(asks_for_replication(value), expected, "{value}");
        }
    }

    #[test]
    fn lengths_are_bounded_before_anything_is_read() {
        assert_eq!(packet_length(b"\0\0"), Ok(None));
        assert_eq!(packet_length(b"GET "), Err(StartupError::Length));
        assert_eq!(packet_length(&[0, 0, 0, 7]), Err(StartupError::Length));
        assert_eq!(packet_length(&[0, 0, 0x27, 0x11]), Err(StartupError::Length));
    }

    #[test]
    fn options_are_split_like_a_command_line() {
        let settings = split_options(r"-c a=1 -cb=2 --search-path=x\ y").expect("well formed");
        let expected = [("a", "1"), ("b", "2"), ("search_path", "x y")];
        assert_eq!(settings, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
        assert_eq!(split_options("-x"), Err("-x".to_owned()));
        assert_eq!(split_options("-c"), Err("-c".to_owned()));
        assert_eq!(split_options("-c a"), Err("a".to_owned()));
    }
}
