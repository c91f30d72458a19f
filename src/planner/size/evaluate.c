/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates one size: plans it, and predicts time and cost of the training. */
#include "planner/size/size_internal.h"

#include "base/fail.h"
#include "base/integer_math.h"
#include "format/job/job_values.h"
#include "format/job/parse.h"
#include "planner/search/cost.h"
#include "planner/search/search_budget.h"
#include "planner/search/unequal_bound.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Effort of a quick plan, in units of lh_plan_options.layout_effort: a plan of
 * Llama 3 70B on 64 to 512 GPUs is then within 5 % of the full search's. */
enum { QUICK_EFFORT = 4000000 };
/* The same for the sizes that are reported, which also get elastic plans. Just
 * below the effort whose local search lists an alternative for each value of a
 * dimension: that takes several times as long, and sizes list none. */
enum { FULL_EFFORT = LHI_MIN_SEARCH_WORK - 1 };
static const uint64_t EFFORTS[] = {
    [LHI_SIZE_QUICK] = FULL_EFFORT, /* if the search is not quick */
    [LHI_SIZE_FULL] = FULL_EFFORT,
    [LHI_SIZE_DEEP] = 0 /* the default of a plan */
};

/* --- job of a size -------------------------------------------------------- */

/* Checks whether the datacenter called `name` has nodes in this size (nodes[i]:
 * nodes of datacenter i); true if `name` is NULL. */
static bool has_nodes(const lh_job *job, const uint32_t *nodes,
                      const char *name)
{
    for (uint32_t i = 0; name && i < job->n_datacenters; i++)
        if (strcmp(job->datacenters[i].name, name) == 0)
            return nodes[i] > 0;
    return !name;
}

/* Gives *sized the job's profile without measurements of links whose
 * datacenters have no nodes in this size. */
static lh_status select_profile(const lh_job *job, const uint32_t *nodes,
                                lhi_arena *mem, lh_job *sized, lh_error *err)
{
    const lh_profile *from = job->profile;
    if (!from || !from->n_links)
        return LH_OK;
    lh_profile *to = LHI_NEW(mem, lh_profile, 1);
    lh_profile_link *links = LHI_NEW(mem, lh_profile_link, from->n_links);
    if (!to || !links)
        return lhi_fail_nomem(err);
    *to = *from;
    to->links = links;
    to->n_links = 0;
    for (uint32_t i = 0; i < from->n_links; i++) {
        const lh_profile_link *l = &from->links[i];
        if (has_nodes(job, nodes, l->site) && has_nodes(job, nodes, l->from) &&
            has_nodes(job, nodes, l->to))
            links[to->n_links++] = *l;
    }
    sized->profile = to;
    return LH_OK;
}

/* Gives *sized those datacenters that have nodes in this size, each with
 * nodes[i] nodes, and the links between them. */
static lh_status select_sites(const lh_job *job, const uint32_t *nodes,
                              lhi_arena *mem, lh_job *sized, lh_error *err)
{
    const uint32_t n = job->n_datacenters;
    lh_datacenter *sites = LHI_NEW(mem, lh_datacenter, n);
    lh_wan *wans = LHI_NEW(mem, lh_wan, (size_t)n * n);
    uint32_t used[LH_MAX_DATACENTERS], k = 0;
    if (!sites || !wans)
        return lhi_fail_nomem(err);
    sized->n_gpus = sized->n_nodes = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!nodes[i])
            continue;
        sites[k] = job->datacenters[i];
        sites[k].nodes = nodes[i];
        sites[k].gpus = nodes[i] * sites[k].gpus_per_node;
        sized->n_nodes += nodes[i];
        sized->n_gpus += sites[k].gpus;
        used[k++] = i;
    }
    for (uint32_t a = 0; a < k; a++)
        for (uint32_t b = 0; b < k; b++)
            wans[(size_t)a * k + b] = job->wans[(size_t)used[a] * n + used[b]];
    sized->n_datacenters = k;
    sized->datacenters = sites;
    sized->wans = wans;
    return LH_OK;
}

