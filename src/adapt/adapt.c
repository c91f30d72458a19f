/* SPDX-License-Identifier: Apache-2.0 */
#include "adapt/adapt_own.h"
#include "adapt/moving.h"

#include "base/take_options.h"
#include "pipe/pipeline_own.h"
#include "pipe/schedule_own.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    USUAL_EFFORT = 60000,
    SMALL = 1000, /* passes; effort grows in proportion beyond this */
    MOST_TIMES = 10,
    USUAL_STEPS = 10
};
#define USUAL_SWITCH_NS INT64_C(2000000)
#define USUAL_AT_ONCE 0.2
#define USUAL_LEAST_GAIN 0.002

/* --- construction --------------------------------------------------------- */

static lh_status find_candidate(const char *name, size_t len, uint32_t *set,
                                lh_error *err)
{
    const char *known;
    for (uint32_t i = 0; (known = lh_adapt_candidate(i)); i++)
        if (strlen(known) == len && strncmp(known, name, len) == 0) {
            *set |= 1u << i;
            return LH_OK;
        }
    return lhi_fail(err, LH_EINVAL,
                    "there is no candidate '%.*s' to switch to; there are "
                    "original, optimal and methods that are made for delays",
                    (int)(len < 40 ? len : 40), name);
}

static lh_status take_candidates(lh_adapt *a, const char *names, lh_error *err)
{
    a->candidates = names ? 0 : UINT32_MAX;
    while (names && *names) {
        size_t len = strcspn(names, ",");
        LHI_TRY(find_candidate(names, len, &a->candidates, err));
        names += len + (names[len] == ',');
    }
    return LH_OK;
}

/* Returns the default evaluation budget, in proportion to the number of passes
 * and capped at MOST_TIMES. */
static uint64_t usual_effort(const lh_pipeline *p)
{
    uint64_t passes = UINT64_C(3) * p->n_chunks * p->n_microbatches;
    uint64_t times = (passes + SMALL - 1) / SMALL;
    return USUAL_EFFORT * (times < MOST_TIMES ? times : MOST_TIMES);
}

static lh_status take_numbers(lh_adapt *a, const lh_adapt_options *o,
                              lh_error *err)
{
    if (o->switch_ns < 0 || !(o->at_once >= 0) || !(o->least_gain >= 0) ||
        o->least_gain >= 1)
        return lhi_fail(err, LH_EINVAL,
                        "lh_adapt_options: switch_ns is %" PRId64
                        ", at_once %g, least_gain %g; none may be negative, "
                        "and the last has to be below 1",
                        o->switch_ns, o->at_once, o->least_gain);
    a->effort = o->effort ? o->effort : usual_effort(a->pipeline);
    a->switch_ns = o->switch_ns ? o->switch_ns : USUAL_SWITCH_NS;
    a->least_steps = o->least_steps ? o->least_steps : USUAL_STEPS;
    a->at_once = o->at_once > 0 ? o->at_once : USUAL_AT_ONCE;
    a->least_gain = o->least_gain > 0 ? o->least_gain : USUAL_LEAST_GAIN;
    return take_candidates(a, o->candidates, err);
}

static lh_status copy_links(const bool *from, uint32_t n, bool **out,
                            lh_error *err)
{
    bool *to = calloc((size_t)n + 1, sizeof *to);
    if (!to)
        return lhi_fail_nomem(err);
    if (from)
        memcpy(to, from, n * sizeof *to);
    *out = to;
    return LH_OK;
}

/* Checks whether passes block on sends or sends on receives. If not, another
 * data path only adds time. */
static bool is_blocking(const lh_adapt *a)
{
    lh_receives receives = a->sim.receives;
    if (!a->sim.own_receives && receives == LH_RECEIVES_EARLY)
        receives = a->pipeline->receives;
    return a->sim.coupled_queue > 0 || receives != LH_RECEIVES_EARLY;
}

/* Sets up the data paths: direct only, or delegated and mixed too if the
 * options allow delegation and messages can block passes. */
