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

/// The values of the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Axis {
    /// Equal distances are equal differences, from 0 to the number.
    Linear(f64),
    /// Equal distances are equal ratios, between these powers of ten.
    Logarithmic(i32, i32),
}

impl Axis {
    /// An axis from 0 to a round number.
    ///
    /// The number is 1, 2 or 5 times a power of ten.
    pub(super) fn linear(lines: &[Line]) -> Self {
        let highest = lines.iter().flat_map(Line::values).fold(0.0, f64::max);
        if !highest.is_finite() || highest <= 0.0 {
            return Self::Linear(1.0);
        }
        let power = 10.0_f64.powf(highest.log10().floor());
        let step = [1.0, 2.0, 5.0].into_iter().find(|step| step * power >= highest);
        Self::Linear(step.unwrap_or(10.0) * power)
    }

    /// A logarithmic axis.
    ///
    /// A single long time does not hide the short ones.
    pub(super) fn logarithmic(lines: &[Line]) -> Self {
        let powers = || lines.iter().flat_map(Line::values).filter(|it| *it > 0.0).map(f64::log10);
        let lowest = powers().fold(f64::INFINITY, f64::min).floor().clamp(-3.0, 5.0);
        let highest = powers().fold(f64::NEG_INFINITY, f64::max).ceil().clamp(-2.0, 6.0);
        match powers().next() {
            // The bounds are small whole numbers.
            Some(_) => Self::Logarithmic(lowest as i32, (highest as i32).max(lowest as i32 + 1)),
            None => Self::Logarithmic(0, 1),
        }
    }

    /// The values with a label.
    fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear(top) => vec![0.0, top / 2.0, top],
            Self::Logarithmic(lowest, highest) => {
                (lowest..=highest).map(|power| 10.0_f64.powi(power)).collect()
            }
        }
    }

    /// The height of a value on the picture.
    fn y(self, value: f64) -> f64 {
        let share = match self {
            Self::Linear(top) => value / top,
            Self::Logarithmic(lowest, highest) => {
                let lowest = f64::from(lowest);
                (value.log10() - lowest) / (f64::from(highest) - lowest)
            }
        };
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// Draws lines over the last ten minutes. `id` is unique on the page.
pub(super) fn plot(id: &str, (title, unit): (&str, &str), axis: Axis, lines: &[Line]) -> Markup {
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
                    (axes(axis, unit))
                    @for line in lines { (drawn(line, axis)) }
                }
            }
        }
    }
}

fn axes(axis: Axis, unit: &str) -> Markup {
    let right = WIDTH - RIGHT;
    let floor = HEIGHT - BOTTOM;
    let middle = coordinate(f64::midpoint(TOP, floor));
    html! {
        g.axes {
            @for value in axis.ticks() {
                path.grid d={ "M" (LEFT) " " (coordinate(axis.y(value))) "H" (right) } {}
                text x=(LEFT - 8.0) y=(coordinate(axis.y(value) + 4.0)) text-anchor="end" {
                    (number(value))
                }
            }
            @for (ago, words) in TIMES {
                path.grid d={ "M" (coordinate(x(ago))) " " (floor) "v5" } {}
                @let anchor = match ago { 0.0 => "end", ago if ago == WINDOW.as_secs_f64() => "start", _ => "middle" };
                text x=(coordinate(x(ago))) y=(floor + 20.0) text-anchor=(anchor) { (words) }
            }
            text.unit x="14" y=(middle) text-anchor="middle"
                transform={ "rotate(-90 14 " (middle) ")" } { (unit) }
        }
    }
}

/// The line, and a dot for each value without a neighbour.
fn drawn(line: &Line, axis: Axis) -> Markup {
    let window = WINDOW.as_secs_f64();
    let mut path = String::new();
    let mut dots = Vec::new();
    let shown: Vec<(f64, Option<f64>)> =
        line.points.iter().filter(|(ago, _)| *ago <= window).copied().collect();
    for part in shown.split(|(_, value)| value.is_none()) {
        let at = part.iter().filter_map(|(ago, value)| Some((x(*ago), axis.y((*value)?))));
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

fn coordinate(value: f64) -> String {
    format!("{value:.1}")
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

    fn line(values: &[f64]) -> Line {
        let points = values.iter().map(|value| (0.0, Some(*value))).collect();
        Line { name: "p<99", class: "first", points }
    }

    #[test]
    fn axis_ends_at_a_round_number() {
        for (highest, end) in
            [(0.0, 1.0), (0.03, 0.05), (1.0, 1.0), (1.1, 2.0), (51.0, 100.0), (200.1, 500.0)]
        {
            let Axis::Linear(top) = Axis::linear(&[line(&[0.0, highest])]) else {
                panic!("linear")
            };
            assert!((top - end).abs() < 1e-9, "{highest}: {top}");
        }
        assert_eq!(Axis::linear(&[line(&[f64::INFINITY])]), Axis::Linear(1.0));
    }

    #[test]
    fn long_time_does_not_hide_short_ones() {
        for (values, lowest, highest) in [
            (&[2.0, 30.0, 7_000.0][..], 0, 4),
            (&[10.0], 1, 2),
            (&[0.0], 0, 1),
            (&[], 0, 1),
            (&[1e-30, 1e30], -3, 6),
        ] {
            let axis = Axis::logarithmic(&[line(values)]);
            assert_eq!(axis, Axis::Logarithmic(lowest, highest), "{values:?}");
        }
        let axis = Axis::Logarithmic(0, 2);
        assert_eq!([1.0, 10.0, 100.0].map(|value| axis.y(value)), [188.0, 100.0, 12.0]);
        assert_eq!([0.0, 1e9].map(|value| axis.y(value)), [188.0, 12.0]);
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
        let lines = [Line { name: "p<99", class: "first", points }];
        let drawing = plot("a", ("Time", "ms"), Axis::linear(&lines), &lines).into_string();
        assert!(drawing.contains(r#"d="M64.0 188.0L346.0 12.0""#), "{drawing}");
        assert!(drawing.contains(r#"cx="628.0" cy="100.0""#), "{drawing}");
        assert!(drawing.contains("p&lt;99: last 5, highest 10<"), "{drawing}");
    }

    #[test]
    fn empty_plot_has_its_axes() {
        let lines = [Line { name: "requests", class: "first", points: Vec::new() }];
        let axis = Axis::logarithmic(&lines);
        let drawing = plot("a", ("Requests", "per second"), axis, &lines).into_string();
        assert!(drawing.contains("requests: last no value, highest no value"), "{drawing}");
        assert!(drawing.contains("10 min ago") && !drawing.contains("NaN"), "{drawing}");
    }
}
