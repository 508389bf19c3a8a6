//! What is kept instead of a password: a SCRAM-SHA-256 verifier (RFC 5802, RFC 7677), as PostgreSQL
//! stores it.
//!
//! ```text
//! SCRAM-SHA-256$4096:<salt>$<StoredKey>:<ServerKey>        salt and keys in base64
//! ```
//!
//! Who has it can check a password, and cannot use it as one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// Rounds of password hashing for new verifiers.
pub const ITERATIONS: u32 = 4096;

/// A key of the mechanism.
pub type Key = [u8; 32];

/// What the server keeps instead of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    /// Rounds of hashing.
    pub iterations: u32,
    /// What the password was hashed with.
    pub salt: Vec<u8>,
    /// Checks the client's proof.
    pub stored_key: Key,
    /// Proves to the client that the server knows it.
    pub server_key: Key,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Verifier {
    /// Derives the verifier of `password` with a random salt.
    pub fn from_password(password: &str) -> Verifier {
        Verifier::derive(password, uuid::Uuid::new_v4().as_bytes().to_vec(), ITERATIONS)
    }

    /// The same with this salt.
    pub fn derive(password: &str, salt: Vec<u8>, iterations: u32) -> Verifier {
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

    /// As [`Verifier::parse`] reads it.
    pub fn text(&self) -> String {
        format!(
            "SCRAM-SHA-256${}:{}${}:{}",
            self.iterations,
            BASE64.encode(&self.salt),
            BASE64.encode(self.stored_key),
            BASE64.encode(self.server_key)
        )
    }
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

/// HMAC-SHA-256 of the parts of a message.
pub fn hmac(key: &[u8], message: &[&[u8]]) -> Key {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in message {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// SHA-256.
pub fn sha256(data: &[u8]) -> Key {
    Sha256::digest(data).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_verifiers_are_read_back() {
        let made = Verifier::from_password("x");
        assert_eq!(Verifier::parse(&made.text()), Some(made));
        assert_eq!(Verifier::parse("SCRAM-SHA-256$0:$:"), None);
        assert_eq!(Verifier::parse("secret"), None);
    }
}
