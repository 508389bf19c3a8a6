//! The conflict matrix of a component: which of its services may not come between each other's
//! effects.
//!
//! A new call of `t2` conflicts with a held lock of `t1` if the matrix says so for (`t1`, `t2`), or
//! for (`t2`, the undo of `t1`): the undo must still be possible after whatever was let in (paper,
//! §3.2). Only local effects count; what a service calls elsewhere is looked after there.
//!
//! # Defaults
//!
//! - What nothing is said about conflicts with everything on the component. Forgetting a line costs
//!   concurrency, never correctness.
//! - Two services that only read never conflict, whatever their items are.
//! - A line is symmetric, unless it says otherwise.
//!
//! ```text
//! services: take (undo), count (reads)     lines: take/take never; take/count same item
//!
//!   held \ new    take         count
//!   take          -            same item
//!   count         same item    -            both read
//! ```

use std::fmt;
use std::hash::{Hash, Hasher};

/// The place of a service in its component's list.
pub type ServiceId = u16;

/// When two calls conflict. Ordered: what conflicts always conflicts on the same item, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Conflict {
    /// They may be exchanged, whatever their items are.
    Never,
    /// They conflict if their items are the same.
    SameItem,
    /// They conflict.
    Always,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Conflict::Never => "-",
            Conflict::SameItem => "same item",
            Conflict::Always => "always",
        })
    }
}

/// A line of a declaration: how two services of one component stand to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    held: String,
    new: String,
    conflict: Conflict,
    /// The new call against the undo of the held one; by default the same as against the call
    /// itself.
    undo: Option<Conflict>,
    is_symmetric: bool,
}

fn line(a: &str, b: &str, conflict: Conflict) -> Line {
    Line { held: a.to_owned(), new: b.to_owned(), conflict, undo: None, is_symmetric: true }
}

/// `a` and `b` conflict if their items are the same.
pub fn same_item(a: &str, b: &str) -> Line {
    line(a, b, Conflict::SameItem)
}

/// `a` and `b` always conflict.
pub fn always(a: &str, b: &str) -> Line {
    line(a, b, Conflict::Always)
}

/// `a` and `b` may be exchanged, and so may either with the undo of the other.
pub fn never(a: &str, b: &str) -> Line {
    line(a, b, Conflict::Never)
}

impl Line {
    /// The new call against the *undo* of the held one, where that is another matter.
    pub fn undo(mut self, conflict: Conflict) -> Line {
        self.undo = Some(conflict);
        self
    }

    /// Only for a lock of the first service that is held when the second is called, not the other
    /// way round.
    pub fn one_way(mut self) -> Line {
        self.is_symmetric = false;
        self
    }

    fn effective(&self) -> Conflict {
        self.conflict.max(self.undo.unwrap_or(self.conflict))
    }
}

/// What the matrix needs to know of a service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// It says which item a call is about.
    pub has_item: bool,
    /// It only reads.
    pub reads: bool,
    /// It has an undo: its local transactions commit early. Otherwise they are kept prepared.
    pub has_undo: bool,
    /// It is never a part of a root that has begun elsewhere.
    pub begins_only: bool,
}

impl Declared {
    /// Whether its calls, as parts of a root, are kept prepared until the root ends.
    pub fn is_closed(&self) -> bool {
        !self.reads && !self.has_undo && !self.begins_only
    }
}

/// A declaration that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMatrix {
    /// A line names a service that the component does not have.
    #[error("the conflict matrix names {0:?}, which is not a service of this component")]
    Unknown(String),
    /// A line speaks of items, and the service does not say what its item is.
    #[error("the conflict matrix compares items of {0:?}, which declares none")]
    NoItem(String),
    /// Two services have one name.
    #[error("two services are named {0:?}")]
    Twice(String),
    /// More services than a component can have.
    #[error("more than {} services", ServiceId::MAX)]
    TooMany,
}

/// The matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    services: Vec<Declared>,
    /// `cells[held][new]`.
    cells: Vec<Vec<Conflict>>,
}

impl Matrix {
    /// From the services and what is declared about them; later lines win.
    ///
    /// # Errors
    /// [`BadMatrix`].
    pub fn new(services: Vec<Declared>, lines: &[Line]) -> Result<Matrix, BadMatrix> {
        if services.len() >= usize::from(ServiceId::MAX) {
            return Err(BadMatrix::TooMany);
        }
        for (place, service) in services.iter().enumerate() {
            if services[..place].iter().any(|other| other.name == service.name) {
                return Err(BadMatrix::Twice(service.name.clone()));
            }
        }
        let row = |held: &Declared| {
            let cell = |new: &Declared| match held.reads && new.reads {
                true => Conflict::Never,
                false => Conflict::Always,
            };
            services.iter().map(cell).collect()
        };
        let cells = services.iter().map(row).collect();
        let mut matrix = Matrix { services, cells };
        for line in lines {
            let (held, new) = (matrix.find(&line.held)?, matrix.find(&line.new)?);
            let conflict = line.effective();
            for service in [held, new] {
                let declared = &matrix.services[service];
                if conflict == Conflict::SameItem && !declared.has_item {
                    return Err(BadMatrix::NoItem(declared.name.clone()));
                }
            }
            matrix.cells[held][new] = conflict;
            if line.is_symmetric {
                matrix.cells[new][held] = conflict;
            }
        }
        Ok(matrix)
    }

