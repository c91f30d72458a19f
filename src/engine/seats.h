/* SPDX-License-Identifier: Apache-2.0 */
/* Who has which part of a job: how many layers each chunk has, and which rank
 * each place. Place r * P + d is device d of replica r of a pipeline with P
 * devices; a run begins with rank p in place p. */
#ifndef LHI_SEATS_H
#define LHI_SEATS_H

#include <longhaul/layers.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct lhi_seats {
    uint32_t n_chunks, n_places;
    uint32_t *layers; /* of each chunk; NULL: as the run began */
    uint32_t *hosts;  /* the rank in each place; NULL: likewise */
    /* Of each place, the rank that passes on what goes there as they are
     * taken, having received it; LH_NONE: it goes straight. NULL: all does. */
    uint32_t *vias;
    int64_t move_ns;  /* taking them takes so long by the prediction */
} lhi_seats;

/* What seats of a run have to be like. */
enum { LHI_STAYS_ROOM = 160 };
typedef struct lhi_seating {
    uint32_t n_chunks;
    uint32_t n_places; /* 0: ranks stay in their places */
    uint32_t n_layers; /* of all chunks; 0: layers stay */
    /* How a pipeline with other numbers is; NULL: layers stay. */
    const lh_layers *layers;
    /* Why they stay; "": they may move. */
    char layers_stay[LHI_STAYS_ROOM], places_stay[LHI_STAYS_ROOM];
} lhi_seating;

/* LH_EUNSUPPORTED, with that. */
lh_status lhi_seating_fail_layers(const lhi_seating *seating, lh_error *err);
lh_status lhi_seating_fail_places(const lhi_seating *seating, lh_error *err);

/* As a text: numbers of layers, ranks, ranks that pass on, nanoseconds, with `;`
 * between them and commas between numbers; "" where all is as the run began. Release with
 * free(). */
lh_status lhi_seats_write(const lhi_seats *seats, char **text, lh_error *err);
/* LH_EINPUT: no such text, or no seats of such a run. `text` need not end with
 * a 0. Release with lhi_seats_fini(). */
lh_status lhi_seats_read(const char *text, uint32_t n,
                         const lhi_seating *seating, lhi_seats *out,
                         lh_error *err);
lh_status lhi_seats_copy(const lhi_seats *from, lhi_seats *to, lh_error *err);
void lhi_seats_fini(lhi_seats *seats); /* zeroed is fine */

/* NULL: as the run began. */
bool lhi_seats_alike(const lhi_seats *a, const lhi_seats *b);
/* The rank in a place; the place of a rank. */
uint32_t lhi_seats_host(const lhi_seats *seats, uint32_t place);
uint32_t lhi_seats_place(const lhi_seats *seats, uint32_t host);

#endif
