//! What begins and what ends a local transaction goes along with its statements.
//!
//! A driver sends each statement as a group of messages that ends with Sync, and the server answers
//! each group by itself. So BEGIN, a statement, a slot and COMMIT are four answers: each of them is
//! sent alone, and most of them wake somebody here who can do nothing yet. BEGIN can as well be a
//! part of the group of the statement behind it, and COMMIT of the one before it: two answers. The
//! driver has no words for that, so it is done beneath it, where its bytes pass:
//!
//! ```text
//! driver      Bind Execute Sync                            Bind Execute Sync
//! server      [Bind Execute] Bind Execute Sync             Bind Execute [Bind Execute] Sync
//!                 BEGIN       statement                       slot         COMMIT
//! answers     [2 C] 2 C Z                                  2 C [2 C] Z
//! driver      2 C Z                                        2 C Z
//! ```
//!
//! - A group's messages are carried out up to the first error. So COMMIT is not tried if the
//!   statement before it has failed, and the block is still to be rolled back; the driver is told
//!   one error, either way. Whether it was COMMIT that has failed, or was carried out at all, is
//!   asked for here ([`Ended`]).
//! - What is the same every time is prepared once for each connection, under its own text as a
//!   name. A text that is made for one transaction is not, and neither is what must not fail
//!   because somebody has made the connection forget what was prepared on it.
//! - BEGIN goes before a statement, not before a group that only closes one: if it failed there,
//!   the statement would be carried out all the same, and committed by itself.
//! - Statements are counted as they leave. So nothing may end a transaction like that as long as a
//!   driver has one that has not left, and nobody waits for it any more.
//! - What the driver sends as a text (Query) says by itself what it begins and ends: nothing goes
//!   along with it, and what was to go along with a statement is forgotten.
//!
//! The driver wraps its connection only in what it takes for TLS: [`Beneath`] is that, and encrypts
//! nothing. It is used only where there would be no TLS either.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Ready;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// How long a message's tag and length are.
const HEAD: usize = 5;

/// Tags of what a driver sends.
mod sent {
    pub(super) const PARSE: u8 = b'P';
    pub(super) const BIND: u8 = b'B';
    pub(super) const DESCRIBE: u8 = b'D';
    pub(super) const EXECUTE: u8 = b'E';
    pub(super) const CLOSE: u8 = b'C';
    pub(super) const FLUSH: u8 = b'H';
    pub(super) const SYNC: u8 = b'S';
    pub(super) const QUERY: u8 = b'Q';
}

/// Tags of what a server answers.
mod answered {
    pub(super) const PARSED: u8 = b'1';
    pub(super) const COMPLETE: u8 = b'C';
    pub(super) const EMPTY: u8 = b'I';
    pub(super) const SUSPENDED: u8 = b's';
    pub(super) const ERROR: u8 = b'E';
    pub(super) const READY: u8 = b'Z';
    pub(super) const NOTICE: u8 = b'N';
    pub(super) const NOTIFICATION: u8 = b'A';
    pub(super) const PARAMETER: u8 = b'S';
}

/// A statement of ours in a group.
#[derive(Debug, Clone, Copy, Default)]
struct Extra {
    /// How many messages are still to come for it.
    answers: u8,
    /// What it prepares.
    prepares: Option<&'static str>,
}

/// What has become of what ends a transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was not carried out: something before it has failed, or it could not be begun.
    #[default]
    No,
    /// It was, and has failed: the transaction is rolled back.
    Failed,
    /// It was.
    Done,
}

/// A group of messages that is not answered yet.
#[derive(Debug, Default)]
struct Group {
    before: Extra,
    after: Extra,
    /// It executes something.
    executes: bool,
    /// The driver's own statement is answered.
    is_answered: bool,
}

