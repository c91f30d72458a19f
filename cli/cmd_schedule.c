/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul schedule: orders every device's passes with a named
 * method. */
#include "commands.h"
#include "problem.h"
#include "tradeoff_view.h"
#include "values.h"

#include <longhaul/experimental/json_output.h>
#include <longhaul/experimental/methods.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *method, *warmup, *enqueue, *dequeue, *host_memory;
    uint32_t sub_blocks, group;
    bool whole, any_network;
    cli_model model;
    cli_search search;
    cli_tradeoff tradeoff;
} settings;

/* Objective that minimises memory; follows the library's objectives. */
enum { MEMORY = CLI_FIRST_DEVICE + 1 };
static const char *const objectives[] = {"makespan", "first-device", "memory",
                                         NULL};

static const cli_option options[] = {
    {.name = "method",
     .letter = 'm',
     .type = CLI_TEXT,
     .at = offsetof(settings, method),
     .arg = "NAME",
     .preset = "auto",
     .help = "Scheduling method; see Methods below.",
     .words = CLI_WORDS_METHODS},
    CLI_SUB_BLOCKS_ROW(
        settings,
        "greedy, optimal: split every weight-gradient pass into N parts."),
    {.name = "warmup",
     .type = CLI_TEXT,
     .at = offsetof(settings, warmup),
     .arg = "auto|initial|X0,X1,...",
     .example_argument = "7,5,3,1",
     .preset = "auto",
     .help =
         "slack, steady-slack: number of warm-up forward passes on each "
         "device: a list, or computed from the link delays (auto, Adaptra's "
         "algorithm 2) or from memory only (initial, algorithm 1)."},
    {.name = "group",
     .type = CLI_COUNT,
     .at = offsetof(settings, group),
     .arg = "N",
     .least = 1,
     .most = LH_MAX_MICROBATCHES,
     .help = "flexible, dorapp: microbatches that pass a chunk together before "
             "the device's next chunk runs (default: number of devices)."},
    {.name = "enqueue",
     .type = CLI_TEXT,
     .at = offsetof(settings, enqueue),
     .arg = "N,N,...",
     .example_argument = "8,4",
     .help = "elastic: sizes of the groups of microbatches whose forward "
             "passes run together; their sum is the number of microbatches. "
             "Default: the groups in the pipeline file, or the sizes with the "
             "least time by PipeMesh's formula."},
    {.name = "dequeue",
     .type = CLI_TEXT,
     .at = offsetof(settings, dequeue),
     .arg = "N,N,...",
     .example_argument = "6,6",
     .help = "elastic: sizes of the groups of microbatches whose backward "
             "passes run together; their sum is the number of microbatches. "
             "Default: as many groups as for --enqueue, of equal size."},
    {.name = "any-network",
     .type = CLI_FLAG,
     .at = offsetof(settings, any_network),
     .help = "interleaved-zbv: use the order for zero message times instead of "
             "one for the pipeline's links."},
    CLI_HOST_MEMORY_ROW(
        settings, "Methods may then exceed a device's limit. Prints the host "
                  "memory used."),
    CLI_HOST_COPY_ROW(settings),
    {.name = "whole",
     .type = CLI_FLAG,
     .at = offsetof(settings, whole),
     .help = "Merge the parts of every split weight-gradient pass (W) into one "
             "pass, at the position in the order that lengthens the schedule "
             "least, and print the added time."},
    CLI_MODEL_ROWS(settings),
    {.name = "objective",
     .type = CLI_CHOICE,
     .at = offsetof(settings, model.objective),
     .arg = "WHAT",
     .preset = "makespan",
     .choices = objectives,
     .help = "optimal: objective to minimise: the end of the last pass or "
             "communication anywhere (makespan), the end of the last pass on "
             "the first chunk's device (first-device), or the memory limit "
             "that a makespan of at most --makespan requires (memory)."},
    CLI_SEARCH_ROWS(settings),
    CLI_TRADEOFF_ROWS(settings),
};

