//! Helper programs that run to their end: bounded in time, and killed when the harness gives up on
//! them.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, IoContext, Result};

/// Kills the program when dropped before it has ended.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program for at most `limit` with `folder` as its working folder; returns what it printed
/// on standard output.
///
/// A program that fails, or that is still running at the limit, is an error with the end of its
/// standard error.
pub async fn run_to_end(command: &mut Command, folder: &Path, limit: Duration) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let (out_path, err_path) = (folder.join("stdout"), folder.join("stderr"));
    let out = File::create(&out_path).doing("creating a program's output file")?;
    let err = File::create(&err_path).doing("creating a program's output file")?;
    let child = command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .doing(format!("running {name}"))?;
    let mut child = Guard(child);
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.0.try_wait().doing(format!("waiting for {name}"))? {
            break status;
        }
        if started.elapsed() > limit {
            let limit = limit.as_secs();
            return Err(Error::Timeout(format!(
                "{name} did not end in {limit} s\n{}",
                super::tail(&err_path)
            )));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    if !status.success() {
        return Err(Error::Server(format!("{name} failed ({status})\n{}", super::tail(&err_path))));
    }
    std::fs::read_to_string(&out_path).doing(format!("reading the output of {name}"))
}
