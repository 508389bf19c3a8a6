//! CREATE FUNCTION and CREATE PROCEDURE, and DROP of what they make.
//!
//! ```text
//! CREATE [OR REPLACE] FUNCTION name ( [[mode] [name] type [{DEFAULT | =} expression], ...] )
//!     [RETURNS [SETOF] type | RETURNS TABLE (name type, ...)]
//!     { LANGUAGE name | IMMUTABLE | STABLE | VOLATILE | STRICT | ... | AS 'body' } ...
//!     [RETURN expression | BEGIN ATOMIC statement; ... END]
//! DROP {FUNCTION | PROCEDURE | ROUTINE} [IF EXISTS] name [(types)], ... [CASCADE | RESTRICT]
//! ```
//!
//! What stands between BEGIN ATOMIC and END has semicolons of its own. [`Nesting`] tells the
//! splitting of a text about them, and [`fold_body`] puts one string in their place before the
//! tokens are parsed.

use sqlparser::ast::{DataType, Expr, Ident, ObjectName};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::command::{Command, expect, is_word, take, take_all};
use super::error::Source;
use super::is_blank;
use crate::catalog::{ArgumentMode, Behavior, RoutineKind};

type Parsed<T> = Result<T, ParserError>;

/// CREATE FUNCTION or CREATE PROCEDURE.
#[derive(Clone, Debug)]
pub struct CreateRoutine {
    /// Which.
    pub kind: RoutineKind,
    /// OR REPLACE.
    pub or_replace: bool,
    /// Its name.
    pub name: ObjectName,
    /// Its arguments.
    pub arguments: Vec<RoutineArgument>,
    /// RETURNS.
    pub returns: Option<RoutineReturns>,
    /// LANGUAGE.
    pub language: Option<Ident>,
    /// What it does.
    pub body: Option<RoutineBody>,
    /// IMMUTABLE, STABLE or VOLATILE.
    pub behavior: Option<Behavior>,
    /// STRICT, or not: CALLED ON NULL INPUT.
    pub strict: Option<bool>,
    /// SECURITY DEFINER.
    pub security_definer: bool,
    /// PARALLEL.
    pub parallel: Option<Ident>,
    /// COST.
    pub cost: Option<f64>,
    /// ROWS.
    pub rows: Option<f64>,
    /// LEAKPROOF, or NOT LEAKPROOF.
    pub leakproof: Option<bool>,
    /// An option that is not for procedures.
    pub of_functions: bool,
    /// An option was given twice.
    pub redundant: bool,
    /// An option that is not supported.
    pub refused: Option<&'static str>,
}

/// An argument, or a column of RETURNS TABLE.
#[derive(Clone, Debug)]
pub struct RoutineArgument {
    /// Its direction.
    pub mode: ArgumentMode,
    /// VARIADIC.
    pub variadic: bool,
    /// Its name.
    pub name: Option<Ident>,
    /// Its type.
    pub data_type: DataType,
    /// DEFAULT.
    pub default: Option<Expr>,
}

/// RETURNS.
#[derive(Clone, Debug)]
pub enum RoutineReturns {
    /// One value or row.
    One(DataType),
    /// SETOF.
    Set(DataType),
    /// TABLE.
    Table(Vec<RoutineArgument>),
}

/// What a routine does.
#[derive(Clone, Debug)]
pub enum RoutineBody {
    /// AS, with the text, or with several, which only other languages have.
    Text(Vec<String>),
    /// BEGIN ATOMIC ... END.
    Atomic(String),
    /// RETURN.
    Return(Box<Expr>),
}

/// DROP FUNCTION, PROCEDURE or ROUTINE.
#[derive(Clone, Debug)]
pub struct DropRoutine {
    /// Which; ROUTINE is either.
    pub kind: Option<RoutineKind>,
    /// IF EXISTS.
    pub if_exists: bool,
    /// Names, each with its arguments, if any are given.
    pub routines: Vec<(ObjectName, Option<Vec<RoutineArgument>>)>,
    /// CASCADE.
    pub cascade: bool,
}

/// The kind that a word names.
pub(super) fn kind_at(parser: &Parser<'_>, ahead: usize) -> Option<RoutineKind> {
    if is_word(parser, ahead, "FUNCTION") {
        Some(RoutineKind::Function)
    } else if is_word(parser, ahead, "PROCEDURE") {
        Some(RoutineKind::Procedure)
    } else {
        None
    }
}

