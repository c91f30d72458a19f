#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens reports in headless Chromium and checks the result.

    test_report.py MAKE_REPORTS [KEEP_DIR]

MAKE_REPORTS is the program of make_reports.c. Without Chromium the traces are still
checked and the files still parsed; the rest is skipped with a message.
"""
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

import chromium
from pages import check, finish, luminance

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_SHAPES = 40000  # ms per redraw, which draws pixels, fewer than passes


class Page:
    """An opened report."""

    def __init__(self, browser, path, address, size=(1400, 1200)):
        self.name = os.path.basename(path) + "#" + address
        done = browser.open(path, address, size) and browser.wait(
            "!!document.getElementById('check')")
        check(done, f"{self.name}: did not finish")
        self.result = json.loads(browser.run(
            "document.getElementById('check').textContent")) if done else None
        self.dom = browser.run("document.documentElement.outerHTML")
        check(not browser.troubles(), f"{self.name}: {browser.troubles()}")

    def __getitem__(self, key):
        return self.result[key] if self.result else None


def check_acts(page):
    """Tests wheel, pointer and keys."""
    if not page.result:
        return
    acts = page["act"]
    fit, zoomed, less, again = acts["spans"]
    check(zoomed < fit / 3, f"{page.name}: the wheel does not zoom: {acts}")
    check(zoomed < less <= fit, f"{page.name}: '-' does not zoom out: {acts}")
    check(abs(again - fit) < 1, f"{page.name}: '0' does not fit: {acts}")
    check(acts["panned"], f"{page.name}: the arrow key does not pan")
    check(acts["tip"].startswith(acts["pass"]),
          f"{page.name}: hovering {acts['pass']} shows {acts['tip']!r}")
    check(acts["left"], f"{page.name}: the tooltip stays")


def test_tiny(browser, folder):
    page = Page(browser, folder + "/tiny.html", "check=1&find=1B0")
    if not page.result:
        return
    check_acts(page)
    check(page["act"]["critical"], "tiny: 'c' does not show the critical path")
    check(page["passes"] == [8], f"tiny: passes {page['passes']}")
    check(page["matches"] == ["1B0"], f"tiny: found {page['matches']}")
    for kind in ("F", "B", "dp"):
        check(page["pixels"][kind] > 500, f"tiny: no {kind} drawn")
    for kind in ("D", "W"):
        check(page["pixels"][kind] == 0, f"tiny: {kind} drawn, there is none")
    check("1B0" in page["tip"] and "Waited for" in page["tip"],
          f"tiny: tooltip {page['tip']!r}")
    check("&lt;/script&gt;&lt;script&gt;alert(1)" in page.dom
          and "<img" not in page.dom, "tiny: the title is not escaped")
    # Computed by hand: all-gather until 5, 0F0 until 15, over the link (3 + 5)
    # 1F0 until 33, 1B0 until 53, 1F1 until 63, 1B1 until 83, arrival at 91, 0B1
    # until 111, reduce-scatter 6 + 1.
    check(page["checksum"][0] == [118e6, 111e6, 91e6],
          f"tiny: times {page['checksum']}")


def test_two_sites(browser, folder):
    page = Page(browser, folder + "/two-sites.html",
                "check=1&find=3F7&critical=1")
    if page.result:
        check(page["matches"] == ["3F7"], f"found {page['matches']}")
        check(page["critical"], "critical path not on")
        check("3F7" in page["tip"], f"tooltip {page['tip']!r}")
        for kind in "FDW":
            check(page["pixels"][kind] > 300, f"two sites: no {kind} drawn")
    for text in ("greedy", "infeasible", "best", "link latency",
                 "latency between the sites"):
        check(text in page.dom, f"two sites: '{text}' is not on the page")
    check(page.dom.count("<polyline") >= 4, "two sites: curves are missing")
    for text in ("Why this plan", "Breakdown of the iteration: 13.11&nbsp;s",
                 "compute 12.23&nbsp;s (93.3 %)", "ecmp, 4 queue pairs",
                 "spray &lt;i&gt;4&lt;/i&gt;", "Runners-up"):
        check(text in page.dom, f"two sites: '{text}' is not among the reasons")
    check(page.dom.count('<table class="texts">') == 2 and
          "nothing 0" not in page.dom, "two sites: the tables of reasons")
    for address, least, names in (("find=F7", 8, "0F7"), ("find=3f", 24, "3F0"),
                                  ("find=3I7", 1, "3D7"),
                                  ("find=99F99", 0, None),
                                  ("find=%3Cb%3E", 0, None)):
        page = Page(browser, folder + "/two-sites.html", "check=1&" + address)
        check(page["match_count"] == least, f"{address}: {page['match_count']}")
        if names and page.result:
            check(page["matches"][0] == names, f"{address}: {page['matches']}")
    page = Page(browser, folder + "/two-sites.html",
                "check=1&theme=dark&links=0&memory=0&from=0.25&to=0.5")
    check('data-theme="dark"' in page.dom, "dark theme not on")
    if page.result:
        a, b = page["view"]
        check(0.2 < (b - a) / page["checksum"][0][0] < 0.3,
              f"view {page['view']}")
    page = Page(browser, folder + "/two-sites.html", "check=1", (390, 800))
    check(page["wide"] is False, "scrolls sideways on a narrow screen")


def test_pair(browser, folder):
    page = Page(browser, folder + "/pair.html", "check=1&find=2B5")
    check(page["shown"] == 2, f"pair: {page['shown']} timelines shown")
    check(page["match_count"] == 2, "pair: the pass is not found in both")
    check(page.result and "measured" in page["tip"],
          "pair: the tooltip does not compare")
    page = Page(browser, folder + "/pair.html", "check=1&show=1")
    check(page["shown"] == 1, "pair: hiding one does not work")


def test_large(browser, folder):
    page = Page(browser, folder + "/large.html", "check=1")
    if not page.result:
        return
    print(f"50,016 passes: ready after {page['ready_ms']:.0f} ms, redraw "
          f"median {page['median_ms']:.1f} ms, worst {page['max_ms']:.1f} ms "
          f"of {page['views']} views, {page['nodes']} nodes, at most "
          f"{page['shapes']} shapes in a view")
    check(page["passes"] == [50016], f"large: passes {page['passes']}")
    check_acts(page)
    check(0 < page["shapes"] < MOST_SHAPES,
          f"large: {page['shapes']} shapes in a view")
    check(page["nodes"] < 1500, f"large: {page['nodes']} nodes in the page")
    for kind in "FDW":
        check(page["pixels"][kind] > 5000, f"large: no {kind} drawn")
    page = Page(browser, folder + "/large.html",
                "check=1&critical=1&find=7D400")
    check(page["matches"] == ["7D400"], f"large: found {page['matches']}")
    if not page.result:
        return
    print(f"  with the critical path: median {page['median_ms']:.1f} ms, at "
          f"most {page['shapes']} shapes")
    check(page["shapes"] < MOST_SHAPES,
          f"large: {page['shapes']} shapes with the critical path")


def test_empty(browser, folder):
    page = Page(browser, folder + "/empty.html", "check=1")
    check(page["passes"] == [], "empty: passes out of nothing")


def shown(seconds):
    """Formats a time like the page, with four significant digits."""
    unit, name = (1, "s") if seconds >= 1 else (1e3, "ms")
    text = f"{seconds * unit:.{4 - len(str(int(seconds * unit)))}f}"
    return text.rstrip("0").rstrip(".") + "\u00a0" + name


def test_diagnosis(browser, folder):
    """Numbers equal those of --json; steps and improvements change
    timelines."""
    with open(folder + "/diagnosis.json", encoding="utf-8") as f:
        told = json.load(f)
    page = Page(browser, folder + "/diagnosis.html", "check=1")
    found = page["diagnosis"]
    if not found:
        check(False, "diagnosis: nothing was looked at")
        return
    text = html.unescape(re.sub("<[^>]*>", " ", page.dom.split("<footer")[0]))
    for key in "measured_s", "t_s", "ideal_s":
        check(shown(told[key]) in text, f"diagnosis: no {key} {told[key]}")
    check(f"{told['slowdown']:.3f}" in text, "diagnosis: no slowdown")
    for key in "by_stage", "by_replica":
        for name, value in told[key].items():
            check(f" {name}  {value:.3f} " in text, f"diagnosis: {key} {name}")
    for one in told["helps"]:
        check(one["what"] in text and shown(one["predicted_s"]) in text and
              f"{100 * one['gain']:.1f}\u00a0%" in text, f"diagnosis: {one}")
    check("Slow </script><b>" in text, "diagnosis: a sentence is not escaped")

    def check_step(seen, step, what):
        check(abs(seen["ends"][0] - step["t_s"] * 1e9) < 1,
              f"{what}: ends at {seen['ends'][0]}, not {step['t_s']}")
        check(f"Step {step['step']}, measured" in seen["heads"][0] and
              shown(step["t_s"]) in seen["heads"][0], f"{what}: {seen['heads']}")
        for key in "measured_s", "t_s", "ideal_s":
            check(shown(step[key]) in seen["step"], f"{what}: {seen['step']}")

    first, last = told["steps"][0], told["steps"][-1]
    check_step(found["first"], first, "first step")
    check_step(found["last"], last, "last step")
    for seen, step in (found["first"], first), (found["last"], last):
        check(abs(seen["ends"][1] - step["ideal_s"] * 1e9) < 1, "usual times")
    check(found["first"]["cells"] != found["last"]["cells"], "maps of steps")
    # Passes of stage 3 take 1.63 times as long as those of other stages.
    cells = list(map(float, found["last"]["cells"]))
    check(len(cells) == 8 and min(cells[6:]) > 1.4 * max(cells[:6]), cells)
    check(len(found["helps"]) == len(told["helps"]), "helps")
    mean = sorted(step["t_s"] for step in told["steps"])
    for seen, one in zip(found["helps"], told["helps"]):
        check(seen["pressed"] == "true" and one["what"] in seen["heads"][1],
              f"{one['what']}: {seen['heads']}")
        if "layers" in one["what"]:  # a step near the mean, with both replicas
            check(seen["sites"][1] == 2 and abs(
                seen["ends"][1] / 1e9 / one["predicted_s"] - 1) < 0.03, seen)
            check(mean[8] < seen["ends"][0] / 1e9 < mean[-8], seen)
        else:  # one replica, simulated: only its passes
            check(seen["sites"][1] == 1 and
                  seen["ends"][1] / 1e9 < one["predicted_s"], seen)
    check("usual times" in found["left"]["heads"][1], found["left"]["heads"])
    check("stage 1, replica 1: slowdown" in found["focused"], found["focused"])
    check("stage 1 (replica 1)" in found["tip"], found["tip"])
    check(found["slides"], "an arrow key on the slider moves the timeline")
    check_acts(page)
    last = told["steps"][5]["step"]
    page = Page(browser, folder + "/diagnosis.html",
                f"check=1&step={last}&help=1&theme=dark", (800, 900))
    check(page["wide"] is False, "diagnosis: scrolls sideways at 800 pixels")
    check('data-theme="dark"' in page.dom, "diagnosis: dark theme not on")
    if page.result:
        check(told["helps"][1]["what"] in page["diagnosis"]["first"]["heads"][1],
              "diagnosis: the address does not choose")
        check(f"step {last}:" in page["diagnosis"]["first"]["step"], "address")


class Loads(html.parser.HTMLParser):
    """Collects everything in a page that would load a resource."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key in ("src", "href", "srcset", "action") and \
                    not (value or "").startswith("data:"):
                self.found.append(f"<{tag} {key}={value}>")