static lh_status take_paths(lh_adapt *a, const lh_adapt_options *o,
                            lh_error *err)
{
    uint32_t n = a->pipeline->n_links;
    lh_pipeline *trial;
    lh_sim_options how;
    LHI_TRY(copy_links(a->sim.delegated, n, &a->began_links, err));
    LHI_TRY(copy_links(NULL, n, &a->running_links, err));
    LHI_TRY(copy_links(NULL, n, &a->slow_links, err));
    if (a->sim.delegated)
        a->sim.delegated = a->began_links;
    if (!o->delegation || !is_blocking(a))
        return LH_OK;
    LHI_TRY(
        LHI_OPTIONS_TAKE(lh_delegation, &a->delegation, o->delegation, err));
    a->delegation.links = NULL;
    a->staging_counts =
        a->delegation.staging_ns > 0 || a->delegation.host_copy_ns > 0;
    if (a->delegation.link_staging_ns) {
        a->staging = calloc((size_t)n + 1, sizeof *a->staging);
        if (!a->staging)
            return lhi_fail_nomem(err);
        memcpy(a->staging, a->delegation.link_staging_ns,
               n * sizeof *a->staging);
        a->delegation.link_staging_ns = a->staging;
        for (uint32_t i = 0; i < n; i++)
            a->staging_counts = a->staging_counts || a->staging[i] > 0;
    }
    /* A trial delegation reports invalid options at construction time. */
    LHI_TRY(
        lh_delegate(a->pipeline, &a->sim, &a->delegation, &trial, &how, err));
    lh_pipeline_free(trial);
    a->may_delegate = true;
    return LH_OK;
}

static lh_status set_up(lh_adapt *a, const lh_pipeline *pipeline,
                        const lh_schedule *schedule, const lh_adapt_options *o,
                        lh_error *err)
{
    lh_evaluator *evaluator;
    LHI_TRY(LHI_OPTIONS_TAKE(lh_sim_options, &a->sim, o->sim, err));
    LHI_TRY(lhi_pipeline_copy(pipeline, &a->pipeline, err));
    LHI_TRY(lhi_schedule_copy(schedule, &a->original, err));
    LHI_TRY(lhi_schedule_copy(schedule, &a->running, err));
    a->running_name = lh_adapt_candidate(0);
    LHI_TRY(take_numbers(a, o, err));
    LHI_TRY(take_paths(a, o, err));
    if (o->same_sums)
        LHI_TRY(lhi_sum_order_make(pipeline, schedule, &a->sums, err));
    a->n_things = pipeline->n_links + 2 * pipeline->n_devices + 1;
    a->things = calloc(a->n_things, sizeof *a->things);
    if (!a->things)
        return lhi_fail_nomem(err);
    LHI_TRY(lh_evaluator_make(a->pipeline, &a->sim, &evaluator, err));
    lh_status status =
        lh_evaluator_run(evaluator, a->running, &a->usual_ns, err);
    lh_evaluator_free(evaluator);
    return status;
}

lh_status lh_adapt_make(const lh_pipeline *pipeline,
                        const lh_schedule *schedule,
                        const lh_adapt_options *options, lh_adapt **out,
                        lh_error *err)
{
    lh_adapt_options o;
    LHI_TRY(LHI_OPTIONS_TAKE(lh_adapt_options, &o, options, err));
    lh_adapt *a = calloc(1, sizeof *a);
    if (!a)
        return lhi_fail_nomem(err);
    a->step = UINT64_MAX;
    lh_status status = set_up(a, pipeline, schedule, &o, err);
    if (status != LH_OK)
        lh_adapt_free(a);
    else
        *out = a;
    return status;
}

void lh_adapt_free(lh_adapt *a)
{
    if (!a)
        return;
    lh_schedule_free(a->found.schedule);
    lh_schedule_free(a->running);
    lh_schedule_free(a->original);
    lh_pipeline_free(a->pipeline);
    free(a->began_links);
    free(a->running_links);
    free(a->slow_links);
    free(a->staging);
    free(a->sums);
    free(a->things);
    free(a);
}

/* --- events --------------------------------------------------------------- */

static lh_status check_now(const lh_adapt *a, const lh_adapt_now *now,
                           lh_error *err)
{
    const lh_pipeline *p = a->pipeline, *q = now->pipeline;
    if (a->step != UINT64_MAX && now->step <= a->step)
        return lhi_fail(err, LH_EINVAL,
                        "step %" PRIu64 " was decided on after step %" PRIu64
                        "; steps have to grow",
                        now->step, a->step);
    if (!q || q->n_devices != p->n_devices || q->n_chunks != p->n_chunks ||
        q->n_microbatches != p->n_microbatches || q->n_links != p->n_links)
        return lhi_fail(err, LH_EINVAL,
                        "the pipeline of now has to have the devices, chunks, "
                        "links and microbatches of the first one");
    for (uint32_t i = 0; i < now->n_events; i++) {
        const lh_monitor_event *e = &now->events[i];
        if (e->what > LH_MONITOR_DATA ||
            e->index >=
                (e->what == LH_MONITOR_LINK ? p->n_links : p->n_devices) ||
            e->from > now->step)
            return lhi_fail(err, LH_EINVAL,
                            "event %" PRIu32 ": there is no such link, device "
                            "or step",
                            i);
    }
    return LH_OK;
}

