//! What statements have in common that differ in their values only.
//!
//! Literals and parameters become `?`, lists of them one `?`, rows of them one row; comments go,
//! white space and the case of words do not count. So the form says which tables a statement is
//! about and how it finds rows, which decides what it costs, and not which rows.
//!
//! ```text
//! insert into t values (1, 'a'), (2, $1) -- two     insert into t values (?)
//! SELECT a FROM t WHERE b IN (1, 2, -3)             SELECT a FROM t WHERE b IN (?)
//! ```
//!
//! The text is read in one pass, piece by piece, and the pieces go to a hash or to a string. A list
//! is folded while it is read: a comma behind a literal or a row is *held* until the next pieces
//! say whether the list goes on. Lists of expressions, such as `(1, now()), (2, now())`, stay as
//! long as they are.
//!
//! Of a long text the first [`READ_MAX`] bytes count: lists of literals make texts so long.

use crate::parse::lexeme::{Kind, Lexeme, Lexemes};

/// So much of a text is read, in bytes.
const READ_MAX: usize = 16 * 1024;

/// Takes the pieces of a normal form.
trait Sink {
    /// The next piece. False: no more are wanted.
    fn piece(&mut self, kind: Kind, text: &str, spaced: bool) -> bool;
}

/// A number that is the same for all statements of one normal form.
pub(super) fn hash(text: &str) -> u64 {
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    read(text, &mut hash);
    mixed(hash.0)
}

/// The normal form in the spelling of this text, cut to about so many bytes.
pub(super) fn spelled(text: &str, bytes_max: usize) -> String {
    let mut spelling = Spelling { text: String::new(), bytes_max };
    read(text, &mut spelling);
    spelling.text
}

/// Makes every bit depend on every other.
pub(super) fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// FNV-1a.
struct Hash(u64);

impl Hash {
    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
}

impl Sink for Hash {
    fn piece(&mut self, kind: Kind, text: &str, _spaced: bool) -> bool {
        match kind {
            Kind::Quoted => text.bytes().for_each(|byte| self.byte(byte)),
            _ => text.bytes().for_each(|byte| self.byte(byte.to_ascii_lowercase())),
        }
        // In no text: the pieces `a b` and `ab` differ.
        self.byte(0xff);
        true
    }
}

struct Spelling {
    text: String,
    bytes_max: usize,
}

impl Sink for Spelling {
    fn piece(&mut self, _kind: Kind, text: &str, spaced: bool) -> bool {
        if spaced && !self.text.is_empty() {
            self.text.push(' ');
        }
        let room = self.bytes_max.saturating_sub(self.text.len());
        if text.len() <= room {
            self.text.push_str(text);
            return true;
        }
        self.text.push_str(&text[..boundary(text, room)]);
        self.text.push('…');
        false
    }
}

/// The last place at or before `at` where a text can be cut.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// What the pieces that went out end with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    Other,
    /// `(`
    Open,
    /// `( ?`, perhaps of many literals.
    OpenList,
    /// `?` elsewhere.
    List,
    /// `( ? )`
    Row,
}

/// What is held back behind a list or a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    /// `,`
    Comma,
    /// `, (` behind a row.
    Open,
    /// `, ( ?` behind a row.
    OpenList,
    /// `, ( ? ,` behind a row.
    OpenListComma,
}

struct Folding<'s, S> {
    sink: &'s mut S,
    tail: Tail,
    held: Held,
    /// The sink wants no more.
    is_full: bool,
}

fn read<S: Sink>(text: &str, sink: &mut S) {
    let is_cut = text.len() > READ_MAX;
    let mut lexemes = Lexemes::new(&text[..boundary(text, READ_MAX)]);
    let mut folding = Folding { sink, tail: Tail::Other, held: Held::Nothing, is_full: false };
    while let Some(lexeme) = lexemes.next() {
        // What the cut goes through is not what it seems, and nobody knows what goes on behind it.
        if is_cut && lexemes.is_at_end() {
            return;
        }
        folding.take(lexeme);
        if folding.is_full {
            return;
        }
    }
    folding.flush();
}

const COMMA: Lexeme<'_> = Lexeme { kind: Kind::Mark, text: ",", spaced: false };
const OPEN: Lexeme<'_> = Lexeme { kind: Kind::Mark, text: "(", spaced: true };
const LIST: Lexeme<'_> = Lexeme { kind: Kind::Literal, text: "?", spaced: false };

impl<S: Sink> Folding<'_, S> {
    fn take(&mut self, lexeme: Lexeme<'_>) {
        let is_literal = lexeme.kind == Kind::Literal;
        // A semicolon says nothing: it may as well not be there.
        let mark = if lexeme.kind == Kind::Mark { lexeme.text } else { "" };
        if mark == ";" {
            return;
        }
        self.held = match (self.held, self.tail, mark) {
            (Held::Nothing, Tail::OpenList | Tail::List | Tail::Row, ",") => Held::Comma,
            (Held::Nothing, ..) => return self.pass(lexeme),
            (Held::Comma, Tail::OpenList | Tail::List, _) if is_literal => Held::Nothing,
            (Held::Comma, Tail::Row, "(") => Held::Open,
            (Held::Open | Held::OpenListComma, ..) if is_literal => Held::OpenList,
            (Held::OpenList, _, ",") => Held::OpenListComma,
            (Held::OpenList, _, ")") => Held::Nothing,
            _ => {
                self.flush();
                return self.take(lexeme);
            }
        };
    }

    /// What was held is no list that goes on. Afterwards at most a comma is held, and that only
    /// behind a list, so that what comes next is looked at anew once or twice.
    fn flush(&mut self) {
        let held = std::mem::replace(&mut self.held, Held::Nothing);
        let pieces: &[Lexeme<'_>] = match held {
            Held::Nothing => &[],
            Held::Comma => &[COMMA],
            Held::Open => &[COMMA, OPEN],
            Held::OpenList => &[COMMA, OPEN, LIST],
            Held::OpenListComma => &[COMMA, OPEN, LIST, COMMA],
        };
        pieces.iter().for_each(|&piece| self.pass(piece));
    }

    fn pass(&mut self, lexeme: Lexeme<'_>) {
        if self.is_full {
            return;
        }
        self.tail = match (lexeme.kind, lexeme.text) {
            (Kind::Literal, _) if self.tail == Tail::Open => Tail::OpenList,
            (Kind::Literal, _) => Tail::List,
            (Kind::Mark, "(") => Tail::Open,
            (Kind::Mark, ")") if self.tail == Tail::OpenList => Tail::Row,
            _ => Tail::Other,
        };
        let text = if lexeme.kind == Kind::Literal { "?" } else { lexeme.text };
        self.is_full |= !self.sink.piece(lexeme.kind, text, lexeme.spaced);
    }
}
