# shellcheck shell=bash disable=SC2034
# Machines: what there is, how one starts and ends, and how to run something on it.

# Users of the cluster. Numbers, because the host does not know them.
readonly OPERATOR_UID=20001 NEIGHBOR_UID=20002 USERS_GID=20000
readonly JUMP_ADDRESS=10.77.1.2
readonly SCRATCH_INODES=1m
readonly SCRATCH_ROOT=/capstor/scratch/cscs

# Short names of the machines, in the order they start. Compute nodes are nid001, nid002, ...
machines_list() { # NODES
    local i
    MACHINES=(slurmctl beverin ela)
    NODES=()
    for ((i = 1; i <= $1; i++)); do
        NODES+=("$(printf 'nid%03d' "$i")")
    done
    MACHINES+=("${NODES[@]}")
}

role_of() {
    case $1 in
        ela) printf jump ;;
        beverin) printf login ;;
        slurmctl) printf controller ;;
        *) printf node ;;
    esac
}

# The host name inside: Slurm's name of a node, the plain name elsewhere.
hostname_of() {
    case $1 in
        nid*) printf '%s%s' "$NODE_PREFIX" "$1" ;;
        *) printf '%s' "$1" ;;
    esac
}

# A machine by its short name or its host name.
machine_named() {
    local m
    for m in "${MACHINES[@]}"; do
        [[ $1 == "$m" || $1 == "$(hostname_of "$m")" ]] && { printf '%s' "$m"; return; }
    done
    die "there is no machine '$1' in bed $BED_NAME (there are: ${MACHINES[*]})"
}

node_named() {
    local m
    m=$(machine_named "$1") || exit
    [[ $m == nid* ]] || die "$1 is not a compute node (they are: ${NODES[*]})"
    printf '%s' "$m"
}

# Port on the switch, bridge, and address of each cable of a machine; one line each.
cables_of() {
    case $1 in
        ela) echo "ela edge $JUMP_ADDRESS" ;;
        beverin) echo "beverin-edge edge 10.77.1.3"; echo "beverin-hsn hsn 10.77.2.3" ;;
        slurmctl) echo "slurmctl hsn 10.77.2.2" ;;
        nid*) echo "$1 hsn 10.77.2.$((10 + 10#${1#nid}))" ;;
    esac
}

hosts_file() { # as seen from: edge | hsn
    local m port bridge address
    echo "127.0.0.1 localhost"
    for m in "${MACHINES[@]}"; do
        while read -r port bridge address; do
            if [[ $bridge == "$1" ]]; then
                echo "$address $(hostname_of "$m")"
            fi
        done < <(cables_of "$m")
    done
}

start_holder() {
    setsid unshare --net --mount --propagation slave --pid --fork \
        bash "$HERE/lib/holder-init.sh" "$BED" "$SCRATCH_SIZE" "$SCRATCH_INODES" </dev/null >>"$BED/log/holder.log" 2>&1 9>&- &
    wait_for 5 live_pid holder >/dev/null || die "the holder did not start: $(tail -n 3 "$BED/log/holder.log")"
}

in_holder() { nsenter --target "$(live_pid holder)" "$@"; }

scratch_in_holder() { printf '%s' "$BED/fs/capstor/scratch"; }

# Start a process in the background as a child of the holder's init, which reaps it; it dies with the holder.
below_holder() { # LOG NSENTER_OPTIONS... -- COMMAND...
    local holder log=$1 options=()
    shift
    holder=$(live_pid holder) || die "bed $BED_NAME is not up"
    while [[ $1 != -- ]]; do
        options+=("$1")
        shift
    done
    shift
    # shellcheck disable=SC2016
    nsenter --target "$holder" --pid "${options[@]}" -- \
        sh -c 'log=$1; shift; setsid "$@" </dev/null >>"$log" 2>&1 9>&- &' sh "$log" "$@"
}

