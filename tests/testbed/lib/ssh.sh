# shellcheck shell=bash disable=SC2034
# Certificates, host keys, known_hosts files, client configurations, and the servers of both hops.

# Certificate authorities and key pairs are made once and kept; certificates and files that say "now" are new each time.
make_ssh() {
    local dir=$BED/ssh
    mkdir -p "$dir"
    chmod 700 "$dir"
    (
        cd "$dir" || exit
        new_key() { [[ -e $1 ]] || ssh-keygen -q "${@:2}" -N '' -C "$1" -f "$1"; }
        new_key user_ca -t ed25519
        new_key other_ca -t ed25519
        new_key host_ca -t ed25519
        new_key wrong_host -t ed25519
        new_key id_good -t ed25519
        new_key id_rsa -t rsa -b 2048
        new_key id_ecdsa -t ecdsa -b 256
        new_key id_unsigned -t ed25519
        [[ -e id_encrypted ]] ||
            ssh-keygen -q -t ed25519 -a 4 -N "$KEY_PASSPHRASE" -C id_encrypted -f id_encrypted
        for host in ela beverin; do
            mkdir -p "../machines/$host/ssh"
            new_key "../machines/$host/ssh/ssh_host_ed25519_key" -t ed25519
            new_key "../machines/$host/ssh/ssh_host_rsa_key" -t rsa -b 2048
        done
    ) >"$BED/log/ssh-keygen.log" 2>&1 </dev/null
}

readonly KEY_PASSPHRASE=correct-horse
# The variants of a user certificate: each has its own copy of the key, so that a test can name it by one path.
readonly CERT_VARIANTS=(expired notyet wrongprincipal unknownca revoked sourceaddress forcecommand noforward)

# Sign KEY as KEY-cert.pub, atomically: ssh may read it at any moment.
sign_user() { # KEY SERIAL CA OPTIONS...
    local key=$1 serial=$2 ca=$3 tmp
    shift 3
    tmp=$(mktemp -d "$BED/ssh/.sign.XXXXXX")
    cp "$BED/ssh/$key.pub" "$tmp/key.pub"
    ssh-keygen -q -s "$BED/ssh/$ca" -I "$key@testbed" -z "$serial" "$@" "$tmp/key.pub"
    mv "$tmp/key-cert.pub" "$BED/ssh/$key-cert.pub"
    rm -r "$tmp"
}

sign_good() { sign_user id_good 1 user_ca -n operator -V -5m:+24h; }
sign_good_expired() { sign_user id_good 99 user_ca -n operator -V -2d:-1h; }

sign_all() {
    local dir=$BED/ssh v host
    (
        cd "$dir" || exit
        for v in "${CERT_VARIANTS[@]}"; do
            cp -p id_good "id_$v"
            cp -p id_good.pub "id_$v.pub"
        done
        # The revocation list goes by key, so this one needs a key of its own.
        rm -f id_revoked id_revoked.pub
        ssh-keygen -q -t ed25519 -N '' -C id_revoked -f id_revoked
        valid=(-V -5m:+24h)
        sign_good
        sign_user id_rsa 2 user_ca -n operator "${valid[@]}"
        sign_user id_ecdsa 3 user_ca -n operator "${valid[@]}"
        sign_user id_encrypted 4 user_ca -n operator "${valid[@]}"
        sign_user id_expired 5 user_ca -n operator -V -2d:-1d
        sign_user id_notyet 6 user_ca -n operator -V +1d:+2d
        sign_user id_wrongprincipal 7 user_ca -n somebody-else "${valid[@]}"
        sign_user id_unknownca 8 other_ca -n operator "${valid[@]}"
        sign_user id_revoked 9 user_ca -n operator "${valid[@]}"
        sign_user id_sourceaddress 10 user_ca -n operator "${valid[@]}" -O source-address=192.0.2.0/24
        sign_user id_forcecommand 11 user_ca -n operator "${valid[@]}" -O 'force-command=echo forced'
        sign_user id_noforward 12 user_ca -n operator "${valid[@]}" -O no-port-forwarding
        ssh-keygen -q -k -f revoked.krl id_revoked.pub
        for host in ela beverin; do
            sshd_files "$host"
        done
        known_hosts_files
    ) >>"$BED/log/ssh-keygen.log" 2>&1 </dev/null
}

sshd_files() { # HOST
    local to=$BED/machines/$1/ssh key
    cp user_ca.pub revoked.krl "$to/"
    for key in ed25519 rsa; do
        ssh-keygen -q -s host_ca -I "$1" -h -n "$1" -V -5m:+52w "$to/ssh_host_${key}_key.pub"
    done
    {
        cat <<END
ListenAddress 0.0.0.0
HostKey /etc/ssh/ssh_host_ed25519_key
HostKey /etc/ssh/ssh_host_rsa_key
HostCertificate /etc/ssh/ssh_host_ed25519_key-cert.pub
HostCertificate /etc/ssh/ssh_host_rsa_key-cert.pub
TrustedUserCAKeys /etc/ssh/user_ca.pub
RevokedKeys /etc/ssh/revoked.krl
AuthorizedKeysFile none
AuthenticationMethods publickey
UsePAM no
PermitRootLogin no
UseDNS no
X11Forwarding no
PrintMotd no
MaxSessions 10
MaxStartups 100
LogLevel VERBOSE
PidFile /run/sshd.pid
Subsystem sftp internal-sftp
END
        if [[ $1 == ela ]]; then
            echo "AllowTcpForwarding local"
            echo "PermitOpen beverin:22"
            echo "AllowAgentForwarding no"
        fi
        # From 9.8 on, sshd shuts out an address after a few failures; the failures here are the tests' own.
        if sshd_knows PerSourcePenalties; then
            echo "PerSourcePenalties no"
        fi
    } >"$to/sshd_config"
}

