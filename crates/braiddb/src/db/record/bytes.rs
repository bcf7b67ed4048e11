//! Owned keys and values: see [`SharedBytes`].

use crate::base::{Error, Result, SharedBytes};
use std::{
    borrow::{Borrow, Cow},
    fmt, hash,
    ops::{Deref, RangeBounds},
    sync::Arc,
};

macro_rules! bytes_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Cheap to clone, `Send + Sync + 'static`, and compares with slices, arrays and strings.
        /// Up to 23 bytes are stored inside (15 on 32-bit systems). Longer ones are
        /// reference-counted. One from an iterator shares an allocation of at most 16 KiB with its
        /// neighbours, and keeps it alive; `to_vec` makes a copy that does not.
        #[derive(Clone)]
        pub struct $name(SharedBytes);

        impl $name {
            #[inline]
            pub(in crate::db) fn new(bytes: Vec<u8>) -> $name {
                $name(SharedBytes::of_vec(bytes))
            }

            #[inline]
            pub(in crate::db) fn of(bytes: &[u8]) -> $name {
                $name(SharedBytes::of_slice(bytes))
            }

            #[inline]
            pub(in crate::db) fn shared(bytes: SharedBytes) -> $name {
                $name(bytes)
            }

            /// Returns the bytes.
            #[inline]
            pub fn as_slice(&self) -> &[u8] {
                self.0.as_slice()
            }

            #[cfg(test)]
            pub(in crate::db) fn pinned_bytes(&self) -> usize {
                self.0.pinned_bytes()
            }

            /// Returns the bytes as text, or an error if they are not UTF-8.
            pub fn to_str(&self) -> std::result::Result<&str, std::str::Utf8Error> {
                std::str::from_utf8(self.as_slice())
            }

            /// Returns the bytes as an array, as `u64::from_le_bytes` takes, or `InvalidArgument` if
            /// their number differs.
            pub fn to_array<const N: usize>(&self) -> Result<[u8; N]> {
                let bytes = self.as_slice();
                let wrong = |_| Error::InvalidArgument(format!("there are {} bytes, not {N}", bytes.len()));
                bytes.try_into().map_err(wrong)
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::of(b"")
            }
        }

        impl Deref for $name {
            type Target = [u8];

            #[inline]
            fn deref(&self) -> &[u8] {
                self.as_slice()
            }
        }

        impl AsRef<[u8]> for $name {
            #[inline]
            fn as_ref(&self) -> &[u8] {
                self.as_slice()
            }
        }

        impl Borrow<[u8]> for $name {
            fn borrow(&self) -> &[u8] {
                self.as_slice()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "b\"{self}\"")
            }
        }

        /// Bytes other than printable ASCII are escaped.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.as_slice().escape_ascii())
            }
        }

        impl Eq for $name {}

        impl PartialEq for $name {
            fn eq(&self, other: &$name) -> bool {
                self.as_slice() == other.as_slice()
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &$name) -> std::cmp::Ordering {
                self.as_slice().cmp(other.as_slice())
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &$name) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl hash::Hash for $name {
            fn hash<H: hash::Hasher>(&self, state: &mut H) {
                self.as_slice().hash(state);
            }
        }

        compare!($name, [u8], |other| other);
        compare!($name, str, |other| other.as_bytes());
        compare!($name, Vec<u8>, |other| other.as_slice());
        compare!($name, String, |other| other.as_bytes());

        impl<const N: usize> PartialEq<[u8; N]> for $name {
            fn eq(&self, other: &[u8; N]) -> bool {
                self.as_slice() == other
            }
        }

        impl<const N: usize> PartialEq<$name> for [u8; N] {
            fn eq(&self, other: &$name) -> bool {
                other == self
            }
        }

        impl<T: ?Sized> PartialEq<&T> for $name
        where
            $name: PartialEq<T>,
        {
            fn eq(&self, other: &&T) -> bool {
                self == *other
            }
        }

        impl<'a> From<&'a $name> for &'a [u8] {
            fn from(bytes: &'a $name) -> &'a [u8] {
                bytes.as_slice()
            }
        }

        impl From<&[u8]> for $name {
            fn from(bytes: &[u8]) -> $name {
                $name::of(bytes)
            }
        }

        impl<const N: usize> From<[u8; N]> for $name {
            fn from(bytes: [u8; N]) -> $name {
                $name::of(&bytes)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                $name::of(text.as_bytes())
            }
        }

        /// Without a copy if the vector is long.
        impl From<Vec<u8>> for $name {
            fn from(bytes: Vec<u8>) -> $name {
                $name::new(bytes)
            }
        }

        impl From<$name> for Vec<u8> {
            fn from(bytes: $name) -> Vec<u8> {
                bytes.0.into_vec()
            }
        }

        impl From<$name> for Arc<[u8]> {
            fn from(bytes: $name) -> Arc<[u8]> {
                Arc::from(bytes.as_slice())
            }
        }

        impl From<$name> for Box<[u8]> {
            fn from(bytes: $name) -> Box<[u8]> {
                bytes.0.into_vec().into_boxed_slice()
            }
        }

        /// Without a copy, unless the bytes are stored inside.
        #[cfg(feature = "bytes")]
        impl From<$name> for bytes::Bytes {
            fn from(bytes: $name) -> bytes::Bytes {
                bytes::Bytes::from_owner(bytes)
            }
        }

        /// Fails if the bytes are not UTF-8.
        impl TryFrom<$name> for String {
            type Error = std::string::FromUtf8Error;

            fn try_from(bytes: $name) -> std::result::Result<String, Self::Error> {
                String::from_utf8(bytes.0.into_vec())
            }
        }

        /// Fails if the bytes are not UTF-8.
        impl<'a> TryFrom<&'a $name> for &'a str {
            type Error = std::str::Utf8Error;

            fn try_from(bytes: &'a $name) -> std::result::Result<&'a str, Self::Error> {
                bytes.to_str()
            }
        }

        /// Fails if the length differs.
        impl<const N: usize> TryFrom<$name> for [u8; N] {
            type Error = std::array::TryFromSliceError;

            fn try_from(bytes: $name) -> std::result::Result<[u8; N], Self::Error> {
                bytes.as_slice().try_into()
            }
        }

        /// Fails if the length differs.
        impl<const N: usize> TryFrom<&$name> for [u8; N] {
            type Error = std::array::TryFromSliceError;

            fn try_from(bytes: &$name) -> std::result::Result<[u8; N], Self::Error> {
                bytes.as_slice().try_into()
            }
        }
    };
}

