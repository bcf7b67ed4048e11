//! Latency against load: the results of `latency_load` as a table and as SVG.

use super::summary::Summaries;
use crate::workloads::{LOAD_SHARES, load_measure_name};
use std::fmt::Write as _;

/// Pixels.
const PANEL_WIDTH: f64 = 440.0;
const PANEL_HEIGHT: f64 = 230.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 60.0;
const FIGURES: [(&str, &str); 3] = [("p50_us", "p50"), ("p99_us", "p99"), ("p999_us", "p99.9")];
const KINDS: [&str; 2] = ["writes", "reads"];
const COLOURS: [&str; 8] = ["#1b6ca8", "#e9a23b", "#588157", "#8d6cab", "#6b4f3a", "#c8553d", "#3aa6a6", "#777777"];

/// Offered operations per second, and microseconds.
type Points = Vec<(f64, f64)>;

pub fn has(measure: &str) -> bool {
    LOAD_SHARES.into_iter().any(|share| KINDS.into_iter().any(|kind| load_measure_name(share, kind) == measure))
}

pub fn table(summaries: &Summaries) -> String {
    let mut text = String::from(
        "| engine | share | offered/s | done/s | writes p50 | p99 | p99.9 | reads p50 | p99 | p99.9 |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    let first = summaries.by_measure.get(&load_measure_name(LOAD_SHARES[0], KINDS[0]));
    for engine in first.into_iter().flat_map(|engines| engines.keys()) {
        for share in LOAD_SHARES {
            let figure = |kind, name| summaries.figure(&load_measure_name(share, kind), engine, name);
            let show = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
            let done = figure("writes", "rate").zip(figure("reads", "rate")).map(|(writes, reads)| writes + reads);
            let mut cells = vec![show(figure("writes", "offered")), show(done)];
            for kind in KINDS {
                cells.extend(FIGURES.map(|(name, _)| show(figure(kind, name))));
            }
            let _ = writeln!(text, "| {engine} | {share} % | {} |", cells.join(" | "));
        }
    }
    text
}

pub fn draw(summaries: &Summaries, n: u64) -> Option<String> {
    let first = summaries.by_measure.get(&load_measure_name(LOAD_SHARES[0], KINDS[0]))?;
    let engines: Vec<(&str, &str)> = first.keys().map(String::as_str).zip(COLOURS.into_iter().cycle()).collect();
    let (width, height) = (2.0 * PANEL_WIDTH, TOP + FIGURES.len() as f64 * PANEL_HEIGHT);
    let legend: Vec<String> =
        engines.iter().map(|(engine, colour)| format!("<tspan fill=\"{colour}\">{engine}</tspan>")).collect();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">Latency in µs from the due time, against offered operations per second (N = {n})</text>\n\
         <text x=\"{LEFT}\" y=\"38\">at {} % of each engine's own maximum rate: {}</text>\n",
        LOAD_SHARES.map(|share| share.to_string()).join(", "),
        legend.join(", ")
    );
    for (row, (figure, name)) in FIGURES.into_iter().enumerate() {
        for (column, kind) in KINDS.into_iter().enumerate() {
            let lines: Vec<(&str, Points)> =
                engines.iter().map(|(engine, colour)| (*colour, points(summaries, engine, kind, figure))).collect();
            let place = (PANEL_WIDTH * column as f64 + LEFT, TOP + PANEL_HEIGHT * row as f64 + 16.0);
            push_panel(&mut svg, &format!("{name} of {kind}"), place, &lines);
        }
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn points(summaries: &Summaries, engine: &str, kind: &str, figure: &str) -> Points {
    let point = |share: u64| {
        let measure = load_measure_name(share, kind);
        Some((summaries.figure(&measure, engine, "offered")?, summaries.figure(&measure, engine, figure)?))
    };
    LOAD_SHARES.into_iter().filter_map(point).collect()
}

/// Both axes are logarithmic.
fn push_panel(svg: &mut String, title: &str, (left, top): (f64, f64), lines: &[(&str, Points)]) {
    let (width, height) = (PANEL_WIDTH - LEFT - 20.0, PANEL_HEIGHT - 50.0);
    let bounds = |pick: fn(&(f64, f64)) -> f64| {
        let all = lines.iter().flat_map(|(_, points)| points).map(pick).filter(|value| *value > 0.0);
        let (low, high) = all.fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), v| (low.min(v), high.max(v)));
        if low > high { (1.0, 10.0) } else { (low / 1.2, high * 1.2) }
    };
    let ((x_low, x_high), (y_low, y_high)) = (bounds(|point| point.0), bounds(|point| point.1));
    let place = |value: f64, low: f64, high: f64| (value.max(low) / low).ln() / (high / low).ln();
    let x_of = |rate: f64| left + width * place(rate, x_low, x_high);
    let y_of = |latency: f64| top + height * (1.0 - place(latency, y_low, y_high));
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"{:.1}\">{title}</text>\n\
         <rect x=\"{left}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"none\" stroke=\"#bbb\"/>",
        top - 4.0
    );
    for tick in (0..10).flat_map(|exponent| [1.0, 2.0, 5.0].map(|first| first * 10f64.powi(exponent))) {
        if (x_low..x_high).contains(&tick) {
            let (x, bottom) = (x_of(tick), top + height);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
                bottom + 14.0
            );
        }
        let is_power = tick.log10().fract() < 1e-9;
        if (y_low..y_high).contains(&tick) && is_power {
            let y = y_of(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{left}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
                left + width,
                left - 5.0,
                y + 4.0
            );
        }
    }
    for (colour, points) in lines {
        let path: Vec<String> =
            points.iter().map(|(rate, us)| format!("{:.1},{:.1}", x_of(*rate), y_of(*us))).collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>", path.join(" "));
        for (rate, us) in points {
            let _ =
                writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>", x_of(*rate), y_of(*us));
        }
    }
}
