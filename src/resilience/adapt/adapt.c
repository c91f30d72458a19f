/* SPDX-License-Identifier: Apache-2.0 */
#include "resilience/adapt/adapt_internal.h"
#include "resilience/adapt/migration.h"

#include "base/options.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/pipeline/schedule_internal.h"

#include <longhaul/experimental/simulate.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_EFFORT = 60000,
    EFFORT_UNIT_PASSES =
        1000, /* passes; effort grows in proportion beyond this */
    MAX_EFFORT_FACTOR = 10,
    DEFAULT_STEPS = 10
};
/* Defaults of lh_adapt_options: cost of a schedule switch in ns; slowdown that
 * is answered before min_interval_steps have passed, and minimum saving that
 * justifies a switch, both as fractions of an iteration. */
#define DEFAULT_SWITCH_NS INT64_C(2000000)
#define DEFAULT_URGENT_SLOWDOWN 0.2
#define DEFAULT_MIN_GAIN 0.002

/* --- construction --------------------------------------------------------- */

/* Adds the schedule candidate called `name` (`len` characters) to the bit set
 * `set`; bit i is candidate lh_adapt_candidate(i). LH_EINVAL: no candidate has
 * this name. */
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
                    "unknown candidate '%.*s'; known: original, optimal, and "
                    "the methods for delays",
                    (int)(len < 40 ? len : 40), name);
}

/* Parses `names`, the comma-separated names of the schedule candidates that
 * decisions may choose, into the bit set a->candidates; NULL: all candidates.
 * */
static lh_status parse_candidates(lh_adapt *a, const char *names, lh_error *err)
{
    a->candidates = names ? 0 : UINT32_MAX;
    while (names && *names) {
        size_t len = strcspn(names, ",");
        LHI_TRY(find_candidate(names, len, &a->candidates, err));
        names += len + (names[len] == ',');
    }
    return LH_OK;
}

/* Returns the default evaluation budget (search work per decision):
 * DEFAULT_EFFORT, in proportion to the passes for large pipelines, at most
 * MAX_EFFORT_FACTOR times as much. */
static uint64_t compute_default_effort(const lh_pipeline *p)
{
    uint64_t passes = UINT64_C(3) * p->n_chunks * p->n_microbatches;
    uint64_t times = (passes + EFFORT_UNIT_PASSES - 1) / EFFORT_UNIT_PASSES;
    return DEFAULT_EFFORT *
           (times < MAX_EFFORT_FACTOR ? times : MAX_EFFORT_FACTOR);
}

/* Checks the ranges of the options and stores them in `a`; an option of 0
 * becomes its default. */
static lh_status check_options(lh_adapt *a, const lh_adapt_options *o,
                               lh_error *err)
{
    if (o->switch_ns < 0 || !(o->urgent_slowdown >= 0) || !(o->min_gain >= 0) ||
        o->min_gain >= 1)
        return lhi_fail(err, LH_EINVAL,
                        "lh_adapt_options: switch_ns is %" PRId64
                        ", urgent_slowdown %g, min_gain %g; each must be at "
                        "least 0, and min_gain below 1",
                        o->switch_ns, o->urgent_slowdown, o->min_gain);
    a->effort = o->effort ? o->effort : compute_default_effort(a->pipeline);
    a->switch_ns = o->switch_ns ? o->switch_ns : DEFAULT_SWITCH_NS;
    a->min_interval_steps =
        o->min_interval_steps ? o->min_interval_steps : DEFAULT_STEPS;
    a->urgent_slowdown =
        o->urgent_slowdown > 0 ? o->urgent_slowdown : DEFAULT_URGENT_SLOWDOWN;
    a->min_gain = o->min_gain > 0 ? o->min_gain : DEFAULT_MIN_GAIN;
    return parse_candidates(a, o->candidates, err);
}

/* Copies the n flags `from`, one per link, into a new array *out, which the
 * caller frees; all flags are false if `from` is NULL. */
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

