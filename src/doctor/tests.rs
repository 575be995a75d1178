//! Examinations of prefixes in memory with one thing wrong at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{Check, Patient, Verdict, examine};
use crate::client::Client;
use crate::definition::{QueueName, Source, WorkflowId, parse};
use crate::env::{Clock, Env, Mono, Timestamp, real};
use crate::protocol::{Candidate, Layout, Try, try_to_lead};
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};
use crate::store::memory::MemoryStore;
use crate::store::{Expect, Store};

/// The real clock, with leaps ahead.
#[derive(Debug, Default)]
struct Leaping(AtomicU64);

impl Leaping {
    fn leap(&self, secs: u64) {
        self.0.fetch_add(secs, Ordering::Relaxed);
    }

    fn ahead(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

impl Clock for Leaping {
    fn wall(&self) -> Timestamp {
        real::env().wall() + self.ahead()
    }

    fn mono(&self) -> Mono {
        real::env().mono().plus(self.ahead())
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        real::env().clock.sleep(duration)
    }
}

struct Ward {
    clock: Arc<Leaping>,
    patient: Patient,
}

impl Ward {
    fn new() -> Self {
        let clock = Arc::new(Leaping::default());
        let env = Env {
            clock: clock.clone(),
            ..real::env()
        };
        let patient = Patient {
            store: MemoryStore::open(env.clone()),
            env,
            layout: Layout::new("abc").unwrap(),
            described: "memory".to_owned(),
            expires_at: None,
        };
        Self { clock, patient }
    }

    fn store(&self) -> &Store {
        &self.patient.store
    }

    fn layout(&self) -> &Layout {
        &self.patient.layout
    }

    async fn submit(&self, id: &str) -> WorkflowId {
        let client = Client::new(
            self.patient.env.clone(),
            self.store().clone(),
            self.layout().clone(),
            "me",
        );
        let text = "default_queue: gpu\ntasks: [{name: a, cmd: 'true'}]\n";
        let definition = parse(&Source::new("w.yaml", text)).unwrap().definition;
        let id = WorkflowId::new(id).unwrap();
        client.submit(&id, &definition).await.unwrap();
        id
    }

    async fn found(&self, name: &str) -> Check {
        let checks = examine(&self.patient, false).await;
        let found = checks.iter().find(|check| check.name == name);
        found
            .unwrap_or_else(|| panic!("no {name} in {checks:?}"))
            .clone()
    }
}

#[tokio::test]
async fn a_new_prefix_lacks_everything_until_it_is_fixed() {
    let ward = Ward::new();
    assert_eq!(ward.found("blob storage").await.status, Verdict::Problem);
    assert_eq!(ward.found("queue storage").await.status, Verdict::Problem);
    let tables = ward.found("table storage").await;
    assert!(tables.message.contains("abcWorkflowsIndex"), "{tables:?}");
    assert!(tables.help.unwrap().contains("--fix"));
    let checks = examine(&ward.patient, true).await;
    let sick = checks.iter().find(|check| check.status == Verdict::Problem);
    assert_eq!(sick, None);
}

#[tokio::test]
async fn a_service_that_does_not_answer_is_a_finding() {
    let mut ward = Ward::new();
    ward.layout().create(ward.store()).await.unwrap();
    let (store, _) = Faults::script()
        .on(Op::QueueDepth, 1, Fault::RequestLost)
        .wrap(ward.patient.store, ward.patient.env.clone());
    ward.patient.store = store;
    let queues = ward.found("queue storage").await;
    assert_eq!(queues.status, Verdict::Problem);
    assert!(queues.message.contains("unavailable"), "{queues:?}");
}

#[tokio::test]
async fn the_leader_is_named_with_its_age() {
    let ward = Ward::new();
    ward.layout().create(ward.store()).await.unwrap();
    assert_eq!(ward.found("coordinator").await.status, Verdict::Warn);
    let candidate = Candidate {
        holder: "host/42".to_owned(),
        lease: Duration::from_secs(60),
    };
    let hurry = CancellationToken::new();
    let Patient {
        env, store, layout, ..
    } = &ward.patient;
    let led = try_to_lead(env, store, layout, &candidate, &hurry)
        .await
        .unwrap();
    assert!(matches!(led, Try::Leads(_)));
    ward.clock.leap(30);
    let check = ward.found("coordinator").await;
    assert_eq!(check.status, Verdict::Ok);
    assert!(
        check.message.contains("`host/42`") && check.message.contains("30 s"),
        "{check:?}"
    );
    ward.clock.leap(60);
    let check = ward.found("coordinator").await;
    assert_eq!(check.status, Verdict::Warn);
    assert!(check.message.contains("nobody leads"), "{check:?}");
}

#[tokio::test]
async fn a_workflow_that_nobody_takes_is_named() {
    let ward = Ward::new();
    ward.submit("w").await;
    assert_eq!(ward.found("pending workflows").await.status, Verdict::Ok);
    ward.clock.leap(90);
    let check = ward.found("pending workflows").await;
    assert_eq!(check.status, Verdict::Problem);
    assert!(check.message.contains("`w`"), "{check:?}");
}

#[tokio::test]
async fn poison_is_counted_and_shown() {
    let ward = Ward::new();
    ward.submit("w").await;
    let queue = ward.layout().completions_poison().clone();
    ward.store()
        .queues
        .send(&queue, "garbage", Duration::ZERO)
        .await
        .unwrap();
    let tasks = ward.layout().task_poison(&QueueName::new("gpu").unwrap());
    ward.store().queues.create_queue(&tasks).await.unwrap();
    ward.store()
        .queues
        .send(&tasks, "rubbish", Duration::ZERO)
        .await
        .unwrap();
    let check = ward.found("poison completions").await;
    assert_eq!(check.status, Verdict::Problem);
    assert!(
        check.message.starts_with("1 in") && check.message.contains("garbage"),
        "{check:?}"
    );
    let check = ward.found("poison tasks of queue `gpu`").await;
    assert!(check.message.contains("rubbish"), "{check:?}");
}

#[tokio::test]
async fn a_state_that_cannot_be_read_is_named() {
    let ward = Ward::new();
    let id = ward.submit("w").await;
    let path = ward.layout().runtime(&id);
    let blobs = &ward.store().blobs;
    blobs
        .put(&path, "x".into(), &Expect::Absent, None)
        .await
        .unwrap();
    let check = ward.found("unreadable state").await;
    assert_eq!(check.status, Verdict::Problem);
    assert!(check.message.contains("w.json"), "{check:?}");
}

#[tokio::test]
async fn tasks_that_no_worker_takes_are_named_with_their_queue() {
    let ward = Ward::new();
    let id = ward.submit("w").await;
    let Patient {
        env, store, layout, ..
    } = &ward.patient;
    let client = Client::new(env.clone(), store.clone(), layout.clone(), "me");
    let stop = CancellationToken::new();
    let config = crate::coordinator::Config::default();
    let service = crate::coordinator::run(
        env.clone(),
        store.clone(),
        layout.clone(),
        config,
        stop.clone(),
    );
    let taken_up = async {
        let mut watch = client.watch(&id, None).await.unwrap();
        while let Some(update) = watch.next().await.unwrap() {
            if update.view.tasks[0].state == crate::client::TaskWord::Queued {
                break;
            }
        }
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(service, taken_up);
    ended.unwrap();
    assert_eq!(ward.found("stuck tasks").await.status, Verdict::Ok);
    ward.clock.leap(400);
    let check = ward.found("stuck tasks").await;
    assert_eq!(check.status, Verdict::Problem);
    assert!(check.message.contains("queue `gpu`"), "{check:?}");
}

#[tokio::test]
async fn a_signature_that_ends_soon_is_told() {
    let mut ward = Ward::new();
    let now = ward.patient.env.wall();
    ward.patient.expires_at = Some(now + Duration::from_secs(3600));
    assert_eq!(ward.found("configuration").await.status, Verdict::Warn);
    ward.patient.expires_at = Some(now - Duration::from_secs(1));
    assert_eq!(ward.found("configuration").await.status, Verdict::Problem);
}
