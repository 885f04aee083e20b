//! `ssh_config`: every setting of every hop against what the real ssh says (`ssh -G`, and `ssh -v` for the names of the
//! identity files, which `-G` prints unexpanded).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use vibesys::ssh::config::{Environment, Sources, resolve};
use vibesys::ssh::route::{AddressFamily, Hop, Route, StrictHostKeys};

/// A name, the alias, and the configuration; `@D@` is the directory of the files to include.
const TABLE: &[(&str, &str, &str)] = &[
    ("empty", "web", ""),
    ("hostname", "web", "Host web\n HostName web.example.org\n"),
    ("hostname in capitals", "web", "HostName WEB.Example.ORG\n"),
    (
        "alias in capitals",
        "WEB",
        "Host web\n Port 1\nHost WEB\n Port 2\n",
    ),
    ("hostname tokens", "web", "HostName %h.example.org%%h\n"),
    ("hostname address", "web", "HostName 2001:DB8:0::1\n"),
    (
        "first value wins",
        "web",
        "Host web\n Port 2201\n User a\nHost *\n Port 2202\n User b\n IdentitiesOnly yes\n",
    ),
    ("before any Host", "web", "User first\nHost web\n User second\n"),
    (
        "other host",
        "web",
        "Host db\n Port 9\n User db\nHost web\n User web\n",
    ),
    (
        "glob",
        "web12",
        "Host web?\n Port 1\nHost web??\n Port 2\nHost web*\n Port 3\n User star\n",
    ),
    ("several patterns", "db", "Host web db cache\n Port 7\n"),
    ("negation", "web9", "Host * !web9\n Port 7\nHost *\n Port 8\n"),
    ("negation first", "web9", "Host !web9 *\n Port 7\n"),
    ("only a negation", "web1", "Host !web9\n Port 7\n"),
    ("negation of another", "web1", "Host !web9 web*\n Port 7\n"),
    (
        "equals",
        "web",
        "Host=web\nPort=2222\nUser = jane\nHostName= h.example.org\n",
    ),
    (
        "quotes",
        "web",
        "Host \"web\"\n User \"jane\"\n IdentityFile \"/a b/key\"\n",
    ),
    ("single quotes", "web", "IdentityFile '/a b/key'\n"),
    (
        "escaped quote",
        "web",
        "IdentityFile \"/a\\\"b/key\"\nIdentityFile /x\\ y\n",
    ),
    (
        "comments",
        "web",
        "# one\n  # two\nHost web # three\n Port 22 # four\n User a#b\n",
    ),
    ("tabs and case", "web", "\tHOST\tweb\n\t\tpOrT\t2222   \n"),
    (
        "carriage returns",
        "web",
        "Host web\r\n Port 2222\r\n User jane\r\n",
    ),
    (
        "identity files",
        "web",
        "Host web\n IdentityFile ~/.ssh/a\n IdentityFile /b\nHost *\n IdentityFile /c\n IdentityFile /b\n",
    ),
    (
        "identity tokens",
        "web",
        "HostName h.example.org\nPort 7\nUser jane\nIdentityFile %d/%n/%h/%p/%r/%u/%i/%l/%L/%%\n",
    ),
    (
        "identity key alias",
        "web",
        "HostKeyAlias ka\nIdentityFile /x/%k\n",
    ),
    (
        "identity without key alias",
        "web",
        "HostName h\nIdentityFile /x/%k\n",
    ),
    (
        "identity variables",
        "web",
        "IdentityFile ${HOME}/k\nUserKnownHostsFile ${HOME}/kh\n",
    ),
    ("identity none", "web", "IdentityFile none\n"),
    (
        "certificate files",
        "web",
        "CertificateFile ~/c1\nCertificateFile /x/%n-cert.pub\n",
    ),
    (
        "jump",
        "web",
        "Host web\n ProxyJump gate\nHost gate\n HostName g.example.org\n Port 2022\n User gatekeeper\n",
    ),
    (
        "jump with user and port",
        "web",
        "Host web\n ProxyJump jo@gate:33\nHost gate\n Port 2022\n User gatekeeper\n",
    ),
    ("jump as address", "web", "Host web\n ProxyJump jo@[::1]:33\n"),
    ("jump as URI", "web", "Host web\n ProxyJump ssh://jo@gate:33\n"),
    (
        "jumps",
        "web",
        "Host web\n ProxyJump a,jo@b:7,c\nHost a\n Port 1\nHost b\n Port 2\nHost c\n User cc\n",
    ),
    (
        "jump through a jump",
        "web",
        "Host web\n ProxyJump b\nHost b\n ProxyJump a\nHost a\n Port 3\n",
    ),
    (
        "jumps of the later ones",
        "web",
        "Host web\n ProxyJump b,c\nHost b\n ProxyJump a\nHost c\n ProxyJump x\n",
    ),
    (
        "jump none",
        "web",
        "Host web\n ProxyJump none\nHost *\n ProxyJump gate\n",
    ),
    (
        "jump with a comment",
        "web",
        "Host web\n ProxyJump gate # the gate\n",
    ),
    (
        "jump before command",
        "web",
        "Host web\n ProxyJump gate\n ProxyCommand nc x\n",
    ),
    (
        "jump none before command",
        "web",
        "Host web\n ProxyJump none\nHost *\n ProxyCommand nc x\n",
    ),
    (
        "command before jump",
        "web",
        "Host web\n ProxyCommand nc x\n ProxyJump gate\n",
    ),
    (
        "command before jump, files",
        "web",
        "Include @D@/command.conf\nProxyJump gate\n",
    ),
    (
        "command none before jump",
        "web",
        "Host web\n ProxyCommand none\n ProxyJump gate\n",
    ),
    (
        "command as it stands",
        "web",
        "ProxyCommand  exec sh -c \"nc  'x y'\" # z\n",
    ),
    (
        "match user of a jump",
        "web",
        "Host web\n ProxyJump jo@gate\nMatch user jo\n Port 44\n",
    ),
    (
        "known hosts",
        "web",
        "UserKnownHostsFile ~/kh1 /kh2\nGlobalKnownHostsFile /g1 ~/g2\n",
    ),
    (
        "known hosts tokens",
        "web",
        "HostName h\nUserKnownHostsFile %d/%n_%h /k%%\nGlobalKnownHostsFile /g%h\n",
    ),
    (
        "known hosts first",
        "web",
        "UserKnownHostsFile /a\nUserKnownHostsFile /b\n",
    ),
    ("strict yes", "web", "StrictHostKeyChecking yes\n"),
    ("strict accept-new", "web", "StrictHostKeyChecking accept-new\n"),
    ("strict no", "web", "StrictHostKeyChecking no\n"),
    ("strict off", "web", "StrictHostKeyChecking OFF\n"),
    ("strict ask", "web", "StrictHostKeyChecking ask\n"),
    ("host key alias", "web", "HostKeyAlias Alias.Example\n"),
    ("identities only", "web", "IdentitiesOnly yes\n"),
    ("identities only, true", "web", "IdentitiesOnly true\n"),
    ("agent", "web", "IdentityAgent ~/sock-%n\n"),
    ("agent none", "web", "IdentityAgent none\n"),
    ("agent variable", "web", "IdentityAgent SSH_AUTH_SOCK\n"),
    (
        "times",
        "web",
        "ConnectTimeout 1m30s\nServerAliveInterval 15\nServerAliveCountMax 7\nConnectionAttempts 4\n",
    ),
    (
        "times, two",
        "web",
        "ConnectTimeout none\nServerAliveInterval 1h\nServerAliveCountMax 0\n",
    ),
    ("family inet", "web", "AddressFamily inet\n"),
    ("family inet6", "web", "AddressFamily INET6\n"),
    ("bind address", "web", "BindAddress 127.0.0.2\n"),
    ("match host", "web", "Match host web\n Port 5\n"),
    ("match host in capitals", "web", "Match host WEB\n Port 5\n"),
    (
        "match host after HostName",
        "web",
        "HostName h.example.org\nMatch host web\n Port 5\nMatch host *.example.org\n Port 6\n",
    ),
    (
        "match host with a token",
        "web",
        "HostName %h.example.org\nMatch host web.example.org\n Port 6\n",
    ),
    (
        "match originalhost",
        "web",
        "HostName h\nMatch originalhost web,db\n Port 5\n",
    ),
    (
        "match originalhost negated",
        "web",
        "Match originalhost !web,*\n Port 5\nMatch originalhost !db,*\n Port 6\n",
    ),
    (
        "match user",
        "web",
        "User jane\nMatch user jane\n Port 5\nMatch user JANE\n HostName x\n",
    ),
    (
        "match localuser",
        "web",
        "Match localuser nobody-like-this\n Port 5\nMatch localuser *\n Port 6\n",
    ),
    ("match all", "web", "Host db\n Port 5\nMatch all\n Port 6\n"),
    (
        "match negated",
        "web",
        "Match !host web\n Port 5\nMatch !host db\n Port 6\n",
    ),
    (
        "match both",
        "web",
        "Match host web user nobody-like-this\n Port 5\nMatch host web !user nobody-like-this\n Port 6\n",
    ),
    ("match with equals", "web", "Match host=web user=*\n Port 6\n"),
    ("match quoted", "web", "Match host \"web,db\"\n Port 6\n"),
    (
        "match final",
        "web",
        "Match final\n Port 5\n User late\nHost web\n Port 6\n",
    ),
    ("match final all", "web", "Match final all\n Port 5\n"),
    (
        "match not final",
        "web",
        "Match !final\n Port 5\nMatch final\n User x\n",
    ),
    (
        "match canonical with final",
        "web",
        "Match canonical\n Port 5\nMatch final\n User x\n",
    ),
    (
        "match final and HostName",
        "web",
        "Match final\n HostName late.example.org\n",
    ),
    (
        "match final and Host",
        "web",
        "Match final host h.example.org\n User x\nHost h.example.org\n Port 5\nHost web\n HostName h.example.org\n",
    ),
    (
        "match final, identities once",
        "web",
        "IdentityFile /a\nMatch final\n IdentityFile /b\n",
    ),
    (
        "match ends with the next",
        "web",
        "Match host db\n Port 5\nHost web\n User x\n",
    ),
    ("include", "web", "Include @D@/one.conf\nPort 9\n"),
    ("include several", "web", "Include @D@/two.conf @D@/one.conf\n"),
    ("include glob", "web", "Include @D@/*.d/*.conf\n"),
    ("include class", "web", "Include @D@/a.d/[12]*.conf\n"),
    (
        "include classes",
        "web",
        "Include @D@/[a-b].d/[!1-9]*.conf @D@/a.d/[^1]0.conf @D@/[\n",
    ),
    (
        "include missing",
        "web",
        "Include @D@/nowhere.conf @D@/nowhere/*.conf\nPort 3\n",
    ),
    ("include dangling", "web", "Include @D@/dangling\nPort 3\n"),
    (
        "include in a Host",
        "web",
        "Host web\n Include @D@/one.conf\n User after\n",
    ),
    (
        "include in another Host",
        "web",
        "Host db\n Include @D@/one.conf\n User after\n",
    ),
    (
        "include with a Host",
        "web",
        "Host web\n Include @D@/hosts.conf\n User after\n",
    ),
    (
        "include with a Host in another Host",
        "web",
        "Host db\n Include @D@/hosts.conf\n User after\n",
    ),
    (
        "include in a Match",
        "web",
        "Match host db\n Include @D@/hosts.conf\nMatch all\n User after\n",
    ),
    ("include in an include", "web", "Include @D@/nested.conf\n"),
    (
        "match exec elsewhere",
        "web",
        "Match host db exec false\n Port 5\n",
    ),
    (
        "ignore unknown",
        "web",
        "IgnoreUnknown Frob*,nob\nFrobnicate yes\nNob 1\nPort 4\n",
    ),
    (
        "host key algorithms",
        "web",
        "HostKeyAlgorithms ssh-ed25519,rsa-sha2-512\n",
    ),
    (
        "host key algorithms first",
        "web",
        "HostKeyAlgorithms ^rsa-sha2-512,ssh-ed25519\n",
    ),
    (
        "host key algorithms less",
        "web",
        "HostKeyAlgorithms -ecdsa*,*-cert-*\n",
    ),
    ("CA signature algorithms", "web", "CASignatureAlgorithms -rsa*\n"),
];

