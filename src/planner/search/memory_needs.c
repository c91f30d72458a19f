/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for the changes that make a job fit in memory: more memory per GPU,
 * more nodes, or another value of a training key.
 *
 * 1. Each change is a number or a key. More of a number never removes a layout,
 *    so the least sufficient number is found by doubling and bisection.
 * 2. Each number is tested by a search for any layout that works. Bisection
 *    runs branch and bound over the layouts that need the least memory: one
 *    sequence per microbatch, and full recomputation.
 * 3. Memory slightly below the result is tested with all layouts and all the
 *    plan search's steps: moved layers, local search and elastic plans. If
 * that succeeds, bisection is repeated in this way. */
#include "planner/search/memory_needs.h"

#include "base/fail.h"
#include "base/integer_math.h"
#include "format/job/job_values.h"
#include "planner/layout/target_flags.h"
#include "planner/search/elastic_search.h"
#include "planner/search/local_search.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Largest node count tested, as a multiple of the job's. */
    MAX_NODE_FACTOR = 64
};

/* A key that reduces the memory by less is not worth a change. */
static const double MIN_KEY_REDUCTION = 0.05;
/* Largest memory per GPU tested, as a multiple of the job's least. */
static const double MAX_MEMORY_FACTOR = 1024;

/* State of the searches for one job. */
typedef struct needs_search {
    const lhi_layout_search *like; /* options and threads */
    bool cancelled;                /* the caller asked to stop */
} needs_search;

/* --- one search ----------------------------------------------------------- */

/* Callbacks of one search: stop at the first layout that works. */
typedef struct first_result {
    const lh_plan_options *given;
} first_result;

/* Calls the caller's progress callback. Returns true if it asks to stop, which
 * also ends all later steps. */
static bool is_asked_to_stop(void *context, uint32_t done, uint32_t total,
                             int64_t best_ns)
{
    const first_result *f = context;
    return f->given->progress &&
           f->given->progress(f->given->context, done, total, best_ns);
}

/* Checks whether the search has a feasible plan, which ends it. Progress
 * callback. */
static bool has_result(void *context, const lh_plan_progress *now)
{
    (void)context;
    return now->best_ns >= 0;
}

/* Returns a configuration's degrees, microbatch size, ZeRO stage and
 * recomputation, as a layout with which the job fits into memory. */
static lh_fitting_layout find_fitting_layout(const lhi_config *config)
{
    const lh_layout *l = &config->layout;
    return (lh_fitting_layout){.tensor = l->tensor,
                               .context = l->context,
                               .expert = l->expert,
                               .pipeline = l->pipeline,
                               .data = l->data,
                               .micro_batch = l->micro_batch,
                               .zero = config->zero,
                               .recompute = config->recompute};
}

/* Runs one step of the layout search, unless an earlier step has found a
 * feasible layout. */
static lh_status run_step(lhi_layout_search *s,
                          lh_status (*step)(lhi_layout_search *, lh_error *),
                          lh_error *err)
{
    return lhi_layout_search_find_best(s) ? LH_OK : step(s, err);
}

/* Searches for any elastic plan that fits into memory. *found: there is one,
 * and *at receives its layout. */
static lh_status search_elastic(lhi_layout_search *s, lh_fitting_layout *at,
                                bool *found, lh_error *err)
{
    lhi_elastic_result best;
    s->options.quick = true; /* stop at the first one */
    LHI_TRY(lhi_elastic_search(s, true, &best, err));
    *found = best.schedule != NULL;
    if (*found)
        *at = find_fitting_layout(&best.config);
    lh_pipeline_free(best.built.pipeline);
    lh_schedule_free(best.schedule);
    return LH_OK;
}

/* Fixes the microbatch size to 1 and recomputation to full, which need the
 * least memory, unless the job fixes them. Leaves the size open if there would
 * be more than LHI_MOST_MICROBATCHES microbatches. */
