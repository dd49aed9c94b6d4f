//! The way in which the program ends.

/// Way in which this process ends.
pub(crate) enum Exit {
    Code(u8),
    /// This process ends by SIGINT, because the interrupt key was pressed. So a script that started this
    /// process ends too. With `alone`, only the command's group got the signal, and this process must send it
    /// to its own group.
    Interrupt {
        alone: bool,
    },
}
