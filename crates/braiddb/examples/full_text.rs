//! A full-text index: documents, the words in them, search by words and beginnings of words.
//!
//!     cargo run -p braiddb --example full_text
//!
//! - The index has one key for each word of each document: the word, a zero byte, the document's id.
//!   So the documents with a word are one range of keys, and those with a prefix are one range too.
//! - A change of a document and of its words is one transaction. It reads the old text, so writers of
//!   the same document conflict, and the closure of one of them runs again.
//! - A search reads a snapshot: index and documents always agree.
//!
//! The program panics on a wrong result.

use braiddb::{Db, Error, Result, Tree, Value};
use std::collections::BTreeMap;

struct Index {
    db: Db,
    /// Id, 8 bytes big-endian -> text.
    documents: Tree,
    /// Word, zero byte, id -> occurrences in the document, 4 bytes little-endian.
    postings: Tree,
}

/// Returns the words of a text in lower case, with the number of their occurrences.
fn words(text: &str) -> BTreeMap<String, u32> {
    let mut words = BTreeMap::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *words.entry(word.to_lowercase()).or_default() += 1;
    }
    words
}

fn posting_key(word: &str, id: u64) -> Vec<u8> {
    [word.as_bytes(), &[0], &id.to_be_bytes()].concat()
}

impl Index {
    fn open(db: &Db) -> Result<Index> {
        Ok(Index { db: db.clone(), documents: db.tree("documents")?, postings: db.tree("postings")? })
    }

    /// Adds a document, or replaces it; `None` removes it. Writes only the postings that change.
    fn set(&self, id: u64, text: Option<&str>) -> Result<()> {
        let key = id.to_be_bytes();
        let new = words(text.unwrap_or(""));
        self.db.update(|tx| {
            let old = match tx.get(&self.documents, key)? {
                Some(text) => words(text.to_str()?),
                None => BTreeMap::new(),
            };
            for word in old.keys().filter(|word| !new.contains_key(*word)) {
                tx.delete(&self.postings, posting_key(word, id))?;
            }
            for (word, count) in new.iter().filter(|(word, count)| old.get(*word) != Some(count)) {
                tx.put(&self.postings, posting_key(word, id), count.to_le_bytes())?;
            }
            match text {
                Some(text) => tx.put(&self.documents, key, text),
                None => tx.delete(&self.documents, key),
            }
        })
    }

    /// Returns the ids and texts of the documents that contain all words of the query, sorted by
    /// number of occurrences. `roc*` matches every word that begins with `roc`.
    fn search(&self, query: &str, limit: usize) -> Result<Vec<(u64, Value)>> {
        let snapshot = self.db.snapshot();
        let postings = snapshot.tree(&self.postings);
        let mut found: Option<BTreeMap<u64, u32>> = None;
        for word in query.to_lowercase().split_whitespace() {
            let prefix = match word.strip_suffix('*') {
                Some(beginning) => beginning.to_owned(),
                None => format!("{word}\0"),
            };
            let mut documents = BTreeMap::new();
            for row in postings.prefix(prefix) {
                let (key, count) = row?;
                let (_word, id) = key.split_last_chunk().expect("a posting's key ends in an id");
                let count = u32::from_le_bytes(count.try_into().map_err(Error::abort)?);
                *documents.entry(u64::from_be_bytes(*id)).or_default() += count;
            }
            if let Some(others) = found {
                documents.retain(|id, _| others.contains_key(id));
                documents.iter_mut().for_each(|(id, count)| *count += others[id]);
            }
            found = Some(documents);
        }
        let mut ranked: Vec<(u64, u32)> = found.into_iter().flatten().collect();
        ranked.sort_by_key(|&(id, occurrences)| (std::cmp::Reverse(occurrences), id));
        ranked.truncate(limit);
        let keys: Vec<[u8; 8]> = ranked.iter().map(|(id, _)| id.to_be_bytes()).collect();
        let texts = snapshot.tree(&self.documents).multi_get(&keys)?;
        let texts = texts.into_iter().map(|text| text.expect("an indexed document exists"));
        Ok(ranked.into_iter().map(|(id, _)| id).zip(texts).collect())
    }

    /// Compares the index with a new one of all documents.
    fn verify(&self) -> Result<bool> {
        let snapshot = self.db.snapshot();
        let mut expected = BTreeMap::new();
        for row in snapshot.tree(&self.documents).iter() {
            let (key, text) = row?;
            let id = u64::from_be_bytes(key.try_into().map_err(Error::abort)?);
            for (word, count) in words(text.to_str()?) {
                expected.insert(posting_key(&word, id), count.to_le_bytes().to_vec());
            }
        }
        let stored = snapshot.tree(&self.postings).iter();
        let stored = stored.map(|row| row.map(|(key, count)| (key.to_vec(), count.to_vec())));
        Ok(stored.collect::<Result<BTreeMap<_, _>>>()? == expected)
    }
}

fn main() -> Result<()> {
    let db = Db::in_memory()?; // or Db::open("texts.db")?
    let index = Index::open(&db)?;
    let ids = |query| -> Result<Vec<u64>> { Ok(index.search(query, 10)?.iter().map(|hit| hit.0).collect()) };

    index.set(1, Some("The sea, the open sea"))?;
    index.set(2, Some("A seal sleeps beside the sea"))?;
    index.set(3, Some("Open the window"))?;
    assert_eq!(ids("sea")?, [1, 2]); // twice in the first
    assert_eq!(ids("sea*")?, [1, 2]); // sea and seal
    assert_eq!(ids("OPEN the")?, [1, 3]);
    assert!(ids("window sea")?.is_empty());
    assert_eq!(index.search("seal", 1)?[0].1, "A seal sleeps beside the sea");

    index.set(1, Some("The land"))?; // its words leave the index with its old text
    index.set(3, None)?;
    assert_eq!((ids("sea")?, ids("land")?, ids("open")?), (vec![2], vec![1], vec![]));

    // Four threads replace the same documents; no posting is lost or left over.
    let texts = ["red green", "green blue blue", "blue", "red red red grey"];
    std::thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|t| {
            let index = &index;
            scope.spawn(move || (0..100).try_for_each(|n| index.set(n % 5, Some(texts[(n as usize + t) % 4]))))
        });
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    assert!(index.verify()?);
    println!("{} documents and {} postings agree", index.documents.len()?, index.postings.len()?);
    Ok(())
}
