#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Untrusted text is displayed, never interpreted: no command prints control characters
or bidirectional overrides from a file, a file name or an argument, and JSON keeps
the exact text.
"""
import json
import os
import re
import subprocess

from harness import (ENVIRONMENT, HANGS, PROGRAM, ROOT, WORK, check, finish,
                     test, uniform)

# Permitted in names: a C1 control, direction overrides, a space of no width, a
# tag, an accent.
NAME = "w\u202e\u009b\u2067\u200b\U000e0041\u00e9"
SHOWN = "w\\u202e\\u009b\\u2067\\u200b\\U000e0041\u00e9"
# In YAML's notation, which has no surrogates.
WRITTEN = json.dumps(NAME).replace("\\udb40\\udc41", "\\U000e0041")
# In the notation of YAML and JSON: terminal sequences, a line end, DEL.
ESCAPED = r'"\u001b]0;x\u0007\u001b[31m\n\u007f\u202e\u009b"'
RAW = b"\x1b]0;x\x07\x1b[31m\x7f\xe2\x80\xae\xff\xc2\x9b"

UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-"
                    "\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]")

JOB = """
longhaul: job/1
model: {{layers: 4, hidden: 128, ffn: 384, heads: 4, kv_heads: 2, head_dim: 32,
  vocab: 256}}
training: {{global_batch: 8, sequence: 128, precision: fp32, optimizer: adamw}}
cluster:
  gpu: {{tflops: 0.1, memory_gib: 4, memory_gbps: 20}}
  gpus_per_node: 2
  node_link: {{gbps: 80, latency_us: 10}}
  fabric: {{gbps: 10, latency_us: 50}}
  datacenters:
    - {{name: {0}, nodes: 1}}
    - {{name: {1}, nodes: 1}}
  links:
    - {{between: [{0}, {1}], latency_ms: 2, gbps: 10}}
layout: {{tensor: 1, context: 1, expert: 1, pipeline: 4, data: 1, micro_batch: 1}}
"""
PIPELINE = """
longhaul: pipeline/1
time_unit: ms
microbatches: 4
devices: 2
backward: split
memory_unit: {0}
chunks:
  - {{device: 0, F: 10, D: 10, W: 10}}
  - {{device: 1, F: 10, D: 10, W: 10}}
links:
  - {{from: 0, to: 1, latency: 10, transfer: 1, name: {0}}}
