//! VACUUM, ANALYZE, CLUSTER, REINDEX, CHECKPOINT: what they name, and their options.
//!
//! What options tune is automatic here, so they are known and have no effect, but for CONCURRENTLY,
//! with which a statement must not be part of a larger transaction, and ANALYZE.

use sqlparser::parser::{IsOptional, Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::command::{Command, Parsed, take};

/// Words before the names.
const WORDS: [&str; 11] = [
    "FULL",
    "FREEZE",
    "VERBOSE",
    "ANALYZE",
    "ANALYSE",
    "CONCURRENTLY",
    "TABLE",
    "INDEX",
    "SCHEMA",
    "DATABASE",
    "SYSTEM",
];
/// Those that say what kind of object REINDEX names.
const KINDS: [&str; 5] = ["TABLE", "INDEX", "SCHEMA", "DATABASE", "SYSTEM"];

/// What follows the command's word.
pub(super) fn parse(parser: &mut Parser<'_>, command: &'static str) -> Parsed<Command> {
    let mut options = Options::default();
    if parser.consume_token(&Token::LParen) {
        options = parse_options(parser, command)?;
    }
    let mut concurrently = options.concurrently;
    let mut analyze = options.analyze || command == "ANALYZE";
    let mut kind = None;
    loop {
        // Elsewhere they are names.
        let names_kind = command == "REINDEX" && kind.is_none();
        let may_come = |word: &str| names_kind || !KINDS.contains(&word);
        let Some(word) = WORDS.into_iter().find(|word| may_come(word) && take(parser, word)) else { break };
        concurrently |= word == "CONCURRENTLY";
        analyze |= ["ANALYZE", "ANALYSE"].contains(&word);
        if KINDS.contains(&word) {
            kind = Some(word);
        }
    }
    if command == "REINDEX" && kind.is_none() {
        return parser.expected_ref("what to reindex", parser.peek_token_ref());
    }
    let mut relations = vec![];
    if matches!(parser.peek_token_ref().token, Token::Word(_)) {
        relations = parser.parse_comma_separated(|parser| {
            let mut name = parser.parse_object_name(false)?;
            // The older spelling names the index first.
            if command == "CLUSTER" && take(parser, "ON") {
                name = parser.parse_object_name(false)?;
            }
            let columns = parser.parse_parenthesized_column_list(IsOptional::Optional, false)?;
            Ok((name, columns))
        })?;
        if command == "CLUSTER" && take(parser, "USING") {
            parser.parse_identifier()?;
        }
    }
    Ok(Command::Maintenance { command, relations, kind, concurrently, analyze })
}

/// The options that have an effect.
#[derive(Default)]
struct Options {
    concurrently: bool,
    analyze: bool,
}

/// Options behind a parenthesis, each with a value or without.
fn parse_options(parser: &mut Parser<'_>, command: &str) -> Parsed<Options> {
    let known: &[&str] = match command {
        "VACUUM" => &[
            "FULL",
            "FREEZE",
            "VERBOSE",
            "ANALYZE",
            "ANALYSE",
            "DISABLE_PAGE_SKIPPING",
            "SKIP_LOCKED",
            "INDEX_CLEANUP",
            "PROCESS_TOAST",
            "TRUNCATE",
            "PARALLEL",
        ],
        "ANALYZE" => &["VERBOSE", "SKIP_LOCKED"],
        "REINDEX" => &["VERBOSE", "CONCURRENTLY", "TABLESPACE"],
        _ => &["VERBOSE"],
    };
    let mut options = Options::default();
    loop {
        let option = parser.parse_identifier()?.value.to_ascii_uppercase();
        if !known.contains(&option.as_str()) {
            let option = option.to_ascii_lowercase();
            return Err(ParserError::ParserError(format!("unrecognized {command} option \"{option}\"")));
        }
        let mut value = None;
        while !matches!(parser.peek_token_ref().token, Token::Comma | Token::RParen | Token::EOF) {
            let token = parser.next_token().token.to_string().to_ascii_lowercase();
            value = value.or(Some(token.trim_matches('\'').to_owned()));
        }
        let is_on = !value.is_some_and(|value| ["false", "off", "0"].contains(&value.as_str()));
        match option.as_str() {
            "CONCURRENTLY" => options.concurrently = is_on,
            "ANALYZE" | "ANALYSE" => options.analyze = is_on,
            _ => {}
        }
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    parser.expect_token(&Token::RParen)?;
    Ok(options)
}
