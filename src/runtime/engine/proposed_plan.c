/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/proposed_plan.h"

#include "base/options.h"
#include "schedule/pipeline/file/pipe_file.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A reference-counted plan in the list. */
typedef struct entry {
    lhi_proposed_plan proposed; /* first: callers hold this */
    lhi_proposals *of;
    struct entry *next;
    uint32_t n_users;
    lh_exec *exec;
    lhi_rank_assignment assignment;
    lh_pipeline *pipeline; /* NULL: the run's own */
    char text[];
} entry;

/* The plan list in use. */
struct lhi_proposals {
    const lh_pipeline *pipeline;
    const lh_exec_options *options;
    lhi_rank_assignment_limits limits;
    pthread_mutex_t lock;
    entry *first;
};

lh_status lhi_proposals_make(const lh_pipeline *pipeline,
                             const lh_exec_options *options,
                             const lhi_rank_assignment_limits *limits,
                             lhi_proposals **out, lh_error *err)
{
    lhi_proposals *all = calloc(1, sizeof *all);
    if (!all)
        return lhi_fail_nomem(err);
    all->pipeline = pipeline;
    all->options = options;
    if (limits)
        all->limits = *limits;
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

/* Formats a data path as text for a proposal into `out`: its name and, if it is
 * mixed, a flag per link from delegated[n_links]. Returns the length. */
uint32_t lhi_paths_format(lh_data_path path, const bool *delegated,
                          uint32_t n_links, char *out)
{
    if (path != LH_DATA_PATH_MIXED)
        return (uint32_t)sprintf(out, "%s", lh_data_path_name(path));
    for (uint32_t i = 0; i < n_links; i++)
        out[i] = delegated[i] ? '1' : '0';
    return n_links;
}

/* Parses the text of a data path (`n` characters: direct, delegated through
 * host memory, or mixed with a flag for each of n_links links) into `o`;
 * links[i]: link i is delegated. */
static lh_status read_paths(const char *text, uint32_t n, uint32_t n_links,
                            bool *links, lh_exec_options *o, lh_error *err)
{
    char want[LHI_PATHS_TEXT_BYTES];
    for (int path = 0; path < LH_DATA_PATH_MIXED; path++) {
        uint32_t len =
            lhi_paths_format((lh_data_path)path, NULL, n_links, want);
        o->path = (lh_data_path)path;
        if (n == len && memcmp(text, want, n) == 0)
            return LH_OK;
    }
    o->path = LH_DATA_PATH_MIXED;
    bool valid = n == n_links;
    for (uint32_t i = 0; valid && i < n; i++) {
        valid = text[i] == '0' || text[i] == '1';
        links[i] = text[i] == '1';
    }
    if (!valid)
        return lhi_fail(err, LH_EINPUT,
                        "invalid paths of the proposed schedule for the "
                        "pipeline's %u links",
                        n_links);
    return LH_OK;
}

/* Sets the options for building an entry's execution plan with the entry's data
 * path. `links`: scratch for the delegated links; `costs` receives the
 * delegation options. */
static lh_status fill_options(const entry *e, lh_delegation *costs, bool *links,
                              lh_exec_options *out, lh_error *err)
{
    const lhi_proposal_texts *t = &e->proposed.texts;
    *out = *e->of->options;
    if (!t->n_paths)
        return LH_OK;
    LHI_TRY(read_paths(e->text + t->n_rows + t->n_links, t->n_paths,
                       e->of->pipeline->n_links, links, out, err));
    *costs = (lh_delegation){.size = sizeof *costs};
    if (out->delegation)
        LHI_TRY(LHI_OPTIONS_COPY(lh_delegation, costs, out->delegation, err));
    costs->links = out->path == LH_DATA_PATH_MIXED ? links : NULL;
    out->delegation = costs;
    return LH_OK;
}

/* Parses the rank assignment in the entry's texts and builds the pipeline for
 * its layers per chunk. */
static lh_status set_assignment(entry *e, lh_error *err)
{
    const lhi_proposal_texts *t = &e->proposed.texts;
    const lhi_proposals *all = e->of;
    const char *text = e->text + t->n_rows + t->n_links + t->n_paths;
    LHI_TRY(lhi_rank_assignment_parse(text, t->n_assignment, &all->limits,
                                      &e->assignment, err));
    if (e->assignment.layers)
        LHI_TRY(lh_layers_pipeline(all->limits.layers, all->pipeline,
                                   e->assignment.layers, &e->pipeline, err));
    e->proposed.assignment = &e->assignment;
    e->proposed.pipeline = e->pipeline ? e->pipeline : all->pipeline;
    return LH_OK;
}

/* Parses the schedule of a proposal's entry and builds its execution plan. */
static lh_status lower_entry(entry *e, lh_error *err)
{
    const lhi_proposal_texts *t = &e->proposed.texts;
    const lh_pipeline *p = e->proposed.pipeline;
    lh_exec_options options;
    lh_delegation costs;
    lh_schedule *schedule = NULL;
    bool *links = calloc(p->n_links + (size_t)1, sizeof *links);
    lh_status status = links ? fill_options(e, &costs, links, &options, err)
                             : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_schedule_parse_both(
            e->text, t->n_rows, t->n_links ? e->text + t->n_rows : NULL,
            t->n_links, "the proposed schedule", &schedule, err);
    if (status == LH_OK)
        status = lh_exec_make(p, schedule, &options, &e->exec, err);
    lh_schedule_free(schedule);
    free(links);
    e->proposed.exec = e->exec;
    return status;
}

/* Frees an entry of the proposed plan list. */
static void free_entry(entry *e)
{
    lh_exec_free(e->exec);
    lh_pipeline_free(e->pipeline);
    lhi_rank_assignment_fini(&e->assignment);
    free(e);
}

/* Makes a list entry for a proposal with new texts, builds its execution plan,
 * and adds it to the list `all`. Errors as in lhi_proposed_plan_acquire(). */
static lh_status make_entry(lhi_proposals *all, const char *text,
                            const lhi_proposal_texts *texts, entry **out,
                            lh_error *err)
{
    size_t size = lhi_proposal_texts_size(texts);
    entry *e = calloc(1, sizeof *e + size + 1);
    if (!e)
        return lhi_fail_nomem(err);
    memcpy(e->text, text, size);
    e->of = all;
    e->proposed.text = e->text;
    e->proposed.texts = *texts;
    lh_status status = set_assignment(e, err);
    if (status == LH_OK)
        status = lower_entry(e, err);
    if (status != LH_OK) {
        free_entry(e);
        return status;
    }
    e->next = all->first;
    all->first = e;
    *out = e;
    return LH_OK;
}

/* Returns the list entry that was made from equal texts; NULL: none. */
static entry *find_entry(const lhi_proposals *all, const char *text,
                         const lhi_proposal_texts *texts)
{
    entry *e = all->first;
    while (e && (memcmp(&e->proposed.texts, texts, sizeof *texts) != 0 ||
                 memcmp(e->text, text, lhi_proposal_texts_size(texts)) != 0))
        e = e->next;
    return e;
}

lh_status lhi_proposed_plan_acquire(lhi_proposals *all, const char *text,
                                    const lhi_proposal_texts *texts,
                                    const lhi_proposed_plan **out,
                                    lh_error *err)
{
    lh_status status = LH_OK;
    pthread_mutex_lock(&all->lock);
    entry *e = find_entry(all, text, texts);
    if (!e)
        status = make_entry(all, text, texts, &e, err);
    if (status == LH_OK)
        e->n_users++;
    pthread_mutex_unlock(&all->lock);
    if (status == LH_OK)
        *out = &e->proposed;
    return status;
}

const lhi_proposed_plan *
lhi_proposed_plan_retain(const lhi_proposed_plan *proposed)
{
    entry *e = (entry *)(uintptr_t)proposed;
    pthread_mutex_lock(&e->of->lock);
    e->n_users++;
    pthread_mutex_unlock(&e->of->lock);
    return proposed;
}

void lhi_proposed_plan_release(const lhi_proposed_plan *proposed)
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
    if (unused)
        free_entry(e);
}