lh_status lh_size_job(const lh_job *job, const uint32_t *nodes, lh_job **out,
                      lh_error *err)
{
    char *text;
    size_t len;
    lh_job sized = *job;
    const lh_plan_options usual = {.size = sizeof usual};
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = select_sites(job, nodes, mem, &sized, err);
    if (status == LH_OK)
        status = select_profile(job, nodes, mem, &sized, err);
    if (status == LH_OK && sized.n_nodes == 0)
        status = lhi_fail(err, LH_EINVAL, "a size without nodes");
    /* A size may have one datacenter, or datacenters that do not differ: then
     * there is one tensor degree. */
    if (status == LH_OK && lhi_site_tensors_are_searched(job, &usual))
        sized.layout.tensor_per_site =
            lhi_site_tensors_are_searched(&sized, &usual);
    if (status == LH_OK)
        status = lh_job_format(&sized, &text, &len, err);
    if (status == LH_OK) {
        status = lh_job_parse(text, len, job->name, NULL, out, err);
        lh_text_free(text);
    }
    lhi_arena_free(mem);
    return status;
}

/* --- bound by work --- */

double lhi_size_work_bound_s(const lhi_size_search *s, const uint32_t *nodes)
{
    double rate = 0, gpus = 0;
    for (uint32_t i = 0; i < s->job->n_datacenters; i++) {
        const lh_datacenter *site = &s->job->datacenters[i];
        const double n = (double)nodes[i] * site->gpus_per_node;
        gpus += n;
        rate += n * lhi_gpu_max_flops_per_s(&site->gpu, s->job->framework.fp8);
    }
    return gpus > 0 ? fmax(s->flops / rate, s->gpu_s / gpus) : INFINITY;
}

double lhi_size_longest_s(const lhi_size_search *s)
{
    return s->options.deadline_s > 0 ? s->options.deadline_s / s->iterations
                                     : DBL_MAX;
}

/* Returns the efficiency of a plan on its own nodes: the bound by work on these
 * nodes, relative to the iteration. */
static double compute_efficiency(const lhi_size_search *s,
                                 const lhi_sized_plan *plan)
{
    return lhi_size_work_bound_s(s, plan->nodes) * 1e9 /
           (double)plan->iteration_ns;
}

/* Checks whether a plan is in the datacenters that have nodes[i] > 0 nodes. */
static bool is_in_datacenters(const lhi_size_search *s,
                              const lhi_sized_plan *plan, const uint32_t *nodes)
{
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        if ((plan->nodes[i] > 0) != (nodes[i] > 0))
            return false;
    return true;
}

double lhi_size_best_efficiency(const lhi_size_search *s, const uint32_t *nodes)
{
    double highest = 0;
    for (uint32_t i = 0; i < s->n_planned; i++)
        for (uint32_t k = 0; k < s->planned[i]->n_plans; k++) {
            const lhi_sized_plan *plan = &s->planned[i]->plans[k];
            if (!nodes || is_in_datacenters(s, plan, nodes))
                highest = fmax(highest, compute_efficiency(s, plan));
        }
    if (!(highest > 0) && nodes)
        return lhi_size_best_efficiency(s, NULL);
    return highest > 0 ? highest : 1;
}

/* --- plans ---------------------------------------------------------------- */

/* Appends a size without plans, nodes[i] nodes in datacenter i, to the list of
 * planned sizes and returns it. */
static lhi_planned_size *add_planned(lhi_size_search *s, const uint32_t *nodes,
                                     lh_error *err)
{
    if (s->n_planned == s->n_allocated) {
        const uint32_t room = s->n_allocated ? 2 * s->n_allocated : 64;
        lhi_planned_size **all = LHI_NEW(s->mem, lhi_planned_size *, room);
        if (!all) {
            lhi_fail_nomem(err);
            return NULL;
        }
        if (s->n_planned)
            memcpy(all, s->planned, s->n_planned * sizeof(*all));
        s->planned = all;
        s->n_allocated = room;
    }
    lhi_planned_size *size = LHI_NEW(s->mem, lhi_planned_size, 1);
    if (!size) {
        lhi_fail_nomem(err);
        return NULL;
    }
    memcpy(size->nodes, nodes, s->job->n_datacenters * sizeof *nodes);
    s->planned[s->n_planned++] = size;
    return size;
}

