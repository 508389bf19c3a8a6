//! What working on a large value may take: memory, and time until somebody wants it to stop.
//!
//! Values are read, changed and printed in many places that know nothing of the statement it is
//! done for. So the statement says once, for the thread it computes on, what holds while it
//! computes ([`within`]). Whoever goes through a text or a byte string does so in [`pieces`] or
//! [`parts`], and whoever reads or makes item after item keeps a [`Meter`]; both ask now and then.
//! Where nobody has said anything, there are no bounds. Other threads that compute for the
//! statement have its bounds from it ([`elsewhere`]).
//!
//! ```text
//! lower(t), t of 1 MB        16 pieces, 15 questions: 57014 after any of them
//! '[1, 2, …]'::jsonb         a question for every thousand numbers: 57014, or 53200 once the tree is too large
//! t < u, two texts           no question: both lie in memory, and are gone through at its speed
//! a = b, two arrays          a question for a thousand elements, or 64 kB: they may share bytes
//! ```
//!
//! *Comparisons.* Arrays, records and jsonb values take long to be compared and hashed. But whoever
//! sorts, groups or joins wants an answer, and no error. So a comparison that is to stop gives up:
//! it answers anything, and the error is kept for the thread ([`give_up`]). From then on every
//! question on the thread fails with it, every long comparison gives up at once, and [`within`]
//! gives it for the result of what was computed, whatever that is.
//!
//! What must never be: an answer, a changed row or an acknowledgement that rests on a comparison
//! that was given up. Comparisons are given up only where bounds hold, which is within [`within`]
//! only; there no row is written and nothing is committed before its result is out.
//! What leaves earlier is looked at where it does ([`check`]): rows that go to the client out of
//! a cursor, parts that another thread computed, calls of functions that do something, expressions
//! that are kept for others.
//!
//! ```text
//! UPDATE t SET a = b WHERE c = d     c = d is given up, and is true or false, as of the next rows:
//!                                    57014 instead of a row or of "no more rows", if not before
//! SELECT DISTINCT a FROM t           the second row's hash is given up, so it is taken for a new one:
//!                                    57014 instead of this row
//! ```

use std::cell::{Cell, RefCell};
use std::hash::Hasher;
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
    /// Work of comparisons since the last question.
    static COMPARED: Cell<usize> = const { Cell::new(0) };
    /// Whether a comparison was given up, and with what.
    static HAS_GIVEN_UP: Cell<bool> = const { Cell::new(false) };
    static GIVEN_UP: RefCell<Option<SqlError>> = const { RefCell::new(None) };
}

/// While it lives, its bounds hold on this thread, which it does not leave: a task that waits may
/// go on with another one.
pub(crate) struct Within {
    before: Option<Arc<dyn Bounds>>,
    compared: usize,
    given_up: Option<SqlError>,
    stays: PhantomData<*const ()>,
}

/// From now on these bounds hold on this thread.
fn begin(bounds: Arc<dyn Bounds>) -> Within {
    Within {
        before: HERE.replace(Some(bounds)),
        compared: COMPARED.replace(0),
        given_up: taken(),
        stays: PhantomData,
    }
}

/// The same for tests, which look at what comes of it themselves.
#[cfg(test)]
pub(crate) fn enter(bounds: Arc<dyn Bounds>) -> Within {
    begin(bounds)
}

impl Drop for Within {
    fn drop(&mut self) {
        HERE.set(self.before.take());
        COMPARED.set(self.compared);
        drop(taken());
        if let Some(error) = self.given_up.take() {
            keep(error);
        }
    }
}

/// What is computed within these bounds. If a comparison was given up, that error: whatever was
/// computed may rest on it.
pub(crate) fn within<T>(bounds: Arc<dyn Bounds>, action: impl FnOnce() -> Result<T>) -> Result<T> {
    let _within = begin(bounds);
    settled(action())
}

/// What was computed, or the error that a comparison was given up with, which is forgotten: nothing
/// that rests on the comparison is left beside this.
#[inline]
pub(crate) fn settled<T>(result: Result<T>) -> Result<T> {
    match taken() {
        None => result,
        Some(error) => Err(error),
    }
}

/// The error that a comparison was given up with, which is kept no more.
#[inline]
fn taken() -> Option<SqlError> {
    if HAS_GIVEN_UP.replace(false) { GIVEN_UP.take() } else { None }
}

#[cold]
fn keep(error: SqlError) {
    GIVEN_UP.set(Some(error));
    HAS_GIVEN_UP.set(true);
}

/// A comparison is given up with this error. The first one stays. Nothing is given up where there
/// are no bounds, since nobody would ever hear of it.
#[cold]
pub(crate) fn give_up(error: SqlError) {
    if !HAS_GIVEN_UP.get() && HERE.with_borrow(Option::is_some) {
        keep(error);
    }
}

/// Fails if a comparison was given up: for whatever leaves before the end of what is computed.
#[inline]
pub(crate) fn check() -> Result<()> {
    if HAS_GIVEN_UP.get() { Err(given_up()) } else { Ok(()) }
}

