//! The test kit: whether what is declared compatible is so.
//!
//! A matrix that lets two services pass each other which may not is silently wrong: everything
//! works, and the order of roots is lost. So a component's tests give sample calls, and the kit
//! runs every two of them that do not conflict, on the same state:
//!
//! | | has to be the same |
//! |---|---|
//! | `a b` and `b a` | the state, and each call's answer |
//! | `a b`, undo of `a` and `b` | the state, and the answer to `b` |
//!
//! The state is what the component's queries show. Each run is one local transaction that is rolled
//! back, so all begin with the same one, and nothing is left. Calls of other components are not
//! made: only local effects count for the matrix.
//!
//! ```no_run
//! # use cognate_composite::{Component, Service};
//! # const TAKE: Service<i32, i32> = Service::named("stock", "take");
//! # fn stock() -> Component { unimplemented!() }
//! # async fn check() -> Result<(), Box<dyn std::error::Error>> {
//! let mut kit = stock().database("embedded:test-data").kit(["SELECT id, stock FROM item ORDER BY id"]).await?;
//! kit.sample(TAKE, &1)?;
//! kit.sample(TAKE, &2)?;
//! assert_eq!(kit.check().await?, []);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::call::{Call, Undo};
use crate::database::{Lease, Pool};
use crate::matrix::{Conflict, Matrix, ServiceId};
use crate::name::{CallId, RootId};
use crate::problem::{Error, Problem, Result};
use crate::service::{Erased, Service};
use crate::sql::Sql;

/// How long a sample call may think that it has.
const DEADLINE: Duration = Duration::from_secs(60);

/// What two calls did that were declared compatible and are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// The state is another one, depending on which came first.
    State,
    /// The first one's answer is another one, depending on which came first.
    Answer,
    /// The first one was refused in one order only. A refusal ends its root, which then has no
    /// place in the order; so that is wrong only if somebody goes on after it.
    Refusal,
    /// After the second one the undo of the first does not lead to the state without it.
    Undo,
    /// The second one's answer is another one if the first has been there, although that is undone.
    AnswerBeforeUndo,
    /// After the second one the first cannot be undone.
    NoUndo(String),
}

/// Two calls that are not compatible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The first call: service and arguments.
    pub first: String,
    /// The second one.
    pub second: String,
    /// What differs.
    pub difference: Difference,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}: {:?}", self.first, self.second, self.difference)
    }
}

struct Sample {
    service: ServiceId,
    arguments: Value,
    item: Arc<str>,
}

/// A component's services, and calls of them to be tried.
pub struct Kit {
    services: Vec<Erased>,
    matrix: Arc<Matrix>,
    pool: Arc<Pool>,
    state: Vec<String>,
    samples: Vec<Sample>,
}

impl fmt::Debug for Kit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kit").field("samples", &self.samples.len()).finish_non_exhaustive()
    }
}

/// What was seen of some calls: each one's answer or refusal, what they pushed, and the state after
/// them.
struct Seen {
    answers: Vec<std::result::Result<String, String>>,
    stacks: Vec<Vec<String>>,
    state: Vec<Vec<Vec<Option<String>>>>,
}

impl Kit {
    pub(crate) fn new(
        services: Vec<Erased>,
        matrix: Arc<Matrix>,
        pool: Arc<Pool>,
        state: Vec<String>,
    ) -> Kit {
        Kit { services, matrix, pool, state, samples: Vec::new() }
    }

    /// A call to be tried with all others, and with itself.
    ///
    /// # Errors
    /// The component has no such service, or it does not take these arguments.
    pub fn sample<A: Serialize, R>(&mut self, service: Service<A, R>, arguments: &A) -> Result<()> {
        let unusable = |why: String| Error::from(Problem::new(400, "arguments", why));
        let number = self.matrix.service(service.name());
        let number = number.ok_or_else(|| unusable(format!("no service {service:?} here")))?;
        let arguments = serde_json::to_value(arguments).map_err(|error| unusable(error.to_string()))?;
        let prepared = (self.services[usize::from(number)].prepare)(arguments.clone());
        let item = prepared.map_err(|error| unusable(error.to_string()))?.item;
        self.samples.push(Sample { service: number, arguments, item });
        Ok(())
    }

    /// Tries every two samples that the matrix lets pass each other.
    ///
    /// # Errors
    /// The database is away; a query of the state fails.
    pub async fn check(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for first in &self.samples {
            for second in &self.samples {
                if self.conflict(first, second) {
                    continue;
                }
                findings.extend(self.pair(first, second).await?);
            }
        }
        Ok(findings)
    }

    fn conflict(&self, held: &Sample, new: &Sample) -> bool {
        match self.matrix.cell(held.service, new.service) {
            Conflict::Never => false,
            Conflict::SameItem => held.item == new.item,
            Conflict::Always => true,
        }
    }

    fn name(&self, sample: &Sample) -> String {
        format!("{} {}", self.services[usize::from(sample.service)].declared.name, sample.arguments)
    }

