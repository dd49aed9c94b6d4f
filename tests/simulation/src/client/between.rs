//! The layer between clients and servers. The crate cannot switch off its safeguards. If one is off in a run,
//! this layer usually undoes its effect.

use super::Sim;
use crate::redis::Reply;
use crate::settings::Safeguard;
use crate::wire::{ConnId, Request, TRY_AGAIN};

impl Sim {
    /// Forwards a request of a client to the network.
    pub(super) fn pass_on(&self, conn: ConnId, mut request: Request) {
        if !self.has(Safeguard::Holds) {
            request.leave_out("HOLDS");
        }
        if !self.has(Safeguard::WriteBack) {
            request.leave_out("TOKEN");
        }
        match request.name() {
            b"SESSION.OPEN" if !self.has(Safeguard::WholeTtl) && request.words().len() > 1 => {
                request.set_number(1, request.number(1) / 2);
            }
            b"LOCK.RENEW" if self.net.borrow().is_idle(conn) => {
                return self.pass_on_renewal(conn, request);
            }
            _ => {}
        }
        self.ask(conn, request);
    }

    fn pass_on_renewal(&self, conn: ConnId, request: Request) {
        if !self.has(Safeguard::UnansweredIsNothing) {
            // Report success at once, even if the request is lost.
            let lease_ms = request.number(3);
            return self.ask_and_answer(conn, request, &Reply::Number(lease_ms));
        }
        if !self.has(Safeguard::CountsLate) && self.percent(30) {
            // The reply reports that the renewal had no effect. In fact the renewal arrives late, and perhaps
            // after requests on a later connection.
            self.falls_behind(conn);
            return self.ask_and_answer(conn, request, &TRY_AGAIN);
        }
        self.ask(conn, request);
    }

    /// If the safeguard `GrantedAt` is off, changes a session's reply so that its grants seem as new as the
    /// reply.
    pub(crate) fn undo_in_answer(&self, reply: &mut Reply) {
        let Reply::List(reply) = reply else { return };
        let [Reply::Number(now), Reply::List(told)] = &mut reply[..] else { return };
        if self.has(Safeguard::GrantedAt) {
            return;
        }
        for told in told {
            if let Reply::List(told) = told
                && let [.., Reply::Word("granted"), _, _, at] = &mut told[..]
            {
                *at = Reply::Number(*now);
            }
        }
    }

    /// If the safeguard `FromSending` is off, stops the clock of each client that awaits a lease. Then
    /// the lease counts from the reply.
    pub(super) fn let_clocks_stand_still(&self) {
        if self.has(Safeguard::FromSending) {
            return;
        }
        for (id, client) in self.clients.borrow().all.iter().enumerate() {
            client.clock.stand_still(self.net.borrow().awaits_lease(id));
        }
    }
}
