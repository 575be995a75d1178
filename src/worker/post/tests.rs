//! Which results share a message, and what each of them learns.

use std::pin::pin;

use futures::future::{Either, join, join_all, join3, select};
use uuid::Uuid;

use super::*;
use crate::definition::{TaskName, WorkflowId};
use crate::engine::{Attempt, AttemptReport, Generation, Outcome};
use crate::env::{Timestamp, real};
use crate::record::{RunId, decode_message};
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};
use crate::store::memory::MemoryStore;
use crate::store::memory::manual::ManualClock;

fn result(number: usize, bytes: usize) -> CompletionResult {
    CompletionResult {
        workflow_id: WorkflowId::new("w").unwrap(),
        run_id: RunId::new(Uuid::nil()),
        generation: Generation::FIRST,
        task: TaskName::new(format!("t{number}")).unwrap(),
        attempt_no: Attempt::new(1),
        report: AttemptReport {
            outcome: Outcome::Succeeded,
            token: String::new(),
            worker: String::new(),
            started_at: None,
            ended_at: Timestamp::UNIX_EPOCH,
            exit_code: Some(0),
            output: None,
            has_log: false,
            stderr_tail: Some("e".repeat(bytes)),
            reused_from: None,
        },
    }
}

struct Desk {
    plain: Store,
    layout: Layout,
    poster: Arc<Poster>,
}

impl Desk {
    async fn new(env: Env, faults: Faults) -> Self {
        let plain = MemoryStore::open(env.clone());
        let layout = Layout::new("test").unwrap();
        layout.create(&plain).await.unwrap();
        let (store, _) = faults.wrap(plain.clone(), env.clone());
        let poster = Poster::new(&env, &store, &layout, 64);
        Self {
            plain,
            layout,
            poster,
        }
    }

    async fn post(&self, number: usize, bytes: usize) -> StoreResult<()> {
        let lost = CancellationToken::new();
        self.poster.post(result(number, bytes), &lost).await
    }

    /// The tasks of each message that was posted, in their order.
    async fn posted(&self) -> Vec<Vec<String>> {
        let queue = self.layout.completions();
        let hidden = Duration::from_secs(60);
        let received = self.plain.queues.receive(queue, 32, hidden).await;
        let tasks = |body: &str| {
            let record: CompletionRecord = decode_message(body).unwrap();
            let results = record.results.into_iter();
            results.map(|result| result.task.to_string()).collect()
        };
        let messages = received.unwrap();
        messages
            .iter()
            .map(|message| tasks(&message.body))
            .collect()
    }
}

#[tokio::test]
async fn results_that_stand_in_line_together_share_a_message() {
    let desk = Desk::new(real::env(), Faults::script()).await;
    let posts = (0..10).map(|number| desk.post(number, 10));
    assert_eq!(join_all(posts).await, vec![Ok(()); 10]);
    assert_eq!(desk.posted().await.len(), 1);
    assert_eq!(desk.post(10, 10).await, Ok(()));
    assert_eq!(desk.posted().await, [["t10"]]);
}

#[tokio::test]
async fn what_does_not_fit_into_one_message_goes_in_several() {
    let desk = Desk::new(real::env(), Faults::script()).await;
    let posts = (0..100).map(|number| desk.post(number, 4_000));
    assert_eq!(join_all(posts).await, vec![Ok(()); 100]);
    let posted = desk.posted().await;
    let expected: Vec<_> = (0..100).map(|number| format!("t{number}")).collect();
    assert_eq!(posted.concat(), expected);
    // Each result has about 4,240 bytes of JSON, a message 48 KiB.
    assert_eq!(posted.len(), 10, "{posted:?}");
}

#[tokio::test]
async fn what_is_refused_together_is_sent_one_by_one_and_only_the_culprit_fails() {
    let refused =
        Faults::script()
            .on(Op::QueueSend, 1, Fault::Refused)
            .on(Op::QueueSend, 3, Fault::Refused);
    let desk = Desk::new(real::env(), refused).await;
    let sent = join_all((0..3).map(|number| desk.post(number, 10))).await;
    assert_eq!(sent[0], Ok(()));
    assert_eq!(sent[1].as_ref().unwrap_err().kind, Kind::Invalid);
    assert_eq!(sent[2], Ok(()));
    assert_eq!(desk.posted().await, [["t0"], ["t2"]]);
}

