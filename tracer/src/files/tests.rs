use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;
use crate::codec::trace::samples::{each_kind, header, realistic};
use crate::model::{Event, EventKind, LossSource};

/// A folder of its own, and a path in it that is free.
fn place() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.trace");
    (folder, path)
}

fn sample() -> Vec<Event> {
    realistic(1, 40, Duration::from_millis(6))
}

fn write(path: &Path, events: &[Event]) {
    let mut writer = TraceWriter::create(path, &header(), Existing::Keep).unwrap();
    for event in events {
        writer.append(event).unwrap();
    }
    writer.finish().unwrap();
}

fn read(path: &Path) -> Vec<Event> {
    TraceReader::open(path).unwrap().collect::<Result<_, _>>().unwrap()
}

fn is_cut_short(event: &Event) -> bool {
    matches!(event.kind, EventKind::Lost { source: LossSource::TraceFile, .. })
}

/// An error as `main` prints it.
fn line(error: FileError) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

#[test]
fn a_trace_reads_back_with_its_header_and_its_trailer() {
    let (_folder, path) = place();
    // More than one frame and more than one piece of the reader's.
    let events = realistic(1, 8_000, Duration::from_micros(500));
    write(&path, &events);
    let mut reader = TraceReader::open(&path).unwrap();
    assert_eq!(*reader.header(), header());
    assert!(reader.by_ref().map(Result::unwrap).eq(events.iter().cloned()));
    assert_eq!(reader.trailer().map(|trailer| trailer.events), Some(events.len() as u64));
    assert_eq!(reader.position(), reader.length());
}

