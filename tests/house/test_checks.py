#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the source checks of tools/.

    test_checks.py SOURCE_ROOT

Runs each check on a small valid source tree, and on copies of it with one error.
"""
import pathlib
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(sys.argv[1]).resolve() / "tools"
count = {"passed": 0, "failed": 0}


def header(guard, text=""):
    return f"#ifndef {guard}\n#define {guard}\n{text}\n#endif\n"


# Two modules, of which planner uses base; a program, a test and retired words.
TREE = {
    "tools/layers.txt": "# dependencies\nbase:\nplanner: base\n",
    "include/longhaul/plan.h": header(
        "LONGHAUL_PLAN_H", "typedef struct lh_plan lh_plan;\n"
                           "int lh_plan_make(void);\n"),
    "src/base/heap.h": header("LHI_BASE_HEAP_H",
                              "int lhi_heap_least(void);\n"),
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
    "tests/data/plan.c": "not C\n",
    "tools/retired-words.tsv": "# retired, use, checks\n"
                               "lent, go_deaf\tpartition transfer\tname\n"
                               "cards_\trecords\tname\n"
                               "dive (search)\tlocal search\tname, file\n"
                               "is said, first sight\tis printed\ttext\n",
}


def run(tool, changes):
    """Runs a check on the tree with these files changed or added."""
    with tempfile.TemporaryDirectory(prefix="longhaul-checks-") as folder:
        for name, text in {**TREE, **changes}.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return subprocess.run([sys.executable, TOOLS / tool, folder],
                              capture_output=True, text=True)


def passes(tool, what, changes):
    done = run(tool, changes)
    report(done.returncode == 0, tool, what, done)


def finds(tool, what, words, changes):
    """The check must fail, and print a line that contains all these words."""
    done = run(tool, changes)
    report(done.returncode == 1 and not done.stderr and
           any(all(word in line for word in words)
               for line in done.stdout.splitlines()), tool, what, done)


def report(ok, tool, what, done):
    count["passed" if ok else "failed"] += 1
    if not ok:
        print(f"FAILED {tool}, {what}: {done.returncode}\n{done.stdout}"
              f"{done.stderr}", file=sys.stderr)


def more(name, text):
    return {name: TREE[name] + text}


# --- layers ----------------------------------------------------------------------
LAYERS = "check-layers.py"
passes(LAYERS, "a valid tree", {})
finds(LAYERS, "an #include that is not allowed", ["src/base/heap.c:7", "planner"],
      {**more("src/base/heap.c", '#include "planner/ways.h"\n'),
       "src/planner/ways.h": header("LHI_PLANNER_WAYS_H")})
finds(LAYERS, "a call that is not allowed, without an #include",
      ["src/base/heap.c", "src/planner/plan.c", "lh_plan_make"],
      more("src/base/heap.c", "int lh_plan_make(void);\n"
                              "int lhi_heap_most(void)\n{\n"
                              "    return lh_plan_make();\n}\n"))
finds(LAYERS, "a module without a row", ["src/attic", "layers.txt"],
      {"src/attic/box.c": "int lhi_box(void);\n"})
finds(LAYERS, "a nested module without a row", ["src/planner/search"],
      {"src/planner/search/space.c": "int lhi_space(void);\n"})
finds(LAYERS, "an unused permission", ["planner does not use cost"],
      {"tools/layers.txt": "base:\ncost: base\nplanner: base cost\n",
       "src/cost/cost.c": '#include "base/heap.h"\n'})
finds(LAYERS, "modules that depend on each other",
      ["base", "planner", "each other"],
      {"tools/layers.txt": "base: planner\nplanner: base\n"})
finds(LAYERS, "headers that include each other",
      ["src/base/one.h", "src/base/two.h"],
      {"src/base/one.h": header("LHI_BASE_ONE_H", '#include "base/two.h"'),
       "src/base/two.h": header("LHI_BASE_TWO_H", '#include "base/one.h"')})
finds(LAYERS, "files of a module that depend on each other",
      ["src/base/heap.c calls src/base/pile.c for lhi_pile"],
      {**more("src/base/heap.c", "int lhi_pile(void);\nint lhi_heap_all(void)\n"
                                 "{\n    return lhi_pile();\n}\n"),
       "src/base/pile.c": '#include "base/heap.h"\n\nint lhi_pile(void)\n{\n'
                          "    return lhi_heap_all();\n}\n"})
finds(LAYERS, "a cycle through a table", ["lhi_shapes"],
      {**more("src/base/heap.c", "extern const int lhi_shapes[];\n"
                                 "int lhi_heap_all(void)\n{\n"
                                 "    return lhi_shapes[0];\n}\n"),
       "src/base/pile.c": "const int lhi_shapes[2] = {1, 2};\n"
                          "int lhi_pile(void)\n{\n"
                          "    return lhi_heap_all();\n}\n"})
passes(LAYERS, "a name in a comment or a string",
       more("src/base/heap.c", "/* lh_plan_make() is above */\n"
                               'const char lhi_heap_name[] = "lh_plan_make";\n'))
finds(LAYERS, "a function that is defined twice",
      ["lhi_heap_least", "src/base/heap.c"],
      {"src/base/pile.c": '#include "base/heap.h"\n\n'
                          "int lhi_heap_least(void)\n{\n    return 2;\n}\n"})
finds(LAYERS, "an internal header in the program",
      ["cli/main.c", "base/heap.h"],
      more("cli/main.c", '#include "base/heap.h"\n'))
finds(LAYERS, "a relative path in the program", ["cli/main.c", ".."],
      more("cli/main.c", '#include "../src/base/heap.h"\n'))

# --- names -----------------------------------------------------------------------
NAMES = "check-names.py"
passes(NAMES, "a valid tree", {})
passes(NAMES, "files with equal names in two modules",
       {"src/base/plan.c": "", "tests/unit/heap.c": ""})
passes(NAMES, "a static function with a short name",
       more("src/base/heap.c", "static int run(void)\n{\n    return 1;\n}\n"))
for name, guard in (("include/longhaul/route.h", "LONGHAUL_ROUTE_H"),
                    ("src/base/route.h", "LHI_BASE_ROUTE_H"),
                    ("src/base/net/route.h", "LHI_BASE_NET_ROUTE_H"),
                    ("cli/route.h", "CLI_ROUTE_H"),
                    ("cli/cli.h", "CLI_H")):
    finds(NAMES, f"a wrong guard of {name}", [name, guard],
          {name: header("LHI_ROUTE_H")})
    passes(NAMES, f"the guard of {name}", {name: header(guard)})
finds(NAMES, "a structure that is defined twice", ["lhi_route", "two.h", "one.h"],
      {"src/base/one.h": header("LHI_BASE_ONE_H", "struct lhi_route {\n int a;\n};"),
       "src/planner/two.h": header("LHI_PLANNER_TWO_H",
                                   "struct lhi_route {\n int b;\n};")})
finds(NAMES, "a name of a type and a function", ["lhi_route", "type", "function"],
      {"src/base/one.h": header("LHI_BASE_ONE_H", "typedef int lhi_route;"),
       "src/base/two.c": "int lhi_route(void)\n{\n    return 1;\n}\n"})
finds(NAMES, "a table that is defined twice", ["lhi_shapes"],
      {"src/base/one.c": "const int lhi_shapes[2] = {1, 2};\n",
       "src/base/two.c": "const int lhi_shapes[2] = {1, 2};\n"})
passes(NAMES, "a structure with its own typedef",
       {"src/base/one.h": header("LHI_BASE_ONE_H", "typedef struct lhi_route {\n"
                                                   "    int a;\n} lhi_route;")})
passes(NAMES, "a typedef of its own tag in two lines",
       {"src/base/one.h": header("LHI_BASE_ONE_H", "typedef struct lhi_route\n"
                                                   "    lhi_route;"),
        "src/base/two.h": header("LHI_BASE_TWO_H",
                                 "struct lhi_route {\n    int a;\n};")})
for text, identifier in (("int lent;", "lent"), ("int lent_to;", "lent_to"),
                         ("int n_lents;", "n_lents"),
                         ("static int layerLentTo(void);", "layerLentTo"),
                         ("int rails_go_deaf;", "rails_go_deaf"),
                         ("int cards_read;", "cards_read"),
                         ("#define MAX_DIVES 3", "MAX_DIVES")):
    finds(NAMES, f"a retired word in {identifier}",
          ["src/base/heap.c", identifier, "is retired"],
          more("src/base/heap.c", text + "\n"))
passes(NAMES, "retired words inside other words, comments and strings",
       more("src/base/heap.c", "/* lent */\nint silent, equivalent, talented, "
                               "diver, cards, left;\n"
                               "const char x[] = \"lent\";\n"))
finds(NAMES, "a retired word in a Python identifier",
      ["python/longhaul/one.py", "lent_to"],
      {"python/longhaul/one.py": "lent_to = 1\n"})
passes(NAMES, "a retired word in a Python string or comment",
       {"python/longhaul/one.py": 'x = "lent"  # lent\n'})
finds(NAMES, "a retired word in a JavaScript identifier",
      ["wasm/one.js", "lentTo"],
      {"wasm/one.js": "const lentTo = 'x';\n"})
passes(NAMES, "a retired word in a JavaScript string",
       {"wasm/one.js": "const x = 'lent'; // lent\n"})
finds(NAMES, "a retired file name", ["src/base/dive.c", "is retired"],
      {"src/base/dive.c": ""})
passes(NAMES, "a longer file name, and a word that is not checked for files",
       {"src/base/dive_depth.c": "", "src/base/lent.c": ""})
for name, text in (
        ("README.md", "The count\nis Said here.\n"),
        ("docs/one.md", "At first sight.\n"),
        ("cli/one.c", 'const char x[] = "it is "\n                 "said";\n'),
        ("cli/one.h", "/* It is\n * said. */\n"),
        ("src/report/page/one.js", "const x = 'first sight';\n")):
    finds(NAMES, f"a retired phrase in {name}", [name, "is retired"],
          {name: header("CLI_ONE_H", text) if name.endswith(".h") else text})
passes(NAMES, "a retired phrase elsewhere",
       {"src/base/one.c": "/* It is said. */\n", "tests/one.md": "is said\n",
        "README.md": "This saidst.\n"})
finds(NAMES, "a line with another value", ["tools/retired-words.tsv:6", "lend"],
      more("tools/retired-words.tsv", "lend\tpartition transfer\tnames\n"))
finds(NAMES, "a line of two columns", ["tools/retired-words.tsv:6", "lend"],
      more("tools/retired-words.tsv", "lend\tpartition transfer\n"))

# --- duplicates ------------------------------------------------------------------
DUPLICATES = "check-duplicates.py"


def lines(n):
    return "".join(f"    call({i});\n" for i in range(n))


passes(DUPLICATES, "a valid tree", {})
finds(DUPLICATES, "ten lines", ["src/base/heap.c", "cli/main.c", "10 lines"],
      {**more("src/base/heap.c", lines(10)), **more("cli/main.c", lines(10))})
finds(DUPLICATES, "ten lines in one file", ["src/base/heap.c", "10 lines"],
      more("src/base/heap.c", lines(10) + "other();\n" + lines(10)))
finds(DUPLICATES, "ten lines in another layout", ["10 lines"],
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
PRINTS = {"cli/output.c": "int a(FILE *o)\n{\n    fprintf(o, \"%s\\n\", b);\n"
                        "    return fwrite(b, 1, 1, stdout);\n}\n",
        "cli/terminal.c": 'void a(void)\n{\n    fprintf(stderr, "a");\n'
                          '    fputs("b", stderr);\n    write(2, "c", 1);\n}\n',
        "cli/signals.c": 'void b(void)\n{\n    write(2, "c", 1);\n}\n',
        "cli/train_log.c": 'void c(void)\n{\n    write(3, "c", 1);\n}\n'}
passes(PRINTING, "a program that prints through print.c",
       {**PRINTS, "cli/one.c": 'void one(cli *c)\n{\n    /* printf("a") */\n'
                             '    cli_print(c, "%s\\n", name);\n'
                             '    snprintf(a, sizeof a, "%s", name);\n}\n'})
finds(PRINTING, "a direct write", ["cli/one.c:3", "fprintf()"],
      {**PRINTS, "cli/one.c": 'void one(cli *c)\n{\n'
                            '    fprintf(c->out, "%s\\n", name);\n}\n'})
finds(PRINTING, "more direct writes than permitted", ["cli/signals.c:6", "write()"],
      {**PRINTS, "cli/signals.c": PRINTS["cli/signals.c"] +
       'void d(void)\n{    write(2, name, 9);\n}\n'})
finds(PRINTING, "a line end in an argument",
      ["cli/one.c:3", "line end"],
      {**PRINTS, "cli/one.c": 'void one(cli *c)\n{\n    cli_print(c, "%s%s", '
                            'name, last ? ".\\n" : "");\n}\n'})

# --- security --------------------------------------------------------------------
SECURITY = "check-security.py"


def claims(row):
    return {"SECURITY.md": "| can | seen by |\n| --- | --- |\n" + row + "\n",
            "tests/meson.build": "foreach name : ['net', 'cli']\n",
            "tests/unit/test_net.c": "int main(void)\n{\n    RUN(cut);\n"
                                    "    RUN_VIRTUAL(late);\n}\n",
            "tests/cli/test_cli.py": "@test\ndef escapes():\n    pass\n",
            "tests/unit/test_lost.c": "    RUN(cut);\n"}


passes(SECURITY, "claims with tests", claims(
    "| a | `tests/unit/test_net.c` (`cut`, `late`), `tests/cli/test_cli.py` "
    "(`escapes`) |\n| b | not tested: no guarantee |"))
finds(SECURITY, "a claim without a test", ["SECURITY.md:3", "without a test"],
      claims("| a | somehow |"))
finds(SECURITY, "a file that does not exist",
      ["tests/unit/test_gone.c does not exist"],
      claims("| a | `tests/unit/test_gone.c` |"))
finds(SECURITY, "a file that nothing runs", ["nothing runs", "test_lost.c"],
      claims("| a | `tests/unit/test_lost.c` (`cut`) |"))
finds(SECURITY, "a test that does not exist",
      ["test_net.c does not run a test silent"],
      claims("| a | `tests/unit/test_net.c` (`cut`, `silent`) |"))
finds(SECURITY, "a function that is not a test",
      ["test_cli.py does not run a test f"],
      {**claims("| a | `tests/cli/test_cli.py` (`f`) |"),
       "tests/cli/test_cli.py": "def f():\n    pass\n"})
finds(SECURITY, "no claims", ["no claims"], {"SECURITY.md": "# Security\n"})

print(f"{count['passed']} passed, {count['failed']} failed")
sys.exit(bool(count["failed"]))
