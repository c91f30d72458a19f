#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Panels of a plan's report: order, folding, sorting, readability.

    test_panels.py LONGHAUL
"""
import json
import os
import re
import tempfile

import chromium
from pages import check, contrast, finish, longhaul, small_job, write

JOB = small_job(0.004, "  memory_reserve: 0%\n")
AA = 4.5  # contrast of text, of WCAG 2


def made(folder):
    """Makes the plan; its report is r.html."""
    write(folder, "job.yaml", JOB)
    longhaul(folder, "plan", "job.yaml", "--no-optimal", "--jitter",
             "latency=0.3", "--html", "r.html", "-q")
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as f:
        return json.load(f)


def number(text):
    return float(re.match(r"[\d,.]+", text)[0].replace(",", ""))


def test_cards(browser, plan):
    cards = dict(browser.run(
        "[...document.querySelectorAll('.card')].map((c) => [c.children[0]."
        "textContent, c.children[1].textContent + '; ' + c.children[2]"
        ".textContent])"))
    check(abs(number(cards["Iteration"]) - plan["iteration_s"] * 1e3) < 0.001,
          f"iteration: {cards}")
    heads = browser.run("[...document.querySelectorAll('#rows th')]"
                        ".map((x) => x.textContent)")
    check(heads[1] == "Iteration", f"schedules: {heads}")
    rate = plan["tokens_per_s"]
    days = 1e12 / rate / 86400
    check(abs(number(cards["Throughput"]) - rate) < 1 and
          f"{days:{',.0f' if days > 999 else '.3g'}} days"
          in cards["Throughput"],
          f"throughput: {cards}")
    check(abs(number(cards["Model FLOPs utilisation"]) - 100 * plan["mfu"])
          < 0.06, f"utilisation: {cards}")
    check(cards["GPUs"] == "4; of 4 in the job", f"GPUs: {cards}")
    check("Parameters" in cards and "95 % of iterations within" in cards,
          f"cards: {list(cards)}")
    check(re.match(r"[\d.]+\u00a0m?s; device \d, for .* passes of device \d: ",
                   cards["Longest wait"]),
          f"wait: {cards}")
    says = browser.run("document.querySelector('#idle .sentences')"
                       ".textContent")
    check(re.search(r"Device \d waits longest: .* for .* passes of device \d "
                    r"over link", says), f"idle: {says}")


def test_decision(browser, plan):
    """The first screen has the recommendation, the sites with the use of their
    links, and where time and memory go; the details are folded."""
    text = browser.run("document.querySelector('#decision').innerText")
    said = browser.run("[...document.querySelectorAll('.advice p')]"
                       ".map((p) => p.textContent.replace(/\\u00a0/g, ' '))")
    check(said[0].endswith(" all 4 GPUs: 2 in west, 2 in east.") and
          said[3].startswith("Layout: ") and len(said) == 4 and f"{plan['iteration_s'] * 1e3:.3f} ms" in said[1],
          f"recommendation: {said}")
    check(f"more than {100 * plan['search']['gap']:.1f} % faster" in said[2],
          f"proof: {said}")
    sites = browser.run("[...document.querySelectorAll('.site-box')].map("
                        "(s) => [...s.children].map((c) => c.textContent))")
    check([s[0] for s in sites] == ["west", "east"] and
          all(s[1].startswith("2 of 2 ") and "stages" in s[3] for s in sites),
          f"map: {sites}")
    use = browser.run("[...document.querySelectorAll('.link-use')].map((l) => "
                      "[l.children[0].textContent, l.children[2].textContent])")
    for to, share in use:
        link = next(x for x in plan["network"] if f"to {x['to']}" == to)
        want = (link["messages"] * link["message_bytes"] + link["data_bytes"]
                ) * 8 / 1e9 / plan["iteration_s"]  # of 1 Gb/s
        check(abs(number(share) - 100 * want) < 0.06, f"{to}: {share}, {want}")
    check(len(use) == 2, f"links: {use}")
    fullest = min(plan["memory"], key=lambda m: -sum(
        v for k, v in m.items() if k.endswith("_bytes")))
    for kind in ("parameters", "gradients", "optimizer", "activations"):
        mib = fullest[kind + "_bytes"] / 2 ** 20
        shown = re.search(kind + r" ([\d.]+)\s([KM])iB", text)
        check(shown and abs(float(shown[1]) / (1024 if shown[2] == "K" else 1)
                            - mib) < 0.006, f"{kind}: {shown}, {mib}")
    check(re.search(r"free [\d.]+\s[KM]iB", text), f"free memory: {text}")
    check("Safe alternative" in text and "Next layout" in text and
          "--sensitivity" in text, f"alternatives: {text}")
    bottom, screen = browser.run(
        "[document.querySelector('#decision').getBoundingClientRect().bottom + "
        "scrollY, innerHeight]")
    wide = browser.run("innerWidth") > 1000
    check(not wide or bottom < screen, f"the decision ends at {bottom}")
    closed = browser.run("[...document.querySelectorAll("
                         "'main > .panel.folded')].map((p) => p.id)")
    check(set(closed) >= {"compare", "reasons", "memory", "idle", "tolerance",
                          "about"} and "timeline" not in closed,
          f"folded: {closed}")
    tall = browser.run("[...document.querySelectorAll("
                       "'main > .panel.folded')].map((p) => p.offsetHeight)")
    check(max(tall) < 150, f"heights of folded panels: {tall}")
    browser.ask("Emulation.setEmulatedMedia", media="print")
    hidden = browser.run("[...document.querySelectorAll("
                         "'.folded:not(#what-if, [hidden]) > .panel-head + *')"
                         "].filter((x) => x.tagName !== 'DETAILS' && "
                         "!x.getClientRects().length).length")
    browser.ask("Emulation.setEmulatedMedia", media="")
    check(hidden == 0, f"{hidden} folded panels are not printed")


def test_merged(browser, folder):
    """Stages of a site with equal memory share a row, and directions of a link
    a table."""
    text = JOB.replace("layers: 4", "layers: 12").replace("0.004", "0.012")
    write(folder, "equal.yaml", text.replace(
        "pipeline: 4", "pipeline: 4, schedule: gpipe"))
    longhaul(folder, "plan", "equal.yaml", "--no-optimal", "-o", "equal.json",
             "--html", "equal.html", "-q")
    with open(os.path.join(folder, "equal.json"), encoding="utf-8") as f:
        plan = json.load(f)
    browser.open(os.path.join(folder, "equal.html"))
    rows = browser.run("[...document.querySelectorAll('.memory-row span')]"
                       ".map((s) => s.textContent)")
    check(rows == ["stages 0\u20131", "stage 2", "stage 3"], f"memory: {rows}")
    tables = browser.run("[...document.querySelectorAll('#reasons summary')]"
                         ".map((s) => s.textContent)")
    networks = [t for t in tables if t.startswith("Network")]
    check(len(plan["network"]) == 2 and len(networks) == 1 and
          "west>east, east>west" in networks[0], f"network: {networks}")


def test_front(browser, folder):
    """The chart of the Pareto front has a point for each of its plans."""
    text = JOB.split("layout:")[0].replace("0.004", "0.05")
    write(folder, "front.yaml", text.replace(
        "  gpus_per_node: 1\n", "  gpus_per_node: 1\n  usd_per_gpu_hour: 2\n"))
    longhaul(folder, "plan", "front.yaml", "--no-optimal", "--pareto", "-o",
             "front.json", "--html", "front.html", "-q")
    with open(os.path.join(folder, "front.json"), encoding="utf-8") as f:
        plan = json.load(f)
    front, knee = plan["front"], plan["front_knee"]
    browser.open(os.path.join(folder, "front.html"))
    points = browser.run("[...document.querySelectorAll('.point title')]"
                         ".map((t) => t.textContent)")
    check(len(front) > 1 and len(points) == len(front) and
          all("USD" in text for text in points), f"front: {points}")
    marks = browser.run("[...document.querySelectorAll('.marks li')]"
                        ".map((t) => t.textContent)")
    cheaper = 1 - front[knee]["cost"]["usd"] / front[0]["cost"]["usd"]
    check(any(m.startswith("this plan") for m in marks) and any(
        m.startswith(f"knee: {100 * cheaper:.0f} % cheaper") for m in marks),
        f"front: marks {marks}, the knee is {knee}")


def test_varied(browser, plan):
    """The histogram contains every iteration that the plan sampled."""
    told = plan["jitter"]
    says = browser.run("document.querySelector('#varied .note').textContent")
    for key in ("mean_s", "p50_s", "p95_s", "p99_s"):
        ms = f"{told[key] * 1e3:.4g}"
        check(ms in says, f"varied: {key} is {ms} ms: {says}")
    bars = browser.run("[...document.querySelectorAll('#varied .times title')]"
                       ".map((t) => t.textContent)")
    counts = [number(text.split(": ")[1]) for text in bars]
    check(sum(counts) == told["samples"] == 1000 and len(bars) > 20,
          f"varied: {bars}")
    marks = browser.run("[...document.querySelectorAll('#varied .mark-text')]"
                        ".map((t) => t.textContent.split(/[\\d.]+\u00a0/)[0])")
    check(sorted(marks) == ["95 % within ", "99 % within ", "mean ",
                            "without jitter "], f"varied: marks {marks}")


def two_plans(folder):
    """Makes the plan, and one with twice the replicas; their report is
    two.html."""
    write(folder, "other.yaml",
          JOB.replace("pipeline: 4, data: 1", "pipeline: 2, data: 2"))
    longhaul(folder, "plan", "other.yaml", "--no-optimal", "-o", "other.json",
             "-q")
    longhaul(folder, "report", "plan.json", "other.json", "-o", "two.html")
    with open(os.path.join(folder, "other.json"), encoding="utf-8") as f:
        return os.path.join(folder, "two.html"), json.load(f)


def test_two_plans(browser, folder, plan):
    path, other = two_plans(folder)
    browser.open(path)
    browser.wait("document.documentElement.dataset.asking !== '1'")
    rows = ("Object.fromEntries([...document.querySelectorAll("
            "'#differences tbody tr:not(.group)')].map((r) => [r.cells[0]"
            ".textContent, [...r.cells].slice(1).map((c) => c.textContent)]))")
    shown = browser.run(rows)
    check(browser.run("document.title") == "plan.json and other.json",
          "title of two plans")
    check(browser.run("document.querySelectorAll('.trace').length") == 2,
          "two timelines")
    layouts = [p["layout"] for p in (plan, other)]
    check([shown["pipeline"][:2], shown["data"][:2]] == [
        [str(x["pipeline"]) for x in layouts], [str(x["data"]) for x in
                                                layouts]], f"layout: {shown}")
    for name, value in {
            "iteration": lambda p: p["iteration_s"] * 1e3,
            "tokens per second": lambda p: p["tokens_per_s"],
            "model FLOPs utilisation": lambda p: p["mfu"] * 100}.items():
        a, b = value(plan), value(other)
        texts = shown[name]
        check(abs(number(texts[0]) - a) < 0.51 and
              abs(number(texts[1]) - b) < 0.51, f"{name}: {texts}, {a}, {b}")
        by = 100 * (b / a - 1)
        check(texts[2] == f"{'+' if by > 0 else chr(0x2212)}{abs(by):.1f} %",
              f"{name}: {texts[2]}, not {by}")
        good = (by > 0) == (name != "iteration")
        check(browser.run("[...document.querySelectorAll('#differences tr')]"
                          f".find((r) => r.cells[0].textContent === '{name}')"
                          ".cells[3].className") ==
              ("num down" if good else "num up"), f"{name}: colour")
    peaks = [p["peak_memory_bytes"] / 2 ** 20 for p in (plan, other)]
    check(all(abs(number(text) - peak) < 0.06 for text, peak in
              zip(shown["peak"], peaks)), f"peak: {shown['peak']} {peaks}")
    check("tensor" not in shown, "what is alike is shown")
    browser.run("document.querySelector('#differences .panel-head > button')"
                ".click()")
    check(browser.run(rows)["tensor"][:2] == ["1", "1"],
          "what is alike is not shown on demand")
    jobs = browser.run(rows)
    check([jobs[k][0] for k in ("sequences per iteration", "tokens per sequence",
                                "precision", "pass times from")] ==
          ["12", "32", "fp32", plan["cost_source"]], f"job: {jobs}")
    cards = dict(browser.run(CARDS))
    check(number(cards["Iteration"]) == round(plan["iteration_ns"] / 1e6, 3) and
          all("; plan.json" in cards[k] for k in ("Makespan", "Iteration",
              "Tokens per second", "Model FLOPs utilisation", "Peak memory")),
          f"cards are not of the first plan: {cards}")
    check(not browser.troubles(), f"two plans: {browser.troubles()}")


CARDS = ("[...document.querySelectorAll('.card')].map((c) => [c.children[0]."
         "textContent, c.children[1].textContent + '; ' + c.children[2]"
         ".textContent])")
LONG = "a-datacenter-far-from-the-others-with-a-long-name"
MIXED = f"""longhaul: job/1
model: {{layers: 9, hidden: 64, ffn: 128, heads: 4, vocab: 256}}
training: {{global_batch: 12, sequence: 32, precision: fp32}}
cluster:
  gpus_per_node: 1
  memory_reserve: 0%
  fabric: {{gbps: 10, latency_us: 50}}
  datacenters:
    - {{name: {LONG}-west, nodes: 1,
       gpu: {{tflops: 0.05, memory_gib: 0.006, memory_gbps: 20}}}}
    - {{name: {LONG}-east, nodes: 2,
       gpu: {{tflops: 0.2, memory_gib: 0.5, memory_gbps: 80}}}}
  links: [{{between: [{LONG}-west, {LONG}-east], latency_ms: 1, gbps: 1}}]
