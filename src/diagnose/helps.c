/* SPDX-License-Identifier: Apache-2.0 */
/* What would help, and by how much: steps played again, and schedules simulated
 * with measured times. */
#include "diagnose/diagnose_own.h"
#include "diagnose/replica_pipeline.h"

#include "base/sort.h"

#include <longhaul/best.h>
#include <longhaul/simulate.h>

#include <inttypes.h>
#include <stdio.h>

enum {
    MOST_HELPS = 12,
    MOST_OF_KIND = 3, /* workers, or links, each by itself */
    EFFORT = 20000,   /* of a search for a schedule: about a second */
};
#define WORTH 0.002 /* of a step: less is not worth saying */

static lh_status add_help(lhi_diagnosing *d, lh_help *helps,
                          double predicted_ns, const char *assumes,
                          const char *what, lh_error *err)
{
    lh_diagnosis *out = &d->out;
    double gain = out->t_ns > 0 ? 1 - predicted_ns / out->t_ns : 0;
    if (gain < WORTH || out->n_helps == MOST_HELPS)
        return LH_OK;
    lh_help *h = &helps[out->n_helps];
    *h = (lh_help){.what = lhi_arena_strdup(d->arena, what),
                   .assumes = lhi_arena_strdup(d->arena, assumes),
                   .predicted_ns = (int64_t)(predicted_ns + 0.5),
                   .gain = gain};
    if (!h->what || !h->assumes)
        return lhi_fail_nomem(err);
    out->n_helps++;
    return LH_OK;
}

/* --- what is slow, as fast as others -------------------------------------- */

static lh_status mend_things(lhi_diagnosing *d, lh_help *helps, lh_error *err)
{
    uint32_t n[LH_SLOW_LINK + 1] = {0};
    for (uint32_t i = 0; i < d->out.n_slow_things; i++) {
        const lh_slow_thing *t = &d->out.slow_things[i];
        char what[160];
        if (t->hidden || t->what == LH_SLOW_STAGE ||
            n[t->what]++ == MOST_OF_KIND)
            continue;
        if (t->what == LH_SLOW_WORKER)
            snprintf(what, sizeof what,
                     "replace the worker of stage %" PRIu32 ", replica %" PRIu32
                     ", by one like its stage's others",
                     t->stage, d->out.replicas[t->replica]);
        else
            snprintf(what, sizeof what,
                     "have messages from stage %" PRIu32 " to stage %" PRIu32
                     " of replica %" PRIu32 " take as long as others",
                     t->stage, t->to, d->out.replicas[t->replica]);
        LHI_TRY(add_help(d, helps, d->out.t_ns - (double)t->cost_ns, "", what,
                         err));
    }
    if (d->out.together_ns == 0)
        return LH_OK;
    char what[160];
    snprintf(what, sizeof what,
             "have all %" PRIu32 " that are slow take as long as others",
             d->out.n_slow_things);
    return add_help(d, helps, d->out.t_ns - (double)d->out.together_ns, "",
                    what, err);
}

/* --- layers --------------------------------------------------------------- */

static bool has_slow_stage(const lh_diagnosis *out, char *names, size_t room)
{
    size_t len = 0;
    names[0] = '\0';
    for (uint32_t i = 0; i < out->n_slow_things; i++)
        if (out->slow_things[i].what == LH_SLOW_STAGE && len + 16 < room)
            len +=
                (size_t)snprintf(names + len, room - len, "%s%" PRIu32,
                                 len ? " and " : "", out->slow_things[i].stage);
    return len > 0;
}

/* Passes of every stage as long as the mean of all, a slow worker's still as
 * much slower as it is. */
