#!/bin/bash -l
# The vibesys launcher: the batch script of one allocation (usage: launcher.sh GENERATION SNAPSHOTS SCHEDULER IDLE_LIMIT).
#
# It runs the evaluations that clients queue on the shared file system, each as one step, so that a step outlives
# every connection. It is woken by SIGUSR1 (`scancel --batch --signal=USR1 JOB`), looks by itself every few seconds
# in case a wake is lost, and ends the allocation when nothing was asked of it for the idle limit.
#
# Files of one allocation, all below $generation (made by the client before the job is submitted):
#   queue            append-only: `run NAME`, `cancel NAME`, `drop NAME`, `close`; NAME is INVOCATION.ATTEMPT
#   state            replaced as a whole: `waiting`, then `ready JOB HOST START END`, then `closed REASON`
#   heartbeat        rewritten at every look
#   attempts/NAME/   request (claimed by rename), argv, options, wrapper, artifacts.want, step/{run,env,app.N},
#                    stdout, stderr, events (append-only), result.json (renamed into place, last), workspace/
# A name is looked up only after the queue announced it: shared file systems remember failed look-ups.

set -u -o pipefail
umask 077
export LC_ALL=C
# The user's own srun/sbatch defaults and what this batch step was given must not leak into the steps:
# every size is said again on the srun line.
job=${SLURM_JOB_ID:-} restarts=${SLURM_RESTART_COUNT:-0} job_end=${SLURM_JOB_END_TIME:-} node_cpus=${SLURM_CPUS_ON_NODE:-}
for name in "${!SLURM_@}" "${!SBATCH_@}" "${!SRUN_@}" "${!SALLOC_@}" "${!PMI_@}" "${!PMIX_@}"; do
    case $name in
        SLURM_JOB_ID | SLURM_CONF | SLURM_CLUSTER_NAME) ;;
        *) unset "$name" ;;
    esac
done
# srun's own failures must not look like the command's exit codes (srun(1), SLURM_EXIT_ERROR).
export SLURM_EXIT_ERROR=222 SLURM_EXIT_IMMEDIATE=223

generation=$1  # this allocation's directory, absolute
snapshots=$2   # where snapshots are staged, absolute
scheduler=$3   # slurm; or local: no steps, the commands run as children of this script
idle_limit=$4  # seconds without work after which the allocation is given back
readonly poll=5                 # seconds between looks when no wake comes
readonly end_margin=30          # seconds kept free before the time limit to write results
readonly term_grace=10          # seconds between asking a step to end and ending it

now() { if [[ -n ${EPOCHREALTIME-} ]]; then printf %s "${EPOCHREALTIME/,/.}"; else date +%s.%N; fi; }
seconds() { printf '%(%s)T' -1; }
say() { printf '%s %s\n' "$(now)" "$*"; }

# write_state WORDS: readers see the old line or the new one, never a part.
write_state() { printf '%s\n' "$*" >"$generation/.state.$$" && mv -f "$generation/.state.$$" "$generation/state"; }

event() { printf '%s %s\n' "$2" "${EPOCHREALTIME-$(seconds)}" >>"$generation/attempts/$1/events"; }

# --- the candidate's tree --------------------------------------------------------------------------------------

# base_of SNAPSHOT: sets `base` to the full snapshot that SNAPSHOT is stored against, which may be itself.
base_of() {
    base=$1
    [[ ! -f $snapshots/$1/base ]] || read -r base <"$snapshots/$1/base"
}

# The archives carry zstd checksums, so a damaged one fails here and not in the evaluation.
extract() { zstd -dcq --long=27 "$1" | tar -x -p -f - -C "$2" --no-same-owner --warning=no-timestamp; }

# make_tree SNAPSHOT TREE [SPARE]: TREE becomes a private copy of SNAPSHOT, from SPARE if that is its base unpacked.
make_tree() {
    local snapshot=$1 tree=$2 spare=${3-} base
    base_of "$snapshot"
    if [[ -n $spare ]]; then
        mv "$spare" "$tree" || return
    else
        mkdir "$tree" && extract "$snapshots/$base/full.tar.zst" "$tree" || return
    fi
    if [[ $base != "$snapshot" ]]; then
        (cd "$tree" && xargs -0 -r rm -rf -- <"$snapshots/$snapshot/removed") || return
        extract "$snapshots/$snapshot/delta.tar.zst" "$tree" || return
    fi
    freshen "$tree" "$tree.time"
}

