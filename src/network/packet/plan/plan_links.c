/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the links between datacenters that a plan's messages cross, and their
 * settings. */
#include "network/packet/plan/plan_links.h"

#include "base/fail.h"
#include "model/paths.h"
#include "network/packet/link.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <math.h>
#include <string.h>

/* Returns the plan's advice for the link with this name, which holds its
 * traffic; NULL: no such link. */
static const lh_link_advice *find_advice(const lh_plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->n_network; i++) {
        const lh_link_advice *a = &plan->network[i];
        size_t len = strlen(a->from);
        if (strncmp(name, a->from, len) == 0 && name[len] == '>' &&
            strcmp(name + len + 1, a->to) == 0)
            return a;
    }
    return NULL;
}

/* Fails with LH_EUNSUPPORTED unless the link has the settings without which its
 * packets cannot be simulated. */
static lh_status check_settings(const lh_link_advice *a,
                                const lh_link_setting *s, lh_error *err)
{
    const char *key = s->balancing == LH_BALANCING_ANY ? "load_balancing"
                      : s->recovery == LH_RECOVERY_ANY ? "recovery"
                                                       : NULL;
    if (key)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "link %s>%s: the job does not give %s, which packets "
                        "need; add load_balancing and recovery to the link in "
                        "the job (docs/formats/job.md) and plan again",
                        a->from, a->to, key);
    if (a->measured)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "link %s>%s: its times come from the job's profile, "
                        "not from a model of its packets; plan without the "
                        "profile's link and without --network packets",
                        a->from, a->to);
    return LH_OK;
}

/* Fills in a link's load and settings, with a replica's GPUs as one sender, as
 * the plan's closed form counts them. */
static lh_status fill_link(const lh_plan *plan, const lh_link_advice *a,
                           lhi_plan_link *out, lh_error *err)
{
    const lh_job *job = plan->job;
    const lh_layout *layout = &plan->best.layout;
    uint32_t from = lhi_find_datacenter(job, a->from);
    uint32_t to = lhi_find_datacenter(job, a->to);
    double gpus = (double)layout->tensor * layout->context;
    if (from == LH_NONE || to == LH_NONE)
        return lhi_fail(err, LH_EINPUT, "link %s>%s: the job has none", a->from,
                        a->to);
    const lh_link_setting *s =
        &job->wans[(size_t)from * job->n_datacenters + to].setting;
    LHI_TRY(check_settings(a, s, err));
    out->from = a->from;
    out->to = a->to;
    out->gpus = (uint32_t)gpus;
    out->link = (lh_packet_link){
        .load = lhi_link_load(job, from, to, lhi_find_cost_constants(job)),
        .setting = *s,
        .control = s->congestion == LH_CONGESTION_ON ? LH_CONTROL_DCQCN
                                                     : LH_CONTROL_NONE};
    lh_link_load *load = &out->link.load;
    load->senders = fmax(1, (double)a->message_flows / gpus);
    load->interface_bytes_per_s *= gpus;
    load->message_bytes = (double)a->message_bytes;
    out->link.setting.queue_pairs =
        (uint32_t)fmin(fmax(1, s->queue_pairs) * gpus, 1 << 16);
    out->link.setting.channels = (uint32_t)fmin(s->channels * gpus, 1 << 20);
    lh_status status = lhi_packet_link_check(&out->link, err);
    if (status != LH_OK)
        lhi_fail_add_context(err, "link %s>%s", a->from, a->to);
    return status;
}

/* Adds the pipeline's link number `i` to its entry: its sending device, and the
 * planned time, that of the slowest one. */
static void add_pipeline_link(const lh_pipeline *p, uint32_t i,
                              lhi_plan_link *entry)
{
    const lh_link *link = &p->links[i];
    if (entry->senders[link->from] == LH_NONE)
        entry->senders[link->from] = entry->n_senders++;
    entry->planned_ns = fmax(entry->planned_ns, (double)link->latency_ns +
                                                    (double)link->transfer_ns);
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        if (p->forward[c].message && p->forward[c].link == i)
            entry->n_messages += p->n_microbatches;
        if (p->backward[c].message && p->backward[c].link == i)
            entry->n_messages += p->n_microbatches;
    }
}

/* Checks whether a pipeline link's messages leave their datacenter. */
static bool crosses_datacenters(const lh_plan *plan, const lh_link *link)
{
    const lh_pipeline *p = plan->pipeline;
    if (!link->name)
        return false;
    return find_advice(plan, link->name) ||
           (p->device_sites &&
            p->device_sites[link->from] != p->device_sites[link->to]);
}

/* Finds or adds the entry of a pipeline link that crosses datacenters. */
static lh_status add_link(const lh_plan *plan, uint32_t i, lhi_arena *mem,
                          lhi_plan_links *out, lh_error *err)
{
    const lh_pipeline *p = plan->pipeline;
    const char *name = p->links[i].name;
    const lh_link_advice *a = find_advice(plan, name);
    uint32_t k = 0;
    if (!a || a->message_flows == 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "link %s: its messages are not those of one link "
                        "between two datacenters; packets of several links or "
                        "of zones are not simulated",
                        name);
    while (k < out->n && strcmp(out->links[k].name, name) != 0)
        k++;
    lhi_plan_link *entry = &out->links[k];
    if (k == out->n) {
        out->n++;
        entry->name = name;
        entry->senders = LHI_NEW(mem, uint32_t, p->n_devices);
        if (!entry->senders)
            return lhi_fail_nomem(err);
        for (uint32_t d = 0; d < p->n_devices; d++)
            entry->senders[d] = LH_NONE;
        LHI_TRY(fill_link(plan, a, entry, err));
    }
    add_pipeline_link(p, i, entry);
    out->of_link[i] = k;
    return LH_OK;
}

/* Fails with LH_EUNSUPPORTED if messages cross a link that has no entry. The
 * pipeline has one link for messages that take different links in different
 * replicas, and gives it the name of one of them. */
static lh_status check_all_found(const lh_plan *plan,
                                 const lhi_plan_links *found, lh_error *err)
{
    for (uint32_t i = 0; i < plan->n_network; i++) {
        const lh_link_advice *a = &plan->network[i];
        uint32_t k = 0;
        while (k < found->n && (strcmp(found->links[k].from, a->from) != 0 ||
                                strcmp(found->links[k].to, a->to) != 0))
            k++;
        if (a->message_flows > 0 && k == found->n)
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "link %s>%s: replicas send the same message over "
                            "different links, whose packets are not simulated",
                            a->from, a->to);
    }
    return LH_OK;
}

lh_status lhi_plan_links_find(const lh_plan *plan, lhi_arena *mem,
                              lhi_plan_links *out, lh_error *err)
{
    const lh_pipeline *p = plan->pipeline;
    *out = (lhi_plan_links){
        .links = LHI_NEW(mem, lhi_plan_link, p->n_links + (size_t)1),
        .of_link = LHI_NEW(mem, uint32_t, p->n_links + (size_t)1)};
    if (!out->links || !out->of_link)
        return lhi_fail_nomem(err);
    if (plan->job->layout.mtp_chunk)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "packets of messages with multi-token prediction "
                        "modules of their own are not simulated");
    for (uint32_t i = 0; i < p->n_links; i++) {
        out->of_link[i] = LH_NONE;
        if (crosses_datacenters(plan, &p->links[i]))
            LHI_TRY(add_link(plan, i, mem, out, err));
    }
    if (out->n == 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "no message of the plan crosses a link between "
                        "datacenters; packets of its collectives are not "
                        "simulated");
    return check_all_found(plan, out, err);
}
