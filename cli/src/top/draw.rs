//! Draws the screen. Names and other bytes from clients are escaped.

use super::Snapshot;
use super::rows::{Sort, per_second};
use super::screen::{Screen, View};
use crate::monitor::{Histogram, bytes};
use crate::text::text;
use crate::time::readable;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};
use std::time::Duration;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const HEAD: Style = Style::new().add_modifier(Modifier::REVERSED);
const SELECTED: Style = Style::new().fg(Color::Black).bg(Color::Cyan);
const ALARM: Style = Style::new().fg(Color::White).bg(Color::Red);

pub(super) fn draw(screen: &Screen, frame: &mut Frame<'_>) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(5), Constraint::Min(1), Constraint::Length(1)])
            .areas(frame.area());
    if let Some(now) = &screen.now {
        frame.render_widget(Paragraph::new(summary(screen, now)), head);
        match &screen.view {
            View::Locks => locks(screen, frame, body),
            View::Detail(key) => detail(key, now, frame, body),
            View::Sessions => sessions(now, frame, body),
        }
    }
    frame.render_widget(Paragraph::new(foot_line(screen)), foot);
}

/// Returns the lines at the top: the server, rates, waiters and durations.
fn summary<'a>(screen: &'a Screen, now: &'a Snapshot) -> Vec<Line<'a>> {
    let number = |name: &str| now.figures.number(&format!("kvlock_{name}")).unwrap_or_default();
    let rate = |name: &str| {
        let Some(before) = &screen.before else { return "–".to_owned() };
        let name = format!("kvlock_{name}");
        let value = |snapshot: &Snapshot| snapshot.figures.number(&name).unwrap_or_default();
        let count = value(now).saturating_sub(value(before));
        short(per_second(count, now.at.duration_since(before.at)))
    };
    let (server, version) = now.figures.server();
    let role = now.figures.text("role");
    let up = now.figures.number("uptime_in_seconds").unwrap_or_default();
    let first = vec![
        Span::styled("kvlock top", BOLD),
        format!("  {}  {server} {version} {role}", screen.name).into(),
        Span::styled(format!("  up {}", readable(Duration::from_secs(up))), DIM),
    ];
    let rates = format!(
        "a second   grants {}  hand-offs {}  by expiry {}  refused {}  timeouts {}",
        rate("granted"),
        rate("handed_off"),
        rate("handed_off_by_expiry"),
        rate("refused"),
        rate("timeouts"),
    );
    let waiting = format!(
        "now        waiters {} (peak {}) at {} locks  sessions {} ({} away)",
        number("waiters"),
        number("waiters_peak"),
        number("waiting_keys"),
        number("sessions"),
        number("sessions_away"),
    );
    let times = format!(
        "time       waited {}  held {}",
        percentiles(screen.before.as_ref(), now, "kvlock_wait_time_ms"),
        percentiles(screen.before.as_ref(), now, "kvlock_hold_time_ms"),
    );
    let trouble = match (&screen.trouble, screen.paused) {
        (Some(trouble), _) => Line::styled(text(trouble.as_bytes()), ALARM),
        (None, true) => Line::styled("paused: p resumes", ALARM),
        (None, false) => Line::default(),
    };
    vec![first.into(), rates.into(), waiting.into(), times.into(), trouble]
}

/// Formats percentiles of the durations that were recorded after the previous snapshot, or of all recorded
/// durations if there is no previous snapshot.
fn percentiles(before: Option<&Snapshot>, now: &Snapshot, name: &str) -> String {
    let Some(all) = now.figures.histogram(name) else { return "unknown".to_owned() };
    let before = before.and_then(|before| before.figures.histogram(name)).unwrap_or_default();
    let shown = |histogram: &Histogram, percent| match histogram.percentile(percent) {
        None => "–".to_owned(),
        Some(u64::MAX) => ">35m".to_owned(),
        Some(end) => format!("≤{}", brief(end)),
    };
    let new = all.since(&before);
    format!("p50 {} p99 {}", shown(&new, 50), shown(&new, 99))
}