static void restrict_job(lh_job *job)
{
    lh_training *t = &job->training;
    if (!job->layout.micro_batch && t->global_batch <= LHI_MOST_MICROBATCHES)
        job->layout.micro_batch = 1;
    if (!t->recompute_given && t->offload_share <= 0) {
        t->recompute_given = true;
        t->recompute = LH_RECOMPUTE_FULL;
    }
}

/* Checks whether any layout of the job fits into memory. *found: one does, and
 * *at is such a layout. `all_steps`: all layouts and all steps of the plan's
 * search, else only the layouts with the least memory. */
static lh_status check_fit(needs_search *n, const lh_job *job, bool all_steps,
                           lh_fitting_layout *at, bool *found, lh_error *err)
{
    first_result watch = {&n->like->options};
    lhi_arena *mem = lhi_arena_make(0);
    lh_job restricted = *job;
    lhi_layout_search s = {.job = all_steps ? job : &restricted,
                           .options = n->like->options,
                           .mem = mem,
                           .workers = n->like->workers};
    s.options.progress = is_asked_to_stop;
    s.options.layout_progress = has_result;
    s.options.context = &watch;
    s.options.objective = LH_PLAN_FASTEST;
    s.options.seconds = 0;
    s.options.quick = s.options.quick || !all_steps;
    *found = false;
    if (!mem)
        return lhi_fail_nomem(err);
    restrict_job(&restricted);
    lh_status status = lhi_layout_search_branch_and_bound(&s, err);
    if (status == LH_OK && !s.options.quick)
        status = run_step(&s, lhi_layout_search_move_layers, err);
    if (status == LH_OK && !s.options.quick)
        status = run_step(&s, lhi_layout_search_run_local_search, err);
    const lhi_candidate *best =
        status == LH_OK ? lhi_layout_search_find_best(&s) : NULL;
    if (best) {
        *at = find_fitting_layout(&best->config);
        *found = true;
    } else if (status == LH_OK && (all_steps || lhi_elastic_is_required(job))) {
        status = search_elastic(&s, at, found, err);
    }
    n->cancelled = n->cancelled || s.cancelled;
    free(s.candidates);
    lhi_arena_free(mem);
    return status;
}

/* --- least sufficient number ---------------------------------------------- */

/* A number of the job that may be raised. */
typedef struct job_number {
    const lh_job *job;
    double lowest, highest; /* `lowest` does not fit */
    /* Returns the number to test between two; `low`: none. */
    double (*between)(double low, double high);
    /* Returns the number that must not fit if `value` is the least; NULL: not
     * tested. */
    double (*below)(double value);
    /* Fills a copy of the job; `sites` holds its datacenters. */
    void (*set)(const lh_job *job, double value, lh_job *out,
                lh_datacenter *sites);
} job_number;

/* Checks whether the job fits into memory with the tested number (memory per
 * GPU, or nodes) set to `value`. *found: it does, and *at is a layout.
 * `all_steps`: as for check_fit(). */
static lh_status check_number(needs_search *n, const job_number *number,
                              double value, bool all_steps,
                              lh_fitting_layout *at, bool *found, lh_error *err)
{
    lh_datacenter sites[LH_MAX_DATACENTERS];
    lh_job job = *number->job;
    memcpy(sites, job.datacenters, job.n_datacenters * sizeof *sites);
    job.datacenters = sites;
    number->set(number->job, value, &job, sites);
    return check_fit(n, &job, all_steps, at, found, err);
}

/* Bisects the tested number (memory per GPU, or nodes) between `low`, with
 * which the job does not fit into memory, and *high, with which it does; *at is
 * a layout for the final *high. `all_steps`: as for check_fit(). */
static lh_status bisect_number(needs_search *n, const job_number *number,
                               bool all_steps, double low, double *high,
                               lh_fitting_layout *at, lh_error *err)
{
    double middle;
    while ((middle = number->between(low, *high)) > low && !n->cancelled) {
        lh_fitting_layout here;
        bool found;
        LHI_TRY(check_number(n, number, middle, all_steps, &here, &found, err));
        if (found) {
            *high = middle;
            *at = here;
        } else {
            low = middle;
        }
    }
    return LH_OK;
}

