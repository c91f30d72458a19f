#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a virtual environment with torch for the CPU, from PyPI. Its x86-64 wheels
# depend on gigabytes of CUDA, which torch-without-cuda.py replaces by stubs.
# Downloads about half a gigabyte the first time, nothing later. Modules are
# compiled when a test first imports them: most never are.
#
#     tools/get-torch.sh FOLDER
set -eu
folder=$1
here=$(dirname "$0")
version=2.15.0
pip="$folder/bin/python -m pip install --quiet --no-input
    --disable-pip-version-check --no-cache-dir --no-compile --retries 1
    --timeout 30"

has() { [ -x "$folder/bin/python" ] && "$folder/bin/python" -c "import $1"; }

# torchtitan, for its configuration and its split of models. Stubs replace data
# sets, plots and triton: tests/peers/stand_ins.py.
get_torchtitan() {
    has 'importlib.metadata as m; [m.version(n) for n in
    ("torchtitan", "spmd_types", "tyro", "docstring-parser", "typeguard")]' \
        2>/dev/null ||
        $pip --no-deps torchtitan==0.3.0 spmd_types==0.2.3 tyro \
            docstring-parser typeguard ||
        echo 'torchtitan is not installed: its test will be skipped' >&2
}

if has 'torch.distributed.pipelining, einops' 2>/dev/null; then
    get_torchtitan
    exit 0
fi
rm -rf "$folder"
python3 -m venv "$folder"
$pip --no-deps "torch==$version"
$pip filelock typing-extensions sympy networkx jinja2 fsspec numpy packaging
# megatron-core, for its parser of pipeline layouts, its process groups (the
# hierarchical ones use einops) and its schedules.
$pip --no-deps megatron-core==0.16.1 einops
# For the tests that load our checkpoints and tokenizers; skipped without these.
$pip transformers tokenizers safetensors ||
    echo 'transformers is not installed: its tests will be skipped' >&2
get_torchtitan
# test.sh installs the compiler meanwhile.
for _ in $(seq 300); do
    if command -v cc && command -v readelf; then
        break
    fi >/dev/null
    sleep 1
done
python3 "$here/torch-without-cuda.py" "$folder/bin/python"
"$folder/bin/python" -c 'import torch.distributed.pipelining'
