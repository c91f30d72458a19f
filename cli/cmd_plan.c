/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul plan: finds the fastest layout and schedule that fits the
 * memory. */
#include "commands.h"
#include "current_plan_view.h"
#include "import_options.h"
#include "jitter_view.h"
#include "plan_cost.h"
#include "plan_explanation.h"
#include "plan_packets.h"
#include "plan_screen.h"
#include "plan_whatif.h"
#include "values.h"
#include "view.h"

#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *html;
    uint64_t effort;
    double seconds;
    uint32_t threads;
    uint32_t top, sub_blocks;
    double ratio;
    const char *draws;
    uint32_t search, elastic;
    bool no_optimal, sensitivity, curves;
    cli_jitter jitter;
    uint32_t by;
    const char *what_if, *margin;
    uint32_t objective;
    bool pareto;
    double pareto_times;
    int64_t max_iteration_ns;
    const char *show;
    uint32_t target, network;
    double gpu_hour_usd, per_gb_usd;
    cli_import_options source;
    cli_cluster_options machines;
} settings;

/* In lh_partition_search order. */
static const char *const searches[] = {"climb", "exact", "monte-carlo", "even",
                                       NULL};

/* In lh_plan_statistic order. */
static const char *const numbers[] = {"mean", "p95", NULL};

/* In lh_plan_objective order. */
static const char *const objectives[] = {"time", "cost", NULL};

static const char *const elastic_planners[] = {"searched", "published", NULL};

/* In lh_target order, from 1 on. */
static const char *const targets[] = {"longhaul", "megatron", "torchtitan",
                                      "pytorch", NULL};

static const char *const networks[] = {"model", "packets", NULL};

