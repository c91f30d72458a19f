/* SPDX-License-Identifier: Apache-2.0 */
/* Enumerates placements for one set of degrees. With few datacenters all
 * groupings and orders are tried, with many a selection; each with several ways
 * to split the pipeline. Equivalent placements are tried once, and the most
 * promising are kept. */
#include "planner/layout/site_search_internal.h"

#include <longhaul/experimental/cost.h>
#include <string.h>

/* Enumeration state. */
typedef struct placement_search {
    lhi_placement_case c;
    lhi_ecmp_cache busiest;
    lhi_arena *work; /* scratch, freed at the end */
    lh_outermost want;
    const lh_sites *given;
    lhi_placement_draft *kept[LHI_MOST_SITES]; /* by ns, then by discovery */
    bool always[LHI_MOST_SITES];
    uint32_t n_kept;
    uint64_t *seen; /* hashes of canonical drafts; 0: free */
    uint32_t n_seen, seen_room;
} placement_search;

/* Returns the outermost parallelism of a placement with n_groups replica groups
 * and n_parts pipeline parts in all: pipeline, data or mixed. */
static lh_outermost classify_outermost(uint32_t n_groups, uint32_t n_parts)
{
    if (n_groups == 1)
        return LH_OUTERMOST_PIPELINE;
    return n_parts > n_groups ? LH_OUTERMOST_MIXED : LH_OUTERMOST_DATA;
}

lh_outermost lhi_sites_outermost(const lh_sites *sites)
{
    uint32_t n_parts = 0;
    for (uint32_t g = 0; g < sites->n_groups; g++)
        n_parts += sites->groups[g].n_parts;
    return classify_outermost(sites->n_groups, n_parts);
}

/* ---- duplicates ---- */

/* Adds a value to an FNV-1a hash; returns the new hash. */
static uint64_t add_to_hash(uint64_t hash, uint32_t value)
{
    return (hash ^ value) * UINT64_C(1099511628211);
}

/* Returns a hash of a draft placement's groups, datacenters and stages; never
 * 0. */
static uint64_t hash_draft(const lhi_placement_draft *d)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (uint32_t g = 0; g < d->n_groups; g++) {
        hash = add_to_hash(add_to_hash(hash, d->replicas[g]), UINT32_MAX);
        for (uint32_t i = d->from[g]; i < d->from[g + 1]; i++)
            hash = add_to_hash(add_to_hash(hash, d->site[i]), d->stages[i]);
    }
    return hash ? hash : 1;
}

/* Inserts a placement's hash into a hash table with `room` slots. Returns false
 * if the table has it already. */
static bool insert_hash(uint64_t *table, uint32_t room, uint64_t hash)
{
    uint32_t at = (uint32_t)(hash >> 32) & (room - 1);
    while (table[at] && table[at] != hash)
        at = (at + 1) & (room - 1);
    bool is_new = !table[at];
    table[at] = hash;
    return is_new;
}

/* Adds a placement's hash to the set of placements seen by this search.
 * *is_new: the set did not have it. */
static lh_status check_duplicate(placement_search *f, uint64_t hash,
                                 bool *is_new, lh_error *err)
{
    if (2 * f->n_seen >= f->seen_room) {
        uint32_t room = f->seen_room ? 2 * f->seen_room : 256;
        uint64_t *table = LHI_NEW(f->work, uint64_t, room);
        if (!table)
            return lhi_fail_nomem(err);
        for (uint32_t i = 0; i < f->seen_room; i++)
            if (f->seen[i])
                insert_hash(table, room, f->seen[i]);
        f->seen = table;
        f->seen_room = room;
    }
    *is_new = insert_hash(f->seen, f->seen_room, hash);
    f->n_seen += *is_new;
    return LH_OK;
}

/* ---- kept placements ---- */

/* Returns the index of the slowest placement in f->kept that is not marked to
 * stay; n_kept if all are marked. */
