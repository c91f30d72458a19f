/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul diagnose: finds why a running job is slow and which fixes
 * would help. */
#include "commands.h"
#include "inputs.h"
#include "measurement_files.h"
#include "view.h"
#include "wrap.h"

#include <longhaul/experimental/diagnose.h>
#include <longhaul/experimental/json_output.h>

#include <inttypes.h>
#include <stdlib.h>

typedef struct settings {
    uint32_t threads;
    const char *html;
    cli_measurement_files measured;
    const char *map;
} settings;

static const cli_option options[] = {
    CLI_OUTPUT_ROW(settings, html,
                   "Write an HTML page: stage and replica maps, steps with "
                   "measured and ideal times, and possible fixes."),
    {.name = "pipeline-out",
     .type = CLI_OUTPUT,
     .at = offsetof(settings, measured.pipeline),
     .arg = "FILE",
     .help = "Write the replica with the slowest passes as a pipeline with "
             "mean times, for simulate, schedule, compare and train.",
     .words = CLI_WORDS_FILES},
    {.name = "profile-out",
     .type = CLI_OUTPUT,
     .at = offsetof(settings, measured.profile),
     .arg = "FILE",
     .help = "Write the passes of the replica with the slowest passes as a "
             "profile for planning; "
             "requires --job.",
     .words = CLI_WORDS_FILES},
    {.name = "job",
     .type = CLI_TEXT,
     .at = offsetof(settings, measured.job),
     .arg = "FILE",
     .help = "The recorded job; gives the sequence length, degrees and "
             "microbatch size for --profile-out.",
     .words = CLI_WORDS_FILES},
    CLI_THREADS_ROW(settings, "Replay up to N steps in parallel (default: one "
                              "per processor). The result is the same."),
    {.name = "map",
     .type = CLI_TEXT,
     .at = offsetof(settings, map),
     .arg = "FILE",
     .help = "PyTorch and Nsight traces: file that gives the stage and replica "
             "of each rank, and the operation of each range, if the traces "
             "lack them (docs/formats/ranks.md).",
     .words = CLI_WORDS_FILES},
};

static const cli_example examples[] = {
    {"longhaul diagnose steps.csv.gz",
     "Print the slowdown of the job, its causes, and possible fixes."},
    {"longhaul diagnose steps.csv.gz --html slow.html",
     "Write an HTML page with maps and timelines."},
    {"longhaul diagnose steps.csv.gz --pipeline-out now.yaml",
     "Write the measured pipeline; then: longhaul compare now.yaml"},
    {"longhaul diagnose steps.csv.gz --json | jq .helps",
     "Print only the possible fixes, as JSON."},
    {"longhaul diagnose rank0.json rank1.json --map ranks.yaml",
     "Diagnose traces of PyTorch's profiler, one per rank."},
};

enum { MOST_SHOWN = 4 }; /* stages, replicas, kinds, slow elements, fixes */

/* --- slowdown ----------------------------------------------------------- */

enum { SENTENCE = 400 }; /* bytes per sentence */

/* Writes the recording's steps, stages, replicas and microbatches to `text`;
 * returns it. */
static char *format_recording(const lh_diagnosis *d, char text[SENTENCE])
{
    snprintf(text, SENTENCE,
             "%" PRIu32 " step%s (%" PRIu64 " to %" PRIu64 "), %" PRIu32
             " stage%s x %" PRIu32 " replica%s, %" PRIu32 " microbatch%s",
             d->n_steps, d->n_steps == 1 ? "" : "s", d->steps[0].step,
             d->steps[d->n_steps - 1].step, d->n_stages,
             d->n_stages == 1 ? "" : "s", d->n_replicas,
             d->n_replicas == 1 ? "" : "s", d->n_microbatches,
             d->n_microbatches == 1 ? "" : "es");
    return text;
}

/* Prints the recording's size and its measured, replayed and ideal time per
 * step. */