static const cli_option options[] = {
    {.name = "network",
     .type = CLI_CHOICE,
     .at = offsetof(settings, network),
     .arg = "HOW",
     .choices = networks,
     .preset = "model",
     .help = "Times of messages between datacenters: from closed formulas "
             "(model), or from a simulation of the plan's messages as packets, "
             "after which the job is planned again with the simulated times "
             "(packets). For packets the job must give load_balancing and "
             "recovery of these links."},
    {.name = "for",
     .type = CLI_CHOICE,
     .at = offsetof(settings, target),
     .arg = "FRAMEWORK",
     .choices = targets,
     .help = "Search only plans that this framework can run, and print the "
             "cost of the restriction; replaces layout.framework of the job."},
    CLI_SOURCE_ROWS(settings,
                    "JOB is the current configuration of PROGRAM: "
                    "a file, - for standard input, or all its arguments as one "
                    "quoted word. Predicts the time of this configuration and "
                    "plans a faster one; see 'longhaul import'."),
    {.name = "top",
     .type = CLI_COUNT,
     .at = offsetof(settings, top),
     .arg = "N",
     .preset = "10",
     .least = 1,
     .most = 10000,
     .help = "Number of alternative layouts to keep and show."},
    CLI_SUB_BLOCKS_ROW(settings,
                       "greedy: split every weight-gradient pass into N parts. "
                       "Other frameworks run whole passes only."),
    {.name = "effort",
     .type = CLI_COUNT64,
     .at = offsetof(settings, effort),
     .arg = "N",
     .least = 1,
     .help = "Search budget for the optimal schedules of the best layouts, in "
             "units of about a microsecond (default 400000). The layout search "
             "gets 75 times as much (about 30 seconds), at least a few "
             "seconds, and stops early if no plan can be more than 0.5 % "
             "faster. Effort above the default is used even if it improves "
             "nothing. The plan is deterministic."},
    {.name = "time",
     .type = CLI_REAL_ABOVE,
     .at = offsetof(settings, seconds),
     .arg = "S",
     .example_argument = "30",
     .high = 1e9,
     .help = "Processor seconds over all threads, in place of --effort: three "
             "fifths for layouts, a fifth for layer partitions, a fifth for "
             "elastic plans and optimal schedules. --jitter doubles the time. "
             "Additional time: a tenth for each --what-if, twice the time for "
             "--sensitivity, four thirds for --pareto, one to two times for "
             "--curves; of these four times only the longest counts. "
             "A search that ends earlier is repeated with four times the "
             "effort, as long as a plan more than 0.5 % faster may exist and "
             "the remaining time is at least half of the last search's. The "
             "plan then depends on the machine; an incomplete search is "
             "reported."},
    {.name = "threads",
     .type = CLI_COUNT,
     .at = offsetof(settings, threads),
     .arg = "N",
     .least = 1,
     .most = 1024,
     .help = "Use at most N threads (default: number of processors); without "
             "--time the plan does not depend on N."},
    {.name = "no-optimal",
     .type = CLI_FLAG,
     .at = offsetof(settings, no_optimal),
     .help = "Skip the search for optimal schedules; use scheduling methods "
             "only."},
    {.name = "search",
     .type = CLI_CHOICE,
     .at = offsetof(settings, search),
     .arg = "HOW",
     .preset = "climb",
     .choices = searches,
     .help = "How to partition layers into chunks: hill climbing on promising "
             "layouts (climb), all partitions of every layout that could win "
             "(exact), sampled together with the layouts as in ScaleAcross "
             "Explorer (monte-carlo), or only equal chunks (even)."},
    {.name = "elastic",
     .type = CLI_CHOICE,
     .at = offsetof(settings, elastic),
     .arg = "HOW",
     .preset = "searched",
     .choices = elastic_planners,
     .help = "How to choose microbatch groups and sharding for elastic plans "
             "(PipeMesh's pipelines, whose passes hide data-parallel "
             "communication): by simulating candidates (searched), or by the "
             "PipeMesh paper's rules, with the parallel degrees of the fastest "
             "searched plan (published). With published, the plan by these "
             "rules is the result, printed beside the searched plan."},
    {.name = "draws",
     .type = CLI_TEXT,
     .at = offsetof(settings, draws),
     .arg = "N[,N...]",
     .example_argument = "20,20,100,10",
     .help =
         "With --search monte-carlo, four numbers: layouts to sample that fit "
         "in memory, layer partitions to sample for each of the fastest tenth "
         "of the layouts, fastest samples to keep, and one-layer changes to "
         "try for each kept sample (default: 3000,100,1000,100). --seed "
         "changes the samples."},
    {.name = "max-chunk-ratio",
     .type = CLI_REAL,
     .at = offsetof(settings, ratio),
     .arg = "R",
     .example_argument = "5",
     .low = 1,
     .help = "Maximum ratio between the layers of the largest and the smallest "
             "chunk. Default: 3, times the ratio between the peak rates of the "
             "fastest and the slowest GPU type."},
    CLI_JITTER_ROWS(settings),
    {.name = "by",
     .type = CLI_CHOICE,
     .at = offsetof(settings, by),
     .arg = "NUMBER",
     .preset = "mean",
     .choices = numbers,
     .help = "With --jitter, choose the plan by the mean iteration or by the "
             "time within which 95 % of the iterations end."},
    {.name = "objective",
     .type = CLI_CHOICE,
     .at = offsetof(settings, objective),
     .arg = "WHAT",
     .preset = "time",
     .choices = objectives,
     .help = "Objective: the time or the cost of an iteration. Cost needs "
             "prices from the job, or --gpu-hour and --per-gb; the cheapest "
             "plan may leave GPUs idle."},
    {.name = "max-iteration",
     .type = CLI_TIME,
     .at = offsetof(settings, max_iteration_ns),
     .arg = "TIME",
     .example_argument = "60s",
     .help = "With --objective cost: longest iteration of the plan, as 3.4s."},
    {.name = "pareto",
     .type = CLI_FLAG,
     .at = offsetof(settings, pareto),
     .help = "Also list the Pareto front of layouts and schedules in time, "
             "memory and cost."},
    {.name = "pareto-times",
     .type = CLI_REAL_ABOVE,
     .at = offsetof(settings, pareto_times),
     .arg = "N",
     .high = 1e9,
     .help = "With --pareto: list entries up to N times as slow as the "
             "fastest. (default: 4)"},
    CLI_PRICE_ROWS(settings),
    {.name = "margin",
     .type = CLI_TEXT,
     .at = offsetof(settings, margin),
     .arg = "MEMORY",
     .example_argument = "5%",
     .help = "Also find the best plan that leaves this much memory of every "
             "GPU free, in addition to the job's memory_reserve: a share, as "
             "5%, or GiB."},
    {.name = "what-if",
     .type = CLI_TEXT,
     .at = offsetof(settings, what_if),
     .arg = "LINKS",
     .list_separator = ';',
     .example_argument = "latency=20,40,bandwidth=x2",
     .help =
         "Evaluate the plan, and find the best plan, for other link values: "
         "latency (ms), bandwidth (Gb/s), loss, oversubscription, of all "
         "links or of one (west-east.latency; west>east.latency for one "
         "direction). Values are numbers, multiples (x2, /2) or ranges "
         "(10:80:10), separated by commas. Several quantities form every "
         "combination: latency=20,40,bandwidth=x2. Repeat the option, or "
         "use ';', for separate cases."},
    {.name = "sensitivity",
     .type = CLI_FLAG,
     .at = offsetof(settings, sensitivity),
     .help = "Find the latencies and bandwidths, from 1/16 to 16 times the "
             "job's, at which another layout becomes the best."},
    {.name = "curves",
     .type = CLI_FLAG,
     .at = offsetof(settings, curves),
     .help =
         "Compare the fastest plans with pipelines over datacenters and with "
         "replicas in different datacenters: iteration time by "
         "oversubscription and, for mixtures of experts, by expert count; "
         "also in the report."},
    {.name = "show",
     .type = CLI_TEXT,
     .at = offsetof(settings, show),
     .arg = "PART[,PART...]",
     .example_argument = "layouts,search",
     .list_separator = ',',
     .help =
         "Print these parts of the plan's description in full: " CLI_SHOW_NAMES
         ", or all. JSON and the "
         "report always contain "
         "all of them."},
    CLI_OUTPUT_ROW(
        settings, html,
        "Write an HTML report: the plan's timeline, and every schedule and "
        "layout compared."),
};

