//! Priority of threads.
//!
//! Background work shares the processors with transactions and gives way to them.

/// How far below the others a background thread stands, in the operating system's steps of 1.
const STEPS: i32 = 10;

/// Lowers the priority of the calling thread alone, for good. Does nothing where the system
/// refuses: priority is a wish, and the work is done either way.
pub fn lower_thread_priority() {
    // On Linux the priority of "the calling process" is that of the calling thread.
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::process::setpriority_process(None, STEPS);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_the_calling_thread_is_lowered() {
        let of = || rustix::process::getpriority_process(None).expect("a thread has a priority");
        let before = of();
        let lowered = std::thread::spawn(move || {
            lower_thread_priority();
            of()
        })
        .join()
        .expect("the thread ends");
        assert!(lowered >= before.max(STEPS), "{lowered}");
        assert_eq!(of(), before);
    }
}