static uint32_t find_worst(const placement_search *f)
{
    for (uint32_t i = f->n_kept; i > 0; i--)
        if (!f->always[i - 1])
            return i - 1;
    return f->n_kept;
}

/* Stores a draft placement in f->kept, sorted by estimated time, if it is among
 * the LHI_MOST_SITES fastest. `always`: marks it to stay, however slow. */
static lh_status keep_draft(placement_search *f, const lhi_placement_draft *d,
                            bool always, lh_error *err)
{
    lhi_placement_draft *copy;
    if (f->n_kept == LHI_MOST_SITES) {
        uint32_t worst = find_worst(f);
        if (f->kept[worst]->ns <= d->ns && !always)
            return LH_OK;
        copy = f->kept[worst];
        f->n_kept--;
        memmove(f->kept + worst, f->kept + worst + 1,
                (f->n_kept - worst) * sizeof *f->kept);
        memmove(f->always + worst, f->always + worst + 1,
                (f->n_kept - worst) * sizeof *f->always);
    } else if (!(copy = LHI_NEW(f->work, lhi_placement_draft, 1))) {
        return lhi_fail_nomem(err);
    }
    *copy = *d;
    uint32_t at = f->n_kept++;
    for (; at > 0 && f->kept[at - 1]->ns > d->ns; at--) {
        f->kept[at] = f->kept[at - 1];
        f->always[at] = f->always[at - 1];
    }
    f->kept[at] = copy;
    f->always[at] = always;
    return LH_OK;
}

/* ---- candidates ---- */

/* Checks whether a draft placement has enough GPUs and the outermost
 * parallelism that the job allows. */
static bool is_allowed(const placement_search *f, const lhi_placement_draft *d)
{
    const lh_layout *l = f->c.layout;
    bool crosses = false, longest_fits = true;
    uint64_t units = 0;
    for (uint32_t g = 0; g < d->n_groups; g++) {
        uint32_t n = d->from[g + 1] - d->from[g];
        crosses = crosses || n > 1;
        longest_fits = longest_fits && n <= l->pipeline;
    }
    for (uint32_t i = 0; i < d->n_parts; i++)
        units += f->c.capacity[d->site[i]];
    if (d->n_groups > l->data || !longest_fits ||
        units < (uint64_t)l->pipeline * l->data)
        return false;
    switch (f->want) {
    case LH_OUTERMOST_PIPELINE:
        return d->n_groups == 1;
    case LH_OUTERMOST_DATA:
        return !crosses;
    case LH_OUTERMOST_MIXED:
        return d->n_groups > 1 && crosses;
    default:
        return true;
    }
}

/* Checks whether a complete draft placement uses as many GPUs of each
 * datacenter as the job requires. */
static bool has_required_gpus(const placement_search *f,
                              const lhi_placement_draft *d)
{
    const uint32_t *least = f->c.job->min_gpus;
    for (uint32_t dc = 0; least && dc < f->c.job->n_datacenters; dc++) {
        uint64_t used = 0;
        for (uint32_t g = 0; g < d->n_groups; g++)
            for (uint32_t i = d->from[g]; i < d->from[g + 1]; i++)
                if (d->site[i] == dc)
                    used +=
                        (uint64_t)d->replicas[g] * d->stages[i] * f->c.group;
        if (used < least[dc])
            return false;
    }
    return true;
}

/* Estimates a complete draft placement and stores it, unless an equivalent one
 * was stored before or the job requires GPUs that it leaves idle. `always`: it
 * is never dropped. */
static lh_status add_complete(placement_search *f, lhi_placement_draft *d,
                              bool always, lh_error *err)
{
    lhi_placement_draft canonical;
    bool is_new;
    if (!has_required_gpus(f, d))
        return LH_OK;
    lhi_placement_make_canonical(&f->c, d, &canonical);
    LHI_TRY(check_duplicate(f, hash_draft(&canonical), &is_new, err));
    if (!is_new)
        return LH_OK;
    LHI_TRY(lhi_placement_estimate(&f->c, &f->busiest, d, err));
    return keep_draft(f, d, always, err);
}

