/* SPDX-License-Identifier: Apache-2.0 */
/* Which host has which part of a job, and whether others should have them
 * (Adaptra, arXiv:2504.19232, section 6; Falcon). A pipeline of P devices that
 * is trained by R replicas runs on R x P hosts. A place is a device of a
 * replica: place r x P + d is device d of replica r, and the host of that
 * number has it when the job begins.
 *
 * Hosts are alike, and so are the links between any two of them, while nothing
 * is slow; or, where the pipeline's links or its devices' memory differ, those
 * of a device in all replicas are, and exchange their places with each other
 * alone. Neighbouring devices of a replica send each other messages; the
 * replicas of a device are a ring, replica r sends to replica r + 1, which its
 * data-parallel communication goes around, as fast as the slowest link in it
 * is. So a slow link matters by what it carries, and hosts that exchange their
 * places make it carry something else. The rules: docs/theory/places.md.
 *
 * No threads, no files, no clock. Times are nanoseconds. */
#ifndef LONGHAUL_PLACES_H
#define LONGHAUL_PLACES_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LH_MAX_HOSTS 1024u

typedef struct lh_places lh_places; /* immutable once made */

typedef struct lh_places_options {
    size_t size;         /* sizeof(lh_places_options) */
    uint32_t n_replicas; /* 0: 1 */
    /* Per chunk: the messages that one link of the ring carries as much as in
     * its all-gather, and in its reduce-scatter. NULL: as many as take that
     * long over a link of the pipeline. */
    const double *gather_messages, *scatter_messages;
    /* Per device: how long its host sends what it keeps, weights and moments,
     * over a link while nothing is slow. NULL: no time. */
    const int64_t *state_ns;
    /* The same in messages; NULL: as many as take that long. */
    const double *state_messages;
} lh_places_options;

/* `pipeline`: a replica while nothing is slow; its data-parallel times are of a
 * ring of all replicas. Links between devices that it has not take no time.
 * LH_EUNSUPPORTED: some of its links are one; it has operations in the middle
 * of the iteration.
 * LH_EINVAL: an option is out of range. Release with lh_places_free(). */
LH_API lh_status lh_places_make(const lh_pipeline *pipeline,
                                const lh_places_options *options,
                                lh_places **out, lh_error *err);
LH_API void lh_places_free(lh_places *places); /* NULL is fine */
LH_API uint32_t lh_places_n_hosts(const lh_places *places);
/* What the link between two hosts takes while nothing is slow, where they begin;
 * its name is NULL. Where links differ only those are known that the pipeline
 * has; others take no time. */
LH_API lh_link lh_places_usual(const lh_places *places, uint32_t from,
                               uint32_t to);

/* What a link from one host to another takes more than usual. */
typedef struct lh_host_link {
    uint32_t from, to;
    int64_t latency_ns, transfer_ns; /* transfer: of one message */
} lh_host_link;

/* What is slow. */
typedef struct lh_hosts_now {
    size_t size; /* sizeof(lh_hosts_now) */
    uint32_t n_links;
    const lh_host_link *links; /* of one pair, they add up */
    const double *slower; /* per host: factor of its passes, at least 1; NULL:
                             none is */
} lh_hosts_now;

/* One replica in these places, as slow as the slowest: each link and each
 * device's passes take what they take in the replica where that is most, since
 * replicas wait for each other. Exact where one replica has all that is slow,
 * or all have the same; else not too short. `hosts`: of each place; NULL: as
 * they begin. `now` may be NULL. Schedules of the pipeline are such of *out.
 * LH_EINVAL: hosts are not each there once, or a number of `now` is out of
 * range. Release with lh_pipeline_free(). */
LH_API lh_status lh_places_pipeline(const lh_places *places,
                                    const lh_hosts_now *now,
                                    const uint32_t *hosts, lh_pipeline **out,
                                    lh_error *err);

/* What it takes that hosts that are in places `from` come to be in `to`, as of
 * lh_exchange; NULL: as they begin. LH_EINVAL: hosts are not each there once,
 * or a number of `now`, which may be NULL, is out of range; LH_EUNSUPPORTED:
 * what a link that is slow takes is not known. */
LH_API lh_status lh_places_moving(const lh_places *places,
                                  const lh_hosts_now *now, const uint32_t *from,
                                  const uint32_t *to, int64_t *out_ns,
                                  lh_error *err);

typedef struct lh_exchange_options {
    size_t size;           /* sizeof(lh_exchange_options) */
    const uint32_t *hosts; /* of each place, now; NULL: as they begin */
    const lh_sim_options *sim; /* how messages go; NULL: as usual */
    double lasts; /* iterations for which it counts; 0: as many as it takes */
    /* All orders of so many hosts are tried, of more only exchanges of two, one
     * after the other as long as it gets better; 0: 8, and at most that. */
    uint32_t most_hosts;
} lh_exchange_options;

/* What a place keeps, from the host that had it to the one that gets it. */
typedef struct lh_move {
    uint32_t place, from, to;
    uint32_t via; /* a host that passes it on; LH_NONE: none does */
    int64_t start_ns, end_ns;
} lh_move;

typedef struct lh_exchange {
    bool is_exchange; /* hosts are to move: it saves more than it costs */
    uint32_t n_hosts;
    const uint32_t *hosts; /* of each place, then; as now if none moves */
    int64_t now_ns, predicted_ns; /* an iteration of the schedule */
    int64_t move_ns; /* what moving takes; each host sends one thing at a time,
                        and receives one */
    uint32_t n_moves;
    const lh_move *moves;
    bool all;             /* all orders were tried */
    uint64_t n_tried;     /* orders of hosts */
    uint64_t n_simulated; /* those that differ in what links carry */
    const char *why;      /* a sentence or two, for people */
} lh_exchange;

/* The places with which the coming iterations, and moving to them, take least.
 * Among equals as few moves, then the smallest numbers. Errors as of
 * lh_places_pipeline() and lh_simulate(). Release with lh_exchange_free(). */
LH_API lh_status lh_places_exchange(const lh_places *places,
                                    const lh_hosts_now *now,
                                    const lh_schedule *schedule,
                                    const lh_exchange_options *options,
                                    lh_exchange **out, lh_error *err);
LH_API void lh_exchange_free(lh_exchange *exchange); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
