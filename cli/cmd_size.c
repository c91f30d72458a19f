/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul size: finds the fewest and the cheapest GPUs that train a
 * number of tokens before a deadline and within a budget, and the fastest that
 * a budget pays. */
#include "commands.h"
#include "plan_cost.h"
#include "problem.h"
#include "size_view.h"
#include "values.h"

#include <longhaul/experimental/size.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *tokens, *budget, *nodes, *spot;
    int64_t deadline_ns, gpu_mtbf_ns, link_mtbf_ns, checkpoint_ns, restart_ns,
        repair_ns, link_repair_ns;
    double gpu_hour_usd, per_gb_usd;
    uint32_t spares, lose, effort, threads;
} settings;

static const cli_option options[] = {
    {.name = "tokens",
     .letter = 't',
     .type = CLI_TEXT,
     .at = offsetof(settings, tokens),
     .arg = "N",
     .example_argument = "15T",
     .help = "Tokens to train, as 15T, 300B or 2e12. Required."},
    {.name = "deadline",
     .letter = 'd',
     .type = CLI_TIME,
     .at = offsetof(settings, deadline_ns),
     .arg = "TIME",
     .example_argument = "30d",
     .help = "Longest training time, with failures: 30d, 720h."},
    {.name = "budget",
     .letter = 'b',
     .type = CLI_TEXT,
     .at = offsetof(settings, budget),
     .arg = "USD",
     .example_argument = "20M",
     .help = "Highest cost of the training, as 20M, 750K or 750000; requires "
             "prices."},
    {.name = "nodes",
     .letter = 'n',
     .type = CLI_TEXT,
     .at = offsetof(settings, nodes),
     .arg = "LEAST:MOST[,LEAST:MOST...]",
     .example_argument = "4:64",
     .help = "Nodes to consider per datacenter: one range for all, or one for "
             "each; LEAST 0 allows the size to leave the datacenter out; 16 "
             "means 16:16, and 0 excludes the datacenter. Default: from 0 up "
             "to the job's nodes."},
    CLI_PRICE_ROWS(settings),
    {.name = "spot",
     .type = CLI_TEXT,
     .at = offsetof(settings, spot),
     .arg = "SHARE,TIME",
     .example_argument = "0.35,50h",
     .help = "Also consider spot capacity, at this share of the prices, whose "
             "nodes are each taken away every TIME on average."},
    {.name = "gpu-mtbf",
     .type = CLI_TIME,
     .at = offsetof(settings, gpu_mtbf_ns),
     .arg = "TIME",
     .example_argument = "20000h",
     .preset = "50000h",
     .help = "Mean time between failures of one GPU. The default is that of "
             "Llama 3's training on 16,384 H100s."},
    {.name = "link-mtbf",
     .type = CLI_TIME,
     .at = offsetof(settings, link_mtbf_ns),
     .arg = "TIME",
     .example_argument = "720h",
     .help = "Mean time between failures of the link between two datacenters, "
             "which stop training. Default: links do not fail."},
    {.name = "checkpoint",
     .type = CLI_TIME_OR_0,
     .at = offsetof(settings, checkpoint_ns),
     .arg = "TIME",
     .example_argument = "30s",
     .preset = "30s",
     .help = "Time for which a checkpoint stops training."},
    {.name = "restart",
     .type = CLI_TIME_OR_0,
     .at = offsetof(settings, restart_ns),
     .arg = "TIME",
     .example_argument = "5min",
     .preset = "5min",
     .help = "Time from a failure until training continues from the last "
             "checkpoint."},
    {.name = "repair",
     .type = CLI_TIME_OR_0,
     .at = offsetof(settings, repair_ns),
     .arg = "TIME",
     .example_argument = "24h",
     .preset = "24h",
     .help = "Time until a failed node returns. Meanwhile a spare replaces it; "
             "without one, training continues on the other nodes with a new "
             "plan."},
    {.name = "link-repair",
     .type = CLI_TIME_OR_0,
     .at = offsetof(settings, link_repair_ns),
     .arg = "TIME",
     .example_argument = "4h",
     .preset = "1h",
     .help = "Time until a failed link between datacenters returns."},
    {.name = "spares",
     .type = CLI_COUNT,
     .at = offsetof(settings, spares),
     .arg = "N",
     .preset = "0",
     .most = 100000,
     .help = "Spare nodes in each datacenter in use; they count in GPUs and "
             "cost."},
    {.name = "lose",
     .type = CLI_COUNT,
     .at = offsetof(settings, lose),
     .arg = "N",
     .preset = "2",
     .least = 1,
     .most = 100000,
     .help =
         "Also plan the training after a loss of N nodes in each datacenter."},
    {.name = "effort",
     .type = CLI_COUNT,
     .at = offsetof(settings, effort),
     .arg = "N",
     .preset = "24",
     .least = 1,
     .most = 1000000,
     .help =
         "Number of sizes (node counts per datacenter) to plan; all sizes if "
         "the ranges of --nodes contain no more. The result is deterministic."},
    CLI_THREADS_ROW(settings, "Use at most N threads (default: number of "
                              "processors); the result does not depend on it."),
};

