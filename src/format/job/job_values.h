/* SPDX-License-Identifier: Apache-2.0 */
/* Names, sizes and defaults of the values in a job. */
#ifndef LHI_FORMAT_JOB_JOB_VALUES_H
#define LHI_FORMAT_JOB_JOB_VALUES_H

#include <longhaul/experimental/job.h>

/* Returns when the framework posts receives (early, or late as rendezvous), for
 * a layout with that many chunks per device. */
lh_receives lhi_framework_receives(const lh_framework *framework,
                                   uint32_t chunks_per_device);

/* lh_layout.slices of a job whose number of slices lh_plan_make() chooses. */
enum { LHI_SLICES_AUTO = 1 };

/* layout.tensor of a job whose plan may have different tensor degrees per
 * datacenter. */
#define LHI_TENSOR_PER_SITE "per-datacenter"

/* Returns each sequence's slice count; 1: sequences are whole. */
static inline uint32_t lhi_job_count_slices(const lh_job *job)
{
    return job->layout.slices ? job->layout.slices : 1;
}

/* Returns why the job's sequences cannot be split into slices, which pass the
 * pipeline like microbatches. The text ends a sentence about layout.slices;
 * static storage. NULL: they can. */
const char *lhi_job_find_slice_obstacle(const lh_job *job);

/* Returns an optimizer's name as spelled in the job format; static storage. */
const char *lhi_optimizer_name(lh_optimizer optimizer);
/* Returns a target's name as spelled in the job format, or "any"; static
 * storage. */
const char *lhi_target_name(lh_target target);

/* Returns a framework preset's name as in the job format; static storage. */
const char *lhi_framework_preset_name(lh_framework_preset preset);

/* Returns the gradient format's name as in the job format; static storage. */
const char *lhi_gradient_name(lh_gradient gradient);

/* Returns the name of an implementation of attention, such as flash attention,
 * as in the job format; static storage. */
const char *lhi_attention_name(lh_attention attention);
/* Returns the name of element-wise kernels, fused or eager (one for each
 * operation), as in the job format; static storage. */
const char *lhi_kernels_name(lh_kernels kernels);
/* Returns the name of the way in which the cross entropy runs (fused, eager or
 * chunked), as in the job format; static storage. */
const char *lhi_loss_name(lh_loss loss);

/* Returns the FP8 mode's name as in the job format; static storage. */
const char *lhi_fp8_name(lh_fp8 fp8);

/* Returns the sequences per microbatch on each replica of group number `group`
 * in layout->sites, a list of replicas with equal placement. */
uint32_t lhi_layout_group_micro_batch(const lh_layout *layout, uint32_t group);
/* Returns the sequences per microbatch over all replicas together; 0 if a
 * parallel degree is unspecified. */
uint64_t lhi_layout_count_sequences(const lh_layout *layout);
/* Checks whether the layout's tensor x context x pipeline x data is at most
 * `gpus`; unspecified degrees count as 1. */
bool lhi_layout_fits_gpus(const lh_layout *layout, uint64_t gpus);

/* Returns the bytes per element of a precision. */
uint32_t lhi_precision_bytes(lh_precision precision);

/* Returns the bytes per gradient element of a gradient format. */
uint32_t lhi_gradient_bytes(lh_gradient gradient);

#endif
