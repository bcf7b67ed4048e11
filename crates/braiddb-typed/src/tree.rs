//! The handle of a typed tree.

use crate::{
    batch::TypedBatch,
    builder::Builder,
    codec::{Json, ValueCodec},
    error::Result,
    key::{self, TupleKey},
    puts::put_forms,
    schema::{Expiry, Schema},
    source::Source,
    view::{IndexRecords, Records, View},
    write::InTransaction,
};
use braiddb::{Db, Durability, Snapshot, Transaction, Tree};
use foundationdb_tuple::TuplePack;
use std::{
    fmt,
    ops::RangeBounds,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// A tree of records with keys of type `K` and values of type `V`, encoded by the codec `C`, with
/// secondary indexes.
///
/// Each write keeps the indexes in the same commit. Single writes are transactions: they repeat
/// after a conflict. Inside [`Db::update`] of the same database they are refused, as they would
/// commit separately: use [`TypedTree::in_tx`] there. Write such a tree through this type only; writes
/// through [`braiddb::Tree`] miss the indexes ([`TypedTree::verify_indexes`],
/// [`TypedTree::rebuild_index`]).
///
/// Clones are cheap and shared across threads.
///
/// ```
/// # fn main() -> braiddb_typed::Result<()> {
/// use braiddb_typed::TypedTree;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct User {
///     name: String,
///     email: String,
/// }
///
/// let db = braiddb::Db::in_memory()?;
/// let users: TypedTree<u64, User> = TypedTree::builder(&db, "users")
///     .index("name", |user: &User| user.name.clone())
///     .unique_index("email", |user: &User| user.email.clone())
///     .open()?;
/// users.put(&1, &User { name: "Ann".to_owned(), email: "ann@example.org".to_owned() })?;
/// users.put(&2, &User { name: "Bob".to_owned(), email: "bob@example.org".to_owned() })?;
///
/// assert_eq!(users.get(&1)?.unwrap().name, "Ann");
/// assert_eq!(users.get_by("email", &"bob@example.org")?.unwrap().0, 2);
/// for record in users.index_range("name", "B".to_owned()..) {
///     let (id, user) = record?;
///     assert_eq!((id, user.name.as_str()), (2, "Bob"));
/// }
/// let thief = User { name: "Eve".to_owned(), email: "ann@example.org".to_owned() };
/// assert!(users.put(&3, &thief).unwrap_err().is_not_unique());
/// # Ok(())
/// # }
/// ```
pub struct TypedTree<K, V, C = Json> {
    pub(crate) schema: Arc<Schema<K, V, C>>,
}

impl<K, V, C> Clone for TypedTree<K, V, C> {
    fn clone(&self) -> Self {
        TypedTree { schema: Arc::clone(&self.schema) }
    }
}

impl<K, V, C> fmt::Debug for TypedTree<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let indexes = &self.schema.indexes;
        f.debug_struct("TypedTree").field("tree", &self.schema.tree).field("indexes", indexes).finish_non_exhaustive()
    }
}

impl<K: TupleKey, V, C: ValueCodec<V>> TypedTree<K, V, C> {
    /// Opens a tree without indexes; creates it if absent. Fails as [`Builder::open`] does.
    pub fn open(db: &Db, name: &str) -> Result<TypedTree<K, V, C>> {
        TypedTree::builder(db, name).open()
    }