static const cli_example examples[] = {
    {"longhaul size job.yaml --tokens 2T --deadline 20d --nodes 0:64 "
     "--gpu-hour 2.5",
     "Find the fewest and the cheapest nodes of each datacenter."},
    {"longhaul size job.yaml --tokens 15T --deadline 60d --budget 20M "
     "--gpu-hour 2.5 -o sized.yaml",
     "Write the job with the cheapest nodes; then: longhaul plan sized.yaml"},
    {"longhaul size job.yaml --tokens 2T --budget 5M --gpu-hour 2.5",
     "Find the shortest training that a budget pays."},
    {"longhaul size job.yaml --tokens 2T --deadline 20d --spares 2 --lose 2",
     "Keep two spare nodes in each datacenter."},
};

/* --- parsing ------------------------------------------------------------ */

/* Parses a number above 0 with an optional suffix (K, M, B or G, T: powers of
 * 1000) into *out. Returns false if the text is invalid. */
static bool parse_amount(const char *text, double *out)
{
    static const char suffixes[] = "KMBGT";
    static const double factors[] = {1e3, 1e6, 1e9, 1e9, 1e12};
    const char *rest;
    if (!cli_parse_real(text, out, &rest) || !(*out > 0))
        return false;
    const char *suffix = *rest ? strchr(suffixes, *rest) : NULL;
    if (suffix) {
        *out *= factors[suffix - suffixes];
        rest++;
    }
    return !*rest && *out <= 1e18;
}

/* Parses `text`, the value of --`option`, as an amount above 0 into *out; 0 if
 * `text` is NULL (not given). The error message shows `example`. */
static lh_status read_amount(cli *c, const char *option, const char *text,
                             const char *example, double *out)
{
    *out = 0;
    if (!text || parse_amount(text, out))
        return LH_OK;
    return cli_usage(c, "--%s: '%.60s' is not a number above 0 such as %s",
                     option, text, example);
}

/* Parses the first `len` characters, a node count range "4:64" or a single
 * count "16", into *out; false: invalid. */
static bool parse_range(const char *text, size_t len, lh_size_range *out)
{
    char part[64];
    uint64_t least, most;
    if (len >= sizeof part)
        return false;
    memcpy(part, text, len);
    part[len] = '\0';
    char *colon = strchr(part, ':');
    if (colon)
        *colon = '\0';
    if (!cli_parse_count(part, 0, LH_MAX_GPUS, &least) ||
        !cli_parse_count(colon ? colon + 1 : part, 0, LH_MAX_GPUS, &most) ||
        least > most)
        return false;
    *out = (lh_size_range){(uint32_t)least, (uint32_t)most};
    return true;
}

/* Reads the node count ranges from `text`, the --nodes value: one for all
 * datacenters, or one for each, into ranges[datacenter]. */
