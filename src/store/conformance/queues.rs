//! Clauses Q1–Q13.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Failure, Namespace, Outcome, at_once, ensure, eventually, refused};
use crate::env::Env;
use crate::store::{
    Kind, MESSAGE_BYTES_MAX, Message, Queue, RECEIVE_MAX, Receipt, Store, VISIBILITY_MAX,
};

/// Rounding that a service may apply to its own times.
const SLACK: Duration = Duration::from_millis(200);
const SHORT: Duration = Duration::from_secs(1);
/// Longer than any clause takes.
const LONG: Duration = Duration::from_secs(600);
const NOW: Duration = Duration::ZERO;

/// A queue that is there.
async fn opened<'a>(store: &Store, names: &'a Namespace) -> Result<&'a Queue, Failure> {
    store.queues.create_queue(names.queue()).await?;
    Ok(names.queue())
}

/// The next message, hidden for `visibility`.
async fn next(
    store: &Store,
    queue: &Queue,
    env: &Env,
    visibility: Duration,
) -> Result<Message, Failure> {
    eventually(env, "a message", || async {
        let received = store.queues.receive(queue, 1, visibility).await?;
        Ok(received.into_iter().next())
    })
    .await
}

async fn ensure_empty(store: &Store, queue: &Queue, when: &str) -> Outcome {
    let received = store.queues.receive(queue, RECEIVE_MAX, LONG).await?;
    ensure(received.is_empty(), || format!("{when}: got {received:?}"))
}

/// Q1: texts survive the journey.
pub(super) async fn q1_texts_come_back_as_sent(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let queue = opened(store, names).await?;
    let texts = [
        "eyJzY2hlbWEiOjF9",
        "{\"a\": [1, \"<b>&amp;</b>\", 'c']}",
        "Grüße, 漢字, \u{1f642}",
        "one\ntwo\r\nthree\tfour  five &#x41;",
    ];
    for text in texts {
        store.queues.send(queue, text, NOW).await?;
    }
    let mut got = BTreeSet::new();
    for _ in texts {
        let message = next(store, queue, env, LONG).await?;
        ensure(message.deliveries == 1, || {
            format!("a first delivery is numbered {}", message.deliveries)
        })?;
        got.insert(message.body);
    }
    let want = BTreeSet::from(texts.map(str::to_owned));
    ensure(got == want, || format!("want {want:?}, got {got:?}"))?;
    for text in [" blank", "blank\n", "bell\u{7}", "\u{ffff}"] {
        let sent = store.queues.send(queue, text, NOW).await;
        refused(sent, Kind::Invalid, "a text that XML cannot carry")?;
    }
    Ok(())
}

/// Q2: hidden for its time, back after it, counted.
pub(super) async fn q2_a_received_message_comes_back_after_its_time(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let queue = opened(store, names).await?;
    store.queues.send(queue, "stays hidden", NOW).await?;
    next(store, queue, env, LONG).await?;
    store.queues.send(queue, "comes back", NOW).await?;
    let start = env.mono();
    let first = next(store, queue, env, SHORT).await?;
    let second = next(store, queue, env, LONG).await?;
    let hidden = env.mono().since(start);
    ensure(second.body == "comes back", || {
        format!("{:?} came back", second.body)
    })?;
    ensure(hidden + SLACK >= SHORT, || {
        format!("it came back after {hidden:?}")
    })?;
    ensure(
        second.receipt.message_id == first.receipt.message_id && second.deliveries == 2,
        || format!("first {first:?}, then {second:?}"),
    )?;
    ensure(second.receipt.pop != first.receipt.pop, || {
        "the receipt is the same again".to_owned()
    })?;
    ensure_empty(store, queue, "both are hidden").await
}

/// Q3: a delayed message shows when it is due.
pub(super) async fn q3_a_delayed_message_is_hidden_until_due(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let queue = opened(store, names).await?;
    let start = env.mono();
    store.queues.send(queue, "late", LONG).await?;
    store.queues.send(queue, "soon", SHORT).await?;
    let message = next(store, queue, env, LONG).await?;
    let hidden = env.mono().since(start);
    ensure(message.body == "soon" && message.deliveries == 1, || {
        format!("got {message:?}")
    })?;
    ensure(hidden + SLACK >= SHORT, || {
        format!("it showed after {hidden:?}")
    })?;
    ensure_empty(store, queue, "the other is not due").await
}

