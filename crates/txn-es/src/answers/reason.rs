//! Keeps values of documents out of the servers' reasons. No I/O.
//!
//! The type of an error decides. Errors of indices and of the cluster hold no value of a document,
//! and keep their whole reason. All other errors may repeat a value, in ways that no list covers.
//! So only the forms and words in this module are kept.

use std::collections::HashSet;
use std::sync::LazyLock;

/// Types of errors that are never about a document. The errors are about indices, templates and the
/// cluster.
const WITHOUT_VALUES: &[&str] = &[
    "index_not_found_exception",
    "index_closed_exception",
    "cluster_block_exception",
    "circuit_breaking_exception",
    "resource_already_exists_exception",
    "invalid_index_name_exception",
    "invalid_alias_name_exception",
    "aliases_not_found_exception",
    "validation_exception",
    "process_cluster_event_timeout_exception",
    "master_not_discovered_exception",
    "cluster_manager_not_discovered_exception",
];

/// Forms of reasons and of pieces of reasons.
///
/// `{}` is a name, a type or a number of the server, and is kept. `{*}` is, or may repeat, a value.
/// Another form may follow.
const FORMS: &[&str] = &[
    // Errors about documents.
    "failed to parse field [{}] of type [{}]",
    " in document with id '{}'",
    "failed to parse: ",
    "failed to parse date field [{*}] with format [{}]",
    "Failed to parse value [{*}] as only [true] or [false] are allowed",
    "Failed to parse object: expecting token of type [{}] but found [{}]",
    "Value [{*}] is out of range for",
    "Value [{*}] has a decimal part",
    "[float] supports only finite values",
    "[half_float] supports only finite values",
    "[double] supports only finite values",
    "[scaled_float] only supports finite values",
    "illegal latitude value [{*}] for {}",
    "illegal longitude value [{*}] for {}",
    "[latitude] must be a valid double value",
    "[longitude] must be a valid double value",
    "[lon] and [lat] must be valid double values",
    "field must be either [lon|lat], [type|coordinates], or [geohash]",
    "unsupported symbol [{*}] in geohash [{*}]",
    "unknown join name [{*}] for field [{}]",
    "[routing] is missing for join field [{}]",
    "constant keyword field [{}] must have a value of",
    "[constant_keyword] field [{}] only accepts values that are equal to the value defined in the mappings",
    "error parsing field [{}], with unknown parameter",
    "The [{}] similarity does not support vectors with zero magnitude",
    "The [dense_vector] field [{}] in doc [document with id '{}'] has more dimensions than defined in the mapping [{}]",
    "[rank_feature] fields do not support indexing multiple values for the same field [{}] in the same document",
    "[rank_feature] fields do not support indexing multiple values for the same field [{}]",
    "mapping set to strict, dynamic introduction of [{}] within [{}] is not allowed",
    "object mapping for [{}] tried to parse field [{}] as object, but found a concrete value",
    "object mapping for [{}] tried to parse field [{}] as object, but got EOF, has a concrete value been provided to it?",
    "mapper [{}] cannot be changed from type [{}] to [{}]",
    "Field [{}] is a metadata field and cannot be added inside a document",
    "Document contains at least one immense term in field=\"{}\" (whose UTF8 encoding is longer than the max length 32766)",
    "Limit of total fields [{}] has been exceeded",
    "explicit index in bulk is not allowed",
    "explicit index in multi get is not allowed",
    "Limit of mapping depth [{}] has been exceeded",
    "Duplicate field '{}'",
    "Duplicate Object property \"{}\"",
    "Numeric value ({*}) out of range of `{}`",
    "Numeric value ({*}) out of range of ",
    "min value ({*}) is greater than max value ({*})",
    "date[{*}] is before the epoch in 1970",
    "date[{*}] is after 2262-04-11T23:47:16.854775807",
    "'{*}' is not an IP string literal",
    "Current token ({}) not numeric",
    "Expected text at {} but found {}",
    "Can't get text on a {} at {}",
    // Errors about requests, indices and accounts.
    "Validation Failed: 1: ",
    "cannot create index with name [{}], because it matches with template [{}] that creates data streams only, use create data stream api instead",
    "Invalid alias name [{}]: an index or data stream exists with the same name as the alias",
    "index [{}] is not the same index",
    "[{}][{}] primary shard is not active Timeout: [{}]",
    "id [{}] is too long, must be no longer than 512 bytes",
    "unable to authenticate user [{}] for REST request [{}]",
    "missing authentication credentials for REST request [{}]",
    "action [{}] is unauthorized for user [{}]",
    "action [{}] is unauthorized for API key id [{}] of user [{}]",
    "action [{}] is unauthorized for service account [{}]",
    " with effective roles [{}]",
    " with assigned roles [{}]",
    " on indices [{}]",
    " on restricted indices [{}]",
    ", this action is granted by the index privileges [{}]",
    ", this action is granted by the cluster privileges [{}]",
    "no permissions for [{}] and User [name={},",
    "no handler found for uri [{}] and method [{}]",
    "alias [{}] has more than one index associated with it [{}], can't execute a single index op",
    "alias [{}] has more than one index",
    "no write index is defined for alias [{}]",
    "The write index may be explicitly disabled using is_write_index=false or the alias points to multiple indices without one being designated as a write index",
    "Failed to parse mapping: ",
    "Failed to parse mapping [{}]: ",
    "No handler for type [{}] declared on field [{}]",
    "The mapper type [{}] declared on field [{}] does not exist",
    "unknown parameter [{}] on mapper [{}] of type [{}]",
    "unknown setting [{}]",
    "contradicting `_routing.required` settings",
];

