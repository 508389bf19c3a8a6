//! Identifiers as they are stored, and looked up: folded and cut; and lists and dotted names of
//! them within texts. Whoever reads names meets here, from the parser's rewriting to the catalog.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Word;

use crate::error::{Result, SqlError, sqlstate};
use crate::pg_catalog::is_reserved;

/// Longest identifier in bytes; longer ones are cut.
pub const MAX_NAME: usize = 63;

/// An identifier as it is stored, and looked up: without quotes its ASCII letters in lower case, as
/// in PostgreSQL, and cut to [`MAX_NAME`] bytes.
pub(crate) fn fold(ident: &Ident) -> String {
    fold_text(&ident.value, ident.quote_style.is_some())
}

/// The same of a word that the parser has not seen yet.
pub(crate) fn fold_word(word: &Word) -> String {
    fold_text(&word.value, word.quote_style.is_some())
}

/// The same of a text: what was in quotes, or stood without them.
pub(crate) fn fold_text(text: &str, is_quoted: bool) -> String {
    let mut name = if is_quoted { text.to_owned() } else { text.to_ascii_lowercase() };
    cut(&mut name, MAX_NAME);
    name
}

/// Cuts a text to at most `limit` bytes, at a character boundary.
pub(crate) fn cut(name: &mut String, limit: usize) {
    if name.len() > limit {
        let end = (0..=limit).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
        name.truncate(end);
    }
}

/// The identifiers of a list, as they are looked up.
pub(crate) fn split_names(text: &str) -> Result<Vec<String>, ()> {
    let mut names = Vec::new();
    let mut rest = text.trim();
    if rest.is_empty() {
        return Ok(names);
    }
    loop {
        let name;
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut given = String::new();
            let mut from = 0;
            let end = loop {
                let at = from + quoted[from..].find('"').ok_or(())?;
                given.push_str(&quoted[from..at]);
                if !quoted[at + 1..].starts_with('"') {
                    break at + 1;
                }
                given.push('"');
                from = at + 2;
            };
            name = fold_text(&given, true);
            rest = quoted[end..].trim_start();
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            let word = rest[..end].trim();
            if word.is_empty() || word.contains(|c: char| c.is_whitespace() || c == '"') {
                return Err(());
            }
            name = fold_text(word, false);
            rest = &rest[end..];
        }
        names.push(name);
        match rest.strip_prefix(',') {
            Some(more) => rest = more.trim_start(),
            None if rest.is_empty() => return Ok(names),
            None => return Err(()),
        }
    }
}

/// An identifier as SQL text: in quotes unless it is a word in small letters that can be a name
/// everywhere.
pub(crate) fn quote_identifier(name: &str) -> String {
    let is_plain = name
        .bytes()
        .enumerate()
        .all(|(at, byte)| byte == b'_' || byte.is_ascii_lowercase() || (at > 0 && byte.is_ascii_digit()));
    if is_plain && !name.is_empty() && !is_reserved(name) { name.to_owned() } else { in_quotes(name) }
}

/// The same in quotes, whatever it is.
pub(crate) fn in_quotes(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The parts of a dotted name as in `regclass` input.
pub(crate) fn split_qualified(text: &str) -> Result<Vec<String>> {
    // Dots outside quotes become commas, which do not occur in a name outside quotes.
    let mut quoted = false;
    let list: String = text
        .chars()
        .map(|c| {
            quoted ^= c == '"';
            if c == '.' && !quoted { ',' } else { c }
        })
        .collect();
    split_names(&list)
        .map_err(|()| SqlError::new(sqlstate::INVALID_NAME, format!("invalid name syntax: \"{text}\"")))
}
