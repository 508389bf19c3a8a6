//! What is said to the database about slots, generations and kept answers; `slots` has what it
//! rests on.
//!
//! A statement that must not do anything unless it finds what it should fails by the cast of a text
//! of ours to a number. Where that stands depends on the row, so no database casts it beforehand;
//! and a service's own SQL, or a trigger that runs at COMMIT, fails in many ways, but not in this.

/// What is no number where the generation is another one.
pub(crate) const FENCED: &str = "cognate-composite: another generation";
/// What is no number where the slot is not this root's any more.
pub(crate) const UNDONE: &str = "cognate-composite: undone already";

/// Writes a slot; fails with [`FENCED`] if it belongs to another generation. An insertion that
/// always meets its row is the one statement that can fail on what it finds, on every database.
pub(crate) const WRITE: &str = "INSERT INTO cognate_composite.slot AS s VALUES ($1, $2, $3, $4, $5, false)
    ON CONFLICT (component, id) DO UPDATE SET root = excluded.root, facts = excluded.facts, noted = false,
        generation = (CASE WHEN s.generation = excluded.generation THEN s.generation::text
            ELSE 'cognate-composite: another generation' END)::bigint";
/// Frees the slot of a call that is undone; fails with [`FENCED`], or with [`UNDONE`] if it is not
/// this root's any more: an earlier attempt has freed it, and undone the call in the same commit.
pub(crate) const RELEASE: &str = "INSERT INTO cognate_composite.slot AS s VALUES ($1, $2, $3, $4, NULL, false)
    ON CONFLICT (component, id) DO UPDATE SET root = NULL, facts = NULL,
        generation = (CASE WHEN s.generation = excluded.generation AND s.root = excluded.root THEN s.generation::text
            WHEN s.generation = excluded.generation THEN 'cognate-composite: undone already'
            ELSE 'cognate-composite: another generation' END)::bigint";
/// Fails with [`FENCED`] if the component has another generation.
pub(crate) const FENCE: &str = "SELECT (CASE WHEN count(*) = 1 THEN '1'::text
        ELSE 'cognate-composite: another generation' END)::int
    FROM cognate_composite.component WHERE name = $1 AND generation = $2";
/// Retires a slot, unless it is this root's. Twice is as once.
pub(crate) const RETIRE: &str = "UPDATE cognate_composite.slot SET
        generation = CASE WHEN root = $4 THEN generation ELSE 0::bigint END,
        facts = CASE WHEN root = $4 THEN facts ELSE NULL END,
        root = CASE WHEN root = $4 THEN root ELSE NULL END
    WHERE component = $1 AND id = $2 AND (generation = $3 OR generation = 0) RETURNING root";
/// Whose a slot is. An update waits for the row; a read would not. A retirement that came late may
/// have met the slot after it was freed: no other process has it for that.
pub(crate) const TOUCH: &str = "UPDATE cognate_composite.slot SET generation = generation
    WHERE component = $1 AND id = $2 AND (generation = $3 OR generation = 0) RETURNING root";
/// Frees slots of roots that are over. To free what is free already, or retired since, changes
/// nothing, and counts.
pub(crate) const FREE: &str = "UPDATE cognate_composite.slot SET root = NULL, facts = NULL
    WHERE component = $1 AND (generation = $2 OR generation = 0) AND id = ANY($3)
        AND (root IS NULL OR root = ANY($4))";
/// Says of a root's slots that it is committed.
pub(crate) const NOTE: &str = "UPDATE cognate_composite.slot SET noted = true
    WHERE component = $1 AND generation = $2 AND id = ANY($3) AND root = ANY($4)";

/// Keeps an answer; fails for a key that is kept already.
pub(crate) const KEEP: &str = "INSERT INTO cognate_composite.answer
    VALUES ($1, $2, $3, $4, $5, now() + make_interval(secs => $6))";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{Pool, Target};
    use crate::problem::Error;
    use crate::sessions::application_name;
    use crate::slots::{Slots, take_over};

    /// What fails because of the generation is told from what a service's own SQL fails with.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn statements_of_ours_say_what_they_fail_for() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("embedded:{}", folder.path().join("database").display());
        let pool = Pool::new(Target::open(&url).await.unwrap(), application_name("solo", 1), 4);
        let lease = pool.take().await.unwrap();
        let slots = Slots::new("solo", &take_over(&lease, "solo").await.unwrap());
        let id = slots.choose(&pool).await.unwrap().slot as i32;
        let (solo, own, other) = (slots.component(), slots.generation(), &2_i64);
        lease.execute(WRITE, &[solo, &id, own, &"b", &"{}"]).await.unwrap();
        let failures = [
            (lease.execute(WRITE, &[solo, &id, other, &"b", &"{}"]).await, Some(FENCED)),
            (lease.execute(RELEASE, &[solo, &id, other, &"b"]).await, Some(FENCED)),
            (lease.execute(RELEASE, &[solo, &id, own, &"a"]).await, Some(UNDONE)),
            (lease.execute(FENCE, &[solo, other]).await, Some(FENCED)),
            (lease.execute("SELECT 1 / count(*) FROM cognate_composite.answer", &[]).await, None),
            (lease.execute("SELECT component::int FROM cognate_composite.slot", &[]).await, None),
        ];
        for (place, (failed, expected)) in failures.into_iter().enumerate() {
            let error = Error::from(failed.unwrap_err());
            for text in [FENCED, UNDONE] {
                assert_eq!(error.is_of_cast(text), expected == Some(text), "{place}: {error:?}");
            }
        }
        // As long as nothing is in the way, none of them fails; and what is undone is undone once.
        lease.query(FENCE, &[solo, own]).await.unwrap();
        assert_eq!(lease.execute(RELEASE, &[solo, &id, own, &"b"]).await.unwrap(), 1);
        let again = Error::from(lease.execute(RELEASE, &[solo, &id, own, &"b"]).await.unwrap_err());
        assert!(again.is_of_cast(UNDONE), "{again:?}");
        lease.give_back();
        pool.close_idle();
        pool.target().clone().close().await;
    }
}