const INCLUDED: &[(&str, &str)] = &[
    ("command.conf", "ProxyCommand nc x\n"),
    ("one.conf", "Port 2201\nUser one\n"),
    ("two.conf", "User two\nIdentityFile /two\n"),
    (
        "hosts.conf",
        "Host db\n Port 2203\nHost web\n Port 2204\nMatch all\n HostName matched\n",
    ),
    (
        "nested.conf",
        "Host web\n Include @D@/one.conf\nHost *\n IdentityFile /nested\n",
    ),
    ("a.d/10.conf", "IdentityFile /ten\n"),
    ("a.d/20.conf", "IdentityFile /twenty\n"),
    ("a.d/.hidden.conf", "IdentityFile /hidden\n"),
    ("b.d/05.conf", "IdentityFile /five\n"),
];

fn output(command: &str, arguments: &[&str]) -> (String, String, bool) {
    let output = Command::new(command)
        .args(arguments)
        .stdin(Stdio::null())
        .env("SSH_AUTH_SOCK", "/agent")
        .output()
        .unwrap_or_else(|error| panic!("{command}: {error}"));
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.success())
}

fn one(command: &str, arguments: &[&str]) -> String {
    output(command, arguments).0.trim().to_owned()
}

fn environment() -> Environment {
    let user = one("id", &["-un"]);
    let passwd = one("getent", &["passwd", &user]);
    Environment {
        home: passwd.split(':').nth(5).unwrap().into(),
        user,
        uid: one("id", &["-u"]).parse().unwrap(),
        hostname: one("uname", &["-n"]),
        agent: Some("/agent".into()),
    }
}

