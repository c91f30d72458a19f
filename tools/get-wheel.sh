#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a virtual environment in which longhaul is installed from a wheel of this
# folder, as `pip install .` does it, with what the tests of it use: from PyPI.
# The wheel is left in FOLDER/wheel. The compiler has little to optimise, which
# takes half the time.
#
#     tools/get-wheel.sh FOLDER
set -eu
folder=$1
cd "$(dirname "$0")/.."
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
pip() {
    "$folder/bin/python" -m pip --quiet --no-input --disable-pip-version-check \
        --retries 1 --timeout 30 "$@"
}
rm -rf "$folder/wheel"
pip wheel --no-deps --wheel-dir "$folder/wheel" \
    --config-settings=setup-args=-Doptimization=1 \
    --config-settings=build-dir="$folder/build" .
pip install cffi==2.1.1
pip install --no-deps --force-reinstall "$folder"/wheel/*.whl
pip install auditwheel==6.8.2 ruff==0.17.6 'pyright[nodejs]==1.1.414' ||
    echo 'no auditwheel, ruff or pyright: what needs them will be skipped' >&2
pip install pandas tqdm ||
    echo 'no pandas or tqdm: what needs them will be skipped' >&2
pip install nbclient==0.11.0 ipykernel==7.4.0 pdoc==16.0.0 ||
    echo 'no nbclient, ipykernel or pdoc: notebooks and reference skip' >&2
"$folder/bin/python" -c 'import longhaul'
