/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline and schedule accessors for the library itself. */
#ifndef LHI_SCHEDULE_PIPELINE_ACCESSORS_H
#define LHI_SCHEDULE_PIPELINE_ACCESSORS_H

#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/status.h>

/* Checks whether a chunk's backward is one pass B; false: it is split into D
 * (input gradient) and W (weight gradient). */
bool lhi_pipeline_is_joint(const lh_pipeline *pipeline);

/* Checks whether the chunks are two or more copies of the model, each with its
 * own microbatches. */
bool lhi_pipeline_is_bidirectional(const lh_pipeline *pipeline);

/* Counts the groups of sequences that an iteration processes: the microbatches
 * of all copies of the model; with slices, 1 / n_slices of them. */
uint32_t lhi_pipeline_count_sequence_groups(const lh_pipeline *pipeline);

/* Counts the chunks of one copy of the model. */
uint32_t lhi_pipeline_count_model_chunks(const lh_pipeline *pipeline);

/* Returns the duration of an overlapped F and B, relative to their sum; 0: no
 * overlapped pairs. */
double lhi_pipeline_overlap_f_b(const lh_pipeline *pipeline);

/* Copies a pipeline without its overlapped pairs: F and B then run one after
 * the other. *out is NULL if the pipeline has none; else release it with
 * lh_pipeline_free(). */
lh_status lhi_pipeline_remove_overlap(const lh_pipeline *pipeline,
                                      lh_pipeline **out, lh_error *err);

/* Returns a sequence's slice count; 1: sequences are whole. */
uint32_t lhi_pipeline_n_slices(const lh_pipeline *pipeline);
/* Returns lh_pipeline_desc.slice_attention: attention's share (0 to 1) in a
 * chunk's duration, averaged over the slices. Attention takes longer in later
 * slices of the sequence. */
double lhi_pipeline_slice_attention(const lh_pipeline *pipeline);

/* Fails with LH_EUNSUPPORTED if the pipeline has overlapped pairs or sliced
 * sequences; `what` names the function that does not support them. */
lh_status lhi_pipeline_require_plain_passes(const lh_pipeline *pipeline,
                                            const char *what, lh_error *err);
/* Fails with LH_EUNSUPPORTED if the pipeline has overlapped pairs; `what` names
 * the function that does not support them. */
lh_status lhi_pipeline_require_separate_passes(const lh_pipeline *pipeline,
                                               const char *what, lh_error *err);
/* Fails with LH_EUNSUPPORTED if the pipeline has two directions or several
 * copies of the model, overlapped pairs or sliced sequences; `what` names the
 * function that does not support them. */
lh_status lhi_pipeline_require_one_direction(const lh_pipeline *pipeline,
                                             const char *what, lh_error *err);

/* Returns how many data-parallel operations passes launch within the
 * iteration. */
uint32_t lhi_pipeline_n_dp_ops(const lh_pipeline *pipeline);

/* Returns how many all-gathers a device starts at once when an iteration
 * begins; 0: all. */
uint32_t lhi_pipeline_n_initial_gathers(const lh_pipeline *pipeline);

/* Returns the maximum time in ns for which a piece (slice of a data-parallel
 * collective) occupies a shared link at once; 0: collectives are not cut. */
int64_t lhi_pipeline_dp_piece_ns(const lh_pipeline *pipeline);

/* Returns the rule that orders messages and data-parallel pieces (slices of
 * collectives) on shared links. */
lh_dp_priority lhi_pipeline_dp_priority(const lh_pipeline *pipeline);

/* Returns the datacenter count in the pipeline. */
uint32_t lhi_pipeline_n_sites(const lh_pipeline *pipeline);

/* Returns the name of datacenter number `site`; borrowed. */
const char *lhi_pipeline_site_name(const lh_pipeline *pipeline, uint32_t site);

/* Returns the chunk placement on devices (UD, Loop, Wave, BD),
 * LH_PLACEMENT_OTHER if it is not a named one. */
lh_placement lhi_pipeline_placement(const lh_pipeline *pipeline);

/* Returns the column, in its row of the file, of pass number `pass` of a
 * device, counted from 1, including idle and skipped cells. */
uint32_t lhi_schedule_cell(const lh_schedule *schedule, uint32_t device,
                           uint32_t pass);

#endif
