/* SPDX-License-Identifier: Apache-2.0 */
/* Recommendations with their predicted gain: replays recorded steps under
 * changed times, and simulates other schedules with the measured times. */
#include "report/diagnosis/diagnose_internal.h"
#include "report/diagnosis/replica_pipeline.h"

#include "base/sort.h"

#include <longhaul/scheduler.h>
#include <longhaul/simulate.h>

#include <inttypes.h>
#include <stdio.h>

enum {
    MAX_REMEDIES = 12,
    MAX_PER_KIND = 3,      /* workers, or links, one recommendation each */
    SEARCH_EFFORT = 20000, /* schedule search budget: about 1 s */
};
#define MIN_GAIN 0.002 /* least gain worth reporting, as a share of a step */

/* A recommendation with its timeline source. */
typedef struct remedy_entry {
    lh_remedy help;
    lhi_remedy_source source;
} remedy_entry;

/* Adds a recommendation (text `what`, assumption text `assumes`) to the list
 * `helps`, if predicted_ns, the mean step time with it, is at least MIN_GAIN
 * shorter. Then takes over `source`'s trace. */
static lh_status add_remedy(lhi_diagnosis_state *d, remedy_entry *helps,
                            double predicted_ns, const char *assumes,
                            const char *what, lhi_remedy_source *source,
                            lh_error *err)
{
    lh_diagnosis *out = &d->out;
    double gain = out->t_ns > 0 ? 1 - predicted_ns / out->t_ns : 0;
    if (gain < MIN_GAIN || out->n_remedies == MAX_REMEDIES)
        return LH_OK;
    lh_remedy *h = &helps[out->n_remedies].help;
    *h = (lh_remedy){.action = lhi_arena_strdup(d->arena, what),
                     .assumptions = lhi_arena_strdup(d->arena, assumes),
                     .predicted_ns = (int64_t)(predicted_ns + 0.5),
                     .gain = gain};
    if (!h->action || !h->assumptions)
        return lhi_fail_nomem(err);
    helps[out->n_remedies++].source = *source;
    source->trace = NULL;
    return LH_OK;
}

/* --- stragglers as fast as their peers ------------------------------------ */

static const char evenly_assumption[] =
    "their work can be distributed that evenly";

/* Adds a recommendation to repair straggler (slow worker, stage or link) number
 * `straggler`, or all if LH_NONE, to the list `helps`. cost_ns: predicted
 * saving per step; `what`, `assumes`: its texts. */
static lh_status add_repair(lhi_diagnosis_state *d, remedy_entry *helps,
                            uint32_t straggler, int64_t cost_ns,
                            const char *assumes, const char *what,
                            lh_error *err)
{
    lhi_remedy_source source = {LHI_NEW(d->arena, lhi_scenario, 1), NULL};
    if (!source.scenario)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_scenario_make_repaired(d, straggler, source.scenario, err));
    return add_remedy(d, helps, d->out.t_ns - (double)cost_ns, assumes, what,
                      &source, err);
}

/* Adds recommendations to repair each kind's costliest stragglers, and one to
 * repair all together. */
static lh_status add_repairs(lhi_diagnosis_state *d, remedy_entry *helps,
                             lh_error *err)
{
    uint32_t n[LH_SLOW_MICROBATCHES + 1] = {0};
    for (uint32_t i = 0; i < d->out.n_slow_components; i++) {
        const lh_slow_component *t = &d->out.slow_components[i];
        char what[160];
        if (t->hidden || t->kind == LH_SLOW_STAGE ||
            n[t->kind]++ == MAX_PER_KIND)
            continue;
        if (t->kind == LH_SLOW_WORKER)
            snprintf(what, sizeof what,
                     "replace the worker of stage %" PRIu32 ", replica %" PRIu32
                     ", by one as fast as the stage's other workers",
                     t->stage, d->out.replicas[t->replica]);
        else if (t->kind == LH_SLOW_MICROBATCHES)
            snprintf(what, sizeof what, "%s",
                     "distribute sequences so that all microbatches have equal "
                     "times");
        else
            snprintf(what, sizeof what,
                     "repair the link from stage %" PRIu32 " to stage %" PRIu32
                     " of replica %" PRIu32
                     ", so that its messages take as long as others",
                     t->stage, t->to_stage, d->out.replicas[t->replica]);
        LHI_TRY(
            add_repair(d, helps, i, t->cost_ns,
                       t->kind == LH_SLOW_MICROBATCHES ? evenly_assumption : "",
                       what, err));
    }
    if (d->out.combined_saving_ns == 0)
        return LH_OK;
    char what[160];
    snprintf(what, sizeof what, "repair all %" PRIu32 " stragglers",
             d->out.n_slow_components);
    return add_repair(d, helps, LH_NONE, d->out.combined_saving_ns, "", what,
                      err);
}

