//! What working on a large value may take: memory, and time until somebody wants it to stop.
//!
//! Values are read, changed and printed in many places that know nothing of the statement it is
//! done for. So the statement says once, for the thread it computes on, what holds while it
//! computes ([`enter`]). Whoever goes through a text or a byte string does so in [`pieces`] or
//! [`parts`], and whoever reads or makes item after item keeps a [`Meter`]; both ask now and then.
//! Where nobody has said anything, there are no bounds. Other threads that compute for the
//! statement have its bounds from it ([`elsewhere`]).
//!
//! ```text
//! lower(t), t of 1 MB        16 pieces, 15 questions: 57014 after any of them
//! '[1, 2, …]'::jsonb         a question for every thousand numbers: 57014, or 53200 once the tree is too large
//! t < u                      no question: memory is compared faster than anybody would notice
//! ```

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::error::{Result, SqlError, sqlstate};

/// The bounds of a statement.
pub(crate) trait Bounds: Send + Sync {
    /// Fails once the statement should stop; lets others go before now and then.
    fn go_on(&self) -> Result<()>;

    /// Bytes that a value may take.
    fn memory(&self) -> usize;

    /// Whether other threads may compute for the statement, too.
    fn is_shared(&self) -> bool {
        false
    }

    /// Fails once the statement should stop. Asked by other threads that compute for it: nobody
    /// waits for them, so it lets nobody go before.
    fn stop(&self) -> Result<()> {
        self.go_on()
    }
}

/// The bounds of a statement for another thread that computes for it.
struct Elsewhere(Arc<dyn Bounds>);

impl Bounds for Elsewhere {
    fn go_on(&self) -> Result<()> {
        self.0.stop()
    }

    fn memory(&self) -> usize {
        self.0.memory()
    }
}

/// The bounds of the statement that computes on this thread, for others that compute for it. None
/// if none may.
pub(crate) fn elsewhere() -> Option<Arc<dyn Bounds>> {
    let here = HERE.with_borrow(Clone::clone).filter(|here| here.is_shared())?;
    Some(Arc::new(Elsewhere(here)))
}

thread_local! {
    static HERE: RefCell<Option<Arc<dyn Bounds>>> = const { RefCell::new(None) };
}

/// While it lives, its bounds hold on this thread, which it does not leave: a task that waits may
/// go on with another one.
pub(crate) struct Within {
    before: Option<Arc<dyn Bounds>>,
    stays: PhantomData<*const ()>,
}

/// From now on these bounds hold on this thread.
pub(crate) fn enter(bounds: Arc<dyn Bounds>) -> Within {
    Within { before: HERE.replace(Some(bounds)), stays: PhantomData }
}

impl Drop for Within {
    fn drop(&mut self) {
        HERE.set(self.before.take());
    }
}

/// Fails once the statement that computes on this thread should stop; lets others go before now and
/// then.
#[cold]
pub(crate) fn ask() -> Result<()> {
    HERE.with_borrow(Clone::clone).map_or(Ok(()), |bounds| bounds.go_on())
}

/// Bytes that a value may take here.
fn memory() -> usize {
    HERE.with_borrow(|here| here.as_ref().map_or(usize::MAX, |bounds| bounds.memory()))
}

/// 53200 if a value of so many bytes is more than the statement may use.
pub(crate) fn check_size(bytes: usize) -> Result<()> {
    let limit = memory();
    if bytes <= limit { Ok(()) } else { Err(too_large(limit)) }
}

#[cold]
fn too_large(limit: usize) -> SqlError {
    let detail = format!("A value takes more than the {} kB that a statement may use.", limit / 1024);
    SqlError::new(sqlstate::OUT_OF_MEMORY, "out of memory").with_detail(detail)
}

/// Nanoseconds of work between two questions whether to stop, very roughly.
const UNASKED: usize = 1 << 17;

/// Counts work of many small steps since it was asked whether to stop. A short statement is never
/// asked, which would only make it longer.
#[derive(Debug, Default)]
pub(crate) struct Unasked(usize);

impl Unasked {
    /// So many nanoseconds of work are about to be done, very roughly. Whether it is time to ask;
    /// from then on it is counted anew.
    pub(crate) fn is_due(&mut self, time: usize) -> bool {
        self.0 += time;
        let is_due = self.0 >= UNASKED;
        if is_due {
            self.0 = 0;
        }
        is_due
    }
}

/// Bytes of a text that are worked on between two questions.
pub(crate) const PIECE: usize = 1 << 16;

/// The pieces of a text in their order, a question before each but the last. A short text is one
/// piece, and nothing is asked.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = Result<&str>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.len() <= PIECE {
            return (!rest.is_empty()).then(|| Ok(std::mem::take(&mut rest)));
        }
        let (piece, behind) = rest.split_at(rest.floor_char_boundary(PIECE));
        rest = behind;
        Some(ask().map(|()| piece))
    })
}

