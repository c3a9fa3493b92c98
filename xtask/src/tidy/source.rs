//! Rules about a single source file: unsafe code, length, module docs, left-overs, machine paths.

use super::Violation;
use super::paths::SourceFile;

/// From here on a file's length is a question.
const QUESTION: usize = 400;

/// From here on it is a violation.
const TOO_LONG: usize = 600;

/// The modules of tracer-ebpf that may hold unsafe code.
const MAY_BE_UNSAFE: [&str; 3] = ["memory", "maps", "hooks"];

/// How far above an `unsafe` its comment may end: the beginning of a statement that spans lines.
const COMMENT_WITHIN: usize = 3;

/// `unsafe` where it has no place, or without its reason.
pub(crate) fn unsafety(file: &SourceFile) -> Vec<Violation> {
    let module = file.path.strip_prefix("tracer-ebpf/src/");
    let module = module.and_then(|within| within.split(['/', '.']).next());
    let has_place = module.is_some_and(|module| MAY_BE_UNSAFE.contains(&module));
    let violation = |line: usize| {
        if !has_place {
            Some("`unsafe` has no place here: only in tracer-ebpf's memory, maps and hooks")
        } else if !has_reason(&file.lines, line) {
            Some("`unsafe` without a `// SAFETY:` before it")
        } else {
            None
        }
    };
    // `#[unsafe(link_section = …)]` is another word: an attribute, not a block.
    let unsafes = file.words.iter().filter(|word| word.text == "unsafe");
    unsafes.filter_map(|word| Some(Violation::new(word.line, violation(word.line)?))).collect()
}

/// Whether the comment above the line, or the line itself, gives a reason.
fn has_reason(lines: &[&str], line: usize) -> bool {
    let gives = |text: &str| text.contains("// SAFETY:") || text.contains("/// # Safety");
    if gives(lines[line - 1]) {
        return true;
    }
    let above = lines[..line - 1].iter().rev().map(|line| line.trim());
    let mut code_lines = 0;
    let mut in_comment = false;
    for text in above {
        let is_comment = text.starts_with("//");
        if is_comment && gives(text) {
            return true;
        }
        in_comment |= is_comment;
        if !is_comment && !text.starts_with("#[") {
            code_lines += 1;
            if in_comment || text.is_empty() || code_lines > COMMENT_WITHIN {
                return false;
            }
        }
    }
    false
}

/// What must not be left in committed code.
pub(crate) fn left_overs(file: &SourceFile) -> Vec<Violation> {
    let banned = ["todo!", "unimplemented!", "dbg!", "#[ignore]", "#[allow]"];
    let words = file.words.iter().filter(|word| banned.contains(&word.text.as_str()));
    words
        .map(|word| {
            let text = match word.text.as_str() {
                "#[ignore]" => {
                    "`#[ignore]`: a test that can't run here says `left out: NAME: REASON`".into()
                }
                "#[allow]" => "`#[allow]`: use `#[expect(…, reason = \"…\")]`".into(),
                other => format!("`{other}` is left over"),
            };
            Violation::new(word.line, text)
        })
        .collect()
}

/// A module that does not say what it is for. What tests are for is in their names.
pub(crate) fn missing_doc(file: &SourceFile) -> Vec<Violation> {
    if file.is_test || file.lines.first().is_some_and(|line| line.starts_with("//!")) {
        Vec::new()
    } else {
        vec![Violation::new(1, "a module starts with `//!`: what it is for")]
    }
}

/// Files that are too long, and those whose length is a question. Test modules are not counted.
pub(crate) fn length(file: &SourceFile) -> (Vec<Violation>, Option<String>) {
    match file.length() {
        length if length > TOO_LONG => (
            vec![Violation::new(
                0,
                format!("{length} lines without tests: past {TOO_LONG}, split it"),
            )],
            None,
        ),
        length if length > QUESTION => (Vec::new(), Some(format!("{length} lines without tests"))),
        _ => (Vec::new(), None),
    }
}