static const cli_example examples[] = {
    {"longhaul schedule pipeline.yaml --method zb-h1 -o s.csv",
     "Write the zero-bubble H1 order and print its iteration time."},
    {"longhaul schedule pipeline.yaml --method greedy --sub-blocks 8 --json "
     "-o s.csv",
     "Split W passes into 8 parts; print numbers as JSON."},
    {"longhaul schedule pipeline.yaml --method elastic --enqueue 8,4 --dequeue "
     "6,6",
     "Schedule groups that go forward and backward together, as in PipeMesh."},
    {"longhaul schedule pipeline.yaml --method slack --warmup 7,5,3,1",
     "Print the order with these warm-up forwards as CSV."},
    {"longhaul schedule pipeline.yaml -m slack --host-memory all -o s.csv",
     "Use the warm-ups for the delays, without the device memory limits."},
    {"longhaul schedule pipeline.yaml --method optimal --time-limit 60 -o "
     "s.csv",
     "Search for one minute; print the best schedule's gap to the lower "
     "bound."},
    {"longhaul schedule p.yaml -m optimal --objective memory --makespan 4s",
     "Find the schedule of at most 4 s with the least memory."},
    {"longhaul schedule plan.json --method zb-h1 -o s.csv",
     "Make another schedule for the pipeline of a plan."},
    {"longhaul schedule pipeline.yaml --method optimal --pareto",
     "Print the least makespan for every memory limit."},
};

/* Inputs, schedule and results. */
typedef struct work {
    cli_problem problem;
    const lh_pipeline *pipeline; /* owned by the problem */
    lh_schedule *schedule;
    lh_timeline *timeline;
    uint32_t *warmup, *enqueue, *dequeue;
    const char *chosen;
    double seconds;
    int64_t fifo_ns;  /* makespan with first in, first out; 0: irrelevant */
    int64_t parts_ns; /* makespan before W passes were merged; 0: not merged */
    int64_t objective_ns;
    lh_bound bound;
    bool infeasible;       /* proven: no schedule exists */
    const char *proof;     /* the written certificate's kind; NULL: none */
    lh_memory_point point; /* --objective memory; owns `schedule` */
    uint32_t n_engines;    /* from a makespan search */
    lh_solve_engine engines[LH_MAX_SOLVE_ENGINES];
} work;

/* Frees the results' members; keeps the struct. */
static void free_work(work *w)
{
    lh_timeline_free(w->timeline);
    lh_schedule_free(w->schedule);
    cli_problem_fini(&w->problem);
    free(w->warmup);
    free(w->enqueue);
    free(w->dequeue);
}

/* Parses the --warmup value into `o`: "auto", "initial" (warm-up without regard
 * to link delays), or the number of forward passes before the first backward
 * pass for each device, kept in `w`. */
static lh_status read_warmup(cli *c, const char *text, work *w,
                             lh_method_options *o)
{
    o->slack_initial = strcmp(text, "initial") == 0;
    if (o->slack_initial || strcmp(text, "auto") == 0)
        return LH_OK;
    uint32_t n = lh_pipeline_n_devices(w->pipeline), got = 0;
    w->warmup = calloc(n, sizeof *w->warmup);
    if (!w->warmup)
        return cli_no_memory(c);
    for (const char *p = text;; p++) {
        char number[12] = "";
        size_t len = strcspn(p, ",");
        uint64_t value;
        if (len < sizeof number)
            memcpy(number, p, len);
        if (!cli_parse_count(number, 1, LH_MAX_PASSES, &value))
            return cli_usage(c,
                             "--warmup: '%.*s' is not a whole number of "
                             "forwards of at least 1",
                             (int)(len < 40 ? len : 40), p);
        if (got < n)
            w->warmup[got] = (uint32_t)value;
        got++;
        p += len;
        if (!*p)
            break;
    }
    if (got != n)
        return cli_usage(c,
                         "--warmup: %" PRIu32 " numbers for %" PRIu32
                         " devices; give one number per device",
                         got, n);
    o->warmup = w->warmup;
    o->n_warmup = n;
    return LH_OK;
}