/// What goes along with what.
#[derive(Debug, Default)]
struct Course {
    /// What the next group begins with that is a statement's.
    before: Option<Cow<'static, str>>,
    /// What a group ends with, and how many others that execute something leave before it.
    after: Option<(usize, Cow<'static, str>)>,
    /// The group whose Sync has not left.
    open: Option<Group>,
    /// Groups that have left, the oldest one first.
    left: VecDeque<Group>,
    /// What is prepared on this connection.
    prepared: Vec<&'static str>,
    has_begun: bool,
    ended: Ended,
}

impl Course {
    /// Writes a statement of ours; answers what is to come for it.
    fn put(&self, text: Cow<'static, str>, out: &mut BytesMut) -> Extra {
        let (name, prepares) = match text {
            Cow::Borrowed(text) => (text, Some(text).filter(|text| !self.prepared.contains(text))),
            Cow::Owned(_) => ("", None),
        };
        let is_new = name.is_empty() || prepares.is_some();
        if is_new {
            // No types of parameters.
            put(out, sent::PARSE, &[name.as_bytes(), b"\0", text.as_bytes(), b"\0", b"\0\0"]);
        }
        // The portal without a name; no formats, no parameters, no formats of columns.
        put(out, sent::BIND, &[b"\0", name.as_bytes(), b"\0", b"\0\0", b"\0\0", b"\0\0"]);
        // All rows.
        put(out, sent::EXECUTE, &[b"\0", b"\0\0\0\0"]);
        Extra { answers: if is_new { 3 } else { 2 }, prepares }
    }

    /// A group begins with a message of this kind.
    fn group(&mut self, tag: u8, out: &mut BytesMut) -> Group {
        let before = self.before.take_if(|_| matches!(tag, sent::PARSE | sent::BIND));
        let before = before.map(|text| self.put(text, out)).unwrap_or_default();
        Group { before, ..Group::default() }
    }

    /// A message of the driver leaves, with what goes along with it.
    fn leaves(&mut self, message: &[u8], out: &mut BytesMut) {
        match message[0] {
            sent::QUERY => {
                (self.before, self.after) = (None, None);
                self.left.push_back(Group::default());
            }
            sent::SYNC => {
                let mut group = self.open.take().unwrap_or_default();
                match self.after.take() {
                    Some((0, text)) if group.executes => group.after = self.put(text, out),
                    Some((others, text)) => {
                        self.after = Some((others - usize::from(group.executes), text));
                    }
                    None => {}
                }
                self.left.push_back(group);
            }
            tag @ (sent::PARSE | sent::BIND | sent::DESCRIBE | sent::EXECUTE | sent::CLOSE | sent::FLUSH) => {
                let mut group = self.open.take().unwrap_or_else(|| self.group(tag, out));
                group.executes |= tag == sent::EXECUTE;
                self.open = Some(group);
            }
            _ => {}
        }
        out.extend_from_slice(message);
    }

