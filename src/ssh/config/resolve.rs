//! From a name to a route.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::matching::{glob, list_exact};
use super::options::{HONOURED, REMARKED, known, nearest, seconds};
use super::{ConfigError, Environment, Sources, lexer};
use crate::ssh::route::{AddressFamily, Hop, Route, StrictHostKeys};

/// Honoured options whose arguments are a list or the rest of the line.
const TAKES_SEVERAL: &[&str] = &[
    "globalknownhostsfile",
    "proxycommand",
    "proxyjump",
    "userknownhostsfile",
];
/// ssh's own limit for Include.
const DEEPEST_INCLUDE: usize = 16;
/// More jumps than this are a loop.
const MOST_HOPS: usize = 8;

#[derive(Debug, Clone)]
struct Value {
    words: Vec<String>,
    /// The rest of the line as it stands, for the options that are one command or list.
    raw: String,
    place: String,
}

/// The values of one host: single options hold the first, IdentityFile and CertificateFile all.
#[derive(Debug, Default)]
struct Values {
    map: BTreeMap<String, Vec<Value>>,
    ignore_unknown: Option<Vec<String>>,
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
        let parse = |item: &str| {
            parse_jump(item.trim()).ok_or_else(|| {
                at(
                    &place,
                    format!("ProxyJump `{item}` is not [user@]host[:port] or ssh://[user@]host[:port]"),
                )
            })
        };
        let list = jump.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
        for (index, next) in list.iter().enumerate() {
            // Only the first of several is reached by its own ProxyJump; the others are reached through it (ssh_config(5)).
            hops(next, sources, environment, route, depth + 1, index == 0)?;
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
            Some((_, port)) if port.contains(':') => (rest.parse::<Ipv6Addr>().ok().map(|_| rest)?, None),
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

/// One reading of the files.
struct Visit<'a> {
    values: &'a mut Values,
    /// Whether a `Match final` was seen.
    finals: &'a mut bool,
    /// The host name, in the second reading.
    settled: Option<&'a str>,
    /// Whether this is the user's file or the system's.
    users: bool,
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
        self.pass(&mut values, &mut finals, None)?;
        if finals {
            // `Match final` asks for a second reading, in which it matches. HostName is settled by then, and `Host`
            // is compared with it.
            let host = host_name(&values, self.wanted)?;
            let value = values.map.entry("hostname".to_owned()).or_default();
            if value.is_empty() {
                value.push(Value {
                    words: vec![host.replace('%', "%%")],
                    raw: String::new(),
                    place: String::new(),
                });
            }
            self.pass(&mut values, &mut finals, Some(&host))?;
        }
        Ok(values)
    }

    fn pass(&self, values: &mut Values, finals: &mut bool, settled: Option<&str>) -> Result<(), ConfigError> {
        let mut visit = Visit {
            values,
            finals,
            settled,
            users: true,
        };
        self.file(&self.sources.user, &mut visit, None, true, 0)?;
        if let Some(system) = self.sources.system.as_ref().filter(|_| !self.sources.named) {
            visit.users = false;
            self.file(system, &mut visit, None, true, 0)?;
        }
        Ok(())
    }

