/* SPDX-License-Identifier: Apache-2.0 */
/* A recording's defects: one for each kind. */
#ifndef LHI_REPORT_DIAGNOSIS_DEFECTS_H
#define LHI_REPORT_DIAGNOSIS_DEFECTS_H

#include "base/arena.h"
#include "base/fail.h"

#include <longhaul/experimental/diagnose.h>

#include <stdint.h>

/* X(name, kind, text): the text follows the occurrence count. */
#define LHI_DEFECT_LIST(X)                                                     \
    X(CUT, "cut-files",                                                        \
      "truncated or damaged files, of which the intact part is used")          \
    X(UNREAD, "unread-rows", "unreadable rows, ignored")                       \
    X(UNKNOWN, "unknown-types", "rows of unknown types, ignored")              \
    X(DOUBLED, "doubled-rows", "duplicate rows, counted once")                 \
    X(PEERS, "more-ranks",                                                     \
      "rows of further ranks of a stage and replica, ignored")                 \
    X(CLOCKS, "clocks",                                                        \
      "clock offsets, corrected by message times, per rank and step")          \
    X(ORIGIN, "origin",                                                        \
      "steps whose times do not begin at the step's start; times are "         \
      "relative to the first operation")                                       \
    X(STRAY, "stray-messages", "sends and receives without a peer, ignored")   \
    X(FILES, "missing-files", "ranks of the job without a trace")              \
    X(UNMARKED, "unmarked-steps",                                              \
      "ranks without step marks; steps are numbered by counting passes")       \
    X(REPLICAS, "replicas-left-out",                                           \
      "replicas that lack ranks in a step, ignored")                           \
    X(RANKS, "missing-ranks",                                                  \
      "steps without ranks that other steps have, ignored")                    \
    X(INCOMPLETE, "incomplete-steps", "steps with missing operations, ignored")

/* Defect kinds. */
typedef enum lhi_defect_kind {
#define LHI_REMARK_ENUM(name, kind, text) LHI_REMARK_##name,
    LHI_DEFECT_LIST(LHI_REMARK_ENUM)
#undef LHI_REMARK_ENUM
        LHI_N_REMARKS
} lhi_defect_kind;

/* Defect count per kind. */
typedef struct lhi_defect_counts {
    uint64_t n[LHI_N_REMARKS];
    char first[LHI_N_REMARKS][240]; /* first occurrence's description */
} lhi_defect_counts;

/* Adds `n` to a defect kind's count in a recording's defects. `format`
 * describes each kind's first defect, which alone is stored; n = 0 does
 * nothing. */
void lhi_defect_add(lhi_defect_counts *remarks, lhi_defect_kind kind,
                    uint64_t n, const char *format, ...) LHI_PRINTF(4, 5);
/* Lists all defect kinds that were counted, with number and first
 * description. */
lh_status lhi_defects_list(const lhi_defect_counts *remarks, lhi_arena *arena,
                           const lh_recording_defect **out, uint32_t *n,
                           lh_error *err);

#endif
