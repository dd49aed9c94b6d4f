//! `kvlock metrics`: what a server counts, as Prometheus reads it.

mod serve;
mod text;

use crate::arguments::{Address, Metrics};
use crate::failure::Failure;
use crate::print;
use crate::watched::Watched;
use std::process::ExitCode;

pub(crate) fn metrics(address: &Address, task: &Metrics) -> Result<ExitCode, Failure> {
    match task.listen {
        None => print(measured(address, task.locks)?.as_bytes()),
        Some(at) => {
            // Whatever is wrong with the address will not get better.
            crate::server::Server::at(address)?;
            serve::serve(address, task.locks, at)
        }
    }
}

/// All figures of a server, and of a limited number of its locks.
fn measured(address: &Address, locks: u32) -> Result<String, Failure> {
    let mut server = Watched::connect(address)?;
    let figures = server.figures()?;
    let mut costs = None;
    if locks > 0 {
        costs = server.list(redis::cmd("LOCK.PROFILE").arg("COUNT").arg(locks))?;
        if costs.is_none() {
            let name = &server.name;
            return Err(Failure::trouble(format!(
                "{name}: no LOCK.PROFILE: this user lacks the right, or the module is older; --locks 0 does without"
            )));
        }
    }
    Ok(text::page(&figures, &costs.unwrap_or_default()))
}
