/* SPDX-License-Identifier: Apache-2.0 */
/* CrossPipe (Chen et al., arXiv:2507.00217): parts of docs/papers/crosspipe.md,
 * each of its published settings. As page_table has them. */
#ifndef CROSSPIPE_H
#define CROSSPIPE_H

#include "page_part.h"

#include <stdbool.h>
#include <stdio.h>

/* Tables 5 and 6, static rows and greedy's; case 2's memory. */
void crosspipe_tables(FILE *to, const page_how *how);
void crosspipe_memory(FILE *to, const page_how *how);

/* Figures. */
void crosspipe_slowdowns(FILE *to, const page_how *how);   /* 8 */
void crosspipe_datacenters(FILE *to, const page_how *how); /* 9 */
void crosspipe_delays(FILE *to, const page_how *how);      /* 11 */
void crosspipe_degrees(FILE *to, const page_how *how);     /* 12 */
void crosspipe_strides(FILE *to, const page_how *how);     /* 15 */

/* Figure 8's curves as a report. false: a message is on stderr. */
bool crosspipe_write_html(const char *path);

#endif
