/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/layout/space.h"

#include "format/job/job_values.h"
#include "planner/layout/choice.h"
#include "planner/layout/target.h"

#include <stdlib.h>

enum {
    MIN_CONTEXT_TOKENS =
        2048, /* least tokens per GPU under context parallelism;
               * ScaleAcross Explorer (2026), section 6.2 */
    MOST_MICRO_BATCH = 8,
    MAX_SPANNING_TENSOR =
        8 /* tensor ranks that may span whole nodes with fewer GPUs */
};

static const struct {
    uint32_t chunks;
    lh_placement placement;
} kinds[] = {{1, LH_PLACEMENT_UD},   {2, LH_PLACEMENT_LOOP},
             {2, LH_PLACEMENT_WAVE}, {3, LH_PLACEMENT_LOOP},
             {4, LH_PLACEMENT_LOOP}, {6, LH_PLACEMENT_LOOP},
             {8, LH_PLACEMENT_LOOP}};
/* Number of combinations of chunks and placement. */
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* State shared by all children of one configuration. */
typedef struct expansion {
    const lhi_space *space;
    const lh_layout *want; /* the job's values */
    lhi_level level;       /* level of the children */
    lhi_config config;
    uint64_t *dropped;
    lhi_space_visit *visit;
    void *context;
} expansion;

/* Checks whether the job leaves a degree open (`want` is 0) or fixes it to
 * `value`. */
static bool is_allowed(uint32_t value, uint32_t want)
{
    return want == 0 || want == value;
}

static lhi_space_visit count_one; /* also runs on other threads than the
                                   * search's */

/* Checks whether the target framework can run the values that the configuration
 * has decided so far, into *accepted; stores the reason for the first refusal.
 */
static lh_status check_child(const expansion *g, bool *accepted, lh_error *err)
{
    lh_error why; /* set by a failure */
    lhi_space_refusal *kept = g->space->refused;
    const lh_job *job = g->space->job;
    lh_status status =
        lhi_target_check(job->target, job, g->level, &g->config, &why);
    *accepted = status == LH_OK;
    if (status == LH_OK)
        return LH_OK;
    if (!lhi_layout_is_infeasible(status))
        return lhi_fail(err, status, "%s", why.text);
    /* Keeps the highest level's refusal: it is closest to an accepted
     * configuration. */
    if (kept && g->visit != count_one && g->level > kept->level)
        *kept = (lhi_space_refusal){g->level, why};
    return LH_OK;
}

/* Passes the current configuration, a child in the search tree, to the visitor
 * if the target framework accepts it. */
static lh_status visit_child(expansion *g, lh_error *err)
{
    bool accepted;
    LHI_TRY(check_child(g, &accepted, err));
    return accepted ? g->visit(g->context, &g->config, err) : LH_OK;
}

/* --- values to explore ---------------------------------------------------- */

bool lhi_space_tensor(const lhi_space *space, uint32_t tensor)
{
    const bool whole =
        tensor <= MAX_SPANNING_TENSOR && tensor % space->node == 0;
    return (space->node % tensor == 0 || whole) &&
           space->job->model->heads % tensor == 0;
}

bool lhi_space_context(const lhi_space *space, uint32_t context)
{
    const uint32_t sequence = space->job->training.sequence;
    return context == 1 ||
           ((context & (context - 1)) == 0 && sequence % context == 0 &&
            sequence / context >= MIN_CONTEXT_TOKENS);
}

bool lhi_space_micro_batch(uint32_t size)
{
    return size <= MOST_MICRO_BATCH && (size & (size - 1)) == 0;
}

bool lhi_space_chunks(uint32_t chunks)
{
    for (int i = 0; i < N_KINDS; i++)
        if (kinds[i].chunks == chunks)
            return true;
    return false;
}

/* --- tensor, context, expert, micro_batch -------------------------------- */

/* Visits child configurations in the search tree with each microbatch size that
 * divides the global batch: the job's, or powers of two. */
