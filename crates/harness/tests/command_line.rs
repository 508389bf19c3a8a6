//! What the command line refuses, and that it explains itself.

use clap::{CommandFactory, Parser};
use cognate_harness::cli::Cli;
use cognate_harness::command::parse_size;

fn refused(arguments: &[&str]) -> String {
    let all = std::iter::once("cognate-bench").chain(arguments.iter().copied());
    Cli::try_parse_from(all).expect_err("refused").to_string()
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn the_documented_calls_are_understood() {
    for line in [
        "bookstore --seconds 20 --clients 80",
        "bookstore --seconds 20 --clients 80 --peer postgres --json results.json",
        "bookstore --mix browsing --items 1000 --browsers 2 --connect postgresql://postgres@127.0.0.1:5433/x",
        "pgbench --scale 10 --seconds 10 --clients 16 --peer postgres --script select-only --script tpcb-like",
        "crash --rounds 20",
        "statements --peer postgres --only best_sellers,bought_with",
        "log --in-flight 64 --seconds 5",
        "memory --memory 64MB --times 4",
        "device --limit 80 --clients 8000 --rounds 1",
        "governor --clients 16,80 --limits 4,off --hot-clients 0 --connected 0 --curves curves.svg",
        "mixed --peer postgres",
        "interrupt --cancels 1 --only sort,UPDATE",
        "mip --peer postgres --curves docs/results/mip-latency.svg",
        "mip --goals latency,failover --clients 1,25 --rounds 3 --isolation read-committed",
        "recovery --megabytes 100",
        "replication",
        "replication --part peers,leader --kills 3 --json replication.json",
        "replication --part nodes --nodes 2,4 --without-peers",
        "replication --part before --before old/cognate --seconds 40 --rounds 8",
        "replication --galera mysql://bench@127.0.0.1:3306/bench --postgres postgresql://postgres@127.0.0.1/postgres",
        "composite --database embedded --seconds 2 --json composite.json --curves composite.svg",
        "composite --part plain,entries,purchase,commits --database postgres --clients 10",
        "composite --part purchase --without-peers",
        "composite --trees 1x1,4x2 --part tree",
        "snum",
        "snum --reads 5 --updates 1 --hot 100 --clients 40 --systems pssi,strict,ssi,si,2pl,postgres --seconds 10",
        "snum --range-scan --embedded --isolation serializable --json snum.json",
        "snum --goals uniform,uniform-fresh,strict-fresh,needless",
        "conflicts",
        "conflicts --loads tpcb-1,bookstore --systems pssi,strict,postgres --seconds 8 --rounds 2 --json conflicts.json",
        "snum --sweep 1,10,80 --curves docs/results/snum-sweep.svg",
        "oracle --embedded --windows --method ssi --seed 7",
        "oracle --s3u1 --keys 200 --clients 80 --method strict",
        "all --json bench-results --docs docs --smoke --only pgbench,crash",
        "all --before old/cognate --alone other/cognate --only replication-before,replication-protocols",
        "pages --json bench-results --docs docs",
        "bookstore --isolation serializable --peer postgres --peer-only --svg chart.svg",
    ] {
        let all = std::iter::once("cognate-bench").chain(line.split(' '));
        Cli::try_parse_from(all).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn nonsense_is_refused_by_name() {
    assert!(refused(&["bookstore", "--mix", "reading"]).contains("ordering"));
    assert!(refused(&["bookstore", "--clients", "0"]).contains("1..=290"));
    assert!(refused(&["bookstore", "--seconds", "soon"]).contains("--seconds"));
    assert!(refused(&["bookstore", "--peer", "oracle"]).contains("postgres"));
    assert!(refused(&["bookstore", "--peer-only"]).contains("--peer"));
    assert!(refused(&["cinema"]).contains("unrecognized subcommand"));
}

#[test]
fn every_argument_is_explained() {
    for command in Cli::command().get_subcommands().filter(|command| command.get_name() != "help") {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for argument in command.get_arguments() {
            let name = argument.get_id().as_str();
            assert!(argument.get_help().is_some(), "{} --{name}", command.get_name());
        }
    }
}

#[test]
fn sizes_are_bytes() {
    assert_eq!(parse_size("256MB").unwrap(), 256 << 20);
    assert_eq!(parse_size("1gb").unwrap(), 1 << 30);
    assert_eq!(parse_size("512").unwrap(), 512);
    for wrong in ["", "MB", "12 parsecs", "-1MB", "0", "99999999999GB"] {
        assert!(parse_size(wrong).is_err(), "{wrong}");
    }
}
