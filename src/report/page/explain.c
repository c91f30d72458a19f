/* SPDX-License-Identifier: Apache-2.0 */
/* Translates an analysis of a timeline into terms of its trace. */
#include "report/page/page_json.h"

#include "base/arena.h"
#include "base/escape.h"
#include "base/options.h"
#include "report/trace/trace_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The caller's analysis with its memory. */
typedef struct owned_analysis {
    lh_report_analysis analysis;
    lhi_arena *mem;
} owned_analysis;

/* Checks whether a critical-path segment refers to an existing pass, message or
 * collective of the trace. */
static bool step_in_range(const lh_trace *t, const lh_report_segment *s)
{
    switch (s->step) {
    case LH_STEP_PASS:
        return s->index < t->n_runs;
    case LH_STEP_QUEUE:
    case LH_STEP_TRANSFER:
    case LH_STEP_LATENCY:
        return s->index < t->n_messages;
    case LH_STEP_COLLECTIVE:
        return s->index < t->n_collectives;
    case LH_STEP_BLOCKED:
    case LH_STEP_WAIT:
        return true;
    }
    return false;
}

/* Fails with LH_EINVAL if critical-path segments overlap in time or refer to
 * elements that the trace lacks, or if the name of a cause of idle time is not
 * UTF-8. */
static lh_status check_analysis(const lh_trace *trace,
                                const lh_report_analysis *a, lh_error *err)
{
    int64_t last_ns = 0;
    for (uint32_t i = 0; i < a->n_segments; i++) {
        const lh_report_segment *s = &a->critical_path[i];
        if (!step_in_range(trace, s) || s->start_ns < last_ns ||
            s->end_ns < s->start_ns)
            return lhi_fail(err, LH_EINVAL,
                            "critical_path[%" PRIu32
                            "]: it is not in the trace, or it starts before "
                            "the previous one ends",
                            i);
        last_ns = s->end_ns;
    }
    for (uint32_t i = 0; i < a->n_causes; i++)
        if (!lhi_is_utf8(a->cause_names[i]))
            return lhi_fail(err, LH_EINVAL,
                            "cause_names[%" PRIu32 "]: not UTF-8 text", i);
    return LH_OK;
}

lh_status lhi_report_copy_analysis(const lh_trace *trace,
                                   const lh_report_analysis *given,
                                   lh_report_analysis *mine, lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_report_analysis, mine, given, err));
    return check_analysis(trace, mine, err);
}

/* --- from lh_analysis ---------------------------------------------------- */

/* Translation state. */
typedef struct translator {
    const lh_trace *t;
    const lhi_run_index_entry *runs_by_pass;
} translator;

/* Converts an analysis segment into a report segment that refers to runs,
 * messages and collectives by index. */
static lh_report_segment translate_segment(const translator *x,
                                           const lh_segment *s)
{
    const lh_trace *t = x->t;
    lh_report_segment out = {LH_STEP_WAIT, 0, s->start_ns, s->end_ns};
    switch (s->kind) {
    case LH_SEGMENT_PASS:
        out.step = LH_STEP_PASS;
        out.index = lhi_run_index_find(x->runs_by_pass, t->n_runs, &s->pass);
        break;
    case LH_SEGMENT_TRANSFER:
        out.step = LH_STEP_TRANSFER;
        out.index = s->message;
        break;
    case LH_SEGMENT_LATENCY:
        out.step = LH_STEP_LATENCY;
        out.index = s->message;
        break;
    case LH_SEGMENT_COLLECTIVE:
        out.step = LH_STEP_COLLECTIVE;
        out.index = LH_NONE;
        /* A collective sent in pieces may have several segments. */
        for (uint32_t i = 0; i < t->n_collectives; i++) {
            const lh_trace_collective *c = &t->collectives[i];
            if (c->chunk == s->pass.chunk && c->depart_ns <= s->start_ns &&
                s->end_ns <= c->arrive_ns &&
                (out.index == LH_NONE ||
                 c->depart_ns >= t->collectives[out.index].depart_ns))
                out.index = i;
        }
        break;
    case LH_SEGMENT_HEAD_OF_LINE:
        out.step = LH_STEP_BLOCKED;
        break;
    case LH_SEGMENT_COPY: /* not on the page: the device waits */
        break;
    }
    return out;
}

/* Converts an analysis's critical path to report segments; false on allocation
 * failure. */
static bool fill_path(const translator *x, const lh_analysis *from,
                      owned_analysis *to)
{
    uint32_t n;
    const lh_segment *path = lh_analysis_critical_path(from, &n);
    lh_report_segment *segments = LHI_NEW(to->mem, lh_report_segment, n);
    for (uint32_t i = 0; segments && i < n; i++)
        segments[i] = translate_segment(x, &path[i]);
    to->analysis.n_segments = n;
    to->analysis.critical_path = segments;
    return segments != NULL;
}

/* Copies the idle time by device and cause, and the causes' names with spaces
 * for underscores; false on allocation failure. */
static bool fill_causes(const translator *x, const lh_analysis *from,
                        owned_analysis *to)
{
    uint32_t n_devices = x->t->n_devices;
    const char **names = LHI_NEW(to->mem, const char *, LH_N_CAUSES);
    int64_t *idle = LHI_NEW(to->mem, int64_t, (size_t)n_devices * LH_N_CAUSES);
    if (!names || !idle)
        return false;
    for (int i = 0; i < LH_N_CAUSES; i++) {
        char *name = lhi_arena_strdup(to->mem, lh_cause_name((lh_cause)i));
        if (!name)
            return false;
        for (char *p = name; *p; p++)
            if (*p == '_')
                *p = ' ';
        names[i] = name;
    }
    for (uint32_t d = 0; d < n_devices; d++)
        memcpy(idle + (size_t)d * LH_N_CAUSES, lh_analysis_idle(from, d),
               LH_N_CAUSES * sizeof *idle);
    to->analysis.n_causes = LH_N_CAUSES;
    to->analysis.cause_names = names;
    to->analysis.bubble_ns = idle;
    return true;
}

lh_status lh_report_analysis_make(const lh_trace *trace,
                                  const lh_analysis *analysis,
                                  lh_report_analysis **out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    owned_analysis *to = mem ? LHI_NEW(mem, owned_analysis, 1) : NULL;
    lhi_run_index_entry *index =
        lhi_run_index_build(trace->runs, trace->n_runs);
    translator x = {trace, index};
    lh_status status = LH_OK;
    if (to) {
        to->mem = mem;
        to->analysis.size = sizeof to->analysis;
    }
    if (!to || !index || !fill_path(&x, analysis, to) ||
        !fill_causes(&x, analysis, to))
        status = lhi_fail_nomem(err);
    if (status == LH_OK)
        status = check_analysis(trace, &to->analysis, err);
    free(index);
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    *out = &to->analysis;
    return LH_OK;
}

void lh_report_analysis_free(lh_report_analysis *analysis)
{
    if (analysis)
        lhi_arena_free(((owned_analysis *)analysis)->mem);
}