static lh_status add_micro_batches(expansion *g, lh_error *err)
{
    lh_layout *l = &g->config.layout;
    uint32_t batch = g->space->job->training.global_batch;
    for (uint32_t mb = 1; mb <= MOST_MICRO_BATCH; mb *= 2) {
        uint32_t size = g->want->micro_batch ? g->want->micro_batch : mb;
        if (size <= batch &&
            (batch % size == 0 || g->want->group_micro_batches)) {
            l->micro_batch = size;
            LHI_TRY(visit_child(g, err));
        }
        if (g->want->micro_batch)
            break;
    }
    return LH_OK;
}

/* Checks whether to visit the context degree `cp`: it is the job's, or leaves
 * each GPU enough tokens. */
static bool suits_context(const expansion *g, uint32_t cp)
{
    if (g->want->context)
        return g->want->context == cp;
    return lhi_space_context(g->space, cp);
}

/* Checks whether tp x cp GPUs (tensor x context) are allowed: they fit in the
 * cluster, and in one node or in whole nodes unless the job sets the tensor
 * degree. */
static bool suits_group(const expansion *g, uint32_t tp, uint32_t cp)
{
    uint64_t group = (uint64_t)tp * cp, node = g->space->node;
    uint32_t gpus = g->space->job->n_gpus;
    if (!is_allowed(tp, g->want->tensor) || group > gpus)
        return false;
    if (g->want->tensor)
        return true;
    if (!lhi_space_tensor(g->space, tp))
        return false;
    return group <= node || group % node == 0;
}

/* Checks whether to visit the expert degree `ep`: it must divide the expert
 * count and be the job's, if the job sets one. */
static bool suits_expert(const expansion *g, uint32_t ep)
{
    uint32_t experts = g->space->job->model->experts;
    if (!is_allowed(ep, g->want->expert))
        return false;
    return ep == 1 || (experts > 0 && experts % ep == 0);
}

/* Visits child configurations with each expert degree that the job allows, with
 * the expert tensor degree of the job or, without one, 1. */
static lh_status add_experts(expansion *g, lh_error *err)
{
    const lh_job *job = g->space->job;
    uint32_t most = job->model->experts ? job->model->experts : 1;
    lh_layout *l = &g->config.layout;
    for (uint32_t ep = 1; ep <= most && ep <= job->n_gpus; ep++) {
        if (!suits_expert(g, ep))
            continue;
        l->expert = ep;
        /* Given, or 1 with expert parallelism, else the other layers'.
         */
        l->expert_tensor =
            g->want->expert_tensor ? g->want->expert_tensor : (ep > 1 ? 1 : 0);
        if (lh_layout_expert_block(l) <= job->n_gpus)
            LHI_TRY(add_micro_batches(g, err));
    }
    return LH_OK;
}

/* Visits child configurations with each pair of tensor and context degrees that
 * the job allows, and for each all expert degrees and microbatch sizes. */
static lh_status add_groups(expansion *g, lh_error *err)
{
    uint32_t gpus = g->space->job->n_gpus;
    lh_layout *l = &g->config.layout;
    for (uint32_t cp = 1; cp <= gpus; cp++)
        for (uint32_t tp = 1; suits_context(g, cp) && tp <= gpus; tp++) {
            if (!suits_group(g, tp, cp))
                continue;
            l->tensor = tp;
            l->context = cp;
            LHI_TRY(add_experts(g, err));
        }
    return LH_OK;
}

/* --- recomputation ------------------------------------------------------- */

/* Visits child configurations with each kind of recomputation: the job's own,
 * or none, selective and full. */
static lh_status add_recomputations(expansion *g, lh_error *err)
{
    const lh_training *t = &g->space->job->training;
    static const lh_recompute all[] = {LH_RECOMPUTE_NONE,
                                       LH_RECOMPUTE_SELECTIVE,
                                       LH_RECOMPUTE_FULL, LH_RECOMPUTE_MODULES};
    for (int i = 0; i < 4; i++) {
        if (t->recompute_given ? all[i] != t->recompute
                               : all[i] == LH_RECOMPUTE_MODULES)
            continue;
        g->config.recompute = all[i];
        LHI_TRY(visit_child(g, err));
    }
    return LH_OK;
}

