# SPDX-License-Identifier: Apache-2.0
"""What is exported and imported again: the machines it was planned for."""


def shuffled_cluster(plan, r):
    """The plan's machines, in any order."""
    cluster = plan["job"]["cluster"]
    r.shuffle(cluster["datacenters"])
    return {"longhaul": "job/1", "model": "llama3-8b", "cluster": cluster,
            "training": {"global_batch": 64, "sequence": 4096}}


def model_of(plan):
    """But for its name, and the width of dense layers that are not there."""
    model = plan["job"]["model"]
    return model if isinstance(model, str) else {**model, "name": ""}
