"""A private, throw-away Slurm cluster on loopback: munge, slurmctld, a few virtual nodes, and accounting if wanted.

Invariants: everything lies in one short folder, and every process is a child that `stop` ends. Clients choose the
cluster by `SLURM_CONF` alone, so several clusters can live side by side. A node has its own PID namespace and its own
host name: to what runs there it is another machine.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.free_ports import free_ports
from tests.patience import PATIENCE_S, wait_until
from tests.slurm import accounting

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "srun", *accounting.PROGRAMS)
PACKAGES = "slurmctld slurmd slurm-client munge slurmdbd mariadb-server-core mariadb-client-core"
_INIT = Path(__file__).with_name("node_init.py")
_SBIN = "/usr/sbin:/sbin"

_CONFIGURATION = """\
ClusterName=pond
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin={tasks}
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
{accounting}
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
PriorityType=priority/basic
MinJobAge={age}
KillWait=1
CompleteWait=0
SlurmdTimeout=300
SlurmctldTimeout=60
TCPTimeout=2
MessageTimeout=12
ReturnToService=2
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=60 PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=spot Nodes=ALL MaxTime=60 PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName=high Nodes=ALL MaxTime=60 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=long Nodes=ALL MaxTime=INFINITE PriorityTier=1 State=UP
"""

_NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"
_LIMITS = """\
CgroupMountpoint={folder}/groups
ConstrainRAMSpace=yes
MinRAMSpace=8
"""


def missing() -> list[str]:
    """The programs of Slurm that this machine does not have."""
    return [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:{_SBIN}") is None]


class Cluster:
    """One cluster. `age_s`: how long the controller remembers a job that ended.

    `accounted`: with slurmdbd. `limited`: with limits of memory, where this machine has control groups for them.
    """

    def __init__(
        self,
        nodes: int = 2,
        cpus: int = 4,
        memory_mb: int = 4000,
        age_s: int = 300,
        *,
        accounted: bool = False,
        limited: bool = False,
    ) -> None:
        # Paths of sockets are short.
        self.folder = Path(tempfile.mkdtemp(prefix="pond-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        self.env |= {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": f"{os.environ['PATH']}:{_SBIN}"}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        controller, daemon, database, *ports = free_ports(3 + nodes)
        self._accounting = accounting.Accounting(self.folder, "pond", daemon, database) if accounted else None
        self._group = self._control_group() if limited else None
        lines = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={cpus} "
            f"RealMemory={memory_mb} State=UNKNOWN"
            for name, port in zip(self.nodes, ports, strict=True)
        ]
        text = _CONFIGURATION.format(
            folder=self.folder,
            controller=controller,
            user=getpass.getuser(),
            age=age_s,
            nodes="\n".join(lines),
            tasks="task/none" if self._group is None else "task/cgroup",
            accounting=self._accounting.settings if self._accounting else _NO_ACCOUNTING,
        )
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "state").mkdir()
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost {' '.join(self.nodes)}\n")

    def _control_group(self) -> Path | None:
        """A control group below our own, so that what limits us limits the jobs, too."""
        own = accounting.limits_memory()
        if own is None:
            return None
        made = own / self.folder.name
        made.mkdir()
        (self.folder / "groups").mkdir()
        (self.folder / "groups" / "memory").symlink_to(made)
        return made

    @property
    def limits_memory(self) -> bool:
        """Whether Slurm itself ends jobs that take more memory than they asked for."""
        return self._group is not None

    def start(self) -> Cluster:
        """Returns when every node is idle."""
        # Slurm loads a plugin for control groups even if nothing uses it.
        groups = "" if self._group is None else _LIMITS.format(folder=self.folder)
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\n{groups}")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        place = str(self.folder / "munge")
        self._spawn("munged", "munged", "--foreground", f"--socket={place}.sock", f"--key-file={key}",
                    f"--log-file={place}.log", f"--pid-file={place}.pid", f"--seed-file={place}.seed",
                    "--num-threads=2")  # fmt: skip
        wait_until((self.folder / "munge.sock").exists, "munged")
        if self._accounting is not None:
            self._accounting.start(self._spawn, self.env)
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)
        wait_until(self._all_idle, "idle nodes")
        return self

    def start_controller(self) -> None:
        self._spawn("slurmctld", "slurmctld", "-D")
        wait_until(lambda: self.run("scontrol", "ping", check=False).returncode == 0, "slurmctld")

    def stop_controller(self, kind: signal.Signals = signal.SIGTERM) -> None:
        self._end("slurmctld", kind)

    def start_node(self, name: str) -> None:
        user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
        self._spawn(name, "unshare", *user, "--pid", "--uts", "--fork", "--mount-proc", "--kill-child=KILL",
                    sys.executable, str(_INIT), name, str(self.folder / "hosts"))  # fmt: skip

    def cut_power(self, name: str) -> None:
        """Everything on that node is killed at once. The controller hears nothing."""
        # `unshare` ends when its child and everything in the namespace of that child has ended.
        os.kill(self._first_process(name), signal.SIGKILL)
        self._end(name, signal.SIGTERM)

    def kill_on(self, name: str, pid: int) -> None:
        """Kills a process, by the number that it has on that node."""
        place = f"--target={self._first_process(name)}"
        self.run("nsenter", place, "--pid", "--mount", "kill", "-KILL", str(pid))

    def _first_process(self, name: str) -> int:
        process = self._running[name]
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(children.read_text, f"the first process of {name}")
        return int(children.read_text().split()[0])

    def crash_node(self, name: str) -> None:
        """A power cut. The controller hears of it at once."""
        self.cut_power(name)
        self.run("scontrol", "update", f"nodename={name}", "state=down", "reason=crash")

    def repair_node(self, name: str) -> None:
        self.start_node(name)
        self.run("scontrol", "update", f"nodename={name}", "state=resume")
        wait_until(lambda: self._node_state(name) in ("idle", "mixed", "allocated"), f"node {name}")

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(words, env=self.env, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def state(self, job_id: int | str) -> str:
        """The state of a job, in Slurm's word; empty if the controller does not know it."""
        found = self.run("squeue", "-h", "-t", "all", "-o", "%T", "-j", str(job_id), check=False)
        return found.stdout.strip()

    def stop(self) -> None:
        """Ends every process, nodes with all their jobs first, and removes the folder."""
        for name in self.nodes:
            if name in self._running:
                self.cut_power(name)
        self._end("slurmctld", signal.SIGTERM)
        for name in accounting.Accounting.names:
            self._end(name, signal.SIGKILL)
        self._end("munged", signal.SIGTERM)
        for path in sorted(self._group.rglob("*/"), reverse=True) if self._group else []:
            path.rmdir()
        if self._group is not None:
            self._group.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)

    def logs(self) -> str:
        """The last lines of every log."""
        found = sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")])
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-500:]}" for path in found)

    def close_nodes(self) -> None:
        """No job starts until `open_nodes`."""
        self.run("scontrol", "update", f"nodename={','.join(self.nodes)}", "state=drain", "reason=closed")

    def open_nodes(self) -> None:
        """Returns when jobs can start on every node. A controller that has just started may not know them yet."""
        usable = ("idle", "mixed", "allocated")

        def are_open() -> bool:
            closed = [name for name in self.nodes if self._node_state(name) not in usable]
            if closed:
                self.run("scontrol", "update", f"nodename={','.join(closed)}", "state=resume", check=False)
            return not closed

        wait_until(are_open, "open nodes")

    def resume_drained(self) -> None:
        """Slurm drains a node that got a job with an id that runs there already."""
        for name in self.nodes:
            if self._node_state(name).startswith("drain"):
                self.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)

    def _all_idle(self) -> bool:
        return [self._node_state(name) for name in self.nodes] == ["idle"] * len(self.nodes)

    def _node_state(self, name: str) -> str:
        return self.run("sinfo", "-h", "-p", "main", "-n", name, "-o", "%T", check=False).stdout.strip()

    def _spawn(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            # None of them survives this process, even if it is killed.
            words = ("setpriv", "--pdeathsig", "KILL", *words)
            self._running[name] = subprocess.Popen(
                words, env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip

    def _end(self, name: str, kind: signal.Signals) -> None:
        process = self._running.pop(name, None)
        if process is None:
            return
        process.send_signal(kind)
        try:
            process.wait(PATIENCE_S / 5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE_S)


if __name__ == "__main__":
    made = Cluster(3, accounted=True, limited=True).start()
    print(f"export SLURM_CONF={made.env['SLURM_CONF']}", flush=True)
    try:
        time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0)
    finally:
        made.stop()