layout: {{tensor: 1, context: 1, pipeline: 3, data: 1, micro_batch: 1}}
"""


def test_mixed(browser, folder):
    """If GPUs differ, each peak names its device, and its parts add up. Long
    names do not widen the page. Equal GPUs have one row."""
    write(folder, "mixed.yaml", MIXED)
    longhaul(folder, "plan", "mixed.yaml", "--no-optimal", "-o", "mixed.json",
             "--html", "mixed.html", "-q")
    longhaul(folder, "report", "mixed.json", "plan.json", "-o", "both.html")
    longhaul(folder, "report", "mixed.json", "mixed.json", "-o", "same.html")
    with open(os.path.join(folder, "mixed.json"), encoding="utf-8") as f:
        plan = json.load(f)
    idle = "document.documentElement.dataset.asking !== '1'"
    peak = plan["peak_memory_bytes"] / 2 ** 20
    held = [sum(v for k, v in m.items() if k.endswith("_bytes"))
            for m in plan["memory"]]
    check(max(held) > plan["peak_memory_bytes"],
          f"the fullest device holds most: {held}, {plan['peak_memory_bytes']}")
    browser.open(os.path.join(folder, "mixed.html"))
    browser.wait(idle)
    card = dict(browser.run(CARDS))["Peak memory"]
    most = re.search(r"highest peak is ([\d.]+)", card)
    check(abs(number(card) - peak) < 0.01 and most and
          abs(float(most[1]) - max(held) / 2 ** 20) < 0.01,
          f"peaks: {card}, {peak}, {held}")
    check("Peak with least free memory" in browser.run(
        "document.querySelector('#rows thead').textContent"), "table of peaks")
    browser.open(os.path.join(folder, "both.html"), size=(800, 1200))
    browser.wait(idle)
    browser.run("document.querySelector('#differences .panel-head > button')"
                ".click()")
    wide = browser.run("(() => { const s = document.querySelector("
                       "'#differences .scroll'); return [s.scrollWidth, "
                       "s.clientWidth]; })()")
    check(wide[0] <= wide[1], f"differences are wider than the page: {wide}")
    parts = dict(browser.run(
        "[...document.querySelectorAll('#differences tbody tr:not(.group)')]"
        ".map((r) => [r.cells[0].textContent, r.cells[1].textContent])"
        ".slice(-11)"))
    mib = sum(number(parts[k]) / (2 ** 20 if "bytes" in parts[k] else 1)
              for k in ("parameters", "gradients", "optimizer", "activations",
                        "buffers", "temporary"))
    check(abs(mib - number(parts["peak"])) < 0.05, f"parts: {mib}, {parts}")
    browser.open(os.path.join(folder, "same.html"))
    browser.wait(idle)
    text = browser.run("document.querySelector('#differences tbody')"
                       ".textContent")
    check(text.startswith("No differences in "), f"two alike: {text}")
    check(not browser.troubles(), f"mixed: {browser.troubles()}")


def test_optical(browser, folder):
    """Pages of optical networks have the report's style, in both themes."""
    here = os.path.dirname(os.path.abspath(__file__))
    example = os.path.join(here, "..", "..", "examples", "optical-nsfnet.yaml")
    policies = json.loads(longhaul(folder, "optical", example, "--html",
                                   "o.html", "--json"))["policies"]
    for width in (1500, 800):
        browser.open(os.path.join(folder, "o.html"), size=(width, 1200),
                     dark=width == 800)
        theme = "dark" if width == 800 else "light"
        check(browser.run("document.documentElement.dataset.theme") == theme,
              f"optical: not {theme}")
        rows = dict(browser.run(
            "[...document.querySelectorAll('tbody tr')].map((r) => "
            "[r.cells[0].textContent, r.cells[1].textContent])"))
        check(rows == {name: f"{p['iteration_s']:.3f} s"
                       for name, p in policies.items()}, f"optical: {rows}")
        best = min(policies, key=lambda name: policies[name]["iteration_s"])
        check(browser.run("document.querySelector('tr.best').cells[0]"
                          ".textContent") == best and browser.run(
              "document.querySelector('details[open] summary').textContent")
              == best, "optical: the best is not marked")
        check(browser.run("document.documentElement.scrollWidth") <= width,
              f"optical: wider than {width} pixels")
        f, accent = browser.run(
            "['.f', '.mean'].map((n) => getComputedStyle("
            "document.querySelector(n)).fill)")
        check(f != accent and "rgb(0, 0, 0)" not in (f, accent),
              f"optical: fills {f}, {accent}")
    closed = "document.querySelectorAll('details:not([open])').length"
    check(browser.run(closed) == len(policies) - 1, "optical: all open")
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    check(browser.run(closed) == 0, "optical: folded on paper")
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    check(browser.run(closed) == len(policies) - 1, "optical: open afterwards")
    browser.run("document.getElementById('theme').click()")
    check(browser.run("document.documentElement.dataset.theme") == "light",
          "optical: the theme stays")
    check(not browser.troubles(), f"optical: {browser.troubles()}")


