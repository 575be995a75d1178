//! Outputs, logs and inputs: inline, as blobs, refused.

use serde_json::value::RawValue;

use super::*;
use crate::engine::{FailureKind, Output, TaskState};
use crate::record::{Input, InputOutput};

async fn blob(bench: &Bench, path: &BlobPath) -> Option<Bytes> {
    bench
        .store
        .blobs
        .get(path)
        .await
        .unwrap()
        .map(|blob| blob.body)
}

fn paths<'a>(bench: &'a Bench, result: &CompletionResult) -> crate::protocol::Execution<'a> {
    let token = &result.report.token;
    bench
        .layout
        .execution(&id(), bench.run, &result.task, result.attempt_no, token)
}

#[tokio::test]
async fn a_small_output_rides_in_its_completion() {
    let bench = Bench::new().await;
    let result = bench
        .run_one(Bench::spec(r#"echo ' {"x": 3.10} ' > $WORKFLOW_OUTPUT"#))
        .await;
    let Some(Output::Inline(json)) = &result.report.output else {
        panic!("{result:?}")
    };
    assert_eq!(json.get(), r#"{"x": 3.10}"#);
    assert!(!result.report.has_log);
}

#[tokio::test]
async fn a_large_output_is_a_blob_that_is_there_before_the_completion() {
    let bench = Bench::new().await;
    let command = r#"printf '"%05000d"' 7 > $WORKFLOW_OUTPUT"#;
    let result = bench.run_one(Bench::spec(command)).await;
    assert_eq!(result.report.output, Some(Output::Blob(5002)));
    let stored = blob(&bench, &paths(&bench, &result).output())
        .await
        .unwrap();
    assert_eq!(stored.len(), 5002);
}

#[tokio::test]
async fn an_output_that_is_not_json_or_too_large_fails_the_attempt() {
    for (command, word) in [
        ("echo '{\"x\": ' > $WORKFLOW_OUTPUT", "not JSON"),
        ("printf '\"\\xff\"' > $WORKFLOW_OUTPUT", "not JSON"),
        ("truncate -s 65M $WORKFLOW_OUTPUT", "above the limit"),
    ] {
        let bench = Bench::new().await;
        let result = bench.run_one(Bench::spec(command)).await;
        let failure = failure_of(&result);
        assert_eq!(failure.kind, FailureKind::Output);
        assert!(failure.message.contains(word), "{}", failure.message);
        assert_eq!(result.report.output, None);
    }
}

#[tokio::test]
async fn a_failed_command_has_no_output() {
    let bench = Bench::new().await;
    let result = bench
        .run_one(Bench::spec("echo 1 > $WORKFLOW_OUTPUT; exit 1"))
        .await;
    assert_eq!(failure_of(&result).kind, FailureKind::Exit);
    assert_eq!(result.report.output, None);
}

#[tokio::test]
async fn what_a_command_prints_is_a_log_blob_also_when_it_fails() {
    let bench = Bench::new().await;
    let result = bench.run_one(Bench::spec("echo out; exit 1")).await;
    assert!(result.report.has_log);
    let log = blob(&bench, &paths(&bench, &result).log()).await;
    assert_eq!(log.as_deref(), Some(&b"out\n"[..]));
}

#[tokio::test]
async fn a_completion_fits_into_a_message_whatever_the_command_does() {
    let bench = Bench::new().await;
    let command = r#"for i in $(seq 3000); do printf '\xff\x01"' >&2; done; printf '"%04094d"' 1 > $WORKFLOW_OUTPUT"#;
    let fails = format!("{command}; exit 1");
    bench.send_task("a", command).await;
    bench.send_task("b", &fails).await;
    let results = bench.results(bench.start(), 2).await;
    assert!(matches!(results[0].report.output, Some(Output::Inline(_))));
    assert!(results[1].report.stderr_tail.as_ref().unwrap().len() > 2048);
}

#[tokio::test]
async fn a_spilled_spec_and_large_outputs_of_parents_are_read_from_their_blobs() {
    let bench = Bench::new().await;
    let large = format!("\"{}\"", "x".repeat(40_000));
    let mut spec = Bench::spec("cp $WORKFLOW_INPUTS $WORKFLOW_OUTPUT");
    for parent in ["p", "q"] {
        let path = bench
            .layout
            .output_named(&format!("w/{parent}.output.json"))
            .unwrap();
        bench.put(&path, large.clone()).await;
        let output = Some(InputOutput::Blob(path.name().to_owned()));
        let state = TaskState::Completed;
        spec.inputs.insert(name(parent), Input { state, output });
    }
    let small = RawValue::from_string("{\"n\":1e2}".to_owned()).unwrap();
    let output = Some(InputOutput::Inline(small));
    let state = TaskState::Completed;
    spec.inputs.insert(name("r"), Input { state, output });
    let state = TaskState::Failed;
    spec.inputs.insert(
        name("s"),
        Input {
            state,
            output: None,
        },
    );
    let path = bench.layout.output_named("w/a.spec.json").unwrap();
    bench.put(&path, encode(&spec)).await;
    let mut message = bench.message("a", Bench::spec("exit 9"));
    message.body = TaskBody::Blob(path.name().to_owned());
    bench.send(&message).await;
    let result = bench.results(bench.start(), 1).await.remove(0);
    let seen = blob(&bench, &paths(&bench, &result).output())
        .await
        .unwrap();
    let state =
        |state: &str, output: &str| format!("{{\"state\":\"{state}\",\"output\":{output}}}");
    let expected = format!(
        "{{\"p\":{0},\"q\":{0},\"r\":{1},\"s\":{2}}}",
        state("completed", &large),
        state("completed", "{\"n\":1e2}"),
        state("failed", "null"),
    );
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_spec_or_an_input_that_is_gone_fails_the_attempt_with_that_reason() {
    let bench = Bench::new().await;
    let mut lost = bench.message("a", Bench::spec("true"));
    lost.body = TaskBody::Blob("w/lost.spec.json".to_owned());
    bench.send(&lost).await;
    let mut spec = Bench::spec("true");
    let output = Some(InputOutput::Blob("w/p.output.json".to_owned()));
    let state = TaskState::Completed;
    spec.inputs.insert(name("p"), Input { state, output });
    bench.send(&bench.message("b", spec)).await;
    let results = bench.results(bench.start(), 2).await;
    assert!(failure_of(&results[0]).message.contains("w/lost.spec.json"));
    assert!(
        failure_of(&results[1])
            .message
            .contains("output of `p` is gone")
    );
    bench.assert_tidy().await;
}
