//! Owned keys and values.

use std::{fmt, ops::Deref};

macro_rules! bytes_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(Vec<u8>);

        impl $name {
            pub(in crate::db) fn new(bytes: Vec<u8>) -> $name {
                $name(bytes)
            }
        }

        impl Deref for $name {
            type Target = [u8];

            fn deref(&self) -> &[u8] {
                &self.0
            }
        }

        impl AsRef<[u8]> for $name {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        impl From<$name> for Vec<u8> {
            fn from(bytes: $name) -> Vec<u8> {
                bytes.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "b\"{}\"", self.0.escape_ascii())
            }
        }

        impl<T: AsRef<[u8]> + ?Sized> PartialEq<&T> for $name {
            fn eq(&self, other: &&T) -> bool {
                self.0 == other.as_ref()
            }
        }
    };
}

bytes_type! {
    /// An owned key.
    Key
}

bytes_type! {
    /// An owned value.
    Value
}
