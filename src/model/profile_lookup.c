/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces estimates by profile measurements. */
#include "model/profile_lookup.h"

#include "base/fail.h"
#include "format/job/parse.h"
#include "format/job/profile_lookup.h"

#include <inttypes.h>
#include <string.h>

static const char *const kind_names[] = {
    [LH_PROFILE_LAYER] = "layer",         [LH_PROFILE_MOE_LAYER] = "moe-layer",
    [LH_PROFILE_EMBEDDING] = "embedding", [LH_PROFILE_HEAD] = "head",
    [LH_PROFILE_CHUNK] = "chunk",
};

/* Checks whether profile entries `a` and `like` were measured for the same
 * part, layout and sequence length; only the microbatch size may differ. */
static bool have_same_shape(const lh_profile_entry *a,
                            const lh_profile_entry *like)
{
    if (a->kind != like->kind || a->tensor != like->tensor ||
        a->context != like->context || a->expert != like->expert ||
        a->sequence != like->sequence || a->recompute != like->recompute ||
        a->no_sequence_parallel != like->no_sequence_parallel)
        return false;
    if (!lhi_profile_entry_matches(a, like))
        return false;
    return a->kind != LH_PROFILE_CHUNK ||
           (a->chunk == like->chunk && a->n_chunks == like->n_chunks);
}

/* Interpolates linearly between two measured values; -1 if either is missing.
 * `share`: 0 gives `low`, 1 gives `high`. */
static double interpolate_value(int64_t low, int64_t high, double share)
{
    if (low == LH_NOT_MEASURED || high == LH_NOT_MEASURED)
        return -1;
    return (double)low + share * ((double)high - (double)low);
}

/* Interpolates times and bytes linearly between the measurements of two
 * microbatch sizes, `low` and `high`, to the size micro_batch. */
static void interpolate_times(const lh_profile_entry *low,
                              const lh_profile_entry *high,
                              uint32_t micro_batch, lhi_measurement *out)
{
    double share = low == high
                       ? 0
                       : ((double)micro_batch - low->micro_batch) /
                             ((double)high->micro_batch - low->micro_batch);

    out->found = true;
    out->communication = low->communication;
    out->f_ns = interpolate_value(low->f_ns, high->f_ns, share);
    out->d_ns = interpolate_value(low->d_ns, high->d_ns, share);
    out->w_ns = interpolate_value(low->w_ns, high->w_ns, share);
    out->activation_bytes =
        interpolate_value(low->activation_bytes, high->activation_bytes, share);
    out->static_bytes =
        interpolate_value(low->static_bytes, high->static_bytes, share);
}

/* Finds the profile entry with the shape and microbatch size of `like`, or
 * interpolates between the nearest sizes on both sides. Time and memory are
 * nearly affine in the token count, so interpolation is safe and extrapolation
 * is not. Returns false if there is no entry, or none on one side. */
static bool find_nearest(const lh_profile *profile,
                         const lh_profile_entry *like, lhi_measurement *out)
{
    const lh_profile_entry *low = NULL, *high = NULL;
    const lh_profile_entry *exact = lhi_profile_find(profile, like);

    if (exact) {
        interpolate_times(exact, exact, like->micro_batch, out);
        return true;
    }
    for (uint32_t i = 0; i < profile->n_entries; i++) {
        const lh_profile_entry *e = &profile->entries[i];

        if (!have_same_shape(e, like))
            continue;
        if (e->micro_batch < like->micro_batch &&
            (!low || e->micro_batch > low->micro_batch))
            low = e;
        if (e->micro_batch > like->micro_batch &&
            (!high || e->micro_batch < high->micro_batch))
            high = e;
    }
    if (!low || !high || low->communication != high->communication)
        return false;
    interpolate_times(low, high, like->micro_batch, out);
    return true;
}

/* Finds the measurement as find_nearest() does; returns false if there is none.
 * If no entry is marked as measured without sequence parallelism, also accepts
 * entries that do not say whether it was used. */
static bool find_usable(const lh_profile *profile, const lh_profile_entry *like,
                        lhi_measurement *out)
{
    lh_profile_entry unsaid = *like;
    unsaid.no_sequence_parallel = false;
    return find_nearest(profile, like, out) ||
           (like->no_sequence_parallel && find_nearest(profile, &unsaid, out));
}

