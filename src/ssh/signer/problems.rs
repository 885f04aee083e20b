//! What a user certificate says itself against its use.

use jiff::Timestamp;
use russh::keys::Certificate;
use russh::keys::ssh_key::certificate::CertType;

/// What speaks against `certificate` for `user` at `now`, worst first; empty if nothing does.
pub fn certificate_problems(certificate: &Certificate, user: &str, now: Timestamp) -> Vec<String> {
    let mut problems = Vec::new();
    let id = certificate.key_id();
    if certificate.cert_type() != CertType::User {
        problems.push(format!("certificate \"{id}\" is not for users"));
    }
    let time = |seconds: u64| {
        i64::try_from(seconds)
            .ok()
            .and_then(|s| Timestamp::from_second(s).ok())
    };
    // The largest value means "for ever" and is no time.
    if let Some(end) = time(certificate.valid_before()).filter(|end| *end <= now) {
        problems.push(format!(
            "certificate \"{id}\" expired {} ago, at {end}",
            ago(now, end)
        ));
    }
    if let Some(begin) = time(certificate.valid_after()).filter(|begin| *begin > now) {
        problems.push(format!(
            "certificate \"{id}\" is not valid before {begin}, in {} (is the clock of this machine right?)",
            ago(begin, now)
        ));
    }
    let principals = certificate.valid_principals();
    if !principals.iter().any(|principal| principal == user) {
        let named = if principals.is_empty() {
            "nobody".to_owned()
        } else {
            format!("`{}`", principals.join("`, `"))
        };
        problems.push(format!("certificate \"{id}\" names {named} and not `{user}`"));
    }
    problems
}

/// The distance of two times, coarsely.
fn ago(later: Timestamp, earlier: Timestamp) -> String {
    let seconds = later.as_second() - earlier.as_second();
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86400),
    }
}
