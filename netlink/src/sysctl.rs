//! Owns the reading and writing of kernel settings under `/proc/sys`. Knows nothing of which settings matter.

use std::io;
use std::path::{Path, PathBuf};

/// A setting could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// The name is not one of a setting. Not retryable.
    #[error("sysctl {name:?}: not a name of letters, digits, '_', '-' and ':' with '/' between")]
    Name {
        /// The name.
        name: String,
    },
    /// The file could not be read: usually the module that has it is not loaded.
    #[error("sysctl {name}: read {}: {source}", path.display())]
    Read {
        /// The name.
        name: String,
        /// Its file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file could not be written: `EROFS` in a container with a read-only `/proc`, `EACCES` without privilege,
    /// `EINVAL` if the kernel does not take the value.
    #[error("sysctl {name}={value}: write {}: {source}", path.display())]
    Write {
        /// The name.
        name: String,
        /// What was to be written.
        value: String,
        /// Its file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What the file holds is not a number.
    #[error("sysctl {name}: {value:?} is not a number")]
    Number {
        /// The name.
        name: String,
        /// What it holds.
        value: String,
    },
}

impl SysctlError {
    /// Whether the setting cannot be written because `/proc` is read-only or not ours.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::Write { source, .. }
            if matches!(source.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied))
    }
}

/// The settings below a folder. A name is the path below it, as `net/netfilter/nf_conntrack_max`.
#[derive(Debug, Clone)]
pub struct Sysctl {
    root: PathBuf,
}

impl Default for Sysctl {
    fn default() -> Self {
        Self { root: PathBuf::from("/proc/sys") }
    }
}

impl Sysctl {
    /// The settings below another folder: a `/proc/sys` mounted elsewhere, or a test's.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The value as text, without the line's end.
    ///
    /// # Errors
    /// [`SysctlError::Read`] and [`SysctlError::Name`].
    pub fn read(&self, name: &str) -> Result<String, SysctlError> {
        let path = self.path(name)?;
        match std::fs::read_to_string(&path) {
            Ok(value) => Ok(value.trim_end().to_owned()),
            Err(source) => Err(SysctlError::Read { name: name.to_owned(), path, source }),
        }
    }

    /// The value as a number.
    ///
    /// # Errors
    /// [`SysctlError::Number`], and those of [`Self::read`].
    pub fn read_number(&self, name: &str) -> Result<i64, SysctlError> {
        let value = self.read(name)?;
        value.parse().map_err(|_| SysctlError::Number { name: name.to_owned(), value })
    }

    /// Writes a value, whatever it was.
    ///
    /// # Errors
    /// [`SysctlError::Write`] and [`SysctlError::Name`].
    pub fn write(&self, name: &str, value: &str) -> Result<(), SysctlError> {
        let path = self.path(name)?;
        // Not `fs::write`: that would create a file that is not there, and truncate one that is.
        let opened = std::fs::OpenOptions::new().write(true).open(&path);
        opened.and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes())).map_err(|source| {
            SysctlError::Write { name: name.to_owned(), value: value.to_owned(), path, source }
        })
    }

    /// Writes a value unless it is there already; says whether it had to. Works on a read-only `/proc` that
    /// already holds it.
    ///
    /// # Errors
    /// Those of [`Self::read`] and [`Self::write`].
    pub fn ensure(&self, name: &str, value: &str) -> Result<bool, SysctlError> {
        if self.read(name)? == value {
            return Ok(false);
        }
        self.write(name, value).map(|()| true)
    }

    fn path(&self, name: &str) -> Result<PathBuf, SysctlError> {
        let plain = |part: &str| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-:.".contains(&byte))
        };
        if name.split('/').all(plain) {
            Ok(self.root.join(Path::new(name)))
        } else {
            Err(SysctlError::Name { name: name.to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_written_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("net/netfilter")).unwrap();
        std::fs::write(root.path().join("net/netfilter/nf_conntrack_max"), "65536\n").unwrap();
        let sysctl = Sysctl::below(root.path());
        let name = "net/netfilter/nf_conntrack_max";
        assert_eq!(sysctl.read_number(name).unwrap(), 65536);
        assert!(!sysctl.ensure(name, "65536").unwrap());
        assert!(sysctl.ensure(name, "131072").unwrap());
        assert_eq!(sysctl.read(name).unwrap(), "131072");
    }

    #[test]
    fn errors_name_setting_value_and_file() {
        let root = tempfile::tempdir().unwrap();
        let sysctl = Sysctl::below(root.path());
        let error = sysctl.write("net/none", "1").unwrap_err();
        assert!(error.to_string().starts_with("sysctl net/none=1: write "), "{error}");
        assert!(!root.path().join("net/none").exists());
        for name in ["", "/etc/passwd", "net/../../etc", "net//x", "net/./x", "a b"] {
            assert!(matches!(sysctl.read(name), Err(SysctlError::Name { .. })), "{name:?}");
        }
        std::fs::write(root.path().join("text"), "on\n").unwrap();
        let error = sysctl.read_number("text").unwrap_err();
        assert_eq!(error.to_string(), "sysctl text: \"on\" is not a number");
    }
}
