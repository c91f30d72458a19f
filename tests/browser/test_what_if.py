#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The what-if results of a report's page equal the program's results for the file and
the command that the page offers.

    test_what_if.py LONGHAUL PAGE

PAGE is "yes" if the build has the tools for WebAssembly.
"""
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from urllib.parse import quote

import chromium
from pages import check, finish, longhaul, small_job, two_sites, write

HERE = os.path.dirname(os.path.abspath(__file__))
CHANGES = 100

SITES = two_sites(10, """\
  - {from: 0, to: 1, latency: 0.13, transfer: 0.7}
  - {from: 1, to: 0, latency: 0.13, transfer: 0.7}
  - {from: 1, to: 2, latency: 17, transfer: 2.3, name: "a > b & c=1%"}
  - {from: 2, to: 1, latency: 19, transfer: 2.9, name: back}
  - {from: 2, to: 3, latency: 0.13, transfer: 0.7}
  - {from: 3, to: 2, latency: 0.13, transfer: 0.7}
""") + """\
data_parallel: [{chunk: 0, all_gather: 5, reduce_scatter: 6, latency: 1}]
"""
WAVE = """longhaul: pipeline/1
time_unit: us
microbatches: 6
devices: 3
backward: joint
uniform: {placement: wave, chunks_per_device: 2, F: 1001, D: 977, W: 1013}
datacenters: {count: 3, latency: 611, transfer: 401}
"""

JOB = small_job(4)


def report(folder, text, method):
    write(folder, "p.yaml", text)
    longhaul(folder, "simulate", "p.yaml", "-s", method, "--html", "r.html")
    return os.path.join(folder, "r.html")


def by_the_program(folder, command):
    """Returns the makespan in ns of the command that the page shows."""
    words = shlex.split(command)
    check(words[:2] == ["longhaul", "simulate"], f"command {command!r}")
    found = json.loads(longhaul(folder, *words[1:], "--json"))
    return round(found["makespan_s"] * 1e9)


def random_line(draw, links, methods, devices, limits):
    factor = lambda: f"x{draw.choice([0.25, 0.3333, 0.9, 1.1, 2, 3.7])}"
    items = []
    for key in draw.sample(["latency", "bandwidth", "speed", "one", "other",
                            "microbatches", "receives", "coupled", "schedule",
                            "limit"], draw.randint(1, 5)):
        if key == "latency":
            items.append("latency=" + draw.choice(
                [factor(), "0", "21.7ms", "333us", "0.0001s", "12345ns"]))
        elif key == "one":
            items.append(f"{draw.choice(['latency', 'bandwidth'])}."
                         f"{quote(draw.choice(links), safe='')}={factor()}")
        elif key == "other":
            items.append(f"speed.{draw.randrange(devices)}={factor()}")
        elif key == "receives":
            items.append(f"receives={draw.choice(['late', 'late-fd', 'early'])}")
        elif key == "coupled":
            items.append(f"coupled={draw.choice([0, 1, 3])}")
        elif key == "schedule":
            items.append(f"schedule={draw.choice(methods)}")
        elif key == "microbatches":
            items.append(f"microbatches={draw.randint(2, 20)}")
            items.append(f"schedule={draw.choice(methods)}")
        elif key == "limit":
            items.append(f"limit={factor() if limits else 'none'}")
        else:
            items.append(f"{key}={factor()}")
    return "&".join(items)


def ask(path, lines, **env):
    run = subprocess.run(["node", os.path.join(HERE, "ask.js"), path],
                         input="".join(line + "\n" for line in lines),
                         capture_output=True, text=True, check=False,
                         env={**os.environ, **env})
    check(run.returncode == 0, run.stderr)
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_random(folder):
    draw = random.Random(27)
    answered = 0
    for text, method, links, methods, limits in (
            (SITES, "zb-h1", ["a > b & c=1%", "back"],
             ["1f1b", "zb-h1", "slack", "greedy", "steady"], True),
            (WAVE, "greedy", ["dc0>dc1", "dc1>dc0"], ["greedy", "look-ahead"],
             False)):
        path = report(folder, text, method)
        devices = 4 if limits else 3
        lines = [random_line(draw, links, methods, devices, limits)
                 for _ in range(CHANGES // 2)]
        answers = ask(path, ["", *lines])
        check(len(answers) == len(lines) + 1, f"{len(answers)} answers")
        for line, answer in zip(["", *lines], answers):
            if "error" in answer:
                # A schedule that does not exist, and one with other microbatch
                # numbers.
                check(any(word in line for word in
                          ("schedule=", "coupled=", "limit=")),
                      f"{line}: {answer['error']}")
                continue
            answered += 1
            write(folder, "pipeline.json", answer["file"])
            if answer.get("schedule"):
                write(folder, "schedule.csv", answer["schedule"][0])
            found = by_the_program(folder, answer["command"])
            check(found == answer["makespan"],
                  f"{line}: {answer['makespan']} ns in the page, {found} of "
                  f"{answer['command']}")
    print(f"{answered} of {CHANGES + 2} random changes have an iteration, each "
          "the program's to the nanosecond")
    check(answered > 0.6 * CHANGES, "most random changes have no iteration")


def test_refused(folder):
    path = report(folder, SITES, "zb-h1")
    wrong = {"latency": "not a change", "latency=20": "neither a factor",
             "latency=x0": "neither a factor", "latncy=x2": "unknown change",
             "latency.west=x2": "no link of that name",
             "speed.4=x2": "no such device", "speed=2": "not a factor",
             "microbatches=0": "not a number", "receives=soon": "not one of",
             "coupled=-1": "not a number", "schedule=fastest": "zb-h1",
             "limit=some": "neither a factor", "microbatches.1=3": "unknown",
             "latency=%4": "not URL", "latency=%00": "not URL",
             "microbatches=3": "choose a schedule", "latency=x" + "1" * 400: ""}
    for (line, says), answer in zip(wrong.items(), ask(path, wrong)):
        check("error" in answer and says in answer["error"],
              f"{line}: {answer}")


def test_plan(folder):
    """Reports of plans have what-if, too: written with the plan, or from it."""
    write(folder, "job.yaml", JOB)
    longhaul(folder, "plan", "job.yaml", "--no-optimal", "--html", "p.html")
    longhaul(folder, "report", "plan.json", "-o", "again.html")
    for page in ("p.html", "again.html"):
        lines = ["", "latency=x3", "speed.1=x0.5&schedule=1f1b"]
        found = []
        for line, answer in zip(lines, ask(os.path.join(folder, page), lines)):
            write(folder, "pipeline.json", answer["file"])
            if answer.get("schedule"):
                write(folder, "schedule.csv", answer["schedule"][0])
            found.append(answer["makespan"])
            check(by_the_program(folder, answer["command"]) == found[-1],
                  f"{page}, {line}: {found[-1]} ns, not of the program")
        check(found[0] < found[1] and found[0] < found[2],
              f"{page}: {found} for {lines}")


LARGE = """longhaul: pipeline/1
time_unit: ms
microbatches: {microbatches}
devices: {devices}
backward: split
uniform: {{placement: ud, chunks_per_device: 1, F: 10, D: 10, W: 10,
          memory: {{F: 1, D: 0, W: -1}}}}
