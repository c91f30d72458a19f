#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every public header compiles alone as C and as C++, every other one as C.
#
#     tests/headers/check-headers.sh FOLDER CC [CXX]
set -u
cd "$1"
cc=${2#ccache } # which does not cache standard input
cxx=${3:-}
strict='-Wall -Wextra -Wpedantic -Werror -fsyntax-only'
failed=0
count=0
try() { # COMPILER HEADER; words of COMPILER are split on purpose
    compiler=$1 header=$2
    count=$((count + 1))
    # shellcheck disable=SC2086
    printf '#include <%s>\n' "$header" |
        $compiler $strict -Iinclude -Isrc $language - || {
        echo "$header does not compile alone with $compiler" >&2
        failed=$((failed + 1))
    }
}
for header in $(find include -name '*.h' | sort); do
    language='-std=c11 -x c'
    try "$cc" "${header#include/}"
    language='-std=c++11 -x c++'
    [ -z "$cxx" ] || try "$cxx" "${header#include/}"
done
language='-std=c11 -x c'
for header in $(find src -name '*.h' | sort); do
    try "$cc" "${header#src/}"
done
[ -n "$cxx" ] || echo 'no C++ compiler: not tried as C++' >&2
echo "$count compilations, $failed failed"
[ "$failed" = 0 ]
