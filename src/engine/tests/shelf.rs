//! A state as its leader lays it out in storage, and back.

use std::collections::BTreeMap;

use super::*;
use crate::record::{Ledger, Limits, Side};

/// The runtime blob of one workflow and what is beside it.
pub(super) struct Shelf {
    limits: Limits,
    ledger: Ledger,
    head: Vec<u8>,
    snapshots: BTreeMap<Stamp, Vec<u8>>,
    details: BTreeMap<Stamp, Vec<u8>>,
    writes: u128,
    /// Bytes written so far.
    pub(super) bytes: usize,
}

impl Shelf {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            ledger: Ledger::new(limits),
            head: Vec::new(),
            snapshots: BTreeMap::new(),
            details: BTreeMap::new(),
            writes: 0,
            bytes: 0,
        }
    }

    /// Stores the state.
    pub(super) fn put(&mut self, runtime: &mut Runtime) {
        self.writes += 1;
        let touched = runtime.take_touched();
        let mut record = RuntimeRecord {
            stamp: Stamp::new(uuid::Uuid::from_u128(self.writes)),
            ..headed(runtime)
        };
        for side in self.ledger.lay(&mut record, runtime, &touched) {
            let (kind, json) = match &side {
                Side::Snapshot(snapshot) => (&mut self.snapshots, encode(snapshot)),
                Side::Details(details) => (&mut self.details, encode(details)),
            };
            self.bytes += json.len();
            kind.insert(record.stamp, json);
        }
        self.head = encode(&record);
        self.bytes += self.head.len();
    }

    /// Reads it, as the next leader does.
    pub(super) fn get(&self) -> (RuntimeRecord, Ledger) {
        let record: RuntimeRecord = decode(&self.head).unwrap();
        let packed = record.packed.clone().unwrap_or_default();
        let snapshot = packed.snapshot.map(|stamp| &self.snapshots[&stamp]);
        let snapshot: Option<crate::record::SnapshotRecord> =
            snapshot.map(|json| decode(json).unwrap());
        let before = snapshot.iter().flat_map(|snapshot| &snapshot.details);
        let stamps = before.chain(&packed.details);
        let details = stamps.map(|stamp| decode(&self.details[stamp]).unwrap());
        let details = details.collect();
        Ledger::read(self.limits, record, snapshot, details).unwrap()
    }

    /// Takes the state up again.
    pub(super) fn load(&mut self, graph: Arc<Graph>, changes: &mut Changes) -> Runtime {
        let (record, ledger) = self.get();
        self.ledger = ledger;
        record.runtime(graph, changes).unwrap()
    }
}
