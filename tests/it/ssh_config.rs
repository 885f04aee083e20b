//! `ssh_config` against the real `ssh -G`: what we resolve is what ssh resolves.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use vibesys::ssh::config::{Environment, Sources, resolve};
use vibesys::ssh::route::{Hop, StrictHostKeys};

fn environment(home: &Path) -> Environment {
    let text = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    Environment {
        home: home.to_owned(),
        user: text("id", "-un"),
        uid: text("id", "-u").parse().unwrap(),
        hostname: text("uname", "-n"),
        agent: None,
    }
}

/// What `ssh -G` says, by key; identity files and the like may come several times.
fn real(config: &Path, alias: &str) -> BTreeMap<String, Vec<String>> {
    let output = Command::new("ssh")
        .arg("-G")
        .arg("-F")
        .arg(config)
        .arg(alias)
        .env_remove("SSH_AUTH_SOCK")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        values.entry(key.to_owned()).or_default().push(value.to_owned());
    }
    values
}

fn ours(hop: &Hop, key: &str) -> Vec<String> {
    let seconds =
        |time: Option<std::time::Duration>| time.map_or_else(String::new, |time| time.as_secs().to_string());
    let paths = |paths: &[std::path::PathBuf]| -> Vec<String> {
        paths.iter().map(|path| path.display().to_string()).collect()
    };
    match key {
        "hostname" => vec![hop.host.clone()],
        "port" => vec![hop.port.to_string()],
        "user" => vec![hop.user.clone()],
        "identityfile" => paths(&hop.identity_files),
        "certificatefile" => paths(&hop.certificate_files),
        "hostkeyalias" => hop.host_key_alias.clone().into_iter().collect(),
        "identitiesonly" => vec![if hop.identities_only { "yes" } else { "no" }.to_owned()],
        "connecttimeout" => vec![match seconds(hop.connect_timeout) {
            none if none.is_empty() => "none".to_owned(),
            seconds => seconds,
        }],
        "connectionattempts" => vec![hop.connection_attempts.to_string()],
        "serveraliveinterval" => vec![match seconds(hop.server_alive_interval) {
            none if none.is_empty() => "0".to_owned(),
            seconds => seconds,
        }],
        "serveralivecountmax" => vec![hop.server_alive_count_max.to_string()],
        "stricthostkeychecking" => vec![
            match hop.strict_host_keys {
                StrictHostKeys::Yes => "true",
                StrictHostKeys::AcceptNew => "accept-new",
                StrictHostKeys::No => "false",
            }
            .to_owned(),
        ],
        "userknownhostsfile+globalknownhostsfile" => paths(&hop.known_hosts_files),
        other => panic!("no such key: {other}"),
    }
}

/// ssh -G leaves tokens in file names, and `~` in its own defaults; it expands them when it opens the files.
fn expand(value: &str, home: &Path) -> String {
    let value = &value.replace("%h", "hpc").replace("%n", "hpc").replace("%r", "u");
    value
        .strip_prefix("~/")
        .map_or_else(|| value.to_owned(), |rest| home.join(rest).display().to_string())
}

const KEYS: &[&str] = &[
    "hostname",
    "port",
    "user",
    "identityfile",
    "certificatefile",
    "hostkeyalias",
    "identitiesonly",
    "connecttimeout",
    "connectionattempts",
    "serveraliveinterval",
    "serveralivecountmax",
    "stricthostkeychecking",
];

