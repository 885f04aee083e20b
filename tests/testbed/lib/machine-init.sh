#!/bin/bash
# First process of one machine, in fresh network, UTS, IPC, mount and PID namespaces. It builds the machine's root
# (programs from the host, read-only; everything else its own or the bed's), moves into it and becomes init.
set -euo pipefail
bed=$1 machine=$2 role=$3 hostname=$4

# /proc is still the host's here, so this is the number under which the host knows us.
read -r stat </proc/self/stat
pid=${stat%% *}
rest=${stat##*) }
# shellcheck disable=SC2206
fields=($rest)
read -r boot </proc/sys/kernel/random/boot_id
exec 3>"$bed/run/$machine.ready"

hostname "$hostname"
root=$bed/run/root
mount -t tmpfs -o mode=755 root "$root"
cd "$root"
mkdir usr etc dev proc sys tmp run var root mnt opt .old
chmod 1777 tmp
chmod 700 root
for dir in bin sbin lib lib32 lib64 libx32; do
    if [[ -L /$dir ]]; then
        cp -P "/$dir" "$dir"
    elif [[ -d /$dir ]]; then
        mkdir "$dir"
        mount --bind "/$dir" "$dir"
        mount -o remount,bind,ro "$dir"
    fi
done
mount --bind /usr usr
mount -o remount,bind,ro usr
mount --bind "$bed/etc" etc
mount --rbind /sys sys
mount -t proc -o nosuid,nodev,noexec proc proc

mkdir -p dev/pts dev/shm dev/net
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr

mkdir -p var/log var/lib var/cache var/tmp var/spool/slurmd var/spool/slurmctld var/lib/mysql run/lock run/sshd run/munge run/slurm run/mysqld
ln -s /run var/run
chmod 1777 var/tmp run/lock
chown munge:munge run/munge
chown slurm:slurm run/slurm
chown mysql:mysql run/mysqld
mount --bind "$bed/log/$machine" var/log

case $role in
    jump)
        # Its own, empty home; no shared file system and no Slurm here.
        mkdir -p users/operator users/neighbor
        chown 20001:20000 users/operator
        chown 20002:20000 users/neighbor
        chmod 700 users/operator users/neighbor
        mount --bind "$bed/machines/ela/hosts" etc/hosts
        mount -t tmpfs -o mode=755,size=4k none etc/slurm
        ;;
    controller)
        mount --bind "$bed/mysql" var/lib/mysql
        mount --bind "$bed/slurmctld" var/spool/slurmctld
        ;;
    login | node)
        mkdir users capstor
        mount --bind "$bed/fs/users" users
        mount --rbind "$bed/fs/capstor" capstor
        ;;
esac
if [[ $role == jump || $role == login ]]; then
    mount --bind "$bed/machines/$machine/ssh" etc/ssh
fi
if [[ $role == node ]]; then
    for gpu in 0 1 2 3; do
        mknod -m 666 "dev/gpu$gpu" c 1 3
    done
fi
cp "$bed/bin/init" .init

pivot_root . .old
cd /
umount -l /.old
rmdir /.old
ip link set lo up
printf '%s %s %s\n' "$pid" "${fields[19]}" "$boot" >&3
exec 3>&-
exec /.init "$machine of $bed" </dev/null >/dev/null 2>&1
