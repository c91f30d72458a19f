/* SPDX-License-Identifier: Apache-2.0 */
/* Implements --adapt: reports a run's events and decisions. */
#include "train_internal.h"
#include "wrap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *train_schedule_name(const cli_view *began, const char *to)
{
    return strcmp(to, "original") == 0 ? began->method : to;
}

/* Checks whether the event is a departure from a slow level, with which the
 * monitor began. */
static bool is_faster(const lh_monitor_event *e)
{
    return e->change != LH_MONITOR_ENDS && e->current_ns < e->baseline_ns;
}

/* Returns a monitor event (detected change) as JSON: the link or device, its
 * times before and after, and the iteration time lost. */
static json_t *event_json(const lh_adapt_event *n)
{
    const lh_monitor_event *e = &n->event;
    return json_pack(
        "{s:I, s:I, s:s, s:I, s:s, s:f, s:f, s:o, s:s}", "step",
        (json_int_t)n->step, "from", (json_int_t)e->first_step, "what",
        lh_monitor_target_name(e->target), "index", (json_int_t)e->index,
        "change", is_faster(e) ? "recovers" : lh_monitor_change_name(e->change),
        "before_s", e->baseline_ns / 1e9, "now_s", e->current_ns / 1e9,
        "cost_s", cli_seconds(e->cost_ns), "text", n->text);
}

/* Returns a decision of the adaptation (schedule switch or not) as JSON:
 * schedule, data path, predicted times and reason. */
static json_t *decision_json(cli *c, const cli_view *began,
                             const lh_adapt_event *n)
{
    return json_pack(
        "{s:I, s:b, s:s, s:s, s:o, s:o, s:o, s:s}", "step", (json_int_t)n->step,
        "switch", (int)n->is_switch, "to", train_schedule_name(began, n->name),
        "path", train_path_name(c, n->path), "now_s", cli_seconds(n->now_ns),
        "predicted_s", cli_seconds(n->predicted_ns), "bound_s",
        cli_seconds(n->bound_ns), "why", n->text);
}

bool train_notice_add(cli *c, const cli_view *began, const lh_adapt_event *n,
                      json_t *noticed, json_t *decisions)
{
    json_t *to = n->is_decision ? decisions : noticed;
    return json_array_append_new(to, n->is_decision ? decision_json(c, began, n)
                                                    : event_json(n)) == 0;
}

void train_changes_notice(cli *c, train_changes *changes,
                          const lh_adapt_event *n)
{
    if (!changes->pending_events)
        changes->pending_events = json_array();
    if (!changes->pending_decisions)
        changes->pending_decisions = json_array();
    if (changes->pending_events && changes->pending_decisions)
        train_notice_add(c, changes->initial_view, n, changes->pending_events,
                         changes->pending_decisions);
}

void train_notices_log(train_changes *changes, json_t *line)
{
    json_t **const lists[] = {&changes->pending_events,
                              &changes->pending_decisions};
    static const char *const keys[] = {"noticed", "decisions"};
    for (int i = 0; i < 2; i++) {
        if (*lists[i] && json_array_size(*lists[i]) > 0)
            json_object_set(line, keys[i], *lists[i]);
        json_decref(*lists[i]);
        *lists[i] = NULL;
    }
}

lh_status train_notices_json(cli *c, const cli_view *began,
                             const lh_train_result *r, json_t *to)
{
    uint32_t n;
    const lh_adapt_event *all = lh_train_adapt_events(r, &n);
    json_t *noticed = json_array(), *decisions = json_array();
    bool ok = noticed && decisions;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = train_notice_add(c, began, &all[i], noticed, decisions);
    if (ok) /* ownership moves to the array */
        ok = json_object_set_new(to, "monitor_s", cli_seconds(r->monitor_ns)) ==
                 0 &&
             json_object_set_new(to, "noticed", noticed) == 0 &&
             json_object_set_new(to, "decisions", decisions) == 0;
    return ok ? LH_OK : cli_no_memory(c);
}

