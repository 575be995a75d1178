//! The services of a run: started, restarted after they end or die, and what can be done to them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::oneshot;

use super::executor::SimExecutor;
use super::process::Process;
use super::run::World;
use super::scheduler::hold;
use super::wire;
use super::workload::queues;
use crate::coordinator;
use crate::env::Pulse;
use crate::env::real::ProcessName;
use crate::worker::{self, NoObserver};

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Coordinator,
    Worker,
}

/// One server, over all its lives.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) process: Process,
    pub(super) role: Role,
    /// Ends its present life in order.
    stop: Mutex<worker::Stop>,
}

impl Server {
    pub(super) fn new(process: Process, role: Role) -> Self {
        Self {
            process,
            role,
            stop: Mutex::default(),
        }
    }

    /// Tells it to end in order.
    pub(super) fn stop(&self) {
        hold(&self.stop).drain.cancel();
    }
}

/// Runs a server for ever: when it has ended or was killed, it starts again after a while.
pub(super) async fn keep_alive(world: Arc<World>, server: Arc<Server>) {
    for life in 1_u32.. {
        let stop = worker::Stop::default();
        *hold(&server.stop) = stop.clone();
        let (tell, ended) = oneshot::channel();
        let (of_life, of_server) = (Arc::clone(&world), Arc::clone(&server));
        server.process.start("main", async move {
            let how = live(&of_life, &of_server, life, stop).await;
            tell.send(how).ok();
        });
        // Killed, it tells nothing.
        let how = ended.await.unwrap_or_else(|_killed| "killed".to_owned());
        world.event(&format!("{} ended: {how}", server.process.name));
        world.oracle.life_over(server.process.id);
        let pause = world.roll(|dice| dice.millis(50, 9000));
        world.operator.env().sleep(pause).await;
    }
}

/// One life of a server; tells how it ended.
async fn live(world: &World, server: &Server, life: u32, stop: worker::Stop) -> String {
    let env = server.process.env();
    let store = wire::store(&world.network, &server.process);
    let layout = world.layout.clone();
    match server.role {
        Role::Coordinator => {
            let config = coordinator::Config {
                holder: format!("{}/{life}", server.process.name),
                standby: true,
                max_outstanding: world.max_outstanding,
                state_limits: world.state_limits,
                ..coordinator::Config::default()
            };
            let pulse = Arc::new(Pulse::new(&env, "leadership"));
            match coordinator::run(env, store, layout, config, pulse, stop.drain).await {
                Ok(()) => "stopped".to_owned(),
                Err(error) => error.to_string(),
            }
        }
        Role::Worker => {
            let config = worker::Config {
                queues: queues().to_vec(),
                slots: world.slots,
                drain_timeout: Duration::from_secs(5),
                name: ProcessName {
                    host: server.process.name.to_string(),
                    pid: life,
                },
                ..worker::Config::default()
            };
            let executor = SimExecutor::new(&server.process, &world.workloads, &world.oracle);
            let (executor, observer) = (Arc::new(executor), Arc::new(NoObserver));
            match worker::run(env, store, layout, config, executor, stop, observer).await {
                Ok(_) => "stopped".to_owned(),
                Err(error) => error.to_string(),
            }
        }
    }
}
