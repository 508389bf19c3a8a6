//! The members of a backup's stream: the tar format, as far as a backup needs it.
//!
//! ```text
//! member    header: 512 bytes | the file's bytes | zeros up to a multiple of 512
//! end       two blocks of zeros
//! ```
//!
//! A header has the file's name, its length and the sum of its own bytes. Lengths are octal digits;
//! one that does not fit into eleven of them is a binary number whose first byte is 128, as GNU tar
//! writes it. What is read may also have been packed by tar itself from a backup's folder: then
//! there are folders among the members, and names begin with `./`.

/// What everything is a multiple of.
pub(crate) const BLOCK: usize = 512;

const LENGTH: std::ops::Range<usize> = 124..136;
const SUM: std::ops::Range<usize> = 148..156;
const KIND: usize = 156;
const FILE: u8 = b'0';
const FOLDER: u8 = b'5';
/// The longest length of eleven octal digits.
const OCTAL_MAX: u64 = (1 << 33) - 1;

/// What a header says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// A file follows.
    File { name: String, length: u64 },
    /// A folder, of which nothing follows.
    Folder,
    /// A block of zeros: the end.
    End,
}

/// The header of a file, changed at this second since 1970.
pub(crate) fn header(name: &str, length: u64, seconds: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    match length <= OCTAL_MAX {
        true => put(LENGTH.start, format!("{length:011o}\0").as_bytes()),
        false => {
            put(LENGTH.start, &[0x80]);
            put(LENGTH.end - 8, &length.to_be_bytes());
        }
    }
    put(136, format!("{:011o}\0", seconds.min(OCTAL_MAX)).as_bytes());
    put(KIND, &[FILE]);
    put(257, b"ustar\x0000");
    let sum = sum(&block);
    block[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Bytes that fill a file of this length up to a whole block.
pub(crate) fn padding(length: u64) -> usize {
    (length.next_multiple_of(BLOCK as u64) - length) as usize
}

/// Reads a header.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn decode(block: &[u8; BLOCK]) -> Result<Header, String> {
    if block.iter().all(|byte| *byte == 0) {
        return Ok(Header::End);
    }
    if octal(&block[SUM])? != u64::from(sum(block)) {
        return Err("a header with a wrong sum".into());
    }
    let length = match block[LENGTH.start] {
        0x80 => {
            let (high, low) = block[LENGTH].split_at(4);
            if high[1..] != [0; 3] {
                return Err("a length beyond all bounds".into());
            }
            u64::from_be_bytes(low.try_into().map_err(|_| "a length of another size")?)
        }
        _ => octal(&block[LENGTH])?,
    };
    match block[KIND] {
        FOLDER if length == 0 => Ok(Header::Folder),
        FILE | 0 => {
            let end = block[..100].iter().position(|byte| *byte == 0).unwrap_or(100);
            let name = std::str::from_utf8(&block[..end]).map_err(|_| "a name that is not UTF-8")?;
            Ok(Header::File { name: name.strip_prefix("./").unwrap_or(name).to_owned(), length })
        }
        kind => Err(format!("a member of kind {:?}", char::from(kind))),
    }
}

/// The sum of a header's bytes, where that of the sum itself counts as blanks.
fn sum(block: &[u8; BLOCK]) -> u32 {
    let byte = |(at, byte): (usize, &u8)| if SUM.contains(&at) { u32::from(b' ') } else { u32::from(*byte) };
    block.iter().enumerate().map(byte).sum()
}

/// A number in octal digits, behind which there are zeros and blanks only.
fn octal(field: &[u8]) -> Result<u64, String> {
    let digits = field.iter().take_while(|byte| (b'0'..=b'7').contains(*byte)).count();
    let (digits, rest) = field.split_at(digits);
    if digits.is_empty() || rest.iter().any(|byte| !matches!(byte, 0 | b' ')) {
        return Err("a header with a number that is none".into());
    }
    Ok(digits.iter().fold(0, |number, digit| number << 3 | u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_whatever_its_length() {
        for length in [0, 1, 512, OCTAL_MAX, OCTAL_MAX + 1, u64::MAX >> 1] {
            let block = header("base/MANIFEST", length, 1_700_000_000);
            let name = "base/MANIFEST".to_owned();
            assert_eq!(decode(&block), Ok(Header::File { name, length }));
        }
        assert_eq!(decode(&[0; BLOCK]), Ok(Header::End));
    }

    #[test]
    fn a_flipped_bit_is_noticed_wherever_it_is() {
        let whole = header("base/0000000000000007.run", 4096, 1_700_000_000);
        for at in 0..BLOCK {
            let mut damaged = whole;
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn files_are_filled_up_to_whole_blocks() {
        assert_eq!([0, 1, 511, 512, 513].map(padding), [0, 511, 1, 0, 511]);
    }
}
