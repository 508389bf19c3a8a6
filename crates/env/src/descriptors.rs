//! How many files and sockets the process may have open.
//!
//! Many systems begin with 1,024, and give far more to who asks. That is less than a server's
//! connections may be; and one that has none left cannot begin the next segment of its log, after
//! which it accepts no more commits. So it asks.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the bound of open files and sockets as far as the system lets the process, and says what
/// it is then; `None` if there is none.
pub fn raise_open_files() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        // Some systems name a bound that they do not grant.
        Err(_) => current,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_raised_as_far_as_it_may_be() {
        let before = getrlimit(Resource::Nofile);
        let lower = before.current.map_or(512, |current| current.min(512));
        setrlimit(Resource::Nofile, Rlimit { current: Some(lower), ..before }).expect("lowered");
        assert_eq!(raise_open_files(), before.maximum);
        assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: before.maximum, ..before });
    }
}
