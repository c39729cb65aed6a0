//! Events from rows of the tables.

use serde_json::value::RawValue;
use tokio_postgres::Row;

use crate::error::{OutboxError, Result};
use crate::queue::event::{DeadLetter, Event};
use crate::queue::name::QueueName;

/// The newest known format of rows.
const NEWEST: i32 = 1;

/// The columns of an event, and the epoch at the same moment.
///
/// The query does not read a payload beyond the limit.
pub(super) const EVENT: &str = "topic, key, sequence, format, id, \
     CASE WHEN bytes <= (SELECT max_payload FROM txn_outbox.settings) THEN payload::text END, \
     emitted_ms, failures, error, died_ms, mark::text, (SELECT epoch::text FROM txn_outbox.settings), unfinished, bytes";

pub(super) fn check_format(document: &str, format: i32) -> Result<()> {
    match format > NEWEST {
        true => Err(OutboxError::NewerFormat {
            document: document.to_owned(),
            format: format.unsigned_abs(),
        }),
        false => Ok(()),
    }
}

/// The event of a row with the columns of [`EVENT`].
///
/// # Errors
/// [`OutboxError::NewerFormat`], or [`OutboxError::Database`] if the row has unexpected values.
pub(super) fn event_of(row: &Row) -> Result<Event> {
    let id = id_of(row)?;
    check_format(&format!("the row {id:?} of txn_outbox.event"), column(row, 3)?)?;
    let (payload, unfit) = match column::<Option<String>>(row, 5)?.map(RawValue::from_string) {
        Some(Ok(payload)) => (payload, None),
        Some(Err(why)) => {
            (RawValue::NULL.to_owned(), Some(format!("its payload is unreadable: {why}")))
        }
        None => {
            let bytes = column::<Option<i64>>(row, 13)?.unwrap_or_default();
            let why = format!(
                "its payload has {bytes} bytes, more than max_payload of txn_outbox.settings: raise that, and try it again"
            );
            (RawValue::NULL.to_owned(), Some(why))
        }
    };
    let (sequence, emitted_ms) = (unsigned(column(row, 2)?), unsigned(column(row, 6)?));
    let failures = u32::try_from(column::<i32>(row, 7)?).unwrap_or_default();
    let event = Event::new(id, queue_of(row)?, sequence, emitted_ms, failures, payload);
    let unfinished = u32::try_from(column::<i32>(row, 12)?).unwrap_or_default();
    let mark = Some(column::<String>(row, 10)?.into());
    Ok(Event { mark, unfinished, unfit: unfit.map(Into::into), ..event })
}

/// The dead letter of a row with the columns of [`EVENT`].
pub(super) fn dead_letter_of(row: &Row) -> Result<DeadLetter> {
    let error: Option<String> = column(row, 8)?;
    let died_ms = unsigned(column::<Option<i64>>(row, 9)?.unwrap_or(0));
    Ok(DeadLetter { event: event_of(row)?, error: error.unwrap_or_default(), died_ms })
}

/// The event id of a row with the columns of [`EVENT`].
pub(super) fn id_of(row: &Row) -> Result<String> {
    column(row, 4)
}

/// The epoch of a row with the columns of [`EVENT`].
///
/// The epoch belongs to the same moment as the row.
pub(super) fn epoch_of(row: &Row) -> Result<Option<String>> {
    column(row, 11)
}

/// The queue of a row that begins with topic and key.
pub(super) fn queue_of(row: &Row) -> Result<QueueName> {
    QueueName::new(&column::<String>(row, 0)?, &column::<String>(row, 1)?)
}

pub(super) fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    at: usize,
) -> Result<T> {
    row.try_get(at).map_err(|error| OutboxError::Database {
        what: format!("it is not what this version expects: column {at} of an answer"),
        source: Some(Box::new(error)),
    })
}

/// Converts a number, because the database has only signed ones.
pub(super) fn number(number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|_| OutboxError::Database {
        what: format!("{number} does not fit into its numbers"),
        source: None,
    })
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