    /// Reads one file; `from` is the place of the Include that names it. What is included where nothing applies never
    /// applies, whatever Host and Match lines stand in it.
    fn file(
        &self,
        path: &Path,
        visit: &mut Visit<'_>,
        from: Option<&str>,
        applies: bool,
        depth: usize,
    ) -> Result<(), ConfigError> {
        if depth > DEEPEST_INCLUDE {
            return Err(at(
                from.unwrap_or_default(),
                "Include goes deeper than 16 files: a loop?",
            ));
        }
        let optional = from.is_some() || !(visit.users && self.sources.named);
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if optional && error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(ConfigError {
                    place: from.map(str::to_owned),
                    message: format!("cannot read {}: {error}", path.display()),
                });
            }
        };
        // As ssh does: neither a file that was named nor the system's, but whatever they include.
        let guarded = from.is_some() || (visit.users && !self.sources.named);
        if guarded && let Ok(metadata) = fs::metadata(path) {
            let strange = metadata.uid() != self.environment.uid && metadata.uid() != 0;
            if strange || metadata.mode() & 0o022 != 0 {
                return Err(ConfigError {
                    place: Some(from.map_or_else(|| path.display().to_string(), str::to_owned)),
                    message: format!(
                        "bad owner or permissions on {}: it must be yours and writable by nobody else (chmod 600)",
                        path.display()
                    ),
                });
            }
        }
        let mut active = applies;
        for (number, line) in text.lines().enumerate() {
            let place = format!("{}:{}", path.display(), number + 1);
            let Some(line) = lexer::words(line).map_err(|error| at(&place, error))? else {
                continue;
            };
            let (keyword, words) = (line.keyword.as_str(), &line.words);
            if words.first().is_none_or(String::is_empty) {
                return Err(at(&place, format!("`{keyword}` has no value")));
            }
            match keyword {
                "host" => {
                    let name = visit.settled.unwrap_or(&self.wanted.name);
                    active = list_exact(words.iter().map(String::as_str), name) && applies;
                }
                "match" => active = self.matches(words, visit, applies, &place)?,
                "include" => {
                    for pattern in words {
                        for file in self.included(pattern, visit.users, &place)? {
                            // A Host inside an included file ends with it.
                            self.file(&file, visit, Some(&place), active, depth + 1)?;
                        }
                    }
                }
                _ => option(line, active, visit.values, &place)?,
            }
        }
        Ok(())
    }

    fn included(&self, pattern: &str, users: bool, place: &str) -> Result<Vec<PathBuf>, ConfigError> {
        let full = if pattern.starts_with('~') {
            if !users {
                return Err(at(place, "Include of a home directory from the system's file"));
            }
            tilde(pattern, self.environment, place)?
        } else if pattern.starts_with('/') {
            PathBuf::from(pattern)
        } else if users {
            self.environment.home.join(".ssh").join(pattern)
        } else {
            Path::new("/etc/ssh").join(pattern)
        };
        Ok(glob_files(&full))
    }

    /// The conditions of a Match line; all of them must hold.
    fn matches(
        &self,
        words: &[String],
        visit: &mut Visit<'_>,
        applies: bool,
        place: &str,
    ) -> Result<bool, ConfigError> {
        let mut result = true;
        let mut undecided = None;
        // `Key=value` here too, with or without spaces.
        let mut words = words
            .iter()
            .flat_map(|word| word.split('='))
            .filter(|word| !word.is_empty());
        let user = self.wanted.user.as_deref();
        let user = user
            .or(visit.values.text("user"))
            .unwrap_or(&self.environment.user);
        let host = match (visit.settled, visit.values.first("hostname")) {
            (Some(host), _) => host.to_owned(),
            (None, Some(value)) => named(value, self.wanted)?,
            (None, None) => self.wanted.name.clone(),
        };
        let patterns = |patterns: &str, text: &str| list_exact(patterns.split(','), text);
        while let Some(word) = words.next() {
            let (negated, condition) = match word.strip_prefix('!') {
                Some(condition) => (true, condition),
                None => (false, word),
            };
            let condition = condition.to_ascii_lowercase();
            let mut argument = || {
                words
                    .next()
                    .ok_or_else(|| at(place, format!("Match {condition} has no pattern")))
            };
            let holds = match condition.as_str() {
                "all" => true,
                "final" => {
                    *visit.finals = true;
                    visit.settled.is_some()
                }
                "canonical" => visit.settled.is_some(),
                "host" => patterns(&argument()?.to_ascii_lowercase(), &host),
                "originalhost" => patterns(&argument()?.to_ascii_lowercase(), &self.wanted.name),
                "user" => patterns(argument()?, user),
                "localuser" => patterns(argument()?, &self.environment.user),
                "exec" | "localnetwork" | "tagged" | "sessiontype" | "version" | "command" => {
                    argument()?;
                    undecided = Some(condition);
                    continue;
                }
                other => return Err(at(place, format!("Match `{other}` is not supported"))),
            };
            result &= holds != negated;
        }
        match undecided.filter(|_| result && applies) {
            Some(condition) if condition == "exec" => Err(at(
                place,
                "`Match exec` runs a program to decide, which is not supported: use `Match host` or a Host block",
            )),
            Some(condition) => Err(at(place, format!("`Match {condition}` is not supported"))),
            None => Ok(result && applies),
        }
    }
}