static const cli_example examples[] = {
    {"longhaul plan job.yaml",
     "Search the layouts of the job and write the fastest to plan.json."},
    {"longhaul plan job.yaml -o west-east.json --html plan.html",
     "Write the plan to another file, and a report."},
    {"longhaul plan job.yaml --what-if latency=40,bandwidth=/2 --sensitivity",
     "Print the cost of slower links, and the values at which another layout "
     "is best."},
    {"longhaul plan job.yaml --show layouts,search",
     "Also print the other evaluated layouts and the search statistics."},
    {"longhaul plan job.yaml --for megatron",
     "Find the fastest plan that Megatron-LM can run; `longhaul export` writes "
     "its arguments."},
    {"longhaul plan --from megatron args.txt --sites 2 --nodes 16",
     "Improve a current Megatron-LM configuration, in two datacenters."},
    {"longhaul plan --from torchtitan today.toml --nodes 2",
     "Improve a current torchtitan configuration, on 16 GPUs."},
    {"longhaul plan job.yaml --json | jq .iteration_s",
     "Print the plan to standard output; write no file."},
    {"longhaul plan job.yaml --jitter latency=0.5,straggler=0.01x1.5 --by p95",
     "Minimise the 95th percentile of the iteration time under jitter."},
};

/* --- report ------------------------------------------------------------- */

/* Fills in the report on a plan: key figures, alternatives, reasons and the
 * simulated timeline. */
