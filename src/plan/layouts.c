/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layouts.h"

#include <stdlib.h>

enum { MOST_LAYOUTS = 20000 }; /* beyond this the job fixes too little */

static bool given(uint32_t value, uint32_t want)
{
    return want == 0 || want == value;
}

static lh_status add(lhi_layouts *s, const lhi_config *config, lh_error *err)
{
    if (s->n == MOST_LAYOUTS)
        return lhi_fail(err, LH_EINVAL,
                        "more than %d layouts are possible; fix some of "
                        "layout.tensor, pipeline, data, micro_batch",
                        MOST_LAYOUTS);
    if (s->n == s->room) {
        uint32_t room = s->room ? 2 * s->room : 256;
        lhi_config *more = realloc(s->configs, room * sizeof *more);
        if (!more)
            return lhi_fail_nomem(err);
        s->configs = more;
        s->room = room;
    }
    s->configs[s->n++] = *config;
    return LH_OK;
}

static lh_status add_chunkings(lhi_layouts *s, lhi_config *config,
                               lh_error *err)
{
    static const struct {
        uint32_t chunks;
        lh_placement placement;
    } kinds[] = {{1, LH_PLACEMENT_UD},
                 {2, LH_PLACEMENT_LOOP},
                 {2, LH_PLACEMENT_WAVE},
                 {4, LH_PLACEMENT_LOOP}};
    uint32_t want = s->job->layout.chunks_per_device;
    bool usual = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        usual = usual || kinds[i].chunks == want;
        if (!given(kinds[i].chunks, want) ||
            (kinds[i].chunks > 1 && config->layout.pipeline == 1))
            continue;
        config->layout.chunks_per_device = kinds[i].chunks;
        config->placement = kinds[i].placement;
        LHI_TRY(add(s, config, err));
    }
    if (want && !usual) {
        config->layout.chunks_per_device = want;
        config->placement = LH_PLACEMENT_LOOP;
        return add(s, config, err);
    }
    return LH_OK;
}

static lh_status add_recomputations(lhi_layouts *s, lhi_config *config,
                                    lh_error *err)
{
    const lh_training *t = &s->job->training;
    static const lh_recompute all[] = {
        LH_RECOMPUTE_NONE, LH_RECOMPUTE_SELECTIVE, LH_RECOMPUTE_FULL};
    for (int i = 0; i < 3; i++) {
        if (t->recompute_given && all[i] != t->recompute)
            continue;
        config->recompute = all[i];
        LHI_TRY(add_chunkings(s, config, err));
    }
    return LH_OK;
}

static lh_status add_micro_batches(lhi_layouts *s, lhi_config *config,
                                   lh_error *err)
{
    uint32_t want = s->job->layout.micro_batch;
    uint64_t data = config->layout.data, batch = s->job->training.global_batch;
    for (uint32_t mb = 1; mb <= 8; mb *= 2) {
        uint32_t size = want ? want : mb * config->layout.expert;
        bool divides = batch % (data * size) == 0;
        if (divides && !want && batch / (data * size) > LHI_MOST_MICROBATCHES) {
            s->n_dropped++;
        } else if (divides) {
            config->layout.micro_batch = size;
            config->microbatches = (uint32_t)(batch / (data * size));
            LHI_TRY(add_recomputations(s, config, err));
        }
        if (want)
            break;
    }
    return LH_OK;
}

static lh_status add_outermost(lhi_layouts *s, lhi_config *config,
                               lh_error *err)
{
    lh_outermost want = s->job->layout.outermost;
    for (int o = LH_OUTERMOST_PIPELINE; o <= LH_OUTERMOST_DATA; o++) {
        /* With one datacenter, or one kind of parallelism, the two order the
         * same GPUs; then pipeline outermost, as frameworks have it. */
        bool same = s->job->n_datacenters == 1 || config->layout.data == 1;
        if (want ? (int)want != o : same && o == LH_OUTERMOST_DATA)
            continue;
        config->layout.outermost = (lh_outermost)o;
        LHI_TRY(add_micro_batches(s, config, err));
    }
    return LH_OK;
}

static lh_status add_pipelines(lhi_layouts *s, lhi_config *config,
                               lh_error *err)
{
    const lh_layout *want = &s->job->layout;
    uint32_t groups = s->job->n_gpus / lhi_group_size(&config->layout);
    uint32_t layers = s->job->model->layers;
    for (uint32_t pp = 1; pp <= groups && pp <= layers; pp++) {
        if (!given(pp, want->pipeline))
            continue;
        /* All GPUs are to work, unless the job says otherwise. */
        bool fixed = want->pipeline && want->data;
        uint32_t dp = want->data ? want->data : groups / pp;
        if (!fixed && (uint64_t)pp * dp != groups)
            continue;
        config->layout.pipeline = pp;
        config->layout.data = dp;
        LHI_TRY(add_outermost(s, config, err));
    }
    return LH_OK;
}

lh_status lhi_layouts_find(const lh_job *job, lhi_layouts *out, lh_error *err)
{
    lhi_layouts *s = out;
    *s = (lhi_layouts){.job = job};
    const lh_layout *want = &s->job->layout;
    const lh_model *model = s->job->model;
    uint32_t node = s->job->datacenters[0].gpus_per_node;
    for (uint32_t i = 1; i < s->job->n_datacenters; i++)
        if (s->job->datacenters[i].gpus_per_node < node)
            node = s->job->datacenters[i].gpus_per_node;
    uint32_t context = want->context ? want->context : 1;
    uint32_t most_expert = model->experts > 0 ? node : 1;
    for (uint32_t ep = 1; ep <= s->job->n_gpus; ep++) {
        if (!given(ep, want->expert) ||
            (!want->expert && (ep > most_expert || (ep & (ep - 1)) != 0 ||
                               (ep > 1 && model->experts % ep != 0))))
            continue;
        for (uint32_t tp = 1; tp <= s->job->n_gpus; tp++) {
            uint64_t group = (uint64_t)tp * context * ep;
            if (!given(tp, want->tensor) || group > s->job->n_gpus ||
                (!want->tensor &&
                 (group > node || node % tp != 0 || model->heads % tp != 0)))
                continue;
            if (s->job->n_gpus % group != 0 && !(want->pipeline && want->data))
                continue;
            lhi_config config = {.layout = *want};
            config.layout.tensor = tp;
            config.layout.context = context;
            config.layout.expert = ep;
            LHI_TRY(add_pipelines(s, &config, err));
        }
    }
    return LH_OK;
}

void lhi_layouts_fini(lhi_layouts *layouts)
{
    free(layouts->configs);
    *layouts = (lhi_layouts){0};
}
