//! The numbered clauses of `docs/protocol.md` that more than one service keeps: where things are stored, and how state, leadership,
//! rows and messages are written so that a lost reply, a rival or a crash loses nothing.

mod cell;
mod claim;
mod fence;
mod inbox;
mod journal;
mod layout;
mod leadership;
mod outbox;
mod patience;
mod projection;
mod read;
mod row;
mod send;
#[cfg(test)]
mod tests;

pub use cell::{Cell, Swap};
pub use claim::{
    CLAIM_SLACK, FoundClaim, Judged, delete_claim, found_claim, judge, list_claims, meet_claim,
    read_claim, readable_claim, write_claim,
};
pub use fence::{Fence, Loss};
pub use inbox::{Delivery, Settled, carry_out, keep_poison};
pub use journal::{journal_day, note};
pub use layout::{Execution, Layout, LayoutError};
pub use leadership::{Candidate, Leader, Leadership, Try, break_lease, leader, try_to_lead};
pub use outbox::Outbox;
pub use patience::{PAUSE_MAX, Pauses, patiently};
pub use projection::{Projection, Shown};
pub use read::{
    FoundRow, Kept, ReadError, Stored, found, read_blob, read_definition, read_head, read_row,
    read_runtime, read_sides, read_state, read_state_again, store_errors, understand,
    understand_state,
};
pub use row::{fields_of, record_of};
pub use send::send;
