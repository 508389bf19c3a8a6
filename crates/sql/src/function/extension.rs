//! The functions of PostgreSQL's extensions `uuid-ossp` and `pgcrypto`: they make UUIDs, random
//! bytes and digests.
//!
//! ```text
//! uuid_generate_v4()                                   random; v1 of time and random bytes
//! uuid_generate_v5(uuid_ns_url(), 'http://a.example')  of a name, by SHA-1; v3 by MD5
//! digest('x', 'sha256'), hmac('x', 'key', 'md5')
//! ```
//!
//! What encrypts is refused by name. Sources: RFC 4122 and 2104.

use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::EvalContext;
use super::convert::{bytes, md5_digest};
use super::registry::{Function, plain};
use super::string::str_of;
use crate::error::{SqlError, sqlstate};
use crate::types::Datum;
use crate::types::TypeId::{Bytea, Int4, Text as T, Uuid};
use crate::types::bounds::parts;

type Computed = Result<Datum, SqlError>;
type Digested = Result<Vec<u8>, SqlError>;

/// Whether a function of this name is one of these: a call may say any schema of it, since an
/// extension can be made in any.
pub(super) fn has(name: &str) -> bool {
    FUNCTIONS.iter().any(|function| function.name == name)
}

/// A name space of RFC 4122, by the one byte in which they differ.
fn namespace(byte: u8) -> Computed {
    let uuid = [0x6b, 0xa7, 0xb8, byte, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0, 0xc0, 0x4f, 0xd4, 0x30, 0xc8];
    Ok(Datum::Uuid(uuid))
}

/// The bytes as a UUID of this version.
fn versioned(mut bytes: [u8; 16], version: u8) -> Datum {
    bytes[6] = (bytes[6] & 0x0f) | (version << 4);
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Datum::Uuid(bytes)
}

fn random_uuid(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    Ok(versioned(context.session.random_bytes(), 4))
}

/// What passed from 1582-10-15, where the time of UUIDs begins, to 2000-01-01, in units of 100 ns.
const BEFORE_2000: i64 = 131_659_776_000_000_000;

/// The time, and random bytes for the clock's sequence and the node, as for a computer whose
/// address is not told.
fn timed_uuid(_: &[Datum], context: &EvalContext<'_>) -> Computed {
    let time = (BEFORE_2000 + context.session.clock() * 10).to_be_bytes();
    let mut bytes = context.session.random_bytes();
    bytes[..4].copy_from_slice(&time[4..]);
    bytes[4..6].copy_from_slice(&time[2..4]);
    bytes[6..8].copy_from_slice(&time[..2]);
    // No network card has an address with this bit.
    bytes[10] |= 1;
    Ok(versioned(bytes, 1))
}

/// The UUID of a name in a name space.
fn named_uuid(
    arguments: &[Datum],
    context: &EvalContext<'_>,
    digest: fn(&[u8], &EvalContext<'_>) -> Digested,
    version: u8,
) -> Computed {
    let Datum::Uuid(space) = &arguments[0] else {
        return Err(SqlError::internal("a name space that is no UUID"));
    };
    let name = [space.as_slice(), str_of(&arguments[1])?.as_bytes()].concat();
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&digest(&name, context)?[..16]);
    Ok(versioned(uuid, version))
}

fn md5(data: &[u8], context: &EvalContext<'_>) -> Digested {
    Ok(md5_digest(data, &|| context.check_interrupt())?.to_vec())
}

/// SHA-1, and SHA-2 of any length.
fn sha<D: Digest>(data: &[u8], _: &EvalContext<'_>) -> Digested {
    let mut digest = D::new();
    for part in parts(data) {
        digest.update(part?);
    }
    Ok(digest.finalize().to_vec())
}

/// An algorithm: its name, the bytes of its blocks, and what computes it.
type Algorithm = (&'static str, usize, fn(&[u8], &EvalContext<'_>) -> Digested);

const ALGORITHMS: &[Algorithm] = &[
    ("md5", 64, md5),
    ("sha1", 64, sha::<Sha1>),
    ("sha224", 64, sha::<Sha224>),
    ("sha256", 64, sha::<Sha256>),
    ("sha384", 128, sha::<Sha384>),
    ("sha512", 128, sha::<Sha512>),
];

