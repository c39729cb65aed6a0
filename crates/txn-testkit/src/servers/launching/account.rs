//! The unprivileged account of servers that root starts.
//!
//! The servers refuse to run as root.

use std::fs;
use std::os::unix::fs::lchown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::servers::error::{Error, OnPath, Result};
use crate::servers::launching::command::run;

/// An account of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    user: u32,
    group: u32,
}

impl Account {
    /// The name of the account.
    pub(crate) const NAME: &str = "txn-servers";

    /// Finds the account, or creates it.
    pub(crate) fn ensure() -> Result<Self> {
        if let Some(account) = Self::find()? {
            return Ok(account);
        }
        run(Command::new("useradd")
            .args(["--system", "--user-group", "--no-create-home"])
            .args(["--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin"])
            .arg(Self::NAME))?;
        Self::find()?.ok_or_else(|| {
            Error::Other(format!("`useradd {}` left no line in /etc/passwd", Self::NAME))
        })
    }

    fn find() -> Result<Option<Self>> {
        let path = Path::new("/etc/passwd");
        Ok(parse(&fs::read_to_string(path).on("read", path)?))
    }

    /// Makes a command run under this account, without the caller's groups.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.uid(self.user).gid(self.group);
    }

    /// Returns the options by which `nsenter` changes to this account.
    pub(crate) fn options_of_nsenter(&self) -> [String; 2] {
        [format!("--setuid={}", self.user), format!("--setgid={}", self.group)]
    }

    /// Gives a folder, and everything in it, to this account.
    pub(crate) fn own(&self, path: &Path) -> Result<()> {
        lchown(path, Some(self.user), Some(self.group)).on("change the owner of", path)?;
        if path.is_dir() && !path.is_symlink() {
            for entry in fs::read_dir(path).on("read", path)? {
                self.own(&entry.on("read", path)?.path())?;
            }
        }
        Ok(())
    }
}

fn parse(passwd: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(Account::NAME)).then_some(())?;
        let user = fields.nth(1)?.parse().ok()?;
        Some(Account { user, group: fields.next()?.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_found_by_its_whole_name() {
        let text = "root:x:0:0::/:/bin/sh\ntxn-servers-2:x:1:2::/:/\ntxn-servers:x:998:997::/:/\n";
        assert_eq!(parse(text), Some(Account { user: 998, group: 997 }));
        assert_eq!(parse("root:x:0:0::/:/bin/sh\n"), None);
    }
}
