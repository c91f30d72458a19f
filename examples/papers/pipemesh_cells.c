/* SPDX-License-Identifier: Apache-2.0 */
#include "pipemesh_cells.h"
#include "pipemesh_more.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/status.h>
#include <math.h>
#include <stdbool.h>

uint32_t pipemesh_microbatches(const pipemesh_model *m)
{
    return m->batch / m->D;
}

double pipemesh_params(const pipemesh_model *m)
{
    return lh_cost_published_params(m->family, HIDDEN) * m->layers / m->P /
           TENSOR;
}

/* Returns the bytes of one sbh on a device. */
double pipemesh_sbh(const pipemesh_model *m)
{
    return m->sequence * HIDDEN / TENSOR;
}

double pipemesh_whole_layer(const pipemesh_model *m)
{
    static const double totals[] = {34, 203.0 / 6, 26.5};
    return totals[m->family];
}

double pipemesh_layer_flops(const pipemesh_model *m)
{
    lh_published_op ops[LH_COST_MAX_OPS];
    double sum = 0;
    uint32_t n =
        lh_cost_published_ops(m->family, m->sequence, 1, HIDDEN, TENSOR, ops);
    for (uint32_t i = 0; i < n; i++)
        sum += ops[i].flops;
    return sum;
}

/* Returns the duration of a whole chunk's gather or scatter: 2 bytes per
 * parameter over the device's eighth of its node's link. */
double pipemesh_chunk_comm_ns(const pipemesh_model *m, uint32_t M)
{
    double rate = LINK_EFFICIENCY * m->gbps / 8 / 8; /* bytes per ns */
    return 2 * pipemesh_params(m) / M * (m->D - 1) / m->D / rate;
}

/* Returns the duration of an activation transfer between stages: every device
 * sends its part. */
double pipemesh_hop_ns(const pipemesh_model *m)
{
    return 2 * pipemesh_sbh(m) / (LINK_EFFICIENCY * m->gbps / 8 / 8);
}

/* Builds a case from a row's published durations. */
lh_elastic_case pipemesh_case_of(const pipemesh_model *m,
                                 const pipemesh_published *row)
{
    double passes = (double)row->M * pipemesh_microbatches(m);
    return (lh_elastic_case){.stages = m->P,
                             .replicas = m->D,
                             .chunks = row->M,
                             .microbatches = pipemesh_microbatches(m),
                             .f_ns = llround(row->fwd * MS / passes),
                             .b_ns = llround(row->bwd * MS / passes),
                             .dp_ns =
                                 llround(pipemesh_chunk_comm_ns(m, row->M)),
                             .params = llround(pipemesh_params(m))};
}

lh_elastic_plan *pipemesh_plan_for(const lh_elastic_case *g, uint32_t q)
{
    lh_elastic_plan *plan;
    lh_error err;
    if (lh_elastic_plan_queue(g, q, &plan, &err) != LH_OK)
        pipemesh_die(&err);
    return plan;
}

double pipemesh_iteration_ms(const pipemesh_published *row)
{
    return row->fwd + row->bwd + row->bubble + row->dp + row->pp;
}

double pipemesh_bubble_ms(const pipemesh_model *m,
                          const pipemesh_published *row)
{
    return (m->P - 1) * (row->fwd + row->bwd) /
           ((double)row->M * pipemesh_microbatches(m));
}

pipemesh_columns pipemesh_derive(const pipemesh_model *m, uint32_t system)
{
    const pipemesh_published *row = &m->rows[system];
    lh_elastic_case g = pipemesh_case_of(m, row);
    pipemesh_columns d = {0};
    double layers = (double)m->layers / m->P / row->M;
    bool elastic = system == 0, breadth = system == 3;
    uint32_t q = elastic ? m->q : breadth ? g.microbatches : m->P;
    g.as_published = elastic;
    lh_elastic_plan *plan = pipemesh_plan_for(&g, q);
    /* Depth-first overlaps with the first and last P microbatches. */
    lh_elastic_plan depth = *plan;
    uint32_t P[1] = {m->P};
    if (!elastic && !breadth) {
        depth.enqueue = depth.dequeue = P;
        depth.n_enqueue = depth.n_dequeue = 1;
        depth.params_g = depth.params_p = 0;
    }
    d.dp_ms = (double)lh_elastic_exposed_communication(
                  &g, elastic || breadth ? plan : &depth, 0)
                  .optimizer_ns /
              MS;
    double passes = elastic ? (double)lh_elastic_resident_passes(&g, plan, 1)
                    : breadth
                        ? (double)row->M * g.microbatches
                        : (double)lh_elastic_depth_first_resident_passes(&g);
    double kept = elastic ? m->stored : pipemesh_whole_layer(m);
    d.a = passes * layers * kept * pipemesh_sbh(m) / GIB;
    lh_elastic_plan shares = depth;
    if (elastic)
        shares = *plan;
    if (elastic || breadth)
        shares.params_g = g.params;
    shares.params_p = elastic ? plan->params_p : 0;
    lh_elastic_memory mem = lh_elastic_peak_memory(&g, &shares, 0);
    d.g = (double)mem.gradients / GIB;
    /* Breadth-first has one buffer in addition to the chunk in use. */
    d.p = breadth ? d.g : (double)mem.parameters / GIB;
    double time = pipemesh_iteration_ms(row);
    d.tflops = 3 * pipemesh_layer_flops(m) * m->layers * m->batch / m->devices /
               (time * MS) * 1e-3;
    lh_elastic_plan_free(plan);
    return d;
}
