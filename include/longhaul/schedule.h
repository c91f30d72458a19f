/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule: for every device the order of its passes, and where messages
 * leave in another order than first in, first out, that order too. Text form:
 * docs/formats/schedule.md. Immutable once made. */
#ifndef LONGHAUL_SCHEDULE_H
#define LONGHAUL_SCHEDULE_H

#include <longhaul/pipeline.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lh_pass_kind {
    LH_F, /* forward */
    LH_D, /* input gradient; PyTorch's I */
    LH_W, /* weight gradient */
    LH_B, /* D then W as one pass */
} lh_pass_kind;

#define LH_MAX_PARTS 4096u

typedef struct lh_pass {
    uint32_t chunk, microbatch;
    uint16_t part;    /* of a W that is cut: 0..n_parts-1; else 0 */
    uint16_t n_parts; /* 1: whole */
    uint8_t kind;     /* lh_pass_kind */
} lh_pass;

typedef struct lh_schedule lh_schedule;

/* The order in which messages leave on one link, by the passes that make
 * them. */
typedef struct lh_link_order {
    const char *link; /* its name, "from-to" for unnamed ones */
    uint32_t n_passes;
    const lh_pass *passes;
} lh_link_order;

/* Copies `orders[d][0..n_passes[d]-1]` for every device d, and the link orders
 * (may be none). Only the form of each pass is checked; whether the schedule
 * suits a pipeline is for lh_check(). */
LH_API lh_status lh_schedule_make(uint32_t n_devices,
                                  const lh_pass *const *orders,
                                  const uint32_t *n_passes,
                                  uint32_t n_link_orders,
                                  const lh_link_order *link_orders,
                                  lh_schedule **out, lh_error *err);
LH_API void lh_schedule_free(lh_schedule *schedule); /* NULL is fine */

/* The same schedule again, with its orders of links or without. Cells of a
 * file and what was skipped there stay behind. */
LH_API lh_status lh_schedule_copy(const lh_schedule *schedule, bool links,
                                  lh_schedule **out, lh_error *err);

/* Reads a schedule CSV, PyTorch's included: cells of its communication
 * actions (SEND_F, RECV_B, UNSHARD, ...) are skipped and counted, overlapped
 * pairs are taken apart. */
LH_API lh_status lh_schedule_parse(const char *text, size_t len,
                                   const char *name, lh_schedule **out,
                                   lh_error *err);
/* Reads S.csv and, unless `fifo`, the link orders of S.links.csv if there. */
LH_API lh_status lh_schedule_read(const char *path, bool fifo,
                                  lh_schedule **out, lh_error *err);
/* How many communication cells the reader skipped. */
LH_API uint32_t lh_schedule_n_skipped(const lh_schedule *schedule);

/* The CSV; release with lh_text_free(). */
LH_API lh_status lh_schedule_format(const lh_schedule *schedule, char **text,
                                    size_t *len, lh_error *err);
/* The link orders' CSV; *text = NULL where there are none. */
LH_API lh_status lh_schedule_format_links(const lh_schedule *schedule,
                                          char **text, size_t *len,
                                          lh_error *err);
/* Writes `path`, and beside it the link orders where there are any; an old
 * links file that no longer applies is removed. */
LH_API lh_status lh_schedule_write(const lh_schedule *schedule,
                                   const char *path, lh_error *err);

LH_API uint32_t lh_schedule_n_devices(const lh_schedule *schedule);
/* The passes of one device in order; *n_passes is set. Borrowed. */
LH_API const lh_pass *lh_schedule_order(const lh_schedule *schedule,
                                        uint32_t device, uint32_t *n_passes);
/* Where the reader found a pass in its row, counted from 1: idle cells and
 * skipped ones count too. */
LH_API uint32_t lh_schedule_cell(const lh_schedule *schedule, uint32_t device,
                                 uint32_t pass);
LH_API uint32_t lh_schedule_n_link_orders(const lh_schedule *schedule);
LH_API const lh_link_order *lh_schedule_link_order(const lh_schedule *schedule,
                                                   uint32_t i);

/* Writes a pass as a cell ("3F0", "0W3:2/8") into `buffer` of at least
 * LH_PASS_TEXT bytes and returns it. */
#define LH_PASS_TEXT 48
LH_API char *lh_pass_text(const lh_pass *pass, char *buffer);

/* Makes every W whole, and has it run where its last part was, or where its
 * first part was, or in between: wherever the makespan suffers least. With
 * `pipeline` NULL the last part's place is taken. */
LH_API lh_status lh_schedule_whole(const lh_pipeline *pipeline,
                                   const lh_schedule *schedule,
                                   lh_schedule **out, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
