/* SPDX-License-Identifier: Apache-2.0 */
/* Bound inputs: the costs of a set of datacenters from those of each. */
#include "planner/search/bound_inputs_internal.h"

#include <string.h>

/* Returns the larger of `a` and `b` if `larger`, else the smaller one. */
static int64_t pick_extreme(int64_t a, int64_t b, bool larger)
{
    return larger ? lhi_max_int64(a, b) : lhi_min_int64(a, b);
}

/* Replaces each of the F, D and W times of `a` by that of `b` if it is larger
 * (if `larger`) or smaller (otherwise). */
static void pick_pass(lhi_bound_pass *a, const lhi_bound_pass *b, bool larger)
{
    a->f = pick_extreme(a->f, b->f, larger);
    a->d = pick_extreme(a->d, b->d, larger);
    a->w = pick_extreme(a->w, b->w, larger);
}

/* Returns the whole model's F and D time for one microbatch on site `s` (one or
 * more datacenters), in ns. */
static int64_t sum_fd(const lhi_bound_inputs *f, const lhi_bound_site *s)
{
    int64_t sum = 0;
    for (int i = 0; i < LHI_BOUND_PARTS; i++)
        sum += f->n_of_part[i] * (s->parts[i].f + s->parts[i].d);
    return sum;
}

/* Sums the whole model's activation, weight-input and model-state bytes on site
 * `s` (one or more datacenters). */
static lhi_bound_memory_part sum_memory(const lhi_bound_inputs *f,
                                        const lhi_bound_site *s)
{
    lhi_bound_memory_part sum = {0};
    for (int i = 0; i < LHI_BOUND_PARTS; i++) {
        sum.activation += f->n_of_part[i] * s->part_memory[i].activation;
        sum.weight_input += f->n_of_part[i] * s->part_memory[i].weight_input;
        sum.state += f->n_of_part[i] * s->part_memory[i].state;
    }
    return sum;
}

/* Merges site `b`'s memory (one or more datacenters) into `a`. With `worst`,
 * `a` gets the larger model memory in each respect; otherwise the smaller of
 * each part. Transient memory is the smaller in both cases. */
static void merge_memory(const lhi_bound_inputs *f, lhi_bound_site *a,
                         const lhi_bound_site *b, bool worst)
{
    lhi_bound_memory_part x = sum_memory(f, a), y = sum_memory(f, b);
    for (int i = 0; i < LHI_BOUND_PARTS; i++) {
        lhi_bound_memory_part *to = &a->part_memory[i];
        const lhi_bound_memory_part *from = &b->part_memory[i];
        if (worst ? y.activation > x.activation
                  : from->activation < to->activation)
            to->activation = from->activation;
        if (worst ? y.weight_input > x.weight_input
                  : from->weight_input < to->weight_input)
            to->weight_input = from->weight_input;
        if (worst ? y.state > x.state : from->state < to->state)
            to->state = from->state;
        to->transient = lhi_min_int64(to->transient, from->transient);
    }
}

/* Merges the layer kinds' times at site `b` (one or more datacenters) into `a`.
 * With `worst`, all come from the site with the larger sum, because they are
 * added up; embedding and head always have their least times. */
static void merge_parts(const lhi_bound_inputs *f, lhi_bound_site *a,
                        const lhi_bound_site *b, bool worst)
{
    if (worst && sum_fd(f, b) > sum_fd(f, a))
        memcpy(a->parts, b->parts, sizeof a->parts);
    for (int i = 0; i < LHI_BOUND_PARTS && !worst; i++)
        pick_pass(&a->parts[i], &b->parts[i], false);
    pick_pass(&a->embedding, &b->embedding, false);
    pick_pass(&a->head, &b->head, false);
    a->embedding_memory =
        lhi_min_int64(a->embedding_memory, b->embedding_memory);
    a->head_memory = lhi_min_int64(a->head_memory, b->head_memory);
}

void lhi_bound_inputs_merge_sites(const lhi_bound_inputs *f, lhi_bound_site *a,
                                  const lhi_bound_site *b, bool worst)
{
    int64_t *const to[] = {&a->layer_fd,
                           &a->layer_all,
                           &a->f,
                           &a->d,
                           &a->w,
                           &a->gather,
                           &a->reduce,
                           &a->optimizer,
                           &a->layer_memory,
                           &a->late_reduce,
                           &a->model_memory,
                           &a->first_gather,
                           &a->first_reduce,
                           &a->latency};
    const int64_t from[] = {b->layer_fd,
                            b->layer_all,
                            b->f,
                            b->d,
                            b->w,
                            b->gather,
                            b->reduce,
                            b->optimizer,
                            b->layer_memory,
                            b->late_reduce,
                            b->model_memory,
                            b->first_gather,
                            b->first_reduce,
                            b->latency};
    for (size_t i = 0; i < sizeof to / sizeof to[0]; i++)
        *to[i] = pick_extreme(*to[i], from[i], worst);
    pick_pass(&a->layer, &b->layer, worst);
    merge_parts(f, a, b, worst);
    merge_memory(f, a, b, worst);
    a->capacity = pick_extreme(a->capacity, b->capacity, !worst);
    if (worst ? b->slowness > a->slowness : b->slowness < a->slowness)
        a->slowness = b->slowness;
}
