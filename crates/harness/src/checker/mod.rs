//! The oracle: decides offline, from what clients saw, whether a run was serializable and which
//! aborts were needless.
//!
//! It shares nothing with the engine. The certifier decides with snapshots, commit numbers and the
//! ranges that plans scan; the oracle knows only what was recorded outside: each row carries the
//! stamp of the version that it is, so a reader knows which version it read, and each update tells
//! which version it replaced.
//!
//! *(a) Serializable.* The committed transactions are the nodes of a direct serialization graph
//! (Adya, "Weak Consistency", 1999): `wr` from a version's writer to its reader, `ww` from a
//! version's writer to that of the next version, `rw` from a version's reader to the writer of the
//! next version. A predicate read also depends on what it did not return: on the last version that
//! left the range (`wr`), and against the next version that enters it (`rw`, a phantom). The
//! history is conflict-serializable exactly if the graph has no cycle.
//!
//! *(b) Needless aborts.* A transaction that the certifier aborted is put back, as if it had
//! committed next, among the transactions that had committed by then. If no cycle passes through
//! it, nothing was gained by its abort. First updater wins aborts needlessly if nothing has changed
//! that the victim had read.
//!
//! *(c) Strict.* With an edge from each transaction that was acknowledged to each that began after
//! that, the graph tells whether there is a serial order in the order of real time.
//!
//! *Columns.* The certifier knows which columns of a row were read and which were changed; the
//! oracle knows rows. The recorded load is such that both are the same: every write gives its row
//! another stamp, and whatever returns a row returns its stamp. So whoever has read a row has read
//! what every write of it changes; and conditions of scans the oracle knows by itself. A load that
//! reads rows without their stamps would have histories here that are not serializable by rows, and
//! are by columns.
//!
//! A worked history, write skew: `x0`, `y0` are initial; `T1` reads `x0` and writes `y`, `T2` reads
//! `y0` and writes `x`.
//!
//! ```text
//!   T1: r(x0)         w(y1) commit            y: y0 → y1      T2 read y0:  T2 -rw→ T1
//!   T2:       r(y0) w(x2)          commit     x: x0 → x2      T1 read x0:  T1 -rw→ T2      a cycle
//! ```
//!
//! Had `T2` been aborted at its commit, then `T1` is the only transaction committed by then, and
//! putting `T2` back closes this cycle: the abort was right. Had `T2` read another row instead, the
//! abort would have been needless.

pub mod graph;
pub mod history;
pub mod needless;
pub mod verdict;
pub mod versions;