/* --- layers --------------------------------------------------------------- */

/* Writes the numbers of the slow stages into `names`; returns whether there is
 * one. */
static bool list_slow_stages(const lh_diagnosis *out, char *names, size_t room)
{
    size_t len = 0;
    names[0] = '\0';
    for (uint32_t i = 0; i < out->n_slow_components; i++)
        if (out->slow_components[i].kind == LH_SLOW_STAGE && len + 16 < room)
            len += (size_t)snprintf(names + len, room - len, "%s%" PRIu32,
                                    len ? " and " : "",
                                    out->slow_components[i].stage);
    return len > 0;
}

/* Adds a recommendation to balance the stages: predicts the step time if passes
 * take the mean over all stages. A pass that is slower than others on its stage
 * stays slower by the same factor. */
static lh_status add_balanced_stages(lhi_diagnosis_state *d,
                                     remedy_entry *helps, lh_error *err)
{
    const lh_recording *r = d->recording;
    lhi_remedy_source source = {LHI_NEW(d->arena, lhi_scenario, 1), NULL};
    lhi_scenario *s = source.scenario;
    char names[64], what[160];
    double ns;
    if (!list_slow_stages(&d->out, names, sizeof names))
        return LH_OK;
    if (!s)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_scenario_make_replaceable(d, d->arena, s, err));
    for (uint32_t k = 0; k <= LHI_OP_WEIGHT; k++) {
        double all = 0;
        for (uint32_t i = 0; i < r->n_stages; i++)
            all +=
                (double)lhi_typical_of_stage(&d->passes, r, i, (lhi_op_type)k);
        for (uint32_t w = 0; w < lhi_recording_n_workers(r); w++) {
            size_t cell = (size_t)w * LHI_N_OPS + k;
            double own = (double)lhi_typical_of_stage(
                &d->passes, r, w % r->n_stages, (lhi_op_type)k);
            if (own <= 0)
                continue;
            s->is_recorded[cell] = false;
            s->factors[cell] = all / r->n_stages / own;
        }
    }
    LHI_TRY(lhi_replay_mean_step(d, s, &ns, err));
    snprintf(what, sizeof what,
             "move layers away from stage %s until all stages have equal times",
             names);
    return add_remedy(d, helps, ns,
                      "layers can be moved in steps that fine, and take "
                      "equally long on every stage",
                      what, &source, err);
}

/* --- schedules ------------------------------------------------------------ */

/* Returns the index of the replica whose passes last longest. */
static uint32_t find_slowest_replica(const lh_recording *r)
{
    uint32_t slowest = 0;
    for (uint32_t i = 1; i < r->n_replicas; i++)
        if (lh_recording_passes_ns(r, i) > lh_recording_passes_ns(r, slowest))
            slowest = i;
    return slowest;
}

/* Returns LH_ENOMEM for LH_ENOMEM, with the message `why`, and LH_OK for
 * any other status: without a pipeline or a method there is just no
 * recommendation. */
static lh_status ignore_unless_nomem(lh_status status, const lh_error *why,
                                     lh_error *err)
{
    return status == LH_ENOMEM ? lhi_fail(err, status, "%s", why->text) : LH_OK;
}

/* The slowest replica, for which the others wait, with its recorded schedule
 * and mean times. */
