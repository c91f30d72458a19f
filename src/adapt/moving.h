/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether to migrate parts of a job in place of following the schedule
 * decision: hosts exchange places, or layers move to other chunks. Real runs
 * and simulated runs share it. */
#ifndef LHI_MOVING_H
#define LHI_MOVING_H

#include <longhaul/adapt.h>
#include <longhaul/places.h>

/* Conditions of the last searches. A search repeats only if they have changed
 * or the expected remaining duration has doubled. Zero-initialise. */
typedef struct lhi_moves_tried {
    bool was_tried; /* hosts: in this state of the event timeline */
    uint32_t state, spot;
    uint64_t lasts;
    uint32_t notices, layers_spot; /* layers: notices identify the state */
    uint64_t layers_lasts;
} lhi_moves_tried;

/* Inputs of a migration search: the job's present state and decision. */
typedef struct lhi_moves_now {
    /* Source of the slow links between hosts; a real run would derive them from
     * a ring's hop times. NULL: hosts stay. */
    const lh_course *course;
    uint32_t state;
    const lh_places *places; /* with current times; NULL: the timeline's */
    const lh_layers *layers; /* NULL: layers stay */
    int64_t layer_ns;
    /* Present host of each place and layers per chunk, and an identifier that
     * changes with each migration. NULL: the initial assignment. */
    const uint32_t *hosts, *numbers;
    uint32_t spot;
    const lh_monitor *monitor;
    uint32_t n_notices;           /* monitor notices so far */
    const lh_pipeline *estimated; /* with the initial layers per chunk */
    const lh_schedule *schedule;  /* the running one; `sim`: its data path */
    const lh_sim_options *sim;
    const lh_decision *decision;
} lhi_moves_now;

/* At most one migration; the caller frees both. NULL: none. */
typedef struct lhi_moves_found {
    lh_exchange *exchange;
    lh_layer_move *layers;
} lhi_moves_found;

/* Searches for a migration after an iteration with a slowdown. Errors are those
 * of lh_host_placement_find_exchange() and lh_layers_find_partition(); on an
 * error *out is untouched. */
lh_status lhi_moves_find(lhi_moves_tried *tried, const lhi_moves_now *now,
                         lhi_moves_found *out, lh_error *err);

/* Requests a new search after a layer migration, which changes the iteration
 * time without an event. */
void lhi_adapt_renew(lh_adapt *adapt);

#endif