/* Parses `text`, the comma-separated group sizes of option --`name`, into
 * *groups (the caller frees it) and *n. NULL text (option not given): sets
 * nothing. */
static lh_status read_groups(cli *c, const char *name, const char *text,
                             uint32_t **groups, uint32_t *n)
{
    if (!text)
        return LH_OK;
    size_t room = strlen(text) / 2 + 1;
    *groups = calloc(room, sizeof **groups);
    if (!*groups)
        return cli_no_memory(c);
    for (const char *p = text;; p++) {
        char number[12] = "";
        size_t len = strcspn(p, ",");
        uint64_t value;
        if (len < sizeof number)
            memcpy(number, p, len);
        if (*n == room ||
            !cli_parse_count(number, 1, LH_MAX_MICROBATCHES, &value))
            return cli_usage(c,
                             "--%s: '%.*s' is not a number of microbatches of "
                             "at least 1",
                             name, (int)(len < 40 ? len : 40), p);
        (*groups)[(*n)++] = (uint32_t)value;
        p += len;
        if (!*p)
            return LH_OK;
    }
}

/* Simulates a schedule; *out is its makespan in ns. */
static lh_status compute_makespan(cli *c, const work *w,
                                  const lh_schedule *schedule,
                                  lh_sim_options sim, int64_t *out)
{
    lh_timeline *timeline = NULL;
    CLI_TRY(lh_simulate(w->pipeline, schedule, &sim, &timeline, &c->err));
    *out = lh_timeline_makespan(timeline);
    lh_timeline_free(timeline);
    return LH_OK;
}

/* Merges split W passes (weight gradient) of the schedule into whole ones, and
 * stores the makespan before the merge in w->parts_ns. */
static lh_status merge_weight_passes(cli *c, work *w, lh_sim_options sim)
{
    lh_schedule *whole = NULL;
    CLI_TRY(compute_makespan(c, w, w->schedule, sim, &w->parts_ns));
    CLI_TRY(lh_schedule_merge_parts(w->pipeline, w->schedule, &whole, &c->err));
    lh_schedule_free(w->schedule);
    w->schedule = whole;
    return LH_OK;
}

/* Removes the schedule's message orders on links unless they shorten the
 * makespan against first in, first out. */
static lh_status choose_link_orders(cli *c, work *w, const lh_sim_options *sim)
{
    lh_schedule *plain = NULL;
    CLI_TRY(lh_schedule_drop_useless_link_orders(w->pipeline, w->schedule, sim,
                                                 &plain, &w->fifo_ns, &c->err));
    if (!plain)
        return LH_OK;
    lh_schedule_free(w->schedule);
    w->schedule = plain;
    return LH_OK;
}

/* Runs the exact solver under the options `s`; moves its schedule, lower bound
 * and statistics into `w`. */
static lh_status solve(cli *c, work *w, const settings *s)
{
    lh_solution found = {0};
    CLI_TRY(cli_solve(c, &s->search, &s->model, s->sub_blocks, w->pipeline,
                      &found));
    w->chosen = "optimal";
    w->seconds = found.seconds;
    w->schedule = found.schedule;
    w->bound.ns = found.bound_ns;
    w->infeasible = found.status == LH_SOLVE_INFEASIBLE;
    w->n_engines = found.n_engines;
    memcpy(w->engines, found.engines, sizeof w->engines);
    if (s->search.certificate && found.schedule)
        CLI_TRY(cli_write_certificate(c, &s->search, &s->model, s->sub_blocks,
                                      w->pipeline, &found, &w->proof));
    snprintf(w->bound.text, sizeof w->bound.text, "%s", found.why);
    if (found.status == LH_SOLVE_UNKNOWN)
        return cli_error(c, LH_EINFEASIBLE,
                         "no schedule found before the search ended; raise the "
                         "limits%s",
                         s->search.without ? ", or exclude fewer engines" : "");
    if (w->infeasible && !c->common.json)
        return cli_error(c, LH_EINFEASIBLE, "infeasible: %s", found.why);
    return LH_OK;
}