datacenters: {{count: 2, latency: 20, transfer: 2}}
"""


def test_large(folder):
    """Large pipelines are supported. Prints the time; it is not limited, since
    the machine may be busy."""
    for devices, microbatches in ((8, 64), (16, 1024)):
        path = report(folder, LARGE.format(devices=devices,
                                           microbatches=microbatches), "zb-h1")
        lines = ["latency=x2", "speed.1=x0.9", "bandwidth=x0.7"]
        answers = ask(path, lines, ALL_METHODS="1")
        for line, answer in zip(lines, answers):
            write(folder, "pipeline.json", answer["file"])
            if answer.get("schedule"):
                write(folder, "schedule.csv", answer["schedule"][0])
            check(by_the_program(folder, answer["command"]) ==
                  answer["makespan"], f"{devices} x {microbatches}: {line}")
        print(f"{devices} x {microbatches}: " + ", ".join(
            f"{a['cpu_ms']:.0f} ms, with all schedules {a['rows_cpu_ms']:.0f}"
            for a in answers) + " of processor time")


def by_latency(folder, pipeline, ns):
    """Returns {method: makespan in ns} of `longhaul compare`, all links at a
    latency."""
    told = json.loads(longhaul(folder, "compare", pipeline, "--sweep",
                               f"latency={ns}ns", "--json"))
    return {row["method"]: round(row["makespan_s"] * 1e9)
            for row in told["rows"] if row["status"] == "ok"}


def fastest(spans):
    return {m for m, ns in spans.items() if ns == min(spans.values())}


def test_curves(folder):
    """Curves equal those of `compare --sweep`; the printed latencies at which
    the fastest method changes are correct."""
    path = report(folder, SITES, "zb-h1")
    points = [0, 20000000, 40000000, 60000000]
    run = subprocess.run(["node", os.path.join(HERE, "ask.js"), path,
                          ",".join(map(str, points))],
                         capture_output=True, text=True, check=False)
    check(run.returncode == 0, run.stderr)
    *told, end = json.loads(run.stdout)
    check([t["ns"] for t in told] == points, f"points: {told}")
    for t in told:
        here = {r["method"]: r["makespan"] for r in t["rows"]
                if r["status"] == "ok"}
        check(here == by_latency(folder, "p.yaml", t["ns"]),
              f"at {t['ns']} ns: {here}")
    winner = end["first"]
    check(winner in fastest(by_latency(folder, "p.yaml", 0)), f"first {winner}")
    check(end["changes"], "the fastest never changes")
    for change in end["changes"]:
        before = by_latency(folder, "p.yaml",
                            change["ns"] - (points[1] >> 10) - 1)
        now = by_latency(folder, "p.yaml", change["ns"])
        check(winner in fastest(before) and winner not in fastest(now) and
              change["to"] in fastest(now), f"{winner} to {change}")
        winner = change["to"]
    check(winner in fastest(by_latency(folder, "p.yaml", points[-1])),
          f"{winner} at the end")


ASKED = "document.documentElement.dataset.asking === '0'"
MAKESPAN = "Number(document.documentElement.dataset.makespanNs)"
MOVE = """((key, value) => {
  const field = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  for (let n = field; n; n = n.parentElement) if (n.open === false) n.open = true;
  field.value = value;
  field.dispatchEvent(new Event('change', {bubbles: true}));
})"""
VALUE = """((key) =>
  document.querySelector(`[data-key="${CSS.escape(key)}"]`).value)"""
SLIDE = """((key, place) => {
  const slider = document.querySelector(`[data-key="${CSS.escape(key)}"]`)
    .parentElement.querySelector('[type=range]');
  slider.value = place;
  slider.dispatchEvent(new Event('input', {bubbles: true}));
})"""


# The page's downloads, caught in place of files: Chromium limits downloads to
# ten per second and page.
KEEP = """(() => {
  const make = URL.createObjectURL;
  let last;
  window.kept = {};
  URL.createObjectURL = (blob) => make.call(URL, last = blob);
  HTMLAnchorElement.prototype.click = function keep() {
    window.kept[this.download] = last.text();
  };
})()"""


def take_away(browser, folder, kept):
    """Saves the page's download, and runs the command that the page shows."""
    for name in ("pipeline.json", "schedule.csv"):
        if os.path.exists(os.path.join(folder, name)):
            os.remove(os.path.join(folder, name))
    wanted = ["pipeline.json"]
    before = browser.downloaded()
    browser.run("document.getElementById('save-pipeline').click()")
    if not browser.run("document.getElementById('save-schedule').hidden"):
        browser.run("document.getElementById('save-schedule').click()")
        wanted.append("schedule.csv")
    if kept:
        for name in wanted:
            write(folder, name, browser.run(f"window.kept['{name}']"))
    else:
        browser.until(lambda: all(name in browser.downloaded()[len(before):]
                                  for name in wanted))
    return by_the_program(folder, browser.run(
        "document.getElementById('ask-command').textContent"))


