#!/bin/sh
# Makes benchmarks/.venv-absurd with Absurd's client and its `absurdctl`, apart from Buoy's own environment.
# Running it again changes nothing. Environment: PYTHON, the interpreter.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
venv="$here/.venv-absurd"

if ! "$venv/bin/python" -c 'import absurd_sdk, absurdctl' >/dev/null 2>&1; then
    "${PYTHON:-python3}" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check absurd-sdk absurdctl
fi
"$venv/bin/python" -c 'from importlib.metadata import version; print("absurd-sdk", version("absurd-sdk"))'
