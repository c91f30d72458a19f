/* SPDX-License-Identifier: Apache-2.0 */
/* Distributes replicas and stages once each pipeline's datacenters are known.
 */
#include "planner/layout/site_search_internal.h"

/* State while filling a draft. */
typedef struct draft_filler {
    const lhi_placement_case *c;
    const lhi_placement_draft *open;
    lhi_placement_draft *out;
} draft_filler;

/* Returns how many stages of a pipeline part fit into its datacenter with `r`
 * replicas each: all stages that the part requires, or as many as possible if
 * it is open; 0: not enough fit. */
static uint32_t count_fitting_stages(const draft_filler *f, uint32_t part,
                                     uint32_t r)
{
    uint64_t room = f->c->capacity[f->open->site[part]] / r;
    uint32_t given = f->open->stages[part], P = f->c->layout->pipeline;
    if (given)
        return room >= given ? given : 0;
    return (uint32_t)(room < P ? room : P);
}

/* Checks whether the parts of a replica group have capacity for all pipeline
 * stages with `r` replicas, and each part for at least one. */
static bool has_capacity(const draft_filler *f, uint32_t group, uint32_t r)
{
    uint64_t all = 0, least = 0;
    for (uint32_t i = f->open->from[group]; i < f->open->from[group + 1]; i++) {
        uint32_t room = count_fitting_stages(f, i, r);
        if (!room)
            return false;
        all += room;
        least += f->open->stages[i] ? f->open->stages[i] : 1;
    }
    return all >= f->c->layout->pipeline && least <= f->c->layout->pipeline;
}

/* Returns the largest number of replicas, up to `most`, that fit into a replica
 * group's datacenters; any smaller number fits too. */
static uint32_t compute_max_replicas(const draft_filler *f, uint32_t group,
                                     uint32_t most)
{
    uint32_t fits = 0, over = most + 1;
    while (over - fits > 1) {
        uint32_t half = fits + (over - fits) / 2;
        if (has_capacity(f, group, half))
            fits = half;
        else
            over = half;
    }
    return fits;
}

/* Distributes the layout's replicas over the groups whose number is still open,
 * as evenly as their capacity allows. Returns false if they do not fit. */
static bool share_replicas(const draft_filler *f)
{
    uint32_t left = f->c->layout->data, n_open = 0, most[LHI_MOST_PARTS];
    for (uint32_t g = 0; g < f->open->n_groups; g++) {
        uint32_t given = f->open->replicas[g];
        f->out->replicas[g] = given;
        n_open += !given;
        if (given > left || (given && !has_capacity(f, g, given)))
            return false;
        left -= given;
    }
    for (uint32_t g = 0; g < f->open->n_groups; g++)
        most[g] = f->open->replicas[g] ? 0 : compute_max_replicas(f, g, left);
    for (; n_open; n_open--) {
        uint32_t least = UINT32_MAX;
        for (uint32_t g = 0; g < f->open->n_groups; g++)
            if (!f->out->replicas[g] &&
                (least == UINT32_MAX || most[g] < most[least]))
                least = g;
        uint32_t share = left / n_open;
        f->out->replicas[least] = most[least] < share ? most[least] : share;
        if (!f->out->replicas[least])
            return false;
        left -= f->out->replicas[least];
    }
    return left == 0;
}

/* ---- stages ---- */

/* Distributes the stages over a group's pipeline parts, first to last
 * (`backward`: last to first): each part takes as many as fit, and at least
 * one. */
static void fill_stages(const draft_filler *f, uint32_t group, bool backward)
{
    uint32_t a = f->open->from[group], n = f->open->from[group + 1] - a;
    uint32_t left = f->c->layout->pipeline;
    for (uint32_t i = 0; i < n; i++)
        left -= f->open->stages[a + i] ? f->open->stages[a + i] : 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t part = a + (backward ? n - 1 - i : i);
        uint32_t room = count_fitting_stages(f, part, f->out->replicas[group]);
        if (f->open->stages[part]) {
            f->out->stages[part] = f->open->stages[part];
            continue;
        }
        uint32_t more = room - 1 < left ? room - 1 : left;
        f->out->stages[part] = 1 + more;
        left -= more;
    }
}

/* Distributes the stages over a group's pipeline parts in proportion to
 * weights[datacenter], at least one each, limited by capacity. */
static void share_stages(const draft_filler *f, uint32_t group,
                         const double *weights)
{
    uint32_t a = f->open->from[group], z = f->open->from[group + 1];
    uint32_t left = f->c->layout->pipeline;
    for (uint32_t i = a; i < z; i++) {
        f->out->stages[i] = f->open->stages[i] ? f->open->stages[i] : 1;
        left -= f->out->stages[i];
    }
    for (; left; left--) {
        uint32_t to = z;
        for (uint32_t i = a; i < z; i++) {
            if (f->out->stages[i] >=
                count_fitting_stages(f, i, f->out->replicas[group]))
                continue;
            if (to == z ||
                (f->out->stages[i] + 1) / weights[f->open->site[i]] <
                    (f->out->stages[to] + 1) / weights[f->open->site[to]])
                to = i;
        }
        f->out->stages[to]++;
    }
}

/* Distributes a group's stages over its parts by rule `split`: 0 first to last,
 * 1 last to first, 2 by capacity, 3 evenly, 4 by speed. */
static void split_stages(const draft_filler *f, uint32_t group, uint32_t split)
{
    double weights[LH_MAX_DATACENTERS];
    for (uint32_t i = 0; i < f->c->job->n_datacenters; i++)
        weights[i] = split == 2   ? f->c->capacity[i] + 1e-9
                     : split == 3 ? 1
                                  : f->c->speed[i];
    if (split < 2)
        fill_stages(f, group, split == 1);
    else
        share_stages(f, group, weights);
}

bool lhi_placement_fill_draft(const lhi_placement_case *c,
                              const lhi_placement_draft *open, uint32_t split,
                              lhi_placement_draft *out)
{
    draft_filler f = {c, open, out};
    if (split == 4 && c->same_speed)
        return false; /* same as split 3 */
    out->n_groups = open->n_groups;
    out->n_parts = open->n_parts;
    for (uint32_t g = 0; g <= open->n_groups; g++)
        out->from[g] = open->from[g];
    for (uint32_t i = 0; i < open->n_parts; i++)
        out->site[i] = open->site[i];
    if (!share_replicas(&f))
        return false;
    for (uint32_t g = 0; g < open->n_groups; g++)
        split_stages(&f, g, split);
    return true;
}