/* Finds the least memory limit under which some schedule takes at most
 * --makespan; moves that schedule and the bound on the limit into `w`. */
static lh_status minimise_memory(cli *c, work *w, const settings *s)
{
    CLI_TRY(cli_least_memory(c, &s->search, &s->model, s->sub_blocks,
                             &s->tradeoff, w->pipeline, &w->point));
    w->chosen = "optimal";
    w->schedule = w->point.schedule;
    w->point.schedule = NULL;
    w->bound.ns = w->point.bound_ns;
    snprintf(w->bound.text, sizeof w->bound.text,
             "within the pipeline's own limits");
    return LH_OK;
}

/* Runs the solver for the objective and measures its wall time. */
static lh_status build_schedule(cli *c, work *w, const settings *s)
{
    if (s->model.objective != MEMORY)
        return solve(c, w, s);
    double begin = cli_monotonic_seconds();
    lh_status status = minimise_memory(c, w, s);
    w->seconds = cli_monotonic_seconds() - begin;
    return status;
}

/* Rejects options that have no effect with the scheduling method. */
static lh_status check_effects(cli *c, const settings *s)
{
    static const struct {
        const char *option, *methods;
    } some[] = {{"warmup", "slack steady-slack auto"},
                {"group", "flexible dorapp auto"},
                {"enqueue", "elastic auto"},
                {"dequeue", "elastic auto"},
                {"any-network", "interleaved-zbv auto"},
                {"effort", "optimal auto"},
                {"time-limit", "optimal"},
                {"gap", "optimal"},
                {"memory", "optimal"},
                {"threads", "optimal"},
                {"start", "optimal"}};
    for (uint32_t i = 0; i < CLI_COUNT_OF(some); i++)
        if (cli_is_given(c, some[i].option) &&
            !cli_has_word(some[i].methods, s->method))
            return cli_usage(c, "--%s has no effect with %s; it applies to: %s",
                             some[i].option, s->method, some[i].methods);
    return cli_check_sub_blocks(c, s->method, s->sub_blocks);
}

/* Checks that the options for objectives, proofs and trade-offs agree with each
 * other and with the method. */
static lh_status check_tradeoff(cli *c, const settings *s)
{
    bool optimal = lh_scheduler_is_search(s->method);
    if (s->model.objective != CLI_MAKESPAN && !optimal)
        return cli_usage(c, "--objective requires --method optimal");
    if (s->search.certificate &&
        (!optimal || s->model.objective == MEMORY || s->tradeoff.pareto))
        return cli_usage(c, "--certificate requires --method optimal and a "
                            "makespan objective");
    if (s->search.without && !optimal && !lh_method_is_auto(s->method))
        return cli_usage(c, "--without requires --method optimal or auto");
    CLI_TRY(cli_check_engines(c, &s->search));
    if (s->tradeoff.pareto && !optimal)
        return cli_usage(c, "--pareto requires --method optimal");
    if (s->tradeoff.pareto && s->model.objective != CLI_MAKESPAN)
        return cli_usage(c, "--pareto trades memory against the makespan; omit "
                            "--objective");
    if (s->tradeoff.pareto && c->common.output)
        return cli_usage(c, "--pareto makes no single schedule for -o; use "
                            "--objective memory --makespan TIME");
    if (s->tradeoff.makespan_ns && s->model.objective != MEMORY)
        return cli_usage(c, "--makespan requires --objective memory");
    if (s->model.host_copy_ns && !s->host_memory)
        return cli_usage(c, "--host-copy requires --host-memory");
    if (s->host_memory && (s->tradeoff.pareto || s->model.objective == MEMORY))
        return cli_usage(c,
                         "--host-memory cannot be combined with %s, which "
                         "searches memory limits",
                         s->tradeoff.pareto ? "--pareto"
                                            : "--objective memory");
    if (s->tradeoff.html && !s->tradeoff.pareto)
        return cli_usage(c, "--html requires --pareto; use 'longhaul simulate' "
                            "to show a schedule");
    return LH_OK;
}

