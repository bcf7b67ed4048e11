//! Each rule must reject its bad sample and accept its good one.

use super::layers::Graph;
use super::run::{Finding, check};
use super::source::Source;

fn engine(path: &str, text: &str) -> Vec<Finding> {
    files(&[(&format!("crates/braiddb/src/{path}"), text)])
}

fn files(files: &[(&str, &str)]) -> Vec<Finding> {
    check(&sources(files), &[])
}

fn sources(files: &[(&str, &str)]) -> Vec<Source> {
    Source::parse_all(files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect())
}

#[track_caller]
fn finds(findings: &[Finding], expected: &[(usize, &str)]) {
    let found: Vec<(usize, &str)> = findings.iter().map(|finding| (finding.line, finding.rule)).collect();
    assert_eq!(found, expected, "{findings:?}");
}

#[test]
fn imports_go_down_only() {
    finds(&engine("codec/varint.rs", "use crate::base::Error;\n"), &[]);
    finds(&engine("codec/varint.rs", "use crate::wal::Reader;\n"), &[(1, "layers")]);
    finds(&engine("base/ids.rs", "fn f() {\n    crate::codec::hash64(&[]);\n}\n"), &[(2, "layers")]);
    finds(&engine("platform/os/mem.rs", "use crate::codec::hash64;\n"), &[(1, "layers")]);
    finds(&engine("read/get.rs", "use crate::{base::Error, view::View, table::Run};\n"), &[]);
    finds(&engine("read/get.rs", "use crate::{\n    base::Error,\n    cache::{Slots, Frame},\n};\n"), &[(3, "layers")]);
    finds(&engine("txn/mod.rs", "pub(in crate::db) use super::commit::Queue;\n"), &[]);
}

#[test]
fn rooms_import_rooms_below_them_only() {
    finds(&engine("db/write/pipeline.rs", "use crate::db::engine::root::Engine;\n"), &[]);
    finds(
        &engine("db/write/pipeline.rs", "use crate::db::{engine::root::Engine, open::opening::f};\n"),
        &[(1, "rooms")],
    );
    finds(&engine("db/engine/parts/pressure.rs", "use super::super::super::write::pipeline::f;\n"), &[(1, "rooms")]);
    finds(&engine("db/write/pipeline.rs", "#[cfg(test)]\nmod tests {\n    use crate::db::open::opening::f;\n}\n"), &[]);
    finds(&engine("db/attic/pipeline.rs", ""), &[(1, "rooms")]);
}

#[test]
fn impl_engine_outside_its_room_is_found() {
    let inherent = "struct A;\n\nimpl Engine {\n    fn f(&self) {}\n}\n";
    finds(&engine("db/write/pipeline.rs", inherent), &[(3, "rooms")]);
    finds(&engine("db/read/point_read.rs", "impl Worker for Engine {}\n"), &[(1, "rooms")]);
    finds(
        &engine("db/read/point_read.rs", "impl<T: Fn()> Work<T> for Arc<Engine> where T: Send {}\n"),
        &[(1, "rooms")],
    );
    finds(&engine("db/read/point_read.rs", "#[cfg(unix)]\nimpl Drop for root::Engine {}\n"), &[(2, "rooms")]);
    finds(&engine("db/engine/root.rs", inherent), &[]);
    finds(&engine("db/write/tests/pipeline.rs", inherent), &[]);
    finds(&engine("db/write/pipeline.rs", "#[cfg(test)]\nmod tests {\n    impl Engine {}\n}\n"), &[]);
    finds(&engine("db/write/pipeline.rs", "impl From<&Engine> for Commit {}\n"), &[]);
    finds(&engine("db/write/pipeline.rs", "fn f(work: impl Fn(&Engine) -> u8) {}\n"), &[]);
}