static void print_heading(cli *c, const lh_diagnosis *d)
{
    char measured[CLI_TIME_TEXT], t[CLI_TIME_TEXT], ideal[CLI_TIME_TEXT];
    char recording[SENTENCE];
    cli_wrap(c, "recording", "%s", format_recording(d, recording));
    cli_wrap(c, "measured",
             "%s per step; replayed %s: %.1f %% is spent between operations",
             cli_time_text((int64_t)d->measured_ns, measured),
             cli_time_text((int64_t)d->t_ns, t),
             d->measured_ns > 0 ? 100 * (1 - d->t_ns / d->measured_ns) : 0);
    cli_wrap(c, "ideal times",
             "%s with equal times for all stages, replicas and steps",
             cli_time_text((int64_t)d->ideal_ns, ideal));
    if (d->n_steps > 1)
        cli_wrap(c, "slowdown", "%.3f +- %.3f (standard error over the steps)",
                 d->slowdown, d->slowdown_error);
    else
        cli_wrap(c, "slowdown", "%.3f, in one step", d->slowdown);
}

/* --- causes ------------------------------------------------------------- */

/* Formats the stage, replica or rank to which a slow component belongs into
 * `text`, which it returns. */
static const char *format_owner(const lh_diagnosis *d,
                                const lh_slow_component *t, char *text,
                                size_t room)
{
    uint32_t replica = t->replica == LH_NONE ? 0 : d->replicas[t->replica];
    if (t->kind == LH_SLOW_MICROBATCHES)
        snprintf(text, room, "uneven microbatches: a rank's longest");
    else if (t->kind == LH_SLOW_STAGE)
        snprintf(text, room, "stage %" PRIu32 "%s: passes", t->stage,
                 t->stage + 1 == d->n_stages ? ", the last" : "");
    else if (t->kind == LH_SLOW_WORKER)
        snprintf(text, room,
                 "the worker of stage %" PRIu32 ", replica %" PRIu32 ": passes",
                 t->stage, replica);
    else
        snprintf(text, room,
                 "from stage %" PRIu32 " to %" PRIu32 " of replica %" PRIu32
                 ": messages",
                 t->stage, t->to_stage, replica);
    return text;
}

/* Writes a sentence about a slow component to `text`: how much slower it is,
 * in which steps, and its cost per step; returns it. */
static char *format_slow(const lh_diagnosis *d, const lh_slow_component *t,
                         char text[SENTENCE])
{
    static const char *const others[] = {
        [LH_SLOW_WORKER] = "those of the stage's other replicas",
        [LH_SLOW_STAGE] = "those of other stages",
        [LH_SLOW_LINK] = "others",
        [LH_SLOW_MICROBATCHES] =
            ("its mean one, in forward and backward and on "
             "all stages, as with unequal sequence lengths")};
    char who[120], cost[CLI_TIME_TEXT], since[80];
    if (t->first_step == d->steps[0].step && t->n_steps == d->n_steps)
        snprintf(since, sizeof since, "in every recorded step");
    else if (t->is_ongoing)
        snprintf(since, sizeof since,
                 "since step %" PRIu64 " (in %" PRIu32 " of %" PRIu32 " steps)",
                 t->first_step, t->n_steps, d->n_steps);
    else
        snprintf(since, sizeof since,
                 "from step %" PRIu64 " to %" PRIu64 " (in %" PRIu32
                 " of %" PRIu32 " steps)",
                 t->first_step, t->last_step, t->n_steps, d->n_steps);
    snprintf(text, SENTENCE,
             "%s take%s %.2f times as long as %s, %s; costs %s per step%s",
             format_owner(d, t, who, sizeof who),
             t->kind == LH_SLOW_MICROBATCHES ? "s" : "", t->ratio,
             others[t->kind], since, cli_time_text(t->cost_ns, cost),
             t->hidden ? " once the other causes are fixed, and almost nothing "
                         "before"
                       : "");
    return text;
}

static const char nothing_slow[] =
    "no worker, stage or link that costs 0.2 % of a step";

/* Prints the components (stages, ranks, links) found to be slow, at most
 * MOST_SHOWN of them; or that none is. */
