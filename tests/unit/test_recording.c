/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings with known properties, intact and damaged: derivable results are
 * given, damage is counted, and nothing is invented. */
#include "report/diagnosis/recording.h"
#include "small_recording.h"
#include "test.h"
#include "uniform.h"

#include <longhaul/experimental/diagnose.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/trace.h>
#include <longhaul/simulate.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <zlib.h>

static const small_job usual = {
    .steps = 3, .stages = 2, .replicas = 2, .microbatches = 2};

/* Duration of a step, in ns: an all-gather; all stages' forwards in sequence
 * with messages in between, and all those of the last stage; the backwards in
 * the same way; a reduce-scatter and the optimizer. A receive starts only after
 * the pass before it has ended, so that all but the first are waited for. */
static int64_t small_t_ns(const small_job *j)
{
    int64_t S = j->stages, M = j->microbatches;
    int64_t ms =
        2 + 10 * S + (S - 1) + 10 * (M - 1) + 20 * M + 21 * (S - 1) + 3;
    return (S > 1 ? ms + 2 * (M - 1) : ms) * 1000000;
}

static lh_diagnosis *diagnosed(const char *text, size_t len)
{
    lh_recording *r = NULL;
    lh_diagnosis *d = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_recording_parse(text, len, "small.csv", &r, &err), err);
    if (r)
        CHECK_OK(lh_diagnose(r, NULL, &d, &err), err);
    lh_recording_free(r);
    if (!d)
        exit(1); /* later checks need the diagnosis */
    return d;
}

/* Returns the diagnosis's count for a kind of damage. */
static uint64_t told(const lh_diagnosis *d, const char *kind)
{
    for (uint32_t i = 0; i < d->n_defects; i++)
        if (strcmp(d->defects[i].kind, kind) == 0)
            return d->defects[i].n;
    return 0;
}

/* Checks that this remark is the only one, with this count, and that every step
 * has its expected duration; frees the diagnosis. */
static void check_small(lh_diagnosis *d, const small_job *j, uint32_t steps,
                        const char *kind, uint64_t n)
{
    CHECK_INT(d->n_steps, steps);
    for (uint32_t i = 0; i < d->n_steps; i++)
        CHECK_INT(d->steps[i].t_ns, small_t_ns(j));
    CHECK_INT(d->n_defects, kind ? 1 : 0);
    if (kind)
        CHECK_INT(told(d, kind), n);
    lh_diagnosis_free(d);
}

/* --- lines of the small recording ----------------------------------------- */

static char other[3 * sizeof small_text];
static size_t other_len;

typedef bool (*line_editor)(const char *line, size_t len, void *context);

static void add_text(const char *text, size_t len)
{
    memcpy(other + other_len, text, len);
    other_len += len;
}

/* Passes each line of the small recording to `edit`, which may add text to
 * `other` and returns whether to keep the line. */
static void edit_lines(const small_job *j, line_editor edit, void *context)
{
    small_recording(j);
    other_len = 0;
    for (size_t at = 0; at < small_len;) {
        size_t len = strcspn(small_text + at, "\n") + 1;
        if (edit(small_text + at, len, context))
            add_text(small_text + at, len);
        at += len;
    }
}

/* Fields of a line. */
typedef struct fields {
    unsigned step, rank, replica, stage;
    char op[40], rest[80];
    double start, seconds;
} fields;

static bool read_fields(const char *line, fields *f)
{
    return sscanf(line, "%u,%u,%u,%u,%39[^,],%79[^\n]", &f->step, &f->rank,
                  &f->replica, &f->stage, f->op, f->rest) == 6 &&
           sscanf(strrchr(f->rest, ',') + 1, "%lf", &f->seconds) == 1;
}

/* --- intact --------------------------------------------------------------- */

static void a_small_job_takes_what_it_has_to(void)
{
    for (uint32_t stages = 1; stages <= 5; stages++)
        for (uint32_t m = 2; m <= 4; m++) {
            small_job j = {
                .steps = 2, .stages = stages, .replicas = 3, .microbatches = m};
            small_recording(&j);
            check_small(diagnosed(small_text, small_len), &j, 2, NULL, 0);
        }
}

static bool line_has(const char *line, size_t len, const char *text)
{
    const char *at = strstr(line, text);
    return at && at < line + len;
}

