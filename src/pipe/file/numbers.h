/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline as a list of numbers: what a report's page has of it, where there
 * is no reader of YAML. Not a file format: who writes and who reads it are of
 * one build. All that lh_pipeline_describe() says is in it; a change of that
 * struct is a change here (test_numbers compares). */
#ifndef LHI_NUMBERS_H
#define LHI_NUMBERS_H

#include "base/text.h"

#include <longhaul/pipeline.h>

/* Adds the numbers, each followed by a space; a text is its length in bytes, a
 * colon, its bytes and a space, and one that there is not "-1: ". */
lh_status lhi_pipeline_add_numbers(const lh_pipeline *pipeline, lhi_text *out,
                                   lh_error *err);
/* LH_EINPUT: that is no such list, or no pipeline. */
lh_status lhi_pipeline_of_numbers(const char *text, size_t len,
                                  lh_pipeline **out, lh_error *err);

#endif
