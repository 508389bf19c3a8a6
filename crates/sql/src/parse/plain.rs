//! Where transactions begin and end, in the plain form, read without tokens and grammar: BEGIN,
//! COMMIT, ROLLBACK, PREPARE TRANSACTION, the statements of sibling transactions, and the decisions
//! about both.
//!
//! They come as text each time, most of them each time with another identifier, so no plan is kept;
//! and twice or three times for each transaction. What is not plain (comments, a literal with a
//! quote or backslash, more than one statement) goes the ordinary way, which comes to the same.
//!
//! ```text
//! BEGIN | COMMIT | ROLLBACK
//! PREPARE TRANSACTION | COMMIT PREPARED | ROLLBACK PREPARED     'identifier'
//! BEGIN MIP | COMMIT MIP | ROLLBACK MIP                         [<] 'xid' , digits [>]
//! PREPARE MIP                                                   [<] 'xid' , digits [>]  'request' [,] 'result'
//! ```

use std::sync::Arc;

use sqlparser::ast;

use super::mip::{MipArgument, MipOperation};
use super::{Command, Statement};

fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The text without white space before it; bytes, since all of that is ASCII.
fn behind_white(text: &str) -> &str {
    let white = text.bytes().take_while(|&byte| is_white(byte)).count();
    &text[white..]
}

/// The text without white space behind it.
fn before_white(text: &str) -> &str {
    let white = text.bytes().rev().take_while(|&byte| is_white(byte)).count();
    &text[..text.len() - white]
}

/// What is left of a statement.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    /// Goes on behind white space.
    fn skip(&mut self) {
        self.0 = behind_white(self.0);
    }

    /// A word, and the white space that must follow.
    fn word(&mut self, word: &str) -> Option<()> {
        let (head, rest) = self.0.split_at_checked(word.len())?;
        let trimmed = behind_white(rest);
        let found = head.eq_ignore_ascii_case(word) && trimmed.len() < rest.len();
        self.0 = if found { trimmed } else { self.0 };
        found.then_some(())
    }

    fn mark(&mut self, mark: char) -> Option<()> {
        self.0 = self.0.strip_prefix(mark)?;
        self.skip();
        Some(())
    }

    fn literal(&mut self) -> Option<&'a str> {
        let inside = self.0.strip_prefix('\'')?;
        let end = inside.bytes().position(|byte| matches!(byte, b'\'' | b'\\'))?;
        let rest = inside[end..].strip_prefix('\'').filter(|rest| !rest.starts_with('\''))?;
        let text = &inside[..end];
        self.0 = rest;
        self.skip();
        Some(text)
    }

    fn digits(&mut self) -> Option<&'a str> {
        let end = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        self.skip();
        (!digits.is_empty()).then_some(digits)
    }
}

/// The statement, if it is one of these.
pub(super) fn parse(text: &str) -> Option<Statement> {
    let body = before_white(behind_white(text));
    let body = body.strip_suffix(';').map_or(body, before_white);
    let command = match bare(body) {
        Some(statement) => Command::Sql(Box::new(statement)),
        None => with_arguments(body)?,
    };
    let source: Arc<str> = text.into();
    let text = if body.len() == text.len() { Arc::clone(&source) } else { body.into() };
    Some(Statement {
        text,
        source,
        command,
        overriding: Vec::new(),
        deferrable: None,
        without_rows: false,
        concurrently: false,
        condition: None,
        has_company: false,
        scope: None,
        complexity: 0,
        charge: None,
    })
}

/// A word alone.
fn bare(body: &str) -> Option<ast::Statement> {
    let is = |word| body.eq_ignore_ascii_case(word);
    if is("BEGIN") {
        Some(ast::Statement::StartTransaction {
            modes: Vec::new(),
            begin: true,
            transaction: None,
            modifier: None,
            statements: Vec::new(),
            exception: None,
            has_end_keyword: false,
        })
    } else if is("COMMIT") {
        Some(ast::Statement::Commit { chain: false, end: false, modifier: None })
    } else if is("ROLLBACK") {
        Some(ast::Statement::Rollback { chain: false, savepoint: None })
    } else {
        None
    }
}

fn with_arguments(body: &str) -> Option<Command> {
    let mut rest = Rest(body);
    let operation = match body.as_bytes().first()? {
        b'B' | b'b' if rest.word("BEGIN").is_some() => MipOperation::Begin,
        b'P' | b'p' if rest.word("PREPARE").is_some() => MipOperation::Prepare,
        b'C' | b'c' if rest.word("COMMIT").is_some() => MipOperation::Commit,
        b'R' | b'r' if rest.word("ROLLBACK").is_some() => MipOperation::Rollback,
        _ => return None,
    };
    let command = match two_phase(&mut rest, operation) {
        Some(make) => make(rest.literal()?.to_owned()),
        None => {
            rest.word("MIP")?;
            Command::Mip(operation, arguments(&mut rest, operation)?)
        }
    };
    rest.0.is_empty().then_some(command)
}

/// What becomes of the identifier, if the next word is that of a transaction without siblings.
fn two_phase(rest: &mut Rest<'_>, operation: MipOperation) -> Option<fn(String) -> Command> {
    let (noun, make): (_, fn(String) -> Command) = match operation {
        MipOperation::Prepare => ("TRANSACTION", Command::PrepareTransaction),
        MipOperation::Commit => ("PREPARED", Command::CommitPrepared),
        MipOperation::Rollback => ("PREPARED", Command::RollbackPrepared),
        _ => return None,
    };
    rest.word(noun).map(|()| make)
}

fn arguments(rest: &mut Rest<'_>, operation: MipOperation) -> Option<Vec<MipArgument>> {
    let bracket = rest.mark('<').is_some();
    let mut arguments = Vec::with_capacity(operation.arguments());
    arguments.push(MipArgument::Text(rest.literal()?.into()));
    rest.mark(',')?;
    arguments.push(MipArgument::Number(rest.digits()?.into()));
    if bracket {
        rest.mark('>')?;
    }
    if operation == MipOperation::Prepare {
        arguments.push(MipArgument::Text(rest.literal()?.into()));
        rest.mark(',');
        arguments.push(MipArgument::Text(rest.literal()?.into()));
    }
    Some(arguments)
}
