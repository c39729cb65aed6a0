use proptest::prelude::*;

use super::*;

/// Reasons of real servers, and the expected output. `@` marks a value.
const SEEN: &[(&str, &str)] = &[
    (
        "[1:6] failed to parse field [n] of type [long] in document with id '1'. Preview of field's value: '@'",
        "[1:6] failed to parse field [n] of type [long] in document with id '1'",
    ),
    ("For input string: \"@\"", ""),
    (
        "[1:22] Numeric value (@) out of range of int (-2147483648 - 2147483647)\n at [Source: (byte[])\"{\"i\":@}\"; line: 1, column: 22]",
        "[1:22] Numeric value (...) out of range of int ...",
    ),
    (
        "Numeric value (@) out of range of `long` (-9223372036854775808 - 9223372036854775807)\n at [Source: REDACTED",
        "Numeric value (...) out of range of `long` ...",
    ),
    ("Value [@] is out of range for an integer", "Value [...] is out of range for an integer"),
    ("Value [@] is out of range for a byte", "Value [...] is out of range for a byte"),
    ("Value [@] has a decimal part", "Value [...] has a decimal part"),
    (
        "@ cannot be converted to Integer without data loss",
        "... cannot be converted to Integer without data loss",
    ),
    ("unsupported symbol [@] in geohash [@]", "unsupported symbol [...] in geohash [...]"),
    ("illegal latitude value [@] for g", "illegal latitude value [...] for g"),
    ("illegal longitude value [@] for g", "illegal longitude value [...] for g"),
    (
        "[1:20] failed to parse: illegal latitude value [@] for g",
        "[1:20] failed to parse: illegal latitude value [...] for g",
    ),
    (
        "field [@] not supported - must be one of: lon, lat, z, type, coordinates",
        "field ... not supported - must be one of",
    ),
    (
        "failed to parse date field [@] with format [strict_date_optional_time||epoch_millis]",
        "failed to parse date field [...] with format [strict_date_optional_time||epoch_millis]",
    ),
    (
        "Failed to parse value [@] as only [true] or [false] are allowed.",
        "Failed to parse value [...] as only [true] or [false] are allowed",
    ),
    ("'@' is not an IP string literal.", "'...' is not an IP string literal"),
    (
        "[1:18] error parsing field [r], with unknown parameter [@]",
        "[1:18] error parsing field [r], with unknown parameter ...",
    ),
    (
        "min value (@) is greater than max value (@)",
        "min value (...) is greater than max value (...)",
    ),
    (
        "[half_float] supports only finite values, but got [@]",
        "[half_float] supports only finite values",
    ),
    (
        "[constant_keyword] field [ck] only accepts values that are equal to the value defined in the mappings [x], but got [@]",
        "[constant_keyword] field [ck] only accepts values that are equal to the value defined in the mappings ...",
    ),
    ("unknown join name [@] for field [j]", "unknown join name [...] for field [j]"),
    (
        "[1:28] failed to parse: weight must be an integer, but was [@]",
        "[1:28] failed to parse: weight must be an integer",
    ),
    (
        "failed to parse: weight must be in the interval [0..2147483647], but was [@]",
        "failed to parse: weight must be in the interval ...",
    ),
    (
        "[1:7] failed to parse: unknown field name [@], must be one of [contexts, weight, input]",
        "[1:7] failed to parse: unknown field name ...",
    ),
    (
        "The [cosine] similarity does not support vectors with zero magnitude. Preview of invalid vector: [@]",
        "The [cosine] similarity does not support vectors with zero magnitude",
    ),
    (
        "featureValue must be a positive normal float, got: @ for feature @ on field mp which is less than the minimum",
        "featureValue must be a positive normal float, ...",
    ),
    (
        "date[@] is before the epoch in 1970 and cannot be stored in nanosecond resolution",
        "date[...] is before the epoch in 1970 and cannot be stored in nanosecond resolution",
    ),
    (
        "[1:2] failed to parse: [1:13] Unrecognized token '@': was expecting (JSON String, Number, Array, Object or token 'null', 'true' or 'false')\n at [Source: (byte[])\"{\"x\":@}\"; line: 1, column: 13]",
        "[1:2] failed to parse: [1:13] Unrecognized token ...",
    ),
    ("Unknown geometry type: @", "Unknown geometry type"),
    ("invalid number found: @", "invalid number found"),
    ("No enum constant org.opensearch.geometry.ShapeType.@", "No enum constant ..."),
    ("Text '@' could not be parsed at index 3", "Text ... could not be parsed at index ..."),
    (
        "Document contains at least one immense term in field=\"k\" (whose UTF8 encoding is longer than the max length 32766), all of which were skipped.  Please correct the analyzer to not produce such terms.  The prefix of the first immense term is: '[@]...', original message: bytes can be at most 32766 in length; got 33000",
        "Document contains at least one immense term in field=\"k\" (whose UTF8 encoding is longer than the max length 32766), all of which were skipped. Please correct the analyzer to not produce such terms",
    ),
    (
        "[a][0] primary shard is not active Timeout: [1m], request: [BulkShardRequest [[a][0]] containing [index {[a][1], source[@]}]]",
        "[a][0] primary shard is not active Timeout: [1m], request",
    ),
    // Unknown errors.
    ("frobnication of <@> failed", "... of ... failed"),
    ("cannot accept @", "cannot accept ..."),
];