#[test]
fn rooms_of_the_platform_import_nothing_through_its_root() {
    finds(&engine("platform/io/paced.rs", "use crate::platform::{os::mem::MemVfs, vfs::{File, Vfs}};\n"), &[]);
    finds(&engine("platform/os/mem.rs", "use crate::platform::io::layer::VfsLayer;\n"), &[(1, "rooms")]);
    finds(&engine("platform/os/posix/vfs.rs", "use super::super::super::sync::barrier::heavy;\n"), &[(1, "rooms")]);
    finds(&engine("platform/io/paced.rs", "use crate::platform::Vfs;\n"), &[(1, "rooms")]);
    finds(&engine("platform/io/paced.rs", "use super::super::Vfs;\n"), &[(1, "rooms")]);
    finds(&engine("platform/io/tests/paced.rs", "use crate::platform::Vfs;\n"), &[]);
    finds(&engine("platform/os/mem.rs", "pub(in crate::platform) fn f() {}\n"), &[]);
    finds(&engine("platform/vfs.rs", "use super::os::read_mapping::ReadMapping;\n"), &[]);
    finds(&engine("platform/mem.rs", ""), &[(1, "rooms")]);
    finds(&engine("platform/attic/mem.rs", ""), &[(1, "rooms")]);
}

#[test]
fn folders_of_rooms_are_small() {
    let paths: Vec<String> = (0..16).map(|n| format!("crates/braiddb/src/platform/os/posix/{n}.rs")).collect();
    let sources: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
    finds(&files(&sources), &[(1, "rooms")]);
    finds(&files(&sources[1..]), &[]);
}

#[test]
fn siblings_do_not_import_each_other() {
    finds(&engine("memtable/arena.rs", "use crate::codec::hash64;\n"), &[]);
    finds(&engine("memtable/arena.rs", "use crate::wal::Record;\n"), &[(1, "layers")]);
    finds(&engine("wal/writer.rs", "use crate::memtable::Arena;\n"), &[(1, "layers")]);
    finds(&engine("commit/queue.rs", "use crate::version::Version;\n"), &[(1, "layers")]);
    finds(&engine("version/edit.rs", "use crate::cache::BlockCache;\n"), &[(1, "layers")]);
}

#[test]
fn nobody_goes_through_the_root() {
    let message = &engine("db/open/opening.rs", "use crate::Db;\n")[0].message;
    assert!(message.contains("`crate::Db`"), "{message}");
    finds(&engine("db/open/opening.rs", "use crate::{Db, base::Error};\n"), &[(1, "layers")]);
    finds(&engine("db/open/opening.rs", "use crate::*;\n"), &[(1, "layers")]);
    finds(&engine("db/open/opening.rs", "use crate as engine;\n"), &[(1, "layers")]);
    finds(&engine("db/open/opening.rs", "pub(crate) fn f() {}\n"), &[]);
    finds(&engine("lib.rs", "pub use db::Db;\npub use crate::base::Error;\n"), &[]);
    finds(&engine("options.rs", "use crate::db::Db;\n"), &[]);
    finds(&engine("db/open/opening.rs", "use crate::options::Builder;\n"), &[(1, "layers")]);
    finds(&engine("options/open.rs", "use crate::wal::inspect_segment;\n"), &[]);
}

#[test]
fn super_does_not_escape() {
    finds(&engine("codec/varint.rs", "use super::super::base::Error;\n"), &[]);
    finds(&engine("codec/varint.rs", "use super::super::wal::Reader;\n"), &[(1, "layers")]);
    finds(&engine("codec/mod.rs", "use super::wal::Reader;\n"), &[(1, "layers")]);
    finds(&engine("codec/varint.rs", "use super::wal::Reader;\n"), &[]);
    finds(
        &engine("table/blob/reader.rs", "use super::super::format;\nuse super::super::super::view::View;\n"),
        &[(2, "layers")],
    );
    finds(&engine("codec/varint.rs", "mod inner {\n    use super::super::wal;\n}\n"), &[]);
    finds(&engine("codec/varint.rs", "mod inner {\n    use super::super::super::wal;\n}\n"), &[(2, "layers")]);
    finds(&engine("codec/varint.rs", "fn f() { self::super::super::view::g() }\n"), &[(1, "layers")]);
}

