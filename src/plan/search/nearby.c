/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/search/nearby.h"

#include "plan/layout/alike.h"
#include "plan/layout/choice.h"
#include "plan/search/search_limits.h"

/* One node of the space on the way to layouts nearby. */
typedef struct step {
    lhi_nearby *nearby;
    lhi_level level; /* of the children that are shown */
    uint32_t changes;
} step;

static bool is_same_group(const lh_layout *a, const lh_layout *b)
{
    return lhi_group_size(a) == lhi_group_size(b);
}

/* Where a stage has other GPUs, or each replica another batch, pipeline or data
 * follow. */
static uint32_t changes_of_degrees(const lh_layout *a, const lh_layout *b)
{
    bool pipeline = a->pipeline != b->pipeline, data = a->data != b->data;
    if (is_same_group(a, b))
        return pipeline || data;
    return pipeline && data;
}

static uint32_t changes_of_places(const lh_layout *a, const lh_layout *b)
{
    if (!is_same_group(a, b) || a->pipeline != b->pipeline ||
        a->data != b->data)
        return 0; /* they have no places in common */
    return a->outermost != b->outermost || !lhi_sites_same(a->sites, b->sites);
}

static uint32_t changes_of_state(const lhi_config *a, const lhi_config *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    bool follows =
        x->outermost != y->outermost || (x->data > 1) != (y->data > 1);
    return (a->zero != b->zero) +
           (x->sharding != y->sharding && !follows ? 1u : 0);
}

/* As many chunks on other stages are no change of their own. */
static uint32_t changes_of_chunks(const lhi_config *a, const lhi_config *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    if (x->chunks_per_device == y->chunks_per_device)
        return a->placement != b->placement;
    return x->pipeline == y->pipeline || x->pipeline * x->chunks_per_device !=
                                             y->pipeline * y->chunks_per_device;
}

/* What this level decides otherwise. */
static uint32_t changes_at(lhi_level level, const lhi_config *a,
                           const lhi_config *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    switch (level) {
    case LHI_LEVEL_GROUP:
        return (uint32_t)(x->tensor != y->tensor) + (x->context != y->context) +
               (x->expert != y->expert) + (x->micro_batch != y->micro_batch);
    case LHI_LEVEL_WORK:
        return a->recompute != b->recompute;
    case LHI_LEVEL_DEGREES:
        return changes_of_degrees(x, y);
    case LHI_LEVEL_PLACED:
        return changes_of_places(x, y);
    case LHI_LEVEL_STATE:
        return changes_of_state(a, b);
    default:
        return changes_of_chunks(a, b);
    }
}

static bool has_value(const lhi_nearby *n, lhi_level level,
                      const lhi_config *config)
{
    return n->dimension >= LHI_N_DIMENSIONS ||
           lhi_dimension_level(n->dimension) != level ||
           lhi_dimension_value(n->dimension, config) == n->value;
}

/* What is held need not be near. */
static uint32_t changes_for_value(const lhi_nearby *n, lhi_level level,
                                  const lhi_config *config)
{
    return n->dimension < LHI_N_DIMENSIONS &&
           lhi_dimension_level(n->dimension) == level &&
           lhi_dimension_value(n->dimension, &n->from) !=
               lhi_dimension_value(n->dimension, config);
}

static lh_status go_on(void *context, const lhi_config *config, lh_error *err)
{
    const step *s = context;
    lhi_nearby *n = s->nearby;
    lhi_floor floor;
    lh_error why = {0};
    uint32_t changes = s->changes + changes_at(s->level, &n->from, config);
    uint32_t free = changes_for_value(n, s->level, config);
    changes -= free < changes ? free : changes;
    if (changes > n->most_changes || !has_value(n, s->level, config))
        return LH_OK;
    lh_status status =
        lhi_floors_find(n->floors, s->level, config, &floor, &why);
    n->work += lhi_work_of_bound(s->level, n->space->job->n_datacenters);
    if (status != LH_OK && lhi_layout_refused(status))
        return LH_OK;
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    if (floor.kind == LHI_FLOOR_MEMORY || floor.ns >= n->below_ns)
        return LH_OK;
    if (s->level == LHI_LEVEL_WHOLE)
        return n->visit(n->context, config, &floor, err);
    step next = {n, (lhi_level)(s->level + 1), changes};
    return lhi_space_children(n->space, s->level, config, NULL, go_on, &next,
                              err);
}

lh_status lhi_nearby_find(lhi_nearby *nearby, lh_error *err)
{
    const lhi_config none = {0};
    step first = {nearby, LHI_LEVEL_GROUP, 0};
    return lhi_space_children(nearby->space, LHI_LEVEL_NONE, &none, NULL, go_on,
                              &first, err);
}