#[test]
fn only_its_owner_can_read_a_trace() {
    let (_folder, path) = place();
    write(&path, &[]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_was_flushed_is_readable_while_the_trace_is_being_written() {
    let (_folder, path) = place();
    let events = sample();
    let mut writer = TraceWriter::create(&path, &header(), Existing::Keep).unwrap();
    for event in &events[..100] {
        writer.append(event).unwrap();
    }
    writer.flush().unwrap();
    for event in &events[100..] {
        writer.append(event).unwrap();
    }
    // As after a crash now: the writer's last events are not in the file.
    let read = read(&path);
    assert_eq!(read[..100], events[..100]);
    assert!(is_cut_short(&read[100]) && read.len() == 101);
}

#[test]
fn a_tick_writes_what_has_waited_for_a_second() {
    let (_folder, path) = place();
    let events = sample();
    let mut writer = TraceWriter::create(&path, &header(), Existing::Keep).unwrap();
    let created = Instant::now();
    writer.append(&events[0]).unwrap();
    writer.tick_at(created + Duration::from_millis(900)).unwrap();
    assert_eq!(read(&path).len(), 1, "nothing yet but the missing end");
    writer.tick_at(created + Duration::from_millis(1_000)).unwrap();
    assert_eq!(read(&path)[0], events[0]);
}

#[test]
fn a_trace_that_nobody_finished_keeps_its_events_and_is_cut_short() {
    let (_folder, path) = place();
    let events = sample();
    let mut writer = TraceWriter::create(&path, &header(), Existing::Keep).unwrap();
    for event in &events {
        writer.append(event).unwrap();
    }
    drop(writer);
    let read = read(&path);
    assert_eq!(read[..events.len()], events[..]);
    assert!(is_cut_short(&read[events.len()]) && read.len() == events.len() + 1);
}

#[test]
fn an_existing_file_is_kept_and_only_a_trace_is_replaced_when_asked() {
    let (_folder, path) = place();
    write(&path, &sample());
    let error = TraceWriter::create(&path, &header(), Existing::Keep).unwrap_err();
    assert_eq!(
        line(error),
        format!(
            "{} exists; remove it, choose another name, or replace it with --force",
            path.display()
        )
    );
    assert_eq!(read(&path), sample());

    TraceWriter::create(&path, &header(), Existing::Replace).unwrap().finish().unwrap();
    assert_eq!(read(&path), []);

    fs::write(&path, "a letter").unwrap();
    let error = TraceWriter::create(&path, &header(), Existing::Replace).unwrap_err();
    assert_eq!(
        line(error),
        format!("{} exists and is not a trace of tracer, so it is not replaced", path.display())
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "a letter");
}

#[test]
fn trying_a_place_changes_nothing_there() {
    let (_folder, path) = place();
    check(&path, Existing::Keep).unwrap();
    assert!(!path.exists());
    write(&path, &sample());
    assert!(matches!(check(&path, Existing::Keep), Err(FileError::Exists { .. })));
    check(&path, Existing::Replace).unwrap();
    assert_eq!(read(&path), sample());
    fs::write(&path, "a letter").unwrap();
    assert!(matches!(check(&path, Existing::Replace), Err(FileError::NotReplaced { .. })));
    check(Path::new("/dev/full"), Existing::Keep).unwrap();
    assert!(matches!(
        check(Path::new("/proc/a.trace"), Existing::Keep),
        Err(FileError::Create { .. })
    ));
}

#[test]
fn a_full_disk_is_one_line_and_ends_the_writing() {
    let error = TraceWriter::create(Path::new("/dev/full"), &header(), Existing::Keep).unwrap_err();
    assert_eq!(
        line(error),
        "cannot write /dev/full, which ends after 0 events: No space left on device (os error 28)"
    );
}

#[test]
fn what_was_written_before_the_disk_was_full_stays_readable() {
    // In a thread of its own, whose mounts nobody else sees and which end with it.
    std::thread::spawn(|| {
        let (folder, path) = place();
        if let Err(error) = mount_small_disk(folder.path()) {
            eprintln!("left out: cannot mount a small file system: {error}");
            return;
        }
        // 1 MiB of disk, and more than that of trace.
        let events = realistic(1, 40_000, Duration::from_micros(500));
        let mut writer = TraceWriter::create(&path, &header(), Existing::Keep).unwrap();
        let error = events.iter().find_map(|event| writer.append(event).err()).expect("it is full");
        let FileError::Write { events: kept, .. } = error else { panic!("{error}") };
        assert!(line(error).ends_with(" events: No space left on device (os error 28)"));
        assert!(writer.finish().is_err());
        let read = read(&path);
        assert!(kept > 0);
        let kept = kept as usize;
        assert_eq!(read[..kept], events[..kept]);
        assert!(is_cut_short(&read[kept]) && read.len() == kept + 1);
    })
    .join()
    .unwrap();
}

/// Mounts 1 MiB on a folder, in a mount namespace that the calling thread enters for it.
fn mount_small_disk(folder: &Path) -> nix::Result<()> {
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), Some("size=1m"))
}

#[test]
fn what_is_no_trace_is_refused_with_one_line() {
    let (folder, path) = place();
    let says = |path: &Path| line(TraceReader::open(path).unwrap_err());
    let name = path.display();
    assert_eq!(says(&path), format!("cannot open {name}: No such file or directory (os error 2)"));
    fs::write(&path, "").unwrap();
    assert_eq!(says(&path), format!("{name} is empty"));
    fs::write(&path, "\x7fELF and so on").unwrap();
    assert_eq!(says(&path), format!("{name} is not a trace of tracer"));
    assert_eq!(
        says(folder.path()),
        format!("cannot read {}: Is a directory (os error 21)", folder.path().display())
    );
}

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/version-1.trace");

/// Made by the tracer that wrote version 1, and kept: all that comes later must read it the same. With
/// UPDATE_FIXTURES set it is written anew, which is right only for a version that nobody has used yet.
#[test]
fn a_trace_of_version_1_stays_readable() {
    let path = Path::new(FIXTURE);
    let events = each_kind();
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        let _ = fs::remove_file(path);
        write(path, &events);
    }
    let reader = TraceReader::open(path).unwrap();
    assert_eq!(*reader.header(), header());
    assert_eq!(reader.collect::<Result<Vec<_>, _>>().unwrap(), events);
}