/// The statement, if it is one of these.
pub(super) fn parse(parser: &mut Parser<'_>) -> Parsed<Option<Command>> {
    if is_word(parser, 0, "CREATE") {
        let or_replace = is_word(parser, 1, "OR") && is_word(parser, 2, "REPLACE");
        let at = if or_replace { 3 } else { 1 };
        let Some(kind) = kind_at(parser, at) else { return Ok(None) };
        (0..=at).for_each(|_| parser.advance_token());
        return create(parser, kind, or_replace).map(|create| Some(Command::CreateRoutine(Box::new(create))));
    }
    if is_word(parser, 0, "DROP") {
        let kind = kind_at(parser, 1);
        if kind.is_none() && !is_word(parser, 1, "ROUTINE") {
            return Ok(None);
        }
        (0..2).for_each(|_| parser.advance_token());
        return drop_routines(parser, kind).map(|drop| Some(Command::DropRoutine(drop)));
    }
    Ok(None)
}

fn create(parser: &mut Parser<'_>, kind: RoutineKind, or_replace: bool) -> Parsed<CreateRoutine> {
    let name = parser.parse_object_name(false)?;
    let arguments = arguments(parser)?;
    let mut create = CreateRoutine {
        kind,
        or_replace,
        name,
        arguments,
        returns: None,
        language: None,
        body: None,
        behavior: None,
        strict: None,
        security_definer: false,
        parallel: None,
        cost: None,
        rows: None,
        leakproof: None,
        of_functions: false,
        redundant: false,
        refused: None,
    };
    if kind == RoutineKind::Function && is_word(parser, 0, "RETURNS") && !is_word(parser, 1, "NULL") {
        parser.advance_token();
        create.returns = Some(returns(parser)?);
    }
    while option(parser, &mut create)? {}
    Ok(create)
}

/// Arguments in parentheses.
pub(super) fn arguments(parser: &mut Parser<'_>) -> Parsed<Vec<RoutineArgument>> {
    parser.expect_token(&Token::LParen)?;
    if parser.consume_token(&Token::RParen) {
        return Ok(vec![]);
    }
    let arguments = parser.parse_comma_separated(argument)?;
    parser.expect_token(&Token::RParen)?;
    Ok(arguments)
}

/// A direction, and whether it is VARIADIC.
fn mode(parser: &mut Parser<'_>) -> Option<(ArgumentMode, bool)> {
    if take_all(parser, &["IN", "OUT"]) || take(parser, "INOUT") {
        Some((ArgumentMode::InOut, false))
    } else if take(parser, "IN") {
        Some((ArgumentMode::In, false))
    } else if take(parser, "OUT") {
        Some((ArgumentMode::Out, false))
    } else if take(parser, "VARIADIC") {
        Some((ArgumentMode::In, true))
    } else {
        None
    }
}

fn argument(parser: &mut Parser<'_>) -> Parsed<RoutineArgument> {
    let before = mode(parser);
    let name = if is_named(parser) { Some(parser.parse_identifier()?) } else { None };
    // The direction may stand behind the name.
    let behind = if before.is_none() && name.is_some() { mode(parser) } else { None };
    let (mode, variadic) = before.or(behind).unwrap_or((ArgumentMode::In, false));
    let data_type = parser.parse_data_type()?;
    let default = match take(parser, "DEFAULT") || parser.consume_token(&Token::Eq) {
        true => Some(parser.parse_expr()?),
        false => None,
    };
    Ok(RoutineArgument { mode, variadic, name, data_type, default })
}

/// Whether a name comes before the type.
fn is_named(parser: &Parser<'_>) -> bool {
    let is_any_word = |ahead| matches!(parser.peek_nth_token_ref(ahead).token, Token::Word(_));
    let pair = |first: &[&str], second: &[&str]| {
        first.iter().any(|word| is_word(parser, 0, word))
            && second.iter().any(|word| is_word(parser, 1, word))
    };
    let is_type = pair(&["DOUBLE"], &["PRECISION"])
        || pair(&["CHARACTER", "CHAR", "BIT"], &["VARYING"])
        || pair(&["NATIONAL"], &["CHARACTER", "CHAR"])
        || pair(&["TIME", "TIMESTAMP"], &["WITH", "WITHOUT"])
        || pair(&["INTERVAL"], &["YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"]);
    is_any_word(0) && is_any_word(1) && !is_word(parser, 1, "DEFAULT") && !is_type
}