static bool without_messages(const char *line, size_t len, void *context)
{
    (void)context;
    return !line_has(line, len, "-send") && !line_has(line, len, "-recv");
}

static void without_messages_passes_follow_each_other(void)
{
    edit_lines(&usual, without_messages, NULL);
    lh_diagnosis *d = diagnosed(other, other_len);
    CHECK_INT(d->n_defects, 0);
    CHECK_INT(d->steps[0].t_ns, small_t_ns(&usual) - 4000000);
    lh_diagnosis_free(d);
}

static bool backwards(const char *line, size_t len, void *context)
{
    char *end = context;
    (void)end;
    /* Keeps the heading first; moves rows to the front. */
    if (other_len == 0)
        return true;
    size_t head = strcspn(other, "\n") + 1;
    memmove(other + head + len, other + head, other_len - head);
    memcpy(other + head, line, len);
    other_len += len;
    return false;
}

static void rows_may_come_in_any_order(void)
{
    edit_lines(&usual, backwards, NULL);
    check_small(diagnosed(other, other_len), &usual, 3, NULL, 0);
}

/* Adds the line with blanks and quotes around its cells. */
static bool quoted(const char *line, size_t len, void *context)
{
    (void)context;
    add_text(" \"", 2);
    for (size_t i = 0; i + 1 < len; i++)
        if (line[i] == ',')
            add_text("\"\t, \"", 5);
        else
            add_text(&line[i], 1);
    add_text("\"\r\n", 3);
    return false;
}

static void cells_may_have_blanks_and_quotes(void)
{
    edit_lines(&usual, quoted, NULL);
    check_small(diagnosed(other, other_len), &usual, 3, NULL, 0);
}

/* --- traces --------------------------------------------------------------- */

/* A simulated iteration, written as a trace and replayed, takes as long: a
 * sender's messages enter sequentially and overlap in flight. */
static void a_trace_takes_as_long_as_its_iteration(void)
{
    static const char *const methods[] = {"gpipe", "1f1b", "zb-h1", "zb-h2",
                                          "slack"};
    for (uint32_t latency = 0; latency <= 40; latency += 20)
        for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
            lh_error err = {0};
            lh_schedule *s = NULL;
            lh_timeline *t = NULL;
            lh_trace *trace = NULL;
            char *text = NULL;
            size_t len = 0;
            lh_pipeline *p = uniform_make((uniform){.placement = "ud",
                                                    .devices = 4,
                                                    .microbatches = 6,
                                                    .f = 10,
                                                    .d = 11,
                                                    .w = 9,
                                                    .datacenters = 4,
                                                    .latency = latency,
                                                    .transfer = 3});
            CHECK_OK(lh_method_run(methods[i], p, NULL, &s, NULL, &err), err);
            CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
            CHECK_OK(lh_trace_make(p, t, "t", &trace, &err), err);
            CHECK_OK(lh_trace_format(trace, &text, &len, &err), err);
            lh_diagnosis *d = diagnosed(text, len);
            CHECK_INT(d->n_defects, 0);
            CHECK_INT(d->steps[0].t_ns, lh_timeline_makespan(t));
            CHECK_INT(d->steps[0].measured_ns, lh_timeline_makespan(t));
            lh_diagnosis_free(d);
            lh_text_free(text);
            lh_trace_free(trace);
            lh_timeline_free(t);
            lh_schedule_free(s);
            lh_pipeline_free(p);
        }
}

/* Four stages with a link of `far` ms between two of them, in one direction or
 * both. */
static lh_pipeline *linked(const char *placement, uint32_t from, uint32_t to,
                           bool both, uint32_t far)
{
    char links[1024] = "links: [";
    for (uint32_t k = 0; k < 16; k++) {
        uint32_t a = k / 4, b = k % 4;
        bool is_far = (a == from && b == to) || (both && a == to && b == from);
        if (a != b)
            snprintf(links + strlen(links), sizeof links - strlen(links),
                     "{from: %u, to: %u, latency: %u},", a, b,
                     is_far ? far : 20);
    }
    strcpy(links + strlen(links) - 1, "]\n");
    return uniform_make((uniform){.placement = placement,
                                  .devices = 4,
                                  .microbatches = 6,
                                  .f = 10,
                                  .d = 10,
                                  .w = 10,
                                  .more = links});
}

