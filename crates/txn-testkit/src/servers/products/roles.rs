//! The secured server's users, except its superuser, and their roles.

use std::fs;
use std::path::Path;

use crate::servers::credentials::Credentials;
use crate::servers::error::{OnPath, Result};
use crate::servers::home::write_private;

const ROLES: &str = include_str!("roles.yml");

/// Writes the roles, and one user for each role.
///
/// A user has the name of its role.
pub(crate) fn write(config: &Path, superuser: &Credentials) -> Result<()> {
    let path = config.join("roles.yml");
    fs::write(&path, ROLES).on("write", &path)?;
    // Elasticsearch compares a password that is not a hash as plain text.
    let password = superuser.password.expose();
    let users: String = names().map(|name| format!("{name}:{password}\n")).collect();
    write_private(&config.join("users"), &users)?;
    let users_roles: String = names().map(|name| format!("{name}:{name}\n")).collect();
    write_private(&config.join("users_roles"), &users_roles)
}

/// Returns the roles of the file.
///
/// A role is an unindented line that ends with a colon.
fn names() -> impl Iterator<Item = &'static str> {
    ROLES.lines().filter_map(|line| line.strip_suffix(':')).filter(|name| !name.starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn every_role_has_a_user() {
        let names: Vec<_> = names().collect();
        assert_eq!(names, ["secured", "secured-eu", "tables", "reader", "writer", "blinkered"]);
    }
}
