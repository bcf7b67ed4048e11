//! The forms of a put, alike for trees and transactions.

/// Adds the methods to a type with `write(&self, key, value, expiry)`.
macro_rules! put_forms {
    () => {
        /// Sets the record of `key`. It expires by the tree's default, if that has one.
        pub fn put(&self, key: &K, value: &V) -> Result<()> {
            self.write(key, value, Expiry::Default)
        }

        /// Sets a record that expires after `ttl`, with its index entries.
        pub fn put_with_ttl(&self, key: &K, value: &V, ttl: Duration) -> Result<()> {
            self.write(key, value, Expiry::After(ttl))
        }

        /// Sets a record that expires at `expires`, with its index entries.
        pub fn put_until(&self, key: &K, value: &V, expires: SystemTime) -> Result<()> {
            self.write(key, value, Expiry::At(expires))
        }

        /// Sets the record of `key` and keeps its expiry time, or that there is none.
        pub fn put_keep_ttl(&self, key: &K, value: &V) -> Result<()> {
            self.write(key, value, Expiry::Keep)
        }
    };
}

pub(crate) use put_forms;
