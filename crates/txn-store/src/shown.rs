//! `Debug` output of types with documents.
//!
//! Shows the length of a body, to keep bodies out of logs.

use std::fmt;

use crate::embedded::Decision;
use crate::{CollectionSpec, Page, Read, WriteOp};

/// Replaces a body in `Debug` output.
pub(crate) struct Length(pub(crate) usize);

impl fmt::Debug for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { version, source } => {
                let source = Length(source.len());
                f.debug_struct("Found").field("version", version).field("source", &source).finish()
            }
            Self::Absent => f.write_str("Absent"),
            Self::MissingCollection => f.write_str("MissingCollection"),
            Self::Unavailable(error) => f.debug_tuple("Unavailable").field(error).finish(),
        }
    }
}

impl fmt::Debug for WriteOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = Length(self.source_len());
        match self {
            Self::Create(_) => f.debug_tuple("Create").field(&source).finish(),
            Self::Replace(_, version) => {
                f.debug_tuple("Replace").field(&source).field(version).finish()
            }
            Self::Delete(version) => f.debug_tuple("Delete").field(version).finish(),
            Self::Check(_) => f.debug_tuple("Check").field(&source).finish(),
            Self::Verify(expected) => f.debug_tuple("Verify").field(expected).finish(),
        }
    }
}

impl fmt::Debug for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(outcome) => f.debug_tuple("Answer").field(outcome).finish(),
            Self::Put(source) => f.debug_tuple("Put").field(&Length(source.len())).finish(),
            Self::Remove => f.write_str("Remove"),
        }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { documents, next } = self;
        let documents: Vec<_> = documents
            .iter()
            .map(|(key, version, source)| (key, version, Length(source.len())))
            .collect();
        f.debug_struct("Page").field("documents", &documents).field("next", next).finish()
    }
}

impl fmt::Debug for CollectionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, role, create, mappings } = self;
        let mappings = mappings.as_ref().map(|mappings| Length(mappings.len()));
        f.debug_struct("CollectionSpec")
            .field("name", name)
            .field("role", role)
            .field("create", create)
            .field("mappings", &mappings)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn debug_hides_bodies() {
        let source: Source = r#"{"card":"4929123412341234"}"#.into();
        let (key, version) = (Key::new("a", "1"), Version::new(1, 2));
        let writes = [
            WriteOp::Create(source.clone()),
            WriteOp::Replace(source.clone(), version),
            WriteOp::Check(source.clone()),
            WriteOp::Delete(version),
            WriteOp::Verify(Some(version)),
        ]
        .map(|op| Write::new(key.clone(), op));
        let page = Page { documents: vec![(key, version, source.clone())], next: None };
        let spec = CollectionSpec {
            name: "a".to_owned(),
            role: Role::Registry,
            create: true,
            mappings: Some(source.clone()),
        };
        let read = Read::Found { version, source: source.clone() };
        let decisions =
            [embedded::Decision::Put(&source), embedded::Decision::Answer(Outcome::Holds)];
        let shown = format!("{read:?} {writes:?} {page:?} {spec:?} {decisions:?}");
        assert!(!shown.contains("4929") && !shown.contains("card"), "{shown}");
        assert_eq!(shown.matches("27 bytes").count(), 7, "{shown}");
        for kept in
            ["a/1", "Create", "Replace", "Check", "Delete", "Verify", "seq_no: 2", "Registry"]
        {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
    }

    #[tokio::test]
    async fn memory_store_debug_hides_documents() {
        let store = MemoryStore::new();
        let (name, role) = ("a".to_owned(), Role::Registry);
        let spec = CollectionSpec { name, role, create: true, mappings: None };
        store.open_collection(&spec).await.unwrap();
        let create = WriteOp::Create(r#"{"card":"4929"}"#.into());
        let outcomes = store.write_many(&[Write::new(Key::new("a", "1"), create)]).await;
        assert!(matches!(outcomes[0], Outcome::Applied(_)));
        let shown = format!("{store:?}");
        assert!(!shown.contains("4929") && shown.contains("documents: 1"), "{shown}");
    }

    #[test]
    fn values_without_a_body_are_shown() {
        let error = StoreError::new(StoreErrorKind::Denied, "no");
        assert_eq!(format!("{:?}", Read::Absent), "Absent");
        assert_eq!(format!("{:?}", Read::MissingCollection), "MissingCollection");
        let shown = r#"Unavailable(StoreError { kind: Denied, message: "no" })"#;
        assert_eq!(format!("{:?}", Read::Unavailable(error)), shown);
    }
}
