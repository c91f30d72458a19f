#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a virtual environment with longhaul installed from a wheel of this folder,
# like `pip install --no-compile .`, and the tests' dependencies from PyPI. The wheel remains in
# FOLDER/wheel. The compiler's options are those of test.sh's build-gcc, and the
# objects are built one folder below this one: with ccache nothing is compiled
# twice.
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
set --
for option in buildtype=debugoptimized optimization=2 debug=false \
    b_ndebug=false werror=true; do
    set -- "$@" "--config-settings=setup-args=-D$option"
done
pip wheel --no-deps --wheel-dir "$folder/wheel" "$@" \
    --config-settings=build-dir="$folder-objects" .
pip install --no-compile cffi==2.1.1
pip install --no-compile --no-deps --force-reinstall "$folder"/wheel/*.whl
pip install --no-compile auditwheel==6.8.2 ruff==0.17.6 'pyright[nodejs]==1.1.414' ||
    echo 'auditwheel, ruff or pyright is missing: their tests will be skipped' >&2
pip install --no-compile pandas tqdm ||
    echo 'pandas or tqdm is missing: their tests will be skipped' >&2
pip install --no-compile nbclient==0.11.0 ipykernel==7.4.0 pdoc==16.0.0 ||
    echo 'nbclient, ipykernel or pdoc is missing: their tests will be skipped' >&2
"$folder/bin/python" -c 'import longhaul'