def test_decisions(browser, folder):
    """The page of an adaptive run contains its decisions, readable at 800
    pixels."""
    here = os.path.dirname(os.path.abspath(__file__))
    examples = os.path.join(here, "..", "..", "examples")
    told = longhaul(
        folder, "simulate", os.path.join(examples, "adaptra-8-stages.yaml"),
        "--schedule", "zb-h2", "--coupled", "1", "--receives", "late",
        "--events", os.path.join(examples, "adaptra-trace.yaml"), "--steps",
        "500", "--adapt", "--html", "a.html", "--json")
    switches = json.loads(told)["switches"]
    browser.open(os.path.join(folder, "a.html"), size=(800, 1200), dark=True)
    heads = browser.run("['#reasons h2', '#reasons h3'].map((n) => "
                        "document.querySelector(n).textContent)")
    check(heads == ["Decisions and their reasons", "Switches and their reasons"],
          f"decisions: {heads}")
    rows = browser.run("[...document.querySelectorAll('#reasons tbody tr')]"
                       ".map((r) => [r.cells[0].textContent, "
                       "r.cells[4].textContent])")
    check(rows == [[str(s["step"]), s["why"]] for s in switches] and rows,
          f"decisions: {rows}, {switches}")
    small = browser.run(
        "Math.min(...[...document.querySelectorAll('.course text')].map((t) => "
        "t.getBoundingClientRect().height))")
    check(small >= 9, f"decisions: text of the picture is {small} pixels high")
    lines = browser.run("[...document.querySelectorAll('.course path[style]')]"
                        ".map((p) => getComputedStyle(p).stroke)")
    check(len(set(lines)) == 2, f"decisions: colours {lines}")
    check(not browser.troubles(), f"decisions: {browser.troubles()}")