#[test]
fn reason_keeps_the_fault_and_hides_the_value() {
    for (reason, told) in SEEN {
        for value in
            ["4929123412341234", "my!secret", "191.25", "a] b [c", "x' y", "my \"own\" (word)"]
        {
            let text = tell("", &reason.replace('@', value));
            // A value of several words may be hidden in several parts.
            let alike = value.contains(' ') || text == *told;
            assert!(alike, "{reason} with {value}: {text}");
        }
    }
}

#[test]
fn reason_without_a_value_is_kept() {
    for reason in [
        "action [indices:data/write/bulk[s]] is unauthorized for user [u] with effective roles [r] on indices [a], this action is granted by the index privileges [index,write,all]",
        "unable to authenticate user [u] for REST request [/_bulk]",
        "[1:2] mapping set to strict, dynamic introduction of [f] within [_doc] is not allowed",
        "[1:6] object mapping for [o] tried to parse field [o] as object, but found a concrete value",
        "The [dense_vector] field [dv] in doc [document with id '1'] has more dimensions than defined in the mapping [2]",
        "mapper [dv] cannot be changed from type [float] to [long]",
        "[1:10] Current token (VALUE_TRUE) not numeric, can not use numeric value accessors",
        "Expected text at 1:6 but found START_OBJECT",
        "Failed to parse object: expecting token of type [VALUE_NUMBER] but found [VALUE_STRING]",
        "Failed to parse with all enclosed parsers",
        "Cannot parse object as number",
        "Integer value passed as String",
        "Limit of total fields [1000] has been exceeded",
        "closed",
        "Duplicate field 'a'",
        "Duplicate Object property \"a\"",
    ] {
        assert_eq!(tell("", reason), reason);
    }
}

#[test]
fn reasons_of_indices_are_kept_whole() {
    for (kind, reason) in [
        (
            "index_not_found_exception",
            "no such index [a] and [require_alias] request flag is [true] and [a] is not an alias",
        ),
        ("cluster_block_exception", "index [a] blocked by: [FORBIDDEN/8/index write (api)]"),
        (
            "cluster_block_exception",
            "blocked by: [SERVICE_UNAVAILABLE/1/state not recovered / initialized]",
        ),
        (
            "circuit_breaking_exception",
            "[parent] Data too large, data for [<http_request>] would be [2/2b], which is larger than the limit of [1/1b]",
        ),
        ("resource_already_exists_exception", "index [a/k8s] already exists"),
        ("invalid_index_name_exception", "Invalid index name [A], must be lowercase"),
        (
            "validation_exception",
            "Validation Failed: 1: this action would add [2] shards, but this cluster currently has [1000]/[1000] maximum normal shards open",
        ),
        (
            "illegal_argument_exception",
            "cannot create index with name [a], because it matches with template [t] that creates data streams only, use create data stream api instead",
        ),
        ("illegal_argument_exception", "explicit index in bulk is not allowed"),
    ] {
        assert_eq!(tell(kind, reason), reason);
        assert_eq!(tell(kind, &format!("{reason};")), reason);
    }
}

#[test]
fn long_reasons_are_cut() {
    let told = tell("index_not_found_exception", &"x".repeat(2_000));
    assert!(told.len() < 600 && told.ends_with("..."), "{told}");
}

/// Words that no server knows, between characters of quotes and brackets.
fn secret() -> impl Strategy<Value = (Vec<String>, String)> {
    const BETWEEN: &[&str] = &[
        " ",
        "]",
        "[",
        "'",
        "\"",
        "`",
        "(",
        ")",
        ": ",
        ", ",
        "\n",
        "] for ",
        "] for field [",
        "] is out of range for",
        "] with format [",
        ") out of range of ",
        "' is not an IP string literal",
        "]] ",
        "\\",
        "é",
        ". ",
        "} ",
        "] ",
        "' ",
    ];
    let word = prop_oneof!["zq[a-z0-9]{4,10}", "7[0-9]{8,16}", "ZQ[A-Z]{4}-[0-9]{2}"];
    let part = (word, proptest::sample::select(BETWEEN));
    (proptest::collection::vec(part, 1..5), proptest::sample::select(BETWEEN)).prop_map(
        |(parts, end)| {
            let text: String = parts.iter().map(|(word, sign)| format!("{sign}{word}")).collect();
            (
                parts.into_iter().map(|(word, _)| word).collect(),
                format!("{}{end}", text.trim_start()),
            )
        },
    )
}

proptest! {
    #[test]
    fn reason_never_contains_a_secret((words, secret) in secret()) {
        for (reason, _) in SEEN {
            let told = tell("", &reason.replace('@', &secret));
            for word in &words {
                prop_assert!(!told.contains(word.as_str()), "{} with {:?}: {}", reason, secret, told);
            }
        }
    }

    #[test]
    fn no_reason_panics(reason in "(\\PC|[\\[\\]'\"(){}: \n]){0,80}") {
        prop_assert!(tell("", &reason).len() <= 4 * LONGEST + 10);
    }
}
