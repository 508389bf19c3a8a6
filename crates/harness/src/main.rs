//! `cognate-bench`: measures Cognate, alone or beside PostgreSQL. `cognate-bench help` lists the
//! benchmarks.

use std::process::ExitCode;

use clap::Parser;
use cognate_harness::cli::Cli;
use cognate_harness::error::Error;

/// As in `cognate serve`, so that the embedded library is measured with the same one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(cli.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Interrupted) => {
            eprintln!("interrupted; every server started here is stopped");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