/* Completes a draft placement by each rule for distributing stages over
 * datacenters, and stores the results. Callback for the generators; `context`:
 * the search. */
static lh_status add_completions(void *context, const lhi_placement_draft *open,
                                 lh_error *err)
{
    placement_search *f = context;
    lhi_placement_draft d;
    if (!is_allowed(f, open))
        return LH_OK;
    for (uint32_t split = 0; split < LHI_SPLITS; split++) {
        if (!lhi_placement_fill_draft(&f->c, open, split, &d)) {
            if (split == 0)
                return LH_OK;
            continue;
        }
        LHI_TRY(add_complete(f, &d, false, err));
    }
    return LH_OK;
}

/* Extends a draft placement recursively by each datacenter not marked in
 * used[]: it either continues the last group or begins a new one. Groups are in
 * the order of their first datacenter. */
static lh_status extend_groups(placement_search *f, lhi_placement_draft *d,
                               bool *used, lh_error *err)
{
    for (uint32_t s = 0; s < f->c.job->n_datacenters; s++) {
        if (used[s] || !f->c.capacity[s])
            continue;
        used[s] = true;
        d->site[d->n_parts] = s;
        d->stages[d->n_parts++] = 0;
        for (uint32_t begins = 0; begins < 2; begins++) {
            if (begins ? d->n_groups && d->site[d->from[d->n_groups - 1]] > s
                       : !d->n_groups)
                continue;
            d->n_groups += begins;
            if (begins) {
                d->replicas[d->n_groups - 1] = 0;
                d->from[d->n_groups - 1] = d->n_parts - 1;
            }
            d->from[d->n_groups] = d->n_parts;
            if (!lhi_placement_is_symmetric_copy(&f->c, d))
                LHI_TRY(add_completions(f, d, err));
            LHI_TRY(extend_groups(f, d, used, err));
            d->n_groups -= begins;
            d->from[d->n_groups] = d->n_parts - begins;
        }
        d->n_parts--;
        d->from[d->n_groups] = d->n_parts;
        used[s] = false;
    }
    return LH_OK;
}

/* Converts a placement to a draft. Returns false if it has more parts than a
 * draft holds. */
static bool make_draft(const lh_sites *sites, lhi_placement_draft *d)
{
    d->n_groups = d->n_parts = 0;
    d->from[0] = 0;
    if (sites->n_groups > LHI_MOST_PARTS)
        return false;
    for (uint32_t g = 0; g < sites->n_groups; g++) {
        const lh_site_group *group = &sites->groups[g];
        if (group->n_parts > LHI_MOST_PARTS - d->n_parts)
            return false;
        d->replicas[g] = group->replicas;
        for (uint32_t i = 0; i < group->n_parts; i++) {
            d->site[d->n_parts] = group->parts[i].datacenter;
            d->stages[d->n_parts++] = group->parts[i].stages;
        }
        d->from[++d->n_groups] = d->n_parts;
    }
    return true;
}

/* Adds the default placements of a layout without sites, which are never
 * dropped: pipeline outermost and data outermost. */
static lh_status add_defaults(placement_search *f, lh_error *err)
{
    for (int o = LH_OUTERMOST_PIPELINE; o <= LH_OUTERMOST_DATA; o++) {
        lh_layout l = *f->c.layout;
        const lh_sites *sites;
        lhi_placement_draft d;
        l.outermost = (lh_outermost)o;
        lh_status status =
            lhi_sites_default(f->c.job, &l, f->work, &sites, err);
        if (status == LH_EUNSUPPORTED)
            continue;
        LHI_TRY(status);
        if (make_draft(sites, &d) && is_allowed(f, &d))
            LHI_TRY(add_complete(f, &d, true, err));
    }
    return LH_OK;
}

/* ---- result list ---- */

