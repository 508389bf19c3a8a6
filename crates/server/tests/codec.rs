//! Properties of the frontend decoders: nothing panics, and what a client encodes is what is read.

use cognate_server::pg::frame::{self, Phase};
use cognate_server::pg::message::{self, Bind, Frontend, Target, tag};
use cognate_server::pg::{fuzz, startup};
use cognate_sql::session::Format;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

const SESSION: Phase = Phase::Session { message_bytes_max: 1 << 20 };

/// An encoder of our own for client messages, written from the protocol's description.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn int2(mut self, value: u16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    fn int4(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    fn string(mut self, text: &str) -> Self {
        self.0.extend(text.as_bytes());
        self.0.push(0);
        self
    }
    fn formats(mut self, formats: &[Format]) -> Self {
        self = self.int2(formats.len() as u16);
        for format in formats {
            self = self.int2(u16::from(*format == Format::Binary));
        }
        self
    }
}

fn encode(message: &Frontend<'_>) -> (u8, Vec<u8>) {
    let body = Body::default();
    let target = |target: &Target| if *target == Target::Statement { b'S' } else { b'P' };
    let (tag, body) = match message {
        Frontend::Query(text) => (tag::QUERY, body.string(text)),
        Frontend::Parse { name, text, parameter_oids } => {
            let mut body = body.string(name).string(text).int2(parameter_oids.len() as u16);
            for oid in parameter_oids {
                body = body.int4(*oid as i32);
            }
            (tag::PARSE, body)
        }
        Frontend::Bind(bind) => (tag::BIND, encode_bind(body, bind)),
        Frontend::Describe(t, name) => (tag::DESCRIBE, Body(vec![target(t)]).string(name)),
        Frontend::Close(t, name) => (tag::CLOSE, Body(vec![target(t)]).string(name)),
        Frontend::Execute { portal, max_rows } => (tag::EXECUTE, body.string(portal).int4(*max_rows as i32)),
        Frontend::Flush => (tag::FLUSH, body),
        Frontend::Sync => (tag::SYNC, body),
        Frontend::Terminate => (tag::TERMINATE, body),
        Frontend::CopyData(data) => (tag::COPY_DATA, Body(data.to_vec())),
        Frontend::CopyDone => (tag::COPY_DONE, body),
        Frontend::CopyFail(reason) => (tag::COPY_FAIL, body.string(reason)),
        Frontend::Password(data) => (tag::PASSWORD, Body(data.to_vec())),
        Frontend::FunctionCall => (tag::FUNCTION_CALL, body),
    };
    (tag, body.0)
}

fn is_read_as(first: u8, body: &[u8], message: &Frontend<'_>) -> bool {
    let decoded = message::decode(first, body).expect("well formed");
    format!("{decoded:?}") == format!("{message:?}")
}

fn encode_bind(body: Body, bind: &Bind<'_>) -> Body {
    let mut body = body.string(bind.portal).string(bind.statement).formats(&bind.formats);
    body = body.int2(bind.values.len() as u16);
    for value in &bind.values {
        match value {
            None => body = body.int4(-1),
            Some(bytes) => {
                body = body.int4(bytes.len() as i32);
                body.0.extend_from_slice(bytes);
            }
        }
    }
    body.formats(&bind.result_formats)
}

fn formats(count: usize) -> impl Strategy<Value = Vec<Format>> {
    prop::collection::vec(prop_oneof![Just(Format::Text), Just(Format::Binary)], 0..=count)
}

/// Seeds of [`damaged_conversations_are_survived`].
const SEEDS: u64 = 3_000;

/// A conversation of a client: start-up packet or none, then messages of all kinds.
fn conversation(random: &mut StdRng) -> Vec<u8> {
    let mut bytes = Vec::new();
    if random.random_bool(0.3) {
        let parameters = Body::default().int4(0).int4(3 << 16).string("user").string("ann").string("options");
        let mut body = parameters.string("-c work_mem=1MB --x=y").0;
        body.push(0);
        let length = body.len() as u32;
        body[..4].copy_from_slice(&length.to_be_bytes());
        bytes.extend(body);
    }
    if random.random_bool(0.3) {
        bytes.extend(Body::default().string("SCRAM-SHA-256").int4(20).0);
        bytes.extend(b"n,,n=,r=fyko+d2lbbFg");
    }
    let long = "x".repeat(random.random_range(0..300));
    let values: [Option<&[u8]>; 3] = [Some(b"1"), None, Some(long.as_bytes())];
    let bind = Bind {
        portal: "p",
        statement: &long,
        formats: vec![Format::Text, Format::Binary, Format::Text].into(),
        values: values.as_slice().into(),
        result_formats: vec![Format::Binary].into(),
    };
    let messages = [
        Frontend::Query(&long),
        Frontend::Parse { name: "s", text: &long, parameter_oids: [23, 0, 25].as_slice().into() },
        Frontend::Bind(bind),
        Frontend::Describe(Target::Portal, "p"),
        Frontend::Close(Target::Statement, &long),
        Frontend::Execute { portal: "p", max_rows: 9 },
        Frontend::Flush,
        Frontend::Sync,
        Frontend::CopyData(long.as_bytes()),
        Frontend::CopyDone,
        Frontend::CopyFail("no"),
        Frontend::Password(b"n,,n=,r=x"),
        Frontend::FunctionCall,
        Frontend::Terminate,
    ];
    for _ in 0..random.random_range(1..12) {
        let (tag, body) = encode(&messages[random.random_range(0..messages.len())]);
        bytes.push(tag);
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
    }
    bytes
}

