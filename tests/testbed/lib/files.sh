# shellcheck shell=bash disable=SC2034
# The bed's directory: programs built here, the machines' /etc, homes, example environments.

# By content, not by time: another checkout may have an older file that says something else.
build_one() { # SOURCE TARGET FLAGS...
    local source=$1 target=$2 sum
    shift 2
    sum=$(sha256sum <"$source")
    [[ ! -e $target || $sum != "$(cat "$target.source" 2>/dev/null)" ]] || return 0
    gcc -O2 -Wall -Wextra "$@" -o "$target.new" "$source"
    mv "$target.new" "$target"
    echo "$sum" >"$target.source"
}

build_programs() {
    mkdir -p "$BED/bin"
    build_one "$HERE/src/init.c" "$BED/bin/init"
    build_one "$HERE/src/way-in.c" "$BED/bin/way-in"
    # The Slurm version is compiled in, so another Slurm needs another build.
    local spank
    spank=$BED/bin/spank_pyxis-$(dpkg-query -W -f='${Version}' libslurm-dev | tr -c 'A-Za-z0-9.' _).so
    build_one "$HERE/spank/edf.c" "$spank" -shared -fPIC
    mkdir -p "$BED/etc/slurm/spank"
    cp -p "$spank" "$BED/etc/slurm/spank/spank_pyxis.so.new"
    mv "$BED/etc/slurm/spank/spank_pyxis.so.new" "$BED/etc/slurm/spank/spank_pyxis.so"
}

# The machines' /etc is a copy of the host's without its secrets, plus the cluster's users.
make_etc() {
    local etc=$BED/etc
    mkdir -p "$etc"
    rsync -a --delete --exclude='/shadow*' --exclude='/gshadow*' --exclude='/sudoers*' --exclude='/ssh/' --exclude='/ssl/private' \
        --exclude='/munge/' --exclude='/slurm/' --exclude='/apt/' --exclude='/mysql-init.sql' --exclude='/.pwd.lock' \
        --exclude='/bash.bashrc' --exclude='/resolv.conf' /etc/ "$etc/"
    mkdir -p "$etc/munge" "$etc/slurm" "$etc/ssh"
    cat >>"$etc/passwd" <<END
operator:*:$OPERATOR_UID:$USERS_GID:the operator:/users/operator:/bin/bash
neighbor:*:$NEIGHBOR_UID:$USERS_GID:another user:/users/neighbor:/bin/bash
END
    echo "csstaff:x:$USERS_GID:" >>"$etc/group"
    hosts_file hsn >"$etc/hosts"
    mkdir -p "$BED/machines/ela"
    hosts_file edge >"$BED/machines/ela/hosts"
    : >"$etc/resolv.conf"
    : >"$etc/motd"
    # Both kinds of shell see where scratch is: login shells by the first file, `ssh HOST COMMAND` by ~/.bashrc.
    mkdir -p "$etc/profile.d"
    cat >"$etc/profile.d/site.sh" <<END
if [ -d "$SCRATCH_ROOT/\$(id -un)" ]; then
    export SCRATCH="$SCRATCH_ROOT/\$(id -un)"
fi
export CLUSTER_NAME=alps
END
    if [[ ! -e $etc/munge/munge.key ]]; then
        head -c 1024 /dev/urandom >"$etc/munge/munge.key"
    fi
    chown -R munge: "$etc/munge"
    chmod 700 "$etc/munge"
    chmod 400 "$etc/munge/munge.key"
}

make_homes() {
    local user uid home
    mkdir -p "$BED/fs/users" "$BED/fs/capstor/scratch" "$BED/fs/capstor/store/images"
    for user in operator neighbor; do
        uid=$OPERATOR_UID
        [[ $user == operator ]] || uid=$NEIGHBOR_UID
        home=$BED/fs/users/$user
        mkdir -p "$home/.edf"
        cat >"$home/.bashrc" <<'END'
. /etc/profile.d/site.sh
case $- in
    *i*) ;;
    *) return ;;
esac
PS1='\u@\h:\w\$ '
END
        echo '. ~/.bashrc' >"$home/.profile"
        [[ $user != operator ]] || make_edfs "$home/.edf"
        chown "$uid:$USERS_GID" "$home" "$home/.bashrc" "$home/.profile"
        chown -R "$uid:$USERS_GID" "$home/.edf"
        chmod 700 "$home"
    done
    make_image
}

make_edfs() { # DIRECTORY
    cat >"$1/plain.toml" <<'END'
# No image: the node's own files, with an environment of its own.
[env]
EDF_EXAMPLE = "plain"
END
    cat >"$1/image.toml" <<'END'
# A container from a root directory; it sees nothing of the node but what is mounted here.
image = "/capstor/store/images/busybox"
workdir = "/work"
mounts = [
    "/users:/users",
    "/capstor:/capstor",
]

[env]
EDF_EXAMPLE = "image"
END
    cat >"$1/broken.toml" <<'END'
# The image is not there, so no container can start.
image = "/capstor/store/images/none.sqsh"
END
}

# A small container image as a root directory.
make_image() {
    local image=$BED/fs/capstor/store/images/busybox new=$BED/fs/capstor/store/images/.new applet
    [[ ! -e $image ]] || return 0
    rm -rf "$new"
    mkdir -p "$new"/{usr/bin,usr/sbin,etc,tmp,work,proc,sys,dev,run,root,var/tmp}
    chmod 1777 "$new/tmp" "$new/work" "$new/var/tmp"
    ln -s usr/bin "$new/bin"
    ln -s usr/sbin "$new/sbin"
    cp /bin/busybox "$new/usr/bin/busybox"
    while read -r applet; do
        [[ $applet == busybox ]] || ln -s busybox "$new/usr/bin/$applet"
    done < <(/bin/busybox --list)
    printf 'root:x:0:0:root:/root:/bin/sh\noperator:x:%s:%s::/users/operator:/bin/sh\n' \
        "$OPERATOR_UID" "$USERS_GID" >"$new/etc/passwd"
    printf 'root:x:0:\ncsstaff:x:%s:\n' "$USERS_GID" >"$new/etc/group"
    printf 'NAME="vibesys test image"\nID=testimage\n' >"$new/etc/os-release"
    mv "$new" "$image"
}

make_directories() {
    mkdir -p "$BED" "$RUN/root" "$BED/log" "$BED/mysql" "$BED/slurmctld" "$BED/machines"
    chmod 755 "$BED_HOME" "$BED"
    chown slurm: "$BED/slurmctld"
    local m
    for m in "${MACHINES[@]}"; do
        mkdir -p "$BED/log/$m"
        # Daemons of several users write here.
        chmod 1777 "$BED/log/$m"
    done
}
