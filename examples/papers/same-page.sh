#!/bin/sh
# same-page.sh PROGRAM PAGE: the program still prints the page as it stands, but
# for parts that other programs write between two lines that begin with "<!--".
out=$(mktemp) || exit 1
page=$(mktemp) || exit 1
trap 'rm -f "$out" "$page"' EXIT
"$1" >"$out" || exit 1
sed '/^<!-- .*: written by /,/^<!-- .*: end/{/^<!--/!d;}' "$2" >"$page" || exit 1
diff -u "$page" "$out" || {
    echo "the page $2 differs; look at why, then: $1 > $2" >&2
    exit 1
}
