//! The kinds of entry from the server.

/// The kinds of entry from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Load,
    /// The end of it, when the server knows commands and options.
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
