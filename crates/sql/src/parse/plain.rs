//! PREPARE TRANSACTION, the statements of sibling transactions, and the decisions about both in their plain form, read without tokens and grammar.
//!
//! They come as text each time, each time with another identifier, so no plan is kept; and twice or three times for each transaction of who uses
//! them at all. What is not plain (comments, a literal with a quote or backslash, more than one statement) goes the ordinary way, which comes to the same.
//!
//! ```text
//! PREPARE TRANSACTION | COMMIT PREPARED | ROLLBACK PREPARED     'identifier'
//! BEGIN MIP | COMMIT MIP | ROLLBACK MIP                         [<] 'xid' , digits [>]
//! PREPARE MIP                                                   [<] 'xid' , digits [>]  'request' [,] 'result'
//! ```

use std::sync::Arc;

use super::mip::{MipArgument, MipOperation};
use super::{Command, Statement};

const WHITE: [char; 4] = [' ', '\t', '\n', '\r'];

/// What is left of a statement.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    /// Goes on behind white space.
    fn skip(&mut self) {
        self.0 = self.0.trim_start_matches(WHITE);
    }

    /// A word, and the white space that must follow.
    fn word(&mut self, word: &str) -> Option<()> {
        let (head, rest) = self.0.split_at_checked(word.len())?;
        let trimmed = rest.trim_start_matches(WHITE);
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
        let (text, rest) = self.0.strip_prefix('\'')?.split_once('\'')?;
        if text.contains('\\') || rest.starts_with('\'') {
            return None;
        }
        self.0 = rest;
        self.skip();
        Some(text)
    }

    fn digits(&mut self) -> Option<&'a str> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        self.skip();
        (!digits.is_empty()).then_some(digits)
    }
}

/// The statement, if it is one of these.
pub(super) fn parse(text: &str) -> Option<Statement> {
    let body = text.trim_matches(WHITE);
    let body = body.strip_suffix(';').map_or(body, |body| body.trim_end_matches(WHITE));
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
    if !rest.0.is_empty() {
        return None;
    }
    let source: Arc<str> = text.into();
    let text = if body.len() == text.len() { Arc::clone(&source) } else { body.into() };
    Some(Statement { text, source, command, overriding: None, deferrable: None, complexity: 0 })
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
    arguments.push(MipArgument::Text(rest.literal()?.to_owned()));
    rest.mark(',')?;
    arguments.push(MipArgument::Number(rest.digits()?.to_owned()));
    if bracket {
        rest.mark('>')?;
    }
    if operation == MipOperation::Prepare {
        arguments.push(MipArgument::Text(rest.literal()?.to_owned()));
        rest.mark(',');
        arguments.push(MipArgument::Text(rest.literal()?.to_owned()));
    }
    Some(arguments)
}
