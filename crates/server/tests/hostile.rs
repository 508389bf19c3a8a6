//! Clients that do not keep to the protocol: each gets a clear answer or the end of its connection,
//! and nobody else notices anything.

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::client::{self, RawClient, message, string, sync};
use crate::support::TestServer;
use cognate_server::config::Settings;

async fn still_serves(server: &TestServer) {
    let mut client = RawClient::connect(server.address()).await;
    client.send(&sync()).await;
    assert_eq!(client::tags(&client.until_ready().await), "Z");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_first_packet_is_answered_and_closed() {
    let server = TestServer::start().await;
    for (packet, sqlstate) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "08P01"),
        (vec![0, 0, 0, 3], "08P01"),
        (vec![0xff; 8], "08P01"),
        (client::startup(2 << 16, &[("user", "x")]), "0A000"),
        (client::startup(4 << 16, &[("user", "x")]), "0A000"),
        (client::startup(3 << 16, &[]), "28000"),
        (client::startup(3 << 16, &[("user", "x"), ("replication", "true")]), "0A000"),
        (client::startup(3 << 16, &[("user", "x"), ("replication", "zz")]), "22023"),
        (client::packet(&[0, 3, 0, 0, b'u', b's']), "08P01"),
        (client::packet(&[0, 3, 0, 0, b'u', 0, 0xff, 0, 0]), "22021"),
    ] {
        let mut client = RawClient::silent(server.address()).await;
        client.send(&packet).await;
        let answer = client.until_end().await;
        assert_eq!(client::tags(&answer), "E", "{packet:?}");
        assert_eq!(answer[0].sqlstate(), sqlstate, "{packet:?}");
        assert_eq!(answer[0].field('S').as_deref(), Some("FATAL"));
    }
    still_serves(&server).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn encryption_that_is_not_there_is_declined_once_each() {
    let server = TestServer::start().await;
    let mut client = RawClient::silent(server.address()).await;
    for code in [80_877_104_u32, 80_877_103] {
        client.send(&client::packet(&code.to_be_bytes())).await;
        let mut answer = [0];
        tokio::io::AsyncReadExt::read_exact(&mut client.socket, &mut answer).await.expect("an answer");
        assert_eq!(&answer, b"N");
    }
    client.send(&client::packet(&80_877_103_u32.to_be_bytes())).await;
    assert_eq!(client::tags(&client.until_end().await), "E");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_negotiated() {
    let server = TestServer::start().await;
    for (asked, given, secret_bytes) in [(0, None, 4), (1, Some(0), 4), (2, None, 32), (99, Some(2), 32)] {
        let mut client = RawClient::silent(server.address()).await;
        client.send(&client::startup((3 << 16) | asked, &[("user", "ann")])).await;
        let answer = client.until_ready().await;
        let negotiated = answer.iter().find(|message| message.tag == 'v');
        let expected: Option<Vec<u8>> = given.map(|minor| vec![0, 3, 0, minor, 0, 0, 0, 0]);
        assert_eq!(negotiated.map(|message| message.body.clone()), expected);
        assert_eq!(client.secret.len(), secret_bytes);
    }
    let mut client = RawClient::silent(server.address()).await;
    client.send(&client::startup(3 << 16, &[("user", "ann"), ("_pq_.hats", "on")])).await;
    let answer = client.until_ready().await;
    assert_eq!(answer[0].tag, 'v');
    assert_eq!(answer[0].body, b"\0\x03\0\0\0\0\0\x01_pq_.hats\0");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_headers_end_the_connection_with_a_reason() {
    let server =
        TestServer::with(Settings { max_message: Some("1MB".to_owned()), ..Settings::default() }).await;
    for (bytes, sqlstate) in [
        (b"\x16\x03\x01\x02\x00".to_vec(), "08P01"),
        (b"Q\0\0\0\x03".to_vec(), "08P01"),
        (b"Q\x7f\xff\xff\xff".to_vec(), "54000"),
        (b"Q\xff\xff\xff\xff".to_vec(), "54000"),
        (b"S\0\0\xff\xff".to_vec(), "54000"),
        (message(b'p', b"password\0"), "08P01"),
    ] {
        let mut client = RawClient::connect(server.address()).await;
        client.send(&bytes).await;
        let answer = client.until_end().await;
        assert_eq!(client::tags(&answer), "E", "{bytes:?}");
        assert_eq!(answer[0].sqlstate(), sqlstate, "{bytes:?}");
    }
    still_serves(&server).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_bodies_fail_alone_and_skip_to_sync() {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.address()).await;
    for (bytes, sqlstate) in [
        (message(b'B', b"\0\0\xff\xff"), "08P01"),
        (message(b'P', b"no end"), "08P01"),
        (message(b'P', b"\0\xff\0\0\0"), "22021"),
        (message(b'D', b"Xa\0"), "08P01"),
        (message(b'E', b"\0\0"), "08P01"),
        (message(b'E', &[string("none"), vec![0; 4]].concat()), "34000"),
        (client::bind("", "none", &[]), "26000"),
        (client::named(b'D', b'S', "none"), "26000"),
        (client::named(b'D', b'P', "none"), "34000"),
    ] {
        // What comes between the error and Sync is skipped, whatever it is.
        let skipped = [message(b'D', b"??"), message(b'Q', b"\xff"), message(b'C', b"Snone\0")].concat();
        client.send(&[bytes.clone(), skipped, sync(), message(b'C', b"Snone\0"), sync()].concat()).await;
        let answer = client.until_ready().await;
        assert_eq!(client::tags(&answer), "EZ", "{bytes:?}");
        assert_eq!(answer[0].sqlstate(), sqlstate, "{bytes:?}");
        assert_eq!(client::tags(&client.until_ready().await), "3Z");
    }
    client.send(&message(b'Q', b"no end")).await;
    assert_eq!(client::tags(&client.until_ready().await), "EZ");
    client.send(&message(b'F', b"\0\0\0\0")).await;
    assert_eq!(client::tags(&client.until_ready().await), "EZ");
    // COPY messages outside a COPY are left-overs of one that failed.
    client.send(&[message(b'd', b"x"), message(b'c', b""), message(b'f', b"x\0"), sync()].concat()).await;
    assert_eq!(client::tags(&client.until_ready().await), "Z");
    // Whatever they say: of the simple protocol no Sync would follow.
    client.send(&[message(b'f', b"\xe9\0"), message(b'f', b"no end"), message(b'c', b"x")].concat()).await;
    assert_eq!(client::tags(&client.query("SELECT 1").await), "TDC");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_messages_wait_and_vanish_without_a_trace() {
    let server = TestServer::start().await;
    let whole = [client::parse("a", "select 1"), client::named(b'C', b'S', "a"), sync()].concat();
    for cut in 0..whole.len() {
        let mut client = RawClient::connect(server.address()).await;
        client.send(&whole[..cut]).await;
        drop(client);
    }
    let start = client::startup(3 << 16, &[("user", "ann")]);
    for cut in 0..start.len() {
        let mut client = RawClient::silent(server.address()).await;
        client.send(&start[..cut]).await;
        drop(client);
    }
    // Byte by byte it is the same conversation.
    let mut client = RawClient::silent(server.address()).await;
    for byte in [start, [client::named(b'C', b'S', "a"), sync()].concat()].concat() {
        client.send(&[byte]).await;
    }
    assert!(client::tags(&client.until_ready().await).ends_with("KZ"));
    assert_eq!(client::tags(&client.until_ready().await), "3Z");
    drop(client);
    server.metric_becomes("cognate_sockets", 0).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_hurt_nobody() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let server = TestServer::start().await;
    for round in 0..200 {
        let mut client = if round % 2 == 0 {
            RawClient::silent(server.address()).await
        } else {
            RawClient::connect(server.address()).await
        };
        let mut bytes = vec![0; random.random_range(1..300)];
        random.fill_bytes(&mut bytes);
        if round % 4 == 1 {
            // A plausible header first, so that the bodies are reached.
            let tags = b"QPBDECHSXdcfF";
            let tag = tags[random.random_range(0..tags.len())];
            bytes = message(tag, &bytes);
        }
        // The server may have closed the connection in the middle of it.
        let _ = tokio::io::AsyncWriteExt::write_all(&mut client.socket, &bytes).await;
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut client.socket).await;
        client.until_end().await;
    }
    still_serves(&server).await;
    server.metric_becomes("cognate_sockets", 0).await;
    server.stop().await;
}
