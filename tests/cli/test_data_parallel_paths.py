#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every output names the paths of data-parallel communication."""
import json

from harness import check, finish, read, run, test, write

JOB = """\
longhaul: job/1
model: {layers: 8, hidden: 2048, ffn: 8192, heads: 16, vocab: 32000}
training: {global_batch: %d, sequence: 1024, precision: bf16, zero: %d}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [%s]
  links: [%s]
layout: {tensor: %d, pipeline: %d, data: %d, outermost: %s%s}
"""
ACROSS = "west>east + east>west"
LINK = "latency_ms: 0.1, gbps: 6400"


def plan(tensor, pipeline, data, outermost, sites=("west", "east"), nodes=2,
         zero=1, more=", schedule: 1f1b", options=()):
    places = ", ".join(f"{{name: {site}, nodes: {nodes}}}" for site in sites)
    links = ", ".join(f"{{between: [{a}, {b}], {LINK}}}"
                      for i, a in enumerate(sites) for b in sites[:i])
    write("job.yaml", JOB % (8 * data, zero, places, links, tensor, pipeline,
                             data, outermost, more))
    done = run("plan", "job.yaml", "-o", "plan.json", *options)
    check(done.returncode == 0, done.stderr)
    return json.loads(read("plan.json"))


def names_of(made):
    """Returns the path names of each device; all of its chunks must have the
    same."""
    pipeline, names = made["pipeline"], {}
    entry = pipeline.get("data_parallel", [])
    for row in entry if isinstance(entry, list) else entry["chunks"]:
        device = pipeline["chunks"][row["chunk"]]["device"]
        if row["all_gather"] or row["reduce_scatter"]:
            names.setdefault(device, set()).add(row["link"])
    return [" | ".join(sorted(names.get(d, {"none"})))
            for d in range(pipeline["devices"])]


@test
def replicas_at_two_sites_cross_the_links_between_them():
    for zero in [1, 3]:
        made = plan(4, 2, 4, "data", zero=zero)
        check(names_of(made) == [ACROSS] * 2, f"{zero}: {names_of(made)}")


@test
def a_ring_of_three_sites_uses_a_link_from_each():
    made = plan(8, 1, 6, "data", sites=("a", "b", "c"))
    names = names_of(made)[0].split(" + ")
    ends = sorted(name.split(">") for name in names)
    check([a for a, _ in ends] == ["a", "b", "c"] and
          sorted(b for _, b in ends) == ["a", "b", "c"], f"{names}")


@test
def rings_queue_with_messages_on_the_same_link():
    """Stage 1 has a replica in each site, and one pipeline crosses to it."""
    groups = ("[{replicas: 1, pipeline: [{datacenter: west, stages: 2}]}, "
              "{replicas: 1, pipeline: [{datacenter: west, stages: 1}, "
              "{datacenter: east, stages: 1}]}]")
    write("mixed.yaml", JOB % (32, 1, "{name: west, nodes: 3}, "
                               "{name: east, nodes: 1}",
                               "{between: [west, east], latency_ms: 2, "
                               "gbps: 100}", 8, 2, 2, "mixed",
                               f", schedule: 1f1b, sites: {groups}"))
    done = run("plan", "mixed.yaml", "-o", "plan.json")
    check(done.returncode == 0, done.stderr)
    made = json.loads(read("plan.json"))
    check(names_of(made) == ["fabric of west", ACROSS], f"{names_of(made)}")
    check({link.get("name") for link in made["pipeline"]["links"]} ==
          set(ACROSS.split(" + ")), "the links of messages")

    def simulate(pipeline):
        write("pipeline.json", json.dumps(pipeline))
        shown = run("simulate", "pipeline.json", "-s", "1f1b", "--json")
        check(shown.returncode == 0, shown.stderr)
        return json.loads(shown.stdout)["makespan_s"]

    text = run("simulate", "plan.json").stdout
    check("  device 0             fabric of west\n"
          f"  device 1             {ACROSS}, shared with messages\n" in text,
          text)
    planned = json.loads(run("simulate", "plan.json", "--json").stdout)
    shared = simulate(made["pipeline"])
    check(shared == planned["makespan_s"], f"{shared}, {planned}")
    for row in made["pipeline"]["data_parallel"]:
        row["link"] = row["link"].replace(ACROSS, "elsewhere")
    own = simulate(made["pipeline"])
    check(shared > own + 0.004, f"{shared} with messages, {own} apart")


@test
def replicas_within_a_site_cross_its_fabric_or_node_links():
    made = plan(4, 2, 4, "pipeline")
    check(names_of(made) == ["fabric of west", "fabric of east"],
          f"{names_of(made)}")
    check({link["name"] for link in made["pipeline"]["links"]} ==
          set(ACROSS.split(" + ")), "links have other names than in a ring")
    made = plan(2, 2, 4, "pipeline", nodes=1)
    check(names_of(made) == ["node links of west", "node links of east"],
          f"{names_of(made)}")


