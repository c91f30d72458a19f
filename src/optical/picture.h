/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of a recorded iteration, as SVG inside a page. */
#ifndef LHI_PICTURE_H
#define LHI_PICTURE_H

#include "base/text.h"
#include "optical/scenario.h"

/* Text with the characters that HTML minds replaced. */
void lhi_html_text(lhi_text *out, const char *text);

/* Places of the nodes in a unit square, such that distances are near to those
 * over the network. LH_ENOMEM. */
lh_status lhi_map_layout(const lh_topology *topology, double *x, double *y,
                         lh_error *err);

/* The topology, the stages of job 0, and by width how much its messages held
 * of each cable. */
lh_status lhi_picture_topology(lhi_text *out, const lh_scenario *s,
                               const lhi_run_job *job,
                               const lhi_sent_record *rec, const double *x,
                               const double *y, lh_error *err);
/* What share of every fibre is held over the iteration, by others and by the
 * jobs. */
lh_status lhi_picture_spectrum(lhi_text *out, const lh_scenario *s,
                               const lhi_sent_record *rec, lh_error *err);
/* Passes of every device over the iteration. */
void lhi_picture_timeline(lhi_text *out, const lh_scenario *s,
                          const lhi_run_job *job, const lhi_sent_record *rec);

#endif