# freshen TREE REFERENCE: all files get one time, now, by the clock of this file system. The archives have one in the past,
# and a build directory that outlives the tree would take its product for newer than the edit: the product of another
# candidate would be measured.
freshen() { : >"$2" && find "$1" -type f -exec touch -c -r "$2" -- {} +; }

# --- one attempt -----------------------------------------------------------------------------------------------

# read_request: the fields of the claimed request, into `request`. Nothing is started for it: this is on the way to the command.
read_request() {
    local key value
    request=([tasks]=1 [snapshot]='' [time_limit]=0 [start_limit]=0 [container]=none [environment]='')
    while IFS='=' read -r key value; do
        [[ -z $key ]] || request[$key]=$value
    done <"$dir/request.claimed"
}

# read_app: what the wrapper wrote from inside the step, one file a task. The command could have written there too,
# so only words of the expected shape are taken.
read_app() {
    local task word a b c
    started=0 ended=0 exit_code='' signalled=0 missing=0 term_seen=0 step='' host='' start_time='' end_time='' gpus='' cpus=''
    for ((task = 0; task < tasks; task++)); do
        while read -r word a b c; do
            case $word in
                started)
                    [[ $a =~ ^[0-9]+$ ]] && step=$a
                    [[ $task -eq 0 && $b =~ ^[A-Za-z0-9._-]+$ ]] && host=$b
                    [[ $task -eq 0 && $c =~ ^[0-9.]+$ ]] && start_time=$c
                    started=$((started + 1))
                    ;;
                gpus) [[ $task -eq 0 && $a =~ ^[A-Za-z0-9,._-]*$ ]] && gpus=$a ;;
                cpus) [[ $task -eq 0 && $a =~ ^[0-9,-]*$ ]] && cpus=$a ;;
                term) term_seen=1 ;;
                ended)
                    [[ $a =~ ^[0-9]{1,3}$ ]] || continue
                    ended=$((ended + 1))
                    if [[ -z $exit_code || $exit_code -eq 0 ]]; then
                        exit_code=$a
                        [[ $b == signal ]] && signalled=1
                        [[ $b == missing ]] && missing=1
                    fi
                    [[ $task -eq 0 && $c =~ ^[0-9.]+$ ]] && end_time=$c
                    ;;
            esac
        done 2>/dev/null <"$dir/step/app.$task"
    done
    [[ $started -eq $tasks ]] && started=true || started=false
    # A code counts only when every task came to its end.
    [[ $ended -eq $tasks ]] || exit_code=''
}

# json NAME KIND VALUE: adds a member to `json`; an absent value is null.
json() {
    local text=$3
    case $2 in
        number) : "${text:=null}" ;;
        text) if [[ -n $text ]]; then text="\"$text\""; else text=null; fi ;;
        bool) if [[ $text == 1 || $text == true ]]; then text=true; else text=false; fi ;;
    esac
    json+=",\"$1\":$text"
}

# Lists the declared artifacts: NUL-separated `SHA256 SIZE PATH`. Symbolic links are not followed, so that a candidate
# cannot have a file outside its workspace sent home.
list_artifacts() {
    local root path digest size
    root=$(cd "$dir/workspace" && pwd -P) || return
    while IFS= read -r -d '' path; do
        case $(realpath -e -- "$root/$path" 2>/dev/null) in
            "$root/$path" | "$root") ;;
            *) continue ;; # absent, or reached through a link
        esac
        while IFS= read -r -d '' path; do
            digest=$(sha256sum <"$root/$path") && size=$(stat -c %s -- "$root/$path") || continue
            printf '%s %s %s\0' "${digest%% *}" "$size" "$path"
        done < <(cd "$root" && find "./$path" -type f -printf '%P\0' 2>/dev/null | sort -z |
            if [[ -d $root/$path ]]; then while IFS= read -r -d '' f; do printf '%s/%s\0' "$path" "$f"; done; else cat >/dev/null; printf '%s\0' "$path"; fi)
    done <"$dir/artifacts.want"
}

