/* SPDX-License-Identifier: Apache-2.0 */
/* Whether parts of a job are to move, rather than that the run goes on as was
 * decided: hosts exchange their places, or layers go to other chunks. The same
 * for a run on the clock and for one in virtual time. */
#ifndef LHI_MOVING_H
#define LHI_MOVING_H

#include <longhaul/adapt.h>
#include <longhaul/places.h>

/* What was looked for last, so that it is looked for again only once there is
 * something else, or it has lasted for twice as long. Zero-initialise. */
typedef struct lhi_moves_tried {
    bool was_tried; /* hosts: in this state of the course */
    uint32_t state, spot;
    uint64_t lasts;
    uint32_t notices, layers_spot; /* layers: a notice stands for the state */
    uint64_t layers_lasts;
} lhi_moves_tried;

typedef struct lhi_moves_now {
    /* Which of its hosts' links are slow is taken from here, as a run would
     * have it from the times of a ring's hops. NULL: hosts stay. */
    const lh_course *course;
    uint32_t state;
    const lh_places *places; /* with times of now; NULL: the course's */
    const lh_layers *layers; /* NULL: they stay */
    int64_t layer_ns;
    /* Where hosts and layers are, and a number that is another one with each
     * move. NULL: as they began. */
    const uint32_t *hosts, *numbers;
    uint32_t spot;
    const lh_monitor *monitor;
    uint32_t n_notices;           /* that it gave so far */
    const lh_pipeline *estimated; /* with the first numbers of layers */
    const lh_schedule *schedule;  /* that runs, and how messages go */
    const lh_sim_options *sim;
    const lh_decision *decision;
} lhi_moves_now;

/* At most one of them; release both. NULL: nothing moves. */
typedef struct lhi_moves_found {
    lh_exchange *exchange;
    lh_layer_move *layers;
} lhi_moves_found;

/* After an iteration in which something was slow. Errors as of
 * lh_places_exchange() and lh_layers_find(); then *out is untouched. */
lh_status lhi_moves_find(lhi_moves_tried *tried, const lhi_moves_now *now,
                         lhi_moves_found *out, lh_error *err);

/* Layers have moved, so that what runs takes other times from now on, by no
 * event: it is searched again. */
void lhi_adapt_renew(lh_adapt *adapt);

#endif
