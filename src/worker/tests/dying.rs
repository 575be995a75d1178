//! A worker that dies before, or just after, each of its writes in turn.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::store::layers::Op;
use crate::store::layers::fault::{Fault, Faults};

const fn is_write(op: Op) -> bool {
    matches!(
        op,
        Op::BlobPut
            | Op::RowWrite
            | Op::RowDelete
            | Op::QueueSend
            | Op::QueueExtend
            | Op::QueueDelete
    )
}

/// Runs a task by a worker that dies at its `nth` write, which arrives or does not, and then by another. Whether the first died.
async fn dies_at(nth: u64, arrives: bool) -> bool {
    let bench = Bench::new().await;
    let (count, dead) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
    let kill = Arc::clone(&dead);
    let (mortal, _) = Faults::script()
        .hook(move |op: &Op, _: &str| {
            if kill.load(Ordering::SeqCst) {
                return Some(Fault::RequestLost);
            }
            if !is_write(*op) || count.fetch_add(1, Ordering::SeqCst) + 1 < nth {
                return None;
            }
            kill.store(true, Ordering::SeqCst);
            Some(if arrives {
                Fault::ReplyLost
            } else {
                Fault::RequestLost
            })
        })
        .wrap(bench.store.clone(), bench.env.clone());
    let died = || dead.load(Ordering::SeqCst);
    let command = format!("{}; echo 1 > $WORKFLOW_OUTPUT; echo done", bench.waiting());
    bench.send_task("a", &command).await;
    let first = bench.start_with(&mortal, Config::default());
    bench.until_started(1).await;
    bench
        .until_later(|| async { died() || bench.claim("a").await.is_some() })
        .await;
    bench.go();
    bench
        .until(|| async { died() || bench.depth(&bench.queue).await == 0 })
        .await;
    let died = died();
    // Nothing that it still does arrives.
    first.stop.kill.cancel();
    let second = bench.start();
    bench
        .until_later(|| async {
            bench.depth(&bench.queue).await == 0 && bench.claim("a").await.is_none()
        })
        .await;
    second.drained().await;
    let posted = bench.posted().await;
    assert!((1..=2).contains(&posted.len()), "death at write {nth}");
    for result in posted {
        assert_eq!(result.report.outcome, Outcome::Succeeded);
    }
    assert!(bench.starts() <= 2, "death at write {nth}");
    bench.assert_tidy().await;
    died
}

#[tokio::test(flavor = "multi_thread")]
async fn the_task_of_a_worker_that_dies_at_any_write_is_finished_by_another() {
    for arrives in [false, true] {
        let all = (1..=16).map(|nth| dies_at(nth, arrives));
        let died = futures::future::join_all(all).await;
        let deaths = died.iter().filter(|died| **died).count();
        assert!((6..16).contains(&deaths), "each write was one: {died:?}");
    }
}
