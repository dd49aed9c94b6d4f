//! `kvlock metrics`: the counters of a server in the format of Prometheus.

mod serve;
mod text;

use crate::arguments::{Address, Metrics};
use crate::failure::Failure;
use crate::monitor::{self, Monitor};
use crate::print;
use crate::runtime::block_on;
use std::process::ExitCode;

pub(crate) fn metrics(address: &Address, task: &Metrics) -> Result<ExitCode, Failure> {
    match task.listen {
        None => print(block_on(scrape(address, task.locks))?.as_bytes()),
        Some(at) => {
            // An invalid address is refused at the start, and not at each request.
            monitor::one_server(address)?;
            serve::serve(address, task.locks, at)
        }
    }
}

/// Queries the server, and returns the page.
async fn scrape(address: &Address, locks: u32) -> Result<String, Failure> {
    monitor::ask(address, move |address| measure(address, locks)).await
}

/// Returns the page with the counters of a server and the profile of at most `locks` of its locks.
fn measure(address: &Address, locks: u32) -> Result<String, Failure> {
    let mut server = Monitor::connect(address)?;
    let figures = server.figures()?;
    let mut profile = None;
    if locks > 0 {
        profile = server.list(redis::cmd("LOCK.PROFILE").arg("COUNT").arg(locks))?;
        if profile.is_none() {
            let name = &server.name;
            return Err(Failure::trouble(format!(
                "{name}: no LOCK.PROFILE: this user lacks the right, or the module is older; --locks 0 does without"
            )));
        }
    }
    Ok(text::page(&figures, &profile.unwrap_or_default()))
}
