/* SPDX-License-Identifier: Apache-2.0 */
/* Supplement to a profiler's traces: each rank's stage and replica, and the
 * operation of each range name (docs/formats/ranks.md). */
#ifndef LHI_REPORT_DIAGNOSIS_RANK_MAP_H
#define LHI_REPORT_DIAGNOSIS_RANK_MAP_H

#include "report/diagnosis/op_rows.h"

#include "format/document/schema.h"

#include <longhaul/experimental/diagnose.h>

/* A rank's stage and replica. */
typedef struct lhi_map_rank {
    const char *file; /* its trace, if that lacks the rank; "": none */
    uint32_t rank, stage, replica;
    uint32_t line;
} lhi_map_rank;

/* Range kinds besides lhi_op_type. */
enum {
    LHI_RANGE_STEP = LHI_N_OPS,
    LHI_RANGE_IGNORED,
    LHI_N_RANGES,
};

/* The operation for ranges whose name matches a pattern. */
typedef struct lhi_map_name {
    const char *pattern; /* a pattern for lhi_name_matches() */
    uint32_t kind;       /* lhi_op_type or LHI_RANGE_... */
    uint32_t line;
} lhi_map_name;

/* A map for ranks and range names, as read from a file. */
struct lh_rank_map {
    const char *file; /* the map's path */
    uint32_t n_ranks, n_names;
    const lhi_map_rank *ranks;
    const lhi_map_name *names;
};

extern const lhi_schema lhi_rank_map_table;

/* Numbers in a name at its pattern's placeholders; -1: none. */
typedef struct lhi_name_numbers {
    int64_t chunk, microbatch, step;
} lhi_name_numbers;

/* Checks whether a range's name matches a pattern: `*` matches any text;
 * {chunk}, {microbatch} and {step} match integers. */
bool lhi_name_matches(const char *pattern, const char *name,
                      lhi_name_numbers *numbers);

/* Parses a rank map, which names each rank's stage, replica and trace file;
 * `name` appears in error messages. */
lh_status lhi_rank_map_parse(const char *text, size_t len, const char *name,
                             lh_rank_map **out, lh_error *err);

/* Formats a rank map as text. Release *text with lh_text_free(); `len` may be
 * NULL. */
lh_status lhi_rank_map_format(const lh_rank_map *map, char **text, size_t *len,
                              lh_error *err);

#endif
