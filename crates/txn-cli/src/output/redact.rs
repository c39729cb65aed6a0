//! Redaction: no error repeats an argument that may contain a password.
//!
//! The rule applies to errors of this command, of the argument parser, and of stores.

/// The replacement of a login.
const REDACTED: &str = "***@";

/// The length of the shortest repetition in an error, in characters.
const REPEATED: usize = 80;

/// Removes the logins of this process's arguments from a text.
///
/// `variable`: the environment variable with the address of the store, which counts, too.
#[must_use]
pub fn without_logins(text: &str, variable: &str) -> String {
    let arguments = std::env::args_os().skip(1);
    let given = arguments.chain(std::env::var_os(variable));
    redact(text, given.map(|given| given.to_string_lossy().into_owned()))
}

fn redact(text: &str, given: impl IntoIterator<Item = String>) -> String {
    let mut text = text.to_owned();
    for given in given {
        // Also finds `--option=value`, and texts that an error quotes.
        let value = given.split_once('=').map_or("", |(_, value)| value).to_owned();
        for login in [&*given, &*value].into_iter().filter_map(login) {
            let quoted = format!("{login:?}").trim_matches('"').to_owned();
            for secret in [login.to_owned(), quoted] {
                let cut = secret.char_indices().nth(REPEATED).map_or(secret.len(), |(end, _)| end);
                text = text.replace(&secret, REDACTED).replace(&secret[..cut], REDACTED);
            }
        }
    }
    text
}

/// The possible `user:password@` in a text, with all characters before it.
fn login(text: &str) -> Option<&str> {
    let end = text.rfind('@')? + 1;
    text[..end].contains(':').then_some(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_not_repeated() {
        let long = format!("http://u:{}@h", "s3cret".repeat(40));
        for given in
            ["http://u:s3cret@h", "--to=http://u:s3cret@h", "u:s3cret@h:1", "u:s3\"cret@h", &long]
        {
            let value = given.split_once('=').map_or(given, |(_, value)| value);
            let cut: String = value.chars().take(REPEATED).collect();
            for text in [format!("{value} is odd"), format!("{value:?} is odd"), format!("{cut}…")]
            {
                let said = redact(&text, [given.to_owned()]);
                assert!(!said.contains("s3") && !said.contains("cret"), "{said}");
            }
        }
        let plain = "alice@example:x is no leg";
        assert_eq!(redact(plain, ["alice@example:x".to_owned(), "--json".to_owned()]), plain);
    }
}
