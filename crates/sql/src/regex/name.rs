//! The names that a bracket expression may use for single characters: `[[.hyphen.]]`.

/// The names of POSIX for characters.
pub(super) fn character_named(name: &str) -> Option<char> {
    const CONTROLS: [&str; 32] = [
        "NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "HT", "LF", "VT", "FF", "CR", "SO",
        "SI", "DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "IS4",
        "IS3", "IS2", "IS1",
    ];
    const DIGITS: [&str; 10] =
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    const OTHERS: &[(&str, char)] = &[
        ("alert", '\x07'),
        ("backspace", '\x08'),
        ("tab", '\t'),
        ("newline", '\n'),
        ("vertical-tab", '\x0b'),
        ("form-feed", '\x0c'),
        ("carriage-return", '\r'),
        ("FS", '\x1c'),
        ("GS", '\x1d'),
        ("RS", '\x1e'),
        ("US", '\x1f'),
        ("space", ' '),
        ("exclamation-mark", '!'),
        ("quotation-mark", '"'),
        ("number-sign", '#'),
        ("dollar-sign", '$'),
        ("percent-sign", '%'),
        ("ampersand", '&'),
        ("apostrophe", '\''),
        ("left-parenthesis", '('),
        ("right-parenthesis", ')'),
        ("asterisk", '*'),
        ("plus-sign", '+'),
        ("comma", ','),
        ("hyphen", '-'),
        ("hyphen-minus", '-'),
        ("period", '.'),
        ("full-stop", '.'),
        ("slash", '/'),
        ("solidus", '/'),
        ("colon", ':'),
        ("semicolon", ';'),
        ("less-than-sign", '<'),
        ("equals-sign", '='),
        ("greater-than-sign", '>'),
        ("question-mark", '?'),
        ("commercial-at", '@'),
        ("left-square-bracket", '['),
        ("backslash", '\\'),
        ("reverse-solidus", '\\'),
        ("right-square-bracket", ']'),
        ("circumflex", '^'),
        ("circumflex-accent", '^'),
        ("underscore", '_'),
        ("low-line", '_'),
        ("grave-accent", '`'),
        ("left-brace", '{'),
        ("left-curly-bracket", '{'),
        ("vertical-line", '|'),
        ("right-brace", '}'),
        ("right-curly-bracket", '}'),
        ("tilde", '~'),
        ("DEL", '\x7f'),
    ];
    let numbered = |names: &[&str], base: u8| {
        names.iter().position(|known| *known == name).map(|index| char::from(base + index as u8))
    };
    numbered(&CONTROLS, 0)
        .or_else(|| numbered(&DIGITS, b'0'))
        .or_else(|| OTHERS.iter().find(|(known, _)| *known == name).map(|(_, c)| *c))
}
