/* SPDX-License-Identifier: Apache-2.0 */
/* Which layouts a job leaves open, as a tree: each level decides something
 * more, and what is not decided yet is 0. */
#ifndef LHI_SPACE_H
#define LHI_SPACE_H

#include "plan/layout/sites.h"

/* More only if the job fixes micro_batch. */
#define LHI_MOST_MICROBATCHES 4096

/* What a configuration has decided. */
typedef enum lhi_level {
    LHI_LEVEL_NONE,
    LHI_LEVEL_GROUP,   /* tensor, context, expert, micro_batch */
    LHI_LEVEL_WORK,    /* and recomputation */
    LHI_LEVEL_DEGREES, /* and pipeline, data, microbatches */
    LHI_LEVEL_PLACED,  /* and where the ranks are */
    LHI_LEVEL_STATE,   /* and ZeRO stage and sharding */
    LHI_LEVEL_WHOLE,   /* and the chunks */
} lhi_level;

/* Whether kinds of sharding differ for it: replicas of several datacenters
 * share state. */
bool lhi_sharding_matters(const lh_job *job, const lhi_config *config);

/* Why job->target does not take a configuration, and what that had decided. */
typedef struct lhi_space_refusal {
    lhi_level level; /* LHI_LEVEL_NONE: there is none */
    lh_error why;
} lhi_space_refusal;

typedef struct lhi_space {
    const lh_job *job;
    uint32_t node;  /* GPUs of the smallest node */
    uint32_t *data; /* what divides the batch, the largest first */
    uint32_t n_data;
    lhi_sites_store *places;
    lhi_space_refusal *refused; /* takes the first of the highest level that
 lhi_space_children() meets; NULL: none is wanted */
} lhi_space;

/* Places of configurations live in `mem`. */
lh_status lhi_space_init(const lh_job *job, lhi_arena *mem, lhi_space *out,
                         lh_error *err);
void lhi_space_fini(lhi_space *space);

/* Values that a job's search looks at where it leaves them open; others are
 * looked at where it gives them. */
bool lhi_space_tensor(const lhi_space *space, uint32_t tensor);
bool lhi_space_context(const lhi_space *space, uint32_t context);
bool lhi_space_micro_batch(uint32_t size);
bool lhi_space_chunks(uint32_t chunks);

/* Takes one configuration that has decided one level more; *dropped counts
 * those left out for having too many microbatches. */
typedef lh_status lhi_space_visit(void *context, const lhi_config *config,
                                  lh_error *err);
lh_status lhi_space_children(const lhi_space *space, lhi_level level,
                             const lhi_config *config, uint64_t *dropped,
                             lhi_space_visit *visit, void *context,
                             lh_error *err);

/* How many whole configurations lie below this one; as long as places are open,
 * without other ones than those that `outermost` stands for. */
uint64_t lhi_space_count(const lhi_space *space, lhi_level level,
                         const lhi_config *config);

#endif
