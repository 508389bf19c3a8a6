//! Functions and procedures that users define in SQL.
//!
//! ```text
//! CREATE FUNCTION area(w int, h int DEFAULT 1) RETURNS int LANGUAGE sql AS $$ SELECT w * h $$
//!
//! arguments   w: in, integer;  h: in, integer, default "1"
//! result      integer, not a set
//! body        " SELECT w * h "
//! ```
//!
//! The body stays text: it is parsed, and its names are looked up, when it is made (so that a wrong
//! one is refused) and again by whoever calls it.

use serde::{Deserialize, Serialize};

use crate::function::Volatility;
use crate::types::{FormatContext, Type};

/// A function or procedure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Routine {
    /// Oid.
    pub oid: u32,
    /// Oid of its schema.
    pub schema: u32,
    /// Name of its schema.
    pub schema_name: String,
    /// Name. Several may have the same, if their arguments differ.
    pub name: String,
    /// What it is.
    pub kind: RoutineKind,
    /// Its arguments and, behind them, the columns of RETURNS TABLE.
    pub arguments: Vec<Argument>,
    /// Type of the result: `record` where it has several columns, `void` where there is none.
    #[serde(with = "super::store::type_document")]
    pub result: Type,
    /// It gives any number of rows.
    #[serde(default)]
    pub returns_set: bool,
    /// Oid of the table or view whose rows it gives, if RETURNS names one.
    #[serde(default)]
    pub row_of: Option<u32>,
    /// The statements, as SQL text.
    pub body: String,
    /// The body stood between BEGIN ATOMIC and END.
    #[serde(default)]
    pub atomic: bool,
    /// What it promises about its result.
    #[serde(default)]
    pub behavior: Behavior,
    /// NULL, without a call, if an argument is NULL.
    #[serde(default)]
    pub strict: bool,
    /// It does what it does with the rights of its owner.
    #[serde(default)]
    pub security_definer: bool,
    /// What it says of parallel plans, of which there are none here: dumps keep it.
    #[serde(default)]
    pub parallel: Parallel,
    /// COST, where it is given. It says something to PostgreSQL's planner: dumps keep it, as they
    /// do the next two.
    #[serde(default)]
    pub cost: Option<f32>,
    /// ROWS, where it is given.
    #[serde(default)]
    pub rows: Option<f32>,
    /// LEAKPROOF.
    #[serde(default)]
    pub leakproof: bool,
    /// COMMENT ON FUNCTION or PROCEDURE.
    #[serde(default)]
    pub comment: Option<String>,
}

/// What a routine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoutineKind {
    /// Called in expressions and in FROM.
    Function,
    /// Called by CALL.
    Procedure,
}

impl RoutineKind {
    /// Its name in messages.
    pub fn noun(self) -> &'static str {
        match self {
            RoutineKind::Function => "function",
            RoutineKind::Procedure => "procedure",
        }
    }
}

/// An argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Argument {
    /// Its name, if it has one.
    #[serde(default)]
    pub name: Option<String>,
    /// Its direction.
    pub mode: ArgumentMode,
    /// Its type, without a modifier but for that of a domain.
    #[serde(with = "super::store::type_document")]
    pub ty: Type,
    /// DEFAULT as SQL text.
    #[serde(default)]
    pub default: Option<String>,
}

/// The direction of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArgumentMode {
    /// Given by the caller.
    In,
    /// Given back.
    Out,
    /// Both.
    InOut,
    /// A column of RETURNS TABLE.
    Table,
}

impl ArgumentMode {
    /// The letter in `pg_proc.proargmodes`.
    pub fn letter(self) -> char {
        match self {
            ArgumentMode::In => 'i',
            ArgumentMode::Out => 'o',
            ArgumentMode::InOut => 'b',
            ArgumentMode::Table => 't',
        }
    }

    /// The caller gives it a value.
    pub fn is_input(self) -> bool {
        matches!(self, ArgumentMode::In | ArgumentMode::InOut)
    }

