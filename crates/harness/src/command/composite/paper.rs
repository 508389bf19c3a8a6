//! What the paper measured (tables 2 and 3), on fifteen machines of its time.

use crate::workload::composite::tree::{Semantics, Shape};

/// A row of its tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Published {
    /// Levels and calls.
    pub(super) shape: Shape,
    /// Which calls conflict.
    pub(super) semantics: Semantics,
    /// As it is printed; a tree of four levels of two has one node more.
    pub(super) cardinality: u32,
    /// Roots a minute.
    pub(super) roots: f64,
    /// Local transactions a minute.
    pub(super) overall: f64,
    /// Mean response time in milliseconds.
    pub(super) response_ms: f64,
    /// Roots that were aborted, in percent.
    pub(super) aborted_pct: f64,
}

/// Tables 2 and 3; the first row of the latter is the one of the former.
pub(super) const TABLES: [Published; 12] = [
    row(1, 1, 1, 1400.0, 1400.0, 520.0, 0.0),
    row(2, 1, 2, 1000.0, 1991.0, 1060.0, 1.0),
    row(3, 1, 3, 870.0, 2647.0, 1300.0, 1.7),
    row(4, 1, 4, 720.0, 2872.0, 1700.0, 5.7),
    row(2, 2, 3, 800.0, 2402.0, 1650.0, 1.6),
    row(3, 2, 7, 400.0, 2872.0, 3200.0, 7.1),
    row(4, 2, 14, 175.0, 3096.0, 6500.0, 31.0),
    row(2, 3, 4, 720.0, 2882.0, 1800.0, 2.1),
    row(3, 3, 13, 200.0, 2924.0, 5900.0, 22.0),
    row(2, 5, 6, 410.0, 2485.0, 3000.0, 5.7),
    Published { semantics: Semantics::HalfConflict, ..row(4, 2, 14, 210.0, 3300.0, 6000.0, 17.0) },
    Published { semantics: Semantics::NoConflicts, ..row(4, 2, 14, 200.0, 3100.0, 6700.0, 1.25) },
];

const fn row(
    depth: u32,
    width: u32,
    cardinality: u32,
    roots: f64,
    overall: f64,
    response_ms: f64,
    aborted_pct: f64,
) -> Published {
    let shape = Shape { depth, width };
    let semantics = Semantics::AllConflict;
    Published { shape, semantics, cardinality, roots, overall, response_ms, aborted_pct }
}
