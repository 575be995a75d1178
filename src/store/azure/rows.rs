//! Rows of tables.
//!
//! Invariants:
//! 1. Keys keep their spelling: the table crate puts them into addresses and filters as they are, so apostrophes are doubled here.
//! 2. Every number is a 64-bit one, whose wire form is a text with a type beside it.
//! 3. What leaves is plain ASCII: the emulator breaks a letter that lies across two pieces of a request.
//! 4. Limits are those of Azure, checked before sending: the emulator counts otherwise.

use std::fmt::Write as _;

use async_trait::async_trait;
use azure_core::error::{Error, ErrorKind};
use azure_core::prelude::Continuable;
use azure_data_tables::IfMatchCondition;
use azure_data_tables::clients::{EntityClient, TableServiceClient};
use futures::StreamExt;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

use super::call::{Call, Caller};
use crate::env::Timestamp;
use crate::store::{
    Continuation, ETag, Expect, FIELD_UNITS_MAX, Fields, Kind, Page, Result, Row, RowKey, Rows,
    Table, Value,
};

/// Most fields of a row, beside its keys and time.
const FIELDS_MAX: usize = 252;
/// Largest row in bytes as Azure counts them: two for each UTF-16 unit.
const ROW_BYTES_MAX: usize = 1 << 20;
/// Rows of one page.
const PAGE_ROWS: u32 = 1000;

type Entity = Map<String, Json>;

/// Table storage of one account.
#[derive(Debug)]
pub(super) struct AzureRows {
    client: TableServiceClient,
    caller: Caller,
}

impl AzureRows {
    pub(super) const fn new(client: TableServiceClient, caller: Caller) -> Self {
        Self { client, caller }
    }

    fn entity(&self, table: &Table, key: &RowKey) -> EntityClient {
        self.client
            .table_client(table.as_str())
            .partition_key_client(quoted(key.partition()))
            .entity_client(quoted(key.row()))
    }
}

/// A text between apostrophes.
fn quoted(text: &str) -> String {
    text.replace('\'', "''")
}

