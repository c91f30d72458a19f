#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul init: a template of a job that plans without changes."""
import json
import os
import re

from harness import (
    ROOT,
    WORK,
    case,
    check,
    finish,
    json_case,
    read,
    run,
    test,
    write,
)

SMALL = ["-m", "llama3-8b", "--nodes", "1", "--gpus-per-node", "2", "--batch",
         "16"]


def planned(*options):
    """Plans the output of init with these options."""
    text = run("init", *options).stdout
    write("job.yaml", text)
    return json_case(f"plan of init {' '.join(options)}",
                     ["plan", "job.yaml", "--json", "-q", "--no-optimal",
                      "--search", "even"])


@test
def without_options_a_job_is_printed():
    done = case("init", ["init"], out=r"\A# A training job.*\nlonghaul: job/1\n"
                r".*\nmodel: llama3-70b .*\ncluster:\n  gpu: h100-sxm ")
    check("links" not in done.stdout.replace("linked", ""), "one site: no link")


@test
def the_printed_job_can_be_planned():
    one = planned(*SMALL)
    check(one["iteration_s"] > 0, "a plan")
    two = planned(*SMALL, "--sites", "2", "--latency-ms", "1")
    far = planned(*SMALL, "--sites", "2", "--latency-ms", "2000",
                  "--link-gbps", "0.5")
    check(two["iteration_s"] < one["iteration_s"], "two sites are faster")
    check(far["iteration_s"] > two["iteration_s"], "unless they are far")
    mixed = planned(*SMALL, "--sites", "2", "--gpu", "h100,v100")
    check(mixed["iteration_s"] > 0, "unequal sites")


@test
def each_option_is_in_the_job():
    told = json_case("json", ["init", "--json", "-m", "mixtral-8x7b", "-g",
                              "a100", "-s", "3", "-n", "4,2,1", "-b", "96",
                              "--sequence", "512", "--link-gbps", "40.5",
                              "--latency-ms", "0.25", "--gpus-per-node", "4"])
    check(told["model"] == "mixtral-8x7b" and told["sites"] == 3 and
          told["gpus"] == 28 and told["parameters"] > 46e9, "what it says")
    for line in ("model: mixtral-8x7b ", "  global_batch: 96 ",
                 "  sequence: 512 ", "  gpu: a100-80g ", "  gpus_per_node: 4 ",
                 "    - {name: west, nodes: 4}", "    - {name: east, nodes: 2}",
                 "    - {name: north, nodes: 1}",
                 "    - {between: [west, east], latency_ms: 0.25, gbps: 40.5}",
                 "    - {between: [west, north], latency_ms: 0.25, gbps: 40.5}",
                 "    - {between: [east, north], latency_ms: 0.25, gbps: 40.5}"):
        check("\n" + line in told["job"], line)
    check("file" not in told, "no file is written")


@test
def a_file_is_written_and_not_overwritten():
    case("file", ["init", "-s", "2", "-o", "job.yaml"],
         out=r"model   llama3-70b, 70\.55 billion parameters\n"
             r"GPUs    64 in 2 datacenters\njob     job\.yaml\n"
             r"next    longhaul plan job\.yaml\n\Z")
    first = read("job.yaml")
    check(first == run("init", "-s", "2").stdout, "Write the output to FILE.")
    case("again", ["init", "-m", "kimi-k2", "-o", "job.yaml"], 1,
         err=r"\Alonghaul: job\.yaml already exists; name another file, or "
             r"overwrite it with --force\n\Z")
    check(read("job.yaml") == first, "it is as it was")
    json_case("told to", ["init", "-m", "kimi-k2", "-o", "job.yaml", "--force",
                          "--json"])
    check("\nmodel: kimi-k2 " in read("job.yaml"), "it is another one")
    case("wrong, and told to", ["init", "-m", "gpt3-175b", "--sequence", "4096",
                                "-o", "job.yaml", "-f"], 1,
         err=r"sequence: gpt3-175b has learned 2048 positions")
    check("\nmodel: kimi-k2 " in read("job.yaml"), "it stays")
    case("force without a file", ["init", "-f"], 2, err="--force requires -o FILE")
    case("no folder", ["init", "-o", "nowhere/job.yaml"], 1, err="nowhere")


