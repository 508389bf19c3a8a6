//! `cognate-bench pages`: the pages of results, from the JSON files of earlier runs.

use std::path::PathBuf;

use clap::Args;

use crate::error::Result;
use crate::results;

/// Where the pages come from and where they go.
#[derive(Clone, Debug, Args)]
pub struct PagesArgs {
    /// The folder with the JSON files.
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    json: PathBuf,
    /// The folder with results.md and the folder results.
    #[arg(long, value_name = "DIR", default_value = "docs")]
    docs: PathBuf,
}

/// Writes them.
pub fn run(args: &PagesArgs) -> Result<()> {
    let figures = results::load(&args.json)?;
    results::write(&figures, &args.docs)?;
    eprintln!("wrote {} and {} pages", args.docs.join("results.md").display(), figures.pages.len());
    Ok(())
}
