"""The first process of a virtual node: starts slurmd and reaps all that it leaves, so that none stays a zombie.

`python node_init.py NAME HOSTS`, as process 1 of its own PID namespace: when it is killed the kernel kills everything
on the node at once, as a power cut does. HOSTS takes the place of /etc/hosts: the node's name gets an address.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys


def main(name: str, hosts: str) -> None:
    assert os.getpid() == 1, "a node needs a PID namespace of its own"
    # Each node is another host to what runs there.
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    socket.sethostname(name)
    subprocess.Popen(["slurmd", "-D", "-N", name], stdin=subprocess.DEVNULL)
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
