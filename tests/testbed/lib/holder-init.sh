#!/bin/bash
# First process of the bed's holder: a network namespace with the two bridges, and a mount namespace with the scratch
# file system in it. Machines are started from inside this mount namespace, so the host sees none of it, and all of
# it is gone when this one process is.
set -euo pipefail
bed=$1 scratch_size=$2 scratch_inodes=$3

read -r stat </proc/self/stat
pid=${stat%% *}
rest=${stat##*) }
# shellcheck disable=SC2206
fields=($rest)
read -r boot </proc/sys/kernel/random/boot_id

ip -batch - <<'END'
link set lo up
link add edge type bridge
link add hsn type bridge
link set edge up
link set hsn up
END
mount -t tmpfs -o "mode=755,size=$scratch_size,nr_inodes=$scratch_inodes" vibesys-scratch "$bed/fs/capstor/scratch"
# The limit can come down to what is there but not to nothing, which would mean no limit.
head -c 4096 /dev/zero >"$bed/fs/capstor/scratch/.quota"
mkdir -p "$bed/fs/capstor/scratch/cscs/operator" "$bed/fs/capstor/scratch/cscs/neighbor"
chown 20001:20000 "$bed/fs/capstor/scratch/cscs/operator"
chown 20002:20000 "$bed/fs/capstor/scratch/cscs/neighbor"
chmod 700 "$bed/fs/capstor/scratch/cscs/"*

printf '%s %s %s\n' "$pid" "${fields[19]}" "$boot" >"$bed/run/holder.pid"
exec "$bed/bin/init" "holder of $bed"
