//! Examinations of prefixes in memory with one thing wrong at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{Check, Patient, Verdict, examine};
use crate::client::Client;
use crate::client::TaskWord::{self, Completed, Pending, Queued};
use crate::definition::{QueueName, Source, WorkflowId, parse};
use crate::engine::{AttemptReport, Outcome};
use crate::env::{Clock, Env, Mono, Pulse, Timestamp, real};
use crate::protocol::{Candidate, Layout, Try, try_to_lead};
use crate::record::{
    CompletionRecord, CompletionResult, TaskMessage, decode_message, encode_message,
};
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
            actor: "me@here".to_owned(),
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

    fn client(&self) -> Client {
        let Patient {
            env, store, layout, ..
        } = &self.patient;
        Client::new(env.clone(), store.clone(), layout.clone(), "me")
    }

    async fn submit(&self, id: &str) -> WorkflowId {
        self.submit_text(id, "default_queue: gpu\ntasks: [{name: a, cmd: 'true'}]\n")
            .await
    }

    async fn submit_text(&self, id: &str, text: &str) -> WorkflowId {
        let definition = parse(&Source::new("w.yaml", text)).unwrap().definition;
        let id = WorkflowId::new(id).unwrap();
        self.client().submit(&id, &definition).await.unwrap();
        id
    }

    /// Lets a coordinator run until the tasks are stored with these words.
    async fn coordinate(&self, id: &WorkflowId, words: &[TaskWord]) {
        let Patient {
            env, store, layout, ..
        } = self.patient.clone();
        let stop = CancellationToken::new();
        let config = crate::coordinator::Config::default();
        let pulse = Arc::new(Pulse::new(&env, "leadership"));
        let service = crate::coordinator::run(env, store, layout, config, pulse, stop.clone());
        let reached = async {
            let mut watch = self.client().watch(id, None).await.unwrap();
            while let Some(update) = watch.next().await.unwrap() {
                let tasks = &update.view.tasks;
                if tasks
                    .iter()
                    .map(|task| task.state)
                    .eq(words.iter().copied())
                {
                    break;
                }
            }
            stop.cancel();
        };
        let (ended, ()) = tokio::join!(service, reached);
        ended.unwrap();
    }

    /// Executes one message of a task queue, as a worker does.
    async fn execute(&self, queue: &str) {
        let queue = self.layout().task_queue(&QueueName::new(queue).unwrap());
        let queues = &self.store().queues;
        let received = queues.receive(&queue, 1, Duration::from_secs(60)).await;
        let message = received.unwrap().pop().expect("sent");
        let task: TaskMessage = decode_message(&message.body).unwrap();
        let report = AttemptReport {
            outcome: Outcome::Succeeded,
            token: "tok".to_owned(),
            worker: "host/7".to_owned(),
            started_at: None,
            ended_at: self.patient.env.wall(),
            exit_code: Some(0),
            output: None,
            has_log: false,
            stderr_tail: None,
            reused_from: None,
        };
        let result = CompletionResult {
            workflow_id: task.workflow_id,
            run_id: task.run_id,
            generation: task.generation,
            task: task.task,
            attempt_no: task.attempt_no,
            report,
        };
        let body = encode_message(&CompletionRecord::of_results(vec![result]));
        let completions = self.layout().completions();
        queues
            .send(completions, &body, Duration::ZERO)
            .await
            .unwrap();
        queues.delete(&queue, &message.receipt).await.unwrap();
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
async fn kept_completions_are_sent_again_on_demand_once_their_workflow_can_be_read() {
    let ward = Ward::new();
    let id = ward.submit("w").await;
    ward.coordinate(&id, &[Queued]).await;
    ward.execute("gpu").await;
    let (queues, layout) = (&ward.store().queues, ward.layout());
    let (completions, poison) = (layout.completions(), layout.completions_poison());
    let hidden = Duration::from_secs(60);
    let message = queues.receive(completions, 1, hidden).await.unwrap();
    for body in [message[0].body.as_str(), "garbage"] {
        queues.send(poison, body, Duration::ZERO).await.unwrap();
    }
    let receipt = &message[0].receipt;
    queues.delete(completions, receipt).await.unwrap();
    let depths = async || {
        let kept = queues.depth(poison).await.unwrap();
        (kept, queues.depth(completions).await.unwrap())
    };

    let (blobs, path) = (&ward.store().blobs, layout.runtime(&id));
    let whole = blobs.get(&path).await.unwrap().unwrap();
    let damaged = Bytes::from_static(b"x");
    let expect = Expect::Version(whole.etag);
    let damaged = blobs.put(&path, damaged, &expect, None).await.unwrap();
    examine(&ward.patient, true).await;
    assert_eq!(depths().await, (2, 0), "nobody could apply it");
    let expect = Expect::Version(damaged);
    blobs.put(&path, whole.body, &expect, None).await.unwrap();
    examine(&ward.patient, false).await;
    assert_eq!(depths().await, (2, 0), "nothing is changed unasked");
    let checks = examine(&ward.patient, true).await;
    let check = checks.iter().find(|check| check.name == "kept completions");
    assert_eq!(check.unwrap().message, "1 sent again");
    assert_eq!(depths().await, (1, 1), "garbage stays");
    ward.coordinate(&id, &[Completed]).await;
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
    ward.coordinate(&id, &[Queued]).await;
    assert_eq!(ward.found("stuck tasks").await.status, Verdict::Ok);
    ward.clock.leap(400);
    let check = ward.found("stuck tasks").await;
    assert_eq!(check.status, Verdict::Problem);
    assert!(
        check
            .message
            .contains("1 task on queue `gpu`, `a` for 6 min"),
        "{check:?}"
    );
}

const TWO_QUEUES: &str = "default_queue: cpu\ntasks:
  - {name: a, cmd: 'true', queue: gpu}
  - {name: b, cmd: 'true'}
  - {name: c, cmd: 'true', depends_on: [b]}
";

#[tokio::test]
async fn a_stuck_task_is_found_beside_others_that_move() {
    let ward = Ward::new();
    let id = ward.submit_text("w", TWO_QUEUES).await;
    ward.coordinate(&id, &[Queued, Queued, Pending]).await;
    ward.clock.leap(400);
    // The sibling's end is stored now, which says nothing of the task on the other queue.
    ward.execute("cpu").await;
    ward.coordinate(&id, &[Queued, Completed, Queued]).await;
    let check = ward.found("stuck tasks").await;
    assert_eq!(check.status, Verdict::Problem);
    assert!(check.message.contains("queue `gpu`"), "{check:?}");
    assert!(
        !check.message.contains("queue `cpu`"),
        "`c` is new: {check:?}"
    );
}

#[tokio::test]
async fn a_task_that_waits_in_line_on_a_served_queue_is_not_stuck() {
    let ward = Ward::new();
    let text = "default_queue: cpu\ntasks:\n  - {name: a, cmd: 'true'}\n  - {name: b, cmd: 'true'}\n  - {name: c, cmd: 'true', depends_on: [a, b]}\n";
    let id = ward.submit_text("w", text).await;
    ward.coordinate(&id, &[Queued, Queued, Pending]).await;
    ward.clock.leap(400);
    assert_eq!(ward.found("stuck tasks").await.status, Verdict::Problem);
    ward.execute("cpu").await;
    ward.coordinate(&id, &[Completed, Queued, Pending]).await;
    assert_eq!(ward.found("stuck tasks").await.status, Verdict::Ok);
}

#[tokio::test]
async fn a_task_whose_message_is_gone_is_found() {
    let ward = Ward::new();
    let id = ward.submit("w").await;
    ward.coordinate(&id, &[Queued]).await;
    let queue = ward.layout().task_queue(&QueueName::new("gpu").unwrap());
    let queues = &ward.store().queues;
    let received = queues.receive(&queue, 1, Duration::from_secs(60)).await;
    let message = received.unwrap().pop().unwrap();
    queues.delete(&queue, &message.receipt).await.unwrap();
    assert_eq!(ward.found("lost messages").await.status, Verdict::Ok);
    ward.clock.leap(400);
    let check = ward.found("lost messages").await;
    assert_eq!(check.status, Verdict::Problem);
    assert!(check.message.contains("`w`: 1 task"), "{check:?}");
    assert_eq!(ward.found("stuck tasks").await.status, Verdict::Ok);
}

#[tokio::test]
async fn what_is_stuck_is_found_also_when_another_resource_is_missing() {
    let ward = Ward::new();
    let (store, layout) = (ward.store(), ward.layout());
    // All but the container of logs.
    for container in [layout.workflows(), layout.outputs()] {
        store.blobs.create_container(container).await.unwrap();
    }
    for table in [layout.index(), layout.claims(), layout.journal()] {
        store.rows.create_table(table).await.unwrap();
    }
    for queue in [layout.completions(), layout.completions_poison()] {
        store.queues.create_queue(queue).await.unwrap();
    }
    let id = ward.submit("w").await;
    ward.coordinate(&id, &[Queued]).await;
    ward.clock.leap(400);
    let checks = examine(&ward.patient, false).await;
    let status = |name: &str| {
        let found = checks.iter().find(|check| check.name == name);
        found.map(|check| check.status)
    };
    assert_eq!(status("blob storage"), Some(Verdict::Problem));
    assert_eq!(status("stuck tasks"), Some(Verdict::Problem));
    assert_eq!(status("poison completions"), Some(Verdict::Ok));
}

#[tokio::test]
async fn an_unfinished_workflow_without_a_leader_is_a_problem() {
    let ward = Ward::new();
    ward.layout().create(ward.store()).await.unwrap();
    assert_eq!(ward.found("coordinator").await.status, Verdict::Warn);
    let id = ward.submit("w").await;
    ward.coordinate(&id, &[Queued]).await;
    let check = ward.found("coordinator").await;
    assert_eq!(check.status, Verdict::Problem);
    assert!(
        check.message.contains("1 workflow is unfinished"),
        "{check:?}"
    );
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

#[tokio::test]
async fn what_is_being_purged_is_no_damage_but_needs_a_leader() {
    let ward = Ward::new();
    let id = ward.submit("w").await;
    let definition = crate::protocol::read_definition(ward.store(), ward.layout(), &id).await;
    let (definition, path) = (definition.unwrap().unwrap(), ward.layout().runtime(&id));
    let tombstone = crate::record::TombstoneRecord {
        schema: 1,
        workflow_id: id.clone(),
        run_id: definition.record.run_id,
        epoch: crate::record::Epoch::new(1),
        holder: "host/1".to_owned(),
        stamp: crate::record::Stamp::new(ward.patient.env.uuid()),
        request_id: ward.patient.env.uuid(),
        purged_by: "me@here".to_owned(),
        purged_at: ward.patient.env.wall(),
    };
    let body = crate::record::encode(&tombstone).into();
    let blobs = &ward.store().blobs;
    let put = blobs.put(&path, body, &crate::store::Expect::Absent, None);
    put.await.unwrap();
    assert_eq!(ward.found("purges").await.status, Verdict::Ok);
    ward.clock.leap(90);
    let slow = ward.found("purges").await;
    assert_eq!(slow.status, Verdict::Problem);
    assert!(slow.message.contains("`w`"), "{slow:?}");
    for _ in 0..2 {
        let checks = examine(&ward.patient, false).await;
        let of = |name: &str| {
            checks
                .iter()
                .find(|check| check.name == name)
                .unwrap()
                .status
        };
        assert_eq!(of("unreadable state"), Verdict::Ok, "{checks:?}");
        assert_eq!(of("coordinator"), Verdict::Problem, "{checks:?}");
        // The second time only the row is seen yet: the definition has gone meanwhile.
        let path = ward.layout().definition(&id);
        if let Some(found) = blobs.get(&path).await.unwrap() {
            blobs.delete(&path, &found.etag).await.unwrap();
        }
    }
}
