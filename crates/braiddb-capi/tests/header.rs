//! The committed `include/braiddb.h` equals the header that cbindgen generates from the sources.

use std::{env, fs, path::Path};

#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let bindings = cbindgen::Builder::new().with_crate(root).with_config(config).generate().unwrap();
    let mut made = Vec::new();
    bindings.write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/braiddb.h");
    if env::var_os("BRAIDDB_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let differs = kept.lines().zip(made.lines()).position(|(kept, made)| kept != made);
    assert!(
        kept == made,
        "line {differs:?} of {} differs: `BRAIDDB_BLESS=1 cargo test -p braiddb-capi --test header` writes it",
        path.display()
    );
    let functions = fs::read_dir(root.join("src")).unwrap().fold(0, |sum, file| {
        let source = fs::read_to_string(file.unwrap().path()).unwrap();
        sum + source.matches("#[unsafe(no_mangle)]").count()
    });
    assert!((60..100).contains(&functions), "{functions} functions");
}
