//! Computes figures from records.

use crate::measure::Outcome;
use crate::process::Cycle;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Figures of one measurement by name. A name ends with the unit, if there is one.
pub(crate) type Figures = BTreeMap<String, f64>;

/// An hour, in nanoseconds: nothing here takes longer.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Adds the median, the 99th percentile and the maximum of durations. Converts nanoseconds to microseconds.
pub(crate) fn percentiles(figures: &mut Figures, name: &str, durations: impl Iterator<Item = u64>) {
    let mut histogram = Histogram::<u64>::new_with_bounds(1, LONGEST_NS, 3).unwrap();
    for duration in durations {
        histogram.saturating_record(duration.max(1));
    }
    if histogram.is_empty() {
        return;
    }
    for (label, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        let value = histogram.value_at_quantile(quantile);
        figures.insert(format!("{name}_{label}_us"), value as f64 / 1_000.0);
    }
    figures.insert(format!("{name}_max_us"), histogram.max() as f64 / 1_000.0);
}

/// Rates and costs, for each scenario whose events are cycles.
pub(crate) fn common(outcome: &Outcome) -> Figures {
    let mut figures = Figures::new();
    let mut put = |name: &str, value: f64| figures.insert(name.to_owned(), value);
    let per_record = (outcome.plan.depth / 2).max(1) as f64;
    let cycles = outcome.done().count() as f64 * per_record;
    let [_, before, after] = &outcome.looks;
    let cpu_us = after.cpu_us(before);
    let window_us = outcome.seconds() * 1e6;
    put("cycles_per_s", cycles / outcome.seconds());
    put("server_share", cpu_us / window_us);
    put("elsewhere_share", outcome.elsewhere);
    put("load_share", outcome.load_cpu_us / window_us);
    if cycles > 0.0 {
        put("server_cpu_us", cpu_us / cycles);
        put("load_cpu_us", outcome.load_cpu_us / cycles);
    }
    if cycles > 0.0 && after.is_redis() {
        let sent: f64 = outcome
            .plan
            .parts
            .iter()
            .flat_map(|part| part.contender.sends)
            .map(|command| after.calls(command) - before.calls(command))
            .sum();
        put("commands", sent / cycles);
        for (name, field) in
            [("bytes_in", "total_net_input_bytes"), ("bytes_out", "total_net_output_bytes")]
        {
            put(name, (after.info(field) - before.info(field)) / cycles);
        }
    }
    percentiles(&mut figures, "acquire", outcome.done().map(|c| c.got - c.wanted));
    percentiles(&mut figures, "cycle", outcome.done().map(|c| c.released - c.wanted));
    figures
}

/// Time from a release until a waiter has the lock.
pub(crate) fn hand_off(outcome: &Outcome) -> Figures {
    let mut figures = common(outcome);
    let next = |pair: [&Cycle; 2]| {
        let [last, next] = pair;
        let waited = next.wanted < last.releasing && last.releasing >= outcome.begin;
        waited.then(|| next.got.saturating_sub(last.releasing))
    };
    let durations: Vec<u64> =
        grants(outcome).iter().flat_map(|g| pairs(g)).filter_map(next).collect();
    figures.insert("hand_offs".to_owned(), durations.len() as f64);
    percentiles(&mut figures, "hand_off", durations.into_iter());
    figures
}

/// Time from the end of a lease until the next owner has the lock.
pub(crate) fn lateness(outcome: &Outcome) -> Figures {
    let mut figures = common(outcome);
    let lease = outcome.plan.lease_ms * 1_000_000;
    let late = |[last, next]: [&Cycle; 2]| next.got.saturating_sub(last.got + lease);
    let counts = |pair: &[&Cycle; 2]| pair[0].got >= outcome.begin;
    let durations: Vec<u64> =
        grants(outcome).iter().flat_map(|g| pairs(g)).filter(counts).map(late).collect();
    figures.insert("grants".to_owned(), durations.len() as f64);
    percentiles(&mut figures, "late", durations.into_iter());
    figures
}

/// How evenly the cycles are spread over the tasks, and the longest wait.
pub(crate) fn fairness(outcome: &Outcome) -> Figures {
    let mut figures = common(outcome);
    let tasks: usize = outcome.plan.parts.iter().map(|part| part.tasks).sum();
    let mut counts = vec![0_f64; tasks];
    for cycle in outcome.done() {
        counts[cycle.task] += 1.0;
    }
    let (sum, squares) = counts.iter().fold((0.0, 0.0), |(s, q), c| (s + c, q + c * c));
    if sum > 0.0 {
        figures.insert("jain".to_owned(), sum * sum / (tasks as f64 * squares));
    }
    let seconds = outcome.seconds();
    let by = |fold: fn(f64, f64) -> f64, from| counts.iter().copied().fold(from, fold) / seconds;
    figures.insert("least_per_s".to_owned(), by(f64::min, f64::INFINITY));
    figures.insert("most_per_s".to_owned(), by(f64::max, 0.0));
    figures.insert("longest_wait_ms".to_owned(), longest_wait_ms(outcome, 0, tasks));
    figures
}

/// The longest wait of `tasks` tasks from `first` on, including tasks that were still waiting at the end.
pub(crate) fn longest_wait_ms(outcome: &Outcome, first: usize, tasks: usize) -> f64 {
    let mine = |cycle: &&Cycle| (first..first + tasks).contains(&cycle.task);
    let until = |c: &Cycle| if c.got == 0 { outcome.end } else { c.got.min(outcome.end) };
    let waits = outcome.cycles.iter().filter(mine).map(|c| until(c).saturating_sub(c.wanted));
    waits.max().unwrap_or(0) as f64 / 1e6
}

/// The grants of each lock, in order.
fn grants(outcome: &Outcome) -> Vec<Vec<Cycle>> {
    let mut grants = vec![Vec::new(); outcome.plan.keys];
    for cycle in outcome.cycles.iter().filter(|c| c.got > 0 && c.got <= outcome.end) {
        grants[cycle.task % outcome.plan.keys].push(*cycle);
    }
    for of_one in &mut grants {
        of_one.sort_unstable_by_key(|cycle| cycle.got);
    }
    grants
}

fn pairs(grants: &[Cycle]) -> Vec<[&Cycle; 2]> {
    grants.iter().zip(grants.iter().skip(1)).map(|(last, next)| [last, next]).collect()
}
