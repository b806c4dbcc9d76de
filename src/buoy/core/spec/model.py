"""Spec: a workflow as data. The model of a spec file after it was read, and the form in which it is stored.

Invariants: a `Spec` was read whole and is sound by itself; its stored form is normalised JSON, so that layout, comments
and the order of keys change neither it nor its hash. Templates stay as they were written: they are filled in when a run
is planned (`core.spec.plan`), since parameters may be given at the start of each run.
Absent on purpose: files and YAML (`engine.spec.source`), functions (`engine.spec.functions`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Container
from typing import Literal, TypeAlias

import msgspec

from buoy.core.log.cluster_changes import ActionKind, Trigger
from buoy.core.log.questions import Kind, Question
from buoy.errors import CorruptLog

# Where something is in a spec: keys of maps and places in lists, from the top.
Place: TypeAlias = tuple[str | int, ...]
Recovery: TypeAlias = Literal["resume", "restart", "fail", "hold"]
Combine: TypeAlias = Literal["product", "zip"]
OnFailure: TypeAlias = Literal["hold", "fail"]
Scalar: TypeAlias = "bool | int | float | str"

SPEC_PREFIX = "spec:"
# What a runner says that it knows when it takes the runs of any spec.
ANY_SPEC = "spec:*"
# The folder that paths and commands count from. Every spec has it; it is set when a run is started.
DIRECTORY = "directory"


class Parameter(msgspec.Struct, frozen=True, array_like=True):
    """A name and the values that it runs through; `plain`: written as one value, not as a list or range."""

    name: str
    values: tuple[Scalar, ...]
    plain: bool = False


class Resources(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step needs to run. Read and checked here, used where work is placed on machines."""

    cpus: int = 1
    memory_bytes: int | None = None
    gpus: int = 0
    nodes: int = 1
    time_s: float | None = None


class Ask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question to a person; title, options and detail are templates."""

    title: str
    kind: Kind = "text"
    options: tuple[str, ...] = ()
    schema: dict[str, object] | None = None
    detail: str | None = None


def question_of(ask: Ask, title: str, options: tuple[str, ...], detail: str | None) -> Question:
    """The question with its templates filled in."""
    return Question(title, ask.kind, options, ask.schema, detail)


class Action(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a module, or a step without modules, does: one of call, run and ask."""

    id: str
    call: str | None = None
    run: str | None = None
    ask: Ask | None = None
    given: dict[str, object] = msgspec.field(default_factory=dict, name="with")
    retries: int = 0
    backoff_s: float = 1.0
    timeout_s: float | None = None


class Module(Action, frozen=True, omit_defaults=True, kw_only=True):
    """An ordered part of a step."""


class SpecStep(Action, frozen=True, omit_defaults=True, kw_only=True):
    """One entry of `steps`. Its id may be a template: then it stands for several steps."""

    needs: tuple[str, ...] | None = None
    modules: tuple[Module, ...] = ()
    when: str | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    resources: Resources | None = None
    supports_termination: bool = False
    # Of jobs of batch runs: exit codes after which a retry makes sense (none: after any), a command that runs before a
    # retry, and whether the job is cancelled when one that it needs fails.
    retry_on: tuple[int, ...] = ()
    before_retry: str | None = None
    cancel_with_needs: bool = False
    # How much of its output the log of a job keeps; None: as much as is usual.
    log_max_bytes: int | None = None

    @property
    def actions(self) -> tuple[Action, ...]:
        """What it does, in order."""
        return self.modules or (self,)


class SpecAction(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is done once for a batch run when its trigger holds. `jobs`: names as in `needs`; empty: all jobs."""

    trigger: Trigger
    kind: ActionKind
    jobs: tuple[str, ...] = ()
    # Of run_commands: for /bin/sh, one after the other.
    commands: tuple[str, ...] = ()
    timeout_s: float = 3_600.0
    # Of schedule_nodes. None: as the jobs and the cluster have it.
    allocations: int | None = None
    walltime_s: float | None = None
    account: str | None = None
    partition: str | None = None


class Spec(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A whole workflow."""

    name: str
    steps: tuple[SpecStep, ...]
    # Of this stored form. A Buoy that does not know it refuses the spec instead of misreading it.
    format: int = 1
    recovery: Recovery = "resume"
    queue: str = "default"
    max_parallel: int | None = None
    parameters: tuple[Parameter, ...] = ()
    combine: Combine = "product"
    result: object = None
    # Of batch runs: whether a job that failed finally rests until it is reset, or ends the run.
    on_failure: OnFailure = "hold"
    # Of batch runs: what is done on the way, by the command that looks after the run.
    actions: tuple[SpecAction, ...] = ()

    @property
    def workflow(self) -> str:
        """The name under which its runs are known."""
        return SPEC_PREFIX + self.name

    def calls(self) -> set[str]:
        """The functions that it needs."""
        return {action.call for step in self.steps for action in step.actions if action.call is not None}

    def has_commands(self) -> bool:
        """Whether it needs a shell."""
        return any(action.run is not None for step in self.steps for action in step.actions)


_FORMAT = 1


def stored_form(spec: Spec) -> bytes:
    """The normalised JSON of a spec."""
    return msgspec.json.encode(spec, order="deterministic")


def spec_hash(stored: bytes) -> str:
    """The name of a definition: its content. 128 bits, since two of one name would run the wrong one."""
    return hashlib.sha256(stored).hexdigest()[:32]


def from_stored(stored: bytes, version: str) -> Spec:
    """The spec of a stored definition, or a refusal if it is not what its hash says."""
    if spec_hash(stored) != version:
        raise CorruptLog(f"definition {version} is damaged: its content has another hash")
    try:
        spec = msgspec.json.decode(stored, type=Spec)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptLog(f"definition {version} cannot be read: {error}") from error
    if spec.format > _FORMAT:
        raise CorruptLog(f"definition {version} has format {spec.format}, this Buoy knows {_FORMAT}: upgrade it")
    return spec


def knows(workflows: Container[str], workflow: str) -> bool:
    """Whether a runner that knows these can drive runs of that workflow."""
    return workflow in workflows or (is_spec(workflow) and ANY_SPEC in workflows)


def is_spec(workflow: str) -> bool:
    """Whether runs under this name are driven by a stored spec, and not by code."""
    return workflow.startswith(SPEC_PREFIX)
