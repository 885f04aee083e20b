//! From a name to a route.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::matching::{glob, list};
use super::options::{HONOURED, REMARKED, known, nearest, seconds};
use super::{ConfigError, Environment, Sources, lexer};
use crate::ssh::route::{AddressFamily, Hop, Route, StrictHostKeys};

/// ssh's own limit for Include.
const DEEPEST_INCLUDE: usize = 16;
/// More jumps than this are a loop.
const MOST_HOPS: usize = 8;

#[derive(Debug, Clone)]
struct Value {
    words: Vec<String>,
    place: String,
}

/// The values of one host: single options hold the first, IdentityFile and CertificateFile all.
#[derive(Debug, Default)]
struct Values {
    map: BTreeMap<String, Vec<Value>>,
    ignore_unknown: Vec<String>,
}

impl Values {
    fn first(&self, key: &str) -> Option<&Value> {
        self.map.get(key).and_then(|values| values.first())
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.first(key)?.words.first().map(String::as_str)
    }
}

fn at(place: &str, message: impl Into<String>) -> ConfigError {
    ConfigError {
        place: Some(place.to_owned()),
        message: message.into(),
    }
}

/// Resolves `alias` to the hosts on the way to it.
///
/// # Errors
/// With file and line, what is wrong and what was expected.
pub fn resolve(alias: &str, sources: &Sources, environment: &Environment) -> Result<Route, ConfigError> {
    let mut route = Route {
        hops: Vec::new(),
        remarks: Vec::new(),
    };
    let target = Wanted {
        name: alias.to_owned(),
        user: None,
        port: None,
    };
    hops(&target, sources, environment, &mut route, 0, true)?;
    Ok(route)
}

#[derive(Debug, Clone)]
struct Wanted {
    name: String,
    user: Option<String>,
    port: Option<u16>,
}

fn hops(
    wanted: &Wanted,
    sources: &Sources,
    environment: &Environment,
    route: &mut Route,
    depth: usize,
    jumps: bool,
) -> Result<(), ConfigError> {
    if depth > MOST_HOPS {
        return Err(ConfigError {
            place: None,
            message: format!(
                "the ProxyJump of `{}` leads through more than {MOST_HOPS} hosts: a loop?",
                wanted.name
            ),
        });
    }
    let values = Reader {
        wanted,
        environment,
        sources,
    }
    .read()?;
    let (hop, jump) = finish(wanted, &values, environment, route)?;
    if let Some((jump, place)) = jump.filter(|_| jumps) {
        let list: Vec<&str> = jump.split(',').map(str::trim).collect();
        for (index, item) in list.iter().enumerate() {
            let next = parse_jump(item).ok_or_else(|| {
                at(
                    &place,
                    format!("ProxyJump `{item}` is not [user@]host[:port] or ssh://[user@]host[:port]"),
                )
            })?;
            // Only the first of several is reached by its own ProxyJump; the others are reached through it (ssh_config(5)).
            hops(&next, sources, environment, route, depth + 1, index == 0)?;
        }
    }
    route.hops.push(hop);
    Ok(())
}

fn parse_jump(text: &str) -> Option<Wanted> {
    let text = text.strip_prefix("ssh://").unwrap_or(text).trim_end_matches('/');
    let (user, rest) = match text.rsplit_once('@') {
        Some((user, rest)) => (Some(user.to_owned()), rest),
        None => (None, text),
    };
    let (name, port) = if let Some(inner) = rest.strip_prefix('[') {
        let (name, rest) = inner.split_once(']')?;
        (name, rest.strip_prefix(':'))
    } else {
        match rest.split_once(':') {
            // More than one colon is an IPv6 address without a port.
            Some((_, port)) if port.contains(':') => (rest, None),
            Some((name, port)) => (name, Some(port)),
            None => (rest, None),
        }
    };
    let port = match port {
        Some(port) => Some(port.parse().ok()?),
        None => None,
    };
    (!name.is_empty()).then(|| Wanted {
        name: name.to_owned(),
        user,
        port,
    })
}

struct Reader<'a> {
    wanted: &'a Wanted,
    environment: &'a Environment,
    sources: &'a Sources,
}

