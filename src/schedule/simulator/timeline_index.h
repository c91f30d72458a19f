/* SPDX-License-Identifier: Apache-2.0 */
/* Indices into a timeline, for its analysis: passes by chunk and microbatch,
 * and every message's predecessor, collective and copy on its link. */
#ifndef LHI_SCHEDULE_SIMULATOR_TIMELINE_INDEX_H
#define LHI_SCHEDULE_SIMULATOR_TIMELINE_INDEX_H

#include "schedule/simulator/timeline.h"

/* Indices into the timeline. */
typedef struct lhi_timeline_index {
    const lh_pipeline *p;
    const lh_timeline *t;
    /* per chunk, microbatch: index of its F, and of its D or B, on the device
     */
    uint32_t *forward_run, *backward_run;
    /* Per message, then per piece of collectives on shared links: the previous
     * message or piece on its link, or with the priority `fair` in its queue
     * there, as an index into these arrays; for a piece the one that ended last
     * on its links. LH_NONE: the first one. */
    uint32_t *before_on_link;
    uint32_t *last_pieces;  /* per collective: its last piece, or LH_NONE */
    uint32_t *piece_before; /* per piece: the collective's previous one */
    uint32_t *before_on_dp; /* per collective: the previous one on its device's
                             * link */
    uint32_t *gathers;      /* per chunk: its all-gather, or LH_NONE */
    /* per lhi_pass_index(): the last operation to arrive among its
     * prerequisites; LH_NONE: none; NULL: no operations */
    uint32_t *awaited;
    uint32_t *copied;         /* per run: the last copy that it waits for;
                               * LH_NONE: none; NULL: no copies */
    uint32_t *before_on_copy; /* per copy: the previous one on its stream */
} lhi_timeline_index;

/* Returns pass i in the device's order, with its times. */
static inline const lh_timeline_run *
lhi_timeline_get_run(const lh_timeline *t, uint32_t device, uint32_t i)
{
    return &t->runs[t->offsets[device] + i];
}

/* Returns the pass count on a device. */
static inline uint32_t lhi_timeline_count_runs(const lh_timeline *t,
                                               uint32_t device)
{
    return (uint32_t)(t->offsets[device + 1] - t->offsets[device]);
}

/* Returns a pass's index by chunk and microbatch; kind and part are ignored. */
static inline size_t lhi_timeline_get_pass_index(const lhi_timeline_index *f,
                                                 const lh_pass *pass)
{
    return (size_t)pass->chunk * f->p->n_microbatches + pass->microbatch;
}

/* Returns the index of an F, D or B pass in its device's order. */
static inline uint32_t lhi_timeline_find_run(const lhi_timeline_index *f,
                                             const lh_pass *pass)
{
    return (pass->kind == LH_F
                ? f->forward_run
                : f->backward_run)[lhi_timeline_get_pass_index(f, pass)];
}

/* Builds all indices of timeline f->t in `mem`, which find the predecessors of
 * passes and transfers; f->p and f->t must be set. */
lh_status lhi_timeline_index_build(lhi_timeline_index *f, lhi_arena *mem,
                                   lh_error *err);

#endif