/* Runs the options' scheduling method, or all with "auto" (the fastest is
 * kept); sets w's schedule, lower bound, method name and wall time. */
static lh_status generate(cli *c, work *w, const settings *s,
                          const lh_method_options *o)
{
    cli_progress(c, "scheduling by %s", s->method);
    double begin = cli_monotonic_seconds();
    lh_scheduler_options how = {.size = sizeof how,
                                .method = o,
                                .progress = cli_search_show,
                                .context = c};
    lh_scheduler_result best;
    how.disabled_engines = s->search.without;
    how.effort = s->search.effort;
    lh_status status =
        lh_scheduler_run(s->method, w->pipeline, &how, &best, &c->err);
    w->seconds = cli_monotonic_seconds() - begin;
    if (status != LH_OK)
        return status;
    w->schedule = best.schedule;
    w->chosen = best.method;
    w->bound.ns = best.bound_ns;
    memcpy(w->bound.text, best.why, sizeof best.why);
    return LH_OK;
}

/* Checks the options, reads the pipeline or plan, and makes and simulates the
 * schedule; with --pareto prints the curve instead. */
static lh_status make_schedule(cli *c, work *w)
{
    const settings *s = c->settings;
    bool optimal = lh_scheduler_is_search(s->method);
    if (!optimal)
        CLI_TRY(cli_check_method(c, "--method", s->method));
    CLI_TRY(check_effects(c, s));
    CLI_TRY(check_tradeoff(c, s));
    CLI_TRY(cli_problem_read(c, c->operands[0], false, &w->problem));
    CLI_TRY(cli_problem_add_host_memory(c, s->host_memory, &w->problem));
    w->pipeline = cli_problem_pipeline(&w->problem);
    if (s->tradeoff.pareto)
        return cli_print_pareto_curve(c, &s->search, &s->model, s->sub_blocks,
                                      &s->tradeoff, w->pipeline);
    lh_method_options o = {.size = sizeof o,
                           .sub_blocks = s->sub_blocks,
                           .round_size = s->group,
                           .ignore_network = s->any_network};
    CLI_TRY(read_warmup(c, s->warmup, w, &o));
    CLI_TRY(read_groups(c, "enqueue", s->enqueue, &w->enqueue, &o.n_enqueue));
    CLI_TRY(read_groups(c, "dequeue", s->dequeue, &w->dequeue, &o.n_dequeue));
    o.enqueue = w->enqueue;
    o.dequeue = w->dequeue;
    lh_sim_options sim = cli_sim_options(&s->model);
    o.sim = &sim;
    CLI_TRY(optimal ? build_schedule(c, w, s) : generate(c, w, s, &o));
    if (w->infeasible)
        return LH_OK;
    if (s->whole)
        CLI_TRY(merge_weight_passes(c, w, sim));
    CLI_TRY(choose_link_orders(c, w, &sim));
    CLI_TRY(lh_simulate(w->pipeline, w->schedule, &sim, &w->timeline, &c->err));
    w->objective_ns = cli_objective_ns(&s->model, w->timeline);
    return LH_OK;
}

/* Prints the schedule in CSV format, one row per device. */
static lh_status print_csv(cli *c, const work *w)
{
    char *text = NULL;
    size_t len;
    CLI_TRY(lh_schedule_format(w->schedule, &text, &len, &c->err));
    cli_put_raw(c, text, len);
    lh_text_free(text);
    return LH_OK;
}

/* Returns (objective - lower bound) / lower bound for the schedule; 0 without a
 * bound. */
