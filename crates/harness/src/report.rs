//! What every benchmark ends with: a table for people, a JSON list for programs, a chart on
//! request.
//!
//! The JSON is a list of `{system, workload, params, committed_per_s, aborted_pct, latency_ms:
//! {mean, p50, p95, p99}}`; `params` holds everything needed to repeat the line, and figures that
//! are no rates (megabytes, ratios).

use std::fmt::Write as _;
use std::path::Path;

use hdrhistogram::Histogram;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::driver::Outcome;
use crate::error::{Error, IoContext, Result};

/// The row that sums up all kinds of request of a run.
pub const TOTAL: &str = "total";

/// Latency of committed requests, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyMs {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl LatencyMs {
    /// From a histogram of microseconds.
    pub fn from_micros(histogram: &Histogram<u64>) -> LatencyMs {
        if histogram.is_empty() {
            return LatencyMs::default();
        }
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        LatencyMs { mean: histogram.mean() / 1000.0, p50: at(0.50), p95: at(0.95), p99: at(0.99) }
    }
}

/// One line of a benchmark's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// `cognate`, `postgres`, or what the line was measured on.
    pub system: String,
    /// The benchmark's name.
    pub workload: String,
    /// Settings, versions and further figures.
    pub params: Map<String, Value>,
    /// Committed requests a second.
    pub committed_per_s: f64,
    /// Aborted attempts in percent of all attempts.
    pub aborted_pct: f64,
    /// Latency of the committed requests.
    pub latency_ms: LatencyMs,
}

impl Record {
    /// Adds a figure, and its standard error as `name_error` if there is one.
    pub fn measured(&mut self, name: &str, value: f64, error: f64) {
        self.params.insert(name.to_owned(), json!(value));
        if error.is_finite() {
            self.params.insert(format!("{name}_error"), json!(error));
        }
    }

    /// The value of a text parameter; empty if there is none.
    pub fn param(&self, name: &str) -> &str {
        self.params.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

/// One record per kind of request and one for all of them, with `params` and the kind as parameter
/// `interaction`.
pub fn records(system: &str, workload: &str, params: &Map<String, Value>, outcome: &Outcome) -> Vec<Record> {
    let seconds = outcome.seconds.max(f64::MIN_POSITIVE);
    let total = outcome.total();
    let named = outcome.kinds.iter().map(String::as_str).zip(&outcome.counts);
    named
        .chain([(TOTAL, &total)])
        .map(|(kind, counts)| {
            let mut params = params.clone();
            params.insert("interaction".to_owned(), json!(kind));
            if !counts.errors.is_empty() {
                params.insert("errors".to_owned(), json!(counts.errors));
            }
            Record {
                system: system.to_owned(),
                workload: workload.to_owned(),
                params,
                committed_per_s: counts.committed as f64 / seconds,
                aborted_pct: counts.aborted_pct(),
                latency_ms: LatencyMs::from_micros(&counts.latency),
            }
        })
        .collect()
}

/// The table of records; `column` names the parameter that tells the rows of one system apart.
pub fn table(records: &[Record], column: &str) -> String {
    let mut rows = vec![
        ["system", column, "committed/s", "aborts %", "mean ms", "p50 ms", "p95 ms", "p99 ms"]
            .map(str::to_owned),
    ];
    for record in records {
        rows.push([
            record.system.clone(),
            record.param(column).to_owned(),
            number(record.committed_per_s),
            format!("{:.2}", record.aborted_pct),
            number(record.latency_ms.mean),
            number(record.latency_ms.p50),
            number(record.latency_ms.p95),
            number(record.latency_ms.p99),
        ]);
    }
    align(&rows, 2)
}

/// Lines the cells up in columns: the first `left` to the left, the others to the right; a rule
/// below the head.
pub fn align<const N: usize>(rows: &[[String; N]], left: usize) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for (index, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = match column < left {
                true => write!(line, "{gap}{cell:width$}"),
                false => write!(line, "{gap}{cell:>width$}"),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
        if index == 0 {
            let _ = writeln!(out, "{}", "-".repeat(widths.iter().sum::<usize>() + 2 * (N - 1)));
        }
    }
    out
}

/// A figure with about three digits that matter.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// For each row of the first system that the second has too: `first / second` in committed requests
/// a second.
pub fn ratios(records: &[Record], column: &str, first: &str, second: &str) -> Vec<(String, f64)> {
    let of = |system: &str, row: &str| {
        records.iter().find(|r| r.system == system && r.param(column) == row).map(|r| r.committed_per_s)
    };
    records
        .iter()
        .filter(|record| record.system == first)
        .filter_map(|record| {
            let row = record.param(column);
            let (mine, theirs) = (of(first, row)?, of(second, row)?);
            (theirs > 0.0).then(|| (row.to_owned(), mine / theirs))
        })
        .collect()
}

/// Writes the records as a JSON list.
pub fn write_json(path: &Path, records: &[Record]) -> Result<()> {
    let text = serde_json::to_string_pretty(records)
        .map_err(|error| Error::Usage(format!("writing {}: {error}", path.display())))?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).doing(format!("creating {}", folder.display()))?;
    }
    std::fs::write(path, text + "\n").doing(format!("writing {}", path.display()))
}