impl Reader<'_> {
    fn read(&self) -> Result<Values, ConfigError> {
        let mut values = Values::default();
        let mut finals = false;
        self.pass(&mut values, &mut finals, false)?;
        if finals {
            // `Match final` asks for a second reading, in which it matches.
            self.pass(&mut values, &mut finals, true)?;
        }
        Ok(values)
    }

    fn pass(&self, values: &mut Values, finals: &mut bool, second: bool) -> Result<(), ConfigError> {
        let mut active = true;
        self.file(&self.sources.user, values, &mut active, finals, second, 0, true)?;
        if let Some(system) = self.sources.system.as_ref().filter(|_| !self.sources.named) {
            active = true;
            self.file(system, values, &mut active, finals, second, 0, false)?;
        }
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the state of one reading, handed down through includes"
    )]
    fn file(
        &self,
        path: &Path,
        values: &mut Values,
        active: &mut bool,
        finals: &mut bool,
        second: bool,
        depth: usize,
        users: bool,
    ) -> Result<(), ConfigError> {
        if depth > DEEPEST_INCLUDE {
            return Err(at(
                &path.display().to_string(),
                "Include goes deeper than 16 files: a loop?",
            ));
        }
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error)
                if depth == 0
                    && !(users && self.sources.named)
                    && error.kind() == std::io::ErrorKind::NotFound =>
            {
                return Ok(());
            }
            Err(error) => {
                return Err(ConfigError {
                    place: None,
                    message: format!("cannot read {}: {error}", path.display()),
                });
            }
        };
        if users && let Ok(metadata) = fs::metadata(path) {
            let strange = metadata.uid() != self.environment.uid && metadata.uid() != 0;
            if strange || metadata.mode() & 0o022 != 0 {
                return Err(ConfigError {
                    place: Some(path.display().to_string()),
                    message:
                        "bad owner or permissions: it must be yours and writable by nobody else (chmod 600)"
                            .to_owned(),
                });
            }
        }
        for (number, line) in text.lines().enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            let Some((keyword, words)) = lexer::words(line).map_err(|error| at(&place, error))? else {
                continue;
            };
            match keyword.as_str() {
                "host" => *active = list(words.iter().map(String::as_str), &self.wanted.name, false),
                "match" => *active = self.matches(&words, values, finals, second, &place)?,
                "include" => {
                    let mut inner = *active;
                    for file in words.iter().flat_map(|pattern| self.included(pattern)) {
                        // A Host inside an included file ends with it.
                        let was = inner;
                        self.file(&file, values, &mut inner, finals, second, depth + 1, users)?;
                        inner = was;
                    }
                }
                _ => Self::option(&keyword, words, *active, values, &place)?,
            }
        }
        Ok(())
    }

    fn option(
        keyword: &str,
        words: Vec<String>,
        active: bool,
        values: &mut Values,
        place: &str,
    ) -> Result<(), ConfigError> {
        if !known(keyword) {
            if values
                .ignore_unknown
                .iter()
                .any(|pattern| glob(pattern, keyword, true))
            {
                return Ok(());
            }
            let meant = nearest(keyword).map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
            return Err(at(place, format!("unknown option `{keyword}`{meant}")));
        }
        if words.is_empty() {
            return Err(at(place, format!("`{keyword}` has no value")));
        }
        if !active {
            return Ok(());
        }
        if keyword == "ignoreunknown" {
            values
                .ignore_unknown
                .extend(words.iter().flat_map(|word| word.split(',')).map(str::to_owned));
            return Ok(());
        }
        let several = keyword == "identityfile" || keyword == "certificatefile";
        let value = Value {
            words,
            place: place.to_owned(),
        };
        let entry = values.map.entry(keyword.to_owned()).or_default();
        if entry.is_empty() || (several && !entry.iter().any(|have| have.words == value.words)) {
            entry.push(value);
        }
        Ok(())
    }

    fn included(&self, pattern: &str) -> Vec<PathBuf> {
        let expanded = tilde(pattern, &self.environment.home);
        let full = if expanded.is_absolute() {
            expanded
        } else {
            self.environment.home.join(".ssh").join(expanded)
        };
        glob_files(&full)
    }

    /// The conditions of a Match line; all of them must hold.
    fn matches(
        &self,
        words: &[String],
        values: &Values,
        finals: &mut bool,
        second: bool,
        place: &str,
    ) -> Result<bool, ConfigError> {
        let mut result = true;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (negated, condition) = match word.strip_prefix('!') {
                Some(condition) => (true, condition),
                None => (false, word.as_str()),
            };
            let (condition, inline) = match condition.split_once('=') {
                Some((condition, value)) => (condition, Some(value.to_owned())),
                None => (condition, None),
            };
            let condition = condition.to_ascii_lowercase();
            let mut argument = || {
                inline
                    .clone()
                    .or_else(|| words.next().cloned())
                    .ok_or_else(|| at(place, format!("Match {condition} has no pattern")))
            };
            let host = || {
                let name = values.text("hostname").unwrap_or("%h");
                name.replace("%h", &self.wanted.name).replace("%%", "%")
            };
            let hosts = |patterns: &str, text: &str| list(patterns.split(','), text, true);
            let users = |patterns: &str, text: &str| list(patterns.split(','), text, false);
            let holds = match condition.as_str() {
                "all" => true,
                "final" => {
                    *finals = true;
                    second
                }
                "canonical" => false,
                "host" => hosts(&argument()?, &host()),
                "originalhost" => hosts(&argument()?, &self.wanted.name),
                "user" => {
                    let user = self
                        .wanted
                        .user
                        .as_deref()
                        .or(values.text("user"))
                        .unwrap_or(&self.environment.user);
                    users(&argument()?, user)
                }
                "localuser" => users(&argument()?, &self.environment.user),
                "exec" => {
                    return Err(at(
                        place,
                        "`Match exec` runs a program to decide, which is not supported: use `Match host` or a Host block",
                    ));
                }
                other => return Err(at(place, format!("Match `{other}` is not supported"))),
            };
            result &= holds != negated;
        }
        Ok(result)
    }
}