#[tokio::test]
async fn all_of_a_message_that_failed_learn_so() {
    let fault = Faults::script().on(Op::QueueSend, 1, Fault::ReplyLost);
    let desk = Desk::new(real::env(), fault).await;
    for sent in join_all((0..3).map(|number| desk.post(number, 10))).await {
        assert_eq!(sent.unwrap_err().kind, Kind::Ambiguous);
    }
    assert_eq!(desk.posted().await.concat(), ["t0", "t1", "t2"]);
}

#[tokio::test]
async fn a_message_that_takes_long_holds_up_no_other_and_what_is_lost_is_not_sent() {
    let clock = ManualClock::still();
    let hang = Fault::Hang(Duration::from_secs(60));
    let faults = Faults::script().on(Op::QueueSend, 1, hang);
    let desk = Desk::new(clock.env(), faults).await;
    let lost = CancellationToken::new();
    let hangs = pin!(desk.post(0, 10));
    let others = async {
        settle().await;
        let never = desk.poster.post(result(2, 10), &lost);
        let later = async {
            settle().await;
            lost.cancel();
            assert_eq!(desk.posted().await, Vec::<Vec<String>>::new());
            clock.advance(SLOW);
        };
        join3(desk.post(1, 10), never, later).await
    };
    let Either::Right(((soon, never, ()), _)) = select(hangs, pin!(others)).await else {
        panic!("what hangs ended first");
    };
    assert_eq!(soon, Ok(()));
    assert_eq!(never.unwrap_err().kind, Kind::Unavailable);
    assert_eq!(desk.posted().await, [["t1"]]);
}

#[tokio::test]
async fn results_wait_20_ms_for_others_and_those_that_fill_a_message_do_not() {
    let clock = ManualClock::still();
    let late = Fault::ReplyLate(Duration::from_millis(50));
    let faults = Faults::script()
        .on(Op::QueueSend, 1, late)
        .on(Op::QueueSend, 5, late);
    let desk = Desk::new(clock.env(), faults).await;
    let pass = async |millis| {
        settle().await;
        clock.advance(Duration::from_millis(millis));
        settle().await;
    };
    let story = async {
        let (first, second, ()) = join3(desk.post(0, 10), desk.post(1, 10), pass(50)).await;
        assert_eq!((first, second), (Ok(()), Ok(())));
        assert_eq!(desk.posted().await, [["t0", "t1"]]);
        // They fill it by their number.
        let many = join_all((0..64).map(|number| desk.post(number, 10))).await;
        assert_eq!(many, vec![Ok(()); 64]);
        assert_eq!(desk.posted().await.len(), 1);
        // They fill it by their size, all but the last.
        let large = join_all((0..12).map(|number| desk.post(number, 4_000)));
        let looks = async {
            settle().await;
            assert_eq!(desk.posted().await.concat().len(), 11);
            pass(19).await;
            assert_eq!(desk.posted().await.len(), 0);
            pass(1).await;
        };
        let (large, ()) = join(large, looks).await;
        assert_eq!(large, vec![Ok(()); 12]);
        assert_eq!(desk.posted().await, [["t11"]]);
        // They fill it while one is on its way.
        let many = async {
            settle().await;
            let many = join_all((2..66).map(|number| desk.post(number, 10)));
            join(many, pass(50)).await.0
        };
        let (.., many) = join3(desk.post(0, 10), desk.post(1, 10), many).await;
        assert_eq!(many, vec![Ok(()); 64]);
        assert_eq!(desk.posted().await.len(), 2);
    };
    let env = real::env();
    let told = env.timeout(Duration::from_secs(60), story).await;
    told.expect("nothing waits for more");
}

/// Lets everything come to its next wait.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