/* Finds the least value of the tested number (memory per GPU, or nodes) with
 * which the job fits into memory, into *out, with a layout in *at; 0: none up
 * to the number's highest value. */
static lh_status find_least(needs_search *n, const job_number *number,
                            double *out, lh_fitting_layout *at, lh_error *err)
{
    double low = number->lowest, high = low;
    bool found = false;
    *out = 0;
    while (!found && high < number->highest && !n->cancelled) {
        low = high;
        high = fmin(2 * high, number->highest);
        LHI_TRY(check_number(n, number, high, false, at, &found, err));
    }
    if (!found || n->cancelled)
        return LH_OK;
    LHI_TRY(bisect_number(n, number, false, low, &high, at, err));
    const double below = number->below ? number->below(high) : number->lowest;
    lh_fitting_layout better;
    found = false;
    if (below > number->lowest)
        LHI_TRY(check_number(n, number, below, true, &better, &found, err));
    if (found) {
        high = below;
        *at = better;
        LHI_TRY(bisect_number(n, number, true, number->lowest, &high, at, err));
    }
    *out = n->cancelled ? 0 : high;
    return LH_OK;
}

/* --- memory per GPU ------------------------------------------------------- */

/* Rounding errors of memory sizes are below this share of the last digit. */
static const double ROUNDING = 1e-6;

/* Returns the unit of the fourth significant digit of a memory size in GiB. */
static double compute_last_digit(double gib)
{
    return pow(10, floor(log10(gib)) - 3);
}

/* Rounds a memory size in GiB up to four significant digits, which are printed
 * in full. */
static double round_up(double gib)
{
    const double unit = compute_last_digit(gib);
    return ceil(gib / unit - ROUNDING) * unit;
}

/* Returns the memory size in GiB to test between `low` and `high`, a size of
 * four digits: their geometric mean, rounded up. Returns `low` if there is no
 * size of four digits between them. */
static double halve_memory(double low, double high)
{
    const double middle = round_up(sqrt(low * high));
    const double unit = compute_last_digit(high);
    return middle >= high - ROUNDING * unit ? low : middle;
}

/* Returns the next lower memory size of four digits, which must not fit if
 * `gib` is the least. */
static double reduce_memory(double gib)
{
    const double unit = compute_last_digit(gib);
    return gib - compute_last_digit(gib - ROUNDING * unit);
}

/* Raises every GPU type's memory in sites[], a copy of the job's datacenters,
 * to at least `gib` GiB; `out` is not used. */
static void set_memory(const lh_job *job, double gib, lh_job *out,
                       lh_datacenter *sites)
{
    (void)out;
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        if (sites[i].gpu.memory_gib < gib) {
            sites[i].gpu.memory_gib = gib;
            sites[i].gpu.memory_bytes = llround(gib * 0x1p30);
        }
}

/* Returns the job's smallest GPU memory, in GiB. */
static double find_least_memory(const lh_job *job)
{
    double least = job->datacenters[0].gpu.memory_gib;
    for (uint32_t i = 1; i < job->n_datacenters; i++)
        least = fmin(least, job->datacenters[i].gpu.memory_gib);
    return least;
}

/* Returns the tested number's description for the least memory per GPU, in
 * GiB. */
static job_number make_memory_number(const lh_job *job)
{
    const double least = find_least_memory(job);
    return (job_number){.job = job,
                        .lowest = least,
                        .highest = round_up(MAX_MEMORY_FACTOR * least),
                        .between = halve_memory,
                        .below = reduce_memory,
                        .set = set_memory};
}

/* --- nodes ---------------------------------------------------------------- */

/* Returns the greatest common divisor of the datacenters' node counts. */
static uint32_t count_node_parts(const lh_job *job)
{
    int64_t parts = 0;
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        parts = lhi_gcd(parts, job->datacenters[i].nodes);
    return (uint32_t)parts;
}

/* Returns the number of nodes to test between `low` and `high`; `low`: there is
 * none. */
static double halve_nodes(double low, double high)
{
    return floor((low + high) / 2);
}

