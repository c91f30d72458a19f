/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines and schedules as texts.
 *
 * In: a pipeline/1 file (docs/formats/pipeline.md) or its map inside another
 * file; a schedule's CSVs (docs/formats/schedule.md). Out: the values of
 * src/pipe, and their texts again.
 * pipeline_file.c: the pipeline's keys, by tables (doc/fields.h); from a text
 * to a description and back. dp_file.c: its `data_parallel`.
 * pipeline_shorthands.c, dp_elastic.c: keys that stand for others, `uniform`
 * and `datacenters`, and the `elastic` of data_parallel. pipeline_parts.c:
 * what several keys share. schedule_csv.c: schedules; schedule_json.c: the
 * same inside other files. numbers.c: a pipeline as what a report's page reads
 * without any of this. */
#ifndef LHI_PIPE_FILE_H
#define LHI_PIPE_FILE_H

#include "doc/fields.h"
#include "pipe/file/schedule_csv.h"
#include "pipe/pipeline_own.h"

extern const lhi_table lhi_pipeline_table; /* lhi_pipeline_text */

/* From and to the map of a pipeline/1 inside a larger document. */
lh_status lhi_pipeline_from_node(const lhi_doc *doc, const lhi_node *map,
                                 lh_pipeline **out, lh_error *err);
lh_status lhi_pipeline_to_json(const lh_pipeline *pipeline, json_t **out,
                               lh_error *err);

/* `rows` and `link_orders` of a map in another file. */
lh_status lhi_schedule_from_map(const lhi_doc *doc, const lhi_node *map,
                                lh_schedule **out, lh_error *err);
/* NULL: no memory. */
json_t *lhi_schedule_rows_to_json(const lh_schedule *schedule);
/* JSON's null: it has none. */
json_t *lhi_schedule_links_to_json(const lh_schedule *schedule);

/* --- within this folder -------------------------------------------------- */

/* What `sites` says of one. */
typedef struct lhi_site_text {
    const char *name;
    uint32_t n_devices;
    const uint32_t *devices;
} lhi_site_text;

/* What the chunks of `data_parallel` say of one. */
typedef struct lhi_dp_chunk {
    uint32_t chunk;
    int64_t all_gather_ns, reduce_scatter_ns, latency_ns;
    const char *link; /* of its device; NULL: no name */
} lhi_dp_chunk;

typedef struct lhi_dp_groups {
    uint32_t n_enqueue, n_dequeue;
    const uint32_t *enqueue, *dequeue;
} lhi_dp_groups;

/* What a pipeline's file says: a description, less what the file says in
 * another way. Context of all hooks, starts and checks. */
typedef struct lhi_pipeline_text {
    /* Of data parallelism it has what follows from the parts below. */
    lh_pipeline_desc desc;
    uint32_t n_sites;
    const lhi_site_text *sites;
    uint32_t n_dp_chunks, n_ops;
    const lhi_dp_chunk *dp_chunks;
    const lh_dp_op *ops;
    int64_t prefetch; /* -1: not given */
    lhi_dp_groups groups;
    lhi_pipeline_origin origin;
} lhi_pipeline_text;

extern const lhi_table lhi_work_table; /* lh_chunk: passes and memory */
extern const lhi_table lhi_dp_groups_table;

/* A whole value as a row's `read`: the shorthands. */
lh_status lhi_uniform_read(const lhi_reading *r, const lhi_node *map,
                           void *text, lh_error *err);
lh_status lhi_datacenters_read(const lhi_reading *r, const lhi_node *map,
                               void *text, lh_error *err);
lh_status lhi_dp_elastic_read(const lhi_reading *r, const lhi_node *map,
                              void *text, lh_error *err);
extern const lhi_table lhi_uniform_table, lhi_datacenters_table,
    lhi_dp_elastic_table;

/* `data_parallel`: a list of chunks, or a map. */
lh_status lhi_dp_read(const lhi_reading *r, const lhi_node *node, void *text,
                      lh_error *err);
json_t *lhi_dp_write(const void *text, const void *context);
extern const lhi_table lhi_dp_table;

/* Refuses a file in which nothing has given the chunks. */
lh_status lhi_need_chunks(const lhi_reading *r, const lhi_pipeline_text *text,
                          const lhi_node *map, lh_error *err);
/* The chunks, to be changed; NULL: no memory. */
lh_chunk *lhi_own_chunks(const lhi_reading *r, lhi_pipeline_text *text);
/* The items of a list, for messages about them; NULL: no memory. */
const lhi_node **lhi_items(const lhi_reading *r, const lhi_node *list);

/* `rows` and `link_orders` of a map in another file. */
lh_status lhi_schedule_from_map(const lhi_doc *doc, const lhi_node *map,
                                lh_schedule **out, lh_error *err);
/* NULL: no memory. */
json_t *lhi_schedule_rows_to_json(const lh_schedule *schedule);
/* JSON's null: it has none. */
json_t *lhi_schedule_links_to_json(const lh_schedule *schedule);

#endif
