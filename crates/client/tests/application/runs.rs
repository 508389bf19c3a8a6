//! One fault at a time, at every point of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cognate_client::application::{Acknowledged, ApplicationServer, Branches, Failure, Options};
use cognate_client::etransaction::{Refused, Reply, Text};
use cognate_client::xid::BadKey;

use crate::fake::{FakeConnection, FakeSite, Fault, Point};
use crate::{SECOND, done, options, settled, two_sites, write};

fn lines(site: &FakeSite) -> Vec<String> {
    site.lock().lines.clone()
}

async fn run(server: &ApplicationServer<FakeSite>, instance: i64) -> Reply {
    server.run("c/1", instance, "buy", &write).await.expect("the key is good")
}

fn retry(reply: &Reply) -> (i64, &str) {
    match reply {
        Reply::Retry { highest, reason } => (*highest, reason),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_without_faults_commits_everywhere_and_keeps_its_connections() {
    let (sites, server) = two_sites();
    for number in 1..=10 {
        let reply = server.run(&format!("c/{number}"), 1024, "buy", &write).await.expect("good");
        let line = done(&reply).to_owned();
        settled(&sites, &[&server]).await;
        for site in &sites {
            assert_eq!(lines(site).last(), Some(&line));
            let database = site.lock();
            assert_eq!((database.connects, database.undecided()), (1, 0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_decided_family_is_answered_without_running_the_logic_again() {
    let (sites, server) = two_sites();
    let first = run(&server, 1024).await;
    let executions = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&executions);
    let counting = move |_: Text, _: Branches<FakeConnection>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok("another".to_owned()) }
    };
    for instance in [1024, 2048, 512] {
        let again = server.run("c/1", instance, "buy", &counting).await.expect("good");
        assert_eq!(done(&again), done(&first));
    }
    assert_eq!(executions.load(Ordering::Relaxed), 0);
    settled(&sites, &[&server]).await;
    assert!(sites.iter().all(|site| lines(site).len() == 1));
}

/// Its server has stopped between PREPARE and COMMIT, or could not know that all sites have
/// prepared. The retry finds that, whatever befalls its look.
#[tokio::test(start_paused = true)]
async fn what_was_prepared_everywhere_is_committed_without_running_the_logic_again() {
    let faults = [None, Some(Fault::LoseRequest), Some(Fault::LoseReply), Some(Fault::Slow(SECOND * 9))];
    for fault in faults {
        let (sites, server) = two_sites();
        let other = ApplicationServer::new(sites.clone(), options());
        sites[1].lock().order(Point::Prepare, Fault::LoseReply);
        assert_eq!(retry(&run(&server, 1024).await).0, 1024);
        let executions = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&executions);
        let counting = move |_: Text, _: Branches<FakeConnection>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok("another".to_owned()) }
        };
        // Once for the connection that was idle, and once for the new one.
        for fault in fault.iter().chain(&fault) {
            sites[0].lock().order(Point::Look, fault.clone());
        }
        let reply = other.run("c/1", 2048, "buy", &counting).await.expect("good");
        assert!(matches!(&reply, Reply::Done { winner: 1024, .. }), "{reply:?}");
        assert_eq!(executions.load(Ordering::Relaxed), u64::from(fault.is_some()), "{fault:?}");
        let differs = other.run("c/1", 3072, "sell", &counting).await.expect("good");
        assert_eq!(differs, Reply::RequestDiffers);
        settled(&sites, &[&server, &other]).await;
        assert!(sites.iter().all(|site| lines(site) == [done(&reply)]));
    }
}

/// Every point, every site, every loss: the request is executed once, whatever the first server
/// could say, and nothing is left open.
#[tokio::test(start_paused = true)]
async fn losses_and_slow_sites_at_every_point() {
    let points = [Point::Connect, Point::Begin, Point::Logic, Point::Prepare, Point::Commit];
    let faults = [
        Fault::LoseRequest,
        Fault::LoseReply,
        Fault::Crash,
        Fault::Slow(SECOND / 2),
        Fault::Slow(SECOND * 5),
        Fault::LateReply(SECOND * 5),
    ];
    for point in points {
        for fault in &faults {
            for faulty in 0..2 {
                let (sites, server) = two_sites();
                let other = ApplicationServer::new(sites.clone(), options());
                let case = format!("{fault:?} at {point:?} of site {faulty}");
                sites[faulty].lock().order(point, fault.clone());
                let first = run(&server, 1024).await;
                let must_answer = point == Point::Commit || *fault == Fault::Slow(SECOND / 2);
                match &first {
                    Reply::Done { .. } => {}
                    Reply::Retry { highest: 1024, .. } if !must_answer => {}
                    other => panic!("{case}: {other:?}"),
                }
                let second = run(&other, 2048).await;
                let line = done(&second);
                if let Reply::Done { result, .. } = &first {
                    assert_eq!(&**result, line, "{case}");
                }
                settled(&sites, &[&server, &other]).await;
                for site in &sites {
                    assert_eq!(lines(site), [line], "{case}");
                    assert_eq!(site.lock().undecided(), 0, "{case}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_number_at_two_servers_at_once_is_executed_once() {
    let (sites, server) = two_sites();
    let other = ApplicationServer::new(sites.clone(), options());
    let (one, two) = tokio::join!(run(&server, 1024), run(&other, 1024));
    let third = run(&server, 2048).await;
    for reply in [&one, &two] {
        if let Reply::Done { result, .. } = reply {
            assert_eq!(&**result, done(&third));
        }
    }
    settled(&sites, &[&server, &other]).await;
    assert!(sites.iter().all(|site| lines(site) == [done(&third)]));
}

#[tokio::test(start_paused = true)]
async fn a_slower_predecessor_is_overtaken_and_gets_the_winners_answer() {
    let (sites, server) = two_sites();
    let other = ApplicationServer::new(sites.clone(), options());
    sites[1].lock().order(Point::Logic, Fault::Slow(SECOND));
    let late = async {
        tokio::time::sleep(SECOND / 2).await;
        run(&other, 2048).await
    };
    let (first, second) = tokio::join!(run(&server, 1024), late);
    // The first is told of the decision at its PREPARE, or is refused what it executes.
    match &first {
        Reply::Done { winner, result } => assert_eq!((*winner, &**result), (2048, done(&second))),
        other => assert_eq!(retry(other).0, 1024),
    }
    assert_eq!(run(&server, 3072).await, second);
    settled(&sites, &[&server, &other]).await;
    assert!(sites.iter().all(|site| lines(site) == [done(&second)]));
}

#[tokio::test(start_paused = true)]
async fn every_final_refusal_has_its_type() {
    let (sites, server) = two_sites();
    let first = run(&server, 1024).await;
    done(&first);
    let differs = server.run("c/1", 2048, "sell", &write).await.expect("good");
    assert_eq!(differs, Reply::RequestDiffers);
    let large = "x".repeat((1 << 20) + 1);
    let large = server.run("c/2", 1024, &large, &write).await.expect("good");
    assert!(matches!(large, Reply::RequestTooLarge(_)), "{large:?}");
    assert_eq!(server.run("", 1, "", &write).await, Err(BadKey::Empty));
    assert_eq!(server.run(&"x".repeat(201), 1, "", &write).await, Err(BadKey::TooLong { bytes: 201 }));
    assert_eq!(server.run("a\0", 1, "", &write).await, Err(BadKey::HasNul));
    assert_eq!(server.run("c/3", 0, "", &write).await, Err(BadKey::NotPositive(0)));
    assert_eq!(server.acknowledge("c/1").await, Ok(Acknowledged::Forgotten));
    assert_eq!(server.acknowledge("c/1").await, Ok(Acknowledged::Forgotten));
    assert_eq!(run(&server, 4096).await, Reply::Forgotten);
    sites[1].lock().order(Point::Commit, Fault::Refuse(Refused::Taken { highest: 0 }));
    let broken = server.run("c/4", 1024, "buy", &write).await.expect("good");
    assert!(matches!(broken, Reply::Broken(_)), "{broken:?}");
    settled(&sites, &[&server]).await;
}

/// A reply to BEGIN that comes after the decision is known answers nothing: it once looked like a
/// site that breaks the decision.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_comes_after_the_decision_is_not_taken_for_one_of_the_commit() {
    let (sites, server) = two_sites();
    let other = ApplicationServer::new(sites.clone(), options());
    // 2048 is committed at site 0 and only prepared at site 1.
    for _ in 0..10_000 {
        sites[1].lock().order(Point::Commit, Fault::LoseRequest);
    }
    assert_eq!(retry(&run(&server, 2048).await).0, 2048);
    settled(&sites, &[&server]).await;
    sites[1].lock().heal();
    sites[1].lock().order(Point::Begin, Fault::LateReply(SECOND / 2));
    // 1024 is below site 1's tombstone, and decided at site 0.
    let reply = run(&other, 1024).await;
    assert!(matches!(reply, Reply::Done { winner: 2048, .. }), "{reply:?}");
    settled(&sites, &[&server, &other]).await;
}

#[tokio::test(start_paused = true)]
async fn commits_that_nobody_acknowledges_are_left_to_others_after_a_while() {
    let (sites, server) = two_sites();
    for _ in 0..10_000 {
        sites[1].lock().order(Point::Commit, Fault::LoseRequest);
    }
    let begun = tokio::time::Instant::now();
    let reply = run(&server, 1024).await;
    assert!(retry(&reply).1.contains("1024 is the winner"), "{reply:?}");
    assert!(begun.elapsed() < options().patience.commit_all + SECOND * 5);
    assert_eq!(server.acknowledge("c/1").await, Ok(Acknowledged::NotDecided));
    settled(&sites, &[&server]).await;
}

#[tokio::test(start_paused = true)]
async fn logic_that_fails_stalls_or_keeps_its_branches_leaves_nothing_behind() {
    let (sites, server) = two_sites();
    let failing = |_: Text, branches: Branches<FakeConnection>| async move {
        branches.site(0).write("half").await?;
        Err(Failure("no".to_owned()))
    };
    let reply = server.run("c/1", 1024, "buy", &failing).await.expect("good");
    assert_eq!(retry(&reply), (1024, "no"));
    let stalling = |_: Text, _: Branches<FakeConnection>| std::future::pending();
    let reply = server.run("c/1", 2048, "buy", &stalling).await.expect("good");
    assert!(retry(&reply).1.contains("did not end"), "{reply:?}");
    let keeping = |_: Text, branches: Branches<FakeConnection>| async move {
        tokio::spawn(async move {
            tokio::time::sleep(SECOND).await;
            drop(branches);
        });
        Ok("kept".to_owned())
    };
    let reply = server.run("c/1", 3072, "buy", &keeping).await.expect("good");
    assert!(retry(&reply).1.contains("kept a branch"), "{reply:?}");
    let panicking = |_: Text, _: Branches<FakeConnection>| async { panic!("as planned") };
    let that = server.clone();
    let joined = tokio::spawn(async move { that.run("c/1", 4096, "buy", &panicking).await }).await;
    assert!(joined.is_err());
    let reply = run(&server, 5120).await;
    settled(&sites, &[&server]).await;
    assert!(sites.iter().all(|site| lines(site) == [done(&reply)]));
}

/// Dropped at any of its waits, a run is as if its server had stopped: connections are closed, and
/// another server goes on.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_leaves_nothing_open() {
    let points = [Point::Connect, Point::Begin, Point::Logic, Point::Prepare, Point::Commit];
    for point in points {
        for fault in [Fault::Slow(SECOND / 2), Fault::LateReply(SECOND / 2)] {
            let (sites, server) = two_sites();
            sites[1].lock().order(point, fault.clone());
            let running = tokio::time::timeout(SECOND / 4, run(&server, 1024)).await;
            if point == Point::Logic && fault == Fault::LateReply(SECOND / 2) {
                assert!(running.is_err());
            }
            let reply = run(&server, 2048).await;
            settled(&sites, &[&server]).await;
            for site in &sites {
                assert_eq!(lines(site), [done(&reply)], "{fault:?} at {point:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_connection_a_site_is_enough_for_many_requests_at_once() {
    let sites = [FakeSite::default(), FakeSite::default()];
    let narrow = Options { connections_max: 1, ..options() };
    let server = ApplicationServer::new(sites.clone(), narrow);
    for _ in 0..20 {
        sites[0].lock().order(Point::Begin, Fault::Slow(Duration::from_millis(3)));
        sites[1].lock().order(Point::Prepare, Fault::Slow(Duration::from_millis(2)));
    }
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=20 {
        let server = server.clone();
        tasks.spawn(async move { server.answer(&format!("c/{number}"), "buy", &write).await });
    }
    while let Some(reply) = tasks.join_next().await {
        done(&reply.expect("no panic").expect("good"));
    }
    for site in &sites {
        let database = site.lock();
        assert_eq!((database.connects, database.lines.len()), (1, 20));
    }
}

#[tokio::test(start_paused = true)]
async fn a_site_that_was_restarted_costs_no_request() {
    let (sites, server) = two_sites();
    done(&run(&server, 1024).await);
    settled(&sites, &[&server]).await;
    sites[0].lock().crash();
    let reply = server.run("c/2", 1024, "buy", &write).await.expect("good");
    done(&reply);
    sites[1].lock().is_down = true;
    sites[1].lock().crash();
    let reply = server.run("c/3", 1024, "buy", &write).await.expect("good");
    assert!(retry(&reply).1.contains("site 1"), "{reply:?}");
    let health = server.describe().await;
    assert!(health[0].is_ok() && health[1].is_err(), "{health:?}");
    sites[1].lock().is_down = false;
    done(&server.run("c/3", 2048, "buy", &write).await.expect("good"));
    settled(&sites, &[&server]).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_without_numbers_is_numbered_above_what_the_sites_have_heard_of() {
    let (sites, server) = two_sites();
    let other = ApplicationServer::new(sites.clone(), options());
    // Prepared at one site under a stub's number, and its server is gone.
    sites[1].lock().order(Point::Prepare, Fault::LoseRequest);
    assert_eq!(retry(&run(&server, 7169).await).0, 7169);
    let reply = other.answer("c/1", "buy", &write).await.expect("good");
    assert!(matches!(&reply, Reply::Done { winner, .. } if *winner > 7169), "{reply:?}");
    assert_eq!(server.answer("c/1", "buy", &write).await, Ok(reply));
    settled(&sites, &[&server, &other]).await;
    assert!(sites.iter().all(|site| lines(site).len() == 1));
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_are_refused_where_there_is_no_answer_yet() {
    let (sites, server) = two_sites();
    assert_eq!(server.acknowledge("c/1").await, Ok(Acknowledged::Unknown));
    sites[1].lock().order(Point::Prepare, Fault::LoseRequest);
    retry(&run(&server, 1024).await);
    assert_eq!(server.acknowledge("c/1").await, Ok(Acknowledged::NotDecided));
    done(&run(&server, 2048).await);
    sites[1].lock().is_down = true;
    sites[1].lock().crash();
    let lost = server.acknowledge("c/1").await;
    assert!(matches!(lost, Ok(Acknowledged::Retry(_))), "{lost:?}");
    sites[1].lock().is_down = false;
    sites[1].lock().order(Point::Forget, Fault::LoseReply);
    let lost = server.acknowledge("c/1").await;
    assert!(matches!(lost, Ok(Acknowledged::Retry(_) | Acknowledged::Forgotten)), "{lost:?}");
    assert_eq!(server.acknowledge("c/1").await, Ok(Acknowledged::Forgotten));
    assert_eq!(server.acknowledge("").await, Err(BadKey::Empty));
}

fn two_plain_sites() -> ([FakeSite; 2], ApplicationServer<FakeSite>) {
    let site = || FakeSite::plain();
    let sites = [site(), site()];
    let server = ApplicationServer::new(sites.clone(), options());
    (sites, server)
}

#[tokio::test(start_paused = true)]
async fn without_siblings_a_retry_is_told_that_the_request_is_in_doubt() {
    let (sites, server) = two_plain_sites();
    sites[1].lock().order(Point::Prepare, Fault::LoseRequest);
    assert_eq!(retry(&run(&server, 1024).await).0, 1024);
    let reply = run(&server, 2048).await;
    assert!(matches!(&reply, Reply::InDoubt { highest: 2048, .. }), "{reply:?}");
    settled(&sites, &[&server]).await;
    assert!(sites.iter().all(|site| lines(site).is_empty()));
}

#[tokio::test(start_paused = true)]
async fn without_siblings_a_retry_finishes_what_was_prepared_everywhere() {
    let (sites, server) = two_plain_sites();
    let other = ApplicationServer::new(sites.clone(), options());
    sites[1].lock().order(Point::Prepare, Fault::LoseReply);
    assert_eq!(retry(&run(&server, 1024).await).0, 1024);
    let reply = run(&other, 2048).await;
    assert!(matches!(&reply, Reply::Done { winner: 1024, .. }), "{reply:?}");
    settled(&sites, &[&server, &other]).await;
    assert!(sites.iter().all(|site| lines(site) == [done(&reply)]));
}

/// A serialization failure at one site: what is prepared at the other can never be committed, and
/// goes.
#[tokio::test(start_paused = true)]
async fn without_siblings_what_a_site_refused_to_prepare_is_withdrawn_from_the_others() {
    for pause in [Duration::ZERO, SECOND / 2] {
        let (sites, server) = two_plain_sites();
        sites[1].lock().order(Point::Prepare, Fault::Refuse(Refused::Failed("could not serialize".into())));
        sites[0].lock().order(Point::Prepare, Fault::LateReply(pause));
        assert_eq!(retry(&run(&server, 1024).await), (1024, "could not serialize"));
        assert_eq!(sites[0].lock().undecided(), 0);
        let reply = run(&server, 2048).await;
        settled(&sites, &[&server]).await;
        assert!(sites.iter().all(|site| lines(site) == [done(&reply)]));
    }
}
