#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a virtual environment with torch for the CPU, from PyPI. Its wheels for
# x86-64 want gigabytes of CUDA, which stay away: see torch-without-cuda.py.
# Downloads about half a gigabyte the first time, nothing later.
#
#     tools/get-torch.sh FOLDER
set -eu
folder=$1
here=$(dirname "$0")
version=2.15.0
if [ -x "$folder/bin/python" ] &&
    "$folder/bin/python" -c 'import torch.distributed.pipelining' 2>/dev/null
then
    exit 0
fi
rm -rf "$folder"
python3 -m venv "$folder"
pip="$folder/bin/python -m pip install --quiet --no-input
    --disable-pip-version-check --no-cache-dir --retries 1 --timeout 30"
$pip --no-deps "torch==$version"
$pip filelock typing-extensions sympy networkx jinja2 fsspec numpy packaging
# For its parser of pipeline layouts alone; the rest of it is not used.
$pip --no-deps megatron-core==0.16.1
# For the tests that load our checkpoints and tokenizers there; they skip without.
$pip transformers tokenizers safetensors ||
    echo 'no transformers: the tests that need it will be skipped' >&2
python3 "$here/torch-without-cuda.py" "$folder/bin/python"
"$folder/bin/python" -c 'import torch.distributed.pipelining'
