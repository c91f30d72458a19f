/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether the best candidate is worth a switch, and writes the reason.
 */
#include "resilience/adapt/adapt_internal.h"
#include "resilience/adapt/migration.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void append_reason(lh_adapt *a, const char *format, ...)
    LHI_PRINTF(2, 3);

/* Appends formatted text to a->why, the decision's reason; truncates text
 * beyond its capacity. */
static void append_reason(lh_adapt *a, const char *format, ...)
{
    size_t used = strlen(a->why);
    va_list list;
    va_start(list, format);
    vsnprintf(a->why + used, sizeof a->why - used, format, list);
    va_end(list);
}

enum {
    TIME_TEXT = 24,
    END_REPORT_DELAY = 2 /* iterations until an end is reported */
};

/* Relative difference below which a link's two directions count as equally
 * slow. */
static const double DIRECTION_TOLERANCE = 0.02;

/* Formats a time, with its unit, into `text` (TIME_TEXT bytes), which it
 * returns. */
static const char *format_time_text(int64_t ns, char *text)
{
    double ms = (double)ns * 1e-6;
    if (ms >= 10000)
        snprintf(text, TIME_TEXT, "%.1f s", ms * 1e-3);
    else
        snprintf(text, TIME_TEXT, ms >= 100 ? "%.0f ms" : "%.3g ms", ms);
    return text;
}

/* Returns the link's active event in the opposite direction if it is as slow as
 * event `e`'s link; otherwise NULL. */
static const lh_monitor_event *find_opposite_event(const lh_adapt *a,
                                                   const lh_adapt_input *now,
                                                   const lh_monitor_event *e)
{
    if (e->target != LH_MONITOR_LINK)
        return NULL;
    const lh_link *l = lh_pipeline_link(a->pipeline, e->index);
    for (uint32_t i = 0; i < now->n_events; i++) {
        const lh_monitor_event *x = &now->events[i];
        if (x->target != LH_MONITOR_LINK)
            continue;
        const lh_link *back = lh_pipeline_link(a->pipeline, x->index);
        if (back->from == l->to && back->to == l->from &&
            fabs(x->current_ns - e->current_ns) <=
                DIRECTION_TOLERANCE * e->current_ns)
            return x;
    }
    return NULL;
}

/* Appends one slowdown to the decision's reason: the link or device of event
 * `e` with its current time; `both_directions`: the opposite link is equally
 * slow. */
static void append_event(lh_adapt *a, const lh_monitor_event *e,
                         bool both_directions)
{
    char now[TIME_TEXT];
    format_time_text((int64_t)e->current_ns, now);
    if (e->target != LH_MONITOR_LINK) {
        append_reason(a, "device %" PRIu32 " takes %s%s", e->index, now,
                      e->target == LH_MONITOR_DATA ? " for data-parallel "
                                                     "communication"
                                                   : "");
        return;
    }
    const lh_link *l = lh_pipeline_link(a->pipeline, e->index);
    if (both_directions)
        append_reason(a, "%" PRIu32 "-%" PRIu32 " takes %s each way",
                      l->from < l->to ? l->from : l->to,
                      l->from < l->to ? l->to : l->from, now);
    else
        append_reason(a, "%" PRIu32 ">%" PRIu32 " takes %s", l->from, l->to,
                      now);
}

/* Checks whether link number `i` has become slow. */
static bool is_slow_link(const lh_adapt_input *now, uint32_t i)
{
    for (uint32_t k = 0; k < now->n_events; k++) {
        const lh_monitor_event *e = &now->events[k];
        if (e->target == LH_MONITOR_LINK && e->index == i)
            return e->current_ns > e->baseline_ns;
    }
    return false;
}

/* Checks whether the links to device `d`, at least two, have all become slow
 * while no link from it has: its host probably receives late, because it is
 * paused or overloaded. */
static bool receives_late(const lh_adapt *a, const lh_adapt_input *now,
                          uint32_t d)
{
    uint32_t n_in = 0;
    for (uint32_t i = 0; i < lh_pipeline_n_links(a->pipeline); i++) {
        const lh_link *l = lh_pipeline_link(a->pipeline, i);
        if ((l->to == d && !is_slow_link(now, i)) ||
            (l->from == d && is_slow_link(now, i)))
            return false;
        n_in += l->to == d;
    }
    return n_in >= 2;
}

