//! The users of the secured server beside its superuser, and what they may do.

use std::fs;
use std::path::Path;

use super::credentials::Credentials;
use super::error::{OnPath, Result};
use super::home::write_private;

const ROLES: &str = include_str!("roles.yml");

/// Writes the roles, and for each of them a user of its name.
pub(crate) fn write(config: &Path, superuser: &Credentials) -> Result<()> {
    let path = config.join("roles.yml");
    fs::write(&path, ROLES).on("write", &path)?;
    // A password that is no hash is compared as it stands.
    let password = superuser.password.expose();
    let users: String = names().map(|name| format!("{name}:{password}\n")).collect();
    write_private(&config.join("users"), &users)?;
    let users_roles: String = names().map(|name| format!("{name}:{name}\n")).collect();
    write_private(&config.join("users_roles"), &users_roles)
}

/// The roles of the file: what begins a line and ends with a colon.
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
