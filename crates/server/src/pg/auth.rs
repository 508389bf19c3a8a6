//! Who may connect: SCRAM-SHA-256 (RFC 5802, RFC 7677) and the users it knows.
//!
//! Passwords are turned into verifiers when the configuration is read; the password itself is not
//! kept. One exchange:
//!
//! ```text
//! server  AuthenticationSASL            SCRAM-SHA-256
//! client  SASLInitialResponse           n,,n=,r=<client nonce>
//! server  AuthenticationSASLContinue    r=<client nonce><server nonce>,s=<salt>,i=4096
//! client  SASLResponse                  c=biws,r=<both nonces>,p=<proof>
//! server  AuthenticationSASLFinal       v=<server signature>      (or an error, 28P01)
//! ```
//!
//! A user that does not exist gets the same conversation with a salt derived from its name and a
//! key of this process, so a stranger cannot learn which names exist. Proofs are compared in
//! constant time.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// The one mechanism offered.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// Rounds of password hashing for new verifiers.
const ITERATIONS: u32 = 4096;
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 18;

type Key = [u8; 32];

/// What the server keeps instead of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Verifier {
    /// Derives the verifier of `password` with a random salt.
    pub fn from_password(password: &str) -> Verifier {
        let salt: [u8; SALT_BYTES] = rand::random();
        Verifier::derive(password, salt.to_vec(), ITERATIONS)
    }

    fn derive(password: &str, salt: Vec<u8>, iterations: u32) -> Verifier {
        let normal = normalize(password);
        let salted = salted_password(normal.as_bytes(), &salt, iterations);
        let stored_key = sha256(&hmac(&salted, &[b"Client Key"]));
        let server_key = hmac(&salted, &[b"Server Key"]);
        Verifier { iterations, salt, stored_key, server_key }
    }

    /// Reads `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`, the form that PostgreSQL
    /// stores.
    pub fn parse(text: &str) -> Option<Verifier> {
        let rest = text.strip_prefix("SCRAM-SHA-256$")?;
        let (head, keys) = rest.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let iterations = iterations.parse().ok().filter(|&n| n > 0)?;
        let key = |text: &str| -> Option<Key> { BASE64.decode(text).ok()?.try_into().ok() };
        Some(Verifier {
            iterations,
            salt: BASE64.decode(salt).ok()?,
            stored_key: key(stored)?,
            server_key: key(server)?,
        })
    }

    /// A password, or a verifier as [`Verifier::parse`] reads it.
    pub fn from_secret(secret: &str) -> Verifier {
        Verifier::parse(secret).unwrap_or_else(|| Verifier::from_password(secret))
    }
}

/// Whom the server lets in.
#[derive(Debug, Clone)]
pub struct Users {
    by_name: BTreeMap<String, Verifier>,
    anyone: Option<Verifier>,
    mock_key: Key,
}

impl Users {
    /// `anyone`: a secret that opens the door for every user name; `by_name`: secrets of single
    /// users. Neither: no password is asked for.
    pub fn new(by_name: &BTreeMap<String, String>, anyone: Option<&str>) -> Users {
        Users {
            by_name: by_name.iter().map(|(n, secret)| (n.clone(), Verifier::from_secret(secret))).collect(),
            anyone: anyone.map(Verifier::from_secret),
            mock_key: rand::random(),
        }
    }

    /// Whether connections have to show a password.
    pub fn password_required(&self) -> bool {
        self.anyone.is_some() || !self.by_name.is_empty()
    }

    /// A name that gets in, where `wanted` does not.
    pub fn only_named(&self, wanted: &str) -> Option<&str> {
        let wanted_gets_in = self.anyone.is_some() || self.by_name.contains_key(wanted);
        if wanted_gets_in { None } else { self.by_name.keys().next().map(String::as_str) }
    }

    /// Starts an exchange for `user`.
    pub fn exchange(&self, user: &str) -> Exchange {
        match self.by_name.get(user).or(self.anyone.as_ref()) {
            Some(verifier) => Exchange::new(verifier.clone(), true),
            None => {
                let salt = hmac(&self.mock_key, &[user.as_bytes()])[..SALT_BYTES].to_vec();
                let stored_key = rand::random();
                let server_key = rand::random();
                Exchange::new(Verifier { iterations: ITERATIONS, salt, stored_key, server_key }, false)
            }
        }
    }
}