static void print_slow(cli *c, const lh_diagnosis *d)
{
    char text[SENTENCE];
    for (uint32_t i = 0; i < d->n_slow_components && i < MOST_SHOWN; i++)
        cli_wrap(c, i ? "" : "slow", "%s",
                 format_slow(d, &d->slow_components[i], text));
    if (d->n_slow_components > MOST_SHOWN)
        cli_wrap(c, "", "and %" PRIu32 " more: see --json",
                 d->n_slow_components - MOST_SHOWN);
    if (d->n_slow_components == 0)
        cli_wrap(c, "slow", "%s", nothing_slow);
}

/* Returns the index of the largest positive value among n `values`, without the
 * n_shown indices in `shown`; LH_NONE: there is none. */
static uint32_t find_next_largest(const double *values, uint32_t n,
                                  const uint32_t *shown, uint32_t n_shown)
{
    uint32_t best = LH_NONE;
    for (uint32_t i = 0; i < n; i++) {
        bool is_shown = values[i] <= 0;
        for (uint32_t k = 0; k < n_shown; k++)
            is_shown = is_shown || shown[k] == i;
        if (!is_shown && (best == LH_NONE || values[i] > values[best]))
            best = i;
    }
    return best;
}

/* Prints `label` and the largest slowdown in values[0..n-1]. The callback
 * name(of, i) returns the display name of index i. */
static void print_worst(cli *c, const char *label, const double *values,
                        uint32_t n, const char *(*name)(const void *, uint32_t),
                        const void *of)
{
    char line[400];
    uint32_t shown[MOST_SHOWN], k = 0;
    size_t len = 0;
    line[0] = '\0';
    for (; k < MOST_SHOWN && len + 60 < sizeof line; k++) {
        shown[k] = find_next_largest(values, n, shown, k);
        if (shown[k] == LH_NONE)
            break;
        len += (size_t)snprintf(line + len, sizeof line - len, "%s%s %.3f",
                                k ? ", " : "", name(of, shown[k]),
                                values[shown[k]]);
    }
    cli_wrap(c, label, "%s%s", line, k < n && k == MOST_SHOWN ? ", ..." : "");
}

/* Numbering of stages or replicas, with a text buffer. */
typedef struct numbering {
    const uint32_t *numbers; /* NULL: identity */
    char text[16];
} numbering;

/* Writes stage or replica i as 'N:' into the buffer of `of` and returns it
 * (callback). */
static const char *format_number_name(const void *of, uint32_t i)
{
    numbering *n = (numbering *)of;
    snprintf(n->text, sizeof n->text, "%" PRIu32 ":",
             n->numbers ? n->numbers[i] : i);
    return n->text;
}

/* Returns the name of operation i (callback; `of` is unused). */
static const char *get_operation_name(const void *of, uint32_t i)
{
    (void)of;
    return lh_operation_name((lh_operation)i);
}

/* Prints the largest slowdowns caused by a single stage, replica or operation,
 * then the shares of lost time that the slowest workers and the last stage
 * cause. */
static void print_parts(cli *c, const lh_diagnosis *d)
{
    numbering stages = {NULL, ""}, replicas = {d->replicas, ""};
    uint32_t workers = d->n_stages * d->n_replicas;
    cli_print(c, "\n"
                 "Slowdown with measured times for one part only and ideal "
                 "times elsewhere\n");
    print_worst(c, "  stage", d->by_stage, d->n_stages, format_number_name,
                &stages);
    print_worst(c, "  replica", d->by_replica, d->n_replicas,
                format_number_name, &replicas);
    print_worst(c, "  operation", d->by_operation, LH_N_OPERATIONS,
                get_operation_name, NULL);
    cli_wrap(c, "shares",
             "recovered by ideal times: %.1f %% of the lost time for the "
             "slowest %" PRIu32 " of %" PRIu32 " workers, %.1f %% for the last "
             "stage",
             100 * d->worker_share, d->n_slow_workers, workers,
             100 * d->last_stage_share);
}

