/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/plan/run_profile.h"

#include "model/paths.h"
#include "planner/layout/choice.h"
#include "planner/layout/layout.h"
#include "runtime/engine/measure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* A path between stages, and its messages' summed durations. */
typedef struct path {
    lh_profile_path kind;
    uint32_t from, to; /* datacenters */
    double ns, beta;
    uint32_t n;
} path;

/* State while a profile is written. */
typedef struct profile_writer {
    const lhi_plan_run *run;
    const lhi_observed_means *seen;
    lhi_arena *mem;
    lhi_layout_placement places;
    path *paths;
    uint32_t n_paths;
} profile_writer;

/* --- passes --- */

/* Fills in chunk `c`'s measured F, D and W times in the profile entry. Splits
 * the time of joint backward passes (B) into D and W in the planned proportion.
 * */
static void fill_times(const profile_writer *w, uint32_t c,
                       lh_profile_entry *out)
{
    const double *ns = &w->seen->pass_ns[(size_t)c * (LH_B + 1)];
    const lh_chunk *chunk = lh_pipeline_chunk(w->run->pipeline, c);
    double both = (double)chunk->d_ns + (double)chunk->w_ns;
    double share = both > 0 ? (double)chunk->d_ns / both : 0.5;
    out->f_ns = llround(ns[LH_F]);
    out->d_ns = llround(ns[LH_D] > 0 ? ns[LH_D] : ns[LH_B] * share);
    out->w_ns = llround(ns[LH_W] > 0 ? ns[LH_W] : ns[LH_B] * (1 - share));
}

/* Fills in the profile entry of chunk `c` from the run's mean times and memory,
 * with the plan's degrees and layers. */
static void fill_chunk(const profile_writer *w, uint32_t c,
                       lh_profile_entry *out)
{
    const lh_choice *best = &w->run->plan->best;
    uint32_t first;
    *out = (lh_profile_entry){
        .kind = LH_PROFILE_CHUNK,
        .tensor = best->layout.tensor,
        .context = best->layout.context,
        .expert = best->layout.expert,
        .micro_batch = best->layout.micro_batch,
        .sequence = w->run->plan->job->training.sequence,
        .recompute = (uint32_t)best->recompute,
        .no_sequence_parallel =
            best->layout.tensor > 1 &&
            w->run->plan->job->framework.no_sequence_parallel,
        .communication = true,
        .chunk = c,
        .n_chunks = lh_pipeline_n_chunks(w->run->pipeline),
        .static_bytes = llround(w->seen->state_bytes[c]),
        .activation_bytes = w->seen->activation_bytes[c] > 0
                                ? llround(w->seen->activation_bytes[c])
                                : LH_NOT_MEASURED,
    };
    if (best->recompute == LH_RECOMPUTE_MODULES)
        out->recompute = LH_RECOMPUTE_NONE; /* an entry has no modules */
    lh_plan_layers(w->run->plan, c, &first, &out->layers);
    fill_times(w, c, out);
}

/* --- links --- */

/* Finds the network path between stages `from` and `to` (its kind, node, site
 * or WAN, and its datacenters) in the writer's list, or appends it; *out points
 * to it. */
static lh_status find_or_add_path(profile_writer *w, uint32_t from, uint32_t to,
                                  path **out, lh_error *err)
{
    const lh_plan *plan = w->run->plan;
    lh_cost_hop hop =
        lhi_layout_hop(&w->places, &plan->best.layout, 0, from, to, 1);
    lh_cost_message message;
    uint32_t i = 0;
    LHI_TRY(lhi_cost_hop_message(plan->job, &plan->best.layout, &hop, NULL,
                                 &message, err));
    path x = {message.kind, hop.from, hop.to, 0, 0, 0};
    while (i < w->n_paths &&
           (w->paths[i].kind != x.kind || w->paths[i].from != x.from ||
            w->paths[i].to != x.to))
        i++;
    if (i == w->n_paths)
        w->paths[w->n_paths++] = x;
    *out = &w->paths[i];
    return LH_OK;
}

/* Adds a message between stages `from` and `to` to the sums of its network
 * path: seen_ns, its mean time in the run or, if ranks have no shared clock,
 * the time of boundary `boundary`'s link, measured without traffic. */
static lh_status add_message(profile_writer *w, uint32_t from, uint32_t to,
                             double seen_ns, uint32_t boundary, lh_error *err)
{
    const lhi_observed_means *o = w->seen;
    const lh_layout *l = &w->run->plan->best.layout;
    double bytes = (double)lhi_cost_message_bytes(w->run->plan->job, l) /
                   (l->tensor * l->context); /* each GPU sends its share */
    path *x;
    double alpha = o->alpha_ns[boundary], beta = o->beta_ns[boundary];
    LHI_TRY(find_or_add_path(w, from, to, &x, err));
    x->ns += o->has_messages ? seen_ns : alpha + beta * bytes;
    x->beta += beta;
    x->n++;
    return LH_OK;
}

/* Adds the mean message times between neighbouring chunks, forward and
 * backward, to the sums of the network paths between their stages. */
static lh_status add_messages(profile_writer *w, lh_error *err)
{
    uint32_t n = lh_pipeline_n_chunks(w->run->pipeline);
    for (uint32_t c = 0; c + 1 < n; c++) {
        uint32_t a = lh_pipeline_chunk(w->run->pipeline, c)->device;
        uint32_t b = lh_pipeline_chunk(w->run->pipeline, c + 1)->device;
        if (a == b || w->seen->alpha_ns[c] <= 0)
            continue;
        LHI_TRY(add_message(w, a, b, w->seen->message_ns[2 * (size_t)c + 2], c,
                            err));
        LHI_TRY(add_message(w, b, a, w->seen->message_ns[2 * (size_t)c + 1], c,
                            err));
    }
    return LH_OK;
}

