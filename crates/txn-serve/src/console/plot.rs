//! Plots of the last minutes, as SVG.

use maud::{Markup, html};

use crate::samples::WINDOW;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 32.0;

/// The times on the axis: seconds before now, and their text.
const TIMES: [(f64, &str); 3] = [(600.0, "10 min ago"), (300.0, "5 min ago"), (0.0, "now")];

/// A line of a plot.
pub(super) struct Line {
    pub(super) name: &'static str,
    /// The class that gives the line its colour and its dashes.
    pub(super) class: &'static str,
    /// Seconds before now with the value, oldest first. A missing value interrupts the line.
    pub(super) points: Vec<(f64, Option<f64>)>,
}

impl Line {
    fn values(&self) -> impl Iterator<Item = f64> {
        self.points.iter().filter_map(|(_, value)| *value)
    }

    /// The last and the highest value, in words.
    fn summary(&self) -> String {
        let shown = |value: Option<f64>| value.map_or("no value".to_owned(), number);
        let last = shown(self.points.last().and_then(|(_, value)| *value));
        let highest = shown(self.values().reduce(f64::max));
        format!("{}: last {last}, highest {highest}", self.name)
    }
}

/// Draws lines over the last ten minutes. `id` is unique on the page.
pub(super) fn plot(id: &str, title: &str, unit: &str, lines: &[Line]) -> Markup {
    let top = scale(lines.iter().flat_map(Line::values).fold(0.0, f64::max));
    let summaries: Vec<String> = lines.iter().map(Line::summary).collect();
    let (named, described) = (format!("{id}-title"), format!("{id}-description"));
    html! {
        figure.plot {
            figcaption { b { (title) } ", " (unit) }
            ul.legend {
                @for line in lines {
                    li {
                        svg.swatch viewBox="0 0 28 8" aria-hidden="true" {
                            path class={ "line " (line.class) } d="M1 4H27" {}
                        }
                        (line.summary())
                    }
                }
            }
            div.scroll tabindex="0" role="region" aria-label={ (title) ", plot" } {
                svg.chart viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img"
                    aria-labelledby={ (named) " " (described) } {
                    title id=(named) { (title) " in " (unit) ", last 10 minutes" }
                    desc id=(described) { (summaries.join("; ")) " " (unit) "." }
                    (axes(top, unit))
                    @for line in lines { (drawn(line, top)) }
                }
            }
        }
    }
}

fn axes(top: f64, unit: &str) -> Markup {
    let right = WIDTH - RIGHT;
    let floor = HEIGHT - BOTTOM;
    html! {
        g.axes {
            @for value in [0.0, top / 2.0, top] {
                path.grid d={ "M" (LEFT) " " (coordinate(y(value, top))) "H" (right) } {}
                text x=(LEFT - 8.0) y=(coordinate(y(value, top) + 4.0)) text-anchor="end" {
                    (number(value))
                }
            }
            @for (ago, words) in TIMES {
                path.grid d={ "M" (coordinate(x(ago))) " " (floor) "v5" } {}
                @let anchor = match ago { 0.0 => "end", ago if ago == WINDOW.as_secs_f64() => "start", _ => "middle" };
                text x=(coordinate(x(ago))) y=(floor + 20.0) text-anchor=(anchor) { (words) }
            }
            text.unit x=(14) y=(coordinate(y(top / 2.0, top))) text-anchor="middle"
                transform={ "rotate(-90 14 " (coordinate(y(top / 2.0, top))) ")" } { (unit) }
        }
    }
}

/// The line, and a dot for each value without a neighbour.
fn drawn(line: &Line, top: f64) -> Markup {
    let window = WINDOW.as_secs_f64();
    let mut path = String::new();
    let mut dots = Vec::new();
    let shown: Vec<(f64, Option<f64>)> =
        line.points.iter().filter(|(ago, _)| *ago <= window).copied().collect();
    for part in shown.split(|(_, value)| value.is_none()) {
        let at = part.iter().filter_map(|(ago, value)| Some((x(*ago), y((*value)?, top))));
        let at: Vec<(f64, f64)> = at.collect();
        match at[..] {
            [] => {}
            [one] => dots.push(one),
            _ => {
                for (number, (x, y)) in at.iter().enumerate() {
                    let letter = if number == 0 { 'M' } else { 'L' };
                    path += &format!("{letter}{} {}", coordinate(*x), coordinate(*y));
                }
            }
        }
    }
    html! {
        path class={ "line " (line.class) } d=(path) {}
        @for (x, y) in dots {
            circle class={ "dot " (line.class) } cx=(coordinate(x)) cy=(coordinate(y)) r="2" {}
        }
    }
}

fn x(ago: f64) -> f64 {
    let share = 1.0 - ago / WINDOW.as_secs_f64();
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

fn y(value: f64, top: f64) -> f64 {
    HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
}

fn coordinate(value: f64) -> String {
    format!("{value:.1}")
}

/// The end of an axis: 1, 2 or 5 times a power of ten.
fn scale(highest: f64) -> f64 {
    if !highest.is_finite() || highest <= 0.0 {
        return 1.0;
    }
    let power = 10.0_f64.powf(highest.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| step * power >= highest);
    step.unwrap_or(10.0) * power
}

/// A number with up to two decimals.
fn number(value: f64) -> String {
    let digits = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_ends_at_a_round_number() {
        for (highest, end) in
            [(0.0, 1.0), (0.03, 0.05), (1.0, 1.0), (1.1, 2.0), (51.0, 100.0), (200.1, 500.0)]
        {
            assert!((scale(highest) - end).abs() < 1e-9, "{highest}: {}", scale(highest));
        }
        assert!((scale(f64::NAN) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.004, "0"),
            (0.25, "0.25"),
            (25.0, "25"),
            (12.34, "12.3"),
            (1e4, "10000"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn missing_value_interrupts_the_line() {
        let points = vec![
            (900.0, Some(7.0)),
            (600.0, Some(0.0)),
            (300.0, Some(10.0)),
            (200.0, None),
            (0.0, Some(5.0)),
        ];
        let line = Line { name: "p<99", class: "first", points };
        let drawing = plot("a", "Time", "ms", &[line]).into_string();
        assert!(drawing.contains(r#"d="M64.0 188.0L346.0 12.0""#), "{drawing}");
        assert!(drawing.contains(r#"cx="628.0" cy="100.0""#), "{drawing}");
        assert!(drawing.contains("p&lt;99: last 5, highest 10<"), "{drawing}");
    }

    #[test]
    fn empty_plot_has_its_axes() {
        let line = Line { name: "requests", class: "first", points: Vec::new() };
        let drawing = plot("a", "Requests", "per second", &[line]).into_string();
        assert!(drawing.contains("requests: last no value, highest no value"), "{drawing}");
        assert!(drawing.contains("10 min ago") && !drawing.contains("NaN"), "{drawing}");
    }
}