/* Returns the first device that receives late, in the order of the events;
 * LH_NONE: there is none. */
static uint32_t find_late_receiver(const lh_adapt *a, const lh_adapt_input *now)
{
    for (uint32_t k = 0; k < now->n_events; k++) {
        const lh_monitor_event *e = &now->events[k];
        if (e->target != LH_MONITOR_LINK)
            continue;
        const uint32_t to = lh_pipeline_link(a->pipeline, e->index)->to;
        if (receives_late(a, now, to))
            return to;
    }
    return LH_NONE;
}

/* Appends the active slowdowns in `now` to the decision's reason, the first few
 * by name. */
static void append_slowdowns(lh_adapt *a, const lh_adapt_input *now)
{
    enum { SHOWN = 3 };
    uint32_t n = 0;
    for (uint32_t i = 0; i < now->n_events; i++) {
        const lh_monitor_event *e = &now->events[i];
        const lh_monitor_event *back = find_opposite_event(a, now, e);
        if ((back && back < e) || n++ >= SHOWN)
            continue;
        append_reason(a, "%s", n > 1 ? ", " : "");
        append_event(a, e, back != NULL);
    }
    if (n > SHOWN)
        append_reason(a, " and %" PRIu32 " more", n - SHOWN);
    const uint32_t late = find_late_receiver(a, now);
    if (late != LH_NONE)
        append_reason(a,
                      " (all links to device %" PRIu32
                      " and none from it: its host may be paused or "
                      "overloaded)",
                      late);
    append_reason(a, n ? ": " : "no slowdown is known: ");
}

/* Returns a candidate's name as printed in a reason; the initial schedule is
 * called "the original order". */
static const char *format_candidate_name(const char *name)
{
    return strcmp(name, lh_adapt_candidate(0)) == 0 ? "the original order"
                                                    : name;
}

/* Appends the candidate's data path to the decision's reason if it differs from
 * the running one: direct messages, all delegated to helper threads, or slow
 * links delegated. */
static void append_path(lh_adapt *a, const lhi_adapt_candidate_result *f)
{
    uint32_t n = lh_pipeline_n_links(a->pipeline);
    if (f->path == LH_DATA_PATH_MIXED) {
        if (a->path == LH_DATA_PATH_MIXED &&
            memcmp(f->links, a->running_links, n * sizeof *f->links) == 0)
            return;
        append_reason(a, ", slow links delegated");
    } else if (f->path != a->path) {
        append_reason(a, f->path == LH_DATA_PATH_DIRECT
                             ? ", all messages direct"
                             : ", all messages delegated");
    }
}

/* Returns for about how many iterations a switch would help: the expected
 * remaining duration of the slowdowns in `now` (all remaining iterations if
 * they are permanent), minus the iterations until the switch takes effect. */
static uint64_t estimate_benefit_steps(const lh_adapt *a,
                                       const lh_adapt_input *now)
{
    uint64_t left = now->is_permanent
                        ? UINT64_MAX
                        : lhi_persistent_change_estimate_remaining(
                              a->changes, a->n_changes, now->step);
    left = left < now->steps_left ? left : now->steps_left;
    return left > LH_ADAPT_DECISION_LATENCY ? left - LH_ADAPT_DECISION_LATENCY
                                            : 0;
}

/* Returns a switch's cost in ns: the switch's duration, plus the time that the
 * candidate loses against the running schedule after the slowdowns have ended,
 * until the run switches back. The run can switch back once the monitor has
 * reported the end, but no earlier than min_interval_steps after the switch. */
static double compute_switch_cost(const lh_adapt *a, const lh_adapt_input *now)
{
    uint64_t lasts = a->decision.benefit_steps,
             stays = END_REPORT_DELAY + LH_ADAPT_DECISION_LATENCY,
             passed = LH_ADAPT_DECISION_LATENCY + lasts;
    if (a->min_interval_steps > stays + lasts)
        stays = a->min_interval_steps - lasts;
    uint64_t left = now->steps_left > passed ? now->steps_left - passed : 0;
    return (double)a->switch_ns + (double)a->candidate.loss_after_ns *
                                      (double)(stays < left ? stays : left);
}

double lhi_adapt_compute_least_gain(double noise)
{
    /* Two standard errors: 95 % of normally distributed means are nearer. */
    return 2 * noise;
}

/* Returns the rule that forbids a switch now, as text: the ranks have refused
 * it, it saves less than the noise or too little, or the last switch is too
 * recent. NULL: none forbids it. */
