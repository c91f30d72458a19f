/* SPDX-License-Identifier: Apache-2.0 */
/* What if? What a person changes in the page of a report, and what comes of
 * it. It runs there, as WebAssembly, and in the library's tests.
 *
 *     changes.c  a line of changes, "latency=x2&schedule=zb-h1", and the
 *                pipeline that it makes of another
 *     answer.c   the iteration that comes of it, as the page's JSON */
#ifndef LHI_ASK_H
#define LHI_ASK_H

#include "base/text.h"

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>

/* --- changes.c ------------------------------------------------------------ */

/* What a line of changes may say: X(key, of, value, about). `of`: what one of
 * it can be named after a dot, as in "speed.3=x0.5"; "": there is none. */
#define LHI_CHANGE_LIST(X)                                                     \
    X(LATENCY, "latency", "link", "of the links between sites: 20ms, or x2")   \
    X(BANDWIDTH, "bandwidth", "link", "of the same links: x0.5")               \
    X(SPEED, "speed", "device", "of devices: x0.9")                            \
    X(MICROBATCHES, "microbatches", "", "of an iteration")                     \
    X(LIMIT, "limit", "", "of memory, of each device: x0.8, a number, none")   \
    X(RECEIVES, "receives", "", "early, late, late-fd")                        \
    X(COUPLED, "coupled", "", "messages of a device's send queue; 0: no such") \
    X(SCHEDULE, "schedule", "", "a method; as-is: the order that there is")

enum { LHI_METHOD_TEXT = 32 };

/* A pipeline with changes made, and what goes with it. */
typedef struct lhi_changed {
    lh_pipeline *pipeline; /* owned */
    lh_sim_options sim;
    char method[LHI_METHOD_TEXT]; /* "": the order as it is */
} lhi_changed;

/* Makes the changes of `line`, items between '&', the later ones on top; what
 * a key's item names in the manner of a URL, %20. Each factor is one of what
 * `pipeline` has. `sim`: what holds where the line says nothing.
 * LH_EINPUT: an item is none, or does not suit the pipeline; `err` names it.
 * Release what is in *out with lhi_changed_fini(). */
lh_status lhi_change(const lh_pipeline *pipeline, const lh_sim_options *sim,
                     const char *line, lhi_changed *out, lh_error *err);
void lhi_changed_fini(lhi_changed *changed);

/* --- answer.c ------------------------------------------------------------- */

/* What is asked of: an iteration as a report has it. Borrowed. */
typedef struct lhi_question {
    const lh_pipeline *pipeline;
    const lh_schedule *schedule;
    const char *method; /* what the page calls that schedule */
    lh_sim_options sim;
} lhi_question;

/* Adds {"trace", "row", "slack", "file"}: the iteration under the changes, and
 * what its pipeline file has in place of the original's.
 * LH_EINPUT, LH_EUNSUPPORTED, LH_EINFEASIBLE, LH_EDEADLOCK: there is none. */
lh_status lhi_ask(const lhi_question *question, const char *line, lhi_text *out,
                  lh_error *err);
/* Adds the row of one method under the changes, schedule aside: why there is
 * none as well. */
lh_status lhi_ask_row(const lhi_question *question, const char *line,
                      const char *method, lhi_text *out, lh_error *err);
/* Adds what can be changed of a pipeline: its links between sites, devices. */
lh_status lhi_ask_controls(const lhi_question *question, lhi_text *out,
                           lh_error *err);

#endif
