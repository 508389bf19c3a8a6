//! The threads that serve connections.
//!
//! Each connection stays with one thread from its start to its end, and each thread waits for its
//! own sockets. Threads that share sockets and steal each other's tasks spend much of their time on
//! waking one another: on two cores, two of them answered fewer point reads of 16 clients (78,000 a
//! second) than one alone (86,000).
//!
//! A member of the crew is a runtime with one worker. A statement that computes for long steps
//! aside (see the session's interrupts): then a further thread takes over the member's other
//! connections, so that nobody waits behind it.
//!
//! Who was woken by another thread need not wait until all have been served whose sockets have
//! something to read: they take turns ([`TURNS`]). He was granted a lock by a transaction of
//! another member, and everybody who wants the same row waits for him, or his commit is durable,
//! and there is little left to do. He does not go before all others either: for one message he may
//! be woken as often as it has rows to lock or commits to make, and many such would leave nobody
//! else a turn.
//!
//! A node has one member more, the first, in whose runtime it takes part in the order of its
//! cluster. A lone client's commit is then proposed, settled and answered on one thread; on two,
//! each would have to be woken for it once. With more clients that thread has less room for them,
//! so it gets fewer ([`ORDER_SHARE`]), and never many ([`ORDER_CLIENTS`]): each of them may compute
//! for some milliseconds before it steps aside, and each step of the order waits for all of them. A
//! leader that is not heard of for a few hundred milliseconds is replaced.
//!
//! Servers inside the process ([`crate::embedded`]) share one crew: a process may have many of
//! them, with threads for each that mostly sleep. Each message would then wake a thread that does
//! this one thing and sleeps again, instead of being the next one of a thread that is awake.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Handle, Runtime};

/// Stack of a thread that serves connections, and of a node's applier, which executes the same:
/// room for stored expressions and views, whose depth no statement shows. Only what is used of it
/// takes memory.
pub(crate) const STACK_BYTES: usize = 16 << 20;

/// Of so many tasks that a member runs, one is of those whom another thread has woken, if there are
/// any. With 1, others would run only while there are none.
const TURNS: u32 = 2;

/// Where the order is, a connection counts as so many: the others of a member that has it wait for
/// the order's work, too.
const ORDER_SHARE: usize = 4;

/// So many connections are at most where the order is.
const ORDER_CLIENTS: usize = 4;

/// Where the order is, sockets and clocks are looked at after so many tasks. Each of them may take
/// some milliseconds, and a leader must be heard of several times within an election's time-out.
const ORDER_EVENTS: u32 = 8;

/// The crew of the servers inside this process, as long as there is one of them.
static EMBEDDED: Mutex<Weak<Crew>> = Mutex::new(Weak::new());

/// All serving threads.
pub(crate) struct Crew {
    members: Vec<Member>,
    /// The first member takes part in the order of a cluster, too. It is never the only one.
    has_order: bool,
}

/// What a client talks through.
pub(crate) enum Incoming {
    /// A socket that was accepted.
    Tcp(TcpStream),
    /// The server's end of a pipe inside the process.
    Pipe(UnixStream),
}

/// The same, outside any runtime.
enum Moving {
    Tcp(std::net::TcpStream),
    Pipe(std::os::unix::net::UnixStream),
}

impl Incoming {
    fn leave(self) -> io::Result<Moving> {
        Ok(match self {
            Incoming::Tcp(socket) => Moving::Tcp(socket.into_std()?),
            Incoming::Pipe(pipe) => Moving::Pipe(pipe.into_std()?),
        })
    }
}

impl Moving {
    fn enter(self) -> io::Result<Incoming> {
        Ok(match self {
            Moving::Tcp(socket) => Incoming::Tcp(TcpStream::from_std(socket)?),
            Moving::Pipe(pipe) => Incoming::Pipe(UnixStream::from_std(pipe)?),
        })
    }
}

struct Member {
    runtime: Runtime,
    open: Arc<AtomicUsize>,
}