static const char *find_objection(const lh_adapt *a, const lh_adapt_input *now)
{
    const lhi_adapt_candidate_result *f = &a->candidate;
    const lh_decision *d = &a->decision;
    double gain = (double)(f->current_ns - f->predicted_ns);
    if (a->was_refused)
        return "it was refused";
    if (gain < lhi_adapt_compute_least_gain(now->noise) * (double)f->current_ns)
        return "that is less than the scatter of the iterations";
    if (gain * (double)d->benefit_steps <= compute_switch_cost(a, now))
        return "the slowdown is expected to last for too few iterations";
    bool is_urgent = (double)f->current_ns >=
                     (1 + a->urgent_slowdown) * (double)a->baseline_ns;
    if (a->has_switched && !is_urgent &&
        now->step + 1 + LH_ADAPT_DECISION_LATENCY <
            a->switched_step + a->min_interval_steps)
        return "the last switch was too recent";
    return NULL;
}

/* Writes the reason to continue with the current schedule into a->why;
 * `objection`: the rule that forbids the switch, NULL: no candidate is
 * faster. */
static void explain_no_switch(lh_adapt *a, const lh_adapt_input *now,
                              const char *objection)
{
    char one[TIME_TEXT], other[TIME_TEXT];
    const lhi_adapt_candidate_result *f = &a->candidate;
    append_slowdowns(a, now);
    append_reason(a, "%s an iteration", format_time_text(f->current_ns, one));
    if (!objection) {
        append_reason(a, ", and no candidate is faster");
        return;
    }
    append_reason(a, ", %s with %s", format_time_text(f->predicted_ns, other),
                  format_candidate_name(f->name));
    append_path(a, f);
    append_reason(a, "; %s", objection);
}

/* Sets the decision to a switch to the best candidate found, and writes its
 * reason: the slowdowns in `now` and the iteration times before and after. */
static void propose(lh_adapt *a, const lh_adapt_input *now)
{
    char one[TIME_TEXT], other[TIME_TEXT];
    const lhi_adapt_candidate_result *f = &a->candidate;
    lh_decision *d = &a->decision;
    d->is_switch = true;
    d->schedule = f->schedule;
    d->name = f->name;
    d->path = f->path;
    d->delegated = f->path == LH_DATA_PATH_MIXED ? f->links : NULL;
    d->predicted_ns = f->predicted_ns;
    append_slowdowns(a, now);
    append_reason(a, "%s an iteration, %s with %s",
                  format_time_text(f->current_ns, one),
                  format_time_text(f->predicted_ns, other),
                  format_candidate_name(f->name));
    append_path(a, f);
}

void lhi_adapt_decide_switch(lh_adapt *a, const lh_adapt_input *now,
                             bool is_new)
{
    const lhi_adapt_candidate_result *f = &a->candidate;
    lh_decision *d = &a->decision;
    *d = (lh_decision){
        .schedule = a->running,
        .name = a->running_name,
        .path = a->path,
        .delegated = a->path == LH_DATA_PATH_MIXED ? a->running_links : NULL,
        .current_ns = f->current_ns,
        .predicted_ns = f->current_ns,
        .bound_ns = f->bound_ns,
        .switch_ns = a->switch_ns,
        .benefit_steps = estimate_benefit_steps(a, now),
        .effort = is_new ? f->effort : 0,
        .why = a->why};
    a->why[0] = '\0';
    double gain = (double)(f->current_ns - f->predicted_ns);
    bool is_better =
        f->schedule && gain > 0 && gain >= a->min_gain * (double)f->current_ns;
    const char *objection = is_better ? find_objection(a, now) : NULL;
    if (is_better && !objection)
        propose(a, now);
    else
        explain_no_switch(a, now, objection);
    if (!is_better)
        a->baseline_ns = f->current_ns;
    if (d->predicted_ns > 0)
        d->gap =
            (double)(d->predicted_ns - d->bound_ns) / (double)d->predicted_ns;
    if (d->bound_ns > 0 && d->gap >= 0.0005)
        append_reason(a, "; no schedule is more than %.1f %% faster",
                      100 * d->gap);
    else if (d->bound_ns > 0)
        append_reason(a, "; no schedule is faster");
    if (d->bound_ns > 0 && d->is_switch)
        append_reason(a, " than %s", format_candidate_name(f->name));
}