    /// Returns a builder that declares indexes and options.
    pub fn builder<'a>(db: &'a Db, name: &str) -> Builder<'a, K, V, C> {
        Builder::new(db, name)
    }

    /// Returns the current name.
    pub fn name(&self) -> String {
        self.schema.name()
    }

    /// Returns the tree of packed records, for tools. Records end before byte FF, where index
    /// entries begin.
    pub fn raw(&self) -> &Tree {
        &self.schema.tree
    }

    fn latest(&self) -> View<'_, K, V, C> {
        View { schema: &self.schema, source: Source::Latest(&self.schema.db) }
    }

    /// Returns the tree as of a snapshot.
    ///
    /// ```
    /// # fn main() -> braiddb_typed::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let names: braiddb_typed::TypedTree<u32, String> = braiddb_typed::TypedTree::open(&db, "names")?;
    /// names.put(&1, &"Ann".to_owned())?;
    /// let before = db.snapshot();
    /// names.remove(&1)?;
    /// assert_eq!(names.at(&before).get(&1)?.as_deref(), Some("Ann"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn at(&self, snapshot: &Snapshot) -> View<'_, K, V, C> {
        View { schema: &self.schema, source: Source::Snapshot(snapshot.clone()) }
    }

    /// Returns the tree in a transaction, for reads and writes.
    ///
    /// ```
    /// # fn main() -> braiddb_typed::Result<()> {
    /// use braiddb_typed::TypedTree;
    ///
    /// let db = braiddb::Db::in_memory()?;
    /// let accounts: TypedTree<String, i64> = TypedTree::open(&db, "accounts")?;
    /// accounts.put(&"ann".to_owned(), &70)?;
    /// db.update(|tx| {
    ///     let accounts = accounts.in_tx(tx);
    ///     let balance = accounts.get(&"ann".to_owned())?.unwrap_or(0);
    ///     accounts.put(&"ann".to_owned(), &(balance - 10))?;
    ///     accounts.put(&"bob".to_owned(), &10)?;
    ///     Ok(())
    /// })?;
    /// assert_eq!(accounts.get(&"ann".to_owned())?, Some(60));
    /// # Ok(())
    /// # }
    /// ```
    pub fn in_tx<'a>(&'a self, tx: &'a Transaction) -> InTransaction<'a, K, V, C> {
        InTransaction::new(&self.schema, tx)
    }

    /// Returns an empty batch: writes that commit together.
    pub fn batch(&self) -> TypedBatch<'_, K, V, C> {
        TypedBatch::new(&self.schema)
    }

    put_forms!();

    fn write(&self, key: &K, value: &V, expiry: Expiry) -> Result<()> {
        let put = self.schema.prepare(key, value, expiry)?;
        self.schema.update(|tx| self.schema.put(tx, &put))
    }

    /// Sets the record of `key` with the given durability: see [`TypedTree::put`].
    pub fn put_with(&self, key: &K, value: &V, durability: Durability) -> Result<()> {
        let put = self.schema.prepare(key, value, Expiry::Default)?;
        self.schema.update_with(durability, |tx| self.schema.put(tx, &put))
    }

    /// Sets the record of `key`, and returns the previous one.
    pub fn insert(&self, key: &K, value: &V) -> Result<Option<V>> {
        self.schema.update(|tx| self.in_tx(tx).insert(key, value))
    }

    /// Deletes the record of `key`, which may be absent.
    ///
    /// Also deletes a record that cannot be decoded, for which [`TypedTree::remove`] and
    /// [`TypedTree::put`] fail. Its index entries are then found by a scan of the indexes.
    pub fn delete(&self, key: &K) -> Result<()> {
        let key = key::pack(key)?;
        self.schema.update(|tx| self.schema.delete(tx, &key))
    }

    /// Removes the record of `key`, and returns it.
    pub fn remove(&self, key: &K) -> Result<Option<V>> {
        self.schema.update(|tx| self.in_tx(tx).remove(key))
    }

    /// Atomically changes the record of `key`: `change` gets the record and returns the new one, or
    /// `None` to remove it. Runs again after a conflict. The expiry time is kept.
    pub fn update(&self, key: &K, mut change: impl FnMut(Option<V>) -> Option<V>) -> Result<()> {
        self.schema.update(|tx| {
            let tree = self.in_tx(tx);
            match change(tree.get(key)?) {
                Some(value) => tree.put_keep_ttl(key, &value),
                None => tree.remove(key).map(drop),
            }
        })
    }

    /// Removes and returns the first record, atomically: see [`Tree::pop_first`].
    pub fn pop_first(&self) -> Result<Option<(K, V)>> {
        self.pop(|tree| tree.first())
    }

    /// Removes and returns the last record.
    pub fn pop_last(&self) -> Result<Option<(K, V)>> {
        self.pop(|tree| tree.last())
    }

    fn pop(&self, end: impl Fn(&View<'_, K, V, C>) -> Result<Option<(K, V)>>) -> Result<Option<(K, V)>> {
        self.schema.update(|tx| {
            let tree = self.in_tx(tx);
            let record = end(&tree)?;
            if let Some((key, _)) = &record {
                tree.delete(key)?;
            }
            Ok(record)
        })
    }

    /// Deletes the records with keys in `range`, in one commit.
    ///
    /// Takes constant time without indexes. With indexes it reads each record to delete its entries,
    /// and the memory of a transaction limits it.
    pub fn delete_range(&self, range: impl RangeBounds<K>) -> Result<()> {
        let bounds = key::bounds(&range)?;
        self.schema.update(|tx| self.schema.delete_range(tx, &bounds))
    }

    /// Removes all records, in constant time.
    pub fn clear(&self) -> Result<()> {
        self.schema.update(|tx| self.schema.clear(tx))
    }

    /// Returns the record of `key`.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        self.latest().get(key)
    }

    /// Returns the records of `keys` at one snapshot, in their order. Faster than separate gets.
    pub fn multi_get(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        self.latest().multi_get(keys)
    }

    /// Returns the record of `key` and its expiry time; `None`: never.
    pub fn get_with_expiry(&self, key: &K) -> Result<Option<(V, Option<SystemTime>)>> {
        self.latest().get_with_expiry(key)
    }

    /// Returns whether `key` has a record.
    pub fn contains(&self, key: &K) -> Result<bool> {
        self.latest().contains(key)
    }

    /// Iterates over all records in key order.
    pub fn iter(&self) -> Records<'_, K, V, C> {
        self.latest().iter()
    }

    /// Iterates over the records with keys in `range`.
    pub fn range(&self, range: impl RangeBounds<K>) -> Records<'_, K, V, C> {
        self.latest().range(range)
    }

    /// Iterates over the records whose keys begin with the elements of the tuple `prefix`.
    ///
    /// ```
    /// # fn main() -> braiddb_typed::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let sales: braiddb_typed::TypedTree<(String, u32), f64> = braiddb_typed::TypedTree::open(&db, "sales")?;
    /// sales.put(&("a".to_owned(), 2023), &1.5)?;
    /// sales.put(&("b".to_owned(), 2023), &2.5)?;
    /// sales.put(&("b".to_owned(), 2024), &3.5)?;
    /// assert_eq!(sales.prefix(&("b",)).count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(&self, prefix: &impl TuplePack) -> Records<'_, K, V, C> {
        self.latest().prefix(prefix)
    }

    /// Returns the first record.
    pub fn first(&self) -> Result<Option<(K, V)>> {
        self.latest().first()
    }

    /// Returns the last record.
    pub fn last(&self) -> Result<Option<(K, V)>> {
        self.latest().last()
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> Result<bool> {
        self.latest().is_empty()
    }

    /// Counts the records with keys in `range` exactly: see [`Tree::count`].
    pub fn count(&self, range: impl RangeBounds<K>) -> Result<u64> {
        self.latest().count(range)
    }

    /// Counts all records exactly: see [`Tree::count`].
    pub fn len(&self) -> Result<u64> {
        self.latest().len()
    }

    /// Returns the record with `value` in a unique index, or the first one in another index.
    pub fn get_by(&self, index: &str, value: &impl TuplePack) -> Result<Option<(K, V)>> {
        self.latest().get_by(index, value)
    }

    /// Iterates over the records with `value` in the index, in key order.
    pub fn by_index<I: TuplePack>(&self, index: &str, value: &I) -> IndexRecords<'_, K, V, C> {
        self.latest().by_index(index, value)
    }

    /// Iterates over the records with index values in `range`, in the order of these values, then
    /// of their keys. All see one commit.
    pub fn index_range<I: TuplePack>(&self, index: &str, range: impl RangeBounds<I>) -> IndexRecords<'_, K, V, C> {
        self.latest().index_range(index, range)
    }

    /// Iterates over the records whose index values begin with the elements of the tuple `prefix`.
    pub fn index_prefix(&self, index: &str, prefix: &impl TuplePack) -> IndexRecords<'_, K, V, C> {
        self.latest().index_prefix(index, prefix)
    }

    /// Iterates over all records in the order of an index.
    pub fn index_iter(&self, index: &str) -> IndexRecords<'_, K, V, C> {
        self.latest().index_iter(index)
    }
}
