# SPDX-License-Identifier: Apache-2.0
"""What is exported and imported again: the machines it was planned for."""
import re


def same_cluster(plan, arguments):
    """The plan's machines in the order of its ranks; None: some of them are
    used in part."""
    cluster = plan["job"]["cluster"]
    sites = {site["name"]: site for site in cluster["datacenters"]}
    used = {name: 0 for name in sites}
    order = re.findall(r"^# Ranks (\d+) to (\d+): (\S+)", arguments, re.M)
    if not order:
        order = [(0, plan["search"]["gpus_used"] - 1, next(iter(sites)))]
    names = [name for _, _, name in order]
    for first, last, name in order:
        used[name] += int(last) - int(first) + 1
    if len(set(names)) < len(names):
        return None
    for name in names:
        nodes, rest = divmod(used[name], sites[name]["gpus_per_node"])
        sites[name]["nodes"] = nodes
        if rest:
            return None
    cluster["datacenters"] = [sites[name] for name in names]
    cluster["links"] = [link for link in cluster["links"]
                        if link["from"] in names and link["to"] in names]
    return {"longhaul": "job/1", "model": "llama3-8b", "cluster": cluster,
            "training": {"global_batch": 64, "sequence": 4096}}


def model_of(plan):
    """But for its name, and the width of dense layers that are not there."""
    model = plan["job"]["model"]
    return model if isinstance(model, str) else {**model, "name": ""}
