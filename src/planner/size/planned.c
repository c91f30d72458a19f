/* SPDX-License-Identifier: Apache-2.0 */
/* Node counts of a size, the planned sizes, and the speeds with which their
 * plans continue while a node is missing. */
#include "planner/size/size_internal.h"

#include <math.h>
#include <string.h>

const lhi_planned_size *lhi_size_find_planned(const lhi_size_search *s,
                                              const uint32_t *nodes)
{
    const size_t bytes = s->job->n_datacenters * sizeof *nodes;
    for (uint32_t i = 0; i < s->n_planned; i++)
        if (memcmp(s->planned[i]->nodes, nodes, bytes) == 0)
            return s->planned[i];
    return NULL;
}

uint32_t lhi_size_count_nodes(const lhi_size_search *s, const uint32_t *nodes)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        n += nodes[i];
    return n;
}

bool lhi_size_has_nodes(const lhi_size_search *s, const uint32_t *nodes)
{
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        if (nodes[i])
            return true;
    return false;
}

void lhi_size_fill_nodes(const lhi_size_search *s, bool most, uint32_t *nodes)
{
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        nodes[i] = most ? s->ranges[i].most : s->ranges[i].least;
}

/* Returns the shortest iteration, in ns, of all plans that need at most
 * nodes[i] nodes in each datacenter i; 0: there is none. */
static int64_t find_shortest(const lhi_size_search *s, const uint32_t *nodes)
{
    int64_t shortest = 0;
    for (uint32_t i = 0; i < s->n_planned; i++)
        for (uint32_t k = 0; k < s->planned[i]->n_plans; k++) {
            const lhi_sized_plan *plan = &s->planned[i]->plans[k];
            bool fits = true;
            for (uint32_t j = 0; j < s->job->n_datacenters; j++)
                fits = fits && plan->nodes[j] <= nodes[j];
            if (fits && (!shortest || plan->iteration_ns < shortest))
                shortest = plan->iteration_ns;
        }
    return shortest;
}

double lhi_size_find_node_loss_speeds(const lhi_size_search *s,
                                      const uint32_t *nodes,
                                      int64_t iteration_ns, double *speeds)
{
    const uint32_t all = lhi_size_count_nodes(s, nodes);
    double longest_s = -1;
    for (uint32_t i = 0; i < s->job->n_datacenters; i++) {
        uint32_t rest[LH_MAX_DATACENTERS];
        speeds[i] = 1;
        if (!nodes[i])
            continue;
        speeds[i] = (double)(all - 1) / all;
        memcpy(rest, nodes, sizeof rest);
        rest[i]--;
        const lhi_planned_size *planned = lhi_size_find_planned(s, rest);
        if (all > 1 && (!planned || planned->depth == LHI_SIZE_QUICK))
            continue;
        const int64_t ns = all > 1 ? find_shortest(s, rest) : 0;
        speeds[i] = ns ? fmin(1, (double)iteration_ns / (double)ns) : 0;
        longest_s = fmax(longest_s, ns ? (double)ns / 1e9 : INFINITY);
    }
    return longest_s;
}
