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

/// What `certificate` is limited to, in words: a server that enforces this does not say so.
pub fn certificate_limits(certificate: &Certificate) -> Vec<String> {
    let mut limits: Vec<String> = certificate
        .critical_options()
        .iter()
        .map(|(name, value)| match name.as_str() {
            "source-address" => format!("only from {value}"),
            "force-command" => "only for a command of its own".to_owned(),
            other => format!("only with {other}"),
        })
        .collect();
    if !permits_forwarding(certificate) {
        limits.push("no port forwarding".to_owned());
    }
    limits
}

/// Whether a jump host passes on who logs in by `certificate`.
pub fn permits_forwarding(certificate: &Certificate) -> bool {
    certificate
        .extensions()
        .iter()
        .any(|(name, _)| name == "permit-port-forwarding")
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

#[cfg(test)]
mod tests {
    use super::*;
    use russh::keys::ssh_key::certificate::Builder;
    use russh::keys::{Algorithm, PrivateKey};

    fn certificate(change: impl FnOnce(&mut Builder)) -> Certificate {
        let key = |seed: u8| {
            let pair = russh::keys::ssh_key::private::Ed25519Keypair::from_seed(&[seed; 32]);
            PrivateKey::from(pair)
        };
        let mut builder =
            Builder::new(vec![7; 16], key(1).public_key().clone(), 1_000_000, 2_000_000).unwrap();
        builder.key_id("mine").unwrap().valid_principal("jane").unwrap();
        change(&mut builder);
        let signed = builder.sign(&key(2)).unwrap();
        assert_eq!(signed.algorithm(), Algorithm::Ed25519);
        signed
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_certificate_says_what_is_wrong_with_it() {
        let plain = certificate(|_| {});
        assert!(certificate_problems(&plain, "jane", at(1_500_000)).is_empty());
        let late = certificate_problems(&plain, "jane", at(2_000_300)).join("");
        assert!(
            late.contains("\"mine\" expired 5 min ago, at 1970-01-24"),
            "{late}"
        );
        let early = certificate_problems(&plain, "jane", at(999_990)).join("");
        assert!(
            early.contains("is not valid before") && early.contains("in 10 s"),
            "{early}"
        );
        let other = certificate_problems(&plain, "joe", at(1_500_000)).join("");
        assert!(other.contains("names `jane` and not `joe`"), "{other}");
        let host = certificate(|builder| {
            builder.cert_type(CertType::Host).unwrap();
        });
        assert!(certificate_problems(&host, "jane", at(1_500_000))[0].contains("is not for users"));
    }

    #[test]
    fn limits_are_named() {
        let limited = certificate(|builder| {
            builder.critical_option("source-address", "10.0.0.0/8").unwrap();
        });
        assert_eq!(
            certificate_limits(&limited),
            ["only from 10.0.0.0/8", "no port forwarding"]
        );
        let open = certificate(|builder| {
            builder.extension("permit-port-forwarding", "").unwrap();
        });
        assert!(certificate_limits(&open).is_empty());
    }
}
