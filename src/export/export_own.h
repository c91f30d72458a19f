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
 *     megatron_bridge.c, bridge_fields.c   the same as a recipe
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
 * outermost if the plan has data parallelism there, else stages; of one
 * datacenter only where it has GPUs that the plan leaves out. */
void lhi_export_ranks(lhi_text *out, const lh_plan *plan);

/* The lines of `text` that begin with '#'. */
void lhi_export_remarks(lhi_text *out, const char *text);

/* What Megatron-LM wants of CUDA_DEVICE_MAX_CONNECTIONS: 1 with groups of
 * tensor or context parallelism, before Blackwell; sharded parameters want the
 * contrary. */
typedef enum lhi_connections {
    LHI_CONNECTIONS_ANY,
    LHI_CONNECTIONS_ONE,
    LHI_CONNECTIONS_UNSET,
} lhi_connections;
lhi_connections lhi_megatron_connections(const lh_plan *plan);

/* A program that plans are exported for, and how a bundle starts it. */
typedef struct lhi_export_form {
    const char *name;
    /* What it is told, and the file of a bundle with that; NULL: it takes
     * schedules alone. */
    lh_status (*tell)(const lh_plan *plan, char **text, size_t *len,
                      lh_error *err);
    const char *told;
    bool has_arguments; /* which the program gets */
    bool has_schedule;
    lh_target runs;      /* whose rules hold */
    const char *shown;   /* NULL: as that */
    const char *program; /* lines of launch.sh; NULL: starts nothing */
    const char *given;   /* what it needs besides, for README.md */
} lhi_export_form;

const lhi_export_form *lhi_export_form_of(lh_export_target target);

/* LH_EUNSUPPORTED: the target cannot run the plan as it was costed; `err` says
 * what is in the way and how to plan for it. */
lh_status lhi_export_check(const lh_plan *plan, lh_target target,
                           lh_error *err);

#endif
