/* SPDX-License-Identifier: Apache-2.0 */
/* Reader for the timers in Megatron-LM's log (megatron/core/timers.py, option
 * "all"): the ranks' times for passes, messages and the optimizer. */
#ifndef LHI_REPORT_DIAGNOSIS_TIMER_LOG_H
#define LHI_REPORT_DIAGNOSIS_TIMER_LOG_H

#include "report/diagnosis/gzip_stream.h"
#include "report/diagnosis/rank_activity.h"

/* One rank's timers, in ms: sums over the blocks. */
typedef struct lhi_timed_rank {
    const char *file; /* first log with its times; borrowed */
    double compute, communication, whole;
    double passes_whole; /* "forward-backward" */
    uint32_t n;          /* blocks with its passes */
    uint64_t block;      /* latest block with its passes */
} lhi_timed_rank;

/* Timers of all ranks. */
typedef struct lhi_timer_log {
    lhi_timed_rank *ranks; /* by rank number */
    uint32_t n_ranks;
    uint64_t n_blocks;
} lhi_timer_log;

/* Sets *out if the text is a log with Megatron-LM's timers, that is, has a
 * timer heading. */
lh_status lhi_timer_log_detect(lhi_gzip_stream *zip, const char *name,
                               bool *out, lh_error *err);
/* Adds a Megatron-LM log's timers; `name` must outlive `log`. LH_EINPUT: this
 * log has no timers for passes by rank, or their sum is not credible. */
lh_status lhi_timer_log_read(lhi_timer_log *log, lhi_gzip_stream *zip,
                             const char *name, lh_error *err);
/* Lists each rank's activity, summed over its blocks, in *out (release with
 * free()). The elements own their file names. */
lh_status lhi_timer_log_list(const lhi_timer_log *log,
                             lhi_recorded_activity **out, uint32_t *n,
                             lh_error *err);
/* Frees the ranks' timers. */
void lhi_timer_log_fini(lhi_timer_log *log);

#endif
