/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other beside tensors, and what rank 0 hands back at the
 * end: docs/formats/wire.md. Coding and checking only; nothing here sends or
 * receives. Reading fails with LH_EIO: the bytes are no such message; `err`
 * says what is wrong, and the output is untouched (but for arrays of rows). */
#ifndef LHI_MESSAGES_H
#define LHI_MESSAGES_H

#include <longhaul/engine.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    LHI_MESSAGE_VERSION = 8,
    LHI_COMMAND_BYTES = 32,
    LHI_DONE_BYTES = 48,
    LHI_NOTICE_BYTES = 16,
    LHI_COUNTS_BYTES = 16,
    LHI_RECORD_BYTES = 40,
    LHI_PLAYED_BYTES = 48,
    LHI_OUTCOME_BYTES = 56,
    LHI_ITERATION_BYTES = 80,
    LHI_PROPOSAL_BYTES = 32,
    LHI_VOTE_BYTES = 256,
    LHI_SWITCH_BYTES = 1056,
    LHI_SEEN_BYTES = 24,
    LHI_SEEN_ROW_BYTES = 48,
    LHI_TOLD_BYTES = 768,
    LHI_VOTE_TEXT = LHI_VOTE_BYTES - 16, /* with the 0 at its end */
    LHI_SWITCH_NAME = 128,               /* these, too */
    LHI_SWITCH_WHY = 600,
    LHI_PATHS_MOST = 1 << 20, /* bytes of how messages go */
    LHI_SEATS_MOST = 1 << 20, /* bytes of who has what */
    LHI_SWITCH_REFUSED =
        LHI_SWITCH_BYTES - 64 - LHI_SWITCH_NAME - LHI_SWITCH_WHY,
    LHI_TOLD_NAME = 32, /* these, too */
    LHI_TOLD_TEXT = LHI_TOLD_BYTES - 104 - LHI_TOLD_NAME
};

/* What rank 0 has all ranks do. */
typedef enum lhi_command_kind {
    LHI_COMMAND_STEP,
    LHI_COMMAND_VALIDATE,
    LHI_COMMAND_SAVE,
    LHI_COMMAND_MEASURE, /* once, after the last step: what profiles have */
    LHI_COMMAND_END,     /* the last one */
    LHI_COMMAND_SCHEDULE, /* nothing but the proposal, before the first step */
    LHI_COMMAND_MOVE      /* go on with it, and exchange what it has elsewhere */
} lhi_command_kind;

/* What becomes of the schedule that was proposed in the command before. */
typedef enum lhi_verdict {
    LHI_VERDICT_NONE, /* none was */
    LHI_VERDICT_GO,   /* all ranks go on with it, from this step */
    LHI_VERDICT_DROP
} lhi_verdict;

typedef struct lhi_command {
    lhi_command_kind what;
    uint64_t step;
    int64_t t0_ns; /* of a step: when it begins, where all share a clock */
    bool proposes; /* a PROPOSAL is on its way, for the next step */
    bool sees;     /* SEEN is to follow the DONE of this step */
    lhi_verdict verdict;
} lhi_command;

/* What a rank says once it has done so. */
typedef struct lhi_done {
    int64_t end_ns; /* by the clock that all share; else from the beginning */
    double loss;    /* of a validation */
    uint64_t n_slips;
    int64_t worst_late_ns;
    uint64_t n_grown;
    uint32_t n_played; /* communications in the SEEN that follows */
} lhi_done;

/* What a pass did; times by the real clock but the message's, which are the
 * transport's. */
typedef struct lhi_record {
    int64_t start_ns, end_ns;
    int64_t
        issued_ns; /* the rank went on: later only where sends are coupled */
    int64_t entered_ns, arrived_ns; /* of its input, where it is a message */
    size_t peak_bytes; /* that its device has held so far; not sent */
} lhi_record;

/* What a pass did, for whoever watches the run: by the clock of the rank's
 * host, as its device and its links have it. */
typedef struct lhi_seen_row {
    int64_t could_ns; /* begin: its device was free and its input there */
    int64_t ended_ns;
    int64_t free_ns; /* the rank went on, and had handed over its message */
    /* Of its input, where that is a message; else 0. The first two by its
     * sender's clock: when it was handed over (its receive posted, if late),
     * and when its transfer began. */
    int64_t handed_ns, began_ns, arrived_ns;
} lhi_seen_row;

/* What a rank has seen of a step; `n_passes` rows follow, then what it
 * played. */
typedef struct lhi_seen_head {
    uint32_t n_passes, n_played;
    uint64_t clock; /* ranks that say the same read one */
} lhi_seen_head;

/* A data-parallel communication that a timed rank plays, or, at the end of
 * those of a step, a copy of activations, which is sent when it arrives. */
typedef struct lhi_played {
    uint32_t chunk;
    bool is_reduce_scatter;
    uint32_t op; /* lh_pipeline_dp_op() index, LH_NONE: the chunk's own */
    int64_t ready_ns, depart_ns, sent_ns, arrive_ns;
    uint32_t copy; /* 1 + its place in the rank's offload stream; 0: is none */
} lhi_played;

/* How much a rank has recorded of the last step; the rows follow. */
typedef struct lhi_counts {
    uint32_t n_passes, n_played;
} lhi_counts;

/* Texts of a schedule that is proposed, one after the other: its rows, its link
 * orders, how messages go (lhi_paths_write(); none: as the run began), who has
 * which part (engine/seats.h; none: likewise). In bytes. */
