/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded iteration's pictures as inline SVG. */
#ifndef LHI_NETWORK_OPTICAL_FIGURES_H
#define LHI_NETWORK_OPTICAL_FIGURES_H

#include "base/text.h"
#include "network/optical/scenario.h"

/* Adds text with HTML's special characters escaped. */
void lhi_html_text(lhi_text *out, const char *text);

/* Adds a complete HTML page in the report's design: title, facts below the
 * title, and body, all as HTML. Sets out->failed if an allocation of any of
 * these texts failed. */
void lhi_html_page(lhi_text *out, const lhi_text *title, const lhi_text *facts,
                   const lhi_text *body);

/* Rounds x > 0 up to the next 1, 2 or 5 times a power of ten, for an axis. */
double lhi_figure_round_up(double x);

/* Computes node positions x, y in a unit square whose distances approximate the
 * route lengths between the nodes. LH_ENOMEM. */
lh_status lhi_figure_layout(const lh_topology *topology, double *x, double *y,
                            lh_error *err);

/* Draws the topology as SVG with nodes at the positions x, y and job 0's
 * stages. Line widths show how many spectrum slots its messages occupy per
 * cable. */
lh_status lhi_figure_topology(lhi_text *out, const lh_scenario *s,
                              const lhi_optical_run_job *job,
                              const lhi_iteration_record *rec, const double *x,
                              const double *y, lh_error *err);
/* Draws the occupied share of every fibre over the iteration as heat maps, by
 * background traffic and by jobs. */
lh_status lhi_figure_spectrum(lhi_text *out, const lh_scenario *s,
                              const lhi_iteration_record *rec, lh_error *err);
/* Draws every device's passes over the recorded iteration as SVG. */
void lhi_figure_timeline(lhi_text *out, const lh_scenario *s,
                         const lhi_optical_run_job *job,
                         const lhi_iteration_record *rec);

#endif
