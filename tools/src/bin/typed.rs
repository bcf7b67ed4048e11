//! Measures codecs, and the cost of typed writes with and without indexes.
//!
//!     cargo run --release -p tools --bin typed -- [RECORDS]

use braiddb::{Db, Durability};
use braiddb_typed::{Json, MessagePack, Result, TypedTree, ValueCodec};
use serde::{Deserialize, Serialize};
use std::time::Instant;

#[derive(Debug, Serialize, Deserialize)]
struct Album {
    title: String,
    artist: String,
    year: u16,
    rating: Option<f64>,
    tracks: Vec<(String, u32)>,
}

fn album(number: u64) -> Album {
    Album {
        title: format!("Album number {number}"),
        artist: format!("Artist {}", number % 1000),
        year: 1950 + (number % 75) as u16,
        rating: (!number.is_multiple_of(3)).then_some(number as f64 / 7.0),
        tracks: (0..8)
            .map(|track| (format!("Track {track} of {number}"), 180 + (number * track % 97) as u32))
            .collect(),
    }
}

fn codec<C: ValueCodec<Album>>(records: u64) {
    let albums: Vec<Album> = (0..records).map(album).collect();
    let begun = Instant::now();
    let encoded: Vec<Vec<u8>> = albums.iter().map(encode::<C>).collect();
    let encode_ns = begun.elapsed().as_nanos() / u128::from(records);
    let begun = Instant::now();
    let years: u64 = encoded.iter().map(|bytes| u64::from(C::decode(bytes).expect("own bytes").year)).sum();
    let decode_ns = begun.elapsed().as_nanos() / u128::from(records);
    let bytes = encoded.iter().map(Vec::len).sum::<usize>() as u64 / records;
    println!("{:<8} {bytes} bytes, encode {encode_ns} ns, decode {decode_ns} ns ({years})", C::NAME);
}

fn encode<C: ValueCodec<Album>>(album: &Album) -> Vec<u8> {
    let mut bytes = Vec::new();
    C::encode(album, &mut bytes).expect("plain fields");
    bytes
}

fn timed(name: &str, records: u64, mut write: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    for number in 0..records {
        write(number * 7919 % records)?;
    }
    println!("{name:<24} {} ns", begun.elapsed().as_nanos() / u128::from(records));
    Ok(())
}

fn main() -> Result<()> {
    let records = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    codec::<Json>(records);
    codec::<MessagePack>(records);
    let db = Db::builder().durability(Durability::Buffered).open_in_memory()?;
    let raw = db.tree("raw")?;
    timed("raw put", records, |number| {
        raw.put(number.to_be_bytes(), encode::<Json>(&album(number)))?;
        Ok(())
    })?;
    let plain: TypedTree<u64, Album> = TypedTree::open(&db, "plain")?;
    timed("typed put", records, |number| plain.put(&number, &album(number)))?;
    let indexed: TypedTree<u64, Album> = TypedTree::builder(&db, "indexed")
        .index("artist", |album: &Album| album.artist.clone())
        .index("year", |album: &Album| album.year)
        .open()?;
    timed("put, two indexes", records, |number| indexed.put(&number, &album(number)))?;
    timed("overwrite, two indexes", records, |number| indexed.put(&number, &album(number)))?;
    timed("get", records, |number| plain.get(&number).map(drop))?;
    timed("raw get and decode", records, |number| {
        let found = raw.get_with(number.to_be_bytes(), |bytes| <Json as ValueCodec<Album>>::decode(bytes).is_ok())?;
        assert_eq!(found, Some(true));
        Ok(())
    })
}