static lh_status move_layers(lhi_diagnosing *d, lh_help *helps, lh_error *err)
{
    const lh_recording *r = d->recording;
    lhi_scenario s;
    char names[64], what[160];
    double ns;
    if (!has_slow_stage(&d->out, names, sizeof names))
        return LH_OK;
    LHI_TRY(lhi_scenario_instead(d, &s, err));
    for (uint32_t k = 0; k <= LHI_OP_WEIGHT; k++) {
        double all = 0;
        for (uint32_t i = 0; i < r->n_stages; i++)
            all += (double)lhi_usual_of_stage(&d->passes, r, i, (lhi_op_type)k);
        for (uint32_t w = 0; w < lhi_n_workers(r); w++) {
            size_t cell = (size_t)w * LHI_N_OPS + k;
            double own = (double)lhi_usual_of_stage(
                &d->passes, r, w % r->n_stages, (lhi_op_type)k);
            if (own <= 0)
                continue;
            s.own[cell] = false;
            s.instead_ns[cell] =
                (int64_t)(d->passes.means[cell] * all / r->n_stages / own);
        }
    }
    LHI_TRY(lhi_play_mean(d, &s, &ns, err));
    snprintf(what, sizeof what,
             "move layers away from stage %s until all stages take alike",
             names);
    return add_help(d, helps, ns,
                    "layers can be moved as finely as that, and take as long "
                    "wherever they are",
                    what, err);
}

/* --- schedules ------------------------------------------------------------ */

static uint32_t slowest_replica(const lh_recording *r)
{
    uint32_t slowest = 0;
    for (uint32_t i = 1; i < r->n_replicas; i++)
        if (lh_recording_passes_ns(r, i) > lh_recording_passes_ns(r, slowest))
            slowest = i;
    return slowest;
}

/* What was recorded need not be a pipeline's schedule, nor one suit it: then
 * there is nothing to try, which is no error. */
static lh_status unless_memory(lh_status status, const lh_error *why,
                               lh_error *err)
{
    return status == LH_ENOMEM ? lhi_fail(err, status, "%s", why->text) : LH_OK;
}

/* The replica that all others wait for, as it runs. */
typedef struct as_it_is {
    uint32_t replica;
    lhi_reshaped how;
    lh_pipeline *pipeline;
    lh_schedule *schedule;
    int64_t ns;    /* of its passes, simulated */
    int64_t *held; /* microbatches that each stage holds at most */
    int64_t most_held;
} as_it_is;

static lh_status simulate_now(lhi_diagnosing *d, as_it_is *now, lh_error *err)
{
    lh_timeline *t = NULL;
    LHI_TRY(lhi_replica_pipeline(d->recording, now->replica, &now->how,
                                 &now->pipeline, err));
    LHI_TRY(
        lhi_replica_schedule(d->recording, now->replica, &now->schedule, err));
    LHI_TRY(lh_simulate(now->pipeline, now->schedule, NULL, &t, err));
    now->ns = lh_timeline_makespan(t);
    for (uint32_t i = 0; i < d->recording->n_stages; i++) {
        now->held[i] = lh_timeline_peak_memory(t, i);
        now->most_held =
            now->held[i] > now->most_held ? now->held[i] : now->most_held;
    }
    lh_timeline_free(t);
    return LH_OK;
}

/* The fastest schedule of the replica otherwise shaped; *method NULL: none
 * suits it. */
static lh_status find_schedule(lhi_diagnosing *d, const as_it_is *now,
                               const lhi_reshaped *how, const char **method,
                               int64_t *ns, int64_t *most, lh_error *err)
{
    lh_pipeline *p = NULL;
    lh_timeline *t = NULL;
    lh_best best = {0};
    lh_best_options with = {.size = sizeof with, .effort = EFFORT};
    lh_error why = {0};
    *method = NULL;
    lh_status status =
        lhi_replica_pipeline(d->recording, now->replica, how, &p, &why);
    if (status == LH_OK)
        status = lh_best_schedule("auto", p, &with, &best, &why);
    if (status == LH_OK)
        status = lh_simulate(p, best.schedule, NULL, &t, &why);
    if (status == LH_OK) {
        *method = best.method;
        *ns = lh_timeline_makespan(t);
        *most = 0;
        for (uint32_t i = 0; i < d->recording->n_stages; i++)
            if (lh_timeline_peak_memory(t, i) > *most)
                *most = lh_timeline_peak_memory(t, i);
    }
    lh_timeline_free(t);
    lh_best_fini(&best);
    lh_pipeline_free(p);
    return unless_memory(status, &why, err);
}

