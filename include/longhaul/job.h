/* SPDX-License-Identifier: Apache-2.0 */
/* A training job as specified by the user: model, training, cluster, and the
 * parts of the layout that are fixed. Text form: docs/formats/job.md.
 *
 * A job is read and validated as a whole, and defaults are filled in: each
 * datacenter has its own GPU and networks, and each ordered datacenter pair its
 * link. */
#ifndef LONGHAUL_JOB_H
#define LONGHAUL_JOB_H

#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A training job. Immutable; owns its contents. Release with lh_job_free(). */
typedef struct lh_job lh_job;

/* Program that will run the plan; restricts the search to its features. */
typedef enum lh_target {
    LH_TARGET_ANY, /* not given: no restriction */
    LH_TARGET_LONGHAUL,
    LH_TARGET_MEGATRON,
    LH_TARGET_TORCHTITAN,
    LH_TARGET_PYTORCH,
} lh_target;

/* Parses a job. Referenced files are relative to `folder` (NULL: such jobs are
 * rejected). `name` appears in error messages. Release with lh_job_free().
 * LH_EINPUT: `err` gives file, line, key and reason. */
LH_API lh_status lh_job_parse(const char *text, size_t len, const char *name,
                              const char *folder, lh_job **out, lh_error *err);

/* Reads a job file; referenced files are relative to its folder. */
LH_API lh_status lh_job_read(const char *path, lh_job **out, lh_error *err);

/* Frees a job with all memory that it owns; NULL is a no-op. */
LH_API void lh_job_free(lh_job *job);

/* Formats the canonical text (JSON), which is self-contained: all datacenters
 * and links, the model (unless a preset) and the profile. Parsing it gives the
 * same job, which formats to the same text. Release *text with lh_text_free();
 * `len` may be NULL. */
LH_API lh_status lh_job_format(const lh_job *job, char **text, size_t *len,
                               lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
