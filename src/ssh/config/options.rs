//! The names of options: those we honour, those that OpenSSH knows and that change nothing here, and those worth a word.

/// Options that decide something about a connection of ours.
pub(super) const HONOURED: &[&str] = &[
    "addressfamily",
    "bindaddress",
    "casignaturealgorithms",
    "certificatefile",
    "connectionattempts",
    "connecttimeout",
    "globalknownhostsfile",
    "host",
    "hostkeyalgorithms",
    "hostkeyalias",
    "hostname",
    "identitiesonly",
    "identityagent",
    "identityfile",
    "ignoreunknown",
    "include",
    "match",
    "port",
    "proxycommand",
    "proxyjump",
    "serveralivecountmax",
    "serveraliveinterval",
    "stricthostkeychecking",
    "user",
    "userknownhostsfile",
];

/// Options that would change how the host is reached, and that we do not honour: said, never dropped in silence.
pub(super) const REMARKED: &[&str] = &[
    "bindinterface",
    "canonicalizehostname",
    "ciphers",
    "controlpath",
    "gssapiauthentication",
    "kexalgorithms",
    "knownhostscommand",
    "macs",
    "pkcs11provider",
    "preferredauthentications",
    "proxyusefdpass",
    "remotecommand",
    "requesttty",
    "revokedhostkeys",
    "securitykeyprovider",
    "verifyhostkeydns",
];

/// The rest of what OpenSSH 10 knows.
pub(super) const OTHERS: &[&str] = &[
    "addkeystoagent",
    "batchmode",
    "canonicaldomains",
    "canonicalizefallbacklocal",
    "canonicalizemaxdots",
    "canonicalizepermittedcnames",
    "challengeresponseauthentication",
    "channeltimeout",
    "checkhostip",
    "cipher",
    "clearallforwardings",
    "compression",
    "compressionlevel",
    "controlmaster",
    "controlpersist",
    "dsaauthentication",
    "dynamicforward",
    "enableescapecommandline",
    "enablesshkeysign",
    "escapechar",
    "exitonforwardfailure",
    "fingerprinthash",
    "forkafterauthentication",
    "forwardagent",
    "forwardx11",
    "forwardx11timeout",
    "forwardx11trusted",
    "gatewayports",
    "gssapidelegatecredentials",
    "gssapikeyexchange",
    "gssapiclientidentity",
    "gssapirenewalforcesrekey",
    "gssapitrustdns",
    "gssapikexalgorithms",
    "gssapiserveridentity",
    "hashknownhosts",
    "hostbasedacceptedalgorithms",
    "hostbasedauthentication",
    "hostbasedkeytypes",
    "ipqos",
    "kbdinteractiveauthentication",
    "kbdinteractivedevices",
    "localcommand",
    "localforward",
    "loglevel",
    "logverbose",
    "nohostauthenticationforlocalhost",
    "numberofpasswordprompts",
    "obscurekeystroketiming",
    "passwordauthentication",
    "permitlocalcommand",
    "permitremoteopen",
    "protocol",
    "pubkeyacceptedalgorithms",
    "pubkeyacceptedkeytypes",
    "pubkeyauthentication",
    "refuseconnection",
    "rekeylimit",
    "remoteforward",
    "requiredrsasize",
    "rhostsrsaauthentication",
    "rsaauthentication",
    "sendenv",
    "sessiontype",
    "setenv",
    "smartcarddevice",
    "stdinnull",
    "streamlocalbindmask",
    "streamlocalbindunlink",
    "syslogfacility",
    "tag",
    "tcpkeepalive",
    "tunnel",
    "tunneldevice",
    "updatehostkeys",
    "useprivilegedport",
    "usekeychain",
    "versionaddendum",
    "visualhostkey",
    "warnweakcrypto",
    "xauthlocation",
];

pub(super) fn known(keyword: &str) -> bool {
    [HONOURED, REMARKED, OTHERS]
        .iter()
        .any(|list| list.contains(&keyword))
}

pub(super) fn nearest(keyword: &str) -> Option<&'static str> {
    [HONOURED, REMARKED, OTHERS]
        .into_iter()
        .flatten()
        .map(|name| (strsim::damerau_levenshtein(keyword, name), *name))
        .min()
        .filter(|(distance, _)| *distance <= 3)
        .map(|(_, name)| name)
}

/// Seconds, or the time formats of sshd_config(5): `30`, `1m`, `1h30m`. `none` is no limit.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let (mut total, mut digits) = (0_u64, String::new());
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let unit = match c.to_ascii_lowercase() {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        total = total.checked_add(digits.parse::<u64>().ok()?.checked_mul(unit)?)?;
        digits.clear();
    }
    if !digits.is_empty() {
        total = total.checked_add(digits.parse().ok()?)?;
    }
    (!text.is_empty()).then_some(total)
}
