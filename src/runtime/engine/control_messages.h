/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages between ranks, and rank 0's outcome at the end:
 * docs/formats/wire.md. Encoding and checking only; no communication. Reading
 * fails with LH_EIO if the bytes are not a valid message; `err` names the
 * problem and the output is unchanged, except for arrays of rows. */
#ifndef LHI_RUNTIME_ENGINE_CONTROL_MESSAGES_H
#define LHI_RUNTIME_ENGINE_CONTROL_MESSAGES_H

#include "runtime/transport/transport.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    LHI_MESSAGE_VERSION = 12,
    LHI_COMMAND_BYTES = 36,
    LHI_COMMAND_REPORT_BYTES = 52,
    LHI_RECEIVE_NOTICE_BYTES = 16,
    LHI_RECORD_COUNTS_BYTES = 16,
    LHI_PASS_RECORD_BYTES = 40,
    LHI_COLLECTIVE_RECORD_BYTES = 48,
    LHI_HOP_OBSERVATION_BYTES = 24,
    LHI_OUTCOME_BYTES = 64,
    LHI_ITERATION_BYTES = 88,
    LHI_PROPOSAL_BYTES = 32,
    LHI_VOTE_BYTES = 256,
    LHI_SWITCH_BYTES = 1056,
    LHI_OBSERVATION_HEADER_BYTES = 24,
    LHI_PASS_OBSERVATION_BYTES = 48,
    LHI_ADAPT_NOTICE_BYTES = 768,
    LHI_VOTE_TEXT = LHI_VOTE_BYTES - 16, /* with the terminating 0 */
    LHI_SWITCH_NAME = 128,               /* all with the terminating 0 */
    LHI_SWITCH_WHY = 600,
    LHI_PATHS_MAX_BYTES = 1 << 20, /* bytes of the path text */
    LHI_RANK_ASSIGNMENT_MAX_BYTES =
        1 << 20, /* bytes of the rank assignment text */
    LHI_SWITCH_REFUSED =
        LHI_SWITCH_BYTES - 64 - LHI_SWITCH_NAME - LHI_SWITCH_WHY,
    LHI_ADAPT_NOTICE_NAME = 32, /* all with the terminating 0 */
    LHI_ADAPT_NOTICE_TEXT = LHI_ADAPT_NOTICE_BYTES - 104 - LHI_ADAPT_NOTICE_NAME
};

/* Commands from rank 0 to all ranks. */
typedef enum lhi_command_kind {
    LHI_COMMAND_STEP,
    LHI_COMMAND_VALIDATE,
    LHI_COMMAND_SAVE,
    LHI_COMMAND_MEASURE,  /* once after the last step, for profiles */
    LHI_COMMAND_END,      /* the last command */
    LHI_COMMAND_SCHEDULE, /* a proposal before the first step */
    LHI_COMMAND_MOVE      /* accept the proposal and migrate state */
} lhi_command_kind;

/* Verdict on the schedule proposed in the previous command. */
typedef enum lhi_verdict {
    LHI_VERDICT_NONE, /* no proposal */
    LHI_VERDICT_GO,   /* all ranks switch at this step */
    LHI_VERDICT_DROP
} lhi_verdict;

/* A command from rank 0. */
typedef struct lhi_command {
    lhi_command_kind what;
    uint64_t step;
    int64_t t0_ns;          /* step start, with a shared clock */
    bool proposes;          /* a PROPOSAL follows, for the next step */
    bool wants_observation; /* an observation follows this step's DONE */
    lhi_verdict verdict;
    /* END: 1 plus the rank whose stop request ends the run; 0: its last step */
    uint32_t stopped_by;
} lhi_command;

/* A rank's report on a finished command. */
typedef struct lhi_command_report {
    int64_t end_ns; /* on the shared clock; else since the start */
    double loss;    /* for validation */
    uint64_t n_slips;
    int64_t worst_late_ns;
    uint64_t pool_growth;
    uint32_t n_collectives; /* collectives in the following observation */
    bool is_stopping;       /* the rank has received a stop request */
} lhi_command_report;

/* Record of a pass. Times are on the real clock; the message's times are the
 * transport's. */
typedef struct lhi_pass_record {
    int64_t start_ns, end_ns;
    int64_t issued_ns; /* rank continues; later only if sends block */
    int64_t entered_ns, arrived_ns; /* for an input message */
    size_t peak_bytes;              /* device's peak so far; not sent */
} lhi_pass_record;

/* Observation of a pass for online adaptation, on the host's clock, as modelled
 * by device and links. */
typedef struct lhi_pass_observation {
    int64_t ready_ns; /* could start: device free, input arrived */
    int64_t ended_ns;
    int64_t free_ns; /* rank continues, message handed over */
    /* For an input message; else 0. The first two are on the sender's clock:
     * when it was handed over (or its late receive posted), and when its
     * transfer started. */
    int64_t handed_over_ns, transfer_start_ns, arrived_ns;
} lhi_pass_observation;

