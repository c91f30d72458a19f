/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the search over sizes: checks and defaults. */
#include "planner/size/size_internal.h"

#include "base/fail.h"
#include "base/options.h"

#include <float.h>
#include <inttypes.h>

enum {
    DEFAULT_EFFORT = 24,   /* sizes to plan: about 20 s of processor time for
                            * Llama 3 70B */
    DEFAULT_LOST_NODES = 2 /* loss of nodes that is planned too */
};

/* Checks the job: its datacenters must be independent of each other. */
static lh_status check_job(const lh_job *job, lh_error *err)
{
    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        const lh_datacenter *site = &job->datacenters[i];
        if (site->zone_of)
            return lhi_fail(err, LH_EINPUT,
                            "%s: cluster.datacenters: sizes of datacenters "
                            "with zones are not searched; give '%s' nodes in "
                            "place of zones",
                            job->name, site->zone_of);
    }
    if (job->layout.sites)
        return lhi_fail(err, LH_EINPUT,
                        "%s: layout.sites: remove it; the search decides which "
                        "datacenters are used",
                        job->name);
    return LH_OK;
}

/* Fills in the ranges, and counts their sizes. */
static lh_status set_ranges(lhi_size_search *s, lh_error *err)
{
    const uint32_t n = s->job->n_datacenters;
    double gpus = 0, nodes = 0;
    bool has_fabric = true;
    s->result->n_sizes = 1;
    for (uint32_t i = 0; i < n; i++) {
        const lh_datacenter *site = &s->job->datacenters[i];
        lh_size_range *r = &s->ranges[i];
        *r = s->options.ranges ? s->options.ranges[i]
                               : (lh_size_range){n == 1, site->nodes};
        if (r->least > r->most)
            return lhi_fail(err, LH_EINVAL,
                            "%" PRIu32 " to %" PRIu32
                            " nodes in '%s'; expected the least number first",
                            r->least, r->most, site->name);
        gpus += (double)r->most * site->gpus_per_node;
        nodes += r->most;
        has_fabric = has_fabric && (r->most == 0 || site->fabric.gbps > 0);
        s->result->n_sizes *= r->most - r->least + 1;
    }
    if (!(nodes > 0))
        return lhi_fail(err, LH_EINVAL,
                        "the ranges have no nodes in any datacenter");
    if (nodes > 1 && !has_fabric)
        return lhi_fail(err, LH_EINPUT,
                        "%s: cluster.fabric: required for sizes of several "
                        "nodes",
                        s->job->name);
    if (gpus > LH_MAX_GPUS)
        return lhi_fail(err, LH_EINVAL,
                        "the ranges have up to %.0f GPUs; at most %u are "
                        "allowed",
                        gpus, LH_MAX_GPUS);
    return LH_OK;
}

/* Checks a number of the options: finite, and not negative. */
static lh_status check_number(const char *name, double value, lh_error *err)
{
    if (value >= 0 && value <= DBL_MAX)
        return LH_OK;
    return lhi_fail(err, LH_EINVAL,
                    "%s is %g; expected a finite number of 0 or more", name,
                    value);
}

lh_status lhi_size_set_options(lhi_size_search *s, lh_error *err)
{
    lh_size_options *o = &s->options;
    LHI_TRY(check_job(s->job, err));
    LHI_TRY(check_number("tokens", o->tokens, err));
    LHI_TRY(check_number("deadline_s", o->deadline_s, err));
    LHI_TRY(check_number("budget_usd", o->budget_usd, err));
    LHI_TRY(check_number("spot_price", o->spot_price, err));
    LHI_TRY(check_number("spot_mtbf_s", o->spot_mtbf_s, err));
    if (!(o->tokens > 0))
        return lhi_fail(err, LH_EINVAL, "tokens: a number above 0 is required");
    if ((o->spot_price > 0) != (o->spot_mtbf_s > 0))
        return lhi_fail(err, LH_EINVAL,
                        "spot_price requires spot_mtbf_s, and the reverse");
    if ((o->budget_usd > 0 || o->spot_price > 0) && !s->priced)
        return lhi_fail(err, LH_EINPUT,
                        "%s: cluster.usd_per_gpu_hour: required for a budget "
                        "and for spot capacity; or give one price for all GPUs "
                        "(--gpu-hour)",
                        s->job->name);
    o->effort = o->effort ? o->effort : DEFAULT_EFFORT;
    s->most_plans = o->effort;
    o->lost_nodes = o->lost_nodes ? o->lost_nodes : DEFAULT_LOST_NODES;
    s->failures.size = sizeof s->failures;
    if (o->failures)
        LHI_TRY(LHI_OPTIONS_COPY(lh_failures, &s->failures, o->failures, err));
    return set_ranges(s, err);
}
