/* SPDX-License-Identifier: Apache-2.0 */
/* Step times with idealised times replacing some recorded ones, and the
 * slowdowns derived from them: section 4 of the paper. */
#include "report/diagnosis/diagnose_internal.h"

#include "base/sort.h"

#include <math.h>
#include <stdlib.h>

#define SLOWEST_SHARE 0.03 /* worker share, as in the paper */

lh_status lhi_replay_mean_step(lhi_diagnosis_state *d,
                               const lhi_scenario *scenario, double *out_ns,
                               lh_error *err)
{
    int64_t *ends = LHI_NEW(d->scratch, int64_t, d->recording->n_steps);
    if (!ends)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_replay_steps(d->recording, scenario, 1, d->threads, ends, err));
    *out_ns = lhi_replay_mean(d->recording, ends);
    return LH_OK;
}

/* --- slowdowns ------------------------------------------------------------ */

/* Results of `n` replay scenarios. In scenario 0 all operations take their
 * recorded times, in scenario 1 all take typical times. In each further
 * scenario one stage, replica or operation kind takes its recorded times and
 * all other operations take typical times. */
typedef struct scenario_results {
    uint32_t n;
    uint32_t stages, replicas, kinds; /* first scenario of each group */
    int64_t *ends;                    /* step times: scenario by scenario */
} scenario_results;

enum { BATCH_SIZE = 64 }; /* scenarios per batch, to limit table memory */

/* Builds replay scenario number `i`: 0 has all recorded times, 1 none; each
 * further one has the recorded times of a single stage, replica or operation
 * kind, typical times otherwise. */
static lh_status make_scenario(lhi_diagnosis_state *d,
                               const scenario_results *p, uint32_t i,
                               lhi_scenario *out, lh_error *err)
{
    const lh_recording *r = d->recording;
    LHI_TRY(lhi_scenario_make(r, i == 0, d->typical_ns, d->scratch, out, err));
    if (i >= p->kinds)
        lhi_scenario_set(r, out, LH_NONE, LH_NONE, (lh_operation)(i - p->kinds),
                         true);
    else if (i >= p->replicas)
        lhi_scenario_set(r, out, LH_NONE, i - p->replicas, LH_N_OPERATIONS,
                         true);
    else if (i >= p->stages)
        lhi_scenario_set(r, out, i - p->stages, LH_NONE, LH_N_OPERATIONS, true);
    return LH_OK;
}

/* Builds scenarios `from` to `from + n - 1` (which operations keep their
 * recorded times) and replays them on all steps; n is at most BATCH_SIZE. */
static lh_status replay_batch(lhi_diagnosis_state *d, scenario_results *p,
                              uint32_t from, uint32_t n, lh_error *err)
{
    lhi_scenario scenarios[BATCH_SIZE];
    for (uint32_t i = 0; i < n; i++)
        LHI_TRY(make_scenario(d, p, from + i, &scenarios[i], err));
    return lhi_replay_steps(d->recording, scenarios, n, d->threads,
                            p->ends + (size_t)from * d->recording->n_steps,
                            err);
}

/* Replays every step in all scenarios, in batches of BATCH_SIZE, and stores the
 * steps' end times in p->ends (ns, by scenario, then step). */
static lh_status replay_all(lhi_diagnosis_state *d, scenario_results *p,
                            lh_error *err)
{
    const lh_recording *r = d->recording;
    p->stages = 2;
    p->replicas = p->stages + r->n_stages;
    p->kinds = p->replicas + r->n_replicas;
    p->n = p->kinds + LH_N_OPERATIONS;
    p->ends = LHI_NEW(d->scratch, int64_t, (size_t)p->n * r->n_steps);
    if (!p->ends)
        return lhi_fail_nomem(err);
    for (uint32_t from = 0; from < p->n; from += BATCH_SIZE) {
        lhi_mark mark = lhi_arena_mark(d->scratch);
        uint32_t n = p->n - from < BATCH_SIZE ? p->n - from : BATCH_SIZE;
        LHI_TRY(replay_batch(d, p, from, n, err));
        lhi_arena_rewind(d->scratch, mark);
    }
    return LH_OK;
}

