/* SPDX-License-Identifier: Apache-2.0 */
/* What-if: applies changes that a user makes on a report page and returns the
 * new iteration. It runs on the page as WebAssembly, and natively in the tests.
 *
 *     changes.c  parses a line with changes, "latency=x2&schedule=zb-h1", and
 *                applies it to a pipeline
 *     answer.c   writes the resulting iteration as the page's JSON */
#ifndef LHI_REPORT_WHATIF_WHATIF_H
#define LHI_REPORT_WHATIF_WHATIF_H

#include "base/text.h"

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>

/* --- changes.c ------------------------------------------------------------ */

/* Keys in a line with changes: X(key, of, value, about). `of`: the kind of item
 * that can follow a dot, as in "speed.3=x0.5"; "": none. */
#define LHI_WHATIF_CHANGE_LIST(X)                                              \
    X(LATENCY, "latency", "link",                                              \
      "latency of the links between sites: 20ms, "                             \
      "or x2")                                                                 \
    X(BANDWIDTH, "bandwidth", "link",                                          \
      "bandwidth of the links between sites: "                                 \
      "x0.5")                                                                  \
    X(SPEED, "speed", "device", "of devices: x0.9")                            \
    X(MICROBATCHES, "microbatches", "", "microbatches per iteration")          \
    X(LIMIT, "limit", "", "memory limit per device: x0.8, a number, none")     \
    X(RECEIVES, "receives", "", "early, late, late-fd")                        \
    X(COUPLED, "coupled", "",                                                  \
      "messages in a device's send queue; 0: no queue")                        \
    X(SCHEDULE, "schedule", "", "a method; as-is: keep the current order")

/* Capacity for a method's name, in bytes. */
enum { LHI_METHOD_TEXT = 32 };

/* A changed pipeline with its simulator options and method. */
typedef struct lhi_whatif_pipeline {
    lh_pipeline *pipeline; /* owned */
    lh_sim_options sim_options;
    char method[LHI_METHOD_TEXT]; /* "": the original schedule */
} lhi_whatif_pipeline;

/* Applies the changes in `line`: items separated by '&', each on top of the
 * earlier ones. Item names are URL-encoded (%20). Factors refer to the values
 * in `pipeline`. `sim`: defaults for options absent from the line.
 *
 * LH_EINPUT: an item is invalid or does not apply to the pipeline; `err` names
 * it. The caller releases *out with lhi_whatif_pipeline_fini(). */
lh_status lhi_whatif_apply_changes(const lh_pipeline *pipeline,
                                   const lh_sim_options *sim, const char *line,
                                   lhi_whatif_pipeline *out, lh_error *err);
/* Frees a what-if question's changed pipeline. */
void lhi_whatif_pipeline_fini(lhi_whatif_pipeline *changed);

/* --- answer.c ------------------------------------------------------------- */

/* The reported iteration to which the changes apply. Borrowed pointers. */
typedef struct lhi_whatif_base {
    const lh_pipeline *pipeline;
    const lh_schedule *schedule;
    const char *method; /* the page's name for that schedule */
    lh_sim_options sim;
} lhi_whatif_base;

/* Answers a what-if question: adds {"trace", "row", "slack", "file"}, the
 * iteration under the changes in `line`, and the pipeline-file fields that
 * differ from the original's. LH_EINPUT, LH_EUNSUPPORTED, LH_EINFEASIBLE,
 * LH_EDEADLOCK: there is no such iteration. */
lh_status lhi_whatif(const lhi_whatif_base *question, const char *line,
                     lhi_text *out, lh_error *err);
/* Adds the table row of one scheduling method under the changes in `line`,
 * except a change of the schedule. If the method fails, the row has the
 * reason. */
lh_status lhi_whatif_add_row(const lhi_whatif_base *question, const char *line,
                             const char *method, lhi_text *out, lh_error *err);
/* Adds the pipeline's values that what-if controls can change: devices,
 * microbatches, limits, receives, links between datacenters and methods. */
lh_status lhi_whatif_add_controls(const lhi_whatif_base *question,
                                  lhi_text *out, lh_error *err);

#endif
