#!/bin/sh
# same-page.sh PROGRAM PAGE: checks that the program prints the stored page, except
# for sections of other programs between two lines that begin with "<!--".
out=$(mktemp) || exit 1
page=$(mktemp) || exit 1
trap 'rm -f "$out" "$page"' EXIT
"$1" >"$out" || exit 1
sed '/^<!-- .*: written by /,/^<!-- .*: end/{/^<!--/!d;}' "$2" >"$page" || exit 1
diff -u "$page" "$out" || {
    echo "the page $2 differs; look at why, then: $1 > $2" >&2
    exit 1
}
