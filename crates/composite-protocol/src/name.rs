//! Names that travel between components: of components, roots, calls and items.
//!
//! All of them are opaque to the protocol and are compared byte by byte. What a header can carry is
//! checked where a name enters, once; whoever holds one of these types needs no check.

use std::fmt;
use std::sync::Arc;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Most bytes of a component's name.
pub const NAME_BYTES_MAX: usize = 64;
/// Most bytes of a root's or a call's identifier.
pub const ID_BYTES_MAX: usize = 128;
/// How many bytes are kept of a call's identifier that would be longer than that.
const ID_BYTES_KEPT: usize = 64;

/// A text that is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not {what}: {text:?}")]
pub struct BadName {
    /// What it should have been.
    what: &'static str,
    /// What it is, cut if it is long.
    text: String,
}

impl BadName {
    fn new(what: &'static str, text: &str) -> BadName {
        BadName { what, text: text.chars().take(80).collect() }
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks a text.
            ///
            /// # Errors
            /// The text cannot be one.
            pub fn new(text: &str) -> Result<$type, BadName> {
                let check: fn(&str) -> bool = $check;
                match check(text) {
                    true => Ok($type(text.into())),
                    false => Err(BadName::new($what, text)),
                }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = BadName;
            fn try_from(text: String) -> Result<$type, BadName> {
                $type::new(&text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_str(Read($type::new))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

/// Reads a text, and makes a name of it where it lies: most of them come in messages, by the
/// dozen.
struct Read<T>(fn(&str) -> Result<T, BadName>);

impl<T> Visitor<'_> for Read<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

/// Letters, digits, `-`, `_` and `.`: what needs no quoting in a header, a path or a setting.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// What a header carries unchanged and a list with commas can hold.
fn is_id(text: &str) -> bool {
    (1..=ID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

name! {
    /// The name of a component: how others find it, wherever it runs.
    Name, "a component's name (letters, digits, - _ . and at most 64 of them)",
    |text| (1..=NAME_BYTES_MAX).contains(&text.len()) && is_plain(text)
}

name! {
    /// The identifier of a root: one execution of a composite transaction. A retry has another one.
    RootId, "a root's identifier (1 to 128 visible ASCII characters without commas)", is_id
}

name! {
    /// The identifier of a call, unique in its root.
    CallId, "a call's identifier (1 to 128 visible ASCII characters without commas)", is_id
}

impl CallId {
    /// The identifier of the call of this number that this call makes. One that would be too long
    /// is cut, and has a hash of the whole behind it, by which it is the only one of its root.
    pub fn child(&self, number: u32) -> CallId {
        let whole = format!("{self}.{number}");
        if whole.len() <= ID_BYTES_MAX {
            return CallId(whole.into());
        }
        let digest = Sha256::digest(&whole);
        let hash = u128::from_be_bytes(std::array::from_fn(|place| digest[place]));
        let kept: String = whole.chars().take(ID_BYTES_KEPT).collect();
        CallId(format!("{kept}~{hash:032x}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identifier_of_a_call_within_calls_is_never_too_long() {
        let id = |text: &str| CallId::new(text).unwrap();
        assert_eq!(id("1").child(2), id("1.2"));
        let mut longest = id(&"c".repeat(ID_BYTES_MAX));
        let other = id(&format!("{}d", "c".repeat(ID_BYTES_MAX - 1)));
        let made = [&longest, &other].map(|call| [1, 2, 10].map(|number| call.child(number)));
        let made: std::collections::BTreeSet<CallId> = made.into_iter().flatten().collect();
        assert_eq!(made.len(), 6, "each of another call is another one");
        assert_eq!(longest.child(1), longest.child(1));
        for _ in 0..100 {
            longest = longest.child(1);
            assert_eq!(CallId::new(longest.as_str()).as_ref(), Ok(&longest));
        }
    }

    #[test]
    fn a_name_is_read_from_a_message_as_it_was_written() {
        let call = CallId::new(r#"a"b\1.2"#).unwrap();
        let written = serde_json::to_string(&call).unwrap();
        assert_eq!(written, r#""a\"b\\1.2""#);
        assert_eq!(serde_json::from_str::<CallId>(&written).unwrap(), call);
        assert_eq!(serde_json::from_value::<CallId>(serde_json::Value::from(call.as_str())).unwrap(), call);
        for bad in [r#""""#, r#""a b""#, "7", "null"] {
            assert!(serde_json::from_str::<CallId>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_header_cannot_carry_is_no_name() {
        assert_eq!(Name::new("stock-2.eu").map(|name| name.to_string()), Ok("stock-2.eu".to_owned()));
        for bad in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
        assert!(RootId::new("shop:7/1").is_ok());
        for bad in ["", "a,b", "a b", "a\n", &"x".repeat(129)] {
            assert!(CallId::new(bad).is_err(), "{bad:?}");
        }
    }
}
