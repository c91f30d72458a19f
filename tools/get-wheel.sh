#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a virtual environment with longhaul installed from a wheel of this folder,
# like `pip install .`, and the tests' dependencies from PyPI. The wheel remains in
# FOLDER/wheel. A low optimisation level halves the build time.
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
    echo 'auditwheel, ruff or pyright is missing: their tests will be skipped' >&2
pip install pandas tqdm ||
    echo 'pandas or tqdm is missing: their tests will be skipped' >&2
pip install nbclient==0.11.0 ipykernel==7.4.0 pdoc==16.0.0 ||
    echo 'nbclient, ipykernel or pdoc is missing: their tests will be skipped' >&2
"$folder/bin/python" -c 'import longhaul'
