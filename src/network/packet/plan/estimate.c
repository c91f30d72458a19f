/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates latency and rate of a plan's links from packets. */
#include "network/packet/plan/plan_links.h"

#include "base/fail.h"
#include "base/options.h"

#include <longhaul/experimental/profile.h>

#include <math.h>
#include <stdlib.h>

/* Sets alpha and beta of a link from the mean times of a whole message and of
 * half a message, which all replicas send at once: on the whole link a byte
 * takes beta. Losses delay few messages, so that the difference of two samples
 * may be too small: no byte is faster than the line. */
static void set_estimate(const lhi_plan_link *link, double whole_ns,
                         double half_ns, lh_profile_link *out)
{
    const lh_link_load *load = &link->link.load;
    double bytes = load->message_bytes * load->senders;
    double line = load->oversubscription * 1e9 / load->line_bytes_per_s;
    double beta = fmax(line, (whole_ns - half_ns) / (bytes / 2));
    *out =
        (lh_profile_link){.path = LH_PATH_WAN,
                          .from = link->from,
                          .to = link->to,
                          .alpha_ns = llround(fmax(0, whole_ns - beta * bytes)),
                          .beta_ns_per_byte = beta};
}

/* Simulates whole and half messages of all links and stores the estimates. */
static lh_status estimate(const lhi_plan_links *links,
                          const lh_packet_plan_run *run, lhi_arena *mem,
                          lh_profile_link *out, lh_error *err)
{
    const lh_packet_run how = {.size = sizeof how,
                               .seed = run->seed,
                               .n_seeds = run->n_seeds,
                               .threads = run->threads,
                               .progress = run->progress,
                               .context = run->context};
    lh_packet_link *both = LHI_NEW(mem, lh_packet_link, 2 * (size_t)links->n);
    lh_packet_result *results =
        LHI_NEW(mem, lh_packet_result, 2 * (size_t)links->n);
    if (!both || !results)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < 2 * links->n; i++) {
        both[i] = links->links[i / 2].link;
        both[i].messages = run->sample ? run->sample : LH_PACKET_SAMPLE;
        if (i % 2)
            both[i].load.message_bytes = ceil(both[i].load.message_bytes / 2);
    }
    LHI_TRY(lh_packets_simulate_links(both, 2 * links->n, &how, results, err));
    for (uint32_t i = 0; i < links->n; i++)
        set_estimate(&links->links[i], results[2 * i].mean_ns,
                     results[2 * i + 1].mean_ns, &out[i]);
    return LH_OK;
}

lh_status lh_packets_estimate_links(const lh_plan *plan,
                                    const lh_packet_plan_run *run,
                                    lh_profile_link **out, uint32_t *n,
                                    lh_error *err)
{
    lh_packet_plan_run mine;
    lhi_plan_links links;
    LHI_TRY(LHI_OPTIONS_COPY(lh_packet_plan_run, &mine, run, err));
    if (mine.sample == LH_PACKET_ALL)
        return lhi_fail(err, LH_EINVAL, "sample: estimates need a number");
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_profile_link *all = NULL;
    lh_status status = lhi_plan_links_find(plan, mem, &links, err);
    if (status == LH_OK && !(all = calloc(links.n, sizeof *all)))
        status = lhi_fail_nomem(err);
    if (status == LH_OK)
        status = estimate(&links, &mine, mem, all, err);
    lhi_arena_free(mem);
    if (status != LH_OK) {
        free(all);
        return status;
    }
    *out = all;
    *n = links.n;
    return LH_OK;
}