/* Diagnoses the trace of a method's iteration, which takes *ns. */
static lh_diagnosis *diagnosed_run(const lh_pipeline *p, const char *method,
                                   int64_t *ns)
{
    lh_error err = {0};
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_trace *trace = NULL;
    char *text = NULL;
    size_t len = 0;
    CHECK_OK(lh_method_run(method, p, NULL, &s, NULL, &err), err);
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    CHECK_OK(lh_trace_make(p, t, "t", &trace, &err), err);
    CHECK_OK(lh_trace_format(trace, &text, &len, &err), err);
    lh_diagnosis *d = diagnosed(text, len);
    *ns = lh_timeline_makespan(t);
    lh_text_free(text);
    lh_trace_free(trace);
    lh_timeline_free(t);
    lh_schedule_free(s);
    return d;
}

/* Asymmetric link latencies are not clock offsets; the slow direction is named,
 * for any order of stages. */
static void a_slow_link_of_a_trace_is_named(void)
{
    static const char *const placements[] = {"ud", "loop", "wave"};
    for (size_t i = 0; i < sizeof placements / sizeof *placements; i++) {
        int64_t ns;
        lh_pipeline *p = linked(placements[i], 2, 1, false, 90);
        lh_diagnosis *d = diagnosed_run(p, "greedy", &ns);
        CHECK_INT(d->n_defects, 0);
        CHECK_INT(d->steps[0].t_ns, ns);
        CHECK(d->n_slow_components > 0);
        for (uint32_t k = 0; k < d->n_slow_components; k++) {
            CHECK_INT(d->slow_components[k].kind, LH_SLOW_LINK);
            CHECK_INT(d->slow_components[k].stage, 2);
            CHECK_INT(d->slow_components[k].to_stage, 1);
            CHECK_NEAR(d->slow_components[k].ratio, 4.5, 1e-9);
        }
        lh_diagnosis_free(d);
        lh_pipeline_free(p);
    }
}

/* Predicted gains from other schedules and from a repaired link equal
 * simulation. */
static void what_helps_takes_what_was_predicted(void)
{
    int64_t ns, gpipe_ns, mended_ns;
    uint32_t found = 0;
    lh_pipeline *p = linked("ud", 1, 2, true, 90);
    lh_pipeline *mended = linked("ud", 2, 1, false, 90);
    lh_diagnosis_free(diagnosed_run(p, "gpipe", &gpipe_ns));
    lh_diagnosis_free(diagnosed_run(mended, "1f1b", &mended_ns));
    lh_diagnosis *d = diagnosed_run(p, "1f1b", &ns);
    for (uint32_t i = 0; i < d->n_remedies; i++) {
        const lh_remedy *h = &d->remedies[i];
        if (strstr(h->action, "run schedule gpipe, with up to 6 ")) {
            CHECK_INT(h->predicted_ns, gpipe_ns);
            found++;
        } else if (strstr(h->action, "from stage 1 to stage 2 ")) {
            CHECK_INT(h->predicted_ns, mended_ns);
            found++;
        }
    }
    CHECK_INT(found, 2);
    lh_diagnosis_free(d);
    lh_pipeline_free(p);
    lh_pipeline_free(mended);
}

/* --- slow workers --------------------------------------------------------- */

static void a_slow_worker_is_named(void)
{
    small_job j = {
        .steps = 4, .stages = 3, .replicas = 3, .microbatches = 4, .slower = 2};
    small_recording(&j);
    lh_diagnosis *d = diagnosed(small_text, small_len);
    CHECK_INT(d->n_slow_components, 1);
    if (d->n_slow_components) {
        const lh_slow_component *t = &d->slow_components[0];
        CHECK_INT(t->kind, LH_SLOW_WORKER);
        CHECK_INT(t->stage, 0);
        CHECK_INT(t->replica, 0);
        CHECK_NEAR(t->ratio, 2, 1e-9);
        CHECK_INT(t->n_steps, 4);
        CHECK_INT(t->first_step, 10);
        CHECK(t->is_ongoing);
        /* Without it the job has its normal duration. */
        small_job fast = j;
        fast.slower = 0;
        CHECK_INT((int64_t)(d->t_ns + 0.5) - t->cost_ns, small_t_ns(&fast));
        CHECK(d->n_remedies > 0 &&
              strstr(d->remedies[0].action, "replace the worker"));
        CHECK_INT(d->remedies[0].predicted_ns, small_t_ns(&fast));
    }
    CHECK_INT(d->slow_workers[0], 0);
    lh_diagnosis_free(d);
}