/* Returns the bytes that the planner counts for a message on path `x`: one
 * replica's or, between datacenters, those of all replicas together. */
static double count_planner_bytes(const profile_writer *w, const path *x)
{
    const lh_layout *l = &w->run->plan->best.layout;
    double bytes = (double)lhi_cost_message_bytes(w->run->plan->job, l);
    return x->kind == LH_PATH_WAN ? bytes * l->data : bytes;
}

/* Returns the profile's link for path `x`: latency and time per byte with which
 * the planner's message takes the mean time measured on the path. */
static lh_profile_link fit_link(const profile_writer *w, const path *x)
{
    const lh_job *job = w->run->plan->job;
    double beta = x->beta / x->n;
    double alpha = x->ns / x->n - beta * count_planner_bytes(w, x);
    lh_profile_link out = {.path = x->kind,
                           .alpha_ns = alpha > 0 ? llround(alpha) : 0,
                           .beta_ns_per_byte = beta};
    if (x->kind == LH_PATH_WAN) {
        out.from = job->datacenters[x->from].name;
        out.to = job->datacenters[x->to].name;
    } else {
        out.site = job->datacenters[x->from].name;
    }
    return out;
}

/* --- overhead per iteration --- */

/* Builds the pipeline that a plan with this profile will have: pass times from
 * its entries, message and data-parallel times from its links. */
static lh_status make_next_pipeline(const profile_writer *w,
                                    const lh_profile *profile,
                                    lh_pipeline **out, lh_error *err)
{
    lh_job job = *w->run->plan->job;
    const lhi_config config = lhi_config_from_choice(&w->run->plan->best);
    lhi_built_layout built;
    job.profile = profile;
    job.framework.overlap_f_b = 0; /* the run's F and B do not overlap */
    LHI_TRY(lhi_layout_build(&job, &config, &built, err));
    *out = built.pipeline;
    return LH_OK;
}

/* Builds the run's pipeline with the profile's pass times and the run's own
 * links, for a profile without measured links: the run may have emulated other
 * delays than the job's. */
static lh_status make_run_pipeline(const profile_writer *w,
                                   const lh_profile *profile, lh_pipeline **out,
                                   lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    LHI_TRY(lh_pipeline_describe(w->run->pipeline, &desc, err));
    lh_chunk *chunks = LHI_NEW(w->mem, lh_chunk, desc.n_chunks);
    if (!chunks)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < desc.n_chunks; c++) {
        chunks[c] = desc.chunks[c];
        chunks[c].f_ns = profile->entries[c].f_ns;
        chunks[c].d_ns = profile->entries[c].d_ns;
        chunks[c].w_ns = profile->entries[c].w_ns;
    }
    desc.chunks = chunks;
    return lh_pipeline_make(&desc, out, err);
}

/* Computes profile->overhead: the measured iteration time minus the simulated
 * one. It covers the optimizer, sums over ranks, and waits due to variation
 * between passes. */
static lh_status compute_overhead(profile_writer *w, lh_profile *profile,
                                  lh_error *err)
{
    lh_pipeline *pipeline;
    lh_exec *exec;
    LHI_TRY(w->n_paths ? make_next_pipeline(w, profile, &pipeline, err)
                       : make_run_pipeline(w, profile, &pipeline, err));
    lh_status status =
        lh_exec_make(pipeline, w->run->schedule, w->run->exec, &exec, err);
    lh_pipeline_free(pipeline);
    if (status != LH_OK)
        return status;
    int64_t rest = llround(w->seen->iteration_ns) - lh_exec_predicted_ns(exec);
    profile->iteration_ns = rest > 1 ? rest : 1;
    lh_exec_free(exec);
    return LH_OK;
}

/* --- profile --- */

/* Makes a run's profile: an entry with measured times per chunk, a link per
 * network path, and the overhead per iteration. */
static lh_status write_profile(profile_writer *w, lh_profile **out,
                               lh_error *err)
{
    uint32_t n = lh_pipeline_n_chunks(w->run->pipeline);
    lh_profile_entry *entries = LHI_NEW(w->mem, lh_profile_entry, n);
    lh_profile_link *links = LHI_NEW(w->mem, lh_profile_link, 2 * (size_t)n);
    char source[160];
    w->paths = LHI_NEW(w->mem, path, 2 * (size_t)n);
    if (!entries || !links || !w->paths)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_layout_place(w->run->plan->job, &w->run->plan->best.layout,
                             w->mem, &w->places, err));
    for (uint32_t c = 0; c < n; c++)
        fill_chunk(w, c, &entries[c]);
    LHI_TRY(add_messages(w, err));
    for (uint32_t i = 0; i < w->n_paths; i++)
        links[i] = fit_link(w, &w->paths[i]);
    snprintf(source, sizeof source,
             "longhaul train, cpu device, float32: means of %" PRIu32
             " iterations",
             w->seen->n_steps);
    lh_profile made = {.name = "measured",
                       .model = w->run->plan->job->model->name,
                       .source = source,
                       .n_entries = n,
                       .n_links = w->n_paths,
                       .entries = entries,
                       .links = links};
    LHI_TRY(compute_overhead(w, &made, err));
    return lhi_profile_copy(&made, out, err);
}

lh_status lhi_run_profile_make(const lhi_plan_run *run,
                               const lhi_observed_means *observed,
                               lh_profile **out, lh_error *err)
{
    profile_writer w = {.run = run, .seen = observed, .mem = lhi_arena_make(0)};
    if (!w.mem)
        return lhi_fail_nomem(err);
    lh_status status = write_profile(&w, out, err);
    lhi_arena_free(w.mem);
    return status;
}
