# SPDX-License-Identifier: Apache-2.0
"""Export followed by import: the planned machines remain."""


def shuffled_cluster(plan, r):
    """Returns the plan's machines, in any order."""
    cluster = plan["job"]["cluster"]
    r.shuffle(cluster["datacenters"])
    return {"longhaul": "job/1", "model": "llama3-8b", "cluster": cluster,
            "training": {"global_batch": 64, "sequence": 4096}}


def model_of(plan):
    """Except for its name, and the width of dense layers that do not exist."""
    model = plan["job"]["model"]
    return model if isinstance(model, str) else {**model, "name": ""}
