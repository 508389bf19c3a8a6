//! The statements of sibling transactions (MIP), which are nobody else's: `BEGIN MIP <XID, XINST>`
//! and its kin.
//!
//! ```text
//! BEGIN MIP | COMMIT MIP | ROLLBACK MIP | REFUSE MIP    [<] xid , instance [>]
//! PREPARE MIP                                           [<] xid , instance [>]  'request' [,] 'result'
//! SHOW MIPT | FORGET MIP                                [<] xid [>]
//! ```
//!
//! An XID is a string literal of any kind or a quoted name; without quotes, whatever stands up to
//! the comma, if there is no blank, quote or angle bracket in it. The same operations as functions,
//! for drivers with parameters: `SELECT cognate_mip_begin($1, $2)` or `SELECT * FROM
//! cognate_mip_begin($1, $2)`, and so on, as the whole statement: they end and begin transactions,
//! so they are no part of a query.

use std::sync::Arc;

use sqlparser::ast;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::error::Source;
use super::is_blank;
use crate::error::{Result, SqlError, sqlstate};

/// What is asked of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MipOperation {
    /// BEGIN MIP.
    Begin,
    /// PREPARE MIP.
    Prepare,
    /// COMMIT MIP.
    Commit,
    /// ROLLBACK MIP.
    Rollback,
    /// REFUSE MIP.
    Refuse,
    /// SHOW MIPT.
    Show,
    /// FORGET MIP.
    Forget,
}

/// A value of such a statement. Statements of their own have texts and numbers, functions the
/// others.
#[derive(Clone, Debug)]
pub enum MipArgument {
    /// Text that stands in the statement.
    Text(Arc<str>),
    /// A number that stands in the statement, as it is written.
    Number(Arc<str>),
    /// A parameter, from 1.
    Parameter(usize),
    /// Any other argument of the functions.
    Expression(Box<ast::Expr>),
}

impl MipArgument {
    /// Whether it is an argument of a function.
    pub fn is_of_function(&self) -> bool {
        matches!(self, MipArgument::Parameter(_) | MipArgument::Expression(_))
    }
}

impl MipOperation {
    const ALL: [MipOperation; 7] = [
        MipOperation::Begin,
        MipOperation::Prepare,
        MipOperation::Commit,
        MipOperation::Rollback,
        MipOperation::Refuse,
        MipOperation::Show,
        MipOperation::Forget,
    ];

    /// The statement's words.
    pub fn words(self) -> &'static str {
        match self {
            MipOperation::Begin => "BEGIN MIP",
            MipOperation::Prepare => "PREPARE MIP",
            MipOperation::Commit => "COMMIT MIP",
            MipOperation::Rollback => "ROLLBACK MIP",
            MipOperation::Refuse => "REFUSE MIP",
            MipOperation::Show => "SHOW MIPT",
            MipOperation::Forget => "FORGET MIP",
        }
    }

    /// The function's name.
    pub fn function(self) -> &'static str {
        match self {
            MipOperation::Begin => "cognate_mip_begin",
            MipOperation::Prepare => "cognate_mip_prepare",
            MipOperation::Commit => "cognate_mip_commit",
            MipOperation::Rollback => "cognate_mip_rollback",
            MipOperation::Refuse => "cognate_mip_refuse",
            MipOperation::Show => "cognate_mip_show",
            MipOperation::Forget => "cognate_mip_forget",
        }
    }

    /// How many arguments there are: the XID, the instance, the request, the result.
    pub fn arguments(self) -> usize {
        match self {
            MipOperation::Prepare => 4,
            MipOperation::Show | MipOperation::Forget => 1,
            _ => 2,
        }
    }
}

