/* SPDX-License-Identifier: Apache-2.0 */
/* Exports plans and schedules to PyTorch pipelining, torchtitan, Megatron-LM,
 * Megatron-Bridge and Perfetto. A failed export produces no partial text.
 * Release texts with lh_text_free(); `len` receives the size in bytes and may
 * be NULL. The texts follow the other program's version that each function
 * names. */
#ifndef LONGHAUL_EXPORT_H
#define LONGHAUL_EXPORT_H

#include <longhaul/pipeline.h>
#include <longhaul/plan.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Export targets, in the help text's order. */
typedef enum lh_export_target {
    LH_EXPORT_PYTORCH,          /* PyTorch schedule CSV */
    LH_EXPORT_TORCHTITAN,       /* torchtitan's options */
    LH_EXPORT_TORCHTITAN_MODEL, /* the model for torchtitan, in Python */
    LH_EXPORT_MEGATRON,         /* Megatron-LM's arguments */
    LH_EXPORT_MEGATRON_BRIDGE,  /* Megatron-Bridge's recipe, in Python */
    LH_EXPORT_CHROME,           /* trace events in JSON */
    LH_EXPORT_CHAKRA,           /* MLCommons Chakra execution traces */
} lh_export_target;

/* PyTorch schedule CSV forms. */
typedef enum lh_pytorch_form {
    LH_PYTORCH_COMPUTE_ONLY, /* passes; PyTorch inserts communication */
    /* with sends, receives and the collectives of sharded parameters and
     * gradients, in predicted order */
    LH_PYTORCH_COMPUTE_COMMS,
} lh_pytorch_form;

/* Options for the exports below. */
typedef struct lh_export_options {
    size_t size; /* sizeof(lh_export_options) */
    /* Exports although lh_export_list_inexact() finds settings; the file lists
     * them in comments. Otherwise the export fails with LH_EUNSUPPORTED. */
    bool allow_inexact;
} lh_export_options;

/* Exports the schedule as CSV for _load_csv() in torch.distributed.pipelining;
 * `form`: compute passes alone, or with communication (PyTorch 2.15). PyTorch
 * supports neither split W passes nor message orders. Parts are merged as in
 * lh_schedule_merge_parts(). *cost_ns (may be NULL) receives the resulting
 * iteration-time increase, in ns; negative: a decrease. The caller frees *text
 * with lh_text_free(). Errors include LH_EDEADLOCK and those of
 * lh_simulate(). LH_EUNSUPPORTED: the pipeline has two directions or offloads
 * activations. */
LH_API lh_status lh_export_pytorch(const lh_pipeline *pipeline,
                                   const lh_schedule *schedule,
                                   lh_pytorch_form form, char **text,
                                   size_t *len, int64_t *cost_ns,
                                   lh_error *err);

/* Exports the layout as torchtitan options, one per line, with comments after
 * '#'. They name a schedule in PyTorch's CSV form. LH_EUNSUPPORTED: torchtitan
 * cannot run the plan as estimated; `err` gives the reason. It can run all
 * plans made for LH_TARGET_TORCHTITAN (lh_plan_options). `options` may be NULL,
 * as in the other exports. */
LH_API lh_status lh_export_torchtitan(const lh_plan *plan,
                                      const lh_export_options *options,
                                      char **text, size_t *len, lh_error *err);

/* Exports the model as a Python module for torchtitan 0.3.0: the module that
 * --module and --config in lh_export_torchtitan()'s options name. Accepts the
 * plans that lh_export_torchtitan() accepts. */
LH_API lh_status lh_export_torchtitan_model(const lh_plan *plan,
                                            const lh_export_options *options,
                                            char **text, size_t *len,
                                            lh_error *err);

/* Exports model and layout as Megatron-LM arguments, one per line, with
 * comments after '#'. LH_EUNSUPPORTED: Megatron-LM cannot run the plan as
 * estimated; `err` gives the reason. Plans for LH_TARGET_MEGATRON are always
 * supported. */
LH_API lh_status lh_export_megatron(const lh_plan *plan,
                                    const lh_export_options *options,
                                    char **text, size_t *len, lh_error *err);

/* Exports the plan as a Python recipe for Megatron-Bridge 0.3.1. Its
 * pretrain_config() returns a ConfigContainer; run as a program, it trains with
 * that configuration. Accepts the same plans as lh_export_megatron(). Also
 * LH_EUNSUPPORTED: the model's learned position count differs from the
 * sequence length. */
LH_API lh_status lh_export_megatron_bridge(const lh_plan *plan,
                                           const lh_export_options *options,
                                           char **text, size_t *len,
                                           lh_error *err);

/* Exports the predicted iteration as Chrome trace events in JSON, for Perfetto.
 * `title` may be NULL. The caller frees *text with lh_text_free(). */
LH_API lh_status lh_export_chrome(const lh_pipeline *pipeline,
                                  const lh_schedule *schedule,
                                  const char *title, char **text, size_t *len,
                                  lh_error *err);

/* Options for lh_export_bundle(). */
typedef struct lh_bundle_options {
    size_t size;          /* sizeof(lh_bundle_options) */
    lh_pytorch_form form; /* schedule.csv's form for LH_EXPORT_PYTORCH */
    uint32_t port;        /* rendezvous port on rank 0's host; 0: 29500 */
    bool allow_inexact;   /* as in lh_export_options */
} lh_bundle_options;

/* Creates the folder `path` with all files required to start the planned job
 * (docs/formats/bundle.md):
 *
 * - the target's arguments, schedule and stages
 * - launch.sh, which starts a host's ranks with torchrun
 * - job.sbatch
 * - each site's hosts, as placeholder names, and the ranks that each
 *   starts, so that every rank has the GPU and site assumed by the plan
 * - README.md
 *
 * `options` may be NULL. The folder is written beside `path` and then renamed.
 * LH_EUNSUPPORTED: as in the target's own export; LH_EXPORT_CHROME and
 * LH_EXPORT_CHAKRA have nothing to start. LH_EIO: `path` exists or cannot be
 * written; existing files are unchanged and no partial output remains. */
LH_API lh_status lh_export_bundle(const lh_plan *plan, lh_export_target target,
                                  const char *path,
                                  const lh_bundle_options *options,
                                  lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