/* A rank's observation of a step; `n_passes` rows follow, then the collectives.
 */
typedef struct lhi_observation_header {
    uint32_t n_passes, n_collectives, n_hops;
    uint64_t clock; /* equal on ranks that read the same clock */
} lhi_observation_header;

/* Observation of data-parallel messages from another place in a step. */
typedef struct lhi_hop_observation {
    uint32_t place; /* sender's */
    lhi_net_hop hop;
} lhi_hop_observation;

/* Record of a data-parallel collective; at the end of a step's list also of
 * activation copies, for which sent_ns equals arrive_ns. */
typedef struct lhi_collective_record {
    uint32_t chunk;
    bool is_reduce_scatter;
    uint32_t op; /* lh_pipeline_dp_op(); LH_NONE: whole chunk */
    int64_t ready_ns, depart_ns, sent_ns, arrive_ns;
    uint32_t copy; /* 1 + index in the offload stream; 0: not a copy */
} lhi_collective_record;

/* A rank's record count for the last step; the rows follow. */
typedef struct lhi_record_counts {
    uint32_t n_passes, n_collectives;
} lhi_record_counts;

/* Sizes, in bytes, of a proposal's concatenated texts: rows, link orders, paths
 * (lhi_paths_format()), rank assignment (rank_assignment.h). Size 0 of the last
 * two: as at the start. */
typedef struct lhi_proposal_texts {
    uint32_t n_rows, n_links, n_paths, n_assignment;
} lhi_proposal_texts;

/* Returns the total size of a proposal's texts in bytes. */
static inline size_t lhi_proposal_texts_size(const lhi_proposal_texts *t)
{
    return (size_t)t->n_rows + t->n_links + t->n_paths + t->n_assignment;
}

/* A schedule that takes effect at `step`; its texts follow as one message.
 * n_rows 0: rank 0 has none, and all ranks vote against it. */
typedef struct lhi_proposal {
    uint64_t step;
    lhi_proposal_texts texts;
} lhi_proposal;

/* A rank's vote on a proposal. */
typedef struct lhi_vote {
    bool refuses;
    uint64_t step;
    char why[LHI_VOTE_TEXT]; /* reason for a refusal */
} lhi_vote;

/* An adaptation notice; becomes an lh_adapt_event. */
typedef struct lhi_adapt_notice {
    lh_adapt_event notice; /* without its texts */
    char name[LHI_ADAPT_NOTICE_NAME], text[LHI_ADAPT_NOTICE_TEXT];
} lhi_adapt_notice;

/* A proposal and its result; becomes an lh_switch. */
typedef struct lhi_switch {
    uint64_t step;
    int64_t predicted_ns;
    int64_t expected_ns; /* by the proposer; 0: unknown */
    /* Size of the rank assignment text that follows if job parts moved.
     */
    uint32_t n_assignment;
    char *assignment; /* the text, if present; not in SWITCH */
    uint64_t moved_bytes;
    int64_t move_ns, move_expected_ns;
    bool is_refused;
    lh_data_path path;
    char to[LHI_SWITCH_NAME], why[LHI_SWITCH_WHY], refused[LHI_SWITCH_REFUSED];
} lhi_switch;

/* The run's outcome. It is followed by iterations, `n_switches` proposals,
 * `n_notices` notices, the texts of the last iteration's plan (n_rows 0: the
 * initial plan), then counts and rows for each of `n_recorded` ranks. */
typedef struct lhi_outcome {
    uint64_t n_iterations, pool_growth;
    bool interrupted;
    uint32_t n_recorded, n_switches, n_notices;
    lhi_proposal_texts texts;
    uint64_t monitor_ns; /* processor time */
} lhi_outcome;

/* Encodes a command that rank 0 sends to all ranks. */
void lhi_command_write(const lhi_command *command,
                       unsigned char out[LHI_COMMAND_BYTES]);
/* Decodes a command of rank 0. LH_EIO: invalid. */
lh_status lhi_command_read(const unsigned char *in, size_t size,
                           lhi_command *out, lh_error *err);

/* Encodes a rank's report on an executed command. */
void lhi_command_report_write(const lhi_command_report *done,
                              unsigned char out[LHI_COMMAND_REPORT_BYTES]);
/* Decodes a rank's report on an executed command. */
lh_status lhi_command_report_read(const unsigned char *in, size_t size,
                                  lhi_command_report *out, lh_error *err);

/* Encodes a notice that a receive was posted at `posted_ns`. */
void lhi_receive_notice_write(int64_t posted_ns,
                              unsigned char out[LHI_RECEIVE_NOTICE_BYTES]);