/// The tokens of a statement, with the bytes that they take.
struct Input<'a> {
    text: &'a str,
    tokens: Vec<(&'a Token, usize, usize)>,
    /// The next token.
    next: usize,
    /// Where the next thing begins, at the latest.
    at: usize,
    places: &'a Source<'a>,
    end: usize,
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

fn literal(token: &Token) -> Option<&str> {
    match token {
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::UnicodeStringLiteral(text) => Some(text),
        Token::DollarQuotedString(text) => Some(&text.value),
        Token::Word(word) if word.quote_style.is_some() => Some(&word.value),
        _ => None,
    }
}

/// The statement, if it is one of these. `source` is the whole text.
pub(super) fn parse(
    tokens: &[TokenWithSpan],
    source: &str,
    places: &Source<'_>,
) -> Result<Option<(MipOperation, Vec<MipArgument>)>> {
    let mut first = tokens.iter().filter(|token| !is_blank(token));
    let (Some(verb), Some(noun), third) = (first.next(), first.next(), first.next()) else { return Ok(None) };
    let fits = |operation: &MipOperation| {
        let mut words = operation.words().split(' ');
        is_word(&verb.token, words.next().unwrap_or_default())
            && is_word(&noun.token, words.next().unwrap_or_default())
    };
    let Some(operation) = MipOperation::ALL.into_iter().find(fits) else { return Ok(None) };
    // PREPARE of a statement that somebody calls so.
    let is_name = third.is_some_and(|third| is_word(&third.token, "AS") || third.token == Token::LParen);
    if operation == MipOperation::Prepare && is_name {
        return Ok(None);
    }
    let place = |token: &TokenWithSpan| (places.byte(token.span.start), places.byte(token.span.end));
    let spans: Vec<(&Token, usize, usize)> = tokens
        .iter()
        .filter(|token| !is_blank(token))
        .map(|token| (&token.token, place(token).0, place(token).1))
        .collect();
    let end = spans.last().map_or(0, |(.., end)| *end);
    let at = spans.get(1).map_or(0, |(.., end)| *end);
    let mut input = Input { text: source, tokens: spans, next: 2, at, places, end };
    let arguments = input.arguments(operation)?;
    input.finish()?;
    Ok(Some((operation, arguments)))
}

impl Input<'_> {
    fn error<T>(&self) -> Result<T> {
        let parameter = matches!(self.tokens.get(self.next), Some((Token::Placeholder(_), ..)));
        let error = self.places.near_at(self.at.min(self.end));
        Err(if parameter {
            error.with_hint(
                "Statements with parameters are written as functions: SELECT cognate_mip_begin($1, $2).",
            )
        } else {
            error
        })
    }

    /// Goes on at the next token, unless this is the inside of one.
    fn skip(&mut self) {
        let next = self.tokens.iter().position(|(_, start, _)| *start >= self.at);
        self.next = next.unwrap_or(self.tokens.len());
        if self.next == 0 || self.tokens[self.next - 1].2 <= self.at {
            self.at = self.tokens.get(self.next).map_or(self.end, |(_, start, _)| *start);
        }
    }

    /// The byte that comes next, if it is this one. Angle brackets may be parts of longer tokens.
    fn take(&mut self, byte: u8) -> bool {
        if self.text.as_bytes()[..self.end].get(self.at) != Some(&byte) {
            return false;
        }
        self.at += 1;
        self.skip();
        true
    }

    fn literal(&mut self) -> Option<Arc<str>> {
        let (token, start, end) = self.tokens.get(self.next)?;
        let text = literal(token).filter(|_| *start == self.at)?.into();
        self.at = *end;
        self.skip();
        Some(text)
    }

    fn arguments(&mut self, operation: MipOperation) -> Result<Vec<MipArgument>> {
        self.skip();
        let bracket = self.take(b'<');
        let has_instance = operation.arguments() > 1;
        let mut arguments = vec![MipArgument::Text(self.xid(has_instance)?)];
        if has_instance {
            if !self.take(b',') {
                return self.error();
            }
            arguments.push(MipArgument::Number(self.number()?));
        }
        if bracket && !self.take(b'>') {
            return self.error();
        }
        if operation == MipOperation::Prepare {
            for place in 0..2 {
                if place == 1 {
                    self.take(b',');
                }
                match self.literal() {
                    Some(text) => arguments.push(MipArgument::Text(text)),
                    None => return self.error(),
                }
            }
        }
        Ok(arguments)
    }

    fn xid(&mut self, has_instance: bool) -> Result<Arc<str>> {
        if let Some(text) = self.literal() {
            return Ok(text);
        }
        if matches!(self.tokens.get(self.next), Some((Token::Placeholder(_), ..))) {
            return self.error();
        }
        let rest = &self.text[self.at..self.end];
        let stop = |c: char| c.is_whitespace() || "'\"<>;".contains(c) || (has_instance && c == ',');
        let bare = &rest[..rest.find(stop).unwrap_or(rest.len())];
        if bare.is_empty() {
            return self.error();
        }
        self.at += bare.len();
        self.skip();
        Ok(bare.into())
    }

    fn number(&mut self) -> Result<Arc<str>> {
        let negative = self.take(b'-');
        if !negative {
            self.take(b'+');
        }
        let rest = &self.text[self.at..self.end];
        let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
        if digits.is_empty() {
            return self.error();
        }
        let number = if negative { format!("-{digits}").into() } else { digits.into() };
        self.at += digits.len();
        self.skip();
        Ok(number)
    }

    fn finish(&mut self) -> Result<()> {
        if self.at >= self.end { Ok(()) } else { self.error() }
    }
}

