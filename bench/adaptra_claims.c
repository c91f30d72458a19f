/* SPDX-License-Identifier: Apache-2.0 */
/* Prints Adaptra's published numbers beside the computed ones. */
#include "adaptra.h"

/* No row of the claims depends on a machine's speed. */
static const score_missing schedule_time = {
    .where = "section 7.4",
    .claimed = "time to generate a schedule",
    .paper = "below 100 ms",
    .why = "a measured time, which depends on the machine"};

void adaptra_claims(FILE *to, const page_options *how)
{
    score s = {.numbers = {0}};

    score_print_head(to);
    adaptra_claim_orders(&s, to);
    adaptra_claim_delays(&s, to);
    adaptra_claim_placement(&s, to);
    adaptra_claim_gaps(&s, to);
    adaptra_claim_trace(&s, to, how->folder);
    score_print_missing(&s, &schedule_time, to);
    score_print(&s, "rows", to);
}

void adaptra_job_claims(FILE *to, const page_options *how)
{
    score s = {.numbers = {0}};

    score_print_head(to);
    adaptra_claim_jobs(&s, to, how->folder);
    score_print(&s, "rows", to);
}