/* Sets plan->nodes, the nodes that a plan of the size needs per datacenter:
 * those in use, and at least the least of the job's range. `job` has only the
 * size's datacenters. */
static lh_status set_nodes(const lhi_size_search *s,
                           const lhi_planned_size *size, const lh_job *job,
                           const lh_layout *layout, lhi_sized_plan *plan,
                           lh_error *err)
{
    uint32_t used[LH_MAX_DATACENTERS], k = 0;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    const lh_status status =
        lhi_pricing_count_nodes(job, layout, mem, used, err);
    lhi_arena_free(mem);
    for (uint32_t i = 0; status == LH_OK && i < s->job->n_datacenters; i++) {
        const uint32_t all = size->nodes[i], least = s->ranges[i].least;
        const uint32_t n = all ? used[k++] : 0;
        plan->nodes[i] = n >= least ? n : least < all ? least : all;
    }
    return status;
}

/* Appends a plan candidate to the size's list of plans, if it is feasible and
 * the list is not full. */
static lh_status keep_choice(const lhi_size_search *s, lhi_planned_size *size,
                             const lh_job *job, const lh_choice *choice,
                             lh_error *err)
{
    if (choice->status != LH_CHOICE_OK || size->n_plans == LHI_SIZE_PLANS)
        return LH_OK;
    lhi_sized_plan *plan = &size->plans[size->n_plans];
    LHI_TRY(set_nodes(s, size, job, &choice->layout, plan, err));
    size->n_plans++;
    plan->layout = choice->layout;
    plan->layout.schedule = NULL; /* the plan owns what they point to */
    plan->layout.sites = NULL;
    plan->layout.group_micro_batches = plan->layout.site_tensors = NULL;
    plan->layout.chunk_layers = NULL;
    plan->layout.n_chunk_layers = 0;
    plan->iteration_ns = choice->iteration_ns;
    plan->between_usd = choice->cost ? choice->cost->between_usd : 0;
    return LH_OK;
}

/* Raises the lower bound on the size's iteration time to that of a plan's
 * search. For a quick plan, takes the bound with unequal microbatches if that
 * is lower: a full plan may have them. */
static lh_status keep_bound(lhi_planned_size *size, const lh_plan *plan,
                            const lh_plan_options *options, lh_error *err)
{
    lh_plan_options full = *options;
    int64_t ns = plan->search_bound_ns, differing_ns;
    full.quick = false;
    if (plan->objective != LH_PLAN_FASTEST)
        return LH_OK;
    if (options->quick) {
        LHI_TRY(
            lhi_differing_compute_bound(plan->job, &full, &differing_ns, err));
        ns = lhi_min_int64(ns, differing_ns);
    }
    size->bound_ns = lhi_max_int64(size->bound_ns, ns);
    return LH_OK;
}

/* Appends those plans of quick search `quick` to the size's list that none of
 * its plans beats in both time and price of traffic. */
static void keep_unbeaten(lhi_planned_size *size, const lhi_planned_size *quick)
{
    const uint32_t n = size->n_plans;
    for (uint32_t i = 0; i < quick->n_plans; i++) {
        const lhi_sized_plan *q = &quick->plans[i];
        bool beaten = size->n_plans == LHI_SIZE_PLANS;
        for (uint32_t k = 0; k < n; k++)
            beaten =
                beaten || (size->plans[k].iteration_ns <= q->iteration_ns &&
                           size->plans[k].between_usd <= q->between_usd);
        if (!beaten)
            size->plans[size->n_plans++] = *q;
    }
}

/* Copies the plan and its best alternatives, `most` in all, to the size's list
 * of plans. */
static lh_status keep_plan(const lhi_size_search *s, lhi_planned_size *size,
                           const lh_plan *plan, uint32_t most, lh_error *err)
{
    LHI_TRY(keep_choice(s, size, plan->job, &plan->best, err));
    for (uint32_t i = 0; i < plan->n_alternatives && i + 1 < most; i++)
        LHI_TRY(keep_choice(s, size, plan->job, &plan->alternatives[i], err));
    return LH_OK;
}

/* Checks whether any link between the job's datacenters has a price for its
 * traffic. */
