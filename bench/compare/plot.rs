//! Plots of the figures.

use crate::results::{Results, Spread};
use crate::table::number;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

type Drawn = Result<(), Box<dyn Error>>;

const OURS: RGBColor = RGBColor(196, 62, 28);
const THEIRS: RGBColor = RGBColor(70, 110, 160);
const FLOOR: RGBColor = RGBColor(160, 160, 160);
const INK: RGBColor = RGBColor(40, 40, 40);

/// One picture with a bar for each contender.
struct Bars {
    file: &'static str,
    title: &'static str,
    at: [&'static str; 3],
}

const BARS: &[Bars] = &[
    Bars {
        file: "cpu-depth-16.svg",
        title: "Server CPU of one acquire + release, us, depth 16",
        at: ["1", "depth 16", "server_cpu_us"],
    },
    Bars {
        file: "cpu-aof.svg",
        title: "The same with an append-only file, us",
        at: ["1", "depth 16, append-only file", "server_cpu_us"],
    },
    Bars {
        file: "cpu-64.svg",
        title: "Server CPU of one acquire + release, us, 64 tasks",
        at: ["1", "64 tasks", "server_cpu_us"],
    },
    Bars {
        file: "rate-64.svg",
        title: "Acquire + release per second, 64 tasks",
        at: ["1", "64 tasks", "cycles_per_s"],
    },
    Bars {
        file: "longest-wait.svg",
        title: "Longest wait, ms: 10 processes, 1 ms each",
        at: ["3", "10 processes, 1 ms", "longest_wait_ms"],
    },
    Bars {
        file: "late.svg",
        title: "Next owner after the end of a lease, late by us (p50)",
        at: ["5", "empty server", "late_p50_us"],
    },
    Bars {
        file: "others.svg",
        title: "Two plain commands of others beside 100 contenders, us (p99)",
        at: ["8", "100 contenders", "two_commands_p99_us"],
    },
];

/// Draws all pictures for which there are figures.
pub(crate) fn all(results: &Results, folder: &Path) -> Drawn {
    for picture in BARS {
        let [scenario, cell, figure] = picture.at;
        let rows = results.in_cell(scenario, cell);
        let mut bars: Vec<_> = rows
            .iter()
            .filter_map(|row| Some((row.contender.as_str(), row.spread(figure)?)))
            .collect();
        bars.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
        if !bars.is_empty() {
            draw_bars(&folder.join(picture.file), picture.title, &bars)?;
        }
    }
    draw_lines(results, &folder.join("hand-off.svg"))
}

fn colour(contender: &str) -> RGBColor {
    match contender {
        name if name.starts_with("kvlock") => OURS,
        "SET + script" | "SET + DEL" | "BLPOP" | "PING" | "redis-rs" | "redis-rs default"
        | "redis-rs, waiting" => FLOOR,
        _ => THEIRS,
    }
}

fn text(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// Formats a number for an axis, without decimal places.
fn whole(value: f64) -> String {
    let digits = number(value);
    digits.split_once('.').map_or(digits.as_str(), |(whole, _)| whole).to_owned()
}

/// Draws horizontal bars. The scale is logarithmic if the largest value is more than 40 times the smallest
/// median.
fn draw_bars(path: &Path, title: &str, bars: &[(&str, Spread)]) -> Drawn {
    const LEFT: i32 = 150;
    const WIDTH: i32 = 480;
    const STEP: i32 = 24;
    let height = 50 + STEP * i32::try_from(bars.len())?;
    let root = SVGBackend::new(path, (760, u32::try_from(height)?)).into_drawing_area();
    root.fill(&WHITE)?;
    let most = bars.iter().map(|(_, spread)| spread.most).fold(f64::MIN, f64::max);
    let least = bars.iter().map(|(_, spread)| spread.median).fold(f64::MAX, f64::min).max(1e-9);
    let logarithmic = most / least > 40.0;
    let title = if logarithmic { format!("{title}; logarithmic") } else { title.to_owned() };
    root.draw(&Text::new(title, (12, 12), text(16)))?;
    let length = |value: f64| {
        let part = if logarithmic {
            (value / least * 2.0).ln() / (most / least * 2.0).ln()
        } else {
            value / most
        };
        // The length in whole pixels.
        format!("{:.0}", part.max(0.0) * f64::from(WIDTH)).parse::<i32>().unwrap_or(0)
    };
    for (place, (contender, spread)) in (0_i32..).zip(bars) {
        let top = 42 + STEP * place;
        let end = LEFT + length(spread.median);
        let style = colour(contender).filled();
        root.draw(&Text::new((*contender).to_owned(), (12, top + 2), text(13)))?;
        root.draw(&Rectangle::new([(LEFT, top), (end, top + 16)], style))?;
        let whisker =
            [(LEFT + length(spread.least), top + 8), (LEFT + length(spread.most), top + 8)];
        root.draw(&PathElement::new(whisker.to_vec(), INK.stroke_width(1)))?;
        let value = (end.max(whisker[1].0) + 6, top + 2);
        root.draw(&Text::new(number(spread.median), value, text(13)))?;
    }
    root.present()?;
    Ok(())
}

/// Plots the time of a hand-off against the number of waiters.
fn draw_lines(results: &Results, path: &Path) -> Drawn {
    let root = SVGBackend::new(path, (760, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    let cells = results.cells("2");
    let waiters = |cell: &str| cell.split(' ').next()?.replace(',', "").parse::<f64>().ok();
    let mut series: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
    for cell in &cells {
        for row in results.in_cell("2", cell) {
            let Some(point) = waiters(cell).zip(row.median("hand_off_p50_us")) else { continue };
            match series.iter_mut().find(|(name, _)| *name == row.contender) {
                Some((_, points)) => points.push(point),
                None => series.push((&row.contender, vec![point])),
            }
        }
    }
    if series.is_empty() {
        return Ok(());
    }
    lines(&root, &series)?;
    root.present()?;
    Ok(())
}

fn lines(root: &DrawingArea<SVGBackend<'_>, Shift>, series: &[(&str, Vec<(f64, f64)>)]) -> Drawn {
    let values = series.iter().flat_map(|(_, points)| points).map(|(_, value)| *value);
    let (least, most) = values.fold((f64::MAX, f64::MIN), |(l, m), v| (l.min(v), m.max(v)));
    // The margin has room for the names at the ends of the lines.
    let mut chart = ChartBuilder::on(root)
        .caption(
            "From a release to the next owner, us (p50), against the number of waiters",
            text(16),
        )
        .margin(10)
        .margin_right(120)
        .x_label_area_size(30)
        .y_label_area_size(70)
        .build_cartesian_2d((1_f64..5_000.0).log_scale(), (least / 2.0..most * 2.0).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_label_formatter(&|value| whole(*value))
        .y_label_formatter(&|value| whole(*value))
        .draw()?;
    for (contender, points) in series {
        let style = colour(contender).stroke_width(2);
        chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, style.filled())))?;
    }
    let mut ends: Vec<(&str, (i32, i32))> = series
        .iter()
        .filter_map(|(name, points)| Some((*name, chart.backend_coord(points.last()?))))
        .collect();
    ends.sort_by_key(|(_, (_, y))| *y);
    let mut lowest = i32::MIN / 2;
    for (contender, (x, y)) in ends {
        // Names must not overlap.
        let y = (y - 6).max(lowest + 14);
        lowest = y;
        let style = ("sans-serif", 12).into_font().color(&colour(contender));
        root.draw(&Text::new(contender.to_owned(), (x + 8, y), style))?;
    }
    Ok(())
}
