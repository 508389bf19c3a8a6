//! What a program may fail with: an answer, which is the same at every node, or something about the
//! node that executes it, which then must not go on.
//!
//! A defect of this code (XX000, or a panic) is an answer. It lies in the statement and in what is
//! stored, and those are the same everywhere; if it were none, one statement that has met it would
//! end all nodes, and again at each start, which executes it once more. And if only some nodes have
//! met it, their verdicts differ, and so do the digests that nodes compare: whoever leaves for that
//! says at which positions of the order it has met such errors (`Nodes::defects`).
//!
//! Some libraries panic where the system gives them no memory for a stack, or no thread. That is
//! about the node, and no defect.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::error::{Result, SqlError, sqlstate};

/// How panics about what the system does not give begin: those of `stacker` and of `tokio`.
const OF_THE_SYSTEM: [&str; 3] = [
    "assertion `left != right` failed: mmap failed to allocate stack",
    "assertion `left != right` failed: mprotect/mmap failed",
    "OS can't spawn worker thread",
];

/// What the work comes to; XX000 if it panics, or 53000 if that is for want of a stack or a thread.
pub(super) async fn caught<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        // What has panicked is not looked at again.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(polled) => polled,
            Err(why) => {
                let panic = text_of(&*why);
                tracing::error!(panic, "a statement of an active transaction has panicked");
                Poll::Ready(Err(panicked(&*why)))
            }
        }
    })
    .await
}

/// What a panic says.
fn text_of(why: &(dyn Any + Send)) -> &str {
    let made = why.downcast_ref::<String>().map(String::as_str);
    made.or_else(|| why.downcast_ref::<&'static str>().copied()).unwrap_or_default()
}

/// Only the text says what a panic is about. It must begin so: further behind there may be what a
/// client has sent.
fn panicked(why: &(dyn Any + Send)) -> SqlError {
    let text = text_of(why);
    match OF_THE_SYSTEM.iter().any(|begins| text.starts_with(begins)) {
        true => SqlError::new(sqlstate::INSUFFICIENT_RESOURCES, text),
        false => SqlError::internal("a statement of the transaction has panicked"),
    }
}

/// Whether an error says something about this node, and nothing about the statement: memory that
/// was to be had is the same everywhere, as far as the nodes are set up alike.
pub(super) fn is_of_the_node(error: &SqlError) -> bool {
    let state = error.sqlstate;
    (state.starts_with("53") && state != sqlstate::OUT_OF_MEMORY)
        || state.starts_with("58")
        || (state.starts_with("XX") && state != sqlstate::INTERNAL_ERROR)
        || state.starts_with("57")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(caught(work))
    }

    fn defect() -> Result<()> {
        panic!("on purpose")
    }

    #[test]
    fn a_panic_is_an_answer_and_other_answers_stay_as_they_are() {
        let panicked = run(async {
            tokio::task::yield_now().await;
            defect()
        });
        let error = panicked.expect_err("it has panicked");
        assert_eq!(error.sqlstate, sqlstate::INTERNAL_ERROR);
        assert!(!is_of_the_node(&error));
        assert_eq!(run(async { Ok(7) }).expect("an answer"), 7);
        let refused: Result<()> = run(async { Err(SqlError::syntax("wrong")) });
        assert_eq!(refused.expect_err("it is refused").sqlstate, sqlstate::SYNTAX_ERROR);
    }

    /// As the libraries do it.
    #[test]
    fn a_panic_for_want_of_a_stack_or_a_thread_is_no_answer() {
        fn wants(what: &str) -> Result<()> {
            let (given, nothing) = (-1, -1);
            match what {
                "memory" => assert_ne!(given, nothing, "mmap failed to allocate stack: {what}"),
                "access" => assert_ne!(given, nothing, "mprotect/mmap failed: {what}"),
                "a thread" => panic!("OS can't spawn worker thread: {what}"),
                _ => panic!("{what}"),
            }
            Ok(())
        }
        for (what, is_of_it) in [
            ("memory", true),
            ("access", true),
            ("a thread", true),
            ("of a client: mmap failed to allocate stack", false),
        ] {
            let error = run(async { wants(what) }).expect_err(what);
            assert_eq!(is_of_the_node(&error), is_of_it, "{what}: {error}");
        }
    }

    #[test]
    fn disks_damage_and_the_end_of_a_node_are_no_answers() {
        let states = [
            (sqlstate::DISK_FULL, true),
            (sqlstate::IO_ERROR, true),
            (sqlstate::DATA_CORRUPTED, true),
            (sqlstate::INDEX_CORRUPTED, true),
            (sqlstate::ADMIN_SHUTDOWN, true),
            (sqlstate::OUT_OF_MEMORY, false),
            (sqlstate::INTERNAL_ERROR, false),
            (sqlstate::UNIQUE_VIOLATION, false),
        ];
        for (state, is_of_it) in states {
            assert_eq!(is_of_the_node(&SqlError::new(state, "failed")), is_of_it, "{state}");
        }
    }
}