/* Each delays the other's replica, so that repairing one alone gains almost
 * nothing. */
static void slow_workers_that_hide_each_other_are_named(void)
{
    small_job j = {.steps = 4,
                   .stages = 3,
                   .replicas = 3,
                   .microbatches = 4,
                   .slower = 2,
                   .n_slower = 2};
    small_recording(&j);
    lh_diagnosis *d = diagnosed(small_text, small_len);
    small_job fast = j;
    fast.slower = 0;
    bool named[2] = {false, false}, helps = false;
    CHECK_INT(d->n_slow_components, 2);
    for (uint32_t i = 0; i < d->n_slow_components; i++) {
        const lh_slow_component *t = &d->slow_components[i];
        CHECK_INT(t->kind, LH_SLOW_WORKER);
        CHECK_INT(t->stage, t->replica);
        if (t->replica < 2)
            named[t->replica] = true;
        CHECK(t->cost_ns > 0);
    }
    CHECK(named[0] && named[1]);
    CHECK_INT((int64_t)(d->t_ns + 0.5) - d->combined_saving_ns,
              small_t_ns(&fast));
    for (uint32_t i = 0; i < d->n_remedies; i++)
        if (strstr(d->remedies[i].action, "repair all 2 stragglers")) {
            CHECK_INT(d->remedies[i].predicted_ns, small_t_ns(&fast));
            helps = true;
        }
    CHECK(helps);
    lh_diagnosis_free(d);
}

/* --- damage --------------------------------------------------------------- */

static bool doubled(const char *line, size_t len, void *context)
{
    (void)context;
    if (line_has(line, len, "-compute"))
        add_text(line, len);
    return true;
}

static void doubled_rows_count_once(void)
{
    edit_lines(&usual, doubled, NULL);
    /* 3 steps, 4 ranks, 2 passes of 2 microbatches */
    check_small(diagnosed(other, other_len), &usual, 3, "doubled-rows", 48);
}

static bool of_unknown_type(const char *line, size_t len, void *context)
{
    const char row[] = "10,0,0,0,forward-magic,0,0,0,0,0.1,0.1\n";
    (void)context;
    if (line_has(line, len, ",optimizer,"))
        add_text(row, sizeof row - 1);
    return true;
}

static void rows_of_unknown_types_are_left_out(void)
{
    edit_lines(&usual, of_unknown_type, NULL);
    lh_diagnosis *d = diagnosed(other, other_len);
    CHECK(d->n_defects == 1 && strstr(d->defects[0].text, "'forward-magic'"));
    check_small(d, &usual, 3, "unknown-types", 12);
}

static bool unreadable(const char *line, size_t len, void *context)
{
    static const char *const rows[] = {
        "10,0,0,0,gc,0,0,0,0,0.1\n",         "x,0,0,0,gc,0,0,0,0,0.1,0.1\n",
        "10,0,0,0,gc,0,0,0,0,nan,0.1\n",     "10,0,0,0,gc,0,0,0,0,0.1,-1\n",
        "10,0,0,0,gc,0,0,0,0,0.1,1e300\n",   "10,0,0,99999,gc,0,0,0,0,0,0\n",
        "10,0,0,0,gc,0,0,0,0,0.1,0.1,0.1\n", ",,,,,,,,,,\n",
        "10,0,0,0,gc,0,0,0,0,0.1e,0.1\n",    "10,0,-1,0,gc,0,0,0,0,0.1,0.1\n"};
    (void)line;
    (void)len;
    if (!*(bool *)context)
        for (size_t i = 0; other_len && i < sizeof rows / sizeof *rows; i++) {
            add_text(rows[i], strlen(rows[i]));
            *(bool *)context = true;
        }
    return true;
}

static void rows_that_cannot_be_read_are_left_out(void)
{
    bool done = false;
    edit_lines(&usual, unreadable, &done);
    lh_diagnosis *d = diagnosed(other, other_len);
    CHECK(d->n_defects == 1 && strstr(d->defects[0].text, "small.csv:2"));
    check_small(d, &usual, 3, "unread-rows", 10);
}

static bool without_rank(const char *line, size_t len, void *context)
{
    fields f;
    (void)len;
    return !read_fields(line, &f) || f.rank != 3 ||
           (f.step != *(unsigned *)context && *(unsigned *)context != 0);
}

