//! What a client has stored, as far as it saves searches: nothing is stored of a number above all
//! that its client has stored.
//!
//! A client numbers its requests 1, 2, 3, … (see `collected`), so nearly every BEGIN is of a number
//! that nobody has used before, and the two searches that tell so, for the family and for what its
//! client has forgotten, find nothing. The highest number spares both. Of a client that has come
//! twice it is asked once, with a look at what lies next to each other in the store; for one that
//! comes only once, two searches are cheaper than that.
//!
//! *Invariant:* of a client that has been asked, the number is at least that of every family that
//! is stored or forgotten. Whatever stores a family raises it, and all families of a client are in
//! one shard, whose mutex guards this. A family that is only in memory, or whose instances are
//! prepared, is found in memory first.
//!
//! ```text
//! BEGIN c/1      c is new: two searches           COMMIT c/1     nothing to raise: nobody has asked
//! BEGIN c/2      c is asked: its highest is 1     COMMIT c/2     raised to 2
//! BEGIN c/3      above 2: no search               BEGIN c/1      late: searched, and found
//! ```

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// Clients that a shard knows; with one more it begins anew.
const CLIENTS_MAX: usize = 256;

/// The clients of a shard.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// The highest number stored; `None` as long as it has not been asked for.
    highest: HashMap<Box<str>, Option<u64>, RandomState>,
}

impl Clients {
    /// Whether something may be stored of this request. `ask` tells the client's highest number;
    /// one that cannot be told is `u64::MAX`.
    pub(super) fn may_have<E>(
        &mut self,
        client: &str,
        number: u64,
        ask: impl FnOnce() -> Result<u64, E>,
    ) -> Result<bool, E> {
        match self.highest.get_mut(client) {
            Some(Some(highest)) => Ok(number <= *highest),
            Some(highest) => Ok(number <= *highest.insert(ask()?)),
            None => {
                if self.highest.len() == CLIENTS_MAX {
                    self.highest.clear();
                }
                self.highest.insert(client.into(), None);
                Ok(true)
            }
        }
    }

    /// Something is going to be stored of this request.
    pub(super) fn raise(&mut self, client: &str, number: u64) {
        if let Some(Some(highest)) = self.highest.get_mut(client) {
            *highest = number.max(*highest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cognate_env::SplitMix;

    use super::*;

    #[test]
    fn a_client_is_asked_when_it_comes_again() {
        let mut clients = Clients::default();
        let never = || -> Result<u64, &str> { Err("asked") };
        assert_eq!(clients.may_have("c", 1, never), Ok(true));
        assert_eq!(clients.may_have("c", 2, never), Err("asked"));
        assert_eq!(clients.may_have("c", 2, || Ok::<_, &str>(1)), Ok(false));
        assert_eq!(clients.may_have("c", 1, never), Ok(true));
        clients.raise("c", 7);
        assert_eq!(clients.may_have("c", 7, never), Ok(true));
        assert_eq!(clients.may_have("c", 8, never), Ok(false));
    }

    /// Whatever comes in whatever order, by more clients than it knows: nothing that is stored is
    /// denied.
    #[test]
    fn what_is_stored_is_never_denied() {
        for seed in 0..20 {
            let (mut clients, mut random) = (Clients::default(), SplitMix::new(seed));
            let mut stored = BTreeSet::new();
            for _ in 0..5000 {
                let (client, number) = (random.below(CLIENTS_MAX as u64 + 40), 1 + random.below(9));
                let name = client.to_string();
                if random.below(2) == 0 {
                    clients.raise(&name, number);
                    stored.insert((client, number));
                    continue;
                }
                let highest = stored.range((client, 0)..=(client, u64::MAX)).next_back().map_or(0, |of| of.1);
                let may = clients.may_have(&name, number, || Ok::<_, ()>(highest)).expect("it is told");
                assert!(may || !stored.contains(&(client, number)), "seed {seed}");
            }
        }
    }
}