fn sources(file: &Path) -> Sources {
    Sources {
        user: file.to_owned(),
        named: true,
        system: None,
    }
}

fn directory() -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, text) in INCLUDED {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, &text.replace("@D@", directory.path().to_str().unwrap()));
    }
    symlink("/nowhere", directory.path().join("dangling")).unwrap();
    directory
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// What ssh says of one hop, in the words of `-G`.
struct Truth {
    alias: String,
    values: BTreeMap<String, Vec<String>>,
    /// Of identity files and certificates, expanded.
    identities: Vec<String>,
    certificates: Vec<String>,
}

impl Truth {
    fn get(&self, key: &str) -> &str {
        self.values.get(key).map_or("", |values| &values[0])
    }
}

fn ask(file: &Path, item: &str) -> Truth {
    let file = file.to_str().unwrap();
    let bare = item.strip_prefix("ssh://").unwrap_or(item);
    let (user, rest) = bare
        .rsplit_once('@')
        .map_or((None, bare), |(user, rest)| (Some(user), rest));
    let (host, port) = rest
        .rsplit_once(':')
        .map_or((rest, None), |(host, port)| (host, Some(port)));
    let host = host.trim_matches(['[', ']']);
    let mut arguments = vec!["-F", file];
    if let Some(user) = user {
        arguments.extend(["-l", user]);
    }
    if let Some(port) = port {
        arguments.extend(["-p", port]);
    }
    let (printed, errors, good) = output("ssh", &[&["-G"], &*arguments, &[host]].concat());
    assert!(good, "{errors}");
    let mut values = BTreeMap::<String, Vec<String>>::new();
    for line in printed.lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        values
            .entry(key.to_owned())
            .or_default()
            .push(value.trim_end().to_owned());
    }
    // With a command of its own ssh dials nobody, whatever the configuration says.
    let verbose = ["-v", "-oBatchMode=yes", "-oProxyCommand=false"];
    let said = output("ssh", &[&verbose, &*arguments, &[host, "true"]].concat()).1;
    let files = |what: &str| {
        let lines = said.lines().filter_map(|line| {
            let line = line.strip_prefix("debug1: ")?.strip_prefix(what)?;
            Some(line.split_once(" type ")?.0.to_owned())
        });
        lines
            .filter(|name| !name.ends_with("-cert") || what.starts_with('c'))
            .collect::<Vec<_>>()
    };
    Truth {
        alias: host.to_owned(),
        identities: files("identity file "),
        certificates: files("certificate file "),
        values,
    }
}

