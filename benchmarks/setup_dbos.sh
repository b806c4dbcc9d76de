#!/bin/sh
# Makes benchmarks/.venv-dbos with DBOS Transact in it, apart from Buoy's own environment so
# that neither's dependencies touch the other's. Running it again changes nothing.
# Usage: setup_dbos.sh [REQUIREMENT]   (default: dbos)   Environment: PYTHON, the interpreter.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
venv="$here/.venv-dbos"
requirement=${1:-dbos}

if ! "$venv/bin/python" -c 'import dbos' >/dev/null 2>&1; then
    "${PYTHON:-python3}" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$requirement"
fi
"$venv/bin/python" -c 'from importlib.metadata import version; print("dbos", version("dbos"))'
