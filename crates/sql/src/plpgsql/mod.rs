//! Blocks in PL/pgSQL: what they say. DO runs them (`session::inline_code`).
//!
//! ```text
//! DO $$
//! DECLARE item record; freed int := 0;
//! BEGIN
//!     FOR item IN SELECT id, size FROM blob WHERE stale LOOP         a query, with a variable's fields
//!         DELETE FROM blob WHERE id = item.id;                       an SQL statement
//!         freed := freed + item.size;                                an expression: SELECT freed + item.size
//!     END LOOP;
//!     IF freed > 1000 THEN RAISE NOTICE 'freed %', freed; END IF;
//! EXCEPTION WHEN foreign_key_violation THEN NULL;                    the block is undone, and goes on here
//! END $$
//! ```
//!
//! Only the language's own words are read here; an SQL statement or an expression stays text, from
//! where it begins to where PL/pgSQL sees its end, and is parsed when it is run. Variables are
//! parameters of it ([`crate::routine::Scope`]): a name that no column in sight has may be one.
//!
//! What the language has and this has not is refused by name when the block is read, so that
//! nothing of it runs: cursors, COMMIT and ROLLBACK, CASE with an expression, FOREACH, ASSERT.
//! Errors of reading are 42601, with the text near which they are.

mod condition;
mod raise;
mod reader;
mod scope;
mod statement;

pub(crate) use condition::{Condition, interned, matches, named};
pub(crate) use raise::{Level, Raise, RaiseOption};

use sqlparser::ast::DataType;

use crate::error::Result;

/// Blocks, loops and branches may be nested so deep.
pub(crate) const NESTING_MAX: usize = 200;

/// What a byte of a block's text may take when it is read, in bytes: at most a piece of one letter,
/// and a statement of the block.
pub(crate) const PIECE_BYTES: usize = 96;

/// A block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) label: Option<String>,
    pub(crate) variables: Vec<Declaration>,
    pub(crate) body: Vec<Step>,
    pub(crate) handlers: Vec<Handler>,
}

/// A variable.
#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) ty: Declared,
    pub(crate) constant: bool,
    pub(crate) not_null: bool,
    /// An expression.
    pub(crate) default: Option<String>,
}

/// The type of a variable.
#[derive(Debug)]
pub(crate) enum Declared {
    Type(Box<DataType>),
    /// `table.column%TYPE` or `variable%TYPE`, by the names.
    Like(Vec<String>),
    /// `record`, or `table%ROWTYPE` with the table's names.
    Record(Option<Vec<String>>),
}

/// WHEN … THEN of a block.
#[derive(Debug)]
pub(crate) struct Handler {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) body: Vec<Step>,
}

/// A statement of a block.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) line: usize,
    pub(crate) what: What,
}

/// What a statement of a block does. Texts are expressions, unless it says otherwise.
#[derive(Debug)]
pub(crate) enum What {
    Null,
    Block(Box<Block>),
    /// An SQL statement, without its INTO.
    Sql {
        text: String,
        into: Option<Into>,
    },
    /// A query, without SELECT.
    Perform(String),
    Assign {
        target: String,
        expression: String,
    },
    Execute {
        command: String,
        into: Option<Into>,
        using: Vec<String>,
    },
    If {
        branches: Vec<(String, Vec<Step>)>,
        otherwise: Option<Vec<Step>>,
        is_case: bool,
    },
    Loop {
        label: Option<String>,
        over: Over,
        body: Vec<Step>,
    },
    Exit {
        label: Option<String>,
        when: Option<String>,
    },
    Continue {
        label: Option<String>,
        when: Option<String>,
    },
    Return,
    Raise(Box<Raise>),
    /// GET DIAGNOSTICS: variables, and what of the last statement, or of the error that is handled.
    Diagnostics(Vec<(String, Diagnostic)>),
}

impl Step {
    /// It has statements of its own.
    pub(crate) fn has_steps(&self) -> bool {
        matches!(self.what, What::Block(_) | What::If { .. } | What::Loop { .. })
    }

    /// As PostgreSQL names it where an error says in which statement it arose.
    pub(crate) fn name(&self) -> &'static str {
        match &self.what {
            What::Null => "NULL",
            What::Block(_) => "statement block",
            What::Sql { text, .. } => match text.split_whitespace().next() {
                Some(word) if word.eq_ignore_ascii_case("call") => "CALL",
                Some(word) if word.eq_ignore_ascii_case("do") => "DO",
                _ => "SQL statement",
            },
            What::Perform(_) => "PERFORM",
            What::Assign { .. } => "assignment",
            What::Execute { .. } => "EXECUTE",
            What::If { is_case: true, .. } => "CASE",
            What::If { .. } => "IF",
            What::Loop { over, .. } => match over {
                Over::Nothing => "LOOP",
                Over::While(_) => "WHILE",
                Over::Integers { .. } => "FOR with integer loop variable",
                Over::Query { .. } => "FOR over SELECT rows",
                Over::Execute { .. } => "FOR over EXECUTE statement",
            },
            What::Exit { .. } => "EXIT",
            What::Continue { .. } => "CONTINUE",
            What::Return => "RETURN",
            What::Raise(_) => "RAISE",
            What::Diagnostics(_) => "GET DIAGNOSTICS",
        }
    }
}

/// INTO.
#[derive(Debug)]
pub(crate) struct Into {
    pub(crate) strict: bool,
    /// A record, or variables for the columns.
    pub(crate) targets: Vec<String>,
}

/// What a loop goes over.
#[derive(Debug)]
pub(crate) enum Over {
    Nothing,
    While(String),
    Integers { variable: String, reverse: bool, from: String, to: String, by: Option<String> },
    Query { targets: Vec<String>, query: String },
    Execute { targets: Vec<String>, command: String, using: Vec<String> },
}

/// What GET DIAGNOSTICS can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Diagnostic {
    RowCount,
    ReturnedSqlstate,
    MessageText,
    Detail,
    Hint,
    Context,
    ColumnName,
    ConstraintName,
    DatatypeName,
    TableName,
    SchemaName,
}

/// Reads a block.
///
/// # Errors
///
/// 42601 where it is none, or assigns to what is no variable; 0A000 for what of the language is not
/// supported; 54001 if it is nested too deep.
pub(crate) fn read(text: &str) -> Result<Block> {
    let block = statement::read(text)?;
    scope::check(&block)?;
    Ok(block)
}