/* Scales all datacenters' nodes so that their greatest common divisor
 * becomes `parts`. A job with one node has no fabric; its node link is used,
 * because links do not change the memory. */
static void set_nodes(const lh_job *job, double parts, lh_job *out,
                      lh_datacenter *sites)
{
    const uint32_t before = count_node_parts(job);
    out->n_nodes = out->n_gpus = 0;
    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        lh_datacenter *dc = &sites[i];
        dc->nodes = dc->nodes / before * (uint32_t)parts;
        dc->gpus = dc->nodes * dc->gpus_per_node;
        if (!(dc->fabric.gbps > 0))
            dc->fabric = dc->node_link;
        out->n_nodes += dc->nodes;
        out->n_gpus += dc->gpus;
    }
}

/* Returns the tested number's description for the least number of nodes, as
 * multiples of the greatest common divisor of all datacenters. */
static job_number make_nodes_number(const lh_job *job)
{
    const uint32_t parts = count_node_parts(job);
    return (job_number){.job = job,
                        .lowest = parts,
                        .highest = fmin((double)MAX_NODE_FACTOR * parts,
                                        LH_MAX_GPUS / (job->n_gpus / parts)),
                        .between = halve_nodes,
                        .set = set_nodes};
}

/* Checks whether every datacenter has a fabric or node link, so that nodes can
 * be added. */
static bool has_links_for_nodes(const lh_job *job)
{
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        if (!(job->datacenters[i].fabric.gbps > 0) &&
            !(job->datacenters[i].node_link.gbps > 0))
            return false;
    return true;
}

/* Finds the fewest nodes and GPUs with which the job fits, in the job's
 * proportions. Leaves 0 if links between nodes are not given. */
static lh_status find_nodes(needs_search *n, const lh_job *job,
                            lh_memory_needs *out, lh_error *err)
{
    const job_number number = make_nodes_number(job);
    double parts;
    if (!has_links_for_nodes(job))
        return LH_OK;
    LHI_TRY(find_least(n, &number, &parts, &out->nodes_layout, err));
    const double factor = parts / number.lowest;
    out->nodes = (uint32_t)lround(job->n_nodes * factor);
    out->gpus = (uint32_t)lround(job->n_gpus * factor);
    return LH_OK;
}

/* --- keys of the job ------------------------------------------------------ */

/* Slices that a long sequence is cut into, at most, and tokens of a slice, at
 * least: shorter slices leave GPUs little work per kernel. */
enum { MOST_SLICES = 16, LEAST_SLICE_TOKENS = 8192 };

/* Keys that reduce the memory. */
typedef enum memory_key {
    MEMORY_KEY_ZERO,
    MEMORY_KEY_RECOMPUTE,
    MEMORY_KEY_OFFLOAD,
    MEMORY_KEY_SLICES,
    MEMORY_KEY_OPTION,
    N_MEMORY_KEYS
} memory_key;

bool lhi_reduce_memory_by_option(lh_job *job, lhi_option_change *out)
{
    lh_framework *f = &job->framework;
    if (job->target == LH_TARGET_MEGATRON &&
        job->training.precision == LH_PRECISION_BF16 &&
        f->gradients != LH_GRADIENT_BF16) {
        *out = (lhi_option_change){
            .key = "framework.gradients: bf16, framework.reduce: bf16",
            .flag = LHI_FLAG_REDUCE_BF16,
            .fixed = f->gradients_given || f->reduce_given};
        f->gradients = f->reduce = LH_GRADIENT_BF16;
        return true;
    }
    if (job->target == LH_TARGET_TORCHTITAN && f->kernels == LH_KERNELS_EAGER) {
        *out = (lhi_option_change){.key = "framework.kernels: fused",
                                   .flag = LHI_FLAG_COMPILE,
                                   .fixed = f->kernels_given};
        f->kernels = LH_KERNELS_FUSED;
        return true;
    }
    return false;
}

/* Cuts the job's sequences into slices. Returns false if they are too short, or
 * the job or its schedule does not support it. */