bool lhi_measurement_matches_job(const lh_job *job, const lh_profile_entry *e)
{
    if (e->sequence != job->training.sequence ||
        (e->no_sequence_parallel && !job->framework.no_sequence_parallel))
        return false;
    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        const lh_profile_entry like = {
            .gpu = job->datacenters[i].gpu.name,
            .model = job->model->name ? job->model->name : ""};
        if (lhi_profile_entry_matches(e, &like))
            return true;
    }
    return false;
}

/* Checks whether the profile has any entry for the model of the kind of `like`
 * (layer, embedding, head or chunk), for any layout. */
static bool has_kind(const lh_profile *profile, const lh_profile_entry *like)
{
    for (uint32_t i = 0; i < profile->n_entries; i++) {
        const lh_profile_entry *e = &profile->entries[i];

        if (e->kind == like->kind &&
            (!e->model || strcmp(e->model, like->model) == 0) &&
            (e->kind != LH_PROFILE_CHUNK || e->n_chunks == like->n_chunks))
            return true;
    }
    return false;
}

/* Checks whether experts are split over GPUs as in the profile's measurements
 * of this kind. Profiles do not record the expert-tensor degree, so it must
 * equal a layout's default. */
static bool is_cut_as_measured(const lh_job *job, const lh_layout *layout,
                               lh_profile_kind kind)
{
    lh_layout usual = *layout;

    usual.expert_tensor = 0;
    return !job->model->experts ||
           (kind != LH_PROFILE_MOE_LAYER && kind != LH_PROFILE_CHUNK) ||
           lh_layout_expert_tensor(layout) == lh_layout_expert_tensor(&usual);
}

lh_status lhi_measurement_find(const lh_job *job, const lh_layout *layout,
                               const lh_cost_layer_range *slice,
                               const lh_cost_options *options,
                               lh_profile_kind kind, lhi_measurement *out,
                               lh_error *err)
{
    const lh_profile *profile = job->profile;
    lh_profile_entry like = {
        .kind = kind,
        .gpu = job->datacenters[slice->datacenter].gpu.name,
        .model = job->model->name ? job->model->name : "",
        .tensor = layout->tensor,
        .context = layout->context,
        .expert = layout->expert,
        .micro_batch = layout->micro_batch,
        .sequence = job->training.sequence,
        .recompute = (uint32_t)job->training.recompute,
        .no_sequence_parallel =
            layout->tensor > 1 && (options->no_sequence_parallel ||
                                   job->framework.no_sequence_parallel),
        .chunk = kind == LH_PROFILE_CHUNK ? slice->chunk : 0,
        .n_chunks = kind == LH_PROFILE_CHUNK ? slice->n_chunks : 0,
    };
    bool pointless = kind == LH_PROFILE_EMBEDDING || kind == LH_PROFILE_HEAD;

    *out = (lhi_measurement){0};
    if (!profile || options->ignore_profile || !has_kind(profile, &like))
        return LH_OK;
    bool comparable = is_cut_as_measured(job, layout, kind);
    if (comparable && find_usable(profile, &like, out)) {
        out->recompute_done = true;
        return LH_OK;
    }
    if (comparable && like.recompute != LH_RECOMPUTE_NONE) {
        like.recompute = LH_RECOMPUTE_NONE;
        if (find_usable(profile, &like, out)) {
            /* Embedding and head have nothing to recompute. */
            out->recompute_done = pointless;
            return LH_OK;
        }
    }
    if (options->estimate_missing)
        return LH_OK;
    if (!comparable)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "profile %s does not say what experts take that are "
                        "cut over %" PRIu32 " GPUs; leave expert_tensor out",
                        profile->name ? profile->name : "of the job",
                        lh_layout_expert_tensor(layout));
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "profile %s has no %s on %s with tensor %" PRIu32
                    ", context %" PRIu32 ", expert %" PRIu32
                    ", sequence %" PRIu32 " and micro_batch %" PRIu32
                    ", and cannot interpolate: a smaller and a larger "
                    "micro_batch are required",
                    profile->name ? profile->name : "of the job",
                    kind_names[kind], like.gpu, like.tensor, like.context,
                    like.expert, like.sequence, like.micro_batch);
}
