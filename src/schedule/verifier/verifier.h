/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of the verifier. It accesses pipelines and schedules only
 * through their public functions, so it does not repeat errors made elsewhere.
 *
 * Input: a pipeline and a schedule, or a certificate. Output: a list of
 * violations (longhaul/check.h).
 *
 *     check.c          all checks of a schedule, in sequence
 *     passes.c         every pass exists once, at a valid position
 *     communication.c  SEND, RECV and other communication cells
 *     links.c          messages per link; explicit orders are complete
 *     memory.c         memory limits
 *     timing.c         execution, deadlock and makespan
 *     data_streams.h   data-parallel communication on links with messages;
 *                      rate_sharing.h: at the same time as messages
 *     verdict.c        collects the violations
 *     certificate.c    all statements of a certificate
 *     model.h          lower bounds: closed_forms.c, windows.c, pass_kinds.c
 * and clauses.c, over the operations and machines in model.c */
#ifndef LHI_SCHEDULE_VERIFIER_VERIFIER_H
#define LHI_SCHEDULE_VERIFIER_VERIFIER_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/check.h>
#include <longhaul/experimental/check.h>
#include <longhaul/experimental/pipeline.h>
#include <stdbool.h>
#include <stdint.h>

/* Limit on the steps that verify one certificate's proof: visited states,
 * compared passes, propagated precedences and literals. So many take about half
 * a minute. The proof for a Loop with 64 devices and 128 microbatches takes
 * about 1.4 * 10^8. */
#define LHI_VERIFY_MOST_WORK UINT64_C(5000000000)

/* Maximum number of stored violations; more are only counted. */
enum { LHI_MAX_VIOLATIONS = 100 };

/* A verdict: violations, makespan and peak memory. */
struct lh_verdict {
    lhi_arena *mem;
    uint32_t n_kept;
    uint64_t total;
    const char *texts[LHI_MAX_VIOLATIONS];
    int64_t makespan_ns; /* -1: cannot run */
    uint32_t n_devices;
    int64_t *peaks; /* per device */
};

/* A pass in the schedule. Nodes are numbered device by device, in order. */
typedef struct lhi_verify_node {
    lh_pass pass;
    uint32_t node;
} lhi_verify_node;

/* State while verifying one schedule. */
typedef struct lhi_verifier {
    const lh_pipeline *pipeline;
    const lh_schedule *schedule;
    lh_verdict *verdict;
    lhi_arena *mem; /* scratch */
    bool no_memory; /* an allocation failed: verdict invalid */
    uint32_t n_devices, n_chunks, n_microbatches;
    uint32_t path_length; /* chunks that a microbatch passes: all, or half of
                           * them with two directions */
    uint32_t n_rows;
    uint32_t *first;         /* [row]: first node; [n_rows]: number of nodes */
    lh_pass *passes;         /* [node] */
    uint32_t *rows;          /* [node] */
    uint32_t n_sorted;       /* nodes with valid passes, ... */
    lhi_verify_node *sorted; /* ... by chunk, microbatch, kind, part */
    uint32_t n_resources;    /* links with equal names are one resource */
    const char **resource_names;
    uint32_t *link_resources; /* [link] */
    uint32_t *forward;        /* [c]: link from chunk c to c + 1, or ... */
    uint32_t *backward;       /* [c]: link from chunk c to c - 1, or ... */
} lhi_verifier;

/* ... without a link: LHI_NO_LINK between devices, LHI_SAME_DEVICE on one
 * device. */
#define LHI_NO_LINK (UINT32_MAX - 1)
#define LHI_SAME_DEVICE UINT32_MAX

/* Checks whether chunk c + 1 runs the microbatches of chunk c next. */
static inline bool lhi_verify_has_next(const lhi_verifier *judge, uint32_t c)
{
    return c % judge->path_length + 1 < judge->path_length;
}

/* Checks whether chunk c - 1 runs chunk c's microbatches before it. */
static inline bool lhi_verify_has_previous(const lhi_verifier *judge,
                                           uint32_t c)
{
    return c % judge->path_length > 0;
}

/* Checks whether the pass with index `node` in judge->passes is an F that runs
 * overlapped with the B after it. */
bool lhi_verify_starts_pair(const lhi_verifier *judge, uint32_t node);

