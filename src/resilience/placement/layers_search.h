/* SPDX-License-Identifier: Apache-2.0 */
/* Search for another layer partition. */
#ifndef LHI_RESILIENCE_PLACEMENT_LAYERS_SEARCH_H
#define LHI_RESILIENCE_PLACEMENT_LAYERS_SEARCH_H

#include <longhaul/experimental/layers.h>

/* Searches for layers per chunk that shorten the coming iterations, migration
 * time included, by hill climbing: moves one layer at a time, from the running
 * and from the initial partition. Rejects partitions that exceed a memory
 * limit. `pipeline` as in lh_layers_pipeline(). Release with
 * lhi_layer_migration_free(). Errors as in lh_layers_pipeline() and
 * lh_simulate(). */
lh_status lhi_layers_find_partition(const lh_layers *layers,
                                    const lh_pipeline *pipeline,
                                    const lh_schedule *schedule,
                                    const lh_layers_options *options,
                                    lh_layer_migration **out, lh_error *err);

/* Frees a layer migration; ignores NULL. */
void lhi_layer_migration_free(lh_layer_migration *move);

#endif