    fn find(&self, name: &str) -> Result<usize, BadMatrix> {
        let place = self.services.iter().position(|service| service.name == name);
        place.ok_or_else(|| BadMatrix::Unknown(name.to_owned()))
    }

    /// The services, by their numbers.
    pub fn services(&self) -> &[Declared] {
        &self.services
    }

    /// The number of a service.
    pub fn service(&self, name: &str) -> Option<ServiceId> {
        self.find(name).ok().and_then(|place| ServiceId::try_from(place).ok())
    }

    /// How a new call stands to a lock that is held.
    pub fn cell(&self, held: ServiceId, new: ServiceId) -> Conflict {
        self.cells[usize::from(held)][usize::from(new)]
    }
}

impl Hash for Matrix {
    /// Few matrices are ever compared, so their size tells them apart well enough.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.services.len().hash(state);
    }
}

impl fmt::Display for Matrix {
    /// A table for a person, as it is printed at the start.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.services.iter().map(|service| service.name.len()).max().unwrap_or(0).max(10);
        write!(f, "{:width$}", "held \\ new")?;
        for service in &self.services {
            write!(f, "  {:width$}", service.name)?;
        }
        for (held, service) in self.services.iter().enumerate() {
            write!(f, "\n{:width$}", service.name)?;
            for cell in &self.cells[held] {
                write!(f, "  {cell:width$}")?;
            }
            write!(f, "  {}", kind(service))?;
        }
        Ok(())
    }
}

/// How a service's local transactions end.
pub fn kind(service: &Declared) -> &'static str {
    match service {
        Declared { reads: true, .. } => "reads",
        Declared { begins_only: true, .. } => "begins roots: its commit is the decision",
        Declared { has_undo: true, .. } => "open: commits early, has an undo",
        Declared { .. } => "closed: no undo, prepared until the root ends",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(name: &str, reads: bool) -> Declared {
        Declared {
            name: name.to_owned(),
            has_item: name != "all",
            reads,
            has_undo: !reads,
            begins_only: false,
        }
    }

    fn matrix(lines: &[Line]) -> Result<Matrix, BadMatrix> {
        Matrix::new(vec![declared("take", false), declared("count", true), declared("all", true)], lines)
    }

    #[test]
    fn what_nothing_is_said_about_conflicts_with_everything_but_reads_with_reads() -> Result<(), BadMatrix> {
        let matrix = matrix(&[])?;
        assert_eq!(matrix.cell(0, 0), Conflict::Always);
        assert_eq!(matrix.cell(0, 1), Conflict::Always);
        assert_eq!(matrix.cell(1, 0), Conflict::Always);
        assert_eq!(matrix.cell(1, 2), Conflict::Never);
        Ok(())
    }

    #[test]
    fn lines_are_symmetric_unless_they_say_otherwise_and_the_undo_counts() -> Result<(), BadMatrix> {
        let lines = [never("take", "take"), same_item("take", "count").one_way()];
        let with = matrix(&lines)?;
        assert_eq!((with.cell(0, 1), with.cell(1, 0)), (Conflict::SameItem, Conflict::Always));
        assert_eq!(with.cell(0, 0), Conflict::Never);
        let with = matrix(&[never("take", "take").undo(Conflict::SameItem)])?;
        assert_eq!(with.cell(0, 0), Conflict::SameItem);
        Ok(())
    }

    #[test]
    fn a_line_about_nothing_is_refused() {
        assert_eq!(matrix(&[never("take", "x")]), Err(BadMatrix::Unknown("x".to_owned())));
        assert_eq!(matrix(&[same_item("take", "all")]), Err(BadMatrix::NoItem("all".to_owned())));
        let twice = Matrix::new(vec![declared("a", true), declared("a", true)], &[]);
        assert_eq!(twice, Err(BadMatrix::Twice("a".to_owned())));
    }

    #[test]
    fn the_printed_matrix_has_a_row_a_service() -> Result<(), BadMatrix> {
        let printed = matrix(&[never("take", "take")])?.to_string();
        let expected = "held \\ new  take        count       all       \n\
                        take        -           always      always      open: commits early, has an undo\n\
                        count       always      -           -           reads\n\
                        all         always      -           -           reads";
        assert_eq!(printed, expected);
        Ok(())
    }
}
