//! Durable storage: the log of commits and the base store.
