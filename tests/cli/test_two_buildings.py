#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pipelines or replicas across two buildings: plans for the jobs of ScaleAcross
Explorer agree with the document.
"""
import re

from harness import ROOT, WORK, check, finish, json_case, test

PAGE = (ROOT / "docs/papers/scaleacross.md").read_text()


def seconds(example, batch, layout, outermost):
    """Seconds per iteration with the example's batch, table 2's."""
    text = (ROOT / "examples" / example).read_text()
    batch = f"global_batch: {batch}, sequence: 8192"
    check(batch in text, f"{example} has another batch than table 2")
    text = text.replace(batch, f"{batch}, zero: 1, rings: pipelined, "
                        "recompute: none")
    (WORK / "job.yaml").write_text(
        text + f"layout: {{{layout}, context: 1, pipeline: 2, "
        f"outermost: {outermost}, rank_order: {outermost}, sharding: full, "
        "schedule: dorapp}\n")
    return json_case(outermost, ["plan", "job.yaml"])["iteration_s"]


def check_ratio(name, slower, faster, page):
    check(abs(slower / faster / page - 1) < 0.02,
          f"{name}: {slower:.3f} s against {faster:.3f} s, but the page "
          f"says {page}")


@test
def pipelines_of_the_dense_model_cross_as_documented():
    row = re.search(r"^\| 11 \| 1:16 \|.*\| \+([0-9.]+) % \|$", PAGE, re.M)
    page = 1 + float(row[1]) / 100
    layout = ("tensor: 8, expert: 1, data: 4, micro_batch: 4, "
              "chunks_per_device: 24")
    job = ["dense-17b-two-buildings.yaml", 176, layout]
    check_ratio("dense", seconds(*job, "pipeline"), seconds(*job, "data"), page)


@test
def replicas_of_the_mixture_cross_as_documented():
    row = re.search(r"\(table 2\) \|.*: ([0-9.]+) \|$", PAGE, re.M)
    page = float(row[1])
    check(page >= 1.49, f"{page} is not what was published")
    layout = ("tensor: 4, expert: 16, data: 16, micro_batch: 1, "
              "chunks_per_device: 12")
    job = ["moe-40b-two-buildings.yaml", 64, layout]
    check_ratio("mixture", seconds(*job, "data"), seconds(*job, "pipeline"),
                page)


finish()
