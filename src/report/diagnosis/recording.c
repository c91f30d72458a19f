/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/recording.h"

#include "base/sort.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Longest credible step, 10,000 s: a longer one mixes several clocks. */
#define MAX_STEP_NS INT64_C(10000000000000)

/* --- one step ------------------------------------------------------------- */

/* A time interval, in ns. */
typedef struct span {
    int64_t begin, end;
} span;

/* Returns the time from the first start to the last end of n operations or,
 * with `passes`, of the passes among them. */
static span find_span(const lhi_op_row *rows, size_t n, bool passes)
{
    span s = {INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < n; i++) {
        if (passes && !lhi_op_is_pass((lhi_op_type)rows[i].op))
            continue;
        int64_t end = lhi_row_end(&rows[i]);
        s.begin = rows[i].start_ns < s.begin ? rows[i].start_ns : s.begin;
        s.end = end > s.end ? end : s.end;
    }
    return s;
}

/* Checks whether a step lasts longer than MAX_STEP_NS. */
static bool is_too_long(const lhi_step_ops *ops)
{
    span s = find_span(ops->rows, ops->n, false);
    return s.end - s.begin > MAX_STEP_NS;
}

/* Shifts a step's times so that its first operation begins at 0, unless that
 * begins near the step's start already; counts the shift as a defect in
 * `remarks`. */
static void set_origin(lhi_step_ops *ops, lhi_defect_counts *remarks)
{
    span s = find_span(ops->rows, ops->n, false);
    if (s.begin > -LHI_CLOCK_TOLERANCE_NS && s.begin <= s.end - s.begin)
        return;
    lhi_defect_add(remarks, LHI_REMARK_ORIGIN, 1,
                   "step %" PRIu64 ", whose first operation begins at %.3f s",
                   ops->step, (double)s.begin / 1e9);
    for (uint32_t i = 0; i < ops->n; i++)
        ops->rows[i].start_ns -= s.begin;
}

/* Stores the duration of the step and of each replica's passes in *out; false:
 * allocation failure. */
static bool measure_spans(const lhi_step_ops *ops, lhi_recorded_step *out)
{
    span all = find_span(ops->rows, ops->n, false);
    out->step = ops->step;
    out->measured_ns = all.end - (all.begin < 0 ? all.begin : 0);
    out->passes_ns = calloc(ops->n_replicas + 1u, sizeof *out->passes_ns);
    if (!out->passes_ns)
        return false;
    for (uint32_t r = 0; r < ops->n_replicas; r++) {
        uint32_t of = ops->n_stages * LHI_N_OPS;
        uint32_t from = ops->first[r * of], to = ops->first[(r + 1) * of];
        span s = find_span(&ops->rows[from], to - from, true);
        out->passes_ns[r] = s.end - s.begin;
    }
    return true;
}

/* Sets *out to a graph in the recording that equals `graph`, which it then
 * frees; otherwise adds `graph` to the recording. */
static lh_status share_graph(lh_recording *recording, lhi_op_graph *graph,
                             const lhi_op_graph **out, lh_error *err)
{
    for (uint32_t i = recording->n_graphs; i-- > 0;)
        if (lhi_op_graph_equals(recording->graphs[i], graph)) {
            lhi_op_graph_free(graph);
            *out = recording->graphs[i];
            return LH_OK;
        }
    if (recording->n_graphs == recording->graphs_room) {
        uint32_t room = recording->graphs_room ? 2 * recording->graphs_room : 8;
        lhi_op_graph **grown =
            realloc(recording->graphs, room * sizeof(lhi_op_graph *));
        if (!grown) {
            lhi_op_graph_free(graph);
            return lhi_fail_nomem(err);
        }
        recording->graphs = grown;
        recording->graphs_room = room;
    }
    recording->graphs[recording->n_graphs++] = graph;
    *out = graph;
    return LH_OK;
}

/* Frees a recorded step's arrays, but not its shared graph. */
static void free_step(lhi_recorded_step *step)
{
    free(step->duration_ns);
    free(step->passes_ns);
}

/* Appends a step to the recording, which takes over `graph`; frees `graph` on
 * failure. */
static lh_status add_step(lh_recording *recording, lhi_recorded_step *step,
                          lhi_op_graph *graph, lh_error *err)
{
    if (recording->n_steps == recording->room) {
        uint32_t room = recording->room ? 2 * recording->room : 64;
        lhi_recorded_step *grown =
            realloc(recording->steps, room * sizeof *grown);
        if (!grown) {
            lhi_op_graph_free(graph);
            return lhi_fail_nomem(err);
        }
        recording->steps = grown;
        recording->room = room;
    }
    LHI_TRY(share_graph(recording, graph, &step->graph, err));
    recording->steps[recording->n_steps++] = *step;
    return LH_OK;
}

/* Prepares a recorded step for replay (dependencies, graph and durations) and
 * adds it to the recording. A damaged step is skipped: *why is then the reason,
 * else NULL. */
