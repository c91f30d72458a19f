/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the judge. It sees pipelines and schedules through their public
 * functions alone, so that a mistake made elsewhere is not made here again.
 *
 * In: a pipeline and a schedule, or a certificate. Out: what is wrong with them
 * (longhaul/check.h).
 *
 *   check.c          all questions to a schedule, one after the other
 *   judge_passes.c   is every pass there, once, in its place?
 *   judge_links.c    which messages does a link carry, and are all ordered?
 *   judge_memory.c   does it fit?
 *   judge_clock.c    does it run, and how long?
 *   verdict.c        what they find goes here
 *   certificate.c    all statements of a certificate
 *   claim.h          why no schedule is faster: closed forms claim_form.c,
 *                    windows claim_windows.c, clauses claim_clauses.c, over the
 *                    operations and machines of claim_model.c */
#ifndef LHI_JUDGE_H
#define LHI_JUDGE_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/check.h>
#include <stdbool.h>
#include <stdint.h>

enum { LHI_MAX_VIOLATIONS = 100 };

struct lh_verdict {
    lhi_arena *mem;
    uint32_t n_kept;
    uint64_t total;
    const char *texts[LHI_MAX_VIOLATIONS];
    int64_t makespan_ns; /* -1: cannot run */
    uint32_t n_devices;
    int64_t *peaks; /* per device */
};

/* One pass of the schedule. Nodes are numbered device by device, in order. */
typedef struct lhi_node_key {
    lh_pass pass;
    uint32_t node;
} lhi_node_key;

typedef struct lhi_judge {
    const lh_pipeline *pipeline;
    const lh_schedule *schedule;
    lh_verdict *verdict;
    lhi_arena *mem; /* scratch */
    bool no_memory; /* an allocation failed: the verdict is worthless */
    uint32_t n_devices, n_chunks, n_microbatches;
    uint32_t n_rows;
    uint32_t *first;      /* [row]: its first node; [n_rows]: their number */
    lh_pass *passes;      /* [node] */
    uint32_t *rows;       /* [node] */
    uint32_t n_sorted;    /* nodes that can be of this pipeline, ... */
    lhi_node_key *sorted; /* ... by chunk, microbatch, kind, part */
    uint32_t n_resources; /* links named alike are one */
    const char **resource_names;
    uint32_t *link_resources; /* [link] */
    uint32_t *forward;        /* [c]: link from chunk c to c + 1, or ... */
    uint32_t *backward;       /* [c]: link from chunk c to c - 1, or ... */
} lhi_judge;

/* ... there is no link: LHI_AT_ONCE between devices, LHI_IN_PLACE on one. */
#define LHI_AT_ONCE (UINT32_MAX - 1)
#define LHI_IN_PLACE UINT32_MAX

/* verdict.c: adds a violation. */
void lhi_violation(lhi_judge *judge, const char *format, ...) LHI_PRINTF(2, 3);
/* Adds `count` violations that nobody will read. */
void lhi_violations(lhi_judge *judge, uint64_t count);
bool lhi_verdict_full(const lhi_judge *judge);

/* The cell of a node in its row, counted from 1. */
uint32_t lhi_position(const lhi_judge *judge, uint32_t node);
/* The node of a pass, LH_NONE where the schedule has none. */
uint32_t lhi_find_pass(const lhi_judge *judge, const lh_pass *pass);
/* The node of D or B, LH_NONE where the schedule has neither. */
uint32_t lhi_find_gradient(const lhi_judge *judge, uint32_t chunk,
                           uint32_t microbatch);
/* The link that what the node makes travels on; see LHI_AT_ONCE. *consumer
 * (may be NULL) is set to the chunk that needs it. */
uint32_t lhi_link_of(const lhi_judge *judge, uint32_t node, uint32_t *consumer);

/* The part of `total` that falls to a pass that is W, by whole numbers that
 * add up to `total`. */
int64_t lhi_portion(int64_t total, const lh_pass *pass);

/* judge_passes.c: every pass exactly once, on its device, after what it needs
 * there. Fills `sorted`. */
lh_status lhi_judge_passes(lhi_judge *judge, lh_error *err);
/* judge_links.c: fills in resources and routes. */
lh_status lhi_find_links(lhi_judge *judge, lh_error *err);
/* judge_links.c: the explicit message orders. */
lh_status lhi_judge_links(lhi_judge *judge, lh_error *err);
/* judge_memory.c */
void lhi_judge_memory(lhi_judge *judge);
/* judge_clock.c: runs a schedule that has no violation so far. */
lh_status lhi_judge_clock(lhi_judge *judge, lh_error *err);

#endif
