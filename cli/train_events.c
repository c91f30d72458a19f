/* SPDX-License-Identifier: Apache-2.0 */
/* --events: what becomes slow while a run goes on, and what the simulator says
 * of each of its iterations. */
#include "train_parts.h"

#include <stdlib.h>

lh_status train_events_read(cli *c, cli_view *v, train_changes *changes,
                            lh_pipeline **own)
{
    const train_settings *s = c->settings;
    lh_pipeline *quiet;
    CLI_TRY(
        cli_course_read(c, s->events, v->pipeline, s->speed, &changes->course));
    CLI_TRY(lh_course_pipeline(changes->course, 0, &quiet, &c->err));
    lh_pipeline_free(*own);
    v->pipeline = *own = quiet;
    return LH_OK;
}

/* Makespans by schedule and state, worked out where they are asked for. */
typedef struct makespans {
    cli *c;
    const cli_view *v;
    const train_changes *changes;
    uint32_t n_states;
    int64_t *ns; /* [schedule * n_states + state]; -1: not yet */
} makespans;

static lh_status find_makespan(makespans *m, uint32_t schedule, uint32_t state,
                               int64_t *out)
{
    const train_settings *s = m->c->settings;
    const lh_sim_options sim = cli_sim_options(&s->model);
    int64_t *known = &m->ns[(size_t)schedule * m->n_states + state];
    lh_pipeline *p;
    lh_timeline *t;
    if (*known < 0) {
        CLI_TRY(lh_course_pipeline(m->changes->course, state, &p, &m->c->err));
        lh_status status =
            lh_simulate(p,
                        schedule ? m->changes->all[schedule - 1].view.schedule
                                 : m->v->schedule,
                        &sim, &t, &m->c->err);
        if (status == LH_OK) {
            *known = lh_timeline_makespan(t);
            lh_timeline_free(t);
        }
        lh_pipeline_free(p);
        CLI_TRY(status);
    }
    *out = *known;
    return LH_OK;
}

static int by_time(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Of the iterations that the result's median is of. */
static lh_status take_median(cli *c, const train_changes *changes,
                             const int64_t *ns, lh_train_result *r)
{
    uint32_t last = train_changes_followed(changes, r, UINT64_MAX), n = 0;
    int64_t *some = calloc(r->n_iterations + (size_t)1, sizeof *some);
    if (!some)
        return cli_no_memory(c);
    for (uint32_t i = 0; i < r->n_iterations; i++)
        if (train_changes_followed(changes, r, r->iterations[i].step) == last)
            some[n++] = ns[i];
    if (n > 0) {
        qsort(some, n, sizeof *some, by_time);
        int64_t lower = some[(n - 1) / 2], upper = some[n / 2];
        int64_t more = lower + (upper - lower) / 2 - r->predicted_ns;
        r->predicted_ns += more;
        r->unshared_ns += r->n_processors ? 0 : more;
        if (r->predicted_ns > 0)
            r->error = (double)r->median_ns / (double)r->predicted_ns - 1;
    }
    free(some);
    return LH_OK;
}

/* What follows the pipeline in an iteration is in the result's prediction. */
static lh_status predict_all(makespans *m, lh_train_result *r, int64_t *ns)
{
    const lh_course *course = m->changes->course;
    uint32_t last = train_changes_followed(m->changes, r, UINT64_MAX);
    int64_t quiet;
    CLI_TRY(find_makespan(m, last, 0, &quiet));
    for (uint32_t i = 0; i < r->n_iterations; i++) {
        uint64_t step = r->iterations[i].step;
        CLI_TRY(find_makespan(m, train_changes_followed(m->changes, r, step),
                              lh_course_state(course, step), &ns[i]));
        ns[i] += r->unshared_ns - quiet;
        if (r->n_processors && ns[i] < r->predicted_ns)
            ns[i] = r->predicted_ns;
    }
    return take_median(m->c, m->changes, ns, r);
}

lh_status train_events_predict(cli *c, const cli_view *v,
                               const train_changes *changes, lh_train_result *r,
                               int64_t **out)
{
    makespans m = {.c = c, .v = v, .changes = changes};
    if (!changes->course || r->elsewhere || r->n_iterations == 0)
        return LH_OK;
    m.n_states = lh_course_n_states(changes->course);
    size_t n = (size_t)m.n_states * (changes->n + 1);
    int64_t *ns = calloc(r->n_iterations, sizeof *ns);
    m.ns = malloc(n * sizeof *m.ns);
    lh_status status = ns && m.ns ? LH_OK : cli_no_memory(c);
    for (size_t i = 0; m.ns && i < n; i++)
        m.ns[i] = -1;
    if (status == LH_OK)
        status = predict_all(&m, r, ns);
    free(m.ns);
    if (status != LH_OK)
        free(ns);
    else
        *out = ns;
    return status;
}