static lh_status fill_report(cli *c, const lh_plan *p, lh_report *report)
{
    CLI_TRY(cli_plan_facts(c, p, report));
    CLI_TRY(cli_plan_rows(c, p, report));
    CLI_TRY(cli_plan_reasons(c, p, report));
    cli_view view = {.pipeline = p->pipeline,
                     .schedule = p->schedule,
                     .method = p->best.layout.schedule};
    lh_status status = cli_view_simulate(c, &view, &(cli_model){0}, p->name);
    if (status == LH_OK)
        status = lh_report_add_trace(report, view.trace, view.method,
                                     view.shown, &c->err);
    if (status == LH_OK)
        status = cli_view_add_whatif(c, &view, &(cli_model){0}, p, report);
    cli_view_fini(&view);
    return status;
}

/* Writes the plan's HTML report to `path`. */
static lh_status write_html(cli *c, const lh_plan *p, const char *path)
{
    lh_report *report = NULL;
    CLI_TRY(lh_report_make(p->name, &report, &c->err));
    lh_status status = fill_report(c, p, report);
    if (status == LH_OK)
        status = cli_write_html(c, report, path);
    lh_report_free(report);
    return status;
}

/* --- command ------------------------------------------------------------ */

/* Plans the job with the --objective, the --what-if questions, and the --curves
 * over link values, if given; *plan is the caller's. Fails for --curves with
 * one datacenter. */
static lh_status run_planner(cli *c, const lh_job *job, lh_plan_options *how,
                             lh_plan **plan)
{
    const settings *s = c->settings;
    cli_questions questions = {0};
    lh_status status = cli_questions_parse(c, s->what_if, job, &questions);
    if (status == LH_OK && s->curves && job->n_datacenters < 2)
        status = cli_error(c, LH_EINPUT,
                           "%s: cluster.datacenters: --curves requires at "
                           "least two datacenters",
                           job->name);
    how->n_questions = questions.n;
    how->questions = questions.all;
    how->sensitivity = s->sensitivity;
    how->objective = (lh_plan_objective)s->objective;
    how->pareto_front = s->pareto;
    how->pareto_max_slowdown = s->pareto_times;
    how->max_iteration_ns = s->max_iteration_ns;
    if (status == LH_OK)
        status = cli_plan_job(c, job, how, plan);
    cli_questions_fini(&questions);
    return status;
}

/* --- current configuration ---------------------------------------------- */

/* Resulting plan and, with --from, the current configuration's plan. */
typedef struct planning_result {
    lh_plan *plan, *today; /* today: with --from, unless `why` has the reason */
    char why[512];
    lh_memory_needs needs; /* filled if nothing fits in memory */
} planning_result;

/* Imports the operand, a configuration of another training program (--from), as
 * a job. *plan_for: the program for which the plan must be executable. */
static lh_status import_job(cli *c, lh_job **out, lh_target *plan_for)
{
    const settings *s = c->settings;
    lh_import *in = NULL;
    CLI_TRY(cli_import(c, c->operands[0], &s->source, &s->machines, ".", &in));
    lh_status status =
        lh_job_parse(in->job, in->job_len, "imported", ".", out, &c->err);
    *plan_for = in->plan_target;
    lh_import_free(in);
    return status;
}

/* Plans the job with its current configuration unchanged, into *today. If that
 * configuration cannot run, *today is NULL and `why` has the reason; this is no
 * error. */
static lh_status plan_current(cli *c, const lh_job *job,
                              const lh_plan_options *how, lh_plan **today,
                              char why[512])
{
    lh_plan_options as_is = {.size = sizeof as_is,
                             .top = 1,
                             .effort = how->effort,
                             .threads = how->threads,
                             .no_optimal = true};
    lh_status status = cli_plan_job(c, job, &as_is, today);
    if (status != LH_EINFEASIBLE && status != LH_EUNSUPPORTED)
        return status;
    snprintf(why, 512, "%s", c->err.text);
    c->err = (lh_error){0};
    return LH_OK;
}

/* Returns a copy of the current job `today` in which layout, ZeRO stage and
 * recomputation are not fixed, so that the planner decides them. When
 * torchtitan posts receives, follows the new schedule. */