/* Returns a / b; 1 if b is not positive. */
static double compute_ratio(double a, double b)
{
    return b > 0 ? a / b : 1;
}

/* Returns the slowdown of replay scenario number `i`: its mean step time
 * relative to the ideal step, in which all operations take typical times. */
static double compute_slowdown(const lhi_diagnosis_state *d,
                               const scenario_results *p, uint32_t i)
{
    size_t at = (size_t)i * d->recording->n_steps;
    return compute_ratio(lhi_replay_mean(d->recording, p->ends + at),
                         d->out.ideal_ns);
}

/* Sets has[k] to true for every public operation kind k that occurs in the
 * recording. */
static void find_kinds(const lh_recording *r, bool *has)
{
    for (uint32_t i = 0; i < r->n_graphs; i++)
        for (uint32_t k = 0; k < r->graphs[i]->n_ops; k++)
            has[lhi_op_operation((lhi_op_type)r->graphs[i]->op[k])] = true;
}

/* Returns the standard error of the job's mean slowdown, from the differences
 * between steps; 0 for fewer than two steps. The ideal time counts as exact,
 * because it hardly varies. */
static double compute_standard_error(const lh_diagnosis *out)
{
    double squares = 0;
    if (out->n_steps < 2)
        return 0;
    for (uint32_t i = 0; i < out->n_steps; i++) {
        double off = compute_ratio((double)out->steps[i].t_ns, out->ideal_ns) -
                     out->slowdown;
        squares += off * off;
    }
    return sqrt(squares / (out->n_steps - 1) / out->n_steps);
}

/* Stores each step's measured, replayed and ideal time in the diagnosis, with
 * their means and the slowdown. */
static lh_status fill_steps(lhi_diagnosis_state *d, const scenario_results *p,
                            lh_error *err)
{
    const lh_recording *r = d->recording;
    lh_diagnosed_step *steps = LHI_NEW(d->arena, lh_diagnosed_step, r->n_steps);
    lh_diagnosis *out = &d->out;
    double measured = 0;
    if (!steps)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < r->n_steps; i++) {
        steps[i] =
            (lh_diagnosed_step){r->steps[i].step, r->steps[i].measured_ns,
                                p->ends[i], p->ends[r->n_steps + i]};
        measured += (double)steps[i].measured_ns;
    }
    out->n_steps = r->n_steps;
    out->steps = steps;
    out->measured_ns = measured / r->n_steps;
    out->t_ns = lhi_replay_mean(r, p->ends);
    out->ideal_ns = lhi_replay_mean(r, p->ends + r->n_steps);
    out->slowdown = compute_ratio(out->t_ns, out->ideal_ns);
    out->slowdown_error = compute_standard_error(out);
    return LH_OK;
}

/* Stores the slowdowns by operation kind, stage, replica and worker (a
 * replica's stage) in the diagnosis. A worker's slowdown is the smaller one of
 * its stage and its replica. */
static lh_status fill_slowdowns(lhi_diagnosis_state *d,
                                const scenario_results *p, lh_error *err)
{
    const lh_recording *r = d->recording;
    lh_diagnosis *out = &d->out;
    bool has[LH_N_OPERATIONS] = {false};
    double *stages = LHI_NEW(d->arena, double, r->n_stages);
    double *replicas = LHI_NEW(d->arena, double, r->n_replicas);
    double *workers = LHI_NEW(d->arena, double, lhi_recording_n_workers(r));
    if (!stages || !replicas || !workers)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < r->n_stages; i++)
        stages[i] = compute_slowdown(d, p, p->stages + i);
    for (uint32_t i = 0; i < r->n_replicas; i++)
        replicas[i] = compute_slowdown(d, p, p->replicas + i);
    for (uint32_t i = 0; i < lhi_recording_n_workers(r); i++)
        workers[i] =
            fmin(stages[i / r->n_replicas], replicas[i % r->n_replicas]);
    find_kinds(r, has);
    for (uint32_t i = 0; i < LH_N_OPERATIONS; i++)
        out->by_operation[i] =
            has[i] ? compute_slowdown(d, p, p->kinds + i) : 0;
    out->by_stage = stages;
    out->by_replica = replicas;
    out->by_worker = workers;
    return LH_OK;
}