/* Adds a violation with the formatted text to the verdict; beyond the maximum
 * number of texts it is only counted. */
void lhi_verify_add_violation(lhi_verifier *judge, const char *format, ...)
    LHI_PRINTF(2, 3);
/* Adds `count` to the violation count, for violations whose texts are not
 * stored. */
void lhi_verify_count_violations(lhi_verifier *judge, uint64_t count);
/* Checks whether the list of violation texts has its maximum length. */
bool lhi_verify_is_verdict_full(const lhi_verifier *judge);

/* Returns the number, from 1, of the cell in its device's row that holds the
 * pass with index `node` in judge->passes. */
uint32_t lhi_verify_get_cell(const lhi_verifier *judge, uint32_t node);
/* Returns a pass's index in judge->passes, all devices' passes;
 * LH_NONE: it is not in the schedule. */
uint32_t lhi_verify_find_pass(const lhi_verifier *judge, const lh_pass *pass);
/* Returns the index in judge->passes of the D or B of a chunk and microbatch;
 * LH_NONE: neither is in the schedule. */
uint32_t lhi_verify_find_gradient(const lhi_verifier *judge, uint32_t chunk,
                                  uint32_t microbatch);
/* Returns the index in judge->passes of the pass `at`, at which a data-parallel
 * operation starts or must be done; LH_NONE: it is not in the schedule. */
uint32_t lhi_verify_find_dp_pass(const lhi_verifier *judge,
                                 const lh_dp_pass *at);
/* Returns the link over which the output of the pass `node` (index in
 * judge->passes) is sent; LHI_NO_LINK or LHI_SAME_DEVICE: none. *consumer (may
 * be NULL): the chunk that receives the output; LH_NONE: there is none. */
uint32_t lhi_verify_get_link(const lhi_verifier *judge, uint32_t node,
                             uint32_t *consumer);

/* Returns the duration of a pass in ns; a W part and a slice take a share. */
int64_t lhi_verify_get_duration(const lhi_verifier *judge, const lh_pass *pass);
/* Returns the duration in ns of the overlapped pair of the F `node` (index in
 * judge->passes) and the B after it: each pass times the pipeline's factor,
 * rounded. */
int64_t lhi_verify_compute_pair_ns(const lhi_verifier *judge, uint32_t node);

/* Returns the share of `total` (time or memory) of one part of a W; integer
 * shares add up to `total`. */
int64_t lhi_verify_compute_share(int64_t total, const lh_pass *pass);

/* Checks that every pass runs exactly once, on its device, after its
 * prerequisites there; adds violations. Fills in judge->sorted, the nodes by
 * chunk and microbatch. */
lh_status lhi_verify_check_passes(lhi_verifier *judge, lh_error *err);
/* Determines the verifier's link resources (one for all links with the same
 * name) and each route's link between chunks. */
lh_status lhi_verify_find_links(lhi_verifier *judge, lh_error *err);
/* Returns the link resource with this name, which all links of the name share;
 * LH_NONE: there is none. */
uint32_t lhi_verify_find_resource(const lhi_verifier *judge, const char *name);
/* Checks that explicit message orders have all messages of their link once and
 * no others; adds violations. */
lh_status lhi_verify_check_links(lhi_verifier *judge, lh_error *err);
/* Checks a schedule's communication cells, if it has any (communication.c);
 * `buffers` as for lh_check_buffered(). */
lh_status lhi_verify_check_communication(lhi_verifier *judge, uint32_t buffers,
                                         lh_error *err);
/* Computes the peak memory of every device in the schedule's order and checks
 * it against the device's limit; adds violations. */
void lhi_verify_check_memory(lhi_verifier *judge);
/* Simulates a schedule that has no violation so far with the verifier's own
 * arithmetic, which sets the verdict's makespan. Adds a violation if it
 * deadlocks. */
lh_status lhi_verify_check_timing(lhi_verifier *judge, lh_error *err);

/* lh_check_certificate() with a limit of `most_work` steps for the proof; more
 * leave the bound unverified. */
lh_status lhi_verify_check_certificate(const lh_pipeline *pipeline,
                                       const lh_schedule *schedule,
                                       const lh_certificate *certificate,
                                       uint64_t most_work, lh_claims **out,
                                       lh_error *err);

#endif