static lh_status read_ranges(cli *c, const lh_job *job, const char *text,
                             lh_size_range ranges[LH_MAX_DATACENTERS])
{
    uint32_t n = 1;
    for (const char *at = text; (at = strchr(at, ',')); at++)
        n++;
    if (n > 1 && n != job->n_datacenters)
        return cli_usage(c,
                         "--nodes: %" PRIu32 " ranges for %" PRIu32
                         " datacenter%s; give one, or one for each",
                         n, job->n_datacenters,
                         job->n_datacenters > 1 ? "s" : "");
    uint64_t gpus = 0;
    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        const size_t len = strcspn(text, ",");
        if (!parse_range(text, len, &ranges[i]))
            return cli_usage(c,
                             "--nodes: '%.*s' is not a range of nodes such as "
                             "4:64 or 0:16",
                             len < 60 ? (int)len : 60, text);
        if (n > 1)
            text += len + 1;
        gpus += (uint64_t)ranges[i].most * job->datacenters[i].gpus_per_node;
    }
    if (gpus == 0)
        return cli_usage(c, "--nodes: no datacenter may have a node; give one "
                            "of them a range such as 0:16");
    if (gpus > LH_MAX_GPUS)
        return cli_usage(c,
                         "--nodes: %" PRIu64
                         " GPUs in all datacenters; at most %u are allowed",
                         gpus, LH_MAX_GPUS);
    return LH_OK;
}

/* Parses the --spot value: "0.35,50h", price as a share of the list price and
 * mean time between a node's preemptions, into `o`. */
static lh_status read_spot(cli *c, const char *text, lh_size_options *o)
{
    const char *rest;
    int64_t ns = 0;
    if (!text)
        return LH_OK;
    if (cli_parse_real(text, &o->spot_price, &rest) && *rest == ',' &&
        o->spot_price > 0 && o->spot_price <= 1 &&
        cli_parse_time(rest + 1, &ns) && ns > 0) {
        o->spot_mtbf_s = (double)ns / 1e9;
        return LH_OK;
    }
    return cli_usage(
        c,
        "--spot: '%.60s' is not a share of the price up to 1 and a "
        "time, such as 0.35,50h",
        text);
}

/* Reads the options that do not depend on the job into `o` and, for failures
 * and checkpoints, `failures`. */
static lh_status read_options(cli *c, lh_failures *failures, lh_size_options *o)
{
    const settings *s = c->settings;
    *failures = (lh_failures){.size = sizeof *failures,
                              .gpu_mtbf_s = (double)s->gpu_mtbf_ns / 1e9,
                              .link_mtbf_s = (double)s->link_mtbf_ns / 1e9,
                              .checkpoint_s = (double)s->checkpoint_ns / 1e9,
                              .restart_s = (double)s->restart_ns / 1e9,
                              .repair_s = (double)s->repair_ns / 1e9,
                              .link_repair_s = (double)s->link_repair_ns / 1e9,
                              .spares = s->spares};
    *o = (lh_size_options){.size = sizeof *o,
                           .deadline_s = (double)s->deadline_ns / 1e9,
                           .failures = failures,
                           .lost_nodes = s->lose,
                           .usd_per_gpu_hour = s->gpu_hour_usd,
                           .usd_per_gb = s->per_gb_usd,
                           .effort = s->effort,
                           .threads = s->threads};
    if (!s->tokens)
        return cli_usage(c, "--tokens is required, as --tokens 15T");
    if (!s->deadline_ns && !s->budget)
        return cli_usage(c, "--deadline or --budget is required, as "
                            "--deadline 30d");
    CLI_TRY(read_amount(c, "tokens", s->tokens, "15T or 300B", &o->tokens));
    CLI_TRY(
        read_amount(c, "budget", s->budget, "20M or 750000", &o->budget_usd));
    return read_spot(c, s->spot, o);
}

/* --- command ------------------------------------------------------------ */

/* Shows that `planned` cluster sizes are planned; returns true after an
 * interrupt, to stop the search (callback). */
static bool show_progress(void *context, uint32_t planned, uint32_t effort)
{
    cli_progress(context, "%" PRIu32 " sizes planned, about %" PRIu32, planned,
                 effort);
    return cli_interrupts() > 0;
}

