#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes a small text to train on: the project's licence (Apache License 2.0, text
# by the Apache Software Foundation, which may be copied) and its own documents.
#
#     tools/make-text.sh FILE
set -eu
out=$(realpath -m "$1")
cd "$(dirname "$0")/.."
find docs -name '*.md' | LC_ALL=C sort | xargs cat LICENSE README.md >"$out.new"
mv "$out.new" "$out"
