# shellcheck shell=bash disable=SC2034
# Slurm: its configuration, its accounts, its daemons.

# Slurm limits memory and tracks processes by cgroups. Its v2 plugin wants systemd, so only v1 is used; without it
# everything but OUT_OF_MEMORY still works. VIBESYS_BED_CGROUP=none tries that out.
detect_cgroups() {
    CGROUPS=none
    if [[ ${VIBESYS_BED_CGROUP:-} == none ]]; then
        return
    fi
    local probe=/sys/fs/cgroup/memory/vibesys-probe-$BASHPID
    if [[ -e /sys/fs/cgroup/freezer/release_agent && -e /sys/fs/cgroup/memory/release_agent ]] &&
        mkdir "$probe" 2>/dev/null; then
        rmdir "$probe"
        CGROUPS=v1
    fi
}

node_cgroups() { # print this bed's cgroup directories, the deepest first
    local n dir
    for n in "${NODES[@]}"; do
        for dir in /sys/fs/cgroup/*/"slurm_$(hostname_of "$n")"; do
            [[ ! -d $dir ]] || find "$dir" -depth -type d
        done
    done
}

cgroups_in_use() {
    local dir
    while read -r dir; do
        [[ -z $(<"$dir/cgroup.procs") ]] || return 0
    done < <(node_cgroups)
    return 1
}

remove_cgroups() {
    local dir
    while read -r dir; do
        rmdir "$dir" 2>/dev/null || true
    done < <(node_cgroups)
    [[ -z $(node_cgroups) ]]
}

write_slurm_conf() {
    local etc=$BED/etc/slurm names proctrack task n
    mkdir -p "$etc/plugstack.conf.d"
    names=$(printf '%s,' "${NODES[@]/#/$NODE_PREFIX}")
    names=${names%,}
    if [[ $CGROUPS == v1 ]]; then
        proctrack=proctrack/cgroup task=task/cgroup
    else
        proctrack=proctrack/linuxproc task=task/none
    fi
    {
        cat <<END
ClusterName=alps
SlurmctldHost=slurmctl(10.77.2.2)
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
SlurmctldParameters=enable_configless
PlugStackConfig=/etc/slurm/plugstack.conf
MpiDefault=none
SwitchType=switch/none
ProctrackType=$proctrack
TaskPlugin=$task
PrologFlags=Contain
SlurmdParameters=config_overrides
ReturnToService=2

SlurmctldTimeout=30
SlurmdTimeout=15
InactiveLimit=0
KillWait=5
UnkillableStepTimeout=60
OverTimeLimit=0
MinJobAge=60
BatchStartTimeout=10
MessageTimeout=10
TCPTimeout=2
CompleteWait=0

SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=5,bf_continue,preempt_youngest_first
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PriorityType=priority/multifactor
PriorityWeightQOS=1000
PreemptType=preempt/qos
PreemptMode=CANCEL
GresTypes=gpu
DefMemPerNode=1000

JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=slurmctl
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment,job_script,job_env

NodeName=DEFAULT Sockets=4 CoresPerSocket=24 ThreadsPerCore=2 CPUs=192 RealMemory=512000 Gres=gpu:4
END
        for n in "${NODES[@]}"; do
            echo "NodeName=$(hostname_of "$n") NodeAddr=10.77.2.$((10 + 10#${n#nid}))"
        done
        echo "PartitionName=mi300 Default=YES Nodes=$names OverSubscribe=EXCLUSIVE MaxTime=24:00:00 DefaultTime=01:00:00"
        echo "PartitionName=debug Nodes=$names OverSubscribe=NO MaxTime=00:30:00 DefaultTime=00:10:00"
        echo "PartitionName=short Nodes=$names OverSubscribe=EXCLUSIVE MaxTime=00:02:00 DefaultTime=00:01:00"
    } | sed '/^SlurmctldParameters/d' >"$etc/slurm.conf"
    cat >"$etc/cgroup.conf" <<END
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainCores=no
ConstrainDevices=no
ConstrainRAMSpace=yes
AllowedRAMSpace=100
MinRAMSpace=10
END
    {
        echo "AutoDetect=off"
        echo "NodeName=$names Name=gpu File=/dev/gpu[0-3] Flags=amd_gpu_env"
    } >"$etc/gres.conf"
    cat >"$etc/slurmdbd.conf" <<END
AuthType=auth/munge
DbdHost=slurmctl
SlurmUser=slurm
PidFile=/run/slurm/slurmdbd.pid
LogFile=/var/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
CommitDelay=0
END
    sed -i '/^CommitDelay/d' "$etc/slurmdbd.conf"
    chown slurm: "$etc/slurmdbd.conf"
    chmod 600 "$etc/slurmdbd.conf"
    echo "include /etc/slurm/plugstack.conf.d/*.conf" >"$etc/plugstack.conf"
    echo "required /etc/slurm/spank/spank_pyxis.so" >"$etc/plugstack.conf.d/pyxis.conf"
}

MARIADB=(
    --no-defaults --user=mysql --datadir=/var/lib/mysql --socket=/run/mysqld/mysqld.sock --pid-file=/run/mysqld/mysqld.pid
    --skip-networking --skip-name-resolve --innodb-buffer-pool-size=128M --innodb-log-file-size=32M
    --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 --innodb-flush-method=nosync
    --skip-log-bin --max-allowed-packet=64M
)

start_munge() { # MACHINE
    on "$1" install -d -o munge -g munge -m 700 /var/log/munge /var/lib/munge
    on "$1" setpriv --reuid munge --regid munge --clear-groups \
        munged --num-threads=4 --key-file=/etc/munge/munge.key --pid-file=/run/munge/munged.pid
}

start_mariadb() {
    chown mysql: "$BED/mysql"
    if [[ ! -d $BED/mysql/mysql ]]; then
        on slurmctl mariadb-install-db --no-defaults --user=mysql --datadir=/var/lib/mysql --skip-test-db \
            --auth-root-authentication-method=socket >"$BED/log/slurmctl/mariadb-install.log" 2>&1 ||
            die "the database could not be made (see $BED/log/slurmctl/mariadb-install.log)"
    fi
    cat >"$BED/etc/mysql-init.sql" <<'END'
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';
END
    daemon_on slurmctl /var/log/mariadb.log mariadbd "${MARIADB[@]}" --init-file=/etc/mysql-init.sql
    wait_for 20 on slurmctl test -S /run/mysqld/mysqld.sock ||
        die "MariaDB did not start (see $BED/log/slurmctl/mariadb.log)"
}

start_slurmdbd() {
    on slurmctl setpriv --reuid slurm --regid slurm --clear-groups slurmdbd
    wait_for 30 port_open 10.77.2.2 6819 || die "slurmdbd did not start (see $BED/log/slurmctl/slurmdbd.log)"
}

port_open() { # ADDRESS PORT, seen from slurmctl
    # shellcheck disable=SC2016
    on slurmctl bash -c 'exec 3<>"/dev/tcp/$1/$2"' bash "$1" "$2" 2>/dev/null
}

# Cluster, accounts, users and QOS: in the database before slurmctld first asks for them.
make_accounts() {
    [[ ! -e $BED/mysql/.accounts ]] || return 0
    on slurmctl bash -euo pipefail -s >"$BED/log/slurmctl/sacctmgr.log" 2>&1 <<'END' ||
add() { sacctmgr -iQ add "$@"; }
add cluster alps
add qos low set Priority=1 PreemptMode=cancel GraceTime=5
add qos spot set Priority=1 PreemptMode=cancel GraceTime=0
add qos high set Priority=1000 Preempt=low,spot
add qos tiny set Priority=10 MaxWall=00:05:00 MaxJobsPerUser=1 MaxTRESPerJob=node=1
add account csstaff,lp99,notmine cluster=alps
add user operator account=csstaff,lp99 defaultaccount=csstaff cluster=alps
add user neighbor account=notmine cluster=alps
sacctmgr -iQ modify user operator,neighbor set qos=normal,high,low,spot,tiny defaultqos=normal
END
        die "the accounts could not be made (see $BED/log/slurmctl/sacctmgr.log)"
    touch "$BED/mysql/.accounts"
}

start_slurmctld() {
    on slurmctl setpriv --reuid slurm --regid slurm --clear-groups slurmctld
    wait_for 15 port_open 10.77.2.2 6817 || die "slurmctld did not start (see $BED/log/slurmctl/slurmctld.log)"
}

start_slurmd() { # NODE
    on "$1" slurmd -N "$(hostname_of "$1")"
}

start_controller() {
    start_munge slurmctl
    start_mariadb
    start_slurmdbd
    make_accounts
    start_slurmctld
}

# Everything that belongs on one machine.
start_services() { # MACHINE
    case $(role_of "$1") in
        jump) start_sshd ela ;;
        login) start_munge beverin; start_sshd beverin ;;
        controller) start_controller ;;
        node) start_munge "$1"; start_slurmd "$1" ;;
    esac
}

node_state() { on slurmctl timeout 10 sinfo -h -N -n "$(hostname_of "$1")" -p debug -o %T 2>/dev/null; }

# True when Slurm could start a job on the node now, or has.
node_ready() { # NODE
    case $(node_state "$1") in
        idle | mixed | allocated) return 0 ;;
        *) return 1 ;;
    esac
}

# The same; a node that was left down or drained from before is taken back.
node_recovered() { # NODE
    node_ready "$1" && return 0
    case $(node_state "$1") in
        down | drained | draining | drng)
            on slurmctl scontrol update "NodeName=$(hostname_of "$1")" State=resume 2>/dev/null || true ;;
    esac
    return 1
}

# True when the controller knows about every node that is running, one way or another.
nodes_heard_from() {
    local n
    for n in "${NODES[@]}"; do
        pid_on "$n" /run/slurm/slurmd.pid >/dev/null 2>&1 || continue
        case $(node_state "$n") in
            '' | unk* | *'*') return 1 ;;
        esac
    done
}
