# The login-node side of one client connection. A client starts `bash --noprofile --norc -s`, sends this text, then
# requests; it ends with the connection. It keeps nothing of its own: all it knows is on the shared file system.
#
# The client sets before this text: nonce (marks our lines among whatever a login shell prints), root (absolute, or a
# path that begins with a variable of the login environment), scheduler (slurm or local).
#
# Requests, one a line, in words without blanks; LEN bytes of payload follow the line:
#   run ID LEN                      evaluates the payload, a call of a function below; answers `done`
#   put ID FILE OFFSET LEN          the payload becomes the part of incoming/FILE at OFFSET; answers `done`
#   unpack ID DIR LEN               the payload, a tar, becomes incoming/DIR; answers `done`
#   fetch ID GENERATION NAME LEN OFFSET COUNT  the payload is a path: answers `bytes` with a part of that artifact
#   follow GENERATION NAME EVENTS OUT ERR      reports an attempt until its end, from these offsets on
#   unfollow NAME
# Answers, each a line `@NONCE WORD ...`, some followed by bytes:
#   hello 1 USER UID HOST ROOT      or: refused CODE LEN + words
#   done ID CODE OUT_LEN ERR_LEN    + stdout + stderr
#   bytes ID LEN                    + bytes
#   state NAME WORDS                the launcher's state line, when it changed
#   event NAME FILE WORDS           a new line of the attempt's events (by the launcher) or app.0 (by the step)
#   data NAME STREAM OFFSET LEN     + bytes
#   end NAME LEN LEN                + result.json + the end of what srun had to say; nothing follows for this attempt

# shellcheck disable=SC2154 # nonce, root and scheduler are set by the client; the arrays are used through their names
# shellcheck disable=SC2034
set -u
umask 077
export LC_ALL=C
for name in "${!SLURM_@}" "${!SBATCH_@}" "${!SRUN_@}" "${!SALLOC_@}" "${!SQUEUE_@}" "${!SACCT_@}" "${!SINFO_@}" "${!SCANCEL_@}"; do
    [[ $name == SLURM_CONF ]] || unset "$name"
done
export SLURM_TIME_FORMAT=%s
errors=$(mktemp "${TMPDIR:-/tmp}/vibesys.XXXXXX") || errors=/dev/null
trap '[[ $errors == /dev/null ]] || rm -f "$errors"' EXIT

answer() { printf '@%s %s\n' "$nonce" "$*"; }

# Codes of the functions below that mean something to the client.
readonly missing_snapshot=20 generation_closed=21 generation_missing=22 claimed_already=23

# --- what `run` may call ---------------------------------------------------------------------------------------

