/* SPDX-License-Identifier: Apache-2.0 */
/* State of the reference simulator, shared by naive_sim.c and
 * naive_collectives.c. */
#ifndef NAIVE_SIM_INTERNAL_H
#define NAIVE_SIM_INTERNAL_H

#include "naive_sim.h"

#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>

#define NEVER INT64_MAX

/* Complete state of one pass. */
typedef struct item {
    lh_pass pass;
    uint32_t device, position;
    int64_t time_ns, memory;
    bool rests;                   /* an F's output, offloaded to the host */
    uint32_t back;                /* position of the pass that needs it */
    bool started, ended, gone_on; /* gone_on: the device may run its next */
    int64_t start_ns, end_ns, issued_ns;
    struct item *source;   /* producer of its input, or NULL */
    struct item *consumer; /* consumer of its output, or NULL */
    struct item *partner;  /* B of the overlapped pair that this F begins */
    struct item *opener;   /* F of the overlapped pair that this B ends */
    /* The message with its output, if the consumer is on another device. */
    bool travels, delegated, issued, posted, ready, departed;
    const lh_link *link; /* NULL: there is none */
    uint64_t nth;        /* messages issued before it */
    /* On links shared by rate: place in the order of entry, from 1; half ns of
     * link time that remain. */
    uint64_t turn;
    bool moves;
    int64_t halves;
    int64_t ready_ns, depart_ns, sent_ns, arrive_ns;
} item;

/* Links with the same name. */
typedef struct wire {
    const char *name;
    int64_t free_ns;
    const lh_link_order *order; /* NULL: first in, first out */
    uint32_t next;
} wire;

/* The data-parallel communication of a device that shares links with
 * messages. */
typedef struct sharer {
    uint32_t n_wires, wires[8]; /* 0: the device shares none */
    uint32_t *queue;            /* collectives in order of launch, ... */
    int64_t *whole_ns;          /* ... their transfers, ... */
    uint32_t *ops;              /* ... and operations, or UINT32_MAX */
    uint32_t count, at, piece;
    int64_t free_ns; /* its last piece is sent then */
    bool waits;
    uint64_t entry;
    bool moves; /* only on links shared by rate; as for an item */
    int64_t halves;
} sharer;

/* The simulation's state. */
typedef struct world {
    const lh_pipeline *p;
    const lh_schedule *s;
    lh_sim_options options;
    uint32_t n_items, n_wires;
    item *items;
    item ***orders; /* [device][position] */
    wire *wires;
    int64_t *dp_free_ns;  /* [device] */
    int64_t *gathered_ns; /* [chunk] */
    int64_t *operated_ns; /* [operation]: arrival; NEVER: not known */
    bool *gathers;        /* [chunk]: its all-gather is issued */
    bool *due;            /* [chunk]: its reduce-scatter starts now */
    sharer *sharers;      /* [device] */
    uint64_t n_entries, n_turns;
    uint64_t n_issued;
    int64_t now;
    naive_result *out;
} world;

/* Allocates zeroed memory; exits if there is none. */
void *naive_grab(size_t count, size_t size);
/* Returns part k of n of a total: the difference between rounded running sums.
 */
int64_t naive_part_of(int64_t total, const lh_pass *pass);

/* Data-parallel communication, in naive_collectives.c. */

/* Allocates the state of the data-parallel communication, and issues the
 * initial all-gathers. Call naive_find_sharers first. */
void naive_gather_all(world *w);
/* Issues the device's next all-gather, if any. */
void naive_gather_next(world *w, uint32_t device);
/* Checks whether `it`, which starts now, is its chunk's first forward and
 * waited for its weights. */
bool naive_begins_gathered(const world *w, const item *it);
/* Starts the chunk's reduce-scatter, or marks it as due, if no W or B of the
 * chunk remains. Call it when one has ended. */
void naive_scatter_if_last(world *w, uint32_t chunk);
/* Starts the reduce-scatters of chunks whose copies have ended. */
void naive_scatter_copies(world *w);
/* Launches the data-parallel operations that start with `pass`. */
void naive_launch(world *w, const lh_pass *pass);
/* Checks whether all data-parallel operations that `pass` needs have arrived.
 */
bool naive_has_operations(const world *w, const lh_pass *pass);
/* Finds the wires that each device's data-parallel link names. */
void naive_find_sharers(world *w);
/* Lets the lowest device's piece that can be offered by now enter the queues;
 * returns whether there is one. */
bool naive_enter_piece(world *w);
/* Sends one piece: of those that wait, the first that may occupy its links.
 * Returns whether there is one. */
bool naive_send_piece(world *w);
/* Checks whether messages and pieces share links by rate. */
bool naive_shares_rates(const world *w);
/* Ends and begins transfers that share links by rate, at the current time;
 * returns whether there is one. */
bool naive_move(world *w);
/* Advances the transfers that share links by rate from the current time until
 * one of them ends, at most to next_ns. Returns the new time. */
int64_t naive_advance(world *w, int64_t next_ns);

#endif
