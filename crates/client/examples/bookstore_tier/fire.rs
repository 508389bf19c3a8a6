//! Kills and pauses application servers at random, and sites if that is asked for, as long as the
//! purchases go on.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep, sleep_until};

use crate::Error;
use crate::processes::{Servers, Sites};

/// How often each happened.
#[derive(Debug, Default)]
struct Count {
    killed: u32,
    paused: u32,
    sites: u32,
}

/// Waits for `work` under fire. At its end everything runs again.
pub(crate) async fn under<T>(
    servers: &mut Servers,
    sites: &mut Sites,
    kill_sites: bool,
    random: &mut StdRng,
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    let mut count = Count::default();
    // When a victim comes back: the server, and whether it was only paused.
    let mut back: Vec<Option<(Instant, bool)>> = vec![None; servers.len()];
    let mut work = std::pin::pin!(work);
    let mut next = Instant::now();
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            () = sleep_until(next) => {}
        }
        next = Instant::now() + Duration::from_millis(random.random_range(50..300));
        for (server, place) in back.iter_mut().enumerate() {
            if let Some((moment, is_paused)) = *place
                && moment <= Instant::now()
            {
                raise(servers, server, is_paused)?;
                *place = None;
            }
        }
        if kill_sites && random.random_bool(0.03) {
            count.sites += 1;
            sites.kill_and_restart(random.random_range(0..sites.addresses().len())).await?;
            continue;
        }
        let victim = random.random_range(0..servers.len());
        if back[victim].is_some() {
            continue;
        }
        let is_paused = random.random_bool(0.5);
        match is_paused {
            true => servers.pause(victim)?,
            false => servers.kill(victim)?,
        }
        *(if is_paused { &mut count.paused } else { &mut count.killed }) += 1;
        back[victim] =
            Some((Instant::now() + Duration::from_millis(random.random_range(100..2500)), is_paused));
    };
    for (server, place) in back.iter().enumerate() {
        if let Some((_, is_paused)) = place {
            raise(servers, server, *is_paused)?;
        }
    }
    let Count { killed, paused, sites } = count;
    println!(
        "meanwhile {killed} times an application server was killed, {paused} times paused; {sites} times a site was killed"
    );
    sleep(Duration::from_millis(200)).await;
    Ok(done)
}

fn raise(servers: &mut Servers, server: usize, is_paused: bool) -> Result<(), Error> {
    match is_paused {
        true => servers.resume(server),
        false => servers.restart(server),
    }
}
