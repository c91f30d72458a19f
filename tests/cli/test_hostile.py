#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files designed to use much memory: each is rejected with one line, within 8 times
the file's size and 16 MiB.
"""
import json
import os
import subprocess
import sys

from harness import (ENVIRONMENT, PROGRAM, ROOT, WORK, check, finish,
                     is_sanitized, run, test, uniform, write)

MIB = 1 << 20
SANITIZED = is_sanitized()
# Sanitizers use several bytes for each byte; the bound does not apply to them.
SIZE = MIB // 4 if SANITIZED else 4 * MIB


def fill(start, unit, end=b""):
    return start + unit * ((SIZE - len(start)) // len(unit)) + end


# The system's peak includes memory used before exec(), so measured programs are
# started by a small process.
STARTER = """
import json, os, subprocess, sys
for line in sys.stdin:
    args, stdin = json.loads(line)
    with open(stdin) as given, subprocess.Popen(
            args, stdin=given, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE) as process:
        text = process.stderr.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    print(json.dumps([usage.ru_maxrss * 1024, process.returncode, text]),
          flush=True)
"""
starter = subprocess.Popen([sys.executable, "-c", STARTER], cwd=WORK, text=True,
                           env=ENVIRONMENT, stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE)


def peak_of(args, stdin=os.devnull):
    """Runs the program; returns its peak memory in bytes, status, standard
    error."""
    print(json.dumps([[PROGRAM, *map(str, args)], stdin]), file=starter.stdin,
          flush=True)
    return json.loads(starter.stdout.readline())


# Memory that the program uses before it reads any input.
BASE = peak_of(["--version"])[0]


def refused(what, args, size, **more):
    """Checks that the file is rejected in one line, within the bound."""
    peak, status, text = peak_of(args, **more)
    lines = text.splitlines()
    check(status == 1 and len(lines) == 1 and lines[0].startswith("longhaul: "),
          f"{what}: status {status}, {text[:300]!r}")
    check(SANITIZED or peak - BASE <= 8 * size + 16 * MIB,
          f"{what}: {size / MIB:.1f} MiB take {(peak - BASE) / MIB:.1f} MiB")


def shapes(head):
    """Yields documents that begin like a file of this format."""
    start = head + b"\na: "
    laughs = b"".join(b"a%d: &a%d [%s]\n" % (i, i, b",".join(
        [b"*a%d" % (i - 1)] * 9)) for i in range(1, 99))
    return {
        "a list of ones": fill(start + b"[", b"1,", b"1]\n"),
        "a list of nothing": fill(start + b"\n", b" -\n"),
        "a list of maps": fill(start + b"[", b"{a},", b"1]\n"),
        "a list of lists": fill(start + b"[", b"[],", b"1]\n"),
        "lists in lists": fill(start, b"["),
        "maps in maps": fill(start, b"{a: "),
        "steps of a block": fill(start + b"\n ", b"- "),
        "a long key": fill(head + b"\n", b"k", b": 1\n"),
        "a long key with a sign": fill(head + b"\n? ", b"k", b"\n: 1\n"),
        "a long text": fill(start + b'"', b"k", b'"\n'),
        "a long comment": fill(head + b"\n#", b"k", b"\nb: 1\n"),
        "many keys": head + b"\n" + b"".join(
            b"k%d: 1\n" % i for i in range(SIZE // 12)),
        "directives": fill(b"", b"%TAG !a! b\n", b"---\n" + head + b"\n"),
        "many documents": fill(head + b"\n", b"---\na\n"),
        "a billion laughs": head + b"\na0: &a0 [x]\n" + laughs,
    }


@test
def hostile_documents_are_refused_within_the_bound():
    for name, text in shapes(b"longhaul: pipeline/1").items():
        (WORK / "hostile.yaml").write_bytes(text)
        refused(name, ["simulate", "hostile.yaml"], len(text))


@test
def every_kind_of_document_is_refused_within_the_bound():
    uniform("p.yaml")
    run("schedule", "p.yaml", "--method", "1f1b", "-o", "s.csv")
    job = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    write("with-profile.yaml", job + "profile: FILE\n")
    write("with-model.yaml", "\n".join(
        "model: FILE" if line.startswith("model:") else line
        for line in job.splitlines()))
    optical = (ROOT / "examples/optical-nsfnet.yaml").read_text()
    write("with-topology.yaml", "\n".join(
        "topology: FILE" if line.startswith("topology:") else line
        for line in optical.splitlines()))
    for kind, args in {
            "job": ["plan", "FILE"], "plan": ["export", "FILE"],
            "trace": ["report", "FILE"], "optical": ["optical", "FILE"],
            "topology": ["optical", "with-topology.yaml"],
            "profile": ["plan", "with-profile.yaml"],
            "events": ["simulate", "p.yaml", "-s", "1f1b", "--steps", "2",
                       "--events", "FILE"],
            "model": ["plan", "with-model.yaml"],
            "certificate": ["check", "p.yaml", "s.csv", "--certificate",
                            "FILE"]}.items():
        found = shapes(f"longhaul: {kind}/1".encode())
        for name in "a list of ones", "a long text", "lists in lists":
            (WORK / "FILE").write_bytes(found[name])
            refused(f"{kind}: {name}", args, len(found[name]))


@test
def endless_files_are_rejected_at_the_first_invalid_text():
    uniform("p.yaml")
    run("simulate", "p.yaml", "-s", "1f1b", "--trace", "t.json")
    run("plan", ROOT / "examples/tiny-llama-cpu.yaml", "-o", "plan.json")
    write("text", "the quick brown fox. " * 200)
    for args in (["plan", "/dev/zero"], ["simulate", "/dev/zero"],
                 ["simulate", "p.yaml", "-s", "/dev/zero"],
                 ["report", "/dev/zero"], ["optical", "/dev/zero"],
                 ["report", "--predicted", "t.json", "--measured", "t.json",
                  "--log", "/dev/zero"],
                 ["train", "plan.json", "--device", "cpu", "--data", "text",
                  "--tokenizer", "/dev/zero"],
                 ["train", "plan.json", "--device", "cpu", "--data",
                  "/dev/zero"],
                 ["train", "plan.json", "--device", "cpu", "--data",
                  "/dev/zero", "--tokenizer", "text"]):
        refused(" ".join(args), args, 0)
    refused("standard input", ["simulate", "-"], 0, stdin="/dev/zero")


@test
def hostile_schedules_are_refused_within_the_bound():
    uniform("p.yaml", devices=2, microbatches=4)
    for name, text in {"idle steps": fill(b"", b","),
                       "passes": fill(b"", b"0F0,"),
                       "passes that follow an idle step": fill(b",", b"0F0,"),
                       "pairs": fill(b"", b"(0F0;0B0)OVERLAP_F_B,"),
                       "an open pair": fill(b"(", b"0F0;"),
                       "rows": b"0F0\n" * 60000,
                       "empty rows": fill(b"", b"\n"),
                       "letters": fill(b"", b"F"),
                       "digits": fill(b"", b"1")}.items():
        (WORK / "s.csv").write_bytes(text)
        refused(name, ["simulate", "p.yaml", "-s", "s.csv"], len(text))
    run("schedule", "p.yaml", "--method", "1f1b", "-o", "good.csv")
    for name, text in {"links": fill(b"", b"a\n"),
                       "passes of a link": fill(b"a,", b"0F0,")}.items():
        (WORK / "good.links.csv").write_bytes(text)
        refused(name, ["simulate", "p.yaml", "-s", "good.csv"], len(text))


@test
def hostile_logs_and_tokenizers_are_refused_within_the_bound():
    uniform("p.yaml")
    run("simulate", "p.yaml", "-s", "1f1b", "--trace", "t.json")
    for name, text in {"a long line": fill(b'{"step":1,"seconds":[', b"0,"),
                       "lists in lists": fill(b"", b"["),
                       "lines": fill(b"", b"\n"),
                       "one bad line": fill(
                           b"", b'{"step":1,"seconds":0}\n', b"{}\n")}.items():
        (WORK / "log").write_bytes(text)
        refused(f"log: {name}", ["report", "--predicted", "t.json",
                                 "--measured", "t.json", "--log", "log"],
                len(text))
    run("plan", ROOT / "examples/tiny-llama-cpu.yaml", "-o", "plan.json")
    write("text", "the quick brown fox. " * 200)
    for name, text in {
            "ones": fill(b'{"a":[', b"1,", b"1]}"),
            "empty maps": fill(b'{"a":[', b"{},", b"1]}"),
            "lists in lists": fill(b"", b"["),
            "texts": fill(b'{"a":[', b'"",', b"1]}"),
            "a long text": fill(b'{"a":"', b"k", b'"}'),
            "keys": b'{"a":{' + b",".join(
                b'"%x":1' % i for i in range(SIZE // 10)) + b"}}"}.items():
        (WORK / "tokenizer").write_bytes(text)
        refused(f"tokenizer: {name}",
                ["train", "plan.json", "--device", "cpu", "--data", "text",
                 "--tokenizer", "tokenizer"], len(text))


@test
def oversized_files_are_rejected_unread():
    """Sparse files: the size is checked before anything is read."""
    uniform("p.yaml")
    for mib, name, args in (
            (16, "a job", ["plan", "large"]),
            (64, "a pipeline", ["simulate", "large"]),
            (256, "a schedule", ["simulate", "p.yaml", "-s", "./large"])):
        with open(WORK / "large", "wb") as file:
            if name != "a schedule":
                file.write(f"longhaul: {name.split()[1]}/1\n".encode())
            file.truncate(mib * MIB + 1)
        peak, status, text = peak_of(args)
        check(status == 1 and f"exceeds {mib} MiB, the limit for {name}" in text, f"{name}: {text}")
        check(SANITIZED or peak - BASE < 4 * MIB, f"{name} was read")


finish()
