#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs missing Debian packages, as root or with sudo. Never prompts, except for
# sudo's password on a terminal.
#
#     tools/need-packages.sh PACKAGE...
set -eu

missing=
for package in "$@"; do
    dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null |
        grep -q '^install ok installed$' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "need-packages: apt-get not found; install these or their" \
        "equivalents:$missing" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    as_root=sudo
    [ -t 0 ] || as_root='sudo -n'
    if ! command -v sudo >/dev/null; then
        echo "need-packages: as root, run: apt-get install$missing" >&2
        exit 1
    fi
fi

echo "installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # split into words
if ! { $as_root apt-get update -q &&
       $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
           --no-install-recommends -o Dpkg::Use-Pty=0 $missing
     } >"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    echo "need-packages: cannot install$missing" >&2
    exit 1
fi