# write_result SRUN_CODE: the durable record of the end.
write_result() {
    local sizes json='{"version":1'
    [[ ! -s $dir/artifacts.want ]] || list_artifacts >"$dir/artifacts"
    mapfile -t sizes < <(stat -c %s "$dir/stdout" "$dir/stderr" "$dir/artifacts")
    json attempt text "$name"
    json exit number "$exit_code"
    json signalled bool "$signalled"
    json missing bool "$missing"
    json started bool "$started"
    json term_seen bool "$term_seen"
    json cancelled bool "$cancelled"
    json timed_out bool "$timed_out"
    json start_timed_out bool "$start_timed_out"
    json launcher_term bool "$launcher_term"
    json launch number "$1"
    json launch_error text "$launch_error"
    json step number "$step"
    json host text "$host"
    json gpus text "$gpus"
    json cpus text "$cpus"
    json start number "$start_time"
    json end number "$end_time"
    json stdout number "${sizes[0]:-0}"
    json stderr number "${sizes[1]:-0}"
    json artifacts number "${sizes[2]:-0}"
    printf '%s}\n' "$json" >"$dir/.result" && mv -f "$dir/.result" "$dir/result.json" && event "$name" ended
}

# launch COMMAND...: runs it and rings the attempt's bell with its process id and its exit code. The trap keeps this
# shell alive when the whole batch step is told to end, so that the code is still reported.
launch() {
    trap : TERM
    "$@" &
    local pid=$! code
    printf 'pid %s\n' "$pid" >&"$bell"
    while :; do
        wait "$pid"
        code=$?
        kill -0 "$pid" 2>/dev/null || break
    done
    printf 'exit %s\n' "$code" >&"$bell"
}

# The command as the scheduler gets it: [wrapper] /bin/sh RUN STEP_DIR WORKSPACE COMMAND...
# In a container the step directory and the workspace have fixed names; elsewhere they are where they are.
compose_command() {
    local container word
    local -a argv wrapper
    mapfile -d '' -t argv <"$dir/argv"
    mapfile -d '' -t wrapper <"$dir/wrapper"
    mapfile -d '' -t options <"$dir/options"
    container=${request[container]}
    step_dir=/vibesys workspace=/workspace
    case $container in
        none) step_dir=$dir/step workspace=$tree ;;
        edf)
            # Renamed into place: a half-written environment file can mean no container at all.
            printf 'base_environment = "%s"\nworkdir = "/workspace"\nmounts = ["%s:/workspace", "%s:/vibesys"]\n' \
                "${request[environment]}" "$tree" "$dir/step" >"$dir/.edf.toml" && mv "$dir/.edf.toml" "$dir/edf.toml"
            options+=("--environment=$dir/edf.toml")
            ;;
        wrapper) ;;
    esac
    command=()
    for word in "${wrapper[@]}"; do
        word=${word//@WORKSPACE@/$tree}
        command+=("${word//@STEP@/$dir/step}")
    done
    command+=(/bin/sh "$step_dir/run" "$step_dir" "$workspace" "${argv[@]}")
    # A step without it gets one core, and a benchmark measures that (srun(1), --cpus-per-task).
    [[ -z $node_cpus || " ${options[*]} " == *" --cpus-per-task="* ]] || options+=("--cpus-per-task=$node_cpus")
}

launch_slurm() {
    exec </dev/null >"$dir/launch.out" 2>"$dir/launch.err"
    launch srun --overlap --jobid="$job" --job-name="$name" --input=none --unbuffered --kill-on-bad-exit=1 --cpu-bind=none \
        --chdir="$tree" --output="$dir/stdout" --error="$dir/stderr" "${options[@]}" "${command[@]}"
}

launch_local() {
    cd "$tree" || exit
    exec </dev/null >"$dir/stdout" 2>"$dir/stderr"
    launch setsid "${command[@]}"
}

# stop_step FORCE: asks the step to end, or ends it. Before the command has started there is no step id to be sure of,
# and srun itself is the handle: told to end, it ends what it has started.
stop_step() {
    read_app
    case $scheduler/$1 in
        local/ask) kill -TERM -- "-$pid" ;;
        local/force) kill -KILL -- "-$pid" ;;
        slurm/ask) if [[ -n $step ]]; then scancel --signal=TERM "$job.$step"; else kill -TERM "$pid"; fi ;;
        slurm/force)
            [[ -z $step ]] || scancel "$job.$step"
            kill -TERM "$pid"
            ;;
    esac 2>>"$dir/launch.err"
    stop_at=$(($(seconds) + term_grace))
}