    /// A message has come. Answers whether it is the driver's.
    fn comes(&mut self, message: &[u8]) -> bool {
        let tag = message[0];
        if matches!(tag, answered::NOTICE | answered::NOTIFICATION | answered::PARAMETER) {
            return true;
        }
        let Some(group) = self.left.front_mut() else { return true };
        let extra = match tag {
            answered::READY => {
                self.left.pop_front();
                return true;
            }
            answered::ERROR => {
                // Everything up to Sync is passed over. What was bound, and no more, is executed.
                if group.is_answered && group.after.answers == 1 {
                    self.ended = Ended::Failed;
                }
                (group.before, group.after) = (Extra::default(), Extra::default());
                return true;
            }
            _ if group.before.answers > 0 => &mut group.before,
            _ if group.after.answers > 0 && group.is_answered => &mut group.after,
            answered::COMPLETE | answered::EMPTY | answered::SUSPENDED => {
                group.is_answered = true;
                return true;
            }
            _ => return true,
        };
        extra.answers -= 1;
        if tag == answered::PARSED {
            self.prepared.extend(extra.prepares.take());
        }
        if tag == answered::COMPLETE && !group.is_answered {
            self.has_begun = true;
        } else if tag == answered::COMPLETE {
            // A block that has failed is rolled back by COMMIT, which says so, and is no error.
            let is_rolled_back = &message[HEAD..] == b"ROLLBACK\0";
            self.ended = if is_rolled_back { Ended::Failed } else { Ended::Done };
        }
        false
    }
}

/// Writes a message.
fn put(out: &mut BytesMut, tag: u8, body: &[&[u8]]) {
    let length = 4 + body.iter().map(|part| part.len()).sum::<usize>();
    out.put_u8(tag);
    out.put_u32(length as u32);
    body.iter().for_each(|part| out.extend_from_slice(part));
}

/// How long the first message is, if it is whole. The first one that a driver sends has no tag.
fn whole(bytes: &[u8], has_tag: bool) -> Option<usize> {
    let tag = usize::from(has_tag);
    let length = bytes.get(tag..tag + 4)?;
    let length = u32::from_be_bytes(length.try_into().ok()?).max(4) as usize + tag;
    (bytes.len() >= length).then_some(length)
}

/// A connection's say in what goes along with its statements.
#[derive(Debug, Clone, Default)]
pub(crate) struct Along(Arc<Mutex<Course>>);

impl Along {
    fn with<T>(&self, work: impl FnOnce(&mut Course) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// This goes before the statement that is sent next.
    pub(crate) fn begin(&self, text: Cow<'static, str>) {
        self.with(|course| (course.before, course.has_begun) = (Some(text), false));
    }

    /// Whether that was carried out. Whoever has the answer to what was sent next, or its error,
    /// knows.
    pub(crate) fn has_begun(&self) -> bool {
        self.with(|course| course.has_begun)
    }

    /// This goes behind the last one of so many statements that are executed next.
    pub(crate) fn end(&self, statements: usize, text: Cow<'static, str>) {
        self.with(|course| {
            course.after = statements.checked_sub(1).map(|others| (others, text));
            course.ended = Ended::No;
        });
    }

    /// What has become of that. Whoever has the answers to these statements, or the error of the
    /// last one, knows.
    pub(crate) fn ended(&self) -> Ended {
        self.with(|course| course.ended)
    }

    /// Makes a driver connect by way of [`Beneath`], if that can be: where it would speak neither
    /// TLS nor over anything else than TCP.
    pub(crate) fn of(config: &mut Config) -> Option<Along> {
        let is_plain = !matches!(config.get_ssl_mode(), SslMode::Require);
        let mut hosts = config.get_hosts().iter();
        let is_tcp = !config.get_hosts().is_empty() && hosts.all(|host| matches!(host, Host::Tcp(_)));
        if !is_plain || !is_tcp {
            return None;
        }
        config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
        Some(Along::default())
    }
}

/// Puts a [`Stream`] beneath a driver.
#[derive(Debug, Clone, Default)]
pub(crate) struct Beneath(pub(crate) Along);

impl<S: AsyncRead + AsyncWrite + Unpin> MakeTlsConnect<S> for Beneath {
    type Stream = Stream<S>;
    type TlsConnect = Beneath;
    type Error = Infallible;

