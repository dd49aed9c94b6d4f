//! The way in which the program ends.

/// Way in which this process ends.
pub(crate) enum Exit {
    Code(u8),
    /// By the interrupt key. The process dies of SIGINT as well, so that the script that started it ends.
    /// With `alone`, only the command got the signal, and this process must send it to the rest of its own
    /// group.
    Interrupt {
        alone: bool,
    },
}
