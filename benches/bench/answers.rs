//! Completions made by hand.

use std::time::Duration;

use dagaz::definition::Definition;
use dagaz::engine::{AttemptReport, Outcome};
use dagaz::env::{Env, Timestamp};
use dagaz::record::{
    CompletionRecord, CompletionResult, TaskMessage, decode_message, encode_message,
};
use futures::StreamExt as _;

use crate::bench::{Place, shape};

/// A root, `count` tasks below it, and a join of these.
pub(crate) fn below_a_root(count: usize) -> Definition {
    shape(count + 2, |place| match place {
        0 => vec![],
        join if join == count + 1 => (1..=count).collect(),
        _ => vec![0],
    })
}

/// Answers every message of the task queue, until `wanted` are answered, `batch` results a message.
pub(crate) async fn answer(place: &Place, wanted: usize, batch: usize) {
    let mut answered = 0;
    let queues = &place.store.queues;
    while answered < wanted {
        let hidden = Duration::from_secs(600);
        let messages = queues.receive(&place.queue(), 32, hidden).await.unwrap();
        if messages.is_empty() {
            place.env.sleep(Duration::from_millis(20)).await;
        }
        let tasks: Vec<TaskMessage> = messages
            .iter()
            .map(|message| decode_message(&message.body).unwrap())
            .collect();
        let posts = tasks.chunks(batch).map(|tasks| {
            let text = completion(tasks, &place.env);
            async move {
                let completions = place.layout.completions();
                queues.send(completions, &text, Duration::ZERO).await
            }
        });
        let posts: Vec<_> = posts.collect();
        let sent: Vec<_> = futures::stream::iter(posts)
            .buffer_unordered(8)
            .collect()
            .await;
        assert!(sent.iter().all(Result::is_ok));
        let queue = place.queue();
        let deletes = messages
            .iter()
            .map(|message| queues.delete(&queue, &message.receipt));
        let gone: Vec<_> = futures::stream::iter(deletes)
            .buffer_unordered(8)
            .collect()
            .await;
        assert!(gone.iter().all(Result::is_ok));
        answered += messages.len();
    }
}

/// The message that tells the success of some tasks.
fn completion(tasks: &[TaskMessage], env: &Env) -> String {
    let now = Timestamp::from_millisecond(env.wall().as_millisecond()).unwrap();
    let result = |task: &TaskMessage| CompletionResult {
        workflow_id: task.workflow_id.clone(),
        run_id: task.run_id,
        generation: task.generation,
        task: task.task.clone(),
        attempt_no: task.attempt_no,
        report: AttemptReport {
            outcome: Outcome::Succeeded,
            token: env.uuid().simple().to_string(),
            worker: "worker-17/4242".to_owned(),
            started_at: Some(now),
            ended_at: now,
            exit_code: Some(0),
            output: None,
            has_log: false,
            stderr_tail: None,
            reused_from: None,
        },
    };
    encode_message(&CompletionRecord::of_results(
        tasks.iter().map(result).collect(),
    ))
}
