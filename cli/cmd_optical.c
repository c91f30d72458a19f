/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul optical: simulates pipeline traffic over an elastic
 * optical network. */
#include "commands.h"
#include "inputs.h"

#include <longhaul/experimental/json_output.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *html;
    uint32_t threads;
} settings;

static const cli_option options[] = {
    CLI_THREADS_ROW(settings,
                    "Simulate N seeds and policies in parallel (default: one "
                    "per processor). The result is the same."),
    {.name = "html",
     .type = CLI_OUTPUT,
     .at = offsetof(settings, html),
     .arg = "FILE",
     .help = "Write an HTML report: policies with their spread, topology and "
             "routes, spectrum over time, one iteration.",
     .words = CLI_WORDS_FILES},
};

static const cli_example examples[] = {
    {"longhaul optical examples/optical-nsfnet.yaml",
     "Print a table of the scenario's policies."},
    {"longhaul optical examples/optical-nsfnet.yaml --html optical.html",
     "Also write a report."},
    {"longhaul optical examples/optical-nsfnet.yaml --seed 7 --json",
     "Use one seed instead of the scenario's; print every iteration as JSON."},
};

/* Shows the number of completed runs. Always returns false: the simulation
 * continues (callback). */
static bool show_progress(void *context, uint32_t done, uint32_t total)
{
    cli_progress(context, "run %" PRIu32 " of %" PRIu32, done, total);
    return false;
}

/* Prints the results of all policies as JSON. */
static lh_status print_json(cli *c, const lh_scenario *s, const lh_optical *o)
{
    char *text = NULL;
    size_t len = 0;
    CLI_TRY(lh_optical_format(s, o, &text, &len, &c->err));
    cli_put_owned_text(c, text, len);
    return LH_OK;
}

/* Prints a result table with a row per policy. */
static void print_text(cli *c, const lh_scenario *s, const lh_optical *o)
{
    const lh_topology *t = lh_scenario_topology(s);
    size_t width = strlen("policy");
    for (uint32_t i = 0; i < o->n_policies; i++)
        if (cli_columns(o->policies[i].name) > width)
            width = cli_columns(o->policies[i].name);
    if (width > 40)
        width = 40;
    cli_print(c,
              "%s: %" PRIu32 " nodes, %" PRIu32 " links; %" PRIu32
              " job%s, %" PRIu32 " seed%s\n\n",
              *lh_topology_name(t) ? lh_topology_name(t) : "topology",
              lh_topology_n_nodes(t), lh_topology_n_cables(t),
              lh_scenario_n_jobs(s), lh_scenario_n_jobs(s) == 1 ? "" : "s",
              o->policies[0].n_runs, o->policies[0].n_runs == 1 ? "" : "s");
    cli_print(c,
              "%-*s  iteration s      (sd)  bubble %%  blocked %%  "
              "slots held  refused others %%\n",
              (int)width, "policy");
    for (uint32_t i = 0; i < o->n_policies; i++) {
        const lh_optical_policy *p = &o->policies[i];
        cli_print(c, "%-*.40s  %11.3f  %8.3f  %8.1f  %9.2f  %10.0f  %16.2f\n",
                  (int)width, p->name, p->iteration_s, p->iteration_s_sd,
                  100 * p->bubble_ratio, 100 * p->blocking_probability,
                  p->slots_held, 100 * p->collateral);
    }
    /* Policies may have different schedules. */
    double least = o->policies[0].bound_s, most = least;
    for (uint32_t i = 1; i < o->n_policies; i++) {
        double bound = o->policies[i].bound_s;
        least = bound < least ? bound : least;
        most = bound > most ? bound : most;
    }
    cli_print(c,
              "\n"
              "lower bound without message times: %.3f s",
              least);
    if (most > least)
        cli_print(c, " to %.3f s, depending on the policy's schedule", most);
    cli_print(c, "\n");
}

/* Writes the HTML report on the optical switch's policies to `path`. */
static lh_status write_html(cli *c, const lh_scenario *s, const lh_optical *o,
                            const char *path)
{
    char *text = NULL;
    size_t len = 0;
    CLI_TRY(lh_optical_html(s, o, &text, &len, &c->err));
    return cli_write_text(c, path, text, len);
}

/* Simulates all policies, with all seeds of the scenario or with --seed alone.
 */
static lh_status simulate(cli *c, const lh_scenario *s, lh_optical **o)
{
    const settings *set = c->settings;
    lh_optical_options run = {.size = sizeof run,
                              .threads = set->threads,
                              .progress = show_progress,
                              .context = c};
    if (c->common.seed > 0) {
        run.n_seeds = 1;
        run.seeds = &c->common.seed;
    }
    CLI_TRY(lh_optical_run_all(s, &run, o, &c->err));
    cli_progress_end();
    if (set->html)
        CLI_TRY(write_html(c, s, *o, set->html));
    if (c->common.json)
        return print_json(c, s, *o);
    print_text(c, s, *o);
    return LH_OK;
}

/* Runs 'longhaul optical' and frees its results. */
static lh_status run_optical(cli *c)
{
    lh_scenario *s = NULL;
    lh_optical *o = NULL;
    CLI_TRY(lh_scenario_read(c->operands[0], &s, &c->err));
    lh_status status = LH_OK;
    const char *file;
    for (uint32_t i = 0; status == LH_OK && (file = lh_scenario_file(s, i));
         i++)
        status = cli_check_named_file(c, file);
    if (status == LH_OK)
        status = simulate(c, s, &o);
    lh_optical_free(o);
    lh_scenario_free(s);
    return status;
}

const cli_command cmd_optical = {
    .name = "optical",
    .operands = "SCENARIO",
    .least_operands = 1,
    .most_operands = 1,
    .operand_words = CLI_WORDS_FILES,
    .about = "Compare routing and spectrum policies for pipeline traffic",
    .description =
        "Reads a scenario: an elastic optical network, training jobs whose "
        "stages are in several datacenters, other traffic, and policies that "
        "assign routes and frequency slots to the messages between stages. "
        "Simulates every policy with every seed, with nanosecond resolution, "
        "and compares iteration time, bubble, refused requests and occupied "
        "spectrum.\n"
        "\n"
        "A seed places the stages (unless the scenario does) and generates the "
        "other traffic. --seed N with N above 0 replaces the scenario's seeds. "
        "Numbers are means over the seeds, (sd) the standard deviation; the "
        "first iteration of each run is a warm-up and is excluded. \"Refused "
        "others\" is the share of the other traffic that was blocked.",
    .output_help = "Write the output to FILE.",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_optical,
};
