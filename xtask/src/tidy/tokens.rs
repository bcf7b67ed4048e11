//! Tokenizes a file and finds its paths, functions and test modules.

/// A name, a number or one punctuation mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// A path as written, such as `crate::base::Error`; one for each leaf of a use tree.
#[derive(Debug, PartialEq, Eq)]
pub struct PathUse {
    /// The names; a glob is `*`.
    pub names: Vec<String>,
    /// The line of its first token, or of its leaf in a use tree.
    pub line: usize,
    /// The index of its first token.
    pub token: usize,
}

/// A module compiled for tests only.
pub struct TestModule {
    pub name: String,
    /// The indexes of its braces; none for a module in its own file.
    pub body: Option<(usize, usize)>,
}

/// A function with a body.
pub struct Function {
    pub name: String,
    /// The line of the word `fn`.
    pub first_line: usize,
    /// The line of the closing brace.
    pub last_line: usize,
}

/// Splits code without comments and with empty literals; `::` is one token.
pub fn tokenize(code: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
            let len = match rest.find(|letter| !is_name(letter)) {
                Some(0) if rest.starts_with("::") => 2,
                Some(0) => first.len_utf8(),
                Some(len) => len,
                None => rest.len(),
            };
            tokens.push(Token { text: rest[..len].to_owned(), line: number + 1 });
            rest = rest[len..].trim_start();
        }
    }
    tokens
}

pub fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| token.text.as_str())
}

fn is_name(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

/// Returns the token that closes the bracket at `open`, or the last token.
pub fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len().saturating_sub(1)
}

/// Returns all paths of two or more names, and all paths of `use`, without visibility restrictions.
pub fn paths(tokens: &[Token]) -> Vec<PathUse> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if text(tokens, at) == "use" && text(tokens, at + 1) != "<" {
            at = use_tree(tokens, at + 1, &[], &mut found);
        } else if is_name(text(tokens, at)) && text(tokens, at + 1) == "::" {
            let start = at;
            let mut names = vec![tokens[at].text.clone()];
            while text(tokens, at + 1) == "::" && is_name(text(tokens, at + 2)) {
                names.push(tokens[at + 2].text.clone());
                at += 2;
            }
            // A visibility restriction is no import.
            if start == 0 || text(tokens, start - 1) != "in" {
                found.push(PathUse { names, line: tokens[start].line, token: start });
            }
            at += 1;
        } else {
            at += 1;
        }
    }
    found
}

/// Reads the use tree that begins at `at` below `prefix`; returns the token after it.
fn use_tree(tokens: &[Token], mut at: usize, prefix: &[String], found: &mut Vec<PathUse>) -> usize {
    let start = at;
    let mut names = prefix.to_vec();
    loop {
        match text(tokens, at) {
            "::" => at += 1,
            "{" => {
                at += 1;
                while !matches!(text(tokens, at), "}" | "") {
                    at = use_tree(tokens, at, &names, found);
                    at += usize::from(text(tokens, at) == ",");
                }
                return at + 1;
            }
            "," | "}" | ";" | "" => break,
            "as" => at += 2,
            name => {
                names.push(name.to_owned());
                at += 1;
            }
        }
    }
    found.push(PathUse { names, line: tokens.get(start).map_or(0, |token| token.line), token: start });
    // Skip misplaced punctuation, to avoid an endless loop.
    if at == start && !matches!(text(tokens, at), "," | "}" | ";" | "") { at + 1 } else { at }
}

pub fn functions(tokens: &[Token]) -> Vec<Function> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        if text(tokens, at) != "fn" || !is_name(text(tokens, at + 1)) {
            continue;
        }
        let mut body = at + 2;
        while !matches!(text(tokens, body), "{" | ";" | "") {
            body = if matches!(text(tokens, body), "(" | "[") { closing(tokens, body) + 1 } else { body + 1 };
        }
        if text(tokens, body) == "{" {
            let last_line = tokens[closing(tokens, body)].line;
            found.push(Function { name: tokens[at + 1].text.clone(), first_line: tokens[at].line, last_line });
        }
    }
    found
}

/// Returns the modules under `#[cfg(test)]` or a similar condition.
pub fn test_modules(tokens: &[Token]) -> Vec<TestModule> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        if text(tokens, at) != "#" || text(tokens, at + 1) != "[" || text(tokens, at + 2) != "cfg" {
            continue;
        }
        let end = closing(tokens, at + 1);
        let condition = &tokens[at + 2..end];
        let has = |wanted: &str| condition.iter().any(|token| token.text == wanted);
        if !has("test") || has("not") || has("any") {
            continue;
        }
        let mut item = after_attributes(tokens, end + 1);
        if text(tokens, item) == "pub" {
            item += 1;
            item = if text(tokens, item) == "(" { closing(tokens, item) + 1 } else { item };
        }
        if text(tokens, item) == "mod" {
            let body = (text(tokens, item + 2) == "{").then(|| (item + 2, closing(tokens, item + 2)));
            found.push(TestModule { name: text(tokens, item + 1).to_owned(), body });
        }
    }
    found
}

/// Returns the first token at or after `at` that belongs to no attribute.
pub fn after_attributes(tokens: &[Token], mut at: usize) -> usize {
    while text(tokens, at) == "#" {
        at += if text(tokens, at + 1) == "!" { 2 } else { 1 };
        at = closing(tokens, at) + 1;
    }
    at
}

/// Returns the number of inline modules around the token at `place`.
pub fn inline_module_depth(tokens: &[Token], place: usize) -> usize {
    let is_around =
        |&at: &usize| text(tokens, at) == "mod" && text(tokens, at + 2) == "{" && closing(tokens, at + 2) > place;
    (0..place).filter(is_around).count()
}
