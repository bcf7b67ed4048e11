//! The samples over time, as SVG.

use super::{
    histogram::Summary,
    report::{Outcome, SPACE_AMPLIFICATION_MAX},
    sample::Sample,
};
use std::fmt::Write as _;

/// Pixels.
const WIDTH: f64 = 900.0;
const PANEL_HEIGHT: f64 = 170.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
/// Maximum points of a line.
const POINTS_MAX: usize = 800;

struct Line {
    name: &'static str,
    colour: &'static str,
    values: Vec<f64>,
}

struct Panel {
    title: &'static str,
    is_logarithmic: bool,
    /// Drawn as a dashed line.
    bar: Option<f64>,
    lines: Vec<Line>,
}

pub fn draw(outcome: &Outcome<'_>) -> String {
    let panels = panels(outcome);
    let height = TOP + PANEL_HEIGHT * panels.len() as f64;
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"22\" font-size=\"14\">\
         {} seconds at {:.0} operations/s, 80 % of the highest sustained rate; dashed: bars</text>\n",
        outcome.samples.len(),
        outcome.target_rate
    );
    for (index, panel) in panels.iter().enumerate() {
        push_panel(&mut svg, panel, TOP + PANEL_HEIGHT * index as f64 + 18.0);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panels(outcome: &Outcome<'_>) -> Vec<Panel> {
    let line = |name, colour, pick: &dyn Fn(&Sample) -> f64| Line {
        name,
        colour,
        values: outcome.samples.iter().map(pick).collect(),
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let latencies = |name: &'static str, pick: fn(&Sample) -> &Summary, bar| Panel {
        title: name,
        is_logarithmic: true,
        bar,
        lines: vec![
            line("p50", "#588157", &|sample| pick(sample).p50_us),
            line("p99", "#1b6ca8", &|sample| pick(sample).p99_us),
            line("p99.9", "#9c6ade", &|sample| pick(sample).p999_us),
            line("max", "#c8553d", &|sample| pick(sample).max_us),
        ],
    };
    let linear = |title, bar, lines| Panel { title, is_logarithmic: false, bar, lines };
    vec![
        linear(
            "operations a second",
            None,
            vec![line("done", "#1b6ca8", &|sample| sample.operations as f64 / sample.seconds)],
        ),
        latencies("writes from the due time, µs (bar: p99.9)", |sample| &sample.writes, Some(5000.0)),
        latencies("reads from the due time, µs", |sample| &sample.reads, None),
        linear(
            "memory, MiB (bar: budget)",
            Some(outcome.budget_bytes() / f64::from(1 << 20)),
            vec![
                line("of the process", "#1b6ca8", &|sample| mib(sample.memory_bytes)),
                line("counted by the database", "#588157", &|sample| mib(sample.memory_counted_bytes)),
            ],
        ),
        linear(
            "space amplification",
            Some(SPACE_AMPLIFICATION_MAX),
            vec![line("all files", "#1b6ca8", &Sample::space_amplification)],
        ),
        linear(
            "MiB a second",
            None,
            vec![
                line("written", "#c8553d", &|sample| mib(sample.written_bytes) / sample.seconds),
                line("user's", "#588157", &|sample| mib(sample.user_bytes) / sample.seconds),
            ],
        ),
    ]
}

fn push_panel(svg: &mut String, panel: &Panel, top: f64) {
    let height = PANEL_HEIGHT - 40.0;
    let all = || panel.lines.iter().flat_map(|line| &line.values).chain(&panel.bar).copied();
    let high = all().fold(f64::MIN_POSITIVE, f64::max) * 1.05;
    let low = if panel.is_logarithmic { all().filter(|v| *v > 0.0).fold(high / 10.0, f64::min) / 1.05 } else { 0.0 };
    let y_of = |value: f64| {
        let place = match panel.is_logarithmic {
            true => (value.max(low) / low).ln() / (high / low).ln(),
            false => value / high,
        };
        top + height * (1.0 - place)
    };
    let right = WIDTH - RIGHT;
    let legend: Vec<String> =
        panel.lines.iter().map(|line| format!("<tspan fill=\"{}\">{}</tspan>", line.colour, line.name)).collect();
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{:.1}\">{}: {}</text>\n\
         <rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"none\" stroke=\"#bbb\"/>",
        top - 5.0,
        panel.title,
        legend.join(", "),
        right - LEFT
    );
    for tick in [low, if panel.is_logarithmic { (low * high).sqrt() } else { high / 2.0 }, high] {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 5.0,
            y_of(tick) + 4.0,
            shown(tick)
        );
    }
    for line in &panel.lines {
        let step = line.values.len().div_ceil(POINTS_MAX).max(1);
        let chunks = line.values.chunks(step).enumerate();
        let count = line.values.len().div_ceil(step).max(2) as f64;
        let points: Vec<String> = chunks
            .map(|(index, values)| {
                let x = LEFT + (right - LEFT) * index as f64 / (count - 1.0);
                format!("{x:.1},{:.1}", y_of(values.iter().copied().fold(0.0, f64::max)))
            })
            .collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"/>", points.join(" "), line.colour);
    }
    if let Some(bar) = panel.bar {
        let y = y_of(bar);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"black\" stroke-dasharray=\"6 4\"/>"
        );
    }
}

fn shown(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.1} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v if v >= 10.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}