def test_memory(browser, plan):
    rows = browser.run(
        "[...document.querySelectorAll('.memory-row')].map((r) => "
        "[r.lastChild.textContent, r.classList.contains('near')])")
    check(len(rows) == len(plan["memory"]) == 4, f"memory: {rows}")
    peak = max(number(text.split(", ")[1]) for text, _ in rows)
    for text, near in rows:
        check(near == (number(text.split(", ")[1]) >= 95), f"{text}: {near}")
    check(abs(peak - 100 * plan["peak_memory_bytes"] /
              plan["memory_limit_bytes"]) < 0.06, f"peak {peak}")


def test_fold_and_sort(browser):
    folded = ("document.querySelector('#links .scroll').getClientRects()"
              ".length === 0")
    fold = "document.querySelector('#links .fold')"
    state = f"{fold}.getAttribute('aria-expanded')"
    check(browser.run(folded) and browser.run(state) == "false",
          "details below a decision are open from the beginning")
    browser.run(f"{fold}.click()")
    check(not browser.run(folded) and browser.run(state) == "true",
          "does not unfold")
    browser.run(f"{fold}.click()")
    check(browser.run(folded), "does not fold")
    browser.run(f"{fold}.click()")
    names = ("[...document.querySelectorAll('#links tbody tr')].map((r) => "
             "[r.cells[0].textContent, parseFloat(r.cells[2].textContent)])")
    head = "document.querySelectorAll('#links th')[%d].firstChild.click()"
    browser.run(head % 0)
    rows = browser.run(names)
    check(rows == sorted(rows, key=lambda r: r[0]), f"by name: {rows}")
    browser.run(head % 2)
    busy = [r[1] for r in browser.run(names)]
    check(busy == sorted(busy), f"by use: {busy}")
    browser.run(head % 2)
    busy = [r[1] for r in browser.run(names)]
    check(busy == sorted(busy, reverse=True), f"by use, falling: {busy}")


