//! The table of results and aims.

use std::fmt;

use serde::Serialize;

/// The aim of a result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Aim {
    /// At most this number.
    AtMost(f64),
    /// At least this number.
    AtLeast(f64),
    /// At most this number, which follows from counts of the same run.
    Bound(f64, String),
    /// An aim without a number.
    Words(String),
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Figure {
    /// A measured or counted number.
    Found(f64),
    /// Not measured, with the reason.
    Missing(String),
}

/// A result with its aim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    /// The name of the measurement.
    pub(super) what: String,
    pub(super) aim: Aim,
    /// The result.
    pub(super) figure: Figure,
    /// The origin of the result.
    pub(super) detail: String,
}

impl Row {
    /// Creates a row with a result.
    pub(super) fn found(
        what: impl Into<String>,
        aim: Aim,
        figure: f64,
        detail: impl Into<String>,
    ) -> Self {
        let figure = match figure.is_finite() {
            true => Figure::Found(figure),
            false => Figure::Missing("nothing to compare with".to_owned()),
        };
        Self { what: what.into(), aim, figure, detail: detail.into() }
    }

    /// Creates a row without a result, with the reason.
    pub(super) fn missing(what: impl Into<String>, aim: Aim, why: impl Into<String>) -> Self {
        Self { what: what.into(), aim, figure: Figure::Missing(why.into()), detail: String::new() }
    }

    /// Whether the result meets the aim, if both are known.
    pub(super) fn holds(&self) -> Option<bool> {
        let Figure::Found(figure) = self.figure else { return None };
        // Counts are exact. The tolerance covers rounding of the division.
        const HAIR: f64 = 1e-9;
        match self.aim {
            Aim::AtMost(most) | Aim::Bound(most, _) => Some(figure <= most + HAIR),
            Aim::AtLeast(least) => Some(figure >= least - HAIR),
            Aim::Words(_) => None,
        }
    }

    /// Returns the result as a share of its aim.
    pub(super) fn of_aim(&self) -> Option<f64> {
        let Figure::Found(figure) = self.figure else { return None };
        match self.aim {
            Aim::AtMost(aim) | Aim::AtLeast(aim) | Aim::Bound(aim, _) if aim > 0.0 => {
                Some(figure / aim)
            }
            _ => None,
        }
    }

    fn cells(&self) -> [String; 6] {
        let holds = match self.holds() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "",
        };
        let (figure, detail) = match &self.figure {
            Figure::Found(figure) => (number(*figure), &self.detail),
            Figure::Missing(why) => ("not measured".to_owned(), why),
        };
        let of_aim = self.of_aim().map(number).unwrap_or_default();
        [self.what.clone(), self.aim.to_string(), figure, of_aim, holds.to_owned(), detail.clone()]
    }
}

const HEAD: [&str; 6] = ["what", "aim", "figure", "of the aim", "reached", "from"];

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "at most {}", number(*most)),
            Self::AtLeast(least) => write!(f, "at least {}", number(*least)),
            Self::Bound(most, why) => write!(f, "at most {} ({why})", number(*most)),
            Self::Words(words) => f.write_str(words),
        }
    }
}

/// Formats a number with three significant digits.
///
/// All digits before the point are kept.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        _ if value.fract() == 0.0 || size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 0.1 => 2,
        _ => 3,
    };
    let text = format!("{:.digits$}", size);
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign =
        if value < 0.0 && text.contains(|digit| ('1'..='9').contains(&digit)) { "-" } else { "" };
    format!("{sign}{grouped}{rest}")
}

/// Formats rows for a terminal: aligned, except the last column.
pub(super) fn plain(rows: &[Row]) -> String {
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|at| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or_default())
        .collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            row.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// Formats rows as a Markdown table.
pub(super) fn markdown(rows: &[Row]) -> String {
    let lines: Vec<Vec<String>> = rows.iter().map(|row| row.cells().to_vec()).collect();
    grid(&HEAD, &lines)
}

/// Formats any Markdown table.
pub(super) fn grid(head: &[&str], lines: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for line in lines {
        let cells: Vec<String> = line.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let shown = [0.0, 2.0, 0.0123, 0.25, 1.4, 12.34, 123.4, 20_600.0, -1_234.5, -0.0001];
        let expected =
            ["0", "2", "0.012", "0.25", "1.40", "12.3", "123", "20,600", "-1,234", "0.000"];
        assert_eq!(shown.map(number), expected.map(str::to_owned));
    }

    #[test]
    fn row_states_whether_its_aim_is_met() {
        let row = |aim, figure| Row::found("x", aim, figure, "");
        assert_eq!(row(Aim::AtMost(1.4), 1.4).holds(), Some(true));
        assert_eq!(row(Aim::AtMost(1.4), 1.5).holds(), Some(false));
        assert_eq!(row(Aim::AtLeast(2.0), 1.0).of_aim(), Some(0.5));
        assert_eq!(row(Aim::Words("bounded".into()), 3.0).holds(), None);
        assert_eq!(row(Aim::AtLeast(2.0), f64::INFINITY).holds(), None);
        assert_eq!(Row::missing("x", Aim::AtMost(1.0), "no server").holds(), None);
    }

    #[test]
    fn missing_result_states_its_reason() {
        let rows = [
            Row::found("latency", Aim::AtMost(1.4), 1.1, "3.0 ms | 2.7 ms"),
            Row::missing("memory", Aim::Words("bounded".into()), "no /proc"),
        ];
        let text = markdown(&rows);
        assert!(
            text.contains("| latency | at most 1.40 | 1.10 | 0.79 | yes | 3.0 ms \\| 2.7 ms |"),
            "{text}"
        );
        assert!(text.contains("| memory | bounded | not measured |  |  | no /proc |"), "{text}");
        let text = plain(&rows);
        assert!(text.lines().count() == 3 && text.starts_with("what     aim"), "{text}");
    }
}
