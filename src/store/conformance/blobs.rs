//! Clauses B1–B15.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use super::{Failure, Namespace, Outcome, POLL, at_once, ensure, eventually, one_winner, refused};
use crate::env::Env;
use crate::store::{Blob, BlobPath, ETag, Expect, Kind, LEASE_SECS, LeaseId, Listed, Page, Store};

/// Rounding that a service may apply to its own times.
const SLACK: Duration = Duration::from_millis(200);
const LEASE: Duration = Duration::from_secs(15);
const SECS: u8 = *LEASE_SECS.start();

fn body(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn lease(env: &Env) -> LeaseId {
    LeaseId(env.uuid())
}

fn path(names: &Namespace, name: &str) -> Result<BlobPath, Failure> {
    Ok(BlobPath::new(names.container().clone(), name)?)
}

/// A path in a container that is there.
async fn place(store: &Store, names: &Namespace) -> Result<BlobPath, Failure> {
    store.blobs.create_container(names.container()).await?;
    path(names, "a/blob.json")
}

/// A blob that is there.
async fn stored(store: &Store, names: &Namespace) -> Result<(BlobPath, ETag), Failure> {
    let path = place(store, names).await?;
    let etag = store.blobs.put(&path, body("first"), &Expect::Absent, None);
    let etag = etag.await?;
    Ok((path, etag))
}

async fn read(store: &Store, path: &BlobPath) -> Result<Blob, Failure> {
    let missing = || Failure::Broken(format!("{path} is missing"));
    store.blobs.get(path).await?.ok_or_else(missing)
}

/// B1: of all callers at once one creates the blob.
pub(super) async fn b1_one_of_many_creators_wins(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let path = place(store, names).await?;
    let replies = at_once(env, |caller| {
        let (store, path) = (store.clone(), path.clone());
        async move {
            let text = body(&format!("by {caller}"));
            store.blobs.put(&path, text, &Expect::Absent, None).await
        }
    });
    let (winner, etag) = one_winner(replies.await?)?;
    let blob = read(store, &path).await?;
    ensure(
        blob.etag == etag && blob.body == body(&format!("by {winner}")),
        || format!("caller {winner} won with {etag:?}, stored is {blob:?}"),
    )?;
    let late = store.blobs.put(&path, body("late"), &Expect::Absent, None);
    refused(late.await, Kind::Conflict, "create where there is one")
}

/// B2: of all callers at once one replaces the version.
pub(super) async fn b2_one_of_many_swappers_wins(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let (path, first) = stored(store, names).await?;
    let expect = Expect::Version(first);
    let replies = at_once(env, |caller| {
        let (store, path, expect) = (store.clone(), path.clone(), expect.clone());
        async move {
            let text = body(&format!("by {caller}"));
            store.blobs.put(&path, text, &expect, None).await
        }
    });
    let (winner, etag) = one_winner(replies.await?)?;
    let blob = read(store, &path).await?;
    ensure(
        blob.etag == etag && blob.body == body(&format!("by {winner}")),
        || format!("caller {winner} won with {etag:?}, stored is {blob:?}"),
    )?;
    let stale = store.blobs.put(&path, body("stale"), &expect, None);
    refused(stale.await, Kind::Conflict, "swap of an old version")?;
    let missing = BlobPath::new(path.container().clone(), "missing")?;
    let put = store.blobs.put(&missing, body("x"), &expect, None);
    refused(put.await, Kind::Conflict, "swap of a missing blob")
}

/// B3: what was put is read whole, with its version.
pub(super) async fn b3_get_returns_what_was_put(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let path = place(store, names).await?;
    let none = store.blobs.get(&path).await?;
    ensure(none.is_none(), || format!("nothing was put, got {none:?}"))?;
    let all_bytes = (0..=u8::MAX).cycle().take(70_000).collect::<Bytes>();
    let put = store
        .blobs
        .put(&path, all_bytes.clone(), &Expect::Absent, None);
    let etag = put.await?;
    let blob = read(store, &path).await?;
    ensure(blob.body == all_bytes, || "the body changed".to_owned())?;
    ensure(blob.etag == etag, || {
        format!("put returned {etag:?}, get {:?}", blob.etag)
    })?;
    ensure(!blob.leased, || "a new blob is leased".to_owned())
}

/// B4: versions do not repeat, also when the content does.
pub(super) async fn b4_each_put_gives_a_new_version(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let (path, mut etag) = stored(store, names).await?;
    let mut seen = BTreeSet::from([etag.as_str().to_owned()]);
    for _ in 0..5 {
        let expect = Expect::Version(etag);
        etag = store.blobs.put(&path, body("first"), &expect, None).await?;
        ensure(seen.insert(etag.as_str().to_owned()), || {
            format!("{etag:?} was given twice")
        })?;
    }
    Ok(())
}

/// B5: there are no empty blobs.
pub(super) async fn b5_an_empty_body_is_refused(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let path = place(store, names).await?;
    let put = store.blobs.put(&path, Bytes::new(), &Expect::Absent, None);
    refused(put.await, Kind::Invalid, "an empty body")?;
    let none = store.blobs.get(&path).await?;
    ensure(none.is_none(), || "it was stored all the same".to_owned())
}

/// B6: another version survives a delete.
pub(super) async fn b6_delete_removes_only_the_version_named(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let (path, first) = stored(store, names).await?;
    let expect = Expect::Version(first.clone());
    let second = store.blobs.put(&path, body("2"), &expect, None).await?;
    let stale = store.blobs.delete(&path, &first).await;
    refused(stale, Kind::Conflict, "delete of an old version")?;
    let blob = read(store, &path).await?;
    ensure(blob.etag == second, || "it was changed".to_owned())?;
    store.blobs.delete(&path, &second).await?;
    let gone = store.blobs.get(&path).await?;
    ensure(gone.is_none(), || "it is still there".to_owned())?;
    let again = store.blobs.delete(&path, &second).await;
    refused(again, Kind::NotFound, "delete of a missing blob")
}

/// B7: a listing is complete, ordered, keeps to its prefix and says what a read does.
pub(super) async fn b7_list_gives_every_name_once_in_order(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    place(store, names).await?;
    let odd = ["a/Z", "a/_z", "a/z", "a/z-1", "a/z.1", "a/z/1", "a/z=2F"];
    let many = (0..250).map(|n| format!("a/n{n}"));
    let inside: Vec<String> = odd.map(str::to_owned).into_iter().chain(many).collect();
    let outside = ["A/1", "a", "a-1", "a0", "b/1"].map(str::to_owned);
    let puts = inside.iter().chain(&outside).map(|name| async {
        let path = path(names, name)?;
        let put = store.blobs.put(&path, body("x"), &Expect::Absent, None);
        put.await?;
        let found = store.blobs.get(&path).await?;
        let found = found.ok_or_else(|| Failure::Broken("what was put is not there".to_owned()))?;
        Ok::<Listed, Failure>(Listed {
            name: name.clone(),
            etag: found.etag,
            changed_at: found.changed_at,
        })
    });
    // Boxed: the compiler cannot prove `Send` for the nameless futures of the closure otherwise.
    let puts: Vec<_> = puts.map(futures::FutureExt::boxed).collect();
    let mut want = stream::iter(puts)
        .buffer_unordered(16)
        .try_collect::<Vec<Listed>>()
        .await?;
    want.retain(|blob| blob.name.starts_with("a/"));
    want.sort_by(|a, b| a.name.cmp(&b.name));
    let mut got = Vec::new();
    let mut after = None;
    loop {
        let page = store.blobs.list(names.container(), "a/", after.as_ref());
        let Page { items, next } = page.await?;
        got.extend(items);
        after = next;
        if after.is_none() {
            break;
        }
    }
    ensure(got == want, || format!("want {want:?}, got {got:?}"))
}

/// B8: without a container nothing works, and says so.
pub(super) async fn b8_a_missing_container_is_told_apart(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let (blobs, no) = (&store.blobs, Kind::NoResource);
    let path = path(names, "a")?;
    let etag = ETag::new("\"0x1\"");
    let id = lease(env);
    refused(blobs.get(&path).await, no, "get")?;
    for expect in [Expect::Absent, Expect::Version(etag.clone())] {
        let put = blobs.put(&path, body("x"), &expect, None).await;
        refused(put, no, "put")?;
    }
    refused(blobs.delete(&path, &etag).await, no, "delete")?;
    let list = blobs.list(names.container(), "", None).await;
    refused(list, no, "list")?;
    refused(blobs.acquire_lease(&path, id, SECS).await, no, "acquire")?;
    refused(blobs.renew_lease(&path, id).await, no, "renew")?;
    refused(blobs.release_lease(&path, id).await, no, "release")?;
    refused(blobs.break_lease(&path).await, no, "break")?;
    blobs.create_container(names.container()).await?;
    blobs.create_container(names.container()).await?;
    let none = blobs.get(&path).await?;
    ensure(none.is_none(), || format!("nothing was put, got {none:?}"))
}

/// B9: of all callers at once one gets the lease.
pub(super) async fn b9_one_of_many_lessees_wins(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let (path, _) = stored(store, names).await?;
    let replies = at_once(env, |_| {
        let (store, path, id) = (store.clone(), path.clone(), lease(env));
        async move {
            let acquired = store.blobs.acquire_lease(&path, id, 60).await;
            acquired.map(|()| id)
        }
    });
    let (_, id) = one_winner(replies.await?)?;
    store.blobs.acquire_lease(&path, id, 60).await?;
    let other = store.blobs.acquire_lease(&path, lease(env), 60).await;
    refused(other, Kind::Conflict, "lease of a leased blob")?;
    let missing = BlobPath::new(path.container().clone(), "missing")?;
    let acquired = store.blobs.acquire_lease(&missing, id, 60).await;
    refused(acquired, Kind::NotFound, "lease of a missing blob")
}

/// B10: only its holder writes a leased blob; everybody reads it.
pub(super) async fn b10_a_lease_protects_from_other_writers(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let (path, etag) = stored(store, names).await?;
    let blobs = &store.blobs;
    let expect = Expect::Version(etag.clone());
    let id = lease(env);
    blobs.acquire_lease(&path, id, 60).await?;
    for (wrong, when) in [(None, "put without the id"), (Some(lease(env)), "another")] {
        let put = blobs.put(&path, body("x"), &expect, wrong).await;
        refused(put, Kind::Conflict, when)?;
    }
    let delete = blobs.delete(&path, &etag).await;
    refused(delete, Kind::Conflict, "delete without the id")?;
    let blob = read(store, &path).await?;
    ensure(blob.leased && blob.etag == etag, || format!("got {blob:?}"))?;
    let second = blobs.put(&path, body("2"), &expect, Some(id)).await?;
    blobs.release_lease(&path, id).await?;
    let blob = read(store, &path).await?;
    ensure(!blob.leased && blob.etag == second, || {
        format!("released, got {blob:?}")
    })?;
    blobs.delete(&path, &second).await?;
    Ok(())
}

/// B11: a renewed lease outlives its first time; a lost one cannot be renewed.
pub(super) async fn b11_a_renewal_extends_only_ones_own_lease(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let (path, _) = stored(store, names).await?;
    let blobs = &store.blobs;
    let (id, other) = (lease(env), lease(env));
    blobs.acquire_lease(&path, id, SECS).await?;
    let acquired = env.mono();
    env.sleep(LEASE / 2).await;
    let renewing = env.mono();
    blobs.renew_lease(&path, id).await?;
    let stranger = blobs.renew_lease(&path, other).await;
    refused(stranger, Kind::Conflict, "renewal under another id")?;
    while env.mono().since(acquired) <= LEASE + SLACK {
        env.sleep(POLL).await;
    }
    let taken = blobs.acquire_lease(&path, other, SECS).await;
    if env.mono().since(renewing) < LEASE {
        refused(taken, Kind::Conflict, "lease of a blob renewed in time")?;
    }
    blobs.break_lease(&path).await?;
    let broken = blobs.renew_lease(&path, id).await;
    refused(broken, Kind::Conflict, "renewal of a broken lease")?;
    blobs.acquire_lease(&path, other, SECS).await?;
    let lost = blobs.renew_lease(&path, id).await;
    refused(lost, Kind::Conflict, "renewal of a lease taken by another")?;
    blobs.release_lease(&path, other).await?;
    let released = blobs.renew_lease(&path, other).await;
    refused(released, Kind::Conflict, "renewal of a released lease")
}

/// B12: a lease that was released, broken or ran out is free.
pub(super) async fn b12_an_ended_lease_can_be_taken(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let (path, _) = stored(store, names).await?;
    let blobs = &store.blobs;
    let (first, second, third, fourth) = (lease(env), lease(env), lease(env), lease(env));
    blobs.acquire_lease(&path, first, 60).await?;
    blobs.release_lease(&path, first).await?;
    blobs.acquire_lease(&path, second, 60).await?;
    blobs.break_lease(&path).await?;
    let start = env.mono();
    blobs.acquire_lease(&path, third, SECS).await?;
    env.sleep(LEASE / 2).await;
    eventually(env, "the end of the lease", || async {
        match blobs.acquire_lease(&path, fourth, SECS).await {
            Ok(()) => Ok(Some(())),
            Err(error) if error.kind == Kind::Conflict => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await?;
    let held = env.mono().since(start);
    ensure(held + SLACK >= LEASE, || format!("it ended after {held:?}"))
}

/// B13: nothing can be broken where nothing is leased.
pub(super) async fn b13_there_must_be_a_lease_to_break(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let (path, _) = stored(store, names).await?;
    let never = store.blobs.break_lease(&path).await;
    refused(never, Kind::Conflict, "break of a blob never leased")?;
    let id = lease(env);
    store.blobs.acquire_lease(&path, id, SECS).await?;
    store.blobs.release_lease(&path, id).await?;
    let released = store.blobs.break_lease(&path).await;
    refused(released, Kind::Conflict, "break of a released lease")
}

/// B14: a writer that believes in a lease is stopped when there is none.
pub(super) async fn b14_a_put_under_a_lease_that_is_not_there_is_refused(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let (path, etag) = stored(store, names).await?;
    let expect = Expect::Version(etag.clone());
    let id = lease(env);
    let never = store.blobs.put(&path, body("x"), &expect, Some(id)).await;
    refused(never, Kind::Conflict, "put under a lease never taken")?;
    store.blobs.acquire_lease(&path, id, SECS).await?;
    store.blobs.break_lease(&path).await?;
    let broken = store.blobs.put(&path, body("x"), &expect, Some(id)).await;
    refused(broken, Kind::Conflict, "put under a broken lease")?;
    let blob = read(store, &path).await?;
    ensure(blob.etag == etag, || "it was written".to_owned())
}

/// B15: 32 MiB go in and out in one piece.
pub(super) async fn b15_large_bodies_are_kept_whole(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let path = place(store, names).await?;
    let large = (0..=250_u8).cycle().take(32 << 20).collect::<Bytes>();
    let put = store.blobs.put(&path, large.clone(), &Expect::Absent, None);
    let etag = put.await?;
    let blob = read(store, &path).await?;
    ensure(blob.body == large && blob.etag == etag, || {
        format!("{} bytes came back, or others", blob.body.len())
    })
}