#[test]
fn comments_and_strings_import_nothing() {
    let text = "//! [`crate::db::Db`]\n/* crate::db::Db /* nested */ crate::db::X */\nconst A: &str = \"crate::db::Db\";\n\
                const B: &str = r#\"crate::db \" // \"#;\nconst C: char = '\"';\nconst D: char = '\\'';\n\
                fn f<'a>(x: &'a str) -> &'a str { x }\nconst E: &[u8] = b\"\\\" crate::db::X\";\n";
    finds(&engine("base/ids.rs", text), &[]);
    finds(&engine("base/ids.rs", &format!("{text}use crate::db::Db;\n")), &[(9, "layers")]);
}

#[test]
fn every_file_of_the_engine_is_in_a_layer() {
    finds(&engine("helpers/strings.rs", ""), &[(1, "layers")]);
    finds(&engine("helpers.rs", ""), &[(1, "layers")]);
    finds(&files(&[("crates/braid-cli/src/helpers.rs", "use crate::wal::Reader;\n")]), &[]);
}

#[test]
fn cycles_are_found_and_the_graph_is_drawn() {
    let below = ("crates/braiddb/src/base/a.rs", "use crate::codec::b;\n");
    let above = ("crates/braiddb/src/codec/b.rs", "use crate::base::a;\nuse crate::base::c;\n");
    let user = ("crates/braiddb/src/wal/c.rs", "use crate::codec::b;\n");
    finds(&files(&[below, above, user]), &[(1, "cycle"), (1, "layers")]);
    let graph = Graph::of(&sources(&[below, above, user]));
    assert_eq!(graph.cycle(), Some(vec!["base", "codec"]));
    let graph = Graph::of(&sources(&[above, user]));
    assert_eq!(graph.cycle(), None);
    let drawn = graph.draw();
    assert!(drawn.contains(" 1 codec       imports base (2)\n 0 base        imports -\n"), "{drawn}");
}

#[test]
fn files_are_not_too_long() {
    finds(&engine("base/ids.rs", &"//\n".repeat(600)), &[]);
    finds(&engine("base/ids.rs", &"//\n".repeat(601)), &[(601, "file-size")]);
    finds(&engine("base/tests.rs", &"//\n".repeat(1200)), &[]);
    finds(&engine("base/tests.rs", &"//\n".repeat(1201)), &[(1201, "file-size")]);
    finds(&files(&[("crates/braiddb/tests/model.rs", &"//\n".repeat(1201))]), &[(1201, "file-size")]);
}

#[test]
fn functions_are_not_too_long() {
    let function = |lines: usize| format!("fn long(a: [u8; 2]) -> [u8; 2]\n{{\n{}}}\n", "    a;\n".repeat(lines - 3));
    finds(&engine("base/ids.rs", &function(70)), &[]);
    finds(&engine("base/ids.rs", &function(71)), &[(1, "function-size")]);
    finds(&engine("base/ids.rs", &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(120))), &[]);
    finds(
        &engine("base/ids.rs", &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(121))),
        &[(3, "function-size")],
    );
    finds(
        &engine("base/ids.rs", &format!("#[cfg(not(test))]\nmod tests {{\n{}}}\n", function(71))),
        &[(3, "function-size")],
    );
    finds(&engine("base/ids.rs", &format!("trait T {{\n    fn f(&self);\n{}}}\n", "\n".repeat(71))), &[]);
}

#[test]
fn a_file_declared_for_tests_is_one() {
    let root = ("crates/braiddb/src/base/mod.rs", "#[cfg(test)]\npub(crate) mod testing;\n");
    let text = format!("fn long() {{\n{}}}\nuse std::fs;\n", "    a;\n".repeat(100));
    let helper = ("crates/braiddb/src/base/testing.rs", text.as_str());
    finds(&files(&[root, helper]), &[]);
    finds(&files(&[helper]), &[(1, "function-size"), (103, "platform")]);
}