/* --- pipeline, data ------------------------------------------------------ */

/* Checks that a stage's ranks (tensor x context x `data`) divide evenly into
 * groups of expert x expert-tensor ranks, so that every expert has equally
 * many. */
static bool does_expert_group_fit(const lh_layout *l, uint32_t data)
{
    return (uint64_t)lhi_group_size(l) * data % lh_layout_expert_block(l) == 0;
}

/* Checks whether layouts with `gpus` GPUs can use as many GPUs of each
 * datacenter as the job requires. */
static bool has_required_gpus(const lh_job *job, uint64_t gpus)
{
    for (uint32_t i = 0; job->min_gpus && i < job->n_datacenters; i++)
        if (gpus < job->min_gpus[i])
            return false;
    return true;
}

/* Returns the sequences of a microbatch over `data` replicas: with unequal
 * microbatches, over those of the job's sites. */
static uint64_t count_sequences(const expansion *g, uint32_t data)
{
    return g->want->group_micro_batches
               ? lhi_layout_count_sequences(g->want)
               : (uint64_t)data * g->config.layout.micro_batch;
}

/* Visits child configurations with each pair of pipeline and data degrees that
 * fits, and counts them in *n; if `visit` is false, only counts. */
static lh_status add_degrees(expansion *g, bool visit, uint64_t *n,
                             lh_error *err)
{
    const lhi_space *s = g->space;
    lh_layout *l = &g->config.layout;
    uint32_t groups = s->job->n_gpus / lhi_group_size(l);
    uint32_t batch = s->job->training.global_batch;
    for (uint32_t pp = 1; pp <= groups && pp <= s->job->model->layers; pp++) {
        if (!is_allowed(pp, g->want->pipeline))
            continue;
        for (uint32_t i = 0; i < s->n_data; i++) {
            uint32_t d = s->data[i];
            if (!is_allowed(d, g->want->data) || (uint64_t)pp * d > groups ||
                batch % count_sequences(g, d) != 0 ||
                !does_expert_group_fit(l, d) ||
                !has_required_gpus(s->job,
                                   (uint64_t)pp * d * lhi_group_size(l)))
                continue;
            uint32_t m = (uint32_t)(batch / count_sequences(g, d));
            if (m > LHI_MOST_MICROBATCHES && !g->want->micro_batch) {
                if (g->dropped)
                    ++*g->dropped;
                continue;
            }
            ++*n;
            l->pipeline = pp;
            l->data = d;
            g->config.microbatches = m * lhi_job_count_slices(s->job);
            if (visit)
                LHI_TRY(visit_child(g, err));
        }
    }
    return LH_OK;
}

/* --- placement ----------------------------------------------------------- */

bool lhi_outermost_matters(const lh_job *job, const lh_layout *layout)
{
    uint64_t size = lhi_group_size(layout);
    uint64_t gpus = size * layout->pipeline * layout->data;
    uint32_t node = job->datacenters[0].gpus_per_node;
    if (layout->data == 1 ||
        (job->n_datacenters == 1 && layout->rank_order != LH_OUTERMOST_ANY))
        return false;
    return job->n_datacenters > 1 ||
           (layout->pipeline > 1 && size % node != 0 && gpus > node);
}

bool lhi_rank_order_matters(const lh_job *job, const lh_layout *layout)
{
    const lh_sites *sites = job->n_datacenters > 1 ? layout->sites : NULL;
    for (uint32_t g = 0; sites && g < sites->n_groups; g++)
        for (uint32_t i = 0; i < sites->groups[g].n_parts; i++) {
            const lh_site_stages *part = &sites->groups[g].parts[i];
            const lh_layout own =
                lhi_layout_in_datacenter(layout, part->datacenter);
            const uint64_t size = lhi_group_size(&own);
            uint32_t node = job->datacenters[part->datacenter].gpus_per_node;
            uint32_t replicas = sites->groups[g].replicas;
            if (replicas > 1 && part->stages > 1 && size % node != 0 &&
                size * replicas * part->stages > node)
                return true;
        }
    return false;
}

