//! Fault points: named places where the process can be made to die, so that tests see what a crash
//! leaves there.
//!
//! With the feature `fault-points`, `COGNATE_FAULT=point:n` aborts the process when it passes that
//! point for the n-th time. Nothing is flushed, rolled back or said before: it is as if the power
//! had gone there. Passes are counted for the whole process, from the start of its first component.
//! `GET /faults` answers the names. Without the feature there is no point, no name, and nothing
//! looks at the variable.
//!
//! A point's name says what it is about and which side of it it is on. Most come in pairs: *before*
//! nothing has happened yet, *after* it has happened and nobody else knows.
//!
//! ```text
//! COGNATE_FAULT=vote-write-after:3
//! prepare ─▶ (the third time: dead)     the yes is durable, and was never sent
//! started again: in doubt ─▶ asks its parent ─▶ "aborted" ─▶ undone
//! ```

#[cfg(not(feature = "fault-points"))]
pub(crate) use absent::{arm, names, others_first, point};
#[cfg(feature = "fault-points")]
pub(crate) use present::{arm, names, others_first, point};

/// Every point, in the order in which a component meets them.
#[cfg(any(test, feature = "fault-points"))]
const NAMES: [&str; 46] = [
    // Start and recovery: the journal is open; the generation is taken; slots are read; journal and
    // database name each other; what was left is known; it is begun, and the first call is about to
    // be accepted.
    "start-journal-opened",
    "start-generation-before",
    "start-generation-after",
    "start-slots-before",
    "start-slots-after",
    "start-naming-before",
    "start-naming-after",
    "start-recovered",
    "start-begun",
    // A call: sent to another component; answered ahead of its commit; its slot written; its local
    // transaction ended; its answer given.
    "call-send-before",
    "call-send-after",
    "slots-grow-before",
    "slots-grow-after",
    "ahead-after",
    "slot-write-before",
    "slot-write-after",
    "commit-before",
    "commit-after",
    "reply-before",
    // Votes: asked for, written (unless the slots say them), given to whoever waits, answered; and
    // written whose they were, once none was given for a while.
    "vote-ask-before",
    "vote-ask-after",
    "vote-write-before",
    "vote-write-after",
    "vote-send-before",
    "vote-reply-before",
    "quiet-write-before",
    "quiet-write-after",
    // The root's own commit, which is the decision, with the answer that is kept for its key.
    "decision-before",
    "decision-after",
    "answer-store-before",
    "answer-store-after",
    // Outcomes: told, taken in, marked, asked for, answered.
    "commit-tell-before",
    "commit-tell-after",
    "abort-tell-before",
    "abort-tell-after",
    "outcome-take-before",
    "outcome-take-after",
    "mark-write-before",
    "outcome-ask-before",
    "outcome-ask-after",
    "outcome-reply-before",
    // What is left of a root: undone, or its slots freed together with others.
    "undo-before",
    "undo-between",
    "undo-after",
    "free-before",
    "free-after",
];

/// What `COGNATE_FAULT` says: the point, and at which pass.
#[cfg(any(test, feature = "fault-points"))]
fn parse(text: &str) -> Result<(&'static str, u64), String> {
    let bad = |why: String| format!("COGNATE_FAULT={text}: {why}");
    let (name, pass) = text.split_once(':').ok_or_else(|| bad("not POINT:NUMBER".to_owned()))?;
    let known = NAMES.iter().find(|known| **known == name);
    let known = known.ok_or_else(|| bad(format!("no such point; there are {}", NAMES.join(", "))))?;
    match pass.parse() {
        Ok(pass) if pass > 0 => Ok((known, pass)),
        _ => Err(bad(format!("{pass:?} is no number of a pass: 1, 2, …"))),
    }
}

#[cfg(feature = "fault-points")]
mod present {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{NAMES, parse};

    /// How often others go first: an answer is written by the task of its connection.
    const OTHERS: u32 = 64;

    /// A point, and how many passes are left.
    struct Fault {
        point: &'static str,
        left: AtomicU64,
    }

    static FAULT: OnceLock<Option<Fault>> = OnceLock::new();

    /// The names of all points.
    pub(crate) fn names() -> &'static [&'static str] {
        &NAMES
    }

    /// Takes in what the environment says.
    ///
    /// # Errors
    /// It names no point, or no pass.
    pub(crate) fn arm() -> Result<(), String> {
        let fault = match std::env::var_os("COGNATE_FAULT") {
            None => None,
            Some(text) => {
                let (point, pass) = parse(&text.to_string_lossy())?;
                Some(Fault { point, left: AtomicU64::new(pass) })
            }
        };
        // A second component of the same process finds it done.
        FAULT.get_or_init(|| fault);
        Ok(())
    }

    /// Lets other tasks go first, where this point is the one that kills and is to be met after
    /// what they do.
    pub(crate) async fn others_first(name: &str) {
        if matches!(FAULT.get(), Some(Some(fault)) if fault.point == name) {
            for _ in 0..OTHERS {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Passes a point.
    pub(crate) fn point(name: &str) {
        if let Some(Some(fault)) = FAULT.get()
            && fault.point == name
            && fault.left.fetch_sub(1, Ordering::Relaxed) == 1
        {
            tracing::error!("fault point {name}: the process ends here");
            std::process::abort();
        }
    }
}

#[cfg(not(feature = "fault-points"))]
mod absent {
    /// There are none.
    pub(crate) fn names() -> &'static [&'static str] {
        &[]
    }

    /// There is nothing to arm.
    #[inline(always)]
    pub(crate) fn arm() -> Result<(), String> {
        Ok(())
    }

    /// Nobody does.
    #[inline(always)]
    pub(crate) fn others_first(_name: &str) -> std::future::Ready<()> {
        std::future::ready(())
    }

    /// Nothing.
    #[inline(always)]
    pub(crate) fn point(_name: &str) {}
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{NAMES, parse};

    /// The names in calls of `fault::point` in all sources under a folder.
    fn passed(folder: &Path, names: &mut Vec<String>) -> std::io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                passed(&path, names)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path)?;
                // Put together, so that this line is none of them.
                let calls = text.split(concat!("fault::", "point(\"")).skip(1);
                names.extend(calls.filter_map(|rest| Some(rest.split_once("\")")?.0.to_owned())));
            }
        }
        Ok(())
    }

    #[test]
    fn every_fault_point_is_passed_in_one_place_and_listed() -> std::io::Result<()> {
        let mut found = Vec::new();
        passed(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found)?;
        let mut listed = NAMES.to_vec();
        found.sort();
        listed.sort();
        assert_eq!(found, listed);
        Ok(())
    }

    #[test]
    fn a_fault_that_makes_no_sense_is_refused() {
        assert_eq!(parse("undo-between:12"), Ok(("undo-between", 12)));
        for (text, why) in [
            ("undo-between", "not POINT:NUMBER"),
            ("nowhere:1", "no such point"),
            ("undo-between:0", "no number"),
            ("undo-between:-1", "no number"),
            ("undo-between:", "no number"),
            (":1", "no such point"),
        ] {
            let refused = parse(text).expect_err(text);
            assert!(refused.contains(text) && refused.contains(why), "{refused}");
        }
    }
}