/* Converts a draft to a placement in `mem`. */
static lh_status make_sites(const lhi_placement_draft *d, lhi_arena *mem,
                            lh_sites *out, lh_error *err)
{
    lh_site_group *groups = LHI_NEW(mem, lh_site_group, d->n_groups);
    lh_site_stages *parts = LHI_NEW(mem, lh_site_stages, d->n_parts);
    if (!groups || !parts)
        return lhi_fail_nomem(err);
    for (uint32_t g = 0; g < d->n_groups; g++)
        groups[g] = (lh_site_group){d->replicas[g], d->from[g + 1] - d->from[g],
                                    parts + d->from[g]};
    for (uint32_t i = 0; i < d->n_parts; i++)
        parts[i] = (lh_site_stages){d->site[i], d->stages[i]};
    *out = (lh_sites){d->n_groups, groups};
    return LH_OK;
}

/* Fills the search's placement case: each datacenter's capacity in ranks, its
 * speed, and the symmetries. */
static lh_status make_case(placement_search *f, lh_error *err)
{
    lhi_placement_case *c = &f->c;
    uint32_t n = c->job->n_datacenters;
    c->group = lhi_group_size(c->layout);
    c->capacity = LHI_NEW(f->work, uint32_t, n);
    c->speed = LHI_NEW(f->work, double, n);
    if (!c->capacity || !c->speed)
        return lhi_fail_nomem(err);
    c->same_speed = true;
    c->flops = lh_cost_iteration_flops(c->job);
    c->params = (double)lh_model_params(c->job->model);
    for (uint32_t i = 0; i < n; i++) {
        const lh_gpu *gpu = &c->job->datacenters[i].gpu;
        double share = gpu->efficiency > 0 ? gpu->efficiency : 0.5;
        c->capacity[i] = c->job->datacenters[i].gpus / c->group;
        c->speed[i] =
            lhi_gpu_max_flops_per_s(gpu, c->job->framework.fp8) * share;
        c->same_speed = c->same_speed && !(c->speed[i] < c->speed[0]) &&
                        !(c->speed[i] > c->speed[0]);
    }
    return lhi_placement_find_symmetries(c, f->work, err);
}

/* Collects in f->kept the possible placements of stages and replicas in
 * datacenters: completions of the job's sites, all groupings, or with many
 * datacenters heuristic ones. */
static lh_status find_drafts(placement_search *f, lh_error *err)
{
    bool used[LH_MAX_DATACENTERS] = {false};
    lhi_placement_draft d = {0};
    LHI_TRY(make_case(f, err));
    if (f->given) {
        if (!make_draft(f->given, &d))
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "layout.sites: more than %d parts", LHI_MOST_PARTS);
        return add_completions(f, &d, err);
    }
    LHI_TRY(add_defaults(f, err));
    if (f->c.job->n_datacenters <= LHI_MOST_EXHAUSTIVE)
        return extend_groups(f, &d, used, err);
    return lhi_placement_generate_heuristic(&f->c, f->work, add_completions, f,
                                            err);
}

/* Appends a placement and, if its pipelines can be reversed, the reversed one
 * to a list. */
static lh_status append_sites(const placement_search *f,
                              const lhi_placement_draft *d, lhi_arena *mem,
                              lh_sites *list, bool *is_reversed, uint32_t *n,
                              lh_error *err)
{
    lhi_placement_draft reversed;
    LHI_TRY(make_sites(d, mem, &list[(*n)++], err));
    if (f->given || !lhi_placement_reverse(&f->c, d, &reversed) ||
        !has_required_gpus(f, &reversed))
        return LH_OK;
    is_reversed[*n] = true;
    return make_sites(&reversed, mem, &list[(*n)++], err);
}

/* Lists the first `most` of the placements found, in `mem`: first the defaults
 * and the fastest of each outermost parallelism, then the others by estimated
 * time. */
