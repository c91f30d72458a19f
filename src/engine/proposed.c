/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/proposed.h"

#include "pipe/file/pipe_file.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    lhi_proposed proposed; /* first: callers hold this */
    lhi_proposals *of;
    struct entry *next;
    uint32_t n_users;
    lh_exec *exec;
    char text[];
} entry;

struct lhi_proposals {
    const lh_pipeline *pipeline;
    const lh_exec_options *options;
    pthread_mutex_t lock;
    entry *first;
};

lh_status lhi_proposals_make(const lh_pipeline *pipeline,
                             const lh_exec_options *options,
                             lhi_proposals **out, lh_error *err)
{
    lhi_proposals *all = calloc(1, sizeof *all);
    if (!all)
        return lhi_fail_nomem(err);
    all->pipeline = pipeline;
    all->options = options;
    pthread_mutex_init(&all->lock, NULL);
    *out = all;
    return LH_OK;
}

void lhi_proposals_free(lhi_proposals *all)
{
    if (all)
        pthread_mutex_destroy(&all->lock);
    free(all);
}

static lh_status lower(const lhi_proposals *all, entry *e, lh_error *err)
{
    const lhi_proposed *p = &e->proposed;
    lh_schedule *schedule;
    LHI_TRY(lhi_schedule_parse_both(
        e->text, p->n_rows, p->n_links ? e->text + p->n_rows : NULL, p->n_links,
        "the proposed schedule", &schedule, err));
    lh_status status =
        lh_exec_make(all->pipeline, schedule, all->options, &e->exec, err);
    lh_schedule_free(schedule);
    e->proposed.exec = e->exec;
    return status;
}

static lh_status make_entry(lhi_proposals *all, const char *text,
                            uint32_t n_rows, uint32_t n_links, entry **out,
                            lh_error *err)
{
    size_t size = (size_t)n_rows + n_links;
    entry *e = calloc(1, sizeof *e + size + 1);
    if (!e)
        return lhi_fail_nomem(err);
    memcpy(e->text, text, size);
    e->of = all;
    e->proposed.text = e->text;
    e->proposed.n_rows = n_rows;
    e->proposed.n_links = n_links;
    lh_status status = lower(all, e, err);
    if (status != LH_OK) {
        free(e);
        return status;
    }
    e->next = all->first;
    all->first = e;
    *out = e;
    return LH_OK;
}

static entry *find_entry(const lhi_proposals *all, const char *text,
                         uint32_t n_rows, uint32_t n_links)
{
    entry *e = all->first;
    while (e &&
           (e->proposed.n_rows != n_rows || e->proposed.n_links != n_links ||
            memcmp(e->text, text, (size_t)n_rows + n_links) != 0))
        e = e->next;
    return e;
}

lh_status lhi_proposed_take(lhi_proposals *all, const char *text,
                            uint32_t n_rows, uint32_t n_links,
                            const lhi_proposed **out, lh_error *err)
{
    lh_status status = LH_OK;
    pthread_mutex_lock(&all->lock);
    entry *e = find_entry(all, text, n_rows, n_links);
    if (!e)
        status = make_entry(all, text, n_rows, n_links, &e, err);
    if (status == LH_OK)
        e->n_users++;
    pthread_mutex_unlock(&all->lock);
    if (status == LH_OK)
        *out = &e->proposed;
    return status;
}

const lhi_proposed *lhi_proposed_hold(const lhi_proposed *proposed)
{
    entry *e = (entry *)(uintptr_t)proposed;
    pthread_mutex_lock(&e->of->lock);
    e->n_users++;
    pthread_mutex_unlock(&e->of->lock);
    return proposed;
}

void lhi_proposed_release(const lhi_proposed *proposed)
{
    if (!proposed)
        return;
    entry *e = (entry *)(uintptr_t)proposed;
    lhi_proposals *all = e->of;
    pthread_mutex_lock(&all->lock);
    bool unused = --e->n_users == 0;
    entry **at = &all->first;
    while (unused && *at != e)
        at = &(*at)->next;
    if (unused)
        *at = e->next;
    pthread_mutex_unlock(&all->lock);
    if (unused) {
        lh_exec_free(e->exec);
        free(e);
    }
}
