//! Primary and replicas: copies of writes, and promotions.

use crate::client::Stage;
use crate::server::{Lock, Server, Stored};
use crate::state::State;
use crate::world::{Rule, World};

/// A server with its role, and the copies in flight to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) server: Server,
    /// `true` if the server runs.
    pub(crate) alive: bool,
    /// `true` if the server acts as the primary.
    pub(crate) primary: bool,
    /// Copies in flight to the server.
    pub(crate) pending: Vec<(Option<Lock>, Option<Stored>)>,
    /// Tick at which another server replaced this one.
    pub(crate) replaced_at: Option<u8>,
}

impl Node {
    /// Returns whether the server refuses to write, because it is not a primary or, with `min_replicas`, because it
    /// has lost its replicas.
    pub(crate) fn refuses(&self, world: &World, now: u8) -> bool {
        !self.primary || world.min_replicas && self.replaced_at.is_some_and(|at| now > at + 1)
    }
}

impl State {
    /// For each server, the number of copies that it must still receive to have the state of server `of`.
    /// `None` for a server that is no running replica of `of`. The list is empty if no confirmation is needed.
    pub(crate) fn behind(&self, world: &World, of: usize) -> Vec<Option<u8>> {
        if world.confirmed == 0 {
            return Vec::new();
        }
        let follows = |node: &Node| !node.primary && node.alive && of == self.latest;
        let left = |node: &Node| follows(node).then_some(node.pending.len() as u8);
        self.nodes.iter().map(left).collect()
    }

    /// Sends the current state of a server to its replicas. Does nothing for a replaced primary, which has none.
    pub(crate) fn replicate(&mut self, from: usize) {
        if from == self.latest {
            let Server { lock, result, .. } = self.nodes[from].server;
            for node in self.nodes.iter_mut().filter(|node| node.alive && !node.primary) {
                node.pending.push((lock, result));
            }
        }
    }

    pub(crate) fn copy(&mut self, to: usize) {
        let node = &mut self.nodes[to];
        (node.server.lock, node.server.result) = node.pending.remove(0);
        for call in self.clients.iter_mut().filter_map(|client| client.calls[0].as_mut()) {
            if let Stage::Answered(_, behind) = &mut call.stage {
                let left = behind.get_mut(to).and_then(Option::as_mut);
                left.into_iter().for_each(|left| *left = left.saturating_sub(1));
            }
        }
    }

    pub(crate) fn promote(&mut self, world: &World, at: usize) {
        self.failovers -= 1;
        let before = std::mem::replace(&mut self.latest, at);
        self.nodes[before].replaced_at = Some(self.now);
        let node = &mut self.nodes[at];
        node.primary = true;
        node.server.takes_over(world.keeps(Rule::Floor));
        if world.quarantine {
            // First the previous primary stops granting (with `min_replicas`), and then its leases end.
            let window = u8::from(world.min_replicas) * 2;
            let lease = world.clients.iter().map(|plan| plan.lease).max().unwrap_or_default();
            node.server.quarantine = self.now + lease + window + 1;
        }
        let Server { lock, result, .. } = node.server;
        for node in &mut self.nodes {
            node.pending.clear();
            if !node.primary {
                // The server follows the new primary, and starts with a copy of its data.
                (node.server.lock, node.server.result) = (lock, result);
            }
        }
        // A replica that has not confirmed a reply never will.
        for call in self.clients.iter_mut().filter_map(|client| client.calls[0].as_mut()) {
            if let Stage::Answered(_, behind) = &mut call.stage {
                behind.iter_mut().for_each(|left| *left = left.filter(|left| *left == 0));
            }
        }
    }
}
