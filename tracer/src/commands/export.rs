//! `tracer export`: a trace in a form that other programs read.

mod pcapng;
mod pseudonyms;
mod remark;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use super::output;
use crate::cli::Exit;
use crate::codec::json_lines;
use crate::codec::trace::{FrameEncoder, encode_header};
use crate::files::{FileError, TraceReader};
use crate::model::{Event, Seq, TraceHeader};

use pseudonyms::Pseudonyms;

/// Bytes that are written at once.
const CHUNK: usize = 256 * 1024;

/// Options of `tracer export`
#[derive(Debug, Args)]
pub struct Options {
    /// A trace that `tracer lab --record` or `tracer record` made
    trace: PathBuf,

    /// The form [default: by FILE's extension]
    #[arg(long, value_enum)]
    to: Option<Form>,

    /// Write to this file [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Other addresses in place of the trace's own, so that it can be shown to strangers: equal ones stay equal, and
    /// prefixes as long as they were. Ports, names and times stay
    #[arg(long)]
    anonymize: bool,

    /// Replace FILE if it exists
    #[arg(long, requires = "output")]
    force: bool,
}

/// What a trace can be exported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Packets for Wireshark and tshark, with what is known of each as its comment
    Pcapng,
    /// One JSON object an event: docs/events.schema.json describes it
    Jsonl,
    /// A trace again, to be replayed
    Trace,
}

/// Writes the trace in the other form.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    let form = options.form()?;
    let to_terminal = options.output.is_none() && io::stdout().is_terminal();
    if form != Form::Jsonl && to_terminal {
        bail!(
            "{} is nothing for a terminal; give --output FILE, or a pipe to read it",
            form.name()
        );
    }
    if form == Form::Pcapng && options.anonymize {
        bail!("--anonymize makes a trace or JSON lines; export the trace that it makes to pcapng");
    }
    // The trace first: where it can't be read, no file should be left.
    let reader = TraceReader::open(&options.trace)?;
    let pseudonyms = options.anonymize.then(Pseudonyms::new);
    let export = Export { trace: &options.trace, form, pseudonyms };
    match &options.output {
        None => export.write(reader, io::stdout().lock()).context("writing to standard output")?,
        Some(path) => {
            let file = output::create(path, options.force)?;
            export
                .write(reader, file)
                .with_context(|| format!("{} is cut short", path.display()))?;
        }
    }
    Ok(Exit::Done)
}

impl Options {
    fn form(&self) -> anyhow::Result<Form> {
        if let Some(form) = self.to {
            return Ok(form);
        }
        let Some(path) = &self.output else {
            bail!("which form? give --to pcapng, --to jsonl or --to trace");
        };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("pcapng") => Ok(Form::Pcapng),
            Some("jsonl" | "ndjson" | "json") => Ok(Form::Jsonl),
            Some("trace") => Ok(Form::Trace),
            _ => bail!("{} ends in none of .pcapng, .jsonl and .trace; give --to", path.display()),
        }
    }
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Pcapng => "pcapng",
            Form::Jsonl => "jsonl",
            Form::Trace => "a trace",
        }
    }
}

struct Export<'a> {
    trace: &'a Path,
    form: Form,
    pseudonyms: Option<Pseudonyms>,
}

impl Export<'_> {
    fn write(&self, reader: TraceReader, out: impl Write) -> anyhow::Result<()> {
        let mut out = BufWriter::with_capacity(CHUNK, out);
        match self.form {
            Form::Pcapng => pcapng::write(self.trace, reader, &mut out)?,
            Form::Jsonl => self.write_json_lines(reader, &mut out)?,
            Form::Trace => self.write_trace(reader, &mut out)?,
        }
        out.flush()?;
        Ok(())
    }

    fn header(&self, reader: &TraceReader) -> TraceHeader {
        let mut header = reader.header().clone();
        if let Some(pseudonyms) = &self.pseudonyms {
            pseudonyms.header(&mut header);
        }
        header
    }

    fn write_json_lines(&self, reader: TraceReader, out: &mut impl Write) -> anyhow::Result<()> {
        let header = self.header(&reader);
        let mut line = Vec::new();
        json_lines::header(&header, &mut line);
        out.write_all(&line)?;
        for (seq, event) in self.events(reader).enumerate() {
            line.clear();
            json_lines::event(&header, Seq(seq as u64), &event?, &mut line);
            out.write_all(&line)?;
        }
        Ok(())
    }

    fn write_trace(&self, reader: TraceReader, out: &mut impl Write) -> anyhow::Result<()> {
        let mut bytes = encode_header(&self.header(&reader));
        let mut encoder = FrameEncoder::new();
        for event in self.events(reader) {
            if encoder.push(&event?)? {
                encoder.take_frame(&mut bytes);
                out.write_all(&bytes)?;
                bytes.clear();
            }
        }
        encoder.finish(&mut bytes);
        Ok(out.write_all(&bytes)?)
    }

    fn events(&self, reader: TraceReader) -> impl Iterator<Item = Result<Event, FileError>> {
        reader.map(|event| {
            event.map(|mut event| {
                if let Some(pseudonyms) = &self.pseudonyms {
                    pseudonyms.event(&mut event);
                }
                event
            })
        })
    }
}