/// Why an exchange ended without success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The message is not what the mechanism says; 08P01.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// Wrong password or unknown user; 28P01.
    #[error("password authentication failed")]
    Denied,
}

/// One SCRAM exchange, seen from the server. No I/O: messages in, messages out.
pub struct Exchange {
    verifier: Verifier,
    known: bool,
    nonce: String,
    /// `client-first-bare,server-first`, once both are known.
    transcript: String,
    /// The client's channel binding header, to be repeated in its final message.
    header: String,
}

impl Exchange {
    fn new(verifier: Verifier, known: bool) -> Exchange {
        let random: [u8; NONCE_BYTES] = rand::random();
        let nonce = BASE64.encode(random);
        Exchange { verifier, known, nonce, transcript: String::new(), header: String::new() }
    }

    /// Takes the client's first message and returns the server's.
    pub fn first(&mut self, client_first: &[u8]) -> Result<String, AuthError> {
        let text = std::str::from_utf8(client_first).map_err(|_| AuthError::Malformed("not UTF-8"))?;
        // gs2-header is "flag,authzid,"; the bare message follows.
        let mut parts = text.splitn(3, ',');
        let (flag, authzid, bare) = (parts.next(), parts.next(), parts.next());
        let (Some(flag), Some(authzid), Some(bare)) = (flag, authzid, bare) else {
            return Err(AuthError::Malformed("channel binding header"));
        };
        match flag {
            "n" | "y" => {}
            _ => return Err(AuthError::Malformed("channel binding is not offered")),
        }
        if !authzid.is_empty() {
            return Err(AuthError::Malformed("an authorization identity is not supported"));
        }
        let mut attributes = bare.split(',');
        if !attributes.next().is_some_and(|user| user.starts_with("n=")) {
            return Err(AuthError::Malformed("user name"));
        }
        let client_nonce = attributes
            .next()
            .and_then(|nonce| nonce.strip_prefix("r="))
            .filter(|nonce| !nonce.is_empty() && nonce.bytes().all(|b| (0x21..0x7f).contains(&b)))
            .ok_or(AuthError::Malformed("nonce"))?;
        self.header = format!("{flag},{authzid},");
        self.nonce.insert_str(0, client_nonce);
        let salt = BASE64.encode(&self.verifier.salt);
        let server_first = format!("r={},s={salt},i={}", self.nonce, self.verifier.iterations);
        self.transcript = format!("{bare},{server_first}");
        Ok(server_first)
    }

    /// Takes the client's final message, checks its proof and returns the server's final message.
    pub fn finish(self, client_final: &[u8]) -> Result<String, AuthError> {
        let text = std::str::from_utf8(client_final).map_err(|_| AuthError::Malformed("not UTF-8"))?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(AuthError::Malformed("no proof"))?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|c| c.strip_prefix("c="));
        if binding != Some(BASE64.encode(&self.header).as_str()) {
            return Err(AuthError::Malformed("channel binding"));
        }
        if attributes.next().and_then(|nonce| nonce.strip_prefix("r=")) != Some(self.nonce.as_str()) {
            return Err(AuthError::Malformed("nonce"));
        }
        let proof: Key = BASE64
            .decode(proof)
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(AuthError::Malformed("proof"))?;
        let message = [self.transcript.as_bytes(), b",", without_proof.as_bytes()];
        let client_signature = hmac(&self.verifier.stored_key, &message);
        let mut client_key = proof;
        for (byte, mask) in client_key.iter_mut().zip(client_signature) {
            *byte ^= mask;
        }
        let matches = same(&sha256(&client_key), &self.verifier.stored_key);
        if !(matches && self.known) {
            return Err(AuthError::Denied);
        }
        Ok(format!("v={}", BASE64.encode(hmac(&self.verifier.server_key, &message))))
    }
}

