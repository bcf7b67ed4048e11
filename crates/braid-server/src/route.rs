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
    Ticket,
    Backup,
    OpenApi,
    Trees,
    Tree(&'p str),
    Scan(&'p str),
    Record(&'p str, &'p str),
}

/// The resources with a fixed path.
const FIXED: [(&str, Route<'static>); 11] = [
    ("/", Route::Page("index.html")),
    ("/trees", Route::Trees),
    ("/batch", Route::Batch),
    ("/changes", Route::Changes),
    ("/ticket", Route::Ticket),
    ("/backup", Route::Backup),
    ("/stats", Route::Stats),
    ("/metrics", Route::Metrics),
    ("/health", Route::Health),
    ("/ready", Route::Ready),
    ("/openapi.json", Route::OpenApi),
];

impl Route<'_> {
    /// Returns the path without names and keys.
    pub fn pattern(self) -> &'static str {
        match self {
            Route::Health => "/health",
            Route::Ready => "/ready",
            Route::Metrics => "/metrics",
            Route::Stats => "/stats",
            Route::Page(_) => "/page/{file}",
            Route::Batch => "/batch",
            Route::Changes => "/changes",
            Route::Ticket => "/ticket",
            Route::Backup => "/backup",
            Route::OpenApi => "/openapi.json",
            Route::Trees => "/trees",
            Route::Tree(_) => "/trees/{tree}",
            Route::Scan(_) => "/trees/{tree}/",
            Route::Record(..) => "/trees/{tree}/{key}",
        }
    }

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
        FIXED.iter().find(|(fixed, _)| *fixed == path).map(|(_, route)| *route)
    }

    /// Returns the methods, as in the header `Allow`.
    pub fn methods(self) -> &'static str {
        match self {
            Route::Record(..) => "GET, HEAD, PUT, DELETE",
            Route::Tree(_) => "PUT, DELETE",
            Route::Batch | Route::Ticket => "POST",
            _ => "GET, HEAD",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FIXED, Route};

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

    /// Each resource with its methods, and nothing more.
    #[test]
    fn description_has_the_resources_and_their_methods() {
        let text: serde_json::Value = serde_json::from_str(include_str!("../openapi.json")).unwrap();
        let mut described = Vec::new();
        for (path, item) in text["paths"].as_object().unwrap() {
            let methods = item.as_object().unwrap().keys().filter(|name| *name != "parameters" && *name != "summary");
            described.extend(methods.map(|method| (path.as_str(), method.to_uppercase())));
        }
        let others = ["/trees/{tree}", "/trees/{tree}/", "/trees/{tree}/{key}", "/page/{file}"];
        let paths = FIXED.iter().map(|(path, _)| *path).chain(others);
        let methods = |path| Route::of(path).unwrap().methods().split(", ").map(str::to_owned);
        let mut expected: Vec<_> = paths.flat_map(|path| methods(path).map(move |method| (path, method))).collect();
        described.sort();
        expected.sort();
        assert_eq!(described, expected);
    }
}