/// What a fuzzer would do, from seeds: conversations that are right but for some bytes that are
/// changed, missing, doubled, or numbers at their limits.
#[test]
fn damaged_conversations_are_survived() {
    for seed in 0..SEEDS {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bytes = conversation(&mut random);
        for _ in 0..random.random_range(0..4) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..5) {
                0 => bytes[at] = random.random(),
                1 => bytes.truncate(at + 1),
                2 => drop(bytes.remove(at)),
                3 if at + 4 <= bytes.len() => {
                    let numbers = [0, 1, 3, 4, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff_u32];
                    let number = numbers[random.random_range(0..numbers.len())];
                    bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
                }
                _ => {
                    let again = bytes[at..].to_vec();
                    bytes.extend(again);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        let survived = std::panic::catch_unwind(|| fuzz::frontend(&bytes));
        assert!(survived.is_ok(), "seed {seed}: {bytes:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz::frontend(&bytes);
    }

    #[test]
    fn any_body_of_any_kind_is_survived(first in any::<u8>(), body in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = message::decode(first, &body);
    }

    #[test]
    fn a_bind_is_read_as_it_was_written(
        portal in "[a-zä]{0,6}",
        statement in "[a-z]{0,6}",
        values in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..20)), 0..12),
        one_format in formats(1),
        result_formats in formats(9),
    ) {
        let bind = Bind {
            portal: &portal,
            statement: &statement,
            formats: one_format.into(),
            values: values.iter().map(Option::as_deref).collect(),
            result_formats: result_formats.into(),
        };
        let sent = Frontend::Bind(bind);
        let (first, body) = encode(&sent);
        prop_assert!(is_read_as(first, &body, &sent));
    }

    #[test]
    fn every_cut_of_a_message_is_an_error_or_incomplete(text in "[ -~]{0,40}", name in "[a-z]{0,8}") {
        let sent = [
            Frontend::Query(&text),
            Frontend::Parse { name: &name, text: &text, parameter_oids: [23, 0].as_slice().into() },
            Frontend::Describe(Target::Portal, &name),
            Frontend::Close(Target::Statement, &name),
            Frontend::Execute { portal: &name, max_rows: 7 },
            Frontend::CopyFail(&text),
            Frontend::Sync,
        ];
        for message in sent {
            let (first, body) = encode(&message);
            prop_assert!(is_read_as(first, &body, &message));
            for cut in 0..body.len() {
                prop_assert!(message::decode(first, &body[..cut]).is_err());
            }
            let mut stream = vec![first];
            stream.extend(((body.len() + 4) as u32).to_be_bytes());
            stream.extend(&body);
            for cut in 0..stream.len().min(5) {
                prop_assert_eq!(frame::header(&stream[..cut], SESSION), Ok(None));
            }
            let header = frame::header(&stream, SESSION).expect("valid").expect("complete");
            prop_assert_eq!((header.tag, header.total), (first, stream.len()));
        }
    }

    #[test]
    fn start_up_parameters_are_read_as_written(pairs in prop::collection::vec(("[a-z]{1,9}", "[ -~]{0,20}"), 0..9)) {
        let mut body = Body::default().int4(0).int4(3 << 16);
        for (name, value) in &pairs {
            body = body.string(name).string(value);
        }
        body.0.push(0);
        let length = body.0.len() as u32;
        body.0[..4].copy_from_slice(&length.to_be_bytes());
        let Ok(startup::FirstPacket::Start(start)) = startup::decode_packet(&body.0) else {
            return Err(TestCaseError::fail("not a start"));
        };
        let sent: Vec<_> =
            pairs.iter().map(|(n, v)| (n.as_str(), std::borrow::Cow::from(v.as_str()))).collect();
        prop_assert_eq!(start.parameters, sent);
        for cut in 0..body.0.len() {
            prop_assert!(startup::decode_packet(&body.0[..cut]).is_err());
        }
    }

    #[test]
    fn option_strings_never_panic(options in "[-c=\\\\ a-z]{0,30}") {
        let _ = startup::split_options(&options);
    }
}
