//! Opens typed trees: compares codec and indexes with the stored ones, and builds new indexes.

use crate::{
    codec::ValueCodec,
    definitions::{DEFINITIONS_KEY, Definitions},
    entry::{Index, prefix_of},
    error::{Error, Result},
    key::{self, TupleKey},
    schema::Schema,
    source::Source,
    tree::TypedTree,
};
use braiddb::{Db, Transaction, Tree, TreeCodec, TreeOptions};
use foundationdb_tuple::TuplePack;
use std::{fmt, marker::PhantomData, sync::Arc};

/// The name of the key encoding, in the tree's codec.
pub const KEY_CODEC: &str = "tuple";

/// Declares indexes and options of a [`TypedTree`].
pub struct Builder<'a, K, V, C> {
    db: &'a Db,
    name: String,
    options: Option<TreeOptions>,
    indexes: Result<Vec<Index<V>>>,
    dropped: Vec<String>,
    types: PhantomData<fn() -> (K, C)>,
}

impl<K, V, C> fmt::Debug for Builder<'_, K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("name", &self.name).field("indexes", &self.indexes).finish_non_exhaustive()
    }
}

impl<'a, K: TupleKey, V, C: ValueCodec<V>> Builder<'a, K, V, C> {
    pub(crate) fn new(db: &'a Db, name: &str) -> Builder<'a, K, V, C> {
        let name = name.to_owned();
        Builder { db, name, options: None, indexes: Ok(Vec::new()), dropped: Vec::new(), types: PhantomData }
    }

    /// Sets the tree's options. Default: those that it has. An existing tree with others is refused,
    /// as by [`Db::tree_with`]. [`Builder::open`] sets the codec.
    pub fn options(mut self, options: TreeOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Declares an index: `value` returns the index value of a record.
    ///
    /// The database remembers an index's name and kind, not its function. A function must return the
    /// same for equal records; if it changes, give the index a new name and drop the old one.
    pub fn index<I: TuplePack>(self, name: &str, value: impl Fn(&V) -> I + Send + Sync + 'static) -> Self {
        self.add(name, false, move |record| [value(record)])
    }

    /// Declares an index without duplicates: a write of a second record with the same value fails
    /// with [`Error::NotUnique`].
    pub fn unique_index<I: TuplePack>(self, name: &str, value: impl Fn(&V) -> I + Send + Sync + 'static) -> Self {
        self.add(name, true, move |record| [value(record)])
    }

    /// Declares an index with any number of values for a record: a list of tags, or an `Option`,
    /// whose `None` has no entry.
    pub fn index_many<I: TuplePack, L: IntoIterator<Item = I>>(
        self,
        name: &str,
        values: impl Fn(&V) -> L + Send + Sync + 'static,
    ) -> Self {
        self.add(name, false, values)
    }

    /// Declares an index without duplicates, with any number of values for a record.
    pub fn unique_index_many<I: TuplePack, L: IntoIterator<Item = I>>(
        self,
        name: &str,
        values: impl Fn(&V) -> L + Send + Sync + 'static,
    ) -> Self {
        self.add(name, true, values)
    }

    fn add<I: TuplePack, L: IntoIterator<Item = I>>(
        mut self,
        name: &str,
        is_unique: bool,
        values: impl Fn(&V) -> L + Send + Sync + 'static,
    ) -> Self {
        self.indexes = self.indexes.and_then(|mut indexes| {
            if indexes.iter().any(|index| index.name == name) {
                return Err(Error::Invalid(format!("the index {name:?} is declared twice")));
            }
            indexes.push(Index::new(name, is_unique, values)?);
            Ok(indexes)
        });
        self
    }

    /// Removes an index of the database, if it is there. For one that is no longer declared.
    pub fn drop_index(mut self, name: &str) -> Self {
        self.dropped.push(name.to_owned());
        self
    }

    /// Opens the tree; creates it if absent. Builds new indexes from the records, in several commits.
    ///
    /// Fails if the tree has another codec ([`Error::OtherCodec`]), records but no codec
    /// ([`Error::Untyped`]), an index that is not declared ([`Error::UndeclaredIndex`]), or records
    /// that violate a new unique index ([`Error::NotUnique`]).
    pub fn open(self) -> Result<TypedTree<K, V, C>> {
        let indexes = self.indexes?;
        if let Some(name) = self.dropped.iter().find(|name| indexes.iter().any(|index| index.name == **name)) {
            return Err(Error::Invalid(format!("the index {name:?} is both declared and dropped")));
        }
        let tree = open_tree(self.db, &self.name, self.options, TreeCodec::new(KEY_CODEC, C::NAME)?)?;
        let schema = Schema::<K, V, C>::new(self.db, tree, indexes);
        let latest = Source::Latest(self.db);
        // A read suffices in the usual case, and is all that a read-only database allows.
        if schema.definitions(&latest)? != schema.declared {
            schema.update(|tx| define(&schema, tx, &self.dropped))?;
        }
        let tree = TypedTree { schema: Arc::new(schema) };
        tree.build_indexes()?;
        Ok(tree)
    }
}

fn open_tree(db: &Db, name: &str, options: Option<TreeOptions>, codec: TreeCodec) -> Result<Tree> {
    let with_codec = |options: TreeOptions| options.codec(codec);
    let is_there = || Ok::<_, Error>(db.tree_info(name)?.is_some_and(|tree| !tree.multi));
    if !is_there()? {
        let created = db.tree_with(name, with_codec(options.unwrap_or_default()));
        // Another thread may have created the tree meanwhile, with other options.
        if created.is_ok() || !is_there()? {
            return Ok(created?);
        }
    }
    let tree = db.open_tree(name)?;
    let other = |stored: TreeCodec| Error::OtherCodec {
        tree: name.to_owned(),
        stored: stored.to_string(),
        wanted: codec.to_string(),
    };
    match tree.options().codec {
        Some(found) if found == codec => {}
        Some(found) => return Err(other(found)),
        None if tree.first()?.is_some() => {
            return Err(Error::Untyped { tree: name.to_owned(), wanted: codec.to_string() });
        }
        None => {
            if let Err(error) = tree.set_options(with_codec(tree.options())) {
                // Another thread may have given the tree its codec meanwhile, which stays.
                return Err(tree.options().codec.filter(|found| *found != codec).map_or(error.into(), other));
            }
        }
    }
    match options {
        Some(options) => Ok(db.tree_with(name, with_codec(options))?),
        None => Ok(tree),
    }
}

/// Stores the declared indexes, new ones as incomplete, and removes dropped ones.
fn define<K: TupleKey, V, C: ValueCodec<V>>(
    schema: &Schema<K, V, C>,
    tx: &Transaction,
    dropped: &[String],
) -> Result<()> {
    let stored = schema.definitions(&Source::Transaction(tx))?;
    let mut wanted = schema.declared.clone();
    for index in &mut wanted.indexes {
        index.ready = false;
    }
    for found in &stored.indexes {
        let declared = wanted.indexes.iter_mut().find(|index| index.name == found.name);
        match declared {
            Some(index) if index.unique == found.unique => index.ready = found.ready,
            None if dropped.contains(&found.name) => {
                let prefix = prefix_of(&found.name)?;
                tx.delete_range(&schema.tree, key::bounds_of_prefix(prefix))?;
            }
            _ => {
                let kind = if found.unique { "unique index" } else { "index" };
                return Err(Error::UndeclaredIndex { tree: schema.name(), index: found.name.clone(), kind });
            }
        }
    }
    store_definitions(schema, tx, &wanted)
}

pub fn store_definitions<K: TupleKey, V, C: ValueCodec<V>>(
    schema: &Schema<K, V, C>,
    tx: &Transaction,
    definitions: &Definitions,
) -> Result<()> {
    match definitions.encode() {
        None => tx.delete(&schema.tree, DEFINITIONS_KEY)?,
        Some(bytes) => schema.put_forever(tx, &DEFINITIONS_KEY, &bytes)?,
    }
    Ok(())
}
