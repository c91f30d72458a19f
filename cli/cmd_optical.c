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
    const char *html, *sweep, *csv, *events;
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
     .help =
         "Write an HTML report: policies with the spread of their results over "
         "the seeds, topology and routes, spectrum over time, one iteration.",
     .words = CLI_WORDS_FILES},
    {.name = "sweep",
     .type = CLI_TEXT,
     .at = offsetof(settings, sweep),
     .arg = "KEY=VALUE,...",
     .help = "Simulate every combination of these values of the scenario's "
             "keys, such as background.erlang=0,150; repeat for more keys.",
     .example_argument = "request_slots=2,4",
     .list_separator = ';'},
    {.name = "events",
     .type = CLI_OUTPUT,
     .at = offsetof(settings, events),
     .arg = "FILE",
     .help = "Write the outages of the first policy and seed as an events file "
             "for the first job, for simulate --events.",
     .words = CLI_WORDS_FILES},
    {.name = "csv",
     .type = CLI_OUTPUT,
     .at = offsetof(settings, csv),
     .arg = "FILE",
     .help = "With --sweep: write a row per combination and policy as CSV.",
     .words = CLI_WORDS_FILES},
};

static const cli_example examples[] = {
    {"longhaul optical examples/optical-nsfnet.yaml",
     "Print a table of the scenario's policies."},
    {"longhaul optical examples/optical-nsfnet.yaml --html optical.html",
     "Also write a report."},
    {"longhaul optical examples/optical-nsfnet.yaml --seed 7 --json",
     "Use one seed instead of the scenario's; print every iteration as JSON."},
    {"longhaul optical examples/optical-two-jobs.yaml --sweep "
     "background.erlang=0,100,200 --csv load.csv --html load.html",
     "Simulate three loads; write means, and curves with confidence bands."},
};

/* Shows how many of the `total` simulation runs are done. Always returns false:
 * the simulation continues (callback). */
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

/* Prints the effects of link failures as a table, a row per policy; `width`: of
 * the column with policy names. */
static void print_failures(cli *c, const lh_optical *o, int width)
{
    cli_print(c,
              "\n%-*s  lost s per iteration  outages  messages cut  others "
              "cut  others lost\n",
              width, "policy");
    for (uint32_t i = 0; i < o->n_policies; i++) {
        const lh_optical_policy *p = &o->policies[i];
        double outages = 0, messages = 0, cut = 0, lost = 0;
        for (uint32_t k = 0; k < p->n_runs; k++) {
            const lh_optical_run *r = &p->runs[k];
            outages += r->n_outages;
            cut += (double)r->background_cut;
            lost += (double)r->background_lost;
            for (uint32_t j = 0; j < r->n_jobs; j++)
                messages += (double)r->jobs[j].cut_messages;
        }
        cli_print(c, "%-*.40s  %20.3f  %7.1f  %12.1f  %10.1f  %11.1f\n", width,
                  p->name, p->lost_s, outages / p->n_runs, messages / p->n_runs,
                  cut / p->n_runs, lost / p->n_runs);
    }
}

/* Returns how many times its mean counted iteration a job's warm-up iteration
 * took; 0: none of its messages were preempted in it. */
static double get_warm_up_ratio(const lh_optical_job *job)
{
    return job->warm_up_preempted_messages > 0
               ? (double)job->iteration_ns[0] / 1e9 / job->iteration_s
               : 0;
}

/* Prints a line if preemption made the warm-up iteration of a job more than
 * twice as long as its counted ones: the results exclude that iteration. */
