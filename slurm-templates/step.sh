#!/bin/sh
# The first process of a step, inside the container if there is one: says that the command started, runs it, and
# writes down how it ended. Usage: run STEP_DIR WORKSPACE COMMAND... It needs a POSIX shell and nothing else.

# Only bash can give back to a child what every shell takes from a background process: SIGINT and SIGQUIT.
if [ -z "${BASH_VERSION-}" ] && command -v bash >/dev/null 2>&1; then
    exec bash --noprofile --norc "$0" "$@"
fi

step=$1
cd "$2" || exit 125 # the directory that srun was given need not exist in the container
shift 2
log="$step/app.${SLURM_PROCID:-0}"
now() { if [ -n "${EPOCHREALTIME-}" ]; then printf %s "$EPOCHREALTIME"; else date +%s 2>/dev/null || printf 0; fi; }

# Values of --env, some of them secrets: never in an argument list, and gone before the command starts.
# With several tasks each has to read the file, and the client removes it in the end.
# shellcheck source=/dev/null
[ ! -f "$step/env" ] || . "$step/env"
[ "${SLURM_NTASKS:-1}" != 1 ] || rm -f "$step/env"

cpus=
while read -r key value; do
    [ "$key" != Cpus_allowed_list: ] || cpus=$value
done 2>/dev/null </proc/self/status
printf 'started %s %s %s\ngpus %s\ncpus %s\n' "${SLURM_STEP_ID:-0}" "${SLURMD_NODENAME:-$(hostname 2>/dev/null)}" "$(now)" \
    "${ROCR_VISIBLE_DEVICES:-${CUDA_VISIBLE_DEVICES:-}}" "$cpus" >>"$log"

# What the shell itself has to say of its child goes to a file of its own: that is how death by a signal is told from an
# exit code above 128.
words="$step/shell.${SLURM_PROCID:-0}"
exec 3>&2 2>"$words"
# Slurm signals this process alone; the command and what it started have to hear of it too.
trap 'printf "term %s\n" "$(now)" >>"$log"; trap "" TERM; kill -TERM 0' TERM
(
    trap - INT QUIT TERM
    exec "$@"
) 2>&3 3>&- &
child=$!
while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
done
exec 2>&3 3>&-

how="exit"
case $code in
    126 | 127) command -v "$1" >/dev/null 2>&1 && [ "$code" = 127 ] || how=missing ;;
    *) [ "$code" -le 128 ] || [ ! -s "$words" ] || how=signal ;;
esac
printf 'ended %s %s %s\n' "$code" "$how" "$(now)" >>"$log"
exit "$code"