@test
def unknown_names_give_the_nearest():
    for name, near in (("llama-70b", "llama3-70b"), ("deepseek", "deepseek-v3"),
                       ("qwen2.5-72", "qwen2.5-72b")):
        case(name, ["init", "--model", name], 2,
             err=rf"\Alonghaul: init: --model: unknown name '{name}'; did you "
                 rf"mean {near}\? Known: llama3-8b, [^\n]*crosspipe-m70\n")
    for gpu, near in (("h10", "h100-sxm"), ("MI300X", "mi300x"),
                      ("mi355", "mi355x"), ("gb20", "gb200")):
        case(gpu, ["init", "--gpu", f"h100,{gpu}", "--sites", "2"], 2,
             err=rf"--gpu: unknown name '{gpu}'; did you mean {near}\? Known: "
                 r"v100-32g, [^\n]*mi355x\n")
    # The next value is a different product.
    for option, name in (("--gpu", "mi250x"), ("--gpu", "h900"),
                         ("--gpu", "b100"), ("--model", "qwen4-32b"),
                         ("--model", "deepseek-v2")):
        case(name, ["init", option, name], 2,
             err=rf"{option}: unknown name '{name}'; known: ")
    case("none near", ["init", "--gpu", "xyzzyxy"], 2,
         err=r"--gpu: unknown name 'xyzzyxy'; known: v100-32g")
    case("aliases", ["init", "-m", "deepseek-r1", "-g", "v100"],
         out=r"\nmodel: deepseek-v3 .*precision: fp16 .*gpu: v100-32g ")


@test
def wrong_numbers_are_refused():
    for options, says in (
            (["--sites", "0"], "'0' is not a whole number from 1 to 64"),
            (["--sites", "65"], "'65' is not a whole number from 1 to 64"),
            (["--nodes", "0"], "--nodes: '0' is not a whole number"),
            (["--nodes", "4,"], "--nodes: 2 values for 1 site; give one"),
            (["-s", "2", "--nodes", "4,"], "--nodes: '' is not a whole number"),
            (["-s", "3", "--nodes", "4,2"],
             "--nodes: 2 values for 3 sites; give one, or one for each"),
            (["-s", "3", "--gpu", "h100,h200"], "--gpu: 2 values for 3 sites"),
            (["--gpus-per-node", "x"], "--gpus-per-node: 'x' is not"),
            (["--latency-ms", "5"], "--latency-ms has no effect with one site"),
            (["--link-gbps", "5"], "--link-gbps has no effect with one site"),
            (["-s", "2", "--latency-ms", "20ms"], "'20ms' is not a number"),
            (["-s", "2", "--link-gbps", "0"], "'0' is not a number above 0"),
            (["--batch", "0"], "'0' is not a whole number from 1"),
            (["job.yaml"], "unexpected argument 'job.yaml'; it takes none")):
        case(" ".join(options), ["init", *options], 2, err=says)
    case("GPUs of a node", ["init", "--gpus-per-node", "2000"], 1,
         err="gpus_per_node")


@test
def a_config_json_is_a_model():
    config = ROOT / "tests/data/configs/Qwen3-30B-A3B/config.json"
    os.makedirs(WORK / "jobs", exist_ok=True)
    write("jobs/config.json", config.read_text())
    os.makedirs(WORK / "jobs/new", exist_ok=True)
    os.makedirs(WORK / "jobs2", exist_ok=True)
    for output, path in (("jobs/job.yaml", "config.json"),
                         ("jobs/new/../job.yaml", "config.json"),
                         ("jobs/new/job.yaml", "../config.json"),
                         ("jobs2/job.yaml", "../jobs/config.json"),
                         ("job.yaml", "jobs/config.json"),
                         (str(WORK / "jobs2/job.yaml"), "../jobs/config.json")):
        case(output, ["init", "-m", "jobs/config.json", "-o", output, "-f"],
             out=r"30\.53 billion parameters")
        check(f'\nmodel: "{path}" ' in read(output), f"{output}: {path}")
    case("the file that was named", ["init", "-m", "config.json", "-o",
                                     "jobs/job.yaml", "-f"], 2,
         err="unknown name 'config.json'")
    case("elsewhere", ["init", "-m", "jobs/config.json"],
         out=r'model: "jobs/config\.json" ')
    case("itself", ["init", "-m", "jobs/config.json", "-o", "jobs/config.json",
                    "--force"], 2, err="would overwrite")
    check(json.loads(read("jobs/config.json")), "it is as it was")
    case("missing", ["init", "-m", "nowhere/config.json"], 2,
         err=r"--model: unknown name 'nowhere/config\.json'; known:")


