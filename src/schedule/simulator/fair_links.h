/* SPDX-License-Identifier: Apache-2.0 */
/* Links that messages and data-parallel pieces share by rate (priority `fair`;
 * docs/formats/pipeline.md, "Shared links"): processor sharing between two
 * queues, messages and pieces. Every link transfers at most one message and one
 * piece at a time, each at half of the link's rate while there are both. A
 * piece on several links has the same rate on all of them. Times are exact:
 * work is counted in half ns of a link's time, and transfers end at whole ns.
 */
#ifndef LHI_SCHEDULE_SIMULATOR_FAIR_LINKS_H
#define LHI_SCHEDULE_SIMULATOR_FAIR_LINKS_H

#include "base/arena.h"
#include "base/fail.h"
#include "base/heap.h"
#include "schedule/pipeline/pipeline_internal.h"

/* The transfer of a message or of a piece. */
typedef struct lhi_fair_transfer {
    bool is_active, is_shared; /* shared: at half rate */
    int64_t depart_ns;
    int64_t left;     /* half ns of link time, at time since_ns */
    int64_t since_ns; /* start, or the last change of the rate */
    uint64_t n_rates; /* rates so far; tells valid events from old ones */
} lhi_fair_transfer;

/* Messages that wait for a link, first in, first out. */
typedef struct lhi_fair_queue {
    uint32_t current;    /* the message in transfer, if it is active */
    uint32_t head, tail; /* LH_NONE: none waits */
} lhi_fair_queue;

/* All shared links and the transfers on them. */
typedef struct lhi_fair_links {
    const lh_pipeline *p;
    bool *is_shared;              /* [resource] */
    lhi_fair_transfer *transfers; /* [resource]: of its message; then [device]:
                                   * of its piece */
    lhi_fair_queue *queues;       /* [resource] */
    uint32_t *next_message;       /* [message]: behind it in its queue */
    int64_t *message_ns;          /* [message]: transfer time at full rate */
    uint32_t *senders; /* [resource]: device of its piece, or LH_NONE */
    bool *is_claimed;  /* [resource]: scratch */
    uint32_t *waiting; /* devices whose piece waits, by entry */
    uint32_t n_waiting;
    int64_t *piece_ns; /* [device]: transfer time at full rate */
    lhi_heap ends;     /* expected ends, also of transfers with another rate
                        * since */
    bool no_memory;
} lhi_fair_links;

/* The end of a transfer. */
typedef struct lhi_fair_end {
    bool is_piece;
    uint32_t index; /* of the message, or the piece's device */
    int64_t depart_ns, sent_ns;
} lhi_fair_end;

/* Initialises the links for one iteration with at most n_messages messages;
 * *out is zeroed if the pipeline shares no links by rate. All memory but that
 * of `ends` belongs to `mem`; call lhi_fair_links_fini(). */
lh_status lhi_fair_links_init(const lh_pipeline *pipeline, uint64_t n_messages,
                              lhi_arena *mem, lhi_fair_links *out,
                              lh_error *err);
/* Frees the memory of the expected ends; nothing for a zeroed struct. */
void lhi_fair_links_fini(lhi_fair_links *links);

/* Checks whether messages and pieces share link resource r by rate; false for
 * LH_NONE. */
static inline bool lhi_is_shared_fairly(const lhi_fair_links *links, uint32_t r)
{
    return links->p && r != LH_NONE && links->is_shared[r];
}

/* Adds a message at time `now` to the queue of link resource `resource`, which
 * must be shared. */
void lhi_fair_links_add_message(lhi_fair_links *links, uint32_t resource,
                                uint32_t message, int64_t transfer_ns,
                                int64_t now);
/* Adds the next piece (collective slice) of a device at time `now` to the queue
 * of pieces for its links. It departs once none of them transfers a piece, nor
 * is wanted by a piece that entered before. */
void lhi_fair_links_add_piece(lhi_fair_links *links, uint32_t device,
                              int64_t transfer_ns, int64_t now);
/* Takes the next end of a transfer, if it is at until_ns or before, and starts
 * the transfers that follow it. Returns false if there is none. */
bool lhi_fair_links_take_end(lhi_fair_links *links, int64_t until_ns,
                             lhi_fair_end *out);

#endif