# The login environment is asked only for a variable that this shell does not have: it can be slow.
resolve_root() {
    local variable value
    if [[ $root == \$* ]]; then
        variable=${root%%/*} && variable=${variable#\$}
        value=${!variable-}
        [[ -n $value ]] || value=$(bash -lc 'printf "\n%s" "${!0}"' "$variable" </dev/null | tail -n 1)
        [[ $value == /* ]] || { echo "\$$variable is not set in the login environment" >&2 && return 1; }
        root=$value${root#"\$$variable"}
    fi
    [[ -d $root/incoming ]] || mkdir -p "$root/snapshots" "$root/leases" "$root/incoming"
}

has_snapshot() { [[ -f $root/snapshots/$1/complete ]]; }

# publish_full ID FILE SIZE, publish_delta ID BASE ARCHIVE SIZE REMOVED: a staged snapshot appears by rename, whole.
publish_full() {
    local into=$root/incoming/$1.$$
    has_size "$2" "$3" && mkdir "$into" && mv "$root/incoming/$2" "$into/full.tar.zst" && publish "$1" "$into"
}
publish_delta() {
    local into=$root/incoming/$1.$$
    has_snapshot "$2" || return "$missing_snapshot"
    has_size "$3" "$4" && mkdir "$into" && mv "$root/incoming/$3" "$into/delta.tar.zst" &&
        mv "$root/incoming/$5" "$into/removed" && printf '%s\n' "$2" >"$into/base" && publish "$1" "$into"
}
has_size() {
    local size
    size=$(stat -c %s "$root/incoming/$1") && [[ $size == "$2" ]] || { echo "$size bytes of $2 arrived" >&2 && return 1; }
}
publish() {
    : >"$2/complete"
    # Somebody else may have staged the same content meanwhile; either copy is right.
    mv -T "$2" "$root/snapshots/$1" 2>/dev/null || { has_snapshot "$1" && rm -rf "$2"; }
}

# open_generation LEASE/SEQ LAUNCHER: the directory of one allocation, complete before a job is submitted for it.
open_generation() {
    local generation=$root/leases/$1
    mkdir -p "$generation/attempts" && mv "$root/incoming/$2" "$generation/launcher.sh" && : >>"$generation/queue" &&
        : >>"$generation/heartbeat" && { [[ -s $generation/state ]] || printf 'waiting\n' >"$generation/state"; }
}

# submit LEASE/SEQ IDLE_LIMIT SBATCH-OPTION...
submit() {
    local generation=$root/leases/$1 idle=$2
    shift 2
    if [[ $scheduler == local ]]; then
        setsid bash "$generation/launcher.sh" "$generation" "$root/snapshots" local "$idle" </dev/null >>"$generation/launcher.out" 2>&1 &
        printf '%s\n' "$!"
    else
        sbatch --parsable --output="$generation/launcher.out" --open-mode=append "$@" \
            "$generation/launcher.sh" "$generation" "$root/snapshots" slurm "$idle"
    fi
}

wake() {
    local state word job
    IFS= read -r state <"$root/leases/$1/state" || return
    read -r word job _ <<<"$state"
    # Before the launcher said `ready` the signal would end it, and it reads the queue by itself when it starts.
    [[ $word == ready ]] || return 0
    if [[ $scheduler == local ]]; then kill -USR1 "$job"; else scancel --batch --signal=USR1 "$job"; fi
}

# enqueue LEASE/SEQ NAME SNAPSHOT UNPACKED: the request becomes visible, is announced, and the launcher woken.
enqueue() {
    local generation=$root/leases/$1 state=''
    has_snapshot "$3" || return "$missing_snapshot"
    IFS= read -r state <"$generation/state" || return "$generation_missing"
    [[ $state != closed* ]] || return "$generation_closed"
    if [[ -d $generation/attempts/$2 ]]; then
        rm -rf "${root:?}/incoming/$4" # sent again after a lost connection; the first is the one that counts
    else
        mv -T "$root/incoming/$4" "$generation/attempts/$2" || return 1
    fi
    printf 'run %s\n' "$2" >>"$generation/queue" || return 1
    IFS= read -r state <"$generation/state"
    if [[ $state == closed* ]]; then withdraw "$1" "$2" && return "$generation_closed"; fi
    wake "$1" >/dev/null 2>&1 &
}

# withdraw LEASE/SEQ NAME: takes a request back if the launcher has not claimed it; the rename decides.
withdraw() { mv "$root/leases/$1/attempts/$2/request" "$root/leases/$1/attempts/$2/request.withdrawn" 2>/dev/null || return "$claimed_already"; }

# tell LEASE/SEQ WORDS...: a line for the launcher.
tell() {
    local generation=$root/leases/$1
    [[ -f $generation/queue ]] || return "$generation_missing"
    printf '%s\n' "${*:2}" >>"$generation/queue" && wake "$1"
}

# send_list LEASE/SEQ NAME: the launcher's list of artifacts as hex, since it has NUL bytes.
send_list() { od -An -v -tx1 <"$root/leases/$1/attempts/$2/artifacts"; }

# --- requests --------------------------------------------------------------------------------------------------

# finish ID CODE STDOUT: what went to stderr is in $errors.
finish() {
    local err=''
    IFS= read -r -d '' err <"$errors"
    answer "done $1 $2 ${#3} ${#err}"
    printf '%s%s' "$3" "$err"
}

request_run() {
    local script out code
    IFS= read -r -N "$2" script
    # The dot keeps the newlines at the end, which a substitution would drop.
    out=$(eval "$script" </dev/null 2>"$errors"; code=$?; printf .; exit "$code")
    code=$?
    finish "$1" "$code" "${out%.}"
}

# The payload is read to its end whatever becomes of it, so that the next request is found where it begins.
request_put() {
    head -c "$4" | { dd of="$root/incoming/$2" bs=1M seek="$3" oflag=seek_bytes conv=notrunc iflag=fullblock status=none; code=$?; cat >/dev/null; exit "$code"; } 2>"$errors"
    finish "$1" "$?" ''
}

request_unpack() {
    head -c "$3" | { mkdir "$root/incoming/$2" && tar -x -f - -C "$root/incoming/$2"; code=$?; cat >/dev/null; exit "$code"; } 2>"$errors"
    finish "$1" "$?" ''
}

# slice FILE OFFSET LEN: exactly LEN bytes, filled up with zeros should the file have shrunk: the reader counts on it.
slice() { { dd if="$1" bs=1M iflag=skip_bytes,count_bytes,fullblock skip="$2" count="$3" status=none; cat /dev/zero; } 2>/dev/null | head -c "$3"; }

request_fetch() {
    local tree path real
    IFS= read -r -N "$4" path
    # A link in the way would let a candidate have any file of this account sent home.
    if tree=$(cd "$root/leases/$2/attempts/$3/workspace" && pwd -P) && real=$(realpath -e -- "$tree/$path") && [[ $real == "$tree/$path" && -f $real ]]; then
        answer "bytes $1 $6"
        slice "$real" "$5" "$6"
    else
        answer "bytes $1 0"
    fi 2>/dev/null
}

# --- following attempts ----------------------------------------------------------------------------------------

declare -A follow_dir=() follow_state=() events_seen=() app_seen=() sent=() size=() content=() whole=()
readonly small=16384 block=1048576
sized_at=0

request_follow() {
    follow_dir[$2]=$root/leases/$1 follow_state[$2]='' events_seen[$2]=$3 app_seen[$2]=0
    sent[$2/stdout]=$4 sent[$2/stderr]=$5 whole[$2/stdout]=1 whole[$2/stderr]=1
    active_at=$(tenths)
}

request_unfollow() { unset "follow_dir[$1]"; }

tenths() { local t=${EPOCHREALTIME-$SECONDS.0}; t=${t/,/.}; printf '%s' "${t%.*}${t:$((${#t} - ${#t#*.})):1}"; }

# look_small NAME/STREAM FILE: nothing is started to read a small file without NUL bytes.
look_small() {
    local text=''
    [[ -f $2 ]] || return # the attempt is not here (yet): nothing to report
    if IFS= read -r -d '' -n $((small + 1)) text <"$2"; then
        whole[$1]=0 # a NUL byte, or more than we take this way
    else
        content[$1]=$text size[$1]=${#text}
    fi
}

# send NAME STREAM FILE: whatever is there and was not sent, at most a block.
send() {
    local key=$1/$2 from length
    from=${sent[$key]} length=$((${size[$key]-0} - ${sent[$key]}))
    [[ $length -gt 0 ]] || return 0
    [[ $length -le $block ]] || { length=$block more=1; }
    answer "data $1 $2 $from $length"
    if [[ ${whole[$key]} -eq 1 ]]; then printf %s "${content[$key]:from:length}"; else slice "$3" "$from" "$length"; fi
    sent[$key]=$((from + length)) active=1
}

# send_lines NAME FILE SEEN-ARRAY
send_lines() {
    local lines line
    local -n lines_seen=$3
    mapfile -s "${lines_seen[$1]}" lines 2>/dev/null <"${follow_dir[$1]}/attempts/$1/$2" || return
    for line in "${lines[@]}"; do
        [[ $line == *$'\n' ]] || break # still being written
        line=${line%$'\n'}
        answer "event $1 ${2##*/} $line"
        lines_seen[$1]=$((${lines_seen[$1]} + 1)) active=1
        case $2/$line in events/ended\ *) ended=1 ;; events/refused\ *) ended=2 ;; esac
    done
}

