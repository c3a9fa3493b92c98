//! A stream of JSON objects, taken apart as bytes come: one after the other, on a line each or over many, and
//! the items of a list one by one, so that no list is ever held whole.

use super::super::Step;

/// The largest object that is read. The API server stores no more than 1.5 MB; indented it may be three times
/// that.
const LIMIT: usize = 16 * 1024 * 1024;

/// One object of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// The line that it begins at, from 1.
    pub(super) line: u64,
    /// Its bytes, balanced, or why there are none.
    pub(super) json: Result<&'a [u8], SplitError>,
    /// The kind of the list that it is an item of, if the list said so before its items.
    pub(super) list: Option<String>,
}

/// What stands where an object should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SplitError {
    #[error("an object without its end")]
    Cut,
    #[error("an object too large")]
    TooLarge,
    #[error("text between the objects")]
    Text,
}

/// Takes the stream apart. Holds one object.
#[derive(Debug, Default)]
pub(super) struct Objects {
    input: Vec<u8>,
    /// Up to here all has been handed out or passed over.
    used: usize,
    /// Up to here the bytes were looked at.
    at: usize,
    /// Line ends before `at`.
    lines: u64,
    closed: bool,
    depth: usize,
    string: InString,
    /// The line at which the open object began.
    began: u64,
    /// Whether `used` is the beginning of an open object.
    open: bool,
    /// At the depth of a list's own keys: the last string, and whether a colon came since.
    word: Vec<u8>,
    key: Option<Vec<u8>>,
    list: Option<List>,
    /// What the object said of its kind, for the case that it is a list.
    kind: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum InString {
    #[default]
    No,
    Yes,
    /// Behind a backslash.
    Escape,
}

/// The items of a list are at depth 2: object, array.
#[derive(Debug)]
struct List;

const ITEMS: usize = 2;

impl Objects {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.input.drain(..self.used);
        self.at -= self.used;
        self.used = 0;
        self.input.extend_from_slice(bytes);
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn next(&mut self) -> Step<Piece<'_>> {
        loop {
            if self.at >= self.input.len() {
                return self.out_of_bytes();
            }
            let byte = self.input[self.at];
            // A line that begins with a brace begins an object: what is inside of one is indented or on the
            // same line. So damage costs no more than the object that it hits.
            let fresh_line = self.at == 0 || self.input[self.at - 1] == b'\n';
            if byte == b'{' && fresh_line && self.at > self.used && self.is_inside() {
                return self.cut(self.at, SplitError::Cut);
            }
            if self.depth == 0 && !self.is_plain(byte) {
                match self.pass_line() {
                    Some(piece) => return Step::Item(self.piece(piece)),
                    None => return Step::More,
                }
            }
            self.at += 1;
            if byte == b'\n' {
                self.lines += 1;
                if self.string != InString::No {
                    // No string has a line end in it.
                    return self.cut(self.at, SplitError::Cut);
                }
            }
            if let Some(end) = self.take(byte) {
                return Step::Item(self.piece(end));
            }
            if self.open && self.at - self.used > LIMIT {
                return self.cut(self.at, SplitError::TooLarge);
            }
            if !self.open {
                self.used = self.at;
            }
        }
    }

    /// Whether the open object is one that a new one may not begin in.
    fn is_inside(&self) -> bool {
        self.string != InString::No || if self.list.is_some() { self.open } else { self.depth > 0 }
    }

    /// Whether a byte may stand between objects.
    fn is_plain(&self, byte: u8) -> bool {
        byte.is_ascii_whitespace() || matches!(byte, b'{' | b'[' | b']' | b',' | 0xef | 0xbb | 0xbf)
    }

    /// Takes a byte; the bytes of an object and its line if it ends one.
    fn take(&mut self, byte: u8) -> Option<Ended> {
        match (self.string, byte) {
            (InString::Escape, _) => self.string = InString::Yes,
            (InString::Yes, b'\\') => self.string = InString::Escape,
            (InString::Yes, b'"') => {
                self.string = InString::No;
                self.string_ended();
            }
            (InString::Yes, _) if self.depth == 1 && self.word.len() < 64 => self.word.push(byte),
            (InString::Yes, _) => {}
            (InString::No, b'"') if self.depth > 0 => {
                self.string = InString::Yes;
                self.word.clear();
            }
            (InString::No, b':') if self.depth == 1 => self.key = Some(self.word.clone()),
            (InString::No, b',') if self.depth == 1 => self.key = None,
            (InString::No, b'{') => self.opens(),
            (InString::No, b'[') if self.depth > 0 => {
                if self.depth == 1 && self.list.is_none() && self.key.as_deref() == Some(b"items") {
                    self.list = Some(List);
                    self.open = false;
                }
                self.depth += 1;
            }
            (InString::No, b'}' | b']') if self.depth > 0 => return self.closes(),
            (InString::No, _) => {}
        }
        None
    }

    fn string_ended(&mut self) {
        if self.depth == 1 && self.key.as_deref() == Some(b"kind") {
            self.kind = String::from_utf8(self.word.clone()).ok();
        }
    }

    fn opens(&mut self) {
        let begins = if self.list.is_some() { self.depth == ITEMS } else { self.depth == 0 };
        if begins {
            self.open = true;
            self.used = self.at - 1;
            self.began = self.lines + 1;
        }
        self.depth += 1;
    }

