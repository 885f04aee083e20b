//! Lines into words: `Key value`, `Key=value`, quotes and comments.

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// In lower case.
    pub(super) keyword: String,
    /// The arguments, without quotes and comment.
    pub(super) words: Vec<String>,
    /// The arguments as they stand.
    pub(super) raw: String,
}

/// `None` for an empty line or a comment.
///
/// # Errors
/// A quote that does not end.
pub(super) fn words(line: &str) -> Result<Option<Line>, String> {
    let line = line.trim_start_matches([' ', '\t', '\u{c}']).trim_end();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let end = line
        .find(|c: char| c.is_ascii_whitespace() || c == '=' || c == '"')
        .unwrap_or(line.len());
    let (keyword, mut rest) = line.split_at(end);
    rest = rest.trim_start();
    if let Some(after) = rest.strip_prefix('=') {
        rest = after.trim_start();
    }
    Ok(Some(Line {
        keyword: keyword.to_ascii_lowercase(),
        words: arguments(rest)?,
        raw: rest.to_owned(),
    }))
}

fn arguments(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(char::is_ascii_whitespace).is_some() {}
        let Some(&first) = chars.peek() else {
            return Ok(words);
        };
        if first == '#' {
            return Ok(words);
        }
        let (mut word, mut quote) = (String::new(), None);
        while let Some(&c) = chars.peek() {
            match (c, quote) {
                (c, None) if c.is_ascii_whitespace() => break,
                ('"' | '\'', None) => quote = Some(c),
                (c, Some(open)) if c == open => quote = None,
                ('\\', _) => {
                    chars.next();
                    match chars.peek() {
                        Some(&escaped @ ('"' | '\'' | '\\')) => word.push(escaped),
                        Some(&' ') if quote.is_none() => word.push(' '),
                        _ => {
                            word.push('\\');
                            continue;
                        }
                    }
                }
                (c, _) => word.push(c),
            }
            chars.next();
        }
        if quote.is_some() {
            return Err("a quote is not closed".to_owned());
        }
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_as_ssh_cuts_them() {
        let cut = |line: &str| {
            let line = words(line).unwrap().unwrap();
            (line.keyword, line.words)
        };
        assert_eq!(words("  # x").unwrap(), None);
        assert_eq!(cut("Port=22"), ("port".into(), vec!["22".into()]));
        assert_eq!(cut("User = jane # me"), ("user".into(), vec!["jane".into()]));
        assert_eq!(cut("IdentityAgent \"/a b/s\"").1, ["/a b/s"]);
        assert_eq!(cut("X a\"b c\"d e").1, ["ab cd", "e"]);
        assert_eq!(words("X=a \"b  c\"").unwrap().unwrap().raw, "a \"b  c\"");
        assert!(words("X \"open").is_err());
    }
}
