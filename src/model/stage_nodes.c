/* SPDX-License-Identifier: Apache-2.0 */
/* Positions on nodes repeat, so a group of any size is counted over two
 * periods. */
#include "model/stage_nodes.h"

#include "base/integer_math.h"

/* Returns run `i` of a stage's equally spaced replicas; a stage without a list
 * of runs has one. */
static const lh_cost_run *get_run(const lhi_stage_nodes *s, uint32_t i)
{
    return s->runs ? &s->runs[i] : &s->aligned;
}

/* Returns the greatest common divisor. */
static uint64_t gcd(uint64_t a, uint64_t b)
{
    return (uint64_t)lhi_gcd((int64_t)a, (int64_t)b);
}

/* Returns the smaller value. */
static uint64_t min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void lhi_stage_nodes_find(const lh_job *job, const lh_layout *layout,
                          const lh_cost_layer_range *slice, uint32_t datacenter,
                          uint32_t replicas, lhi_stage_nodes *out)
{
    uint64_t replica = (uint64_t)layout->tensor * layout->context;
    bool data = lh_layout_rank_order(layout) == LH_OUTERMOST_DATA;

    *out = (lhi_stage_nodes){
        .per_node = job->datacenters[datacenter].gpus_per_node,
        .replica = replica,
        .n_runs = 1,
        .aligned = {datacenter, 0, replicas,
                    (uint32_t)(data ? replica * layout->pipeline : replica)}};
    for (uint32_t i = 0; i < slice->n_runs; i++) {
        if (slice->runs[i].datacenter != datacenter)
            continue;
        out->n_runs = out->runs ? out->n_runs + 1 : 1;
        out->runs = out->runs ? out->runs : &slice->runs[i];
    }
}

/* Returns the GPU, numbered in the datacenter, of the stage's rank number
 * `rank`, counted from the first rank of `run` (equally spaced replicas). */
static uint64_t find_gpu(const lhi_stage_nodes *s, const lh_cost_run *run,
                         uint64_t rank)
{
    return run->first_gpu + rank / s->replica * run->stride + rank % s->replica;
}

uint64_t lhi_stage_nodes_count_ranks(const lhi_stage_nodes *s, uint32_t run)
{
    return get_run(s, run)->replicas * s->replica;
}

uint64_t lhi_stage_nodes_find_node(const lhi_stage_nodes *s, uint64_t rank)
{
    uint32_t i = 0;

    while (i + 1 < s->n_runs && rank >= lhi_stage_nodes_count_ranks(s, i))
        rank -= lhi_stage_nodes_count_ranks(s, i++);
    return find_gpu(s, get_run(s, i), rank) / s->per_node;
}

/* ---- one group ---- */

/* State while visiting a group's members in the order of their GPUs. */
typedef struct node_walk {
    uint64_t node, here; /* the current node and its members so far */
    lhi_node_count sum;  /* of the nodes before */
} node_walk;

/* Ends the current node of the walk over a group's members; updates the fewest
 * members on any node. */
static void leave_node(node_walk *w)
{
    if (w->here)
        w->sum.fewest = min(w->sum.fewest, w->here);
    w->here = 0;
}

/* Counts a group member on `node`. Members must come in node order. */
static void visit_node(node_walk *w, uint64_t node)
{
    if (!w->here || node != w->node) {
        leave_node(w);
        w->sum.nodes++;
        w->node = node;
    }
    w->here++;
}

uint64_t lhi_stage_nodes_find_period(const lhi_stage_nodes *s, uint32_t run)
{
    return s->replica *
           (s->per_node / gcd(get_run(s, run)->stride, s->per_node));
}

/* Visits the n members rank, rank + step, ... of run `i` in a walk. Beyond the
 * first period, all whole periods but one are skipped: they have the same
 * nodes. */
static void visit_run(const lhi_stage_nodes *s, uint32_t i, uint64_t rank,
                      uint64_t step, uint64_t n, node_walk *w)
{
    const lh_cost_run *run = get_run(s, i);
    uint64_t ranks = lhi_stage_nodes_find_period(s, i);
    uint64_t period = ranks / gcd(step, ranks), nodes = 0;

    for (uint64_t k = 0; k < n; k++) {
        if (k == period + 1 && n > 2 * period + 1) {
            uint64_t skipped = (n - 2 * period - 1) / period;
            uint64_t gpus = period * step / s->replica * run->stride;

            w->sum.nodes += skipped * (w->sum.nodes - nodes);
            w->node += skipped * (gpus / s->per_node);
            k += skipped * period;
        }
        visit_node(w, find_gpu(s, run, rank + k * step) / s->per_node);
        if (k == 0)
            nodes = w->sum.nodes;
    }
}

/* Counts the nodes (of per_node GPUs) that `count` GPUs occupy, `step` apart
 * from GPU `gpu` on, and the fewest of these GPUs on one node. `step` divides a
 * node's GPUs or is a multiple of them. */
static lhi_node_count count_regular(uint64_t gpu, uint64_t step, uint64_t count,
                                    uint64_t per_node)
{
    uint64_t last = gpu + (count - 1) * step;
    uint64_t others = last / per_node - gpu / per_node;
    uint64_t first_node = (per_node - gpu % per_node + step - 1) / step;
    uint64_t last_node = last % per_node / step + 1;

    if (step >= per_node)
        return (lhi_node_count){count, 1};
    if (others == 0)
        return (lhi_node_count){1, count};
    return (lhi_node_count){others + 1, min(first_node, last_node)};
}

