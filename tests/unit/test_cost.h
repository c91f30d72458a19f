/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs for the cost model's tests. */
#ifndef TEST_COST_H
#define TEST_COST_H

#include "test.h"

#include <longhaul/experimental/cost.h>

/* Intra-node links: bytes per second, ns. */
#define FIXTURE_NODE_LINK 450e9
#define FIXTURE_NODE_LATENCY 3000

/* A job, layout and slice with their costs. */
typedef struct fixture {
    lh_datacenter sites[2];
    lh_wan wans[4];
    lh_job job;
    lh_layout layout;
    lh_cost_options options;
    lh_cost_layer_range slice;
    lh_cost cost;
    lh_error err;
} fixture;

/* One layer of a model on H100 nodes in two datacenters; every degree 1. */
static inline void fixture_init(fixture *f, const char *model)
{
    *f = (fixture){0};
    for (int i = 0; i < 2; i++) {
        lh_datacenter *dc = &f->sites[i];

        dc->name = i ? "east" : "west";
        dc->nodes = 128;
        dc->gpus_per_node = 8;
        dc->gpus = 1024;
        dc->gpu = *lh_gpu_preset("h100-sxm");
        dc->node_link.bytes_per_s = FIXTURE_NODE_LINK;
        dc->node_link.latency_ns = FIXTURE_NODE_LATENCY;
        dc->fabric.bytes_per_s = 50e9;
        dc->fabric.latency_ns = 8000;
    }
    f->wans[1] = f->wans[2] = (lh_wan){
        .bytes_per_s = 400e9, .latency_ns = 20000000, .oversubscription = 1};
    f->job = (lh_job){.name = "test",
                      .model = lh_model_preset(model),
                      .training = {.global_batch = 64, .sequence = 8192},
                      .n_datacenters = 2,
                      .datacenters = f->sites,
                      .wans = f->wans,
                      .n_gpus = 2048,
                      .n_nodes = 256};
    f->layout = (lh_layout){.tensor = 1,
                            .context = 1,
                            .expert = 1,
                            .pipeline = 1,
                            .data = 1,
                            .micro_batch = 1};
    f->options.size = sizeof f->options;
    f->slice.n_layers = 1;
}

/* Collective rate within a node, bytes per ns. */
static inline double fixture_node_rate(void)
{
    return lh_cost_defaults()->node_efficiency * FIXTURE_NODE_LINK / 1e9;
}

/* Computes the slice's costs into f->cost. */
static inline lh_status fixture_cost(fixture *f)
{
    return lh_cost_chunk(&f->job, &f->layout, &f->slice, &f->options, &f->cost,
                         &f->err);
}

#define COST(f) CHECK_OK(fixture_cost(f), (f)->err)

#endif
