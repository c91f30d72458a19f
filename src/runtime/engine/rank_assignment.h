/* SPDX-License-Identifier: Apache-2.0 */
/* Rank assignment: each chunk's layer count, and the rank at each place. A
 * place is a logical rank: place r * P + d is device d in replica r of a
 * pipeline with P devices. A run starts with rank p at place p. */
#ifndef LHI_RUNTIME_ENGINE_RANK_ASSIGNMENT_H
#define LHI_RUNTIME_ENGINE_RANK_ASSIGNMENT_H

#include <longhaul/experimental/layers.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

/* A rank assignment. */
typedef struct lhi_rank_assignment {
    uint32_t n_chunks, n_places;
    uint32_t *layers; /* per chunk; NULL: as at the start */
    uint32_t *ranks;  /* rank at each place; NULL: as at the start */
    /* Per place, the rank that relays the state sent there; LH_NONE: sent
     * directly. NULL: no relays. */
    uint32_t *relays;
    int64_t move_ns; /* predicted duration of the migration */
} lhi_rank_assignment;

/* Length of a reason text, with the terminating 0. */
enum { LHI_FIXED_REASON_BYTES = 160 };
/* Limits for a run's rank assignments. */
typedef struct lhi_rank_assignment_limits {
    uint32_t n_chunks;
    uint32_t n_places; /* 0: ranks cannot move */
    uint32_t n_layers; /* all chunks; 0: layers cannot move */
    /* Derives pipelines with other layer counts; NULL: layers cannot move. */
    const lh_layers *layers;
    /* Reasons against a migration; "": it is permitted. */
    char layers_fixed_reason[LHI_FIXED_REASON_BYTES],
        places_fixed_reason[LHI_FIXED_REASON_BYTES];
} lhi_rank_assignment_limits;

/* Fails with LH_EUNSUPPORTED and the reason why this run cannot migrate
 * layers. */
lh_status
lhi_rank_assignment_fail_layers(const lhi_rank_assignment_limits *limits,
                                lh_error *err);
/* Fails with LH_EUNSUPPORTED and the reason why this run cannot migrate
 * ranks. */
lh_status
lhi_rank_assignment_fail_places(const lhi_rank_assignment_limits *limits,
                                lh_error *err);

/* Formats a rank assignment as text: layers per chunk, ranks, relays and
 * nanoseconds, separated by `;`, numbers by commas; "" for the initial
 * assignment. Release with free(). */
lh_status lhi_rank_assignment_format(const lhi_rank_assignment *assignment,
                                     char **text, lh_error *err);
/* Parses a rank assignment's text (`n` characters, not necessarily
 * zero-terminated). LH_EINPUT: invalid text, or outside the limits. Release
 * with lhi_rank_assignment_fini(). */
lh_status lhi_rank_assignment_parse(const char *text, uint32_t n,
                                    const lhi_rank_assignment_limits *limits,
                                    lhi_rank_assignment *out, lh_error *err);
/* Copies a rank assignment; release the copy with lhi_rank_assignment_fini().
 */
lh_status lhi_rank_assignment_copy(const lhi_rank_assignment *from,
                                   lhi_rank_assignment *to, lh_error *err);
/* Frees a rank assignment's arrays; a zeroed struct is allowed. */
void lhi_rank_assignment_fini(lhi_rank_assignment *assignment);

/* Compares two assignments; NULL: the initial one. */
bool lhi_rank_assignment_equal(const lhi_rank_assignment *a,
                               const lhi_rank_assignment *b);
/* Returns the rank that is assigned to a place (position in the process
 * grid). */
uint32_t lhi_rank_assignment_find_rank(const lhi_rank_assignment *assignment,
                                       uint32_t place);
/* Returns the place (position in the process grid) of rank `host`. */
uint32_t lhi_rank_assignment_find_place(const lhi_rank_assignment *assignment,
                                        uint32_t host);

#endif
