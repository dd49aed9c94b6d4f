//! The way in which the program ends.

/// Way in which this process ends.
pub(crate) enum Exit {
    Code(u8),
    /// Because of the interrupt key. Like the command, this process dies of SIGINT, so that a script that
    /// started it ends, too. With `alone`, only the command got the signal, and this process must send it to
    /// its own group.
    Interrupt {
        alone: bool,
    },
}
