//! The items of the answer to a `_bulk`.

use bytes::Bytes;
use serde_json::{Value, json};

use super::fault::Refusal;

/// Returns the answer with a refusal for every successful write.
///
/// `None` if the text is not an answer to a `_bulk`, or if no write succeeded. Verifies (an
/// `update` that changes nothing) stay unchanged.
pub(crate) fn refused(body: &[u8], refusal: Refusal) -> Option<Bytes> {
    let mut answer: Value = serde_json::from_slice(body).ok()?;
    let (status, kind) = refusal.words();
    let mut any = false;
    for item in answer.get_mut("items")?.as_array_mut()? {
        for (_, result) in item.as_object_mut()? {
            let succeeded = result["status"].as_u64().is_some_and(|status| status < 300);
            if !succeeded || result["result"] == "noop" {
                continue;
            }
            any = true;
            let error = json!({"type": kind, "reason": "refused by the proxy"});
            *result = json!({
                "_index": result["_index"], "_id": result["_id"], "status": status, "error": error,
            });
        }
    }
    if !any {
        return None;
    }
    answer["errors"] = Value::Bool(true);
    serde_json::to_vec(&answer).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_succeeded_are_refused_and_nothing_else() {
        let body = json!({"took": 1, "errors": true, "items": [
            {"index": {"_index": "a", "_id": "1", "_seq_no": 5, "_primary_term": 1, "result": "updated", "status": 200}},
            {"create": {"_index": "a", "_id": "2", "status": 409, "error": {"type": "version_conflict_engine_exception"}}},
            {"update": {"_index": "a", "_id": "3", "result": "noop", "status": 200}},
        ]});
        for refusal in Refusal::ALL {
            let (status, kind) = refusal.words();
            let answer = refused(body.to_string().as_bytes(), refusal).expect("one was written");
            let answer: Value = serde_json::from_slice(&answer).expect("JSON");
            assert_eq!(answer["errors"], true);
            let item = &answer["items"][0]["index"];
            assert_eq!((&item["status"], &item["error"]["type"]), (&json!(status), &json!(kind)));
            assert_eq!((&item["_id"], &item["_seq_no"]), (&json!("1"), &Value::Null));
            assert_eq!(answer["items"][1], body["items"][1]);
            assert_eq!(answer["items"][2], body["items"][2]);
        }
        assert_eq!(refused(b"{\"items\":[]}", Refusal::Blocked), None);
        assert_eq!(refused(b"not JSON", Refusal::Blocked), None);
    }
}