def test_controls(browser, folder):
    path = report(folder, SITES, "zb-h1")
    check(browser.open(path), "the report does not open")
    check(browser.wait(ASKED), "the page does not answer")
    browser.ask("Page.setDownloadBehavior", behavior="allow",
                downloadPath=folder)
    first = browser.run(MAKESPAN)
    keys = browser.run("[...document.querySelectorAll('[data-key]')]"
                       ".map((x) => x.dataset.key)")
    check(len(keys) == 8 + 2 * 2 + 4, f"controls: {keys}")
    others = {"schedule": "1f1b", "microbatches": "12", "receives": "late",
              "coupled": "1", "limit": "x1.5"}
    for key in keys:
        if key == "microbatches":
            browser.run(f"{MOVE}('schedule', 'greedy')")
        browser.run(f"{MOVE}({json.dumps(key)}, "
                    f"{json.dumps(others.get(key, 'x0.5'))})")
        check(browser.wait(ASKED), f"{key}: no answer")
        now = browser.run(MAKESPAN)
        says = browser.run("document.getElementById('ask-state').textContent")
        check(key == "limit" or now != first, f"{key} changes nothing: {says}")
        check(now == take_away(browser, folder, key != keys[0]),
              f"{key}: the page has {now} ns, the program not")
        if key == keys[0]:
            browser.run(KEEP)
        browser.run("document.getElementById('ask-reset').click()")
        check(browser.wait(ASKED) and browser.run(MAKESPAN) == first,
              f"{key}: reset does not bring {first} back")
    for key in browser.run("[...document.querySelectorAll('.factor [data-key]')]"
                           ".map((x) => x.dataset.key)"):
        browser.run(f"{SLIDE}({json.dumps(key)}, 1)")
        check(browser.wait(ASKED) and browser.run(f"{VALUE}({json.dumps(key)})")
              == "x2", f"{key}: the slider does not set its field")
        browser.run("document.getElementById('ask-reset').click()")
        browser.wait(ASKED)
    check(not browser.troubles(), f"controls: {browser.troubles()}")