static lh_job make_open_job(const lh_job *today)
{
    lh_job job = *today;
    if (job.framework.preset == LH_FRAMEWORK_TORCHTITAN)
        job.framework.receives_given = false;
    job.layout = (lh_layout){0};
    job.training.zero_given = job.training.recompute_given = false;
    job.training.zero = 1;
    job.training.recompute = LH_RECOMPUTE_NONE;
    job.training.recompute_modules = 0;
    return job;
}

/* Parses the sample counts of --draws, "3000,100,1000,100"; missing values are
 * unchanged. Returns false if the text is invalid. */
static bool parse_samples(const char *text, lh_plan_sampling *out)
{
    uint32_t *const to[] = {&out->layouts, &out->partitions, &out->keep,
                            &out->changes};
    for (int i = 0; i < 4; i++) {
        char *end;
        unsigned long n = strtoul(text, &end, 10);
        if (end == text || *text == '-' || n < 1 || n > 1000000)
            return false;
        *to[i] = (uint32_t)n;
        if (!*end)
            return true;
        if (*end != ',')
            return false;
        text = end + 1;
    }
    return false;
}

/* Checks the sampling options. Monte Carlo searches for the fastest plan only,
 * while jitter, --pareto and cost objectives need all layouts that the bounds
 * admit. */
static lh_status check_sampling(cli *c)
{
    const settings *s = c->settings;
    const char *other = s->jitter.spec ? "jitter"
                        : s->pareto    ? "pareto"
                        : s->objective ? "objective cost"
                                       : NULL;
    if (s->search != LH_PARTITION_MONTE_CARLO && s->draws)
        return cli_usage(c, "--draws requires --search monte-carlo");
    if (s->search == LH_PARTITION_MONTE_CARLO && other)
        return cli_usage(c,
                         "--%s cannot be combined with --search monte-carlo, "
                         "which finds the fastest plan only; use climb, exact "
                         "or even",
                         other);
    return LH_OK;
}

/* Rejects limits without effect: the layout search is limited by work or time,
 * the optimal-schedule search by work only, Monte Carlo sampling by neither. */
static lh_status check_limits(cli *c)
{
    const settings *s = c->settings;
    const bool drawn = s->search == LH_PARTITION_MONTE_CARLO;
    if (drawn && s->seconds > 0)
        return cli_usage(c, "--time has no effect with --search monte-carlo; "
                            "set its work with --draws");
    if (drawn && s->no_optimal && s->effort)
        return cli_usage(c, "--effort has no effect with --no-optimal and "
                            "--search monte-carlo; set its work with --draws");
    if (s->no_optimal && s->seconds > 0 && s->effort)
        return cli_usage(c, "--effort has no effect with --no-optimal and "
                            "--time; omit one of them");
    return LH_OK;
}

/* Rejects options that the published planner (--published) lacks: it searches
 * for the fastest plan only. */
static lh_status check_published(cli *c)
{
    static const char *const others[] = {"jitter",      "pareto", "what-if",
                                         "sensitivity", "curves", "margin",
                                         "from",        NULL};
    const settings *s = c->settings;
    if (s->elastic == 0)
        return LH_OK;
    for (uint32_t i = 0; others[i]; i++)
        if (cli_is_given(c, others[i]))
            return cli_usage(c,
                             "--%s cannot be combined with --elastic "
                             "published",
                             others[i]);
    if (s->objective)
        return cli_usage(c, "--objective cost cannot be combined with "
                            "--elastic published, which minimises time only");
    if (s->search == LH_PARTITION_MONTE_CARLO)
        return cli_usage(c, "--search monte-carlo cannot be combined with "
                            "--elastic published; use climb, exact or even");
    return LH_OK;
}

/* Rejects options of 'longhaul plan' that have no effect in combination with
 * the other options given. */
