#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Man pages and shell completion, generated from the option tables."""
import re
import shutil
import subprocess
import sys

from harness import ENVIRONMENT, PROGRAM, WORK, check, finish, run

COMMANDS = re.findall(r"^  ([a-z]+) ", run("--help").stdout, re.M)
COMMANDS = [c for c in COMMANDS if c != "longhaul"]
check(len(COMMANDS) >= 7, f"commands: {COMMANDS}")


def options(command):
    text = run(command, "--help-all").stdout.partition("\nExamples:")[0]
    return set(re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", text, re.M))


# --- man pages ------------------------------------------------------------
mandoc = shutil.which("mandoc")
if not mandoc:
    print("SKIPPED: mandoc is not installed; man pages are not checked",
          file=sys.stderr)
for command in [None, *COMMANDS]:
    page = run("__generate", "man", *([command] if command else [])).stdout
    name = f"longhaul-{command}.1" if command else "longhaul.1"
    (WORK / name).write_text(page)
    for option in options(command) if command else ():
        check(f" Fl \\-{option}" in page, f"{name}: --{option} is described")
for name in sorted(p.name for p in WORK.glob("*.1")) if mandoc else ():
    done = subprocess.run([mandoc, "-T", "lint", name], cwd=WORK,
                          capture_output=True, text=True)
    # The pages refer to each other; they are not installed here.
    said = [line for line in (done.stdout + done.stderr).splitlines()
            if "referenced manual not found" not in line]
    check(not said, f"{name}: {said}")
    done = subprocess.run([mandoc, "-T", "utf8", name], cwd=WORK,
                          capture_output=True, text=True)
    check("EXIT STATUS" in re.sub(".\b", "", done.stdout),
          f"{name} can be read")

# --- bash -----------------------------------------------------------------
(WORK / "completion.bash").write_text(run("__generate", "bash").stdout)


def bash(*words):
    """Returns bash's completions for these words; the last one is
    incomplete."""
    script = ("source ./completion.bash; COMP_WORDS=(\"$@\"); "
              "COMP_CWORD=$(($#-1)); COMPREPLY=(); _longhaul; "
              "printf '%s\\n' \"${COMPREPLY[@]}\"")
    done = subprocess.run(["bash", "-c", script, "bash", "longhaul", *words],
                          cwd=WORK, capture_output=True, text=True,
                          env=ENVIRONMENT)
    check(done.stderr == "", f"bash: {words}: {done.stderr}")
    return set(done.stdout.split())


(WORK / "pipe.yaml").write_text("")
check(bash("") >= set(COMMANDS), "bash: commands")
check(bash("sc") == {"schedule"}, "bash: a command begun")
for command in COMMANDS:
    check(bash(command, "--") == {"--" + o for o in options(command)},
          f"bash: options of {command}")
METHODS = set(re.search(r"known: (.*)$", run(
    "schedule", "x", "-m", "qqqqqqqq").stderr, re.M)[1].split(", "))
check(bash("schedule", "--method", "") == METHODS, "bash: methods")
check(bash("schedule", "-m", "zb-") ==
      {m for m in METHODS if m.startswith("zb-")}, "bash: methods begun")
check(bash("schedule", "--method", "=", "zb-v") == {"zb-v"}, "bash: after =")
check(bash("simulate", "--receives", "l") == {"late", "late-fd"},
      "bash: choices")
check("pipe.yaml" in bash("simulate", "pi"), "bash: files")
check("pipe.yaml" in bash("simulate", "-s", "pi"), "bash: schedule files")
check(bash("simulate", "--coupled", "") == set(), "bash: numbers")
(WORK / "jobs").mkdir()
(WORK / "jobs.txt").write_text("")
check(bash("export", "--to", "mega") == {"megatron", "megatron-bridge"},
      "bash: programs")
for command, option in (("export", "--bundle"), ("train", "--checkpoint"),
                        ("train", "--resume")):
    check(bash(command, option, "jo") == {"jobs"}, f"bash: folders of {option}")


def fish(line):
    """Returns fish's completions at the end of a line."""
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source fish; complete -C '{line}'"],
        cwd=WORK, capture_output=True, text=True, env=ENVIRONMENT)
    check(done.stderr == "", f"fish: {line}: {done.stderr}")
    return {row.split("\t")[0] for row in done.stdout.splitlines()}


# --- the other shells --------------------------------------------------------
for shell, flag in (("zsh", "-n"), ("fish", "--no-execute")):
    text = run("__generate", shell).stdout
    for command in COMMANDS:
        for option in options(command):
            check(re.search(rf"(--| -l ){option}\b", text) is not None,
                  f"{shell}: {command} --{option}")
    if not shutil.which(shell):
        print(f"SKIPPED: {shell} is not installed; its completion is not "
              "parsed", file=sys.stderr)
        continue
    (WORK / shell).write_text(text)
    done = subprocess.run([shell, flag, shell], cwd=WORK, capture_output=True,
                          text=True)
    check(done.returncode == 0 and not done.stderr, f"{shell}: {done.stderr}")
    if shell == "fish":
        check(fish("longhaul export --bundle jo") == {"jobs/"}, "fish: folders")
        check(fish("longhaul export --to megatron-") == {"megatron-bridge"},
              "fish: programs")
check(re.search(r"--bundle=?[^']*:DIR:_files -/'", run("__generate", "zsh").stdout),
      "zsh: folders")
finish()