fn returns(parser: &mut Parser<'_>) -> Parsed<RoutineReturns> {
    if is_word(parser, 0, "TABLE") && parser.peek_nth_token_ref(1).token == Token::LParen {
        parser.advance_token();
        let mut columns = arguments(parser)?;
        columns.iter_mut().for_each(|column| column.mode = ArgumentMode::Table);
        return Ok(RoutineReturns::Table(columns));
    }
    if take(parser, "SETOF") {
        return parser.parse_data_type().map(RoutineReturns::Set);
    }
    parser.parse_data_type().map(RoutineReturns::One)
}

/// A string of any kind.
pub(super) fn text(parser: &mut Parser<'_>) -> Parsed<String> {
    let token = parser.next_token();
    match token.token {
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::UnicodeStringLiteral(text) => Ok(text),
        Token::DollarQuotedString(text) => Ok(text.value),
        _ => parser.expected("a string", token),
    }
}

fn put<T>(place: &mut Option<T>, value: T, redundant: &mut bool) {
    *redundant |= place.is_some();
    *place = Some(value);
}

/// The next option, if there is one.
fn option(parser: &mut Parser<'_>, create: &mut CreateRoutine) -> Parsed<bool> {
    let redundant = &mut create.redundant;
    if take(parser, "LANGUAGE") {
        let quoted = matches!(parser.peek_token_ref().token, Token::SingleQuotedString(_));
        let language =
            if quoted { Ident::with_quote('"', text(parser)?) } else { parser.parse_identifier()? };
        put(&mut create.language, language, redundant);
    } else if take(parser, "AS") {
        let mut texts = vec![text(parser)?];
        while parser.consume_token(&Token::Comma) {
            texts.push(text(parser)?);
        }
        put(&mut create.body, RoutineBody::Text(texts), redundant);
    } else if take(parser, "ATOMIC") {
        put(&mut create.body, RoutineBody::Atomic(text(parser)?), redundant);
    } else if take(parser, "RETURN") {
        put(&mut create.body, RoutineBody::Return(Box::new(parser.parse_expr()?)), redundant);
    } else if let Some(behavior) = behavior(parser) {
        put(&mut create.behavior, behavior, redundant);
        create.of_functions = true;
    } else if take_all(parser, &["CALLED", "ON", "NULL", "INPUT"]) {
        put(&mut create.strict, false, redundant);
        create.of_functions = true;
    } else if take(parser, "STRICT") || take_all(parser, &["RETURNS", "NULL", "ON", "NULL", "INPUT"]) {
        put(&mut create.strict, true, redundant);
        create.of_functions = true;
    } else if take(parser, "EXTERNAL") {
        expect(parser, "SECURITY")?;
        create.security_definer = security(parser)?;
    } else if take(parser, "SECURITY") {
        create.security_definer = security(parser)?;
    } else {
        return option_without_effect(parser, create);
    }
    Ok(true)
}

fn behavior(parser: &mut Parser<'_>) -> Option<Behavior> {
    if take(parser, "IMMUTABLE") {
        Some(Behavior::Immutable)
    } else if take(parser, "STABLE") {
        Some(Behavior::Stable)
    } else if take(parser, "VOLATILE") {
        Some(Behavior::Volatile)
    } else {
        None
    }
}

/// Whether it is DEFINER.
fn security(parser: &mut Parser<'_>) -> Parsed<bool> {
    let definer = take(parser, "DEFINER");
    if !definer {
        expect(parser, "INVOKER")?;
    }
    Ok(definer)
}

/// What tells PostgreSQL's planner something, and what is refused by name.
fn option_without_effect(parser: &mut Parser<'_>, create: &mut CreateRoutine) -> Parsed<bool> {
    if take_all(parser, &["NOT", "LEAKPROOF"]) {
        put(&mut create.leakproof, false, &mut create.redundant);
    } else if take(parser, "LEAKPROOF") {
        put(&mut create.leakproof, true, &mut create.redundant);
    } else if take(parser, "PARALLEL") {
        put(&mut create.parallel, parser.parse_identifier()?, &mut create.redundant);
    } else if take(parser, "COST") {
        put(&mut create.cost, number(parser)?, &mut create.redundant);
    } else if take(parser, "ROWS") {
        put(&mut create.rows, number(parser)?, &mut create.redundant);
    } else if let Some(refused) =
        ["SET", "SUPPORT", "TRANSFORM", "WINDOW"].into_iter().find(|word| is_word(parser, 0, word))
    {
        // What it says is not looked at, so neither is what follows.
        while parser.next_token().token != Token::EOF {}
        create.refused = Some(refused);
        return Ok(false);
    } else {
        return Ok(false);
    }
    create.of_functions = true;
    Ok(true)
}