/// The same of bytes.
pub(crate) fn parts(bytes: &[u8]) -> impl Iterator<Item = Result<&[u8]>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.len() <= PIECE {
            return (!rest.is_empty()).then(|| Ok(std::mem::take(&mut rest)));
        }
        let (part, behind) = rest.split_at(PIECE);
        rest = behind;
        Some(ask().map(|()| part))
    })
}

/// Makes room for more bytes. 53200 beyond what the statement may use; large values grow by their
/// half at most, and not beyond that.
#[inline]
pub(crate) fn make_room(more: usize, out: &mut Vec<u8>) -> Result<()> {
    let is_small = out.len() + more <= PIECE;
    if is_small || out.capacity() - out.len() >= more { Ok(()) } else { grow(more, out) }
}

#[cold]
fn grow(more: usize, out: &mut Vec<u8>) -> Result<()> {
    let memory = memory();
    let needed = out.len() + more;
    if needed > memory {
        return Err(too_large(memory));
    }
    let capacity = needed.max(memory.min(out.len() + out.len() / 2));
    out.reserve_exact(capacity - out.len());
    Ok(())
}

/// Appends bytes, part by part if there are many.
#[inline]
pub(crate) fn append(bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    make_room(bytes.len(), out)?;
    if bytes.len() <= PIECE {
        out.extend_from_slice(bytes);
        return Ok(());
    }
    for part in parts(bytes) {
        out.extend_from_slice(part?);
    }
    Ok(())
}

/// What an item costs beside its bytes, counted as bytes.
const ITEM: usize = 64;

/// Counts what has been read or made of one value.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    bytes: usize,
    /// Work since the last question.
    unasked: usize,
    patient: bool,
}

impl Meter {
    /// One for what cannot fail: it only lets others go before.
    pub(crate) fn patient() -> Meter {
        Meter { patient: true, ..Meter::default() }
    }

    /// Makes room for more bytes, unless it cannot fail.
    #[inline]
    pub(crate) fn make_room(&self, more: usize, out: &mut Vec<u8>) -> Result<()> {
        if self.patient { Ok(()) } else { make_room(more, out) }
    }

    /// One more item was read or made, which takes so many bytes. 53200 beyond the bounds, 57014 if
    /// it is to stop.
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) -> Result<()> {
        self.bytes += bytes;
        self.unasked += ITEM + bytes;
        if self.unasked < PIECE { Ok(()) } else { self.ask() }
    }

    #[cold]
    fn ask(&mut self) -> Result<()> {
        self.unasked = 0;
        let Some(bounds) = HERE.with_borrow(Clone::clone) else { return Ok(()) };
        let answer = bounds.go_on();
        if self.patient {
            return Ok(());
        }
        answer?;
        check_size(self.bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Lets a value be worked on for so many questions.
    #[derive(Debug)]
    pub(crate) struct Questions {
        left: usize,
        asked: AtomicUsize,
        memory: usize,
    }

    impl Questions {
        pub(crate) fn new(left: usize, memory: usize) -> Arc<Questions> {
            Arc::new(Questions { left, asked: AtomicUsize::new(0), memory })
        }

        pub(crate) fn asked(&self) -> usize {
            self.asked.load(Ordering::Relaxed)
        }
    }

    impl Bounds for Questions {
        fn go_on(&self) -> Result<()> {
            match self.asked.fetch_add(1, Ordering::Relaxed) < self.left {
                true => Ok(()),
                false => Err(SqlError::new(sqlstate::QUERY_CANCELED, "stopped")),
            }
        }
        fn memory(&self) -> usize {
            self.memory
        }
    }

    #[test]
    fn pieces_are_the_text() {
        for text in ["", "a", &"ü".repeat(PIECE), &"a€".repeat(PIECE)] {
            let joined: Result<String> = pieces(text).collect();
            assert_eq!(joined.expect("nothing bounds it"), text);
            let joined: Result<Vec<&[u8]>> = parts(text.as_bytes()).collect();
            assert_eq!(joined.expect("nothing bounds it").concat(), text.as_bytes());
        }
    }

    #[test]
    fn each_piece_but_the_last_is_asked_for() {
        let questions = Questions::new(2, 0);
        let _within = enter(questions.clone());
        assert_eq!(pieces(&"x".repeat(PIECE)).count(), 1);
        assert_eq!(questions.asked(), 0);
        let text = "x".repeat(4 * PIECE);
        let stopped: Result<Vec<&str>> = pieces(&text).collect();
        assert_eq!(stopped.expect_err("a third question").sqlstate, "57014");
    }

    #[test]
    fn items_are_asked_for_by_their_number_and_by_their_size() {
        let questions = Questions::new(usize::MAX, 1 << 20);
        let _within = enter(questions.clone());
        let mut meter = Meter::default();
        for _ in 0..PIECE / ITEM {
            meter.add(0).expect("small");
        }
        assert_eq!(questions.asked(), 1);
        meter.add(PIECE).expect("small");
        assert_eq!(questions.asked(), 2);
        assert_eq!(meter.add(1 << 20).expect_err("large").sqlstate, "53200");
        Meter { bytes: 1 << 20, ..Meter::patient() }.add(1 << 20).expect("it cannot fail");
    }
}