# run_attempt NAME SPARE: a subshell of the launcher, which sends it USR2 to cancel.
run_attempt() {
    name=$1 dir=$generation/attempts/$1 tree=$generation/attempts/$1/workspace
    exec {bell}<> <(:)
    cancelled=0 timed_out=0 start_timed_out=0 launcher_term=0 launch_error='' pid='' stop_at=0
    trap 'printf "cancel\n" >&"$bell"' USR2
    trap 'printf "term\n" >&"$bell"' TERM
    local word value code='' begun limit tick step_dir workspace
    local -a options command
    tasks=${request[tasks]} time_limit=${request[time_limit]} start_limit=${request[start_limit]}
    if ! make_tree "${request[snapshot]}" "$tree" "$2" 2>"$dir/launch.err"; then
        launch_error=unpack
        read_app
        write_result ''
        return
    fi
    event "$name" prepared
    compose_command
    "launch_$scheduler" &
    event "$name" launched
    begun=$(seconds) started=false
    while [[ -z $code ]]; do
        # Every limit is looked at once a second at the least, and none of it costs a process.
        tick=1
        [[ $time_limit -ne 0 || $start_limit -ne 0 || $stop_at -ne 0 ]] || tick=60
        word='' value=''
        read -r -t "$tick" -u "$bell" word value
        case $word in
            pid)
                pid=$value
                [[ $cancelled -eq 0 ]] || stop_step ask
                ;;
            exit) code=$value ;;
            cancel)
                cancelled=1
                [[ -z $pid ]] || stop_step ask
                ;;
            term) launcher_term=1 ;;
        esac
        [[ -z $code && -n $pid ]] || continue
        limit=$(seconds)
        if [[ $stop_at -ne 0 ]]; then
            [[ $limit -lt $stop_at ]] || stop_step force
            continue
        fi
        if [[ $started != true && $start_limit -ne 0 ]]; then
            read_app
            if [[ $started != true && $((limit - begun)) -ge $start_limit ]]; then
                start_timed_out=1
                stop_step ask
            fi
        fi
        if [[ $time_limit -ne 0 && $((limit - begun)) -ge $time_limit ]]; then
            timed_out=1
            stop_step ask
        fi
    done
    # What the command left running on this machine is not part of its result, nor of the next one's measurement.
    [[ $scheduler != local ]] || kill -KILL -- "-$pid" 2>/dev/null
    read_app
    write_result "$code"
}

# --- the launcher ----------------------------------------------------------------------------------------------

declare -A request=() # fields of the request that was claimed last; a subshell keeps those of its own
declare -A running=() # attempt name -> process id of its subshell
waiting=()            # claimed by nobody yet, in the order of the queue
dropped=()            # workspaces that nobody needs any more
seen=0                # lines of the queue that were read
closing='' spare='' spare_of='' spare_pid='' last_base=''

# claim NAME: exactly one of the launcher and a client that takes its request back gets the rename.
claim() { mv "$generation/attempts/$1/request" "$generation/attempts/$1/request.claimed" 2>/dev/null; }

start_attempt() {
    local dir=$generation/attempts/$1 base with='' need
    claim "$1" || return 0
    event "$1" claimed
    read_request
    need=${request[time_limit]}
    if [[ -n $job_end && $(($(seconds) + need + end_margin)) -ge $job_end ]]; then
        # The client takes it to the next allocation; nothing of it has run.
        mv "$dir/request.claimed" "$dir/request.refused" && event "$1" refused
        return 0
    fi
    stop_spare
    base_of "${request[snapshot]}"
    if [[ -n $spare && $spare_of == "$base" ]]; then with=$spare spare=''; fi
    last_base=$base
    ( trap - USR1; run_attempt "$1" "$with"; printf 'done %s\n' "$1" >&"$launcher_bell" ) &
    running[$1]=$!
}