static bool cut_sequences(lh_job *job)
{
    uint32_t k = MOST_SLICES, tokens = job->training.sequence;
    if (job->layout.slices ||
        (job->target != LH_TARGET_ANY && job->target != LH_TARGET_LONGHAUL) ||
        lhi_schedule_requested(job) != LHI_REQUEST_ANY ||
        job->layout.chunks_per_device > 1 || job->layout.context > 1 ||
        lhi_job_find_slice_obstacle(job))
        return false;
    while (k > 1 && (tokens % k != 0 || tokens / k < LEAST_SLICE_TOKENS))
        k /= 2;
    job->layout.slices = k > 1 ? k : 0;
    return k > 1;
}

/* Relaxes one job key that restricts memory (such as the ZeRO stage,
 * recomputation, or an option of the training program): leaves it open, or sets
 * it to its maximum. Returns false if that changes nothing or is not supported.
 */
static bool relax_key(lh_job *job, memory_key key)
{
    lh_training *t = &job->training;
    lhi_option_change option;
    switch (key) {
    case MEMORY_KEY_ZERO:
        if (!t->zero_given || t->zero >= 3 || job->n_gpus == 1)
            return false;
        t->zero_given = false;
        return true;
    case MEMORY_KEY_RECOMPUTE:
        if (!t->recompute_given || t->recompute == LH_RECOMPUTE_FULL)
            return false;
        t->recompute_given = false;
        return true;
    case MEMORY_KEY_OFFLOAD:
        if (t->offload_share >= 1 ||
            (t->recompute_given && t->recompute == LH_RECOMPUTE_FULL) ||
            (job->target != LH_TARGET_ANY && job->target != LH_TARGET_LONGHAUL))
            return false;
        t->offload_share = 1;
        return true;
    case MEMORY_KEY_SLICES:
        return cut_sequences(job);
    case MEMORY_KEY_OPTION:
        return lhi_reduce_memory_by_option(job, &option);
    case N_MEMORY_KEYS:
        break;
    }
    return false;
}

/* Formats into out->key the job key `key`, changed from `job` to `relaxed`,
 * with its value in layout `at`, with which the job fits into memory. */
static void format_key(memory_key key, const lh_job *job, const lh_job *relaxed,
                       const lh_fitting_layout *at, lh_memory_needs *out)
{
    lh_job again = *job;
    lhi_option_change option;
    switch (key) {
    case MEMORY_KEY_ZERO:
        snprintf(out->key, sizeof out->key, "training.zero: %" PRIu32,
                 at->zero);
        break;
    case MEMORY_KEY_RECOMPUTE:
        snprintf(out->key, sizeof out->key, "training.recompute: %s",
                 lh_recompute_name(at->recompute));
        break;
    case MEMORY_KEY_SLICES:
        snprintf(out->key, sizeof out->key, "layout.slices: %" PRIu32,
                 relaxed->layout.slices);
        break;
    case MEMORY_KEY_OPTION:
        if (lhi_reduce_memory_by_option(&again, &option))
            snprintf(out->key, sizeof out->key, "%s", option.key);
        break;
    case MEMORY_KEY_OFFLOAD:
    case N_MEMORY_KEYS:
        snprintf(out->key, sizeof out->key, "training.offload: 1");
        break;
    }
}

/* Finds the least memory per GPU, in GiB, with which `job` fits, into *gib; 0:
 * more than `most`. `job` has one key relaxed; `at` receives a layout that
 * fits. */
static lh_status find_memory_with_key(needs_search *n, const lh_job *job,
                                      double most, double *gib,
                                      lh_fitting_layout *at, lh_error *err)
{
    job_number number = make_memory_number(job);
    bool found;
    *gib = 0;
    number.highest = round_up(most);
    number.below = NULL;
    LHI_TRY(check_number(n, &number, number.highest, false, at, &found, err));
    if (!found)
        return LH_OK;
    LHI_TRY(check_number(n, &number, number.lowest, false, at, &found, err));
    *gib = number.lowest;
    return found ? LH_OK : find_least(n, &number, gib, at, err);
}