/* Checks whether to visit an outermost parallelism: the job's if it sets one,
 * else pipeline and, if it makes a difference, data. */
static bool suits_outermost(const expansion *g, lh_outermost o)
{
    if (g->want->outermost)
        return g->want->outermost == o;
    return o == LH_OUTERMOST_PIPELINE ||
           (o == LH_OUTERMOST_DATA &&
            lhi_outermost_matters(g->space->job, &g->config.layout));
}

/* Visits child configurations of a placement with the job's packing of ranks on
 * nodes or, if the job has none, with dense and, if that makes a difference,
 * aligned packing. */
static lh_status add_packings(expansion *g, lh_error *err)
{
    lh_layout *l = &g->config.layout;
    l->packing = g->want->packing;
    LHI_TRY(visit_child(g, err));
    if (l->packing || !lhi_packing_matters(g->space->job, l))
        return LH_OK;
    l->packing = LH_PACKING_ALIGNED;
    return visit_child(g, err);
}

/* Visits child configurations with each outermost parallelism (pipeline or
 * data), without a placement in datacenters. */
static lh_status add_outermost(expansion *g, lh_error *err)
{
    g->config.layout.sites = g->want->sites;
    g->config.layout.rank_order = g->want->rank_order;
    for (int o = LH_OUTERMOST_PIPELINE; o <= LH_OUTERMOST_MIXED; o++) {
        if (!suits_outermost(g, (lh_outermost)o))
            continue;
        g->config.layout.outermost = (lh_outermost)o;
        LHI_TRY(add_packings(g, err));
    }
    return LH_OK;
}

/* Visits child configurations of a placement with the default rank order and,
 * if it makes a difference, with the other one (pipeline or data outermost). */
static lh_status add_rank_orders(expansion *g, lh_error *err)
{
    lh_layout *l = &g->config.layout;
    l->rank_order = g->want->rank_order;
    LHI_TRY(add_packings(g, err));
    if (l->rank_order || !lhi_rank_order_matters(g->space->job, l))
        return LH_OK;
    l->rank_order = lh_layout_rank_order(l) == LH_OUTERMOST_DATA
                        ? LH_OUTERMOST_PIPELINE
                        : LH_OUTERMOST_DATA;
    return add_packings(g, err);
}

/* Visits child configurations with each placement of stages and replicas in
 * datacenters, each with its rank orders. */
static lh_status add_placements(expansion *g, lh_error *err)
{
    lh_layout *l = &g->config.layout;
    lhi_sites_list list = {0};
    if (g->space->job->n_datacenters > 1)
        LHI_TRY(lhi_sites_store_find(g->space->places, l, &list, err));
    if (list.n == 0 && g->space->job->n_datacenters > 1 &&
        g->space->job->min_gpus)
        return LH_OK; /* no placement uses the required GPUs */
    if (list.n == 0)  /* all in one datacenter, or bounds report the reason */
        return add_outermost(g, err);
    for (uint32_t i = 0; i < list.n; i++) {
        g->config.reversed = list.reversed[i];
        l->sites = &list.sites[i];
        l->group_micro_batches = g->want->group_micro_batches;
        l->site_tensors = g->want->site_tensors;
        l->outermost = g->want->outermost ? g->want->outermost
                                          : lhi_sites_outermost(l->sites);
        LHI_TRY(add_rank_orders(g, err));
    }
    return LH_OK;
}

/* --- ZeRO, sharding ------------------------------------------------------ */

bool lhi_zero_matters(const lh_job *job, const lh_layout *layout)
{
    const lh_layout *l = layout;
    const uint64_t replicas = (uint64_t)l->data * l->context;
    const uint64_t expert = (uint64_t)l->expert * lh_layout_expert_tensor(l);
    return replicas > 1 ||
           (job->model->experts > 0 && replicas * l->tensor > expert) ||
           lhi_target_joins_backward(job->target, l->pipeline, 3) ||
           lhi_target_chunks(job->target, job->model->layers, l->pipeline, 0);
}