/* Returns the slot for an event's link, device or device's data loading. */
static lhi_lasting *thing_of(lh_adapt *a, const lh_monitor_event *e)
{
    uint32_t first = 0;
    if (e->what != LH_MONITOR_LINK)
        first = a->pipeline->n_links;
    if (e->what == LH_MONITOR_DATA)
        first += a->pipeline->n_devices;
    return &a->things[first + e->index];
}

/* Marks a change as active since step `since`. Returns true if it was inactive
 * or had another start. */
static bool go_on(lhi_lasting *thing, uint64_t since)
{
    bool is_news = !thing->is_on || thing->since != since;
    thing->is_on = true;
    thing->since = since;
    return is_news;
}

/* Updates all changes from the events now. Returns true if one began, changed
 * or ended since the last call. The monitor reports an end at the second
 * iteration without the slowdown. */
static bool note_things(lh_adapt *a, const lh_adapt_now *now)
{
    lhi_lasting *quiet = &a->things[a->n_things - 1];
    bool is_news = false;
    for (uint32_t i = 0; i < a->n_things; i++)
        a->things[i].is_seen = false;
    for (uint32_t i = 0; i < now->n_events; i++) {
        lhi_lasting *thing = thing_of(a, &now->events[i]);
        if (go_on(thing, now->events[i].from))
            is_news = true;
        thing->is_seen = true;
    }
    if (now->n_events == 0) {
        if (!quiet->is_on) /* before the first call nothing was slow */
            is_news = go_on(quiet, a->step == UINT64_MAX ? 0 : now->step - 1);
        quiet->is_seen = true;
    }
    for (uint32_t i = 0; i < a->n_things; i++)
        if (a->things[i].is_on && !a->things[i].is_seen) {
            lhi_lasting_end(&a->things[i], now->step - 1);
            is_news = true;
        }
    return is_news;
}

/* --- decisions ------------------------------------------------------------ */

static lh_status search_anew(lh_adapt *a, const lh_adapt_now *now,
                             lh_error *err)
{
    lhi_found found;
    LHI_TRY(lhi_find_better(a, now, &found, err));
    lh_schedule_free(a->found.schedule);
    a->found = found;
    return LH_OK;
}

void lhi_adapt_renew(lh_adapt *a)
{
    a->needs_search = true;
    a->was_refused = false;
    a->settled = false;
}

/* Sets the decision to "no switch" while an earlier proposal is unanswered. */
static void say_open(lh_adapt *a)
{
    a->decision.is_switch = false;
    a->decision.why = "a switch is not answered yet";
}

lh_status lh_adapt_decide(lh_adapt *a, const lh_adapt_now *given,
                          const lh_decision **out, lh_error *err)
{
    lh_adapt_now now;
    LHI_TRY(LHI_OPTIONS_TAKE(lh_adapt_now, &now, given, err));
    LHI_TRY(check_now(a, &now, err));
    bool is_first = a->step == UINT64_MAX;
    if (note_things(a, &now) || is_first) {
        a->needs_search = true;
        a->was_refused = false;
        a->settled = false;
        a->changed_at = now.step;
    }
    a->step = now.step;
    if (a->is_open) {
        say_open(a);
        *out = &a->decision;
        return LH_OK;
    }
    /* Searches once more after `min_interval_steps`, when estimates average
     * more iterations. */
    bool is_late = now.step - a->changed_at >= a->least_steps;
    bool searches = a->needs_search || (is_late && !a->settled);
    if (searches) {
        LHI_TRY(search_anew(a, &now, err));
        a->needs_search = false;
        a->settled = is_late;
    }
    lhi_weigh(a, &now, searches);
    a->is_open = a->decision.is_switch;
    *out = &a->decision;
    return LH_OK;
}

lh_status lh_adapt_answer(lh_adapt *a, uint64_t step, bool followed,
                          lh_error *err)
{
    if (!a->is_open)
        return lhi_fail(err, LH_EINVAL, "there is no switch that could be %s",
                        followed ? "followed" : "refused");
    a->is_open = false;
    a->was_refused = !followed;
    if (followed) {
        lh_schedule_free(a->running);
        a->running = a->found.schedule;
        a->running_name = a->found.name;
        a->found.schedule = NULL;
        a->path = a->found.path;
        if (a->path == LH_DATA_PATH_MIXED)
            memcpy(a->running_links, a->found.links,
                   a->pipeline->n_links * sizeof *a->running_links);
        a->usual_ns = a->found.now_ns = a->found.predicted_ns;
        a->has_switched = true;
        a->switched_at = step;
    }
    return LH_OK;
}
