/* SPDX-License-Identifier: Apache-2.0 */
#include "report/comparison/compare_internal.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <math.h>
#include <stdlib.h>

int64_t lhi_compare_forward_ns(const lh_pipeline *pipeline)
{
    double sum = 0;
    uint32_t n = lh_pipeline_n_chunks(pipeline);
    uint32_t n_directions = n / lhi_count_direction_chunks(pipeline);
    for (uint32_t i = 0; i < n; i++)
        sum += (double)lh_pipeline_chunk(pipeline, i)->f_ns;
    return (int64_t)llround(
        sum / ((double)lh_pipeline_n_devices(pipeline) * n_directions));
}

int64_t lhi_compare_delay_ns(const lh_compare_delays *delays, uint32_t i,
                             int64_t forward_ns)
{
    if (!delays || i >= delays->n_values)
        return -1;
    return (int64_t)llround(delays->relative
                                ? delays->values[i] * (double)forward_ns
                                : delays->values[i]);
}

lh_status lhi_compare_build_delayed(const lh_pipeline *p, int64_t latency_ns,
                                    int64_t transfer_ns, lh_pipeline **out,
                                    lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(p, &desc, err));
    lh_link *links = malloc((desc.n_links + (size_t)1) * sizeof *links);
    if (!links)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < desc.n_links; i++) {
        links[i] = desc.links[i];
        if (!lhi_link_is_inter_site(p, &links[i]))
            continue;
        if (latency_ns >= 0)
            links[i].latency_ns = latency_ns;
        if (transfer_ns >= 0)
            links[i].transfer_ns = transfer_ns;
    }
    desc.links = links;
    lh_status status = lh_pipeline_make(&desc, out, err);
    free(links);
    return status;
}