/* --- fixes -------------------------------------------------------------- */

/* Prints at most MOST_SHOWN recommendations with predicted time and gain, or
 * that none gains 0.2 %. */
static void print_fixes(cli *c, const lh_diagnosis *d)
{
    static const char *const head[] = {"#per step", "#gain", ""};
    cli_table t = {0};
    if (d->n_remedies == 0) {
        cli_print(c, "\n"
                     "No evaluated change gains 0.2 %%.\n");
        return;
    }
    cli_print(c, "\n"
                 "Predicted gain of each change alone\n");
    cli_table_row(&t, 3, head);
    for (uint32_t i = 0; i < d->n_remedies && i < MOST_SHOWN; i++) {
        const lh_remedy *h = &d->remedies[i];
        char time[CLI_TIME_TEXT], gain[24], what[400];
        snprintf(gain, sizeof gain, "%.1f %%", 100 * h->gain);
        snprintf(what, sizeof what, "%s%s%s%s", h->action,
                 *h->assumptions ? " (if " : "", h->assumptions,
                 *h->assumptions ? ")" : "");
        const char *cells[] = {cli_time_text(h->predicted_ns, time), gain,
                               what};
        cli_table_row(&t, 3, cells);
    }
    cli_table_print(c, "", &t);
    if (d->n_remedies > MOST_SHOWN)
        cli_print(c, "  ... and %" PRIu32 " more: see --json\n",
                  d->n_remedies - MOST_SHOWN);
}

/* Prints the defects found in the recording. */
static void print_remarks(cli *c, const lh_diagnosis *d)
{
    for (uint32_t i = 0; i < d->n_defects; i++)
        cli_wrap(c, i ? "" : "damage", "%s", d->defects[i].text);
}

/* --- activity ----------------------------------------------------------- */

/* Writes a rank's number, or its file if the number is unknown; returns it. */
static char *rank_text(const lh_rank_activity *r, char *text, size_t room)
{
    if (r->rank == LH_NONE)
        snprintf(text, room, "%.*s", (int)room - 1, r->file);
    else
        snprintf(text, room, "%" PRIu32, r->rank);
    return text;
}

/* Adds a row per rank, with the share of each activity in its time. */
static void fill_activity_table(const lh_diagnosis *d, cli_table *t)
{
    static const char *const head[] = {"rank",     "from",     "#steps",
                                       "#time",    "#compute", "#communication",
                                       "#overlap", "#copy",    "#idle"};
    static const char *const sources[] = {[LH_ACTIVITY_CPU] = "CPU",
                                          [LH_ACTIVITY_GPU] = "GPU",
                                          [LH_ACTIVITY_TIMERS] = "timers"};
    cli_table_row(t, 9, head);
    for (uint32_t i = 0; i < d->n_ranks; i++) {
        const lh_rank_activity *r = &d->ranks[i];
        int64_t times[] = {r->compute_ns, r->communication_ns, r->overlap_ns,
                           r->copy_ns, r->idle_ns};
        char rank[64], steps[16], span[CLI_TIME_TEXT], shares[5][16];
        double whole = r->span_ns > 0 ? (double)r->span_ns : 1;
        for (uint32_t k = 0; k < 5; k++)
            snprintf(shares[k], sizeof shares[k], "%.1f %%",
                     100 * (double)times[k] / whole);
        snprintf(steps, sizeof steps, "%" PRIu32, r->n_steps);
        const char *cells[] = {rank_text(r, rank, sizeof rank),
                               sources[r->source],
                               r->n_steps ? steps : "-",
                               cli_time_text(r->span_ns, span),
                               shares[0],
                               shares[1],
                               shares[2],
                               shares[3],
                               shares[4]};
        cli_table_row(t, 9, cells);
    }
}

/* Writes a sentence about a rank that computes slowly to `text`; returns it. */
static char *slow_rank_text(const lh_rank_activity *r, char text[SENTENCE])
{
    char rank[64], time[CLI_TIME_TEXT];
    snprintf(text, SENTENCE,
             "rank %s computes for %s%s, %.2f times as long as the median of "
             "the other ranks",
             rank_text(r, rank, sizeof rank),
             cli_time_text(r->compute_ns, time), r->n_steps ? " per step" : "",
             r->ratio);
    return text;
}