static double compute_gap(const work *w)
{
    int64_t ns = w->objective_ns;
    return w->bound.ns > 0 ? (double)(ns - w->bound.ns) / (double)w->bound.ns
                           : 0;
}

/* Prints the schedule, its times and the solver's statistics as JSON; if no
 * schedule is feasible, sets the exit code. */
static lh_status print_json(cli *c, const work *w)
{
    const settings *s = c->settings;
    if (w->infeasible)
        c->exit_code = EXIT_FAILED;
    const bool memory = s->model.objective == MEMORY;
    const lh_scheduled all = {
        .size = sizeof all,
        .requested = s->method,
        .method = w->chosen,
        .pipeline = w->pipeline,
        .timeline = w->timeline,
        .objective = s->model.objective == CLI_FIRST_DEVICE
                         ? LH_SOLVE_OBJECTIVE_FIRST_DEVICE
                         : LH_SOLVE_OBJECTIVE_MAKESPAN,
        .bound_ns = w->bound.ns,
        .limited_by = w->bound.text,
        .seconds = w->seconds,
        .fifo_ns = w->fifo_ns,
        .split_ns = w->parts_ns,
        .certificate =
            w->proof ? cli_utf8_name(c, s->search.certificate) : NULL,
        .proof = w->proof,
        .n_engines = w->n_engines,
        .engines = w->engines,
        .memory = memory ? &w->point : NULL};
    char *text = NULL;
    size_t len = 0;
    CLI_TRY(lh_scheduled_format(&all, &text, &len, &c->err));
    cli_put_owned_text(c, text, len);
    return LH_OK;
}

/* Prints the least memory limit, or the range in which it lies. */
static void print_memory(cli *c, const work *w)
{
    const char *unit = lh_pipeline_memory_unit(w->pipeline);
    char a[CLI_MEMORY_TEXT], b[CLI_MEMORY_TEXT], t[CLI_TIME_TEXT];
    const lh_memory_point *p = &w->point;
    cli_time_text(p->target_ns, t);
    if (p->limit_bound == p->limit)
        cli_print(c,
                  "memory limit  %s, the least with a makespan of at most "
                  "%s\n",
                  cli_memory_text(p->limit, unit, a), t);
    else
        cli_print(c,
                  "memory limit  %s allows a makespan of %s; proven lower "
                  "bound %s\n",
                  cli_memory_text(p->limit, unit, a), t,
                  cli_memory_text(p->limit_bound, unit, b));
}

/* Prints the schedule's method, makespan, lower bound, gap, idle time and
 * memory as text. */
static void print_text(cli *c, const work *w)
{
    const settings *s = c->settings;
    char a[CLI_TIME_TEXT], b[CLI_MEMORY_TEXT], hosted[CLI_HOST_MEMORY_TEXT];
    uint32_t device = 0;
    int64_t ns = lh_timeline_makespan(w->timeline);
    int64_t most = cli_highest_peak(w->timeline, &device);
    cli_print(c, "method        %s%s\n", w->chosen,
              lh_method_is_auto(s->method) ? " (best of all applicable methods)"
                                           : "");
    cli_print(c, "makespan      %s\n", cli_time_text(ns, a));
    cli_print(c, "lower bound   %s: %s\n", cli_time_text(w->bound.ns, a),
              w->bound.text);
    cli_print(c, "gap           %.2f %%%s\n", 100 * compute_gap(w),
              w->objective_ns == w->bound.ns ? ", optimal" : "");
    cli_print(c, "bubble        %.2f %%\n",
              100 * lh_timeline_bubble_ratio(w->timeline));
    cli_print(c, "peak memory   %s on device %" PRIu32 "\n",
              cli_memory_text(most, lh_pipeline_memory_unit(w->pipeline), b),
              device);
    if (s->host_memory)
        cli_print(c, "host memory   %s\n",
                  cli_host_memory_text(w->pipeline, cli_timeline_peak,
                                       w->timeline, hosted));
    if (s->model.objective == MEMORY)
        print_memory(c, w);
    if (w->proof)
        cli_print(c, "certificate   %s: %s\n", s->search.certificate, w->proof);
    cli_print(c, "written       %s\n", c->common.output);
}

