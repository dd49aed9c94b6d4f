//! The loadable module.
