//! Statements about databases.
//!
//! ```text
//! CREATE DATABASE name [WITH] option ...
//! ALTER  DATABASE name [WITH] option ... | RENAME TO name
//! DROP   DATABASE [IF EXISTS] name [[WITH] (FORCE [, FORCE ...])]
//! COMMENT ON DATABASE name IS { 'text' | NULL }
//!
//! option:  { word | CONNECTION LIMIT } [=] { value | DEFAULT }
//! ```
//!
//! Which options there are, and what values they can have, is seen where they are carried out.
//! OWNER TO is `owner`'s, SET and RESET are `alter_settings`'s; what else ALTER DATABASE can say is
//! refused by name.

use sqlparser::ast::Ident;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::command::{Parsed, expect, is_word, take, take_all};

/// A statement about databases.
#[derive(Clone, Debug)]
pub enum DatabaseStatement {
    /// CREATE DATABASE.
    Create {
        /// Its name.
        name: Ident,
        /// What it is given.
        options: Vec<DatabaseOption>,
    },
    /// ALTER DATABASE.
    Alter {
        /// Which.
        name: Ident,
        /// What changes.
        options: Vec<DatabaseOption>,
    },
    /// RENAME TO.
    Rename {
        /// Which.
        name: Ident,
        /// Its new name.
        new: Ident,
    },
    /// DROP DATABASE.
    Drop {
        /// Which.
        name: Ident,
        /// IF EXISTS.
        if_exists: bool,
        /// Its sessions are ended.
        force: bool,
    },
    /// COMMENT ON DATABASE.
    Comment {
        /// Which.
        name: Ident,
        /// The comment; none takes it away.
        comment: Option<String>,
    },
}

/// An option of CREATE or ALTER DATABASE.
#[derive(Clone, Debug)]
pub struct DatabaseOption {
    /// In small letters: `connection limit`.
    pub name: String,
    /// As it is written; none is DEFAULT.
    pub value: Option<Ident>,
}

impl DatabaseStatement {
    /// The statement's tag.
    pub fn tag(&self) -> &'static str {
        match self {
            DatabaseStatement::Create { .. } => "CREATE DATABASE",
            DatabaseStatement::Alter { .. } | DatabaseStatement::Rename { .. } => "ALTER DATABASE",
            DatabaseStatement::Drop { .. } => "DROP DATABASE",
            DatabaseStatement::Comment { .. } => "COMMENT",
        }
    }
}

/// The statement, if it is one of these. Those that set parameters or an owner were looked for
/// before.
pub(super) fn parse(parser: &mut Parser<'_>) -> Parsed<Option<DatabaseStatement>> {
    if take_all(parser, &["CREATE", "DATABASE"]) {
        let name = name(parser)?;
        return Ok(Some(DatabaseStatement::Create { name, options: options(parser)? }));
    }
    if take_all(parser, &["DROP", "DATABASE"]) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let name = name(parser)?;
        return Ok(Some(DatabaseStatement::Drop { name, if_exists, force: force(parser)? }));
    }
    if take_all(parser, &["COMMENT", "ON", "DATABASE"]) {
        let name = name(parser)?;
        expect(parser, "IS")?;
        let comment = if take(parser, "NULL") { None } else { Some(parser.parse_literal_string()?) };
        return Ok(Some(DatabaseStatement::Comment { name, comment }));
    }
    let is_other = ["SET", "REFRESH"].iter().any(|word| is_word(parser, 3, word));
    if is_other || !take_all(parser, &["ALTER", "DATABASE"]) {
        return Ok(None);
    }
    let known = name(parser)?;
    if take_all(parser, &["RENAME", "TO"]) {
        return Ok(Some(DatabaseStatement::Rename { name: known, new: name(parser)? }));
    }
    Ok(Some(DatabaseStatement::Alter { name: known, options: options(parser)? }))
}

/// A name; the crate would take a string for one.
fn name(parser: &mut Parser<'_>) -> Parsed<Ident> {
    if matches!(parser.peek_token_ref().token, Token::SingleQuotedString(_)) {
        return parser.expected_ref("a name", parser.peek_token_ref());
    }
    parser.parse_identifier()
}

fn options(parser: &mut Parser<'_>) -> Parsed<Vec<DatabaseOption>> {
    take(parser, "WITH");
    let mut options = Vec::new();
    while matches!(parser.peek_token_ref().token, Token::Word(_)) {
        let name = match take_all(parser, &["CONNECTION", "LIMIT"]) {
            true => "connection limit".to_owned(),
            false => parser.parse_identifier()?.value.to_lowercase(),
        };
        let _ = parser.consume_token(&Token::Eq);
        let value = if take(parser, "DEFAULT") { None } else { Some(value(parser)?) };
        options.push(DatabaseOption { name, value });
    }
    Ok(options)
}

/// A word, a text or a whole number.
fn value(parser: &mut Parser<'_>) -> Parsed<Ident> {
    match &parser.peek_token_ref().token {
        Token::Number(..) | Token::Minus | Token::Plus => {
            super::command::signed(parser).map(|number| Ident::new(number.to_string()))
        }
        Token::SingleQuotedString(_) => {
            parser.parse_literal_string().map(|text| Ident::with_quote('"', text))
        }
        _ => parser.parse_identifier(),
    }
}

fn force(parser: &mut Parser<'_>) -> Parsed<bool> {
    let with = take(parser, "WITH");
    if !parser.consume_token(&Token::LParen) {
        return if with { parser.expected_ref("(", parser.peek_token_ref()) } else { Ok(false) };
    }
    parser.parse_comma_separated(|parser| expect(parser, "FORCE"))?;
    parser.expect_token(&Token::RParen)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Command, parse};

    fn statement(text: &str) -> DatabaseStatement {
        match &parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))[0].command {
            Command::Database(statement) => (**statement).clone(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn options_come_with_and_without_a_sign() {
        let text =
            "CREATE DATABASE \"A b\" WITH OWNER = ann ENCODING 'UTF8' CONNECTION LIMIT -1 TEMPLATE DEFAULT";
        let DatabaseStatement::Create { name, options } = statement(text) else { panic!() };
        assert_eq!(name.value, "A b");
        let all: Vec<_> = options.iter().map(|option| (option.name.as_str(), option.value.clone())).collect();
        assert_eq!(all[0], ("owner", Some(Ident::new("ann"))));
        assert_eq!(all[1], ("encoding", Some(Ident::with_quote('"', "UTF8"))));
        assert_eq!(all[2], ("connection limit", Some(Ident::new("-1"))));
        assert_eq!(all[3], ("template", None));
    }

    #[test]
    fn drops_may_be_forced() {
        for (text, expected) in [
            ("DROP DATABASE a", (false, false)),
            ("DROP DATABASE IF EXISTS a (FORCE)", (true, true)),
            ("DROP DATABASE a WITH (FORCE, FORCE)", (false, true)),
        ] {
            let DatabaseStatement::Drop { if_exists, force, .. } = statement(text) else { panic!("{text}") };
            assert_eq!((if_exists, force), expected, "{text}");
        }
        for text in
            ["DROP DATABASE a WITH", "DROP DATABASE a (b)", "CREATE DATABASE 'a'", "DROP DATABASE a.b"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
