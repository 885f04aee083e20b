//! One member of an archive, with a name and a link target that arrive byte for byte.
//!
//! The tar crate writes the archive, but not the names: it tidies them (`./x` becomes `x`), which would change what a
//! link says, and it cannot write a long name that begins with bytes that are no UTF-8.

use std::io::{self, Read, Write};

use super::manifest::{Entry, Kind};

/// The same for every entry, so that archives are reproducible; after 1980, which some file systems cannot go below.
/// What it means for a build in the tree is in [`shell`](super::shell).
const MTIME: u64 = 946_684_800;
/// What a header has room for; longer ones go before it, in a member of their own (the GNU format).
const ROOM: usize = 100;

/// Appends `entry`; `content` is the file's.
pub(super) fn append<W: Write>(
    builder: &mut tar::Builder<W>,
    entry: &Entry,
    content: impl Read,
) -> io::Result<()> {
    let (kind, mode, size, target) = match &entry.kind {
        Kind::Directory => (tar::EntryType::Directory, 0o755, 0, &b""[..]),
        Kind::Symlink { target } => (tar::EntryType::Symlink, 0o777, 0, &target[..]),
        Kind::File { executable, size, .. } => {
            let mode = if *executable { 0o755 } else { 0o644 };
            (tar::EntryType::Regular, mode, *size, &b""[..])
        }
    };
    long(builder, b'L', &entry.path)?;
    long(builder, b'K', target)?;
    let mut header = header(kind, mode, size);
    let fields = header.as_old_mut();
    fill(&mut fields.name, &entry.path);
    fill(&mut fields.linkname, target);
    header.set_cksum();
    builder.append(&header, content)
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(MTIME);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn long<W: Write>(builder: &mut tar::Builder<W>, kind: u8, name: &[u8]) -> io::Result<()> {
    if name.len() <= ROOM {
        return Ok(());
    }
    let ended = [name, b"\0"].concat();
    let mut header = header(tar::EntryType::new(kind), 0o644, ended.len() as u64);
    fill(&mut header.as_old_mut().name, b"././@LongLink");
    header.set_cksum();
    builder.append(&header, &ended[..])
}

fn fill(field: &mut [u8; ROOM], name: &[u8]) {
    let length = name.len().min(ROOM);
    field[..length].copy_from_slice(&name[..length]);
}