void train_notices_print(cli *c, const lh_train_result *r)
{
    enum { MOST = 12 };
    uint32_t n, shown = 0;
    const lh_adapt_event *all = lh_train_adapt_events(r, &n);
    if (!n)
        cli_wrap(c, "noticed",
                 "nothing; the baseline is learned from the first iterations");
    for (uint32_t i = 0; i < n; i++) {
        if (shown++ < MOST)
            cli_wrap(c, all[i].is_decision ? "decided" : "noticed",
                     "after iteration %" PRIu64 ": %s", all[i].step,
                     all[i].text);
    }
    if (r->n_iterations && r->monitor_ns > 0) {
        char one[CLI_TIME_TEXT];
        int64_t all_ns = 0;
        for (uint32_t i = 0; i < r->n_iterations; i++)
            all_ns += r->iterations[i].ns;
        cli_wrap(
            c, "monitor",
            "%s of processor time on all ranks, %.2f %% of the iterations' "
            "time",
            cli_time_text(r->monitor_ns, one),
            100 * (double)r->monitor_ns / (double)all_ns);
    }
    if (shown > MOST)
        cli_print(c, "... and %" PRIu32 " more: see --json or --log\n",
                  shown - MOST);
}

lh_status train_notices_report(cli *c, const lh_train_result *r,
                               lh_report *report)
{
    static const char *const head[] = {"after iteration", "",
                                       "event and reason"};
    char step[24];
    uint32_t n;
    const lh_adapt_event *all = lh_train_adapt_events(r, &n);
    cli_table t = {0};
    cli_table_row(&t, 3, head);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(step, sizeof step, "%" PRIu64, all[i].step);
        const char *cells[] = {step, all[i].is_decision ? "decided" : "noticed",
                               all[i].text};
        cli_table_row(&t, 3, cells);
    }
    if (n == 0)
        cli_table_note(&t, "nothing detected; the baseline is learned from the "
                           "first iterations");
    return cli_table_report(c, "Detections and decisions", &t, report);
}

/* --- prediction --------------------------------------------------------- */

/* Simulates a schedule in `state` of the event timeline (active event set),
 * with the layers and ranks as the run's migrations left them; *out is the
 * makespan in ns. */
static lh_status find_makespan(cli *c, const train_changes *changes,
                               const lh_train_result *r, uint32_t state,
                               const lh_schedule *schedule, int64_t *out)
{
    lh_pipeline *p;
    CLI_TRY(
        train_pipeline_at(c, changes, NULL, r, train_last_step(r), state, &p));
    lh_status status = train_makespan(c, changes, p, schedule, out);
    lh_pipeline_free(p);
    return status;
}

/* Returns the index of the first of the run's final iterations with the same
 * schedule, data path and events as the last one. */
static uint32_t find_first_equal(const train_changes *changes,
                                 const lh_train_result *r)
{
    const lh_iteration *all = r->iterations;
    uint32_t n, i = r->n_iterations - 1;
    uint64_t from = 0, last = all[i].step;
    const lh_switch *rows = lh_train_switches(r, &n);
    const uint32_t state =
        lh_event_timeline_state(changes->event_timeline, last);
    for (uint32_t k = 0; k < n; k++)
        if (!rows[k].refused && rows[k].step <= last)
            from = rows[k].step;
    while (i > 0 && all[i - 1].step >= from &&
           lh_event_timeline_state(changes->event_timeline, all[i - 1].step) ==
               state)
        i--;
    return i;
}

lh_status train_adapt_predict(cli *c, const cli_view *v,
                              const train_changes *changes, lh_train_result *r)
{
    const lh_schedule *schedule = lh_train_schedule(r);
    int64_t quiet = 0, now = 0;
    if (!schedule)
        schedule = v->schedule;
    CLI_TRY(find_makespan(c, changes, r, 0, schedule, &quiet));
    CLI_TRY(find_makespan(
        c, changes, r,
        lh_event_timeline_state(changes->event_timeline, train_last_step(r)),
        schedule, &now));
    const uint32_t first = find_first_equal(changes, r);
    const uint32_t n = r->n_iterations - first;
    int64_t *ns = calloc(n, sizeof *ns);
    if (!ns)
        return cli_no_memory(c);
    for (uint32_t i = 0; i < n; i++)
        ns[i] = r->iterations[first + i].ns;
    r->median_ns = train_median(ns, n);
    free(ns);
    /* Lower bound: total pass time over the available processors. */
    int64_t least = r->predicted_ns > r->unshared_ns ? r->predicted_ns : 0;
    r->unshared_ns += now - quiet;
    r->predicted_ns = r->unshared_ns > least ? r->unshared_ns : least;
    r->error = r->predicted_ns > 0
                   ? (double)r->median_ns / (double)r->predicted_ns - 1
                   : 0;
    return LH_OK;
}
