//! What is in a backup: the last file of it, which people can read, too.
//!
//! ```text
//! cognate backup 1
//! commit 120
//! time 2026-03-01 14:05:09.250000 UTC
//! of database                                     or: of node
//! file 5d41c3a2 4096 base/0000000000000007.run    checksum (CRC32C), length, name: a line for each
//! file 0b9e44f1 96 base/MANIFEST
//! sum 7c2ad9e0                                    the checksum of all lines before
//! ```
//!
//! All that was committed up to this commit is in the backup, and nothing that came later. The time
//! is that of the server's clock when it chose the commit.

use std::fmt::Write as _;

use cognate_env::clock::date;

use crate::Csn;

const FIRST: &str = "cognate backup 1";

/// See the module's prose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Everything up to this commit is in it.
    pub commit: Csn,
    /// When that was chosen.
    pub time: String,
    /// It is of a node of a cluster.
    pub is_node: bool,
    /// Its files, in the order of the stream.
    pub files: Vec<FileSum>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileSum {
    /// Its name, with its folder.
    pub name: String,
    /// Its length in bytes.
    pub length: u64,
    /// Its CRC32C.
    pub crc: u32,
}

impl Contents {
    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.length).sum()
    }

    /// The text.
    pub(crate) fn encode(&self) -> String {
        let of = if self.is_node { "node" } else { "database" };
        let mut text = format!("{FIRST}\ncommit {}\ntime {}\nof {of}\n", self.commit, self.time);
        for FileSum { name, length, crc } in &self.files {
            let _ = writeln!(text, "file {crc:08x} {length} {name}");
        }
        let sum = crc32c::crc32c(text.as_bytes());
        let _ = writeln!(text, "sum {sum:08x}");
        text
    }

    /// Reads the text.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn decode(text: &[u8]) -> Result<Contents, String> {
        let text = std::str::from_utf8(text).map_err(|_| "a list that is not UTF-8")?;
        let sum = text.rfind("sum ").ok_or("a list without its sum")?;
        if text[sum..] != format!("sum {:08x}\n", crc32c::crc32c(&text.as_bytes()[..sum])) {
            return Err("a list with a wrong sum".into());
        }
        let mut lines = text[..sum].lines();
        if lines.next() != Some(FIRST) {
            return Err("a list of another version".into());
        }
        let mut next = |word: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(word));
            line.ok_or_else(|| format!("a list without its line {word:?}"))
        };
        let commit = next("commit ")?.parse().map_err(|_| "a commit that is no number")?;
        let time = next("time ")?.to_owned();
        let is_node = match next("of ")? {
            "node" => true,
            "database" => false,
            other => return Err(format!("a list of the unknown kind {other:?}")),
        };
        let file = |line: &str| {
            let mut words = line.strip_prefix("file ")?.splitn(3, ' ');
            let crc = u32::from_str_radix(words.next()?, 16).ok()?;
            let length = words.next()?.parse().ok()?;
            Some(FileSum { name: words.next()?.to_owned(), length, crc })
        };
        let files: Option<Vec<FileSum>> = lines.map(file).collect();
        let files = files.ok_or("a list with a line that is no file")?;
        if let Some(file) = files.iter().find(|file| !super::is_known(&file.name)) {
            return Err(format!("a list with the file {:?}", file.name));
        }
        Ok(Contents { commit, time, is_node, files })
    }
}

/// A wall clock's microseconds since 1970, as people read them.
pub(crate) fn time(wall_us: i64) -> String {
    let (days, us) = (wall_us.div_euclid(86_400_000_000), wall_us.rem_euclid(86_400_000_000));
    let (year, month, day) = date(days);
    let (seconds, us) = (us / 1_000_000, us % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{us:06} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Contents {
        let file = |name: &str, crc| FileSum { name: name.to_owned(), length: 4096, crc };
        Contents {
            commit: 120,
            time: time(1_700_000_000_250_000),
            is_node: false,
            files: vec![file("base/0000000000000007.run", 7), file("base/MANIFEST", u32::MAX)],
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let text = sample().encode();
        assert_eq!(Contents::decode(text.as_bytes()), Ok(sample()));
        assert!(text.contains("\ntime 2023-11-14 22:13:20.250000 UTC\n"), "{text}");
    }

    #[test]
    fn damage_is_noticed_wherever_it_is() {
        let text = sample().encode().into_bytes();
        for at in 0..text.len() {
            let mut damaged = text.clone();
            damaged[at] ^= 1;
            assert!(Contents::decode(&damaged).is_err(), "byte {at}");
            assert!(Contents::decode(&text[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn names_lead_nowhere_else() {
        for name in ["/etc/passwd", "base/../x", "base/MANIFEST/x", "lock", "log/1.log"] {
            let mut contents = sample();
            contents.files[0].name = name.to_owned();
            assert!(Contents::decode(contents.encode().as_bytes()).is_err(), "{name}");
        }
    }
}
