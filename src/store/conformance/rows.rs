//! Clauses R1–R10.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};

use super::{Failure, Namespace, Outcome, at_once, ensure, one_winner, refused};
use crate::env::Env;
use crate::store::{
    ETag, Expect, FIELD_UNITS_MAX, Fields, Kind, Page, Row, RowKey, Store, Table, Value,
};

fn fields<const N: usize>(list: [(&str, Value); N]) -> Fields {
    list.map(|(name, value)| (name.to_owned(), value)).into()
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// A table that is there.
async fn opened<'a>(store: &Store, names: &'a Namespace) -> Result<&'a Table, Failure> {
    store.rows.create_table(names.table()).await?;
    Ok(names.table())
}

async fn insert(store: &Store, table: &Table, key: &RowKey) -> Result<ETag, Failure> {
    let fields = fields([("a", text("first")), ("b", Value::Int(1))]);
    let write = store.rows.write(table, key, &fields, &Expect::Absent);
    Ok(write.await?)
}

async fn read(store: &Store, table: &Table, key: &RowKey) -> Result<Row, Failure> {
    let missing = || Failure::Broken(format!("{key} is missing"));
    store.rows.get(table, key).await?.ok_or_else(missing)
}

/// All rows of a partition, over all pages.
async fn all(store: &Store, table: &Table, partition: &str) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let page = store.rows.query(table, partition, after.as_ref());
        let Page { items, next } = page.await?;
        rows.extend(items);
        after = next;
        if after.is_none() {
            return Ok(rows);
        }
    }
}

/// R1: of all callers at once one inserts.
pub(super) async fn r1_one_of_many_inserters_wins(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let table = opened(store, names).await?;
    let key = RowKey::new("p", "r")?;
    let replies = at_once(env, |caller| {
        let (store, table, key) = (store.clone(), table.clone(), key.clone());
        async move {
            let fields = fields([("by", text(&caller.to_string()))]);
            store
                .rows
                .write(&table, &key, &fields, &Expect::Absent)
                .await
        }
    });
    let (winner, etag) = one_winner(replies.await?)?;
    let row = read(store, table, &key).await?;
    let want = fields([("by", text(&winner.to_string()))]);
    ensure(row.etag == etag && row.fields == want, || {
        format!("caller {winner} won with {etag:?}, stored is {row:?}")
    })?;
    let late = store.rows.write(table, &key, &want, &Expect::Absent).await;
    refused(late, Kind::Conflict, "insert where there is one")
}

/// R2: of all callers at once one merges, and a merge keeps what it does not name.
pub(super) async fn r2_one_of_many_mergers_wins(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    let table = opened(store, names).await?;
    let key = RowKey::new("p", "r")?;
    let expect = Expect::Version(insert(store, table, &key).await?);
    let replies = at_once(env, |caller| {
        let (store, table) = (store.clone(), table.clone());
        let (key, expect) = (key.clone(), expect.clone());
        async move {
            let by = text(&caller.to_string());
            let fields = fields([("a", by.clone()), ("c", by)]);
            store.rows.write(&table, &key, &fields, &expect).await
        }
    });
    let (winner, etag) = one_winner(replies.await?)?;
    let row = read(store, table, &key).await?;
    let by = text(&winner.to_string());
    let want = fields([("a", by.clone()), ("b", Value::Int(1)), ("c", by)]);
    ensure(row.etag == etag && row.fields == want, || {
        format!("caller {winner} won with {etag:?}, stored is {row:?}")
    })?;
    let stale = store.rows.write(table, &key, &want, &expect).await;
    refused(stale, Kind::Conflict, "merge into an old version")?;
    let missing = RowKey::new("p", "missing")?;
    let merge = store.rows.write(table, &missing, &want, &expect).await;
    refused(merge, Kind::Conflict, "merge into a missing row")?;
    let none = store.rows.get(table, &missing).await?;
    ensure(none.is_none(), || "the merge made the row".to_owned())
}

