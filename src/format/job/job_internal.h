/* SPDX-License-Identifier: Apache-2.0 */
/* The state of parsing a job, shared by job.c and job_layout.c. */
#ifndef LHI_FORMAT_JOB_JOB_INTERNAL_H
#define LHI_FORMAT_JOB_JOB_INTERNAL_H

#include "format/job/parse.h"

/* The reader's state. */
typedef struct lhi_job_reader {
    const lhi_doc *doc;
    const lhi_node *map;
    const char *folder; /* base for named files; NULL: not allowed */
    lhi_arena *mem;
    lh_job *job;
    const char **files; /* the job's */
    bool target_given;  /* layout.framework */
} lhi_job_reader;

/* Reads an optional word, one of `names`; *out is its index. *given: the key is
 * present; else *out is unchanged. */
static inline lh_status
lhi_job_read_choice(lhi_job_reader *r, const lhi_node *map, const char *key,
                    const char *const *names, uint32_t *out, bool *given,
                    lh_error *err)
{
    const lhi_node *node = lhi_node_find(map, key);
    *given = node != NULL;
    return node ? lhi_node_get_choice(r->doc, node, names, out, err) : LH_OK;
}

/* Reads the optional `layout` map: fixed degrees, placement, schedule and
 * layers per chunk. */
lh_status lhi_job_read_layout(lhi_job_reader *r, lh_error *err);

#endif