#[cold]
fn given_up() -> SqlError {
    GIVEN_UP.with_borrow(Clone::clone).unwrap_or_else(|| SqlError::internal("a comparison was given up"))
}

/// A comparison is about to do work like that of going through so many bytes. False if it is given
/// up, and any answer will do. What short comparisons do adds up: there may be many of them in a
/// long one.
#[inline]
pub(crate) fn may_compare(bytes: usize) -> bool {
    let compared = COMPARED.get().saturating_add(ITEM + bytes);
    COMPARED.set(compared);
    if compared < PIECE { !HAS_GIVEN_UP.get() } else { goes_on_comparing() }
}

#[cold]
fn goes_on_comparing() -> bool {
    COMPARED.set(0);
    match ask() {
        Ok(()) => true,
        Err(error) => {
            give_up(error);
            false
        }
    }
}

/// Hashes bytes, part by part if there are many: hashing is far slower than comparing.
#[inline]
pub(crate) fn hash_bytes<H: Hasher>(bytes: &[u8], state: &mut H) {
    if bytes.len() <= PIECE { state.write(bytes) } else { hash_parts(bytes, state) }
}

#[cold]
fn hash_parts<H: Hasher>(bytes: &[u8], state: &mut H) {
    for part in bytes.chunks(PIECE) {
        if !may_compare(part.len()) {
            return;
        }
        state.write(part);
    }
}

/// Fails once the statement that computes on this thread should stop; lets others go before now and
/// then.
#[cold]
pub(crate) fn ask() -> Result<()> {
    check()?;
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
    let detail =
        format!("A value or a row takes more than the {} kB that a statement may use.", limit / 1024);
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

/// Most bytes of a text or a message: PostgreSQL's `MaxAllocSize`, but for the zero behind it.
const LONGEST: usize = 0x3fff_fffe;

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

/// How many bytes are of a kind, from the first one on. A question after each piece of them.
#[inline]
pub(crate) fn count_leading(bytes: &[u8], is_it: impl Fn(u8) -> bool) -> Result<usize> {
    let mut count = 0;
    for part in bytes.chunks(PIECE) {
        let of_it = part.iter().position(|byte| !is_it(*byte)).unwrap_or(part.len());
        count += of_it;
        if of_it < PIECE {
            break;
        }
        ask()?;
    }
    Ok(count)
}

/// Makes room for more bytes. 53200 if all are more than the statement may use, 54000 beyond
/// [`LONGEST`]; what is large grows by its half at most, and not beyond that.
#[inline]
pub(crate) fn make_room(more: usize, out: &mut Vec<u8>) -> Result<()> {
    let is_small = out.len() + more <= PIECE;
    if is_small || out.capacity() - out.len() >= more { Ok(()) } else { grow(more, out) }
}

#[cold]
fn grow(more: usize, out: &mut Vec<u8>) -> Result<()> {
    let memory = memory();
    check_length(out.len(), more, memory)?;
    let needed = out.len() + more;
    let capacity = needed.max(memory.min(out.len() + out.len() / 2));
    out.reserve_exact(capacity - out.len());
    Ok(())
}

/// 53200 if so many bytes and so many more are beyond what the statement may use, 54000 if they are
/// more than PostgreSQL makes of any text or message, whatever there is.
fn check_length(bytes: usize, more: usize, memory: usize) -> Result<()> {
    let needed = bytes.saturating_add(more);
    if needed > memory {
        return Err(too_large(memory));
    }
    if needed > LONGEST { Err(too_long(bytes, more)) } else { Ok(()) }
}

#[cold]
fn too_long(bytes: usize, more: usize) -> SqlError {
    let detail = format!("Cannot enlarge string buffer containing {bytes} bytes by {more} more bytes.");
    SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "out of memory").with_detail(detail)
}

/// The same of what was written already, of which only a part may have been asked for.
#[inline]
pub(crate) fn check_written(out: &[u8]) -> Result<()> {
    if out.len() <= PIECE { Ok(()) } else { check_all(out.len()) }
}