/// Q4: never more than asked, and nothing from an empty queue.
pub(super) async fn q4_receive_returns_at_most_what_was_asked(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let queue = opened(store, names).await?;
    ensure_empty(store, queue, "nothing was sent").await?;
    for n in 0..40 {
        store.queues.send(queue, &format!("m{n}"), NOW).await?;
    }
    let mut got = 0;
    for max in [1, 3, RECEIVE_MAX, RECEIVE_MAX] {
        let received = store.queues.receive(queue, max, LONG).await?;
        ensure(received.len() <= usize::from(max), || {
            format!("asked for {max}, got {}", received.len())
        })?;
        got += received.len();
    }
    // A service may return fewer than there are: what is left comes one by one.
    for _ in got..40 {
        next(store, queue, env, LONG).await?;
    }
    ensure_empty(store, queue, "all were received").await?;
    for max in [0, RECEIVE_MAX + 1] {
        let received = store.queues.receive(queue, max, LONG).await;
        refused(received, Kind::Invalid, "a number out of range")?;
    }
    Ok(())
}

/// Q5: an extension counts from now and changes only visibility and receipt.
pub(super) async fn q5_extend_sets_the_visibility_from_now(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let queue = opened(store, names).await?;
    store.queues.send(queue, "<text>", NOW).await?;
    let first = next(store, queue, env, LONG).await?;
    let shown = store.queues.extend(queue, &first.receipt, NOW).await?;
    ensure(shown.message_id == first.receipt.message_id, || {
        format!("{shown:?} is of another message")
    })?;
    let again = next(store, queue, env, SHORT).await?;
    ensure(again.body == "<text>" && again.deliveries == 2, || {
        format!("given back, got {again:?}")
    })?;
    let longer = store.queues.extend(queue, &again.receipt, LONG).await?;
    for old in [&first.receipt, &shown, &again.receipt] {
        let extended = store.queues.extend(queue, old, LONG).await;
        refused(extended, Kind::Gone, "extension by an old receipt")?;
    }
    let start = env.mono();
    while env.mono().since(start) <= SHORT + SLACK {
        env.sleep(SHORT / 4).await;
        ensure_empty(store, queue, "its visibility was extended").await?;
    }
    let shorter = store.queues.extend(queue, &longer, SHORT).await?;
    let last = next(store, queue, env, LONG).await?;
    ensure(last.deliveries == 3, || {
        format!("extensions were counted as deliveries: {last:?}")
    })?;
    let extended = store.queues.extend(queue, &shorter, LONG).await;
    refused(extended, Kind::Gone, "extension after another's receive")
}

/// Q6: the last receipt deletes, once.
pub(super) async fn q6_delete_takes_the_last_receipt_once(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let queue = opened(store, names).await?;
    store.queues.send(queue, "x", NOW).await?;
    let first = next(store, queue, env, LONG).await?.receipt;
    let last = store.queues.extend(queue, &first, LONG).await?;
    let old = store.queues.delete(queue, &first).await;
    refused(old, Kind::Gone, "delete by an old receipt")?;
    let depth = store.queues.depth(queue).await?;
    ensure(depth == 1, || format!("after a refusal {depth} are left"))?;
    store.queues.delete(queue, &last).await?;
    for receipt in [&first, &last] {
        let again = store.queues.delete(queue, receipt).await;
        refused(again, Kind::Gone, "delete of a deleted message")?;
    }
    ensure_empty(store, queue, "it was deleted").await
}

/// Q7: who lost a message is told when it tries to keep it.
pub(super) async fn q7_a_lost_message_cannot_be_extended(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let queue = opened(store, names).await?;
    store.queues.send(queue, "x", NOW).await?;
    let lost = next(store, queue, env, SHORT).await?.receipt;
    let mine = next(store, queue, env, LONG).await?.receipt;
    let extended = store.queues.extend(queue, &lost, LONG).await;
    refused(extended, Kind::Gone, "extension of another's message")?;
    let deleted = store.queues.delete(queue, &lost).await;
    refused(deleted, Kind::Gone, "delete of another's message")?;
    let mine = store.queues.extend(queue, &mine, LONG).await?;
    store.queues.delete(queue, &mine).await?;
    let extended = store.queues.extend(queue, &mine, LONG).await;
    refused(extended, Kind::Gone, "extension of a deleted message")
}

/// Q8: the size limit is exact.
pub(super) async fn q8_texts_end_at_64_kib(store: &Store, names: &Namespace, env: &Env) -> Outcome {
    let queue = opened(store, names).await?;
    let full = "x".repeat(MESSAGE_BYTES_MAX);
    let above = store.queues.send(queue, &format!("{full}x"), NOW).await;
    refused(above, Kind::Invalid, "a text of 64 KiB and a byte")?;
    // Two bytes a letter: the limit is one of bytes.
    let wide = "ü".repeat(MESSAGE_BYTES_MAX / 2 + 1);
    let above = store.queues.send(queue, &wide, NOW).await;
    refused(above, Kind::Invalid, "a wide text above 64 KiB")?;
    store.queues.send(queue, &full, NOW).await?;
    let message = next(store, queue, env, LONG).await?;
    ensure(message.body == full, || {
        format!("{} bytes came back", message.body.len())
    })
}