/* Decodes a notice that a receive was posted at *posted_ns. */
lh_status lhi_receive_notice_read(const unsigned char *in, size_t size,
                                  int64_t *posted_ns, lh_error *err);

/* Encodes how many records (passes, collectives, copies) a rank has for an
 * iteration into `out`. */
void lhi_record_counts_write(const lhi_record_counts *counts,
                             unsigned char out[LHI_RECORD_COUNTS_BYTES]);
/* Decodes how many records (passes, collectives, copies) a rank has for an
 * iteration. LH_EIO: invalid. */
lh_status lhi_record_counts_read(const unsigned char *in, size_t size,
                                 lhi_record_counts *out, lh_error *err);

/* Returns the encoded size in bytes of a rank's records: passes, then
 * collectives and copies. */
size_t lhi_record_rows_size(const lhi_record_counts *counts);
/* Encodes a rank's pass and collective records. */
void lhi_record_rows_write(const lhi_record_counts *counts,
                           const lhi_pass_record *records,
                           const lhi_collective_record *executed,
                           unsigned char *out);
/* Decodes a rank's pass records into `records` and its collective and copy
 * records into `executed`, as many as in `c`. LH_EIO: invalid. */
lh_status lhi_record_rows_read(const unsigned char *in, size_t size,
                               const lhi_record_counts *counts,
                               lhi_pass_record *records,
                               lhi_collective_record *executed, lh_error *err);

/* Returns the encoded size in bytes of a rank's observation: header, passes
 * and collectives. */
size_t lhi_observation_size(const lhi_observation_header *seen);
/* Encodes a rank's measurements of one iteration into `out`: header `s`, passes
 * `rows`, collectives `executed`, and hops (traffic from other places), with
 * the counts in the header. */
void lhi_observation_write(const lhi_observation_header *seen,
                           const lhi_pass_observation *rows,
                           const lhi_collective_record *executed,
                           const lhi_hop_observation *hops, unsigned char *out);
/* Decodes a rank's measurements of one iteration into `rows` (passes),
 * `executed` (collectives) and `hops`, whose counts must be those of *seen;
 * sets the rank's clock number in *seen. LH_EIO: invalid. */
lh_status lhi_observation_read(const unsigned char *in, size_t size,
                               lhi_observation_header *seen,
                               lhi_pass_observation *rows,
                               lhi_collective_record *executed,
                               lhi_hop_observation *hops, lh_error *err);

/* Encodes a proposal's header into `out`: its step, and the sizes of its texts
 * (schedule, link orders, data path, assignment). */
void lhi_proposal_write(const lhi_proposal *proposal,
                        unsigned char out[LHI_PROPOSAL_BYTES]);
/* Decodes a proposed schedule's header. LH_EIO: invalid, or its texts exceed
 * the maximum schedule size. */
lh_status lhi_proposal_read(const unsigned char *in, size_t size,
                            lhi_proposal *out, lh_error *err);
/* Encodes a rank's vote on a proposed schedule. */
void lhi_vote_write(const lhi_vote *vote, unsigned char out[LHI_VOTE_BYTES]);
/* Decodes a rank's vote on a proposed schedule. */
lh_status lhi_vote_read(const unsigned char *in, size_t size, lhi_vote *out,
                        lh_error *err);

/* Encodes the command that ranks switch to a new schedule at a step. */
void lhi_switch_write(const lhi_switch *row,
                      unsigned char out[LHI_SWITCH_BYTES]);
/* Decodes the command that ranks switch to a new schedule at a step. */
lh_status lhi_switch_read(const unsigned char *in, size_t size, lhi_switch *out,
                          lh_error *err);

/* Encodes a notice about a monitor event or an adaptation decision. */
void lhi_adapt_notice_write(const lhi_adapt_notice *row,
                            unsigned char out[LHI_ADAPT_NOTICE_BYTES]);
/* Decodes a notice about a monitor event or an adaptation decision. */
lh_status lhi_adapt_notice_read(const unsigned char *in, size_t size,
                                lhi_adapt_notice *out, lh_error *err);

/* Encodes the run's outcome header, which rank 0 sends to the caller. */
void lhi_outcome_head_write(const lhi_outcome *outcome,
                            unsigned char out[LHI_OUTCOME_BYTES]);
/* Decodes the header of the run's outcome, which rank 0 has sent. LH_EIO:
 * invalid. */
lh_status lhi_outcome_head_read(const unsigned char *in, size_t size,
                                lhi_outcome *out, lh_error *err);
/* Encodes the results (times, loss) of an iteration. */
void lhi_iteration_write(const lh_iteration *iteration,
                         unsigned char out[LHI_ITERATION_BYTES]);
/* Decodes the results (times, loss) of an iteration. */
lh_iteration lhi_iteration_read(const unsigned char in[LHI_ITERATION_BYTES]);

#endif
