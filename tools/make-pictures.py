#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Creates the screenshots in docs/img, with headless Chromium.

    tools/make-pictures.py LONGHAUL [NAME...]

LONGHAUL must be built with the playground (tools/get-wasm.sh). NAMEs such as
report-dark select screenshots (default: all). Inspect each one before you commit
it.
"""
import base64
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "browser"))
import chromium  # noqa: E402

IMAGES = os.path.join(ROOT, "docs", "img")
LONGHAUL = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else None
JOB = os.path.join(ROOT, "examples", "llama3-70b-two-sites.yaml")
RECORDINGS = os.path.join(ROOT, "tests", "data", "recordings")
FAR = [(r"latency_ms: *20", "latency_ms: 60"), (r"gbps: 3200", "gbps: 400")]
FRAME = "document.querySelector('#result iframe').contentDocument"


def longhaul(folder, *words):
    done = subprocess.run([LONGHAUL, *words], cwd=folder, capture_output=True,
                          text=True, check=False)
    if done.returncode:
        sys.exit(f"longhaul {' '.join(words)}: {done.stderr}")


def plans(folder):
    """Writes a plan's page, and its comparison with a plan for slower links."""
    if os.path.exists(os.path.join(folder, "plan.html")):
        return
    with open(JOB, encoding="utf-8") as f:
        text = f.read()
    for pattern, other in FAR:
        text, n = re.subn(pattern, other, text)
        assert n == 1, f"{JOB}: no {pattern}"
    for name, job in (("20-ms-apart", None), ("60-ms-apart", text)):
        path = os.path.join(folder, name + ".yaml")
        with open(path, "w", encoding="utf-8") as f:
            with open(JOB, encoding="utf-8") as own:
                f.write(job or own.read())
        longhaul(folder, "plan", name + ".yaml", "--effort", "20000", "-q",
                 "-o", name + ".json", "--html", name + ".html")
    os.rename(os.path.join(folder, "20-ms-apart.html"),
              os.path.join(folder, "plan.html"))
    longhaul(folder, "report", "20-ms-apart.json", "60-ms-apart.json", "-o",
             "two.html")


def ready(browser):
    assert browser.wait("document.documentElement.dataset.asking !== '1'")
    assert "curves=1" not in browser.run("location.hash") or browser.wait(
        "document.documentElement.dataset.curves === '0'")


def take(browser, name, size, scale):
    """Saves the top of the page as an image."""
    browser.ask("Emulation.setDeviceMetricsOverride", width=size[0],
                height=size[1], deviceScaleFactor=1, mobile=False)
    browser.run("new Promise((r) => setTimeout(r, 300))")
    shot = browser.ask(
        "Page.captureScreenshot", format="webp", quality=82,
        clip={"x": 0, "y": 0, "width": size[0], "height": size[1],
              "scale": scale})
    assert not browser.troubles(), browser.troubles()
    path = os.path.join(IMAGES, name + ".webp")
    with open(path, "wb") as f:
        f.write(base64.b64decode(shot["data"]))
    print(f"{path}: {os.path.getsize(path) / 1e3:.0f} KB")


def report(page, address, size, scale, dark=False):
    def make(browser, folder, name):
        plans(folder)
        browser.open(os.path.join(folder, page), address, size, dark)
        ready(browser)
        take(browser, name, size, scale)
    return make


def diagnosis(recording, address, size):
    def make(browser, folder, name):
        path = os.path.join(folder, "d.html")
        subprocess.run([LONGHAUL, "diagnose", recording, "--html", path, "-q"],
                       cwd=RECORDINGS, stdout=subprocess.DEVNULL, check=True)
        browser.open(path, address, size)
        take(browser, name, size, 0.6)
    return make


def playground(browser, folder, name):
    path = os.path.join(folder, "playground.html")
    longhaul(folder, "playground", "-o", path)
    size = (1500, 2000)
    browser.open(path, "", size)
    assert browser.wait("document.documentElement.dataset.reading === '0'")
    browser.run("document.getElementById('effort').value = '20000';"
                "document.getElementById('plan').click()")
    assert browser.wait("document.documentElement.dataset.plan === 'done'", 300)
    assert browser.wait(f"{FRAME}?.documentElement?.dataset.asking === '0'",
                        60)
    take(browser, name, size, 0.6)


PICTURES = {
    "report-plan": report("plan.html", "curves=1", (1500, 2060), 0.6),
    "report-dark": report("plan.html", "critical=1", (1500, 1500), 0.6, True),
    "report-narrow": report("plan.html", "", (800, 1900), 0.75),
    "report-narrow-dark": report("plan.html", "", (800, 1900), 0.75, True),
    "report-two-plans": report("two.html", "", (1500, 2300), 0.6),
    "playground": playground,
    "diagnose-ar": diagnosis("AR.csv.gz", "help=0", (1400, 2340)),
    "diagnose-st": diagnosis("ST.csv.gz", "help=1", (1400, 1900)),
    "diagnose-se": diagnosis("SE.csv.gz", "help=0", (1400, 2000)),
}


def main():
    names = sys.argv[2:] or list(PICTURES)
    if not LONGHAUL or not set(names) <= set(PICTURES):
        sys.exit(f"{__doc__}\nNAMEs: {', '.join(PICTURES)}")
    path = chromium.find()
    if not path:
        sys.exit("make-pictures.py: no Chromium")
    with tempfile.TemporaryDirectory() as folder:
        with chromium.Browser(path) as browser:
            for name in names:
                PICTURES[name](browser, folder, name)


main()