fn tilde(text: &str, home: &Path) -> PathBuf {
    match text.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None if text == "~" => home.to_owned(),
        None => PathBuf::from(text),
    }
}

/// Files that a path with `*` and `?` names, sorted; one that matches nothing is nothing (ssh_config(5), Include).
fn glob_files(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in path.components() {
        let name = part.as_os_str();
        let pattern = name.to_str().filter(|text| text.contains(['*', '?']));
        found = match pattern {
            None => found.into_iter().map(|base| base.join(name)).collect(),
            Some(pattern) => found
                .into_iter()
                .flat_map(|base| {
                    let entries = fs::read_dir(&base).into_iter().flatten().filter_map(Result::ok);
                    let mut names: Vec<_> = entries
                        .filter(|entry| {
                            entry.file_name().to_str().is_some_and(|name| {
                                glob(pattern, name, false)
                                    && (pattern.starts_with('.') || !name.starts_with('.'))
                            })
                        })
                        .map(|entry| entry.path())
                        .collect();
                    names.sort();
                    names
                })
                .collect(),
        };
    }
    found.retain(|path| path.is_file());
    found
}

struct Tokens<'a> {
    environment: &'a Environment,
    alias: &'a str,
    host: &'a str,
    port: u16,
    user: &'a str,
    key_alias: &'a str,
    jump: &'a str,
}

impl Tokens<'_> {
    fn expand(&self, text: &str, place: &str) -> Result<String, ConfigError> {
        let mut out = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next() {
                Some('%') => out.push('%'),
                Some('h') => out.push_str(self.host),
                Some('n') => out.push_str(self.alias),
                Some('p') => out.push_str(&self.port.to_string()),
                Some('r') => out.push_str(self.user),
                Some('u') => out.push_str(&self.environment.user),
                Some('d') => out.push_str(&self.environment.home.to_string_lossy()),
                Some('i') => out.push_str(&self.environment.uid.to_string()),
                Some('l') => out.push_str(&self.environment.hostname),
                Some('L') => out.push_str(self.environment.hostname.split('.').next().unwrap_or_default()),
                Some('k') => out.push_str(self.key_alias),
                Some('j') => out.push_str(self.jump),
                other => {
                    let token = other.map_or_else(|| "%".to_owned(), |c| format!("%{c}"));
                    return Err(at(place, format!("the token `{token}` cannot be used here")));
                }
            }
        }
        Ok(out)
    }

    fn path(&self, text: &str, place: &str) -> Result<PathBuf, ConfigError> {
        Ok(tilde(&self.expand(text, place)?, &self.environment.home))
    }
}

