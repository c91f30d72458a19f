#!/bin/sh
# Reproduces published results: generates the pages of docs/papers again and draws
# their curves into out/.
set -eu
cd "$(dirname "$0")/../.."
[ -d build ] || meson setup build --buildtype=release >/dev/null
ninja -C build >/dev/null
ninja -C build bench/validate-scaleacross bench/validate-crosspipe \
    bench/validate-adaptra bench/validate-cba >/dev/null
mkdir -p out docs/papers

# print_page PAGE PROGRAM...: replaces a page that a program prints, once the
# program has succeeded.
print_page() {
    page=$1
    shift
    "$@" >"out/$page"
    mv "out/$page" "docs/papers/$page"
}

build/bench/validate-crosspipe --write docs/papers/crosspipe.md
build/bench/validate-crosspipe --html out/crosspipe.html
build/bench/validate-adaptra --write docs/papers/adaptra.md
build/bench/validate-cba --write docs/papers/cba.md
print_page scaleacross.md build/examples/scaleacross
build/bench/validate-scaleacross --write docs/papers/scaleacross-figures.md
print_page pipemesh.md build/examples/pipemesh out/pipemesh.html
bench/delayed.py build/cli/longhaul --write docs/papers/pipemesh.md >/dev/null
# About a quarter of an hour; SECONDS_EACH=0 skips that page.
seconds=${SECONDS_EACH:-60}
if [ "$seconds" != 0 ]; then
    print_page crosspipe-optimal.md build/examples/crosspipe-optimal "$seconds"
fi
echo "docs/papers/crosspipe.md, docs/papers/adaptra.md, docs/papers/cba.md,"
echo "docs/papers/scaleacross.md,"
echo "docs/papers/scaleacross-figures.md, docs/papers/pipemesh.md,"
echo "docs/papers/crosspipe-optimal.md"
echo "docs/img/pipemesh-delayed.svg, out/crosspipe.html, out/pipemesh.html"
