/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/layout/outside_space.h"

#include "base/text.h"

#include <inttypes.h>

/* Returns the separator before the list's next item in `t`: "" for the first,
 * else ", ". */
static const char *get_separator(const lhi_text *t)
{
    return t->len ? ", " : "";
}

/* Appends a degree's `name` and `value` to the text if the job fixes a value
 * that the search would not try. `looked_at`: the search covers the value, so
 * nothing is appended. */
static void add_degree(lhi_text *t, const char *name, uint32_t value,
                       bool looked_at)
{
    if (value && !looked_at)
        lhi_text_printf(t, "%s%s %" PRIu32, get_separator(t), name, value);
}

/* Checks whether the layer partition of layout `l` has a chunk without
 * layers. */
static bool has_empty_chunk(const lh_layout *l)
{
    for (uint32_t i = 0; i < l->n_chunk_layers; i++)
        if (l->chunk_layers[i] == 0)
            return true;
    return false;
}

lh_status lhi_space_list_outside_values(const lhi_space *space, lhi_arena *mem,
                                        const char **out, lh_error *err)
{
    const lh_training *tr = &space->job->training;
    const lh_layout *l = &space->job->layout;
    lhi_text t = {0};
    add_degree(&t, "tensor", l->tensor,
               l->tensor && lhi_space_tensor(space, l->tensor));
    if (l->context && !lhi_space_context(space, l->context))
        lhi_text_printf(&t, "%scontext %" PRIu32 " (%" PRIu32 " tokens a GPU)",
                        get_separator(&t), l->context,
                        tr->sequence / l->context);
    add_degree(&t, "expert_tensor", l->expert_tensor, l->expert_tensor == 1);
    add_degree(&t, "micro_batch", l->micro_batch,
               l->group_micro_batches || lhi_space_micro_batch(l->micro_batch));
    add_degree(&t, "chunks_per_device", l->chunks_per_device,
               lhi_space_chunks(l->chunks_per_device));
    if (tr->zero_given && tr->zero == 0)
        lhi_text_printf(&t, "%szero 0", get_separator(&t));
    if (tr->recompute_given && tr->recompute == LH_RECOMPUTE_MODULES)
        lhi_text_printf(&t, "%srecompute by modules", get_separator(&t));
    if (has_empty_chunk(l))
        lhi_text_printf(&t, "%schunks without layers", get_separator(&t));
    *out = t.len ? lhi_arena_strdup(mem, t.data) : NULL;
    const bool whole = !t.failed && (*out || !t.len);
    lhi_text_fini(&t);
    return whole ? LH_OK : lhi_fail_nomem(err);
}