# The tree of the last base is unpacked again while nothing runs, so that the next edit only has to be laid over it.
# It is dropped the moment work comes: nothing of ours may run beside a measurement.
begin_spare() {
    [[ -n $last_base && -z $spare && -z $spare_pid && ${#running[@]} -eq 0 ]] || return 0
    rm -rf "$generation/spare"
    ( trap - USR1; trap 'exit 1' TERM; mkdir "$generation/spare" && extract "$snapshots/$last_base/full.tar.zst" "$generation/spare" && mv "$generation/spare" "$generation/spare.ready"; printf 'spare\n' >&"$launcher_bell" ) 2>/dev/null &
    spare_pid=$! spare_of=$last_base
}

stop_spare() {
    [[ -n $spare_pid ]] || return 0
    kill "$spare_pid" 2>/dev/null
    wait "$spare_pid" 2>/dev/null
    spare_pid=''
    [[ ! -d $generation/spare.ready ]] || spare=$generation/spare.ready
}

read_queue() {
    local lines line
    mapfile -t -s "$seen" lines <"$generation/queue"
    for line in "${lines[@]}"; do
        seen=$((seen + 1))
        [[ $line =~ ^(run|cancel|drop)\ [0-9a-f]{32}\.[0-9]{1,4}$ || $line == close ]] || {
            say "ignored a line of the queue that is not ours: ${line:0:80}"
            continue
        }
        case $line in
            run\ *) waiting+=("${line#run }") ;;
            cancel\ *) [[ -z ${running[${line#cancel }]-} ]] || kill -USR2 "${running[${line#cancel }]}" ;;
            drop\ *) dropped+=("${line#drop }") ;;
            close) closing=released ;;
        esac
        last_work=$(seconds)
    done
}

# An attempt whose subshell died without a word (killed, out of memory) still gets its record.
settle_lost() {
    local name
    for name in "${!running[@]}"; do
        kill -0 "${running[$name]}" 2>/dev/null && continue
        [[ -f $generation/attempts/$name/result.json ]] || (
            dir=$generation/attempts/$name cancelled=0 timed_out=0 start_timed_out=0 launcher_term=0 launch_error=launcher
            read_request && tasks=${request[tasks]} && read_app && write_result ''
        )
        unset "running[$name]"
    done
}

# The whole batch step is told to end: at the time limit, by preemption, by scancel.
terminate() {
    local attempt
    closing=terminated
    printf 'wake\n' >&"$launcher_bell"
    for attempt in "${running[@]}"; do kill -TERM "$attempt"; done
}

launcher_main() {
    local word name
    exec {launcher_bell}<> <(:)
    trap 'printf "wake\n" >&"$launcher_bell"' USR1
    trap terminate TERM
    if [[ $restarts -ne 0 ]]; then
        # A second life of the same job would run the same requests again.
        write_state "closed requeued"
        say "this job was requeued; nothing is run in its second life"
        exit 3
    fi
    if ! mkdir "$generation/launcher.claim" 2>/dev/null; then
        say "another job already serves $generation"
        exit 4
    fi
    if [[ $scheduler == slurm && -z $job_end ]]; then
        job_end=$(SLURM_TIME_FORMAT=%s squeue -h -j "$job" -o %e)
        [[ $job_end =~ ^[0-9]+$ ]] || job_end=''
    fi
    last_work=$(seconds)
    write_state "ready ${job:-$$} $(hostname) $last_work ${job_end:-0}"
    say "ready"
    while :; do
        printf '%s\n' "$(seconds)" >"$generation/heartbeat"
        read_queue
        settle_lost
        for name in "${waiting[@]}"; do
            [[ $closing == terminated ]] || start_attempt "$name"
        done
        waiting=()
        if [[ ${#running[@]} -gt 0 ]]; then
            last_work=$(seconds)
        else
            [[ -z $closing ]] || break
            [[ $(($(seconds) - last_work)) -lt $idle_limit ]] || { closing=idle && break; }
            for name in "${dropped[@]}"; do rm -rf "${generation:?}/attempts/$name/workspace"; done
            dropped=()
            begin_spare
        fi
        word='' name=''
        read -r -t "$poll" -u "$launcher_bell" word name
        case $word in
            done) unset "running[$name]" ;; # or it is gone already: `settle_lost` may have been first
            spare) stop_spare ;;
        esac
    done
    # A client that queued at this very moment sees `closed` and takes its request back, or we see the request here.
    write_state "closed $closing"
    read_queue
    for name in "${waiting[@]}"; do
        claim "$name" && mv "$generation/attempts/$name/request.claimed" "$generation/attempts/$name/request.refused" && event "$name" refused
    done
    stop_spare
    rm -rf "$generation/spare" "$generation/spare.ready"
    say "closed: $closing"
}

launcher_main
