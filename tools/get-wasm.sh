#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Downloads the sources of libyaml and jansson, for the playground's planner in
# WebAssembly: Debian's, from the mirror of this machine's apt, verified by
# checksums. 230 KB the first time, nothing later. A new build then has `longhaul
# playground`.
#
#     tools/get-wasm.sh [FOLDER]      (default: build-wasm beside meson.build)
set -eu
folder=${1:-$(dirname "$0")/../build-wasm}
mkdir -p "$folder"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null |
    grep '/debian/*$' | head -n 1) || mirror=
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

download() {
    timeout 120 /usr/lib/apt/apt-helper -q download-file "$1" "$2" \
        >"$temp/log" 2>&1 && [ -s "$2" ]
}

# get NAME PATH SHA256: unpacks the archive to FOLDER/NAME.
get() {
    [ -d "$folder/$1" ] && return
    if [ -z "$mirror" ]; then
        echo "get-wasm: apt has no Debian mirror: unpack" \
            "$2 to $folder/$1" >&2
        exit 1
    fi
    if ! download "${mirror%/}/$2" "$temp/$1.tar.gz"; then
        cat "$temp/log" >&2
        echo "get-wasm: cannot download ${mirror%/}/$2" >&2
        exit 1
    fi
    if ! echo "$3  $temp/$1.tar.gz" | sha256sum -c - >/dev/null 2>&1; then
        echo "get-wasm: $2 has a wrong checksum" >&2
        exit 1
    fi
    mkdir "$temp/$1"
    tar -xzf "$temp/$1.tar.gz" -C "$temp/$1" --strip-components=1
    mv "$temp/$1" "$folder/$1"
}

get libyaml pool/main/liby/libyaml/libyaml_0.2.5.orig.tar.gz \
    fa240dbf262be053f3898006d502d514936c818e422afdcf33921c63bed9bf2e
get jansson pool/main/j/jansson/jansson_2.14.orig.tar.gz \
    c739578bf6b764aa0752db9a2fdadcfe921c78f1228c7ec0bb47fa804c55d17b
