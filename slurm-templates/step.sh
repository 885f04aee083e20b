#!/bin/sh
# The first process of a step, inside the container if there is one: says that the command started, runs it, and
# writes down how it ended. Usage: run STEP_DIR WORKSPACE COMMAND... It needs a POSIX shell and nothing else.

step=$1
cd "$2" || exit 125 # the directory that srun was given need not exist in the container
shift 2
log="$step/app.${SLURM_PROCID:-0}"
case ${EPOCHREALTIME-} in
    *.*) now() { printf %s "$EPOCHREALTIME"; } ;;
    *) now() { date +%s 2>/dev/null || printf 0; } ;;
esac

# Values of --env, some of them secrets: never in an argument list, and gone before the command starts.
# With several tasks each reads the file, so the last thing to remove it is the client.
# shellcheck source=/dev/null
[ ! -f "$step/env" ] || . "$step/env"
[ "${SLURM_NTASKS:-1}" != 1 ] || rm -f "$step/env"

cpus=
while read -r key value; do
    [ "$key" != Cpus_allowed_list: ] || cpus=$value
done 2>/dev/null </proc/self/status
printf 'started %s %s %s\ngpus %s\ncpus %s\n' "${SLURM_STEP_ID:-0}" "${SLURMD_NODENAME:-$(hostname 2>/dev/null)}" "$(now)" \
    "${ROCR_VISIBLE_DEVICES:-${CUDA_VISIBLE_DEVICES:-}}" "$cpus" >>"$log"

# A signal to the step reaches the command by itself; this shell only has to live on and tell of it.
trap 'printf "term %s\n" "$(now)" >>"$log"' TERM

# What the shell itself has to say of the command (killed by a signal, not found) goes to a file of its own: that is
# how a signal is told from an exit code above 128, and a missing command from one that exits 127.
words="$step/shell.${SLURM_PROCID:-0}"
exec 3>&2 2>"$words"
"$@" 2>&3 3>&-
code=$?
exec 2>&3 3>&-

how=exit
if [ -s "$words" ]; then
    case $code in
        126 | 127) how=missing && cat "$words" >&2 ;;
        *) [ "$code" -le 128 ] || how=signal ;;
    esac
fi
printf 'ended %s %s %s\n' "$code" "$how" "$(now)" >>"$log"
exit "$code"
