//! Hand-written SVG.

use super::{
    standing::{OURS, Standing},
    summary::Summaries,
};
use crate::bars::{Bound, Versus};
use std::fmt::Write as _;

/// Pixels.
const WIDTH: f64 = 900.0;
const ROW_HEIGHT: f64 = 20.0;
const LABEL_WIDTH: f64 = 270.0;
const MARGIN: f64 = 40.0;
/// Ratios beyond this range end at the edge.
const RATIO_MIN: f64 = 0.1;
const RATIO_MAX: f64 = 20.0;

const SIZE_MEASURES: [&str; 6] =
    ["readrandom", "seek_next1", "seek_next50", "scan_all", "fillrandom_b100", "sync_cpu_1"];
const SIZE_ENGINES: [(&str, &str); 3] = [(OURS, "#1b6ca8"), ("rocksdb", "#c8553d"), ("lmdb", "#588157")];

/// Rows of natural iterators and owned values, with the ratio to LMDB that they should reach.
const ITERATORS: [(&str, f64); 7] = [
    ("readrandom", 2.8),
    ("seek_next1", 1.5),
    ("seek_next50", 1.7),
    ("prefix_scan", 2.0),
    ("scan_all", 3.5),
    ("ycsb_e", 1.8),
    ("ycsb_e_half", 1.8),
];

fn head(svg: &mut String, height: f64, title: &str) {
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-size=\"15\">{title}</text>\n"
    );
}

/// Longer is better: ratios that should be small are inverted.
pub fn ratios(standings: &[Standing], n: u64) -> String {
    let shown: Vec<&Standing> = standings.iter().filter(|s| s.bar.versus != Versus::Nobody).collect();
    let height = MARGIN + ROW_HEIGHT * (shown.len() as f64 + 2.0);
    let mut svg = String::new();
    head(&mut svg, height, &format!("Factor by which BraidDB beats the peer (N = {n}); the line is the bar to reach"));
    let span = WIDTH - LABEL_WIDTH - MARGIN;
    let x_of = |ratio: f64| {
        let place = (ratio.clamp(RATIO_MIN, RATIO_MAX) / RATIO_MIN).ln() / (RATIO_MAX / RATIO_MIN).ln();
        LABEL_WIDTH + place * span
    };
    for tick in [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0] {
        let (x, stroke) = (x_of(tick), if tick == 1.0 { "#444" } else { "#ddd" });
        let bottom = height - ROW_HEIGHT;
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{MARGIN}\" y2=\"{bottom:.1}\" stroke=\"{stroke}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
            bottom + 14.0
        );
    }
    for (index, standing) in shown.iter().enumerate() {
        let y = MARGIN + ROW_HEIGHT * index as f64;
        let bar = standing.bar;
        let turned = |value: f64| if matches!(bar.bound, Bound::AtMost(_)) { 1.0 / value } else { value };
        let peer = standing.peer.as_ref().map_or("-", |(engine, _)| engine);
        let what = if bar.figure == "rate" { String::new() } else { format!(" {}", bar.figure) };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}{what} / {peer}</text>",
            LABEL_WIDTH - 6.0,
            y + 14.0,
            bar.measure
        );
        if let Some(ratio) = standing.ratio {
            let (from, to) = (x_of(1.0), x_of(turned(ratio)));
            let fill = if bar.bound.is_met(ratio) { "#1b6ca8" } else { "#c8553d" };
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"12\" fill=\"{fill}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\">{:.2}</text>",
                from.min(to),
                y + 4.0,
                (to - from).abs().max(1.0),
                from.max(to) + 3.0,
                y + 14.0,
                turned(ratio)
            );
        }
        let x = x_of(turned(bar.bound.value()));
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"black\" stroke-width=\"2\"/>",
            y + 1.0,
            y + 19.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// The closure form and the iterator form of BraidDB, as ratios to LMDB.