typedef struct lhi_texts {
    uint32_t n_rows, n_links, n_paths, n_seats;
} lhi_texts;

static inline size_t lhi_texts_size(const lhi_texts *t)
{
    return (size_t)t->n_rows + t->n_links + t->n_paths + t->n_seats;
}

/* A schedule that counts from `step` on; its texts follow as one message.
 * n_rows 0: rank 0 has none, and all vote against it. */
typedef struct lhi_proposal {
    uint64_t step;
    lhi_texts texts;
} lhi_proposal;

typedef struct lhi_vote {
    bool refuses;
    uint64_t step;
    char why[LHI_VOTE_TEXT]; /* of one that refuses */
} lhi_vote;

/* Something of a run that adapts; an lh_notice. */
typedef struct lhi_told {
    lh_notice notice; /* without its texts */
    char name[LHI_TOLD_NAME], text[LHI_TOLD_TEXT];
} lhi_told;

/* A proposal and what came of it; an lh_switch. */
typedef struct lhi_switch {
    uint64_t step;
    int64_t predicted_ns;
    int64_t expected_ns; /* by whoever proposed it; 0: not said */
    /* Where parts of the job moved with it: a text of so many bytes follows,
     * the texts' last. */
    uint32_t n_seats;
    char *seats; /* that, where it is; not in SWITCH */
    uint64_t moved_bytes;
    int64_t move_ns, move_expected_ns;
    bool is_refused;
    lh_data_path path;
    char to[LHI_SWITCH_NAME], why[LHI_SWITCH_WHY], refused[LHI_SWITCH_REFUSED];
} lhi_switch;

/* How the run went; its iterations follow, `n_switches` proposals, `n_told`
 * notices, the texts of what the last iteration followed (n_rows 0: what the
 * run began with), then counts and rows of each of `n_recorded` ranks. */
typedef struct lhi_outcome {
    uint64_t n_iterations, n_grown;
    bool interrupted;
    uint32_t n_recorded, n_switches, n_told;
    lhi_texts texts;
} lhi_outcome;

void lhi_command_write(const lhi_command *command,
                       unsigned char out[LHI_COMMAND_BYTES]);
lh_status lhi_command_read(const unsigned char *in, size_t size,
                           lhi_command *out, lh_error *err);

void lhi_done_write(const lhi_done *done, unsigned char out[LHI_DONE_BYTES]);
lh_status lhi_done_read(const unsigned char *in, size_t size, lhi_done *out,
                        lh_error *err);

/* A late receive was posted at `posted_ns`. */
void lhi_notice_write(int64_t posted_ns, unsigned char out[LHI_NOTICE_BYTES]);
lh_status lhi_notice_read(const unsigned char *in, size_t size,
                          int64_t *posted_ns, lh_error *err);

void lhi_counts_write(const lhi_counts *counts,
                      unsigned char out[LHI_COUNTS_BYTES]);
lh_status lhi_counts_read(const unsigned char *in, size_t size, lhi_counts *out,
                          lh_error *err);

/* Rows of a rank: its records, then what it played. */
size_t lhi_rows_bytes(const lhi_counts *counts);
void lhi_rows_write(const lhi_counts *counts, const lhi_record *records,
                    const lhi_played *played, unsigned char *out);
lh_status lhi_rows_read(const unsigned char *in, size_t size,
                        const lhi_counts *counts, lhi_record *records,
                        lhi_played *played, lh_error *err);

/* Head, rows and what was played, in lhi_seen_size() bytes. */
size_t lhi_seen_size(const lhi_seen_head *seen);
void lhi_seen_write(const lhi_seen_head *seen, const lhi_seen_row *rows,
                    const lhi_played *played, unsigned char *out);
/* Where they have to be as many as *seen says, which gets the clock. */
lh_status lhi_seen_read(const unsigned char *in, size_t size,
                        lhi_seen_head *seen, lhi_seen_row *rows,
                        lhi_played *played, lh_error *err);

void lhi_proposal_write(const lhi_proposal *proposal,
                        unsigned char out[LHI_PROPOSAL_BYTES]);
/* LH_EIO also: texts that are longer than a schedule may be. */
lh_status lhi_proposal_read(const unsigned char *in, size_t size,
                            lhi_proposal *out, lh_error *err);
void lhi_vote_write(const lhi_vote *vote, unsigned char out[LHI_VOTE_BYTES]);
lh_status lhi_vote_read(const unsigned char *in, size_t size, lhi_vote *out,
                        lh_error *err);

void lhi_switch_write(const lhi_switch *row,
                      unsigned char out[LHI_SWITCH_BYTES]);
lh_status lhi_switch_read(const unsigned char *in, size_t size, lhi_switch *out,
                          lh_error *err);

void lhi_told_write(const lhi_told *row, unsigned char out[LHI_TOLD_BYTES]);
lh_status lhi_told_read(const unsigned char *in, size_t size, lhi_told *out,
                        lh_error *err);

void lhi_outcome_head_write(const lhi_outcome *outcome,
                            unsigned char out[LHI_OUTCOME_BYTES]);
lh_status lhi_outcome_head_read(const unsigned char *in, size_t size,
                                lhi_outcome *out, lh_error *err);
void lhi_iteration_write(const lh_iteration *iteration,
                         unsigned char out[LHI_ITERATION_BYTES]);
lh_iteration lhi_iteration_read(const unsigned char in[LHI_ITERATION_BYTES]);

#endif
