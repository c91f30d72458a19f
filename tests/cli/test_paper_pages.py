#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages of reproduced papers have one form, and their counts are those of their
rows."""
import re

from harness import ROOT, check, finish, test

FOLDER = ROOT / "docs/papers"
HEAD = "| where | claimed | run | paper | longhaul | difference | class | why |"
COUNTS = ("| rows | numbers within 5 % | mean error | "
          "directions as in the paper |")
CLASSES = ("informative", "trivial", "fitted", "given", "variant", "not run")
PAGES = ("adaptra", "cba", "crosspipe", "pipemesh", "scaleacross-figures")


def cells(line):
    return [c.strip() for c in line.strip("|").split("|")]


def tables(text, head):
    """Rows of each table with that head."""
    for part in text.split(head + "\n")[1:]:
        lines = part.split("\n")[1:]
        end = next(i for i, line in enumerate(lines)
                   if not line.startswith("|"))
        yield [cells(line) for line in lines[:end]]


def count(rows):
    """The counts of a table of claims: class -> the cells of its row."""
    found = {}
    for name in CLASSES:
        own = [r for r in rows if r[6] == name]
        numbers = [abs(float(r[5].rstrip(" %"))) for r in own if "%" in r[5]]
        # A claim that was not run is never as in the paper.
        right = [r[5] == "agrees" for r in own if "%" not in r[5]]
        if own:
            found[name] = [
                f"{sum(n <= 5 for n in numbers)} of {len(numbers)}"
                if numbers else "",
                sum(numbers) / len(numbers) if numbers else None,
                f"{sum(right)} of {len(right)}" if right else ""]
    return found


def agrees(row):
    return row[5] == "agrees" or ("%" in row[5] and
                                    abs(float(row[5].rstrip(" %"))) <= 5)


@test
def counts_are_those_of_the_rows():
    for name in PAGES:
        text = (FOLDER / f"{name}.md").read_text()
        claims, counts = list(tables(text, HEAD)), list(tables(text, COUNTS))
        check(claims and len(claims) == len(counts), f"{name}: no table")
        for rows, printed in zip(claims, counts):
            mine = count(rows)
            check([c[0] for c in printed] == list(mine), f"{name}: {printed}")
            for c in printed:
                within, mean, right = mine[c[0]]
                # A row on the limit is rounded in the table.
                check(within == c[1] or "5.0 %" in str(rows), f"{name}: {c}")
                check(mean is None or
                      abs(float(c[2].rstrip(" %")) - mean) < 0.1,
                      f"{name}: {c}, {mean}")
                check(right == c[3], f"{name}: {c}")


def is_ratio(row):
    return re.fullmatch(r"[0-9]+\.[0-9]{2,}", row[4]) is not None


def one_agrees(row):
    """Whether a model without any effect agrees with the published ratio; with
    a published number, whether 1 is within 10 % of it."""
    ends = [float(x) for x in re.findall(r"[0-9.]+", row[3])]
    if "above" in row[3] or "below" in row[3]:
        return 1 > ends[0] if "above" in row[3] else 1 < ends[0]
    nearest = min(max(1, ends[0]), ends[-1])
    return abs(1 / nearest - 1) <= (0.1 if "%" in row[5] else 0)


@test
def agreement_on_no_effect_is_trivial():
    for name in PAGES:
        text = (FOLDER / f"{name}.md").read_text()
        for r in (r for rows in tables(text, HEAD) for r in rows):
            ends = [float(x) for x in re.findall(r"[0-9.]+", r[3])]
            vague = len(ends) == 2 and ends[1] > 1.5 * ends[0]
            if is_ratio(r) and agrees(r):
                flat = abs(float(r[4]) - 1) <= 0.005 or one_agrees(r)
                check(not (flat or vague) or
                      r[6] not in ("informative", "variant"), r)
            check(r[6] != "trivial" or agrees(r), r)


@test
def cells_near_those_without_delay_are_trivial():
    """CrossPipe's cells of CrossUD and CrossWave, whose sends never block: one
    that agrees is evidence only if its published time is more than 10 % from the
    time without delay."""
    text = (FOLDER / "crosspipe.md").read_text()
    part = text.split("validate-crosspipe sends: written")[1]
    counted, trivial, quiet = [], 0, {}
    for line in part.split("\n"):
        if not re.match(r"\| [24] \| .* \| Cross(UD|Wave) \|", line):
            continue
        datacenters, delay, case, name, paper, free, _ = cells(line)
        free, paper = float(free.split()[0]), float(paper)
        quiet.setdefault((datacenters, case, name), free)
        agrees_too = abs(free / paper - 1) <= 0.05
        if agrees_too and abs(
                quiet[datacenters, case, name] / paper - 1) <= 0.1:
            trivial += 1
        else:
            counted.append(agrees_too)
    check(len(counted) + trivial == 40, f"{len(counted)} and {trivial} cells")
    check(f"| informative | {sum(counted)} of {len(counted)} |" in part,
          f"{sum(counted)} of {len(counted)}")


@test
def ranges_for_words_have_no_tolerance():
    """A value outside a range that was chosen for words does not agree."""
    for name in PAGES:
        text = (FOLDER / f"{name}.md").read_text()
        for r in (r for rows in tables(text, HEAD) for r in rows):
            if " to " in r[3] and "%" not in r[5] and r[6] != "not run":
                low, high = map(float, r[3].split(" to "))
                inside = low - 1e-3 < float(r[4]) < high + 1e-3
                check(inside == (r[5] == "agrees"), r)
                check(not inside or r[6] != "informative", r)


@test
def claims_that_were_not_run_have_a_reason():
    rows = [r for name in PAGES
            for rows in tables((FOLDER / f"{name}.md").read_text(), HEAD)
            for r in rows]
    check(any(r[6] == "not run" for r in rows), "no claim")
    for r in rows:
        check((r[6] == "not run") == (r[4] == "not run"), r)
        check(r[6] != "not run" or (r[5] == "not run" and r[7]), r)


@test
def the_list_of_pages_is_complete():
    text = (FOLDER / "README.md").read_text()
    for page in FOLDER.glob("*.md"):
        check(page.name == "README.md" or f"({page.name})" in text, page.name)


@test
def one_command_writes_every_page():
    script = (ROOT / "examples/papers/reproduce.sh").read_text()
    for page in FOLDER.glob("*.md"):
        check(page.name == "README.md"
              or f"--write docs/papers/{page.name}" in script
              or f"print_page {page.name} " in script, page.name)


@test
def pages_give_their_command():
    for name in PAGES:
        text = (FOLDER / f"{name}.md").read_text()
        start = text.split("\n## ")[0]
        check(re.search(r"^    ninja -C build (\S+)\n    build/", start, re.M)
              and f"docs/papers/{name}.md" in start, f"{name}: no command")
        for rows in tables(text, HEAD):
            for where, claimed, run, paper, ours, difference, kind, _ in rows:
                check(where and claimed and run and paper and ours and difference
                      and kind in CLASSES, (name, where, claimed))


finish()
