/* SPDX-License-Identifier: Apache-2.0 */
/* A block in the log:
 *
 *     times across ranks (ms):
 *       forward-compute:
 *          rank  0: 812.25
 *          rank  1: 640.11
 *
 * Lines may have a prefix, such as the logger's name. Times are per iteration:
 * Megatron divides them by --log-interval. */
#include "report/diagnosis/timer_log.h"

#include "report/diagnosis/line_stream.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Limits: ranks of a log; bytes of a timer's name. */
enum { MAX_RANKS = 65536, NAME_BYTES = 64 };

/* Longest credible time, 10,000 s in ms. */
#define MAX_MS 1e7

/* Longest credible sum of a rank's times, 31 years in ms; sums of two such
 * times in ns fit into 64 bits. */
#define MAX_SUM_MS 1e12

static const char all_ranks[] = "times across ranks (ms):";
static const char extremes[] = "time across ranks (ms):";

/* Kinds of timers. NOTHING: a part of another timer. */
typedef enum timer_kind { NOTHING, PASS, OPTIMIZER, MESSAGE, WHOLE } timer_kind;

/* Timers in megatron/training/training.py. */
static const struct {
    const char *name;
    timer_kind kind;
} timers[] = {
    {"forward-compute", PASS},
    {"backward-compute", PASS},
    {"optimizer", OPTIMIZER},
    {"forward-backward", WHOLE},
    {"forward-recv", MESSAGE},
    {"forward-send", MESSAGE},
    {"backward-recv", MESSAGE},
    {"backward-send", MESSAGE},
    {"forward-send-forward-recv", MESSAGE},
    {"forward-send-backward-recv", MESSAGE},
    {"backward-send-forward-recv", MESSAGE},
    {"backward-send-backward-recv", MESSAGE},
    {"forward-backward-send-forward-backward-recv", MESSAGE},
    {"layernorm-grads-all-reduce", MESSAGE},
    {"non-tensor-parallel-grads-all-reduce", MESSAGE},
    {"embedding-grads-all-reduce", MESSAGE},
    {"conditional-embedder-grads-all-reduce", MESSAGE},
    {"all-grads-sync", MESSAGE},
};

/* Returns a Megatron-LM timer's kind (computation, communication or passes) by
 * its name; NOTHING: not used. */
static timer_kind classify_timer(const char *name)
{
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++)
        if (strcmp(timers[i].name, name) == 0)
            return timers[i].kind;
    return NOTHING;
}

/* --- lines ---------------------------------------------------------------- */

/* Parses "rank  3: 12.34" at a log line's end into *rank and *ms; false:
 * the line has another form. */
static bool parse_rank_time(const char *line, uint32_t *rank, double *ms)
{
    const char *at = strstr(line, "rank ");
    char *end;
    /* A prefix may have a rank, too: the last one counts. */
    for (const char *next = at; next; next = strstr(next + 1, "rank "))
        at = next;
    if (!at)
        return false;
    unsigned long number = strtoul(at + 5, &end, 10);
    if (end == at + 5 || end[0] != ':' || end[1] != ' ' || number >= MAX_RANKS)
        return false;
    const char *text = end + 2;
    *ms = strtod(text, &end);
    *rank = (uint32_t)number;
    return end != text && *end == '\0' && *ms >= 0 && *ms <= MAX_MS;
}

/* Parses a timer's name such as "  forward-compute:": the last word in a line
 * that ends in a colon. False: no such word. */
static bool parse_name(const char *line, char name[NAME_BYTES])
{
    size_t len = strlen(line), from;
    if (len < 2 || line[len - 1] != ':')
        return false;
    for (from = len - 1; from > 0 && !isspace((unsigned char)line[from - 1]);)
        from--;
    if (from == 0 || len - 1 - from == 0 || len - 1 - from >= NAME_BYTES)
        return false;
    memcpy(name, line + from, len - 1 - from);
    name[len - 1 - from] = '\0';
    return true;
}

/* --- timers --------------------------------------------------------------- */

/* Adds `ms` milliseconds of a rank's timer to the rank's sums of kind `kind` in
 * the current block (one log interval's timers). `lines`: position for error
 * messages. */
static lh_status add_time(lhi_timer_log *log, const lhi_line_stream *lines,
                          uint32_t rank, timer_kind kind, double ms,
                          lh_error *err)
{
    if (kind == NOTHING)
        return LH_OK;
    if (rank >= log->n_ranks) {
        lhi_timed_rank *grown =
            realloc(log->ranks, ((size_t)rank + 1) * sizeof *grown);
        if (!grown)
            return lhi_fail_nomem(err);
        memset(grown + log->n_ranks, 0,
               (rank + 1 - log->n_ranks) * sizeof *grown);
        log->ranks = grown;
        log->n_ranks = rank + 1;
    }
    lhi_timed_rank *r = &log->ranks[rank];
    if (!r->file)
        r->file = lines->name;
    if (kind == PASS || kind == OPTIMIZER)
        r->compute += ms;
    if (kind == MESSAGE)
        r->communication += ms;
    if (kind == WHOLE)
        r->passes_whole += ms;
    if (kind == WHOLE || kind == OPTIMIZER)
        r->whole += ms;
    if (kind == PASS && r->block != log->n_blocks) {
        r->block = log->n_blocks;
        r->n++;
    }
    if (r->compute > MAX_SUM_MS || r->communication > MAX_SUM_MS ||
        r->whole > MAX_SUM_MS)
        return lhi_fail(err, LH_EINPUT,
                        "%s:%" PRIu64 ": the times of rank %" PRIu32
                        " sum to more than 31 years",
                        lines->name, lines->line, rank);
    return LH_OK;
}

