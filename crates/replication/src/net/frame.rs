//! Frames: a length (4 bytes), then as many bytes. Nobody is made to reserve more than the limit.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A connection's two directions in one.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Bytes that are reserved before they have come.
const STEP: usize = 1 << 20;

/// Writes a frame of several parts.
pub(crate) async fn write(out: &mut (impl AsyncWrite + Unpin), parts: &[&[u8]]) -> io::Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).map_err(io::Error::other)?;
    out.write_all(&length.to_le_bytes()).await?;
    for part in parts {
        out.write_all(part).await?;
    }
    Ok(())
}

/// Reads a frame of at most `limit` bytes; `None` at the end between two frames.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin), limit: usize) -> io::Result<Option<Bytes>> {
    let mut length = [0; 4];
    let mut have = 0;
    while have < length.len() {
        match from.read(&mut length[have..]).await? {
            0 if have == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => have += count,
        }
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > limit {
        let what = format!("a frame of {length} bytes is larger than the limit of {limit}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut frame = Vec::with_capacity(length.min(STEP));
    while frame.len() < length {
        let have = frame.len();
        frame.resize((have + STEP).min(length), 0);
        from.read_exact(&mut frame[have..]).await?;
    }
    Ok(Some(Bytes::from(frame)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_out_as_they_went_in_and_long_ones_are_refused() {
        let mut out = Vec::new();
        write(&mut out, &[b"ab", b"c"]).await.unwrap();
        write(&mut out, &[]).await.unwrap();
        let mut from = &out[..];
        assert_eq!(read(&mut from, 3).await.unwrap().unwrap(), "abc");
        assert_eq!(read(&mut from, 3).await.unwrap().unwrap(), "");
        assert_eq!(read(&mut from, 3).await.unwrap(), None);
        let refused = read(&mut &out[..], 2).await.unwrap_err();
        assert!(refused.to_string().contains("limit of 2"), "{refused}");
        assert!(read(&mut &out[..5], 3).await.is_err(), "it ends within a frame");
    }
}
