/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/search/infeasible_key.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A job's keys that may prevent all layouts. */
typedef enum key {
    SCHEDULE,
    TENSOR,
    CONTEXT,
    EXPERT,
    EXPERT_TENSOR,
    PIPELINE,
    DATA,
    MICRO_BATCH,
    CHUNKS_PER_DEVICE,
    LAYERS,
    OUTERMOST,
    SITES,
    SHARDING,
    ZERO,
    RECOMPUTE,
    N_KEYS
} key;

/* Capacity for a key's name, in bytes. */
enum { KEY_TEXT = 60 };

/* Returns the layout member that a job key for a parallel degree sets; NULL for
 * other keys. */
static uint32_t *get_degree(lh_layout *l, key which)
{
    switch (which) {
    case TENSOR:
        return &l->tensor;
    case CONTEXT:
        return &l->context;
    case EXPERT:
        return &l->expert;
    case EXPERT_TENSOR:
        return &l->expert_tensor;
    case PIPELINE:
        return &l->pipeline;
    case DATA:
        return &l->data;
    case MICRO_BATCH:
        return &l->micro_batch;
    case CHUNKS_PER_DEVICE:
        return &l->chunks_per_device;
    default:
        return NULL;
    }
}

/* Returns a key's name in job files, such as "layout.tensor". */
static const char *get_key_name(key which)
{
    static const char *const names[N_KEYS] = {
        "layout.schedule", "layout.tensor",        "layout.context",
        "layout.expert",   "layout.expert_tensor", "layout.pipeline",
        "layout.data",     "layout.micro_batch",   "layout.chunks_per_device",
        "layout.layers",   "layout.outermost",     "layout.sites",
        "layout.sharding", "training.zero",        "training.recompute"};
    return names[which];
}

/* Removes one key from the job, so that the search decides it; its old value
 * goes to `value` as ": 4" ("" for a list). Returns false if it was not set. */
static bool clear_key(lh_job *job, key which, char value[KEY_TEXT])
{
    lh_layout *l = &job->layout;
    lh_training *t = &job->training;
    uint32_t *degree = get_degree(l, which);
    /* `sites` gives replicas, unequal microbatches and tensor degrees. */
    if ((l->group_micro_batches && (which == DATA || which == MICRO_BATCH)) ||
        (l->site_tensors && which == TENSOR))
        degree = NULL;
    bool was = degree && *degree;
    value[0] = '\0';
    if (was) {
        snprintf(value, KEY_TEXT, ": %" PRIu32, *degree);
        *degree = 0;
    } else if (which == SCHEDULE && l->schedule) {
        was = true;
        snprintf(value, KEY_TEXT, ": %s", l->schedule);
        l->schedule = NULL;
    } else if (which == LAYERS && l->chunk_layers) {
        was = true;
        l->chunk_layers = NULL;
        l->n_chunk_layers = 0;
    } else if (which == OUTERMOST && l->outermost != LH_OUTERMOST_ANY) {
        was = true;
        snprintf(value, KEY_TEXT, ": %s", lh_outermost_name(l->outermost));
        l->outermost = LH_OUTERMOST_ANY;
    } else if (which == SITES && l->sites) {
        was = true;
        l->sites = NULL;
        l->group_micro_batches = l->site_tensors = NULL;
    } else if (which == SHARDING && l->sharding != LH_SHARDING_ANY) {
        was = true;
        snprintf(value, KEY_TEXT, ": %s", lh_sharding_name(l->sharding));
        l->sharding = LH_SHARDING_ANY;
    } else if (which == ZERO && t->zero_given) {
        was = true;
        snprintf(value, KEY_TEXT, ": %" PRIu32, t->zero);
        t->zero_given = false;
    } else if (which == RECOMPUTE && t->recompute_given) {
        was = true;
        snprintf(value, KEY_TEXT, ": %s", lh_recompute_name(t->recompute));
        t->recompute_given = false;
    }
    return was;
}

lh_status lhi_layout_search_has_any(const lhi_layout_search *s,
                                    const lh_job *job, lhi_config *at,
                                    bool *found, lh_error *err)
{
    lhi_layout_search any = {.job = job,
                             .options = s->options,
                             .mem = s->mem,
                             .candidates_only = true,
                             .workers = s->workers};
    any.options.quick = true;
    lh_status status = lhi_layout_search_branch_and_bound(&any, err);
    const lhi_candidate *best =
        status == LH_OK ? lhi_layout_search_find_best(&any) : NULL;
    *found = best != NULL;
    if (best)
        *at = best->config;
    free(any.candidates);
    return status;
}

lh_status lhi_find_infeasible_key(const lhi_layout_search *s,
                                  char text[LHI_INFEASIBLE_KEY_TEXT],
                                  lh_error *err)
{
    text[0] = '\0';
    for (int k = 0; k < N_KEYS && !text[0]; k++) {
        lh_job job = *s->job;
        lhi_config at;
        char value[KEY_TEXT];
        bool found;
        if (!clear_key(&job, (key)k, value))
            continue;
        LHI_TRY(lhi_layout_search_has_any(s, &job, &at, &found, err));
        const lh_layout *l = &at.layout;
        if (found)
            snprintf(text, LHI_INFEASIBLE_KEY_TEXT,
                     "; without %s%s a layout exists (tensor %" PRIu32
                     ", pipeline %" PRIu32 ", data %" PRIu32 ")",
                     get_key_name((key)k), value, l->tensor, l->pipeline,
                     l->data);
    }
    return LH_OK;
}
