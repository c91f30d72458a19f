# SPDX-License-Identifier: Apache-2.0
"""The examples that are jobs, as other programs are to run them."""
import pathlib
import re

# A hundred thousand GPUs: the layout is given, or planning takes long.
GIVEN = {"llama3-405b-100k-gpus.yaml":
         ["tensor: 8", "context: 1", "pipeline: 16", "micro_batch: 1",
          "chunks_per_device: 1"]}
# What torchtitan has no option for, as plan --for torchtitan says.
LACKING = (("zero: 1", "zero: 2"), (", outermost: data", ""),
           (", expert: 1}}", "}}"), (", dropout: 0.05", ", dropout: false"),
           ("recompute: [mla_up_proj]", "recompute: none"))
# Models that others have not.
UNKNOWN = {"tiny-falcon-cpu.yaml": ("megatron", "torchtitan")}


def example_jobs(root, target):
    """Their paths and texts; what the texts name is beside the paths."""
    for path in sorted(pathlib.Path(root, "examples").glob("*.yaml")):
        text = path.read_text()
        if not re.search(r"^longhaul: job", text, re.M):
            continue
        if target in UNKNOWN.get(path.name, ()):
            continue
        if path.name in GIVEN:
            text = re.sub(r"^layout:.*(\n[ \t].*)*", "", text, flags=re.M)
            text += "\nlayout: {" + ", ".join(GIVEN[path.name]) + "}\n"
        if target == "torchtitan":
            for old, new in LACKING:
                text = text.replace(old, new)
        yield path, text


def put_example(path, text, folder):
    """As job.yaml, with what it names."""
    for name in re.findall(r"(?:profile|model): (\S+\.(?:json|yaml))", text):
        (folder / name).write_bytes((path.parent / name).read_bytes())
    (folder / "job.yaml").write_text(text)