def test_address(browser, folder):
    path = report(folder, SITES, "zb-h1")
    lines = ["latency=x2", "schedule=1f1b", "latency=x2&schedule=1f1b"]
    expected = [answer["makespan"] for answer in ask(path, lines)]
    for line, ns in zip(lines, expected):
        check(browser.open(path, line + "&theme=dark") and browser.wait(ASKED)
              and browser.run(MAKESPAN) == ns,
              f"#{line}: {browser.run(MAKESPAN)} in place of {ns}")
        rows = browser.run("document.querySelectorAll('#rows tbody tr').length")
        check(rows > 10, f"#{line}: {rows} schedules in the table")
    check(browser.open(path, "latency=50%") and browser.wait(ASKED) and
          "not URL-encoded" in browser.run(
              "document.getElementById('ask-state').textContent"),
          "an address that is not URL-encoded is not refused")
    check(not browser.troubles(), f"addresses: {browser.troubles()}")


CARDS = """Object.fromEntries([...document.querySelectorAll('.card')].map(
  (c) => [...c.children].map((x) => x.textContent)).map(
  ([name, ...texts]) => [name, texts]))"""


def test_cards_follow(browser, folder):
    """Iterations on a plan's page belong to the makespan beside them. With
    changes they are the program's result for the page's pipeline, and the time
    after the pipeline in the plan. For two plans this applies to the first."""
    write(folder, "job.yaml", JOB)
    write(folder, "other.yaml", JOB.replace("latency_ms: 1,", "latency_ms: 2,"))
    longhaul(folder, "plan", "job.yaml", "--no-optimal", "--html", "p.html")
    longhaul(folder, "plan", "other.yaml", "--no-optimal", "-o", "other.json")
    longhaul(folder, "report", "plan.json", "other.json", "-o", "two.html")
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as f:
        plan = json.load(f)
    after = plan["optimizer_ns"] + plan["overhead_ns"]
    check(after > 0, "nothing follows the pipeline")
    lines = ["", "latency=x3", "microbatches=24&schedule=1f1b"]
    answers = ask(os.path.join(folder, "p.html"), lines)
    for page, rate in (("p.html", "Throughput"),
                       ("two.html", "Tokens per second")):
        for line, answer in zip(lines, answers):
            write(folder, "pipeline.json", answer["file"])
            if answer.get("schedule"):
                write(folder, "schedule.csv", answer["schedule"][0])
            ns = by_the_program(folder, answer["command"]) + after
            share = (json.loads(answer["file"])["microbatches"] /
                     plan["microbatches"])
            check(browser.open(os.path.join(folder, page), line) and
                  browser.wait(ASKED), f"{page}#{line}: no answer")
            cards = browser.run(CARDS)
            number = lambda name: float(re.match(
                r"[\d.,]+", cards[name][0])[0].replace(",", ""))
            check(cards["Iteration"][0] == f"{ns / 1e6:.3f} ms",
                  f"{page}#{line}: iteration {cards}, not {ns} ns")
            tokens = 12 * 32 * share / ns * 1e9
            check(abs(number(rate) - tokens) < 0.51,
                  f"{page}#{line}: {tokens} tokens/s, not {cards[rate]}")
            mfu = 100 * plan["mfu"] * share * plan["iteration_ns"] / ns
            check(abs(number("Model FLOPs utilisation") - mfu) < 0.051,
                  f"{page}#{line}: utilisation {mfu}, not {cards}")
            said = "as planned" in cards["Iteration"][1]
            check(said == (line != ""), f"{page}#{line}: {cards}")
        browser.run("document.getElementById('ask-reset').click()")
        check(browser.wait(ASKED) and browser.run(CARDS)["Iteration"][0] ==
              f"{plan['iteration_ns'] / 1e6:.3f} ms", f"{page}: no way back")
    check(not browser.troubles(), f"cards: {browser.troubles()}")


