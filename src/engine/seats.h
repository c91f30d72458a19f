/* SPDX-License-Identifier: Apache-2.0 */
/* Rank assignment: the layer count of each chunk, and the rank at each place. A
 * place is a logical rank: place r * P + d is device d in replica r of a
 * pipeline with P devices. A run starts with rank p at place p. */
#ifndef LHI_SEATS_H
#define LHI_SEATS_H

#include <longhaul/layers.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

/* A rank assignment. */
typedef struct lhi_seats {
    uint32_t n_chunks, n_places;
    uint32_t *layers; /* per chunk; NULL: as at the start */
    uint32_t *hosts;  /* rank at each place; NULL: as at the start */
    /* Per place, the rank that relays the state sent there; LH_NONE: sent
     * directly. NULL: no relays. */
    uint32_t *vias;
    int64_t move_ns;  /* predicted duration of the migration */
} lhi_seats;

/* Length of a reason text, with the terminating 0. */
enum { LHI_STAYS_ROOM = 160 };
/* Limits for a run's rank assignments. */
typedef struct lhi_seating {
    uint32_t n_chunks;
    uint32_t n_places; /* 0: ranks cannot move */
    uint32_t n_layers; /* all chunks; 0: layers cannot move */
    /* Derives pipelines with other layer counts; NULL: layers cannot move. */
    const lh_layers *layers;
    /* Reasons against a migration; "": it is permitted. */
    char layers_stay[LHI_STAYS_ROOM], places_stay[LHI_STAYS_ROOM];
} lhi_seating;

/* Returns LH_EUNSUPPORTED with the reason why layers cannot move. */
lh_status lhi_seating_fail_layers(const lhi_seating *seating, lh_error *err);
/* Returns LH_EUNSUPPORTED with the reason why ranks cannot move. */
lh_status lhi_seating_fail_places(const lhi_seating *seating, lh_error *err);

/* Formats an assignment: layer counts, ranks, relays and nanoseconds, separated
 * by `;`, numbers by commas; "" for the initial assignment. Release with
 * free(). */
lh_status lhi_seats_write(const lhi_seats *seats, char **text, lh_error *err);
/* Parses an assignment. LH_EINPUT: invalid text, or outside the limits. `text`
 * need not be zero-terminated. Release with lhi_rank_assignment_fini(). */
lh_status lhi_seats_read(const char *text, uint32_t n,
                         const lhi_seating *seating, lhi_seats *out,
                         lh_error *err);
/* Copies an assignment. */
lh_status lhi_seats_copy(const lhi_seats *from, lhi_seats *to, lh_error *err);
void lhi_seats_fini(lhi_seats *seats); /* zeroed is fine */

/* Compares two assignments; NULL: the initial one. */
bool lhi_seats_alike(const lhi_seats *a, const lhi_seats *b);
/* Returns the rank at a place. */
uint32_t lhi_seats_host(const lhi_seats *seats, uint32_t place);
/* Returns the place of a rank. */
uint32_t lhi_seats_place(const lhi_seats *seats, uint32_t host);

#endif
