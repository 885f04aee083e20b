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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn every_shell_reads_back_the_same_bytes(words in proptest::collection::vec("[^\0]{0,12}", 0..6)) {
            let quoted: Vec<String> = words.iter().map(|word| sh(word).unwrap()).collect();
            let script = format!("printf '%s\\0' {}", quoted.join(" "));
            let expected: Vec<u8> = words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
            for shell in ["sh", "bash", "dash"] {
                let output = Command::new(shell).args(["-c", &script]).output().unwrap();
                let expected = if words.is_empty() { b"\0".to_vec() } else { expected.clone() };
                prop_assert_eq!(&output.stdout, &expected, "{}: {}", shell, script);
            }
        }
    }

    #[test]
    fn a_nul_byte_is_refused() {
        assert_eq!(sh("a\0b"), Err(NulByte));
    }
}