def test_files(folder):
    for name in ("tiny", "two-sites", "pair", "large", "empty", "diagnosis"):
        with open(f"{folder}/{name}.html", encoding="utf-8") as f:
            text = f.read()
        loads = Loads()
        loads.feed(text)
        check(not loads.found, f"{name}.html loads {loads.found}")
        check(not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket",
                            text), f"{name}.html may load something")
        check("\u2028" not in text.split('id="data"')[1],
              f"{name}.html: a raw line separator in a script")
    for name in ("tiny", "two-sites", "pair", "large"):
        tree = xml.parse(f"{folder}/{name}.svg")
        paths = tree.findall(".//{http://www.w3.org/2000/svg}path")
        check(len(paths) >= 4, f"{name}.svg: {len(paths)} paths")
    sizes = {n: os.path.getsize(f"{folder}/{n}") for n in
             ("large.html", "large.svg", "large.json")}
    print("50,016 passes, bytes:", sizes)
    check(sizes["large.html"] < 4e6, "large.html is large")
    check(sizes["large.svg"] < 2e6, "large.svg is large")


def test_traces(folder):
    run = subprocess.run(
        [sys.executable, os.path.join(HERE, "check_trace.py")] +
        [f"{folder}/{n}.json" for n in ("tiny", "two-sites", "pair", "large")],
        check=False)
    check(run.returncode == 0, "a trace does not suit viewers")


