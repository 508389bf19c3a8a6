//! Cognate inside a program: a durable, transactional SQL database in a folder, without a server.
//!
//! ```no_run
//! use cognate::Database;
//!
//! let database = Database::open("shop-data")?;
//! let mut session = database.session()?;
//! session.execute("CREATE TABLE item (id int PRIMARY KEY, name text NOT NULL, stock int NOT NULL)", &[])?;
//! session.execute("INSERT INTO item VALUES ($1, $2, $3)", &[&1, &"chair", &7])?;
//!
//! let mut sale = session.begin()?;
//! let row = sale.query_one("SELECT stock FROM item WHERE id = $1 FOR UPDATE", &[&1])?;
//! let stock: i32 = row.get(0)?;
//! sale.execute("UPDATE item SET stock = $2 WHERE id = $1", &[&1, &(stock - 1)])?;
//! sale.commit()?;
//! # Ok::<(), cognate::Error>(())
//! ```
//!
//! A [`Session`] runs one statement at a time; a program opens as many as it likes, on any threads.
//! A statement outside a transaction commits by itself and is durable when the call returns. The
//! same folder can later be served by `cognate serve`, but not at the same time.
//!
//! Every call has a twin whose name ends in `_async` for programs that have an executor. The plain
//! calls need none: they wait on the calling thread, and must not be made from inside one.

mod database;
mod row;
mod session;
mod value;
mod wait;

pub use cognate_engine::{ActiveLimit, Method, Options};
pub use cognate_sql::SqlError as Error;
pub use cognate_sql::sqlstate;
pub use cognate_sql::types::{Datum, Interval, Numeric, Type, TypeId};

pub use database::Database;
pub use row::{ColumnIndex, Row};
pub use session::{AsStatement, Session, Statement, Transaction};
pub use value::{FromValue, Parameter};

/// Result of every call.
pub type Result<T, E = Error> = std::result::Result<T, E>;
