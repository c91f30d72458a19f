/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a plan on one screen. The common part is always whole; alternatives
 * and network settings use the screen's remaining lines. The --show parts, JSON
 * and the report have all data. */
#define _XOPEN_SOURCE 700
#include "plan_screen.h"
#include "jitter_view.h"
#include "plan_cost.h"
#include "plan_explanation.h"
#include "plan_whatif.h"
#include "view.h"
#include "wrap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef void print_part(cli *c, const lh_plan *plan);

static const struct {
    const char *name;
    print_part *print;
} parts[] = {
#define ROW(id, name, print) {name, print},
    CLI_PART_LIST(ROW)
#undef ROW
};

/* --- --show ------------------------------------------------------------- */

/* Returns the bit for the part of the plan's output that `name`'s first `len`
 * bytes name in --show; all bits for 'all'; 0: unknown name. */
static uint32_t find_part(const char *name, size_t len)
{
    if (len == 3 && strncmp(name, "all", len) == 0)
        return CLI_SHOW_ALL;
    for (uint32_t i = 0; i < CLI_COUNT_OF(parts); i++)
        if (strlen(parts[i].name) == len &&
            strncmp(parts[i].name, name, len) == 0)
            return 1u << i;
    return 0;
}

lh_status cli_show_parse(cli *c, const char *text, uint32_t *out)
{
    *out = 0;
    while (text) {
        const size_t len = strcspn(text, ",");
        const uint32_t part = find_part(text, len);
        if (!part)
            return cli_usage(c,
                             "--show: '%.*s' is not " CLI_SHOW_NAMES ", or all",
                             len < 60 ? (int)len : 60, text);
        *out |= part;
        text = text[len] ? text + len + 1 : NULL;
    }
    return LH_OK;
}

/* --- result ------------------------------------------------------------- */

/* Formats the peak rate that a utilisation refers to: "of the 16-bit peak,
 * 989.4 TFLOP/s per GPU", without the rate if GPUs differ. */
static const char *format_peak(const lh_plan *p, char *text, size_t room)
{
    const lh_job *job = p->job;
    const char *kind = job->training.precision == LH_PRECISION_FP32
                           ? "of peak in fp32"
                           : "of the 16-bit peak";
    bool all_equal = true;
    for (uint32_t i = 1; i < job->n_datacenters && all_equal; i++)
        all_equal = job->datacenters[i].gpu.flops_per_s <=
                        job->datacenters[0].gpu.flops_per_s &&
                    job->datacenters[i].gpu.flops_per_s >=
                        job->datacenters[0].gpu.flops_per_s;
    if (all_equal)
        snprintf(text, room, "%s, %.4g TFLOP/s per GPU", kind,
                 job->datacenters[0].gpu.tflops);
    else
        snprintf(text, room, "%s", kind);
    return text;
}

/* Prints the plan's iteration times under jitter. */
static void print_jitter(cli *c, const lh_plan *p)
{
    const lh_jitter_result *r = p->best.jitter;
    const lh_plan_robust *how = p->robust;
    char mean[CLI_TIME_TEXT], p95[CLI_TIME_TEXT], p99[CLI_TIME_TEXT];
    cli_wrap(c, "with jitter",
             "mean %s, 95 %% within %s, 99 %% within %s (%" PRIu32
             " iterations)",
             cli_plan_time(p, r->mean_ns, mean),
             cli_plan_time(p, (double)r->p95_ns, p95),
             cli_plan_time(p, (double)r->p99_ns, p99), r->samples);
    char slow[CLI_STRAGGLER_TEXT], untried[120] = "";
    if (*cli_straggler_text(how->jitter.straggler_probability, lh_plan_gpus(p),
                            slow))
        cli_wrap(c, "", "%s", slow);
    if (how->n_unevaluated)
        snprintf(untried, sizeof untried,
                 "; %" PRIu32 " layout%s that may be better %s not evaluated "
                 "(too many)",
                 how->n_unevaluated, how->n_unevaluated == 1 ? "" : "s",
                 how->n_unevaluated == 1 ? "was" : "were");
    else if (!how->complete)
        snprintf(untried, sizeof untried,
                 "; the search ended before all layouts that may be better "
                 "were evaluated");
    cli_wrap(c, "chosen by",
             "%s, among %" PRIu32 " schedule%s of %" PRIu32 " layout%s%s",
             how->statistic == LH_PLAN_BY_P95 ? "the 95th percentile"
                                              : "the mean",
             how->n_schedules, how->n_schedules == 1 ? "" : "s", how->n_layouts,
             how->n_layouts == 1 ? "" : "s", untried);
}

