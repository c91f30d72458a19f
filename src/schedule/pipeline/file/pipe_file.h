/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines and schedules as text.
 *
 * Input: a pipeline/1 file (docs/formats/pipeline.md) or its map inside another
 * file; a schedule's CSV files (docs/formats/schedule.md). Output: the values
 * in src/schedule/pipeline, and their text.
 * - pipeline_file.c: the pipeline's keys, by schemas
 *   (format/document/schema.h); text to description and back
 * - dp_file.c: its `data_parallel`
 * - pipeline_shorthands.c, dp_elastic.c: shorthand keys: `uniform`,
 *   `datacenters`, and `elastic` in data_parallel
 * - pipeline_parts.c: parts shared by several keys
 * - schedule_csv.c: schedules; schedule_json.c: schedules inside other files
 * - serialize.c: a pipeline as numbers, for the report's page */
#ifndef LHI_SCHEDULE_PIPELINE_FILE_PIPE_FILE_H
#define LHI_SCHEDULE_PIPELINE_FILE_PIPE_FILE_H

#include "format/document/schema.h"
#include "schedule/pipeline/file/schedule_csv.h"
#include "schedule/pipeline/pipeline_internal.h"

extern const lhi_schema lhi_pipeline_schema; /* for lhi_pipeline_text */

/* Reads a pipeline from a map in format pipeline/1 inside a larger document. */
lh_status lhi_pipeline_from_node(const lhi_doc *doc, const lhi_node *map,
                                 lh_pipeline **out, lh_error *err);
/* Converts a pipeline to JSON in format pipeline/1; the caller owns *out. */
lh_status lhi_pipeline_to_json(const lh_pipeline *pipeline, json_t **out,
                               lh_error *err);

/* Reads a schedule from the keys `rows` and `link_orders` in a map in another
 * file. */
lh_status lhi_schedule_from_map(const lhi_doc *doc, const lhi_node *map,
                                lh_schedule **out, lh_error *err);
/* Returns the schedule's rows, one per device, as a JSON list; NULL: out of
 * memory. */
json_t *lhi_schedule_rows_to_json(const lh_schedule *schedule);
/* Returns the schedule's link orders as a JSON list; JSON null if there are
 * none. */
json_t *lhi_schedule_links_to_json(const lh_schedule *schedule);

/* --- internal to this folder --------------------------------------------- */

/* One entry in `sites`. */
typedef struct lhi_site_text {
    const char *name;
    uint32_t n_devices;
    const uint32_t *devices;
} lhi_site_text;

/* One entry in the chunks of `data_parallel`. */
typedef struct lhi_dp_chunk {
    uint32_t chunk;
    int64_t all_gather_ns, reduce_scatter_ns, latency_ns;
    const char *link; /* its device's link; NULL: unnamed */
} lhi_dp_chunk;

/* Data-parallel groups: the enqueue and dequeue counts per device. */
typedef struct lhi_dp_groups {
    uint32_t n_enqueue, n_dequeue;
    const uint32_t *enqueue, *dequeue;
} lhi_dp_groups;

/* A pipeline file's content: a description, without the parts that the file
 * represents differently. It is the context for all hooks, `start` and `check`
 * functions. */
typedef struct lhi_pipeline_text {
    /* Its data-parallel members are derived from the members below. */
    lh_pipeline_desc desc;
    uint32_t n_sites;
    const lhi_site_text *sites;
    uint32_t n_dp_chunks, n_ops;
    const lhi_dp_chunk *dp_chunks;
    const lh_dp_op *ops;
    int64_t prefetch;  /* -1: not given */
    uint32_t priority; /* lh_dp_priority */
    lhi_dp_groups groups;
    lhi_pipeline_origin origin;
} lhi_pipeline_text;

extern const lhi_schema lhi_chunk_schema; /* lh_chunk: passes and memory */
extern const lhi_schema lhi_dp_groups_schema;

/* Reads the shorthand `uniform`, which describes equal chunks, and expands it
 * to all chunks (schema callback). */
lh_status lhi_uniform_read(const lhi_read_context *r, const lhi_node *map,
                           void *text, lh_error *err);
/* Reads the shorthand `datacenters`, which assigns devices and creates the
 * links between datacenters (schema callback). */
lh_status lhi_datacenters_read(const lhi_read_context *r, const lhi_node *map,
                               void *text, lh_error *err);
/* Reads the key `elastic` of a pipeline file, and adds this plan's
 * data-parallel operations to the pipeline description (schema callback). */
lh_status lhi_dp_elastic_read(const lhi_read_context *r, const lhi_node *map,
                              void *text, lh_error *err);
extern const lhi_schema lhi_uniform_schema, lhi_datacenters_schema,
    lhi_dp_elastic_schema;

/* Reads the key `data_parallel`, a list of chunks or a map (schema
 * callback). */
lh_status lhi_dp_read(const lhi_read_context *r, const lhi_node *node,
                      void *text, lh_error *err);
/* Writes the key `data_parallel` (schema callback); NULL: out of memory. */
json_t *lhi_dp_write(const void *text, const void *context);
extern const lhi_schema lhi_dp_schema;

/* Fails if no key in the file read so far has defined the chunks. */
lh_status lhi_pipeline_require_chunks(const lhi_read_context *r,
                                      const lhi_pipeline_text *text,
                                      const lhi_node *map, lh_error *err);
/* Returns a modifiable copy of the chunks; NULL if allocation fails. */
lh_chunk *lhi_pipeline_copy_chunks(const lhi_read_context *r,
                                   lhi_pipeline_text *text);
/* Returns an array with a list's items, for positions in messages; NULL: out of
 * memory. */
const lhi_node **lhi_list_nodes(const lhi_read_context *r,
                                const lhi_node *list);

/* Reads a schedule from the keys `rows` and `link_orders` in a map in another
 * file. */
lh_status lhi_schedule_from_map(const lhi_doc *doc, const lhi_node *map,
                                lh_schedule **out, lh_error *err);
/* Returns the schedule's rows, one per device, as a JSON list; NULL: out of
 * memory. */
json_t *lhi_schedule_rows_to_json(const lh_schedule *schedule);
/* Returns the schedule's link orders as a JSON list; JSON null if there are
 * none. */
json_t *lhi_schedule_links_to_json(const lh_schedule *schedule);

#endif