/// The hops in the order in which they are dialled.
fn walk(file: &Path, item: &str, jumps: bool, found: &mut Vec<Truth>) {
    let truth = ask(file, item);
    let list = truth.get("proxyjump").to_owned();
    if jumps && !list.is_empty() && list != "none" {
        for (index, next) in list.split(',').enumerate() {
            walk(file, next, index == 0, found);
        }
    }
    found.push(truth);
}

fn seconds(time: Option<Duration>, none: &str) -> String {
    time.map_or_else(|| none.to_owned(), |time| time.as_secs().to_string())
}

fn paths(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.display().to_string()).collect()
}

fn compare(truth: &Truth, hop: &Hop) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut same = |key: &str, ours: &str| {
        let theirs = truth.get(key);
        if theirs != ours {
            wrong.push(format!("{key}: ssh `{theirs}`, we `{ours}`"));
        }
    };
    same("hostname", &hop.host);
    same("user", &hop.user);
    same("port", &hop.port.to_string());
    same("hostkeyalias", hop.host_key_alias.as_deref().unwrap_or_default());
    same("identitiesonly", if hop.identities_only { "yes" } else { "no" });
    same("connectionattempts", &hop.connection_attempts.to_string());
    same("connecttimeout", &seconds(hop.connect_timeout, "none"));
    same("serveraliveinterval", &seconds(hop.server_alive_interval, "0"));
    same("serveralivecountmax", &hop.server_alive_count_max.to_string());
    same("bindaddress", hop.bind_address.as_deref().unwrap_or_default());
    same("proxycommand", hop.proxy_command.as_deref().unwrap_or_default());
    same(
        "addressfamily",
        match hop.address_family {
            AddressFamily::Any => "any",
            AddressFamily::Inet => "inet",
            AddressFamily::Inet6 => "inet6",
        },
    );
    let agent = match truth.get("identityagent") {
        "" | "SSH_AUTH_SOCK" => Some("/agent"),
        "none" => None,
        path => Some(path),
    };
    let ours = hop.agent_socket.as_ref().map(|path| path.to_str().unwrap());
    if agent != ours {
        wrong.push(format!("identityagent: ssh {agent:?}, we {ours:?}"));
    }
    let strict = match truth.get("stricthostkeychecking") {
        "true" | "ask" => StrictHostKeys::Yes,
        "accept-new" => StrictHostKeys::AcceptNew,
        "false" => StrictHostKeys::No,
        other => panic!("stricthostkeychecking {other}"),
    };
    if strict != hop.strict_host_keys {
        wrong.push(format!("stricthostkeychecking: ssh {strict:?}"));
    }
    let mut lists = |key: &str, theirs: Vec<String>, ours: Vec<String>| {
        if theirs != ours {
            wrong.push(format!("{key}: ssh {theirs:?}, we {ours:?}"));
        }
    };
    let known = format!(
        "{} {}",
        truth.get("userknownhostsfile"),
        // Printed unexpanded.
        truth
            .get("globalknownhostsfile")
            .replace("~/", &format!("{}/", environment().home.display()))
    );
    lists(
        "known hosts",
        known.split(' ').map(str::to_owned).collect(),
        paths(&hop.known_hosts_files),
    );
    lists(
        "identityfile",
        truth.identities.clone(),
        paths(&hop.identity_files),
    );
    lists(
        "certificatefile",
        truth.certificates.clone(),
        paths(&hop.certificate_files),
    );
    for (key, ours) in [
        ("hostkeyalgorithms", &hop.host_key_algorithms),
        ("casignaturealgorithms", &hop.ca_signature_algorithms),
    ] {
        if let Some(ours) = ours {
            let sound = |name: &&str| key.starts_with('c') || !name.starts_with("sk-");
            let theirs = truth.get(key).split(',').filter(sound).map(str::to_owned);
            lists(key, theirs.collect(), ours.clone());
        }
    }
    wrong
}

