/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the parts of docs/papers/cba.md, which reproduces Fu et al., "CBA:
 * Communication-Bound-Aware Cross-Domain Resource Assignment" (2026). */
#ifndef CBA_H
#define CBA_H

#include "page_section.h"
#include "paper_score.h"

#include <longhaul/experimental/optical.h>

/* One simulation's setting on NSFNET: seeds 1 to 5, 10 iterations. */
typedef struct cba_case {
    const char *model;  /* "8b", "70b" */
    const char *method; /* "gpipe", "1f1b" */
    int microbatches;
    int erlang; /* background load */
    int slots;  /* per request */
} cba_case;

/* Compared policies. */
typedef enum cba_policy {
    CBA_SD_FF,
    CBA_KSP_FF,
    CBA_PLAIN,
    CBA_LADDER,
    CBA_POLICIES
} cba_policy;

/* Every part's load and slots unless it varies them. */
enum { CBA_ERLANG = 150, CBA_SLOTS = 2, CBA_COUNTS = 4, CBA_PANELS = 4 };

/* Figure 3's microbatch counts, and its panels a to d (e to h). */
extern const int cba_counts[CBA_COUNTS];
extern const cba_case cba_panels[CBA_PANELS];
/* Returns a panel's title. */
const char *cba_title(const cba_case *c);

/* Simulates the case under policies in the form of a scenario's `policies`;
 * `folder` contains nsfnet.yaml. Exits after printing an error. Release with
 * lh_optical_free(). */
lh_optical *cba_simulate(const cba_case *c, const char *folder,
                         const char *policies);
/* Simulates the case under the compared policies, in the order of cba_policy.
 */
lh_optical *cba_compare(const cba_case *c, const char *folder);

/* Cells in which CBA has a lower value than SD-FF and KSP-FF: refused requests,
 * iteration and bubble. */
typedef struct cba_tally {
    int cells, blocked[2], faster[2], busier[2];
} cba_tally;

/* Counts the grid's cells: background loads and slots per request. */
cba_tally cba_count_grid(const char *folder);

/* Page parts. */
void cba_claims(FILE *to, const page_options *how);
void cba_figure(FILE *to, const page_options *how);   /* figure 3 */
void cba_maxima(FILE *to, const page_options *how);   /* largest gains */
void cba_grid(FILE *to, const page_options *how);     /* load x slots */
void cba_refusals(FILE *to, const page_options *how); /* an ablation */
void cba_defeats(FILE *to, const page_options *how);  /* KSP-FF is faster */
void cba_rules(FILE *to, const page_options *how);    /* open rules */

#endif
