//! Progress and output while an evaluation runs.
//!
//! The runner writes the command's output to local files and says how far they are; a thread of its own copies them to
//! standard output and error. So a reader that is slow, or gone, never holds up the evaluation.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use indicatif::{ProgressBar, ProgressStyle};

use super::output;
use crate::remote::Stream;
use crate::runner::{Observer, Phase};

#[derive(Debug, Default)]
struct Wanted {
    streams: [(PathBuf, u64); 2],
    finished: bool,
}

#[derive(Debug, Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows what happens.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    last: Mutex<String>,
    shared: Arc<Shared>,
    copier: Option<JoinHandle<()>>,
}

impl Progress {
    /// `quiet`: no phases. `no_output`: the command's output is not copied (it is in the JSON's files).
    pub(super) fn start(quiet: bool, no_output: bool) -> Self {
        let bar = (!quiet && output::stderr_is_terminal()).then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(std::time::Duration::from_millis(120));
            bar
        });
        let shared = Arc::new(Shared::default());
        let copier = (!no_output).then(|| {
            let (shared, bar) = (Arc::clone(&shared), bar.clone());
            std::thread::spawn(move || copy_all(&shared, bar.as_ref()))
        });
        Self {
            lines: !quiet && bar.is_none(),
            bar,
            last: Mutex::default(),
            shared,
            copier,
        }
    }

    /// Waits until everything that came was copied.
    pub(super) fn finish(mut self) {
        self.shared.lock().finished = true;
        self.shared.changed.notify_all();
        if let Some(copier) = self.copier.take() {
            // It only fails by a panic, and then there is nothing more to copy.
            drop(copier.join());
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Progress {
    fn phase(&self, phase: &Phase) {
        let text = phase.to_string();
        if let Some(bar) = &self.bar {
            bar.set_message(output::printable(&text));
        } else if self.lines {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            // Bytes that grow are for a terminal; a log gets one line a phase.
            let key = text.split(',').next().unwrap_or_default().to_owned();
            if *last != key {
                output::line(&format!("vibesys: {text}"));
                *last = key;
            }
        }
    }

    fn output(&self, stream: Stream, path: &Path, size: u64) {
        let index = usize::from(stream == Stream::Stderr);
        self.shared.lock().streams[index] = (path.to_owned(), size);
        self.shared.changed.notify_all();
    }
}

fn copy_all(shared: &Shared, bar: Option<&ProgressBar>) {
    let mut copied = [0_u64; 2];
    let mut open = [true; 2];
    loop {
        let (streams, finished) = {
            let mut wanted = shared.lock();
            while !wanted.finished && (0..2).all(|index| wanted.streams[index].1 == copied[index]) {
                wanted = shared
                    .changed
                    .wait(wanted)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            (wanted.streams.clone(), wanted.finished)
        };
        for (index, (path, size)) in streams.iter().enumerate() {
            if copied[index] == *size {
                continue;
            }
            let from = copied[index];
            copied[index] = *size;
            let copy = || match index {
                0 => copy_part(path, from, *size, &mut io::stdout().lock()),
                _ => copy_part(path, from, *size, &mut io::stderr().lock()),
            };
            // A closed pipe ends this copy and nothing else: the whole output is in the file.
            if open[index] {
                open[index] = match bar {
                    Some(bar) => bar.suspend(copy),
                    None => copy(),
                }
                .is_ok();
            }
        }
        if finished {
            return;
        }
    }
}

fn copy_part(path: &Path, from: u64, to: u64, target: &mut impl Write) -> io::Result<()> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    io::copy(&mut file.take(to - from), target)?;
    target.flush()
}
