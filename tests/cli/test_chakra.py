#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul export --to chakra: execution traces of a plan, read and replayed
without longhaul."""
import json

from chakra_traces import (COLLECTIVE, COMPUTE, RECEIVE, SEND, read_rank,
                           replay, write_rank)
from harness import (ANY, ROOT, WORK, case, check, finish, json_case, read,
                     test, write)

SOON = ["--no-optimal", "--search", "even"]
JOB = """
    longhaul: job/1
    model: llama3-8b
    training: {global_batch: 32, sequence: 4096, precision: bf16}
    cluster:
      gpu: h100-sxm
      gpus_per_node: 8
      node_link: {gbps: 3600, latency_us: 3}
      fabric: {gbps: 400, latency_us: 8}
      datacenters: [{name: west, nodes: 1}, {name: east, nodes: 1}]
      links: [{between: [west, east], latency_ms: 5, gbps: 400}]
    layout: {tensor: 2, pipeline: 4, data: 2, micro_batch: 1,
             outermost: OUTERMOST}
    """


def exported(operand, n, *options):
    """Returns the nodes of each rank, and the metadata of rank 0."""
    case("export", ["export", operand, "--to", "chakra", "-o", "et", *options],
         0, out=rf"^written +et.0.et to et.{n - 1}.et, et.groups.json\n$")
    check(not (WORK / f"et.{n}.et").exists(), "no further rank")
    ranks = [read_rank(WORK / f"et.{r}.et") for r in range(n)]
    for r, (metadata, _) in enumerate(ranks):
        check(metadata["rank"] == r and metadata["version"] == "0.0.4",
              metadata)
    return [nodes for _, nodes in ranks], ranks[0][0]


def consistent(ranks, groups):
    """Checks that each send has its receive, and that replicas run the same
    collectives."""
    ends = {SEND: {}, RECEIVE: {}}
    for r, nodes in enumerate(ranks):
        check(len({n["id"] for n in nodes}) == len(nodes), "ids are unique")
        for n in nodes:
            if n["type"] in ends:
                own = "comm_src" if n["type"] == SEND else "comm_dst"
                check(n[own] == r, f"{n['name']} is on rank {n[own]}, not {r}")
                key = n["comm_src"], n["comm_dst"], n["comm_tag"]
                check(key not in ends[n["type"]], f"{key} occurs once")
                ends[n["type"]][key] = n["comm_size"]
            elif n["type"] == COLLECTIVE:
                check(r in groups[n["pg_name"]], f"{r} in {n['pg_name']}")
    check(ends[SEND] and ends[SEND] == ends[RECEIVE], "sends match receives")
    for group in groups.values():
        order = [[(n["name"], n["comm_type"], n["comm_size"])
                  for n in ranks[r] if n["type"] == COLLECTIVE] for r in group]
        check(all(one == order[0] for one in order), "collectives are equal")


def replays(ranks, total):
    """Checks that dependencies alone give the start times and the makespan."""
    ends, starts = replay(ranks)
    check(max(ends) == total, f"replayed {max(ends)}, not {total}")
    wrong = [(r, n["name"], starts[r, n["id"]], n["start_ns"])
             for r, nodes in enumerate(ranks) for n in nodes
             if starts[r, n["id"]] != n["start_ns"]]
    check(not wrong, f"starts differ: {wrong[:4]}")


@test
def plans_replay_to_their_iteration_time():
    for outermost, schedule in (("pipeline", "1f1b"), ("data", "zb-h1"),
                                ("pipeline", "interleaved-1f1b")):
        write("job.yaml", JOB.replace("OUTERMOST", outermost + ", schedule: " +
                                      schedule))
        case("plan", ["plan", "job.yaml", *SOON, "-q"], 0, out=ANY)
        plan = json.loads(read("plan.json"))
        ranks, _ = exported("plan.json", 8)
        groups = json.loads(read("et.groups.json"))
        check(groups["1"] == ([0, 4] if outermost == "data" else [0, 1]),
              groups)
        consistent(ranks, groups)
        check(any(n["type"] == COLLECTIVE and n["comm_size"] > 0
                  for n in ranks[0]), "replicas communicate")
        replays(ranks, round(plan["iteration_s"] * 1e9))
        found = json_case("simulate", ["simulate", "et.0.et"])
        check(found["makespan_s"] == plan["iteration_s"] and
              [rank["nodes"] for rank in found["ranks"]] == [
                  len(nodes) for nodes in ranks], found)
        # A message has micro_batch x sequence x hidden elements of 16 bits.
        check({n["comm_size"] for n in ranks[0] if n["type"] == SEND} ==
              {4096 * 4096 * 2}, "bytes of a message")
        passes = [n["name"] for n in ranks[0] if n["type"] == COMPUTE]
        check(passes[-1] == "OPTIMIZER" and "0F0" in passes, passes[-1])
        for n in ranks[0]:
            check(n["start"] == (n["start_ns"] + 500) // 1000, n)


@test
def pipelines_replay_to_their_makespan():
    example = str(ROOT / "examples/pipeline-two-sites.yaml")
    for method in "zb-h1", "slack", "greedy":
        result = json_case("simulate", ["simulate", example, "-s", method])
        ranks, metadata = exported(example, 4, "-s", method)
        total = round(result["makespan_s"] * 1e9)
        check(metadata["makespan_ns"] == total, metadata)
        replays(ranks, total)
        # Without bytes, a transfer of 2 ms is 2,000,000 bytes at 1 GB/s.
        check({n["comm_size"] for n in ranks[1] if n["type"] == SEND} ==
              {0, 2000000}, "sizes are times")


@test
def traces_of_others_replay():
    # Rank 1 computes for 20 us; the collectives of a group start together.
    for group in "1", "data_parallel_group_of_the_first_stage":
        for rank, micros in enumerate((10, 20)):
            write_rank(WORK / f"x.{rank}.et", [
                (1, COMPUTE, micros, [], {}),
                (2, COLLECTIVE, 5, [1], {"comm_type": 0, "pg_name": group}),
                (3, COMPUTE, 3, [2], {})])
        found = json_case("collectives", ["simulate", "x.0.et"])
        check(found == {"makespan_s": 28e-6, "ranks": [
            {"nodes": 3, "end_s": 28e-6, "compute_s": 13e-6},
            {"nodes": 3, "end_s": 28e-6, "compute_s": 23e-6}]}, found)
    case("text", ["simulate", "x.0.et"], 0,
         out="(?s)^iteration +28 us .2 ranks.*23 us on rank 1, the most")
    # A receive starts with its send, in any order of the list.
    ends = {"comm_src": 0, "comm_dst": 1, "comm_tag": 7, "comm_size": 8}
    write_rank(WORK / "x.0.et", [(9, COMPUTE, 10, [], {}),
                                 (4, SEND, 2, [9], ends)])
    write_rank(WORK / "x.1.et", [(2, COMPUTE, 1, [5], {}),
                                 (5, RECEIVE, 6, [], ends)])
    found = json_case("messages", ["simulate", "x.0.et"])
    check(found["makespan_s"] == 17e-6, found)


@test
def damaged_traces_are_refused():
    ends = {"comm_src": 0, "comm_dst": 1, "comm_tag": 7}
    for nodes, why in (
            ([(1, COMPUTE, 1, [2], {})], "node 1: depends on node 2, which is not in"),
            ([(1, COMPUTE, 1, [], {})] * 2, "node 1: occurs twice"),
            ([(1, SEND, 1, [], ends)], "node 1: is a message without its other"),
            ([(1, COMPUTE, 0, [], {"num_ops": 5})],
             "node 1: has a number of operations but no duration"),
            ([(1, SEND, 1, [], {"comm_src": 0}),
              (2, RECEIVE, 1, [], {"comm_src": 0})],
             "node 1: has no rank in comm_src or comm_dst"),
            ([(1, SEND, 0, [], ends | {"comm_size": 8})],
             "node 1: has a number of bytes but no duration"),
            ([(1, COLLECTIVE, 0, [], {"comm_size": 8})],
             "node 1: has a number of bytes but no duration"),
            ([(1, COMPUTE, 1 << 60, [], {})],
             r"node 1: has a duration above 2\^53 ns"),
            ([(1, COMPUTE, 1, [], {"duration_ns": 1 << 63})],
             r"node 1: has a duration above 2\^53 ns"),
            ([(i, COMPUTE, 1 << 42, [], {}) for i in (1, 2, 3)],
             r"node 3: its rank computes for more than 2\^53 ns"),
            ([(1, COMPUTE, 1, [2], {}), (2, COMPUTE, 1, [1], {})],
             "node 1: waits for nodes that wait for it")):
        write_rank(WORK / "x.0.et", nodes)
        case(why, ["simulate", "x.0.et"], 1, err=rf"^longhaul: x\.0\.et: {why}")
    write_rank(WORK / "x.0.et", [(1, COMPUTE, 1, [], {})] * 3)
    whole = (WORK / "x.0.et").read_bytes()
    (WORK / "x.0.et").write_bytes(whole[:-3])
    case("cut off", ["simulate", "x.0.et"], 1,
         err=r"x\.0\.et: is not an execution trace of Chakra: damaged at byte")
    case("not the first", ["simulate", "x.1.et"], 1,
         err="give the trace of rank 0, PREFIX.0.et")
    case("an option", ["simulate", "x.0.et", "--fifo"], 2,
         err="--fifo has no effect on an execution trace")


@test
def wrong_uses_are_refused():
    example = str(ROOT / "examples/pipeline-two-sites.yaml")
    case("no prefix", ["export", example, "--to", "chakra"], 2,
         err="--to chakra requires -o PREFIX")
    case("no folder", ["export", example, "--to", "chakra", "-o", "no/et"], 1,
         err="no/et: cannot write")
    write("job.yaml", JOB.replace("OUTERMOST", "data"))
    case("plan", ["plan", "job.yaml", *SOON, "-q"], 0, out=ANY)
    case("bundle", ["export", "plan.json", "--to", "chakra", "--bundle", "b"],
         1, err="chakra")
    found = json_case("json", ["export", example, "--to", "chakra", "-o", "et"])
    check(found == {"to": "chakra", "file": "et", "ranks": 4}, found)
    write("et.4.et", "")
    case("a further rank", ["export", example, "--to", "chakra", "-o", "et"], 1,
         err=r"et\.4\.et: is the trace of a further rank, from another export")


@test
def bytes_are_those_of_symbolic_tensor_graph():
    """Elements of its traces (commit 3a7f49c0, main.py --pp 2 --dp 2 --num_stacks
    4 --dmodel 1024 --dff 4096 --head 16 --kvhead 16 --dvocal 32000 --seq 512
    --batch 16 --micro_batch 2), which have no norms."""
    message, parameters, norms = 524288, 2 * 12582912 + 32768000, 1024
    write("stg.yaml", """
        longhaul: job/1
        model: {layers: 4, hidden: 1024, ffn: 4096, heads: 16, vocab: 32000,
                gated: false, tied_embeddings: false}
        training: {global_batch: 16, sequence: 512, zero: 1, recompute: none}
        cluster:
          gpu: h100-sxm
          gpus_per_node: 4
          node_link: {gbps: 3600, latency_us: 3}
          fabric: {gbps: 400, latency_us: 8}
          datacenters: [{name: a, nodes: 1}]
        layout: {tensor: 1, context: 1, pipeline: 2, data: 2, micro_batch: 1,
                 chunks_per_device: 1, outermost: pipeline, schedule: 1f1b}
        """)
    case("plan", ["plan", "stg.yaml", *SOON, "-q", "-o", "stg.json"], out=ANY)
    ranks, _ = exported("stg.json", 4)
    for rank, nodes in enumerate(ranks):
        sizes = {kind: [n["comm_size"] for n in nodes if n["type"] == kind]
                 for kind in (SEND, COLLECTIVE)}
        check(sizes[SEND] == [2 * message] * 8, f"rank {rank}: {sizes}")
        # Parameters in 2 bytes, gradients in 4; two norms per layer, and one
        # before the head.
        elements = parameters + (4 if rank < 2 else 5) * norms
        check(sorted(sizes[COLLECTIVE]) == [2 * elements, 4 * elements],
              f"rank {rank}: {sizes}")


finish()