/* Finds the job key (such as the ZeRO stage or recomputation) whose change
 * reduces the needed memory per GPU most, and stores it in *out if the
 * reduction is large enough. */
static lh_status find_key(needs_search *n, const lh_job *job,
                          lh_memory_needs *out, lh_error *err)
{
    double most = out->gpu_gib * (1 - MIN_KEY_REDUCTION);
    for (int k = 0; k < N_MEMORY_KEYS && most > 0 && !n->cancelled; k++) {
        lh_job relaxed = *job;
        lh_fitting_layout at;
        double gib = 0;
        if (relax_key(&relaxed, (memory_key)k))
            LHI_TRY(find_memory_with_key(n, &relaxed, most, &gib, &at, err));
        if (!(gib > 0) || gib > most || n->cancelled)
            continue;
        most = out->key_gib = gib;
        out->key_layout = at;
        format_key((memory_key)k, job, &relaxed, &at, out);
    }
    return LH_OK;
}

lh_status lhi_find_memory_needs(const lhi_layout_search *s,
                                lh_memory_needs *out, lh_error *err)
{
    needs_search n = {.like = s};
    const job_number memory = make_memory_number(s->job);
    *out = (lh_memory_needs){0};
    LHI_TRY(find_least(&n, &memory, &out->gpu_gib, &out->gpu_layout, err));
    if (!n.cancelled)
        LHI_TRY(find_nodes(&n, s->job, out, err));
    if (!n.cancelled)
        LHI_TRY(find_key(&n, s->job, out, err));
    return LH_OK;
}

/* --- text ----------------------------------------------------------------- */

enum { LAYOUT_TEXT = 160 };

/* Formats the degrees, ZeRO stage and recomputation of a layout. Returns
 * `text`. */
static const char *format_layout(const lh_fitting_layout *at,
                                 char text[LAYOUT_TEXT])
{
    char context[24] = "", expert[24] = "";
    if (at->context > 1)
        snprintf(context, sizeof context, ", context %" PRIu32, at->context);
    if (at->expert > 1)
        snprintf(expert, sizeof expert, ", expert %" PRIu32, at->expert);
    snprintf(text, LAYOUT_TEXT,
             "tensor %" PRIu32 "%s%s, pipeline %" PRIu32 ", data %" PRIu32
             ", zero %" PRIu32 ", recompute %s",
             at->tensor, context, expert, at->pipeline, at->data, at->zero,
             lh_recompute_name(at->recompute));
    return text;
}

/* Appends to a text of LHI_MEMORY_NEEDS_TEXT bytes. */
static void append_text(char *text, const char *format, ...) LHI_PRINTF(2, 3);

/* Appends formatted text to `text`, cut at LHI_MEMORY_NEEDS_TEXT bytes. */
static void append_text(char *text, const char *format, ...)
{
    const size_t len = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + len, LHI_MEMORY_NEEDS_TEXT - len, format, args);
    va_end(args);
}

void lhi_format_memory_needs(const lh_job *job, const lh_memory_needs *needs,
                             char text[LHI_MEMORY_NEEDS_TEXT])
{
    char layout[LAYOUT_TEXT];
    text[0] = '\0';
    if (needs->gpu_gib > 0)
        append_text(text, "use GPUs with at least %.4g GiB (now %.4g; %s)",
                    needs->gpu_gib, find_least_memory(job),
                    format_layout(&needs->gpu_layout, layout));
    if (needs->nodes)
        append_text(text, "%s %" PRIu32 " nodes%s (now %" PRIu32 "; %s)",
                    *text ? ", or" : "use", needs->nodes,
                    job->n_datacenters > 1 ? " in the same ratio" : "",
                    job->n_nodes, format_layout(&needs->nodes_layout, layout));
    if (*needs->key && needs->key_gib > find_least_memory(job))
        append_text(text, ", or %s with GPUs of %.4g GiB", needs->key,
                    needs->key_gib);
    else if (*needs->key)
        append_text(text, ", or %s", needs->key);
}
