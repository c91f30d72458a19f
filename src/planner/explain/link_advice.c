/* SPDX-License-Identifier: Apache-2.0 */
/* Recommends settings for the links that a plan uses: lists the links and their
 * traffic; link_questions.c chooses the settings of each. */
#include "planner/explain/link_advice.h"
#include "planner/explain/link_advice_internal.h"

#include "planner/layout/choice.h"

#include "model/paths.h"

#include <math.h>

enum { MAX_PATHS = 65536 }; /* upper limit for a job */

static const double path_gbps = 400; /* per wave or port, if not given */

/* Returns the number of parallel paths of a link between datacenters: one for
 * each wavelength or port of 400 Gb/s, rounded up, at most MAX_PATHS. */
static uint32_t count_paths(const lh_wan *wan)
{
    return (uint32_t)fmin(MAX_PATHS, ceil(wan->gbps / path_gbps));
}

/* Returns the datacenter's name; for a zone, that of the datacenter that
 * contains it. */
static const char *get_site_name(const lh_datacenter *dc)
{
    return dc->zone_of ? dc->zone_of : dc->name;
}

/* Fills the advice on settings (balancing, congestion control, error
 * correction) for one link between datacenters. */
static lh_status advise_link(lhi_link_advisor *a, lh_link_advice *out,
                             lh_error *err)
{
    const lhi_traffic *t = a->traffic;
    const lh_job *job = a->job;
    const lh_wan *wan =
        &job->wans[(size_t)t->from * job->n_datacenters + t->to];
    const lh_link_setting s = wan->setting;
    a->queue_bytes = s.queue_bytes;
    lhi_link_advisor_fill_loads(a);
    *out = (lh_link_advice){
        .from = get_site_name(&job->datacenters[t->from]),
        .to = get_site_name(&job->datacenters[t->to]),
        .message_bytes = t->message_bytes,
        .messages = t->messages,
        .message_flows = t->message_flows,
        .data_bytes = t->data_bytes,
        .expert_bytes = t->expert_bytes,
        .data_step_bytes = t->data_step_bytes,
        .data_flows = t->data_flows,
        .paths_from_job = s.paths > 0,
        .paths = s.paths ? s.paths : count_paths(wan),
        .measured = lhi_profile_link(job, LH_PATH_WAN, t->from, t->to) != NULL,
    };
    out->planned.setting = out->advised.setting = s;
    LHI_TRY(lhi_link_advisor_fill_option(a, &out->planned, err));
    /* Expert traffic is part of the passes and stays as planned. */
    if (out->measured || (!t->message_flows && !t->data_flows))
        return lhi_link_advisor_fill_option(a, &out->advised, err);
    return lhi_link_advisor_answer_questions(a, out, err);
}

/* Lists the traffic per pair of datacenters, summed over their zones. Traffic
 * between zones of one datacenter has no settings and is omitted. */
static lh_status list_links(const lhi_link_advisor *a, lhi_traffic **out,
                            uint32_t *n_out, lh_error *err)
{
    const lh_job *job = a->job;
    const lhi_traffic *pairs;
    lhi_traffic *links;
    uint32_t n_pairs, n = 0;
    LHI_TRY(lhi_traffic_of(job, &a->config, a->mem, &pairs, &n_pairs, err));
    links = LHI_NEW(a->mem, lhi_traffic, n_pairs + (size_t)1);
    if (!links)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n_pairs; i++) {
        const lhi_traffic *t = &pairs[i];
        uint32_t k = 0;
        if (lhi_are_zones_of_same_datacenter(job, t->from, t->to))
            continue;
        while (k < n && !lhi_uses_same_link(job, links[k].from, links[k].to,
                                            t->from, t->to))
            k++;
        if (k == n) {
            links[n++] = *t;
            continue;
        }
        links[k].messages += t->messages;
        links[k].message_flows += t->message_flows;
        links[k].data_flows += t->data_flows;
        links[k].data_bytes += t->data_bytes;
        links[k].expert_bytes += t->expert_bytes;
        if (t->message_bytes > links[k].message_bytes)
            links[k].message_bytes = t->message_bytes;
        if (t->data_step_bytes > links[k].data_step_bytes)
            links[k].data_step_bytes = t->data_step_bytes;
    }
    *out = links;
    *n_out = n;
    return LH_OK;
}

lh_status lhi_plan_advise_links(const lh_job *job, lhi_arena *mem,
                                lh_plan *plan, lh_error *err)
{
    lhi_link_advisor a = {.job = job,
                          .mem = mem,
                          .plan = plan,
                          .config = lhi_config_from_choice(&plan->best)};
    lhi_traffic *traffic;
    uint32_t n;
    LHI_TRY(list_links(&a, &traffic, &n, err));
    lh_link_advice *links = LHI_NEW(mem, lh_link_advice, n + (size_t)1);
    if (!links)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        a.traffic = &traffic[i];
        LHI_TRY(advise_link(&a, &links[i], err));
    }
    plan->network = links;
    plan->n_network = n;
    plan->network_ns = plan->network_now_ns = -1;
    if (!n)
        return LH_OK;
    LHI_TRY(lhi_link_advisor_simulate_links(&a, traffic, links, n, true,
                                            &plan->network_ns, err));
    return lhi_link_advisor_simulate_links(&a, traffic, links, n, false,
                                           &plan->network_now_ns, err);
}
