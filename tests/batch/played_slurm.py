#!/usr/bin/env python3
"""A Slurm that is played: one script under the names of Slurm's commands, with its jobs in a file beside it.

Tests write what it answers. Each call is a line in the file `calls`. Real clusters are in `tests/slurm`.
"""

import json
import os
import sys
from pathlib import Path

HERE = Path(os.environ["PLAYED_SLURM"])
PARTITIONS = "main*|4|8000|(null)|1:00:00|10|up\nlong|8|16000|gpu:2|infinite|2|up\n"


def jobs():
    path = HERE / "jobs.json"
    return json.loads(path.read_text()) if path.exists() else []


def save(found):
    (HERE / "jobs.json").write_text(json.dumps(found))


def names():
    return next((word[7:].split(",") for word in sys.argv if word.startswith("--name=")), [])


def sbatch():
    found = jobs()
    name = next(word[11:] for word in sys.argv if word.startswith("--job-name="))
    job_id = str(100 + len(found))
    found.append({"id": job_id, "name": name, "state": "PENDING", "restart": 0, "options": sys.argv[1:]})
    save(found)
    (HERE / f"{name}.sh").write_text(sys.stdin.read())
    print(job_id)


def squeue():
    for job in jobs():
        if job["name"] in names() and not job.get("purged"):
            print(
                f"{job['id']}|{job['name']}|{job['state']}|None|{job['restart']}|0|n1|pond|{job.get('left', '59:30')}|"
            )


def sacct():
    path = HERE / "sacct.txt"
    if not path.exists():
        sys.exit("Slurm accounting storage is disabled")
    for line in path.read_text().splitlines():
        print(line)


def scancel():
    found = jobs()
    for job in found:
        if job["id"] in sys.argv[1:] and job["state"] in ("PENDING", "RUNNING"):
            job["state"] = "CANCELLED"
    save(found)


def sinfo():
    path = HERE / "sinfo.txt"
    print(path.read_text() if path.exists() else PARTITIONS, end="")


def scontrol():
    print("ClusterName             = pond")


if __name__ == "__main__":
    with (HERE / "calls").open("a") as file:
        file.write(" ".join([Path(sys.argv[0]).name, *sys.argv[1:]]) + "\n")
    if (HERE / "away").exists():
        sys.exit("Unable to contact slurm controller (connect failure)")
    globals()[Path(sys.argv[0]).name]()
