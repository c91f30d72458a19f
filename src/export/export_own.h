/* SPDX-License-Identifier: Apache-2.0 */
/* Plans and schedules as files of other programs. What comes in: an lh_plan,
 * or a pipeline with a schedule; what goes out: text in the other program's
 * format, or the reason why it cannot be told.
 *
 *     export.c      the list of targets; Perfetto
 *     pytorch.c     schedules without what PyTorch does not know
 *     comms.c       schedules with their communication written out
 *     torchtitan.c  options; which layers each stage has
 *     megatron.c    arguments
 *     ranks.c       what torchtitan and Megatron-LM say alike
 *     bundle.c      all of it with what starts the job: bundle.h */
#ifndef LHI_EXPORT_OWN_H
#define LHI_EXPORT_OWN_H

#include "base/show.h"

#include <longhaul/export.h>
#include <longhaul/trace.h>

/* The actions that _load_csv(..., format="compute_comms") takes, a row per
 * device: passes, sends, receives, waits for sends, and what sharded
 * parameters and gradients need. Every two devices post their messages to each
 * other in one and the same order, that of the trace, so none waits for
 * another in a circle. */
lh_status lhi_export_comms(const lh_trace *trace, char **text, size_t *len,
                           lh_error *err);

/* "--NAME VALUE" */
void lhi_export_option(lhi_text *out, const char *name, uint64_t value);

/* As a comment: what the plan was made of and by. Names are shown (show.h): an
 * end of line in one would begin an argument. */
void lhi_export_origin(lhi_text *out, const lh_plan *plan);

/* As comments, where the plan says it: which ranks are where, with replicas
 * outermost if the plan has data parallelism there, else stages. */
void lhi_export_ranks(lhi_text *out, const lh_plan *plan);

/* What Megatron-LM wants of CUDA_DEVICE_MAX_CONNECTIONS: 1 with groups of
 * tensor or context parallelism, before Blackwell; sharded parameters want the
 * contrary. */
typedef enum lhi_connections {
    LHI_CONNECTIONS_ANY,
    LHI_CONNECTIONS_ONE,
    LHI_CONNECTIONS_UNSET,
} lhi_connections;
lhi_connections lhi_megatron_connections(const lh_plan *plan);

/* LH_EUNSUPPORTED: the target cannot run the plan as it was costed; `err` says
 * what is in the way and how to plan for it. */
lh_status lhi_export_check(const lh_plan *plan, lh_target target,
                           lh_error *err);

#endif