/* Checks whether to visit a ZeRO stage: the job's, or any from 1 on, because
 * these need less memory for the same traffic. */
static bool suits_zero(const expansion *g, uint32_t zero)
{
    const lh_training *t = &g->space->job->training;
    if (t->zero_given)
        return t->zero == zero;
    return zero == 1 ||
           (zero > 1 && lhi_zero_matters(g->space->job, &g->config.layout));
}

bool lhi_sharding_matters(const lh_job *job, const lhi_config *config)
{
    return job->n_datacenters > 1 && config->zero > 0 &&
           config->layout.data > 1 &&
           config->layout.outermost == LH_OUTERMOST_DATA;
}

/* Checks whether to visit a kind of sharding (full, hybrid) with ZeRO stage
 * `zero`: the job's, or full and, if it makes a difference, hybrid. */
static bool suits_sharding(const expansion *g, uint32_t zero,
                           lh_sharding sharding)
{
    if (g->want->sharding != LH_SHARDING_ANY)
        return g->want->sharding == sharding;
    lhi_config config = g->config;
    config.zero = zero;
    return sharding == LH_SHARDING_FULL ||
           lhi_sharding_matters(g->space->job, &config);
}

/* Visits child configurations with each ZeRO stage and kind of sharding (full,
 * hybrid), and counts them in *n; if `visit` is false, only counts. */
static lh_status add_states(expansion *g, bool visit, uint64_t *n,
                            lh_error *err)
{
    for (uint32_t zero = 0; zero <= 3; zero++)
        for (int k = LH_SHARDING_FULL; k <= LH_SHARDING_HYBRID_LEADERS; k++) {
            if (!suits_zero(g, zero) ||
                !suits_sharding(g, zero, (lh_sharding)k))
                continue;
            g->config.zero_given = true;
            g->config.zero = zero;
            g->config.layout.sharding = (lh_sharding)k;
            bool accepted;
            LHI_TRY(check_child(g, &accepted, err));
            *n += accepted;
            if (visit && accepted)
                LHI_TRY(g->visit(g->context, &g->config, err));
        }
    return LH_OK;
}

/* --- chunks -------------------------------------------------------------- */

/* Visits child configurations with each number of chunks per device and chunk
 * placement (UD, Loop, Wave), and counts them in *n; if `visit` is false, only
 * counts. */
static lh_status add_chunkings(expansion *g, bool visit, uint64_t *n,
                               lh_error *err)
{
    uint32_t want = g->want->chunks_per_device;
    uint32_t layers = g->space->job->model->layers;
    lh_layout *l = &g->config.layout;
    if (!want)
        want = lhi_target_chunks(g->space->job->target, layers, l->pipeline,
                                 g->config.zero);
    bool usual = false;
    for (int i = 0; i <= N_KINDS; i++) {
        /* Last, any other number that the job fixes. */
        uint32_t chunks = i < N_KINDS ? kinds[i].chunks : want;
        if (i < N_KINDS)
            usual = usual || chunks == want;
        else if (!want || usual)
            continue;
        /* On one rank a wave equals two chunks in turn. */
        if (!is_allowed(chunks, want) ||
            (!want && (uint64_t)chunks * l->pipeline > layers) ||
            (i < N_KINDS && kinds[i].placement == LH_PLACEMENT_WAVE &&
             l->pipeline == 1))
            continue;
        lh_placement placement =
            i < N_KINDS ? kinds[i].placement : LH_PLACEMENT_LOOP;
        if (l->pipeline > 1 &&
            !lhi_schedule_allows_placement(g->space->job, placement))
            continue;
        l->chunks_per_device = chunks;
        g->config.placement = placement;
        g->config.layers = lhi_layers_requested(g->space->job, l);
        bool accepted;
        LHI_TRY(check_child(g, &accepted, err));
        *n += accepted;
        if (visit && accepted)
            LHI_TRY(g->visit(g->context, &g->config, err));
    }
    return LH_OK;
}

