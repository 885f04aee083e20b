# shellcheck shell=bash disable=SC2034
# Ways to break a bed, and to mend it. Each says what it did in one line.

as_root_on_controller() { on slurmctl timeout 30 "$@"; }

# --- links --------------------------------------------------------------------------------------

set_links() { # MACHINE up|down
    local port bridge address
    while read -r port bridge address; do
        # The login node's way in is its edge cable; its side of the cluster network stays.
        [[ $1 != beverin || $bridge == edge ]] || continue
        in_holder --net -- ip link set "$port" "$2"
    done < <(cables_of "$1")
}

fault_cut() { # jump [--reset] | login | NODE
    local machine
    case ${1:-} in
        jump)
            if [[ ${2:-} == --reset ]]; then
                way_in reset >/dev/null
                say "jump: every connection reset, new ones are refused"
            else
                way_in cut >/dev/null
                say "jump: nothing moves, new connections find nobody"
            fi
            ;;
        login) set_links beverin down; say "login: beverin's cable to ela is cut" ;;
        '') usage_error "cut wants jump, login or a node" ;;
        *)
            machine=$(machine_named "$1") || exit
            set_links "$machine" down
            say "$1: its cable is cut"
            ;;
    esac
}

fault_restore() {
    local machine
    case ${1:-} in
        jump) way_in restore >/dev/null; say "jump: open" ;;
        login) set_links beverin up; say "login: beverin's cable to ela is back" ;;
        '') usage_error "restore wants jump, login or a node" ;;
        *)
            machine=$(machine_named "$1") || exit
            set_links "$machine" up
            # The controller asks a node it holds for lost only every minute or two; slurmd can speak up.
            if [[ $machine == nid* && $(node_state "$machine") == down* ]]; then
                wait_for 10 node_called_back "$machine" || warn "$1 does not come back yet"
            fi
            say "$1: its cable is back"
            ;;
    esac
}

node_called_back() {
    local pid
    node_recovered "$1" && return 0
    pid=$(pid_on "$1" /run/slurm/slurmd.pid) && on "$1" kill -HUP "$pid"
    sleep 0.5
    node_ready "$1"
}

fault_delay() { # MS
    [[ ${1:-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || usage_error "delay wants milliseconds of round trip, such as 20"
    local reply
    reply=$(way_in delay "$1") || die "$reply"
    say "delay: $1 ms of round trip on the way in"
}

# --- daemons ------------------------------------------------------------------------------------

# A daemon of the bed by its name in `fault kill`: machine and pid file.
daemon_place() { # NAME [NODE]
    case $1 in
        sshd-ela) echo "ela /run/sshd.pid" ;;
        sshd-beverin) echo "beverin /run/sshd.pid" ;;
        slurmctld) echo "slurmctl /run/slurm/slurmctld.pid" ;;
        slurmdbd) echo "slurmctl /run/slurm/slurmdbd.pid" ;;
        slurmd)
            [[ -n ${2:-} ]] || usage_error "slurmd wants the node too"
            local node
            node=$(node_named "$2") || exit
            echo "$node /run/slurm/slurmd.pid"
            ;;
        *) usage_error "no daemon '$1' (there are: sshd-ela, sshd-beverin, slurmctld, slurmdbd, slurmd NODE)" ;;
    esac
}

kill_daemon() { # NAME [NODE]; quiet if it is dead already
    local place machine file pid
    place=$(daemon_place "$@") || exit
    read -r machine file <<<"$place"
    if pid=$(pid_on "$machine" "$file"); then
        if [[ $1 == sshd-* ]]; then
            # The listener, the monitor of each connection, and the process that speaks for the user.
            # shellcheck disable=SC2016
            on "$machine" bash -c '
                kids() { for p in "$@"; do cat "/proc/$p/task/$p/children" 2>/dev/null; done; }
                monitors=$(kids "$1"); users=$(kids $monitors)
                kill -KILL "$1" $monitors $users 2>/dev/null; true' bash "$pid"
        else
            on "$machine" kill -KILL "$pid" || true
        fi
        wait_for 5 gone_on "$machine" "$file" || die "$1 does not die"
    fi
    [[ $1 != sshd-ela ]] || way_in refuse >/dev/null
}

fault_kill() {
    [[ -n ${1:-} ]] || usage_error "kill wants a daemon"
    kill_daemon "$@"
    say "$*: killed"
}

fault_restart() {
    local node
    [[ -n ${1:-} ]] || usage_error "restart wants a daemon"
    kill_daemon "$@"
    case $1 in
        sshd-ela) start_sshd ela; way_in restore >/dev/null ;;
        sshd-beverin) start_sshd beverin ;;
        # Until the nodes have answered it, the new controller gives them no work. A cut one never will.
        slurmctld) start_slurmctld; wait_for 10 nodes_heard_from || true ;;
        slurmdbd) start_slurmdbd ;;
        slurmd) node=$(node_named "$2") || exit; start_slurmd "$node"; wait_for 10 nodes_heard_from || true ;;
    esac
    say "$*: running again"
}

# --- machines -----------------------------------------------------------------------------------

fault_fail_node() { # NODE, or any machine
    local machine
    [[ -n ${1:-} ]] || usage_error "fail-node wants a node"
    machine=$(machine_named "$1") || exit
    # A dead machine does not say goodbye: what was connected to it hangs.
    [[ $machine != ela ]] || way_in cut >/dev/null
    # Connections whose last words cannot be delivered would keep the namespace, and the cable in it, for minutes.
    remove_cables "$machine"
    kill_recorded "$machine"
    say "$1: dead"
}