static lh_status prepare_step(lh_recording *recording, lhi_row_list *list,
                              lhi_arena *arena, const char **why, lh_error *err)
{
    lhi_step_ops ops;
    lhi_step_dependencies needs;
    lhi_op_graph *graph = NULL;
    lhi_recorded_step step = {0};
    *why = NULL;
    LHI_TRY(lhi_step_ops_sort(list, &recording->remarks, arena, &ops, err));
    if (ops.n_replicas == 0) {
        *why = "no replica has all its ranks";
        return LH_OK;
    }
    if (is_too_long(&ops)) {
        *why = "its times span several hours";
        return LH_OK;
    }
    /* A trace has one clock: differences are the links' transfer times. */
    if (!ops.is_preposted)
        LHI_TRY(lhi_step_correct_clocks(&ops, arena, &recording->remarks, err));
    set_origin(&ops, &recording->remarks);
    LHI_TRY(lhi_step_dependencies_find(&ops, arena, &needs, err));
    *why = needs.reason;
    if (needs.reason)
        return LH_OK;
    LHI_TRY(lhi_op_graph_make(&needs, arena, &graph, &step.duration_ns, err));
    if (!graph) {
        *why = "the operations depend on each other in a cycle";
        return LH_OK;
    }
    lhi_defect_add(&recording->remarks, LHI_REMARK_STRAY, needs.n_strays,
                   "in step %" PRIu64, list->step);
    lh_status status = LH_OK;
    if (!measure_spans(&ops, &step)) {
        lhi_op_graph_free(graph);
        status = lhi_fail_nomem(err);
    } else {
        status = add_step(recording, &step, graph, err);
    }
    if (status != LH_OK)
        free_step(&step);
    return status;
}

lh_status lhi_recording_add(lh_recording *recording, lhi_row_list *list,
                            lh_error *err)
{
    const char *why = NULL;
    lhi_arena *arena = lhi_arena_make(0);
    lh_status status = arena ? prepare_step(recording, list, arena, &why, err)
                             : lhi_fail_nomem(err);
    lhi_arena_free(arena);
    if (status == LH_OK && why)
        lhi_defect_add(&recording->remarks, LHI_REMARK_INCOMPLETE, 1,
                       "step %" PRIu64 ": %s", list->step, why);
    return status;
}

/* --- all steps ------------------------------------------------------------ */

/* Compares recorded steps by step number, for lhi_sort(). */
static int compare_numbers(const void *a, const void *b)
{
    const lhi_recorded_step *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

/* Checks whether two steps' graphs have the same stages and replicas. */
static bool same_ranks(const lhi_op_graph *a, const lhi_op_graph *b)
{
    return a->n_stages == b->n_stages && a->n_replicas == b->n_replicas &&
           memcmp(a->replicas, b->replicas,
                  a->n_replicas * sizeof *a->replicas) == 0;
}

/* Returns a graph whose set of stages and replicas occurs in the most steps; of
 * equally frequent sets, the one with more ranks. */
static const lhi_op_graph *find_most_common_graph(const lh_recording *recording)
{
    const lhi_op_graph *best = NULL;
    uint32_t most = 0;
    for (uint32_t i = 0; i < recording->n_graphs; i++) {
        const lhi_op_graph *g = recording->graphs[i];
        uint32_t n = 0;
        if (best && same_ranks(best, g))
            continue;
        for (uint32_t k = 0; k < recording->n_steps; k++)
            n += same_ranks(recording->steps[k].graph, g);
        if (!best || n > most ||
            (n == most &&
             g->n_stages * g->n_replicas > best->n_stages * best->n_replicas)) {
            best = g;
            most = n;
        }
    }
    return best;
}

lh_status lhi_recording_finalise(lh_recording *recording, const char *name,
                                 lh_error *err)
{
    const lhi_op_graph *usual = find_most_common_graph(recording);
    uint32_t kept = 0;
    if (!usual) {
        for (uint32_t i = LHI_N_REMARKS; i-- > 0;)
            if (recording->remarks.n[i])
                return lhi_fail(err, LH_EINPUT,
                                "%s: no step is complete; the first defect: %s",
                                name, recording->remarks.first[i]);
        return lhi_fail(err, LH_EINPUT, "%s: has no operations", name);
    }
    lhi_sort(recording->steps, recording->n_steps, sizeof *recording->steps,
             compare_numbers);
    for (uint32_t i = 0; i < recording->n_steps; i++) {
        lhi_recorded_step *step = &recording->steps[i];
        if (same_ranks(step->graph, usual)) {
            recording->steps[kept++] = *step;
            continue;
        }
        lhi_defect_add(&recording->remarks, LHI_REMARK_RANKS, 1,
                       "step %" PRIu64, step->step);
        free_step(step);
    }
    recording->n_steps = kept;
    recording->n_stages = usual->n_stages;
    recording->n_replicas = usual->n_replicas;
    return LH_OK;
}

uint32_t lh_recording_n_steps(const lh_recording *recording)
{
    return recording->n_steps;
}

uint32_t lh_recording_n_replicas(const lh_recording *recording)
{
    return recording->n_replicas;
}

int64_t lh_recording_passes_ns(const lh_recording *recording, uint32_t replica)
{
    double sum = 0;
    if (replica >= recording->n_replicas)
        return 0;
    for (uint32_t i = 0; i < recording->n_steps; i++)
        sum += (double)recording->steps[i].passes_ns[replica];
    return (int64_t)(sum / recording->n_steps + 0.5);
}

void lh_recording_free(lh_recording *recording)
{
    if (!recording)
        return;
    for (uint32_t i = 0; i < recording->n_steps; i++)
        free_step(&recording->steps[i]);
    for (uint32_t i = 0; i < recording->n_graphs; i++)
        lhi_op_graph_free(recording->graphs[i]);
    for (uint32_t i = 0; i < recording->n_activities; i++)
        free(recording->activities[i].file);
    free(recording->activities);
    free(recording->steps);
    free(recording->graphs);
    free(recording);
}
