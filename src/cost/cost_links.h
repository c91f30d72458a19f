/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a path between two GPUs is: inside a datacenter and between two. */
#ifndef LHI_COST_LINKS_H
#define LHI_COST_LINKS_H

#include "cost/shape.h"

#include <longhaul/transport.h>

/* The job's profile's own numbers for a path, or NULL. */
const lh_profile_link *lhi_profile_link(const lh_job *job, lh_profile_path kind,
                                        uint32_t from, uint32_t to);

/* Whether both are zones of one datacenter. */
bool lhi_zones_of_one(const lh_job *job, uint32_t a, uint32_t b);
/* Whether what goes from a to b and from x to y uses the same link: between
 * datacenters that between any of their zones, out of a zone the only one. */
bool lhi_one_link(const lh_job *job, uint32_t a, uint32_t b, uint32_t x,
                  uint32_t y);

/* Inside a datacenter; `options` with defaults filled in. Between nodes a
 * group drives so many `interfaces` at once. */
lh_status lhi_inside(const lh_job *job, uint32_t datacenter, bool same_node,
                     double interfaces, const lh_cost_options *options,
                     lh_cost_path *out, lh_error *err);

/* What one GPU at `from` finds on its way to `to`; who else sends, and what, is
 * left to fill in. */
lh_link_load lhi_link_load(const lh_job *job, uint32_t from, uint32_t to,
                           const lh_cost_constants *constants);

/* The latest answers of lh_ecmp_busiest(), which takes longer than all else
 * about a link, and is mostly asked for the same. Begins as zeros. */
enum { LHI_MOST_BUSIEST = 16 };
typedef struct lhi_busiest {
    struct {
        double flows, paths, busiest;
    } last[LHI_MOST_BUSIEST];
    uint32_t next, asked;
} lhi_busiest;

/* As lh_cost_link_setting(). */
lh_status lhi_link_effect(const lh_link_load *use,
                          const lh_link_setting *setting, lhi_busiest *known,
                          lh_link_effect *out, lh_error *err);

/* Between datacenters, or between zones of one, for one of `concurrent` equal
 * shares of the link. */
lh_status lhi_between(const lh_job *job, uint32_t from, uint32_t to,
                      double concurrent, const lh_cost_options *options,
                      lhi_busiest *known, lh_cost_path *out, lh_error *err);

/* As lh_cost_group_path(), lh_cost_chunk() and lh_cost_hop_message(). */
lh_status lhi_group_path(const lh_job *job, const lh_cost_group *group,
                         const lh_cost_options *options, lhi_busiest *known,
                         lh_cost_path *out, lh_error *err);
lh_status lhi_chunk_cost(const lh_job *job, const lh_layout *layout,
                         const lh_cost_slice *slice,
                         const lh_cost_options *options, lhi_busiest *known,
                         lh_cost *out, lh_error *err);
/* As lhi_chunk_cost(), of one of the slices that the model is cut into: with one
 * pipeline rank they follow each other in every pass, and with ZeRO 2 and 3
 * each takes what it adds to that pass. */
lh_status lhi_chunk_cost_among(const lh_job *job, const lh_layout *layout,
                               const lh_cost_slice *slice,
                               const lh_cost_options *options,
                               lhi_busiest *known, lh_cost *out, lh_error *err);
/* As lhi_chunk_cost(), but what experts of different GPUs send each other takes
 * no longer than it does wherever the replicas are. */
lh_status lhi_chunk_cost_least(const lh_job *job, const lh_layout *layout,
                               const lh_cost_slice *slice,
                               const lh_cost_options *options,
                               lhi_busiest *known, lh_cost *out, lh_error *err);
lh_status lhi_hop_message(const lh_job *job, const lh_layout *layout,
                          const lh_cost_hop *hop,
                          const lh_cost_options *options, lhi_busiest *known,
                          lh_cost_message *out, lh_error *err);

#endif
