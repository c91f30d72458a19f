/* SPDX-License-Identifier: Apache-2.0 */
/* A run's versions, one after the other. */
#include "resilience/adapt/emulation_internal.h"

#include "schedule/pipeline/schedule_internal.h"

#include <stdlib.h>
#include <string.h>

/* Enlarges every array that has one entry per version (schedule, data path,
 * hosts and layers) by one entry. */
static lh_status grow_arrays(lhi_emulation_run *p, lh_error *err)
{
    lh_emulation *o = p->out;
    size_t n = (size_t)o->n_versions + 1;
    lhi_emulation_version *versions =
        realloc(o->versions, n * sizeof *versions);
    if (versions)
        o->versions = versions;
    lh_emulated_switch *switches = realloc(o->switches, n * sizeof *switches);
    if (switches)
        o->switches = switches;
    lh_emulated_exchange *exchanges =
        realloc(o->exchanges, n * sizeof *exchanges);
    if (exchanges)
        o->exchanges = exchanges;
    lh_emulated_migration *layers = realloc(o->layers, n * sizeof *layers);
    if (layers)
        o->layers = layers;
    lhi_emulated_iteration **known = realloc(p->cached, n * sizeof *known);
    if (known)
        p->cached = known;
    if (!versions || !switches || !exchanges || !layers || !known)
        return lhi_fail_nomem(err);
    known[n - 1] =
        calloc(lh_event_timeline_n_states(p->timeline), sizeof **known);
    if (!known[n - 1])
        return lhi_fail_nomem(err);
    p->n_cached = (uint32_t)n;
    return LH_OK;
}

lh_status lhi_emulation_add_version(lhi_emulation_run *p, const char *name,
                                    const lh_schedule *schedule,
                                    lh_data_path path, const bool *links,
                                    uint32_t spot, lh_error *err)
{
    lh_emulation *o = p->out;
    uint32_t n = lh_pipeline_n_links(p->assignments[0].pipelines[0]);
    lhi_emulation_version v = {.name = name, .path = path, .assignment = spot};
    LHI_TRY(grow_arrays(p, err));
    if (links) {
        v.links = LHI_NEW(o->mem, bool, n);
        if (!v.links)
            return lhi_fail_nomem(err);
        memcpy(v.links, links, n * sizeof *links);
    }
    LHI_TRY(lhi_schedule_copy(schedule, &v.schedule, err));
    o->versions[o->n_versions++] = v;
    return LH_OK;
}

lh_sim_options lhi_emulation_sim_options(const lhi_emulation_run *p,
                                         const lhi_emulation_version *v)
{
    lh_sim_options how = {.size = sizeof how};
    if (p->adapt_options.sim)
        how = *p->adapt_options.sim;
    if (v->path == LH_DATA_PATH_DELEGATED) {
        how.coupled_queue = 0;
        how.receives = LH_RECEIVES_EARLY;
        how.override_receives = true;
    }
    if (v->path != LH_DATA_PATH_DIRECT)
        how.delegated = v->links;
    return how;
}
