/* SPDX-License-Identifier: Apache-2.0 */
/* What traces of a profiler do not say themselves: which rank is where, which
 * range is which operation (docs/formats/ranks.md). */
#ifndef LHI_RANK_MAP_H
#define LHI_RANK_MAP_H

#include "diagnose/op_rows.h"

#include "doc/fields.h"

typedef struct lhi_map_rank {
    const char *file; /* of its trace, if that lacks the rank; "": none */
    uint32_t rank, stage, replica;
    uint32_t line;
} lhi_map_rank;

/* Besides lhi_op_type, what a range may be. */
enum {
    LHI_RANGE_STEP = LHI_N_OPS,
    LHI_RANGE_NOTHING,
    LHI_N_RANGES,
};

typedef struct lhi_map_name {
    const char *name; /* a pattern, see lhi_name_matches() */
    uint32_t is;      /* lhi_op_type, LHI_RANGE_... */
    uint32_t line;
} lhi_map_name;

struct lh_rank_map {
    const char *file; /* the map's own */
    uint32_t n_ranks, n_names;
    const lhi_map_rank *ranks;
    const lhi_map_name *names;
};

extern const lhi_table lhi_rank_map_table;

/* The numbers that a name has where its pattern has places; -1: none. */
typedef struct lhi_name_numbers {
    int64_t chunk, microbatch, step;
} lhi_name_numbers;

/* Whether a range's name is like a pattern, in which `*` is any text and
 * {chunk}, {microbatch}, {step} are whole numbers. */
bool lhi_name_matches(const char *pattern, const char *name,
                      lhi_name_numbers *numbers);

#endif
