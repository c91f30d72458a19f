/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule: every device's pass order, and the message order on links that
 * deviate from first in, first out. Text form: docs/formats/schedule.md.
 * Immutable after creation. */
#ifndef LONGHAUL_SCHEDULE_H
#define LONGHAUL_SCHEDULE_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Pass kinds. */
typedef enum lh_pass_kind {
    LH_F, /* forward */
    LH_D, /* input gradient (dgrad); PyTorch's I */
    LH_W, /* weight gradient (wgrad) */
    LH_B, /* D then W as one pass */
} lh_pass_kind;

/* A pass of one chunk on one microbatch. */
typedef struct lh_pass {
    uint32_t chunk, microbatch;
    uint16_t part;    /* split W: 0..n_parts-1; else 0 */
    uint16_t n_parts; /* 1: not split */
    uint8_t kind;     /* lh_pass_kind */
    /* An F and the B that follows it in the order run as one overlapped pair
     * (PyTorch's OVERLAP_F_B). Both passes are marked. Pipelines without
     * `overlap` run them as two passes. */
    bool overlapped;
} lh_pass;

/* A schedule. Release with lh_schedule_free(). */
typedef struct lh_schedule lh_schedule;

/* Frees a schedule; ignores NULL. */
LH_API void lh_schedule_free(lh_schedule *schedule);

/* Parses a schedule CSV, also PyTorch's, whose cells with communication actions
 * (SEND_F, RECV_B, UNSHARD, ...) are stored apart from the passes. `name`: file
 * name in messages. Release *out with lh_schedule_free(). */
LH_API lh_status lh_schedule_parse(const char *text, size_t len,
                                   const char *name, lh_schedule **out,
                                   lh_error *err);

/* Reads the schedule S.csv and, unless `fifo`, link message orders in
 * S.links.csv if that file exists. */
LH_API lh_status lh_schedule_read(const char *path, bool fifo,
                                  lh_schedule **out, lh_error *err);

/* Formats the schedule's passes as CSV text of *len bytes, one row per device;
 * release *text with lh_text_free(). */
LH_API lh_status lh_schedule_format(const lh_schedule *schedule, char **text,
                                    size_t *len, lh_error *err);

/* Writes the schedule to `path` and, beside it, its link orders if any.
 * Removes an old links file that no longer applies. */
LH_API lh_status lh_schedule_write(const lh_schedule *schedule,
                                   const char *path, lh_error *err);

/* Returns the device count, one per schedule row. */
LH_API uint32_t lh_schedule_n_devices(const lh_schedule *schedule);

/* Returns one device's passes in order and sets *n_passes. Borrowed. */
LH_API const lh_pass *lh_schedule_order(const lh_schedule *schedule,
                                        uint32_t device, uint32_t *n_passes);

/* Formats a pass as a cell ("3F0", "0W3:2/8") into `buffer`, which must hold
 * LH_PASS_TEXT_SIZE bytes, and returns `buffer`. */
#define LH_PASS_TEXT_SIZE 48

/* Formats a pass as in schedule files ("3F0", "3W0:2/8") into `buffer`;
 * returns `buffer`. */
LH_API char *lh_pass_format(const lh_pass *pass, char *buffer);

#ifdef __cplusplus
}
#endif
#endif
