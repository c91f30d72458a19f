# SPDX-License-Identifier: Apache-2.0
"""The example jobs, as files for other programs."""
import fcntl
import hashlib
import os
import pathlib
import re
import subprocess

# A hundred thousand GPUs: the layout is fixed, since planning takes long.
GIVEN = {"llama3-405b-100k-gpus.yaml":
         ["tensor: 8", "context: 1", "pipeline: 16", "micro_batch: 1",
          "chunks_per_device: 1"]}
# Planning takes 5 to 8 s of processor time for each program.
LONG = {"llama3-405b-100k-gpus.yaml", "llama3-70b-two-sites.yaml",
        "llama3-8b-gcp-regions.yaml", "moe-40b-two-buildings.yaml"}
# Jobs that torchtitan's options cannot express, as reported by plan --for
# torchtitan.
LACKING = (("zero: 1", "zero: 2"), (", outermost: data", ""),
           (", expert: 1}}", "}}"), (", dropout: 0.05", ", dropout: false"),
           ("recompute: [mla_up_proj]", "recompute: none"),
           ("tied_embeddings: true", "tied_embeddings: false"))
# Models that the other programs do not support.
UNKNOWN = {"tiny-falcon-cpu.yaml": ("megatron", "torchtitan")}


def example_jobs(root, target):
    """Returns paths and texts; files named in a text are beside it. Without all
    cases there are none whose planning takes 5 s or more."""
    for path in sorted(pathlib.Path(root, "examples").glob("*.yaml")):
        text = path.read_text()
        if not re.search(r"^longhaul: job", text, re.M) or (
                path.name in LONG and not os.environ.get("LONGHAUL_ALL_CASES")):
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


def by_replicas(layout):
    """Tests whether the ranks of a replica are consecutive: data outermost."""
    return layout.get("rank_order", layout["outermost"]) == "data"


def put_example(path, text, folder):
    """Writes job.yaml and the files it names; returns all names."""
    named = re.findall(r"(?:profile|model): (\S+\.(?:json|yaml))", text)
    for name in named:
        (folder / name).write_bytes((path.parent / name).read_bytes())
    (folder / "job.yaml").write_text(text)
    return [*named, "job.yaml"]


def made_of(program, names, folder):
    """Hashes the inputs of a plan: the program, its library, the job."""
    built = pathlib.Path(program).resolve()
    files = [built, *sorted(built.parents[1].glob("src/liblonghaul.so*")),
             *(folder / name for name in names)]
    return hashlib.sha256(b"".join(
        hashlib.sha256(path.read_bytes()).digest()
        for path in files if path.is_file()))


def plan_example(program, path, text, target, folder):
    """Writes the example as job.yaml, and its plan for a program as plan.json;
    returns the result of planning. Several tests use these plans, whose
    planning takes most of their time. The first test plans; the result is cached
    in the build folder, keyed by its inputs. Concurrent tests wait for it.
    """
    names = put_example(path, text, folder)
    plan = ["plan", "job.yaml", "--for", target, "--no-optimal", "--effort",
            "50", "-q", "-o", "plan.json"]
    key = made_of(program, names, folder)
    key.update(" ".join(plan).encode())
    build = pathlib.Path(program).resolve().parents[1]
    # An installed program has no build folder, so plans are not cached.
    kept = (build if (build / "meson-private").is_dir() else
            folder) / "example-plans"
    kept.mkdir(exist_ok=True)
    name = f"{path.stem}-{target}"
    at = kept / f"{name}-{key.hexdigest()[:20]}.json"
    with open(kept / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if at.exists():
            (folder / "plan.json").write_bytes(at.read_bytes())
            return subprocess.CompletedProcess(plan, 0, "", "")
        (folder / "plan.json").unlink(missing_ok=True)
        done = subprocess.run([program, *plan], cwd=folder, text=True,
                              capture_output=True, check=False)
        for old in kept.glob(f"{name}-{'?' * 20}.json"):
            old.unlink()
        if done.returncode == 0:
            part = at.with_suffix(".part")
            part.write_bytes((folder / "plan.json").read_bytes())
            os.replace(part, at)
    return done
