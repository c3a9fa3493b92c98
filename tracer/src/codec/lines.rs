//! Bytes as they come to lines.

use super::Step;

/// Splits bytes into lines. Holds one line, and none longer than its limit.
#[derive(Debug)]
pub(super) struct Lines {
    limit: usize,
    input: Vec<u8>,
    used: usize,
    /// Up to here `input` has no line end after `used`.
    searched: usize,
    number: u64,
    closed: bool,
    /// Whether the rest of a line that is too long is passed over.
    skipping: bool,
}

/// A line without its end, or what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Whole(&'a [u8]),
    TooLong,
}

impl Lines {
    pub(super) fn new(limit: usize) -> Lines {
        Lines {
            limit,
            input: Vec::new(),
            used: 0,
            searched: 0,
            number: 0,
            closed: false,
            skipping: false,
        }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.input.drain(..self.used);
        self.searched -= self.used;
        self.used = 0;
        self.input.extend_from_slice(bytes);
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// The next line with its number, from 1.
    pub(super) fn next(&mut self) -> Step<(u64, Line<'_>)> {
        loop {
            let end = memchr::memchr(b'\n', &self.input[self.searched..]);
            let (line, next) = match end {
                Some(at) => (self.used..self.searched + at, self.searched + at + 1),
                None => {
                    self.searched = self.input.len();
                    if self.searched - self.used > self.limit {
                        self.used = self.searched;
                        if !self.skipping {
                            self.skipping = true;
                            return Step::Item((self.number + 1, Line::TooLong));
                        }
                    }
                    if !self.closed {
                        return Step::More;
                    }
                    if self.used == self.input.len() {
                        return Step::End;
                    }
                    (self.used..self.input.len(), self.input.len())
                }
            };
            self.number += 1;
            self.used = next;
            self.searched = next;
            let too_long = line.len() > self.limit;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            let line = if too_long {
                Line::TooLong
            } else {
                let line = &self.input[line];
                Line::Whole(line.strip_suffix(b"\r").unwrap_or(line))
            };
            return Step::Item((self.number, line));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8], chunk: usize, limit: usize) -> Vec<(u64, String)> {
        let mut lines = Lines::new(limit);
        let mut chunks = bytes.chunks(chunk);
        let mut read = Vec::new();
        loop {
            match lines.next() {
                Step::Item((number, Line::Whole(line))) => {
                    read.push((number, String::from_utf8_lossy(line).into_owned()));
                }
                Step::Item((number, Line::TooLong)) => read.push((number, "too long".to_owned())),
                Step::More => match chunks.next() {
                    Some(chunk) => lines.feed(chunk),
                    None => lines.close(),
                },
                Step::End => return read,
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_one_line() {
        let text = b"one\r\nmuch too long a line\n\nlast";
        for chunk in 1..text.len() {
            let read = read(text, chunk, 8);
            let read: Vec<_> = read.iter().map(|(number, line)| (*number, line.as_str())).collect();
            assert_eq!(read, [(1, "one"), (2, "too long"), (3, ""), (4, "last")], "{chunk}");
        }
    }

    proptest! {
        #[test]
        fn the_pieces_that_bytes_come_in_do_not_matter(text in "[a-c\n]{0,80}", chunk in 1..20_usize) {
            prop_assert_eq!(read(text.as_bytes(), chunk, 6), read(text.as_bytes(), 1_000, 6));
            let expected: Vec<_> = text.lines().map(str::to_owned).collect();
            let lines: Vec<_> = read(text.as_bytes(), chunk, 1_000).into_iter().map(|(_, line)| line).collect();
            prop_assert_eq!(lines, expected);
        }
    }
}