/* Prints the training program for which the plan is executable, and the best
 * plan's time without that restriction. */
static void print_target(cli *c, const lh_plan *p)
{
    const lh_target target = p->job->target;
    const lh_choice *other = p->unrestricted;
    char own[CLI_TIME_TEXT], time[CLI_TIME_TEXT];
    if (target == LH_TARGET_ANY)
        return;
    if (!other)
        cli_wrap(c, "for",
                 "%s (%s) %s; a short search found nothing faster for a "
                 "runtime that runs any schedule",
                 lh_target_display_name(target), lh_target_version(target),
                 cli_plan_time(p, (double)p->best.iteration_ns, own));
    else
        cli_wrap(c, "for",
                 "%s (%s) %s; %s (%+.1f %%) with a runtime that runs any "
                 "schedule: %s on %s, as found by a short search",
                 lh_target_display_name(target), lh_target_version(target),
                 cli_plan_time(p, (double)p->best.iteration_ns, own),
                 cli_plan_time(p, (double)other->iteration_ns, time),
                 cli_percent_slower((double)other->iteration_ns,
                                    (double)p->best.iteration_ns),
                 other->layout.schedule, lh_placement_name(other->placement));
}

/* Formats the error in published runs of the plan's kind into `text`, with the
 * first `used` bytes of the list of properties that no run has, and `more`. */
static void format_accuracy(const lh_validated_runs *runs, size_t used,
                            const char *more, char *text, size_t room)
{
    snprintf(text, room,
             "+-%.0f %% (worst %.0f %%) in %" PRIu32 " published runs of "
             "%s%s%.*s%s",
             runs->mean_percent, runs->worst_percent, runs->n, runs->kind,
             runs->outside ? "; none with " : "", (int)used,
             runs->outside ? runs->outside : "", more);
}

void cli_print_accuracy(cli *c, const lh_job *job,
                        const lh_validated_runs *runs)
{
    enum { LINES = 2 };
    char text[500], more[40] = "";
    if (!runs) {
        cli_wrap(c, "accuracy", "%s", lh_explain_no_validated_runs(job));
        return;
    }
    size_t used = runs->outside ? strlen(runs->outside) : 0;
    format_accuracy(runs, used, more, text, sizeof text);
    for (uint32_t left = 1; cli_count_lines(text) > LINES && used; left++) {
        do
            used--;
        while (used && runs->outside[used] != ',');
        snprintf(more, sizeof more, "%s%" PRIu32 " more (--json)",
                 used ? " and " : "", left);
        format_accuracy(runs, used, more, text, sizeof text);
    }
    cli_wrap(c, "accuracy", "%s", text);
}

/* Prints iteration time, throughput, memory, jitter, cost and the reason for
 * choosing the plan. */