lh_status lhi_timer_log_detect(lhi_gzip_stream *zip, const char *name,
                               bool *out, lh_error *err)
{
    lhi_line_stream lines = {.zip = zip, .name = name};
    char *text = NULL;
    *out = false;
    lh_status status;
    do {
        status = lhi_line_stream_next(&lines, &text, err);
        if (status == LH_OK && text)
            *out = strstr(text, all_ranks) || strstr(text, extremes);
    } while (status == LH_OK && text && !*out);
    lhi_line_stream_fini(&lines);
    return status;
}

/* Reads all blocks of timers of a log. *has_extremes: it has timers with
 * minimum and maximum rather than times per rank. */
static lh_status read_blocks(lhi_timer_log *log, lhi_line_stream *lines,
                             bool *has_extremes, lh_error *err)
{
    char *line, name[NAME_BYTES];
    bool is_inside = false;
    timer_kind kind = NOTHING;
    for (;;) {
        uint32_t rank;
        double ms;
        LHI_TRY(lhi_line_stream_next(lines, &line, err));
        if (!line)
            return LH_OK;
        if (strstr(line, all_ranks)) {
            is_inside = true;
            kind = NOTHING;
            log->n_blocks++;
        } else if (strstr(line, extremes)) {
            is_inside = false;
            *has_extremes = true;
        } else if (is_inside && parse_rank_time(line, &rank, &ms)) {
            LHI_TRY(add_time(log, lines, rank, kind, ms, err));
        } else if (is_inside && parse_name(line, name)) {
            kind = classify_timer(name);
        } else {
            is_inside = false;
        }
    }
}

/* Returns the number of blocks (log intervals) with timers of passes, summed
 * over all ranks. */
static uint64_t count_blocks(const lhi_timer_log *log)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < log->n_ranks; i++)
        n += log->ranks[i].n;
    return n;
}

lh_status lhi_timer_log_read(lhi_timer_log *log, lhi_gzip_stream *zip,
                             const char *name, lh_error *err)
{
    lhi_line_stream lines = {.zip = zip, .name = name};
    bool has_extremes = false;
    uint64_t n_before = count_blocks(log);
    lh_status status = read_blocks(log, &lines, &has_extremes, err);
    lhi_line_stream_fini(&lines);
    if (status == LH_OK && count_blocks(log) == n_before)
        return lhi_fail(
            err, LH_EINPUT,
            "%s: is a log of Megatron-LM %s; train with --timing-log-level 2 "
            "--timing-log-option all",
            name,
            has_extremes ? "with the extremes of its timers over all ranks, "
                           "not with each rank's times of passes"
                         : "without each rank's times of passes");
    return status;
}

/* --- activities ----------------------------------------------------------- */

/* Converts milliseconds to nanoseconds. */
static int64_t to_ns(double ms)
{
    return llround(ms * 1e6);
}

/* Returns a rank's activity (computation, communication and idle time), summed
 * over its blocks, each of which counts as a step. */
static lhi_activity make_activity(const lhi_timed_rank *r)
{
    double busy = r->compute + r->communication;
    double whole = r->passes_whole > 0 && r->whole > busy ? r->whole : busy;
    return (lhi_activity){.n_steps = r->n,
                          .source = LH_ACTIVITY_TIMERS,
                          .span_ns = to_ns(whole),
                          .compute_ns = to_ns(r->compute),
                          .communication_ns = to_ns(r->communication),
                          .idle_ns = to_ns(whole) - to_ns(busy)};
}

lh_status lhi_timer_log_list(const lhi_timer_log *log,
                             lhi_recorded_activity **out, uint32_t *n,
                             lh_error *err)
{
    lhi_recorded_activity *list = calloc(log->n_ranks + 1u, sizeof *list);
    *out = list;
    *n = 0;
    if (!list)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < log->n_ranks; i++) {
        if (log->ranks[i].n == 0)
            continue;
        size_t len = strlen(log->ranks[i].file) + 1;
        char *file = malloc(len);
        if (!file)
            return lhi_fail_nomem(err);
        memcpy(file, log->ranks[i].file, len);
        list[(*n)++] =
            (lhi_recorded_activity){file, i, make_activity(&log->ranks[i])};
    }
    return LH_OK;
}

void lhi_timer_log_fini(lhi_timer_log *log)
{
    free(log->ranks);
    log->ranks = NULL;
}
