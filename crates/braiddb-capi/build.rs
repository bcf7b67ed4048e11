//! Sets the name under which programs load the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("linux" | "freebsd") => println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbraiddb.so.{major}"),
        Ok("macos") => println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libbraiddb.{major}.dylib"),
        _ => {}
    }
}