macro_rules! compare {
    ($name:ident, $other:ty, |$value:ident| $bytes:expr) => {
        impl PartialEq<$other> for $name {
            fn eq(&self, $value: &$other) -> bool {
                self.as_slice() == $bytes
            }
        }

        impl PartialEq<$name> for $other {
            fn eq(&self, other: &$name) -> bool {
                other == self
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

impl Value {
    #[inline]
    pub(in crate::db) fn of_cow(bytes: Cow<'_, [u8]>) -> Value {
        match bytes {
            Cow::Borrowed(bytes) => Value::of(bytes),
            Cow::Owned(bytes) => Value::new(bytes),
        }
    }
}

impl Key {
    pub(in crate::db) fn slice(&self, range: impl RangeBounds<usize>) -> Key {
        Key(self.0.slice(range))
    }
}

impl From<Key> for Value {
    fn from(key: Key) -> Value {
        Value(key.0)
    }
}

impl From<Value> for Key {
    fn from(value: Value) -> Key {
        Key(value.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_compare_with_strings_slices_arrays_and_vectors() {
        let value = Value::of(b"Ten");
        assert_eq!(value, "Ten");
        assert_eq!(value, *"Ten");
        assert_eq!(value, b"Ten");
        assert_eq!(value, *b"Ten");
        assert_eq!(value, b"Ten"[..]);
        assert_eq!(value, &b"Ten"[..]);
        assert_eq!(value, b"Ten".to_vec());
        assert_eq!(value, String::from("Ten"));
        assert_eq!(value.to_str(), Ok("Ten"));
        assert_eq!(*b"Ten", value);
        assert_ne!(value, "Tens");
    }

    #[test]
    fn text_is_shown_escaped() {
        let value = Value::of(b"a\"\n\xff");
        assert_eq!(format!("{value} {value:?}"), r#"a\"\n\xff b"a\"\n\xff""#);
    }

    #[test]
    fn conversions_that_cannot_hold_the_bytes_fail() {
        let value = Value::of(&[1, 2, 0xff]);
        assert_eq!(<[u8; 3]>::try_from(&value).unwrap(), [1, 2, 0xff]);
        assert!(<[u8; 4]>::try_from(value.clone()).is_err());
        assert_eq!(value.to_array().unwrap(), [1, 2, 0xff]);
        assert_eq!(value.to_array::<8>().unwrap_err().to_string(), "invalid argument: there are 3 bytes, not 8");
        assert!(value.to_str().is_err());
        assert!(<&str>::try_from(&value).is_err());
        assert!(String::try_from(value).is_err());
        assert_eq!(String::try_from(Key::of(b"k")).unwrap(), "k");
    }
}
