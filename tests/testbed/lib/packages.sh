# shellcheck shell=bash disable=SC2034
# The Debian packages the bed is made of, and whether this machine can run it at all.

PACKAGES=(
    slurmctld slurmd slurmdbd slurm-client slurm-wlm-basic-plugins slurm-wlm-mysql-plugin libslurm-dev
    mariadb-server munge openssh-server openssh-client
    gcc libc6-dev rsync zstd iproute2 procps util-linux busybox-static bubblewrap
)

# Refuse early, in one sentence, on a machine where nothing could work.
check_machine() {
    need_root
    command -v unshare >/dev/null || skip "there is no unshare(1)"
    unshare --net --uts --ipc --mount --pid --fork true 2>/dev/null || skip "it may not make namespaces"
    unshare --mount sh -c 'mount -t tmpfs none /mnt' 2>/dev/null || skip "it may not mount in a namespace"
}

missing_packages() {
    local p
    for p in "${PACKAGES[@]}"; do
        [[ $(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || printf '%s\n' "$p"
    done
}

install_packages() {
    local missing
    { command -v dpkg-query && command -v apt-get; } >/dev/null ||
        skip "it is not a Debian system (no apt-get)"
    mapfile -t missing < <(missing_packages)
    ((${#missing[@]})) || return 0
    say "packages: installing ${missing[*]}"
    mkdir -p "$BED_HOME"
    (
        flock -w 600 8
        apt_quietly "${missing[@]}"
    ) 8>"$BED_HOME/.packages.lock" || skip "the packages could not be installed (see $BED_HOME/packages.log)"
}

# A policy-rc.d that says no keeps the packages' daemons from starting.
apt_quietly() (
    policy=/usr/sbin/policy-rc.d
    saved=
    if [[ -e $policy ]]; then
        saved=$policy.before-testbed
        mv "$policy" "$saved"
    fi
    # shellcheck disable=SC2317
    restore() {
        rm -f "$policy"
        [[ -z $saved ]] || mv "$saved" "$policy"
    }
    trap restore EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    export DEBIAN_FRONTEND=noninteractive
    install=(apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@")
    exec >>"$BED_HOME/packages.log" 2>&1 </dev/null
    "${install[@]}" || { apt-get update && "${install[@]}"; }
)
