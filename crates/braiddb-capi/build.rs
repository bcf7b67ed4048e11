//! Sets the name under which programs load the shared library. It changes with each version that may
//! break programs: 0.1, 0.2, 1, 2.

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let part = |name| var(name).unwrap_or_default();
    let abi = match part("CARGO_PKG_VERSION_MAJOR").as_str() {
        "0" => format!("0.{}", part("CARGO_PKG_VERSION_MINOR")),
        major => major.to_owned(),
    };
    match part("CARGO_CFG_TARGET_OS").as_str() {
        "linux" | "freebsd" => println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbraiddb.so.{abi}"),
        "macos" => println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libbraiddb.{abi}.dylib"),
        _ => {}
    }
}
