/* SPDX-License-Identifier: Apache-2.0 */
/* Finds links by name. */
#include "resilience/event_timeline/timeline.h"

#include "schedule/pipeline/link_names.h"

#include <stdlib.h>

/* Sets hit[i] for every link i of the pipeline that `name` denotes by the rules
 * of events files, "0-1" or a link's name; leaves other flags unchanged.
 * LH_EINPUT: the pipeline has no such link. */
lh_status lh_event_match_links(const lh_pipeline *pipeline, const char *name,
                               bool *hit, lh_error *err)
{
    uint32_t n = lh_pipeline_n_links(pipeline);
    lh_link *links = calloc(n + (size_t)2, sizeof *links);
    bool *marks = calloc(n + (size_t)2, sizeof *marks);
    lh_status status = links && marks ? LH_OK : lhi_fail_nomem(err);
    lhi_link_list list = {pipeline, links, n};
    for (uint32_t i = 0; status == LH_OK && i < n; i++)
        links[i] = *lh_pipeline_link(pipeline, i);
    if (status == LH_OK)
        status = lhi_find_links_by_name(&list, name, marks, err);
    if (status == LH_OK && list.n_links > n)
        status = lhi_fail(err, LH_EINPUT,
                          "the pipeline has no link '%.60s': messages there "
                          "take no time; add a link to it",
                          name);
    for (uint32_t i = 0; status == LH_OK && i < n; i++)
        hit[i] = hit[i] || marks[i];
    free(marks);
    free(links);
    return status;
}
