//! Writes that land after the life of the id that they belong to.

use super::purging::config;
use super::*;
use crate::protocol::read_definition;

/// A workflow that was purged, by a leader that is gone; then its final row landed again. Returns its definition.
async fn purged_but_for_a_late_row(world: &World) -> DefinitionRecord {
    let (first, _) = world.coordinator(config("one/1"));
    let (id, _) = world.ended_with_all().await;
    let row = read_row(&world.store, &world.layout, &id).await;
    let fields = row.expect("memory").expect("final").row.fields;
    let definition = read_definition(&world.store, &world.layout, &id).await;
    world.ask(&id, ControlAction::Purge).await;
    world.purged(&id).await;
    killed(first).await;
    let key = world.layout.done_row(&id);
    let rows = &world.store.rows;
    rows.write(world.layout.index(), &key, &fields, &Expect::Absent)
        .await
        .expect("a late write");
    definition.expect("memory").expect("submitted").record
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_written_after_the_end_of_its_purge_is_removed() {
    let world = World::new().await;
    let definition = purged_but_for_a_late_row(&world).await;
    let (_second, _) = world.coordinator(config("two/1"));
    world.purged(&definition.workflow_id).await;
}

/// Whoever submitted again never learnt that its definition is stored.
#[tokio::test(flavor = "multi_thread")]
async fn a_definition_beside_the_late_row_of_a_purged_run_is_taken_up() {
    let world = World::new().await;
    let mut definition = purged_but_for_a_late_row(&world).await;
    let id = definition.workflow_id.clone();
    definition.run_id = RunId::new(world.env.uuid());
    let path = world.layout.definition(&id);
    world.put(&path, encode(&definition)).await;
    let (_second, _) = world.coordinator(config("two/1"));
    let shown = world.until("the row of the new run", async || {
        let row = read_row(&world.store, &world.layout, &id).await;
        let row = row.expect("memory")?;
        (row.record.run_id == definition.run_id && !row.is_open()).then_some(row.record.status)
    });
    assert_eq!(shown.await, Status::Completed);
}