#[cold]
fn check_all(bytes: usize) -> Result<()> {
    check_length(bytes, 0, memory())
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

    /// The same of what is written into `out`, which says itself how much that is: parts of parts
    /// are counted once.
    #[inline]
    pub(crate) fn wrote(&mut self, bytes: usize, out: &[u8]) -> Result<()> {
        self.unasked += ITEM + bytes;
        if self.unasked < PIECE {
            return Ok(());
        }
        self.bytes = out.len();
        self.ask()
    }

    #[cold]
    fn ask(&mut self) -> Result<()> {
        self.unasked = 0;
        if !self.patient {
            check()?;
        }
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
    use crate::types::{Array, Datum, FormatContext, Record, Shape, Type, TypeId};

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

    /// Both forms in which a client has a value, or why it has none.
    fn sent(value: &Datum, ty: Type) -> [Result<Vec<u8>>; 2] {
        let context = FormatContext::default();
        let (mut text, mut binary) = (vec![1; 10], vec![1; 10]);
        let written = [value.write_text(ty, &context, &mut text), value.send(ty, &context, &mut binary)];
        for out in [&text, &binary] {
            assert!(out.capacity() < 5 << 19, "{} bytes in {}", out.len(), out.capacity());
        }
        let [in_text, in_binary] = written;
        [in_text.map(|()| text), in_binary.map(|()| binary)]
    }

    #[test]
    fn what_is_sent_is_bounded_while_it_is_written() {
        let questions = Questions::new(usize::MAX, 1 << 20);
        let _within = enter(questions.clone());
        let text = Datum::from("x".repeat(1000));
        let array = |count: usize| Datum::from(Array::new(TypeId::Text, vec![text.clone(); count]));
        let numbers = Array::new(TypeId::Int8, (0..200_000).map(|n| Datum::Int8(100_000_000 + n)).collect());
        let record = |count: usize| {
            let shape: Shape = (0..count).map(|n| (format!("f{n}"), Type::new(TypeId::TextArray))).collect();
            Datum::Record(Arc::new(Record { shape, values: vec![array(100); count] }))
        };
        let (list, row) = (Type::new(TypeId::TextArray), Type::new(TypeId::Record));
        for (value, ty) in [
            (array(10_000), list),
            (Datum::from(numbers), Type::new(TypeId::Int8Array)),
            (record(100), row),
            (Datum::from("x".repeat(1 << 20)), Type::new(TypeId::Text)),
        ] {
            for written in sent(&value, ty) {
                assert_eq!(written.expect_err("too much").sqlstate, "53200");
            }
        }
        // What is in what is counted once, and what is there before it counts.
        for written in [sent(&array(900), list), sent(&record(8), row)].into_iter().flatten() {
            assert!(written.expect("room for it").len() > 800_000);
        }
    }

    #[test]
    fn no_text_is_longer_than_postgresql_makes_one() {
        check_length(LONGEST - 5, 5, usize::MAX).expect("as long as may be");
        let error = check_length(LONGEST - 5, 6, usize::MAX).expect_err("longer");
        assert_eq!((error.sqlstate, error.message.as_str()), ("54000", "out of memory"));
        let detail = "Cannot enlarge string buffer containing 1073741817 bytes by 6 more bytes.";
        assert_eq!(error.detail.as_deref(), Some(detail));
        assert_eq!(check_length(LONGEST, 6, LONGEST).expect_err("no memory").sqlstate, "53200");
    }

    /// A long comparison, which is given up at the first question.
    fn compare_at_length() {
        assert!(!may_compare(PIECE));
    }

    #[test]
    fn whatever_rests_on_what_was_given_up_is_no_result() {
        let given = within(Questions::new(0, usize::MAX), || {
            assert!(may_compare(0), "a short one asks nobody");
            check().expect("nothing was given up");
            compare_at_length();
            assert!(!may_compare(0), "from then on short ones are given up, too");
            assert_eq!(check().expect_err("it was given up").sqlstate, "57014");
            assert_eq!(ask().expect_err("it was given up").sqlstate, "57014");
            assert_eq!(Meter::default().add(PIECE).expect_err("it was given up").sqlstate, "57014");
            Ok("an answer")
        });
        assert_eq!(given.expect_err("it was given up").sqlstate, "57014");
        check().expect("it has ended");
        within(Questions::new(0, usize::MAX), check).expect("another one begins anew");
    }

    #[test]
    fn what_was_given_up_outside_stays_so_beyond_what_is_within() {
        let outer = within(Questions::new(0, usize::MAX), || {
            compare_at_length();
            within(Questions::new(9, usize::MAX), || {
                assert!(may_compare(PIECE), "it has bounds of its own");
                Ok(())
            })?;
            assert!(check().is_err());
            Ok(())
        });
        assert_eq!(outer.expect_err("it was given up").sqlstate, "57014");
    }

    #[test]
    fn nothing_is_given_up_where_nobody_would_hear_of_it() {
        give_up(too_large(0));
        check().expect("there are no bounds");
        assert!(may_compare(PIECE));
        let settled = within(Questions::new(0, usize::MAX), || {
            give_up(too_large(0));
            compare_at_length();
            assert_eq!(settled(Ok(())).expect_err("it was given up").sqlstate, "53200", "the first one");
            check()
        });
        settled.expect("it is told once");
    }

    #[test]
    fn bytes_of_a_kind_are_counted_with_a_question_after_each_piece() {
        let questions = Questions::new(usize::MAX, 0);
        let _within = enter(questions.clone());
        let text = ["7".repeat(2 * PIECE + 5), "x7".to_owned()].concat();
        assert_eq!(count_leading(text.as_bytes(), |byte| byte == b'7').expect("few"), 2 * PIECE + 5);
        assert_eq!(questions.asked(), 2);
        assert_eq!(count_leading(b"", |_| true).expect("few"), 0);
    }
}
