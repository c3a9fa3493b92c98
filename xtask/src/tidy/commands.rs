//! The command lines in the documentation's code blocks: in `sh` blocks each line, in `console` blocks those
//! after `$ ` or `# `. Used by `cargo xtask tidy` and, for its own command lines, by a test of tracer.

/// A command in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// The line it begins on, counted from 1.
    pub(crate) line: usize,
    /// Its words, without redirections, variables set before it, and `sudo`.
    pub(crate) words: Vec<String>,
}

impl Command {
    /// The arguments, if it runs this program: by name, by path, or through `cargo run`.
    pub(crate) fn arguments_of(&self, program: &str) -> Option<&[String]> {
        let (first, rest) = self.words.split_first()?;
        if first.rsplit('/').next() == Some(program) {
            return Some(rest);
        }
        let is_cargo_run = first == "cargo" && rest.first().is_some_and(|word| word == "run");
        let after_dashes = rest.iter().position(|word| word == "--")? + 1;
        (is_cargo_run && program == "tracer").then(|| &rest[after_dashes..])
    }
}

/// All commands of a Markdown text.
pub(crate) fn commands(markdown: &str) -> Vec<Command> {
    let mut found = Vec::new();
    let mut block = Block::Text;
    let mut lines = markdown.lines().enumerate();
    while let Some((index, raw)) = lines.next() {
        let line = raw.trim();
        if let Some(language) = line.strip_prefix("```") {
            block = match (&block, language) {
                (Block::Text, "sh") => Block::Sh,
                (Block::Text, "console") => Block::Console,
                (Block::Text, _) => Block::Other,
                _ => Block::Text,
            };
            continue;
        }
        let typed = match block {
            Block::Sh => Some(line).filter(|line| !line.starts_with('#')),
            Block::Console => line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")),
            Block::Text | Block::Other => None,
        };
        let Some(typed) = typed else { continue };
        let mut typed = typed.to_owned();
        while typed.ends_with('\\') {
            typed.pop();
            typed.push_str(lines.next().map_or("", |(_, next)| next.trim()));
        }
        found.extend(split(&typed).into_iter().map(|words| Command { line: index + 1, words }));
    }
    found
}

enum Block {
    Text,
    Sh,
    Console,
    Other,
}

/// The simple commands of a shell line.
fn split(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut words = words(line).into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "|" | "&&" | "||" | ";" | "&" => commands.push(Vec::new()),
            ">" | ">>" | "<" | "2>" => drop(words.next()),
            _ if word.starts_with('#') => break,
            _ => {
                let command = commands.last_mut().expect("never empty");
                let is_prefix = command.is_empty() && (word == "sudo" || word.contains('='));
                if !is_prefix {
                    command.push(word);
                }
            }
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}

/// Words at white space, quotes taken off.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut quote = None;
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