fn option(line: lexer::Line, active: bool, values: &mut Values, place: &str) -> Result<(), ConfigError> {
    let keyword = line.keyword.as_str();
    if !known(keyword) {
        let ignored = values.ignore_unknown.iter().flatten();
        if ignored.into_iter().any(|pattern| glob(pattern, keyword, true)) {
            return Ok(());
        }
        let meant = nearest(keyword).map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
        return Err(at(place, format!("unknown option `{keyword}`{meant}")));
    }
    if line.words.len() > 1 && HONOURED.contains(&keyword) && !TAKES_SEVERAL.contains(&keyword) {
        return Err(at(place, format!("`{keyword}` takes one value")));
    }
    if !active {
        return Ok(());
    }
    if keyword == "ignoreunknown" {
        let patterns = || line.words[0].split(',').map(str::to_owned).collect();
        values.ignore_unknown.get_or_insert_with(patterns);
        return Ok(());
    }
    // Whichever of the two stands first wins over the other (ssh_config(5), ProxyJump); but ssh takes a command after
    // `ProxyJump none`.
    let beaten = match keyword {
        "proxyjump" => values.map.contains_key("proxycommand"),
        "proxycommand" => values
            .text("proxyjump")
            .is_some_and(|jump| !jump.eq_ignore_ascii_case("none")),
        _ => false,
    };
    if beaten {
        return Ok(());
    }
    let several = keyword == "identityfile" || keyword == "certificatefile";
    let entry = values.map.entry(keyword.to_owned()).or_default();
    if entry.is_empty() || (several && !entry.iter().any(|have| have.words == line.words)) {
        entry.push(Value {
            words: line.words,
            raw: line.raw,
            place: place.to_owned(),
        });
    }
    Ok(())
}

/// HostName with its tokens, or the name that was given; in lower case, and an address in its usual form.
fn host_name(values: &Values, wanted: &Wanted) -> Result<String, ConfigError> {
    let host = match values.first("hostname") {
        Some(value) => named(value, wanted)?,
        None => wanted.name.clone(),
    };
    Ok(host
        .parse::<IpAddr>()
        .map_or_else(|_| host.to_ascii_lowercase(), |address| address.to_string()))
}

fn named(value: &Value, wanted: &Wanted) -> Result<String, ConfigError> {
    let text = value.words.first().map(String::as_str).unwrap_or_default();
    substitute(text, &value.place, |token| {
        (token == 'h').then(|| wanted.name.clone())
    })
}

/// Replaces the tokens of `text`; `%%` is always one.
fn substitute(
    text: &str,
    place: &str,
    value: impl Fn(char) -> Option<String>,
) -> Result<String, ConfigError> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('%') => out.push('%'),
            other => {
                let value = other.and_then(&value).ok_or_else(|| {
                    let token = other.map_or_else(|| "%".to_owned(), |c| format!("%{c}"));
                    at(place, format!("the token `{token}` cannot be used here"))
                })?;
                out.push_str(&value);
            }
        }
    }
    Ok(out)
}

fn tilde(text: &str, environment: &Environment, place: &str) -> Result<PathBuf, ConfigError> {
    let Some(rest) = text.strip_prefix('~') else {
        return Ok(PathBuf::from(text));
    };
    let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
    if !user.is_empty() && user != environment.user {
        return Err(at(
            place,
            format!("`~{user}` is not supported: write the path of that home directory"),
        ));
    }
    Ok(environment.home.join(rest.trim_start_matches('/')))
}

/// One name against one pattern with `*`, `?` and `[...]` (glob(7)).
fn file_glob(pattern: &[char], name: &[char]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return name.is_empty();
    };
    if *first == '*' {
        return (0..=name.len()).any(|from| file_glob(rest, &name[from..]));
    }
    let Some((c, others)) = name.split_first() else {
        return false;
    };
    // A `]` that stands first is a member; a class that does not end is a bracket.
    let negated = usize::from(matches!(rest.first(), Some('!')));
    let end = rest
        .iter()
        .skip(negated + 1)
        .position(|c| *c == ']')
        .map(|at| at + negated + 1);
    match (first, end) {
        ('?', _) => file_glob(rest, others),
        ('[', Some(end)) => {
            let (mut members, mut found) = (&rest[negated..end], false);
            while let Some((from, more)) = members.split_first() {
                let to = match more {
                    ['-', to, ..] => to,
                    _ => from,
                };
                found |= (from..=to).contains(&c);
                members = if let ['-', _, more @ ..] = more {
                    more
                } else {
                    more
                };
            }
            found == (negated == 0) && file_glob(&rest[end + 1..], others)
        }
        _ => first == c && file_glob(rest, others),
    }
}