@test
def one_replica_has_nothing_to_name():
    made = plan(8, 2, 1, "pipeline", nodes=1)
    check("data_parallel" not in made["pipeline"], "it communicates")
    text = run("simulate", "plan.json").stdout
    check("Data-parallel links" not in text, text)
    shown = json.loads(run("simulate", "plan.json", "--json").stdout)
    check("dp_links" not in shown, f"{shown.get('dp_links')}")


@test
def an_elastic_plan_has_them_too():
    made = plan(4, 2, 4, "data", zero=2, options=("--no-optimal",),
                more=", schedule: elastic, sharding: full")
    check(made.get("elastic"), "nothing is sharded")
    check(names_of(made) == [ACROSS] * 2, f"{names_of(made)}")


@test
def names_are_where_the_communication_is_shown():
    plan(4, 2, 4, "pipeline")
    done = run("simulate", "plan.json", "--trace", "trace.json")
    check("Data-parallel links\n"
          "  device 0             fabric of west\n"
          "  device 1             fabric of east\n" in done.stdout,
          done.stdout)
    shown = json.loads(run("simulate", "plan.json", "--json").stdout)
    names = ["fabric of west", "fabric of east"]
    check(shown["dp_links"] == names, f"{shown['dp_links']}")
    trace = json.loads(read("trace.json"))
    check([d["dp_link"] for d in trace["devices"]] == names, "the trace")
    threads = {event["args"]["name"] for event in trace["traceEvents"]
               if event["name"] == "thread_name"}
    for device, name in enumerate(names):
        thread = f"device {device} data-parallel link: {name}"
        check(thread in threads, f"{thread} is none of {threads}")
    done = run("explain", "plan.json", "--rank", "1")
    check("all-gather of chunk 1 over fabric of east, before 1F0\n" in
          done.stdout and
          "reduce-scatter of chunk 1 over fabric of east\n" in done.stdout,
          done.stdout)
    lowered = json.loads(run("explain", "plan.json", "--json").stdout)
    over = {row.get("link") for row in lowered["instructions"]
            if row["stream"] == "data"}
    check(over == {"fabric of west"}, f"{over}")
    for source in ["plan.json", "trace.json"]:
        done = run("report", source, "-o", "page.html")
        check(done.returncode == 0, done.stderr)
        check('"dpLink":["fabric of west","fabric of east"]' in
              read("page.html"), f"the report of {source}")


@test
def operations_are_explained_with_kind_share_and_bucket():
    write("ops.yaml", """\
        longhaul: pipeline/1
        microbatches: 2
        devices: 4
        uniform: {placement: loop, chunks_per_device: 2, F: 6, D: 6, W: 6}
        data_parallel:
          operations:
            - {chunk: 4, all_gather: 20, kind: AGF, share: 0.84375, launch: 0F0, before: 4F0}
            - {chunk: 4, reduce_scatter: 10, bucket: 0/2, launch: 0B0}
            - {chunk: 4, reduce_scatter: 10, bucket: 1/2, launch: 0B1}
        """)
    args = "explain", "ops.yaml", "-s", "interleaved-1f1b"
    text = run(*args).stdout
    for line in ("AGF, all-gather of 84.4 % of chunk 4, before 4F0",
                 "reduce-scatter of chunk 4, bucket 0/2",
                 "reduce-scatter of chunk 4, bucket 1/2"):
        check(f"{line}\n" in text, f"{line} in {text}")
    found = [{key: row[key] for key in
              ("collective", "kind", "share", "bucket", "buckets")
              if key in row}
             for row in json.loads(run(*args, "--json").stdout)["instructions"]
             if row["stream"] == "data"]
    parts = [{"collective": "reduce-scatter", "bucket": i, "buckets": 2}
             for i in (0, 1)]
    check(found == [{"collective": "all-gather", "kind": "AGF",
                     "share": 0.84375}, *parts], f"{found}")


@test
def paths_without_names_show_none():
    write("p.yaml", """\
        longhaul: pipeline/1
        microbatches: 2
        devices: 2
        uniform: {F: 3, D: 3, W: 3}
        data_parallel: [{chunk: 0, all_gather: 3, reduce_scatter: 5}]
        """)
    done = run("simulate", "p.yaml", "--schedule", "1f1b", "--trace", "t.json")
    check("Data-parallel links" not in done.stdout, done.stdout)
    text = read("t.json")
    check('"device 0 data-parallel link"' in text and "dp_link" not in text,
          "the trace")


finish()
