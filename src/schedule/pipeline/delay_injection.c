/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline copies with injected link delays. */
#include "schedule/pipeline/link_names.h"
#include "schedule/pipeline/pipeline_internal.h"

#include "base/fail.h"

#include <stdlib.h>
#include <string.h>

lh_status lh_pipeline_set_link_delay(const lh_pipeline *pipeline,
                                     const char *link, int64_t latency_ns,
                                     int64_t transfer_ns, lh_pipeline **out,
                                     lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(pipeline, &desc, err));
    /* A pair of devices may get a link in both directions. */
    lh_link *links = calloc(desc.n_links + (size_t)2, sizeof *links);
    bool *hit = calloc(desc.n_links + (size_t)2, sizeof *hit);
    lhi_link_list list = {pipeline, links, desc.n_links};
    lh_status status = links && hit ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK && desc.n_links > 0)
        memcpy(links, desc.links, desc.n_links * sizeof *links);
    if (status == LH_OK)
        status = lhi_find_links_by_name(&list, link, hit, err);
    for (uint32_t i = 0; status == LH_OK && i < list.n_links; i++) {
        if (hit[i] && latency_ns >= 0)
            links[i].latency_ns = latency_ns;
        if (hit[i] && transfer_ns >= 0)
            links[i].transfer_ns = transfer_ns;
    }
    desc.links = links;
    desc.n_links = list.n_links;
    if (status == LH_OK)
        status = lh_pipeline_make(&desc, out, err);
    free(hit);
    free(links);
    return status;
}
