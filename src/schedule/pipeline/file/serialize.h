/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline serialised as a number list, for the report's page, which has no
 * YAML parser. This is not a file format: writer and reader belong to the same
 * build. It contains everything from lh_pipeline_describe(); a change to that
 * struct requires a change here (test_numbers compares). */
#ifndef LHI_SCHEDULE_PIPELINE_FILE_SERIALIZE_H
#define LHI_SCHEDULE_PIPELINE_FILE_SERIALIZE_H

#include "base/text.h"

#include <longhaul/pipeline.h>

/* Appends the pipeline as a list of numbers, each followed by a space. A
 * string is its length in bytes, a colon, its bytes and a space; a missing one
 * is "-1: ". */
lh_status lhi_pipeline_serialize(const lh_pipeline *pipeline, lhi_text *out,
                                 lh_error *err);
/* Reads a pipeline from the number list that lhi_pipeline_serialize() writes.
 * LH_EINPUT: it is malformed, or the pipeline is invalid. */
lh_status lhi_pipeline_deserialize(const char *text, size_t len,
                                   lh_pipeline **out, lh_error *err);

#endif