fn locks(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let by =
        |sort, name| if screen.sort == sort { format!("{name}▾") } else { format!("{name} ") };
    let head = [
        (Sort::Name, "LOCK"),
        (Sort::Waiters, "WAITERS"),
        (Sort::Longest, "LONGEST"),
        (Sort::HandOffs, "HAND/s"),
        (Sort::Waited, "WAITED"),
    ];
    let mut head: Vec<String> = head.into_iter().map(|(sort, name)| by(sort, name)).collect();
    head.extend(["HELD".to_owned(), "OWNER".to_owned()]);
    let rows = screen.rows.iter().map(|row| {
        let key = text(&row.key) + if row.is_semaphore { " (permits)" } else { "" };
        let mut owner = if row.owner.is_empty() { "–".to_owned() } else { text(&row.owner) };
        if !row.first_waits_for.is_empty() {
            owner += &format!(" (first waits for {})", text(&row.first_waits_for));
        }
        let wait = if row.waiters > 0 { brief(row.longest_ms) } else { "–".to_owned() };
        let held = row.held_ms.map_or_else(|| "–".to_owned(), brief);
        let waited = brief(row.waited_ms);
        let cells = [key, row.waiters.to_string(), wait, short(row.rate), waited, held, owner];
        Row::new(cells.map(Cell::from))
    });
    let widths = [
        Constraint::Fill(3),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Fill(2),
    ];
    let table =
        Table::new(rows, widths).header(Row::new(head).style(HEAD)).row_highlight_style(SELECTED);
    let selected = (!screen.rows.is_empty()).then_some(screen.selected);
    let mut state = TableState::default().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
    if screen.rows.is_empty() {
        let why = if screen.filter.is_empty() { "no lock has waiters" } else { "no such lock" };
        let below = Rect { y: area.y.saturating_add(1), height: area.height.min(1), ..area };
        frame.render_widget(Paragraph::new(why).style(DIM), below.intersection(area));
    }
}

fn detail(key: &[u8], now: &Snapshot, frame: &mut Frame<'_>, area: Rect) {
    let mut lines = vec![Line::styled(text(key), BOLD)];
    let cost = now.profile.iter().flatten().find(|cost| cost.bytes("key") == key);
    let info = now.detail_of(key);
    let or_none = |number: Option<u64>| number.map_or_else(|| "–".to_owned(), |n| n.to_string());
    if let Some(info) = info {
        let owner = info.bytes("owner");
        let owner = if owner.is_empty() { "–".to_owned() } else { text(&owner) };
        let lease = info.number("lease-left").map_or_else(|| "–".to_owned(), brief);
        let (holds, token) = (or_none(info.number("holds")), or_none(info.number("token")));
        let state = match info.text("mode").as_str() {
            "shared" => format!("shared by {}", or_none(info.number("holders"))),
            _ => match info.text("state").as_str() {
                "" => "not a lock, or this user may not see it".to_owned(),
                state => state.to_owned(),
            },
        };
        lines.push(format!("state {state}   owner {owner}").into());
        lines.push(format!("token {token}   holds {holds}   lease left {lease}").into());
    }
    if let Some(cost) = cost {
        let of = |name| cost.number(name).unwrap_or_default();
        let (waited, longest, held) =
            (brief(of("waited")), brief(of("longest-wait")), brief(of("held")));
        let hand_offs = of("hand-offs");
        lines.push(
            format!("{hand_offs} hand-offs   waited {waited} in all, {longest} at most   held {held} in all")
                .into(),
        );
    }
    lines.push(Line::default());
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let [above, below] =
        Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(lines), above);
    let queue = info.map(|info| info.rows("queue")).unwrap_or_default();
    let rows = queue.iter().enumerate().map(|(at, waiter)| {
        let word = |at: usize| waiter.get(at).map(bytes).unwrap_or_default();
        let waited =
            String::from_utf8_lossy(&word(1)).parse().map_or_else(|_| "–".to_owned(), brief);
        let mut owner = text(&word(0));
        // The last two elements exist only if the waiter waits for several locks.
        if !word(4).is_empty() {
            owner += &format!(" (waits for {})", text(&word(4)));
        }
        Row::new([at.saturating_add(1).to_string(), waited, text(&word(2)), owner])
    });
    let widths =
        [Constraint::Length(6), Constraint::Length(8), Constraint::Length(18), Constraint::Fill(1)];
    let head = Row::new(["PLACE", "WAITED", "CLIENT/SESSION", "OWNER"]).style(HEAD);
    frame.render_widget(Table::new(rows, widths).header(head), below);
}

