//! The application server's side and the HTTP surface, over sites in the process: the engine's own
//! families of siblings, with faults on order (`fake`).
//!
//! `runs` has one fault at a time at every point, `soak` many at random, `surface` the HTTP side of
//! both. Where time is simulated, it goes on when everything waits; nothing depends on how fast
//! anything is.

mod fake;
mod runs;
mod soak;
mod surface;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cognate_client::application::{ApplicationServer, Branches, Failure, Options, Patience};
use cognate_client::backoff::Backoff;
use cognate_client::etransaction::{Reply, Text};

use fake::{FakeConnection, FakeSite};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn options() -> Options {
    let patience = Patience {
        connect: SECOND,
        begin: SECOND,
        logic: SECOND * 2,
        prepare: SECOND,
        commit: SECOND,
        commit_all: SECOND * 10,
    };
    let backoff = Backoff {
        pause: Duration::from_millis(10),
        pause_max: Duration::from_millis(100),
        ..Backoff::default()
    };
    Options { connections_max: 4, patience, backoff, attempts_max: 5 }
}

/// Two sites, and an application server over them.
pub(crate) fn two_sites() -> ([FakeSite; 2], ApplicationServer<FakeSite>) {
    let sites = [FakeSite::default(), FakeSite::default()];
    let server = ApplicationServer::new(sites.clone(), options());
    (sites, server)
}

static EXECUTIONS: AtomicU64 = AtomicU64::new(0);

/// Writes a line that no other execution writes at every site, and has it as its result:
/// non-deterministic, as the paper's requests are.
pub(crate) async fn write(request: Text, branches: Branches<FakeConnection>) -> Result<String, Failure> {
    let execution = EXECUTIONS.fetch_add(1, Ordering::Relaxed);
    let line = format!("{} {request} {execution}", branches.job().xid);
    for site in 0..branches.sites() {
        branches.site(site).write(&line).await?;
    }
    Ok(line)
}

/// Waits until nothing is under way any more that a run has left behind.
pub(crate) async fn settled(sites: &[FakeSite], servers: &[&ApplicationServer<FakeSite>]) {
    let is_quiet = || {
        let all_back = |server: &&ApplicationServer<FakeSite>| {
            server.pools().iter().all(|pool| pool.available() == options().connections_max)
        };
        sites.iter().all(|site| site.lock().active() == 0) && servers.iter().all(all_back)
    };
    while !is_quiet() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for (number, site) in sites.iter().enumerate() {
        let violations = site.lock().violations.clone();
        assert!(violations.is_empty(), "site {number}: {violations:?}");
    }
}

/// The result of a reply that has one.
pub(crate) fn done(reply: &Reply) -> &str {
    match reply {
        Reply::Done { result, .. } => result,
        other => panic!("{other:?}"),
    }
}