static lh_status find_list(placement_search *f, uint32_t most, lhi_arena *mem,
                           lhi_sites_list *out, lh_error *err)
{
    LHI_TRY(find_drafts(f, err));
    lh_sites *sites = LHI_NEW(mem, lh_sites, 2 * f->n_kept + 1);
    bool *reversed = LHI_NEW(mem, bool, 2 * f->n_kept + 1);
    if (!sites || !reversed)
        return lhi_fail_nomem(err);
    bool kinds[LH_OUTERMOST_MIXED + 1] = {false};
    uint32_t taken = 0;
    for (uint32_t i = 0; i < f->n_kept; i++) {
        lh_outermost kind =
            classify_outermost(f->kept[i]->n_groups, f->kept[i]->n_parts);
        f->always[i] = f->always[i] || !kinds[kind];
        kinds[kind] = true;
    }
    for (int first = 1; first >= 0; first--)
        for (uint32_t i = 0; i < f->n_kept && taken < most; i++)
            if (f->always[i] == (first == 1)) {
                LHI_TRY(append_sites(f, f->kept[i], mem, sites, reversed,
                                     &out->n, err));
                taken++;
            }
    out->sites = sites;
    out->reversed = reversed;
    return LH_OK;
}

/* Implements lhi_placement_search() for at most `most` placements; reversed
 * placements are added to the list and do not count. */
static lh_status search(const lh_job *job, const lh_layout *layout,
                        uint32_t most, lhi_arena *mem, lhi_sites_list *out,
                        lh_error *err)
{
    placement_search f = {.c = {.job = job, .layout = layout},
                          .want = job->layout.outermost,
                          .given = job->layout.sites};
    /* With one datacenter all variants order the same GPUs in the same way. */
    if (job->n_datacenters == 1 && f.want == LH_OUTERMOST_ANY)
        f.want = LH_OUTERMOST_PIPELINE;
    *out = (lhi_sites_list){0};
    f.work = lhi_arena_make(0);
    if (!f.work)
        return lhi_fail_nomem(err);
    lh_status status = find_list(&f, most, mem, out, err);
    lhi_arena_free(f.work);
    return status;
}

lh_status lhi_placement_search(const lh_job *job, const lh_layout *layout,
                               lhi_arena *mem, const lh_sites **list,
                               uint32_t *n, lh_error *err)
{
    lhi_sites_list found;
    lh_status status = search(job, layout, LHI_MOST_SITES, mem, &found, err);
    *list = found.sites;
    *n = found.n;
    return status;
}

/* ---- stored lists ---- */

/* A stored list and its key. */
typedef struct entry {
    uint32_t group, pipeline, data;
    lhi_sites_list list;
    struct entry *next;
} entry;

/* Hash buckets of the store. */
enum { BUCKETS = 1024 };

/* Lists found so far, for one job. */
struct lhi_sites_store {
    const lh_job *job;
    lhi_arena *mem;
    entry *buckets[BUCKETS];
};

lh_status lhi_sites_store_make(const lh_job *job, lhi_arena *mem,
                               lhi_sites_store **out, lh_error *err)
{
    *out = LHI_NEW(mem, lhi_sites_store, 1);
    if (!*out)
        return lhi_fail_nomem(err);
    (*out)->job = job;
    (*out)->mem = mem;
    return LH_OK;
}

lh_status lhi_sites_store_find(lhi_sites_store *store, const lh_layout *layout,
                               lhi_sites_list *out, lh_error *err)
{
    entry key = {.group = lhi_group_size(layout),
                 .pipeline = layout->pipeline,
                 .data = layout->data};
    uint32_t bucket = (key.group * 31 + key.pipeline * 7 + key.data) % BUCKETS;
    entry *e = store->buckets[bucket];
    while (e && (e->group != key.group || e->pipeline != key.pipeline ||
                 e->data != key.data))
        e = e->next;
    if (!e) {
        e = LHI_NEW(store->mem, entry, 1);
        if (!e)
            return lhi_fail_nomem(err);
        *e = key;
        LHI_TRY(search(store->job, layout, LHI_MAX_TRIED_PLACEMENTS, store->mem,
                       &e->list, err));
        e->next = store->buckets[bucket];
        store->buckets[bucket] = e;
    }
    *out = e->list;
    return LH_OK;
}
