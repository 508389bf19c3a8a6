//! Who may change a setting.

/// Who may change a setting, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Any session, for itself.
    User,
    /// A superuser's session, for itself.
    Superuser,
    /// Nobody.
    Internal,
    /// Only the server's start.
    Start,
    /// The operator, for the whole server: not a connection when it begins.
    Server,
    /// Any session, and SHOW ALL leaves it out.
    Hidden,
}
