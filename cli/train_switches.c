/* SPDX-License-Identifier: Apache-2.0 */
/* Implements --schedule-at: schedule switches during a run. All schedules are
 * read, lowered and verified before the run starts, so that errors do not
 * appear days later. */
#define _POSIX_C_SOURCE 200809L
#include "train_internal.h"
#include "values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses one schedule change "STEP=NAME" in place (the schedule that runs from
 * STEP on) into *out; its name points into `text`. */
static lh_status read_change(cli *c, const cli_view *v, char *text,
                             train_change *out)
{
    const train_settings *s = c->settings;
    char *name = strchr(text, '=');
    bool counts;
    if (name)
        *name = 0;
    counts =
        name && name[1] && cli_parse_count(text, 0, UINT32_MAX, &out->step);
    if (name)
        *name++ = '=';
    if (!counts)
        return cli_usage(c,
                         "--schedule-at: '%.80s' is not STEP=S.csv or "
                         "STEP=METHOD, as 10=zb-h1",
                         text);
    if (out->step >= s->steps)
        return cli_usage(c,
                         "--schedule-at %" PRIu64 "=%.80s: the run has "
                         "iterations 0 to %" PRIu32 "; see --steps",
                         out->step, name, s->steps - 1);
    if (!cli_is_method(name) && !strpbrk(name, "./"))
        return cli_check_method(c, "--schedule-at", name);
    if (!cli_is_method(name))
        CLI_TRY(cli_check_named_file(c, name));
    const bool cut = cli_has_word(CLI_SPLITTING_METHODS, name);
    out->view.pipeline = v->pipeline;
    lh_status status = cli_view_schedule(c, &out->view, name, &s->model,
                                         cut ? s->sub_blocks : 1);
    if (status == LH_OK || c->usage)
        return status;
    lh_error why = c->err;
    return cli_error(c, status, "--schedule-at %" PRIu64 ": %.440s", out->step,
                     why.text);
}

uint32_t train_first_sub_blocks(const train_settings *s)
{
    char name[32];
    const char *at = s->schedule_at;
    if (s->schedule && cli_has_word(CLI_SPLITTING_METHODS, s->schedule))
        return s->sub_blocks;
    for (; at && (at = strchr(at, '=')); at++)
        if (sscanf(at + 1, "%31[^;]", name) == 1 &&
            cli_has_word(CLI_SPLITTING_METHODS, name))
            return 1;
    return s->sub_blocks;
}

/* Compares schedule changes by step, for qsort(). */
static int compare_steps(const void *a, const void *b)
{
    const train_change *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

lh_status train_changes_read(cli *c, const cli_view *v, train_changes *out)
{
    const train_settings *s = c->settings;
    uint32_t n = 1;
    for (const char *at = s->schedule_at; at && (at = strchr(at, ';')); at++)
        n++;
    *out = (train_changes){.current = v->method,
                           .path = cli_data_path_name(&s->model),
                           .initial_view = v};
    if (!s->schedule_at)
        return LH_OK;
    out->all = calloc(n, sizeof *out->all);
    char *rest = out->text = strdup(s->schedule_at);
    lh_status status = out->all && rest ? LH_OK : cli_no_memory(c);
    while (status == LH_OK && rest) {
        char *one = rest;
        rest = strchr(one, ';');
        if (rest)
            *rest++ = 0;
        status = read_change(c, v, one, &out->all[out->n++]);
    }
    CLI_TRY(status);
    qsort(out->all, out->n, sizeof *out->all, compare_steps);
    for (uint32_t i = 1; i < out->n; i++)
        if (out->all[i].step == out->all[i - 1].step)
            return cli_usage(c,
                             "--schedule-at: two schedules for iteration "
                             "%" PRIu64,
                             out->all[i].step);
    return LH_OK;
}

lh_status train_changes_check(cli *c, const cli_view *v,
                              const lh_exec_options *exec,
                              const train_changes *changes)
{
    for (uint32_t i = 0; i < changes->n; i++) {
        const train_change *x = &changes->all[i];
        lh_exec *made = NULL;
        lh_error why;
        lh_status status =
            lh_exec_make(v->pipeline, x->view.schedule, exec, &made, &why);
        lh_exec_free(made);
        if (status != LH_OK)
            return cli_error(c, status,
                             "--schedule-at %" PRIu64 "=%.100s: %.380s",
                             x->step, x->view.method, why.text);
    }
    return LH_OK;
}

const lh_reschedule *train_changes_get(train_changes *changes, uint64_t step)
{
    /* A run resumed from a checkpoint starts with the last schedule before it,
     * a restarted run with the initial one. */
    uint32_t n = 0;
    if (step <= changes->last_step)
        changes->n_proposed = changes->layers.n_proposed =
            changes->hosts.n_proposed = 0;
    changes->last_step = step;
    while (n < changes->n && changes->all[n].step <= step)
        n++;
    lh_reschedule *given = &changes->given;
    *given = (lh_reschedule){.size = sizeof *given,
                             .schedule = changes->initial_view->schedule,
                             .name = changes->initial_view->method};
    const bool moves = train_migrations_get(changes, step, given);
    if (n == changes->n_proposed && !moves)
        return NULL;
    if (n != changes->n_proposed)
        given->why =
            moves ? "--schedule-at, with a migration" : "--schedule-at";
    changes->n_proposed = n;
    if (n) {
        given->schedule = changes->all[n - 1].view.schedule;
        given->name = changes->all[n - 1].view.method;
    }
    return given;
}

/* Returns the step number of the run's last completed iteration. */
uint64_t train_last_step(const lh_train_result *r)
{
    return r->n_iterations ? r->iterations[r->n_iterations - 1].step
                           : UINT64_MAX;
}

uint32_t train_changes_count_applied(const train_changes *changes,
                                     const lh_train_result *r, uint64_t step)
{
    uint32_t n, followed = 0;
    const lh_switch *rows = lh_train_switches(r, &n);
    for (uint32_t i = 0; i < n && rows[i].step <= step; i++)
        for (uint32_t k = 0; k < changes->n && !rows[i].refused; k++)
            if (changes->all[k].step <= rows[i].step)
                followed = k + 1;
    return followed;
}

uint32_t train_changes_count_final(const train_changes *changes,
                                   const lh_train_result *r)
{
    return train_changes_count_applied(changes, r, train_last_step(r));
}

const train_change *train_changes_find_last(const train_changes *changes,
                                            const lh_train_result *r)
{
    uint32_t n = train_changes_count_final(changes, r);
    return n ? &changes->all[n - 1] : NULL;
}

void train_changes_fini(train_changes *changes)
{
    for (uint32_t i = 0; i < changes->n; i++)
        cli_view_fini(&changes->all[i].view);
    free(changes->all);
    free(changes->text);
    free(changes->rails.text);
    train_migrations_fini(changes);
    json_decref(changes->pending_log);
    json_decref(changes->pending_events);
    json_decref(changes->pending_decisions);
    lh_event_timeline_free(changes->event_timeline);
    lh_host_placement_free(changes->placement);
    cli_paths_fini(&changes->paths);
}