static bool has_priced_links(const lh_job *job)
{
    const uint32_t n = job->n_datacenters * job->n_datacenters;
    for (uint32_t i = 0; i < n; i++)
        if (job->wans[i].usd_per_gb > 0)
            return true;
    return false;
}

/* Exchanges a size's fastest plan with the first of its list. */
static void move_fastest_first(lhi_planned_size *size)
{
    for (uint32_t i = 1; i < size->n_plans; i++)
        if (size->plans[i].iteration_ns < size->plans[0].iteration_ns) {
            const lhi_sized_plan fastest = size->plans[i];
            size->plans[i] = size->plans[0];
            size->plans[0] = fastest;
        }
}

/* One search for plans of a size. */
typedef struct plan_search {
    lh_plan_objective objective;
    int64_t max_ns;        /* longest iteration; 0: no limit */
    bool quick;            /* an even partition and fast methods only */
    const lh_layout *like; /* layout whose degrees it fixes; NULL: none */
    bool like_micro_batch; /* also fixes its microbatch size */
} plan_search;

/* Fixes in the job the tensor, context and expert degrees of the search's
 * layout and, if requested, its microbatch size. */
static void fix_degrees(const plan_search *search, lh_job *job)
{
    const lh_layout *like = search->like;
    if (!like)
        return;
    job->layout.tensor = like->tensor;
    job->layout.context = like->context;
    job->layout.expert = like->expert;
    if (search->like_micro_batch)
        job->layout.micro_batch = like->micro_batch;
}

/* Runs one search on a size's job, and appends its best plans to the size's
 * list; none if no layout works. A search over all layouts and partitions also
 * raises the size's lower bound: the bound of a quick search holds for all
 * partitions too. The longer search for known degrees moves no layers, which
 * would take several times as long, and gives no bound. */
static lh_status run_search(lhi_size_search *s, const lh_job *job,
                            const plan_search *search, lhi_planned_size *size,
                            lh_error *err)
{
    const uint32_t most = LHI_SIZE_CHOICES;
    const bool even = !search->quick && size->depth == LHI_SIZE_QUICK;
    lh_plan *plan = NULL;
    lh_job fixed = *job;
    lh_error why = {0};
    lh_plan_options o = {
        .size = sizeof o,
        .top = most,
        .objective = search->objective,
        .threads = s->options.threads,
        .no_optimal = true,
        .partition = even ? LH_PARTITION_EVEN : LH_PARTITION_HILL_CLIMBING,
        .quick = search->quick,
        .layout_effort = search->quick ? QUICK_EFFORT : EFFORTS[size->depth],
        .max_iteration_ns = search->max_ns};
    fix_degrees(search, &fixed);
    lh_status status = lh_plan_make(&fixed, &o, &plan, &why);
    if (status == LH_OK)
        status = keep_plan(s, size, plan, most, &why);
    /* the bound holds only for the plan's number of slices */
    if (status == LH_OK && !search->like && !even &&
        job->layout.slices != LHI_SLICES_AUTO)
        status = keep_bound(size, plan, &o, &why);
    /* another size's degrees may not divide this one's batch */
    const bool none =
        status == LH_EINFEASIBLE || (search->like && status == LH_EINPUT);
    if (status != LH_OK && !none && err)
        *err = why;
    lh_plan_free(plan);
    return none ? LH_OK : status;
}

/* Returns the layout with the highest efficiency of the fastest plans of all
 * planned sizes: its degrees usually suit other sizes. NULL: none is planned,
 * or tensor degrees differ per datacenter. */
static const lh_layout *find_known_layout(const lhi_size_search *s)
{
    const lh_layout *best = NULL;
    double most = 0;
    if (s->job->layout.tensor_per_site)
        return NULL;
    for (uint32_t i = 0; i < s->n_planned; i++) {
        const lhi_sized_plan *plan = s->planned[i]->plans;
        if (s->planned[i]->n_plans && compute_efficiency(s, plan) > most) {
            most = compute_efficiency(s, plan);
            best = &plan->layout;
        }
    }
    return best;
}

/* Computes the longest iteration with which a size meets the deadline with all
 * its nodes, into *max_ns; 0: no deadline, or no plan of the size meets it. */
