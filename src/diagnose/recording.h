/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a job, ready to be played again. */
#ifndef LHI_RECORDING_H
#define LHI_RECORDING_H

#include "diagnose/op_graph.h"
#include "diagnose/remarks.h"

typedef struct lhi_recorded_step {
    uint64_t step;
    const lhi_op_graph *graph;
    int64_t *ns; /* of each of its operations, by itself */
    int64_t measured_ns;
    int64_t *passes_ns; /* of each replica, from its first to its last pass */
} lhi_recorded_step;

/* All steps have the same stages and replicas. */
struct lh_recording {
    lhi_remark_counts remarks;
    uint32_t n_stages, n_replicas;
    uint32_t n_steps, room;
    lhi_recorded_step *steps; /* by number */
    uint32_t n_graphs, graphs_room;
    lhi_op_graph **graphs;
};

static inline uint32_t lhi_n_workers(const lh_recording *r)
{
    return r->n_stages * r->n_replicas;
}

/* Takes the rows of a step; of a damaged one it keeps nothing but a remark. */
lh_status lhi_recording_add(lh_recording *recording, lhi_row_list *list,
                            lh_error *err);
/* Keeps the steps that have the ranks that most have. */
lh_status lhi_recording_end(lh_recording *recording, const char *name,
                            lh_error *err);

#endif