static void print_result(cli *c, const lh_plan *p)
{
    const lh_choice *b = &p->best;
    char peak[80], all[CLI_TIME_TEXT], pipe[CLI_TIME_TEXT];
    char after[CLI_TIME_TEXT], unmeasured[CLI_UNMEASURED_TEXT];
    char note[CLI_NOTE_TEXT];
    print_target(c, p);
    cli_wrap(
        c, "iteration", "%s (%s): pipeline %s, optimizer and overhead %s",
        cli_plan_time(p, (double)b->iteration_ns, all), cli_time_source_text(p),
        cli_plan_time(p, (double)b->makespan_ns, pipe),
        cli_plan_time(p, (double)(b->optimizer_ns + b->overhead_ns), after));
    cli_print_accuracy(c, p->job, p->accuracy);
    if (*cli_plan_ties_text(p, note, sizeof note))
        cli_wrap(c, "practice", "%s", note);
    if (*cli_unmeasured_text(p, unmeasured, sizeof unmeasured))
        cli_wrap(c, "profile", "%s", unmeasured);
    cli_wrap(c, "throughput", "%.0f tokens/s, %.1f %% %s", b->tokens_per_s,
             100 * b->mfu, format_peak(p, peak, sizeof peak));
    if (b->jitter)
        print_jitter(c, p);
    if (*cli_plan_margin_text(p, note, sizeof note))
        cli_wrap(c, "margin", "%s", note);
    cli_print_cost(c, b);
    cli_print_cheaper_plans(c, p);
    cli_wrap(c, "why", "%s", b->why);
    if (p->outside_search_space)
        cli_wrap(c, "given",
                 "%s: outside the search space; a plan that leaves it open may "
                 "be slower",
                 p->outside_search_space);
}

/* Checks whether part number `part` of the output is printed only with --show,
 * because it is long and rarely needed (the link settings). */
static bool is_printed_on_request(uint32_t part)
{
    return parts[part].print == cli_plan_network;
}

/* --- screen ------------------------------------------------------------- */

/* Prints a piece with at most `most` rows, if it consists of rows. */
typedef void print_piece(cli *c, const lh_plan *plan, uint32_t most);

/* Returns the output of the callback print(c, p, most) as text, which the
 * caller frees; NULL: out of memory. `most`: its limit of lines or rows. */
static char *capture_output(cli *c, print_piece *print, const lh_plan *p,
                            uint32_t most)
{
    char *text = NULL;
    size_t len = 0;
    FILE *kept = c->out, *memory = open_memstream(&text, &len);
    if (!memory)
        return NULL;
    c->out = memory;
    print(c, p, most);
    c->out = kept;
    if (fclose(memory) == 0)
        return text;
    free(text);
    return NULL;
}

/* Counts a text's line ends; NULL has none. */
static uint32_t count_lines(const char *text)
{
    uint32_t n = 0;
    for (; text && *text; text++)
        n += *text == '\n';
    return n;
}

/* Prints the first `most` lines of `text`. If lines are left out, the last
 * printed line states their number instead. */
static void print_first(cli *c, const char *text, uint32_t most)
{
    const uint32_t n = count_lines(text), shown = n <= most ? n : most - 1;
    for (uint32_t i = 0; i < shown; i++) {
        const size_t len = strcspn(text, "\n");
        cli_print(c, "%.*s\n", (int)len, text);
        text += len + 1;
    }
    if (shown < n)
        cli_print(c, "  ... and %" PRIu32 " more lines: --show all\n",
                  n - shown);
}

/* Prints the lines that every plan has: result, model, layout, datacenters,
 * breakdown and memory (callback; `most` is unused). */
static void print_plan(cli *c, const lh_plan *p, uint32_t most)
{
    char name[400];
    (void)most;
    cli_print(c, "%s\n\n",
              cli_shorten(p->name, cli_width(), name, sizeof name));
    print_result(c, p);
    cli_plan_model(c, p);
    cli_plan_layout(c, p);
    cli_plan_sites(c, p);
    cli_plan_breakdown(c, p);
    cli_plan_memory(c, p);
}

/* Prints at most `most` other evaluated layouts; 0: a line that names
 * the option to print them. A table row may span several lines, so none is cut.
 */
static void print_others(cli *c, const lh_plan *p, uint32_t most)
{
    if (most > 0)
        cli_plan_other_layouts(c, p, most);
    else
        cli_wrap(c, "alternatives", "--show layouts");
}