/// R3: all kinds of values come back.
pub(super) async fn r3_get_returns_what_was_written(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let table = opened(store, names).await?;
    let key = RowKey::new("p", "r")?;
    let none = store.rows.get(table, &key).await?;
    ensure(none.is_none(), || format!("nothing written, got {none:?}"))?;
    let want = fields([
        ("text", text("Grüße \u{1f642} <&>\"'\\ \n\t")),
        ("digits", text("0042")),
        ("date", text("2026-01-02T03:04:05Z")),
        ("blank", text("")),
        ("zero", Value::Int(0)),
        ("least", Value::Int(i64::MIN)),
        ("most", Value::Int(i64::MAX)),
        ("beyond_doubles", Value::Int((1 << 53) + 1)),
        ("beyond_32_bits", Value::Int(3_000_000_000)),
        ("yes", Value::Bool(true)),
        ("no", Value::Bool(false)),
    ]);
    let write = store.rows.write(table, &key, &want, &Expect::Absent);
    let etag = write.await?;
    let row = read(store, table, &key).await?;
    ensure(row.key == key && row.etag == etag, || {
        format!("got {row:?}")
    })?;
    ensure(row.fields == want, || {
        format!("want {want:?}, got {:?}", row.fields)
    })
}

/// R4: versions do not repeat, and each is good for the next write.
pub(super) async fn r4_each_write_gives_a_new_version(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let table = opened(store, names).await?;
    let key = RowKey::new("p", "r")?;
    let mut etag = insert(store, table, &key).await?;
    let mut seen = BTreeSet::from([etag.as_str().to_owned()]);
    for _ in 0..5 {
        let same = fields([("a", text("first"))]);
        let expect = Expect::Version(etag);
        etag = store.rows.write(table, &key, &same, &expect).await?;
        ensure(seen.insert(etag.as_str().to_owned()), || {
            format!("{etag:?} was given twice")
        })?;
    }
    let row = read(store, table, &key).await?;
    ensure(row.etag == etag, || {
        format!("write returned {etag:?}, get {:?}", row.etag)
    })
}

/// R5: another version survives a delete.
pub(super) async fn r5_delete_removes_only_the_version_named(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let table = opened(store, names).await?;
    let key = RowKey::new("p", "r")?;
    let first = insert(store, table, &key).await?;
    let expect = Expect::Version(first.clone());
    let change = fields([("a", text("second"))]);
    let second = store.rows.write(table, &key, &change, &expect).await?;
    let stale = store.rows.delete(table, &key, &first).await;
    refused(stale, Kind::Conflict, "delete of an old version")?;
    let row = read(store, table, &key).await?;
    ensure(row.etag == second, || "it was changed".to_owned())?;
    store.rows.delete(table, &key, &second).await?;
    let gone = store.rows.get(table, &key).await?;
    ensure(gone.is_none(), || "it is still there".to_owned())?;
    let again = store.rows.delete(table, &key, &second).await;
    refused(again, Kind::NotFound, "delete of a missing row")
}

/// R6: a query is complete, ordered and keeps to its partition. More rows than one page of any service holds.
pub(super) async fn r6_query_gives_every_row_of_the_partition_once_in_order(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let table = opened(store, names).await?;
    let many = (0..1_100).map(|n| format!("n{n}"));
    let odd = ["A", "_", "a", "a-1", "z"].map(str::to_owned);
    let mut want: Vec<String> = odd.into_iter().chain(many).collect();
    let mut keys = Vec::new();
    for row in &want {
        keys.push(RowKey::new("p", row.as_str())?);
    }
    for partition in ["o", "P", "p0", "pp", "q"] {
        keys.push(RowKey::new(partition, "a")?);
    }
    let inserts: Vec<_> = keys
        .iter()
        .map(|key| insert(store, table, key).boxed())
        .collect();
    stream::iter(inserts)
        .buffer_unordered(16)
        .try_collect::<Vec<ETag>>()
        .await?;
    want.sort();
    let rows = all(store, table, "p").await?;
    let got: Vec<&str> = rows.iter().map(|row| row.key.row()).collect();
    ensure(got == want, || format!("want {want:?}, got {got:?}"))?;
    let foreign = rows.iter().find(|row| row.key.partition() != "p");
    ensure(foreign.is_none(), || format!("got {foreign:?}"))?;
    let none = all(store, table, "nobody").await?;
    ensure(none.is_empty(), || format!("got {none:?}"))
}

