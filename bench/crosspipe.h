/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the parts of docs/papers/crosspipe.md, which reproduce CrossPipe (Chen
 * et al., arXiv:2507.00217), each in its published settings. The functions are
 * page_section callbacks. */
#ifndef CROSSPIPE_H
#define CROSSPIPE_H

#include "page_section.h"
#include "paper_score.h"

#include <stdbool.h>
#include <stdio.h>

/* Sentences without a number: at least 1, at most 1, and within 5 % of 1, which
 * was chosen for words such as "comparable". */
extern const score_row crosspipe_above, crosspipe_below, crosspipe_equal;

/* Prints tables 5 and 6: static rows and greedy. */
void crosspipe_tables(FILE *to, const page_options *how);
/* Prints the dynamic rows with sends that block. */
void crosspipe_sends(FILE *to, const page_options *how);
/* Prints the directions in sections 7.2 and 7.3. */
void crosspipe_directions(FILE *to, const page_options *how);
/* Prints case 2's memory. */
void crosspipe_memory(FILE *to, const page_options *how);

/* Figures; the number is the paper's. */
void crosspipe_slowdowns(FILE *to, const page_options *how);   /* figure 8 */
void crosspipe_datacenters(FILE *to, const page_options *how); /* figure 9 */
void crosspipe_delays(FILE *to, const page_options *how);      /* figure 11 */
void crosspipe_degrees(FILE *to, const page_options *how);     /* figure 12 */
void crosspipe_strides(FILE *to, const page_options *how);     /* figure 15 */

/* Lines for figures 12 and 15 and for sections 3.4, 5.1 and 7.1. */
void crosspipe_claim_strides(score *s, FILE *to);
/* The lines for figures 9 and 11, and for tables 5 and 6. */
void crosspipe_claim_datacenters(score *s, FILE *to);
/* Lines of arithmetic on published numbers, in sections 2.4 and 7.1. */
void crosspipe_claim_messages(score *s, FILE *to);
void crosspipe_claim_savings(score *s, FILE *to);
void crosspipe_claim_cases(score *s, FILE *to);
/* Prints the numbers in the paper's text. */
void crosspipe_claims(FILE *to, const page_options *how);

/* Writes figure 8's curves as a report. Returns false after printing an error.
 */
bool crosspipe_write_html(const char *path);

#endif
