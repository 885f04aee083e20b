# shellcheck shell=bash disable=SC2034
# What every command of the test bed shares: the bed's name and places, messages, recorded processes.

# Exit status of a test that could not run here at all (the convention of automake and many CI systems).
readonly EX_SKIP=77

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { warn "$*"; exit 1; }
usage_error() { warn "$*"; exit 2; }
skip() { warn "this machine cannot run the test bed: $*"; exit "$EX_SKIP"; }

# Milliseconds of a clock that only goes forward.
now_ms() {
    local up
    read -r up _ </proc/uptime
    up=${up/./}0
    printf '%s' "$((10#$up))"
}

# Settle which bed is meant and where its things are. Everything else follows from the name.
bed_select() {
    BED_NAME=${1:-${VIBESYS_BED:-vibesys}}
    [[ $BED_NAME =~ ^[a-z][a-z0-9]{0,11}$ ]] ||
        usage_error "bed name '$BED_NAME': want a lower-case letter, then at most 11 lower-case letters or digits"
    BED_HOME=${VIBESYS_BED_HOME:-/var/tmp/vibesys-bed}
    [[ $BED_HOME == /* ]] || usage_error "VIBESYS_BED_HOME must be an absolute path, not '$BED_HOME'"
    BED=$BED_HOME/$BED_NAME
    # The longest socket below it is run/way-in.sock; the kernel's limit for the path is 107 bytes.
    ((${#BED} <= 80)) || usage_error "$BED is too long for the unix sockets below it (80 bytes at most)"
    RUN=$BED/run
    ENV_FILE=$BED/bed.env
    # Slurm names a node's cgroups after the node, and all beds of a machine share those directories.
    NODE_PREFIX=
    [[ $BED_NAME == vibesys ]] || NODE_PREFIX=$BED_NAME-
}

# Take `--bed NAME` off the front of the arguments; the rest is left in ARGS.
bed_options() {
    local name=
    while (($#)); do
        case $1 in
            --bed) (($# >= 2)) || usage_error "--bed wants a name"; name=$2; shift 2 ;;
            --bed=*) name=${1#*=}; shift ;;
            *) break ;;
        esac
    done
    bed_select "$name"
    ARGS=("$@")
}

need_root() { ((EUID == 0)) || skip "it needs root (for namespaces, mounts and several users)"; }

# One command at a time changes a bed. The descriptor must not live on in daemons: they close it (`9>&-`).
bed_lock() {
    mkdir -p "$BED"
    exec 9>"$BED/.lock"
    flock -w 120 9 || die "bed $BED_NAME is busy: another up, down or fault holds $BED/.lock"
}

# --- recorded processes -------------------------------------------------------------------------
# A record is "PID STARTTIME BOOT": a process that merely got the same number later is not ours.

boot_id() { local id; read -r id </proc/sys/kernel/random/boot_id; printf '%s' "$id"; }

# Nothing for a process that has ended and only waits to be reaped.
start_time() {
    local line
    { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
    line=${line##*) }
    # shellcheck disable=SC2086
    set -- $line
    [[ $1 != Z && $1 != X ]] || return 1
    printf '%s' "${20}"
}

record_pid() { # NAME PID
    printf '%s %s %s\n' "$2" "$(start_time "$2")" "$(boot_id)" >"$RUN/$1.pid"
}

# Print the process number behind a record if that very process is still there.
live_pid() { # NAME
    local pid start boot
    [[ -r $RUN/$1.pid ]] || return 1
    read -r pid start boot <"$RUN/$1.pid" || return 1
    [[ $boot == "$(boot_id)" && $(start_time "$pid") == "$start" ]] || return 1
    printf '%s' "$pid"
}

# Kill the recorded process for good and wait until the kernel has let it go.
kill_recorded() { # NAME
    local pid i
    if pid=$(live_pid "$1"); then
        kill -KILL "$pid" 2>/dev/null || true
        for ((i = 0; i < 500; i++)); do
            live_pid "$1" >/dev/null || break
            sleep 0.01
        done
    fi
    rm -f "$RUN/$1.pid"
}

# Ask every 20 ms until the command succeeds; give up after SECONDS.
wait_for() { # SECONDS COMMAND...
    local deadline=$(($(now_ms) + $1 * 1000))
    shift
    until "$@"; do
        (($(now_ms) < deadline)) || return 1
        sleep 0.02
    done
}
