/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the ranks' observations of one iteration into the monitor's input.
 *
 * Replicas run the same passes and send the same messages; the slowest one
 * counts, since the iteration waits for it. If ranks read different clocks,
 * only the first replica's messages count: otherwise the clock offset would
 * decide which is slowest. */
#ifndef LHI_RUNTIME_ENGINE_ITERATION_OBSERVATION_H
#define LHI_RUNTIME_ENGINE_ITERATION_OBSERVATION_H

#include "runtime/engine/job.h"

#include <longhaul/experimental/monitor.h>

/* Observation of one rank. */
typedef struct lhi_rank_observation {
    lhi_observation_header head;
    lhi_pass_observation *rows; /* per pass */
    lhi_collective_record *collectives;
    lhi_hop_observation *hops;
} lhi_rank_observation;

typedef struct lhi_iteration_observation
    lhi_iteration_observation; /* buffers shared by iterations */

/* Allocates the buffers for merging all ranks' observations of an iteration.
 * `device`: any rank's, for message sizes. */
lh_status lhi_iteration_observation_make(const lhi_job *job,
                                         const lhi_device *device,
                                         lhi_iteration_observation **out,
                                         lh_error *err);
/* Frees the observation buffers; NULL is allowed. */
void lhi_iteration_observation_free(lhi_iteration_observation *observation);

/* Merges all ranks' measurements under execution plan `exec` into one
 * observed iteration `step`. *out is borrowed until the next call. */
lh_status lhi_iteration_observation_merge(
    lhi_iteration_observation *observation, const lh_exec *exec,
    const lhi_rank_observation *parts, uint64_t step, lh_observation *out,
    lh_error *err);

/* Returns the time that `n_processors` busy processors need for the passes of
 * one iteration, if all ranks read one clock. Ranks in passes share the
 * processors equally, so the processors' work is the integral over the
 * iteration of the number of ranks in passes, or of n_processors if that is
 * less. `edges` is scratch with two entries per pass of all `n_ranks` ranks. */
int64_t
lhi_iteration_observation_processor_time(const lhi_rank_observation *parts,
                                         uint32_t n_ranks,
                                         uint32_t n_processors, int64_t *edges);

/* Returns the mean time in ns of the messages on link `link` of pipeline
 * replica `copy` in the last merged iteration; NAN: there were none, or ranks
 * read different clocks. */
double lhi_iteration_observation_link_time(
    const lhi_iteration_observation *observation, uint32_t copy, uint32_t link);

/* Scales the last merged iteration's times, which ran on pipeline `now` with
 * migrated layers, to the layers per chunk of the run's initial pipeline. */
void lhi_iteration_observation_scale_layers(
    lhi_iteration_observation *observation, const lh_pipeline *now);

/* Numbers the clocks that the first replica's ranks read, clocks[device] for
 * n_devices devices; returns whether any two differ. */
bool lhi_iteration_observation_find_clocks(const lhi_rank_observation *parts,
                                           uint32_t n_devices,
                                           uint32_t *clocks);

#endif
