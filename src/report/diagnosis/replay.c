/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/replay.h"

#include "base/thread_pool.h"

#include <stdlib.h>
#include <string.h>

lh_status lhi_scenario_make(const lh_recording *recording, bool own,
                            const int64_t *usual_ns, lhi_arena *arena,
                            lhi_scenario *out, lh_error *err)
{
    size_t n = (size_t)lhi_recording_n_workers(recording) * LHI_N_OPS;
    *out = (lhi_scenario){.typical_ns = usual_ns};
    out->is_recorded = LHI_NEW(arena, uint8_t, n);
    if (!out->is_recorded)
        return lhi_fail_nomem(err);
    memset(out->is_recorded, own, n);
    return LH_OK;
}

void lhi_scenario_set(const lh_recording *recording, lhi_scenario *scenario,
                      uint32_t stage, uint32_t replica, lh_operation operation,
                      bool own)
{
    for (uint32_t w = 0; w < lhi_recording_n_workers(recording); w++) {
        if ((stage != LH_NONE && w % recording->n_stages != stage) ||
            (replica != LH_NONE && w / recording->n_stages != replica))
            continue;
        for (uint32_t k = 0; k < LHI_N_OPS; k++)
            if (operation == LH_N_OPERATIONS ||
                lhi_op_operation((lhi_op_type)k) == operation)
                *lhi_scenario_flag(scenario, w, (lhi_op_type)k) = own;
    }
}

/* Saturation value when corrupt times are summed; twice the value does not
 * overflow. */
#define MAX_TIME_NS (INT64_C(1) << 61)

/* Checks whether a message between two workers (stages of replicas) is on one
 * of the links that the replay scenario repairs. */
static bool is_on_links(const lhi_scenario *s, const uint32_t *worker)
{
    for (uint32_t i = 0; i < s->n_links; i++)
        if ((worker[0] == s->links[i].from && worker[1] == s->links[i].to) ||
            (worker[0] == s->links[i].to && worker[1] == s->links[i].from))
            return true;
    return false;
}

/* Returns the time in ns that operation `i` in a group takes in the scenario
 * rather than its recorded time. */
static int64_t get_replacement_time(const lhi_recorded_step *step,
                                    const lhi_scenario *s, uint32_t group,
                                    uint32_t i)
{
    const lhi_op_graph *g = step->graph;
    if (!s->replacement_ns)
        return s->typical_ns[g->op[i]];
    if (s->links && !lhi_op_is_pass((lhi_op_type)g->op[i]) &&
        !is_on_links(s, &g->worker[g->first[group]]))
        return step->duration_ns[i];
    size_t cell = (size_t)g->worker[i] * LHI_N_OPS + g->op[i];
    return s->factors[cell] > 0
               ? (int64_t)((double)step->duration_ns[i] * s->factors[cell])
               : s->replacement_ns[cell];
}

int64_t lhi_replay_duration(const lhi_recorded_step *step,
                            const lhi_scenario *s, uint32_t group, uint32_t i)
{
    const lhi_op_graph *g = step->graph;
    size_t cell = (size_t)g->worker[i] * LHI_N_OPS + g->op[i];
    return s->is_recorded[cell] ? step->duration_ns[i]
                                : get_replacement_time(step, s, group, i);
}

int64_t lhi_replay_step(const lhi_recorded_step *step, const lhi_scenario *s,
                        int64_t *ends)
{
    const lhi_op_graph *g = step->graph;
    int64_t last = 0;
    ends[0] = 0;
    for (uint32_t group = 0; group < g->n_groups; group++) {
        uint32_t from = g->first[group], to = g->first[group + 1];
        int64_t begin = 0;
        for (uint32_t i = from; i < to; i++)
            for (uint32_t k = 0;
                 k < LHI_MAX_DEPENDENCIES && g->dependencies[i][k]; k++) {
                int64_t end = ends[g->dependencies[i][k]];
                begin = end > begin ? end : begin;
            }
        for (uint32_t i = from; i < to; i++) {
            int64_t ns = lhi_replay_duration(step, s, group, i);
            int64_t end = begin + ns < MAX_TIME_NS ? begin + ns : MAX_TIME_NS;
            ends[i + 1] = end;
            last = end > last ? end : last;
        }
    }
    return last;
}

/* Worker thread arguments. */
typedef struct replay_job {
    const lh_recording *recording;
    const lhi_scenario *scenarios;
    uint32_t n, n_pieces; /* replays; work pieces */
    size_t room;          /* size of each thread's `ends` */
    int64_t *ends, *out;
} replay_job;

/* Replays part `piece` of all pairs of scenario and step, with worker thread
 * `thread`'s scratch array; task of a parallel loop. The pairs are divided
 * evenly over n_pieces parts. */
static void replay_piece(void *context, uint32_t piece, uint32_t thread)
{
    const replay_job *r = context;
    uint32_t n_steps = r->recording->n_steps;
    uint64_t n = r->n;
    for (uint64_t i = n * piece / r->n_pieces;
         i < n * (piece + 1) / r->n_pieces; i++)
        r->out[i] = lhi_replay_step(&r->recording->steps[i % n_steps],
                                    &r->scenarios[i / n_steps],
                                    r->ends + thread * r->room);
}

/* Ignores the progress of a parallel loop that is never cancelled. */
static void ignore_progress(void *context, uint32_t n_done)
{
    (void)context; /* never cancelled */
    (void)n_done;
}

lh_status lhi_replay_steps(const lh_recording *recording,
                           const lhi_scenario *scenarios, uint32_t n_scenarios,
                           uint32_t threads, int64_t *ends_ns, lh_error *err)
{
    replay_job r = {.recording = recording,
                    .scenarios = scenarios,
                    .n = n_scenarios * recording->n_steps,
                    .out = ends_ns};
    threads = threads ? threads : lhi_count_processors();
    if (threads > LHI_MAX_PARALLEL_TASKS)
        threads = LHI_MAX_PARALLEL_TASKS;
    for (uint32_t i = 0; i < recording->n_graphs; i++)
        if (recording->graphs[i]->n_ops >= r.room)
            r.room = (size_t)recording->graphs[i]->n_ops + 1;
    r.n_pieces = r.n < LHI_MAX_PARALLEL_TASKS ? r.n : LHI_MAX_PARALLEL_TASKS;
    r.ends = calloc(threads, r.room * sizeof *r.ends);
    if (!r.ends)
        return lhi_fail_nomem(err);
    lhi_run_parallel(&(lhi_parallel_job){.context = &r,
                                         .run_task = replay_piece,
                                         .report_progress = ignore_progress},
                     r.n_pieces, threads);
    free(r.ends);
    return LH_OK;
}

double lhi_replay_mean(const lh_recording *recording, const int64_t *ends_ns)
{
    double sum = 0;
    for (uint32_t i = 0; i < recording->n_steps; i++)
        sum += (double)ends_ns[i];
    return sum / recording->n_steps;
}
