#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles all of liblonghaul as plain C11 without a build system, and the example
# in longhaul.h.
set -eu
cd "$(dirname "$0")/.."
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
# The only generated file: the pages as C arrays.
report=src/report/page
scripts=$(sed -n "s/^ *\(input: \[\)*'/'/p" $report/meson.build |
    grep -o "[a-z]*\.js" | sed "s|^|$report/|" | paste -s -d : -)
python3 tools/embed.py "$temp/report_page.c" \
    "lhi_report_page_html=$report/report.html" \
    "lhi_report_page_css=$report/report.css" \
    "lhi_report_page_js=$scripts" \
    lhi_report_page_wasm= \
    "lhi_optical_page_html=src/network/optical/optical.html" \
    "lhi_optical_page_css=$report/report.css:src/network/optical/optical.css"
cc=${CC:-cc}
sed -n 's/^ \*     //p' include/longhaul.h >"$temp/example.c"
# Each object is named after its path: several files have the same name.
export cc temp
{
    find src -name '*.c'
    echo "$temp/report_page.c"
    echo "$temp/example.c"
} | xargs -P "$(nproc)" -n 8 sh -c 'for source; do
    object=$temp/$(echo "$source" | tr / _).o
    $cc -std=c11 -Iinclude -Isrc -DLONGHAUL_VERSION="\"plain\"" \
        -c "$source" -o "$object" || exit 255
done' compile
$cc "$temp"/*.o -o "$temp/example" -lyaml -ljansson -lz -lm
"$temp/example" examples/tiny-llama-cpu.yaml | grep -q '^plan: .* on 4 GPUs$'