/// Q9: without a queue nothing works, and says so.
pub(super) async fn q9_a_missing_queue_is_told_apart(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let (queues, queue, no) = (&store.queues, names.queue(), Kind::NoResource);
    let receipt = Receipt {
        message_id: "00000000-0000-0000-0000-000000000001".to_owned(),
        pop: "AQAAAA==".to_owned(),
    };
    refused(queues.send(queue, "x", NOW).await, no, "send")?;
    refused(queues.receive(queue, 1, LONG).await, no, "receive")?;
    refused(queues.extend(queue, &receipt, LONG).await, no, "extend")?;
    refused(queues.delete(queue, &receipt).await, no, "delete")?;
    refused(queues.depth(queue).await, no, "depth")?;
    refused(queues.peek(queue, 1).await, no, "peek")?;
    queues.create_queue(queue).await?;
    queues.create_queue(queue).await?;
    queues.send(queue, "x", NOW).await?;
    Ok(())
}

/// Q10: hidden messages count.
pub(super) async fn q10_depth_counts_hidden_messages_too(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let queue = opened(store, names).await?;
    let counts = async |want: u64| {
        eventually(env, &format!("a depth of {want}"), || async {
            let depth = store.queues.depth(queue).await?;
            Ok((depth == want).then_some(()))
        })
        .await
    };
    counts(0).await?;
    store.queues.send(queue, "received", NOW).await?;
    let received = next(store, queue, env, LONG).await?;
    store.queues.send(queue, "visible", NOW).await?;
    store.queues.send(queue, "delayed", LONG).await?;
    counts(3).await?;
    store.queues.delete(queue, &received.receipt).await?;
    counts(2).await
}

/// Q11: a message may stay hidden for the longest time that there is, which a service takes only for messages that live longer.
pub(super) async fn q11_messages_do_not_expire(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let queue = opened(store, names).await?;
    store
        .queues
        .send(queue, "in a week", VISIBILITY_MAX)
        .await?;
    store.queues.send(queue, "now", NOW).await?;
    let now = next(store, queue, env, VISIBILITY_MAX).await?;
    store
        .queues
        .extend(queue, &now.receipt, VISIBILITY_MAX)
        .await?;
    let depth = store.queues.depth(queue).await?;
    ensure(depth == 2, || format!("2 were sent, {depth} are there"))
}

/// Q12: receivers at once share the messages, none goes to two.
pub(super) async fn q12_each_message_goes_to_one_of_many_receivers(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    const SENT: usize = 40;
    let queue = opened(store, names).await?;
    let receive = |max| {
        at_once(env, move |_| {
            let (store, queue) = (store.clone(), queue.clone());
            async move { store.queues.receive(&queue, max, LONG).await }
        })
    };
    store.queues.send(queue, "single", NOW).await?;
    let mut winners = 0;
    for reply in receive(RECEIVE_MAX).await? {
        winners += reply?.len();
    }
    ensure(winners == 1, || format!("one message went to {winners}"))?;
    for n in 0..SENT {
        store.queues.send(queue, &format!("m{n}"), NOW).await?;
    }
    let mut seen = BTreeSet::new();
    for reply in receive(4).await? {
        for message in reply? {
            let first = message.deliveries == 1 && seen.insert(message.body.clone());
            ensure(first, || format!("{message:?} went to two"))?;
        }
    }
    // A service may return fewer than there are: what is left comes one by one.
    while seen.len() < SENT {
        let message = next(store, queue, env, LONG).await?;
        let first = message.deliveries == 1 && seen.insert(message.body.clone());
        ensure(first, || format!("{message:?} came twice"))?;
    }
    ensure_empty(store, queue, "all were received").await
}

/// Q13: looking takes nothing away and shows nothing hidden.
pub(super) async fn q13_peek_receives_nothing(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let queue = opened(store, names).await?;
    store.queues.send(queue, "hidden", NOW).await?;
    next(store, queue, env, LONG).await?;
    store.queues.send(queue, "delayed", LONG).await?;
    store.queues.send(queue, "<visible>", NOW).await?;
    for _ in 0..2 {
        let shown = store.queues.peek(queue, RECEIVE_MAX).await?;
        ensure(shown == ["<visible>"], || format!("peek showed {shown:?}"))?;
    }
    let message = next(store, queue, env, LONG).await?;
    ensure(message.deliveries == 1, || {
        format!("peeks were counted as deliveries: {message:?}")
    })?;
    for max in [0, RECEIVE_MAX + 1] {
        let shown = store.queues.peek(queue, max).await;
        refused(shown, Kind::Invalid, "a number out of range")?;
    }
    Ok(())
}
