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
//! Servers inside the process ([`crate::embedded`]) share one crew: a process may have many of
//! them, with threads for each that mostly sleep. Each message would then wake a thread that does
//! this one thing and sleeps again, instead of being the next one of a thread that is awake.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};

/// Stack of a thread that serves connections, and of a node's applier, which executes the same:
/// room for stored expressions and views, whose depth no statement shows. Only what is used of it
/// takes memory.
pub(crate) const STACK_BYTES: usize = 16 << 20;

/// The crew of the servers inside this process, as long as there is one of them.
static EMBEDDED: Mutex<Weak<Crew>> = Mutex::new(Weak::new());

/// All serving threads.
pub(crate) struct Crew {
    members: Vec<Member>,
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
        let threads = threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
        let member = |_| {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).thread_name("serving").thread_stack_size(STACK_BYTES).enable_all();
            Ok(Member { runtime: builder.build()?, open: Arc::default() })
        };
        let threads = threads.unwrap_or(1).max(1);
        Ok(Crew { members: (0..threads).map(member).collect::<io::Result<_>>()? })
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

    /// Gives a connection to the member that has the fewest.
    pub(crate) fn serve<F>(&self, incoming: Incoming, session: impl FnOnce(Incoming) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let fewest = self.members.iter().min_by_key(|member| member.open.load(Ordering::Relaxed));
        // The socket leaves the runtime that accepted it.
        let (Some(member), Ok(socket)) = (fewest, incoming.leave()) else { return };
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
    use super::*;

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