# Table cells that continue in the next line.
BROKEN = """[...document.querySelectorAll('table.texts td')].flatMap((td) => {
  const at = td.firstChild, range = document.createRange();
  if (!at || at.nodeType !== Node.TEXT_NODE) return [];
  return [...at.data.matchAll(/[\\w.]+/g)].filter((word) => {
    range.setStart(at, word.index);
    range.setEnd(at, word.index + word[0].length);
    return new Set([...range.getClientRects()].map((r) => r.top)).size > 1;
  }).map((word) => word[0]);
})"""


def test_words(browser, width):
    check(browser.run("document.querySelectorAll('table.texts').length") > 1,
          "no tables of texts")
    broken = browser.run(BROKEN)
    check(not broken, f"{width} pixels: broken words {broken}")
    over = browser.run("""[...document.querySelectorAll('.facts dt')].filter(
      (dt) => {
        const range = document.createRange();
        range.selectNodeContents(dt);
        return range.getClientRects().length > 1;
      }).map((dt) => dt.textContent)""")
    check(not over, f"{width} pixels: names of facts in two lines: {over}")


def links_of(browser, path, address):
    browser.open(path, "check=1" + address)
    browser.wait("!!document.getElementById('check')")
    result = json.loads(browser.run(
        "document.getElementById('check').textContent"))
    return result["links"][0], result