/* Prints the ranks' activity in a recording without steps. */
static void print_activity(cli *c, const lh_diagnosis *d)
{
    cli_table t = {0};
    uint32_t n_slow = 0;
    bool compared = false;
    char text[SENTENCE];
    cli_wrap(c, "recording", "%" PRIu32 " rank%s", d->n_ranks,
             d->n_ranks == 1 ? "" : "s");
    cli_wrap(c, "not replayed", "%s", d->unreplayed);
    print_remarks(c, d);
    for (uint32_t i = 0; i < d->n_ranks; i++) {
        compared = compared || d->ranks[i].ratio > 0;
        if (d->ranks[i].is_slow)
            cli_wrap(c, n_slow++ ? "" : "slow", "%s",
                     slow_rank_text(&d->ranks[i], text));
    }
    if (!compared && d->n_ranks > 1)
        cli_wrap(c, "slow",
                 "ranks are not compared: only some have step marks, or GPU "
                 "kernels, or none computes");
    else if (n_slow == 0 && d->n_ranks > 1)
        cli_wrap(c, "slow", "no rank computes 1.1 times as long as the others");
    cli_print(c, "\nTime per marked step, or of the whole trace (steps -), and "
                 "its shares\n");
    fill_activity_table(d, &t);
    cli_table_print(c, "", &t);
}

/* Prints the whole diagnosis as text: times, slow components, causes,
 * recommendations and defects. */
static void print_text(cli *c, const lh_diagnosis *d)
{
    if (d->n_steps == 0) {
        print_activity(c, d);
        return;
    }
    print_heading(c, d);
    print_remarks(c, d);
    print_slow(c, d);
    print_parts(c, d);
    print_fixes(c, d);
}

/* --- report page -------------------------------------------------------- */

/* Adds recording, diagnosis and sentences to the report. */
static lh_status fill_page(cli *c, const lh_recording *recording,
                           const lh_diagnosis *d, lh_report *report)
{
    char line[SENTENCE];
    uint32_t n = 0, most = d->n_slow_components + d->n_defects + 1;
    lh_report_diagnosis page = {
        .size = sizeof page, .recording = recording, .diagnosis = d};
    const char **sentences = calloc(most, sizeof *sentences);
    char(*texts)[SENTENCE] = calloc(most, sizeof *texts);
    lh_status status = sentences && texts ? LH_OK : cli_no_memory(c);
    for (uint32_t i = 0; status == LH_OK && i < d->n_slow_components; i++)
        sentences[n++] = format_slow(d, &d->slow_components[i], texts[i]);
    if (status == LH_OK && n == 0)
        sentences[n++] = nothing_slow;
    for (uint32_t i = 0; status == LH_OK && i < d->n_defects; i++)
        sentences[n++] = cli_utf8_name(c, d->defects[i].text);
    page.n_sentences = n;
    page.sentences = sentences;
    if (status == LH_OK)
        status = lh_report_add_fact(report, "recording",
                                    format_recording(d, line), &c->err);
    if (status == LH_OK)
        status = lh_report_add_diagnosis(report, &page, &c->err);
    free(sentences);
    free(texts);
    return status;
}

/* Adds the ranks' activity to the report on a recording without steps. */
static lh_status fill_activity_page(cli *c, const lh_diagnosis *d,
                                    lh_report *report)
{
    cli_table t = {0};
    CLI_TRY(lh_report_add_fact(report, "not replayed",
                               cli_utf8_name(c, d->unreplayed), &c->err));
    fill_activity_table(d, &t);
    return cli_table_report(c, "Time per step and its shares", &t, report);
}