# A look at one attempt. Every file is opened anew: that is when a shared file system shows what others wrote.
look() {
    local name=$1 dir=${follow_dir[$1]}/attempts/$1 state='' ended=0 stream result=''
    if IFS= read -r state 2>/dev/null <"${follow_dir[$1]}/state" && [[ $state != "${follow_state[$1]}" ]]; then
        follow_state[$1]=$state active=1
        answer "state $name $state"
    fi
    send_lines "$name" events events_seen
    send_lines "$name" step/app.0 app_seen
    for stream in stdout stderr; do
        [[ ${whole[$name/$stream]} -eq 0 ]] || look_small "$name/$stream" "$dir/$stream"
        if [[ ${whole[$name/$stream]} -eq 0 && ($ended -ne 0 || $sizing -eq 1) ]]; then
            size[$name/$stream]=$(stat -c %s "$dir/$stream") || size[$name/$stream]=0
        fi
        send "$name" "$stream" "$dir/$stream"
        while [[ $ended -ne 0 && ${sent[$name/$stream]} -lt ${size[$name/$stream]-0} ]]; do send "$name" "$stream" "$dir/$stream"; done
    done
    [[ $ended -ne 0 ]] || return 0
    local said=''
    IFS= read -r -d '' result 2>/dev/null <"$dir/result.json"
    [[ ! -s $dir/launch.err ]] || said=$(tail -c 4096 "$dir/launch.err")
    answer "end $name ${#result} ${#said}"
    printf '%s%s' "$result" "$said"
    request_unfollow "$name"
}