/* Checks whether messages can delay passes: a full send queue blocks the next
 * pass, or a send waits for its receive. Otherwise delegated messages (sent by
 * a helper thread through host memory) only add time. */
static bool is_blocking(const lh_adapt *a)
{
    lh_receives receives = a->sim.receives;
    if (!a->sim.override_receives && receives == LH_RECEIVES_EARLY)
        receives = a->pipeline->receives;
    return a->sim.coupled_queue > 0 || receives != LH_RECEIVES_EARLY;
}

/* Enables the data paths that the search may choose: direct sends; and
 * delegated ones (by a helper thread through host memory), for all links or
 * only slow ones, if the options allow it and messages can delay passes. */
static lh_status set_up_paths(lh_adapt *a, const lh_adapt_options *o,
                              lh_error *err)
{
    uint32_t n = a->pipeline->n_links;
    lh_pipeline *trial;
    lh_sim_options how;
    LHI_TRY(copy_links(a->sim.delegated, n, &a->initial_links, err));
    LHI_TRY(copy_links(NULL, n, &a->running_links, err));
    LHI_TRY(copy_links(NULL, n, &a->slow_links, err));
    if (a->sim.delegated)
        a->sim.delegated = a->initial_links;
    if (!o->delegation || !is_blocking(a))
        return LH_OK;
    LHI_TRY(
        LHI_OPTIONS_COPY(lh_delegation, &a->delegation, o->delegation, err));
    a->delegation.links = NULL;
    a->has_staging_time =
        a->delegation.staging_ns > 0 || a->delegation.host_copy_ns > 0;
    if (a->delegation.link_staging_ns) {
        a->link_staging_ns = calloc((size_t)n + 1, sizeof *a->link_staging_ns);
        if (!a->link_staging_ns)
            return lhi_fail_nomem(err);
        memcpy(a->link_staging_ns, a->delegation.link_staging_ns,
               n * sizeof *a->link_staging_ns);
        a->delegation.link_staging_ns = a->link_staging_ns;
        for (uint32_t i = 0; i < n; i++)
            a->has_staging_time =
                a->has_staging_time || a->link_staging_ns[i] > 0;
    }
    /* A trial delegation reports invalid options at construction time. */
    LHI_TRY(
        lh_delegate(a->pipeline, &a->sim, &a->delegation, &trial, &how, err));
    lh_pipeline_free(trial);
    a->may_delegate = true;
    return LH_OK;
}

/* Fills in the decision maker `a`: copies pipeline and schedule, checks the
 * options, and simulates the initial iteration time. The caller frees `a`,
 * after a failure too. */
static lh_status set_up(lh_adapt *a, const lh_pipeline *pipeline,
                        const lh_schedule *schedule, const lh_adapt_options *o,
                        lh_error *err)
{
    lh_evaluator *evaluator;
    LHI_TRY(LHI_OPTIONS_COPY(lh_sim_options, &a->sim, o->sim, err));
    LHI_TRY(lhi_pipeline_copy(pipeline, &a->pipeline, err));
    LHI_TRY(lhi_schedule_copy(schedule, &a->original, err));
    LHI_TRY(lhi_schedule_copy(schedule, &a->running, err));
    a->running_name = lh_adapt_candidate(0);
    LHI_TRY(check_options(a, o, err));
    LHI_TRY(set_up_paths(a, o, err));
    if (o->keep_reduction_order)
        LHI_TRY(lhi_reduction_order_build(pipeline, schedule,
                                          &a->reduction_order, err));
    a->n_changes = pipeline->n_links + 2 * pipeline->n_devices + 1;
    a->changes = calloc(a->n_changes, sizeof *a->changes);
    if (!a->changes)
        return lhi_fail_nomem(err);
    LHI_TRY(lh_evaluator_make(a->pipeline, &a->sim, &evaluator, err));
    lh_status status =
        lh_evaluator_run(evaluator, a->running, &a->baseline_ns, err);
    lh_evaluator_free(evaluator);
    return status;
}

