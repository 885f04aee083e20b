//! Quoting for the POSIX shell: the one place that turns a string into a shell word.

/// Quotes `word` so that any POSIX shell reads it back as exactly one word with the same bytes.
///
/// Plain words stay as they are; everything else goes into single quotes, in which nothing is special
/// (POSIX.1-2017, Shell Command Language 2.2.2), and a single quote is written as `'\''`.
///
/// # Errors
/// A NUL byte cannot be part of a shell word at all.
pub fn sh(word: &str) -> Result<String, NulByte> {
    if word.contains('\0') {
        return Err(NulByte);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%_-+=:,./".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return Ok(word.to_owned());
    }
    Ok(format!("'{}'", word.replace('\'', r"'\''")))
}

/// A NUL byte in a word that should have gone to a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a NUL byte cannot be passed in an argument or an environment variable")]
pub struct NulByte;