fn sessions(now: &Snapshot, frame: &mut Frame<'_>, area: Rect) {
    let Some(sessions) = &now.sessions else {
        let why = "this server has no SESSION.LIST, or this user may not use it";
        return frame.render_widget(Paragraph::new(why), area);
    };
    let rows = sessions.iter().map(|session| {
        let number = |name| session.number(name).map_or_else(|| "–".to_owned(), |n| n.to_string());
        let age = session.number("age").map_or_else(|| "–".to_owned(), brief);
        let (id, user) = (text(&session.bytes("id")), text(&session.bytes("user")));
        Row::new([
            id,
            session.text("state"),
            number("waits"),
            number("outcomes"),
            age,
            number("reader"),
            user,
        ])
    });
    let widths =
        [9, 8, 8, 9, 8, 8].map(Constraint::Length).into_iter().chain([Constraint::Fill(1)]);
    let head = ["SESSION", "STATE", "WAITS", "OUTCOMES", "AGE", "READER", "USER"];
    frame.render_widget(Table::new(rows, widths).header(Row::new(head).style(HEAD)), area);
}

fn foot_line(screen: &Screen) -> Line<'_> {
    if screen.typing || !screen.filter.is_empty() {
        let cursor = if screen.typing { "█" } else { "   (Esc shows all)" };
        return Line::from(format!("/{}{cursor}", text_or_nothing(&screen.filter)));
    }
    let keys = match screen.view {
        View::Locks => "q quit  w l h t k sort  / filter  Enter detail  s sessions  p pause",
        View::Detail(_) | View::Sessions => "q quit  Esc back  s sessions  p pause",
    };
    Line::styled(keys, DIM)
}

fn text_or_nothing(typed: &str) -> String {
    if typed.is_empty() { String::new() } else { text(typed.as_bytes()) }
}

/// Formats a duration in a few characters.
fn brief(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..60_000 => format!("{}.{}s", millis / 1000, millis % 1000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", millis / 60_000, millis / 1000 % 60),
        3_600_000..360_000_000 => format!("{}h{:02}m", millis / 3_600_000, millis / 60_000 % 60),
        _ => format!("{}d", millis / 86_400_000),
    }
}

/// Formats a rate in a few characters.
fn short(rate: f64) -> String {
    if rate >= 9_999.5 {
        format!("{:.0}k", rate / 1000.0)
    } else if rate >= 9.95 || rate == 0.0 {
        format!("{rate:.0}")
    } else {
        format!("{rate:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Figures;

    #[test]
    fn durations_and_rates_are_short() {
        let times = [999, 1_050, 61_000, 3_660_000, 400_000_000].map(brief);
        assert_eq!(times, ["999ms", "1.0s", "1m01s", "1h01m", "4d"]);
        assert_eq!([0.0, 0.25, 12.34, 12_345.0].map(short), ["0", "0.2", "12", "12k"]);
    }

    #[test]
    fn percentiles_cover_the_last_interval() {
        let at = |histogram: &str| Snapshot {
            at: std::time::Instant::now(),
            figures: Figures::read(&format!("kvlock_wait_time_ms:{histogram}\r\n")),
            waited_for: None,
            profile: None,
            sessions: None,
            detail: None,
        };
        let (before, now) = (at("count=2,sum_us=2000,1=2"), at("count=3,sum_us=9000,1=2,4=1"));
        let shown = |before, now| percentiles(before, now, "kvlock_wait_time_ms");
        assert_eq!(shown(None, &before), "p50 ≤1ms p99 ≤1ms");
        assert_eq!(shown(Some(&before), &now), "p50 ≤4ms p99 ≤4ms");
        // No waiter was granted a lock in the interval.
        assert_eq!(shown(Some(&now), &now), "p50 – p99 –");
    }
}