#[test]
fn roots_only_declare_and_re_export() {
    let good = "//! Docs.\n#![deny(missing_docs)]\n#[cfg(unix)]\nmod posix;\npub(crate) mod mem;\npub use {mem::MemVfs, posix::{A, B}};\nuse a as b;\n";
    finds(&engine("platform/mod.rs", good), &[]);
    finds(&engine("lib.rs", good), &[]);
    let bad = "mod a;\npub fn f() {}\npub struct S;\nimpl S {\n    fn g() {}\n}\nmod inner {\n}\nconst A: [u8; 2] = [0; 2];\nuse b::{C};\n";
    let expected = [(2, "thin-root"), (3, "thin-root"), (4, "thin-root"), (7, "thin-root"), (9, "thin-root")];
    finds(&engine("platform/mod.rs", bad), &expected);
    finds(&engine("lib.rs", bad), &expected);
    finds(&engine("platform/os/posix/vfs.rs", bad), &[]);
    finds(&files(&[("crates/braiddb/tests/common/mod.rs", bad)]), &[]);
}

#[test]
fn unfinished_work_is_found() {
    finds(&engine("base/ids.rs", "fn f() {\n    todo!()\n}\n"), &[(2, "unfinished")]);
    finds(&engine("base/ids.rs", "fn f() {\n    unimplemented!(\"x\")\n}\n"), &[(2, "unfinished")]);
    finds(&files(&[("crates/braid-cli/src/main.rs", "fn f() {\n    dbg!(1);\n}\n")]), &[(2, "unfinished")]);
    for mark in ["TODO", "FIXME", "XXX"] {
        finds(&engine("base/ids.rs", &format!("\n// {mark}: later\n")), &[(2, "unfinished")]);
        finds(&engine("base/ids.rs", &format!("\n// {mark}S\nconst A: &str = \"{mark}\";\n")), &[]);
    }
}

#[test]
fn numbered_names_are_found() {
    finds(&engine("base/ids.rs", "fn merge_v2() {}\n"), &[(1, "name")]);
    finds(&engine("base/merge_v3.rs", ""), &[(1, "name")]);
    finds(&engine("base/ids.rs", "fn u64_value(v2: u8, curve25519_v: u8) {}\n"), &[]);
}

#[test]
fn ignored_tests_are_found() {
    finds(&engine("base/tests.rs", "#[test]\n#[ignore]\nfn f() {}\n"), &[(2, "ignored-test")]);
    finds(&engine("base/tests.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n"), &[(2, "ignored-test")]);
}

#[test]
fn places_of_one_machine_are_found() {
    let folder = format!("{}ork/x", "/w");
    finds(&engine("base/ids.rs", &format!("\n// see {folder}\n")), &[(2, "place")]);
    finds(&engine("base/ids.rs", &format!("const A: &str = \"{folder}\";\n")), &[(1, "place")]);
    finds(&engine("base/ids.rs", &format!("// see docs{folder}\n")), &[]);
    let text = [("README.md".to_owned(), format!("In `{folder}`.\n"))];
    finds(&check(&[], &text), &[(1, "place")]);
}