def test_curves_drawn(browser, folder):
    path = report(folder, SITES, "zb-h1")
    drawn = "document.documentElement.dataset.curves === '0'"
    first = None
    for address in ("curves=1", "curves=1&bandwidth=x0.1"):
        check(browser.open(path, address) and browser.wait(drawn),
              f"#{address}: no curves")
        lines = browser.run("document.querySelectorAll('#curves-list polyline')"
                            ".length")
        says = browser.run(
            "document.getElementById('curves-told').textContent")
        marks = browser.run("document.querySelectorAll('#curves-list .mark')"
                            ".length")
        check(lines > 8 and marks == says.count("then") and marks > 0,
              f"#{address}: {lines} curves, {marks} marks, {says}")
        check(says != first, f"#{address} changes no curve")
        first = says
    check(not browser.troubles(), f"curves: {browser.troubles()}")


def test_without_tools(browser, folder, built):
    """A build with the tools fills one element of the page; without its content
    the page equals that of a build without the tools."""
    path = report(folder, SITES, "zb-h1")
    if built:
        with open(path, encoding="utf-8") as f:
            page = f.read()
        page, n = re.subn(r'(id="wasm">)[^<]+', r"\1", page)
        check(n == 1 and len(page) < 400000, "the simulator is elsewhere")
        write(folder, "without.html", page)
        path = os.path.join(folder, "without.html")
    check(browser.open(path), "the report does not open")
    for part in ("timeline", "links", "idle", "compare"):
        check(browser.run(f"!document.getElementById('{part}').hidden"),
              f"without tools: no {part}")
    check(browser.run("document.getElementById('what-if').textContent"
                      ".includes('wasi-libc')"), "says not what it needs")
    check(browser.run(MAKESPAN) > 0 and browser.run(
        "document.querySelectorAll('#what-if input').length") == 0,
        "controls without a simulator")
    check(not browser.troubles(), f"without tools: {browser.troubles()}")


def main():
    built = sys.argv[2] == "yes"
    node, path = shutil.which("node"), chromium.find()
    skipped = [name for name, there in
               (("WebAssembly tools", built), ("node", node),
                ("chromium", path)) if not there]
    with tempfile.TemporaryDirectory() as folder:
        if built and node:
            test_random(folder)
            test_refused(folder)
            test_plan(folder)
            test_large(folder)
            test_curves(folder)
        if path:
            with chromium.Browser(path) as browser:
                if built and node:
                    test_controls(browser, folder)
                    test_address(browser, folder)
                    test_cards_follow(browser, folder)
                    test_curves_drawn(browser, folder)
                test_without_tools(browser, folder, built)
    finish(*skipped)


main()