    /// It is part of the result.
    pub fn is_output(self) -> bool {
        self != ArgumentMode::In
    }
}

/// IMMUTABLE, STABLE or VOLATILE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Behavior {
    /// Same arguments, same result.
    Immutable,
    /// Same within a statement.
    Stable,
    /// Anything, and the body may change rows.
    #[default]
    Volatile,
}

impl Behavior {
    /// The letter in `pg_proc.provolatile`.
    pub fn letter(self) -> char {
        match self {
            Behavior::Immutable => 'i',
            Behavior::Stable => 's',
            Behavior::Volatile => 'v',
        }
    }
}

/// PARALLEL of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parallel {
    /// In no parallel plan.
    #[default]
    Unsafe,
    /// In the leader only.
    Restricted,
    /// Anywhere.
    Safe,
}

impl Parallel {
    /// What the word behind PARALLEL says, in any case.
    pub fn of(word: &str) -> Option<Parallel> {
        let known = [Parallel::Unsafe, Parallel::Restricted, Parallel::Safe];
        known.into_iter().find(|parallel| parallel.word().eq_ignore_ascii_case(word))
    }

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Parallel::Unsafe => "UNSAFE",
            Parallel::Restricted => "RESTRICTED",
            Parallel::Safe => "SAFE",
        }
    }

    /// The letter in `pg_proc.proparallel`.
    pub fn letter(self) -> char {
        match self {
            Parallel::Unsafe => 'u',
            Parallel::Restricted => 'r',
            Parallel::Safe => 's',
        }
    }
}

impl From<Behavior> for Volatility {
    fn from(behavior: Behavior) -> Volatility {
        match behavior {
            Behavior::Immutable => Volatility::Immutable,
            Behavior::Stable => Volatility::Stable,
            Behavior::Volatile => Volatility::Volatile,
        }
    }
}

impl Routine {
    /// The arguments that a caller gives values to: what tells routines of one name apart.
    pub fn inputs(&self) -> impl Iterator<Item = &Argument> {
        self.arguments.iter().filter(|argument| argument.mode.is_input())
    }

    /// Types of the inputs.
    pub fn input_types(&self) -> Vec<Type> {
        self.inputs().map(|argument| argument.ty).collect()
    }

    /// The arguments that a call lists: of a procedure all, as CALL names a place for what comes
    /// back, too.
    pub fn listed(&self) -> impl Iterator<Item = &Argument> {
        let is_procedure = self.kind == RoutineKind::Procedure;
        self.arguments.iter().filter(move |argument| {
            argument.mode.is_input() || (is_procedure && argument.mode == ArgumentMode::Out)
        })
    }

    /// Names and types of the columns that come back by OUT arguments or RETURNS TABLE; those
    /// without a name are called after their place.
    pub fn outputs(&self) -> Vec<(String, Type)> {
        let outputs = self.arguments.iter().filter(|argument| argument.mode.is_output());
        let named = |(place, argument): (usize, &Argument)| {
            let name = argument.name.clone().unwrap_or_else(|| format!("column{}", place + 1));
            (name, argument.ty)
        };
        outputs.enumerate().map(named).collect()
    }

    /// `name(integer, text)`, as messages name it.
    pub fn signature(&self, format: &FormatContext) -> String {
        let types: Vec<String> = self.inputs().map(|argument| argument.ty.format_with(format)).collect();
        format!("{}({})", self.name, types.join(", "))
    }

    /// `name(integer,text)`, as hints and dependencies name it.
    pub fn identity(&self, format: &FormatContext) -> String {
        let types: Vec<String> = self.inputs().map(|argument| argument.ty.format_with(format)).collect();
        format!("{}({})", self.name, types.join(","))
    }

    /// A type of users, or the array type over it, if an argument or the result is of it.
    pub fn type_over(&self, oid: u32) -> Option<Type> {
        let mut types = self.arguments.iter().map(|argument| argument.ty).chain([self.result]);
        types.find(|ty| ty.user_type() == Some(oid))
    }
}