/// The words of the servers' own sentences.
static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| KNOWN.split_whitespace().collect());

const KNOWN: &str = "a about accept accepted accepts access accessors account action active add adding after alias \
    all allowed already an analyzer and any are array as at authentication authorized be because been before below \
    bigger blocked body boolean bound bulk but by byte bytes can can't cannot cast cause change changed character \
    characters check circuit clash closed cluster coerce completion concrete conflict conflicts connection constant \
    contain contains content convert converted coordinates coordinating correct could create created credentials \
    current data date dates decimal declared defined delete denied depth did dimension dimensions disabled \
    disconnected do document documents does doesn't double duplicate dynamic each early either element empty \
    enabled enclosed encoding end enough entry enum epoch error exceed exceeded exceeds exception execution exist \
    exists expected expecting failed failure feature featurevalue field fields finite float for forbidden format \
    found from full geohash geometry get given greater half handler has have host id identifier if ignored illegal \
    in incoming index indexed indexing indices inner input inside instance int integer internal interval into \
    introduction invalid ip is isn't it its join json key keyword label large larger latitude leading least length \
    less limit line literal log long longer longitude loss lower magnitude malformed many map mapped mapper mapping \
    mappings max maximum may maybe mechanism memory merge message metadata min minimum missing more most multiple \
    must name named names nanosecond needs negative nested new no node non normal not null number numbers numeric \
    object objects of on one only open operation operations or out outside overflow overlap own parameter parse \
    parsed parsers parsing part partial passed path pattern permission permissions please point positive present preview \
    primary privileges produce property provided queue range reached read reason refused rejected rejecting \
    relation replica request requests required requires reserved resolution resource role root routing rule same \
    sent server set setting settings shape shard shards short should shutting similarity single size skipped small \
    space specified start started state stored strict string strings such support supported supports symbol system \
    term terms text than that the their then there this time timed timeout to token too total tried type unable \
    unassigned unauthorized unavailable unexpected unit unknown unrecognized unsupported until update upper use \
    user using valid validation value values vector vectors version was weight were when where which while \
    whitespace whole whose will with within without would write written wrong yet zero";

/// Markers after which the rest is hidden. A value follows, perhaps without quotes.
const VALUE_FOLLOWS: &[&str] = &[
    "Preview of ",
    "preview of ",
    "For input string",
    "at [Source",
    "The prefix of the first immense term",
    ": ",
    " but got ",
    " but was ",
    " but found ",
    " got ",
    " found ",
];

const LONGEST: usize = 500;

const HIDDEN: &str = "...";

/// Returns the reason of an error without possible values of documents.
pub(crate) fn tell(kind: &str, reason: &str) -> String {
    let text = match WITHOUT_VALUES.contains(&kind) {
        true => join(&[reason]),
        false => without_values(reason),
    };
    let text = shorten(text);
    let end = [' ', ',', ':', ';', '.', '-'];
    match text.trim().strip_suffix(HIDDEN) {
        Some(told) if told.trim_end_matches(end).is_empty() => String::new(),
        Some(told) => format!("{told}{HIDDEN}"),
        None => text.trim_end_matches(end).trim_start().to_owned(),
    }
}

