//! Memory that takes long to give back, when nobody should wait for it.
//!
//! A million small allocations take tens of milliseconds to free, and the file of a sort takes as
//! long to remove. Nobody can leave that half-way. So another thread does it: who has cancelled the
//! statement is answered meanwhile, and other sessions of the thread are. What is on its way out is
//! accounted for no more.

use tokio::runtime::Handle;

/// What a text of so many bytes was read into, and planned, takes long to give back.
pub(crate) const LONG_TEXT_BYTES: usize = 128 << 10;

/// Has another thread of the runtime drop it, if there is a runtime. What recurses deeply stays
/// with who has the stack for it.
pub(crate) fn elsewhere<T: Send + 'static>(much: T) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn_blocking(move || drop(much));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{ThreadId, current};
    use std::time::Duration;

    use super::elsewhere;

    /// Tells which thread dropped it.
    struct Tell(Sender<ThreadId>);

    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.send(current().id()).expect("somebody listens");
        }
    }

    #[test]
    fn another_thread_drops_it_if_there_is_one() {
        let (tell, told) = channel();
        elsewhere(Tell(tell.clone()));
        assert_eq!(told.try_recv(), Ok(current().id()), "without a runtime it is done at once");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async { elsewhere(Tell(tell)) });
        let by = told.recv_timeout(Duration::from_secs(60)).expect("it is dropped");
        assert_ne!(by, current().id());
    }
}