static lh_status check_options(cli *c)
{
    const settings *s = c->settings;
    const char *beside = cli_given_import_option(c);
    if (beside && !cli_is_given(c, "from"))
        return cli_usage(c, "--%s requires --from; set it in the job instead",
                         beside);
    if (s->network && cli_is_given(c, "from"))
        return cli_usage(c, "--network packets cannot be combined with --from, "
                            "whose current layout has times by the closed "
                            "form; import the job and plan it instead");
    CLI_TRY(cli_check_jitter(c, &s->jitter));
    if (!s->jitter.spec && cli_is_given(c, "by"))
        return cli_usage(c, "--by %s requires --jitter", numbers[s->by]);
    if (cli_is_given(c, "pareto-times") && !s->pareto)
        return cli_usage(c, "--pareto-times requires --pareto");
    if (s->max_iteration_ns && !s->objective)
        return cli_usage(c, "--max-iteration requires --objective cost");
    if (s->show && c->common.json)
        return cli_usage(c, "--show has no effect with --json, which contains "
                            "all parts");
    CLI_TRY(check_sampling(c));
    CLI_TRY(check_published(c));
    CLI_TRY(check_limits(c));
    if (s->search == LH_PARTITION_EVEN && cli_is_given(c, "max-chunk-ratio"))
        return cli_usage(c, "--max-chunk-ratio has no effect with --search "
                            "even, which keeps chunks as even as possible");
    return LH_OK;
}

/* Reads the job from the operand, or imports another program's configuration
 * with --from. *plan_for: the training program for which the plan must be
 * executable. */
static lh_status read_job(cli *c, lh_job **out, lh_target *plan_for)
{
    cli_input input;
    if (cli_is_given(c, "from"))
        return import_job(c, out, plan_for);
    lh_status status = cli_input_open(c, c->operands[0], &input);
    if (status == LH_OK && cli_input_is_other(&input, "job"))
        status = cli_reject_input(c, &input, "a job");
    if (status == LH_OK)
        status = cli_input_job(c, &input, out);
    cli_input_close(&input);
    return status;
}

/* Estimates the links of the plan that was made from packets, and plans the job
 * again with these estimates (--network packets). */
static lh_status plan_by_packets(cli *c, const lh_job *job,
                                 lh_plan_options *how, planning_result *m)
{
    const settings *s = c->settings;
    cli_packet_job packets;
    lh_plan *by_model = m->plan;
    lh_status status =
        cli_packet_job_make(c, job, by_model, s->threads, &packets);
    m->plan = NULL;
    if (status == LH_OK)
        status = run_planner(c, &packets.job, how, &m->plan);
    for (uint32_t i = 0; status == LH_OK && i < packets.n_estimated; i++)
        cli_note(
            c,
            "link %s>%s by packets: %.3f ms and %.3f Gb/s for the messages "
            "of the closed form's plan, which takes %.3f s",
            packets.links[i].from, packets.links[i].to,
            (double)packets.links[i].alpha_ns * 1e-6,
            8 / packets.links[i].beta_ns_per_byte,
            (double)lh_plan_iteration_ns(by_model) * 1e-9);
    cli_packet_job_fini(&packets);
    lh_plan_free(by_model);
    return status;
}

