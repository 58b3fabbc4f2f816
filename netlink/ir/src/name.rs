//! Owns the names of tables, chains and sets, checked once; knows nothing of what they name.

use std::fmt;
use std::sync::Arc;

/// Longest name in bytes that the kernel takes (`NFT_NAME_MAXLEN` − 1, linux/netfilter/nf_tables.h).
const NAME_MAX: usize = 255;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} name {name:?}: {reason}")]
pub struct NameError {
    kind: &'static str,
    name: String,
    reason: &'static str,
}

fn check(kind: &'static str, name: &str) -> Result<Arc<str>, NameError> {
    let reason = if name.is_empty() {
        "is empty"
    } else if name.len() > NAME_MAX {
        "is longer than 255 bytes"
    } else if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        "does not begin with a letter"
    } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b)) {
        "has a character other than letters, digits, '-', '_', '.' and '/'"
    } else {
        return Ok(Arc::from(name));
    };
    Err(NameError { kind, name: name.to_owned(), reason })
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks length and characters; nft can print and parse every name that passes.
            pub fn new(name: &str) -> Result<Self, NameError> {
                check($kind, name).map(Self)
            }

            /// A name written in the source of this program.
            ///
            /// # Panics
            /// If the name breaks the rules of [`Self::new`]: a mistake of the programmer, never of input.
            pub fn literal(name: &str) -> Self {
                match Self::new(name) {
                    Ok(name) => name,
                    Err(error) => panic!("{error}"),
                }
            }

            /// A name that the kernel printed. It is taken as it is, since the kernel allows more than nft does.
            pub fn from_kernel(name: &str) -> Self {
                Self(Arc::from(name))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

name!(
    /// Name of a table.
    TableName,
    "table"
);
name!(
    /// Name of a chain. Chains and sets have separate name spaces within a table.
    ChainName,
    "chain"
);
name!(
    /// Name of a set or map.
    SetName,
    "set"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for (name, ok) in [
            ("pick-3", true),
            ("a/b.c_d", true),
            ("", false),
            ("3pick", false),
            ("two words", false),
            ("semi;colon", false),
            (&"x".repeat(255), true),
            (&"x".repeat(256), false),
        ] {
            assert_eq!(ChainName::new(name).is_ok(), ok, "{name:?}");
        }
    }
}
