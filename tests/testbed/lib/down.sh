# shellcheck shell=bash disable=SC2034
# The end of a bed, and whether it is whole.

# Everything recorded as running, machines first.
recorded() {
    local f
    for f in "$RUN"/*.pid; do
        [[ -e $f ]] || continue
        f=${f##*/}
        printf '%s\n' "${f%.pid}"
    done
}

# Jobs that a kept state would remember as running are better ended now.
cancel_jobs() {
    live_pid slurmctl >/dev/null || return 0
    # shellcheck disable=SC2016
    on slurmctl timeout 3 bash -c '
        jobs=$(squeue -h -o %A) || exit 0
        [ -n "$jobs" ] || exit 0
        scancel $jobs
        for i in $(seq 25); do [ -z "$(squeue -h -o %A)" ] && exit 0; sleep 0.1; done' 2>/dev/null || true
}

bed_down() {
    local name nodes
    rm -f "$ENV_FILE"
    if [[ -z ${NODES+set} ]]; then
        nodes=0
        for name in "$BED"/log/nid*/; do
            [[ ! -d $name ]] || ((nodes += 1))
        done
        machines_list "$nodes"
    fi
    cancel_jobs
    stop_slurmdbd
    # Everything lives in PID namespaces below the holder's, so all of it dies with that one process.
    kill_recorded holder
    while read -r name; do
        kill_recorded "$name"
    done < <(recorded)
    rm -f "$RUN"/*.ready "$RUN"/way-in.*
    wait_for 5 remove_cgroups || warn "cgroups of bed $BED_NAME are still there: $(node_cgroups | tr '\n' ' ')"
}

# What slurmctld still has to tell the database is sent when it ends in good order.
stop_slurmdbd() {
    local pid name
    live_pid slurmctl >/dev/null || return 0
    for name in slurm/slurmctld slurm/slurmdbd mysqld/mysqld; do
        pid=$(pid_on slurmctl "/run/$name.pid") || continue
        on slurmctl kill -TERM "$pid" || continue
        wait_for 5 gone_on slurmctl "/run/$name.pid" || true
    done
}

gone_on() { ! pid_on "$1" "$2" >/dev/null; }

wipe_state() {
    rm -rf --one-file-system "${BED:?}"/{mysql,slurmctld,fs,log,machines,ssh,etc,bin}
}

# What is left of a bed on this machine; nothing, after `down`.
leftovers() {
    local file args
    grep -F " $BED/" /proc/self/mounts | sed 's/^/mount: /' || true
    node_cgroups | sed 's/^/cgroup: /'
    find "$BED" -type s -printf 'socket: %p\n' 2>/dev/null
    losetup -a 2>/dev/null | grep -F "$BED/" | sed 's/^/loop device: /' || true
    # Whatever keeps a namespace of the bed alive was started with the bed's path, or by a process that was.
    while read -r file; do
        { mapfile -d '' -t args <"$file"; } 2>/dev/null || continue
        case ${args[0]:-} in
            "$BED"/bin/* | /.init | unshare) echo "process: ${file//[^0-9]/} ${args[*]}" ;;
        esac
    done < <(grep -lsaF "$BED" /proc/[0-9]*/cmdline)
    # A shell that somebody left inside a machine, for example.
    grep -lsF " $BED/etc /etc " /proc/[0-9]*/mountinfo | sed 's/^/namespace held by: /' || true
}

machine_services() { # MACHINE: name and pid file of each daemon there
    case $(role_of "$1") in
        jump) echo "sshd /run/sshd.pid" ;;
        login) echo "munged /run/munge/munged.pid"; echo "sshd /run/sshd.pid" ;;
        controller)
            echo "munged /run/munge/munged.pid"
            echo "mariadbd /run/mysqld/mysqld.pid"
            echo "slurmdbd /run/slurm/slurmdbd.pid"
            echo "slurmctld /run/slurm/slurmctld.pid"
            ;;
        node) echo "munged /run/munge/munged.pid"; echo "slurmd /run/slurm/slurmd.pid" ;;
    esac
}

cable_is_cut() { [[ $(in_holder --net -- ip -o link show type veth) == *"state DOWN"* ]]; }
scratch_is_full() {
    local free
    free=$(in_holder --mount -- df -k --output=avail "$(scratch_in_holder)" | tail -n 1)
    ((free < 1024))
}

bed_healthy() {
    local m name file
    if cable_is_cut || scratch_is_full; then
        return 1
    fi
    [[ $(way_in status 2>/dev/null) == "way open, delay 0 ms"* ]] || return 1
    for m in "${MACHINES[@]}"; do
        live_pid "$m" >/dev/null || return 1
        while read -r name file; do
            pid_on "$m" "$file" >/dev/null || return 1
        done < <(machine_services "$m")
    done
    for m in "${NODES[@]}"; do
        node_ready "$m" || return 1
    done
}

# Written last: a test that finds this file finds a bed that works.
write_env() {
    local names
    names=$(printf '%s,' "${NODES[@]/#/$NODE_PREFIX}")
    cat >"$ENV_FILE.new" <<END
BED_NAME=$BED_NAME
BED_DIR=$BED
JUMP_HOST=127.0.0.1
JUMP_PORT=$JUMP_PORT
SSH_DIR=$BED/ssh
SSH_CONFIG=$BED/ssh/ssh_config
KEY_PASSPHRASE=$KEY_PASSPHRASE
OPERATOR=operator
OPERATOR_UID=$OPERATOR_UID
OPERATOR_HOME=/users/operator
SCRATCH=$SCRATCH_ROOT/operator
SCRATCH_SIZE=$SCRATCH_SIZE
NODE_COUNT=${#NODES[@]}
NODES=${names%,}
CLUSTER=alps
PARTITION=mi300
PARTITION_SHARED=debug
PARTITION_SHORT=short
ACCOUNT=csstaff
ACCOUNT_OTHER=lp99
ACCOUNT_FOREIGN=notmine
EDF_PLAIN=/users/operator/.edf/plain.toml
EDF_IMAGE=/users/operator/.edf/image.toml
EDF_BROKEN=/users/operator/.edf/broken.toml
CGROUPS=$CGROUPS
SLURM_VERSION=$(on slurmctl sinfo --version | cut -d' ' -f2)
END
    mv "$ENV_FILE.new" "$ENV_FILE"
}

bed_report() {
    local m name file line
    say "bed $BED_NAME in $BED"
    say "way in: $(way_in status 2>&1 || true)"
    ! cable_is_cut || say "a cable is cut"
    ! scratch_is_full || say "scratch is full"
    for m in "${MACHINES[@]}"; do
        if ! live_pid "$m" >/dev/null; then
            say "$m: dead"
            continue
        fi
        line="$m (PID $(live_pid "$m")):"
        while read -r name file; do
            if pid_on "$m" "$file" >/dev/null; then
                line+=" $name"
            else
                line+=" $name-IS-DEAD"
            fi
        done < <(machine_services "$m")
        say "$line"
    done
    on slurmctl timeout 20 sinfo -N -p debug -o '%12N %10T %20E' 2>&1 || true
    on slurmctl timeout 20 squeue -o '%8i %10P %10u %10T %10M %10q %R' 2>&1 || true
}
