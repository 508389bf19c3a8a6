//! Texts in other encodings: UTF-8, in which all texts are here, and LATIN1. Of the other names
//! that PostgreSQL knows it is said that they are not supported, of any other that there is none.

use super::EvalContext;
use super::math::unexpected;
use super::string::{from_utf8, str_of, text};
use crate::error::{SqlError, sqlstate};
use crate::types::Datum;
use crate::types::bounds::{append, parts, pieces};

type Computed = Result<Datum, SqlError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Latin1,
}

/// PostgreSQL's names of encodings that are not supported.
const OTHERS: &str = "\
    abc alt big5 euccn eucjis2004 eucjp euckr euctw gb18030 gbk iso885910 iso885913 iso885914 iso885915 \
    iso885916 iso88592 iso88593 iso88594 iso88595 iso88596 iso88597 iso88598 iso88599 johab koi8 koi8r \
    koi8u latin10 latin2 latin3 latin4 latin5 latin6 latin7 latin8 latin9 mskanji muleinternal shiftjis \
    shiftjis2004 sjis tcvn tcvn5712 uhc vscii win win1250 win1251 win1252 win1253 win1254 win1255 win1256 \
    win1257 win1258 win866 win874 win932 win936 win949 win950 windows1250 windows1251 windows1252 \
    windows1253 windows1254 windows1255 windows1256 windows1257 windows1258 windows866 windows874 \
    windows932 windows936 windows949 windows950";

/// Whether PostgreSQL knows an encoding by this name.
pub(crate) fn is_encoding(name: &str) -> bool {
    encoding(name, "").map_or_else(|error| error.sqlstate == sqlstate::FEATURE_NOT_SUPPORTED, |_| true)
}

/// The encoding of a name, of which letters and digits count. 22023, 0A000.
fn encoding(name: &str, role: &str) -> Result<Encoding, SqlError> {
    let letters: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    match letters.as_str() {
        "utf8" | "unicode" | "sqlascii" => Ok(Encoding::Utf8),
        "latin1" | "iso88591" => Ok(Encoding::Latin1),
        other if OTHERS.split(' ').any(|known| known == other) => {
            Err(SqlError::unsupported(format!("encoding \"{name}\"")))
        }
        _ => {
            let message = format!("invalid {role} encoding name \"{name}\"");
            Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// `convert_from(bytes, encoding)`.
pub(super) fn convert_from(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let Datum::Bytea(bytes) = &arguments[0] else { return Err(unexpected(&[&arguments[0]])) };
    let encoding = encoding(str_of(&arguments[1])?, "source")?;
    let mut out = Vec::new();
    match encoding {
        Encoding::Utf8 => {
            context.check_size(bytes.len())?;
            append(bytes, &mut out)?;
        }
        Encoding::Latin1 => {
            // A high byte is a character of two bytes.
            context.check_size(bytes.len().saturating_mul(2))?;
            for part in parts(bytes) {
                let characters: String = part?.iter().copied().map(char::from).collect();
                if characters.contains('\0') {
                    let message = "invalid byte sequence for encoding \"LATIN1\": 0x00";
                    return Err(SqlError::new(sqlstate::CHARACTER_NOT_IN_REPERTOIRE, message));
                }
                append(characters.as_bytes(), &mut out)?;
            }
        }
    }
    from_utf8(out)
}

#[cold]
fn not_in_latin1(character: char) -> SqlError {
    let mut buffer = [0; 4];
    let bytes = character.encode_utf8(&mut buffer).bytes().map(|byte| format!("0x{byte:02x}"));
    let bytes = bytes.collect::<Vec<_>>().join(" ");
    let message = format!(
        "character with byte sequence {bytes} in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\""
    );
    SqlError::new(sqlstate::UNTRANSLATABLE_CHARACTER, message)
}

/// `convert_to(text, encoding)`.
pub(super) fn convert_to(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let whole = text(&arguments[0])?;
    match encoding(str_of(&arguments[1])?, "destination")? {
        Encoding::Utf8 => Ok(Datum::Bytea(whole.clone().into_bytes())),
        Encoding::Latin1 => {
            let mut out = Vec::with_capacity(whole.chars());
            for piece in pieces(whole.as_str()) {
                for character in piece?.chars() {
                    out.push(u8::try_from(character).map_err(|_| not_in_latin1(character))?);
                }
            }
            Ok(Datum::Bytea(out.into()))
        }
    }
}
