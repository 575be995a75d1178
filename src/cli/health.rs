//! `--listen`: `/health/live` and `/health/ready` of a service, over HTTP.
//!
//! Invariants:
//! 1. Whoever connects, and says nothing or too much, costs the service no more than [`CONNECTIONS_MAX`] sockets, and each of them for no
//!    longer than [`CONNECTION_LIFE`]: sockets are what leases and heartbeats need, too.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::serve::Listener;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Fuse, FusedFuture as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::error::CliError;
use crate::env::{Env, Pulse, TURN_MAX};
use crate::store::layers::health::Health;

/// Connections at once; more wait to be taken.
const CONNECTIONS_MAX: usize = 16;
/// After so long a connection ends, whatever it is at.
const CONNECTION_LIFE: Duration = Duration::from_secs(5);
/// The pause after a connection that could not be taken, for want of files say.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// What is told of a service.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    pub(super) env: Env,
    pub(super) pulse: Arc<Pulse>,
    pub(super) store: Arc<Health>,
    /// The process was told to stop.
    pub(super) stopping: CancellationToken,
}

/// A status and its reason, one line each.
type Answer = (StatusCode, String);

impl Probe {
    /// Answers on `address`, if there is one, until the process ends, which waits for no connection.
    pub(super) async fn listen(self, address: Option<SocketAddr>) -> Result<(), CliError> {
        let Some(address) = address else {
            return Ok(());
        };
        let cannot = |error| {
            CliError::usage(format!("`--listen {address}`: {error}"))
                .help("give an address of this machine and a free port, as `127.0.0.1:8080`; port 0 takes any")
        };
        let listener = TcpListener::bind(address).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        tracing::info!(%address, "listening");
        let env = self.env.clone();
        let router = Router::new()
            .route("/health/live", get(live))
            .route("/health/ready", get(ready))
            .with_state(self);
        let listener = Bounded {
            listener,
            env: env.clone(),
            free: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        };
        drop(env.spawn("health", async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "listening_ended");
            }
        }));
        Ok(())
    }

    /// What keeps the service from serving.
    fn troubles(&self) -> Vec<String> {
        let mut troubles = self.store.troubles();
        troubles.extend(self.pulse.lack());
        if self.stopping.is_cancelled() {
            troubles.push("stopping".to_owned());
        }
        troubles
    }
}

async fn live(State(probe): State<Probe>) -> Answer {
    if probe.pulse.is_alive(&probe.env) {
        (StatusCode::OK, "live\n".to_owned())
    } else {
        let secs = TURN_MAX.as_secs();
        let why = format!("the main loop has made no turn for {secs} s\n");
        (StatusCode::SERVICE_UNAVAILABLE, why)
    }
}

async fn ready(State(probe): State<Probe>) -> Answer {
    let troubles = probe.troubles();
    if troubles.is_empty() {
        (StatusCode::OK, "ready\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, troubles.join("\n") + "\n")
    }
}

/// Takes a bounded number of connections of bounded life.
struct Bounded {
    listener: TcpListener,
    env: Env,
    free: Arc<Semaphore>,
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = Arc::clone(&self.free).acquire_owned().await;
        let place = place.expect("never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    let env = self.env.clone();
                    let over = async move { env.sleep(CONNECTION_LIFE).await }
                        .boxed()
                        .fuse();
                    let connection = Connection {
                        stream,
                        over,
                        _place: place,
                    };
                    return (connection, address);
                }
                Err(error) => {
                    tracing::warn!(%error, "connection_not_taken");
                    self.env.sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when its time is over.
struct Connection {
    stream: TcpStream,
    over: Fuse<BoxFuture<'static, ()>>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    /// The stream, while there is time.
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        if self.over.is_terminated() || self.over.poll_unpin(cx).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Pin::new(&mut self.stream))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_read(cx, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream(cx)?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