#[test]
fn ssh_config_is_resolved_as_ssh_resolves_it() {
    let (directory, environment) = (directory(), environment());
    let file = directory.path().join("config");
    let mut wrong = Vec::new();
    for (name, alias, text) in TABLE {
        write(&file, &text.replace("@D@", directory.path().to_str().unwrap()));
        let mut truth = Vec::new();
        walk(&file, alias, true, &mut truth);
        let route = match resolve(alias, &sources(&file), &environment) {
            Ok(route) => route,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let aliases = |route: &Route| route.hops.iter().map(|hop| hop.alias.clone()).collect::<Vec<_>>();
        let theirs: Vec<_> = truth.iter().map(|hop| hop.alias.clone()).collect();
        if theirs != aliases(&route) {
            wrong.push(format!(
                "{name}: ssh goes by {theirs:?}, we by {:?}",
                aliases(&route)
            ));
            continue;
        }
        for (truth, hop) in truth.iter().zip(&route.hops) {
            let found = compare(truth, hop);
            wrong.extend(
                found
                    .iter()
                    .map(|found| format!("{name}: {}: {found}", hop.alias)),
            );
        }
    }
    assert!(TABLE.len() >= 45 && wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ssh_config_relative_includes_are_below_the_home() {
    let directory = directory();
    let home = directory.path().join("home");
    fs::create_dir_all(home.join(".ssh/conf.d")).unwrap();
    let (main, part) = (home.join(".ssh/config"), home.join(".ssh/conf.d/a.conf"));
    write(&main, "Include conf.d/* ~/.ssh/conf.d/../other\n");
    write(&part, "Host web\n Port 77\n");
    write(&home.join(".ssh/other"), "User other\n");
    // As for the includes, ssh asks HOME.
    let said = Command::new("ssh")
        .args(["-G", "-F", main.to_str().unwrap(), "web"])
        .env("HOME", &home)
        .output()
        .unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(
        said.contains("port 77\n") && said.contains("user other\n"),
        "{said}"
    );
    let environment = Environment {
        home,
        ..environment()
    };
    let route = resolve("web", &sources(&main), &environment).unwrap();
    assert_eq!((route.hops[0].port, &*route.hops[0].user), (77, "other"));
}

#[test]
fn ssh_config_of_the_system_comes_second_and_no_known_hosts_is_nobodys_file() {
    let directory = directory();
    let (user, system) = (directory.path().join("user"), directory.path().join("system"));
    write(&user, "Host web\n Port 1\n UserKnownHostsFile none\n");
    write(&system, "Port 2\nUser system\nHostKeyAlgorithms +ssh-rsa\n");
    let mut sources = Sources {
        user: user.clone(),
        named: false,
        system: Some(system.clone()),
    };
    let route = resolve("web", &sources, &environment()).unwrap();
    let hop = &route.hops[0];
    assert_eq!((hop.port, &*hop.user), (1, "system"));
    assert_eq!(hop.known_hosts_files[0], Path::new("/dev/null"));
    assert_eq!(hop.host_key_algorithms, None);
    assert!(
        route.remarks[0].starts_with(&format!("{}:3: ", system.display())),
        "{:?}",
        route.remarks
    );

    // A user without a file is no error, unless it was named.
    sources.user = directory.path().join("nowhere");
    assert_eq!(resolve("web", &sources, &environment()).unwrap().hops[0].port, 2);
    sources.named = true;
    let error = resolve("web", &sources, &environment()).unwrap_err().to_string();
    assert!(error.contains("nowhere"), "{error}");
    // The system's file has no home.
    write(&system, "Include ~/x\n");
    sources.named = false;
    let error = resolve("web", &sources, &environment()).unwrap_err().to_string();
    assert!(error.contains("system:1: "), "{error}");
}

#[test]
fn ssh_config_tokens_of_jump_and_command() {
    let directory = directory();
    let file = directory.path().join("config");
    let text = "Host web\n HostName h\n User jane\n IdentityFile /x/%j.key\n ProxyJump a,j@b:7\n\
        Host cmd\n ProxyCommand nc \"%h\" %p %r %n %%\n";
    write(&file, text);
    let route = resolve("web", &sources(&file), &environment()).unwrap();
    assert_eq!(route.hops[2].identity_files, [Path::new("/x/b.key")]);
    let route = resolve("cmd", &sources(&file), &environment()).unwrap();
    let expected = format!("nc \"cmd\" 22 {} cmd %", environment().user);
    assert_eq!(route.hops[0].proxy_command.as_deref(), Some(&*expected));
}

#[test]
fn ssh_config_errors_say_where() {
    let directory = directory();
    let d = directory.path().to_str().unwrap();
    write(
        &directory.path().join("loop.conf"),
        &format!("\nInclude {d}/loop.conf\n"),
    );
    write(&directory.path().join("bad.conf"), "Host web\n\n Pot 3\n");
    write(&directory.path().join("open.conf"), "Port 3\n");
    fs::set_permissions(
        directory.path().join("open.conf"),
        fs::Permissions::from_mode(0o660),
    )
    .unwrap();
    symlink("round", directory.path().join("round")).unwrap();
    let file = directory.path().join("config");
    // Whether ssh refuses it too: that files which the group may write are refused differs from build to build.
    for (text, place, said, ssh) in [
        ("\nFrobnicate yes\n", "config:2: ", "frobnicate", true),
        ("Prot 22\n", "config:1: ", "did you mean `port`", true),
        ("Port x\n", "config:1: ", "port", true),
        ("Port 0\n", "config:1: ", "65535", true),
        ("Port 70000\n", "config:1: ", "65535", true),
        ("Port\n", "config:1: ", "no value", true),
        ("Port 1 2\n", "config:1: ", "one value", true),
        ("User \"\"\n", "config:1: ", "no value", true),
        ("User \"x\n", "config:1: ", "quote", true),
        ("HostName %p\n", "config:1: ", "%p", true),
        ("UserKnownHostsFile /%x\n", "config:1: ", "%x", true),
        ("IdentitiesOnly maybe\n", "config:1: ", "maybe", true),
        ("AddressFamily inet5\n", "config:1: ", "inet5", true),
        ("ConnectTimeout soon\n", "config:1: ", "soon", true),
        ("StrictHostKeyChecking perhaps\n", "config:1: ", "perhaps", true),
        ("ProxyJump a:b:\n", "config:1: ", "a:b:", true),
        ("ProxyJump a,,b\n", "config:1: ", "ProxyJump", true),
        ("Match\n Port 1\n", "config:1: ", "match", true),
        ("Match host\n", "config:1: ", "no pattern", true),
        ("Match frob x\n", "config:1: ", "frob", true),
        ("Include @D@/bad.conf\n", "bad.conf:3: ", "pot", true),
        ("Include @D@/loop.conf\n", "loop.conf:2: ", "loop", true),
        (
            "Port 2\nInclude @D@/open.conf\n",
            "config:2: ",
            "open.conf",
            false,
        ),
        ("Include @D@/round\n", "config:1: ", "round", true),
        ("Match exec true\n", "config:1: ", "Match exec", false),
        ("IdentityFile ~nobody/x\n", "config:1: ", "~nobody", false),
        ("IdentityFile ${FROB}/x\n", "config:1: ", "${FROB}", false),
    ] {
        write(&file, &text.replace("@D@", d));
        let error = resolve("web", &sources(&file), &environment());
        let error = error
            .map(|route| panic!("{text:?} gives {route:?}"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("{d}/{place}")) && error.contains(said),
            "{text:?}: {error}"
        );
        if ssh {
            let (_, _, good) = output("ssh", &["-G", "-F", file.to_str().unwrap(), "web"]);
            assert!(!good, "ssh takes {text:?}");
        }
    }
    // A file that was named may be anybody's, the user's own may not.
    let mut open = sources(&directory.path().join("open.conf"));
    assert_eq!(resolve("web", &open, &environment()).unwrap().hops[0].port, 3);
    open.named = false;
    let error = resolve("web", &open, &environment()).unwrap_err().to_string();
    assert!(
        error.contains("open.conf") && error.contains("permissions"),
        "{error}"
    );
    // Neither may hops go round.
    write(&file, "Host a\n ProxyJump b\nHost b\n ProxyJump a\n");
    let error = resolve("a", &sources(&file), &environment())
        .unwrap_err()
        .to_string();
    assert!(error.contains("loop"), "{error}");
}
