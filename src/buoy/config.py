"""Configuration: what the environment and `buoy.toml` say. The only place that reads either.

    store = "sqlite:///runs.db"        # a relative path counts from the folder of this file
    stack = "billing"                  # only its runs are driven here; none: all stacks
    env = "test"                       # those of another env are never touched; none: the default env

    [worker]
    files = ["flows.py", "package.module"]
    calls = ["package"]                # modules whose functions specs may call

Invariants: an explicit option beats `BUOY_STORE` (`BUOY_STACK`, `BUOY_ENV`), which beats `buoy.toml`, which beats the
default: the nearest `.buoy/buoy.db`, here or in a parent folder. A file with a wrong key or type is refused whole: a
setting that is silently ignored is worse than none.
"""

from __future__ import annotations

import configparser
import getpass
import os
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from buoy.core.urls import shown_url
from buoy.errors import BadInput

FILE_NAME = "buoy.toml"
DEFAULT_STORE = "sqlite:///.buoy/buoy.db"
STORE_VARIABLE = "BUOY_STORE"
HOST_VARIABLE = "BUOY_HOST"
STACK_VARIABLE = "BUOY_STACK"
ENV_VARIABLE = "BUOY_ENV"
# As for the names of workflows and queues.
_NAME_CHARS_MAX = 128
COLOUR_VARIABLE = "NO_COLOR"
TRACE_VARIABLE = "BUOY_TRACE"


class WorkerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[worker]`: which workflow files `buoy worker` loads when none is named."""

    files: tuple[str, ...] = ()
    # Modules whose functions specs may call.
    calls: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole `buoy.toml`, with its paths made absolute."""

    store: str | None = None
    stack: str | None = None
    env: str | None = None
    worker: WorkerSettings = WorkerSettings()


def configured_store(chosen: str | None = None, start: Path | None = None) -> str:
    """The URL of the store to use: the one that was chosen, and be it empty, or what the configuration says."""
    found = chosen if chosen is not None else os.environ.get(STORE_VARIABLE) or load_settings(start).store or None
    return nearest_store(start or Path.cwd()) if found is None else _url(found)


def choose_store(url: str) -> None:
    """Makes this the configured store of this process, and of those that it starts."""
    os.environ[STORE_VARIABLE] = _url(url)


def nearest_store(start: Path) -> str:
    """The default store: the one that is there, here or in a parent folder; else the one that would be made here."""
    place = Path(DEFAULT_STORE.removeprefix("sqlite:///"))
    here = start.absolute()
    for folder in (here, *here.parents):
        if _is_there(folder / place):
            return DEFAULT_STORE if folder == here else f"sqlite:///{folder / place}"
    return DEFAULT_STORE


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # a folder above that this user may not look into


def configured_stack(start: Path | None = None) -> str | None:
    """The stack of this process; None: all stacks."""
    found = os.environ.get(STACK_VARIABLE) or load_settings(start).stack
    return _name(found, "stack") if found else None


def configured_env(start: Path | None = None) -> str | None:
    """In which env this process works; None: in the default one."""
    found = os.environ.get(ENV_VARIABLE) or load_settings(start).env
    return _name(found, "env") if found else None


def _name(text: str, what: str) -> str:
    """It is stored with every run, and must survive an export."""
    if len(text) > _NAME_CHARS_MAX or not text.isprintable():
        raise BadInput(
            f"the {what} {text[:60]!r} is not allowed: use at most {_NAME_CHARS_MAX} printable characters "
            f"(BUOY_{what.upper()}, or '{what}' in {FILE_NAME})"
        )
    return text


def _url(text: str) -> str:
    if not text.isprintable():
        raise BadInput(f"the store {shown_url(text)[:60]!r} is not allowed: use printable characters")
    return text


def load_settings(start: Path | None = None) -> Settings:
    """The settings of the nearest `buoy.toml`, here or in a parent folder; empty ones if there is none."""
    found = find_file(start or Path.cwd())
    return Settings() if found is None else read_settings(found)


def find_file(start: Path) -> Path | None:
    """The nearest `buoy.toml`."""
    start = start.absolute()
    return next((path for folder in (start, *start.parents) if (path := folder / FILE_NAME).is_file()), None)


def read_settings(path: Path) -> Settings:
    """That file's settings, or a refusal that names the file and the key."""
    try:
        plain = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not TOML: {error}; correct it") from error
    except RecursionError as error:
        raise BadInput(f"{path} cannot be read: too many lists or tables inside of each other; flatten it") from error
    try:
        found = msgspec.convert(plain, Settings)
    except msgspec.ValidationError as error:
        known = "store, stack and env (texts), worker.files and worker.calls (lists of texts)"
        raise BadInput(f"{path}: {error}; known keys: {known}") from error
    return _anchored(found, path.parent)


def _anchored(settings: Settings, folder: Path) -> Settings:
    """A path in a file means the same wherever the command is given."""
    store = settings.store and _anchored_store(settings.store, folder)
    files = tuple(_anchored_file(each, folder) for each in settings.worker.files)
    return Settings(store, settings.stack, settings.env, WorkerSettings(files, settings.worker.calls))


def _anchored_store(url: str, folder: Path) -> str:
    prefix, path = ("sqlite:///", url[10:]) if url.startswith("sqlite:///") else ("", url)
    if "://" in path or not path or Path(path).is_absolute():
        return url
    return f"{prefix}{folder / path}"


def _anchored_file(name: str, folder: Path) -> str:
    return str(folder / name) if name.endswith(".py") else name


def store_path(url: str) -> Path | None:
    """Where on this machine that store lies; None if its URL does not name such a place."""
    if url.startswith("sqlite:///"):
        return Path(url[10:])
    if url.startswith("file:///"):
        return Path(url[7:])
    return Path(url) if "://" not in url and url.endswith(".db") else None


def scope_variables() -> dict[str, str]:
    """What another process needs in its environment to belong where this one does; no more, and nothing secret."""
    found = {STACK_VARIABLE: configured_stack(), ENV_VARIABLE: configured_env(), HOST_VARIABLE: configured_host()}
    return {name: value for name, value in found.items() if value is not None}


def configured_host() -> str | None:
    """The name under which this process counts as a machine of its own, if it was given one.

    For containers with one host name and folders that several machines share: processes under the same name must see
    each other's locks and processes, those under different ones may not.
    """
    return os.environ.get(HOST_VARIABLE, "").strip() or None


def log_folder(name: str) -> Path:
    """Where the output of commands is kept: beside the store of that name, or here if the store is elsewhere."""
    place = store_path(name)
    if place is None:
        return Path(".buoy") / "logs"
    return place / "logs" if name.startswith("file:") else place.with_name(f"{place.name}-logs")


def scheduler_environment() -> dict[str, str]:
    """The environment for commands of a batch scheduler: without what would change the form of their answers."""
    shaping = ("SQUEUE_", "SACCT_", "SINFO_", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN", "SBATCH_")
    # A job gets the whole environment of sbatch. Its runners find store and token in a private file.
    secret = (TOKEN_VARIABLE, STORE_VARIABLE)
    wanted = ("SBATCH_ACCOUNT", "SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_RESERVATION", "SBATCH_CONSTRAINT")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in wanted or (name not in secret and not name.startswith(shaping))
    }
    return {**kept, "LC_ALL": "C"}


def allocation_variables() -> dict[str, str]:
    """What Slurm and the batch script of Buoy tell a process in an allocation about it."""
    return {name: value for name, value in os.environ.items() if name.startswith(("SLURM", "BUOY_ALLOCATION"))}


def trace_file() -> Path | None:
    """Where the calls of stores are noted, if anywhere."""
    return Path(found) if (found := os.environ.get(TRACE_VARIABLE)) else None


def colours_wanted() -> bool:
    """Whether a terminal gets colours; see no-color.org."""
    return not os.environ.get(COLOUR_VARIABLE)


def buoy_version() -> str:
    """The installed version of Buoy."""
    # Loaded only here: a list of runs needs no metadata of packages.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("buoy")
    except PackageNotFoundError:
        return "0"


def person() -> str:
    """The user who gives the commands, for the record; the best name that the system has."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown user"


def aws_setting(*names: str) -> str | None:
    """The first of these variables of AWS that is set, without the `AWS_` that all of them begin with."""
    return next((found for name in names if (found := os.environ.get(f"AWS_{name}", "").strip())), None)


def aws_profile(name: str | None) -> dict[str, str]:
    """What the files of AWS's own tools say about a profile: keys, region. Empty if there is none."""
    wanted = name or aws_setting("PROFILE") or "default"
    found: dict[str, str] = {}
    for variable, default, section in (
        ("CONFIG_FILE", "~/.aws/config", wanted if wanted == "default" else f"profile {wanted}"),
        ("SHARED_CREDENTIALS_FILE", "~/.aws/credentials", wanted),
    ):
        path = Path(aws_setting(variable) or default).expanduser()
        files = configparser.RawConfigParser()
        try:
            files.read(path)
        except (configparser.Error, UnicodeDecodeError) as error:
            # The error would show lines of the file, which holds keys.
            raise BadInput(f"{path} cannot be read: {type(error).__name__}; correct it") from None
        if files.has_section(section):
            found |= dict(files.items(section))
    if name and not found:
        raise BadInput(f"unknown profile {name!r}; add it to ~/.aws/credentials, or name another one")
    return found


TOKEN_VARIABLE = "BUOY_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE_VARIABLE = "BUOY_TOKEN_FILE"  # noqa: S105


def token_file(place: str) -> Path:
    """Where the token of a server of this user is kept. `place`: its host and port, or the path of its socket."""
    return _state_folder() / "tokens" / _file_name(place.replace("localhost:", "127.0.0.1:"))  # either names loopback


def is_server_url(url: str) -> bool:
    """Whether a URL of a store names a server of Buoy."""
    return url.partition(":")[0] in ("http", "https", "http+unix")


def spool_folder(name: str) -> Path:
    """Where runners of this user keep what the server of that name has not taken."""
    return _state_folder() / "spool" / _file_name(name)


def profile_folder() -> Path:
    """Where this user keeps profiles of clusters."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "buoy" / "profiles"


def _state_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "buoy"


def _file_name(text: str) -> str:
    return "".join(sign if sign.isalnum() or sign in ".-" else "_" for sign in text)


def server_token(url: str) -> str | None:
    """The token for a server: from the environment, from a file that it names, or that of a server of this user."""
    if found := os.environ.get(TOKEN_VARIABLE):
        return found.strip()
    named = os.environ.get(TOKEN_FILE_VARIABLE)
    place = urlsplit(url).netloc.rpartition("@")[2] or urlsplit(url).path
    if not named and not place.strip("."):
        return None  # no name of a server: the store says what is wrong with the URL
    path = Path(named) if named else token_file(place)
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        if named:
            raise BadInput(
                f"the token file {path} ({TOKEN_FILE_VARIABLE}) does not exist; create it, or correct the path"
            ) from None
        return None
    except OSError as error:
        raise BadInput(f"the token file {path} cannot be read: {error}") from error
