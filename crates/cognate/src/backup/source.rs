//! The server that a backup is taken of: where it is, and as whom it is asked.

use std::path::{Path, PathBuf};

use clap::Args;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};

use super::tls::Encryption;

/// Where a server listens unless it is told otherwise, and who its superuser is then.
const PORT: u16 = 5433;
const SUPERUSER: &str = "cognate";

/// Which server is asked, and as whom.
#[derive(Clone, Debug, Args)]
pub(super) struct Source {
    /// The server: HOST:PORT, or a URL as psql takes it, postgres://USER:PASSWORD@HOST:PORT.
    #[arg(long, value_name = "SERVER", required = true)]
    from: Option<String>,
    /// The user, which has to be the server's superuser [default: that of the URL, or PGUSER, or
    /// `cognate`].
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// File whose first line is the user's password; PGPASSWORD is the password itself.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// PEM file of the authority that signed the server's certificate, or of the certificate
    /// itself: then the connection is encrypted, and to that server only.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

impl Source {
    /// Connects.
    pub(super) async fn connect(&self) -> Result<Client, String> {
        let mut config = self.config()?;
        let Some(authority) = &self.tls_ca else {
            if config.get_ssl_mode() == SslMode::Require {
                return Err("sslmode=require needs --tls-ca, the file by which the server is known".into());
            }
            let (client, connection) = config.connect(NoTls).await.map_err(|e| describe(&e))?;
            tokio::spawn(connection);
            return Ok(client);
        };
        let encryption = Encryption::to(authority)?;
        config.ssl_mode(SslMode::Require);
        let (client, connection) = config.connect(encryption).await.map_err(|e| describe(&e))?;
        // What ends it is what the client's next call says.
        tokio::spawn(connection);
        Ok(client)
    }

    fn config(&self) -> Result<Config, String> {
        let from = self.from.as_deref().ok_or("from: which server?")?;
        let mut config = match from.contains("://") || from.contains('=') {
            true => from.parse::<Config>().map_err(|e| format!("from: {}", describe(&e)))?,
            false => address(from)?,
        };
        let variable = |name: &str| std::env::var(name).ok();
        if let Some(user) = &self.user {
            config.user(user);
        } else if config.get_user().is_none() {
            config.user(variable("PGUSER").unwrap_or_else(|| SUPERUSER.to_owned()));
        }
        if let Some(file) = &self.password_file {
            config.password(first_line(file)?);
        } else if config.get_password().is_none()
            && let Some(password) = variable("PGPASSWORD")
        {
            config.password(password);
        }
        if config.get_dbname().is_none() {
            config.dbname("postgres");
        }
        config.application_name("cognate backup");
        Ok(config)
    }
}

/// HOST:PORT or HOST.
fn address(from: &str) -> Result<Config, String> {
    let wrong = || format!("from: {from:?} is no HOST:PORT");
    let (host, port) = match from.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
        None => (from, PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(wrong());
    }
    let mut config = Config::new();
    config.host(host).port(port);
    Ok(config)
}

fn first_line(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| format!("password-file: cannot read {}: {e}", file.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// What an error of the driver says, in one line.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => match said.hint() {
            Some(hint) => format!("the server says: {} ({hint})", said.message()),
            None => format!("the server says: {}", said.message()),
        },
        None => {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(error);
            while let Some(deeper) = cause {
                text = format!("{text}: {deeper}");
                cause = deeper.source();
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_urls_are_taken() {
        let source = |from: &str| Source {
            from: Some(from.to_owned()),
            user: Some("ann".to_owned()),
            password_file: None,
            tls_ca: None,
        };
        for (from, port) in [
            ("db.example", PORT),
            ("db.example:6000", 6000),
            ("[::1]:6000", 6000),
            // As psql takes it.
            ("postgres://bob:secret@db.example/x", 5432),
            ("postgres://bob:secret@db.example:6000/x", 6000),
            ("host=db.example port=7000", 7000),
        ] {
            let config = source(from).config().expect("it can be read");
            assert_eq!((config.get_ports(), config.get_user()), (&[port][..], Some("ann")), "{from}");
        }
        for from in ["", ":5433", "db.example:http", "postgres://[", "colour=blue"] {
            assert!(source(from).config().is_err(), "{from}");
        }
    }
}