static void print_preempted_warm_up(cli *c, const lh_optical *o)
{
    const lh_optical_policy *policy = NULL;
    const lh_optical_run *run = NULL;
    uint32_t job = 0, n = 0;
    double most = 2;
    for (uint32_t i = 0; i < o->n_policies; i++)
        for (uint32_t k = 0; k < o->policies[i].n_runs; k++)
            for (uint32_t j = 0; j < o->policies[i].runs[k].n_jobs; j++) {
                const lh_optical_run *at = &o->policies[i].runs[k];
                double ratio = get_warm_up_ratio(&at->jobs[j]);
                n += ratio > 2;
                if (ratio <= most)
                    continue;
                most = ratio;
                policy = &o->policies[i];
                run = at;
                job = j;
            }
    if (!policy)
        return;
    cli_print(c,
              "\npreempted in the warm-up iteration, which the table excludes: "
              "jobs[%" PRIu32 "] under %.40s, seed %" PRIu64
              ", took %.3f s with %" PRIu64
              " messages sent again, then %.3f s per iteration",
              job, policy->name, run->seed,
              (double)run->jobs[job].iteration_ns[0] / 1e9,
              run->jobs[job].warm_up_preempted_messages,
              run->jobs[job].iteration_s);
    if (n > 1)
        cli_print(c, " (the longest of %" PRIu32 " such cases)", n);
    cli_print(c, "\n");
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
    if (o->has_failures)
        print_failures(c, o, (int)width);
    print_preempted_warm_up(c, o);
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

/* Writes the requested files: the HTML report on the policies, and the
 * simulated events' log. */
static lh_status write_files(cli *c, const lh_scenario *s, const lh_optical *o)
{
    const settings *set = c->settings;
    char *text = NULL;
    size_t len = 0;
    if (set->events) {
        CLI_TRY(lh_optical_events(s, o, &text, &len, &c->err));
        CLI_TRY(cli_write_text(c, set->events, text, len));
    }
    if (!set->html)
        return LH_OK;
    CLI_TRY(lh_optical_html(s, o, &text, &len, &c->err));
    return cli_write_text(c, set->html, text, len);
}

/* Returns the simulation options from the command line: threads and progress,
 * and all seeds of the scenario or --seed alone. */
static lh_optical_options get_options(cli *c)
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
    return run;
}

/* Prints one combination of the sweep's axis values (`cell`) with the policy of
 * index `policy`, its mean iteration time and its lower bound. */
static void print_choice(cli *c, const lh_optical_sweep *s, uint32_t cell,
                         uint32_t policy)
{
    const lh_optical_policy *p = &s->cells[cell]->policies[policy];
    for (uint32_t a = 0; a < s->n_axes; a++)
        cli_print(c, " %s=%s", s->axes[a].key,
                  s->axes[a].values[lh_optical_sweep_value(s, cell, a)]);
    cli_print(c, ", %s: %.3f s, lower bound %.3f s\n", p->name, p->iteration_s,
              p->bound_s);
}

/* Prints a table of the sweep: for each combination of axis values and each
 * policy, the means with half the width of their 95 % confidence intervals;
 * then the combination with the shortest iteration. */
static void print_sweep(cli *c, const lh_optical_sweep *s)
{
    for (uint32_t a = 0; a < s->n_axes; a++)
        cli_print(c, "%-*s  ", 18, s->axes[a].key);
    cli_print(c, "%-20s  %15s  %13s  %13s  slots held\n", "policy",
              "iteration s", "bubble %", "blocked %");
    for (uint32_t i = 0; i < s->n_cells; i++)
        for (uint32_t k = 0; k < s->cells[i]->n_policies; k++) {
            const lh_optical_policy *p = &s->cells[i]->policies[k];
            for (uint32_t a = 0; a < s->n_axes; a++)
                cli_print(c, "%-*s  ", 18,
                          s->axes[a].values[lh_optical_sweep_value(s, i, a)]);
            cli_print(
                c,
                "%-20s  %8.3f +-%6.3f  %5.1f +- %4.1f  %5.2f +- %4.2f  %10.0f"
                "\n",
                p->name, p->iteration_s,
                lh_optical_half_width(p->iteration_s_sd, p->n_runs),
                100 * p->bubble_ratio,
                100 * lh_optical_half_width(p->bubble_ratio_sd, p->n_runs),
                100 * p->blocking_probability,
                100 * lh_optical_half_width(p->blocking_probability_sd,
                                            p->n_runs),
                p->slots_held);
        }
    const lh_optical_choice best = lh_optical_sweep_best(s);
    cli_print(c, "\nmean +- half of the 95 %% confidence interval\n"
                 "shortest iteration:");
    print_choice(c, s, best.cell, best.policy);
    if (s->n_axes > 1) {
        cli_print(c, "one key after the other:");
        print_choice(c, s, best.stepwise, best.policy);
    }
}