const DEFAULT_IDENTITIES: &[&str] = &[
    "id_rsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "id_xmss",
    "id_dsa",
];
const DEFAULT_USER_HOSTS: &[&str] = &["~/.ssh/known_hosts", "~/.ssh/known_hosts2"];
const DEFAULT_GLOBAL_HOSTS: &[&str] = &["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"];

/// The hop, and its ProxyJump with its place.
#[expect(
    clippy::too_many_lines,
    reason = "one field after the other, each by its own rule"
)]
fn finish(
    wanted: &Wanted,
    values: &Values,
    environment: &Environment,
    route: &mut Route,
) -> Result<(Hop, Option<(String, String)>), ConfigError> {
    for name in REMARKED {
        if let Some(value) = values.first(name) {
            route.remarks.push(format!(
                "{}: `{name}` is not honoured for {}",
                value.place, wanted.name
            ));
        }
    }
    let number = |key: &str| -> Result<Option<u64>, ConfigError> {
        let Some(value) = values.first(key) else {
            return Ok(None);
        };
        let text = value.words.first().map(String::as_str).unwrap_or_default();
        text.parse()
            .map(Some)
            .map_err(|_| at(&value.place, format!("{key} must be a number, not `{text}`")))
    };
    let time = |key: &str| -> Result<Option<Duration>, ConfigError> {
        let Some(value) = values.first(key) else {
            return Ok(None);
        };
        let text = value.words.first().map(String::as_str).unwrap_or_default();
        if text == "none" {
            return Ok(None);
        }
        let time =
            seconds(text).ok_or_else(|| at(&value.place, format!("{key} must be a time, not `{text}`")))?;
        Ok((time > 0).then(|| Duration::from_secs(time)))
    };
    let yes = |key: &str| -> Result<bool, ConfigError> {
        let Some(value) = values.first(key) else {
            return Ok(false);
        };
        match value
            .words
            .first()
            .map(|word| word.to_ascii_lowercase())
            .as_deref()
        {
            Some("yes" | "true") => Ok(true),
            Some("no" | "false") => Ok(false),
            other => Err(at(
                &value.place,
                format!("{key} must be yes or no, not `{}`", other.unwrap_or_default()),
            )),
        }
    };
    let port = match wanted.port {
        Some(port) => port,
        None => match number("port")? {
            Some(port) => u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(|| {
                let place = values
                    .first("port")
                    .map_or_else(String::new, |value| value.place.clone());
                at(&place, format!("port must be 1 to 65535, not {port}"))
            })?,
            None => 22,
        },
    };
    let user = wanted
        .user
        .clone()
        .or_else(|| values.text("user").map(str::to_owned));
    let user = user.unwrap_or_else(|| environment.user.clone());
    let host = match values.first("hostname") {
        Some(value) => {
            let text = value.words.first().map(String::as_str).unwrap_or_default();
            text.replace("%%", "\0")
                .replace("%h", &wanted.name)
                .replace('\0', "%")
        }
        None => wanted.name.clone(),
    };
    let alias = values.text("hostkeyalias").map(str::to_owned);
    let tokens = Tokens {
        environment,
        alias: &wanted.name,
        host: &host,
        port,
        user: &user,
        key_alias: alias.as_deref().unwrap_or(&wanted.name),
        jump: "",
    };
    let files = |key: &str| -> Result<Vec<PathBuf>, ConfigError> {
        let mut files = Vec::new();
        for value in values.map.get(key).into_iter().flatten() {
            for word in &value.words {
                if word != "none" {
                    files.push(tokens.path(word, &value.place)?);
                }
            }
        }
        Ok(files)
    };
    let configured = values.map.contains_key("identityfile");
    let identity_files = if configured {
        files("identityfile")?
    } else {
        DEFAULT_IDENTITIES
            .iter()
            .map(|name| environment.home.join(".ssh").join(name))
            .collect()
    };
    let mut known_hosts_files = Vec::new();
    for (key, defaults) in [
        ("userknownhostsfile", DEFAULT_USER_HOSTS),
        ("globalknownhostsfile", DEFAULT_GLOBAL_HOSTS),
    ] {
        if values.map.contains_key(key) {
            known_hosts_files.extend(files(key)?);
        } else {
            known_hosts_files.extend(defaults.iter().map(|path| tilde(path, &environment.home)));
        }
    }
    let agent_socket = match values.first("identityagent") {
        Some(value) => match value.words.first().map(String::as_str).unwrap_or_default() {
            "none" => None,
            "SSH_AUTH_SOCK" | "$SSH_AUTH_SOCK" | "${SSH_AUTH_SOCK}" => environment.agent.clone(),
            path => Some(tokens.path(path, &value.place)?),
        },
        None => environment.agent.clone(),
    };
    let strict_host_keys = match values.first("stricthostkeychecking") {
        None => StrictHostKeys::Yes,
        Some(value) => match value
            .words
            .first()
            .map(|word| word.to_ascii_lowercase())
            .as_deref()
        {
            Some("yes" | "true" | "ask") => StrictHostKeys::Yes,
            Some("accept-new") => StrictHostKeys::AcceptNew,
            Some("no" | "off" | "false") => StrictHostKeys::No,
            other => {
                let text = other.unwrap_or_default();
                return Err(at(
                    &value.place,
                    format!("stricthostkeychecking cannot be `{text}`"),
                ));
            }
        },
    };
    let address_family = match values
        .text("addressfamily")
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        Some("inet") => AddressFamily::Inet,
        Some("inet6") => AddressFamily::Inet6,
        _ => AddressFamily::Any,
    };
    let names = |key: &str| {
        values
            .text(key)
            .map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>())
    };
    let jump = values.first("proxyjump");
    let command = values.first("proxycommand");
    // Whichever stands first wins over the other (ssh_config(5), ProxyJump).
    let (jump, command) = match (jump, command) {
        (Some(jump), Some(command)) => {
            if before(&jump.place, &command.place) {
                (Some(jump), None)
            } else {
                (None, Some(command))
            }
        }
        other => other,
    };
    let jump = jump.filter(|value| {
        value
            .words
            .first()
            .is_some_and(|word| !word.eq_ignore_ascii_case("none"))
    });
    let proxy_command = match command {
        Some(value)
            if value
                .words
                .first()
                .is_some_and(|word| !word.eq_ignore_ascii_case("none")) =>
        {
            Some(tokens.expand(&value.words.join(" "), &value.place)?)
        }
        Some(_) | None => None,
    };
    let hop = Hop {
        alias: wanted.name.clone(),
        port,
        host_key_alias: alias.clone(),
        identity_files,
        identities_configured: configured,
        certificate_files: files("certificatefile")?,
        agent_socket,
        identities_only: yes("identitiesonly")?,
        known_hosts_files,
        strict_host_keys,
        host_key_algorithms: names("hostkeyalgorithms"),
        ca_signature_algorithms: names("casignaturealgorithms"),
        connect_timeout: time("connecttimeout")?,
        connection_attempts: number("connectionattempts")?
            .map_or(1, |n| u32::try_from(n).unwrap_or(1).max(1)),
        server_alive_interval: time("serveraliveinterval")?,
        server_alive_count_max: number("serveralivecountmax")?.map_or(3, |n| u32::try_from(n).unwrap_or(3)),
        address_family,
        bind_address: values.text("bindaddress").map(str::to_owned),
        proxy_command,
        user: user.clone(),
        host: host.clone(),
    };
    debug_assert!(HONOURED.is_sorted(), "the list is kept in order for its readers");
    Ok((
        hop,
        jump.map(|value| (value.words.join(","), value.place.clone())),
    ))
}

/// Whether one `FILE:LINE` stands before another; of different files the first read wins, which the map cannot tell, so
/// ProxyJump does.
fn before(a: &str, b: &str) -> bool {
    let split = |place: &str| -> Option<(String, usize)> {
        let (file, line) = place.rsplit_once(':')?;
        Some((file.to_owned(), line.parse().ok()?))
    };
    match (split(a), split(b)) {
        (Some((file_a, line_a)), Some((file_b, line_b))) if file_a == file_b => line_a < line_b,
        _ => true,
    }
}
