/* SPDX-License-Identifier: Apache-2.0 */
/* Export target and form names; a plan's stages.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_EXPORT_H
#define LONGHAUL_EXPERIMENTAL_EXPORT_H

#include <longhaul/experimental/plan.h>
#include <longhaul/export.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the export target count. */
LH_API uint32_t lh_n_export_targets(void);
/* Returns the target's name, such as "pytorch"; NULL: no such target. */
LH_API const char *lh_export_target_name(lh_export_target target);

/* Returns the PyTorch schedule form count. */
LH_API uint32_t lh_n_pytorch_forms(void);
/* Returns the form's name, such as "compute_only"; NULL: no such form. */
LH_API const char *lh_pytorch_form_name(lh_pytorch_form form);

/* A setting in the plan's model that a target cannot be given. */
typedef struct lh_inexact_setting {
    const char *key;    /* the job's key, or "FILE: KEYS" of a config.json */
    const char *reason; /* target's limitation */
} lh_inexact_setting;

enum { LH_MAX_INEXACT = 32 }; /* upper bound of lh_export_list_inexact() */

/* Lists the model settings that a target cannot express, at most `room` of them
 * in `out`. Returns the number of all of them. The texts live as long as the
 * plan. */
LH_API uint32_t lh_export_list_inexact(const lh_plan *plan,
                                       lh_export_target target,
                                       lh_inexact_setting *out, uint32_t room);

/* Exports as JSON each stage's modules, by torchtitan's names, and each stage's
 * pipeline rank. The caller frees *text with lh_text_free(). */
LH_API lh_status lh_export_stages(const lh_plan *plan, char **text, size_t *len,
                                  lh_error *err);

/* Stores a file from lh_export_chakra(), whose name ends in `suffix`: "0.et" of
 * rank 0, "groups.json". */
typedef lh_status (*lh_chakra_writer)(void *context, const char *suffix,
                                      const char *data, size_t len,
                                      lh_error *err);
/* Exports the predicted iteration as MLCommons Chakra execution traces, one
 * per rank, and each process group's ranks (docs/formats/chakra.md). `plan`
 * gives replicas, sizes and the optimizer step; NULL: one replica, and sizes of
 * one byte per nanosecond. Stops at `write`'s first error, and returns it.
 * Other errors as lh_simulate(). */
LH_API lh_status lh_export_chakra(const lh_pipeline *pipeline,
                                  const lh_schedule *schedule,
                                  const lh_plan *plan, lh_chakra_writer write,
                                  void *context, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
