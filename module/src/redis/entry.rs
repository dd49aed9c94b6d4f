//! The kinds of entry from the server.

/// A kind of call from the server into the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Load,
    /// End of loading, when the server knows the commands and options.
    Loaded,
    Unload,
    Command,
    WriteAnswer,
    AnswerDone,
    ClientGone,
    Timer,
    NextTurn,
    KeyEvent,
    ServerEvent,
    ReadConfig,
    WriteConfig,
    Info,
    Scan,
}
