/* SPDX-License-Identifier: Apache-2.0 */
/* Prints Adaptra's published numbers beside the computed ones. */
#include "adaptra.h"

void adaptra_claims(FILE *to, const page_options *how)
{
    score s = {.numbers = {0}};

    score_print_head(to);
    adaptra_claim_orders(&s, to);
    adaptra_claim_delays(&s, to);
    adaptra_claim_placement(&s, to);
    adaptra_claim_gaps(&s, to);
    adaptra_claim_trace(&s, to, how->folder);
    score_print(&s, "rows", to);
}

void adaptra_job_claims(FILE *to, const page_options *how)
{
    score s = {.numbers = {0}};

    score_print_head(to);
    adaptra_claim_jobs(&s, to, how->folder);
    score_print(&s, "rows", to);
}
