/* SPDX-License-Identifier: Apache-2.0 */
/* The delegated data path in the performance model. Both staging copies are
 * added to a message's latency: they take equally long for every message on a
 * link, so all messages enter it later by the same time, in the same order. */
#include "schedule/simulator/timeline.h"

#include "base/options.h"
#include "schedule/simulator/delegate.h"

#include <inttypes.h>
#include <longhaul/experimental/delegate.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns a data path's name: direct, delegated (through host memory, sent by a
 * helper thread) or mixed; static storage. */
const char *lh_data_path_name(lh_data_path path)
{
    static const char *const names[] = {"direct", "delegated", "mixed"};
    return names[path];
}

int64_t lhi_delegation_staging_ns(uint64_t bytes, double host_bytes_per_s,
                                  int64_t constant_ns)
{
    return constant_ns + llround((double)bytes / host_bytes_per_s * 1e9);
}

uint32_t lhi_delegation_count_queues(double made, double moved)
{
    double queues = ceil(made / moved);
    return queues < 1 ? 1 : queues < UINT32_MAX ? (uint32_t)queues : UINT32_MAX;
}

/* Returns one copy's time to or from host memory for messages of a link, in
 * ns. */
static int64_t get_staging_ns(const lh_delegation *o, uint32_t link)
{
    return o->link_staging_ns ? o->link_staging_ns[link] : o->staging_ns;
}

/* Checks whether the options delegate a link's messages (send them from host
 * memory by a helper thread); without a link list, all are delegated. */
static bool is_delegated(const lh_delegation *o, uint32_t link)
{
    return !o->links || o->links[link];
}

/* Maximum for one copy; two copies reach a link's maximum latency. */
#define LONGEST_NS (INT64_C(1) << 51)

/* Checks the delegation options' ranges, and that links with one name are all
 * delegated or none. */
static lh_status check_delegation(const lh_pipeline *p, const lh_delegation *o,
                                  lh_error *err)
{
    if (o->host_memory < 0 || o->host_copy_ns < 0)
        return lhi_fail(err, LH_EINVAL,
                        "host memory of %" PRId64 " and copies of %" PRId64
                        " ns: both must be at least 0",
                        o->host_memory, o->host_copy_ns);
    for (uint32_t i = 0; i <= p->n_links; i++) {
        int64_t ns = i < p->n_links ? get_staging_ns(o, i) : o->staging_ns;
        if (ns < 0 || ns > LONGEST_NS)
            return lhi_fail(err, LH_EINVAL,
                            "a copy of a message takes %" PRId64
                            " ns; it must be from 0 to 2^51 ns (26 days)",
                            ns);
    }
    for (uint32_t i = 0; o->links && i < p->n_links; i++)
        for (uint32_t k = 0; k < i && p->links[i].name; k++)
            if (p->links[k].name &&
                strcmp(p->links[i].name, p->links[k].name) == 0 &&
                o->links[i] != o->links[k])
                return lhi_fail(err, LH_EINVAL,
                                "some of the links '%.60s', which share a "
                                "resource, are delegated; delegate all or none "
                                "of them",
                                p->links[i].name);
    return LH_OK;
}

/* Appends links with latency `ns` for messages between devices that have none;
 * returns the new link count. */
static uint32_t add_missing(const lh_pipeline *p, int64_t ns, lh_link *links,
                            uint32_t n)
{
    uint32_t first = n;
    for (uint32_t c = 0; c + 1 < p->n_chunks; c++)
        for (int back = 0; back < 2; back++) {
            const lhi_route *r = back ? &p->backward[c + 1] : &p->forward[c];
            uint32_t a = p->chunks[c].device, b = p->chunks[c + 1].device;
            lh_link link = {back ? b : a, back ? a : b, ns, 0, NULL};
            uint32_t i = first;
            if (lhi_is_last_chunk(p, c) || !r->message || r->link != LH_NONE)
                continue;
            while (i < n &&
                   (links[i].from != link.from || links[i].to != link.to))
                i++;
            if (i == n)
                links[n++] = link;
        }
    return n;
}

/* Builds a pipeline in which delegated links' latency includes both copies to
 * and from host memory. */
static lh_status stage_links(const lh_pipeline *p, const lh_delegation *o,
                             lh_pipeline **out, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(p, &desc, err));
    size_t room = (size_t)p->n_links + 2 * (size_t)p->n_chunks;
    lh_link *links = calloc(room, sizeof *links);
    if (!links)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_links; i++) {
        links[i] = desc.links[i];
        if (is_delegated(o, i))
            links[i].latency_ns += 2 * get_staging_ns(o, i);
    }
    if (!o->links && o->staging_ns > 0)
        desc.n_links = add_missing(p, 2 * o->staging_ns, links, p->n_links);
    desc.links = links;
    lh_status status = lhi_pipeline_rebuild(p, &desc, out, err);
    free(links);
    return status;
}

/* Adds host memory for messages to the pipeline *staged; devices that already
 * offload activations are unchanged. */
static lh_status add_host_memory(const lh_pipeline *p, const lh_delegation *o,
                                 lh_pipeline **staged, lh_error *err)
{
    lh_pipeline *roomy;
    if (o->host_memory == 0 || lh_pipeline_has_host(p))
        return LH_OK;
    LHI_TRY(lh_pipeline_with_host(*staged, o->host_memory, &roomy, err));
    lh_pipeline_free(*staged);
    *staged = roomy;
    return LH_OK;
}

lh_status lh_delegate(const lh_pipeline *pipeline, const lh_sim_options *sim,
                      const lh_delegation *delegation, lh_pipeline **out,
                      lh_sim_options *out_sim, lh_error *err)
{
    lh_delegation o;
    lh_sim_options how;
    LHI_TRY(LHI_OPTIONS_COPY(lh_delegation, &o, delegation, err));
    LHI_TRY(lhi_sim_options(pipeline, sim, &how, err));
    LHI_TRY(check_delegation(pipeline, &o, err));
    how.delegated = o.links;
    if (!o.links) {
        how.coupled_queue = 0;
        how.receives = LH_RECEIVES_EARLY;
    }
    if (o.host_memory > 0)
        how.host_copy_ns = o.host_copy_ns;
    lh_pipeline *staged;
    LHI_TRY(stage_links(pipeline, &o, &staged, err));
    lh_status status = add_host_memory(pipeline, &o, &staged, err);
    if (status != LH_OK) {
        lh_pipeline_free(staged);
        return status;
    }
    *out = staged;
    *out_sim = how;
    return LH_OK;
}
