//! The resources. Finding one takes a few comparisons and no allocation.

/// A resource, by its path. Names and keys are still percent-encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<'p> {
    Health,
    Ready,
    Metrics,
    Stats,
    /// A file of the page.
    Page(&'p str),
    Batch,
    Changes,
    Trees,
    Tree(&'p str),
    Scan(&'p str),
    Record(&'p str, &'p str),
}

impl Route<'_> {
    /// A key is all of the path after the tree's name: slashes belong to it.
    pub fn of(path: &str) -> Option<Route<'_>> {
        if let Some(inside) = path.strip_prefix("/trees/") {
            return match inside.split_once('/') {
                None if inside.is_empty() => Some(Route::Trees),
                None => Some(Route::Tree(inside)),
                Some(("", _)) => None,
                Some((tree, "")) => Some(Route::Scan(tree)),
                Some((tree, key)) => Some(Route::Record(tree, key)),
            };
        }
        if let Some(file) = path.strip_prefix("/page/") {
            return Some(Route::Page(file));
        }
        match path {
            "/" => Some(Route::Page("index.html")),
            "/stats" => Some(Route::Stats),
            "/health" => Some(Route::Health),
            "/ready" => Some(Route::Ready),
            "/metrics" => Some(Route::Metrics),
            "/batch" => Some(Route::Batch),
            "/changes" => Some(Route::Changes),
            "/trees" => Some(Route::Trees),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Route;

    #[test]
    fn route_of_each_path_is_found() {
        for (path, route) in [
            ("/trees", Some(Route::Trees)),
            ("/trees/", Some(Route::Trees)),
            ("/trees/t", Some(Route::Tree("t"))),
            ("/trees/t/", Some(Route::Scan("t"))),
            ("/trees/t/k", Some(Route::Record("t", "k"))),
            ("/trees/t//", Some(Route::Record("t", "/"))),
            ("/trees/t/a/b/", Some(Route::Record("t", "a/b/"))),
            ("/trees/%2F/%2F", Some(Route::Record("%2F", "%2F"))),
            ("/trees//k", None),
            ("/tree", None),
            ("/", Some(Route::Page("index.html"))),
            ("/page/main.js", Some(Route::Page("main.js"))),
            ("/stats", Some(Route::Stats)),
            ("", None),
            ("/health", Some(Route::Health)),
            ("/health/", None),
            ("/changes", Some(Route::Changes)),
        ] {
            assert_eq!(Route::of(path), route, "{path}");
        }
    }
}
