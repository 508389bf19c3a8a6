//! From an accepted socket to a session: encryption, start-up packet, authentication, admission.
//!
//! All of it has to be over within the authentication timeout, and until then the client can make
//! the server hold no more than one start-up packet. Packets before encryption are read to the
//! byte, so nothing that was sent in plain text can be taken for part of the encrypted
//! conversation.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use cognate_sql::session::{Authority, Session, SessionParameters, StoredPassword};
use cognate_sql::sqlstate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::auth::{self, AuthError};
use super::connection::Connection;
use super::conversation::{End, farewell};
use super::frame::{HEADER_BYTES, Phase};
use super::message::MessageError;
use super::registry::{Open, Registry, Stop};
use super::response::{self, Report};
use super::socket::Socket;
use super::startup::{self, FirstPacket, Start, StartupError};
use super::transport::{Broken, Input, Transport};
use crate::crew::Incoming;
use crate::server::{Access, Server};

/// What a client said about itself.
struct Hello {
    minor: u16,
    user: String,
    database: String,
    application_name: String,
    options: Vec<(String, String)>,
    /// Where the client is, over a network.
    client: Option<SocketAddr>,
    /// The version of TLS, if the connection is encrypted.
    tls: Option<&'static str>,
}

/// Serves a connection from its first byte to its end.
///
/// All that a session can do hangs on this future. It is boxed in a function that is no generic
/// one, so it is compiled here, once: a future that is awaited where it is made is compiled in
/// every unit of every crate that awaits it.
#[inline(never)]
pub(crate) fn serve(
    server: Arc<Server>,
    incoming: Incoming,
    open: Open,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(converse(server, incoming, open))
}

async fn converse(server: Arc<Server>, incoming: Incoming, open: Open) {
    let timeout = server.access().authentication_timeout;
    let entry = open.entry().clone();
    let mut begin = pin!(begin(server, incoming, open));
    let begun = poll_fn(|cx| {
        entry.wake_with(cx.waker());
        match begin.as_mut().poll(cx) {
            // Nobody who has no session yet is waited for.
            Poll::Pending if entry.stop() != Stop::No => Poll::Ready(None),
            // Whose start-up packet is there is told of a stop.
            begun => begun,
        }
    });
    // The session is served outside: the timeout is over once it exists. So is who is refused: a
    // stop does not cut off what it is told.
    match tokio::time::timeout(timeout, begun).await {
        Ok(Some(Ok(connection))) => connection.serve().await,
        Ok(Some(Err(mut refused))) => {
            let (transport, end, open) = &mut *refused;
            open.leave();
            farewell(transport, end).await;
        }
        Ok(None) | Err(_) => {}
    }
}

/// Everything up to the first ReadyForQuery; or who is to be told why there is no session. `None`:
/// there is nobody to talk to.
async fn begin(
    server: Arc<Server>,
    incoming: Incoming,
    mut open: Open,
) -> Option<Result<Connection, Box<(Transport, End, Open)>>> {
    let (is_near, socket) = match incoming {
        Incoming::Tcp(socket) => {
            let peer = socket.peer_addr();
            (peer.is_ok_and(|peer| peer.ip().to_canonical().is_loopback()), Socket::Plain(socket))
        }
        Incoming::Pipe(pipe) => (true, Socket::Pipe(pipe)),
    };
    let access = server.access();
    let (socket, packet) = first_packet(&server.registry, &access, socket).await?;
    let is_private = is_near || access.allow_plaintext || matches!(socket, Socket::Tls(_));
    let mut transport = Transport::new(socket, server.budget.clone());
    let session = match packet {
        Ok(_) if !is_private => Err(refused(
            sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
            "a connection from another machine must be encrypted",
        )),
        Ok(packet) => authenticate(&server, &access, &mut transport, &mut open, &packet).await,
        Err(end) => Err(end),
    };
    Some(match session {
        Ok(session) => Ok(Connection::new(server, open, transport, session)),
        Err(end) => Err(Box::new((transport, end, open))),
    })
}