    async fn pair(&self, first: &Sample, second: &Sample) -> Result<Vec<Finding>> {
        let finding = |first: &Sample, second: &Sample, difference: Difference| Finding {
            first: self.name(first),
            second: self.name(second),
            difference,
        };
        let (one, other) = (self.run(&[first, second]).await?, self.run(&[second, first]).await?);
        let of_first = differs(&one.answers[0], &other.answers[1]);
        let mut found: Vec<Finding> =
            of_first.map(|difference| finding(first, second, difference)).into_iter().collect();
        // The second one's answer is compared when the pair comes the other way round. It does not
        // come if the two may pass each other in this order only.
        if self.conflict(second, first) {
            let of_second = differs(&one.answers[1], &other.answers[0]);
            found.extend(of_second.map(|difference| finding(second, first, difference)));
        }
        let mut all = one.answers.iter().chain(&other.answers);
        if all.all(std::result::Result::is_ok) && one.state != other.state {
            found.push(finding(first, second, Difference::State));
        }
        if one.answers[0].is_ok() && self.services[usize::from(first.service)].undo.is_some() {
            let of_undo = self.undo(first, second).await?;
            found.extend(of_undo.map(|difference| finding(first, second, difference)));
        }
        Ok(found)
    }

    /// The first one, the second one, and the undo of the first.
    async fn undo(&self, first: &Sample, second: &Sample) -> Result<Option<Difference>> {
        let alone = self.run(&[second]).await?;
        let lease = self.begin().await?;
        let mut seen = Seen { answers: Vec::new(), stacks: Vec::new(), state: Vec::new() };
        let lease = self.call(lease, first, &mut seen).await?;
        let lease = self.call(lease, second, &mut seen).await?;
        let sql = Arc::new(Sql::begun(&self.pool, lease));
        let service = &self.services[usize::from(first.service)];
        let work = async {
            for pushed in seen.stacks[0].iter().rev() {
                let Some(undo) = &service.undo else { continue };
                let undoing = undo(Undo::new(Arc::clone(&sql)), pushed);
                undoing.map_err(|error| Error::refuse(error.to_string()))?.await?;
            }
            Ok::<(), Error>(())
        };
        let undone = work.await;
        let lease = sql.take_lease().await?;
        if let Err(why) = undone {
            lease.roll_back().await;
            return Ok(Some(Difference::NoUndo(why.to_string())));
        }
        let state = self.state(&lease).await?;
        lease.roll_back().await;
        Ok(match (&seen.answers[1], &alone.answers[0]) {
            // Refused because of what is taken back: its root has ended, and may be tried again.
            (Err(_), _) => None,
            (Ok(with), Ok(without)) if with != without => Some(Difference::AnswerBeforeUndo),
            (Ok(_), Err(_)) => Some(Difference::AnswerBeforeUndo),
            _ => (state != alone.state).then_some(Difference::Undo),
        })
    }

    /// Runs calls one after the other, and takes everything back.
    async fn run(&self, samples: &[&Sample]) -> Result<Seen> {
        let mut seen = Seen { answers: Vec::new(), stacks: Vec::new(), state: Vec::new() };
        let mut lease = self.begin().await?;
        for sample in samples {
            lease = self.call(lease, sample, &mut seen).await?;
        }
        seen.state = self.state(&lease).await?;
        lease.roll_back().await;
        Ok(seen)
    }

    async fn begin(&self) -> Result<Lease> {
        let lease = self.pool.take().await?;
        lease.batch("BEGIN ISOLATION LEVEL SERIALIZABLE").await?;
        Ok(lease)
    }

    async fn call(&self, lease: Lease, sample: &Sample, seen: &mut Seen) -> Result<Lease> {
        lease.batch("SAVEPOINT call").await?;
        let name = |error: crate::name::BadName| Error::refuse(error.to_string());
        let (root, id) = (RootId::new("kit").map_err(name)?, CallId::new("1").map_err(name)?);
        let prepared = (self.services[usize::from(sample.service)].prepare)(sample.arguments.clone());
        let prepared = prepared.map_err(|error| Error::refuse(error.to_string()))?;
        let call = Call::alone(&root, &id, Instant::now() + DEADLINE, Sql::begun(&self.pool, lease));
        let answer = (prepared.run)(call.clone()).await;
        let lease = call.sql().take_lease().await?;
        if answer.is_err() {
            lease.batch("ROLLBACK TO SAVEPOINT call").await?;
        }
        seen.stacks.push(call.stack());
        seen.answers.push(answer.map_err(|error| error.to_string()));
        Ok(lease)
    }

    async fn state(&self, lease: &Lease) -> Result<Vec<Vec<Vec<Option<String>>>>> {
        let mut state = Vec::new();
        for query in &self.state {
            state.push(lease.texts(query).await?);
        }
        Ok(state)
    }
}

/// What is told of a call that answers this before another one, and that behind it.
fn differs(
    before: &std::result::Result<String, String>,
    behind: &std::result::Result<String, String>,
) -> Option<Difference> {
    match (before, behind) {
        (Ok(before), Ok(behind)) => (before != behind).then_some(Difference::Answer),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => Some(Difference::Refusal),
        (Err(_), Err(_)) => None,
    }
}
