#!/bin/sh
# same-page.sh PROGRAM PAGE: the program still prints the page as it stands.
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
"$1" >"$out" || exit 1
diff -u "$2" "$out" || {
    echo "the page $2 differs; look at why, then: $1 > $2" >&2
    exit 1
}