pub fn iterators(summaries: &Summaries, n: u64) -> Option<String> {
    const FORMS: [(&str, &str, &str); 2] = [(OURS, "closure", "#9ec1dd"), ("braiddb-iter", "iterator", "#1b6ca8")];
    let rate = |measure: &str, engine: &str| summaries.figure(measure, engine, "rate");
    let ratio = |measure: &str, engine: &str| Some(rate(measure, engine)? / rate(measure, "lmdb")?);
    let shown: Vec<_> = ITERATORS.into_iter().filter(|(measure, _)| ratio(measure, "braiddb-iter").is_some()).collect();
    if shown.is_empty() {
        return None;
    }
    let row_height = 2.0 * ROW_HEIGHT;
    let height = MARGIN + row_height * shown.len() as f64 + 30.0;
    let mut svg = String::new();
    let legend: Vec<String> =
        FORMS.iter().map(|(_, form, colour)| format!("<tspan fill=\"{colour}\">{form}</tspan>")).collect();
    let title = format!("Rate of BraidDB to LMDB's (N = {n}): {}; the line is the bar to reach", legend.join(", "));
    head(&mut svg, height, &title);
    let all = shown.iter().flat_map(|(measure, _)| FORMS.map(|(engine, ..)| ratio(measure, engine).unwrap_or(0.0)));
    let ratio_max = all.fold(4.0_f64, f64::max).ceil();
    let x_of = |ratio: f64| LABEL_WIDTH + ratio / ratio_max * (WIDTH - LABEL_WIDTH - MARGIN);
    for tick in 0..=ratio_max as u32 {
        let (x, stroke) = (x_of(tick.into()), if tick == 1 { "#444" } else { "#ddd" });
        let bottom = height - 30.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{MARGIN}\" y2=\"{bottom:.1}\" stroke=\"{stroke}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
            bottom + 14.0
        );
    }
    for (index, (measure, bar)) in shown.into_iter().enumerate() {
        let y = MARGIN + row_height * index as f64;
        let (label_x, label_y) = (LABEL_WIDTH - 6.0, y + 24.0);
        let _ = writeln!(svg, "<text x=\"{label_x:.1}\" y=\"{label_y:.1}\" text-anchor=\"end\">{measure}</text>");
        for (place, (engine, _, colour)) in FORMS.into_iter().enumerate() {
            let Some(ratio) = ratio(measure, engine) else { continue };
            let top = y + 4.0 + 16.0 * place as f64;
            let _ = writeln!(
                svg,
                "<rect x=\"{LABEL_WIDTH:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\">{ratio:.2}</text>",
                x_of(ratio) - LABEL_WIDTH,
                x_of(ratio) + 4.0,
                top + 11.0
            );
        }
        let x = x_of(bar);
        let (from, to) = (y + 19.0, y + 35.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\" stroke=\"black\" stroke-width=\"2\"/>"
        );
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// Both axes are logarithmic.
pub fn sizes(all: &[(u64, Summaries)]) -> String {
    const PANEL_HEIGHT: f64 = 180.0;
    let height = MARGIN + PANEL_HEIGHT * SIZE_MEASURES.len() as f64;
    let mut svg = String::new();
    let legend: Vec<String> =
        SIZE_ENGINES.iter().map(|(engine, colour)| format!("<tspan fill=\"{colour}\">{engine}</tspan>")).collect();
    head(&mut svg, height, &format!("Time per operation in µs against N: {}", legend.join(", ")));
    for (index, measure) in SIZE_MEASURES.into_iter().enumerate() {
        let top = MARGIN + PANEL_HEIGHT * index as f64 + 10.0;
        let points = |engine: &str| -> Vec<(f64, f64)> {
            let point =
                |(n, summaries): &(u64, Summaries)| Some((*n as f64, 1e6 / summaries.figure(measure, engine, "rate")?));
            all.iter().filter_map(point).collect()
        };
        push_panel(&mut svg, measure, top, PANEL_HEIGHT - 50.0, &SIZE_ENGINES.map(|(e, colour)| (colour, points(e))));
    }
    svg.push_str("</svg>\n");
    svg
}

fn push_panel(svg: &mut String, title: &str, top: f64, height: f64, lines: &[(&str, Vec<(f64, f64)>)]) {
    let all = || lines.iter().flat_map(|(_, points)| points);
    let bounds = |pick: fn(&(f64, f64)) -> f64| {
        let (low, high) = all().map(pick).fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        (low / 1.2, high * 1.2)
    };
    if all().next().is_none() {
        return;
    }
    let ((x_low, x_high), (y_low, y_high)) = (bounds(|point| point.0), bounds(|point| point.1));
    let left = MARGIN + 110.0;
    let place = |value: f64, low: f64, high: f64| (value / low).ln() / (high / low).ln();
    let x_of = |n: f64| left + place(n, x_low, x_high) * (WIDTH - left - MARGIN);
    let y_of = |cost: f64| top + height * (1.0 - place(cost, y_low, y_high));
    let _ = writeln!(
        svg,
        "<rect x=\"{left}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"none\" stroke=\"#bbb\"/>\
         <text x=\"{MARGIN}\" y=\"{:.1}\">{title}</text>",
        WIDTH - left - MARGIN,
        top + height / 2.0
    );
    for (colour, points) in lines {
        let path: Vec<String> = points.iter().map(|(n, us)| format!("{:.1},{:.1}", x_of(*n), y_of(*us))).collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>", path.join(" "));
        for (n, us) in points {
            let (x, y) = (x_of(*n), y_of(*us));
            let shown = if *us < 1.0 { format!("{us:.3}") } else { format!("{us:.2}") };
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\" fill=\"{colour}\">{shown}</text>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"10\" text-anchor=\"middle\">{n:.0}</text>",
                x + 5.0,
                y - 4.0,
                top + height + 14.0
            );
        }
    }
}
