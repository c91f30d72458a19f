/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduling problem: chunks of a model on devices, links between the
 * devices, microbatches and memory. Text form: docs/formats/pipeline.md.
 *
 * Times are nanoseconds; memory has the file's unit. Pipelines are immutable
 * and may be shared between threads. */
#ifndef LONGHAUL_PIPELINE_H
#define LONGHAUL_PIPELINE_H

#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LH_NO_LIMIT INT64_MAX /* no memory limit */

#define LH_NONE UINT32_MAX /* "no such index" */

/* A pipeline. Immutable; owns its contents. Release with lh_pipeline_free(). */
typedef struct lh_pipeline lh_pipeline;

/* Time at which a receive is posted; a rendezvous transfer cannot start
 * earlier. */
typedef enum lh_receives {
    LH_RECEIVES_EARLY, /* pre-posted: a message is ready when produced */
    /* posted when the receiver reaches the consuming pass */
    LH_RECEIVES_LATE,
    LH_RECEIVES_LATE_FD, /* the same, but not delayed by preceding W passes */
} lh_receives;

/* Parses a pipeline/1 text; `name` appears in error messages. LH_EINPUT: `err`
 * has line and key. Release *out with lh_pipeline_free(). */
LH_API lh_status lh_pipeline_parse(const char *text, size_t len,
                                   const char *name, lh_pipeline **out,
                                   lh_error *err);

/* Reads and parses a pipeline file. LH_EIO: it cannot be read. Release *out
 * with lh_pipeline_free(). */
LH_API lh_status lh_pipeline_read(const char *path, lh_pipeline **out,
                                  lh_error *err);

/* Frees a pipeline; ignores NULL. */
LH_API void lh_pipeline_free(lh_pipeline *pipeline);

/* Formats the canonical text (JSON, nanoseconds, shorthands expanded). Parsing
 * it gives the same pipeline, which formats to the same text. Release *text
 * with lh_text_free(); `len` may be NULL. */
LH_API lh_status lh_pipeline_format(const lh_pipeline *pipeline, char **text,
                                    size_t *len, lh_error *err);

/* Returns the pipeline's device count. */
LH_API uint32_t lh_pipeline_n_devices(const lh_pipeline *pipeline);

/* Returns the pipeline's chunk count, over all devices and
 * directions. */
LH_API uint32_t lh_pipeline_n_chunks(const lh_pipeline *pipeline);

/* Returns the microbatch count per iteration; with two directions, of each. */
LH_API uint32_t lh_pipeline_n_microbatches(const lh_pipeline *pipeline);

/* Returns the device's memory limit, host memory included; LH_NO_LIMIT: none.
 */
LH_API int64_t lh_pipeline_memory_limit(const lh_pipeline *pipeline,
                                        uint32_t device);

/* Returns the memory amounts' unit, such as "GiB"; "" if not given. */
LH_API const char *lh_pipeline_memory_unit(const lh_pipeline *pipeline);

#ifdef __cplusplus
}
#endif
#endif