/* Checks the options, reads the job and plans it. */
static lh_status make_plan(cli *c, planning_result *m)
{
    const settings *s = c->settings;
    lh_status status = LH_OK;
    CLI_TRY(check_options(c));
    lh_plan_options how = {.size = sizeof how,
                           .top = s->top,
                           .sub_blocks = s->sub_blocks,
                           .effort = s->effort,
                           .seconds = s->seconds,
                           .threads = s->threads,
                           .max_chunk_ratio = s->ratio,
                           .usd_per_gpu_hour = s->gpu_hour_usd,
                           .usd_per_gb = s->per_gb_usd,
                           .no_optimal = s->no_optimal,
                           .curves = s->curves,
                           .sampling.seed = c->common.seed,
                           .elastic_as_published = s->elastic == 1,
                           .memory_needs = &m->needs,
                           .partition = (lh_partition_search)s->search};
    if (cli_is_given(c, "for"))
        how.target = (lh_target)(s->target + 1);
    lh_jitter jitter;
    if (status == LH_OK && s->jitter.spec) {
        status = cli_read_jitter(c, &s->jitter, &jitter);
        how.jitter = &jitter;
        how.statistic = (lh_plan_statistic)s->by;
    }
    if (status == LH_OK && s->draws && !parse_samples(s->draws, &how.sampling))
        status = cli_usage(c,
                           "--draws: '%.40s' is not one to four whole numbers "
                           "from 1 to 1000000, separated by commas",
                           s->draws);
    if (status == LH_OK && s->margin &&
        !cli_parse_memory_share(s->margin, &how.margin_percent,
                                &how.margin_gib))
        status = cli_usage(c,
                           "--margin: '%.40s' is not a share of the GPU memory "
                           "below 100%%, as 5%%, or a number of GiB, as 4",
                           s->margin);
    lh_job *job = NULL;
    lh_target plan_for = how.target;
    if (status == LH_OK)
        status = read_job(c, &job, &plan_for);
    if (status == LH_OK && cli_is_given(c, "from"))
        status = plan_current(c, job, &how, &m->today, m->why);
    if (status == LH_OK) {
        const lh_job open = make_open_job(job);
        if (!cli_is_given(c, "for"))
            how.target = plan_for;
        const lh_job *planned = cli_is_given(c, "from") ? &open : job;
        status = run_planner(c, planned, &how, &m->plan);
        if (status == LH_OK && s->network)
            status = plan_by_packets(c, planned, &how, m);
        if (status == LH_OK)
            status = cli_check_iteration(c, m->plan, s->max_iteration_ns);
    }
    lh_job_free(job);
    return status;
}

/* Writes the plan and its report to the requested files, and prints the parts
 * of the plan in the bit set `parts` (--show). */
static lh_status write_plan(cli *c, const planning_result *m, uint32_t parts)
{
    const settings *s = c->settings;
    const lh_plan *plan = m->plan;
    const cli_current_plan today = {m->today, m->why};
    const bool beside = cli_is_given(c, "from");
    const char *path =
        c->common.output ? c->common.output : cli_default_output(c);
    char *text = NULL;
    size_t len;
    CLI_TRY(lh_plan_format(plan, &text, &len, &c->err));
    lh_status status = path ? cli_write(c, path, text, len) : LH_OK;
    if (status == LH_OK && s->html)
        status = write_html(c, plan, s->html);
    if (status == LH_OK && c->common.json && beside)
        status = cli_put_json(c, cli_current_plan_json(&today, plan, text));
    else if (status == LH_OK && c->common.json)
        cli_put_raw(c, text, len);
    else if (status == LH_OK && beside)
        cli_current_plan_text(c, &today, plan);
    if (status == LH_OK && !c->common.json)
        cli_plan_screen(c, plan,
                        &(cli_plan_output){parts, path, s->html, s->sensitivity,
                                           s->curves});
    lh_text_free(text);
    return status;
}

/* Checks whether the planner found any change that makes the job fit in
 * memory. */
static bool has_needs(const lh_memory_needs *needs)
{
    return needs->gpu_gib > 0 || needs->nodes;
}

/* Returns one layout that would fit in memory, with its changed settings, as
 * JSON; NULL: out of memory. */
static json_t *fitting_layout_json(const lh_fitting_layout *at)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "tensor",
                     (json_int_t)at->tensor, "context", (json_int_t)at->context,
                     "expert", (json_int_t)at->expert, "pipeline",
                     (json_int_t)at->pipeline, "data", (json_int_t)at->data,
                     "micro_batch", (json_int_t)at->micro_batch, "zero",
                     (json_int_t)at->zero, "recompute",
                     lh_recompute_name(at->recompute));
}

/* Writes the changes that would make the job fit in memory as JSON, in
 * addition to the error message. */
