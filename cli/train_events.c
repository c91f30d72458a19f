/* SPDX-License-Identifier: Apache-2.0 */
/* Implements --events: elements that become slow during a run, and each
 * iteration's simulated time. */
#include "train_internal.h"

#include <stdlib.h>

lh_status train_events_read(cli *c, cli_view *v, train_changes *changes,
                            lh_pipeline **own)
{
    const train_settings *s = c->settings;
    lh_pipeline *quiet;
    const cli_event_simulation play = {.replicas = s->replicas,
                                       .migration_ns = s->moving_ns / s->speed};
    if (s->replicas)
        CLI_TRY(
            cli_placement_build(c, &play, v->pipeline, &changes->placement));
    CLI_TRY(cli_event_timeline_read(c, s->events, v->pipeline, s->speed, 0,
                                    changes->placement,
                                    &changes->event_timeline));
    CLI_TRY(lh_event_timeline_pipeline(changes->event_timeline, 0, &quiet,
                                       &c->err));
    lh_pipeline_free(*own);
    v->pipeline = *own = quiet;
    return LH_OK;
}

/* Makespan cache by schedule switch and state, computed on demand. */
typedef struct makespans {
    cli *c;
    const cli_view *v;
    const train_changes *changes;
    const lh_train_result *r;
    uint32_t n_states;
    int64_t *ns; /* [switches so far * n_states + state]; -1: not computed */
} makespans;

/* Counts the run's schedule switches up to and including step `step`. */
static uint32_t count_switches(const lh_train_result *r, uint64_t step)
{
    uint32_t n, i = 0;
    const lh_switch *rows = lh_train_switches(r, &n);
    while (i < n && rows[i].step <= step)
        i++;
    return i;
}

/* Finds the makespan in ns of iteration `step`'s schedule, as if the events of
 * `state` (number in the event timeline) were active. Simulates each pair of
 * schedule and state once, and keeps the result in `m`. */
static lh_status find_makespan(makespans *m, uint64_t step, uint32_t state,
                               int64_t *out)
{
    size_t row = count_switches(m->r, step);
    int64_t *known = &m->ns[row * m->n_states + state];
    uint32_t schedule = train_changes_count_applied(m->changes, m->r, step);
    lh_pipeline *p;
    if (*known < 0) {
        CLI_TRY(train_pipeline_at(m->c, m->changes, m->v->pipeline, m->r, step,
                                  state, &p));
        lh_status status = train_makespan(
            m->c, m->changes, p,
            schedule ? m->changes->all[schedule - 1].view.schedule
                     : m->v->schedule,
            known);
        lh_pipeline_free(p);
        CLI_TRY(status);
    }
    *out = *known;
    return LH_OK;
}

/* Compares times, for qsort(). */
static int compare_times(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int64_t train_median(int64_t *ns, uint32_t n)
{
    qsort(ns, n, sizeof *ns, compare_times);
    return ns[(n - 1) / 2] + (ns[n / 2] - ns[(n - 1) / 2]) / 2;
}

/* Returns the median of ns[i] over the iterations i under the run's last
 * schedule; `some`: scratch space for n_iterations times. */
static int64_t get_final_median(const int64_t *ns, const lh_train_result *r,
                                int64_t *some)
{
    uint32_t last = count_switches(r, train_last_step(r)), n = 0;
    for (uint32_t i = 0; i < r->n_iterations; i++)
        if (count_switches(r, r->iterations[i].step) == last)
            some[n++] = ns[i];
    return train_median(some, n);
}

/* Predicts each iteration's time, in ns[i], and in alone[i] that with one
 * processor per rank. Sets the result's predictions to the medians under the
 * last schedule. `some`: scratch space for n_iterations times. */
static lh_status predict_all(makespans *m, lh_train_result *r, int64_t *ns,
                             int64_t *alone, int64_t *some)
{
    const train_changes *changes = m->changes;
    int64_t quiet;
    /* Lower bound: total pass time over the available processors. */
    int64_t least = r->predicted_ns > r->unshared_ns ? r->predicted_ns : 0;
    CLI_TRY(find_makespan(m, train_last_step(r), 0, &quiet));
    for (uint32_t i = 0; i < r->n_iterations; i++) {
        uint64_t step = r->iterations[i].step;
        CLI_TRY(find_makespan(
            m, step, lh_event_timeline_state(changes->event_timeline, step),
            &alone[i]));
        alone[i] += r->unshared_ns - quiet;
        ns[i] = alone[i] > least ? alone[i] : least;
    }
    r->unshared_ns = get_final_median(alone, r, some);
    r->predicted_ns = get_final_median(ns, r, some);
    if (r->predicted_ns > 0)
        r->error = (double)r->median_ns / (double)r->predicted_ns - 1;
    return LH_OK;
}

lh_status train_events_predict(cli *c, const cli_view *v,
                               const train_changes *changes, lh_train_result *r,
                               int64_t **out)
{
    makespans m = {.c = c, .v = v, .changes = changes, .r = r};
    uint32_t n_switches;
    if (!changes->event_timeline || r->is_on_other_process ||
        r->n_iterations == 0)
        return LH_OK;
    m.n_states = lh_event_timeline_n_states(changes->event_timeline);
    lh_train_switches(r, &n_switches);
    size_t n = m.n_states * ((size_t)n_switches + 1);
    int64_t *ns = calloc(r->n_iterations, sizeof *ns);
    int64_t *rest = calloc(2 * (size_t)r->n_iterations, sizeof *rest);
    m.ns = malloc(n * sizeof *m.ns);
    lh_status status = ns && rest && m.ns ? LH_OK : cli_no_memory(c);
    for (size_t i = 0; m.ns && i < n; i++)
        m.ns[i] = -1;
    if (status == LH_OK)
        status = predict_all(&m, r, ns, rest, rest + r->n_iterations);
    free(rest);
    free(m.ns);
    if (status != LH_OK)
        free(ns);
    else
        *out = ns;
    return status;
}