/* --- tree ---------------------------------------------------------------- */

lh_status lhi_space_children(const lhi_space *space, lhi_level level,
                             const lhi_config *config, uint64_t *dropped,
                             lhi_space_visit *visit, void *context,
                             lh_error *err)
{
    expansion g = {.space = space,
                   .want = &space->job->layout,
                   .level = (lhi_level)(level + 1),
                   .config = *config,
                   .dropped = dropped,
                   .visit = visit,
                   .context = context};
    uint64_t n = 0;
    switch (level) {
    case LHI_LEVEL_NONE:
        g.config.layout.schedule = g.want->schedule;
        return add_groups(&g, err);
    case LHI_LEVEL_GROUP:
        return add_recomputations(&g, err);
    case LHI_LEVEL_WORK:
        return add_degrees(&g, true, &n, err);
    case LHI_LEVEL_DEGREES:
        return add_placements(&g, err);
    case LHI_LEVEL_PLACED:
        return add_states(&g, true, &n, err);
    case LHI_LEVEL_STATE:
        return add_chunkings(&g, true, &n, err);
    default:
        return LH_OK;
    }
}

/* Counter of the configurations in a subtree. */
typedef struct counting {
    const lhi_space *space;
    lhi_level level;
    uint64_t n;
} counting;

/* Adds the number of complete configurations below `config`, a node of the
 * search tree, to the count in `context`. Visitor callback. */
static lh_status count_one(void *context, const lhi_config *config,
                           lh_error *err)
{
    counting *c = context;
    (void)err;
    c->n += lhi_space_count(c->space, c->level, config);
    return LH_OK;
}

uint64_t lhi_space_count(const lhi_space *space, lhi_level level,
                         const lhi_config *config)
{
    expansion g = {.space = space,
                   .want = &space->job->layout,
                   .level = (lhi_level)(level + 1),
                   .config = *config};
    counting c = {space, (lhi_level)(level + 1), 0};
    if (level == LHI_LEVEL_COMPLETE)
        return 1;
    g.visit = count_one;
    g.context = &c;
    if (level == LHI_LEVEL_STATE)
        (void)add_chunkings(&g, false, &c.n, NULL);
    else if (level == LHI_LEVEL_DEGREES)
        (void)add_outermost(&g, NULL);
    else
        (void)lhi_space_children(space, level, config, NULL, count_one, &c,
                                 NULL);
    return c.n;
}

/* Checks whether the batch divides evenly over `data` replicas; with unequal
 * microbatches, whether the job has that many. */
static bool is_data_degree(const lh_job *job, uint32_t data)
{
    return job->layout.group_micro_batches
               ? data == job->layout.data
               : job->training.global_batch % data == 0;
}

lh_status lhi_space_init(const lh_job *job, lhi_arena *mem, lhi_space *out,
                         lh_error *err)
{
    uint32_t batch = job->training.global_batch, n = 0;
    lhi_space *s = out;
    *s = (lhi_space){.job = job, .node = job->datacenters[0].gpus_per_node};
    LHI_TRY(lhi_sites_store_make(job, mem, &s->places, err));
    for (uint32_t i = 1; i < job->n_datacenters; i++)
        if (job->datacenters[i].gpus_per_node < s->node)
            s->node = job->datacenters[i].gpus_per_node;
    for (uint32_t d = 1; d <= batch && d <= job->n_gpus; d++)
        s->n_data += is_data_degree(job, d);
    s->data = calloc(s->n_data + (size_t)1, sizeof *s->data);
    if (!s->data)
        return lhi_fail_nomem(err);
    for (uint32_t d = batch < job->n_gpus ? batch : job->n_gpus; d > 0; d--)
        if (is_data_degree(job, d))
            s->data[n++] = d;
    return LH_OK;
}

void lhi_space_fini(lhi_space *space)
{
    free(space->data);
    *space = (lhi_space){0};
}