static lh_status write_needs(cli *c, const lh_memory_needs *needs)
{
    json_t *all = json_object();
    int failed = 0;
    if (needs->gpu_gib > 0)
        failed |= json_object_set_new(
            all, "gpu_memory",
            json_pack("{s:f, s:o}", "memory_gib", needs->gpu_gib, "layout",
                      fitting_layout_json(&needs->gpu_layout)));
    if (needs->nodes)
        failed |= json_object_set_new(
            all, "nodes",
            json_pack("{s:I, s:I, s:o}", "nodes", (json_int_t)needs->nodes,
                      "gpus", (json_int_t)needs->gpus, "layout",
                      fitting_layout_json(&needs->nodes_layout)));
    if (*needs->key)
        failed |= json_object_set_new(
            all, "key",
            json_pack("{s:s, s:f, s:o}", "set", needs->key, "memory_gib",
                      needs->key_gib, "layout",
                      fitting_layout_json(&needs->key_layout)));
    if (failed) {
        json_decref(all);
        return cli_no_memory(c);
    }
    cli_print_stderr("%s", c->err.text);
    c->exit_code = EXIT_FAILED;
    return cli_put_json(
        c, json_pack("{s:s, s:o}", "error", c->err.text, "memory_needs", all));
}

/* Runs 'longhaul plan', which finds the fastest or cheapest layout and schedule
 * for a job, and frees its results. */
static lh_status run_plan(cli *c)
{
    const settings *s = c->settings;
    planning_result m = {0};
    uint32_t parts;
    CLI_TRY(cli_show_parse(c, s->show, &parts));
    lh_status status = make_plan(c, &m);
    if (status == LH_EINFEASIBLE && c->common.json && has_needs(&m.needs))
        status = write_needs(c, &m.needs);
    else if (status == LH_OK)
        status = write_plan(c, &m, parts);
    lh_plan_free(m.plan);
    lh_plan_free(m.today);
    return status;
}

const cli_command cmd_plan = {
    .name = "plan",
    .operands = "JOB",
    .least_operands = 1,
    .most_operands = 1,
    .operand_words = CLI_WORDS_FILES,
    .about = "Search the layouts of a job and write the fastest plan",
    .description =
        "Searches the degrees of tensor, context, expert, pipeline and data "
        "parallelism, the microbatch size, the chunks per device and their "
        "placement, the parallelism that spans the sites, and the schedule. "
        "Values fixed in the job's layout are kept. Layouts that exceed the "
        "memory, or whose lower bound is slower than the best plan, are "
        "pruned; every schedule is evaluated on the others. The solver then "
        "searches the optimal schedules of the best layouts, within --effort. "
        "Layers are moved between the chunks of promising layouts, see "
        "--search.\n"
        "\n"
        "With --jitter the plan is the best one under varying delays and "
        "device speeds: by the mean iteration, or by the 95th percentile (--by "
        "p95). Every layout that its lower bound does not exclude is sampled, "
        "with every schedule.\n"
        "\n"
        "The plan is written to plan.json, or to the file of -o. An existing "
        "plan.json is overwritten only if it is a plan; otherwise the command "
        "fails. With --json the plan is printed, and written only if -o is "
        "given. A plan contains the layout, the pipeline, the schedule, the "
        "predictions and comparisons, and the job itself; 'longhaul simulate' "
        "and 'longhaul export' read it.\n"
        "\n"
        "With --from the input is a current configuration of Megatron-LM or "
        "torchtitan, costed as it is. The plan is for the same job with open "
        "layout, ZeRO stage and recomputation, for that framework unless --for "
        "names another. The output lists the differences and, where the search "
        "has it, the plan's time if it kept the current value of one "
        "dimension. With --json the output is {today, changes, plan}.\n"
        "\n"
        "If no layout fits in memory, the command fails and prints the least "
        "memory per GPU and the fewest nodes with which one fits.\n"
        "\n"
        "Ctrl-C or SIGTERM ends the search; the best plan so far is written as "
        "usual. A second one ends the program.",
    .output_help = "Write the plan to FILE (default: plan.json; with --json "
                   "none).",
    .handles_output = true,
    .default_output = "plan.json",
    .default_signature = "\"plan/",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_plan,
};
