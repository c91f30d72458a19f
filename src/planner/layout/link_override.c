/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/layout/link_override.h"

#include "base/fail.h"
#include "model/paths.h"
#include "planner/layout/choice.h"
#include "planner/layout/elastic_shares.h"
#include "schedule/elastic/elastic.h"

#include <longhaul/experimental/elastic.h>
#include <math.h>
#include <string.h>

const char *lh_link_quantity_name(lh_link_quantity quantity)
{
    static const char *const names[] = {"latency", "bandwidth", "loss",
                                        "oversubscription"};
    return (unsigned)quantity < 4 ? names[quantity] : "unknown";
}

/* --- links ---------------------------------------------------------------- */

/* Sets one quantity of the link from `from` to `to` in *wan to `value`, in the
 * quantity's unit. LH_EINVAL: outside the limits of docs/formats/job.md. */
static lh_status set_value(const lh_job *job, uint32_t from, uint32_t to,
                           lh_link_quantity quantity, double value, lh_wan *wan,
                           lh_error *err)
{
    static const struct {
        double least, most;
        const char *unit;
    } limits[] = {
        {0, 3.6e6, " ms"}, {1e-6, 1e9, " Gb/s"}, {0, 0.99, ""}, {1, 1e6, ""}};
    if ((unsigned)quantity >= 4)
        return lhi_fail(err, LH_EINVAL, "unknown link quantity");
    if (!(value >= limits[quantity].least && value <= limits[quantity].most))
        return lhi_fail(err, LH_EINVAL,
                        "%s of the link %s>%s: %g is out of range; "
                        "from %g to %g%s is possible",
                        lh_link_quantity_name(quantity),
                        job->datacenters[from].name, job->datacenters[to].name,
                        value, limits[quantity].least, limits[quantity].most,
                        limits[quantity].unit);
    switch (quantity) {
    case LH_LINK_LATENCY:
        wan->latency_ns = llround(value * 1e6);
        break;
    case LH_LINK_BANDWIDTH:
        wan->gbps = value;
        wan->bytes_per_s = value * 1e9 / 8;
        break;
    case LH_LINK_LOSS:
        wan->loss = value;
        break;
    case LH_LINK_OVERSUBSCRIPTION:
        wan->oversubscription = value;
        break;
    }
    return LH_OK;
}

/* Returns a link quantity in its unit: latency in ms, bandwidth in Gb/s, loss,
 * or oversubscription. */
static double get_value(const lh_wan *wan, lh_link_quantity quantity)
{
    return quantity == LH_LINK_LATENCY     ? (double)wan->latency_ns / 1e6
           : quantity == LH_LINK_BANDWIDTH ? wan->gbps
           : quantity == LH_LINK_LOSS      ? wan->loss
                                           : wan->oversubscription;
}

/* Applies a latency, bandwidth, loss or oversubscription change to one link or
 * to all links. LH_EINVAL: the job has no such link. */
static lh_status change_links(const lh_job *job, const lh_link_change *change,
                              lh_wan *wans, lh_error *err)
{
    uint32_t n = job->n_datacenters;
    bool all = change->from == LH_ALL_LINKS && change->to == LH_ALL_LINKS;
    if (!all &&
        (change->from >= n || change->to >= n || change->from == change->to))
        return lhi_fail(err, LH_EINVAL, "the job does not have this link");
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < n; b++) {
            lh_wan *wan = &wans[(size_t)a * n + b];
            if (a == b || (!all && !lhi_uses_same_link(job, change->from,
                                                       change->to, a, b)))
                continue;
            double value = change->value;
            if (change->relative)
                value *= get_value(wan, change->quantity);
            LHI_TRY(set_value(job, a, b, change->quantity, value, wan, err));
        }
    return LH_OK;
}

/* --- profile -------------------------------------------------------------- */

/* Returns a link's effective bandwidth after loss and oversubscription, in
 * bytes/s. */
static double get_rate(const lh_wan *wan)
{
    return wan->bytes_per_s * (1 - wan->loss) / wan->oversubscription;
}

/* Scales a profile's measured latency and time per byte of a link by the change
 * of the job's link from `before` to `after`. */
static void scale_link(const lh_wan *before, const lh_wan *after,
                       lh_profile_link *link)
{
    link->beta_ns_per_byte *= get_rate(before) / get_rate(after);
    if (after->latency_ns == before->latency_ns)
        return;
    /* Without a reference value, the new value counts directly. */
    double ratio = before->latency_ns > 0
                       ? (double)after->latency_ns / (double)before->latency_ns
                       : 0;
    link->alpha_ns = before->latency_ns > 0
                         ? llround((double)link->alpha_ns * ratio)
                         : after->latency_ns;
}

/* Scales the profile's measurements of all links between datacenters in *job by
 * the change of the job's links from `before` to `job`. */
static lh_status scale_profile(const lh_job *before, lhi_arena *mem,
                               lh_job *job, lh_error *err)
{
    const lh_profile *p = before->profile;
    uint32_t n = job->n_datacenters;
    if (!p || !p->n_links)
        return LH_OK;
    lh_profile *scaled = LHI_NEW(mem, lh_profile, 1);
    lh_profile_link *links = LHI_NEW(mem, lh_profile_link, p->n_links);
    if (!scaled || !links)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < p->n_links; i++) {
        links[i] = p->links[i];
        if (links[i].path != LH_PATH_WAN)
            continue;
        uint32_t a = lhi_find_datacenter(job, links[i].from);
        uint32_t b = lhi_find_datacenter(job, links[i].to);
        if (a < n && b < n && a != b)
            scale_link(&before->wans[(size_t)a * n + b],
                       &job->wans[(size_t)a * n + b], &links[i]);
    }
    *scaled = *p;
    scaled->links = links;
    job->profile = scaled;
    return LH_OK;
}