lhi_node_count lhi_stage_nodes_count(const lhi_stage_nodes *s, uint64_t first,
                                     uint64_t step, uint64_t count)
{
    if (s->n_runs == 1 && get_run(s, 0)->stride == s->replica && count &&
        (s->per_node % step == 0 || step % s->per_node == 0))
        return count_regular(get_run(s, 0)->first_gpu + first, step, count,
                             s->per_node);

    node_walk w = {.sum = {0, UINT64_MAX}};
    uint64_t from = 0;

    for (uint32_t i = 0; i < s->n_runs && count; i++) {
        uint64_t to = from + lhi_stage_nodes_count_ranks(s, i);

        if (first < to) {
            uint64_t n = min(count, (to - first + step - 1) / step);

            visit_run(s, i, first - from, step, n, &w);
            first += n * step;
            count -= n;
        }
        from = to;
    }
    leave_node(&w);
    return w.sum;
}

void lhi_node_count_add(lhi_node_count *worst, lhi_node_count other)
{
    if (!worst->nodes || other.fewest < worst->fewest)
        worst->fewest = other.fewest;
    if (other.nodes > worst->nodes)
        worst->nodes = other.nodes;
}

/* ---- all groups of a kind ---- */

bool lhi_stage_nodes_are_aligned(const lhi_stage_nodes *s, uint64_t size)
{
    bool aligned = s->per_node % size == 0 && s->replica % size == 0;

    for (uint32_t i = 0; i < s->n_runs && aligned; i++)
        aligned = get_run(s, i)->first_gpu % size == 0 &&
                  get_run(s, i)->stride % size == 0;
    return aligned;
}

/* Returns the number of replicas of run `i` after which their positions on
 * nodes repeat, at most all replicas of the run. */
static uint64_t count_positions(const lhi_stage_nodes *s, uint32_t i)
{
    return min(get_run(s, i)->replicas,
               lhi_stage_nodes_find_period(s, i) / s->replica);
}

/* Counts the nodes (of per_node GPUs) of `size` consecutive GPUs from `gpu` on,
 * and the fewest of these GPUs on one node. */
static lhi_node_count count_consecutive(uint64_t gpu, uint64_t size,
                                        uint64_t per_node)
{
    uint64_t last = gpu + size - 1, nodes = last / per_node - gpu / per_node;

    if (nodes == 0)
        return (lhi_node_count){1, size};
    return (lhi_node_count){
        nodes + 1, min(per_node - gpu % per_node, last % per_node + 1)};
}

lhi_node_count lhi_stage_nodes_count_tensor(const lhi_stage_nodes *s,
                                            uint32_t tensor)
{
    lhi_node_count worst = {0, 0};
    uint64_t groups =
        min(s->replica / tensor, s->per_node / gcd(tensor, s->per_node));

    if (lhi_stage_nodes_are_aligned(s, tensor))
        return (lhi_node_count){1, tensor};
    for (uint32_t i = 0; i < s->n_runs; i++)
        for (uint64_t r = 0; r < count_positions(s, i); r++)
            for (uint64_t k = 0; k < groups; k++)
                lhi_node_count_add(
                    &worst,
                    count_consecutive(
                        find_gpu(s, get_run(s, i), r * s->replica + k * tensor),
                        tensor, s->per_node));
    return worst;
}

/* Returns how many ranks of each tensor-parallel group must be examined to find
 * all positions of their peers on nodes. 1 if all groups are aligned with
 * nodes, otherwise `tensor`. */
static uint32_t count_slots(const lhi_stage_nodes *s, uint32_t tensor)
{
    return lhi_stage_nodes_are_aligned(s, tensor) ? 1 : tensor;
}

lhi_node_count lhi_stage_nodes_count_context(const lhi_stage_nodes *s,
                                             uint32_t tensor)
{
    lhi_node_count worst = {0, 0};
    uint32_t slots = count_slots(s, tensor);
    uint64_t from = 0, context = s->replica / tensor;

    for (uint32_t i = 0; i < s->n_runs; i++) {
        const lh_cost_run *run = get_run(s, i);

        for (uint64_t r = 0; r < count_positions(s, i); r++) {
            uint64_t gpu = find_gpu(s, run, r * s->replica) % s->per_node;

            if (gpu + s->replica <= s->per_node)
                lhi_node_count_add(&worst, (lhi_node_count){1, context});
            for (uint32_t k = 0; gpu + s->replica > s->per_node && k < slots;
                 k++)
                lhi_node_count_add(
                    &worst, lhi_stage_nodes_count(s, from + r * s->replica + k,
                                                  tensor, context));
        }
        from += lhi_stage_nodes_count_ranks(s, i);
    }
    return worst;
}

lhi_node_count lhi_stage_nodes_count_data(const lhi_stage_nodes *s,
                                          uint32_t tensor)
{
    lhi_node_count worst = {0, 0};
    uint32_t slots = count_slots(s, tensor);
    uint64_t ranks = 0;

    for (uint32_t i = 0; i < s->n_runs; i++)
        ranks += lhi_stage_nodes_count_ranks(s, i);
    for (uint32_t k = 0; k < slots; k++)
        lhi_node_count_add(&worst,
                           lhi_stage_nodes_count(s, k, tensor, ranks / tensor));
    return worst;
}
