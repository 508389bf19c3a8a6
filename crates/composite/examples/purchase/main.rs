//! A purchase over three autonomous components: `shop` calls `stock` and `payment`, and all of it
//! happens, or nothing.
//!
//! `purchase all` starts the three on loopback with embedded databases; `purchase
//! shop|stock|payment` starts one.

mod services;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use cognate_composite::{Running, Tls, Tokens};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a process that was taken over goes on telling others that it was.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Which component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    Shop,
    Stock,
    Payment,
    /// The three of them on loopback, with embedded databases under ./purchase-data.
    All,
}

// Not `Debug`: a database's address may hold a password.
/// A purchase over three autonomous components.
#[derive(Parser)]
struct Arguments {
    which: Which,
    /// Where to listen.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: String,
    /// embedded:DIR or postgresql://…
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// The folder of the component's journal.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The other components: shop=URL,stock=URL,payment=URL.
    #[arg(long, value_name = "NAME=URL,…", value_delimiter = ',')]
    peers: Vec<String>,
    /// A file whose first line is the token of components, and whose second one, if there is one,
    /// that of clients.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The component's certificate, as PEM; with --tls-key and --tls-authority.
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "tls_authority")]
    tls_cert: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The certificates of the authority that the others' certificates come from; their addresses
    /// say https.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_authority: Option<PathBuf>,
    /// The payment offers its service without undo: what it does is kept prepared until the
    /// purchase has ended.
    #[arg(long)]
    without_undo: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(tracing::Level::INFO).init();
    let arguments = Arguments::parse();
    let started = match arguments.which {
        Which::All => all(&arguments).await,
        which => one(which, &arguments).await,
    };
    match started {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("purchase: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Prints; whether anybody reads it is not our business.
fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// The tokens of a file; none without it.
fn tokens(file: Option<&Path>) -> Result<Tokens, String> {
    let Some(file) = file else { return Ok(Tokens::default()) };
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned);
    match lines.next() {
        Some(peer) => Ok(Tokens { peer: Some(peer), client: lines.next() }),
        None => Err(format!("{}: holds no token", file.display())),
    }
}

fn name(which: Which) -> &'static str {
    match which {
        Which::Shop => "shop",
        Which::Stock => "stock",
        Which::Payment | Which::All => "payment",
    }
}

async fn bind(address: &str) -> Result<(TcpListener, SocketAddr), String> {
    let cannot = |error: io::Error| format!("cannot listen on {address}: {error}");
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    Ok((listener, bound))
}

async fn start(
    which: Which,
    database: &str,
    data: &Path,
    peers: &[(String, String)],
    tokens: &Tokens,
    tls: Option<&Tls>,
    has_undo: bool,
) -> Result<Running, String> {
    let mut component = match which {
        Which::Shop => services::shop(),
        Which::Stock => services::stock(),
        Which::Payment | Which::All => services::payment(has_undo),
    };
    component = component.database(database).data(data).tokens(tokens.clone());
    for (peer, address) in peers.iter().filter(|(peer, _)| peer != name(which)) {
        component = component.peer(peer, address);
    }
    if let Some(tls) = tls {
        component = component.tls(tls.clone());
    }
    component.start().await.map_err(|error| error.to_string())
}

/// Waits for Ctrl-C, or for SIGTERM, by which a service manager ends a process.
async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// Serves until a signal, or until a later process of the component takes it over.
async fn serve(listener: TcpListener, tls: Option<Tls>, running: Running) -> Result<(), String> {
    let mut serving: Pin<Box<dyn Future<Output = ()> + Send>> = match tls {
        Some(tls) => Box::pin(running.serve(tls.listen(listener).map_err(|error| error.to_string())?)),
        None => Box::pin(running.serve(listener)),
    };
    tokio::select! {
        () = &mut serving => Ok(()),
        () = running.fenced() => {
            // Who is inside, or still comes, hears why nothing comes of it.
            let _ = timeout(LAST_WORDS, serving).await;
            Err("another process has taken this component over".to_owned())
        }
        () = told_to_end() => {
            running.stop().await;
            Ok(())
        }
    }
}

async fn one(which: Which, arguments: &Arguments) -> Result<(), String> {
    let database = arguments.database.as_deref().ok_or("--database is missing")?;
    let data = arguments.data.as_deref().ok_or("--data is missing")?;
    let tokens = tokens(arguments.token_file.as_deref())?;
    let peer = |text: &String| {
        let (name, address) = text.split_once('=').ok_or("--peers: not NAME=URL")?;
        Ok((name.to_owned(), address.to_owned()))
    };
    let peers = arguments.peers.iter().map(peer).collect::<Result<Vec<_>, String>>()?;
    let (listener, bound) = bind(&arguments.listen).await?;
    if tokens == Tokens::default() && !bound.ip().is_loopback() {
        return Err(format!("listening on {bound} without --token-file lets anybody in"));
    }
    let tls = match (&arguments.tls_cert, &arguments.tls_key, &arguments.tls_authority) {
        (Some(certificate), Some(key), Some(authority)) => {
            Some(Tls::from_files(certificate, key, authority)?)
        }
        _ => None,
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let has_undo = !arguments.without_undo;
    let running = start(which, database, data, &peers, &tokens, tls.as_ref(), has_undo).await?;
    say(&format!("{} listens on {scheme}://{bound}\n{}", name(which), running.matrix()));
    serve(listener, tls, running).await
}

async fn all(arguments: &Arguments) -> Result<(), String> {
    let tokens = tokens(arguments.token_file.as_deref())?;
    let folder = Path::new("purchase-data");
    let (mut listeners, mut peers) = (Vec::new(), Vec::new());
    for which in [Which::Stock, Which::Payment, Which::Shop] {
        let (listener, bound) = bind("127.0.0.1:0").await?;
        peers.push((name(which).to_owned(), format!("http://{bound}")));
        listeners.push((which, listener));
    }
    let mut serving = JoinSet::new();
    for (which, listener) in listeners {
        let own = folder.join(name(which));
        let database = format!("embedded:{}", own.join("database").display());
        let running =
            start(which, &database, &own.join("journal"), &peers, &tokens, None, !arguments.without_undo)
                .await?;
        say(&format!("{}:\n{}\n", name(which), running.matrix()));
        serving.spawn(serve(listener, None, running));
    }
    let shop = peers.last().map(|(_, address)| address.as_str()).unwrap_or_default();
    // The file's last line is the clients' token, or that of everybody. It is not for the screen.
    let token = match &arguments.token_file {
        Some(file) => format!(" -H \"Authorization: Bearer $(tail -n 1 '{}')\"", file.display()),
        None => String::new(),
    };
    say(&format!(
        "curl -X POST {shop}/services/buy -H 'Idempotency-Key: 1' -H 'content-type: application/json'{token} -d '{{\"item\":7,\"customer\":3}}'"
    ));
    while let Some(ended) = serving.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    Ok(())
}