# Clicks the names of the timeline's rows until quiet links are displayed.
CLICK_FOLD = """(() => {
  const canvas = document.querySelector('.view canvas');
  const box = canvas.getBoundingClientRect();
  const button = document.getElementById('toggle-quiet');
  for (let y = 30; y < box.height; y += 6) {
    for (const type of ['pointermove', 'pointerdown', 'pointerup'])
      canvas.dispatchEvent(new PointerEvent(type, { bubbles: true, button: 0,
        pointerId: 1, clientX: box.left + 40, clientY: box.top + y }));
    if (button.getAttribute('aria-pressed') === 'true') return;
  }
})()"""
UNFOLDS = {
    "button": "document.getElementById('toggle-quiet').click()",
    "key": "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'q'}))",
    "click": "HTMLElement.prototype.setPointerCapture = () => {};" + CLICK_FOLD,
}


def test_unfolding(browser, path):
    tall = ("document.querySelector('.view canvas').clientHeight + "
            "document.querySelector('.view').lastChild.clientHeight")
    for how, act in UNFOLDS.items():
        browser.open(path, size=(1500, 3000))
        browser.wait("document.documentElement.dataset.asking !== '1'")
        before = browser.run(tall)
        browser.run(act)
        check(browser.run("document.getElementById('toggle-quiet')"
                          ".getAttribute('aria-pressed')") == "true" and
              browser.run(tall) > before + 40,
              f"quiet links do not unfold by {how}")