/// A number with or without a sign.
fn number(parser: &mut Parser<'_>) -> Parsed<f64> {
    let is_negative = parser.consume_token(&Token::Minus);
    if !is_negative {
        let _ = parser.consume_token(&Token::Plus);
    }
    let token = parser.next_token();
    let digits = match &token.token {
        Token::Number(digits, _) => digits.parse::<f64>().ok(),
        _ => None,
    };
    match digits {
        Some(number) => Ok(if is_negative { -number } else { number }),
        None => parser.expected("a number", token),
    }
}

fn drop_routines(parser: &mut Parser<'_>, kind: Option<RoutineKind>) -> Parsed<DropRoutine> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let routines = parser.parse_comma_separated(|parser| {
        let name = parser.parse_object_name(false)?;
        let is_listed = parser.peek_token_ref().token == Token::LParen;
        let arguments = if is_listed { Some(arguments(parser)?) } else { None };
        Ok((name, arguments))
    })?;
    let cascade = take(parser, "CASCADE");
    if !cascade {
        take(parser, "RESTRICT");
    }
    Ok(DropRoutine { kind, if_exists, routines, cascade })
}

fn unquoted<'a>(token: &'a Token, word: &str) -> Option<&'a str> {
    match token {
        Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word) => {
            Some(&found.value)
        }
        _ => None,
    }
}

/// Where in a statement a text is, as far as semicolons go: within BEGIN ATOMIC ... END of a
/// routine they do not end it.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    /// Tokens so far, without white space.
    tokens: usize,
    /// It begins with CREATE.
    creates: bool,
    /// What it creates is a routine.
    is_routine: bool,
    after_begin: bool,
    /// Open BEGIN ATOMIC and CASE.
    depth: usize,
}

impl Nesting {
    /// The next token of the statement.
    pub(super) fn note(&mut self, token: &TokenWithSpan) {
        if is_blank(token) {
            return;
        }
        let is = |word| unquoted(&token.token, word).is_some();
        self.tokens += 1;
        if self.tokens == 1 {
            self.creates = is("CREATE");
        }
        if !self.creates {
            return;
        }
        if self.depth > 0 {
            if is("CASE") {
                self.depth += 1;
            } else if is("END") {
                self.depth -= 1;
            }
            return;
        }
        // CREATE [OR REPLACE] FUNCTION
        self.is_routine |= self.tokens <= 4 && (is("FUNCTION") || is("PROCEDURE"));
        if self.is_routine && self.after_begin && is("ATOMIC") {
            self.depth = 1;
        }
        self.after_begin = is("BEGIN");
    }

    /// A semicolon does not end the statement.
    pub(super) fn is_inside(&self) -> bool {
        self.depth > 0
    }
}

/// Puts `ATOMIC 'statements'` in the place of BEGIN ATOMIC ... END at the end of a statement that
/// creates a routine.
pub(super) fn fold_body(tokens: &mut Vec<TokenWithSpan>, source: &str, places: &Source<'_>) {
    let mut nesting = Nesting::default();
    let Some(atomic) = tokens.iter().position(|token| {
        nesting.note(token);
        nesting.is_inside()
    }) else {
        return;
    };
    let begin = tokens[..atomic].iter().rposition(|token| !is_blank(token));
    let (Some(begin), Some(last)) = (begin, tokens.last()) else { return };
    if unquoted(&last.token, "END").is_none() {
        return;
    }
    let (from, to) = (places.byte(tokens[atomic].span.end), places.byte(last.span.start));
    let Some(body) = source.get(from..to) else { return };
    let word = tokens[atomic].clone();
    let text = TokenWithSpan { token: Token::SingleQuotedString(body.to_owned()), span: word.span };
    tokens.truncate(begin);
    tokens.extend([word, text]);
}