#[test]
fn unsafe_stays_on_its_islands() {
    let text = "fn f() {\n    // SAFETY: sound.\n    unsafe { g() }\n}\n";
    for island in [
        "cache/arena.rs",
        "memtable/arena.rs",
        "platform/os/posix/vfs.rs",
        "table/block.rs",
        "view/simd/avx2.rs",
        "view/simd.rs",
    ] {
        finds(&engine(island, text), &[]);
    }
    for elsewhere in ["view/reader.rs", "platform/os/mem.rs", "db/open/opening.rs", "lib2/x.rs"] {
        assert!(engine(elsewhere, text).iter().any(|finding| finding.rule == "unsafe" || finding.rule == "layers"));
    }
    finds(&engine("view/reader.rs", text), &[(3, "unsafe")]);
    finds(&files(&[("crates/braid-cli/src/main.rs", text)]), &[(3, "unsafe")]);
    finds(&files(&[("bench-compare/src/engines/lmdb.rs", text)]), &[]);
    for elsewhere in
        ["bench-compare/src/engines/redb.rs", "bench-compare/src/main.rs", "x/bench-compare/src/engines/lmdb.rs"]
    {
        finds(&files(&[(elsewhere, text)]), &[(3, "unsafe")]);
    }
    finds(&engine("db/open/opening.rs", "#![deny(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";\n"), &[]);
}

#[test]
fn unsafe_is_argued() {
    let check = |text: &str, expected: &[(usize, &str)]| finds(&engine("cache/arena.rs", text), expected);
    check("fn f() {\n    unsafe { g() }\n}\n", &[(2, "safety")]);
    check("fn f() {\n    // SAFETY: a\n    // and b.\n    let x =\n        unsafe { g() };\n}\n", &[]);
    check("fn f() {\n    // SAFETY: a.\n    let x = 1;\n    unsafe { g() };\n}\n", &[(4, "safety")]);
    check("// SAFETY: a.\nunsafe impl Send for A {}\nunsafe impl Sync for A {}\n", &[(3, "safety")]);
    check("/// Does.\n///\n/// # Safety\n///\n/// Hold it.\n#[inline]\npub unsafe fn f() {}\n", &[]);
    check("/// Does.\npub unsafe fn f() {}\n", &[(2, "safety")]);
    check("struct A {\n    f: unsafe fn(u8),\n}\n", &[]);
    check("#[unsafe(no_mangle)]\nfn f() {}\n", &[]);
}

#[test]
fn the_outside_world_stays_in_platform() {
    let text = "use std::fs::File;\nuse std::{io, fs};\nuse std::time::{Duration, Instant};\nfn f() {\n    std::thread::sleep(d);\n}\n";
    finds(&engine("db/open/opening.rs", text), &[(1, "platform"), (2, "platform"), (3, "platform"), (5, "platform")]);
    finds(&engine("platform/os/posix/vfs.rs", text), &[]);
    finds(&engine("db/handles/tests/database.rs", text), &[]);
    finds(
        &engine("db/open/opening.rs", "use std::thread::{self, Builder};\nfn f() { thread::spawn(g); }\n"),
        &[(1, "platform"), (2, "platform")],
    );
    finds(&engine("db/open/opening.rs", "use std::thread::{self, Thread};\nfn f() { thread::park(); }\n"), &[]);
    finds(&engine("db/open/opening.rs", "use std::time::Duration;\nstd::thread_local!(static A: u8 = 0);\n"), &[]);
    finds(&engine("db/open/opening.rs", &format!("#[cfg(test)]\nmod tests {{\n{text}}}\n")), &[]);
    finds(&files(&[("crates/braid-cli/src/main.rs", text)]), &[]);
}

#[test]
fn this_tree_parses() {
    let root = super::workspace_root();
    let own = std::fs::read_to_string(root.join("xtask/src/tidy/source.rs")).expect("own source");
    let source = Source::parse("xtask/src/tidy/source.rs".to_owned(), own);
    assert!(
        source.tokens.iter().any(|token| token.text == "character_literal"),
        "the end of the file was seen as code"
    );
    assert!(source.tokens.last().is_some_and(|token| token.text == "}"));
}

#[test]
fn phrases_of_the_old_language_are_refused_in_prose_only() {
    let told = concat!("to", "ld");
    finds(&engine("base/ids.rs", &format!("// The caller is {told} of it.\nfn f() {{}}\n")), &[(1, "language")]);
    finds(&engine("base/ids.rs", &format!("/// Returns `{told}`.\nfn {told}() {{}}\n")), &[]);
    finds(&engine("base/ids.rs", &format!("// Un{told}, {told}_once, re-{told}.\nfn f() {{}}\n")), &[]);
    let texts = |text: String| check(&[], &[("docs/a.md".to_owned(), text)]);
    finds(&texts(format!("Made {}.\n", concat!("an", "ew"))), &[(1, "language")]);
    finds(&texts(format!("Runs `{0}`.\n\n```\n{0}\n```\n", concat!("an", "ew"))), &[]);
    finds(&texts(format!("It {} of the file.\n", concat!("Lets ", "go"))), &[(1, "language")]);
}

#[test]
fn cited_files_exist() {
    finds(&engine("base/ids.rs", "// See `base/ids.rs`, `ids.rs` and `rs`.\nfn f() {}\n"), &[]);
    finds(&engine("base/ids.rs", "fn f() {}\n// See `base/gone.rs`.\n"), &[(2, "cited-file")]);
    let text = ("docs/a.md".to_owned(), "See `wal/gone.rs`, not `gone.rs PATH`.\n".to_owned());
    finds(&check(&[], &[text]), &[(1, "cited-file")]);
}
