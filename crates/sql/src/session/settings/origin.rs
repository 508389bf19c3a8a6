//! Where the value comes from that a session begins with.

/// Who gave a setting its value before the session's first SET; those below win over those above.
/// RESET goes back to that value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody.
    #[default]
    BuiltIn,
    /// ALTER ROLE ALL SET.
    AllRoles,
    /// ALTER DATABASE SET, or ALTER ROLE ALL IN DATABASE SET.
    Database,
    /// ALTER ROLE SET.
    Role,
    /// ALTER ROLE IN DATABASE SET.
    RoleInDatabase,
    /// The start-up packet.
    Client,
    /// It is so: the user's name, or what the server was started with.
    Fact,
}

impl Origin {
    /// The word in `pg_settings.source`.
    pub fn word(self) -> &'static str {
        match self {
            Origin::BuiltIn => "default",
            Origin::AllRoles => "global",
            Origin::Database => "database",
            Origin::Role => "user",
            Origin::RoleInDatabase => "database user",
            Origin::Client => "client",
            Origin::Fact => "override",
        }
    }
}