/* Writes the HTML report on the recording and its diagnosis to `path`. */
static lh_status write_page(cli *c, const lh_recording *recording,
                            const lh_diagnosis *d, const char *path)
{
    lh_report *report = NULL;
    CLI_TRY(lh_report_make(cli_utf8_name(c, c->operands[0]), &report, &c->err));
    lh_status status = d->n_steps ? fill_page(c, recording, d, report)
                                  : fill_activity_page(c, d, report);
    if (status == LH_OK)
        status = cli_write_html(c, report, path);
    lh_report_free(report);
    return status;
}

/* --- command ------------------------------------------------------------ */

/* Prints the diagnosis as text, or as JSON with --json. */
static lh_status print_diagnosis(cli *c, const lh_diagnosis *d)
{
    char *text = NULL;
    size_t len = 0;
    if (!c->common.json) {
        print_text(c, d);
        return LH_OK;
    }
    CLI_TRY(lh_diagnosis_format(d, &text, &len, &c->err));
    cli_put_owned_text(c, text, len);
    return LH_OK;
}

/* Runs 'longhaul diagnose': reads a recording, diagnoses it, and writes the
 * requested files. */
static lh_status run_diagnose(cli *c)
{
    const settings *s = c->settings;
    lh_recording *recording = NULL;
    lh_diagnosis *diagnosis = NULL;
    lh_rank_map *map = NULL;
    lh_diagnose_options with = {.size = sizeof with, .threads = s->threads};
    if (s->measured.profile && !s->measured.job)
        return cli_usage(c, "--profile-out requires --job FILE: a recording "
                            "lacks the sequence length, degrees and microbatch "
                            "size of its times (--pipeline-out does not need "
                            "them)");
    if (s->measured.job && !s->measured.profile)
        return cli_usage(c, "--job requires --profile-out");
    cli_progress(c, "reading");
    lh_status status = s->map ? lh_rank_map_read(s->map, &map, &c->err) : LH_OK;
    if (status == LH_OK)
        status =
            lh_recording_read_mapped((const char *const *)c->operands,
                                     c->n_operands, map, &recording, &c->err);
    lh_rank_map_free(map);
    if (status == LH_OK) {
        cli_progress(c, "replaying %" PRIu32 " steps",
                     lh_recording_n_steps(recording));
        status = lh_diagnose(recording, &with, &diagnosis, &c->err);
    }
    cli_progress_end();
    if (status == LH_OK && s->html)
        status = write_page(c, recording, diagnosis, s->html);
    if (status == LH_OK)
        status = cli_write_measurements(c, &s->measured, recording, diagnosis);
    if (status == LH_OK)
        status = print_diagnosis(c, diagnosis);
    lh_diagnosis_free(diagnosis);
    lh_recording_free(recording);
    return status;
}

const cli_command cmd_diagnose = {
    .name = "diagnose",
    .operands = "RECORDING ...",
    .least_operands = 1,
    .most_operands = 65536,
    .operand_words = CLI_WORDS_FILES,
    .about = "Find why a running job is slow, and possible fixes",
    .description =
        "A recording holds some steps of a job: passes, messages and "
        "collectives of its ranks, each with start and duration. It is a table "
        "(CSV, also gzip), a trace written by longhaul (one step), or one or "
        "several traces per rank of PyTorch's profiler (JSON, also gzip) or of "
        "Nsight Systems (nsys export --type jsonlines). "
        "Several files form one recording.\n"
        "\n"
        "Each step is replayed from its dependencies: with measured times, "
        "with ideal times, and with measured times for one stage, one replica "
        "or one kind of operation only (Lin et al., OSDI 2025). The output "
        "names workers, stages and links that are slower than their peers, "
        "with the affected steps. Possible fixes are replayed likewise, or "
        "simulated with measured times: slow parts at normal speed, moved "
        "layers, other schedules, smaller microbatches.\n"
        "\n"
        "PyTorch traces without a complete step, and logs with Megatron-LM's "
        "timers, give each rank's time of computation, communication and "
        "idleness, and name slow ranks.\n"
        "\n"
        "Damaged parts of a recording are skipped; one remark per kind of "
        "damage gives their amount.",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_diagnose,
};
