/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates a placement from its work, links and rings alone, without schedule
 * or memory. The estimate only affects the order of trials and, for very many
 * placements, the selection. */
#include "planner/layout/site_search_internal.h"

#include "format/job/job_values.h"
#include "model/shape.h"

#include <math.h>

/* Estimate state. */
typedef struct placement_estimate {
    const lhi_placement_case *c;
    lh_cost_options options;
    lhi_ecmp_cache *known;
    const lhi_placement_draft *d;
    uint32_t at[LHI_MOST_PARTS];   /* current part per group */
    uint32_t left[LHI_MOST_PARTS]; /* its stages not yet visited */
    double work;                   /* stages over their speed */
    double late, busiest;          /* latencies; the busiest link's time */
    double ring;                   /* the slowest ring */
} placement_estimate;

/* Returns the bytes of activations (and as many of gradients) that one replica
 * sends across a boundary between datacenters per iteration. */
static double compute_replica_bytes(const lhi_placement_case *c)
{
    const lh_training *t = &c->job->training;
    return (double)t->global_batch / c->layout->data * t->sequence *
           c->job->model->hidden * lhi_precision_bytes(t->precision);
}

/* Counts the flows on the link that replica group `g` crosses at the current
 * boundary between stages: one per GPU, over all groups whose pipelines use
 * that link here. */
static double count_flows(const placement_estimate *r, uint32_t g)
{
    double replicas = 0;
    for (uint32_t i = 0; i < r->d->n_groups; i++)
        if (r->left[i] == 0 && r->d->site[r->at[i]] == r->d->site[r->at[g]] &&
            r->d->site[r->at[i] + 1] == r->d->site[r->at[g] + 1])
            replicas += r->d->replicas[i];
    return replicas * r->c->group;
}

/* Adds the message times of the replica groups whose part ends at the current
 * stage boundary, and moves these groups to their next part. */
static lh_status cross_boundary(placement_estimate *r, lh_error *err)
{
    double late = 0, bytes = compute_replica_bytes(r->c) / r->c->group;
    for (uint32_t g = 0; g < r->d->n_groups; g++) {
        if (r->left[g])
            continue;
        const uint32_t *site = &r->d->site[r->at[g]];
        double both = 0;
        for (int back = 0; back < 2; back++) {
            lh_cost_path path;
            LHI_TRY(lhi_compute_inter_datacenter_path(
                r->c->job, site[back], site[1 - back], count_flows(r, g),
                &r->options, r->known, &path, err));
            both += path.latency_ns;
            r->busiest = fmax(r->busiest, bytes * 1e9 / path.bytes_per_s);
        }
        late = fmax(late, both);
    }
    r->late += late;
    for (uint32_t g = 0; g < r->d->n_groups; g++)
        if (!r->left[g])
            r->left[g] = r->d->stages[++r->at[g]];
    return LH_OK;
}

/* Lists the current stage's datacenters over all replica groups, each once, in
 * sites[]. *least: fewest replicas in one of them. Returns their number. */
static uint32_t find_sites(const placement_estimate *r, uint32_t *sites,
                           double *least)
{
    double replicas[LHI_MOST_PARTS];
    uint32_t n = 0;
    for (uint32_t g = 0; g < r->d->n_groups; g++) {
        uint32_t at = 0, site = r->d->site[r->at[g]];
        while (at < n && sites[at] != site)
            at++;
        if (at == n) {
            sites[n] = site;
            replicas[n++] = 0;
        }
        replicas[at] += r->d->replicas[g];
    }
    *least = INFINITY;
    for (uint32_t i = 0; i < n; i++)
        *least = fmin(*least, replicas[i]);
    return n;
}

/* Raises r->ring to a lower bound on the time of the current stage's
 * data-parallel ring, which carries n_stages stages at once: no ring is faster
 * than the worst-connected datacenter's best link. */
static lh_status add_ring(placement_estimate *r, uint32_t n_stages,
                          lh_error *err)
{
    uint32_t sites[LHI_MOST_PARTS];
    double least, slow = 0, late = 0;
    uint32_t n = find_sites(r, sites, &least);
    double flows = r->c->group * least * n_stages;
    if (n < 2)
        return LH_OK;
    for (uint32_t i = 0; i < n; i++) {
        double out = INFINITY, soon = INFINITY;
        for (uint32_t j = 0; j < n; j++) {
            lh_cost_path path;
            if (i == j)
                continue;
            LHI_TRY(lhi_compute_inter_datacenter_path(
                r->c->job, sites[i], sites[j], flows, &r->options, r->known,
                &path, err));
            out = fmin(out, 1e9 / path.bytes_per_s);
            soon = fmin(soon, path.latency_ns);
        }
        slow = fmax(slow, out);
        late = fmax(late, soon);
    }
    /* Gradients, and 2 bytes of parameters. */
    double element = 2.0 + lhi_gradient_bytes(r->c->job->framework.reduce);
    double bytes = element * r->c->params /
                   ((double)r->c->layout->pipeline * r->c->group * least);
    r->ring = fmax(r->ring, (n - 1.0) / n * bytes * slow + 2 * (n - 1) * late);
    return LH_OK;
}

lh_status lhi_placement_estimate(const lhi_placement_case *c,
                                 lhi_ecmp_cache *known, lhi_placement_draft *d,
                                 lh_error *err)
{
    placement_estimate r = {
        .c = c,
        .options = {.size = sizeof r.options,
                    .constants = lhi_find_cost_constants(c->job)},
        .known = known,
        .d = d};
    for (uint32_t g = 0; g < d->n_groups; g++) {
        r.at[g] = d->from[g];
        r.left[g] = d->stages[d->from[g]];
    }
    for (uint32_t done = 0; done < c->layout->pipeline;) {
        uint32_t n = UINT32_MAX;
        double speed = INFINITY;
        for (uint32_t g = 0; g < d->n_groups; g++) {
            n = r.left[g] < n ? r.left[g] : n;
            speed = fmin(speed, c->speed[d->site[r.at[g]]]);
        }
        r.work += n * speed * c->group;
        LHI_TRY(add_ring(&r, n, err));
        for (uint32_t g = 0; g < d->n_groups; g++)
            r.left[g] -= n;
        done += n;
        if (done < c->layout->pipeline)
            LHI_TRY(cross_boundary(&r, err));
    }
    double work_ns = c->flops / c->layout->data * 1e9;
    d->ns = fmax(work_ns / r.work, r.busiest) + r.late + r.ring;
    return LH_OK;
}

lh_status lhi_placement_estimate_hop_ns(const lhi_placement_case *c, uint32_t a,
                                        uint32_t b, lhi_ecmp_cache *known,
                                        double *ns, lh_error *err)
{
    lh_cost_options options = {.size = sizeof options,
                               .constants = lhi_find_cost_constants(c->job)};
    *ns = 0;
    for (int back = 0; back < 2; back++) {
        lh_cost_path path;
        LHI_TRY(lhi_compute_inter_datacenter_path(
            c->job, back ? b : a, back ? a : b,
            (double)c->group * c->layout->data, &options, known, &path, err));
        *ns += path.latency_ns +
               compute_replica_bytes(c) / c->group * 1e9 / path.bytes_per_s;
    }
    return LH_OK;
}