#[test]
fn what_we_resolve_is_what_ssh_resolves() {
    let configs = [
        "Host hpc\n HostName %h.cluster.example.org\n User=jane\n Port 2200\nHost *\n User fallback\n",
        "Host hpc\n  Port=2200\n  Port 2300\n",
        "User jane\nHost hpc\n User other\n Port 99\n",
        "Host *.example hpc\n User a\nHost hpc\n User b\n",
        "Host web* !web9\n User w\nHost *\n User x\n",
        "Host !hpc *\n User never\nHost hpc\n User yes\n",
        "Host HPC\n User upper\n",
        "Host h?c\n Port 1\n",
        "Match host hpc\n User m\n Port 9\n",
        "Match originalhost hpc user jane\n Port 9\nHost hpc\n User jane\n",
        "Host hpc\n HostName real.example\nMatch host real.example\n User matched\n",
        "Host hpc\n HostName real.example\nMatch originalhost hpc\n User matched\n",
        "Match !host hpc\n User no\nMatch all\n User all\n",
        "Host hpc\n User early\nMatch final host hpc\n User late\n Port 77\n",
        "Match host other\n User wrong\nHost hpc\n Port 4\n",
        "Match localuser nobodyhere\n User wrong\n",
        "Host hpc\n IdentityFile ~/.ssh/%h-key\n IdentityFile /abs/%n.%r\n User u\n",
        "Host hpc\n IdentityFile ~/a\nHost *\n IdentityFile ~/b\n IdentityFile ~/a\n",
        "Host hpc\n CertificateFile ~/.ssh/c-cert.pub\n IdentitiesOnly yes\n",
        "Host hpc\n IdentityFile \"/a b/key\"\n",
        "Host hpc\n HostKeyAlias alias\n StrictHostKeyChecking accept-new\n",
        "Host hpc\n StrictHostKeyChecking no\n",
        "Host hpc\n StrictHostKeyChecking yes\n",
        "Host hpc\n ConnectTimeout 7\n ConnectionAttempts 3\n ServerAliveInterval 15\n ServerAliveCountMax 4\n",
        "Host hpc\n ConnectTimeout 1m30\n ServerAliveInterval 2m\n",
        "# comment\n\nHost hpc # trailing\n User jane # trailing\n",
        "Host hpc\n\tUser\tjane\n\tPort\t2222\n",
        "Host \"hpc\"\n User quoted\n",
        "Host a hpc b\n User several\n",
        "Host hpc\n User jane\n ForwardAgent yes\n SendEnv LANG\n LocalForward 1 x:2\n",
        "IgnoreUnknown Foo*\nHost hpc\n FooBar x\n User ok\n",
        "Host hpc\n UserKnownHostsFile ~/one ~/two\n",
        "Include more/*.conf\nHost hpc\n User last\n",
        "Host hpc\n Include one.conf\n Port 5\n",
        "Host other\n Include one.conf\nHost hpc\n Port 5\n",
        "Host hpc\n HostName 10.1.2.3\n ProxyJump none\n",
        "Host hpc\n HostName %%h\n",
        "host hpc\n hostname low.example\n USER Case\n",
        "Match host hpc,other\n User list\n",
        "Match host \"h*\" user x\n Port 3\nMatch user x\n Port 4\n",
    ];
    let mut compared = 0;
    for (number, text) in configs.iter().enumerate() {
        let home = tempfile::tempdir().unwrap();
        // ssh takes relative includes and `~` from the account's home, so those are written out.
        let ssh_dir = home.path().join(".ssh");
        fs::create_dir_all(ssh_dir.join("more")).unwrap();
        fs::write(ssh_dir.join("more/a.conf"), "Host hpc\n Port 41\n").unwrap();
        fs::write(
            ssh_dir.join("more/b.conf"),
            "Host hpc\n User included\n Port 42\n",
        )
        .unwrap();
        fs::write(ssh_dir.join("one.conf"), "User one\n").unwrap();
        let absolute = ssh_dir.display();
        let text = text
            .replace("Include more", &format!("Include {absolute}/more"))
            .replace("Include one", &format!("Include {absolute}/one"))
            .replace("~/", &format!("{}/", home.path().display()));
        let config = home.path().join("config");
        fs::write(&config, &text).unwrap();
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
        let sources = Sources {
            user: config.clone(),
            named: true,
            system: None,
        };
        let route = resolve("hpc", &sources, &environment(home.path()))
            .unwrap_or_else(|error| panic!("{number}: {error}"));
        let hop = route.hops.last().unwrap();
        let real = real(&config, "hpc");
        for key in KEYS {
            let file = key.ends_with("file");
            let values = real.get(*key).into_iter().flatten();
            let expected: Vec<String> = values
                .map(|value| {
                    if file {
                        expand(value, home.path())
                    } else {
                        value.clone()
                    }
                })
                .collect();
            // `ask` is what `yes` is where nobody can be asked; ssh does not list what is not set.
            let expected: Vec<String> = expected
                .into_iter()
                .map(|value| if value == "ask" { "true".to_owned() } else { value })
                .collect();
            if *key == "identityfile" && !hop.identities_configured {
                continue; // the defaults differ by release of ssh
            }
            assert_eq!(ours(hop, key), expected, "config {number}, {key}:\n{text}");
            compared += 1;
        }
    }
    assert!(compared > 400, "only {compared} values were compared");
}