fn utf16(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Checks fields against the limits of Azure, some of which the emulator does not keep.
fn check(call: &Call, key: &RowKey, fields: &Fields) -> Result<()> {
    let refuse = |detail: String| Err(call.refused(Kind::Invalid, detail));
    if fields.len() > FIELDS_MAX {
        return refuse(format!("{} fields are above {FIELDS_MAX}", fields.len()));
    }
    let mut bytes = 4 + 2 * (utf16(key.partition()) + utf16(key.row()));
    for (name, value) in fields {
        let mut chars = name.chars();
        let plain = chars.next().is_some_and(|c| c.is_ascii_alphabetic())
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
            && name.len() <= 255
            && !matches!(name.as_str(), "PartitionKey" | "RowKey" | "Timestamp");
        if !plain {
            return refuse(format!("`{name}` is not the name of a field"));
        }
        bytes += 8 + 2 * name.len();
        bytes += match value {
            Value::Text(text) => {
                let units = utf16(text);
                if units > FIELD_UNITS_MAX {
                    return refuse(format!(
                        "field `{name}` has {units} UTF-16 units, above {FIELD_UNITS_MAX}"
                    ));
                }
                4 + 2 * units
            }
            Value::Int(_) => 8,
            Value::Bool(_) => 1,
        };
    }
    if bytes > ROW_BYTES_MAX {
        return refuse(format!("a row of {bytes} bytes is above {ROW_BYTES_MAX}"));
    }
    Ok(())
}

/// The wire form of a row, or of its fields alone; plain ASCII.
fn encode(key: Option<&RowKey>, fields: &Fields) -> Box<RawValue> {
    let mut entity = Entity::new();
    if let Some(key) = key {
        entity.insert("PartitionKey".to_owned(), key.partition().into());
        entity.insert("RowKey".to_owned(), key.row().into());
    }
    for (name, value) in fields {
        let json = match value {
            Value::Text(text) => Json::from(text.as_str()),
            Value::Bool(bool) => Json::from(*bool),
            Value::Int(int) => {
                entity.insert(format!("{name}@odata.type"), "Edm.Int64".into());
                Json::from(int.to_string())
            }
        };
        entity.insert(name.clone(), json);
    }
    let mut plain = String::new();
    for c in Json::Object(entity).to_string().chars() {
        if c.is_ascii() {
            plain.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(plain, "\\u{unit:04x}").expect("a String takes all text");
        }
    }
    RawValue::from_string(plain)
        .expect("letters in JSON stand in texts, where an escape is as good")
}

/// A row from its wire form. Fields of types that are not written here are left out.
fn decode(entity: &Entity, etag: Option<&str>, read_at: Timestamp) -> Option<Row> {
    let text = |name: &str| entity.get(name).and_then(Json::as_str);
    let key = RowKey::new(text("PartitionKey")?, text("RowKey")?).ok()?;
    let mut fields = Fields::new();
    for (name, value) in entity {
        if name.contains("odata.")
            || matches!(name.as_str(), "PartitionKey" | "RowKey" | "Timestamp")
        {
            continue;
        }
        let value = match (value, text(&format!("{name}@odata.type"))) {
            (Json::String(text), Some("Edm.Int64")) => Value::Int(text.parse().ok()?),
            (Json::String(text), None | Some("Edm.String")) => Value::Text(text.clone()),
            (Json::Bool(bool), _) => Value::Bool(*bool),
            (Json::Number(number), None | Some("Edm.Int32")) if number.is_i64() => {
                Value::Int(number.as_i64()?)
            }
            (_, _) => continue,
        };
        fields.insert(name.clone(), value);
    }
    Some(Row {
        key,
        etag: ETag::new(etag.or_else(|| text("odata.etag"))?),
        fields,
        changed_at: text("Timestamp")?.parse().ok()?,
        read_at,
    })
}

const NOT_UNDERSTOOD: &str = "a row without its keys, version or time";

#[async_trait]
impl Rows for AzureRows {
    async fn create_table(&self, table: &Table) -> Result<()> {
        let call = Call::write(format!("create table {table}"), 0);
        let client = self.client.table_client(table.as_str());
        let made = self.caller.run(&call, |context| {
            client.create().context(context).into_future()
        });
        match made.await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == Kind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn get(&self, table: &Table, key: &RowKey) -> Result<Option<Row>> {
        let call = Call::read(format!("get row {table}/{key}"));
        let client = self.entity(table, key);
        let read = self.caller.run(&call, |context| {
            client.get::<Entity>().context(context).into_future()
        });
        let (read, reply) = match read.await {
            Ok(read) => read,
            Err(error) if error.kind == Kind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let read_at = call.service_time(&reply)?;
        decode(&read.entity, Some(read.etag.as_ref()), read_at)
            .map(Some)
            .ok_or_else(|| call.refused(Kind::Corrupt, NOT_UNDERSTOOD))
    }

    async fn write(
        &self,
        table: &Table,
        key: &RowKey,
        fields: &Fields,
        expect: &Expect,
    ) -> Result<ETag> {
        let call = Call::write(format!("write row {table}/{key}"), 0);
        check(&call, key, fields)?;
        let invalid = |error: Error| call.refused(Kind::Invalid, error.to_string());
        match expect {
            Expect::Absent => {
                let entity = encode(Some(key), fields);
                let client = self.client.table_client(table.as_str());
                let builder = client.insert::<_, Entity>(entity).map_err(invalid)?;
                let inserted = self
                    .caller
                    .run(&call, |context| builder.context(context).into_future());
                let (inserted, _) = inserted.await?;
                Ok(ETag::new(inserted.etag.to_string()))
            }
            Expect::Version(etag) => {
                let condition = IfMatchCondition::Etag(etag.as_str().into());
                let client = self.entity(table, key);
                let builder = client
                    .merge(encode(None, fields), condition)
                    .map_err(invalid)?;
                let merged = self
                    .caller
                    .run(&call, |context| builder.context(context).into_future());
                match merged.await {
                    Ok((merged, _)) => Ok(ETag::new(merged.etag.to_string())),
                    // Not there, so not in the version that was expected.
                    Err(mut error) if error.kind == Kind::NotFound => {
                        error.kind = Kind::Conflict;
                        Err(error)
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    async fn delete(&self, table: &Table, key: &RowKey, etag: &ETag) -> Result<()> {
        let call = Call::write(format!("delete row {table}/{key}"), 0);
        let builder = self
            .entity(table, key)
            .delete()
            .if_match(IfMatchCondition::Etag(etag.as_str().into()));
        self.caller
            .run(&call, |context| builder.context(context).into_future())
            .await?;
        Ok(())
    }

    async fn query(
        &self,
        table: &Table,
        partition: &str,
        after: Option<&Continuation>,
    ) -> Result<Page<Row>> {
        let call = Call::read(format!("query rows {table}/{partition}"));
        let mut builder = self
            .client
            .table_client(table.as_str())
            .query()
            .filter(format!("PartitionKey eq '{}'", quoted(partition)))
            .top(PAGE_ROWS);
        if let Some(Continuation(place)) = after {
            let (partition, row): (String, Option<String>) = serde_json::from_str(place)
                .ok()
                .ok_or_else(|| call.refused(Kind::Invalid, "not a place where a page ended"))?;
            builder = builder.initial_partition_key(partition);
            if let Some(row) = row {
                builder = builder.initial_row_key(row);
            }
        }
        let queried = self.caller.run(&call, |context| async move {
            let mut pages = builder.context(context).into_stream::<Entity>();
            pages
                .next()
                .await
                .unwrap_or_else(|| Err(Error::message(ErrorKind::DataConversion, "no page")))
        });
        let (page, reply) = queried.await?;
        let read_at = call.service_time(&reply)?;
        let items = page
            .entities
            .iter()
            .map(|entity| decode(entity, None, read_at))
            .collect::<Option<_>>()
            .ok_or_else(|| call.refused(Kind::Corrupt, NOT_UNDERSTOOD))?;
        let next = page.continuation().map(|place| {
            Continuation(serde_json::to_string(&place).expect("two texts are always JSON"))
        });
        Ok(Page { items, next })
    }
}