# --- the loop --------------------------------------------------------------------------------------------------

serve() {
    local line='' part word a b c d e f code wait more active sizing quiet
    active_at=$(tenths)
    while :; do
        if [[ ${#follow_dir[@]} -eq 0 ]]; then
            IFS= read -r part
            code=$?
        else
            # The wait grows with the silence, so that looking costs a run a few percent at the most and a login node next to nothing.
            IFS= read -r -t "$wait" part
            code=$?
        fi
        line+=$part
        if [[ $code -eq 0 ]]; then
            read -r word a b c d e f <<<"$line"
            line=''
            case $word in
                run) request_run "$a" "$b" ;;
                put) request_put "$a" "$b" "$c" "$d" ;;
                unpack) request_unpack "$a" "$b" "$c" ;;
                fetch) request_fetch "$a" "$b" "$c" "$d" "$e" "$f" ;;
                follow) request_follow "$a" "$b" "$c" "$d" "$e" ;;
                unfollow) request_unfollow "$a" ;;
            esac
            wait=0.002
            continue
        elif [[ $code -le 128 ]]; then
            return # the connection is gone
        fi
        more=0 active=0 sizing=0
        now=$(tenths)
        if [[ $((now - sized_at)) -ge 2 ]]; then sizing=1 sized_at=$now; fi
        for a in "${!follow_dir[@]}"; do look "$a"; done
        [[ $active -eq 0 ]] || active_at=$now
        quiet=$((now - active_at))
        if [[ $more -eq 1 ]]; then wait=0.001
        elif [[ $quiet -lt 10 ]]; then wait=0.01
        elif [[ $quiet -lt 50 ]]; then wait=0.05
        elif [[ $quiet -lt 600 ]]; then wait=0.2
        else wait=0.5
        fi
    done
}

if words=$(resolve_root 2>&1); then
    resolve_root
    printf '\n' # whatever a login shell printed may not have ended its line
    answer "hello 1 $(id -un) $UID ${HOSTNAME:-unknown} $root"
    serve
else
    printf '\n'
    answer "refused $? ${#words}"
    printf %s "$words"
fi