/// The functions, if the statement is nothing but one of them. 0A000 where it is something besides.
pub(super) fn from_query(statement: &ast::Statement) -> Result<Option<(MipOperation, Vec<MipArgument>)>> {
    let ast::Statement::Query(query) = statement else { return Ok(None) };
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return Ok(None) };
    let plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && select.selection.is_none()
        && select.distinct.is_none();
    let found = match (select.projection.as_slice(), select.from.as_slice()) {
        (
            [
                ast::SelectItem::UnnamedExpr(ast::Expr::Function(function))
                | ast::SelectItem::ExprWithAlias { expr: ast::Expr::Function(function), .. },
            ],
            [],
        ) => match &function.args {
            ast::FunctionArguments::List(list) => Some((&function.name, list.args.as_slice())),
            _ => None,
        },
        ([ast::SelectItem::Wildcard(_)], [from]) if from.joins.is_empty() => match &from.relation {
            ast::TableFactor::Table { name, args: Some(arguments), .. } => {
                Some((name, arguments.args.as_slice()))
            }
            ast::TableFactor::Function { name, args, .. } => Some((name, args.as_slice())),
            _ => None,
        },
        _ => None,
    };
    let operation = found.filter(|_| plain).and_then(|(name, arguments)| {
        let name = name.0.last().and_then(ast::ObjectNamePart::as_ident)?;
        let fits = |operation: &MipOperation| name.value.eq_ignore_ascii_case(operation.function());
        Some((MipOperation::ALL.into_iter().find(fits)?, arguments))
    });
    let Some((operation, arguments)) = operation else { return Ok(None) };
    if arguments.len() != operation.arguments() {
        let message = format!(
            "function {} takes {} arguments, not {}",
            operation.function(),
            operation.arguments(),
            arguments.len()
        );
        return Err(SqlError::new(sqlstate::UNDEFINED_FUNCTION, message));
    }
    let arguments = arguments.iter().map(argument).collect::<Option<Vec<_>>>();
    match arguments {
        Some(arguments) => Ok(Some((operation, arguments))),
        None => Err(SqlError::unsupported("such an argument of a function of sibling transactions")),
    }
}

fn argument(argument: &ast::FunctionArg) -> Option<MipArgument> {
    let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) = argument else { return None };
    let mut inner = expr;
    while let ast::Expr::Cast { expr, .. } | ast::Expr::Nested(expr) = inner {
        inner = expr;
    }
    if let ast::Expr::Value(value) = inner
        && let ast::Value::Placeholder(name) = &value.value
    {
        return name.strip_prefix('$')?.parse().ok().filter(|place| *place > 0).map(MipArgument::Parameter);
    }
    Some(MipArgument::Expression(Box::new(expr.clone())))
}
