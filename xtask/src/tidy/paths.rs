//! A Rust file as the rules see it: its paths, its tokens of interest, and which lines are tests.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::Violation;

/// A file of the repository.
#[derive(Debug)]
pub(crate) struct SourceFile<'a> {
    /// Its path from the repository's root.
    pub(crate) path: &'a str,
    /// Whether all of it is tests.
    pub(crate) is_test: bool,
    /// Its lines.
    pub(crate) lines: Vec<&'a str>,
    /// Every path with at least two segments, groups spread out: `a::{b, c::d}` gives `a::b` and `a::c::d`.
    pub(crate) paths: Vec<RustPath>,
    /// Every word that stands for something on its own: keywords, macros, attributes.
    pub(crate) words: Vec<Word>,
    /// Lines that belong to `#[cfg(test)]` modules.
    pub(crate) test_lines: usize,
}

/// A path in a Rust file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RustPath {
    /// Its segments. A chain of `super` that leads to the crate's root is `crate`.
    pub(crate) segments: Vec<String>,
    /// Its line.
    pub(crate) line: usize,
    /// Whether it is in a test module.
    pub(crate) in_test: bool,
}

/// A word that a rule may look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// `unsafe`, `async`, `todo!`, `#[allow]`, `#[unsafe]`
    pub(crate) text: String,
    /// Its line.
    pub(crate) line: usize,
    /// Whether it is in a test module.
    pub(crate) in_test: bool,
}

impl<'a> SourceFile<'a> {
    /// Reads a file; what is no Rust is a violation itself.
    pub(crate) fn parse(path: &'a str, text: &'a str) -> Result<SourceFile<'a>, Violation> {
        let tokens: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| {
            Violation::new(error.span().start().line, format!("cannot be read as Rust: {error}"))
        })?;
        let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
        let mut file = SourceFile {
            path,
            is_test,
            lines: text.lines().collect(),
            paths: Vec::new(),
            words: Vec::new(),
            test_lines: 0,
        };
        let place = Place { depth: depth(path), in_test: is_test };
        file.walk(&tokens.into_iter().collect::<Vec<_>>(), place);
        Ok(file)
    }

    /// The lines that are not tests.
    pub(crate) fn length(&self) -> usize {
        if self.is_test { 0 } else { self.lines.len() - self.test_lines }
    }

    fn walk(&mut self, tokens: &[TokenTree], place: Place) {
        let mut at = 0;
        let mut test_module_next = false;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    // `#[…]` or `#![…]`
                    let inner = usize::from(is_punct(tokens.get(at + 1), '!'));
                    if let Some(TokenTree::Group(group)) = tokens.get(at + 1 + inner)
                        && group.delimiter() == Delimiter::Bracket
                    {
                        test_module_next |=
                            group.stream().to_string().replace(' ', "") == "cfg(test)";
                        self.attribute(group, place);
                        at += 2 + inner;
                        continue;
                    }
                }
                TokenTree::Ident(ident) => {
                    let name = ident.to_string();
                    let line = ident.span().start().line;
                    if let Some(length) = self.path(&tokens[at..], place) {
                        at += length;
                        continue;
                    }
                    if name == "mod"
                        && let Some(TokenTree::Group(body)) = tokens.get(at + 2)
                    {
                        let in_test = place.in_test || test_module_next;
                        if in_test && !place.in_test {
                            self.test_lines += body.span_close().end().line - line + 1;
                        }
                        let inner: Vec<_> = body.stream().into_iter().collect();
                        self.walk(&inner, Place { depth: place.depth + 1, in_test });
                        at += 3;
                        test_module_next = false;
                        continue;
                    }
                    if !matches!(name.as_str(), "pub" | "mod") {
                        test_module_next = false;
                    }
                    let called = is_punct(tokens.get(at + 1), '!');
                    let text = if called { format!("{name}!") } else { name };
                    self.words.push(Word { text, line, in_test: place.in_test });
                }
                TokenTree::Group(group) => {
                    self.walk(&group.stream().into_iter().collect::<Vec<_>>(), place);
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn attribute(&mut self, group: &Group, place: Place) {
        let tokens: Vec<_> = group.stream().into_iter().collect();
        if let Some(TokenTree::Ident(name)) = tokens.first() {
            let (text, line) = (format!("#[{name}]"), name.span().start().line);
            self.words.push(Word { text, line, in_test: place.in_test });
        }
        // `cfg_attr(…, allow(…))` and the like hide a second attribute; `unsafe(…)` is not a block.
        for token in &tokens {
            if let TokenTree::Group(inner) = token {
                let inner: Vec<_> = inner.stream().into_iter().collect();
                for pair in inner.windows(2) {
                    if let [TokenTree::Ident(name), TokenTree::Group(_)] = pair {
                        let (text, line) = (format!("#[{name}]"), name.span().start().line);
                        self.words.push(Word { text, line, in_test: place.in_test });
                    }
                }
            }
        }
    }

    /// Reads a path with `::` that starts here; how many tokens it takes, if there is one.
    fn path(&mut self, tokens: &[TokenTree], place: Place) -> Option<usize> {
        if !is_separator(&tokens[1..]) {
            return None;
        }
        Some(self.rest_of_path(tokens, &mut Vec::new(), place))
    }

    fn rest_of_path(
        &mut self,
        tokens: &[TokenTree],
        before: &mut Vec<String>,
        place: Place,
    ) -> usize {
        let mut at = 0;
        let mut line = 0;
        let known = before.len();
        loop {
            match tokens.get(at) {
                Some(TokenTree::Ident(ident)) => {
                    before.push(ident.to_string());
                    line = ident.span().start().line;
                    at += 1;
                }
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    let inner: Vec<_> = group.stream().into_iter().collect();
                    for tree in inner.split(|token| is_punct(Some(token), ',')) {
                        self.rest_of_path(tree, &mut before.clone(), place);
                    }
                    before.truncate(known);
                    return at + 1;
                }
                // `*`, `<` of a turbofish, or the end of a list
                _ => break,
            }
            if !is_separator(&tokens[at..]) {
                break;
            }
            at += 2;
        }
        if line > 0 && before.len() > 1 {
            let segments = resolve(before, place.depth);
            self.paths.push(RustPath { segments, line, in_test: place.in_test });
        }
        before.truncate(known);
        at.max(1)
    }
}