remove_cables() {
    local port bridge address
    while read -r port bridge address; do
        in_holder --net -- ip link delete "$port" 2>/dev/null || true
    done < <(cables_of "$1")
}

fault_revive_node() {
    local machine
    [[ -n ${1:-} ]] || usage_error "revive-node wants a node"
    machine=$(machine_named "$1") || exit
    if live_pid "$machine" >/dev/null; then
        say "$1: alive already"
        return
    fi
    remove_cables "$machine" # a machine can also have died by itself
    start_machine "$machine"
    start_services "$machine"
    if [[ $machine == ela ]]; then
        way_in reset >/dev/null
        way_in restore >/dev/null
    fi
    [[ $machine != nid* ]] || wait_for 30 node_recovered "$machine" || die "$1 does not come back"
    say "$1: alive again"
}

# --- jobs and nodes -----------------------------------------------------------------------------

job_state() { as_root_on_controller sacct -nXP -j "$1" -o State | head -n 1; }
job_field() { as_root_on_controller squeue -h -j "$1" -t all -o "$2" 2>/dev/null | head -n 1; }
job_over() { [[ $(job_field "$1" %T) != @(RUNNING|COMPLETING|SUSPENDED) ]]; }
job_state_is() { [[ $(job_field "$1" %T) == "$2" ]]; }

# The controller looks at limits every 30 s, then KillWait passes.
fault_expire_job() { # JOB
    [[ ${1:-} =~ ^[0-9]+$ ]] || usage_error "expire-job wants the number of a job"
    job_state_is "$1" RUNNING || die "job $1 is not running"
    as_root_on_controller scontrol update "JobId=$1" EndTime=now
    wait_for 60 job_state_is "$1" TIMEOUT || die "job $1 did not run out of time: $(job_field "$1" %T)"
    say "job $1: TIMEOUT"
}

# A job of another user with QOS high takes the nodes of a job with QOS low, and leaves again at once.
fault_preempt() { # JOB | NODE
    local job=${1:-} nodes partition qos preemptor node
    if [[ ! $job =~ ^[0-9]+$ ]]; then
        [[ -n $job ]] || usage_error "preempt wants the number of a job, or a node"
        node=$(node_named "$job") || exit
        job=$(as_root_on_controller squeue -h -t R -w "$(hostname_of "$node")" -o '%A %q' | awk '$2 == "low" || $2 == "spot" { print $1; exit }')
        [[ -n $job ]] || die "no job with QOS low or spot runs on $node"
    fi
    job_state_is "$job" RUNNING || die "job $job is not running"
    qos=$(job_field "$job" %q)
    [[ $qos == low || $qos == spot ]] || die "job $job has QOS $qos; only low and spot can be preempted"
    nodes=$(job_field "$job" %N)
    partition=$(job_field "$job" %P)
    preemptor=$(on_as neighbor beverin sbatch --parsable -p "$partition" -w "$nodes" -N "$(job_field "$job" %D)" --exclusive \
        --qos=high -J preemptor -t 1 -o /dev/null --wrap 'sleep 50')
    if ! wait_for 30 job_over "$job"; then
        as_root_on_controller scancel "$preemptor"
        die "job $job was not preempted: $(job_field "$job" %T)"
    fi
    as_root_on_controller scancel "$preemptor"
    # A script that dies of the SIGTERM at the start of the grace time is FAILED to Slurm, not PREEMPTED.
    say "job $job: $(job_field "$job" %T) (preempted by job $preemptor, which has been cancelled)"
}

fault_drain() {
    local node
    node=$(node_named "${1:-}") || exit
    as_root_on_controller scontrol update "NodeName=$(hostname_of "$node")" State=drain Reason=testbed
    say "$1: draining"
}

fault_resume() {
    local node
    node=$(node_named "${1:-}") || exit
    as_root_on_controller scontrol update "NodeName=$(hostname_of "$node")" State=resume
    wait_for 30 node_ready "$node" || die "$1 does not come back"
    say "$1: in use again"
}

# --- scratch and certificates -------------------------------------------------------------------

# The file system's limit comes down to what is in it; nothing is written.
fault_fill_scratch() { # [KiB left free | --inodes]
    local used
    if [[ ${1:-} == --inodes ]]; then
        used=$(in_holder --mount -- df --output=iused "$(scratch_in_holder)" | tail -n 1)
        in_holder --mount -- mount -o "remount,nr_inodes=$((used))" "$(scratch_in_holder)"
        say "scratch: no file can be made ($((used)) are there)"
        return
    fi
    [[ ${1:-0} =~ ^[0-9]+$ ]] || usage_error "fill-scratch wants KiB that stay free, --inodes, or nothing"
    used=$(in_holder --mount -- df -k --output=used "$(scratch_in_holder)" | tail -n 1)
    used=$((used + ${1:-0}))
    in_holder --mount -- mount -o "remount,size=${used}k" "$(scratch_in_holder)"
    say "scratch: full ($used KiB, ${1:-0} KiB free)"
}

fault_free_scratch() {
    in_holder --mount -- mount -o "remount,size=$SCRATCH_SIZE,nr_inodes=$SCRATCH_INODES" "$(scratch_in_holder)"
    say "scratch: $SCRATCH_SIZE again"
}

fault_expire_cert() {
    sign_good_expired
    say "certificate: $BED/ssh/id_good-cert.pub ran out an hour ago"
}

fault_renew_cert() {
    sign_good
    say "certificate: $BED/ssh/id_good-cert.pub is good for a day"
}