/// Counts a connection as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Crew {
    /// So many threads, at least one; as many as there are cores, if nothing is said.
    pub(crate) fn start(threads: Option<usize>) -> io::Result<Crew> {
        Crew::build(threads, false)
    }

    /// The same for a node of a cluster, which has one more ([`Crew::order_runtime`]).
    pub(crate) fn start_for_node(threads: Option<usize>) -> io::Result<Crew> {
        Crew::build(threads, true)
    }

    fn build(threads: Option<usize>, has_order: bool) -> io::Result<Crew> {
        let threads = threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
        let member = |place: usize| -> io::Result<Member> {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).thread_name("serving").thread_stack_size(STACK_BYTES).enable_all();
            builder.global_queue_interval(TURNS);
            if has_order && place == 0 {
                builder.event_interval(ORDER_EVENTS);
            }
            Ok(Member { runtime: builder.build()?, open: Arc::default() })
        };
        let threads = threads.unwrap_or(1).max(1) + usize::from(has_order);
        // If the system has no more of what they need, those that are there end as a crew's do.
        let mut crew = Crew { members: Vec::new(), has_order };
        for place in 0..threads {
            crew.members.push(member(place)?);
        }
        Ok(crew)
    }

    /// The runtime in which a node takes part in the order of its cluster.
    pub(crate) fn order_runtime(&self) -> &Handle {
        self.members[0].runtime.handle()
    }

    /// The one of the servers inside this process. It ends with the last of them.
    pub(crate) fn of_embedded() -> io::Result<Arc<Crew>> {
        let mut shared = EMBEDDED.lock();
        if let Some(crew) = shared.upgrade() {
            return Ok(crew);
        }
        let crew = Arc::new(Crew::start(None)?);
        *shared = Arc::downgrade(&crew);
        Ok(crew)
    }

    /// Where the next connection goes to.
    fn next_place(&self) -> usize {
        let load = |place: &usize| {
            let open = self.members[*place].open.load(Ordering::Relaxed);
            match self.has_order && *place == 0 {
                true if open >= ORDER_CLIENTS => usize::MAX,
                true => ORDER_SHARE * open,
                false => open,
            }
        };
        (0..self.members.len()).min_by_key(load).unwrap_or_default()
    }

    /// Gives a connection to the member that has the fewest.
    pub(crate) fn serve<F>(&self, incoming: Incoming, session: impl FnOnce(Incoming) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let member = &self.members[self.next_place()];
        // The socket leaves the runtime that accepted it.
        let Ok(socket) = incoming.leave() else { return };
        member.open.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(&member.open));
        member.runtime.spawn(async move {
            let _counted = counted;
            if let Ok(incoming) = socket.enter() {
                session(incoming).await;
            }
        });
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Also from a task of another runtime, where waiting for threads is not allowed.
        self.members.drain(..).for_each(|member| member.runtime.shutdown_background());
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Two tasks that wake each other by way of another thread: so one of them always has been.
    #[derive(Default)]
    struct Pair {
        waiting: Mutex<[Option<Waker>; 2]>,
        polls: AtomicUsize,
        has_others: AtomicBool,
        /// Somebody had a turn whom no other thread has woken.
        has_run: AtomicBool,
    }

    impl Pair {
        /// Gives up after so many turns of the two.
        const PATIENCE: usize = 100;

        fn turn(self: &Arc<Pair>, place: usize, context: &Context<'_>) -> Poll<bool> {
            let other = {
                let mut waiting = self.waiting.lock();
                waiting[place] = Some(context.waker().clone());
                waiting[1 - place].take()
            };
            if let Some(other) = other {
                if !self.has_others.swap(true, Ordering::Relaxed) {
                    // The second one pushes the first one out of the place of who is next.
                    let pair = Arc::clone(self);
                    tokio::spawn(async move { pair.has_run.store(true, Ordering::Relaxed) });
                    tokio::spawn(async {});
                }
                std::thread::spawn(move || other.wake()).join().expect("it is woken");
            }
            let has_run = self.has_run.load(Ordering::Relaxed);
            let is_over = has_run || self.polls.fetch_add(1, Ordering::Relaxed) > Pair::PATIENCE;
            if is_over { Poll::Ready(has_run) } else { Poll::Pending }
        }
    }

    #[test]
    fn others_have_turns_beside_those_whom_other_threads_wake() {
        let crew = Crew::start(Some(1)).expect("a thread");
        let (runtime, pair) = (&crew.members[0].runtime, Arc::new(Pair::default()));
        let two = [0, 1].map(|place| {
            let pair = Arc::clone(&pair);
            runtime.spawn(poll_fn(move |context| pair.turn(place, context)))
        });
        for one in two {
            assert!(runtime.block_on(one).expect("it ends"), "nobody else has had a turn");
        }
    }

    #[test]
    fn the_thread_of_the_order_serves_a_lone_client_and_few_of_many() {
        let crew = Crew::start_for_node(Some(1)).expect("threads");
        let placed: Vec<usize> = (0..100)
            .map(|_| {
                let place = crew.next_place();
                crew.members[place].open.fetch_add(1, Ordering::Relaxed);
                place
            })
            .collect();
        assert_eq!(placed[0], 0, "the first one");
        let of_order = |some: &[usize]| some.iter().filter(|place| **place == 0).count();
        assert_eq!(of_order(&placed[..10]), 10 / (1 + ORDER_SHARE), "its share");
        assert_eq!(of_order(&placed), ORDER_CLIENTS, "and no more");
        let runtime = crew.order_runtime().clone();
        let order = runtime.spawn(async { Handle::current().id() });
        let id = crew.members[0].runtime.block_on(order).expect("it runs");
        assert_eq!(id, crew.members[0].runtime.handle().id());
    }

    #[test]
    fn servers_inside_the_process_share_threads_that_end_with_the_last_of_them() {
        let [one, two] = [(); 2].map(|()| Crew::of_embedded().expect("threads"));
        assert!(Arc::ptr_eq(&one, &two));
        let first = Arc::downgrade(&one);
        drop(one);
        assert!(first.upgrade().is_some());
        drop(two);
        assert!(first.upgrade().is_none());
        assert_eq!(Arc::strong_count(&Crew::of_embedded().expect("threads")), 1);
    }
}
