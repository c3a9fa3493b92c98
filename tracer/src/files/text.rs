//! Reading the texts that people have, of any size in the same memory.

use std::io::{self, Read};

use super::{FileError, Input};
use crate::codec::{Step, conntrack, requests, watch};

/// Bytes asked of the file at once.
const CHUNK: usize = 256 * 1024;
/// No file of sysctls is larger.
const SYSCTLS: u64 = 1024 * 1024;

/// Something of [`codec`](crate::codec) that reads a text from bytes as they come.
pub trait Text {
    /// What it reads.
    type Item;
    /// Adds bytes.
    fn feed(&mut self, bytes: &[u8]);
    /// Says that there are no more bytes.
    fn close(&mut self);
    /// The next thing.
    fn step(&mut self) -> Step<Self::Item>;
}

macro_rules! text {
    ($reader:ty, $item:ty) => {
        impl Text for $reader {
            type Item = $item;
            fn feed(&mut self, bytes: &[u8]) {
                <$reader>::feed(self, bytes);
            }
            fn close(&mut self) {
                <$reader>::close(self);
            }
            fn step(&mut self) -> Step<$item> {
                <$reader>::step(self)
            }
        }
    };
}

text!(conntrack::Reader, conntrack::Flow);
text!(watch::Reader, watch::Told);
text!(requests::Reader, requests::Request);

/// A text, read from its beginning to its end. An error of the disk ends it.
#[derive(Debug)]
pub struct TextReader<T> {
    input: Input,
    text: T,
    chunk: Vec<u8>,
    done: bool,
}

impl<T: Text> TextReader<T> {
    /// Reads the text in this file.
    pub fn new(input: Input, text: T) -> TextReader<T> {
        TextReader { input, text, chunk: vec![0; CHUNK], done: false }
    }

    /// The file, for its progress, and for whether it was cut short.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// What reads it, for its counts.
    pub fn text(&self) -> &T {
        &self.text
    }
}

impl<T: Text> Iterator for TextReader<T> {
    type Item = Result<T::Item, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            match self.text.step() {
                Step::Item(item) => return Some(Ok(item)),
                Step::End => self.done = true,
                Step::More => match read(&mut self.input, &mut self.chunk) {
                    Ok(0) => self.text.close(),
                    Ok(count) => self.text.feed(&self.chunk[..count]),
                    Err(source) => {
                        self.done = true;
                        let path = self.input.path().to_owned();
                        return Some(Err(FileError::Read { path, source }));
                    }
                },
            }
        }
        None
    }
}

fn read(input: &mut Input, chunk: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Whether these first bytes of a file are values of sysctls: `name = value`, the first of a name that is one.
pub(super) fn are_sysctls(start: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(start) else { return false };
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
    first.and_then(sysctl).is_some_and(|(name, _)| {
        ["net.", "kernel.", "vm.", "fs."].iter().any(|root| name.starts_with(root))
    })
}

/// The sysctls in a file, by name, with white space in their values folded to one space.
///
/// # Errors
/// If it can't be read.
pub fn sysctls(input: Input) -> Result<Vec<(String, String)>, FileError> {
    let path = input.path().to_owned();
    let mut bytes = Vec::new();
    input
        .take(SYSCTLS)
        .read_to_end(&mut bytes)
        .map_err(|source| FileError::Read { path, source })?;
    Ok(String::from_utf8_lossy(&bytes).lines().filter_map(sysctl).collect())
}

fn sysctl(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty() && name.contains('.') && !name.contains(char::is_whitespace);
    let value: Vec<&str> = value.split_whitespace().collect();
    is_name.then(|| (name.to_owned(), value.join(" ")))
}