def test_far_links_first(browser, path):
    rows, result = links_of(browser, path, "")
    check({name for name, _ in rows} == {"west>east", "east>west"},
          f"links, quiet ones folded: {rows}")
    shown, _ = links_of(browser, path, "&quiet=1")
    check(shown[:2] == rows and len(shown) == 6, f"links: {shown}")
    check(min(h for _, h in shown[:2]) > max(h for _, h in shown[2:]),
          f"heights: {shown}")
    check(result["sentence"] == "takes 80.6\u00a0GiB more than 80.5\u00a0GiB",
          result["sentence"])
    check(result["beside"] > 0, "numbers beside the timeline begin "
          f"{-result['beside']} pixels within it")


def test_contrast(browser, path):
    for theme in ("light", "dark"):
        browser.open(path, f"theme={theme}")
        browser.wait(f"document.documentElement.dataset.theme === '{theme}'")
        colors = browser.run(
            "Object.fromEntries(['ink', 'soft', 'faint', 'good', 'bad', "
            "'panel', 'bg'].map((n) => [n, getComputedStyle("
            "document.documentElement).getPropertyValue('--' + n).trim()]))")
        for text in ("ink", "soft", "faint", "good", "bad"):
            for behind in ("panel", "bg"):
                ratio = contrast(colors[text], colors[behind])
                check(ratio >= AA,
                      f"{theme}: {text} on {behind} has {ratio:.2f}")


def main():
    browser_path = chromium.find()
    with tempfile.TemporaryDirectory() as folder:
        plan = made(folder)
        path = os.path.join(folder, "r.html")
        if browser_path:
            with chromium.Browser(browser_path) as browser:
                for size in ((1500, 1200), (800, 1200), (420, 900)):
                    check(browser.open(path, size=size), "does not open")
                    browser.wait("document.documentElement.dataset.asking "
                                 "!== '1'")
                    check(browser.run("document.documentElement.scrollWidth")
                          <= size[0], f"wider than {size[0]} pixels")
                    test_decision(browser, plan)
                    test_cards(browser, plan)
                    test_memory(browser, plan)
                    test_varied(browser, plan)
                    test_fold_and_sort(browser)
                    test_words(browser, size[0])
                test_merged(browser, folder)
                test_front(browser, folder)
                test_two_plans(browser, folder, plan)
                test_mixed(browser, folder)
                test_optical(browser, folder)
                test_decisions(browser, folder)
                test_far_links_first(browser, path)
                test_unfolding(browser, path)
                test_contrast(browser, path)
                check(not browser.troubles(), f"{browser.troubles()}")
    finish(*[] if browser_path else ["chromium"])


main()
