//! Exactly once at the root: the answer to a request that has a key is stored in the decision's own
//! local transaction, and given again to whoever asks with the same key.
//!
//! Only committed answers are stored, so what failed can be tried again. A second request that
//! comes while the first one is under way waits for it.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use crate::node::Node;
use crate::problem::Problem;
use crate::run::{Key, Reply, Request};

const FIND: &str = "SELECT arguments, answer, kept_until < now() FROM cognate_composite.answer
    WHERE component = $1 AND key = $2";
const FORGET: &str = "DELETE FROM cognate_composite.answer
    WHERE component = $1 AND key = $2 AND kept_until < now()";
const SWEEP: &str = "DELETE FROM cognate_composite.answer WHERE component = $1 AND kept_until < now()";

impl Node {
    /// Answers a request that has a key.
    pub(crate) async fn once(self: &Arc<Self>, request: Request, key: Key) -> Reply {
        let deadline = request.deadline;
        let turn = self.turn(&key.key);
        let Ok(_turn) = timeout_at(deadline, turn.lock()).await else {
            return Err(Problem::new(409, "running", "the first request with this key is still under way"));
        };
        let late = || Problem::new(504, "deadline", "the time of the request is over");
        // Nothing is begun before this: whose time is over here is not told that something may have
        // happened.
        let kept = timeout_at(deadline, self.kept(&key.key)).await.map_err(|_| late())?;
        if let Some((arguments, answer)) = kept? {
            return match arguments == key.arguments {
                true => Ok(answer),
                false => Err(Problem::new(422, "key", "this key was used for another request")),
            };
        }
        if Instant::now() >= deadline {
            return Err(late());
        }
        let reply = self.root(Request { key: Some(key.clone()), ..request }).await;
        // The commit of an earlier attempt may have come after its answer was given up, and be what
        // this one is refused for.
        let is_refused = reply.as_ref().is_err_and(|problem| problem.reason == "failed");
        if is_refused
            && let Ok(Some((arguments, answer))) = self.kept(&key.key).await
            && arguments == key.arguments
        {
            return Ok(answer);
        }
        reply
    }

    async fn kept(&self, key: &str) -> Result<Option<(String, String)>, Problem> {
        let lease = self.pool.take().await?;
        let rows = lease.query(FIND, &[self.slots.component(), &key]).await;
        let rows = rows.map_err(|error| crate::Error::from(error).into_problem())?;
        let found = rows.first().map(|row| (row.get(0), row.get(1), row.get::<_, bool>(2)));
        if let Some((.., true)) = found {
            let forgotten = lease.execute(FORGET, &[self.slots.component(), &key]).await;
            forgotten.map_err(|error| crate::Error::from(error).into_problem())?;
        }
        lease.give_back();
        Ok(found.filter(|(.., is_over)| !is_over).map(|(arguments, answer, _)| (arguments, answer)))
    }

    /// Removes the answers whose time is over.
    pub(crate) async fn sweep_answers(&self) {
        let Ok(lease) = self.pool.take().await else { return };
        if lease.in_time(lease.execute(SWEEP, &[self.slots.component()])).await.is_ok() {
            lease.give_back();
        }
    }

    /// Whether this root's answer is kept, once nobody can be writing it any more.
    pub(crate) async fn is_kept(&self, key: &str, root: &str) -> bool {
        self.pool.close_idle();
        // The statement waits for whoever is inserting the same key, and is taken back.
        let touch = "INSERT INTO cognate_composite.answer VALUES ($1, $2, '', '', '', now())
            ON CONFLICT (component, key) DO UPDATE SET root = cognate_composite.answer.root RETURNING root";
        loop {
            if let Ok(lease) = self.pool.take().await
                && lease.batch("BEGIN ISOLATION LEVEL READ COMMITTED").await.is_ok()
                && let Ok(rows) = lease.query(touch, &[self.slots.component(), &key]).await
            {
                lease.roll_back().await;
                return rows.first().is_some_and(|row| row.get::<_, String>(0) == root);
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
}
