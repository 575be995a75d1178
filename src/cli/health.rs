//! `--listen`: `/health/live` and `/health/ready` of a service, over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::error::CliError;
use crate::env::{Env, Pulse, TURN_MAX};
use crate::store::layers::health::Health;

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