/* Prints the gains from changing at most `most` options of the training program
 * alone, from all of them together and from the advised network settings. */
static void print_gain(cli *c, const lh_plan *p, uint32_t most)
{
    cli_plan_flags_gain(c, p, most);
    cli_plan_network_gain(c, p);
}

/* Prints one part of the plan's screen in at most `most` lines: the callback
 * print() gets as many complete table rows, at most `rows`, as fit. Returns the
 * number of lines printed. */
static uint32_t print_piece_within(cli *c, const lh_plan *p, print_piece *print,
                                   uint32_t rows, uint32_t most)
{
    char *text = capture_output(c, print, p, rows);
    while (rows > 0 && count_lines(text) > most) {
        free(text);
        text = capture_output(c, print, p, --rows);
    }
    const uint32_t lines = count_lines(text),
                   room = lines < most ? lines : most;
    if (!text)
        cli_print(c, "(out of memory)\n");
    else if (room > 0)
        print_first(c, text, room);
    free(text);
    return room;
}

/* Prints the parts requested by --show in full, below the screen. */
static void print_requested(cli *c, const lh_plan *p,
                            const cli_plan_output *shown)
{
    cli_plan_curves(c, p);
    if (shown->curves && !p->n_curves)
        cli_wrap(c, "curves", "not computed: the search was stopped before");
    cli_print_pareto_front(c, p);
    cli_print_whatif(c, p);
    cli_print_sensitivity(c, p);
    if (shown->sensitivity && !p->sensitivity)
        cli_wrap(c, "sensitivity",
                 "not computed: the search was stopped before");
}

/* Prints the paths to the plan and the report that were written. */
static void print_files(cli *c, const cli_plan_output *shown)
{
    if (shown->plan)
        cli_wrap(c, "plan", "%s", shown->plan);
    if (shown->html)
        cli_wrap(c, "report", "%s", shown->html);
}

/* The last line on a screen without requested parts; the plan's options name
 * their own part. */
#define MORE "--show " CLI_SHOW_COMMON ", or all"

/* Returns how many lines follow the screen's parts: the paths of the written
 * files and the note about further parts. */
static uint32_t count_last_lines(const cli_plan_output *shown)
{
    return cli_count_lines(MORE) +
           (shown->plan ? cli_count_lines(shown->plan) : 0) +
           (shown->html ? cli_count_lines(shown->html) : 0);
}

void cli_plan_screen(cli *c, const lh_plan *p, const cli_plan_output *shown)
{
    const bool all = shown->parts & CLI_SHOW_ALL;
    const uint32_t end = count_last_lines(shown);
    const uint32_t used =
        end + print_piece_within(c, p, print_plan, 0, UINT32_MAX);
    uint32_t room = all                       ? UINT32_MAX
                    : used < CLI_SCREEN_LINES ? CLI_SCREEN_LINES - used
                                              : 0;
    /* A warning about links is worth more than another alternative, which is
     * worth more than a single option of the training program. Of three lines
     * or more, one names the alternatives. */
    char *gain = capture_output(c, print_gain, p, 0);
    const uint32_t kept = count_lines(gain);
    free(gain);
    room -= print_piece_within(c, p, print_others, CLI_SCREEN_OTHERS,
                               room > kept + 1 ? room - kept : room > 2);
    print_piece_within(c, p, print_gain, CLI_SCREEN_FLAGS, room);
    print_requested(c, p, shown);
    for (uint32_t i = 0; i < CLI_COUNT_OF(parts); i++)
        if ((all && !is_printed_on_request(i)) || shown->parts >> i & 1)
            parts[i].print(c, p);
    print_files(c, shown);
    if (!shown->parts)
        cli_wrap(c, "more", MORE);
    else if (all && p->n_network && !(shown->parts & CLI_SHOW_NETWORK))
        cli_wrap(c, "more", "--show network: recommended link settings");
}
