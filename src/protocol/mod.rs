//! The numbered clauses of `docs/protocol.md` that more than one service keeps: where things are stored, and how state, leadership,
//! rows and messages are written so that a lost reply, a rival or a crash loses nothing.

mod claim;
mod layout;
mod read;
mod row;
mod send;

pub use claim::{
    CLAIM_SLACK, FoundClaim, Judged, delete_claim, found_claim, judge, list_claims, read_claim,
    write_claim,
};
pub use layout::{Execution, Layout, LayoutError};
pub use read::{
    FoundRow, ReadError, Stored, found, read_blob, read_definition, read_row, read_runtime,
};
pub use row::{fields_of, record_of};
pub use send::send;