/* Writes the job to the -o file, with its node counts set to those of the
 * cheapest cluster size found, or without a deadline to those of the fastest;
 * nothing without -o or without a result. */
static lh_status write_job(cli *c, const lh_job *job, const lh_size_options *o,
                           const lh_size_result *r)
{
    const lh_size *best = o->deadline_s > 0 ? &r->cheapest : &r->fastest;
    lh_job *sized = NULL;
    char *text;
    size_t len;
    if (!c->common.output || !r->n_found)
        return LH_OK;
    CLI_TRY(lh_size_job(job, best->nodes, &sized, &c->err));
    lh_status status = lh_job_format(sized, &text, &len, &c->err);
    lh_job_free(sized);
    return status == LH_OK ? cli_write_text(c, c->common.output, text, len)
                           : status;
}

/* Searches the cluster sizes within --nodes that meet the options'
 * requirements, and prints and writes the cheapest one. */
static lh_status size_job(cli *c, const lh_job *job, lh_size_options *o)
{
    const settings *s = c->settings;
    lh_size_range ranges[LH_MAX_DATACENTERS];
    lh_size_result *result = NULL;
    if (s->nodes) {
        CLI_TRY(read_ranges(c, job, s->nodes, ranges));
        o->ranges = ranges;
    }
    o->progress = show_progress;
    o->context = c;
    cli_interrupts_begin(c, CLI_INTERRUPT_ONCE);
    lh_status status = lh_size_find(job, o, &result, &c->err);
    cli_interrupts_end();
    cli_progress_end();
    if (status != LH_OK)
        return status;
    if (result->interrupted)
        cli_note(c,
                 "interrupted: the result is the best of %" PRIu32
                 " planned size%s",
                 result->n_planned, result->n_planned == 1 ? "" : "s");
    status = write_job(c, job, o, result);
    if (status == LH_OK)
        status = cli_print_size(c, job, o, result);
    if (!result->n_found)
        c->exit_code = EXIT_FAILED;
    lh_size_result_free(result);
    return status;
}

/* Runs 'longhaul size', which finds the fewest and the cheapest nodes for a
 * training run. */
static lh_status run_size(cli *c)
{
    lh_failures failures;
    lh_size_options o;
    cli_input input;
    lh_job *job = NULL;
    CLI_TRY(read_options(c, &failures, &o));
    lh_status status = cli_input_open(c, c->operands[0], &input);
    if (status == LH_OK && cli_input_is_other(&input, "job"))
        status = cli_reject_input(c, &input, "a job");
    if (status == LH_OK)
        status = cli_input_job(c, &input, &job);
    cli_input_close(&input);
    if (status == LH_OK)
        status = size_job(c, job, &o);
    lh_job_free(job);
    return status;
}

const cli_command cmd_size = {
    .name = "size",
    .operands = "JOB",
    .least_operands = 1,
    .most_operands = 1,
    .operand_words = CLI_WORDS_FILES,
    .about =
        "Find how many GPUs of which datacenter meet a deadline and budget",
    .description =
        "Searches the number of nodes in each datacenter of the job: the "
        "fewest GPUs, and the cheapest, that train --tokens before --deadline "
        "and within --budget; with --budget also the fastest. Each size is "
        "planned as by 'longhaul plan', with "
        "a shorter search. The training time includes failures, lost work, "
        "restarts and checkpoints at the best interval; the cost includes "
        "spares and traffic between datacenters.\n"
        "\n"
        "The output states the certainty of the result: sizes found by search, "
        "the lower bounds on GPUs, cost and, with --budget, time that no size "
        "in the ranges can beat under the cost model, and the consequence of "
        "losing nodes.\n"
        "\n"
        "If no size meets the requirements, the fastest one is printed and the "
        "exit status is 1.",
    .output_help = "Write the job with the nodes of the cheapest size to FILE; "
                   "without --deadline with those of the fastest.",
    .handles_output = true,
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_size,
};
