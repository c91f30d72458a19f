#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Invalid input: status 1, one line on standard error with location and problem,
nothing on standard output, except that plan --json prints the memory needs of a
job that does not fit.
"""
from harness import (ANY, ROOT, WORK, case, check, finish, json_case, run, uniform,
                     write)

GOOD = """
    longhaul: pipeline/1
    time_unit: ms
    microbatches: 4
    devices: 2
    backward: split
    chunks:
      - {device: 0, F: 10, D: 10, W: 10}
      - {device: 1, F: 10, D: 10, W: 10}
    links:
      - {from: 0, to: 1, latency: 10, transfer: 0}
"""
write("good.yaml", GOOD)
good = (WORK / "good.yaml").read_text()


def wrong(name, text, message, line=None):
    """Checks that every command that reads a pipeline prints the same error."""
    (WORK / "bad.yaml").write_text(text)
    where = rf"bad\.yaml:{line}:" if line else r"bad\.yaml:"
    pattern = rf"\Alonghaul: {where}[^\n]*{message}[^\n]*\n\Z"
    case(name, ["schedule", "bad.yaml"], 1, err=pattern)
    case(name, ["simulate", "bad.yaml", "--json"], 1, err=pattern)
    case(name, ["compare", "bad.yaml"], 1, err=pattern)


def changed(old, new):
    assert old in good
    return good.replace(old, new, 1)


# --- files ----------------------------------------------------------------
for command in ("schedule", "simulate", "compare", "plan", "export", "report"):
    case(f"{command}: missing file", [command, "nowhere.yaml"], 1,
         err=r"\Alonghaul: nowhere\.yaml: No such file or directory\n\Z")
    case(f"{command}: folder", [command, "."], 1,
         err=r"\Alonghaul: \.: [Ii]s a directory[^\n]*\n\Z")
case("check: missing schedule", ["check", "good.yaml", "no.csv"], 1,
     err=r"\Alonghaul: no\.csv: No such file or directory\n\Z")
case("missing schedule", ["simulate", "good.yaml", "-s", "no.csv"], 1,
     err=r"\Alonghaul: no\.csv: No such file or directory\n\Z")

# --- files of another format ------------------------------------------------
write("job.yaml", "longhaul: job/1\nmodel: llama3-8b\n")
case("a job is no pipeline", ["schedule", "job.yaml"], 1,
     err=r"job\.yaml: is a job; 'schedule' takes a pipeline or a plan\n")
case("a pipeline is no job", ["plan", "good.yaml"], 1,
     err=r"good\.yaml: is a pipeline; 'plan' takes a job\n")
case("a job is not simulated", ["simulate", "job.yaml"], 1,
     err=r"is a job; 'simulate' takes a pipeline or a plan\n")
case("a pipeline has no layout", ["export", "good.yaml", "--to", "megatron"],
     1, err=r"a plan is required")
case("no trace", ["report", "good.yaml"], 1,
     err=r"is a pipeline; 'report' takes plans and traces\n")
wrong("another version", changed("pipeline/1", "pipeline/9"), r"pipeline/1", 1)
wrong("nothing in it", "", ANY)
wrong("only a comment", "# nothing\n", ANY)
wrong("a list", "- 1\n- 2\n", ANY)

# --- YAML -------------------------------------------------------------------
wrong("bad YAML", changed("microbatches: 4", "microbatches: [4"), ANY)
wrong("tab", changed("microbatches: 4", "\tmicrobatches: 4"), ANY)
wrong("binary", "\0\1\2\3longhaul: pipeline/1\n", ANY)
wrong("unknown key", changed("devices: 2", "devices: 2\ndevises: 2"),
      r"devises", 5)
wrong("key twice", changed("devices: 2", "devices: 2\ndevices: 2"),
      r"devices", 5)
wrong("key missing", changed("devices: 2\n", ""), r"devices")
wrong("chunk key", changed("{device: 0, F: 10", "{device: 0, E: 1, F: 10"),
      r"'?E'?", 7)
wrong("alias", changed("- {device: 1, F: 10, D: 10, W: 10}", "- *c")
      .replace("- {device: 0", "- &c {device: 0"), ANY)
bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n"
for one, next_ in zip("abcdefgh", "bcdefghi"):
    bomb += f"{next_}: &{next_} [" + ",".join([f"*{one}"] * 9) + "]\n"
wrong("nested aliases", "longhaul: pipeline/1\n" + bomb, ANY)
wrong("deep nesting", "longhaul: pipeline/1\nchunks: " + "[" * 5000, ANY)

# --- numbers ------------------------------------------------------------------
for name, value in (("NaN", ".nan"), ("nan", "nan"), ("infinity", ".inf"),
                    ("negative", "-1"), ("a word", "many"), ("list", "[1]"),
                    ("map", "{a: 1}"), ("empty", ""), ("quoted", "'4'"),
                    ("huge", "1e400"), ("half", "2.5"),
                    ("overflow", "99999999999999999999"),
                    ("a billion", "1000000000"), ("zero", "0")):
    wrong(f"microbatches {name}",
          changed("microbatches: 4", f"microbatches: {value}"),
          r"microbatches", 3)
for name, value in (("NaN", ".nan"), ("infinity", ".inf"), ("negative", "-1"),
                    ("a word", "soon"), ("overflow", "1e300"),
                    ("large", "99999999999999999999")):
    wrong(f"F {name}", changed("F: 10", f"F: {value}"), r"F", 7)
    wrong(f"latency {name}", changed("latency: 10", f"latency: {value}"),
          r"latency", 10)
wrong("time unit", changed("time_unit: ms", "time_unit: weeks"),
      r"time_unit", 2)
wrong("device that is not there", changed("device: 1", "device: 7"),
      r"device", 8)
wrong("link to nowhere", changed("to: 1", "to: 9"),
      r"device 9 does not exist", 10)
wrong("link to itself", changed("to: 1", "to: 0"), ANY, 10)
wrong("too many passes", changed("microbatches: 4", "microbatches: 1048576")
      .replace("devices: 2", "devices: 65536")
      .replace(good[good.index("chunks"):],
               "uniform: {placement: ud, chunks_per_device: 1, F: 1, D: 1, "
               "W: 1, memory: {F: 1, D: 0, W: -1}}\n"), ANY)

# --- schedules ------------------------------------------------------------------
rows = run("schedule", "good.yaml", "-m", "1f1b").stdout.splitlines()


def bad_schedule(name, text, message, code=1):
    """Checks the error of check, and that simulate rejects the schedule too."""
    (WORK / "bad.csv").write_text(text)
    case(name, ["simulate", "good.yaml", "-s", "bad.csv"], code,
         err=rf"\Alonghaul: [^\n]*{message}[^\n]*\n\Z")


bad_schedule("cell", "0F0,what\n1F0\n", r"bad\.csv:1.*what")
bad_schedule("number too large", "99999999999F0\n1F0\n", r"bad\.csv:1")
bad_schedule("no kind", "0F0,00\n1F0\n", r"bad\.csv:1")
bad_schedule("truncated", rows[0] + "\n" + rows[1][:-4], ANY)
bad_schedule("row missing", rows[0] + "\n", ANY)
bad_schedule("empty", "", ANY)
bad_schedule("binary", "0F0\0,0F1\n1F0\n", r"bad\.csv")
bad_schedule("twice", rows[0] + ",0F0\n" + rows[1] + "\n", r"0F0")
bad_schedule("wrong device", rows[1] + "\n" + rows[0] + "\n", ANY)
bad_schedule("chunk that is not there", rows[0] + ",9F0\n" + rows[1] + "\n",
             ANY)
cycle = rows[1].split(",")
(WORK / "cycle.csv").write_text(
    rows[0] + "\n" + ",".join(sorted(cycle, key=lambda cell: cell[1] == "F"))
    + "\n")
case("cycle", ["simulate", "good.yaml", "-s", "cycle.csv"], 1,
     err=r"\Alonghaul: [^\n]+\n\Z")
case("check of a cycle", ["check", "good.yaml", "cycle.csv"], 1,
     out=r"\Anot valid: \d+ violation")
case("check of a wrong cell", ["check", "good.yaml", "bad.csv"], 1,
     out=r"not valid")

# --- infeasible requests
# -----------------------------------------------------------
uniform("tight.yaml", limit=1)
case("no room", ["schedule", "tight.yaml", "-m", "zb-h2"], 1,
     err=r"\Alonghaul: zb-h2: device 0 needs memory 7, its limit is 1\n\Z")
uniform("bytes.yaml", limit=3 << 30, memory=f"{{F: {1 << 30}, D: 0, W: "
        f"{-(1 << 30)}}}")
with (WORK / "bytes.yaml").open("a") as bytes_file:
    bytes_file.write("memory_unit: bytes\n")
case("no room, in bytes", ["simulate", "bytes.yaml", "-s", "zb-h2"], 1,
     err=r"\Alonghaul: zb-h2: device 0 needs memory 7\.0 GiB, its limit is "
         r"3\.0 GiB\n\Z")
uniform("loop.yaml", placement="loop", chunks=2)
case("another placement", ["schedule", "loop.yaml", "-m", "zb-h1"], 1,
     err=r"\Alonghaul: zb-h1: needs placement ud[^\n]*\n\Z")

# --- jobs ---------------------------------------------------------------------------
example = (ROOT / "examples/llama3-70b-two-sites.yaml").read_text()
for name, old, new, message in (
        ("model", "llama3-70b\n", "llama9-70b\n", r"model"),
        ("GPU", "h100-sxm", "h100-sxn", r"h100-sxm"),
        ("no batch", "global_batch: 512, ", "", r"global_batch"),
        ("loss", "gbps: 3200}", "gbps: 3200, loss: 2}", r"loss"),
        ("site", "between: [west, east]", "between: [west, moon]", r"moon"),
        ("key", "cluster:", "klaster:", r"cluster"),
        ("ZeRO", "zero: 1", "zero: 7", r"zero")):
    assert old in example
    (WORK / "bad-job.yaml").write_text(example.replace(old, new, 1))
    case(f"job: {name}", ["plan", "bad-job.yaml"], 1,
         err=rf"\Alonghaul: bad-job\.yaml:\d+:[^\n]*{message}[^\n]*\n\Z")
    check(not (WORK / "plan.json").exists(), f"job: {name}: no plan is left")
write("large.yaml", """
    longhaul: job/1
    model: llama3-8b
    cluster:
      gpu: {preset: h100-sxm, memory_gib: 10}
      gpus_per_node: 8
      node_link: {gbps: 3600, latency_us: 3}
      datacenters:
        - {name: a, nodes: 1}
    training: {global_batch: 8, sequence: 1024}