memory_limit: 400
"""


def run(*args, stdin=b"", env=None):
    return subprocess.run([PROGRAM, *args], input=stdin, cwd=WORK, check=False,
                          capture_output=True, timeout=HANGS,
                          env={**ENVIRONMENT, **(env or {})})


def is_clean(what, text):
    """Tests for UTF-8 without control characters except line ends."""
    try:
        found = UNSEEN.search(text.decode())
    except UnicodeDecodeError as error:
        return check(False, f"{what}: {error}: {text[:300]!r}")
    return check(not found, f"{what}: {found and found[0]!r} in "
                            f"{text[:2000]!r}")


def clean(*args, code=None, **more):
    """Runs the program; neither of its streams may control a terminal."""
    done = run(*args, **more)
    what = f"longhaul {args}"
    is_clean(what, done.stdout)
    is_clean(what, done.stderr)
    check(done.returncode in ((0, 1, 2) if code is None else (code,)),
          f"{what}: status {done.returncode}, expected {code}: "
          f"{done.stderr[:300]!r}")
    # One line for the error; a usage error has a second line that refers to the
    # help.
    lines = done.stderr.decode(errors="replace").split("\n")
    check(len(lines) <= 3, f"{what}: {lines}")
    return done


def make_inputs():
    (WORK / "p.yaml").write_text(PIPELINE.format(WRITTEN))
    (WORK / "job.yaml").write_text(JOB.format(WRITTEN, "east"))
    done = run("plan", "job.yaml", "--no-optimal", "-o", "plan.json")
    check(done.returncode == 0, f"plan: {done.stderr!r}")
    run("schedule", "p.yaml", "-m", "1f1b", "-o", "s.csv")
    run("simulate", "p.yaml", "-s", "s.csv", "--trace", "trace.json")
    run("schedule", "p.yaml", "-m", "optimal", "-o", "o.csv",
        "--certificate", "proof.json")
    (WORK / "log.jsonl").write_text(
        '{"step": 0, "seconds": 0.1, "loss": null}\n')
    for name in ("p.yaml", "job.yaml", "plan.json", "s.csv", "trace.json",
                 "proof.json"):
        check((WORK / name).stat().st_size > 0, f"{name} was made")


@test
def names_are_shown_and_tables_stay_straight():
    make_inputs()
    done = clean("simulate", "p.yaml", "-s", "1f1b", code=0)
    text = done.stdout.decode()
    check(SHOWN in text, f"simulate: {text}")
    # Columns are aligned as without such a name if there is space.
    for name, wide in (("k\u202ek", 8), ("\u00e9" * 20, 20), ("\u4e2d" * 4, 8)):
        (WORK / "q.yaml").write_text(PIPELINE.format(json.dumps(name)))
        text = clean("simulate", "q.yaml", "-s", "1f1b").stdout.decode()
        head, row = text[text.rindex("\nLinks\n"):].splitlines()[2:4]
        extra = len(name) - wide if "\u4e2d" in name else 0
        check(row.index("%") == head.index("in use") + 5 + extra,
              f"columns: {head!r} {row!r}")
    for args in (["explain", "p.yaml", "-s", "1f1b"], ["compare", "p.yaml"],
                 ["schedule", "p.yaml", "-m", "1f1b", "-o", "x.csv"],
                 ["compare", "p.yaml", "--sweep", "latency=0:1:0.5"],
                 ["train", "p.yaml", "-s", "1f1b", "--steps", "1"],
                 ["check", "p.yaml", "s.csv", "--certificate", "proof.json"]):
        clean(*args)
    done = clean("plan", "job.yaml", "--no-optimal", "--sensitivity",
                 "--what-if", "latency=4", "--pareto", code=0)
    check(SHOWN in done.stdout.decode(), f"plan: {done.stdout.decode()}")
    for args in (["simulate", "plan.json"], ["explain", "plan.json"],
                 ["report", "plan.json"], ["compare", "plan.json"],
                 ["report", "--predicted", "trace.json", "--measured",
                  "trace.json"],
                 ["export", "plan.json", "--to", "megatron"],
                 ["export", "plan.json", "--to", "torchtitan"],
                 ["export", "plan.json", "--to", "chrome"],
                 ["plan", "job.yaml", "--no-optimal", "--json"]):
        clean(*args)


@test
def json_keeps_the_exact_text_in_escapes():
    make_inputs()
    done = clean("simulate", "p.yaml", "-s", "1f1b", "--json", code=0)
    found = json.loads(done.stdout)
    check(found["links"][0]["name"] == NAME and
          found["memory_unit"] == NAME, f"simulate --json: {found['links']}")
    check(b"\\u202e" in done.stdout, "escaped in the text")
    done = clean("plan", "job.yaml", "--no-optimal", "--json", code=0)
    check(json.dumps(NAME)[1:-1] in json.dumps(json.loads(done.stdout)),
          "plan --json has the site's name")
    # Tests the displayed form of a name that is not UTF-8.
    os.rename(WORK / "p.yaml", os.fsencode(WORK) + b"/\xff" + RAW + b".yaml")
    done = clean("compare", b"\xff" + RAW + b".yaml", "--html", "c.html",
                 "--json", code=0)
    found = json.loads(done.stdout)["rows"][0]["pipeline"]
    check(found.startswith("\\xff\\x1b]0;x\\x07"), f"compare: {found}")
    is_clean("the report of compare", (WORK / "c.html").read_bytes())


@test
def reports_show_names_too():
    make_inputs()
    name = b"n" + RAW + b".yaml"
    os.rename(WORK / "p.yaml", os.fsencode(WORK) + b"/" + name)
    clean("simulate", name, "-s", "1f1b", "--html", "s.html", "--svg", "s.svg",
          "--trace", "t.json", code=0)
    for made in ("s.html", "s.svg"):
        text = (WORK / made).read_bytes()
        is_clean(made, text)
        # Pages are made from JSON, whose characters have 16 bits.
        seen = text.replace(b"\\\\u", b"\\u").replace(
            b"\\udb40\\udc41", b"\\U000e0041")
        check(SHOWN.encode() in seen,
              f"{made} shows the link's name")
    check(json.loads((WORK / "t.json").read_bytes()) is not None, "the trace")
    is_clean("t.json", (WORK / "t.json").read_bytes())
    clean("report", "plan.json", "t.json", "--title", b"t" + RAW, "-o",
          "r.html", code=0)
    is_clean("r.html", (WORK / "r.html").read_bytes())
    clean("train", name, "-s", "1f1b", "--steps", "1", "--html", "m.html",
          code=0)
    is_clean("m.html", (WORK / "m.html").read_bytes())


def words_of(text):
    """Returns the positions of replaceable words in a file."""
    return [found.span() for found in
            re.finditer(r'"[^"\n]*"|(?<![\w"./-])[A-Za-z][\w.-]*', text)]


def readers(name):
    """Returns the commands that read a file of this format."""
    return {
        "p.yaml": [["simulate", "bad"], ["schedule", "bad"], ["compare", "bad"],
                   ["explain", "bad"], ["check", "bad", "s.csv"],
                   ["train", "bad", "-n", "1"]],
        "job.yaml": [["plan", "bad", "--no-optimal"]],
        "plan.json": [["simulate", "bad"], ["report", "bad"],
                      ["export", "bad", "--to", "pytorch"], ["explain", "bad"]],
        "trace.json": [["report", "bad"], ["report", "--predicted",
                                           "trace.json", "--measured", "bad"]],
        "proof.json": [["check", "p.yaml", "o.csv", "--certificate", "bad"]],
        "profile.yaml": [["plan", "profiled.yaml", "--no-optimal"]],
        "optical.yaml": [["optical", "bad"]],
        "topology.yaml": [["optical", "of-bad.yaml"]],
        "log.jsonl": [["report", "--predicted", "trace.json", "--measured",
                       "trace.json", "--log", "bad"]],
    }[name]


def each_word_hostile(name, most):
    """Replaces each word of a file in turn by hostile text, and inserts a byte
    that is no text."""
    text = (WORK / name).read_text()
    ways = readers(name)
    words = words_of(text)
    step = max(1, len(words) // most)
    for i, (begin, end) in enumerate(words[::step]):
        for bad in (ESCAPED, json.dumps(NAME)):
            (WORK / "bad").write_text(text[:begin] + bad + text[end:])
            clean(*ways[i % len(ways)])
    for raw in (RAW, b"\x1b[31m", b"\xc2\x9b", "\u202e".encode()):
        at = len(text) // 2
        (WORK / "bad").write_bytes(text[:at].encode() + raw +
                                   text[at:].encode())
        for way in ways:
            clean(*way)


@test
def files_do_not_control_the_terminal():
    make_inputs()
    done = run("profile", "job.yaml", "-o", "profile.yaml")
    check(done.returncode == 0, f"profile: {done.stderr!r}")
    (WORK / "profiled.yaml").write_text(JOB.format("west", "east") +
                                        "profile: bad\n")
    optical = (ROOT / "examples/optical-nsfnet.yaml").read_text()
    (WORK / "topology.yaml").write_bytes(
        (ROOT / "data/topologies/nsfnet.yaml").read_bytes())
    optical = re.sub(r"seeds: .*", "seeds: [1]", optical)
    optical = re.sub(r"(  ksp-ff.*\n)(  .*\n)*", r"\1", optical)
    (WORK / "of-bad.yaml").write_text(
        optical.replace("../data/topologies/nsfnet.yaml", "bad"))
    (WORK / "optical.yaml").write_text(
        optical.replace("../data/topologies/nsfnet.yaml", "topology.yaml"))
    check(run("optical", "optical.yaml").returncode == 0, "optical works")
    for name in ("p.yaml", "job.yaml", "plan.json", "trace.json", "proof.json",
                 "profile.yaml", "optical.yaml", "topology.yaml", "log.jsonl"):
        each_word_hostile(name, 12)


@test
def schedules_do_not_control_the_terminal():
    make_inputs()
    text = (WORK / "s.csv").read_bytes()
    for bad in (text.replace(b"0F1", RAW, 1), RAW + text, text + RAW,
                text.replace(b"0F1", b"0F\x1b1", 1)):
        (WORK / "bad.csv").write_bytes(bad)
        clean("simulate", "p.yaml", "-s", "bad.csv", code=1)
        clean("check", "p.yaml", "bad.csv")
    (WORK / "bad.csv").write_bytes(text)
    for bad in (RAW, NAME.encode() + b",0F0\n", RAW + b",0F0\n",
                b"0-1," + RAW + b"\n"):
        (WORK / "bad.links.csv").write_bytes(bad)
        clean("simulate", "p.yaml", "-s", "bad.csv")
        clean("check", "p.yaml", "bad.csv")


@test
def checkpoints_and_data_do_not_control_the_terminal():
    make_inputs()
    (WORK / "data.txt").write_bytes(RAW * 4000)
    train = ["train", "plan.json", "--device", "cpu", "-n", "1"]
    clean(*train, "--data", b"no" + RAW, code=1)
    for option in ("--tokenizer", "--weights", "--resume"):
        (WORK / "hostile").write_bytes(
            b'{"longhaul": ' + ESCAPED.encode() + b', ' + RAW)
        clean(*train, "--data", "data.txt", option, "hostile", code=1)
        clean(*train, "--data", "data.txt", option, b"no" + RAW, code=1)
    header = b'{' + ESCAPED.encode() + b': {"dtype": ' + ESCAPED.encode() + b'}}'
    (WORK / "w.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header)
    clean(*train, "--data", "data.txt", "--weights", "w.safetensors", code=1)


@test
def arguments_do_not_control_the_terminal():
    make_inputs()
    commands = re.findall(r"^  (\w+) ", run("--help").stdout.decode().split(
        "Commands:")[1].split("\n\n")[0], re.M)
    check(len(commands) >= 11, f"commands: {commands}")
    for bad in (RAW, b"./n" + RAW):
        clean(bad)
        clean("help", bad)
        for command in commands:
            clean(command, bad)
            clean(command, b"--" + bad)
            if bad != RAW:
                continue
            clean(command, b"-" + bad)
            clean(command, "--json" , b"p.yaml", bad)
            text = run(command, "--help-all").stdout.decode()
            operand = {"plan": "job.yaml", "optical": "p.yaml",
                       "check": "p.yaml"}.get(command, "plan.json")
            for option in re.findall(r"--([\w-]+) [A-Z]", text):
                clean(command, operand, f"--{option}", bad)
    # Also tested in the C locale.
    clean("simulate", "p.yaml", env={"LC_ALL": "C"}, code=0)


finish()
