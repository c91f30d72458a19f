/* SPDX-License-Identifier: Apache-2.0 */
/* Placement calls that must leave their outputs unchanged. */
#ifndef FAILING_PLACEMENT_CALLS_H
#define FAILING_PLACEMENT_CALLS_H

#include "failing_call_inputs.h"
#include "resilience/placement/layers_search.h"

static lh_status makes_places(bool bad)
{
    POISONED(lh_host_placement *, out);
    POISONED(lh_pipeline *, at);
    const lh_host_placement_options o = {.size = sizeof o,
                                         .n_replicas = bad ? 1000 : 2};
    lh_status status =
        CALL(lh_host_placement_make(pipeline, &o, &out, &err), out);
    if (status != LH_OK)
        return status;
    status = CALL(lh_host_placement_pipeline(out, NULL, NULL, &at, &err), at);
    if (status == LH_OK)
        lh_pipeline_free(at);
    lh_host_placement_free(out);
    return status;
}

static lh_status moves_hosts(bool bad)
{
    POISONED(lh_host_exchange *, out);
    lh_host_placement *places = NULL;
    const double slower[] = {1, bad ? 0 : 2};
    const lh_host_slowdowns now = {.size = sizeof now, .pass_factors = slower};
    lh_status status = lh_host_placement_make(pipeline, NULL, &places, &err);
    if (status == LH_OK)
        status = CALL(lh_host_placement_find_exchange(places, &now, schedule,
                                                      NULL, &out, &err),
                      out);
    if (status == LH_OK)
        lh_host_exchange_free(out);
    lh_host_placement_free(places);
    return status;
}

static lh_status makes_layers(bool bad)
{
    const uint32_t numbers[] = {2, bad ? 0 : 3};
    POISONED(lh_layers *, out);
    POISONED(lh_pipeline *, at);
    POISONED(lh_layer_migration *, move);
    lh_status status = CALL(lh_layers_make(pipeline, numbers, &out, &err), out);
    if (status != LH_OK)
        return status;
    status = CALL(lh_layers_pipeline(out, pipeline, numbers, &at, &err), at);
    if (status == LH_OK) {
        lh_pipeline_free(at);
        status = CALL(lhi_layers_find_partition(out, pipeline, schedule, NULL,
                                                &move, &err),
                      move);
    }
    if (status == LH_OK)
        lhi_layer_migration_free(move);
    lh_layers_free(out);
    return status;
}

/* A device is slow in the middle; layers migrate. */
static lh_status plays_sharing(bool bad)
{
    const uint32_t numbers[] = {8, 8};
    lh_event e;
    lh_events events = slow_device(bad, &e);
    lh_layers *layers = NULL;
    lh_event_timeline *course = NULL;
    POISONED(lh_emulation *, out);
    e.first_step = 2;
    e.end_step = 12;
    lh_adapt_emulate_options sharing = {.size = sizeof sharing};
    lh_status status = lh_layers_make(pipeline, numbers, &layers, &err);
    sharing.layers = layers;
    if (status == LH_OK)
        status = lh_event_timeline_make(pipeline, &events, NULL, &course, &err);
    if (status == LH_OK)
        status = CALL(
            lh_adapt_emulate(course, schedule, &sharing, 16, &out, &err), out);
    if (status == LH_OK)
        lh_emulation_free(out);
    lh_event_timeline_free(course);
    lh_layers_free(layers);
    return status;
}

/* The link between two hosts is slow in the middle; ranks are reassigned. */
static lh_status plays_moving(bool bad)
{
    static const char *const link = "h0-h1";
    const lh_event e = {.first_step = 2,
                        .end_step = 20,
                        .n_links = 1,
                        .links = &link,
                        .latency_ns = bad ? -1 : 100000000,
                        .latency_factor = 1,
                        .transfer_factor = 1,
                        .slowdown = 1,
                        .device = LH_NONE,
                        .rank = LH_NONE};
    const lh_events events = {"events", 1, &e};
    const lh_host_placement_options two = {.size = sizeof two, .n_replicas = 2};
    lh_host_placement *places = NULL;
    lh_event_timeline *course = NULL;
    POISONED(lh_emulation *, out);
    lh_event_timeline_options o = {.size = sizeof o};
    const lh_adapt_emulate_options moving = {.size = sizeof moving,
                                             .exchange = true};
    lh_status status = lh_host_placement_make(pipeline, &two, &places, &err);
    o.placement = places;
    if (status == LH_OK)
        status = lh_event_timeline_make(pipeline, &events, &o, &course, &err);
    if (status == LH_OK)
        status = CALL(
            lh_adapt_emulate(course, schedule, &moving, 16, &out, &err), out);
    if (status == LH_OK)
        lh_emulation_free(out);
    lh_event_timeline_free(course);
    lh_host_placement_free(places);
    return status;
}

#endif