/// Where in a file a token stands.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// How many modules deep below the crate's root.
    depth: usize,
    /// Within a test module.
    in_test: bool,
}

/// How deep a file's module lies below its crate's root: 0 for lib.rs.
fn depth(path: &str) -> usize {
    let Some((_, within)) = path.split_once("src/") else { return 0 };
    let mut parts: Vec<&str> = within.trim_end_matches(".rs").split('/').collect();
    if parts.last().is_some_and(|last| matches!(*last, "mod" | "lib" | "main")) {
        parts.pop();
    }
    parts.len()
}

/// A chain of `super` that reaches the root is the crate.
fn resolve(segments: &[String], depth: usize) -> Vec<String> {
    let start = usize::from(segments.first().is_some_and(|first| first == "self"));
    let supers = segments[start..].iter().take_while(|segment| *segment == "super").count();
    if supers > 0 && supers >= depth {
        let rest = segments[start + supers..].iter().cloned();
        std::iter::once("crate".to_owned()).chain(rest).collect()
    } else {
        segments.to_vec()
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_separator(tokens: &[TokenTree]) -> bool {
    is_punct(tokens.first(), ':') && is_punct(tokens.get(1), ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(path: &str, text: &str) -> Vec<String> {
        let file = SourceFile::parse(path, text).unwrap();
        file.paths.iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn grouped_imports_are_spread_out() {
        let text = "use crate::{model::{Event, Seq}, verdict};\nuse std::{fs, io::Read};";
        assert_eq!(
            paths("tracer/src/report/text.rs", text),
            [
                "crate::model::Event",
                "crate::model::Seq",
                "crate::verdict",
                "std::fs",
                "std::io::Read"
            ]
        );
    }

    #[test]
    fn paths_in_code_and_in_macros_are_found_and_those_in_comments_and_text_are_not() {
        let text = r#"
            // crate::kernel is not imported
            fn f() -> Vec<crate::sys::Stop> { println!("crate::lab {}", crate::files::open::<u8>()); }
        "#;
        assert_eq!(
            paths("tracer/src/report/text.rs", text),
            ["crate::sys::Stop", "crate::files::open"]
        );
    }

    #[test]
    fn super_is_followed_up_to_the_root() {
        assert_eq!(
            paths("tracer/src/report/mod.rs", "use super::kernel::Ring;"),
            ["crate::kernel::Ring"]
        );
        assert_eq!(
            paths(
                "tracer/src/report/text.rs",
                "use super::view; mod tests { use super::super::x; }"
            ),
            ["super::view", "super::super::x"]
        );
        assert_eq!(paths("tracer/src/report/text.rs", "use super::super::lab;"), ["crate::lab"]);
    }

    #[test]
    fn test_modules_are_known_and_their_lines_counted_apart() {
        let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\nuse std::env;\n";
        let file = SourceFile::parse("tracer/src/codec/x.rs", text).unwrap();
        assert_eq!(file.length(), 3);
        let in_test: Vec<bool> = file.paths.iter().map(|path| path.in_test).collect();
        assert_eq!(in_test, [true, false]);
    }

    #[test]
    fn what_is_no_rust_is_said_with_its_line() {
        let violation = SourceFile::parse("tracer/src/lib.rs", "fn f() {}\nfn g( {\n").unwrap_err();
        assert!(violation.text.starts_with("cannot be read as Rust"), "{violation:?}");
    }
}
