/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines and schedules as texts: inside other files, and what the files
 * here have in common. */
#ifndef LHI_PIPE_FILE_H
#define LHI_PIPE_FILE_H

#include "doc/doc.h"
#include "pipe/pipeline_own.h"

#include <jansson.h>

/* From and to the map of a pipeline/1 inside a larger document. */
lh_status lhi_pipeline_from_node(const lhi_doc *doc, const lhi_node *map,
                                 lh_pipeline **out, lh_error *err);
lh_status lhi_pipeline_to_json(const lh_pipeline *pipeline, json_t **out,
                               lh_error *err);

/* Both texts at once: S.csv's and, unless NULL, S.links.csv's. */
lh_status lhi_schedule_parse_both(const char *rows, size_t rows_len,
                                  const char *links, size_t links_len,
                                  const char *name, lh_schedule **out,
                                  lh_error *err);

/* The `data_parallel` of a file. Operations go to desc->dp_ops. */
lh_status lhi_dp_read(const lhi_doc *doc, const lhi_node *node, int64_t unit_ns,
                      lhi_arena *scratch, lh_pipeline_desc *desc,
                      lh_chunk *chunks, lhi_pipeline_origin *origin,
                      lh_error *err);
/* Its JSON into `map`; false: no memory. */
bool lhi_dp_to_json(const lh_pipeline *p, json_t *map);

/* `rows` and `link_orders` of a map in another file. */
lh_status lhi_schedule_from_map(const lhi_doc *doc, const lhi_node *map,
                                lh_schedule **out, lh_error *err);
/* NULL: no memory. */
json_t *lhi_schedule_rows_to_json(const lh_schedule *schedule);
/* JSON's null: it has none. */
json_t *lhi_schedule_links_to_json(const lh_schedule *schedule);

#endif