static lh_status limit_iteration(const lhi_size_search *s,
                                 const lhi_planned_size *size, int64_t *max_ns,
                                 lh_error *err)
{
    lh_goodput goodput;
    lh_failures f = s->failures;
    double speeds[LH_MAX_DATACENTERS];
    *max_ns = 0;
    if (!(s->options.deadline_s > 0) || !size->n_plans)
        return LH_OK;
    lhi_size_find_node_loss_speeds(s, size->nodes, size->plans[0].iteration_ns,
                                   speeds);
    f.node_loss_speeds = speeds;
    LHI_TRY(lh_goodput_compute(s->job, size->nodes, &f, &goodput, err));
    const double ns = lhi_size_longest_s(s) * goodput.fraction * 1e9;
    if ((double)size->plans[0].iteration_ns <= ns)
        *max_ns = (int64_t)fmin(ns, 0x1p62);
    return LH_OK;
}

/* Searches the fastest plans of a size's job. With a deadline a quick search
 * first tries the degrees that are best on other sizes, and all layouts only if
 * it then misses the deadline, or is far less efficient than the others. If no
 * other size is planned, the search is longer: other sizes use its degrees.
 * *max_ns as of limit_iteration(). */
static lh_status plan_fastest(lhi_size_search *s, const lh_job *job,
                              lhi_planned_size *size, int64_t *max_ns,
                              lh_error *err)
{
    const bool quick = size->depth == LHI_SIZE_QUICK;
    const bool known = quick && s->options.deadline_s > 0;
    plan_search search = {.objective = LH_PLAN_FASTEST,
                          .quick = quick,
                          .like = known ? find_known_layout(s) : NULL,
                          .like_micro_batch = true};
    if (search.like) {
        LHI_TRY(run_search(s, job, &search, size, err));
        move_fastest_first(size);
        LHI_TRY(limit_iteration(s, size, max_ns, err));
        if (*max_ns > 0 && lhi_size_work_bound_s(s, size->nodes) * 1e9 *
                                   LHI_SIZE_EFFICIENCY_MARGIN >=
                               lhi_size_best_efficiency(s, NULL) *
                                   (double)size->plans[0].iteration_ns)
            return LH_OK;
    }
    search.quick = quick && (!known || search.like);
    search.like = NULL;
    LHI_TRY(run_search(s, job, &search, size, err));
    move_fastest_first(size);
    return limit_iteration(s, size, max_ns, err);
}

/* Searches the cheapest plans of a size's job that meet the deadline, with the
 * degrees of the size's fastest plan; also over all layouts if the search is
 * not quick, and only over these without a deadline. */
static lh_status plan_cheapest(lhi_size_search *s, const lh_job *job,
                               lhi_planned_size *size, int64_t max_ns,
                               lh_error *err)
{
    const bool quick = size->depth == LHI_SIZE_QUICK;
    const lh_layout fastest = size->plans[0].layout;
    plan_search search = {
        .objective = LH_PLAN_CHEAPEST, .max_ns = max_ns, .quick = true};
    if (!quick || max_ns == 0)
        LHI_TRY(run_search(s, job, &search, size, err));
    search.quick = quick;
    search.like = &fastest;
    search.like_micro_batch = quick;
    if (max_ns == 0 || s->job->layout.tensor_per_site)
        return LH_OK;
    return run_search(s, job, &search, size, err);
}

/* Plans a size for the least time and, if traffic has a price, for the least
 * cost within the deadline. Appends no plan if the job's fixed degrees need
 * more GPUs. */
static lh_status plan_size(lhi_size_search *s, lhi_planned_size *size,
                           lh_error *err)
{
    lh_job *job = NULL;
    uint64_t gpus = 0;
    int64_t max_ns = 0;
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        gpus += (uint64_t)size->nodes[i] * s->job->datacenters[i].gpus_per_node;
    if (!lhi_layout_fits_gpus(&s->job->layout, gpus))
        return LH_OK;
    LHI_TRY(lh_size_job(s->job, size->nodes, &job, err));
    lh_status status = plan_fastest(s, job, size, &max_ns, err);
    const bool late = s->options.deadline_s > 0 && max_ns == 0;
    if (status == LH_OK && s->priced && has_priced_links(job) &&
        size->n_plans && !late)
        status = plan_cheapest(s, job, size, max_ns, err);
    move_fastest_first(size);
    lh_job_free(job);
    s->n_plans_made++;
    return status;
}

