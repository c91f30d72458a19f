/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline of a job that has lost a device: other devices run its
 * microbatches, as in ReCycle (arXiv:2405.14009). */
#ifndef LHI_SCHEDULE_PIPELINE_REROUTE_H
#define LHI_SCHEDULE_PIPELINE_REROUTE_H

#include <longhaul/experimental/pipeline.h>

/* A lost device, numbered over all replicas: device d of replica r of a
 * pipeline with P devices is r * P + d. */
typedef struct lhi_lost_device {
    uint32_t device;
    /* The device on whose processor the lost device's parameters are, besides
     * those of its own; LH_NONE: on no processor. */
    uint32_t host;
    /* The lost device's remaining passes are its own, though they share its
     * host's time; false: they are passes of the host. */
    bool has_process;
} lhi_lost_device;

/* Builds the pipeline of all replicas without the lost device. Its copies of
 * the model (lh_pipeline_desc.n_copies) have one microbatch each: copy
 * (m * n_replicas + r) * copies + k is microbatch m of copy k of replica r.
 * The lost device's microbatches are divided among the devices with the same
 * chunks and its host. Microbatches of the host are then moved to the devices
 * with the host's chunks, until no move shortens the work of the busiest
 * processor. Microbatches that need not move stay.
 *
 * With several replicas each has links of its own; messages between devices
 * without a link have the times of the link that they replace. Data-parallel
 * communication is omitted.
 *
 * LH_EUNSUPPORTED: no other device has a chunk of the lost one, or could take
 * over work from its host; or the pipeline has sliced sequences, overlapped
 * passes, offload, or data-parallel operations that passes launch. */
lh_status lhi_pipeline_reroute(const lh_pipeline *pipeline, uint32_t n_replicas,
                               const lhi_lost_device *lost, lh_pipeline **out,
                               lh_error *err);

#endif