""")
needs = (r"\Alonghaul: large\.yaml: no layout fits in memory; use GPUs with at "
         r"least \S+ GiB \(now 10; [^\n]+\), or \d nodes \(now 1; [^\n]+\n\Z")
case("does not fit", ["plan", "large.yaml"], 1, out=r"\A\Z", err=needs)
answer = json_case("does not fit, as JSON", ["plan", "large.yaml"], 1,
                   err=needs)["memory_needs"]
check(10 < answer["gpu_memory"]["memory_gib"] < 80 and
      answer["nodes"]["gpus"] == 8 * answer["nodes"]["nodes"] > 8 and
      answer["nodes"]["layout"]["recompute"] == "full",
      "the needs are numbers in JSON")
(WORK / "large.yaml").write_text((WORK / "large.yaml").read_text().replace(
    "memory_gib: 10", f"memory_gib: {answer['gpu_memory']['memory_gib']}"))
case("fits with the stated memory, but without a margin",
     ["plan", "large.yaml", "--margin", "50%", "--effort", "1"], 0,
     out=r"(?m)^margin +no plan found with 50 % free$")
for margin in ("5x", "100%", "0", "-1", "nan"):
    case(f"margin {margin}", ["plan", "large.yaml", f"--margin={margin}"], 2,
         err=r"--margin: '[^']+' is not a share of the GPU memory below 100%")
write("broken.json", '{"longhaul": "plan/1"}')
case("plan that is none", ["simulate", "broken.json"], 1,
     err=r"\Alonghaul: broken\.json:[^\n]+\n\Z")
finish()