/// Reads packets until one begins a session; returns that one, or why it cannot be followed.
/// Answers requests for encryption and for cancelling. `None`: there is nobody to talk to any more.
pub(super) async fn first_packet(
    registry: &Registry,
    access: &Access,
    mut socket: Socket,
) -> Option<(Socket, Result<Vec<u8>, End>)> {
    let (mut tls_answered, mut gss_answered) = (false, false);
    loop {
        let packet = match read_packet(&mut socket).await {
            Ok(packet) => packet,
            Err(End::Broken(_)) => return None,
            Err(end) => return Some((socket, Err(end))),
        };
        match startup::decode_packet(&packet) {
            Ok(FirstPacket::Start(_)) => return Some((socket, Ok(packet))),
            Ok(FirstPacket::Cancel { process_id, secret }) => {
                registry.cancel(process_id, secret);
                return None;
            }
            Ok(FirstPacket::Tls) if !tls_answered => {
                tls_answered = true;
                socket = answer_tls(access, socket).await.ok()?;
            }
            Ok(FirstPacket::Gss) if !gss_answered => {
                gss_answered = true;
                socket.write_all(b"N").await.ok()?;
            }
            Ok(FirstPacket::Tls | FirstPacket::Gss) => {
                return Some((socket, Err(StartupError::Length.into())));
            }
            Err(error) => return Some((socket, Err(error.into()))),
        }
    }
}

/// Reads one packet to the byte.
async fn read_packet(socket: &mut Socket) -> Result<Vec<u8>, End> {
    let mut packet = vec![0; 4];
    socket.read_exact(&mut packet).await.map_err(Broken::Io)?;
    let length = startup::packet_length(&packet)?.unwrap_or_default();
    packet.resize(length, 0);
    socket.read_exact(&mut packet[4..]).await.map_err(Broken::Io)?;
    Ok(packet)
}

/// Accepts a request for TLS, if there is a certificate and the connection is not encrypted yet.
async fn answer_tls(access: &Access, mut socket: Socket) -> io::Result<Socket> {
    match (&access.tls, socket) {
        (Some(acceptor), Socket::Plain(mut stream)) => {
            stream.write_all(b"S").await?;
            let stream = acceptor.accept(stream).await?;
            Ok(Socket::Tls(Box::new(stream)))
        }
        (_, unchanged) => {
            socket = unchanged;
            socket.write_all(b"N").await?;
            Ok(socket)
        }
    }
}

