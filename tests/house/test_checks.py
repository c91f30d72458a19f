#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks of the house see what they are there for.

    test_checks.py SOURCE_ROOT

Each is run on a small tree that is right, and on the same with one thing wrong.
"""
import pathlib
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(sys.argv[1]).resolve() / "tools"
count = {"passed": 0, "failed": 0}


def header(guard, text=""):
    return f"#ifndef {guard}\n#define {guard}\n{text}\n#endif\n"


# Two rooms, of which plan uses base, a program and a test.
HOUSE = {
    "tools/layers.txt": "# who uses whom\nbase:\nplan: base\n",
    "include/longhaul/plan.h": header(
        "LONGHAUL_PLAN_H", "typedef struct lh_plan lh_plan;\n"
                           "int lh_plan_make(void);\n"),
    "src/base/heap.h": header("LHI_HEAP_H", "int lhi_heap_least(void);\n"),
    "src/base/heap.c": '#include "base/heap.h"\n\n'
                       "int lhi_heap_least(void)\n{\n    return 1;\n}\n",
    "src/planner/plan.c": '#include "base/heap.h"\n#include <longhaul/plan.h>\n\n'
                       "struct lh_plan {\n    int n;\n};\n\n"
                       "static int fewest(void)\n{\n"
                       "    return lhi_heap_least();\n}\n\n"
                       "int lh_plan_make(void)\n{\n    return fewest();\n}\n",
    "cli/main.c": "#include <longhaul/plan.h>\n\n"
                  "int main(void)\n{\n    return lh_plan_make();\n}\n",
    "tests/unit/test_plan.c": "#include <longhaul/plan.h>\n",
    "tests/data/plan.c": "not a file of C\n",
}


def run(tool, changes):
    """What a check says of the house with these files changed or added."""
    with tempfile.TemporaryDirectory(prefix="longhaul-house-") as folder:
        for name, text in {**HOUSE, **changes}.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return subprocess.run([sys.executable, TOOLS / tool, folder],
                              capture_output=True, text=True)


def passes(tool, what, changes):
    done = run(tool, changes)
    report(done.returncode == 0, tool, what, done)


def finds(tool, what, said, changes):
    """The check fails, and a line of what it prints has all these words."""
    done = run(tool, changes)
    report(done.returncode == 1 and not done.stderr and
           any(all(word in line for word in said)
               for line in done.stdout.splitlines()), tool, what, done)


def report(ok, tool, what, done):
    count["passed" if ok else "failed"] += 1
    if not ok:
        print(f"FAILED {tool}, {what}: {done.returncode}\n{done.stdout}"
              f"{done.stderr}", file=sys.stderr)


def more(name, text):
    return {name: HOUSE[name] + text}


# --- layers ----------------------------------------------------------------------
LAYERS = "check-layers.py"
passes(LAYERS, "a house", {})
finds(LAYERS, "an #include that is not allowed", ["src/base/heap.c:7", "plan"],
      {**more("src/base/heap.c", '#include "plan/ways.h"\n'),
       "src/plan/ways.h": header("LHI_WAYS_H")})
finds(LAYERS, "a call that is not allowed, without an #include",
      ["src/base/heap.c", "src/planner/plan.c", "lh_plan_make"],
      more("src/base/heap.c", "int lh_plan_make(void);\n"
                              "int lhi_heap_most(void)\n{\n"
                              "    return lh_plan_make();\n}\n"))
finds(LAYERS, "a room that has no row", ["src/attic", "layers.txt"],
      {"src/attic/box.c": "int lhi_box(void);\n"})
finds(LAYERS, "a room in a room that has no row", ["src/planner/search"],
      {"src/plan/search/space.c": "int lhi_space(void);\n"})
finds(LAYERS, "a permission that nobody uses", ["plan does not use cost"],
      {"tools/layers.txt": "base:\ncost: base\nplan: base cost\n",
       "src/cost/cost.c": '#include "base/heap.h"\n'})
finds(LAYERS, "rooms that need each other", ["base", "plan", "each other"],
      {"tools/layers.txt": "base: plan\nplan: base\n"})
finds(LAYERS, "headers that include each other",
      ["src/base/one.h", "src/base/two.h"],
      {"src/base/one.h": header("LHI_ONE_H", '#include "base/two.h"'),
       "src/base/two.h": header("LHI_TWO_H", '#include "base/one.h"')})
finds(LAYERS, "files of a room that need each other",
      ["src/base/heap.c calls src/base/pile.c for lhi_pile"],
      {**more("src/base/heap.c", "int lhi_pile(void);\nint lhi_heap_all(void)\n"
                                 "{\n    return lhi_pile();\n}\n"),
       "src/base/pile.c": '#include "base/heap.h"\n\nint lhi_pile(void)\n{\n'
                          "    return lhi_heap_all();\n}\n"})
finds(LAYERS, "a table as a reason for a circle", ["lhi_shapes"],
      {**more("src/base/heap.c", "extern const int lhi_shapes[];\n"
                                 "int lhi_heap_all(void)\n{\n"
                                 "    return lhi_shapes[0];\n}\n"),
       "src/base/pile.c": "const int lhi_shapes[2] = {1, 2};\n"
                          "int lhi_pile(void)\n{\n"
                          "    return lhi_heap_all();\n}\n"})
passes(LAYERS, "a name in a comment or a string",
       more("src/base/heap.c", "/* lh_plan_make() is above */\n"
                               'const char lhi_heap_name[] = "lh_plan_make";\n'))
finds(LAYERS, "a function that stands twice",
      ["lhi_heap_least", "src/base/heap.c"],
      {"src/base/pile.c": '#include "base/heap.h"\n\n'
                          "int lhi_heap_least(void)\n{\n    return 2;\n}\n"})
finds(LAYERS, "the program with a header of the library",
      ["cli/main.c", "base/heap.h"],
      more("cli/main.c", '#include "base/heap.h"\n'))
finds(LAYERS, "the program with a header from elsewhere", ["cli/main.c", ".."],
      more("cli/main.c", '#include "../src/base/heap.h"\n'))

# --- names -----------------------------------------------------------------------
NAMES = "check-names.py"
passes(NAMES, "a house", {})
finds(NAMES, "two files of a name",
      ["plan.c is the name of", "src/base/plan.c", "src/planner/plan.c"],
      {"src/base/plan.c": ""})
finds(NAMES, "a file of the tests with the name of another",
      ["heap.c is the name of", "tests/unit/heap.c"],
      {"tests/unit/heap.c": ""})
for name, guard in (("include/longhaul/route.h", "LONGHAUL_ROUTE_H"),
                    ("src/base/route.h", "LHI_ROUTE_H"),
                    ("cli/route.h", "CLI_ROUTE_H")):
    finds(NAMES, f"another guard of {name}", [name, guard],
          {name: header("ROUTE_H")})
    passes(NAMES, f"the guard of {name}", {name: header(guard)})
finds(NAMES, "a structure that is two", ["lhi_route", "two.h", "one.h"],
      {"src/base/one.h": header("LHI_ONE_H", "struct lhi_route {\n int a;\n};"),
       "src/plan/two.h": header("LHI_TWO_H", "struct lhi_route {\n int b;\n};")})
finds(NAMES, "a type that is a function, too", ["lhi_route", "type", "function"],
      {"src/base/one.h": header("LHI_ONE_H", "typedef int lhi_route;"),
       "src/base/two.c": "int lhi_route(void)\n{\n    return 1;\n}\n"})
finds(NAMES, "a table that stands twice", ["lhi_shapes"],
      {"src/base/one.c": "const int lhi_shapes[2] = {1, 2};\n",
       "src/base/two.c": "const int lhi_shapes[2] = {1, 2};\n"})
passes(NAMES, "a structure with its own typedef",
       {"src/base/one.h": header("LHI_ONE_H", "typedef struct lhi_route {\n"
                                              "    int a;\n} lhi_route;")})
finds(NAMES, "a function that does not say what it does",
      ["src/base/heap.c", "run()"],
      more("src/base/heap.c", "static int run(void)\n{\n    return 1;\n}\n"))

# --- duplicates ------------------------------------------------------------------
DUPLICATES = "check-duplicates.py"


def lines(n):
    return "".join(f"    call({i});\n" for i in range(n))


passes(DUPLICATES, "a house", {})
finds(DUPLICATES, "ten lines", ["src/base/heap.c", "cli/main.c", "10 lines"],
      {**more("src/base/heap.c", lines(10)), **more("cli/main.c", lines(10))})
finds(DUPLICATES, "ten lines in one file", ["src/base/heap.c", "10 lines"],
      more("src/base/heap.c", lines(10) + "other();\n" + lines(10)))
finds(DUPLICATES, "ten lines that are laid out another way", ["10 lines"],
      {**more("src/base/heap.c", lines(10)),
       **more("cli/main.c", lines(10).replace(";", "; /* so */\n\n")
              .replace("    ", "  "))})
passes(DUPLICATES, "nine lines",
       {**more("src/base/heap.c", lines(9)), **more("cli/main.c", lines(9))})
passes(DUPLICATES, "punctuation and #include alone",
       {**more("src/base/heap.c", '#include "a.h"\n};\n' * 20),
        **more("cli/main.c", '#include "a.h"\n};\n' * 20)})
passes(DUPLICATES, "presets",
       {"src/format/job/gpu.c": lines(12) + "other();\n" + lines(12)})

# --- printing --------------------------------------------------------------------
PRINTING = "check-printing.py"
SAYS = {"cli/output.c": "int a(FILE *o)\n{\n    fprintf(o, \"%s\\n\", b);\n"
                        "    return fwrite(b, 1, 1, stdout);\n}\n",
        "cli/terminal.c": 'void a(void)\n{\n    fprintf(stderr, "a");\n'
                          '    fputs("b", stderr);\n    write(2, "c", 1);\n}\n',
        "cli/signals.c": 'void b(void)\n{\n    write(2, "c", 1);\n}\n',
        "cli/train_log.c": 'void c(void)\n{\n    write(3, "c", 1);\n}\n'}
passes(PRINTING, "a program that says things",
       {**SAYS, "cli/one.c": 'void one(cli *c)\n{\n    /* printf("a") */\n'
                             '    cli_print(c, "%s\\n", name);\n'
                             '    snprintf(a, sizeof a, "%s", name);\n}\n'})
finds(PRINTING, "another way out", ["cli/one.c:3", "fprintf()"],
      {**SAYS, "cli/one.c": 'void one(cli *c)\n{\n'
                            '    fprintf(c->out, "%s\\n", name);\n}\n'})
finds(PRINTING, "one more where some are", ["cli/signals.c:6", "write()"],
      {**SAYS, "cli/signals.c": SAYS["cli/signals.c"] +
       'void d(void)\n{    write(2, name, 9);\n}\n'})
finds(PRINTING, "an end of line that would be shown",
      ["cli/one.c:3", "end of line"],
      {**SAYS, "cli/one.c": 'void one(cli *c)\n{\n    cli_print(c, "%s%s", '
                            'name, last ? ".\\n" : "");\n}\n'})

# --- security --------------------------------------------------------------------
SECURITY = "check-security.py"


def claims(row):
    return {"SECURITY.md": "| can | seen by |\n| --- | --- |\n" + row + "\n",
            "tests/meson.build": "foreach name : ['net', 'cli']\n",
            "tests/unit/test_net.c": "int main(void)\n{\n    RUN(cut);\n}\n",
            "tests/cli/test_cli.py": "@test\ndef escapes():\n    pass\n",
            "tests/unit/test_lost.c": "    RUN(cut);\n"}


passes(SECURITY, "claims with tests", claims(
    "| a | `tests/unit/test_net.c` (`cut`), `tests/cli/test_cli.py` "
    "(`escapes`) |\n| b | not tested: nothing is promised |"))
finds(SECURITY, "a claim without a test", ["SECURITY.md:3", "without a test"],
      claims("| a | somehow |"))
finds(SECURITY, "a file that is not there", ["no tests/unit/test_gone.c"],
      claims("| a | `tests/unit/test_gone.c` |"))
finds(SECURITY, "a file that nothing runs", ["nothing runs", "test_lost.c"],
      claims("| a | `tests/unit/test_lost.c` (`cut`) |"))
finds(SECURITY, "a test that is not there", ["test_net.c runs no test silent"],
      claims("| a | `tests/unit/test_net.c` (`cut`, `silent`) |"))
finds(SECURITY, "a function that is no test", ["test_cli.py runs no test f"],
      {**claims("| a | `tests/cli/test_cli.py` (`f`) |"),
       "tests/cli/test_cli.py": "def f():\n    pass\n"})
finds(SECURITY, "no claims", ["no claims"], {"SECURITY.md": "# Security\n"})

print(f"{count['passed']} passed, {count['failed']} failed")
sys.exit(bool(count["failed"]))