/* Prints notes about the schedule: the time that first-in-first-out links would
 * cost, the host memory in use, and the time that unsplit W passes cost or
 * save. */
static void print_costs(cli *c, const work *w)
{
    const settings *s = c->settings;
    char a[CLI_TIME_TEXT], hosted[CLI_HOST_MEMORY_TEXT];
    int64_t ns = lh_timeline_makespan(w->timeline);
    if (w->fifo_ns > 0)
        cli_note(c,
                 "messages leave in their own order%s; first in, first out "
                 "costs %s more",
                 c->common.output ? ", written next to the schedule"
                                  : ", which -o FILE writes next to FILE",
                 cli_time_text(w->fifo_ns - ns, a));
    if (s->host_memory && !c->common.output)
        cli_note(c, "host memory: %s",
                 cli_host_memory_text(w->pipeline, cli_timeline_peak,
                                      w->timeline, hosted));
    if (w->parts_ns > 0)
        cli_note(c, "whole weight-gradient passes %s %s",
                 ns < w->parts_ns ? "save" : "cost",
                 cli_time_text(llabs(ns - w->parts_ns), a));
}

/* Runs 'longhaul schedule', writes its files and frees its results. */
static lh_status run_schedule(cli *c)
{
    work w = {0};
    lh_status status = make_schedule(c, &w);
    cli_progress_end();
    if (status == LH_OK && !w.schedule && !w.infeasible) {
        free_work(&w); /* --pareto has printed its curve */
        return LH_OK;
    }
    if (status == LH_OK && c->common.output && w.schedule) {
        cli_defer_signals();
        status = lh_schedule_write(w.schedule, c->common.output, &c->err);
        cli_release_signals();
    }
    if (status == LH_OK) {
        if (!c->common.json)
            print_costs(c, &w);
        if (c->common.json)
            status = print_json(c, &w);
        else if (c->common.output)
            print_text(c, &w);
        else
            status = print_csv(c, &w);
    }
    free_work(&w);
    return status;
}

const cli_command cmd_schedule = {
    .name = "schedule",
    .operands = "PIPELINE|PLAN",
    .least_operands = 1,
    .most_operands = 1,
    .operand_words = CLI_WORDS_FILES,
    .about = "Make a schedule for a pipeline by a named method",
    .description =
        "Reads a pipeline, or that of a plan, and orders the passes of every "
        "device: F is a forward pass, I the input gradient, W the weight "
        "gradient, B both gradients as one pass. The schedule is a CSV file "
        "with a row per device and a cell such as 2F7 per pass (chunk 2, "
        "forward, microbatch 7), as read by PyTorch's pipelining.\n"
        "\n"
        "With -o the schedule is written to FILE and its times are printed; "
        "otherwise the CSV is printed. If messages should not leave first in, "
        "first out, their order is written to a second file: S.links.csv for "
        "S.csv.\n"
        "\n"
        "The gap is (makespan - lower bound) / lower bound. A gap of 0 proves "
        "that no schedule is faster.\n"
        "\n"
        "The method optimal searches for the fastest schedule and a proof. It "
        "starts from the best of the other methods and stops when the bound is "
        "met, or by --time-limit, --effort, --gap, Ctrl-C or SIGTERM; it then "
        "returns the best schedule so far and its gap.\n"
        "\n"
        "--objective memory minimises memory_limit, the same for every device "
        "(lower limits of the file are kept), with a makespan of at most "
        "--makespan; --pareto repeats this for slower schedules that need less "
        "memory, until none is left. Each step is limited by --effort (default "
        "2000000), all of them by --time-limit.",
    .output_help = "Write the schedule to FILE and print its times.",
    .handles_output = true,
    .writes_links = true,
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_schedule,
};