/// Files that a path with wildcards names, sorted; one that matches nothing is nothing (ssh_config(5), Include).
fn glob_files(path: &Path) -> Vec<PathBuf> {
    let letters = |text: &str| text.chars().collect::<Vec<_>>();
    let mut found = vec![PathBuf::new()];
    for part in path.components() {
        let name = part.as_os_str();
        let pattern = name.to_str().filter(|text| text.contains(['*', '?', '[']));
        found = match pattern {
            None => found.into_iter().map(|base| base.join(name)).collect(),
            Some(pattern) => found
                .into_iter()
                .flat_map(|base| {
                    let entries = fs::read_dir(&base).into_iter().flatten().filter_map(Result::ok);
                    let mut names: Vec<_> = entries
                        .filter(|entry| {
                            entry.file_name().to_str().is_some_and(|name| {
                                file_glob(&letters(pattern), &letters(name))
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
    found.retain(|path| fs::symlink_metadata(path).is_ok() && !path.is_dir());
    found
}

struct Tokens<'a> {
    environment: &'a Environment,
    alias: &'a str,
    host: &'a str,
    port: u16,
    user: &'a str,
    key_alias: &'a str,
    jump: String,
}

impl Tokens<'_> {
    fn expand(&self, text: &str, place: &str) -> Result<String, ConfigError> {
        let environment = self.environment;
        substitute(text, place, |token| {
            Some(match token {
                'h' => self.host.to_owned(),
                'n' => self.alias.to_owned(),
                'p' => self.port.to_string(),
                'r' => self.user.to_owned(),
                'u' => environment.user.clone(),
                'd' => environment.home.to_string_lossy().into_owned(),
                'i' => environment.uid.to_string(),
                'l' => environment.hostname.clone(),
                'L' => environment
                    .hostname
                    .split('.')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                'k' => self.key_alias.to_owned(),
                'j' => self.jump.clone(),
                _ => return None,
            })
        })
    }

    /// A path: `~`, then the variables that we know, then tokens.
    fn path(&self, text: &str, place: &str) -> Result<PathBuf, ConfigError> {
        let path = tilde(text, self.environment, place)?;
        let mut path = path.to_string_lossy().into_owned();
        let home = self.environment.home.to_string_lossy();
        for (name, value) in [("${HOME}", &*home), ("${USER}", &self.environment.user)] {
            path = path.replace(name, value);
        }
        if path.contains("${") {
            return Err(at(
                place,
                format!("`{text}`: of the environment only ${{HOME}} and ${{USER}} are supported"),
            ));
        }
        Ok(PathBuf::from(self.expand(&path, place)?))
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
const DEFAULT_USER_HOSTS: &[&str] = &["known_hosts", "known_hosts2"];
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
    let host = host_name(values, wanted)?;
    let alias = values.text("hostkeyalias").map(str::to_ascii_lowercase);
    let tokens = Tokens {
        environment,
        alias: &wanted.name,
        host: &host,
        port,
        user: &user,
        key_alias: alias.as_deref().unwrap_or(&wanted.name),
        jump: String::new(),
    };
    let jump = match values.first("proxyjump") {
        Some(value) => {
            let list = value.raw.split('#').next().unwrap_or_default().trim();
            let list = tokens.expand(list, &value.place)?;
            (!list.eq_ignore_ascii_case("none")).then(|| (list, value.place.clone()))
        }
        None => None,
    };
    let last = jump.as_ref().and_then(|(list, _)| list.rsplit(',').next());
    let tokens = Tokens {
        jump: last
            .and_then(parse_jump)
            .map(|jump| jump.name)
            .unwrap_or_default(),
        ..tokens
    };
    let files = |key: &str| -> Result<Vec<PathBuf>, ConfigError> {
        let mut files = Vec::new();
        for value in values.map.get(key).into_iter().flatten() {
            for word in &value.words {
                if !word.eq_ignore_ascii_case("none") {
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
    let mut known_hosts_files = if values.map.contains_key("userknownhostsfile") {
        files("userknownhostsfile")?
    } else {
        let home = environment.home.join(".ssh");
        DEFAULT_USER_HOSTS.iter().map(|name| home.join(name)).collect()
    };
    if known_hosts_files.is_empty() {
        // New keys are written to the first file: never to the system's.
        known_hosts_files.push(PathBuf::from("/dev/null"));
    }
    match values.first("globalknownhostsfile") {
        // Without tokens.
        Some(value) => {
            for word in value
                .words
                .iter()
                .filter(|word| !word.eq_ignore_ascii_case("none"))
            {
                known_hosts_files.push(tilde(word, environment, &value.place)?);
            }
        }
        None => known_hosts_files.extend(DEFAULT_GLOBAL_HOSTS.iter().map(PathBuf::from)),
    }
    let agent_socket = match values.first("identityagent") {
        Some(value) => match value.words.first().map(String::as_str).unwrap_or_default() {
            "none" => None,
            "SSH_AUTH_SOCK" | "$SSH_AUTH_SOCK" | "${SSH_AUTH_SOCK}" => environment.agent.clone(),
            text if text.starts_with('$') && !text.starts_with("${") => {
                let message = "identityagent: of the environment only $SSH_AUTH_SOCK is supported";
                return Err(at(&value.place, message));
            }
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
    let address_family = match values.first("addressfamily") {
        None => AddressFamily::Any,
        Some(value) => match value
            .words
            .first()
            .map(|word| word.to_ascii_lowercase())
            .as_deref()
        {
            Some("any") => AddressFamily::Any,
            Some("inet") => AddressFamily::Inet,
            Some("inet6") => AddressFamily::Inet6,
            other => {
                let message = format!(
                    "addressfamily must be any, inet or inet6, not `{}`",
                    other.unwrap_or_default()
                );
                return Err(at(&value.place, message));
            }
        },
    };
    let proxy_command = match values.first("proxycommand") {
        Some(value) if !value.raw.eq_ignore_ascii_case("none") => {
            Some(tokens.expand(&value.raw, &value.place)?)
        }
        Some(_) | None => None,
    };
    let host_key_algorithms = algorithms(
        values,
        "hostkeyalgorithms",
        HOST_KEY_ALGORITHMS,
        &mut route.remarks,
    );
    let ca_signature_algorithms = algorithms(
        values,
        "casignaturealgorithms",
        CA_SIGNATURE_ALGORITHMS,
        &mut route.remarks,
    );
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
        host_key_algorithms,
        ca_signature_algorithms,
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
    Ok((hop, jump))
}

/// What is offered for host keys unless it is configured, in ssh's order.
const HOST_KEY_ALGORITHMS: &[&str] = &[
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "ecdsa-sha2-nistp384-cert-v01@openssh.com",
    "ecdsa-sha2-nistp521-cert-v01@openssh.com",
    "rsa-sha2-512-cert-v01@openssh.com",
    "rsa-sha2-256-cert-v01@openssh.com",
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
];
/// ssh's default for CASignatureAlgorithms.
const CA_SIGNATURE_ALGORITHMS: &[&str] = &[
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "rsa-sha2-512",
    "rsa-sha2-256",
];

/// A list of algorithms; `+`, `-` and `^` before it change the default list (ssh_config(5), HostKeyAlgorithms).
fn algorithms(
    values: &Values,
    key: &str,
    defaults: &[&str],
    remarks: &mut Vec<String>,
) -> Option<Vec<String>> {
    let value = values.first(key)?;
    let text = value.words.first().map(String::as_str).unwrap_or_default();
    let defaults = || defaults.iter().map(|name| (*name).to_owned());
    let split = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    if let Some(added) = text.strip_prefix('+') {
        // The defaults are all that is both supported and sound; and only with them do known keys decide the order.
        if !split(added)
            .iter()
            .all(|name| defaults().any(|have| have == *name))
        {
            remarks.push(format!(
                "{}: `{key} {text}` is not honoured: the defaults are used",
                value.place
            ));
        }
        return None;
    }
    if let Some(removed) = text.strip_prefix('-') {
        return Some(
            defaults()
                .filter(|name| !list_exact(removed.split(','), name))
                .collect(),
        );
    }
    if let Some(first) = text.strip_prefix('^') {
        let mut names = split(first);
        let rest: Vec<String> = defaults().filter(|name| !names.contains(name)).collect();
        names.extend(rest);
        return Some(names);
    }
    Some(split(text))
}
