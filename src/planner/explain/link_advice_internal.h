/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface between link_advice.c and link_questions.c. */
#ifndef LHI_PLANNER_EXPLAIN_LINK_ADVICE_INTERNAL_H
#define LHI_PLANNER_EXPLAIN_LINK_ADVICE_INTERNAL_H

#include "planner/layout/layout.h"
#include "planner/layout/traffic.h"

#include <longhaul/experimental/network_model.h>

/* State for the advice on one link. */
typedef struct lhi_link_advisor {
    const lh_job *job;
    lhi_arena *mem;
    lh_plan *plan;
    lhi_config config;
    const lhi_traffic *traffic; /* current link */
    lh_link_load messages, data;
    double queue_bytes; /* from the job, with any congestion control */
} lhi_link_advisor;

/* Computes the loads of the advisor's current link: flows and bytes per
 * iteration, separately for pipeline messages and data parallelism. */
void lhi_link_advisor_fill_loads(lhi_link_advisor *a);

/* Fills an option's rates and sending time by formula and, if the report shows
 * iteration times, its iteration time by simulation. */
lh_status lhi_link_advisor_fill_option(const lhi_link_advisor *a,
                                       lh_advice_option *o, lh_error *err);

/* Answers all questions on a link's settings, one per topic, into *out. */
lh_status lhi_link_advisor_answer_questions(const lhi_link_advisor *a,
                                            lh_link_advice *out, lh_error *err);

/* Simulates the plan with the settings of all links changed together: as
 * advised, or as currently in use. *ns: iteration time. */
lh_status lhi_link_advisor_simulate_links(const lhi_link_advisor *a,
                                          const lhi_traffic *traffic,
                                          const lh_link_advice *links,
                                          uint32_t n, bool advised, int64_t *ns,
                                          lh_error *err);

#endif
