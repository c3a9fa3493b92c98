//! What the columns of a request log are called, where their names don't tell.

use std::path::Path;

use anyhow::bail;
use clap::{Args, ValueEnum};

use crate::codec::requests::{Columns, Unit, names};
use crate::commands::units;
use crate::files::Input;
use crate::model::WallNs;

/// What the user says of a log.
#[derive(Clone, Debug, Default, Args)]
#[group(skip)]
pub(super) struct Options {
    /// What a request log calls something, where its header doesn't tell by itself; may be given more than once.
    /// FIELD is start, source, source-port, target, outcome, status, duration, connect or pod
    #[arg(long = "column", value_name = "FIELD=NAME", value_parser = column)]
    columns: Vec<(Field, String)>,

    /// The unit of durations whose column names none [default: by their size and their column's name]
    #[arg(long, value_enum)]
    duration_unit: Option<UnitName>,

    /// When a log's run began, as Unix seconds: for starts that are counted from it, as oha's are
    #[arg(long, value_name = "TIME", value_parser = units::unix)]
    log_began: Option<WallNs>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Field {
    Start,
    Source,
    SourcePort,
    Target,
    Outcome,
    Status,
    Duration,
    Connect,
    Pod,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum UnitName {
    S,
    Ms,
    Us,
    Ns,
}

/// `start=ts`
fn column(text: &str) -> Result<(Field, String), String> {
    let (field, name) =
        text.split_once('=').ok_or("write it as FIELD=NAME, such as start=ts".to_owned())?;
    let known = || {
        let all = Field::value_variants().iter().filter_map(Field::to_possible_value);
        all.map(|value| value.get_name().to_owned()).collect::<Vec<_>>().join(", ")
    };
    let field = Field::from_str(field, false)
        .map_err(|_| format!("no field is called {field:?}; there are: {}", known()))?;
    match name {
        "" => Err("the column needs a name".to_owned()),
        name => Ok((field, name.to_owned())),
    }
}

impl Options {
    /// As the reader of logs takes it.
    ///
    /// # Errors
    /// If a field is given twice.
    pub(super) fn columns(&self) -> anyhow::Result<Columns> {
        let mut columns = Columns {
            duration_unit: self.duration_unit.map(|unit| match unit {
                UnitName::S => Unit::Seconds,
                UnitName::Ms => Unit::Milliseconds,
                UnitName::Us => Unit::Microseconds,
                UnitName::Ns => Unit::Nanoseconds,
            }),
            began: self.log_began,
            ..Columns::default()
        };
        for (field, name) in &self.columns {
            let place = match field {
                Field::Start => &mut columns.start,
                Field::Source => &mut columns.source,
                Field::SourcePort => &mut columns.source_port,
                Field::Target => &mut columns.target,
                Field::Outcome => &mut columns.outcome,
                Field::Status => &mut columns.status,
                Field::Duration => &mut columns.duration,
                Field::Connect => &mut columns.connect,
                Field::Pod => &mut columns.pod,
            };
            if let Some(other) = place.replace(name.clone()) {
                bail!("--column: the same field is both {other:?} and {name:?}");
            }
        }
        Ok(columns)
    }

    /// Whether every column that was named is one of a log's.
    ///
    /// # Errors
    /// If one is in none of them; with the columns that there are.
    pub(super) fn check(&self, logs: &[impl AsRef<Path>]) -> anyhow::Result<()> {
        if self.columns.is_empty() {
            return Ok(());
        }
        let mut there = Vec::new();
        for path in logs {
            for name in names(Input::open(path.as_ref())?.head()) {
                if !there.contains(&name) {
                    there.push(name);
                }
            }
        }
        if let Some((_, missing)) = self.columns.iter().find(|(_, name)| !there.contains(name)) {
            match there.as_slice() {
                [] => bail!("--column: there is no log of requests with a header"),
                names => bail!(
                    "--column: no log has a column called {missing:?}; there are: {}",
                    names.join(", ")
                ),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_a_field_and_a_name() {
        assert_eq!(column("start=ts"), Ok((Field::Start, "ts".to_owned())));
        assert_eq!(column("source-port=a=b"), Ok((Field::SourcePort, "a=b".to_owned())));
        for (wrong, why) in [
            ("start", "write it as FIELD=NAME, such as start=ts"),
            ("start=", "the column needs a name"),
            (
                "begin=ts",
                "no field is called \"begin\"; there are: start, source, source-port, target, outcome, status, \
                 duration, connect, pod",
            ),
        ] {
            assert_eq!(column(wrong), Err(why.to_owned()));
        }
    }

    #[test]
    fn a_field_has_one_column() {
        let options = Options {
            columns: vec![(Field::Start, "a".to_owned()), (Field::Start, "b".to_owned())],
            ..Options::default()
        };
        let error = options.columns().unwrap_err().to_string();
        assert_eq!(error, "--column: the same field is both \"a\" and \"b\"");
    }
}