typedef struct current_state {
    uint32_t replica;
    lhi_replica_changes how;
    lh_pipeline *pipeline;
    lh_schedule *schedule;
    int64_t ns;    /* its passes' simulated makespan */
    int64_t *held; /* per stage: peak resident microbatches */
    int64_t most_held;
} current_state;

/* Simulates the slowest replica's recorded pass order with its mean pass times;
 * stores pipeline, schedule, time and peak memory in *now. */
static lh_status simulate_now(lhi_diagnosis_state *d, current_state *now,
                              lh_error *err)
{
    lh_timeline *t = NULL;
    LHI_TRY(lhi_replica_pipeline_build(d->recording, now->replica, &now->how,
                                       &now->pipeline, err));
    LHI_TRY(lhi_replica_schedule_build(d->recording, now->replica,
                                       &now->schedule, err));
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

/* The replica's fastest schedule under other memory limits or microbatches. */
typedef struct found_schedule {
    const char *method; /* NULL: no method supports it */
    int64_t ns, most_held;
    lhi_remedy_source source;
} found_schedule;

/* Searches the fastest schedule for the slowest replica's pipeline with the
 * changes `how` (memory limits, split microbatches). out->method is NULL if
 * none is found. */
static lh_status find_schedule(lhi_diagnosis_state *d, const current_state *now,
                               const lhi_replica_changes *how,
                               found_schedule *out, lh_error *err)
{
    lh_pipeline *p = NULL;
    lh_timeline *t = NULL;
    lh_scheduler_result best = {0};
    lh_scheduler_options with = {.size = sizeof with, .effort = SEARCH_EFFORT};
    lh_error why = {0};
    *out = (found_schedule){0};
    lh_status status =
        lhi_replica_pipeline_build(d->recording, now->replica, how, &p, &why);
    if (status == LH_OK)
        status = lh_scheduler_run("auto", p, &with, &best, &why);
    if (status == LH_OK)
        status = lh_simulate(p, best.schedule, NULL, &t, &why);
    if (status == LH_OK)
        status = lh_trace_make(p, t, NULL, &out->source.trace, &why);
    if (status == LH_OK) {
        out->method = best.method;
        out->ns = lh_timeline_makespan(t);
        for (uint32_t i = 0; i < d->recording->n_stages; i++)
            if (lh_timeline_peak_memory(t, i) > out->most_held)
                out->most_held = lh_timeline_peak_memory(t, i);
    }
    lh_timeline_free(t);
    lh_scheduler_result_fini(&best);
    lh_pipeline_free(p);
    return ignore_unless_nomem(status, &why, err);
}

/* Adds a recommendation for schedule `f` with the texts `what` and `assumes` to
 * the list `helps`: the mean step shortens by the time that `f` saves in
 * simulation. Frees f's trace. */
static lh_status add_schedule(lhi_diagnosis_state *d, const current_state *now,
                              remedy_entry *helps, found_schedule *f,
                              const char *assumes, const char *what,
                              lh_error *err)
{
    lh_status status =
        add_remedy(d, helps, d->out.t_ns - (double)(now->ns - f->ns), assumes,
                   what, &f->source, err);
    lh_trace_free(f->source.trace);
    return status;
}

static const char means_assumption[] =
    "passes and messages of the slowest replica take their mean times";

/* Adds recommendations for other pass orders of the slowest replica: with at
 * most as many resident microbatches as now, and without that limit if still
 * faster. */
static lh_status try_orders(lhi_diagnosis_state *d, const current_state *now,
                            remedy_entry *helps, lh_error *err)
{
    lhi_replica_changes how = now->how;
    int64_t first_ns = now->ns;
    char what[160];
    found_schedule f;
    how.memory_limits = now->held;
    LHI_TRY(find_schedule(d, now, &how, &f, err));
    if (f.method && f.ns < now->ns) {
        first_ns = f.ns;
        snprintf(what, sizeof what,
                 "run schedule %s, with no more resident microbatches than now",
                 f.method);
        LHI_TRY(add_schedule(d, now, helps, &f, means_assumption, what, err));
    } else {
        lh_trace_free(f.source.trace);
    }
    how.memory_limits = NULL;
    LHI_TRY(find_schedule(d, now, &how, &f, err));
    if (f.method && (double)(first_ns - f.ns) >= MIN_GAIN * d->out.t_ns) {
        snprintf(what, sizeof what,
                 "run schedule %s, with up to %" PRId64
                 " resident microbatches in place of %" PRId64,
                 f.method, f.most_held, now->most_held);
        return add_schedule(d, now, helps, &f, means_assumption, what, err);
    }
    lh_trace_free(f.source.trace);
    return LH_OK;
}

/* Adds a recommendation for the slowest replica's schedule with twice as many
 * microbatches of half the size, if it is faster than now. */
static lh_status try_half_microbatches(lhi_diagnosis_state *d,
                                       const current_state *now,
                                       remedy_entry *helps, lh_error *err)
{
    lhi_replica_changes how = now->how;
    char what[160];
    found_schedule f;
    int64_t *twice = LHI_NEW(d->scratch, int64_t, d->recording->n_stages);
    if (!twice)
        return lhi_fail_nomem(err);
    how.split_factor = 2;
    how.memory_limits = twice;
    for (uint32_t i = 0; i < d->recording->n_stages; i++)
        twice[i] = 2 * now->held[i]; /* at half the size */
    LHI_TRY(find_schedule(d, now, &how, &f, err));
    if (!f.method || f.ns >= now->ns) {
        lh_trace_free(f.source.trace);
        return LH_OK;
    }
    snprintf(
        what, sizeof what,
        "use twice as many microbatches, each half as large, with schedule %s",
        f.method);
    return add_schedule(d, now, helps, &f,
                        "a pass of half the size takes half as long", what,
                        err);
}

/* Adds recommendations for other schedules of the slowest replica: other pass
 * orders, and smaller microbatches. */
static lh_status add_schedules(lhi_diagnosis_state *d, remedy_entry *helps,
                               lh_error *err)
{
    current_state now = {.replica = find_slowest_replica(d->recording)};
    lh_error why = {0};
    now.how.has_links = true;
    now.held = LHI_NEW(d->scratch, int64_t, d->recording->n_stages);
    if (!now.held)
        return lhi_fail_nomem(err);
    lh_status status = simulate_now(d, &now, &why);
    if (status != LH_OK) {
        status = ignore_unless_nomem(status, &why, err);
    } else {
        status = try_orders(d, &now, helps, err);
        if (status == LH_OK)
            status = try_half_microbatches(d, &now, helps, err);
    }
    lh_schedule_free(now.schedule);
    lh_pipeline_free(now.pipeline);
    return status;
}

/* Compares recommendations by predicted step time, shortest first, for
 * sorting. */
static int compare_gains(const void *a, const void *b)
{
    const remedy_entry *x = a, *y = b;
    return (x->help.predicted_ns > y->help.predicted_ns) -
           (x->help.predicted_ns < y->help.predicted_ns);
}

/* Sorts the recommendations by gain and stores them in the diagnosis. Also
 * called after an error, because the diagnosis owns their traces. */
static void store_remedies(lhi_diagnosis_state *d, remedy_entry *found,
                           lh_remedy *helps)
{
    lhi_sort(found, d->out.n_remedies, sizeof *found, compare_gains);
    for (uint32_t i = 0; i < d->out.n_remedies; i++) {
        helps[i] = found[i].help;
        d->sources[i] = found[i].source;
    }
    d->out.remedies = helps;
}

lh_status lhi_diagnosis_find_remedies(lhi_diagnosis_state *d, lh_error *err)
{
    remedy_entry *found = LHI_NEW(d->scratch, remedy_entry, MAX_REMEDIES);
    lh_remedy *helps = LHI_NEW(d->arena, lh_remedy, MAX_REMEDIES);
    d->sources = LHI_NEW(d->arena, lhi_remedy_source, MAX_REMEDIES);
    if (!found || !helps || !d->sources)
        return lhi_fail_nomem(err);
    lh_status status = add_repairs(d, found, err);
    if (status == LH_OK)
        status = add_balanced_stages(d, found, err);
    if (status == LH_OK)
        status = add_schedules(d, found, err);
    store_remedies(d, found, helps);
    return status;
}