fn shorten(mut text: String) -> String {
    if let Some((cut, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(cut);
        text.push_str(HIDDEN);
    }
    text
}

fn without_values(reason: &str) -> String {
    // The reason is cut only after parsing: a value without its end would pass for the following
    // text.
    let mut rest = reason;
    let mut text = String::new();
    loop {
        let (place, behind) = rest.split_at(place_in_request(rest));
        text.push_str(place);
        let Some((told, behind)) = FORMS.iter().find_map(|form| read(form, behind)) else {
            if behind.starts_with(char::is_whitespace) && !text.ends_with(' ') {
                text.push(' ');
            }
            text.push_str(&known_words(behind));
            break;
        };
        text.push_str(&told);
        rest = behind;
    }
    text
}

/// Returns the length of a leading line and column, as in `[1:6] `.
fn place_in_request(text: &str) -> usize {
    let Some((place, _)) = text.strip_prefix('[').and_then(|rest| rest.split_once("] ")) else {
        return 0;
    };
    let is_figure = |text: &str| {
        !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    match place.split_once(':') {
        Some((line, column)) if is_figure(line) && is_figure(column) => place.len() + 3,
        _ => 0,
    }
}

/// Matches a form at the start of a text.
///
/// Returns the filtered text and the rest.
fn read<'a>(form: &str, text: &'a str) -> Option<(String, &'a str)> {
    let mut told = String::new();
    let (mut form, mut rest) = (form, text);
    while let Some((before, slot)) = form.split_once('{') {
        rest = rest.strip_prefix(before)?;
        told.push_str(before);
        let (slot, behind) = slot.split_once('}')?;
        let next = behind.split('{').next().unwrap_or_default();
        // A value may contain the following text, so it ends at the last match. A name ends at the
        // first.
        let end = match (next.is_empty(), slot) {
            (true, _) => Some(rest.find(char::is_whitespace).unwrap_or(rest.len())),
            (false, "*") => rest.rfind(next),
            (false, _) => rest.find(next),
        }?;
        let (inside, after) = rest.split_at(end);
        told.push_str(if slot == "*" { HIDDEN } else { inside });
        (form, rest) = (behind, after);
    }
    rest = rest.strip_prefix(form)?;
    told.push_str(form);
    Some((told, rest))
}

/// Returns the known words of a text.
///
/// A word counts outside of brackets and quotes, and before a following value.
fn known_words(text: &str) -> String {
    let opens = |(at, sign): (usize, char)| match sign {
        '[' | '(' | '{' | '<' | '"' | '`' => true,
        // An apostrophe within a word opens nothing.
        '\'' => !text[..at].ends_with(char::is_alphanumeric),
        _ => false,
    };
    let first = text.char_indices().find(|each| opens(*each)).map(|(at, _)| at);
    let Some(first) = first else { return known(text) };
    if value_follows(text).is_some_and(|mark| mark <= first) {
        return known(text);
    }
    let before = &text[..first];
    // A value may contain each of the closing characters, so it ends at the last one.
    let behind = text[first..].rfind([']', ')', '}', '>', '"', '`', '\'']);
    let behind = behind.map_or("", |at| &text[first + at + 1..]);
    join(&[&known(before), HIDDEN, &known(behind)])
}

fn value_follows(text: &str) -> Option<usize> {
    VALUE_FOLLOWS.iter().filter_map(|mark| text.find(mark)).min()
}

fn known(text: &str) -> String {
    let text = &text[..value_follows(text).unwrap_or(text.len())];
    let words = text.split_whitespace().map(|word| {
        let bare = word.trim_matches([',', '.', ':', ';', '?', '!', '-']).to_ascii_lowercase();
        match bare.is_empty() || WORDS.contains(&*bare) {
            true => word,
            false => HIDDEN,
        }
    });
    join(&words.collect::<Vec<_>>())
}

/// Joins the pieces in one line, and merges adjacent hidden parts.
fn join(pieces: &[&str]) -> String {
    let mut text = String::new();
    let words = pieces.iter().flat_map(|piece| piece.split_whitespace());
    for word in words {
        if word == HIDDEN && text.ends_with(HIDDEN) {
            continue;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
    }
    text
}

#[cfg(test)]
#[path = "reason_tests.rs"]
mod tests;
