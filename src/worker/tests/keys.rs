//! Idempotency keys: what is reused, what is not, and what goes wrong on the way (B13).

use super::*;
use crate::engine::{FailureKind, Origin, Output};
use crate::record::KeyRecord;
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};

const KEY: &str = "day 7";

impl Bench {
    /// A command that counts its starts and writes a JSON text of so many characters.
    fn keyed(&self, characters: usize) -> TaskSpec {
        let starts = self.file("starts");
        let starts = starts.display();
        let command =
            format!(r#"echo x >> {starts}; printf '"%0{characters}d"' 7 > $WORKFLOW_OUTPUT"#);
        TaskSpec {
            idempotency_key: Some(KEY.to_owned()),
            ..Self::spec(&command)
        }
    }

    /// Runs task `task` over `store` while time goes on.
    async fn run_over(&self, store: &Store, task: &str, spec: TaskSpec) -> CompletionResult {
        self.send(&self.message(task, spec)).await;
        let running = self.start_with(store, Config::default());
        let completions = self.layout.completions();
        self.until_later(|| async { self.depth(completions).await >= 1 })
            .await;
        let mut results = self.results(running, 1).await;
        assert_eq!(results.len(), 1);
        // The completion was taken for a second: it is removed, so that the next can be told from it.
        self.clock.advance(Duration::from_secs(2));
        let queues = &self.store.queues;
        let seen = queues.receive(completions, 1, Duration::from_secs(9)).await;
        let receipt = &seen.unwrap()[0].receipt;
        queues.delete(completions, receipt).await.unwrap();
        results.remove(0)
    }

    async fn run_keyed(&self, task: &str, characters: usize) -> CompletionResult {
        let spec = self.keyed(characters);
        self.run_over(&self.store, task, spec).await
    }

    fn key(&self) -> BlobPath {
        self.layout.key(&Config::default().queues[0], KEY)
    }

    async fn stored_under_key(&self) -> Option<Bytes> {
        let blob = self.store.blobs.get(&self.key()).await.unwrap();
        blob.map(|blob| blob.body)
    }

    async fn remove(&self, path: &BlobPath) {
        let blob = self.store.blobs.get(path).await.unwrap().unwrap();
        self.store.blobs.delete(path, &blob.etag).await.unwrap();
    }

    fn output_path(&self, result: &CompletionResult) -> BlobPath {
        let (task, token) = (&result.task, &result.report.token);
        let attempt = result.attempt_no;
        let execution = self.layout.execution(&id(), self.run, task, attempt, token);
        execution.output()
    }
}

fn origin(task: &str) -> Origin {
    Origin {
        workflow_id: id(),
        task: name(task),
        attempt_no: Attempt::new(1),
    }
}

#[tokio::test]
async fn a_success_under_a_key_stands_for_every_later_run() {
    let bench = Bench::new().await;
    let first = bench.run_keyed("a", 3).await;
    assert_eq!((first.report.reused_from, bench.starts()), (None, 1));
    let second = bench.run_keyed("b", 3).await.report;
    assert_eq!(second.outcome, Outcome::Succeeded);
    assert_eq!(second.reused_from, Some(origin("a")));
    assert_eq!(second.output, first.report.output);
    assert_eq!((second.exit_code, second.started_at), (Some(0), None));
    let third = bench.run_keyed("c", 3).await.report;
    assert_eq!((third.reused_from, bench.starts()), (Some(origin("a")), 1));
    bench.assert_tidy().await;
}

#[tokio::test]
async fn a_large_output_is_copied_to_where_its_readers_look() {
    let bench = Bench::new().await;
    let first = bench.run_keyed("a", 5000).await;
    let second = bench.run_keyed("b", 5000).await;
    assert_eq!(second.report.output, Some(Output::Blob(5002)));
    assert_ne!(bench.output_path(&first), bench.output_path(&second));
    let copy = bench.store.blobs.get(&bench.output_path(&second)).await;
    assert_eq!(copy.unwrap().unwrap().body.len(), 5002);
    assert_eq!(bench.starts(), 1);
}

#[tokio::test]
async fn a_failure_leaves_nothing_under_its_key_and_another_key_is_another() {
    let bench = Bench::new().await;
    let failing = TaskSpec {
        cmd: Command::Shell("exit 3".to_owned()),
        ..bench.keyed(3)
    };
    let failed = bench.run_over(&bench.store, "a", failing).await;
    assert_eq!(failure_of(&failed).kind, FailureKind::Exit);
    assert_eq!(bench.stored_under_key().await, None);
    bench.run_keyed("b", 3).await;
    let other = TaskSpec {
        idempotency_key: Some("day 8".to_owned()),
        ..bench.keyed(3)
    };
    let ran = bench.run_over(&bench.store, "c", other).await.report;
    assert_eq!((ran.reused_from, bench.starts()), (None, 2));
}

#[tokio::test]
async fn the_reply_to_a_stored_key_may_be_lost() {
    let bench = Bench::new().await;
    let faults = Faults::script().on(Op::BlobPut, 1, Fault::ReplyLost);
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    bench.run_over(&store, "a", bench.keyed(3)).await;
    assert_eq!(injector.happened(), 1);
    let second = bench.run_keyed("b", 3).await.report;
    assert_eq!((second.reused_from, bench.starts()), (Some(origin("a")), 1));
}

#[tokio::test]
async fn a_key_that_cannot_be_stored_fails_no_task() {
    let bench = Bench::new().await;
    let faults = Faults::script().hook(|op, _| (*op == Op::BlobPut).then_some(Fault::RequestLost));
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    let result = bench.run_over(&store, "a", bench.keyed(3)).await;
    assert_eq!(result.report.outcome, Outcome::Succeeded);
    assert_eq!(injector.happened(), 3);
    assert_eq!(bench.stored_under_key().await, None);
}

#[tokio::test]
async fn a_key_that_cannot_be_read_is_tried_again_and_then_the_command_runs() {
    let bench = Bench::new().await;
    bench.run_keyed("a", 3).await;
    let twice = [1, 2].into_iter().fold(Faults::script(), |faults, nth| {
        faults.on(Op::BlobGet, nth, Fault::RequestLost)
    });
    let (store, _) = twice.wrap(bench.store.clone(), bench.env.clone());
    let second = bench.run_over(&store, "b", bench.keyed(3)).await.report;
    assert_eq!((second.reused_from, bench.starts()), (Some(origin("a")), 1));
    let always = Faults::script().hook(|op, _| (*op == Op::BlobGet).then_some(Fault::RequestLost));
    let (store, injector) = always.wrap(bench.store.clone(), bench.env.clone());
    let third = bench.run_over(&store, "c", bench.keyed(3)).await.report;
    assert_eq!(third.outcome, Outcome::Succeeded);
    assert_eq!((third.reused_from, bench.starts()), (None, 2));
    assert_eq!(injector.happened(), 3);
}

#[tokio::test]
async fn a_key_that_is_damaged_is_replaced_by_the_next_success() {
    let bench = Bench::new().await;
    bench.put(&bench.key(), "{\"schema\":1").await;
    let first = bench.run_keyed("a", 3).await.report;
    assert_eq!(first.reused_from, None);
    let second = bench.run_keyed("b", 3).await.report;
    assert_eq!((second.reused_from, bench.starts()), (Some(origin("a")), 1));
}

#[tokio::test]
async fn a_key_of_a_newer_version_is_left_alone() {
    let bench = Bench::new().await;
    let newer = Bytes::from_static(b"{\"schema\":2}");
    bench.put(&bench.key(), newer.clone()).await;
    let first = bench.run_keyed("a", 3).await.report;
    assert_eq!((first.outcome, bench.starts()), (Outcome::Succeeded, 1));
    assert_eq!(bench.stored_under_key().await, Some(newer));
}

#[tokio::test]
async fn a_large_output_that_is_gone_or_another_makes_the_command_run() {
    let bench = Bench::new().await;
    let first = bench.run_keyed("a", 5000).await;
    bench.remove(&bench.output_path(&first)).await;
    let second = bench.run_keyed("b", 5000).await;
    assert_eq!((&second.report.reused_from, bench.starts()), (&None, 2));
    let stored = bench.stored_under_key().await.unwrap();
    let record: KeyRecord = crate::record::decode(&stored).unwrap();
    assert_eq!(record.task, name("b"));
    bench.put(&bench.output_path(&second), "\"short\"").await;
    let third = bench.run_keyed("c", 5000).await.report;
    assert_eq!((third.reused_from, bench.starts()), (None, 3));
}

#[tokio::test]
async fn a_worker_that_must_go_while_it_looks_for_a_key_gives_the_task_back() {
    let bench = Bench::new().await;
    let faults = Faults::script().hook(|op, _| (*op == Op::BlobGet).then_some(Fault::RequestLost));
    let (store, injector) = faults.wrap(bench.store.clone(), bench.env.clone());
    bench.send(&bench.message("a", bench.keyed(3))).await;
    let running = bench.start_with(&store, Config::default());
    bench.until(|| async { injector.happened() == 1 }).await;
    let summary = running.drained().await;
    assert_eq!((summary.given_back, bench.starts()), (1, 0));
}