/* Writes the sweep's requested files and prints its results, as text or JSON.
 * */
static lh_status show_sweep(cli *c, const lh_optical_sweep *s)
{
    const settings *set = c->settings;
    const char *file;
    char *text = NULL;
    size_t len = 0;
    for (uint32_t i = 0; (file = lh_optical_sweep_file(s, i)); i++)
        CLI_TRY(cli_check_named_file(c, file));
    if (set->csv) {
        CLI_TRY(lh_optical_sweep_csv(s, &text, &len, &c->err));
        CLI_TRY(cli_write_text(c, set->csv, text, len));
    }
    if (set->html) {
        CLI_TRY(lh_optical_sweep_html(s, &text, &len, &c->err));
        CLI_TRY(cli_write_text(c, set->html, text, len));
    }
    if (!c->common.json) {
        print_sweep(c, s);
        return LH_OK;
    }
    CLI_TRY(lh_optical_sweep_format(s, &text, &len, &c->err));
    cli_put_owned_text(c, text, len);
    return LH_OK;
}

/* Simulates the optical network for every combination of the values in `axes`,
 * the --sweep text, and prints the results. */
static lh_status sweep(cli *c, const char *axes)
{
    const lh_optical_options run = get_options(c);
    lh_optical_sweep *s = NULL;
    CLI_TRY(lh_optical_sweep_run(c->operands[0], axes, &run, &s, &c->err));
    cli_progress_end();
    lh_status status = show_sweep(c, s);
    lh_optical_sweep_free(s);
    return status;
}

/* Simulates the optical network under all the scenario's policies, for all
 * seeds; *o is the caller's. */
static lh_status simulate(cli *c, const lh_scenario *s, lh_optical **o)
{
    const lh_optical_options run = get_options(c);
    CLI_TRY(lh_optical_run_all(s, &run, o, &c->err));
    cli_progress_end();
    CLI_TRY(write_files(c, s, *o));
    if (c->common.json)
        return print_json(c, s, *o);
    print_text(c, s, *o);
    return LH_OK;
}

/* Runs 'longhaul optical' and frees its results. */
static lh_status run_optical(cli *c)
{
    const settings *set = c->settings;
    lh_scenario *s = NULL;
    lh_optical *o = NULL;
    if (set->sweep && set->events)
        return cli_usage(c, "--events cannot be combined with --sweep");
    if (set->sweep)
        return sweep(c, set->sweep);
    if (set->csv)
        return cli_usage(c, "--csv requires --sweep");
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
        "others\" is the share of the other traffic that was blocked.\n"
        "\n"
        "With `failures` in the scenario, links are cut and repaired during "
        "the "
        "run. Circuits are restored on other paths, or wait. The run is "
        "repeated without failures; \"lost\" is the difference. --events "
        "writes the delays of the job's links for longhaul simulate.\n"
        "\n"
        "--sweep simulates every combination of values in one run. A key is "
        "the "
        "path of a key in the scenario: background.erlang, slots, "
        "request_slots, "
        "topology, job.microbatches, job.preset, policies.cba.guard; a key of "
        "a "
        "list, such as jobs.microbatches, is set in all its items, "
        "jobs.0.microbatches in the first one. The result "
        "has means with 95 % confidence intervals over the seeds.",
    .output_help = "Write the results to FILE instead of printing them.",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_optical,
};