sshd_knows() {
    local said
    said=$(/usr/sbin/sshd -T -f /dev/null -h "$BED/machines/ela/ssh/ssh_host_ed25519_key" -o "$1=no" 2>&1) || true
    [[ $said != *"Bad configuration option"* ]]
}

known_hosts_files() {
    local ca host key rest
    ca=$(cut -d' ' -f1,2 host_ca.pub)
    wrong=$(cut -d' ' -f1,2 wrong_host.pub)
    : >known_hosts.empty
    echo "@cert-authority ela,beverin $ca" >known_hosts.ca
    : >known_hosts.plain
    for host in ela beverin; do
        for key in ed25519 rsa; do
            read -r -a rest <"../machines/$host/ssh/ssh_host_${key}_key.pub"
            echo "$host ${rest[0]} ${rest[1]}" >>known_hosts.plain
        done
    done
    cat known_hosts.plain known_hosts.ca >known_hosts
    cp known_hosts.plain known_hosts.hashed
    ssh-keygen -q -H -f known_hosts.hashed
    rm -f known_hosts.hashed.old
    for host in ela beverin; do
        { grep -v "^$host " known_hosts.plain; echo "$host $wrong"; } >"known_hosts.changed-$host"
        # The host's own key and its certificate authority are both revoked.
        {
            cat known_hosts.plain known_hosts.ca
            grep "^$host " known_hosts.plain | sed 's/^/@revoked /'
            echo "@revoked $host $ca"
        } >"known_hosts.revoked-$host"
    done
    cp known_hosts.changed-ela known_hosts.changed
    cp known_hosts.revoked-ela known_hosts.revoked
    # A certificate authority that signed neither host.
    echo "@cert-authority ela,beverin $(cut -d' ' -f1,2 other_ca.pub)" >known_hosts.otherca
}

# A client configuration on standard output.
ssh_config() { # KEY KNOWN_HOSTS [KEY_OF_SECOND_HOP]
    local dir=$BED/ssh host key=$1
    for host in ela beverin; do
        echo "Host $host"
        if [[ $host == ela ]]; then
            echo "    HostName 127.0.0.1"
            echo "    Port $JUMP_PORT"
        else
            echo "    HostName beverin"
            echo "    ProxyJump ela"
            key=${3:-$1}
        fi
        echo "    User operator"
        echo "    IdentityFile $dir/$key"
        [[ ! -e $dir/$key-cert.pub ]] || echo "    CertificateFile $dir/$key-cert.pub"
        cat <<END
    IdentitiesOnly yes
    HostKeyAlias $host
    UserKnownHostsFile $dir/$2
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    UpdateHostKeys no

END
    done
}

# ssh_config (good), ssh_config.KEY for each key, ssh_config.hop2-KEY (good on the jump only), ssh_config.known-WHAT.
write_ssh_configs() {
    local v file
    ssh_config id_good known_hosts >"$BED/ssh/ssh_config"
    for v in good rsa ecdsa encrypted unsigned "${CERT_VARIANTS[@]}"; do
        ssh_config "id_$v" known_hosts >"$BED/ssh/ssh_config.$v"
        ssh_config id_good known_hosts "id_$v" >"$BED/ssh/ssh_config.hop2-$v"
    done
    for file in "$BED"/ssh/known_hosts.*; do
        v=${file##*/known_hosts.}
        ssh_config id_good "known_hosts.$v" >"$BED/ssh/ssh_config.known-$v"
    done
}

start_sshd() { # ela | beverin
    on "$1" /usr/sbin/sshd -f /etc/ssh/sshd_config -E /var/log/sshd.log
    wait_for 5 pid_on "$1" /run/sshd.pid >/dev/null || die "sshd on $1 did not start (see $BED/log/$1/sshd.log)"
}

way_in() { "$BED/bin/way-in" --ctl "$RUN" "$@"; }

start_way_in() {
    local port=0
    [[ ! -r $BED/port ]] || port=$(<"$BED/port")
    rm -f "$RUN/way-in.port" "$RUN/way-in.number"
    below_holder "$BED/log/way-in.log" -- "$BED/bin/way-in" "$port" "$RUN" "$RUN/ela.pid" "$JUMP_ADDRESS"
    wait_for 5 test -s "$RUN/way-in.port" || die "the way in did not open: $(tail -n 2 "$BED/log/way-in.log")"
    record_pid way-in "$(<"$RUN/way-in.number")"
    JUMP_PORT=$(<"$RUN/way-in.port")
    echo "$JUMP_PORT" >"$BED/port"
}
