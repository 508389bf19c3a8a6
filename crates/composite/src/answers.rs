//! Exactly once at the root: the answer to a request that has a key is stored in the decision's own
//! local transaction, and given again to whoever asks with the same key.
//!
//! Only committed answers are stored, so what failed can be tried again. A second request that
//! comes while the first one is under way waits for it.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::database::Pool;
use crate::node::{Node, Turn};
use crate::problem::Problem;
use crate::run::{Key, Reply, Request};

const FIND: &str = "SELECT arguments, answer, kept_until < now() FROM cognate_composite.answer
    WHERE component = $1 AND key = $2";
const FORGET: &str = "DELETE FROM cognate_composite.answer
    WHERE component = $1 AND key = $2 AND kept_until < now()";
/// The last one of the next keys, in the order of the primary key: no other index says which
/// answers are over, since every request with a key would have to write it, too.
const PIECE: &str = "SELECT max(key) FROM (SELECT key FROM cognate_composite.answer
    WHERE component = $1 AND key > $2 ORDER BY key LIMIT 1000) piece";
const SWEEP: &str = "DELETE FROM cognate_composite.answer
    WHERE component = $1 AND key > $2 AND key <= $3 AND kept_until < now()";

/// After so many keys, those that nobody waits for are forgotten.
const TURNS_MAX: usize = 4096;
/// How long pieces are swept at a time. Slots wait to be freed as long.
const SWEEPING: Duration = Duration::from_secs(1);

impl Node {
    /// What requests with this key take turns by.
    fn turn(&self, key: &str) -> Arc<Turn> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        if turns.len() >= TURNS_MAX {
            turns.retain(|_, turn| turn.strong_count() > 0);
        }
        let turn = Arc::new(Turn::default());
        turns.insert(key.to_owned(), Arc::downgrade(&turn));
        turn
    }

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

    /// Removes answers whose time is over, of the keys behind this one, and moves it on: the next
    /// time begins there. There may be a day's answers: one statement about all of them would not
    /// end in its time, and never again once there are too many.
    pub(crate) async fn sweep_answers(&self, behind: &mut String) {
        let until = Instant::now() + SWEEPING;
        while Instant::now() < until {
            let swept = sweep_piece(&self.pool, self.slots.component(), behind).await;
            match swept {
                Ok(Some(last)) => *behind = last,
                Ok(None) => {
                    behind.clear();
                    return;
                }
                Err(problem) => {
                    tracing::warn!("answers whose time is over cannot be removed yet: {problem}");
                    return;
                }
            }
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
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Removes what is over of the next keys behind this one. Answers the last one of these.
async fn sweep_piece(pool: &Arc<Pool>, component: &str, behind: &str) -> Result<Option<String>, Problem> {
    let lease = pool.take().await?;
    let piece = lease.in_time(lease.query(PIECE, &[&component, &behind])).await;
    let rows = piece.map_err(crate::Error::into_problem)?;
    let last: Option<String> = rows.first().and_then(|row| row.get(0));
    if let Some(last) = &last {
        let swept = lease.in_time(lease.execute(SWEEP, &[&component, &behind, last])).await;
        swept.map_err(crate::Error::into_problem)?;
    }
    lease.give_back();
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Target;
    use crate::sessions::application_name;
    use crate::slots::take_over;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_over_is_removed_piece_by_piece() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("embedded:{}", folder.path().join("database").display());
        let pool = Pool::new(Target::open(&url).await.unwrap(), application_name("solo", 1), 4);
        let lease = pool.take().await.unwrap();
        take_over(&lease, "solo").await.unwrap();
        // Every second one is over, and those of others are not ours to remove.
        let keep = "INSERT INTO cognate_composite.answer
            SELECT c, 'k' || (10000 + g), 'r', '', '',
                now() + (g % 2) * interval '2 hours' - interval '1 hour'
            FROM generate_series(1, 2500) g, (VALUES ('other'), ('solo'), ('tail')) v (c)";
        lease.batch(keep).await.unwrap();
        let count = async |component: &str, last: &str| {
            let left = "SELECT count(*) FROM cognate_composite.answer WHERE component = $1 AND key <= $2";
            lease.query(left, &[&component, &last]).await.unwrap()[0].get::<_, i64>(0)
        };
        let mut behind = String::new();
        for (last, left) in [("k11000", 500), ("k12000", 1000), ("k12500", 1250)] {
            let found = sweep_piece(&pool, "solo", &behind).await.unwrap();
            assert_eq!(found.as_deref(), Some(last));
            assert_eq!(count("solo", last).await, left);
            behind = last.to_owned();
        }
        assert_eq!(sweep_piece(&pool, "solo", &behind).await.unwrap(), None);
        for other in ["other", "tail"] {
            assert_eq!(count(other, "k12500").await, 2500, "{other}");
        }
        lease.give_back();
        pool.close_idle();
        pool.target().clone().close().await;
    }
}