#[test]
fn jumps_are_resolved_by_their_own_blocks() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config");
    let resolve_with = |text: &str| {
        fs::write(&config, text).unwrap();
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
        let sources = Sources {
            user: config.clone(),
            named: true,
            system: None,
        };
        resolve("hpc", &sources, &environment(home.path()))
    };
    let names = |text: &str| -> Vec<String> {
        let route = resolve_with(text).unwrap();
        route
            .hops
            .iter()
            .map(|hop| format!("{}@{}:{}", hop.user, hop.host, hop.port))
            .collect()
    };
    let text = "Host hpc\n ProxyJump ela\n User u\nHost ela\n HostName ela.example\n User jump\n Port 2222\n";
    assert_eq!(names(text), ["jump@ela.example:2222", "u@hpc:22"]);
    let text =
        "Host hpc\n ProxyJump a@one:1,ssh://two:2/,[::1]:3\n User u\nHost two\n User t\nHost *\n User x\n";
    assert_eq!(names(text), ["a@one:1", "t@two:2", "x@::1:3", "u@hpc:22"]);
    let text = "Host hpc\n ProxyJump b\n User u\nHost b\n ProxyJump a\n User u\nHost a\n User u\n";
    assert_eq!(names(text), ["u@a:22", "u@b:22", "u@hpc:22"]);
    let error = resolve_with("Host hpc\n ProxyJump b\nHost b\n ProxyJump hpc\n").unwrap_err();
    assert!(error.to_string().contains("a loop?"), "{error}");
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config");
    let sources = Sources {
        user: config.clone(),
        named: true,
        system: None,
    };
    for (text, words) in [
        (
            "Host hpc\n Prot 22\n",
            &["config:2", "unknown option `prot`", "`port`"][..],
        ),
        ("Host hpc\n Port banana\n", &["config:2", "must be a number"]),
        ("Host hpc\n Port 70000\n", &["config:2", "1 to 65535"]),
        ("Host hpc\n User \"open\n", &["config:2", "quote"]),
        ("Match exec true\n User x\n", &["config:1", "`Match exec`"]),
        ("Host hpc\n IdentitiesOnly maybe\n", &["config:2", "yes or no"]),
        ("Host hpc\n IdentityFile %q\n", &["config:2", "`%q`"]),
    ] {
        fs::write(&config, text).unwrap();
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
        let error = resolve("hpc", &sources, &environment(home.path()))
            .unwrap_err()
            .to_string();
        for word in words {
            assert!(error.contains(word), "`{word}` is not in `{error}`");
        }
    }
    fs::set_permissions(&config, fs::Permissions::from_mode(0o666)).unwrap();
    let error = resolve("hpc", &sources, &environment(home.path()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("bad owner or permissions"), "{error}");
    fs::remove_file(&config).unwrap();
    assert!(
        resolve("hpc", &sources, &environment(home.path())).is_err(),
        "a named file must exist"
    );
    let route = resolve(
        "hpc",
        &Sources {
            named: false,
            ..sources
        },
        &environment(home.path()),
    )
    .unwrap();
    assert_eq!(route.hops.len(), 1);
}