def test_themes():
    """Pass colours differ in lightness, so also in grey."""
    with open(os.path.join(HERE, "../../src/report/page/report.css"),
              encoding="utf-8") as f:
        css = f.read()
    light, dark = css.split(':root[data-theme="dark"]')
    dark = dark.split("}")[0]
    for name, block in (("light", light), ("dark", dark)):
        grey = []
        for kind in "fbwd":
            color = re.search(rf"--{kind}: #([0-9a-f]{{6}});", block).group(1)
            linear = [(c / 12.92 if c <= 0.04045
                       else ((c + 0.055) / 1.055) ** 2.4)
                      for c in (int(color[i:i + 2], 16) / 255
                                for i in (0, 2, 4))]
            y = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
            grey.append(116 * y ** (1 / 3) - 16)  # CIE L*
        steps = [b - a for a, b in zip(grey, grey[1:])]
        check(min(steps) > 8, f"{name}: lightness of F, B, W, D is "
              + ", ".join(f"{g:.0f}" for g in grey))


def test_maps():
    """Cells span the range of lightness and are readable: contrast 4.5, the AA
    of WCAG 2."""
    with open(os.path.join(HERE, "../../src/report/page/report.css"),
              encoding="utf-8") as f:
        css = f.read()
    light, dark = css.split(':root[data-theme="dark"]')
    for name, block in (("light", light), ("dark", dark.split("}")[0])):
        def of(key):
            return luminance(re.search(rf"--{key}: (#[0-9a-f]{{6}});",
                                       block).group(1))
        cells = [of(f"h{i}") for i in range(7)]
        steps = [b / a for a, b in zip(cells, cells[1:])]
        check(all(s < 0.9 for s in steps) or all(s > 1.1 for s in steps),
              f"{name}: maps go by {steps}")
        for i, cell in enumerate(cells):
            key = "ink" if i < 4 else "panel"
            check(f".h{i}" in re.search(
                rf"([^}}]*){{ color: var\(--{key}\); }}\n\.h",
                css).group(1), f"h{i}: its text is not --{key}")
            lo, hi = sorted((cell, of(key)))
            check((hi + 0.05) / (lo + 0.05) >= 4.5,
                  f"{name}: contrast of h{i} is {(hi + .05) / (lo + .05):.2f}")


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: test_report.py MAKE_REPORTS [KEEP_DIR]")
    folder = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(
        prefix="longhaul-report-")
    os.makedirs(folder, exist_ok=True)
    subprocess.run([sys.argv[1], folder, os.path.join(
        HERE, "../data/recordings/ST.csv.gz")], check=True)
    test_files(folder)
    test_traces(folder)
    test_themes()
    test_maps()
    path = chromium.find()
    if path:
        with chromium.Browser(path) as browser:
            for test in (test_tiny, test_two_sites, test_pair, test_large,
                         test_empty, test_diagnosis):
                test(browser, os.path.abspath(folder))
    if len(sys.argv) == 2:
        shutil.rmtree(folder)
    finish(*[] if path else ["chromium"])


main()