/// Paths that exist on one developer's machine only.
pub(crate) fn machine_paths(text: &str) -> Vec<Violation> {
    // Taken apart, so that this file does not break its own rule.
    let homes = [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(index, line)| {
            let home = homes.iter().find(|home| line.contains(**home))?;
            Some(Violation::new(index + 1, format!("a path of somebody's machine: {home}…")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: fn(&SourceFile) -> Vec<Violation>, path: &str, text: &str) -> Vec<String> {
        let file = SourceFile::parse(path, text).unwrap();
        rule(&file).into_iter().map(|v| format!("{}: {}", v.line, v.text)).collect()
    }

    const REASONED: &str = "fn f() {\n    // SAFETY: the pointer is\n    // the verifier's.\n    let x =\n        unsafe { *p };\n}\n";

    #[test]
    fn unsafe_needs_its_place_and_its_reason() {
        assert!(found(unsafety, "tracer-ebpf/src/memory.rs", REASONED).is_empty());
        assert!(found(unsafety, "tracer-ebpf/src/hooks/xmit.rs", REASONED).is_empty());
        assert_eq!(
            found(unsafety, "tracer-ebpf/src/packet.rs", REASONED),
            ["5: `unsafe` has no place here: only in tracer-ebpf's memory, maps and hooks"]
        );
        assert_eq!(found(unsafety, "tracer/src/kernel/attach.rs", REASONED).len(), 1);
    }

    #[test]
    fn a_reason_belongs_to_one_unsafe_only() {
        let text = "// SAFETY: one\nlet a = unsafe { f() };\n\nlet b = unsafe { f() };\n";
        assert_eq!(
            found(unsafety, "tracer-ebpf/src/maps.rs", text),
            ["4: `unsafe` without a `// SAFETY:` before it"]
        );
    }

    #[test]
    fn unsafe_in_words_and_attributes_is_no_unsafe_code() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\n#[unsafe(link_section = \"license\")]\nstatic L: u8 = 0;\n";
        assert!(found(unsafety, "tracer-ebpf/src/main.rs", text).is_empty());
    }

    #[test]
    fn left_overs_are_found_in_code_and_not_in_text() {
        let text = "#[allow(dead_code)]\nfn f() { dbg!(1); todo!() }\n#[test]\n#[ignore]\nfn g() { p(\"todo!()\") }\n\
                    #[cfg_attr(x, allow(y))]\nfn h() { unimplemented!() }\n";
        let lines: Vec<String> = found(left_overs, "xtask/src/x.rs", text)
            .iter()
            .map(|line| line[..2].to_owned())
            .collect();
        assert_eq!(lines, ["1:", "2:", "2:", "4:", "6:", "7:"]);
    }

    #[test]
    fn a_long_file_is_a_question_and_then_a_violation_but_its_tests_are_free() {
        let of = |lines: usize, tests: usize| {
            let text = format!(
                "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
                "//\n".repeat(lines),
                "//\n".repeat(tests)
            );
            let file = SourceFile::parse("xtask/src/x.rs", &text).unwrap();
            let (violations, question) = length(&file);
            (violations.len(), question.is_some())
        };
        assert_eq!(of(300, 900), (0, false));
        assert_eq!(of(450, 900), (0, true));
        assert_eq!(of(650, 0), (1, false));
    }

    #[test]
    fn a_module_without_a_doc_is_found() {
        assert!(found(missing_doc, "xtask/src/x.rs", "//! Why.\nfn f() {}\n").is_empty());
        assert_eq!(found(missing_doc, "xtask/src/x.rs", "fn f() {}\n").len(), 1);
        assert!(found(missing_doc, "tracer/src/codec/tests.rs", "fn f() {}\n").is_empty());
    }

    #[test]
    fn a_path_of_somebodys_machine_is_found() {
        let text = format!("fine\nsee {}me/ann/x\n", "/ho");
        assert_eq!(machine_paths(&text)[0].line, 2);
        assert!(machine_paths("/sys/kernel/btf, /proc/self").is_empty());
    }
}