async fn authenticate(
    server: &Arc<Server>,
    access: &Access,
    transport: &mut Transport,
    open: &mut Open,
    packet: &[u8],
) -> Result<Session, End> {
    let FirstPacket::Start(start) = startup::decode_packet(packet)? else {
        return Err(StartupError::Length.into());
    };
    if start.needs_negotiation() {
        let unknown = start.protocol_options.iter().copied();
        response::negotiate_protocol_version(transport.output(), start.minor(), unknown);
    }
    let mut hello = Hello::read(&start)?;
    (hello.client, hello.tls) = (transport.peer(), transport.tls());
    let stored = server.database.stored_password(&hello.user);
    if access.users.password_required() || stored != StoredPassword::None {
        check_password(access, transport, &hello.user, stored).await?;
    }
    let is_stopped = open.entry().stop() != Stop::No;
    if is_stopped && open.is_server_stopping() {
        return Err(refused(sqlstate::CANNOT_CONNECT_NOW, "the database system is shutting down"));
    }
    // It may have had to make way for those who came after it.
    if is_stopped || !open.admit() {
        return Err(refused(sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
    }
    let authority = access.authority(&hello.user);
    let admitted = server.database.admit(&hello.user, &hello.database, authority == Authority::Superuser);
    admitted.map_err(|error| End::Denied(Box::new(error)))?;
    begin_session(server, transport, open, hello, authority)
}

fn begin_session(
    server: &Server,
    transport: &mut Transport,
    open: &Open,
    hello: Hello,
    authority: Authority,
) -> Result<Session, End> {
    let entry = open.entry();
    let parameters = SessionParameters {
        user: hello.user,
        database: hello.database,
        application_name: hello.application_name,
        options: hello.options,
        process_id: entry.process_id,
        authority,
        orders: Some(entry.clone()),
        client: hello.client,
        tls: hello.tls,
    };
    let session = Session::new(server.database.clone(), parameters);
    // It is counted from here on, also by those who come at the same time.
    let session = session.and_then(|session| session.check_room().map(|()| session));
    let mut session = session.map_err(|error| End::Denied(Box::new(error)))?;
    open.set_cancel(session.cancel_handle());
    let output = transport.output();
    response::authentication_ok(output);
    for notice in session.take_notices() {
        response::notice(output, &Report::from(&notice));
    }
    for (name, value) in session.take_parameter_changes() {
        response::parameter_status(output, name, &value);
    }
    let secret = entry.tell_secret(hello.minor >= 2);
    response::backend_key_data(output, entry.process_id, secret);
    response::ready_for_query(output, b'I');
    transport.mark_urgent();
    Ok(session)
}

impl Hello {
    fn read(start: &Start<'_>) -> Result<Hello, End> {
        let user = start.get("user").filter(|user| !user.is_empty()).ok_or_else(|| {
            refused(
                sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
                "no PostgreSQL user name specified in startup packet",
            )
        })?;
        match start.get("replication").map(|value| (value, startup::asks_for_replication(value))) {
            None | Some((_, Some(false))) => {}
            Some((_, Some(true))) => {
                let message = "replication connections are not supported";
                return Err(refused(sqlstate::FEATURE_NOT_SUPPORTED, message));
            }
            Some((value, None)) => {
                let message = format!("invalid value for parameter \"replication\": \"{value}\"");
                return Err(refused(sqlstate::INVALID_PARAMETER_VALUE, message));
            }
        }
        let database = start.get("database").filter(|name| !name.is_empty()).unwrap_or(user);
        let mut options =
            startup::split_options(start.get("options").unwrap_or_default()).map_err(|word| {
                refused(sqlstate::SYNTAX_ERROR, format!("invalid command-line argument: {word}"))
            })?;
        for (name, value) in &start.parameters {
            if !matches!(*name, "user" | "database" | "application_name" | "options" | "replication") {
                options.push(((*name).to_owned(), value.clone().into_owned()));
            }
        }
        Ok(Hello {
            minor: start.minor(),
            user: user.to_owned(),
            database: database.to_owned(),
            application_name: start.get("application_name").unwrap_or_default().to_owned(),
            options,
            client: None,
            tls: None,
        })
    }
}

/// The SCRAM exchange. Ends with the final server message in the output; AuthenticationOk follows
/// it.
async fn check_password(
    access: &Access,
    transport: &mut Transport,
    user: &str,
    stored: StoredPassword,
) -> Result<(), End> {
    response::authentication_sasl(transport.output(), &[auth::MECHANISM]);
    let mut exchange = access.users.exchange(user, stored);
    let denied = |error: AuthError| match error {
        AuthError::Denied => {
            refused(sqlstate::INVALID_PASSWORD, format!("password authentication failed for user \"{user}\""))
        }
        AuthError::Malformed(_) => refused(sqlstate::PROTOCOL_VIOLATION, error.to_string()),
    };
    let body = password_message(transport).await?;
    let (mechanism, client_first) = auth::initial_response(&body)?;
    if mechanism != auth::MECHANISM {
        let message = "client selected an invalid SASL authentication mechanism";
        return Err(refused(sqlstate::PROTOCOL_VIOLATION, message));
    }
    let server_first = exchange.first(client_first).map_err(denied)?;
    response::authentication_sasl_continue(transport.output(), server_first.as_bytes());
    let body = password_message(transport).await?;
    let server_final = exchange.finish(&body).map_err(denied)?;
    response::authentication_sasl_final(transport.output(), server_final.as_bytes());
    Ok(())
}

/// Sends what is to be sent and reads one message of the authentication.
async fn password_message(transport: &mut Transport) -> Result<Vec<u8>, End> {
    poll_fn(|cx| transport.poll_flush(cx)).await?;
    match poll_fn(|cx| transport.poll_message(Phase::Authentication, cx)).await? {
        Input::Message(total) => {
            let received = transport.take_received();
            let body = received[HEADER_BYTES..total].to_vec();
            transport.put_back(received, total);
            Ok(body)
        }
        Input::End => Err(End::Broken(Broken::Io(io::ErrorKind::UnexpectedEof.into()))),
    }
}

fn refused(sqlstate: &'static str, message: impl Into<String>) -> End {
    End::Refused { sqlstate, message: message.into() }
}

impl From<StartupError> for End {
    fn from(error: StartupError) -> End {
        refused(error.sqlstate(), error.to_string())
    }
}

impl From<MessageError> for End {
    fn from(error: MessageError) -> End {
        refused(error.sqlstate(), error.to_string())
    }
}
