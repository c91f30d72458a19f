/* SPDX-License-Identifier: Apache-2.0 */
/* A job's recorded steps, prepared for replay. */
#ifndef LHI_REPORT_DIAGNOSIS_RECORDING_H
#define LHI_REPORT_DIAGNOSIS_RECORDING_H

#include "report/diagnosis/defects.h"
#include "report/diagnosis/op_graph.h"
#include "report/diagnosis/rank_activity.h"

#include <longhaul/experimental/diagnose.h>

/* A step with its graph and measured times. */
typedef struct lhi_recorded_step {
    uint64_t step;
    const lhi_op_graph *graph;
    int64_t *duration_ns; /* each operation's replay duration */
    int64_t measured_ns;
    int64_t *passes_ns; /* per replica, from its first to its last pass */
} lhi_recorded_step;

/* A recording. All steps have the same stages and replicas. */
struct lh_recording {
    lhi_defect_counts remarks;
    uint32_t n_stages, n_replicas;
    uint32_t n_steps, room;
    lhi_recorded_step *steps; /* sorted by step number */
    uint32_t n_graphs, graphs_room;
    lhi_op_graph **graphs;
    /* PyTorch profiler traces: by rank, then in argument order. */
    lhi_recorded_activity *activities;
    uint32_t n_activities;
    lh_error unreplayed; /* why there are no steps, beside activities */
};

/* Counts workers. */
static inline uint32_t lhi_recording_n_workers(const lh_recording *r)
{
    return r->n_stages * r->n_replicas;
}

/* Adds a step's operations to the recording; a damaged step is only counted as
 * a defect. */
lh_status lhi_recording_add(lh_recording *recording, lhi_row_list *list,
                            lh_error *err);
/* Drops the steps whose stages and replicas differ from those in most steps.
 * LH_EINPUT: no step remains. */
lh_status lhi_recording_finalise(lh_recording *recording, const char *name,
                                 lh_error *err);

/* Reads a recording as lh_recording_read_mapped() does, without a rank map. */
lh_status lhi_recording_read(const char *const *paths, uint32_t n_paths,
                             lh_recording **out, lh_error *err);

/* Parses one recording from memory, plain or gzip-compressed; `name` appears in
 * error messages. Otherwise as lhi_recording_read(). */
lh_status lhi_recording_parse(const char *text, size_t len, const char *name,
                              lh_recording **out, lh_error *err);

/* Parses a recording with a rank map, see lh_recording_read_mapped(). */
lh_status lhi_recording_parse_mapped(const char *text, size_t len,
                                     const char *name, const lh_rank_map *map,
                                     lh_recording **out, lh_error *err);

#endif
