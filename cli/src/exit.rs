//! How the program ends.

/// How this process ends.
pub(crate) enum Exit {
    Code(u8),
    /// By the interrupt key. The process dies of SIGINT too, so that the script that started it ends.
    /// With `alone` the key reached the command only, and the rest of the group has to get the signal.
    Interrupt {
        alone: bool,
    },
}