/// R7: without a table nothing works, and says so.
pub(super) async fn r7_a_missing_table_is_told_apart(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let (rows, table, no) = (&store.rows, names.table(), Kind::NoResource);
    let key = RowKey::new("p", "r")?;
    let etag = ETag::new("W/\"datetime'2026-01-02T03%3A04%3A05.0000000Z'\"");
    let fields = fields([("a", Value::Bool(true))]);
    refused(rows.get(table, &key).await, no, "get")?;
    for expect in [Expect::Absent, Expect::Version(etag.clone())] {
        let write = rows.write(table, &key, &fields, &expect).await;
        refused(write, no, "write")?;
    }
    refused(rows.delete(table, &key, &etag).await, no, "delete")?;
    refused(rows.query(table, "p", None).await, no, "query")?;
    rows.create_table(table).await?;
    rows.create_table(table).await?;
    let none = rows.get(table, &key).await?;
    ensure(none.is_none(), || format!("nothing written, got {none:?}"))
}

/// R8: the limit of a text is exact, and counted in UTF-16 units.
pub(super) async fn r8_texts_end_at_32_ki_units(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let table = opened(store, names).await?;
    // One letter of one unit and three bytes, one of two units and four bytes.
    for (n, letter, units) in [(0, "漢", 1), (1, "\u{1f642}", 2)] {
        let key = RowKey::new("p", n.to_string())?;
        let full = letter.repeat(FIELD_UNITS_MAX / units);
        let above = fields([("a", Value::Text(format!("{full}x")))]);
        let write = store.rows.write(table, &key, &above, &Expect::Absent);
        refused(write.await, Kind::Invalid, "a text above the limit")?;
        let exact = fields([("a", Value::Text(full))]);
        store
            .rows
            .write(table, &key, &exact, &Expect::Absent)
            .await?;
        let row = read(store, table, &key).await?;
        ensure(row.fields == exact, || "the text changed".to_owned())?;
    }
    Ok(())
}

/// R9: keys with letters that addresses and filters treat specially.
pub(super) async fn r9_keys_keep_their_spelling(
    store: &Store,
    names: &Namespace,
    _env: &Env,
) -> Outcome {
    let table = opened(store, names).await?;
    let odd = [
        "it's",
        "''",
        "a b",
        "50%",
        "%27",
        "a+b",
        "a&b=c",
        "Grüße 漢字 \u{1f642}",
        "(x),y",
    ];
    let mut stored = BTreeSet::new();
    for part in odd {
        let key = RowKey::new(part, part)?;
        let etag = insert(store, table, &key).await?;
        let row = read(store, table, &key).await?;
        ensure(row.key == key, || format!("want {key}, got {}", row.key))?;
        let change = fields([("a", text(part))]);
        let expect = Expect::Version(etag);
        let etag = store.rows.write(table, &key, &change, &expect).await?;
        stored.insert((key, etag.as_str().to_owned()));
    }
    for part in odd {
        let rows = all(store, table, part).await?;
        let keys: Vec<(&str, &str)> = rows
            .iter()
            .map(|row| (row.key.partition(), row.key.row()))
            .collect();
        ensure(keys == [(part, part)], || {
            format!("query of `{part}` gave {keys:?}")
        })?;
    }
    for (key, etag) in stored {
        store.rows.delete(table, &key, &ETag::new(etag)).await?;
    }
    Ok(())
}

/// R10: the time of a change and that of the reply can be compared.
pub(super) async fn r10_times_are_of_one_clock(
    store: &Store,
    names: &Namespace,
    env: &Env,
) -> Outcome {
    // A reply's time may be given in whole seconds.
    const ROUNDING: Duration = Duration::from_secs(2);
    let table = opened(store, names).await?;
    let key = RowKey::new("p", "r")?;
    let start = env.mono();
    insert(store, table, &key).await?;
    let row = read(store, table, &key).await?;
    let between = env.mono().since(start) + ROUNDING;
    let apart = row.read_at.duration_since(row.changed_at).unsigned_abs();
    ensure(apart <= between, || {
        format!("changed {}, read {}", row.changed_at, row.read_at)
    })
}