static void a_step_that_lacks_a_rank_is_left_out(void)
{
    unsigned step = 11;
    edit_lines(&usual, without_rank, &step);
    lh_diagnosis *d = diagnosed(other, other_len);
    CHECK_INT(d->n_steps, 2);
    CHECK_INT(d->n_replicas, 2);
    CHECK_INT(told(d, "missing-ranks"), 1);
    CHECK_INT(told(d, "replicas-left-out"), 1);
    CHECK_INT(d->steps[0].t_ns, small_t_ns(&usual));
    lh_diagnosis_free(d);
}

static void a_replica_that_lacks_a_rank_throughout_is_left_out(void)
{
    unsigned every = 0;
    edit_lines(&usual, without_rank, &every);
    lh_diagnosis *d = diagnosed(other, other_len);
    CHECK_INT(d->n_replicas, 1);
    CHECK_INT(d->replicas[0], 0);
    check_small(d, &usual, 3, "replicas-left-out", 3);
}

static void a_step_that_lacks_operations_is_left_out(void)
{
    static const char *const ops[] = {"forward-compute", "backward-compute",
                                      "forward-recv", "backward-send"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        small_job j = usual;
        j.leave_out = ops[i];
        j.leave_out_step = 1;
        small_recording(&j);
        check_small(diagnosed(small_text, small_len), &usual, 2,
                    "incomplete-steps", 1);
    }
}

static bool one_side(const char *line, size_t len, void *context)
{
    fields f;
    (void)len;
    (void)context;
    return !read_fields(line, &f) || f.step != 12 || f.rank != 1 ||
           strcmp(f.op, "optimizer") != 0;
}

static void a_rank_that_lacks_what_others_have_spoils_its_step(void)
{
    edit_lines(&usual, one_side, NULL);
    check_small(diagnosed(other, other_len), &usual, 2, "incomplete-steps", 1);
}

/* A rank's clock offset. */
typedef struct shifted {
    unsigned rank; /* 99: all */
    double by;
} shifted;

static bool on_another_clock(const char *line, size_t len, void *context)
{
    const shifted *s = context;
    fields f;
    (void)len;
    if (!read_fields(line, &f) || (s->rank != f.rank && s->rank != 99))
        return true;
    char *last = strrchr(f.rest, ',');
    *last = '\0';
    char *start = strrchr(f.rest, ',');
    double begin = atof(start + 1);
    *start = '\0';
    other_len += (size_t)snprintf(other + other_len, sizeof other - other_len,
                                  "%u,%u,%u,%u,%s,%s,%.6f,%.6f\n", f.step,
                                  f.rank, f.replica, f.stage, f.op, f.rest,
                                  begin + s->by, f.seconds);
    return false;
}

/* A step's duration follows the clocks that agree, independent of the one that
 * differs. */
static void clocks_that_are_off_are_set_by_messages(void)
{
    static const double by[] = {3, -2.5, 0.5, 100};
    small_recording(&usual);
    lh_diagnosis *right = diagnosed(small_text, small_len);
    for (unsigned rank = 0; rank < 4; rank++)
        for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
            shifted s = {rank, by[i]};
            edit_lines(&usual, on_another_clock, &s);
            lh_diagnosis *d = diagnosed(other, other_len);
            CHECK_INT(told(d, "clocks"), 3);
            CHECK_INT(d->n_defects, 1);
            CHECK_INT(d->steps[0].t_ns, small_t_ns(&usual));
            CHECK_NEAR((double)d->measured_ns, right->measured_ns, 1000);
            lh_diagnosis_free(d);
        }
    lh_diagnosis_free(right);
    shifted little = {2, 0.004}; /* within the asymmetry of networks */
    edit_lines(&usual, on_another_clock, &little);
    lh_diagnosis *d = diagnosed(other, other_len);
    CHECK_INT(d->n_defects, 0);
    lh_diagnosis_free(d);
}

static void times_of_day_are_measured_from_the_first_operation(void)
{
    lh_diagnosis *d;
    small_recording(&usual);
    d = diagnosed(small_text, small_len);
    int64_t measured = d->steps[0].measured_ns;
    lh_diagnosis_free(d);
    shifted s = {99, 1.7e9};
    edit_lines(&usual, on_another_clock, &s);
    d = diagnosed(other, other_len);
    CHECK_NEAR((double)d->steps[0].measured_ns, (double)measured, 1000);
    check_small(d, &usual, 3, "origin", 3);
}

