//! Curves as SVG: one panel below the other over the same horizontal axis, one colour a system.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::error::{Error, IoContext, Result};

/// One system's points.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Where on the horizontal axis, and how much.
    pub points: Vec<(f64, f64)>,
}

/// One panel.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What the vertical axis counts.
    pub title: String,
    /// The curves.
    pub curves: Vec<Curve>,
}

const COLORS: [RGBColor; 5] = [
    RGBColor(32, 96, 160),
    RGBColor(200, 90, 30),
    RGBColor(60, 140, 70),
    RGBColor(140, 80, 160),
    RGBColor(120, 120, 120),
];

/// Draws the panels, below each other, over a logarithmic axis.
///
/// # Errors
/// If there is nothing to draw, or the file cannot be written.
pub fn write(path: &Path, title: &str, axis: &str, panels: &[Panel]) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::Usage(format!("drawing {}: {error}", path.display()));
    if panels.iter().all(|panel| panel.curves.iter().all(|curve| curve.points.is_empty())) {
        return Err(failed(&"there is no figure to draw"));
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).doing(format!("creating {}", folder.display()))?;
    }
    let area = SVGBackend::new(path, (900, 40 + 340 * panels.len() as u32)).into_drawing_area();
    area.fill(&WHITE).map_err(|e| failed(&e))?;
    let below = area.titled(title, ("sans-serif", 20)).map_err(|e| failed(&e))?;
    for (panel, part) in panels.iter().zip(below.split_evenly((panels.len(), 1))) {
        draw(&part, axis, panel).map_err(|e| failed(&e))?;
    }
    area.present().map_err(|e| failed(&e))
}

fn draw(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    axis: &str,
    panel: &Panel,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || panel.curves.iter().flat_map(|curve| &curve.points);
    let low = points().map(|point| point.0).fold(f64::MAX, f64::min).max(1.0);
    let high = points().map(|point| point.0).fold(low + 1.0, f64::max);
    let top = points().map(|point| point.1).fold(1.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((low..high).log_scale(), 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc(axis)
        .y_desc(panel.title.as_str())
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| if top < 20.0 { format!("{y:.1}") } else { format!("{y:.0}") })
        .draw()?;
    for (curve, color) in panel.curves.iter().zip(COLORS.iter().cycle()) {
        let style = color.stroke_width(2);
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), style))?
            .label(curve.name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        chart.draw_series(curve.points.iter().map(|&point| Circle::new(point, 3, color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    Ok(())
}
