//! What the command line refuses, and that it explains itself.

use clap::{CommandFactory, Parser};
use cognate_harness::cli::Cli;

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
