//! A proxy between two nodes, which can hold back what goes one way.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Which direction is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Nothing,
    /// What comes back to who dialed.
    Answers,
    Everything,
}

#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    hold: watch::Sender<Hold>,
}

impl Proxy {
    pub(crate) async fn to(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let hold = watch::channel(Hold::Nothing).0;
        let holding = hold.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let holding = holding.clone();
                tokio::spawn(async move {
                    let Ok(far) = TcpStream::connect(target).await else { return };
                    let (near_read, near_write) = near.into_split();
                    let (far_read, far_write) = far.into_split();
                    let is_held = |hold: Hold| hold == Hold::Everything;
                    let forth = pump(near_read, far_write, holding.subscribe(), is_held);
                    let is_held = |hold: Hold| hold != Hold::Nothing;
                    let back = pump(far_read, near_write, holding.subscribe(), is_held);
                    tokio::select! {
                        () = forth => {}
                        () = back => {}
                    }
                });
            }
        });
        Proxy { address, hold }
    }

    pub(crate) fn hold(&self, hold: Hold) {
        self.hold.send_replace(hold);
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut hold: watch::Receiver<Hold>,
    is_held: impl Fn(Hold) -> bool,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => count,
        };
        if hold.wait_for(|hold| !is_held(*hold)).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