static lh_status try_schedules(lhi_diagnosing *d, const as_it_is *now,
                               lh_help *helps, lh_error *err)
{
    lhi_reshaped how = now->how;
    const char *method;
    char what[160];
    int64_t ns, most, first_ns = now->ns;
    static const char assumes[] =
        "passes and messages of the slowest replica take their mean times";
    int64_t *twice = LHI_NEW(d->scratch, int64_t, d->recording->n_stages);
    if (!twice)
        return lhi_fail_nomem(err);
    how.held = now->held;
    LHI_TRY(find_schedule(d, now, &how, &method, &ns, &most, err));
    if (method && ns < now->ns) {
        first_ns = ns;
        snprintf(what, sizeof what,
                 "run the schedule %s, with no more microbatches held than now",
                 method);
        LHI_TRY(add_help(d, helps, d->out.t_ns - (double)(now->ns - ns),
                         assumes, what, err));
    }
    how.held = NULL;
    LHI_TRY(find_schedule(d, now, &how, &method, &ns, &most, err));
    if (method && (double)(first_ns - ns) >= WORTH * d->out.t_ns) {
        snprintf(what, sizeof what,
                 "run the schedule %s, with up to %" PRId64
                 " microbatches held in place of %" PRId64,
                 method, most, now->most_held);
        LHI_TRY(add_help(d, helps, d->out.t_ns - (double)(now->ns - ns),
                         assumes, what, err));
    }
    how.split_by = 2;
    how.held = twice;
    for (uint32_t i = 0; i < d->recording->n_stages; i++)
        twice[i] = 2 * now->held[i]; /* of half the size */
    LHI_TRY(find_schedule(d, now, &how, &method, &ns, &most, err));
    if (method && ns < now->ns) {
        snprintf(what, sizeof what,
                 "have twice as many microbatches, each half as large, under "
                 "the schedule %s",
                 method);
        LHI_TRY(add_help(d, helps, d->out.t_ns - (double)(now->ns - ns),
                         "a pass of half the size takes half as long", what,
                         err));
    }
    return LH_OK;
}

static lh_status look_at_schedules(lhi_diagnosing *d, lh_help *helps,
                                   lh_error *err)
{
    as_it_is now = {.replica = slowest_replica(d->recording)};
    lh_error why = {0};
    now.how.has_links = true;
    now.held = LHI_NEW(d->scratch, int64_t, d->recording->n_stages);
    if (!now.held)
        return lhi_fail_nomem(err);
    lh_status status = simulate_now(d, &now, &why);
    status = status == LH_OK ? try_schedules(d, &now, helps, err)
                             : unless_memory(status, &why, err);
    lh_schedule_free(now.schedule);
    lh_pipeline_free(now.pipeline);
    return status;
}

static int compare_gains(const void *a, const void *b)
{
    const lh_help *x = a, *y = b;
    return (x->predicted_ns > y->predicted_ns) -
           (x->predicted_ns < y->predicted_ns);
}

lh_status lhi_find_helps(lhi_diagnosing *d, lh_error *err)
{
    lh_help *helps = LHI_NEW(d->arena, lh_help, MOST_HELPS);
    if (!helps)
        return lhi_fail_nomem(err);
    LHI_TRY(mend_things(d, helps, err));
    LHI_TRY(move_layers(d, helps, err));
    LHI_TRY(look_at_schedules(d, helps, err));
    lhi_sort(helps, d->out.n_helps, sizeof *helps, compare_gains);
    d->out.helps = helps;
    return LH_OK;
}
