//! Who may connect: SCRAM-SHA-256 (RFC 5802, RFC 7677) and the users it knows.
//!
//! Passwords are turned into verifiers when the configuration is read; the password itself is not
//! kept. Roles of the database may have one of their own, which is kept in the same form there. One
//! exchange:
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
pub use cognate_sql::scram::Verifier;
use cognate_sql::scram::{ITERATIONS, Key, hmac, sha256};
use cognate_sql::session::StoredPassword;

/// The one mechanism offered.
pub const MECHANISM: &str = "SCRAM-SHA-256";
const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 18;

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

    /// Starts an exchange for `user`, of whom the database says this. What the configuration says
    /// of him goes before that, and what it says of everybody behind.
    pub fn exchange(&self, user: &str, stored: StoredPassword) -> Exchange {
        let stored = match (self.by_name.get(user), stored) {
            (Some(configured), _) => Some(configured.clone()),
            (None, StoredPassword::Verifier(verifier)) => Some(verifier),
            (None, StoredPassword::None) => self.anyone.clone(),
            (None, StoredPassword::Expired) => None,
        };
        match stored {
            Some(verifier) => Exchange::new(verifier, true),
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
            let mut exchange = users.exchange(user, StoredPassword::None);
            let first = exchange.first(b"n,,n=,r=abc").expect("well formed");
            let nonce = first.split(',').next().expect("nonce");
            let answer = format!("c=biws,{nonce},p={}", BASE64.encode([7_u8; 32]));
            assert_eq!(exchange.finish(answer.as_bytes()), Err(AuthError::Denied));
        }
        let salt = |name: &str| users.exchange(name, StoredPassword::None).verifier.salt;
        assert_eq!(salt("bob"), salt("bob"), "a stranger's salt does not change from try to try");
        assert_ne!(salt("bob"), salt("eve"));
    }

    #[test]
    fn malformed_messages_are_told_from_wrong_passwords() {
        let exchange = || Users::new(&BTreeMap::new(), Some("x")).exchange("any", StoredPassword::None);
        for first in ["", "n", "n,,", "p=tls-unique,,n=,r=a", "n,a=other,n=,r=a", "n,,n=,r=", "n,,x=,r=a"] {
            assert!(matches!(exchange().first(first.as_bytes()), Err(AuthError::Malformed(_))), "{first}");
        }
        let mut open = exchange();
        open.first(b"n,,n=,r=a").expect("well formed");
        assert!(matches!(open.finish(b"c=biws,r=other,p=AAAA"), Err(AuthError::Malformed(_))));
    }
}
