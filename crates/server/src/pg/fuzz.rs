//! Entry for a fuzzer: everything that touches bytes of a client that has not been trusted yet.
//!
//! The bytes are read as a start-up packet, as a SASL exchange, and as a stream of messages in both
//! phases. Nothing may panic, and nothing may be set aside for more than the bytes given.

use std::collections::BTreeMap;

use cognate_sql::session::StoredPassword;

use super::frame::{self, HEADER_BYTES, Phase};
use super::{auth, message, startup};

/// Feeds `bytes` to every decoder. Returns how many messages were decoded, so that the work is not
/// optimized away.
pub fn frontend(bytes: &[u8]) -> usize {
    if let Ok(startup::FirstPacket::Start(start)) = startup::decode_packet(bytes) {
        let _ = startup::split_options(start.get("options").unwrap_or_default());
    }
    if let Ok((_, first)) = auth::initial_response(bytes) {
        let mut exchange = auth::Users::new(&BTreeMap::new(), None).exchange("fuzz", StoredPassword::None);
        if exchange.first(first).is_ok() {
            let _ = exchange.finish(bytes);
        }
    }
    stream(bytes, Phase::Authentication) + stream(bytes, Phase::Session { message_bytes_max: 1 << 20 })
}

fn stream(mut bytes: &[u8], phase: Phase) -> usize {
    let mut decoded = 0;
    while let Ok(Some(header)) = frame::header(bytes, phase) {
        let Some((message, rest)) = bytes.split_at_checked(header.total) else { break };
        decoded += usize::from(message::decode(header.tag, &message[HEADER_BYTES..]).is_ok());
        bytes = rest;
    }
    decoded
}