/// The algorithm of this name. 22023.
fn algorithm(name: &Datum) -> Result<&'static Algorithm, SqlError> {
    let name = str_of(name)?.to_ascii_lowercase();
    ALGORITHMS.iter().find(|(known, ..)| *known == name).ok_or_else(|| {
        let message = format!("Cannot use \"{name}\": No such hash algorithm");
        SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
    })
}

fn digest(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let (_, _, digest) = algorithm(&arguments[1])?;
    Ok(Datum::Bytea(digest(bytes(&arguments[0])?, context)?.into()))
}

fn hmac(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let (_, block, digest) = algorithm(&arguments[2])?;
    let (data, key) = (bytes(&arguments[0])?, bytes(&arguments[1])?);
    let mut key = if key.len() > *block { digest(key, context)? } else { key.to_vec() };
    key.resize(*block, 0);
    let padded = |pad: u8| key.iter().map(|byte| byte ^ pad).collect::<Vec<u8>>();
    let inner = digest(&[padded(0x36).as_slice(), data].concat(), context)?;
    let outer = digest(&[padded(0x5c), inner].concat(), context)?;
    Ok(Datum::Bytea(outer.into()))
}

fn random_bytes(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let count = arguments[0].as_i64().and_then(|count| usize::try_from(count).ok());
    let Some(count) = count.filter(|count| (1..=1024).contains(count)) else {
        return Err(SqlError::new(sqlstate::EXTERNAL_ROUTINE_INVOCATION_EXCEPTION, "Length not in range"));
    };
    let mut bytes = Vec::with_capacity(count + 16);
    while bytes.len() < count {
        bytes.extend_from_slice(&context.session.random_bytes());
    }
    bytes.truncate(count);
    Ok(Datum::Bytea(bytes.into()))
}

/// A function that is refused by name.
macro_rules! refused {
    ($name:literal, $arguments:expr, $result:expr) => {
        plain(0, $name, $arguments, $result, |_, _| {
            Err(SqlError::unsupported(concat!("function ", $name, " of the extension pgcrypto")))
        })
    };
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(0, "uuid_nil", &[], Uuid, |_, _| Ok(Datum::Uuid([0; 16]))),
    plain(0, "uuid_ns_dns", &[], Uuid, |_, _| namespace(0x10)),
    plain(0, "uuid_ns_url", &[], Uuid, |_, _| namespace(0x11)),
    plain(0, "uuid_ns_oid", &[], Uuid, |_, _| namespace(0x12)),
    plain(0, "uuid_ns_x500", &[], Uuid, |_, _| namespace(0x14)),
    plain(0, "uuid_generate_v1", &[], Uuid, timed_uuid).volatile(),
    plain(0, "uuid_generate_v1mc", &[], Uuid, timed_uuid).volatile(),
    plain(0, "uuid_generate_v3", &[Uuid, T], Uuid, |arguments, context| {
        named_uuid(arguments, context, md5, 3)
    }),
    plain(0, "uuid_generate_v4", &[], Uuid, random_uuid).volatile(),
    plain(0, "uuid_generate_v5", &[Uuid, T], Uuid, |arguments, context| {
        named_uuid(arguments, context, sha::<Sha1>, 5)
    }),
    plain(0, "gen_random_bytes", &[Int4], Bytea, random_bytes).volatile(),
    plain(0, "digest", &[T, T], Bytea, digest),
    plain(0, "digest", &[Bytea, T], Bytea, digest),
    plain(0, "hmac", &[T, T, T], Bytea, hmac),
    plain(0, "hmac", &[Bytea, Bytea, T], Bytea, hmac),
    refused!("crypt", &[T, T], T),
    refused!("gen_salt", &[T], T),
    refused!("gen_salt", &[T, Int4], T),
    refused!("encrypt", &[Bytea, Bytea, T], Bytea),
    refused!("decrypt", &[Bytea, Bytea, T], Bytea),
    refused!("pgp_sym_encrypt", &[T, T], Bytea),
    refused!("pgp_sym_encrypt", &[T, T, T], Bytea),
    refused!("pgp_sym_decrypt", &[Bytea, T], T),
    refused!("pgp_sym_decrypt", &[Bytea, T, T], T),
    refused!("pgp_pub_encrypt", &[T, Bytea], Bytea),
    refused!("pgp_pub_decrypt", &[Bytea, Bytea], T),
];