lh_status lhi_size_plan(lhi_size_search *s, const uint32_t *nodes,
                        lhi_size_depth depth, const lhi_planned_size **out,
                        lh_error *err)
{
    lhi_planned_size *size =
        (lhi_planned_size *)lhi_size_find_planned(s, nodes);
    *out = size;
    if (size && size->depth >= depth)
        return LH_OK;
    if (s->options.progress &&
        s->options.progress(s->options.context, s->n_plans_made,
                            s->options.effort))
        return lhi_fail(err, LH_ECANCELED, "stopped");
    if (!size)
        size = add_planned(s, nodes, err);
    if (!size)
        return LH_ENOMEM;
    *out = size;
    size->depth = depth;
    const lhi_planned_size before = *size;
    size->n_plans = 0;
    LHI_TRY(plan_size(s, size, err));
    keep_unbeaten(size, &before); /* the search before may have found better */
    move_fastest_first(size);
    return LH_OK;
}

lh_status lhi_size_plan_deeply(lhi_size_search *s, const uint32_t *nodes,
                               lh_error *err)
{
    const lhi_planned_size *size = lhi_size_find_planned(s, nodes);
    const double longest_s = lhi_size_longest_s(s);
    if (lhi_size_work_bound_s(s, nodes) > longest_s ||
        (size && (double)size->bound_ns / 1e9 > longest_s))
        return LH_OK;
    return lhi_size_plan(s, nodes, LHI_SIZE_DEEP, &size, err);
}

/* --- training run --------------------------------------------------------- */

void lhi_size_set_failures(const lhi_size_search *s, bool spot, lh_failures *f)
{
    *f = s->failures;
    if (spot) /* rates add up */
        f->node_mtbf_s = 1 / (1 / s->options.spot_mtbf_s +
                              (f->node_mtbf_s > 0 ? 1 / f->node_mtbf_s : 0));
}

lh_status lhi_size_predict(const lhi_size_search *s, const lhi_sized_plan *plan,
                           bool spot, lh_size *out, lh_error *err)
{
    const lh_job *job = s->job;
    lh_failures f;
    double usd_per_hour = 0, speeds[LH_MAX_DATACENTERS];
    *out = (lh_size){.spot = spot,
                     .layout = plan->layout,
                     .iteration_ns = plan->iteration_ns,
                     .usd = -1,
                     .gpus_usd = -1,
                     .between_usd = -1};
    lhi_size_set_failures(s, spot, &f);
    out->node_loss_s = lhi_size_find_node_loss_speeds(
        s, plan->nodes, plan->iteration_ns, speeds);
    f.node_loss_speeds = speeds;
    LHI_TRY(lh_goodput_compute(job, plan->nodes, &f, &out->goodput, err));
    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        const lh_datacenter *site = &job->datacenters[i];
        const uint32_t spares = plan->nodes[i] ? f.spares : 0;
        out->nodes[i] = plan->nodes[i];
        out->gpus += plan->nodes[i] * site->gpus_per_node;
        out->spare_gpus += spares * site->gpus_per_node;
        usd_per_hour += (double)(plan->nodes[i] + spares) *
                        site->gpus_per_node * site->usd_per_gpu_hour;
    }
    const double seconds = (double)plan->iteration_ns / 1e9;
    out->tokens_per_s =
        (double)job->training.global_batch * job->training.sequence / seconds;
    out->train_s = s->iterations * seconds / out->goodput.fraction;
    if (s->priced) {
        out->gpus_usd = usd_per_hour * out->train_s / LHI_HOUR_S *
                        (spot ? s->options.spot_price : 1);
        out->between_usd = plan->between_usd * s->iterations;
        out->usd = out->gpus_usd + out->between_usd;
    }
    return LH_OK;
}

bool lhi_size_meets(const lhi_size_search *s, const lh_size *size)
{
    const lh_size_options *o = &s->options;
    return isfinite(size->train_s) &&
           (!(o->deadline_s > 0) || size->train_s <= o->deadline_s) &&
           (!(o->budget_usd > 0) || size->usd <= o->budget_usd);
}
