//! By which rule transactions at SERIALIZABLE are made so.

/// By which rule transactions at SERIALIZABLE are certified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Precisely: where a cycle of dependencies would close.
    Pssi,
    /// Precisely, and so that the serial order is one of real time, too: whoever was acknowledged
    /// before another one began comes before it.
    Strict,
    /// By dangerous structures, as PostgreSQL does; for comparison.
    Ssi,
    /// Not at all: snapshot isolation; for comparison.
    Si,
    /// Not at all, because readers lock what they read; for comparison.
    TwoPhaseLocking,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 5] =
        [Method::Pssi, Method::Strict, Method::Ssi, Method::TwoPhaseLocking, Method::Si];

    /// What is used if nobody says otherwise: the one place that decides it.
    pub const DEFAULT: Method = Method::Pssi;

    /// As settings name it.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Pssi => "pssi",
            Method::Strict => "strict",
            Method::Ssi => "ssi",
            Method::Si => "si",
            Method::TwoPhaseLocking => "2pl",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Whether transactions are certified at all.
    pub const fn certifies(self) -> bool {
        matches!(self, Method::Pssi | Method::Strict | Method::Ssi)
    }
}

impl Default for Method {
    fn default() -> Method {
        Method::DEFAULT
    }
}
