/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier's model of data-parallel communication on links that also carry
 * messages. A device sends its collectives in launch order, each in pieces, and
 * one piece at a time waits for the links. */
#ifndef LHI_SCHEDULE_VERIFIER_DATA_STREAMS_H
#define LHI_SCHEDULE_VERIFIER_DATA_STREAMS_H

#include "schedule/verifier/verifier.h"

/* A launched collective. */
typedef struct lhi_verify_collective {
    uint32_t chunk, op; /* op: LH_NONE: the chunk's own */
    bool is_gather;
    int64_t launched_ns, transfer_ns;
    struct lhi_verify_collective *next;
} lhi_verify_collective;

/* One device's collectives; the first is being sent. */
typedef struct lhi_verify_stream {
    uint32_t n_links, *links; /* resources; 0: the device shares none */
    lhi_verify_collective *first, **end;
    /* Of the first collective: time per piece, and the piece count, of
     * which each time the sum of `extra` over the pieces so far passes a
     * multiple of that number, one takes 1 ns more. */
    int64_t each_ns, extra, sum, n_pieces, n_left;
    uint64_t ticket; /* of the waiting piece; 0: it has not entered */
    int64_t sent_ns; /* end of the last piece's transfer */
} lhi_verify_stream;

/* All streams. */
typedef struct lhi_verify_streams {
    const lhi_verifier *judge;
    lhi_verify_stream *all; /* [device]; NULL: no device shares a link */
    uint64_t n_tickets;
} lhi_verify_streams;

/* An offer's result. */
typedef struct lhi_verify_offer {
    bool waits;      /* the piece has to be offered again at next_ns, ... */
    uint64_t ticket; /* ... before pieces with a higher ticket */
    const lhi_verify_collective *sent; /* completed by this piece, or NULL */
    int64_t sent_ns;                   /* its end of transfer */
    int64_t next_ns; /* when to offer the device's next piece; -1: none */
} lhi_verify_offer;

/* Creates the stream (queue of collectives) of every device whose data-parallel
 * link is shared with messages, and finds its links. */
lh_status lhi_verify_make_streams(const lhi_verifier *judge,
                                  lhi_verify_streams *out, lh_error *err);
/* Returns the stream (queue of collectives) of a device that shares a link with
 * messages; NULL: it shares none. */
lhi_verify_stream *lhi_verify_get_stream(const lhi_verify_streams *streams,
                                         uint32_t device);
/* Appends a collective to a stream, a device's queue of collectives on shared
 * links. Returns the time in ns at which to offer its first piece; -1: other
 * collectives precede it, or judge->no_memory is set. */
int64_t lhi_verify_launch(lhi_verifier *judge, lhi_verify_stream *stream,
                          lhi_verify_collective what);
/* Takes the next piece (collective slice) of a stream; returns its time in ns
 * at the links' full rate. lhi_verify_end_piece() must follow. */
int64_t lhi_verify_take_piece(const lhi_verifier *judge,
                              lhi_verify_stream *stream);
/* Records that the piece (collective slice) taken last was sent at sent_ns. */
lhi_verify_offer lhi_verify_end_piece(lhi_verify_stream *stream,
                                      int64_t sent_ns);
/* Offers the next piece (collective slice) of a stream to its links at now_ns.
 * free_ns[r] is the time from which link resource r is free; it is updated if
 * the piece is sent. */
lhi_verify_offer lhi_verify_offer_piece(lhi_verify_streams *streams,
                                        lhi_verify_stream *stream,
                                        int64_t *free_ns, int64_t now_ns);

#endif