    fn make_tls_connect(&mut self, _: &str) -> Result<Beneath, Infallible> {
        Ok(self.clone())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsConnect<S> for Beneath {
    type Stream = Stream<S>;
    type Error = Infallible;
    type Future = Ready<Result<Stream<S>, Infallible>>;

    fn connect(self, stream: S) -> Self::Future {
        std::future::ready(Ok(Stream::new(stream, self.0)))
    }
}

/// A connection beneath a driver.
#[derive(Debug)]
pub(crate) struct Stream<S> {
    io: S,
    along: Along,
    /// The message without a tag has left.
    is_started: bool,
    /// What the driver has written of messages that are not whole.
    written: BytesMut,
    /// What is to be sent.
    out: BytesMut,
    /// What has come of messages that are not whole.
    come: BytesMut,
    /// What the driver is to read.
    passed: BytesMut,
}

impl<S> Stream<S> {
    /// Nothing was sent over it yet.
    pub(crate) fn new(io: S, along: Along) -> Stream<S> {
        let [written, out, come, passed] = std::array::from_fn(|_| BytesMut::new());
        Stream { io, along, is_started: false, written, out, come, passed }
    }

    /// Sorts what the driver has written.
    fn sort_written(&mut self, bytes: &[u8]) {
        let Stream { along, is_started, written, out, .. } = self;
        written.extend_from_slice(bytes);
        along.with(|course| {
            while let Some(length) = whole(written, *is_started) {
                let message = written.split_to(length);
                match std::mem::replace(is_started, true) {
                    true => course.leaves(&message, out),
                    false => out.extend_from_slice(&message),
                }
            }
        });
    }

    /// Sorts what has come.
    fn sort_come(&mut self, bytes: &[u8]) {
        let Stream { along, come, passed, .. } = self;
        come.extend_from_slice(bytes);
        along.with(|course| {
            while let Some(length) = whole(come, true) {
                let message = come.split_to(length);
                if course.comes(&message) {
                    passed.extend_from_slice(&message);
                }
            }
        });
    }
}

impl<S: AsyncWrite + Unpin> Stream<S> {
    /// Sends what is to be sent.
    fn poll_out(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            match ready!(Pin::new(&mut self.io).poll_write(context, &self.out))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.out.advance(sent),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.passed.is_empty() {
            let before = into.filled().len();
            ready!(Pin::new(&mut self.io).poll_read(context, into))?;
            if into.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
            self.sort_come(&into.filled()[before..]);
            into.set_filled(before);
        }
        let length = self.passed.len().min(into.remaining());
        into.put_slice(&self.passed.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // What was taken before goes first, so that never more than one writing is kept.
        ready!(self.poll_out(context))?;
        self.sort_written(bytes);
        match self.poll_out(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // What is left goes with the next writing, or with a flush.
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(bytes.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(context))?;
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(context))?;
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const STARTUP: &[u8] = b"\0\0\0\x08\0\x03\0\0";

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        put(&mut out, tag, &[body]);
        out.to_vec()
    }

    fn messages(tags: &[u8]) -> Vec<u8> {
        tags.iter().flat_map(|tag| message(*tag, b"")).collect()
    }

    /// A statement of ours, as it is executed.
    fn executed(name: &str) -> Vec<u8> {
        let bind = [&b"\0"[..], name.as_bytes(), b"\0\0\0\0\0\0\0"].concat();
        [message(b'B', &bind), message(b'E', b"\0\0\0\0\0")].concat()
    }

    /// The same, which is prepared as well.
    fn prepared(name: &str, text: &str) -> Vec<u8> {
        let parse = [name.as_bytes(), b"\0", text.as_bytes(), b"\0\0\0"].concat();
        [message(b'P', &parse), executed(name)].concat()
    }

    /// A driver's side of a connection, and the server's.
    struct Both {
        along: Along,
        driver: Stream<DuplexStream>,
        server: DuplexStream,
    }

    impl Both {
        async fn new() -> Both {
            let (driver, server) = duplex(1 << 16);
            let along = Along::default();
            let mut both = Both { driver: Stream::new(driver, along.clone()), along, server };
            both.sends(STARTUP, STARTUP).await;
            both
        }

        /// What the driver writes comes to the server as this.
        async fn sends(&mut self, written: &[u8], comes: &[u8]) {
            // Whatever the pieces are.
            for piece in written.chunks(3) {
                self.driver.write_all(piece).await.unwrap();
            }
            self.driver.flush().await.unwrap();
            let mut found = vec![0; comes.len()];
            self.server.read_exact(&mut found).await.unwrap();
            assert_eq!(found, comes);
        }

        /// What the server answers is read by the driver as this.
        async fn reads(&mut self, answered: &[u8], comes: &[u8]) {
            for piece in answered.chunks(4) {
                self.server.write_all(piece).await.unwrap();
            }
            let mut found = vec![0; comes.len()];
            self.driver.read_exact(&mut found).await.unwrap();
            assert_eq!(found, comes);
        }
    }

    #[tokio::test]
    async fn what_begins_and_what_ends_goes_along_and_its_answers_are_not_the_drivers() {
        let mut both = Both::new().await;
        let (statement, sync) = (messages(b"BE"), messages(b"S"));
        both.along.begin(Cow::Borrowed("BEGIN"));
        let comes = [prepared("BEGIN", "BEGIN"), statement.clone(), sync.clone()].concat();
        both.sends(&messages(b"BES"), &comes).await;
        both.reads(&messages(b"12CN2DCZ"), &messages(b"N2DCZ")).await;
        assert!(both.along.has_begun());
        both.along.end(2, Cow::Borrowed("COMMIT"));
        let first = messages(b"BES");
        let comes = [&first, &statement, &prepared("COMMIT", "COMMIT"), &sync].map(Vec::as_slice).concat();
        both.sends(&messages(b"BESBES"), &comes).await;
        both.reads(&messages(b"2CZ2C12CZ"), &messages(b"2CZ2CZ")).await;
        assert_eq!(both.along.ended(), Ended::Done);
        // Both of one statement, and they are prepared.
        both.along.begin(Cow::Borrowed("BEGIN"));
        both.along.end(1, Cow::Borrowed("COMMIT"));
        assert_eq!((both.along.has_begun(), both.along.ended()), (false, Ended::No));
        let comes = [executed("BEGIN"), statement, executed("COMMIT"), sync].concat();
        both.sends(&messages(b"BES"), &comes).await;
        both.reads(&messages(b"2C2C2CZ"), &messages(b"2CZ")).await;
        assert_eq!((both.along.has_begun(), both.along.ended()), (true, Ended::Done));
        both.sends(&messages(b"BES"), &messages(b"BES")).await;
        both.reads(&messages(b"2CZ"), &messages(b"2CZ")).await;
    }

    #[tokio::test]
    async fn a_failure_of_what_goes_along_is_told_from_one_of_its_statement() {
        let mut both = Both::new().await;
        let (statement, sync) = (messages(b"BE"), messages(b"S"));
        for (answers, comes, has_begun, ended) in [
            ("E", "EZ", false, Ended::No),
            ("12C2E", "2EZ", true, Ended::No),
            // The end was not carried out: the block is still there.
            ("2C2CE", "2CEZ", true, Ended::No),
            ("2C2C1E", "2CEZ", true, Ended::No),
        ] {
            both.along.begin(Cow::Borrowed("BEGIN"));
            both.along.end(1, Cow::Borrowed("COMMIT"));
            let is_first = !answers.starts_with('2');
            let begin = if is_first { prepared("BEGIN", "BEGIN") } else { executed("BEGIN") };
            let end = prepared("COMMIT", "COMMIT");
            let group = [begin, statement.clone(), end, sync.clone()].concat();
            both.sends(&messages(b"BES"), &group).await;
            both.reads(&messages(format!("{answers}Z").as_bytes()), &messages(comes.as_bytes())).await;
            assert_eq!((both.along.has_begun(), both.along.ended()), (has_begun, ended), "{answers}");
        }
        // It is prepared once, though what came behind it has failed.
        let group = [statement, executed("COMMIT"), sync].concat();
        let rolled_back = [messages(b"2C2"), message(b'C', b"ROLLBACK\0"), messages(b"Z")].concat();
        for (answers, comes) in [(messages(b"2C2EZ"), "2CEZ"), (rolled_back, "2CZ")] {
            both.along.end(1, Cow::Borrowed("COMMIT"));
            assert_eq!(both.along.ended(), Ended::No);
            both.sends(&messages(b"BES"), &group).await;
            both.reads(&answers, &messages(comes.as_bytes())).await;
            assert_eq!(both.along.ended(), Ended::Failed, "{comes}");
        }
    }

    #[tokio::test]
    async fn only_what_executes_something_is_counted_and_a_text_ends_it() {
        let mut both = Both::new().await;
        both.along.end(1, Cow::Owned("PREPARE TRANSACTION 'a'".to_owned()));
        both.sends(&messages(b"PDSCS"), &messages(b"PDSCS")).await;
        let end = prepared("", "PREPARE TRANSACTION 'a'");
        both.sends(&messages(b"BES"), &[messages(b"BE"), end, messages(b"S")].concat()).await;
        both.reads(&messages(b"1tnZ3Z2C12CZ"), &messages(b"1tnZ3Z2CZ")).await;
        both.along.begin(Cow::Borrowed("BEGIN"));
        both.along.end(1, Cow::Borrowed("COMMIT"));
        both.sends(&message(b'Q', b"ROLLBACK\0"), &message(b'Q', b"ROLLBACK\0")).await;
        both.sends(&messages(b"BES"), &messages(b"BES")).await;
        both.reads(&messages(b"CZ2CZ"), &messages(b"CZ2CZ")).await;
        assert_eq!((both.along.has_begun(), both.along.ended()), (false, Ended::No));
    }

    #[tokio::test]
    async fn what_begins_does_not_go_along_with_what_closes_a_statement() {
        let mut both = Both::new().await;
        both.along.begin(Cow::Owned("BEGIN".to_owned()));
        both.sends(&messages(b"CS"), &messages(b"CS")).await;
        let comes = [prepared("", "BEGIN"), messages(b"BES")].concat();
        both.sends(&messages(b"BES"), &comes).await;
        both.reads(&messages(b"3Z12C2CZ"), &messages(b"3Z2CZ")).await;
        assert!(both.along.has_begun());
    }
}
