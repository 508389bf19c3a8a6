//! Collations of columns and of parts of indexes.

use serde::{Deserialize, Serialize};

/// Collations, which are names only: texts are ordered by their bytes with each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collation {
    /// The database's, which is C.
    Default,
    /// By the bytes.
    C,
    /// The same under another name, as all that follow.
    Posix,
    /// The standard's name.
    UcsBasic,
    /// Of Linux.
    Utf8,
    /// The same, spelled otherwise.
    DashedUtf8,
    /// Of PostgreSQL 16.
    Unicode,
    /// Of ICU.
    Undefined,
}

impl Collation {
    /// All.
    pub const ALL: [Collation; 8] = [
        Collation::Default,
        Collation::C,
        Collation::Posix,
        Collation::UcsBasic,
        Collation::Utf8,
        Collation::DashedUtf8,
        Collation::Unicode,
        Collation::Undefined,
    ];

    /// The collation of `pg_catalog` that has this name.
    pub fn named(name: &str) -> Option<Collation> {
        Collation::ALL.into_iter().find(|collation| collation.name() == name)
    }

    /// Whether PostgreSQL has a collation of such a name where its system, or ICU, has the locale,
    /// by whose rules texts are ordered: `en_US.utf8`, `de-AT-x-icu`.
    pub fn is_of_locale(name: &str) -> bool {
        if Collation::named(name).is_some() {
            return false;
        }
        match name.strip_suffix("-x-icu") {
            Some(locale) => is_of_icu(locale),
            None => is_of_system(name),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Collation::Default => "default",
            Collation::C => "C",
            Collation::Posix => "POSIX",
            Collation::UcsBasic => "ucs_basic",
            Collation::Utf8 => "C.utf8",
            Collation::DashedUtf8 => "C.UTF-8",
            Collation::Unicode => "unicode",
            Collation::Undefined => "und-x-icu",
        }
    }

    /// `pg_collation.oid`.
    pub fn oid(self) -> u32 {
        match self {
            Collation::Default => 100,
            Collation::C => 950,
            Collation::Posix => 951,
            Collation::UcsBasic => 12340,
            Collation::Utf8 => 12341,
            Collation::Undefined => 12342,
            Collation::DashedUtf8 => 12343,
            Collation::Unicode => 12344,
        }
    }
}

/// A language, with a script, a territory and a variant that may follow: `sr-Cyrl-RS`.
fn is_of_icu(locale: &str) -> bool {
    let is_script = |part: &str| {
        let Some((first, rest)) = part.split_at_checked(1) else { return false };
        part.len() == 4
            && is_all(first, |c| c.is_ascii_uppercase())
            && is_all(rest, |c| c.is_ascii_lowercase())
    };
    let is_territory = |part: &str| {
        (part.len() == 2 && is_all(part, |c| c.is_ascii_uppercase()))
            || (part.len() == 3 && is_all(part, |c| c.is_ascii_digit()))
    };
    let mut parts = locale.split('-').peekable();
    let begins = parts.next().is_some_and(is_language);
    let _ = parts.next_if(|part| is_script(part));
    let _ = parts.next_if(|part| is_territory(part));
    let variant: Vec<&str> = parts.collect();
    begins && (variant.is_empty() || variant == ["u", "va", "posix"])
}

/// A language, a territory and the encoding, with a modifier that may follow: `ca_ES.utf8@euro`.
fn is_of_system(name: &str) -> bool {
    let (locale, modifier) = name.split_once('@').unwrap_or((name, "none"));
    let Some((place, encoding)) = locale.split_once('.') else { return false };
    let Some((language, territory)) = place.split_once('_') else { return false };
    is_language(language)
        && territory.len() == 2
        && is_all(territory, |c| c.is_ascii_uppercase())
        && matches!(encoding, "utf8" | "UTF-8")
        && !modifier.is_empty()
        && is_all(modifier, |c| c.is_ascii_lowercase())
}

fn is_language(part: &str) -> bool {
    (2..=3).contains(&part.len()) && is_all(part, |c| c.is_ascii_lowercase())
}

fn is_all(part: &str, is: impl Fn(char) -> bool) -> bool {
    part.chars().all(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collations_are_found_by_their_names_and_kept() {
        for collation in Collation::ALL {
            assert_eq!(Collation::named(collation.name()), Some(collation));
            let others = Collation::ALL.into_iter().filter(|other| other.oid() == collation.oid());
            assert_eq!(others.count(), 1, "{collation:?}");
            let text = serde_json::to_string(&collation).expect("a document");
            assert_eq!(serde_json::from_str::<Collation>(&text).expect(&text), collation);
        }
        assert_eq!(Collation::named("c"), None);
    }

    #[test]
    fn collations_of_locales_are_known_by_what_their_names_look_like() {
        for name in [
            "en-x-icu",
            "de-AT-x-icu",
            "es-419-x-icu",
            "sr-Cyrl-RS-x-icu",
            "yue-Hans-x-icu",
            "en-US-u-va-posix-x-icu",
            "en_US.utf8",
            "en_US.UTF-8",
            "ca_ES.utf8@valencia",
            "ckb_IQ.utf8",
        ] {
            assert!(Collation::is_of_locale(name), "{name}");
        }
        for name in [
            "C",
            "C.utf8",
            "und-x-icu",
            "nothing-x-icu",
            "-x-icu",
            "en-x-icu-x",
            "EN-x-icu",
            "en-US-x-x-icu",
            "de_XX",
            "en_US",
            "en_us.utf8",
            "en_US.latin1",
            "e_US.utf8",
            "en_US.utf8@",
            "nope",
            "",
            "\u{e9}n-x-icu",
            "en-\u{e9}ab-x-icu",
        ] {
            assert!(!Collation::is_of_locale(name), "{name}");
        }
    }
}