lh_status lhi_job_override_links(const lh_job *job,
                                 const lh_link_change *changes,
                                 uint32_t n_changes, lhi_arena *mem,
                                 lh_job *out, lh_error *err)
{
    size_t n = (size_t)job->n_datacenters * job->n_datacenters;
    lh_wan *wans = LHI_NEW(mem, lh_wan, n);
    if (!wans)
        return lhi_fail_nomem(err);
    memcpy(wans, job->wans, n * sizeof *wans);
    for (uint32_t i = 0; i < n_changes; i++)
        LHI_TRY(change_links(job, &changes[i], wans, err));
    *out = *job;
    out->wans = wans;
    return scale_profile(job, mem, out, err);
}

/* --- choice --------------------------------------------------------------- */

lh_status lhi_copy_sites(const lh_sites *sites, lhi_arena *mem,
                         const lh_sites **out, lh_error *err)
{
    *out = NULL;
    if (!sites)
        return LH_OK;
    lh_sites *copy = LHI_NEW(mem, lh_sites, 1);
    lh_site_group *groups = LHI_NEW(mem, lh_site_group, sites->n_groups);
    if (!copy || !groups)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < sites->n_groups; i++) {
        const lh_site_group *group = &sites->groups[i];
        lh_site_stages *parts = LHI_NEW(mem, lh_site_stages, group->n_parts);
        if (!parts)
            return lhi_fail_nomem(err);
        for (uint32_t k = 0; k < group->n_parts; k++)
            parts[k] = group->parts[k];
        groups[i] = *group;
        groups[i].parts = parts;
    }
    *copy = (lh_sites){sites->n_groups, groups};
    *out = copy;
    return LH_OK;
}

/* Copies latency and transfer time from pipeline `after`'s link with the
 * same two devices. */
static void replace_link_time(lh_link *link, const lh_pipeline *after)
{
    for (uint32_t k = 0; k < lh_pipeline_n_links(after); k++) {
        const lh_link *now = lh_pipeline_link(after, k);
        if (now->from == link->from && now->to == link->to) {
            link->latency_ns = now->latency_ns;
            link->transfer_ns = now->transfer_ns;
        }
    }
}

/* Copies an elastic plan's pipeline `p` with the link times of `after`, its
 * layout's ZeRO-1 pipeline on the new links. Passes, groups and shares stay. */
static lh_status replace_link_times(const lh_job *job, const lhi_config *config,
                                    const lh_plan_elastic *plan,
                                    const lh_pipeline *p,
                                    const lh_pipeline *after, lhi_arena *mem,
                                    lh_pipeline **out, lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(p, &desc, err));
    lh_chunk *chunks = LHI_NEW(mem, lh_chunk, desc.n_chunks);
    lh_link *links = LHI_NEW(mem, lh_link, desc.n_links);
    lhi_chunk_sharded *sharded = LHI_NEW(mem, lhi_chunk_sharded, desc.n_chunks);
    lh_dp_op *ops;
    if (!chunks || !links || !sharded)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < desc.n_chunks; i++) {
        chunks[i] = desc.chunks[i];
        chunks[i].dp_latency_ns = lh_pipeline_chunk(after, i)->dp_latency_ns;
    }
    for (uint32_t i = 0; i < desc.n_links; i++) {
        links[i] = desc.links[i];
        replace_link_time(&links[i], after);
    }
    LHI_TRY(lhi_layout_compute_sharded_times(job, config, sharded, err));
    LHI_TRY(lhi_elastic_compute_communication(after, sharded, plan, mem, chunks,
                                              &ops, &desc.n_dp_ops, err));
    desc.chunks = chunks;
    desc.links = links;
    desc.dp_ops = ops;
    lh_status status = lh_pipeline_make(&desc, out, err);
    lhi_elastic_ops_free(ops);
    return status;
}

lh_status lhi_pipeline_override_links(const lh_job *before, const lh_job *job,
                                      const lh_choice *choice,
                                      const lh_pipeline *pipeline,
                                      lhi_arena *mem, lh_pipeline **out,
                                      int64_t *after_ns, lh_error *err)
{
    lhi_config config = lhi_config_from_choice(choice);
    lhi_built_layout old, new;
    LHI_TRY(lhi_layout_build(job, &config, &new, err));
    *after_ns = new.optimizer_ns + new.overhead_ns;
    if (!choice->elastic) {
        *out = new.pipeline;
        return LH_OK;
    }
    lh_status status = lhi_layout_build(before, &config, &old, err);
    if (status == LH_OK) {
        *after_ns += choice->optimizer_ns + choice->overhead_ns -
                     old.optimizer_ns - old.overhead_ns;
        lh_pipeline_free(old.pipeline);
        lh_job plain = lhi_config_job(job, &config);
        status = replace_link_times(&plain, &config, choice->elastic, pipeline,
                                    new.pipeline, mem, out, err);
    }
    lh_pipeline_free(new.pipeline);
    return status;
}
