//! Plots, as SVG.

use plotters::prelude::*;

use super::findings::Findings;
use crate::Failure;
use crate::world::Way;

/// A curve: its name and its points.
type Curve = (&'static str, Vec<(f64, f64)>);

const SIZE: (u32, u32) = (840, 520);

const COLOURS: [RGBColor; 6] = [
    RGBColor(120, 120, 120),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
];

/// A plot: its file and its content.
#[derive(Debug)]
pub(super) struct Plot {
    /// The name of its file.
    pub(super) file: &'static str,
    /// The caption, as a sentence.
    pub(super) caption: &'static str,
    /// The SVG text.
    pub(super) svg: String,
}

/// Returns the plots of the sections that were measured.
pub(super) fn plots(findings: &Findings) -> Result<Vec<Plot>, Failure> {
    let mut plots = Vec::new();
    let mut add = |file, caption, x, y, curves: Vec<Curve>| -> Result<(), Failure> {
        let curves: Vec<Curve> =
            curves.into_iter().filter(|(_, points)| points.len() > 1).collect();
        if !curves.is_empty() {
            plots.push(Plot { file, caption, svg: draw(x, y, &curves)? });
        }
        Ok(())
    };
    add(
        "latency.svg",
        "Latency against throughput: 2 of 10,000 documents, more clients along each curve. Further right and lower is better.",
        "transfers per second",
        "median of one transfer, ms",
        curves(findings, "spread", |one| (one.round.per_second, one.round.times.p50)),
    )?;
    add(
        "contention.svg",
        "Throughput against contention: 64 clients, 3 documents of so many accounts.",
        "accounts",
        "transfers per second",
        curves(findings, "contention", |one| (one.cell.load.accounts as f64, one.round.per_second)),
    )?;
    let by_size = |of: fn(&super::findings::Size) -> f64| {
        findings.sizes.iter().map(|size| (size.documents as f64, of(size))).collect()
    };
    add(
        "sizes.svg",
        "Cost against N: one client, transactions of N documents, until they are acknowledged.",
        "documents of one transaction",
        "median, ms",
        vec![
            ("plain", by_size(|size| size.plain)),
            ("transaction", by_size(|size| size.transaction)),
            ("transaction, from memory", by_size(|size| size.from_memory)),
        ],
    )?;
    let processor = |one: &crate::measure::Measured| {
        (one.cell.load.documents as f64, one.round.client_cpu.unwrap_or_default())
    };
    add(
        "processor.svg",
        "Processor time of the client against N: 16 clients, N of 10,000 documents.",
        "documents of one transaction",
        "microseconds per transaction",
        curves(findings, "sizes", processor),
    )?;
    Ok(plots)
}

/// Returns the loads of a section, one curve for each way.
fn curves(
    findings: &Findings,
    section: &str,
    point: impl Fn(&crate::measure::Measured) -> (f64, f64),
) -> Vec<Curve> {
    let mut curves: Vec<(Way, Curve)> = Vec::new();
    for (_, one) in findings.loads.iter().filter(|(of, _)| *of == section) {
        let (way, (x, y)) = (one.cell.way, point(one));
        // A logarithmic scale has no zero.
        if x <= 0.0 || y <= 0.0 {
            continue;
        }
        match curves.iter_mut().find(|(of, _)| *of == way) {
            Some((_, (_, points))) => points.push((x, y)),
            None => curves.push((way, (way.name(), vec![(x, y)]))),
        }
    }
    curves.into_iter().map(|(_, curve)| curve).collect()
}

/// Draws curves, with logarithmic scales.
fn draw(x: &str, y: &str, curves: &[Curve]) -> Result<String, Failure> {
    let points = || curves.iter().flat_map(|(_, points)| points);
    // `room` is the space above the curves, for their names.
    let range = |values: &mut dyn Iterator<Item = f64>, room: f64| {
        let (least, most) =
            values.fold((f64::MAX, f64::MIN), |(least, most), v| (least.min(v), most.max(v)));
        (least * 0.8..most * room).log_scale()
    };
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(
                range(&mut points().map(|point| point.0), 1.25),
                range(&mut points().map(|point| point.1), 4.0),
            )?;
        let label = |value: &f64| super::table::number(*value);
        chart
            .configure_mesh()
            .x_desc(x)
            .y_desc(y)
            .x_label_formatter(&label)
            .y_label_formatter(&label)
            .label_style(("sans-serif", 13))
            .axis_desc_style(("sans-serif", 15))
            .bold_line_style(RGBColor(220, 220, 220))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for ((name, points), colour) in curves.iter().zip(COLOURS.iter().cycle()) {
            let style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(points.iter().copied(), style))?
                .label(*name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], style));
            chart
                .draw_series(points.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(("sans-serif", 14))
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(200, 200, 200))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_drawn_with_its_name() {
        let curves = [("plain", vec![(1.0, 2.0), (100.0, 3.0)]), ("groups", vec![(1.0, 1.0)])];
        let svg = draw("clients", "ms", &curves).expect("drawn");
        assert!(
            svg.starts_with("<svg") && svg.contains("plain") && svg.contains("groups"),
            "{svg}"
        );
        assert!(svg.contains("<polyline") && svg.contains("<circle"), "{svg}");
    }

    #[test]
    fn unmeasured_sections_have_no_plot() {
        assert!(plots(&Findings::default()).expect("drawn").is_empty());
    }
}