# Start a machine and plug its cables in. Services come later.
start_machine() {
    local machine=$1 holder pid role port bridge address link
    holder=$(live_pid holder) || die "bed $BED_NAME is not up"
    role=$(role_of "$machine")
    rm -f "$RUN/$machine.ready" "$RUN/$machine.pid"
    mkdir -p "$BED/log/$machine"
    below_holder "$BED/log/$machine.log" --mount -- \
        unshare --net --uts --ipc --mount --pid --fork \
        bash "$HERE/lib/machine-init.sh" "$BED" "$machine" "$role" "$(hostname_of "$machine")"
    wait_for 10 test -s "$RUN/$machine.ready" ||
        die "$machine did not start: $(tail -n 3 "$BED/log/$machine.log")"
    mv "$RUN/$machine.ready" "$RUN/$machine.pid"
    pid=$(live_pid "$machine") || die "$machine ended at once: $(tail -n 3 "$BED/log/$machine.log")"
    {
        while read -r port bridge address; do
            echo "link add $port type veth peer name $bridge netns $pid"
            echo "link set $port master $bridge up"
        done < <(cables_of "$machine")
    } | nsenter --target "$holder" --net -- ip -batch -
    {
        while read -r port bridge address; do
            link=$bridge
            echo "addr add $address/24 dev $link"
            echo "link set $link up"
        done < <(cables_of "$machine")
    } | nsenter --target "$pid" --net -- ip -batch -
}

readonly SAFE_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# Run a command on a machine as root, with an environment of its own.
on() { # MACHINE COMMAND...
    local pid
    pid=$(live_pid "$1") || { warn "$1 is not running"; return 1; }
    shift
    nsenter --target "$pid" --mount --uts --ipc --net --pid -- \
        env -i PATH="$SAFE_PATH" HOME=/root USER=root LOGNAME=root LANG=C.UTF-8 TERM="${TERM:-dumb}" "$@" 9>&-
}

# The same as a user of the cluster, from a login shell.
on_as() { # USER MACHINE COMMAND...
    local user=$1 machine=$2 uid pid
    shift 2
    case $user in
        root) on "$machine" "$@"; return ;;
        operator) uid=$OPERATOR_UID ;;
        neighbor) uid=$NEIGHBOR_UID ;;
        *) usage_error "no user '$user' (there are: operator, neighbor, root)" ;;
    esac
    pid=$(live_pid "$machine") || { warn "$machine is not running"; return 1; }
    # shellcheck disable=SC2016
    nsenter --target "$pid" --mount --uts --ipc --net --pid -- \
        setpriv --reuid "$uid" --regid "$USERS_GID" --clear-groups \
        env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="/users/$user" USER="$user" LOGNAME="$user" SHELL=/bin/bash \
        LANG=C.UTF-8 TERM="${TERM:-dumb}" \
        bash -lc 'cd 2>/dev/null || cd /; exec "$@"' bash "$@" 9>&-
}

# Start a daemon that stays in the foreground by itself; it becomes a child of the machine's init.
daemon_on() { # MACHINE LOG COMMAND...
    local machine=$1 log=$2
    shift 2
    # shellcheck disable=SC2016
    on "$machine" sh -c 'log=$1; shift; setsid "$@" </dev/null >>"$log" 2>&1 &' sh "$log" "$@"
}

# Process number, inside the machine, from a pid file there; nothing if that process is gone.
pid_on() { # MACHINE PIDFILE
    # shellcheck disable=SC2016
    on "$1" sh -c 'p=$(cat "$1" 2>/dev/null) && [ -d "/proc/$p" ] && echo "$p"' sh "$2"
}

bed_is_up() {
    [[ -e $ENV_FILE ]] && live_pid holder >/dev/null
}

# Read back what `up` wrote down.
bed_load() {
    local key value nodes=0
    bed_is_up || die "bed $BED_NAME is not up (start it with tests/testbed/up --bed $BED_NAME)"
    while IFS='=' read -r key value; do
        case $key in
            NODE_COUNT) nodes=$value ;;
            JUMP_PORT) JUMP_PORT=$value ;;
            SCRATCH_SIZE) SCRATCH_SIZE=$value ;;
        esac
    done <"$ENV_FILE"
    machines_list "$nodes"
}
