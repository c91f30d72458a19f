#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The playground's page, in headless Chromium: edits a job, and plans it to the
same bytes as the program.

    test_playground.py LONGHAUL PLAYGROUND

PLAYGROUND is "yes" where the build has it."""
import json
import os
import re
import sys
import tempfile

import chromium
from pages import check, finish, longhaul, program, write

MOST_BYTES = 3 << 20
JOB = """# A small job.
longhaul: job/1
model: {layers: 4, hidden: 64, ffn: 128, heads: 4, vocab: 256}
training: {global_batch: 12, sequence: 32, precision: fp32, zero: 1, recompute: none}
cluster:
  gpu: {tflops: 0.1, memory_gib: 4, memory_gbps: 20}
  gpus_per_node: 1  # a note
  fabric: {gbps: 10, latency_us: 50}
  datacenters:
    - {name: "west \u00fc", nodes: 2}
    - name: east
      nodes: 2
  links: [{between: ["west \u00fc", east], latency_ms: 1, gbps: 1}]
layout:
  tensor: 1
  pipeline: 4
"""
CONFIG = """{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
"vocab_size": 256, "tie_word_embeddings": false}"""
READ = "document.documentElement.dataset.reading === '0'"
FRAME = "document.querySelector('#result iframe').contentDocument"


def text_of(browser, name):
    return browser.run(f"document.getElementById('{name}').textContent")


def job_text(browser):
    return browser.run("document.getElementById('text').value")


def read(browser, what):
    check(browser.wait(READ), f"{what}: not read")


def write_job(browser, text):
    browser.run("((text) => { const t = document.getElementById('text');"
                "t.value = text; t.dispatchEvent(new Event('input')); })"
                f"({json.dumps(text)})")
    read(browser, "a text")


def set_field(browser, path, value):
    browser.run("((path, value) => { const f = document.querySelector("
                "`[data-path=\"${CSS.escape(path)}\"]`); f.value = value;"
                "f.dispatchEvent(new Event('change')); })"
                f"({json.dumps(path)}, {json.dumps(value)})")
    read(browser, path)


def drop(browser, **files):
    browser.run("((files) => { const d = new DataTransfer();"
                "for (const [name, text] of Object.entries(files))"
                " d.items.add(new File([text], name.replace('_', '.')));"
                "document.dispatchEvent(new DragEvent('drop',"
                " {dataTransfer: d, cancelable: true})); })"
                f"({json.dumps(files)})")


def test_examples(browser, path):
    check(os.path.getsize(path) <= MOST_BYTES,
          f"{os.path.getsize(path)} bytes")
    check(browser.open(path), "does not open")
    read(browser, "the first job")
    names = browser.run("[...document.getElementById('presets').options]"
                        ".map((x) => x.value).filter((x) => x)")
    check(len(names) >= 8, f"examples: {names}")
    for name in names:
        browser.run("((name) => { const p = document.getElementById('presets');"
                    "p.value = name; p.dispatchEvent(new Event('change')); })"
                    f"({json.dumps(name)})")
        read(browser, name)
        check("billion parameters" in text_of(browser, "told"),
              f"{name}: {text_of(browser, 'told')}")
        check(browser.wait(f"location.hash.includes({json.dumps(name)})"),
              f"{name}: not in the address")


def test_form(browser):
    write_job(browser, JOB)
    fields = browser.run("[...document.querySelectorAll('[data-path]')]"
                         ".map((x) => x.dataset.path)")
    check({"training.sequence", "cluster.datacenters[1].nodes",
           "cluster.links[0].between", "layout.pipeline"} <= set(fields),
          f"fields: {fields}")
    for field, value, before, now in (
            ("cluster.gpus_per_node", "2", "gpus_per_node: 1  # a note",
             "gpus_per_node: 2  # a note"),
            ("cluster.datacenters[0].name", "w: x", "{name: \"west \u00fc\",",
             '{name: "w: x",'),
            ("cluster.datacenters[1].nodes", "3", "nodes: 2\n  links",
             "nodes: 3\n  links"),
            ("cluster.links[0].between", "[a, b]", '["west \u00fc", east]',
             "[a, b]")):
        write_job(browser, JOB)
        set_field(browser, field, value)
        check(job_text(browser) == JOB.replace(before, now),
              f"{field}: {job_text(browser)}")


def test_keys(browser):
    """Each key of the form is added once; removing it restores the text."""
    for text in (JOB, JOB.replace("training: {", "training: {\n    ")):
        write_job(browser, text)
        added = browser.run("[...document.querySelectorAll('[data-add]')]"
                            ".flatMap((s) => [...s.options].slice(1).map("
                            "(o) => [s.dataset.add, o.text]))")
        check(len(added) > 20, f"keys to add: {added}")
        for part, key in added:
            write_job(browser, text)
            browser.run("((part, key) => { const s = document.querySelector("
                        "`[data-add=${part}]`); s.value = key;"
                        "s.dispatchEvent(new Event('change')); })"
                        f"({json.dumps(part)}, {json.dumps(key)})")
            read(browser, key)
            check(f"{key}: " in job_text(browser) and
                  "unknown key" not in text_of(browser, "told"),
                  f"{part}.{key}: {text_of(browser, 'told')}")
            # A part that did not exist before remains, empty.
            if part == "framework":
                continue
            browser.run("document.querySelector('[data-leave=\""
                        f"{part}.{key}\"]').click()")
            read(browser, key)
            check(job_text(browser) == text,
                  f"{part}.{key} left out: {job_text(browser)}")
    write_job(browser, JOB)
    for leave in ("cluster.datacenters[1].name", "training.sequence",
                  "layout.tensor", "training.recompute"):
        browser.run(f"document.querySelector('[data-leave=\"{leave}\"]')"
                    ".click()")
        read(browser, leave)
    now = JOB.replace("- name: east\n      nodes", "- nodes")
    for part in (" sequence: 32,", "  tensor: 1\n", ", recompute: none"):
        now = now.replace(part, "", 1)
    check(job_text(browser) == now, f"left out: {job_text(browser)}")


def test_errors(browser):
    for before, after, line, key, says in (
            ("nodes: 2}", "nodes: two}", 10, "cluster.datacenters[0].nodes",
             "must be a"),
            ("tensor: 1", "tensr: 1", 15, "layout.tensr", "'tensor'"),
            ("heads: 4", "heads: 4]", 3, "", "")):
        write_job(browser, JOB.replace(before, after))
        check(browser.run("document.querySelector('#gutter .bad').textContent")
              == str(line), f"{after}: not at line {line}")
        check(says in text_of(browser, "flag") and browser.run(
            "!document.getElementById('flag').hidden"),
            f"{after}: {text_of(browser, 'flag')}")
        wrong = browser.run("document.querySelector('[aria-invalid]')"
                            "?.dataset.path || ''")
        check(wrong == key, f"{after}: the field {wrong!r} is marked")
        check(browser.run("document.getElementById('plan').disabled"),
              f"{after} can be planned")
    write_job(browser, JOB)
    check(not browser.run("document.getElementById('plan').disabled"),
          "what is mended cannot be planned")


def plan(browser):
    browser.run("document.getElementById('plan').click()")
    check(browser.wait("document.documentElement.dataset.plan !== 'running'",
                       300), "the plan does not end")
    check(browser.run("document.documentElement.dataset.plan") == "done",
          f"no plan: {text_of(browser, 'progress')}")


def test_plan(browser, folder):
    write_job(browser, JOB)
    browser.run("document.getElementById('effort').value = '20000'")
    plan(browser)
    check(browser.run("document.documentElement.dataset.quickMs > 0"),
          "no quick plan before the complete one")
    check(browser.wait("document.documentElement.dataset.exploring === '0'") and
          "fits" in text_of(browser, "explored") and
          "with the plan's schedule" in text_of(browser, "explored"),
          f"the plan's memory: {text_of(browser, 'explored')}")
    words = text_of(browser, "command").split()
    check(words[:3] == ["longhaul", "plan", "job.yaml"], f"command: {words}")
    here = os.path.join(folder, "program")
    os.makedirs(here)
    write(here, "job.yaml", JOB)
    longhaul(here, *words[1:])
    for name, button in (("plan.json", "save-plan"),
                         ("report.html", "save-report")):
        saved = os.path.join(folder, name)
        browser.run(f"document.getElementById('{button}').click()")
        browser.until(lambda: os.path.basename(saved) in browser.downloaded())
        with open(saved, "rb") as f, open(os.path.join(here, name), "rb") as g:
            check(f.read() == g.read(), f"{name} is not the program's")
    with open(os.path.join(here, "plan.json"), encoding="utf-8") as f:
        ns = round(json.load(f)["iteration_s"] * 1e9)
    check(browser.run("Number(document.documentElement.dataset.iterationNs)")
          == ns, f"not {ns} ns")
    # The report inside the page works like a separate report.
    asked = FRAME + ".documentElement.dataset.asking === '0'"
    makespan = f"Number({FRAME}.documentElement.dataset.makespanNs)"
    check(browser.wait(asked), "the report does not answer")
    first = browser.run(makespan)
    browser.run(f"{FRAME}.querySelector('[data-key=speed]').value = 'x2'")
    browser.run(f"{FRAME}.querySelector('[data-key=speed]')"
                ".dispatchEvent(new Event('change', {bubbles: true}))")
    check(browser.wait(asked) and browser.run(makespan) < first,
          "devices twice as fast change nothing in the report")


def test_cancel(browser, path):
    """Cancels the search of a job that takes long."""
    check(browser.open(path), "does not open")
    read(browser, "the first job")
    browser.run("document.getElementById('plan').click()")
    check(browser.wait("document.getElementById('progress').textContent"
                       ".includes('layout')"), "no progress")
    browser.run("document.getElementById('cancel').click()")
    check(browser.run("document.documentElement.dataset.plan") == "cancelled"
          and not browser.run("document.getElementById('plan').disabled"),
          "not cancelled")
    write_job(browser, JOB)
    browser.run("document.getElementById('effort').value = '20000'")
    plan(browser)


def test_share(browser, path):
    write_job(browser, JOB)
    check(browser.wait("location.hash.startsWith('#job=')"), "not in the address")
    address = browser.run("location.hash.slice(1)")
    check(browser.open(path, address), "the link does not open")
    read(browser, "a shared job")
    check(job_text(browser) == JOB, "the link has another job")
    check(browser.open(path, "job=!!") and browser.wait(
        "document.getElementById('told').textContent.includes('cannot be')"),
        "a broken link is not refused")
    check(browser.open(path, "preset=none") and browser.wait(
        "document.getElementById('told').textContent.includes('no example')"),
        "an unknown example is not refused")


def test_files(browser, path):
    check(browser.open(path), "does not open")
    read(browser, "the first job")
    text = JOB.replace("model: {layers: 4, hidden: 64, ffn: 128, heads: 4, "
                       "vocab: 256}", "model: ./mine.json")
    drop(browser, job_yaml=text)
    check(browser.wait("document.getElementById('told').textContent"
                       ".includes('mine.json')"), "reads no dropped job")
    drop(browser, mine_json=CONFIG)
    check(browser.wait("document.getElementById('told').textContent"
                       ".includes('billion parameters')"),
          f"beside it: {text_of(browser, 'told')}")


def explore(browser, **values):
    """Moves sliders, and returns the answer's text and the stages' rows."""
    for key, value in values.items():
        browser.run("((key, value) => { setKnob(key, value);"
                    "document.getElementById(`knob-${key}`).dispatchEvent("
                    "new Event('input')); })"
                    f"({json.dumps(key)}, {json.dumps(value)})")
    check(browser.wait("document.documentElement.dataset.exploring === '0'"),
          f"{values}: no answer")
    return text_of(browser, "explored"), browser.run(
        "[...document.querySelectorAll('#stages .memory-row')].map((r) => "
        "[r.firstChild.textContent, ...[...r.querySelectorAll('i')].map("
        "(i) => i.title), r.lastChild.textContent])")


def test_memory(browser, folder):
    """The explorer has the memory that a plan with its layout and schedule
    has, and writes the layout into the job."""
    write_job(browser, JOB)
    text, rows = explore(browser, tensor=1, pipeline=4, data=1, micro_batch=2,
                         zero=1, recompute="full")
    check("4 of 4 GPUs; fits" in text and "1f1b" in text, f"explorer: {text}")
    browser.run("document.getElementById('fix-layout').click()")
    check(browser.wait("document.getElementById('text').value"
                       ".includes('chunks_per_device: 1')"), "not written")
    read(browser, "the explored layout")
    job = job_text(browser)
    check("micro_batch: 2" in job and "recompute: full" in job, f"job: {job}")
    write(folder, "explored.yaml", job.replace(
        "  tensor: 1", "  schedule: 1f1b\n  tensor: 1"))
    longhaul(folder, "plan", "explored.yaml", "-o", "explored.json",
             "--no-optimal", "-q")
    with open(os.path.join(folder, "explored.json"), encoding="utf-8") as f:
        plan = json.load(f)
    shown = []
    for row in rows:
        first, last = (re.findall(r"\d+", row[0]) * 2)[:2]
        shown += [row[1:7]] * (int(last) - int(first) + 1)
    kinds = ("parameters", "gradients", "optimizer", "activations", "buffers",
             "temporary")
    want = [[f"{k}: {m[k + '_bytes'] / 2 ** 30:.2f} GiB" for k in kinds]
            for m in plan["memory"]]
    check(shown == want, f"explorer: {shown}, {want}")
    check(f"{plan['iteration_s']:.3f} s" in text, f"explorer: {text}")
    text, rows = explore(browser, data=8)
    check("needs 32 GPUs" in text and not rows, f"too many GPUs: {text}")
    write_job(browser, JOB.replace("memory_gib: 4", "memory_gib: 0.001"))
    text, rows = explore(browser, data=1)
    check("of 4 stages do not fit" in text and rows, f"too large: {text}")


def test_scrolling(browser, path):
    """Nothing inside the page scrolls, and nothing is wider than a phone."""
    for size in ((1400, 1000), (420, 900)):
        check(browser.open(path, size=size), "does not open")
        write_job(browser, JOB)
        plan(browser)
        check(browser.wait(FRAME + ".documentElement.dataset.asking === '0'"),
              "no report")
        inside = browser.run(
            "(() => { const all = (d) => [...d.querySelectorAll('*')].filter("
            "(n) => n.scrollHeight > n.clientHeight + 1 && /auto|scroll/.test("
            "d.defaultView.getComputedStyle(n).overflowY)).map((n) => n.id ||"
            f" n.className); return [...all(document), ...all({FRAME})]; }})()")
        check(not inside, f"{size}: {inside} scroll")
        wide = browser.run("[document.documentElement.scrollWidth, "
                           f"{FRAME}.documentElement.scrollWidth]")
        check(max(wide) <= size[0], f"{size}: {wide} pixels wide")
        cut = browser.run(f"{FRAME}.documentElement.scrollHeight - "
                          "document.querySelector('#result iframe')"
                          ".clientHeight")
        check(cut <= 1, f"{size}: the report is cut by {cut} pixels")
    # The report has the page's theme.
    theme = "{}.documentElement.dataset.theme"
    before = browser.run(theme.format("document"))
    browser.run("document.getElementById('theme').click()")
    check(browser.run(theme.format("document")) != before and browser.wait(
        f"{theme.format('document')} === {theme.format(FRAME)}", 10),
        "the report keeps the other theme")


def test_new(browser, folder):
    browser.run("document.getElementById('new').open = true;"
                "document.getElementById('new-model').value = 'llama3-8b';"
                "document.getElementById('add-site').click();"
                "document.querySelectorAll('#new-sites button')[2].click();"
                "[['h200', '2'], ['a100-80g', '3']].forEach((site, i) => "
                "site.forEach((value, k) => { siteRows()[i].cells[k + 1]"
                ".firstChild.value = value; }));"
                "document.getElementById('make').click()")
    check(browser.wait("document.getElementById('text').value"
                       ".includes('llama3-8b')"), "no new job")
    read(browser, "a new job")
    made = longhaul(folder, "init", "--model", "llama3-8b", "--gpu",
                    "h200,a100-80g", "--sites", "2", "--nodes", "2,3",
                    "--gpus-per-node", "8", "--latency-ms", "20",
                    "--link-gbps", "3200", "--sequence", "8192")
    check(job_text(browser) == made, "not what `longhaul init` writes")
    browser.run("document.getElementById('new-model').value = 'lama3-8b';"
                "document.getElementById('make').click()")
    check(browser.wait("document.getElementById('new-state').textContent"
                       ".includes('llama3-8b')"), "an unknown model")


def test_without():
    """A build without a part prints which one."""
    done = program(".", "playground")
    check(done.returncode == 1 and "tools/get-wasm.sh" in done.stderr and
          not done.stdout, f"without: {done}")


def main():
    browser_path = chromium.find()
    if sys.argv[2] != "yes":
        test_without()
    elif browser_path:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "playground.html")
            longhaul(folder, "playground", "-o", path)
            with chromium.Browser(browser_path) as browser:
                browser.ask("Page.setDownloadBehavior", behavior="allow",
                            downloadPath=folder)
                test_examples(browser, path)
                test_form(browser)
                test_keys(browser)
                test_errors(browser)
                test_plan(browser, folder)
                check(not browser.troubles(), f"{browser.troubles()}")
                test_cancel(browser, path)
                test_share(browser, path)
                check(not browser.troubles(), f"{browser.troubles()}")
                test_files(browser, path)
                test_new(browser, folder)
                test_memory(browser, folder)
                test_scrolling(browser, path)
                check(not browser.troubles(), f"{browser.troubles()}")
    if sys.argv[2] != "yes":
        finish("the playground; tools/get-wasm.sh gets its sources")
    finish(*[] if browser_path else ["chromium"])


main()