@test
def completions_contain_the_names():
    for shell in ("bash", "zsh", "fish"):
        case(shell, ["__generate", shell],
             out=r"llama3-8b llama3-70b.*v100-32g a100-40g")
    case("manual", ["__generate", "man", "init"],
         out=r"MODELS\n.*It Cm deepseek\\?-v3\n61 layers.*GPUS\n.*It Cm h200\n")
    case("help", ["init", "--help-all"],
         out=r"Models:\n  llama3-8b +32 layers.*GPUs:\n  v100-32g +125 TFLOP/s")


@test
def regions_have_latencies_and_prices():
    job = case("regions", ["init", *SMALL, "--sites",
                           "gcp:us-east4,gcp:europe-west4"],
               out="Cloud regions: latencies and list prices").stdout
    for line in ("    - {name: us-east4, nodes: 1, usd_per_gpu_hour: 10.979}",
                 "    - {from: us-east4, to: europe-west4, latency_ms: 42.55, "
                 "gbps: 3200, usd_per_gb: 0.08}"):
        check("\n" + line in job, line)
    plan = planned(*SMALL, "--sites", "aws:us-east-1,azure:eastus")
    check(plan["cost"]["usd"] > 0, "a plan with a cost")
    job = case("no price", ["init", *SMALL, "--sites",
                            "gcp:us-east4,gcp:asia-south2"],
               out="Cloud regions: latencies are presets",
               err=r"no list price of h100-sxm in gcp:asia-south2 is known, "
               r"so that the job has no prices; add usd_per_gpu_hour").stdout
    check("usd_per_gpu_hour: " not in job.replace("# usd_per", "") and
          "no list price of h100-sxm in gcp:asia-south2 is known" in " ".join(
              job.replace("#", " ").split()), "no price")
    case("unknown", ["init", "--sites", "us-east4,gcp:us-west1"], 2,
         err=r"unknown region 'us-east4'; similar: gcp:us-east4, gcp:us-east1")
    case("twice", ["init", "--sites", "gcp:us-east4,gcp:us-east4"], 1,
         err=r"cloud region 'gcp:us-east4' twice")
    case("latency", ["init", "--sites", "gcp:us-east4,gcp:us-west1",
                     "--latency-ms", "3"], 2, err="--latency-ms has no effect")
    case("number", ["init", "--sites", "0"], 2,
         err="'0' is not a whole number from 1 to 64, and not a list of cloud")


@test
def the_page_has_the_prices_of_the_program():
    page = (ROOT / "docs/formats/cloud.md").read_text()
    prices = re.findall(r"^\| `(\S+)` \| ([a-z]\S+) \| ([\d.]+) \| \S+ \|$",
                        page, re.M)
    check(len(prices) == 39, f"{len(prices)} prices")
    for region, gpu, price in prices:
        job = run("init", "-m", "llama3-8b", "-g", gpu, "--sites",
                  region).stdout
        check(f"usd_per_gpu_hour: {float(price):.15g}" in job,
              f"{region}, {gpu}: {price}\n{job}")
    check("Between `aws:us-east-1` and `aws:us-east-2` the price is 0.01." in
          " ".join(page.split()), page)
    for other, price in ("us-east-2", "0.01"), ("us-west-2", "0.02"):
        job = run("init", "-m", "llama3-8b", "-g", "h100-sxm", "--sites",
                  f"aws:us-east-1,aws:{other}").stdout
        check(job.count(f"usd_per_gb: {price}}}") == 2, job)


finish()