lh_status lh_adapt_make(const lh_pipeline *pipeline,
                        const lh_schedule *schedule,
                        const lh_adapt_options *options, lh_adapt **out,
                        lh_error *err)
{
    lh_adapt_options o;
    LHI_TRY(lhi_pipeline_require_one_direction(pipeline, "--adapt", err));
    LHI_TRY(LHI_OPTIONS_COPY(lh_adapt_options, &o, options, err));
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

/* Frees a decision maker and its copies of pipeline and schedule; ignores
 * NULL. */
void lh_adapt_free(lh_adapt *a)
{
    if (!a)
        return;
    lh_schedule_free(a->candidate.schedule);
    lh_schedule_free(a->running);
    lh_schedule_free(a->original);
    lh_pipeline_free(a->pipeline);
    free(a->initial_links);
    free(a->running_links);
    free(a->slow_links);
    free(a->link_staging_ns);
    free(a->reduction_order);
    free(a->changes);
    free(a);
}

/* --- events --------------------------------------------------------------- */

/* Fails with LH_EINVAL if the decision's input `now` is invalid: its step is
 * not after the last one, its pipeline has other chunks or links than the
 * original, or an event refers to an absent link or device. */
static lh_status check_input(const lh_adapt *a, const lh_adapt_input *now,
                             lh_error *err)
{
    const lh_pipeline *p = a->pipeline, *q = now->pipeline;
    if (a->step != UINT64_MAX && now->step <= a->step)
        return lhi_fail(err, LH_EINVAL,
                        "step %" PRIu64 " follows a decision on step %" PRIu64
                        "; steps must increase",
                        now->step, a->step);
    if (!q || q->n_devices != p->n_devices || q->n_chunks != p->n_chunks ||
        q->n_microbatches != p->n_microbatches || q->n_links != p->n_links)
        return lhi_fail(err, LH_EINVAL,
                        "the current pipeline must have the same devices, "
                        "chunks, links and microbatches as the first one");
    for (uint32_t i = 0; i < now->n_events; i++) {
        const lh_monitor_event *e = &now->events[i];
        if (e->target > LH_MONITOR_DATA ||
            e->index >=
                (e->target == LH_MONITOR_LINK ? p->n_links : p->n_devices) ||
            e->first_step > now->step)
            return lhi_fail(err, LH_EINVAL,
                            "event %" PRIu32 ": there is no such link, device "
                            "or step",
                            i);
    }
    return LH_OK;
}

/* Returns the record of past and present slowdowns for the link, the device, or
 * the device's data-parallel communication that event `e` is about. */
static lhi_persistent_change *find_change(lh_adapt *a,
                                          const lh_monitor_event *e)
{
    uint32_t first = 0;
    if (e->target != LH_MONITOR_LINK)
        first = a->pipeline->n_links;
    if (e->target == LH_MONITOR_DATA)
        first += a->pipeline->n_devices;
    return &a->changes[first + e->index];
}

/* Marks the slowdown `change` as active since step `since`. Returns true if it
 * was inactive before or active since another step. */
static bool activate_change(lhi_persistent_change *change, uint64_t since)
{
    bool is_news = !change->is_active || change->since_step != since;
    change->is_active = true;
    change->since_step = since;
    return is_news;
}

/* Updates the records of all slowdowns from the active events in `now`. Returns
 * true if one began, changed or ended since the last call. An end counts from
 * the second iteration without the slowdown, as the monitor reports it. */
static bool update_changes(lh_adapt *a, const lh_adapt_input *now)
{
    lhi_persistent_change *quiet = &a->changes[a->n_changes - 1];
    bool is_news = false;
    for (uint32_t i = 0; i < a->n_changes; i++)
        a->changes[i].is_observed = false;
    for (uint32_t i = 0; i < now->n_events; i++) {
        lhi_persistent_change *change = find_change(a, &now->events[i]);
        if (activate_change(change, now->events[i].first_step))
            is_news = true;
        change->is_observed = true;
    }
    if (now->n_events == 0) {
        if (!quiet->is_active) /* before the first call nothing was slow */
            is_news = activate_change(
                quiet, a->step == UINT64_MAX ? 0 : now->step - 1);
        quiet->is_observed = true;
    }
    for (uint32_t i = 0; i < a->n_changes; i++)
        if (a->changes[i].is_active && !a->changes[i].is_observed) {
            lhi_persistent_change_end(&a->changes[i], now->step - 1);
            is_news = true;
        }
    return is_news;
}

/* --- decisions ------------------------------------------------------------ */

/* Evaluates all schedule candidates on the pipeline measured in `now`, and
 * stores the fastest one in a->candidate rather than the last search's. */
static lh_status repeat_search(lh_adapt *a, const lh_adapt_input *now,
                               lh_error *err)
{
    lhi_adapt_candidate_result found;
    LHI_TRY(lhi_adapt_find_candidate(a, now, &found, err));
    lh_schedule_free(a->candidate.schedule);
    a->candidate = found;
    return LH_OK;
}

void lhi_adapt_request_search(lh_adapt *a)
{
    a->needs_search = true;
    a->was_refused = false;
    a->is_final_search = false;
}

/* Sets the decision to "no switch": the caller has not answered an earlier
 * proposal with lh_adapt_confirm(). */
static void report_unanswered(lh_adapt *a)
{
    a->decision.is_switch = false;
    a->decision.why = "an earlier switch is not confirmed yet";
}

lh_status lh_adapt_decide(lh_adapt *a, const lh_adapt_input *given,
                          const lh_decision **out, lh_error *err)
{
    lh_adapt_input now;
    LHI_TRY(LHI_OPTIONS_COPY(lh_adapt_input, &now, given, err));
    LHI_TRY(check_input(a, &now, err));
    bool is_first = a->step == UINT64_MAX;
    if (update_changes(a, &now) || is_first) {
        a->needs_search = true;
        a->was_refused = false;
        a->is_final_search = false;
        a->changed_step = now.step;
    }
    a->step = now.step;
    if (a->is_pending) {
        report_unanswered(a);
        *out = &a->decision;
        return LH_OK;
    }
    /* Searches once more after `min_interval_steps`, when estimates average
     * more iterations. */
    bool is_late = now.step - a->changed_step >= a->min_interval_steps;
    bool searches = a->needs_search || (is_late && !a->is_final_search);
    if (searches) {
        LHI_TRY(repeat_search(a, &now, err));
        a->needs_search = false;
        a->is_final_search = is_late;
    }
    lhi_adapt_decide_switch(a, &now, searches);
    a->is_pending = a->decision.is_switch;
    *out = &a->decision;
    return LH_OK;
}

lh_status lh_adapt_confirm(lh_adapt *a, uint64_t step, bool followed,
                           lh_error *err)
{
    if (!a->is_pending)
        return lhi_fail(err, LH_EINVAL, "no switch is pending that could be %s",
                        followed ? "followed" : "refused");
    a->is_pending = false;
    a->was_refused = !followed;
    if (followed) {
        lh_schedule_free(a->running);
        a->running = a->candidate.schedule;
        a->running_name = a->candidate.name;
        a->candidate.schedule = NULL;
        a->path = a->candidate.path;
        if (a->path == LH_DATA_PATH_MIXED)
            memcpy(a->running_links, a->candidate.links,
                   a->pipeline->n_links * sizeof *a->running_links);
        a->baseline_ns = a->candidate.current_ns = a->candidate.predicted_ns;
        a->has_switched = true;
        a->switched_step = step;
    }
    return LH_OK;
}
