# SPDX-License-Identifier: Apache-2.0
"""Helpers for export followed by import. The planned machines must be
preserved."""


def shuffled_cluster(plan, r):
    """Returns the plan's machines, in any order."""
    cluster = plan["job"]["cluster"]
    r.shuffle(cluster["datacenters"])
    return {"longhaul": "job/1", "model": "llama3-8b", "cluster": cluster,
            "training": {"global_batch": 64, "sequence": 4096}}


def model_of(plan):
    """Returns the model without its name and without the width of dense layers
    that do not exist."""
    model = plan["job"]["model"]
    return model if isinstance(model, str) else {**model, "name": ""}
