//! What is between clients and servers. With a safeguard of clients off it undoes what that is for: the
//! crate itself has no switches.

use super::Sim;
use crate::settings::Safeguard;
use crate::wire::{ConnId, Reply, Request, TRY_AGAIN};

impl Sim {
    /// Passes on what a client has said.
    pub(super) fn pass_on(&self, conn: ConnId, request: Request) {
        let Request::Renew { lease_ms, .. } = request else { return self.ask(conn, request) };
        let is_idle = self.net.borrow().is_idle(conn);
        if is_idle && !self.has(Safeguard::UnansweredIsNothing) {
            // Whatever becomes of it, it is said to be done.
            return self.ask_and_answer(conn, request, &Reply::Int(lease_ms));
        }
        if is_idle && !self.has(Safeguard::CountsLate) && self.percent(30) {
            // It is said not to be done, and arrives after those that follow it.
            self.falls_behind(conn);
            return self.ask_and_answer(conn, request, &Reply::Error(TRY_AGAIN));
        }
        self.ask(conn, request);
    }

    /// A clock that stands still while an answer is awaited counts a lease from its answer.
    pub(super) fn let_clocks_stand_still(&self) {
        if self.has(Safeguard::FromSending) {
            return;
        }
        for (id, client) in self.clients.borrow().all.iter().enumerate() {
            client.clock.stand_still(self.net.borrow().awaits_lease(id));
        }
    }
}
