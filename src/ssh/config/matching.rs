//! Patterns and conditions.

/// `*` and `?` over the whole of `text`, without regard to case if `fold`.
pub(crate) fn glob(pattern: &str, text: &str, fold: bool) -> bool {
    let prepare = |text: &str| -> Vec<char> {
        if fold {
            text.to_ascii_lowercase().chars().collect()
        } else {
            text.chars().collect()
        }
    };
    let (pattern, text) = (prepare(pattern), prepare(text));
    // The usual two-pointer walk: `star` remembers where to go back to.
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        if pattern
            .get(p)
            .is_some_and(|c| *c == '?' || (*c != '*' && *c == text[t]))
        {
            p += 1;
            t += 1;
        } else if pattern.get(p) == Some(&'*') {
            star = Some((p, t));
            p += 1;
        } else if let Some((at, from)) = star {
            p = at + 1;
            t = from + 1;
            star = Some((at, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// A list of patterns, without regard to case: any `!` that matches makes the whole not match (ssh_config(5), PATTERNS).
pub(crate) fn list<'a>(patterns: impl IntoIterator<Item = &'a str>, text: &str) -> bool {
    any(patterns, text, true)
}

/// The same with regard to case.
pub(super) fn list_exact<'a>(patterns: impl IntoIterator<Item = &'a str>, text: &str) -> bool {
    any(patterns, text, false)
}

fn any<'a>(patterns: impl IntoIterator<Item = &'a str>, text: &str, fold: bool) -> bool {
    let mut found = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(negated) if glob(negated, text, fold) => return false,
            Some(_) => {}
            None => found |= glob(pattern, text, fold),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_documented() {
        assert!(glob("web*", "web12", false) && glob("*.ex?mple.org", "a.example.org", false));
        assert!(glob("**", "", false) && !glob("?", "", false) && !glob("a*b", "acbd", false));
        assert!(list(["*", "!web9"], "web1") && !list(["*", "!web9"], "web9"));
        assert!(!list(["!web9"], "web1"));
        assert!(list(["WEB*"], "web1") && !list_exact(["WEB*"], "web1"));
    }
}
