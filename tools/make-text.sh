#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes a small training text: the licence (Apache License 2.0, whose text may be
# copied) and the project's documents.
#
#     tools/make-text.sh FILE
set -eu
out=$(realpath -m "$1")
cd "$(dirname "$0")/.."
find docs -name '*.md' | LC_ALL=C sort | xargs cat LICENSE README.md >"$out.new"
mv "$out.new" "$out"