static bool with_peers(const char *line, size_t len, void *context)
{
    fields f;
    (void)len;
    (void)context;
    if (read_fields(line, &f))
        other_len += (size_t)snprintf(
            other + other_len, sizeof other - other_len, "%u,%u,%u,%u,%s,%s\n",
            f.step, f.rank + 50, f.replica, f.stage, f.op, f.rest);
    return true;
}

static void of_peers_of_a_rank_one_is_looked_at(void)
{
    uint64_t rows = 0;
    small_recording(&usual);
    for (size_t i = 0; i < small_len; i++)
        rows += small_text[i] == '\n';
    edit_lines(&usual, with_peers, NULL);
    check_small(diagnosed(other, other_len), &usual, 3, "more-ranks", rows - 1);
}

static bool with_strays(const char *line, size_t len, void *context)
{
    const char first[] = "10,1,0,1,forward-recv,0,-1,-1,-1,0.000001,0.0005\n";
    fields f;
    (void)len;
    (void)context;
    /* One row before the step's own, whose numbers are then one higher. */
    if (!read_fields(line, &f) || f.step != 10 || f.rank != 1 ||
        strcmp(f.op, "forward-recv") != 0)
        return true;
    unsigned seq;
    CHECK(sscanf(f.rest, "%u", &seq) == 1);
    if (seq == 0)
        add_text(first, sizeof first - 1);
    other_len += (size_t)snprintf(other + other_len, sizeof other - other_len,
                                  "10,1,0,1,forward-recv,%u%s\n", seq + 1,
                                  strchr(f.rest, ','));
    return false;
}

static void messages_without_a_peer_are_passed_over(void)
{
    edit_lines(&usual, with_strays, NULL);
    check_small(diagnosed(other, other_len), &usual, 3, "stray-messages", 1);
}

/* --- truncated files ------------------------------------------------------ */

/* Checks a file cut anywhere: an error with a reason, or whole steps and a
 * remark. */
static void check_cut(const char *text, size_t len, bool may_be_whole)
{
    lh_recording *r = NULL;
    lh_diagnosis *d = NULL;
    lh_error err = {0};
    lh_status status = lhi_recording_parse(text, len, "cut.csv", &r, &err);
    if (status != LH_OK) {
        CHECK(status == LH_EINPUT && strstr(err.text, "cut.csv"));
        return;
    }
    CHECK_OK(lh_diagnose(r, NULL, &d, &err), err);
    for (uint32_t i = 0; i < d->n_steps; i++)
        CHECK_INT(d->steps[i].t_ns, small_t_ns(&usual));
    CHECK(d->n_defects > 0 || may_be_whole);
    lh_diagnosis_free(d);
    lh_recording_free(r);
}

static void a_cut_file_says_so(void)
{
    small_recording(&usual);
    for (size_t len = 0; len < small_len; len += 97)
        check_cut(small_text, len, len == 0 || small_text[len - 1] == '\n');
    lh_diagnosis *d = diagnosed(small_text, small_len - 20);
    CHECK_INT(d->n_steps, 2);
    CHECK_INT(told(d, "cut-files"), 1);
    lh_diagnosis_free(d);
}

