/* SPDX-License-Identifier: Apache-2.0 */
/* Plans and schedules as files of other programs: PyTorch's pipelining,
 * torchtitan, Megatron-LM, Megatron-Bridge, Perfetto. Every text is made whole
 * or not at all; release it with lh_text_free(); `len`, its bytes, may be NULL.
 */
#ifndef LONGHAUL_EXPORT_H
#define LONGHAUL_EXPORT_H

#include <longhaul/pipeline.h>
#include <longhaul/plan.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The programs there are, in the order that help shows. */
typedef enum lh_export_target {
    LH_EXPORT_PYTORCH,         /* lh_export_pytorch() */
    LH_EXPORT_TORCHTITAN,      /* lh_export_torchtitan() */
    LH_EXPORT_MEGATRON,        /* lh_export_megatron() */
    LH_EXPORT_MEGATRON_BRIDGE, /* lh_export_megatron_bridge() */
    LH_EXPORT_CHROME,          /* lh_export_chrome() */
} lh_export_target;

LH_API uint32_t lh_n_export_targets(void);
/* "pytorch"; NULL: there is no such target. */
LH_API const char *lh_export_target_name(lh_export_target target);

/* How PyTorch reads a schedule. */
typedef enum lh_pytorch_form {
    LH_PYTORCH_COMPUTE_ONLY,  /* passes; PyTorch puts communication between */
    LH_PYTORCH_COMPUTE_COMMS, /* with sends, receives and what sharded
                                 parameters and gradients need, in the order of
                                 the predicted iteration */
} lh_pytorch_form;

LH_API uint32_t lh_n_pytorch_forms(void);
/* "compute_only"; NULL: there is no such form. */
LH_API const char *lh_pytorch_form_name(lh_pytorch_form form);

/* The schedule as CSV for _load_csv() of torch.distributed.pipelining (with
 * communication: of PyTorch 2.15). PyTorch knows neither parts of
 * weight-gradient passes nor orders of messages: parts are put together as
 * lh_schedule_whole() does, and *cost_ns (may be NULL) is what the iteration
 * takes more without both; negative: less. LH_EDEADLOCK and others as
 * lh_simulate(). */
LH_API lh_status lh_export_pytorch(const lh_pipeline *pipeline,
                                   const lh_schedule *schedule,
                                   lh_pytorch_form form, char **text,
                                   size_t *len, int64_t *cost_ns,
                                   lh_error *err);

/* The layout as options of torchtitan, a line each, remarks behind '#'. It
 * runs the schedule by PyTorch's CSV.
 * LH_EUNSUPPORTED: torchtitan cannot run the plan as it was costed, which one
 * for LH_TARGET_TORCHTITAN (lh_plan_options) it can; `err` says what of it. */
LH_API lh_status lh_export_torchtitan(const lh_plan *plan, char **text,
                                      size_t *len, lh_error *err);

/* Model and layout as arguments of Megatron-LM, a line each, remarks behind
 * '#'.
 * LH_EUNSUPPORTED: Megatron-LM cannot run the plan as it was costed, which one
 * for LH_TARGET_MEGATRON it can; `err` says what of it. */
LH_API lh_status lh_export_megatron(const lh_plan *plan, char **text,
                                    size_t *len, lh_error *err);

/* The same as a recipe for Megatron-Bridge 0.3.1, a file of Python: its
 * pretrain_config() returns a ConfigContainer, and as a program it trains with
 * that. What lh_export_megatron() takes; LH_EUNSUPPORTED, too: the model has
 * learned positions, but not as many as sequences have tokens. */
LH_API lh_status lh_export_megatron_bridge(const lh_plan *plan, char **text,
                                           size_t *len, lh_error *err);

/* The predicted iteration as Chrome trace events, for Perfetto; `title` may be
 * NULL. */
LH_API lh_status lh_export_chrome(const lh_pipeline *pipeline,
                                  const lh_schedule *schedule,
                                  const char *title, char **text, size_t *len,
                                  lh_error *err);

/* Which modules each stage of the plan has, by torchtitan's names, and on
 * which rank it lies, as JSON. */
LH_API lh_status lh_export_stages(const lh_plan *plan, char **text, size_t *len,
                                  lh_error *err);

typedef struct lh_bundle_options {
    size_t size;          /* sizeof(lh_bundle_options) */
    lh_pytorch_form form; /* of schedule.csv for LH_EXPORT_PYTORCH */
    uint32_t port; /* of the host of rank 0, where ranks meet; 0: 29500 */
} lh_bundle_options;

/* Makes the folder `path` with all that starts the job that was planned: the
 * target's arguments, schedule and stages; launch.sh, which starts the ranks of
 * a host by torchrun; job.sbatch; the hosts of each site, by names to be
 * replaced, and which of them starts which ranks (docs/formats/bundle.md), so
 * that every rank is on the GPU and at the site that it was costed on; and
 * README.md. `options` may be NULL. It is made beside `path` and renamed.
 * LH_EUNSUPPORTED: as the target's own export; LH_EXPORT_CHROME starts nothing.
 * LH_EIO: `path` is there already, or cannot be written; then nothing is left,
 * and what was there is as it was. */
LH_API lh_status lh_export_bundle(const lh_plan *plan, lh_export_target target,
                                  const char *path,
                                  const lh_bundle_options *options,
                                  lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