/// Splits a SASLInitialResponse body into mechanism and client-first message.
pub fn initial_response(body: &[u8]) -> Result<(&str, &[u8]), super::message::MessageError> {
    let mut reader = super::message::Reader::new(body);
    let mechanism = reader.string()?;
    let length = reader.int4()?;
    let data = match length {
        -1 => &[][..],
        length => reader.bytes(length.max(0) as usize)?,
    };
    if reader.is_empty() { Ok((mechanism, data)) } else { Err(super::message::MessageError::Left) }
}

/// The password as SASLprep prepares it; as it is, where the rules forbid a character (as
/// PostgreSQL does).
fn normalize(password: &str) -> std::borrow::Cow<'_, str> {
    stringprep::saslprep(password).unwrap_or(std::borrow::Cow::Borrowed(password))
}

/// PBKDF2 with HMAC-SHA-256 and one block of output.
fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> Key {
    let mut block = hmac(password, &[salt, &1_u32.to_be_bytes()]);
    let mut result = block;
    for _ in 1..iterations {
        block = hmac(password, &[&block]);
        for (r, b) in result.iter_mut().zip(block) {
            *r ^= b;
        }
    }
    result
}

fn hmac(key: &[u8], message: &[&[u8]]) -> Key {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in message {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn sha256(data: &[u8]) -> Key {
    Sha256::digest(data).into()
}

/// Equality whose time does not depend on where the keys differ.
fn same(a: &Key, b: &Key) -> bool {
    a.iter().zip(b).fold(0, |difference, (x, y)| std::hint::black_box(difference | (x ^ y))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example exchange of RFC 7677, section 3.
    #[test]
    fn the_published_example() {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").expect("base64");
        let verifier = Verifier::derive("pencil", salt, 4096);
        let mut exchange = Exchange::new(verifier, true);
        exchange.nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned();
        let first = exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").expect("well formed");
        assert_eq!(
            first,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = exchange
            .finish(
                b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                  p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            )
            .expect("right password");
        assert_eq!(last, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn a_wrong_proof_and_an_unknown_user_are_denied_alike() {
        let users = Users::new(&BTreeMap::from([("ann".to_owned(), "secret".to_owned())]), None);
        assert!(users.password_required());
        for user in ["ann", "bob"] {
            let mut exchange = users.exchange(user);
            let first = exchange.first(b"n,,n=,r=abc").expect("well formed");
            let nonce = first.split(',').next().expect("nonce");
            let answer = format!("c=biws,{nonce},p={}", BASE64.encode([7_u8; 32]));
            assert_eq!(exchange.finish(answer.as_bytes()), Err(AuthError::Denied));
        }
        let salt = |name: &str| users.exchange(name).verifier.salt;
        assert_eq!(salt("bob"), salt("bob"), "a stranger's salt does not change from try to try");
        assert_ne!(salt("bob"), salt("eve"));
    }

    #[test]
    fn stored_verifiers_are_read_back() {
        let made = Verifier::from_password("x");
        let text = format!(
            "SCRAM-SHA-256${}:{}${}:{}",
            made.iterations,
            BASE64.encode(&made.salt),
            BASE64.encode(made.stored_key),
            BASE64.encode(made.server_key)
        );
        assert_eq!(Verifier::parse(&text), Some(made));
        assert_eq!(Verifier::parse("SCRAM-SHA-256$0:$:"), None);
        assert_eq!(Verifier::parse("secret"), None);
    }

    #[test]
    fn malformed_messages_are_told_from_wrong_passwords() {
        let exchange = || Users::new(&BTreeMap::new(), Some("x")).exchange("any");
        for first in ["", "n", "n,,", "p=tls-unique,,n=,r=a", "n,a=other,n=,r=a", "n,,n=,r=", "n,,x=,r=a"] {
            assert!(matches!(exchange().first(first.as_bytes()), Err(AuthError::Malformed(_))), "{first}");
        }
        let mut open = exchange();
        open.first(b"n,,n=,r=a").expect("well formed");
        assert!(matches!(open.finish(b"c=biws,r=other,p=AAAA"), Err(AuthError::Malformed(_))));
    }
}