/* --- shares --------------------------------------------------------------- */

/* A worker with its slowdown, for sorting. */
typedef struct ranked {
    double slowdown;
    uint32_t worker; /* stage * n_replicas + replica */
} ranked;

/* Compares workers by slowdown, the slowest first, for lhi_sort(). */
static int compare_ranked(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return (x->slowdown < y->slowdown) - (x->slowdown > y->slowdown);
}

/* Stores the slowest workers (a replica's stage each), SLOWEST_SHARE of all, in
 * the diagnosis, slowest first. */
static lh_status rank_workers(lhi_diagnosis_state *d, lh_error *err)
{
    lh_diagnosis *out = &d->out;
    uint32_t n = lhi_recording_n_workers(d->recording);
    uint32_t slow = (uint32_t)ceil(SLOWEST_SHARE * n);
    ranked *all = LHI_NEW(d->scratch, ranked, n);
    uint32_t *workers = LHI_NEW(d->arena, uint32_t, slow);
    if (!all || !workers)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        all[i] = (ranked){out->by_worker[i], i};
    lhi_sort(all, n, sizeof *all, compare_ranked);
    for (uint32_t i = 0; i < slow; i++)
        workers[i] = all[i].worker;
    out->n_slow_workers = slow;
    out->slow_workers = workers;
    return LH_OK;
}

/* Returns the share of the job's lost time (mean step less ideal step) that
 * disappears if the mean step becomes without_ns. */
static double compute_share(const lh_diagnosis *out, double without_ns)
{
    double lost = out->t_ns - out->ideal_ns;
    return fabs(lost) < 1 ? 0 : (out->t_ns - without_ns) / lost;
}

/* Computes the shares of the job's lost time that the slowest workers and the
 * last stage cause, by replays in which only these take typical times. */
static lh_status find_shares(lhi_diagnosis_state *d, lh_error *err)
{
    const lh_recording *r = d->recording;
    lh_diagnosis *out = &d->out;
    lhi_scenario workers, last;
    double ns;
    LHI_TRY(rank_workers(d, err));
    LHI_TRY(
        lhi_scenario_make(r, true, d->typical_ns, d->scratch, &workers, err));
    LHI_TRY(lhi_scenario_make(r, true, d->typical_ns, d->scratch, &last, err));
    for (uint32_t i = 0; i < out->n_slow_workers; i++)
        lhi_scenario_set(r, &workers, out->slow_workers[i] / r->n_replicas,
                         out->slow_workers[i] % r->n_replicas, LH_N_OPERATIONS,
                         false);
    lhi_scenario_set(r, &last, r->n_stages - 1, LH_NONE, LH_N_OPERATIONS,
                     false);
    LHI_TRY(lhi_replay_mean_step(d, &workers, &ns, err));
    out->worker_share = compute_share(out, ns);
    LHI_TRY(lhi_replay_mean_step(d, &last, &ns, err));
    out->last_stage_share = compute_share(out, ns);
    return LH_OK;
}

lh_status lhi_diagnosis_compute_slowdowns(lhi_diagnosis_state *d, lh_error *err)
{
    scenario_results p = {0};
    lhi_typical_times(d->recording, d->typical_ns);
    LHI_TRY(replay_all(d, &p, err));
    LHI_TRY(fill_steps(d, &p, err));
    LHI_TRY(fill_slowdowns(d, &p, err));
    return find_shares(d, err);
}
