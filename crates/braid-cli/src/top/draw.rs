//! Draws a frame on a terminal of any size.
//!
//! The sections fill one column, or two from [`WIDE`] columns on. Lines that do not fit are reached
//! by scrolling. Alarms are wrapped, and have the whole width unless they need half of the height.

use std::collections::VecDeque;

use ratatui::{
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::Line as Drawn,
    widgets::{Paragraph, Sparkline},
};

use super::{
    frame::Frame,
    sections::{ALARMS, Line, Section, headline, sections},
};

/// Minimum width, in characters, for two columns of sections.
const WIDE: u16 = 100;

/// Height in lines from which the commits are drawn over time.
const TALL: u16 = 16;

const HISTORY_LINES: u16 = 3;

#[derive(Debug, Default)]
pub struct Screen {
    pub frame: Option<Frame>,
    /// Commits per second of the last frames, oldest first.
    pub history: VecDeque<u64>,
    pub is_paused: bool,
    pub error: Option<String>,
    /// First line shown of each column.
    pub scroll: u16,
}

pub fn draw(screen: &Screen, to: &mut ratatui::Frame<'_>) {
    let area = to.area();
    let history_lines = if area.height >= TALL { HISTORY_LINES } else { 0 };
    let parts = [Constraint::Length(1), Constraint::Length(history_lines), Constraint::Min(0), Constraint::Length(1)];
    let [head, history, body, foot] = Layout::vertical(parts).areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let Some(frame) = &screen.frame else {
        to.render_widget(Paragraph::new("reading..."), head);
        to.render_widget(Paragraph::new(footer(screen)), foot);
        return;
    };
    to.render_widget(Paragraph::new(headline(frame)).style(bold), head);
    let newest = screen.history.len().saturating_sub(usize::from(history.width));
    let shown: Vec<u64> = screen.history.iter().skip(newest).copied().collect();
    to.render_widget(Sparkline::default().data(&shown).style(Style::new().fg(Color::Cyan)), history);
    let (alarms, mut sections): (Vec<Section>, Vec<Section>) =
        sections(frame).into_iter().partition(|section| section.title == ALARMS);
    let is_wide = area.width >= WIDE;
    let wide_alarms: Vec<Section> = alarms.iter().map(|section| wrapped(section, area.width)).collect();
    let mut pinned = lines_of(&wide_alarms);
    if pinned.len() > usize::from(body.height / 2) {
        let width = if is_wide { area.width / 2 } else { area.width };
        sections.splice(..0, alarms.iter().map(|section| wrapped(section, width)));
        pinned.clear();
    }
    let pinned_lines = u16::try_from(pinned.len()).unwrap_or(0);
    let [top, body] = Layout::vertical([Constraint::Length(pinned_lines), Constraint::Min(0)]).areas(body);
    to.render_widget(Paragraph::new(pinned), top);
    let columns: Vec<Vec<Drawn<'_>>> = if is_wide { halves(&sections) } else { vec![lines_of(&sections)] };
    let areas = Layout::horizontal(columns.iter().map(|_| Constraint::Fill(1))).split(body);
    for (lines, area) in columns.into_iter().zip(areas.iter()) {
        draw_column(lines, screen.scroll, *area, to);
    }
    let style =
        if screen.error.is_some() { Style::new().fg(Color::Red) } else { Style::new().add_modifier(Modifier::DIM) };
    to.render_widget(Paragraph::new(footer(screen)).style(style), foot);
}

fn draw_column(lines: Vec<Drawn<'_>>, scroll: u16, area: Rect, to: &mut ratatui::Frame<'_>) {
    let hidden = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_sub(area.height);
    to.render_widget(Paragraph::new(lines).scroll((scroll.min(hidden), 0)), area);
}

fn footer(screen: &Screen) -> String {
    match (&screen.error, screen.is_paused) {
        (Some(error), _) => error.clone(),
        (None, true) => "paused: p continues, q quits".to_owned(),
        (None, false) => "q quits, p pauses, up and down scroll".to_owned(),
    }
}

/// Breaks lines between words. The next lines are indented.
fn wrapped(section: &Section, width: u16) -> Section {
    let mut lines: Vec<Line> = Vec::new();
    for line in &section.lines {
        let mut text = String::new();
        for word in line.text.split(' ') {
            if !text.trim().is_empty() && text.chars().count() + word.chars().count() >= usize::from(width) {
                lines.push(Line { text: std::mem::replace(&mut text, " ".to_owned()), is_alarm: line.is_alarm });
            }
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(word);
        }
        lines.push(Line { text, is_alarm: line.is_alarm });
    }
    Section { title: section.title, lines }
}

fn lines_of(sections: &[Section]) -> Vec<Drawn<'static>> {
    sections.iter().flat_map(section_lines).collect()
}

/// Divides the sections into columns of about the same height, in order.
fn halves(sections: &[Section]) -> Vec<Vec<Drawn<'static>>> {
    let height = |section: &Section| section.lines.len() + 1;
    let all: usize = sections.iter().map(height).sum();
    let mut left = 0;
    let count = sections.iter().take_while(|section| {
        left += height(section);
        left - height(section) / 2 <= all / 2
    });
    let (first, second) = sections.split_at(count.count());
    vec![lines_of(first), lines_of(second)]
}

fn section_lines(section: &Section) -> Vec<Drawn<'static>> {
    let title = Drawn::styled(section.title, Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED));
    let line = |line: &Line| match line.is_alarm {
        true => Drawn::styled(line.text.clone(), Style::new().fg(Color::Red)),
        false => Drawn::raw(line.text.clone()),
    };
    std::iter::once(title).chain(section.lines.iter().map(line)).collect()
}
