//! Services as a developer declares them: a typed function, what a call of it is about, and how it
//! is undone.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::Value;

use crate::call::{Call, Undo};
use crate::locks::Item;
use crate::matrix::Declared;
use crate::problem::{Problem, Result};
use crate::shape;
use crate::sql::Begin;

/// A future that is kept somewhere.
pub(crate) type Kept<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The contract of a service, shared by who offers it and who calls it.
pub struct Service<A, R> {
    component: &'static str,
    name: &'static str,
    shape: PhantomData<fn(A) -> R>,
}

impl<A, R> Service<A, R> {
    /// The service `name` of the component `component`.
    pub const fn named(component: &'static str, name: &'static str) -> Service<A, R> {
        Service { component, name, shape: PhantomData }
    }

    /// The component.
    pub fn component(&self) -> &'static str {
        self.component
    }

    /// The service.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl<A, R> Clone for Service<A, R> {
    fn clone(&self) -> Service<A, R> {
        *self
    }
}

impl<A, R> Copy for Service<A, R> {}

impl<A, R> fmt::Debug for Service<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.component, self.name)
    }
}

type Run<A> = Arc<dyn Fn(Call, A) -> Kept<Result<String>> + Send + Sync>;
type About<A> = Arc<dyn Fn(&A) -> String + Send + Sync>;
type Undoing = Arc<dyn Fn(Undo, &str) -> serde_json::Result<Kept<Result<()>>> + Send + Sync>;

/// A service's function, with what is declared about it.
pub struct Handler<A> {
    run: Run<A>,
    item: Option<About<A>>,
    undo: Option<Undoing>,
    reads: bool,
    begins_only: bool,
    isolation: Begin,
}

/// A service that runs this function.
pub fn service<A, R, F, Fut>(run: F) -> Handler<A>
where
    R: Serialize,
    F: Fn(Call, A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R>> + Send + 'static,
{
    let run = move |call: Call, arguments: A| -> Kept<Result<String>> {
        let running = run(call, arguments);
        Box::pin(async move {
            let answer = serde_json::to_string(&running.await?);
            answer.map_err(|error| crate::Error::refuse(format!("the answer cannot be written: {error}")))
        })
    };
    Handler {
        run: Arc::new(run),
        item: None,
        undo: None,
        reads: false,
        begins_only: false,
        isolation: Begin::Serializable,
    }
}

impl<A: 'static> Handler<A> {
    /// What a call is about: calls about different items need not conflict.
    pub fn item<I: ToString>(mut self, item: impl Fn(&A) -> I + Send + Sync + 'static) -> Handler<A> {
        self.item = Some(Arc::new(move |arguments| item(arguments).to_string()));
        self
    }

    /// How a call is undone after its local transaction has committed: this runs for each value
    /// that the service pushed with [`Call::undo`], the last one first, in one local transaction.
    pub fn undo<U, F, Fut>(mut self, undo: F) -> Handler<A>
    where
        U: DeserializeOwned,
        F: Fn(Undo, U) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        self.undo = Some(Arc::new(move |handle, pushed| {
            let undoing = undo(handle, serde_json::from_str(pushed)?);
            Ok(Box::pin(undoing))
        }));
        self
    }

    /// The service changes nothing: it runs in a transaction that only reads, and its calls never
    /// conflict with other reads.
    pub fn reads(mut self) -> Handler<A> {
        self.reads = true;
        self
    }

    /// The service only begins roots: clients call it, and no other component. Then it needs no
    /// undo, and its database need not prepare transactions.
    pub fn begins_only(mut self) -> Handler<A> {
        self.begins_only = true;
        self
    }

    /// The service and its undo run at READ COMMITTED instead of SERIALIZABLE. That is right where
    /// each of their statements finds and changes what it needs in one step, and every pair of
    /// services that may be exchanged has been tried at the same time, undos included.
    pub fn read_committed(mut self) -> Handler<A> {
        self.isolation = Begin::ReadCommitted;
        self
    }
}

/// A call's function with its arguments, to be run once or more often.
pub(crate) struct Prepared {
    pub(crate) item: Item,
    pub(crate) run: Box<dyn Fn(Call) -> Kept<Result<String>> + Send + Sync>,
}

/// A service without its types.
pub(crate) struct Erased {
    pub(crate) declared: Declared,
    /// The shape of its arguments.
    pub(crate) takes: Value,
    pub(crate) prepare: Box<dyn Fn(Value) -> serde_json::Result<Prepared> + Send + Sync>,
    pub(crate) undo: Option<Undoing>,
    pub(crate) begin: Begin,
}

impl Erased {
    /// A call with these arguments. What it is about is said by a developer's code.
    pub(crate) fn prepared(&self, arguments: Value) -> Result<Prepared, Problem> {
        let prepared = catch_unwind(AssertUnwindSafe(|| (self.prepare)(arguments)));
        let prepared = prepared.map_err(|_| failed())?;
        prepared.map_err(|error| Problem::new(400, "arguments", error.to_string()))
    }
}

impl<A: DeserializeOwned + Clone + Send + Sync + 'static> Handler<A> {
    pub(crate) fn erase(self, name: &str) -> Erased {
        let Handler { run, item, undo, reads, begins_only, isolation } = self;
        let begin = if reads { Begin::ReadOnly } else { isolation };
        let (name, has_item, has_undo) = (name.to_owned(), item.is_some(), undo.is_some());
        let declared = Declared { name, has_item, reads, has_undo, begins_only };
        let takes = shape::of::<A>();
        // It could be read from a list of its fields' values, too, which nobody has declared.
        let has_fields = shape::has_fields(&takes);
        let prepare = move |arguments: Value| {
            if has_fields && arguments.is_array() {
                return Err(serde_json::Error::custom("a list where an object is expected"));
            }
            let arguments: A = serde_json::from_value(arguments)?;
            let about = item.as_ref().map(|item| item(&arguments)).unwrap_or_default();
            let run = Arc::clone(&run);
            let run = Box::new(move |call: Call| run(call, arguments.clone()));
            Ok(Prepared { item: about.into(), run })
        };
        Erased { declared, takes, prepare: Box::new(prepare), undo, begin }
    }
}

/// Runs a developer's code. If it panics it has failed, as with an error, and what its local
/// transaction did is rolled back.
pub(crate) async fn caught<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut work = pin!(work);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(poll) => poll,
        Err(_) => Poll::Ready(Err(failed().into())),
    })
    .await
}

/// A developer's code has panicked; the message is in the component's log.
fn failed() -> Problem {
    Problem::new(503, "defect", "the service has failed")
}
