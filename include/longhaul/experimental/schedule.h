/* SPDX-License-Identifier: Apache-2.0 */
/* Builds schedules, and their link orders.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_SCHEDULE_H
#define LONGHAUL_EXPERIMENTAL_SCHEDULE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most parts in one W pass. */
#define LH_MAX_PARTS 4096u

/* Communication cell kinds in PyTorch's CSV format, and of longhaul's
 * executor for it: SEND_F and RECV_F of activations, SEND_B and RECV_B of
 * gradients, waits for sends, and operations on a chunk's parameters. */
typedef enum lh_comm_kind {
    LH_COMM_SEND_F,
    LH_COMM_RECV_F,
    LH_COMM_SEND_B,
    LH_COMM_RECV_B,
    LH_COMM_WAIT_SEND_F,
    LH_COMM_WAIT_SEND_B,
    LH_COMM_UNSHARD,
    LH_COMM_RESHARD,
    LH_COMM_REDUCE_GRAD,
    LH_COMM_WAIT_REDUCE_GRAD,
} lh_comm_kind;

/* A communication cell. */
typedef struct lh_comm {
    uint32_t chunk;      /* of the row: sends or receives */
    uint32_t microbatch; /* of a message or a wait for it; else 0 */
    uint32_t cell;       /* column in the file, counted from 1 */
    uint32_t n_before;   /* passes before it in its row */
    uint8_t kind;        /* lh_comm_kind */
} lh_comm;

/* Message order on one link, given by the producing passes. */
typedef struct lh_link_order {
    const char *link; /* link name; "from-to" if unnamed */
    uint32_t n_passes;
    const lh_pass *passes;
} lh_link_order;

/* Creates a schedule from copies of `orders[d][0..n_passes[d]-1]` for every
 * device d and the link orders (may be none). Validates only each pass's form;
 * lh_check() verifies a schedule against a pipeline. Release with
 * lh_schedule_free(). */
LH_API lh_status lh_schedule_make(uint32_t n_devices,
                                  const lh_pass *const *orders,
                                  const uint32_t *n_passes,
                                  uint32_t n_link_orders,
                                  const lh_link_order *link_orders,
                                  lh_schedule **out, lh_error *err);

/* Copies the schedule and, with `links`, its message orders of links. The
 * file's cell positions and communication cells are not copied. */
LH_API lh_status lh_schedule_copy(const lh_schedule *schedule, bool links,
                                  lh_schedule **out, lh_error *err);

/* Returns the communication cells (such as SEND_F) of a device's row in order
 * and sets *n. Borrowed. Only lh_check() uses them; all other functions derive
 * the messages from the pipeline. */
LH_API const lh_comm *lh_schedule_comms(const lh_schedule *schedule,
                                        uint32_t device, uint32_t *n);
/* Returns the number of communication cells (such as SEND_F) in all rows. */
LH_API uint32_t lh_schedule_n_comms(const lh_schedule *schedule);

/* Returns the number of link orders (explicit orders of messages on a link). */
LH_API uint32_t lh_schedule_n_link_orders(const lh_schedule *schedule);
/* Returns link order number `i`, the message order on one link; borrowed.
 * */
LH_API const lh_link_order *lh_schedule_link_order(const lh_schedule *schedule,
                                                   uint32_t i);

/* Formats a communication action in PyTorch schedules ("0SEND_F3", "1UNSHARD")
 * into `buffer`; returns `buffer`. */
LH_API char *lh_comm_format(const lh_comm *comm, char *buffer);

/* Merges every split W's parts. The merged pass runs at the position of
 * its first or last part, or between them: wherever the makespan increases
 * least. `pipeline` NULL: at the last part's position. */
LH_API lh_status lh_schedule_merge_parts(const lh_pipeline *pipeline,
                                         const lh_schedule *schedule,
                                         lh_schedule **out, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
