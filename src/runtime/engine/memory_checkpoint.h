/* SPDX-License-Identifier: Apache-2.0 */
/* In-memory checkpoints (Gemini, doi:10.1145/3600006.3613145). Each rank of a
 * run that may restart copies the state of its optimizer after each step to a
 * memory file of the process that started it, which outlives the rank. After a
 * restart the ranks continue with the step in which a rank was lost. A rank
 * without a checkpoint, for example on a spare host, receives it from a replica
 * that owns the same part. The file has the states after the last two steps,
 * since ranks are lost at any time. */
#ifndef LHI_RUNTIME_ENGINE_MEMORY_CHECKPOINT_H
#define LHI_RUNTIME_ENGINE_MEMORY_CHECKPOINT_H

#include "runtime/engine/job.h"

/* Makes the empty memory files of n ranks. Free with lhi_memory_files_free().
 */
lh_status lhi_memory_files_make(uint32_t n, int **out, lh_error *err);
/* Closes and frees memory files; NULL is allowed. */
void lhi_memory_files_free(uint32_t n, int *files);

typedef struct lhi_memory_checkpoint lhi_memory_checkpoint;

/* Opens the checkpoint of rank `rank`; *out NULL: the run does not restart. */
lh_status lhi_memory_checkpoint_open(const lhi_job *job, uint32_t rank,
                                     lhi_memory_checkpoint **out,
                                     lh_error *err);
/* Closes a checkpoint, which stays in its file; NULL is allowed. */
void lhi_memory_checkpoint_close(lhi_memory_checkpoint *checkpoint);
/* Keeps the owned state of `train` after a step. */
lh_status lhi_memory_checkpoint_store(lhi_memory_checkpoint *checkpoint,
                                      const lhi_train *train, lh_error *err);
/* Number of steps for lhi_memory_checkpoint_restore(): the last that each rank
 * with a checkpoint completed. */
#define LHI_NEWEST_COMMON_STEP UINT64_MAX
/* Restores the state of all ranks after `step` steps, which rank 0 gives.
 * Collective. *is_restored: false if the state in `train` is as new, or if the
 * state of a rank is lost; then nothing changes. The caller gathers the
 * restored values of the other ranks. */
lh_status lhi_memory_checkpoint_restore(lhi_memory_checkpoint *checkpoint,
                                        lhi_net *net, uint64_t step,
                                        lhi_train *train, bool *is_restored,
                                        lh_error *err);
/* Returns the predicted bytes of a rank's checkpoint for n_moments moments of
 * moment_bytes bytes together. */
double lhi_memory_checkpoint_predict_bytes(double moment_bytes,
                                           uint32_t n_moments);

#endif