    fn closes(&mut self) -> Option<Ended> {
        self.depth -= 1;
        let ends = if self.list.is_some() { self.depth == ITEMS } else { self.depth == 0 };
        let list = self.list.as_ref().and(self.kind.clone());
        if self.depth == 0 {
            self.forget();
        }
        if !ends || !self.open {
            return None;
        }
        self.open = false;
        let from = std::mem::replace(&mut self.used, self.at);
        Some(Ended { line: self.began, json: Ok((from, self.at)), list })
    }

    fn forget(&mut self) {
        self.depth = 0;
        self.string = InString::No;
        self.key = None;
        self.list = None;
        self.kind = None;
    }

    /// Gives up the open object and goes on at `to`.
    fn cut(&mut self, to: usize, error: SplitError) -> Step<Piece<'_>> {
        let line = if self.open { self.began } else { self.lines.max(1) };
        self.forget();
        self.open = false;
        self.used = to;
        self.at = to;
        Step::Item(Piece { line, json: Err(error), list: None })
    }

    /// Passes over a line that is no JSON, if it is there to its end.
    fn pass_line(&mut self) -> Option<Ended> {
        let end = memchr::memchr(b'\n', &self.input[self.at..]).map(|end| self.at + end);
        let line = self.lines + 1;
        match end {
            Some(end) => self.at = end,
            // A line longer than any that a person reads is given up in parts.
            None if self.closed || self.input.len() - self.at > 64 * 1024 => {
                self.at = self.input.len();
            }
            None => return None,
        }
        self.used = self.at;
        Some(Ended { line, json: Err(SplitError::Text), list: None })
    }

    fn out_of_bytes(&mut self) -> Step<Piece<'_>> {
        if !self.closed {
            Step::More
        } else if self.depth > 0 {
            self.cut(self.input.len(), SplitError::Cut)
        } else {
            Step::End
        }
    }

    fn piece(&self, ended: Ended) -> Piece<'_> {
        let json = ended.json.map(|(from, to)| &self.input[from..to]);
        Piece { line: ended.line, json, list: ended.list }
    }
}

struct Ended {
    line: u64,
    json: Result<(usize, usize), SplitError>,
    list: Option<String>,
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8], chunk: usize) -> Vec<String> {
        let mut objects = Objects::default();
        let mut chunks = bytes.chunks(chunk);
        let mut read = Vec::new();
        loop {
            match objects.next() {
                Step::Item(Piece { line, json, list }) => {
                    let json = json.map(|json| String::from_utf8_lossy(json).into_owned());
                    let list = list.map(|list| format!(" of {list}")).unwrap_or_default();
                    read.push(format!(
                        "{line}: {}{list}",
                        json.unwrap_or_else(|error| error.to_string())
                    ));
                }
                Step::More => match chunks.next() {
                    Some(chunk) => objects.feed(chunk),
                    None => objects.close(),
                },
                Step::End => return read,
            }
        }
    }

    fn check(text: &str, expected: Expect) {
        let whole = read(text.as_bytes(), usize::MAX);
        expected.assert_eq(&(whole.join("\n") + "\n"));
        for chunk in [1, 3, 10] {
            assert_eq!(read(text.as_bytes(), chunk), whole, "in pieces of {chunk}");
        }
    }

    #[test]
    fn objects_follow_each_other_with_or_without_lines() {
        check(
            "{\"a\":{\"b\":\"}{\\\"\"}}{\"c\":[{}]}\n\n{\n  \"d\": {\n  }\n}\n",
            expect![[r#"
                1: {"a":{"b":"}{\""}}
                1: {"c":[{}]}
                3: {
                  "d": {
                  }
                }
            "#]],
        );
    }

    #[test]
    fn a_list_is_its_items() {
        check(
            "{\"kind\":\"PodList\",\"metadata\":{\"items\":[{}]},\"items\":[{\"n\":{\"m\":1}},{\"n\":2}]}{\"x\":1}",
            expect![[r#"
                1: {"n":{"m":1}} of PodList
                1: {"n":2} of PodList
                1: {"x":1}
            "#]],
        );
        check(
            "{\n  \"items\": [\n    {\n      \"n\": 1\n    }\n  ],\n  \"kind\": \"List\"\n}\n{\"items\":[]}[{\"y\":1},{}]",
            expect![[r#"
                3: {
                      "n": 1
                    }
                9: {"y":1}
                9: {}
            "#]],
        );
    }

    #[test]
    fn damage_costs_the_object_that_it_hits() {
        check(
            "{\"a\":1}\nError from server: {oops}\n{\"b\":{\n{\"c\":1}\n{\"d\":\"x\n{\"e\":1}\n{\"items\":[{\"f\":1},{\"g\":\n{\"h\":1}\n{\"i\":",
            expect![[r#"
                1: {"a":1}
                2: text between the objects
                3: an object without its end
                4: {"c":1}
                5: an object without its end
                6: {"e":1}
                7: {"f":1}
                7: an object without its end
                8: {"h":1}
                9: an object without its end
            "#]],
        );
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_an_end(
            text in "([{}\\[\\]\",:\\\\\n a]|\"items\"|\"kind\":\"PodList\"){0,60}",
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            chunk in 1..50_usize,
        ) {
            for bytes in [text.into_bytes(), bytes] {
                prop_assert_eq!(read(&bytes, chunk), read(&bytes, usize::MAX));
            }
        }
    }
}