static size_t compressed(unsigned char *out, size_t room)
{
    z_stream z = {0};
    CHECK(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8,
                       Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_in = (unsigned char *)small_text;
    z.avail_in = (uInt)small_len;
    z.next_out = out;
    z.avail_out = (uInt)room;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    size_t len = room - z.avail_out;
    deflateEnd(&z);
    return len;
}

static void a_cut_or_damaged_gzip_file_says_so(void)
{
    static unsigned char zipped[sizeof small_text];
    small_job longer = usual;
    longer.steps = 20;
    small_recording(&longer);
    size_t len = compressed(zipped, sizeof zipped);
    check_small(diagnosed((char *)zipped, len), &usual, 20, NULL, 0);
    for (size_t cut = 2; cut < len; cut += 1 + len / 60)
        check_cut((char *)zipped, cut, false);
    for (size_t at = 20; at < len - 8; at += 1 + len / 60) {
        zipped[at] ^= 0x55;
        lh_recording *r = NULL;
        lh_error err = {0};
        lh_status status =
            lhi_recording_parse((char *)zipped, len, "cut.csv", &r, &err);
        CHECK(status == LH_OK || status == LH_EINPUT);
        lh_recording_free(r);
        zipped[at] ^= 0x55;
    }
    /* Two concatenated gzip members are one file. */
    size_t half = small_len / 2;
    small_len = half;
    size_t first = compressed(zipped, sizeof zipped);
    memmove(small_text, small_text + half, sizeof small_text - half);
    small_len = strlen(small_text);
    size_t second = compressed(zipped + first, sizeof zipped - first);
    check_small(diagnosed((char *)zipped, first + second), &usual, 20, NULL, 0);
}

/* --- rejected ------------------------------------------------------------- */

/* A large chunk number must not allocate memory for all below it. */
static void a_chunk_of_a_large_number_takes_no_memory(void)
{
    enum { STAGES = 2000 };
    size_t room = STAGES * 64, len = 0;
    char *text = malloc(room);
    lh_recording *r = NULL;
    lh_error err = {0};
    struct rusage before, after;
    if (!text)
        exit(1);
    len += (size_t)snprintf(text, room, SMALL_HEADING);
    for (int s = 0; s < STAGES; s++)
        len += (size_t)snprintf(text + len, room - len,
                                "1,%d,0,%d,forward-compute,0,%d,-1,0,0,1\n", s,
                                s, INT16_MAX);
    getrusage(RUSAGE_SELF, &before);
    CHECK_INT(lhi_recording_parse(text, len, "t.csv", &r, &err), LH_EINPUT);
    CHECK(strstr(err.text, "a chunk has no passes"));
    getrusage(RUSAGE_SELF, &after);
    CHECK(after.ru_maxrss - before.ru_maxrss < 128 * 1024); /* KiB */
    free(text);
}

static void check_refused(const char *text, const char *why)
{
    lh_recording *r = NULL;
    lh_error err = {0};
    lh_status status =
        lhi_recording_parse(text, strlen(text), "it.csv", &r, &err);
    CHECK_INT(status, LH_EINPUT);
    CHECK_HAS(err.text, why);
    CHECK(r == NULL);
}

static void what_is_no_recording_is_refused(void)
{
    check_refused("", "it.csv: is empty");
    check_refused("{\"traceEvents\": []}\n",
                  "has no operator, range or kernel");
    check_refused("{\"longhaul\":\"trace/1\",\n\"title\":\"\"}\n", "it.csv");
    check_refused("step,stage\n1,2\n", "column 'dp_rank' is missing");
    check_refused("step,step\n", "column 'step' appears twice");
    check_refused(SMALL_HEADING, "has no operations");
    check_refused(SMALL_HEADING "1,0,0,0,gc,0,0,0,0,0.1,0.1\n", "no step");
    check_refused(SMALL_HEADING "1,0,0,0,xx,0,0,0,0,0.1,0.1\n", "'xx'");
}

int main(void)
{
    RUN(a_small_job_takes_what_it_has_to);
    RUN(without_messages_passes_follow_each_other);
    RUN(rows_may_come_in_any_order);
    RUN(cells_may_have_blanks_and_quotes);
    RUN(a_trace_takes_as_long_as_its_iteration);
    RUN(a_slow_link_of_a_trace_is_named);
    RUN(what_helps_takes_what_was_predicted);
    RUN(a_slow_worker_is_named);
    RUN(slow_workers_that_hide_each_other_are_named);
    RUN(doubled_rows_count_once);
    RUN(rows_of_unknown_types_are_left_out);
    RUN(rows_that_cannot_be_read_are_left_out);
    RUN(a_step_that_lacks_a_rank_is_left_out);
    RUN(a_replica_that_lacks_a_rank_throughout_is_left_out);
    RUN(a_step_that_lacks_operations_is_left_out);
    RUN(a_rank_that_lacks_what_others_have_spoils_its_step);
    RUN(clocks_that_are_off_are_set_by_messages);
    RUN(times_of_day_are_measured_from_the_first_operation);
    RUN(of_peers_of_a_rank_one_is_looked_at);
    RUN(messages_without_a_peer_are_passed_over);
    RUN(a_cut_file_says_so);
    RUN(a_cut_or_damaged_gzip_file_says_so);
    RUN(a_chunk_of_a_large_number_takes_no_memory);
    RUN(what_is_no_recording_is_refused);
    return test_summary();
}