/// A picture may be the first file of its folder.
fn make_folder(path: &Path) -> Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => std::fs::create_dir_all(folder).doing(format!("creating {}", folder.display())),
        None => Ok(()),
    }
}

/// Draws committed requests a second as horizontal bars, one per record, into an SVG file.
pub fn write_svg(path: &Path, title: &str, records: &[Record], column: &str) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::Usage(format!("drawing {}: {error}", path.display()));
    if records.is_empty() {
        return Err(failed(&"there is no figure to draw"));
    }
    let height = 80 + 26 * records.len() as u32;
    make_folder(path)?;
    let area = SVGBackend::new(path, (900, height)).into_drawing_area();
    area.fill(&WHITE).map_err(|e| failed(&e))?;
    let highest = records.iter().map(|r| r.committed_per_s).fold(1.0_f64, f64::max);
    let width = 480.0 / highest;
    area.draw(&Text::new(title.to_owned(), (20, 18), ("sans-serif", 20))).map_err(|e| failed(&e))?;
    for (index, record) in records.iter().enumerate() {
        let top = 56 + 26 * index as i32;
        let end = 300 + (record.committed_per_s * width).round() as i32;
        let color = if record.system == "cognate" { RGBColor(32, 96, 160) } else { RGBColor(150, 150, 150) };
        let label = format!("{} {}", record.system, record.param(column));
        let figure = format!("{}/s", number(record.committed_per_s));
        area.draw(&Text::new(label, (20, top + 2), ("sans-serif", 15))).map_err(|e| failed(&e))?;
        area.draw(&Rectangle::new([(300, top), (end.max(301), top + 18)], color.filled()))
            .map_err(|e| failed(&e))?;
        area.draw(&Text::new(figure, (end + 8, top + 2), ("sans-serif", 15))).map_err(|e| failed(&e))?;
    }
    area.present().map_err(|e| failed(&e))
}

/// Draws curves over a logarithmic axis into an SVG file: for each its name and its points.
pub fn write_curves(
    path: &Path,
    title: &str,
    axis: &str,
    curves: &[(String, Vec<(f64, f64)>)],
) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::Usage(format!("drawing {}: {error}", path.display()));
    let points = || curves.iter().flat_map(|(_, points)| points);
    let (left, right) =
        points().fold((f64::MAX, 1.0_f64), |(left, right), &(x, _)| (left.min(x), right.max(x)));
    let highest = points().map(|&(_, y)| y).fold(1.0_f64, f64::max);
    if left >= right {
        return Err(failed(&"there are too few figures to draw"));
    }
    make_folder(path)?;
    let area = SVGBackend::new(path, (900, 480)).into_drawing_area();
    area.fill(&WHITE).map_err(|e| failed(&e))?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((left..right).log_scale(), 0.0..highest * 1.1)
        .map_err(|e| failed(&e))?;
    chart
        .configure_mesh()
        .x_desc(axis)
        .y_desc("committed/s")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()
        .map_err(|e| failed(&e))?;
    let colors =
        [RGBColor(32, 96, 160), RGBColor(210, 120, 30), RGBColor(130, 130, 130), RGBColor(60, 150, 80)];
    for (index, (name, points)) in curves.iter().enumerate() {
        let color = colors[index % colors.len()];
        let style = color.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))
            .map_err(|e| failed(&e))?
            .label(name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart.configure_series_labels().border_style(BLACK).draw().map_err(|e| failed(&e))?;
    area.present().map_err(|e| failed(&e))
}
