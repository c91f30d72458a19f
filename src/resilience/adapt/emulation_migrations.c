/* SPDX-License-Identifier: Apache-2.0 */
/* Host exchanges and layer migrations in a simulated run. All measurements
 * refer to each chunk's initial layers, so that a device's slowdown does not
 * depend on its present layers. */
#include "resilience/adapt/emulation_internal.h"
#include "resilience/event_timeline/timeline.h"
#include "resilience/placement/layers_search.h"

#include <string.h>

/* Appends a version that keeps schedule and data path and changes the
 * assignment: `hosts` per place and layers per chunk (`numbers`). It starts to
 * run later. `came`: whether a host exchange or a layer migration made it. */
static lh_status add_version(lhi_emulation_run *p, const uint32_t *hosts,
                             const uint32_t *numbers, lhi_version_origin came,
                             lh_error *err)
{
    const lhi_emulation_version *now = &p->out->versions[p->running];
    LHI_TRY(lhi_emulation_add_assignment(p, hosts, numbers, err));
    LHI_TRY(lhi_emulation_add_version(p, now->name, now->schedule, now->path,
                                      now->links, p->n_assignments - 1, err));
    p->out->versions[p->out->n_versions - 1].origin = came;
    return LH_OK;
}

/* Copies `n` numbers (hosts per place or layers per chunk) and the explanation
 * `text` into the result's memory, as *numbers and *why. */
static lh_status copy_assignment(lhi_emulation_run *p, const uint32_t *from,
                                 uint32_t n, const char *text,
                                 uint32_t **numbers, const char **why,
                                 lh_error *err)
{
    *why = lhi_arena_strdup(p->out->mem, text);
    *numbers = LHI_NEW(p->out->mem, uint32_t, n);
    if (!*why || !*numbers)
        return lhi_fail_nomem(err);
    memcpy(*numbers, from, n * sizeof **numbers);
    return LH_OK;
}

/* Adds the host exchange `x` to the result, effective from step `at`, and
 * appends the version (schedule, data path, hosts and layers) that then starts
 * to run. */
static lh_status add_exchange(lhi_emulation_run *p, const lh_host_exchange *x,
                              uint64_t at, lh_error *err)
{
    lh_emulation *o = p->out;
    const char *why;
    uint32_t *hosts;
    const lhi_emulation_assignment *spot =
        &p->assignments[o->versions[p->running].assignment];
    LHI_TRY(
        copy_assignment(p, x->hosts, x->n_hosts, x->why, &hosts, &why, err));
    LHI_TRY(
        add_version(p, x->hosts, spot->layer_counts, LHI_ORIGIN_EXCHANGE, err));
    o->exchanges[o->n_exchanges++] =
        (lh_emulated_exchange){.step = at,
                               .n_hosts = x->n_hosts,
                               .hosts = hosts,
                               .n_moves = x->n_moves,
                               .before_ns = x->current_ns,
                               .predicted_ns = x->predicted_ns,
                               .move_ns = x->move_ns,
                               .why = why};
    p->pending_step = at;
    return LH_OK;
}

/* Adds the layer migration `m` to the result, effective from step `at`, and
 * appends the version (schedule, data path, hosts and layers) that then starts
 * to run. */
static lh_status add_layers(lhi_emulation_run *p, const lh_layer_migration *m,
                            uint64_t at, lh_error *err)
{
    lh_emulation *o = p->out;
    const char *why;
    uint32_t *numbers;
    const lhi_emulation_assignment *spot =
        &p->assignments[o->versions[p->running].assignment];
    LHI_TRY(copy_assignment(p, m->layer_counts, m->n_chunks, m->why, &numbers,
                            &why, err));
    LHI_TRY(add_version(p, spot->hosts, numbers, LHI_ORIGIN_LAYERS, err));
    o->layers[o->n_layers++] =
        (lh_emulated_migration){.step = at,
                                .n_chunks = m->n_chunks,
                                .numbers = numbers,
                                .n_moves = m->n_moves,
                                .before_ns = m->current_ns,
                                .predicted_ns = m->predicted_ns,
                                .move_ns = m->move_ns,
                                .why = why};
    p->pending_step = at;
    return LH_OK;
}

lh_status lhi_emulation_measure_hosts(lhi_emulation_run *p, uint64_t step,
                                      lh_error *err)
{
    lh_host_slowdowns actual;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_event_timeline_host_slowdowns(
        p->timeline, lh_event_timeline_state(p->timeline, step), mem, &actual,
        err);
    if (status == LH_OK)
        status = lhi_slow_hosts_emulate(p->slow, &actual, p->pass_ns, p->hop_ns,
                                        err);
    if (status == LH_OK)
        lhi_slow_hosts_add(p->slow, p->pass_ns, p->hop_ns);
    lhi_arena_free(mem);
    return status;
}

lh_status lhi_emulation_find_migration(lhi_emulation_run *p, uint64_t step,
                                       const lh_pipeline *estimated,
                                       const lh_decision *d, bool *moves,
                                       lh_error *err)
{
    const lhi_emulation_version *v = &p->out->versions[p->running];
    const lh_sim_options sim = lhi_emulation_sim_options(p, v);
    const lhi_migration_state now = {
        .slow = p->slow,
        .placement = p->timeline->placement,
        .layers = p->layers,
        .layer_ns = p->layer_ns,
        .hosts = p->assignments[v->assignment].hosts,
        .layer_counts = p->assignments[v->assignment].layer_counts,
        .assignment = v->assignment,
        .monitor = p->monitor,
        .n_events = p->n_events,
        .estimated = estimated,
        .schedule = v->schedule,
        .sim = &sim,
        .decision = d};
    lhi_migration found;
    LHI_TRY(lhi_migration_find(&p->migrations, &now, &found, err));
    uint64_t at = step + 1 + LH_ADAPT_DECISION_LATENCY;
    lh_status status = LH_OK;
    if (found.exchange)
        status = add_exchange(p, found.exchange, at, err);
    else if (found.layers)
        status = add_layers(p, found.layers, at, err);
    *moves = found.exchange || found.layers;
    lh_host_exchange_free(found.exchange);
    lhi_layer_migration_free(found.layers);
    return status;
}
